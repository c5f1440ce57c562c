# SPDX-License-Identifier: Apache-2.0
"""The ways to run a program of programs/: as it is written, with its steps in plain graphs, and under PumpGraph.

A program is a function `main(run)`. It says which functions are its steps, `run.graphed(function)`, or asks for what
its Trainer needs, `run.callbacks(library)`, and ends each turn of its loop with `run.turn(...)` and the numbers that
are compared. In a program of one's own these are `pumpgraph.graphed` and `PumpGraphCallback()`, and there are no
turns."""

from __future__ import annotations

import contextlib
import importlib
import time
import weakref
from typing import Any, Callable, Dict, Iterator, List, Tuple

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook
from torch.utils._pytree import tree_flatten, tree_map

Figures = Dict[str, Any]
# Of each step's report.
REPORTED = ("plan_bound_s", "predicted_s", "in_memory_s", "added_nodes", "hosted_bytes", "budget_bytes")


class Run:
    """A program as it is written. `turns`: how often its loop goes round; the last `timed` count for its times."""

    def __init__(self, turns: int, timed: int, device: str = "cuda"):
        self.turns, self.device = turns, device
        self._timed = timed
        self._values: List[List[str]] = []  # of each turn
        self._ends = [time.perf_counter()]
        self._calls: List[List[Tuple[str, Any, Any]]] = [[]]  # of steps, with events around them, by turn
        self._steps: Dict[str, Any] = {}

    def graphed(self, function: Callable[..., Any]) -> Callable[..., Any]:
        name = function.__name__
        step = self._steps[name] = self._step(function)

        def call(*args: Any, **kwargs: Any) -> Any:
            if self.device != "cuda":
                return step(*args, **kwargs)
            start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            start.record()
            result = step(*args, **kwargs)
            end.record()
            self._calls[-1].append((name, start, end))
            return result

        return call

    def callbacks(self, library: str) -> List[Any]:
        return []

    def turn(self, *values: float) -> None:
        """The end of a turn, and what it has to show."""
        self._values.append([float(value).hex() for value in values])
        self._calls.append([])
        if self.device == "cuda":
            torch.cuda.synchronize()
        self._ends.append(time.perf_counter())
        if len(self._ends) == 2:
            self._begin()

    def figures(self) -> Figures:
        """Of a program that has ended."""
        if len(self._values) != self.turns:
            raise RuntimeError(f"the program went round {len(self._values)} times, not {self.turns}")
        first = self.turns - self._timed
        seconds = [end - start for start, end in zip(self._ends, self._ends[1:])]
        figures: Figures = {
            "losses": [value for turn in self._values for value in turn],
            "turn_ms": [duration * 1e3 for duration in seconds[first:]],
            "first_turns_s": seconds[:first],  # the first of all with building the program
            "peak_bytes": self._peak(),
        }
        timed = self._calls[first:self.turns]
        if any(timed):
            figures["step_ms"] = [sum(start.elapsed_time(end) for _, start, end in calls) for calls in timed]
            figures["calls"] = {name: sum(called == name for calls in timed for called, _, _ in calls) / self._timed
                                for name in self._steps}
        return figures

    def _step(self, function: Callable[..., Any]) -> Callable[..., Any]:
        return function

    def _begin(self) -> None:
        """After the first turn: what building the program took counts no more."""
        if self.device == "cuda":
            torch.cuda.reset_peak_memory_stats()

    def _peak(self) -> int:
        return torch.cuda.max_memory_allocated() if self.device == "cuda" else 0


# ---- plain graphs ----------------------------------------------------------------------------------------------------


class PlainRun(Run):
    """What losses under PumpGraph are compared with: optimizers are made for captures while they step, and each step is
    captured by torch.cuda.graph, unless `captured` is False. Written without PumpGraph."""

    def __init__(self, turns: int, timed: int, warmup: int, captured: bool):
        super().__init__(turns, timed)
        self._warmup, self._captured = warmup, captured
        self._optimizers = CapturableOptimizers()
        self._stream = torch.cuda.Stream()  # of all captures, as they share parameters

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        with self._optimizers.installed():
            yield

    def _step(self, function: Callable[..., Any]) -> Callable[..., Any]:
        return PlainGraphs(function, self._warmup, self._optimizers, self._stream) if self._captured else function

    def figures(self) -> Figures:
        return {**super().figures(), "captured": self._captured}


class PlainGraphs:
    """As PyTorch's manual has it, for each kind of call: eager calls on another stream, then a capture."""

    def __init__(self, function: Callable[..., Any], warmup: int, optimizers: "CapturableOptimizers", stream: Any):
        self._function, self._warmup, self._optimizers, self._stream = function, warmup, optimizers, stream
        self._kinds: Dict[Any, Figures] = {}

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        leaves, structure = tree_flatten((args, kwargs))
        key = (str(structure), *(tuple(leaf.shape) if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves))
        kind = self._kinds.get(key)
        if kind is None:
            args, kwargs = tree_map(_copied, (args, kwargs))
            kind = self._kinds[key] = {"calls": 0, "args": args, "kwargs": kwargs}
        for static, given in zip(tree_flatten((kind["args"], kind["kwargs"]))[0], leaves):
            if isinstance(static, torch.Tensor):
                static.copy_(given)
        kind["calls"] += 1
        if kind["calls"] <= self._warmup:
            return self._eagerly(kind)
        self._optimizers.give_rates()
        if "graph" not in kind:
            kind["graph"] = torch.cuda.CUDAGraph()
            with torch.cuda.graph(kind["graph"], stream=self._stream):
                kind["output"] = tree_map(_detached, self._function(*kind["args"], **kind["kwargs"]))
        kind["graph"].replay()
        return kind["output"]

    def _eagerly(self, kind: Figures) -> Any:
        self._stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._stream):
            result = self._function(*kind["args"], **kind["kwargs"])
        torch.cuda.current_stream().wait_stream(self._stream)
        return tree_map(_detached, result)


