# SPDX-License-Identifier: Apache-2.0
"""DLRM: large tables of which a batch looks at a few rows, and an optimizer that looks at all."""

import torch
from torch import nn
from torch.nn import functional

from .data import loader


class Dlrm(nn.Module):
    def __init__(self, tables, rows, width, numbers, hidden):
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(rows, width) for _ in range(tables))
        self.bottom = nn.Sequential(nn.Linear(numbers, hidden), nn.ReLU(), nn.Linear(hidden, width), nn.ReLU())
        pairs = (tables + 1) * tables // 2
        self.register_buffer("pairs", torch.tril_indices(tables + 1, tables + 1, -1))
        self.top = nn.Sequential(nn.Linear(width + pairs, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU(),
                                 nn.Linear(hidden, 1))

    def forward(self, numbers, kinds):
        dense = self.bottom(numbers)
        rows = [table(kind) for table, kind in zip(self.tables, kinds.unbind(1))]
        features = torch.stack([dense, *rows], 1)
        products = features @ features.transpose(1, 2)
        return self.top(torch.cat([dense, products[:, self.pairs[0], self.pairs[1]]], 1)).squeeze(1)


def main(run, tables=16, rows=100_000, width=64, numbers=13, hidden=1024, batch=16384):
    model = Dlrm(tables, rows, width, numbers, hidden).to(run.device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

    @run.graphed
    def train_step(values, kinds, clicks):
        optimizer.zero_grad()
        loss = functional.binary_cross_entropy_with_logits(model(values, kinds), clicks)
        loss.backward()
        optimizer.step()
        return loss

    def draw(generator):
        values = torch.randn(batch, numbers, generator=generator)
        kinds = torch.randint(0, rows, (batch, tables), generator=generator)
        return values, kinds, (values.mean(1) > 0).float()

    for values, kinds, clicks in loader(run, draw):
        run.turn(train_step(values, kinds, clicks).item())
