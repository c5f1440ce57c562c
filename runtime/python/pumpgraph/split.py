# SPDX-License-Identifier: Apache-2.0
"""graphed(split=True): a step function whose pieces are captured, while what lies between them runs in each call.

The function's own Python takes every branch, with the values of the call. Its local variables tell the pieces what to
work on (docs/decisions/17-steps-in-pieces.md):

* What a piece leaves in a variable lies at a fixed address, and later pieces get it as it is, with its history. What
  they do is keyed by the identity of these tensors.
* Code between pieces gets copies without a history. What it writes into them is written back before the next piece;
  tensors that it makes are arguments of the pieces that use them.
* So autograd's graph of a captured piece stays, for whatever piece is captured after it, in this call or a later one.
"""

from __future__ import annotations

import contextlib
import enum
import functools
import sys
import traceback
import types
import weakref
from operator import attrgetter
from typing import Any, Callable, Dict, Iterable, Iterator, List, Optional, Set, Tuple

import torch

from . import cuts, nested, signature
from ._report import Report
from ._session import PathLike, ValidationResult
from .changes import Changes
from .data_parallel import refuse_in_pieces
from .errors import PumpGraphError, UnsupportedError, invalid
from .shared_steps import LoneCapture
from .step_function import (Graphed, Options, WORTH_MOVING, WeakMethod, counted, depths, detached,
                            tensors_of_output)
from .tensors import has_memory, pointer_of
from .torch_capture import Named, Things, installed
from .values import PLAIN


class Waits(UnsupportedError):
    """A statement has to run between pieces."""


class Kept:
    """The value of a variable that only pieces look at. `runs`: how often its tensors had been made by then."""

    __slots__ = ("value", "runs")

    def __init__(self, value: Any, runs: List[Tuple[int, int]]):
        self.value, self.runs = value, runs


class Bound:
    """A tensor that a piece gets as it is. `lasts`: it is at its address in later calls too; `versions`: how often the
    tensors that its history may use had been written when they were saved."""

    __slots__ = ("tensor", "lasts", "versions")

    def __init__(self, tensor: torch.Tensor, lasts: bool, versions: Optional["_Versions"]):
        self.tensor, self.lasts, self.versions = tensor, lasts, versions

    def __eq__(self, other: Any) -> bool:
        return isinstance(other, Bound) and self.tensor is other.tensor

    def __hash__(self) -> int:
        return id(self.tensor)

    def __repr__(self) -> str:
        return f"{str(self.tensor.dtype).replace('torch.', '')}{list(self.tensor.shape)}"

    def looks(self) -> Any:
        """What may differ between calls that do the same."""
        tensor = self.tensor
        return tensor.shape, tensor.stride(), tensor.dtype, tensor.device, tensor.requires_grad


class _Versions:
    """PyTorch counts writes to a tensor, and refuses a backward pass that needs a value from before one. A replay
    writes without counting, and a capture counts without writing."""

    def __init__(self, before: Dict[int, Tuple[torch.Tensor, int]], tensors: List[torch.Tensor]):
        self.known = {**before, **{id(tensor): (tensor, tensor._version) for tensor in tensors
                                   if not tensor.is_inference()}}

    @contextlib.contextmanager
    def restored(self) -> Iterator[None]:
        """Inside, counts are those of the capture. Writes inside count for others, too."""
        counts = list(self.known.values())
        before = [tensor._version for tensor, _ in counts]
        self._set((tensor, version) for tensor, version in counts)
        try:
            yield
        finally:
            self._set((tensor, earlier + tensor._version - version)
                      for (tensor, version), earlier in zip(counts, before))

    @staticmethod
    def _set(counts: Iterable[Tuple[torch.Tensor, int]]) -> None:
        pairs = list(counts)
        if pairs:
            torch._C._autograd._unsafe_set_version_counter(*zip(*pairs))


# ---- a piece as a function -------------------------------------------------------------------------------------------

_OPAQUE_ADVICE = "use it in the statement that makes it, or name it in both places as the program has it: self.it"


