# SPDX-License-Identifier: Apache-2.0
"""From the figures of the sentinel rows to Markdown: a summary, every row, and what was promised against what was
measured."""

from __future__ import annotations

import math
import statistics
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Sequence, Set, Tuple

from cells import decimal, gib, in_gib, ms, quotient, spread, table
from sentinels import BY_HAND, PLANNED, REMEDIES, Budget, Done, Sentinel, is_expected_failure, row_key

Figures = Dict[str, Any]

MOST_OVER_BOUND = 1.05
MOST_NEAR_BOUND = 1.1
MOST_OVER_CHECKPOINT = 1.03
LEAST_OVER_BOUND = 0.97  # node times and link are measured too, within some percent
MOST_PREDICTION_ERROR = 0.05
WORTH_PLANNING = 1.3  # bound over in-memory time from which on compute does not hide everything
# A batch in parts sums the same products in another order, and bf16 keeps 8 bits of each.
MOST_MICRO_DIFFERENCE = 1e-2
STALLS_NAMED = 3


class Rows:
    """The figures of one sentinel, repeats together."""

    def __init__(self, sentinel: Sentinel, done: Done):
        self.sentinel = sentinel
        self._done = done

    def result(self, kind: str, budget: Optional[Budget] = None) -> Optional[Figures]:
        """Of the first run, also if it failed."""
        return self._done.get(row_key(self.sentinel, kind, budget, 0))

    def first(self, kind: str, budget: Optional[Budget] = None) -> Optional[Figures]:
        figures = self.result(kind, budget)
        return None if figures is None or "error" in figures else figures

    def all(self, kind: str, budget: Optional[Budget] = None) -> List[Figures]:
        prefix = row_key(self.sentinel, kind, budget, 0)[:-1]
        return [
            figures
            for key, figures in sorted(self._done.items())
            if key.startswith(prefix) and key[len(prefix):].isdigit() and "error" not in figures
        ]

    def measured(self, kind: str, budget: Optional[Budget] = None) -> List[Figures]:
        """Without those that were refused."""
        return [figures for figures in self.all(kind, budget) if "step_ms" in figures]

    def samples(self, kind: str, budget: Optional[Budget] = None) -> List[float]:
        return [sample for figures in self.measured(kind, budget) for sample in figures["step_ms"]]

    def step_ms(self, kind: str, budget: Optional[Budget] = None) -> Optional[float]:
        samples = self.samples(kind, budget)
        return statistics.median(samples) if samples else None

    def errors(self) -> Iterator[Tuple[str, str]]:
        for key, figures in sorted(self._done.items()):
            if not key.startswith(self.sentinel.name + "/") or "error" not in figures:
                continue
            if not is_expected_failure(self.sentinel, key.split("/")[1], figures):
                yield key, figures["error"]

    def report(self, budget: Budget, kind: str = "budget") -> Figures:
        return (self.first(kind, budget) or {}).get("report") or {}

    def predicted_ms(self, budget: Budget, kind: str = "budget") -> Optional[float]:
        """Of the plan in force. A first plan that was kept goes by estimates: then with the node times that were
        measured on it, as a second one would."""
        report = self.report(budget, kind)
        kept_first = ((self.first(kind, budget) or {}).get("replanned") or {}).get("kept_first")
        again = predicted_again_ms(report) if kept_first else None
        return ms(report.get("predicted_s")) if again is None else again

    def repeats(self, budget: Budget, kind: str = "budget") -> bool:
        """Whether the plan runs nodes again. Reports of older releases do not say, and their plans run none."""
        return bool((self.report(budget, kind).get("repeated") or {}).get("nodes"))

    def kind_of_moves(self, budget: Budget) -> Optional[str]:
        """The kind of the row whose plan runs nothing again: in older files it is `budget`."""
        return next((kind for kind in ("moves", "budget")
                     if self.report(budget, kind) and not self.repeats(budget, kind)), None)

    def bounds_ms(self, budget: Budget, kind: str = "budget") -> Dict[str, float]:
        """Every lower limit that is known for plans of this row, by name. Where the first plan was kept the window
        bound goes by estimated node times, like that plan."""
        report = self.report(budget, kind)
        found = {"window": ms(report.get("plan_bound_s")), "LP": self._linear_ms("lp_may_s", budget, kind)}
        return {name: value for name, value in found.items() if value is not None}

    def hosting_bound_ms(self, budget: Budget, kind: str = "budget") -> Optional[float]:
        """Where operands have to be hosted: a limit of predictions, and none of measured times."""
        return self._linear_ms("lp_predicted_s", budget, kind)

    def _linear_ms(self, name: str, budget: Budget, kind: str) -> Optional[float]:
        """The programme knows of moves alone."""
        if not self.report(budget, kind) or self.repeats(budget, kind):
            return None
        return ms((self.first("bounds", budget) or {}).get(name))

    def over_budget(self, kind: str, budget: Budget) -> int:
        return max((run["peak_bytes"] - run["budget_bytes"] for run in self.measured(kind, budget)), default=0)

    def reaches(self, budget: Budget) -> bool:
        """Whether checkpointing does."""
        checkpoint = self.first("checkpoint", budget) or {}
        return checkpoint.get("peak_bytes", math.inf) <= checkpoint.get("budget_bytes", 0)

    def best_by_hand_ms(self, budget: Budget) -> Optional[Tuple[float, str]]:
        """The fastest of the rows with checkpoints in the program, and which."""
        timed = [(self.step_ms(kind, budget), kind) for kind in BY_HAND]
        return min(((step, kind) for step, kind in timed if step is not None), default=None)

    def best_bound_ms(self, budget: Budget, kind: str = "budget") -> Optional[float]:
        bounds = self.bounds_ms(budget, kind)
        return max(bounds.values()) if bounds else None


