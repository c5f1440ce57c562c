# SPDX-License-Identifier: Apache-2.0
"""The programs that come with an installed package."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def pump_graph_opt() -> None:
    """Becomes pump-graph-opt, with this process's arguments."""
    program = Path(__file__).resolve().parent / "bin" / "pump-graph-opt"
    try:
        os.execv(program, ["pump-graph-opt", *sys.argv[1:]])
    except OSError as error:
        sys.exit(f"pump-graph-opt: {program}: {error.strerror}")
