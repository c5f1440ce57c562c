# SPDX-License-Identifier: Apache-2.0
"""The order in which torch_capture asks PyTorch and the library for things, with stand-ins for both."""

import gc
import inspect
import os
import random
import re
import sys
import unittest
import warnings
from pathlib import Path
from unittest import mock

import support

sys.path.insert(0, str(Path(__file__).resolve().parent / "fake_torch"))

import torch  # noqa: E402

import pumpgraph  # noqa: E402
from pumpgraph import PumpGraphError, Status, torch_capture  # noqa: E402


def named(tensors):
    return [(tensor.name, tensor.pointer) for tensor in tensors]


class TorchTest(support.FakeLibraryTest):
    def setUp(self):
        super().setUp()
        torch.note = lambda line: self.control.fake_note(line.encode())
        torch.cuda.initialized = torch.cuda.allocator_in_use = torch.cuda.instantiate_fails = False
        torch.cuda.graphs = 0
        torch._made.clear()
        torch_capture._installation = None
        # No second passes, but where one is to.
        clock = mock.patch.object(torch_capture.time, "monotonic", lambda: 1000.0)
        clock.start()
        self.addCleanup(clock.stop)
        environment = mock.patch.dict(os.environ, PUMPGRAPH_LIBRARY=str(self.path))
        environment.start()
        self.addCleanup(environment.stop)

    def install(self, **options):
        pumpgraph.install(budget="1GiB", cache_directory="/cache", **options)
        return self.calls()


class Install(TorchTest):
    def test_order(self):
        self.assertEqual(
            self.install(device=1, host_limit="2GiB"),
            [
                "session_create size=1 budget=1073741824 unlimited=0 device=1 host_limit=2147483648 cache=/cache "
                "compiler=NULL process=1 backend=0 oversubscribed=0 managed=0 limit=0 rematerialize=0 planning=0",
                "declare_kernel_reads 0x5e55 at::native::batch_norm_transform_input_kernel 2 3",
                "declare_kernel_reads 0x5e55 at::native::batch_norm_transform_input_channels_last_kernel 2 3",
                "torch: allocator pumpgraph_torch_malloc pumpgraph_torch_free",
                "torch: empty_cache set",
                "torch: record_stream set",
                "torch_attach 0x5e55",
                "torch: change_current_allocator",
            ],
        )

    def test_whose_budget(self):
        self.assertIn("process=0", self.install(budget_of="tensors")[0])

    def test_rematerialize(self):
        self.assertIn("rematerialize=1", self.install(rematerialize="never")[0])

    def test_planning(self):
        self.assertIn("planning=1", self.install(planning="in_replay")[0])

    def test_nobodys_budget(self):
        with self.assertRaisesRegex(PumpGraphError, "budget_of='all'"):
            self.install(budget_of="all")
        self.assertEqual(self.calls(), [])

    def test_after_cuda_it_is_refused(self):
        torch.cuda.initialized = True
        with self.assertRaisesRegex(PumpGraphError, "CUDA is initialised already"):
            pumpgraph.install(budget="1GiB")
        self.assertEqual(self.calls(), [])

    def test_an_allocator_in_use_is_refused_and_nothing_stays(self):
        torch.cuda.allocator_in_use = True
        with self.assertRaisesRegex(PumpGraphError, "allocator is in use already"):
            pumpgraph.install(budget="1GiB", cache_directory="/cache")
        self.assertEqual(self.calls()[-2:], ["torch_attach (nil)", "session_destroy 0x5e55"])
        torch.cuda.allocator_in_use = False
        self.install()  # a second try is free to work

    def test_after_cupys_it_is_refused(self):
        of_cupy = mock.Mock(_installation=object())
        with mock.patch.dict(sys.modules, {"pumpgraph.cupy.memory": of_cupy}):
            with self.assertRaisesRegex(PumpGraphError, "first, then pumpgraph.cupy.install"):
                pumpgraph.install(budget="1GiB")
        self.assertEqual(self.calls(), [])

    def test_twice_is_refused(self):
        self.install()
        with self.assertRaisesRegex(PumpGraphError, "was called before"):
            pumpgraph.install(budget="1GiB")

    def test_a_bad_budget_is_refused_before_anything(self):
        with self.assertRaisesRegex(PumpGraphError, "not a size"):
            pumpgraph.install(budget="much")
        self.assertEqual(self.calls(), [])

    def test_everything_else_needs_it(self):
        uses = [lambda: pumpgraph.capture(lambda: None), pumpgraph.memory_stats, lambda: pumpgraph.mapped().__enter__()]
        for use in uses:
            with self.assertRaisesRegex(PumpGraphError, "install"):
                use()

    def test_memory_stats(self):
        self.install()
        self.assertEqual(pumpgraph.memory_stats()["pinned_bytes"], 5)


