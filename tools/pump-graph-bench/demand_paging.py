# SPDX-License-Identifier: Apache-2.0
"""How far the simulated unified memory is to be trusted: every published demand-paging figure that can be simulated
beside ours, and what was measured on one H200 beside what its model does. Needs no GPU.
docs/design/cost-model.md has more."""

from __future__ import annotations

import argparse
import dataclasses
import statistics
import sys
from pathlib import Path
from typing import Callable, Dict, Iterator, List, Optional, Sequence, Tuple

import study_2019
from paged_steps import Buffer, Failure, Kernel, as_ir, of_trace, rows_of, simulate
from traces import read_trace

ROOT = Path(__file__).resolve().parents[2]
DEFAULT_FOLDER = ROOT / "test" / "data" / "g10"
MIB = 1 << 20


@dataclasses.dataclass(frozen=True)
class Group:
    """Cells that are off for the same reasons."""
    title: str
    promise: float  # percent that a cell may be off, at most


G10 = Group("G10", 5)
LISTING = Group("G10, listing", 25)
G10_DISK = Group("G10, faster SSDs", 25)
GTC = Group("2019", 35)


@dataclasses.dataclass(frozen=True)
class G10Cell:
    """A share of the in-memory speed at 40 GiB, with 128 GiB of host memory and an SSD."""
    trace: str
    percent: float
    iteration: int  # the one that the figure is of: docs/design/cost-model.md tells how that is known
    group: Group = G10
    disk: Optional[float] = None  # GB/s; the link has 32 then. None: the study's own of both

    @property
    def title(self) -> str:
        if self.group == LISTING:
            return f"{self.trace}, iteration {self.iteration}"
        return self.trace if self.disk is None else f"{self.trace}, SSD {self.disk:g} GB/s"


@dataclasses.dataclass(frozen=True)
class GtcCell:
    """Batch sizes and samples a second of the study of 2019: that just fits its card, and oversubscribed."""
    model: str
    bits: int
    fits: int
    fits_rate: float
    batch: int
    rate: float
    group: Group = GTC

    @property
    def title(self) -> str:
        return f"{self.model}, fp{self.bits}, {self.batch / self.fits:.2f} x the batch that fits"

    @property
    def percent(self) -> float:
        return self.rate / self.fits_rate * 100


G10_CELLS = (
    G10Cell("BERT-256", 37.1, 2),
    G10Cell("BERT-512", 12.2, 2),
    G10Cell("VIT-512", 33.4, 2),
    G10Cell("Inceptionv3-512", 54.8, 1),
    G10Cell("ResNet152-1280", 24.0, 1),
    G10Cell("BERT-256", 30.2, 1, LISTING),
    *(G10Cell("BERT-512", percent, 2, G10_DISK, disk)
      for disk, percent in ((6.4, 20.1), (12.8, 26.5), (19.2, 28.3), (25.6, 26.8), (32, 43.1))),
    *(G10Cell("ResNet152-1280", percent, 1, G10_DISK, disk)
      for disk, percent in ((6.4, 38.6), (12.8, 49.4), (19.2, 50.6), (25.6, 52.7), (32, 63.3))),
)
GTC_CELLS = (
    GtcCell("ResNet-1001", 16, 98, 98.7, 202, 10.1),
    GtcCell("ResNet-1001", 32, 48, 44.3, 98, 5.0),
    GtcCell("DenseNet-264", 16, 218, 255.8, 430, 22.3),
    GtcCell("DenseNet-264", 32, 109, 143.1, 218, 12.1),
    GtcCell("V-Net", 16, 30, 3.56, 32, 3.0),
    GtcCell("V-Net", 32, 15, 3.4, 32, 1.1),
    GtcCell("LM-1408", 16, 32, 94.9, 44, 8.4),
    GtcCell("LM-1408", 32, 40, 77.9, 44, 10.0),
    GtcCell("LM-2800", 16, 16, 46.5, 22, 4.1),
    GtcCell("LM-2800", 32, 18, 35.7, 22, 4.9),
)
STUDY_BUDGET = "40GiB"


@dataclasses.dataclass(frozen=True)
class Rate:
    """A kernel that reads host-resident managed memory once, as measured (docs/design/cost-model.md)."""
    what: str
    bytes: int
    prefetched: bool
    low: float  # GB/s
    high: float
    touch: int = 4096


RATES = (
    Rate("through faults, every page touched", 2048 * MIB, False, 7, 11),
    Rate("through faults, one touch in 64 KiB", 2048 * MIB, False, 18, 18, 64 << 10),
    Rate("prefetched, 2 GiB in one call", 2048 * MIB, True, 51, 51),
    Rate("prefetched, 128 MiB", 128 * MIB, True, 47, 47),
    Rate("prefetched, 32 MiB", 32 * MIB, True, 42, 42),
    Rate("prefetched, 8 MiB", 8 * MIB, True, 33, 33),
    Rate("prefetched, 2 MiB", 2 * MIB, True, 16, 16),
)

# The most that a rate may be off, percent.
PROMISE_RATES = 10.0


def error_percent(ours: float, low: float, high: float) -> float:
    """Relative to the nearer end of what is known; 0 between the two."""
    nearest = min(max(ours, low), high)
    return (ours / nearest - 1) * 100


# ---- published figures -----------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Result:
    """Ours beside one published cell, in percent of the in-memory speed."""
    title: str
    group: Group
    published: float
    ours: float
    other_iteration: Optional[float] = None
    # How many times as fast as demand paging.
    aggressive: float = 1
    prefetched: float = 1

    @property
    def error(self) -> float:
        return error_percent(self.ours, self.published, self.published)


