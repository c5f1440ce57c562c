#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Filter, sort, group-by and top-k over a table of sales, in plain CuPy or under a budget. Prints the results, which
are the same, and on stderr the time of a call."""

import argparse
import sys
import time

import cupy
import cupyx

REGIONS, TOP, CALLS = 1000, 10, 40


def table_of(rows):
    """Columns of numbers that follow from their places."""
    place = cupy.arange(rows, dtype="uint32")
    mixed = (place * 2654435761) >> 8
    return (mixed % REGIONS).astype("int32"), (mixed % 9973).astype("int32"), (mixed % 97).astype("int32")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1 << 24)
    parser.add_argument("--plain", action="store_true", help="without PumpGraph")
    parser.add_argument("--budget", default="400MiB", help="of the arrays (%(default)s)")
    arguments = parser.parse_args()
    if not arguments.plain:
        import pumpgraph.cupy

        pumpgraph.cupy.install(arguments.budget, budget_of="tensors")
    regions, prices, amounts = table_of(arguments.rows)

    def report(least):
        sales = prices * amounts
        kept = cupy.where(amounts > least, sales, 0)
        by_region = cupy.zeros(REGIONS, "int32")
        cupyx.scatter_add(by_region, regions, kept // 100)
        best = cupy.sort(kept)[-TOP:]
        rest = cupy.where(kept < kept.mean(), 0, kept)
        return by_region, best, rest.sum()

    step = report if arguments.plain else pumpgraph.cupy.graphed(report)
    least = cupy.zeros((), "int32")
    for call in range(CALLS):
        least[...] = call % 5
        cupy.cuda.runtime.deviceSynchronize()
        start = time.perf_counter()
        by_region, best, rest = step(least)
        cupy.cuda.runtime.deviceSynchronize()
        seconds = time.perf_counter() - start
        if call % 8 == 0:
            print(call, int(by_region.sum()), best.get().tolist(), int(rest))
    print(f"last call: {seconds * 1e3:.1f} ms", file=sys.stderr)
    if not arguments.plain:
        print(step.report(), file=sys.stderr)


if __name__ == "__main__":
    main()
