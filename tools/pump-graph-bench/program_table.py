# SPDX-License-Identifier: Apache-2.0
"""From the figures of the programs to Markdown: a row each, and what was promised against what was measured. And which
of them are kept in the repository."""

from __future__ import annotations

import math
import statistics
from pathlib import Path
from typing import Any, Dict, Iterator, List, Optional, Sequence, Tuple

import sentinel_kept
from cells import decimal, gib, in_gib, ms, quotient, spread, table
from program_rows import BY_NAME, SHARE, Done, Program, lines_changed, row_key
from sentinel_table import Losses, compare_losses, count_range

Figures = Dict[str, Any]

MOST_OVER_BOUND = 1.12  # in the geometric mean
LEAST_OVER_BOUND = 0.97  # node times and link are measured too, within some percent


class Rows:
    """The figures of one program, repeats together."""

    def __init__(self, program: Program, done: Done):
        self.program = program
        self._done = done

    def result(self, kind: str) -> Figures:
        """Of the first run, also if it failed."""
        return self._done.get(row_key(self.program, kind, 0), {})

    def measured(self, kind: str) -> List[Figures]:
        prefix = row_key(self.program, kind, 0)[:-1]
        return [figures for key, figures in sorted(self._done.items())
                if key.startswith(prefix) and "turn_ms" in figures]

    def samples(self, kind: str, name: str = "turn_ms") -> List[float]:
        """Of turns, or of the steps in them."""
        return [sample for figures in self.measured(kind) for sample in figures.get(name, [])]

    def median(self, kind: str, name: str = "turn_ms") -> Optional[float]:
        samples = self.samples(kind, name)
        return statistics.median(samples) if samples else None

    def of_reports(self, name: str) -> Optional[float]:
        """Milliseconds of all steps of a turn, from their reports."""
        figures = next(iter(self.measured("pumpgraph")), None)
        if figures is None:
            return None
        seconds = [(figures["calls"][step], report.get(name)) for step, report in figures["reports"].items()]
        if not seconds or any(each is None for _, each in seconds):
            return None
        return ms(sum(calls * each for calls, each in seconds))

    def doubt(self) -> str:
        """What to say beside figures of reports: those by estimated node times may be far off."""
        figures = next(iter(self.measured("pumpgraph")), {})
        estimated = any(report.get("costs") == "static" for report in figures.get("reports", {}).values())
        return "†" if estimated else ""

    def steps(self) -> Optional[float]:
        """Milliseconds of a turn's steps with their inputs; of a Trainer's, whose loop does not tell them apart, what
        replays took."""
        return self.median("pumpgraph", "step_ms") or self.of_reports("measured_s")

    def over_bound(self) -> Optional[float]:
        step, bound = self.steps(), self.of_reports("plan_bound_s")
        return step / bound if step and bound else None

    def errors(self) -> Iterator[Tuple[str, str]]:
        for key, figures in sorted(self._done.items()):
            if key.startswith(self.program.name + "/") and "error" in figures:
                yield key, figures["error"]


def outcome(figures: Figures) -> str:
    """A row in one line, for people who wait."""
    for trouble in ("error", "refused"):
        if trouble in figures:
            return f"{trouble}: {figures[trouble]}"
    parts = [f"{statistics.median(figures['turn_ms']):.1f} ms a turn", f"peak {gib(figures['peak_bytes'])}"]
    bounds = [report["plan_bound_s"] for report in figures.get("reports", {}).values() if report.get("plan_bound_s")]
    if bounds:
        by = {report["costs"] for report in figures["reports"].values() if report.get("costs")}
        parts.append(f"plan bounds {', '.join(f'{bound * 1e3:.1f}' for bound in bounds)} ms"
                     + (f" by {' and '.join(sorted(by))} node times" if by else ""))
    if figures.get("seconds"):
        parts.append(f"{figures['seconds']:.0f} s in all")
    return ", ".join([*parts, *figures.get("warned", [])])


def markdown(chosen: Sequence[Program], done: Done) -> str:
    every = [Rows(program, done) for program in chosen]
    lines = [*table(_COLUMNS, map(_cells, every)), ""]
    lines += _promises(every)
    lines += [f"* NOT RUN: {key}: {error}" for rows in every for key, error in rows.errors()]
    return "\n".join(lines).rstrip("\n") + "\n"


_COLUMNS = (
    "program", "peak in memory, GiB", "plain, ms", "plain graph, ms", f"PumpGraph at 1/{SHARE}, ms", "its steps, ms",
    "plan bound, ms; over it", "predicted, ms", "lines changed",
)


def first_clause(message: str) -> str:
    """Of a refusal, without its advice and its figures."""
    return message.split("; ")[0].split(" (")[0]


def _cells(rows: Rows) -> List[str]:
    program, result = rows.program, rows.result("pumpgraph")
    uncaptured = f"- ({program.uncaptured})" if program.uncaptured else None
    cells = [
        program.title,
        in_gib(rows.result("eager").get("peak_bytes")),
        spread(rows.samples("eager")),
        uncaptured or spread(rows.samples("graph")),
    ]
    if "refused" in result:
        return cells + [f"refused: {first_clause(result['refused'])}"] + ["-"] * (len(_COLUMNS) - len(cells) - 1)
    return cells + [
        spread(rows.samples("pumpgraph")),
        decimal(rows.steps()),
        f'{decimal(rows.of_reports("plan_bound_s"))}{rows.doubt()}; {quotient(rows.over_bound(), 1)}',
        decimal(rows.of_reports("predicted_s")) + rows.doubt(),
        str(lines_changed(program)),
    ]


