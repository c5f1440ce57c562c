# SPDX-License-Identifier: Apache-2.0
"""Kernels of the program, and which of their arguments they only read."""

from __future__ import annotations

from typing import Any, Dict, Optional, Sequence, Tuple

import cupy

from ..errors import invalid
from .declaring import Declaring, Operands, Rule, positions


def rule_of(kernel: Any) -> Optional[Rule]:
    """Of a kernel that says itself what it writes; None for others."""
    if isinstance(kernel, cupy.ufunc):
        return positions(0, kernel.nin)
    if isinstance(kernel, (cupy.ElementwiseKernel, cupy.ReductionKernel)):
        return _by_parameters(kernel)
    return None


def _by_parameters(kernel: Any) -> Optional[Rule]:
    """A raw parameter is a pointer for the code, which may cast `const` away to add to it atomically; of others the
    code has single elements, by a constant reference."""
    parameters = getattr(kernel, "in_params", None)
    if parameters is None:
        return None
    read = [getattr(each, "is_const", False) and not getattr(each, "raw", True) for each in parameters]

    def rule(args: Tuple[Any, ...], kwargs: Dict[str, Any]) -> Operands:
        known = [index < len(read) and read[index] for index in range(len(args))]
        return Operands([value for value, is_read in zip(args, known) if is_read],
                        [*(value for value, is_read in zip(args, known) if not is_read), *kwargs.values()])

    return rule


def _of_launch(reads: Sequence[int]) -> Rule:
    """kernel(grid, block, arguments, ...)"""

    def rule(args: Tuple[Any, ...], kwargs: Dict[str, Any]) -> Operands:
        given = args[2] if len(args) > 2 else kwargs.get("args", ())
        return Operands([value for index, value in enumerate(given) if index in reads],
                        [value for index, value in enumerate(given) if index not in reads])

    return rule


class Declared:
    """A kernel with what it only reads, made by declared(). It is called as the kernel is, and has its attributes."""

    def __init__(self, kernel: Any, rule: Rule):
        self.kernel = kernel
        self.rule = rule

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return Declaring.call(self.kernel, self.rule, args, kwargs)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.kernel, name)


def declared(kernel: Any, *, reads: Sequence[int] = ()) -> Any:
    """Wraps a RawKernel, or another kernel, to say which of its arguments it only reads.

    Without it a plan counts with writes to all arguments of a RawKernel, and moves them both ways. Steps know what
    CuPy's own functions write, and of an ElementwiseKernel or ReductionKernel the parameters that are not raw.

        scale = pumpgraph.cupy.declared(cupy.RawKernel(code, "scale"), reads=[0])
        scale((blocks,), (128,), (source, target, source.size))

    A kernel that writes such an argument all the same makes values wrong: Graphed.validate() finds that.

    Args:
        kernel: a RawKernel, or a function of a RawModule; called with grid, block and a tuple of arguments.
        reads: positions in that tuple, counted from 0.

    Returns:
        A callable for use in place of the kernel.

    Raises:
        PumpGraphError: INVALID_ARGUMENT if `reads` are no positions.
    """
    own = rule_of(kernel)
    if own is not None:
        if reads:
            raise invalid("reads= is for kernels that are launched with a grid; this kernel's parameters say it")
        return Declared(kernel, own)
    positions_read = tuple(reads)
    if not all(isinstance(each, int) and not isinstance(each, bool) and each >= 0 for each in positions_read):
        raise invalid(f"reads={reads!r}; they are positions of arguments, counted from 0")
    return Declared(kernel, _of_launch(positions_read))
