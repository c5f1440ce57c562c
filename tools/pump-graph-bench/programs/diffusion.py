# SPDX-License-Identifier: Apache-2.0
"""A diffusion U-Net: noise and times are drawn in the step, which keeps an average of the weights too."""

import torch
from models.unet import unet

from .data import loader, pictures


def main(run, width=96, multiples=(1, 2, 3, 4), depth=2, size=64, batch=32):
    device = run.device
    model = unet(width, multiples, depth, size=size).model.to(device)
    average = [parameter.detach().clone() for parameter in model.parameters()]
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda turn: min(1.0, (turn + 1) / 10))

    @run.graphed
    def train_step(images):
        noise, times = torch.randn_like(images), torch.rand(len(images), device=images.device)
        with torch.autocast(device, torch.bfloat16):
            loss = model(images, noise, times)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        with torch.no_grad():
            for kept, parameter in zip(average, model.parameters()):
                kept.lerp_(parameter, 0.001)
        return loss

    for images, _ in loader(run, lambda generator: pictures(generator, batch, size, 10)):
        loss = train_step(images)
        scheduler.step()
        run.turn(loss.item())
