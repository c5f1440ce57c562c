#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""GPU tests of pumpgraph.graphed: training programs that run with and without it, and must print the same.

    graphed_cases.py --plain FOLDER [CASE...]
                                             programs as PyTorch runs them, by default all; leaves figures in FOLDER
    graphed_cases.py FOLDER [CASE...]        the same programs under PumpGraph, one after another in one process;
                                             `overhead`, `between_replays` and `turns_at_once`, which look at times,
                                             only if they are named;
                                             `warm_up_at_half`, which has a budget of its own, only if it alone is

A case gets `pg`, which is pumpgraph or a stand-in that does nothing, and returns what must be equal, bit for bit.
"""

import contextlib
import copy
import gc
import io
import json
import os
import pickle
import re
import statistics
import sys
import tempfile
import time
import traceback
import types
import warnings
import weakref
from pathlib import Path

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "runtime" / "python"))

import torch  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn import functional  # noqa: E402
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402
from torch.utils._pytree import tree_leaves, tree_map  # noqa: E402

noted = []  # what a case has to say on its line
ROWS, WIDTH, LAYERS = 2048, 1024, 8
LINK_BYTES_PER_MS = 50e6
WARM_UP_STEPS = 3  # of a plan, that a warm-up call may take; it takes 14 (docs/decisions/16-warm-up-and-host-memory.md)
OVERHEAD_OPERATORS = 3  # whose time a call may take beside CUDAGraph.replay()
SHARE = 0.6  # of what the plain program takes at its peak


class PlainPyTorch:
    """Stands in for pumpgraph: the program as it would be without."""

    is_real = False
    PumpGraphError = StaleStepError = UnsupportedError = type("NeverRaised", (Exception,), {})

    @staticmethod
    def graphed(fn=None, **_options):
        """As under PumpGraph, arguments are on the device, wherever the caller has them."""

        def wrap(function):
            def step(*args, **kwargs):
                args, kwargs = tree_map(on_device, (args, kwargs))
                return function(*args, **kwargs)

            return step

        return wrap if fn is None else wrap(fn)

    @staticmethod
    @contextlib.contextmanager
    def paused():
        yield

    @staticmethod
    @contextlib.contextmanager
    def mapped(*_things):
        yield


def on_device(value):
    return value.cuda(non_blocking=True) if isinstance(value, torch.Tensor) else value


class RealPumpGraph:
    """pumpgraph, and what cases have made with it."""

    is_real = True

    def __init__(self):
        import pumpgraph

        for name in ("PumpGraphError", "StaleStepError", "UnsupportedError", "paused", "mapped", "memory_stats"):
            setattr(self, name, getattr(pumpgraph, name))
        self._graphed = pumpgraph.graphed
        self._made = weakref.WeakSet()

    def graphed(self, fn=None, **options):
        if fn is None:
            return lambda function: self.graphed(function, **options)
        step = self._graphed(fn, **options)
        self._made.add(step)
        return step

    def close_all(self):
        """Whatever a case has left, and however it ended: no plan in force, no mode, no graph."""
        from pumpgraph import torch_capture

        torch_capture.installed().guard.rest()
        for step in list(self._made):
            for each in (step, *step._bound.values()):
                each.reset()
        gc.collect()


def check(condition, message):
    if not condition:
        raise AssertionError(message)


def bits(value):
    return value.item().hex() if value.is_floating_point() else value.item()


def raises(kind, pattern, call):
    try:
        call()
    except kind as error:
        check(re.search(pattern, str(error)), f"\"{error}\" does not say {pattern}")
        return str(error)
    raise AssertionError(f"not refused; expected a {kind.__name__} that says {pattern}")


def make_model(dropout=0.1, layers=LAYERS):
    torch.manual_seed(0)
    parts = [part for _ in range(layers) for part in (nn.Linear(WIDTH, WIDTH), nn.GELU(), nn.Dropout(dropout))]
    return nn.Sequential(*parts, nn.Linear(WIDTH, 1)).cuda()


def make_optimizer(parameters, **options):
    options = {"lr": torch.tensor(2e-4, device="cuda"), "fused": True, "capturable": True, **options}
    return torch.optim.AdamW(parameters, **options)


def make_batches(count=3, rows=ROWS, pinned=True):
    generator = torch.Generator().manual_seed(0)
    batches = [torch.randn(rows, WIDTH, generator=generator) for _ in range(count)]
    return [batch.pin_memory() for batch in batches] if pinned else batches


def loss_of(model, x):
    return (model(x).squeeze(1) - x[:, 0]).square().mean()


def usual_step(model, optimizer, x):
    loss = loss_of(model, x)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return loss


class Training:
    """What most programs have: a model, its optimizer, batches, and a step in the usual form."""

    def __init__(self, pg, layers=LAYERS, fused=True, **options):
        model = self.model = make_model(layers=layers)
        optimizer = self.optimizer = make_optimizer(model.parameters(), fused=fused, foreach=False)
        self.batches = make_batches()
        self.turn = 0

        @pg.graphed(**options)
        def step(x):
            return usual_step(model, optimizer, x)

        self.step = step

    def run(self, count):
        losses = []
        for _ in range(count):
            losses.append(bits(self.step(self.batches[self.turn % len(self.batches)])))
            self.turn += 1
        return losses


def was_rewritten(step):
    report = step.report()
    check(report.left_as_captured is None, f"left as captured: {report.left_as_captured}")
    check(report["added_nodes"] > 0, "nothing was moved: the budget is no test")


# ---- programs: the result is the same with and without ---------------------------------------------------------------


def fifty_steps(pg):
    """Warm-up calls are training steps; a scheduler changes a rate that is a tensor; dropout draws the same numbers."""
    training = Training(pg)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(training.optimizer, 50)
    losses = []
    for _ in range(50):
        losses += training.run(1)
        schedule.step()
    if pg.is_real:
        was_rewritten(training.step)
        noted.append(f"{training.step.report()['added_nodes']} nodes added")
    return losses


def loader_with_workers(pg):
    """Batches come from a worker process through a pin-memory thread while the step is captured and replayed."""
    training = Training(pg)
    data = torch.utils.data.TensorDataset(torch.cat(make_batches(4, pinned=False)))
    loader = torch.utils.data.DataLoader(data, batch_size=ROWS, num_workers=1, pin_memory=True)
    return [bits(training.step(x)) for _ in range(3) for x, in loader]


def prefetched_on_a_side_stream(pg):
    """Device tensors of another stream, given up right after the call."""
    training = Training(pg)
    side = torch.cuda.Stream()
    losses = []

    def fetch(index):
        with torch.cuda.stream(side):
            return training.batches[index % 3].cuda(non_blocking=True)

    following = fetch(0)
    for index in range(14):
        torch.cuda.current_stream().wait_stream(side)
        batch = following
        batch.record_stream(torch.cuda.current_stream())
        following = fetch(index + 1)
        losses.append(training.step(batch).clone())
    if pg.is_real:
        from pumpgraph import torch_capture

        streams = torch_capture.installed().recorded_streams
        for _ in range(2):  # noticed when the program has let go of it, let go of when the stream is past it
            torch.cuda.synchronize()
            streams.let_go()
        check(len(streams) <= 1, f"{len(streams)} batches are held for record_stream()")
    return [bits(loss) for loss in losses]


def batch_is_overwritten(pg):
    """The caller may write into its batch as soon as the call is back: the copy comes first in the stream."""
    training = Training(pg)
    mine = torch.empty(ROWS, WIDTH, device="cuda")
    losses = []
    for index in range(8):
        mine.copy_(training.batches[index % 3], non_blocking=True)
        losses.append(training.step(mine).clone())
        mine.fill_(float("nan"))
    return [bits(loss) for loss in losses]


def last_batch_and_evaluation(pg):
    """Epochs with a smaller last batch, and an evaluation in between: a graph each."""
    training = Training(pg, warmup=2)
    model = training.model

    @pg.graphed(warmup=1)
    def evaluate(x):
        with torch.no_grad():
            return loss_of(model, x)

    figures = []
    for _ in range(5):
        for batch in (*training.batches, training.batches[0][: ROWS // 2]):
            figures.append(bits(training.step(batch)))
        model.eval()
        figures += [bits(evaluate(batch)) for batch in training.batches]
        model.train()
    if pg.is_real:
        check(len(training.step.signatures()) == 2, f"{training.step.signatures()}")
        check(len(evaluate.signatures()) == 1, f"{evaluate.signatures()}")
        evaluate.reset()
    return figures


def nested_arguments(pg):
    """Tensors in dicts and tuples, by keyword, integers beside them; other values are other graphs."""
    model, batches = make_model(), make_batches()
    optimizer = make_optimizer(model.parameters())

    @pg.graphed
    def step(batch, *, weights, power=2):
        loss = ((model(batch["x"]).squeeze(1) - batch["more"][0]).abs() ** power * weights).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return {"loss": loss, "power": power}

    figures = []
    for index in range(16):
        x = batches[index % 3]
        out = step({"x": x, "more": (x[:, 0], "text")}, weights=torch.full((ROWS,), 1.0 + index), power=1 + index % 2)
        figures.append((bits(out["loss"]), out["power"]))
    if pg.is_real:
        check(len(step.signatures()) == 2, f"{step.signatures()}")
    return figures


def zero_grad_first(pg):
    """Gradients stay between calls, and are the last call's."""
    model, batches = make_model(), make_batches()
    optimizer = make_optimizer(model.parameters())

    @pg.graphed
    def step(x):
        optimizer.zero_grad(set_to_none=True)
        loss = loss_of(model, x)
        loss.backward()
        optimizer.step()
        return loss

    figures = []
    for index in range(8):
        figures.append(bits(step(batches[index % 3])))
        figures.append(bits(model[0].weight.grad.abs().sum()))
    return figures


