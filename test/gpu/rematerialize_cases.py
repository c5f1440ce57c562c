#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""GPU tests of plans that run kernels again. One case a process, for a process has one allocator:
rematerialize_cases.py CASE. Each runs its training in a process without PumpGraph first, and compares the losses.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "runtime" / "python"))

from named_cases import check, run_named  # noqa: E402

import torch  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn.attention import SDPBackend, sdpa_kernel  # noqa: E402

STEPS = 50
WARMUP = 2


class Block(nn.Module):
    """Convolutions with what makes running again hard: running statistics, activations in place, dropout, attention."""

    def __init__(self, channels):
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 3, padding=1)
        self.norm = nn.BatchNorm2d(channels)
        self.relu = nn.ReLU(inplace=True)
        self.attention_norm = nn.LayerNorm(channels)
        self.qkv = nn.Linear(channels, 3 * channels)
        self.out = nn.Linear(channels, channels)
        self.dropout = nn.Dropout(0.1, inplace=True)

    def forward(self, x):
        x = x + self.relu(self.norm(self.conv(x)))
        rows = x.flatten(2).transpose(1, 2)
        query, key, value = self.qkv(self.attention_norm(rows)).chunk(3, -1)
        heads = [part.unflatten(-1, (4, -1)).transpose(1, 2) for part in (query, key, value)]
        with sdpa_kernel(SDPBackend.FLASH_ATTENTION):  # which is deterministic when asked for it
            seen = nn.functional.scaled_dot_product_attention(*heads).transpose(1, 2).flatten(2)
        return x + self.dropout(self.out(seen)).transpose(1, 2).unflatten(2, x.shape[2:])


class Mixed(nn.Module):
    def __init__(self, channels=64, blocks=8, classes=16):
        super().__init__()
        self.embedding = nn.Embedding(classes, channels)
        self.first = nn.Conv2d(3, channels, 3, padding=1)
        self.blocks = nn.Sequential(*[Block(channels) for _ in range(blocks)])
        self.last = nn.Linear(channels, classes)

    def forward(self, images, labels):
        with torch.autocast("cuda", torch.bfloat16):
            x = self.first(images) + self.embedding((labels + 1) % 16)[:, :, None, None]
            return nn.functional.cross_entropy(self.last(self.blocks(x).mean((2, 3))), labels)


class Perceptron(nn.Module):
    """Activations outweigh weights."""

    def __init__(self, width=2048, depth=12):
        super().__init__()
        self.layers = nn.Sequential(
            *[part for _ in range(depth) for part in (nn.Linear(width, width), nn.GELU(), nn.Dropout(0.1))])
        self.last = nn.Linear(width, 1)

    def forward(self, rows, _labels):
        return (self.last(self.layers(rows)).squeeze(1) - rows[:, 0]).square().mean()


class History(nn.Module):
    """Keeps the largest values of the last forward passes, as scaled formats of eight bits do."""

    def __init__(self, width=2048, depth=12):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(width, width) for _ in range(depth)])
        self.register_buffer("largest", torch.ones(depth, 16))

    def forward(self, rows, _labels):
        target = rows[:, 0]
        for index, layer in enumerate(self.layers):
            scale = self.largest[index].amax()
            with torch.no_grad():
                self.largest[index].copy_(self.largest[index].roll(1))
                self.largest[index, 0] = rows.detach().abs().amax()
            rows = nn.functional.gelu(layer(rows / scale))
        return (rows[:, 0] - target).square().mean()


class Training:
    def __init__(self, make, shape):
        torch.manual_seed(0)
        torch.use_deterministic_algorithms(True)
        torch.utils.deterministic.fill_uninitialized_memory = False
        self.model = make().cuda()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=2e-5, fused=True, capturable=True)
        generator = torch.Generator().manual_seed(0)
        self.batches = [torch.randn(shape, generator=generator).pin_memory() for _ in range(3)]
        self.labels = torch.randint(16, (shape[0],), generator=generator).cuda()
        self.input = self.batches[0].cuda()

    def step(self):
        self.optimizer.zero_grad(set_to_none=True)
        loss = self.model(self.input, self.labels)
        loss.backward()
        self.optimizer.step()
        return loss.detach()

    def losses(self, replay, output):
        losses = []
        for number in range(STEPS):
            self.input.copy_(self.batches[number % len(self.batches)], non_blocking=True)
            replay()
            losses.append(output.item().hex())
        return losses


