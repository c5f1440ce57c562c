# SPDX-License-Identifier: Apache-2.0
"""What the host has that a step may change: numbers, texts, containers, tensors and arrays in host memory, iterators,
generators of random numbers, wherever the search for what the step works on comes by.

A replay runs no Python, so what a call of the step changes there would be that of the captured call for ever. It is
looked at before and after the last warm-up call, and before and after each of the two calls that are captured. What is
set up in an earlier call and stays as it is does not matter; what changes in one of these is refused by its name.
"""

from __future__ import annotations

import collections
import datetime
import itertools
import numbers
import operator
import sys
import types
import warnings
import zlib
from collections import abc
from typing import Any, Dict, Iterable, Iterator, List, NamedTuple, Set, Tuple

import torch

from . import generators, nested
from .errors import UnsupportedError
from .generators import comparable
from .reachable import OF_OPTIMIZERS, Holder, Reachable, is_generator

_LARGEST_READ = 64 << 20  # bytes of an array whose contents are compared
_LARGEST_KEPT = 1 << 20  # bytes that are put back; PyTorch counts writes to its own larger tensors
_MOST_ELEMENTS = 1000  # of a dict or a list that are put back
_COMPARED = (numbers.Number, str, bytes, bytearray, datetime.date, datetime.time, datetime.timedelta)
_ADVICE = {
    "a number": "change it outside of the step, pass it as an argument, or make it a tensor on the device and write "
                "into that",
    "a list": "let the step return what it would add, and add it outside",
    "an iterator": "take from it outside of the step, and pass what it gives as an argument",
    "a generator": "draw on the device, or outside of the step and pass what is drawn as an argument",
    "a seed": "seed outside of the step",
}


class _Read(NamedTuple):
    """What was found in a place. `kind`: what it is called; `value` is equal as long as it does not change."""

    kind: str
    value: Any
    copy: Any = None  # to put back


class _Entry(NamedTuple):
    name: str
    through: str
    thing: Any
    read: _Read


class _Sequence(NamedTuple):
    """The tensors in a list, by identity."""

    name: str
    through: str
    tensors: List[int]


class Change(NamedTuple):
    """What the step does to the state that is called `name`, in words."""

    name: str
    through: str
    what: str
    advice: str

    @classmethod
    def of(cls, entry: _Entry, what: str) -> "Change":
        return cls(entry.name, entry.through, what, _ADVICE.get(entry.read.kind, _ADVICE["a number"]))

    def __str__(self) -> str:
        through = f", reached through {self.through}," if self.through else ""
        return f"{self.name}{through} {self.what}, and a replay runs no Python; {self.advice}"


class HostState:
    """As it is when this is made."""

    def __init__(self, found: Reachable, optimizers: Iterable[torch.optim.Optimizer], device: torch.device):
        self._holders = [*found.holders.values(), *_of_modules(found.modules), *_of_optimizers(optimizers)]
        self._paths: Set[Any] = set()
        self._entries: Dict[Tuple[Any, Any], _Entry] = {}  # by path and key
        self._sequences: Dict[Any, _Sequence] = {}  # by path
        self._contents = [{key: _contents(item) for key, item in holder.items.items()} for holder in self._holders]
        for holder in self._holders:
            self._read(holder)
        self._generators = generators.of_the_host(found.generators)
        self._states = [generator.state() for generator in self._generators]
        self._seeds = dict(generators.seeds(found.generators, device)) \
            if not torch.cuda.is_current_stream_capturing() else {}

    def _read(self, holder: Holder) -> None:
        # Two variables of one name are two paths.
        path = next(path for path in ((holder.name, number) for number in itertools.count()) if path not in self._paths)
        self._paths.add(path)
        for key, through in holder.keys.items():
            if key in holder.items:
                thing = holder.items[key]
                self._entries[(path, key)] = _Entry(_name_of(holder, key), through, thing, _read(thing))
        if isinstance(holder.holder, (list, collections.deque)):
            tensors = [id(item) for item in holder.items.values() if isinstance(item, torch.Tensor)]
            self._sequences[path] = _Sequence(_name_of(holder, None), next(iter(holder.keys.values()), ""), tensors)

    def changes_to(self, after: "HostState") -> Iterator[Change]:
        """What a call of the step has done to it in between."""
        yield from self._draws(after)
        for path, before in self._sequences.items():
            if path in after._sequences:
                yield from _moved(before, after._sequences[path])
        for (path, key), entry in self._entries.items():
            now = after._entries.get((path, key))
            if now is not None:
                yield from _changed(entry, now)
            elif path in after._paths:
                yield Change.of(entry, f"is {entry.read.kind} that the step removes")
        for (path, key), entry in after._entries.items():
            # Where tensors are is looked at elsewhere.
            if (path, key) not in self._entries and path in self._paths and entry.read.kind != _TENSOR:
                yield Change.of(entry, f"is {entry.read.kind} that the step adds")

    def _draws(self, after: "HostState") -> Iterator[Change]:
        now = {generator.name: state for generator, state in zip(after._generators, after._states)}
        for generator, state in zip(self._generators, self._states):
            if generator.name in now and comparable(state) != comparable(now[generator.name]):
                yield Change(generator.name, "", "is drawn from, or seeded, in the step: these random numbers would be "
                             "the same in each replay", _ADVICE["a generator"])
        for name, seed in self._seeds.items():
            if after._seeds.get(name, seed) != seed:
                yield Change(name, "", "is seeded in the step: random numbers would be others", _ADVICE["a seed"])

    def put_back(self) -> None:
        """All is as it was, as far as it is held in places."""
        for holder, contents in zip(self._holders, self._contents):
            _put_back(holder, contents)
        with torch.no_grad():
            for entry in self._entries.values():
                _put_back_contents(entry)
        for generator, state in zip(self._generators, self._states):
            if comparable(generator.state()) != comparable(state):
                generator.put_back(state)


