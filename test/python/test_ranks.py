# SPDX-License-Identifier: Apache-2.0
"""Decisions that ranks take alike: in simulated schedules, and among processes."""

import collections
import contextlib
import multiprocessing
import os
import random
import signal
import sys
import threading
import time
import unittest

import support  # noqa: F401  # finds the package

from pumpgraph import PumpGraphError, Status, UnsupportedError
from pumpgraph.errors import is_shortage
from pumpgraph.ranks import Collective, Decision, Ranks, Vote, Wish, first_difference, outcome_of
from rank_stores import LastWriterWins, ServedStore, Server, SimulatedRank, Values, simulate, texts_read_once

RANKS, TIMEOUT_S, LATENCY_S = 3, 2.0, 0.02
TOPICS = ("capture", "plan", "replay")
MOST_CALLS = 40  # of the store, in one decision
FAULTS = ("none", "refuses", "dies", "is slow")


def votes_to_go():
    return [Vote(topic, "train") for topic in TOPICS]


# ---- drawn schedules -------------------------------------------------------------------------------------------------


class Schedule:
    """Three ranks that capture a step, one of which refuses, dies or is slow."""

    def __init__(self, seed, store):
        draw = random.Random(seed)
        self.fault, self.faulty = draw.choice(FAULTS), draw.randrange(RANKS)
        self.store = store
        options = {}
        votes = votes_to_go()
        if self.fault == "refuses":
            at = draw.randrange(len(votes))
            votes[at] = votes[at]._replace(wish=Wish.REFUSE, reason="a step that cannot be captured")
        elif self.fault == "dies":
            options = {"dies_at": draw.randint(1, 20)}
        elif self.fault == "is slow":
            options = {"slow_at": draw.randint(1, 20), "slow_s": draw.random() * 2.5 * TIMEOUT_S}
        self.ranks = [SimulatedRank(rank, RANKS, TIMEOUT_S, votes if rank == self.faulty else votes_to_go(),
                                    **(options if rank == self.faulty else {})) for rank in range(RANKS)]
        simulate(self.ranks, store, draw, LATENCY_S)

    def live(self):
        return [rank for rank in self.ranks if not rank.is_dead]

    def faults(self):
        """What is wrong with how it ended, as text."""
        for number in range(len(TOPICS)):
            decided = [rank.decisions[number] for rank in self.ranks if len(rank.decisions) > number]
            if len(set(decided)) > 1:
                yield f"decision {number} differs: {decided}"
        for rank in self.live():
            ended = rank.decisions and (len(rank.decisions) == len(TOPICS)
                                        or rank.decisions[-1].outcome is Wish.REFUSE)
            if not ended:
                yield "a live rank did not come to an end"
        yield from self._late()
        outcome = self.live()[0].decisions[-1].outcome
        if self.fault == "none" and outcome is not Wish.GO or self.fault == "refuses" and outcome is not Wish.REFUSE:
            yield f"one {self.fault}, and it ends with {outcome}"

    def _late(self):
        """Every rank has the decision a time-out after the first vote of a live rank, or after its own late vote."""
        steady = [rank for rank in self.live() if rank.slow_at is None]
        for number in range(len(TOPICS)):
            spans = [rank.spans[number] for rank in steady if len(rank.spans) > number]
            first = min((began for began, _ in spans), default=0.0)
            for began, ended in spans:
                if ended > max(first + TIMEOUT_S, began) + MOST_CALLS * LATENCY_S:
                    yield f"decision {number} came {ended - first:.1f} s after the first vote"


class Schedules(unittest.TestCase):
    def setUp(self):
        texts = texts_read_once()
        texts.__enter__()
        self.addCleanup(texts.__exit__, None, None, None)

    def test_ten_thousand(self):
        ends = collections.Counter()
        for seed in range(10_000):
            schedule = Schedule(seed, Values())
            faults = list(schedule.faults())
            self.assertEqual(faults, [], f"seed {seed}: rank {schedule.faulty} {schedule.fault}")
            last = schedule.live()[0].decisions[-1]
            ends[schedule.fault, last.outcome, last.by >= 0] += 1
            if not schedule.ranks[0].is_dead:  # it deletes what all have read
                self.assertLessEqual(len(schedule.store.values), 2 * (RANKS + 1))
        for end in (("none", Wish.GO, False), ("refuses", Wish.REFUSE, True), ("dies", Wish.GO, False),
                    ("dies", Wish.REFUSE, False), ("is slow", Wish.GO, False), ("is slow", Wish.REFUSE, False)):
            self.assertGreater(ends[end], 300, ends)

    def test_decisions_that_are_overwritten_are_found_out(self):
        """The negative twin: without the first writer's decision, some schedule must end in disagreement."""
        found = (fault for seed in range(10_000) for fault in Schedule(seed, LastWriterWins()).faults())
        self.assertRegex(next(found, "none"), "differs")


# ---- what votes come to ----------------------------------------------------------------------------------------------


