#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""GPU tests of the integrations: trainer_cases.py CASE.

A case trains in processes of its own, plain and under half of the plain peak, and compares what both log: equal, bit
for bit. Plain optimizers are made for captures, as PumpGraph makes them. Attention is written out, for transformers
takes other kernels while a stream is captured. Needs transformers 5, lightning 2.6 and accelerate.
"""

import concurrent.futures
import json
import os
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "runtime" / "python"))

from named_cases import check, raises, run_named  # noqa: E402

import torch  # noqa: E402
from torch import nn  # noqa: E402
from torch.utils.data import DataLoader, Dataset, TensorDataset  # noqa: E402

RATE = 1e-3


def reproducible():
    torch.manual_seed(0)
    torch.use_deterministic_algorithms(True)
    torch.utils.deterministic.fill_uninitialized_memory = False


def as_captured(optimizer):
    """A plain optimizer with what PumpGraph gives one while it steps."""
    for group in optimizer.param_groups:
        group["lr"] = torch.tensor(float(group["lr"]), device="cuda")
        group.update({"capturable": True} if "capturable" in group else {"fused": True, "foreach": False})
    for state in optimizer.state.values():  # that a checkpoint has left on the host
        if isinstance(state.get("step"), torch.Tensor):
            state["step"] = state["step"].cuda()


def exact(value):
    """Numbers as text that tells every bit, and in which NaN equals itself."""
    if isinstance(value, dict):
        return {key: exact(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return list(map(exact, value))
    return value.hex() if isinstance(value, float) else value


def peak_of(budget):
    if budget is None:
        return torch.cuda.max_memory_allocated()
    import pumpgraph

    return pumpgraph.memory_stats()["device_peak_bytes"]


def figures_of(step):
    """Of a graphed step, while it is there."""
    report = step.report()
    differences = sum(result.different_buffers for result in step.validate())
    return {"signatures": step.signatures(), "left_as_captured": report.left_as_captured, "differences": differences,
            "moves": bool(report.get("added_nodes") or report.get("hosted_bytes"))}


# ---- transformers ----------------------------------------------------------------------------------------------------


class Texts(Dataset):
    """Each word follows from the one before; some labels do not count."""

    def __init__(self, count, length=256, words=4096):
        generator = torch.Generator().manual_seed(count)
        start = torch.randint(0, words, (count, 1), generator=generator)
        self.texts = (start + torch.randint(1, 4, (count, length), generator=generator).cumsum(-1)) % words

    def __len__(self):
        return len(self.texts)

    def __getitem__(self, index):
        labels = self.texts[index].clone()
        labels[:index % 50] = -100
        return {"input_ids": self.texts[index], "labels": labels}


def small_llama(layers=4):
    from transformers import AttentionInterface, LlamaConfig, LlamaForCausalLM
    from transformers.integrations.sdpa_attention import sdpa_attention_forward

    # Of a name that it does not know, transformers makes no mask: every layer then says that it is causal, captured or
    # not. For "sdpa" it takes another path in a capture, whose losses differ in the last bits.
    AttentionInterface.register("without_mask", sdpa_attention_forward)
    return LlamaForCausalLM(LlamaConfig(
        vocab_size=4096, hidden_size=512, intermediate_size=1536, num_hidden_layers=layers, num_attention_heads=8,
        num_key_value_heads=8, max_position_embeddings=256, use_cache=False, tie_word_embeddings=False,
        attn_implementation="without_mask"))


def own_trainer():
    from transformers import Trainer

    class OwnTrainer(Trainer):
        """Its loss keeps the logits small."""

        weight = 1e-4

        def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
            loss, outputs = super().compute_loss(model, inputs, True, num_items_in_batch)
            loss = loss + self.weight * outputs.logits.float().square().mean()
            return (loss, outputs) if return_outputs else loss

    return OwnTrainer


def transformers_training(folder, budget=None, own_loss=False, resume=None, layers=4, **arguments):
    reproducible()
    graph = None
    if budget is not None:
        from pumpgraph.integrations.transformers import PumpGraphCallback

        graph = PumpGraphCallback(budget=budget, budget_of="tensors", graphed={"warmup": 2})
    from transformers import Trainer, TrainerCallback, TrainingArguments

    args = TrainingArguments(
        output_dir=folder, per_device_train_batch_size=8, per_device_eval_batch_size=8, learning_rate=RATE,
        lr_scheduler_type="cosine", warmup_steps=2, weight_decay=0.01, logging_steps=1, report_to="none",
        disable_tqdm=True, **{"optim": "adamw_torch_fused", "save_strategy": "no", **arguments})
    events, figures = [], {}

    class Watch(TrainerCallback):
        """What other callbacks see, and in which order."""

        def on_train_begin(self, args, state, control, optimizer=None, **_others):
            if graph is None:
                as_captured(optimizer)

        def on_step_begin(self, args, state, control, **_others):
            events.append(f"begin {state.global_step}")

        def on_substep_end(self, args, state, control, model=None, **_others):
            events.append(f"substep {sum(parameter.grad is not None for parameter in model.parameters())}")

        def on_step_end(self, args, state, control, model=None, **_others):
            gradients = sum(parameter.grad is not None for parameter in model.parameters())
            events.append(f"end {state.global_step}, {gradients}")
            if graph is not None and state.global_step == args.max_steps:
                figures.update(figures_of(graph.step))

        def on_log(self, *_event, **_others):
            events.append("log")

        def on_evaluate(self, *_event, **_others):
            events.append("evaluate")

        def on_save(self, *_event, **_others):
            events.append("save")

    trainer = (own_trainer() if own_loss else Trainer)(
        small_llama(layers), args, train_dataset=Texts(44), eval_dataset=Texts(12),
        callbacks=[*([graph] if graph else []), Watch()])
    result = trainer.train(resume_from_checkpoint=resume)
    logs = [{key: entry.get(key) for key in ("step", "loss", "grad_norm", "eval_loss")}
            for entry in trainer.state.log_history if "train_loss" not in entry]
    seen = list(events)
    rates = [entry["learning_rate"] for entry in trainer.state.log_history if "learning_rate" in entry]
    if graph is not None:
        check(graph.step is None and "training_step" not in vars(trainer), "the trainer stays patched")
        check(graph.report is not None, "there is no report afterwards")
        check(trainer.evaluate()["eval_loss"] > 0, "there is no evaluation afterwards")
    return {"logs": exact(logs), "rates": rates, "train_loss": exact(result.training_loss), "events": seen,
            "global_step": trainer.state.global_step, "epoch": trainer.state.epoch, "peak": peak_of(budget), **figures}


def after(step, result):
    return [entry for entry in result["logs"] if entry["step"] > step]


def transformers_loop():
    """Accumulation, a smaller last batch, clipping, a schedule, bf16, evaluations and checkpoints in the middle; then
    from a checkpoint, under PumpGraph and plain."""
    options = dict(bf16=True, gradient_accumulation_steps=2, max_steps=12, max_grad_norm=0.5, eval_strategy="steps",
                   eval_steps=4, save_strategy="steps", save_steps=4)
    with tempfile.TemporaryDirectory() as place:
        plain, half = plain_and_half(transformers_training, place, **options)
        check(len(half["signatures"]) == 3, f"other graphs: {half['signatures']}")
        check([entry["step"] for entry in half["logs"] if entry["eval_loss"]] == [4, 8, 12], "other evaluations")
        check(half["global_step"] == 12, f"{half['global_step']} steps")
        budget, checkpoint = plain["peak"] // 2, f"{place}/half/checkpoint-4"
        options["resume"] = checkpoint
        resumed = together(lambda: run(transformers_training, f"{place}/a", budget=budget, **options),
                           lambda: run(transformers_training, f"{place}/b", **options))
        for name, result in zip(("PumpGraph", "plain"), resumed):
            same("logs after the checkpoint", after(4, result), after(4, half), f"resumed, {name}")
            check(result["global_step"] == 12, f"{name} resumes to step {result['global_step']}")


def transformers_own_loss():
    """A Trainer's own compute_loss, fp16 with its scaler, no clipping, updates of four and of two micro batches."""
    with tempfile.TemporaryDirectory() as place:
        plain_and_half(transformers_training, place, own_loss=True, fp16=True, gradient_accumulation_steps=4,
                       max_steps=10, max_grad_norm=0.0, layers=3)


