# SPDX-License-Identifier: Apache-2.0
"""How far the simulated unified memory is to be trusted: every published demand-paging figure that can be simulated
beside ours, and what was measured on one H200 beside what its model does. Needs no GPU. docs/simulation.md has more."""

from __future__ import annotations

import argparse
import dataclasses
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Iterator, List, Optional, Sequence, Tuple

ROOT = Path(__file__).resolve().parents[2]
DEFAULT_FOLDER = ROOT / "test" / "data" / "g10"
MIB = 1 << 20


@dataclasses.dataclass(frozen=True)
class Cell:
    """A published share of the in-memory speed at 40 GiB, 15.754 GB/s, 128 GiB of host memory and an SSD."""
    trace: str
    percent: float
    iteration: int  # the one that the figure is of: docs/simulation.md tells how that is known
    doubtful: bool = False  # it may be of the other one


CELLS = (
    Cell("BERT-256", 37.1, 2),
    Cell("BERT-512", 12.2, 2, doubtful=True),
    Cell("VIT-512", 33.4, 2),
    Cell("Inceptionv3-512", 54.8, 1),
    Cell("ResNet152-1280", 24.0, 1),
)
STUDY_BUDGET = "40GiB"


@dataclasses.dataclass(frozen=True)
class Rate:
    """A kernel that reads host-resident managed memory once, as measured (docs/simulation.md)."""
    what: str
    bytes: int
    row: str  # of simulate-step's table
    low: float  # GB/s
    high: float
    touch: int = 4096


DEMAND, PREFETCH = "demand paging (51 %)", "prefetch at launch"
RATES = (
    Rate("through faults, every page touched", 2048 * MIB, DEMAND, 7, 11),
    Rate("through faults, one touch in 64 KiB", 2048 * MIB, DEMAND, 18, 18, 64 << 10),
    Rate("prefetched, 2 GiB in one call", 2048 * MIB, PREFETCH, 51, 51),
    Rate("prefetched, 128 MiB", 128 * MIB, PREFETCH, 47, 47),
    Rate("prefetched, 32 MiB", 32 * MIB, PREFETCH, 42, 42),
    Rate("prefetched, 8 MiB", 8 * MIB, PREFETCH, 33, 33),
    Rate("prefetched, 2 MiB", 2 * MIB, PREFETCH, 16, 16),
)

# The most that a figure may be off, percent.
PROMISE_CELLS, PROMISE_RATES = 5.0, 10.0

# Models of the 2019 study of unified memory: their slowdowns are published, their steps are not.
NOT_SIMULATED = ("ResNet-1001", "DenseNet-264", "V-Net", "LM-1408", "LM-2800")


class Failure(Exception):
    """pump-graph-opt could not do what it was asked for."""


def run(command: Sequence[str]) -> str:
    result = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if result.returncode != 0:
        raise Failure(result.stderr.strip())
    return result.stdout


def error_percent(ours: float, low: float, high: float) -> float:
    """Relative to the nearer end of what is known; 0 between the two."""
    nearest = min(max(ours, low), high)
    return (ours / nearest - 1) * 100


# ---- published figures -----------------------------------------------------------------------------------------------


def find_trace(folder: Path, name: str) -> Optional[Path]:
    return next((path for path in (folder / f"{name}.json", folder / f"{name}.json.gz") if path.is_file()), None)


def percents_of_report(report: str) -> List[float]:
    """Of the in-memory speed, by iteration. The first demand-paging row is the machine's own."""
    figures = json.loads(report)
    rows = figures["comparison"]["rows"]
    paging = next(row for row in rows if row["policy"].startswith("demand paging"))
    return [figures["in_memory_s"] / replay * 100 for replay in paging["replays_s"]]


def simulate_cell(tool: Path, trace: Path) -> List[float]:
    report = run([str(tool), f"--import-trace={trace}", f"--budget={STUDY_BUDGET}", "--compare=g10", "--report=json"])
    return percents_of_report(report)


CellResult = Tuple[Cell, Optional[List[float]]]


def cell_results(tool: Path, folder: Path) -> Iterator[CellResult]:
    for cell in CELLS:
        trace = find_trace(folder, cell.trace)
        yield cell, simulate_cell(tool, trace) if trace else None


# ---- measured rates --------------------------------------------------------------------------------------------------


_STEP = """pump.graph @read {{
  %x = pump.buffer "x" private live_in live_out size({size})
  %k0 = pump.kernel "read" node(0) [read %x[0, {size}] declared must(read)] cost(0.0)
}}
"""
_MICROSECONDS = {"us": 1.0, "ms": 1e3, "s": 1e6}


def microseconds_of_row(text: str, row: str) -> float:
    found = re.search(rf"^ *{re.escape(row)} +([\d.,]+) (us|ms|s)\b", text, re.MULTILINE)
    if not found:
        raise Failure(f"simulate-step printed no row \"{row}\"")
    return float(found.group(1).replace(",", "")) * _MICROSECONDS[found.group(2)]


