# SPDX-License-Identifier: Apache-2.0
"""Numbers, texts and flags that the code of a step reads by name, and that the program may change between calls.

A captured step keeps those of the captured call. The code of the program's own functions says which they are: each
variable, global, and attribute along a chain such as `self.settings.beta` is followed to the place where the value is.
"""

from __future__ import annotations

import dis
import inspect
import types
from operator import is_
from typing import Any, Dict, Iterable, Iterator, List, Mapping, NamedTuple, Optional, Set, Tuple

import torch

from .errors import StaleStepError
from .reachable import Attributes, Cell, is_programs_own, is_written_by_the_program

PLAIN = (type(None), bool, int, float, complex, str)
_MISSING = object()


class Code(NamedTuple):
    """A function of the program that the step may call, and the object that it is a method of. `arguments`: objects
    that every call gives it, by name."""

    function: types.FunctionType
    bound: Any = None
    arguments: Mapping[str, Any] = types.MappingProxyType({})


class _Read(NamedTuple):
    holder: Any
    key: Any
    name: str

    def now(self) -> Any:
        try:
            return self.holder[self.key]
        except (LookupError, ValueError):  # an empty cell is a ValueError
            return _MISSING


class Reads:
    """As the values are when this is made."""

    def __init__(self, code: Iterable[Code]):
        self._found: Dict[Tuple[int, Any], _Read] = {}
        self._of_modules: Dict[Tuple[int, Any], _Read] = {}
        self._passed_on: List[Tuple[str, Any]] = []
        self._alive: List[Any] = []
        seen: Set[Tuple[int, int]] = set()
        waiting = list(code)
        while waiting:
            each = waiting.pop()
            if (id(each.function), id(each.bound)) not in seen:
                seen.add((id(each.function), id(each.bound)))
                self._alive.append(each)
                waiting += self._follow(each.function, each.function.__code__, _objects_by_name(each))
        self._alive.clear()
        found = list(self._found.values())
        self._everywhere = _Values([place for place in found if not isinstance(place.holder, dict)])
        self._in_dicts = _Values([place for place in found if isinstance(place.holder, dict)])
        self._pairs = [(place.holder, place.key) for place in self._in_dicts.places]
        self._in_modules = _Values(list(self._of_modules.values()))

    def take_passed_on(self) -> List[Tuple[str, Any]]:
        """What the code gives to other code, which may read anything of it, with names. Not what it calls, which is
        followed, nor the object of a method."""
        passed_on, self._passed_on = self._passed_on, []
        return [(name, thing) for name, thing in passed_on
                if not isinstance(getattr(type(thing), "__call__", None), types.FunctionType)]

    def check(self) -> None:
        """Raises StaleStepError unless they are the same. Called before every replay."""
        self._in_dicts.compare([holder.get(key, _MISSING) for holder, key in self._pairs])
        self._everywhere.compare()

    def check_modules(self) -> None:
        """The same, for attributes of modules. Called where something has changed."""
        self._in_modules.compare()

    def _follow(self, function: types.FunctionType, code: types.CodeType, known: Dict[str, Any]) -> Iterator[Code]:
        """Notes what the code reads. Yields the methods that it calls. `known`: cells, and the object of a method, by
        name."""
        at: Any = _MISSING  # the object whose attributes come next
        name = ""
        is_given = False  # it is the object of a method, or an argument
        for instruction in dis.get_instructions(code):
            operation, argument = instruction.opname, instruction.argval
            if at is not _MISSING and not is_given and not operation.endswith(("_ATTR", "_METHOD")):
                self._passed_on.append((name, at))
            is_given = False
            if operation in ("LOAD_GLOBAL", "LOAD_NAME"):
                name, at = argument, self._note(function.__globals__, argument, argument)
            elif operation.startswith(("LOAD_DEREF", "LOAD_CLASSDEREF", "LOAD_FAST")):
                name = argument[-1] if isinstance(argument, tuple) else argument  # newer Pythons load two at once
                at = known.get(name, _MISSING)
                is_given = not isinstance(at, Cell)
                at = self._note(at, None, name) if isinstance(at, Cell) else at
            elif operation in ("LOAD_ATTR", "LOAD_METHOD") and at is not _MISSING:
                name = f"{name}.{argument}"
                owner, at = at, self._attribute(at, argument, name)
                if isinstance(at, types.FunctionType) and not isinstance(owner, (types.ModuleType, type)) \
                        and is_programs_own(at) and at is inspect.getattr_static(type(owner), argument, None):
                    yield Code(at, owner)
            else:
                at = _MISSING
        for constant in code.co_consts:
            if isinstance(constant, types.CodeType):
                inside = {name: thing for name, thing in known.items() if name in constant.co_freevars}
                yield from self._follow(function, constant, inside)

    def _attribute(self, owner: Any, key: str, name: str) -> Any:
        """What an attribute is, without running anything of the program's."""
        if isinstance(owner, torch.Tensor):
            return _MISSING  # what a step works on is looked at elsewhere
        if isinstance(owner, types.ModuleType):
            return self._note(vars(owner), key, name) if is_written_by_the_program(owner) else \
                vars(owner).get(key, _MISSING)
        own = getattr(owner, "__dict__", None)
        if isinstance(own, dict) and key in own:
            if key == "training" and isinstance(owner, torch.nn.Module):
                return own[key]  # a graph each
            return self._note(own, key, name, isinstance(owner, torch.nn.Module))
        if isinstance(owner, torch.nn.Module) and key in getattr(owner, "_modules", {}):
            return owner._modules[key]
        kind = owner if isinstance(owner, type) else type(owner)
        for base in kind.__mro__:
            if key in vars(base):
                value = vars(base)[key]
                if type(value).__name__ == "member_descriptor":  # of a slot
                    return self._note(Attributes(owner), key, name)
                if not is_written_by_the_program(base):
                    return value
                if type(value) in PLAIN and isinstance(own, dict) and owner is not kind:  # an object's own may come
                    self._place(own, key, name, isinstance(owner, torch.nn.Module))
                return self._note(Attributes(base), key, name)
        return _MISSING

    def _note(self, holder: Any, key: Any, name: str, of_module: bool = False) -> Any:
        value = _Read(holder, key, name).now()
        if type(value) in PLAIN:
            self._place(holder, key, name, of_module)
        return value

    def _place(self, holder: Any, key: Any, name: str, of_module: bool) -> None:
        identity = id(holder.thing if isinstance(holder, (Cell, Attributes)) else holder), key
        (self._of_modules if of_module else self._found).setdefault(identity, _Read(holder, key, name))


