# SPDX-License-Identifier: Apache-2.0
"""Runs rows of the sentinel table on the GPU. Imports PyTorch, then waits for one job as a JSON line on standard input:
it is started while the one before it still measures. Each row's figures are appended to the job's file at once."""

from __future__ import annotations

import gc
import json
import sys
import time
import traceback
from pathlib import Path
from typing import Any, Dict, List, Optional, Tuple

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(Path(__file__).resolve().parent), str(ROOT / "docs" / "examples" / "pytorch")]

import training  # noqa: E402  first: it sets what cuBLAS reads when CUDA starts

import torch  # noqa: E402

import pumpgraph  # noqa: E402
import remedies  # noqa: E402
from sentinels import BY_NAME, PLANNED, Budget, Sentinel, checkpointed_blocks  # noqa: E402

BATCHES = 2
STALLS_KEPT = 20
Figures = Dict[str, Any]


class Trained:
    """A model with its optimizer and inputs. Eager steps take `warmup_batch` samples (0: all) while `warms_up`, so that
    warming up needs little memory and time; a capture always takes the whole batch."""

    def __init__(self, sentinel: Sentinel, warmup_batch: int, micro_batches: int = 1):
        torch.manual_seed(0)
        with torch.device("cuda"):
            task = sentinel.build()
        self.sentinel = sentinel
        self.blocks = task.blocks
        self.model = task.model.train()
        self.optimizer = _optimizer(sentinel, self.model)
        batches = [task.draw(sentinel.batch, torch.Generator().manual_seed(seed)) for seed in range(BATCHES)]
        batches = [tuple(tensor.pin_memory() for tensor in batch) for batch in batches]
        self.inputs = tuple(tensor.cuda() for tensor in batches[0])
        self.warms_up = True
        self._warmup_batch = warmup_batch
        self._micro_batches = micro_batches
        self.workload = training.Workload(self.model, self.optimizer, self.step, self.inputs, batches)

    def step(self) -> torch.Tensor:
        inputs = self.inputs
        if self.warms_up and self._warmup_batch and not torch.cuda.is_current_stream_capturing():
            inputs = tuple(tensor[: self._warmup_batch] for tensor in inputs)
        loss = self._gradients(inputs)
        self.optimizer.step()
        # At the end, not the beginning: gradients then live and die within the step, and need no memory between steps.
        self.optimizer.zero_grad(set_to_none=True)
        return loss

    def _gradients(self, inputs: Tuple[torch.Tensor, ...]) -> torch.Tensor:
        if self._micro_batches == 1:
            return self._backward(inputs, 1)
        parts = list(zip(*(tensor.chunk(self._micro_batches) for tensor in inputs)))
        return torch.stack([self._backward(part, len(parts)) for part in parts]).sum()

    def _backward(self, inputs: Tuple[torch.Tensor, ...], parts: int) -> torch.Tensor:
        with torch.autocast("cuda", dtype=torch.bfloat16, enabled=self.sentinel.precision == "bf16"):
            loss = self.model(*inputs)
            if parts > 1:
                loss = loss / parts
        loss.backward()
        return loss.detach()


def _optimizer(sentinel: Sentinel, model: torch.nn.Module) -> torch.optim.Optimizer:
    if sentinel.optimizer == "adamw":
        # capturable: the step counts live on the device; fused: one sweep over parameters and state.
        return torch.optim.AdamW(model.parameters(), lr=sentinel.rate, fused=True, capturable=True)
    return torch.optim.SGD(model.parameters(), lr=sentinel.rate, momentum=0.9, fused=True)


# ---- PyTorch's own allocator -----------------------------------------------------------------------------------------


def run_plain(job: Figures, sentinel: Sentinel, micro_batches: int = 1) -> Figures:
    trained = Trained(sentinel, job["warmup_batch"], micro_batches)
    if sentinel.micro_batches and micro_batches == 1:
        trained.warms_up = False  # what is asked is whether the whole batch fits; an eager step fails more cleanly
    step = training.PlainStep(trained.step, warmup=1)
    seconds, _ = training.first_replay(step)
    losses = training.train(step, trained.workload, job["steps"])
    return {
        "losses": [loss.hex() for loss in losses],
        "step_ms": training.time_replays(step, job["timed"]),
        "peak_bytes": torch.cuda.max_memory_allocated(),
        "timings": dict(step.timings, first_replay_s=seconds),
    }