class TrainingTest(TorchTest):
    """A model with one weight, its optimizer, and a step."""

    def setUp(self):
        super().setUp()
        self.install()
        self.weight = torch.Tensor(0xA000, requires_grad=True)
        self.model = torch.nn.Module({"fc.weight": self.weight}, {"bn.mean": torch.Tensor(0xB000)})
        self.optimizer = torch.optim.Optimizer([self.weight], lr=torch.Tensor(0xC000))

    def step(self):
        torch.note("fn")
        self.optimizer.state[self.weight] = {"exp_avg": torch.Tensor(0xD000), "step": torch.Tensor(1, is_cuda=False)}
        return torch.Tensor(0xE000)

    def capture(self, fn=None, **options):
        return pumpgraph.capture(fn or self.step, private=[self.model, self.optimizer], **options)


class Capture(TrainingTest):
    def test_order(self):
        step = self.capture(warmup=2, name="net")
        self.assertEqual(
            self.calls(),
            [
                "torch: wait_stream",
                "take_back 0x5e55",
                "fn",
                "torch: wait_stream",
                "torch: wait_stream",
                "take_back 0x5e55",
                "fn",
                "torch: wait_stream",
                "torch: synchronize",
                "take_back 0x5e55",
                "empty_cache 0x5e55",
                "keep_freed 0x5e55 1",
                "keep_freed 0x5e55 0",
                "torch: begin 1 thread_local",
                "capture_begin 0x5e55",
                "fn",
                "capture_end 0x5e55",
                "torch: end 1",
                "free_scratch 0x5e55 1",
                "free_scratch 0x5e55 0",
                "rehearse 0x5e55 0x6001",
                "torch: set_rng_state 42",
                "keep_freed 0x5e55 1",
                "keep_freed 0x5e55 0",
                "torch: begin 2 thread_local",
                "capture_begin 0x5e55",
                "fn",
                "capture_end 0x5e55",
                "torch: end 2",
                "free_scratch 0x5e55 1",
                "free_scratch 0x5e55 0",
                "torch: reset 1",
                "declare_private 0x5e55 0xa000",
                "name 0x5e55 0xa000 fc.weight",
                "declare_private 0x5e55 0xb000",
                "name 0x5e55 0xb000 bn.mean",
                "declare_private 0x5e55 0xc000",
                "name 0x5e55 0xc000 lr of group 0",
                "declare_private 0x5e55 0xd000",
                "name 0x5e55 0xd000 exp_avg of fc.weight",
                "name 0x5e55 0xe000 result",
                "adopt 0x5e55 0x6002 size=1 name=net costs=NULL leave=0 keep=0 calibrate=0 boundary=0",
                "torch: instantiate 2",
                "memory_statistics 0x5e55 size=1",
                "report 0x57e9",
                "string_free",
            ],
        )
        self.assertEqual(step.output.untyped_storage().data_ptr(), 0xE000)
        self.assertEqual(
            sorted(step.timings), ["adopt_s", "capture_s", "instantiate_s", "rehearsal_s", "warmup_s"]
        )

    def test_replay_goes_through_torch(self):
        step = self.capture()
        self.calls()
        step.replay()
        self.assertEqual(self.calls(), ["put_in_force 0x57e9", "torch: replay 2"])

    def test_no_replay_inside_mapped(self):
        step = self.capture()
        with pumpgraph.mapped(self.model):
            with self.assertRaisesRegex(PumpGraphError, "inside mapped"):
                step.replay()
        step.replay()

    def test_mapped_waits_for_the_device_on_both_sides(self):
        with pumpgraph.mapped(self.model, self.weight):
            torch.note("inside")
        self.assertEqual(
            self.calls(),
            ["torch: synchronize", "bring 0x5e55 to write 0xa000 0xb000", "map 0x5e55 0xa000", "map 0x5e55 0xb000",
             "inside", "torch: synchronize", "unmap 0x5e55 0xb000", "unmap 0x5e55 0xa000"],
        )

    def test_a_second_step_is_captured_with_no_plan_in_force(self):
        first = self.capture()
        self.calls()
        second = self.capture(warmup=1)
        self.assertTrue(first.is_open)
        calls = self.calls()
        self.assertLess(calls.index("take_back 0x5e55"), calls.index("fn"))
        self.assertLess(calls.index("fn"), calls.index("capture_begin 0x5e55"))
        for step in (first, second):
            step.replay()
        self.assertEqual(self.calls(), ["put_in_force 0x57e9", "torch: replay 2",
                                        "put_in_force 0x57e9", "torch: replay 4"])

    def test_a_plan_that_cannot_be_put_in_force_is_not_replayed(self):
        step = self.capture()
        self.calls()
        self.control.fake_fail(b"put_in_force", Status.OUT_OF_HOST_MEMORY, b"no room")
        with self.assertRaisesRegex(PumpGraphError, "no room"):
            step.replay()
        self.assertEqual(self.calls(), ["put_in_force 0x57e9"])

    def test_close_destroys_the_step_before_the_graph(self):
        step = self.capture()
        self.calls()
        step.close()
        step.close()
        self.assertEqual(self.calls(), ["torch: synchronize", "step_destroy 0x57e9", "torch: reset 2"])
        with self.assertRaisesRegex(PumpGraphError, "is closed"):
            step.replay()

    def test_a_forgotten_step_is_closed(self):
        self.capture()
        gc.collect()
        self.assertIn("step_destroy 0x57e9", self.calls())

    def test_the_step_functions_own_error_comes_out_and_everything_is_as_before(self):
        def broken():
            if torch.cuda.graphs:
                raise ZeroDivisionError("in the step")

        before = torch.cuda.current_stream()
        with self.assertRaisesRegex(ZeroDivisionError, "in the step"):
            self.capture(broken)
        calls = self.calls()
        self.assertEqual(calls[calls.index("capture_begin 0x5e55") + 1 :][:2], ["capture_end 0x5e55", "torch: end 1"])
        self.assertIs(torch.cuda.current_stream(), before)
        self.assertTrue(gc.isenabled())

    def test_a_failed_adoption_leaves_no_step(self):
        self.fail_next("adopt", Status.UNPLANNABLE, "node 3 \"gemm\" needs 3.2 GiB; the budget is 1.0 GiB")
        with self.assertRaisesRegex(PumpGraphError, "needs 3.2 GiB") as caught:
            self.capture()
        self.assertEqual(caught.exception.status, Status.UNPLANNABLE)
        self.assertFalse([line for line in self.calls() if "instantiate" in line])

    def test_a_failed_instantiation_gives_the_step_back(self):
        torch.cuda.instantiate_fails = True
        try:
            self.capture()
        except RuntimeError as error:  # which holds on to the frames, and so to the step
            self.assertIn("out of memory", str(error))
            self.assertEqual(self.calls()[-3:], ["torch: synchronize", "step_destroy 0x57e9", "torch: reset 2"])
        else:
            self.fail("not raised")

    def test_memory_of_cupy_is_present_between_replays(self):
        """CuPy works on it eagerly, unseen."""
        of_cupy = mock.Mock()
        of_cupy._installation.has = lambda pointer: pointer == 0xB000
        with mock.patch.dict(sys.modules, {"pumpgraph.cupy.memory": of_cupy}):
            self.capture()
        calls = self.calls()
        self.assertIn("declare_present 0x5e55 0xb000", calls)
        self.assertNotIn("declare_private 0x5e55 0xb000", calls)
        self.assertIn("declare_private 0x5e55 0xa000", calls)

    def test_a_tensor_that_is_not_ours_is_refused_by_name(self):
        self.fail_next("declare_private", Status.INVALID_ARGUMENT, "0xa000 is not in this session")
        with self.assertRaisesRegex(PumpGraphError, "\"fc.weight\": 0xa000 is not in this session"):
            self.capture()

    def test_inputs_are_present(self):
        pumpgraph.capture(self.step, private=[self.model, self.optimizer], inputs={"x": torch.Tensor(0xF000)})
        self.assertIn("declare_present 0x5e55 0xf000", self.calls())

    def test_an_input_that_the_step_returns_stays_on_the_device(self):
        x = torch.Tensor(0xE000)
        pumpgraph.capture(lambda: x, inputs=[x, torch.Tensor(0xF000)])
        self.assertEqual([line for line in self.calls() if line.startswith("declare_present")],
                         ["declare_present 0x5e55 0xf000"])

    def test_an_input_that_is_not_ours_is_refused(self):
        self.fail_next("declare_present", Status.INVALID_ARGUMENT, "0xf000 is not in this session")
        with self.assertRaisesRegex(PumpGraphError, "inputs: \"tensor 0\": 0xf000 is not in this session"):
            pumpgraph.capture(self.step, private=[self.model], inputs=[torch.Tensor(0xF000)])

    def test_a_step_left_as_captured_warns(self):
        self.set_report('{"runtime": {"left_as_captured": "node 7 is a conditional node"}}')
        with self.assertWarnsRegex(RuntimeWarning, "exactly as captured.*node 7 is a conditional node"):
            self.capture()

    def test_what_will_not_fit_is_said(self):
        self.set_report('{"runtime": {"warnings": ["the plan takes 1.0 GiB"]}}')
        with self.assertWarnsRegex(RuntimeWarning, "the plan takes 1.0 GiB"):
            self.capture()

    def test_more_than_the_budget_is_said(self):
        stats = {"budget_bytes": 2**30, "process_bytes": 2**30 + 3 * 2**20}
        with mock.patch.object(torch_capture.Session, "memory_stats", return_value=stats):
            with self.assertWarnsRegex(UserWarning, "has 1.00 GiB on the device, 3.00 MiB more than the budget"):
                self.capture()

    def test_a_step_left_on_purpose_does_not(self):
        self.set_report('{"runtime": {"left_as_captured": "asked for"}}')
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            self.capture(leave_as_captured=True)
        self.assertIn("leave=1", [line for line in self.calls() if line.startswith("adopt")][0])

    def test_no_warmup_is_refused(self):
        with self.assertRaisesRegex(PumpGraphError, "warmup=0"):
            self.capture(warmup=0)

    def test_the_collector_rests_during_captures(self):
        seen = []
        self.capture(lambda: seen.append(gc.isenabled()))
        self.assertEqual(seen, [False] * 5)
        self.assertTrue(gc.isenabled())

    def test_both_captures_draw_the_same_numbers(self):
        drawn = []
        self.capture(lambda: drawn.append(random.random()), warmup=1)
        self.assertEqual(drawn[1], drawn[2])
        self.assertNotEqual(drawn[0], drawn[1])


