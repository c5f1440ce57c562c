# SPDX-License-Identifier: Apache-2.0
"""A captured PyTorch step whose nodes are switched off and on in the instantiated graph, without PumpGraph.

    switched_off_nodes.py on      all nodes on, as instantiated
    switched_off_nodes.py again   all off and on again before the first launch
    switched_off_nodes.py each    one node after another, launched alone

Prints the first node that fails. Each case wants a process of its own: the context is lost then.
"""
import ctypes
import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "gpu"))
from torch_cases import Training  # noqa: E402

KERNEL, MEMCPY, MEMSET = 0, 1, 2
driver = ctypes.CDLL("libcuda.so.1")


def check(result, what):
    if result:
        name = ctypes.c_char_p()
        driver.cuGetErrorName(result, ctypes.byref(name))
        sys.exit(f"{what}: {name.value.decode()}")


def captured_step():
    training = Training()
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        for _ in range(2):
            training.step()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph(keep_graph=True)
    with torch.cuda.graph(graph, stream=side):
        training.step()
    graph.instantiate()
    graph.replay()  # sets the random state that the kernels read
    torch.cuda.synchronize()
    return graph, training


def nodes_of(graph):
    count = ctypes.c_size_t()
    check(driver.cuGraphGetNodes(graph, None, ctypes.byref(count)), "nodes")
    nodes = (ctypes.c_void_p * count.value)()
    check(driver.cuGraphGetNodes(graph, nodes, ctypes.byref(count)), "nodes")
    kind = ctypes.c_int()
    for node in map(ctypes.c_void_p, nodes):
        check(driver.cuGraphNodeGetType(node, ctypes.byref(kind)), "kind")
        if kind.value in (KERNEL, MEMCPY, MEMSET):
            yield node


def name_of(node):
    parameters, name = (ctypes.c_void_p * 32)(), ctypes.c_char_p()
    if driver.cuGraphKernelNodeGetParams_v2(node, parameters) or not parameters[0]:
        return "a node"
    driver.cuFuncGetName(ctypes.byref(name), ctypes.c_void_p(parameters[0]))
    return (name.value or b"a kernel").decode()


def main():
    mode = sys.argv[1]
    owner, kept = captured_step()
    graph, executable = ctypes.c_void_p(), ctypes.c_void_p()
    check(driver.cuGraphClone(ctypes.byref(graph), ctypes.c_void_p(owner.raw_cuda_graph())), "clone")
    check(driver.cuGraphInstantiateWithFlags(ctypes.byref(executable), graph, ctypes.c_ulonglong(0)), "instantiate")
    stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
    nodes = list(nodes_of(graph))

    def switch(node, on):
        check(driver.cuGraphNodeSetEnabled(executable, node, ctypes.c_uint(on)), f"switching {name_of(node)}")

    def launch(what):
        check(driver.cuGraphLaunch(executable, stream), f"launching {what}")
        check(driver.cuStreamSynchronize(stream), f"running {what}")

    if mode != "on":
        for node in nodes:
            switch(node, False)
    if mode == "again":
        for node in nodes:
            switch(node, True)
    if mode == "each":
        for position, node in enumerate(nodes):
            switch(node, True)
            launch(f"node {position} of {len(nodes)}, {name_of(node)}")
            switch(node, False)
    else:
        launch("all nodes")
    print(f"{mode}: {len(nodes)} nodes, no failure", flush=True)


if __name__ == "__main__":
    main()
