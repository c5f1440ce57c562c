#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A training loop as people write it: a loader, a scheduler, a checkpoint. GPT-2 of gpt2.py under a memory budget.

    loop.py --budget 2.8GiB      under PumpGraph: the import and the two lines marked below
    loop.py --plain              the same loop without them

Both print the same losses, bit for bit. For that both give the optimizer the settings that it has under PumpGraph while
it steps: a tensor as rate, and capturable=True. docs/guide/pytorch.md goes through such a loop.
"""

import argparse
import statistics

import training  # before torch: it says how cuBLAS is to work

import torch

import gpt2
import pumpgraph


class Texts(torch.utils.data.Dataset):
    """Each counts on by a stride of its own, so that there is something to learn."""

    def __init__(self, count):
        generator = torch.Generator().manual_seed(0)
        self._starts = torch.randint(0, 512, (count, 1), generator=generator)
        self._strides = torch.randint(1, 8, (count, 1), generator=generator)

    def __len__(self):
        return len(self._starts)

    def __getitem__(self, index):
        text = (self._starts[index] + self._strides[index] * torch.arange(gpt2.CONTEXT + 1)) % 512
        return text[:-1], text[1:]


def on_device(fn):
    return lambda *batch: fn(*(part.cuda(non_blocking=True) for part in batch))


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--budget", default="4GiB", help="device memory of all tensors (%(default)s)")
    parser.add_argument("--plain", action="store_true", help="without PumpGraph")
    parser.add_argument("--batch", type=int, default=8, help="texts a step (%(default)s)")
    parser.add_argument("--steps", type=int, default=50, help="training steps (%(default)s)")
    parser.add_argument("--losses", metavar="FILE", help="write the losses as hexadecimal floats, one a line")
    parser.add_argument("--checkpoint", metavar="FILE", help="write the model at the end")
    return parser.parse_args()


def main():
    arguments = parse_arguments()
    if not arguments.plain:
        pumpgraph.install(budget=arguments.budget, budget_of="tensors")  # the first line
    training.make_deterministic()
    model = gpt2.Gpt2().cuda().train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=torch.tensor(2e-4, device="cuda"), weight_decay=0.1,
                                  fused=True, capturable=True)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 10_000)
    loader = torch.utils.data.DataLoader(Texts(arguments.batch * arguments.steps), arguments.batch, pin_memory=True)

    @(on_device if arguments.plain else pumpgraph.graphed)  # the second
    def train_step(tokens, targets):
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = model(tokens, targets)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss

    losses, marks = [], []
    for tokens, targets in loader:
        loss = train_step(tokens, targets)
        scheduler.step()
        losses.append(loss.detach())
        marks.append(torch.cuda.Event(enable_timing=True))
        marks[-1].record()
    losses = [loss.item() for loss in losses]
    times = [before.elapsed_time(after) for before, after in zip(marks[-21:], marks[-20:])]
    print("losses " + " ".join(f"{loss:.4f}" for loss in losses[::max(1, len(losses) // 10)]))
    print(f"step   {statistics.median(times):.2f} ms ({min(times):.2f}-{max(times):.2f}, the last {len(times)})")
    if arguments.plain:
        peak = torch.cuda.max_memory_allocated()
    else:
        peak = pumpgraph.memory_stats()["device_peak_bytes"]
        print(train_step.report())
    print(f"peak   {peak / 2**30:.2f} GiB")
    training.write(arguments.losses, "".join(loss.hex() + "\n" for loss in losses))
    if arguments.checkpoint:
        torch.save(model.state_dict(), arguments.checkpoint)


if __name__ == "__main__":
    main()
