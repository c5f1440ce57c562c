# SPDX-License-Identifier: Apache-2.0
"""Plans of recorded steps and of traces come to the figures of their reports; damaged plans do not pass."""

from __future__ import annotations

import copy
import json
import os
import subprocess
import tempfile
import unittest
from pathlib import Path
from typing import Any, Callable, Dict, List, Tuple

import recompute

TOOL = os.environ["PUMPGRAPH_OPT"]
REPETITIONS = os.environ.get("PUMPGRAPH_REPETITIONS")
DATA = Path(__file__).resolve().parents[1] / "data"

Document = Dict[str, Any]


def export(*arguments: str) -> Tuple[Document, Document]:
    """The plan and the report of one run."""
    with tempfile.TemporaryDirectory() as folder:
        plan, report = Path(folder) / "plan.json", Path(folder) / "report.json"
        subprocess.run([TOOL, *arguments, f"--report=plan:{plan}", f"--report=json:{report}"], check=True)
        return json.loads(plan.read_text()), json.loads(report.read_text())


def export_wide(*lines: str) -> Tuple[Document, Document]:
    """Of a step with nodes that use two buffers of 40 MiB, b0 and b1, which are more than the budget."""
    with tempfile.TemporaryDirectory() as folder:
        step = Path(folder) / "step.mlir"
        step.write_text("\n".join(["pump.graph @step {", *lines, "}"]))
        return export(str(step), "--budget=60MiB")


def export_live(read: str, written: str) -> Tuple[Document, Document]:
    """What is known of the two buffers, which are live, that the first kernel reads and writes."""
    size = 40 << 20
    return export_wide(*(f'%b{b} = pump.buffer "b{b}" private live_in live_out size({size})' for b in (0, 1)),
                       f'%k0 = pump.kernel "k0" node(0) [read %b0[0, {size}] {read}, readwrite %b1[0, {size}] '
                       f'{written}] cost(100.0)',
                       f'%k1 = pump.kernel "k1" node(1) after(%k0) [readwrite %b1[0, {size}] declared] cost(100.0)')


def recorded(name: str) -> str:
    return str(DATA / f"{name}.mlir.gz")


def trace(name: str) -> str:
    return f"--import-trace={DATA / 'g10' / name}.json.gz"


