# SPDX-License-Identifier: Apache-2.0
"""What a captured optimizer step keeps for ever: settings that are numbers, and the addresses of its state."""

from __future__ import annotations

import contextlib
from operator import is_
from typing import Any, Dict, Iterator, List, NamedTuple, Tuple

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from .device_updates import computed_on_device
from .errors import StaleStepError, UnsupportedError
from .prepared import has_scheduler, known, prepared
from .scalers import decided_on_device


def refuse_baked(optimizer: torch.optim.Optimizer) -> None:
    """Refuses settings that a captured step would keep although the program means to change them. Of PyTorch's own
    optimizers most are prepared by then."""
    kind = type(optimizer).__name__
    for index, group in enumerate(optimizer.param_groups):
        if group.get("capturable") is False:
            raise UnsupportedError(f"param group {index} of {kind} has capturable=False: its step count would be a "
                                   f"number that the captured step keeps; write {kind}(..., capturable=True)")
        rate = group.get("lr")
        if has_scheduler(optimizer) and not isinstance(rate, torch.Tensor):
            raise UnsupportedError(f"a scheduler changes the learning rate of param group {index} of {kind}, which is "
                                   f"the number {rate}, and a captured step would keep it; make it a tensor on the "
                                   f"device: {kind}(..., lr=torch.tensor({rate}, device=\"cuda\"))")
        if isinstance(rate, torch.Tensor) and not rate.is_cuda:
            raise UnsupportedError(f"the learning rate of param group {index} of {kind} is a tensor on the host, of "
                                   "which a captured step would keep the value; make it a number, or bring it to the "
                                   "device")


class Observed(NamedTuple):
    """The optimizers that step, and those whose update a scaler leaves out."""

    stepped: List[torch.optim.Optimizer]
    skipped: List[torch.optim.Optimizer]


@contextlib.contextmanager
def steps_observed() -> Iterator[Observed]:
    """The optimizers that step inside, wherever the step function has them from. Those that cannot be captured are
    refused before they do; others hold meanwhile what a captured step needs."""
    observed = Observed([], [])
    in_parts: List[torch.optim.Optimizer] = []

    def before_step(optimizer: torch.optim.Optimizer, _args: Any, _kwargs: Any) -> None:
        if not any(optimizer is other for other in observed.stepped):
            observed.stepped.append(optimizer)
            # It would warn that a capturable optimizer runs without a capture; it will be captured.
            optimizer._warned_capturable_if_run_uncaptured = True
        own = prepared(optimizer)
        if own is not None:
            own.enter(optimizer)
        refuse_baked(optimizer)

    def after_step(optimizer: torch.optim.Optimizer, _args: Any = (), _kwargs: Any = None) -> None:
        own = known(optimizer)
        if own is not None and not any(optimizer is other for other in in_parts):
            own.leave(optimizer)

    @contextlib.contextmanager
    def stepping(optimizer: torch.optim.Optimizer) -> Iterator[None]:
        before_step(optimizer, (), {})
        in_parts.append(optimizer)
        try:
            yield
        finally:
            in_parts.remove(optimizer)
            after_step(optimizer)

    before, after = register_optimizer_step_pre_hook(before_step), register_optimizer_step_post_hook(after_step)
    try:
        with computed_on_device(), decided_on_device(stepping, (before_step, after_step), observed.skipped):
            yield observed
    finally:
        before.remove()
        after.remove()
        for optimizer in observed.stepped:
            after_step(optimizer)


