# SPDX-License-Identifier: Apache-2.0
"""What a captured function cannot do, by name, with the line and what to write instead."""

from __future__ import annotations

import re
from typing import Any, Dict, List, NoReturn, Optional

import cupy

from ..errors import PumpGraphError, UnsupportedError
from .places import called, current_line, line_of

_LOOK_OUTSIDE = "return the array and look at it outside of the step"
_MASK = "keep the size: cupy.where(mask, array, 0), or sort by the mask and count; or select outside of the step"
_FROM_HOST = "make the array outside of the step, and pass it or close over it"
_GROUPS = "with a known number of groups, write totals = cupy.zeros(groups); cupyx.scatter_add(totals, keys, values)"

# Methods of arrays. All of them wait for the device.
METHODS: Dict[str, str] = {
    **dict.fromkeys(("get", "item", "tolist", "tobytes", "tofile", "dump", "dumps", "__int__", "__float__",
                     "__complex__", "__index__", "__repr__", "__str__", "__format__", "__bytes__"), _LOOK_OUTSIDE),
    "__bool__": "replace the branch by cupy.where(), or decide outside of the step",
    "nonzero": _MASK,
    "compress": _MASK,
    "set": _FROM_HOST,
}

# Functions of the module cupy.
FUNCTIONS: Dict[str, str] = {
    **dict.fromkeys(("asnumpy", "save", "savez", "savetxt", "array_repr", "array_str"), _LOOK_OUTSIDE),
    **dict.fromkeys(("nonzero", "flatnonzero", "argwhere", "extract", "compress", "trim_zeros"), _MASK),
    **dict.fromkeys(("unique", "union1d", "intersect1d", "setdiff1d"), "sort, and mark the places where neighbours "
                    "differ; or find them outside of the step"),
    "bincount": _GROUPS,
    **dict.fromkeys(("load", "fromfile", "loadtxt", "genfromtxt"), _FROM_HOST),
}

# Functions that take arrays, or make them of lists and arrays of NumPy in host memory.
FROM_HOST = ("array", "asarray", "asanyarray", "ascontiguousarray", "asfortranarray")

_OF_A_CAPTURE = re.compile(r"captur", re.IGNORECASE)
_LIBRARY = re.compile(r"calling (\S+) API during stream capture")
OF_LIBRARIES = {
    "cuBLAS": "PumpGraph captures cupy.matmul, cupy.dot and @ of two matrices, or of stacks of them, in float32, "
              "float64, complex64 and complex128; bring the product to that form, or compute it outside of the step",
    "cuRAND": "draw outside of the step and pass the array, or use cupy.random.default_rng(), whose state is on the "
              "device",
}


_raised: List[UnsupportedError] = []  # under the capture that is going on


def forget_raised() -> None:
    _raised.clear()


def first_raised() -> Optional[UnsupportedError]:
    return _raised[0] if _raised else None


def refuse(text: str) -> NoReturn:
    """Under capture. A program that catches the error would go another way than without a capture, so it is raised
    again in the end."""
    _raised.append(UnsupportedError(text))
    raise _raised[-1]


def refuse_wait(name: str, advice: str) -> NoReturn:
    refuse(f"{current_line()} calls {name}, which waits for the device or copies from or to the host, as no captured "
           f"step can; {advice}")


def refuse_stream() -> NoReturn:
    refuse(f"{current_line()} works on a stream that is not part of the step; have it wait for the step's first: "
           "stream.wait_event(event), of an event that is recorded on the current stream")


def refuse_index(index: Any, is_assigned: bool) -> None:
    """Of `array[index]`: what CuPy looks at on the host, or brings from there."""
    for part in index if isinstance(index, tuple) else (index,):
        if isinstance(part, cupy.ndarray) and part.dtype == bool and part.size > 0 and not is_assigned:
            refuse_wait("array[mask]", _MASK)
        if isinstance(part, list) or type(part).__name__ == "ndarray" and not isinstance(part, cupy.ndarray):
            refuse_wait("array[index] with an index on the host", "index with an array of CuPy that is made outside of "
                        "the step")


def explain(error: BaseException, name: str) -> BaseException:
    """The error of a function under capture, with the remedy if a capture is the reason."""
    if isinstance(error, PumpGraphError) or not isinstance(error, Exception):
        return error
    place, text = line_of(error), str(error).strip()
    library = _LIBRARY.search(text)
    if library:
        advice = OF_LIBRARIES.get(library[1], "compute it outside of the step")
        return UnsupportedError(f"{place} calls {library[1]}, which CuPy does not allow in a capture; {advice}")
    if not _OF_A_CAPTURE.search(f"{type(error).__name__} {text}"):
        return error
    advice = _advice_for(error) or _LOOK_OUTSIDE
    reason = text.splitlines()[0] if text else type(error).__name__
    return UnsupportedError(f"{place} in {name} waits for the device, or works outside of its stream, as no captured "
                            f"step can ({reason}); {advice}")


def _advice_for(error: BaseException) -> Optional[str]:
    for function in reversed(called(error)):
        function = function.rpartition(".")[2]
        if function in FUNCTIONS or function in METHODS:
            return FUNCTIONS.get(function) or METHODS[function]
    return None
