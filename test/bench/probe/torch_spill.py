# SPDX-License-Identifier: Apache-2.0
"""A whole PyTorch step with one activation spilled, its memory poisoned, and refilled inside one graph replay.

Prints the step time with and without the spill and whether 20 losses agree bit for bit; as a control, a refill from the
wrong bytes must change them.
"""
import ctypes
import statistics
import sys
import time

import torch
import torchvision

helper = ctypes.CDLL(sys.argv[1] if len(sys.argv) > 1 else "./spill.so")
helper.spill_mark.restype = ctypes.c_void_p
helper.spill_mark.argtypes = [ctypes.c_void_p]
helper.spill_insert.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_ulonglong, ctypes.c_size_t,
                                ctypes.c_void_p]


def run(mode):
    torch.manual_seed(0)
    torch.backends.cudnn.deterministic = True
    model = torchvision.models.resnet50().cuda().train()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
    x = torch.randn(32, 3, 224, 224, device="cuda")
    y = torch.randint(0, 1000, (32,), device="cuda")
    place = {}

    def mark():
        return helper.spill_mark(torch.cuda.current_stream().cuda_stream)

    def forward_hook(module, inputs, output):
        place["tensor"] = output

    def next_hook(module, inputs, output):
        place["free_after"] = mark()

    # layer1[0].conv1 output: saved for the batch norm after it, next used deep in the backward.
    model.layer1[0].conv1.register_forward_hook(forward_hook)
    model.layer1[1].register_forward_hook(next_hook)

    # The gradient hook of layer1[1]'s input runs before layer1[0]'s backward begins.
    def early(module, inputs, output):
        def note(gradient):
            place["before_backward_use"] = mark()
        output.register_hook(note)

    model.layer1[0].register_forward_hook(early)

    def step():
        optimizer.zero_grad(set_to_none=True)
        loss = torch.nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph(keep_graph=True)
    place.clear()
    with torch.cuda.graph(graph):
        loss = step()
    if mode != "plain":
        tensor = place["tensor"]
        size = tensor.numel() * tensor.element_size()
        host = torch.empty(size + 4096, dtype=torch.uint8, pin_memory=True)
        code = helper.spill_insert(graph.raw_cuda_graph(), place["free_after"], place["before_backward_use"],
                                   tensor.data_ptr(), size, host.data_ptr())
        if code:
            sys.exit(f"spill_insert failed at call {code}")
    graph.instantiate()
    losses = []
    for _ in range(20):
        graph.replay()
        torch.cuda.synchronize()
        losses.append(float(loss).hex())
    times = []
    for _ in range(20):
        begin = time.perf_counter()
        graph.replay()
        torch.cuda.synchronize()
        times.append(time.perf_counter() - begin)
    size = place["tensor"].numel() * 4 / 2**20
    print(f"{mode}: {statistics.median(times) * 1e3:.2f} ms ({min(times) * 1e3:.2f}..{max(times) * 1e3:.2f}), "
          f"buffer {size:.0f} MiB, first loss {float.fromhex(losses[0]):.6f}, last {float.fromhex(losses[-1]):.6f}",
          flush=True)
    return losses


plain, again = run("plain"), run("plain")
spilled = run("spilled")
print("plain agrees with itself:", plain == again)
print("spilled, poisoned and refilled agrees with plain:", spilled == plain)
