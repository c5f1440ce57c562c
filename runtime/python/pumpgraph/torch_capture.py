# SPDX-License-Identifier: Apache-2.0
"""All that knows PyTorch: its allocator, its captures, and which of its tensors only captured steps touch.

A step is captured twice. Between the two captures every address that was allocated inside moves, which tells the
pointers in kernel parameters from integers that look like them. Nothing runs during a capture, so the first one (the
rehearsal) leaves no trace but Python objects, and those are dropped before the second.
"""

from __future__ import annotations

import contextlib
import random
import sys
import time
import warnings
import weakref
from typing import (Any, Callable, ContextManager, Dict, Iterable, Iterator, List, NamedTuple, Optional, Sequence, Set,
                    Tuple, Union)

import torch

from . import _capi, collector, kernels, memory_figures, messages, progress
from ._capi import Copies
from ._report import Report
from ._session import (MeasurementResult, NativeStep, ObservationResult, PathLike, ReplanningResult, Session,
                       ValidationResult, user_cache)
from ._sizes import format_size, parse_budget, parse_size
from .capture_watch import CaptureWatch
from .collectives import settle_nccl
from .constants import filled_in
from .data_parallel import (Buckets, CapturedParallel, buckets_of, explained_of_parallel, has_ddp, prepare_to_capture,
                            refuse_parallel, refuse_unfinished, warm_up_needed)
from .errors import PumpGraphError, Status, UnsupportedError, invalid
from .generators import of_the_device, register, seeds_unknown
from .guard import Guard
from .hooks import notice_those_of_nodes
from .names import Names
from .operators import DeclaringOperators
from .other_graphs import StepGraph, follow_other_graphs
from .reachable import Reachable
from .record_stream import RecordedStreams
from .refusals import explain_failed_capture
from .shared_steps import LoneCapture, SharedStep, calls_of_collectives, capturing
from .tensors import has_memory, plain_tensors, pointer_of
from .warm_up import WarmUp


class _Installation:
    """What install() set up. A process has at most one, because PyTorch has one allocator."""

    def __init__(self, session: Session, allocator: Any, looks_at_budget: bool):
        self.session = session
        self.allocator = allocator
        self.guard = Guard(session)
        self.recorded_streams = RecordedStreams()
        follow_other_graphs(session, self.guard)
        self.failed_captures: List[torch.cuda.CUDAGraph] = []
        self.steps: "weakref.WeakSet[Step]" = weakref.WeakSet()
        self.next_look = time.monotonic() + 1 if looks_at_budget else float("inf")
        self._stream: Optional[torch.cuda.Stream] = None
        notice_those_of_nodes()
        memory_figures.replace(session, lambda: list(self.steps))

    def look_at_budget(self, now: float) -> None:
        """Once a second: other libraries of the process may take memory at any time."""
        self.next_look = now + 1
        message = self.session.keep_to_budget()
        if not message:
            return
        warnings.warn(message, RuntimeWarning, stacklevel=4)
        self.expect_new_plans()

    def expect_new_plans(self) -> None:
        """Of any step, by its next launch."""
        self.guard.moves = True
        for step in self.steps:
            step.watch_replays()

    @property
    def device(self) -> torch.device:
        return torch.device("cuda", self.session.device)

    @property
    def stream(self) -> torch.cuda.Stream:
        """The one stream of all warm-ups and captures: what libraries allocate a stream is allocated in the first
        warm-up, and found again by every capture."""
        if self._stream is None:
            self._stream = torch.cuda.Stream()
        return self._stream


_installation: Optional[_Installation] = None


def is_installed() -> bool:
    return _installation is not None


def installed() -> _Installation:
    if _installation is None:
        raise invalid("pumpgraph.install(budget=...) has not been called; call it before anything touches CUDA")
    return _installation


# ---- installation ----------------------------------------------------------------------------------------------------