class _Block:
    """A piece, for calls by its variables. Returns those that later code looks at."""

    running: Optional["_Block"] = None

    def __init__(self, cut: cuts.Cut, function: Callable[..., Any], lines: Set[int]):
        self.__name__ = cut.function.__name__
        self._cut = cut
        self._function = function
        self._lines = lines
        self._codes = {cut.function.__code__, *cuts.codes_in(cut.function.__code__)}

    @property
    def __wrapped__(self) -> Any:
        """For the search."""
        return getattr(self._function, "__wrapped__", self._function)

    def __call__(self, **values: Any) -> Dict[str, Any]:
        bound: List[Bound] = []
        given = [(name, tensor, tensor._version)
                 for name, value in values.items() for tensor in tensors_of_output(value)
                 if not isinstance(tensor, torch.nn.Parameter) and not tensor.is_inference()]

        def unbound(value: Any) -> Any:
            if isinstance(value, Bound):
                bound.append(value)
                return value.tensor
            return value

        values = nested.replaced(values, unbound)
        versions = {id(each.versions): each.versions for each in bound if each.versions is not None}
        histories = [(each.tensor, each.tensor.grad_fn, _of_history(each.tensor)) for each in bound]
        values.pop(signature.OBJECTS)
        contents = [(name, value, _contents(value)) for name, value in values.items() if nested.is_container(value)]
        before, _Block.running = _Block.running, self
        kept, Changes.keeps_graphs = Changes.keeps_graphs, bool(versions)
        try:
            with contextlib.ExitStack() as counts:
                for each in versions.values():
                    counts.enter_context(each.restored())
                variables = self._function(**values)
        finally:
            _Block.running, Changes.keeps_graphs = before, kept
        for name, tensor, version in given:
            if tensor._version != version:
                raise UnsupportedError(f"the step writes into \"{name}\" after code between its pieces has made it: "
                                       f"only the piece at line {self._cut.lines[0]} would see that; write {name} = "
                                       f"{name}.clone() first")
        if any(tensor.grad_fn is not node or _of_history(tensor) != before for tensor, node, before in histories):
            # The next capture would find it changed already.
            raise UnsupportedError(f"the piece of the step at line {self._cut.lines[0]} changes the history of a "
                                   "tensor that an earlier piece has made, by writing into it or by a hook; compute a "
                                   "new one, such as total = total + loss, and hook it where it is made")
        for name, value, content in contents:
            if _contents(value) != content:
                raise UnsupportedError(f"the piece of the step at line {self._cut.lines[0]} changes what is in "
                                       f"\"{name}\", a {type(value).__name__} that other code has, which no replay "
                                       f"would do; make a new one, such as {name} = [*{name}, ...]")
        left = {name: variables[name] for name in self._cut.outputs if name in variables}
        for name, value in left.items():
            nested.replaced(value, functools.partial(self._refuse_opaque, name))
        return left

    def _refuse_opaque(self, name: str, value: Any) -> None:
        if isinstance(value, (*PLAIN, bytes, tuple, range, slice, enum.Enum, torch.Tensor, torch.dtype, torch.device,
                              torch.nn.Module, torch.optim.Optimizer, type, types.ModuleType,
                              types.BuiltinFunctionType)):
            return
        if isinstance(value, types.FunctionType) and value.__closure__ is None:
            return
        raise UnsupportedError(f"the piece of the step at line {self._cut.lines[0]} leaves \"{name}\", a "
                               f"{type(value).__name__}, to code after it, and a replay would not make it anew; "
                               f"{_OPAQUE_ADVICE}")

    def line_in(self, frames: Iterator[Tuple[Any, int]]) -> Optional[int]:
        return next((line for frame, line in frames if frame.f_code in self._codes), None)

    def found_waiting(self, what: str) -> None:
        """A statement of the piece, which is running, has to be on the host."""
        line = self.line_in(traceback.walk_stack(sys._getframe()))
        if torch.cuda.is_current_stream_capturing():
            raise Waits(f"{what} keeps account on the host")
        if line is not None:
            self._lines.add(line)


def _of_history(tensor: torch.Tensor) -> Tuple[Any, ...]:
    hooks = (getattr(tensor, key, None) for key in ("_backward_hooks", "_post_accumulate_grad_hooks"))
    return (tensor.requires_grad, getattr(tensor, "retains_grad", False), *(len(each or ()) for each in hooks))