def indexed_rows(pg):
    """Gradients of indexed reads: PyTorch works on copies, and checks indices, while a dispatch mode looks on."""
    model, batches = make_model(), make_batches()
    optimizer = make_optimizer(model.parameters())
    rows, columns = (torch.randint(0, most, (ROWS,), device="cuda") for most in (ROWS, WIDTH))

    @pg.graphed
    def step(x):
        optimizer.zero_grad()
        for layer in model[:-1]:
            x = layer(x)
            if isinstance(layer, nn.GELU):
                x = x[rows]
        loss = x[rows, columns].square().mean() + model[-1](x).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    losses = [bits(step(batches[index % len(batches)])) for index in range(12)]
    if pg.is_real:
        was_rewritten(step)
        unlike = [note for note in step.report()["runtime"]["notes"] if "every word that looks like" in note]
        check(not unlike, f"the rehearsal tells nothing: {unlike}")
    return losses


def accumulation(pg, set_to_none=True):
    """Gradients are added up over calls; clipping, update and an average of the weights are a graph of their own."""
    model, batches = make_model(), make_batches()
    average = copy.deepcopy(model).requires_grad_(False)
    optimizer = make_optimizer(model.parameters())

    @pg.graphed(warmup=2)
    def accumulate(x):
        loss = loss_of(model, x) / 2
        loss.backward()
        return loss

    @pg.graphed(warmup=2)
    def update():
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        optimizer.step()
        optimizer.zero_grad(set_to_none=set_to_none)
        with torch.no_grad():
            torch._foreach_lerp_(list(average.parameters()), list(model.parameters()), 0.1)
        return norm

    figures = []
    for index in range(16):
        figures.append(bits(accumulate(batches[index % 3])))
        if index % 2:
            figures.append(bits(update()))
    figures.append(bits(average[0].weight.sum()))
    if pg.is_real:
        accumulate.reset()
        update.reset()
    return figures


def accumulation_in_place(pg):
    return accumulation(pg, set_to_none=False)


def method_of_a_trainer(pg):
    """A decorated method; the model is found through the object."""

    class Trainer:
        def __init__(self):
            self.model = make_model()
            self.tools = types.SimpleNamespace(optimizer=make_optimizer(self.model.parameters()))
            self.last = None

        @pg.graphed
        def step(self, x):
            loss = loss_of(self.model, x)
            loss.backward()
            self.tools.optimizer.step()
            self.tools.optimizer.zero_grad(set_to_none=True)
            self.last = loss.detach()
            return loss

    batches, trainer = make_batches(), Trainer()
    figures = []
    for index in range(8):
        figures.append((bits(trainer.step(batches[index % 3])), bits(trainer.last)))
    if pg.is_real:
        was_rewritten(trainer.step)
        trainer.step.reset()
    return figures


def reading_and_writing_outside(pg):
    """Operators outside the step see true values, and what they write is kept."""
    training = Training(pg)
    model, optimizer = training.model, training.optimizer
    figures = []
    for index in range(12):
        figures += training.run(1)
        if index % 3 == 2:
            figures.append(bits(model[0].weight.sum()))
            figures.append(bits(optimizer.state[model[3].weight]["exp_avg"].abs().sum()))
            with torch.no_grad():
                model[6].weight.mul_(0.5)
        if index == 8:  # every parameter: more than are mapped one by one
            figures += [bits(parameter.sum()) for parameter in model.parameters()]
            model.eval()
            with torch.no_grad():
                figures.append(bits(loss_of(model, training.batches[0].cuda())))
            model.train()
    with pg.mapped(model):
        figures.append(bits(torch.from_dlpack(model[0].weight.detach()).sum()))
    return figures


def checkpoint_in_the_middle(pg):
    """torch.save() of all state, more training, then back: model, optimizer and random numbers."""
    training = Training(pg)
    model, optimizer = training.model, training.optimizer
    figures = training.run(6)
    file = io.BytesIO()
    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "random": torch.cuda.get_rng_state()}
    torch.save(state, file)
    first = training.run(3)
    file.seek(0)
    saved = torch.load(file)
    model.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
    torch.cuda.set_rng_state(saved["random"].cpu())
    training.turn = 6
    check(training.run(3) == first, "training from the checkpoint took another course")
    return figures + first


def manual_seed(pg):
    """Seeding between calls sets the numbers that replays draw."""
    training = Training(pg)
    figures = training.run(6)
    torch.manual_seed(5)
    figures += training.run(2)
    torch.manual_seed(5)
    figures.append(bits(torch.rand(3, device="cuda").sum()))
    return figures + training.run(2)


def paused_calls(pg):
    training = Training(pg)
    figures = training.run(6)
    with pg.paused():
        figures += training.run(2)
    return figures + training.run(3)


def gradients_from_outside(pg):
    """A backward pass between calls leaves gradients that the next step adds to and uses up: another graph."""
    training = Training(pg, warmup=2)
    figures = []
    for index in range(12):
        if index % 4 == 3:
            loss_of(training.model, training.batches[0].cuda()).backward()
        figures += training.run(1)
    if pg.is_real:
        check(len(training.step.signatures()) == 2, f"{training.step.signatures()}")
    return figures


def memory_figures(pg):
    """What programs print of device memory is true: of tensors that are alive, and of peaks since they were reset."""
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    tensor = torch.zeros(5 << 20, device="cuda", dtype=torch.uint8)
    grown = torch.cuda.memory_allocated() - before
    del tensor
    figures = [grown, torch.cuda.memory_allocated() - before, torch.cuda.max_memory_allocated() - before,
               torch.cuda.max_memory_allocated(0) == torch.cuda.max_memory_allocated("cuda")]
    torch.cuda.reset_peak_memory_stats()
    figures.append(torch.cuda.max_memory_allocated() - torch.cuda.memory_allocated())
    check("Allocated memory" in torch.cuda.memory_summary(), "the summary lacks a line")
    check(torch.cuda.memory_reserved() <= torch.cuda.max_memory_reserved(), "more is reserved than ever was")
    check(torch.cuda.mem_get_info()[0] > 0, "nothing is free")
    return figures


def writing_into_arguments(pg):
    """What a step writes into its argument stays in the copy, which the next call overwrites."""
    model, batches = make_model(), make_batches()
    optimizer = make_optimizer(model.parameters())

    @pg.graphed(warmup=2)
    def step(x):
        loss = usual_step(model, optimizer, x)
        with torch.no_grad():
            x.zero_()
        return loss

    return [bits(step(batches[index % 3])) for index in range(8)] + [bits(batch.sum()) for batch in batches]


def private_arguments(pg):
    """An argument may be memory that the step moves about: it is copied from where its value is."""
    model, batches = make_model(layers=3 * LAYERS), make_batches()  # weights and state alone exceed the budget
    optimizer = make_optimizer(model.parameters(), fused=False, foreach=False)

    @pg.graphed(warmup=2)
    def step(x, state):
        loss = loss_of(model, x) + state.sqrt().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss

    def state_of(layer):
        return optimizer.state[layer.weight].get("exp_avg_sq", torch.zeros_like(layer.weight.data))

    return [bits(step(batches[index % 3], state_of(model[3 * index]))) for index in range(3 * LAYERS)]


def freezing(pg):
    """Parameters that stop to get gradients are another graph, and so are modules that stop to train."""
    model, batches = make_model(), make_batches()
    optimizer = make_optimizer(model.parameters())

    @pg.graphed(warmup=1)
    def step(x):
        return usual_step(model, optimizer, x)

    figures = [bits(step(batches[index % 3])) for index in range(4)]
    model[0].weight.requires_grad_(False)
    model[2].eval()
    figures += [bits(step(batches[index % 3])) for index in range(4)]
    model[0].weight.requires_grad_(True)
    model[2].train()
    return figures + [bits(step(batches[index % 3])) for index in range(4)]


def as_made(pg, name, scheduled=True):
    """Options of an optimizer that nobody has made for captures; without PumpGraph, of its equal that is."""
    if pg.is_real or name.startswith(("Adafactor", "Adagrad")):
        return {"lr": 2.0**-12}
    if name == "SGD":
        return {"lr": torch.tensor(2.0**-12, device="cuda"), "fused": True} if scheduled else {"lr": 2.0**-12}
    return {"lr": torch.tensor(2.0**-12, device="cuda"), "capturable": True}


