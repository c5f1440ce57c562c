# SPDX-License-Identifier: Apache-2.0
"""Warm-up calls: which are watched, what the session hears of their operators, and what they say of themselves."""

import ctypes
import io
import os
import types
import sys
import unittest
from unittest import mock

import test_torch_capture as base
from test_torch_capture import torch  # the stand-in

import pumpgraph
from pumpgraph import warm_up


def operator(name="mm", returns="Tensor", view=False):
    alias = types.SimpleNamespace(is_write=False) if view else None
    schema = types.SimpleNamespace(arguments=[], returns=[types.SimpleNamespace(alias_info=alias)])
    return mock.Mock(__name__=name, _schema=schema, return_value=returns)


class WarmUpTest(base.TorchTest):
    def setUp(self):
        super().setUp()
        torch.utils._python_dispatch.stack.clear()
        self.install()
        self.page(bytes=1)
        self.addCleanup(self.control.fake_page, 0, ctypes.c_uint64(0))

    def page(self, bytes):
        self.control.fake_page(1, ctypes.c_uint64(bytes))

    def warm_up(self, fn, calls=1, **options):
        step = pumpgraph.graphed(fn, warmup=calls, **options)
        for _ in range(calls):
            step(torch.Tensor(0x1000))
        return step

    def run_operator(self, func, *args, **kwargs):
        """As the dispatcher does."""
        return torch.utils._python_dispatch.stack[-1].__torch_dispatch__(func, (), args, kwargs)

    def paging(self):
        return [line for line in self.calls() if "pag" in line]


class Operands(WarmUpTest):
    def test_come_to_the_device_before_their_operator(self):
        func = operator()
        a, b = torch.Tensor(0xA000), torch.Tensor(0xB000)

        def fn(_x):
            self.assertEqual(self.run_operator(func, a, [b, a], out=None), "Tensor")

        self.warm_up(fn)
        begin, page_in, end = self.paging()
        self.assertEqual([begin, end], ["begin_paging 0x5e55 0x57", "end_paging 0x5e55"])
        self.assertEqual(sorted(page_in.split()), ["0x5e55", "0xa000", "0xb000", "page_in"])
        func.assert_called_once_with(a, [b, a], out=None)
        self.assertEqual(torch.utils._python_dispatch.stack, [])

    def test_of_views_stay_where_they_are(self):
        self.warm_up(lambda _x: self.run_operator(operator(view=True), torch.Tensor(0xA000)))
        self.assertEqual(len(self.paging()), 2)

    def test_without_memory_are_nobodys(self):
        self.warm_up(lambda _x: self.run_operator(operator(), torch.Tensor(0xA000, is_cuda=False), 3))
        self.assertEqual(len(self.paging()), 2)

    def test_without_storage_are_a_compilers(self):
        traced = torch.Tensor(0xA000)
        traced.untyped_storage = mock.Mock(side_effect=NotImplementedError("of a functional tensor"))
        self.warm_up(lambda _x: self.assertEqual(self.run_operator(operator(), traced), "Tensor"))
        self.assertEqual(len(self.paging()), 2)

    def test_stay_during_a_capture_of_the_program(self):
        with mock.patch.object(torch.cuda, "is_current_stream_capturing", return_value=True):
            mode = warm_up._Watching(pumpgraph.torch_capture.installed().session, warm_up._Progress("", 0))
            mode.__torch_dispatch__(operator(), (), (torch.Tensor(0xA000),))
        self.assertEqual(self.paging(), [])

    def test_no_longer_come_after_an_error(self):
        def fn(_x):
            raise ValueError("the program's")

        with self.assertRaisesRegex(ValueError, "the program's"):
            self.warm_up(fn)
        self.assertEqual([line.split()[0] for line in self.paging()], ["begin_paging", "end_paging"])
        self.assertEqual(torch.utils._python_dispatch.stack, [])


class Watched(WarmUpTest):
    """Whether a call is watched."""

    def depths(self, calls, stats):
        found = []
        with mock.patch.object(pumpgraph.torch_capture.Session, "memory_stats", side_effect=stats):
            self.warm_up(lambda _x: found.append(len(torch.utils._python_dispatch.stack)), calls)
        return found

    def stats(self, live, peak=50, hosted=0):
        return {"live_bytes": live, "frame_budget_bytes": 100, "device_peak_bytes": peak, "host_backed_bytes": hosted}

    def test_all_are_while_memory_moves(self):
        self.assertEqual(self.depths(3, [self.stats(10)] * 9), [1, 1, 1])

    def test_none_is_after_one_that_had_room_enough(self):
        self.page(bytes=0)
        self.assertEqual(self.depths(3, [self.stats(10)] * 9), [1, 0, 0])

    def test_one_is_that_has_more_beside_it_than_there_was_room_for(self):
        self.page(bytes=0)
        self.assertEqual(self.depths(2, [self.stats(10), self.stats(10), self.stats(61), self.stats(61),
                                         self.stats(61)]), [1, 1])

    def test_one_is_where_something_is_in_host_memory(self):
        self.page(bytes=0)
        self.assertEqual(self.depths(2, [self.stats(10, hosted=1)] * 9), [1, 1])

    def test_none_is_without_a_budget(self):
        self.control.fake_page(0, ctypes.c_uint64(0))
        self.assertEqual(self.depths(2, []), [0, 0])

    def test_those_of_capture_are(self):
        found = []
        pumpgraph.capture(lambda: found.append(len(torch.utils._python_dispatch.stack)), warmup=2)
        self.assertEqual(found, [1, 1, 1, 0])  # the rehearsal is, by another


class Progress(WarmUpTest):
    def said(self, seconds, is_terminal=False, environment=None, calls=1, operators=4):
        """What a call says whose operators are so many seconds apart."""
        stream = io.StringIO()
        stream.isatty = lambda: is_terminal
        clock = mock.Mock(side_effect=(seconds * turn for turn in range(1000)))

        def fn(_x):
            for _ in range(operators):
                self.run_operator(operator())

        with mock.patch.object(warm_up.time, "monotonic", clock), mock.patch.object(sys, "stderr", stream), \
                mock.patch.dict(os.environ, environment or {}):
            self.warm_up(fn, calls, name="train")
        return stream.getvalue()

    def test_is_silent_where_nobody_looks(self):
        self.assertEqual(self.said(3), "")

    def test_is_silent_for_five_seconds(self):
        self.assertEqual(self.said(1, is_terminal=True), "")

    def test_is_one_line_on_a_terminal(self):
        self.assertEqual(self.said(2, is_terminal=True),
                         "\rpumpgraph: train, warm-up call 1 of 1: 3 operators in 6 s"
                         "\rpumpgraph: train, warm-up call 1 of 1: 4 operators in 8 s\n")

    def test_is_lines_in_a_file(self):
        self.assertEqual(self.said(2, environment={"PUMPGRAPH_PROGRESS": "1"}),
                         "pumpgraph: train, warm-up call 1 of 1: 3 operators in 6 s\n")

    def test_can_be_switched_off(self):
        self.assertEqual(self.said(2, is_terminal=True, environment={"PUMPGRAPH_PROGRESS": "0"}), "")

    def test_knows_the_share_from_the_call_before(self):
        self.assertIn("call 2 of 2: 75 % of its operators in 6 s", self.said(2, is_terminal=True, calls=2))


if __name__ == "__main__":
    unittest.main()
