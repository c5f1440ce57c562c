# SPDX-License-Identifier: Apache-2.0
"""The C API (runtime/include/pumpgraph/pumpgraph.h) as ctypes, and where its library is found.

Everything here is a transcript of the header; test/python/test_capi.py parses the header and compares.
"""

from __future__ import annotations

import ctypes
import os
from ctypes import POINTER, c_char, c_char_p, c_double, c_int, c_int32, c_size_t, c_uint32, c_uint64, c_void_p
from pathlib import Path
from typing import Any, Callable, List, Optional

from .errors import PumpGraphError, Status, error_of


class Error(ctypes.Structure):
    _fields_ = [("status", c_int), ("message", c_char * 2048)]


class SessionOptions(ctypes.Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("budget_bytes", c_uint64),
        ("unlimited", c_int32),
        ("device", c_int32),
        ("host_limit_bytes", c_uint64),
        ("cache_directory", c_char_p),
        ("compiler_library", c_char_p),
        ("whole_process", c_int32),
        ("backend", c_int32),
        ("allow_oversubscription", c_int32),
        ("managed_bytes", c_uint64),
        ("managed_limit_bytes", c_uint64),
        ("rematerialize", c_int32),
        ("planning", c_int32),
    ]


class Extent(ctypes.Structure):
    _fields_ = [("pointer", c_void_p), ("bytes", c_uint64)]


class MemoryStats(ctypes.Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("budget_bytes", c_uint64),
        ("device_bytes", c_uint64),
        ("device_peak_bytes", c_uint64),
        ("host_backed_bytes", c_uint64),
        ("pinned_bytes", c_uint64),
        ("live_bytes", c_uint64),
        ("live_allocations", c_uint64),
        ("frame_budget_bytes", c_uint64),
        ("process_bytes", c_uint64),
        ("live_peak_bytes", c_uint64),
        ("live_peak_allocations", c_uint64),
        ("allocated_bytes", c_uint64),
        ("allocations", c_uint64),
    ]


class AdoptOptions(ctypes.Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("name", c_char_p),
        ("costs_ir", c_char_p),
        ("leave_as_captured", c_int32),
        ("keep_first_plan", c_int32),
        ("calibrate", c_int32),
        ("boundary", c_int32),
        ("prefetching", c_int32),
        ("hosting", c_int32),
        ("rematerialize", c_int32),
        ("plan_others_again", c_int32),
        ("trust_purity", c_int32),
    ]


class Measurement(ctypes.Structure):
    _fields_ = [("struct_size", c_size_t), ("step_us", c_double), ("timed_nodes", c_uint64)]


class BudgetState(ctypes.Structure):
    _fields_ = [("struct_size", c_size_t), ("budget_bytes", c_uint64), ("process_bytes", c_uint64),
                ("message", c_char * 512)]


class Launch(ctypes.Structure):
    _fields_ = [("struct_size", c_size_t), ("graph_has_changed", c_int32), ("is_watched", c_int32)]


class Replanning(ctypes.Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("predicted_before_us", c_double),
        ("measured_before_us", c_double),
        ("predicted_us", c_double),
        ("measured_us", c_double),
        ("timed_nodes", c_uint64),
        ("kept_first", c_int32),
    ]


class Validation(ctypes.Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("compared_buffers", c_uint64),
        ("compared_bytes", c_uint64),
        ("different_buffers", c_uint64),
        ("unstable_buffers", c_uint64),
        ("first_difference", c_char * 512),
        ("impure_nodes", c_uint64),
        ("impure", c_char * 512),
    ]


class Observation(ctypes.Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("runs", c_uint64),
        ("kernels", c_uint64),
        ("slots", c_uint64),
        ("covered", c_uint64),
        ("differing", c_uint64),
        ("disagreements", c_uint64),
        ("first_disagreement", c_char * 512),
    ]


class TorchRecording(ctypes.Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("most_events", c_uint64),
        ("stacks", c_int32),
        ("keep_events", c_int32),
        ("gil_state_ensure", c_void_p),
        ("gil_state_release", c_void_p),
        ("eval_get_frame", c_void_p),
        ("frame_get_back", c_void_p),
        ("frame_get_code", c_void_p),
        ("frame_get_line", c_void_p),
        ("dec_ref", c_void_p),
    ]


