# SPDX-License-Identifier: Apache-2.0
"""True values for operators outside captured steps.

While a plan is in force the frame at a private tensor's address may hold another value. A dispatch mode sees every
operator before it runs. Where one touches private tensors, the session brings their values to their addresses first,
all of a call at the same time; they stay until other values need the frames, or until the next replay. What a loop does
between replays costs the bytes it touches over the link.
"""

from __future__ import annotations

import functools
import os
import threading
import time
import traceback
import warnings
import weakref
from typing import Any, Callable, Dict, Iterable, Iterator, Set, Tuple

import torch

from ._session import Session, Use
from .errors import PumpGraphError, is_shortage
from .refusals import users_line
from .schemas import COLLECTIVE, is_believed, is_written, modes_below
from .tensors import distributed_tensors, is_wrapper, plain_tensors, tensors_in

_modes = torch.utils._python_dispatch


class _Watching(_modes.TorchDispatchMode):  # type: ignore[name-defined]  # mypy follows no module of PyTorch
    supports_higher_order_operators = True

    def __init__(self, guard: "Guard"):
        super().__init__()
        self._guard = guard

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if self._guard.armed and not only_looks(func):
            self._guard.bring(storages_in(args, kwargs), lambda: _use_of(func, args, kwargs))
        return func(*args, **kwargs)


@functools.lru_cache(maxsize=None)
def only_looks(func: Any) -> bool:
    """Whether the operator makes views and touches no memory. One that is made of others, which a mode sees whole in
    inference mode, is declared to make views where it may copy: to(), reshape()."""
    schema = getattr(func, "_schema", None)
    if schema is None or not schema.returns or _is_composite(func):
        return False
    writes = any(argument.alias_info is not None and argument.alias_info.is_write for argument in schema.arguments)
    return not writes and all(result.alias_info is not None for result in schema.returns)


def _is_composite(func: Any) -> bool:
    has_kernel = getattr(torch._C, "_dispatch_has_kernel_for_dispatch_key", None)
    return has_kernel is None or has_kernel(func.name(), "CompositeImplicitAutograd")


def _use_of(func: Any, args: Iterable[Any], kwargs: Dict[str, Any]) -> Use:
    """What the operator, or something that may run in its place, does with its arguments. A collective may go on with
    them after it has returned, on other threads, and operators on distributed tensors are made of such."""
    if func.namespace in COLLECTIVE or any(isinstance(tensor, distributed_tensors())
                                           for tensor in tensors_in([*args, *kwargs.values()])):
        return Use.UNTIL_REPLAY
    reads = is_believed(func) and not _writes(func) and not modes_below() \
        and not any(map(is_wrapper, tensors_in([*args, *kwargs.values()])))
    return Use.READ if reads else Use.WRITE


@functools.lru_cache(maxsize=None)
def _writes(func: Any) -> bool:
    """Of an operator that is_believed()."""
    return any(map(is_written, func._schema.arguments))


def storages_in(args: Iterable[Any], kwargs: Dict[str, Any]) -> Iterator[torch.UntypedStorage]:
    for tensor in tensors_in([*args, *kwargs.values()]):
        for plain in plain_tensors(tensor):
            if plain.is_cuda and plain.layout == torch.strided:
                yield plain.untyped_storage()