class Observing(TrainingTest):
    def test_each_run_comes_after_its_inputs(self):
        step, prepared = self.capture(), []
        self.calls()
        result = step.observe(2, prepared.append, values=[self.weight])
        self.assertEqual(prepared, [0, 1])
        self.assertEqual(result.covered, 4)
        observed = "observe 0x57e9 size=1 values=1"
        self.assertEqual([line[:len(observed)] for line in self.calls() if line.startswith(("torch", "observe"))],
                         ["torch: synchronize", observed] * 2)

    def test_no_run_is_an_error(self):
        with self.assertRaisesRegex(PumpGraphError, "0 runs"):
            self.capture().observe(0)


class Replanning(TrainingTest):
    """The runtime looks on at launches of a step that plans again by itself, and says when its graph has changed."""

    def setUp(self):
        super().setUp()
        self.set_report('{"predicted_s": 0.1, "runtime": {"replans_by_itself": true}}')

    def launches(self, letters, times, **options):
        self.control.fake_set_launches(letters.encode())
        step = self.capture(**options)
        self.calls()
        for _ in range(times):
            step.replay()
        return step, self.calls()

    def test_launches_are_watched_until_the_runtime_has_seen_enough(self):
        _, calls = self.launches("wC.", 4)
        watched = ["before_launch 0x57e9 0x57 size=1", "put_in_force 0x57e9", "torch: replay 2",
                   "after_launch 0x57e9 0x57"]
        changed = watched[:1] + ["torch: instantiate 2"] + watched[1:]
        self.assertEqual(calls, [*watched, *changed, *watched[:3], *watched[1:3]])

    def test_the_last_look_may_change_the_graph(self):
        _, calls = self.launches("c", 2)
        self.assertEqual(calls, ["before_launch 0x57e9 0x57 size=1", "torch: instantiate 2", "put_in_force 0x57e9",
                                 "torch: replay 2", "put_in_force 0x57e9", "torch: replay 2"])

    def test_nothing_is_watched_where_the_first_plan_is_kept(self):
        self.set_report('{"predicted_s": 0.1, "runtime": {"replans_by_itself": false}}')
        _, calls = self.launches("www", 2)
        self.assertEqual(calls, ["put_in_force 0x57e9", "torch: replay 2"] * 2)

    def test_the_runtime_knows_who_keeps_the_first_plan(self):
        self.capture(keep_first_plan=True)
        self.assertIn("keep=1", [line for line in self.calls() if line.startswith("adopt")][0])
        self.capture(calibrate=True)
        self.assertIn("keep=0 calibrate=1", [line for line in self.calls() if line.startswith("adopt")][0])

    def calls_of(self, name):
        return [line for line in self.calls() if line.startswith(name)]

    def test_a_step_whose_kernels_leave_addresses_to_each_other_is_calibrated(self):
        def explained(_installation, fn, _things, _drawn, writing_addresses, *_others):
            writing_addresses.add("_grouped_mm.default")
            return fn

        with mock.patch.object(torch_capture, "_explained", explained):
            self.capture()
            self.assertIn("keep=0 calibrate=1 boundary=0 trusting", self.calls_of("adopt")[0])
            self.capture(calibrate=True)
            self.assertNotIn("trusting", self.calls_of("adopt")[0])

    def test_other_runs_of_the_step_end_it(self):
        step, _ = self.launches("wwwww", 2)
        step.validate()
        self.assertEqual([line for line in self.calls() if not line.startswith("torch: s")],
                         ["validate 0x57e9 size=1", "torch: instantiate 2"])
        step.replay()
        self.assertEqual(self.calls(), ["put_in_force 0x57e9", "torch: replay 2"])

    def test_a_lost_device_is_the_error_of_every_later_replay(self):
        step, _ = self.launches("", 1)
        self.fail_next("replan", Status.DEVICE_LOST, "cuGraphLaunch: CUDA_ERROR_ASSERT")
        with self.assertRaisesRegex(PumpGraphError, "CUDA_ERROR_ASSERT"):
            step.replan()
        self.calls()
        for _ in range(2):
            with self.assertRaisesRegex(PumpGraphError, "CUDA_ERROR_ASSERT"):
                step.replay()
        self.assertEqual(self.calls(), [])

    def test_without_an_instantiation_nothing_is_launched(self):
        step, _ = self.launches("", 1)
        with mock.patch.object(torch.cuda.CUDAGraph, "instantiate", side_effect=RuntimeError("no memory")):
            with self.assertRaisesRegex(PumpGraphError, "cannot be instantiated: no memory"):
                step.replan()
        self.calls()
        with self.assertRaisesRegex(PumpGraphError, "no memory"):
            step.replay()
        self.assertEqual(self.calls(), [])


