# SPDX-License-Identifier: Apache-2.0
"""Graphs that the program captures for itself: torch.cuda.graph, make_graphed_callables, and libraries built on them.

The library keeps the memory that they allocate until they are gone, whoever captured them (pumpgraph_allocate()). What
is seen here is that they are captured, and that they are replayed: nobody knows which private tensors a graph touches,
so all of them are at their addresses then. Graphs that share a `pool=` have separate memory. A graph that C or C++ code
launches passes unseen.
"""

from __future__ import annotations

import contextlib
import functools
from typing import Any, Iterator

import torch

from ._session import Session
from .guard import Guard


class StepGraph(torch.cuda.CUDAGraph):
    """A graph of PumpGraph's own, which nobody follows: its methods are PyTorch's."""

    capture_begin = torch.cuda.CUDAGraph.capture_begin
    capture_end = torch.cuda.CUDAGraph.capture_end
    replay = torch.cuda.CUDAGraph.replay


def follow_other_graphs(session: Session, guard: Guard) -> None:
    """Follows what the program does with torch.cuda.CUDAGraph from now on, for good."""

    @functools.wraps(StepGraph.capture_begin)
    def capture_begin(graph: Any, *args: Any, **kwargs: Any) -> None:
        guard.rest()  # which waits for the device: a capture does not allow that
        StepGraph.capture_begin(graph, *args, **kwargs)
        with _capture_given_up_on_error(graph):
            session.follow_capture(torch.cuda.current_stream().cuda_stream)

    @functools.wraps(StepGraph.replay)
    def replay(graph: Any) -> None:
        guard.rest_before_unknown()
        StepGraph.replay(graph)

    torch.cuda.CUDAGraph.capture_begin = capture_begin  # type: ignore[method-assign]
    torch.cuda.CUDAGraph.replay = replay  # type: ignore[method-assign]


@contextlib.contextmanager
def _capture_given_up_on_error(graph: Any) -> Iterator[None]:
    try:
        yield
    except BaseException:
        with contextlib.suppress(RuntimeError):
            StepGraph.capture_end(graph)
        graph.reset()
        raise
