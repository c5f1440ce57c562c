# SPDX-License-Identifier: Apache-2.0
"""predict(): plans of a step at budgets that it does not have. With pump-graph-opt, a stored step; else a script."""

import json
import os
import stat
import tempfile
import types
import unittest
from pathlib import Path
from unittest import mock

from test_torch_capture import TorchTest  # which finds the package

import torch

import pumpgraph
from pumpgraph import PumpGraphError, Status, _tools
from pumpgraph.prediction import Prediction, predict

STEP = Path(__file__).resolve().parents[1] / "data" / "gpt2.mlir.gz"
REPORT = {"name": "step\x1b[2J", "peak_bytes_before": 8 << 30, "in_memory_s": 0.1, "predicted_s": 0.25,
          "budget_bytes": 2 << 30, "up_bytes": 1 << 30, "down_bytes": 1 << 29, "hosted_bytes": 0, "repeated": None,
          "remakeable": {"again_bytes": 5 << 30}, "limited_by": "link up"}


class Stub(unittest.TestCase):
    """A script in the place of pump-graph-opt."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.step = Path(folder.name) / "--step.mlir"
        self.step.touch()
        self.tool, self.said = Path(folder.name) / "tool", Path(folder.name) / "said"
        patched = mock.patch.dict(os.environ, PUMPGRAPH_OPT=str(self.tool))
        patched.start()
        self.addCleanup(patched.stop)

    def answer(self, *cases):
        """`cases`: a text of the budget option, and what is then printed, a report or an error."""
        lines = ["#!/bin/sh", f"echo \"$@\" >> {self.said}", "case \"$*\" in"]
        for budget, result in cases:
            if isinstance(result, dict):
                lines.append(f"*--budget={budget}*) echo '{json.dumps(result)}';;")
            else:
                lines.append(f"*--budget={budget}*) echo '{result}' >&2; exit 1;;")
        self.tool.write_text("\n".join([*lines, "esac", ""]))
        self.tool.chmod(self.tool.stat().st_mode | stat.S_IXUSR)

    def test_rows_are_sorted_and_a_budget_without_a_plan_says_why(self):
        self.answer(("1024", "a:1: error: exclusive buffers need 2 GiB; the budget is 1.0 KiB"),
                    ("25%", REPORT),
                    ("100%", {**REPORT, "budget_bytes": 8 << 30, "predicted_s": 0.1, "limited_by": "nothing"}))
        found = predict(self.step, [1024, "25%", "100%"], effort="low")
        self.assertEqual([row.budget_bytes for row in found.rows], [8 << 30, 2 << 30, 1024])
        self.assertEqual([row.slowdown for row in found.rows], [1.0, 2.5, 0.0])
        self.assertEqual(found.rows[1].moved_bytes, 3 << 29)
        self.assertIn("the budget is 1.0 KiB", found.rows[2].refusal)
        self.assertEqual(found.checkpointing_bytes, 3 << 30)
        text = str(found)
        for expected in ("no plan: exclusive buffers", "From 8.00 GiB on the step needs no plan",
                         "Activation checkpointing alone needs about 3.00 GiB", "a smaller batch"):
            self.assertIn(expected, text)
        self.assertNotIn("\x1b", text + found._repr_html_())
        self.assertIn("--plan-effort=low --rematerialize=automatic", self.said.read_text())

    def test_a_share_without_a_plan_has_its_bytes(self):
        self.answer(("5%", "error: no frames found for all pages"), ("25%", REPORT))
        self.assertEqual(predict(self.step, ["5%", "25%"]).rows[1].budget_bytes, int(0.05 * (8 << 30)))

    def test_what_is_no_budget_or_no_step_is_refused(self):
        self.answer(("1024", "error: the budget is too small"), ("2048", "error: \"step.mlir\" holds no step"))
        for budgets, text in (([], "no budgets"), (["0%"], "no share"), (["x%"], "no share"), (["many"], "not a size"),
                              ([1024], "no plan at any"), ([2048], "holds no step")):
            with self.assertRaisesRegex(PumpGraphError, text) as raised:
                predict(self.step, budgets)
            self.assertEqual(raised.exception.status, Status.INVALID_ARGUMENT)
        with self.assertRaisesRegex(PumpGraphError, "int is no step"):
            predict(3)
        with self.assertRaisesRegex(PumpGraphError, "no file .*/host memory.mlir"):
            predict("host memory.mlir")

    def test_a_captured_step_says_what_its_times_are_by(self):
        self.answer(("25%", REPORT))
        saved = []
        step = types.SimpleNamespace(save=saved.append, report=lambda: {"runtime": {
            "costs": "measured", "link": {"up_bytes_per_second": 27.5e9}}})
        self.assertIn("by measured node times", str(predict(step, ["25%"])))
        self.assertIn("--up=27.500", self.said.read_text())
        self.assertEqual(len(saved), 1)

    def test_it_does_not_wait_for_ever(self):
        self.tool.write_text("#!/bin/sh\nexec sleep 60\n")
        self.tool.chmod(0o700)
        with self.assertRaisesRegex(PumpGraphError, "within 0.2 s"):
            predict(self.step, ["25%"], timeout=0.2)


class Tool(unittest.TestCase):
    def test_where_it_is_looked_for(self):
        with mock.patch.dict(os.environ), tempfile.TemporaryDirectory() as folder:
            os.environ.pop("PUMPGRAPH_OPT", None)
            os.environ["PUMPGRAPH_LIBRARY"] = f"{folder}/lib/libpumpgraph.so"
            with self.assertRaisesRegex(PumpGraphError, "no pump-graph-opt; looked at"):
                _tools.program("pump-graph-opt")
            tool = Path(folder).resolve() / "bin" / "pump-graph-opt"
            tool.parent.mkdir()
            tool.touch()
            self.assertEqual(_tools.program("pump-graph-opt"), tool)


class Function(TorchTest):
    """A function is captured, saved and closed."""

    def test_a_function_is_captured_and_dropped(self):
        self.install()
        with mock.patch("pumpgraph.prediction._plan", return_value=REPORT) as plan:
            found = predict(lambda: None, ["25%"], warmup=1)
        self.assertEqual(len(plan.call_args_list), 1)
        self.assertIsInstance(found, Prediction)
        calls = [line.split()[0] for line in self.calls()]
        self.assertLess(calls.index("save"), calls.index("step_destroy"))
        self.assertNotIn("replay", calls)

    def test_gradients_are_those_of_the_warm_up_again(self):
        self.install()
        weight = torch.Tensor(0xA000, requires_grad=True)

        def fn():
            weight.grad = torch.Tensor(0xF000 + torch.cuda.graphs)

        with mock.patch("pumpgraph.prediction._plan", return_value=REPORT):
            predict(fn, ["25%"], private=[weight], warmup=1)
        self.assertEqual(weight.grad.data_ptr(), 0xF000)


@unittest.skipUnless(os.environ.get("PUMPGRAPH_OPT"), "ctest names pump-graph-opt in PUMPGRAPH_OPT")
class Stored(unittest.TestCase):
    def test_a_stored_step(self):
        found = pumpgraph.predict(STEP, ["50%", "100%", 1000], effort="low")
        self.assertEqual([row.refusal is None for row in found.rows], [True, True, False])
        self.assertAlmostEqual(found.rows[0].slowdown, 1.0, places=2)
        self.assertGreater(found.rows[1].slowdown, 1.5)
        self.assertEqual(found.rows[1].limited_by, "link up")


if __name__ == "__main__":
    unittest.main()
