#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Models that nobody tuned PumpGraph for, taken from the libraries that people take them from.

    unknown_models.py --plain FOLDER MODEL      trains it for 50 steps without PumpGraph; leaves its figures in FOLDER
    unknown_models.py FOLDER MODEL              the same under PumpGraph, at half of the plain peak
    unknown_models.py --list

Prints a line: the model, whether its losses are the plain ones, bit for bit; or why it was refused, which has to be the
reason that is written beside it here. Plain is a loop that captures its step with torch.cuda.graph and replays it, for
libraries may take another path while a stream captures; models that cannot be captured run as they are. Needs
transformers, torchvision and torch_geometric.
"""

import json
import os
import re
import sys
import time
import warnings
from pathlib import Path

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "runtime" / "python"), str(ROOT / "tools" / "pump-graph-bench")]

import torch  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn import functional  # noqa: E402

STEPS = 50
BATCHES = 4


class Task:
    """`loss(*batch)` of a model; `batches` are on the host. `refused`: what the error says where a step cannot be
    captured."""

    def __init__(self, model, loss, draw, refused=None, after=lambda: None):
        self.model = model.cuda()
        self.loss = loss
        generator = torch.Generator().manual_seed(1)
        self.batches = [tuple(part.pin_memory() for part in draw(generator)) for _ in range(BATCHES)]
        self.refused = refused
        self.after = after  # in each step, after the optimizer


def words(generator, *shape, count):
    """Text with something to learn: each word depends on the one before."""
    start = torch.randint(0, count, (*shape[:-1], 1), generator=generator)
    step = torch.randint(1, 4, shape, generator=generator).cumsum(-1)
    return (start + step) % count


def t5():
    """T5 as in transformers: an encoder and a decoder with relative positions and dropout."""
    from transformers import T5Config, T5ForConditionalGeneration

    config = T5Config(vocab_size=8192, d_model=512, d_kv=64, d_ff=2048, num_layers=6, num_heads=8, use_cache=False,
                      decoder_start_token_id=0)
    model = T5ForConditionalGeneration(config)

    def loss(source, target):
        return model(input_ids=source, labels=target).loss

    def draw(generator):
        source = words(generator, 16, 256, count=8192)
        return source, source.flip(1)[:, :128].contiguous()

    return Task(model, loss, draw)


def mixture(experts, refused=None):
    from transformers import MixtralConfig, MixtralForCausalLM

    config = MixtralConfig(vocab_size=8192, hidden_size=256, intermediate_size=512, num_hidden_layers=6,
                           num_attention_heads=8, num_key_value_heads=4, num_local_experts=8, num_experts_per_tok=2,
                           max_position_embeddings=128, use_cache=False, attn_implementation="sdpa",
                           experts_implementation=experts)
    model = MixtralForCausalLM(config)

    def loss(text):
        return model(input_ids=text, labels=text).loss

    return Task(model, loss, lambda generator: (words(generator, 4, 128, count=8192),), refused)


def moe_looped():
    """A mixture of experts that loops over those that were chosen, which asks the device which they are."""
    return mixture("eager", r"modeling_mixtral.*waits for the device")


def moe():
    """The same, with every token's experts in one batched product."""
    return mixture("batched_mm")


def unet():
    """Diffusion: noise and times are drawn in the step, and an average of the weights is kept."""
    from models.unet import unet as diffusion

    task = diffusion(width=64, depth=2)
    model = task.model.cuda()
    average = [parameter.detach().clone() for parameter in model.parameters()]

    def loss(pictures):
        return model(pictures, torch.randn_like(pictures), torch.rand(len(pictures), device=pictures.device))

    def update_average():
        torch._foreach_lerp_(average, [parameter.detach() for parameter in model.parameters()], 0.01)

    return Task(model, loss, lambda generator: task.draw(32, generator)[:1], after=update_average)


def graph_network():
    """Messages along a graph's edges: gathered, and added up by a scatter."""
    from torch_geometric.nn import SAGEConv

    nodes, edges, width, classes = 16384, 131072, 256, 32

    class Network(nn.Module):
        def __init__(self):
            super().__init__()
            self.first = nn.Linear(64, width)
            self.layers = nn.ModuleList(SAGEConv(width, width, aggr="sum") for _ in range(4))
            self.norms = nn.ModuleList(nn.BatchNorm1d(width) for _ in range(4))
            self.head = nn.Linear(width, classes)

        def forward(self, features, edge_index):
            x = self.first(features)
            for layer, norm in zip(self.layers, self.norms):
                x = x + functional.dropout(norm(layer(x, edge_index)).relu(), 0.1, self.training)
            return self.head(x)

    model = Network()

    def loss(features, edge_index, labels):
        return functional.cross_entropy(model(features, edge_index), labels)

    def draw(generator):
        labels = torch.randint(0, classes, (nodes,), generator=generator)
        features = torch.randn(nodes, 64, generator=generator) + labels[:, None] / classes
        return features, torch.randint(0, nodes, (2, edges), generator=generator), labels

    return Task(model, loss, draw)


def detector_matching():
    """torchvision's FCOS: draws the size of its pictures on the host, and decides there which places are boxes."""
    from torchvision.models.detection import fcos_resnet50_fpn

    model = fcos_resnet50_fpn(weights=None, weights_backbone=None, num_classes=16, min_size=256, max_size=256)

    def loss(pictures, boxes, labels):
        targets = [{"boxes": box, "labels": label} for box, label in zip(boxes, labels)]
        return sum(model(list(pictures), targets).values())

    def draw(generator):
        corner = torch.rand(4, 8, 2, generator=generator) * 128
        boxes = torch.cat([corner, corner + 32 + torch.rand(4, 8, 2, generator=generator) * 80], 2)
        return torch.rand(4, 3, 256, 256, generator=generator), boxes, torch.randint(1, 16, (4, 8), generator=generator)

    return Task(model, loss, draw, r"generator of the host")


