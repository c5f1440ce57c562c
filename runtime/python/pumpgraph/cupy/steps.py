# SPDX-License-Identifier: Apache-2.0
"""Captures of functions of arrays, and the steps that are made of them.

A function is captured twice. Between the two captures every address that was allocated inside moves, which tells the
pointers in kernel parameters from integers that look like them.
"""

from __future__ import annotations

import contextlib
import random
import sys
import warnings
import weakref
from typing import Any, Callable, Iterable, Iterator, List, NamedTuple, Optional, Sequence, Tuple

import cupy

from .. import collector, nested, progress
from .._report import Report
from .._session import NativeStep, PathLike, ValidationResult
from ..errors import UnsupportedError, invalid
from . import entry_points, products, refusals
from .graph_nodes import host_traffic
from .memory import Allocation, Installation, installed
from .places import depth_of_program
from .private import Private
from .refusals import explain
from .surroundings import PLAIN, Binding, Surroundings

_THREAD_LOCAL = 1  # cudaStreamCaptureModeThreadLocal: what other threads do meanwhile is their own business


class Options(NamedTuple):
    """Those of an adoption."""

    name: str = "step"
    costs: Optional[PathLike] = None
    leave_as_captured: bool = False
    keep_first_plan: bool = False
    calibrate: bool = False
    boundary: str = "automatic"
    rematerialize: str = "automatic"


class Captured(NamedTuple):
    """`own`: addresses of the allocations that the step has made and that its output lies in."""

    native: NativeStep
    graph: int
    output: Any
    own: Tuple[int, ...]


def arrays_in(output: Any) -> List[Any]:
    found: List[Any] = []
    nested.replaced(output, found.append)
    return [value for value in found if isinstance(value, cupy.ndarray)]


def capture_warm(installation: Installation, fn: Callable[[], Any], present: Sequence[Any],
                 privates: Sequence[Private], bindings: Sequence[Binding], options: Options,
                 check: Callable[[], None]) -> Captured:
    """Captures a function that was warmed up. It is called twice, and nothing runs. `present`: arrays that the program
    leaves alone while the step runs; `privates`: those that it leaves alone at all times. `check` is called after each
    call, of which the second may put back what the first has changed, and raises what there is against the step."""
    session, stream = installation.session, installation.stream
    if cupy.cuda.runtime.streamIsCapturing(cupy.cuda.get_current_stream().ptr):
        raise UnsupportedError(f"\"{options.name}\" cannot be captured inside another capture")
    installation.rest()
    cupy.cuda.runtime.deviceSynchronize()
    session.empty_cache()  # eager work may have left memory that no plan can use
    products.prepare(session)
    drawn = _host_random_numbers()
    graph = 0
    with progress.shown(session, options.name), collector.paused(), contextlib.ExitStack() as undo:
        with _torch_on(stream, installation):
            graph, output, _ = _record(installation, fn, bindings, options.name)
            try:
                check()
                _refuse_host_traffic(installation, graph, options.name)
                session.rehearse(graph)
            finally:
                _destroy(graph)
                output = None
            graph, output, captured = _record(installation, fn, bindings, options.name)
        undo.callback(_destroy, graph)
        check()
        if _host_random_numbers() != drawn:
            raise UnsupportedError(f"\"{options.name}\" draws random numbers of Python or NumPy, and every replay "
                                   "would have the same; draw outside, and pass the number or the array as an argument")
        own = _own_of_output(installation, captured, output, privates, options.name)
        for array in present:
            allocation = installation.allocation_of(array)
            if allocation is not None:
                session.declare_present(allocation.pointer)
        for private in privates:
            session.declare_private(private.unguarded.data.mem.ptr)
        native = session.adopt(graph, **options._asdict())
        undo.pop_all()
    _warn(native.report(), options)
    return Captured(native, graph, output, own)


def _warn(report: Report, options: Options) -> None:
    """Of a step that is not planned, and of known causes of slow replays; in the program's line."""
    reason = report.left_as_captured
    if reason and not options.leave_as_captured:
        warnings.warn(f"step \"{options.name}\" is replayed exactly as captured, which may be slow: {reason}",
                      RuntimeWarning, stacklevel=depth_of_program())
    for warning in [] if reason else report.warnings:
        warnings.warn(f"step \"{options.name}\": {warning}", RuntimeWarning, stacklevel=depth_of_program())