class BudgetOfTheProcess(TrainingTest):
    """Replays look once a second at what others in the process have taken."""

    def replayed(self, **options):
        """The calls of three replays, a second and a bit after the first look."""
        step = self.capture()
        now = [torch_capture.installed().next_look]
        with mock.patch.object(torch_capture.time, "monotonic", lambda: now[0]):
            step.replay()
            self.assertIn("keep_to_budget 0x5e55 size=1", self.calls())
            now[0] += 0.5
            step.replay()
            self.assertNotIn("keep_to_budget 0x5e55 size=1", self.calls())
            now[0] += 0.6
            self.control.fake_exceed_budget(b"the process has 3.0 GiB, 0.4 GiB more than its budget")
            self.control.fake_set_launches(b"c")
            with self.assertWarnsRegex(RuntimeWarning, "0.4 GiB more than its budget"):
                step.replay()
            first = self.calls()
            now[0] += 0.5
            step.replay()
            return first, self.calls()

    def test_it_is_said_once_and_the_step_is_planned_again_before_its_launch(self):
        first, second = self.replayed()
        self.assertEqual(first[0].split()[0], "keep_to_budget")
        self.assertEqual(first[1:], ["before_launch 0x57e9 0x57 size=1", "torch: instantiate 2", "put_in_force 0x57e9",
                                     "torch: replay 2"])
        self.assertEqual(second, ["put_in_force 0x57e9", "torch: replay 2"])


