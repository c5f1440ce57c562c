# SPDX-License-Identifier: Apache-2.0
"""The end of replays that wait for ever. """

import contextlib
import io
import threading
import unittest
from unittest import mock

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

    def unwatched(self, seconds):
        """Whose thread does not look."""
        watch = self.watch(seconds)
        watch._thread = mock.Mock()
        return watch

    def test_a_replay_that_does_not_end_ends_the_process(self):
        with contextlib.redirect_stderr(self.errors):
            self.watch(0.05).replayed("train")
            self.assertTrue(self.over.wait(AT_MOST))
        self.assertRegex(self.errors.getvalue(), "a replay of step \"train\" has not ended within 0.05 s; another rank")

    def test_the_one_that_hangs_is_named(self):
        self.device.ended = 1
        watch = self.watch(0.05)
        watch.replayed("first")
        watch.replayed("second")
        with contextlib.redirect_stderr(self.errors):
            self.assertTrue(self.over.wait(AT_MOST))
        self.assertIn("\"second\"", self.errors.getvalue())

    def test_a_context_that_has_failed_is_left_to_the_program(self):
        self.device.fails = True
        watch = self.watch(0.05)
        watch.replayed("train")
        watch._thread.join(AT_MOST)
        self.assertFalse(watch._thread.is_alive() or self.over.is_set())

    def test_many_replays_may_take_longer_together(self):
        watch = self.unwatched(4)
        for _ in range(10):
            watch.replayed("train")
        for second in range(0, 30, 3):
            self.assertFalse(watch.is_over(second))
            self.device.ended += 1
        self.assertFalse(watch.is_over(30))

    def test_the_last_of_many_may_not(self):
        watch = self.unwatched(4)
        for _ in range(3):
            watch.replayed("train")
        self.device.ended = 2
        self.assertEqual([watch.is_over(second) for second in (10, 14, 14.1)], [False, False, True])

    def test_time_between_replays_does_not_count(self):
        watch = self.unwatched(4)
        for second in (0, 100, 200):
            watch.replayed("train")
            self.assertFalse(watch.is_over(second))
            self.device.ended += 1
            self.assertFalse(watch.is_over(second + 3))
        self.assertEqual(self.device.made, 1)  # an event serves again


if __name__ == "__main__":
    unittest.main()
