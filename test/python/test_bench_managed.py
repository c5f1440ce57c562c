# SPDX-License-Identifier: Apache-2.0
"""pump-graph-bench --managed without a GPU: what it runs, how it goes on, and the table of given results."""

import copy
import json
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import support

BENCH = support.ROOT / "tools" / "pump-graph-bench"
sys.path.insert(0, str(BENCH))

import managed  # noqa: E402


def figures(step_ms, bound_ms=20.0):
    return {
        "step_ms": [step_ms - 1, step_ms, step_ms + 1],
        "state": "5eed",
        "arena_bytes": 2 << 30,
        "plan_bound_s": bound_ms / 1e3,
        "moving_bound_s": bound_ms / 1e3,
        "hosted_bytes": 96 << 20,
        "predicted_s": 0.0215,
        "agent": {"dropped": 0, "released": 0, "failed": 0},
    }


def complete():
    done = {}
    for repeat in (0, 1):
        for way, step_ms in (("faults", 100), ("launch", 24), ("ahead", 23), ("hosted", 22)):
            done[f"streaming/{way}/{repeat}"] = figures(step_ms + repeat, 20 + repeat)
        done[f"streaming/captured/{repeat}"] = {"step_ms": [0.5], "state": "5eed"}
    return done


def broken(done):
    return [text for kept, text in managed.checks(done) if not kept]


class TheTable(unittest.TestCase):
    def test_has_medians_and_spreads(self):
        text = managed.markdown(complete())
        self.assertIn("| 100.5 (99.0-102.0) | 24.5 (23.0-26.0) | 23.5 (22.0-25.0) | 22.5 (21.0-24.0) | 96.0 | "
                      "20.5 (20.0-21.0) | 21.5 | 1.10 | 0.5 |", text)
        self.assertNotIn("broken", text)
        self.assertNotIn("40 %", text)

    def test_compares_each_run_with_its_own_bound(self):
        done = complete()
        done["streaming/hosted/0"] = figures(44, 40)
        self.assertAlmostEqual(managed.Figures(managed.STEPS[0], done).over_bound(), (1.1 + 23 / 21) / 2)

    def test_names_what_is_broken(self):
        self.assertEqual(broken(complete()), [])
        slow = complete()
        slow["streaming/hosted/0"] = slow["streaming/hosted/1"] = figures(40)
        self.assertEqual(len(broken(slow)), 2)
        dropped = copy.deepcopy(complete())
        dropped["streaming/launch/1"]["agent"]["dropped"] = 1
        self.assertIn("1 operations", broken(dropped)[0])
        large = complete()
        large["streaming/faults/0"]["arena_bytes"] = 3 << 30
        self.assertIn("an arena", broken(large)[0])
        other = complete()
        other["streaming/captured/1"]["state"] = "bad"
        self.assertEqual(broken(other), ["streaming: 2 different results"])
        del other["streaming/captured/1"]["state"]
        self.assertIn("without a digest", broken(other)[0])

    def test_finds_out_bounds_that_are_wrong(self):
        done = complete()
        for way in ("ahead", "hosted"):
            done[f"streaming/{way}/1"] = figures(23, 24)
        found = broken(done)
        self.assertEqual(len(found), 2)
        self.assertIn("streaming/ahead/1: 23.0 ms, below its bound of 24.0", found[0])
        self.assertIn("streaming/hosted/1: 23.0 ms, below its bound of 24.0", found[1])

    def test_lets_what_is_hosted_be_below_the_bound_of_plans_that_move_it(self):
        done = complete()
        done["streaming/hosted/1"]["moving_bound_s"] = 0.024
        self.assertEqual(broken(done), [])

    def test_leaves_out_failed_runs_and_says_so(self):
        done = complete()
        done["streaming/faults/1"] = {"error": "stopped after 60 s"}
        text = managed.markdown(done)
        self.assertIn("**failed**: streaming/faults/1: stopped after 60 s", text)
        self.assertIn("| 100.0 (99.0-101.0) |", text)


