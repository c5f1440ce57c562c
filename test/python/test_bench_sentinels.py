# SPDX-License-Identifier: Apache-2.0
"""The sentinel table without a GPU and without PyTorch: which processes it starts, how it resumes, what it prints."""

import copy
import importlib.util
import json
import os
import re
import subprocess
import sys
import tempfile
import unittest
import xml.dom.minidom
from pathlib import Path
from unittest import mock

import support

BENCH = support.ROOT / "tools" / "pump-graph-bench"
sys.path.insert(0, str(BENCH))

import remedies  # noqa: E402
import runs  # noqa: E402
import sentinel_bounds  # noqa: E402
import sentinel_command  # noqa: E402
import sentinel_kept  # noqa: E402
import sentinel_plot  # noqa: E402
import sentinel_table  # noqa: E402
import sentinels  # noqa: E402
import settle_link  # noqa: E402
import workers  # noqa: E402

GIB = 2**30
VIT = sentinels.BY_NAME["vit-l16"]
BEYOND = sentinels.BY_NAME["beyond-card"]
STUDY = sentinels.BY_NAME["resnet1001"]
SWIN = sentinels.BY_NAME["swin-s"]
HALF = VIT.budgets[1]
MACHINE = {"up_bytes_per_second": 50e9, "down_bytes_per_second": 50e9, "both_bytes_per_second": 80e9}


def budget_row(budget_bytes, step_ms=204.0):
    return {
        "step_ms": [step_ms - 1, step_ms, step_ms + 1],
        "losses": ["0x1.8p+1", "0x1.0p+1"],
        "peak_bytes": budget_bytes - 2**20,
        "budget_bytes": budget_bytes,
        "report": {"plan_bound_s": 0.190, "predicted_s": 0.202, "up_bytes": 8 * 10**9, "down_bytes": 8 * 10**9,
                   "budget_bytes": budget_bytes - GIB, "machine": MACHINE,
                   "stalls": [{"buffer_name": "blocks.3.up output", "duration_s": 0.0123}]},
        "replanned": {"predicted_before_us": 150e3, "measured_before_us": 210e3, "predicted_us": 202e3,
                      "measured_us": 204e3, "timed_nodes": 9, "kept_first": False},
        "seconds": 9.0,
    }


def complete():
    """Every usual row of one model, every promise kept: the best bound, 200 ms, is the linear programme's."""
    done = {"vit-l16/plain/0": {"step_ms": [100.0], "losses": ["0x1.8p+1", "0x1.0p+1"], "peak_bytes": 16 * GIB}}
    done["vit-l16/plain/1"] = copy.deepcopy(done["vit-l16/plain/0"])
    done["vit-l16/record/0"] = {"step_ms": [101.0]}
    for budget in VIT.budgets:
        size = budget.bytes_of(16 * GIB)
        remedy = {"step_ms": [130.0], "peak_bytes": size, "budget_bytes": size, "blocks": 7, "blocks_in_all": 24}
        done[f"vit-l16/checkpoint@{budget.name}/0"] = {**remedy, "step_ms": [240.0], "captured": True}
        done[f"vit-l16/offload@{budget.name}/0"] = {**remedy, "captured": False, "peak_bytes": size + 1}
        for repeat in range(2):
            done[f"vit-l16/moves@{budget.name}/{repeat}"] = budget_row(size, 206.0)
            done[f"vit-l16/budget@{budget.name}/{repeat}"] = budget_row(size)
        done[f"vit-l16/bounds@{budget.name}/0"] = {"lp_may_s": 0.200}
    return done


def complete_beyond():
    done = {"beyond-card/plain/0": {"error": "out of device memory: tried", "out_of_memory": True}}
    done["beyond-card/micro/0"] = {"step_ms": [900.0], "losses": ["0x1.8p+1", "0x1.0p+1"], "peak_bytes": 30 * GIB}
    done["beyond-card/budget@120GiB/0"] = budget_row(120 * GIB, 1500.0)
    return done


def complete_unseen(**by_hand_ms):
    """Without moves, and without a bound but the window's. Checkpointing does not reach the budget."""
    size = SWIN.budgets[0].bytes_of(16 * GIB)
    done = {"swin-s/plain/0": {"step_ms": [100.0], "losses": ["0x1.8p+1", "0x1.0p+1"], "peak_bytes": 16 * GIB}}
    done["swin-s/checkpoint@3/0"] = {"step_ms": [130.0], "peak_bytes": size + 1, "budget_bytes": size, "blocks": 24,
                                     "blocks_in_all": 24, "captured": True}
    done["swin-s/budget@3/0"] = budget_row(size)
    done["swin-s/budget@3/0"]["report"]["repeated"] = {"nodes": 3, "time_s": 0.004, "bytes": GIB}
    for kind, step in by_hand_ms.items():
        done[f"swin-s/{kind}@3/0"] = budget_row(size, step)
    return done


def broken(done, chosen=(VIT,)):
    return [text for kept, text in sentinel_table.checks(chosen, done) if not kept]


def changed(key, where, value, done=None):
    done = complete() if done is None else done
    target = done[key]
    for name in where[:-1]:
        target = target[name]
    target[where[-1]] = value
    return done


def slow_moves(step_ms, predicted_s=0.202, done=None):
    for repeat in range(2):
        done = changed(f"vit-l16/moves@2/{repeat}", ["step_ms"], [step_ms] * 9, done)
        done[f"vit-l16/moves@2/{repeat}"]["report"]["predicted_s"] = predicted_s
    return done


def without_moves(done):
    """As from an older file."""
    return {key: figures for key, figures in done.items() if "/moves@" not in key}


def running_again(done=None):
    """The plan at 1/2 runs nodes again."""
    return changed("vit-l16/budget@2/0", ["report", "repeated"], {"nodes": 3, "time_s": 0.004, "bytes": GIB}, done)


def by_hand(**step_ms):
    done = complete()
    for kind, step in step_ms.items():
        done[f"vit-l16/{kind}@2/0"] = budget_row(HALF.bytes_of(16 * GIB), step)
    return done