def transformers_sgd():
    """An optimizer that is never capturable, under a scheduler that holds accelerate's wrapper of it."""
    with tempfile.TemporaryDirectory() as place:
        plain_and_half(transformers_training, place, optim="sgd", bf16=True, max_steps=10, layers=3)


def transformers_refusing(folder):
    import pumpgraph
    from pumpgraph.integrations.transformers import PumpGraphCallback

    graph = PumpGraphCallback("unlimited", graphed={"warmup": 2})
    reproducible()
    from transformers import Trainer, TrainerCallback, TrainingArguments

    def train(kind=Trainer, callbacks=(), **arguments):
        args = TrainingArguments(output_dir=folder, per_device_train_batch_size=8, max_steps=6, report_to="none",
                                 disable_tqdm=True, save_strategy="no", **{"optim": "adamw_torch_fused", **arguments})
        kind(small_llama(1), args, train_dataset=Texts(44), callbacks=[graph, *callbacks]).train()

    class Late(TrainerCallback):
        def on_pre_optimizer_step(self, *_event, **_others):
            pass

    class OwnLoop(Trainer):
        def _run_epoch(self, **options):
            return super()._run_epoch(**options)

    class Of(Trainer):
        """Its loss, with something more."""

        def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
            loss, outputs = super().compute_loss(model, inputs, True, num_items_in_batch)
            self.more(loss)
            return (loss, outputs) if return_outputs else loss

    class Looks(Of):
        def more(self, loss):
            assert loss.item() < 1e9

    class Collects(Of):
        losses = []

        def more(self, loss):
            self.losses.append(loss.detach())

    class Counts(Of):
        def more(self, loss):
            loss.mul_(1.0 + 0.0 * self.state.global_step)

    unsupported = pumpgraph.UnsupportedError
    raises(unsupported, "Late.on_pre_optimizer_step would find", lambda: train(callbacks=[Late()]))
    raises(unsupported, "OwnLoop has a _run_epoch of its own", lambda: train(OwnLoop))
    raises(unsupported, "torch_empty_cache_steps", lambda: train(torch_empty_cache_steps=2))
    raises(unsupported, "fp16 an optimizer that is not fused", lambda: train(fp16=True, optim="adamw_torch"))
    raises(unsupported, r"trainer_cases.py:\d+.*loss.item\(\)", lambda: train(Looks))
    raises(unsupported, "losses.*grows in the step", lambda: train(Collects))
    raises(pumpgraph.StaleStepError, "self.state.global_step.*which the step reads", lambda: train(Counts))
    train()  # and all goes on
    return {}


