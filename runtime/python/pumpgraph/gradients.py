# SPDX-License-Identifier: Apache-2.0
"""What a captured step finds in the `.grad` of parameters, and what it leaves there.

A replay runs no Python: where the step makes gradients anew or drops them, `.grad` has to be set by hand, and where it
adds to gradients, those have to be at the addresses that were captured.
"""

from __future__ import annotations

import collections
import weakref
from operator import attrgetter, is_
from typing import Any, Callable, List, Optional

import torch

from .tensors import plain_tensors

_Gradients = List[Optional[torch.Tensor]]
_gradient_of = attrgetter("grad")


def gradients_of(parameters: List[torch.Tensor]) -> _Gradients:
    return list(map(_gradient_of, parameters))


class CapturedGradients:
    """`had`: which of the parameters had one when the step was called; `at_start`: what was there when its capture
    began, after gradients that the rehearsal replaced were dropped; `.grad` now: what the capture left."""

    _alive: "weakref.WeakSet[CapturedGradients]" = weakref.WeakSet()

    def __init__(self, parameters: List[torch.Tensor], had: List[bool], at_start: _Gradients):
        self.parameters = parameters
        self._after = gradients_of(parameters)
        # A gradient that the rehearsal replaced did not matter: whatever is there is dropped again.
        self._any = [start is None and was_there for was_there, start in zip(had, at_start)]
        self._before = list(at_start)
        self._is_steady = all(is_any or start is after
                              for is_any, start, after in zip(self._any, at_start, self._after))
        self._alive.add(self)

    def made(self) -> List[torch.Tensor]:
        """Those that the step makes anew."""
        return [after for start, after in zip(self._before, self._after) if after is not None and after is not start]

    @classmethod
    def references(cls, tensors: List[torch.Tensor]) -> List[int]:
        """How often captured steps hold each of them. One may add to what another has made."""
        held = collections.Counter(id(value) for each in cls._alive for value in (*each._before, *each._after))
        return [held[id(tensor)] for tensor in tensors]

    @classmethod
    def replace(cls, swap: Callable[[Any], Any]) -> None:
        """Other tensors hold the gradients at the captured addresses."""
        for each in cls._alive:
            each._before = list(map(swap, each._before))
            each._after = list(map(swap, each._after))

    def are_as_left(self) -> bool:
        """Whether the step can follow itself with nothing to do. Called where something has changed."""
        return self._is_steady and all(map(is_, map(_gradient_of, self.parameters), self._after))

    def accept(self) -> bool:
        """Whether a replay does what the step would with the gradients that are there now."""
        return all(is_any or (gradient is None) == (start is None) and _alike(gradient, start)
                   for gradient, is_any, start in zip(gradients_of(self.parameters), self._any, self._before))

    def to_supply(self) -> List[torch.Tensor]:
        """Where the captured step adds to gradients or reads them, of those that are elsewhere."""
        return [start for parameter, start in zip(self.parameters, self._before)
                if start is not None and parameter.grad is not start]

    def exchanged(self) -> List[torch.Tensor]:
        """What supply() reads and writes."""
        return [*self.to_supply(), *(parameter.grad for parameter, start in zip(self.parameters, self._before)
                                     if start is not None and parameter.grad is not start)]

    def supply(self) -> None:
        """Puts them there."""
        with torch.no_grad():
            for parameter, start in zip(self.parameters, self._before):
                if start is not None and parameter.grad is not start:
                    for target, source in zip(plain_tensors(start), plain_tensors(parameter.grad)):
                        target.copy_(source)
                    parameter.grad = start

    def rewind(self) -> None:
        """After the capture, which ran nothing: `.grad` is what the capture started with."""
        for parameter, start in zip(self.parameters, self._before):
            parameter.grad = start

    def leave_made(self) -> None:
        """leave() before a replay, of those for which it does not matter what is there."""
        for parameter, start, after in zip(self.parameters, self._before, self._after):
            if after is not None and after is not start and parameter.grad is not after:
                parameter.grad = after

    def leave(self) -> None:
        """After a replay: `.grad` is what the step would have left."""
        for parameter, after in zip(self.parameters, self._after):
            if parameter.grad is not after:
                parameter.grad = after


def _alike(gradient: Optional[torch.Tensor], start: Optional[torch.Tensor]) -> bool:
    return gradient is None or start is None or gradient.shape == start.shape and gradient.dtype == start.dtype
