# SPDX-License-Identifier: Apache-2.0
"""Which values are equal for a step that reads them: plain ones by type and bits, containers and objects by what is
read of them."""

from __future__ import annotations

import array
import datetime
import enum
import functools
import numbers
import sys
import types
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Set, Tuple

import torch

from .code_reads import Kind, Step
from .lookups import MISSING, UNKNOWN, attributes_of, is_container, look_up
from .reachable import is_generator, slots_of

PLAIN = (type(None), bool, int, float, complex, str)
_EXACT = frozenset((*PLAIN, bytes, range, slice, type(Ellipsis), type(MISSING)))
_OF_TORCH = [getattr(torch, name, None) for name in ("dtype", "device", "layout", "memory_format")]
_KINDS = (str, bytes, enum.Enum, numbers.Number, datetime.date, datetime.time, datetime.timedelta,
          *(kind for kind in _OF_TORCH if isinstance(kind, type)))
# What is watched elsewhere.
_WATCHED = (torch.Tensor, torch.nn.Module, torch.optim.Optimizer)
LARGEST_READ = 1 << 20  # bytes of an array that are compared in each call


def is_plain(value: Any) -> bool:
    """Whether it is all that there is to it, and cannot change."""
    return type(value) in _EXACT or isinstance(value, _KINDS) or isinstance(value, _of_numpy("generic"))


def are_equal(before: Any, now: Any) -> bool:
    """Of plain values. Not a number is itself, and the two zeros are not one."""
    if type(before) is not type(now):
        return False
    if isinstance(before, (float, complex)) or isinstance(before, _of_numpy("generic")):
        return repr(before) == repr(now)
    return bool(before == now)


def content_of(value: Any) -> Optional[Callable[[], Any]]:
    """Of an array or a tensor in host memory: a function whose result is equal as long as what is in it does not
    change. Pinned memory is read by the device in each replay."""
    if isinstance(value, torch.Tensor):
        if value.is_cuda or value.device.type != "cpu" or value.is_inference() or value.is_pinned():
            return None
        return lambda: value._version
    if isinstance(value, _of_numpy("ndarray")) and value.nbytes <= LARGEST_READ or isinstance(value, array.array):
        return value.tobytes
    return functools.partial(bytes, value) if isinstance(value, bytearray) else None


def _of_numpy(name: str) -> Tuple[type, ...]:
    kind = getattr(sys.modules.get("numpy"), name, None)
    return (kind,) if isinstance(kind, type) else ()


A_TENSOR = object()  # stands for one: not to be kept, and watched elsewhere


def kept(value: Any) -> Any:
    return A_TENSOR if isinstance(value, torch.Tensor) and content_of(value) is None else value


class Uses:
    """What is read of an object: the values of `steps`; `whole`: everything, which in a container is `items`;
    `is_stored`: something is put into it; `is_counted`: its length."""

    def __init__(self) -> None:
        self.steps: Dict[Step, Any] = {}
        self.items: Dict[Any, Any] = {}
        self.whole = self.is_stored = self.is_counted = False


class Difference(NamedTuple):
    name: str
    before: Any
    now: Any

    def __str__(self) -> str:
        before, now = self.before, self.now
        if before is now:
            return "has something else in it than when the step was captured"
        if type(before) is not type(now) or is_plain(before):
            return f"{_text('was', before)} when the step was captured and {_text('is', now)}"
        if is_container(before) and len(before) != len(now):
            return f"had {_elements(before)} when the step was captured and has {_elements(now)}"
        return "is another object than when the step was captured"


def _elements(container: Any) -> str:
    return f"{len(container)} element{'s' if len(container) != 1 else ''}"


def _text(verb: str, value: Any) -> str:
    text = repr(value) if is_plain(value) else f"a {type(value).__qualname__}"
    return f"{verb} {text if len(text) <= 80 else text[:77] + '...'}"


