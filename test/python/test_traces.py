# SPDX-License-Identifier: Apache-2.0
"""The trace table of pump-graph-bench, and the made-up traces: everything but the planning itself."""

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

import synthetic_traces  # noqa: E402
import traces  # noqa: E402

GIB = traces.GIB


def result(trace="BERT-256", gib=40, host=None, predicted=1.02, **report):
    case = traces.Case(trace, gib, gib * GIB, host)
    figures = {"in_memory_s": 0.9, "bound_s": 0.95, "plan_bound_s": 1.0, "predicted_s": predicted, "up_bytes": 2 * GIB,
               "down_bytes": GIB, "plan_ms": 10, "checked": True, "stalls": [1, 2], **report}
    return traces.Result(case, figures)


def impossible(error="the plan needs 3 GiB of host memory; 2 GiB may be used, 1 GiB are missing", spill=3 * GIB):
    case = traces.Case("BERT-256", 40, 40 * GIB, 2 * GIB)
    return traces.Result(case, error=error, must_spill_bytes=spill)


def tiny(**tensor):
    return {
        "name": "tiny",
        "tensors": [{"id": 0, "name": "w", "kind": "persistent", "bytes": 5 << 20},
                    {"id": 1, "name": "x", "kind": "intermediate", "bytes": 4 << 20},
                    {"id": 2, "name": "y", "kind": "intermediate", "bytes": 1 << 20, **tensor}],
        "kernels": [{"id": 0, "name": "a", "time_us": 10, "reads": [0], "writes": [1]},
                    {"id": 1, "name": "b", "time_us": 10, "reads": [1, 1], "writes": [2]},
                    {"id": 2, "name": "c", "time_us": 10, "reads": [2, 0], "writes": [0]}],
    }


class Budgets(unittest.TestCase):
    def test_the_largest_kernel_in_whole_pages(self):
        self.assertEqual(traces.largest_kernel(tiny()), (6 + 4) << 20)

    def test_the_peak_counts_what_lives(self):
        self.assertEqual(traces.peak_live(tiny()), (5 + 4 + 1) << 20)

    def test_no_budget_is_too_small_for_a_kernel_and_none_comes_twice(self):
        small = [case.budget_bytes for case in traces.cases_of(tiny(), [None])]
        self.assertEqual(small, [40 * GIB, 20 * GIB, 10 * GIB])
        large = list(traces.cases_of(tiny(bytes=30 * GIB), [None, GIB]))
        self.assertEqual([(case.nominal_gib, case.host_bytes) for case in large],
                         [(40, None), (20, None), (40, GIB), (20, GIB)])
        self.assertGreaterEqual(large[1].budget_bytes, 1.1 * (30 * GIB + (4 << 20)))


class Promises(unittest.TestCase):
    def broken(self, *results):
        return [text for kept, text in traces.checks(results) if not kept]

    def test_kept(self):
        results = [result(), result(gib=20, predicted=1.05), impossible()]
        self.assertEqual(self.broken(*results), [])
        self.assertTrue(all(one.is_kept for one in results))

    def test_each_memory_has_its_own_limit(self):
        self.assertIn("the worst is 1.040", self.broken(result(predicted=1.04))[0])
        self.assertIn("the worst is 1.070", self.broken(result(gib=20, predicted=1.07))[0])
        self.assertFalse(result(predicted=1.04).is_kept)

    def test_the_best_bound_counts(self):
        tight = result(predicted=1.04)
        tight.lp_bound_s = 1.02
        self.assertTrue(tight.is_kept)

    def test_the_checker_has_to_accept(self):
        refused = result(checked=False)
        self.assertFalse(refused.is_kept)
        self.assertIn("the checker accepts 0 of 1 plans", self.broken(refused)[0])

    def test_only_what_cannot_fit_may_fail(self):
        for failed in (impossible(spill=GIB), impossible(error="no frames found")):
            self.assertFalse(failed.is_kept)
            self.assertEqual(len(self.broken(failed)), 1)


