# SPDX-License-Identifier: Apache-2.0
"""DenseNet with bottlenecks and compression: every layer sees what all layers before it in its block have made."""

from __future__ import annotations

from typing import Sequence

import torch
from torch import nn
from torch.nn import functional

from .task import Task, draw_pictures


class DenseLayer(nn.Module):
    def __init__(self, inputs: int, growth: int):
        super().__init__()
        self.norm_1, self.conv_1 = nn.BatchNorm2d(inputs), nn.Conv2d(inputs, 4 * growth, 1, bias=False)
        self.norm_2, self.conv_2 = nn.BatchNorm2d(4 * growth), nn.Conv2d(4 * growth, growth, 3, padding=1, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.conv_1(functional.relu(self.norm_1(x), inplace=True))
        y = self.conv_2(functional.relu(self.norm_2(y), inplace=True))
        return torch.cat([x, y], 1)


class Transition(nn.Module):
    def __init__(self, inputs: int):
        super().__init__()
        self.norm, self.conv = nn.BatchNorm2d(inputs), nn.Conv2d(inputs, inputs // 2, 1, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return functional.avg_pool2d(self.conv(functional.relu(self.norm(x), inplace=True)), 2)


class DenseNet(nn.Module):
    def __init__(self, layers: Sequence[int], growth: int, classes: int):
        super().__init__()
        channels = 2 * growth
        self.stem, self.norm = nn.Conv2d(3, channels, 7, 2, padding=3, bias=False), nn.BatchNorm2d(channels)
        blocks = []
        for index, count in enumerate(layers):
            if index > 0:
                blocks.append(Transition(channels))
                channels //= 2
            for _ in range(count):
                blocks.append(DenseLayer(channels, growth))
                channels += growth
        self.blocks = nn.ModuleList(blocks)
        self.last_norm = nn.BatchNorm2d(channels)
        self.head = nn.Linear(channels, classes)

    def forward(self, pictures: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        x = functional.relu(self.norm(self.stem(pictures)), inplace=True)
        x = functional.max_pool2d(x, 3, 2, padding=1)
        for block in self.blocks:
            x = block(x)
        x = functional.relu(self.last_norm(x), inplace=True).mean((2, 3))
        return functional.cross_entropy(self.head(x).float(), labels)


def densenet(layers: Sequence[int], growth: int = 32, size: int = 224, classes: int = 1000) -> Task:
    model = DenseNet(layers, growth, classes)
    return Task(model, list(model.blocks), lambda count, generator: draw_pictures(count, size, classes, generator))
