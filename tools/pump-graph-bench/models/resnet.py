# SPDX-License-Identifier: Apache-2.0
"""Residual networks of bottlenecks: normalisation before the convolutions (ResNet-1001) and after them (ResNet-152)."""

from __future__ import annotations

from typing import Sequence

import torch
from torch import nn
from torch.nn import functional

from .task import Task, draw_pictures

EXPANSION = 4


class PreActivation(nn.Module):
    def __init__(self, inputs: int, width: int, stride: int):
        super().__init__()
        outputs = EXPANSION * width
        self.norm_1, self.conv_1 = nn.BatchNorm2d(inputs), nn.Conv2d(inputs, width, 1, bias=False)
        self.norm_2, self.conv_2 = nn.BatchNorm2d(width), nn.Conv2d(width, width, 3, stride, padding=1, bias=False)
        self.norm_3, self.conv_3 = nn.BatchNorm2d(width), nn.Conv2d(width, outputs, 1, bias=False)
        same = stride == 1 and inputs == outputs
        self.shortcut = None if same else nn.Conv2d(inputs, outputs, 1, stride, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = functional.relu(self.norm_1(x), inplace=True)
        around = x if self.shortcut is None else self.shortcut(y)
        y = self.conv_1(y)
        y = self.conv_2(functional.relu(self.norm_2(y), inplace=True))
        y = self.conv_3(functional.relu(self.norm_3(y), inplace=True))
        return around + y


class PreActivationNet(nn.Module):
    def __init__(self, blocks_a_stage: int, width: int, classes: int):
        super().__init__()
        self.stem = nn.Conv2d(3, width, 3, padding=1, bias=False)
        blocks, channels = [], width
        for stage in range(3):
            for index in range(blocks_a_stage):
                stride = 2 if stage > 0 and index == 0 else 1
                blocks.append(PreActivation(channels, width << stage, stride))
                channels = EXPANSION * (width << stage)
        self.blocks = nn.ModuleList(blocks)
        self.norm = nn.BatchNorm2d(channels)
        self.head = nn.Linear(channels, classes)

    def forward(self, pictures: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        x = self.stem(pictures)
        for block in self.blocks:
            x = block(x)
        x = functional.relu(self.norm(x), inplace=True).mean((2, 3))
        return functional.cross_entropy(self.head(x).float(), labels)


def preactivation(depth: int, width: int, size: int = 32, classes: int = 10) -> Task:
    """`depth` counts convolutions: 9n + 2 for n blocks in each of three stages. `width` is the first stage's: 16 in the
    network's first description; 64 gives the memory that the published batch sizes of ResNet-1001 tell."""
    model = PreActivationNet((depth - 2) // 9, width, classes)
    return Task(model, list(model.blocks), lambda count, generator: draw_pictures(count, size, classes, generator))


class Bottleneck(nn.Module):
    def __init__(self, inputs: int, width: int, stride: int):
        super().__init__()
        outputs = EXPANSION * width
        self.conv_1, self.norm_1 = nn.Conv2d(inputs, width, 1, bias=False), nn.BatchNorm2d(width)
        self.conv_2, self.norm_2 = nn.Conv2d(width, width, 3, stride, padding=1, bias=False), nn.BatchNorm2d(width)
        self.conv_3, self.norm_3 = nn.Conv2d(width, outputs, 1, bias=False), nn.BatchNorm2d(outputs)
        same = stride == 1 and inputs == outputs
        self.shortcut = None if same else nn.Sequential(
            nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = functional.relu(self.norm_1(self.conv_1(x)), inplace=True)
        y = functional.relu(self.norm_2(self.conv_2(y)), inplace=True)
        y = self.norm_3(self.conv_3(y))
        y += x if self.shortcut is None else self.shortcut(x)
        return functional.relu(y, inplace=True)


class BottleneckNet(nn.Module):
    def __init__(self, layers: Sequence[int], width: int, classes: int):
        super().__init__()
        self.stem, self.norm = nn.Conv2d(3, width, 7, 2, padding=3, bias=False), nn.BatchNorm2d(width)
        blocks, channels = [], width
        for stage, count in enumerate(layers):
            for index in range(count):
                stride = 2 if stage > 0 and index == 0 else 1
                blocks.append(Bottleneck(channels, width << stage, stride))
                channels = EXPANSION * (width << stage)
        self.blocks = nn.ModuleList(blocks)
        self.head = nn.Linear(channels, classes)

    def forward(self, pictures: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        x = functional.relu(self.norm(self.stem(pictures)), inplace=True)
        x = functional.max_pool2d(x, 3, 2, padding=1)
        for block in self.blocks:
            x = block(x)
        return functional.cross_entropy(self.head(x.mean((2, 3))).float(), labels)


def bottleneck(layers: Sequence[int], width: int = 64, size: int = 224, classes: int = 1000) -> Task:
    model = BottleneckNet(layers, width, classes)
    return Task(model, list(model.blocks), lambda count, generator: draw_pictures(count, size, classes, generator))
