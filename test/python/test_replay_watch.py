# SPDX-License-Identifier: Apache-2.0
"""The end of replays that wait for ever. """

import contextlib
import io
import threading
import unittest
from unittest import mock

import support  # noqa: F401  # finds the package

from pumpgraph.replay_watch import DriverEvent, ReplayWatch

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

    def record(self, _stream):
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
            self.watch(0.05).replayed("train", 0)
            self.assertTrue(self.over.wait(AT_MOST))
        self.assertRegex(self.errors.getvalue(), "a replay of step \"train\" has not ended within 0.05 s; another rank")

    def test_the_one_that_hangs_is_named(self):
        self.device.ended = 1
        watch = self.watch(0.05)
        with contextlib.redirect_stderr(self.errors):
            watch.replayed("first", 0)
            watch.replayed("second", 0)
            self.assertTrue(self.over.wait(AT_MOST))
        self.assertIn("\"second\"", self.errors.getvalue())

    def test_a_context_that_has_failed_is_left_to_the_program(self):
        self.device.fails = True
        watch = self.watch(0.05)
        with mock.patch.object(threading, "excepthook") as died:
            watch.replayed("train", 0)
            watch._thread.join(AT_MOST)
        self.assertFalse(watch._thread.is_alive() or self.over.is_set())
        died.assert_not_called()

    def test_many_replays_may_take_longer_together(self):
        watch = self.unwatched(4)
        for _ in range(10):
            watch.replayed("train", 0)
        for second in range(0, 30, 3):
            self.assertFalse(watch.is_over(second))
            self.device.ended += 1
        self.assertFalse(watch.is_over(30))

    def test_the_last_of_many_may_not(self):
        watch = self.unwatched(4)
        for _ in range(3):
            watch.replayed("train", 0)
        self.device.ended = 2
        self.assertEqual([watch.is_over(second) for second in (10, 14, 14.1)], [False, False, True])

    def test_time_between_replays_does_not_count(self):
        watch = self.unwatched(4)
        for second in (0, 100, 200):
            watch.replayed("train", 0)
            self.assertFalse(watch.is_over(second))
            self.device.ended += 1
            self.assertFalse(watch.is_over(second + 3))
        self.assertEqual(self.device.made, 1)  # an event serves again


class Driver:
    """By ctypes. Its record waits for room on the stream."""

    def __init__(self):
        self.results, self.contexts, self.recorded = {}, [], []

    def __getattr__(self, name):
        def call(*arguments):
            if name == "cuCtxSetCurrent":
                self.contexts.append(threading.get_ident())
            if name == "cuEventRecord":
                self.recorded.append(arguments[1].value)
            return self.results.get(name, 0)

        return call


class Events(unittest.TestCase):
    def test_an_event_is_over_or_not(self):
        driver = Driver()
        event = DriverEvent(driver)
        event.record(7)
        self.assertEqual(driver.recorded, [7])
        self.assertTrue(event.query())
        driver.results["cuEventQuery"] = 600
        self.assertFalse(event.query())

    def test_any_other_result_is_an_error(self):
        driver = Driver()
        event = DriverEvent(driver)
        for name, call in (("cuEventQuery", event.query), ("cuEventRecord", lambda: event.record(0)),
                           ("cuCtxSetCurrent", event.query)):
            driver.results = {name: 700}
            with self.assertRaisesRegex(RuntimeError, f"{name} failed with error 700"):
                call()
        driver.results = {"cuCtxSetCurrent": 600}  # of another call
        with self.assertRaises(RuntimeError):
            event.query()

    def test_the_thread_that_asks_has_the_context(self):
        driver = Driver()
        event = DriverEvent(driver)
        thread = threading.Thread(target=event.query)
        thread.start()
        thread.join()
        self.assertEqual(len(driver.contexts), 1)


if __name__ == "__main__":
    unittest.main()
