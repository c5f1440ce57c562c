# SPDX-License-Identifier: Apache-2.0
"""What the integrations have in common, without any of the libraries."""

from __future__ import annotations

import contextlib
import sys
from typing import Any, Callable, Dict, Iterable, Iterator, List, NoReturn

import torch

from .. import torch_capture
from ..errors import UnsupportedError, invalid
from ..reachable import is_programs_own, is_programs_path


def install_once(who: str, budget: Any, options: Dict[str, Any], before: str) -> None:
    """install() where a budget is given; else there must be a session. `before`: what touches CUDA."""
    if budget is not None:
        if torch.cuda.is_initialized():
            raise invalid(f"CUDA is initialised already, so its allocator cannot be changed; make the {who} before "
                          f"{before}, or call pumpgraph.install() right after the imports and make it without a budget")
        torch_capture.install(budget, **options)
    elif options:
        raise invalid(f"{who}: {', '.join(options)} without a budget; options of install() need one")
    else:
        torch_capture.installed()


def refuse_all(who: str, obstacles: Iterable[str]) -> None:
    """Raises one error that names all of them."""
    found = list(obstacles)
    if found:
        raise UnsupportedError("\n  ".join([f"{who} cannot follow this training:", *found]))


def overridden(thing: Any, base: type, names: Iterable[str]) -> List[str]:
    """Which of these methods of `base` are others in an object, by its class or by assignment."""
    return [name for name in names
            if name in getattr(thing, "__dict__", {})
            or getattr(type(thing), name, None) is not getattr(base, name, None)]


def of_the_program(thing: Any, names: Iterable[str]) -> List[Any]:
    """The methods of these names whose code is the program's own: the search for what a step works on looks at
    them."""
    methods: Iterable[Any] = (getattr(thing, name, None) for name in names)
    return [method for method in methods
            if hasattr(getattr(method, "__func__", None), "__code__") and is_programs_own(method.__func__)]


class Patches:
    """Attributes that objects have for a while in the place of their own."""

    def __init__(self) -> None:
        self._undo: List[Callable[[], None]] = []

    def put(self, thing: Any, name: str, value: Any) -> None:
        """Past `__setattr__`: a module would take it for a change."""
        own = vars(thing)
        had = name in own
        before = own.get(name)

        def undo() -> None:
            if had:
                own[name] = before
            else:
                own.pop(name, None)

        own[name] = value
        self._undo.append(undo)

    def put_into_class(self, kind: type, name: str, value: Any) -> None:
        """Of a name that the class itself defines, or nothing above it."""
        had = name in vars(kind)
        before = vars(kind).get(name)
        setattr(kind, name, value)
        self._undo.append(lambda: setattr(kind, name, before) if had else delattr(kind, name))

    def undo(self) -> None:
        while self._undo:
            self._undo.pop()()


@contextlib.contextmanager
def patches() -> Iterator[Patches]:
    made = Patches()
    try:
        yield made
    finally:
        made.undo()


class Accumulation:
    """Which micro batches warm up. Those between the first and the last of an update add to gradients that the first
    has made, and a captured one keeps their addresses. So none of them may be captured before the first is: while that
    warms up, one of them does so too in each update, and the others just run."""

    def __init__(self, warmup: int):
        self._warmup = warmup
        self._begun = 0  # updates
        self._is_between = False  # the last call was

    def just_runs(self, begins: bool, updates: bool) -> bool:
        self._begun += begins
        was_between, self._is_between = self._is_between, not begins and not updates
        return was_between and self._is_between and self._begun <= self._warmup


# ---- what a step must not look at ------------------------------------------------------------------------------------

_LOOKS = """bool int index float complex eq ne lt le gt ge hash str format len iter contains getitem call round trunc
    floor ceil neg pos abs invert add radd sub rsub mul rmul truediv rtruediv floordiv rfloordiv mod rmod divmod rdivmod
    pow rpow lshift rlshift rshift rrshift and rand or ror xor rxor""".split()


class Unknown:
    """Stands for a number that differs from call to call: a step may be given it, and must not look at it."""

    def __init__(self, name: str, advice: str):
        vars(self).update(_name=name, _advice=advice)

    def __repr__(self) -> str:
        return f"<{vars(self)['_name']}, which no captured step knows>"

    def __getattr__(self, _attribute: str) -> Any:
        _refuse_look(self)


def _refuse_look(unknown: Unknown, *_operands: Any) -> NoReturn:
    own = vars(unknown)
    raise UnsupportedError(f"{_line_of_the_program()} looks at {own['_name']}, which differs from call to call, and a "
                           f"captured step would keep it; {own['_advice']}")


for _look in _LOOKS:
    setattr(Unknown, f"__{_look}__", _refuse_look)


def _line_of_the_program() -> str:
    frame: Any = sys._getframe(1)
    while frame is not None and not is_programs_path(frame.f_code.co_filename, frame.f_globals.get("__name__")):
        frame = frame.f_back
    return "the step" if frame is None else f"{frame.f_code.co_filename}:{frame.f_lineno}"


def hide(made: Patches, kind: type, names: Iterable[str], advice: str) -> None:
    """While `made` is in place, code of the program that reads these attributes of a class's objects is refused: they
    change between calls. The libraries read them as before."""
    for name in names:
        made.put_into_class(kind, name, property(_Hidden(kind, name, advice).read))


def for_libraries(name: str, advice: str, value: Any) -> Callable[[], Any]:
    """A function that gives this to code of libraries, and that code of the program may not call."""

    def read() -> Any:
        frame = sys._getframe(1)
        if is_programs_path(frame.f_code.co_filename, frame.f_globals.get("__name__")):
            _refuse_look(Unknown(name, advice))
        return value

    return read


class _Hidden:
    def __init__(self, kind: type, name: str, advice: str):
        self._name, self._advice = name, advice
        self._what = f"{kind.__name__}.{name}"
        self._before = next((vars(base)[name] for base in kind.__mro__ if name in vars(base)), None)

    def read(self, thing: Any) -> Any:
        frame = sys._getframe(1)
        if is_programs_path(frame.f_code.co_filename, frame.f_globals.get("__name__")):
            _refuse_look(Unknown(self._what, self._advice))
        if self._before is None:  # of the object, not of its class
            return vars(thing)[self._name]
        return self._before.__get__(thing, type(thing))
