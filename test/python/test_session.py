# SPDX-License-Identifier: Apache-2.0
"""What Python hands to the C API, and what it makes of the answers."""

import gzip
import pickle
import tempfile
import unittest
from pathlib import Path
from unittest import mock

import support
from pumpgraph import PumpGraphError, Status
from pumpgraph._session import Session


class Sessions(support.FakeLibraryTest):
    def create(self, **options):
        session = Session(self.library, options.pop("budget", 2**30), **options)
        self.created = self.calls()
        return session

    def test_options(self):
        self.create(budget=2**33, device=1, host_limit_bytes=2**35, cache_directory="/cache",
                    compiler_library=Path("/c.so"))
        self.assertEqual(
            self.created,
            ["session_create size=1 budget=8589934592 unlimited=0 device=1 host_limit=34359738368 cache=/cache "
             "compiler=/c.so process=0 backend=0 oversubscribed=0 managed=0 limit=0 rematerialize=0 planning=0"],
        )

    def test_managed_options(self):
        self.create(backend="managed", managed_bytes=2**28, managed_limit_bytes=2**29, allow_oversubscription=True)
        self.assertIn("backend=1 oversubscribed=1 managed=268435456 limit=536870912", self.created[0])

    def test_an_unknown_backend_is_refused(self):
        with self.assertRaisesRegex(PumpGraphError, "backend='fast'.*virtual, managed, automatic"):
            self.create(backend="fast")

    def test_rematerialize(self):
        self.create(rematerialize="never")
        self.assertIn("rematerialize=1", self.created[0])
        with self.assertRaisesRegex(PumpGraphError, "rematerialize='always'.*automatic, never"):
            self.create(rematerialize="always")

    def test_planning(self):
        self.create(planning="in_replay")
        self.assertIn("planning=1", self.created[0])
        with self.assertRaisesRegex(PumpGraphError, "planning='never'.*aside, in_replay"):
            self.create(planning="never")

    def test_no_budget_is_unlimited(self):
        self.create(budget=None)
        self.assertIn("budget=0 unlimited=1", self.created[0])
        self.assertIn("cache=NULL compiler=NULL", self.created[0])

    def test_declared_extents(self):
        session = self.create()
        self.calls()
        session.declare_extents(7, [(0x1000, 16), (0x3000, 8)])
        session.declare_extents(7, [])
        said = self.calls()
        self.assertEqual(len(said), 2, said)
        self.assertRegex(said[0], "^declare_extents up to .*0x1010.*0x3008")

    def test_a_failed_creation_is_an_error(self):
        self.fail_next("session_create", Status.NO_DRIVER, "no libcuda.so.1")
        with self.assertRaisesRegex(PumpGraphError, "no libcuda.so.1"):
            self.create()

    def test_close_destroys_once(self):
        session = self.create()
        session.close()
        session.close()
        self.assertEqual(self.calls(), ["session_destroy 0x5e55"])

    def test_memory_stats(self):
        self.assertEqual(
            self.create().memory_stats(),
            {
                "budget_bytes": 1,
                "device_bytes": 2,
                "device_peak_bytes": 3,
                "host_backed_bytes": 4,
                "pinned_bytes": 5,
                "live_bytes": 6,
                "live_allocations": 7,
                "frame_budget_bytes": 8,
                "process_bytes": 1,
                "live_peak_bytes": 9,
                "live_peak_allocations": 10,
                "allocated_bytes": 11,
                "allocations": 12,
            },
        )
        self.assertEqual(self.calls(), ["memory_statistics 0x5e55 size=1"])

    def test_pointers_of_64_bits_arrive_whole(self):
        session = self.create()
        session.declare_private(0x7FFF_FFFF_FFFF_F000)
        session.declare_present(0x7FFF_FFFF_FFFF_0000)
        session.name(0xFEDC_BA98_7654_3210, "schön")
        self.assertEqual(
            self.calls(), ["declare_private 0x5e55 0x7ffffffffffff000", "declare_present 0x5e55 0x7fffffffffff0000",
                           "name 0x5e55 0xfedcba9876543210 schön"]
        )

    def test_mapped_maps_and_unmaps_in_reverse(self):
        session = self.create()
        with session.mapped([0xA000, 0xB000]):
            self.assertEqual(session.mapped_depth, 2)
        self.assertEqual(session.mapped_depth, 0)
        self.assertEqual(
            self.calls(), ["bring 0x5e55 to write 0xa000 0xb000", "map 0x5e55 0xa000", "map 0x5e55 0xb000",
                           "unmap 0x5e55 0xb000", "unmap 0x5e55 0xa000"]
        )

    def test_a_failed_map_undoes_those_before_it(self):
        session = self.create()

        def map_failing_at_second(pointer, map=session.map):
            if session.mapped_depth == 1:
                self.fail_next("map", Status.INVALID_ARGUMENT, "no such allocation")
            map(pointer)

        with mock.patch.object(session, "map", map_failing_at_second):
            with self.assertRaisesRegex(PumpGraphError, "no such allocation"):
                with session.mapped([0xA000, 0xB000]):
                    self.fail("entered")
        self.assertEqual(session.mapped_depth, 0)
        self.assertEqual(self.calls()[-1], "unmap 0x5e55 0xa000")

    def test_an_exception_inside_mapped_unmaps(self):
        session = self.create()
        with self.assertRaises(ZeroDivisionError), session.mapped([0xA000]):
            raise ZeroDivisionError
        self.assertEqual(self.calls()[-1], "unmap 0x5e55 0xa000")

    def test_adopt(self):
        session = self.create()
        step = session.adopt(0x6000, "gpt2", leave_as_captured=True)
        step.close()
        step.close()
        self.assertEqual(
            self.calls(),
            ["adopt 0x5e55 0x6000 size=1 name=gpt2 costs=NULL leave=1 keep=0 calibrate=0 boundary=0",
             "step_destroy 0x57e9"],
        )

    def test_boundary(self):
        session = self.create()
        session.adopt(0x6000, boundary="shared")
        self.assertIn("boundary=2", self.calls()[0])
        with self.assertRaisesRegex(PumpGraphError, "boundary='mine'.*automatic, own, shared"):
            session.adopt(0x6000, boundary="mine")
        session.adopt(0x6000, prefetching="none")
        self.assertIn("prefetching", self.calls()[-1])
        with self.assertRaisesRegex(PumpGraphError, "prefetching='never'.*ahead, at_launch, none"):
            session.adopt(0x6000, prefetching="never")
        session.adopt(0x6000, hosting="measured")
        self.assertIn("hosting", self.calls()[-1])
        with self.assertRaisesRegex(PumpGraphError, "hosting='all'.*automatic, no_room, measured"):
            session.adopt(0x6000, hosting="all")

    def test_costs_as_text_file_or_packed_file(self):
        session = self.create()
        text = "pump.graph @step {\n}"
        with tempfile.TemporaryDirectory() as folder:
            plain = Path(folder) / "step.mlir"
            plain.write_text(text)
            packed = Path(folder) / "step.mlir.gz"
            packed.write_bytes(gzip.compress(text.encode()))
            for costs in (text, plain, str(packed)):
                with self.subTest(costs=str(costs)):
                    session.adopt(0x6000, costs=costs)
                    self.assertIn("costs=pump.graph @step {", "\n".join(self.calls()))

    def test_costs_that_cannot_be_read_are_refused_before_adoption(self):
        session = self.create()
        with tempfile.TemporaryDirectory() as folder:
            damaged = Path(folder) / "step.mlir.gz"
            damaged.write_bytes(gzip.compress(b"pump.graph" * 100)[:-9])
            for costs, message in ((damaged, "is damaged"), (Path(folder) / "none.mlir", "there is no file")):
                with self.subTest(costs=costs.name), self.assertRaisesRegex(PumpGraphError, message):
                    session.adopt(0x6000, costs=costs)
        self.assertEqual(self.calls(), [])


