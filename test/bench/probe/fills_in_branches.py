# SPDX-License-Identifier: Apache-2.0
"""How fast copies of 128 MiB on a stream of their own run beside matrix products of a graph, by what comes behind the
products in the same graph: nothing; branches of short kernels; branches with one memset node each; an LSTM.

Prints GB/s of the copies that end before the products do, median (range), and how many memset nodes the graph has; then
the rates with memset nodes in branches by how many queues the driver has for kernels (CUDA_DEVICE_MAX_CONNECTIONS) and
by when it was told.
"""
from __future__ import annotations

import ctypes
import os
import statistics
import subprocess
import sys
from typing import Callable, List, Tuple

import torch

COPY_BYTES = 128 << 20
BRANCHES = 44
QUEUES = "CUDA_DEVICE_MAX_CONNECTIONS"
TOLD = ("before cuInit", "before there is a context", "later")
driver = ctypes.CDLL("libcuda.so.1")


def tell_queues(now: str) -> None:
    """If this process is to tell the driver now: its arguments are how many queues, and when."""
    if sys.argv[2:] == [now]:
        os.environ[QUEUES] = sys.argv[1]


tell_queues(TOLD[0])
assert driver.cuInit(0) == 0
tell_queues(TOLD[1])
torch.zeros(1, device="cuda")
tell_queues(TOLD[2])

main_stream = torch.cuda.Stream()
copy_stream = torch.cuda.Stream()
torch.cuda.set_stream(main_stream)
sides = [torch.cuda.Stream() for _ in range(4)]
square = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
product = torch.empty_like(square)
words = torch.zeros(1024, len(sides), device="cuda").t().contiguous()
lstm = torch.nn.LSTM(256, 256, 2).cuda()
text = torch.randn(1408, 80, 256, device="cuda")
host = torch.ones(8 * COPY_BYTES, dtype=torch.uint8).pin_memory()
device = torch.empty(8 * COPY_BYTES, dtype=torch.uint8, device="cuda")


def branches(fill: bool) -> None:
    """Several kernels on each side stream, which wait for each other now and then."""
    events: List[torch.cuda.Event] = []
    for i in range(BRANCHES):
        fork = torch.cuda.Event()
        fork.record(main_stream)
        side = sides[i % len(sides)]
        side.wait_event(fork)
        for event in events[-len(sides):]:
            side.wait_event(event)
        with torch.cuda.stream(side):
            if fill:
                driver.cuMemsetD32Async(ctypes.c_uint64(words[i % len(sides)].data_ptr()), 0, ctypes.c_size_t(1),
                                        ctypes.c_void_p(side.cuda_stream))
            for _ in range(10):
                words[i % len(sides)].add_(1)
        events.append(torch.cuda.Event())
        events[-1].record(side)
        product[0, :64].add_(1)
    for event in events:
        main_stream.wait_event(event)
    product[0, :64].add_(1)


def captured(behind: Callable[[], object]) -> Tuple[torch.cuda.CUDAGraph, int]:
    graph = torch.cuda.CUDAGraph(keep_graph=True)
    with torch.cuda.graph(graph, stream=main_stream):
        for _ in range(25):
            torch.mm(square, square, out=product)
        kept = behind()
    raw, count = ctypes.c_void_p(graph.raw_cuda_graph()), ctypes.c_size_t(0)
    driver.cuGraphGetNodes(raw, None, ctypes.byref(count))
    nodes = (ctypes.c_void_p * count.value)()
    driver.cuGraphGetNodes(raw, nodes, ctypes.byref(count))
    memsets, kind = 0, ctypes.c_int()
    for node in nodes:
        driver.cuGraphNodeGetType(ctypes.c_void_p(node), ctypes.byref(kind))
        memsets += kind.value == 2
    graph.instantiate()
    graph.kept = kept
    return graph, memsets


def rates(graph: torch.cuda.CUDAGraph, down: bool) -> List[float]:
    events = [torch.cuda.Event(enable_timing=True) for _ in range(16)]
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    torch.cuda.synchronize()
    begin.record()
    graph.replay()
    end.record()
    with torch.cuda.stream(copy_stream):
        events[0].record()
        for i, event in enumerate(events[1:]):
            part = slice(i % 8 * COPY_BYTES, (i % 8 + 1) * COPY_BYTES)
            to, source = (host, device) if down else (device, host)
            to[part].copy_(source[part], non_blocking=True)
            event.record()
    torch.cuda.synchronize()
    return [COPY_BYTES / a.elapsed_time(b) / 1e6 for a, b in list(zip(events, events[1:]))[1:]
            if begin.elapsed_time(b) < 34]  # the products take longer


def cells_of(graph: torch.cuda.CUDAGraph) -> str:
    cells = []
    for down in (True, False):
        rates(graph, down)
        samples = [rate for _ in range(3) for rate in rates(graph, down)]
        cells.append(f"{statistics.median(samples):.1f} ({min(samples):.1f}-{max(samples):.1f})" if samples else "-")
    return " | ".join(cells)


def main() -> None:
    torch.mm(square, square, out=product)
    lstm(text)
    branches(False)
    torch.cuda.synchronize()
    if len(sys.argv) > 1:
        print(cells_of(captured(lambda: branches(True))[0]))
        return
    print("| behind the products | memset nodes | down, GB/s | up, GB/s |\n| --- | --- | --- | --- |")
    for name, behind in (("nothing", lambda: None), (f"{BRANCHES} branches of kernels", lambda: branches(False)),
                         (f"{BRANCHES} branches with a memset node each", lambda: branches(True)),
                         ("an LSTM of two layers over 1,408 words", lambda: lstm(text))):
        graph, memsets = captured(behind)
        print(f"| {name} | {memsets} | {cells_of(graph)} |", flush=True)
    print("\n| queues | told | down, GB/s | up, GB/s |\n| --- | --- | --- | --- |")
    environment = {name: text for name, text in os.environ.items() if name != QUEUES}
    runs = [(queues, TOLD[0]) for queues in ("1", "2", "4", "8", "32")] + [("1", when) for when in TOLD[1:]]
    for queues, told in runs:
        run = subprocess.run([sys.executable, __file__, queues, told], env=environment, stdout=subprocess.PIPE,
                             text=True, check=True)
        print(f"| {queues} | {told} | {run.stdout.strip()} |", flush=True)


if __name__ == "__main__":
    main()
