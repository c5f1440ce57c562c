# SPDX-License-Identifier: Apache-2.0
"""The sentinel table: which models it trains, which rows each has, and which of them one process runs. Needs no
PyTorch; sentinel_worker.py is what does."""

from __future__ import annotations

import dataclasses
import importlib
from typing import Any, Dict, Iterator, List, Optional, Sequence, Tuple

Done = Dict[str, Dict[str, Any]]
GIB = 2**30


@dataclasses.dataclass(frozen=True)
class Budget:
    """A share of what plain PyTorch needs at its peak, or a fixed size."""

    name: str
    divisor: float = 0
    size_bytes: int = 0

    def bytes_of(self, plain_peak: Optional[int]) -> Optional[int]:
        """None: the share of a peak that is not known."""
        if self.size_bytes:
            return self.size_bytes
        return None if plain_peak is None else int(plain_peak / self.divisor)

    @property
    def title(self) -> str:
        return self.name if self.size_bytes else f"1/{self.name}"


SHARES = tuple(Budget(name, divisor=float(name)) for name in ("1.5", "2", "3", "4"))
STUDY = (Budget("32GB", size_bytes=32 * 10**9),)  # the card of the published study


@dataclasses.dataclass(frozen=True)
class Sentinel:
    name: str
    title: str
    model: str  # file and function below models/
    sizes: Dict[str, Any]
    batch: int
    precision: str  # bf16: autocast; fp32: nothing
    optimizer: str
    rate: float
    budgets: Tuple[Budget, ...] = SHARES
    micro_batches: int = 0  # not 0: the step does not fit the card, and is compared with this many smaller ones
    extra: bool = False  # runs only where it is named
    library: str = ""  # that its model needs beside PyTorch
    # How much longer than the best plan that runs nothing again a step may take with everything on: moves alone, or
    # after checkpoints in the program.
    most_over_others: float = 1.0

    def build(self) -> Any:
        """The Task (models/task.py), on PyTorch's default device."""
        file, function = self.model.split(".")
        return getattr(importlib.import_module(f"models.{file}"), function)(**self.sizes)


_RESNET_1001 = ("resnet.preactivation", {"depth": 1001, "width": 64})
_DENSENET_264 = ("densenet.densenet", {"layers": (6, 12, 64, 48)})
_VIT_L16 = ("transformer.vit", {"layers": 24, "width": 1024, "heads": 16})
# Models that the planner was not made with: it is promised to come close there, and no more.
_UNSEEN: Dict[str, Any] = {"budgets": (Budget("3", divisor=3),), "extra": True, "most_over_others": 1.05}

# The batches of ResNet-1001 and DenseNet-264 are twice those that just fit 32 GB.
SENTINELS = (
    Sentinel("resnet152", "ResNet-152", "resnet.bottleneck", {"layers": (3, 8, 36, 3)}, 128, "bf16", "sgd", 0.01),
    Sentinel("gpt2-355m", "GPT-2 355M, sequence 1,024", "transformer.gpt",
             {"layers": 24, "width": 1024, "heads": 16, "length": 1024}, 8, "bf16", "adamw", 2e-4),
    Sentinel("lm1408", "LM-1408", "language.lstm", {"length": 1408, "words": 33278, "width": 256}, 80, "fp32", "sgd",
             0.1),
    Sentinel("vit-l16", "ViT-L/16", *_VIT_L16, 64, "bf16", "adamw", 1e-4),
    Sentinel("gpt-1.3b", "GPT 1.3B, sequence 1,024", "transformer.gpt",
             {"layers": 24, "width": 2048, "heads": 16, "length": 1024}, 2, "bf16", "adamw", 1e-4),
    Sentinel("unet", "diffusion U-Net, 64 x 64", "unet.unet", {"width": 192}, 48, "bf16", "adamw", 1e-4),
    Sentinel("vgg19", "VGG-19", "vgg.vgg", {"counts": (2, 2, 4, 4, 4)}, 256, "bf16", "sgd", 0.001),
    Sentinel("vnet", "V-Net, 128 x 128 x 64", "vnet.vnet", {"shape": (128, 128, 64)}, 16, "bf16", "sgd", 0.01),
    Sentinel("resnet1001", "ResNet-1001, 32 x 32", *_RESNET_1001, 202, "bf16", "sgd", 0.01, STUDY),
    Sentinel("densenet264", "DenseNet-264", *_DENSENET_264, 430, "bf16", "sgd", 0.01, STUDY),
    Sentinel("resnet1001-fp32", "ResNet-1001, 32 x 32", *_RESNET_1001, 98, "fp32", "sgd", 0.01, STUDY, extra=True),
    Sentinel("densenet264-fp32", "DenseNet-264", *_DENSENET_264, 218, "fp32", "sgd", 0.01, STUDY, extra=True),
    Sentinel("beyond-card", "ViT-L/16, more than the card has", *_VIT_L16, 896, "bf16", "adamw", 1e-4,
             (Budget("120GiB", size_bytes=120 * GIB),), micro_batches=8, extra=True),
    Sentinel("llama-336m", "Llama 336M, sequence 1,024", "library.llama",
             {"layers": 24, "width": 1024, "heads": 16, "shared_heads": 4, "hidden": 2816, "length": 1024,
              "vocabulary": 32000}, 12, "bf16", "adamw", 2e-4, library="transformers", **_UNSEEN),
    Sentinel("convnext-b", "ConvNeXt-B", "library.convnext",
             {"widths": (128, 256, 512, 1024), "layers": (3, 3, 27, 3)}, 128, "bf16", "adamw", 1e-4,
             library="torchvision", **_UNSEEN),
    Sentinel("swin-s", "Swin-S", "library.swin", {"width": 96, "layers": (2, 2, 18, 2)}, 128, "bf16", "adamw", 1e-4,
             library="torchvision", **_UNSEEN),
)
BY_NAME = {sentinel.name: sentinel for sentinel in SENTINELS}


