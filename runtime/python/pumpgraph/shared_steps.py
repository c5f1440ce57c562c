# SPDX-License-Identifier: Apache-2.0
"""Steps with collectives, which all ranks capture and replay or none does (docs/design/ranks-agreement.md).

Without a process group of several ranks, and for steps without collectives, nothing here does anything.
"""

from __future__ import annotations

import collections
import contextlib
import ctypes
import json
import sys
import warnings
from typing import Any, Callable, Dict, Iterable, Iterator, List, Optional, Tuple

from ._report import Report
from .errors import PumpGraphError, Status, UnsupportedError, is_shortage
from .messages import logger
from .ranks import Collective, Decision, Ranks, Vote, Wish
from .replay_watch import DriverEvent, ReplayWatch

Members = Tuple[int, ...]

_NOT_MEASURED = (Status.OUT_OF_DEVICE_MEMORY, Status.OUT_OF_HOST_MEMORY, Status.INVALID_ARGUMENT)
_MEASURE_S = 0.9  # a run copies 1.5 GB: 30 ms where a rank has a link of its own, 0.2 s where eight share one


def _distributed() -> Any:
    """torch.distributed, where this process is one of several ranks."""
    distributed = sys.modules.get("torch.distributed")
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return None
    return distributed if distributed.get_world_size() > 1 else None


class _Process:
    """This process among the ranks: its end of all decisions, and the default store that it is for."""

    store: Any = None
    ranks: Optional[Ranks] = None
    measured_with: Optional[Ranks] = None  # the link was
    watched: Optional[Ranks] = None
    watch: Optional[ReplayWatch] = None
    capturing: Optional[SharedCapture] = None


def ranks_of_process() -> Optional[Ranks]:
    """None where there is one rank. A new process group goes on counting: its store may be that of the one before."""
    distributed = _distributed()
    if distributed is None:
        return None
    store = distributed.distributed_c10d._get_default_store()
    if _Process.ranks is None or store is not _Process.store:
        first = _Process.ranks.number if _Process.ranks is not None else 0
        clone = getattr(store, "clone", lambda: store)  # a wait in the store itself would hold up NCCL's watchdog
        own = distributed.PrefixStore("pumpgraph", clone())
        _Process.ranks = Ranks(own, distributed.get_rank(), distributed.get_world_size(),
                               store.timeout.total_seconds(), first=first)
        _Process.store = store
    return _Process.ranks


def _timeout_s(ranks: Ranks) -> float:
    """For as long the process groups wait for a collective: the most patient one, or else the store."""
    distributed, found = _distributed(), []
    for group in distributed.distributed_c10d._world.pg_map if distributed is not None else ():
        with contextlib.suppress(AttributeError, RuntimeError):  # of a backend without
            backend = group._get_backend(sys.modules["torch"].device("cuda"))
            found.append(backend.options._timeout.total_seconds())
    return max(found, default=ranks.timeout_s)


def watch_of(ranks: Ranks) -> ReplayWatch:
    if _Process.watch is None or _Process.watched is not ranks:
        _Process.watched = ranks
        _Process.watch = ReplayWatch(lambda: DriverEvent(ctypes.CDLL("libcuda.so.1")), _timeout_s(ranks))
    return _Process.watch


def calls_of_collectives() -> Dict[Members, int]:
    """So far, by the ranks of the group: as counted by the groups themselves, whatever called them."""
    distributed = _distributed()
    calls: Dict[Members, int] = collections.defaultdict(int)
    for group in distributed.distributed_c10d._world.pg_map if distributed is not None else ():
        with contextlib.suppress(RuntimeError):  # of a backend that does not count
            members = tuple(sorted(distributed.get_process_group_ranks(group)))
            calls[members] += group._get_sequence_number_for_group()
    return dict(calls)


def note_collective(kind: str, tensors: Iterable[Any], group: Any, is_uneven: bool = False) -> None:
    """A collective of the step that is being captured. `is_uneven`: ranks may give it different sizes."""
    distributed = _distributed()
    if distributed is None:
        return
    if _Process.capturing is None:
        raise UnsupportedError(f"{kind} is called in the step, and its warm-up calls made no collective: no other rank "
                               "has agreed to capture it; call the same in each call, with a backend that counts its "
                               "collectives, such as \"nccl\"")
    used = list(tensors)
    size = -1 if is_uneven else sum(tensor.numel() * tensor.element_size() for tensor in used)
    members = tuple(sorted(distributed.get_process_group_ranks(group)))
    _Process.capturing.noted.append(Collective(kind, str(used[0].dtype) if used else "nothing", size, members))


# ---- captures --------------------------------------------------------------------------------------------------------


class LoneCapture:
    """Of a step that concerns this rank alone: there is nothing to agree on."""

    def following(self, fn: Callable[[], Any]) -> Callable[[], Any]:
        """`fn`, whose collectives are followed."""
        return fn

    def plan(self, options: Any) -> Any:
        """Before PumpGraph may run the step on its own account. Returns the options that fit all ranks."""
        return options

    def replay(self, step: Any) -> None:
        """The last thing that a capture does: the step is ready to be replayed."""


def _measure_link_once(ranks: Ranks, session: Any) -> None:
    """All ranks have just taken a decision, so they begin at about the same time, and each finds the speed that the
    others on its host leave to it."""
    if _Process.measured_with is ranks:
        return
    _Process.measured_with = ranks
    try:
        session.measure_link(_MEASURE_S)
    except PumpGraphError as error:
        if error.status not in _NOT_MEASURED:
            raise
        logger.info("plans count on the speed of the link for one rank alone: %s", error)


