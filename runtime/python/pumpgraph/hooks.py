# SPDX-License-Identifier: Apache-2.0
"""Functions that PyTorch calls during a step although the step's code does not name them."""

from __future__ import annotations

import sys
import weakref
from collections import abc
from typing import Any, Iterator, Tuple

import torch

OF_MODULES = {"_forward_pre_hooks": "a forward pre-hook", "_forward_hooks": "a forward hook",
              "_backward_pre_hooks": "a backward pre-hook", "_backward_hooks": "a backward hook"}
_OF_TENSORS = {"_backward_hooks": "a hook", "_post_accumulate_grad_hooks": "a post-accumulate-grad hook"}
_OF_OPTIMIZERS = {"_optimizer_step_pre_hooks": "a step pre-hook", "_optimizer_step_post_hooks": "a step post-hook"}

Hooks = Iterator[Tuple[Any, str]]  # each with what it is


def of_module(module: torch.nn.Module, name: str) -> Hooks:
    return _hooks_in(vars(module), OF_MODULES, name)


def of_tensor(tensor: torch.Tensor, name: str) -> Hooks:
    return _hooks_in({key: getattr(tensor, key, None) for key in _OF_TENSORS}, _OF_TENSORS, name)


def of_optimizer(optimizer: torch.optim.Optimizer) -> Hooks:
    return _hooks_in(vars(optimizer), _OF_OPTIMIZERS, type(optimizer).__name__)


def of_everything() -> Hooks:
    """Of all modules, of all optimizers, and of autograd nodes that are alive."""
    for key, what in OF_MODULES.items():
        for hook in list(getattr(torch.nn.modules.module, f"_global{key}", {}).values()):
            yield hook, f"{what} of all modules"
    optimizers = sys.modules.get("torch.optim.optimizer")  # which is no attribute of torch.optim
    for key in ("_global_optimizer_pre_hooks", "_global_optimizer_post_hooks"):
        for hook in list(getattr(optimizers, key, {}).values()):
            yield hook, "a hook of all optimizers"
    for hooks in list(_of_nodes.values()):
        for hook in list(hooks.values()):
            yield hook, "a hook of an autograd node"


def _hooks_in(holder: Any, kinds: Any, name: str) -> Hooks:
    for key, what in kinds.items():
        hooks = holder.get(key)
        if isinstance(hooks, abc.Mapping):
            for hook in list(hooks.values()):
                yield hook, f"{what} of {name}"


# A node does not tell its hooks, but it has PyTorch's Python code make the dict that it keeps them in.
_of_nodes: "weakref.WeakValueDictionary[int, Any]" = weakref.WeakValueDictionary()


def notice_those_of_nodes() -> None:
    """From now on, for good. What is registered before is not known."""
    mixin = getattr(getattr(torch.autograd, "function", None), "_HookMixin", None)
    original: Any = getattr(mixin, "_register_hook", None)
    if mixin is None or original is None or hasattr(original, "__wrapped__"):
        return

    def register(backward_hooks: Any, hook: Any) -> Any:
        hooks, handle = original(backward_hooks, hook)
        _of_nodes[id(hooks)] = hooks
        return hooks, handle

    register.__wrapped__ = original  # type: ignore[attr-defined]
    mixin._register_hook = staticmethod(register)
