# SPDX-License-Identifier: Apache-2.0
"""Memory that the nodes of an operator find by addresses in memory, which no parameter of a kernel shows.

NCCL may hand the addresses of a collective's buffers to its kernel in memory. PyTorch's copies of FSDP2 take those of
all parameters from a table that is copied to the device, and grouped products write one. The operators' arguments say
which memory that is.
"""

from __future__ import annotations

from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Set

from .purity import base_name, writes_addresses
from .schemas import COLLECTIVE, given, is_believed, says_that_it_writes
from .tensors import has_memory, plain_tensors, pointer_of, tensors_in

# aten/src/ATen/native/cuda/TensorShape.cu packs the addresses of all operands.
_WITH_TABLES = ("split_with_sizes_copy", "chunk_cat")
_NAMESPACES_WITH_TABLES = ("aten", "fsdp")


class Reach(NamedTuple):
    """Addresses in the memory that the nodes may read, and in the memory that they may read and write."""

    read: List[int]
    written: List[int]

    def __bool__(self) -> bool:
        return bool(self.read or self.written)

    def joined(self, other: "Reach") -> "Reach":
        written = {*self.written, *other.written}
        return Reach(sorted({*self.read, *other.read} - written), sorted(written))


NOTHING = Reach([], [])


def reaches(func: Any, args: Sequence[Any]) -> bool:
    """Whether nodes of the operator may find its operands by addresses in memory."""
    return (func.namespace in COLLECTIVE or (writes_addresses(func, args) and is_believed(func))
            or (func.namespace in _NAMESPACES_WITH_TABLES and base_name(func) in _WITH_TABLES))


def reach_before(func: Any, args: Sequence[Any], kwargs: Dict[str, Any]) -> Reach:
    """The arguments of an operator that reaches(), asked before the call."""
    read: Set[int] = set()
    written: Set[int] = set()
    for argument, value in given(func._schema.arguments, args, kwargs):
        (read if _is_only_read(func, argument) else written).update(_pointers_in(value))
    return Reach(sorted(read - written), sorted(written))


def reach_after(result: Any) -> Reach:
    """Its results, which functional collectives make."""
    return Reach([], sorted(set(_pointers_in(result))))


def _is_only_read(func: Any, argument: Any) -> bool:
    """The schemas of c10d do not say what they write: what is called an input is read, all else may be both."""
    if func.namespace in COLLECTIVE:
        return argument.name.startswith("input") and not says_that_it_writes(argument)
    return not says_that_it_writes(argument)


def _pointers_in(value: Any) -> List[int]:
    return [pointer_of(plain) for tensor in tensors_in(value) for plain in plain_tensors(tensor) if has_memory(plain)]


class Reaching:
    """Tells the session, while `stream` is captured. A group of collectives is launched at its end, after its last
    operator; so what comes after a collective and before the next operator has its reach too."""

    def __init__(self, session: Any, stream: int):
        self._session = session
        self._stream = stream
        self._lasting = NOTHING  # of the collectives right before

    def begin(self, func: Any, args: Sequence[Any], kwargs: Dict[str, Any]) -> Optional[Reach]:
        """Before any operator. Its reach, if it has one."""
        is_reaching = reaches(func, args)
        if is_reaching or self._lasting:
            self._say(self._lasting)
        if not is_reaching:
            self._lasting = NOTHING
            return None
        return reach_before(func, args, kwargs)

    def end(self, func: Any, reach: Optional[Reach], result: Any) -> None:
        """After it."""
        if reach is None:
            return
        reach = reach.joined(reach_after(result))
        if func.namespace in COLLECTIVE:
            self._lasting = reach = reach.joined(self._lasting)
        self._say(reach)

    def close(self) -> None:
        """After the step's last operator."""
        if self._lasting:
            self._say(self._lasting)
        self._lasting = NOTHING

    def _say(self, reach: Reach) -> None:
        self._session.declare_reach(self._stream, reach.read, reach.written)
