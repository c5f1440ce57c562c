# SPDX-License-Identifier: Apache-2.0
"""Python's garbage collector, where chance may not have its way."""

from __future__ import annotations

import contextlib
import gc
from typing import Iterator


@contextlib.contextmanager
def paused() -> Iterator[None]:
    """A collection between the start of a capture and its adoption would free memory wherever chance has it."""
    gc.collect()
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
