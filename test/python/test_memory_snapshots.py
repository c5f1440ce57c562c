# SPDX-License-Identifier: Apache-2.0
"""torch.cuda.memory._record_memory_history() and snapshots: what is asked of the library and made of its answers, with
stand-ins; and Python's frames, with the library's own history in this interpreter."""

import ctypes
import json
import os
import pickle
import subprocess
import sys
import threading
import unittest
from pathlib import Path
from unittest import mock

import support
import test_torch_capture as base
from test_torch_capture import torch

from pumpgraph import PumpGraphError, UnsupportedError, _capi, torch_capture
from pumpgraph.memory_snapshots import _INTERPRETER, MemorySnapshots


def here():
    """A code object as the library has it, and what is to be made of it."""
    code = sys._getframe().f_code
    return id(code), {"filename": __file__, "line": 12, "name": "here"}


def block(address, size, *allocations, is_shared=False):
    return {"address": address, "bytes": size, "is_shared": is_shared,
            "allocations": [{"address": begin, "bytes": length, "stream": 5} for begin, length in allocations]}


def event(action, address, size, stack=None, **more):
    return {"action": action, "address": address, "bytes": size, "stream": 5, "time_us": 9, "stack": stack, **more}


def live_bytes(segments):
    return sum(block["size"] for segment in segments for block in segment["blocks"] if block["state"] != "inactive")


class Snapshots(base.TorchTest):
    def setUp(self):
        super().setUp()
        self.install()
        self.memory = torch.cuda.memory
        self.addCleanup(self.memory._record_memory_history, None)

    def answer(self, recording=True, events=(), live=(), stacks=(), blocks=()):
        self.set_torch_snapshot(json.dumps({"recording": recording, "events": list(events), "live": list(live),
                                            "stacks": list(stacks), "blocks": list(blocks)}))

    def test_what_is_recorded(self):
        self.calls()
        record = self.memory._record_memory_history
        for arguments, call in (
                ({}, f"events {sys.maxsize} stacks 3 keep 1"),
                ({"max_entries": 1000, "stacks": "python"}, "events 1000 stacks 3 keep 1"),
                ({"context": "alloc", "clear_history": True}, f"events {sys.maxsize} stacks 2 keep 0"),
                ({"enabled": "state"}, "events 0 stacks 3 keep 1"),
                ({"context": "state"}, f"events {sys.maxsize} stacks 1 keep 1"),
                ({"context": None}, f"events {sys.maxsize} stacks 0 keep 1"),
                ({"enabled": None}, "off")):
            record(**arguments)
            self.assertEqual(self.calls(), [f"torch_record 0x5e55 {call}"], arguments)

    def test_what_is_not_kept_is_refused(self):
        self.calls()
        record = self.memory._record_memory_history
        for option in ({"compile_context": True}, {"global_record_annotations": True}, {"skip_actions": ["alloc"]},
                       {"record_pinned_host_memory": True}, {"record_cuda": False}):
            with self.assertRaisesRegex(UnsupportedError, next(iter(option))):
                record(**option)
        for option in ({"enabled": True}, {"enabled": "everything"}, {"context": "free"}, {"stacks": "c++"},
                       {"max_entries": -1}):
            with self.assertRaisesRegex(PumpGraphError, next(iter(option))):
                record(**option)
        with self.assertRaisesRegex(UnsupportedError, "augment_with_fx_traces"):
            self.memory._snapshot(augment_with_fx_traces=True)
        with self.assertRaisesRegex(UnsupportedError, "memory pools"):
            self.memory.memory_snapshot((0, 1))
        self.assertEqual(self.calls(), [])

    def test_segments_are_tiled_by_blocks(self):
        code, frame = here()
        self.answer(False, live=[[4096, 0]], stacks=[[[code, 12]]],
                    blocks=[block(4096, 4096, (4096, 100), (5120, 200), is_shared=True), block(1 << 20, 4096)])
        shared, free = self.memory.memory_snapshot()
        self.assertEqual([(b["address"], b["size"], b["state"], b["frames"]) for b in shared["blocks"]],
                         [(4096, 100, "active_allocated", [frame]), (4196, 924, "inactive", []),
                          (5120, 200, "active_allocated", []), (5320, 2872, "inactive", [])])
        self.assertEqual([(b["size"], b["state"]) for b in free["blocks"]], [(4096, "inactive")])
        for segment in (shared, free):
            self.assertEqual(sum(b["size"] for b in segment["blocks"]), segment["total_size"])
            self.assertEqual(segment["allocated_size"], live_bytes([segment]))
        self.assertEqual(live_bytes([shared, free]), 300)

    def test_the_trace_of_the_device(self):
        code, frame = here()
        self.answer(events=[event("alloc", 4096, 100, 0), event("free", 4096, 100),
                            event("oom", 0, 10**9, left_bytes=7)],
                    stacks=[[[code, 12]]], blocks=[block(4096, 4096)])
        trace, other = self.memory._snapshot()["device_traces"]
        self.assertEqual(other, [])
        self.assertEqual([(e["action"], e.get("addr"), e["size"], e["frames"]) for e in trace],
                         [("alloc", 4096, 100, [frame]), ("free_requested", 4096, 100, []),
                          ("free_completed", 4096, 100, []), ("oom", None, 10**9, [])])
        self.assertEqual(trace[-1]["device_free"], 7)

    # The viewer looks for the segment of every block that it draws.
    def test_ranges_that_are_gone_have_segments_while_they_are_used(self):
        self.answer(events=[event("alloc", 9000, 100), event("alloc", 4196, 8), event("free", 9000, 100),
                            event("free", 99, 1)], blocks=[block(4096, 4096, (4196, 8))])
        self.assertEqual([(e["action"], e["addr"]) for e in self.memory._snapshot()["device_traces"][0]],
                         [("segment_alloc", 9000), ("alloc", 9000), ("alloc", 4196), ("free_requested", 9000),
                          ("free_completed", 9000), ("segment_free", 9000), ("free_requested", 99),
                          ("free_completed", 99), ("segment_free", 99)])

    def test_plans_are_devices_of_their_own_while_events_are_recorded(self):
        steps = [mock.Mock(is_open=is_open) for is_open in (True, False, True)]
        for step, name in zip(steps, ("train", "closed", "eval")):
            step.name = name
            step.report.return_value.left_as_captured = None
            plan = {"segments": [{"device": 0, "frames": []}], "device_traces": [[{"action": "segment_alloc"}]]}
            step.memory_snapshot.side_effect = lambda path, plan=plan: path.write_bytes(pickle.dumps(plan))
        steps[2].report.return_value.left_as_captured = "node 7 is a conditional node"
        snapshots = MemorySnapshots(torch_capture.installed().session, lambda: steps)
        self.answer()
        self.assertEqual(len(snapshots.snapshot()["device_traces"]), 2)
        snapshots.record()
        snapshot = snapshots.snapshot()
        self.assertEqual([segment["device"] for segment in snapshot["segments"]], [2])
        self.assertEqual(snapshot["device_traces"][2][0]["frames"][0]["filename"], "train")
        self.assertEqual(snapshots.segments(), [])
        steps[1].memory_snapshot.assert_not_called()
        steps[2].memory_snapshot.assert_not_called()
        snapshots.record("state")
        self.assertEqual(len(snapshots.snapshot()["device_traces"]), 2)
        snapshots.record(None)


