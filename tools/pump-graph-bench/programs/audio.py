# SPDX-License-Identifier: Apache-2.0
"""The audio spectrogram transformer of transformers, in fp16 with a GradScaler."""

import torch
from torch.nn import functional
from transformers import ASTConfig, ASTForAudioClassification

from .data import loader


def main(run, layers=12, width=768, heads=12, frames=1024, bins=128, classes=527, batch=6):
    device = run.device
    config = ASTConfig(hidden_size=width, num_hidden_layers=layers, num_attention_heads=heads,
                       intermediate_size=4 * width, max_length=frames, num_mel_bins=bins, num_labels=classes)
    model = ASTForAudioClassification(config).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=device == "cuda")
    scaler = torch.amp.GradScaler(device)

    @run.graphed
    def train_step(sounds, labels):
        with torch.autocast(device, torch.float16):
            logits = model(input_values=sounds).logits
            loss = functional.binary_cross_entropy_with_logits(logits, labels)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        return loss

    def draw(generator):
        labels = (torch.rand(batch, classes, generator=generator) > 0.99).float()
        return torch.randn(batch, frames, bins, generator=generator) + labels.mean(-1)[:, None, None], labels

    for sounds, labels in loader(run, draw):
        run.turn(train_step(sounds, labels).item())
