# SPDX-License-Identifier: Apache-2.0
"""Transformers with normalisation before attention and perceptron: GPT on words, ViT on pictures."""

from __future__ import annotations

from typing import Tuple

import torch
from torch import nn
from torch.nn import functional

from .task import Task, draw_pictures

VOCABULARY = 50304  # 50,257 rounded up to a multiple of 64, as is usual


class Block(nn.Module):
    def __init__(self, width: int, heads: int, causal: bool):
        super().__init__()
        self.heads, self.causal = heads, causal
        self.norm_1, self.norm_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention, self.projection = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        count, length, width = x.shape
        mixed = self.attention(self.norm_1(x)).view(count, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(*mixed.unbind(0), is_causal=self.causal)
        x = x + self.projection(mixed.transpose(1, 2).reshape(count, length, width))
        return x + self.down(functional.gelu(self.up(self.norm_2(x)), approximate="tanh"))


class WordLoss(nn.Module):
    """The summed loss of some of the words. A row of logits is as long as the vocabulary, and the softmax needs several
    copies at a time: hence in pieces."""

    def __init__(self, head: nn.Linear):
        super().__init__()
        self.head = head

    def forward(self, x: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return functional.cross_entropy(self.head(x).float(), targets, reduction="sum")


def loss_in_pieces(losses: nn.ModuleList, x: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """The mean loss of all words, as many at a time as make len(losses) pieces."""
    words, wanted = x.flatten(0, 1).chunk(len(losses)), targets.flatten().chunk(len(losses))
    return torch.stack([loss(*piece) for loss, *piece in zip(losses, words, wanted)]).sum() / targets.numel()


class Gpt(nn.Module):
    def __init__(self, layers: int, width: int, heads: int, length: int, vocabulary: int, pieces: int):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        self.blocks = nn.ModuleList(Block(width, heads, causal=True) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        head = nn.Linear(width, vocabulary, bias=False)
        head.weight = self.tokens.weight
        self.losses = nn.ModuleList(WordLoss(head) for _ in range(pieces))
        self.register_buffer("places", torch.arange(length))
        self.apply(initialise)

    def forward(self, tokens: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        x = self.tokens(tokens) + self.positions(self.places[: tokens.shape[1]])
        for block in self.blocks:
            x = block(x)
        return loss_in_pieces(self.losses, self.norm(x), targets)


def initialise(module: nn.Module) -> None:
    if isinstance(module, (nn.Linear, nn.Embedding)):
        nn.init.normal_(module.weight, std=0.02)
    if isinstance(module, nn.Linear) and module.bias is not None:
        nn.init.zeros_(module.bias)


def gpt(layers: int, width: int, heads: int, length: int, vocabulary: int = VOCABULARY, pieces: int = 8) -> Task:
    def draw(count: int, generator: torch.Generator) -> Tuple[torch.Tensor, ...]:
        return draw_text(count, length, min(512, vocabulary), generator)

    model = Gpt(layers, width, heads, length, vocabulary, pieces)
    return Task(model, [*model.blocks, *model.losses], draw)


def draw_text(count: int, length: int, words: int, generator: torch.Generator) -> Tuple[torch.Tensor, torch.Tensor]:
    """Each text counts on by a stride of its own, so that there is something to learn; and the text one word later."""
    start = torch.randint(0, words, (count, 1), generator=generator)
    stride = torch.randint(1, 8, (count, 1), generator=generator)
    text = (start + stride * torch.arange(length + 1)) % words
    return text[:, :-1].contiguous(), text[:, 1:].contiguous()


class Vit(nn.Module):
    def __init__(self, layers: int, width: int, heads: int, size: int, patch: int, classes: int):
        super().__init__()
        self.patches = nn.Conv2d(3, width, patch, patch)
        self.summary = nn.Parameter(torch.zeros(1, 1, width))
        self.positions = nn.Parameter(0.02 * torch.randn(1, (size // patch) ** 2 + 1, width))
        self.blocks = nn.ModuleList(Block(width, heads, causal=False) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, classes)
        self.apply(initialise)

    def forward(self, pictures: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        x = self.patches(pictures).flatten(2).transpose(1, 2)
        x = torch.cat([self.summary.expand(x.shape[0], -1, -1).to(x.dtype), x], 1) + self.positions
        for block in self.blocks:
            x = block(x)
        return functional.cross_entropy(self.head(self.norm(x[:, 0])).float(), labels)


def vit(layers: int, width: int, heads: int, size: int = 224, patch: int = 16, classes: int = 1000) -> Task:
    model = Vit(layers, width, heads, size, patch, classes)
    return Task(model, list(model.blocks), lambda count, generator: draw_pictures(count, size, classes, generator))
