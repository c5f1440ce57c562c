# SPDX-License-Identifier: Apache-2.0
"""How slow a step would be at budgets that it does not have, from its capture alone.

The step is captured, or was captured before, and pump-graph-opt plans it once for each budget. Nothing runs under these
budgets, so they need not fit this device.
"""

from __future__ import annotations

import html
import json
import os
import re
import subprocess
import tempfile
from pathlib import Path
from typing import Any, Dict, Iterable, List, NamedTuple, Optional, Sequence, Tuple, Union

from ._report import bar
from ._sizes import format_size, parse_size
from ._text import printable
from ._tools import program
from .errors import PumpGraphError, Status, invalid

Budget = Union[int, str]
PathLike = Union[str, "os.PathLike[str]"]

SHARES = ("75%", "50%", "33.3%", "25%")
_AS_FAST = 1.05  # times the step in memory, or less: nothing to gain
_CHEAP = 1.25


class AtBudget(NamedTuple):
    """The step at one budget. A step without a plan there has a `refusal`, and its other figures are 0."""

    budget_bytes: int
    predicted_s: float
    slowdown: float  # predicted, over the step in memory
    moved_bytes: int  # over the link, both directions together
    again_s: float  # of nodes that run again
    hosted_bytes: int  # that kernels reach over the link
    limited_by: str
    refusal: Optional[str] = None


class Prediction:
    """`print()` shows it as text, a notebook as a picture.

    Attributes:
        name: of the step.
        peak_bytes: device memory that the step takes as it is.
        in_memory_s: seconds of the step as it is.
        node_times: "static" for estimates, "measured" for times of this step, None if nobody knows.
        rows: one AtBudget for each budget, largest first.
        checkpointing_bytes: what is left of the peak without the values that kernels are known to be able to compute
            again, which is about what activation checkpointing needs. None if nothing is known.
    """

    def __init__(self, report: Dict[str, Any], node_times: Optional[str], rows: List[AtBudget]):
        """`report`: of any of the plans."""
        self.name = str(report.get("name", "step"))
        self.node_times, self.rows = node_times, rows
        self.peak_bytes: int = report["peak_bytes_before"]
        self.in_memory_s: float = report["in_memory_s"]
        again = (report.get("remakeable") or {}).get("again_bytes")
        self.checkpointing_bytes: Optional[int] = self.peak_bytes - again if again else None

    def advice(self) -> List[str]:
        """Sentences, the most useful first."""
        said = []
        planned = [row for row in self.rows if row.refusal is None]
        if any(row.budget_bytes >= self.peak_bytes for row in planned):
            said.append(f"From {format_size(self.peak_bytes)} on the step needs no plan.")
        for most, text in ((_AS_FAST, "as fast as in memory"), (_CHEAP, f"at most {_CHEAP} times the step in memory")):
            least = min((row.budget_bytes for row in planned if row.slowdown <= most), default=None)
            if least is not None and least < self.peak_bytes:
                said.append(f"{format_size(least)} is enough for a step that is {text}.")
                break
        if self.checkpointing_bytes is not None:
            size = format_size(self.checkpointing_bytes)
            said.append(f"Activation checkpointing alone needs about {size}, and takes up to another forward pass. "
                        "Plans compute values again where that is faster than the link.")
        slow = [row for row in planned if row.slowdown > 2]
        if slow and all(row.limited_by.startswith("link") for row in slow):
            said.append(f"At {format_size(slow[0].budget_bytes)} and below the link is the limit: a smaller batch has "
                        "fewer activations to move.")
        return said

    def __str__(self) -> str:
        lines = [self._title(),
                 f"  {'budget':>12}  {'ms':>8}  {'x in memory':>11}  {'moved':>10}  {'run again, ms':>13}  limited by"]
        lines += [f"  {line}" for line in map(self._line, self.rows)]
        return "\n".join(map(printable, [*lines, *self.advice()]))

    def _title(self) -> str:
        times = f", {_NODE_TIMES[self.node_times]}" if self.node_times in _NODE_TIMES else ""
        in_memory = f"{format_size(self.peak_bytes)} and {self.in_memory_s * 1e3:.1f} ms in memory"
        return f"step \"{self.name}\": {in_memory}{times}"

    @staticmethod
    def _line(row: AtBudget) -> str:
        budget = f"{format_size(row.budget_bytes):>12}"
        if row.refusal is not None:
            return f"{budget}  no plan: {row.refusal}"
        return (f"{budget}  {row.predicted_s * 1e3:8.1f}  {row.slowdown:11.2f}  {format_size(row.moved_bytes):>10}  "
                f"{row.again_s * 1e3:13.1f}  {row.limited_by}")

    def _repr_html_(self) -> str:
        slowest = max((row.slowdown for row in self.rows), default=1.0)
        rows = "".join(f"<tr><td>{format_size(row.budget_bytes)}</td><td>{_cell(row, slowest)}</td></tr>"
                       for row in self.rows)
        said = "".join(f"<p>{html.escape(text)}</p>" for text in self.advice())
        return f"<table><caption>{html.escape(printable(self._title()))}</caption>{rows}</table>{said}"