class Plan(unittest.TestCase):
    def titles(self, sentinel, kinds=sentinels.USUAL_KINDS, repeats=1):
        return [job.title for job in sentinels.plan_jobs([sentinel], kinds, repeats)]

    def test_what_shares_an_allocator_shares_a_process(self):
        self.assertEqual(self.titles(STUDY), [
            "resnet1001 plain checkpoint@32GB offload@32GB", "resnet1001 record", "resnet1001 moves@32GB",
            "resnet1001 budget@32GB",
        ])

    def test_every_budget_is_a_process_of_its_own(self):
        for kind in sentinels.PLANNED:
            self.assertEqual(self.titles(VIT, [kind]), [f"vit-l16 {kind}@{name}" for name in ("1.5", "2", "3", "4")])

    def test_rows_by_hand_run_only_where_they_are_named(self):
        named = set(self.titles(STUDY, sentinels.KINDS)) - set(self.titles(STUDY))
        self.assertEqual(named, {f"resnet1001 hand{share}@32GB" for share in (25, 50, 75, 100)})

    def test_only_plain_and_plans_without_checkpoints_are_repeated(self):
        self.assertEqual(self.titles(STUDY, sentinels.KINDS, repeats=2)[len(self.titles(STUDY, sentinels.KINDS)):],
                         ["resnet1001 plain", "resnet1001 moves@32GB", "resnet1001 budget@32GB"])

    def test_repeats_are_interleaved(self):
        jobs = sentinels.plan_jobs([VIT, STUDY], ["plain"], 2)
        keys = [row.key for job in jobs for row in job.rows]
        self.assertEqual(keys, ["vit-l16/plain/0", "resnet1001/plain/0", "vit-l16/plain/1", "resnet1001/plain/1"])

    def test_a_step_that_does_not_fit_is_compared_with_micro_batches(self):
        self.assertEqual(self.titles(BEYOND, sentinels.KINDS),
                         ["beyond-card plain", "beyond-card micro", "beyond-card budget@120GiB"])

    def test_budgets_are_shares_of_the_plain_peak_or_sizes(self):
        self.assertEqual(HALF.bytes_of(1000), 500)
        self.assertIsNone(HALF.bytes_of(None))
        self.assertEqual(STUDY.budgets[0].bytes_of(None), 32 * 10**9)

    def test_names_are_unique_and_go_into_keys(self):
        self.assertEqual(len(sentinels.BY_NAME), len(sentinels.SENTINELS))
        self.assertFalse([name for name in sentinels.BY_NAME if "/" in name or "@" in name])
        self.assertEqual(sum(not sentinel.extra for sentinel in sentinels.SENTINELS), 10)

    def test_unseen_models_run_at_a_third_where_they_are_named(self):
        unseen = [sentinel for sentinel in sentinels.SENTINELS if sentinel.most_over_others > 1]
        self.assertEqual([sentinel.name for sentinel in unseen], ["llama-336m", "convnext-b", "swin-s"])
        for sentinel in unseen:
            self.assertEqual([budget.title for budget in sentinel.budgets], ["1/3"])
            self.assertTrue(sentinel.extra)
            self.assertEqual(sentinel.model.split(".")[0], "library")

    def test_a_table_shows_who_is_named_or_usual_or_has_rows(self):
        usual = [sentinel for sentinel in sentinels.SENTINELS if not sentinel.extra]
        self.assertEqual(sentinels.unnamed({}), usual)
        self.assertEqual(sentinels.unnamed({**complete_unseen(), **complete_beyond()}), [*usual, SWIN])


class Resume(unittest.TestCase):
    def job(self, kinds=("plain", "checkpoint")):
        return sentinels.plan_jobs([VIT], kinds, 1)[0]

    def keys(self, done):
        job = sentinels.missing(self.job(), done)
        return [] if job is None else [row.key.split("/")[1] for row in job.rows]

    def test_what_is_done_is_not_run_again(self):
        done = complete()
        self.assertEqual(self.keys(done), [])
        del done["vit-l16/checkpoint@3/0"]
        self.assertEqual(self.keys(done), ["checkpoint@3"])

    def test_what_failed_is_run_again_and_what_was_refused_is_not(self):
        done = complete()
        done["vit-l16/checkpoint@2/0"] = {"error": "stopped after 9 s"}
        done["vit-l16/checkpoint@4/0"] = {"refused": "node 7 needs 9 GiB"}
        self.assertEqual(self.keys(done), ["checkpoint@2"])

    def test_a_card_that_is_too_small_is_a_result_where_it_is_expected(self):
        job = sentinels.plan_jobs([BEYOND], ["plain"], 1)[0]
        self.assertIsNone(sentinels.missing(job, complete_beyond()))
        self.assertEqual(list(sentinel_table.Rows(BEYOND, complete_beyond()).errors()), [])
        done = complete()
        done["vit-l16/plain/0"] = complete_beyond()["beyond-card/plain/0"]
        self.assertEqual(self.keys(done), ["plain"], "where it is not, it is a failure")
        self.assertEqual(len(list(sentinel_table.Rows(VIT, done).errors())), 1)

    def test_shares_need_the_plain_peak(self):
        job = sentinels.plan_jobs([VIT], ["budget"], 1)[0]
        self.assertIn("no plain row", sentinels.lacks(job, {}))
        self.assertIsNone(sentinels.lacks(job, complete()))
        self.assertIsNone(sentinels.lacks(sentinels.plan_jobs([STUDY], ["budget"], 1)[0], {}))
        self.assertIsNone(sentinels.lacks(self.job(), {}), "the plain row of the same process tells")


# Stands in for sentinel_worker.py: writes figures for all rows but those that SKIP names, then does what END says.
WORKER = """
import json, os, sys, time
line = sys.stdin.readline()
if not line:
    sys.exit(0)
job = json.loads(line)
with open(job["results"], "a") as file:
    for row in job["rows"]:
        if row["kind"] != os.environ.get("SKIP"):
            figures = {"step_ms": [1.0], "peak_bytes": 8, "job": job}
            file.write(json.dumps({"key": row["key"], "figures": figures}) + "\\n")
exec(os.environ.get("END", ""))
"""


