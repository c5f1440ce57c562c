# SPDX-License-Identifier: Apache-2.0
"""Runs rows of the table of programs on the GPU. Imports PyTorch, then waits for one job as a JSON line on standard
input, as sentinel_worker.py does. Each row's figures are appended to the job's file at once."""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import random
import sys
import time
import traceback
import warnings
from pathlib import Path
from typing import Any, Dict, List

# Read by cuBLAS when CUDA starts: one fixed workspace a stream, without which its results may differ between runs.
os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
ROOT = Path(__file__).resolve().parents[2]
# A checkout is used as it is; an installed package needs no path.
sys.path[:0] = [str(Path(__file__).resolve().parent), str(ROOT / "runtime" / "python")]

import torch  # noqa: E402

import program_ways  # noqa: E402
import pumpgraph  # noqa: E402
from program_rows import BY_NAME, Program  # noqa: E402

WARNINGS_KEPT = 4
Figures = Dict[str, Any]


def make_deterministic() -> None:
    random.seed(0)
    torch.manual_seed(0)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(0)
    torch.use_deterministic_algorithms(True)
    torch.utils.deterministic.fill_uninitialized_memory = False  # adds a fill of every new tensor


def run_row(row: Figures, job: Figures, program: Program) -> Figures:
    turns, timed, warmup = job["turns"], job["timed"], job["warmup"]
    around: Any = contextlib.nullcontext()
    if row["kind"] == "pumpgraph":
        # In the same turn of every run, ahead of those that are timed.
        pumpgraph.install(budget=job["budget_bytes"], budget_of="tensors", planning="in_replay")
        run: program_ways.Run = program_ways.PumpGraphRun(turns, timed, warmup)
    elif row["kind"] == "graph":
        run = plain = program_ways.PlainRun(turns, timed, warmup, captured=not program.uncaptured)
        around = plain.running()
    else:
        run = program_ways.Run(turns, timed)
    program_main = importlib.import_module(f"programs.{program.name}").main  # before the seeds: some libraries draw
    make_deterministic()
    with around:
        program_main(run)
    figures = run.figures()
    if row["kind"] == "pumpgraph":
        figures["budget_bytes"] = job["budget_bytes"]
    return figures


def attempt(row: Figures, job: Figures, program: Program) -> Figures:
    try:
        return run_row(row, job, program)
    except (pumpgraph.UnsupportedError, pumpgraph.StaleStepError) as error:
        return {"refused": one_line(error)}
    except pumpgraph.PumpGraphError as error:
        kind = "refused" if error.status == pumpgraph.Status.UNPLANNABLE else "error"
        return {kind: one_line(error)}
    except Exception as error:  # whatever a program or its libraries raise is the row's result
        traceback.print_exc()
        return {"error": f"{type(error).__name__}: {one_line(error)}"}


def one_line(error: BaseException) -> str:
    return " ".join(str(error).split())[:600]


def run_all(job: Figures) -> None:
    program = BY_NAME[job["program"]]
    for row in job["rows"]:
        start = time.perf_counter()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            figures = attempt(row, job, program)
        figures["warned"] = said_by_pumpgraph(caught)
        figures["seconds"] = time.perf_counter() - start
        figures["device"], figures["torch"] = torch.cuda.get_device_name(), torch.__version__
        with open(job["results"], "a") as file:
            file.write(json.dumps({"key": row["key"], "figures": figures}) + "\n")
        if row["kind"] != "pumpgraph":
            gc.collect()
            torch.cuda.empty_cache()


def said_by_pumpgraph(caught: List[warnings.WarningMessage]) -> List[str]:
    texts = [" ".join(str(warning.message).split())[:300] for warning in caught]
    about = [text for text in texts if any(word in text for word in ("pumpgraph", "PumpGraph", "step \"", "captured"))]
    return list(dict.fromkeys(about))[:WARNINGS_KEPT]


def main() -> int:
    line = sys.stdin.readline()
    if line.strip():  # else it was a spare that nobody needed
        run_all(json.loads(line))
    return 0


if __name__ == "__main__":
    sys.exit(main())
