# SPDX-License-Identifier: Apache-2.0
"""What a replay leaves for the program to look at: results, gradients, attributes that the step sets.

It lies at addresses that the next replay writes again. Where the program still holds some of it then, the memory that
the program holds becomes its own, with the values of the call that they are from, and the step's tensors are made anew
at the captured addresses. No view, list or autograd graph of the program has to be found for that: all of them share
one storage, and it is the storage that moves.
"""

from __future__ import annotations

import collections
import gc
import operator
import sys
import weakref
from typing import Any, Callable, Dict, Iterable, Iterator, List, NamedTuple, Optional, Tuple

import torch

from .errors import StaleStepError, UnsupportedError
from .tensors import distributed_tensors, has_memory, is_wrapper, plain_tensors, pointer_of

_resize = torch.UntypedStorage.resize_  # as PyTorch has it: what comes before it later is for others
_use_count = getattr(torch.Tensor, "_use_count", lambda _tensor: 0)
_Counts = Tuple[List[int], List[int], List[int]]
Swap = Callable[[Any], Any]


class _Kept(NamedTuple):
    """One storage, and the step's own tensors in it."""

    storage: Any
    tensors: List[torch.Tensor]


def _uses_of_part(tensor: torch.Tensor) -> int:
    """By Python and others: to_local() may give the very part."""
    return sys.getrefcount(tensor) + _use_count(tensor)


