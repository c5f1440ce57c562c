# SPDX-License-Identifier: Apache-2.0
"""The U-Net of diffusion models: residual blocks that know the time, attention where pictures are small."""

from __future__ import annotations

import math
from typing import Sequence, Tuple

import torch
from torch import nn
from torch.nn import functional

from .task import Task, draw_pictures

HEAD_WIDTH = 64


class Residual(nn.Module):
    def __init__(self, inputs: int, outputs: int, time_width: int):
        super().__init__()
        self.norm_1, self.conv_1 = _norm(inputs), nn.Conv2d(inputs, outputs, 3, padding=1)
        self.time = nn.Linear(time_width, outputs)
        self.norm_2, self.conv_2 = _norm(outputs), nn.Conv2d(outputs, outputs, 3, padding=1)
        self.around = nn.Identity() if inputs == outputs else nn.Conv2d(inputs, outputs, 1)

    def forward(self, x: torch.Tensor, time: torch.Tensor) -> torch.Tensor:
        y = self.conv_1(functional.silu(self.norm_1(x)))
        y = y + self.time(time)[:, :, None, None]
        return self.around(x) + self.conv_2(functional.silu(self.norm_2(y)))


class Attention(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.norm, self.inputs, self.output = _norm(width), nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x: torch.Tensor, time: torch.Tensor) -> torch.Tensor:
        count, width, height, length = x.shape
        y = self.inputs(self.norm(x).flatten(2).transpose(1, 2))
        y = y.view(count, height * length, 3, max(1, width // HEAD_WIDTH), -1).permute(2, 0, 3, 1, 4)
        y = functional.scaled_dot_product_attention(*y.unbind(0)).transpose(1, 2).reshape(count, -1, width)
        return x + self.output(y).transpose(1, 2).reshape(x.shape)


class Down(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.conv = nn.Conv2d(width, width, 3, 2, padding=1)

    def forward(self, x: torch.Tensor, time: torch.Tensor) -> torch.Tensor:
        return self.conv(x)


class Up(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.conv = nn.Conv2d(width, width, 3, padding=1)

    def forward(self, x: torch.Tensor, time: torch.Tensor) -> torch.Tensor:
        count, width, height, length = x.shape
        # Every pixel twice each way; unlike interpolate() its backward pass is a plain sum, always in the same order.
        doubled = x[:, :, :, None, :, None].expand(-1, -1, -1, 2, -1, 2)
        return self.conv(doubled.reshape(count, width, 2 * height, 2 * length))


def _norm(width: int) -> nn.GroupNorm:
    return nn.GroupNorm(min(32, width // 2), width)


class UNet(nn.Module):
    def __init__(self, width: int, multiples: Sequence[int], depth: int, attention_from: int):
        super().__init__()
        self.width = width
        time_width = 4 * width
        self.time = nn.Sequential(nn.Linear(width, time_width), nn.SiLU(), nn.Linear(time_width, time_width))
        self.stem = nn.Conv2d(3, width, 3, padding=1)
        self.blocks = nn.ModuleList()
        self.plan = []  # per block: whether it takes what was kept on the way down, whether its result is kept
        channels, kept = width, [width]

        def add(block: nn.Module, takes: bool = False, keeps: bool = False) -> None:
            self.blocks.append(block)
            self.plan.append((takes, keeps))

        for level, multiple in enumerate(multiples):
            attends = level >= attention_from
            for _ in range(depth):
                add(Residual(channels, width * multiple, time_width), keeps=not attends)
                channels = width * multiple
                if attends:
                    add(Attention(channels), keeps=True)
                kept.append(channels)
            if level + 1 < len(multiples):
                add(Down(channels), keeps=True)
                kept.append(channels)
        add(Residual(channels, channels, time_width))
        add(Attention(channels))
        add(Residual(channels, channels, time_width))
        for level, multiple in reversed(list(enumerate(multiples))):
            for _ in range(depth + 1):
                add(Residual(channels + kept.pop(), width * multiple, time_width), takes=True)
                channels = width * multiple
                if level >= attention_from:
                    add(Attention(channels))
            if level > 0:
                add(Up(channels))
        self.norm, self.head = _norm(channels), nn.Conv2d(channels, 3, 3, padding=1)

    def forward(self, pictures: torch.Tensor, noise: torch.Tensor, times: torch.Tensor) -> torch.Tensor:
        """How far the noise that is seen in the noisy pictures is from the true one."""
        angle = (0.5 * math.pi) * times[:, None, None, None]
        x = self.stem(pictures * angle.cos() + noise * angle.sin())
        time = functional.silu(self.time(_wave(times, self.width)))
        kept = [x]
        for block, (takes, keeps) in zip(self.blocks, self.plan):
            x = block(torch.cat([x, kept.pop()], 1) if takes else x, time)
            if keeps:
                kept.append(x)
        return functional.mse_loss(self.head(functional.silu(self.norm(x))).float(), noise)


def _wave(times: torch.Tensor, width: int) -> torch.Tensor:
    steps = torch.arange(width // 2, device=times.device) * (-math.log(1e4) / (width // 2))
    angles = 1000 * times[:, None] * steps.exp()
    return torch.cat([angles.cos(), angles.sin()], 1)


def unet(
    width: int, multiples: Sequence[int] = (1, 2, 3, 4), depth: int = 3, attention_from: int = 1, size: int = 64
) -> Task:
    """`depth` residual blocks a level on the way down, one more on the way up; levels from `attention_from` attend."""

    def draw(count: int, generator: torch.Generator) -> Tuple[torch.Tensor, ...]:
        pictures, _ = draw_pictures(count, size, 16, generator)
        noise = torch.randn(pictures.shape, generator=generator)
        return pictures, noise, torch.rand(count, generator=generator)

    model = UNet(width, multiples, depth, attention_from)
    return Task(model, list(model.blocks), draw)
