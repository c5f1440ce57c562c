# SPDX-License-Identifier: Apache-2.0
"""Keeps the examples of the documentation true.

  doc_examples.py parse FILE.md OPS.td        every ```mlir block is valid IR, and every op of OPS.td is in one of them
  doc_examples.py transform FILE.md           "Before:" run through the pipeline of "After `...`:" gives what follows
  doc_examples.py passes Passes.md            prints the reference of the passes, with the options of many of them once
"""
import pathlib
import re
import subprocess
import sys

BLOCK = r"```mlir\n(.*?)```"
MACHINE = r"-up +: .*\n(?:-.*\n)*-host-memory +: .*\n"
PAIR = r"Before:\n\n?" + BLOCK + r"\n+After `([^`]+)`:\n\n?" + BLOCK


def run(source, *options):
    """The IR after pump-graph-opt, as text in its one standard form."""
    done = subprocess.run(["pump-graph-opt", *options], input=source, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{done.stderr}\nin this example:\n{source}")
    return done.stdout


def parse(document, definitions):
    examples = re.findall(BLOCK, document, re.DOTALL)
    for example in examples:
        run(example)
    shown = set(re.findall(r"\bpump\.(\w+)", "\n".join(examples)))
    defined = set(re.findall(r'Pump_\w*Op<"(\w+)"', definitions))
    if not defined:
        sys.exit("found no op definitions")
    if defined - shown:
        sys.exit(f"ops without an example: {', '.join(sorted(defined - shown))}")


def transform(document):
    pairs = re.findall(PAIR, document, re.DOTALL)
    if len(pairs) != document.count("Before:"):
        sys.exit(f"{document.count('Before:')} examples begin, {len(pairs)} can be read")
    for before, pipeline, after in pairs:
        actual = run(before, f"--pass-pipeline=builtin.module(pump.graph({pipeline}))")
        if actual != run(after):
            sys.exit(f"{pipeline} gives\n{actual}\nthe documentation says\n{after}")


def passes(generated):
    first = re.search(MACHINE, generated).end()
    print(generated[:first] + re.sub(MACHINE, "-up to -host-memory: as of estimate-costs\n", generated[first:]), end="")


files = [pathlib.Path(name).read_text() for name in sys.argv[2:]]
{"parse": parse, "transform": transform, "passes": passes}[sys.argv[1]](*files)
