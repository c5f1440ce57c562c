# SPDX-License-Identifier: Apache-2.0
"""The processes of a table: a job runs in one that imports PyTorch while the job before it uses the GPU. Rows of a job
have figures in the results afterwards, or why there are none."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Callable, Dict, IO, List, NoReturn, Optional, Sequence

import runs

SETTLE_LINK = Path(__file__).resolve().parent / "settle_link.py"
Figures = Dict[str, Any]
Done = Dict[str, Figures]


def fail(message: str) -> NoReturn:
    sys.exit(f"pump-graph-bench: error: {message}")


def named(what: str, wanted: str, known: Sequence[str]) -> List[str]:
    """Those of `known` that a text names, separated by commas; ends the program where it names another."""
    names = [name for name in wanted.split(",") if name]
    for name in names:
        if name not in known:
            fail(f"no {what} \"{name}\"; there are {', '.join(known)}")
    return [name for name in known if name in names]


def say(text: str) -> None:
    print(text, end="", file=sys.stderr, flush=True)


def environment_of(binaries: Path) -> Dict[str, str]:
    """With the library that was built beside these binaries, unless another one is named."""
    return {"PUMPGRAPH_LIBRARY": str(binaries.resolve().parent / "lib" / "libpumpgraph.so"), **os.environ}


class Worker:
    """A process that has imported PyTorch, or is about to, and waits for its job."""

    def __init__(self, script: Path, environment: Dict[str, str]):
        self._log: IO[bytes] = tempfile.TemporaryFile()
        self._process = subprocess.Popen([sys.executable, str(script)], stdin=subprocess.PIPE, stdout=self._log,
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

    def __init__(self, script: Path, environment: Dict[str, str]):
        self._script, self._environment = script, environment
        self._spare: Optional[Worker] = None

    def take(self, more_follow: bool) -> Worker:
        worker = self._spare or Worker(self._script, self._environment)
        self._spare = Worker(self._script, self._environment) if more_follow else None
        return worker

    def close(self) -> None:
        if self._spare:
            self._spare.stop()


def append(results: Path, key: str, figures: Dict[str, Any]) -> None:
    with open(results, "a") as file:
        file.write(json.dumps({"key": key, "figures": figures}) + "\n")


def settle_link(environment: Dict[str, str]) -> None:
    """If that fails the rows will, and say why."""
    subprocess.run([sys.executable, str(SETTLE_LINK)], env=environment, stdout=subprocess.DEVNULL,
                   stderr=subprocess.DEVNULL, check=False)


class Table:
    """What run_jobs() asks of a table. A job has a `title` and `rows`, and a row a `key`."""

    worker: Path  # the script of a process

    def missing(self, job: Any, done: Done) -> Any:
        """What of the job is still to be run; None if nothing is."""
        raise NotImplementedError

    def lacks(self, job: Any, done: Done) -> Optional[str]:
        """Why the job cannot be run yet; None if it can."""
        raise NotImplementedError

    def describe(self, job: Any, done: Done) -> Figures:
        """The job as its process reads it."""
        raise NotImplementedError

    def outcome(self, figures: Figures) -> str:
        """A row in one line."""
        raise NotImplementedError


def run_jobs(table: Table, jobs: List[Any], results: Path, arguments: argparse.Namespace,
             environment: Dict[str, str]) -> Done:
    done = runs.load(results)
    workers = Workers(table.worker, environment)
    start = time.monotonic()
    try:
        for number, whole in enumerate(jobs, start=1):
            if arguments.stop_after is not None and time.monotonic() - start > arguments.stop_after:
                say(f"stopped after {arguments.stop_after:.0f} s; the same command goes on from here\n")
                break
            job = table.missing(whole, done)
            say(f"[{number}/{len(jobs)}] {job.title} ...")
            began = time.monotonic()
            _run_job(table, job, results, done, arguments.timeout, lambda: workers.take(number < len(jobs)))
            done = runs.load(results)
            say(f" {time.monotonic() - began:.0f} s\n")
            for row in job.rows:
                say(f"    {row.key}: {table.outcome(done[row.key])}\n")
    finally:
        workers.close()
    return done


def _run_job(table: Table, job: Any, results: Path, done: Done, timeout: float,
             take_worker: Callable[[], Worker]) -> None:
    """Every row of the job has a result afterwards, if only why there is none."""
    reason = table.lacks(job, done)
    if reason is None:
        reason = take_worker().run(table.describe(job, done), timeout)
    written = runs.load(results)
    for row in job.rows:
        if written.get(row.key) == done.get(row.key):
            append(results, row.key, {"error": reason or "it wrote no figures"})
