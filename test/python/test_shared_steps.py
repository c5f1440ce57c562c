# SPDX-License-Identifier: Apache-2.0
"""Captures of steps with collectives: what this rank tells the others, and what it does when they refuse."""

import contextlib
import datetime
import io
import json
import os
import sys
import threading
import types
import warnings
from unittest import mock

import test_torch_capture as base
from rank_stores import Values
from test_torch_capture import torch

import pumpgraph
from pumpgraph import PumpGraphError, Status, UnsupportedError, capture_watch, shared_steps, torch_capture
from pumpgraph.errors import is_shortage
from pumpgraph.ranks import Decision, Vote, Wish

MEMBERS = (0, 1)


class OtherRank(Values):
    """The store, with a rank 1 that votes as rank 0 does, but for the fields of `differs` by topic."""

    timeout = datetime.timedelta(seconds=0.05)

    def __init__(self):
        super().__init__()
        self.differs = {}
        self.is_there = True
        self.votes = []
        self.decisions = []

    def wait(self, keys, timeout):
        raise RuntimeError("wait timeout")

    def set(self, key, value):
        super().set(key, value)
        number, _, rank = key.rpartition("/")
        if number.startswith("figures"):
            super().set(f"{number}/1", json.dumps({**json.loads(value), "rank": 1, "predicted_s": 0.3, "stall_s": 0.1}))
            return
        vote = Vote.from_text(value.encode())
        self.votes.append(vote)
        if self.is_there:
            super().set(f"{number}/1", vote._replace(**self.differs.get(vote.topic, {})).to_text())

    def compare_set(self, key, expected, desired):
        value = super().compare_set(key, expected, desired)
        self.decisions.append(Decision.from_text(value))
        return value


class Group:
    """Of both ranks, which counts its collectives."""

    def __init__(self):
        self.calls = 0

    def all_reduce(self, tensor):
        self.calls += 1
        if torch.cuda.capturing:
            shared_steps.note_collective("all_reduce", [tensor], self)

    def _get_sequence_number_for_group(self):
        return self.calls


class SharedTest(base.TrainingTest):
    def setUp(self):
        super().setUp()
        self.store, self.group = OtherRank(), Group()
        distributed = types.SimpleNamespace(
            is_available=lambda: True, is_initialized=lambda: True, get_world_size=lambda: 2, get_rank=lambda: 0,
            get_process_group_ranks=lambda _group: list(MEMBERS), PrefixStore=lambda _prefix, store: store,
            distributed_c10d=types.SimpleNamespace(_get_default_store=lambda: self.store,
                                                   _world=types.SimpleNamespace(pg_map={self.group: None})))
        for patch in (mock.patch.dict(sys.modules, {"torch.distributed": distributed}),
                      mock.patch.object(torch, "all_reduce", self.group.all_reduce, create=True),
                      mock.patch.object(shared_steps._Process, "store", None),
                      mock.patch.object(shared_steps._Process, "ranks", None),
                      mock.patch.object(shared_steps._Process, "measured_with", None),
                      mock.patch.object(shared_steps, "ReplayWatch", self.make_watch)):
            patch.start()
            self.addCleanup(patch.stop)
        self.replays = []
        self.calls()

    patience = OtherRank.timeout.total_seconds()

    def make_watch(self, _make_event, seconds):
        self.assertEqual(seconds, self.patience)
        return types.SimpleNamespace(replayed=lambda step, _stream: self.replays.append(step))

    def reducing(self):
        """The step, with a collective."""
        torch.all_reduce(self.weight)
        return self.step()

    def topics(self):
        return [vote.topic for vote in self.store.votes]

    def adoptions(self):
        return [line for line in self.calls() if line.startswith("adopt")]


