# SPDX-License-Identifier: Apache-2.0
"""What the PyTorch examples share: arguments, the training loop, timing, figures. Not needed to use PumpGraph."""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import statistics
import sys
import time
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

# Read by cuBLAS when CUDA starts: one fixed workspace a stream, without which its results may differ between runs.
os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
# A checkout is used as it is; an installed package needs no path.
sys.path.append(str(Path(__file__).resolve().parents[3] / "runtime" / "python"))

import torch  # noqa: E402

import pumpgraph  # noqa: E402


@dataclasses.dataclass
class Workload:
    """`step` trains once on `inputs`, tensors at fixed addresses, and returns the loss."""

    model: torch.nn.Module
    optimizer: torch.optim.Optimizer
    step: Callable[[], torch.Tensor]
    inputs: Tuple[torch.Tensor, ...]
    batches: List[Tuple[torch.Tensor, ...]]  # pinned host memory


class PlainStep:
    """The step as PyTorch captures and replays it by itself: the baseline."""

    def __init__(self, fn: Callable[[], torch.Tensor], warmup: int):
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(warmup):
                fn()
        torch.cuda.synchronize()
        start = time.perf_counter()
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph, stream=stream):
            self.output = fn()
        self.timings = {"capture_s": time.perf_counter() - start}

    def replay(self) -> None:
        self._graph.replay()


def parse_arguments(name: str, default_batch: int, default_budget: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=f"Trains {name} under a device-memory budget.")
    parser.add_argument("--budget", default=default_budget, help="device memory, such as 4GiB, or unlimited "
                        "(%(default)s)")
    parser.add_argument("--plain", action="store_true", help="without PumpGraph: PyTorch's own allocator and graph")
    parser.add_argument("--batch", type=int, default=default_batch, help="samples a step (%(default)s)")
    parser.add_argument("--steps", type=int, default=20, help="training steps (%(default)s)")
    parser.add_argument("--warmup", type=int, default=3, help="eager steps before the capture (%(default)s)")
    parser.add_argument("--timed", type=int, default=10, help="replays timed after training (%(default)s)")
    parser.add_argument("--losses", metavar="FILE", help="write the losses as hexadecimal floats, one a line")
    parser.add_argument("--json", metavar="FILE", help="write all figures")
    parser.add_argument("--save", metavar="FILE", help="write the captured step as IR (.mlir or .mlir.gz)")
    parser.add_argument("--costs", metavar="FILE", help="plan with the node times of a step saved before")
    parser.add_argument("--leave-as-captured", action="store_true", help="rewrite nothing: what exceeds the budget is "
                        "read from the host")
    parser.add_argument("--measure", type=int, default=0, metavar="N", help="time every node by N instrumented "
                        "replays, for --save; implies --leave-as-captured")
    parser.add_argument("--validate", action="store_true", help="compare the rewritten step with the captured one")
    return parser.parse_args()


def make_deterministic() -> None:
    """Two runs of the same step then agree bit for bit, so that any difference is somebody's fault."""
    torch.manual_seed(0)
    torch.backends.cudnn.benchmark = False
    torch.use_deterministic_algorithms(True)  # warn_only would leave flash attention as it is
    torch.utils.deterministic.fill_uninitialized_memory = False  # adds a fill of every new tensor


def train(step: Any, workload: Workload, steps: int) -> List[float]:
    losses = []
    for index in range(steps):
        for static, fresh in zip(workload.inputs, workload.batches[index % len(workload.batches)]):
            static.copy_(fresh, non_blocking=True)
        step.replay()
        losses.append(step.output.item())
    return losses


def time_replays(step: Any, count: int) -> List[float]:
    """Milliseconds of each of `count` replays, one right after the other."""
    if count == 0:
        return []
    marks = [torch.cuda.Event(enable_timing=True) for _ in range(count + 1)]
    torch.cuda.synchronize()
    marks[0].record()
    for mark in marks[1:]:
        step.replay()
        mark.record()
    torch.cuda.synchronize()
    return [before.elapsed_time(after) for before, after in zip(marks, marks[1:])]