class NewPlansOfOthers(TrainingTest):
    """A step that is to share a boundary may give others new plans, and their graphs other copies."""

    def replayed_after_another(self, report, boundary="shared", fails=False):
        """The calls of two replays of a step that nobody watches any more, after another has been captured."""
        step = self.capture()
        step.replay()
        self.set_report(report)
        if fails:
            self.fail_next("adopt", Status.INTERNAL, "no")
            with self.assertRaises(PumpGraphError):
                self.capture(boundary=boundary)
        else:
            self.other = self.capture(boundary=boundary)
        adopted = [line for line in self.calls() if line.startswith("adopt")]
        self.assertEqual(adopted[-1].endswith("boundary=2 others"), boundary == "shared")
        self.control.fake_set_launches(b"c")
        step.replay()
        first = self.calls()
        step.replay()
        return first, self.calls()

    told = ["before_launch 0x57e9 0x57 size=1", "torch: instantiate 2", "put_in_force 0x57e9", "torch: replay 2"]
    untold = ["put_in_force 0x57e9", "torch: replay 2"]
    planned = '{"runtime": {"planned_again": ["step"]}}'

    def test_their_graphs_are_instantiated_anew(self):
        self.assertEqual(self.replayed_after_another(self.planned), (self.told, self.untold))
        self.assertTrue(torch_capture.installed().guard.moves)

    def test_also_where_the_step_is_refused(self):
        self.assertEqual(self.replayed_after_another(self.planned, fails=True), (self.told, self.untold))

    def test_not_where_they_keep_their_plans(self):
        self.assertEqual(self.replayed_after_another('{"runtime": {}}'), (self.untold, self.untold))
        self.assertFalse(torch_capture.installed().guard.moves)

    def test_not_where_the_step_is_to_have_its_own(self):
        self.assertEqual(self.replayed_after_another(self.planned, "own"), (self.untold, self.untold))


