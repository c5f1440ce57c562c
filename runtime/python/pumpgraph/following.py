# SPDX-License-Identifier: Apache-2.0
"""Which values a step reads by name, found by following the code of the program's own functions.

Each chain such as `self.settings["beta"]` (code_reads.py) leads to the place of its value (lookups.py). Where a
container is used as a whole, all that is in it counts. An object that is passed on has another name in the function
that gets it: of such an object those attributes count that any of the functions names.
"""

from __future__ import annotations

import functools
import types
from typing import Any, Callable, Dict, Iterable, List, NamedTuple, Set, Tuple

import torch

from .code_reads import WRITERS, Kind, Step, Use, reads_of
from .lookups import MISSING, UNKNOWN, Code, Spot, attributes_of, code_of, is_container, look_up, methods_of
from .reachable import (LARGEST_CONTAINER, Cell, is_generator, is_opaque, is_written_by_the_program, left_out_of,
                        slots_of)
from .values import Uses, content_of, is_plain, items_of, kept

# What a call of a class runs, or of an autograd function.
_MAKING = ("__init__", "__new__", "__post_init__", "forward", "backward", "setup_context")
# Special methods that nothing in a step calls of an object that it is given.
_LEFT_OUT = frozenset(("__init__", "__new__", "__del__", "__repr__", "__str__", "__hash__", "__reduce__", "__next__",
                       "__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__", "__getstate__", "__setstate__",
                       "__replace__", "__init_subclass__", "__class_getitem__", "__setattr__", "__delattr__",
                       "__setitem__", "__delitem__", "__getattribute__"))
# What an array says beside its elements.
_OF_SHAPE = frozenset(("shape", "dtype", "device", "ndim", "size", "dim", "numel", "is_cuda", "requires_grad"))
_FUNCTIONS = (types.FunctionType, types.MethodType, types.BuiltinFunctionType, functools.partial, staticmethod,
              classmethod)


class Read(NamedTuple):
    spot: Spot
    name: str
    verb: str


class Whole(NamedTuple):
    """A container that is read as a whole, and what was in it."""

    thing: Any
    name: str
    verb: str
    items: Dict[Any, Any]


class Content(NamedTuple):
    """An array, a tensor in host memory, or a container that is only counted. `now()` is equal as long as it does not
    change."""

    thing: Any
    name: str
    verb: str
    now: Callable[[], Any]
    before: Any


