# SPDX-License-Identifier: Apache-2.0
"""Tensors in what operators and modules take and give, and the memory behind them."""

from __future__ import annotations

import sys
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


def plain_tensors(tensor: torch.Tensor) -> Iterator[torch.Tensor]:
    """Those that it is around, or itself."""
    if not is_wrapper(tensor):
        yield tensor
        return
    for name in tensor.__tensor_flatten__()[0]:  # type: ignore[attr-defined]
        yield from plain_tensors(getattr(tensor, name))


def distributed_tensors() -> Any:
    """PyTorch's class of tensors that are spread over ranks, once it is imported; before that, there are none."""
    return getattr(sys.modules.get("torch.distributed.tensor"), "DTensor", ())


def pointer_of(tensor: torch.Tensor) -> int:
    """Of the storage: what was allocated. Of a wrapper, that of the first tensor inside."""
    return next(plain_tensors(tensor)).untyped_storage().data_ptr()


def has_memory(tensor: torch.Tensor) -> bool:
    """Not a wrapper, whose tensors do."""
    return tensor.is_cuda and tensor.layout == torch.strided and not is_wrapper(tensor) and pointer_of(tensor) != 0