class ActivationNames(TrainingTest):
    """Modules lend their names to what passes through them in the capture, and in nothing else."""

    def setUp(self):
        super().setUp()
        self.inner, self.outer = torch.nn.Module(), self.model
        self.inner.forward = lambda x: torch.Tensor(0x7000 + torch.cuda.graphs)
        self.outer.forward = lambda x: self.inner(x)
        self.outer._children = {"fc": self.inner}

    def names(self, fn):
        self.capture(fn, warmup=1)
        return [line for line in self.calls() if line.startswith("name 0x5e55 0x7")]

    def test_the_innermost_module_gives_the_name(self):
        names = self.names(lambda: self.outer(torch.Tensor(0x7FFF)))
        self.assertEqual(names[:2], ["name 0x5e55 0x7001 fc output", "name 0x5e55 0x7fff fc input"])
        self.assertEqual(names[2:], ["name 0x5e55 0x7002 result"])

    def test_the_hooks_are_gone_afterwards(self):
        self.names(lambda: self.outer(torch.Tensor(0x7FFF)))
        self.assertEqual(self.inner._hooks + self.outer._hooks, [])

    def test_compiled_modules_get_no_hooks(self):
        self.outer._orig_mod = self.inner
        self.assertEqual(self.names(lambda: self.outer(torch.Tensor(0x7FFF))), ["name 0x5e55 0x7002 result"])

    def test_a_foreign_tensor_is_no_trouble(self):
        def fn():
            if torch.cuda.graphs == 1:  # the rehearsal
                self.fail_next("name", Status.INVALID_ARGUMENT, "not in this session")
            self.outer(torch.Tensor(0x7FFF))

        self.names(fn)