def _copied(value: Any) -> Any:
    return value.detach().cuda().clone() if isinstance(value, torch.Tensor) else value


def _detached(value: Any) -> Any:
    return value.detach() if isinstance(value, torch.Tensor) else value


class CapturableOptimizers:
    """PyTorch's optimizers as people make them, with the settings that a capture needs while they step: capturable, SGD
    under a scheduler fused, and a tensor as rate. Outside of step() schedulers find what the program has there."""

    def __init__(self) -> None:
        self._rates: "weakref.WeakKeyDictionary[torch.optim.Optimizer, List[Any]]" = weakref.WeakKeyDictionary()
        self._outside: List[Figures] = []

    @contextlib.contextmanager
    def installed(self) -> Iterator[None]:
        hooks = [register_optimizer_step_pre_hook(self._enter),
                 register_optimizer_step_post_hook(self._leave)]
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()

    def give_rates(self) -> None:
        """Before a replay."""
        for optimizer, rates in self._rates.items():
            for group, rate in zip(optimizer.param_groups, rates):
                if rate is not None:
                    rate.fill_(group["lr"])

    def _enter(self, optimizer: torch.optim.Optimizer, _args: Any, _kwargs: Any) -> None:
        if type(optimizer).__module__.split(".")[:2] != ["torch", "optim"]:
            return
        settings = [_settings_of(optimizer, group) for group in optimizer.param_groups]
        if optimizer not in self._rates:
            self._rates[optimizer] = [torch.zeros((), device="cuda") if "lr" in own else None for own in settings]
        if not torch.cuda.is_current_stream_capturing():
            self.give_rates()
        for group, own, rate in zip(optimizer.param_groups, settings, self._rates[optimizer]):
            if rate is not None:
                own["lr"] = rate
            self._outside.append({name: group[name] for name in own})
            group.update(own)

    def _leave(self, optimizer: torch.optim.Optimizer, _args: Any, _kwargs: Any) -> None:
        for group, own in zip(optimizer.param_groups, self._outside):
            group.update(own)
        self._outside.clear()


def _settings_of(optimizer: torch.optim.Optimizer, group: Figures) -> Figures:
    scheduled = hasattr(optimizer.step, "_wrapped_by_lr_sched")
    settings: Figures = {"capturable": True} if group.get("capturable") is False else {}
    if isinstance(optimizer, torch.optim.SGD) and scheduled and not group["fused"]:
        settings.update(fused=True, foreach=False)
    takes_tensor = settings or group.get("capturable") or group.get("fused")
    if isinstance(group["lr"], (int, float)) and takes_tensor and (settings or scheduled):
        settings["lr"] = None
    return settings


# ---- PumpGraph -------------------------------------------------------------------------------------------------------


def _reported(report: Figures) -> Figures:
    """`measured_s`: what replays under the plan in force took, without what the loop does. `costs`: the node times that
    the other step times are by."""
    plans = report["runtime"]["plans"]
    return {**{key: report.get(key) for key in REPORTED}, "costs": report["runtime"].get("costs"),
            "measured_s": plans[-1]["measured_s"] if plans else None}


class PumpGraphRun(Run):
    """After pumpgraph.install()."""

    def __init__(self, turns: int, timed: int, warmup: int):
        super().__init__(turns, timed)
        self._options = {"warmup": warmup}
        self._callback: Any = None

    def _step(self, function: Callable[..., Any]) -> Any:
        import pumpgraph

        return pumpgraph.graphed(function, **self._options)

    def callbacks(self, library: str) -> List[Any]:
        module = importlib.import_module(f"pumpgraph.integrations.{library}")
        self._callback = module.PumpGraphCallback(graphed=self._options)
        return [self._callback]

    def figures(self) -> Figures:
        """`reports`: of each step."""
        reports = {name: step.report() for name, step in self._steps.items()}
        if self._callback is not None:
            if self._callback.report is None:
                raise RuntimeError("the Trainer has captured no step")
            reports["the Trainer's step"] = self._callback.report
        left = [f"{name} is left as captured: {report.left_as_captured}" for name, report in reports.items()
                if report.left_as_captured]
        if left:
            return {"refused": "; ".join(left)}
        figures = super().figures()
        figures.setdefault("calls", dict.fromkeys(reports, 1.0))
        figures["reports"] = {name: _reported(report) for name, report in reports.items()}
        return figures

    def _begin(self) -> None:
        pass

    def _peak(self) -> int:
        import pumpgraph

        return int(pumpgraph.memory_stats()["device_peak_bytes"])