def unnamed(done: Done) -> List[Sentinel]:
    """Those of a table where none is named: the usual ones, and others with results that fit among their rows."""
    measured = {key.split("/")[0] for key in done}
    return [sentinel for sentinel in SENTINELS
            if not sentinel.extra or sentinel.name in measured and not sentinel.micro_batches]


# What a row is; all but `plain`, `micro` and `record` are one row for each of the sentinel's budgets. `moves` is a plan
# that runs nothing again, `budget` one that may, and the rows by hand are like `moves` with so many percent of the
# blocks checkpointed in the program.
BY_HAND = {"hand25": 25, "hand50": 50, "hand75": 75, "hand100": 100}
REMEDIES = ("checkpoint", "offload")
PLANNED = ("moves", *BY_HAND, "budget")
KINDS = ("plain", "micro", *REMEDIES, "record", *PLANNED)
USUAL_KINDS = tuple(kind for kind in KINDS if kind not in BY_HAND)
REPEATED_KINDS = ("plain", "moves", "budget")


def checkpointed_blocks(kind: str, count: int) -> int:
    """How many of the program's `count` blocks checkpoint in a row of this kind: the first ones."""
    return count * BY_HAND.get(kind, 0) // 100


@dataclasses.dataclass(frozen=True)
class Row:
    sentinel: Sentinel
    kind: str
    repeat: int
    budget: Optional[Budget] = None

    @property
    def key(self) -> str:
        return row_key(self.sentinel, self.kind, self.budget, self.repeat)


def row_key(sentinel: Sentinel, kind: str, budget: Optional[Budget], repeat: int) -> str:
    return f"{sentinel.name}/{kind}{'@' + budget.name if budget else ''}/{repeat}"


@dataclasses.dataclass(frozen=True)
class Job:
    """Rows that share one process: all that use PyTorch's own allocator, or one of PumpGraph's, which has one budget a
    process."""

    sentinel: Sentinel
    rows: Tuple[Row, ...]

    @property
    def title(self) -> str:
        names = [row.key.split("/")[1] for row in self.rows]
        return f"{self.sentinel.name} {' '.join(names)}"


def plan_jobs(chosen: Sequence[Sentinel], kinds: Sequence[str], repeats: int) -> List[Job]:
    """All first runs, then all second ones, and so on: what drifts over minutes then hits every row alike. Remedies,
    recordings and rows by hand are made once."""
    return [
        job
        for repeat in range(repeats)
        for sentinel in chosen
        for job in _jobs_of(sentinel, [kind for kind in kinds if repeat == 0 or kind in REPEATED_KINDS], repeat)
    ]


def _jobs_of(sentinel: Sentinel, kinds: Sequence[str], repeat: int) -> Iterator[Job]:
    def rows(kind: str) -> List[Row]:
        if kind not in kinds:
            return []
        if kind in ("plain", "micro", "record"):
            return [Row(sentinel, kind, repeat)]
        return [Row(sentinel, kind, repeat, budget) for budget in sentinel.budgets]

    too_large = sentinel.micro_batches > 0
    groups = [rows("plain")]
    if too_large:
        groups += [rows("micro")]  # after a failed allocation a process is no place to measure anything
    else:
        groups[0] += rows("checkpoint") + rows("offload")
        groups += [rows("record")]
    planned = ("budget",) if too_large else PLANNED
    groups += [[row] for kind in planned for row in rows(kind)]
    yield from (Job(sentinel, tuple(group)) for group in groups if group)


def missing(job: Job, done: Done) -> Optional[Job]:
    """What of the job is still to be run; None if nothing is."""
    rows = tuple(row for row in job.rows if not _has_result(row, done.get(row.key, {"error": "not run"})))
    return Job(job.sentinel, rows) if rows else None


def _has_result(row: Row, figures: Dict[str, Any]) -> bool:
    return "error" not in figures or is_expected_failure(row.sentinel, row.kind, figures)


def is_expected_failure(sentinel: Sentinel, kind: str, figures: Dict[str, Any]) -> bool:
    """A card that is too small is what the plain row of such a sentinel is there to show."""
    return sentinel.micro_batches > 0 and kind == "plain" and "out_of_memory" in figures


def plain_peak(sentinel: Sentinel, done: Done) -> Optional[int]:
    return done.get(f"{sentinel.name}/plain/0", {}).get("peak_bytes")


def lacks(job: Job, done: Done) -> Optional[str]:
    """Why the job cannot be run yet; None if it can."""
    measures_plain = any(row.kind == "plain" for row in job.rows)
    for row in job.rows:
        if row.budget and not measures_plain and row.budget.bytes_of(plain_peak(job.sentinel, done)) is None:
            return "no plain row before it, which tells the peak"
    return None
