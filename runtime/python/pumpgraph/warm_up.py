# SPDX-License-Identifier: Apache-2.0
"""Warm-up calls, whose operators may need more than the budget together.

Eager operators find what is beyond the budget in host memory, and read it over the link as often as they touch it. A
dispatch mode sees every operator before it runs, forward and backward, and has the session bring its operands to the
device first. A call that takes long says how far it is.
"""

from __future__ import annotations

import contextlib
import time
from typing import Any, Dict, Iterator, List

import torch

from ._session import Session
from .guard import address_of, only_looks, storages_in
from .progress import Line

_modes = torch.utils._python_dispatch

# Seconds.
_QUIET = 5
_BETWEEN_LINES = 5
_BETWEEN_UPDATES = 1  # of the line on a terminal


class WarmUp:
    """The warm-up calls of one kind."""

    def __init__(self, name: str, calls: int):
        self._name = name
        self._calls = calls
        self._done = 0
        # Of the last call that was watched: its operators, what moved, what was allocated before it, and what more it
        # would have had room for.
        self.operators = self.moved_bytes = self._live_before = 0
        self._left = -1
        self.has_collectives = False  # of several ranks, as seen so far

    @contextlib.contextmanager
    def watched(self, session: Session, stream: int) -> Iterator[None]:
        """Inside, a call runs on `stream`. It is not watched where the one before it shows that the budget has room."""
        self._done += 1
        if self._fits(session) or not session.begin_paging(stream):
            yield
            return
        self._live_before = session.memory_stats()["live_bytes"]
        progress = _Progress(f"{self._name}, warm-up call {self._done} of {self._calls}", self.operators)
        try:
            with _Watching(session, progress):
                yield
            self.operators = progress.operators
        finally:
            self.moved_bytes = session.end_paging()
            progress.end()
        stats = session.memory_stats()
        is_short = self.moved_bytes or stats["host_backed_bytes"]
        self._left = -1 if is_short else stats["frame_budget_bytes"] - stats["device_peak_bytes"]

    def _fits(self, session: Session) -> bool:
        return self._left >= 0 and session.memory_stats()["live_bytes"] - self._live_before <= self._left


class _Watching(_modes.TorchDispatchMode):  # type: ignore[name-defined]  # mypy follows no module of PyTorch
    supports_higher_order_operators = True

    def __init__(self, session: Session, progress: "_Progress"):
        super().__init__()
        self._session = session
        self._progress = progress

    @classmethod
    def is_infra_mode(cls) -> bool:
        return True  # or torch.compile would not run what it has compiled

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        self._progress.count()
        if not only_looks(func) and not torch.cuda.is_current_stream_capturing():
            pointers = _memory_in(args, kwargs)
            if pointers:
                self._session.page_in(pointers)
        return func(*args, **kwargs)


def _memory_in(args: Any, kwargs: Dict[str, Any]) -> List[int]:
    try:
        return list({address_of(storage) for storage in storages_in(args, kwargs)} - {0})
    except RuntimeError:  # while a compiler traces, tensors without storage are operands
        return []


class _Progress:
    """Says how far a call is that takes long."""

    def __init__(self, what: str, expected: int):
        self.operators = 0
        self._what = what
        self._expected = expected
        self._began = time.monotonic()
        self._line = Line()
        self._next = self._began + _QUIET if self._line.is_wanted else float("inf")

    def count(self) -> None:
        self.operators += 1
        now = time.monotonic()
        if now >= self._next:
            self._next = now + (_BETWEEN_UPDATES if self._line.is_one else _BETWEEN_LINES)
            self._say(now - self._began)

    def _say(self, seconds: float) -> None:
        done = f"{self.operators} operators"
        if self._expected:
            done = f"{min(100, 100 * self.operators // self._expected)} % of its operators"
        self._line.say(f"{self._what}: {done} in {seconds:.0f} s")

    def end(self) -> None:
        self._line.end()
