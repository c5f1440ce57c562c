# SPDX-License-Identifier: Apache-2.0
"""Mixtral of transformers in bf16, with the experts as the library runs them."""

import torch
from transformers import MixtralConfig, MixtralForCausalLM, get_cosine_schedule_with_warmup

from .data import loader, texts


def main(run, layers=8, width=512, heads=8, shared_heads=4, hidden=1024, experts=8, words=32000, batch=16, length=512):
    config = MixtralConfig(vocab_size=words, hidden_size=width, intermediate_size=hidden, num_hidden_layers=layers,
                           num_attention_heads=heads, num_key_value_heads=shared_heads, num_local_experts=experts,
                           num_experts_per_tok=2, max_position_embeddings=length, use_cache=False)
    model = MixtralForCausalLM(config).to(run.device, torch.bfloat16)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    scheduler = get_cosine_schedule_with_warmup(optimizer, 4, 1000)

    @run.graphed
    def train_step(ids):
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
