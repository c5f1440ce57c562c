# SPDX-License-Identifier: Apache-2.0
"""The programs that come with an installed package."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def _become(name: str) -> None:
    """That program, with this process's arguments."""
    program = Path(__file__).resolve().parent / "bin" / name
    try:
        os.execv(program, [name, *sys.argv[1:]])
    except OSError as error:
        sys.exit(f"{name}: {program}: {error.strerror}")


def pump_graph_opt() -> None:
    _become("pump-graph-opt")


def pump_graph_run() -> None:
    _become("pump-graph-run")
