# SPDX-License-Identifier: Apache-2.0
"""Values that the code of a step reads by name, and that the program may change between calls.

A captured step keeps those of the captured call. Which they are is found by following the code (following.py). Before
every replay all of them are compared by identity at once, and those that are others by what the step reads of them.
"""

from __future__ import annotations

import types
import weakref
from itertools import chain
from operator import is_, itemgetter
from typing import Any, Callable, Dict, Iterable, Iterator, List, Tuple

import torch

from .changes import Changes
from .errors import StaleStepError
from .following import Content, Following, Read, Whole
from .lookups import MISSING, Code, Spot, is_container
from .reachable import OF_MODULES
from .values import A_TENSOR, Comparison, Difference, is_plain, items_of, kept

__all__ = ["Code", "Reads"]


class Reads:
    """As the values are when this is made. Of `modules` those of PyTorch count, whose code is not followed."""

    def __init__(self, code: Iterable[Code], modules: Iterable[torch.nn.Module] = ()):
        self._attributes = Changes.attributes
        self._in_layers = _Values(_of_layers(modules))
        self._code = [_Root(each) for each in code]
        self._passed_on = self._look()

    def _look(self) -> List[Tuple[str, Any]]:
        following = Following(root.code() for root in self._code)
        self._uses = following.uses
        self._everywhere = _Values(following.reads.values(), following.wholes.values(), following.contents.values())
        self._in_modules = _Values(following.of_modules.values())
        return following.passed_on

    def take_passed_on(self) -> List[Tuple[str, Any]]:
        """What the code gives to other code, which may read anything of it, with names. Not what it calls, which is
        followed, nor the object of a method."""
        passed_on, self._passed_on = self._passed_on, []
        return [(name, thing) for name, thing in passed_on
                if not isinstance(getattr(type(thing), "__call__", None), types.FunctionType)]

    def check(self) -> None:
        """Raises StaleStepError unless they are the same. Called before every replay."""
        if not self._everywhere.are_as_before():
            self._compare(self._everywhere)

    def check_modules(self) -> None:
        """The same, for attributes of modules. Called where something has changed."""
        if not self._in_modules.are_as_before():
            self._compare(self._in_modules)
        if self._attributes is not Changes.attributes:
            attributes = Changes.attributes
            if not self._in_layers.are_as_before():
                self._compare(self._in_layers)
            self._attributes = attributes

    def _compare(self, values: "_Values") -> None:
        self._refuse(values)
        if not values.adopt():  # there are other objects, which the step reads the same of
            for others in (self._everywhere, self._in_modules):
                self._refuse(others)
            self._look()

    def _refuse(self, values: "_Values") -> None:
        for verb, difference in values.differences(Comparison(self._uses)):
            raise StaleStepError(f"\"{difference.name}\", which the step {verb}, {difference}; pass it as an argument")


class _Root:
    """A function that is followed. What it is a method of, and what it is given, is not kept alive."""

    def __init__(self, code: Code):
        self._function = code.function
        self._bound = _weakly(code.bound)
        self._arguments = {name: _weakly(thing) for name, thing in code.arguments.items()}

    def code(self) -> Code:
        return Code(self._function, self._bound(), {name: thing() for name, thing in self._arguments.items()})


def _weakly(thing: Any) -> Callable[[], Any]:
    try:
        if thing is not None:
            return weakref.ref(thing)
    except TypeError:
        pass
    return lambda: thing


def _of_layers(modules: Iterable[torch.nn.Module]) -> Iterator[Read]:
    """Their plain attributes, such as the probability of a dropout."""
    for module in modules:
        if type(module).__module__.startswith("torch.nn.modules."):
            own = vars(module)
            yield from (Read(Spot(own, key, own), f"{type(module).__name__}.{key}", "may read")
                        for key, value in own.items() if is_plain(value) and key not in OF_MODULES)


class _Values:
    """What is in these places when this is made. Tensors are compared by their types and not kept: whether the program
    keeps one is told from its references."""

    def __init__(self, reads: Iterable[Read], wholes: Iterable[Whole] = (), contents: Iterable[Content] = ()):
        by_dict: Dict[int, List[Read]] = {}
        others: List[Read] = []
        for read in reads:
            if isinstance(read.spot.holder, (dict, types.MappingProxyType)) and read.spot.now() is not MISSING:
                by_dict.setdefault(id(read.spot.thing), []).append(read)
            else:
                others.append(read)
        self._reads = [read for group in (*by_dict.values(), others) for read in group]
        self._dicts = [(_getter([read.spot.key for read in group]), group[0].spot.holder) for group in by_dict.values()]
        self._spots = [read.spot for read in others]
        self._wholes, self._contents = list(wholes), list(contents)
        self._views = [view for whole in self._wholes for view in _views(whole.thing)]
        self._remember()

    def _remember(self) -> None:
        self._before = [kept(value) for value in self._now()]
        self._tensors = [index for index, value in enumerate(self._before) if value is A_TENSOR]
        self._lengths = list(map(len, self._views))

    def _now(self) -> List[Any]:
        """All values, fast: in every call."""
        now: List[Any] = []
        for get, holder in self._dicts:
            now += get(holder)
        if self._spots:
            now += [spot.now() for spot in self._spots]
        now += chain.from_iterable(self._views)
        return now

    def are_as_before(self) -> bool:
        try:
            now = self._now()
        except KeyError:
            return False
        if len(now) != len(self._before):
            return False
        for index in self._tensors:
            if isinstance(now[index], torch.Tensor):
                now[index] = A_TENSOR
        return all(map(is_, now, self._before)) and list(map(len, self._views)) == self._lengths \
            and all([content.now() == content.before for content in self._contents])

    def differences(self, comparison: Comparison) -> Iterator[Tuple[str, Difference]]:
        for read, before in zip(self._reads, self._before):
            found = comparison.difference(read.name, before, read.spot.now())
            if found is not None:
                yield read.verb, found
        for whole in self._wholes:
            for found in comparison.of_container(whole.name, whole.thing, whole.items, items_of(whole.thing)):
                yield whole.verb, found
        for content in self._contents:
            now, before = content.now(), content.before
            if now != before:
                is_length = is_container(content.thing)
                yield content.verb, Difference(content.name, *((before, now) if is_length else [content.thing] * 2))

    def adopt(self) -> bool:
        """Values that are equal. False where there are other objects, in which other places count."""
        now = [kept(value) for value in self._now()]
        if len(now) != len(self._before):
            return False
        changed = [value for value, before in zip(now, self._before) if value is not before]
        self._remember()
        for whole in self._wholes:
            whole.items.update((key, kept(item)) for key, item in items_of(whole.thing).items())
        return all(is_plain(value) or isinstance(value, (torch.nn.Module, torch.optim.Optimizer)) for value in changed)


def _getter(keys: List[Any]) -> Callable[[Any], Tuple[Any, ...]]:
    if len(keys) > 1:
        return itemgetter(*keys)
    return lambda holder: (holder[keys[0]],)


def _views(container: Any) -> Tuple[Any, ...]:
    return (dict.keys(container), dict.values(container)) if isinstance(container, dict) else (container,)
