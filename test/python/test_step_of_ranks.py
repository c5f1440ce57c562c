# SPDX-License-Identifier: Apache-2.0
"""Steps of two and of eight ranks, made from that of one device: their plans are proved, near their bound, and hold up
no collective longer than that says."""

import json
import os
import subprocess
import sys
import tempfile
import unittest

DATA = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "data")
OPT = os.environ["PUMPGRAPH_OPT"]
MOST_OVER_BOUND = 1.10


class StepOfRanks(unittest.TestCase):
    def planned(self, step, budget, folder):
        """The report, and the start of each collective in microseconds."""
        report, timeline = os.path.join(folder, "report.json"), os.path.join(folder, "timeline.json")
        subprocess.run([OPT, step, f"--budget={budget}", f"--report=json:{report}", f"--report=timeline:{timeline}",
                        "-o", os.devnull], check=True, stderr=subprocess.PIPE, text=True, timeout=300)
        with open(report) as file, open(timeline) as events:
            starts = {event["args"]["node"]: event["ts"] for event in json.load(events)["traceEvents"]
                      if event["ph"] == "X" and event["name"].startswith("ncclDevKernel") and "node" in event["args"]}
            return json.load(file), [starts[node] for node in sorted(starts)]

    def step_of(self, module, ranks):
        with self.subTest(module=module, ranks=ranks), tempfile.TemporaryDirectory() as folder:
            step = os.path.join(folder, "step.mlir")
            with open(step, "w") as file:
                subprocess.run([sys.executable, os.path.join(DATA, "step-of-ranks.py"),
                                os.path.join(DATA, "gpt2.mlir.gz"), module, str(ranks)], check=True, stdout=file)
            _, alone = self.planned(step, "100%", folder)
            report, planned = self.planned(step, "50%", folder)
            self.assertEqual((report["checked"], report["violations"]), (True, []))
            self.assertLessEqual(report["predicted_s"], MOST_OVER_BOUND * report["plan_bound_s"])
            self.assertEqual(len(planned), len(alone))
            self.assertGreaterEqual(len(alone), 12)
            allowed_us = (MOST_OVER_BOUND * report["plan_bound_s"] - report["in_memory_s"]) * 1e6
            self.assertLessEqual(max(late - early for early, late in zip(alone, planned)), allowed_us)

    def test_buckets_of_gradients(self):
        for ranks in 2, 8:
            self.step_of("ddp", ranks)

    def test_shards(self):
        for ranks in 2, 8:
            self.step_of("fsdp", ranks)


if __name__ == "__main__":
    unittest.main()
