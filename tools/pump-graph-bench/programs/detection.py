# SPDX-License-Identifier: Apache-2.0
"""CenterNet: torchvision's backbone and pyramid under heads of centres and sizes, whose targets the loader makes."""

import torch
from torch import nn
from torchvision.models.detection.backbone_utils import resnet_fpn_backbone

from .data import loader


class CenterNet(nn.Module):
    def __init__(self, backbone, classes):
        super().__init__()
        self.body = resnet_fpn_backbone(backbone_name=backbone, weights=None, trainable_layers=5,
                                        norm_layer=nn.BatchNorm2d)
        self.centres, self.sizes = self.head(classes), self.head(4)
        nn.init.constant_(self.centres[-1].bias, -2.19)

    def head(self, outputs):
        return nn.Sequential(nn.Conv2d(256, 256, 3, padding=1), nn.ReLU(), nn.Conv2d(256, outputs, 1))

    def forward(self, images):
        features = self.body(images)["0"]
        return self.centres(features), self.sizes(features)


def focal_loss(logits, targets):
    """Penalises wrong places less where a centre is near."""
    chance = logits.sigmoid().clamp(1e-4, 1 - 1e-4)
    is_centre = targets == 1
    found = (1 - chance) ** 2 * chance.log() * is_centre
    others = (1 - targets) ** 4 * chance**2 * (1 - chance).log() * ~is_centre
    return -(found + others).sum() / is_centre.sum().clamp(min=1)


def draw_targets(generator, batch, size, classes, boxes):
    """Bright boxes, and pictures a quarter of the size: how near a centre is, and the sizes there."""
    images = torch.rand(batch, 3, size, size, generator=generator)
    centres, sizes = torch.zeros(batch, classes, size // 4, size // 4), torch.zeros(batch, 4, size // 4, size // 4)
    rows = torch.arange(size // 4).float()
    for index in range(batch * boxes):
        image, kind = index % batch, int(torch.randint(0, classes, (), generator=generator))
        y, x, height, width = (2 + torch.rand(4, generator=generator) * (size // 4 - 4)).int().tolist()
        near = torch.exp(-((rows[:, None] - y) ** 2 + (rows - x) ** 2) / 8)
        centres[image, kind] = torch.maximum(centres[image, kind], near)
        sizes[image, :, y, x] = torch.tensor([height, width, 0.5, 0.5])
        images[image, kind % 3, 4 * y:4 * y + height, 4 * x:4 * x + width] += 1
    return images, centres, sizes


def main(run, backbone="resnet50", size=384, classes=16, batch=12, boxes=8):
    device = run.device
    model = CenterNet(backbone, classes).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-4, weight_decay=1e-4)
    scheduler = torch.optim.lr_scheduler.MultiStepLR(optimizer, [12, 16])

    @run.graphed
    def train_step(images, centres, sizes):
        with torch.autocast(device, torch.bfloat16):
            found, extents = model(images)
        is_centre = centres.amax(1, keepdim=True) == 1
        off = ((extents.float() - sizes).abs() * is_centre).sum() / is_centre.sum().clamp(min=1)
        loss = focal_loss(found.float(), centres) + 0.1 * off
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 10.0)
        optimizer.step()
        optimizer.zero_grad()
        return loss

    for batch_of_targets in loader(run, lambda generator: draw_targets(generator, batch, size, classes, boxes)):
        loss = train_step(*batch_of_targets)
        scheduler.step()
        run.turn(loss.item())
