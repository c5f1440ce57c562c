# SPDX-License-Identifier: Apache-2.0
"""Programs that planned rounds could get wrong, or hang on: they print the same under pump-graph-run --plan, or are
told what is not planned.
"""

import os
import re
import tempfile
import unittest
from pathlib import Path

from test_streams import plain, planned, rounds_in

HAZARDS, THREADS, LINKED = (os.environ[name] for name in ("PUMPGRAPH_HAZARDS", "PUMPGRAPH_THREADS",
                                                          "PUMPGRAPH_LINKED"))
AN_ADDRESS = "an address of host memory, where a kernel may find others"


def same(case, budget, *command, options=(), **environment):
    expected = plain(*command, **environment)
    got = planned(budget, *command, options=options, **environment)
    case.assertEqual((got.stdout, got.returncode), (expected.stdout, expected.returncode), got.stderr)
    case.assertNotEqual(expected.stdout, "")
    return got.stderr


class Hazards(unittest.TestCase):
    def same(self, budget, scenario, rounds=40, options=(), **environment):
        return same(self, budget, HAZARDS, scenario, str(rounds), options=options, **environment)

    def test_uploaded_addresses_keep_memory_in_place(self):
        said = self.same(8, "table")
        self.assertGreater(rounds_in(said), 20, said)

    def test_addresses_that_are_uploaded_once_a_plan_is_in_force_end_it(self):
        for scenario in ("late-table", "pinned-table"):
            self.assertIn("uploads addresses of memory that moves", self.same(8, scenario))

    def test_after_kernels_are_unloaded_a_round_is_planned_anew(self):
        said = self.same(8, "reload")
        self.assertIn("the plan of period 1 is taken back: cuModuleUnload", said)
        self.assertEqual(said.count("is planned; predicted"), 2, said)

    def test_a_kernel_that_reads_host_memory_is_not_planned(self):
        said = self.same(8, "host-table")
        self.assertIn("period 1 is not planned: addThroughTable: it may find addresses in host memory", said)

    def test_words_beside_an_allocation_lead_to_it(self):
        self.assertGreater(rounds_in(self.same(8, "beside")), 20)

    def test_what_calls_leave_on_the_stack_is_no_operand(self):
        """A struct by value has bytes that nobody has written: they are what the calls before have left there."""
        said = self.same(8, "tails")
        self.assertGreater(rounds_in(said), 20, said)

    def test_a_pointer_in_a_packed_struct_is_an_operand(self):
        with tempfile.TemporaryDirectory() as folder:
            self.assertGreater(rounds_in(self.same(8, "packed", options=(f"--report={folder}",))), 20)
            [step] = Path(folder).glob("*-period-1.mlir")
            for line in re.findall(r".*\"addPacked\".*", step.read_text()):
                self.assertIn("[readwrite %block", line)

    def test_an_address_in_a_packed_struct_in_memory_keeps_memory_in_place(self):
        self.assertGreater(rounds_in(self.same(12, "packed-table")), 20)
        said = self.same(12, "uploaded-packed-table")
        self.assertIn("uploads addresses of memory that moves", said)
        self.assertGreater(rounds_in(said), 30, said)

    def test_an_uploaded_address_of_a_table_in_host_memory_ends_planning(self):
        self.assertEqual(rounds_in(self.same(8, "host-table-behind")), 0)
        said = self.same(8, "late-host-table-behind")
        self.assertGreater(rounds_in(said), 10, said)
        self.assertIn(f"nothing is planned from now on: cuMemcpyHtoD_v2 uploads {AN_ADDRESS}", said)

    def test_a_table_in_host_memory_that_memory_of_the_device_names_ends_the_plan(self):
        said = self.same(8, "stored-host-table-behind")
        self.assertGreater(rounds_in(said), 10, said)
        reason = r"memory at 0x\w+ leads to host memory, where a kernel may find addresses"
        self.assertRegex(said, f"the plan of period 1 is given up: {reason}")
        self.assertRegex(said, f"period 1 is not planned: {reason}")

    def test_memory_that_is_pinned_once_its_address_is_on_the_device_ends_the_plan(self):
        said = self.same(8, "host-table-pinned-later")
        self.assertGreater(rounds_in(said), 10, said)
        self.assertRegex(said, r"the plan of period 1 is given up: memory at 0x\w+ leads to host memory")

    def test_host_memory_over_a_part_that_was_registered_before_may_hold_addresses(self):
        said = self.same(8, "registered-over-older")
        self.assertIn("period 1 is not planned: addThroughTable: it may find addresses in host memory", said)

    def test_memory_that_is_mapped_ahead_of_allocations_ends_planning(self):
        for scenario in ("early-host-table", "early-device-table"):
            with self.subTest(scenario):
                said = self.same(8, scenario)
                self.assertIn("cuMemMap: memory is mapped ahead of all allocations", said)
                self.assertEqual(rounds_in(said), 0, said)

    def test_a_plan_that_pinning_ends_in_each_round_is_used_no_more(self):
        said = self.same(8, "pinning")
        self.assertRegex(said, r"planned: 0 rounds of period 1, .* in force 1[23] times")

    def test_a_host_function_ends_planning(self):
        said = self.same(8, "host-function")
        self.assertIn("nothing is planned from now on: cuLaunchHostFunc: the device waits for the program", said)

    def test_a_program_that_steps_aside_has_its_values(self):
        said = self.same(8, "aside", 30)
        self.assertIn("the program goes on without PumpGraph", said)
        self.assertGreater(rounds_in(said), 20)

    def test_addresses_that_come_into_memory_between_rounds_keep_memory_in_place(self):
        for way in ("late-kernel", "late-rows", "late-value", "late-graph"):
            with self.subTest(way=way):
                said = self.same(8, way, 60)
                self.assertIn("has its address in other memory", said)
                self.assertEqual(said.count("is planned; predicted"), 2, said)
                self.assertGreater(rounds_in(said), 40, said)

    def test_addresses_in_memory_that_the_program_maps_keep_memory_in_place(self):
        for scenario in ("mapped-table", "mapped-table-of-one"):  # whose access another device does not get
            self.assertGreater(rounds_in(self.same(12, scenario)), 20)

    def test_a_table_in_host_memory_that_comes_later_ends_the_plan(self):
        said = self.same(8, "late-host-table")
        self.assertRegex(said, r"the plan of period 1 is taken back: addThroughTable \(it may find "
                               r"addresses in host memory\) came instead")

    def test_a_table_in_any_memory_of_the_process_is_not_planned(self):
        said = self.same(8, "pageable-table", PUMPGRAPH_FAKE_PAGEABLE="1")
        self.assertIn("period 1 is not planned: addThroughTable: it may find addresses in host memory", said)
        said = self.same(8, "packed", PUMPGRAPH_FAKE_PAGEABLE="1")
        self.assertGreater(rounds_in(said), 20, said)

    def test_a_kernel_that_waits_for_the_program_ends_planning(self):
        said = self.same(8, "waits", PUMPGRAPH_FAKE_DEFERS="3", PUMPGRAPH_RUN_PATIENCE="300")
        self.assertIn("nothing is planned from now on: the device was still busy after 0.3 s: a kernel may wait for "
                      "the program", said)

    def test_words_beside_small_allocations_lead_to_all_of_their_block(self):
        for seed in range(1, 9):
            said = self.same(6, "beside-small", PUMPGRAPH_FAKE_DEFERS=str(seed))
            self.assertGreater(rounds_in(said), 20, said)

    def test_an_event_with_the_handle_of_another_orders_nothing(self):
        for seed in range(1, 17):
            said = self.same(8, "destroyed-events", PUMPGRAPH_FAKE_DEFERS=str(seed))
            self.assertGreater(rounds_in(said), 20, said)

    def test_the_end_of_the_context_ends_the_plan(self):
        said = self.same(8, "release")
        self.assertIn("the plan of period 1 is taken back: cuDevicePrimaryCtxRelease_v2", said)

    def test_a_descriptor_that_hides_an_address_ends_planning(self):
        said = self.same(8, "descriptor")
        self.assertGreater(rounds_in(said), 20, said)
        self.assertIn("nothing is planned from now on: cuTensorMapEncodeTiled: its descriptor hides the address", said)

    def test_memory_of_executable_graphs_stays_in_place(self):
        for seed in range(1, 5):
            with tempfile.TemporaryDirectory() as folder:
                said = self.same(10, "graphs", 60, options=(f"--report={folder}",), PUMPGRAPH_FAKE_DEFERS=str(seed))
                pages = {int(path.stem.split("-")[2]): path.read_text() for path in Path(folder).glob("*.txt")}
            self.assertGreater(rounds_in(said), 40, said)
            self.assertIn("period1: 10 nodes, 3 buffers", pages[1])  # not the graph's
            self.assertIn("period2: 10 nodes, 2 buffers", pages[2])  # nor the sum

    def test_a_changed_child_is_not_all_that_an_executable_graph_does(self):
        self.assertEqual(rounds_in(self.same(8, "child-graph", 60)), 0)
        self.assertGreater(rounds_in(self.same(8, "child-graph-as-it-was", 60)), 0)

    def test_a_library_that_reaches_memory_past_the_driver_ends_planning(self):
        for scenario, name in (("video", "libnvcuvid.so.1"), ("file", "cuFileRead")):
            said = self.same(8, scenario)
            self.assertGreater(rounds_in(said), 20, said)
            self.assertIn(f"nothing is planned from now on: {name}: the library reaches memory past", said)

    def test_so_does_one_that_was_loaded_with_another(self):
        said = self.same(8, "player")
        self.assertGreater(rounds_in(said), 20, said)
        self.assertIn("nothing is planned from now on: libnvcuvid.so.1: the library reaches memory past", said)

    def test_a_program_that_is_linked_with_one_is_served_without_plans(self):
        said = same(self, 8, LINKED)
        self.assertEqual(said.count("nothing is planned from now on: libnvcuvid.so.1: the library reaches memory past"),
                         1, said)
        self.assertEqual(rounds_in(said), 0, said)

    def test_planning_waits_for_no_constructor_of_a_library(self):
        self.assertGreater(rounds_in(self.same(8, "constructor")), 20)