def _contents(value: Any) -> Any:
    if nested.is_container(value):
        return type(value), [(key, _contents(item)) for key, item in nested.items(value)]
    return signature.Same(value)


class _PrivateThings(Things):
    """With what the capture allocates and leaves for later pieces."""

    def __init__(self, roots: Any, before: List[Named]):
        super().__init__(roots, settings=False)
        self._earlier = before
        self._at_start = _allocations()
        self.kept: Optional[List[Named]] = None

    def tensors(self) -> List[Named]:
        """After the capture."""
        named = super().tensors()
        alive = _allocations()
        if self.kept is None:
            self.kept = [Named("kept for later pieces", address) for address in sorted(alive - self._at_start)]
        alive.difference_update(each.pointer for each in named)
        return [*named, *(each for each in (*self._earlier, *self.kept) if each.pointer in alive)]


def _allocations() -> Set[int]:
    """Addresses of those that are alive and worth moving."""
    return {each["address"] for block in installed().session.torch_snapshot()["blocks"]
            for each in block["allocations"] if each["bytes"] >= WORTH_MOVING}


class Piece(Graphed):
    """One piece of a step, with a graph for every kind of variables."""

    _gives_output = False

    _fn: _Block

    def __init__(self, cut: cuts.Cut, split: "Split"):
        adoption = split.options.adoption
        first, last = cut.lines
        lines = f"{first}" if first == last else f"{first}-{last}"
        super().__init__(_Block(cut, split.as_it_is_called(cut.function), split.lines),
                         split.options._replace(adoption=adoption._replace(name=f"{adoption.name}[{lines}]")))
        self.cut = cut
        self._split = split
        self._ran_eagerly = False
        self._reached: Dict[Tuple[int, int], bool] = {}  # by graph and tensor
        self._searched_too = (split.fn,)  # a backward pass fills in gradients of what only other pieces name
        self._things: Optional[_PrivateThings] = None

    def run(self, values: Dict[str, Any]) -> Dict[str, Any]:
        self._ran_eagerly = False
        return self(**values)

    def may_have_written(self, tensor: torch.Tensor) -> bool:
        """In the run before, a tensor of another piece."""
        if self._ran_eagerly or self._last is None or id(tensor) not in self._split.lasting:
            return True
        key = id(self._last), id(tensor)
        if key not in self._reached:
            self._reached[key] = self._last.touched.touches(tensor)
        return self._reached[key]

    def reset(self) -> None:
        super().reset()
        self._reached.clear()

    def _warm_up(self, *arguments: Any) -> Any:
        self._ran_eagerly = True
        return super()._warm_up(*arguments)

    def _ended(self, output: Any) -> Any:
        return output

    def _kind(self, call: signature.Call, surroundings: Any) -> Any:
        return _loosely(call.key), tuple(surroundings.modes())

    def _private_things(self, roots: List[Any]) -> Things:
        self._things = _PrivateThings(roots, self._split.kept)
        return self._things

    def _present(self, inputs: signature.StaticInputs) -> List[torch.Tensor]:
        bound = _bound_in_values((inputs.args, inputs.kwargs))
        return [*inputs.leaves, *(each.tensor for each in bound if id(each.tensor) in self._split.arguments)]

    @property
    def _reset_by(self) -> str:
        return self._split.options.adoption.name

    def _run_new(self, installation: Any, call: signature.Call, surroundings: Any, kind: Any) -> Any:
        refuse_in_pieces(surroundings.modules)
        self._split.note_own([*surroundings.tensors, *(tensor for _, tensor in surroundings.found.tensors)])
        try:
            if not all(bound.lasts for bound in _bound_in(call)):  # of an earlier piece that is not captured yet
                self._calls[kind] = min(self._calls[kind], self._options.warmup - 1)
            return super()._run_new(installation, call, surroundings, kind)
        except UnsupportedError as error:
            if not self._has_cut_at(error):
                raise
        finally:
            if call.key not in self._graphs:
                self._inputs.pop(call.key, None)
        inputs = signature.StaticInputs(call, installation.device)
        inputs.load(call.tensors)
        return self._warm_up(installation, inputs, surroundings, kind)

    def _has_cut_at(self, error: UnsupportedError) -> bool:
        """Whether the capture failed at a statement that can run between pieces, from the next call on."""
        failure = error if isinstance(error, Waits) else error.__cause__
        if failure is None or isinstance(failure, PumpGraphError) and not isinstance(failure, Waits):
            return False
        line = self._fn.line_in(reversed(list(traceback.walk_tb(failure.__traceback__))))
        if line is not None:
            self._split.lines.add(line)
        return line is not None

    def _capture(self, installation: Any, call: signature.Call, inputs: signature.StaticInputs, surroundings: Any,
                 kind: Any, shared: LoneCapture) -> Any:
        tensors = [tensor for _, tensor in surroundings.found.tensors]  # before the table is cleared
        graph = super()._capture(installation, call, inputs, surroundings, kind, shared)
        assert self._things is not None and self._things.kept is not None
        self._split.kept += self._things.kept
        self._things = None
        left = [tensor for tensor in tensors_of_output(graph.step.output) if not isinstance(tensor, torch.nn.Parameter)]
        bound = _bound_in_values((inputs.args, inputs.kwargs))
        versions = None
        if any(tensor.requires_grad for tensor in left):
            before = {key: value for each in bound if each.versions for key, value in each.versions.known.items()}
            versions = _Versions(before, [*surroundings.tensors, *tensors, *inputs.leaves,
                                          *(each.tensor for each in bound), *left])
        for tensor in left:
            self._split.lasting.setdefault(id(tensor), (tensor, versions if tensor.requires_grad else None))
        return graph