def usual_optimizers(pg):
    """As everybody makes them: a number as rate, changed by a scheduler, and nothing for captures. Without PumpGraph
    they are made for captures, where they can. What they save loads into one that nobody has prepared, and the other
    way round."""
    kinds = {"AdamW": {}, "Adam": {"amsgrad": True}, "NAdam": {}, "RAdam": {}, "Adamax": {}, "Adadelta": {},
             "RMSprop": {"momentum": 0.9}, "SGD": {"momentum": 0.9, "nesterov": True}, "Adafactor": {},
             "Adafactor with a decay": {"weight_decay": 0.1, "maximize": True, "d": 1.5, "beta2_decay": -0.7},
             "Adagrad": {}, "Adagrad with decays": {"lr_decay": 0.1, "weight_decay": 0.1}}
    batches, losses = make_batches(), []
    for name, options in kinds.items():
        kind, model = getattr(torch.optim, name.split()[0]), make_model(layers=2)
        optimizer = kind(model.parameters(), **options, **as_made(pg, name))
        scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda turn: 0.5 ** (turn // 2))

        def step(x, model=model, optimizer=optimizer):
            loss = loss_of(model, x)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            return loss

        graphed = pg.graphed(step, warmup=2)
        for turn in range(10):
            losses.append(bits(graphed(batches[turn % len(batches)])))
            scheduler.step()
        if not pg.is_real:
            continue
        group, saved = optimizer.param_groups[0], optimizer.state_dict()
        check(group["lr"] == 2.0**-17 and group.get("capturable", False) is False, f"{name} shows {group}")
        counts = [state["step"] for state in saved["state"].values() if "step" in state]
        check(not any(count.is_cuda for count in counts), f"{name} saves counts that are on the device")
        check(all(count.item() == 10 for count in counts), f"{name} has counted {counts[:1]}")
        unprepared = kind(make_model(layers=2).parameters(), lr=1.0, **options)
        unprepared.load_state_dict(saved)
        optimizer.load_state_dict(unprepared.state_dict())
        losses_after = bits(graphed(batches[0]))
        check(losses_after == losses_after, f"{name} has lost its state")
    noted.append(f"{len(kinds)} optimizers")
    return losses


def computed_rates(pg):
    """Adafactor and Adagrad compute their rates with doubles, and round where PyTorch does."""
    figures, dtypes = [], (torch.float32, torch.bfloat16, torch.float16)
    # A double shows how powers are rounded.
    kinds = ((torch.optim.Adafactor, {"lr": 0.4, "weight_decay": 0.01}, dtypes),
             (torch.optim.Adagrad, {"lr": 0.1, "lr_decay": 0.3, "weight_decay": 0.01, "maximize": True},
              (*dtypes, torch.float64)))
    for kind, options, dtypes in kinds:
        for dtype in dtypes:
            parameters = [nn.Parameter(torch.linspace(-1.0, 1.0, 4800, device="cuda").view(shape).to(dtype))
                          for shape in ((60, 80), (4800,), (3, 40, 40))]
            optimizer = kind(parameters, **options)

            @pg.graphed(warmup=2)
            def step(x, parameters=parameters, optimizer=optimizer):
                for parameter in parameters:
                    parameter.grad = (parameter.detach() * 3 + x).sin()
                optimizer.step()
                optimizer.zero_grad(set_to_none=True)
                return torch.stack([parameter.detach().double().sum() for parameter in parameters])

            for turn in range(12):
                sums = step(torch.full((), 0.25 * turn, dtype=dtype, device="cuda"))
                figures += [value.hex() for value in sums.tolist()]
    return figures


def mixed_precision_with_scaler(pg):
    """GradScaler with a fused optimizer asks the device, not the host."""
    model, batches = make_model(), make_batches()
    optimizer = make_optimizer(model.parameters())
    scaler = torch.amp.GradScaler("cuda", init_scale=2.0**40, growth_interval=4)  # overflows at first

    @pg.graphed(warmup=3)
    def step(x):
        with torch.autocast("cuda", dtype=torch.float16):
            loss = loss_of(model, x)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad(set_to_none=True)
        return loss

    figures = []
    for index in range(30):
        figures.append(bits(step(batches[index % 3])))
        figures.append(scaler.get_scale())
    return figures


def unfused_scaler(pg):
    """GradScaler with optimizers that are not fused. The first update is left out, and so are some in replays: weights,
    state and counts of steps stay as they were."""
    batches, figures = make_batches(), []
    kinds = {"AdamW": {"amsgrad": True}, "SGD": {"momentum": 0.9}, "RMSprop": {}, "Adafactor": {"lr": 0.5},
             "Adagrad": {}}  # from the fifth step on Adafactor's rate is the smaller one of its count
    for name, options in kinds.items():
        model = make_model(layers=LAYERS if name == "AdamW" else 2)  # AdamW's needs several parts
        options = {**as_made(pg, name, scheduled=False), **options}
        optimizer = getattr(torch.optim, name)(model.parameters(), **options)
        scaler = torch.amp.GradScaler("cuda", growth_interval=3)

        @pg.graphed(warmup=1)
        def step(x, model=model, optimizer=optimizer, scaler=scaler):
            with torch.autocast("cuda", dtype=torch.float16):
                loss = loss_of(model, x)
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad(set_to_none=True)
            return loss

        for turn in range(12):
            figures.append(bits(step(batches[turn % 3] * (1e8 if turn in (0, 5, 6, 9) else 1.0))))
            figures.append(scaler.get_scale())
        tensors = [tensor for parameter in model.parameters() for tensor in (parameter, *[
            value for _, value in sorted(optimizer.state[parameter].items()) if isinstance(value, torch.Tensor)])]
        figures += [bits(tensor.detach().double().sum()) for tensor in tensors]
        counts = {state["step"].item() for state in optimizer.state.values() if "step" in state}
        check(len(counts) < 2 and all(count <= 8 for count in counts), f"{name} has counted {counts}")
    return figures


def autocast_outside(pg):
    """The caller's autocast, whose cache must not keep the weights of the capture."""
    training = Training(pg)
    figures = []
    for _ in range(8):
        with torch.autocast("cuda", dtype=torch.bfloat16):
            figures += training.run(1)
    return figures


def reads_in_inference_mode(pg):
    """There a mode sees to(), reshape() and autocast's casts whole: declared to make views, they copy."""
    training, figures = Training(pg, layers=3 * LAYERS, fused=False), []
    for _ in range(4):
        figures += training.run(2)
        training.model.eval()
        with torch.inference_mode():
            figures += [bits(value.cpu().double().sum()) for value in training.model.state_dict().values()]
            figures += [bits(weight.to(torch.float64).reshape(-1).sum()) for weight in training.model.parameters()]
            with torch.autocast("cuda", dtype=torch.bfloat16):
                figures.append(bits(loss_of(training.model, training.batches[0].cuda())))
        training.model.train()
    return figures


def grouped_products(pg):
    """A mixture of experts by PyTorch's grouped product, whose kernels find their operands in a table of addresses that
    another kernel writes."""
    torch.manual_seed(0)
    experts = [nn.Parameter(torch.randn(8, 1024, 1024, device="cuda", dtype=torch.bfloat16) / 32) for _ in range(4)]
    optimizer = make_optimizer(experts)
    ends = torch.arange(1, 9, device="cuda", dtype=torch.int32) * 64  # of each expert's rows
    batches = [batch[:, :1024].reshape(-1, 1024)[:512].contiguous().pin_memory() for batch in make_batches()]

    @pg.graphed(warmup=2)
    def step(x):
        y = x.bfloat16()
        for weights in experts:
            y = y + torch._grouped_mm(y, weights, offs=ends).relu()
        loss = y.float().square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss

    return [bits(step(batches[turn % len(batches)])) for turn in range(8)]


def attention_and_checkpointing(pg):
    """Scaled dot-product attention in bfloat16, with activations computed again in the backward pass."""
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.utils.checkpoint import checkpoint

    torch.manual_seed(0)
    parts = nn.ModuleList(nn.Linear(512, 3 * 512) for _ in range(4)).cuda()
    optimizer = make_optimizer(parts.parameters())
    batches = [batch[:, :512].reshape(4, 512, 512).contiguous().pin_memory() for batch in make_batches()]

    def block(part, x):
        query, key, value = part(x).view(4, 512, 3, 8, 64).permute(2, 0, 3, 1, 4)
        with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
            mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        return x + mixed.transpose(1, 2).reshape(x.shape)

    @pg.graphed
    def step(x):
        with torch.autocast("cuda", dtype=torch.bfloat16):
            y = x
            for part in parts:
                y = checkpoint(block, part, y, use_reentrant=False, preserve_rng_state=False)
            loss = (y - x.flip(1)).float().square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss

    return [bits(step(batches[index % 3])) for index in range(8)]


def checkpointing_with_dropout(pg):
    """Activation checkpoints as they are by default: the numbers of the forward pass are drawn again."""
    from torch.utils.checkpoint import checkpoint

    torch.manual_seed(0)
    blocks = nn.ModuleList(nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.GELU(), nn.Dropout(0.3)) for _ in range(4)).cuda()
    optimizer, batches = make_optimizer(blocks.parameters()), make_batches()

    def two_blocks(x):
        return checkpoint(blocks[3], functional.dropout(blocks[2](x), 0.2), use_reentrant=False)

    @pg.graphed
    def step(x):
        y = functional.dropout(checkpoint(blocks[0], x, use_reentrant=False), 0.1)
        y = functional.dropout(checkpoint(blocks[1], y, use_reentrant=True), 0.1)
        loss = (checkpoint(two_blocks, y, use_reentrant=False) - x).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss

    figures = [bits(step(batches[index % 3])) for index in range(8)]
    return figures + [bits(torch.rand(3, device="cuda").sum()), bits(blocks[0][0].weight.sum())]


def averaged_weights(pg):
    """AveragedModel, updated between calls, and evaluated."""
    training = Training(pg)
    averages = [torch.optim.swa_utils.AveragedModel(training.model, **options) for options in (
        {}, {"multi_avg_fn": torch.optim.swa_utils.get_ema_multi_avg_fn(0.9), "use_buffers": True})]
    figures = []
    for _ in range(8):
        figures += training.run(1)
        for average in averages:
            average.update_parameters(training.model)
    for average in averages:
        average.eval()
        with torch.no_grad():
            figures.append(bits(loss_of(average, training.batches[0].cuda())))
        figures += [bits(parameter.detach().sum()) for parameter in average.parameters()]
    return figures


