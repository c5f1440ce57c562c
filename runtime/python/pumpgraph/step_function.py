# SPDX-License-Identifier: Apache-2.0
"""pumpgraph.graphed: a training loop's own step function, captured by itself and replayed from then on."""

from __future__ import annotations

import contextlib
import functools
import itertools
import types
import warnings
import weakref
from collections import abc
from itertools import starmap
from operator import attrgetter
from typing import Any, Callable, Dict, Iterable, Iterator, List, NamedTuple, Optional, Set, Tuple

import torch

from . import nested, signature
from ._report import Report
from ._session import PathLike, ValidationResult
from .bindings import Bindings, TouchedMemory, places_in_modules, places_in_optimizers
from .changes import Changes
from .data_parallel import HostFlags, give_up_whole, warm_up_needed
from .errors import StaleStepError, UnsupportedError, invalid, is_shortage
from .generators import of_the_device, states_on_device
from .gradients import CapturedGradients, gradients_of
from .guard import storages_in
from .holdings import Holdings, holds_tensors, is_object, tensors_of
from .host_state import Change, HostState, plain_results, refuse
from .optimizers import CapturedOptimizer, steps_observed
from .prepared import give_settings, note_schedulers
from .reachable import Place, Reachable, is_generator, is_programs_own
from .reads import Code, Reads
from .refusals import refuse_found, without_trials
from .results import Results
from .shared_steps import LoneCapture, capturing
from .tensors import distributed_tensors, has_memory, is_wrapper, plain_tensors, pointer_of
from .torch_capture import AdoptionOptions, Step, Things, capture_warm, installed, run_eagerly
from .turns import Turns
from .warm_up import WarmUp

# Smaller tensors share pages with others, and are not worth moving: the loop may look at them without cost.
WORTH_MOVING = 1 << 20

# So many tensors have their addresses looked at in a call before which nothing has changed.
_LOOKED_AT = 2

# How a note of runtime/session/Adoption.cpp begins.

_training_of = attrgetter("training")
_requires_grad_of = attrgetter("requires_grad")


def graphed(
    fn: Optional[Callable[..., Any]] = None,
    *,
    warmup: int = 3,
    max_graphs: int = 8,
    on_unsupported: str = "warn",
    private: Any = (),
    name: Optional[str] = None,
    costs: Optional[PathLike] = None,
    keep_first_plan: bool = False,
    calibrate: bool = False,
    boundary: str = "automatic",
    hosting: str = "automatic",
    rematerialize: str = "automatic",
    split: bool = False,
) -> Any:
    """Decorates a step function or method: after `warmup` eager calls it is captured under the budget and replayed.

    Use it as `@graphed`, as `@graphed(...)` or as `graphed(fn, ...)`. The first `warmup` calls of each kind run
    eagerly; the next call is captured; that call and all later ones are replays, asynchronous on the current stream.
    The program can keep the results.

    Tensor arguments can be on the device or on the host; each call copies them to fixed addresses on the device. Those
    of another stream need record_stream(), as always. An argument that the step returns is a copy; a tensor of the
    program that it returns is that tensor. Every other argument, shapes, dtypes, and modes such as train() and autocast
    distinguish kinds of calls, which get a graph each. Modules, optimizers and tensors that the function works on are
    found by a search, and can leave the device.

    Args:
        fn: the step function. Without it, the call returns a decorator.
        warmup: number of eager calls of each kind, at least 1; two or more also let changes of host state be noticed.
            Default 3. A step that DistributedDataParallel trains in has at least 11.
        max_graphs: the largest number of graphs; with `split`, of each piece. Default 8.
        on_unsupported: for a step that can be captured but not rewritten, "warn" (default) replays it as captured,
            "raise" raises UnsupportedError.
        private: modules, optimizers, tensors or containers of them, beside those that the search finds.
        name: name in reports and errors. Default: the function's name.
        costs: a step saved by save(), as path or as text, whose node times the planner uses. Default: estimates.
        keep_first_plan: True keeps the first plan. Otherwise the step is planned again, once, if its first replays
            differ from the prediction by over a tenth.
        calibrate, boundary, hosting, rematerialize: as for capture().
        split: True cuts the function where it waits for the device, into pieces that get a graph each. The code between
            the pieces runs in each call.

    Returns:
        A Graphed. With `split` an object with the same methods, and `pieces()`: the Graphed of each captured piece.

    Raises:
        PumpGraphError: INVALID_ARGUMENT for arguments.

    Calls of the result raise:
        UnsupportedError: the function cannot be captured, or was called in more than `max_graphs` ways.
        StaleStepError: the program has changed something that the graph was captured with.
        torch.cuda.OutOfMemoryError: device and host memory have no room. The kind of call is forgotten then.
        PumpGraphError: install() has not been called.
    """
    if fn is None:
        return functools.partial(graphed, warmup=warmup, max_graphs=max_graphs, on_unsupported=on_unsupported,
                                 private=private, name=name, costs=costs, keep_first_plan=keep_first_plan,
                                 calibrate=calibrate, boundary=boundary, hosting=hosting, rematerialize=rematerialize,
                                 split=split)
    if warmup < 1:
        raise invalid(f"warmup={warmup}: libraries set themselves up in the first call, which a capture cannot hold")
    if on_unsupported not in ("warn", "raise"):
        raise invalid(f"on_unsupported={on_unsupported!r}; it is \"warn\" or \"raise\"")
    if isinstance(private, abc.Iterator):
        private = list(private)  # it is read for every graph
    known_as = name or str(getattr(fn, "__name__", type(fn).__name__))
    if split and boundary == "automatic":
        boundary = "shared"  # the pieces follow one another
    adoption = AdoptionOptions(known_as, costs, False, keep_first_plan, calibrate, boundary, hosting=hosting,
                               rematerialize=rematerialize)
    options = Options(warmup, max_graphs, on_unsupported == "raise", private, adoption)
    if split:
        from .split import Split  # which is made of what is here

        return Split(fn, options)
    return Graphed(fn, options)


