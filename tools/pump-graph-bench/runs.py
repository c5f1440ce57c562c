# SPDX-License-Identifier: Apache-2.0
"""What is run: the examples, the configurations of each, and one configuration in a process of its own."""

from __future__ import annotations

import dataclasses
import gzip
import hashlib
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Dict, List, Optional

from outside import printable, read_json

ROOT = Path(__file__).resolve().parents[2]
PERCENTAGES = (100, 75, 50, 30)
# What the wholly host-backed run gets on the device: next to nothing.
HOST_BACKED_BUDGET = 64 << 20


@dataclasses.dataclass(frozen=True)
class Example:
    name: str
    title: str
    command: List[str]  # without the configuration
    step_suffix: str = ".mlir.gz"  # of the files that it saves steps to
    environment: Dict[str, str] = dataclasses.field(default_factory=lambda: dict(os.environ))


def examples(binaries: Path) -> List[Example]:
    pytorch = ROOT / "docs" / "examples" / "pytorch"
    # The library that was built beside these binaries, unless another one is named.
    environment = {"PUMPGRAPH_LIBRARY": str(binaries.resolve().parent / "lib" / "libpumpgraph.so"), **os.environ}

    def python(script: str, *arguments: str) -> List[str]:
        return [sys.executable, str(pytorch / script), *arguments]

    return [
        Example("resnet50", "ResNet-50, fp32, SGD, batch 32", python("resnet50.py", "--batch", "32"),
                environment=environment),
        Example("gpt2", "GPT-2 124M, bf16, AdamW, batch 8 x 1024", python("gpt2.py", "--batch", "8"),
                environment=environment),
        Example("transformer", "C++ transformer, TF32, AdamW, batch 8 x 512",
                [str(binaries / "pumpgraph-example-transformer")], step_suffix=".mlir"),
    ]


# `plain` first, for its peak is what budgets are percentages of; `record` next, for the others plan with its times.
ROWS = ("plain", "record", "host", *map(str, PERCENTAGES), "full")
ROWS_REPEATED = ("plain", *map(str, PERCENTAGES), "full")


@dataclasses.dataclass(frozen=True)
class Run:
    example: Example
    row: str
    repeat: int

    @property
    def key(self) -> str:
        return f"{self.example.name}/{self.row}/{self.repeat}"


def plan_runs(chosen: List[Example], rows: List[str], repeats: int) -> List[Run]:
    """All first runs, then all second ones, and so on: what drifts over minutes then hits every row alike."""
    return [
        Run(example, row, repeat)
        for repeat in range(repeats)
        for example in chosen
        for row in rows
        if repeat == 0 or row in ROWS_REPEATED
    ]


def load(path: Path) -> Dict[str, Any]:
    """The last line of each run counts. A line cut short by a kill is no result."""
    done: Dict[str, Any] = {}
    if path.is_file():
        for line in path.read_text().splitlines():
            try:
                entry = read_json(line)
                done[entry["key"]] = entry["figures"]
            except (KeyError, TypeError, ValueError):
                continue
    return done


class NotReady(Exception):
    """A run needs a figure of another one that is not there."""


def budget_of(run: Run, done: Dict[str, Any]) -> Optional[int]:
    """Bytes; None is unlimited. Percentages are of the plain run's peak, not of our own rounding."""
    if run.row == "host":
        return HOST_BACKED_BUDGET
    if run.row == "full":
        for row in map(str, PERCENTAGES):
            report = report_of(done.get(f"{run.example.name}/{row}/0"))
            if "peak_bytes_before" in report:
                # The plan's budget is the session's less what tensors outside the step hold.
                return report["peak_bytes_before"] + report["runtime"]["budget_bytes"] - report["budget_bytes"]
        raise NotReady("no run with a plan before it, which tells the page-granular peak")
    if run.row.isdigit():
        plain = done.get(f"{run.example.name}/plain/0")
        if not plain:
            raise NotReady("no plain run before it, which tells the peak")
        return plain["peak_bytes"] * int(run.row) // 100
    return None


def report_of(figures: Optional[Dict[str, Any]]) -> Dict[str, Any]:
    return (figures or {}).get("report") or {}


def arguments_of(run: Run, done: Dict[str, Any], costs: Path, steps: int, timed: int) -> List[str]:
    common = ["--warmup", "2", "--timed", str(timed)]
    if run.row == "plain":
        return [*common, "--plain", "--steps", str(steps)]
    if run.row == "record":
        return [*common, "--budget", "unlimited", "--steps", "0", "--measure", "5", "--save", str(costs)]
    if run.row == "host":  # seconds a step: two tell enough
        few = ["--warmup", "1", "--timed", "2", "--steps", "0"]
        return [*few, "--budget", str(HOST_BACKED_BUDGET), "--leave-as-captured"]
    arguments = [*common, "--steps", str(steps), "--budget", str(budget_of(run, done))]
    return arguments + (["--costs", str(costs)] if costs.is_file() else [])


def execute(run: Run, done: Dict[str, Any], costs: Path, steps: int, timed: int, timeout: float) -> Dict[str, Any]:
    """Figures of one run, or {"error": ...}. Never raises for what the run does."""
    start = time.time()
    with tempfile.TemporaryDirectory() as folder:
        figures_file = Path(folder) / "figures.json"
        saved = Path(folder) / ("step" + run.example.step_suffix)
        try:
            command = run.example.command + arguments_of(run, done, costs, steps, timed)
        except NotReady as missing:
            return {"error": str(missing)}
        command += ["--json", str(figures_file)]
        if run.row not in ("plain", "record"):
            command += ["--save", str(saved)]
        error = _spawn(command, timeout, run.example.environment)
        if error:
            return {"error": error, "command": command}
        try:
            figures = read_json(figures_file.read_text())
        except (OSError, ValueError) as problem:
            return {"error": f"no figures: {printable(problem)}", "command": command}
        step = costs if run.row == "record" else saved
        if step.is_file():
            figures["sequence"] = node_sequence(step)
        figures["wall_s"] = time.time() - start
        figures["command"] = command
        return figures


def _spawn(command: List[str], timeout: float, environment: Dict[str, str]) -> Optional[str]:
    """None if it went well, else why not."""
    try:
        result = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=timeout,
                                env=environment)
    except subprocess.TimeoutExpired:
        return f"stopped after {timeout:.0f} s"
    except OSError as problem:
        return printable(problem)
    if result.returncode == 0:
        return None
    last = result.stderr.decode("utf-8", "replace").strip().splitlines()[-4:]
    return printable(f"exit status {result.returncode}: " + " | ".join(last))


# An op of the captured step: what it is, its name if it has one, and which captured node (docs/reference/ir.md).
_NODE = re.compile(r'pump\.(\w+)(?: "((?:[^"\\]|\\.)*)")?.*?\bnode\((\d+)\)')


def node_sequence(path: Path) -> Dict[str, Any]:
    """How many captured nodes a saved step has, and a digest of their kinds and names in order."""
    data = path.read_bytes()
    text = (gzip.decompress(data) if path.suffix == ".gz" else data).decode()
    nodes = sorted((int(number), kind, name) for kind, name, number in _NODE.findall(text))
    digest = hashlib.sha256()
    for number, kind, name in nodes:
        digest.update(f"{number} {kind} {name}\n".encode())
    return {"nodes": len(nodes), "sha256": digest.hexdigest()}
