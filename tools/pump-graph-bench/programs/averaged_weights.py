# SPDX-License-Identifier: Apache-2.0
"""A vision transformer of torchvision, and an average of its weights that the loop keeps."""

import torch
from torch.nn import functional
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from torchvision.models import VisionTransformer

from .data import loader, pictures


def main(run, layers=12, width=768, heads=12, size=224, classes=1000, batch=32):
    device = run.device
    model = VisionTransformer(image_size=size, patch_size=16, num_layers=layers, num_heads=heads, hidden_dim=width,
                              mlp_dim=4 * width, num_classes=classes).to(device)
    average = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.99))
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, weight_decay=0.1)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 1000)

    @run.graphed
    def train_step(images, labels):
        with torch.autocast(device, torch.bfloat16):
            loss = functional.cross_entropy(model(images), labels, label_smoothing=0.1)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss

    for images, labels in loader(run, lambda generator: pictures(generator, batch, size, classes)):
        loss = train_step(images, labels)
        scheduler.step()
        average.update_parameters(model)
        run.turn(loss.item())
