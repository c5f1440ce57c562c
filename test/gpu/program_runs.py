#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs drawn programs, plain and under pumpgraph.graphed, in one process. drawn_programs.py starts it.

    program_runs.py [--budget BYTES] [--without HABIT,...] SEED...

Prints a line of JSON when a program begins and one with its verdict. Ends after the first verdict that leaves the
process in doubt: a wrong value, or an error of the device.
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import faulthandler
import gc
import hashlib
import io
import json
import os
import queue
import random
import re
import sys
import tempfile
import threading
import time
import traceback
import warnings
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Tuple

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "runtime" / "python"))

import numpy  # noqa: E402
import torch  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn import functional  # noqa: E402
from torch.utils._pytree import tree_leaves, tree_map  # noqa: E402

import program_draws  # noqa: E402
from program_draws import Program  # noqa: E402

VOCABULARY = 4096
# After these errors of the device a process can do nothing more.
STICKY = re.compile(r"illegal (memory|instruction)|device-side assert|unspecified launch|misaligned address", re.I)


class Damaged(Exception):
    """Memory of the program's own changed, or a graph of its own computed something else."""


class Deliberate(Exception):
    """What a drawn program raises in its step."""


# ---- models: forward(x, y) is the loss -------------------------------------------------------------------------------


class Block(nn.Module):
    def __init__(self, program: Program, width: int):
        super().__init__()
        self.linear = nn.Linear(width, width)
        self.norm = nn.LayerNorm(width) if program.norm else nn.Identity()
        self.dropout = nn.Dropout(program.dropout)
        self.residual = program.residual

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.dropout(self.norm(functional.gelu(self.linear(x))))
        return x + y if self.residual else y


class Stack(nn.Module):
    """Blocks one after another, computed again in the backward pass where the program checkpoints."""

    def __init__(self, program: Program, blocks: List[nn.Module]):
        super().__init__()
        self.blocks = nn.ModuleList(blocks)
        self.checkpointing = "checkpointing" in program.habits

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        from torch.utils.checkpoint import checkpoint

        for block in self.blocks:
            if self.checkpointing and self.training:
                x = checkpoint(block, x, use_reentrant=False, preserve_rng_state=False)
            else:
                x = block(x)
        return x


class Mlp(nn.Module):
    def __init__(self, program: Program):
        super().__init__()
        self.stack = Stack(program, [Block(program, program.width) for _ in range(program.layers)])

    def forward(self, x: torch.Tensor, _y: torch.Tensor) -> torch.Tensor:
        return (self.stack(x).mean(1) - x[:, 0]).float().square().mean()