class Agreement(unittest.TestCase):
    def check(self, *arguments: str) -> Document:
        plan, report = export(*arguments)
        figures = recompute.recompute(plan)
        recompute.compare(figures, report)
        return figures

    def test_recorded_steps(self) -> None:
        for name in ("gpt2", "resnet50"):
            for budget in ("100%", "50%", "30%"):
                with self.subTest(step=name, budget=budget):
                    moved = self.check(recorded(name), f"--budget={budget}")["up_bytes"]
                    self.assertEqual(moved > 0, budget != "100%")

    def test_budgets_below_the_need_of_one_node(self) -> None:
        for name, budget in (("gpt2", "3%"), ("resnet50", "5%")):
            with self.subTest(step=name):
                plan, report = export(recorded(name), f"--budget={budget}")
                self.assertGreater(report["hosted_bytes"], 0)
                recompute.compare(recompute.recompute(plan), report)
                buffer = next(buffer for buffer in plan["buffers"] if buffer["hosted"])
                del buffer["hosted"][0]
                with self.assertRaisesRegex(recompute.WrongPlan, "no frame"):
                    recompute.recompute(plan)

    def test_what_was_only_observed_may_be_anything(self) -> None:
        plan, report = export_live("observed must(read)", "declared")
        self.assertGreater(report["hosted_down_bytes"], 0)
        self.assertIn({"buffer": 0, "offset": 0, "size": 40 << 20, "may": "readwrite", "must": "none"},
                      plan["nodes"][0]["accesses"])
        recompute.compare(recompute.recompute(plan), report)

    def test_what_writes_a_hosted_page_first_does_not_read_it(self) -> None:
        size = 40 << 20
        uses = [("read", "readwrite"), ("readwrite", "readwrite"), ("readwrite", "readwrite")]
        plan, report = export_wide(
            *(f'%b{b} = pump.buffer "b{b}" private size({size})' for b in (0, 1)),
            *(f'%k{k} = pump.kernel "k{k}" node({k}){f" after(%k{k - 1})" if k else ""} ['
              + ", ".join(f"{mode} %b{b}[0, {size}] declared" for b, mode in enumerate(modes)) + "] cost(100.0)"
              for k, modes in enumerate(uses)))
        hosted = [sum(part["size"] for part in buffer["hosted"]) for buffer in plan["buffers"]]
        self.assertGreater(sum(hosted), 0)
        self.assertEqual(report["hosted_up_bytes"], 2 * sum(hosted))
        self.assertEqual(report["hosted_down_bytes"], 2 * hosted[0] + 3 * hosted[1])
        recompute.compare(recompute.recompute(plan), report)

    def test_what_others_use_between_replays(self) -> None:
        size = 40 << 20
        plan, report = export_wide(f'%b0 = pump.buffer "b0" private present live_in live_out size({size})',
                                   f'%b1 = pump.buffer "b1" private size({size})',
                                   f'%k0 = pump.kernel "k0" node(0) [read %b0[0, {size}] declared] cost(100.0)',
                                   f'%k1 = pump.kernel "k1" node(1) after(%k0) [write %b1[0, {size}] declared '
                                   'must(write)] cost(100.0)')
        recompute.compare(recompute.recompute(plan), report)
        self.assertTrue(transfers(plan, "up"))
        for damage, message in (({"resident": []}, "finds stale bytes in buffer 0"),
                                ({"mirrored": plan["buffers"][0]["resident"]},
                                 "buffer 0 is not on the device, or not there alone")):
            damaged = {**plan, "buffers": [{**plan["buffers"][0], **damage}, plan["buffers"][1]]}
            with self.assertRaisesRegex(recompute.WrongPlan, message):
                recompute.recompute(damaged)

    def test_slowdowns_that_were_measured(self) -> None:
        for slowdown in (1 / 64, 3.0):
            with self.subTest(slowdown=slowdown):
                plan, report = export_live(*[f"declared slowdown({slowdown})"] * 2)
                self.assertGreater(report["hosted_bytes"], 0)
                recompute.compare(recompute.recompute(plan), report)
                for access in plan["nodes"][0]["accesses"]:
                    self.assertEqual(access.pop("slowdown"), slowdown)
                with self.assertRaisesRegex(recompute.WrongPlan, "predicted_s"):
                    recompute.compare(recompute.recompute(plan), report)

    def test_the_link_of_the_command_line_counts(self) -> None:
        slow = self.check(recorded("gpt2"), "--budget=50%", "--up=10", "--down=20", "--both=25")
        fast = self.check(recorded("gpt2"), "--budget=50%", "--up=100", "--down=100", "--both=200")
        self.assertGreater(slow["predicted_s"], fast["predicted_s"])

    def test_traces(self) -> None:
        for name, budget in (("BERT-256", "20GiB"), ("Inceptionv3-512", "12GiB"), ("VIT-512", "10GiB"),
                             ("VIT-512", "40GiB")):
            with self.subTest(trace=name, budget=budget):
                self.check(trace(name), f"--budget={budget}")


def staying_plan(second: str = "full", last: str = "full") -> Document:
    """Two pages: page 0 of buffer 0 goes on in its frame as that of buffer 1, page 1 in another one by way of the
    host."""
    def node(number: int, captured: int, buffer: int, mode: str) -> Document:
        return {"id": number, "captured": captured, "kind": "kernel", "name": f"k{captured}", "cost_us": 1.0,
                "accesses": [{"buffer": buffer, "offset": 0, "size": 8, "may": mode, "must": mode}]}

    def copy_of_page(number: int, direction: str, buffer: int) -> Document:
        return {"id": number, "direction": direction, "buffer": buffer, "offset": 4, "size": 4, "host_offset": 0}

    facts = {"name": "b", "size": 8, "private": True, "live_in": False, "live_out": False, "resident": [],
             "mirrored": [], "hosted": []}
    return {
        "format": "pumpgraph-plan", "version": 1, "page_bytes": 4, "budget_bytes": 12, "host_bytes": 4,
        "machine": {"up_bytes_per_second": 1e6, "down_bytes_per_second": 1e6, "both_bytes_per_second": 2e6,
                    "copy_overhead_s": 0.0, "hosted_share": 1.0, "beside_hosted_share": 0.0},
        "buffers": [{**facts, "frames": [0, 1], "continues": None}, {**facts, "frames": [0, 2], "continues": 0}],
        "nodes": [node(0, 0, 0, "write"), node(3, 1, 1, "read"), node(4, 2, 1, "write")],
        "transfers": [copy_of_page(1, "down", 0), copy_of_page(2, "up", 1)],
        "edges": [{"from": start, "to": end, "kind": kind, "origin": "added"}
                  for start, end, kind in (
                      (0, 1, "full"), (1, 2, "full"), (2, 3, second), (2, 4, "full"), (3, 4, last))],
        "implied_edges": []}


