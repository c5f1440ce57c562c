# SPDX-License-Identifier: Apache-2.0
"""A causal language model of transformers, trained from scratch: all logits of a batch at once."""

import torch
from transformers import LlamaConfig, LlamaForCausalLM, get_cosine_schedule_with_warmup

from .data import loader, texts


def main(run, layers=12, width=1024, heads=16, hidden=2816, words=32000, batch=8, length=512):
    device = run.device
    config = LlamaConfig(vocab_size=words, hidden_size=width, intermediate_size=hidden, num_hidden_layers=layers,
                         num_attention_heads=heads, max_position_embeddings=length, use_cache=False)
    model = LlamaForCausalLM(config).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, weight_decay=0.1)
    scheduler = get_cosine_schedule_with_warmup(optimizer, 4, 1000)

    @run.graphed
    def train_step(ids):
        with torch.autocast(device, torch.bfloat16):
            loss = model(input_ids=ids, labels=ids).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        return loss

    for (ids,) in loader(run, lambda generator: (texts(generator, batch, length, words),)):
        loss = train_step(ids)
        scheduler.step()
        run.turn(loss.item())
