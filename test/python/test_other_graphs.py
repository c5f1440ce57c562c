# SPDX-License-Identifier: Apache-2.0
"""Graphs of the program's own beside captured steps, and memory that runs out, with stand-ins for both libraries."""

import unittest
import warnings
from unittest import mock

import test_graphed
import test_torch_capture as base
import torch
from pumpgraph import PumpGraphError, Status, UnsupportedError, torch_capture
from pumpgraph.errors import error_of, is_shortage


def capture_plain():
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        pass
    return graph


class Followed(base.TorchTest):
    def setUp(self):
        super().setUp()
        self.install()
        self.guard = torch_capture.installed().guard

    def test_the_session_hears_of_each_capture(self):
        """Values are at their addresses before it: a capture allows no waiting."""
        capture_plain()
        self.assertEqual(self.calls(), [
            "take_back 0x5e55",
            "torch: begin 1 global",
            "allocate 0x5e55 1 0x57 NULL",
            "free 0x5e55 0x1000 0x57",
            "torch: end 1",
        ])

    def test_a_capture_that_is_refused_is_given_up(self):
        self.fail_next("allocate", Status.OUT_OF_DEVICE_MEMORY, "no room")
        with self.assertRaisesRegex(torch.cuda.OutOfMemoryError, "no room"):
            capture_plain()
        ends = [line for line in self.calls() if line.startswith(("torch: end", "torch: reset"))]
        self.assertEqual([line.rpartition(" ")[0] for line in ends], ["torch: end", "torch: reset"])

    def test_what_a_plan_taken_back_costs_is_said_once(self):
        graph = capture_plain()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            for _ in range(6):
                self.guard.armed = True
                graph.replay()
                graph.replay()
        self.assertEqual(len(caught), 1)
        self.assertRegex(str(caught[0].message),
                         r"test_other_graphs\.py:\d+: \"graph\.replay\(\)\": a graph that the program captured is "
                         r"replayed.* took \d+ ms.*pumpgraph\.mapped")
        self.assertEqual(caught[0].filename, __file__)

    def test_steps_are_not_followed(self):
        torch_capture.capture(lambda: None, warmup=1).replay()
        self.assertFalse([line for line in self.calls() if line.startswith("allocate")])

    def test_a_replay_finds_every_value_at_its_address(self):
        graph = capture_plain()
        self.guard.armed = True
        self.calls()
        graph.replay()
        self.assertEqual(self.calls(), ["take_back 0x5e55", "torch: replay 1"])
        graph.replay()  # until the next step
        self.assertEqual(self.calls(), ["torch: replay 1"])

    def test_inside_mapped_the_program_has_said_what_it_touches(self):
        graph = capture_plain()
        with torch_capture.mapped(torch.Tensor(0x2000)):
            self.guard.armed = True
            self.calls()
            graph.replay()
            self.assertEqual(self.calls(), ["torch: replay 1"])

    def test_what_reads_of_the_program_mapped_is_no_reason_to_trust_it(self):
        graph = capture_plain()
        self.guard.armed = True
        self.guard.watch(self.guard, [0x2000])
        self.guard.bring([torch.Tensor(0x2000).untyped_storage()])
        self.calls()
        graph.replay()
        self.assertIn("take_back 0x5e55", self.calls())

    def test_a_step_replays_with_its_plan_in_force(self):
        step = torch_capture.capture(lambda: None, warmup=1)
        self.guard.armed = True
        self.calls()
        step.replay()
        self.assertNotIn("take_back 0x5e55", self.calls())

    def test_a_step_is_no_part_of_another_graph(self):
        step = torch_capture.capture(lambda: None, warmup=1)
        with mock.patch.object(torch.cuda, "is_current_stream_capturing", lambda: True):
            with self.assertRaisesRegex(UnsupportedError, "step \"step\" cannot become part of another graph"):
                step.replay()
            with self.assertRaisesRegex(UnsupportedError, "cannot be captured inside another capture"):
                torch_capture.capture(lambda: None, warmup=1)

    def test_workspaces_stay_for_graphs_that_may_work_in_them(self):
        clear = mock.patch.object(torch._C, "_cuda_clearCublasWorkspaces", lambda: torch.note("torch: clear"),
                                  create=True)
        with clear:
            torch_capture.capture(lambda: None, warmup=1)
        lines = [line for line in self.calls() if "clear" in line or "keep_freed" in line or "capture_" in line]
        once = ["keep_freed 0x5e55 1", "torch: clear", "keep_freed 0x5e55 0", "capture_begin 0x5e55",
                "capture_end 0x5e55", "torch: clear"]
        self.assertEqual(lines, once * 2)


