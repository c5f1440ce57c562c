# SPDX-License-Identifier: Apache-2.0
"""Collectives of torch.distributed in a captured step: which may be there, and how NCCL has to be set.

docs/design/ranks.md has the reasons.
"""

from __future__ import annotations

import os
import sys
from typing import Any, Dict, Iterable, Sequence

import torch

from .errors import UnsupportedError
from .schemas import given
from .shared_steps import note_collective
from .tensors import plain_tensors, tensors_in

_ADVICE = "call it between steps"
# Operators of c10d that become nodes, by their names without overloads and underscores around them.
_NODES = frozenset((
    "allreduce", "allreduce_coalesced", "broadcast", "reduce", "allgather", "allgather_base", "allgather_coalesced",
    "allgather_into_tensor_coalesced", "reduce_scatter", "reduce_scatter_base", "reduce_scatter_tensor_coalesced",
    "alltoall", "alltoall_base", "gather", "scatter",
    # _c10d_functional
    "all_reduce", "all_reduce_coalesced", "all_gather_into_tensor", "all_gather_into_tensor_out",
    "all_gather_into_tensor_coalesced", "reduce_scatter_tensor", "reduce_scatter_tensor_out", "all_to_all_single",
    "wait_tensor", "wrap_tensor_autograd",
))
_REFUSED = {
    "barrier": ("makes the host wait for other ranks", "a collective in the step orders the ranks by itself"),
    "monitored_barrier": ("makes the host wait for other ranks", _ADVICE),
    "send": ("meets one other rank alone, whose step may be another", _ADVICE),
    "recv": ("meets one other rank alone, whose step may be another", _ADVICE),
    "recv_any_source": ("looks on the host which rank has sent", _ADVICE),
}
# They put lists of tensors together in a copy, and advice.
_THROUGH_COPIES = {
    "allgather": "all_gather_into_tensor()",
    "allgather_coalesced": "all_gather_into_tensor()",
    "reduce_scatter": "reduce_scatter_tensor()",
}
# Of which ranks give tensors of different sizes, or none.
_UNEVEN = frozenset(("alltoall", "alltoall_base", "all_to_all_single", "gather", "scatter"))
# Ways by which NCCL, or another rank through it, keeps addresses of a program's buffers.
_REGISTRATION = "NCCL_GRAPH_REGISTER"
_HOOKS = ("TORCH_NCCL_USE_TENSOR_REGISTER_ALLOCATOR_HOOK", "NCCL_USE_TENSOR_REGISTER_ALLOCATOR_HOOK")


class _Nccl:
    """`is_registering`: it may have read its settings before PumpGraph could make them."""

    is_registering = False


# ---- settings of NCCL ------------------------------------------------------------------------------------------------


def settle_nccl() -> None:
    """Before the first communicator: NCCL registers no buffers of captured collectives, or other ranks and the network
    might access them at any time."""
    _Nccl.is_registering = has_group() and os.environ.get(_REGISTRATION) != "0"
    os.environ.setdefault(_REGISTRATION, "0")


def _refuse_registration() -> None:
    if os.environ.get(_REGISTRATION) != "0":
        raise UnsupportedError(f"{_REGISTRATION} is {os.environ.get(_REGISTRATION, 'not set')}: NCCL would have other "
                               "ranks access the buffers of captured collectives at any time, and plans move those; "
                               f"write {_REGISTRATION}=0 into the environment")
    if _Nccl.is_registering:
        raise UnsupportedError("torch.distributed.init_process_group() was called before pumpgraph.install(), and NCCL "
                               f"may have read {_REGISTRATION} by then; call install() first, or write "
                               f"{_REGISTRATION}=0 into the environment")
    for name in _HOOKS:
        if os.environ.get(name, "0").lower() in ("1", "true", "y", "yes", "on"):
            raise UnsupportedError(f"{name} is set: NCCL registers the memory of all tensors, and plans move those; "
                                   "unset it")


# ---- groups ----------------------------------------------------------------------------------------------------------


def _distributed() -> Any:
    """torch.distributed, where a program may have groups."""
    module = sys.modules.get("torch.distributed")
    return module if module is not None and module.is_available() else None


def has_group() -> bool:
    """Whether calls may wait for other processes."""
    distributed = _distributed()
    return distributed is not None and distributed.is_initialized()