def install(
    budget: Union[int, str],
    *,
    device: int = 0,
    host_limit: Union[int, str] = 0,
    budget_of: str = "process",
    cache_directory: Optional[PathLike] = None,
    compiler_library: Optional[PathLike] = None,
    backend: str = "virtual",
    managed: Union[int, str] = 0,
    managed_limit: Union[int, str] = 0,
    allow_oversubscription: bool = False,
    rematerialize: str = "automatic",
    planning: str = "aside",
) -> None:
    """Makes PumpGraph the allocator of PyTorch, under a hard budget. Call it once, ahead of anything that touches CUDA.

    Sizes are bytes, or text with a unit (B, kB, MB, GB, TB, KiB, MiB, GiB, TiB), such as "16GiB".

    Args:
        budget: the device memory that `budget_of` names, or "unlimited".
        device: CUDA device ordinal. Default 0.
        host_limit: pinned and host-backed memory together. Default 0: three quarters of the system's free memory.
        budget_of: "process" (default): the budget covers all device memory of the process, as nvidia-smi shows it;
            "tensors": it covers tensors alone.
        cache_directory: folder for measured link bandwidths. Default: pumpgraph/ in the user's cache folder.
        compiler_library: path of libpumpgraph-compiler.so, if it is not beside libpumpgraph.so.
        backend: "virtual" (default); "managed"; or "automatic": virtual memory, and managed memory for steps that
            cannot be lifted (docs/design/managed.md).
        managed: managed memory for all tensors, those of both captures included. Default 0: as much as `managed_limit`
            and the device's free memory allow.
        managed_limit: the largest managed arena. Default 0: 4 GiB.
        allow_oversubscription: True lets managed memory exceed the device's free memory; everything is slow then.
        rematerialize: "automatic" (default) lets plans on virtual memory run kernels again, with the same results bit
            for bit, where that is predicted to be faster than moving their results; "never" does not.
        planning: "aside" (default): a step whose first replays miss their prediction is planned again on a thread,
            while replays go on with the first plan. "in_replay": in a replay, the same one in every run, which takes
            seconds longer.

    Raises:
        PumpGraphError: INVALID_ARGUMENT if install() was called before, CUDA is initialised, PyTorch's allocator is in
            use, or an argument is wrong; NO_DRIVER without a usable driver and GPU; OUT_OF_DEVICE_MEMORY if a managed
            arena exceeds its limit.
    """
    global _installation
    if _installation is not None:
        raise invalid("pumpgraph.install() was called before; a process has one session, for PyTorch has one allocator")
    if _cupy() is not None:
        raise invalid("pumpgraph.cupy.install() has made a session already, and a process has one; call "
                      "pumpgraph.install(budget=...) first, then pumpgraph.cupy.install() without a budget")
    if torch.cuda.is_initialized():
        raise invalid("CUDA is initialised already, so its allocator cannot be changed; call pumpgraph.install() "
                      "first, right after the imports")
    if budget_of not in ("process", "tensors"):
        raise invalid(f"budget_of={budget_of!r}; it is \"process\" or \"tensors\"")
    budget_bytes = parse_budget(budget)
    host_limit_bytes = parse_size(host_limit, "host_limit")
    managed_bytes = parse_size(managed, "managed")
    managed_limit_bytes = parse_size(managed_limit, "managed_limit")
    library = _capi.load()
    messages.forward(library)
    session = Session(
        library,
        budget_bytes,
        device,
        host_limit_bytes,
        cache_directory if cache_directory is not None else user_cache(),
        compiler_library,
        budget_of == "process" and budget_bytes is not None,
        backend,
        managed_bytes,
        managed_limit_bytes,
        allow_oversubscription,
        rematerialize,
        planning,
    )
    try:
        kernels.declare(session)
        allocator = _become_the_allocator(session)
    except BaseException:
        session.close()
        raise
    settle_nccl()
    _installation = _Installation(session, allocator, budget_of == "process" and budget_bytes is not None)


def _cupy() -> Any:
    """What pumpgraph.cupy.install() set up; None without it."""
    return getattr(sys.modules.get("pumpgraph.cupy.memory"), "_installation", None)


def _become_the_allocator(session: Session) -> Any:
    allocator = torch.cuda.memory.CUDAPluggableAllocator(
        str(session.library.path), "pumpgraph_torch_malloc", "pumpgraph_torch_free"
    )
    # torch.cuda.empty_cache(), which torch.cuda.graph() calls before it captures, and tensors that autograd and
    # collectives use on other streams than their own; a PyTorch without these does without.
    for setter, function in (("set_reset_fn", "pumpgraph_torch_empty_cache"),
                             ("set_record_stream_fn", "pumpgraph_torch_record_stream")):
        set_function = getattr(allocator.allocator(), setter, None)
        if set_function is not None:
            set_function(session.library.address_of(function))
    session.attach_torch()
    try:
        torch.cuda.memory.change_current_allocator(allocator)
    except RuntimeError as error:
        session.detach_torch()
        raise invalid(f"PyTorch's allocator is in use already ({error}); call pumpgraph.install() before anything "
                      "touches CUDA, and do not install another allocator") from None
    return allocator


def memory_stats() -> Dict[str, int]:
    """The present memory of the session, as a dict of integers. Keys that contain `allocations` are counts, all others
    bytes.

    `budget_bytes`: the budget. `frame_budget_bytes`: the part of it that tensors can have at present; 0: unlimited.
    `device_bytes`, `device_peak_bytes`: memory of the session on the device, and its peak.
    `host_backed_bytes`: tensors that are in host memory at their addresses. `pinned_bytes`: pool for evicted data.
    `live_bytes`, `live_allocations`: live tensors as requested, wherever they are; `live_peak_bytes`,
    `live_peak_allocations`: their peaks. `allocated_bytes`, `allocations`: all allocations ever.
    `process_bytes`: device memory of the whole process under a budget of the process; 0: unknown.

    Of PyTorch's figures, torch.cuda.memory_allocated() counts live tensors wherever they are, memory_reserved()
    PumpGraph's memory on the device, and max_memory_allocated() captures, for a replay allocates nothing. empty_cache()
    gives cached memory to other allocations and plans, not to the driver.

    Raises PumpGraphError if install() has not been called.
    """
    return installed().session.memory_stats()


def tag(name: str) -> ContextManager[None]:
    """Context: what this thread allocates inside carries the tag, as rows(by="tag") of memory_profile() shows it. Tags
    nest: "join" inside "etl" is "etl/join". Backward passes allocate in a thread of autograd's, and carry none.

    Args:
        name: 1 to 255 bytes of UTF-8, without "/".

    Raises:
        PumpGraphError: install() has not been called, or the name is another one.
    """
    return installed().session.tag(name)


# ---- capture ---------------------------------------------------------------------------------------------------------


