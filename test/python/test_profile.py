# SPDX-License-Identifier: Apache-2.0
"""Which line took the memory, from histories made by hand."""

import json
import os
import pickle
import sysconfig
import tempfile
from pathlib import Path
from unittest import mock

import test_torch_capture as base
from test_memory_snapshots import block, event
from test_torch_capture import torch

import pumpgraph
from pumpgraph import MemoryProfile, PumpGraphError, UnsupportedError
from pumpgraph.profile import FROM_BEFORE, NO_FRAMES

PROGRAM = os.path.join(os.getcwd(), "train.py")
PACKAGES = sysconfig.get_paths()["purelib"]


def frame(line, name="step", file=PROGRAM):
    return {"filename": file, "line": line, "name": name}


def alloc(address, size, *frames):
    return {"action": "alloc", "addr": address, "size": size, "frames": list(frames)}


def freed(address, size):
    return {"action": "free_completed", "addr": address, "size": size, "frames": []}


def snapshot(*events, live=()):
    """`live`: addresses and sizes of what is there at the end."""
    blocks = [{"address": address, "size": size, "requested_size": size, "state": "active_allocated", "frames": []}
              for address, size in live]
    return {"device_traces": [list(events)],
            "segments": [{"device": 0, "address": 0, "total_size": 1 << 20, "blocks": blocks}]}


class Peaks(base.TorchTest):
    def test_the_line_of_the_peak(self):
        profile = MemoryProfile.of(snapshot(
            alloc(1, 100, frame(10)), alloc(2, 1000, frame(20)), freed(2, 1000), alloc(3, 300, frame(10)),
            {"action": "free_requested", "addr": 3, "size": 300, "frames": []}, live=[(1, 100), (3, 300)]))
        self.assertEqual((profile.peak_bytes, profile.end_bytes, profile.device_bytes), (1100, 400, 1 << 20))
        self.assertEqual([tuple(row) for row in profile.rows()],
                         [("train.py:20 step", 1000, 0, 1000, 1), ("train.py:10 step", 100, 400, 400, 2)])
        self.assertEqual([row.name for row in profile.rows("function")], ["step in train.py"])
        self.assertEqual([tuple(row) for row in profile.rows("file")], [("train.py", 1100, 400, 1400, 3)])

    def test_events_without_frames(self):
        """Of a history that was recorded with context=None."""
        allocation = {"action": "alloc", "addr": 1, "size": 100}
        rows = MemoryProfile.of(snapshot(allocation)).rows()
        self.assertEqual([(row.name, row.peak_bytes) for row in rows], [(NO_FRAMES, 100)])

    def test_sums_are_those_of_the_device(self):
        events = [alloc(number, 10 * number, frame(number)) for number in range(1, 9)]
        events[4:4] = [freed(1, 10), freed(3, 30)]
        profile = MemoryProfile.of(snapshot(*events))
        rows = profile.rows()
        self.assertEqual(sum(row.peak_bytes for row in rows), profile.peak_bytes)
        self.assertEqual(sum(row.end_bytes for row in rows), profile.end_bytes)
        self.assertEqual(profile.peak_bytes, 360 - 40)

    def test_what_was_there_before(self):
        profile = MemoryProfile.of(snapshot(freed(7, 500), alloc(7, 50, frame(1)), live=[(7, 50), (8, 600)]))
        self.assertEqual(profile.peak_bytes, 1100)  # ahead of the first event
        self.assertEqual([(row.name, row.peak_bytes, row.end_bytes) for row in profile.rows()],
                         [("train.py:1 step", 0, 50), (FROM_BEFORE, 1100, 600)])

    def test_the_line_is_one_of_the_program(self):
        inner = frame(5, "linear", os.path.join(PACKAGES, "torch", "nn", "functional.py"))
        library = frame(6, "forward", os.path.join(PACKAGES, "transformers", "models.py"))
        ours = frame(7, "call", os.path.abspath(pumpgraph.__file__))
        profile = MemoryProfile.of(snapshot(
            alloc(1, 4, inner, library, ours, frame(30)), alloc(2, 3, inner, library), alloc(3, 2, inner), alloc(4, 1)))
        self.assertEqual([row.name for row in profile.rows()],
                         ["train.py:30 step", f"transformers{os.sep}models.py:6 forward",
                          f"torch{os.sep}nn{os.sep}functional.py:5 linear", NO_FRAMES])

    def test_stacks_for_a_flame_graph(self):
        profile = MemoryProfile.of(snapshot(alloc(1, 4, frame(2, "inner"), frame(1, "outer;")), alloc(2, 8),
                                            freed(1, 4), freed(2, 8), alloc(3, 1, frame(9))))
        self.assertEqual(profile.folded(), f"{NO_FRAMES} 8\nouter, (train.py:1);inner (train.py:2) 4\n")
        self.assertEqual(profile.folded("end"), "step (train.py:9) 1\n")
        self.assertEqual(len(profile.folded("all").splitlines()), 3)

    def test_what_is_printed(self):
        events = [alloc(number, 1 << 20, frame(number)) for number in range(1, 21)]
        text = str(MemoryProfile.of(snapshot(*events)))
        self.assertRegex(text, r"at the peak 20.00 MiB, at the end 20.00 MiB in 1.00 MiB")
        self.assertRegex(text, r"(?m)^ +1.00 MiB +1.00 MiB +1.00 MiB +1  train.py:1 step$")
        self.assertTrue(text.endswith("and 5 more, which hold 5.00 MiB at the peak"), text)
        escaping = MemoryProfile.of(snapshot(alloc(1, 1, frame(1, "a\x1b[2J"))))
        self.assertNotIn("\x1b", str(escaping) + escaping.folded())

    def test_words_that_there_are_not(self):
        for call in (lambda profile: profile.rows("module"), lambda profile: profile.folded("start")):
            with self.assertRaisesRegex(PumpGraphError, "is one of"):
                call(MemoryProfile())

    def test_files(self):
        profile = MemoryProfile.of(snapshot(alloc(1, 4, frame(2))))
        with tempfile.TemporaryDirectory() as folder:
            folded, dump = Path(folder) / "peak.folded", Path(folder) / "memory.pickle"
            profile.save(folded)
            profile.save(dump)
            self.assertEqual(folded.read_text(), profile.folded())
            self.assertEqual(MemoryProfile.of(pickle.loads(dump.read_bytes())).rows(), profile.rows())


