# SPDX-License-Identifier: Apache-2.0
"""Memory of RMM, and with it of cuDF, from the session of pumpgraph.cupy: a resource of RMM that calls back.

    pumpgraph.cupy.install(budget="16GiB")
    rmm.mr.set_current_device_resource(rmm_memory.resource())
"""

import cupy
import rmm

_memory = {}  # by address


def _allocate(size, stream):
    with cupy.cuda.ExternalStream(stream.value()):
        memory = cupy.cuda.alloc(max(size, 1))
    _memory[memory.ptr] = memory
    return memory.ptr


def _deallocate(address, _size, _stream):
    _memory.pop(address, None)


def resource():
    return rmm.mr.CallbackMemoryResource(_allocate, _deallocate)