def _record(installation: Installation, fn: Callable[[], Any], bindings: Sequence[Binding],
            name: str) -> Tuple[int, Any, List[Any]]:
    """The graph, what `fn` returned, and weak references to the allocations that it made."""
    stream, runtime = installation.stream, cupy.cuda.runtime
    failure: Optional[BaseException] = None
    graph, output = 0, None
    with installation.capturing() as captured, installation.inside(), stream:
        runtime.streamBeginCapture(stream.ptr, _THREAD_LOCAL)
        try:
            with entry_points.in_place(installation, bindings):
                refusals.forget_raised()
                output = fn()
        except BaseException as error:
            failure = error
        failure = failure or refusals.first_raised()
        try:
            graph = runtime.streamEndCapture(stream.ptr)
        except Exception as error:  # what broke the capture has said so before, or was caught by the program
            failure = failure or error
    if failure is not None:
        output = None
        if graph:
            _destroy(graph)
        explained = explain(failure, f"\"{name}\"")
        if explained is failure:
            raise failure
        raise explained from failure
    return graph, output, captured


def _refuse_host_traffic(installation: Installation, graph: int, name: str) -> None:
    traffic = host_traffic(graph, installation.has)
    if traffic:
        raise UnsupportedError(f"\"{name}\" {traffic}, where a replay would find something else; make arrays of lists "
                               "and of NumPy outside of it, and look at its results outside")


def _own_of_output(installation: Installation, captured: Iterable[Any], output: Any, privates: Sequence[Private],
                   name: str) -> Tuple[int, ...]:
    """Refuses arrays that the program would keep without being given them: each replay would overwrite them."""
    returned = {allocation.pointer for allocation in map(installation.allocation_of, arrays_in(output))
                if allocation is not None}
    if any(private.unguarded.data.mem.ptr in returned for private in privates):
        raise UnsupportedError(f"\"{name}\" returns memory of a Private, which may be elsewhere then; return "
                               "array.copy()")
    for value in _leaves(output):
        if isinstance(value, cupy.ndarray):
            if value.size and installation.allocation_of(value) is None:
                raise UnsupportedError(f"\"{name}\" returns an array in memory of others, or part of an argument by "
                                       "DLPack, which the next replay would overwrite; return array.copy()")
        elif not isinstance(value, PLAIN) and type(value).__module__.partition(".")[0] != "numpy":
            raise UnsupportedError(f"\"{name}\" returns a {type(value).__name__}, the same one in each call; return "
                                   "arrays, numbers and texts, in lists, tuples and dicts")
    own: List[int] = []
    for reference in captured:
        allocation: Optional[Allocation] = reference()
        if allocation is None:
            continue
        if allocation.pointer not in returned:
            raise UnsupportedError(f"{allocation.line}: \"{name}\" keeps an array of {allocation.size} bytes that it "
                                   "does not return, and the next replay would overwrite it; return the array, or "
                                   "write into one that is made outside: array[...] = value")
        own.append(allocation.pointer)
    return tuple(own)


def _leaves(value: Any) -> Iterator[Any]:
    if nested.is_container(value):
        for _, item in nested.items(value):
            yield from _leaves(item)
    else:
        yield value


def _destroy(graph: int) -> None:
    with contextlib.suppress(Exception):  # the device is lost, with all that is on it
        cupy.cuda.runtime.graphDestroy(graph)


@contextlib.contextmanager
def _torch_on(stream: Any, installation: Installation) -> Iterator[None]:
    """What the function asks of PyTorch becomes part of the step, too."""
    torch = sys.modules.get("torch")
    if installation.torch is None or torch is None:
        yield
        return
    with torch.cuda.stream(torch.cuda.ExternalStream(stream.ptr)):
        yield


def _host_random_numbers() -> Tuple[Any, ...]:
    numpy = sys.modules.get("numpy")
    return random.getstate(), repr(numpy.random.get_state()) if numpy is not None else None