class StayingPages(unittest.TestCase):
    def test_a_page_that_stays_is_one_page(self) -> None:
        figures = recompute.recompute(staying_plan())
        self.assertEqual((figures["up_bytes"], figures["down_bytes"], figures["peak_bytes"]), (4, 4, 8))

    def test_at_one_address_the_program_orders_its_accesses(self) -> None:
        recompute.recompute(staying_plan(last="programmatic"))

    def test_across_addresses_completion_does(self) -> None:
        with self.assertRaisesRegex(recompute.WrongPlan, "node 3 uses page 0 of buffer 1, which goes on there"):
            recompute.recompute(staying_plan(second="programmatic"))

    def test_nothing_stays_for_another_page(self) -> None:
        plan = staying_plan()
        plan["buffers"][1]["frames"] = [1, 0]  # page 1 is brought to frame 0
        with self.assertRaisesRegex(recompute.WrongPlan, "stale bytes"):
            recompute.recompute(plan)


def repeating_plan() -> Document:
    """Buffer 1 is made of buffer 0 and changed in place, gives its frame to buffer 2, is made again by nodes 3 and 4,
    and read."""
    return {
        "format": "pumpgraph-plan", "version": 1, "page_bytes": 4, "budget_bytes": 12, "host_bytes": 0,
        "machine": {"up_bytes_per_second": 1e6, "down_bytes_per_second": 1e6, "both_bytes_per_second": 2e6,
                    "copy_overhead_s": 0.0, "hosted_share": 1.0, "beside_hosted_share": 0.0},
        "buffers": [{"name": f"b{number}", "size": 4, "private": True, "live_in": live_in, "live_out": live_out,
                     "frames": [frame], "resident": [{"offset": 0, "size": 4}] if live_out else [], "mirrored": [],
                     "hosted": [], "continues": None}
                    for number, (live_in, live_out, frame) in enumerate(
                        ((True, True, 0), (False, False, 1), (False, False, 1), (False, True, 2)))],
        "nodes": [{"id": number, "captured": captured, "repeats": repeats, "pure": captured in (0, 1), "kind": kind,
                   "name": name, "cost_us": 1.0,
                   "accesses": [{"buffer": buffer, "offset": 0, "size": 4, "may": mode,
                                 "must": "none" if mode == "readwrite" else mode}
                                for buffer, mode in accesses]}
                  for number, (captured, repeats, kind, name, accesses) in enumerate((
                      (0, None, "kernel", "make", ((0, "read"), (1, "write"))),
                      (1, None, "kernel", "change", ((1, "readwrite"),)),
                      (2, None, "kernel", "other", ((2, "write"),)),
                      (None, 0, "rematerialize", "make", ((0, "read"), (1, "write"))),
                      (None, 1, "rematerialize", "change", ((1, "readwrite"),)),
                      (3, None, "kernel", "use", ((1, "read"), (3, "write"))),
                      (4, None, "kernel", "advance", ((0, "write"),))))],
        "transfers": [],
        "edges": [{"from": node, "to": node + 1, "kind": "full", "origin": "added" if 2 <= node <= 4 else "captured"}
                  for node in range(6)],
        "implied_edges": [{"from": 2, "to": 5, "kind": "full"}]}


