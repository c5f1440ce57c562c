# SPDX-License-Identifier: Apache-2.0
"""Which streams the driver runs the nodes of a graph on: three chains (fills, copies up, copies down) with edges
between them, straight or over empty nodes, added before or after the edges of the chains.

Each line prints for each chain the streams of its nodes in order, as STREAMxHOW-MANY-IN-A-ROW.
"""
import ctypes
import itertools
import json
import tempfile

import torch
from torch.profiler import ProfilerActivity, profile

LENGTH = 24
MEMORY_HOST, MEMORY_DEVICE = 1, 2
UNIT = 16  # nodes are told apart in the profile by their size: SMALLEST + position * UNIT bytes
SMALLEST = 16384
driver = ctypes.CDLL("libcuda.so.1")


class MemsetParameters(ctypes.Structure):
    _fields_ = [("destination", ctypes.c_uint64), ("pitch", ctypes.c_size_t), ("value", ctypes.c_uint),
                ("element_size", ctypes.c_uint), ("width", ctypes.c_size_t), ("height", ctypes.c_size_t)]


class Side(ctypes.Structure):
    _fields_ = [("x", ctypes.c_size_t), ("y", ctypes.c_size_t), ("z", ctypes.c_size_t), ("lod", ctypes.c_size_t),
                ("type", ctypes.c_int), ("host", ctypes.c_void_p), ("device", ctypes.c_uint64),
                ("array", ctypes.c_void_p), ("reserved", ctypes.c_void_p), ("pitch", ctypes.c_size_t),
                ("height", ctypes.c_size_t)]


class CopyParameters(ctypes.Structure):
    _fields_ = [("source", Side), ("destination", Side), ("width", ctypes.c_size_t), ("height", ctypes.c_size_t),
                ("depth", ctypes.c_size_t)]


def check(result, what):
    if result:
        raise SystemExit(f"{what}: CUDA error {result}")


class Graph:
    """A graph of fills, copies and empty nodes, which are named (chain, position)."""

    device = torch.empty(64 << 20, dtype=torch.uint8, device="cuda")
    host = torch.empty(64 << 20, dtype=torch.uint8, pin_memory=True)

    def __init__(self, nodes, edges):
        self.context = ctypes.c_void_p()
        check(driver.cuCtxGetCurrent(ctypes.byref(self.context)), "context")
        self.graph, self.nodes = ctypes.c_void_p(), {}
        check(driver.cuGraphCreate(ctypes.byref(self.graph), 0), "graph")
        add = {"main": self._fill, "up": self._copy, "down": self._copy}
        for chain, position in nodes:
            self.nodes[chain, position] = add.get(chain, self._empty)(chain, SMALLEST + position * UNIT)
        for before, after in edges:
            pair = [(ctypes.c_void_p * 1)(self.nodes[end]) for end in (before, after)]
            check(driver.cuGraphAddDependencies_v2(self.graph, *pair, None, ctypes.c_size_t(1)), "edge")

    def _add(self, function, *parameters):
        node = ctypes.c_void_p()
        check(function(ctypes.byref(node), self.graph, None, ctypes.c_size_t(0), *parameters), "node")
        return node.value

    def _empty(self, chain, size):
        return self._add(driver.cuGraphAddEmptyNode)

    def _fill(self, chain, size):
        parameters = MemsetParameters(self.device.data_ptr(), 0, 1, 1, size, 1)
        return self._add(driver.cuGraphAddMemsetNode, ctypes.byref(parameters), self.context)

    def _copy(self, chain, size):
        pinned = Side(type=MEMORY_HOST, host=self.host.data_ptr() + (0 if chain == "up" else 16 << 20))
        frames = Side(type=MEMORY_DEVICE, device=self.device.data_ptr() + (8 << 20 if chain == "up" else 24 << 20))
        ends = (pinned, frames) if chain == "up" else (frames, pinned)
        parameters = CopyParameters(*ends, size, 1, 1)
        return self._add(driver.cuGraphAddMemcpyNode, ctypes.byref(parameters), self.context)

    def streams(self):
        """Of each chain, the stream of each of its nodes."""
        executable = ctypes.c_void_p()
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        flags = ctypes.c_ulonglong(0)
        check(driver.cuGraphInstantiateWithFlags(ctypes.byref(executable), self.graph, flags), "instantiate")
        check(driver.cuGraphLaunch(executable, stream), "launch")
        torch.cuda.synchronize()
        with profile(activities=[ProfilerActivity.CUDA]) as profiler:
            check(driver.cuGraphLaunch(executable, stream), "launch")
            torch.cuda.synchronize()
        with tempfile.NamedTemporaryFile(suffix=".json") as file:
            profiler.export_chrome_trace(file.name)
            events = json.load(open(file.name))["traceEvents"]
        driver.cuGraphExecDestroy(executable)
        found = {"main": {}, "up": {}, "down": {}}
        for event in events:
            if event.get("cat") in ("gpu_memset", "gpu_memcpy"):
                chain = "main" if event["cat"] == "gpu_memset" else "up" if "HtoD" in event["name"] else "down"
                found[chain][event["args"]["bytes"]] = event["args"]["stream"]
        return {chain: [stream for _, stream in sorted(nodes.items())] for chain, nodes in found.items()}


