# SPDX-License-Identifier: Apache-2.0
"""What PyTorch's functions say of device memory: PumpGraph's figures, in PyTorch's words.

torch.cuda.memory makes all its figures from one nested dict of statistics, which its own allocator fills. A pluggable
allocator has none to give, so the dict is made here. Allocated are the bytes of live tensors, wherever these are now;
reserved is the session's memory on the device, of which no sums are kept.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, Iterable

import torch

from ._session import Session
from .errors import UnsupportedError
from .memory_snapshots import MemorySnapshots

_PAGE = 2 << 20  # of device memory: what PyTorch calls a segment
_NOTHING = {"current": 0, "peak": 0, "allocated": 0, "freed": 0}
# PumpGraph does not count these, or has no such thing.
_NOT_COUNTED = ("num_alloc_retries", "num_ooms", "num_sync_all_streams", "num_device_alloc", "num_device_free",
                "max_split_size")
_NOT_KEPT = ("reset_accumulated_memory_stats",)


def replace(session: Session, steps: Callable[[], Iterable[Any]]) -> None:
    """From now on, for good: there is one session a process. `steps`: those that are alive."""
    ours = session.device
    snapshots = MemorySnapshots(session, steps)

    def memory_stats_as_nested_dict(device: Any = None) -> Dict[str, Any]:
        return as_pytorch_has_them(session.memory_stats()) if _index_of(device, ours) == ours else {}

    def reset_peak_memory_stats(device: Any = None) -> None:
        session.reset_peaks()

    figures = {
        "memory_stats_as_nested_dict": memory_stats_as_nested_dict,
        "reset_peak_memory_stats": reset_peak_memory_stats,
        "memory_snapshot": snapshots.segments,
        "_snapshot": snapshots.snapshot,
        "_record_memory_history": snapshots.record,
    }
    for name in _NOT_KEPT:
        figures[name] = _refusal_of(name)
    for name, figure in figures.items():
        for module in (torch.cuda, torch.cuda.memory):
            if hasattr(module, name):
                setattr(module, name, figure)


def _index_of(device: Any, current: int) -> int:
    """As PyTorch's functions take a device: nothing, a number, a text, or a torch.device."""
    if isinstance(device, str):
        device = torch.device(device)
    index = getattr(device, "index", device)
    return current if index is None else index


def as_pytorch_has_them(stats: Dict[str, int]) -> Dict[str, Any]:
    """The nested dict of torch.cuda.memory_stats_as_nested_dict(), from PumpGraph's memory_stats()."""
    live, count = stats["live_bytes"], stats["live_allocations"]
    of_bytes = _of_pools(live, stats["live_peak_bytes"], stats["allocated_bytes"])
    of_tensors = _of_pools(count, stats["live_peak_allocations"], stats["allocations"])
    reserved, most = stats["device_bytes"], stats["device_peak_bytes"]
    nested: Dict[str, Any] = {
        "allocation": of_tensors, "active": of_tensors,
        "allocated_bytes": of_bytes, "active_bytes": of_bytes, "requested_bytes": of_bytes,
        "segment": _of_pools(reserved // _PAGE, most // _PAGE, reserved // _PAGE),
        "reserved_bytes": _of_pools(reserved, most, reserved),
        "inactive_split": _of_pools(0, 0, 0), "inactive_split_bytes": _of_pools(0, 0, 0),
        "oversize_allocations": dict(_NOTHING), "oversize_segments": dict(_NOTHING),
    }
    return {**nested, **dict.fromkeys(_NOT_COUNTED, 0)}


def _of_pools(current: int, peak: int, allocated: int) -> Dict[str, Dict[str, int]]:
    """There is one pool, of tensors of all sizes."""
    everything = {"current": current, "peak": peak, "allocated": allocated, "freed": allocated - current}
    return {"all": everything, "large_pool": dict(everything), "small_pool": dict(_NOTHING)}


def _refusal_of(name: str) -> Any:
    def refuse(*_args: Any, **_kwargs: Any) -> Any:
        raise UnsupportedError(f"torch.cuda.{name}() asks PyTorch's own allocator, which PumpGraph stands in for, for "
                               "what only that one keeps; pumpgraph.memory_stats() and the step's report say what "
                               "there is")

    return refuse