class Recorded(base.TorchTest):
    def setUp(self):
        super().setUp()
        self.install()
        patch = mock.patch.object(torch.cuda, "current_device", lambda: 0, create=True)
        patch.start()
        self.addCleanup(patch.stop)
        self.set_torch_snapshot(json.dumps({
            "recording": True, "events": [event("alloc", 4096, 100), event("free", 4096, 100)], "live": [],
            "stacks": [], "blocks": [block(4096, 4096)]}))
        self.calls()

    def test_inside_the_block(self):
        with pumpgraph.memory_profile() as profile:
            self.assertEqual(profile.peak_bytes, 0)
        self.assertEqual((profile.peak_bytes, profile.end_bytes, profile.device_bytes), (100, 0, 4096))
        calls = [call for call in self.calls() if call.startswith("torch_record")]
        self.assertEqual(len(calls), 2)
        self.assertRegex(calls[0], "stacks 2 keep 0$")
        self.assertRegex(calls[1], "off$")

    def test_rows_by_tag(self):
        def tags(live, peak, allocated, count, name="etl\x1b/join"):
            self.set_tags(json.dumps([{"tag": name, "live_bytes": live, "peak_bytes": peak, "live_allocations": 1,
                                       "allocated_bytes": allocated, "allocations": count}]))

        self.addCleanup(self.set_tags, "[]")
        tags(10, 20, 100, 5)
        with pumpgraph.memory_profile() as profile:
            with pumpgraph.tag("join"):
                tags(30, 70, 190, 8)
        self.assertEqual([tuple(row) for row in profile.rows("tag")], [("etl\\x1b/join", 70, 30, 90, 3)])
        self.assertEqual([row.name for row in profile.rows()], [NO_FRAMES])  # no tag among the lines
        calls = [call.split()[0::2] for call in self.calls() if call.startswith("tag")]
        self.assertEqual(calls, [["tags", "1"], ["tag_begin", "join"], ["tag_end", "7"], ["tags", "0"]])
        tags(0, 0, 190, 8)
        with pumpgraph.memory_profile() as profile:
            pass
        self.assertEqual(profile.rows("tag"), [])  # of an earlier block

    def test_a_tag_ends_with_its_block(self):
        with self.assertRaises(KeyError), pumpgraph.tag("join"):
            raise KeyError
        self.assertRegex("\n".join(self.calls()), r"tag_begin \S+ join\ntag_end \S+ 7")
        self.fail_next("tag_begin", 1, 'a tag ""; it has 1 to 255 bytes')
        with self.assertRaisesRegex(PumpGraphError, "1 to 255 bytes"), pumpgraph.tag(""):
            self.fail("it has not begun")

    def test_an_exception_passes_and_leaves_a_profile(self):
        with self.assertRaises(torch.cuda.OutOfMemoryError), pumpgraph.memory_profile() as profile:
            raise torch.cuda.OutOfMemoryError()
        self.assertEqual(profile.peak_bytes, 100)

    def test_one_at_a_time(self):
        with pumpgraph.memory_profile():
            with self.assertRaisesRegex(UnsupportedError, "inside another one"), pumpgraph.memory_profile():
                pass
        with pumpgraph.memory_profile():
            pass
