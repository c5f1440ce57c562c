# SPDX-License-Identifier: Apache-2.0
"""The table of real programs: which there are, how each is run, and which rows one process runs. Needs no PyTorch;
program_worker.py is what does."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import Any, Dict, Iterator, List, Optional, Sequence, Tuple

Done = Dict[str, Dict[str, Any]]
FOLDER = Path(__file__).resolve().parent / "programs"
SHARE = 2  # of its memory a program gets one in so many


@dataclasses.dataclass(frozen=True)
class Program:
    name: str  # of the file in programs/
    title: str
    libraries: Tuple[str, ...] = ()  # beside PyTorch
    uncaptured: str = ""  # why plain PyTorch cannot capture its steps

    @property
    def file(self) -> Path:
        return FOLDER / f"{self.name}.py"


_TRAINER = "the Trainer has the loop"

PROGRAMS = (
    Program("causal_lm", "Llama 220M, transformers", ("transformers",)),
    Program("encoder_decoder", "T5, transformers", ("transformers",)),
    Program("vision", "ViT-B/16, transformers", ("transformers",)),
    Program("lora", "Llama 950M, LoRA by peft", ("transformers", "peft")),
    Program("trainer", "BERT, transformers.Trainer", ("transformers", "accelerate"), _TRAINER),
    Program("lightning_module", "ConvNeXt-T of timm, Lightning", ("lightning", "timm"), _TRAINER),
    Program("segmentation", "DeepLabV3, torchvision", ("torchvision",)),
    Program("detection", "CenterNet on torchvision's pyramid", ("torchvision",)),
    Program("gan", "DCGAN, two steps in turns"),
    Program("actor_critic", "soft actor-critic, eager acting"),
    Program("averaged_weights", "ViT-B/16 of torchvision, averaged weights", ("torchvision",)),
    Program("mixup", "ResNet-50, mixup of torchvision", ("torchvision",)),
    Program("compiled_blocks", "GPT, blocks by torch.compile"),
    Program("checkpointed", "GPT, activation checkpointing", (),
            "a checkpoint saves the state of the random-number generator"),
    Program("decoding", "Llama 1.2B, decoding with a static cache", ("transformers",)),
    Program("graph_network", "GraphSAGE, torch_geometric", ("torch_geometric",)),
    Program("mixture_of_experts", "Mixtral, transformers", ("transformers",)),
    Program("diffusion", "diffusion U-Net"),
    Program("audio", "audio spectrogram transformer, fp16 with GradScaler", ("transformers",)),
    Program("recommender", "DLRM, 16 tables"),
)
BY_NAME = {program.name: program for program in PROGRAMS}

KINDS = ("eager", "graph", "pumpgraph")


def lines_changed(program: Program) -> int:
    """How many lines a program has more, or others, under PumpGraph: the import; install(), which a trainer's callback
    calls; and each line that names a step or asks for the callback."""
    own = re.findall(r"^.*\brun\.(?:graphed|callbacks)\b.*$", program.file.read_text(), re.MULTILINE)
    by_callback = any("run.callbacks" in line for line in own)
    return len(own) + (1 if by_callback else 2)


@dataclasses.dataclass(frozen=True)
class Row:
    program: Program
    kind: str
    repeat: int

    @property
    def key(self) -> str:
        return row_key(self.program, self.kind, self.repeat)


def row_key(program: Program, kind: str, repeat: int) -> str:
    return f"{program.name}/{kind}/{repeat}"


@dataclasses.dataclass(frozen=True)
class Job:
    """Rows of one process: those with PyTorch's own allocator, or that with PumpGraph's."""

    program: Program
    rows: Tuple[Row, ...]

    @property
    def title(self) -> str:
        return f"{self.program.name} {' '.join(row.kind for row in self.rows)}"


def plan_jobs(chosen: Sequence[Program], kinds: Sequence[str], repeats: int) -> List[Job]:
    """All first runs before all second ones."""
    return [job for repeat in range(repeats) for program in chosen for job in _jobs_of(program, kinds, repeat)]


def _jobs_of(program: Program, kinds: Sequence[str], repeat: int) -> Iterator[Job]:
    for group in (("eager", "graph"), ("pumpgraph",)):
        rows = tuple(Row(program, kind, repeat) for kind in group if kind in kinds)
        if rows:
            yield Job(program, rows)


def missing(job: Job, done: Done) -> Optional[Job]:
    """What of the job is still to be run; None if nothing is. What was refused is a result."""
    rows = tuple(row for row in job.rows if "error" in done.get(row.key, {"error": "not run"}))
    return Job(job.program, rows) if rows else None


def eager_peak(program: Program, done: Done) -> Optional[int]:
    return done.get(row_key(program, "eager", 0), {}).get("peak_bytes")


def budget_bytes(program: Program, done: Done) -> Optional[int]:
    """None where nobody knows what the program takes."""
    peak = eager_peak(program, done)
    return None if peak is None else peak // SHARE


def lacks(job: Job, done: Done) -> Optional[str]:
    """Why the job cannot be run yet; None if it can."""
    if any(row.kind == "pumpgraph" for row in job.rows) and budget_bytes(job.program, done) is None:
        return "no eager row before it, which tells the peak"
    return None