def capture(
    fn: Callable[[], Any],
    *,
    warmup: int = 3,
    private: Any = (),
    inputs: Any = (),
    name: str = "step",
    costs: Optional[PathLike] = None,
    leave_as_captured: bool = False,
    keep_first_plan: bool = False,
    calibrate: bool = False,
    boundary: str = "automatic",
    prefetching: str = "ahead",
    hosting: str = "automatic",
    rematerialize: str = "automatic",
    capture_error_mode: str = "thread_local",
) -> "Step":
    """Captures `fn`, plans it under the budget, rewrites it and returns the Step.

    `fn` takes no arguments and follows PyTorch's rules for CUDA graphs. It is called `warmup` times eagerly and twice
    under capture, or three times if it replaces gradients. Memory that `fn` allocates and frees itself is private.
    Results of `fn` stay on the device, and so does everything else that neither `private` nor `inputs` name.

    Args:
        fn: the step function, without arguments.
        warmup: number of eager calls, at least 1. Default 3.
        private: modules (parameters, buffers, gradients), optimizers (their state), tensors, or containers of them that
            only captured steps touch from now on. They can leave the device; use mapped() to look at them.
        inputs: the same kinds of things, which the program reads and writes too, but only while no captured step runs.
            They are on the device then, and can leave it while a step runs.
        name: name of the step in reports and errors. Default "step".
        costs: a step saved by Step.save(), as path or as text, whose node times the planner uses. Default: estimates.
        leave_as_captured: True plans and rewrites nothing: a baseline.
        keep_first_plan: True keeps the first plan. Otherwise the step is planned again, once, if its first replays
            differ from the prediction by over a tenth.
        calibrate: True runs the step once, part by part, to find addresses that its kernels compute and store, and
            kernels of pure operators twice, to find those that do not reproduce their results.
        boundary: the places of private tensors between replays. "shared": those of the step before, so that either step
            can follow the other at once; "own": the best for many replays in a row; "automatic" (default): the choice
            that predictions favour.
        prefetching: on managed memory, the time at which pages come back: "ahead" (default), or for comparison
            "at_launch" of the kernel that needs them, or "none" (by faults).
        hosting: on managed memory, the choice of pages that stay in host memory, where kernels reach them over the
            link. "no_room": only pages without room on the device; "measured": pages that are faster there, found by
            several dozen runs of the step; "automatic" (default): "measured" for a calibrated step, else "no_room".
        rematerialize: "never" forbids the step's plans to run kernels again. Default "automatic": as install() says.
        capture_error_mode: that of torch.cuda.graph(). Default "thread_local".

    Returns:
        The Step. Its results lie at fixed addresses (Step.output).

    Raises:
        UnsupportedError: `fn` cannot be captured; the text has the place and the remedy.
        PumpGraphError: INVALID_ARGUMENT for arguments, or without install(); UNPLANNABLE, or a lack of memory, if no
            plan exists under the budget.

    Warns (RuntimeWarning) of a step that is left as captured, and of causes of slow replays.
    """
    if warmup < 1:
        raise invalid(f"warmup={warmup}: libraries set themselves up in the first call, which a capture cannot hold")
    installation = installed()
    timings: Dict[str, float] = {}
    found, things = Reachable(fn), Things(private)
    _check_parallel([*found.modules, *things.modules], warmup)
    with collector.paused(), _stream_restored(), _timed(timings, "warmup_s"):
        has_collectives = _warm_up(installation, fn, warmup, name)
    options = AdoptionOptions(name, costs, leave_as_captured, keep_first_plan, calibrate, boundary, prefetching,
                              hosting, rematerialize)
    own = [each for _, each in of_the_device(Reachable(fn).generators, installation.device)]
    with capturing(name, has_collectives, installation.session) as shared, contextlib.ExitStack() as undo:
        step = capture_warm(installation, shared.following(fn), things, options, timings, capture_error_mode,
                            inputs=Things(inputs), generators=own, modules=found.modules, shared=shared)
        undo.callback(step.close)
        shared.replay(step)
        undo.pop_all()
    return step


def _check_parallel(modules: List[torch.nn.Module], warmup: int) -> None:
    """Modules that train on several devices; those of capture() are not looked at elsewhere."""
    inside = [(name or type(root).__name__, module) for root in modules for name, module in root.named_modules()]
    for name, module in inside:
        refuse_parallel(module, name)
    needed, reason = warm_up_needed([module for _, module in inside], warmup)
    if needed > warmup:
        raise invalid(f"warmup={warmup}: {reason}, which a capture cannot hold; write warmup={needed}")


class AdoptionOptions(NamedTuple):
    """The options of capture() that go to the library."""

    name: str = "step"
    costs: Optional[PathLike] = None
    leave_as_captured: bool = False
    keep_first_plan: bool = False
    calibrate: bool = False
    boundary: str = "automatic"
    prefetching: str = "ahead"
    hosting: str = "automatic"
    rematerialize: str = "automatic"
    trust_purity: bool = False


