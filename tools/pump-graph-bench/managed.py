# SPDX-License-Identifier: Apache-2.0
"""pump-graph-bench --managed: steps of runtime_smoke and of PyTorch on managed memory. One plan, its pages brought back
by faults, at launch and ahead; and the plan that keeps in host memory what is faster there, beside the managed bound,
which is that of plans that move everything, and the prediction. Every run is a process with 2 GiB of managed memory,
those of PyTorch and of large buffers with just under 4 GiB."""

from __future__ import annotations

import argparse
import dataclasses
import json
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any, Dict, Iterator, List, Optional, Sequence, Tuple

import runs
from outside import printable, read_json

Done = Dict[str, Dict[str, Any]]

MANAGED_WAYS = ("faults", "launch", "ahead", "hosted")
WAYS = ("captured",) + MANAGED_WAYS  # the first tells what budgets are shares of
ARENA_BYTES = 2 << 30
# Both captures of a step need addresses, and PyTorch's have many buffers.
LARGE_ARENA_BYTES = 4000 << 20
# What a calibrated step gets unless somebody asks for something else.
BEST_WAY = "hosted"
# Of a step that goes that way: the most over its bound.
PROMISE_BOUND = 1.15


@dataclasses.dataclass(frozen=True)
class Step:
    name: str  # as runtime_smoke --managed-row knows it
    title: str
    promise_faults: Optional[float] = None  # how many times as fast as by faults, at the least
    torch_share: Optional[float] = None  # a step of PyTorch: of its peak in memory, on the device

    @property
    def is_large(self) -> bool:
        """Buffers four times as large, with about as much to move."""
        return "large" in self.name

    @property
    def arena_bytes(self) -> int:
        return LARGE_ARENA_BYTES if self.is_large or self.torch_share else ARENA_BYTES


STEPS = (
    Step("streaming", "16 weights of 64 MiB, only read, 256 MiB stay", 3.0),
    Step("training-60", "a net of 434 MiB, at 60 % of it", 1.5),
    Step("training-50", "at 50 %", 1.5),
    Step("training-40", "at 40 %", 1.5),
    Step("unknown-60", "at 60 %, accesses not all known"),
    Step("unknown-40", "at 40 %, accesses not all known"),
    Step("large-streaming", "8 weights of 256 MiB, only read, 1 GiB stays", 3.0),
    Step("large-training-60", "a net of half as many layers of four times the size, at 60 %", 1.5),
    Step("large-training-40", "at 40 %", 1.5),
    Step("torch-60", "PyTorch: a perceptron with AdamW, at 60 %", 1.5, torch_share=0.6),
    Step("torch-40", "PyTorch: the same at 40 %", 1.5, torch_share=0.4),
    Step("torch-large-60", "PyTorch: half as many layers of four times the size, at 60 %", 1.5, torch_share=0.6),
)


class Figures:
    """The runs of one step, repeats together."""

    def __init__(self, step: Step, done: Done):
        self.step = step
        self._done = done

    def runs(self, way: str) -> List[Tuple[str, Dict[str, Any]]]:
        """With their keys; without those that failed."""
        prefix = f"{self.step.name}/{way}/"
        return [(key, figures) for key, figures in sorted(self._done.items())
                if key.startswith(prefix) and "error" not in figures]

    def all(self, way: str) -> List[Dict[str, Any]]:
        return [figures for _, figures in self.runs(way)]

    def samples(self, way: str) -> List[float]:
        return [sample for figures in self.all(way) for sample in figures["step_ms"]]

    def median(self, way: str) -> Optional[float]:
        samples = self.samples(way)
        return statistics.median(samples) if samples else None

    def per_run(self, key: str) -> List[float]:
        """Of the runs that go the best way, milliseconds. Each process measures its own link, so these differ."""
        return [figures[key] * 1e3 for figures in self.all(BEST_WAY)]

    def over_bound(self) -> Optional[float]:
        """Each run against its own bound."""
        ratios = [statistics.median(figures["step_ms"]) / (figures["moving_bound_s"] * 1e3)
                  for figures in self.all(BEST_WAY)]
        return statistics.median(ratios) if ratios else None