def simulate_rate(tool: Path, rate: Rate, scratch: Path) -> float:
    """GB/s."""
    step = scratch / "read.mlir"
    step.write_text(_STEP.format(size=rate.bytes))
    options = f"budget={rate.bytes} replays=1 touch={rate.touch}"
    text = run([str(tool), f"--simulate-step={options}", "-o", "/dev/null", str(step)])
    return rate.bytes / microseconds_of_row(text, rate.row) / 1e3


RateResult = Tuple[Rate, float]


def rate_results(tool: Path) -> Iterator[RateResult]:
    with tempfile.TemporaryDirectory() as scratch:
        for rate in RATES:
            yield rate, simulate_rate(tool, rate, Path(scratch))


# ---- tables ----------------------------------------------------------------------------------------------------------


def markdown(cells: Sequence[CellResult], rates: Sequence[RateResult]) -> str:
    return "\n".join([*_cell_table(cells), "", *_rate_table(rates)]) + "\n"


def _cell_table(cells: Sequence[CellResult]) -> Iterator[str]:
    yield "Demand paging, percent of the in-memory speed; the published figure is of the iteration in bold:"
    yield ""
    yield "| trace | published | ours, iteration 1 | ours, iteration 2 | error |"
    yield "| --- | --- | --- | --- | --- |"
    for cell, ours in cells:
        if ours is None:
            yield f"| {cell.trace} | {cell.percent:.1f} | no trace | no trace | - |"
            continue
        columns = [f"**{percent:.1f}**" if iteration == cell.iteration else f"{percent:.1f}"
                   for iteration, percent in enumerate(ours, start=1)]
        error = _error(ours[cell.iteration - 1], cell.percent, cell.percent)
        if cell.doubtful:
            other = ours[2 - cell.iteration]
            error += f", or {_error(other, cell.percent, cell.percent)} if it is of the other one"
        yield f"| {cell.trace} | {cell.percent:.1f} | {' | '.join(columns)} | {error} |"
    yield ""
    yield f"Not simulated, for want of recorded steps: {', '.join(NOT_SIMULATED)} (docs/simulation.md)."


def _rate_table(rates: Sequence[RateResult]) -> Iterator[str]:
    yield "One H200, a kernel that reads host-resident managed memory, GB/s:"
    yield ""
    yield "| read | measured | ours | error |"
    yield "| --- | --- | --- | --- |"
    for rate, ours in rates:
        measured = f"{rate.low:g}" if rate.low == rate.high else f"{rate.low:g}-{rate.high:g}"
        yield f"| {rate.what} | {measured} | {ours:.1f} | {_error(ours, rate.low, rate.high)} |"


def _error(ours: float, low: float, high: float) -> str:
    error = error_percent(ours, low, high)
    return "within" if low < high and error == 0 else f"{error:+.1f} %"


def broken(cells: Sequence[CellResult], rates: Sequence[RateResult]) -> List[str]:
    """What is off by more than was promised. A trace that is not there is no failure."""
    off = [cell.trace for cell, ours in cells if ours is not None
           and abs(error_percent(ours[cell.iteration - 1], cell.percent, cell.percent)) > PROMISE_CELLS]
    return off + [rate.what for rate, ours in rates if abs(error_percent(ours, rate.low, rate.high)) > PROMISE_RATES]


def is_asked_for(arguments: Sequence[str]) -> bool:
    return any(argument.split("=")[0] == "--demand-paging" for argument in arguments)


def parse_arguments(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="pump-graph-bench", description=__doc__)
    parser.add_argument("--demand-paging", nargs="?", type=Path, const=DEFAULT_FOLDER, default=DEFAULT_FOLDER,
                        metavar="FOLDER", help="where the traces are (default: those of the repository)")
    parser.add_argument("--binaries", type=Path, default=ROOT / "build" / "bin", help="where pump-graph-opt is "
                        "(%(default)s)")
    parser.add_argument("--output", type=Path, metavar="FILE", help="write the tables there too")
    return parser.parse_args(argv)


def main(argv: Sequence[str]) -> int:
    arguments = parse_arguments(argv)
    tool = arguments.binaries / "pump-graph-opt"
    if not tool.is_file():
        sys.exit(f"pump-graph-bench: error: there is no {tool}; build it, or name its folder with --binaries")
    if not arguments.demand_paging.is_dir():
        sys.exit(f"pump-graph-bench: error: there is no folder {arguments.demand_paging}")
    try:
        cells, rates = list(cell_results(tool, arguments.demand_paging)), list(rate_results(tool))
    except Failure as failure:
        sys.exit(f"pump-graph-bench: error: {failure}")
    text = markdown(cells, rates)
    print(text, end="")
    if arguments.output:
        arguments.output.write_text(text)
    off = broken(cells, rates)
    if off:
        print("off by more than promised: " + ", ".join(off), file=sys.stderr)
    return 1 if off else 0
