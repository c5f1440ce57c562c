#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains a 124M-parameter GPT-2 (bf16 autocast, fused AdamW) under a device-memory budget.

    gpt2.py --budget 4GiB        under PumpGraph
    gpt2.py --plain              the same step, captured the same way, without it

Both print the same losses, bit for bit. training.py holds what the examples share.
"""

import torch
from torch import nn
from torch.nn import functional

import training

VOCABULARY = 50304  # 50,257 rounded up to a multiple of 64, as is usual
CONTEXT = 1024
LAYERS, HEADS, WIDTH = 12, 12, 768
LOSS_PIECES = 8


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln_1 = nn.LayerNorm(WIDTH)
        self.attention = nn.Linear(WIDTH, 3 * WIDTH)
        self.projection = nn.Linear(WIDTH, WIDTH)
        self.ln_2 = nn.LayerNorm(WIDTH)
        self.up = nn.Linear(WIDTH, 4 * WIDTH)
        self.down = nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        batch, length, _ = x.shape
        query, key, value = self.attention(self.ln_1(x)).view(batch, length, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.projection(mixed.transpose(1, 2).reshape(batch, length, WIDTH))
        return x + self.down(functional.gelu(self.up(self.ln_2(x)), approximate="tanh"))


class Gpt2(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, WIDTH)
        self.positions = nn.Embedding(CONTEXT, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.ln = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)
        self.head.weight = self.tokens.weight
        self.register_buffer("places", torch.arange(CONTEXT))
        self.apply(_initialise)

    def forward(self, tokens, targets):
        x = self.tokens(tokens) + self.positions(self.places[: tokens.shape[1]])
        for block in self.blocks:
            x = block(x)
        x = self.ln(x).flatten(0, 1)
        # In pieces: a row of logits is as long as the vocabulary, and the softmax needs several copies at a time.
        losses = [
            functional.cross_entropy(self.head(piece), target, reduction="sum")
            for piece, target in zip(x.chunk(LOSS_PIECES), targets.flatten().chunk(LOSS_PIECES))
        ]
        return torch.stack(losses).sum() / targets.numel()


def _initialise(module):
    if isinstance(module, (nn.Linear, nn.Embedding)):
        nn.init.normal_(module.weight, std=0.02)
    if isinstance(module, nn.Linear) and module.bias is not None:
        nn.init.zeros_(module.bias)


def build(batch: int) -> training.Workload:
    model = Gpt2().cuda().train()
    # capturable: the step counts live on the device; fused: one sweep over parameters and state.
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-4, weight_decay=0.1, fused=True, capturable=True)
    batches = [_draw_batch(batch, seed) for seed in range(4)]
    tokens, targets = (tensor.cuda() for tensor in batches[0])

    return training.Workload(model, optimizer, lambda: train_once(model, optimizer, tokens, targets),
                             inputs=(tokens, targets), batches=batches)


def train_once(model, optimizer, tokens, targets, autocast=True):
    with torch.autocast("cuda", dtype=torch.bfloat16, enabled=autocast):
        loss = model(tokens, targets)
    loss.backward()
    optimizer.step()
    # At the end, not the beginning: gradients then live and die within the step, and need no memory between steps.
    optimizer.zero_grad(set_to_none=True)
    return loss.detach()


def _draw_batch(size: int, seed: int):
    """Each text counts on by a stride of its own within 512 words, so that there is something to learn."""
    generator = torch.Generator().manual_seed(seed)
    start = torch.randint(0, 512, (size, 1), generator=generator)
    stride = torch.randint(1, 8, (size, 1), generator=generator)
    text = (start + stride * torch.arange(CONTEXT + 1)) % 512
    return text[:, :-1].contiguous().pin_memory(), text[:, 1:].contiguous().pin_memory()


if __name__ == "__main__":
    training.main("gpt2", build, default_batch=8, default_budget="4GiB")
