# SPDX-License-Identifier: Apache-2.0
"""pump-graph-bench --sentinels: trains the sentinel models in memory, with PyTorch's own remedies, and under budgets,
and prints a Markdown table of each beside its best bound. docs/reference/benchmark.md has more."""

from __future__ import annotations

import argparse
import dataclasses
import importlib.util
import sys
from pathlib import Path
from typing import Any, Dict, List, Optional, Sequence

import runs
import sentinel_bounds
import sentinel_kept
import sentinel_plot
import sentinel_table
import workers
from sentinels import (
    BY_NAME, KINDS, PLANNED, SENTINELS, USUAL_KINDS, Done, Job, Sentinel, lacks, missing, plain_peak, plan_jobs,
    unnamed,
)
from workers import append, fail, named, say

WORKER = Path(__file__).resolve().parent / "sentinel_worker.py"


def parse_arguments(argv: Sequence[str]) -> argparse.Namespace:
    usual = ",".join(sentinel.name for sentinel in SENTINELS if not sentinel.extra)
    more = ", ".join(sentinel.name for sentinel in SENTINELS if sentinel.extra)
    parser = argparse.ArgumentParser(prog="pump-graph-bench --sentinels", description=__doc__)
    parser.add_argument("--sentinels", nargs="?", metavar="NAMES", help=f"which models, separated by commas ({usual}; "
                        f"after --from those with results too); there are {more} too")
    parser.add_argument("--rows", default=",".join(USUAL_KINDS), help=f"which of the kinds of rows "
                        f"{', '.join(KINDS)} (%(default)s)")
    parser.add_argument("--budgets", metavar="NAMES", help="only these of each model's budgets (1.5,2,3,4 or 32GB)")
    parser.add_argument("--fast", action="store_true", help="one repeat, 5 losses, 5 replays timed")
    parser.add_argument("--repeats", type=int, help="runs of each timed row (2)")
    parser.add_argument("--steps", type=int, help="training steps whose losses are compared (20)")
    parser.add_argument("--timed", type=int, help="replays timed a run (10)")
    parser.add_argument("--warmup-batch", type=int, default=2, metavar="N", help="samples of the eager step before a "
                        "capture; 0: the whole batch (%(default)s)")
    parser.add_argument("--plan-with", choices=("replan", "recorded"), default="replan", help="replan: from static "
                        "estimates, then again from node times measured on the rewritten step; recorded: once, from "
                        "the times of the record row (%(default)s)")
    parser.add_argument("--timeout", type=float, default=150, help="seconds a process may take (%(default)s)")
    parser.add_argument("--stop-after", type=float, metavar="SECONDS", help="start no process later than this; resume "
                        "with the same command")
    parser.add_argument("--results", default="build/bench/sentinels.jsonl", help="figures of every row, one JSON line "
                        "each; what is there is not run again. Recorded steps are put beside it (%(default)s)")
    parser.add_argument("--binaries", type=Path, default=runs.ROOT / "build" / "bin", help="where pump-graph-opt is, "
                        "and the library in the folder lib beside it (%(default)s)")
    parser.add_argument("--from", dest="source", metavar="FILE", help="use these results; run nothing")
    parser.add_argument("--bounds", action="store_true", help="first compute the linear-programming bounds that the "
                        "results lack, from the recorded steps; with --from this needs no GPU")
    parser.add_argument("--keep", metavar="FILE", help="put of every row what the tables read into FILE, in the place "
                        "of what it has of these rows; --from FILE prints its tables")
    parser.add_argument("--output", metavar="FILE", help="write the tables there too")
    parser.add_argument("--svg", metavar="FILE", help="draw step time over the step in memory")
    arguments = parser.parse_args(argv)
    usual_counts = (1, 5, 5) if arguments.fast else (2, 20, 10)
    for name, count in zip(("repeats", "steps", "timed"), usual_counts):
        if getattr(arguments, name) is None:
            setattr(arguments, name, count)
    return arguments


def choose(arguments: argparse.Namespace, source: Done) -> List[Sentinel]:
    chosen = unnamed(source)
    if arguments.sentinels is not None:
        chosen = [BY_NAME[name] for name in named("sentinel", arguments.sentinels, list(BY_NAME))]
    if arguments.budgets is None:
        return chosen
    wanted = arguments.budgets.split(",")
    known = {budget.name for sentinel in chosen for budget in sentinel.budgets}
    for name in wanted:
        if name not in known:
            fail(f"no budget \"{name}\" in these models' rows; there are {', '.join(sorted(known))}")
    return [
        dataclasses.replace(sentinel, budgets=tuple(b for b in sentinel.budgets if b.name in wanted))
        for sentinel in chosen
    ]


