# SPDX-License-Identifier: Apache-2.0
"""What the nodes of a call only read, for the session.

A kernel's parameters do not say what it does to its operands. While a step is captured, the calls that the program
makes are looked at from outside: of CuPy's own functions it is known which arguments they write.
"""

from __future__ import annotations

import threading
from typing import Any, Callable, Dict, Iterable, Iterator, List, NamedTuple, Optional, Set, Tuple

import cupy

from ..errors import PumpGraphError
from .memory import Installation


class Operands(NamedTuple):
    """Of one call: what it only reads, and everything else that it gets."""

    read: List[Any]
    others: List[Any]


# Operands of a call with these arguments.
Rule = Callable[[Tuple[Any, ...], Dict[str, Any]], Operands]


def positions(first: int, count: int) -> Rule:
    """`count` arguments from the one at `first` on are only read; of arguments by name nothing is known."""

    def rule(args: Tuple[Any, ...], kwargs: Dict[str, Any]) -> Operands:
        last = first + count
        return Operands(list(args[first:last]), [*args[:first], *args[last:], *kwargs.values()])

    return rule


_PLAIN = (type(None), bool, int, float, complex, str, bytes, type(Ellipsis), slice, type)


class Declaring:
    """While one is active, the session hears of the calls that the capturing thread makes. Only the outermost call
    counts, whose nodes are all those that it makes."""

    active: Optional["Declaring"] = None

    def __init__(self, installation: Installation):
        self._installation = installation
        self._stream = installation.stream.ptr
        self._thread = threading.get_ident()
        self._depth = 0

    @staticmethod
    def call(fn: Callable[..., Any], rule: Rule, args: Tuple[Any, ...], kwargs: Dict[str, Any]) -> Any:
        self = Declaring.active
        if self is None or self._depth or self._thread != threading.get_ident():
            return fn(*args, **kwargs)
        self._installation.refuse_other_streams(kwargs.get("stream") or cupy.cuda.get_current_stream())
        reads = self._only_read(rule(args, kwargs))
        self._say([])  # of what was captured between the calls nothing is known
        self._depth += 1
        try:
            result = fn(*args, **kwargs)
        finally:
            self._depth -= 1
        self._say(reads)
        return result

    def _say(self, reads: List[int]) -> None:
        try:
            self._installation.session.declare_reads(self._stream, reads)
        except PumpGraphError:
            pass  # the capture is broken, and whoever broke it says so

    def _only_read(self, operands: Operands) -> List[int]:
        """Addresses of allocations: what an operand shares memory with is written with it."""
        others = list(_leaves(operands.others))
        read = list(_leaves(operands.read))
        if not all(map(_is_known, [*others, *read])):
            return []  # code of the program may run inside the call
        written: Set[int] = set()
        for array in others:
            if isinstance(array, cupy.ndarray) and array.size:
                allocation = self._installation.allocation_of(array)
                if allocation is None:
                    return []  # it may be a view of anything
                written.add(allocation.pointer)
        found = (self._installation.allocation_of(array) for array in read if isinstance(array, cupy.ndarray))
        return sorted({allocation.pointer for allocation in found if allocation is not None} - written)


def _leaves(values: Iterable[Any]) -> Iterator[Any]:
    for value in values:
        if type(value) in (list, tuple):
            yield from _leaves(value)
        else:
            yield value


def _is_known(value: Any) -> bool:
    return type(value) is cupy.ndarray or isinstance(value, _PLAIN) \
        or type(value).__module__.partition(".")[0] == "numpy"
