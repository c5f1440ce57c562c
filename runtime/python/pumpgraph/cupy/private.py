# SPDX-License-Identifier: Apache-2.0
"""Arrays that only steps touch. Eager work cannot reach one by mistake, where its value may be elsewhere."""

from __future__ import annotations

import contextlib
from typing import Any, Iterator, List

import cupy

from ..errors import invalid
from .memory import installed


class Private:
    """An array that can leave the device between calls: its contents are copied into memory of its own.

    Inside graphed functions `array` is the array. Outside it is only to be had in mapped(), which brings the values.

        table = pumpgraph.cupy.Private(cupy.load("table.npy"))

        @pumpgraph.cupy.graphed
        def step(keys):
            return table.array[keys]

        with pumpgraph.cupy.mapped(table) as array:
            print(array.sum())

    Args:
        array: the array whose contents it gets.

    Raises:
        PumpGraphError: INVALID_ARGUMENT for something else than an array of CuPy, or without install().
    """

    def __init__(self, array: Any):
        if not isinstance(array, cupy.ndarray):
            raise invalid(f"a Private is made of an array of CuPy, not of a {type(array).__name__}")
        self._installation = installed()
        self.unguarded = cupy.empty_like(array)
        self.unguarded[...] = array
        self._mapped = 0  # in how many mapped()

    @property
    def array(self) -> Any:
        """The array, inside a graphed function or mapped(). Raises PumpGraphError (INVALID_ARGUMENT) elsewhere."""
        if not (self._mapped or self._installation.is_inside):
            raise invalid("the values of a Private may be elsewhere; use its array inside a graphed function, or in "
                          "`with pumpgraph.cupy.mapped(private) as array:`")
        return self.unguarded


@contextlib.contextmanager
def mapped(*privates: Private) -> Iterator[Any]:
    """Context: gives the array of a Private, or the list of those of several, with its values, to be read and written.

    Waits for the device on entry and exit. No step can be replayed inside. Do not use the arrays afterwards.

    Raises:
        PumpGraphError: INVALID_ARGUMENT for other things, or without install(); OUT_OF_HOST_MEMORY without room.
    """
    for private in privates:
        if not isinstance(private, Private):
            raise invalid(f"mapped() takes Privates; a {type(private).__name__} is at its address at all times")
    session = installed().session
    arrays: List[Any] = [private.unguarded for private in privates]
    cupy.cuda.runtime.deviceSynchronize()
    with session.mapped([array.data.mem.ptr for array in arrays]):
        for private in privates:
            private._mapped += 1
        try:
            yield arrays[0] if len(arrays) == 1 else arrays
            cupy.cuda.runtime.deviceSynchronize()  # before the values go back to their places
        finally:
            for private in privates:
                private._mapped -= 1