class Driver(unittest.TestCase):
    def setUp(self):
        self._folder = tempfile.TemporaryDirectory()
        self.addCleanup(self._folder.cleanup)
        self.results = Path(self._folder.name) / "results.jsonl"
        worker = Path(self._folder.name) / "worker.py"
        worker.write_text(WORKER)
        patches = [mock.patch.object(sentinel_command, "WORKER", worker), mock.patch.object(workers, "say")]
        for patch in patches:
            patch.start()
            self.addCleanup(patch.stop)

    def run_all(self, *arguments, **environment):
        argv = ["--results", str(self.results), "--timeout", "20", *arguments]
        parsed = sentinel_command.parse_arguments(argv)
        chosen, kinds = sentinel_command.choose(parsed, {}), sentinel_command.choose_kinds(parsed.rows)
        with mock.patch.dict(os.environ, environment):
            return sentinel_command.run_all(parsed, chosen, kinds)

    def test_every_row_has_figures(self):
        done = self.run_all("--sentinels", "vit-l16", "--fast", "--budgets", "2,4")
        self.assertEqual(sorted(key.split("/")[1] for key in done), sorted([
            "plain", "checkpoint@2", "checkpoint@4", "offload@2", "offload@4", "record", "moves@2", "moves@4",
            "budget@2", "budget@4",
        ]))
        job = done["vit-l16/budget@2/0"]["job"]
        self.assertEqual((job["plain_peak_bytes"], job["steps"], job["timed"], job["warmup_batch"]), (8, 5, 5, 2))
        self.assertEqual(job["plan_with"], "replan")
        self.assertEqual(job["costs"], str(self.results.resolve().parent / "vit-l16.mlir.gz"))

    def test_a_second_call_runs_only_what_failed(self):
        first = self.run_all("--sentinels", "resnet1001", "--fast", SKIP="offload", END="sys.exit('out of luck')")
        self.assertIn("out of luck", first["resnet1001/offload@32GB/0"]["error"])
        self.assertNotIn("error", first["resnet1001/plain/0"], "what was measured before the trouble counts")
        lines = len(self.results.read_text().splitlines())
        second = self.run_all("--sentinels", "resnet1001", "--fast")
        self.assertNotIn("error", second["resnet1001/offload@32GB/0"])
        self.assertEqual(len(self.results.read_text().splitlines()), lines + 1)

    def test_a_hanging_worker_is_stopped(self):
        done = self.run_all("--sentinels", "resnet1001", "--rows", "record", "--fast", "--timeout", "2", SKIP="record",
                            END="time.sleep(60)")
        self.assertIn("stopped after 2 s", done["resnet1001/record/0"]["error"])

    def test_a_silent_worker_is_an_error(self):
        done = self.run_all("--sentinels", "resnet1001", "--rows", "record", "--fast", SKIP="record")
        self.assertIn("no figures", done["resnet1001/record/0"]["error"])

    def test_shares_without_a_peak_are_errors_that_say_so(self):
        done = self.run_all("--sentinels", "vit-l16", "--rows", "budget", "--budgets", "2", "--fast")
        self.assertIn("no plain row", done["vit-l16/budget@2/0"]["error"])

    def test_nothing_is_started_after_the_limit(self):
        self.assertEqual(self.run_all("--fast", "--stop-after", "-1"), {})


class Remedies(unittest.TestCase):
    def test_as_few_blocks_as_the_budget_asks_for(self):
        peaks = [100 - 4 * count for count in range(25)]
        for budget in (100, 99, 61, 60, 4):
            count = remedies.fewest_blocks(24, lambda k: peaks[k], budget)
            self.assertLessEqual(peaks[count], budget)
            self.assertTrue(count == 0 or peaks[count - 1] > budget)

    def test_all_blocks_where_even_those_do_not_suffice(self):
        self.assertEqual(remedies.fewest_blocks(24, lambda k: 100 - k, 10), 24)

    def test_no_peak_is_measured_twice(self):
        asked = []
        peak_of = remedies.remembered(lambda count: asked.append(count) or 100 - count)
        for budget in (99, 90, 80, 10):
            remedies.fewest_blocks(64, peak_of, budget)
        self.assertEqual(len(asked), len(set(asked)))
        self.assertLess(len(asked), 20)

    def test_rows_by_hand_checkpoint_their_share_of_the_blocks(self):
        def counts(blocks):
            return [sentinels.checkpointed_blocks(kind, blocks) for kind in sentinels.PLANNED]

        self.assertEqual(sentinels.PLANNED, ("moves", "hand25", "hand50", "hand75", "hand100", "budget"))
        self.assertEqual(counts(24), [0, 6, 12, 18, 24, 0])
        self.assertEqual(counts(5), [0, 1, 2, 3, 5, 0])


class Block:
    def forward(self, value):
        return value + 1


class Worker(unittest.TestCase):
    """What needs no more of PyTorch than its name."""

    def setUp(self):
        names = ("torch", "torch.utils", "torch.utils.checkpoint", "pumpgraph", "training")
        path = mock.patch.object(sys, "path", list(sys.path))  # the worker adds to it
        for patch in (mock.patch.dict(sys.modules, {name: mock.MagicMock() for name in names}), path):
            patch.start()
            self.addCleanup(patch.stop)
        sys.modules["torch.utils.checkpoint"].checkpoint = lambda forward, value, **_: -forward(value)
        self.worker = importlib.import_module("sentinel_worker")
        self.addCleanup(sys.modules.pop, "sentinel_worker")

    def test_named_arguments_reach_a_block(self):
        class Scaled:
            def forward(self, value, scale):
                return value * scale

        block, kept = Scaled(), mock.MagicMock()
        sys.modules["torch.utils.checkpoint"].checkpoint = \
            lambda forward, value, use_reentrant, preserve_rng_state, **named: -forward(value, **named)
        with mock.patch.dict(sys.modules, {"torch.autograd": mock.MagicMock(), "torch.autograd.graph": kept}):
            for remedy, expected in (("checkpoint", -6), ("offload", 6)):
                with remedies.applied(remedy, [block]):
                    self.assertEqual(block.forward(2, scale=3), expected)

    def test_only_the_given_blocks_checkpoint_and_only_inside(self):
        blocks = [Block() for _ in range(3)]
        with remedies.applied("checkpoint", blocks[:2]):
            self.assertEqual([block.forward(1) for block in blocks], [-2, -2, 2])
        self.assertEqual([block.forward(1) for block in blocks], [2, 2, 2])

    def captured(self, kind):
        """How many blocks checkpoint while the step is captured, and whether the plan may run nodes again."""
        blocks, counts = [Block() for _ in range(8)], []

        def capture(*_, **__):
            results = [block.forward(1) for block in blocks]
            counts.append(results.index(2) if 2 in results else len(results))
            return mock.MagicMock()  # its report has a reason to refuse it

        job = {"costs": "/nowhere", "plan_with": "replan", "warmup_batch": 2}
        with mock.patch.object(self.worker, "Trained") as trained, \
                mock.patch.object(self.worker.pumpgraph, "capture", capture), \
                mock.patch.object(self.worker.pumpgraph, "install") as install:
            trained.return_value.blocks = blocks
            self.assertIn("refused", self.worker.run_pumpgraph(job, VIT, GIB, kind))
        return (*counts, install.call_args[1]["rematerialize"])

    def test_only_rows_with_everything_on_may_run_nodes_again(self):
        self.assertEqual(self.captured("budget"), (0, "automatic"))
        self.assertEqual(self.captured("moves"), (0, "never"))

    def test_rows_by_hand_are_plans_of_a_program_with_checkpoints(self):
        self.assertEqual([self.captured(kind) for kind in sentinels.BY_HAND],
                         [(2, "never"), (4, "never"), (6, "never"), (8, "never")])


