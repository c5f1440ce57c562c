# SPDX-License-Identifier: Apache-2.0
"""Which calls may share a captured graph, and the tensors at fixed addresses that stand for a call's own."""

from __future__ import annotations

import inspect
from typing import Any, Callable, Dict, Iterable, Iterator, List, NamedTuple, Optional, Tuple

import torch

from . import nested
from ._capi import Copies, Copy
from .errors import UnsupportedError
from .holdings import holds_tensors, is_object


# An argument of a step's pieces: modules and optimizers that they may work on without naming them.
OBJECTS = "_pumpgraph_objects"


class Call(NamedTuple):
    """One call's arguments: `key` is equal for calls that may share a graph, `tensors` are what differs."""

    key: Any
    tensors: List[torch.Tensor]
    arguments: Any  # (args, kwargs)


def read_call(args: Tuple[Any, ...], kwargs: Dict[str, Any]) -> Call:
    tensors: List[torch.Tensor] = []
    key = (tuple([_key_of(value, tensors) for value in args]),
           tuple([(name, _key_of(kwargs[name], tensors)) for name in sorted(kwargs)]) if kwargs else (),
           modes())
    return Call(key, tensors, (args, {name: kwargs[name] for name in sorted(kwargs)} if kwargs else {}))


_PLAIN = (type(None), bool, int, float, str, bytes, torch.dtype, torch.device)


def _key_of(value: Any, tensors: List[torch.Tensor]) -> Any:
    kind = type(value)
    if kind is torch.Tensor:
        tensors.append(value)
        return value.shape, value.stride(), value.dtype, value.device, value.requires_grad
    if kind in _PLAIN:
        return kind, value  # with its type, for 1 == True == 1.0
    if kind is tuple or kind is list:
        return kind, tuple([_key_of(item, tensors) for item in value])
    if isinstance(value, torch.Tensor):
        if isinstance(value, torch.nn.Parameter):
            return kind, Same(value)  # trained, not read: the step works on this very one
        raise UnsupportedError(f"an argument is a {kind.__module__}.{kind.__qualname__}, not a plain tensor; pass "
                               "plain ones and wrap them inside the step")
    if isinstance(value, (torch.nn.Module, torch.optim.Optimizer)):
        return kind, Same(value)
    if nested.is_container(value):
        return kind, tuple([(name, _key_of(item, tensors)) for name, item in nested.items(value)])
    if kind.__eq__ is object.__eq__ or holds_tensors(value):
        return kind, Same(value)
    try:
        hash(value)
    except TypeError:
        raise UnsupportedError(f"an argument is a {kind.__qualname__}, which cannot be compared from call to call; "
                               "pass tensors, numbers, strings, or lists and dicts of them") from None
    return kind, value


class Same:
    """Equal to what holds the same object, and to nothing else."""

    def __init__(self, thing: Any):
        self.thing = thing

    def __eq__(self, other: Any) -> bool:
        return isinstance(other, Same) and self.thing is other.thing

    def __hash__(self) -> int:
        return id(self.thing)


def modes() -> Tuple[Any, ...]:
    """What changes the kernels of a step without being an argument."""
    return (
        torch.is_grad_enabled(),
        torch.is_inference_mode_enabled(),
        torch.is_autocast_enabled() and torch.get_autocast_dtype("cuda"),
        torch.are_deterministic_algorithms_enabled(),
        torch._C._get_cudnn_deterministic(),  # torch.backends.cudnn.deterministic takes four times as long
    )


class StaticInputs:
    """Tensors at fixed addresses, one for each of a call's, and the arguments made of them."""

    def __init__(self, call: Call, device: torch.device):
        with torch.no_grad():
            self.leaves = [torch.empty_like(tensor, device=device, requires_grad=tensor.requires_grad)
                           for tensor in call.tensors]
            self._targets = [leaf.detach() for leaf in self.leaves]
        self.args, self.kwargs = nested.replaced(call.arguments, _in_turn(self.leaves))
        self._copies: Optional[Copies] = None
        if all(map(_is_copied_as_it_is, call.tensors, self._targets)):
            # A structure is made of a tuple, too.
            self._copies = (Copy * len(self._targets))(
                *[(target.data_ptr(), 0, target.numel() * target.element_size())  # type: ignore[misc]
                  for target in self._targets])
            self._entries = list(self._copies)  # they write into it

    def load(self, tensors: List[torch.Tensor]) -> None:
        """Copies a call's tensors, in the order of the current stream."""
        for target, source in zip(self._targets, tensors):
            target.copy_(source.detach() if source.requires_grad else source, non_blocking=True)

    def copies(self, tensors: List[torch.Tensor]) -> Optional[Copies]:
        """What load() would do, for somebody else to do; None where that is more than copies within the device."""
        if self._copies is None:
            return None
        for entry, tensor in zip(self._entries, tensors):
            source = tensor.data_ptr()
            if not source or tensor.is_neg():
                return None
            entry.source = source
        return self._copies

    def refuse_gradients(self) -> None:
        """Gradients that reach an argument stay with the copy: the caller would miss them."""
        if any(leaf.grad is not None for leaf in self.leaves):
            for leaf in self.leaves:
                leaf.grad = None
            raise UnsupportedError("backward() puts a gradient into an argument, which the caller would not see; take "
                                   "it with torch.autograd.grad() inside the step and return it")


