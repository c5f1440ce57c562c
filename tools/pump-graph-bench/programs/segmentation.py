# SPDX-License-Identifier: Apache-2.0
"""DeepLabV3 of torchvision. The loss is that of a list of pixels: for pictures PyTorch has no deterministic one."""

import torch
from torch.nn import functional
from torchvision.models.segmentation import deeplabv3_resnet50

from .data import loader


def main(run, size=256, classes=21, batch=16):
    device = run.device
    model = deeplabv3_resnet50(weights=None, weights_backbone=None, num_classes=classes).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9, weight_decay=1e-4)
    scheduler = torch.optim.lr_scheduler.PolynomialLR(optimizer, 1000, power=0.9)

    @run.graphed
    def train_step(images, masks):
        optimizer.zero_grad()
        with torch.autocast(device, torch.bfloat16):
            found = model(images)["out"]
        loss = functional.cross_entropy(found.float().permute(0, 2, 3, 1).flatten(0, 2), masks.flatten())
        loss.backward()
        optimizer.step()
        return loss

    def draw(generator):
        masks = torch.randint(0, classes, (batch, 1, 8, 8), generator=generator).float()
        masks = functional.interpolate(masks, size=size)
        images = torch.randn(batch, 3, size, size, generator=generator) + masks / classes
        return images, masks[:, 0].long()

    for images, masks in loader(run, draw):
        loss = train_step(images, masks)
        scheduler.step()
        run.turn(loss.item())
