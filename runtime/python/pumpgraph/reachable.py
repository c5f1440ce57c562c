# SPDX-License-Identifier: Apache-2.0
"""What a step function works on, found from the function: modules, optimizers, tensors, generators of random numbers,
and the places that hold them.

Searched are the variables it closes over, the globals that it and the functions inside it name, its default arguments,
the object it is bound to, what functools.partial gave it, and the same of the functions found there; of ordinary
objects and of modules found so, and of the modules inside, their attributes, two objects deep; lists, tuples, sets,
deques and dicts of at most 4096 elements; hooks of modules, parameters, optimizers and autograd nodes, as functions.
Of classes and Python modules of the program only what the code names. Of PyTorch's own objects, those that are wanted
aside, attributes but not what is in them.
"""

from __future__ import annotations

import collections
import dis
import functools
import os
import random
import sys
import types
from typing import Any, Callable, Dict, FrozenSet, Iterable, Iterator, List, Mapping, NamedTuple, Set, Tuple

import torch

from . import hooks
from .errors import StaleStepError

OBJECTS_DEEP = 2
_FUNCTIONS_DEEP = 4
LARGEST_CONTAINER = 4096
_FOREIGN = ("torch", "numpy", "builtins", "pumpgraph")
# Objects of PyTorch's whose numbers change while a step runs and do not matter to it.
_OBSERVERS = ("torch.profiler", "torch.autograd.profiler", "torch.utils.tensorboard", "torch._dynamo",
              "torch._inductor", "torch.fx", "torch.jit", "torch.distributed")
# What other threads may change at any time.
_CONCURRENT = ("threading", "queue", "multiprocessing", "concurrent", "asyncio", "logging", "_thread", "weakref")
_LIBRARIES = tuple(os.sep + folder + os.sep for folder in ("site-packages", "dist-packages"))
_STANDARD_LIBRARY = os.path.dirname(os.path.abspath(os.__file__)) + os.sep
# Attributes of objects that run a loop, by class: what they hold is the loop's and not the step's.
_LEFT_OUT: Dict[type, FrozenSet[str]] = {}


def leave_out(kind: type, names: Iterable[str]) -> None:
    """No search looks at these attributes of a class's objects from now on."""
    _LEFT_OUT[kind] = frozenset(names)


def _internal_names(kind: type) -> Set[str]:
    """The attributes that PyTorch gives every object of a kind: their changes are noticed otherwise, or do not
    matter."""
    try:
        return set(vars(kind()))
    except Exception:  # of a stand-in
        return set()


OF_MODULES = _internal_names(torch.nn.Module) | {"_compiled_call_impl", "training"} | hooks.OF_MODULES.keys()
OF_OPTIMIZERS = {
    "defaults", "state", "param_groups", "grad_scale", "found_inf", "step", "_step_count", "_opt_called",
    "_hook_for_profile", "_patch_step_function", "_zero_grad_profile_name", "_warned_capturable_if_run_uncaptured",
    "_optimizer_step_pre_hooks", "_optimizer_step_post_hooks", "_optimizer_state_dict_pre_hooks",
    "_optimizer_state_dict_post_hooks", "_optimizer_load_state_dict_pre_hooks", "_optimizer_load_state_dict_post_hooks",
    "_need_device_dtype_check_for_fused", "_cuda_graph_capture_health_check"}


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

    def check(self) -> None:
        if not self.is_as_found():
            raise StaleStepError(f"\"{self.name}\" is another object than when the step was captured, or gone")

    def is_there(self) -> bool:
        try:
            self.holder[self.key]
            return True
        except (LookupError, ValueError):
            return False

    @property
    def identity(self) -> Tuple[int, Any]:
        return identity_of(self.holder), self.key


class Holder(NamedTuple):
    """Something with places: `items` is all that was in it, `keys` what counts of it, with the hook that led there, if
    one did."""

    holder: Any
    items: Dict[Any, Any]
    keys: Dict[Any, str]
    name: str


class Cell:
    """A variable that a function closes over, as something with an index."""

    def __init__(self, cell: Any):
        self.thing = cell

    def __getitem__(self, _key: Any) -> Any:
        return self.thing.cell_contents

    def __setitem__(self, _key: Any, thing: Any) -> None:
        self.thing.cell_contents = thing