def _is_copied_as_it_is(source: torch.Tensor, target: torch.Tensor) -> bool:
    """`target` was made like `source`; where that has holes or overlaps with itself, the strides differ."""
    return (source.device == target.device and source.stride() == target.stride() and target.numel() > 0
            and not source.dtype.is_complex)  # which may be conjugate


def on_device(call: Call, device: torch.device) -> Tuple[Any, Any]:
    """The call's own arguments with tensors of the host brought to the device, where the step expects them."""
    moved = [tensor.to(device, non_blocking=True) for tensor in call.tensors]
    return nested.replaced(call.arguments, _in_turn(moved))


def _in_turn(tensors: List[torch.Tensor]) -> Callable[[Any], Any]:
    """What replaces plain tensors by these, in the order in which _key_of() met them."""
    remaining = iter(tensors)
    return lambda value: next(remaining) if type(value) is torch.Tensor else value


def refuse_arguments(call: Call, device: torch.device) -> None:
    for tensor in call.tensors:
        if tensor.layout != torch.strided:
            raise UnsupportedError(f"an argument has the layout {tensor.layout}; pass its indices and values")
        if tensor.device.type not in ("cpu", "cuda") or (tensor.is_cuda and tensor.device != device):
            raise UnsupportedError(f"an argument is on {tensor.device}; a session has one device, {device}")
        if tensor.grad_fn is not None:
            raise UnsupportedError("an argument was computed with gradients outside the step, and a captured "
                                   "backward() ends at the step's arguments; compute it inside the step, or detach it")


def objects_in(call: Call, step: Callable[..., Any]) -> Dict[str, Any]:
    """Objects among the arguments, by the names that the step has for them."""
    return {name: value for name, value in leaves(call, step) if is_object(value)}


def holders_of_attributes(call: Call, step: Callable[..., Any]) -> Dict[str, Any]:
    """Arguments whose attributes the code of the step may read."""
    return {name: value for name, value in _arguments(call, step)
            if is_object(value) or isinstance(value, (torch.nn.Module, torch.optim.Optimizer))}


def _arguments(call: Call, step: Callable[..., Any]) -> List[Tuple[str, Any]]:
    args, kwargs = call.arguments
    return [*zip(_names(step, len(args)), args), *kwargs.items()]


def leaves(call: Call, step: Callable[..., Any]) -> Iterator[Tuple[str, Any]]:
    """All that the arguments consist of, by the names that the step has for them."""
    return _leaves(_arguments(call, step))


def _leaves(arguments: Iterable[Tuple[str, Any]]) -> Iterator[Tuple[str, Any]]:
    for name, value in arguments:
        if nested.is_container(value):
            yield from _leaves((f"{name}.{key}", item) for key, item in nested.items(value))
        else:
            yield name, value


def describe(call: Call, step: Callable[..., Any], more: Tuple[str, ...] = ()) -> str:
    """A signature for people: "x float32[32, 128], mask None, training"."""
    parts = [f"{name} {_text(value)}" for name, value in _arguments(call, step) if name != OBJECTS]
    return ", ".join([*parts, *_mode_words(call.key[2]), *more])


def _text(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return f"{str(value.dtype).replace('torch.', '')}{list(value.shape)}"
    inside = [_text(item) for _, item in nested.items(value)]
    if inside:
        return "(" + ", ".join(inside) + ")"
    return type(value).__name__ if hasattr(value, "__dict__") else repr(value)


def _names(step: Callable[..., Any], count: int) -> Iterator[str]:
    try:
        known = [name for name, parameter in inspect.signature(step).parameters.items()
                 if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)]
    except (TypeError, ValueError):
        known = []
    return (known[index] if index < len(known) else f"argument {index}" for index in range(count))


def _mode_words(values: Tuple[Any, ...]) -> List[str]:
    grad, inference, autocast, deterministic, _ = values
    words = [] if grad else ["no_grad"]
    words += ["inference_mode"] if inference else []
    words += [f"autocast {str(autocast).replace('torch.', '')}"] if autocast else []
    return words + (["deterministic"] if deterministic else [])
