# SPDX-License-Identifier: Apache-2.0
"""transformers.Trainer under PumpGraph: a callback that runs forward, backward, clipping, optimizer and zero_grad of
each micro batch as one graphed step.

    callback = PumpGraphCallback(budget="16GiB")  # ahead of TrainingArguments, which touches CUDA
    arguments = TrainingArguments(...)
    Trainer(model, arguments, train_dataset=..., callbacks=[callback]).train()

transformers gives a callback no way to replace the step. While the Trainer trains, its `training_step` is therefore the
graphed call, and the optimizer's part of its loop finds the update done. Needs transformers 5.0 or later.
"""

from __future__ import annotations

import contextlib
import functools
import sys
from typing import Any, Dict, Iterator, List, Optional

import torch
import transformers

from .. import reachable
from .._report import Report
from ..errors import invalid
from ..step_function import Graphed, graphed, paused
from .parts import Accumulation, Patches, install_once, of_the_program, overridden, refuse_all

# What the step calls of a Trainer, and what is set on it while it trains.
_IN_THE_STEP = ("training_step", "compute_loss", "compute_loss_context_manager", "autocast_smart_context_manager",
                "_prepare_inputs", "_prepare_input", "_clip_grad_norm", "_get_grad_norm")
_REPLACED = ("training_step", "_clip_grad_norm", "_get_grad_norm")
# What calls these, in an order that the callback relies on.
_LOOPS = ("_inner_training_loop", "_run_epoch")
# Other callbacks find weights that are updated already, and no gradients.
_TOO_LATE = ("on_pre_optimizer_step", "on_optimizer_step")

reachable.leave_out(transformers.Trainer, (
    *_REPLACED, "accelerator", "callback_handler", "control", "lr_scheduler", "data_collator", "train_dataset",
    "eval_dataset", "processing_class", "compute_metrics", "preprocess_logits_for_metrics", "gather_function",
    "model_init", "hp_space", "hp_name", "compute_objective", "optimizer_cls_and_kwargs", "_memory_tracker", "_tr_loss",
    "_train_dataloader", "_eval_dataloaders", "_signature_columns", "_trial"))


class PumpGraphCallback(transformers.TrainerCallback):
    """Runs each micro batch of a Trainer as one graphed step. Pass it among the Trainer's `callbacks`.

    Args:
        budget: that of pumpgraph.install(), which is called here; make the callback ahead of TrainingArguments.
            Default None: the program has called install().
        graphed: options of pumpgraph.graphed(), such as {"warmup": 2}. Default warmup 3.
        options: further options of pumpgraph.install(); they need a budget.

    Attributes:
        step: the Graphed while a Trainer trains, otherwise None.
        report: the report of the last training once it is over, or None if nothing was captured.

    Raises:
        PumpGraphError: CUDA is initialised already, install() is missing, or an option of install() is wrong.
        UnsupportedError: when training begins, for a training that the callback cannot follow; the text lists every
            obstacle and its remedy.
    """

    def __init__(self, budget: Any = None, *, graphed: Optional[Dict[str, Any]] = None, **options: Any):
        install_once("PumpGraphCallback", budget, options, "TrainingArguments")
        self.step: Optional[Graphed] = None
        self.report: Optional[Report] = None
        self._options: Dict[str, Any] = {"name": "PumpGraphCallback.step", "warmup": 3, **(graphed or {})}
        self._patches = Patches()
        self._originals: Dict[str, Any] = {}  # methods of the Trainer
        self._is_inside = False  # the step itself runs
        self._norm: Any = None  # of the gradients, in the last call
        self._begins = True  # the next micro batch is the first of an update
        self._gradients: Any = None  # accelerate's state: whether this micro batch updates the weights

    # ---- events ----

    def on_train_begin(self, args: Any, state: Any, control: Any, **_others: Any) -> None:
        """Checks that the callback can follow this training, and replaces the Trainer's step."""
        self._detach()  # a training may have ended with an error
        trainer = self._trainer()
        refuse_all("PumpGraphCallback", _obstacles(trainer, self))
        self._attach(trainer)

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **_others: Any) -> None:
        """The optimizer has stepped: accelerate's wrapper does nothing for a micro batch that only accumulates."""
        if self._gradients is not None:
            self._gradients._set_sync_gradients(False)

    def on_optimizer_step(self, args: Any, state: Any, control: Any, **_others: Any) -> None:
        if self._gradients is not None:
            self._gradients._set_sync_gradients(True)

    def on_train_end(self, args: Any, state: Any, control: Any, **_others: Any) -> None:
        self._detach()

    # ---- the trainer ----

    def _trainer(self) -> Any:
        """A callback is told everything but who calls it."""
        frame: Any = sys._getframe(1)
        while frame is not None:
            caller = frame.f_locals.get("self")
            if isinstance(caller, transformers.Trainer) and \
                    any(other is self for other in caller.callback_handler.callbacks):
                return caller
            frame = frame.f_back
        raise invalid("PumpGraphCallback: no transformers.Trainer has called it")

    def _attach(self, trainer: Any) -> None:
        self._originals = originals = {name: getattr(trainer, name) for name in _REPLACED}
        # What is named here is searched for what the step works on.
        self.step = graphed(functools.partial(self._run, trainer=trainer, scaler=trainer.accelerator.scaler,
                                              code=of_the_program(trainer, _IN_THE_STEP)), **self._options)
        self._gradients = trainer.accelerator.gradient_state
        self._norm, self._begins = None, True
        self._accumulation = Accumulation(self._options["warmup"])

        def training_step(model: Any, inputs: Any, num_items_in_batch: Any = None) -> Any:
            return self._call(trainer, model, inputs, num_items_in_batch)

        def clip_grad_norm(model: Any) -> Any:
            return originals["_clip_grad_norm"](model) if self._is_inside else self._norm

        def get_grad_norm(model: Any, grad_norm: Any = None) -> Any:
            return originals["_get_grad_norm"](model, grad_norm=grad_norm) if self._is_inside else self._norm

        for name, function in zip(_REPLACED, (training_step, clip_grad_norm, get_grad_norm)):
            self._patches.put(trainer, name, function)

    def _detach(self) -> None:
        self._patches.undo()
        step, self.step = self.step, None
        if self._gradients is not None:
            self._gradients._set_sync_gradients(True)
            self._gradients = None
        if step is not None:
            self.report = step.report() if step.signatures() else None
            step.reset()

    # ---- the step ----

    def _call(self, trainer: Any, model: Any, inputs: Any, num_items_in_batch: Any) -> Any:
        """What the loop calls for each micro batch."""
        assert self.step is not None
        if not model.training:  # an evaluation has left it so; a replay runs no Python
            model.train()
        if isinstance(num_items_in_batch, int):
            num_items_in_batch = torch.tensor(num_items_in_batch)  # it differs from batch to batch
        begins, updates = self._begins, bool(self._gradients.sync_gradients)
        self._begins = updates
        with paused() if self._accumulation.just_runs(begins, updates) else contextlib.nullcontext():
            # Whatever the Trainer decides by is an argument: calls that differ in it get a graph each.
            loss, self._norm = self.step(model, inputs, num_items_in_batch, begins=begins, updates=updates,
                                         micro_batches=trainer.current_gradient_accumulation_steps,
                                         max_grad_norm=trainer.args.max_grad_norm)
        return loss

    def _run(self, model: Any, inputs: Any, num_items_in_batch: Any, *, begins: bool, updates: bool, micro_batches: int,
             max_grad_norm: float, trainer: Any, scaler: Any, code: List[Any]) -> Any:
        """What is captured. The Trainer itself divides the loss by `micro_batches`, where it does."""
        originals, self._is_inside = self._originals, True
        try:
            loss = originals["training_step"](model, inputs, num_items_in_batch)
            if not updates:
                return loss, None
            norm = originals["_clip_grad_norm"](model) if max_grad_norm > 0 else None
            norm = originals["_get_grad_norm"](model, grad_norm=norm)
            trainer.optimizer.step()
            model.zero_grad()
            return loss, norm
        finally:
            self._is_inside = False


