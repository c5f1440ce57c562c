# SPDX-License-Identifier: Apache-2.0
"""Sessions and steps of the C API as Python objects: marshalling and ownership, nothing of PyTorch."""

from __future__ import annotations

import contextlib
import ctypes
import enum
import gzip
import json
import os
import tempfile
from ctypes import byref, c_int32, c_void_p
from pathlib import Path
from typing import Any, Dict, Iterable, Iterator, List, NamedTuple, Optional, Sequence, Tuple, Type, Union

from ._capi import (AdoptOptions, BudgetState, Copies, Extent, Launch, Library, MemoryStats, Measurement, Observation,
                    Progress, Replanning, SessionOptions, TorchRecording, Validation)
from ._report import Report
from .errors import invalid

PathLike = Union[str, "os.PathLike[str]"]


class OperationKind(enum.IntEnum):
    """As pumpgraph_operation of the C API."""

    UNKNOWN = 0
    WHOLE = 1
    PURE = 2


class ArithmeticKind(enum.IntEnum):
    """As pumpgraph_arithmetic of the C API."""

    UNKNOWN = 0
    FP64 = 1
    FP32 = 2
    TF32 = 3
    HALF = 4
    FP8 = 5
    INT8 = 6


class ValidationResult(NamedTuple):
    """The figures of validate(), which returns only if no result differs that the captured step itself reproduces, and
    no node that the plan runs again is seen to be impure.

    `unstable_buffers` counts buffers that the captured step itself does not reproduce from the same state. `impure` is
    the reason why no repeated node was checked, if one had to be.
    """

    compared_buffers: int
    compared_bytes: int
    different_buffers: int
    unstable_buffers: int
    first_difference: str
    impure_nodes: int
    impure: str


class ObservationResult(NamedTuple):
    """The figures of all calls of observe() for a step.

    `slots`: operands of the observed kernels. `covered`: operands on which at least two runs agree. `differing`:
    operands on which runs disagree. `disagreements`: contradictions to proved, declared or assumed accesses.
    """

    runs: int
    kernels: int
    slots: int
    covered: int
    differing: int
    disagreements: int
    first_disagreement: str


class ProgressState(NamedTuple):
    """How far a call on a session is.

    `phase`: "capturing" (`done` of `total` captures), "planning" (`best_us`: predicted time of the best plan so far,
    microseconds; 0: none), "pinning" (`done` of `total` bytes), or None.
    """

    phase: Optional[str]
    done: int
    total: int
    best_us: float
    seconds: float


_PHASES = (None, "capturing", "planning", "pinning")


class MeasurementResult(NamedTuple):
    """The median time of a replay in microseconds, and the number of nodes with a time of their own."""

    step_us: float
    timed_nodes: int


class ReplanningResult(NamedTuple):
    """Predicted and measured step times of the plan before and of the best new plan, in microseconds.

    `kept_first`: every new plan was slower, and the plan before is in force again.
    """

    predicted_before_us: float
    measured_before_us: float
    predicted_us: float
    measured_us: float
    timed_nodes: int
    kept_first: bool


def _sized(structure: Type[Any]) -> Any:
    """A zeroed structure that says how large it is, as the C API wants it."""
    value = structure()
    value.struct_size = ctypes.sizeof(structure)
    return value


def _encoded(text: Optional[PathLike]) -> Optional[bytes]:
    return None if text is None else os.fsencode(text)


def read_ir(costs: Optional[PathLike]) -> Optional[str]:
    """IR text of a saved step: `costs` is the text itself, or the path of a .mlir or .mlir.gz file."""
    if costs is None:
        return None
    if isinstance(costs, str) and "\n" in costs:
        return costs
    path = Path(costs)
    if not path.is_file():
        raise invalid(f"costs: there is no file {path}")
    data = path.read_bytes()
    try:
        return (gzip.decompress(data) if path.suffix == ".gz" else data).decode()
    except (EOFError, OSError, UnicodeDecodeError, ValueError) as error:
        raise invalid(f"costs: {path} is damaged: {error}") from None