class Step:
    """A captured call, made by capture().

    Attributes:
        output: the result of the function: arrays at fixed addresses, which each replay overwrites.
        name: the name in reports.

    Methods raise PumpGraphError once the step is closed or the device is lost.
    """

    def __init__(self, installation: Installation, captured: Captured, name: str, kept: Any):
        self.output = captured.output
        self.name = name
        self.own = captured.own
        self._installation = installation
        self._native = captured.native
        # Not at exit: the driver may be gone by then. `kept`: the step uses their memory.
        self._finalizer = weakref.finalize(self, _release, captured.native, captured.graph, kept)
        self._finalizer.atexit = False

    def replay(self) -> None:
        """Launches the step on the current stream, asynchronously.

        Raises:
            PumpGraphError: INVALID_ARGUMENT if the step is closed, or inside mapped(); OUT_OF_HOST_MEMORY if the values
                of another step find no room.
        """
        if not self._native.is_open:
            raise invalid(f"step \"{self.name}\" is closed")
        stream = cupy.cuda.get_current_stream()
        with self._installation.in_order(stream):
            self._installation.before_replay()
            self._native.replay(stream.ptr)

    def report(self) -> Report:
        """The planned figures and the reasons, as a dict; print() it for text."""
        return self._native.report()

    def validate(self) -> ValidationResult:
        """Compares every live result of the rewritten step with that of the captured step, from the same state. Slow.
        All contents are restored. Finds wrong declarations of reads, too.

        Raises:
            PumpGraphError: MISMATCH if results differ; INVALID_ARGUMENT if the step has an effect that cannot be
                undone.
        """
        cupy.cuda.runtime.deviceSynchronize()
        return self._native.validate()

    def save(self, path: PathLike) -> None:
        """Writes the captured step to the file `path` as IR text, for pump-graph-opt and `costs`. The file is
        compressed if its name ends in .gz."""
        self._native.save(path)

    def memory_snapshot(self, path: PathLike) -> None:
        """Writes the plan's device memory over one predicted replay to the file `path`, for pytorch.org/memory_viz."""
        self._native.memory_snapshot(path)

    def close(self) -> None:
        """Gives up the step and the memory that it alone uses, after a wait for the device. Do not read its results
        afterwards. A second call does nothing."""
        self._finalizer()


def _release(native: NativeStep, graph: int, _kept: Any) -> None:
    try:
        cupy.cuda.runtime.deviceSynchronize()
    except Exception:
        return  # the device is lost, with all that is on it
    native.close()  # first: the graph must outlive the step
    _destroy(graph)


def capture(
    fn: Callable[..., Any],
    *args: Any,
    warmup: int = 2,
    name: Optional[str] = None,
    costs: Optional[PathLike] = None,
    leave_as_captured: bool = False,
    keep_first_plan: bool = False,
    calibrate: bool = False,
    boundary: str = "automatic",
    rematerialize: str = "automatic",
) -> Step:
    """Captures the call fn(*args), plans it under the budget, rewrites it and returns the Step.

    The step works on these very arrays: put other values into them between replays. Arrays among the arguments and
    those that the function finds by name are at their addresses between replays, and can leave the device during one.
    No number is looked at again: graphed() is the layer that does.

    Args:
        fn: the function. It may not wait for the device.
        args: its arguments.
        warmup: number of eager calls, at least 1. Default 2.
        name: name of the step in reports and errors. Default: the function's name.
        costs: a step saved by save(), as path or as text, whose node times the planner uses. Default: estimates.
        leave_as_captured: True plans and rewrites nothing: a baseline.
        keep_first_plan: True keeps the first plan. Otherwise the step is planned again, once, if its first replays
            differ from the prediction by over a tenth.
        calibrate: True runs the step once, part by part, to find addresses that its kernels compute and store.
        boundary: places of Privates between replays, as for pumpgraph.capture().
        rematerialize: "never" forbids plans to run kernels again. Default "automatic".

    Raises:
        UnsupportedError: the function cannot be captured; the text has the place and the remedy.
        PumpGraphError: INVALID_ARGUMENT for arguments, or without install(); UNPLANNABLE, or a lack of memory, if no
            plan exists under the budget.
    """
    installation = installed()
    check_warmup(warmup)
    options = Options(name or str(getattr(fn, "__name__", "step")), costs, leave_as_captured, keep_first_plan,
                      calibrate, boundary, rematerialize)
    roots = [(f"argument {index}", value) for index, value in enumerate(args)]
    with installation.lock:
        for count in range(warmup):
            before = Surroundings(fn, roots)
            installation.rest()
            with installation.inside():
                fn(*args)
            if count:  # the first call sets things up
                refuse_changes(before, Surroundings(fn, roots), options.name)
        found = Surroundings(fn, roots)
        captured = capture_warm(installation, lambda: fn(*args), list(found.arrays.values()), found.privates,
                                found.bindings, options,
                                lambda: refuse_changes(found, Surroundings(fn, roots), options.name))
        step = Step(installation, captured, options.name, [args, found])
        with contextlib.ExitStack() as undo:
            undo.callback(step.close)
            step.replay()
            undo.pop_all()
    return step


def refuse_changes(before: Surroundings, after: Surroundings, name: str) -> None:
    changed = before.difference_to(after)
    if changed:
        raise UnsupportedError(changed_by_step(name, changed))


def changed_by_step(name: str, changed: str) -> str:
    return (f"\"{name}\" changes what it reads, and no replay would: {changed}; write into arrays that are there "
            "(array[...] = value), and count outside of the step")


def check_warmup(warmup: int) -> None:
    if warmup < 1:
        raise invalid(f"warmup={warmup}: libraries set themselves up in the first call, which a capture cannot hold")
