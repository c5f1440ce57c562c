# SPDX-License-Identifier: Apache-2.0
"""tools/dev plan-bench: plans stored steps and compares the plans with a committed baseline.

Fails where a step is predicted slower by over 1 %, the geometric mean of all by over 0.3 %, or planning takes a fifth
more processor time than the baseline took on the same processor. Prints a Markdown table."""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import platform
import resource
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Dict, Iterator, List, Optional, Sequence, Tuple

ROOT = Path(__file__).resolve().parents[2]
DATA = ROOT / "test" / "data"
BASELINE = DATA / "plans.json"

MOST_SLOWER = 1.01  # of one row
MOST_SLOWER_MEAN = 1.003
MOST_EFFORT = 1.2


@dataclasses.dataclass
class Row:
    """A step at a budget, and its plan. `file` is relative to test/data; `budget` as pump-graph-opt takes it. `quick`:
    part of the short form."""

    file: str
    budget: str
    quick: bool = False
    predicted_s: Optional[float] = None
    plan_bound_s: Optional[float] = None
    cpu_s: Optional[float] = None

    @property
    def key(self) -> str:
        return f"{self.file}@{self.budget}"


class Failure(Exception):
    """A step that was not planned."""


def read_baseline(path: Path) -> Tuple[str, List[Row]]:
    """The processor that it was made on, and its rows."""
    stored = json.loads(path.read_text())
    return stored["processor"], [Row(**row) for row in stored["rows"]]


def write_baseline(path: Path, rows: Sequence[Row]) -> None:
    lines = ",\n".join("  " + json.dumps(dataclasses.asdict(row)) for row in rows)
    path.write_text(f'{{"processor": {json.dumps(processor())}, "rows": [\n{lines}\n]}}\n')


def processor() -> str:
    """Its model and how many of it there are; the machine's kind where the system does not say."""
    names = []
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.is_file():
        names = [line.split(":", 1)[1].strip() for line in cpuinfo.read_text().splitlines()
                 if line.startswith("model name")]
    return f"{len(names)} x {names[0]}" if names else platform.machine()


def plan(row: Row, tool: Path) -> Row:
    """The row with the figures of a plan made by `tool`."""
    source = DATA / row.file
    what = [f"--import-trace={source}"] if row.file.endswith((".json", ".json.gz")) else [str(source)]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run([str(tool), *what, f"--budget={row.budget}", "--report=json"], stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode != 0:
        raise Failure(f"{row.key}: {done.stderr.strip().splitlines()[-1] if done.stderr.strip() else 'no message'}")
    report = json.loads(done.stdout)
    if not report["checked"]:
        raise Failure(f"{row.key}: the checker refuses the plan")
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return dataclasses.replace(row, predicted_s=report["predicted_s"], plan_bound_s=report["plan_bound_s"],
                               cpu_s=round(cpu_s, 2))


def geometric_mean(ratios: Sequence[float]) -> float:
    return math.exp(statistics.fmean(map(math.log, ratios)))


def slower(row: Row, before: Row) -> float:
    assert row.predicted_s and before.predicted_s
    return row.predicted_s / before.predicted_s


def faults(rows: Sequence[Row], before: Dict[str, Row], compares_effort: bool) -> Iterator[str]:
    """What breaks a promise."""
    known = [(row, before[row.key]) for row in rows if before[row.key].predicted_s]
    for row, old in known:
        if slower(row, old) > MOST_SLOWER:
            yield f"{row.key} is slower by {slower(row, old) - 1:.1%} (at most {MOST_SLOWER - 1:.1%})"
    if not known:
        return
    mean = geometric_mean([slower(row, old) for row, old in known])
    if mean > MOST_SLOWER_MEAN:
        yield f"the geometric mean is slower by {mean - 1:.2%} (at most {MOST_SLOWER_MEAN - 1:.1%})"
    took, effort = sum(row.cpu_s or 0 for row, _ in known), sum(old.cpu_s or 0 for _, old in known)
    if compares_effort and took > MOST_EFFORT * effort:
        yield f"planning takes {took:.1f} s of processor time, {effort:.1f} in the baseline (at most {MOST_EFFORT} " \
            "times)"


def table(rows: Sequence[Row], before: Dict[str, Row]) -> Iterator[str]:
    yield "| step | budget | predicted, ms | baseline, ms | change | / plan bound | processor s | baseline s |"
    yield "| --- | --- | --- | --- | --- | --- | --- | --- |"
    for row in rows:
        old = before[row.key]
        assert row.predicted_s is not None and row.plan_bound_s
        was = [f"{old.predicted_s * 1e3:.2f}", f"{slower(row, old) - 1:+.2%}"] if old.predicted_s else ["-", "new"]
        name = row.file.rpartition("/")[2].partition(".")[0]
        yield (f"| {name} | {row.budget} | {row.predicted_s * 1e3:.2f} | {was[0]} | {was[1]} | "
               f"{row.predicted_s / row.plan_bound_s:.3f} | {row.cpu_s} | {old.cpu_s or '-'} |")
    over = geometric_mean([row.predicted_s / row.plan_bound_s for row in rows if row.predicted_s and row.plan_bound_s])
    yield ""
    yield f"Geometric mean over the plan bound: {over:.4f}, of {len(rows)} rows."


def parse_arguments(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="tools/dev plan-bench", description=__doc__)
    parser.add_argument("--tool", type=Path, default=ROOT / "build" / "bin" / "pump-graph-opt", help="(%(default)s)")
    parser.add_argument("--baseline", type=Path, default=BASELINE, help="(%(default)s)")
    parser.add_argument("--short", action="store_true", help="the quick rows alone")
    parser.add_argument("--rows", metavar="TEXT", help="the rows alone whose step or budget has this in its name")
    parser.add_argument("--effort", choices=("compare", "ignore"), default="compare", help="ignore processor time "
                        "(it is compared on the processor of the baseline alone)")
    parser.add_argument("--update", action="store_true", help="write these figures into the baseline")
    return parser.parse_args(argv)


def main(argv: Sequence[str]) -> int:
    arguments = parse_arguments(argv)
    made_on, stored = read_baseline(arguments.baseline)
    before = {row.key: row for row in stored}
    chosen = [row for row in stored if (row.quick or not arguments.short) and (arguments.rows or "") in row.key]
    if not chosen:
        print(f"plan-bench: no row has \"{arguments.rows}\" in its name", file=sys.stderr)
        return 2
    rows: List[Row] = []
    problems: List[str] = []
    for row in chosen:
        try:
            rows.append(plan(row, arguments.tool))
            print(f"{row.key}: {rows[-1].cpu_s} s", file=sys.stderr, flush=True)
        except Failure as failure:
            problems.append(str(failure))
    if rows:
        print("\n".join(table(rows, before)))
    problems += faults(rows, before, arguments.effort == "compare" and made_on == processor())
    for problem in problems:
        print(f"* BROKEN: {problem}")
    if arguments.update:
        made = {row.key: row for row in rows}
        write_baseline(arguments.baseline, [made.get(row.key, row) for row in stored])
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
