# SPDX-License-Identifier: Apache-2.0
"""PyTorch's own remedies for too little memory, applied to as few blocks of a model as the budget asks for."""

from __future__ import annotations

import contextlib
from typing import Any, Callable, Dict, Iterator, Sequence, TypeVar

T = TypeVar("T")


def fewest_blocks(count: int, peak_of: Callable[[int], int], budget_bytes: int) -> int:
    """The smallest number of blocks (0 to `count`) with which the peak is within the budget; all, if even those do not
    suffice. More blocks never need more memory, or nearly so: found by halving."""
    if peak_of(count) > budget_bytes:
        return count
    low, high = 0, count  # the peak of `high` is within the budget
    while low < high:
        middle = (low + high) // 2
        if peak_of(middle) <= budget_bytes:
            high = middle
        else:
            low = middle + 1
    return high


def remembered(function: Callable[[int], T]) -> Callable[[int], T]:
    known: Dict[int, T] = {}

    def asked(argument: int) -> T:
        if argument not in known:
            known[argument] = function(argument)
        return known[argument]

    return asked


@contextlib.contextmanager
def applied(remedy: str, blocks: Sequence[Any]) -> Iterator[None]:
    """Inside, these blocks recompute their activations (`checkpoint`) or keep them in host memory (`offload`)."""
    wrap = {"checkpoint": _checkpointed, "offload": _offloaded}[remedy]
    for block in blocks:
        block.forward = wrap(block.forward)
    try:
        yield
    finally:
        for block in blocks:
            del block.forward  # the class's own is found again


def _checkpointed(forward: Callable[..., Any]) -> Callable[..., Any]:
    from torch.utils.checkpoint import checkpoint

    def wrapped(*inputs: Any, **named: Any) -> Any:
        # No block draws random numbers, and asking for the generator's state is not possible in a capture.
        return checkpoint(forward, *inputs, use_reentrant=False, preserve_rng_state=False, **named)

    return wrapped


def _offloaded(forward: Callable[..., Any]) -> Callable[..., Any]:
    from torch.autograd.graph import save_on_cpu

    def wrapped(*inputs: Any, **named: Any) -> Any:
        with save_on_cpu(pin_memory=True):
            return forward(*inputs, **named)

    return wrapped