class Options(NamedTuple):
    warmup: int
    max_graphs: int
    raises: bool
    private: Any
    adoption: AdoptionOptions


@contextlib.contextmanager
def paused() -> Iterator[None]:
    """Context: graphed functions run eagerly, as written, and every value is at its address.

    Use it for calls that are not to be captured, such as a debugging run. Can wait for the device on entry.
    Raises PumpGraphError if install() has not been called.
    """
    installed().guard.rest()
    with counted("paused"):
        yield


depths = {"paused": 0, "inside": 0}  # of paused(), and of graphed functions that run as they were written


@contextlib.contextmanager
def counted(what: str) -> Iterator[None]:
    depths[what] += 1
    try:
        yield
    finally:
        depths[what] -= 1


# ---- what a graph was captured from ----------------------------------------------------------------------------------


class _Surroundings:
    """What a step works on beside its arguments: for a signature, and to notice when it has become something else."""

    def __init__(self, fn: Callable[..., Any], call: signature.Call, more: Iterable[Any]):
        Changes.notice()
        roots, others = dict(_roots_in(call, fn)), list(more)
        self.objects = objects = signature.objects_in(call, fn)
        self.search = lambda: Reachable(fn, roots, others, objects=objects)
        self.found = self.search()
        self.watched = self.found.places
        self.reads: Optional[Reads] = None  # once it is captured
        self.held: Optional[Holdings] = None  # the same
        self._left: Set[Tuple[int, Any]] = set()
        self._registrations = Changes.registrations
        self._members = self._walk()
        self.modules = _once(module for root in self.found.modules for module in root.modules())
        self._attributes = [vars(module) for module in self.modules if "training" in vars(module)]  # read fast
        self._scripted = [module for module in self.modules if "training" not in vars(module)]
        self.unnoticed = [module for module in self.modules
                          if "training" not in vars(module) or not Changes.are_noticed_of(module)]
        tensors = _once(tensor for root in self.found.modules for tensor in (*root.parameters(), *root.buffers()))
        self._distributed = [tensor for tensor in tensors if isinstance(tensor, distributed_tensors())]
        self.tensors = [tensor for tensor in tensors if not is_wrapper(tensor)]
        self.tensors += [part for tensor in self._distributed for part in plain_tensors(tensor)]
        self._flags = HostFlags(self.modules)
        self._addresses = self._addresses_now()
        self._turns = itertools.cycle(
            [(self.tensors[first:first + _LOOKED_AT], self._addresses[first:first + _LOOKED_AT])
             for first in range(0, max(1, len(self.tensors)), _LOOKED_AT)])

    def modes(self) -> List[bool]:
        """Which modules train, which tensors get gradients, and which modules bring them together."""
        return [*[own["training"] for own in self._attributes], *map(_training_of, self._scripted),
                *map(_requires_grad_of, self.tensors), *map(_requires_grad_of, self._distributed), *self._flags.now()]

    def words(self) -> Tuple[str, ...]:
        """The modes, for people."""
        training = [module.training for module in self.modules]
        if not training:
            return ()
        return ("training" if all(training) else "evaluating" if not any(training) else "partly training",
                *self._flags.words())

    def warm_up_calls(self, asked: int) -> int:
        return warm_up_needed(self.modules, asked).calls

    def check(self) -> None:
        """Raises StaleStepError unless the step would find the same. Called where something has changed."""
        if self._registrations is not Changes.registrations:
            registrations = Changes.registrations
            if self._walk() != self._members:
                raise StaleStepError("parameters or modules were replaced, added or removed")
            self._registrations = registrations
        if self._addresses_now() != self._addresses:
            raise self._moved()
        if self.reads is not None:
            self.reads.check_modules()

    def check_places(self) -> None:
        """The same, for what no mark tells of. Called before every replay."""
        for place in self.watched:
            place.check()
        if self.held is not None:
            self.held.check()
        if self.reads is not None:
            self.reads.check()

    def check_in_turn(self) -> None:
        """The same, for a few tensors after the other: extensions may move them without a mark."""
        tensors, addresses = next(self._turns)
        if list(map(torch.Tensor.data_ptr, tensors)) != addresses:
            Changes.mark = []  # every later call looks at all of them: it stays an error
            raise self._moved()

    def leave_out(self, places: Iterable[Place]) -> None:
        """What is in these, the step itself replaces."""
        self._left = {place.identity for place in places}
        self._members = self._walk()

    def remember(self, fn: Callable[..., Any], call: signature.Call, code_of: Reachable) -> None:
        """The numbers that the captured call has read, as far as the program may change them."""
        step = _function_of(fn)
        arguments = signature.holders_of_attributes(call, fn)
        functions: List[Any] = code_of.functions
        code = [Code(function, arguments=arguments if function is step else {}) for function in functions
                if is_programs_own(function)]
        self.reads = Reads([*code, *starmap(Code, code_of.methods)], self.modules)
        self.held = Holdings([*self.objects.items(), *self.reads.take_passed_on()], self._left, self.watched)
        self.watched = self.held.others

    def _walk(self) -> List[int]:
        members = [id(member) for root in self.found.modules for member in (*root.modules(), *root.parameters())]
        return members + [id(place.thing) for place in places_in_modules(self.found.modules)
                          if place.identity not in self._left]

    def _addresses_now(self) -> List[int]:
        return list(map(torch.Tensor.data_ptr, self.tensors))

    def _moved(self) -> StaleStepError:
        moved = {id(tensor) for tensor, before in zip(self.tensors, self._addresses) if tensor.data_ptr() != before}
        names = (name for root in self.found.modules
                 for name, tensor in (*root.named_parameters(), *root.named_buffers()) if id(tensor) in moved)
        return StaleStepError(f"\"{next(names, 'a parameter')}\" has other memory: it was moved, or converted")