def transformers_refusals():
    with tempfile.TemporaryDirectory() as place:
        run(transformers_refusing, f"{place}/refusals")


def transformers_too_late(folder):
    from pumpgraph import PumpGraphError
    from pumpgraph.integrations.transformers import PumpGraphCallback
    from transformers import TrainingArguments

    TrainingArguments(output_dir=folder, report_to="none")
    check(torch.cuda.is_initialized(), "TrainingArguments leaves CUDA alone, and docs/guide says that it does not")
    raises(PumpGraphError, "make the PumpGraphCallback before TrainingArguments", lambda: PumpGraphCallback("1GiB"))
    return {}


def transformers_after_cuda():
    """TrainingArguments initialises CUDA."""
    with tempfile.TemporaryDirectory() as place:
        run(transformers_too_late, f"{place}/late")


# ---- lightning -------------------------------------------------------------------------------------------------------


def batches(rows, width=1024):
    generator = torch.Generator().manual_seed(rows)
    return TensorDataset(torch.randn(rows, width, generator=generator), torch.randn(rows, 16, generator=generator))


def perceptron(width=1024, depth=4):
    blocks = [nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)) for _ in range(depth)]
    return nn.Sequential(*blocks, nn.Linear(width, 16))


def lightning_modules():
    import lightning.pytorch as pl

    class Net(pl.LightningModule):
        def __init__(self):
            super().__init__()
            self.layers = perceptron()
            self.fused = True

        def training_step(self, batch, batch_idx):
            rows, targets = batch
            outputs = self.layers(rows)
            loss = nn.functional.mse_loss(outputs, targets)
            self.log("train_loss", loss, on_step=True, on_epoch=True, prog_bar=True)
            self.log_dict({"mean": outputs.mean(), "rows": float(len(rows))})
            return {"loss": loss, "largest": outputs.abs().max()}

        def on_before_optimizer_step(self, optimizer):
            self.log("norm", self.layers[0][0].weight.grad.norm())

        def validation_step(self, batch, batch_idx):
            rows, targets = batch
            self.log("val_loss", nn.functional.mse_loss(self.layers(rows), targets))

        def configure_optimizers(self):
            optimizer = torch.optim.AdamW(self.parameters(), lr=RATE, fused=self.fused)
            scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda turn: 0.9**turn)
            return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": "step"}}

    return pl, Net


