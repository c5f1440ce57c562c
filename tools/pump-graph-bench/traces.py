# SPDX-License-Identifier: Apache-2.0
"""The trace table: recorded and made-up training iterations, planned at the memory of the study they come from, at half
and at a quarter of it, beside the bounds and what others published. Needs no GPU. docs/reference/traces.md has more."""

from __future__ import annotations

import argparse
import dataclasses
import gzip
import json
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Callable, Dict, Iterable, Iterator, List, Optional, Sequence, Tuple

import synthetic_traces
from outside import printable, read_json

ROOT = Path(__file__).resolve().parents[2]
DEFAULT_FOLDER = ROOT / "test" / "data" / "g10"
GIB = 1 << 30
PAGE_BYTES = 2 << 20

STUDY_GIB = 40
BUDGETS_GIB = (40, 20, 10)
HOST_LIMITS: Tuple[Optional[int], ...] = (None, 128 * GIB)
# No budget is below this multiple of what the largest kernel touches.
ROOM = 1.1

# The recorded traces at other batch sizes, among the unseen ones. A quarter of each kernel's time stays as it is.
BATCH_FACTORS = (0.5, 1.5, 3)
FIXED_SHARE = 0.25

# Predicted step time over the best proven bound, at most.
PROMISE_AT_STUDY, PROMISE_BELOW = 1.03, 1.06

# Percent of the step in memory, from the results of the study's artifact; at 40 GiB, 128 GiB host memory and an SSD.
PUBLISHED_BY = ("demand paging", "DeepUM+", "FlashNeuron", "G10")
PUBLISHED = {
    "BERT-256": (37.1, 79.5, 71.3, 99.7),
    "BERT-512": (12.2, 62.2, 22.3, 67.0),
    "VIT-512": (33.4, 83.3, 100.0, 100.0),
    "Inceptionv3-512": (54.8, 99.9, 100.0, 99.5),
    "ResNet152-1280": (24.0, 85.3, 64.2, 98.4),
}

Trace = Dict[str, Any]
LinearBound = Callable[[Dict[str, Any], int, Dict[str, Any], str], float]


@dataclasses.dataclass(frozen=True)
class Case:
    """One trace at one budget."""
    trace: str
    nominal_gib: int
    budget_bytes: int
    host_bytes: Optional[int]

    @property
    def promise(self) -> float:
        return PROMISE_AT_STUDY if self.nominal_gib >= STUDY_GIB else PROMISE_BELOW


@dataclasses.dataclass
class Result:
    case: Case
    report: Optional[Dict[str, Any]] = None  # of pump-graph-opt
    error: Optional[str] = None
    lp_bound_s: Optional[float] = None
    must_spill_bytes: int = 0  # what no plan can keep on the device

    @property
    def best_bound_s(self) -> float:
        assert self.report is not None
        return max(self.report["bound_s"], self.report["plan_bound_s"], self.lp_bound_s or 0)

    @property
    def over_bound(self) -> float:
        assert self.report is not None
        return self.report["predicted_s"] / self.best_bound_s if self.best_bound_s > 0 else 1.0

    @property
    def is_impossible(self) -> bool:
        """No plan fits the host memory either, and the error says what is missing."""
        host = self.case.host_bytes
        return bool(self.error and "missing" in self.error and host is not None and self.must_spill_bytes > host)

    @property
    def is_kept(self) -> bool:
        if self.report is None:
            return self.is_impossible
        return self.report["checked"] and self.over_bound <= self.case.promise


# ---- traces ----------------------------------------------------------------------------------------------------------


def read_trace(path: Path) -> Trace:
    data = path.read_bytes()
    return read_json(gzip.decompress(data) if path.suffix == ".gz" else data)


def find_traces(folder: Path) -> List[Path]:
    return sorted(path for path in folder.iterdir() if path.name.endswith((".json", ".json.gz")))


