# SPDX-License-Identifier: Apache-2.0
"""Lines of the program, for messages."""

from __future__ import annotations

import os
import sys
import traceback
from types import FrameType, TracebackType
from typing import Iterable, Optional, Tuple

import cupy

_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_STANDARD_LIBRARY = os.path.dirname(os.path.abspath(os.__file__)) + os.sep
_CUPY = os.path.dirname(os.path.abspath(cupy.__file__)) + os.sep


def is_programs(path: str) -> bool:
    """Whether a file with code belongs to the program: neither Python's, nor PumpGraph's, nor a library's."""
    if path.startswith("<"):
        return path.startswith(("<stdin", "<string", "<ipython", "<input"))
    if path.endswith((".pyx", ".pxd", ".pxi")):
        return False
    path = os.path.abspath(path)
    is_installed = bool({"site-packages", "dist-packages"} & set(path.split(os.sep)))
    return not is_installed and not path.startswith((_PACKAGE, _STANDARD_LIBRARY, _CUPY))


def current_line() -> str:
    """The innermost line of the program that runs."""
    frame: Optional[FrameType] = sys._getframe(1)
    while frame is not None:
        if is_programs(frame.f_code.co_filename):
            return f"{frame.f_code.co_filename}:{frame.f_lineno}"
        frame = frame.f_back
    return "the step"


def depth_of_program() -> int:
    """The `stacklevel` of a warning that the caller gives, so that it names the program's line."""
    frame: Optional[FrameType] = sys._getframe(1)
    depth = 1
    while frame is not None and not is_programs(frame.f_code.co_filename):
        frame = frame.f_back
        depth += 1
    return depth


def line_of(error: BaseException) -> str:
    """The innermost line of the program that an error came through, with its text."""
    return _innermost(_frames(error.__traceback__))


def _frames(trace: Optional[TracebackType]) -> Iterable[traceback.FrameSummary]:
    return traceback.extract_tb(trace)


def _innermost(frames: Iterable[traceback.FrameSummary]) -> str:
    for frame in reversed(list(frames)):
        if is_programs(frame.filename):
            return f"{frame.filename}:{frame.lineno}: \"{frame.line}\""
    return "the step"


def called(error: BaseException) -> Tuple[str, ...]:
    """The names of the functions that an error came through, the outermost first."""
    return tuple(frame.name for frame in _frames(error.__traceback__))
