# SPDX-License-Identifier: Apache-2.0
"""Streams, memory and the runtime's functions."""

import itertools

from . import memory  # noqa: F401
from . import runtime  # noqa: F401
from .._device import graphs, handles

_streams = {}
_current = []
_pointers = itertools.count(0x7f0000000000, 1 << 16)


class CUDARuntimeError(RuntimeError):
    pass


class Stream:
    def __init__(self, null=False, non_blocking=False, ptr=None):
        self.ptr = next(handles) if ptr is None else ptr
        self.graph = None
        self.device_id = 0
        _streams[self.ptr] = self

    def __enter__(self):
        _current.append(self)
        return self

    def __exit__(self, *error):
        _current.pop()

    def is_capturing(self):
        return self.graph is not None

    def record(self, event=None):
        event = event if event is not None else Event()
        event.recorded_on = self
        return event

    def wait_event(self, event):
        WAITS.append((self.ptr, event.recorded_on.ptr))

    def synchronize(self):
        refuse_in_capture()


WAITS = []
Stream.null = Stream(ptr=0)


def ExternalStream(ptr, device_id=-1):
    return _streams[ptr]


class Event:
    def __init__(self, block=False, disable_timing=False):
        self.recorded_on = Stream.null


def get_current_stream():
    return current()


def current():
    return _current[-1] if _current else Stream.null


def refuse_in_capture():
    if current().is_capturing():
        raise CUDARuntimeError("cudaErrorStreamCaptureUnsupported: operation not permitted when stream is capturing")


def stream_of(ptr):
    return _streams[ptr]


def new_graph(launches):
    graph = next(handles)
    graphs[graph] = launches
    return graph


class UnownedMemory:
    def __init__(self, ptr, size, owner, device_id=-1):
        self.ptr, self.size, self._owner, self.device_id = ptr, size, owner, device_id


class MemoryPointer:
    def __init__(self, mem, offset):
        self.mem, self.ptr, self.device_id = mem, mem.ptr + offset, mem.device_id

    def __add__(self, offset):
        return MemoryPointer(self.mem, self.ptr - self.mem.ptr + offset)

    def copy_from_device_async(self, source, size, stream=None):
        from .._device import cells, launch

        def copy():
            moved = {a: cells[a] for a in cells if source.ptr <= a < source.ptr + size}
            cells.update({a - source.ptr + self.ptr: number for a, number in moved.items()})

        launch(copy)


def plain_malloc(size):
    return MemoryPointer(UnownedMemory(next(_pointers), size, None, 0), 0)


_allocator = [plain_malloc]


def set_allocator(allocator=None):
    _allocator[0] = allocator or plain_malloc


def alloc(size):
    return _allocator[0](size)