def _once(things: Iterable[Any]) -> List[Any]:
    """Every object once: a module may be found beside another that it is part of."""
    return list({id(thing): thing for thing in things}.values())


def _function_of(fn: Any) -> Any:
    """What the program has written."""
    while True:
        inner = getattr(fn, "__wrapped__", None) or getattr(fn, "__func__", None)
        inner = fn.func if isinstance(fn, functools.partial) else inner
        if inner is None:
            break
        fn = inner
    call = getattr(type(fn), "__call__", None)
    return call if isinstance(call, types.FunctionType) else fn


def _roots_in(call: signature.Call, fn: Callable[..., Any]) -> Iterator[Tuple[str, Any]]:
    """Modules, optimizers, parameters and generators among the arguments: the step works on these very ones."""
    return ((name, thing) for name, thing in signature.leaves(call, fn)
            if isinstance(thing, (torch.nn.Module, torch.optim.Optimizer, torch.nn.Parameter)) or is_generator(thing))


# ---- graphs ----------------------------------------------------------------------------------------------------------


class _Graph:
    """One captured step with all it depends on."""

    def __init__(
        self,
        step: Step,
        inputs: signature.StaticInputs,
        surroundings: _Surroundings,
        optimizers: List[CapturedOptimizer],
        gradients: CapturedGradients,
        bindings: Bindings,
        text: str,
        gives_output: bool,
        touched: TouchedMemory,
    ):
        self.step = step
        self.text = text
        self.stands_for = object()  # it, where nobody is to keep it alive
        self.touched = touched
        self._inputs = inputs
        self._surroundings = surroundings
        self._modes = surroundings.modes()
        self._optimizers = optimizers
        self._gradients = gradients
        self._bindings = bindings
        self._is_steady = self._fitted = False
        self._mark: Any = None  # what `_fitted` was found for
        self._unnoticed_modes: List[bool] = []  # the same
        tensors = [*surroundings.tensors, *gradients.parameters]
        self._must_look = not all(map(Changes.are_noticed_of, tensors))
        Changes.watch(self, tensors)
        self._guard, self._recorded_streams = installed().guard, installed().recorded_streams
        given = tensors_of_output(step.output) if gives_output else []
        self._results = Results(installed().session, [*given, *gradients.made(), *bindings.left()],
                                CapturedGradients.references, must_be_alone=not gives_output)
        self._handed_through = {id(tensor) for tensor in _handed_through(given, inputs)}
        self._is_nested = nested.is_container(step.output) or bool(self._handed_through)
        report = step.report()
        moves_any = bool(report.get("added_nodes") or report.get("hosted_bytes"))
        self._guard.moves = self._guard.moves or moves_any and not report.left_as_captured

    def fits(self) -> bool:
        """Whether this is the graph for a call with its signature. Raises StaleStepError where no graph can be."""
        if self.step.parallel is not None:
            self.step.parallel.give_up_whole()  # parameters have other memory meanwhile
        surroundings = self._surroundings
        surroundings.check_places()
        mark = Changes.mark
        modes = surroundings.unnoticed and list(map(_training_of, surroundings.unnoticed))
        if self._must_look or mark is not self._mark or modes != self._unnoticed_modes:
            with torch._C.DisableTorchFunctionSubclass():  # attributes of parameters are read much faster then
                self._fitted = self._look()
            self._mark, self._unnoticed_modes = mark, modes  # not where it raised
        else:
            surroundings.check_in_turn()
        if self._fitted:
            for optimizer in self._optimizers:
                optimizer.check()
        return self._fitted

    def _look(self) -> bool:
        self._surroundings.check()
        if self._surroundings.modes() != self._modes:
            return False
        self._is_steady = self._gradients.are_as_left()
        return self._is_steady or self._gradients.accept()

    def run(self, tensors: List[torch.Tensor], stream: int) -> Any:
        """Replays the step for these tensors on the current stream, after fits()."""
        guard = self._guard
        if not self._is_steady:
            self._supply()
            self._gradients.leave_made()
        if self._bindings.changed:
            self._bindings.leave()
        held = self._results.are_held()
        if self._recorded_streams.uses:
            self._recorded_streams.wait_before_writing(self._results.storages)
        if held:
            self._results.hand_over(self._bring, self._replace)
            self._is_steady = False  # `.grad` is another tensor
        if guard.moves:  # this step's plan, or that of another in the same boundary
            guard.arm()
        copies = None
        if not (guard.armed and guard.bring_private(tensors)):
            copies = self._inputs.copies(tensors)
        if copies is None:
            self._load(tensors)
            if guard.moves:
                guard.arm()  # where memory was short, the plan was taken back
        self.step.replay_with(copies, stream)
        if not self._is_steady:
            self._gradients.leave()
        if self._bindings.changed:
            self._bindings.leave()
        return nested.replaced(self.step.output, self._given) if self._is_nested else self.step.output

    def _supply(self) -> None:
        """Gradients that are elsewhere come to where the captured step adds to them. The program may still have what
        was there in an earlier call."""
        if not self._gradients.to_supply():
            return
        self._results.give_up(self._gradients.to_supply(), self._bring, self._replace)
        self._bring(storages_in(self._gradients.exchanged(), {}))
        past_modes = torch._C._DisableTorchDispatch()
        try:
            self._gradients.supply()
        finally:
            del past_modes

    def _bring(self, storages: Iterable[torch.UntypedStorage]) -> None:
        if self._guard.armed:
            self._guard.bring(storages)

    def _given(self, value: Any) -> Any:
        """What the program gets for a value of the output: an argument that is handed through is overwritten by the
        next call's."""
        return value.clone() if id(value) in self._handed_through else value

    def _replace(self, swap: Callable[[Any], Any]) -> None:
        """The step's tensors at these addresses are others: the program has kept those that were there."""
        self.step.output = nested.replaced(self.step.output, swap)
        self._bindings.replace(swap)
        self._bindings.leave()
        CapturedGradients.replace(swap)
        Results.replace(swap)
        self._gradients.leave_made()

    def _load(self, tensors: List[torch.Tensor]) -> None:
        past_modes = torch._C._DisableTorchDispatch()
        try:
            self._inputs.load(tensors)
        finally:
            del past_modes

    def close(self) -> None:
        self._guard.forget(self.step)
        self.step.close()


