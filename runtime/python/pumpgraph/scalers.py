# SPDX-License-Identifier: Apache-2.0
"""GradScaler with optimizers that are not fused, in captured steps.

PyTorch asks the host whether gradients overflow, and then leaves the update out. A captured step makes it in each
replay, and where they overflow, puts back what the update has changed: parameters, state, counts of steps. That goes by
parts of 64 MiB, so that little memory is needed for what was there before: more for a parameter that is larger with its
state, and for a whole group if strides of gradients and parameters differ. Each update reads parameters and state three
more times and writes them twice more.
"""

from __future__ import annotations

import contextlib
import sys
import types
from typing import Any, Callable, ContextManager, Dict, Iterator, List, Sequence, Tuple

import torch

from .errors import UnsupportedError
from .prepared import is_pytorchs

_AT_A_TIME = 64 << 20  # bytes of parameters and state that are kept


@contextlib.contextmanager
def decided_on_device(stepping: Callable[[torch.optim.Optimizer], ContextManager[None]], own_hooks: Sequence[Any],
                      skipped: List[torch.optim.Optimizer]) -> Iterator[None]:
    """Inside, scalers do not ask the host where a stream is captured. Inside of `stepping(optimizer)` an optimizer
    steps several times for one update, with `own_hooks`. `skipped` gets those whose update a scaler has left out
    without a capture."""
    scalers: Any = getattr(getattr(torch, "amp", None), "GradScaler", None)
    original: Any = getattr(scalers, "_maybe_opt_step", None)
    if original is None:
        yield
        return

    def maybe_step(scaler: Any, optimizer: Any, state: Any, *args: Any, **kwargs: Any) -> Any:
        if not torch.cuda.is_current_stream_capturing():
            done: List[bool] = []

            def step(*args: Any, **kwargs: Any) -> Any:
                done.append(True)
                return optimizer.step(*args, **kwargs)

            result = original(scaler, types.SimpleNamespace(step=step), state, *args, **kwargs)
            if not done:
                skipped.append(optimizer)
            return result

        found = list(state["found_inf_per_device"].values())
        if len(found) != 1 or not _is_known(optimizer) or kwargs or any(arg is not None for arg in args):
            return original(scaler, optimizer, state, *args, **kwargs)
        _refuse_others(optimizer, own_hooks)

        def update(*_args: Any) -> None:
            with stepping(optimizer), torch.no_grad():
                _update_unless(found[0] > 0, optimizer)

        finite: Dict[str, Any] = {**state, "found_inf_per_device": {}}
        return original(scaler, types.SimpleNamespace(step=update), finite, *args)

    scalers._maybe_opt_step = maybe_step
    try:
        yield
    finally:
        scalers._maybe_opt_step = original


def _is_known(optimizer: Any) -> bool:
    """Whether an update changes parameters and state and nothing else, and each parameter for itself."""
    return is_pytorchs(optimizer) and type(optimizer).__name__ != "LBFGS"


def _refuse_others(optimizer: Any, own_hooks: Sequence[Any]) -> None:
    """What else runs with an update would run with one that is left out."""
    kind = type(optimizer).__name__
    step = vars(optimizer).get("step")
    if step is not None and not hasattr(step, "_wrapped_by_lr_sched"):
        raise UnsupportedError(f"{kind}.step was replaced by another function, which the captured step would call even "
                               f"where a scaler leaves the update out; write {kind}(..., fused=True)")
    module = sys.modules["torch.optim.optimizer"]
    tables = [getattr(owner, name, {}) for owner, name in (
        (module, "_global_optimizer_pre_hooks"), (module, "_global_optimizer_post_hooks"),
        (optimizer, "_optimizer_step_pre_hooks"), (optimizer, "_optimizer_step_post_hooks"))]
    if any(hook not in own_hooks for table in tables for hook in table.values()):
        raise UnsupportedError(f"{kind} has hooks around its steps, which the captured step would run even where a "
                               f"scaler leaves the update out; write {kind}(..., fused=True), or do outside what they "
                               "do")


def _update_unless(skips: torch.Tensor, optimizer: Any) -> None:
    """An update that leaves all as it was where `skips` is true."""
    groups = optimizer.param_groups
    parameters = [group["params"] for group in groups]
    try:
        for group in groups:
            group["params"] = []
        for group, own in zip(groups, parameters):
            for part in _parts(optimizer, own):
                group["params"] = part
                _update_part_unless(skips, optimizer, part)
            group["params"] = []
    finally:
        for group, own in zip(groups, parameters):
            group["params"] = own


def _parts(optimizer: Any, parameters: List[torch.Tensor]) -> Iterator[List[torch.Tensor]]:
    """Those with a gradient. Lists of tensors of one layout give the same results in parts; others may take PyTorch
    another way."""
    updated = [parameter for parameter in parameters if parameter.grad is not None]
    are_alike = all(type(parameter) is type(updated[0]) and parameter.grad.layout == torch.strided  # noqa: E721
                    and parameter.grad.stride() == parameter.stride() for parameter in updated)
    part: List[torch.Tensor] = []
    size = 0
    for parameter in updated:
        bytes_of_it = sum(tensor.numel() * tensor.element_size() for tensor in _changed(optimizer, [parameter]))
        if part and are_alike and size + bytes_of_it > _AT_A_TIME:
            yield part
            part, size = [], 0
        part.append(parameter)
        size += bytes_of_it
    if part:
        yield part


def _update_part_unless(skips: torch.Tensor, optimizer: Any, part: List[torch.Tensor]) -> None:
    places = _places(optimizer, part)
    changed = _changed(optimizer, part)
    before = [tensor.clone() for tensor in changed]
    optimizer.step()
    if _places(optimizer, part) != places:
        raise UnsupportedError(f"{type(optimizer).__name__} makes state in the captured step, which stays where a "
                               "scaler leaves the update out; let the first calls of the step, or a larger warmup, "
                               "update all parameters once")
    for tensor, old in zip(changed, before):
        torch.where(skips, old, tensor, out=tensor)


def _changed(optimizer: Any, parameters: List[torch.Tensor]) -> List[torch.Tensor]:
    state = [value for parameter in parameters for value in optimizer.state.get(parameter, {}).values()]
    return [*parameters, *(value for value in state if isinstance(value, torch.Tensor))]


def _places(optimizer: Any, parameters: List[torch.Tensor]) -> List[Tuple[int, Any, int]]:
    """Of their state."""
    return [(index, key, id(value)) for index, parameter in enumerate(parameters)
            for key, value in optimizer.state.get(parameter, {}).items()]
