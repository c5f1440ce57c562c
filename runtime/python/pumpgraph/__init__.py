# SPDX-License-Identifier: Apache-2.0
"""PumpGraph for PyTorch: train under a hard device-memory budget by rewriting the captured step.

    import pumpgraph
    pumpgraph.install(budget="16GiB")             # ahead of anything that touches CUDA
    ...                                           # model, optimizer, loader as usual

    @pumpgraph.graphed(warmup=3)
    def train_step(x, y): ...

    for x, y in loader:
        loss = train_step(x, y)
    print(train_step.report())

The calls, in the order of use; help(pumpgraph.NAME) has the arguments:

    doctor()        describe this machine: driver, memory, usable features
    version()       the version of the library
    install()       make PumpGraph PyTorch's allocator, under a budget; once, first
    predict()       how slow a step would be at other budgets, without running it there; gives a Prediction
    prepare()       optional: let an optimizer of PyTorch's step fused inside graphed functions
    graphed()       decorate a step function, which is captured after its warm-up calls; gives a Graphed
    Graphed         the decorated function: report(), validate(), save(), memory_snapshot(), signatures(), reset(), and
                    with split=True pieces()
    paused()        context: graphed functions run eagerly
    mapped()        context: private values are at their addresses, to be read and written
    memory_stats()  memory of the session, in bytes
    memory_profile()  context: the lines of the program that hold the memory at its peak; gives a MemoryProfile
    tag()           context: a name for what is allocated inside, for rows(by="tag") of that profile
    capture()       the layer below graphed(): capture a function without arguments; gives a Step
    Step            a captured step: replay(), output, replan(), report(), validate(), observe(), close(), ...

Errors are PumpGraphError with a `status` (Status). Two subclasses: UnsupportedError for a step that cannot be captured,
StaleStepError for a captured step that no longer fits the program. A lack of memory is also a
torch.cuda.OutOfMemoryError.

Trainers: pumpgraph.integrations.transformers, .lightning and .generation. The guide is docs/guide/pytorch.md, the
reference docs/reference/pytorch.md. Sizes are bytes, or text such as "16GiB", "800MB" or "1.5 GB". The import of this
package needs neither a GPU nor PyTorch. libpumpgraph.so is found through PUMPGRAPH_LIBRARY, beside the package, or in
build/lib of its checkout.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .errors import PumpGraphError, StaleStepError, Status, UnsupportedError

if TYPE_CHECKING:  # for checkers, which do not call __getattr__()
    from typing import Any, List

    from .prediction import Prediction, predict
    from .prepared import prepare
    from .profile import MemoryProfile, memory_profile
    from .step_function import Graphed, graphed, paused
    from .torch_capture import Step, capture, install, mapped, memory_stats, tag

__all__ = [
    "Graphed",
    "MemoryProfile",
    "Prediction",
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
    "memory_profile",
    "memory_stats",
    "paused",
    "predict",
    "prepare",
    "tag",
    "version",
]

_OF_TORCH = ("Step", "capture", "install", "mapped", "memory_stats", "tag")
_OF_GRAPHED = ("Graphed", "graphed", "paused")
_OF_PREPARED = ("prepare",)
_OF_PROFILE = ("MemoryProfile", "memory_profile")
_OF_PREDICTION = ("Prediction", "predict")


def doctor() -> str:
    """Describes this machine as text: driver, memory limits, usable and unusable features, remedies.

    Works without a driver and without PyTorch. Raises PumpGraphError if the library is not found.
    """
    from ._capi import load

    return load().doctor()


def version() -> str:
    """The version of the library, such as "0.1.0". Raises PumpGraphError if the library is not found."""
    from ._capi import load

    return load().version()


def __getattr__(name: str) -> Any:
    # PyTorch takes seconds to import, and may be missing: only names that need it import it.
    if name in _OF_TORCH:
        from . import torch_capture

        return getattr(torch_capture, name)
    if name in _OF_GRAPHED:
        from . import step_function

        return getattr(step_function, name)
    if name in _OF_PREPARED:
        from . import prepared

        return getattr(prepared, name)
    if name in _OF_PROFILE:
        from . import profile

        return getattr(profile, name)
    if name in _OF_PREDICTION:
        from . import prediction

        return getattr(prediction, name)
    raise AttributeError(f"module 'pumpgraph' has no attribute {name!r}")


def __dir__() -> List[str]:
    return sorted(list(globals()) + list(_OF_TORCH + _OF_GRAPHED + _OF_PREPARED + _OF_PROFILE + _OF_PREDICTION))
