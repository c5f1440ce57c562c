# SPDX-License-Identifier: Apache-2.0
"""The tables of pump-graph-bench --demand-paging, and the steps that are rebuilt for them. With pump-graph-opt also
some of the published cells; test/unit/simulate/ has those of the G10 study."""

import contextlib
import io
import json
import os
import stat
import sys
import tempfile
import unittest
import unittest.mock
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools" / "pump-graph-bench"))

import demand_paging  # noqa: E402
import paged_steps  # noqa: E402
import study_2019  # noqa: E402
from demand_paging import G10, GTC, G10Cell, GtcCell, Rate, Result  # noqa: E402

TOOL = os.environ.get("PUMPGRAPH_OPT")
BAND = Rate("faults", 2 << 30, False, 7, 11)
POINT = Rate("prefetched", 2 << 20, True, 16, 16)


def comparison(*replays):
    rows = [("in memory", {}), ("demand paging (100 %)", {"replays_s": replays, "footprint_bytes": 5 << 20}),
            ("demand paging (5 %)", {}), ("prefetch at launch", {}), ("bound", {})]
    return {"rows": [{"policy": name, "step_s": 1.0, **figures} for name, figures in rows]}


class Figures(unittest.TestCase):
    def test_an_error_is_relative_and_has_a_sign(self):
        self.assertAlmostEqual(demand_paging.error_percent(22, 20, 20), 10)
        self.assertAlmostEqual(demand_paging.error_percent(18, 20, 20), -10)

    def test_within_a_measured_band_there_is_no_error_and_outside_its_end_counts(self):
        self.assertEqual(demand_paging.error_percent(9, 7, 11), 0)
        self.assertAlmostEqual(demand_paging.error_percent(12.1, 7, 11), 10)
        self.assertAlmostEqual(demand_paging.error_percent(6.3, 7, 11), -10)

    def test_a_published_share_is_that_of_the_rates(self):
        self.assertAlmostEqual(GtcCell("V-Net", 32, 15, 4.0, 32, 1.0).percent, 25)

    def test_rows_are_taken_by_what_they_are(self):
        self.assertEqual(paged_steps.rows_of(comparison(2.0))[1]["replays_s"], (2.0,))
        with self.assertRaisesRegex(paged_steps.Failure, "has the rows bound"):
            paged_steps.rows_of({"rows": [{"policy": "bound"}]})


class Tables(unittest.TestCase):
    NEAR = Result("BERT-256", G10, 37.1, 38.2, other_iteration=36.6)
    FAR = Result("V-Net", GTC, 20.0, 30.0, aggressive=1.2, prefetched=1.5)

    def test_a_cell_has_its_error_and_the_other_iteration(self):
        text = demand_paging.markdown([self.NEAR, self.FAR], [(BAND, 9.0), (POINT, 16.8)])
        self.assertIn("| G10 | BERT-256 | 37.1 | 38.2 | +3.0 % | 36.6 |", text)
        self.assertIn("| 2019 | V-Net | 20.0 | 30.0 | +50.0 % | - |", text)
        self.assertIn("| faults | 7-11 | 9.0 | within |", text)
        self.assertIn("| prefetched | 16 | 16.8 | +5.0 % |", text)

    def test_median_and_worst_are_of_sizes_not_of_signs(self):
        cells = [Result(f"cell {ours}", G10, 100.0, ours) for ours in (70.0, 102.0, 110.0)]
        text = demand_paging.markdown(cells, [])
        self.assertIn("* G10: 3 cells, median error 10.0 %, worst -30.0 % (cell 70.0)\n", text)
        self.assertIn("* G10: 1 cell, +3.0 %\n", demand_paging.markdown([self.NEAR], []))

    def test_gains_are_of_the_study_that_published_them(self):
        text = demand_paging.markdown([self.NEAR, self.FAR], [])
        self.assertIn("ours up to 1.20 x (V-Net), 1.20 x in the median", text)
        self.assertIn("published up to 1.6 x; ours up to 1.50 x (V-Net)", text)
        self.assertNotIn("published up to", demand_paging.markdown([self.NEAR], []))

    def test_what_is_too_far_off_is_named(self):
        self.assertEqual(demand_paging.broken([self.NEAR, self.FAR], [(BAND, 12.5), (POINT, 15.0)]),
                         ["V-Net", "faults"])

    def test_traces_are_found_packed_or_not(self):
        with tempfile.TemporaryDirectory() as folder:
            self.assertIsNone(demand_paging.find_trace(Path(folder), "x"))
            packed = Path(folder) / "x.json.gz"
            packed.touch()
            self.assertEqual(demand_paging.find_trace(Path(folder), "x"), packed)