def outcome(figures: Figures) -> str:
    """A row in one line, for people who wait."""
    if "error" in figures:
        return "failed: " + figures["error"]
    if "refused" in figures:
        return "refused: " + figures["refused"]
    parts = []
    if figures.get("step_ms"):
        parts.append(f"{statistics.median(figures['step_ms']):.1f} ms a step")
    if figures.get("peak_bytes"):
        parts.append(f"peak {gib(figures['peak_bytes'])}")
    bound = (figures.get("report") or {}).get("plan_bound_s")
    if bound:
        parts.append(f"plan bound {bound * 1e3:.1f} ms")
    if figures.get("seconds"):
        parts.append(f"{figures['seconds']:.0f} s in all")
    return ", ".join(parts) or "done"


def markdown(chosen: Sequence[Sentinel], done: Done) -> str:
    usual = [Rows(sentinel, done) for sentinel in chosen if not sentinel.micro_batches]
    beyond = [Rows(sentinel, done) for sentinel in chosen if sentinel.micro_batches]
    lines: List[str] = []
    if usual:
        within = all(rows.over_budget("budget", budget) <= 0 for rows in usual for budget in rows.sentinel.budgets)
        everything = "PumpGraph with everything on" + (", its peak within the budget." if within else ".")
        lines += ["Step time over the step in memory; in brackets that of moves alone, and of checkpointing where it "
                  "reaches the budget.", "", *_summary(usual), "", *_counts(usual)]
        lines += ["Other ways to the same budget, in brackets the peak, GiB, and the share of blocks.", "",
                  *_other_ways(usual), "", everything, "", *_plans(usual), ""]
    for rows in beyond:
        lines += [*_beyond(rows), ""]
    lines += _promises(chosen, done)
    lines += [f"* NOT RUN: {key}: {error}" for rows in usual + beyond for key, error in rows.errors()]
    return "\n".join(lines).rstrip("\n") + "\n"


# ---- tables ----------------------------------------------------------------------------------------------------------


def _title(sentinel: Sentinel) -> str:
    return f"{sentinel.title}, {sentinel.precision}, batch {sentinel.batch}"


def _summary(every: Sequence[Rows]) -> Iterator[str]:
    """One line a model."""
    names = list(dict.fromkeys(budget.title for rows in every for budget in rows.sentinel.budgets))

    def cells(rows: Rows) -> List[str]:
        by_name = {budget.title: budget for budget in rows.sentinel.budgets}
        plain = rows.first("plain") or {}
        start = [_title(rows.sentinel), in_gib(plain.get("peak_bytes")), decimal(rows.step_ms("plain"))]
        return start + [_against_memory(rows, by_name[name]) if name in by_name else "" for name in names]

    columns = ["model", "peak in memory, GiB", "step, ms", *names]
    yield from table(columns, (cells(rows) for rows in every))


