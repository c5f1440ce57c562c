# SPDX-License-Identifier: Apache-2.0
"""PyTorch's optimizers as programs make them, in captured steps.

A captured step keeps numbers: a rate, and a count of steps on the host. So while an optimizer steps inside of a
graphed function, its param groups hold other settings: counts on the device, and a tensor in the place of a rate that
may change. Outside they hold what the program gave them. Before a replay the tensor gets the number that is there then.
"""

from __future__ import annotations

import weakref
from typing import Any, Dict, Iterable, List, Optional

import torch

from . import device_updates
from .errors import invalid

_COUNTS = ("step", "mu_product")  # of state: on the host unless an optimizer is capturable or fused
_prepared: "weakref.WeakKeyDictionary[torch.optim.Optimizer, Prepared]" = weakref.WeakKeyDictionary()
_scheduled: "weakref.WeakSet[torch.optim.Optimizer]" = weakref.WeakSet()


def prepare(optimizer: torch.optim.Optimizer, *, fused: Optional[bool] = None) -> torch.optim.Optimizer:
    """Lets one of PyTorch's own optimizers step inside graphed functions although it was not made for captures.

    Its learning rate can be a number, with a scheduler or without, and it need not be `capturable`. Graphed functions
    prepare optimizers by themselves; call this only for `fused`. `param_groups` and `state_dict()` keep the values that
    they have without PumpGraph.

    Args:
        optimizer: an instance of a class in torch.optim, with its parameters on the GPU.
        fused: True updates all parameters in one sweep, as if the optimizer had been made with `fused=True`. Results
            differ in their last bits from those of an optimizer that is not fused. Default None: as the optimizer is.

    Returns:
        The optimizer.

    Raises:
        PumpGraphError: the optimizer is not PyTorch's, or PyTorch has no fused form of it.
    """
    if not is_pytorchs(optimizer):
        raise invalid(f"{type(optimizer).__name__} is none of PyTorch's optimizers")
    if fused and not all("fused" in group for group in optimizer.param_groups):
        raise invalid(f"PyTorch has no fused {type(optimizer).__name__}")
    _prepared[optimizer] = Prepared(optimizer, bool(fused))
    if fused:
        optimizer._step_supports_amp_scaling = True
    return optimizer


def known(optimizer: torch.optim.Optimizer) -> Optional["Prepared"]:
    """None for one that steps as it is."""
    return _prepared.get(optimizer)


def prepared(optimizer: torch.optim.Optimizer) -> Optional["Prepared"]:
    """Where it needs something else while it steps; else None. Not while a stream is captured, but for those that are
    known."""
    before = known(optimizer)
    if before is not None and (before.is_entered or before.fits(optimizer)):
        return before
    if torch.cuda.is_current_stream_capturing() or not is_pytorchs(optimizer):
        return None
    made = Prepared(optimizer, before is not None and before.is_fused)
    if not made.changes_anything:
        return None
    _prepared[optimizer] = made
    return made


def note_schedulers(optimizers: Iterable[torch.optim.Optimizer]) -> None:
    """A scheduler may hold an optimizer that wraps the one that steps, as accelerate's does."""
    for optimizer in optimizers:
        if has_scheduler(optimizer):
            _scheduled.update(each for each in (optimizer, vars(optimizer).get("optimizer"))
                              if isinstance(each, torch.optim.Optimizer))


def has_scheduler(optimizer: torch.optim.Optimizer) -> bool:
    return hasattr(optimizer.step, "_wrapped_by_lr_sched") or optimizer in _scheduled


def give_settings(optimizers: Iterable[torch.optim.Optimizer]) -> None:
    """Before a capture: the tensors in the places of settings get what the program has there."""
    for optimizer in optimizers:
        own = known(optimizer)
        if own is not None:
            own.give_all(optimizer)


def is_pytorchs(optimizer: torch.optim.Optimizer) -> bool:
    """Adafactor and Muon say that they are defined in torch.optim itself."""
    return type(optimizer).__module__.split(".")[:2] == ["torch", "optim"]


def is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