class Captures(SharedTest):
    def test_all_go(self):
        step = self.capture(self.reducing)
        self.assertEqual(self.topics(), ["capture", "plan", "replay"])
        self.assertEqual([decision.outcome for decision in self.store.decisions], [Wish.GO] * 3)
        plan = self.store.votes[1]
        self.assertEqual(plan.calls, {MEMBERS: 1})
        self.assertEqual([str(call) for call in plan.collectives],
                         ["all_reduce of 16 bytes of torch.float32 among ranks 0, 1"])
        self.assertRegex(self.adoptions()[0], " hosting$")  # where there is no room, and no trials
        step.replay()

    def test_the_link_is_measured_with_all_ranks_once(self):
        self.capture(self.reducing)
        lines = self.calls()
        measured = [index for index, line in enumerate(lines) if line.startswith("measure_link")]
        begun = next(index for index, line in enumerate(lines) if line.startswith("capture_begin"))
        self.assertEqual(len(measured), 1)
        self.assertLess(measured[0], begun)
        self.capture(self.reducing, name="second")
        self.assertFalse([line for line in self.calls() if line.startswith("measure_link")])

    def test_replays_are_watched(self):
        step, alone = self.capture(self.reducing, name="net"), self.capture(name="alone")
        for each in step, alone, step:
            each.replay()
        self.assertEqual(self.replays, ["net", "net"])

    def test_they_are_watched_for_as_long_as_the_most_patient_group_waits(self):
        options = types.SimpleNamespace(_timeout=datetime.timedelta(minutes=10))
        self.group._get_backend = lambda _device: types.SimpleNamespace(options=options)
        self.patience = 600
        self.capture(self.reducing)

    def test_a_lost_device_is_an_error(self):
        self.fail_next("measure_link", Status.DEVICE_LOST, "the device is lost")
        with self.assertRaisesRegex(PumpGraphError, "the device is lost"):
            self.capture(self.reducing)

    def test_no_room_to_measure_the_link_is_no_error(self):
        self.fail_next("measure_link", Status.OUT_OF_DEVICE_MEMORY, "no room")
        with self.assertLogs("pumpgraph", "INFO") as logged:
            self.capture(self.reducing).replay()
        self.assertRegex(logged.output[0], "one rank alone")

    def test_a_step_without_collectives_concerns_nobody(self):
        step = self.capture()
        self.assertEqual(self.store.values, {})
        self.assertIsNone(step.shared)
        step.validate()

    def test_one_rank_agrees_with_itself(self):
        with mock.patch.object(sys.modules["torch.distributed"], "get_world_size", lambda: 1):
            self.capture(self.reducing)
        self.assertEqual(self.store.values, {})

    def test_the_other_refuses_before_it_is_planned(self):
        self.store.differs["plan"] = {"wish": Wish.REFUSE, "reason": "an .item() at train.py:9"}
        with self.assertRaisesRegex(UnsupportedError, "rank 1 refuses step \"step\", so all ranks do: an .item"):
            self.capture(self.reducing)
        self.assertEqual(self.topics(), ["capture", "plan"])
        self.assertEqual(self.adoptions(), [])

    def test_the_other_refuses_its_plan(self):
        self.store.differs["replay"] = {"wish": Wish.REFUSE, "reason": "2 GiB needed",
                                        "status": Status.OUT_OF_DEVICE_MEMORY}
        with self.assertRaisesRegex(PumpGraphError, "2 GiB needed") as caught:
            self.capture(self.reducing)
        self.assertTrue(is_shortage(caught.exception))
        self.assertIn("step_destroy 0x57e9", self.calls())

    def test_the_other_does_not_come(self):
        self.store.is_there = False
        with self.assertRaisesRegex(UnsupportedError, "rank 1 has not come to the capture of step \"step\" within"):
            self.capture(self.reducing)
        self.assertNotIn("capture_begin 0x5e55", self.calls())

    def test_this_one_fails(self):
        def broken():
            self.reducing()
            if torch.cuda.capturing:
                raise ZeroDivisionError("in the step")

        with self.assertRaisesRegex(ZeroDivisionError, "in the step"):
            self.capture(broken)
        self.assertEqual(self.store.votes[-1].wish, Wish.REFUSE)
        self.assertRegex(self.store.decisions[-1].reason, "rank 0 refuses step .* in the step")

    def test_this_one_has_no_room(self):
        self.fail_next("adopt", Status.UNPLANNABLE, "node 3 needs 3.2 GiB")
        with self.assertRaisesRegex(PumpGraphError, "needs 3.2 GiB"):
            self.capture(self.reducing)
        self.assertEqual(self.store.decisions[-1].status, Status.UNPLANNABLE)

    def test_the_other_calls_more(self):
        self.store.differs["plan"] = {"calls": {MEMBERS: 2}}
        with self.assertRaisesRegex(UnsupportedError, "rank 0 calls 1 collectives of ranks 0, 1 .* rank 1 calls 2"):
            self.capture(self.reducing)

    def test_the_other_calibrates(self):
        self.store.differs["plan"] = {"facts": {"calibrate": True}}
        with self.assertRaisesRegex(UnsupportedError, "calibrate=False on rank 0 and calibrate=True on rank 1"):
            self.capture(self.reducing)

    def test_trials_are_refused(self):
        with self.assertRaisesRegex(UnsupportedError, "hosting=\"measured\" runs step"):
            self.capture(self.reducing, hosting="measured")
        self.assertIs(self.store.decisions[-1].outcome, Wish.REFUSE)

    def test_a_collective_of_the_capture_alone(self):
        def reducing():
            if torch.cuda.capturing:
                torch.all_reduce(self.weight)

        with self.assertRaisesRegex(UnsupportedError, "all_reduce is called .* its warm-up calls made no collective"):
            self.capture(reducing)

    def test_a_warning_as_an_error_parts_no_ranks(self):
        """The others have been told to replay the step."""
        self.store.differs["replay"] = {"wish": Wish.LEAVE, "reason": "node 3 is opaque"}
        with warnings.catch_warnings(), self.assertLogs("pumpgraph", "WARNING") as logged:
            warnings.simplefilter("error")
            self.capture(self.reducing).replay()
        self.assertIn("may be slow on all ranks", logged.output[0])
        self.assertEqual(self.topics(), ["capture", "plan", "replay"])

    def test_the_step_s_own_error_has_a_status_of_another_kind(self):
        class HttpError(Exception):
            status = "500 Internal"

        def broken():
            torch.all_reduce(self.weight)
            if torch.cuda.capturing:
                raise HttpError("the step's own")
            return self.step()

        with self.assertRaisesRegex(HttpError, "the step's own"):
            self.capture(broken)
        self.assertEqual(self.topics(), ["capture", "end"])
        self.assertEqual(self.store.votes[-1].status, Status.INVALID_ARGUMENT)

    def test_who_leaves_it_as_captured_calibrates_nothing(self):
        """Which runs the step, so all ranks have to."""
        self.store.differs["plan"] = {"facts": {"calibrate": True}}
        with self.assertRaisesRegex(UnsupportedError, "calibrate=False on rank 0 and calibrate=True on rank 1"):
            self.capture(self.reducing, calibrate=True, leave_as_captured=True)

    def test_a_calibration_that_waits_for_ever_ends_the_process(self):
        ended, errors = threading.Event(), io.StringIO()

        def waits(*_arguments):
            self.assertTrue(ended.wait(20))
            raise UnsupportedError("it would be over")

        with mock.patch.dict(os.environ, PUMPGRAPH_CAPTURE_SECONDS="0.05"), \
                mock.patch.object(torch_capture, "_adopt", waits), \
                mock.patch.object(capture_watch, "has_group", lambda: True), \
                mock.patch.object(capture_watch.faulthandler, "dump_traceback_later"), \
                mock.patch.object(os, "_exit", lambda _status: ended.set()), \
                contextlib.redirect_stderr(errors), self.assertRaises(UnsupportedError):
            self.capture(self.reducing, calibrate=True)
        self.assertRegex(errors.getvalue(), "in the calibration: another rank may have ended")

    def test_the_other_leaves_it_as_captured(self):
        self.store.differs["replay"] = {"wish": Wish.LEAVE, "reason": "node 3 is opaque"}
        with self.assertWarnsRegex(RuntimeWarning, "may be slow on all ranks: rank 1 replays it as captured: node 3"):
            self.capture(self.reducing)

    def test_a_new_process_group_goes_on_counting(self):
        self.capture(self.reducing)
        before, self.store = self.store, OtherRank()
        self.capture(self.reducing)
        numbers = {key.partition("/")[0] for key in self.store.values} - {"figures"}
        self.assertFalse(numbers & {key.partition("/")[0] for key in before.values} - {"figures"})


