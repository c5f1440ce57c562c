#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Puts the Python package, its libraries and its programs into one file for pip: `tools/dev wheel`. Prints its path.

Takes what was built; needs setuptools and wheel (Debian's python3-setuptools, python3-wheel), and nothing from a net.
"""

import argparse
import contextlib
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent
BINARIES = {"lib/libpumpgraph.so": ".", "lib/libpumpgraph-compiler.so": ".", "bin/pump-graph-opt": "bin"}
LAUNCHER = {"lib/libpumpgraph_preload.so": ".", "bin/pump-graph-run": "bin"}  # on x86-64 alone


def version():
    return re.search(r"project\(PumpGraph VERSION ([0-9.]+)", (ROOT / "CMakeLists.txt").read_text()).group(1)


def lay_out(stage, build):
    """The folder that setuptools takes for a project's."""
    package = stage / "pumpgraph"
    shutil.copytree(ROOT / "runtime" / "python" / "pumpgraph", package, ignore=shutil.ignore_patterns("__pycache__"))
    for file in (HERE / "pyproject.toml", HERE / "setup.py", ROOT / "README.md", ROOT / "LICENSE"):
        shutil.copy(file, stage)
    launcher = LAUNCHER if platform.machine() == "x86_64" else {}
    for built, folder in {**BINARIES, **launcher}.items():
        if not (build / built).is_file():
            sys.exit(f"build_wheel: {build / built} is not there; `tools/dev wheel` builds it, where there is a CUDA "
                     "toolkit's cuda.h")
        (package / folder).mkdir(exist_ok=True)
        shutil.copy(build / built, package / folder)
        subprocess.run(["strip", str(package / folder / Path(built).name)], check=True)


@contextlib.contextmanager
def inside(folder):
    before = os.getcwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--build-dir", type=Path, default=ROOT / "build", help="where lib/ and bin/ are (%(default)s)")
    parser.add_argument("--output", type=Path, help="the folder to put it in (the build folder's wheel/)")
    options = parser.parse_args()
    build = options.build_dir.resolve()
    output = (options.output or build / "wheel").resolve()
    output.mkdir(parents=True, exist_ok=True)
    os.environ["PUMPGRAPH_VERSION"] = version()
    from setuptools import build_meta

    with tempfile.TemporaryDirectory() as folder:
        lay_out(Path(folder), build)
        # setuptools talks to standard output; what is printed here is the path alone.
        with inside(folder), contextlib.redirect_stdout(sys.stderr):
            name = build_meta.build_wheel(str(output))
    print(output / name)


if __name__ == "__main__":
    main()