_NODE_TIMES = {"static": "by estimated node times", "measured": "by measured node times"}


def _cell(row: AtBudget, slowest: float) -> str:
    if row.refusal is not None:
        return html.escape(printable(f"no plan: {row.refusal}"))
    return (f"{bar(row.slowdown, slowest)} {row.predicted_s * 1e3:.1f} ms, {row.slowdown:.2f} x, limited by "
            f"{html.escape(row.limited_by)}")


def predict(step: Any, budgets: Iterable[Budget] = SHARES, *, private: Any = (), inputs: Any = (), warmup: int = 3,
            effort: str = "default", rematerialize: str = "automatic", timeout: float = 600.0) -> Prediction:
    """Predicts the time of a step under other budgets, without running it under them.

    Args:
        step: a function without arguments, which is captured as by capture(), under the budget that is installed, and
            then dropped; or a Step or a graphed function that is captured already; or the path of a step saved by
            save(), which needs neither PyTorch nor a GPU.
        budgets: bytes, text such as "16GiB", or shares of the step's own peak such as "50%". Default 75, 50, 33.3 and
            25 %.
        private, inputs, warmup: for a function, as capture() has them.
        effort: "low" plans in a fraction of the time, for plans that are some percent slower. Default "default".
        rematerialize: "never" plans without running kernels again.
        timeout: seconds that the plan of one budget may take.

    Returns:
        A Prediction, of the last replayed graph of a graphed function. Node times are those of the step: measured ones
        once it was measured, else estimates. The link is the session's; for a file 55 GB/s each way.

    Raises:
        PumpGraphError: INVALID_ARGUMENT for arguments, a file that holds no step, or no plan at any of these budgets;
            INTERNAL if pump-graph-opt is not there, or takes longer than `timeout`.
        Whatever capture() raises, for a function.
    """
    wanted = [_option_of(budget) for budget in budgets]
    if not wanted:
        raise invalid("no budgets: there is nothing to predict")
    options = [f"--plan-effort={effort}", f"--rematerialize={rematerialize}"]
    with tempfile.TemporaryDirectory() as folder:
        path, node_times, link = _saved(step, Path(folder) / "step.mlir.gz", private, inputs, warmup)
        options += [f"--{name}={link[key] / 1e9:.3f}" for name, key in _LINK.items() if link.get(key)]
        plans = {budget: _plan(path, budget, options, timeout) for budget in wanted}
    reports = [plan for plan in plans.values() if not isinstance(plan, str)]
    if not reports:
        raise invalid(f"there is no plan at any of these budgets: {plans[wanted[0]]}")
    peak = reports[0]["peak_bytes_before"]
    rows = [_refused(budget, peak, plan) if isinstance(plan, str) else _row(plan) for budget, plan in plans.items()]
    return Prediction(reports[0], node_times, sorted(rows, key=lambda row: -row.budget_bytes))


