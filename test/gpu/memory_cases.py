#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""GPU tests of the allocator under PyTorch: graphs of the program's own, and memory that runs out. One case a process,
for a process has one allocator: memory_cases.py CASE.
"""

import ctypes
import gc
import importlib.util
import os
import sys
import time
from pathlib import Path

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "runtime" / "python"))

from named_cases import check, run_named  # noqa: E402

import torch  # noqa: E402
from torch import nn  # noqa: E402

import pumpgraph  # noqa: E402

WIDTH = 1024
MIB = 1 << 20


def mlp(depth=6):
    torch.manual_seed(0)
    torch.use_deterministic_algorithms(True)
    torch.utils.deterministic.fill_uninitialized_memory = False
    return nn.Sequential(*[part for _ in range(depth) for part in (nn.Linear(WIDTH, WIDTH), nn.GELU())]).cuda()


def capture_plain(fn):
    """A graph of the program's own, and what `fn` returned in it."""
    stream, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream), torch.no_grad():
        fn()
    torch.cuda.current_stream().wait_stream(stream)
    with torch.cuda.graph(graph), torch.no_grad():
        output = fn()
    return graph, output


def replayed(graph, output):
    output.fill_(float("nan"))
    graph.replay()
    torch.cuda.synchronize()
    return output.clone()


class Bystanders:
    """Tensors of sevens that nobody else may touch."""

    def __init__(self, count=16, rows=2048):
        self.tensors = [torch.full((rows, WIDTH), 7.0, device="cuda") for _ in range(count)]
        self.tensors += [torch.full((256,), 7.0, device="cuda") for _ in range(count)]

    def check(self, when):
        damaged = sum(not bool((tensor == 7.0).all()) for tensor in self.tensors)
        check(damaged == 0, f"{when}: {damaged} of {len(self.tensors)} tensors were changed")


# ---- graphs of the program's own -------------------------------------------------------------------------------------


def plain_graphs():
    """No step at all: replays are right whatever is allocated, freed, given up and captured in between."""
    pumpgraph.install("unlimited")
    model = mlp().requires_grad_(False)
    asked = torch.randn(2048, WIDTH, device="cuda")

    def capture(scale):
        graph, output = capture_plain(lambda: model(asked * scale))
        return graph, output, model(asked * scale)

    first = capture(1.0)
    before = Bystanders()

    def all_right(when, *captured):
        for graph, output, expected in captured:
            check(torch.equal(replayed(graph, output), expected), f"{when}: a replay computes something else")
        before.check(when)

    all_right("at once", first)
    torch.cuda.empty_cache()
    after = Bystanders()
    all_right("after empty_cache()", first)
    second = capture(0.5)
    all_right("after another capture", first, second, first)
    after.check("after another capture")


