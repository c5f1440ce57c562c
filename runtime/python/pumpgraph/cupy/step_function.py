# SPDX-License-Identifier: Apache-2.0
"""pumpgraph.cupy.graphed: a function of arrays, captured by itself and replayed from then on."""

from __future__ import annotations

import functools
import types
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple

import cupy

from .. import nested
from .._report import Report
from .._session import PathLike, ValidationResult
from ..errors import UnsupportedError, invalid
from .accesses import Writes, overlap, span_of
from .arguments import Call, Inputs, read_call
from .memory import Installation, installed
from .steps import Options, Step, arrays_in, capture_warm, changed_by_step, check_warmup, refuse_changes
from .surroundings import Surroundings, layout_of


def graphed(
    fn: Optional[Callable[..., Any]] = None,
    *,
    warmup: int = 2,
    max_graphs: int = 8,
    name: Optional[str] = None,
    costs: Optional[PathLike] = None,
    keep_first_plan: bool = False,
    calibrate: bool = False,
    boundary: str = "automatic",
    rematerialize: str = "automatic",
) -> Any:
    """Decorates a function or method of arrays: after `warmup` eager calls it is captured under the budget, and then
    replayed.

    Use it as `@graphed`, as `@graphed(...)` or as `graphed(fn, ...)`. The first `warmup` calls of each kind run
    eagerly; the next call is captured; that call and all later ones are replays, asynchronous on the current stream.
    The program can keep the results, which are copies.

    Each call copies arrays among the arguments, also in lists, tuples and dicts, to fixed addresses, and back if the
    function may write them. Arrays that the function's code finds by name, in globals, closures and attributes, are
    used where they are. They can leave the device while a step runs, so no other stream may use them then. Arrays that
    do not fit between calls are a Private's.

    Every other value, shapes, dtypes, strides, and the numbers, texts and arrays that the code of the program's own
    functions reads by name distinguish kinds of calls, which get a graph each. Values read by computed names, or in
    libraries and their objects, are not noticed.

    Args:
        fn: the function. It may not wait for the device. Without it, the call returns a decorator.
        warmup: number of eager calls of each kind, at least 1; two or more also let changes of host state be noticed.
            Default 2.
        max_graphs: the largest number of kinds of calls. Default 8.
        name: name in reports and errors. Default: the function's name.
        costs, keep_first_plan, calibrate, boundary, rematerialize: as for capture().

    Returns:
        A Graphed.

    Raises:
        PumpGraphError: INVALID_ARGUMENT for arguments.

    Calls of the result raise:
        UnsupportedError: the function cannot be captured, or was called in more than `max_graphs` ways.
        cupy.cuda.memory.OutOfMemoryError: device and host memory have no room.
        PumpGraphError: install() has not been called.
    """
    if fn is None:
        return functools.partial(graphed, warmup=warmup, max_graphs=max_graphs, name=name, costs=costs,
                                 keep_first_plan=keep_first_plan, calibrate=calibrate, boundary=boundary,
                                 rematerialize=rematerialize)
    check_warmup(warmup)
    if max_graphs < 1:
        raise invalid(f"max_graphs={max_graphs}; it is at least 1")
    known_as = name or str(getattr(fn, "__name__", type(fn).__name__))
    return Graphed(fn, Options(known_as, costs, False, keep_first_plan, calibrate, boundary, rematerialize), warmup,
                   max_graphs)


class _Held(NamedTuple):
    """An array that the step finds by name. `span`: its addresses."""

    name: str
    span: Tuple[int, int]
    is_written: bool