class Tables(unittest.TestCase):
    def test_a_complete_table_keeps_every_promise(self):
        self.assertEqual(broken(complete()), [])
        self.assertEqual(len(list(sentinel_table.checks([VIT], complete()))), 1 + 1 + 4 * (1 + 2 + 1) + 1)
        self.assertTrue(sentinel_table.all_kept([VIT], complete()))

    def test_each_promise_can_break(self):
        half, row = "vit-l16/budget@2/0", lambda done: done["vit-l16/budget@2/0"]
        refused = complete()
        refused[half] = {"refused": "node 7 needs 9 GiB"}
        slow = without_moves(changed(half, ["step_ms"], [240.0] * 9))
        slow["vit-l16/budget@2/0"]["report"]["predicted_s"] = 0.240
        hidden = complete()
        for budget in VIT.budgets[:3]:
            hidden["vit-l16/plain/0"]["step_ms"] = hidden["vit-l16/plain/1"]["step_ms"] = [199.0]
        unsound = without_moves(changed("vit-l16/bounds@2/0", ["lp_may_s"], 0.250))
        for expected, done in {
            "does not agree": changed("vit-l16/plain/1", ["losses"], ["0x1p+0"]),
            "in 15 of 16 runs": changed("vit-l16/budget@3/1", ["losses"], ["0x1p+0", "0x1p+0"]),
            "at 1/2: refused: node 7": refused,
            "1.200 of the best bound": slow,
            "-9.3 % of the prediction": changed(half, ["report", "predicted_s"], 0.225),
            "0.816 of its bound": unsound,
            "not planned again: no memory": changed(half, ["replan_failed"], "no memory"),
            "1 MiB over the budget": changed(half, ["peak_bytes"], row(complete())["budget_bytes"] + 2**20),
            "in 0 of 4 rows the bound of moves alone is": hidden,
        }.items():
            self.assert_broken(expected, done)

    def test_peaks_within_the_budget_are_told(self):
        told = ", its peak within the budget."
        self.assertIn(told, sentinel_table.markdown([VIT], complete()))
        over = changed("vit-l16/budget@2/0", ["peak_bytes"], 64 * GIB)
        self.assertNotIn(told, sentinel_table.markdown([VIT], over))

    def assert_broken(self, expected, done):
        """That alone."""
        with self.subTest(expected=expected):
            self.assertEqual(len(broken(done)), 1, broken(done))
            self.assertIn(expected, broken(done)[0])
            self.assertFalse(sentinel_table.all_kept([VIT], done))

    def test_each_promise_of_moves_alone_can_break(self):
        moves, row = "vit-l16/moves@2/0", lambda done: done["vit-l16/moves@2/0"]
        refused = complete()
        refused[moves] = refused["vit-l16/moves@2/1"] = {"refused": "node 7 needs 9 GiB"}
        for expected, done in {
            "in 15 of 16 runs": changed("vit-l16/moves@3/1", ["losses"], ["0x1p+0", "0x1p+0"]),
            "at 1/2, moves alone: refused: node 7": refused,
            "at 1/2, moves alone: 1.100 of the best bound (at most 1.05); it waits for": slow_moves(220.0, 0.220),
            "at 1/2, moves alone: 0.824 of its bound": changed("vit-l16/bounds@2/0", ["lp_may_s"], 0.250,
                                                               running_again()),
            "at 1/2, moves alone: +14.4 % of the prediction": slow_moves(206.0, 0.180),
            "at 1/2, moves alone: not planned again": changed(moves, ["replan_failed"], "no memory"),
            "at 1/2, moves alone: 1 MiB over": changed(moves, ["peak_bytes"], row(complete())["budget_bytes"] + 2**20),
        }.items():
            self.assert_broken(expected, done)

    def test_everything_on_is_no_slower_than_what_else_there_is(self):
        fast = changed("vit-l16/checkpoint@2/0", ["step_ms"], [197.0])
        for expected, done in {
            "vit-l16 at 1/2: 1.036 of the time of checkpointing (at most 1.03)": fast,
            "vit-l16 at 1/2: 1.005 of the time of moves alone (at most 1.00)": slow_moves(203.0),
            "at 1/2: 1.005 of the time of the best checkpointed by hand (at most 1.00)": by_hand(hand25=230.0,
                                                                                                 hand75=203.0),
        }.items():
            self.assert_broken(expected, done)
        self.assertEqual(broken(by_hand(hand50=204.0)), [])
        kept = (True, "vit-l16 at 1/2: 1.000 of the time of the best checkpointed by hand (at most 1.00)")
        self.assertIn(kept, list(sentinel_table.checks([VIT], by_hand(hand50=204.0))))

    def test_an_unseen_model_may_take_a_little_longer(self):
        for step, kept in ((195.0, True), (194.0, False)):
            done = complete_unseen(hand25=230.0, hand75=step)
            line = f"swin-s at 1/3: {204 / step:.3f} of the time of the best checkpointed by hand (at most 1.05)"
            self.assertIn((kept, line), list(sentinel_table.checks([SWIN], done)))
            self.assertEqual(f"* BROKEN: {line}\n" in sentinel_table.markdown([SWIN], done), not kept)
            self.assertEqual(sentinel_table.all_kept([SWIN], done), kept)

    def test_checkpointing_over_the_budget_is_nothing_to_compare_with(self):
        size = HALF.bytes_of(16 * GIB)
        done = changed("vit-l16/checkpoint@2/0", ["step_ms"], [130.0])
        self.assertEqual(len(broken(done)), 1)
        done["vit-l16/checkpoint@2/0"]["peak_bytes"] = size + 1
        self.assertEqual(broken(done), [])
        self.assertIn("| 2.04 (2.06, 2.40) | 2.04 (2.06) |", sentinel_table.markdown([VIT], done))

    def test_the_fastest_row_by_hand_is_shown(self):
        text = sentinel_table.markdown([VIT], by_hand(hand25=230.0, hand50=212.0, hand100=221.0))
        self.assertIn("| 206.0, 1.030 of 200.0 (LP), +2.0 % | 212.0 (50 % of the blocks) |\n", text)
        self.assertNotIn("by hand", sentinel_table.markdown([VIT], complete()))

    def test_no_linear_bound_counts_for_a_plan_that_runs_nodes_again(self):
        done = changed("vit-l16/bounds@2/0", ["lp_predicted_s"], 0.202, running_again())
        text = sentinel_table.markdown([VIT], done)
        self.assertIn("| 204.0 (203.0-205.0) | 3, 4.0 | 190.0; 1.074 |", text)
        self.assertIn("| 206.0, 1.030 of 200.0 (LP); hosting as predicted 202.0, +2.0 % |", text,
                      "that of moves alone goes on")
        self.assertEqual(broken(done), [], "nor does it have to come close to its window bound")
        done["vit-l16/budget@2/0"]["report"]["repeated"] = {"nodes": 0, "time_s": 0.0, "bytes": 0}
        self.assertIn("| - | 200.0 (LP); hosting as predicted 202.0; 1.020 |",
                      sentinel_table.markdown([VIT], done), "a plan that may and does not is one of moves")

    def test_a_bound_without_a_row_is_none_of_it(self):
        done = {key: figures for key, figures in complete().items() if "/budget@2/" not in key}
        text = sentinel_table.markdown([VIT], done)
        self.assertIn("| 206.0, 1.030 of 200.0 (LP), +2.0 % |\n", text)
        self.assertIn("| vit-l16 | 1/3 | ", text)
        self.assertNotIn("| vit-l16 | 1/2 | ", text)
        self.assertIn("| 2.04 (2.06, 2.40) | - (2.06, 2.40) |", text)

    def test_compute_is_compared_with_the_bound_of_moves_alone(self):
        done = running_again()
        self.assertIn("in 4 of 4 rows the bound of moves alone is 1.3 x", sentinel_table.markdown([VIT], done))
        text = sentinel_table.markdown([VIT], without_moves(done))
        self.assertIn("in 3 of 3 rows the bound of moves alone is 1.3 x", text)

    def test_a_mistaken_prediction_is_told_beside_what_was_known_later(self):
        plans = [{"predicted_again_s": None}, {"predicted_again_s": 0.200}]
        done = changed("vit-l16/budget@2/0", ["report", "predicted_s"], 0.225)
        done["vit-l16/budget@2/0"]["report"]["runtime"] = {"plans": plans}
        self.assertIn("| 225.0 (200.0); -9.3 |", sentinel_table.markdown([VIT], done))
        self.assertEqual(len(broken(done)), 1)
        self.assertIn("at most 5 %); +2.0 % with the node times that were measured on it", broken(done)[0])

    def test_a_first_plan_that_was_kept_is_held_against_its_node_times(self):
        done = changed("vit-l16/budget@2/0", ["report", "predicted_s"], 0.150)
        done["vit-l16/budget@2/0"]["report"]["predicted_again_s"] = 0.200
        self.assertEqual(len(broken(done)), 1, "a second plan had node times of its own")
        done["vit-l16/budget@2/0"]["replanned"]["kept_first"] = True
        self.assertEqual(broken(done), [])
        self.assertIn("| 150.0 (200.0); +2.0 |", sentinel_table.markdown([VIT], done))
        done["vit-l16/budget@2/0"]["report"]["predicted_again_s"] = 0.180
        self.assertEqual(broken(done), ["vit-l16 at 1/2: +13.3 % of the prediction (at most 5 %)"])
        del done["vit-l16/budget@2/0"]["report"]["predicted_again_s"]
        self.assertEqual(broken(done), ["vit-l16 at 1/2: +36.0 % of the prediction (at most 5 %)"])

    def test_a_slow_row_names_its_stalls(self):
        done = changed("vit-l16/budget@2/0", ["step_ms"], [240.0] * 9)
        self.assertIn("waits for \"blocks.3.up output\" 12.3 ms", "\n".join(broken(done)))

    def test_equal_losses_that_are_no_numbers_keep_nothing(self):
        done = complete()
        for figures in done.values():
            if "losses" in figures:
                figures["losses"] = ["nan", "nan"]
        self.assertTrue(any("not all of them numbers" in text for text in broken(done)))

    def test_the_higher_bound_counts_and_is_named(self):
        self.assertIn("| 200.0 (LP); 1.020 |", sentinel_table.markdown([VIT], complete()))
        done = changed("vit-l16/bounds@2/0", ["lp_may_s"], 0.100)
        self.assertIn("| 190.0; 1.074 |", sentinel_table.markdown([VIT], done))

    def test_a_bound_with_hosted_operands_is_another_one(self):
        done = changed("vit-l16/bounds@2/0", ["lp_predicted_s"], 0.202)
        self.assertIn("| 200.0 (LP); hosting as predicted 202.0; 1.020 |", sentinel_table.markdown([VIT], done))
        done["vit-l16/bounds@2/0"] = {"lp_may_s": 0.190, "lp_predicted_s": 0.200}
        self.assertTrue(any("1.074 of the best bound (at most 1.05); 1.020 of the bound with hosted operands as "
                            "predicted; " in text for text in broken(done)))

    def test_markdown(self):
        text = sentinel_table.markdown([VIT], complete())
        # Both ways together 80 GB/s: 16 GB take 200 ms, twice the step in memory.
        row = ("| vit-l16 | 1/2: 8.00 | 240.0 (8.00; 7/24) | 130.0 (8.00, over; 7/24) | 206.0, "
               "1.030 of 200.0 (LP), +2.0 % |\n")
        self.assertIn(row, text)
        row = ("| vit-l16 | 1/2 | 204.0 (203.0-205.0) | - | 200.0 (LP); 1.020 | 202.0; +1.0 | "
               "210.0 (150.0) | 0.50 |")
        self.assertIn(row, text)
        self.assertIn("| ViT-L/16, bf16, batch 64 | 16.00 | 100.0 | 2.04 (2.06, 2.40) | 2.04 (2.06, 2.40) |", text)
        for table in text.split("\n\n"):
            widths = {line.count("|") for line in table.splitlines() if line.startswith("|")}
            self.assertLessEqual(len(widths), 1, "the table's rows differ in length")

    def test_rows_as_fast_as_promised_are_counted(self):
        done = changed("vit-l16/budget@2/0", ["step_ms"], [216.0] * 9)
        done["vit-l16/budget@3/0"]["report"]["predicted_s"] = 0.180
        done["vit-l16/budget@4/0"] = {"refused": "node 7 needs 9 GiB"}
        slow_moves(216.0, 0.220, done)
        text = sentinel_table.markdown([VIT], done)
        self.assertIn("\n\nOf 3 rows 2 are within 1.05 of their best bound, 3 within 1.1, and 1 within 5 % of the "
                      "prediction. The worst takes 1.080 of its bound: vit-l16 at 1/2.\n\n", text)
        self.assertIn("\n\nOf 4 rows of moves alone 3 are within 1.05 of their best bound, 4 within 1.1, and 4 within "
                      "5 % of the prediction. The worst takes 1.080 of its bound: vit-l16 at 1/2.\n\n", text)

    def test_budgets_without_another_way_are_left_to_the_summary(self):
        done = {key: figures for key, figures in complete().items()
                if not key.startswith(("vit-l16/checkpoint@3", "vit-l16/offload@3"))}
        self.assertNotIn("| vit-l16 | 1/3: ", sentinel_table.markdown([VIT], done))
        done["vit-l16/moves@3/0"] = {"refused": "node 7 needs 9 GiB"}
        self.assertIn("| vit-l16 | 1/3: ", sentinel_table.markdown([VIT], done))

    def test_what_is_missing_is_a_dash_and_what_failed_is_named(self):
        done = {"vit-l16/budget@2/0": {"error": "exit status 1: boom"}}
        text = sentinel_table.markdown([VIT], done)
        self.assertIn("| vit-l16 | 1/2 | - | - | - |", text)
        self.assertIn("NOT RUN: vit-l16/budget@2/0: exit status 1: boom", text)
        self.assertFalse(sentinel_table.all_kept([VIT], done))

    def test_a_refused_row_says_why(self):
        done = complete()
        done["vit-l16/budget@4/0"] = {"refused": "node 7 \"conv\" needs 9 GiB"}
        text = sentinel_table.markdown([VIT], done)
        self.assertIn("refused: node 7 \"conv\" needs 9 GiB | - |", text)
        self.assertIn("| 2.04 (2.06, 2.40) | refused (2.06, 2.40) |", text)
        done["vit-l16/moves@4/0"] = done["vit-l16/moves@4/1"] = {"refused": "node 7 \"conv\" needs 9 GiB"}
        text = sentinel_table.markdown([VIT], done)
        self.assertIn("| 2.04 (2.06, 2.40) | refused (refused, 2.40) |", text)
        self.assertIn("| refused |\n", text)
        self.assertIn("| 1/4 | refused: node 7", text)

    def test_a_first_plan_that_was_kept_says_so(self):
        done = changed("vit-l16/budget@2/0", ["replanned", "kept_first"], True)
        self.assertIn("| 210.0 (150.0, kept) |", sentinel_table.markdown([VIT], done))
        del done["vit-l16/budget@2/0"]["replanned"]
        self.assertIn("| 202.0; +1.0 | - | 0.50 |", sentinel_table.markdown([VIT], done))

    def test_one_models_rows_are_not_another_ones(self):
        done = complete()
        done["vit-l16-other/budget@2/0"] = {"error": "boom"}
        self.assertTrue(sentinel_table.all_kept([VIT], done))


