# SPDX-License-Identifier: Apache-2.0
"""Tensors made of Python numbers inside a captured step.

`torch.tensor(0.5, device="cuda")` copies from host memory that is not pinned, which no capture takes. The numbers are
written by kernels instead, as parameters: two captures of a step whose numbers differ differ, and are refused.
"""

from __future__ import annotations

import contextlib
import functools
import numbers
from typing import Any, Callable, Iterator

import torch

_MOST_NUMBERS = 64  # a kernel each, where they differ


@contextlib.contextmanager
def filled_in() -> Iterator[None]:
    """Inside, `torch.tensor()`, `torch.as_tensor()` and `Tensor.new_tensor()` fill in the few Python numbers that they
    are given for a device. Larger data and arrays are copied as ever."""
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
        device = _device_of(make, is_method, args, kwargs)
        if device.type == "cpu" or not 0 < _count(data) <= _MOST_NUMBERS:
            return make(*args, **kwargs)
        if not is_method and len(args) > 2:  # as_tensor(data, dtype, device)
            args = args[:2]
        with torch.no_grad():
            return _fill(make(*args, **{**kwargs, "device": "cpu"}), device)

    return filling


def _device_of(make: Callable[..., Any], is_method: bool, args: Any, kwargs: Any) -> torch.device:
    device = kwargs.get("device", args[2] if not is_method and len(args) > 2 else None)
    if device is None:
        return args[0].device if is_method and args else torch.get_default_device()
    return torch.device("cuda", device) if isinstance(device, int) else torch.device(device)


def _count(data: Any) -> int:
    """How many numbers; 0 if there is anything else, or none."""
    if isinstance(data, numbers.Number):
        return 1
    if not isinstance(data, (list, tuple)) or len(data) > _MOST_NUMBERS:
        return 0
    counts = [_count(item) for item in data]
    return sum(counts) if all(counts) else 0


def _fill(made: torch.Tensor, device: torch.device) -> torch.Tensor:
    values = made.reshape(-1).tolist()
    filled = torch.empty(made.shape, dtype=made.dtype, device=device)
    if all(value == values[0] and str(value) == str(values[0]) for value in values):  # -0.0 is another value than 0.0
        filled.fill_(values[0])
    else:
        places = filled.view(-1)
        for index, value in enumerate(values):
            places[index].fill_(value)
    return filled.requires_grad_(made.requires_grad)
