#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A plain PyTorch loop that knows nothing of PumpGraph: preload_torch.py train|graph|cost [STEPS].

train prints each loss, exactly, and its peak of memory; graph replays a captured step; cost prints the host's time.
"""

import sys
import time

import torch
from torch import nn


def network(capturable=False):
    torch.manual_seed(0)
    layers = [nn.Linear(512, 1024), nn.GELU()]
    for _ in range(6):
        layers += [nn.Linear(1024, 1024), nn.LayerNorm(1024), nn.GELU()]
    model = nn.Sequential(*layers, nn.Linear(1024, 10)).cuda()
    return model, torch.optim.AdamW(model.parameters(), lr=1e-3, capturable=capturable)


def step(model, optimizer, x, y):
    loss = nn.functional.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return loss


def train(steps):
    model, optimizer = network()
    generator = torch.Generator().manual_seed(1)
    for number in range(steps):
        x = torch.randn(4096, 512, generator=generator).pin_memory()
        y = torch.randint(10, (4096,), generator=generator).pin_memory()
        loss = step(model, optimizer, x.cuda(non_blocking=True), y.cuda(non_blocking=True))
        print("loss", loss.item().hex())
        if number % 10 == 9:
            with torch.no_grad():
                print("evaluation", model(x[:256].cuda()).sum().item().hex())
    print(f"peak {torch.cuda.max_memory_reserved() / 2**20:.0f} MiB", file=sys.stderr)


def graph(steps):
    model, optimizer = network(capturable=True)
    x, y = torch.randn(1024, 512, device="cuda"), torch.randint(10, (1024,), device="cuda")
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step(model, optimizer, x, y)
    torch.cuda.synchronize()
    captured = torch.cuda.CUDAGraph()
    with torch.cuda.graph(captured, stream=side):
        loss = step(model, optimizer, x, y)
    for _ in range(steps):
        captured.replay()
        print("loss", loss.item().hex())


def cost(_):
    x = torch.zeros(16, device="cuda")
    best = 1e9
    for _ in range(100):
        start = time.perf_counter()
        for _ in range(500):
            x.add_(1)
        best = min(best, (time.perf_counter() - start) / 500)
        torch.cuda.synchronize()
    print(f"{best * 1e9:.0f} ns a launch")


if __name__ == "__main__":
    {"train": train, "graph": graph, "cost": cost}[sys.argv[1]](int(sys.argv[2]) if len(sys.argv) > 2 else 24)
