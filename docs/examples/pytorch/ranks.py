#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains the GPT-2 of gpt2.py with one process for each device, under a memory budget for each.

    torchrun --nproc-per-node 1 ranks.py --way ddp --budget 3.5GiB
    torchrun --nproc-per-node 1 ranks.py --way fsdp --plain

Rank 0 prints the losses and its report. docs/guide/ranks.md goes through such a program.
"""

import argparse
import functools
import os

import training  # before torch: it says how cuBLAS is to work

import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

import gpt2
import pumpgraph


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--way", choices=("ddp", "fsdp"), default="ddp", help="how ranks share the work (%(default)s)")
    parser.add_argument("--budget", default="4GiB", help="device memory of each rank's tensors (%(default)s)")
    parser.add_argument("--plain", action="store_true", help="without PumpGraph")
    parser.add_argument("--batch", type=int, default=8, help="texts a step and rank (%(default)s)")
    parser.add_argument("--steps", type=int, default=50, help="training steps (%(default)s)")
    return parser.parse_args()


def over_ranks(model, way, device):
    if way == "fsdp":
        for block in model.blocks:
            fully_shard(block)
        return fully_shard(model)
    with torch.cuda.stream(torch.cuda.Stream()):  # the default stream breaks captures
        return DistributedDataParallel(model, device_ids=[device], gradient_as_bucket_view=True)


def main():
    arguments = parse_arguments()
    device = int(os.environ["LOCAL_RANK"])
    if not arguments.plain:
        pumpgraph.install(budget=arguments.budget, budget_of="tensors", device=device)
    torch.cuda.set_device(device)
    dist.init_process_group("nccl")
    training.make_deterministic()
    model = over_ranks(gpt2.Gpt2().cuda().train(), arguments.way, device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=torch.tensor(2e-4, device="cuda"), weight_decay=0.1,
                                  fused=True, capturable=True)

    step = functools.partial(gpt2.train_once, model, optimizer)
    if not arguments.plain:
        step = pumpgraph.graphed(step, name="gpt2")
    batches = [[part.cuda() for part in gpt2._draw_batch(arguments.batch, 4 * dist.get_rank() + seed)]
               for seed in range(4)]
    losses = [step(*batches[index % 4]).clone() for index in range(arguments.steps)]
    if dist.get_rank() == 0:
        print("\n".join(loss.item().hex() for loss in losses))
        if not arguments.plain:
            print(step.report())
            step.reset()  # graphs go before the communicator
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
