# SPDX-License-Identifier: Apache-2.0
"""What a step function works on, found from the function: modules, optimizers, tensors, and the places that hold them.

Searched are the variables it closes over, the globals that it and the functions inside it name, its default arguments,
the object it is bound to, what functools.partial gave it, and the same of the functions found there; of ordinary
objects and of modules found so, and of the modules inside, their attributes, two objects deep; lists, tuples, sets and
dicts of at most 4096 elements.
Not searched are Python modules, classes, and objects and functions of PyTorch, other than those wanted.
"""

from __future__ import annotations

import dis
import functools
import types
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Tuple

import torch

_OBJECTS_DEEP = 2
_FUNCTIONS_DEEP = 4
_LARGEST_CONTAINER = 4096
_FOREIGN = ("torch", "numpy", "builtins", "pumpgraph")


class Place(NamedTuple):
    """Where something was found: `holder[key]` is it, or was."""

    holder: Any
    key: Any
    thing: Any
    name: str

    def is_as_found(self) -> bool:
        try:
            return self.holder[self.key] is self.thing
        except (LookupError, ValueError):  # an empty cell is a ValueError
            return False

    def is_there(self) -> bool:
        try:
            self.holder[self.key]
            return True
        except (LookupError, ValueError):
            return False

    @property
    def identity(self) -> Tuple[int, Any]:
        return id(self.holder.cell if isinstance(self.holder, _Cell) else self.holder), self.key


class _Cell:
    """A variable that a function closes over, as something with an index."""

    def __init__(self, cell: Any):
        self.cell = cell

    def __getitem__(self, _key: Any) -> Any:
        return self.cell.cell_contents

    def __setitem__(self, _key: Any, thing: Any) -> None:
        self.cell.cell_contents = thing


class Reachable:
    """What a search found, each thing once. `places`: every place on the way to it."""

    def __init__(self, *roots: Any):
        self.modules: List[torch.nn.Module] = []
        self.optimizers: List[torch.optim.Optimizer] = []
        self.tensors: List[Tuple[str, torch.Tensor]] = []
        self.functions: List[Callable[..., Any]] = []
        self.places: List[Place] = []
        self.holders: Dict[int, Tuple[Any, Dict[Any, Any]]] = {}  # all that was searched, and what was in it
        self._seen: Dict[int, bool] = {}  # whether a thing led to anything
        self._alive: List[Any] = []  # an id is somebody else's once its object is gone
        for root in roots:
            self._visit(root, "", _OBJECTS_DEEP, _FUNCTIONS_DEEP)
        self._alive.clear()

    def _visit(self, thing: Any, name: str, objects: int, functions: int) -> bool:
        """Whether `thing` is wanted or leads to something that is."""
        if isinstance(thing, (type(None), bool, int, float, str, bytes, type, types.ModuleType)):
            return False
        if id(thing) in self._seen:
            return self._seen[id(thing)]
        self._seen[id(thing)] = False  # while it is being searched: a cycle leads nowhere new
        self._alive.append(thing)
        self._seen[id(thing)] = found = self._search(thing, name, objects, functions)
        return found

    def _search(self, thing: Any, name: str, objects: int, functions: int) -> bool:
        if isinstance(thing, torch.Tensor):
            self.tensors.append((name, thing))
            return True
        if isinstance(thing, torch.optim.Optimizer):
            self.optimizers.append(thing)
            return True
        if isinstance(thing, torch.nn.Module):
            self.modules.append(thing)
            for path, module in thing.named_modules():
                own = {key: value for key, value in vars(module).items() if not key.startswith("_")}
                self._visit_all(vars(module), own, ".".join(filter(None, (name, path))), objects - 1, functions)
            return True
        if isinstance(thing, functools.partial):
            self._visit(thing.func, name, objects, functions)
            self._visit(list(thing.args), name, objects, functions)
            self._visit(thing.keywords, name, objects, functions)
            return True
        if isinstance(thing, types.MethodType):
            bound = self._visit(thing.__self__, name or "self", objects, functions)
            return self._visit(thing.__func__, name, objects, functions) or bound
        if isinstance(thing, types.FunctionType):
            return functions > 0 and self._visit_function(thing, objects, functions - 1)
        if isinstance(thing, dict):
            return self._visit_all(thing, thing, name, objects, functions)
        if isinstance(thing, (list, tuple)):
            return self._visit_all(thing, dict(enumerate(thing)), name, objects, functions)
        if isinstance(thing, (set, frozenset)):
            return self._visit(list(thing), name, objects, functions)
        return objects > 0 and self._visit_object(thing, name, objects - 1, functions)

    def _visit_all(self, holder: Any, items: Dict[Any, Any], name: str, objects: int, functions: int) -> bool:
        if len(items) > _LARGEST_CONTAINER:
            return False
        self.holders.setdefault(id(holder), (holder, dict(holder if isinstance(holder, dict) else items)))
        found = False
        for key, item in list(items.items()):
            item_name = f"{name}.{key}" if name else str(key)
            if self._visit(item, item_name, objects, functions):
                self.places.append(Place(holder, key, item, item_name))
                found = True
        return found

    def _visit_object(self, thing: Any, name: str, objects: int, functions: int) -> bool:
        wrapped = getattr(thing, "__wrapped__", None)  # a decorated function, a graphed one too
        if isinstance(wrapped, (types.FunctionType, types.MethodType)):
            return self._visit(wrapped, name, objects + 1, functions)
        if _is_foreign(type(thing).__module__) or not hasattr(thing, "__dict__"):
            return False
        call = getattr(type(thing), "__call__", None)
        found = isinstance(call, types.FunctionType) and self._visit(call, name, objects, functions)
        return self._visit_all(vars(thing), vars(thing), name, objects, functions) or found

    def _visit_function(self, function: types.FunctionType, objects: int, functions: int) -> bool:
        if _is_foreign(function.__module__):
            original = getattr(function, "_torchdynamo_orig_callable", None)  # what torch.compile wrapped
            return original is not None and self._visit(original, "", objects, functions)
        self.functions.append(function)
        found = False
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or ()):
            holder = _Cell(cell)
            try:
                content = holder[None]
            except ValueError:  # not assigned yet
                continue
            self.holders.setdefault(id(cell), (holder, {None: content}))
            if self._visit(content, name, objects, functions):
                self.places.append(Place(holder, None, content, name))
                found = True
        named = {name: function.__globals__[name] for name in _global_names(function.__code__)
                 if name in function.__globals__}
        found = self._visit_all(function.__globals__, named, "", objects, functions) or found
        for defaults in (function.__defaults__, function.__kwdefaults__):
            found = self._visit(defaults, "", objects, functions) or found
        wrapped = getattr(function, "__wrapped__", None)
        return (wrapped is not None and self._visit(wrapped, "", objects, functions)) or found


def _is_foreign(module: Any) -> bool:
    return isinstance(module, str) and module.split(".")[0] in _FOREIGN


def _global_names(code: types.CodeType) -> Iterator[str]:
    """Globals that the code and the functions defined inside it name."""
    for instruction in dis.get_instructions(code):
        if instruction.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
            yield instruction.argval
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _global_names(constant)