# ---- promises --------------------------------------------------------------------------------------------------------


def all_kept(chosen: Sequence[Program], done: Done) -> bool:
    failed = any(True for program in chosen for _ in Rows(program, done).errors())
    return not failed and all(kept for kept, _ in checks(chosen, done))


def checks(chosen: Sequence[Program], done: Done) -> Iterator[Tuple[bool, str]]:
    """What was promised, as far as the rows that were run can tell."""
    every = [Rows(program, done) for program in chosen]
    for rows in every:
        yield from _check_program(rows)
    yield from _check_all(every)


def _promises(every: Sequence[Rows]) -> Iterator[str]:
    """Of single programs only what is broken: the table has the figures of the others."""
    outcomes = [outcome for rows in every for outcome in _check_program(rows)]
    yield from (f"* BROKEN: {text}" for kept, text in outcomes if not kept)
    yield f"* kept: {sum(kept for kept, _ in outcomes)} of {len(outcomes)} promises of single programs"
    yield from (f"* {'kept' if kept else 'BROKEN'}: {text}" for kept, text in _check_all(every))


def _check_all(every: Sequence[Rows]) -> Iterator[Tuple[bool, str]]:
    tried = [rows for rows in every if rows.result("pumpgraph")]
    ran = sum(bool(rows.measured("pumpgraph")) for rows in tried)
    if tried:
        yield ran == len(tried), f"{ran} of {len(tried)} programs run"
    compared = [losses for losses in map(_losses, every) if losses]
    if compared:
        equal = sum(all(each.equal for each in losses) for losses in compared)
        counts = {each.count for losses in compared for each in losses}
        yield equal == len(compared), (f"{equal} of {len(compared)} programs have the losses of the plain graph, "
                                       f"{count_range(counts)} each")
    ratios = [ratio for ratio in (rows.over_bound() for rows in every) if ratio]
    if ratios:
        mean = math.exp(statistics.fmean(map(math.log, ratios)))
        worst = f"the highest {max(ratios):.2f}"
        yield mean <= MOST_OVER_BOUND, (f"the geometric mean of steps over their plan bounds is {mean:.3f} (at most "
                                        f"{MOST_OVER_BOUND}), {worst}, of {len(ratios)} programs")


def _losses(rows: Rows) -> List[Losses]:
    reference = rows.measured("graph")
    return [compare_losses(figures, reference[0]) for figures in rows.measured("pumpgraph")] if reference else []


def _check_program(rows: Rows) -> Iterator[Tuple[bool, str]]:
    """One promise broken is one line; a program that keeps all of them is one line too."""
    name, result = rows.program.name, rows.result("pumpgraph")
    if "refused" in result:
        yield False, f"{name}: refused: {first_clause(result['refused'])}"
        return
    reference, planned = rows.measured("graph"), rows.measured("pumpgraph")
    broken: List[str] = []
    if len(reference) > 1 and not all(compare_losses(figures, reference[0]).equal for figures in reference):
        broken.append("plain runs do not agree with each other")
    if not planned:
        yield from ((False, f"{name}: {text}") for text in broken)
        return
    compared = _losses(rows)
    if not compared:
        broken.append("nothing to compare its losses with")
    if not all(losses.numbers for losses in compared):
        broken.append("not all losses are numbers")
    equal = sum(losses.equal for losses in compared)
    if equal < len(compared):
        broken.append(f"losses are the plain ones in {equal} of {len(compared)} runs")
    over = max(figures["peak_bytes"] - figures["budget_bytes"] for figures in planned)
    if over > 0:
        broken.append(f"{over / 2**20:.0f} MiB over the budget")
    if not any(report.get("added_nodes") or report.get("hosted_bytes") for report in planned[0]["reports"].values()):
        broken.append("no plan moves anything")
    ratio = rows.over_bound()
    if ratio is None:
        broken.append("no bound")
    elif ratio < LEAST_OVER_BOUND:
        broken.append(f"{ratio:.3f} of its bound, which therefore is none")
    yield from ((False, f"{name}: {text}") for text in broken)
    if not broken:
        yield True, f"{name}: {compared[0].count} losses equal, {ratio:.3f} of the plan bound"


# ---- results that are kept -------------------------------------------------------------------------------------------


_KEPT = ("error", "refused", "turn_ms", "step_ms", "calls", "peak_bytes", "budget_bytes", "reports", "losses_compared")


def keep(done: Done, chosen: Sequence[Program], file: Path) -> None:
    """Puts what the table reads of the chosen programs' rows into the file."""
    names = {program.name for program in chosen}
    sentinel_kept.put(file, {key: _of_row(key, figures, done) for key, figures in done.items()
                             if key.split("/")[0] in names})


def _of_row(key: str, figures: Figures, done: Done) -> Figures:
    kept = sentinel_kept.only(_KEPT, figures)
    if "losses" in figures and key.split("/")[1] != "eager":
        program = BY_NAME[key.split("/")[0]]
        reference = done.get(row_key(program, "graph", 0), {})
        if "losses" not in reference:
            raise ValueError(f"{key}: no plain row was measured beside it to compare its losses with")
        kept["losses_compared"] = compare_losses(figures, reference)._asdict()
    return kept
