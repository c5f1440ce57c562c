# SPDX-License-Identifier: Apache-2.0
"""The library's messages in Python's logging, and lines about long calls."""

import io
import logging
import os
import sys
import time
import unittest
from unittest import mock

import support
from pumpgraph import messages, progress
from pumpgraph._session import ProgressState, Session


class Messages(support.FakeLibraryTest):
    def setUp(self):
        super().setUp()
        handlers, level = list(messages.logger.handlers), messages.logger.level

        def restore():
            messages.logger.handlers, messages.logger.level = handlers, level

        self.addCleanup(restore)

    def send(self, level, text):
        return self.control.fake_message(level, text.encode())

    def test_they_are_records_of_the_logger(self):
        with mock.patch.dict(os.environ):
            os.environ.pop("PUMPGRAPH_LOG", None)
            messages.forward(self.library)
        with self.assertLogs("pumpgraph", logging.DEBUG) as logged:
            for level in (1, 2, 3, 4):
                self.assertTrue(self.send(level, f"{level} % done"))
        self.assertEqual([(record.levelname, record.getMessage()) for record in logged.records],
                         [("ERROR", "1 % done"), ("WARNING", "2 % done"), ("INFO", "3 % done"), ("DEBUG", "4 % done")])

    def test_a_program_that_configures_nothing_sees_none(self):
        with mock.patch.dict(os.environ), mock.patch("sys.stderr", io.StringIO()) as stderr:
            os.environ.pop("PUMPGRAPH_LOG", None)
            messages.forward(self.library)
            self.send(1, "failed")
        self.assertEqual(stderr.getvalue(), "")

    def test_the_environment_prints_them(self):
        with mock.patch.dict(os.environ, PUMPGRAPH_LOG="info"), mock.patch("sys.stderr", io.StringIO()) as stderr:
            messages.forward(self.library)
            self.send(3, "planned")
            self.send(4, "a note")
        self.assertEqual(stderr.getvalue(), "pumpgraph: INFO: planned\n")

    def test_none_are_sent_at_the_end(self):
        with mock.patch("atexit.register") as registered:
            messages.forward(self.library)
        registered.call_args[0][0](*registered.call_args[0][1:])
        self.assertFalse(self.send(1, "too late"))


class Progress(support.FakeLibraryTest):
    def state(self, phase, done=0, total=0, best_us=0.0):
        self.control.fake_set_progress.argtypes = None
        return ProgressState(phase, done, total, best_us, 1.0)

    def test_text(self):
        for state, text in (
            (self.state("capturing", 1, 2), "capturing, 1 of 2 captures made"),
            (self.state("planning"), "planning"),
            (self.state("planning", 3, 0, 54700.0), "planning, the best plan takes 54.7 ms"),
            (self.state("pinning", 1 << 30, 4 << 30),
             "pinning host memory [#####...............] 1.00 GiB of 4.00 GiB"),
            (self.state(None), None),
        ):
            self.assertEqual(progress.text_of(state), text)

    def shown(self, seconds, terminal=False, **environment):
        import ctypes
        self.control.fake_set_progress(2, ctypes.c_uint64(1), ctypes.c_uint64(0), ctypes.c_double(2e3))
        stderr = io.StringIO()
        stderr.isatty = lambda: terminal
        session = Session(self.library, 1 << 30)
        with mock.patch.dict(os.environ, environment), mock.patch.object(sys, "stderr", stderr), \
                mock.patch.object(progress, "_QUIET", 0.05), mock.patch.object(progress, "_BETWEEN_UPDATES", 0.05):
            if not environment:
                os.environ.pop("PUMPGRAPH_PROGRESS", None)
            with progress.shown(session, "train"):
                time.sleep(seconds)
        return stderr.getvalue()

    def test_a_long_call_is_shown(self):
        text = self.shown(0.4, terminal=True)
        self.assertTrue(text.startswith("\rpumpgraph: train: planning, the best plan takes 2.0 ms, 0 s\r"), text)
        self.assertTrue(text.endswith("\n"))
        self.assertEqual(self.shown(0.4, PUMPGRAPH_PROGRESS="1"),
                         "pumpgraph: train: planning, the best plan takes 2.0 ms, 0 s\n")

    def test_a_short_one_and_one_without_a_terminal_is_not(self):
        self.assertEqual(self.shown(0.0, terminal=True), "")
        self.assertEqual(self.shown(0.2), "")
        self.assertEqual(self.shown(0.2, terminal=True, PUMPGRAPH_PROGRESS="0"), "")


if __name__ == "__main__":
    unittest.main()