class Prepared:
    """What an optimizer's param groups hold while it steps."""

    def __init__(self, optimizer: torch.optim.Optimizer, fused: bool):
        self.is_fused = fused
        self._inside = _settings(optimizer, fused)
        self._given = [dict.fromkeys(_tensors_in(settings)) for settings in self._inside]
        self._outside: List[Dict[str, Any]] = []  # while it steps
        self._hosted = [index for index, group in enumerate(optimizer.param_groups)
                        if not group.get("fused")
                        and (group.get("capturable") is False or self._rate_is_computed(index))]
        hook = getattr(optimizer, "register_state_dict_post_hook", None)
        if self._hosted and hook is not None and optimizer not in _prepared:
            hook(_with_counts_on_the_host)

    @property
    def is_entered(self) -> bool:
        return bool(self._outside)

    @property
    def changes_anything(self) -> bool:
        return any(self._inside)

    def fits(self, optimizer: torch.optim.Optimizer) -> bool:
        """Whether it is still of these param groups."""
        return [own.keys() for own in self._inside] == \
            [own.keys() for own in _settings(optimizer, self.is_fused, tensors=False)]

    def counts_on_the_host(self, index: int) -> bool:
        """Whether the program's own setting has the counts of a param group there."""
        return index in self._hosted

    def enter(self, optimizer: torch.optim.Optimizer) -> None:
        """Before it steps."""
        if self._outside:
            return
        for index, group in enumerate(optimizer.param_groups):
            for key in self._given[index]:
                self.give(index, key, group[key])
            self._outside.append({key: group[key] for key in self._inside[index] if key in group})
            group.update(self._inside[index])
            if self._inside[index].get("capturable") or self._inside[index].get("fused"):
                _bring_counts(optimizer.state, group["params"])

    def leave(self, optimizer: torch.optim.Optimizer) -> None:
        """After it, however it went."""
        for index, (group, settings) in enumerate(zip(optimizer.param_groups, self._outside)):
            for key in self._inside[index].keys() - settings.keys():
                del group[key]
            group.update(settings)
            if self._rate_is_computed(index) and not torch.cuda.is_current_stream_capturing():
                _bring_counts(optimizer.state, group["params"])  # of state that it has made
        self._outside.clear()

    def _rate_is_computed(self, index: int) -> bool:
        """Whether the update is one of those in device_updates."""
        rate = self._inside[index].get("lr")
        return rate is not None and rate.dtype == torch.float64

    def takes(self, index: int, key: str, value: Any) -> bool:
        """Whether a captured step goes on with this value of a setting."""
        return index < len(self._given) and key in self._given[index] and is_number(value)

    def give(self, index: int, key: str, value: Any) -> None:
        """The tensor gets the number that the program has there; never while a stream is captured."""
        if value != self._given[index][key]:
            if torch.cuda.is_current_stream_capturing():
                raise RuntimeError(f"\"{key}\" changes while the step is captured")
            with torch.no_grad():
                self._inside[index][key].fill_(value)
            self._given[index][key] = value

    def give_all(self, optimizer: torch.optim.Optimizer) -> None:
        """Before a capture."""
        for index, group in enumerate(optimizer.param_groups):
            for key in self._given[index]:
                self.give(index, key, group[key])


def _settings(optimizer: torch.optim.Optimizer, fused: bool, tensors: bool = True) -> List[Dict[str, Any]]:
    """What the param groups hold while the optimizer steps, where that is something else. `tensors`: else None in their
    places."""
    scheduled = has_scheduler(optimizer)
    kind = type(optimizer).__name__
    return [_settings_of(kind, group, scheduled, fused, tensors) for group in optimizer.param_groups]


def _settings_of(kind: str, group: Dict[str, Any], scheduled: bool, fused: bool, tensors: bool) -> Dict[str, Any]:
    parameters = group["params"]
    if not parameters or not parameters[0].is_cuda:
        return {}
    if kind in device_updates.KINDS and not fused and not group.get("fused") and is_number(group.get("lr")):
        # Python computes with doubles. Neither knows `capturable`, which PyTorch looks for in captures all the same.
        return {"capturable": True,
                "lr": torch.zeros((), dtype=torch.float64, device=parameters[0].device) if tensors else None}
    settings: Dict[str, Any] = {}
    may_change = scheduled and is_number(group.get("lr"))
    if group.get("capturable") is False:
        settings["capturable"] = True
    # SGD is never capturable; a fused one takes a rate on the device.
    if fused or (kind == "SGD" and may_change and not group.get("fused") and not group.get("differentiable")):
        settings.update(fused=True, foreach=False)
    takes_tensor = bool(settings or group.get("capturable") or group.get("fused"))
    if is_number(group.get("lr")) and (settings or may_change) and takes_tensor:
        settings["lr"] = torch.zeros((), device=parameters[0].device) if tensors else None
    return settings


def _tensors_in(settings: Dict[str, Any]) -> List[str]:
    return [key for key, value in settings.items() if isinstance(value, torch.Tensor)]


def _bring_counts(state: Any, parameters: List[torch.Tensor]) -> None:
    """Those that the optimizer had before, or loaded."""
    for parameter in parameters:
        own = state.get(parameter)
        for key in _COUNTS if own else ():
            count = own.get(key)
            if isinstance(count, torch.Tensor) and not count.is_cuda:
                own[key] = count.to(parameter.device)


def _with_counts_on_the_host(optimizer: torch.optim.Optimizer, state_dict: Dict[str, Any]) -> Dict[str, Any]:
    """What the optimizer would have saved without PumpGraph."""
    own = known(optimizer)
    state = dict(state_dict["state"])
    for index, group in enumerate(state_dict["param_groups"]):
        if own is None or not own.counts_on_the_host(index):
            continue
        for parameter in group["params"]:
            kept = state.get(parameter, {})
            counts = {key: kept[key].cpu() for key in _COUNTS if isinstance(kept.get(key), torch.Tensor)}
            if counts:
                state[parameter] = {**kept, **counts}
    return {**state_dict, "state": state}