class Results:
    """`tensors`: what the captured call has left. `references`: how often gradients of captured steps are each.
    `must_be_alone`: nothing else that the captured call has left may be in the same memory."""

    _alive: "weakref.WeakSet[Results]" = weakref.WeakSet()

    def __init__(self, session: Any, tensors: Iterable[Optional[torch.Tensor]],
                 references: Callable[[List[torch.Tensor]], List[int]], must_be_alone: bool = False):
        self._session = session
        self._must_be_alone = must_be_alone
        self._references = references
        found = {id(tensor): tensor for tensor in tensors if tensor is not None}
        self._candidates: List[torch.Tensor] = list(filter(_may_move, found.values()))
        self._distributed = [tensor for tensor in found.values() if isinstance(tensor, distributed_tensors())]
        self._counts_distributed: List[Tuple[int, int]] = []
        self._kept: Optional[List[_Kept]] = None
        self._must_count = True
        self._alive.add(self)

    @property
    def storages(self) -> List[Any]:
        """What replays write. Not before are_held()."""
        return [kept.storage for kept in self._kept or ()]

    def are_held(self) -> bool:
        """Whether the program still has some of it. Called before every replay."""
        if self._kept is None:
            self._kept = self._found()
            self._count()
            self._counts_distributed = self._uses_of_distributed()
        if self._distributed:
            self._refuse_distributed()
        return bool(self._tensors) and self._counts_now() != self._counts and bool(self._held())

    def _uses_of_distributed(self) -> List[Tuple[int, int]]:
        """Of each, how often it and its part on this rank are used, but for captured steps."""
        known = self._references(self._distributed)
        return [(sys.getrefcount(tensor) - more, sum(map(_uses_of_part, plain_tensors(tensor))))
                for tensor, more in zip(self._distributed, known)]

    def _refuse_distributed(self) -> None:
        """They are not handed over: the program may keep none."""
        for (now, used), (before, used_before) in zip(self._uses_of_distributed(), self._counts_distributed):
            if now > before or used > used_before:
                raise StaleStepError("the program holds a distributed tensor that the call before has left, such as a "
                                     "gradient, and this call would overwrite it; keep a copy: clone()")

    def hand_over(self, bring: Callable[[Iterable[Any]], None], replace: Callable[[Swap], None]) -> None:
        """What the program has is its own from here on. `bring` sees to it that values are at their addresses;
        `replace` puts other tensors where captured steps have those."""
        self._exchange(self._held(), bring, replace)
        self._count_again()

    def give_up(self, starts: List[torch.Tensor], bring: Callable[[Iterable[Any]], None],
                replace: Callable[[Swap], None]) -> None:
        """The same for gradients that are in no `.grad`, and to which the step adds what is there instead."""
        self._exchange(self._held_among(starts), bring, replace)
        self._count_again()

    @classmethod
    def replace(cls, swap: Swap) -> None:
        """Other tensors are at the captured addresses."""
        for each in cls._alive:
            them = each._kept or []
            for index, kept in enumerate(them):
                tensors = list(map(swap, kept.tensors))
                if not all(map(operator.is_, tensors, kept.tensors)):
                    them[index] = _Kept(tensors[0].untyped_storage(), tensors)
                    each._must_count = True

    @classmethod
    def _count_again(cls) -> None:
        """Not before nobody's variables have what is counted."""
        for each in cls._alive:
            if each._must_count and each._kept is not None:
                each._count()

    def _exchange(self, held: List[_Kept], bring: Callable[[Iterable[Any]], None],
                  replace: Callable[[Swap], None]) -> None:
        if not held:
            return
        bring([kept.storage for kept in held])
        others: Dict[int, torch.Tensor] = {}
        try:
            with torch.inference_mode(False), torch.no_grad():
                past_modes = torch._C._DisableTorchDispatch()
                try:
                    for kept in held:
                        others.update(self._move(kept))
                finally:
                    del past_modes
        finally:  # where there is no more memory, too
            replace(lambda value: others.get(id(value), value))

    def _move(self, kept: _Kept) -> Dict[int, torch.Tensor]:
        """The storage gets other memory, and its captured address is another storage's."""
        storage = kept.storage
        address, size, device = storage.data_ptr(), storage.nbytes(), storage.device
        if not storage.resizable():
            raise StaleStepError("the program holds what the call before has left, in memory that is not PyTorch's, "
                                 "and this call would overwrite it; keep a copy: clone()")
        self._session.keep_for_torch(address)
        try:
            _resize(storage, size)
            fresh = torch.UntypedStorage(size, device=device)
        finally:
            self._session.keep_for_torch(0)
        assert fresh.data_ptr() == address, "the captured address was given to somebody else"
        return {id(tensor): torch.empty(0, dtype=tensor.dtype, device=device).set_(
            fresh, tensor.storage_offset(), tensor.size(), tensor.stride()) for tensor in kept.tensors}

    # ---- who has what ----

    def _found(self) -> List[_Kept]:
        """Before the first replay, when nobody but the step has any of it."""
        kept = _by_storage(self._candidates)
        self._candidates = []
        if not all(map(_is_alone, kept)):
            gc.collect()  # what the captured call has left in cycles
        if self._must_be_alone and not all(map(_is_alone, kept)):
            raise UnsupportedError("a piece of the step leaves a gradient, or sets an attribute to a tensor, in memory "
                                   "that later pieces look at by another name; use clone() for one of the two")
        # Others, such as an argument or a weight that is returned, are not made by the step: they are what they are.
        return list(filter(_is_alone, kept))

    def _count(self) -> None:
        assert self._kept is not None
        self._tensors = [tensor for kept in self._kept for tensor in kept.tensors]
        self._implementations = [kept.storage._cdata for kept in self._kept]
        self._known = self._references(self._tensors)
        self._counts = self._counts_now()
        self._must_count = False

    def _counts_now(self) -> _Counts:
        return (list(map(sys.getrefcount, self._tensors)), list(map(_use_count, self._tensors)),
                list(map(torch._C._storage_Use_Count, self._implementations)))

    def _held(self) -> List[_Kept]:
        """Those of which there is more than the step's own. Steps that were captured since may work on some, too."""
        references, uses, storages = self._counts_now()
        known = self._references(self._tensors)
        excess = [now - then > more - before or use > use_then
                  for now, then, more, before, use, use_then
                  in zip(references, self._counts[0], known, self._known, uses, self._counts[1])]
        by_tensor = iter(excess)
        held = [kept for kept, now, then in zip(self._kept or (), storages, self._counts[2])
                if any([next(by_tensor) for _ in kept.tensors]) or now > then]
        if not held:
            self._known, self._counts = known, (references, uses, storages)
        return held

    def _held_among(self, starts: List[torch.Tensor]) -> List[_Kept]:
        """Those of which there is more than one that only captured steps have."""
        starts.append(torch.zeros(1))  # and nobody has this one
        own = collections.Counter(id(tensor) for each in self._alive for tensor in each._own())
        known = dict(zip(map(id, starts), self._references(starts)))
        kept = _by_storage([*filter(_may_move, starts[:-1]), starts[-1]])
        counts = [[(sys.getrefcount(tensor) - known[id(tensor)] - own[id(tensor)], _use_count(tensor))
                   for tensor in each.tensors] for each in kept]
        references, uses = counts[-1][0]
        return [each for each, now in zip(kept[:-1], counts)
                if not _is_alone(each) or any(more > references or use > uses for more, use in now)]

    def _own(self) -> Iterator[torch.Tensor]:
        """Each as often as this has it."""
        yield from self._candidates
        for kept in self._kept or ():
            yield from kept.tensors
            yield from kept.tensors


def _may_move(tensor: torch.Tensor) -> bool:
    return not is_wrapper(tensor) and has_memory(tensor)


def _by_storage(tensors: List[torch.Tensor]) -> List[_Kept]:
    by_pointer: Dict[int, List[torch.Tensor]] = {}
    for tensor in tensors:
        by_pointer.setdefault(pointer_of(tensor), []).append(tensor)
    return [_Kept(tensors[0].untyped_storage(), tensors) for tensors in by_pointer.values()]


def _is_alone(kept: _Kept) -> bool:
    """Whether nothing but these tensors, and the storage as an object of Python's, has the memory."""
    one = torch.zeros(1)
    storage = one.untyped_storage()
    object_of_python = torch._C._storage_Use_Count(storage._cdata) - 1
    return torch._C._storage_Use_Count(kept.storage._cdata) == len(kept.tensors) + object_of_python
