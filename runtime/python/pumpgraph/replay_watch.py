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
from typing import Any, Callable, Deque, List, Optional, Tuple

_MOST_PAUSE_S = 1.0
_RELAXED = 2  # CU_STREAM_CAPTURE_MODE_RELAXED
_NO_TIMING = 2  # CU_EVENT_DISABLE_TIMING
_NOT_READY = 600  # CUDA_ERROR_NOT_READY


class DriverEvent:
    """An event of the context that is current in the thread that makes it. The calls let other threads run: a record
    waits where the stream has too much to do, and the watch has to look meanwhile."""

    def __init__(self, driver: Any):
        self._driver = driver
        self._context, self._event = ctypes.c_void_p(), ctypes.c_void_p()
        self._call("cuCtxGetCurrent", ctypes.byref(self._context))
        self._call("cuEventCreate", ctypes.byref(self._event), ctypes.c_uint(_NO_TIMING))

    def record(self, stream: int) -> None:
        self._call("cuEventRecord", self._event, ctypes.c_void_p(stream))

    def query(self) -> bool:
        self._call("cuCtxSetCurrent", self._context)  # in the watch's thread there is none
        return self._call("cuEventQuery", self._event, may_be=_NOT_READY) != _NOT_READY

    def _call(self, name: str, *arguments: Any, may_be: int = 0) -> int:
        result = int(getattr(self._driver, name)(*arguments))
        if result not in (0, may_be):
            raise RuntimeError(f"{name} failed with error {result}")
        return result


class ReplayWatch:
    """Of a process. `make_event`: a DriverEvent."""

    def __init__(self, make_event: Callable[[], Any], seconds: float,
                 end_process: Callable[[], None] = lambda: os._exit(1)):
        self._make_event = make_event
        self._seconds = seconds
        self._end_process = end_process
        self._running: Deque[Tuple[Any, str]] = collections.deque()  # the oldest replay first
        self._idle: List[Any] = []
        self._since: Optional[float] = None  # the oldest one has been
        self._is_any = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="pumpgraph replay watch", daemon=True)

    def replayed(self, step: str, stream: int) -> None:
        """On this stream, just now."""
        try:
            event = self._idle.pop()
        except IndexError:  # also where another thread has just taken the last one
            event = self._make_event()
        event.record(stream)
        self._running.append((event, step))
        self._is_any.set()
        if not self._thread.is_alive():
            with contextlib.suppress(RuntimeError):  # after an end that a test stands in for
                self._thread.start()

    def is_over(self, now: float) -> bool:
        """Whether the oldest replay takes longer than is allowed, since it was seen first or the one before it ended.

        Raises RuntimeError if the context has failed.
        """
        while self._running and self._running[0][0].query():
            self._idle.append(self._running.popleft()[0])
            self._since = now
        if not self._running:
            self._since = None
        elif self._since is None:
            self._since = now
        return self._since is not None and now - self._since > self._seconds

    def _watch(self) -> None:
        # Or a look at an event would break a capture of another thread.
        with contextlib.suppress(OSError):
            ctypes.CDLL("libcuda.so.1").cuThreadExchangeStreamCaptureMode(ctypes.byref(ctypes.c_int(_RELAXED)))
        while True:
            self._is_any.wait()
            self._is_any.clear()
            while self._running:
                try:
                    if self.is_over(time.monotonic()):
                        self._end()
                        return
                except RuntimeError:
                    return  # which the program's next call says
                time.sleep(min(_MOST_PAUSE_S, self._seconds / 10))

    def _end(self) -> None:
        print(f"pumpgraph: a replay of step \"{self._running[0][1]}\" has not ended within {self._seconds:g} s; "
              "another rank may have ended, or replay other steps. The process ends, so that the others learn of it; "
              "init_process_group(timeout=...) sets the time", file=sys.stderr, flush=True)
        self._end_process()
