# SPDX-License-Identifier: Apache-2.0
"""What every model of the table offers, and the pictures that several of them are shown."""

from __future__ import annotations

import dataclasses
from typing import Callable, List, Tuple

import torch
from torch import nn


@dataclasses.dataclass
class Task:
    """`model(*inputs)` is the loss of one batch. Inputs are batch-first, so a slice of each is a smaller batch."""

    model: nn.Module
    blocks: List[nn.Module]  # in the order of the forward pass: what checkpointing and offloading are applied to
    draw: Callable[[int, torch.Generator], Tuple[torch.Tensor, ...]]  # this many samples, on the host


def draw_pictures(count: int, size: int, classes: int, generator: torch.Generator) -> Tuple[torch.Tensor, torch.Tensor]:
    """Pictures and labels: a coarse pattern a class under noise, so that there is something to learn."""
    patterns = torch.randn(16, 3, 4, 4, generator=torch.Generator().manual_seed(1000))
    labels = torch.randint(0, min(16, classes), (count,), generator=generator)
    pictures = nn.functional.interpolate(patterns[labels], size=size)
    noise = torch.randn(1, 3, size, size, generator=generator)
    return pictures + 0.5 * noise, labels