class SharedCapture(LoneCapture):
    """Three decisions of all ranks. Each raises the error of the rank that refuses."""

    def __init__(self, ranks: Ranks, step: str):
        self.noted: List[Collective] = []
        self.is_decided = False  # no rank waits for this one any more
        self._ranks = ranks
        self._step = step
        self._collectives: Tuple[Collective, ...] = ()
        self._calls: Dict[Members, int] = {}

    def decide(self, topic: str, **fields: Any) -> Decision:
        self.is_decided = True
        decision = self._ranks.decide(Vote(topic, self._step, **fields))
        if decision.outcome is Wish.REFUSE:
            raise decision.error()
        self.is_decided = False
        return decision

    def refuse(self, error: BaseException) -> None:
        """This rank fails by itself, and the others hear of it at their next decision."""
        status = Status.OUT_OF_DEVICE_MEMORY if is_shortage(error) else Status.INVALID_ARGUMENT
        if isinstance(error, PumpGraphError):
            status = error.status
        reason = str(error) or type(error).__name__
        with contextlib.suppress(PumpGraphError):  # the store is gone: the others hear that too
            self._ranks.decide(Vote("end", self._step, Wish.REFUSE, reason, status))

    def following(self, fn: Callable[[], Any]) -> Callable[[], Any]:
        def followed() -> Any:
            before = calls_of_collectives()
            self.noted = []
            output = fn()
            if self.noted:  # in a rehearsal; the capture that counts has the same
                self._collectives = tuple(self.noted)
            made = {members: count - before.get(members, 0) for members, count in calls_of_collectives().items()}
            self._calls = {members: count for members, count in made.items() if count}
            return output

        return followed

    def plan(self, options: Any) -> Any:
        if options.hosting == "measured":
            raise UnsupportedError(f"hosting=\"measured\" runs step \"{self._step}\" as often as its times ask for, "
                                   "which differs from rank to rank, and its collectives would wait for ever; leave "
                                   "hosting at \"automatic\"")
        self.decide("plan", facts={"calibrate": bool(options.calibrate and not options.leave_as_captured)},
                    collectives=self._collectives, calls=self._calls)
        return options._replace(hosting="no_room")

    def replay(self, step: Any) -> None:
        report = step.report()
        shared = SharedStep(self._ranks, self._step)
        shared.post(report)
        reason = report.left_as_captured
        decision = self.decide("replay", wish=Wish.LEAVE if reason else Wish.GO, reason=reason or "")
        self.is_decided = True
        step.shared = shared
        if decision.outcome is Wish.LEAVE and not reason and self._ranks.rank == 0:
            text = f"step \"{self._step}\" may be slow on all ranks: {decision.reason}"
            try:
                warnings.warn(text, RuntimeWarning, stacklevel=3)
            except RuntimeWarning:  # warnings are errors: the other ranks replay the step, and would wait for this one
                logger.warning("%s", text)


@contextlib.contextmanager
def capturing(step: str, has_collectives: bool, session: Any) -> Iterator[LoneCapture]:
    """Around a capture. All ranks begin it, and one that fails inside has all of them refuse the step."""
    ranks = ranks_of_process() if has_collectives else None
    if ranks is None:
        yield LoneCapture()
        return
    capture = SharedCapture(ranks, step)
    capture.decide("capture")
    before, _Process.capturing = _Process.capturing, capture
    try:
        _measure_link_once(ranks, session)
        yield capture
    except BaseException as error:
        if not capture.is_decided:
            capture.refuse(error)
        raise
    finally:
        _Process.capturing = before


# ---- steps -----------------------------------------------------------------------------------------------------------


class SharedStep:
    """A captured step that other ranks have too, and the figures of each."""

    def __init__(self, ranks: Ranks, name: str):
        self._ranks = ranks
        self._name = name
        self._key = f"figures/{ranks.number}"
        self._watch = watch_of(ranks)

    def replayed(self, stream: int) -> None:
        """On this stream, just now."""
        self._watch.replayed(self._name, stream)

    def post(self, report: Report) -> None:
        """The figures of this rank. Waits for nobody."""
        plans = (report.get("runtime") or {}).get("plans") or [{}]
        figures = {
            "rank": self._ranks.rank,
            "budget_bytes": report.get("budget_bytes"),
            "in_memory_s": report.get("in_memory_s"),
            "predicted_s": report.get("predicted_s"),
            "measured_s": plans[-1].get("measured_s"),
            "stall_s": sum(stall.get("duration_s", 0) for stall in report.get("stalls") or ()),
            "left_as_captured": report.left_as_captured,
        }
        with contextlib.suppress(RuntimeError):  # the step does not depend on it
            self._ranks.store.set(self._key_of(self._ranks.rank), json.dumps(figures))

    def reported(self, report: Report) -> Report:
        """The report with the figures that the ranks have posted."""
        with contextlib.suppress(RuntimeError):
            store, keys = self._ranks.store, map(self._key_of, range(self._ranks.size))
            report["ranks"] = [json.loads(store.get(key)) for key in keys if store.check([key])]
        return report

    def withdraw(self) -> None:
        with contextlib.suppress(RuntimeError):
            self._ranks.store.delete_key(self._key_of(self._ranks.rank))

    def refuse_own_runs(self) -> None:
        """PumpGraph would run the step a number of times that depends on the rank's own times and plan."""
        raise UnsupportedError(f"step \"{self._name}\" has collectives of several ranks, so PumpGraph cannot run it by "
                               "itself to replan, validate, observe or measure it: another rank may run it less often, "
                               "and this one would wait for ever; do so in a program of one rank")

    def _key_of(self, rank: int) -> str:
        return f"{self._key}/{rank}"
