# SPDX-License-Identifier: Apache-2.0
"""plan-bench: what breaks a promise, and what it prints and stores. A script stands in for pump-graph-opt."""

import contextlib
import dataclasses
import importlib.util
import io
import json
import stat
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
spec = importlib.util.spec_from_file_location("plan_bench", ROOT / "tools" / "plan-bench" / "__main__.py")
plan_bench = importlib.util.module_from_spec(spec)
__import__("sys").modules[spec.name] = plan_bench  # where dataclasses look for it
spec.loader.exec_module(plan_bench)
Row = plan_bench.Row


def rows(*predicted, cpu_s=1.0):
    return [Row(f"{index}.mlir.gz", "50%", predicted_s=each, plan_bound_s=1.0, cpu_s=cpu_s)
            for index, each in enumerate(predicted)]


def faults(now, before, compares_effort=True):
    return list(plan_bench.faults(now, {row.key: row for row in before}, compares_effort))


class Promises(unittest.TestCase):
    def test_kept(self):
        self.assertEqual(faults(rows(2.0, 3.0), rows(2.0, 3.0)), [])
        self.assertEqual(faults(rows(1.0, 3.0), rows(2.0, 3.0)), [])
        self.assertEqual(faults(rows(2.018, 3.0, 4.0, 5.0), rows(2.0, 3.0, 4.0, 5.0)), [])

    def test_a_row_over_a_percent_slower(self):
        found = faults(rows(2.03, 2.0, 2.0, 2.0, 1.9), rows(2.0, 2.0, 2.0, 2.0, 2.0))
        self.assertEqual(found, ["0.mlir.gz@50% is slower by 1.5% (at most 1.0%)"])

    def test_all_slower_by_a_little(self):
        found = faults(rows(2.01, 3.015), rows(2.0, 3.0))
        self.assertEqual(found, ["the geometric mean is slower by 0.50% (at most 0.3%)"])

    def test_effort(self):
        now, before = rows(2.0, cpu_s=13.0), rows(2.0, cpu_s=10.0)
        self.assertRegex(faults(now, before)[0], "13.0 s of processor time, 10.0 in the baseline")
        self.assertEqual(faults(now, before, compares_effort=False), [])
        self.assertEqual(faults(rows(2.0, cpu_s=11.9), before), [])

    def test_a_new_row_is_compared_with_nothing(self):
        self.assertEqual(faults(rows(2.0), [Row("0.mlir.gz", "50%")]), [])


class Command(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.tool = self.folder / "tool"
        self.answer(predicted_s=0.02, plan_bound_s=0.016, checked=True)
        self.baseline = self.folder / "plans.json"
        plan_bench.write_baseline(self.baseline, [
            Row("one.mlir.gz", "50%", True, 0.02, 0.016, 100.0),
            Row("g10/two.json.gz", "20GiB", False, 0.02, 0.01, 100.0)])

    def answer(self, **report):
        self.script(f"echo \"$@\" >> {self.folder}/calls; echo '{json.dumps(report)}'")

    def script(self, text):
        self.tool.write_text(f"#!/bin/sh\n{text}\n")
        self.tool.chmod(self.tool.stat().st_mode | stat.S_IXUSR)

    def run_main(self, *arguments):
        output = io.StringIO()
        with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
            status = plan_bench.main(["--tool", str(self.tool), "--baseline", str(self.baseline), *arguments])
        return status, output.getvalue()

    def test_steps_and_traces(self):
        status, text = self.run_main()
        self.assertEqual(status, 0, text)
        calls = (self.folder / "calls").read_text().splitlines()
        self.assertEqual(calls, [f"{plan_bench.DATA}/one.mlir.gz --budget=50% --report=json",
                                 f"--import-trace={plan_bench.DATA}/g10/two.json.gz --budget=20GiB --report=json"])
        self.assertIn("| one | 50% | 20.00 | 20.00 | +0.00% | 1.250 |", text)
        self.assertIn("Geometric mean over the plan bound: 1.2500, of 2 rows.", text)

    def test_chooses_rows(self):
        self.run_main("--short")
        self.run_main("--rows", "20GiB")
        calls = (self.folder / "calls").read_text()
        self.assertEqual((calls.count("one.mlir.gz"), calls.count("two.json.gz")), (1, 1))
        self.assertEqual(self.run_main("--rows", "three")[0], 2)

    def test_a_slower_plan_fails(self):
        self.answer(predicted_s=0.021, plan_bound_s=0.016, checked=True)
        status, text = self.run_main()
        self.assertEqual(status, 1)
        self.assertIn("* BROKEN: one.mlir.gz@50% is slower by 5.0%", text)

    def test_a_plan_that_is_wrong_or_not_there_fails(self):
        self.answer(predicted_s=0.02, plan_bound_s=0.016, checked=False)
        status, text = self.run_main("--short")
        self.assertEqual((status, "the checker refuses the plan" in text), (1, True))
        self.script("echo trouble >&2; exit 3")
        status, text = self.run_main("--short")
        self.assertEqual((status, "* BROKEN: one.mlir.gz@50%: trouble" in text), (1, True))

    def test_update_keeps_rows_that_were_not_run(self):
        self.answer(predicted_s=0.03, plan_bound_s=0.016, checked=True)
        self.run_main("--short", "--update")
        processor, stored = plan_bench.read_baseline(self.baseline)
        self.assertEqual(processor, plan_bench.processor())
        self.assertEqual([row.predicted_s for row in stored], [0.03, 0.02])
        self.assertEqual([row.quick for row in stored], [True, False])


class Baseline(unittest.TestCase):
    def test_every_row_has_its_step_and_figures(self):
        _, stored = plan_bench.read_baseline(plan_bench.BASELINE)
        self.assertGreaterEqual(len(stored), 30)
        self.assertEqual(len({row.key for row in stored}), len(stored))
        self.assertGreaterEqual(sum(row.quick for row in stored), 6)
        for row in stored:
            with self.subTest(row=row.key):
                self.assertTrue((plan_bench.DATA / row.file).is_file())
                self.assertNotIn(None, dataclasses.astuple(row))


if __name__ == "__main__":
    unittest.main()