class Steps(SharedTest):
    def setUp(self):
        super().setUp()
        self.set_report('{"name": "step", "predicted_s": 0.2, "budget_bytes": 4, '
                        '"runtime": {"plans": [{"measured_s": 0.25}]}}')

    def test_the_report_shows_the_slowest(self):
        report = self.capture(self.reducing).report()
        self.assertEqual([each["rank"] for each in report["ranks"]], [0, 1])
        self.assertEqual(report["ranks"][0]["measured_s"], 0.25)
        self.assertIn("  slowest rank          1 of 2, predicted 300.00 ms, of which 100.00 ms are stalls", str(report))

    def test_a_closed_one_leaves_nothing(self):
        step = self.capture(self.reducing)
        step.close()
        self.assertEqual([key for key in self.store.values if key.startswith("figures") and key.endswith("/0")], [])

    def test_it_is_not_run_by_pumpgraph(self):
        step = self.capture(self.reducing)
        self.calls()
        for run in (step.replan, step.validate, step.observe, step.measure):
            with self.assertRaisesRegex(UnsupportedError, "collectives of several ranks"):
                run()
        self.assertEqual(self.calls(), [])
        step.replay()

    def test_figures_follow_another_plan(self):
        self.set_report('{"name": "step", "predicted_s": 0.2, "runtime": {"replans_by_itself": true}}')
        self.control.fake_set_launches(b"wc")
        step = self.capture(self.reducing)
        step.replay()
        self.set_report('{"name": "step", "predicted_s": 0.4}')
        step.replay()
        self.assertEqual(step.report()["ranks"][0]["predicted_s"], 0.4)


