# SPDX-License-Identifier: Apache-2.0
"""DCGAN: a generator and a critic that are trained in turns, each in a step of its own."""

import torch
from torch import nn
from torch.nn import functional

from .data import loader, pictures


def generator_of(noise, width, levels):
    layers, channels = [], noise
    for level in reversed(range(levels)):
        first = level == levels - 1
        layers += [nn.ConvTranspose2d(channels, width << level, 4, 1 if first else 2, 0 if first else 1, bias=False),
                   nn.BatchNorm2d(width << level), nn.ReLU(True)]
        channels = width << level
    return nn.Sequential(*layers, nn.ConvTranspose2d(channels, 3, 4, 2, 1, bias=False), nn.Tanh())


def critic_of(width, levels):
    layers, channels = [], 3
    for level in range(levels):
        layers += [nn.Conv2d(channels, width << level, 4, 2, 1, bias=False),
                   nn.BatchNorm2d(width << level) if level else nn.Identity(), nn.LeakyReLU(0.2, True)]
        channels = width << level
    return nn.Sequential(*layers, nn.Conv2d(channels, 1, 4, bias=False), nn.Flatten(0))


def initialise(module):
    if isinstance(module, (nn.Conv2d, nn.ConvTranspose2d)):
        nn.init.normal_(module.weight, 0.0, 0.02)


def against(logits, is_real):
    return functional.binary_cross_entropy_with_logits(logits, torch.full_like(logits, float(is_real)))


def main(run, noise=100, width=64, levels=5, batch=192):
    maker, critic = generator_of(noise, width, levels).to(run.device), critic_of(width, levels).to(run.device)
    maker.apply(initialise)
    critic.apply(initialise)
    of_maker = torch.optim.Adam(maker.parameters(), lr=2e-4, betas=(0.5, 0.999))
    of_critic = torch.optim.Adam(critic.parameters(), lr=2e-4, betas=(0.5, 0.999))

    @run.graphed
    def train_critic(images, seeds):
        critic.zero_grad()
        loss = against(critic(images), True) + against(critic(maker(seeds).detach()), False)
        loss.backward()
        of_critic.step()
        return loss

    @run.graphed
    def train_maker(seeds):
        maker.zero_grad()
        loss = against(critic(maker(seeds)), True)
        loss.backward()
        of_maker.step()
        return loss

    for images, _ in loader(run, lambda generator: pictures(generator, batch, 2 << levels + 1, 10)):
        seeds = torch.randn(batch, noise, 1, 1, device=run.device)
        loss_of_critic = train_critic(images, seeds)
        loss_of_maker = train_maker(seeds)
        run.turn(loss_of_critic.item(), loss_of_maker.item())
