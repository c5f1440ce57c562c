# SPDX-License-Identifier: Apache-2.0
"""Decisions that all ranks of a process group take alike (docs/design/ranks-agreement.md). Nothing of PyTorch but the
methods of its stores.

A step with collectives must be captured and replayed by all ranks or by none: a rank that refuses it would leave the
others waiting in a collective. Ahead of what only all can do, each rank casts a vote and waits for the decision. The
store keeps the first decision that is written, so that every rank, a late one too, reads the same.
"""

from __future__ import annotations

import contextlib
import enum
import json
import time
from datetime import timedelta
from typing import Any, Callable, Dict, FrozenSet, Iterator, List, Mapping, NamedTuple, Optional, Protocol, Tuple

from .errors import PumpGraphError, Status, UnsupportedError, error_of, is_status_of_shortage

_SLICE_S = 1.0  # a wait lets in Ctrl-C so often


class Store(Protocol):
    """As much of torch.distributed.Store as decisions need. A failed call raises a RuntimeError."""

    def set(self, key: str, value: str) -> None: ...

    def get(self, key: str) -> bytes: ...

    def check(self, keys: List[str]) -> bool: ...

    def wait(self, keys: List[str], timeout: timedelta) -> None: ...

    def compare_set(self, key: str, expected: str, desired: str) -> bytes:
        """Writes `desired` if there is no such key and `expected` is empty. Returns the value that is there then."""

    def delete_key(self, key: str) -> bool: ...


class Wish(enum.Enum):
    """What a rank wants, and what all do.

    GO: what the decision is about. LEAVE: the same, but this rank replays the step as captured, which keeps the order
    of its collectives. REFUSE: no rank goes on.
    """

    GO = "go"
    LEAVE = "leave"
    REFUSE = "refuse"


class Collective(NamedTuple):
    """One call of a collective. `size`: its bytes, or -1 where ranks may differ. `members`: the ranks of its group."""

    kind: str
    dtype: str
    size: int
    members: Tuple[int, ...]

    def __str__(self) -> str:
        size = "" if self.size < 0 else f" of {self.size} bytes"
        return f"{self.kind}{size} of {self.dtype} among ranks {', '.join(map(str, self.members))}"


class Vote(NamedTuple):
    """What one rank says. `topic`: of the decision, such as "capture". `facts`: what must be the same on every rank, by
    what it is. `calls`: of collectives, by group, where only their number is known."""

    topic: str
    step: str
    wish: Wish = Wish.GO
    reason: str = ""
    status: int = Status.INVALID_ARGUMENT
    facts: Mapping[str, Any] = {}
    collectives: Tuple[Collective, ...] = ()
    calls: Mapping[Tuple[int, ...], int] = {}

    def place(self) -> str:
        return f"{self.topic} of step \"{self.step}\""

    def to_text(self) -> str:
        groups = sorted({call.members for call in self.collectives} | set(self.calls))
        known = {members: index for index, members in enumerate(groups)}
        return json.dumps({
            **self._asdict(), "wish": self.wish.value, "status": int(self.status), "groups": groups,
            "collectives": [[*call[:3], known[call.members]] for call in self.collectives],
            "calls": [[known[members], count] for members, count in sorted(self.calls.items())],
        })

    @staticmethod
    def from_text(text: bytes) -> Vote:
        fields: Dict[str, Any] = json.loads(text)
        groups = [tuple(members) for members in fields.pop("groups")]
        fields["wish"] = Wish(fields["wish"])
        fields["collectives"] = tuple(Collective(kind, dtype, size, groups[index])
                                      for kind, dtype, size, index in fields["collectives"])
        fields["calls"] = {groups[index]: count for index, count in fields["calls"]}
        return Vote(**fields)


class Decision(NamedTuple):
    """What all ranks do. `by`: the rank that refuses, or -1. `is_complete`: every rank has voted."""

    outcome: Wish
    reason: str = ""
    by: int = -1
    status: int = Status.INVALID_ARGUMENT
    is_complete: bool = True

    def to_text(self) -> str:
        return json.dumps({**self._asdict(), "outcome": self.outcome.value, "status": int(self.status)})

    @staticmethod
    def from_text(text: bytes) -> Decision:
        fields: Dict[str, Any] = json.loads(text)
        fields["outcome"] = Wish(fields["outcome"])
        return Decision(**fields)

    def error(self) -> PumpGraphError:
        """Of a refusal. A lack of memory is one on every rank: they all look for a smaller batch then."""
        if is_status_of_shortage(self.status):
            return error_of(self.status, self.reason)
        return UnsupportedError(self.reason)