def averaged_weights_in_the_step(pg):
    """AveragedModel counts on the host; its average alone can be part of the step."""
    model, batches = make_model(layers=2), make_batches()
    average = torch.optim.swa_utils.AveragedModel(
        model, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.9))
    optimizer = make_optimizer(model.parameters())

    @pg.graphed(warmup=2)
    def counting(x):
        loss = usual_step(model, optimizer, x)
        average.update_parameters(model)
        return loss

    @pg.graphed(warmup=2)
    def averaging(x):
        loss = usual_step(model, optimizer, x)
        with torch.no_grad():
            average.multi_avg_fn(list(average.module.parameters()), list(model.parameters()), 1)
        return loss

    figures = [bits(counting(batches[index])) for index in range(2)]
    if pg.is_real:
        raises(pg.UnsupportedError, "n_averaged.*that the step changes", lambda: counting(batches[2]))
    figures += [bits(averaging(batches[index % 3])) for index in range(6)]
    return figures + [bits(parameter.detach().sum()) for parameter in average.parameters()]


def clipping_outside(pg):
    """A step of forward and backward alone: gradients are clipped and used up by operators between calls."""
    model, batches = make_model(), make_batches()
    optimizer = make_optimizer(model.parameters())

    @pg.graphed
    def step(x):
        loss = loss_of(model, x)
        loss.backward()
        return loss

    figures = []
    for index in range(8):
        figures.append(bits(step(batches[index % 3])))
        figures.append(bits(nn.utils.clip_grad_norm_(model.parameters(), 0.1)))
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    return figures


def hyperparameter_changes(pg):
    """A number that the captured step keeps is changed: an error, and after reset() the right losses."""
    training = Training(pg)
    figures = training.run(6)
    training.optimizer.param_groups[0]["weight_decay"] = 0.5
    if pg.is_real:
        raises(pg.StaleStepError, "weight_decay.*was 0.01 .* is 0.5.*reset", lambda: training.run(1))
        training.step.reset()
    return figures + training.run(6)


def new_parameters(pg):
    """A layer is replaced and gets a param group: errors, and after reset() the right losses."""
    training = Training(pg)
    figures = training.run(5)
    torch.manual_seed(1)
    training.model[0] = nn.Linear(WIDTH, WIDTH).cuda()
    if pg.is_real:
        raises(pg.StaleStepError, "replaced, added or removed", lambda: training.run(1))
        training.step.reset()
    figures += training.run(5)
    training.optimizer.add_param_group({"params": list(training.model[0].parameters())})
    if pg.is_real:
        raises(pg.StaleStepError, "had 1 param groups and has 2", lambda: training.run(1))
        training.step.reset()
    return figures + training.run(5)


def item_in_the_step(pg):
    """What waits for the device is refused with the line, and all goes on: random numbers, gradients, captures."""
    model, batches = make_model(), make_batches()
    optimizer = make_optimizer(model.parameters())

    @pg.graphed(warmup=2)
    def curious(x):
        loss = loss_of(model, x)
        loss.item()  # here
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss

    figures = [bits(curious(batches[index])) for index in range(2)]
    if pg.is_real:
        raises(pg.UnsupportedError, r"graphed_cases\.py:\d+: \"loss\.item\(\)", lambda: curious(batches[0]))
        raises(pg.UnsupportedError, "here", lambda: curious(batches[0]))
    training = Training(pg)
    figures += training.run(6)
    figures.append(bits(functional.dropout(torch.ones(1000, device="cuda")).sum()))
    return figures


def split_item_branch(pg):
    """A branch on a value of the device, between the forward and the backward pass, goes both ways: the forward pass's
    graph serves two backward passes, the second of which is captured calls later."""
    model, taken = make_model(), []
    batches = [(batch * scale).pin_memory() for batch, scale in zip(make_batches(4, pinned=False), (1, 1, 8, 1))]
    optimizer = make_optimizer(model.parameters())

    @pg.graphed(warmup=2, split=True)
    def step(x):
        loss = loss_of(model, x)
        if loss.item() > 8:
            taken.append("large")
            (loss * 2).backward()
            optimizer.step()
        else:
            taken.append("small")
            loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss

    figures = [bits(step(batches[index % 2])) for index in range(5)]
    figures += [bits(step(batches[index % 4])) for index in range(15)]
    figures += [bits(parameter.detach().double().sum()) for parameter in model.parameters()]
    check({*taken[8:]} == {"large", "small"}, f"no branch: {taken}")
    if pg.is_real:
        shows_pieces(step, 3)
    return [*figures, *taken]


def shows_pieces(step, least):
    """That pieces were rewritten, share a boundary, and are right."""
    reports = [piece.report() for piece in step.pieces()]
    check(len(reports) >= least, f"{len(reports)} pieces")
    for report in reports:
        check(report.left_as_captured is None, f"left as captured: {report.left_as_captured}")
    noted.append(", ".join(str(report["runtime"]["boundary"]) for report in reports))
    for result in step.validate():
        check(result.different_buffers == 0, f"{result}")


class Adversaries:
    """Two networks that are trained in turns. Each step begins with the gradients of its own, so that the maker's
    leaves some to the critic."""

    def __init__(self, pg, layers=LAYERS):
        torch.manual_seed(0)

        def network(out):
            parts = [part for _ in range(layers) for part in (nn.Linear(WIDTH, WIDTH), nn.LeakyReLU(0.2))]
            return nn.Sequential(*parts, nn.Linear(WIDTH, out)).cuda()

        critic, maker = self.networks = network(1), network(WIDTH)
        optimizers = [make_optimizer(each.parameters()) for each in self.networks]

        @pg.graphed
        def judge(real, noise):
            critic.zero_grad()
            with torch.no_grad():
                fake = maker(noise)
            loss = critic(fake).mean() - critic(real).mean()
            loss.backward()
            optimizers[0].step()
            return loss

        @pg.graphed
        def make(noise):
            maker.zero_grad()
            loss = -critic(maker(noise)).mean()
            loss.backward()
            optimizers[1].step()
            return loss

        self.steps = judge, make
        self.batches = [batch.cuda() for batch in make_batches(pinned=False)]

    def turn(self, index):
        real, noise = self.batches[index % 3], self.batches[(index + 1) % 3]
        return self.steps[0](real, noise), self.steps[1](noise)

    def exchanges(self):
        return sum(step.report()["runtime"]["exchanges"] for step in self.steps)

    def share(self, exchanges):
        for step in self.steps:
            was_rewritten(step)
            runtime = step.report()["runtime"]
            check(str(runtime["boundary"]).startswith("shared"), f"boundary {runtime['boundary']}: {runtime['notes']}")
        check(self.exchanges() == exchanges, f"{self.exchanges() - exchanges} exchanges")


def adversaries_in_turns(pg):
    """The first step is planned again for the second, so that no turn exchanges plans; the values are the same."""
    both = Adversaries(pg)
    figures, exchanges = [], 0
    for index in range(16):
        figures += [bits(loss) for loss in both.turn(index)]
        if index == 5 and pg.is_real:
            exchanges = both.exchanges()
    figures += [bits(parameter.detach().double().sum()) for each in both.networks for parameter in each.parameters()]
    if pg.is_real:
        both.share(exchanges)
        noted.append(f"planned again: {both.steps[1].report().planned_again}")
    return figures


def split_scaler(pg):
    """GradScaler asks the host whether an unfused optimizer may step, and the optimizer does not in two calls."""
    model, batches = make_model(), make_batches()
    batches.append(torch.full_like(batches[0], float("inf")).pin_memory())
    optimizer = make_optimizer(model.parameters(), fused=False)
    scaler = torch.amp.GradScaler("cuda", growth_interval=4)

    @pg.graphed(warmup=2, split=True)
    def step(x):
        with torch.autocast("cuda", dtype=torch.float16):
            loss = loss_of(model, x)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad(set_to_none=True)
        return loss

    figures = []
    for index in range(18):
        figures += [bits(step(batches[3 if index in (8, 13) else index % 3])), scaler.get_scale()]
    figures += [bits(parameter.detach().double().sum()) for parameter in model.parameters()]
    if pg.is_real:
        shows_pieces(step, 2)
    return figures


def split_logging(pg):
    """What is logged inside of the step is logged in each call, and results are the program's to keep."""
    model, batches, history = make_model(), make_batches(), []
    optimizer = make_optimizer(model.parameters())

    @pg.graphed(warmup=2, split=True)
    def step(x):
        loss = loss_of(model, x)
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        history.append((loss.item().hex(), bits(norm)))
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss, norm

    results = [step(batches[index % 3]) for index in range(12)]
    if pg.is_real:
        shows_pieces(step, 2)
    return [history, [[bits(value) for value in result] for result in results]]


