#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Programs under pump-graph-run, compared with themselves without it: preload_cases.py --build-dir BUILD [CASE...]

A case that cannot run here (no PyTorch) says so and counts as passed. Prints the cost of a launch with and without.
"""

import argparse
import importlib.util
import os
import re
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent


class Failure(Exception):
    """A case failed; the text says how."""


class Programs:
    def __init__(self, build):
        self.run = str(build / "bin" / "pump-graph-run")
        self.static = str(build / "bin" / "preload_static")

    def plain(self, *command, environment=None, expect=0):
        result = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=250,
                                env=dict(os.environ, **(environment or {})))
        if result.returncode != expect:
            raise Failure(f"{' '.join(command)}: exit status {result.returncode}\n{result.stdout[-1500:]}\n"
                          f"{result.stderr[-3000:]}")
        return result.stdout, result.stderr

    def under(self, budget, *command, options=(), **more):
        return self.plain(self.run, f"--budget={budget}", *options, "--", *command, **more)

    def same(self, budget, *command, options=(), environment=None):
        """The output without and with, which has to be equal; says how long both took."""
        start = time.monotonic()
        expected, said = self.plain(*command, environment=environment)
        middle = time.monotonic()
        got, lines = self.under(budget, *command, options=options, environment=environment)
        end = time.monotonic()
        name = Path(command[-1 if len(command) < 2 else 1]).name
        took = f"{middle - start:.2f} s without, {end - middle:.2f} s with"
        print(f"  {name} {' '.join(command[2:])} at {budget}: {took}")
        print("  " + "\n  ".join(line for line in lines.splitlines() if line.startswith("pump-graph-run")), flush=True)
        if got != expected:
            raise Failure(f"without:\n{expected[-2000:]}\nunder {budget}:\n{got[-2000:]}")
        return said, lines


def static_values(programs):
    """A program with static cudart: allocations of both kinds, a graph, threads; then at less memory than it takes."""
    _, lines = programs.same("4GiB", programs.static, "captured", "512")
    if "a period of" not in lines:
        raise Failure(f"no period was found:\n{lines}")
    _, lines = programs.same("256MiB", programs.static, "captured", "512")
    if "in host memory at most" not in lines:
        raise Failure(f"nothing was in host memory:\n{lines}")


def static_room(programs):
    """What the program is told of memory is the budget, and beyond it there is none."""
    out, _ = programs.under("1GiB", programs.static, "room", options=("--host=0",))
    if "total 1024 MiB" not in out or "16 blocks of 64 MiB, then cudaErrorMemoryAllocation" not in out:
        raise Failure(out)
    out, _ = programs.under("1GiB", programs.static, "room", options=("--host=512MiB",))
    if "24 blocks of 64 MiB, then cudaErrorMemoryAllocation" not in out:
        raise Failure(out)


def cost_of(text):
    return float(re.search(r"([\d.]+) ns a launch", text).group(1))


def launch_cost(programs):
    """At most 2 us of the host for a launch."""
    commands = {"static cudart": (programs.static, "cost")}
    if importlib.util.find_spec("torch"):
        commands["PyTorch add_"] = (sys.executable, str(HERE / "preload_torch.py"), "cost")
    late = []
    for name, command in commands.items():
        plain = min(cost_of(programs.plain(*command)[0]) for _ in range(2))
        under = min(cost_of(programs.under("8GiB", *command)[0]) for _ in range(2))
        print(f"  {name}: {plain:.0f} ns a launch without, {under:.0f} with: {under - plain:+.0f}", flush=True)
        if under - plain > 2000:
            late.append(name)
    if late:
        raise Failure(f"more than 2 us a launch: {', '.join(late)}")


def torch_train(programs):
    """An eager loop with an evaluation every ten steps: in memory, and at about half of it in host memory."""
    script = (sys.executable, str(HERE / "preload_torch.py"), "train")
    said, lines = programs.same("16GiB", *script, "32")
    if "a period of" not in lines:
        raise Failure(f"no period was found:\n{lines}")
    peak = float(re.search(r"^peak (\d+) MiB", said, flags=re.M).group(1))
    programs.same(f"{int(peak / 2)}MiB", *script, "6")
    for setting in ("PYTORCH_NO_CUDA_MEMORY_CACHING=1", "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",
                    "PYTORCH_CUDA_ALLOC_CONF=backend:cudaMallocAsync"):
        name, value = setting.split("=", 1)
        print(f"  {setting}")
        programs.same("16GiB", *script, "12", environment={name: value})


def planned_rounds(lines):
    return sum(int(count) for count in re.findall(r"planned: (\d+) rounds", lines))


def planned_share(lines):
    """Of the program's calls on the device. A round may be several of its steps."""
    planned, others = map(int, re.search(r"(\d+) calls came as planned, (\d+) without a plan", lines).groups())
    return planned / (planned + others)


