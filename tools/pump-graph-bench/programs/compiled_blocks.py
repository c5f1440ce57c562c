# SPDX-License-Identifier: Apache-2.0
"""GPT whose blocks are compiled."""

import torch
from models.transformer import Gpt, draw_text

from .data import loader


def main(run, layers=12, width=768, heads=12, words=32000, batch=8, length=512):
    device = run.device
    model = Gpt(layers, width, heads, length, words, pieces=1).to(device)
    for block in model.blocks:
        block.compile()
    optimizer = torch.optim.AdamW(model.parameters(), lr=6e-4, weight_decay=0.1, fused=device == "cuda")
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 1000)

    @run.graphed
    def train_step(tokens, targets):
        with torch.autocast(device, torch.bfloat16):
            loss = model(tokens, targets)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        return loss

    for tokens, targets in loader(run, lambda generator: draw_text(batch, length, words, generator)):
        loss = train_step(tokens, targets)
        scheduler.step()
        run.turn(loss.item())
