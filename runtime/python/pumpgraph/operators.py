# SPDX-License-Identifier: Apache-2.0
"""What the operators of a step only read.

A kernel's parameters do not say what it does to its operands, but PyTorch's schemas say of each operator which arguments
it writes. A dispatch mode sees every operator while a step is captured, forward and backward, and with it the graph
nodes that come of it: closed kernels (cuBLAS, cuDNN) too. A weight that the forward pass only reads need not go back to
the host.
"""

from __future__ import annotations

from typing import Any, Dict, Iterator, List, Sequence, Set, Tuple

import torch

from ._session import Session
from .errors import PumpGraphError

# Arguments that operators write although their schemas do not say so: batch norm's running statistics, and memory that
# cuDNN's kernels keep things in, also in their backward pass. Operators outside of PyTorch's own are not believed.
WRITTEN_UNSAID = frozenset(("running_mean", "running_var", "noise", "weight_buf", "dropout_state", "workspace",
                            "reserve", "reserveSpace", "reserve_space"))
_BELIEVED = "aten"


class DeclaringReads(torch.utils._python_dispatch.TorchDispatchMode):
    """While it is entered and `stream` is being captured, the session hears what each operator only reads."""

    supports_higher_order_operators = True

    def __init__(self, session: Session, stream: int):
        super().__init__()
        self._session = session
        self._stream = stream

    @classmethod
    def is_infra_mode(cls) -> bool:
        return True  # or torch.compile would not run what it has compiled

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        self._declare([])  # of what was captured between the operators nothing is known
        result = func(*args, **kwargs)
        self._declare(only_read(func, args, kwargs))
        return result

    def _declare(self, pointers: List[int]) -> None:
        try:
            self._session.declare_reads(self._stream, pointers)
        except PumpGraphError:
            pass  # the capture is broken, and whoever broke it says so


def only_read(func: Any, args: Sequence[Any], kwargs: Dict[str, Any]) -> List[int]:
    """Addresses in the memory that a call of this operator reads and does not write."""
    schema = getattr(func, "_schema", None)
    if schema is None or getattr(func, "namespace", None) != _BELIEVED:
        return []
    read: Set[int] = set()
    written: Set[int] = set()
    for argument, value in _given(schema.arguments, args, kwargs):
        is_written = argument.name in WRITTEN_UNSAID or \
            (argument.alias_info is not None and argument.alias_info.is_write)
        for tensor in _tensors_in(value):
            if hasattr(tensor, "__tensor_flatten__"):
                return []  # a subclass around other tensors: what its operators do is its own business
            if tensor.is_cuda and tensor.layout == torch.strided:
                (written if is_written else read).add(tensor.untyped_storage().data_ptr())
    return sorted(read - written - {0})


def _given(declared: Sequence[Any], args: Sequence[Any], kwargs: Dict[str, Any]) -> Iterator[Tuple[Any, Any]]:
    """The schema's arguments with what was passed for them."""
    yield from zip(declared, args)
    for argument in declared[len(args):]:
        if argument.name in kwargs:
            yield argument, kwargs[argument.name]


def _tensors_in(value: Any) -> Iterator[torch.Tensor]:
    for item in value if isinstance(value, (list, tuple)) else (value,):
        if isinstance(item, torch.Tensor):
            yield item
