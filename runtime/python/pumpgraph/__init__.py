# SPDX-License-Identifier: Apache-2.0
"""PumpGraph for PyTorch: train under a hard device-memory budget by rewriting the captured step.

    import pumpgraph
    pumpgraph.install(budget="16GiB")             # before anything touches CUDA
    ...                                           # model, optimizer, static inputs as usual
    step = pumpgraph.capture(train_step, private=[model, optimizer])
    for batch in loader:
        static_input.copy_(batch)
        step.replay()
    print(step.report())

Importing this needs neither a GPU nor PyTorch; docs/pytorch.md is the manual.
"""

from .errors import PumpGraphError, Status

__all__ = [
    "PumpGraphError",
    "Status",
    "Step",
    "capture",
    "doctor",
    "install",
    "mapped",
    "memory_stats",
]

_OF_TORCH = ("Step", "capture", "install", "mapped", "memory_stats")


def doctor() -> str:
    """What this machine offers PumpGraph, as text. Works without a driver."""
    from ._capi import load

    return load().doctor()


def __getattr__(name: str):
    # PyTorch takes seconds to import, and may not be there: only what needs it asks for it.
    if name not in _OF_TORCH:
        raise AttributeError(f"module 'pumpgraph' has no attribute {name!r}")
    from . import torch_capture

    return getattr(torch_capture, name)


def __dir__():
    return sorted(list(globals()) + list(_OF_TORCH))
