# SPDX-License-Identifier: Apache-2.0
"""A language model of transformers that writes on: a turn is a word for each text, with a static cache."""

import torch
from transformers import AutoModelForCausalLM, LlamaConfig, StaticCache

from .data import texts


def main(run, layers=16, width=2048, heads=32, shared_heads=8, hidden=8192, words=32000, batch=16, prompt=64,
         length=1024):
    config = LlamaConfig(vocab_size=words, hidden_size=width, intermediate_size=hidden, num_hidden_layers=layers,
                         num_attention_heads=heads, num_key_value_heads=shared_heads, max_position_embeddings=length)
    with torch.device(run.device):
        model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16).eval()
    cache = StaticCache(config=config, max_cache_len=length)

    @torch.no_grad()
    def next_words(ids, positions):
        logits = model(input_ids=ids, position_ids=positions, past_key_values=cache, use_cache=True).logits[:, -1]
        score, word = logits.float().max(-1, keepdim=True)
        return word, score

    @run.graphed
    def decode(ids, positions):
        return next_words(ids, positions)

    start = texts(torch.Generator().manual_seed(1), batch, prompt, words).to(run.device)
    word, _ = next_words(start, torch.arange(prompt, device=run.device)[None])
    for index in range(run.turns):
        word, score = decode(word, torch.full((1, 1), prompt + index, device=run.device))
        run.turn(score.sum().item(), word.sum().item())