class Gradients(TrainingTest):
    """What becomes of gradients between the rehearsal and the capture."""

    def test_a_gradient_made_anew_is_dropped_before_the_capture(self):
        at_start = []

        def fn():
            at_start.append(self.weight.grad)
            self.weight.grad = torch.Tensor(0xF000 + len(at_start))

        self.capture(fn, warmup=1)
        self.assertEqual(at_start[2:], [None, None])  # in a second rehearsal, and in the capture
        self.assertEqual(self.weight.grad.untyped_storage().data_ptr(), 0xF004)
        self.assertIn("name 0x5e55 0xf004 gradient of fc.weight", self.calls())

    def test_a_gradient_of_a_refused_capture_is_dropped(self):
        def fn():
            self.weight.grad = torch.Tensor(0xF000 + torch.cuda.graphs)

        self.fail_next("adopt", Status.UNPLANNABLE, "too small")
        with self.assertRaisesRegex(PumpGraphError, "too small"):
            self.capture(fn)
        self.assertIsNone(self.weight.grad)

    def test_a_gradient_added_to_in_place_stays(self):
        gradient = self.weight.grad = torch.Tensor(0xF000)
        at_start = []
        self.capture(lambda: at_start.append(self.weight.grad))
        self.assertEqual(at_start, [gradient] * 5)

    def test_tensors_of_the_rehearsal_are_let_go(self):
        alive = []

        class Counted(torch.Tensor):
            def __init__(self):
                super().__init__(0xE000)
                alive.append(self)

            def __del__(self):
                torch.note("dropped")

        def fn():
            torch.note("fn")
            result = Counted()
            alive.clear()
            return result

        self.capture(fn, warmup=1)
        calls = self.calls()
        self.assertLess(calls.index("rehearse 0x5e55 0x6001"), calls.index("torch: begin 2 thread_local"))
        between = calls[calls.index("rehearse 0x5e55 0x6001"): calls.index("torch: begin 2 thread_local")]
        self.assertIn("dropped", between)