def _counts(every: Sequence[Rows]) -> Iterator[str]:
    """How many rows are as fast as was promised, in a paragraph."""
    for kind, name in (("budget", "rows"), ("moves", "rows of moves alone")):
        steps, worst, repeat = [], (0.0, ""), False
        for rows in every:
            for budget in rows.sentinel.budgets:
                repeat = repeat or (kind == "budget" and rows.repeats(budget))
                step, bound = rows.step_ms(kind, budget), rows.best_bound_ms(budget, kind)
                predicted = rows.predicted_ms(budget, kind)
                if step and bound and predicted:
                    steps.append((step / bound, abs(step / predicted - 1)))
                    worst = max(worst, (step / bound, f"{rows.sentinel.name} at {budget.title}"))
        if steps:
            close, near = (sum(over <= most for over, _ in steps) for most in (MOST_OVER_BOUND, MOST_NEAR_BOUND))
            foreseen = sum(error <= MOST_PREDICTION_ERROR for _, error in steps)
            # Of plans that run nodes again nobody promises how close they come to a bound.
            counts = f"{foreseen} are" if repeat else (f"{close} are within {MOST_OVER_BOUND} of their best bound, "
                                                       f"{near} within {MOST_NEAR_BOUND}, and {foreseen}")
            yield (f"Of {len(steps)} {name} {counts} within {100 * MOST_PREDICTION_ERROR:.0f} % of the prediction."
                   + ("" if repeat else f" The worst takes {worst[0]:.3f} of its bound: {worst[1]}."))
            yield ""


def _against_memory(rows: Rows, budget: Budget) -> str:
    def ratio(kind: str) -> str:
        if "refused" in (rows.first(kind, budget) or {}):
            return "refused"
        return quotient(rows.step_ms(kind, budget), rows.step_ms("plain"))

    others = [ratio("moves"), *([ratio("checkpoint")] if rows.reaches(budget) else [])]
    return f"{ratio('budget')} ({', '.join(others)})"


def _other_ways(every: Sequence[Rows]) -> Iterator[str]:
    """A line for each budget with another way, or whose plans are refused or fail; with the losses of all its plans if
    any differ. Of other rows of moves alone the summary says enough."""
    pairs = [(rows, budget) for rows in every for budget in rows.sentinel.budgets
             if any(rows.result(kind, budget) for kind in (*REMEDIES, *BY_HAND))
             or any("step_ms" not in (rows.result(kind, budget) or {"step_ms": 0}) for kind in PLANNED)]
    with_hand = any(rows.best_by_hand_ms(budget) for rows, budget in pairs)
    with_losses = not all(_losses(rows, budget).endswith(("equal", "-")) for rows, budget in pairs)

    def cells(rows: Rows, budget: Budget) -> List[str]:
        size = budget.bytes_of((rows.first("plain") or {}).get("peak_bytes"))
        return [
            rows.sentinel.name,
            budget.title + (f": {in_gib(size)}" if size is not None else ""),
            _remedy(rows, "checkpoint", budget),
            _remedy(rows, "offload", budget),
            _moves(rows, budget),
            *([_by_hand(rows, budget)] if with_hand else []),
            *([_losses(rows, budget)] if with_losses else []),
        ]

    columns = ["model", "budget, GiB", "checkpointing, ms", "save_on_cpu, ms", "PumpGraph, moves alone, ms",
               *(["checkpointed by hand under PumpGraph, ms"] if with_hand else []),
               *(["losses"] if with_losses else [])]
    yield from table(columns, (cells(rows, budget) for rows, budget in pairs))


_COLUMNS = ("model", "budget", "step, ms", "runs again: nodes, ms", "bound, ms; over it", "predicted, ms; off it, %",
            "first plan", "intensity")


def _plans(every: Sequence[Rows]) -> Iterator[str]:
    """A line for each row with everything on."""
    yield from table(_COLUMNS, (_plan_cells(rows, budget) for rows in every for budget in rows.sentinel.budgets
                                if rows.first("budget", budget)))