def static_planned(programs):
    """Planned rounds of a program with static cudart, at about half of its memory."""
    _, lines = programs.same("320MiB", programs.static, "loops", "512", options=("--plan",),
                             environment={"PUMPGRAPH_LOG": "debug"})
    if planned_rounds(lines) < 4:
        raise Failure(f"too few planned rounds:\n{lines}")


def torch_planned(programs):
    """An eager loop that reads its loss in each step, at half of its memory: planned from the fourth step on, back
    after each evaluation. With segments of PyTorch's own allocator, and with tensors of their own."""
    script = (sys.executable, str(HERE / "preload_torch.py"), "train")
    _, said = programs.plain(*script, "6")
    peak = float(re.search(r"^peak (\d+) MiB", said, flags=re.M).group(1))
    for allocator in ("", "backend:cudaMallocAsync"):
        environment = {"PUMPGRAPH_LOG": "debug", "PYTORCH_CUDA_ALLOC_CONF": allocator}
        print(f"  {allocator or 'native'}, without and with a plan")
        programs.same(f"{int(peak / 2)}MiB", *script, "32", environment=environment)
        _, lines = programs.same(f"{int(peak / 2)}MiB", *script, "32", options=("--plan",), environment=environment)
        print(f"  {32 * planned_share(lines):.1f} of 32 steps are planned")
        if 32 * planned_share(lines) < 12:
            raise Failure(f"too few planned steps:\n{lines}")


def torch_graph(programs):
    """A program that captures its step itself, in memory and partly in host memory."""
    for budget in ("16GiB", "128MiB"):
        programs.same(budget, sys.executable, str(HERE / "preload_torch.py"), "graph", "10")


def torch_out_of_memory(programs):
    """PyTorch's own error, which tells of the budget."""
    _, said = programs.under("128MiB", sys.executable, str(HERE / "preload_torch.py"), "train", "3",
                             options=("--host=0",), expect=1)
    if "OutOfMemoryError" not in said or "128" not in said:
        raise Failure(said[-2000:])
    print("  " + next(line for line in said.splitlines() if "OutOfMemoryError" in line)[:300])


def report(programs):
    """The period as a step."""
    folder = Path(os.environ.get("TMPDIR", "/tmp")) / f"preload-report-{os.getpid()}"
    programs.under("4GiB", programs.static, "loops", "64", options=(f"--report={folder}",))
    traces = sorted(folder.glob("*.mlir"))
    if not traces:
        raise Failure("no period was described")
    print(f"  {len(traces)} periods, the largest of {max(trace.stat().st_size for trace in traces)} bytes")
    for trace in traces:
        trace.unlink()
    folder.rmdir()


CASES = {"static_values": static_values, "static_room": static_room, "launch_cost": launch_cost, "report": report,
         "static_planned": static_planned, "torch_train": torch_train, "torch_planned": torch_planned,
         "torch_graph": torch_graph, "torch_out_of_memory": torch_out_of_memory}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build-dir", type=Path, default=HERE.parents[1] / "build")
    parser.add_argument("cases", nargs="*", help=", ".join(CASES))
    arguments = parser.parse_args()
    programs = Programs(arguments.build_dir.resolve())
    failed = 0
    for name in arguments.cases or CASES:
        if name.startswith("torch") and not importlib.util.find_spec("torch"):
            print(f"ok     {name}: PyTorch is not installed; not run")
            continue
        start = time.monotonic()
        try:
            CASES[name](programs)
        except (Failure, subprocess.TimeoutExpired) as failure:
            print(f"FAILED {name}: {failure}", flush=True)
            failed += 1
        else:
            print(f"ok     {name} ({time.monotonic() - start:.1f} s)", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
