# SPDX-License-Identifier: Apache-2.0
"""The device: numbers by address, and graphs of launches by handle."""

import itertools
from typing import Any, Dict, List, NamedTuple

cells: Dict[int, Any] = {}
graphs: Dict[int, List["Launch"]] = {}
handles = itertools.count(0x9000, 16)
LAUNCHES: List[str] = []  # nothing but a count of what ran at once


class Launch(NamedTuple):
    run: Any
    reads: list
    writes: list
    host: Any


def spans(things):
    """Of arrays: their addresses as numbers alone, so that a graph keeps no array alive."""
    return [(thing.data.mem.ptr, min(thing.addresses()), max(thing.addresses()) + thing.dtype.itemsize)
            for thing in things if hasattr(thing, "addresses") and thing.size]


def launch(run, reads=(), writes=(), host=None):
    from .cuda import current

    stream = current()
    if stream.graph is None:
        LAUNCHES.append("")
        run()
    else:
        stream.graph.append(Launch(run, spans(reads), spans(writes), host))


def replay(graph):
    for each in graphs[graph]:
        each.run()