SHAPES = {"mixed": (Mixed, (32, 3, 64, 64)), "perceptron": (Perceptron, (4096, 2048)),
          "history": (History, (4096, 2048))}


def milliseconds(replay, repeats=9):
    times = []
    for _ in range(repeats):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        replay()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end))
    return sorted(times)[repeats // 2]


def plain(name):
    """In a process of its own: the losses of the unmodified step in a CUDA graph, its peak, and its time."""
    training = Training(*SHAPES[name])
    stream, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(WARMUP):
            training.step()
    torch.cuda.synchronize()
    with torch.cuda.graph(graph, stream=stream):
        output = training.step()
    losses = training.losses(graph.replay, output)
    print(json.dumps({"losses": losses, "peak_bytes": torch.cuda.max_memory_allocated(),
                      "ms": milliseconds(graph.replay)}))


def of_plain(name):
    """Of one process; another has the same losses."""
    runs = [subprocess.Popen([sys.executable, __file__, "--plain", name], stdout=subprocess.PIPE,
                             stderr=subprocess.PIPE, text=True) for _ in range(2)]
    found = []
    for run in runs:
        output, errors = run.communicate()
        check(run.returncode == 0, f"the unmodified step fails: {errors[-2000:]}")
        found.append(json.loads(output.splitlines()[-1]))
    check(found[0]["losses"] == found[1]["losses"], "the unmodified step does not reproduce")
    return found[0]


def planned(name, share, rematerialize):
    """The captured step under a share of the plain one's peak, its training, and the plain figures."""
    import pumpgraph

    expected = of_plain(name)
    budget = int(expected["peak_bytes"] * share)
    pumpgraph.install(budget=budget, budget_of="tensors", rematerialize=rematerialize)
    training = Training(*SHAPES[name])
    step = pumpgraph.capture(training.step, warmup=WARMUP, private=[training.model, training.optimizer], name=name)
    losses = training.losses(step.replay, step.output)
    first = next((i for i, pair in enumerate(zip(losses, expected["losses"])) if pair[0] != pair[1]), None)
    check(first is None, f"the losses differ from the unmodified step's from step {first} on")
    report = step.report()
    check(report.left_as_captured is None, f"left as captured: {report.left_as_captured}")
    peak = pumpgraph.memory_stats()["device_peak_bytes"]
    check(peak <= budget, f"{peak} bytes on the device; the budget is {budget}")
    took = milliseconds(step.replay)
    repeated = report["repeated"]
    remakeable = report["remakeable"] or {"again_bytes": 0, "bytes": 1}
    print(f"{name} at {share:.2f}, {rematerialize}: {took:.1f} ms, predicted {report['predicted_s'] * 1e3:.1f}, "
          f"in memory {expected['ms']:.1f}; {repeated['nodes']} nodes run again in {repeated['time_s'] * 1e3:.1f} ms, "
          f"{report['up_bytes'] >> 20} MiB up; {remakeable['again_bytes'] / remakeable['bytes']:.0%} of the peak could "
          "be made again")
    for obstacle in (report["remakeable"] or {"obstacles": []})["obstacles"][:5]:
        print(f"    {obstacle['bytes'] >> 20} MiB {obstacle['reason']} {obstacle['name'][:90]}")
    for note in report["runtime"]["notes"]:
        if "again" in note:
            print(f"    {note}")
    return step, report, took


def made_again(name, share):
    step, report, took = planned(name, share, "automatic")
    check(report["repeated"]["nodes"] > 0, "nothing runs again")
    check(step.validate().different_buffers == 0, "validation found a difference")
    return took


# ---- cases -----------------------------------------------------------------------------------------------------------


def perceptron_at_half():
    made_again("perceptron", 1 / 2)


def perceptron_at_a_third():
    made_again("perceptron", 1 / 3)


def perceptron_never():
    _, report, _ = planned("perceptron", 1 / 2, "never")
    check(report["repeated"]["nodes"] == 0, "nodes run again though nobody may")


def mixed_at_a_third():
    made_again("mixed", 1 / 3)


def history_at_a_third():
    """Scales are updated in the forward pass: what depends on them must find those of its own pass."""
    planned("history", 1 / 3, "automatic")


CASES = [
    perceptron_at_half,
    perceptron_at_a_third,
    perceptron_never,
    mixed_at_a_third,
    history_at_a_third,
]


def main():
    if sys.argv[1:2] == ["--plain"]:
        return plain(sys.argv[2])
    run_named(CASES)


if __name__ == "__main__":
    main()