def capture_warm(
    installation: _Installation,
    fn: Callable[[], Any],
    things: "Things",
    options: AdoptionOptions,
    timings: Dict[str, float],
    capture_error_mode: str = "thread_local",
    stacklevel: int = 3,
    put_back: Callable[[], None] = lambda: None,
    inputs: Optional["Things"] = None,
    generators: Sequence[Any] = (),
    drawn: Optional[Set[Any]] = None,
    modules: Sequence[torch.nn.Module] = (),
    shared: LoneCapture = LoneCapture(),
) -> "Step":
    """capture() for a function that was warmed up. `fn` is called two or three times, and nothing runs. `put_back`
    undoes what a call of `fn` leaves in Python: after a rehearsal, and where the capture fails. `generators`: of random
    numbers, the program's own on the device. `drawn` gets the identities of those that are drawn from, None for CUDA's
    own. `modules`: those that `fn` works on, beside those of `things`. `shared`: what other ranks agree to."""
    if torch.cuda.is_current_stream_capturing():
        raise UnsupportedError(f"step \"{options.name}\" cannot be captured inside another capture")
    installation.guard.rest()
    installation.session.empty_cache()  # eager operators may have left memory that no plan can use
    with progress.shown(installation.session, options.name), collector.paused(), _stream_restored(), \
            contextlib.ExitStack() as undo:
        undo.callback(_host_random_numbers())
        undo.callback(put_back)
        writing_addresses: Set[str] = set()
        operands: Set[int] = set()
        watch = CaptureWatch(options.name)
        parallel = [module for root in (*things.modules, *modules) for module in root.modules()]
        prepare_to_capture(parallel)
        buckets = Buckets() if any(has_ddp(root.modules()) for root in things.modules) else None
        explained = watch.ended_inside(_explained(installation, fn, things, drawn, writing_addresses, operands, watch,
                                                  buckets))
        rehearsals: List[torch.cuda.CUDAGraph] = []

        def rehearse() -> bool:
            with _timed(timings, "rehearsal_s"), watch.during("the rehearsal"), contextlib.ExitStack() as undrawn:
                # A rehearsal takes no random numbers from the host, so that all captures draw the same.
                undrawn.callback(_host_random_numbers())
                undrawn.enter_context(seeds_unknown(generators, installation.device))
                with explained_of_parallel(parallel):
                    replaced = _rehearse(installation, explained, capture_error_mode, things, generators, rehearsals,
                                         operands, options.name)
                refuse_unfinished(parallel)
            return replaced

        had = things.gradients()
        try:
            if rehearse():  # the capture has no such gradients: a rehearsal without them shows whether they matter
                put_back()
                rehearse()
        except BaseException:
            for parameter, gradient in had:
                parameter.grad = gradient
            raise
        del had  # for the plan, which would have to do without their memory
        if writing_addresses:  # what these name is known once the step has run
            options = options._replace(calibrate=True, trust_purity=not options.calibrate)
        put_back()
        undo.callback(_drop_replaced, things.gradients())  # without an adopted step they never get memory
        if buckets is not None:
            buckets.keep(parallel)
        with _timed(timings, "capture_s"), watch.during("the capture"):
            graph, output = _record(installation, watch.ended_inside(fn), capture_error_mode, generators)
            for rehearsal in rehearsals:
                rehearsal.reset()  # not before: the random-number tensors that graphs share would be given up and moved
        with _timed(timings, "adopt_s"):
            _declare(installation.session, things, inputs or Things(()), output)
            options = shared.plan(options)
            with watch.during("the calibration", is_called=True) if options.calibrate else contextlib.nullcontext():
                native = _adopt(installation, graph, options)
        undo.pop_all()
    step = Step(installation, graph, native, output, options.name, timings)
    step.parallel = CapturedParallel(parallel) or None
    with _timed(timings, "instantiate_s"), contextlib.ExitStack() as undo:
        undo.callback(step.close)
        graph.instantiate()
        undo.pop_all()
    _warn_if_beyond_budget(installation.session, stacklevel + 1)
    if not options.leave_as_captured:
        _watch_or_warn(step, stacklevel + 1)
    return step


def _warn_if_beyond_budget(session: Session, stacklevel: int) -> None:
    stats = session.memory_stats()
    used, budget = stats["process_bytes"], stats["budget_bytes"]
    if used > budget > 0:
        warnings.warn(f"the process has {format_size(used)} on the device, {format_size(used - budget)} more than the "
                      "budget: kernels and graphs have taken more since the step was planned than is kept for them",
                      stacklevel=stacklevel)


def _warm_up(installation: _Installation, fn: Callable[[], Any], times: int, name: str) -> bool:
    """Whether there were collectives."""
    warm_up = WarmUp(name, times)
    for _ in range(times):
        run_eagerly(installation, fn, warm_up)
    torch.cuda.synchronize()
    return warm_up.has_collectives


def run_eagerly(installation: _Installation, fn: Callable[[], Any], warm_up: WarmUp) -> Any:
    """Calls `fn` on PumpGraph's stream, in the order of the current one."""
    stream, current = installation.stream, torch.cuda.current_stream()
    stream.wait_stream(current)
    # Steps captured before may have left private tensors anywhere. Before a capture too, because it waits for the
    # device, which a stream capture does not allow.
    installation.guard.rest()
    calls = calls_of_collectives()
    try:
        with torch.cuda.stream(stream), warm_up.watched(installation.session, stream.cuda_stream):
            return fn()
    finally:
        warm_up.has_collectives = warm_up.has_collectives or calls_of_collectives() != calls
        current.wait_stream(stream)


def _explained(installation: _Installation, fn: Callable[[], Any], things: "Things",
               drawn: Optional[Set[Any]], writing_addresses: Set[str], operands: Set[int], watch: CaptureWatch,
               buckets: Optional[Buckets]) -> Callable[[], Any]:
    """`fn`, while the session hears what its operators only read, and what they and their results are called.
    `writing_addresses` gets those whose kernels leave addresses to each other in memory, `operands` the addresses of
    all that operators got, `buckets` the memory that is given to collectives, and `watch` the calls."""
    session = installation.session
    note = buckets.note if buckets is not None else lambda _arguments: None

    def explained() -> Any:
        names = Names(session, things.followed_modules(), things.named_gradients)
        operators = DeclaringOperators(session, installation.stream.cuda_stream, names, drawn, watch.calls, note)
        try:
            with names.following(), operators:
                return fn()
        finally:
            writing_addresses.update(operators.writing_addresses)
            operands.update(operators.operands)

    return explained