class Steps(support.FakeLibraryTest):
    def setUp(self):
        super().setUp()
        self.step = Session(self.library, None).adopt(0x6000)
        self.calls()

    def test_report(self):
        self.set_report('{"name": "gpt2", "added_nodes": 3}')
        self.assertEqual(self.step.report()["added_nodes"], 3)
        self.assertEqual(self.calls(), ["report 0x57e9", "string_free"])

    def test_measure(self):
        self.assertEqual(self.step.measure(5), (1234.5, 67))
        self.assertEqual(self.calls(), ["measure 0x57e9 5 size=1"])
        with self.assertRaisesRegex(PumpGraphError, "0 repeats"):
            self.step.measure(0)

    def test_replan(self):
        self.assertEqual(self.step.replan(), (1, 2, 3, 4, 5, True))
        self.assertEqual(self.calls(), ["replan 0x57e9 size=1"])

    def test_validate(self):
        self.assertEqual(self.step.validate(), (8, 9, 10, 11, "fc1.weight at byte 12", 12, '"noisy"'))

    def test_observe(self):
        self.assertEqual(self.step.observe([0x3000, 0x4000]), (1, 2, 3, 4, 5, 6, "node 7"))
        self.assertEqual(self.calls(), ["observe 0x57e9 size=1 values=2 first=0x3000"])

    def test_a_mismatch_is_an_error(self):
        self.fail_next("validate", Status.MISMATCH, "\"fc1.weight\" differs at byte 12")
        with self.assertRaisesRegex(PumpGraphError, "differs at byte 12") as caught:
            self.step.validate()
        self.assertEqual(caught.exception.status, Status.MISMATCH)

    def test_save_plain_and_packed(self):
        with tempfile.TemporaryDirectory() as folder:
            plain, packed = Path(folder) / "step.mlir", Path(folder) / "step.mlir.gz"
            self.step.save(plain)
            self.step.save(str(packed))
            self.assertEqual(gzip.decompress(packed.read_bytes()), plain.read_bytes())
            first = packed.read_bytes()
            self.step.save(packed)
            self.assertEqual(packed.read_bytes(), first)

    def test_a_failed_save_leaves_no_file(self):
        with tempfile.TemporaryDirectory() as folder:
            self.fail_next("save", Status.INTERNAL, "disk full")
            with self.assertRaisesRegex(PumpGraphError, "disk full"):
                self.step.save(Path(folder) / "step.mlir.gz")
            self.assertEqual(list(Path(folder).iterdir()), [])

    def test_a_memory_snapshot_is_a_file_of_the_library(self):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "memory.pickle"
            self.step.memory_snapshot(path)
            self.assertEqual(pickle.loads(path.read_bytes()), {"segments": [], "device_traces": [[]]})
            self.fail_next("memory_snapshot", Status.INVALID_ARGUMENT, "is left as captured")
            with self.assertRaisesRegex(PumpGraphError, "is left as captured"):
                self.step.memory_snapshot(path)


if __name__ == "__main__":
    unittest.main()
