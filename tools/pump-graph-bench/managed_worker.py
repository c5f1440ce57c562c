# SPDX-License-Identifier: Apache-2.0
"""One run of a PyTorch row of pump-graph-bench --managed: `managed_worker.py SHAPE WAY [BUDGET_BYTES ARENA_BYTES]`.
Prints one line of JSON, as runtime_smoke --managed-row does."""

from __future__ import annotations

import hashlib
import json
import os
import sys
import time
from typing import Any, Callable, Dict, List

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")

import torch  # noqa: E402
from torch import nn  # noqa: E402

import pumpgraph  # noqa: E402

SHAPES = {"small": (2048, 6), "large": (4096, 3)}  # samples and width, layers
WARMUP, STEPS = 2, 10
BATCHES, BATCH = 5, 5
WAYS = {"faults": ("none", "no_room"), "launch": ("at_launch", "no_room"), "ahead": ("ahead", "no_room"),
        "hosted": ("ahead", "measured")}  # prefetching, hosting
Figures = Dict[str, Any]


class Perceptron:
    """Linear layers, GELU and dropout, with AdamW: activations weigh as much as weights and their state."""

    def __init__(self, shape: str) -> None:
        width, layer_count = SHAPES[shape]
        torch.manual_seed(0)
        # Buffers four times as large would have multiplications eight times as long: it is the link that is looked at.
        torch.backends.cuda.matmul.allow_tf32 = shape == "large"
        torch.use_deterministic_algorithms(True)
        torch.utils.deterministic.fill_uninitialized_memory = False
        layers = [part for _ in range(layer_count) for part in (nn.Linear(width, width), nn.GELU(), nn.Dropout(0.1))]
        self.model = nn.Sequential(*layers, nn.Linear(width, 1)).cuda()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=2e-5, fused=True, capturable=True)
        self.input = torch.randn(width, width, generator=torch.Generator().manual_seed(0)).cuda()

    def step(self) -> torch.Tensor:
        self.optimizer.zero_grad(set_to_none=True)
        loss = (self.model(self.input).squeeze(1) - self.input[:, 0]).square().mean()
        loss.backward()
        self.optimizer.step()
        return loss.detach()


def digest_of(replay: Callable[[], None], loss: torch.Tensor) -> str:
    """Of the losses of the first steps, bit for bit."""
    losses: List[str] = []
    for _ in range(STEPS):
        replay()
        losses.append(loss.item().hex())
    return hashlib.sha256(" ".join(losses).encode()).hexdigest()[:16]


def time_batches(replay: Callable[[], None]) -> List[float]:
    """Milliseconds a replay; replays of a batch follow one another, as in training."""
    step_ms = []
    for _ in range(BATCHES):
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(BATCH):
            replay()
        torch.cuda.synchronize()
        step_ms.append((time.perf_counter() - start) * 1e3 / BATCH)
    return step_ms


def run_captured(shape: str) -> Figures:
    """PyTorch's own allocator and graph."""
    training = Perceptron(shape)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(WARMUP):
            training.step()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        loss = training.step()
    state = digest_of(graph.replay, loss)
    return {"step_ms": time_batches(graph.replay), "state": state, "peak_bytes": torch.cuda.max_memory_allocated()}


def run_managed(shape: str, way: str, budget_bytes: int, arena_bytes: int) -> Figures:
    pumpgraph.install(budget=budget_bytes, budget_of="tensors", backend="managed", managed=arena_bytes,
                      managed_limit=arena_bytes)
    training = Perceptron(shape)
    prefetching, hosting = WAYS[way]
    step = pumpgraph.capture(training.step, warmup=WARMUP, private=[training.model, training.optimizer],
                             name="perceptron", calibrate=True, prefetching=prefetching, hosting=hosting)
    state = digest_of(step.replay, step.output)
    step_ms = time_batches(step.replay)
    report = step.report()
    runtime = report["runtime"]
    if runtime["backend"] != "managed":
        sys.exit(f"not rewritten: {runtime['left_as_captured']}")
    return {
        "step_ms": step_ms,
        "state": state,
        "budget_bytes": budget_bytes,
        "arena_bytes": arena_bytes,
        **{figure: report[figure] for figure in ("plan_bound_s", "moving_bound_s", "hosted_bytes")},
        "predicted_s": report["predicted_s"],
        "link": runtime["link"],
        "agent": runtime["agent"],
        "plans": runtime["plans"],
    }


def main(arguments: List[str]) -> None:
    shape, *rest = arguments if arguments and arguments[0] in SHAPES else [""]
    if shape and rest == ["captured"]:
        figures = run_captured(shape)
    elif shape and len(rest) == 3 and rest[0] in WAYS:
        figures = run_managed(shape, rest[0], int(rest[1]), int(rest[2]))
    else:
        sys.exit(f"usage: {sys.argv[0]} {'|'.join(SHAPES)} captured | {'|'.join(WAYS)} BUDGET_BYTES ARENA_BYTES")
    print(json.dumps(figures))


if __name__ == "__main__":
    main(sys.argv[1:])
