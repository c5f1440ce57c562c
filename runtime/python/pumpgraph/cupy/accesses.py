# SPDX-License-Identifier: Apache-2.0
"""Which memory a captured step may write, from its IR."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path
from typing import Any, Callable, List, Tuple

from ..errors import PumpGraphError

_BUFFER = re.compile(r"^\s*(%\S+) = pump\.buffer .* address\((0x[0-9a-f]+)\)", re.MULTILINE)
_ACCESS = re.compile(r"(\w+) (%[^\s\[,(]+)\[(\d+), (\d+)\]")
_ANY_ACCESS = re.compile(r"%[^\s\[,(]+\[\d+, \d+\]")

Span = Tuple[int, int]


def span_of(array: Any) -> Span:
    """The first address of an array, and the one behind its last byte."""
    low = high = array.data.ptr
    if array.size == 0:
        return low, low
    for length, stride in zip(array.shape, array.strides):
        reach = (length - 1) * stride
        low, high = low + min(reach, 0), high + max(reach, 0)
    return low, high + array.dtype.itemsize


def overlap(one: Span, other: Span) -> bool:
    return one[0] < other[1] and other[0] < one[1]


class Writes:
    """`save` writes the step's IR to a file. What cannot be described may be written."""

    def __init__(self, save: Callable[[Path], None]):
        self._ranges: List[Span] = []
        self._is_unknown = False
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "step.mlir"
            try:
                save(path)
            except PumpGraphError:
                self._is_unknown = True
                return
            text = path.read_text()
        addresses = {name: int(address, 16) for name, address in _BUFFER.findall(text)}
        accesses = set(_ACCESS.findall(text))
        are_all_read = len(_ACCESS.findall(text)) == len(_ANY_ACCESS.findall(text))
        self._is_unknown = not are_all_read or "= pump.opaque" in text or any(
            name not in addresses for _, name, _, _ in accesses)
        self._ranges = [(addresses[name] + int(offset), addresses[name] + int(offset) + int(size))
                        for mode, name, offset, size in accesses if mode != "read" and name in addresses]

    def may_hit(self, array: Any) -> bool:
        return self._is_unknown or any(overlap(written, span_of(array)) for written in self._ranges)