def refuse_group(group: Any, what: str) -> None:
    """Raises UnsupportedError unless collectives of a group can be nodes of a captured step."""
    backend = _backend_of(group)
    if backend != "nccl":
        raise UnsupportedError(f"{what} uses the backend \"{backend}\", which works on the host, and a replay runs "
                               f"nothing there; make the group with \"nccl\", or {_ADVICE}")
    distributed = _distributed()
    level = getattr(distributed, "get_debug_level", None)
    if level is not None and getattr(level(), "name", "") == "DETAIL":
        raise UnsupportedError(f"{what} compares collectives with other ranks on the host, for TORCH_DISTRIBUTED_DEBUG "
                               "is DETAIL; set it to INFO or OFF")
    _refuse_registration()


def _backend_of(group: Any) -> str:
    """That of tensors on the device."""
    try:
        name = group._get_backend(torch.device("cuda")).name
        return str(name() if callable(name) else name).lower()
    except (AttributeError, RuntimeError):  # an older PyTorch; a group without a backend for the device
        distributed = _distributed()
        return str(distributed.get_backend(group)).lower() if distributed is not None else "unknown"


def _group_of(values: Dict[str, Any]) -> Any:
    group = values.get("process_group", values.get("group_name"))
    if isinstance(group, str):
        return torch.distributed.distributed_c10d._resolve_process_group(group)
    if isinstance(group, getattr(torch, "ScriptObject", ())):
        return torch.distributed.ProcessGroup.unbox(group)
    return group


# ---- operators -------------------------------------------------------------------------------------------------------


def base_of(func: Any) -> str:
    return str(func.__name__).partition(".")[0].strip("_")


def call_of(func: Any) -> str:
    """For people."""
    return f"torch.distributed's {func.__name__.partition('.')[0]}"


def refuse_collective(func: Any, args: Sequence[Any], kwargs: Dict[str, Any]) -> None:
    """Raises UnsupportedError unless a call of the operator can become nodes of a captured step."""
    what = f"{call_of(func)} is called in the step: it"
    name = base_of(func)
    if name in _REFUSED:
        does, advice = _REFUSED[name]
        raise UnsupportedError(f"{what} {does}, which no replay does; {advice}")
    if name not in _NODES:
        raise UnsupportedError(f"{what} is none of the collectives that PumpGraph knows, so nothing tells which memory "
                               f"other processes reach, and when; {_ADVICE}")
    if name == "wait_tensor":
        return
    values = {argument.name: value for argument, value in given(func._schema.arguments, args, kwargs)}
    refuse_host_tensors(values.values(), what)
    group = _group_of(values)
    if group is not None:
        refuse_group(group, what)
        if group.size() > 1:
            _refuse_coalescing(group, what)
            _refuse_hidden_memory(name, values.values(), what)
        note_collective(call_of(func), tensors_in(list(values.values())), group, is_uneven=name in _UNEVEN)


def _refuse_coalescing(group: Any, what: str) -> None:
    """NCCL launches such a group at its end, by when nothing tells which memory its first collectives reach."""
    world = getattr(getattr(_distributed(), "distributed_c10d", None), "_world", None)
    if group in getattr(world, "pg_coalesce_state", ()):
        raise UnsupportedError(f"{what} is in a group of collectives that are launched together "
                               "(_coalescing_manager()), mixed with other work; launch them one by one")


def _refuse_hidden_memory(name: str, values: Iterable[Any], what: str) -> None:
    """Memory that an operator makes for NCCL alone is none of its arguments, so nothing tells that NCCL reaches it."""
    if name in _THROUGH_COPIES:
        raise UnsupportedError(f"{what} goes through memory of its own, of which nothing tells how long NCCL uses it; "
                               f"write {_THROUGH_COPIES[name]}")
    for tensor in tensors_in(list(values)):
        if not all(plain.is_contiguous() for plain in plain_tensors(tensor)):
            raise UnsupportedError(f"{what} is given a tensor that is not contiguous, of which it makes a copy for "
                                   "NCCL; give it tensor.contiguous()")


def refuse_host_tensors(values: Iterable[Any], what: str) -> None:
    for tensor in tensors_in(list(values)):
        if not all(plain.is_cuda for plain in plain_tensors(tensor)):
            raise UnsupportedError(f"{what} is given a tensor in host memory, where no replay works; give it one on "
                                   f"the device. Objects (all_gather_object() and the like): {_ADVICE}")
