# SPDX-License-Identifier: Apache-2.0
"""The exceptions of the package, and the statuses they carry (pumpgraph_status in pumpgraph.h)."""

from __future__ import annotations

import enum
import functools
import sys
from typing import Any


class Status(enum.IntEnum):
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
    """A refused or failed call. `status` says which kind of trouble; the text says what, with names and numbers."""

    def __init__(self, status: int, message: str):
        super().__init__(message)
        known = {int(s) for s in Status}
        self.status = Status(status) if int(status) in known else Status.INTERNAL


# Device and host memory together have no room, or what has to stay on the device exceeds the budget.
_SHORTAGES = (Status.OUT_OF_DEVICE_MEMORY, Status.OUT_OF_HOST_MEMORY, Status.UNPLANNABLE)


def error_of(status: int, message: str) -> PumpGraphError:
    """The exception for a call of the library that failed. A lack of memory is one that searches for a batch size
    recognise: by its text and, where PyTorch is loaded, as a torch.cuda.OutOfMemoryError."""
    if status not in _SHORTAGES:
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
    return type("OutOfMemoryError", bases, {"__doc__": "There is no room for what was asked for.",
                                            "__module__": __name__})


def invalid(message: str) -> PumpGraphError:
    return PumpGraphError(Status.INVALID_ARGUMENT, message)


class UnsupportedError(PumpGraphError):
    """A step that cannot be captured. The text names what is in the way, where it is, and what to write instead."""

    def __init__(self, message: str):
        super().__init__(Status.INVALID_ARGUMENT, message)


class StaleStepError(PumpGraphError):
    """What a captured step was made from is not what the program has now: a replay would compute something else."""

    def __init__(self, message: str):
        super().__init__(Status.INVALID_ARGUMENT, message)
