# SPDX-License-Identifier: Apache-2.0
"""What a function works on beside its arguments' arrays: numbers, texts and arrays that its code reads by name.

A replay has those of the captured call. They are found anew in each call, along the names in the code of the program's
own functions, and a call that finds others is captured anew.
"""

from __future__ import annotations

import array
import collections
import collections.abc
import contextvars
import dis
import enum
import functools
import hashlib
import random
import sys
import types
from typing import Any, Dict, FrozenSet, Iterable, List, NamedTuple, Optional, Set, Tuple

import cupy

from ..errors import UnsupportedError
from .places import is_programs
from .private import Private

MOST_ELEMENTS = 4096  # of one container
MOST_BYTES = 64 << 20  # of an array of NumPy
_DEPTH = 64
_CONTAINERS = (list, tuple, set, frozenset, collections.deque, collections.UserList, collections.abc.Mapping)
_CONTENTS = (bytearray, memoryview, array.array)
PLAIN = (type(None), bool, int, float, complex, str, bytes, type(Ellipsis), slice, range)


class Names(NamedTuple):
    """What code names."""

    of_globals: FrozenSet[str]
    attributes: FrozenSet[str]
    modules: FrozenSet[str]  # that it imports


@functools.lru_cache(maxsize=4096)
def names_in(code: types.CodeType) -> Names:
    """Of the code and of the functions inside it. A text that could be an attribute counts, for getattr()."""
    of_globals: Set[str] = set()
    attributes: Set[str] = set()
    modules: Set[str] = set()
    for instruction in dis.get_instructions(code):
        if instruction.opname == "IMPORT_NAME":
            modules.add(str(instruction.argval))
        elif instruction.opname == "IMPORT_FROM":
            attributes.add(str(instruction.argval))
        elif instruction.opname.endswith(("_GLOBAL", "_NAME")):
            of_globals.add(str(instruction.argval))
        elif instruction.opname.endswith(("_ATTR", "_METHOD")):
            attributes.add(str(instruction.argval))
    if of_globals & {"getattr", "hasattr", "setattr", "vars"}:
        attributes |= {text for text in code.co_consts if isinstance(text, str) and text.isidentifier()}
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            inside = names_in(constant)
            of_globals |= inside.of_globals
            attributes |= inside.attributes
            modules |= inside.modules
    return Names(frozenset(of_globals), frozenset(attributes), frozenset(modules))


def _imported(function: types.FunctionType, names: FrozenSet[str]) -> Dict[str, Any]:
    """Modules that are there, by name: of `import a.b` both, of a relative import all that it may mean."""
    found: Dict[str, Any] = {}
    package = str(function.__globals__.get("__package__") or "")
    parents = [".".join(package.split(".")[:count]) for count in range(1, package.count(".") + 2)] if package else []
    for name in sorted(names):
        parts = name.split(".")
        absolute = [".".join(parts[:count]) for count in range(1, len(parts) + 1)]
        for each in (*absolute, *parents, *(f"{parent}.{part}" for parent in parents for part in absolute)):
            if each in sys.modules:
                found[each] = sys.modules[each]
    return found


class Binding(NamedTuple):
    """A name that the code reads, and where its value is."""

    holder: Any  # a dict, or a cell
    key: Optional[str]  # None for a cell
    value: Any

    def put(self, value: Any) -> None:
        if self.key is None:
            self.holder.cell_contents = value
        else:
            self.holder[self.key] = value