class Comparison:
    """`uses`: by identity, what is read of the things before."""

    def __init__(self, uses: Dict[int, Uses]):
        self._uses = uses
        self._seen: Set[Tuple[int, int]] = set()  # pairs that are equal, or being compared

    def difference(self, name: str, before: Any, now: Any, whole: bool = False) -> Optional[Difference]:
        """None where the step reads the same. `whole`: it may read all."""
        before, now = kept(before), kept(now)
        if before is now or (id(before), id(now)) in self._seen:
            return None
        if any(isinstance(before, kind) and isinstance(now, kind) for kind in _WATCHED):
            return None
        different = Difference(name, before, now)
        if type(before) is not type(now) or is_generator(before):
            return different
        if is_plain(before):
            return None if are_equal(before, now) else different
        self._seen.add((id(before), id(now)))
        if isinstance(before, (types.FunctionType, types.MethodType, functools.partial)):
            return next(self._of_functions(name, before, now), None)
        uses = self._uses.get(id(before))
        if uses is not None and uses.is_stored:
            return different
        if uses is not None and uses.is_counted and len(before) != len(now):
            return Difference(f"len({name})", len(before), len(now))
        if is_container(before) and (uses is None or uses.whole or whole):
            items = uses.items if uses is not None and uses.whole else items_of(before)
            return next(self.of_container(name, now, items, items_of(now)), None)
        if uses is None or uses.whole or whole:
            return self._of_all(name, before, now, different)
        return next(self._of_steps(name, uses, now), None)

    def of_container(self, name: str, now: Any, before: Dict[Any, Any], items: Dict[Any, Any]) -> Iterator[Difference]:
        """`before`: what was in it."""
        if not isinstance(now, dict) and before.keys() != items.keys():
            yield Difference(name, tuple(before), tuple(items)) if len(before) != len(items) else \
                Difference(name, now, now)
            return
        yield from self._of_items(name, before, items, "{}[{!r}]")

    def _of_items(self, name: str, before: Dict[Any, Any], now: Dict[Any, Any], text: str,
                  whole: bool = False) -> Iterator[Difference]:
        for key in [*before, *(key for key in now if key not in before)]:
            found = self.difference(text.format(name, key), before.get(key, MISSING), now.get(key, MISSING), whole)
            if found is not None:
                yield found

    def _of_steps(self, name: str, uses: Uses, now: Any) -> Iterator[Difference]:
        for step, value in uses.steps.items():
            found = self.difference(f"{name}{step}", value, look_up(now, step).value)
            if found is not None:
                yield found

    def _of_functions(self, name: str, before: Any, now: Any) -> Iterator[Difference]:
        if isinstance(before, types.FunctionType) and \
                (before.__code__ != now.__code__ or before.__globals__ is not now.__globals__):
            yield Difference(name, before, now)
            return
        for attribute in ("__func__", "__self__", "func", "args", "keywords", "__defaults__", "__kwdefaults__"):
            found = self.difference(name, getattr(before, attribute, None), getattr(now, attribute, None), True)
            if found is not None:
                yield found
        if isinstance(before, types.FunctionType):
            for variable, cell, other in zip(before.__code__.co_freevars, before.__closure__ or (),
                                             now.__closure__ or ()):
                found = self.difference(variable, _content(cell), _content(other), True)
                if found is not None:
                    yield found

    def _of_all(self, name: str, before: Any, now: Any, different: Difference) -> Optional[Difference]:
        if content_of(before) is not None:
            return None if isinstance(before, (bytearray, array.array)) and before == now else different
        if isinstance(before, (type, types.ModuleType)) or attributes_of(before) is None and not _slots(before):
            return different
        return next(self._of_items(name, _all_of(before), _all_of(now), "{}.{}", True), None)


def items_of(container: Any) -> Dict[Any, Any]:
    """By key, or by index; elements of sets by themselves, plain ones with their types."""
    if isinstance(container, dict):
        return dict(zip(dict.keys(container), dict.values(container)))
    if isinstance(container, (set, frozenset)):
        return {(type(item), item) if is_plain(item) else id(item): item for item in container}
    return dict(enumerate(container))


def _slots(thing: Any) -> List[str]:
    return list(slots_of(type(thing)))


def _all_of(thing: Any) -> Dict[str, Any]:
    slots = {name: look_up(thing, Step(Kind.ATTRIBUTE, name)).value for name in _slots(thing)}
    return {**(attributes_of(thing) or {}), **{name: value for name, value in slots.items() if value is not UNKNOWN}}


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return MISSING