class Graphed:
    """A step function whose calls are replayed, made by graphed(). Call it like the function that it decorates.

    report(), validate(), save() and memory_snapshot() raise PumpGraphError until the first graph is captured. A
    decorated method has graphs of its own for each object.
    """

    _gives_output = True  # to the program, which may keep it
    _searched_too: Tuple[Any, ...] = ()  # beside the function

    def __init__(self, fn: Callable[..., Any], options: Options):
        functools.update_wrapper(self, fn)
        self._fn = fn
        self._options = options
        self._graphs: Dict[Any, List[_Graph]] = {}  # by the key of calls
        self._inputs: Dict[Any, signature.StaticInputs] = {}
        self._calls: Dict[Any, int] = {}  # eager ones, by signature
        self._texts: Dict[Any, str] = {}
        self._warm_ups: Dict[Any, WarmUp] = {}  # by signature
        self._stepped: List[torch.optim.Optimizer] = []
        self._skipped: List[torch.optim.Optimizer] = []  # scalers have left out all of their updates
        # By signature, of the last warm-up call:
        self._changes: Dict[Any, List[Change]] = {}  # what it did to what the host has
        self._returned: Dict[Any, List[Any]] = {}  # what it returned beside tensors on the device
        self._left: Dict[Any, Set[Any]] = {}  # generators of the device that it has left as they were
        self._turns = Turns()
        self._last: Optional[_Graph] = None
        self._stream = -1  # of the last call, as an address, which is fast to read
        self._followed: Any = None  # the same
        self._bound: Dict[int, Graphed] = {}  # by the object whose method it is

    def __get__(self, instance: Any, _owner: Any = None) -> "Graphed":
        """As a method: every object has graphs of its own."""
        if instance is None:
            return self
        bound = self._bound.get(id(instance))
        if bound is None:
            bound = self._bound[id(instance)] = Graphed(WeakMethod(self._fn, instance), self._options)
            forget: Any = self._bound.pop
            weakref.finalize(instance, forget, id(instance), None).atexit = False
        return bound

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        installation = installed()
        if depths["inside"]:
            return self._fn(*args, **kwargs)  # part of the step that calls it
        if depths["paused"]:
            return self._call_eagerly(installation, args, kwargs)
        call = signature.read_call(args, kwargs)
        stream = torch._C._cuda_getCurrentRawStream(installation.session.device)
        if stream != self._stream:
            self._follow(stream)
        for graph in self._graphs.get(call.key, ()):
            try:
                if graph.fits():
                    self._last = graph
                    Turns.latest = graph.stands_for
                    output = graph.run(call.tensors, stream)
                    if installation.recorded_streams.uses:
                        installation.recorded_streams.let_go()
                    return output
            except StaleStepError as error:
                raise StaleStepError(f"{self._name}: {error}; {self._reset_by}.reset() has it captured anew") from None
        return self._call_new(installation, call)

    @property
    def _name(self) -> str:
        return self._options.adoption.name

    def _follow(self, stream: int) -> None:
        """Calls come one after another, on whatever streams."""
        current = torch.cuda.current_stream()
        if self._followed is not None:
            current.wait_stream(self._followed)
        self._stream, self._followed = stream, current

    def _call_eagerly(self, installation: Any, args: Any, kwargs: Any) -> Any:
        args, kwargs = signature.on_device(signature.read_call(args, kwargs), installation.device)
        with counted("inside"), without_trials(self._options.raises):
            return self._ended(self._fn(*args, **kwargs))

    # ---- for pieces of a step, which do otherwise ----

    def _ended(self, output: Any) -> Any:
        return detached(output)

    def _kind(self, call: signature.Call, surroundings: _Surroundings) -> Any:
        return call.key, tuple(surroundings.modes())

    def _present(self, inputs: signature.StaticInputs) -> List[torch.Tensor]:
        """What others look at between calls."""
        return inputs.leaves

    @property
    def _reset_by(self) -> str:
        return self._name

    def _private_things(self, roots: List[Any]) -> Things:
        return Things(roots, settings=False)

    def _call_new(self, installation: Any, call: signature.Call) -> Any:
        """A call that no graph is for: it warms up, or is captured."""
        signature.refuse_arguments(call, installation.device)
        surroundings = _Surroundings(self._fn, call, self._searched_too)
        if give_up_whole(module for root in surroundings.found.modules for module in root.modules()):
            surroundings = _Surroundings(self._fn, call, self._searched_too)
        refuse_found(surroundings.found, installation.device)
        note_schedulers(surroundings.found.optimizers)
        kind = self._kind(call, surroundings)
        self._count_signature(kind, call, surroundings)
        self._turns.note(kind)
        try:
            return self._run_new(installation, call, surroundings, kind)
        except RuntimeError as error:
            if is_shortage(error):  # a smaller batch may follow, and need the room
                self._texts.pop(kind, None)
                if call.key not in self._graphs:
                    self._inputs.pop(call.key, None)
            raise

    def _run_new(self, installation: Any, call: signature.Call, surroundings: _Surroundings, kind: Any) -> Any:
        if call.key not in self._inputs:
            self._inputs[call.key] = signature.StaticInputs(call, installation.device)
        inputs = self._inputs[call.key]
        inputs.load(call.tensors)
        if self._calls[kind] < surroundings.warm_up_calls(self._options.warmup) or self._skipped:
            output = self._warm_up(installation, inputs, surroundings, kind)
            self._calls[kind] += 1
            return output
        with capturing(self._name, self._warm_ups[kind].has_collectives, installation.session) as shared:
            refuse(self._name, self._changes.get(kind, ()))
            graph = self._capture(installation, call, inputs, surroundings, kind, shared)
        self._graphs.setdefault(call.key, []).append(graph)
        self._last = graph
        Turns.latest = graph.stands_for
        return graph.run(call.tensors, self._stream)

    def _count_signature(self, kind: Any, call: signature.Call, surroundings: _Surroundings) -> None:
        if kind in self._texts:
            return
        text = signature.describe(call, self._fn, surroundings.words())
        if len(self._texts) >= self._options.max_graphs:
            known = "\n".join(f"  {known}" for known in self._texts.values())
            objects = any(map(holds_tensors, surroundings.objects.values()))
            tensors = "what changes as a tensor" + (", not as an object that holds it" if objects else "")
            raise UnsupportedError(f"{self._name} was called in more than max_graphs={self._options.max_graphs} ways, "
                                   f"each of which would get a graph:\n{known}\nand now\n  {text}\npass {tensors}, "
                                   "bring sizes to a few values, or raise max_graphs")
        self._calls.setdefault(kind, 0)
        self._texts[kind] = text

    def _warm_up(self, installation: Any, inputs: signature.StaticInputs, surroundings: _Surroundings,
                 kind: Any) -> Any:
        torch.clear_autocast_cache()
        # The first call sets things up; what the last one changes, every call does.
        calls = surroundings.warm_up_calls(self._options.warmup)
        before = self._host_state(installation, surroundings.found) if 1 <= self._calls[kind] == calls - 1 else None
        states = states_on_device(surroundings.found.generators, installation.device)
        with counted("inside"), without_trials(self._options.raises), steps_observed() as observed:
            output = run_eagerly(installation, lambda: self._ended(self._fn(*inputs.args, **inputs.kwargs)),
                                 self._warm_ups.setdefault(kind, WarmUp(self._name, calls)))
        self._stepped = _once([*self._stepped, *observed.stepped])
        self._skipped = [optimizer for optimizer in _once([*self._skipped, *observed.skipped])
                         if not any(optimizer is other for other in self._stepped)]
        after = states_on_device(surroundings.found.generators, installation.device)
        self._left[kind] = {generator for generator, state in states.items() if state == after[generator]}
        if before is not None:
            self._changes[kind] = list(before.changes_to(self._host_state(installation, surroundings.search())))
            self._returned[kind] = plain_results(output)
        inputs.refuse_gradients()
        handed_through = {id(tensor) for tensor in _handed_through(output, inputs)}
        if not handed_through:
            return output
        return nested.replaced(output, lambda value: value.clone() if id(value) in handed_through else value)

    def _host_state(self, installation: Any, found: Reachable) -> HostState:
        return HostState(found, _once([*found.optimizers, *self._stepped]), installation.device)

    def _capture(self, installation: Any, call: signature.Call, inputs: signature.StaticInputs,
                 surroundings: _Surroundings, kind: Any, shared: LoneCapture) -> _Graph:
        if sum(map(len, self._graphs.values())) >= self._options.max_graphs:
            raise UnsupportedError(f"{self._name} would need more than max_graphs={self._options.max_graphs} graphs: "
                                   "it meets the same arguments with and without gradients")
        adoption = self._options.adoption
        if adoption.boundary == "automatic" and self._turns.alternates(kind):
            adoption = adoption._replace(boundary="shared")
        found = surroundings.found
        large = [tensor for _, tensor in found.tensors if _is_worth_moving(tensor)]
        with steps_observed() as observed, without_trials(self._options.raises):
            optimizers = _once([*found.optimizers, *self._stepped])
            give_settings(optimizers)
            things = self._private_things([found.modules, optimizers, large, self._options.private])
            parameters = things.parameters()
            # None is kept that the step makes anew: the plan would have to do without its memory.
            had = [gradient is not None for gradient in gradients_of(parameters)]
            at_start: List[Any] = []
            bindings = Bindings(surroundings.search, [*places_in_modules(found.modules),
                                                      *places_in_optimizers(optimizers)])
            host = self._host_state(installation, surroundings.search())
            drawn: Set[Any] = set()
            own = [generator for _, generator in of_the_device(found.generators, installation.device)]

            def fn() -> Any:
                at_start[:] = gradients_of(parameters)
                torch.clear_autocast_cache()  # a copy of a weight that was made outside would never be made again
                try:
                    output = self._ended(self._fn(*inputs.args, **inputs.kwargs))
                finally:
                    torch.clear_autocast_cache()
                refuse(self._name, host.changes_to(self._host_state(installation, surroundings.search())))
                self._refuse_other_results(kind, output)
                self._refuse_new_objects(output, surroundings)
                return output

            def put_back() -> None:
                host.put_back()
                bindings.rewind()

            with counted("inside"), warnings.catch_warnings():
                if self._options.raises:
                    warnings.filterwarnings("ignore", message=".* is replayed exactly as captured")
                step = capture_warm(installation, shared.following(fn), things, adoption, {}, stacklevel=6,
                                    put_back=put_back, inputs=Things(self._present(inputs)), generators=own,
                                    drawn=drawn, shared=shared)
        with contextlib.ExitStack() as undo:
            undo.callback(step.close)
            gradients = CapturedGradients(parameters, had, at_start)
            undo.callback(gradients.rewind)
            undo.callback(put_back)
            inputs.refuse_gradients()
            self._refuse(step.report())
            if drawn & self._left[kind]:
                raise UnsupportedError(f"{self._name} draws random numbers and puts the state of their generator back, "
                                       "and no replay would; do so outside of the step")
            touched = TouchedMemory(step.save)
            bindings.look(touched)
            surroundings.watched = bindings.to_watch(found.places, touched, tensors_of_output(step.output))
            surroundings.leave_out(place for place, _ in bindings.changed)
            undo.callback(installation.guard.forget, step)
            installation.guard.watch(step, [named.pointer for named in things.tensors()])
            for module in found.modules:
                if hasattr(module, "_orig_mod"):  # made by torch.compile(); the step itself runs with no mode
                    hook = module.register_forward_pre_hook(installation.guard.rest_before_compiled)
                    undo.callback(hook.remove)
                    weakref.finalize(step, hook.remove).atexit = False
            gradients.rewind()
            surroundings.remember(self._fn, call, Reachable(self._fn) if self._searched_too else found)
            optimizers = [CapturedOptimizer(optimizer) for optimizer in observed.stepped]
            graph = _Graph(step, inputs, surroundings, optimizers, gradients, bindings, self._texts[kind],
                           self._gives_output, touched)
            shared.replay(step)
            undo.pop_all()
        bindings.forget()
        tables: Tuple[Any, ...] = (found.tensors, found.places, found.holders, found.generators, found.methods)
        for table in tables:
            table.clear()  # some tensors are of the warm-up, and should go when the program lets go of them
        return graph

    def _refuse_other_results(self, kind: Any, output: Any) -> None:
        """What a step returns beside tensors on the device must be the same in each call."""
        returned = plain_results(output)
        if self._returned.setdefault(kind, returned) != returned:
            raise UnsupportedError(f"{self._name} returns something that is not on the device and differs from call to "
                                   "call, and a replay runs no Python; compute it outside, or return a tensor on the "
                                   "device")

    def _refuse_new_objects(self, output: Any, surroundings: _Surroundings) -> None:
        """Of an object that the step returns nobody knows whether the program keeps its tensors."""
        known = {id(tensor) for tensor in (*surroundings.tensors, *(found for _, found in surroundings.found.tensors))}
        for value in _leaves_of(output):
            if is_object(value) and any(tensor.is_cuda and id(tensor) not in known for tensor in tensors_of(value)):
                raise UnsupportedError(f"{self._name} returns a {type(value).__qualname__} with tensors that the next "
                                       "replay would overwrite; return what is needed of them as tensors")

    def _refuse(self, report: Report) -> None:
        if report.left_as_captured and self._options.raises:
            raise UnsupportedError(f"{self._name} cannot be rewritten: {report.left_as_captured}")

    # ---- what can be asked of it ----

    def report(self) -> Report:
        """The report of the last replayed graph, as a dict; print() it for text."""
        return self._last_graph("report").step.report()

    def validate(self) -> List[ValidationResult]:
        """Compares every graph with its step as captured, from the same state. Slow. All contents are restored.

        Returns:
            One result for each graph.

        Raises:
            PumpGraphError: MISMATCH if results differ, or a kernel that a plan runs again is not pure.
        """
        self._last_graph("validate")
        return [graph.step.validate() for graphs in self._graphs.values() for graph in graphs]

    def save(self, path: PathLike) -> None:
        """Writes the captured step of the last replayed graph to the file `path` as IR text, for pump-graph-opt and
        `costs`. The file is compressed if its name ends in .gz."""
        self._last_graph("save").step.save(path)

    def memory_snapshot(self, path: PathLike) -> None:
        """Writes the plan's device memory over one predicted replay of the last replayed graph to the file `path`, for
        pytorch.org/memory_viz. Raises PumpGraphError if the step is left as captured."""
        self._last_graph("memory_snapshot").step.memory_snapshot(path)

    @property
    def is_captured(self) -> bool:
        """Whether a graph is captured."""
        return self._last is not None

    def signatures(self) -> List[str]:
        """The kinds of call that have a graph, as text."""
        return [graph.text for graphs in self._graphs.values() for graph in graphs]

    def reset(self) -> None:
        """Gives up all graphs and their memory. The next calls warm up and are captured anew."""
        installed().guard.rest()
        for graphs in self._graphs.values():
            for graph in graphs:
                graph.close()
        tables: Tuple[Any, ...] = (self._graphs, self._inputs, self._calls, self._texts, self._warm_ups, self._stepped,
                                   self._skipped, self._changes, self._returned, self._left)
        for table in tables:
            table.clear()
        self._last = None

    def _last_graph(self, wanted: str) -> _Graph:
        if self._last is None:
            done = sum(self._calls.values())
            raise invalid(f"{wanted}: {self._name} is not captured yet: it was called {done} times, and is warmed up "
                          f"{self._options.warmup} times for each signature")
        return self._last