def _plan_cells(rows: Rows, budget: Budget) -> List[str]:
    cells = [rows.sentinel.name, budget.title]
    figures = rows.first("budget", budget) or {}
    if "refused" in figures:
        return cells + [f"refused: {figures['refused']}"] + ["-"] * (len(_COLUMNS) - len(cells) - 1)
    step, report = rows.step_ms("budget", budget), rows.report(budget)
    return cells + [
        spread(rows.samples("budget", budget)),
        _runs_again(report),
        f"{_bound(rows, budget)}; {_over(step, rows.best_bound_ms(budget))}",
        f"{_predicted(report)}; {_off(step, rows.predicted_ms(budget))}",
        _first_plan(figures),
        quotient(rows.step_ms("plain"), transfer_ms(report)),
    ]


def _over(step: Optional[float], bound: Optional[float]) -> str:
    return "-" if step is None or not bound else f"{step / bound:.3f}"


def _off(step: Optional[float], predicted: Optional[float]) -> str:
    return "-" if step is None or not predicted else f"{100 * (step / predicted - 1):+.1f}"


def _remedy(rows: Rows, remedy: str, budget: Budget) -> str:
    figures = rows.first(remedy, budget)
    step = rows.step_ms(remedy, budget)
    if figures is None or step is None:
        return "-"
    which = f"{figures['blocks']}/{figures['blocks_in_all']}"
    over = ", over" if figures["peak_bytes"] > figures["budget_bytes"] else ""
    eager = ", eager" if remedy == "checkpoint" and not figures["captured"] else ""
    return f"{step:.1f} ({in_gib(figures['peak_bytes'])}{over}; {which}{eager})"


def _moves(rows: Rows, budget: Budget) -> str:
    step = rows.step_ms("moves", budget)
    if step is None:
        return "refused" if "refused" in (rows.first("moves", budget) or {}) else "-"
    over = _over(step, rows.best_bound_ms(budget, "moves"))
    off = _off(step, rows.predicted_ms(budget, "moves"))
    return f"{step:.1f}, {over} of {_bound(rows, budget, 'moves')}, {off} %"


def _by_hand(rows: Rows, budget: Budget) -> str:
    best = rows.best_by_hand_ms(budget)
    return "-" if best is None else f"{best[0]:.1f} ({BY_HAND[best[1]]} % of the blocks)"


def _runs_again(report: Figures) -> str:
    repeated = report.get("repeated")
    if not repeated or not repeated["nodes"]:
        return "-"
    return f"{repeated['nodes']}, {repeated['time_s'] * 1e3:.1f}"


def _bound(rows: Rows, budget: Budget, kind: str = "budget") -> str:
    """The best one; "LP" where it is the linear programme's."""
    bounds = rows.bounds_ms(budget, kind)
    if not bounds:
        return "-"
    name = max(bounds, key=lambda known: bounds[known])
    hosting = rows.hosting_bound_ms(budget, kind)
    shown = f"{bounds[name]:.1f}" + (" (LP)" if name == "LP" else "")
    return shown + (f"; hosting as predicted {hosting:.1f}" if hosting else "")


def predicted_again_ms(report: Figures) -> Optional[float]:
    """With the node times that were measured on the plan in force, where they were."""
    if "predicted_again_s" in report:  # of a row that was kept
        return ms(report["predicted_again_s"])
    plans = report.get("runtime", {}).get("plans")
    return ms(plans[-1].get("predicted_again_s")) if plans else None


def _predicted(report: Figures) -> str:
    again = predicted_again_ms(report)
    return decimal(ms(report.get("predicted_s"))) + (f" ({again:.1f})" if again else "")


def _first_plan(figures: Figures) -> str:
    """Measured and predicted, where there was a second one."""
    replanned = figures.get("replanned")
    if replanned is None:
        return "-"
    kept = ", kept" if replanned["kept_first"] else ""
    return f"{replanned['measured_before_us'] / 1e3:.1f} ({replanned['predicted_before_us'] / 1e3:.1f}{kept})"