def check_libraries(chosen: Sequence[Sentinel]) -> None:
    for sentinel in chosen:
        if sentinel.library and importlib.util.find_spec(sentinel.library) is None:
            fail(f"{sentinel.name} needs {sentinel.library}, which {sys.executable} does not have")


def choose_kinds(wanted: str) -> List[str]:
    return named("row", wanted, KINDS)


class Rows(workers.Table):
    """The sentinels' table, for these arguments."""

    def __init__(self, arguments: argparse.Namespace, results: Path):
        self.worker = WORKER
        self._arguments, self._results = arguments, results

    def missing(self, job: Job, done: Done) -> Optional[Job]:
        return missing(job, done)

    def lacks(self, job: Job, done: Done) -> Optional[str]:
        return lacks(job, done)

    def describe(self, job: Job, done: Done) -> Dict[str, Any]:
        return describe(job, self._arguments, done, self._results)

    def outcome(self, figures: Dict[str, Any]) -> str:
        return sentinel_table.outcome(figures)


def run_all(arguments: argparse.Namespace, chosen: List[Sentinel], kinds: List[str]) -> Done:
    results = Path(arguments.results)
    results.parent.mkdir(parents=True, exist_ok=True)
    done = runs.load(results)
    jobs = [job for job in plan_jobs(chosen, kinds, arguments.repeats) if missing(job, done)]
    environment = workers.environment_of(arguments.binaries)
    if any(row.kind in ("record", *PLANNED) for job in jobs for row in job.rows):
        workers.settle_link(environment)
    return workers.run_jobs(Rows(arguments, results), jobs, results, arguments, environment)


def describe(job: Job, arguments: argparse.Namespace, done: Done, results: Path) -> Dict[str, Any]:
    sentinel = job.sentinel
    return {
        "sentinel": sentinel.name,
        "rows": [
            {"key": row.key, "kind": row.kind, "budget": dataclasses.asdict(row.budget) if row.budget else None}
            for row in job.rows
        ],
        "results": str(results.resolve()),
        "costs": str(recorded_step(results, sentinel).resolve()),
        "plain_peak_bytes": plain_peak(sentinel, done),
        "steps": arguments.steps,
        "timed": arguments.timed,
        "plan_with": arguments.plan_with,
        "warmup_batch": min(arguments.warmup_batch, sentinel.batch),
    }


def recorded_step(results: Path, sentinel: Sentinel) -> Path:
    return results.parent / f"{sentinel.name}.mlir.gz"


def add_bounds(chosen: List[Sentinel], done: Done, results: Path, tool: Path) -> None:
    if importlib.util.find_spec("scipy") is None:
        fail(f"--bounds needs SciPy, which {sys.executable} does not have")
    steps = {sentinel.name: recorded_step(results, sentinel) for sentinel in chosen}
    for key, figures in sentinel_bounds.missing_bounds(chosen, done, steps, tool, say):
        append(results, key, figures)
        done[key] = figures


def main(argv: Sequence[str]) -> int:
    arguments = parse_arguments(argv)
    kinds = choose_kinds(arguments.rows)
    if arguments.source:
        results = Path(arguments.source)
        if not results.is_file():
            fail(f"there is no file {results}")
        done = runs.load(results)
        chosen = choose(arguments, done)
    else:
        results = Path(arguments.results)
        if sentinel_kept.are_kept(runs.load(results)):
            fail(f"{results} holds kept rows; measure into another file, and --keep {results}")
        chosen = choose(arguments, {})
        check_libraries(chosen)
        done = run_all(arguments, chosen, kinds)
    if arguments.bounds:
        add_bounds(chosen, done, results, arguments.binaries / "pump-graph-opt")
    if arguments.keep:
        try:
            sentinel_kept.keep(done, chosen, Path(arguments.keep))
        except ValueError as problem:
            fail(str(problem))
    text = sentinel_table.markdown(chosen, done)
    print(text, end="")
    if arguments.output:
        Path(arguments.output).write_text(text)
    if arguments.svg:
        Path(arguments.svg).write_text(sentinel_plot.svg(chosen, done))
    return 0 if sentinel_table.all_kept(chosen, done) else 1
