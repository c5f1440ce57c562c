# SPDX-License-Identifier: Apache-2.0
"""Matrix products under capture. CuPy refuses to capture calls of cuBLAS, so PumpGraph calls it with a handle of its
own, whose workspace is memory of the step.

cuBLAS may choose another kernel than for CuPy's handle, so that sums differ in their last bits.
"""

from __future__ import annotations

import ctypes
import os
from ctypes import byref, c_double, c_float, c_int, c_longlong, c_size_t, c_void_p
from typing import Any, Dict, NamedTuple, Optional, Tuple

import cupy

from .._session import ArithmeticKind, Session
from ..errors import PumpGraphError, UnsupportedError
from .declaring import Declaring, positions

_WORKSPACE = 32 << 20  # as cuBLAS wants on Hopper
_AS_IS, _TRANSPOSED = 0, 1  # cublasOperation_t


class _Kind(NamedTuple):
    letter: str
    scalar: Any
    parts: int  # of a number: a complex one has two
    operations: int  # of a multiplication and an addition
    arithmetic: ArithmeticKind


_KINDS: Dict[str, _Kind] = {
    "float32": _Kind("S", c_float, 1, 2, ArithmeticKind.FP32),
    "float64": _Kind("D", c_double, 1, 2, ArithmeticKind.FP64),
    "complex64": _Kind("C", c_float, 2, 8, ArithmeticKind.FP32),
    "complex128": _Kind("Z", c_double, 2, 8, ArithmeticKind.FP64),
}


class _Library:
    """cuBLAS as CuPy has loaded it, with a handle. Made ahead of a capture, which does not allow that."""

    def __init__(self, path: str):
        self.dll = ctypes.CDLL(path)
        self.handle = c_void_p()
        self.call("cublasCreate_v2", byref(self.handle))

    def call(self, name: str, *arguments: Any) -> None:
        status = getattr(self.dll, name)(*arguments)
        if status != 0:
            raise UnsupportedError(f"{name}() of cuBLAS failed with status {status} in a captured step; compute the "
                                   "product outside of the step")


_library: Optional[_Library] = None
_session: Optional[Session] = None


def prepare(session: Session) -> None:
    """Ahead of a capture, if the program has used cuBLAS by then. A warm-up call has, if the step multiplies."""
    global _library, _session
    _session = session
    path = _path_of_cublas()
    if _library is None and path is not None:
        _library = _Library(path)


def _path_of_cublas() -> Optional[str]:
    try:
        with open("/proc/self/maps", encoding="utf-8") as maps:
            paths = {line.split(None, 5)[5].strip() for line in maps if "/libcublas.so" in line}
    except OSError:
        return None
    return min(paths) if paths else None


def product_in_capture(a: Any, b: Any) -> Any:
    """Of two matrices, or of two stacks of as many. None for anything else, which is CuPy's."""
    if _library is None or type(a) is not cupy.ndarray or type(b) is not cupy.ndarray or a.dtype != b.dtype:
        return None
    kind = _KINDS.get(str(a.dtype))
    if kind is None or os.environ.get("CUPY_TF32", "0") != "0" or a.ndim < 2 or a.ndim != b.ndim \
            or a.shape[:-2] != b.shape[:-2] or a.shape[-1] != b.shape[-2] or 0 in (*a.shape, *b.shape):
        return None
    return Declaring.call(_multiply, positions(0, 2), (a, b), {})


def _multiply(a: Any, b: Any) -> Any:
    kind = _KINDS[str(a.dtype)]
    assert _library is not None
    rows, inner, columns = a.shape[-2], a.shape[-1], b.shape[-1]
    count = 1
    for length in a.shape[:-2]:
        count *= length
    result = cupy.empty((*a.shape[:-2], rows, columns), a.dtype)
    # Of matrices by columns: the transposed result is the product of the transposed factors in the other order.
    (left, left_form, left_step), (right, right_form, right_step) = _factor(b, count), _factor(a, count)
    workspace = cupy.cuda.alloc(_WORKSPACE)
    stream = cupy.cuda.get_current_stream()
    _library.call("cublasSetStream_v2", _library.handle, c_void_p(stream.ptr))
    _library.call("cublasSetWorkspace_v2", _library.handle, c_void_p(workspace.ptr), c_size_t(_WORKSPACE))
    one, zero = (kind.scalar * 2)(1, 0), (kind.scalar * 2)(0, 0)
    _library.call(f"cublas{kind.letter}gemmStridedBatched", _library.handle, c_int(left_form), c_int(right_form),
                  c_int(columns), c_int(rows), c_int(inner), one,
                  c_void_p(left.data.ptr), c_int(columns if left_form == _AS_IS else inner),
                  c_longlong(left_step), c_void_p(right.data.ptr), c_int(inner if right_form == _AS_IS else rows),
                  c_longlong(right_step), zero, c_void_p(result.data.ptr), c_int(columns), c_longlong(rows * columns),
                  c_int(count))
    _declare_arithmetic(stream.ptr, float(kind.operations) * count * rows * inner * columns, kind.arithmetic)
    return result


def _factor(array: Any, count: int) -> Tuple[Any, int, int]:
    """A dense factor, its form, and the elements from one of a stack to the next."""
    step = array.shape[-2] * array.shape[-1]
    if count == 1 and not array.flags.c_contiguous and array.flags.f_contiguous:
        return array, _TRANSPOSED, step
    return (array if array.flags.c_contiguous else array.copy(order="C")), _AS_IS, step


def _declare_arithmetic(stream: int, operations: float, kind: ArithmeticKind) -> None:
    assert _session is not None
    try:
        _session.declare_arithmetic(stream, operations, kind)
    except PumpGraphError:
        pass  # the capture is broken, and whoever broke it says so