class TheCommand(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.results = Path(self.folder.name) / "results.jsonl"

    def bench(self, *arguments):
        return subprocess.run([sys.executable, str(BENCH), "--managed", *arguments], stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, universal_newlines=True)

    def write(self, done):
        self.results.write_text("".join(json.dumps({"key": k, "figures": f}) + "\n" for k, f in done.items()))

    def test_prints_given_results(self):
        self.write(complete())
        summary = Path(self.folder.name) / "summary.json"
        result = self.bench("--from", str(self.results), "--json", str(summary))
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(result.stdout, managed.markdown(complete()))
        self.assertEqual(json.loads(summary.read_text()), managed.summary(complete()))

    def test_fails_where_a_promise_is_broken_or_nothing_is_there(self):
        slow = complete()
        slow["streaming/hosted/0"] = slow["streaming/hosted/1"] = figures(40)
        self.write(slow)
        self.assertEqual(self.bench("--from", str(self.results)).returncode, 1)
        self.assertEqual(self.bench("--from", str(self.results), "--rows", "unknown-40").returncode, 1)
        self.assertIn("no row", self.bench("--from", str(self.results), "--rows", "nothing").stderr)

    def test_runs_what_is_missing(self):
        binary = Path(self.folder.name) / "runtime_smoke"
        line = json.dumps(figures(22))
        binary.write_text(f"#!/bin/sh\n[ $3 != faults ] || {{ echo no memory >&2; exit 1; }}\necho '{line}'\n")
        binary.chmod(0o755)
        self.write({"streaming/ahead/0": figures(21)})
        result = self.bench("--rows", "streaming", "--repeats", "1", "--binaries", self.folder.name, "--results",
                            str(self.results))
        self.assertEqual(result.returncode, 1)
        self.assertNotIn("streaming/ahead/0 ...", result.stderr)
        self.assertIn("streaming/launch/0 ...", result.stderr)
        self.assertIn("streaming/faults/0: exit status 1: no memory", result.stdout)
        self.assertIn("| 22.0 (21.0-23.0) | 21.0 (20.0-22.0) | 22.0 (21.0-23.0) |", result.stdout)

    def test_takes_budgets_of_pytorch_from_the_step_in_memory(self):
        step = next(step for step in managed.STEPS if step.torch_share)
        self.assertLess(step.arena_bytes, 4 << 30)
        captured = managed.command_of(Path("bin"), step, "captured", {})
        ahead = managed.command_of(Path("bin"), step, "ahead", {"peak_bytes": 1001 << 20})
        self.assertEqual(captured, [*ahead[:3], "captured"])
        budget = int((1001 << 20) * step.torch_share)
        self.assertEqual(ahead[2:], ["small", "ahead", str(budget), str(step.arena_bytes)])
        self.assertEqual(managed.command_of(Path("bin"), managed.STEPS[0], "ahead", {}),
                         ["bin/runtime_smoke", "--managed-row", managed.STEPS[0].name, "ahead"])

    def test_large_rows_are_large_in_both_programs(self):
        rows = {step.name: managed.command_of(Path("bin"), step, "captured", {})
                for step in managed.STEPS if step.is_large}
        self.assertEqual(rows["large-streaming"], ["bin/runtime_smoke", "--managed-row", "large-streaming", "captured"])
        self.assertEqual(rows["torch-large-60"][2:], ["large", "captured"])
        for step in managed.STEPS:
            self.assertLess(step.arena_bytes, 4 << 30)

    def test_runs_nothing_of_pytorch_without_the_step_in_memory(self):
        name = next(step.name for step in managed.STEPS if step.torch_share)
        self.write({f"{name}/captured/0": {"step_ms": [0.5], "state": "5eed"}})
        result = self.bench("--rows", name, "--repeats", "1", "--results", str(self.results))
        self.assertEqual(result.returncode, 1)
        self.assertIn(f"{name}/ahead/0: nothing is known of the step in memory", result.stdout)


if __name__ == "__main__":
    unittest.main()