# ---- what votes come to ----------------------------------------------------------------------------------------------


def outcome_of(votes: Mapping[int, Vote]) -> Decision:
    """Of the votes of all ranks, whoever asks."""
    refusing = min((rank for rank, vote in votes.items() if vote.wish is Wish.REFUSE), default=None)
    if refusing is not None:
        return refusal_of(refusing, votes[refusing], is_complete=True)
    differs = _other_place(votes) or _other_fact(votes) or first_difference(votes) or _other_count(votes)
    if differs:
        return Decision(Wish.REFUSE, differs)
    leaving = [f"rank {rank} replays it as captured: {vote.reason}"
               for rank, vote in sorted(votes.items()) if vote.wish is Wish.LEAVE]
    return Decision(Wish.LEAVE if leaving else Wish.GO, "; ".join(leaving))


def refusal_of(rank: int, vote: Vote, is_complete: bool = False) -> Decision:
    reason = f"rank {rank} refuses step \"{vote.step}\", so all ranks do: {vote.reason}"
    return Decision(Wish.REFUSE, reason, rank, vote.status, is_complete)


def _other_place(votes: Mapping[int, Vote]) -> str:
    for rank, vote in sorted(votes.items()):
        if (vote.topic, vote.step) != (votes[0].topic, votes[0].step):
            return (f"rank 0 is at the {votes[0].place()}, rank {rank} at the {vote.place()}; capture the same steps "
                    "in the same order on all ranks")
    return ""


def _other_fact(votes: Mapping[int, Vote]) -> str:
    for rank, vote in sorted(votes.items()):
        for name in sorted({*vote.facts, *votes[0].facts}):
            own, first = vote.facts.get(name), votes[0].facts.get(name)
            if own != first:
                return (f"step \"{vote.step}\" has {name}={first!r} on rank 0 and {name}={own!r} on rank {rank}; pass "
                        "the same on all ranks")
    return ""


def first_difference(votes: Mapping[int, Vote]) -> str:
    """The first collective that two of its ranks do not call alike. The order of all groups that both are in counts."""
    if all(vote.collectives == votes[0].collectives for vote in votes.values()):
        return ""
    group_of = {call.members: frozenset(call.members) for vote in votes.values() for call in vote.collectives}
    groups = {rank: {group_of[call.members] for call in vote.collectives} for rank, vote in votes.items()}
    known: Dict[Tuple[int, FrozenSet[Any]], List[Collective]] = {}

    def calls(rank: int, common: FrozenSet[Any]) -> List[Collective]:
        if (rank, common) not in known:
            known[rank, common] = [call for call in votes[rank].collectives if group_of[call.members] in common]
        return known[rank, common]

    ranks = sorted(votes)
    for index, one in enumerate(ranks):
        for other in ranks[index + 1:]:
            common = frozenset(group for group in groups[one] | groups[other] if one in group and other in group)
            if common and calls(one, common) != calls(other, common):
                return _difference(one, calls(one, common), other, calls(other, common))
    return ""


def _difference(one: int, calls: List[Collective], other: int, other_calls: List[Collective]) -> str:
    same = 0
    while same < min(len(calls), len(other_calls)) and calls[same] == other_calls[same]:
        same += 1

    def named(rank: int, of_rank: List[Collective]) -> str:
        return f"on rank {rank} it is {of_rank[same]}" if same < len(of_rank) else f"rank {rank} calls no more"

    return (f"collective {same + 1} of those that rank {one} shares with rank {other} differs: {named(one, calls)}, "
            f"{named(other, other_calls)}; call the same collectives in the same order on all ranks")


def _other_count(votes: Mapping[int, Vote]) -> str:
    for rank, vote in sorted(votes.items()):
        for members, count in sorted(vote.calls.items()):
            for other in members:
                others = votes[other].calls.get(members, 0) if other in votes else count
                if others != count:
                    return (f"rank {rank} calls {count} collectives of ranks {', '.join(map(str, members))} in step "
                            f"\"{vote.step}\", and rank {other} calls {others}; call the same on all ranks")
    return ""


