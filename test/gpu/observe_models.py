#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What the kernels of ResNet-50's and GPT-2's training steps are seen to do with their operands.

    observe_models.py [resnet50 | gpt2]...     --batch N, --runs N, --save FOLDER

For each: slots covered, agreement over runs with different inputs, and every disagreement with what is proved or
declared. Fails if contents change, or if there is a disagreement.
"""

import argparse
import collections
import gzip
import importlib
import re
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "runtime" / "python"), str(ROOT / "docs" / "examples" / "pytorch")]

import training  # noqa: E402

import torch  # noqa: E402

import pumpgraph  # noqa: E402

WARMUP, STEPS = 3, 5  # after which biases and running means are no zeros any more


def state_of(workload):
    """Copies on the host of all that the step trains, and of its inputs."""
    with pumpgraph.mapped(workload.model, workload.optimizer):
        tensors = list(workload.model.state_dict().values())
        for state in workload.optimizer.state.values():
            tensors += [value for value in state.values() if torch.is_tensor(value)]
        return [tensor.cpu().clone() for tensor in (*tensors, *workload.inputs)]


def put_in(workload, run):
    for static, fresh in zip(workload.inputs, workload.batches[run % len(workload.batches)]):
        static.copy_(fresh)


def accesses_by_evidence(step):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "step.mlir.gz"
        step.save(path)
        with gzip.open(path, "rt", encoding="utf-8") as file:
            text = file.read()
    accesses = r"\b(?:read|write|readwrite) %[^][]+\[\d+, \d+\] (proved|declared|observed|assumed)\b"
    return collections.Counter(re.findall(accesses, text))


def observe(name, batch, runs, folder):
    training.make_deterministic()
    workload = importlib.import_module(name).build(batch)
    step = pumpgraph.capture(workload.step, warmup=WARMUP, private=[workload.model, workload.optimizer], name=name,
                             keep_first_plan=True)
    training.train(step, workload, STEPS)
    before_evidence = accesses_by_evidence(step)
    put_in(workload, runs - 1)  # what the last run finds, and leaves
    before = state_of(workload)
    result = step.observe(runs, lambda run: put_in(workload, run))
    changed = sum(not torch.equal(a.view(torch.uint8), b.view(torch.uint8))
                  for a, b in zip(map(flat, before), map(flat, state_of(workload))))
    figures = step.report()["runtime"]["observation"]
    print(f"{name}, batch {batch}: {result.kernels} kernels, {figures['nodes_only_run']} nodes only run, "
          f"{result.slots} slots: {result.covered} covered ({100 * result.covered / result.slots:.1f} %), "
          f"{figures['unknown']} open, {result.differing} differ over {result.runs} runs; "
          f"{figures['observe_ms'] / 1e3:.1f} s, {figures['scratch_bytes'] / 2**20:.0f} MiB for copies")
    print(f"  accesses before {dict(before_evidence)}, after {dict(accesses_by_evidence(step))}")
    print(f"  {result.disagreements} disagreements, {changed} tensors changed")
    for one in figures["disagreements"]:
        print(f"    {one['evidence']}: {one['message']}")
    if folder:
        step.save(Path(folder) / f"{name}-observed.mlir.gz")
    loss = training.train(step, workload, 1)[0]
    return changed == 0 and result.disagreements == 0 and result.covered > 0 and loss == loss  # which NaN is not


def flat(tensor):
    return tensor.contiguous().reshape(-1)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("models", nargs="*", default=["resnet50", "gpt2"])
    parser.add_argument("--batch", type=int, default=2)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--save", metavar="FOLDER", help="where the observed steps are written to")
    arguments = parser.parse_args()
    pumpgraph.install(budget="unlimited")
    good = [observe(name, arguments.batch, arguments.runs, arguments.save) for name in arguments.models]
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main())
