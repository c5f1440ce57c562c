# SPDX-License-Identifier: Apache-2.0
"""GraphSAGE of torch_geometric on a whole graph: rows are gathered, and added up by a scatter."""

import torch
from torch import nn
from torch.nn import functional
from torch_geometric.nn import SAGEConv

from .data import loader


class Network(nn.Module):
    def __init__(self, features, width, layers, classes):
        super().__init__()
        self.first = nn.Linear(features, width)
        self.layers = nn.ModuleList(SAGEConv(width, width, aggr="sum") for _ in range(layers))
        self.norms = nn.ModuleList(nn.BatchNorm1d(width) for _ in range(layers))
        self.head = nn.Linear(width, classes)

    def forward(self, x, edge_index):
        x = self.first(x)
        for layer, norm in zip(self.layers, self.norms):
            x = x + functional.dropout(norm(layer(x, edge_index)).relu(), 0.1, self.training)
        return self.head(x)


def main(run, nodes=65536, edges=262144, features=128, width=128, layers=6, classes=32):
    model = Network(features, width, layers, classes).to(run.device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, weight_decay=5e-4)

    @run.graphed
    def train_step(x, edge_index, labels):
        optimizer.zero_grad()
        loss = functional.cross_entropy(model(x, edge_index), labels)
        loss.backward()
        optimizer.step()
        return loss

    def draw(generator):
        labels = torch.randint(0, classes, (nodes,), generator=generator)
        x = torch.randn(nodes, features, generator=generator) + labels[:, None] / classes
        return x, torch.randint(0, nodes, (2, edges), generator=generator), labels

    for x, edge_index, labels in loader(run, draw):
        run.turn(train_step(x, edge_index, labels).item())