def refuse(step: str, changes: Iterable[Change]) -> None:
    for change in changes:
        raise UnsupportedError(f"{step}: {change}")


def plain_results(output: Any) -> List[Any]:
    """What a step returns beside tensors on the device, and those in pinned memory, which the device may fill."""
    found: List[Any] = []
    nested.replaced(output, found.append)
    reads = [_read(value) for value in found if not (isinstance(value, torch.Tensor) and value.is_pinned())]
    return [read.value for read in reads if read.kind in ("a number", "a text", "a tensor on the host", "an array")]


_TENSOR = "a tensor"
_CONTAINERS = ("a list", "a dict", "a set", "a tuple")


# ---- which state -----------------------------------------------------------------------------------------------------


def _of_modules(modules: Iterable[torch.nn.Module]) -> Iterator[Holder]:
    """Parameters and buffers in host memory."""
    for root in modules:
        for path, module in root.named_modules():
            for members in (getattr(module, "_parameters", {}), getattr(module, "_buffers", {})):
                held = {key: "" for key, tensor in members.items() if tensor is not None and not tensor.is_cuda}
                if held:
                    yield Holder(members, dict(members), held, f"{type(root).__name__}.{path}".rstrip("."))


def _of_optimizers(optimizers: Iterable[torch.optim.Optimizer]) -> Iterator[Holder]:
    for optimizer in optimizers:
        kind = type(optimizer).__name__
        for state in optimizer.state.values():
            if isinstance(state, dict):
                yield Holder(state, dict(state), dict.fromkeys(state, ""), f"state of {kind}")
        for index, group in enumerate(optimizer.param_groups):
            yield Holder(group, dict(group), {key: "" for key in group if key != "params"},
                         f"param group {index} of {kind}")
        own = vars(optimizer)
        yield Holder(own, dict(own), {key: "" for key in own if key not in OF_OPTIMIZERS}, kind)


def _name_of(holder: Holder, key: Any) -> str:
    where = holder.name
    if where.startswith("state of "):
        return f"state \"{key}\" of {where[len('state of '):]}"
    if where.startswith("param group "):
        return f"\"{key}\" of {where}"
    if key is None:
        return f"\"{where}\""
    return f"\"{where}.{key}\"" if where else f"\"{key}\""


# ---- what is read of it ----------------------------------------------------------------------------------------------


def _read(thing: Any) -> _Read:
    try:
        return _read_unguarded(thing)
    except Exception:  # a program's own equality, length or iteration; tensors without contents
        return _Read("an object", type(thing))


def _read_unguarded(thing: Any) -> _Read:
    if thing is None:
        return _Read("nothing", None)
    if isinstance(thing, torch.Tensor):
        return _read_tensor(thing)
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(thing, numpy.ndarray):
        content = zlib.crc32(numpy.ascontiguousarray(thing).view(numpy.uint8).data) if thing.nbytes <= _LARGEST_READ \
            and not thing.dtype.hasobject else id(thing)
        return _Read("an array", (thing.shape, str(thing.dtype), content),
                     thing.copy() if thing.nbytes <= _LARGEST_KEPT else None)
    if numpy is not None and isinstance(thing, numpy.generic):
        thing = thing.item()
    if isinstance(thing, (bool, numbers.Number)):
        return _Read("a number", (type(thing), thing if thing == thing else "not a number"))
    if isinstance(thing, str):
        return _Read("a text", thing)
    if isinstance(thing, (bytearray, memoryview)):
        return _Read("an array", bytes(thing), bytes(thing) if isinstance(thing, bytearray) else None)
    if isinstance(thing, _COMPARED):
        return _Read("a value", (type(thing), thing))
    if isinstance(thing, (list, collections.deque, tuple)):
        return _Read("a list" if not isinstance(thing, tuple) else "a tuple", len(thing))
    if isinstance(thing, (set, frozenset)):
        plain = frozenset(item for item in thing if isinstance(item, (bool, *_COMPARED)))
        return _Read("a set", (len(thing), plain), set(thing) if isinstance(thing, set) else None)
    if isinstance(thing, dict):
        return _Read("a dict", len(thing))
    if is_generator(thing):
        return _Read("a generator", None)
    if isinstance(thing, abc.Iterator):
        return _Read("an iterator", _position(thing))
    return _Read("an object", type(thing))