class Threads(unittest.TestCase):
    def same(self, budget, scenario, rounds=40, **environment):
        return same(self, budget, THREADS, scenario, str(rounds), **environment)

    def test_memory_is_not_searched_while_a_thread_unmaps_it(self):
        said = self.same(8, "unmaps", PUMPGRAPH_FAKE_LINGERS="20")
        self.assertGreater(rounds_in(said), 30, said)

    def test_host_memory_that_another_thread_has_just_given_up_may_hold_addresses(self):
        said = self.same(8, "registered", PUMPGRAPH_FAKE_LINGERS="200")
        self.assertIn("period 1 is not planned: addThroughTable: it may find addresses in host memory", said)

    def test_memory_that_is_mapped_where_another_thread_has_just_unmapped_some_is_searched(self):
        said = self.same(10, "mapped", PUMPGRAPH_FAKE_LINGERS="200")
        self.assertGreater(rounds_in(said), 20, said)

    def test_records_at_a_full_queue_wait_beside_other_threads(self):
        """Another thread has to call the driver before the device goes on."""
        for scenario in ("records", "launches"):  # of the program's events, and of those that time its calls
            with self.subTest(scenario=scenario):
                said = self.same(64, f"{scenario}-at-full-queue", 10, PUMPGRAPH_FAKE_QUEUE="16",
                                 PUMPGRAPH_RUN_PATIENCE="300")
                self.assertIn("a period of", said)


if __name__ == "__main__":
    unittest.main()