def pages(size: int) -> int:
    return -(-size // PAGE_BYTES) * PAGE_BYTES


def largest_kernel(trace: Trace) -> int:
    size = [pages(tensor["bytes"]) for tensor in trace["tensors"]]
    return max(sum(size[tensor] for tensor in {*kernel["reads"], *kernel["writes"]}) for kernel in trace["kernels"])


def peak_live(trace: Trace) -> int:
    """Bytes of the values that some kernel finds alive before it or leaves alive behind it, at most."""
    first: Dict[int, int] = {}
    last: Dict[int, int] = {}
    for index, kernel in enumerate(trace["kernels"]):
        for tensor in (*kernel["reads"], *kernel["writes"]):
            first.setdefault(tensor, index)
            last[tensor] = index
    change = [0] * (len(trace["kernels"]) + 1)
    live = 0
    for index, tensor in enumerate(trace["tensors"]):
        if tensor["kind"] == "persistent":
            live += tensor["bytes"]
        elif index in first:
            change[first[index]] += tensor["bytes"]
            change[last[index] + 1] -= tensor["bytes"]
    peak = live
    for difference in change:
        live += difference
        peak = max(peak, live)
    return peak


def cases_of(trace: Trace, host_limits: Sequence[Optional[int]]) -> Iterator[Case]:
    least = pages(int(largest_kernel(trace) * ROOM))
    for host in host_limits:
        budgets: Dict[int, int] = {}  # what is too little for the largest kernel becomes one budget
        for gib in BUDGETS_GIB:
            budgets.setdefault(max(gib * GIB, least), gib)
        for budget_bytes, gib in budgets.items():
            yield Case(trace["name"], gib, budget_bytes, host)


# ---- runs ------------------------------------------------------------------------------------------------------------


def run(case: Case, trace_file: Path, peak_bytes: int, tool: Path, linear: Optional[LinearBound]) -> Result:
    result = Result(case, must_spill_bytes=max(0, peak_bytes - case.budget_bytes))
    with tempfile.TemporaryDirectory() as folder:
        report_file, plan_file = Path(folder) / "report.json", Path(folder) / "plan.json"
        command = [str(tool), f"--import-trace={trace_file}", f"--budget={case.budget_bytes}",
                   f"--report=json:{report_file}"]
        if case.host_bytes is not None:
            command.append(f"--host-memory={case.host_bytes}")
        if linear:
            command.append(f"--report=plan:{plan_file}")
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        if done.returncode != 0:
            result.error = done.stderr.strip().splitlines()[-1] if done.stderr.strip() else "no message"
            result.error = printable(re.sub(r"^.*?error: (?:\S*\.json(?:\.gz)?: )?", "", result.error))
            return result
        result.report = read_json(report_file.read_text())
        if linear:
            # As the plan bound: it holds for every plan that keeps what kernels touch on the device.
            try:
                plan = read_json(plan_file.read_text())
                result.lp_bound_s = linear(plan, case.budget_bytes, result.report["machine"], "may")
            except (RuntimeError, ValueError) as problem:
                print(f"{case.trace}: no LP bound: {problem}", file=sys.stderr)
    return result


def find_linear_bound() -> Tuple[Optional[LinearBound], str]:
    """The bound from the linear programme, or None and why there is none."""
    try:
        from lp_bound import lp_bound
    except ImportError as missing:
        return None, f"no LP bound: {missing}"
    return lp_bound, ""


def run_all(traces: Iterable[Tuple[Trace, Path]], tool: Path, linear: Optional[LinearBound],
            host_limits: Sequence[Optional[int]]) -> List[Result]:
    results: List[Result] = []
    for trace, path in traces:
        peak_bytes = peak_live(trace)
        linear_bounds: Dict[int, Optional[float]] = {}  # by budget: host memory is nothing to this bound
        for case in cases_of(trace, host_limits):
            start = time.monotonic()
            result = run(case, path, peak_bytes, tool, None if case.budget_bytes in linear_bounds else linear)
            if result.report:
                result.lp_bound_s = linear_bounds.setdefault(case.budget_bytes, result.lp_bound_s)
            results.append(result)
            host = "" if case.host_bytes is None else f", host {case.host_bytes / GIB:.0f} GiB"
            print(f"{case.trace} at {case.nominal_gib} GiB{host}: {outcome(results[-1])} "
                  f"({time.monotonic() - start:.1f} s)", file=sys.stderr, flush=True)
    return results


def outcome(result: Result) -> str:
    if result.report is None:
        return result.error or ""
    return f"{result.over_bound:.3f} of the best bound"


# ---- table -----------------------------------------------------------------------------------------------------------


COLUMNS = ("trace", "budget", "in memory", "bound", "plan bound", "LP bound", "predicted", "/ best bound", "of ideal",
           *PUBLISHED_BY, "up", "down", "planned in", "checked")


def markdown(results: Sequence[Result], remark: str = "") -> str:
    parts = []
    shown: Dict[Tuple[str, str], List[str]] = {}  # of a trace and a budget the first row, but for its times of planning
    for host in dict.fromkeys(result.case.host_bytes for result in results):
        limit = "no limit on host memory" if host is None else f"{host / GIB:.0f} GiB of host memory"
        every = [_cells(result) for result in results if result.case.host_bytes == host]
        rows = [cells for cells in every if shown.get((cells[0], cells[1])) != _plan_of(cells)]
        same = len(every) - len(rows)
        parts.append("\n".join([f"## Traces, {limit}", "", *([f"{same} rows are as above.", ""] if same else []),
                                *(_table(rows) if rows else []), ""]))
        for cells in rows:
            shown.setdefault((cells[0], cells[1]), _plan_of(cells))
    parts.append("\n".join(f"* {'kept' if kept else 'BROKEN'}: {text}" for kept, text in checks(results)) + "\n")
    if remark:
        parts.append(f"({remark})\n")
    return "\n".join(parts)


def _plan_of(cells: List[str]) -> List[str]:
    return [cell for column, cell in zip(COLUMNS, cells) if column != "planned in"]


def _table(rows: Sequence[Sequence[str]]) -> List[str]:
    """Without the columns that no row has anything in."""
    used = [column for column in range(len(COLUMNS)) if any(cells[column] != "-" for cells in rows)]
    lines = [COLUMNS, ["---"] * len(COLUMNS), *rows]
    return [_line([cells[column] for column in used]) for cells in lines]


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _cells(result: Result) -> List[str]:
    case, report = result.case, result.report
    budget = f"{case.budget_bytes / GIB:.1f} GiB"
    if report is None:
        return [case.trace, budget, result.error or "", *["-"] * (len(COLUMNS) - 3)]
    ideal = 100 * report["in_memory_s"] / report["predicted_s"]
    published = PUBLISHED.get(case.trace) if case.nominal_gib == STUDY_GIB else None
    return [
        case.trace, budget, _seconds(report["in_memory_s"]), _seconds(report["bound_s"]),
        _seconds(report["plan_bound_s"]), _seconds(result.lp_bound_s), _seconds(report["predicted_s"]),
        f"{result.over_bound:.3f}", f"{ideal:.1f} %",
        *(f"{percent:.1f} %" for percent in published or ()), *(["-"] * (0 if published else len(PUBLISHED_BY))),
        f"{report['up_bytes'] / GIB:.1f} GiB", f"{report['down_bytes'] / GIB:.1f} GiB",
        f"{report['plan_ms'] / 1e3:.2f} s", "yes" if report["checked"] else "NO",
    ]


def _seconds(value: Optional[float]) -> str:
    return "-" if value is None else f"{value:.2f} s"


def checks(results: Sequence[Result]) -> Iterator[Tuple[bool, str]]:
    """What was promised of these rows, each group of them with its worst."""
    planned = [result for result in results if result.report is not None]
    for promise, where in ((PROMISE_AT_STUDY, f"at {STUDY_GIB} GiB"), (PROMISE_BELOW, "below")):
        group = [result for result in planned if result.case.promise == promise]
        if group:
            worst = max(group, key=lambda result: result.over_bound)
            broken = sum(result.over_bound > promise for result in group)
            yield broken == 0, (f"{where}, {len(group) - broken} of {len(group)} plans are predicted within {promise} "
                                f"of the best proven bound; the worst is {worst.over_bound:.3f} ({_name(worst)})")
    refused = [result for result in planned if not result.report["checked"]]
    yield not refused, f"the checker accepts {len(planned) - len(refused)} of {len(planned)} plans"
    for result in results:
        if result.report is None:
            yield result.is_impossible, f"{_name(result)}: {result.error}"


def _name(result: Result) -> str:
    host = "" if result.case.host_bytes is None else f", host {result.case.host_bytes / GIB:.0f} GiB"
    return f"{result.case.trace} at {result.case.budget_bytes / GIB:.1f} GiB{host}"


def as_json(results: Sequence[Result]) -> str:
    rows = []
    for result in results:
        report = {key: value for key, value in (result.report or {}).items() if key != "stalls"}
        rows.append({**dataclasses.asdict(result.case), "error": result.error, "lp_bound_s": result.lp_bound_s,
                     "over_best_bound": result.over_bound if result.report else None, "promise": result.case.promise,
                     "kept": result.is_kept, "report": report or None})
    return json.dumps({"format": "pumpgraph-traces", "version": 1, "rows": rows}, indent=1) + "\n"


# ---- command line ----------------------------------------------------------------------------------------------------


def is_asked_for(arguments: Sequence[str]) -> bool:
    return any(argument.split("=")[0] in ("--traces", "--synthetic") for argument in arguments)


def parse_arguments(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="pump-graph-bench", description=__doc__)
    parser.add_argument("--traces", nargs="?", type=Path, const=DEFAULT_FOLDER, metavar="FOLDER",
                        help="plan every trace (.json, .json.gz) in this folder (default: the five of the repository)")
    parser.add_argument("--synthetic", type=int, default=0, metavar="N", help="plan N made-up traces, and the "
                        "recorded ones at other batch sizes")
    parser.add_argument("--seed", type=int, default=0, help="of the made-up traces (%(default)s)")
    parser.add_argument("--only", default="", metavar="TEXT", help="only traces whose name contains this")
    parser.add_argument("--no-lp", action="store_true", help="leave out the bound from the linear programme")
    parser.add_argument("--binaries", type=Path, default=ROOT / "build" / "bin", help="where pump-graph-opt is "
                        "(%(default)s)")
    parser.add_argument("--output", type=Path, metavar="FILE", help="write the tables there too")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures there")
    return parser.parse_args(arguments)


def chosen_traces(arguments: argparse.Namespace, scratch: Path) -> Iterator[Tuple[Trace, Path]]:
    if arguments.traces:
        for path in find_traces(arguments.traces):
            yield read_trace(path), path
    for trace in unseen_traces(arguments.synthetic, arguments.seed, arguments.traces or DEFAULT_FOLDER):
        path = scratch / f"{trace['name']}.json"
        path.write_text(json.dumps(trace))
        yield trace, path


def unseen_traces(count: int, seed: int, recorded: Path) -> Iterator[Trace]:
    yield from synthetic_traces.synthetic_traces(count, seed)
    if count > 0 and recorded.is_dir():
        for path in find_traces(recorded):
            for factor in BATCH_FACTORS:
                yield synthetic_traces.at_batch(read_trace(path), factor, FIXED_SHARE)


def main(argv: Sequence[str]) -> int:
    arguments = parse_arguments(argv)
    tool = arguments.binaries / "pump-graph-opt"
    if not tool.is_file():
        sys.exit(f"pump-graph-bench: error: there is no {tool}; build it, or name its folder with --binaries")
    if arguments.traces and not arguments.traces.is_dir():
        sys.exit(f"pump-graph-bench: error: there is no folder {arguments.traces}")
    linear, remark = (None, "") if arguments.no_lp else find_linear_bound()
    limits = HOST_LIMITS if arguments.traces else HOST_LIMITS[:1]
    with tempfile.TemporaryDirectory() as scratch:
        wanted = ((trace, path) for trace, path in chosen_traces(arguments, Path(scratch))
                  if arguments.only in trace["name"])
        results = run_all(wanted, tool, linear, limits)
    if not results:
        sys.exit("pump-graph-bench: error: no trace was chosen")
    text = markdown(results, remark)
    print(text, end="")
    if arguments.output:
        arguments.output.write_text(text)
    if arguments.json:
        arguments.json.write_text(as_json(results))
    return 0 if all(result.is_kept for result in results) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