class Steps(unittest.TestCase):
    def test_a_trace_becomes_a_step(self):
        step = paged_steps.of_trace({
            "tensors": [{"name": "w", "bytes": 4096, "kind": "persistent"},
                        {"name": "x \"1\"", "bytes": 8192, "kind": "intermediate"}],
            "kernels": [{"name": "f", "time_us": 1.5, "reads": [0], "writes": [1]},
                        {"name": "g", "time_us": 2, "reads": [1, 0], "writes": [0]}]})
        self.assertEqual(step, """pump.graph @step {
  %b0 = pump.buffer "w" private live_in live_out size(4096)
  %b1 = pump.buffer "x \\"1\\"" private size(8192)
  %k0 = pump.kernel "f" node(0) [read %b0[0, 4096] declared, write %b1[0, 8192] declared] cost(1.500)
  %k1 = pump.kernel "g" node(1) after(%k0) [readwrite %b0[0, 4096] declared, read %b1[0, 8192] declared] cost(2.000)
}
""")

    def built(self, model, element_bytes=2, batch=1):
        step = study_2019.Step(batch, element_bytes)
        step.run(study_2019.MODELS[model])
        return step

    def parameters(self, model):
        step = self.built(model)
        return {buffer.name: buffer.bytes for buffer in step.buffers if buffer.name.endswith(".weight")}

    def test_resnet_1001_has_1001_layers(self):
        names = [name for name in self.parameters("ResNet-1001") if ".shortcut." not in name]
        self.assertEqual(len(names), 1001)

    def test_densenet_264_has_the_known_size(self):
        # 33.3 million, 0.4 of them in normalisations, which are left out.
        millions = sum(self.parameters("DenseNet-264").values()) / 2e6
        self.assertAlmostEqual(millions, 33.3 - 0.4, delta=0.1)

    def test_the_log_softmax_touches_what_is_published(self):
        step = self.built("LM-1408", element_bytes=4, batch=60)
        touched = max(sum(step.bytes(buffer) for buffer in {*launch.reads, *launch.writes}) for launch in step.kernels)
        self.assertAlmostEqual(touched / 1e9, 33.7, delta=0.05)

    def test_what_a_program_keeps_is_held_until_the_next_iteration_has_its_own(self):
        step = self.built("LM-1408")
        kept = {buffer: launch.name for launch in step.kernels for buffer in launch.holds}
        first, second = (index for index, buffer in enumerate(step.buffers) if buffer.name == "logits")
        self.assertEqual((kept[first], kept[second]), ("logits", "update"))

    def test_every_model_reads_only_what_was_written_and_updates_every_weight(self):
        for model in study_2019.MODELS:
            with self.subTest(model=model):
                step = self.built(model)
                written = {index for index, buffer in enumerate(step.buffers) if buffer.lives_on}
                for launch in step.kernels:
                    self.assertLessEqual(set(launch.reads), written, launch.name)
                    written.update(launch.writes)
                updates = sum(launch.name == "update" for launch in step.kernels)
                self.assertEqual(updates, study_2019.ITERATIONS * len(self.parameters(model)))

    def test_times_add_up_to_what_is_published(self):
        step = study_2019.rebuild("V-Net", 2, 30, 3.0)
        costs = [float(line.rsplit("cost(", 1)[1].rstrip(")")) for line in step.splitlines() if "cost(" in line]
        self.assertAlmostEqual(sum(costs) / 1e6, study_2019.ITERATIONS * 10.0, places=3)


@unittest.skipUnless(TOOL, "pump-graph-opt is not built")
class Published(unittest.TestCase):
    def test_language_models_are_as_published(self):
        cells = [cell for cell in demand_paging.GTC_CELLS if cell.model.startswith("LM")]
        with unittest.mock.patch.object(demand_paging, "GTC_CELLS", cells):
            results = list(demand_paging.gtc_results(Path(TOOL)))
        self.assertEqual(len(results), 4)
        for result in results:
            with self.subTest(cell=result.title):
                self.assertLess(abs(result.error), 15)
                self.assertGreater(result.aggressive, 1.1)

    def test_a_trace_is_simulated_as_the_importer_reads_it(self):
        cell = G10Cell("VIT-512", 33.4, 2)
        with unittest.mock.patch.object(demand_paging, "G10_CELLS", [cell]):
            result, = demand_paging.g10_results(Path(TOOL), demand_paging.DEFAULT_FOLDER)
        self.assertLess(abs(result.error), 1)

    def test_a_rate_is_as_measured(self):
        self.assertAlmostEqual(demand_paging.simulate_rate(Path(TOOL), POINT), 16, delta=0.5)


class Command(unittest.TestCase):
    def run_with(self, script):
        """With a shell script in the tool's place and no traces: exit status or message, and what it printed."""
        with tempfile.TemporaryDirectory() as folder:
            tool = Path(folder) / "pump-graph-opt"
            tool.write_text("#!/bin/sh\n" + script)
            os.chmod(tool, tool.stat().st_mode | stat.S_IXUSR)
            out, err = io.StringIO(), io.StringIO()
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
                try:
                    status = demand_paging.main(["--demand-paging", folder, "--binaries", folder])
                except SystemExit as stopped:
                    status = stopped.code
        return status, out.getvalue(), err.getvalue()

    def test_what_the_tool_says_is_passed_on(self):
        status, _, _ = self.run_with("echo 'no such memory' >&2; exit 1\n")
        self.assertEqual(status, "pump-graph-bench: error: no such memory")

    def test_figures_that_are_far_off_fail(self):
        status, out, err = self.run_with(f"cat <<'END'\n{json.dumps(comparison(1.0))}\nEND\n")
        self.assertEqual(status, 1)
        self.assertIn("| 2019 | V-Net, fp16, 1.07 x the batch that fits | 84.3 | 100.0 | +18.7 % | - |", out)
        self.assertIn("off by more than promised: ResNet-1001, fp16, 2.06 x the batch that fits, ResNet-1001", err)

    def test_a_missing_tool_is_said(self):
        with tempfile.TemporaryDirectory() as folder, self.assertRaises(SystemExit) as stopped:
            demand_paging.main(["--demand-paging", "--binaries", folder])
        self.assertIn("build it, or name its folder with --binaries", str(stopped.exception.code))


if __name__ == "__main__":
    unittest.main()