def split_between_reads(pg):
    """Code between writes what a piece has made, and computes what the next one takes; a helper waits for the device,
    which only a capture finds out."""
    model, batches = make_model(), make_batches()
    optimizer = make_optimizer(model.parameters())

    def is_odd(value):
        return int(value.item() * 1000) % 2 == 1

    @pg.graphed(warmup=2, split=True)
    def step(x):
        weights = torch.ones(len(x), device="cuda")
        noise = torch.rand((), device="cuda")
        odd = is_odd(noise)
        if odd:
            weights[: len(x) // 2] = noise.item()
        output = model(x * weights[:, None]).squeeze(1)
        loss = (output - x[:, 0]).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss

    figures = [bits(step(batches[index % 3])) for index in range(16)]
    if pg.is_real:
        shows_pieces(step, 2)
    return figures


def validates(pg):
    training = Training(pg)
    figures = training.run(6)
    if pg.is_real:
        for result in training.step.validate():
            check(result.compared_buffers > 0 and result.different_buffers == 0, f"{result}")
    return figures + training.run(3)


# ---- what only PumpGraph says ----------------------------------------------------------------------------------------


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, x):
        return x + self.down(functional.gelu(self.up(x)))


def names_by_module(pg):
    """Nodes and buffers are called after modules: forward, backward, recomputed. What is compiled keeps its symbols."""
    from torch.utils.checkpoint import checkpoint

    first, again, compiled = Layer().cuda(), Layer().cuda(), Layer().cuda()
    compiled.compile()
    model = nn.ModuleDict({"first": first, "again": again, "compiled": compiled})
    optimizer = make_optimizer(model.parameters())

    @pg.graphed(warmup=2)
    def step(x):
        y = checkpoint(model["again"], model["first"](x), use_reentrant=False, preserve_rng_state=False)
        loss = (model["compiled"](y) - x).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss

    for index in range(5):
        step(make_batches()[index % 3])
    with tempfile.TemporaryDirectory() as place:
        step.save(Path(place) / "step.mlir")
        text = (Path(place) / "step.mlir").read_text()
    labels = set(re.findall(r'label\("([^"]*)"\)', text))
    for label in ("first.up forward (addmm)", "first forward (gelu)", "first.up backward (mm)",
                  "first backward (gelu_backward)", "again.up recomputed (addmm)", "again.down backward (mm)",
                  "_fused_adamw_"):
        check(label in labels, f"no node is called \"{label}\" among {sorted(labels)}")
    check(not any(label.startswith("compiled.") for label in labels), f"compiled modules have hooks: {sorted(labels)}")
    check(re.search(r'pump\.kernel "triton_\w+" node', text), "no compiled kernel, or all of them have labels")
    for buffer in ("first.up.weight", "gradient of first.up.weight", "exp_avg of first.up.weight", "first.up output"):
        check(f'pump.buffer "{buffer}"' in text, f"no buffer is called \"{buffer}\"")
    kernels = len(re.findall(r"pump\.kernel ", text))
    noted.append(f"{len(re.findall(r'label[(]', text))} labels, {kernels} kernels")


class WritesSeen(TorchDispatchMode):
    """Compares what every operator is given before and after it, with what is said of it to a capture."""

    def __init__(self):
        super().__init__()
        self.operators, self.wrong = set(), []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        self.operators.add(func.__name__)
        from pumpgraph.operators import memory_used

        used = memory_used(func, args, kwargs)
        said = used.read if used else []
        given = [value for value in tree_leaves((args, kwargs)) if isinstance(value, torch.Tensor)]
        memory = {tensor.untyped_storage().data_ptr(): tensor.untyped_storage() for tensor in given}
        before = {pointer: bytes_of(memory[pointer]).clone() for pointer in said}
        result = func(*args, **kwargs)
        for pointer, old in before.items():
            if not torch.equal(bytes_of(memory[pointer]), old):
                self.wrong.append(func.__name__)
        return result


def bytes_of(storage):
    return torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage)


def declared_reads_are_true(pg):
    """No operator writes what it is said only to read: run one by one, without a capture."""
    torch.use_deterministic_algorithms(False)
    image = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.RReLU(),
                          nn.InstanceNorm2d(8, track_running_stats=True), nn.ConvTranspose2d(8, 8, 3),
                          nn.GroupNorm(2, 8), nn.MaxPool2d(2), nn.Dropout(0.1)).cuda()
    words = nn.Embedding(100, 64, max_norm=1.0).cuda()
    bag = nn.EmbeddingBag(100, 64).cuda()
    recurrent = nn.LSTM(64, 64, 2, dropout=0.1).cuda()
    attention = nn.TransformerEncoderLayer(64, 4, 128).cuda()
    modules = nn.ModuleList([image, words, bag, recurrent, attention])
    average = [parameter.detach().clone() for parameter in modules.parameters()]
    optimizers = [kind(modules.parameters(), lr=1e-3, **options) for kind, options in (
        (torch.optim.AdamW, {"fused": True}), (torch.optim.Adam, {"foreach": True, "amsgrad": True}),
        (torch.optim.SGD, {"fused": True, "momentum": 0.9}), (torch.optim.SGD, {"foreach": True, "momentum": 0.9}),
        (torch.optim.RMSprop, {"capturable": True}), (torch.optim.Adagrad, {}), (torch.optim.NAdam, {}))]
    scaler = torch.amp.GradScaler("cuda")
    with WritesSeen() as seen:
        for optimizer in optimizers:
            recurrent.flatten_parameters()
            tokens = torch.randint(100, (12, 4), device="cuda")
            with torch.autocast("cuda"):
                hidden = attention(recurrent(words(tokens))[0])
                loss = image(torch.randn(2, 3, 16, 16, device="cuda")).square().mean() + bag(tokens).square().mean()
                loss = loss + functional.cross_entropy(hidden.flatten(0, 1) @ words.weight.t(), tokens.flatten())
            loss = loss + torch.fft.irfft(torch.fft.rfft(hidden.float(), dim=0), dim=0).square().mean()
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(modules.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
            with torch.no_grad():
                torch._foreach_lerp_(average, list(modules.parameters()), 0.1)
                torch.mm(words.weight, words.weight.t(), out=torch.empty(100, 100, device="cuda"))
                bag.weight[tokens[0]] = 0
                bag.weight[:10].index_add_(0, tokens[0] % 10, bag.weight[tokens[0]])
                torch.linalg.solve(torch.eye(8, device="cuda"), torch.ones(8, 2, device="cuda"))
    check(not seen.wrong, f"operators write what they are said only to read: {sorted(set(seen.wrong))}")
    check(len(seen.operators) > 60, f"only {sorted(seen.operators)} ran")
    noted.append(f"{len(seen.operators)} operators")


class PureTwice(TorchDispatchMode):
    """Runs what is said to be pure a second time, from the same state, and compares what comes out."""

    def __init__(self):
        super().__init__()
        self.operators, self.wrong = set(), set()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        from pumpgraph._session import OperationKind
        from pumpgraph.purity import kind_of
        from pumpgraph.tensors import has_memory, tensors_in

        kwargs = kwargs or {}
        given = [tensor for value in (*args, *kwargs.values()) for tensor in tensors_in(value)
                 if has_memory(tensor) and tensor.is_cuda]
        if not given or kind_of(func, args, kwargs) != OperationKind.PURE:
            return func(*args, **kwargs)
        memory = {tensor.untyped_storage().data_ptr(): tensor.untyped_storage() for tensor in given}
        before = {pointer: bytes_of(storage).clone() for pointer, storage in memory.items()}
        random = torch.cuda.get_rng_state()
        result = func(*args, **kwargs)
        once = [tensor.clone() for tensor in (*tensors_in(result), *given) if has_memory(tensor)]
        after = torch.cuda.get_rng_state()
        for pointer, value in before.items():
            bytes_of(memory[pointer]).copy_(value)
        torch.cuda.set_rng_state(random)
        again = func(*args, **kwargs)
        twice = [tensor.clone() for tensor in (*tensors_in(again), *given) if has_memory(tensor)]
        torch.cuda.set_rng_state(after)
        self.operators.add(func.__name__)
        if len(once) != len(twice) or not all(map(same_bits, once, twice)):
            self.wrong.add(func.__name__)
        return again


def same_bits(one, other):
    one, other = (torch.nan_to_num(each.float()) if each.is_floating_point() else each for each in (one, other))
    return one.shape == other.shape and torch.equal(one, other)


def pure_operators_reproduce(pg):
    """What is said to be pure does the same twice: operators one by one, without a capture."""
    torch.use_deterministic_algorithms(False)
    image = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(inplace=True), nn.Conv2d(8, 8, 3, groups=2),
                          nn.GroupNorm(2, 8), nn.SiLU(), nn.MaxPool2d(2), nn.AdaptiveAvgPool2d(4), nn.Dropout(0.1),
                          nn.Upsample(scale_factor=2, mode="bilinear"), nn.ConvTranspose2d(8, 8, 3)).cuda()
    words = nn.Embedding(1000, 64).cuda()
    attention = nn.TransformerEncoderLayer(64, 4, 128, batch_first=True).cuda()
    with PureTwice() as seen:
        for dtype in (torch.float32, torch.bfloat16):
            tokens = torch.randint(1000, (8, 128), device="cuda")
            with torch.autocast("cuda", dtype=dtype, enabled=dtype != torch.float32):
                hidden = attention(words(tokens))
                heads = hidden.unflatten(-1, (4, 16)).transpose(1, 2)
                seen_by = functional.scaled_dot_product_attention(heads, heads, heads, dropout_p=0.1, is_causal=True)
                picture = image(torch.randn(8, 3, 64, 64, device="cuda"))
                logits = hidden.flatten(0, 1) @ words.weight.t()
                functional.cross_entropy(logits, tokens.flatten()).item()
                torch.cat([hidden, seen_by.transpose(1, 2).flatten(2)], -1).softmax(-1).sum().item()
                picture.flatten(1).var(1).topk(4).values.sort().values.mean().item()
                hidden.where(hidden > 0, hidden.mean()).gather(1, tokens[:, :64, None].repeat(1, 1, 64) % 128)
                torch.bmm(heads.flatten(0, 1), heads.flatten(0, 1).transpose(1, 2)).tril().logsumexp(-1).amax()
                functional.gelu(functional.layer_norm(hidden, (64,))).norm().item()
    check(not seen.wrong, f"operators that are said to be pure do not reproduce: {sorted(seen.wrong)}")
    check(len(seen.operators) > 35, f"only {sorted(seen.operators)} ran")
    noted.append(f"{len(seen.operators)} operators")


