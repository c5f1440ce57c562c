# SPDX-License-Identifier: Apache-2.0
"""The table of pump-graph-bench --demand-paging: everything but the simulation itself."""

import contextlib
import io
import json
import os
import stat
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools" / "pump-graph-bench"))

import demand_paging  # noqa: E402
from demand_paging import Cell, Rate  # noqa: E402

BAND = Rate("faults", 2 << 30, demand_paging.DEMAND, 7, 11)
POINT = Rate("prefetched", 2 << 20, demand_paging.PREFETCH, 16, 16)
TABLE = """read: 1 node, 1 buffer
  at 2.00 GiB                 step  in-memory        up      down     batches     evicted
  in memory                   0 us          -       0 B       0 B
  demand paging (51 %)      239 ms          -  2.00 GiB       0 B       2,048           0
  prefetch at launch       2.50 s           -  2.00 GiB       0 B           0           0

  demand paging (51 %): 1 node stalled, 239 ms in all; fault handling 197 ms, fetching 42.1 ms
"""


def report(*replays):
    rows = [{"policy": "in memory", "step_s": 1.0}, {"policy": "demand paging (100 %)", "replays_s": list(replays)}]
    return json.dumps({"in_memory_s": 1.0, "comparison": {"rows": rows}})


class Figures(unittest.TestCase):
    def test_an_error_is_relative_and_has_a_sign(self):
        self.assertAlmostEqual(demand_paging.error_percent(22, 20, 20), 10)
        self.assertAlmostEqual(demand_paging.error_percent(18, 20, 20), -10)

    def test_within_a_measured_band_there_is_no_error_and_outside_its_end_counts(self):
        self.assertEqual(demand_paging.error_percent(9, 7, 11), 0)
        self.assertAlmostEqual(demand_paging.error_percent(12.1, 7, 11), 10)
        self.assertAlmostEqual(demand_paging.error_percent(6.3, 7, 11), -10)

    def test_a_report_holds_every_iteration(self):
        self.assertEqual(demand_paging.percents_of_report(report(2.0, 4.0)), [50.0, 25.0])

    def test_times_are_read_from_the_table_not_from_the_stalls(self):
        self.assertEqual(demand_paging.microseconds_of_row(TABLE, demand_paging.DEMAND), 239e3)
        self.assertEqual(demand_paging.microseconds_of_row(TABLE, demand_paging.PREFETCH), 2.5e6)

    def test_a_missing_row_is_said(self):
        with self.assertRaisesRegex(demand_paging.Failure, "no row \"demand paging \\(7 %\\)\""):
            demand_paging.microseconds_of_row(TABLE, "demand paging (7 %)")


class Tables(unittest.TestCase):
    CELL = Cell("BERT-256", 37.1, 2)

    def test_the_published_iteration_is_the_one_that_is_compared(self):
        text = demand_paging.markdown([(self.CELL, [30.0, 38.2])], [(BAND, 9.0), (POINT, 16.8)])
        self.assertIn("| BERT-256 | 37.1 | 30.0 | **38.2** | +3.0 % |", text)
        self.assertIn("| faults | 7-11 | 9.0 | within |", text)
        self.assertIn("| prefetched | 16 | 16.8 | +5.0 % |", text)

    def test_a_doubt_is_stated(self):
        text = demand_paging.markdown([(Cell("x", 10, 2, doubtful=True), [12.0, 9.0])], [])
        self.assertIn("| x | 10.0 | 12.0 | **9.0** | -10.0 %, or +20.0 % if it is of the other one |", text)

    def test_a_trace_that_is_not_there_is_no_failure(self):
        self.assertIn("| BERT-256 | 37.1 | no trace | no trace | - |", demand_paging.markdown([(self.CELL, None)], []))
        self.assertEqual(demand_paging.broken([(self.CELL, None)], []), [])

    def test_what_is_too_far_off_is_named(self):
        cells = [(self.CELL, [37.1, 40.0]), (Cell("VIT-512", 33.4, 1), [33.4, 90.0])]
        self.assertEqual(demand_paging.broken(cells, [(BAND, 12.5), (POINT, 15.0)]), ["BERT-256", "faults"])

    def test_traces_are_found_packed_or_not(self):
        with tempfile.TemporaryDirectory() as folder:
            self.assertIsNone(demand_paging.find_trace(Path(folder), "x"))
            packed = Path(folder) / "x.json.gz"
            packed.touch()
            self.assertEqual(demand_paging.find_trace(Path(folder), "x"), packed)


class Command(unittest.TestCase):
    def run_with(self, script):
        """With a shell script in the tool's place: exit status or message, and what it printed."""
        with tempfile.TemporaryDirectory() as folder:
            tool = Path(folder) / "pump-graph-opt"
            tool.write_text("#!/bin/sh\n" + script)
            os.chmod(tool, tool.stat().st_mode | stat.S_IXUSR)
            out, err = io.StringIO(), io.StringIO()
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
                try:
                    status = demand_paging.main(["--demand-paging", "--binaries", folder])
                except SystemExit as stopped:
                    status = stopped.code
        return status, out.getvalue(), err.getvalue()

    def test_what_the_tool_says_is_passed_on(self):
        status, _, _ = self.run_with("echo 'no such trace' >&2; exit 1\n")
        self.assertEqual(status, "pump-graph-bench: error: no such trace")

    def test_figures_that_are_far_off_fail(self):
        script = f"""case "$1" in
--import-trace=*) echo '{report(1.0, 1.0)}' ;;
*) cat <<'END'
{TABLE}END
esac
"""
        status, out, err = self.run_with(script)
        self.assertEqual(status, 1)
        self.assertIn("| BERT-256 | 37.1 | 100.0 | **100.0** | +169.5 % |", out)
        self.assertIn("off by more than promised: BERT-256, BERT-512", err)

    def test_a_missing_tool_is_said(self):
        with tempfile.TemporaryDirectory() as folder, self.assertRaises(SystemExit) as stopped:
            demand_paging.main(["--demand-paging", "--binaries", folder])
        self.assertIn("build it, or name its folder with --binaries", str(stopped.exception.code))


if __name__ == "__main__":
    unittest.main()