class Guard:
    """Knows which memory is private, and brings it to its place for operators outside steps. `armed`: a plan is in
    force that may have moved it."""

    def __init__(self, session: Session):
        self.armed = False
        self.moves = False  # whether some step of the session moves values
        # At their addresses, and for what; the storages stay alive meanwhile.
        self.lent: Dict[int, Tuple[Any, Use]] = {}
        self._departures = 0  # when these were brought
        self._told: Set[str] = set()
        self._session = session
        self._private: "weakref.WeakKeyDictionary[object, Set[int]]" = weakref.WeakKeyDictionary()
        self._pointers: Set[int] = set()
        self._mode = _Watching(self)
        self._here = threading.local()  # modes belong to threads
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._leave_alone)

    def watch(self, owner: object, pointers: Iterable[int]) -> None:
        """These allocations are private as long as there is `owner`."""
        self._private[owner] = set(pointers)
        weakref.finalize(owner, self._gather).atexit = False
        self._gather()

    def forget(self, owner: object) -> None:
        self._private.pop(owner, None)
        self._gather()

    def _gather(self) -> None:
        self._pointers = set().union(*self._private.values())
        self.put_away()

    def arm(self) -> None:
        """Before a replay: operators of this thread are watched from now on."""
        self.armed = True
        if not getattr(self._here, "is_entered", False):
            self._here.is_entered = True
            # Below those that the program is in, for leaving one takes away whatever is on top.
            with _modes._disable_current_modes():
                self._mode.__enter__()

    def rest_before_compiled(self, *_call: Any) -> None:
        """As a hook of a compiled module: its kernels go past the dispatcher, so no mode sees what they read."""
        if getattr(self._here, "is_entered", False):
            self._tell(self.rest, "compiled code is called outside of a step, and nothing tells what it touches",
                       "call it inside pumpgraph.paused(), or from the step")

    def rest(self) -> None:
        """Every value is at its address, and nothing is watched, until the next replay. Where the program has put a
        mode of its own on top, operators go on passing through this one."""
        self.take_back()
        self._leave_thread()

    def rest_before_unknown(self) -> None:
        """rest() before a graph that may touch any private tensor, unless the program has mapped what it touches."""
        if not self.armed or self._session.mapped_depth > 0:
            return
        self._tell(self.rest, "a graph that the program captured is replayed, and nothing tells what it touches",
                   "replay it inside pumpgraph.mapped() of what it touches, or in runs")

    def _tell(self, bring_all: Callable[[], None], what: str, advice: str) -> None:
        """Brings everything, with a word on what it costs, the first time."""
        was_armed, begin = self.armed, time.perf_counter()
        bring_all()
        if not was_armed or what in self._told:
            return
        self._told.add(what)
        milliseconds = (time.perf_counter() - begin) * 1e3
        warnings.warn(f"{users_line(traceback.extract_stack())}: {what}: all private tensors come to their addresses "
                      f"first, which took {milliseconds:.0f} ms, and leave them before the next replay; {advice}",
                      RuntimeWarning, stacklevel=4)

    def _leave_thread(self) -> None:
        if getattr(self._here, "is_entered", False) and _modes._get_current_dispatch_mode() is self._mode:
            self._here.is_entered = False
            self._mode.__exit__(None, None, None)

    def bring(self, storages: Iterable[torch.UntypedStorage], use: Callable[[], Use] = lambda: Use.WRITE) -> None:
        """The values of these are at their addresses until something else is brought, or until the next replay. `use`
        is asked where one of them is private."""
        wanted = {pointer: storage for pointer, storage in ((address_of(storage), storage) for storage in storages)
                  if pointer in self._pointers}
        if not wanted:
            return
        if self._departures != self._session.departures():
            self.lent.clear()
        wanted_for = use()
        if all(pointer in self.lent and self.lent[pointer][1] >= wanted_for for pointer in wanted):
            return
        before = self._session.departures()
        try:
            self._session.bring(list(wanted), wanted_for)
        except PumpGraphError as error:
            if not is_shortage(error) or self._session.mapped_depth > 0:
                raise
            self._tell(self.take_back, f"an operator needs more memory than there is ({error})",
                       "look at fewer tensors at once")
            return
        self._departures = self._session.departures()
        if self._departures != before:
            self.lent.clear()
        for pointer, storage in wanted.items():
            known_for = self.lent[pointer][1] if pointer in self.lent else Use.READ
            self.lent[pointer] = storage, max(known_for, wanted_for)

    def bring_private(self, tensors: Iterable[torch.Tensor]) -> bool:
        """bring() for those of `tensors` that are private, to be read. Whether there are any."""
        private = [tensor for tensor in tensors
                   if tensor.is_cuda and address_of(tensor.untyped_storage()) in self._pointers]
        if private:
            self.bring(storages_in(private, {}), lambda: Use.READ)
        return bool(private)

    def put_away(self) -> None:
        """A replay begins, and no value is relied on to be at its address."""
        self.lent.clear()

    def take_back(self) -> None:
        """Every value is at its address until the next replay."""
        self.put_away()
        self._session.take_back()
        self.armed = False

    def _leave_alone(self) -> None:
        """In a child process, such as a loader's worker: the device is the parent's."""
        self.armed = False
        self._leave_thread()


def address_of(storage: torch.UntypedStorage) -> int:
    try:
        return storage.data_ptr()
    except RuntimeError:  # memory that is only imagined, as in tracing
        return 0