def _rehearse(installation: _Installation, fn: Callable[[], Any], mode: str, things: "Things",
              generators: Sequence[Any], before: List[torch.cuda.CUDAGraph], operands: Set[int],
              name: str) -> bool:
    """Captures `fn`, adds the graph to those `before`, and lets go of every tensor of that capture, gradients included.
    Returns whether it replaced gradients. What there is to say of nodes and memory is said here: while a dispatch mode
    looks on PyTorch does some things otherwise, such as adding gradients up, so nothing is to look at the capture that
    counts. If there is a rehearsal before, both must be the same. `operands`: addresses of what operators got."""
    had = things.gradients()
    try:
        graph, _ = _record(installation, fn, mode, generators)
        replaced = [gradient for parameter, gradient in had if gradient is not None and parameter.grad is not None
                    and not _same_memory(parameter.grad, gradient)]
        is_another = bool(before) and not installation.session.rehearsal_matches(graph.raw_cuda_graph())
        before.append(graph)
        if is_another or any(pointer_of(gradient) in operands for gradient in replaced):
            raise UnsupportedError(f"step \"{name}\" uses gradients of the call before and then makes new ones; begin "
                                   "it with zero_grad(), or make it two graphed functions")
        installation.session.rehearse(graph.raw_cuda_graph())
        return bool(replaced)
    finally:
        _drop_replaced(had)


def _drop_replaced(before: Iterable[Tuple[torch.Tensor, Optional[torch.Tensor]]]) -> None:
    """A gradient that `fn` made anew is a tensor of a capture that is over; the one before it would be replaced again,
    so to keep it would cost memory for nothing. One that `fn` adds to in place is the same as before, and stays. One
    that `fn` uses up and drops comes back."""
    for parameter, gradient in before:
        if not _same_memory(parameter.grad, gradient):
            parameter.grad = gradient if parameter.grad is None else None


def _same_memory(a: Optional[torch.Tensor], b: Optional[torch.Tensor]) -> bool:
    if a is None or b is None:
        return a is b
    return pointer_of(a) == pointer_of(b)


def _record(installation: _Installation, fn: Callable[[], Any], mode: str,
            generators: Sequence[Any]) -> Tuple[torch.cuda.CUDAGraph, Any]:
    session = installation.session
    graph = StepGraph(keep_graph=True)
    register(graph, generators)
    failure: Optional[BaseException] = None
    try:
        with _own_workspaces(session), torch.cuda.graph(graph, stream=installation.stream, capture_error_mode=mode):
            # Inside, because entering allocates the generator's own tensors and writes to them at once.
            session.capture_begin()
            try:
                with filled_in():
                    output = fn()
            except BaseException as error:
                failure = error
                raise
            finally:
                session.capture_end()
    except BaseException:
        _abandon(installation, graph, generators)
        if failure is None:
            raise
        explained = explain_failed_capture(failure)
        if explained is not None:
            raise explained from failure
        raise failure  # a capture cut short fails once more on its way out; this is why
    return graph, output


@contextlib.contextmanager
def _own_workspaces(session: Session) -> Iterator[None]:
    """What cuBLAS works in is allocated in the capture and freed after it, as a temporary of the step, and what earlier
    calls left is freed, but for what graphs of the program's own may work in. Kept, every handle's would be on the
    device at all times. A PyTorch without this keeps them."""
    clear = getattr(torch._C, "_cuda_clearCublasWorkspaces", lambda: None)
    with session.keeping_freed():
        clear()
    try:
        yield
    finally:
        with session.freeing_scratch():
            clear()


def _abandon(installation: _Installation, graph: torch.cuda.CUDAGraph, generators: Sequence[Any]) -> None:
    """PyTorch is as before the capture that failed. A capture that the driver has broken off leaves random-number
    generators in capture: the end of one that succeeds lets them out. PyTorch's pinned memory goes on asking the
    graph whether it captures, so it must not go away."""
    graph.reset()
    installation.failed_captures.append(graph)
    with contextlib.suppress(RuntimeError):  # then the device is lost, and the failure says more
        something = torch.zeros(1, device=installation.device)
        mending = StepGraph(keep_graph=True)
        register(mending, generators)
        with torch.cuda.graph(mending, stream=installation.stream, capture_error_mode="thread_local"):
            something.zero_()
        mending.reset()


def _declare(session: Session, things: "Things", inputs: "Things", output: Any) -> None:
    cupy = _cupy()
    for named in things.tensors():
        # No mode sees what CuPy does with its own memory between replays.
        is_cupys = cupy is not None and cupy.has(named.pointer)
        _declare_one(session.declare_present if is_cupys else session.declare_private, "private", named)
        session.name(named.pointer, named.name)
    results = [plain for _, tensor in _tensors_in(output, "") for plain in plain_tensors(tensor) if has_memory(plain)]
    handed_through = {pointer_of(tensor) for tensor in results}  # what a step returns stays on the device
    for named in inputs.tensors():  # what they are to the step says more than their place among the inputs
        if named.pointer not in handed_through:
            _declare_one(session.declare_present, "inputs", named)
    for index, tensor in enumerate(results):
        with contextlib.suppress(PumpGraphError):  # a result may be an input handed through, even one not ours
            session.name(pointer_of(tensor), "result" if len(results) == 1 else f"result {index}")


def _declare_one(declare: Callable[[int], None], kind: str, named: "Named") -> None:
    try:
        declare(named.pointer)
    except PumpGraphError as error:
        raise PumpGraphError(error.status, f"{kind}: \"{named.name}\": {error}") from None


def _adopt(installation: _Installation, graph: torch.cuda.CUDAGraph, options: AdoptionOptions) -> NativeStep:
    """Other steps may get new plans with it, so that all share a boundary, and may have got some where it fails."""
    are_new = options.boundary == "shared"
    with contextlib.ExitStack() as undo:
        try:
            native = installation.session.adopt(graph.raw_cuda_graph(), *options, plan_others_again=are_new)
            undo.callback(native.close)
            are_new = are_new and bool(native.report().planned_again)
            undo.pop_all()
        finally:
            if are_new:
                installation.expect_new_plans()
    return native