def summary(done: Done) -> List[Dict[str, Any]]:
    """What the table is made of."""
    rows = []
    for step in STEPS:
        figures = Figures(step, done)
        row: Dict[str, Any] = {"step": step.name, "title": step.title}
        for way in WAYS:
            row[way] = _spread(figures.samples(way))
        row["bound"] = _spread(figures.per_run("moving_bound_s"))
        row["hosted_mib"] = _spread([run["hosted_bytes"] / (1 << 20) for run in figures.all(BEST_WAY)])
        row["predicted"] = _spread(figures.per_run("predicted_s"))
        row["over_bound"] = figures.over_bound()
        if any(row[way] for way in WAYS):
            rows.append(row)
    return rows


def markdown(done: Done) -> str:
    lines = ["| step | by faults | at launch | ahead | some in host memory | of that, MiB | managed bound | predicted "
             "| best / bound | in memory |", "|" + " --- |" * 10]
    for row in summary(done):
        cells = [row[key] for key in (*MANAGED_WAYS, "hosted_mib", "bound", "predicted")]
        ratio = "" if row["over_bound"] is None else f"{row['over_bound']:.2f}"
        lines.append("| " + " | ".join([row["title"], *map(_cell, cells), ratio, _cell(row["captured"])]) + " |")
    lines.append("")
    lines += [f"* {'kept' if kept else '**broken**'}: {text}" for kept, text in checks(done)]
    lines += [f"* **failed**: {key}: {figures['error']}" for key, figures in sorted(done.items()) if "error" in figures]
    return "\n".join(lines) + "\n"


def checks(done: Done) -> Iterator[Tuple[bool, str]]:
    for step in STEPS:
        figures = Figures(step, done)
        faults, best, ratio = figures.median("faults"), figures.median(BEST_WAY), figures.over_bound()
        if step.promise_faults and faults is not None and best is not None:
            yield (faults / best >= step.promise_faults,
                   f"{step.name}: {faults / best:.1f} times as fast as by faults; promised {step.promise_faults:g}")
        if step.promise_faults and ratio is not None:
            yield ratio <= PROMISE_BOUND, f"{step.name}: {ratio:.2f} of its bound; promised {PROMISE_BOUND:g}"
        for key, run in [*figures.runs("ahead"), *figures.runs(BEST_WAY)]:
            # Of plans of its kind: what stays in host memory may beat plans that move it.
            bound_ms, step_ms = run["plan_bound_s"] * 1e3, statistics.median(run["step_ms"])
            if step_ms < bound_ms:
                yield False, (f"{key}: {step_ms:.1f} ms, below its bound of {bound_ms:.1f}: its process took the link "
                              "for slower than it is")
        undone = sum(run["agent"][what] for way in MANAGED_WAYS for run in figures.all(way)
                     for what in ("dropped", "released", "failed"))
        if undone:
            yield False, f"{step.name}: {undone} operations were dropped, released or failed"
        states = {run.get("state") for way in WAYS for run in figures.all(way)}
        if None in states:
            yield False, f"{step.name}: runs of an earlier version, without a digest of their results"
        elif len(states) > 1:
            yield False, f"{step.name}: {len(states)} different results"
        arenas = {run["arena_bytes"] for way in MANAGED_WAYS for run in figures.all(way)}
        if arenas and max(arenas) > step.arena_bytes:
            yield False, f"{step.name}: an arena of {max(arenas)} bytes; {step.arena_bytes} are allowed"


def _spread(samples: Sequence[float]) -> Optional[Dict[str, float]]:
    if not samples:
        return None
    return {"median": statistics.median(samples), "least": min(samples), "most": max(samples)}


def _cell(spread: Optional[Dict[str, float]]) -> str:
    if spread is None:
        return ""
    median, least, most = (f"{spread[key]:.1f}" for key in ("median", "least", "most"))
    return median if least == most else f"{median} ({least}-{most})"


def command_of(binaries: Path, step: Step, way: str, captured: Dict[str, Any]) -> List[str]:
    """`captured`: the figures of the step in memory, where there are any yet."""
    if not step.torch_share:
        return [str(binaries / "runtime_smoke"), "--managed-row", step.name, way]
    worker = [sys.executable, str(Path(__file__).resolve().parent / "managed_worker.py"),
              "large" if step.is_large else "small", way]
    if way == "captured":
        return worker
    return [*worker, str(int(captured["peak_bytes"] * step.torch_share)), str(step.arena_bytes)]