def transfer_ms(report: Figures) -> Optional[float]:
    """What the link needs for the bytes that the plan moves, at the least."""
    if "transfer_s" in report:  # of a row that was kept
        return ms(report["transfer_s"])
    machine = report.get("machine")
    if not machine or not report.get("up_bytes", 0) + report.get("down_bytes", 0):
        return None
    up, down = report["up_bytes"], report["down_bytes"]
    seconds = max(
        up / machine["up_bytes_per_second"],
        down / machine["down_bytes_per_second"],
        (up + down) / machine["both_bytes_per_second"],
    )
    return seconds * 1e3


class Losses(NamedTuple):
    """How those of a row compare with those of the unmodified step."""

    count: int
    equal: bool
    numbers: bool


def compare_losses(figures: Figures, reference: Figures) -> Losses:
    if "losses_compared" in figures:  # of a row that was kept: with the step that was measured beside it
        return Losses(**figures["losses_compared"])
    losses = figures["losses"]
    numbers = len(losses) > 0 and all(math.isfinite(float.fromhex(loss)) for loss in losses)
    return Losses(len(losses), losses == reference.get("losses"), numbers)


def _losses(rows: Rows, budget: Budget) -> str:
    plain = rows.measured("plain")
    planned = rows.measured("moves", budget) + rows.measured("budget", budget)
    if not plain or not planned:
        return "-"
    if not all(compare_losses(figures, plain[0]).equal for figures in plain):
        return "plain disagrees with itself"
    compared = [compare_losses(figures, plain[0]) for figures in planned]
    if not all(losses.equal for losses in compared):
        return "DIFFERENT"
    return f"{count_range({losses.count for losses in compared})} equal"


def _beyond(rows: Rows) -> Iterator[str]:
    sentinel, budget = rows.sentinel, rows.sentinel.budgets[0]
    yield f"### {_title(sentinel)}"
    yield ""

    def lines() -> Iterator[List[str]]:
        plain = rows.result("plain")
        if plain:
            yield ["plain PyTorch", *(["-", plain["error"]] if "error" in plain else _timed(plain))]
        micro = rows.first("micro")
        if micro:
            yield [f"plain PyTorch, {sentinel.micro_batches} micro-batches", *_timed(micro)]
        planned = rows.first("budget", budget)
        if planned:
            cells = ["-", planned["refused"]] if "refused" in planned else _timed(planned)
            yield [f"PumpGraph, {budget.title}", *cells]

    yield from table(("", "step, ms", "peak"), lines())


def _timed(figures: Figures) -> List[str]:
    return [spread(figures["step_ms"]), gib(figures["peak_bytes"])]


# ---- promises --------------------------------------------------------------------------------------------------------


def all_kept(chosen: Sequence[Sentinel], done: Done) -> bool:
    failed = any(True for sentinel in chosen for _ in Rows(sentinel, done).errors())
    return not failed and all(kept for kept, _ in checks(chosen, done))


def checks(chosen: Sequence[Sentinel], done: Done) -> Iterator[Tuple[bool, str]]:
    """What was promised, as far as the rows that were run can tell."""
    yield from _check_models(chosen, done)
    yield from _check_rows(chosen, done)


def _promises(chosen: Sequence[Sentinel], done: Done) -> Iterator[str]:
    """Of models one line for those with the same outcome. Of single rows only what is broken: the tables have the
    figures of the others."""
    names: Dict[Tuple[bool, str], List[str]] = {}
    for kept, text in _check_models(chosen, done):
        name, colon, said = text.partition(": ")
        names.setdefault((kept, said if colon else text), []).extend([name] if colon else [])
    for (kept, said), of in names.items():
        yield f"* {'kept' if kept else 'BROKEN'}: {', '.join(of)}{': ' if of else ''}{said}"
    outcomes = list(_check_rows(chosen, done))
    yield from (f"* BROKEN: {text}" for kept, text in outcomes if not kept)
    if outcomes:
        yield f"* kept: {sum(kept for kept, _ in outcomes)} of {len(outcomes)} promises of single rows"


def _check_models(chosen: Sequence[Sentinel], done: Done) -> Iterator[Tuple[bool, str]]:
    usual = [Rows(sentinel, done) for sentinel in chosen if not sentinel.micro_batches]
    for rows in usual:
        yield from _check_losses(rows)
    yield from _check_worth(usual)
    for sentinel in chosen:
        if sentinel.micro_batches:
            yield from _check_beyond(Rows(sentinel, done))


