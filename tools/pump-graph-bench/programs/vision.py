# SPDX-License-Identifier: Apache-2.0
"""A vision transformer of transformers."""

import torch
from transformers import ViTConfig, ViTForImageClassification

from .data import loader, pictures


def main(run, layers=12, width=768, heads=12, size=224, classes=1000, batch=40):
    device = run.device
    config = ViTConfig(hidden_size=width, num_hidden_layers=layers, num_attention_heads=heads,
                       intermediate_size=4 * width, image_size=size, num_labels=classes)
    model = ViTForImageClassification(config).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, weight_decay=0.05, fused=device == "cuda")
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 1000)

    @run.graphed
    def train_step(images, labels):
        with torch.autocast(device, torch.bfloat16):
            loss = model(pixel_values=images, labels=labels).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss

    for images, labels in loader(run, lambda generator: pictures(generator, batch, size, classes)):
        loss = train_step(images, labels)
        scheduler.step()
        run.turn(loss.item())