class _Graph:
    """One captured kind of call."""

    def __init__(self, installation: Installation, step: Step, inputs: Inputs, found: Surroundings):
        self.step = step
        self._installation = installation
        self._inputs = inputs
        writes = Writes(step.save)
        self._written = [writes.may_hit(array) for array in inputs.arrays]
        arrays = {**found.arrays, **{private_name: private.unguarded
                                     for private_name, private in zip(_numbered(found.privates), found.privates)}}
        self._held = [_Held(name, span_of(array), writes.may_hit(array) or installation.allocation_of(array) is None)
                      for name, array in arrays.items()]  # nobody describes writes to memory of others
        fixed = {array.data.mem.ptr for array in inputs.arrays}
        self._copied = set(step.own) | fixed

    def run(self, arrays: Sequence[Any]) -> Any:
        """Replays the step for these arrays on the current stream."""
        self._refuse_shared(arrays)
        stream = cupy.cuda.get_current_stream()
        with self._installation.in_order(stream):
            self._installation.bring_of_torch(arrays)
            self._inputs.load(arrays)
            self.step.replay()
            self._inputs.store(arrays, self._written)
            return self._given()

    def _refuse_shared(self, arrays: Sequence[Any]) -> None:
        """Copies of arguments do not show what is written through another name."""
        if len(arrays) < 2 and not self._held:
            return
        spans = [span_of(array) for array in arrays]
        for index, (span, is_written) in enumerate(zip(spans, self._written)):
            for other, is_other_written in zip(spans[:index], self._written):
                if (is_written or is_other_written) and overlap(span, other):
                    raise UnsupportedError(f"{self.step.name} may write to memory that two of its arguments share; "
                                           "pass the array once, and take its parts in the function")
            for held in self._held:
                if (is_written or held.is_written) and overlap(span, held.span):
                    raise UnsupportedError(f"{self.step.name} may write to memory that one of its arguments shares "
                                           f"with \"{held.name}\", which it finds by name; use only one of the two")

    def _given(self) -> Any:
        """What the program gets: copies of what the next call overwrites, which share memory as the originals do."""
        spans: Dict[int, Tuple[int, int]] = {}
        for array in arrays_in(self.step.output):
            owner = array.data.mem.ptr
            if owner in self._copied and array.size:
                low, high = span_of(array)
                known = spans.get(owner, (low, high))
                spans[owner] = min(low, known[0]), max(high, known[1])
        copies: Dict[int, Tuple[int, Any]] = {}
        for owner, (low, high) in spans.items():
            low = owner + (low - owner) // _ALIGNMENT * _ALIGNMENT
            copies[owner] = low, cupy.cuda.alloc(high - low)
        given: Dict[int, Any] = {}

        def give(value: Any) -> Any:
            if not isinstance(value, cupy.ndarray) or value.data.mem.ptr not in self._copied:
                return value
            if id(value) not in given:
                given[id(value)] = _moved(value, *copies[value.data.mem.ptr]) if value.size else value.copy()
            return given[id(value)]

        result = nested.replaced(self.step.output, give)
        for array in arrays_in(self.step.output):
            owner = array.data.mem.ptr
            if owner in copies:
                low, memory = copies.pop(owner)
                _copy_range(memory, array, low, spans[owner][1] - low)
        return result


def _held_by(value: Any) -> Any:
    """What containers hold: things by their identity, and the layouts of arrays."""
    if nested.is_container(value):
        return [(key, _held_by(item)) for key, item in nested.items(value)]
    return id(value), layout_of(value) if isinstance(value, cupy.ndarray) else None


_ALIGNMENT = 512  # of allocations: a kernel may find a copy aligned as the original


def _numbered(things: Sequence[Any]) -> List[str]:
    return [f"Private {index}" for index in range(len(things))]


def _moved(array: Any, low: int, memory: Any) -> Any:
    """The same array in other memory, which holds what is at `low` and behind it."""
    return cupy.ndarray(array.shape, array.dtype, memory + (array.data.ptr - low), array.strides)


def _copy_range(target: Any, array: Any, low: int, size: int) -> None:
    """Of the allocation that an array lies in, from the address `low` on."""
    source = cupy.cuda.MemoryPointer(array.data.mem, low - array.data.mem.ptr)
    target.copy_from_device_async(source, size, cupy.cuda.get_current_stream())


