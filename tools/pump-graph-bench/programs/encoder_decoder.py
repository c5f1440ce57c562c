# SPDX-License-Identifier: Apache-2.0
"""T5 of transformers: an encoder and a decoder with relative positions and dropout."""

import torch
from transformers import T5Config, T5ForConditionalGeneration, get_linear_schedule_with_warmup

from .data import loader, texts


def main(run, layers=8, width=768, heads=12, hidden=3072, words=32128, batch=16, source_length=256, length=128):
    device = run.device
    config = T5Config(vocab_size=words, d_model=width, d_kv=width // heads, d_ff=hidden, num_layers=layers,
                      num_heads=heads, use_cache=False, decoder_start_token_id=0)
    model = T5ForConditionalGeneration(config).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    scheduler = get_linear_schedule_with_warmup(optimizer, 4, 1000)

    @run.graphed
    def train_step(source, target):
        optimizer.zero_grad()
        with torch.autocast(device, torch.bfloat16):
            loss = model(input_ids=source, labels=target).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return loss

    def draw(generator):
        source = texts(generator, batch, source_length, words)
        return source, source.flip(1)[:, :length].contiguous()

    for source, target in loader(run, draw):
        loss = train_step(source, target)
        scheduler.step()
        run.turn(loss.item())
