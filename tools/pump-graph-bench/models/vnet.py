# SPDX-License-Identifier: Apache-2.0
"""V-Net: segmentation of volumes by residual stages of 5 x 5 x 5 convolutions, down four times and up again."""

from __future__ import annotations

from typing import Sequence, Tuple

import torch
from torch import nn

from .task import Task


class Convolutions(nn.Module):
    """`count` convolutions; `around` is added before the last activation."""

    def __init__(self, inputs: int, width: int, count: int):
        super().__init__()
        self.convs = nn.ModuleList(
            nn.Sequential(nn.Conv3d(inputs if i == 0 else width, width, 5, padding=2), nn.BatchNorm3d(width))
            for i in range(count)
        )
        self.activations = nn.ModuleList(nn.PReLU(width) for _ in range(count))

    def forward(self, x: torch.Tensor, around: torch.Tensor) -> torch.Tensor:
        last = len(self.convs) - 1
        for index, (conv, activation) in enumerate(zip(self.convs, self.activations)):
            x = conv(x)
            x = activation(x + around if index == last else x)
        return x


class Resample(nn.Module):
    def __init__(self, conv: nn.Module, width: int):
        super().__init__()
        self.conv, self.norm, self.activation = conv, nn.BatchNorm3d(width), nn.PReLU(width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.activation(self.norm(self.conv(x)))


class VNet(nn.Module):
    def __init__(self, width: int, counts: Sequence[int]):
        super().__init__()
        widths = [width << index for index in range(len(counts))]
        self.width = width
        self.encoders = nn.ModuleList(
            Convolutions(1 if i == 0 else w, w, count) for i, (w, count) in enumerate(zip(widths, counts))
        )
        self.downs = nn.ModuleList(Resample(nn.Conv3d(w, 2 * w, 2, 2), 2 * w) for w in widths[:-1])
        # A decoder works on what comes up beside what went down: each half of its width.
        outputs = [2 * w for w in widths[:-1]]
        below = [*outputs[1:], widths[-1]]
        self.ups = nn.ModuleList(
            Resample(nn.ConvTranspose3d(b, w // 2, 2, 2), w // 2) for b, w in reversed(list(zip(below, outputs)))
        )
        self.decoders = nn.ModuleList(
            Convolutions(w, w, count) for w, count in reversed(list(zip(outputs, counts[:-1])))
        )
        self.head = nn.Conv3d(outputs[0], 2, 1)

    def forward(self, volumes: torch.Tensor, masks: torch.Tensor) -> torch.Tensor:
        x, kept = volumes, []
        for level, encoder in enumerate(self.encoders):
            x = encoder(x, x)  # one channel is added to all of the first stage's
            if level < len(self.downs):
                kept.append(x)
                x = self.downs[level](x)
        for up, decoder in zip(self.ups, self.decoders):
            x = torch.cat([up(x), kept.pop()], 1)
            x = decoder(x, x)
        return dice_loss(self.head(x), masks)


def dice_loss(scores: torch.Tensor, masks: torch.Tensor) -> torch.Tensor:
    """One minus the overlap of prediction and mask, averaged over the volumes."""
    inside = scores.float().softmax(1)[:, 1].flatten(1)
    masks = masks.flatten(1)
    overlap = 2 * (inside * masks).sum(1) / (inside.square().sum(1) + masks.square().sum(1))
    return 1 - overlap.mean()


def vnet(shape: Sequence[int], width: int = 16, counts: Sequence[int] = (1, 2, 3, 3, 3)) -> Task:
    def draw(count: int, generator: torch.Generator) -> Tuple[torch.Tensor, ...]:
        return _draw_volumes(count, shape, generator)

    model = VNet(width, counts)
    blocks = [*model.encoders, *model.downs, *model.ups, *model.decoders]
    return Task(model, blocks, draw)


def _draw_volumes(count: int, shape: Sequence[int], generator: torch.Generator) -> Tuple[torch.Tensor, torch.Tensor]:
    """A bright ball a volume, under noise; and where it is."""
    axes = torch.meshgrid(*(torch.linspace(-1, 1, size) for size in shape), indexing="ij")
    centres = torch.rand(count, 3, 1, 1, 1, generator=generator) - 0.5
    distance = sum((axis - centres[:, i]).square() for i, axis in enumerate(axes))
    masks = (distance < 0.25).float()
    noise = torch.randn(1, 1, *shape, generator=generator)
    return masks.unsqueeze(1) + 0.5 * noise, masks
