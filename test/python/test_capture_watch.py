# SPDX-License-Identifier: Apache-2.0
"""The end of captures that wait for ever. No second is waited: the times are milliseconds."""

import contextlib
import io
import os
import threading
import time
import unittest
from unittest import mock

from test_torch_capture import TorchTest, torch  # noqa: F401  the stand-in

from pumpgraph import capture_watch
from pumpgraph.capture_watch import CaptureTimeout, CaptureWatch, seconds_allowed
from pumpgraph.errors import PumpGraphError, UnsupportedError

AT_MOST = 20  # seconds, if the machine is busy


class Watch(TorchTest):
    def setUp(self):
        super().setUp()
        group = mock.patch.object(capture_watch, "has_group", lambda: True)
        group.start()
        self.addCleanup(group.stop)
        self.errors = io.StringIO()

    def wait_for_ever(self, watch):
        def step():
            watch.calls("torch.distributed's allreduce_")
            start = time.perf_counter()
            while time.perf_counter() - start < AT_MOST:
                time.sleep(0.001)

        with contextlib.redirect_stderr(self.errors), watch.during("the rehearsal"):
            watch.ended_inside(step)()

    def test_a_capture_that_takes_too_long_is_an_error_that_says_where(self):
        with self.assertRaisesRegex(CaptureTimeout, "\"train\" is being captured for over 0.01 s in the rehearsal, "
                                    "after the call of torch.distributed's allreduce_: .*PUMPGRAPH_CAPTURE_SECONDS"):
            self.wait_for_ever(CaptureWatch("train", 0.01, AT_MOST))
        self.assertIn("wait_for_ever", self.errors.getvalue())  # the stack

    def test_it_is_one_of_ours(self):
        with self.assertRaises(UnsupportedError):
            self.wait_for_ever(CaptureWatch("train", 0.01, AT_MOST))

    def test_a_call_that_does_not_return_ends_the_process(self):
        ended = threading.Event()

        # As if C++ did not come back: the exception is not sent.
        with mock.patch.object(capture_watch.ctypes.pythonapi, "PyThreadState_SetAsyncExc", lambda *_to: 0):
            watch = CaptureWatch("train", 0.01, grace=0.01, end_process=ended.set)
            with contextlib.redirect_stderr(self.errors), self.assertRaises(CaptureTimeout), watch.during("a phase"):
                watch.ended_inside(lambda: self.assertTrue(ended.wait(AT_MOST)))()
        self.assertIn("the process ends", self.errors.getvalue())

    def test_work_around_the_step_is_not_ended(self):
        """An exception there would leave the session in the midst of a capture."""
        watch = CaptureWatch("train", 0.001, AT_MOST)
        with contextlib.redirect_stderr(self.errors), watch.during("the capture"):
            time.sleep(0.02)
            watch.ended_inside(lambda: None)()
            time.sleep(0.02)
        self.assertEqual(threading.active_count(), 1)

    def test_one_that_ends_in_time_is_none(self):
        watch = CaptureWatch("train", 1000.0)
        for phase in ("the rehearsal", "the capture"):
            with watch.during(phase):
                pass
        self.assertEqual(threading.active_count(), 1)

    def test_an_error_of_the_step_passes(self):
        with self.assertRaisesRegex(ValueError, "of the step"), CaptureWatch("train", 1000.0).during("the capture"):
            raise ValueError("of the step")
        self.assertEqual(threading.active_count(), 1)

    def test_without_a_group_nothing_is_watched(self):
        with mock.patch.object(capture_watch, "has_group", lambda: False), \
                CaptureWatch("train", 0.001).during("the capture"):
            self.assertEqual(threading.active_count(), 1)

    def test_the_time(self):
        for text, seconds in (("", 600.0), ("0", 0.0), ("2.5", 2.5)):
            with mock.patch.dict(os.environ, PUMPGRAPH_CAPTURE_SECONDS=text):
                self.assertEqual(seconds_allowed(), seconds)
        for text in ("soon", "-1", "nan"):
            with mock.patch.dict(os.environ, PUMPGRAPH_CAPTURE_SECONDS=text), \
                    self.assertRaisesRegex(PumpGraphError, f"PUMPGRAPH_CAPTURE_SECONDS={text}"):
                seconds_allowed()


if __name__ == "__main__":
    unittest.main()
