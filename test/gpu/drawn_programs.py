#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draws training programs and runs each plain and under PumpGraph: equal bit for bit, or refused.

    drawn_programs.py [--programs N] [--first-seed S] [--seconds LIMIT] [--workers W] [--without HABIT,...]
    drawn_programs.py --only SEED,...           these, in this order, in one process
    drawn_programs.py --list N                  describes the programs and runs none

Programs run in batches of one process each, under a budget of about half of what they need (program_draws.py). A
process ends with the first wrong value or crash in it; the rest of the batch goes on in another. Passes where nothing
is wrong and nothing crashes, at least half of the programs are equal, and at least a quarter move data.
"""

from __future__ import annotations

import argparse
import collections
import concurrent.futures
import json
import os
import queue
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Sequence

import program_draws

RUNS = Path(__file__).resolve().parent / "program_runs.py"
START_S = 240.0  # that a process may take to begin, and a program to end; observing takes long beside others
VERDICTS = ("equal", "refused", "wrong", "crashed", "uncounted")


class Result(NamedTuple):
    seed: int
    verdict: str
    why: str
    moves: bool = False  # whether a plan moved data
    left: Optional[str] = None  # why a step was left as captured
    repeats: bool = False  # whether a plan ran nodes again
    before: Sequence[int] = ()  # the programs that ran before it in its process


class Failure(Exception):
    """The programs cannot be run at all."""


class Batch:
    """Programs of one process; of several, where one of them ends it."""

    def __init__(self, command: Sequence[str], seeds: Sequence[int], limit_s: float = START_S,
                 deadline: float = float("inf")):
        self._command, self._limit_s, self._deadline = command, limit_s, deadline
        self._remaining = list(seeds)

    def run(self) -> Iterator[Result]:
        while self._remaining and time.monotonic() < self._deadline:
            before: List[int] = []
            for result in self._run_process():
                self._remaining.remove(result.seed)
                yield result._replace(before=tuple(before))
                before.append(result.seed)

    def _run_process(self) -> Iterator[Result]:
        with tempfile.TemporaryFile("w+") as errors:
            process = subprocess.Popen([*self._command, *map(str, self._remaining)], stdout=subprocess.PIPE,
                                       stderr=errors, text=True)
            begun: Optional[int] = None
            finished = hangs = False
            try:
                for line in self._lines(process):
                    if "begin" in line:
                        begun = line["begin"]
                        if time.monotonic() >= self._deadline:
                            return
                        continue
                    yield Result(begun if begun is not None else line["seed"], line["verdict"], line["why"],
                                 bool(line.get("moves")), line.get("left"), bool(line.get("repeats")))
                    begun, finished = None, True
            except TimeoutError:
                hangs = True
            finally:
                process.kill()
                process.wait()
                if process.stdout is not None:
                    process.stdout.close()
            errors.seek(0)
            text = errors.read()
            if begun is not None:
                yield Result(begun, "crashed", f"still running after {self._limit_s:.0f} s" if hangs
                             else f"{_ending(process.returncode)}{_last_words(text)}")
            elif not finished:
                raise Failure(f"no program began: {_ending(process.returncode)}\n{text[-2000:]}")

    def _lines(self, process: "subprocess.Popen[str]") -> Iterator[Dict[str, Any]]:
        """What it says; TimeoutError if it says nothing for long."""
        said: "queue.Queue[Optional[str]]" = queue.Queue()

        def listen() -> None:
            assert process.stdout is not None
            for line in process.stdout:
                said.put(line)
            said.put(None)

        threading.Thread(target=listen, daemon=True).start()
        while True:
            try:
                line = said.get(timeout=self._limit_s)
            except queue.Empty:
                raise TimeoutError from None
            if line is None:
                try:
                    process.wait(timeout=self._limit_s)
                except subprocess.TimeoutExpired:
                    raise TimeoutError from None
                return
            if line.startswith("{"):
                yield json.loads(line)


def _ending(status: int) -> str:
    if status >= 0:
        return f"exit status {status}"
    try:
        return signal.Signals(-status).name
    except ValueError:
        return f"signal {-status}"


def _last_words(text: str) -> str:
    """The innermost place of the traceback that was left, and the last line."""
    lines = [line.strip() for line in text.strip().splitlines() if line.strip()]
    places = [line for line in lines if line.startswith("File ")]
    return "".join(f"; {words[:300]}" for words in (places[:1] + lines[-1:] if lines else []))


def reason(why: str) -> str:
    """A refusal without what differs from program to program, to count it."""
    why = re.sub(r"/\S*/", "", why)
    why = re.sub(r"\"[^\"]*\"|'[^']*'", "\"...\"", why)
    return re.sub(r"0x[0-9a-f]+|\d+(\.\d+)?", "#", why)[:160]


def line_of(result: Result, without: Sequence[str]) -> str:
    program = program_draws.draw(result.seed, without)
    again = ",".join(map(str, (*result.before, result.seed)))
    after = f" (or, with those before it in its process, --only {again})" if result.before else ""
    return (f"{result.verdict.upper():9} seed {result.seed}: {program.describe()}\n    {result.why}\n"
            f"    again: --only {result.seed}{after}")


def totals(results: Sequence[Result]) -> str:
    count = collections.Counter(result.verdict for result in results)
    moving = sum(result.verdict == "equal" and result.moves for result in results)
    repeating = sum(result.verdict == "equal" and result.repeats for result in results)
    return (f"{len(results) - count['uncounted']} programs: {count['equal']} equal ({moving} moving data, {repeating} "
            f"running kernels again), {count['refused']} refused, {count['wrong']} wrong, {count['crashed']} crashed")


def objections(results: Sequence[Result], wanted: int) -> List[str]:
    """Why this does not pass."""
    count = collections.Counter(result.verdict for result in results)
    judged = len(results) - count["uncounted"]
    moving = sum(result.verdict == "equal" and result.moves for result in results)
    found = [f"{count[verdict]} {verdict}" for verdict in ("wrong", "crashed") if count[verdict]]
    if len(results) < wanted:
        found.append(f"{wanted - len(results)} of {wanted} programs were not run: the time was up")
    if count["uncounted"] * 20 > len(results):
        found.append(f"{count['uncounted']} programs do not count, more than one in twenty")
    if count["equal"] * 2 < judged or not judged:
        found.append(f"{count['equal']} of {judged} are equal, less than half")
    if len(results) >= 20 and moving * 4 < judged:
        found.append(f"{moving} of {judged} move data, less than a quarter")
    return found


def summary(results: Sequence[Result]) -> Iterator[str]:
    refusals = collections.Counter(reason(result.why) for result in results if result.verdict == "refused")
    for text, times in refusals.most_common():
        yield f"refused {times:3}: {text}"
    left = collections.Counter(reason(result.left) for result in results if result.left)
    for text, times in left.most_common():
        yield f"left as captured {times:3}: {text}"
    uncounted = sum(result.verdict == "uncounted" for result in results)
    if uncounted:
        yield f"{uncounted} programs do not count: plain PyTorch alone does not do the same twice, or raises"


def seeds_of(arguments: argparse.Namespace) -> List[List[int]]:
    """By batch."""
    if arguments.only:
        return [[int(seed) for seed in arguments.only.split(",")]]
    seeds = range(arguments.first_seed, arguments.first_seed + arguments.programs)
    return [list(seeds[first:first + arguments.batch]) for first in range(0, len(seeds), arguments.batch)]


def main(argv: Optional[Sequence[str]] = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--programs", type=int, default=200, help="how many (%(default)s)")
    parser.add_argument("--first-seed", type=int, default=1, help="the others follow it (%(default)s)")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin no program after so many")
    parser.add_argument("--workers", type=int, default=5, help="processes side by side (%(default)s)")
    parser.add_argument("--batch", type=int, default=10, help="programs of a process (%(default)s)")
    parser.add_argument("--budget", type=int, default=program_draws.BUDGET, help="of a process (%(default)s bytes)")
    parser.add_argument("--without", default="", help="habits that are left out of every program")
    parser.add_argument("--only", default="", help="these seeds, in one process")
    parser.add_argument("--list", type=int, default=0, help="describe so many programs, and run none")
    parser.add_argument("--verbose", action="store_true", help="a line for every program")
    arguments = parser.parse_args(argv)
    without = [name for name in arguments.without.split(",") if name]
    unknown = set(without) - set(program_draws.HABITS)
    if unknown:
        parser.error(f"no such habit: {', '.join(sorted(unknown))}")
    if arguments.list:
        for seed in range(arguments.first_seed, arguments.first_seed + arguments.list):
            print(f"seed {seed}: {program_draws.draw(seed, without).describe()}")
        return 0
    command = [sys.executable, str(RUNS), "--budget", str(arguments.budget), "--without", arguments.without]
    return judge(seeds_of(arguments), command, arguments.workers, time.monotonic() + arguments.seconds, without,
                 arguments.verbose or bool(arguments.only))


def judge(batches: Sequence[Sequence[int]], command: Sequence[str], workers: int, deadline: float = float("inf"),
          without: Sequence[str] = (), tells_all: bool = False) -> int:
    """Runs them, tells what became of them, and returns the exit status."""
    results: List[Result] = []

    def run(seeds: Sequence[int]) -> None:
        for result in Batch(command, seeds, deadline=deadline).run():
            if result.verdict == "crashed" and "SIGTERM" in result.why:
                time.sleep(1)  # if the whole group of processes is told to end, stop() comes first
            results.append(result)
            if tells_all or result.verdict not in ("equal", "refused"):
                print(line_of(result, without), flush=True)

    def stop(_signal: int, _frame: Any) -> None:
        for line in summary(results):
            print(line)
        print(f"stopped; so far {totals(results)}", flush=True)
        os._exit(1)  # without waiting for the workers

    before = signal.signal(signal.SIGTERM, stop)
    try:
        with concurrent.futures.ThreadPoolExecutor(max(1, workers)) as pool:
            for _ in pool.map(run, batches):
                pass
    except Failure as failure:
        print(f"drawn_programs: error: {failure}", file=sys.stderr)
        return 1
    finally:
        signal.signal(signal.SIGTERM, before)
    for line in summary(results):
        print(line)
    wrong = objections(results, sum(map(len, batches)))
    for text in wrong:
        print(f"not passed: {text}")
    print(totals(results))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