@unittest.skipUnless("PUMPGRAPH_HISTORY_PROBE" in os.environ, "the library's history is built by CMake")
class Frames(unittest.TestCase):
    """What the library records of this interpreter."""

    def setUp(self):
        self.probe = ctypes.CDLL(os.environ["PUMPGRAPH_HISTORY_PROBE"])
        self.probe.probe_snapshot.restype = ctypes.c_void_p
        self.holding = ctypes.PyDLL(os.environ["PUMPGRAPH_HISTORY_PROBE"])  # calls with the interpreter's lock held
        self.addCleanup(self.probe.probe_record, None)

    def record(self, most_events=100, stacks=3, keep_events=True):
        recording = _capi.TorchRecording(ctypes.sizeof(_capi.TorchRecording), most_events, stacks, keep_events)
        for field, name in _INTERPRETER.items():
            setattr(recording, field, ctypes.cast(getattr(ctypes.pythonapi, name), ctypes.c_void_p).value)
        self.probe.probe_record(ctypes.byref(recording))

    def snapshot(self):
        recorded = json.loads(ctypes.string_at(self.probe.probe_snapshot()))
        session = mock.Mock(device=0)
        session.torch_snapshot.return_value = {**recorded, "blocks": []}
        return recorded, MemorySnapshots(session, list).snapshot()["device_traces"][0]

    def allocate(self, pointer=4096, size=100):
        self.probe.probe_allocate(ctypes.c_void_p(pointer), ctypes.c_size_t(size))

    def free(self, pointer=4096):
        self.probe.probe_free(ctypes.c_void_p(pointer))

    def names(self, entry):
        return [frame["name"] for frame in entry["frames"]]

    def test_the_lines_that_allocate_and_free(self):
        self.record()
        self.allocate()
        line = sys._getframe().f_lineno - 1
        self.free()
        _, trace = self.snapshot()
        alloc, freed = trace[1], trace[2]
        self.assertEqual([entry["action"] for entry in trace],
                         ["segment_alloc", "alloc", "free_requested", "free_completed", "segment_free"])
        self.assertEqual(self.names(alloc)[:2], ["allocate", "test_the_lines_that_allocate_and_free"])
        self.assertEqual(alloc["frames"][1], {"filename": __file__, "line": line, "name": self.names(alloc)[1]})
        self.assertEqual(self.names(freed)[:2], ["free", "test_the_lines_that_allocate_and_free"])
        self.assertEqual(freed["size"], 100)

    def test_stacks_that_are_not_asked_for_are_not_kept(self):
        for stacks, of_live, of_allocations, of_frees in ((0, 0, 0, 0), (1, 1, 0, 0), (2, 1, 1, 0), (3, 1, 1, 1)):
            self.record(stacks=stacks, keep_events=False)
            self.allocate(1)
            self.allocate(2)
            self.free(2)
            recorded, trace = self.snapshot()
            found = [recorded["live"] and recorded["live"][0][1] is not None, bool(trace[1]["frames"]),
                     bool(trace[-1]["frames"])]
            self.assertEqual(found, [of_live, of_allocations, of_frees], stacks)

    def test_the_last_events_are_kept_and_all_that_is_alive(self):
        self.record(most_events=2)
        for pointer in (1, 2, 3, 4):
            self.allocate(pointer)
        self.probe.probe_run_out(ctypes.c_size_t(55))
        recorded, trace = self.snapshot()
        self.assertEqual([(e["action"], e.get("addr")) for e in trace if e["action"] != "segment_alloc"],
                         [("alloc", 4), ("oom", None)])
        self.assertEqual(sorted(address for address, _ in recorded["live"]), [1, 2, 3, 4])
        self.record(most_events=0)
        self.allocate(5)
        recorded, trace = self.snapshot()
        self.assertEqual((trace, len(recorded["live"])), ([], 5))

    def test_nothing_is_left_once_it_is_off(self):
        self.record()
        self.allocate()
        self.probe.probe_record(None)
        self.allocate(8)
        recorded, _ = self.snapshot()
        self.assertEqual(recorded, {"recording": False, "events": [], "live": [], "stacks": []})

    def test_code_lives_as_long_as_its_frames(self):
        space = {"allocate": self.allocate}
        exec("def passing(): allocate()", space)
        references = sys.getrefcount(space["passing"].__code__)
        self.record()
        for _ in range(3):
            space["passing"]()
        self.assertEqual(sys.getrefcount(space["passing"].__code__), references + 1)
        code = space["passing"].__code__
        del space["passing"]
        self.assertEqual(self.names(self.snapshot()[1][1])[:2], ["allocate", "passing"])
        self.probe.probe_record(None)
        self.assertEqual(sys.getrefcount(code), references)

    # A tensor that dies while an exception passes is freed with the exception under way.
    def test_an_exception_that_is_under_way_stays(self):
        self.record()
        self.allocate()
        set_error = ctypes.cast(ctypes.pythonapi.PyErr_SetString, ctypes.c_void_p)
        with self.assertRaisesRegex(KeyError, "under way"):
            self.holding.probe_free_in_flight(ctypes.c_void_p(4096), set_error, ctypes.py_object(KeyError))
        trace = self.snapshot()[1]
        self.assertEqual(trace[-1]["action"], "segment_free")
        self.assertEqual(self.names(trace[-1])[0], "test_an_exception_that_is_under_way_stays")

    def test_threads_with_and_without_the_lock(self):
        self.record(most_events=10**6)

        def work(library, first):
            for pointer in range(first, first + 200):
                library.probe_allocate(ctypes.c_void_p(pointer), ctypes.c_size_t(8))
                library.probe_free(ctypes.c_void_p(pointer))

        threads = [threading.Thread(target=work, args=(library, 1000 * (1 + index)))
                   for index, library in enumerate((self.probe, self.holding) * 3)]
        for thread in threads:
            thread.start()
        for _ in range(20):
            self.snapshot()
        for thread in threads:
            thread.join()
        recorded, _ = self.snapshot()
        self.assertEqual((len(recorded["events"]), recorded["live"]), (6 * 400, []))
        there = set()
        for each in recorded["events"]:
            (there.add if each["action"] == "alloc" else there.remove)(each["address"])

    def test_it_is_off_before_the_interpreter_ends(self):
        program = """if True:
            import atexit, ctypes, os, sys
            sys.path[:0] = [%r, %r]
            import support, test_memory_snapshots as tests
            case = tests.Frames("test_the_lines_that_allocate_and_free")
            case.setUp()
            case.record()
            case.allocate()
            atexit.register(case.probe.probe_record, None)
            class AtTheEnd:
                free = staticmethod(case.probe.probe_free)
                def __del__(self):
                    self.free(ctypes.c_void_p(4096))
            sys.kept = AtTheEnd()
        """ % (str(Path(__file__).parent), str(support.ROOT / "runtime" / "python"))
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
        self.assertEqual((done.returncode, done.stderr), (0, ""))


if __name__ == "__main__":
    unittest.main()