class Attributes:
    """The same for what has attributes and no dict to write into: objects with slots, and classes."""

    def __init__(self, thing: Any):
        self.thing = thing

    def __getitem__(self, key: str) -> Any:
        try:
            return getattr(self.thing, key)
        except AttributeError:
            raise KeyError(key) from None

    def __setitem__(self, key: str, thing: Any) -> None:
        setattr(self.thing, key, thing)

    def __delitem__(self, key: str) -> None:
        delattr(self.thing, key)


def identity_of(holder: Any) -> int:
    return id(holder.thing if isinstance(holder, (Cell, Attributes)) else holder)


class Reachable:
    """What a search found, each thing once. `places`: every place on the way to it. `objects`, by name, are searched
    one object deeper."""

    def __init__(self, *roots: Any, objects: Mapping[str, Any] = types.MappingProxyType({})):
        self.modules: List[torch.nn.Module] = []
        self.optimizers: List[torch.optim.Optimizer] = []
        self.tensors: List[Tuple[str, torch.Tensor]] = []
        self.generators: List[Tuple[str, Any]] = []  # of random numbers
        self.functions: List[Callable[..., Any]] = []
        self.methods: List[Tuple[types.FunctionType, Any]] = []  # of the program's own, with their objects
        self.places: List[Place] = []
        self.holders: Dict[int, Holder] = {}  # all that was searched, and what was in it
        self._through = ""
        self._seen: Dict[int, bool] = {}  # whether a thing led to anything
        self._alive: List[Any] = []  # an id is somebody else's once its object is gone
        with torch._C.DisableTorchFunctionSubclass():  # attributes of parameters are read much faster then
            for name, thing in objects.items():  # first: a model may hold its cache, too
                self._visit(thing, name, OBJECTS_DEEP + 1, _FUNCTIONS_DEEP)
            for root in roots:
                self._visit(root, "", OBJECTS_DEEP, _FUNCTIONS_DEEP)
            self._visit_hooks(hooks.of_everything())
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
            self._visit_hooks(hooks.of_tensor(thing, name))
            return True
        if isinstance(thing, torch.optim.Optimizer):
            self.optimizers.append(thing)
            self._visit_optimizer(thing, name, objects - 1, functions)
            return True
        if isinstance(thing, torch.nn.Module):
            self.modules.append(thing)
            for path, module in thing.named_modules():
                self._visit_module(module, ".".join(filter(None, (name, path))), objects - 1, functions)
            return True
        if is_generator(thing):
            self.generators.append((name, thing))
            return getattr(getattr(thing, "device", None), "type", "") == "cuda"  # the captured step has this very one
        if isinstance(thing, functools.partial):
            self._visit(thing.func, name, objects, functions)
            self._visit(list(thing.args), name, objects, functions)
            self._visit(thing.keywords, name, objects, functions)
            return True
        if isinstance(thing, types.MethodType):
            bound = self._visit(thing.__self__, name or "self", objects, functions)
            if isinstance(thing.__func__, types.FunctionType) and is_programs_own(thing.__func__):
                self.methods.append((thing.__func__, thing.__self__))
            return self._visit(thing.__func__, name, objects, functions) or bound
        if isinstance(thing, types.FunctionType):
            return functions > 0 and self._visit_function(thing, objects, functions - 1)
        if isinstance(thing, dict):
            return self._visit_all(thing, thing, name, objects, functions)
        if isinstance(thing, (list, tuple, collections.deque)):
            return self._visit_all(thing, dict(enumerate(thing)), name, objects, functions)
        if isinstance(thing, (set, frozenset)):
            return self._visit(list(thing), name, objects, functions)
        return objects > 0 and self._visit_object(thing, name, objects - 1, functions)

    def _visit_all(self, holder: Any, items: Dict[Any, Any], name: str, objects: int, functions: int) -> bool:
        if len(items) > LARGEST_CONTAINER:
            return False
        self._note(holder, items, name)
        found = False
        for key, item in list(items.items()):
            item_name = f"{name}.{key}" if name else str(key)
            if self._visit(item, item_name, objects, functions):
                self.places.append(Place(holder, key, item, item_name))
                found = True
        return found

    def _note(self, holder: Any, items: Dict[Any, Any], name: str) -> None:
        identity = identity_of(holder)
        known = self.holders.get(identity)
        if known is None:
            content = dict(holder if isinstance(holder, dict) else items)
            known = self.holders[identity] = Holder(holder, content, {}, name)
        for key in items:  # globals may have been found that another function names
            known.keys.setdefault(key, self._through)

    def _visit_module(self, module: torch.nn.Module, name: str, objects: int, functions: int) -> None:
        # DDP's own attributes change in every call; data_parallel.py looks at those that matter.
        of_pytorch = type(module) is torch.nn.parallel.DistributedDataParallel
        own = {key: value for key, value in vars(module).items() if key not in OF_MODULES and not of_pytorch}
        self._visit_all(vars(module), _searched(module, own), name, objects, functions)
        self._visit_class(type(module), name, objects, functions)
        self._visit_hooks(hooks.of_module(module, name or type(module).__name__))
        for key, parameter in list(getattr(module, "_parameters", {}).items()):
            if parameter is not None:
                self._visit_hooks(hooks.of_tensor(parameter, f"{name}.{key}" if name else key))
        forward = getattr(type(module), "forward", None)
        if isinstance(forward, types.FunctionType) and is_programs_own(forward):
            self.methods.append((forward, module))
            self._visit(forward, "", objects, functions)

    def _visit_optimizer(self, optimizer: torch.optim.Optimizer, name: str, objects: int, functions: int) -> None:
        own = {key: value for key, value in vars(optimizer).items() if key not in OF_OPTIMIZERS}
        self._visit_all(vars(optimizer), own, name, objects, functions)
        self._visit_hooks(hooks.of_optimizer(optimizer))
        step = getattr(type(optimizer), "step", None)
        step = getattr(step, "__wrapped__", step)  # PyTorch wraps it in a profiler's function
        if isinstance(step, types.FunctionType) and is_programs_own(step):
            self.methods.append((step, optimizer))
            self._visit(step, "", objects, functions)

    def _visit_hooks(self, found: Iterable[Tuple[Any, str]]) -> None:
        for hook, what in found:
            before, self._through = self._through, what
            if isinstance(hook, types.FunctionType) and _is_foreign(hook.__module__) \
                    and not hook.__module__.startswith("pumpgraph"):
                for cell in hook.__closure__ or ():  # around a function of the program
                    self._visit(_content_of(cell), "", OBJECTS_DEEP, _FUNCTIONS_DEEP)
            else:
                self._visit(hook, "", OBJECTS_DEEP, _FUNCTIONS_DEEP)
            self._through = before

    def _visit_object(self, thing: Any, name: str, objects: int, functions: int) -> bool:
        wrapped = getattr(thing, "__wrapped__", None)  # a decorated function, a graphed one too
        if isinstance(wrapped, (types.FunctionType, types.MethodType)):
            return self._visit(wrapped, name, objects + 1, functions)
        kind = type(thing)
        module = kind.__module__ if isinstance(kind.__module__, str) else ""
        if _is_concurrent(module):
            return False
        own = getattr(thing, "__dict__", None)
        if _is_foreign(module):
            if module.startswith("torch.") and isinstance(own, dict) and not module.startswith(_OBSERVERS):
                self._note(own, own, name)  # such as a scheduler's
            return False
        call = getattr(kind, "__call__", None)
        found = isinstance(call, types.FunctionType) and self._visit(call, name, objects, functions)
        if isinstance(call, types.FunctionType) and is_programs_own(call):
            self.methods.append((call, thing))
        slots = {key: getattr(thing, key) for key in slots_of(kind) if hasattr(thing, key)}
        if slots:
            found = self._visit_all(Attributes(thing), slots, name, objects, functions) or found
        if isinstance(own, dict):
            found = self._visit_all(own, _searched(thing, own), name, objects, functions) or found
        return self._visit_class(kind, name, objects, functions) or found

    def _visit_class(self, kind: type, name: str, objects: int, functions: int) -> bool:
        """What the program's own classes hold beside functions."""
        found = False
        for base in kind.__mro__:
            if id(base) in self._seen or not is_written_by_the_program(base):
                continue
            self._seen[id(base)] = False
            held = {key: value for key, value in vars(base).items() if not key.startswith("__")
                    and not callable(value) and not hasattr(value, "__get__")}
            if held:
                found = self._visit_all(Attributes(base), held, base.__name__, objects, functions) or found
        return found

    def _visit_function(self, function: types.FunctionType, objects: int, functions: int) -> bool:
        if _is_foreign(function.__module__):
            original = getattr(function, "_torchdynamo_orig_callable", None)  # what torch.compile wrapped
            return original is not None and self._visit(original, "", objects, functions)
        self.functions.append(function)
        found = False
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or ()):
            holder = Cell(cell)
            try:
                content = holder[None]
            except ValueError:  # not assigned yet
                continue
            if id(cell) not in self.holders:
                self.holders[id(cell)] = Holder(holder, {None: content}, {None: self._through}, name)
            if self._visit(content, name, objects, functions):
                self.places.append(Place(holder, None, content, name))
                found = True
        named = {name: function.__globals__[name] for name in _global_names(function.__code__)
                 if name in function.__globals__}
        found = self._visit_all(function.__globals__, named, "", objects, functions) or found
        for name, thing in named.items():
            if isinstance(thing, type):
                found = self._visit_class(thing, name, objects, functions) or found
            elif isinstance(thing, types.ModuleType) and is_written_by_the_program(thing):
                inside = {key: vars(thing)[key] for key in _all_names(function.__code__) if key in vars(thing)}
                found = self._visit_all(vars(thing), inside, name, objects, functions) or found
        for defaults in (function.__defaults__, function.__kwdefaults__):
            found = self._visit(defaults, f"default argument of {function.__name__}", objects, functions) or found
        wrapped = getattr(function, "__wrapped__", None)
        return (wrapped is not None and self._visit(wrapped, "", objects, functions)) or found