class Following:
    """`of_modules`: reads of attributes of modules, changes of which leave a mark. `uses`: what is read of things, by
    identity. `passed_on`: what the code gives to other code, and was not given itself."""

    def __init__(self, code: Iterable[Code]) -> None:
        self.reads: Dict[Tuple[int, Any], Read] = {}
        self.of_modules: Dict[Tuple[int, Any], Read] = {}
        self.wholes: Dict[int, Whole] = {}
        self.contents: Dict[int, Content] = {}
        self.uses: Dict[int, Uses] = {}
        self.passed_on: List[Tuple[str, Any]] = []
        self._waiting = list(code)
        self._seen: Set[Tuple[int, int, bool]] = set()
        self._names: Set[str] = set()  # of attributes, in all code
        self._whole: Set[str] = set()  # those of them that are used as a whole
        self._called: Set[str] = set()  # of methods
        self._passed: Dict[int, _Passed] = {}
        self._alive: List[Any] = []  # an id is somebody else's once its object is gone
        looked_at = -1
        while self._waiting or len(self._passed) > looked_at:
            while self._waiting:
                self._follow(self._waiting.pop())
            looked_at = len(self._passed)
            for each in list(self._passed.values()):
                self._look_at(each)
        self._alive.clear()
        self._passed.clear()

    def _follow(self, code: Code) -> None:
        identity = id(code.function), id(code.bound), bool(code.arguments)
        if identity in self._seen:
            return
        self._seen.add(identity)
        self._alive.append(code)
        known, inside = _variables(code), code.function.__globals__
        found = reads_of(code.function.__code__)
        self._names |= found.names
        self._whole |= found.whole
        self._called |= found.called
        for name, is_global, path, use in found.accesses:
            value = Spot(inside, name, inside) if is_global else known.get(name, UNKNOWN)
            is_given = not isinstance(value, Spot)
            if isinstance(value, Spot):
                spot = value
                value = spot.now()
                if value is MISSING and is_global:
                    continue  # one of Python's own
                self._note(spot, name, "reads")
            self._walk(value, name, path, use, is_given)
        if code.bound is not None and "__class__" in code.function.__code__.co_freevars:
            self._pass(code.bound, next(iter(code.function.__code__.co_varnames), ""))  # by super()

    def _follow_library(self, code: Code, name: str) -> None:
        """What a method such as get_last_lr() reads of its object."""
        for access in reads_of(code.function.__code__).accesses:
            if access.name == code.function.__code__.co_varnames[0] and access.path:
                self._walk(code.bound, name, access.path, access.use, True)

    def _walk(self, value: Any, name: str, path: Tuple[Step, ...], use: Use, is_given: bool) -> None:
        for step in path:
            if value is MISSING or value is UNKNOWN:
                return
            value = self._step(value, name, step, "reads")
            name += str(step)
            is_given = False
        self._use(value, name, use, is_given, "reads")

    def _step(self, owner: Any, name: str, step: Step, verb: str) -> Any:
        """The value there."""
        self._alive.append(owner)
        found = look_up(owner, step)
        uses = self._uses_of(owner)
        self._waiting += found.code
        if found.value is not UNKNOWN:
            uses.steps[step] = kept(found.value)
        if is_container(owner) and step.kind is not Kind.ELEMENT and not found.spots and callable(found.value):
            if step.key in WRITERS:
                uses.is_stored = True
            else:
                self._open(owner, name, verb)
            return UNKNOWN
        if found.value is UNKNOWN or content_of(owner) is not None:
            if not found.code and step.key not in _OF_SHAPE:
                self._use(owner, name, Use.WHOLE, True, verb)
        elif isinstance(owner, type):
            if not found.code and (callable(found.value) or isinstance(found.value, classmethod)):
                self._make(owner)  # such as apply() of an autograd function
        elif callable(found.value) and not found.code and _is_method(owner, step):
            uses.whole = True  # to a library's method
            if type(owner).__module__ == "torch.optim.lr_scheduler" and isinstance(found.value, types.FunctionType):
                self._follow_library(Code(found.value, owner), name)
        if isinstance(owner, types.ModuleType) and not found.spots:
            return found.value if isinstance(found.value, types.ModuleType) else UNKNOWN  # a library's
        for spot in found.spots:
            self._note(spot, f"{name}{step}", verb, owner)
        return UNKNOWN if found.code and found.value is not UNKNOWN and _is_method(owner, step) else found.value

    def _use(self, value: Any, name: str, use: Use, is_given: bool, verb: str) -> None:
        if value is MISSING or value is UNKNOWN or is_plain(value):
            return
        self._alive.append(value)
        content = content_of(value)
        uses = self._uses_of(value)
        if use is Use.STORED:
            uses.is_stored = True
        elif isinstance(value, _FUNCTIONS):
            uses.whole = True
            self._waiting += code_of(value)
            if isinstance(value, functools.partial):
                self._open(value.args, name, verb)
                self._open(value.keywords, name, verb)
        elif use in (Use.TESTED, Use.DROPPED):
            pass
        elif use is Use.COUNTED:
            self._waiting += methods_of(value, "__len__")
            if is_container(value):
                uses.is_counted = True
                size = functools.partial(len, value)
                self.contents.setdefault(id(value), Content(value, f"len({name})", verb, size, size()))
        elif content is not None:
            uses.whole = True
            self.contents.setdefault(id(value), Content(value, name, verb, content, content()))
        elif isinstance(value, type) and use is Use.CALLED:
            uses.whole = True
            self._make(value)
        elif use is Use.CALLED and not is_container(value):
            called = [*methods_of(value, "__call__"), *methods_of(value, "forward")]
            self._waiting += called
            uses.whole = uses.whole or not called
        else:
            if is_container(value):
                self._open(value, name, verb)
            else:
                uses.whole = True
                self._pass(value, name)
            if not is_given:
                self.passed_on.append((name, value))

    def _open(self, container: Any, name: str, verb: str) -> None:
        """All that is in it counts."""
        uses = self._uses_of(container)
        if uses.whole:
            return
        uses.whole = True
        items = items_of(container)
        uses.items = {key: kept(item) for key, item in items.items()}
        self._alive.append(container)
        if not isinstance(container, (tuple, frozenset)):
            self.wholes[id(container)] = Whole(container, name, verb, uses.items)
        if len(items) <= LARGEST_CONTAINER:
            for key, item in items.items():
                self._use(item, f"{name}[{key!r}]", Use.WHOLE, True, verb)

    def _make(self, kind: type) -> None:
        """An object of it is made."""
        self._pass(kind, kind.__name__)
        for name in _MAKING:
            self._waiting += methods_of(kind, name)

    def _pass(self, thing: Any, name: str) -> None:
        """To code that is not known."""
        kind = thing if isinstance(thing, type) else type(thing)
        if isinstance(thing, types.ModuleType):
            is_searched = is_written_by_the_program(thing)
        else:
            is_searched = isinstance(thing, torch.nn.Module) or not is_opaque(kind) and not is_generator(thing) \
                and not isinstance(thing, (torch.Tensor, torch.optim.Optimizer))
        if not is_searched:
            return
        if id(thing) not in self._passed:
            self._passed[id(thing)] = _Passed(thing, name)
            for base in filter(is_written_by_the_program, kind.__mro__ if kind is not thing else ()):
                for key in vars(base):
                    if key.startswith("__") and key not in _LEFT_OUT:
                        self._waiting += methods_of(thing, key)

    def _look_at(self, passed: "_Passed") -> None:
        """At the attributes of a thing that is passed on, as far as any code names them."""
        thing = passed.thing
        wanted = (self._names | self._called) - left_out_of(thing)
        for key in list(filter(wanted.__contains__, _names_of(thing))):
            how = Use.WHOLE if key in self._whole else Use.TESTED if key in self._names else Use.CALLED
            if (key, how) in passed.seen:
                continue
            passed.seen.add((key, how))
            self._waiting += methods_of(thing, key)
            if how is Use.CALLED and not callable(look_up(thing, Step(Kind.ATTRIBUTE, key)).value):
                continue
            value = self._step(thing, passed.name, Step(Kind.ATTRIBUTE, key), "may read")
            if how is not Use.TESTED or not is_container(value):
                self._use(value, f"{passed.name}.{key}", Use.WHOLE if how is Use.TESTED else how, True, "may read")

    def _uses_of(self, thing: Any) -> Uses:
        return self.uses.setdefault(id(thing), Uses())

    def _note(self, spot: Spot, name: str, verb: str, owner: Any = None) -> None:
        of_module = isinstance(owner, torch.nn.Module) and spot.holder is attributes_of(owner)
        (self.of_modules if of_module else self.reads).setdefault(spot.identity, Read(spot, name, verb))


