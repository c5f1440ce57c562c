#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""GPU tests of decoding: a language model whose weights do not fit writes text, token by token, with a static key-value
cache. decode_cases.py CASE, one a process, for a process has one allocator.

A case that decodes does so in a process without PumpGraph first, in a CUDA graph of its own, and compares the tokens of
three prompts and what the cache holds after each: equal, bit for bit. Needs transformers 5.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "runtime" / "python"))

from named_cases import check, raises, run_named  # noqa: E402

import torch  # noqa: E402
from torch import nn  # noqa: E402

TOKENS = 40
WARMUP = 3
WORDS = 4096
PROMPTS = (20, 12, 48)  # words; the last one needs a larger cache of generate()


def language_model():
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(vocab_size=WORDS, hidden_size=1024, intermediate_size=2816, num_hidden_layers=8,
                         num_attention_heads=16, num_key_value_heads=16, max_position_embeddings=8192,
                         tie_word_embeddings=False)
    return LlamaForCausalLM(config).cuda().eval()


def weights_of(model):
    return sum(parameter.numel() * parameter.element_size() for parameter in model.parameters())


# Known before there is a model: the budget comes before CUDA is initialised.
WEIGHTS = 4 * (2 * WORDS * 1024 + 8 * (4 * 1024 ** 2 + 3 * 1024 * 2816 + 2 * 1024) + 1024)


def prompts():
    generator = torch.Generator().manual_seed(1)
    return [torch.randint(3, WORDS, (1, length), generator=generator).cuda() for length in PROMPTS]


def exact(tensor):
    return tensor.double().sum().item().hex()


# ---- a loop of one's own ---------------------------------------------------------------------------------------------


class PlainGraph:
    """A function that runs in a CUDA graph after some calls, without PumpGraph. Objects among the arguments stay."""

    def __init__(self, function):
        self.function, self.calls, self.graph = function, 0, None

    def __call__(self, token, position, *others):
        self.calls += 1
        if self.calls <= WARMUP:
            return self.function(token, position, *others)
        if self.graph is None:
            self.token, self.position, self.graph = token.clone(), position.clone(), torch.cuda.CUDAGraph()
            torch.cuda.synchronize()
            with torch.cuda.graph(self.graph):
                self.output = self.function(self.token, self.position, *others)
        self.token.copy_(token)
        self.position.copy_(position)
        self.graph.replay()
        return self.output.clone()


def written(graphed, rows, as_argument):
    """What a loop writes with a cache of so many rows, and what the cache holds then. And the step."""
    from transformers import StaticCache

    model = language_model()
    check(weights_of(model) == WEIGHTS, f"the weights have {weights_of(model)} bytes, not {WEIGHTS}")
    cache = StaticCache(config=model.config, max_cache_len=rows)

    def decode(token, position):
        with torch.no_grad():
            logits = model(token, position_ids=position, past_key_values=cache, use_cache=True).logits
            return logits[:, -1].argmax(-1, keepdim=True)

    def decode_with(token, position, given):
        with torch.no_grad():
            output = model(token, position_ids=position, past_key_values=given, use_cache=True)
            check(output.past_key_values is given, "the model returns another cache")
            return output.logits[:, -1].argmax(-1, keepdim=True)

    step = graphed(decode_with if as_argument else decode)
    more = (cache,) if as_argument else ()
    texts = []
    for prompt in prompts():
        cache.reset()
        with torch.no_grad():
            token = model(prompt, past_key_values=cache, use_cache=True).logits[:, -1].argmax(-1, keepdim=True)
        position = torch.full((1, 1), prompt.shape[1], device="cuda")
        tokens = [token]
        for _ in range(TOKENS - 1):
            token = step(token, position, *more)
            position = position + 1
            tokens.append(token)
        held = [exact(values) for layer in (cache.layers[0], cache.layers[-1]) for values in (layer.keys, layer.values)]
        texts.append({"tokens": torch.cat(tokens, 1).tolist(), "cache": held})
    return texts, step


def of_plain(name):
    run = subprocess.run([sys.executable, __file__, "--plain", name], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                         text=True)
    check(run.returncode == 0, f"the plain program fails: {run.stderr[-2000:]}")
    return json.loads(run.stdout.splitlines()[-1])


