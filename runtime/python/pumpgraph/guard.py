# SPDX-License-Identifier: Apache-2.0
"""True values for operators outside captured steps.

While a plan is in force a private tensor's address holds whatever its frame holds. A dispatch mode sees every operator
before it runs; those that touch a private tensor get its value mapped first. A few tensors, such as a weight whose
norm is logged, are mapped one by one and given back before the next replay; where an operator would exceed that, such
as in an evaluation or a checkpoint, the plan is taken back as a whole, which costs no more than the mapping and is done
once.
"""

from __future__ import annotations

import functools
import os
import threading
import weakref
from typing import Any, Dict, Iterable, Iterator, Set

import torch

from ._session import Session
from .tensors import is_wrapper

_MAPPED_AT_MOST = 16
_modes = torch.utils._python_dispatch


class _Watching(_modes.TorchDispatchMode):
    supports_higher_order_operators = True

    def __init__(self, guard: "Guard"):
        super().__init__()
        self._guard = guard

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if self._guard.armed and not _only_looks(func):
            self._guard.bring(_storages(args, kwargs))
        return func(*args, **kwargs)


@functools.lru_cache(maxsize=None)
def _only_looks(func: Any) -> bool:
    """Whether the operator makes views and touches no memory."""
    schema = getattr(func, "_schema", None)
    if schema is None or not schema.returns:
        return False
    writes = any(argument.alias_info is not None and argument.alias_info.is_write for argument in schema.arguments)
    return not writes and all(result.alias_info is not None for result in schema.returns)


def _storages(args: Iterable[Any], kwargs: Dict[str, Any]) -> Iterator[torch.UntypedStorage]:
    for value in (*args, *kwargs.values()):
        for item in value if isinstance(value, (list, tuple)) else (value,):
            if isinstance(item, torch.Tensor):
                yield from _storages_of(item)


def _storages_of(tensor: torch.Tensor) -> Iterator[torch.UntypedStorage]:
    if is_wrapper(tensor):
        for name in tensor.__tensor_flatten__()[0]:
            yield from _storages_of(getattr(tensor, name))
    elif tensor.is_cuda and tensor.layout == torch.strided:
        yield tensor.untyped_storage()


class Guard:
    """Knows which memory is private, and brings it to its place for operators outside steps. `armed`: a plan is in
    force that may have moved it."""

    def __init__(self, session: Session):
        self.armed = False
        self.lent: Dict[int, Any] = {}  # mapped, by address; the storages stay alive meanwhile
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
            self.rest()

    def rest(self) -> None:
        """Every value is at its address, and nothing is watched, until the next replay. Where the program has put a
        mode of its own on top, operators go on passing through this one."""
        self.take_back()
        self._leave_thread()

    def rest_before_unknown(self) -> bool:
        """rest() before something that may touch any private tensor, unless the program has mapped what it touches.
        Whether there was anything to bring."""
        mapped_by_caller = self._session.mapped_depth > len(self.lent)
        if not self.armed or mapped_by_caller:
            return False
        self.rest()
        return True

    def _leave_thread(self) -> None:
        if getattr(self._here, "is_entered", False) and _modes._get_current_dispatch_mode() is self._mode:
            self._here.is_entered = False
            self._mode.__exit__(None, None, None)

    def bring(self, storages: Iterable[torch.UntypedStorage]) -> None:
        """The values of these are at their addresses until the next replay."""
        wanted = {}
        for storage in storages:
            pointer = _address(storage)
            if pointer in self._pointers and pointer not in self.lent:
                wanted[pointer] = storage
        if not wanted:
            return
        mapped_by_caller = self._session.mapped_depth > len(self.lent)
        if len(self.lent) + len(wanted) > _MAPPED_AT_MOST and not mapped_by_caller:
            self.take_back()
            return
        for pointer, storage in wanted.items():
            self._session.map(pointer)
            self.lent[pointer] = storage

    def bring_private(self, tensors: Iterable[torch.Tensor]) -> bool:
        """bring() for those of `tensors` that are private. Whether there are any."""
        private = [tensor for tensor in tensors
                   if tensor.is_cuda and _address(tensor.untyped_storage()) in self._pointers]
        if private:
            self.bring(_storages(private, {}))
        return bool(private)

    def give_back(self) -> None:
        """What bring() mapped is no longer needed: a replay may follow."""
        if not self.lent:
            return
        torch.cuda.synchronize()  # operators that use it may still run
        while self.lent:
            pointer, storage = self.lent.popitem()
            self._session.unmap(pointer)
            del storage

    def take_back(self) -> None:
        """Every value is at its address until the next replay."""
        self.give_back()
        self._session.take_back()
        self.armed = False

    def _leave_alone(self) -> None:
        """In a child process, such as a loader's worker: the device is the parent's."""
        self.armed = False
        self._leave_thread()


def _address(storage: torch.UntypedStorage) -> int:
    try:
        return storage.data_ptr()
    except RuntimeError:  # memory that is only imagined, as in tracing
        return 0
