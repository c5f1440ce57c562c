# SPDX-License-Identifier: Apache-2.0
"""An end to captures that wait for ever, as where another rank has died or makes other calls.

A capture runs nothing, so its calls return at once unless something is wrong. With a process group there is much to be
wrong, and no one would know where. A thread looks at the clock, says what the capture is at, and ends it: by an
exception, or, where the call does not come back to Python, by the end of the process, as NCCL's own watchdog does.
"""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import os
import sys
import threading
import traceback
from typing import Any, Callable, Iterator, Optional

from .collectives import has_group
from .errors import UnsupportedError, invalid

VARIABLE = "PUMPGRAPH_CAPTURE_SECONDS"
_SECONDS = 600.0  # as long as torch.distributed waits for a collective of NCCL
_GRACE = 20.0  # or as long again, for the exception to arrive before the process ends
_PAUSE = 0.05  # seconds between two looks whether the step's own code runs
_FRAMES = 12


class CaptureTimeout(UnsupportedError):
    """The capture of a step did not end in time. Raised in the thread that captures, in the midst of any call."""

    text = "the capture of a step did not end in time"

    def __init__(self, message: Optional[str] = None):  # made by the interpreter, without arguments
        super().__init__(message if message is not None else type(self).text)


def seconds_allowed() -> float:
    """0: for ever."""
    text = os.environ.get(VARIABLE, "")
    try:
        seconds = float(text) if text else _SECONDS
    except ValueError:
        seconds = -1.0
    if not seconds >= 0:
        raise invalid(f"{VARIABLE}={text}; it is a number of seconds, or 0 for as long as it takes")
    return seconds


class CaptureWatch:
    """Of one step. `end_process` is called where the exception does not arrive within `grace` seconds."""

    def __init__(self, name: str, seconds: Optional[float] = None, grace: Optional[float] = None,
                 end_process: Callable[[], None] = lambda: os._exit(1)):
        self._name = name
        self._seconds = seconds if seconds is not None else seconds_allowed()
        self._grace = grace if grace is not None else min(_GRACE, self._seconds)
        self._end_process = end_process
        self._over = threading.Event()
        self._captures = 0  # the thread that does
        self._lock = threading.Lock()
        self._is_inside = False  # the step's own code runs: nowhere else may an exception be sent, least into clean-up
        self._is_sent = False
        self._call = ""
        self._phase = ""
        self._is_called = False

    @contextlib.contextmanager
    def during(self, phase: str, is_called: bool = False) -> Iterator[None]:
        """Inside, a part of the capture runs that has so much time. `is_called`: none of the step's own code, so that
        no exception could end it. Does nothing without a process group."""
        self._phase, self._call, self._is_called = phase, "", is_called
        if not self._seconds or not has_group():
            yield
            return
        self._over.clear()
        self._is_sent = False
        self._captures = threading.get_ident()
        thread = threading.Thread(target=self._watch, name="pumpgraph capture watch", daemon=True)
        thread.start()
        last_resort = self._seconds + 2 * self._grace  # for a call that keeps Python from running at all
        with contextlib.suppress(Exception):  # where stderr is no file
            faulthandler.dump_traceback_later(last_resort, exit=True)
        try:
            yield
        finally:
            self._over.set()
            faulthandler.cancel_dump_traceback_later()
            thread.join()

    def ended_inside(self, fn: Callable[[], Any]) -> Callable[[], Any]:
        """`fn`, the step's own code, where an exception may end it."""
        def run() -> Any:
            self._is_inside = True
            try:
                return fn()
            finally:
                with self._lock:
                    self._is_inside = False
                    if self._is_sent:  # it has arrived, or would arrive in clean-up
                        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(self._captures), None)
                if self._is_sent and not isinstance(sys.exc_info()[1], CaptureTimeout):
                    raise CaptureTimeout()

        return run

    def calls(self, name: str) -> None:
        """An operator that is about to run."""
        self._call = name

    def _watch(self) -> None:
        if self._over.wait(self._seconds):
            return
        if self._is_called:
            print(f"pumpgraph: {self._text()}", file=sys.stderr)
        else:
            while not self._send():
                if self._over.wait(_PAUSE):
                    return
            if self._over.wait(self._grace):
                return
            print(f"pumpgraph: the call does not return either after {self._grace:g} s more", file=sys.stderr)
        print("pumpgraph: the process ends, so that the other ranks learn of it", file=sys.stderr, flush=True)
        self._end_process()

    def _send(self) -> bool:
        """Whether the step's own code was there to be ended."""
        with self._lock:
            if not self._is_inside or self._over.is_set():
                return False
            text = self._text()
            print(f"pumpgraph: {text}\n{self._stack()}", file=sys.stderr, flush=True)
            CaptureTimeout.text = text
            self._is_sent = True
            # Arrives when the thread runs Python again.
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(self._captures), ctypes.py_object(CaptureTimeout))
            return True

    def _text(self) -> str:
        place = f" in {self._phase}" if self._phase else ""
        call = f", after the call of {self._call}" if self._call else ""
        return (f"step \"{self._name}\" is being captured for over {self._seconds:g} s{place}{call}: another rank may "
                f"have ended, or make other calls; {VARIABLE} sets the time, 0 waits for ever")

    def _stack(self) -> str:
        frame = sys._current_frames().get(self._captures)
        return "".join(traceback.format_stack(frame, _FRAMES)) if frame is not None else ""
