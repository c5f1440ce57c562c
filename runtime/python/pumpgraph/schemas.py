# SPDX-License-Identifier: Apache-2.0
"""What PyTorch's schemas say of operators, and whether that can be believed."""

from __future__ import annotations

import functools
from typing import Any, Collection, Dict, Iterator, List, Sequence, Tuple

import torch

# Namespaces of operators that talk to other processes.
COLLECTIVE = ("c10d", "_c10d_functional", "c10d_functional", "symm_mem")
_BELIEVED = "aten"  # operators of other libraries are not
# Arguments that operators write although their schemas do not say so. All that is known of them is here.
WRITTEN_UNSAID = frozenset((
    "running_mean", "running_var",  # native_batch_norm, cudnn_batch_norm and the like, while training
    "noise",  # rrelu_with_noise
    "weight_arr",  # _cudnn_rnn_flatten_weight, which also gives its arguments other memory
    # Memory in which cuDNN's operators keep things for their backward pass, which may change it.
    "weight_buf", "dropout_state", "workspace", "reserve", "reserveSpace", "reserve_space", "reservedSpace",
    "dst",  # _copy_from, _copy_from_and_resize
))


def _kernels_given() -> Collection[str]:
    """Operators that torch.library was given kernels for, as "aten/mm/CUDA". PyTorch 2.11 gives none for CUDA."""
    return getattr(getattr(torch, "library", None), "_impls", ())


def is_believed(func: Any) -> bool:
    """Whether the operator has a schema that says what it writes."""
    kernel = _kernel_of(func)
    return kernel != "" and kernel not in _kernels_given()


@functools.lru_cache(maxsize=None)
def _kernel_of(func: Any) -> str:
    """The name under which torch.library may be given another kernel of the operator; empty if its schema does not say
    what it writes."""
    schema = getattr(func, "_schema", None)
    if schema is None or func.namespace != _BELIEVED:
        return ""
    name = func.__name__.partition(".")[0]
    # An operator that is in place by its name, or returns nothing, writes something: where it does not say what, like
    # _no_grad_embedding_renorm_, it says nothing.
    writes = name.endswith("_") and not name.endswith("__") or not schema.returns
    if writes and not any(map(says_that_it_writes, schema.arguments)):
        return ""
    return f"{_BELIEVED}/{func.__name__.removesuffix('.default')}/CUDA"


def says_that_it_writes(argument: Any) -> bool:
    return argument.alias_info is not None and argument.alias_info.is_write


def is_written(argument: Any) -> bool:
    """Of an operator that is_believed()."""
    return argument.name in WRITTEN_UNSAID or says_that_it_writes(argument)


def modes_below() -> bool:
    """While a mode handles an operator: whether one of the program's own, entered before it, does so next. That one may
    do anything in the operator's place."""
    stack: List[Any] = getattr(torch.utils._python_dispatch, "_get_current_dispatch_mode_stack", list)()
    return any(not type(mode).__module__.startswith("pumpgraph.") for mode in stack)


def given(declared: Sequence[Any], args: Sequence[Any], kwargs: Dict[str, Any]) -> Iterator[Tuple[Any, Any]]:
    """The schema's arguments with what was passed for them."""
    yield from zip(declared, args)
    for argument in declared[len(args):]:
        if argument.name in kwargs:
            yield argument, kwargs[argument.name]
