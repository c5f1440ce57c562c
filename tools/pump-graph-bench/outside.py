# SPDX-License-Identifier: Apache-2.0
"""Names and messages from outside (results, traces, files, other programs), as tables print them."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

# By its file: the package itself loads the runtime.
_SPEC = importlib.util.spec_from_file_location(
    "pumpgraph_text", Path(__file__).resolve().parents[2] / "runtime" / "python" / "pumpgraph" / "_text.py")
assert _SPEC and _SPEC.loader
_TEXT = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(_TEXT)
printable = _TEXT.printable


def clean(value: Any) -> Any:
    """The value with every string in it printable, keys too."""
    if isinstance(value, dict):
        return {clean(key): clean(part) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [clean(part) for part in value]
    return printable(value) if isinstance(value, str) else value


def read_json(text: Any) -> Any:
    """JSON that somebody else wrote."""
    return clean(json.loads(text))