def _check_rows(chosen: Sequence[Sentinel], done: Done) -> Iterator[Tuple[bool, str]]:
    for rows in (Rows(sentinel, done) for sentinel in chosen if not sentinel.micro_batches):
        for budget in rows.sentinel.budgets:
            yield from _check_moves(rows, budget)
            yield from _check_budget(rows, budget)


def _check_losses(rows: Rows) -> Iterator[Tuple[bool, str]]:
    name, plain = rows.sentinel.name, rows.measured("plain")
    if not plain:
        return
    if len(plain) > 1:
        agrees = all(compare_losses(figures, plain[0]).equal for figures in plain)
        yield agrees, f"{name}: the unmodified step {'agrees' if agrees else 'does not agree'} with itself"
    planned = [figures for budget in rows.sentinel.budgets for kind in ("moves", "budget")
               for figures in rows.measured(kind, budget)]
    if planned:
        compared = [compare_losses(figures, plain[0]) for figures in planned]
        equal = sum(losses.equal for losses in compared)
        numbers = all(losses.numbers for losses in compared)
        what = count_range({losses.count for losses in compared})
        what += " losses" if numbers else " losses, not all of them numbers,"
        text = f"{name}: {what} are the unmodified step's in {equal} of {len(planned)} runs"
        yield numbers and equal == len(planned), text


def count_range(counts: Set[int]) -> str:
    """Rows that were kept may be of runs of different lengths."""
    return str(min(counts)) if len(counts) == 1 else f"{min(counts)} to {max(counts)}"


def slower_than_promised(rows: Rows, budget: Budget, kind: str) -> bool:
    if kind == "budget" and not all(kept for kept, _ in _check_others(rows, budget)):
        return True
    step, bound = rows.step_ms(kind, budget), rows.best_bound_ms(budget, kind)
    return bool(step and bound) and not rows.repeats(budget, kind) and step > MOST_OVER_BOUND * bound


def _check_moves(rows: Rows, budget: Budget) -> Iterator[Tuple[bool, str]]:
    yield from _check_plan(rows, budget, "moves", f"{rows.sentinel.name} at {budget.title}, moves alone")


def _check_budget(rows: Rows, budget: Budget) -> Iterator[Tuple[bool, str]]:
    yield from _check_others(rows, budget)
    yield from _check_plan(rows, budget, "budget", f"{rows.sentinel.name} at {budget.title}")


def _check_others(rows: Rows, budget: Budget) -> Iterator[Tuple[bool, str]]:
    """A plan with everything on against what else there is under the same budget."""
    row, step = f"{rows.sentinel.name} at {budget.title}", rows.step_ms("budget", budget)
    by_hand = rows.best_by_hand_ms(budget)
    others = [
        ("checkpointing", rows.step_ms("checkpoint", budget) if rows.reaches(budget) else None, MOST_OVER_CHECKPOINT),
        ("moves alone", rows.step_ms("moves", budget), rows.sentinel.most_over_others),
        ("the best checkpointed by hand", by_hand[0] if by_hand else None, rows.sentinel.most_over_others),
    ]
    for name, other, most in others:
        if step and other:
            yield step <= most * other, f"{row}: {step / other:.3f} of the time of {name} (at most {most:.2f})"