class Progress(ctypes.Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("phase", c_int32),
        ("done", c_uint64),
        ("total", c_uint64),
        ("best_us", c_double),
        ("seconds", c_double),
    ]


class Copy(ctypes.Structure):
    _fields_ = [("destination", c_void_p), ("source", c_void_p), ("bytes", c_size_t)]


Copies = ctypes.Array  # of Copy


STRUCTURES = {
    "pumpgraph_error": Error,
    "pumpgraph_session_options": SessionOptions,
    "pumpgraph_memory_stats": MemoryStats,
    "pumpgraph_adopt_options": AdoptOptions,
    "pumpgraph_measurement": Measurement,
    "pumpgraph_budget_state": BudgetState,
    "pumpgraph_launch": Launch,
    "pumpgraph_replanning": Replanning,
    "pumpgraph_validation": Validation,
    "pumpgraph_observation": Observation,
    "pumpgraph_byte_range": Extent,
    "pumpgraph_copy": Copy,
    "pumpgraph_torch_recording": TorchRecording,
    "pumpgraph_progress": Progress,
}

# `int (*record)(pumpgraph_stream stream, void *user)`.
Record = ctypes.CFUNCTYPE(c_int, c_void_p, c_void_p)
MessageCallback = ctypes.CFUNCTYPE(None, c_int32, c_char_p, c_void_p)
ProgressCallback = ctypes.CFUNCTYPE(None, POINTER(Progress), c_void_p)