def refusals(pg):
    model, batches = make_model(layers=2), make_batches(2)

    def step_with(optimizer):
        @pg.graphed(warmup=1)
        def step(x):
            return usual_step(model, optimizer, x)

        return step

    class Own(torch.optim.AdamW):
        pass

    scheduled = Own(model.parameters(), lr=1e-3, capturable=True)
    torch.optim.lr_scheduler.StepLR(scheduled, 2)
    raises(pg.UnsupportedError,
           r"learning rate of param group 0 of Own.*lr=torch\.tensor\(0\.001, device=\"cuda\"\)",
           lambda: step_with(scheduled)(batches[0]))
    raises(pg.UnsupportedError, r"capturable=False.*write Own\(\.\.\., capturable=True\)",
           lambda: step_with(Own(model.parameters(), lr=1e-3))(batches[0]))
    model.zero_grad(set_to_none=True)

    @pg.graphed(warmup=1, max_graphs=2)
    def forward(x):
        with torch.no_grad():
            return model(x).sum()

    forward(batches[0])
    forward(batches[0][:100])
    message = raises(pg.UnsupportedError, "max_graphs=2", lambda: forward(batches[0][:50]))
    check("float32[100, 1024]" in message and "float32[50, 1024]" in message, message)

    forward.reset()
    needs_gradient = torch.ones(4, WIDTH, device="cuda", requires_grad=True)
    raises(pg.UnsupportedError, "outside the step", lambda: forward(needs_gradient * 2))
    raises(pg.UnsupportedError, r"memory_stats\(\)", torch.cuda.reset_accumulated_memory_stats)
    torch.cuda.empty_cache()
    check(pg.memory_stats()["live_bytes"] > 0, "memory_stats() knows of no tensors")

    kept = [torch.zeros_like(parameter) for parameter in model.parameters()]

    @pg.graphed(warmup=1)
    def saves_old_gradients(x):
        for parameter, old in zip(model.parameters(), kept):
            if parameter.grad is not None:
                old.copy_(parameter.grad)
        model.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        return loss

    saves_old_gradients(batches[0])
    raises(pg.UnsupportedError, "gradients of the call before", lambda: saves_old_gradients(batches[0]))
    model.zero_grad()

    class Recurrent:
        def __init__(self):
            self.hidden = torch.zeros(WIDTH, device="cuda")

        @pg.graphed(warmup=1)
        def step(self, x):
            self.hidden = (self.hidden + x.mean(0)).tanh()
            return self.hidden.sum()

    recurrent = Recurrent()
    total = bits(recurrent.step(batches[0]))
    raises(pg.UnsupportedError, r"uses \"self\.hidden\".*self\.hidden\.copy_", lambda: recurrent.step(batches[0]))
    check(bits(recurrent.hidden.sum()) == total, "the refused call has changed an attribute")

    torch.backends.cudnn.benchmark = True
    raises(pg.UnsupportedError, r"cudnn\.benchmark",
           lambda: pg.graphed(lambda x: x + 1, on_unsupported="raise")(batches[0]))
    torch.backends.cudnn.benchmark = False

    for mode in ("reduce-overhead", "max-autotune"):
        compiled = torch.compile(model, mode=mode)
        raises(pg.UnsupportedError, mode, lambda: pg.graphed(lambda x: compiled(x))(batches[0]))

    raises(RuntimeError, "does not yet support shareI", lambda: batches[0].cuda().untyped_storage()._share_cuda_())

    with tempfile.TemporaryDirectory() as folder:
        store = f"file://{folder}/store"
        torch.distributed.init_process_group("nccl", init_method=store, rank=0, world_size=1)
        try:
            together = pg.graphed(lambda x: torch.distributed.barrier(), warmup=1)
            together(batches[0])
            raises(pg.UnsupportedError, "torch.distributed's barrier", lambda: together(batches[0]))
        finally:
            torch.distributed.destroy_process_group()

    parallel = nn.DataParallel(model, device_ids=[0])
    raises(pg.UnsupportedError, "DataParallel", lambda: pg.graphed(lambda x: parallel(x))(batches[0]))


def memory_snapshot(pg):
    """What PyTorch's viewer is given has the live tensors, the lines that made them, and the plan of a step."""
    from torch.cuda import _memory_viz

    memory = torch.cuda.memory
    older = torch.zeros(3 << 20, device="cuda", dtype=torch.uint8)

    def made_here(size=5 << 20):
        return torch.zeros(size, device="cuda", dtype=torch.uint8)

    def lines(entry):
        """Functions of this file, the innermost first."""
        return [frame["name"] for frame in entry["frames"] if frame["filename"].endswith("graphed_cases.py")]

    def live(segments):
        return {block["address"]: block for segment in segments for block in segment["blocks"]
                if block["state"] == "active_allocated"}

    def adds_up(segments):
        sizes = {sum(block[key] for block in live(segments).values()) for key in ("size", "requested_size")}
        check(sizes == {torch.cuda.memory_allocated()}, f"{sizes} bytes are alive, not {torch.cuda.memory_allocated()}")
        for segment in segments:
            check(sum(block["size"] for block in segment["blocks"]) == segment["total_size"], f"gaps in {segment}")

    memory._record_memory_history(max_entries=100000)
    try:
        kept = made_here()
        made_here(1 << 20)  # and freed
        training = Training(pg)
        training.run(6)
        was_rewritten(training.step)
        torch.cuda.synchronize()
        snapshot = memory._snapshot()
        own = [segment for segment in snapshot["segments"] if segment["device"] == 0]
        adds_up(own)
        adds_up(torch.cuda.memory_snapshot())
        blocks = live(own)
        check(blocks[older.data_ptr()]["frames"] == [], "frames of what was not recorded")
        made = lines(blocks[kept.data_ptr()])
        check(made[:2] == ["made_here", "memory_snapshot"], f"{made}")
        trace = snapshot["device_traces"][0]
        passing = [(event["action"], lines(event)[0]) for event in trace if event["size"] == 1 << 20 and lines(event)]
        check(("alloc", "made_here") in passing and ("free_completed", "memory_snapshot") in passing, f"{passing}")
        check(len(trace) > 50, f"{len(trace)} events of six steps")

        # The plan: in memory at any time what the report says at most.
        plans = len(snapshot["device_traces"]) - torch.cuda.device_count()
        check(plans == len(training.step.signatures()) == 1, f"{plans} plans")
        report, plan = training.step.report(), snapshot["device_traces"][-1]
        bytes_now = peak = 0
        for event in plan:
            bytes_now += {"alloc": 1, "free_completed": -1}.get(event["action"], 0) * event["size"]
            peak = max(peak, bytes_now)
        check(peak == report["peak_bytes"] <= report["budget_bytes"], f"{peak} bytes, not {report['peak_bytes']}")
        names = {event["frames"][0]["filename"] for event in plan}
        check(any("0.weight" in name for name in names), f"no names of the model: {sorted(names)[:9]}")
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "snapshot.pickle"
            training.step.memory_snapshot(path)
            check(len(pickle.loads(path.read_bytes())["device_traces"][0]) == len(plan), "another plan")
            memory._dump_snapshot(str(path))
            dump = pickle.loads(path.read_bytes())
            check(len(dump["device_traces"]) == len(snapshot["device_traces"]), "another dump")

        # PyTorch's own readers.
        for text in (_memory_viz.trace(snapshot), _memory_viz.segsum(snapshot), _memory_viz.trace_plot(snapshot),
                     _memory_viz.segment_plot(snapshot)):
            check(text, "PyTorch makes nothing of it")

        # In the middle of a capture, and once a step is gone.
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            result = kept + 1
            adds_up([segment for segment in memory._snapshot()["segments"] if segment["device"] == 0])
        graph.reset()
        del result
        training.step.reset()
        check(len(memory._snapshot()["device_traces"]) == torch.cuda.device_count(), "a plan of a step that is gone")
    finally:
        memory._record_memory_history(None)
    snapshot = memory._snapshot()
    check(not any(snapshot["device_traces"]), "events after recording")
    adds_up(snapshot["segments"])


def unfused_scaler_refusals(pg):
    """Where an update may be left out, what runs with it would run all the same."""
    model, batches = make_model(layers=2), make_batches()

    def step_with(optimizer):
        scaler = torch.amp.GradScaler("cuda")

        @pg.graphed(warmup=1)
        def step(x):
            with torch.autocast("cuda", dtype=torch.float16):
                loss = loss_of(model, x)
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad(set_to_none=True)
            return loss

        return step

    class Own(torch.optim.AdamW):
        pass

    hooked = torch.optim.AdamW(model.parameters(), lr=1e-3)
    hooked.register_step_post_hook(lambda *_args: model[0].weight.detach().mul_(0.9))
    for optimizer, pattern in ((make_optimizer(model.parameters(), fused=False), None),
                               (Own(model.parameters(), lr=1e-3, capturable=True),
                                r"graphed_cases\.py:\d+: \"scaler\.step\(optimizer\)"),
                               (hooked, "AdamW has hooks around its steps")):
        step = step_with(optimizer)
        step(batches[0])
        if pattern is None:
            step(batches[1])
        else:
            raises(pg.UnsupportedError, pattern, lambda: step(batches[1]))
        step.reset()