def _loosely(key: Any) -> Any:
    if isinstance(key, Bound):
        return key.looks()
    return tuple(map(_loosely, key)) if type(key) is tuple else key


def _bound_in(call: signature.Call) -> List[Bound]:
    return _bound_in_values(call.arguments)


def _bound_in_values(values: Any) -> List[Bound]:
    return [value for value in _leaves_of(values) if isinstance(value, Bound)]


def _leaves_of(value: Any) -> Iterator[Any]:
    """Of a variable, which may hold anything: looked at, and not copied."""
    if not nested.is_container(value):
        yield value
        return
    for _, item in nested.items(value):
        yield from _leaves_of(item)


# ---- a call ----------------------------------------------------------------------------------------------------------


class _View:
    """What code between pieces sees of a tensor of theirs: a copy."""

    def __init__(self, raw: torch.Tensor, run: int):
        self.raw, self.run = raw, run
        with torch.inference_mode(False), torch.no_grad():
            self.tensor = raw.detach().clone()
        if raw.requires_grad:
            self.tensor.requires_grad_(True)
            self.tensor.register_hook(_refuse_gradient)
        self._version = self.tensor._version

    @property
    def is_written(self) -> bool:
        return self.tensor._version != self._version

    def write_back(self) -> None:
        self._copy(self.tensor, self.raw)

    def refresh(self) -> None:
        """A piece may have written the tensor."""
        self._copy(self.raw, self.tensor)

    def _copy(self, source: torch.Tensor, target: torch.Tensor) -> None:
        with torch.inference_mode(False), torch.no_grad():
            target.detach().copy_(source.detach())
        self._version = self.tensor._version


