# SPDX-License-Identifier: Apache-2.0
"""torch.cuda.memory._record_memory_history(), _snapshot() and memory_snapshot(), from PumpGraph's own history.

The library walks Python's frames itself, with the interpreter's functions that it is given here: an allocation runs no
line of Python. A snapshot is the dict that torch.cuda.memory._snapshot() documents. A segment is an address range of
whole pages. The device memory of each step over one replay follows as the trace of a further device.
"""

from __future__ import annotations

import atexit
import bisect
import ctypes
import pickle
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any, Callable, Dict, Iterable, List, Optional

import torch

from ._session import Session
from .errors import UnsupportedError, invalid

_INTERPRETER = {
    "gil_state_ensure": "PyGILState_Ensure", "gil_state_release": "PyGILState_Release",
    "eval_get_frame": "PyEval_GetFrame", "frame_get_back": "PyFrame_GetBack", "frame_get_code": "PyFrame_GetCode",
    "frame_get_line": "PyFrame_GetLineNumber", "dec_ref": "Py_DecRef",
}
_STACKS = {None: 0, "state": 1, "alloc": 2, "all": 3}  # by PyTorch's `context`

Frames = List[Dict[str, Any]]


class MemorySnapshots:
    """Of one session. `steps`: those that are alive, with a plan or without."""

    def __init__(self, session: Session, steps: Callable[[], Iterable[Any]]):
        self._session = session
        self._steps = steps
        self._lock = threading.RLock()  # code objects stay while a snapshot is made of them
        self._has_events = False

    def record(
        self,
        enabled: Optional[str] = "all",
        context: Optional[str] = "all",
        stacks: str = "all",
        max_entries: int = sys.maxsize,
        device: Any = None,
        clear_history: bool = False,
        compile_context: bool = False,
        global_record_annotations: bool = False,
        skip_actions: Optional[List[str]] = None,
        record_pinned_host_memory: bool = False,
        record_cuda: bool = True,
    ) -> None:
        """torch.cuda.memory._record_memory_history(). Frames are those of Python, whatever `stacks` says."""
        for name, is_asked in (("compile_context", compile_context),
                               ("global_record_annotations", global_record_annotations),
                               ("skip_actions", skip_actions), ("record_cuda=False", not record_cuda),
                               ("record_pinned_host_memory", record_pinned_host_memory)):
            if is_asked:
                raise UnsupportedError(f"torch.cuda.memory._record_memory_history(): {name} is of PyTorch's own "
                                       "allocators; PumpGraph records allocations, frees and Python's frames")
        if enabled not in (None, "state", "all"):
            raise invalid(f"_record_memory_history(enabled={enabled!r}); it is None, \"state\" or \"all\"")
        if context not in _STACKS or stacks not in ("python", "all"):
            raise invalid(f"_record_memory_history(context={context!r}, stacks={stacks!r}); the context is None, "
                          "\"state\", \"alloc\" or \"all\", stacks \"python\" or \"all\"")
        if max_entries < 0:
            raise invalid(f"_record_memory_history(max_entries={max_entries})")
        with self._lock:
            if enabled is None:
                self._stop()
                return
            self._has_events = enabled == "all"
            atexit.unregister(self._stop)
            atexit.register(self._stop)  # a finalized interpreter has no frames
            functions = {field: ctypes.cast(getattr(ctypes.pythonapi, name), ctypes.c_void_p).value
                         for field, name in _INTERPRETER.items()}
            self._session.record_torch(most_events=min(max_entries, sys.maxsize) if self._has_events else 0,
                                       stacks=_STACKS[context], keep_events=not clear_history, functions=functions)

    def snapshot(self, device: Any = None, augment_with_fx_traces: bool = False) -> Dict[str, Any]:
        """torch.cuda.memory._snapshot()."""
        if augment_with_fx_traces:
            raise UnsupportedError("torch.cuda.memory._snapshot(): augment_with_fx_traces asks PyTorch's own allocator")
        with self._lock:
            recorded = self._session.torch_snapshot()
            stacks = [[_frame(code, line) for code, line in stack] for stack in recorded["stacks"]]
            is_recorded = self._has_events and recorded["recording"]
        framed = _Framed(recorded, stacks)
        segments = [_segment(block, framed, self._session.device) for block in recorded["blocks"]]
        devices = max(torch.cuda.device_count(), self._session.device + 1)
        traces: List[List[Dict[str, Any]]] = [[] for _ in range(devices)]
        traces[self._session.device] = _trace(recorded["events"], framed, segments)
        if is_recorded:
            for plan in self._plans():
                segments += [{**segment, "device": len(traces)} for segment in plan["segments"]]
                traces += plan["device_traces"]
        return {"segments": segments, "device_traces": traces}

    def segments(self, mempool_id: Any = None) -> List[Dict[str, Any]]:
        """torch.cuda.memory_snapshot(): of the device alone."""
        if mempool_id is not None:
            raise UnsupportedError("torch.cuda.memory_snapshot(): there are no memory pools under PumpGraph")
        return [segment for segment in self.snapshot()["segments"] if segment["device"] == self._session.device]

    def _stop(self) -> None:
        with self._lock:
            self._has_events = False
            self._session.record_torch(None)

    def _plans(self) -> Iterable[Dict[str, Any]]:
        """A snapshot of each step that has a plan."""
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "plan.pickle"
            for step in sorted(self._steps(), key=lambda step: step.name):
                if not step.is_open or step.report().left_as_captured:
                    continue
                step.memory_snapshot(path)
                plan = pickle.loads(path.read_bytes())
                title = [{"filename": step.name, "line": 0, "name": "one replay of the step, as predicted"}]
                for about_all in (*plan["segments"], *(trace[0] for trace in plan["device_traces"] if trace)):
                    about_all["frames"] = title
                yield plan