class WeakMethod:
    """A method that does not keep its object."""

    def __init__(self, fn: Callable[..., Any], instance: Any):
        functools.update_wrapper(self, fn)
        self.function = fn
        self._instance = weakref.ref(instance)

    @property
    def instance(self) -> Any:
        return self._instance()

    @property
    def __wrapped__(self) -> Any:
        """For the search: the method of the object as it is."""
        return self.function.__get__(self._instance())

    @__wrapped__.setter
    def __wrapped__(self, _fn: Any) -> None:  # what update_wrapper() does
        pass

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(self._instance(), *args, **kwargs)


def detached(output: Any) -> Any:
    """Without its history, which ends with the call."""
    return nested.replaced(output, lambda value: value.detach() if isinstance(value, torch.Tensor) else value)


def _leaves_of(output: Any) -> List[Any]:
    found: List[Any] = []
    nested.replaced(output, found.append)
    return found


def tensors_of_output(output: Any) -> List[torch.Tensor]:
    return [value for value in _leaves_of(output) if isinstance(value, torch.Tensor)]


def _handed_through(output: Any, inputs: signature.StaticInputs) -> Iterator[torch.Tensor]:
    """The tensors of an output that lie in arguments, which the next call overwrites."""
    own = {pointer_of(leaf) for leaf in inputs.leaves if has_memory(leaf)}
    return (tensor for tensor in tensors_of_output(output) if has_memory(tensor) and pointer_of(tensor) in own)


def _is_worth_moving(tensor: torch.Tensor) -> bool:
    return any(part.is_cuda and part.untyped_storage().nbytes() >= WORTH_MOVING for part in plain_tensors(tensor))