def _read_tensor(tensor: torch.Tensor) -> _Read:
    if tensor.device.type != "cpu":
        return _Read(_TENSOR, None)
    is_small = tensor.numel() * tensor.element_size() <= _LARGEST_KEPT
    if is_small:
        content: Any = str(tensor.tolist())
    else:
        content = tensor.data_ptr(), None if tensor.is_inference() else tensor._version
    return _Read("a tensor on the host", (tuple(tensor.shape), tensor.dtype, content),
                 tensor.detach().clone() if is_small else None)


def _position(iterator: Any) -> Any:
    """Where it stands, as far as it can be seen without taking from it."""
    if isinstance(iterator, types.GeneratorType):
        frame = iterator.gi_frame
        return frame and (frame.f_lasti, {name: repr(value) if isinstance(value, (bool, *_COMPARED)) else id(value)
                                          for name, value in frame.f_locals.items()})
    if isinstance(iterator, itertools.count):
        return repr(iterator)
    yielded = getattr(iterator, "_num_yielded", None)  # of PyTorch's loaders
    if yielded is not None:
        return yielded
    left = operator.length_hint(iterator, -1)
    if left >= 0:
        return left
    if type(iterator).__module__ not in ("builtins", "itertools") or not hasattr(iterator, "__reduce__"):
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it is gone from newer Pythons
        return _positions_in(iterator.__reduce__(), 4)


def _positions_in(value: Any, deep: int) -> Any:
    if isinstance(value, tuple) and deep:
        return tuple(_positions_in(item, deep - 1) for item in value)
    if isinstance(value, abc.Iterator) and deep:
        return _position(value)
    return value if isinstance(value, int) else None


# ---- what has changed ------------------------------------------------------------------------------------------------


def _changed(before: _Entry, after: _Entry) -> Iterator[Change]:
    if before.read[:2] == after.read[:2] or after.read.kind == _TENSOR:  # whose places are looked at elsewhere
        return
    kind, now = before.read.kind, after.read.kind
    if kind != now:
        yield Change.of(before, f"is {kind}, which the step makes {now}")
    elif kind in _CONTAINERS:
        size, size_now = (read.value[0] if kind == "a set" else read.value for read in (before.read, after.read))
        verb = "grows" if size_now > size else "shrinks" if size_now < size else "changes"
        yield Change(f"{kind[2:]} {before.name}", before.through, f"{verb} in the step", _ADVICE["a list"])
    else:
        what = "is advanced by the step" if kind == "an iterator" else f"is {kind} that the step changes"
        yield Change.of(before, what)


def _moved(before: _Sequence, after: _Sequence) -> Iterator[Change]:
    """A tensor of a list is elsewhere in it."""
    where = {tensor: index for index, tensor in enumerate(before.tensors)}
    if len(before.tensors) == len(after.tensors) and \
            any(where.get(tensor, index) != index for index, tensor in enumerate(after.tensors)):
        yield Change(f"list {before.name}", before.through, "has its tensors moved by the step", _ADVICE["a list"])


def _contents(thing: Any, depth: int = 4) -> Any:
    """What is in a dict or a list, and in those in it: to be filled in again. None for anything else."""
    if depth == 0 or not isinstance(thing, (dict, list)) or len(thing) > _MOST_ELEMENTS:
        return None
    elements = thing.items() if isinstance(thing, dict) else enumerate(thing)
    return [(key, value, _contents(value, depth - 1)) for key, value in elements]


def _fill(thing: Any, contents: Any) -> None:
    if contents is None:
        return
    thing.clear()
    for key, value, inner in contents:
        _fill(value, inner)
        if isinstance(thing, dict):
            thing[key] = value
        else:
            thing.append(value)


def _put_back(holder: Holder, contents: Dict[Any, Any]) -> None:
    owner, items = holder.holder, holder.items
    if isinstance(owner, (list, collections.deque)):
        if len(owner) != len(items) or not all(map(operator.is_, owner, items.values())):
            owner.clear()
            owner.extend(items.values())
        return
    if isinstance(owner, tuple):
        return
    for key in holder.keys:
        if key in items and not _holds(owner, key, items[key]):
            _fill(items[key], contents[key])  # before the step replaced it, it may have used it
            owner[key] = items[key]
    if isinstance(owner, dict) and "__builtins__" not in items:  # of a module only some are looked at
        for key in [key for key in owner if key not in items]:
            del owner[key]


def _holds(owner: Any, key: Any, thing: Any) -> bool:
    try:
        return owner[key] is thing
    except (LookupError, ValueError):
        return False


def _put_back_contents(entry: _Entry) -> None:
    thing, read = entry.thing, entry.read
    if read.copy is None or _read(thing)[:2] == read[:2]:
        return
    if isinstance(thing, torch.Tensor):
        thing.copy_(read.copy)
    elif isinstance(thing, set):
        thing.clear()
        thing.update(read.copy)
    else:
        thing[:] = read.copy