def plain_graphs_end():
    """The memory of a graph comes back with its last owner: the graph, or what somebody instantiated from it."""
    pumpgraph.install("unlimited")
    model = mlp().requires_grad_(False)
    asked = torch.randn(2048, WIDTH, device="cuda")

    def free_device_bytes():
        """What the session can use again: that much more can be allocated before it needs another frame."""
        deadline = time.monotonic() + 2  # the driver tells in its own time
        while True:
            torch.cuda.synchronize()
            torch.cuda.empty_cache()
            created = pumpgraph.memory_stats()["device_bytes"]
            probe = []
            while pumpgraph.memory_stats()["device_bytes"] == created and len(probe) < 512:
                probe.append(torch.empty(2 * MIB, dtype=torch.uint8, device="cuda"))
            free = (len(probe) - 1) * 2 * MIB
            yield free
            del probe
            if time.monotonic() > deadline:
                return
            time.sleep(0.05)

    def settles_at_least(wanted):
        return any(free >= wanted for free in free_device_bytes())

    graph, output = capture_plain(lambda: model(asked))
    with_graph = next(free_device_bytes())
    del output
    temporaries = 2 * 2048 * WIDTH * 4  # at least: the input and the output of a layer
    graph.reset()
    check(settles_at_least(with_graph + temporaries), "the memory of a graph that is gone does not come back")

    # As a library captures, in C: the executable graph outlives the graph.
    driver = ctypes.CDLL("libcuda.so.1")

    def call(name, *arguments):
        status = getattr(driver, name)(*arguments)
        check(status == 0, f"{name}: {status}")

    expected = model(asked)
    stream, captured, executable = torch.cuda.Stream(), ctypes.c_void_p(), ctypes.c_void_p()
    handle = ctypes.c_void_p(stream.cuda_stream)
    with torch.cuda.stream(stream):
        model(asked)  # what libraries set up
        torch.cuda.synchronize()
        gc.disable()
        call("cuStreamBeginCapture_v2", handle, 1)
        output = model(asked)
        call("cuStreamEndCapture", handle, ctypes.byref(captured))
        gc.enable()
    call("cuGraphInstantiateWithFlags", ctypes.byref(executable), captured, ctypes.c_ulonglong(0))
    call("cuGraphDestroy", captured)
    torch.cuda.empty_cache()
    others = Bystanders()
    output.fill_(float("nan"))
    torch.cuda.synchronize()
    call("cuGraphLaunch", executable, ctypes.c_void_p(torch.cuda.current_stream().cuda_stream))
    torch.cuda.synchronize()
    check(torch.equal(output, expected), "the executable graph computes something else once its graph is destroyed")
    others.check("after the launch of an executable graph")
    del others, output
    with_graph = next(free_device_bytes())
    call("cuGraphExecDestroy", executable)
    check(settles_at_least(with_graph + temporaries),
          "the memory of an executable graph that is gone does not come back")


def graphed_callables():
    """make_graphed_callables: forward and backward graphs, trained beside a copy that is not graphed."""
    pumpgraph.install("unlimited")
    models = [mlp(), mlp()]
    batch = torch.randn(512, WIDTH, device="cuda")
    graphed = torch.cuda.make_graphed_callables(models[0], (batch.clone().requires_grad_(),))
    losses = []
    for call, model in ((graphed, models[0]), (models[1], models[1])):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        losses.append([])
        for index in range(8):
            optimizer.zero_grad(set_to_none=True)
            loss = call((batch * (index + 1)).requires_grad_()).square().mean()
            loss.backward()
            optimizer.step()
            losses[-1].append(loss.item())
            others = Bystanders(4)
            torch.cuda.empty_cache()
            others.check(f"step {index}")
    check(losses[0] == losses[1], f"graphed {losses[0]}, not graphed {losses[1]}")


def plain_graphs_beside_steps():
    """A step whose plan moves the weights that a graph of the program's own reads; captures of either between replays
    of the other."""
    pumpgraph.install("320MiB", budget_of="tensors")
    model = mlp(12)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True, capturable=True)
    batch = torch.randn(4096, WIDTH, device="cuda")
    asked = torch.randn(64, WIDTH, device="cuda")

    def train():
        loss = (model(batch) - batch).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.detach()

    def ask():
        """Kernels, and a copy of a weight."""
        return torch.cat([model(asked), torch.empty_like(model[0].weight).copy_(model[0].weight)])

    before, of_before = capture_plain(ask)
    torch.cuda.empty_cache()
    step = pumpgraph.capture(train, warmup=2, private=[model, optimizer], inputs=[batch], name="mlp")
    check(step.report().get("added_nodes"), "the plan moves nothing: the case shows nothing")
    step.replay()
    after, of_after = capture_plain(ask)
    again = pumpgraph.capture(train, warmup=1, private=[model, optimizer], inputs=[batch], name="mlp again")
    for index in range(4):
        (step, again)[index % 2].replay()
        with pumpgraph.mapped(model), torch.no_grad():  # the plan is in force
            mapped, expected = replayed(after, of_after), ask()
        check(torch.equal(mapped, expected), f"replay {index}: a graph inside mapped() computes something else")
        for when, graph, output in (("before", before, of_before), ("after", after, of_after)):
            check(torch.equal(replayed(graph, output), expected),
                  f"replay {index}: the graph captured {when} the step computes something else")
    step.validate()
    inside = torch.cuda.CUDAGraph()
    try:
        with torch.cuda.graph(inside):
            step.replay()
    except pumpgraph.UnsupportedError as error:
        check("part of another graph" in str(error), str(error))
    else:
        raise AssertionError("a step inside another graph is not refused")
    step.replay()
    check(torch.isfinite(step.output).item(), "the step does not go on after it was refused in a graph")


