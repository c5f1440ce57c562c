# SPDX-License-Identifier: Apache-2.0
"""VGG without normalisation: few layers, large activations at the start, large weights at the end."""

from __future__ import annotations

from typing import Sequence

import torch
from torch import nn
from torch.nn import functional

from .task import Task, draw_pictures


class Stage(nn.Module):
    """Convolutions of one width, then a pooling that halves the picture."""

    def __init__(self, inputs: int, width: int, count: int):
        super().__init__()
        self.convs = nn.ModuleList(nn.Conv2d(inputs if i == 0 else width, width, 3, padding=1) for i in range(count))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for conv in self.convs:
            x = functional.relu(conv(x), inplace=True)
        return functional.max_pool2d(x, 2)


class Vgg(nn.Module):
    def __init__(self, counts: Sequence[int], width: int, hidden: int, size: int, classes: int):
        super().__init__()
        widths = [min(width << index, 8 * width) for index in range(len(counts))]
        self.stages = nn.ModuleList(
            Stage(inputs, outputs, count) for inputs, outputs, count in zip([3, *widths], widths, counts)
        )
        self.head = nn.Sequential(
            nn.Linear(widths[-1] * (size >> len(counts)) ** 2, hidden), nn.ReLU(inplace=True), nn.Dropout(0.5),
            nn.Linear(hidden, hidden), nn.ReLU(inplace=True), nn.Dropout(0.5),
            nn.Linear(hidden, classes),
        )
        self.apply(_initialise)

    def forward(self, pictures: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        x = pictures
        for stage in self.stages:
            x = stage(x)
        return functional.cross_entropy(self.head(x.flatten(1)).float(), labels)


def _initialise(module: nn.Module) -> None:
    # Nothing normalises on the way: without this the signal is gone after nineteen layers.
    if isinstance(module, nn.Conv2d):
        nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
        nn.init.zeros_(module.bias)


def vgg(counts: Sequence[int], width: int = 64, hidden: int = 4096, size: int = 224, classes: int = 1000) -> Task:
    # With the channels last, or every bf16 convolution converts its operands in a workspace as large as they are, and
    # the first ones need most of the network's memory at once.
    model = Vgg(counts, width, hidden, size, classes).to(memory_format=torch.channels_last)
    return Task(model, list(model.stages), lambda count, generator: draw_pictures(count, size, classes, generator))