class Shortage(unittest.TestCase):
    def test_it_is_what_searches_look_for(self):
        for status in (Status.OUT_OF_DEVICE_MEMORY, Status.OUT_OF_HOST_MEMORY, Status.UNPLANNABLE):
            error = error_of(status, "16.0 MiB missing")
            self.assertIsInstance(error, torch.cuda.OutOfMemoryError)
            self.assertIsInstance(error, PumpGraphError)
            self.assertEqual(error.args, ("CUDA out of memory. 16.0 MiB missing",))
            self.assertEqual(error.status, status)
            self.assertTrue(is_shortage(error))
        self.assertIs(type(error_of(Status.UNPLANNABLE, "a")), type(error_of(Status.OUT_OF_HOST_MEMORY, "b")))

    def test_nothing_else_is(self):
        error = error_of(Status.DRIVER_ERROR, "cuMemMap: CUDA_ERROR_ILLEGAL_ADDRESS")
        self.assertIs(type(error), PumpGraphError)
        self.assertFalse(is_shortage(error))
        self.assertFalse(is_shortage(ValueError("CUDA out of memory.")))

    def test_without_pytorch_it_is_an_error_of_ours(self):
        with mock.patch.dict("sys.modules"):
            del __import__("sys").modules["torch"]
            error = error_of(Status.OUT_OF_HOST_MEMORY, "16.0 MiB missing")
        self.assertIsInstance(error, PumpGraphError)
        self.assertNotIsInstance(error, torch.cuda.OutOfMemoryError)
        self.assertTrue(is_shortage(error))


class Search(test_graphed.GraphedTest):
    """For the largest batch, with one function."""

    def test_a_batch_that_does_not_fit_leaves_nothing(self):
        fits = 3

        def train(x):
            if x.shape[0] > fits:
                raise torch.cuda.OutOfMemoryError("CUDA out of memory. Tried to allocate much")
            return x

        step = test_graphed.pumpgraph.graphed(train, warmup=1, max_graphs=1)
        for rows in (9, 8, 7, 6, 5, 4):
            with self.assertRaises(torch.cuda.OutOfMemoryError):
                step(self.x(shape=(rows, 4)))
            self.assertEqual(step._inputs, {})
        for _ in range(3):
            step(self.x(shape=(fits, 4)))
        self.assertEqual(len(step.signatures()), 1)

    def test_nor_does_one_whose_plan_does_not_fit(self):
        step = self.step(warmup=1, max_graphs=1)
        step(self.x(shape=(9, 4)))
        self.fail_next("adopt", Status.UNPLANNABLE, "too small")
        with self.assertRaises(torch.cuda.OutOfMemoryError):
            step(self.x(shape=(9, 4)))
        self.assertEqual(step._inputs, {})
        for _ in range(3):
            step(self.x(shape=(3, 4)))
        self.assertEqual(len(step.signatures()), 1)

    def test_other_errors_count(self):
        step = self.step(warmup=1)
        with mock.patch.object(step, "_warm_up", side_effect=RuntimeError("something else")):
            with self.assertRaises(RuntimeError):
                step(self.x())
        self.assertEqual(len(step._inputs), 1)


if __name__ == "__main__":
    unittest.main()