class _Passed:
    def __init__(self, thing: Any, name: str):
        self.thing, self.name = thing, name
        self.seen: Set[Tuple[str, Use]] = set()


def _names_of(thing: Any) -> Set[str]:
    """Attributes that it has itself, or of classes that the program has written."""
    kind = thing if isinstance(thing, type) else type(thing)
    names = set(attributes_of(thing) or ()) | set(slots_of(kind))
    return names.union(*map(vars, filter(is_written_by_the_program, kind.__mro__)))


def _is_method(owner: Any, step: Step) -> bool:
    """Whether an attribute is a function of the object's class, which is followed with the object."""
    return step.kind is Kind.ATTRIBUTE and not isinstance(owner, (type, types.ModuleType)) \
        and step.key not in (attributes_of(owner) or {})


def _variables(code: Code) -> Dict[str, Any]:
    """Cells, as spots, and the objects that a call is given, by name."""
    function = code.function
    inside = function.__code__
    positional = inside.co_varnames[:inside.co_argcount]
    defaults = {**dict(zip(reversed(positional), reversed(function.__defaults__ or ()))),
                **(function.__kwdefaults__ or {})}
    cells = {**dict(zip(inside.co_freevars, function.__closure__ or ())),
             **{name: types.CellType(thing) for name, thing in defaults.items()}}
    known: Dict[str, Any] = {name: Spot(Cell(cell), None, cell) for name, cell in cells.items()}
    if code.bound is not None and positional:
        known[positional[0]] = code.bound
    parameters = (*positional, *inside.co_varnames[inside.co_argcount:][:inside.co_kwonlyargcount])
    known.update((name, thing) for name, thing in code.arguments.items() if name in parameters)
    return known