def execute(command: Sequence[str], timeout: float) -> Dict[str, Any]:
    try:
        result = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=timeout,
                                universal_newlines=True)
    except subprocess.TimeoutExpired:
        return {"error": f"stopped after {timeout:.0f} s"}
    except OSError as problem:
        return {"error": printable(problem)}
    if result.returncode != 0:
        last = result.stderr.strip().splitlines()[-4:]
        return {"error": printable(f"exit status {result.returncode}: " + " | ".join(last))}
    try:
        return dict(read_json(result.stdout.strip().splitlines()[-1]))
    except (IndexError, TypeError, ValueError):
        return {"error": printable("no figures: " + result.stdout[-200:])}


def run_all(arguments: argparse.Namespace, chosen: Sequence[Step]) -> Done:
    """All first runs, then all second ones, and so on: what drifts over minutes then hits every way alike."""
    results = Path(arguments.results)
    results.parent.mkdir(parents=True, exist_ok=True)
    done = runs.load(results)
    for repeat in range(arguments.repeats):
        for step in chosen:
            for way in WAYS:
                key = f"{step.name}/{way}/{repeat}"
                if "error" not in done.get(key, {"error": "not run"}):
                    continue
                print(f"{key} ...", file=sys.stderr, flush=True)
                captured = done.get(f"{step.name}/captured/0", {})
                if step.torch_share and way != "captured" and "peak_bytes" not in captured:
                    done[key] = {"error": "nothing is known of the step in memory"}
                    continue
                done[key] = execute(command_of(arguments.binaries, step, way, captured), arguments.timeout)
                with open(results, "a") as file:
                    file.write(json.dumps({"key": key, "figures": done[key]}) + "\n")
    return done


def is_asked_for(arguments: Sequence[str]) -> bool:
    return any(argument.split("=")[0] == "--managed" for argument in arguments)


def parse_arguments(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="pump-graph-bench", description=__doc__)
    parser.add_argument("--managed", action="store_true", help="this table")
    names = ",".join(step.name for step in STEPS)
    parser.add_argument("--rows", default=names, help="which steps (%(default)s)")
    parser.add_argument("--repeats", type=int, default=3, help="processes of each step and way (%(default)s)")
    parser.add_argument("--timeout", type=float, default=60, help="seconds a process may take (%(default)s)")
    parser.add_argument("--results", default="build/bench/managed.jsonl", help="figures of every run, one JSON line "
                        "each; what is there is not run again (%(default)s)")
    parser.add_argument("--binaries", type=Path, default=runs.ROOT / "build" / "bin", help="where runtime_smoke is "
                        "(%(default)s)")
    parser.add_argument("--from", dest="source", type=Path, metavar="FILE", help="print the table of these results; "
                        "run nothing")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write what the table is made of there")
    parser.add_argument("--output", type=Path, metavar="FILE", help="write the table there too")
    return parser.parse_args(argv)


def main(argv: Sequence[str]) -> int:
    arguments = parse_arguments(argv)
    wanted = [name for name in arguments.rows.split(",") if name]
    unknown = [name for name in wanted if name not in [step.name for step in STEPS]]
    if unknown:
        sys.exit(f"pump-graph-bench: error: no row \"{unknown[0]}\"; there are "
                 f"{', '.join(step.name for step in STEPS)}")
    if arguments.source and not arguments.source.is_file():
        sys.exit(f"pump-graph-bench: error: there is no file {arguments.source}")
    if arguments.source:
        done = runs.load(arguments.source)
    else:
        done = run_all(arguments, [step for step in STEPS if step.name in wanted])
    done = {key: figures for key, figures in done.items() if key.split("/")[0] in wanted}
    text = markdown(done)
    print(text, end="")
    if arguments.output:
        arguments.output.write_text(text)
    if arguments.json:
        arguments.json.write_text(json.dumps(summary(done), indent=1) + "\n")
    kept = all(ok for ok, _ in checks(done))
    return 0 if done and kept and not any("error" in figures for figures in done.values()) else 1
