# SPDX-License-Identifier: Apache-2.0
"""Models as libraries build them from a configuration, with random weights: nothing is downloaded. Stochastic depth and
dropout are off, so that a block that is checkpointed draws no random numbers. The libraries are imported where a model
is built: each model needs one of them alone."""

from __future__ import annotations

from typing import List, Tuple

import torch
from torch import nn
from torch.nn import functional

from .task import Task, draw_pictures
from .transformer import WordLoss, draw_text, initialise, loss_in_pieces

# transformers makes no mask for attention of a name that it does not know: every layer then says that it is causal, in
# the warm-up and in the capture alike. For "sdpa" it asks the device whether texts are packed, which a capture cannot,
# and takes a slower path with a mask there.
CAUSAL = "pumpgraph_causal"


class Llama(nn.Module):
    def __init__(self, network: nn.Module, width: int, vocabulary: int, pieces: int):
        super().__init__()
        self.network = network
        head = nn.Linear(width, vocabulary, bias=False)
        initialise(head)
        self.losses = nn.ModuleList(WordLoss(head) for _ in range(pieces))

    def forward(self, tokens: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return loss_in_pieces(self.losses, self.network(input_ids=tokens).last_hidden_state, targets)


def llama(layers: int, width: int, heads: int, shared_heads: int, hidden: int, length: int, vocabulary: int,
          pieces: int = 8) -> Task:
    """Of `heads` queries, heads / shared_heads share one of `shared_heads` keys and values."""
    from transformers import AttentionInterface, LlamaConfig, LlamaModel
    from transformers.integrations.sdpa_attention import sdpa_attention_forward

    AttentionInterface.register(CAUSAL, sdpa_attention_forward)
    config = LlamaConfig(vocab_size=vocabulary, hidden_size=width, intermediate_size=hidden, num_hidden_layers=layers,
                         num_attention_heads=heads, num_key_value_heads=shared_heads, max_position_embeddings=length,
                         use_cache=False, attn_implementation=CAUSAL)
    network = LlamaModel(config)
    model = Llama(network, width, vocabulary, pieces)

    def draw(count: int, generator: torch.Generator) -> Tuple[torch.Tensor, ...]:
        return draw_text(count, length, min(512, vocabulary), generator)

    return Task(model, [*network.layers, *model.losses], draw)


class Classifier(nn.Module):
    def __init__(self, network: nn.Module):
        super().__init__()
        self.network = network

    def forward(self, pictures: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return functional.cross_entropy(self.network(pictures).float(), labels)


def _classifier(network: nn.Module, block: type, size: int, classes: int) -> Task:
    blocks: List[nn.Module] = [module for module in network.modules() if isinstance(module, block)]
    return Task(Classifier(network), blocks, lambda count, generator: draw_pictures(count, size, classes, generator))


def convnext(widths: Tuple[int, ...], layers: Tuple[int, ...], size: int = 224, classes: int = 1000) -> Task:
    from torchvision.models.convnext import CNBlock, CNBlockConfig, ConvNeXt

    stages = [CNBlockConfig(*stage) for stage in zip(widths, (*widths[1:], None), layers)]
    return _classifier(ConvNeXt(stages, stochastic_depth_prob=0.0, num_classes=classes), CNBlock, size, classes)


def swin(width: int, layers: Tuple[int, ...], window: int = 7, size: int = 224, classes: int = 1000) -> Task:
    """Heads are 32 wide."""
    from torchvision.models.swin_transformer import SwinTransformer, SwinTransformerBlock

    heads = [width * 2**stage // 32 for stage in range(len(layers))]
    network = SwinTransformer([4, 4], width, list(layers), heads, [window, window], stochastic_depth_prob=0.0,
                              num_classes=classes)
    return _classifier(network, SwinTransformerBlock, size, classes)
