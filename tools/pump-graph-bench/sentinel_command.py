# SPDX-License-Identifier: Apache-2.0
"""pump-graph-bench --sentinels: trains the sentinel models in memory, with PyTorch's own remedies, and under budgets,
and prints a Markdown table of each beside its best bound. docs/benchmark.md has more."""

from __future__ import annotations

import argparse
import dataclasses
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Dict, IO, List, NoReturn, Optional, Sequence

import runs
import sentinel_bounds
import sentinel_kept
import sentinel_plot
import sentinel_table
from sentinels import (
    BY_NAME, KINDS, PLANNED, SENTINELS, USUAL_KINDS, Done, Job, Sentinel, lacks, missing, plain_peak, plan_jobs, unnamed,
)

WORKER = Path(__file__).resolve().parent / "sentinel_worker.py"
SETTLE_LINK = Path(__file__).resolve().parent / "settle_link.py"


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


def fail(message: str) -> NoReturn:
    sys.exit(f"pump-graph-bench: error: {message}")


def choose(arguments: argparse.Namespace, source: Done) -> List[Sentinel]:
    chosen = unnamed(source)
    if arguments.sentinels is not None:
        names = [name for name in arguments.sentinels.split(",") if name]
        for name in names:
            if name not in BY_NAME:
                fail(f"no sentinel \"{name}\"; there are {', '.join(BY_NAME)}")
        chosen = [sentinel for sentinel in SENTINELS if sentinel.name in names]
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
    names = [name for name in wanted.split(",") if name]
    for name in names:
        if name not in KINDS:
            fail(f"no row \"{name}\"; there are {', '.join(KINDS)}")
    return [kind for kind in KINDS if kind in names]


class Worker:
    """A process that has imported PyTorch, or is about to, and waits for its job."""

    def __init__(self, environment: Dict[str, str]):
        self._log: IO[bytes] = tempfile.TemporaryFile()
        self._process = subprocess.Popen([sys.executable, str(WORKER)], stdin=subprocess.PIPE, stdout=self._log,
                                         stderr=self._log, env=environment)

    def run(self, job: Dict[str, Any], timeout: float) -> Optional[str]:
        """None if it went well, else why not. What it had measured by then is in the results either way."""
        with self._log:
            return self._run(json.dumps(job).encode() + b"\n", timeout)

    def _run(self, job: bytes, timeout: float) -> Optional[str]:
        try:
            self._process.communicate(job, timeout=timeout)
        except subprocess.TimeoutExpired:
            self._kill()
            return f"stopped after {timeout:.0f} s"
        except OSError as problem:
            self._kill()
            return str(problem)
        if self._process.returncode == 0:
            return None
        return f"exit status {self._process.returncode}: {self._last_words()}"

    def _last_words(self) -> str:
        self._log.seek(0)
        return " | ".join(self._log.read().decode("utf-8", "replace").strip().splitlines()[-4:])

    def stop(self) -> None:
        """Instead of run(): nobody needs it."""
        self._kill()
        self._log.close()

    def _kill(self) -> None:
        self._process.kill()
        self._process.communicate()


class Workers:
    """One worker ahead: importing PyTorch takes seconds, in which the one before it uses the GPU."""

    def __init__(self, environment: Dict[str, str]):
        self._environment = environment
        self._spare: Optional[Worker] = None

    def take(self, more_follow: bool) -> Worker:
        worker = self._spare or Worker(self._environment)
        self._spare = Worker(self._environment) if more_follow else None
        return worker

    def close(self) -> None:
        if self._spare:
            self._spare.stop()


def append(results: Path, key: str, figures: Dict[str, Any]) -> None:
    with open(results, "a") as file:
        file.write(json.dumps({"key": key, "figures": figures}) + "\n")


def run_all(arguments: argparse.Namespace, chosen: List[Sentinel], kinds: List[str]) -> Done:
    results = Path(arguments.results)
    results.parent.mkdir(parents=True, exist_ok=True)
    done = runs.load(results)
    jobs = [job for job in plan_jobs(chosen, kinds, arguments.repeats) if missing(job, done)]
    library = arguments.binaries.resolve().parent / "lib" / "libpumpgraph.so"
    environment = {"PUMPGRAPH_LIBRARY": str(library), **os.environ}
    if any(row.kind in ("record", *PLANNED) for job in jobs for row in job.rows):
        settle_link(environment)
    workers = Workers(environment)
    start = time.monotonic()
    try:
        for number, whole in enumerate(jobs, start=1):
            if arguments.stop_after is not None and time.monotonic() - start > arguments.stop_after:
                say(f"stopped after {arguments.stop_after:.0f} s; the same command goes on from here\n")
                break
            job = missing(whole, done)
            say(f"[{number}/{len(jobs)}] {job.title} ...")
            began = time.monotonic()
            run_job(job, arguments, done, results, lambda: workers.take(number < len(jobs)))
            done = runs.load(results)
            say(f" {time.monotonic() - began:.0f} s\n")
            for row in job.rows:
                say(f"    {row.key}: {sentinel_table.outcome(done[row.key])}\n")
    finally:
        workers.close()
    return done


def settle_link(environment: Dict[str, str]) -> None:
    """If that fails the rows will, and say why."""
    subprocess.run([sys.executable, str(SETTLE_LINK)], env=environment, stdout=subprocess.DEVNULL,
                   stderr=subprocess.DEVNULL, check=False)


def run_job(job: Job, arguments: argparse.Namespace, done: Done, results: Path, take_worker: Any) -> None:
    """Every row of the job has a result afterwards, if only why there is none."""
    reason = lacks(job, done)
    if reason is None:
        reason = take_worker().run(describe(job, arguments, done, results), arguments.timeout)
    written = runs.load(results)
    for row in job.rows:
        if written.get(row.key) == done.get(row.key):
            append(results, row.key, {"error": reason or "it wrote no figures"})


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


def say(text: str) -> None:
    print(text, end="", file=sys.stderr, flush=True)


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
