# SPDX-License-Identifier: Apache-2.0
"""Batches for programs: synthetic, with something to learn."""

from __future__ import annotations

from typing import Any, Callable, Iterator, Tuple

import torch

Batch = Tuple[torch.Tensor, ...]
BATCHES = 4


def loader(run: Any, draw: Callable[[torch.Generator], Batch]) -> Iterator[Batch]:
    """As many batches as the loop has turns, on the device: the same few, over and over."""
    generator = torch.Generator().manual_seed(1)
    kept = [draw(generator) for _ in range(BATCHES)]
    if run.device == "cuda":
        kept = [tuple(part.pin_memory() for part in batch) for batch in kept]
    for index in range(run.turns):
        yield tuple(part.to(run.device, non_blocking=True) for part in kept[index % BATCHES])


def texts(generator: torch.Generator, count: int, length: int, words: int) -> torch.Tensor:
    """Each word follows from the one before."""
    start = torch.randint(0, words, (count, 1), generator=generator)
    return (start + torch.randint(1, 4, (count, length), generator=generator).cumsum(-1)) % words


def pictures(generator: torch.Generator, count: int, size: int, classes: int) -> Batch:
    """Pictures and labels: brighter in a channel and a half that depend on the class."""
    labels = torch.randint(0, classes, (count,), generator=generator)
    images = torch.randn(count, 3, size, size, generator=generator)
    for image, label in zip(images, labels.tolist()):
        image[label % 3, : size // 2 + label % 2 * size // 2] += 0.5
    return images, labels