def _watch_or_warn(step: "Step", stacklevel: int) -> None:
    report = step.report()
    reason = report.left_as_captured
    if reason:
        warnings.warn(f"step \"{step.name}\" is replayed exactly as captured, which may be slow: {reason}",
                      RuntimeWarning, stacklevel=stacklevel)
        return
    for warning in report.warnings:
        warnings.warn(f"step \"{step.name}\": {warning}", RuntimeWarning, stacklevel=stacklevel)
    if report.replans_by_itself:
        step.watch_replays()


@contextlib.contextmanager
def _timed(timings: Dict[str, float], what: str) -> Iterator[None]:
    start = time.perf_counter()
    yield
    timings[what] = timings.get(what, 0.0) + time.perf_counter() - start


@contextlib.contextmanager
def _stream_restored() -> Iterator[None]:
    """torch.cuda.graph does not leave its stream when ending the capture fails."""
    before = torch.cuda.current_stream()
    try:
        yield
    finally:
        torch.cuda.set_stream(before)


def _host_random_numbers() -> Callable[[], None]:
    """What puts the host's generators back to where they are now."""
    python, cpu = random.getstate(), torch.get_rng_state()
    numpy = sys.modules.get("numpy")
    drawn = numpy.random.get_state() if numpy is not None else None

    def put_back() -> None:
        random.setstate(python)
        torch.set_rng_state(cpu)
        if numpy is not None:
            numpy.random.set_state(drawn)

    return put_back


# ---- steps -----------------------------------------------------------------------------------------------------------


