# SPDX-License-Identifier: Apache-2.0
"""What the operators of a step only read or update besides, what reports call the nodes that come of them, how much
these compute, and which may run again.

A kernel's parameters do not say what it does to its operands, but PyTorch's schemas say of each operator which
arguments it writes. A dispatch mode sees every operator of the rehearsal, forward and backward, and with it the graph
nodes that come of it: closed kernels (cuBLAS, cuDNN) too. A weight that the forward pass only reads need not go back to
the host.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Set

import torch

from ._session import OperationKind, Session
from .arithmetic import NO_ARITHMETIC, Arithmetic, arithmetic_of
from .collectives import call_of, refuse_collective
from .errors import PumpGraphError
from .guard import address_of, storages_in
from .names import Names
from .purity import kind_of, updated_aside, writes_addresses
from .reach import Reaching
from .schemas import COLLECTIVE, given, is_believed, is_written, modes_below
from .tensors import distributed_tensors, has_memory, is_wrapper, pointer_of, tensors_in


class DeclaringOperators(torch.utils._python_dispatch.TorchDispatchMode):
    """While it is entered and `stream` is being captured, the session hears of each operator what it only reads, how
    much it computes and what it is called. `drawn` gets the generators that numbers are drawn from: their ids, None for
    CUDA's own. `writing_addresses`: names of operators whose kernels leave addresses to each other in memory.
    `operands`: addresses of all memory that operators got. `announce` is called with the name of each before it runs,
    `note_collective` with the arguments of each collective."""

    supports_higher_order_operators = True

    def __init__(self, session: Session, stream: int, names: Names, drawn: Optional[Set[Any]] = None,
                 announce: Callable[[str], None] = lambda _name: None,
                 note_collective: Callable[[Any], None] = lambda _args: None):
        super().__init__()
        self._announce = announce
        self._note_collective = note_collective
        self._reaching = Reaching(session, stream)
        self._drawn = drawn if drawn is not None else set()
        self.writing_addresses: Set[str] = set()
        self.operands: Set[int] = set()
        self._session = session
        self._stream = stream
        self._names = names

    @classmethod
    def is_infra_mode(cls) -> bool:
        return True  # or torch.compile would not run what it has compiled

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if any(issubclass(kind, distributed_tensors()) for kind in types):
            return NotImplemented  # it is made of operators on this rank's part and of collectives: those come here
        if func.namespace in COLLECTIVE:
            refuse_collective(func, args, kwargs)
            self._note_collective((args, kwargs))
            self._announce(call_of(func))
        else:
            self._announce(func.__name__)
        if _draws(func, args, kwargs):
            generator = kwargs.get("generator")
            self._drawn.add(generator if generator is None else id(generator))
        if writes_addresses(func, args):
            self.writing_addresses.add(func.__name__)
        self.operands.update(map(address_of, storages_in(args, kwargs)))
        used, kind, aside = None, OperationKind.UNKNOWN, []
        is_known = not modes_below()
        if is_known:
            used, kind = memory_used(func, args, kwargs), kind_of(func, args, kwargs)
            aside = updated_aside(func, args, kwargs)
        name = self._names.operator(func)
        # Of what was captured between the operators nothing is known.
        self._declare(None, [], "", OperationKind.UNKNOWN, NO_ARITHMETIC)
        reach = self._reaching.begin(func, args, kwargs)
        result = func(*args, **kwargs)
        self._reaching.end(func, reach, result)
        self._declare(used, aside, name, kind, arithmetic_of(func, args, kwargs, result) if is_known else NO_ARITHMETIC)
        self._names.results(name, (args, kwargs), result)
        return result

    def __exit__(self, *error: Any) -> Any:
        super().__exit__(*error)
        if error[:1] == (None,):
            self._reaching.close()

    def _declare(self, used: Optional[MemoryUsed], aside: List[int], name: str, kind: OperationKind,
                 arithmetic: Arithmetic) -> None:
        try:
            self._session.declare_operation(self._stream, kind)
            self._session.declare_reads(self._stream, used.read if used else [])
            self._session.declare_writes(self._stream, used.written if used else None)
            self._session.declare_aside(self._stream, aside)
            self._session.declare_arithmetic(self._stream, *arithmetic)
            self._session.name_nodes(self._stream, name)
        except PumpGraphError:
            pass  # the capture is broken, and whoever broke it says so


class MemoryUsed(NamedTuple):
    """Addresses in the memory that a call of an operator only reads, and in the memory that it may write."""

    read: List[int]
    written: List[int]


def memory_used(func: Any, args: Sequence[Any], kwargs: Dict[str, Any]) -> Optional[MemoryUsed]:
    """Of what the arguments are; None where nobody knows. Asked before the call: an operator may give an argument other
    memory, and write that."""
    if not is_believed(func):
        return None
    read: Set[int] = set()
    written: Set[int] = set()
    for argument, value in given(func._schema.arguments, args, kwargs):
        memory = written if is_written(argument) else read
        for tensor in tensors_in(value):
            if is_wrapper(tensor):
                return None  # what its operators do is its own business
            if has_memory(tensor):
                memory.add(pointer_of(tensor))
    return MemoryUsed(sorted(read - written), sorted(written))


# Operators that draw random numbers whatever their arguments are. Others, such as attention, may draw none.
_DRAWING = frozenset((
    "rand", "rand_like", "randn", "randn_like", "randint", "randint_like", "randperm", "normal", "normal_", "uniform_",
    "random_", "bernoulli", "bernoulli_", "exponential_", "multinomial", "cauchy_", "log_normal_", "geometric_",
    "poisson",
))


def _draws(func: Any, args: Sequence[Any], kwargs: Dict[str, Any]) -> bool:
    """Whether it is sure to draw, on the device."""
    name = func.__name__.partition(".")[0]
    if name == "native_dropout":
        return len(args) == 3 and bool(args[1]) and args[2] is not False
    device = kwargs.get("device")
    given = [value for value in args if isinstance(value, torch.Tensor)]
    on_device = given[0].is_cuda if given else getattr(device, "type", "") == "cuda"
    return name in _DRAWING and on_device and not (given and given[0].numel() == 0)
