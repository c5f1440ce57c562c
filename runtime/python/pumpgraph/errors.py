# SPDX-License-Identifier: Apache-2.0
"""The exceptions of the package, and the statuses they carry (pumpgraph_status in pumpgraph.h)."""

from __future__ import annotations

import enum
import functools
import sys
from typing import Any


class Status(enum.IntEnum):
    """The kind of a failure, as `pumpgraph_status` in pumpgraph.h.

    OK: no failure.
    INVALID_ARGUMENT: an argument, or a call at the wrong time; the message names it.
    NO_DRIVER: no driver, no GPU, or either too old; the message has the remedy.
    OUT_OF_DEVICE_MEMORY: the budget is used up, or the device has no more memory.
    OUT_OF_HOST_MEMORY: the host limit is reached, or the system has no more memory.
    DRIVER_ERROR: a CUDA driver call failed.
    UNPLANNABLE: no plan exists; too much memory has to stay on the device, for example.
    CAPTURE_FAILED: the step made a call that breaks captures.
    MISMATCH: validate() found different results.
    INTERNAL: a check of PumpGraph refused the plan; nothing has changed.
    DEVICE_LOST: a kernel ended the context; every later call fails so.
    """

    OK = 0
    INVALID_ARGUMENT = 1
    NO_DRIVER = 2
    OUT_OF_DEVICE_MEMORY = 3
    OUT_OF_HOST_MEMORY = 4
    DRIVER_ERROR = 5
    UNPLANNABLE = 6
    CAPTURE_FAILED = 7
    MISMATCH = 8
    INTERNAL = 9
    DEVICE_LOST = 10


class PumpGraphError(RuntimeError):
    """A refused or failed call. `status` (Status) is the kind of failure; the text has the reason, with names and
    numbers.

    For a lack of memory the text begins with "CUDA out of memory.", and where PyTorch is loaded the exception is a
    torch.cuda.OutOfMemoryError too.
    """

    def __init__(self, status: int, message: str):
        super().__init__(message)
        known = {int(s) for s in Status}
        self.status = Status(status) if int(status) in known else Status.INTERNAL


# Device and host memory together have no room, or what has to stay on the device exceeds the budget.
_SHORTAGES = (Status.OUT_OF_DEVICE_MEMORY, Status.OUT_OF_HOST_MEMORY, Status.UNPLANNABLE)


def is_status_of_shortage(status: int) -> bool:
    return status in _SHORTAGES


def error_of(status: int, message: str) -> PumpGraphError:
    """The exception for a failed call of the library. Searches for a batch size recognise a lack of memory by its text
    and, where PyTorch is loaded, as a torch.cuda.OutOfMemoryError."""
    if not is_status_of_shortage(status):
        return PumpGraphError(status, message)
    error: PumpGraphError = _shortage(getattr(sys.modules.get("torch"), "OutOfMemoryError", None))(
        status, f"CUDA out of memory. {message}")
    return error


def is_shortage(error: BaseException) -> bool:
    """Whether memory ran out, here or in an operator of PyTorch's."""
    return isinstance(error, RuntimeError) and "CUDA out of memory" in str(error)


@functools.lru_cache(maxsize=None)
def _shortage(of_torch: Any) -> Any:
    bases = (PumpGraphError,) if of_torch is None else (PumpGraphError, of_torch)
    return type("OutOfMemoryError", bases, {"__doc__": "There is no room for the requested memory.",
                                            "__module__": __name__})


def invalid(message: str) -> PumpGraphError:
    return PumpGraphError(Status.INVALID_ARGUMENT, message)


class UnsupportedError(PumpGraphError):
    """A step that cannot be captured. The text names the obstacle, its place in the program, and the remedy.

    `status` is INVALID_ARGUMENT.
    """

    def __init__(self, message: str):
        super().__init__(Status.INVALID_ARGUMENT, message)


class StaleStepError(PumpGraphError):
    """A captured step that no longer fits the program: a replay would compute something else than the function.

    The text names the change; reset() of the graphed function has the step captured anew. `status` is INVALID_ARGUMENT.
    """

    def __init__(self, message: str):
        super().__init__(Status.INVALID_ARGUMENT, message)