def lightning_training(folder, budget=None, resume=None, epochs=3, scale=None, **arguments):
    graph = None
    if budget is not None:
        from pumpgraph.integrations.lightning import PumpGraphCallback

        graph = PumpGraphCallback(budget=budget, budget_of="tensors", graphed={"warmup": 2})
    pl, Net = lightning_modules()
    os.environ["TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD"] = "1"  # checkpoints of our own
    pl.seed_everything(0)
    reproducible()
    logs, figures = [], {}

    class Watch(pl.Callback):
        def on_train_start(self, trainer, module):
            self.updates = trainer.global_step
            if graph is None:
                as_captured(trainer.optimizers[0])

        def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
            logged = ["train_loss_step", "mean", "rows"] + ["norm"] * (trainer.global_step > self.updates)
            self.updates = trainer.global_step
            logs.append([trainer.current_epoch, trainer.global_step, outputs["loss"].item(), outputs["largest"].item(),
                         trainer.lr_scheduler_configs[0].scheduler.last_epoch,
                         *[trainer.callback_metrics[name].item() for name in logged]])
            if graph is not None and trainer.current_epoch == epochs - 1 and batch_idx == 7:
                figures.update(figures_of(graph.step))

        def on_validation_end(self, trainer, module):
            logs.append([trainer.current_epoch, "validated", trainer.callback_metrics["val_loss"].item()])

        def on_train_epoch_end(self, trainer, module):
            logs.append([trainer.current_epoch, "epoch", trainer.callback_metrics["train_loss_epoch"].item()])

    if scale is not None:
        scaler = torch.amp.GradScaler("cuda", init_scale=scale)
        arguments["plugins"] = [pl.plugins.MixedPrecision("16-mixed", "cuda", scaler)]
    checkpoints = pl.callbacks.ModelCheckpoint(dirpath=folder, filename="{epoch}", save_top_k=-1)
    trainer = pl.Trainer(accelerator="gpu", devices=1, max_epochs=epochs, logger=False, enable_progress_bar=False,
                         enable_model_summary=False, deterministic=True, num_sanity_val_steps=0 if resume else 1,
                         callbacks=[*([graph] if graph else []), Watch(), checkpoints], **arguments)
    net = Net()
    net.fused = scale is not None  # whose gradients Lightning does not clip
    trainer.fit(net, DataLoader(batches(8 * 512 + 256), batch_size=512), DataLoader(batches(1024), batch_size=512),
                ckpt_path=resume)
    saved = torch.load(f"{folder}/epoch={epochs - 1}.ckpt", map_location="cpu", weights_only=False)
    if graph is not None:
        check(graph.step is None and graph.report is not None, "the step is there after the fit")
        rate = saved["optimizer_states"][0]["param_groups"][0]["lr"]
        check(isinstance(rate, float), f"it saves {rate} as its rate")
    counts = {key: json.dumps(saved[key], default=str, sort_keys=True) for key in ("loops", "epoch", "global_step")}
    return {"logs": exact(logs), "counts": counts, "global_step": trainer.global_step, "peak": peak_of(budget),
            **figures}


def lightning_loop():
    """Accumulation with a smaller last batch that updates alone, clipping, a scheduler for each step, bf16, what the
    module logs, validation, checkpoints and all counts in them; then from a checkpoint, under PumpGraph and plain."""
    options = dict(precision="bf16-mixed", accumulate_grad_batches=2, gradient_clip_val=0.5)
    with tempfile.TemporaryDirectory() as place:
        plain, half = plain_and_half(lightning_training, place, **options)
        same("counts", half["counts"], plain["counts"], "the checkpoint under PumpGraph")
        check(half["global_step"] == 15, f"{half['global_step']} steps")
        budget, checkpoint = plain["peak"] // 2, f"{place}/half/epoch=0.ckpt"
        options["resume"] = checkpoint
        resumed = together(lambda: run(lightning_training, f"{place}/a", budget=budget, **options),
                           lambda: run(lightning_training, f"{place}/b", **options))
        expected = [entry for entry in half["logs"] if entry[0] > 0]
        for name, result in zip(("PumpGraph", "plain"), resumed):
            got = [entry for entry in result["logs"] if entry[0] > 0]
            same("logs after the checkpoint", got, expected, f"resumed, {name}")