def all_reduce(size, *members):
    return Collective("all_reduce", "torch.float32", size, members)


def same_votes(**fields):
    return {rank: Vote("plan", "train", **fields) for rank in range(RANKS)}


class Outcomes(unittest.TestCase):
    def assert_refused(self, votes, pattern):
        decision = outcome_of(votes)
        self.assertIs(decision.outcome, Wish.REFUSE)
        self.assertRegex(decision.reason, pattern)
        return decision

    def test_all_go(self):
        self.assertEqual(outcome_of(same_votes()), Decision(Wish.GO))

    def test_one_leaves_it_as_captured(self):
        votes = same_votes()
        votes[1] = votes[1]._replace(wish=Wish.LEAVE, reason="node 3 is opaque")
        decision = outcome_of(votes)
        self.assertIs(decision.outcome, Wish.LEAVE)
        self.assertEqual(decision.reason, "rank 1 replays it as captured: node 3 is opaque")

    def test_one_refuses_and_another_leaves(self):
        votes = same_votes()
        votes[1] = votes[1]._replace(wish=Wish.LEAVE)
        votes[2] = votes[2]._replace(wish=Wish.REFUSE, reason="an .item() at train.py:9")
        decision = self.assert_refused(votes, "^rank 2 refuses step \"train\", so all ranks do: an .item")
        self.assertEqual(decision.by, 2)
        self.assertIsInstance(decision.error(), UnsupportedError)

    def test_a_lack_of_memory_is_one_on_all_ranks(self):
        votes = same_votes()
        votes[2] = votes[2]._replace(wish=Wish.REFUSE, reason="2 GiB needed", status=Status.OUT_OF_DEVICE_MEMORY)
        error = outcome_of(votes).error()
        self.assertTrue(is_shortage(error))
        self.assertEqual(error.status, Status.OUT_OF_DEVICE_MEMORY)

    def test_another_place(self):
        votes = same_votes()
        votes[1] = Vote("capture", "evaluate")
        self.assert_refused(votes, "rank 0 is at the plan of step \"train\", rank 1 at the capture of .*evaluate")

    def test_another_fact(self):
        votes = same_votes(facts={"calibrate": True})
        votes[2] = votes[2]._replace(facts={"calibrate": False})
        self.assert_refused(votes, "calibrate=True on rank 0 and calibrate=False on rank 2")

    def test_another_order(self):
        calls = (all_reduce(8, 0, 1, 2), all_reduce(16, 0, 1, 2))
        votes = same_votes(collectives=calls)
        votes[2] = votes[2]._replace(collectives=calls[::-1])
        self.assert_refused(votes, "collective 1 of those that rank 0 shares with rank 2 differs: on rank 0 it is "
                                   "all_reduce of 8 bytes of torch.float32 among ranks 0, 1, 2, on rank 2 it is "
                                   "all_reduce of 16 bytes")

    def test_one_less(self):
        votes = same_votes(collectives=(all_reduce(8, 0, 1, 2), all_reduce(16, 0, 1, 2)))
        votes[1] = votes[1]._replace(collectives=(all_reduce(8, 0, 1, 2),))
        self.assert_refused(votes, "collective 2 .* rank 1 calls no more")

    def test_groups_of_others_do_not_count(self):
        votes = {rank: Vote("plan", "train", collectives=(all_reduce(8, *pair), all_reduce(4, 0, 1, 2, 3)))
                 for pair in ((0, 1), (2, 3)) for rank in pair}
        self.assertEqual(outcome_of(votes), Decision(Wish.GO))

    def test_the_order_of_two_groups_counts_for_ranks_of_both(self):
        one, other = all_reduce(8, 0, 1, 2), all_reduce(8, 1, 2)
        votes = {0: Vote("plan", "train", collectives=(one,)), 1: Vote("plan", "train", collectives=(one, other)),
                 2: Vote("plan", "train", collectives=(other, one))}
        self.assertIn("rank 1 shares with rank 2", first_difference(votes))

    def test_another_number_of_calls(self):
        votes = same_votes(calls={(0, 1, 2): 4})
        votes[1] = votes[1]._replace(calls={(0, 1, 2): 3})
        self.assert_refused(votes, "rank 0 calls 4 collectives of ranks 0, 1, 2 .* rank 1 calls 3")

    def test_text_and_back(self):
        vote = Vote("plan", "train", Wish.LEAVE, "why", Status.UNPLANNABLE, {"calibrate": True},
                    (all_reduce(8, 0, 1), all_reduce(-1, 0, 1, 2)), {(0, 1): 2})
        self.assertEqual(Vote.from_text(vote.to_text().encode()), vote)
        decision = outcome_of({0: vote})
        self.assertEqual(Decision.from_text(decision.to_text().encode()), decision)

    def test_many_ranks_in_a_mesh(self):
        """Fast enough that nobody takes the rank that decides for one that has died."""
        def calls(rank):
            row, column = range(rank - rank % 8, rank - rank % 8 + 8), range(rank % 8, 256, 8)
            return (all_reduce(8, *row), all_reduce(8, *column)) * 100

        votes = {rank: Vote("plan", "train", collectives=calls(rank)) for rank in range(256)}
        began = time.process_time()
        self.assertEqual(first_difference(votes), "")
        self.assertLess(time.process_time() - began, 10)


