# SPDX-License-Identifier: Apache-2.0
"""Tensors made of one Python number inside a captured step.

`torch.tensor(0.5, device="cuda")` copies from host memory that is not pinned, which no capture takes. A kernel writes
the number instead, as a parameter: captures of a step with different numbers differ, and are refused. Lists are copied
as ever, so a capture refuses them: nothing notices that the program changes one between calls.
"""

from __future__ import annotations

import contextlib
import functools
from typing import Any, Callable, Iterator

import torch

_NUMBERS = (bool, int, float, complex)  # changes of which are noticed (reads.py)


@contextlib.contextmanager
def filled_in() -> Iterator[None]:
    """Inside, `torch.tensor()`, `torch.as_tensor()` and `Tensor.new_tensor()` fill in one Python number for a device.
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
        if type(data) not in _NUMBERS or device.type == "cpu":
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


def _fill(made: torch.Tensor, device: torch.device) -> torch.Tensor:
    filled = torch.empty(made.shape, dtype=made.dtype, device=device)
    filled.fill_(made.item())
    return filled.requires_grad_(made.requires_grad)