class Naming(TorchTest):
    def test_shared_memory_has_one_name(self):
        weight = torch.Tensor(0xA000)
        tied = torch.nn.Module({"tokens.weight": weight, "head.weight": torch.Tensor(0xA000)})
        self.assertEqual(named(torch_capture.Things(tied).tensors()), [("tokens.weight", 0xA000)])

    def test_several_modules_are_told_apart(self):
        class Generator(torch.nn.Module):
            pass

        things = [Generator({"w": torch.Tensor(0xA000)}), torch.nn.Module({"w": torch.Tensor(0xB000)})]
        names = named(torch_capture.Things(things).tensors())
        self.assertEqual(names, [("Generator.w", 0xA000), ("Module.w", 0xB000)])

    def test_containers_and_bare_tensors(self):
        things = {"a": [torch.Tensor(0xA000)], "b": (torch.Tensor(0xB000), torch.Tensor(0xA000))}
        self.assertEqual(named(torch_capture.Things(things).tensors()), [("tensor 0", 0xA000), ("tensor 1", 0xB000)])

    def test_a_generator_of_parameters(self):
        model = torch.nn.Module({"w": torch.Tensor(0xA000)})
        self.assertEqual(named(torch_capture.Things(model.parameters()).tensors()), [("tensor 0", 0xA000)])

    def test_an_optimizer_alone(self):
        weight = torch.Tensor(0xA000, requires_grad=True)
        weight.grad = torch.Tensor(0xF000)
        optimizer = torch.optim.Optimizer([weight])
        optimizer.state[weight] = {"momentum_buffer": torch.Tensor(0xB000), "nested": {"deep": [torch.Tensor(0xC000)]}}
        self.assertEqual(
            named(torch_capture.Things(optimizer).tensors()),
            [("momentum_buffer of parameter 0 of group 0", 0xB000), ("nested.deep.0 of parameter 0 of group 0", 0xC000),
             ("gradient of parameter 0 of group 0", 0xF000)],
        )

    def test_what_is_not_device_memory_is_passed_over(self):
        model = torch.nn.Module(
            {
                "host": torch.Tensor(0xA000, is_cuda=False),
                "empty": torch.Tensor(0),
                "sparse": torch.Tensor(0xB000, layout="coo"),
            }
        )
        self.assertEqual(named(torch_capture.Things(model).tensors()), [])

    def test_a_thing_without_tensors_is_refused_by_its_type(self):
        for thing in (3, "model", object()):
            with self.subTest(thing=thing), self.assertRaisesRegex(PumpGraphError, type(thing).__name__):
                torch_capture.Things([thing])


class Help(unittest.TestCase):
    """help(pumpgraph) alone is enough to use it."""

    def test_it_leads_to_every_name(self):
        for name in pumpgraph.__all__:
            self.assertRegex(pumpgraph.__doc__, rf"\b{name}\b")

    def test_every_parameter_is_described(self):
        for name in pumpgraph.__all__:
            thing = getattr(pumpgraph, name)
            self.assertTrue(thing.__doc__, name)
            for parameter in () if inspect.isclass(thing) else inspect.signature(thing).parameters:
                with self.subTest(function=name, parameter=parameter):
                    self.assertTrue(re.search(rf"^ +(\w+, )*{parameter}(, \w+)*: ", thing.__doc__, re.MULTILINE))

    def test_every_method_is_described(self):
        for kind in (pumpgraph.Graphed, pumpgraph.Step, torch_capture.Report):
            for name, member in vars(kind).items():
                if not name.startswith("_") and (inspect.isfunction(member) or isinstance(member, property)):
                    with self.subTest(kind=kind.__name__, member=name):
                        self.assertTrue(member.__doc__)


if __name__ == "__main__":
    unittest.main()