def plain_graphs_beyond_the_budget():
    """Kernels of a graph may work in host memory, and copies within it are right."""
    pumpgraph.install("64MiB", host_limit="512MiB", budget_of="tensors")
    ballast = torch.empty(64 * MIB, dtype=torch.uint8, device="cuda")
    source, target = torch.ones(4 * MIB, device="cuda"), torch.zeros(4 * MIB, device="cuda")
    check(pumpgraph.memory_stats()["host_backed_bytes"] >= 32 * MIB, "not both in host memory: the case shows nothing")
    graph, output = capture_plain(lambda: (source * 3).add_(1))
    check(bool((replayed(graph, output) == 4).all()), "a graph in host memory computes something else")
    copy, output_of_copy = capture_plain(lambda: target.copy_(source))
    target.zero_()
    check(bool((replayed(copy, output_of_copy) == 1).all()), "a graph copies something else within host memory")
    check(bool((replayed(graph, output) == 4).all()), "the first graph does not go on")
    del ballast


# ---- memory that runs out --------------------------------------------------------------------------------------------

LIMITS = {"budget": "256MiB", "host_limit": "512MiB"}
TOO_MUCH = 2048 * MIB  # bytes


def is_found_by_searches(error):
    """As accelerate, Lightning and people's own loops look for it."""
    return (isinstance(error, torch.cuda.OutOfMemoryError) and isinstance(error, RuntimeError) and len(error.args) == 1
            and "CUDA out of memory." in error.args[0])


def runs_out(call, *parts):
    try:
        call()
    except RuntimeError as error:
        check(is_found_by_searches(error), f"not what searches look for: {type(error)!r}: {error}")
        for part in parts:
            check(part in str(error), f"\"{error}\" does not say {part}")
    else:
        raise AssertionError("memory did not run out")
    gc.collect()
    torch.cuda.empty_cache()
    check(torch.ones(MIB, device="cuda").sum().item() == MIB, "the process does not go on")


class NeedsMuch(torch.autograd.Function):
    """Its backward pass asks for too much, on a thread of autograd's."""

    @staticmethod
    def forward(_context, value):
        return value * 2

    @staticmethod
    def backward(_context, gradient):
        torch.empty(TOO_MUCH, dtype=torch.uint8, device="cuda")
        return gradient * 2


