# SPDX-License-Identifier: Apache-2.0
"""Lines on stderr about calls that take long: on a terminal, in a notebook, or with PUMPGRAPH_PROGRESS=1."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from typing import TYPE_CHECKING, Iterator, Optional

from ._sizes import format_size

if TYPE_CHECKING:
    from ._session import ProgressState, Session

# Seconds.
_QUIET = 1
_BETWEEN_LINES = 5
_BETWEEN_UPDATES = 0.25  # of the line on a terminal
_BAR = 20


class Line:
    """One line that is written over again and again, or line after line where that cannot be."""

    def __init__(self) -> None:
        self.is_one = sys.stderr is not None and (sys.stderr.isatty() or _in_notebook())
        wanted = os.environ.get("PUMPGRAPH_PROGRESS", "1" if self.is_one else "0") == "1"
        self.is_wanted = wanted and sys.stderr is not None
        self._longest = 0

    def say(self, text: str) -> None:
        text = f"pumpgraph: {text}"
        if self.is_one:
            self._longest = max(self._longest, len(text))
            print(f"\r{text.ljust(self._longest)}", end="", file=sys.stderr, flush=True)
        else:
            print(text, file=sys.stderr, flush=True)

    def end(self) -> None:
        if self._longest:
            print(file=sys.stderr, flush=True)


def _in_notebook() -> bool:
    shell = sys.modules.get("IPython")
    return shell is not None and shell.get_ipython() is not None


@contextlib.contextmanager
def shown(session: Session, name: str) -> Iterator[None]:
    """How far the session is with the step of this name, from a second on."""
    line = Line()
    if not line.is_wanted:
        yield
        return
    ended = threading.Event()
    watcher = threading.Thread(target=_watch, args=(session, name, line, ended), daemon=True)
    watcher.start()
    try:
        yield
    finally:
        ended.set()
        watcher.join()
        line.end()


def _watch(session: Session, name: str, line: Line, ended: threading.Event) -> None:
    """In a thread of its own. It polls, for a callback would need Python's lock while the session is locked."""
    began = time.monotonic()
    wait: float = _QUIET
    while not ended.wait(wait):
        text = text_of(session.progress())
        if text:
            line.say(f"{name}: {text}, {time.monotonic() - began:.0f} s")
        wait = _BETWEEN_UPDATES if line.is_one else _BETWEEN_LINES


def text_of(state: ProgressState) -> Optional[str]:
    if state.phase == "capturing":
        return f"capturing, {state.done} of {state.total} captures made"
    if state.phase == "planning":
        return f"planning, the best plan takes {state.best_us / 1e3:.1f} ms" if state.best_us else "planning"
    if state.phase == "pinning":
        filled = _BAR * state.done // max(state.total, 1)
        return (f"pinning host memory [{'#' * filled}{'.' * (_BAR - filled)}] "
                f"{format_size(state.done)} of {format_size(state.total)}")
    return None
