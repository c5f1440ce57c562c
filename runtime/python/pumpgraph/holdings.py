# SPDX-License-Identifier: Apache-2.0
"""Objects that hold tensors and numbers, such as the key-value cache of a language model.

A captured step works on the very tensors that an object holds. So objects among the arguments are known by identity, as
modules are, and searched for what is private. The numbers in them are those of the captured call for ever: one that the
step itself changes is refused with all else that a step does on the host; one that the program changes between calls is
noticed here. The same goes for an object that the code of the step passes on to other code.
"""

from __future__ import annotations

import collections
import functools
import types
from itertools import chain
from operator import is_
from typing import Any, Dict, FrozenSet, Iterable, Iterator, List, Set, Tuple

import torch

from . import nested
from .errors import StaleStepError
from .reachable import (LARGEST_CONTAINER, OBJECTS_DEEP, Attributes, Place, identity_of, is_generator, is_opaque,
                        slots_of)
from .values import PLAIN, are_equal, is_plain

# A cache of an encoder-decoder model holds two caches, which hold layers, which hold tensors.
DEEP = OBJECTS_DEEP + 1

_Identity = Tuple[int, Any]
# What is looked at elsewhere, or is nothing but code.
_OTHERS = (torch.Tensor, torch.nn.Module, torch.optim.Optimizer, type, types.ModuleType, types.FunctionType,
           types.BuiltinFunctionType, types.MethodType, functools.partial)


def is_object(value: Any) -> bool:
    """Whether it is neither a tensor, nor something around tensors that is copied with them, and may hold some."""
    return not nested.is_container(value) and _has_attributes(value)


def _has_attributes(value: Any) -> bool:
    return not isinstance(value, (*PLAIN, *_OTHERS)) and not is_generator(value) and not is_opaque(type(value)) \
        and (hasattr(value, "__dict__") or any(slots_of(type(value))))


def tensors_of(value: Any) -> Iterator[torch.Tensor]:
    """Those that an object holds."""
    return (item for _, holder in _holders_in(value, "", DEEP, set()) for item in _items(holder).values()
            if isinstance(item, torch.Tensor))


def holds_tensors(value: Any) -> bool:
    return next(tensors_of(value), None) is not None


def _objects_in(name: str, thing: Any, deep: int = DEEP) -> Iterator[Tuple[str, Any]]:
    """`thing`, or those in it, if it is a list or a dict."""
    if isinstance(thing, (dict, list, tuple, collections.deque)):
        if deep and len(thing) <= LARGEST_CONTAINER:
            for key, item in _items(thing).items():
                yield from _objects_in(f"{name}.{key}", item, deep - 1)
    elif _has_attributes(thing):
        yield name, thing


def _holders_in(thing: Any, name: str, deep: int, seen: Set[int]) -> Iterator[Tuple[str, Any]]:
    """What has places in an object: dicts, lists, objects with slots, by name."""
    if id(thing) in seen:
        return
    seen.add(id(thing))
    if isinstance(thing, (dict, list, tuple, collections.deque)):
        holders: List[Any] = [thing] if len(thing) <= LARGEST_CONTAINER else []
    elif deep and _has_attributes(thing):
        deep -= 1
        holders = [vars(thing)] if isinstance(getattr(thing, "__dict__", None), dict) else []
        holders += [Attributes(thing)] if any(slots_of(type(thing))) else []
    else:
        return
    for holder in holders:
        yield name, holder
        for key, item in _items(holder).items():
            yield from _holders_in(item, f"{name}.{key}" if name else str(key), deep, seen)


def _items(holder: Any) -> Dict[Any, Any]:
    if isinstance(holder, dict):
        return dict(holder)
    if isinstance(holder, Attributes):
        thing = holder.thing
        return {key: getattr(thing, key) for key in slots_of(type(thing)) if hasattr(thing, key)}
    return dict(enumerate(holder))


class Holdings:
    """What is in those of `objects` that hold tensors, when this is made. `left`: places that the step itself fills.
    `watched`: places of tensors, or of what leads to them, that have to stay; those in the objects do not need to be
    looked at elsewhere."""

    def __init__(self, objects: Iterable[Tuple[str, Any]], left: Iterable[_Identity], watched: Iterable[Place]):
        self._left: FrozenSet[_Identity] = frozenset(left)
        self._watched = {place.identity: place for place in watched}
        seen: Set[int] = set()
        self._holders: List[Tuple[str, Any]] = [
            found for given in objects for name, thing in _objects_in(*given) if holds_tensors(thing)
            for found in _holders_in(thing, name, DEEP, seen) if not isinstance(found[1], tuple)]
        inside = {identity_of(holder) for _, holder in self._holders}
        self.others = [place for identity, place in self._watched.items() if identity[0] not in inside]
        self._dicts = [holder for _, holder in self._holders if isinstance(holder, dict)]
        self._others = [holder for _, holder in self._holders if not isinstance(holder, dict)]
        self._look()

    def _look(self) -> None:
        self._before = [_items(holder) for _, holder in self._holders]
        self._values = self._now()

    def _now(self) -> List[Any]:
        """All values, fast: in every call."""
        values = list(chain.from_iterable(map(dict.values, self._dicts)))
        for holder in self._others:
            values += holder if isinstance(holder, (list, collections.deque)) else _items(holder).values()
        return values

    def check(self) -> None:
        """Raises StaleStepError unless all is as it was, but for tensors in places that are not watched."""
        now = self._now()
        if len(now) == len(self._values) and all(map(is_, now, self._values)):
            return
        for (name, holder), before in zip(self._holders, self._before):
            items = _items(holder)
            for key in [*before, *(key for key in items if key not in before)]:
                identity = identity_of(holder), key
                if identity in self._watched:
                    self._watched[identity].check()
                if identity not in self._left:
                    _compare(f"{name}.{key}", before.get(key, _MISSING), items.get(key, _MISSING))
        self._look()


_MISSING = object()


def _compare(name: str, before: Any, now: Any) -> None:
    if now is before or isinstance(before, torch.Tensor):
        return
    if type(now) is type(before) and is_plain(now):
        if are_equal(before, now):
            return
        raise StaleStepError(f"\"{name}\", which the step may read, was {before!r} when the step was captured and is "
                             f"{now!r}; pass it as an argument of its own, a tensor if it differs from call to call")
    what = "is gone" if now is _MISSING else "was not there when the step was captured" if before is _MISSING else \
        "is another object than when the step was captured"
    raise StaleStepError(f"\"{name}\", which the step may read, {what}")
