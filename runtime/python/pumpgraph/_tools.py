# SPDX-License-Identifier: Apache-2.0
"""The programs that come with an installed package."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from ._capi import candidates
from .errors import PumpGraphError, Status

_PACKAGE = Path(__file__).resolve().parent


def program(name: str) -> Path:
    """Where it is: the file that a variable such as PUMPGRAPH_OPT names; in the package; beside the library's folder.
    Raises PumpGraphError if it is nowhere."""
    named = os.environ.get(name.replace("pump-graph", "PUMPGRAPH").replace("-", "_").upper())
    if named and Path(named).is_file():
        return Path(named)
    places = [_PACKAGE / "bin" / name, *(place.resolve().parent.parent / "bin" / name for place in candidates())]
    for place in places:
        if place.is_file():
            return place
    raise PumpGraphError(Status.INTERNAL, f"no {name}; looked at {', '.join(map(str, places))}; build it with "
                         "`tools/dev build`")


def _become(name: str) -> None:
    """That program, with this process's arguments."""
    path = _PACKAGE / "bin" / name
    try:
        os.execv(path, [name, *sys.argv[1:]])
    except OSError as error:
        sys.exit(f"{name}: {path}: {error.strerror}")


def pump_graph_opt() -> None:
    _become("pump-graph-opt")


def pump_graph_run() -> None:
    _become("pump-graph-run")