class Graphed:
    """A function whose calls are replayed, made by graphed(). Call it like the function that it decorates.

    report(), validate() and save() raise PumpGraphError until the first graph is captured.
    """

    def __init__(self, fn: Callable[..., Any], options: Options, warmup: int, max_graphs: int):
        functools.update_wrapper(self, fn)
        self._fn = fn
        self._options = options
        self._warmup = warmup
        self._max_graphs = max_graphs
        self._graphs: Dict[Any, _Graph] = {}
        self._inputs: Dict[Any, Inputs] = {}  # by the key of arguments
        self._calls: Dict[Any, int] = {}  # eager ones, by kind
        self._found: Dict[Any, Surroundings] = {}  # by kind: they keep what kinds are told apart by
        self._changes: Dict[Any, Optional[str]] = {}  # what the last warm-up call changed
        self._last: Optional[_Graph] = None

    def __get__(self, instance: Any, _owner: Any = None) -> Any:
        return self if instance is None else types.MethodType(self, instance)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        installation = installed()
        with installation.lock:
            if installation.is_inside:
                return self._fn(*args, **kwargs)  # part of the function that calls it
            call = read_call(args, kwargs, installation.session.device)
            found = Surroundings(self._fn, call.others)
            kind = call.key, found.key
            graph = self._graphs.get(kind)
            if graph is None:
                return self._call_new(installation, call, found, kind)
            self._last = graph
            return graph.run(call.arrays)

    def _call_new(self, installation: Installation, call: Call, found: Surroundings, kind: Any) -> Any:
        if kind not in self._calls:
            self._count(kind, found)
        if self._calls[kind] < self._warmup:
            installation.rest()
            with installation.inside():
                output = self._fn(*call.args, **call.kwargs)
            self._calls[kind] += 1
            if self._calls[kind] > 1:  # the first call sets things up
                self._changes[kind] = found.difference_to(Surroundings(self._fn, call.others))
            return output
        changed = self._changes.get(kind)
        if changed:
            raise UnsupportedError(changed_by_step(self._options.name, changed))
        graph = self._last = self._graphs[kind] = self._capture(installation, call, found)
        return graph.run(call.arrays)

    def _count(self, kind: Any, found: Surroundings) -> None:
        if len(self._calls) >= self._max_graphs:
            before = list(self._found.values())[-1]
            why = before.difference_to(found) or "its arguments have other shapes, dtypes or strides"
            raise UnsupportedError(f"{self._options.name} was called in more than max_graphs={self._max_graphs} ways, "
                                   f"each of which would get a graph; since the last: {why}. Pass what changes as an "
                                   "array, bring sizes to a few values, or raise max_graphs")
        self._calls[kind] = 0
        self._found[kind] = found

    def _capture(self, installation: Installation, call: Call, found: Surroundings) -> _Graph:
        inputs = self._inputs.get(call.key)
        if inputs is None:
            inputs = self._inputs[call.key] = Inputs(call)
        own = inputs
        args, kwargs = own.arguments(call)

        def run() -> Any:
            before = _held_by([args, kwargs])
            output = self._fn(*args, **kwargs)
            if _held_by([args, kwargs]) != before:
                raise UnsupportedError(f"{self._options.name} changes a list, a dict or another container among its "
                                       "arguments, and a replay runs no Python; return what is new")
            return output

        def check() -> None:
            refuse_changes(found, Surroundings(self._fn, call.others), self._options.name)

        captured = capture_warm(installation, run, [*own.arrays, *found.arrays.values()], found.privates,
                                found.bindings, self._options, check)
        step = Step(installation, captured, self._options.name, [own, found])
        try:
            return _Graph(installation, step, own, found)
        except BaseException:
            step.close()
            raise

    # ---- what can be asked of it ----

    def report(self) -> Report:
        """The report of the last replayed graph, as a dict; print() it for text."""
        return self._last_graph("report").step.report()

    def validate(self) -> List[ValidationResult]:
        """Compares every graph with its step as captured, from the same state. Slow. All contents are restored.

        Raises:
            PumpGraphError: MISMATCH if results differ, such as by a wrong declared(reads=...).
        """
        self._last_graph("validate")
        return [graph.step.validate() for graph in self._graphs.values()]

    def save(self, path: PathLike) -> None:
        """Writes the captured step of the last replayed graph to the file `path` as IR text, for pump-graph-opt and
        `costs`. The file is compressed if its name ends in .gz."""
        self._last_graph("save").step.save(path)

    @property
    def is_captured(self) -> bool:
        """Whether a graph is captured."""
        return self._last is not None

    def signatures(self) -> List[str]:
        """The kinds of call that have a graph, as text."""
        return [", ".join(str(part) for part in key) for key, _ in self._graphs]

    def reset(self) -> None:
        """Gives up all graphs and their memory. The next calls warm up and are captured anew."""
        installed().rest()
        for graph in self._graphs.values():
            graph.step.close()
        tables: Tuple[Dict[Any, Any], ...] = (self._graphs, self._inputs, self._calls, self._found, self._changes)
        for table in tables:
            table.clear()
        self._last = None

    def _last_graph(self, wanted: str) -> _Graph:
        if self._last is None:
            done = sum(self._calls.values())
            raise invalid(f"{wanted}: {self._options.name} is not captured yet: it was called {done} times, and is "
                          f"warmed up {self._warmup} times for each kind of call")
        return self._last
