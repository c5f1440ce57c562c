# SPDX-License-Identifier: Apache-2.0
"""Notices that the program changes tensors or modules, so that not every call need look at each of its own.

Reading three attributes of every parameter takes longer than all else that a call does. So whatever changes what a
step depends on leaves a mark: an assignment to an attribute (`data`, `grad`, `requires_grad`) of a tensor that a step
works on, methods that do the same, a module's `training`, parameters, buffers and modules put into modules,
conversions, a backward pass.
"""

from __future__ import annotations

import functools
import weakref
from typing import Any, Callable, FrozenSet, Iterable

import torch

# Methods of tensors that change what their attributes say, or where they are.
_METHODS = ("requires_grad_", "detach_", "set_", "resize_", "resize_as_")


class Changes:
    """`mark` is another object after every change, set once it is done. `registrations`: how often something may have
    been put into a module. `watched`: the ids of tensors whose changes count; loaders make and change others all the
    time."""

    mark: object = object()
    registrations = 0
    watched: FrozenSet[int] = frozenset()
    _by_owner: "weakref.WeakKeyDictionary[object, FrozenSet[int]]" = weakref.WeakKeyDictionary()
    _are_noticed = False

    @classmethod
    def notice(cls) -> None:
        """From now on, for good."""
        if cls._are_noticed:
            return
        cls._are_noticed = True
        for name in ("__setattr__", "__delattr__", *_METHODS):
            _mark_after(torch.Tensor, name, lambda tensor: id(tensor) in cls.watched)
        _mark_after(torch.UntypedStorage, "resize_", lambda _storage: True)
        _notice_training()
        _notice_registrations()
        _notice_backward()

    @classmethod
    def are_noticed_of(cls, thing: Any) -> bool:
        """False for tensors and modules of classes that assign attributes in their own way."""
        base = torch.nn.Module if isinstance(thing, torch.nn.Module) else torch.Tensor
        return type(thing).__setattr__ is base.__setattr__

    @classmethod
    def watch(cls, owner: object, tensors: Iterable[torch.Tensor]) -> None:
        """Their changes count as long as there is `owner`, which keeps them."""
        cls._by_owner[owner] = frozenset(map(id, tensors))
        weakref.finalize(owner, cls._gather).atexit = False
        cls._gather()

    @classmethod
    def _gather(cls) -> None:
        cls.watched = frozenset().union(*cls._by_owner.values())


def _mark_after(owner: Any, name: str, counts: Callable[[Any], bool]) -> None:
    original = getattr(owner, name)

    @functools.wraps(original)
    def marking(self: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return original(self, *args, **kwargs)
        finally:
            if counts(self):
                Changes.mark = object()

    setattr(owner, name, marking)


def _notice_training() -> None:
    original: Callable[..., None] = torch.nn.Module.__setattr__

    @functools.wraps(original)
    def assign(module: Any, name: str, value: Any) -> None:
        original(module, name, value)
        if name == "training":
            Changes.mark = object()

    torch.nn.Module.__setattr__ = assign  # type: ignore[method-assign]


def _notice_registrations() -> None:
    def one_more(*_registered: Any) -> None:
        Changes.registrations += 1
        Changes.mark = object()

    hooks = torch.nn.modules.module
    hooks.register_module_parameter_registration_hook(one_more)
    hooks.register_module_buffer_registration_hook(one_more)
    hooks.register_module_module_registration_hook(one_more)
    convert = torch.nn.Module._apply

    @functools.wraps(convert)
    def apply(*args: Any, **kwargs: Any) -> Any:
        try:
            return convert(*args, **kwargs)
        finally:
            one_more()  # it puts buffers into their dict, of which the hooks above do not hear

    torch.nn.Module._apply = apply  # type: ignore[method-assign]


def _notice_backward() -> None:
    engine = type(torch.autograd.Variable._execution_engine)

    class Engine(engine):  # type: ignore[misc, valid-type]
        """PyTorch's own. Every backward pass of Python goes through it, and fills in `.grad` without assignments."""

        def run_backward(self, *args: Any, **kwargs: Any) -> Any:
            try:
                return super().run_backward(*args, **kwargs)
            finally:
                Changes.mark = object()

    torch.autograd.Variable._execution_engine = Engine()