def show(label, nodes, edges):
    numbers, parts = {}, []
    for chain, streams in Graph(nodes, edges).streams().items():
        known = [numbers.setdefault(stream, len(numbers)) for stream in streams]
        runs = (f"{stream}x{len(list(run))}" for stream, run in itertools.groupby(known))
        parts.append(f"{chain}: {' '.join(runs)}")
    print(f"{label}: {len(numbers)} streams; {'; '.join(parts)}", flush=True)


def chain(name):
    return [(name, position) for position in range(LENGTH)]


def across(before, after, ahead, every):
    """Edges from a chain to another, `ahead` positions further on."""
    return [((before, i), (after, i + ahead)) for i in range(0, LENGTH - ahead, every)]


def over_relays(edges, relay):
    """The same order, but each node that has such an edge has it to an empty node of its own."""
    befores = list(dict.fromkeys(before for before, _ in edges))
    number = {before: (relay, i) for i, before in enumerate(befores)}
    return list(number.values()), list(number.items()) + [(number[before], after) for before, after in edges]


def main():
    Graph(chain("main"), []).streams()  # the first profile of a process misses events
    main_chain, up, down = chain("main"), chain("up"), chain("down")
    along = [edge for nodes in (main_chain, up, down) for edge in zip(nodes, nodes[1:])]
    nodes = main_chain + up + down
    needs_up = across("up", "main", 0, 2)
    needs_down = across("down", "main", 3, 4)
    frees = across("main", "down", 0, 3) + across("main", "up", 4, 3)
    hands_over = across("down", "up", 3, 3)
    direct = needs_up + needs_down + frees + hands_over
    show("no edges between the chains", nodes, along)
    show("straight edges, added last", nodes, along + direct)
    show("straight edges, added first", nodes, direct + along)
    into = [over_relays(needs_up, "relay up"), over_relays(needs_down, "relay down")]
    relays, relayed = [sum(parts, []) for parts in zip(*into)]
    show("relays into the fills only", nodes + relays, along + relayed + frees + hands_over)
    others = [over_relays(frees, "relay main"), over_relays(hands_over, "relay hand-over")]
    more, more_relayed = [sum(parts, []) for parts in zip(*others)]
    show("relays everywhere", nodes + relays + more, along + relayed + more_relayed)
    skips = [(("main", i), ("main", i + 2)) for i in range(0, LENGTH - 2, 5)]
    show("relays everywhere, fills that also wait for the one before the last", nodes + relays + more,
         along + skips + relayed + more_relayed)


if __name__ == "__main__":
    main()
