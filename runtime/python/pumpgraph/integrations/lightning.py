# SPDX-License-Identifier: Apache-2.0
"""lightning.pytorch.Trainer under PumpGraph: a callback that runs each batch of automatic optimization as one graphed
step: forward, zero_grad, backward, clipping and optimizer, with all hooks of the module between them.

    trainer = L.Trainer(callbacks=[PumpGraphCallback(budget="16GiB")], precision="bf16-mixed", ...)
    trainer.fit(model, loader)
"""

from __future__ import annotations

import contextlib
import functools
import inspect
from typing import Any, Dict, Iterator, List, Optional, Tuple

import lightning.pytorch as pl
import torch
from lightning.pytorch.plugins.precision import DoublePrecision, HalfPrecision, MixedPrecision, Precision
from lightning.pytorch.strategies import SingleDeviceStrategy

from .. import reachable
from .._report import Report
from ..errors import UnsupportedError
from ..step_function import Graphed, graphed, paused
from .parts import (Accumulation, Patches, Unknown, for_libraries, hide, install_once, of_the_program, overridden,
                    patches, refuse_all)

# Hooks of the module that run in the step.
_IN_THE_STEP = ("training_step", "on_before_zero_grad", "optimizer_zero_grad", "on_before_backward", "backward",
                "on_after_backward", "on_before_optimizer_step", "configure_gradient_clipping")
# The same of callbacks. A replay runs no Python, and callbacks keep what they see.
_OF_CALLBACKS = ("on_before_zero_grad", "on_before_backward", "on_after_backward", "on_before_optimizer_step")
_OUTSIDE = "do what needs it in on_train_batch_start or on_train_batch_end; a buffer of the module that is filled " \
           "there holds its value"
# What changes from batch to batch.
_OF_TRAINERS = ("current_epoch", "global_step", "is_last_batch", "optimizers", "lr_scheduler_configs",
                "callback_metrics", "logged_metrics", "progress_bar_metrics", "fit_loop")
_OF_MODULES = ("current_epoch", "global_step", "optimizers", "lr_schedulers")

# An attribute of optimizers, of Lightning.
_SKIPS = "_skip_next_scheduler_step"

reachable.leave_out(pl.LightningModule, ("_trainer", "_fabric", "log", "optimizer_zero_grad"))


class PumpGraphCallback(pl.Callback):
    """Runs each batch of automatic optimization as one graphed step. Pass it among the Trainer's `callbacks`.

    Args:
        budget: that of pumpgraph.install(), which is called here; make the callback ahead of anything that touches
            CUDA. Default None: the program has called install().
        graphed: options of pumpgraph.graphed(), such as {"warmup": 2}. Default warmup 3.
        options: further options of pumpgraph.install(); they need a budget.

    Attributes:
        step: the Graphed while a Trainer fits, otherwise None.
        report: the report of the last fit once it is over, or None if nothing was captured.

    Raises:
        PumpGraphError: CUDA is initialised already, install() is missing, or an option of install() is wrong.
        UnsupportedError: when training begins, for a training that the callback cannot follow; the text lists every
            obstacle and its remedy.
    """

    def __init__(self, budget: Any = None, *, graphed: Optional[Dict[str, Any]] = None, **options: Any):
        install_once("PumpGraphCallback", budget, options, "anything touches it")
        self.step: Optional[Graphed] = None
        self.report: Optional[Report] = None
        self._options: Dict[str, Any] = {"name": "PumpGraphCallback.step", "warmup": 3, **(graphed or {})}
        self._patches = Patches()
        self._trainer: Any = None
        self._loop: Any = None
        self._library_run: Any = None  # Lightning's own run of a batch
        self._index = Unknown("batch_idx", _OUTSIDE)
        self._epoch = Unknown("epoch", _OUTSIDE)

    # ---- events ----

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Checks that the callback can follow this training, and replaces the loop's run of a batch."""
        self._detach()
        refuse_all("PumpGraphCallback", _obstacles(trainer, pl_module, self))
        self._attach(trainer, pl_module)

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        """Keeps the report, gives up the graphs, and puts the loop's own run back."""
        self._detach()

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """Puts the loop's own run back."""
        self._patches.undo()  # and no more: the device may be lost

    # ---- the trainer ----

    def _attach(self, trainer: Any, module: Any) -> None:
        self._trainer, self._loop = trainer, trainer.fit_loop.epoch_loop.automatic_optimization
        self._library_run = self._loop.run
        self._accumulation = Accumulation(self._options["warmup"])
        # What is named here is searched for what the step works on; the module is an argument.
        self.step = graphed(functools.partial(self._run, scaler=getattr(trainer.precision_plugin, "scaler", None),
                                              code=of_the_program(module, _IN_THE_STEP)), **self._options)
        self._patches.put(self._loop, "run", functools.partial(self._call, module))

    def _detach(self) -> None:
        self._patches.undo()
        step, self.step = self.step, None
        if step is not None:
            self.report = step.report() if step.signatures() else None
            step.reset()
        self._trainer = self._loop = self._library_run = None

    # ---- the step ----

    def _call(self, module: Any, optimizer: Any, batch_idx: int, kwargs: Any) -> Any:
        """What the loop calls for each batch."""
        assert self.step is not None
        trainer, loop = self._trainer, self._loop
        scaler: Any = getattr(trainer.precision_plugin, "scaler", None)
        zeroes = batch_idx % trainer.accumulate_grad_batches == 0
        updates = not trainer.fit_loop._should_accumulate()
        # Where the scale becomes smaller an update is skipped, and newer versions then skip that of the rate.
        scale = scaler.get_scale() if updates and scaler is not None else None
        if scale is not None and hasattr(optimizer, _SKIPS):
            setattr(optimizer, _SKIPS, False)  # as the captured step leaves it
        with paused() if self._accumulation.just_runs(zeroes, updates) else contextlib.nullcontext():
            # Whatever Lightning decides by is an argument: calls that differ in it get a graph each.
            output, logged = self.step(module, optimizer, kwargs["batch"], has_index="batch_idx" in kwargs,
                                       zeroes=zeroes, updates=updates, skips_backward=loop._skip_backward,
                                       accumulates=trainer.accumulate_grad_batches, clips=trainer.gradient_clip_val,
                                       clips_by=str(trainer.gradient_clip_algorithm))
        # What Lightning counts while it runs a batch.
        counts = loop.optim_progress.optimizer
        if zeroes and not loop._skip_backward:
            counts.zero_grad.increment_ready()
            counts.zero_grad.increment_started()
            counts.zero_grad.increment_completed()
        if updates:
            counts.step.increment_ready()
            counts.step.increment_completed()
            if scale is not None and hasattr(optimizer, _SKIPS):
                setattr(optimizer, _SKIPS, scaler.get_scale() < scale)
        _log(module, logged)
        return output

    def _run(self, module: Any, optimizer: Any, batch: Any, *, has_index: bool, zeroes: bool, updates: bool,
             skips_backward: bool, accumulates: int, clips: Any, clips_by: str, scaler: Any, code: List[Any]) -> Any:
        """What is captured: Lightning's own run of a batch, with its counts in a scratch copy, and with what the module
        logs as results."""
        logged: List[Tuple[Any, ...]] = []
        zero_grad = module.optimizer_zero_grad

        def log(*args: Any, **kwargs: Any) -> None:
            logged.append((module._current_fx_name, tuple(map(_kept, args)),
                           {name: _kept(value) for name, value in kwargs.items()}))

        def optimizer_zero_grad(_epoch: Any, _batch_idx: Any, optimizer: Any) -> None:
            zero_grad(self._epoch, self._index, optimizer)

        kwargs = {"batch": batch, **({"batch_idx": self._index} if has_index else {})}
        loop = self._loop
        with patches() as made:
            made.put(loop, "optim_progress", type(loop.optim_progress)())
            made.put(module, "log", log)
            made.put(module, "optimizer_zero_grad", optimizer_zero_grad)
            if scaler is not None:
                made.put(scaler, "get_scale", for_libraries("GradScaler.get_scale()", _OUTSIDE, 0.0))
            hide(made, pl.Trainer, _OF_TRAINERS, _OUTSIDE)
            hide(made, pl.LightningModule, _OF_MODULES, _OUTSIDE)
            # The index only tells whether an accumulation begins.
            output = self._library_run(optimizer, 0 if zeroes else 1, kwargs)
        return output, logged