def device_bytes_used() -> int:
    free, total = torch.cuda.mem_get_info()
    return total - free


def first_replay(step: Any) -> Tuple[float, float]:
    """Seconds of the first replay, and its loss."""
    start = time.perf_counter()
    step.replay()
    loss = step.output.item()
    return time.perf_counter() - start, loss


def capture(name: str, workload: Workload, arguments: argparse.Namespace) -> Any:
    if arguments.plain:
        return PlainStep(workload.step, arguments.warmup)
    return pumpgraph.capture(
        workload.step,
        warmup=arguments.warmup,
        private=[workload.model, workload.optimizer],
        name=name,
        costs=arguments.costs,
        leave_as_captured=arguments.leave_as_captured or arguments.measure > 0,
    )


def run(name: str, build: Callable[[int], Workload], arguments: argparse.Namespace) -> Dict[str, Any]:
    start = time.perf_counter()
    make_deterministic()
    if not arguments.plain:
        pumpgraph.install(budget=arguments.budget, budget_of="tensors")  # as PyTorch counts its peak
    workload = build(arguments.batch)
    step = capture(name, workload, arguments)
    seconds, _ = first_replay(step)
    timings = dict(step.timings, first_replay_s=seconds)
    losses = train(step, workload, arguments.steps)
    samples = time_replays(step, arguments.timed)
    figures: Dict[str, Any] = {
        "example": name,
        "plain": arguments.plain,
        "budget": None if arguments.plain else arguments.budget,
        "batch": arguments.batch,
        "device": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "losses": [loss.hex() for loss in losses],
        "step_ms": samples,
        "timings": timings,
        "device_used_bytes": device_bytes_used(),
    }
    if arguments.plain:
        figures["peak_bytes"] = torch.cuda.max_memory_allocated()
    else:
        figures.update(pumpgraph_figures(step, arguments))
    figures["seconds"] = time.perf_counter() - start
    return figures


def pumpgraph_figures(step: Any, arguments: argparse.Namespace) -> Dict[str, Any]:
    figures: Dict[str, Any] = {"memory": pumpgraph.memory_stats(), "report": dict(step.report())}
    figures["peak_bytes"] = figures["memory"]["device_peak_bytes"]
    if arguments.validate:
        figures["validation"] = step.validate()._asdict()
    if arguments.measure:
        figures["measured"] = step.measure(arguments.measure)._asdict()
    if arguments.save:
        step.save(arguments.save)
    print(step.report())
    return figures


def show(figures: Dict[str, Any]) -> None:
    losses = [float.fromhex(text) for text in figures["losses"]]
    print("losses " + " ".join(f"{loss:.4f}" for loss in losses))
    print(f"step   {spread(figures['step_ms'])}")
    print(f"peak   {figures['peak_bytes'] / 2**30:.2f} GiB")
    if "validation" in figures:
        result = figures["validation"]
        print(f"valid  {result['compared_buffers']} buffers equal, {result['unstable_buffers']} not reproduced by the "
              "captured step itself")


def spread(samples: Sequence[float]) -> str:
    if not samples:
        return "not timed"
    return f"{statistics.median(samples):.2f} ms ({min(samples):.2f}-{max(samples):.2f}, {len(samples)} replays)"


def write(path: Optional[str], text: str) -> None:
    if path:
        Path(path).write_text(text)


def main(name: str, build: Callable[[int], Workload], default_batch: int, default_budget: str) -> None:
    arguments = parse_arguments(name, default_batch, default_budget)
    if torch.cuda.device_count() == 0:  # is_available() would initialise CUDA before the session does
        sys.exit(f"{name}: error: PyTorch sees no GPU")
    try:
        figures = run(name, build, arguments)
    except pumpgraph.PumpGraphError as error:
        sys.exit(f"{name}: error: {error}")
    show(figures)
    write(arguments.losses, "".join(loss + "\n" for loss in figures["losses"]))
    write(arguments.json, json.dumps(figures, indent=1) + "\n")
