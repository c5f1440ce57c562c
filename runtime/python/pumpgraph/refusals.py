# SPDX-License-Identifier: Apache-2.0
"""What cannot go together with captured steps or with PumpGraph's allocator, said before it fails somewhere deep."""

from __future__ import annotations

import contextlib
import os
import re
import traceback
import warnings
from typing import Any, Iterator, Optional, Sequence

import torch

from .data_parallel import refuse_parallel
from .errors import PumpGraphError, UnsupportedError
from .reachable import Reachable

_NO_TRIALS = ("torch.backends.cudnn.benchmark asks the allocator how much memory is left for trials, which PyTorch "
              "lets only its own allocator answer")


@contextlib.contextmanager
def without_trials(raises: bool) -> Iterator[None]:
    """Inside, cuDNN chooses its algorithms without trying them. Warns where the program has asked for trials, or
    refuses them."""
    if not torch.backends.cudnn.benchmark:
        yield
        return
    if raises:
        raise UnsupportedError(f"{_NO_TRIALS}; set it to False")
    warnings.warn(f"{_NO_TRIALS}; it is False inside graphed steps, and convolutions outside of them fail: set it to "
                  "False", stacklevel=2)
    torch.backends.cudnn.benchmark = False
    try:
        yield
    finally:
        torch.backends.cudnn.benchmark = True


def refuse_found(found: Reachable, device: torch.device) -> None:
    """Refuses what the step reaches and a capture under PumpGraph cannot hold."""
    for function in found.functions:
        _refuse_graph_trees(function, getattr(function, "__name__", "a function"))
    for root in found.modules:
        for name, module in root.named_modules():
            name = name or type(root).__name__
            _refuse_graph_trees(module, name)
            _refuse_graph_trees(getattr(module, "_compiled_call_impl", None), name)
            refuse_parallel(module, name)
        for name, tensor in [*root.named_parameters(), *root.named_buffers()]:
            if tensor.is_cuda and tensor.device != device:
                raise UnsupportedError(f"{name} is on {tensor.device}; a session has one device, {device}")


def _refuse_graph_trees(compiled: Any, name: str) -> None:
    configuration = getattr(compiled, "get_compiler_config", None)
    settings = configuration() if callable(configuration) else None
    if settings and settings.get("triton.cudagraphs"):
        raise UnsupportedError(f"{name} is compiled with mode=\"reduce-overhead\" or \"max-autotune\", which captures "
                               "graphs of its own; write mode=\"default\" or mode=\"max-autotune-no-cudagraphs\": the "
                               "step is captured as a whole")


_OF_A_CAPTURE = re.compile(r"captur|cudaErrorStreamCapture", re.IGNORECASE)
# What PyTorch says of generators of random numbers in a capture, and what it comes from.
_OF_GENERATORS = (
    (re.compile(r"CUDA generator not in capture mode"),
     "draws random numbers from a generator that is not found from the step",
     "keep it in a variable or attribute that the step names, or pass it as an argument"),
    (re.compile(r"philox_engine_inputs"),
     "draws random numbers in a way that a captured step cannot",
     "draw outside of the step, and pass what is drawn as an argument"),
    (re.compile(r"CUDAGenerator|set_state_index|Offset increment outside graph capture"),
     "makes or seeds a generator of random numbers, or reads or sets its state, which no replay would do",
     "do so outside of the step"),
)
_PACKAGE = os.path.dirname(os.path.abspath(__file__)) + os.sep
_STANDARD_LIBRARY = os.path.dirname(os.path.abspath(os.__file__)) + os.sep


def explain_failed_capture(error: BaseException) -> Optional[UnsupportedError]:
    """What a user can do about an error that only a capture gives; None if it is another one."""
    if isinstance(error, PumpGraphError) or not isinstance(error, RuntimeError) or not _OF_A_CAPTURE.search(str(error)):
        return None
    place = users_line(traceback.extract_tb(error.__traceback__))
    reason = str(error).strip().splitlines()[0]
    for pattern, what, advice in _OF_GENERATORS:
        if pattern.search(str(error)):
            return UnsupportedError(f"{place} {what} ({reason}); {advice}")
    return UnsupportedError(f"{place} waits for the device or works outside its stream, which a captured step cannot "
                            f"({reason}); let the step return the tensor and look at it outside, or have the step "
                            "cut there: graphed(split=True)")


def users_line(frames: Sequence[traceback.FrameSummary]) -> str:
    """The innermost line that is neither PyTorch's, PumpGraph's nor Python's."""
    torch_package = os.path.dirname(os.path.abspath(torch.__file__)) + os.sep
    for frame in reversed(frames):
        path = os.path.abspath(frame.filename)
        is_pythons = path.startswith(_STANDARD_LIBRARY) and "-packages" not in path
        if not is_pythons and not path.startswith((torch_package, _PACKAGE)) and not frame.filename.startswith("<"):
            return f"{frame.filename}:{frame.lineno}: \"{frame.line}\""
    return "the step"
