# SPDX-License-Identifier: Apache-2.0
"""Where a value is that code reads as an attribute or an element, without running anything of the program's."""

from __future__ import annotations

import collections
import enum
import functools
import types
from typing import Any, Iterator, NamedTuple, Optional, Tuple

import torch

from .code_reads import Kind, Step
from .reachable import OF_OPTIMIZERS, is_programs_own, is_written_by_the_program

MISSING = type("Missing", (), {"__repr__": lambda self: "not there"})()
UNKNOWN = object()  # only the program's own code would tell

_SEQUENCES: Tuple[Any, ...] = (list, tuple, collections.deque)
CONTAINERS: Tuple[Any, ...] = (*_SEQUENCES, dict, set, frozenset)


class Spot(NamedTuple):
    """`holder[key]` is the value. `thing` is what identifies it."""

    holder: Any
    key: Any
    thing: Any

    @property
    def identity(self) -> Tuple[int, Any]:
        return id(self.thing), self.key

    def now(self) -> Any:
        try:
            return self.holder[self.key]
        except (LookupError, ValueError, AttributeError):  # an empty cell is a ValueError
            return MISSING


class Code(NamedTuple):
    """A function of the program that the step may call, and the object that it is a method of. `arguments`: objects
    that every call gives it, by name."""

    function: Any  # a types.FunctionType; a field of that type would be a method of the tuple for mypy
    bound: Any = None
    arguments: Any = types.MappingProxyType({})


class Found(NamedTuple):
    """`spots`: where the value is, and where one would be that hides it. `code`: what the read runs, or what a call of
    the value would run."""

    value: Any
    spots: Tuple[Spot, ...] = ()
    code: Tuple[Code, ...] = ()


class _Slot(NamedTuple):
    thing: Any
    descriptor: Any

    def __getitem__(self, _key: Any) -> Any:
        return self.descriptor.__get__(self.thing, type(self.thing))


class _Elements(NamedTuple):
    """Of a container, past methods of the program's."""

    thing: Any

    def __getitem__(self, key: Any) -> Any:
        if isinstance(self.thing, dict):
            return dict.get(self.thing, key, MISSING)  # which adds none
        return next(kind for kind in _SEQUENCES if isinstance(self.thing, kind)).__getitem__(self.thing, key)


def in_dict(holder: Any, key: Any) -> Spot:
    return Spot(holder if type(holder) is dict else _Elements(holder), key, holder)


def is_container(value: Any) -> bool:
    """One that goes over its elements as Python's own do."""
    kind = next((kind for kind in CONTAINERS if isinstance(value, kind)), None)
    return kind is not None and type(value).__iter__ is kind.__iter__ and type(value).__len__ is kind.__len__


def look_up(owner: Any, step: Step) -> Found:
    if step.kind is Kind.ATTRIBUTE:
        return _attribute(owner, step.key)
    if step.kind is Kind.GET and not isinstance(owner, dict):
        return _attribute(owner, "get")
    return _element(owner, step.key)


def attributes_of(value: Any) -> Optional[dict]:
    own = getattr(value, "__dict__", None)
    return own if isinstance(own, dict) else None


def code_of(value: Any, bound: Any = None) -> Iterator[Code]:
    """The program's own functions that a call of `value` runs, as far as it stands for functions."""
    if isinstance(value, types.MethodType):
        yield from code_of(value.__func__, value.__self__)
    elif isinstance(value, (staticmethod, functools.partial)):
        yield from code_of(value.func if isinstance(value, functools.partial) else value.__func__)
    elif isinstance(value, classmethod):
        yield from code_of(value.__func__, bound if isinstance(bound, type) else type(bound))
    else:
        if isinstance(value, types.FunctionType) and is_programs_own(value):
            yield Code(value, bound)
        own = None if isinstance(value, (type, types.ModuleType)) else attributes_of(value)
        if own and "__wrapped__" in own:
            yield from code_of(own["__wrapped__"], bound)