def lightning_scaler():
    """fp16 with its scaler, whose first updates overflow; every batch updates."""
    with tempfile.TemporaryDirectory() as place:
        plain_and_half(lightning_training, place, scale=2.0**26, epochs=2)


def lightning_refusing(folder):
    import pumpgraph
    from pumpgraph.integrations.lightning import PumpGraphCallback

    graph = PumpGraphCallback("unlimited", graphed={"warmup": 2})
    pl, Net = lightning_modules()
    reproducible()

    def fit(module, callbacks=(), **arguments):
        pl.Trainer(accelerator="gpu", devices=1, max_steps=6, logger=False, enable_progress_bar=False,
                   enable_model_summary=False, enable_checkpointing=False, limit_val_batches=0,
                   callbacks=[graph, *callbacks], **arguments).fit(module, DataLoader(batches(2048), batch_size=256))

    class Late(pl.Callback):
        def on_after_backward(self, trainer, module):
            pass

    class Manual(Net):
        def __init__(self):
            super().__init__()
            self.automatic_optimization = False

    class OwnStep(Net):
        def optimizer_step(self, *arguments, **options):
            super().optimizer_step(*arguments, **options)

    class Index(Net):
        def training_step(self, batch, batch_idx):
            return super().training_step(batch, batch_idx) if batch_idx % 4 else None

    class Epoch(Net):
        def training_step(self, batch, batch_idx):
            output = super().training_step(batch, batch_idx)
            return {"loss": output["loss"] * (1 + self.current_epoch)}

    class Rate(Net):
        def training_step(self, batch, batch_idx):
            self.log("rate", self.trainer.optimizers[0].param_groups[0]["lr"])
            return super().training_step(batch, batch_idx)

    class Looks(Net):
        def training_step(self, batch, batch_idx):
            output = super().training_step(batch, batch_idx)
            self.log("loss", output["loss"].item())
            return output

    class Unfused(Net):
        def configure_optimizers(self):
            return torch.optim.AdamW(self.parameters(), lr=RATE)

    unsupported = pumpgraph.UnsupportedError
    raises(unsupported, "Late.on_after_backward would run in captured batches only", lambda: fit(Net(), [Late()]))
    raises(unsupported, "manual optimization", lambda: fit(Manual()))
    raises(unsupported, "OwnStep has an optimizer_step of its own", lambda: fit(OwnStep()))
    raises(unsupported, r"trainer_cases.py:\d+ looks at batch_idx", lambda: fit(Index()))
    raises(unsupported, "looks at LightningModule.current_epoch", lambda: fit(Epoch()))
    raises(unsupported, "looks at Trainer.optimizers", lambda: fit(Rate()))
    raises(unsupported, r"trainer_cases.py:\d+.*item\(\)", lambda: fit(Looks()))
    raises(unsupported, "16-mixed.*not fused", lambda: fit(Unfused(), precision="16-mixed"))
    raises(unsupported, "detect_anomaly", lambda: fit(Net(), detect_anomaly=True))
    fit(Unfused())  # and all goes on
    return {}


def lightning_refusals():
    with tempfile.TemporaryDirectory() as place:
        run(lightning_refusing, f"{place}/refusals")


# ---- accelerate ------------------------------------------------------------------------------------------------------