class _Call:
    """The variables of a call, as pieces and the code between them have them."""

    running: Optional["_Call"] = None

    def __init__(self, split: "Split", program: cuts.Program, pieces: List[Piece], leaves: List[torch.Tensor]):
        self.split = split
        self._program = program
        self._pieces = pieces
        self._raw = {id(leaf): leaf for leaf in leaves}  # what pieces work on
        self._runs = dict.fromkeys(self._raw, 0)  # how often a piece has made it
        self._views: Dict[int, _View] = {}  # by the identity of what code between pieces sees
        self._current: Dict[int, _View] = {}  # by that of the tensor, while it is what was copied

    def arguments(self, names: Tuple[str, ...], variables: Dict[str, Any]) -> Tuple[Any, ...]:
        return tuple(self._left(name, variables[name]) for name in names)

    def piece(self, index: int, variables: Dict[str, Any]) -> Tuple[Any, ...]:
        self._write_back()
        piece = self._pieces[index]
        values = {name: self._bound(name, variables[name]) for name in piece.cut.inputs if name in variables}
        left = piece.run({**values, signature.OBJECTS: _objects_in(variables)})
        taken = {id(bound.tensor) for bound in _bound_in_values(values)}
        for tensor in tensors_of_output(left):
            if id(tensor) not in taken and not self.split.is_own(tensor):
                self._raw[id(tensor)] = tensor
                self._runs[id(tensor)] = self._runs.get(id(tensor), 0) + 1
                self._current.pop(id(tensor), None)
                taken.add(id(tensor))
        for view in self._current.values():
            if piece.may_have_written(view.raw):
                view.refresh()
        return tuple(self._left(name, left[name]) if name in left else cuts.Unset for name in piece.cut.outputs)

    def _bound(self, name: str, value: Any) -> Any:
        """For a piece."""
        if not isinstance(value, Kept):
            has_tensors = any(isinstance(leaf, torch.Tensor) for leaf in _leaves_of(value))
            return nested.replaced(value, functools.partial(self._bound_tensor, name)) if has_tensors else value
        if any(self._runs[key] != run for key, run in value.runs):
            raise self._is_made_again(name)
        return nested.replaced(value.value, functools.partial(self._bound_tensor, name))

    def _bound_tensor(self, name: str, value: Any) -> Any:
        if not isinstance(value, torch.Tensor) or isinstance(value, torch.nn.Parameter):
            return value
        raw = self._raw.get(id(value))
        if raw is None and id(value) not in self._views and self.split.is_own(value):
            _, versions = self.split.lasting.get(id(value), (None, None))
            return Bound(value, True, versions)
        view = self._views.get(id(value))
        if view is not None:
            if view.run != self._runs[id(view.raw)]:  # of an earlier run: the copy has the value
                if view.raw.requires_grad:
                    raise self._is_made_again(name)
                return value
            raw = view.raw
        if raw is None:
            return value
        _, versions = self.split.lasting.get(id(raw), (None, None))
        return Bound(raw, id(raw) in self.split.lasting, versions)

    @staticmethod
    def _is_made_again(name: str) -> UnsupportedError:
        return UnsupportedError(f"\"{name}\" has a value from before its piece of the step ran again, in the same call "
                                "and at the same addresses; keep a clone() of it, without its history")

    def _left(self, name: str, value: Any) -> Any:
        """For the function's variable."""
        if name in self._program.shown:
            return nested.replaced(value, self._shown)
        runs = [(id(tensor), self._runs[id(tensor)]) for tensor in tensors_of_output(value) if id(tensor) in self._raw]
        return Kept(value, runs) if runs else value

    def _shown(self, value: Any) -> Any:
        if not isinstance(value, torch.Tensor) or id(value) not in self._raw:
            return value
        view = self._current.get(id(value))
        if view is None:
            view = self._current[id(value)] = _View(value, self._runs[id(value)])
            self._views[id(view.tensor)] = view
        return view.tensor

    def _write_back(self) -> None:
        """What code between pieces has written is there for the next one."""
        current = list(self._current.values())
        for view in filter(attrgetter("is_written"), current):
            if has_memory(view.raw) and any(other is not view and has_memory(other.raw) and
                                            pointer_of(other.raw) == pointer_of(view.raw) for other in current):
                raise UnsupportedError("code between the pieces of the step writes into a tensor, and has another one "
                                       "in the same memory; use one of the two")
            view.write_back()


def _objects_in(variables: Dict[str, Any]) -> Tuple[Any, ...]:
    kinds = (torch.nn.Module, torch.optim.Optimizer, torch.nn.Parameter)
    return tuple({id(thing): thing for thing in _leaves_of(variables) if isinstance(thing, kinds)}.values())


def _refuse_gradient(_gradient: torch.Tensor) -> None:
    raise UnsupportedError("code between the pieces of a split step asks for gradients through a tensor that a piece "
                           "has made; leave what reads the device in a statement of its own")


# ---- the step --------------------------------------------------------------------------------------------------------