class CapturedOptimizer:
    """An optimizer as it was when its step was captured."""

    def __init__(self, optimizer: torch.optim.Optimizer):
        self.optimizer = optimizer
        self._prepared = known(optimizer)
        self._tensors: Dict[torch.Tensor, Dict[str, Any]] = {
            parameter: dict(state) for parameter, state in optimizer.state.items()}
        self._parameters = [list(group["params"]) for group in optimizer.param_groups]
        self._settings = [{key: value for key, value in group.items() if key != "params"}
                          for group in optimizer.param_groups]
        self._remember()

    def _remember(self) -> None:
        self._groups, self._state = self.optimizer.param_groups, self.optimizer.state
        self._values = [list(group.values()) for group in self._groups]

    def check(self) -> None:
        """Raises StaleStepError unless a replay does what the optimizer would do now. Called before every replay."""
        optimizer = self.optimizer
        groups = optimizer.param_groups
        if groups is self._groups and optimizer.state is self._state and len(groups) == len(self._values) \
                and len(self._state) == len(self._tensors):
            for index, (group, values) in enumerate(zip(groups, self._values)):
                # Settings that schedulers add come after the others.
                if not all(map(is_, group.values(), values)) and not self._gives_all(index, group):
                    break
            else:
                return
        self._check_all()

    def _gives_all(self, index: int, group: Dict[str, Any]) -> bool:
        """Whether all that changed in a param group has a tensor in its place, which has the new value now."""
        settings = self._settings[index]
        if self._prepared is None or len(group) != len(self._values[index]):
            return False
        changed = [key for key, value in zip(group, self._values[index]) if group[key] is not value]
        if not all(key in settings and self._prepared.takes(index, key, group[key]) for key in changed):
            return False
        for key in changed:
            self._prepared.give(index, key, group[key])
            settings[key] = group[key]
        self._values[index] = list(group.values())
        return True

    def _check_all(self) -> None:
        optimizer, kind = self.optimizer, type(self.optimizer).__name__
        if len(optimizer.param_groups) != len(self._settings):
            raise StaleStepError(f"{kind} had {len(self._settings)} param groups and has {len(optimizer.param_groups)}")
        for index, (group, parameters) in enumerate(zip(optimizer.param_groups, self._parameters)):
            if len(group["params"]) != len(parameters) or not all(map(is_, group["params"], parameters)):
                raise StaleStepError(f"param group {index} of {kind} has other parameters")
        self._take_over_state()
        for index, (group, settings) in enumerate(zip(optimizer.param_groups, self._settings)):
            for key, before in settings.items():
                self._take_over_setting(index, group, key, before)
        self._remember()

    def _take_over_state(self) -> None:
        """load_state_dict() makes new tensors of the state: the captured step's own get their values."""
        state, kind = self.optimizer.state, type(self.optimizer).__name__
        if len(state) != len(self._tensors):
            raise StaleStepError(f"{kind} had state for {len(self._tensors)} parameters and has it for {len(state)}")
        pairs: List[Tuple[Dict[str, Any], str, Any]] = []
        for parameter, before in self._tensors.items():
            now = state.get(parameter, {})
            for key in {**before, **now}:
                if not _may_take(before.get(key), now.get(key)):
                    raise StaleStepError(f"\"{key}\" in the state of {kind} was replaced by something else")
                if now[key] is not before[key]:
                    pairs.append((now, key, before[key]))
        _take_values(pairs)

    def _take_over_setting(self, index: int, group: Dict[str, Any], key: str, before: Any) -> None:
        now = group.get(key)
        if now is before:
            return
        if self._prepared is not None and self._prepared.takes(index, key, now):
            self._prepared.give(index, key, now)
            self._settings[index][key] = now
            return
        if not _may_take(before, now):
            kind = type(self.optimizer).__name__
            raise StaleStepError(f"\"{key}\" of param group {index} of {kind} was {before} when the step was captured "
                                 f"and is {now}")
        _take_values([(group, key, before)])


def _may_take(before: Any, now: Any) -> bool:
    """Whether what was captured can go on with the value that is there now."""
    if isinstance(before, torch.Tensor) and isinstance(now, torch.Tensor):
        return before.shape == now.shape and before.dtype == now.dtype
    if isinstance(before, torch.Tensor) or isinstance(now, torch.Tensor):
        return False
    return type(before) is type(now) and before == now


def _take_values(pairs: List[Tuple[Dict[str, Any], str, Any]]) -> None:
    """Tensors that were captured get the values of those in their places, and the places."""
    with torch.no_grad():
        for holder, key, before in pairs:
            if isinstance(before, torch.Tensor):
                before.copy_(holder[key])
            holder[key] = before
