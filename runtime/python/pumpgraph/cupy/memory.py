# SPDX-License-Identifier: Apache-2.0
"""CuPy's allocator: memory of a session at stable addresses.

An allocation belongs to the stream that is current, and is freed on it, as in CuPy's own pool. Between the begin and
the end of a capture an allocation is an address without memory, so other threads wait with theirs until it has ended.
"""

from __future__ import annotations

import contextlib
import gc
import sys
import threading
import weakref
from typing import Any, Dict, Iterable, Iterator, List, Optional, Union

import cupy

from .. import _capi, messages
from .._session import PathLike, Session, Use, user_cache
from .._sizes import parse_budget, parse_size
from ..errors import PumpGraphError, invalid, is_shortage
from .places import current_line
from .refusals import refuse_stream


class OutOfMemoryError(PumpGraphError, cupy.cuda.memory.OutOfMemoryError):
    """There is no room for the requested memory."""

    def __init__(self, error: PumpGraphError):
        PumpGraphError.__init__(self, error.status, str(error))


class Allocation:
    """Owns memory of the session. `line`: of the program, where a capture has allocated it."""

    __slots__ = ("pointer", "size", "line", "_installation", "_stream", "__weakref__")

    def __init__(self, installation: "Installation", pointer: int, size: int, stream: Any, line: str):
        self.pointer, self.size, self.line = pointer, size, line
        self._installation = installation
        self._stream = stream  # which must not be destroyed before: the memory is freed on it

    def __del__(self) -> None:
        if not sys.is_finalizing():
            self._installation.free(self.pointer, self._stream.ptr)


class Installation:
    """What install() set up. `torch`: PyTorch's installation, whose session this is; None without one."""

    def __init__(self, session: Session, torch: Any = None):
        self.session = session
        self.torch = torch
        self._inside = 0  # the thread in which a function is captured or warmed up
        self.capturing_on = 0  # the stream of a capture that runs
        self.lock = threading.RLock()  # of calls of steps
        self._captures = threading.RLock()  # of allocations, too: threads of a function that warms up may make some
        self._live: "weakref.WeakValueDictionary[int, Allocation]" = weakref.WeakValueDictionary()
        self._captured: List[Any] = []
        self._stream: Any = None
        self._done: Any = None  # an event after the last call

    # ---- memory ----

    def malloc(self, size: int) -> Any:
        """What CuPy calls for every array."""
        device = cupy.cuda.runtime.getDevice()
        if device != self.session.device:
            return cupy.get_default_memory_pool().malloc(size)
        owner = self._allocate(size) if size > 0 else None
        memory = cupy.cuda.UnownedMemory(owner.pointer if owner else 0, size, owner, device)
        return cupy.cuda.MemoryPointer(memory, 0)

    def _allocate(self, size: int) -> Allocation:
        stream = cupy.cuda.get_current_stream()
        with self._captures:
            line = ""
            if self.capturing_on:
                line = current_line()
                self.refuse_other_streams(stream)
            allocation = Allocation(self, self._find_room(size, stream.ptr), size, stream, line)
            self._live[allocation.pointer] = allocation
            if self.capturing_on:
                self._captured.append(weakref.ref(allocation))
        return allocation

    def refuse_other_streams(self, stream: Any) -> None:
        """Work on streams that are not captured would run once, at the capture."""
        if stream.ptr != self.capturing_on and not cupy.cuda.runtime.streamIsCapturing(stream.ptr):
            refuse_stream()

    def _find_room(self, size: int, stream: int) -> int:
        try:
            try:
                return self.session.allocate(size, stream)
            except PumpGraphError as error:
                if not is_shortage(error) or self.capturing_on:
                    raise
                gc.collect()  # as CuPy's pool does: cycles may keep arrays
                return self.session.allocate(size, stream)
        except PumpGraphError as error:
            if is_shortage(error):
                raise OutOfMemoryError(error) from None
            raise

    def free(self, pointer: int, stream: int) -> None:
        with contextlib.suppress(PumpGraphError):  # the device is lost, or the session is gone, with all of its memory
            self.session.free(pointer, stream)

    def allocation_of(self, array: Any) -> Optional[Allocation]:
        """Of an array in memory that CuPy has from the session; None for memory of others, and where nobody knows."""
        memory = array.data.mem
        return self._live.get(memory.ptr) if memory is not None else None

    def has(self, address: int) -> bool:
        """Whether the address is in memory that CuPy has from the session."""
        return any(each.pointer <= address < each.pointer + each.size for each in list(self._live.values()))

    # ---- captures ----

    @property
    def stream(self) -> Any:
        """The stream of all captures."""
        if self._stream is None:
            self._stream = cupy.cuda.Stream(non_blocking=True)
        return self._stream

    @contextlib.contextmanager
    def capturing(self) -> Iterator[List[Any]]:
        """Allocations inside belong to the step. Gives weak references to them."""
        with self._captures:
            self.session.capture_begin()
            captured: List[Any] = []
            self._captured = captured
            self.capturing_on = self.stream.ptr
            try:
                yield captured
            finally:
                self.capturing_on = 0
                self.session.capture_end()

    @contextlib.contextmanager
    def inside(self) -> Iterator[None]:
        """A function that is captured or warmed up runs inside: others that it calls are part of it."""
        before, self._inside = self._inside, threading.get_ident()
        try:
            yield
        finally:
            self._inside = before

    @property
    def is_inside(self) -> bool:
        """Whether this thread is."""
        return self._inside == threading.get_ident()

    def rest(self) -> None:
        """Every value is at its address until the next replay."""
        if self.torch is not None:
            self.torch.guard.rest()
        else:
            self.session.take_back()

    # ---- replays ----

    def before_replay(self) -> None:
        """PyTorch's private tensors may be elsewhere from now on."""
        if self.torch is not None:
            self.torch.guard.moves = True
            self.torch.guard.put_away()
            self.torch.guard.arm()

    def bring_of_torch(self, arrays: Iterable[Any]) -> None:
        """Values of private tensors, which a program may give to a step by DLPack, are at their addresses."""
        if self.torch is None or not self.torch.guard.armed:
            return
        for array in arrays:
            if array.size and self.allocation_of(array) is None:
                with contextlib.suppress(PumpGraphError):  # not of the session
                    self.session.bring([array.data.ptr], Use.READ)

    @contextlib.contextmanager
    def in_order(self, stream: Any) -> Iterator[None]:
        """Calls of steps come one after the other, in whatever threads and on whatever streams."""
        with self.lock:
            if self._done is None:
                self._done = cupy.cuda.Event(disable_timing=True)
            else:  # on the same stream, too: its handle may be another one's by now, or one for each thread
                stream.wait_event(self._done)
            try:
                yield
            finally:
                stream.record(self._done)