# ---- processes -------------------------------------------------------------------------------------------------------


def take_part(address, rank, refuses_at, stops_at, pipe, timeout_s):
    """One rank: sends its decisions, as text. `stops_at`: the decision ahead of which it waits to be killed."""
    ranks = Ranks(ServedStore(address), rank, RANKS, timeout_s)
    for number, vote in enumerate(votes_to_go()):
        if number == stops_at:
            pipe.send("waits")
            time.sleep(600)
        if number == refuses_at:
            vote = vote._replace(wish=Wish.REFUSE, reason="an .item()")
        decision = ranks.decide(vote)
        pipe.send(decision.to_text())
        if decision.outcome is Wish.REFUSE:
            return


class Processes(unittest.TestCase):
    def run_ranks(self, refuses_at=None, stops_at=None, timeout_s=60.0):
        """What each rank has said until it ended. Rank 2 refuses, or waits at a decision and is killed."""
        server = Server()
        self.addCleanup(server.close)
        context = multiprocessing.get_context("spawn")
        pipes, processes = [], []
        for rank in range(RANKS):
            pipe, end = context.Pipe(duplex=False)
            faults = (refuses_at, stops_at) if rank == 2 else (None, None)
            process = context.Process(target=take_part, args=(server.address, rank, *faults, end, timeout_s))
            process.start()
            end.close()
            self.addCleanup(process.kill)
            pipes.append(pipe)
            processes.append(process)
        said = [self.read(pipe, process) for pipe, process in reversed(list(zip(pipes, processes)))]
        return said[::-1]

    def read(self, pipe, process):
        said = []
        with contextlib.suppress(EOFError):
            while pipe.poll(60):
                line = pipe.recv()
                if line == "waits":
                    os.kill(process.pid, signal.SIGKILL)
                else:
                    said.append(Decision.from_text(line))
        process.join(60)
        return said

    def test_all_go(self):
        said = self.run_ranks()
        self.assertEqual(said, [[Decision(Wish.GO)] * 3] * RANKS)

    def test_one_refuses(self):
        said = self.run_ranks(refuses_at=1)
        self.assertEqual([each[-1] for each in said], [said[2][-1]] * RANKS)
        self.assertRegex(said[0][-1].reason, "rank 2 refuses .* an .item")

    def test_one_is_killed(self):
        began = time.monotonic()
        said = self.run_ranks(stops_at=1, timeout_s=2.0)
        self.assertLess(time.monotonic() - began, 60)
        self.assertEqual(said[2], [Decision(Wish.GO)])
        self.assertEqual(said[0], said[1])
        self.assertRegex(said[0][-1].reason, "rank 2 has not come to the plan of step \"train\" within 2 s")

    def test_a_decision_lets_ranks_go_at_one_time(self):
        server = Server()
        self.addCleanup(server.close)
        began = {}

        def arrive(rank):
            time.sleep(0.2 * rank)
            Ranks(ServedStore(server.address), rank, RANKS, 60.0).decide(Vote("capture", "train"))
            began[rank] = time.monotonic()

        start = time.monotonic()
        threads = [threading.Thread(target=arrive, args=(rank,)) for rank in range(RANKS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertGreaterEqual(min(began.values()) - start, 0.2 * (RANKS - 1))

    def test_the_store_is_gone(self):
        server = Server()
        ranks = Ranks(ServedStore(server.address), 0, RANKS, 60.0)
        server.close()
        with self.assertRaisesRegex(PumpGraphError, "the capture of step \"train\" cannot be agreed on: the store"):
            ranks.decide(Vote("capture", "train"))


def stores_of_torch():
    """torch.distributed, or None where it is not installed."""
    folder = os.path.dirname(os.path.abspath(__file__))
    if any(path.startswith(os.path.join(folder, "fake_torch")) for path in sys.path):
        return None
    try:
        import torch.distributed
    except ImportError:
        return None
    return torch.distributed


@unittest.skipIf(stores_of_torch() is None, "PyTorch is not installed: its stores are not tried")
class StoresOfTorch(unittest.TestCase):
    def test_one_process(self):
        distributed = stores_of_torch()
        store = distributed.PrefixStore("pumpgraph", distributed.HashStore())
        self.assertEqual(Ranks(store, 0, 1, 60.0).decide(Vote("capture", "train")), Decision(Wish.GO))
        alone = Ranks(store, 0, 2, 0.5, first=1).decide(Vote("capture", "train"))
        self.assertRegex(alone.reason, "rank 1 has not come")
        late = Ranks(store, 1, 2, 0.5, first=1).decide(Vote("capture", "train"))
        self.assertEqual(late, alone)


if __name__ == "__main__":
    unittest.main()
