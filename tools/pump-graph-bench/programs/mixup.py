# SPDX-License-Identifier: Apache-2.0
"""ResNet-50 of torchvision, whose pictures the loop mixes."""

import torch
from torch.nn import functional
from torchvision import models
from torchvision.transforms import v2

from .data import loader, pictures


def main(run, network="resnet50", size=224, classes=1000, batch=64):
    device = run.device
    model = getattr(models, network)(weights=None, num_classes=classes)
    model = model.to(device, memory_format=torch.channels_last)
    mix = v2.RandomChoice([v2.MixUp(alpha=0.2, num_classes=classes), v2.CutMix(num_classes=classes)])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, nesterov=True, weight_decay=1e-4)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 1000)

    @run.graphed
    def train_step(images, labels):
        optimizer.zero_grad()
        with torch.autocast(device, torch.bfloat16):
            loss = functional.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        return loss

    for images, labels in loader(run, lambda generator: pictures(generator, batch, size, classes)):
        images, labels = mix(images, labels)
        loss = train_step(images.to(memory_format=torch.channels_last), labels)
        scheduler.step()
        run.turn(loss.item())