def _check_plan(rows: Rows, budget: Budget, kind: str, row: str) -> Iterator[Tuple[bool, str]]:
    """One promise broken is one line; a row that keeps all of them is one line too."""
    first = rows.first(kind, budget)
    if first and "refused" in first:
        yield False, f"{row}: refused: {first['refused']}"
        return
    step, bound = rows.step_ms(kind, budget), rows.best_bound_ms(budget, kind)
    predicted = rows.predicted_ms(budget, kind)
    if first is None or step is None or not bound or not predicted:
        return
    if "replan_failed" in first:
        yield False, f"{row}: not planned again: {first['replan_failed']}"
    error = step / predicted - 1
    over = rows.over_budget(kind, budget)
    # No plan that runs nodes again is known to come close to its bound, which lets them run for nothing.
    close = rows.repeats(budget, kind) or step <= MOST_OVER_BOUND * bound
    foreseen, within = abs(error) <= MOST_PREDICTION_ERROR, over <= 0
    sound = step >= LEAST_OVER_BOUND * bound
    if close and foreseen and within and sound:
        yield True, f"{row}: {step / bound:.3f} of the best bound, {100 * error:+.1f} % of the prediction"
    if not close:
        hosting = rows.hosting_bound_ms(budget, kind)
        of_hosting = f"; {step / hosting:.3f} of the bound with hosted operands as predicted" if hosting else ""
        yield False, (f"{row}: {step / bound:.3f} of the best bound (at most {MOST_OVER_BOUND}){of_hosting}; "
                      f"{_stalls(rows.report(budget, kind))}")
    if not foreseen:
        again = predicted_again_ms(rows.report(budget, kind))
        with_times = ""
        if again and again != predicted:
            with_times = f"; {100 * (step / again - 1):+.1f} % with the node times that were measured on it"
        yield False, (f"{row}: {100 * error:+.1f} % of the prediction (at most "
                      f"{100 * MOST_PREDICTION_ERROR:.0f} %){with_times}")
    if not sound:
        yield False, f"{row}: {step / bound:.3f} of its bound, which therefore is none"
    if not within:
        yield False, f"{row}: {over / 2**20:.0f} MiB over the budget"


def _stalls(report: Figures) -> str:
    longest = (report.get("stalls") or [])[:STALLS_NAMED]
    waits = ", ".join(f"\"{stall['buffer_name']}\" {stall['duration_s'] * 1e3:.1f} ms" for stall in longest)
    return f"it waits for {waits}" if waits else "no stall was predicted"


def _check_worth(every: Sequence[Rows]) -> Iterator[Tuple[bool, str]]:
    ratios = []
    for rows in every:
        for budget in rows.sentinel.budgets:
            kind, native = rows.kind_of_moves(budget), rows.step_ms("plain")
            bound = rows.best_bound_ms(budget, kind) if kind else None
            if bound and native:
                ratios.append(bound / native)
    if ratios:
        count = sum(ratio >= WORTH_PLANNING for ratio in ratios)
        yield 2 * count >= len(ratios), (f"in {count} of {len(ratios)} rows the bound of moves alone is "
                                         f"{WORTH_PLANNING} x in memory or more (at least half)")


def _check_beyond(rows: Rows) -> Iterator[Tuple[bool, str]]:
    sentinel, budget = rows.sentinel, rows.sentinel.budgets[0]
    plain = rows.result("plain")
    if plain:
        yield "out_of_memory" in plain, f"{sentinel.name}: plain PyTorch runs out of device memory"
    micro, planned = rows.first("micro"), rows.first("budget", budget)
    if planned and "refused" in planned:
        yield False, f"{sentinel.name}: refused: {planned['refused']}"
        return
    if not micro or not planned:
        return
    difference = largest_difference(micro["losses"], planned["losses"])
    text = (f"{sentinel.name}: {len(planned['losses'])} losses differ from those of {sentinel.micro_batches} "
            f"micro-batches by {difference:.1e} of their value at most (allowed: {MOST_MICRO_DIFFERENCE:.0e}), while "
            f"they go from {_loss(micro['losses'], 0)} to {_loss(micro['losses'], -1)}")
    yield difference <= MOST_MICRO_DIFFERENCE, text
    over = planned["peak_bytes"] - planned["budget_bytes"]
    yield over <= 0, f"{sentinel.name}: peak {gib(planned['peak_bytes'])} under a budget of {budget.title}"


def _loss(losses: Sequence[str], index: int) -> str:
    return f"{float.fromhex(losses[index]):.3f}" if losses else "-"


def largest_difference(reference: Sequence[str], losses: Sequence[str]) -> float:
    """Relative; infinite where there is nothing to compare, or no number."""
    if not reference or len(reference) != len(losses):
        return math.inf
    pairs = [(float.fromhex(a), float.fromhex(b)) for a, b in zip(reference, losses)]
    if not all(math.isfinite(value) for pair in pairs for value in pair):
        return math.inf
    return max(abs(a - b) / abs(a) if a else math.inf for a, b in pairs)