def is_generator(thing: Any) -> bool:
    """Whether random numbers are drawn from it."""
    numpy = sys.modules.get("numpy")
    drawn = getattr(numpy, "random", None)
    kinds = (random.Random, getattr(torch, "Generator", random.Random), getattr(drawn, "Generator", random.Random),
             getattr(drawn, "RandomState", random.Random))
    return isinstance(thing, kinds)


def _is_foreign(module: Any) -> bool:
    return isinstance(module, str) and module.split(".")[0] in _FOREIGN


def _is_concurrent(module: Any) -> bool:
    return isinstance(module, str) and module.split(".")[0] in _CONCURRENT


def is_opaque(kind: type) -> bool:
    """Whether nobody looks into objects of this class."""
    return _is_foreign(kind.__module__) or _is_concurrent(kind.__module__)


def left_out_of(thing: Any) -> FrozenSet[str]:
    """The attributes at which no search looks."""
    return frozenset().union(*(names for kind, names in _LEFT_OUT.items() if isinstance(thing, kind)))


def _searched(thing: Any, own: Dict[str, Any]) -> Dict[str, Any]:
    left = left_out_of(thing)
    return {key: value for key, value in own.items() if key not in left} if left else own


def is_programs_own(function: types.FunctionType) -> bool:
    """Neither a library's nor Python's."""
    return is_programs_path(function.__code__.co_filename, function.__module__)