def _option_of(budget: Budget) -> str:
    if isinstance(budget, str) and budget.strip().endswith("%"):
        try:
            share = float(budget.strip()[:-1])
        except ValueError:
            share = 0.0
        if not 0 < share <= 100:
            raise invalid(f"budget \"{budget}\" is no share of the step's peak; write it like \"50%\"")
        return f"{share:g}%"
    return str(parse_size(budget, "budget"))


_LINK = {"up": "up_bytes_per_second", "down": "down_bytes_per_second", "both": "both_bytes_per_second"}
_COSTS = ("static", "measured")


def _saved(step: Any, path: Path, private: Any, inputs: Any, warmup: int) -> Tuple[Path, Optional[str], Dict[str, Any]]:
    """The file of the step, what its node times are by, and the session's link."""
    if isinstance(step, (str, os.PathLike)):
        found = Path(step).absolute()
        if not found.is_file():
            raise invalid(f"there is no file {printable(found)}")
        return found, None, {}
    if hasattr(step, "save") and hasattr(step, "report"):
        step.save(path)
        runtime = step.report().get("runtime") or {}
        costs = runtime.get("costs")  # those of another step's file plan, and are not saved
        return path, costs if costs in _COSTS else None, runtime.get("link") or {}
    if not callable(step):
        raise invalid(f"{type(step).__qualname__} is no step: a function, a captured step or a file is wanted")
    return _captured(step, path, private, inputs, warmup)


def _captured(fn: Any, path: Path, private: Any, inputs: Any,
              warmup: int) -> Tuple[Path, Optional[str], Dict[str, Any]]:
    """Captures a function for this alone. Gradients are those of its last warm-up call again."""
    import torch

    from .torch_capture import Things, capture

    gradients: List[Tuple[torch.Tensor, Optional[torch.Tensor]]] = []

    def watched() -> Any:
        if torch.cuda.is_current_stream_capturing() and not gradients:
            gradients.extend(Things(private).gradients())
        return fn()

    try:
        step = capture(watched, warmup=warmup, private=private, inputs=inputs, keep_first_plan=True,
                       name=getattr(fn, "__name__", "step"))
        try:
            return _saved(step, path, private, inputs, warmup)
        finally:
            step.close()
    finally:
        for parameter, gradient in gradients:
            parameter.grad = gradient


def _plan(path: Path, budget: str, options: Sequence[str], timeout: float) -> Union[Dict[str, Any], str]:
    """The report of a plan; if there is none, the reason."""
    command = [str(program("pump-graph-opt")), str(path), f"--budget={budget}", "--report=json", *options]
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              timeout=timeout)
    except subprocess.TimeoutExpired:
        raise PumpGraphError(Status.INTERNAL, f"no plan at {budget} within {timeout:g} s; effort=\"low\" is "
                             "quicker") from None
    if done.returncode == 0:
        return dict(json.loads(done.stdout))
    said = done.stderr.decode(errors="replace")
    reason = re.search(r"error: (.*)", said)
    if not reason or not _NO_PLAN.search(reason.group(1)):
        raise invalid(f"pump-graph-opt: {printable(reason.group(1) if reason else said.strip()[-300:])}")
    return reason.group(1)


_NO_PLAN = re.compile(r"the budget is|the budget holds|no frames found|host memory")


def _refused(budget: str, peak: int, reason: str) -> AtBudget:
    size = int(peak * float(budget[:-1]) / 100) if budget.endswith("%") else int(budget)
    return AtBudget(size, 0.0, 0.0, 0, 0.0, 0, "", reason)


def _row(report: Dict[str, Any]) -> AtBudget:
    slowdown = report["predicted_s"] / report["in_memory_s"] if report["in_memory_s"] > 0 else 1.0
    return AtBudget(report["budget_bytes"], report["predicted_s"], slowdown,
                    report["up_bytes"] + report["down_bytes"], (report.get("repeated") or {}).get("time_s", 0.0),
                    report["hosted_bytes"], report["limited_by"])