_ERROR = POINTER(Error)
# Name: (result, arguments). Handles, streams, graphs and device pointers are void pointers; strings that the caller
# must free are void pointers too, because ctypes would copy a c_char_p result and lose the pointer.
FUNCTIONS = {
    "pumpgraph_session_create": (c_int, [POINTER(SessionOptions), POINTER(c_void_p), _ERROR]),
    "pumpgraph_session_destroy": (None, [c_void_p]),
    "pumpgraph_set_message_callback": (c_int, [c_int32, MessageCallback, c_void_p, _ERROR]),
    "pumpgraph_set_progress_callback": (c_int, [c_void_p, ProgressCallback, c_void_p, _ERROR]),
    "pumpgraph_get_progress": (c_int, [c_void_p, POINTER(Progress), _ERROR]),
    "pumpgraph_allocate": (c_int, [c_void_p, c_size_t, c_void_p, c_char_p, POINTER(c_void_p), _ERROR]),
    "pumpgraph_free": (c_int, [c_void_p, c_void_p, c_void_p, _ERROR]),
    "pumpgraph_release": (None, [c_void_p, c_void_p, c_void_p, c_int32]),
    "pumpgraph_tag_begin": (c_int, [c_void_p, c_char_p, POINTER(c_uint64), _ERROR]),
    "pumpgraph_tag_end": (c_int, [c_void_p, c_uint64, _ERROR]),
    "pumpgraph_tags": (c_int, [c_void_p, c_int32, POINTER(c_void_p), _ERROR]),
    "pumpgraph_declare_private": (c_int, [c_void_p, c_void_p, _ERROR]),
    "pumpgraph_declare_present": (c_int, [c_void_p, c_void_p, _ERROR]),
    "pumpgraph_name": (c_int, [c_void_p, c_void_p, c_char_p, _ERROR]),
    "pumpgraph_reset_peaks": (c_int, [c_void_p, _ERROR]),
    "pumpgraph_memory_statistics": (c_int, [c_void_p, POINTER(MemoryStats), _ERROR]),
    "pumpgraph_map": (c_int, [c_void_p, c_void_p, _ERROR]),
    "pumpgraph_unmap": (c_int, [c_void_p, c_void_p, _ERROR]),
    "pumpgraph_bring": (c_int, [c_void_p, POINTER(c_void_p), c_size_t, c_int32, _ERROR]),
    "pumpgraph_departures": (c_int, [c_void_p, POINTER(POINTER(c_uint64)), _ERROR]),
    "pumpgraph_take_back": (c_int, [c_void_p, _ERROR]),
    "pumpgraph_empty_cache": (c_int, [c_void_p, _ERROR]),
    "pumpgraph_measure_link": (c_int, [c_void_p, c_double, _ERROR]),
    "pumpgraph_begin_paging": (c_int, [c_void_p, c_void_p, POINTER(c_int32), _ERROR]),
    "pumpgraph_page_in": (c_int, [c_void_p, POINTER(c_void_p), c_size_t, _ERROR]),
    "pumpgraph_end_paging": (c_int, [c_void_p, POINTER(c_uint64), _ERROR]),
    "pumpgraph_keep_freed": (c_int, [c_void_p, c_int32, _ERROR]),
    "pumpgraph_torch_empty_cache": (None, []),
    "pumpgraph_torch_record_stream": (None, [c_void_p, c_void_p]),
    "pumpgraph_capture_begin": (c_int, [c_void_p, _ERROR]),
    "pumpgraph_capture_end": (c_int, [c_void_p, _ERROR]),
    "pumpgraph_declare_reads": (c_int, [c_void_p, c_void_p, POINTER(c_void_p), c_size_t, _ERROR]),
    "pumpgraph_declare_kernel_reads": (c_int, [c_void_p, c_char_p, POINTER(c_uint32), c_size_t, _ERROR]),
    "pumpgraph_declare_reach": (c_int, [c_void_p, c_void_p, POINTER(c_void_p), c_size_t, POINTER(c_void_p), c_size_t,
                                        _ERROR]),
    "pumpgraph_declare_writes": (c_int, [c_void_p, c_void_p, POINTER(c_void_p), c_size_t, _ERROR]),
    "pumpgraph_declare_extents": (c_int, [c_void_p, c_void_p, POINTER(Extent), c_size_t, _ERROR]),
    "pumpgraph_declare_aside": (c_int, [c_void_p, c_void_p, POINTER(c_void_p), c_size_t, _ERROR]),
    "pumpgraph_name_nodes": (c_int, [c_void_p, c_void_p, c_char_p, _ERROR]),
    "pumpgraph_declare_operation": (c_int, [c_void_p, c_void_p, c_int32, _ERROR]),
    "pumpgraph_declare_arithmetic": (c_int, [c_void_p, c_void_p, c_double, c_int32, _ERROR]),
    "pumpgraph_free_scratch": (c_int, [c_void_p, c_int32, _ERROR]),
    "pumpgraph_rehearse": (c_int, [c_void_p, c_void_p, _ERROR]),
    "pumpgraph_record_stream": (c_int, [c_void_p, c_void_p, c_void_p, _ERROR]),
    "pumpgraph_rehearsal_matches": (c_int, [c_void_p, c_void_p, POINTER(c_int32), _ERROR]),
    "pumpgraph_adopt": (c_int, [c_void_p, c_void_p, POINTER(AdoptOptions), POINTER(c_void_p), _ERROR]),
    "pumpgraph_capture": (c_int, [c_void_p, Record, c_void_p, POINTER(AdoptOptions), POINTER(c_void_p), _ERROR]),
    "pumpgraph_step_destroy": (None, [c_void_p]),
    "pumpgraph_replay": (c_int, [c_void_p, c_void_p, _ERROR]),
    "pumpgraph_put_in_force": (c_int, [c_void_p, _ERROR]),
    "pumpgraph_prepare_replay": (c_int, [c_void_p, c_void_p, POINTER(Copy), c_size_t, _ERROR]),
    "pumpgraph_report": (c_int, [c_void_p, POINTER(c_void_p), _ERROR]),
    "pumpgraph_string_free": (None, [c_void_p]),
    "pumpgraph_save": (c_int, [c_void_p, c_char_p, _ERROR]),
    "pumpgraph_memory_snapshot": (c_int, [c_void_p, c_char_p, _ERROR]),
    "pumpgraph_measure": (c_int, [c_void_p, c_int32, POINTER(Measurement), _ERROR]),
    "pumpgraph_keep_to_budget": (c_int, [c_void_p, POINTER(BudgetState), _ERROR]),
    "pumpgraph_before_launch": (c_int, [c_void_p, c_void_p, POINTER(Launch), _ERROR]),
    "pumpgraph_after_launch": (c_int, [c_void_p, c_void_p, _ERROR]),
    "pumpgraph_replan": (c_int, [c_void_p, POINTER(Replanning), _ERROR]),
    "pumpgraph_validate": (c_int, [c_void_p, POINTER(Validation), _ERROR]),
    "pumpgraph_observe": (c_int, [c_void_p, POINTER(c_void_p), c_size_t, POINTER(Observation), _ERROR]),
    "pumpgraph_torch_attach": (c_int, [c_void_p, _ERROR]),
    "pumpgraph_torch_malloc": (c_void_p, [c_size_t, c_int, c_void_p]),
    "pumpgraph_torch_free": (None, [c_void_p, c_size_t, c_int, c_void_p]),
    "pumpgraph_torch_keep": (None, [c_void_p]),
    "pumpgraph_torch_record": (c_int, [c_void_p, POINTER(TorchRecording), _ERROR]),
    "pumpgraph_torch_snapshot": (c_int, [c_void_p, POINTER(c_void_p), _ERROR]),
    "pumpgraph_doctor": (c_void_p, []),
    "pumpgraph_version": (c_char_p, []),
}