def _kept(value: Any) -> Any:
    """A value that is logged, as it is at that time."""
    if isinstance(value, torch.Tensor):
        return value.detach().clone()
    if isinstance(value, torch.nn.Module):
        raise UnsupportedError(f"the step logs a {type(value).__name__}, which counts in Python; log a value that is "
                               "computed in the step, and update metrics in on_train_batch_end")
    return value


def _log(module: Any, logged: List[Tuple[Any, ...]]) -> None:
    """After a replay, what the module has logged in it."""
    own = vars(module)
    before = own.get("_current_fx_name")
    try:
        for where, args, kwargs in logged:
            own["_current_fx_name"] = where
            module.log(*args, **kwargs)
    finally:
        own["_current_fx_name"] = before


def _obstacles(trainer: Any, module: Any, callback: PumpGraphCallback) -> Iterator[str]:
    """What the callback cannot follow, and what to do instead."""
    strategy, precision = trainer.strategy, trainer.precision_plugin
    if not isinstance(strategy, SingleDeviceStrategy):
        yield f"{type(strategy).__name__} uses other processes or devices, and a session has one device; write " \
              "Trainer(accelerator=\"gpu\", devices=1)"
    elif strategy.root_device.type != "cuda":
        yield f"it trains on {strategy.root_device}; write Trainer(accelerator=\"gpu\", devices=1)"
    if not module.automatic_optimization:
        yield "manual optimization has its steps in training_step; call functions there that are decorated with " \
              "pumpgraph.graphed"
    elif len(trainer.optimizers) != 1:
        yield f"there are {len(trainer.optimizers)} optimizers; one is needed"
    elif isinstance(trainer.optimizers[0], torch.optim.LBFGS):
        yield "LBFGS runs the batch several times and decides by its values how often; use another optimizer"
    for name in overridden(module, pl.LightningModule, ("optimizer_step",)):
        yield f"{type(module).__name__} has an {name} of its own, which no replay would run; change the rate with a " \
              "scheduler, and gradients in on_before_optimizer_step"
    if "dataloader_iter" in inspect.signature(module.training_step).parameters:
        yield "training_step takes batches from dataloader_iter; let it take a batch"
    if type(precision) not in (Precision, MixedPrecision, HalfPrecision, DoublePrecision):
        yield f"the plugin {type(precision).__name__} steps in its own way; use precision=\"bf16-mixed\""
    elif getattr(precision, "scaler", None) is not None and \
            not all(getattr(each, "_step_supports_amp_scaling", False) for each in trainer.optimizers):
        yield "with precision=\"16-mixed\" an optimizer that is not fused waits for the device; write fused=True, or " \
              "use \"bf16-mixed\""
    if getattr(trainer, "_detect_anomaly", False):
        yield "detect_anomaly looks at every gradient; leave it out"
    for other in trainer.callbacks:
        if other is not callback:
            for name in overridden(other, pl.Callback, _OF_CALLBACKS):
                yield f"{type(other).__name__}.{name} would run in captured batches only; use on_train_batch_end, or " \
                      "do it in the module"
