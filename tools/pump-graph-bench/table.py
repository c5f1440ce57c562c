# SPDX-License-Identifier: Apache-2.0
"""From the figures of the runs to Markdown: a table per example, and what was promised against what was measured."""

from __future__ import annotations

import statistics
from typing import Any, Dict, Iterator, List, Optional, Sequence, Tuple

from cells import decimal, gib, ms, quotient, spread
from runs import PERCENTAGES, Example, report_of

Done = Dict[str, Dict[str, Any]]

# Device memory beyond the budget that has nothing to do with it: the executable graph, and loaded kernels.
DEVICE_CONSTANT_BYTES = 256 << 20


class Rows:
    """The figures of one example, repeats together."""

    def __init__(self, example: Example, done: Done):
        self.example = example
        self._done = {
            key.split("/", 1)[1]: figures
            for key, figures in done.items()
            if key.startswith(example.name + "/") and "error" not in figures
        }
        self.errors = {
            key: figures["error"]
            for key, figures in done.items()
            if key.startswith(example.name + "/") and "error" in figures
        }

    def first(self, row: str) -> Optional[Dict[str, Any]]:
        return self._done.get(f"{row}/0")

    def all(self, row: str) -> List[Dict[str, Any]]:
        return [figures for key, figures in sorted(self._done.items()) if key.rsplit("/", 1)[0] == row]

    def samples(self, row: str) -> List[float]:
        return [sample for figures in self.all(row) for sample in figures["step_ms"]]

    def step_ms(self, row: str) -> Optional[float]:
        samples = self.samples(row)
        return statistics.median(samples) if samples else None


def markdown(chosen: Sequence[Example], done: Done) -> str:
    parts = []
    for example in chosen:
        rows = Rows(example, done)
        parts.append("\n".join([*_head(rows), *_budgets(rows), "", *_checks(rows), *_errors(rows)]))
    return "\n\n".join(parts) + "\n"


def _head(rows: Rows) -> Iterator[str]:
    plain = rows.first("plain") or {}
    yield f"## {rows.example.title}"
    device = " on one " + plain["device"] if plain.get("device") else ""
    times, peak = spread(rows.samples("plain"), " ms"), gib(plain.get("peak_bytes"))
    yield f"Native allocator, same captured graph{device}: {times}, peak {peak}."
    host = rows.step_ms("host")
    native = rows.step_ms("plain")
    if host is not None:
        times = f", {host / native:.0f} times as long" if native else ""
        yield f"Wholly host-backed, unchanged: {host:,.0f} ms a step{times}."
    yield ""


_COLUMNS = (
    "budget", "peak", "step, ms", "x in memory", "bound", "plan bound", "/ plan bound", "up", "down", "nodes added",
    "planned in", "20 losses",
)


def _budgets(rows: Rows) -> Iterator[str]:
    yield "| " + " | ".join(_COLUMNS) + " |"
    yield "|" + " --- |" * len(_COLUMNS)
    for row in ("full", *map(str, PERCENTAGES)):
        figures = rows.first(row)
        name = "page-granular peak" if row == "full" else f"{row} %"
        cells = [name] + (["-"] * (len(_COLUMNS) - 1) if figures is None else _cells(rows, row, figures))
        yield "| " + " | ".join(cells) + " |"


def _cells(rows: Rows, row: str, figures: Dict[str, Any]) -> List[str]:
    report = report_of(figures)
    step, native = rows.step_ms(row), rows.step_ms("plain")
    plan_bound = ms(report.get("plan_bound_s"))
    return [
        gib(figures["peak_bytes"]),
        spread(rows.samples(row), unit=""),
        quotient(step, native),
        decimal(ms(report.get("bound_s"))),
        decimal(plan_bound),
        quotient(step, plan_bound),
        gib(report.get("up_bytes")),
        gib(report.get("down_bytes")),
        str(report.get("added_nodes", "-")),
        f"{report['plan_ms']:.0f} ms" if report.get("plan_ms") is not None else "-",
        _losses(rows, row),
    ]


def _losses(rows: Rows, row: str) -> str:
    plain = rows.all("plain")
    if not plain:
        return "-"
    reference = plain[0]["losses"]
    if any(figures["losses"] != reference for figures in plain[1:]):
        return "plain disagrees with itself"
    return "equal" if all(figures["losses"] == reference for figures in rows.all(row)) else "DIFFERENT"


# ---- promises --------------------------------------------------------------------------------------------------------


def _checks(rows: Rows) -> Iterator[str]:
    for kept, text in checks(rows):
        yield f"* {'kept' if kept else 'BROKEN'}: {text}"


