# SPDX-License-Identifier: Apache-2.0
"""pump-graph-bench: trains the examples under budgets of 100, 75, 50 and 30 % of what they need in memory, and prints a
Markdown table of each beside the unmodified step, the bounds, and what was promised. docs/benchmark.md has more."""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any, Dict, List, Sequence

sys.path.insert(0, str(Path(__file__).resolve().parent))

import runs  # noqa: E402
import table  # noqa: E402

Done = Dict[str, Dict[str, Any]]


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="pump-graph-bench", description=__doc__)
    parser.add_argument("--examples", default="resnet50,gpt2,transformer", help="which, by name (%(default)s)")
    parser.add_argument("--rows", default=",".join(runs.ROWS), help="which configurations (%(default)s)")
    parser.add_argument("--repeats", type=int, default=2, help="runs of each timed configuration (%(default)s)")
    parser.add_argument("--steps", type=int, default=20, help="training steps whose losses are compared (%(default)s)")
    parser.add_argument("--timed", type=int, default=10, help="replays timed a run (%(default)s)")
    parser.add_argument("--timeout", type=float, default=150, help="seconds a run may take (%(default)s)")
    parser.add_argument("--stop-after", type=float, metavar="SECONDS", help="start no run later than this; resume "
                        "with the same command")
    parser.add_argument("--results", default="build/bench/results.jsonl", help="figures of every run, one JSON line "
                        "each; what is there is not run again (%(default)s)")
    parser.add_argument("--binaries", type=Path, default=runs.ROOT / "build" / "bin", help="where the C++ example is "
                        "(%(default)s)")
    parser.add_argument("--from", dest="source", metavar="FILE", help="print the tables of these results; run nothing")
    parser.add_argument("--output", metavar="FILE", help="write the tables there too")
    return parser.parse_args()


def choose(what: str, wanted: str, known: Sequence[str]) -> List[str]:
    names = [name for name in wanted.split(",") if name]
    for name in names:
        if name not in known:
            sys.exit(f"pump-graph-bench: error: no {what} \"{name}\"; there are {', '.join(known)}")
    return [name for name in known if name in names]


def load(path: Path) -> Done:
    """The last line of each run counts. A line cut short by a kill is no result."""
    done: Done = {}
    if path.is_file():
        for line in path.read_text().splitlines():
            try:
                entry = json.loads(line)
                done[entry["key"]] = entry["figures"]
            except (KeyError, TypeError, ValueError):
                continue
    return done


def outcome(figures: Dict[str, Any]) -> str:
    if "error" in figures:
        return "failed: " + figures["error"]
    samples = sorted(figures["step_ms"])
    return f"{samples[len(samples) // 2]:.1f} ms a step, {figures['wall_s']:.0f} s in all" if samples else "done"


def run_all(arguments: argparse.Namespace, chosen: List[runs.Example], rows: List[str]) -> Done:
    results = Path(arguments.results)
    results.parent.mkdir(parents=True, exist_ok=True)
    done = load(results)
    planned = runs.plan_runs(chosen, rows, arguments.repeats)
    start = time.monotonic()
    for number, run in enumerate(planned, start=1):
        if "error" not in done.get(run.key, {"error": "not run"}):
            continue
        if arguments.stop_after is not None and time.monotonic() - start > arguments.stop_after:
            print(f"stopped after {arguments.stop_after:.0f} s; the same command goes on from here", file=sys.stderr)
            break
        print(f"[{number}/{len(planned)}] {run.key} ...", end=" ", file=sys.stderr, flush=True)
        costs = results.parent / (run.example.name + run.example.step_suffix)
        figures = runs.execute(run, done, costs, arguments.steps, arguments.timed, arguments.timeout)
        print(outcome(figures), file=sys.stderr, flush=True)
        done[run.key] = figures
        with open(results, "a") as file:
            file.write(json.dumps({"key": run.key, "figures": figures}) + "\n")
    return done


def main() -> int:
    arguments = parse_arguments()
    every = runs.examples(arguments.binaries)
    names = choose("example", arguments.examples, [example.name for example in every])
    chosen = [example for example in every if example.name in names]
    rows = choose("row", arguments.rows, runs.ROWS)
    if arguments.source:
        if not Path(arguments.source).is_file():
            sys.exit(f"pump-graph-bench: error: there is no file {arguments.source}")
        done = load(Path(arguments.source))
    else:
        done = run_all(arguments, chosen, rows)
    text = table.markdown(chosen, done)
    print(text, end="")
    if arguments.output:
        Path(arguments.output).write_text(text)
    kept = all(ok for example in chosen for ok, _ in table.checks(table.Rows(example, done)))
    failed = any("error" in figures for figures in done.values())
    return 0 if kept and not failed else 1


if __name__ == "__main__":
    sys.exit(main())