def user_cache() -> Optional[Path]:
    """Where install() keeps what it measures. Made if it is missing; None where it cannot be: then every process
    measures."""
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "pumpgraph"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return None
    return folder


BACKENDS = ("virtual", "managed", "automatic")  # pumpgraph_backend
PREFETCHING = ("ahead", "at_launch", "none")  # pumpgraph_prefetching
HOSTING = ("automatic", "no_room", "measured")  # pumpgraph_hosting
REMATERIALIZE = ("automatic", "never")  # pumpgraph_rematerialize
PLANNING = ("aside", "in_replay")  # pumpgraph_planning
BOUNDARIES = ("automatic", "own", "shared")  # pumpgraph_boundary


class Use(enum.IntEnum):
    """pumpgraph_use: what becomes of values that are brought to their addresses."""

    READ = 0
    WRITE = 1
    UNTIL_REPLAY = 2  # written, and no other call takes their frames


class Session:
    """Owns a pumpgraph_session. `mapped_depth` counts map() calls in force: no step may be replayed meanwhile."""

    def __init__(
        self,
        library: Library,
        budget_bytes: Optional[int],
        device: int = 0,
        host_limit_bytes: int = 0,
        cache_directory: Optional[PathLike] = None,
        compiler_library: Optional[PathLike] = None,
        whole_process: bool = False,
        backend: str = "virtual",
        managed_bytes: int = 0,
        managed_limit_bytes: int = 0,
        allow_oversubscription: bool = False,
        rematerialize: str = "automatic",
        planning: str = "aside",
    ):
        if backend not in BACKENDS:
            raise invalid(f"backend={backend!r}; it is one of {', '.join(BACKENDS)}")
        if rematerialize not in REMATERIALIZE:
            raise invalid(f"rematerialize={rematerialize!r}; it is one of {', '.join(REMATERIALIZE)}")
        if planning not in PLANNING:
            raise invalid(f"planning={planning!r}; it is one of {', '.join(PLANNING)}")
        options = _sized(SessionOptions)
        options.whole_process = whole_process
        options.budget_bytes = budget_bytes or 0
        options.unlimited = budget_bytes is None
        options.device = device
        options.host_limit_bytes = host_limit_bytes
        options.cache_directory = _encoded(cache_directory)
        options.compiler_library = _encoded(compiler_library)
        options.backend = BACKENDS.index(backend)
        options.managed_bytes = managed_bytes
        options.managed_limit_bytes = managed_limit_bytes
        options.allow_oversubscription = allow_oversubscription
        options.rematerialize = REMATERIALIZE.index(rematerialize)
        options.planning = PLANNING.index(planning)
        handle = c_void_p()
        library.call("pumpgraph_session_create", byref(options), byref(handle))
        self.library = library
        self.device = device
        self.mapped_depth = 0
        self._handle = handle
        self._departures: Any = None

    def close(self) -> None:
        handle, self._handle = self._handle, c_void_p()
        if handle:
            self.library.destroy("pumpgraph_session_destroy", handle)

    def progress(self) -> ProgressState:
        """Of the present call of another thread, which is not waited for."""
        progress = _sized(Progress)
        self.library.call("pumpgraph_get_progress", self._handle, byref(progress))
        phase = _PHASES[progress.phase] if progress.phase < len(_PHASES) else None
        return ProgressState(phase, progress.done, progress.total, progress.best_us, progress.seconds)

    def allocate(self, size: int, stream: int) -> int:
        """The address of `size` bytes, for use on `stream`."""
        pointer = c_void_p()
        self.library.call("pumpgraph_allocate", self._handle, size, stream, None, byref(pointer))
        return pointer.value or 0

    def free(self, pointer: int, stream: int) -> None:
        self.library.call("pumpgraph_free", self._handle, pointer, stream)

    def attach_torch(self) -> None:
        self.library.call("pumpgraph_torch_attach", self._handle)

    def detach_torch(self) -> None:
        self.library.call("pumpgraph_torch_attach", None)

    def keep_for_torch(self, pointer: int) -> None:
        """PyTorch's next free of this address, in this thread, frees nothing, and its next allocation is there."""
        self.library.keep_for_torch(pointer)

    def record_torch(self, functions: Optional[Dict[str, Optional[int]]], most_events: int = 0, stacks: int = 0,
                     keep_events: bool = False) -> None:
        """Records what PyTorch allocates and frees, with the interpreter's `functions`; None: no more."""
        if functions is None:
            self.library.call("pumpgraph_torch_record", self._handle, None)
            return
        recording = _sized(TorchRecording)
        recording.most_events, recording.stacks, recording.keep_events = most_events, stacks, keep_events
        for name, function in functions.items():
            setattr(recording, name, function)
        self.library.call("pumpgraph_torch_record", self._handle, byref(recording))

    def torch_snapshot(self) -> Dict[str, Any]:
        """What was recorded, and the memory that is there (pumpgraph_torch_snapshot in pumpgraph.h)."""
        text = c_void_p()
        self.library.call("pumpgraph_torch_snapshot", self._handle, byref(text))
        return json.loads(self.library.take_string(text.value))

    def declare_present(self, pointer: int) -> None:
        self.library.call("pumpgraph_declare_present", self._handle, pointer)

    def declare_private(self, pointer: int) -> None:
        self.library.call("pumpgraph_declare_private", self._handle, pointer)

    def declare_reads(self, stream: int, pointers: Sequence[int]) -> None:
        """The nodes that the capture on `stream` got since the last call only read these allocations."""
        self.library.call("pumpgraph_declare_reads", self._handle, stream, (c_void_p * len(pointers))(*pointers),
                          len(pointers))

    def declare_kernel_reads(self, name: str, parameters: Sequence[int]) -> None:
        """Kernels of this name only read what these of their parameters lead to."""
        self.library.call("pumpgraph_declare_kernel_reads", self._handle, name.encode(),
                          (ctypes.c_uint32 * len(parameters))(*parameters), len(parameters))

    def declare_writes(self, stream: int, pointers: Optional[Sequence[int]]) -> None:
        """Of the program's memory that was there before the capture, the nodes that the capture on `stream` got since
        the last call write these allocations at most. None: nothing is said of them."""
        count = len(pointers or ())
        said = None if pointers is None else (c_void_p * max(count, 1))(*pointers)
        self.library.call("pumpgraph_declare_writes", self._handle, stream, said, count)

    def declare_reach(self, stream: int, read: Sequence[int], written: Sequence[int]) -> None:
        """The nodes that the capture on `stream` got since the last call reach these allocations by addresses in
        memory, and may write the latter. None of either: nothing is said of the nodes."""
        self.library.call("pumpgraph_declare_reach", self._handle, stream, (c_void_p * len(read))(*read), len(read),
                          (c_void_p * len(written))(*written), len(written))

    def declare_extents(self, stream: int, extents: Sequence[Tuple[int, int]]) -> None:
        """Of the allocations that hold these extents, address and bytes, the nodes that the capture on `stream` got
        since the last call touch the extents alone. None: nothing is said of the nodes."""
        declared = (Extent * len(extents))(*(Extent(*extent) for extent in extents))
        self.library.call("pumpgraph_declare_extents", self._handle, stream, declared, len(extents))

    def declare_aside(self, stream: int, pointers: Sequence[int]) -> None:
        """What the nodes that the capture on `stream` got since the last call find in these allocations reaches nothing
        that they write elsewhere."""
        self.library.call("pumpgraph_declare_aside", self._handle, stream, (c_void_p * len(pointers))(*pointers),
                          len(pointers))

    def declare_operation(self, stream: int, kind: OperationKind) -> None:
        """The nodes that the capture on `stream` got since the last call are one operation of this kind."""
        self.library.call("pumpgraph_declare_operation", self._handle, stream, kind)

    def declare_arithmetic(self, stream: int, operations: float, kind: ArithmeticKind) -> None:
        """The nodes that the capture on `stream` got since the last call compute so much together."""
        self.library.call("pumpgraph_declare_arithmetic", self._handle, stream, operations, kind)

    def name_nodes(self, stream: int, name: str) -> None:
        """The nodes that the capture on `stream` got since the last call are called this in reports."""
        self.library.call("pumpgraph_name_nodes", self._handle, stream, name.encode())

    def name(self, pointer: int, name: str) -> None:
        self.library.call("pumpgraph_name", self._handle, pointer, name.encode())

    @contextlib.contextmanager
    def tag(self, name: str) -> Iterator[None]:
        """What this thread allocates inside carries the tag (pumpgraph_tag_begin in pumpgraph.h)."""
        number = ctypes.c_uint64()
        self.library.call("pumpgraph_tag_begin", self._handle, name.encode(), byref(number))
        try:
            yield
        finally:
            self.library.call("pumpgraph_tag_end", self._handle, number)

    def tags(self, reset_peaks: bool = False) -> List[Dict[str, Any]]:
        """The bytes of each tag (pumpgraph_tags in pumpgraph.h)."""
        text = c_void_p()
        self.library.call("pumpgraph_tags", self._handle, int(reset_peaks), byref(text))
        return json.loads(self.library.take_string(text.value))

    def reset_peaks(self) -> None:
        """The peaks of memory_stats() count from here."""
        self.library.call("pumpgraph_reset_peaks", self._handle)

    def memory_stats(self) -> Dict[str, int]:
        stats = _sized(MemoryStats)
        self.library.call("pumpgraph_memory_statistics", self._handle, byref(stats))
        return {field: getattr(stats, field) for field, _ in MemoryStats._fields_ if field != "struct_size"}

    def keep_to_budget(self) -> str:
        """Where others in the process have come to exceed the budget, has every step planned again before its next
        launch, and says so; else an empty string."""
        state = _sized(BudgetState)
        self.library.call("pumpgraph_keep_to_budget", self._handle, byref(state))
        return state.message.decode("utf-8", "replace")

    @contextlib.contextmanager
    def mapped(self, pointers: Iterable[int]) -> Iterator[None]:
        """The true values of these allocations are at their addresses inside; no step may be replayed meanwhile."""
        wanted = list(pointers)
        with contextlib.ExitStack() as undo:
            self.bring(wanted, Use.WRITE)  # all of them know of each other then
            for pointer in wanted:
                self.map(pointer)
                undo.callback(self.unmap, pointer)
            yield

    def map(self, pointer: int) -> None:
        """The true value of the allocation is at its address until unmap(). Waits for the device; nests."""
        self.library.call("pumpgraph_map", self._handle, pointer)
        self.mapped_depth += 1

    def unmap(self, pointer: int) -> None:
        self.mapped_depth -= 1
        self.library.call("pumpgraph_unmap", self._handle, pointer)

    def bring(self, pointers: Sequence[int], use: Use) -> None:
        """The values of these allocations are at their addresses until departures() is another number. Waits for the
        device."""
        self.library.call("pumpgraph_bring", self._handle, (c_void_p * len(pointers))(*pointers), len(pointers), use)

    def departures(self) -> int:
        """How often values have left the addresses that bring() brought them to."""
        if self._departures is None:
            self._departures = ctypes.POINTER(ctypes.c_uint64)()
            self.library.call("pumpgraph_departures", self._handle, byref(self._departures))
        return self._departures[0]

    def take_back(self) -> None:
        """Brings every value to its address, until the next replay. Not while a stream is capturing."""
        self.library.call("pumpgraph_take_back", self._handle)

    def empty_cache(self) -> None:
        """Gives up freed allocations that are kept to be used again. Not while a stream is capturing."""
        self.library.call("pumpgraph_empty_cache", self._handle)

    def measure_link(self, seconds: float) -> None:
        """Measures the link again, while all other ranks of the host do so too. Plans from now on count on that."""
        self.library.call("pumpgraph_measure_link", self._handle, seconds)

    def begin_paging(self, stream: int) -> bool:
        """Operators run eagerly on `stream` until end_paging(), and may need more than the budget together. Whether it
        has begun: on managed memory, without a budget and while a plan is in force there is nothing to page."""
        begun = c_int32()
        self.library.call("pumpgraph_begin_paging", self._handle, stream, byref(begun))
        return bool(begun.value)

    def page_in(self, pointers: Sequence[int]) -> None:
        """An operator uses this memory next. May wait for the device."""
        self.library.call("pumpgraph_page_in", self._handle, (c_void_p * len(pointers))(*pointers), len(pointers))

    def end_paging(self) -> int:
        """The bytes that have moved since begin_paging()."""
        moved = ctypes.c_uint64()
        self.library.call("pumpgraph_end_paging", self._handle, byref(moved))
        return moved.value

    @contextlib.contextmanager
    def freeing_scratch(self) -> Iterator[None]:
        """What the last capture has allocated and is freed inside was scratch memory of its operations."""
        self.library.call("pumpgraph_free_scratch", self._handle, True)
        try:
            yield
        finally:
            self.library.call("pumpgraph_free_scratch", self._handle, False)

    @contextlib.contextmanager
    def keeping_freed(self) -> Iterator[None]:
        """What is freed inside stays for graphs of the program's own that were captured since it was allocated."""
        self.library.call("pumpgraph_keep_freed", self._handle, True)
        try:
            yield
        finally:
            self.library.call("pumpgraph_keep_freed", self._handle, False)

    def follow_capture(self, stream: int) -> None:
        """The session knows of a graph once it has allocated something: the graph that is captured on `stream`."""
        pointer = c_void_p()
        self.library.call("pumpgraph_allocate", self._handle, 1, stream, None, byref(pointer))
        self.library.call("pumpgraph_free", self._handle, pointer, stream)

    def capture_begin(self) -> None:
        self.library.call("pumpgraph_capture_begin", self._handle)

    def capture_end(self) -> None:
        self.library.call("pumpgraph_capture_end", self._handle)

    def rehearse(self, graph: int) -> None:
        self.library.call("pumpgraph_rehearse", self._handle, graph)

    def rehearsal_matches(self, graph: int) -> bool:
        same = c_int32()
        self.library.call("pumpgraph_rehearsal_matches", self._handle, graph, byref(same))
        return bool(same.value)

    def adopt(
        self,
        graph: int,
        name: str = "step",
        costs: Optional[PathLike] = None,
        leave_as_captured: bool = False,
        keep_first_plan: bool = False,
        calibrate: bool = False,
        boundary: str = "automatic",
        prefetching: str = "ahead",
        hosting: str = "automatic",
        rematerialize: str = "automatic",
        trust_purity: bool = False,
        plan_others_again: bool = False,
    ) -> "NativeStep":
        options = _sized(AdoptOptions)
        options.name = name.encode()
        ir = read_ir(costs)
        options.costs_ir = None if ir is None else ir.encode()
        options.leave_as_captured = leave_as_captured
        options.keep_first_plan = keep_first_plan
        options.calibrate = calibrate
        if boundary not in BOUNDARIES:
            raise invalid(f"boundary={boundary!r}; it is one of {', '.join(BOUNDARIES)}")
        options.boundary = BOUNDARIES.index(boundary)
        if prefetching not in PREFETCHING:
            raise invalid(f"prefetching={prefetching!r}; it is one of {', '.join(PREFETCHING)}")
        options.prefetching = PREFETCHING.index(prefetching)
        if hosting not in HOSTING:
            raise invalid(f"hosting={hosting!r}; it is one of {', '.join(HOSTING)}")
        options.hosting = HOSTING.index(hosting)
        if rematerialize not in REMATERIALIZE:
            raise invalid(f"rematerialize={rematerialize!r}; it is one of {', '.join(REMATERIALIZE)}")
        options.rematerialize = REMATERIALIZE.index(rematerialize)
        options.trust_purity = trust_purity
        options.plan_others_again = plan_others_again
        handle = c_void_p()
        self.library.call("pumpgraph_adopt", self._handle, graph, byref(options), byref(handle))
        return NativeStep(self.library, handle)