class Step:
    """A captured step, made by capture().

    Attributes:
        output: the result of `fn`: tensors at fixed addresses, which each replay overwrites.
        name: the name in reports.
        timings: seconds of host time that each part of capture() took: `warmup_s`, `rehearsal_s`, `capture_s`,
            `adopt_s`, `instantiate_s`.

    Methods raise PumpGraphError once the step is closed or the device is lost.
    """

    def __init__(
        self,
        installation: _Installation,
        graph: torch.cuda.CUDAGraph,
        native: NativeStep,
        output: Any,
        name: str,
        timings: Dict[str, float],
    ):
        self.output = output
        self.name = name
        self.timings = timings
        self.shared: Optional[SharedStep] = None
        self.parallel: Optional[CapturedParallel] = None
        self._installation = installation
        self._graph = graph
        self._native = native
        self._is_watched = False  # its launches are timed, to plan it again
        self._failure: Optional[PumpGraphError] = None  # why there is no instantiation to launch
        # Not at exit: the driver may be gone by then, and takes everything with it anyway.
        self._finalizer = weakref.finalize(self, _release, native, graph)
        self._finalizer.atexit = False
        installation.steps.add(self)

    def replay(self) -> None:
        """Launches the step on the current stream, asynchronously.

        If another step with a boundary of its own ran since, the call first waits for the device and moves the values
        that the steps keep between replays, which is slow. No other thread may use CUDA tensors meanwhile.

        Raises:
            UnsupportedError: a stream is capturing; a step cannot become part of another graph.
            PumpGraphError: INVALID_ARGUMENT if the step is closed, or inside mapped(); OUT_OF_HOST_MEMORY if the values
                of the other step find no room.
        """
        self.replay_with(None, 0)

    def replay_with(self, copies: Optional[Copies], stream: int) -> None:
        """replay() after these copies. `stream`: the current stream, which the caller has looked up already."""
        native, installation = self._native, self._installation
        if not native.is_open:
            raise invalid(f"step \"{self.name}\" is closed")
        if self._failure is not None:
            raise self._failure
        if torch.cuda.is_current_stream_capturing():
            raise UnsupportedError(f"step \"{self.name}\" cannot become part of another graph: its plan is in force "
                                   "only while it is replayed by itself")
        if self.parallel is not None:
            self.parallel.before_replay()
        installation.guard.put_away()
        if installation.session.mapped_depth:
            raise invalid(f"step \"{self.name}\" cannot be replayed inside mapped(): its buffers are with the caller")
        now = time.monotonic()
        if now >= installation.next_look:
            installation.look_at_budget(now)
        if self._is_watched:
            stream = stream or torch.cuda.current_stream().cuda_stream
            graph_has_changed, self._is_watched = native.before_launch(stream)
            if graph_has_changed:
                self._instantiate_anew()
            if self.shared is not None and not self._is_watched:
                self.shared.post(self._native.report())
        if copies is None:
            native.put_in_force()
        else:
            native.prepare_replay(stream, copies)
        self._graph.replay()
        if self._is_watched:
            native.after_launch(stream)
        if self.shared is not None:
            self.shared.replayed(stream or torch.cuda.current_stream().cuda_stream)

    def watch_replays(self) -> None:
        """Tells the runtime of the next replays, for as long as it wants to hear of them: to plan the step again."""
        self._is_watched = True

    def _instantiate_anew(self) -> None:
        """Where PyTorch cannot, what it had before is gone as well."""
        try:
            self._graph.instantiate()
        except RuntimeError as error:
            self._failure = PumpGraphError(Status.DRIVER_ERROR, f"step \"{self.name}\" cannot be instantiated: {error}")
            raise self._failure from error

    @contextlib.contextmanager
    def _run_by_pumpgraph(self, changes_graph: bool = False) -> Iterator[None]:
        """Around calls that run the step on PumpGraph's account: nobody uses it meanwhile, nor watches it any more.
        `changes_graph`: the call may leave the graph another one."""
        if self.shared is not None:
            self.shared.refuse_own_runs()
        try:
            torch.cuda.synchronize()
        except RuntimeError as error:
            self._failure = PumpGraphError(Status.DEVICE_LOST, f"the device is lost to this process: {error}")
            raise self._failure from error
        was_watched, self._is_watched = self._is_watched, False  # its clocks leave the graph
        try:
            yield
        except PumpGraphError as error:
            if error.status is Status.DEVICE_LOST:
                self._failure = error
            raise
        finally:
            if (changes_graph or was_watched) and self._failure is None:
                self._instantiate_anew()

    def replan(self) -> ReplanningResult:
        """Measures node times on the rewritten step, plans it again with them and keeps the faster plan.

        Waits for the device, and runs the step some dozen times, each time from its present state, which is restored.

        Returns:
            Predicted and measured step times of both plans, in microseconds.

        Raises:
            PumpGraphError: INVALID_ARGUMENT if the step is left as captured, on managed memory, or has an effect that
                cannot be undone; OUT_OF_HOST_MEMORY if there is no room for the values. The plan stays.
        """
        with self._run_by_pumpgraph(changes_graph=True):
            return self._native.replan()

    def report(self) -> Report:
        """The planned figures, the reasons and the timings, as a dict; print() it for text."""
        report = self._native.report()
        return report if self.shared is None else self.shared.reported(report)

    def validate(self) -> ValidationResult:
        """Compares every live result of the rewritten step with that of the captured step, from the same state. Slow.

        All contents are restored.

        Returns:
            The number of compared buffers and bytes.

        Raises:
            PumpGraphError: MISMATCH if results differ, or a kernel that the plan runs again is not pure;
                INVALID_ARGUMENT if the step has an effect that cannot be undone.
        """
        with self._run_by_pumpgraph():
            return self._native.validate()

    def observe(self, runs: int = 3, prepare: Optional[Callable[[int], None]] = None,
                values: Sequence[torch.Tensor] = ()) -> ObservationResult:
        """Runs every kernel alone, with plain and with poisoned operands, to observe its reads and writes. Slow.

        Accesses on which several runs agree become `observed` where they were assumed, for reports and save(); no plan
        relies on them. All contents are restored, except the changes of `prepare`.

        Args:
            runs: number of observations of each kernel, at least 1. Default 3.
            prepare: called with 0, 1, ... ahead of each run, to put other inputs into the step's tensors.
            values: tensors by whose contents kernels find nothing (no indices, lengths, flags), so that any word of
                them can be changed.

        Returns:
            The figures of all observations of this step.

        Raises:
            PumpGraphError: INVALID_ARGUMENT if `runs` is below 1, or the step cannot be observed.
        """
        if runs < 1:
            raise invalid(f"observe: {runs} runs; at least one is needed")
        for run in range(runs):
            if prepare is not None:
                prepare(run)
            with self._run_by_pumpgraph():
                result = self._native.observe([value.data_ptr() for value in values])
        return result

    def measure(self, repeats: int = 10) -> MeasurementResult:
        """Times every node of a step that is left as captured, or whose plan moves nothing.

        save() writes the times too from then on.

        Args:
            repeats: number of timed replays, at least 1. Default 10; fewer, but at least 2, if replays take seconds.

        Returns:
            The median time of a replay in microseconds, and the number of timed nodes.

        Raises:
            PumpGraphError: INVALID_ARGUMENT if the plan moves data, or the step has an effect that cannot be undone.
        """
        with self._run_by_pumpgraph():
            return self._native.measure(repeats)

    def save(self, path: PathLike) -> None:
        """Writes the captured step to the file `path` as IR text, for pump-graph-opt and `costs`.

        The file is compressed if its name ends in .gz. It has measured node times if there are any.
        """
        self._native.save(path)

    def memory_snapshot(self, path: PathLike) -> None:
        """Writes the plan's device memory over one predicted replay to the file `path`, for pytorch.org/memory_viz.

        Raises PumpGraphError if the step is left as captured.
        """
        self._native.memory_snapshot(path)

    @property
    def is_open(self) -> bool:
        """Whether close() has not been called."""
        return self._finalizer.alive

    def close(self) -> None:
        """Gives up the step and the memory that it alone uses, after a wait for the device. Do not read its results
        afterwards. A second call does nothing."""
        if self.shared is not None and self.is_open:
            self.shared.withdraw()
        self._finalizer()


def _release(native: NativeStep, graph: torch.cuda.CUDAGraph) -> None:
    try:
        torch.cuda.synchronize()
    except RuntimeError:
        return  # the device is lost, with all that is on it
    native.close()  # first: the graph must outlive the step
    graph.reset()


@contextlib.contextmanager
def mapped(*things: Any) -> Iterator[None]:
    """Context: the values of private tensors are at their addresses, to be read and written eagerly.

    Waits for the device on entry and exit. No step can be replayed inside. Values are in host memory if the budget
    is full. Tensors that are not private are at their addresses at all times.

    Args:
        things: modules (parameters, buffers, gradients), optimizers (their state), tensors, or containers of them.

    Raises:
        PumpGraphError: INVALID_ARGUMENT without install(), or for other things; OUT_OF_HOST_MEMORY without room.
    """
    session = installed().session
    pointers = [named.pointer for named in Things(things).tensors()]
    torch.cuda.synchronize()
    with session.mapped(pointers):
        yield
        torch.cuda.synchronize()  # eager kernels must be done before the values go back to their places


# ---- which tensors ---------------------------------------------------------------------------------------------------


class Named(NamedTuple):
    name: str
    pointer: int  # of the storage: what was allocated


