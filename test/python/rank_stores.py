# SPDX-License-Identifier: Apache-2.0
"""Stores for tests of decisions among ranks: one in memory under virtual time, and one of a server for processes."""

import contextlib
import functools
import heapq
import threading
from multiprocessing.connection import Client, Listener
from unittest import mock

from pumpgraph.ranks import Decision, Ranks, Vote, Wish


class Values:
    """What a store holds, with the rules of torch.distributed's stores."""

    def __init__(self):
        self.values = {}

    def set(self, key, value):
        self.values[key] = value.encode()

    def get(self, key):
        return self.values[key]

    def check(self, keys):
        return all(key in self.values for key in keys)

    def compare_set(self, key, expected, desired):
        if self.values.get(key, b"") == expected.encode():
            self.values[key] = desired.encode()
        return self.values.get(key, expected.encode())

    def delete_key(self, key):
        return self.values.pop(key, None) is not None


class LastWriterWins(Values):
    """A broken store: each decision overwrites the one before."""

    def compare_set(self, key, expected, desired):
        self.set(key, desired)
        return desired.encode()


# ---- virtual time ----------------------------------------------------------------------------------------------------


class _Suspended(BaseException):
    """The rank calls the store, and goes on when the simulation has the answer."""


class _Replayed:
    """The store as one rank sees it, which runs from the start of its decision each time, with the answers so far."""

    def __init__(self):
        self.answers = []
        self.began = 0.0
        self.rewind()

    def rewind(self):
        self._next, self._now = 0, self.began

    def now(self):
        return self._now

    def __getattr__(self, name):
        def call(*arguments):
            if self._next == len(self.answers):
                raise _Suspended(name, arguments)
            self._now, answer = self.answers[self._next]
            self._next += 1
            if isinstance(answer, Exception):
                raise answer
            return answer

        return call


@contextlib.contextmanager
def texts_read_once():
    """A decision runs some ten times, and most of its time would be spent on the same texts."""
    with contextlib.ExitStack() as patches:
        for kind in (Vote, Decision):
            patches.enter_context(mock.patch.object(kind, "from_text", staticmethod(functools.cache(kind.from_text))))
        yield


class _Written:
    """A vote whose text is known."""

    def __init__(self, vote):
        self._vote, self._text = vote, vote.to_text()

    def __getattr__(self, name):
        return getattr(self._vote, name)

    def to_text(self):
        return self._text


class SimulatedRank:
    """Casts one vote after the other until all refuse. `dies_at` and `slow_at` count its calls of the store; the slow
    call takes `slow_s` longer."""

    def __init__(self, rank, size, timeout_s, votes, dies_at=None, slow_at=None, slow_s=0.0):
        self.votes = list(map(_Written, votes))
        self.dies_at, self.slow_at, self.slow_s = dies_at, slow_at, slow_s
        self.decisions = []
        self.spans = []  # of each decision, in seconds
        self.calls = 0
        self.is_dead = False
        self._store = _Replayed()
        self._ranks = Ranks(self._store, rank, size, timeout_s, self._store.now)
        self._kept = []

    def advance(self, now):
        """The next call of the store, or None where the rank is done."""
        while len(self.decisions) < len(self.votes):
            self._store.rewind()
            self._ranks.number, self._ranks._kept[:] = len(self.decisions), self._kept
            try:
                decision = self._ranks.decide(self.votes[len(self.decisions)])
            except _Suspended as suspended:
                self.calls += 1
                self.is_dead = self.calls == self.dies_at
                return None if self.is_dead else suspended.args
            self.decisions.append(decision)
            self.spans.append((self._store.began, now))
            self._kept = list(self._ranks._kept)
            self._store.answers, self._store.began = [], now
            if decision.outcome is Wish.REFUSE:
                return None
        return None

    def answer(self, now, answer):
        self._store.answers.append((now, answer))


def simulate(ranks, store, draw, latency_s):
    """Runs simulated ranks until none goes on. Each call takes effect after a drawn time of up to `latency_s`."""
    events, order, waiting = [], 0, {}

    def go_on(rank, now):
        nonlocal order
        call = rank.advance(now)
        if call is not None:
            late = rank.slow_s if rank.calls == rank.slow_at else 0.0
            order += 1
            heapq.heappush(events, (now + draw.random() * latency_s + late, order, rank, call))

    for rank in ranks:
        go_on(rank, 0.0)
    while events:
        now, _, rank, (name, arguments) = heapq.heappop(events)
        if name == "wait" and not store.check(arguments[0]):
            order += 1
            waiting[rank] = (arguments[0], order)
            heapq.heappush(events, (now + arguments[1].total_seconds(), order, rank, ("time is up", (order,))))
            continue
        if name == "time is up":
            if waiting.get(rank, (None, None))[1] != arguments[0]:
                continue  # it has gone on
            del waiting[rank]
            answer = RuntimeError("wait timeout")
        else:
            answer = None if name == "wait" else getattr(store, name)(*arguments)
        rank.answer(now, answer)
        go_on(rank, now)
        for other in [other for other, (keys, _) in waiting.items() if store.check(keys)]:
            del waiting[other]
            other.answer(now, None)
            go_on(other, now)


# ---- processes -------------------------------------------------------------------------------------------------------


class Server:
    """Holds the values of processes, in threads of this one."""

    def __init__(self):
        self._values = Values()
        self._changed = threading.Condition()
        self._listener = Listener(("127.0.0.1", 0))
        self._is_closed = threading.Event()
        self.address = self._listener.address
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self):
        """No request that is sent from now on is answered."""
        self._is_closed.set()
        self._listener.close()

    def _accept(self):
        while not self._is_closed.is_set():
            try:
                connection = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection):
        with connection, contextlib.suppress(EOFError, OSError):  # the process has ended
            while True:
                name, arguments = connection.recv()
                if self._is_closed.is_set():
                    return
                connection.send(self._answer(name, arguments))

    def _answer(self, name, arguments):
        with self._changed:
            if name == "wait":
                keys, timeout = arguments
                return self._changed.wait_for(lambda: self._values.check(keys), timeout.total_seconds())
            answer = getattr(self._values, name)(*arguments)
            self._changed.notify_all()
            return answer


class ServedStore:
    """The server's values in another process."""

    def __init__(self, address):
        self._connection = Client(address)

    def __getattr__(self, name):
        def call(*arguments):
            try:
                self._connection.send((name, arguments))
                answer = self._connection.recv()
            except (EOFError, OSError) as error:
                raise RuntimeError(f"the connection is lost: {error}") from None
            if name == "wait" and not answer:
                raise RuntimeError("wait timeout")
            return answer

        return call
