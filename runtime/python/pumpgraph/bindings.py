# SPDX-License-Identifier: Apache-2.0
"""Attributes, variables and elements that a captured step puts tensors into.

A replay runs no Python and puts nothing anywhere. Where the step only leaves tensors for others to look at, their
places can be filled by hand after a replay. Where it looks itself at what the call before has left, every replay would
see what was there at the capture: that is refused. What the step looks at is what the nodes of the captured graph
touch.
"""

from __future__ import annotations

import re
import tempfile
from pathlib import Path
from typing import Any, Callable, Iterable, Iterator, List, Optional, Tuple

import torch

from . import nested
from .errors import PumpGraphError, StaleStepError, UnsupportedError
from .reachable import Place, Reachable
from .tensors import has_memory, pointer_of

_BUFFER = re.compile(r"^\s*(%\S+) = pump\.buffer .* address\((0x[0-9a-f]+)\)", re.MULTILINE)
_ACCESS = re.compile(r"(%[^\s\[,(]+)\[(\d+), (\d+)\]")


class TouchedMemory:
    """Which addresses the nodes of a captured step touch, from its IR, which is asked for when it is needed."""

    def __init__(self, save: Callable[[Path], None]):
        self._save = save
        self._ranges: Optional[List[Tuple[int, int]]] = None
        self._is_unknown = False

    def touches(self, thing: Any) -> bool:
        """Whether the step may depend on a tensor in `thing`. What is not on the device is a value it has read."""
        tensors = _tensors_of(thing)
        return tensors is None or any(not tensor.is_cuda or self._overlaps(tensor) for tensor in tensors)

    def _overlaps(self, tensor: torch.Tensor) -> bool:
        if self._ranges is None:
            self._read()
        assert self._ranges is not None
        storage = tensor.untyped_storage()
        start = storage.data_ptr()
        end = start + storage.nbytes()
        return self._is_unknown or any(first < end and start < last for first, last in self._ranges)

    def _read(self) -> None:
        self._ranges = []
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "step.mlir"
            try:
                self._save(path)
            except PumpGraphError:  # a graph that cannot be described
                self._is_unknown = True
                return
            text = path.read_text()
        addresses = {name: int(address, 16) for name, address in _BUFFER.findall(text)}
        accesses = set(_ACCESS.findall(text))
        self._is_unknown = "= pump.opaque" in text or any(name not in addresses for name, _, _ in accesses)
        self._ranges = [(addresses[name] + int(offset), addresses[name] + int(offset) + int(size))
                        for name, offset, size in accesses if name in addresses]


def _tensors_of(thing: Any) -> Optional[List[torch.Tensor]]:
    """All that `thing` consists of, if that is tensors in plain containers."""
    if type(thing) is torch.Tensor and thing.layout == torch.strided:
        return [thing]
    if isinstance(thing, dict):
        return _tensors_of(list(thing.values()))
    if isinstance(thing, (list, tuple)):
        inside = [_tensors_of(item) for item in thing if item is not None]
        return None if None in inside else [tensor for tensors in inside for tensor in tensors or ()]
    return None


def places_in_modules(modules: Iterable[torch.nn.Module]) -> Iterator[Place]:
    for root in modules:
        for path, module in root.named_modules():
            for name, buffer in module._buffers.items():
                if buffer is not None:
                    yield Place(module._buffers, name, buffer, f"{path}.{name}" if path else name)


def places_in_optimizers(optimizers: Iterable[torch.optim.Optimizer]) -> Iterator[Place]:
    for optimizer in optimizers:
        for state in optimizer.state.values():
            for key, value in state.items():
                if isinstance(value, torch.Tensor):
                    yield Place(state, key, value, f"{type(optimizer).__name__}.state.{key}")


class Bindings:
    """What the places that `search` finds, and `others`, hold now: every run of the step starts with it."""

    def __init__(self, search: Callable[[], Reachable], others: Iterable[Place]):
        self._search = search
        found = search()
        self._holders = found.holders
        self._before = [*found.places, *others]
        self.changed: List[Tuple[Place, Any]] = []  # with what the captured step left there, and every replay leaves

    def rewind(self) -> None:
        """Every place holds what it did, and those that came after are gone."""
        for place in reversed(self._added()):
            items = self._holders[place.identity[0]].items
            if place.key in items:
                place.holder[place.key] = items[place.key]
            else:
                del place.holder[place.key]
        for place in self._before:
            if place.is_as_found():
                continue
            if isinstance(place.holder, list) and place.key >= len(place.holder):
                place.holder.append(place.thing)
            else:
                place.holder[place.key] = place.thing

    def look(self, touched: TouchedMemory) -> None:
        """After the capture. Raises UnsupportedError where the step depends on what it replaces."""
        for place in self._added():
            raise UnsupportedError(f"the step adds \"{place.name}\", which no replay would do; return the tensor")
        changed = [place for place in self._before if not place.is_as_found()]
        for place in changed:
            if not place.is_there() or touched.touches(place.thing):
                raise UnsupportedError(f"the step uses \"{place.name}\" and replaces it for its next call, which no "
                                       f"replay would see; write into what is there: {place.name}.copy_(...)")
        self.changed = [(place, place.holder[place.key]) for place in changed]

    def leave(self) -> None:
        """What the step would have left."""
        for place, thing in self.changed:
            try:
                # In containers of their own: the program may keep those that it found there.
                place.holder[place.key] = nested.replaced(thing, lambda value: value)
            except IndexError:
                raise StaleStepError(f"\"{place.name}\", which the step replaces, is gone") from None

    def left(self) -> List[torch.Tensor]:
        return [tensor for _, thing in self.changed for tensor in _tensors_of(thing) or ()]

    def replace(self, swap: Callable[[Any], Any]) -> None:
        """Other tensors are at the addresses of those that replays leave."""
        self.changed = [(place, nested.replaced(thing, swap)) for place, thing in self.changed]

    def forget(self) -> None:
        """What was there before, once nothing can fail any more."""
        self._before.clear()
        self._holders.clear()

    def to_watch(self, places: Iterable[Place], touched: TouchedMemory,
                 returned: Iterable[torch.Tensor]) -> List[Place]:
        """Those that hold what the step depends on or returns: the program may replace the others as it likes."""
        left = {place.identity for place, _ in self.changed}
        given = set(map(pointer_of, filter(has_memory, returned)))
        return [place for place in places if place.identity not in left
                and (touched.touches(place.thing) or any(has_memory(tensor) and pointer_of(tensor) in given
                                                         for tensor in _tensors_of(place.thing) or ()))]

    def _added(self) -> List[Place]:
        """Those with tensors where there was nothing, or something else, in what was there."""
        known = {place.identity for place in self._before}
        added = []
        for place in self._search().places:
            holder = self._holders.get(place.identity[0])
            if holder is None or place.identity in known or holder.items.get(place.key) is place.thing:
                continue
            if _tensors_of(place.thing):
                added.append(place)
        return added