class Graphed(SharedTest):
    def graphed(self, **options):
        weight = self.weight

        def fn(_x):
            torch.all_reduce(weight)
            return torch.Tensor(0xE000)

        return pumpgraph.graphed(fn, warmup=1, name="train", **options)

    def test_all_go(self):
        train, x = self.graphed(), torch.Tensor(0xF000)
        train(x)
        self.assertEqual(self.topics(), [])
        train(x)
        train(x)
        self.assertEqual(self.topics(), ["capture", "plan", "replay"])

    def test_one_that_raises_tells_the_others(self):
        self.set_report('{"runtime": {"left_as_captured": "node 7 is opaque"}}')
        train, x = self.graphed(on_unsupported="raise"), torch.Tensor(0xF000)
        train(x)
        with self.assertRaisesRegex(UnsupportedError, "train cannot be rewritten: node 7"):
            train(x)
        self.assertEqual(self.topics(), ["capture", "plan", "end"])
        self.assertRegex(self.store.decisions[-1].reason, "rank 0 refuses step \"train\".* node 7 is opaque")

    def test_the_other_refuses(self):
        self.store.differs["replay"] = {"wish": Wish.REFUSE, "reason": "it draws random numbers"}
        train, x = self.graphed(), torch.Tensor(0xF000)
        train(x)
        self.calls()
        with self.assertRaisesRegex(UnsupportedError, "rank 1 refuses step \"train\".* random"):
            train(x)
        self.assertIn("step_destroy 0x57e9", self.calls())
        self.assertFalse(train.is_captured)
