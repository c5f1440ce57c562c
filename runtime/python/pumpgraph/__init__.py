# SPDX-License-Identifier: Apache-2.0
"""PumpGraph for PyTorch: train under a hard device-memory budget by rewriting the captured step.

    import pumpgraph
    pumpgraph.install(budget="16GiB")             # before anything touches CUDA
    ...                                           # model, optimizer, loader as usual

    @pumpgraph.graphed(warmup=3)
    def train_step(x, y): ...

    for x, y in loader:
        loss = train_step(x, y)
    print(train_step.report())

Importing this needs neither a GPU nor PyTorch; docs/guide/pytorch.md is the guide.
"""

from .errors import PumpGraphError, StaleStepError, Status, UnsupportedError

__all__ = [
    "Graphed",
    "PumpGraphError",
    "StaleStepError",
    "Status",
    "Step",
    "UnsupportedError",
    "capture",
    "doctor",
    "graphed",
    "install",
    "mapped",
    "memory_stats",
    "paused",
    "prepare",
    "version",
]

_OF_TORCH = ("Step", "capture", "install", "mapped", "memory_stats")
_OF_GRAPHED = ("Graphed", "graphed", "paused")
_OF_PREPARED = ("prepare",)


def doctor() -> str:
    """What this machine offers PumpGraph, as text. Works without a driver."""
    from ._capi import load

    return load().doctor()


def version() -> str:
    """Of the library, such as "0.1.0"."""
    from ._capi import load

    return load().version()


def __getattr__(name: str):
    # PyTorch takes seconds to import, and may not be there: only what needs it asks for it.
    if name in _OF_TORCH:
        from . import torch_capture

        return getattr(torch_capture, name)
    if name in _OF_GRAPHED:
        from . import step_function

        return getattr(step_function, name)
    if name in _OF_PREPARED:
        from . import prepared

        return getattr(prepared, name)
    raise AttributeError(f"module 'pumpgraph' has no attribute {name!r}")


def __dir__():
    return sorted(list(globals()) + list(_OF_TORCH + _OF_GRAPHED + _OF_PREPARED))
