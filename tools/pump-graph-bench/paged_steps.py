# SPDX-License-Identifier: Apache-2.0
"""Steps as IR for the simulator of unified memory, and what it makes of them."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import tempfile
from pathlib import Path
from typing import Any, Dict, Iterable, Iterator, List, Sequence, Tuple

from outside import read_json


class Failure(Exception):
    """pump-graph-opt could not do what it was asked for."""


@dataclasses.dataclass(frozen=True)
class Buffer:
    name: str
    bytes: int
    lives_on: bool  # from one step to the next


@dataclasses.dataclass(frozen=True)
class Kernel:
    name: str
    microseconds: float
    accesses: Tuple[Tuple[str, int, int], ...]  # mode, buffer, bytes from its start


def as_ir(buffers: Sequence[Buffer], kernels: Sequence[Kernel]) -> str:
    """One kernel after the other."""
    return "\n".join(["pump.graph @step {", *_buffer_lines(buffers), *_kernel_lines(kernels), "}", ""])


def _buffer_lines(buffers: Sequence[Buffer]) -> Iterator[str]:
    for index, buffer in enumerate(buffers):
        life = " live_in live_out" if buffer.lives_on else ""
        yield f"  %b{index} = pump.buffer {json.dumps(buffer.name)} private{life} size({buffer.bytes})"


def _kernel_lines(kernels: Sequence[Kernel]) -> Iterator[str]:
    for index, kernel in enumerate(kernels):
        after = f" after(%k{index - 1})" if index else ""
        accesses = ", ".join(f"{mode} %b{buffer}[0, {size}] declared" for mode, buffer, size in kernel.accesses)
        yield (f"  %k{index} = pump.kernel {json.dumps(kernel.name)} node({index}){after} [{accesses}] "
               f"cost({kernel.microseconds:.3f})")


def whole(reads: Iterable[int], writes: Iterable[int], sizes: Sequence[int]) -> Iterator[Tuple[str, int, int]]:
    """Accesses to all of these buffers."""
    read, written = set(reads), set(writes)
    for buffer in sorted(read | written):
        yield "read" * (buffer in read) + "write" * (buffer in written), buffer, sizes[buffer]


def of_trace(trace: Dict[str, Any]) -> str:
    """A trace in the format of docs/reference/traces.md."""
    buffers = [Buffer(tensor["name"], tensor["bytes"], tensor["kind"] == "persistent") for tensor in trace["tensors"]]
    sizes = [buffer.bytes for buffer in buffers]
    kernels = [Kernel(kernel["name"], kernel["time_us"], tuple(whole(kernel["reads"], kernel["writes"], sizes)))
               for kernel in trace["kernels"]]
    return as_ir(buffers, kernels)


def simulate(tool: Path, step: str, **options: Any) -> Dict[str, Any]:
    """What simulate-step prints as JSON: docs/reference/report.md, "comparison"."""
    given = " ".join(f"{name}={value}" for name, value in {"json": "true", **options}.items())
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "step.mlir"
        file.write_text(step)
        result = subprocess.run([str(tool), f"--simulate-step={given}", "-o", "/dev/null", str(file)],
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if result.returncode != 0:
        raise Failure(result.stderr.strip())
    return read_json(result.stdout)


def rows_of(comparison: Dict[str, Any]) -> List[Dict[str, Any]]:
    """In memory, demand paging, the same at the aggressive threshold, prefetch at launch."""
    names = [row["policy"] for row in comparison["rows"][:4]]
    if [name.split(" (")[0] for name in names] != ["in memory", "demand paging", "demand paging", "prefetch at launch"]:
        raise Failure(f"simulate-step has the rows {', '.join(names)}")
    return comparison["rows"][:4]