class RepeatedNodes(unittest.TestCase):
    def setUp(self) -> None:
        self.plan = repeating_plan()

    def expect(self, message: str) -> None:
        with self.assertRaisesRegex(recompute.WrongPlan, message):
            recompute.recompute(self.plan)

    def leave_out(self, gone: int) -> None:
        """Others keep their order."""
        for node in self.plan["nodes"]:
            node["id"] -= node["id"] > gone
        del self.plan["nodes"][gone]
        del self.plan["edges"][-1]

    def exchange(self, node: int) -> None:
        """With the one after it."""
        nodes = self.plan["nodes"]
        nodes[node], nodes[node + 1] = {**nodes[node + 1], "id": node}, {**nodes[node], "id": node + 1}

    def test_they_leave_what_they_left_before(self) -> None:
        figures = recompute.recompute(self.plan)
        self.assertAlmostEqual(figures["in_memory_s"], 5e-6)
        self.assertAlmostEqual(figures["predicted_s"], 7e-6)
        self.assertEqual(figures["up_bytes"], 0)

    def test_a_chain_without_its_base(self) -> None:
        self.leave_out(3)
        self.expect("node 3 finds in buffer 1 what node 1 left, but needs that of 0")

    def test_a_chain_without_its_last_link(self) -> None:
        self.leave_out(4)
        self.expect("node 4 finds in buffer 1 what node 0 left, but needs that of 1")

    def test_an_operand_has_changed(self) -> None:
        for node in (5, 4, 3):  # "advance" comes before the repetition of "make"
            self.exchange(node)
        self.expect("node 4 finds in buffer 0 what node 3 left, but needs that of before the step")

    def test_another_node(self) -> None:
        self.plan["nodes"][3]["repeats"] = 2
        self.plan["nodes"][2]["pure"] = True
        self.expect("node 3 is not what it repeats, node 2")

    def test_no_node(self) -> None:
        self.plan["nodes"][3]["repeats"] = 3
        self.expect("node 3 repeats no captured node before it")

    def test_not_pure(self) -> None:
        self.plan["nodes"][0]["pure"] = False
        self.expect("node 3 repeats node 0, which is not pure")

    def test_other_accesses(self) -> None:
        del self.plan["nodes"][3]["accesses"][0]
        self.expect("node 3 is not what it repeats")

    def test_what_lasts_is_written_again(self) -> None:
        self.plan["buffers"][1].update(live_out=True)
        self.expect("node 3, a repetition, writes buffer 1, which lasts")

    def update_aside(self) -> None:
        """Node 0 updates buffer 0, which nobody writes later."""
        self.plan["nodes"][0]["accesses"][0].update(may="readwrite", must="none", aside=True)
        self.plan["nodes"][6]["accesses"] = []

    def test_what_is_aside_is_left_out(self) -> None:
        self.update_aside()
        del self.plan["nodes"][3]["accesses"][0]
        recompute.recompute(self.plan)

    def test_what_is_aside_runs_again(self) -> None:
        self.update_aside()
        self.expect("node 3 is not what it repeats, node 0")
        self.plan["nodes"][3]["accesses"] = self.plan["nodes"][0]["accesses"]
        self.expect("node 3 is not what it repeats, node 0")

    def test_bytes_are_aside_in_part(self) -> None:
        self.update_aside()
        self.plan["nodes"][0]["accesses"].append({**self.plan["nodes"][0]["accesses"][0], "aside": False})
        self.plan["nodes"][3]["accesses"] = self.plan["nodes"][0]["accesses"][1:]
        self.expect("node 0 has bytes that only some of its accesses have aside")

    def test_a_programmatic_edge(self) -> None:
        self.plan["edges"][3]["kind"] = "programmatic"
        self.expect("a repetition has a programmatic edge, from node 3 to node 4")

    def test_nothing_orders_it(self) -> None:
        self.plan["edges"][5]["from"] = 2  # "advance" may start before "make" has read again
        for node in (5, 4):
            self.plan["nodes"][node]["cost_us"] = 0.0
        with self.assertRaisesRegex(recompute.WrongPlan,
                                    "nodes 3 and 6 share bytes of buffer 0, and nothing orders them"):
            recompute.Repetitions(recompute.Plan(self.plan)).run()


@unittest.skipUnless(REPETITIONS, "ctest names check_repetitions in PUMPGRAPH_REPETITIONS")
class RandomRepetitions(unittest.TestCase):
    """Of random plans that are right but, in some, for what they repeat, it accepts those that the checker accepts."""

    def test_it_agrees_with_the_checker(self) -> None:
        judged = {True: 0, False: 0}
        with subprocess.Popen([str(REPETITIONS), "0", "700"], stdout=subprocess.PIPE) as process:
            for line in process.stdout or ():
                case = json.loads(line)
                is_right = not case["violation"]
                judged[is_right] += 1
                with self.subTest(seed=case["seed"], mistake=case["mistake"], violation=case["violation"]):
                    if is_right:
                        recompute.recompute(case["plan"])
                        continue
                    with self.assertRaises(recompute.WrongPlan):
                        recompute.Repetitions(recompute.Plan(case["plan"])).run()
        self.assertEqual(process.returncode, 0)
        self.assertGreater(min(judged.values()), 100)


def transfers(plan: Document, direction: str) -> List[Document]:
    return [transfer for transfer in plan["transfers"] if transfer["direction"] == direction]


