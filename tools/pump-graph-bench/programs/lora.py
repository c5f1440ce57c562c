# SPDX-License-Identifier: Apache-2.0
"""A frozen language model in bf16 with trained adapters of peft."""

import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, LlamaConfig

from .data import loader, texts


def main(run, layers=16, width=2048, heads=32, hidden=5632, words=32000, batch=4, length=512):
    device = run.device
    config = LlamaConfig(vocab_size=words, hidden_size=width, intermediate_size=hidden, num_hidden_layers=layers,
                         num_attention_heads=heads, max_position_embeddings=length, use_cache=False)
    with torch.device(device):
        base = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    adapters = LoraConfig(r=16, lora_alpha=32, lora_dropout=0.05, task_type="CAUSAL_LM",
                          target_modules=["q_proj", "k_proj", "v_proj", "o_proj"])
    model = get_peft_model(base, adapters).to(device)
    optimizer = torch.optim.AdamW([each for each in model.parameters() if each.requires_grad], lr=2e-4)

    @run.graphed
    def train_step(ids):
        with torch.autocast(device, torch.bfloat16):
            loss = model(input_ids=ids, labels=ids).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss

    for (ids,) in loader(run, lambda generator: (texts(generator, batch, length, words),)):
        run.turn(train_step(ids).item())
