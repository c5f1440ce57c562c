# SPDX-License-Identifier: Apache-2.0
"""GPT on long texts: each block is checkpointed, and computed again in the backward pass."""

import torch
from models.transformer import Gpt, draw_text, loss_in_pieces
from torch.utils.checkpoint import checkpoint

from .data import loader


class LongGpt(Gpt):
    def forward(self, tokens, targets):
        x = self.tokens(tokens) + self.positions(self.places)
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False)
        return loss_in_pieces(self.losses, self.norm(x), targets)


def main(run, layers=12, width=1024, heads=16, words=32000, batch=8, length=2048):
    device = run.device
    model = LongGpt(layers, width, heads, length, words, pieces=8).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, weight_decay=0.1)

    @run.graphed
    def train_step(tokens, targets):
        with torch.autocast(device, torch.bfloat16):
            loss = model(tokens, targets)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss

    for tokens, targets in loader(run, lambda generator: draw_text(batch, length, words, generator)):
        run.turn(train_step(tokens, targets).item())
