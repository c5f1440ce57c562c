# SPDX-License-Identifier: Apache-2.0
"""Tensors made of Python numbers inside a captured step.

`torch.tensor(0.5, device="cuda")` copies from host memory that is not pinned, which no capture takes. A kernel writes
each number instead, as a parameter: captures of a step with different numbers differ, and are refused. Larger lists are
copied as ever, so a capture refuses them.
"""

from __future__ import annotations

import contextlib
import functools
from typing import Any, Callable, Iterator, Optional

import torch

_NUMBERS = (bool, int, float, complex)  # changes of which are noticed (reads.py), also in lists
_MOST_NUMBERS = 64  # a kernel each


@contextlib.contextmanager
def filled_in() -> Iterator[None]:
    """Inside, `torch.tensor()`, `torch.as_tensor()` and `Tensor.new_tensor()` fill in Python numbers for a device.
    Other data are copied."""
    originals = [(torch, "tensor"), (torch, "as_tensor"), (torch.Tensor, "new_tensor")]
    kept = [(owner, name, getattr(owner, name)) for owner, name in originals]
    for owner, name, original in kept:
        setattr(owner, name, _filling(original, owner is torch.Tensor))
    try:
        yield
    finally:
        for owner, name, original in kept:
            setattr(owner, name, original)


def _filling(make: Callable[..., Any], is_method: bool) -> Callable[..., Any]:
    @functools.wraps(make)
    def filling(*args: Any, **kwargs: Any) -> Any:
        data = args[1 if is_method else 0] if len(args) > is_method else kwargs.get("data")
        device = _device_of(is_method, args, kwargs)
        if device.type == "cpu" or not _count(data):
            return make(*args, **kwargs)
        if not is_method and len(args) > 2:  # as_tensor(data, dtype, device)
            args = args[:2]
        with torch.no_grad():
            return _fill(make(*args, **{**kwargs, "device": "cpu"}), device)

    return filling


def _device_of(is_method: bool, args: Any, kwargs: Any) -> torch.device:
    device = kwargs.get("device", args[2] if not is_method and len(args) > 2 else None)
    if device is None:
        return args[0].device if is_method and args else torch.get_default_device()
    return torch.device("cuda", device) if isinstance(device, int) else torch.device(device)


def _count(data: Any) -> Optional[int]:
    """How many numbers it is, in lists and tuples of lists and tuples; None for other data, and for too many."""
    if type(data) in _NUMBERS:
        return 1
    if type(data) not in (list, tuple) or len(data) > _MOST_NUMBERS:
        return None
    total = 0
    for item in data:
        count = _count(item)
        if count is None or total + count > _MOST_NUMBERS:
            return None
        total += count
    return total


def _fill(made: torch.Tensor, device: torch.device) -> torch.Tensor:
    """The same on a device."""
    filled = torch.empty(made.shape, dtype=made.dtype, device=device)
    for place, number in zip(filled.view(-1).unbind(), made.view(-1).tolist()):
        place.fill_(number)
    return filled.requires_grad_(made.requires_grad)