class Remedy:
    """One of PyTorch's remedies on one model, at any number of budgets. What was found at one serves the next: where
    all blocks are needed once, they are needed again."""

    def __init__(self, name: str, job: Figures, sentinel: Sentinel):
        self._name, self._job = name, job
        self._trained = Trained(sentinel, job["warmup_batch"])
        self._peak_of = remedies.remembered(self._eager_peak)
        self._figures_of = remedies.remembered(self._time)
        self._trained.step()  # makes the optimizer's state

    def figures(self, budget_bytes: int) -> Figures:
        blocks = self._trained.blocks
        count = remedies.fewest_blocks(len(blocks), self._peak_of, budget_bytes)
        return {
            **self._figures_of(count),
            "blocks": count,
            "blocks_in_all": len(blocks),
            "budget_bytes": budget_bytes,
        }

    def _eager_peak(self, count: int) -> int:
        self._trained.warms_up = False
        _forget_peak()
        with remedies.applied(self._name, self._trained.blocks[:count]):
            self._trained.step()
        torch.cuda.synchronize()
        return torch.cuda.max_memory_allocated()

    def _time(self, count: int) -> Figures:
        _forget_peak()
        # A copy to the host in the forward pass waits for itself, which a capture cannot hold.
        captured = self._name != "offload"
        with remedies.applied(self._name, self._trained.blocks[:count]):
            samples = self._time_replays() if captured else self._time_eager()
        return {"step_ms": samples, "peak_bytes": torch.cuda.max_memory_allocated(), "captured": captured}

    def _time_replays(self) -> List[float]:
        self._trained.warms_up = True
        step = training.PlainStep(self._trained.step, warmup=1)
        step.replay()
        return training.time_replays(step, self._job["timed"])

    def _time_eager(self) -> List[float]:
        self._trained.warms_up = False
        samples = []
        for _ in range(max(3, self._job["timed"] // 2)):
            torch.cuda.synchronize()
            start = time.perf_counter()
            self._trained.step()
            torch.cuda.synchronize()
            samples.append((time.perf_counter() - start) * 1e3)
        return samples


def _forget_peak() -> None:
    gc.collect()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()


# ---- PumpGraph -------------------------------------------------------------------------------------------------------


def run_pumpgraph(job: Figures, sentinel: Sentinel, budget_bytes: Optional[int], kind: str = "record") -> Figures:
    """Without a budget the plan moves nothing: every node is timed, and the step is saved. It is planned all the same:
    as captured, with memory of its own for every buffer, a step needs far more than its peak."""
    costs = Path(job["costs"])
    # A step that does not fit the card has no record row.
    recorded = budget_bytes is not None and job["plan_with"] == "recorded" and not sentinel.micro_batches
    if recorded and not costs.is_file():
        return {"error": f"there is no recorded step {costs}"}
    pumpgraph.install(budget="unlimited" if budget_bytes is None else budget_bytes, budget_of="tensors",
                      rematerialize="automatic" if kind == "budget" else "never")
    trained = Trained(sentinel, job["warmup_batch"])
    checkpointed = trained.blocks[:checkpointed_blocks(kind, len(trained.blocks))]
    with remedies.applied("checkpoint", checkpointed):
        step = pumpgraph.capture(
            trained.step,
            warmup=1,
            private=[trained.model, trained.optimizer],
            inputs=trained.inputs,
            name=sentinel.name,
            costs=costs if recorded else None,
            keep_first_plan=True,  # planned again here and now, not some replays later
        )
    reason = step.report().left_as_captured
    if reason and budget_bytes is not None:
        # What exceeds the budget is read from the host then: seconds a step, and nothing that the table is about.
        return {"refused": f"left as captured: {reason}"}
    seconds, _ = training.first_replay(step)
    figures: Figures = {}
    if budget_bytes is not None and job["plan_with"] == "replan":
        figures = replan(step)
    steps = 0 if budget_bytes is None else job["steps"]
    figures.update({
        "losses": [loss.hex() for loss in training.train(step, trained.workload, steps)],
        "step_ms": training.time_replays(step, job["timed"]),
        "timings": dict(step.timings, first_replay_s=seconds),
        "device_used_bytes": training.device_bytes_used(),
        "memory": pumpgraph.memory_stats(),
        "report": shortened(dict(step.report())),
    })
    figures["peak_bytes"] = figures["memory"]["device_peak_bytes"]
    if budget_bytes is None:
        figures["measured"] = step.measure(3)._asdict()
        step.save(costs)
    else:
        figures["budget_bytes"] = budget_bytes
    return figures


def replan(step: Any) -> Figures:
    try:
        return {"replanned": step.replan()._asdict()}
    except pumpgraph.PumpGraphError as error:  # the first plan goes on
        return {"replan_failed": str(error)}


def shortened(report: Figures) -> Figures:
    """A report lists every stall; the longest tell enough."""
    stalls = report.get("stalls") or []
    kept = {"stalls": stalls[:STALLS_KEPT], "stall_count": len(stalls)}
    return {**report, **kept, "stalls_s": sum(stall.get("duration_s", 0) for stall in stalls)}


# ---- one job ---------------------------------------------------------------------------------------------------------


class Runner:
    def __init__(self, job: Figures):
        self._job = job
        self._sentinel = BY_NAME[job["sentinel"]]
        self._plain_peak: Optional[int] = job["plain_peak_bytes"]
        self._remedy: Optional[Tuple[str, Remedy]] = None

    def run_all(self) -> None:
        training.make_deterministic()
        for row in self._job["rows"]:
            start = time.perf_counter()
            figures = self._attempt(row)
            figures["seconds"] = time.perf_counter() - start
            figures["device"], figures["torch"] = torch.cuda.get_device_name(), torch.__version__
            with open(self._job["results"], "a") as file:
                file.write(json.dumps({"key": row["key"], "figures": figures}) + "\n")
            if row["kind"] not in ("record", *PLANNED):  # a pluggable allocator has no caches and no statistics
                _forget_peak()

    def _attempt(self, row: Figures) -> Figures:
        try:
            return self._run(row)
        except pumpgraph.PumpGraphError as error:  # first: where memory is short it is one of PyTorch's too
            if error.status == pumpgraph.Status.UNPLANNABLE:
                return {"refused": str(error)}
            return {"error": str(error)}
        except torch.cuda.OutOfMemoryError as error:
            return {"error": f"out of device memory: {_first_line(error)}", "out_of_memory": True}
        except RuntimeError as error:
            traceback.print_exc()
            return {"error": f"{type(error).__name__}: {_first_line(error)}"}

    def _run(self, row: Figures) -> Figures:
        kind = row["kind"]
        if kind == "plain":
            figures = run_plain(self._job, self._sentinel)
            self._plain_peak = figures["peak_bytes"]
            return figures
        if kind == "micro":
            return run_plain(self._job, self._sentinel, self._sentinel.micro_batches)
        if kind == "record":
            return run_pumpgraph(self._job, self._sentinel, None)
        budget = Budget(**row["budget"]).bytes_of(self._plain_peak)
        if budget is None:
            return {"error": "the plain row before it failed, which tells the peak"}
        if kind in PLANNED:
            return run_pumpgraph(self._job, self._sentinel, budget, kind)
        if self._remedy is None or self._remedy[0] != kind:
            self._remedy = None  # before the next one needs its memory
            _forget_peak()
            self._remedy = (kind, Remedy(kind, self._job, self._sentinel))
        return self._remedy[1].figures(budget)


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def main() -> int:
    line = sys.stdin.readline()
    if line.strip():  # else it was a spare that nobody needed
        Runner(json.loads(line)).run_all()
    return 0


if __name__ == "__main__":
    sys.exit(main())