def is_programs_path(path: str, module: Any) -> bool:
    """The same of code by its file and its module."""
    path = os.path.abspath(path)
    return not _is_foreign(module) and not path.startswith(_STANDARD_LIBRARY) \
        and not any(folder in path for folder in _LIBRARIES)


def is_written_by_the_program(thing: Any) -> bool:
    """The same of a class or a module."""
    name = thing.__name__ if isinstance(thing, types.ModuleType) else thing.__module__
    module = sys.modules.get(name) if isinstance(name, str) else None
    path = getattr(module, "__file__", None)
    if module is None or _is_foreign(name) or name in sys.builtin_module_names:
        return False
    path = os.path.abspath(path) if path else ""
    return not path.startswith(_STANDARD_LIBRARY) and not any(folder in path for folder in _LIBRARIES)


def slots_of(kind: type) -> Iterator[str]:
    for base in kind.__mro__:
        slots = vars(base).get("__slots__", ())
        names = (slots,) if isinstance(slots, str) else slots
        yield from (name for name in names if name not in ("__dict__", "__weakref__"))


def _content_of(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return None


def _global_names(code: types.CodeType) -> Iterator[str]:
    """Globals that the code and the functions defined inside it name."""
    for instruction in dis.get_instructions(code):
        if instruction.opname in ("LOAD_GLOBAL", "LOAD_NAME", "STORE_GLOBAL"):
            yield instruction.argval
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _global_names(constant)


def _all_names(code: types.CodeType) -> Set[str]:
    """Globals and attributes that they name."""
    names = set(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            names |= _all_names(constant)
    return names