class _Framed:
    """Frames by number of a stack, and by address of what was recorded and is alive."""

    def __init__(self, recorded: Dict[str, Any], stacks: List[Frames]):
        self._stacks = stacks
        self._live = dict(recorded["live"])

    def of(self, stack: Optional[int]) -> Frames:
        return [] if stack is None else self._stacks[stack]

    def of_address(self, address: int) -> Frames:
        return self.of(self._live.get(address))


def _frame(code: int, line: int) -> Dict[str, Any]:
    """`code`: the address of a code object, of which the library holds a reference."""
    found = ctypes.cast(ctypes.c_void_p(code), ctypes.py_object).value
    return {"filename": found.co_filename, "line": line, "name": found.co_name}


def _segment(block: Dict[str, Any], framed: _Framed, device: int) -> Dict[str, Any]:
    address, end = block["address"], block["address"] + block["bytes"]
    blocks: List[Dict[str, Any]] = []

    def fill_until(to: int) -> None:
        if address < to:
            blocks.append({"address": address, "size": to - address, "requested_size": 0, "state": "inactive",
                           "frames": []})

    for allocation in block["allocations"]:
        fill_until(allocation["address"])
        blocks.append({"address": allocation["address"], "size": allocation["bytes"],
                       "requested_size": allocation["bytes"], "state": "active_allocated",
                       "frames": framed.of_address(allocation["address"])})
        address = allocation["address"] + allocation["bytes"]
    fill_until(end)
    live = sum(allocation["bytes"] for allocation in block["allocations"])
    return {"device": device, "address": block["address"], "total_size": block["bytes"], "allocated_size": live,
            "active_size": live, "requested_size": live,
            "stream": block["allocations"][0]["stream"] if block["allocations"] else 0,
            "segment_type": "small" if block["is_shared"] else "large", "segment_pool_id": (0, 0),
            "is_expandable": False, "frames": [], "blocks": blocks}


def _trace(events: List[Dict[str, Any]], framed: _Framed, segments: List[Dict[str, Any]]) -> List[Dict[str, Any]]:
    """Addresses that have no segment any more get one for as long as something was there: the viewer looks for it."""
    begins = [segment["address"] for segment in segments]
    trace: List[Dict[str, Any]] = []

    def has_segment(address: int) -> bool:
        segment = segments[max(bisect.bisect(begins, address) - 1, 0)] if segments else None
        return segment is not None and 0 <= address - segment["address"] < segment["total_size"]

    for event in events:
        entry = {"size": event["bytes"], "stream": event["stream"], "time_us": event["time_us"],
                 "frames": framed.of(event["stack"])}
        if event["action"] == "oom":
            trace.append({"action": "oom", "device_free": event["left_bytes"], **entry})
            continue
        entry["addr"] = event["address"]
        actions = ["alloc"] if event["action"] == "alloc" else ["free_requested", "free_completed"]
        if not has_segment(event["address"]):
            actions = ["segment_alloc", *actions] if event["action"] == "alloc" else [*actions, "segment_free"]
        trace += [{"action": action, **entry} for action in actions]
    return trace