class Split:
    """A step function in captured pieces, made by graphed(split=True). Call it like the function that it decorates.

    report() and validate() raise PumpGraphError until the first piece is captured.
    """

    def __init__(self, fn: Callable[..., Any], options: Options):
        functools.update_wrapper(self, fn)
        outer: Any = fn
        function = outer.__func__ if isinstance(fn, types.MethodType) else getattr(outer, "function", outer)
        if not isinstance(function, types.FunctionType):
            raise invalid("split=True cuts a function between its statements; give it one that is written with def")
        self.options = options
        self.lines: Set[int] = set()  # of statements that run on the host
        # Tensors at fixed addresses, by identity.
        self.lasting: Dict[int, Tuple[torch.Tensor, Optional[_Versions]]] = {}
        self.kept: List[Named] = []  # allocations that captured pieces have left for later ones
        self.fn = fn
        self._function = function
        self._program: Optional[cuts.Program] = None
        self._cut_at: Set[int] = set()  # the lines that it knows of
        self._pieces: Dict[Tuple[int, int], Piece] = {}  # by their lines
        self._updates: Dict[int, Tuple[Any, Graphed]] = {}  # by optimizer
        self._inputs: Dict[Any, signature.StaticInputs] = {}
        self.arguments: Set[int] = set()  # tensors that stand for those of calls
        self._own: Dict[int, Any] = {}  # tensors that the program holds, by their memory, as weak references
        self._followed: Any = None  # the stream of the last call
        self._bound: Dict[int, Split] = {}
        _follow_accounts()

    def __get__(self, instance: Any, _owner: Any = None) -> "Split":
        """As a method: every object has graphs of its own."""
        if instance is None:
            return self
        bound = self._bound.get(id(instance))
        if bound is None:
            bound = self._bound[id(instance)] = Split(WeakMethod(self.fn, instance), self.options)
            forget: Any = self._bound.pop
            weakref.finalize(instance, forget, id(instance), None).atexit = False
        return bound

    def as_it_is_called(self, function: types.FunctionType) -> Callable[..., Any]:
        """A part of the function, with the object that it is a method of."""
        if isinstance(self.fn, types.MethodType):
            return types.MethodType(function, self.fn.__self__)
        if isinstance(self.fn, WeakMethod):
            return WeakMethod(function, self.fn.instance)
        return function

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        installation = installed()
        if depths["inside"]:
            return self.fn(*args, **kwargs)  # part of the step that calls it
        if depths["paused"]:
            args, kwargs = signature.on_device(signature.read_call(args, kwargs), installation.device)
            with counted("inside"):
                return detached(self.fn(*args, **kwargs))
        call = signature.read_call(args, kwargs)
        signature.refuse_arguments(call, installation.device)
        program = self._cut()
        inputs = self._inputs.get(call.key)
        if inputs is None:
            inputs = self._inputs[call.key] = signature.StaticInputs(call, installation.device)
            self.lasting.update((id(leaf), (leaf, None)) for leaf in inputs.leaves)
            self.arguments.update(map(id, inputs.leaves))
        current = torch.cuda.current_stream()
        if self._followed is not None and self._followed is not current:
            current.wait_stream(self._followed)
        self._followed = current
        inputs.load(call.tensors)
        pieces = [self._piece(cut) for cut in program.pieces]
        before, _Call.running = _Call.running, _Call(self, program, pieces, inputs.leaves)
        try:
            driver = self.as_it_is_called(program.driver)
            output = detached(driver(*inputs.args, **inputs.kwargs, **{cuts.CALL: _Call.running}))
        finally:
            _Call.running = before
        inputs.refuse_gradients()
        return output

    def _cut(self) -> cuts.Program:
        if self._program is None or self._cut_at != self.lines:
            self.reset()  # graphs of pieces that are others
            self._cut_at = set(self.lines)
            is_method = self.as_it_is_called(self._function) is not self._function
            self._program = cuts.cut(self._function, self._cut_at, is_method)
        return self._program

    def _piece(self, cut: cuts.Cut) -> Piece:
        if cut.lines not in self._pieces:
            self._pieces[cut.lines] = Piece(cut, self)
        return self._pieces[cut.lines]

    def note_own(self, tensors: List[torch.Tensor]) -> None:
        """The program holds these."""
        self._own.update((pointer_of(tensor), weakref.ref(tensor)) for tensor in tensors
                         if has_memory(tensor) and id(tensor) not in self.lasting)

    def is_own(self, tensor: torch.Tensor) -> bool:
        """Whether it is in memory that the program holds."""
        if isinstance(tensor, torch.nn.Parameter):
            return True
        own = self._own[pointer_of(tensor)]() if has_memory(tensor) and pointer_of(tensor) in self._own else None
        return own is not None and pointer_of(own) == pointer_of(tensor)

    @contextlib.contextmanager
    def updating(self, optimizer: torch.optim.Optimizer) -> Iterator[None]:
        """Inside, a step of the optimizer is a piece."""
        own = vars(optimizer).get("step")
        step = optimizer.step
        if id(optimizer) not in self._updates:
            def update() -> None:
                step()

            name = f"{self.options.adoption.name}[{type(optimizer).__name__}.step]"
            adoption = self.options.adoption._replace(name=name)
            self._updates[id(optimizer)] = optimizer, Graphed(update, self.options._replace(adoption=adoption))
        _, graphed = self._updates[id(optimizer)]
        optimizer.step = functools.wraps(step)(lambda: graphed())  # type: ignore[method-assign]
        try:
            yield
        finally:
            if own is None:
                del optimizer.step
            else:
                optimizer.step = own  # type: ignore[method-assign]

    # ---- what can be asked of it ----

    def pieces(self) -> List[Graphed]:
        """The pieces that have a graph, each with report(), save() and so on, in the order of their first calls."""
        return [piece for piece in (*self._pieces.values(), *(graphed for _, graphed in self._updates.values()))
                if piece.is_captured]

    def report(self) -> Report:
        """The report of the piece with the longest predicted replay, as a dict; print() it for text."""
        return max((piece.report() for piece in self._captured("report")),
                   key=lambda report: report.get("predicted_s") or 0)

    def validate(self) -> List[ValidationResult]:
        """Compares every graph of every piece with the piece as captured, from the same state. Slow. Returns one result
        for each graph. Raises PumpGraphError (MISMATCH) if results differ."""
        return [result for piece in self._captured("validate") for result in piece.validate()]

    def save(self, folder: PathLike) -> None:
        """Raises PumpGraphError: a split step has several graphs; save those of its pieces()."""
        raise invalid("a split step has several graphs: save those of its pieces(), each under a name of its own")

    memory_snapshot = save

    def signatures(self) -> List[str]:
        """The kinds of call that have a graph, of all pieces."""
        return [text for piece in self.pieces() for text in piece.signatures()]

    def reset(self) -> None:
        """Gives up all graphs and their memory. The next calls warm up and are captured anew."""
        for piece in (*self._pieces.values(), *(graphed for _, graphed in self._updates.values())):
            piece.reset()
        tables: Tuple[Any, ...] = (self._pieces, self._updates, self._inputs, self.lasting, self.kept, self.arguments,
                                   self._own)
        for table in tables:
            table.clear()

    def _captured(self, wanted: str) -> List[Graphed]:
        found = self.pieces()
        if not found:
            raise invalid(f"{wanted}: no piece of {self.options.adoption.name} is captured yet")
        return found


