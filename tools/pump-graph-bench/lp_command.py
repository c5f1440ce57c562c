# SPDX-License-Identifier: Apache-2.0
"""Plans a recorded step at some budgets and prints the plan beside the window bound and the linear one, in
milliseconds. docs/design/cost-model.md has more."""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Dict, List, Sequence, Tuple

from outside import printable, read_json

ROOT = Path(__file__).resolve().parents[2]
COLUMNS = ("in memory", "window must", "LP must", "window may", "LP may", "LP predicted", "predicted", "over best",
           "LP took")


def is_asked_for(arguments: Sequence[str]) -> bool:
    return any(argument.split("=")[0] == "--lp" for argument in arguments)


def parse_arguments(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="pump-graph-bench", description=__doc__)
    parser.add_argument("--lp", type=Path, required=True, metavar="STEP",
                        help="the step, or a trace of one (.json): gzipped or not")
    parser.add_argument("--budgets", default="75%,50%,30%", help="as pump-graph-opt reads them (%(default)s)")
    for name in ("up", "down", "both"):
        parser.add_argument(f"--{name}", metavar="GB/S", help="of the link, as pump-graph-opt reads it")
    parser.add_argument("--explain", action="store_true", help="then say what is scarce, and where the plan differs")
    parser.add_argument("--binaries", type=Path, default=ROOT / "build" / "bin", help="where pump-graph-opt is "
                        "(%(default)s)")
    return parser.parse_args(arguments)


def plan_at(arguments: argparse.Namespace, budget: str) -> Tuple[Dict[str, Any], Dict[str, Any]]:
    """The exported plan, and its report."""
    links = [f"--{name}={getattr(arguments, name)}" for name in ("up", "down", "both") if getattr(arguments, name)]
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder) / "plan", Path(folder) / "json"]
        is_trace = ".json" in arguments.lp.suffixes
        source = f"--import-trace={arguments.lp}" if is_trace else str(arguments.lp)
        command = [str(arguments.binaries / "pump-graph-opt"), source, f"--budget={budget}", *links]
        done = subprocess.run(command + [f"--report={file.name}:{file}" for file in files], capture_output=True,
                              text=True)
        if done.returncode != 0:
            sys.exit(f"pump-graph-bench: error: pump-graph-opt: {done.stderr.strip()}")
        plan, report = (read_json(file.read_text()) for file in files)
        return plan, report


def main(argv: Sequence[str]) -> int:
    arguments = parse_arguments(argv)
    try:
        import lp_bound
        import lp_explain
    except ImportError as problem:
        sys.exit(f"pump-graph-bench: error: {problem}; the linear bound needs SciPy (Debian: python3-scipy)")
    explanations: List[str] = []
    print(f"| {printable(arguments.lp.name)} | " + " | ".join(COLUMNS) + " |")
    print("| --- |" + " ---: |" * len(COLUMNS), flush=True)
    for budget in arguments.budgets.split(","):
        plan, report = plan_at(arguments, budget)
        start = time.monotonic()
        try:
            must, may = (lp_bound.solve(plan, report["budget_bytes"], report["machine"], kind)
                         for kind in ("must", "may"))
            hosting = may if not may.proposal.step.may_host else lp_bound.solve(
                plan, report["budget_bytes"], report["machine"], "predicted")
        except (RuntimeError, ValueError) as problem:
            sys.exit(f"pump-graph-bench: error: {budget}: {problem}")
        took_s = time.monotonic() - start
        best_s = max(may.seconds, report["plan_bound_s"])
        times = (report["in_memory_s"], report["bound_s"], must.seconds, report["plan_bound_s"], may.seconds,
                 hosting.seconds, report["predicted_s"])
        cells = [f"{seconds * 1e3:.2f}" for seconds in times] + [f"{report['predicted_s'] / best_s:.3f}"]
        print(f"| {budget} | " + " | ".join(cells) + f" | {took_s:.0f} s |", flush=True)
        if arguments.explain:
            explanations.append(f"\n{printable(arguments.lp.name)} at {budget}\n"
                                + lp_explain.explain(hosting, plan))
    print("".join(explanations), end="")
    return 0