def methods_of(owner: Any, name: str) -> Iterator[Code]:
    """Those of the program's own with this name, of all classes of an object: `super()` leads from one to the next."""
    for base in (owner if isinstance(owner, type) else type(owner)).__mro__:
        found = vars(base).get(name)
        if found is not None and is_written_by_the_program(base):
            yield from code_of(getattr(found, "fget", found), None if isinstance(owner, type) else owner)


# ---- attributes ------------------------------------------------------------------------------------------------------


def _attribute(owner: Any, key: str) -> Found:
    if isinstance(owner, torch.Tensor) or isinstance(owner, torch.optim.Optimizer) and key in OF_OPTIMIZERS:
        return Found(UNKNOWN)  # what a step works on is looked at elsewhere
    if isinstance(owner, types.ModuleType):
        spot = Spot(vars(owner), key, vars(owner))
        return Found(spot.now(), (spot,) if is_written_by_the_program(owner) else ())
    if isinstance(owner, enum.EnumMeta) and key in owner.__members__:
        return Found(owner.__members__[key])
    own = attributes_of(owner)
    if own is not None and key == "__dict__":
        return Found(own)
    kind: Any = owner if isinstance(owner, type) else type(owner)
    base = next((base for base in kind.__mro__ if key in vars(base)), None)
    found = MISSING if base is None else vars(base)[key]
    if owner is not kind and isinstance(found, property):
        return Found(UNKNOWN, (), tuple(code_of(found.fget, owner)))
    if owner is not kind and isinstance(found, types.MemberDescriptorType):
        spot = Spot(_Slot(owner, found), key, owner)
        return Found(spot.now(), (spot,))
    if own is not None and key in own:
        is_mode = key == "training" and isinstance(owner, torch.nn.Module)  # a graph each
        return _with_code(Found(own[key], () if is_mode else (Spot(own, key, own),)))
    if isinstance(owner, torch.nn.Module) and key in (own or {}).get("_modules", {}):
        return Found(own["_modules"][key])  # type: ignore[index]
    if isinstance(owner, tuple) and key in getattr(kind, "_fields", ()):
        return Found(tuple.__getitem__(owner, kind._fields.index(key)))
    if base is None:
        return _missing(owner, own, key)
    if isinstance(found, functools.cached_property):
        return Found(UNKNOWN, (), tuple(code_of(found.func, owner)))
    spots = (Spot(vars(base), key, base),) if is_written_by_the_program(base) else ()
    if spots and own is not None:
        spots = (Spot(own, key, own), *spots)  # an object's own may come
    return _with_code(Found(found, spots), None if owner is kind else owner)


def _with_code(found: Found, bound: Any = None) -> Found:
    return found._replace(code=tuple(code_of(found.value, bound)))


def _missing(owner: Any, own: Any, key: str) -> Found:
    if isinstance(owner, dict) and key in owner:
        return _element(owner, key)  # as dicts do whose elements are attributes, too
    code = tuple(methods_of(owner, "__getattr__"))
    if code:
        return Found(UNKNOWN, (), code)
    return Found(MISSING, () if own is None else (Spot(own, key, own),))


def _element(owner: Any, key: Any) -> Found:
    if isinstance(owner, torch.nn.Module):
        return Found((attributes_of(owner) or {}).get("_modules", {}).get(str(key), UNKNOWN))
    code = tuple(methods_of(owner, "__getitem__"))
    if code or not isinstance(owner, (*_SEQUENCES, dict)):
        return Found(UNKNOWN, (), code)
    spot = in_dict(owner, key) if isinstance(owner, dict) else Spot(_Elements(owner), key, owner)
    try:
        value = spot.now()
    except TypeError:  # a list has no such index
        return Found(UNKNOWN)
    return _with_code(Found(value, () if isinstance(owner, tuple) else (spot,)))
