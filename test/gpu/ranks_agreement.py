#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Decisions of three processes over the store of a gloo process group. Needs PyTorch, and no GPU.

    ranks_agreement.py                     all cases
    ranks_agreement.py RANK FILE CASE      one rank of a case, which meets the others over FILE
"""

import datetime
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "runtime" / "python"))

from pumpgraph import PumpGraphError  # noqa: E402
from pumpgraph.ranks import Vote, Wish  # noqa: E402
from pumpgraph.shared_steps import calls_of_collectives, ranks_of_process  # noqa: E402

RANKS, ROUNDS = 3, 100
TIMEOUT_S, ENDS_WITHIN_S = 6, 60


def join(rank, file):
    import torch
    import torch.distributed as dist

    dist.init_process_group("gloo", init_method=f"file://{file}" if "/" in file else f"tcp://127.0.0.1:{file}",
                            rank=rank, world_size=RANKS, timeout=datetime.timedelta(seconds=TIMEOUT_S))
    before = calls_of_collectives()
    dist.all_reduce(torch.ones(1))
    members = tuple(range(RANKS))
    assert calls_of_collectives()[members] == before[members] + 1, "the group does not count its collectives"
    return ranks_of_process()


def drawn(ranks):
    """Decisions, each with drawn refusals and delays. All ranks draw the same."""
    for number in range(ROUNDS):
        draw = random.Random(number)
        refusing = draw.randrange(3 * RANKS)
        delays = [draw.random() * 0.02 for _ in range(RANKS)]
        time.sleep(delays[ranks.rank])
        wish, reason = (Wish.REFUSE, f"number {number}") if refusing == ranks.rank else (Wish.GO, "")
        decision = ranks.decide(Vote("capture", f"step {number}", wish, reason))
        expected = Wish.REFUSE if refusing < RANKS else Wish.GO
        assert decision.outcome is expected, f"{number}: {decision}"
        print(decision.to_text())


def killed(ranks):
    """Rank 2 is killed between two decisions."""
    print(ranks.decide(Vote("capture", "step")).to_text())
    if ranks.rank == 2:
        sys.stdout.flush()
        os.kill(os.getpid(), signal.SIGKILL)
    began = time.monotonic()
    decision = ranks.decide(Vote("plan", "step"))
    assert "rank 2 has not come to the plan of step" in decision.reason, decision.reason
    assert time.monotonic() - began < TIMEOUT_S + 5, "the time-out came late"
    print(decision.to_text())


def store_killed(ranks):
    """Rank 0, which holds the store, is killed: an error, and no wait for ever."""
    print(ranks.decide(Vote("capture", "step")).to_text())
    if ranks.rank == 0:
        time.sleep(1)
        sys.stdout.flush()
        os.kill(os.getpid(), signal.SIGKILL)
    try:
        ranks.decide(Vote("plan", "step"))
    except PumpGraphError as error:
        assert "the store of the process group does not answer" in str(error), str(error)
    else:
        raise AssertionError("a decision without a store")


CASES = (drawn, killed, store_killed)
DEAD = {killed: 2, store_killed: 0}


def run(case, place):
    began = time.monotonic()
    ranks = [subprocess.Popen([sys.executable, __file__, str(rank), place, case.__name__], stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True) for rank in range(RANKS)]
    said = []
    for rank, process in enumerate(ranks):
        try:
            text, error = process.communicate(timeout=ENDS_WITHIN_S)
        except subprocess.TimeoutExpired:
            for each in ranks:
                each.kill()
            sys.exit(f"{case.__name__}: rank {rank} still runs after {ENDS_WITHIN_S} s")
        expected = -signal.SIGKILL if DEAD.get(case) == rank else 0
        if process.returncode != expected:
            sys.exit(f"{case.__name__}: rank {rank} ended with {process.returncode}\n{error[-2000:]}")
        said.append(text.splitlines())
    live = [lines for rank, lines in enumerate(said) if rank != DEAD.get(case)]
    if any(lines != live[0] for lines in live) or not live[0]:
        sys.exit(f"{case.__name__}: the ranks decide differently: {said}")
    where = "a file" if "/" in place else "TCP"
    print(f"{case.__name__} over {where}: {len(live[0])} decisions alike, {time.monotonic() - began:.1f} s")


def free_port():
    import socket

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return str(free.getsockname()[1])


def main():
    if len(sys.argv) == 4:
        ranks = join(int(sys.argv[1]), sys.argv[2])
        {case.__name__: case for case in CASES}[sys.argv[3]](ranks)
        sys.stdout.flush()
        time.sleep(ranks.rank == 0)  # it holds the store, where others may still read the last decision
        os._exit(0)  # a group whose ranks have died may wait for them
    for case in CASES:
        run(case, free_port())
    with tempfile.TemporaryDirectory() as folder:
        for case in (drawn, killed):
            run(case, os.path.join(folder, case.__name__))


if __name__ == "__main__":
    main()