def stale_models(pg):
    """Converted, moved or deleted: an error, not a replay over somebody else's memory."""
    for change in (lambda model: model.half(), _swap_data):
        training = Training(pg, warmup=1)
        training.run(3)
        change(training.model)
        raises(pg.StaleStepError, r"has other memory|replaced|other parameters", lambda: training.run(1))
        training.step.reset()

    global the_model
    the_model = make_model(layers=2)

    @pg.graphed(warmup=1)
    def forward(x):
        with torch.no_grad():
            return the_model(x).sum()

    batch = make_batches(1)[0]
    forward(batch)
    forward(batch)
    del the_model
    gc.collect()
    raises(pg.StaleStepError, "the_model.*another object.*or gone", lambda: forward(batch))
    forward.reset()


def _swap_data(model):
    """As averages of weights are swapped in; the old memory stays alive."""
    model.kept = model[0].weight.data
    model[0].weight.data = model[0].weight.data.clone()


def private_values_move(pg):
    """Operators outside see what mapped() shows, whatever happens to be in the frames."""
    from pumpgraph import torch_capture

    training = Training(pg, layers=3 * LAYERS, fused=False)  # weights and state alone exceed the budget
    training.run(6)
    guard = torch_capture.installed().guard
    check(guard.armed, "no plan in force")
    model, state = training.model, training.optimizer.state
    tensors = [tensor for weight in model.parameters() if weight.dim() == 2
               for tensor in (weight, state[weight]["exp_avg"], state[weight]["exp_avg_sq"])]

    def sums():
        return [bits(tensor.detach().abs().sum()) for tensor in tensors]

    past_modes = torch._C._DisableTorchDispatch()
    blind = sums()
    del past_modes
    few = [bits(tensor.detach().abs().sum()) for tensor in tensors[:4]]
    check(len(guard.lent) == 4, f"{len(guard.lent)} tensors are lent")
    seen = sums()
    values = [tensor.detach() for tensor in tensors]
    together = list(map(bits, torch._foreach_norm(values)))
    check(together == [bits(torch._foreach_norm([value])[0]) for value in values],
          "values that are brought at once differ from those brought one by one")
    check(guard.armed, "the plan was taken back")
    scaled = tensors[1]
    with torch.no_grad():
        scaled.mul_(2)
        before = bits(scaled.detach().abs().sum())
        others = sums()  # which take its frames
        check(bits(scaled.detach().abs().sum()) == before, "what was written is lost")
        scaled.mul_(0.5)
    check(sums() == seen and others != seen, "values differ after others have had their frames")
    training.run(1)
    training.turn -= 1
    with pg.mapped(model, training.optimizer):
        after = sums()
    check(seen[:4] == few, "what is brought once more differs")
    check(sum(a != b for a, b in zip(seen, after)) > len(tensors) / 2, "a step changed less than half of its state")
    check(sums() == after, "operators see something else than mapped() shows")
    away = sum(a != b for a, b in zip(seen, blind))
    check(away > 0, "every value was at its address anyway: the case is no test")
    noted.append(f"{away} of {len(tensors)} values were not at their addresses")


class TimedLaunch:
    """A graph whose replays are timed."""

    def __init__(self, graph):
        self.graph, self.taken = graph, 0.0

    def __getattr__(self, name):
        return getattr(self.graph, name)

    def replay(self):
        start = time.perf_counter()
        self.graph.replay()
        self.taken = time.perf_counter() - start


def overhead(pg):
    """What a call takes on the host beside CUDAGraph.replay(), however many parameters the step has. The replay is
    timed within the call: by itself it takes now more, now less, by more than all the rest. An operator is timed after
    each call: a host that is busy, or a launch that leaves nothing in its caches, makes the one slower as it makes the
    other."""
    too_slow = []
    for layers in (8, 73, 299):
        parts = [part for _ in range(layers) for part in (nn.Linear(32, 32), nn.GELU(), nn.Dropout(0.1))]
        model = nn.Sequential(*parts, nn.Linear(32, 1)).cuda()
        step = step_of(pg, model, make_optimizer(model.parameters()))
        x = torch.ones(64, 32, device="cuda")
        for _ in range(8):
            step(x)
        launch = step._last.step._graph = TimedLaunch(step._last.step._graph)
        call, beside, operator = call_times(lambda: step(x), launch)
        native, inputs, stream = step._last.step._native, step._last._inputs, torch.cuda.current_stream().cuda_stream
        fits, load = host_times(step._last.fits, lambda: native.prepare_replay(stream, inputs.copies([x])))
        count = len(list(model.parameters()))
        noted.append(f"{count} parameters: call {call:.1f} us, beside the replay {beside:.1f}, of which to see that "
                     f"nothing has changed {fits:.1f}, to copy the argument {load:.1f}; an operator {operator:.1f}")
        if beside > OVERHEAD_OPERATORS * operator:
            too_slow.append(f"{beside:.1f} us with {count} parameters where an operator takes {operator:.1f} us")
        step.reset()
    print("\n".join(noted[-3:]))
    check(not too_slow, f"a call takes, beside its replay, {', '.join(too_slow)}; the limit is that of "
          f"{OVERHEAD_OPERATORS} operators")


def call_times(call, launch, times=50, rounds=14):
    """As host_times: of all of a call, of what is left without the launch, and of an operator after it."""
    best = [float("inf")] * 3
    one = torch.ones(1, device="cuda")
    for _ in range(rounds):
        taken = []
        for _ in range(times):
            torch.cuda.synchronize()
            start = time.perf_counter()
            call()
            all_of_it = time.perf_counter() - start
            torch.cuda.synchronize()
            start = time.perf_counter()
            one.add_(1)
            taken.append((all_of_it, all_of_it - launch.taken, time.perf_counter() - start))
        best = [min(least, statistics.median(kind) * 1e6) for least, kind in zip(best, zip(*taken))]
    return best


class Block(nn.Module):
    """As in a transformer, without attention, whose backward pass is not the same bit for bit each time."""

    def __init__(self, width):
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        return x + self.down(functional.gelu(self.up(self.norm(x))))


def timed_training(pg, steps=9, blocks=20, rows=1 << 14):
    """Losses of a training that takes 8 GiB, what each call took in seconds, and the step."""
    torch.manual_seed(0)
    model = nn.Sequential(*(Block(WIDTH) for _ in range(blocks)), nn.Linear(WIDTH, 1)).cuda().bfloat16()
    optimizer = make_optimizer(model.parameters())
    x = torch.randn(rows, WIDTH, device="cuda", dtype=torch.bfloat16)

    @pg.graphed(keep_first_plan=True)
    def step(x):
        return usual_step(model, optimizer, x)

    losses, seconds = [], []
    for _ in range(steps):
        torch.cuda.synchronize()
        start = time.perf_counter()
        loss = step(x)
        torch.cuda.synchronize()
        seconds.append(time.perf_counter() - start)
        losses.append(bits(loss))
    return losses, seconds, step


def settle(training):
    """Trains until no thread has planned the step again for a while: planning takes processors from what is timed."""
    planned = -1
    while planned != (planned := len(training.step.report()["runtime"]["plans"])):
        training.run(12)
        time.sleep(3)


def between_replays(pg):
    """What a loop does between two replays takes the time of the replay and of the bytes that it touches over the link,
    twice where it writes them, and three tenths of that."""
    training = Training(pg, layers=3 * LAYERS)  # weights and state alone exceed the budget
    training.run(6)
    settle(training)
    was_rewritten(training.step)
    weights = [parameter.detach() for parameter in training.model.parameters()]
    weights_ms = sum(weight.numel() * weight.element_size() for weight in weights) / LINK_BYTES_PER_MS
    x = training.batches[0].cuda()[:8]

    def evaluate():
        with torch.no_grad():
            training.model(x)

    def took_ms(besides):
        seconds = []
        for _ in range(8):
            torch.cuda.synchronize()
            start = time.perf_counter()
            training.run(1)
            besides()
            torch.cuda.synchronize()
            seconds.append(time.perf_counter() - start)
        return statistics.median(seconds) * 1e3

    alone = took_ms(lambda: None)
    loops = {"norms of all weights": (lambda: [weight.norm() for weight in weights], 1), "evaluation": (evaluate, 1),
             "foreach that writes them": (lambda: torch._foreach_mul_(weights, 1.0), 2)}
    took = {name: took_ms(besides) for name, (besides, _) in loops.items()}
    noted.append(f"replay {alone:.1f} ms, {', '.join(f'with {name} {ms:.1f}' for name, ms in took.items())}; "
                 f"the weights take {weights_ms:.1f} over the link")
    for name, (_, times) in loops.items():
        most = 1.3 * (alone + times * weights_ms)
        check(took[name] <= most, f"{noted[-1]}; {name} may take {most:.1f}")