class Attention(nn.Module):
    def __init__(self, program: Program):
        super().__init__()
        width = program.width
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.mixed, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.dropout = nn.Dropout(program.dropout)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        count, length, width = x.shape
        query, key, value = self.mixed(self.first(x)).view(count, length, 3, 8, width // 8).permute(2, 0, 3, 1, 4)
        scores = (query @ key.transpose(-2, -1)) * (width // 8) ** -0.5
        seen = scores.softmax(-1).to(value.dtype) @ value
        x = x + self.dropout(self.out(seen.transpose(1, 2).reshape(x.shape)))
        return x + self.dropout(self.down(functional.gelu(self.up(self.second(x)))))


class Transformer(nn.Module):
    def __init__(self, program: Program):
        super().__init__()
        self.stack = Stack(program, [Attention(program) for _ in range(program.layers)])

    def forward(self, x: torch.Tensor, _y: torch.Tensor) -> torch.Tensor:
        x = x.view(-1, 64, x.shape[1])
        return (self.stack(x) - x.flip(1)).float().square().mean()


class Convolution(nn.Module):
    def __init__(self, program: Program):
        super().__init__()
        self.linear = nn.Conv2d(64, 64, 3, padding=1)
        self.norm = nn.BatchNorm2d(64) if program.norm else nn.GroupNorm(8, 64)
        self.residual = program.residual

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.norm(self.linear(x)).relu()
        return x + y if self.residual else y


class Convolutions(nn.Module):
    def __init__(self, program: Program):
        super().__init__()
        self.stem = nn.Conv2d(4, 64, 3, padding=1)
        self.stack = Stack(program, [Convolution(program) for _ in range(program.layers)])
        self.head = nn.Linear(64 * 256, 128)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        pictures = x.view(-1, 4, 16, 16)
        return functional.cross_entropy(self.head(self.stack(self.stem(pictures)).flatten(1)).float(), y % 128)


class Recurrent(nn.Module):
    """The same weights at every time."""

    def __init__(self, program: Program):
        super().__init__()
        self.times = program.layers
        self.first = nn.Linear(program.width, program.width)
        self.again = nn.Linear(program.width, program.width, bias=False)
        self.gate = nn.Linear(program.width, program.width)
        self.dropout = nn.Dropout(program.dropout)

    def forward(self, x: torch.Tensor, _y: torch.Tensor) -> torch.Tensor:
        state, given = torch.zeros_like(x), self.first(x)
        for _ in range(self.times):
            open_ = torch.sigmoid(self.gate(state))
            state = state + open_ * (torch.tanh(given + self.again(state)) - state)
        return (self.dropout(state).mean(1) - x[:, 0]).float().square().mean()


class Words(nn.Module):
    """The embedding's weights are the head's, too."""

    def __init__(self, program: Program):
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, program.width)
        self.stack = Stack(program, [Block(program, program.width) for _ in range(program.layers)])
        self.head = nn.Linear(program.width, VOCABULARY, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        logits = self.head(self.stack(self.embedding(y) + x * 0.01))
        return functional.cross_entropy(logits.float(), (y * 3 + 1) % VOCABULARY)


MODELS = {"mlp": Mlp, "transformer": Transformer, "convolutions": Convolutions, "recurrent": Recurrent, "words": Words}


# ---- optimizers ------------------------------------------------------------------------------------------------------


class CountingAdam(torch.optim.Optimizer):
    """Its step count is a Python integer, as in many optimizers outside of PyTorch."""

    def __init__(self, params: Any, lr: float = 1e-3):
        super().__init__(params, {"lr": lr, "weight_decay": 0.0})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                state = self.state[p]
                if not state:
                    state["count"], state["m"], state["v"] = 0, torch.zeros_like(p), torch.zeros_like(p)
                state["count"] += 1
                state["m"].mul_(0.9).add_(p.grad, alpha=0.1)
                state["v"].mul_(0.999).addcmul_(p.grad, p.grad, value=0.001)
                root = (state["v"] / (1 - 0.999 ** state["count"])).sqrt_().add_(1e-8)
                p.addcdiv_(state["m"], root, value=-group["lr"] / (1 - 0.9 ** state["count"]))


def make_optimizer(program: Program, model: nn.Module, is_real: bool) -> torch.optim.Optimizer:
    """A number under a scheduler becomes a tensor under PumpGraph, and SGD fused: so has the plain program."""
    kind, _, how = program.optimizer.partition(" ")
    rate: Any = 1e-3 if kind in ("adam", "adamw", "counting") else 1e-2
    is_prepared = "number_under_a_scheduler" in program.habits
    if program.tensor_rate or (is_prepared and not is_real):
        rate = torch.tensor(rate, device="cuda")
    if kind == "counting":
        return CountingAdam(model.parameters(), lr=rate)
    if kind in ("sgd", "momentum"):
        ways = {"fused": True} if how == "fused" or (is_prepared and not is_real) else {"foreach": True}
        return torch.optim.SGD(model.parameters(), lr=rate, momentum=0.9 if kind == "momentum" else 0.0, **ways)
    ways = {"fused": how == "fused", "foreach": how == "foreach"}
    make = torch.optim.Adam if kind == "adam" else torch.optim.AdamW
    return make(model.parameters(), lr=rate, capturable=True, **ways)


# ---- the program -----------------------------------------------------------------------------------------------------


class Trainer:
    """What the step works on. Habits add to the lists what happens inside of it."""

    def __init__(self, program: Program, is_real: bool):
        self.program = program
        self.model = MODELS[program.model](program).cuda()
        self.optimizer = make_optimizer(program, self.model, is_real)
        self.at_start: List[Callable[[], Any]] = []
        self.on_input: List[Callable[[torch.Tensor], torch.Tensor]] = []
        self.on_loss: List[Callable[[torch.Tensor], torch.Tensor]] = []
        self.after_update: List[Callable[[], Any]] = []

    def loss(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cuda", dtype=torch.bfloat16, enabled=self.program.precision == "bf16"):
            return self.model(x, y)

    @property
    def weight(self) -> torch.Tensor:
        """One that is large enough to be moved."""
        return max(self.model.parameters(), key=torch.Tensor.numel)

    @property
    def layer(self) -> nn.Module:
        layers = [module for module in self.model.modules() if isinstance(module, (nn.Linear, nn.Conv2d))]
        return layers[len(layers) // 2]


def make_step(trainer: Trainer) -> Callable[..., Any]:
    model, optimizer, program = trainer.model, trainer.optimizer, trainer.program
    zero_at, _, zero_how = program.zero.partition(" ")

    def zero() -> None:
        optimizer.zero_grad(set_to_none=zero_how == "none")

    def step(x: torch.Tensor, y: torch.Tensor, scale: float = 1.0, fails: bool = False) -> Any:
        for act in trainer.at_start:
            act()
        if zero_at == "start":
            zero()
        for change in trainer.on_input:
            x = change(x)
        losses = []
        for some_x, some_y in zip(x.chunk(program.accumulate), y.chunk(program.accumulate)):
            loss = trainer.loss(some_x, some_y) * (scale / program.accumulate)
            for change in trainer.on_loss:
                loss = change(loss)
            loss.backward()
            losses.append(loss.detach())
        if fails:
            raise Deliberate("between the backward pass and the update")
        outputs = {"loss": torch.stack(losses).sum()}
        if program.clip:
            outputs["norm"] = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        for act in trainer.after_update:
            act()
        if zero_at == "end":
            zero()
        return outputs

    return step


class Loop:
    """The loop around the step. Habits add to the lists what happens between calls. `observed`: all that it saw."""

    def __init__(self, program: Program, pg: Any):
        random.seed(program.seed)
        numpy.random.seed(program.seed)
        torch.manual_seed(program.seed)
        self.program, self.pg = program, pg
        self.rng = random.Random(f"habits {program.seed}")
        self.reads_at_once = self.rng.random() < 0.5  # else it never waits for the device in between
        self.late: List[Tuple[int, Any]] = []
        self.call = -1
        self.observed: List[Tuple[str, Any]] = []
        self.before_call: List[Callable[[], Any]] = []
        self.after_call: List[Callable[[], Any]] = []
        self.after_output: List[Callable[[Any], Any]] = []
        self.at_end: List[Callable[[], Any]] = []
        self.at_close: List[Callable[[], Any]] = []
        self.arguments: Callable[[], Dict[str, Any]] = dict
        self.batch: Callable[[], Any] = lambda: self.host_batch(self.call)
        self.trainer = Trainer(program, pg.is_real)
        generator = torch.Generator().manual_seed(program.seed)
        self._batches = [(torch.randn(program.rows, program.width, generator=generator).pin_memory(),
                          torch.randint(0, VOCABULARY, (program.rows,), generator=generator).pin_memory())
                         for _ in range(3)]
        for name in program.habits:
            HABITS[name](self, self.trainer)
        self.steps: List[Any] = []
        self.step = self.graphed(make_step(self.trainer))
        for name in program.habits:
            if name in LATER:
                LATER[name](self, self.trainer)

    def graphed(self, function: Callable[..., Any]) -> Any:
        step = self.pg.graphed(function, warmup=self.program.warmup)
        self.steps.append(step)
        return step

    def host_batch(self, call: int) -> Tuple[torch.Tensor, torch.Tensor]:
        return self._batches[call % len(self._batches)]

    def device_batch(self, call: int) -> List[torch.Tensor]:
        return [part.cuda(non_blocking=True) for part in self.host_batch(call)]

    def is_turn(self, every: int) -> bool:
        return self.call % every == every - 1

    def see(self, what: str, value: Any) -> None:
        for leaf in tree_leaves(value):
            self.observed.append((f"{what} at call {self.call}", fingerprint(leaf)))

    def see_late(self) -> None:
        for call, output in self.late:
            self.see(f"output of call {call}", output)
        self.late.clear()

    def run(self) -> None:
        for self.call in range(self.program.calls):
            for act in self.before_call:
                act()
            try:
                output = self.step(*self.batch(), **self.arguments())
            except Deliberate as error:
                self.see("exception", str(error))
                continue
            self.late.append((self.call, tree_map(torch.clone, output)))
            if self.reads_at_once:
                self.see_late()
            for look in self.after_output:
                look(output)
            for act in self.after_call:
                act()
        self.see_late()
        for act in self.at_end:
            act()
        for name, tensor in named_state(self.trainer):
            self.see(name, tensor)

    def close(self) -> None:
        for act in self.at_close:
            act()


def named_state(trainer: Trainer) -> Iterator[Tuple[str, Any]]:
    model, optimizer = trainer.model, trainer.optimizer
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    yield from ((f"weight {name}", parameter) for name, parameter in model.named_parameters())
    yield from ((f"buffer {name}", buffer) for name, buffer in model.named_buffers())
    yield from ((f"gradient of {name}", parameter.grad) for name, parameter in model.named_parameters())
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            for key, value in optimizer.state.get(parameter, {}).items():
                yield f"{key} of {names[id(parameter)]}", value
        yield "rate", group["lr"]
    yield "random number", torch.rand(4, device="cuda")
    yield "random number of the host", torch.rand(4)


def fingerprint(value: Any) -> Any:
    """Equal for what is equal bit for bit."""
    if not isinstance(value, torch.Tensor):
        return value.hex() if isinstance(value, float) else repr(value)
    flat = value.detach().cpu().contiguous().reshape(-1)
    digest = hashlib.blake2b(flat.view(torch.uint8).numpy().tobytes() if flat.numel() else b"", digest_size=12)
    some = f" ({flat[0].item():.6g})" if flat.numel() == 1 and flat.is_floating_point() else ""
    return f"{str(value.dtype)[6:]}{list(value.shape)} {digest.hexdigest()}{some}"


# ---- habits inside the step ------------------------------------------------------------------------------------------

HABITS: Dict[str, Callable[[Loop, Trainer], None]] = {}
LATER: Dict[str, Callable[[Loop, Trainer], None]] = {}  # what a habit does once the step is made


def habit(function: Callable[[Loop, Trainer], None]) -> Callable[[Loop, Trainer], None]:
    HABITS[function.__name__] = function
    return function


def later(function: Callable[[Loop, Trainer], None]) -> Callable[[Loop, Trainer], None]:
    HABITS[function.__name__] = lambda _loop, _trainer: None
    LATER[function.__name__] = function
    return function


@habit
def counts_in_python(loop: Loop, trainer: Trainer) -> None:
    trainer.count = 0

    def scaled(loss: torch.Tensor) -> torch.Tensor:
        trainer.count += 1
        return loss * (1 + trainer.count / 64)

    trainer.on_loss.append(scaled)
    loop.after_call.append(lambda: loop.see("count", trainer.count))


@habit
def counts_in_a_closure(_loop: Loop, trainer: Trainer) -> None:
    count = 0

    def scaled(loss: torch.Tensor) -> torch.Tensor:
        nonlocal count
        count += 1
        return loss * (1 + count / 64)

    trainer.on_loss.append(scaled)


@habit
def counts_on_the_host(_loop: Loop, trainer: Trainer) -> None:
    count = torch.zeros(())

    def scaled(loss: torch.Tensor) -> torch.Tensor:
        count.add_(1)
        return loss * (1 + float(count) / 64)

    trainer.on_loss.append(scaled)


@habit
def counting_optimizer(_loop: Loop, _trainer: Trainer) -> None:
    """make_optimizer() does it."""


@habit
def number_from_the_loop(loop: Loop, trainer: Trainer) -> None:
    trainer.scale = 1.0

    def set_scale() -> None:
        trainer.scale = 1 + loop.call / 64

    loop.before_call.append(set_scale)
    trainer.on_loss.append(lambda loss: loss * trainer.scale)


@habit
def draws_in_python(_loop: Loop, trainer: Trainer) -> None:
    trainer.on_loss.append(lambda loss: loss * (1 + random.random()))


@habit
def draws_in_numpy(_loop: Loop, trainer: Trainer) -> None:
    trainer.on_loss.append(lambda loss: loss * (1 + float(numpy.random.rand())))


@habit
def draws_on_the_host(_loop: Loop, trainer: Trainer) -> None:
    trainer.on_loss.append(lambda loss: loss * (1 + torch.rand(()).item()))


@habit
def own_host_generator(loop: Loop, trainer: Trainer) -> None:
    own = torch.Generator().manual_seed(loop.program.seed)
    trainer.on_loss.append(lambda loss: loss * (1 + torch.rand((), generator=own).item()))


@habit
def own_device_generator(loop: Loop, trainer: Trainer) -> None:
    own = torch.Generator(device="cuda").manual_seed(loop.program.seed)
    trainer.on_input.append(lambda x: x + torch.randn(x.shape, device=x.device, generator=own) * 0.1)


@habit
def seeds_in_the_step(_loop: Loop, trainer: Trainer) -> None:
    trainer.at_start.append(lambda: torch.manual_seed(7))
    trainer.on_input.append(lambda x: x + torch.randn_like(x) * 0.1)


@habit
def puts_random_state_back(_loop: Loop, trainer: Trainer) -> None:
    def noisy(x: torch.Tensor) -> torch.Tensor:
        before = torch.cuda.get_rng_state()
        x = x + torch.randn_like(x) * 0.1
        torch.cuda.set_rng_state(before)
        return x

    trainer.on_input.append(noisy)


@habit
def hook_appends(loop: Loop, trainer: Trainer) -> None:
    listed: List[torch.Tensor] = []
    clears = loop.rng.random() < 0.7
    trainer.layer.register_forward_hook(lambda _m, _i, out: listed.append(out.detach().float().mean()))

    def look() -> None:
        loop.see("list of the hook", [len(listed), *listed])
        if clears:
            listed.clear()

    loop.after_call.append(look)


@habit
def hook_counts(loop: Loop, trainer: Trainer) -> None:
    count = {"calls": 0}

    def hook(_module: nn.Module, _input: Any, _out: Any) -> None:
        count["calls"] += 1

    trainer.layer.register_forward_hook(hook)
    loop.after_call.append(lambda: loop.see("calls of the hook", count["calls"]))


@habit
def gradient_hook_appends(loop: Loop, trainer: Trainer) -> None:
    listed: List[torch.Tensor] = []
    if loop.rng.random() < 0.5:
        trainer.weight.register_hook(lambda gradient: listed.append(gradient.norm()))
    else:
        trainer.weight.register_post_accumulate_grad_hook(lambda weight: listed.append(weight.grad.norm()))

    def look() -> None:
        loop.see("list of the gradient's hook", [len(listed), *listed])
        listed.clear()

    loop.after_call.append(look)


@habit
def backward_hook_appends(loop: Loop, trainer: Trainer) -> None:
    listed: List[torch.Tensor] = []

    def hook(_module: nn.Module, _inputs: Any, outputs: Any) -> None:
        listed.append(outputs[0].detach().float().norm())

    trainer.layer.register_full_backward_hook(hook)

    def look() -> None:
        loop.see("list of the backward hook", [len(listed), *listed])
        listed.clear()

    loop.after_call.append(look)


@habit
def hook_keeps_the_last(loop: Loop, trainer: Trainer) -> None:
    seen: Dict[str, torch.Tensor] = {}
    trainer.layer.register_forward_hook(lambda _m, _i, out: seen.__setitem__("last", out.detach()))
    every = loop.rng.choice((1, 3))

    def look() -> None:
        if loop.is_turn(every):
            loop.see("kept activation", seen.get("last"))

    loop.after_call.append(look)


@habit
def leaves_an_attribute(loop: Loop, trainer: Trainer) -> None:
    trainer.last = None

    def leave(loss: torch.Tensor) -> torch.Tensor:
        trainer.last = loss.detach() * 2
        return loss

    trainer.on_loss.append(leave)
    loop.after_call.append(lambda: loop.see("attribute", trainer.last))


@habit
def position_in_a_cache(loop: Loop, trainer: Trainer) -> None:
    """As many rows as there are calls: a run too many of the step ends beyond the last."""
    trainer.cache = torch.zeros(loop.program.calls, 1 << 18, device="cuda")
    trainer.position = torch.zeros(1, dtype=torch.long, device="cuda")
    large = trainer.weight

    def advance() -> None:
        with torch.no_grad():
            row = large.detach().reshape(-1)[:1 << 18].reshape(1, -1) * (1 + trainer.position)
            trainer.cache.index_copy_(0, trainer.position, row)
            trainer.position.add_(1)

    trainer.after_update.append(advance)
    if loop.rng.random() < 0.5:
        loop.after_call.append(lambda: loop.see("position", trainer.position))
    loop.at_end.append(lambda: loop.see("position and cache", [trainer.position, trainer.cache]))


@habit
def counts_on_the_device(loop: Loop, trainer: Trainer) -> None:
    trainer.device_count = torch.zeros((), device="cuda")

    def count() -> None:
        trainer.device_count.add_(1)

    trainer.after_update.append(count)
    trainer.on_loss.append(lambda loss: loss * (1 + trainer.device_count / 64))
    loop.at_end.append(lambda: loop.see("count on the device", trainer.device_count))


@habit
def noise_in_the_step(_loop: Loop, trainer: Trainer) -> None:
    trainer.on_input.append(lambda x: x + torch.randn_like(x) * 0.1)


@habit
def running_average(loop: Loop, trainer: Trainer) -> None:
    average = torch.zeros(loop.program.rows, loop.program.width, device="cuda")
    trainer.model.register_buffer("average", average)

    def centred(x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            trainer.model.average[:len(x)].mul_(0.9).add_(x, alpha=0.1)
        return x - trainer.model.average[:len(x)]

    trainer.on_input.append(centred)


@habit
def averages_weights_inside(loop: Loop, trainer: Trainer) -> None:
    weights = list(trainer.model.parameters())
    trainer.averages = [weight.detach().clone() for weight in weights]

    def average() -> None:
        with torch.no_grad():
            torch._foreach_lerp_(trainer.averages, [weight.detach() for weight in weights], 0.1)

    trainer.after_update.append(average)
    loop.at_end.append(lambda: loop.see("averages", trainer.averages))


@habit
def decays_weights_inside(_loop: Loop, trainer: Trainer) -> None:
    def decay() -> None:
        with torch.no_grad():
            for weight in trainer.model.parameters():
                weight.mul_(0.999)

    trainer.after_update.append(decay)


@habit
def alternating_argument(loop: Loop, _trainer: Trainer) -> None:
    loop.arguments = lambda: {"scale": (1.0, 0.5)[loop.call % 2]}


@habit
def checkpointing(_loop: Loop, _trainer: Trainer) -> None:
    """The models do it."""


# ---- habits around the step ------------------------------------------------------------------------------------------


@habit
def keeps_gradients(loop: Loop, trainer: Trainer) -> None:
    weight, kept = trainer.weight, []

    def look() -> None:
        loop.see("gradients of the calls before", kept[-2:])
        kept.append(weight.grad)

    loop.after_call.append(look)


@habit
def clones_gradients(loop: Loop, trainer: Trainer) -> None:
    weight, kept = trainer.weight, []

    def look() -> None:
        loop.see("gradients of the calls before", kept[-2:])
        kept.append(None if weight.grad is None else weight.grad.clone())

    loop.after_call.append(look)


@habit
def gradients_from_outside(loop: Loop, trainer: Trainer) -> None:
    def backward() -> None:
        if loop.is_turn(4):
            trainer.loss(*loop.device_batch(loop.call + 1)).backward()

    loop.before_call.append(backward)


@habit
def keeps_outputs(loop: Loop, _trainer: Trainer) -> None:
    kept: List[Any] = []
    loop.after_output.append(kept.append)
    loop.at_end.append(lambda: loop.see("kept outputs", kept))


@habit
def clones_outputs(loop: Loop, _trainer: Trainer) -> None:
    kept: List[Any] = []
    loop.after_output.append(lambda output: kept.append(tree_map(torch.clone, output)))
    loop.at_end.append(lambda: loop.see("cloned outputs", kept))


@habit
def setting_changes(loop: Loop, trainer: Trainer) -> None:
    def change() -> None:
        if loop.call == loop.program.calls - 4:
            trainer.optimizer.param_groups[0]["weight_decay"] = 0.25

    loop.before_call.append(change)


@habit
def number_under_a_scheduler(loop: Loop, trainer: Trainer) -> None:
    """Halves it: which is the same of a number and of a tensor."""
    rates = torch.optim.lr_scheduler.LambdaLR(trainer.optimizer, lambda call: 0.5 ** (call // 3))
    loop.after_call.append(rates.step)


@habit
def scheduler(loop: Loop, trainer: Trainer) -> None:
    rates = torch.optim.lr_scheduler.CosineAnnealingLR(trainer.optimizer, 20)
    loop.after_call.append(rates.step)


@habit
def writes_the_rate(loop: Loop, trainer: Trainer) -> None:
    def write() -> None:
        with torch.no_grad():
            trainer.optimizer.param_groups[0]["lr"].mul_(0.9)

    loop.after_call.append(write)


def read_in_a_thread(loop: Loop, trainer: Trainer, inside: Callable[[], Any]) -> None:
    def read() -> None:
        got: List[Any] = []

        def work() -> None:
            try:
                with inside():
                    got.append(fingerprint(trainer.weight))
            except Exception as error:  # the loop's to judge
                got.append(error)

        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        if isinstance(got[0], Exception):
            raise got[0]
        loop.see("weight read by a thread", got[0])

    loop.after_call.append(lambda: read() if loop.is_turn(3) else None)


@habit
def thread_reads_weights(loop: Loop, trainer: Trainer) -> None:
    read_in_a_thread(loop, trainer, contextlib.nullcontext)


@habit
def thread_reads_weights_mapped(loop: Loop, trainer: Trainer) -> None:
    read_in_a_thread(loop, trainer, lambda: loop.pg.mapped(trainer.model))


@habit
def seeds_between(loop: Loop, _trainer: Trainer) -> None:
    def seed() -> None:
        if loop.is_turn(3):
            torch.manual_seed(100 + loop.call)

    loop.before_call.append(seed)


@habit
def reads_a_weight(loop: Loop, trainer: Trainer) -> None:
    every = loop.rng.choice((1, 2, 4))
    loop.after_call.append(lambda: loop.see("weight", trainer.weight) if loop.is_turn(every) else None)


@habit
def reads_all_weights(loop: Loop, trainer: Trainer) -> None:
    def read() -> None:
        if loop.is_turn(3):
            loop.see("norms", [parameter.norm() for parameter in trainer.model.parameters()])

    loop.after_call.append(read)


@habit
def evaluates_eagerly(loop: Loop, trainer: Trainer) -> None:
    def evaluate() -> None:
        if loop.is_turn(3):
            trainer.model.eval()
            with torch.no_grad():
                loop.see("evaluation", trainer.loss(*loop.device_batch(0)))
            trainer.model.train()

    loop.after_call.append(evaluate)


@later
def evaluates_graphed(loop: Loop, trainer: Trainer) -> None:
    def evaluate(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            return trainer.loss(x, y)

    step = loop.graphed(evaluate)

    def act() -> None:
        if loop.call % 2:
            trainer.model.eval()
            loop.see("graphed evaluation", step(*loop.host_batch(loop.call)))
            trainer.model.train()

    loop.after_call.append(act)


@later
def trains_in_turns(loop: Loop, trainer: Trainer) -> None:
    """A second step on the same parameters, with another loss."""
    optimizer = trainer.optimizer

    def other(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad(set_to_none=True)
        loss = trainer.loss(x.flip(0), y).abs().sqrt()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss

    step = loop.graphed(other)
    every = loop.rng.choice((1, 2))
    loop.after_call.append(
        lambda: loop.see("other step", step(*loop.host_batch(loop.call + 1))) if loop.is_turn(every) else None)


@habit
def loads_a_checkpoint(loop: Loop, trainer: Trainer) -> None:
    save_at, load_at = loop.rng.randint(1, 5), loop.rng.randint(6, 9)
    file = io.BytesIO()

    def act() -> None:
        if loop.call == save_at:
            torch.save({"model": trainer.model.state_dict(), "optimizer": trainer.optimizer.state_dict()}, file)
        if loop.call == load_at:
            file.seek(0)
            saved = torch.load(file)
            trainer.model.load_state_dict(saved["model"])
            trainer.optimizer.load_state_dict(saved["optimizer"])

    loop.after_call.append(act)


class PlainGraph:
    """A graph of the program's own, of which it knows what it computes."""

    def __init__(self, multiplies: bool):
        generator = torch.Generator().manual_seed(3)
        self.given = torch.randn(1024, 1024, generator=generator).cuda()
        self.weight = torch.randn(1024, 1024, generator=generator).cuda() if multiplies else None
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            self.compute()
        torch.cuda.current_stream().wait_stream(stream)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph, capture_error_mode="thread_local"):
            self.result = self.compute()

    def compute(self) -> torch.Tensor:
        value = self.given
        for _ in range(4):
            value = (value if self.weight is None else value @ self.weight / 32) * 0.5 + self.given
        return value

    def replay(self, call: int) -> torch.Tensor:
        self.given.fill_(1 + call)
        self.result.zero_()
        self.graph.replay()
        if not torch.equal(self.result, self.compute()):
            raise Damaged("a graph made with torch.cuda.graph computes something else when it is replayed")
        return self.result


def use_plain_graph(loop: Loop, multiplies: bool) -> None:
    made_at, empties = loop.rng.choice((0, 2, 6)), loop.rng.random() < 0.5
    graphs: List[PlainGraph] = []

    def act() -> None:
        if loop.call == made_at:
            graphs.append(PlainGraph(multiplies))
        if graphs:
            if empties:
                torch.cuda.empty_cache()
            loop.see("plain graph", graphs[0].replay(loop.call))

    loop.before_call.append(act)
    loop.at_end.append(act)
    loop.at_close.append(graphs.clear)


@habit
def plain_graph(loop: Loop, _trainer: Trainer) -> None:
    use_plain_graph(loop, False)


@habit
def plain_graph_multiplies(loop: Loop, _trainer: Trainer) -> None:
    use_plain_graph(loop, True)


@habit
def allocates_between(loop: Loop, _trainer: Trainer) -> None:
    """Tensors that come and go, and hold what was put there."""
    kept: List[Tuple[int, torch.Tensor]] = []

    def act() -> None:
        for value, tensor in kept:
            if not bool((tensor == value).all()):
                raise Damaged("a tensor that the program keeps between calls has changed")
        if len(kept) > 3:
            del kept[loop.rng.randrange(len(kept))]
        kept.append((loop.call, torch.full((loop.rng.choice((1 << 10, 1 << 18, 1 << 20)),), loop.call, device="cuda",
                                           dtype=torch.int32)))

    loop.before_call.append(act)
    loop.after_call.append(act)
    loop.at_close.append(kept.clear)


@habit
def empties_the_cache(loop: Loop, _trainer: Trainer) -> None:
    loop.after_call.append(lambda: torch.cuda.empty_cache() if loop.is_turn(2) else None)


@habit
def collects_garbage(loop: Loop, _trainer: Trainer) -> None:
    loop.after_call.append(gc.collect)


@habit
def fails_to_allocate(loop: Loop, _trainer: Trainer) -> None:
    def act() -> None:
        if not loop.is_turn(3):
            return
        try:
            torch.zeros(1 << 38, device="cuda")
            loop.see("allocation of a TiB", "worked")
        except RuntimeError as error:
            if STICKY.search(str(error)):
                raise
            loop.see("allocation of a TiB", "failed")

    loop.after_call.append(act)


def receive(batch: Any, event: torch.cuda.Event) -> Any:
    current = torch.cuda.current_stream()
    current.wait_event(event)
    for part in batch:
        part.record_stream(current)
    return batch


@habit
def loader_thread(loop: Loop, _trainer: Trainer) -> None:
    """Copies the batches on a stream of its own, while the loop runs steps and captures."""
    ready: "queue.Queue[Any]" = queue.Queue(2)
    stop = threading.Event()
    side = torch.cuda.Stream()

    def give(item: Any) -> None:
        while not stop.is_set():
            with contextlib.suppress(queue.Full):
                ready.put(item, timeout=0.05)
                return

    def load() -> None:
        try:
            for call in range(loop.program.calls):
                with torch.cuda.stream(side):
                    batch = loop.device_batch(call)
                    torch.full((1 << 20,), 1.0, device="cuda")  # scratch
                    event = torch.cuda.Event()
                    event.record(side)
                give((batch, event))
        except Exception as error:  # the loop's to judge
            give(error)

    thread = threading.Thread(target=load, daemon=True)

    def next_batch() -> Any:
        if not thread.is_alive() and loop.call == 0:
            thread.start()
        item = ready.get(timeout=30)
        if isinstance(item, Exception):
            raise item
        return receive(*item)

    def end() -> None:
        stop.set()
        if thread.is_alive():
            thread.join(30)
        while not ready.empty():
            ready.get()

    loop.batch = next_batch
    loop.at_close.append(end)


@habit
def side_stream(loop: Loop, _trainer: Trainer) -> None:
    side = torch.cuda.Stream()

    def fetch() -> Any:
        with torch.cuda.stream(side):
            batch = loop.device_batch(loop.call)
            event = torch.cuda.Event()
            event.record(side)
        return receive(batch, event)

    loop.batch = fetch


@habit
def device_batches(loop: Loop, _trainer: Trainer) -> None:
    """The same tensors for each call, which the loop writes into."""
    mine = loop.device_batch(0)

    def fill() -> Any:
        for target, source in zip(mine, loop.host_batch(loop.call)):
            target.copy_(source, non_blocking=True)
        return mine

    loop.batch = fill
    loop.after_call.append(lambda: mine[0].fill_(float("nan")))  # the call has its copy


@habit
def two_shapes(loop: Loop, _trainer: Trainer) -> None:
    def batch() -> Any:
        whole = loop.host_batch(loop.call)
        return [part[:len(part) // 2] for part in whole] if loop.is_turn(3) else whole

    loop.batch = batch


@habit
def changes_weights(loop: Loop, trainer: Trainer) -> None:
    def change() -> None:
        if loop.is_turn(3):
            with torch.no_grad():
                for weight in list(trainer.model.parameters())[::2]:
                    weight.mul_(0.99)

    loop.after_call.append(change)


@habit
def averages_weights_between(loop: Loop, trainer: Trainer) -> None:
    averages = [weight.detach().clone() for weight in trainer.model.parameters()]

    def average() -> None:
        if loop.call % 2:
            with torch.no_grad():
                for mean, weight in zip(averages, trainer.model.parameters()):
                    mean.lerp_(weight, 0.1)

    loop.after_call.append(average)
    loop.at_end.append(lambda: loop.see("averages", averages))


@habit
def switches_modes(loop: Loop, trainer: Trainer) -> None:
    loop.before_call.append(lambda: trainer.model.train(not loop.is_turn(4)))


@habit
def freezes(loop: Loop, trainer: Trainer) -> None:
    weight = trainer.layer.weight
    loop.before_call.append(lambda: weight.requires_grad_(loop.call // 5 % 2 == 0))


@habit
def copies_the_model(loop: Loop, trainer: Trainer) -> None:
    def act() -> None:
        if loop.is_turn(5):
            loop.see("copy", [parameter.double().sum() for parameter in copy.deepcopy(trainer.model).parameters()])

    loop.after_call.append(act)


@habit
def raises(loop: Loop, _trainer: Trainer) -> None:
    failing = {loop.rng.randrange(loop.program.calls) for _ in range(2)}
    loop.arguments = lambda: {"fails": True} if loop.call in failing else {}


@habit
def pauses(loop: Loop, _trainer: Trainer) -> None:
    def act() -> None:
        if loop.is_turn(6):
            with loop.pg.paused():
                loop.see("paused call", loop.step(*loop.host_batch(loop.call)))

    # Not where the program's own calls are counted.
    if "position_in_a_cache" not in loop.program.habits:
        loop.after_call.append(act)


@habit
def resets(loop: Loop, _trainer: Trainer) -> None:
    loop.after_call.append(lambda: loop.step.reset() if loop.pg.is_real and loop.call == 6 else None)


def ask(loop: Loop, at: Tuple[int, ...], question: Callable[[Any], Any]) -> None:
    """Asks every graph that there is. A mismatch is a wrong value; any other refusal is an answer."""

    def act() -> None:
        if not loop.pg.is_real or loop.call not in at:
            return
        for step in loop.steps:
            for graph in [graph for graphs in step._graphs.values() for graph in graphs]:
                try:
                    question(graph.step)
                except loop.pg.PumpGraphError as error:
                    if error.status.name == "MISMATCH":
                        raise

    loop.after_call.append(act)


@habit
def replans(loop: Loop, _trainer: Trainer) -> None:
    ask(loop, loop.rng.choice(((5,), (4, 8), (9,))), lambda step: step.replan())


@habit
def validates(loop: Loop, _trainer: Trainer) -> None:
    ask(loop, loop.rng.choice(((5,), (4, 8), (9,))), lambda step: step.validate())


@habit
def measures(loop: Loop, _trainer: Trainer) -> None:
    ask(loop, (5,), lambda step: step.measure(3))


@habit
def observes(loop: Loop, _trainer: Trainer) -> None:
    ask(loop, (5,), lambda step: step.observe(1))


@habit
def reports(loop: Loop, _trainer: Trainer) -> None:
    def report(step: Any) -> None:
        str(step.report())
        with tempfile.TemporaryDirectory() as folder:
            step.save(Path(folder) / "step.mlir")

    ask(loop, (4, 7), report)


# ---- plain and graphed -----------------------------------------------------------------------------------------------


class Plain:
    """Stands where pumpgraph does: the program as it is. Arguments come to the device, as they do there."""

    is_real = False

    class PumpGraphError(Exception):
        """Never raised."""

    @staticmethod
    def graphed(function: Callable[..., Any], **_options: Any) -> Callable[..., Any]:
        def step(*args: Any, **kwargs: Any) -> Any:
            args, kwargs = tree_map(lambda v: v.cuda() if isinstance(v, torch.Tensor) else v, (args, kwargs))
            return tree_map(lambda v: v.detach() if isinstance(v, torch.Tensor) else v, function(*args, **kwargs))

        return step

    @staticmethod
    @contextlib.contextmanager
    def paused() -> Iterator[None]:
        yield

    @staticmethod
    @contextlib.contextmanager
    def mapped(*_things: Any) -> Iterator[None]:
        yield


class Real:
    is_real = True

    def __init__(self) -> None:
        import pumpgraph

        self.graphed, self.paused, self.mapped = pumpgraph.graphed, pumpgraph.paused, pumpgraph.mapped
        self.PumpGraphError = pumpgraph.PumpGraphError


def clean_up() -> None:
    """Every program finds the same, whatever became of the one before."""
    gc.collect()
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    torch.clear_autocast_cache()
    torch.set_grad_enabled(True)


def run_plain(program: Program) -> List[Tuple[str, Any]]:
    loop = Loop(program, Plain())
    try:
        loop.run()
        return loop.observed
    finally:
        loop.close()


def judge(program: Program, pg: Real) -> Dict[str, Any]:
    """The verdict: equal, refused, wrong, crashed (the device is lost), or uncounted (plain PyTorch does not do it)."""
    try:
        expected = run_plain(program)
        clean_up()
        again = run_plain(program)
        clean_up()
    except Damaged as error:
        return {"verdict": "wrong", "why": f"{error}; the program is plain PyTorch"}
    except Exception as error:
        lost, why = STICKY.search(str(error)) is not None, f"plain PyTorch: {told(error)}"
        if not lost:
            error.__traceback__ = None  # it holds the program's tensors
            clean_up()
        return {"verdict": "crashed" if lost else "uncounted", "why": why}
    if again != expected:
        difference = first_difference(expected, again)
        return {"verdict": "uncounted", "why": f"plain PyTorch does not repeat itself: {difference}"}
    return judge_graphed(program, pg, expected)


def judge_graphed(program: Program, pg: Real, expected: List[Tuple[str, Any]]) -> Dict[str, Any]:
    loop = None
    try:
        loop = Loop(program, pg)
        loop.run()
        got = loop.observed
        verdict = {"verdict": "equal", "why": ""} if got == expected else {
            "verdict": "wrong", "why": first_difference(expected, got)}
    except pg.PumpGraphError as error:
        verdict = judge_refusal(error, expected, loop.observed if loop else [])
    except Exception as error:
        lost = STICKY.search(str(error)) is not None
        verdict = {"verdict": "crashed" if lost else "wrong", "why": f"plain PyTorch does not raise {told(error)}"}
    try:
        verdict.update(moves_of(loop))
        if loop is not None:
            loop.close()
            for step in loop.steps:
                step.reset()
        loop = step = None
        clean_up()
        if torch.ones(1000, device="cuda").sum().item() != 1000:
            raise Damaged("a sum of ones is wrong afterwards")
    except Exception as error:
        lost = STICKY.search(str(error)) is not None
        if lost or verdict["verdict"] in ("equal", "refused"):
            why = f"after the program, which was {verdict['verdict']}: {told(error)}; {verdict['why']}"
            verdict = {"verdict": "crashed" if lost else "wrong", "why": why}
    return verdict


def judge_refusal(error: Any, expected: List[Tuple[str, Any]], got: List[Tuple[str, Any]]) -> Dict[str, Any]:
    """A refusal has to say something, and all values until then have to be right."""
    text = " ".join(str(error).split())
    if error.status.name == "MISMATCH":
        return {"verdict": "wrong", "why": text}
    if got != expected[:len(got)]:
        return {"verdict": "wrong", "why": f"{first_difference(expected[:len(got)], got)}; refused later: {text}"}
    if len(text.split()) < 5:
        return {"verdict": "wrong", "why": f"refused without a reason: \"{text}\""}
    return {"verdict": "refused", "why": f"{type(error).__name__}: {text}"}


def moves_of(loop: Any) -> Dict[str, Any]:
    """Whether a plan of the program moved data, whether one ran nodes again, and why a step was left as captured."""
    moves, repeats, left = False, False, None
    for step in loop.steps if loop is not None else []:
        for graphs in step._graphs.values():
            for graph in graphs:
                report = graph.step.report()
                left = left or report.left_as_captured
                moves = moves or bool(report.get("added_nodes") or report.get("hosted_bytes")) and not left
                repeats = repeats or bool(report["repeated"]["nodes"]) and not left
    return {"moves": moves, "repeats": repeats, "left": left}


def first_difference(expected: List[Tuple[str, Any]], got: List[Tuple[str, Any]]) -> str:
    differ = [index for index, pair in enumerate(zip(expected, got)) if pair[0] != pair[1]]
    if not differ:
        return f"{len(got)} values instead of {len(expected)}"
    at = differ[0]
    kinds = sorted({got[index][0].split(" at call")[0] for index in differ})
    return (f"{len(differ)} of {len(expected)} values differ, the first is {got[at][0]}: {got[at][1]} instead of "
            f"{expected[at][0]}: {expected[at][1]}; of {', '.join(kinds[:6])}{', ...' if len(kinds) > 6 else ''}")


def told(error: BaseException) -> str:
    place = traceback.extract_tb(error.__traceback__)
    mine = [frame for frame in place if Path(frame.filename).name == Path(__file__).name]
    at = f" (line {mine[-1].lineno}: {mine[-1].line})" if mine else ""
    return f"{type(error).__name__}: {' '.join(str(error).split())[:400]}{at}"


def say(**line: Any) -> None:
    print(json.dumps(line), flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--budget", type=int, default=program_draws.BUDGET)
    parser.add_argument("--without", default="")
    parser.add_argument("seeds", nargs="+", type=int)
    arguments = parser.parse_args()
    faulthandler.enable()
    warnings.simplefilter("ignore")
    import pumpgraph

    pumpgraph.install(budget=arguments.budget, budget_of="tensors")
    torch.backends.cudnn.deterministic = True
    pg = Real()
    for seed in arguments.seeds:
        say(begin=seed)
        start = time.monotonic()
        verdict = judge(program_draws.draw(seed, filter(None, arguments.without.split(","))), pg)
        say(seed=seed, seconds=round(time.monotonic() - start, 2), **verdict)
        if verdict["verdict"] in ("wrong", "crashed"):
            break  # a process in doubt judges no more programs
    sys.stdout.flush()
    os._exit(0)  # a device that is lost may hang what Python does on its way out


if __name__ == "__main__":
    main()
