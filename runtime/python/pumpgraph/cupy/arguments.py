# SPDX-License-Identifier: Apache-2.0
"""The arguments of a call: arrays, whose contents are copied to fixed addresses, and others, which tell kinds of calls
apart."""

from __future__ import annotations

from typing import Any, Dict, List, NamedTuple, Sequence, Tuple

import cupy

from .. import nested
from ..errors import UnsupportedError
from .accesses import span_of
from .surroundings import PLAIN, layout_of


class Call(NamedTuple):
    """`key`: how arguments are nested, and the layouts of their arrays. `arrays`: each once, where two arguments are
    the same. `others`: the rest, by path."""

    args: Tuple[Any, ...]
    kwargs: Dict[str, Any]
    key: Tuple[Any, ...]
    arrays: List[Any]
    others: List[Tuple[str, Any]]


def read_call(args: Tuple[Any, ...], kwargs: Dict[str, Any], device: int) -> Call:
    key: List[Any] = []
    arrays: Dict[Any, Tuple[int, Any]] = {}
    others: List[Tuple[str, Any]] = []

    def look(path: str, value: Any) -> None:
        if isinstance(value, cupy.ndarray):
            if type(value) is not cupy.ndarray:
                raise UnsupportedError(f"{path} is a {type(value).__name__}; the step would get a cupy.ndarray in its "
                                       "place, so pass array.view(cupy.ndarray)")
            if value.data.device_id not in (device, -1):
                raise UnsupportedError(f"{path} is on device {value.data.device_id}; a session has one device, "
                                       f"{device}")
            layout = layout_of(value)
            number, _ = arrays.setdefault((layout, type(value)), (len(arrays), value))
            key.append((path, number, type(value).__name__, *layout[2:]))
        elif nested.is_container(value):
            inside = list(nested.items(value))
            key.append((path, type(value).__name__, len(inside)))
            for name, item in inside:
                if not isinstance(name, PLAIN):
                    raise UnsupportedError(f"a key of {path} is a {type(name).__name__}, which may be another one in "
                                           "each call; use texts or numbers for keys")
                look(f"{path}[{name!r}]", item)
        else:
            _refuse(path, value)
            others.append((path, value))

    for index, value in enumerate(args):
        look(f"argument {index}", value)
    for name, value in kwargs.items():
        look(f"argument {name}", value)
    return Call(args, kwargs, tuple(key), [array for _, array in arrays.values()], others)


def _refuse(path: str, value: Any) -> None:
    module = type(value).__module__.partition(".")[0]
    if module == "numpy" and getattr(value, "shape", ()) != ():
        raise UnsupportedError(f"{path} is an array of NumPy; pass cupy.asarray(array)")
    if module == "torch" and hasattr(value, "__dlpack__"):
        raise UnsupportedError(f"{path} is a tensor of PyTorch; pass cupy.from_dlpack(tensor)")


def _alike(array: Any) -> Any:
    """Another array of the same strides: with others kernels sum up in another order."""
    if array.flags.c_contiguous or array.flags.f_contiguous:
        return cupy.empty_like(array)
    low, high = span_of(array)
    return cupy.ndarray(array.shape, array.dtype, cupy.cuda.alloc(high - low) + (array.data.ptr - low), array.strides)


class Inputs:
    """The arrays of calls with one key at fixed addresses."""

    def __init__(self, call: Call):
        self.arrays = [_alike(array) for array in call.arrays]

    def arguments(self, call: Call) -> Tuple[Tuple[Any, ...], Dict[str, Any]]:
        """Those of this call, with the fixed arrays in place of its own."""
        fixed = {layout_of(array): own for array, own in zip(call.arrays, self.arrays)}

        def own(value: Any) -> Any:
            return fixed[layout_of(value)] if isinstance(value, cupy.ndarray) else value

        return nested.replaced(call.args, own), nested.replaced(call.kwargs, own)

    def load(self, arrays: Sequence[Any]) -> None:
        for own, array in zip(self.arrays, arrays):
            own[...] = array

    def store(self, arrays: Sequence[Any], written: Sequence[bool]) -> None:
        """What the step may have written into its arguments goes to the program's."""
        for own, array, is_written in zip(self.arrays, arrays, written):
            if is_written:
                array[...] = own