class Table(unittest.TestCase):
    def test_published_columns_stand_beside_the_memory_of_the_study_only(self):
        lines = traces.markdown([result(), result(gib=20), result(trace="other")]).splitlines()
        rows = [line for line in lines if line.startswith(("| BERT", "| other"))]
        self.assertIn("| 37.1 % | 79.5 % | 71.3 % | 99.7 % |", rows[0])
        self.assertIn("| 88.2 % |", rows[0])  # of the step in memory: 0.9 / 1.02
        for row in rows[1:]:
            self.assertIn("| - | - | - | - |", row)
        self.assertEqual({line.count("|") for line in lines if line.startswith("|")}, {len(traces.COLUMNS)})

    def test_a_row_without_a_plan_says_why(self):
        self.assertIn("| 40.0 GiB | the plan needs 3 GiB", traces.markdown([impossible()]))

    def test_rows_without_a_difference_are_counted(self):
        same, slower = result(host=GIB, plan_ms=20), result(gib=20, host=GIB, predicted=1.2)
        text = traces.markdown([result(), result(gib=20), same, slower])
        second = text.split("## Traces, 1 GiB of host memory")[1]
        self.assertTrue(second.startswith("\n\n1 rows are as above.\n\n| trace |"), second)
        self.assertIn("| 1.20 s |", second)
        self.assertEqual(second.count("| BERT"), 1)

    def test_columns_without_a_figure_are_left_out(self):
        lines = traces.markdown([impossible()]).splitlines()
        self.assertIn("| trace | budget | in memory |", lines)

    def test_a_missing_solver_is_said(self):
        self.assertIn("(no LP bound: no scipy)", traces.markdown([result()], "no LP bound: no scipy"))

    def test_json_has_every_row(self):
        rows = json.loads(traces.as_json([result(), impossible()]))["rows"]
        self.assertEqual([row["kept"] for row in rows], [True, True])
        self.assertEqual(rows[0]["report"]["predicted_s"], 1.02)
        self.assertIn("missing", rows[1]["error"])


class Command(unittest.TestCase):
    """With a stand-in for the planner that predicts what it is told to."""

    def run_with(self, folder, predicted):
        tool = Path(folder) / "pump-graph-opt"
        report = {"in_memory_s": 1, "bound_s": 1, "plan_bound_s": 1, "predicted_s": predicted, "up_bytes": 0,
                  "down_bytes": 0, "plan_ms": 1, "checked": True, "machine": {}}
        tool.write_text("#!/bin/sh\nfor argument; do case $argument in --report=json:*) "
                        f"echo '{json.dumps(report)}' > \"${{argument#--report=json:}}\";; esac; done\n")
        tool.chmod(tool.stat().st_mode | stat.S_IXUSR)
        (Path(folder) / "t").mkdir()
        (Path(folder) / "t" / "tiny.json").write_text(json.dumps(tiny()))
        output = io.StringIO()
        with contextlib.redirect_stdout(output), contextlib.redirect_stderr(io.StringIO()):
            status = traces.main([f"--traces={folder}/t", f"--binaries={folder}", "--no-lp", f"--json={folder}/j"])
        self.assertEqual(len(json.loads((Path(folder) / "j").read_text())["rows"]), 6)
        return status, output.getvalue()

    def test_exit_status_says_whether_promises_are_kept(self):
        for predicted, expected in ((1.02, 0), (1.05, 1)):
            with tempfile.TemporaryDirectory() as folder:
                status, text = self.run_with(folder, predicted)
            self.assertEqual(status, expected)
            self.assertEqual("BROKEN" in text, expected == 1)

    def test_what_is_not_there(self):
        for arguments in (["--traces=/nowhere", f"--binaries={os.path.dirname(sys.executable)}"],
                          ["--traces", "--binaries=/nowhere"]):
            with self.assertRaisesRegex(SystemExit, "error: there is no"):
                traces.main(arguments)

    def test_it_is_asked_for_by_its_options(self):
        self.assertTrue(traces.is_asked_for(["--binaries", "x", "--traces=y"]))
        self.assertTrue(traces.is_asked_for(["--synthetic", "3"]))
        self.assertFalse(traces.is_asked_for(["--examples", "gpt2"]))


class Synthetic(unittest.TestCase):
    def test_the_same_seed_gives_the_same_trace(self):
        first, again = (json.dumps(list(synthetic_traces.synthetic_traces(8, 5))) for _ in range(2))
        self.assertEqual(first, again)
        self.assertNotEqual(first, json.dumps(list(synthetic_traces.synthetic_traces(8, 6))))

    def test_kernels_read_only_what_there_is(self):
        for trace in synthetic_traces.synthetic_traces(16):
            with self.subTest(trace=trace["name"]):
                there = {tensor["id"] for tensor in trace["tensors"]
                         if tensor["kind"] == "persistent" or tensor.get("no_producer")}
                for kernel in trace["kernels"]:
                    self.assertLessEqual(set(kernel["reads"]), there)
                    there.update(kernel["writes"])

    def test_sizes_and_times_are_as_drawn(self):
        net = synthetic_traces.deep(synthetic_traces.random.Random(1))
        trace = net.trace("deep", 50 * GIB, 2.0)
        self.assertAlmostEqual(traces.peak_live(trace) / GIB, 50, delta=0.5)
        seconds = sum(kernel["time_us"] for kernel in trace["kernels"]) / 1e6
        self.assertAlmostEqual(seconds, 2 * 50 * GIB / synthetic_traces.LINK_BYTES_PER_SECOND, delta=0.01)

    def test_another_batch_size(self):
        grown = synthetic_traces.at_batch(tiny(), 2, fixed=0.5)
        self.assertEqual([tensor["bytes"] >> 20 for tensor in grown["tensors"]], [5, 8, 2])
        self.assertEqual(grown["kernels"][0]["time_us"], 15)
        self.assertEqual(grown["name"], "tiny-x2")


if __name__ == "__main__":
    unittest.main()
