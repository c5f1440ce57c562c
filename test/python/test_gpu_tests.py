# SPDX-License-Identifier: Apache-2.0
"""Which GPU tests a filter chooses. They themselves need a GPU."""

import re
import sys
import unittest

import support

GPU = support.ROOT / "test" / "gpu"
sys.path.insert(0, str(GPU))

import run_gpu_tests  # noqa: E402


class Filter(unittest.TestCase):
    names = ["runtime_smoke", "graphed.plain", "graphed.cases"]
    names += [f"torch.{case}" for case in run_gpu_tests.Tests.torch_cases()]

    def chosen(self, text):
        return run_gpu_tests.choose(self.names, text)

    def test_without_one_all_run(self):
        self.assertEqual(self.chosen(""), self.names)

    def test_what_a_test_uses_comes_with_it(self):
        self.assertEqual(self.chosen("graphed.cases"), ["graphed.plain", "graphed.cases"])
        self.assertEqual(self.chosen("torch.validate"), ["torch.plain", "torch.validate"])
        self.assertEqual(self.chosen("costs_are"), ["torch.plain", "torch.measure_and_costs", "torch.costs_are_used"])

    def test_what_needs_nothing_runs_alone(self):
        self.assertEqual(self.chosen("smoke"), ["runtime_smoke"])
        self.assertEqual(self.chosen("no such test"), [])

    def test_what_others_use_runs_before_them(self):
        for name in self.names:
            for needed in run_gpu_tests.needs(name):
                self.assertTrue(run_gpu_tests.is_first(needed), needed)

    def test_every_case_that_reads_the_saved_times_needs_them(self):
        """Also where a function that it calls does."""
        text = (GPU / "torch_cases.py").read_text()
        functions = dict(re.findall(r"^def (\w+)\(folder\):\n((?:(?:    .*)?\n)+)", text, flags=re.M))
        reads = {name for name, body in functions.items() if "costs.mlir.gz" in body}
        reads |= {name for name, body in functions.items() if any(f"{other}(folder)" in body for other in reads)}
        cases = {f"torch.{name}" for name in reads} & set(self.names)
        self.assertEqual(cases - {run_gpu_tests.COSTS}, set(run_gpu_tests.AFTER_COSTS))


if __name__ == "__main__":
    unittest.main()