class NativeStep:
    """Owns a pumpgraph_step. The captured graph is its caller's, and must outlive it."""

    def __init__(self, library: Library, handle: c_void_p):
        self.library = library
        self._handle = handle
        self.is_open = True
        self._put_in_force = library.bound("pumpgraph_put_in_force")
        self._prepare_replay = library.bound("pumpgraph_prepare_replay")

    def close(self) -> None:
        handle, self._handle = self._handle, c_void_p()
        self.is_open = False
        if handle:
            self.library.destroy("pumpgraph_step_destroy", handle)

    def put_in_force(self) -> None:
        """Before the graph is launched: if another step has run since, it waits for the device and moves data."""
        self._put_in_force(self._handle)

    def prepare_replay(self, stream: int, copies: Copies) -> None:
        """The same, and then these copies on `stream`, asynchronously."""
        self._prepare_replay(self._handle, stream, copies, len(copies))

    def replay(self, stream: int) -> None:
        """Launches the step on `stream`, asynchronously, in an instantiation of the library's own."""
        self.library.call("pumpgraph_replay", self._handle, stream)

    def before_launch(self, stream: int) -> Tuple[bool, bool]:
        """Before a launch on `stream` of a step that is watched: whether its graph has to be instantiated anew first,
        and whether it goes on being watched."""
        launch = _sized(Launch)
        self.library.call("pumpgraph_before_launch", self._handle, stream, byref(launch))
        return bool(launch.graph_has_changed), bool(launch.is_watched)

    def after_launch(self, stream: int) -> None:
        self.library.call("pumpgraph_after_launch", self._handle, stream)

    def report(self) -> Report:
        text = c_void_p()
        self.library.call("pumpgraph_report", self._handle, byref(text))
        return Report(json.loads(self.library.take_string(text.value)))

    def save(self, path: PathLike) -> None:
        """Writes the captured step as IR text; compressed where the name ends in .gz."""
        path = Path(path)
        if path.suffix != ".gz":
            self.library.call("pumpgraph_save", self._handle, os.fsencode(path))
            return
        with tempfile.TemporaryDirectory() as folder:
            plain = Path(folder) / "step.mlir"
            self.library.call("pumpgraph_save", self._handle, os.fsencode(plain))
            # Neither name nor time of day goes into the file: the same step gives the same bytes.
            with open(path, "wb") as raw, gzip.GzipFile(filename="", mode="wb", fileobj=raw, mtime=0) as packed:
                packed.write(plain.read_bytes())

    def memory_snapshot(self, path: PathLike) -> None:
        """Writes what the plan has on the device over one replay, for PyTorch's memory viewer."""
        self.library.call("pumpgraph_memory_snapshot", self._handle, os.fsencode(path))

    def measure(self, repeats: int = 10) -> MeasurementResult:
        if repeats < 1:
            raise invalid(f"measure: {repeats} repeats; at least one is needed")
        result = _sized(Measurement)
        self.library.call("pumpgraph_measure", self._handle, repeats, byref(result))
        return MeasurementResult(result.step_us, result.timed_nodes)

    def replan(self) -> ReplanningResult:
        """The graph changes in place: whoever instantiated it has to do so again."""
        result = _sized(Replanning)
        self.library.call("pumpgraph_replan", self._handle, byref(result))
        return ReplanningResult(
            result.predicted_before_us,
            result.measured_before_us,
            result.predicted_us,
            result.measured_us,
            result.timed_nodes,
            bool(result.kept_first),
        )

    def validate(self) -> ValidationResult:
        result = _sized(Validation)
        self.library.call("pumpgraph_validate", self._handle, byref(result))
        return ValidationResult(
            result.compared_buffers,
            result.compared_bytes,
            result.different_buffers,
            result.unstable_buffers,
            result.first_difference.decode("utf-8", "replace"),
            result.impure_nodes,
            result.impure.decode("utf-8", "replace"),
        )

    def observe(self, values: Sequence[int] = ()) -> ObservationResult:
        """`values`: addresses in allocations by whose contents kernels find nothing."""
        result = _sized(Observation)
        addresses = (ctypes.c_void_p * len(values))(*values)
        self.library.call("pumpgraph_observe", self._handle, addresses, len(values), byref(result))
        return ObservationResult(
            result.runs,
            result.kernels,
            result.slots,
            result.covered,
            result.differing,
            result.disagreements,
            result.first_disagreement.decode("utf-8", "replace"),
        )