def accelerate_training(folder, budget=None):
    if budget is not None:
        import pumpgraph

        pumpgraph.install(budget=budget, budget_of="tensors")
    from accelerate import Accelerator

    reproducible()
    accelerator = Accelerator(mixed_precision="bf16", gradient_accumulation_steps=2)
    model = perceptron()
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, fused=True)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda turn: 0.9**turn)
    loader = DataLoader(batches(8 * 512 + 256), batch_size=512)
    model, optimizer, loader, scheduler = accelerator.prepare(model, optimizer, loader, scheduler)
    if budget is None:
        as_captured(optimizer)

    def train_step(rows, targets, updates):
        loss = nn.functional.mse_loss(model(rows), targets)
        accelerator.backward(loss)
        norm = accelerator.clip_grad_norm_(model.parameters(), 0.5) if updates else None
        optimizer.step()
        optimizer.zero_grad()
        return loss, norm

    if budget is not None:
        train_step = pumpgraph.graphed(train_step, warmup=2)
    logs = []

    def epoch():
        for rows, targets in loader:
            with accelerator.accumulate(model):
                loss, norm = train_step(rows, targets, accelerator.sync_gradients)
                scheduler.step()
            logs.append([loss.item(), None if norm is None else norm.item()])

    for _ in range(2):
        epoch()
    accelerator.save_state(folder)
    epoch()
    first = logs[-9:]
    accelerator.load_state(folder)
    if budget is None:
        as_captured(optimizer)
    epoch()
    check(logs[-9:] == first, "the epoch after load_state() is another one")
    figures = figures_of(train_step) if budget is not None else {}
    return {"logs": exact(logs), "peak": peak_of(budget), **figures}


def accelerate_loop():
    """The guide's loop under accelerate: accumulation, clipping, a scheduler, bf16, and back to a saved state."""
    with tempfile.TemporaryDirectory() as place:
        plain_and_half(accelerate_training, place)


# ---- running ---------------------------------------------------------------------------------------------------------


def run(program, folder, **options):
    """In a process of its own."""
    Path(folder).mkdir(exist_ok=True)
    file = Path(folder) / "result.json"
    arguments = json.dumps({"folder": folder, **options})
    command = [sys.executable, __file__, "--run", program.__name__, str(file), arguments]
    process = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    said = process.stdout[-4000:]
    fatal = process.stdout.find("Fatal Python error")
    if fatal >= 0:  # its end names extension modules
        said = process.stdout[max(0, fatal - 500):fatal + 1200]
    check(process.returncode == 0, f"{program.__name__} {options} fails:\n{said}")
    return json.loads(file.read_text())


def together(*calls):
    with concurrent.futures.ThreadPoolExecutor(len(calls)) as pool:
        return [future.result() for future in [pool.submit(call) for call in calls]]


def same(what, got, expected, who):
    check(expected and len(got) == len(expected), f"{who}: {len(got)} {what}, not {len(expected)}")
    pairs = zip(got.items(), expected.items()) if isinstance(got, dict) else zip(got, expected)
    for index, (one, other) in enumerate(pairs):
        check(one == other, f"{who}: {what} differ at {index}: {one}, not {other}")


def plain_and_half(program, place, **options):
    plain = run(program, f"{place}/plain", **options)
    budget = plain["peak"] // 2
    half = run(program, f"{place}/half", budget=budget, **options)
    same("logs", half["logs"], plain["logs"], "under PumpGraph")
    for key in ("global_step", "epoch", "train_loss", "events"):
        if key in plain:
            check(half[key] == plain[key], f"{key}: {half[key]}, not {plain[key]}")
    for one, other in zip(half.get("rates", ()), plain.get("rates", ())):
        check(abs(one - other) <= 1e-6 * abs(other), f"the rate is {one}, not {other}")
    check(half["left_as_captured"] is None, f"left as captured: {half['left_as_captured']}")
    check(half["moves"], "the plan moves nothing")
    check(half["differences"] == 0, "validation found a difference")
    check(half["peak"] <= budget, f"{half['peak']} bytes on the device; the budget is {budget}")
    print(f"{program.__name__}: {len(plain['logs'])} logs equal; {len(half['signatures'])} graphs; peak "
          f"{plain['peak'] >> 20} MiB plain, {half['peak'] >> 20} MiB under PumpGraph", flush=True)
    return plain, half


PROGRAMS = (transformers_training, transformers_refusing, transformers_too_late, lightning_training, lightning_refusing,
            accelerate_training)

CASES = [
    transformers_loop,
    transformers_own_loss,
    transformers_sgd,
    transformers_refusals,
    transformers_after_cuda,
    lightning_loop,
    lightning_scaler,
    lightning_refusals,
    accelerate_loop,
]


def main():
    if sys.argv[1:2] == ["--run"]:
        warnings.simplefilter("ignore")
        program = {program.__name__: program for program in PROGRAMS}[sys.argv[2]]
        result = program(**json.loads(sys.argv[4]))
        Path(sys.argv[3]).write_text(json.dumps(result))
        return
    run_named(CASES)


if __name__ == "__main__":
    main()
