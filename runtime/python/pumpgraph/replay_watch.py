# SPDX-License-Identifier: Apache-2.0
"""An end to replays that wait for a rank which is gone.

NCCL's watchdog follows collectives that are called, and those of a graph that is replayed are not. Each replay of a
step with collectives of several ranks gets an event. A thread looks at them, and ends the process where none comes for
as long as the process group waits for a collective: the same end, with the name of the step.
"""

from __future__ import annotations

import collections
import contextlib
import ctypes
import os
import sys
import threading
import time
from typing import Any, Callable, Deque, List, Tuple

_MOST_PAUSE_S = 1.0
_RELAXED = 2  # CU_STREAM_CAPTURE_MODE_RELAXED


class ReplayWatch:
    """Of a process. `make_event`: an event of CUDA with record() and query()."""

    def __init__(self, make_event: Callable[[], Any], seconds: float,
                 end_process: Callable[[], None] = lambda: os._exit(1)):
        self._make_event = make_event
        self._seconds = seconds
        self._end_process = end_process
        self._running: Deque[Tuple[Any, str]] = collections.deque()  # the oldest replay first
        self._idle: List[Any] = []
        self._is_any = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="pumpgraph replay watch", daemon=True)

    def replayed(self, step: str) -> None:
        """On the current stream, just now."""
        event = self._idle.pop() if self._idle else self._make_event()
        event.record()
        self._running.append((event, step))
        self._is_any.set()
        if not self._thread.is_alive():
            with contextlib.suppress(RuntimeError):  # after an end that a test stands in for
                self._thread.start()

    def _watch(self) -> None:
        # Or a look at an event would break a capture of another thread.
        with contextlib.suppress(OSError):
            ctypes.CDLL("libcuda.so.1").cuThreadExchangeStreamCaptureMode(ctypes.byref(ctypes.c_int(_RELAXED)))
        since = time.monotonic()
        while True:
            if not self._running:
                self._is_any.clear()
                if not self._running:  # nor one since
                    self._is_any.wait()
                since = time.monotonic()
            try:
                is_done = self._running[0][0].query()
            except RuntimeError:
                return  # the context has failed, which the program's next call says
            if is_done:
                self._idle.append(self._running.popleft()[0])
                since = time.monotonic()
            elif time.monotonic() - since > self._seconds:
                break
            else:
                time.sleep(min(_MOST_PAUSE_S, self._seconds / 10))
        print(f"pumpgraph: a replay of step \"{self._running[0][1]}\" has not ended within {self._seconds:g} s; "
              "another rank may have ended, or replay other steps. The process ends, so that the others learn of it; "
              "init_process_group(timeout=...) sets the time", file=sys.stderr, flush=True)
        self._end_process()
