# SPDX-License-Identifier: Apache-2.0
"""The report of a step: the library's JSON (docs/reference/report.md) as a dict that prints as text."""

from __future__ import annotations

import html
from typing import Any, Iterator, List, Optional, Tuple

from ._sizes import format_size
from ._text import printable

_STALLS_SHOWN = 5


class Report(dict):
    """A step's report: a dict with the keys of docs/reference/report.md. `print(report)` shows the main figures.

    Keys ending in `_s` are seconds, in `_ms` milliseconds, in `_bytes` bytes.
    """

    @property
    def left_as_captured(self) -> Optional[str]:
        """The reason why the step replays exactly as captured; None if it is rewritten."""
        return self._runtime().get("left_as_captured")

    @property
    def backend_why(self) -> Optional[str]:
        """The kind of memory under the session (virtual or managed) with its reason; None if the report has none."""
        return self._runtime().get("backend_why")

    @property
    def warnings(self) -> List[str]:
        """Known causes of slow replays, such as paging by the driver; empty if there are none."""
        return self._runtime().get("warnings") or []

    @property
    def replans_by_itself(self) -> bool:
        """Whether the step is planned again if its first replays miss the prediction."""
        return bool(self._runtime().get("replans_by_itself"))

    @property
    def planned_again(self) -> List[str]:
        """Steps that have new plans, so that this one shares their boundary."""
        return self._runtime().get("planned_again") or []

    @property
    def few_nodes(self) -> Optional[str]:
        """A warning about damaged measured times, where few nodes take nearly all of the time; otherwise None."""
        return (self.get("few_nodes") or {}).get("warning")

    def _runtime(self) -> dict:
        """The part that the capturing process adds to the plan's figures."""
        return self.get("runtime") or {}

    def __str__(self) -> str:
        name, nodes, buffers = self.get("name", "step"), self.get("nodes", "?"), self.get("buffers", "?")
        lines = [f"step \"{name}\": {nodes} nodes, {buffers} buffers"]
        if self.get("verdict"):
            lines.append(str(self["verdict"]))
        if self.few_nodes:
            lines.append(f"WARNING: {self.few_nodes}")
        if self.left_as_captured:
            lines.append(f"left as captured: {self.left_as_captured}")
        lines += [f"  {label:<22}{figure}" for label, figure in self._figures()]
        lines += self._stalls()
        lines += [f"  {'sweeps':<22}{sweeps.get('verdict')}" for sweeps in self.get("repeated_sweeps") or []]
        lines += [f"  warning: {warning}" for warning in self.warnings]
        lines += [f"  note: {note}" for note in self._runtime().get("notes", [])]
        return "\n".join(map(printable, lines))  # names are from outside: they make no lines, and nothing obeys them

    def _repr_html_(self) -> str:
        """In a notebook: its times as bars, above the text."""
        times = [(label, self[key]) for key, label in _TIMES if self.get(key) is not None]
        longest = max((time for _, time in times), default=0.0)
        rows = "".join(f"<tr><td>{label}</td><td>{bar(time, longest)} {_milliseconds(time)}</td></tr>"
                       for label, time in times)
        return f"<table>{rows}</table><pre>{html.escape(str(self))}</pre>"

    def _figures(self) -> Iterator[Tuple[str, str]]:
        if self.backend_why:
            yield "memory", self.backend_why
        known = ", ".join(f"{count} {evidence}" for evidence, count in self.get("accesses", {}).items() if count)
        if known:
            yield "accesses", known
        for key, label in _SIZES:
            if self.get(key) is not None:
                yield label, format_size(self[key])
        if self.get("hosted_bytes"):
            yield "hosted", (f"{format_size(self['hosted_bytes'])} always in host memory, "
                             f"{_milliseconds(self.get('hosted_link_s', 0))} on the link")
        if (self.get("repeated") or {}).get("nodes"):
            yield "run again", f"{self['repeated']['nodes']} nodes, {_milliseconds(self['repeated']['time_s'])}"
        if self.get("continuations"):
            size = format_size(self["continued_bytes"])
            yield "renamed", f"{size} go on at another address, in other frames or hosted"
        for key, label in _TIMES:
            if self.get(key) is not None:
                yield label, _milliseconds(self[key])
        if self.get("ranks"):
            yield "slowest rank", self._slowest_rank(self["ranks"])
        if self._runtime().get("costs"):
            yield "node times", _COSTS.get(self._runtime()["costs"], self._runtime()["costs"])
        if self.get("added_nodes") is not None:
            yield "added", f"{self['added_nodes']} nodes, {self.get('added_edges', 0)} edges"
        if self.get("plan_ms") is not None:
            yield "planned in", f"{self['plan_ms']:.0f} ms"
        stages = [(key[:-3], value) for key, value in self._runtime().items() if key.endswith("_ms")]
        if stages:
            each = ", ".join(f"{stage} {ms:.0f}" for stage, ms in stages)
            yield "adopted in", f"{sum(ms for _, ms in stages):.0f} ms: {each}"

    @staticmethod
    def _slowest_rank(ranks: List[dict]) -> str:
        """By prediction: a measured time includes the wait for other ranks."""
        slowest = max(ranks, key=lambda each: each.get("predicted_s") or 0)
        text = f"{slowest['rank']} of {len(ranks)}, predicted {_milliseconds(slowest.get('predicted_s') or 0)}, of " \
               f"which {_milliseconds(slowest.get('stall_s') or 0)} are stalls"
        left = [str(each["rank"]) for each in ranks if each.get("left_as_captured")]
        return text + (f"; as captured: {', '.join(left)}" if left else "")

    def _stalls(self) -> List[str]:
        stalls = self.get("stalls") or []
        if not stalls:
            return []
        total = sum(stall.get("duration_s", 0) for stall in stalls)
        lines = [f"  {'stalls':<22}{len(stalls)}, {_milliseconds(total)} in all; the longest:"]
        lines += [f"    {_stall(stall)}" for stall in stalls[:_STALLS_SHOWN]]
        return lines


_SIZES = (
    ("budget_bytes", "budget"),
    ("peak_bytes_before", "peak before"),
    ("peak_bytes", "peak after"),
    ("host_bytes", "host memory"),
    ("up_bytes", "moved up"),
    ("down_bytes", "moved down"),
)
_COSTS = {"static": "estimated", "saved": "of a saved step", "measured": "measured on this step"}
_TIMES = (
    ("in_memory_s", "in memory"),
    ("bound_s", "bound"),
    ("plan_bound_s", "plan bound"),
    ("predicted_s", "predicted"),
)


def bar(value: float, longest: float) -> str:
    """HTML of a bar as long as `value` is of `longest`."""
    width = 200 * value / longest if longest > 0 else 0
    return f"<div style=\"background:#4a7fb5;display:inline-block;height:0.8em;width:{width:.0f}px\"></div>"


def _shortened(name: str, length: int = 60) -> str:
    """Kernel names are long, and differ at both ends."""
    if len(name) <= length:
        return name
    tail = (length - 3) // 2
    return f"{name[: length - 3 - tail]}...{name[-tail:]}"


def _milliseconds(seconds: float) -> str:
    return f"{seconds * 1e3:.2f} ms"


def _stall(stall: Any) -> str:
    return (
        f"node {stall.get('node')} \"{stall.get('node_label') or _shortened(stall.get('node_name', ''))}\" "
        f"waits {_milliseconds(stall.get('duration_s', 0))} for \"{stall.get('buffer_name', '')}\" "
        f"({format_size(stall.get('transfer_bytes', 0))} {stall.get('direction', '')}) "
        f"at {_milliseconds(stall.get('at_s', 0))}"
    )