class Library:
    """A loaded libpumpgraph.so. Calls that can fail go through call(), which turns a status into a PumpGraphError."""

    def __init__(self, path: Path):
        self.path = path
        try:
            self._dll = ctypes.CDLL(str(path))
        except OSError as error:
            raise PumpGraphError(Status.INTERNAL, f"{path} cannot be loaded: {error}") from None
        for name, (result, arguments) in FUNCTIONS.items():
            try:
                function = getattr(self._dll, name)
            except AttributeError:
                raise PumpGraphError(
                    Status.INTERNAL, f"{path} has no function {name}: it is older than this package, or another library"
                ) from None
            function.restype = result
            function.argtypes = arguments

    def call(self, name: str, *arguments: Any) -> None:
        """Calls a function that returns a status and takes the error as its last argument."""
        self.bound(name)(*arguments)

    def bound(self, name: str) -> Callable[..., None]:
        """call() of this function, for one thread at a time: what a call needs is made once."""
        function = getattr(self._dll, name)
        error = Error()
        where = ctypes.byref(error)

        def call(*arguments: Any) -> None:
            status = function(*arguments, where)
            if status:
                message = error.message.decode("utf-8", "replace") or f"{name} failed without a message"
                raise error_of(status, message)

        return call

    def address_of(self, name: str) -> int:
        address = ctypes.cast(getattr(self._dll, name), c_void_p).value
        assert address is not None
        return address

    def destroy(self, name: str, handle: ctypes.c_void_p) -> None:
        """Calls one of the two destroy functions, which cannot fail."""
        getattr(self._dll, name)(handle)

    def keep_for_torch(self, pointer: int) -> None:
        """pumpgraph_torch_keep(), which cannot fail either."""
        self._dll.pumpgraph_torch_keep(pointer)

    def take_string(self, pointer: Optional[int]) -> str:
        """Copies and frees a string that the library gave to its caller."""
        if not pointer:
            return ""
        text = ctypes.string_at(pointer).decode("utf-8", "replace")
        self._dll.pumpgraph_string_free(pointer)
        return text

    def doctor(self) -> str:
        return self.take_string(self._dll.pumpgraph_doctor())

    def version(self) -> str:
        return self._dll.pumpgraph_version().decode()


LIBRARY_NAME = "libpumpgraph.so"


def candidates() -> List[Path]:
    """Where the library is looked for, in order."""
    named = os.environ.get("PUMPGRAPH_LIBRARY")
    if named:
        return [Path(named)]  # named outright: nothing else will do
    package = Path(__file__).resolve().parent
    places = [package / LIBRARY_NAME]
    if len(package.parents) > 2:
        places.append(package.parents[2] / LIBRARY_NAME)  # <prefix>/lib/python3/dist-packages/pumpgraph
        places.append(package.parents[2] / "build" / "lib" / LIBRARY_NAME)  # <checkout>/runtime/python/pumpgraph
    return places


def load() -> Library:
    places = candidates()
    for place in places:
        if place.is_file():
            return Library(place.resolve())
    looked = ", ".join(str(place) for place in places)
    raise PumpGraphError(
        Status.INTERNAL,
        f"no {LIBRARY_NAME}; looked at {looked}; build it with `tools/dev build`, or name it in PUMPGRAPH_LIBRARY",
    )
