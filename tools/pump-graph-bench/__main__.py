# SPDX-License-Identifier: Apache-2.0
"""pump-graph-bench: trains the examples under budgets of 100, 75, 50 and 30 % of what they need in memory, and prints a
Markdown table of each beside the unmodified step, the bounds, and what was promised.
docs/reference/benchmark.md has more."""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any, Dict, List, Sequence

sys.path.insert(0, str(Path(__file__).resolve().parent))

import demand_paging  # noqa: E402
import lp_command  # noqa: E402
import managed  # noqa: E402
import program_command  # noqa: E402
import runs  # noqa: E402
import table  # noqa: E402
import traces  # noqa: E402

Done = Dict[str, Dict[str, Any]]


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="pump-graph-bench", description=__doc__)
    parser.add_argument("--sentinels", action="store_true", help="the sentinel models instead of the examples; "
                        "--sentinels --help lists the options")
    parser.add_argument("--programs", action="store_true", help="real programs instead, plain and at half of their "
                        "memory; --programs --help lists the options")
    parser.add_argument("--traces", action="store_true", help="recorded traces instead, and no GPU; --traces --help "
                        "lists the options")
    parser.add_argument("--lp", metavar="STEP", help="a recorded step beside its bounds instead, and no GPU; "
                        "--lp STEP --help lists the options")
    parser.add_argument("--demand-paging", action="store_true", help="how far simulated unified memory is from what "
                        "is published and measured; needs no GPU; --demand-paging --help lists the options")
    parser.add_argument("--managed", action="store_true", help="steps on managed memory instead; --managed --help "
                        "lists the options")
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


def outcome(figures: Dict[str, Any]) -> str:
    if "error" in figures:
        return "failed: " + figures["error"]
    samples = sorted(figures["step_ms"])
    return f"{samples[len(samples) // 2]:.1f} ms a step, {figures['wall_s']:.0f} s in all" if samples else "done"


def run_all(arguments: argparse.Namespace, chosen: List[runs.Example], rows: List[str]) -> Done:
    results = Path(arguments.results)
    results.parent.mkdir(parents=True, exist_ok=True)
    done = runs.load(results)
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
    if lp_command.is_asked_for(sys.argv[1:]):
        return lp_command.main(sys.argv[1:])
    if traces.is_asked_for(sys.argv[1:]):
        return traces.main(sys.argv[1:])
    if any(argument.split("=")[0] == "--sentinels" for argument in sys.argv[1:]):
        import sentinel_command

        return sentinel_command.main(sys.argv[1:])
    if program_command.is_asked_for(sys.argv[1:]):
        return program_command.main(sys.argv[1:])
    if demand_paging.is_asked_for(sys.argv[1:]):
        return demand_paging.main(sys.argv[1:])
    if managed.is_asked_for(sys.argv[1:]):
        return managed.main(sys.argv[1:])
    arguments = parse_arguments()
    every = runs.examples(arguments.binaries)
    names = choose("example", arguments.examples, [example.name for example in every])
    chosen = [example for example in every if example.name in names]
    rows = choose("row", arguments.rows, runs.ROWS)
    if arguments.source:
        if not Path(arguments.source).is_file():
            sys.exit(f"pump-graph-bench: error: there is no file {arguments.source}")
        done = runs.load(Path(arguments.source))
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
