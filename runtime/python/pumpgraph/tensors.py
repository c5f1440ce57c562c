# SPDX-License-Identifier: Apache-2.0
"""Tensors in what operators and modules take and give, and the memory behind them."""

from __future__ import annotations

from typing import Any, Iterator

import torch


def tensors_in(value: Any) -> Iterator[torch.Tensor]:
    """In lists, tuples and dicts too."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, dict):
        yield from tensors_in(list(value.values()))
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from tensors_in(item)


def is_wrapper(tensor: torch.Tensor) -> bool:
    """Whether it is of a subclass around other tensors, and has no memory of its own."""
    return hasattr(tensor, "__tensor_flatten__")


def pointer_of(tensor: torch.Tensor) -> int:
    """Of the storage: what was allocated."""
    return tensor.untyped_storage().data_ptr()


def has_memory(tensor: torch.Tensor) -> bool:
    return tensor.is_cuda and tensor.layout == torch.strided and pointer_of(tensor) != 0
