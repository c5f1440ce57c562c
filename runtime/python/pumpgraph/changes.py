# SPDX-License-Identifier: Apache-2.0
"""Notices that the program changes tensors or modules, so that not every call need look at each of its own.

Reading three attributes of every parameter takes longer than all else that a call does. So whatever changes what a
step depends on leaves a mark: an assignment to an attribute (`data`, `grad`, `requires_grad`) of a tensor that a step
works on, methods that do the same, a module's attributes, parameters, buffers and modules put into modules,
conversions, a backward pass.
"""

from __future__ import annotations

import functools
import threading
import weakref
from typing import Any, Callable, FrozenSet, Iterable, List

import torch


class _Changes:
    """`mark` is another list after every change, set once it is done, but just before something is put into a module:
    no other thread may do so during a call. `registrations`: another list whenever something may have been put into
    a module or taken out. `attributes`: the same, for attributes of modules other than `training`. `watched`: the ids
    of tensors whose changes count; loaders make and change others all the time.

    An instance of lists, and nothing in it is read when it is written: a compiler that traces a module's code into here
    can trace that."""

    def __init__(self) -> None:
        self.mark: List[Any] = []
        self.registrations: List[Any] = []
        self.attributes: List[Any] = []
        self.watched: FrozenSet[int] = frozenset()
        self._by_owner: "weakref.WeakKeyDictionary[object, FrozenSet[int]]" = weakref.WeakKeyDictionary()
        self.keeps_graphs = False  # whether backward passes leave what autograd has saved
        self._lock = threading.RLock()  # finalizers run in any thread, and within one another
        self._are_noticed = False

    def notice(self) -> None:
        """From now on, for good."""
        if self._are_noticed:
            return
        self._are_noticed = True
        for name in ("__setattr__", "__delattr__", "requires_grad_", "detach_", "set_"):
            _mark_after(torch.Tensor, name, lambda tensor: id(tensor) in self.watched)
        for name in ("resize_", "resize_as_"):  # they move the memory of all tensors that share it
            _mark_after(torch.Tensor, name, lambda _tensor: True)
        _mark_after(torch.UntypedStorage, "resize_", lambda _storage: True)
        _notice_attributes()
        _notice_registrations()
        _notice_backward()

    @staticmethod
    def are_noticed_of(thing: Any) -> bool:
        """False for tensors and modules of classes that assign attributes in their own way."""
        base = torch.nn.Module if isinstance(thing, torch.nn.Module) else torch.Tensor
        return type(thing).__setattr__ is base.__setattr__

    def watch(self, owner: object, tensors: Iterable[torch.Tensor]) -> None:
        """Their changes count as long as there is `owner`, which keeps them."""
        with self._lock:
            self._by_owner[owner] = frozenset(map(id, tensors))
            weakref.finalize(owner, self._gather).atexit = False
            self._gather()

    def _gather(self) -> None:
        with self._lock:
            self.watched = frozenset().union(*self._by_owner.values())


Changes = _Changes()


def _mark_after(owner: Any, name: str, counts: Callable[[Any], bool]) -> None:
    original = getattr(owner, name)

    @functools.wraps(original)
    def marking(self: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return original(self, *args, **kwargs)
        finally:
            if counts(self):
                Changes.mark = []

    setattr(owner, name, marking)


def _notice_attributes() -> None:
    original: Callable[..., None] = torch.nn.Module.__setattr__

    @functools.wraps(original)
    def assign(module: Any, name: str, value: Any) -> None:
        original(module, name, value)
        if name != "training":
            Changes.attributes = []
        Changes.mark = []

    torch.nn.Module.__setattr__ = assign  # type: ignore[method-assign]


def _notice_registrations() -> None:
    def one_more(*_registered: Any) -> None:
        Changes.registrations = Changes.mark = []

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
    remove, register = torch.nn.Module.__delattr__, torch.nn.Module.register_parameter

    @functools.wraps(remove)
    def delete(module: Any, name: str) -> None:
        remove(module, name)
        one_more()

    @functools.wraps(register)
    def register_parameter(module: Any, name: str, param: Any) -> None:
        register(module, name, param)
        if param is None:  # of which the hooks do not hear
            one_more()

    torch.nn.Module.__delattr__ = delete  # type: ignore[method-assign, assignment]
    torch.nn.Module.register_parameter = register_parameter  # type: ignore[method-assign]


def _notice_backward() -> None:
    engine = type(torch.autograd.Variable._execution_engine)

    class Engine(engine):  # type: ignore[misc, valid-type]
        """PyTorch's own. Every backward pass of Python goes through it, and fills in `.grad` without assignments."""

        def run_backward(self, *args: Any, **kwargs: Any) -> Any:
            if Changes.keeps_graphs and len(args) > 2:
                args = (*args[:2], True, *args[3:])
            elif Changes.keeps_graphs:
                kwargs["keep_graph"] = True
            try:
                return super().run_backward(*args, **kwargs)
            finally:
                Changes.mark = []

    torch.autograd.Variable._execution_engine = Engine()
