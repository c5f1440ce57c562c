# SPDX-License-Identifier: Apache-2.0
"""Arrays of Numba from the session of pumpgraph.cupy: Numba's interface for memory managers of others.

    pumpgraph.cupy.install(budget="16GiB")
    numba.cuda.set_memory_manager(numba_memory.PumpGraphMemory)    # ahead of Numba's first use of the device
"""

import ctypes

import cupy
from numba.cuda import HostOnlyCUDAMemoryManager, MemoryInfo, MemoryPointer

import pumpgraph.cupy


class PumpGraphMemory(HostOnlyCUDAMemoryManager):
    """Pinned memory stays Numba's own."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self._memory = {}  # by address

    def initialize(self):
        pass

    def memalloc(self, size):
        memory = cupy.cuda.alloc(size)
        self._memory[memory.ptr] = memory

        def free(address=memory.ptr):
            self._memory.pop(address, None)

        return MemoryPointer(self.context, ctypes.c_uint64(memory.ptr), size, finalizer=free)

    def get_memory_info(self):
        stats = pumpgraph.cupy.memory_stats()
        return MemoryInfo(free=max(0, stats["budget_bytes"] - stats["live_bytes"]), total=stats["budget_bytes"])

    def get_ipc_handle(self, memory):
        raise NotImplementedError("memory of a session cannot be shared with other processes")

    def reset(self):
        super().reset()
        self._memory.clear()

    @property
    def interface_version(self):
        return 1
