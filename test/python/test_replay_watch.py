# SPDX-License-Identifier: Apache-2.0
"""The end of replays that wait for ever. The times are milliseconds."""

import contextlib
import io
import threading
import time
import unittest

import support  # noqa: F401  # finds the package

from pumpgraph.replay_watch import ReplayWatch

AT_MOST = 20  # seconds, if the machine is busy


class Device:
    """Whose replays end when they are told to, in order."""

    def __init__(self):
        self.made = self.recorded = self.ended = 0
        self.fails = False

    def event(self):
        self.made += 1
        return Event(self)


class Event:
    def __init__(self, device):
        self._device = device
        self._number = 0

    def record(self):
        self._device.recorded += 1
        self._number = self._device.recorded

    def query(self):
        if self._device.fails:
            raise RuntimeError("CUDA error: an illegal memory access was encountered")
        return self._device.ended >= self._number


class Watch(unittest.TestCase):
    def setUp(self):
        self.device, self.over, self.errors = Device(), threading.Event(), io.StringIO()

    def watch(self, seconds):
        return ReplayWatch(self.device.event, seconds, self.over.set)

    def test_a_replay_that_does_not_end_ends_the_process(self):
        with contextlib.redirect_stderr(self.errors):
            self.watch(0.05).replayed("train")
            self.assertTrue(self.over.wait(AT_MOST))
        self.assertRegex(self.errors.getvalue(), "a replay of step \"train\" has not ended within 0.05 s; another rank")

    def test_many_replays_may_take_longer_together(self):
        watch = self.watch(0.4)
        for _ in range(10):
            watch.replayed("train")
        for _ in range(10):
            time.sleep(0.1)
            self.device.ended += 1
        self.assertFalse(self.over.wait(1.0))

    def test_time_between_replays_does_not_count(self):
        watch = self.watch(0.3)
        for _ in range(3):
            watch.replayed("train")
            self.device.ended += 1
            self.assertFalse(self.over.wait(0.5))
        self.assertLess(self.device.made, 3)  # events serve again

    def test_the_one_that_hangs_is_named(self):
        watch = self.watch(0.3)
        watch.replayed("first")
        self.device.ended = 1
        watch.replayed("second")
        with contextlib.redirect_stderr(self.errors):
            self.assertTrue(self.over.wait(AT_MOST))
        self.assertIn("\"second\"", self.errors.getvalue())

    def test_a_context_that_has_failed_is_left_to_the_program(self):
        self.device.fails = True
        self.watch(0.05).replayed("train")
        self.assertFalse(self.over.wait(0.5))


if __name__ == "__main__":
    unittest.main()