def find_trace(folder: Path, name: str) -> Optional[Path]:
    return next((path for path in (folder / f"{name}.json", folder / f"{name}.json.gz") if path.is_file()), None)


def g10_results(tool: Path, folder: Path) -> Iterator[Result]:
    """A trace that is not there has no row."""
    steps: Dict[str, str] = {}
    for cell in G10_CELLS:
        path = find_trace(folder, cell.trace)
        if not path:
            continue
        if cell.trace not in steps:
            steps[cell.trace] = of_trace(read_trace(path))
        machine = {"memory": "g10"} if cell.disk is None else {"memory": "g10-32", "disk": cell.disk}
        memory, paging, _, _ = rows_of(simulate(tool, steps[cell.trace], budget=STUDY_BUDGET, **machine))
        percents = [memory["step_s"] / replay * 100 for replay in paging["replays_s"]]
        yield Result(cell.title, cell.group, cell.percent, percents[cell.iteration - 1], percents[2 - cell.iteration])


def gtc_results(tool: Path) -> Iterator[Result]:
    """What the rebuilt step takes at the batch that just fits is taken for the card's memory."""
    for cell in GTC_CELLS:
        fits, oversubscribed = (study_2019.rebuild(cell.model, cell.bits // 8, batch, cell.fits_rate)
                                for batch in (cell.fits, cell.batch))
        footprint = rows_of(simulate(tool, fits, memory="v100"))[1]["footprint_bytes"]
        memory, paging, aggressive, prefetch = (
            row["step_s"] for row in rows_of(simulate(tool, oversubscribed, memory="v100", budget=footprint)))
        yield Result(cell.title, cell.group, cell.percent, memory / paging * 100, aggressive=paging / aggressive,
                     prefetched=paging / prefetch)


# ---- measured rates --------------------------------------------------------------------------------------------------


def simulate_rate(tool: Path, rate: Rate) -> float:
    """GB/s."""
    step = as_ir([Buffer("x", rate.bytes, True)], [Kernel("read", 0, (("read", 0, rate.bytes),))])
    _, paging, _, prefetch = rows_of(simulate(tool, step, budget=rate.bytes, replays=1, touch=rate.touch))
    return rate.bytes / (prefetch if rate.prefetched else paging)["step_s"] / 1e9


RateResult = Tuple[Rate, float]


# ---- tables ----------------------------------------------------------------------------------------------------------


def markdown(results: Sequence[Result], rates: Sequence[RateResult]) -> str:
    return "\n".join([*_cell_table(results), "", *_rate_table(rates)]) + "\n"


def _cell_table(results: Sequence[Result]) -> Iterator[str]:
    yield "Demand paging, percent of the in-memory speed:"
    yield ""
    yield "| study | cell | published | ours | error | ours, the other iteration |"
    yield "| --- | --- | --- | --- | --- | --- |"
    for result in results:
        other = "-" if result.other_iteration is None else f"{result.other_iteration:.1f}"
        yield (f"| {result.group.title} | {result.title} | {result.published:.1f} | {result.ours:.1f} | "
               f"{result.error:+.1f} % | {other} |")
    yield ""
    groups: Dict[str, List[Result]] = {}
    for result in results:
        groups.setdefault(result.group.title, []).append(result)
    for title, chosen in [*groups.items(), ("all", list(results))]:
        if chosen:
            yield f"* {title}: {_errors(chosen)}"
    gtc = [result for result in results if result.group == GTC]
    if gtc:
        yield f"* a lower threshold, 5 percent: published up to 20 % more; ours {_gain(gtc, lambda r: r.aggressive)}"
        yield f"* operands prefetched at launch: published up to 1.6 x; ours {_gain(gtc, lambda r: r.prefetched)}"


def _errors(results: Sequence[Result]) -> str:
    worst = max(results, key=lambda result: abs(result.error))
    if len(results) == 1:
        return f"1 cell, {worst.error:+.1f} %"
    median = statistics.median(abs(result.error) for result in results)
    return f"{len(results)} cells, median error {median:.1f} %, worst {worst.error:+.1f} % ({worst.title})"


def _gain(results: Sequence[Result], times: Callable[[Result], float]) -> str:
    best = max(results, key=times)
    median = statistics.median(map(times, results))
    return f"up to {times(best):.2f} x ({best.title}), {median:.2f} x in the median"


def _rate_table(rates: Sequence[RateResult]) -> Iterator[str]:
    yield "One H200, a kernel that reads host-resident managed memory, GB/s:"
    yield ""
    yield "| read | measured | ours | error |"
    yield "| --- | --- | --- | --- |"
    for rate, ours in rates:
        measured = f"{rate.low:g}" if rate.low == rate.high else f"{rate.low:g}-{rate.high:g}"
        yield f"| {rate.what} | {measured} | {ours:.1f} | {_rate_error(ours, rate)} |"


def _rate_error(ours: float, rate: Rate) -> str:
    error = error_percent(ours, rate.low, rate.high)
    return "within" if rate.low < rate.high and error == 0 else f"{error:+.1f} %"


def broken(results: Sequence[Result], rates: Sequence[RateResult]) -> List[str]:
    """What is off by more than was promised."""
    off = [result.title for result in results if abs(result.error) > result.group.promise]
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
        results = [*g10_results(tool, arguments.demand_paging), *gtc_results(tool)]
        rates = [(rate, simulate_rate(tool, rate)) for rate in RATES]
    except Failure as failure:
        sys.exit(f"pump-graph-bench: error: {failure}")
    text = markdown(results, rates)
    print(text, end="")
    if arguments.output:
        arguments.output.write_text(text)
    off = broken(results, rates)
    if off:
        print("off by more than promised: " + ", ".join(off), file=sys.stderr)
    return 1 if off else 0