def _is_compiled(module: torch.nn.Module) -> bool:
    """By torch.compile(module) or module.compile()."""
    return hasattr(module, "_orig_mod") or getattr(module, "_compiled_call_impl", None) is not None


def _is_optimizer(thing: Any) -> bool:
    return isinstance(thing, torch.optim.Optimizer)


def _tensors_in(value: Any, path: str) -> Iterator[Tuple[str, torch.Tensor]]:
    """Tensors in nested containers, with where they are as text."""
    if isinstance(value, torch.Tensor):
        yield path, value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _tensors_in(item, f"{path}.{key}" if path else str(key))
    elif isinstance(value, (list, tuple)):
        for index, item in enumerate(value):
            yield from _tensors_in(item, f"{path}.{index}" if path else str(index))


class Things:
    """What a caller named as private, as inputs, or mapped: modules, optimizers, tensors, containers of them.
    `settings`: tensors among the settings of optimizers too, such as a learning rate."""

    def __init__(self, roots: Any, settings: bool = True):
        self._settings = settings
        self._modules: List[torch.nn.Module] = []
        self._optimizers: List[torch.optim.Optimizer] = []
        self._tensors: List[torch.Tensor] = []
        self._sort(roots)

    def _sort(self, thing: Any) -> None:
        if isinstance(thing, torch.nn.Module):
            self._modules.append(thing)
        elif _is_optimizer(thing):
            self._optimizers.append(thing)
        elif isinstance(thing, torch.Tensor):
            self._tensors.append(thing)
        elif isinstance(thing, dict):
            self._sort(list(thing.values()))
        elif isinstance(thing, Iterable) and not isinstance(thing, (str, bytes)):
            for item in thing:
                self._sort(item)
        else:
            raise invalid(f"a {type(thing).__name__} does not tell its tensors; name modules, optimizers, tensors, or "
                          "containers of them")

    def parameters(self) -> List[torch.Tensor]:
        """Everything that may have a gradient, once each."""
        found = [parameter for module in self._modules for parameter in module.parameters()]
        found += [p for optimizer in self._optimizers for group in optimizer.param_groups for p in group["params"]]
        found += [tensor for tensor in self._tensors if tensor.is_leaf and tensor.requires_grad]
        return list({id(parameter): parameter for parameter in found}.values())

    def gradients(self) -> List[Tuple[torch.Tensor, Optional[torch.Tensor]]]:
        return [(parameter, parameter.grad) for parameter in self.parameters()]

    def tensors(self) -> List[Named]:
        """Every allocation once, under the first of its names."""
        found: Dict[int, str] = {}
        for name, tensor in self._all():
            for plain in plain_tensors(tensor):
                if has_memory(plain):
                    found.setdefault(pointer_of(plain), name)
        for index, pointer in enumerate(buckets_of(part for root in self._modules for part in root.modules())):
            found.setdefault(pointer, f"bucket {index}")
        return [Named(name, pointer) for pointer, name in found.items()]

    @property
    def modules(self) -> List[torch.nn.Module]:
        return self._modules

    def followed_modules(self) -> Iterator[Tuple[str, torch.nn.Module]]:
        """Every module with its path, but for those whose forward is compiled: a hook might have it compiled again."""
        compiled = {id(part) for root in self._modules for module in root.modules() if _is_compiled(module)
                    for part in module.modules()}
        for prefix, root in self._named_modules():
            for name, module in root.named_modules():
                if id(module) not in compiled:
                    yield (prefix + name if name else type(module).__name__), module

    def named_gradients(self) -> Iterator[Tuple[str, torch.Tensor]]:
        names = self._parameter_names()
        for parameter in self.parameters():
            if parameter.grad is not None:
                yield f"gradient of {names[id(parameter)]}", parameter.grad

    def _all(self) -> Iterator[Tuple[str, torch.Tensor]]:
        names = self._parameter_names()
        for prefix, module in self._named_modules():
            yield from ((prefix + name, parameter) for name, parameter in module.named_parameters())
            yield from ((prefix + name, buffer) for name, buffer in module.named_buffers())
        yield from ((names[id(tensor)], tensor) for tensor in self._tensors)
        for optimizer in self._optimizers:
            yield from _optimizer_tensors(optimizer, names, self._settings)
        yield from self.named_gradients()

    def _named_modules(self) -> Iterator[Tuple[str, torch.nn.Module]]:
        for module in self._modules:
            yield (f"{type(module).__name__}." if len(self._modules) > 1 else ""), module

    def _parameter_names(self) -> Dict[int, str]:
        names = {
            id(parameter): prefix + name
            for prefix, module in self._named_modules()
            for name, parameter in module.named_parameters()
        }
        for index, tensor in enumerate(self._tensors):
            names.setdefault(id(tensor), f"tensor {index}")
        for optimizer in self._optimizers:
            for group_index, group in enumerate(optimizer.param_groups):
                for index, parameter in enumerate(group["params"]):
                    names.setdefault(id(parameter), f"parameter {index} of group {group_index}")
        return names


def _optimizer_tensors(
    optimizer: Any, names: Dict[int, str], with_settings: bool
) -> Iterator[Tuple[str, torch.Tensor]]:
    for group_index, group in enumerate(optimizer.param_groups):
        settings = {key: value for key, value in group.items() if key != "params"} if with_settings else {}
        for key, tensor in _tensors_in(settings, ""):
            yield f"{key} of group {group_index}", tensor
    for parameter, state in optimizer.state.items():
        for key, tensor in _tensors_in(state, ""):
            yield f"{key} of {names.get(id(parameter), 'a parameter')}", tensor