# ---- the exchange ----------------------------------------------------------------------------------------------------


class Ranks:
    """One rank's end of all decisions. Each has a number, which every rank counts alike.

    `<number>/<rank>` holds a vote, `<number>/decision` the decision. Any rank may write the decision: the last to vote,
    one that refuses, one whose time is up. `now` is in seconds.
    """

    def __init__(self, store: Store, rank: int, size: int, timeout_s: float, now: Callable[[], float] = time.monotonic,
                 first: int = 0):
        self.rank = rank
        self.size = size
        self.store = store
        self.number = first  # of the last decision
        self.timeout_s = timeout_s
        self._now = now
        self._kept: List[int] = []  # decisions that are in the store

    def decide(self, vote: Vote) -> Decision:
        """Casts this rank's vote and returns what all ranks do, within the time-out from the first vote. A rank that
        refuses waits for nobody.

        Raises PumpGraphError if the store is gone.
        """
        self.number += 1
        number = self.number
        with store_explained(f"the {vote.place()}"):
            self.store.set(self._vote(number, self.rank), vote.to_text())
            if vote.wish is Wish.REFUSE:
                decision = self._write(number, refusal_of(self.rank, vote))
            elif self.store.check([self._vote(number, rank) for rank in range(self.size)]):
                decision = self._write(number, self._outcome(number))
            else:
                decision = self._wait(number) or self._write(number, self._late_outcome(number, vote))
        self._forget(number, decision)
        return decision

    @staticmethod
    def _vote(number: int, rank: int) -> str:
        return f"{number}/{rank}"

    @staticmethod
    def _decision(number: int) -> str:
        return f"{number}/decision"

    def _write(self, number: int, decision: Decision) -> Decision:
        """The first that is written is the decision, whatever this rank has come to."""
        return Decision.from_text(self.store.compare_set(self._decision(number), "", decision.to_text()))

    def _wait(self, number: int) -> Optional[Decision]:
        key = self._decision(number)
        deadline = self._now() + self.timeout_s
        while self._now() < deadline:
            left = min(deadline - self._now(), _SLICE_S)
            with contextlib.suppress(RuntimeError):  # what is wrong, if time is not up, the next call says
                self.store.wait([key], timedelta(seconds=max(left, 0.001)))
            if self.store.check([key]):
                return Decision.from_text(self.store.get(key))
        return None

    def _outcome(self, number: int) -> Decision:
        return outcome_of({rank: Vote.from_text(self.store.get(self._vote(number, rank))) for rank in range(self.size)})

    def _late_outcome(self, number: int, own: Vote) -> Decision:
        """Once time is up. All votes may be there: the rank that had to count them has died."""
        missing = [rank for rank in range(self.size) if not self.store.check([self._vote(number, rank)])]
        if not missing:
            return self._outcome(number)
        who = f"rank {missing[0]} has" if len(missing) == 1 else f"ranks {', '.join(map(str, missing))} have"
        reason = (f"{who} not come to the {own.place()} within {self.timeout_s:g} s; look for an earlier error there, "
                  "call the step with the same shapes on all ranks, or give init_process_group() a longer timeout")
        return Decision(Wish.REFUSE, reason, is_complete=False)

    def _forget(self, number: int, decision: Decision) -> None:
        """Rank 0 deletes the decisions that every rank has read: those before one that all have voted in."""
        if self.rank != 0:
            return
        if decision.is_complete:
            with contextlib.suppress(RuntimeError):  # some stores cannot delete
                for past in self._kept:
                    for rank in range(self.size):
                        self.store.delete_key(self._vote(past, rank))
                    self.store.delete_key(self._decision(past))
            self._kept.clear()
        self._kept.append(number)


@contextlib.contextmanager
def store_explained(what: str) -> Iterator[None]:
    try:
        yield
    except RuntimeError as error:
        raise PumpGraphError(Status.INVALID_ARGUMENT, f"{what} cannot be agreed on: the store of the process group "
                             f"does not answer, and the rank that holds it may have ended: {error}") from error
