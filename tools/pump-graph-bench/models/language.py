# SPDX-License-Identifier: Apache-2.0
"""A language model of words: a large dictionary behind the small state of an LSTM, trained through a long text."""

from __future__ import annotations

from typing import Tuple

import torch
from torch import nn

from .task import Task
from .transformer import WordLoss, draw_text


class LanguageModel(nn.Module):
    def __init__(self, words: int, width: int, layers: int, pieces: int):
        super().__init__()
        self.tokens = nn.Embedding(words, width)
        self.lstm = nn.LSTM(width, width, layers)
        head = nn.Linear(width, words)
        self.losses = nn.ModuleList(WordLoss(head) for _ in range(pieces))
        nn.init.uniform_(self.tokens.weight, -0.1, 0.1)

    def forward(self, tokens: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        x, _ = self.lstm(self.tokens(tokens.t()))
        words = x.flatten(0, 1).chunk(len(self.losses))
        wanted = targets.t().flatten().chunk(len(self.losses))
        return torch.stack([loss(*piece) for loss, *piece in zip(self.losses, words, wanted)]).sum() / targets.numel()


def lstm(length: int, words: int, width: int, layers: int = 2, pieces: int = 16) -> Task:
    """`length`: through how many words the gradient flows back."""

    def draw(count: int, generator: torch.Generator) -> Tuple[torch.Tensor, ...]:
        return draw_text(count, length, words, generator)

    model = LanguageModel(words, width, layers, pieces)
    return Task(model, list(model.losses), draw)