def _objects_by_name(each: Code) -> Dict[str, Any]:
    code = each.function.__code__
    known: Dict[str, Any] = dict(zip(code.co_freevars, map(Cell, each.function.__closure__ or ())))
    positional = code.co_varnames[:code.co_argcount]
    defaults = {**dict(zip(reversed(positional), reversed(each.function.__defaults__ or ()))),
                **(each.function.__kwdefaults__ or {})}
    known.update((name, Cell(types.CellType(thing))) for name, thing in defaults.items())
    if each.bound is not None and positional:
        known[positional[0]] = each.bound
    parameters = (*positional, *code.co_varnames[code.co_argcount:][:code.co_kwonlyargcount])
    known.update((name, thing) for name, thing in each.arguments.items() if name in parameters)
    return known


class _Values:
    """What is in these places when this is made."""

    def __init__(self, places: List[_Read]):
        self.places = places
        self._values = [place.now() for place in places]

    def compare(self, now: Optional[List[Any]] = None) -> None:
        now = [place.now() for place in self.places] if now is None else now
        if all(map(is_, now, self._values)):
            return
        for place, before, value in zip(self.places, self._values, now):
            if value is not before and not (type(value) is type(before) and (value == before or value != value)):
                raise StaleStepError(f"\"{place.name}\", which the step reads, {_text('was', before)} when the step "
                                     f"was captured and {_text('is', value)}; pass it as an argument")
        self._values = now


def _text(verb: str, value: Any) -> str:
    text = repr(value)
    return f"{verb} not there" if value is _MISSING else f"{verb} {text if len(text) <= 80 else text[:77] + '...'}"
