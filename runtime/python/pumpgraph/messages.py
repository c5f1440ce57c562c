# SPDX-License-Identifier: Apache-2.0
"""The library's messages as records of the logger "pumpgraph".

A program sees them once it configures logging, or with PUMPGRAPH_LOG=error, warning, info or debug in the environment,
which also prints them. What a user has to know is a warning of the module `warnings` beside.
"""

from __future__ import annotations

import atexit
import logging
import os
from typing import Any

from ._capi import Library, MessageCallback

logger = logging.getLogger("pumpgraph")
logger.addHandler(logging.NullHandler())  # else logging prints warnings by itself

_LEVELS = {1: logging.ERROR, 2: logging.WARNING, 3: logging.INFO, 4: logging.DEBUG}
_NAMES = {"none": logging.CRITICAL + 1, "error": logging.ERROR, "warning": logging.WARNING, "info": logging.INFO,
          "debug": logging.DEBUG}


def forward(library: Library) -> None:
    """Has the library's messages logged from now on, until the interpreter ends."""
    wanted = _NAMES.get(os.environ.get("PUMPGRAPH_LOG", ""))
    if wanted is not None:
        logger.setLevel(wanted)
        if all(isinstance(handler, logging.NullHandler) for handler in logger.handlers):
            handler = logging.StreamHandler()
            handler.setFormatter(logging.Formatter("%(name)s: %(levelname)s: %(message)s"))
            logger.addHandler(handler)
    callback = MessageCallback(_receive)
    library.call("pumpgraph_set_message_callback", max(_LEVELS), callback, None)
    atexit.register(_stop, library, callback)  # which also keeps it alive


def _receive(level: int, message: bytes, _user: Any) -> None:
    logger.log(_LEVELS.get(level, logging.INFO), "%s", message.decode("utf-8", "replace"))


def _stop(library: Library, _callback: Any) -> None:
    library.call("pumpgraph_set_message_callback", 0, MessageCallback(0), None)
