# SPDX-License-Identifier: Apache-2.0
"""The commands of the documents, as a doctest has those of a docstring.

    ```console             run by the test `docs-guide`
    ```console cuda        run where there are a CUDA toolkit and the Clang plugin
    ```console gpu         run by `tools/dev gpu-test --filter guide`
    ```console build       builds or installs: run by nobody here
    $ command
    its output

A line `...` stands for any lines, `...` within a line for any text. A number may be 5 % off, for planner and cost model
are tuned; columns may be wider. A command has to succeed unless an error is shown. Those of a document run one after
the other in a folder that looks like a checkout with a build."""
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Iterator, List, NamedTuple, Optional

FENCE = re.compile(r"^( *)```(.*)$")
NUMBER = re.compile(r"\d[\d,]*(?:\.\d+)?")
MOST_OFF = 0.05
KERNEL = """__global__ void scale(float *out, const float *in, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n)
    out[i] = 2 * in[i];
}
"""


class Block(NamedTuple):
    line: int
    language: str
    marker: str
    text: str


class Command(NamedTuple):
    line: int
    text: str
    output: List[str]


class Failure(Exception):
    """A command does not do what its document says."""


def blocks_of(text: str) -> Iterator[Block]:
    start, lines, info = 0, [], None  # type: int, List[str], Optional[str]
    for number, line in enumerate(text.split("\n"), 1):
        fence = FENCE.match(line)
        if not fence:
            lines.append(line)
        elif info is None:
            start, lines, info = number, [], fence[2].strip()
        else:
            language, _, marker = info.partition(" ")
            yield Block(start, language, marker, "\n".join(lines))
            info = None


def commands_of(block: Block) -> Iterator[Command]:
    """Whatever stands before the first command is a fault."""
    commands: List[Command] = []
    for number, line in enumerate(block.text.split("\n"), block.line + 1):
        if line.startswith("$ "):
            commands.append(Command(number, line[2:], []))
        elif commands:
            commands[-1].output.append(line)
        else:
            raise Failure(f"line {number}: no command")
    for command in commands:
        while command.output and not command.output[-1].strip():
            command.output.pop()
    yield from commands


# ---- output ----------------------------------------------------------------------------------------------------------


def close(expected: str, actual: str) -> bool:
    a, b = (float(number.replace(",", "")) for number in (expected, actual))
    return abs(a - b) <= MOST_OFF * max(abs(a), abs(b))


def line_matches(expected: str, actual: str) -> bool:
    wanted, got = " ".join(expected.split()), " ".join(actual.split())
    parts = [r"(.*)" if part == "..." else NUMBER.sub("\0", part) for part in re.split(r"(\.\.\.)", wanted)]
    pattern = "".join(part if part == "(.*)" else re.escape(part).replace(re.escape("\0"), f"(?P<n>{NUMBER.pattern})")
                      for part in parts)
    count = pattern.count("(?P<n>")
    for index in range(count):
        pattern = pattern.replace("(?P<n>", f"(?P<n{index}>", 1)
    match = re.fullmatch(pattern, got)
    numbers = [number for part in re.split(r"\.\.\.", wanted) for number in NUMBER.findall(part)]
    return match is not None and all(close(number, match[f"n{index}"]) for index, number in enumerate(numbers))


def difference(expected: List[str], actual: List[str]) -> Optional[str]:
    """The first shown line that the output lacks; None if all of it is as shown."""
    at = 0
    skips = False
    for line in expected:
        if line.strip() == "...":
            skips = True
            continue
        found = next((i for i in range(at, len(actual)) if line_matches(line, actual[i])), None) if skips else (
            at if at < len(actual) and line_matches(line, actual[at]) else None)
        if found is None:
            return line
        at, skips = found + 1, False
    if at < len(actual) and not skips:
        return f"the end; there is more: {actual[at]}"
    return None


# ---- commands --------------------------------------------------------------------------------------------------------


def prepare(folder: Path, root: Path, build: Path) -> None:
    for name in ("docs", "runtime", "test", "tools"):
        (folder / name).symlink_to(root / name)
    (folder / "build").symlink_to(build)
    shutil.copy(root / "test" / "data" / "resnet50.mlir.gz", folder / "step.mlir.gz")
    (folder / "kernels.cu").write_text(KERNEL)


def run(command: Command, folder: Path, timeout: float = 300) -> None:
    result = subprocess.run(["bash", "-c", command.text], cwd=folder, stdin=subprocess.DEVNULL, text=True,
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=timeout, check=False,
                            env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"})
    lines = result.stdout.rstrip("\n").split("\n") if result.stdout.strip() else []
    fails = any("error: " in line for line in command.output)
    if (result.returncode != 0) != fails:
        raise Failure(f"line {command.line}: exit status {result.returncode}: {command.text}\n{result.stdout[-3000:]}")
    missing = difference(command.output, lines) if command.output else None
    if missing is not None:
        raise Failure(f"line {command.line}: {command.text}\ndoes not print as shown:\n{missing}\nbut:\n"
                      f"{result.stdout[-5000:]}")


def run_document(document: Path, markers: List[str], folder: Path) -> int:
    """The commands of its blocks with these markers. Returns their number."""
    commands = [command for block in blocks_of(document.read_text(encoding="utf-8"))
                if block.language == "console" and block.marker in markers for command in commands_of(block)]
    for command in commands:
        run(command, folder)
    return len(commands)