_installation: Optional[Installation] = None


def installed() -> Installation:
    if _installation is None:
        raise invalid("pumpgraph.cupy.install(budget=...) has not been called; call it ahead of the first array")
    return _installation


def install(
    budget: Union[int, str, None] = None,
    *,
    session: Optional[Session] = None,
    device: int = 0,
    host_limit: Union[int, str] = 0,
    budget_of: str = "process",
    cache_directory: Optional[PathLike] = None,
    compiler_library: Optional[PathLike] = None,
    rematerialize: str = "automatic",
    planning: str = "aside",
) -> None:
    """Makes CuPy allocate its arrays from a session of PumpGraph, under a hard budget. Call it once, ahead of arrays.

    Memory is at stable addresses, belongs to the stream that is current, and is freed on it, as in CuPy's own pool.
    Arrays from before stay where they are: steps can use them, but they cannot leave the device.

    With PyTorch, call pumpgraph.install(budget=...) first and this without arguments: both share the session and the
    budget, and arrays cross by DLPack without a copy.

    Args:
        budget: the device memory that `budget_of` names, as bytes or text such as "16GiB", or "unlimited". None: the
            session of PyTorch's, or `session`.
        session: a session that exists, in place of a new one.
        device: CUDA device ordinal. Arrays of other devices come from CuPy's own pool. Default 0.
        host_limit, budget_of, cache_directory, compiler_library, rematerialize, planning: as for pumpgraph.install(). A
            budget of "tensors" covers arrays alone.

    Raises:
        PumpGraphError: INVALID_ARGUMENT if install() was called before, or an argument is wrong; NO_DRIVER without a
            usable driver and GPU.
    """
    global _installation
    if _installation is not None:
        raise invalid("pumpgraph.cupy.install() was called before; a process has one session")
    torch = getattr(sys.modules.get("pumpgraph.torch_capture"), "_installation", None)
    if torch is not None and (budget is not None or session is not None):
        raise invalid("PyTorch has a session already, which CuPy shares: write pumpgraph.cupy.install() without a "
                      "budget and a session")
    if session is not None and budget is not None:
        raise invalid("the session has a budget; leave out one of budget= and session=")
    own: Session = session or (torch.session if torch is not None else _new_session(
        budget, device, host_limit, budget_of, cache_directory, compiler_library, rematerialize, planning))
    cupy.get_default_memory_pool().free_all_blocks()  # its cache counts against a budget of the process
    _installation = Installation(own, torch)
    cupy.cuda.set_allocator(_installation.malloc)


def _new_session(budget: Any, device: int, host_limit: Any, budget_of: str, cache_directory: Optional[PathLike],
                 compiler_library: Optional[PathLike], rematerialize: str, planning: str) -> Session:
    if budget is None:
        raise invalid("there is no session of PyTorch's to share; give a budget, such as budget=\"16GiB\"")
    if budget_of not in ("process", "tensors"):
        raise invalid(f"budget_of={budget_of!r}; it is \"process\" or \"tensors\"")
    budget_bytes = parse_budget(budget)
    library = _capi.load()
    messages.forward(library)
    return Session(library, budget_bytes, device, parse_size(host_limit, "host_limit"),
                   cache_directory if cache_directory is not None else user_cache(), compiler_library,
                   budget_of == "process" and budget_bytes is not None, rematerialize=rematerialize, planning=planning)


def memory_stats() -> Dict[str, int]:
    """The present memory of the session, as pumpgraph.memory_stats() has it: `budget_bytes`, `device_bytes`,
    `device_peak_bytes`, `host_backed_bytes`, `pinned_bytes`, `live_bytes` and more.

    Raises PumpGraphError if install() has not been called.
    """
    return installed().session.memory_stats()