def compare(texts, expected):
    for number, (text, plain) in enumerate(zip(texts, expected)):
        check(text["tokens"] == plain["tokens"], f"text {number} is {text['tokens']}, not {plain['tokens']}")
        check(text == plain, f"after text {number} the cache holds something else")
    check(len(texts) == len(expected) == len(PROMPTS), "not all prompts were continued")


def figures(step, budget, cache_bytes):
    """Of a graphed step that was rewritten: what it moves for each token."""
    report = step.report()
    check(report.left_as_captured is None, f"left as captured: {report.left_as_captured}")
    up = report["up_bytes"] + report["hosted_up_bytes"]
    print(f"weights {WEIGHTS >> 20} MiB, cache {cache_bytes >> 20} MiB, budget {budget >> 20} MiB: {up >> 20} MiB up "
          f"for each token, {up / WEIGHTS:.2f} of the weights, {up / (WEIGHTS + cache_bytes - budget):.2f} of what "
          f"does not fit; {report['down_bytes'] + report['hosted_down_bytes'] >> 20} MiB down; predicted "
          f"{report['predicted_s'] * 1e3:.1f} ms, in memory {report['in_memory_s'] * 1e3:.1f}")
    return up


def own_loop(name, rows, as_argument):
    import pumpgraph

    expected = of_plain(name)
    budget = WEIGHTS // 2
    pumpgraph.install(budget=budget, budget_of="tensors")
    texts, step = written(lambda function: pumpgraph.graphed(function, warmup=WARMUP), rows, as_argument)
    compare(texts, expected)
    check(len(step.signatures()) == 1, f"more than one graph: {step.signatures()}")
    cache_bytes = 8 * 2 * rows * 1024 * 4
    up = figures(step, budget, cache_bytes)
    away = WEIGHTS + (cache_bytes if cache_bytes > budget else 0)
    check(up <= 1.05 * away, f"{up} bytes come over the link for each token; {away} are away")
    check(all(not result.different_buffers for result in step.validate()), "validation found a difference")


SMALL_CACHE, LARGE_CACHE = 512, 4096  # rows; the large one alone exceeds the budget


def own_loop_closure():
    own_loop("own_loop_closure", SMALL_CACHE, False)


def own_loop_argument():
    own_loop("own_loop_argument", LARGE_CACHE, True)


# ---- generate() ------------------------------------------------------------------------------------------------------


def generated(model, **options):
    texts = []
    for prompt in prompts():
        text = model.generate(prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=TOKENS,
                              min_new_tokens=TOKENS, do_sample=False, pad_token_id=0,
                              cache_implementation="static", **options)
        texts.append({"tokens": text.tolist()})
    return texts


def generate_static():
    import pumpgraph
    from pumpgraph.integrations.generation import graph_decoding

    expected = of_plain("generate_static")
    budget = WEIGHTS // 2
    pumpgraph.install(budget=budget, budget_of="tensors")
    model = language_model()
    step = graph_decoding(model, warmup=WARMUP)
    compare(generated(model), expected)
    check(len(step.signatures()) == 1 and "StaticCache" in step.signatures()[0], f"other graphs: {step.signatures()}")
    up = figures(step, budget, 0)
    check(up <= 1.05 * WEIGHTS, f"{up} bytes come over the link for each token; the weights have {WEIGHTS}")
    compare(generated(model), expected)  # and once more, with the cache that is there


# ---- what is refused -------------------------------------------------------------------------------------------------