def checks(rows: Rows) -> Iterator[Tuple[bool, str]]:
    """What was promised of this example, as far as its runs can tell."""
    yield from _check_losses(rows)
    yield from _check_sequence(rows)
    yield from _check_full(rows)
    yield from _check_half(rows)
    yield from _check_device_memory(rows)
    yield from _check_start(rows)


def _planned(rows: Rows) -> List[Tuple[str, Dict[str, Any]]]:
    return [(row, figures) for row in ("full", *map(str, PERCENTAGES)) for figures in rows.all(row)]


def _check_losses(rows: Rows) -> Iterator[Tuple[bool, str]]:
    plain = rows.all("plain")
    if not plain:
        return
    if len(plain) > 1:
        agrees = all(figures["losses"] == plain[0]["losses"] for figures in plain)
        verb = "agrees" if agrees else "does not agree"
        yield agrees, f"the unmodified step {verb} with itself over {len(plain)} runs"
    planned = _planned(rows)
    equal = sum(figures["losses"] == plain[0]["losses"] for _, figures in planned)
    if planned:
        count = len(plain[0]["losses"])
        text = (f"{count} losses equal the unmodified step's bit for bit in {equal} of {len(planned)} runs under a "
                "budget")
        yield equal == len(planned), text


def _check_sequence(rows: Rows) -> Iterator[Tuple[bool, str]]:
    sequences = [f["sequence"] for row in ("record", "host") for f in rows.all(row) if "sequence" in f]
    sequences += [figures["sequence"] for _, figures in _planned(rows) if "sequence" in figures]
    if sequences:
        digests = {sequence["sha256"] for sequence in sequences}
        # A step without nodes would make every digest the same.
        kept = len(digests) == 1 and sequences[0]["nodes"] > 0
        what = "1 sequence" if len(digests) == 1 else f"{len(digests)} sequences"
        yield kept, f"{what} of captured nodes in {len(sequences)} runs ({sequences[0]['nodes']} nodes)"


def _check_full(rows: Rows) -> Iterator[Tuple[bool, str]]:
    figures, step, native = rows.first("full"), rows.step_ms("full"), rows.step_ms("plain")
    if figures is None or step is None or native is None:
        return
    added = report_of(figures).get("added_nodes")
    yield added == 0, f"at the page-granular peak {added} nodes are added"
    yield step <= 1.02 * native, f"there the step takes {step / native:.3f} of the native one (at most 1.02)"


def _check_half(rows: Rows) -> Iterator[Tuple[bool, str]]:
    figures, step = rows.first("50"), rows.step_ms("50")
    plan_bound = ms(report_of(figures).get("plan_bound_s"))
    if step is None or not plan_bound:
        return
    text = f"at 50 % the step takes {step / plan_bound:.2f} of the plan bound (at most 1.25)"
    kept = step <= 1.25 * plan_bound
    if not kept:
        stalls = report_of(figures).get("stalls") or []
        waits = ", ".join(f"\"{stall['buffer_name']}\" {stall['duration_s'] * 1e3:.1f} ms" for stall in stalls[:3])
        text += f"; it waits for {waits or 'nothing that was predicted'}"
    yield kept, text


def _check_device_memory(rows: Rows) -> Iterator[Tuple[bool, str]]:
    host = rows.first("host")
    if host is None:
        return
    # The process without any frame of the session's: the run with an empty plan, less the frames it did get.
    base = host["device_used_bytes"] - host["memory"]["device_bytes"]
    worst = None
    for _, figures in _planned(rows):
        over = figures["device_used_bytes"] - base - figures["memory"]["budget_bytes"]
        worst = over if worst is None else max(worst, over)
    if worst is not None:
        text = (f"device memory beyond that of a run with an empty plan exceeds the budget by at most "
                f"{worst / 2**20:.0f} MiB (stated: {DEVICE_CONSTANT_BYTES >> 20} MiB)")
        yield worst <= DEVICE_CONSTANT_BYTES, text


def _check_start(rows: Rows) -> Iterator[Tuple[bool, str]]:
    if rows.example.name != "gpt2":
        return
    seconds = [start_seconds(figures) for _, figures in _planned(rows)]
    if seconds:
        worst = max(seconds)
        yield worst < 3, f"from capture to the first rewritten replay {worst:.2f} s at most (under 3), pinning aside"


def start_seconds(figures: Dict[str, Any]) -> float:
    timings = figures["timings"]
    parts = ("rehearsal_s", "capture_s", "adopt_s", "instantiate_s", "first_replay_s")
    pinned_ms = (report_of(figures).get("runtime") or {}).get("pinned_ms", 0)
    return sum(timings.get(part, 0) for part in parts) - pinned_ms / 1e3


def _errors(rows: Rows) -> Iterator[str]:
    for key, error in sorted(rows.errors.items()):
        yield f"* NOT RUN: {key}: {error}"


# ---- figures ---------------------------------------------------------------------------------------------------------