class Surroundings:
    """As they are when this is made. `found`: by path, in the order of the search, what tells one value from another.
    `arrays`: by path. `bindings`: the names of globals and of variables that functions close over."""

    def __init__(self, fn: Any, arguments: Iterable[Tuple[str, Any]] = ()):
        roots = [("", fn), *arguments]
        attributes: Set[str] = set()
        while True:  # names in functions that are found may lead to more
            self._attributes = frozenset(attributes)
            self.found: Dict[str, Any] = {}
            self.arrays: Dict[str, Any] = {}
            self.privates: List[Private] = []
            self.bindings: List[Binding] = []
            self._named: Set[str] = set()
            self._seen: Dict[int, str] = {}
            self._more: Set[int] = set()
            self._kept: List[Any] = []  # objects that are told apart by their identity
            for path, root in roots:
                self._look(path, root, 0)
            if self._named <= attributes:
                return
            attributes |= self._named

    @property
    def key(self) -> Tuple[Any, ...]:
        return tuple(self.found.items())

    def difference_to(self, later: "Surroundings") -> Optional[str]:
        """The first name with another value, for people; None if all are the same."""
        for path, value in later.found.items():
            if path not in self.found:
                return f"\"{path}\" is new"
            if self.found[path] != value:
                return f"\"{path}\" was {_shown(self.found[path])} and is {_shown(value)}"
        return next((f"\"{path}\" is gone" for path in self.found if path not in later.found), None)

    # ---- the search ----

    def _look(self, path: str, value: Any, depth: int) -> None:
        if isinstance(value, PLAIN):
            self.found[path] = token_of(value)
            self._look_at_more(path, value, depth)
        elif isinstance(value, cupy.ndarray):
            self.found[path] = layout_of(value)
            self.arrays[path] = value
            self._look_at_more(path, value, depth)
        elif isinstance(value, _CONTENTS):
            self.found[path] = type(value).__name__, hashlib.blake2b(bytes(value), digest_size=16).hexdigest()
        elif isinstance(value, random.Random):
            self.found[path] = type(value).__name__, hash(value.getstate())
        elif isinstance(value, contextvars.ContextVar):
            self._look(f"{path}.get()", value.get(None), depth)
        elif isinstance(value, Private):
            self.found[path] = layout_of(value.unguarded)
            self.privates.append(value)
        elif isinstance(value, enum.Enum):
            self._by_identity(path, value)
        elif _is_of_numpy(value):
            self._look_at_numpy(path, value)
        elif id(value) in self._seen:
            self.found[f"{path}, the object"] = ("same", self._seen[id(value)])
        elif depth >= _DEPTH:
            raise UnsupportedError(f"\"{path}\", which the step may read, lies deeper than {_DEPTH} names; pass what "
                                   "the step reads as arguments")
        else:
            self._seen[id(value)] = path
            self._kept.append(value)  # or another object could get its identity in this search
            self._look_inside(path, value, depth + 1)

    def _look_at_numpy(self, path: str, value: Any) -> None:
        if hasattr(value, "get_state"):  # a RandomState
            self.found[path] = token_of(value.get_state())
            return
        if not hasattr(value, "tobytes"):  # a dtype, or a generator of random numbers
            self.found[path] = token_of(value if not hasattr(value, "bit_generator") else value.bit_generator.state)
            return
        if value.nbytes > MOST_BYTES:
            raise UnsupportedError(f"\"{path}\", which the step may read, is an array of NumPy with {value.nbytes} "
                                   "bytes, too many to compare before each call; make it an array of CuPy")
        self.found[path] = (type(value).__name__, str(value.dtype), tuple(value.shape),
                            hashlib.blake2b(value.tobytes(), digest_size=16).hexdigest()
                            if value.shape else repr(value))

    def _look_inside(self, path: str, value: Any, depth: int) -> None:
        if isinstance(value, types.MethodType):
            self._look(f"{path}.__self__" if path else "self", value.__self__, depth)
            self._look(path, value.__func__, depth)
        elif isinstance(value, types.FunctionType):
            self._look_at_function(path, value, depth)
        elif isinstance(value, functools.partial):
            for name, part in (("func", value.func), ("args", value.args), ("keywords", value.keywords)):
                self._look(f"{path}.{name}", part, depth)
        elif isinstance(value, _CONTAINERS):
            self._look_at_container(path, value, depth)
            self._look_at_more(path, value, depth)
        elif isinstance(value, types.ModuleType):
            if is_programs(getattr(value, "__file__", None) or "<built-in>"):
                self._look_at_attributes(path, vars(value), depth)
            else:
                self._by_identity(path, value)
        elif isinstance(value, type):
            self._by_identity(path, value)
            if _is_of_program(value):
                self._look_at_attributes(path, vars(value), depth)
                for base in value.__bases__:
                    self._look(f"{path}.{base.__name__}", base, depth)
        elif isinstance(value, collections.abc.Iterator):
            raise UnsupportedError(f"\"{path}\", which the step may read, is an iterator, whose place no replay would "
                                   "change; read it outside and pass the value as an argument")
        else:
            self._look_at_object(path, value, depth)

    def _look_at_function(self, path: str, function: types.FunctionType, depth: int) -> None:
        wrapped = getattr(function, "__wrapped__", None)
        code = function.__code__
        self._by_identity(path or "the code", code)
        if path and not is_programs(code.co_filename):  # the step itself is the program's, wherever it lies
            if wrapped is not None:
                self._look(path, wrapped, depth)
            return
        prefix = f"{path}." if path else ""
        names = names_in(code)
        self._named |= names.attributes
        for name, cell in zip(code.co_freevars, function.__closure__ or ()):
            try:
                value = cell.cell_contents
            except ValueError:
                continue  # not bound yet
            self.bindings.append(Binding(cell, None, value))
            self._look(prefix + name, value, depth)
        for name in sorted(names.of_globals):
            if name in function.__globals__:
                value = function.__globals__[name]
                self.bindings.append(Binding(function.__globals__, name, value))
                self._look(prefix + name, value, depth)
        for name, module in _imported(function, names.modules).items():
            self._look(f"{prefix}{name}", module, depth)
        for index, value in enumerate(function.__defaults__ or ()):
            self._look(f"{prefix}default {index}", value, depth)
        for name, value in (function.__kwdefaults__ or {}).items():
            self._look(prefix + name, value, depth)
        self._look_at_attributes(path or function.__name__, vars(function), depth)

    def _look_at_container(self, path: str, value: Any, depth: int) -> None:
        items: List[Tuple[Any, Any]]
        if isinstance(value, collections.abc.Mapping):
            items = list(value.items())
        elif isinstance(value, (set, frozenset)):
            items = list(enumerate(sorted(value, key=repr)))
        else:
            items = list(enumerate(value))
        self.found[f"{path}, its length"] = (type(value).__name__, len(items))
        if len(items) > MOST_ELEMENTS:
            if not all(isinstance(part, PLAIN) for item in items for part in item):
                raise UnsupportedError(f"\"{path}\", which the step may read, has more than {MOST_ELEMENTS} elements, "
                                       "too many to compare before each call; pass what the step needs as an argument")
            self.found[path] = (type(value).__name__, hashlib.blake2b(repr(items).encode(), digest_size=16).hexdigest())
            return
        for count, (key, item) in enumerate(items):
            if isinstance(key, (str, int)):
                self._look(f"{path}[{key!r}]", item, depth)
            else:
                self._look(f"key {count} of {path}", key, depth)
                self._look(f"{path}[{count}]", item, depth)

    def _look_at_object(self, path: str, value: Any, depth: int) -> None:
        wrapped = getattr(value, "__wrapped__", None)
        if callable(wrapped):  # a decorated function, among them a graphed one
            self._look(path, wrapped, depth)
            self._look_at_more(path, value, depth)
            return
        kind = type(value)
        own: Dict[str, Any] = dict(getattr(value, "__dict__", None) or {})
        for cls in kind.__mro__:
            slots = cls.__dict__.get("__slots__", ())
            for slot in (slots,) if isinstance(slots, str) else slots:
                if hasattr(value, slot):
                    own.setdefault(slot, getattr(value, slot))
        is_of_program = _is_of_program(kind)
        if is_of_program and own:
            self._by_identity(f"{path}, its class", kind)
        else:
            self._by_identity(path, value)
        if not is_of_program:  # such as a sparse matrix
            for name, part in own.items():
                if isinstance(part, cupy.ndarray) and name not in self._attributes:
                    self._look(f"{path}.{name}", part, depth)
        self._look_at_attributes(path, own, depth)
        if is_of_program:
            self._look(f"{path}.__class__", kind, depth)

    def _look_at_more(self, path: str, value: Any, depth: int) -> None:
        """At the attributes and methods that a class of the program adds to another."""
        if _is_of_program(type(value)) and id(value) not in self._more:
            self._more.add(id(value))
            self._kept.append(value)
            self._look_at_attributes(path, getattr(value, "__dict__", {}), depth)
            self._look(f"{path}.__class__", type(value), depth)

    def _look_at_attributes(self, path: str, attributes: Any, depth: int) -> None:
        for name, value in list(attributes.items()):
            if name not in self._attributes and not (name.startswith("__") and isinstance(value, types.FunctionType)):
                continue
            if isinstance(value, (staticmethod, classmethod)):
                value = value.__func__
            if isinstance(value, (property, functools.cached_property)):
                value = value.fget if isinstance(value, property) else value.func
            self._look(f"{path}.{name}", value, depth)

    def _by_identity(self, path: str, value: Any) -> None:
        self.found[path] = ("identity", id(value))
        self._kept.append(value)


def _is_of_program(kind: type) -> bool:
    module = sys.modules.get(kind.__module__)
    return kind.__module__ == "__main__" or is_programs(getattr(module, "__file__", None) or "<built-in>")


def _is_of_numpy(value: Any) -> bool:
    return type(value).__module__.partition(".")[0] == "numpy" and any(
        hasattr(value, name) for name in ("tobytes", "bit_generator", "get_state", "newbyteorder"))


def token_of(value: Any) -> Tuple[Any, ...]:
    """Tells a plain value from others: 1, 1.0 and True differ, as do the two zeros; a NaN is equal to itself."""
    return type(value).__name__, repr(value)


def layout_of(array: Any) -> Tuple[Any, ...]:
    return "array", array.data.ptr, tuple(array.shape), tuple(array.strides), str(array.dtype)


def _shown(token: Any) -> str:
    if token[0] == "identity":
        return "another object"
    if token[0] == "array":
        return f"an array of {token[2]} {token[4]} at {token[1]:#x}"
    return str(token[-1])