class Beyond(unittest.TestCase):
    def test_a_complete_row_keeps_every_promise(self):
        self.assertEqual(broken(complete_beyond(), [BEYOND]), [])
        self.assertEqual(len(list(sentinel_table.checks([BEYOND], complete_beyond()))), 3)
        self.assertIn("| PumpGraph, 120GiB | 1500.0", sentinel_table.markdown([BEYOND], complete_beyond()))

    def test_each_promise_can_break(self):
        planned = "beyond-card/budget@120GiB/0"
        fits = complete_beyond()
        fits["beyond-card/plain/0"] = fits["beyond-card/micro/0"]
        refused = complete_beyond()
        refused[planned] = {"refused": "too much"}
        for expected, done in {
            "runs out of device memory": fits,
            "refused: too much": refused,
            "by 3.3e-01": changed(planned, ["losses"], ["0x1.0p+1", "0x1.0p+1"], complete_beyond()),
            "by inf": changed(planned, ["losses"], ["nan", "0x1.0p+1"], complete_beyond()),
            "peak 121.00 GiB": changed(planned, ["peak_bytes"], 121 * GIB, complete_beyond()),
        }.items():
            with self.subTest(expected=expected):
                self.assertEqual(len(broken(done, [BEYOND])), 1, broken(done, [BEYOND]))
                self.assertIn(expected, broken(done, [BEYOND])[0])

    def test_nothing_to_compare_is_no_agreement(self):
        self.assertEqual(sentinel_table.largest_difference([], []), float("inf"))
        self.assertEqual(sentinel_table.largest_difference(["0x1p+0"], ["0x1p+0", "0x1p+0"]), float("inf"))


