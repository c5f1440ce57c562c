# SPDX-License-Identifier: Apache-2.0
"""What PyTorch's schemas say of operators, and whether that can be believed."""

from __future__ import annotations

from typing import Any, Collection, Dict, Iterator, Sequence, Tuple

import torch

_BELIEVED = "aten"  # operators of other libraries are not


def _kernels_given() -> Collection[str]:
    """Operators that torch.library was given kernels for, as "aten/mm/CUDA". PyTorch 2.11 itself gives none for CUDA."""
    return getattr(getattr(torch, "library", None), "_impls", ())


def is_believed(func: Any) -> bool:
    """Whether the operator has a schema that says what it writes."""
    schema = getattr(func, "_schema", None)
    if schema is None or func.namespace != _BELIEVED:
        return False
    if f"{_BELIEVED}/{func.__name__.removesuffix('.default')}/CUDA" in _kernels_given():
        return False
    name = func.__name__.partition(".")[0]
    # An operator that is in place by its name, or returns nothing, writes something: where it does not say what, like
    # _no_grad_embedding_renorm_, it says nothing.
    writes = name.endswith("_") and not name.endswith("__") or not schema.returns
    return not writes or any(map(says_that_it_writes, schema.arguments))


def says_that_it_writes(argument: Any) -> bool:
    return argument.alias_info is not None and argument.alias_info.is_write


def given(declared: Sequence[Any], args: Sequence[Any], kwargs: Dict[str, Any]) -> Iterator[Tuple[Any, Any]]:
    """The schema's arguments with what was passed for them."""
    yield from zip(declared, args)
    for argument in declared[len(args):]:
        if argument.name in kwargs:
            yield argument, kwargs[argument.name]