def detector():
    """torchvision's backbone and pyramid under a head of centres and sizes, whose targets are pictures too."""
    from torchvision.models.detection.backbone_utils import resnet_fpn_backbone

    classes = 16

    class Detector(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = resnet_fpn_backbone(backbone_name="resnet50", weights=None, trainable_layers=5,
                                            norm_layer=nn.BatchNorm2d)
            self.head = nn.Sequential(nn.Conv2d(256, 256, 3, padding=1), nn.GroupNorm(32, 256), nn.ReLU(),
                                      nn.Conv2d(256, classes + 4, 3, padding=1))

        def forward(self, pictures):
            return self.head(self.body(pictures)["0"])

    model = Detector()

    def loss(pictures, centres, sizes):
        found = model(pictures)
        chance = functional.binary_cross_entropy_with_logits(found[:, :classes], centres)
        mask = centres.amax(1, keepdim=True)
        return chance + ((found[:, classes:] - sizes).abs() * mask).sum() / mask.sum().clamp(min=1)

    def draw(generator):
        pictures = torch.rand(16, 3, 256, 256, generator=generator)
        centres = (torch.rand(16, classes, 64, 64, generator=generator) > 0.999).float()
        return pictures, centres, torch.rand(16, 4, 64, 64, generator=generator)

    return Task(model, loss, draw)


MODELS = {maker.__name__: maker for maker in (t5, moe, moe_looped, unet, graph_network, detector, detector_matching)}


def train(task, graphed):
    """The losses of a usual loop, and the milliseconds of a step at its end."""
    optimizer = torch.optim.AdamW(task.model.parameters(), lr=torch.tensor(1e-4, device="cuda"), fused=True,
                                  capturable=True)

    @graphed
    def step(*batch):
        loss = task.loss(*batch)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        task.after()
        return loss

    losses, times = [], []
    for index in range(STEPS):
        start = time.perf_counter()
        losses.append(step(*task.batches[index % BATCHES]).item().hex())
        times.append((time.perf_counter() - start) * 1e3)
    return losses, sorted(times[-20:])[10], step


def on_device_first(function):
    return lambda *batch: function(*(part.cuda(non_blocking=True) for part in batch))


def captured(function):
    """As PyTorch's manual has it: three calls on a stream of their own, then a capture."""
    stream = torch.cuda.Stream()
    graph = torch.cuda.CUDAGraph()
    inputs, outputs, calls = [], [], 0

    def step(*batch):
        nonlocal calls
        calls += 1
        if not inputs:
            inputs.extend(part.cuda() for part in batch)
        for static, part in zip(inputs, batch):
            static.copy_(part)
        if calls <= 3:
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                loss = function(*inputs)
            torch.cuda.current_stream().wait_stream(stream)
            return loss.detach()
        if not outputs:
            with torch.cuda.graph(graph, stream=stream):
                outputs.append(function(*inputs).detach())
        graph.replay()
        return outputs[0]

    return step


def main():
    if sys.argv[1:] == ["--list"]:
        print("\n".join(MODELS))
        return 0
    plain = sys.argv[1:2] == ["--plain"]
    if len(sys.argv) != 3 + plain or sys.argv[-1] not in MODELS:
        print(__doc__, file=sys.stderr)
        return 2
    name, figures = sys.argv[-1], Path(sys.argv[-2]) / f"{sys.argv[-1]}.json"
    budget = None
    if not plain:
        import pumpgraph

        budget = json.loads(figures.read_text())["peak_bytes"] // 2
        pumpgraph.install(budget=budget, budget_of="tensors")
    torch.manual_seed(0)
    torch.use_deterministic_algorithms(True)
    torch.utils.deterministic.fill_uninitialized_memory = False
    task = MODELS[name]()
    if plain:
        losses, ms, _ = train(task, on_device_first if task.refused else captured)
        peak = torch.cuda.max_memory_allocated()
        figures.write_text(json.dumps({"losses": losses, "peak_bytes": peak, "ms": ms}))
        print(f"plain  {name}: loss {float.fromhex(losses[0]):.3f} to {float.fromhex(losses[-1]):.3f}, "
              f"peak {peak / 2**20:.0f} MiB, {ms:.1f} ms a step")
        return 0
    expected = json.loads(figures.read_text())
    try:
        losses, ms, step = train(task, pumpgraph.graphed)
    except pumpgraph.UnsupportedError as error:
        as_written = task.refused is not None and re.search(task.refused, str(error))
        print(f"{'ok    ' if as_written else 'FAILED'} {name}: refused: {error}")
        return 0 if as_written else 1
    report = step.report()
    equal = sum(a == b for a, b in zip(losses, expected["losses"]))
    used = pumpgraph.memory_stats()["device_peak_bytes"]
    ok = equal == STEPS and report.left_as_captured is None and report["added_nodes"] > 0 and not task.refused
    print(f"{'ok    ' if ok else 'FAILED'} {name}: {equal} of {STEPS} losses equal; budget {budget / 2**20:.0f} MiB, "
          f"peak {used / 2**20:.0f}, {report['added_nodes']} nodes added, {ms:.1f} ms a step (plain "
          f"{expected['ms']:.1f}); {report.left_as_captured or 'rewritten'}")
    return 0 if ok else 1


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    sys.exit(main())
