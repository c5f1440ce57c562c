# SPDX-License-Identifier: Apache-2.0
"""PumpGraph for CuPy: functions of arrays under a hard budget of device memory, replayed as planned CUDA graphs.

    import cupy
    import pumpgraph.cupy

    pumpgraph.cupy.install(budget="16GiB")        # ahead of arrays; without a budget after pumpgraph.install()

    @pumpgraph.cupy.graphed
    def report(prices, amounts): ...

    for prices, amounts in batches:
        totals = report(prices, amounts)
    print(report.report())

The calls; help(pumpgraph.cupy.NAME) has arguments and errors:

    install()       make a session of PumpGraph CuPy's allocator, PyTorch's session if there is one
    graphed()       decorate a function, which is captured after its warm-up calls; gives a Graphed
    Graphed         the decorated function: report(), validate(), save(), signatures(), reset()
    capture()       the layer below: capture one call in place; gives a Step
    Step            a captured call: replay(), output, report(), validate(), save(), close()
    declared()      wrap a kernel of the program, to say which of its arguments it only reads
    Private         an array that only steps touch, and that can leave the device between calls
    mapped()        context: the arrays of Privates, to be read and written
    memory_stats()  memory of the session, in bytes

Errors are pumpgraph.PumpGraphError. Of its subclasses UnsupportedError is for a function that cannot be captured, and a
lack of memory is a cupy.cuda.memory.OutOfMemoryError too. The guide is docs/guide/cupy.md. The import needs CuPy.
"""

from .kernels import declared
from .memory import install, memory_stats
from .private import Private, mapped
from .step_function import Graphed, graphed
from .steps import Step, capture

__all__ = [
    "Graphed",
    "Private",
    "Step",
    "capture",
    "declared",
    "graphed",
    "install",
    "mapped",
    "memory_stats",
]