def node_of(plan: Document, number: int) -> Document:
    return next(node for node in [*plan["nodes"], *plan["transfers"]] if node["id"] == number)


def drop(plan: Document, transfer: Document) -> None:
    """Makes a transfer move nothing; whoever waits for it still does."""
    transfer["size"] = 0


def some_edge(plan: Document, starts: List[int]) -> Document:
    """An edge from one of these nodes to a captured one."""
    kernels = {node["id"] for node in plan["nodes"]}
    return next(edge for edge in plan["edges"] if edge["from"] in starts and edge["to"] in kernels)


def frames_in_use_together(plan: Document) -> Tuple[int, int]:
    for node in plan["nodes"]:
        used = []
        for access in node["accesses"]:
            buffer = plan["buffers"][access["buffer"]]
            if buffer["private"] and access["may"] != "none" and access["size"] > 0:
                used.append(buffer["frames"][access["offset"] // plan["page_bytes"]])
        if len(set(used)) > 1:
            return min(used), max(used)
    raise AssertionError("no node uses two frames")


def merge_frames(plan: Document) -> None:
    kept, given_up = frames_in_use_together(plan)
    for buffer in plan["buffers"]:
        buffer["frames"] = [kept if frame == given_up else frame for frame in buffer["frames"]]


def start_too_early(plan: Document) -> None:
    """A kernel that needs bytes from host memory waits for nothing any more."""
    reader = some_edge(plan, [transfer["id"] for transfer in transfers(plan, "up")])["to"]
    plan["edges"] = [edge for edge in plan["edges"] if edge["to"] != reader]


def save_too_early(plan: Document) -> None:
    """Copies to the host wait for nothing any more."""
    saving = {transfer["id"] for transfer in transfers(plan, "down")}
    plan["edges"] = [edge for edge in plan["edges"] if edge["to"] not in saving]


def share_a_place(plan: Document) -> None:
    down = transfers(plan, "down")
    other = next(transfer for transfer in down if transfer["buffer"] != down[0]["buffer"])
    for transfer in plan["transfers"]:
        if (transfer["buffer"], transfer["offset"]) == (other["buffer"], other["offset"]):
            transfer["host_offset"] = down[0]["host_offset"]


def turn_round(plan: Document) -> None:
    transfers(plan, "up")[0]["direction"] = "down"


def move_less(plan: Document) -> None:
    big = next(transfer for transfer in transfers(plan, "up") if transfer["size"] > plan["page_bytes"])
    big["size"] = (big["size"] - 1) // plan["page_bytes"] * plan["page_bytes"]


def lose_a_frame(plan: Document) -> None:
    access = next(access for node in plan["nodes"] for access in node["accesses"] if access["size"] > 0)
    plan["buffers"][access["buffer"]]["frames"][access["offset"] // plan["page_bytes"]] = recompute.NO_FRAME


def forget_the_boundary(plan: Document) -> None:
    for buffer in plan["buffers"]:
        if buffer["live_in"] and buffer["resident"]:
            buffer["resident"] = []


def turn_an_edge(plan: Document) -> None:
    edge = plan["edges"][0]
    edge["from"], edge["to"] = edge["to"], edge["from"]


def shrink(key: str) -> Callable[[Document], None]:
    def damage(plan: Document) -> None:
        plan[key] -= plan["page_bytes"]
    return damage


def slow_a_kernel(plan: Document) -> None:
    max(plan["nodes"], key=lambda node: node["cost_us"] or 0)["cost_us"] *= 1.01


def speed_up_the_link(plan: Document) -> None:
    for key in ("up_bytes_per_second", "down_bytes_per_second", "both_bytes_per_second"):
        plan["machine"][key] *= 1.5


class Rows(unittest.TestCase):
    """Small copies of one size that are made as one."""

    plan: Document

    @classmethod
    def setUpClass(cls) -> None:
        cls.plan, _ = export(recorded("resnet50"), "--budget=50%")

    def setUp(self) -> None:
        self.damaged = copy.deepcopy(self.plan)
        rows = next(rows for rows in recompute.rows_of(recompute.Plan(self.damaged)) if len(rows) > 2)
        by_number = {transfer["id"]: transfer for transfer in self.damaged["transfers"]}
        self.rows = [by_number[row] for row in rows]

    def expect(self, message: str) -> None:
        with self.assertRaisesRegex(recompute.WrongPlan, message):
            recompute.check_rows(recompute.Plan(self.damaged))

    def test_they_are_one_copy(self) -> None:
        recompute.check_rows(recompute.Plan(self.damaged))

    def test_another_size(self) -> None:
        self.rows[1]["size"] -= 512
        self.expect("not of one size")

    def test_another_distance(self) -> None:
        self.rows[1]["host_offset"] += 512
        self.expect("bytes from each other in host memory")

    def test_one_frame_for_two(self) -> None:
        frames = [(self.damaged["buffers"][row["buffer"]]["frames"], row["offset"] // self.damaged["page_bytes"])
                  for row in self.rows]
        (first, first_page), (second, second_page) = frames[:2]
        second[second_page] = first[first_page]
        self.expect("not a frame each")

    def test_waiting_for_another(self) -> None:
        kernel = next(node for node in self.damaged["nodes"] if node["id"] < self.rows[1]["id"])
        edge = {"from": kernel["id"], "to": self.rows[1]["id"], "kind": "full", "origin": "added"}
        self.damaged["edges"].append(edge)
        self.expect("waits for others")

    def test_being_waited_for(self) -> None:
        kernel = next(node for node in self.damaged["nodes"] if node["id"] > self.rows[0]["id"])
        edge = {"from": self.rows[0]["id"], "to": kernel["id"], "kind": "full", "origin": "added"}
        self.damaged["edges"].append(edge)
        self.expect("others wait for that")

    def test_nothing_to_join(self) -> None:
        min(transfers(self.damaged, "up"), key=lambda transfer: transfer["id"])["joined"] = True
        self.expect("joined to nothing")

    def test_too_many(self) -> None:
        for transfer in transfers(self.damaged, "up")[1:]:
            transfer["joined"] = True
        self.expect("a copy has 16")


class Damage(unittest.TestCase):
    """Each damage is found, and for what it is. The plan is right before, or nothing would be shown."""

    plan: Document
    report: Document

    @classmethod
    def setUpClass(cls) -> None:
        cls.plan, cls.report = export(recorded("gpt2"), "--budget=50%")
        recompute.compare(recompute.recompute(cls.plan), cls.report)

    def expect(self, damage: Callable[[Document], None], message: str) -> None:
        plan = copy.deepcopy(self.plan)
        damage(plan)
        self.assertNotEqual(plan, self.plan)
        with self.assertRaisesRegex(recompute.WrongPlan, message):
            recompute.compare(recompute.recompute(plan), self.report)

    def test_missing_prefetch(self) -> None:
        self.expect(lambda plan: drop(plan, transfers(plan, "up")[0]), "finds stale bytes")

    def test_missing_eviction(self) -> None:
        self.expect(lambda plan: drop(plan, transfers(plan, "down")[0]), "stale bytes|in host memory at the end")

    def test_wrong_direction(self) -> None:
        self.expect(turn_round, "stale bytes|same time")

    def test_a_page_left_behind(self) -> None:
        self.expect(move_less, "finds stale bytes")

    def test_one_frame_for_two_pages_of_a_node(self) -> None:
        self.expect(merge_frames, "at the same time|stale bytes|another tenant")

    def test_a_page_without_a_frame(self) -> None:
        self.expect(lose_a_frame, "no frame")

    def test_a_missing_edge(self) -> None:
        self.expect(start_too_early, "at the same time|stale bytes")

    def test_a_copy_that_does_not_wait_for_the_write(self) -> None:
        self.expect(save_too_early, "at the same time|stale bytes")

    def test_an_edge_backwards(self) -> None:
        self.expect(turn_an_edge, "not in the order")

    def test_boundary(self) -> None:
        self.expect(forget_the_boundary, "stale bytes|in host memory at the end")

    def test_budget(self) -> None:
        self.expect(shrink("budget_bytes"), "exceed the budget")

    def test_host_memory(self) -> None:
        self.expect(shrink("host_bytes"), "bytes of host memory are used")

    def test_two_pages_in_one_place(self) -> None:
        self.expect(share_a_place, "shares its place|two places")

    def test_times_that_are_not_those_of_the_report(self) -> None:
        self.expect(slow_a_kernel, "_s is")
        self.expect(speed_up_the_link, "predicted_s is")

    def test_bytes_that_are_not_those_of_the_report(self) -> None:
        figures = recompute.recompute(self.plan)
        for name in recompute.FIGURES:
            with self.subTest(figure=name), self.assertRaisesRegex(recompute.WrongPlan, name):
                recompute.compare(figures, {**self.report, name: self.report[name] * 1.001})


if __name__ == "__main__":
    unittest.main()
