# SPDX-License-Identifier: Apache-2.0
"""What reports call the nodes and buffers of a step: by the modules of the program.

While a step is captured, hooks say which module's forward is running, and what an operator adds to the graph is called
after the two: "layer3.conv2 forward (convolution)". The autograd nodes that a forward makes are marked with its module,
so that backward operators, which run when no module does, have such names too. A replay knows nothing of all this.
"""

from __future__ import annotations

import contextlib
from typing import Any, Callable, Iterable, Iterator, List, NamedTuple, Optional, Set, Tuple

import torch

from ._session import Session
from .errors import PumpGraphError
from .tensors import has_memory, plain_tensors, pointer_of, tensors_in

_MARK = "pumpgraph module"  # a key in the metadata of autograd nodes


class _Running(NamedTuple):
    """A module whose forward is running."""

    module: torch.nn.Module
    path: str
    in_backward: bool  # recomputed for an activation checkpoint
    first_number: int  # autograd nodes that are made from here on have this number or a larger one


class Names:
    """`modules`: those that are followed, with their paths. `gradients`: what is in `.grad` now, with its names."""

    def __init__(self, session: Session, modules: Iterable[Tuple[str, torch.nn.Module]],
                 gradients: Callable[[], Iterable[Tuple[str, torch.Tensor]]]):
        self._session = session
        self._modules = modules
        self._gradients = gradients
        self._running: List[_Running] = []
        self._was_backward = False
        self._of_modules: Set[int] = set()
        self._of_operators: Set[int] = set()

    @contextlib.contextmanager
    def following(self) -> Iterator[None]:
        with contextlib.ExitStack() as undo:
            for path, module in self._modules:
                enter, leave = self._hooks(path)
                undo.callback(module.register_forward_pre_hook(enter).remove)
                # Always: recomputing for a checkpoint ends in an exception as soon as it has what it needs.
                undo.callback(module.register_forward_hook(leave, always_call=True).remove)
            yield

    def operator(self, func: Any) -> str:
        """What to call the nodes and the results of an operator that is about to run."""
        node = torch._C._current_autograd_node()
        if self._was_backward and node is None:
            self._name_gradients()
        self._was_backward = node is not None
        name = getattr(func, "__name__", "").partition(".")[0]  # without the overload's
        place = self._place(node)
        return f"{place} ({name})" if place and name else place or name

    def results(self, name: str, given: Any, result: Any) -> None:
        """Names the memory that an operator has made; what it was given has a name of its own."""
        for pointer in set(_pointers_in(result)).difference(_pointers_in(given)):
            self._of_operators.add(pointer)
            self._name(pointer, name)

    def _place(self, node: Any) -> str:
        running = self._running[-1] if self._running else None
        if running is not None and (node is None or running.in_backward):
            return f"{running.path} {'recomputed' if running.in_backward else 'forward'}"
        if node is None:
            return ""
        path = node.metadata.get(_MARK)
        return f"{path} backward" if path else "backward"

    def _hooks(self, path: str) -> Tuple[Callable[..., None], Callable[..., None]]:
        def enter(module: torch.nn.Module, _inputs: Any) -> None:
            in_backward = torch._C._current_autograd_node() is not None
            self._running.append(_Running(module, path, in_backward, torch.autograd._get_sequence_nr()))

        def leave(module: torch.nn.Module, inputs: Any, output: Any) -> None:
            if not self._running or self._running[-1].module is not module:
                return  # an exception came before enter()
            running = self._running.pop()
            _mark(output, path, running.first_number)
            # Results of operators inside are called after the module that gives them away.
            self._name_once(output, f"{path} output", self._of_modules)
            self._name_once(inputs, f"{path} input", self._of_modules | self._of_operators)

        return enter, leave

    def _name_once(self, value: Any, name: str, named: Set[int]) -> None:
        """No address is used twice in a capture, so the first name is the right one: the innermost module's."""
        for pointer in _pointers_in(value):
            if pointer not in named:
                self._of_modules.add(pointer)
                self._name(pointer, name)

    def _name_gradients(self) -> None:
        """After backward and before anything else: the step may free its gradients, and they are found here alone."""
        for name, gradient in self._gradients():
            for pointer in _pointers_in(gradient):
                self._name(pointer, name)

    def _name(self, pointer: int, name: str) -> None:
        with contextlib.suppress(PumpGraphError):  # memory need not be ours to pass through a module
            self._session.name(pointer, name)


def _mark(output: Any, path: str, first_number: int) -> None:
    """Marks the autograd nodes behind `output` with these numbers that no module inside has marked."""
    found = [_grad_fn(tensor) for tensor in tensors_in(output)]
    seen = set()
    while found:
        node = found.pop()
        if node is None or node in seen or node._sequence_nr() < first_number:
            continue
        seen.add(node)
        node.metadata.setdefault(_MARK, path)
        found += [before for before, _ in node.next_functions]


def _grad_fn(tensor: torch.Tensor) -> Optional[Any]:
    try:
        return tensor.grad_fn
    except RuntimeError:  # of a view that autograd gave up
        return None


def _pointers_in(value: Any) -> Iterator[int]:
    for tensor in tensors_in(value):
        for plain in plain_tensors(tensor):
            if has_memory(plain):
                yield pointer_of(plain)