def turns_at_once(pg):
    """Two steps in turns take what both predict, and 15 % of that."""
    both = Adversaries(pg)
    seconds, exchanges = [], 0
    for index in range(24):
        if index == 12:
            exchanges = both.exchanges()
        torch.cuda.synchronize()
        start = time.perf_counter()
        both.turn(index)
        torch.cuda.synchronize()
        seconds.append(time.perf_counter() - start)
    took = statistics.median(seconds[12:]) * 1e3
    both.share(exchanges)
    predicted = sum(step.report()["predicted_s"] for step in both.steps) * 1e3
    noted.append(f"{took:.1f} ms a turn of both, {predicted:.1f} predicted")
    check(took <= 1.15 * predicted, noted[-1])


def plain_training_and_peak():
    torch.cuda.reset_peak_memory_stats()
    losses, seconds, _ = timed_training(PlainPyTorch)
    noted.append(f"{statistics.median(seconds[1:]) * 1e3:.1f} ms a step")
    return {"losses": losses, "peak_bytes": torch.cuda.max_memory_allocated()}


def warm_up_at_half(pg, plain):
    """What a warm-up call takes beside a planned step where half of the memory is there. The first call also gets host
    memory, which the driver makes at 3 to 4 GB/s, and sets libraries up."""
    losses, seconds, step = timed_training(pg)
    was_rewritten(step)
    watched = next(iter(step._warm_ups.values()))
    planned, warm = statistics.median(seconds[4:]), min(seconds[1:3])
    noted.append(f"planned step {planned * 1e3:.1f} ms (predicted {step.report()['predicted_s'] * 1e3:.1f}); warm-up "
                 f"calls {', '.join(f'{each * 1e3:.1f}' for each in seconds[:3])} ms, the last {warm / planned:.2f} "
                 f"planned steps, with {watched.moved_bytes / 2**30:.2f} GiB moved for {watched.operators} operators; "
                 f"capture {seconds[3]:.2f} s")
    check(watched.moved_bytes > 0, "nothing was paged: the budget is no test")
    check(losses == plain["losses"], f"losses {losses}, not {plain['losses']}")
    check(warm <= WARM_UP_STEPS * planned, f"{noted[-1]}; the limit is {WARM_UP_STEPS}")


def step_of(pg, model, optimizer):
    @pg.graphed(warmup=1, keep_first_plan=True)
    def step(x):
        return usual_step(model, optimizer, x)

    return step


def host_times(*calls, times=100, rounds=7):
    """Of one call each, in microseconds, on an idle device: the best round's median, for other processes disturb."""
    best = [float("inf")] * len(calls)
    for _ in range(rounds):
        for index, call in enumerate(calls):
            taken = []
            for _ in range(times):
                torch.cuda.synchronize()
                start = time.perf_counter()
                call()
                taken.append(time.perf_counter() - start)
            best[index] = min(best[index], statistics.median(taken) * 1e6)
    return best


def convolutions_without_trials(pg):
    """cuDNN's trials are left out, with a warning; what it chooses without them is what it chose before."""
    torch.manual_seed(0)
    model = nn.Sequential(*(nn.Sequential(nn.Conv2d(32, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU())
                            for _ in range(6))).cuda()
    optimizer = make_optimizer(model.parameters())
    pictures = torch.randn(16, 32, 64, 64, device="cuda")

    @pg.graphed(warmup=2)
    def step(x):
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss

    if not pg.is_real:
        return [bits(step(pictures)) for _ in range(6)]
    torch.backends.cudnn.benchmark = True
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        losses = [bits(step(pictures)) for _ in range(6)]
    check(any("cudnn.benchmark" in str(warning.message) for warning in seen), "nothing was said")
    check(torch.backends.cudnn.benchmark, "the program's setting was changed")
    return losses


class Remembers(nn.Module):
    """Assigns an attribute and a buffer while it runs: the compiler follows nn.Module.__setattr__(), hooks and all."""

    def __init__(self):
        super().__init__()
        self.register_buffer("seen", torch.zeros((), device="cuda"))

    def forward(self, x):
        self.width = x.shape[-1]
        self.seen = x.detach().mean()
        return x


def compiled_model(pg):
    """torch.compile in its default mode, in the step and, with a plan in force, outside. Compared with the same code
    in paused(), for what is compiled in another process need not add up in the same order."""
    batches = make_batches()

    def train():
        model = nn.Sequential(Remembers(), make_model(layers=2))
        optimizer = make_optimizer(model.parameters())
        compiled = torch.compile(model, fullgraph=True)

        @pg.graphed
        def step(x):
            loss = loss_of(compiled, x)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            return loss

        figures = [bits(step(batches[index % 3])) for index in range(8)]
        model.eval()
        with torch.no_grad():
            figures.append(bits(loss_of(compiled, batches[0].cuda())))
        model.train()
        check(model[0].width == WIDTH, "an assignment is lost")
        figures.append(bits(model[0].seen))
        return figures + [bits(step(batches[index % 3])) for index in range(3)]

    with pg.paused():
        expected = train()
    got = train()
    check(got == expected, f"{got}, not {expected}")


PROGRAMS = [
    fifty_steps,
    loader_with_workers,
    prefetched_on_a_side_stream,
    batch_is_overwritten,
    last_batch_and_evaluation,
    nested_arguments,
    zero_grad_first,
    indexed_rows,
    accumulation,
    accumulation_in_place,
    method_of_a_trainer,
    reading_and_writing_outside,
    usual_optimizers,
    memory_figures,
    checkpoint_in_the_middle,
    manual_seed,
    paused_calls,
    gradients_from_outside,
    writing_into_arguments,
    private_arguments,
    freezing,
    computed_rates,
    mixed_precision_with_scaler,
    unfused_scaler,
    autocast_outside,
    reads_in_inference_mode,
    grouped_products,
    attention_and_checkpointing,
    checkpointing_with_dropout,
    averaged_weights,
    averaged_weights_in_the_step,
    clipping_outside,
    hyperparameter_changes,
    new_parameters,
    item_in_the_step,
    adversaries_in_turns,
    split_item_branch,
    split_scaler,
    split_logging,
    split_between_reads,
    convolutions_without_trials,
    validates,
]
CHECKS = [
    unfused_scaler_refusals,
    memory_snapshot,
    stale_models,
    private_values_move,
    names_by_module,
    declared_reads_are_true,
    pure_operators_reproduce,
    refusals,
    compiled_model,  # the slowest
]


def start_afresh():
    """Every case finds the same, whatever became of the one before."""
    noted.clear()
    torch.backends.cudnn.benchmark = False
    torch.use_deterministic_algorithms(True)
    torch.utils.deterministic.fill_uninitialized_memory = False
    torch.set_grad_enabled(True)
    torch.clear_autocast_cache()
    gc.collect()
    torch.manual_seed(0)


def passes(name, case, clean_up=lambda: None):
    """Runs a case and prints its line, with the last lines of the traceback where it fails."""
    start_afresh()
    start = time.monotonic()
    try:
        try:
            case()
        finally:
            clean_up()
    except Exception:
        trace = traceback.format_exc().strip().splitlines()
        trace = trace if len(trace) <= 25 else ["..."] + trace[-24:]
        print("\n    ".join([f"FAILED {name}", *(line[:400] for line in trace)]), flush=True)
        return False
    print("; ".join([f"ok     {name} ({time.monotonic() - start:.1f} s)", *noted]), flush=True)
    return True


def run_plain(folder, names):
    figures, failed = {}, 0

    def keep(name, compute):
        figures[name] = compute()
        (folder / "graphed.json").write_text(json.dumps(figures))

    def peak():
        Training(PlainPyTorch).run(3)
        return torch.cuda.max_memory_allocated()

    programs = {program.__name__: lambda program=program: program(PlainPyTorch) for program in PROGRAMS}
    for name, compute in {"peak_bytes": peak, warm_up_at_half.__name__: plain_training_and_peak, **programs}.items():
        if name in names or not names:
            failed += not passes(f"plain {name}", lambda: keep(name, compute))
    return 1 if failed else 0


def run_case(case, pg, figures):
    if case is warm_up_at_half:
        return case(pg, figures[case.__name__])
    result = case(pg)
    if case in PROGRAMS:
        check(case.__name__ in figures, "the program failed without PumpGraph already")
        expected = figures[case.__name__]
        got = json.loads(json.dumps(result))  # tuples are lists there
        if got != expected:
            differ = [index for index, pair in enumerate(zip(got, expected)) if pair[0] != pair[1]]
            at = differ[0] if differ else min(len(got), len(expected))
            raise AssertionError(f"figure {at} of {len(expected)} differs: {got[at:at + 3]}, not {expected[at:at + 3]}")


def main():
    if len(sys.argv) < 2 or sys.argv[1:] == ["--plain"]:
        sys.exit(__doc__)
    if sys.argv[1] == "--plain":
        return run_plain(Path(sys.argv[2]), sys.argv[3:])
    figures = json.loads((Path(sys.argv[1]) / "graphed.json").read_text())
    named_only = (overhead, between_replays, turns_at_once, warm_up_at_half)
    known = {case.__name__: case for case in [*PROGRAMS, *CHECKS, *named_only]}
    names = sys.argv[2:] or [name for name in known if known[name] not in named_only]
    at_half = names == [warm_up_at_half.__name__]
    budget = figures[names[0]]["peak_bytes"] / 2 if at_half else figures["peak_bytes"] * SHARE
    import pumpgraph

    pumpgraph.install(budget=int(budget), budget_of="tensors")
    pg, failed = RealPumpGraph(), 0
    for name in names:
        failed += not passes(name, lambda: run_case(known[name], pg, figures), pg.close_all)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