def growing_mask_is_refused():
    """A mask of another shape for each token: the error says how to go on, and the tokens so far are right."""
    import pumpgraph
    from transformers import StaticCache

    pumpgraph.install(budget=WEIGHTS // 2, budget_of="tensors")
    model = language_model()
    cache = StaticCache(config=model.config, max_cache_len=64)

    def decode(token, mask):
        with torch.no_grad():
            return model(token, attention_mask=mask, past_key_values=cache).logits[:, -1].argmax(-1, keepdim=True)

    def texts(function, count):
        cache.reset()
        prompt = prompts()[0]
        token = function(prompt, torch.ones_like(prompt))
        tokens = [token]
        for length in range(prompt.shape[1] + 1, prompt.shape[1] + count):
            token = function(token, torch.ones(1, length, dtype=torch.long, device="cuda"))
            tokens.append(token)
        return torch.cat(tokens, 1).tolist()

    check(texts(pumpgraph.graphed(decode), 8) == texts(decode, 8), "other tokens")
    raises(pumpgraph.UnsupportedError, r"(?s)max_graphs=8.*mask int64\[1, 28\].*bring sizes to a few values",
           lambda: texts(pumpgraph.graphed(decode), 10))


class OwnCache:
    """Its position is a number. `advances`: update() moves it on."""

    def __init__(self, advances):
        self.keys = torch.zeros(64, 1024, device="cuda")
        self.length, self.advances = 0, advances

    def update(self, keys):
        self.keys[self.length] = keys
        self.length += self.advances
        return self.keys


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(*[nn.Linear(1024, 1024) for _ in range(8)])

    def forward(self, x, cache):
        keys = cache.update(self.layers(x))
        return (keys @ x).softmax(0) @ keys


def python_position_is_refused():
    """A position that is a number is a constant of the captured step: never does one go on with it."""
    import pumpgraph

    pumpgraph.install(budget="24MiB", budget_of="tensors")
    torch.manual_seed(0)
    model = Attention().cuda().requires_grad_(False)
    x = torch.randn(1024, device="cuda")
    rows = torch.zeros(64, 1024, device="cuda")
    position = 0

    def at(x, place):
        rows[place] = model.layers(x)
        return rows.sum()

    step = pumpgraph.graphed(at)
    raises(pumpgraph.UnsupportedError, r"(?s)at was called in more than max_graphs=8 ways.*place 7.*now.*place 8",
           lambda: [step(x, place) for place in range(16)])

    def at_variable(x):
        return at(x, position)

    step = pumpgraph.graphed(at_variable)
    for _ in range(5):
        step(x)
    position = 1
    raises(pumpgraph.StaleStepError, r'(?s)"position", which the step reads, was 0 .* is 1', lambda: step(x))

    for advances in (1, 0):
        for as_argument in (False, True):
            cache = OwnCache(advances)
            more = (cache,) if as_argument else ()
            step = pumpgraph.graphed((lambda x, cache: model(x, cache)) if as_argument else (lambda x: model(x, cache)))
            if advances:
                raises(pumpgraph.UnsupportedError, r'(?s)"cache\.length" is a number that the step changes',
                       lambda: [step(x, *more) for _ in range(5)])
                continue
            for _ in range(5):  # always the same row, as the program has it
                step(x, *more)
            cache.length += 1
            raises(pumpgraph.StaleStepError, r'(?s)"cache\.length", which the step may read, was 0 .* is 1',
                   lambda: step(x, *more))
            cache.length -= 1
            before = cache.keys.clone()
            step(x, *more)
            check(torch.equal(before, cache.keys), "a refused call has written")


def sliding_window_is_refused():
    """Such layers of a static cache count in Python, beside the device."""
    import pumpgraph
    from transformers import MistralConfig, MistralForCausalLM, StaticCache

    pumpgraph.install(budget="64MiB", budget_of="tensors")
    config = MistralConfig(vocab_size=256, hidden_size=256, intermediate_size=512, num_hidden_layers=2,
                           num_attention_heads=4, num_key_value_heads=4, sliding_window=16)
    model = MistralForCausalLM(config).cuda().eval()
    cache = StaticCache(config=config, max_cache_len=64)
    token = torch.full((1, 1), 3, device="cuda")

    @pumpgraph.graphed
    def decode(token, cache):
        with torch.no_grad():
            return model(token, past_key_values=cache).logits

    raises(pumpgraph.UnsupportedError,
           r'(?s)"cache\.layers\.0\.cumulative_length\w*" is a number that the step changes',
           lambda: [decode(token, cache) for _ in range(5)])


CASES = [
    own_loop_closure,
    own_loop_argument,
    generate_static,
    growing_mask_is_refused,
    python_position_is_refused,
    sliding_window_is_refused,
]


def plain(name):
    """In a process of its own: what the program writes without PumpGraph."""
    if name == "generate_static":
        texts = generated(language_model(), disable_compile=True)
    else:
        rows = LARGE_CACHE if name == "own_loop_argument" else SMALL_CACHE
        texts, _ = written(PlainGraph, rows, name == "own_loop_argument")
    print(json.dumps(texts))


def main():
    if sys.argv[1:2] == ["--plain"]:
        return plain(sys.argv[2])
    run_named(CASES)


if __name__ == "__main__":
    main()