class Kept(unittest.TestCase):
    """Results of which only what the tables read is left."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.file = Path(folder.name) / "kept.jsonl"

    def keep(self, done, chosen=(VIT,)):
        sentinel_kept.keep(done, chosen, self.file)
        return runs.load(self.file)

    def test_the_tables_are_the_same(self):
        slow = changed("vit-l16/budget@2/0", ["step_ms"], [240.0] * 9)
        different = changed("vit-l16/budget@3/0", ["losses"], ["nan", "nan"])
        refused = changed("vit-l16/budget@4/0", ["replan_failed"], "no memory", complete())
        refused["vit-l16/budget@3/0"] = refused["vit-l16/budget@3/1"] = {"refused": "node 7 needs 9 GiB"}
        failed = changed("vit-l16/plain/1", ["losses"], ["0x1p+0"])
        failed["vit-l16/checkpoint@2/0"] = {"error": "stopped after 9 s"}
        again = running_again(by_hand(hand50=201.0, hand100=190.0))
        again["vit-l16/budget@2/0"]["replanned"]["kept_first"] = True
        again["vit-l16/budget@2/0"]["report"]["runtime"] = {"plans": [{"predicted_again_s": 0.203}]}
        for done, sentinel in ((complete(), VIT), (slow, VIT), (different, VIT), (refused, VIT), (failed, VIT),
                               (again, VIT), (complete_beyond(), BEYOND), (complete_unseen(hand50=194.0), SWIN)):
            self.file.unlink(missing_ok=True)
            kept = self.keep(done, [sentinel])
            self.assertEqual(sentinel_table.markdown([sentinel], kept), sentinel_table.markdown([sentinel], done))
            self.assertEqual(self.keep(kept, [sentinel]), kept, "what was kept is kept as it is")

    def test_little_is_kept(self):
        kept = self.keep(complete())
        self.assertNotIn("vit-l16/record/0", kept)
        self.assertNotIn("losses", kept["vit-l16/budget@2/0"])
        self.assertNotIn("machine", kept["vit-l16/budget@2/0"]["report"])
        self.file.unlink()
        self.assertEqual(self.keep(complete(), [STUDY]), {})

    def test_a_new_run_replaces_all_earlier_ones_of_its_row(self):
        before = self.keep(complete())
        new = {key: figures for key, figures in complete().items()
               if key in ("vit-l16/plain/0", "vit-l16/budget@2/0", "vit-l16/budget@3/0")}
        new["vit-l16/budget@2/0"]["step_ms"] = [300.0]
        new["vit-l16/budget@3/0"] = {"error": "stopped after 9 s"}
        after = self.keep(new)
        self.assertEqual(set(before) - set(after), {"vit-l16/plain/1", "vit-l16/budget@2/1"})
        self.assertEqual(after["vit-l16/budget@2/0"]["step_ms"], [300.0])
        self.assertEqual(after["vit-l16/budget@3/0"], before["vit-l16/budget@3/0"], "a failure replaces no result")

    def test_losses_are_compared_with_those_of_the_same_day(self):
        self.keep(complete())
        new = {key: figures for key, figures in complete().items() if key in ("vit-l16/plain/0", "vit-l16/budget@2/0")}
        for figures in new.values():
            figures["losses"] = ["0x1p+3"]
        text = sentinel_table.markdown([VIT], self.keep(new))
        self.assertIn("* kept: vit-l16: 1 to 2 losses are the unmodified step's in 15 of 15 runs", text)
        new["vit-l16/budget@2/0"]["losses"] = ["0x1p+4"]
        self.assertIn("in 14 of 15 runs", "\n".join(broken(self.keep(new))))

    def test_a_row_without_anything_to_compare_is_not_kept(self):
        before = self.keep(complete())
        with self.assertRaisesRegex(ValueError, "vit-l16/budget@2/0: no plain row"):
            self.keep({"vit-l16/budget@2/0": complete()["vit-l16/budget@2/0"]})
        self.assertEqual(runs.load(self.file), before)

    def test_nothing_is_measured_into_a_kept_file(self):
        self.keep(complete())
        with self.assertRaisesRegex(SystemExit, "holds kept rows"):
            sentinel_command.main(["--results", str(self.file), "--stop-after", "-1"])

    def test_the_document_shows_what_is_kept(self):
        docs = support.ROOT / "docs"
        done = runs.load(docs / "results" / "sentinels.jsonl")
        shown_there = sentinels.unnamed(done)
        text = sentinel_table.markdown(shown_there, done)
        shown = (docs / "results" / "sentinels.md").read_text()
        self.assertEqual(shown[shown.index(text.splitlines()[0]):], text)
        self.assertEqual((docs / "images" / "sentinels.svg").read_text(), sentinel_plot.svg(shown_there, done))


class Plot(unittest.TestCase):
    def marks(self, done, tag):
        root = xml.dom.minidom.parseString(sentinel_plot.svg([VIT, BEYOND], done))
        return [mark for mark in root.getElementsByTagName(tag) if mark.getAttribute("class")]

    def bars(self, done):
        return [bar.getAttribute("class") for bar in self.marks(done, "rect")]

    def ticks(self, done):
        return [line for line in self.marks(done, "line") if line.getAttribute("class") == "checkpoint"]

    def test_a_bar_for_each_measured_row(self):
        self.assertEqual(self.bars(complete()), ["bar moves", "bar"] * 4)
        self.assertEqual(self.bars(without_moves(complete())), ["bar"] * 4)
        self.assertEqual(self.bars({key: figures for key, figures in complete().items() if "/budget@" not in key}),
                         ["bar moves"] * 4)
        self.assertEqual(self.bars({}), [])

    def test_a_row_over_what_is_allowed_has_another_colour(self):
        self.assertEqual(self.bars(changed("vit-l16/budget@2/0", ["step_ms"], [240.0] * 9)).count("bar over"), 1)
        self.assertEqual(self.bars(changed("vit-l16/checkpoint@2/0", ["step_ms"], [150.0])).count("bar over"), 1)
        self.assertEqual(self.bars(slow_moves(220.0)).count("bar moves over"), 1)
        slower_than_window = self.bars(running_again())
        self.assertEqual([kind for kind in slower_than_window if "over" in kind], [])

    def test_bars_are_as_high_as_the_step_is_long(self):
        done = changed("vit-l16/budget@2/0", ["step_ms"], [100.0] * 9)
        done["vit-l16/budget@2/1"]["step_ms"] = [100.0] * 9
        heights = [float(bar.getAttribute("height")) for bar in self.marks(done, "rect")]
        widths = [float(bar.getAttribute("width")) for bar in self.marks(done, "rect")]
        self.assertEqual(heights[3], 1.0, "as fast as in memory")
        self.assertGreater(heights[0], heights[1])
        self.assertGreater(widths[0], widths[1])

    def test_a_tick_where_checkpointing_reaches_the_budget(self):
        self.assertEqual(len(self.ticks(complete())), 4)
        over = changed("vit-l16/checkpoint@2/0", ["peak_bytes"], 16 * GIB)
        self.assertEqual(len(self.ticks(over)), 3)
        bars = self.marks(complete(), "rect")
        self.assertLess(float(self.ticks(complete())[0].getAttribute("y1")), float(bars[0].getAttribute("y")),
                        "240 ms are above 206")


class Bounds(unittest.TestCase):
    def missing(self, done, folder):
        """The keys, and the predictions of the rows whose reports are looked at."""
        steps, say = {"vit-l16": Path(folder) / "vit-l16.mlir.gz"}, mock.Mock()
        with mock.patch.object(sentinel_bounds, "compute", return_value={"lp_may_s": 0.1}) as compute:
            keys = [key for key, _ in sentinel_bounds.missing_bounds([VIT], done, steps, Path("/none"), say)]
        return keys, [call[0][1]["predicted_s"] for call in compute.call_args_list]

    def test_only_rows_that_ran_and_lack_a_bound_get_one(self):
        done = slow_moves(206.0, 0.207)
        for key in ("bounds@3/0", "bounds@4/0", "moves@4/0", "budget@4/0"):
            del done[f"vit-l16/{key}"]
        done["vit-l16/bounds@2/0"] = {"error": "the solver gave up"}
        with tempfile.TemporaryDirectory() as folder:
            self.assertEqual(self.missing(done, folder), ([], []), "there is no recorded step")
            (Path(folder) / "vit-l16.mlir.gz").touch()
            self.assertEqual(self.missing(done, folder), (["vit-l16/bounds@2/0", "vit-l16/bounds@3/0"], [0.207, 0.202]))

    def test_a_plan_that_runs_nodes_again_gets_none(self):
        done = without_moves(running_again())
        for budget in VIT.budgets:
            del done[f"vit-l16/bounds@{budget.name}/0"]
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "vit-l16.mlir.gz").touch()
            others = [f"vit-l16/bounds@{name}/0" for name in ("1.5", "3", "4")]
            self.assertEqual(self.missing(done, folder)[0], others, "older files have budget rows alone")

    def test_a_tool_that_fails_is_an_error_of_the_bound(self):
        with tempfile.TemporaryDirectory() as folder, mock.patch.dict(sys.modules, lp_bound=mock.Mock()):
            tool = Path(folder) / "tool"
            tool.write_text("#!/bin/sh\necho no such step >&2\nexit 1\n")
            tool.chmod(0o755)
            report = complete()["vit-l16/budget@2/0"]["report"]
            self.assertEqual(sentinel_bounds.compute(Path("step"), report, tool), {"error": "tool: no such step"})


class CommandLine(unittest.TestCase):
    def test_the_link_is_settled_when_the_library_says_so(self):
        header = (support.ROOT / "runtime" / "link" / "Link.h").read_text()
        wanted = re.search(r"wantedMeasurements = (\d+);", header)
        self.assertEqual(settle_link.SESSIONS, int(wanted[1]))

    def run_bench(self, *arguments):
        return subprocess.run([sys.executable, str(BENCH), *arguments], capture_output=True, text=True)

    def table(self, done, *arguments):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "results.jsonl"
            path.write_text("".join(json.dumps({"key": key, "figures": entry}) + "\n" for key, entry in done.items()))
            return self.run_bench("--sentinels", "vit-l16", "--from", str(path), *arguments)

    def test_tables_and_plot_from_a_file(self):
        with tempfile.TemporaryDirectory() as folder:
            plot, copied = Path(folder) / "plot.svg", Path(folder) / "table.md"
            result = self.table(complete(), "--svg", str(plot), "--output", str(copied))
            self.assertEqual(result.returncode, 0, result.stderr)
            self.assertEqual(copied.read_text(), result.stdout)
            self.assertIn("<svg", plot.read_text())

    def test_a_broken_promise_is_exit_status_1(self):
        result = self.table(changed("vit-l16/budget@2/0", ["losses"], ["0x0p+0"]))
        self.assertEqual(result.returncode, 1)
        self.assertIn("* BROKEN:", result.stdout)

    def test_rows_of_models_that_are_not_named_are_shown(self):
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "results.jsonl"
            file.write_text("".join(json.dumps({"key": key, "figures": figures}) + "\n"
                                    for key, figures in complete_unseen(hand50=200.0).items()))
            text = self.run_bench("--sentinels", "--from", str(file)).stdout
        self.assertIn("| swin-s | 1/3: 5.33 |", text)
        self.assertIn("| ViT-L/16, bf16, batch 64 | - |", text)
        self.assertNotIn("Llama", text)

    def test_a_library_that_is_not_there_is_named(self):
        with tempfile.TemporaryDirectory() as folder, \
                mock.patch.object(importlib.util, "find_spec", lambda name: None), \
                mock.patch.object(sentinel_command, "run_all") as ran:
            results = ["--results", str(Path(folder) / "results.jsonl")]
            for name, library in (("llama-336m", "transformers"), ("swin-s", "torchvision")):
                with self.assertRaisesRegex(SystemExit, f"{name} needs {library}, which .* does not have"):
                    sentinel_command.main(["--sentinels", f"vit-l16,{name}", *results])
            ran.assert_not_called()

    def test_unknown_names_are_refused(self):
        for arguments in (["--sentinels", "bert"], ["--sentinels", "--rows", "full"], ["--sentinels", "--budgets", "9"],
                          ["--sentinels", "--from", "/nowhere"]):
            result = self.run_bench(*arguments)
            self.assertEqual(result.returncode, 1)
            self.assertIn("error:", result.stderr)

    def test_the_examples_stay_what_runs_without_the_option(self):
        self.assertIn("--examples", self.run_bench("--help").stdout)
        self.assertIn("--warmup-batch", self.run_bench("--sentinels", "--help").stdout)

    def test_a_stalled_line_is_no_result(self):
        with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as file:
            file.write("{\"key\": \"vit-l16/plain/0\", \"fig")
            file.flush()
            self.assertEqual(runs.load(Path(file.name)), {})


if __name__ == "__main__":
    unittest.main()
