#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains torchvision's ResNet-50 (fp32, SGD with momentum) under a device-memory budget.

    resnet50.py --budget 2GiB        under PumpGraph
    resnet50.py --plain              the same step, captured the same way, without it

Both print the same losses, bit for bit. training.py holds what the examples share.
"""

import torch
import torchvision

import training


def build(batch: int) -> training.Workload:
    model = torchvision.models.resnet50().cuda().train()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    criterion = torch.nn.CrossEntropyLoss()
    batches = [_draw_batch(batch, seed) for seed in range(4)]
    images, labels = (tensor.cuda() for tensor in batches[0])

    def step():
        loss = criterion(model(images), labels)
        loss.backward()
        optimizer.step()
        # At the end, not the beginning: gradients then live and die within the step, and need no memory between steps.
        optimizer.zero_grad(set_to_none=True)
        return loss.detach()

    return training.Workload(model, optimizer, step, inputs=(images, labels), batches=batches)


def _draw_batch(size: int, seed: int):
    """Images of ten classes: a coarse pattern per class under noise, so that there is something to learn."""
    patterns = torch.randn(10, 3, 7, 7, generator=torch.Generator().manual_seed(1000))
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(0, 10, (size,), generator=generator)
    images = torch.nn.functional.interpolate(patterns[labels], size=224)
    images = images + 0.5 * torch.randn(images.shape, generator=generator)
    return images.pin_memory(), labels.pin_memory()


if __name__ == "__main__":
    training.main("resnet50", build, default_batch=32, default_budget="2GiB")