# What keeps account in Python of what it did to the device: it runs in every call, between pieces.
_ACCOUNTS = (("torch.amp", "GradScaler", ("step", "unscale_", "update")),
             ("torch.optim.lr_scheduler", "LRScheduler", ("step",)),
             ("torch.optim.lr_scheduler", "ReduceLROnPlateau", ("step",)))


def _follow_accounts() -> None:
    """From now on, for good."""
    for module, name, methods in _ACCOUNTS:
        kind = getattr(sys.modules.get(module), name, None)
        for method in methods:
            original = vars(kind).get(method) if kind is not None else None
            if original is not None and not hasattr(original, "_follows_pieces"):
                setattr(kind, method, _followed(original, f"{name}.{method}()"))


def _followed(original: Callable[..., Any], what: str) -> Callable[..., Any]:
    @functools.wraps(original)
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        if _Block.running is not None:
            _Block.running.found_waiting(what)
        elif what == "GradScaler.step()" and _Call.running is not None and len(args) == 1 and not kwargs \
                and isinstance(args[0], torch.optim.Optimizer) \
                and not getattr(args[0], "_step_supports_amp_scaling", False):
            with _Call.running.split.updating(args[0]):
                return original(self, *args)
        return original(self, *args, **kwargs)

    method._follows_pieces = True  # type: ignore[attr-defined]
    return method