def _obstacles(trainer: Any, callback: PumpGraphCallback) -> Iterator[str]:
    """What the callback cannot follow, and what to do instead."""
    args, accelerator = trainer.args, trainer.accelerator
    if not hasattr(transformers.Trainer, "_run_epoch"):
        yield f"transformers {transformers.__version__} has another training loop; use 5.0 or later"
    for name in overridden(trainer, transformers.Trainer, _LOOPS):
        yield f"{type(trainer).__name__} has a {name} of its own; call pumpgraph.graphed() in it instead"
    if accelerator.distributed_type.value != "NO":
        yield f"it is distributed ({accelerator.distributed_type.value}), and a session has one device; start one " \
              "process, without DeepSpeed, FSDP or another plugin"
    elif args.n_gpu > 1:
        yield f"it would use DataParallel on {args.n_gpu} devices; set CUDA_VISIBLE_DEVICES to one of them"
    elif args.device.type != "cuda":
        yield f"it trains on {args.device}; PumpGraph needs a GPU"
    if args.torch_empty_cache_steps is not None:
        yield "torch_empty_cache_steps empties the cache in the middle of the step; leave it out: a captured step " \
              "has none"
    optimizer = str(getattr(args.optim, "value", args.optim))
    if "lomo" in optimizer or "layerwise" in optimizer:
        yield f"optim=\"{optimizer}\" updates weights during the backward pass; use \"adamw_torch_fused\""
    inner = getattr(trainer.optimizer, "optimizer", None)
    if not hasattr(trainer.optimizer, "gradient_state") or inner is None:
        yield f"{type(trainer.optimizer).__name__} is not prepared by accelerate; leave _prepare_for_training() as " \
              "it is"
    elif accelerator.scaler is not None and not getattr(inner, "_step_supports_amp_scaling", False):
        yield "with fp16 an optimizer that is not fused waits for the device; use optim=\"adamw_torch_fused\", " \
              "pumpgraph.prepare(optimizer, fused=True), or bf16"
    for other in trainer.callback_handler.callbacks:
        if other is not callback:
            for name in overridden(other, transformers.TrainerCallback, _TOO_LATE):
                yield f"{type(other).__name__}.{name} would find the weights updated and the gradients gone; use " \
                      "on_step_begin or on_step_end"