def out_of_memory():
    """Everywhere an allocation can fail: eager, in a backward pass, in a warm-up, in a capture, at an adoption."""
    pumpgraph.install(budget_of="tensors", **LIMITS)
    figures = ("2.00 GiB", "a budget of 256.0 MiB", "limit 512.0 MiB")
    for _ in range(2):
        runs_out(lambda: torch.zeros(TOO_MUCH, dtype=torch.uint8, device="cuda"), *figures)
    leaf = torch.ones(WIDTH, device="cuda", requires_grad=True)
    runs_out(lambda: NeedsMuch.apply(leaf).sum().backward(), *figures)
    one = torch.ones(1, device="cuda", requires_grad=True)  # the gradient of max() is as large as what it looks at
    runs_out(lambda: one.expand(TOO_MUCH // 4).max(dim=0).values.backward(), *figures)
    (leaf * 2).sum().backward()
    check(torch.equal(leaf.grad, torch.full_like(leaf, 2)), "backward passes do not go on")

    @pumpgraph.graphed(warmup=1)
    def step(value):
        return (leaf * value).sum().detach()

    value = torch.ones(WIDTH, device="cuda")
    runs_out(lambda: pumpgraph.graphed(warmup=1)(lambda x: torch.empty(TOO_MUCH, device="cuda").sum() + x)(value))
    for _ in range(4):
        result = step(value)
    check(result.item() == WIDTH, "graphed steps do not go on")

    def greedy_when_captured():
        if torch.cuda.is_current_stream_capturing():
            torch.empty(1 << 41, dtype=torch.uint8, device="cuda")  # more than there are addresses
        return leaf.detach().sum()

    runs_out(lambda: pumpgraph.capture(greedy_when_captured, warmup=1), "2048.00 GiB")
    kept = []

    def keeps_much():
        kept[:] = [torch.ones(80 * MIB // 4, device="cuda") for _ in range(4)]
        return kept[:]

    runs_out(lambda: pumpgraph.capture(keeps_much, warmup=1))
    kept.clear()
    for factor in (1, 2):
        check(step(value * factor).item() == factor * WIDTH, "steps do not go on")


def batch_size_search():
    """The largest batch that fits is found, and trained with."""
    pumpgraph.install(budget_of="tensors", **LIMITS)
    tried = []

    def losses(rows, decorate):
        tried.append(rows)
        model = mlp(8)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        generator = torch.Generator("cuda").manual_seed(0)

        @decorate
        def step(batch):
            loss = (model(batch) - batch).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            return loss.detach()

        return [step(torch.randn(rows, WIDTH, device="cuda", generator=generator)).item() for _ in range(6)]

    if importlib.util.find_spec("accelerate"):
        from accelerate.utils import find_executable_batch_size as search
    else:
        def search(function, starting_batch_size):
            def decorated(*arguments):
                rows = starting_batch_size
                while rows:
                    try:
                        return function(rows, *arguments)
                    except Exception as error:
                        if not is_found_by_searches(error):
                            raise
                    gc.collect()
                    torch.cuda.empty_cache()
                    rows //= 2
                raise RuntimeError("no batch fits")
            return decorated

    def train(batch_size, decorate):
        return losses(batch_size, decorate)

    found = search(train, starting_batch_size=1 << 16)(pumpgraph.graphed(warmup=2))
    check(1 < len(tried) and tried[-1] >= 1024, f"batches that were tried: {tried}")
    gc.collect()
    torch.cuda.empty_cache()
    check(found == losses(tried[-1], lambda step: step), "the losses of the batch that fits are not the plain loop's")
    print(f"of {tried[:-1]} rows the last fits")


def pairwise_distances(x):
    return (x[:, None] - x[None]).square().sum(-1)


def line_of_the_peak():
    """Of a program that makes a large temporary tensor in one of its functions, in a loop that trains."""
    pumpgraph.install(budget="8GiB")
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    x = torch.randn(512, WIDTH, device="cuda")
    with pumpgraph.memory_profile() as profile:
        for _ in range(3):
            loss = pairwise_distances(model(x)[:256]).mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
    print(profile)
    first = profile.rows()[0]
    check("pairwise_distances" in first.name, f"the first line is {first}")
    check(first.peak_bytes >= 256 * 256 * WIDTH * 4, f"it holds {first.peak_bytes} bytes")
    check(profile.end_bytes == torch.cuda.memory_allocated(), f"{profile.end_bytes} at the end")
    check("pairwise_distances" in profile.folded(), "no stack of it")


CASES = [
    plain_graphs,
    plain_graphs_end,
    graphed_callables,
    plain_graphs_beside_steps,
    plain_graphs_beyond_the_budget,
    out_of_memory,
    batch_size_search,
    line_of_the_peak,
]


def main():
    run_named(CASES)


if __name__ == "__main__":
    main()
