# SPDX-License-Identifier: Apache-2.0
"""pump-graph-bench --programs: runs real programs as they are written, in plain graphs, and under PumpGraph at half of
their memory, and prints a Markdown table. docs/reference/benchmark.md has more."""

from __future__ import annotations

import argparse
import importlib.util
from pathlib import Path
from typing import Any, Dict, List, Optional, Sequence

import program_table
import runs
import sentinel_kept
import workers
from program_rows import BY_NAME, KINDS, PROGRAMS, Done, Job, Program, budget_bytes, lacks, missing, plan_jobs
from workers import fail, named

WORKER = Path(__file__).resolve().parent / "program_worker.py"


def is_asked_for(argv: Sequence[str]) -> bool:
    return any(argument.split("=")[0] == "--programs" for argument in argv)


def parse_arguments(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="pump-graph-bench --programs", description=__doc__)
    parser.add_argument("--programs", nargs="?", metavar="NAMES", help="which, separated by commas (all: "
                        f"{', '.join(BY_NAME)})")
    parser.add_argument("--rows", default=",".join(KINDS), help="which ways to run them (%(default)s)")
    parser.add_argument("--repeats", type=int, default=1, help="runs of each (%(default)s)")
    parser.add_argument("--turns", type=int, default=40, help="how often a loop goes round (%(default)s)")
    parser.add_argument("--timed", type=int, default=12, help="of these the last so many are timed (%(default)s)")
    parser.add_argument("--warmup", type=int, default=1, help="eager calls of each kind before a capture (%(default)s)")
    parser.add_argument("--timeout", type=float, default=150, help="seconds a process may take (%(default)s)")
    parser.add_argument("--stop-after", type=float, metavar="SECONDS", help="start no process later than this; resume "
                        "with the same command")
    parser.add_argument("--results", default="build/bench/programs.jsonl", help="figures of every row, one JSON line "
                        "each; what is there is not run again (%(default)s)")
    parser.add_argument("--binaries", type=Path, default=runs.ROOT / "build" / "bin", help="the library is in the "
                        "folder lib beside it (%(default)s)")
    parser.add_argument("--from", dest="source", metavar="FILE", help="use these results; run nothing")
    parser.add_argument("--keep", metavar="FILE", help="put of every row what the table reads into FILE, in the place "
                        "of what it has of these rows; --from FILE prints its table")
    parser.add_argument("--output", metavar="FILE", help="write the table there too")
    arguments = parser.parse_args(argv)
    if not 0 < arguments.timed < arguments.turns:
        parser.error("--timed has to be less than --turns, and at least 1")
    return arguments


def choose(wanted: Optional[str]) -> List[Program]:
    if wanted is None:
        return list(PROGRAMS)
    return [BY_NAME[name] for name in named("program", wanted, list(BY_NAME))]


def choose_kinds(wanted: str) -> List[str]:
    return named("row", wanted, KINDS)


def check_libraries(chosen: Sequence[Program]) -> None:
    for program in chosen:
        for library in program.libraries:
            if importlib.util.find_spec(library) is None:
                fail(f"{program.name} needs {library}, which is not installed")


class Programs(workers.Table):
    """The table of programs, for these arguments."""

    def __init__(self, arguments: argparse.Namespace, results: Path):
        self.worker = WORKER
        self._arguments, self._results = arguments, results

    def missing(self, job: Job, done: Done) -> Optional[Job]:
        return missing(job, done)

    def lacks(self, job: Job, done: Done) -> Optional[str]:
        return lacks(job, done)

    def describe(self, job: Job, done: Done) -> Dict[str, Any]:
        return {
            "program": job.program.name,
            "rows": [{"key": row.key, "kind": row.kind} for row in job.rows],
            "results": str(self._results.resolve()),
            "budget_bytes": budget_bytes(job.program, done),
            "turns": self._arguments.turns,
            "timed": self._arguments.timed,
            "warmup": self._arguments.warmup,
        }

    def outcome(self, figures: Dict[str, Any]) -> str:
        return program_table.outcome(figures)


def run_all(arguments: argparse.Namespace, chosen: List[Program], kinds: List[str]) -> Done:
    results = Path(arguments.results)
    results.parent.mkdir(parents=True, exist_ok=True)
    done = runs.load(results)
    jobs = [job for job in plan_jobs(chosen, kinds, arguments.repeats) if missing(job, done)]
    environment = workers.environment_of(arguments.binaries)
    if any(row.kind == "pumpgraph" for job in jobs for row in job.rows):
        workers.settle_link(environment)
    return workers.run_jobs(Programs(arguments, results), jobs, results, arguments, environment)


def main(argv: Sequence[str]) -> int:
    arguments = parse_arguments(argv)
    chosen, kinds = choose(arguments.programs), choose_kinds(arguments.rows)
    results = Path(arguments.source or arguments.results)
    if arguments.source:
        if not results.is_file():
            fail(f"there is no file {results}")
        done = runs.load(results)
    else:
        if sentinel_kept.are_kept(runs.load(results)):
            fail(f"{results} holds kept rows; measure into another file, and --keep {results}")
        check_libraries(chosen)
        done = run_all(arguments, chosen, kinds)
    if arguments.keep:
        try:
            program_table.keep(done, chosen, Path(arguments.keep))
        except ValueError as problem:
            fail(str(problem))
    text = program_table.markdown(chosen, done)
    print(text, end="")
    if arguments.output:
        Path(arguments.output).write_text(text)
    return 0 if program_table.all_kept(chosen, done) else 1
