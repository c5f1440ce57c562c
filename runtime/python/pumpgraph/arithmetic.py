# SPDX-License-Identifier: Apache-2.0
"""How much a call of an operator computes, by the formulas of torch.utils.flop_counter.

Estimates of node times count bytes; products, convolutions and attention take longer than their bytes. The formulas see
shapes alone, never a tensor: those of attention over nested tensors would read lengths from the device.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Optional, Sequence

import torch

from ._session import ArithmeticKind
from .schemas import given
from .tensors import is_wrapper, tensors_in

_FORMULAS: Mapping[Any, Callable[..., int]] = {}
try:
    from torch.utils.flop_counter import flop_registry

    _FORMULAS = flop_registry
except ImportError:  # a PyTorch without them: bytes alone count
    pass

# Operators without a formula that compute as much as another one.
_LIKE = {"_int_mm": "mm", "_addmm_activation": "addmm"}

_KINDS = {
    "float64": ArithmeticKind.FP64, "float32": ArithmeticKind.FP32, "float16": ArithmeticKind.HALF,
    "bfloat16": ArithmeticKind.HALF, "float8_e4m3fn": ArithmeticKind.FP8, "float8_e5m2": ArithmeticKind.FP8,
    "int8": ArithmeticKind.INT8,
}


class Arithmetic(NamedTuple):
    operations: float  # a multiply-add is two
    kind: ArithmeticKind


NO_ARITHMETIC = Arithmetic(0, ArithmeticKind.UNKNOWN)


class _Shape(tuple):
    """A tensor's, in the place of the tensor: formulas take tensors or shapes."""

    @property
    def shape(self) -> "_Shape":
        return self


def arithmetic_of(func: Any, args: Sequence[Any], kwargs: Dict[str, Any], result: Any) -> Arithmetic:
    """Of a call that gave `result`. Nothing where there is no formula, or it does not take the call."""
    try:
        return _arithmetic_of(func, args, kwargs, result)
    except Exception:  # whatever a formula of PyTorch or of the program raises: the estimate is all that it is for
        return NO_ARITHMETIC


def _arithmetic_of(func: Any, args: Sequence[Any], kwargs: Dict[str, Any], result: Any) -> Arithmetic:
    name = func.__name__.partition(".")[0]
    formula = _formula(func, name)
    tensors: List[torch.Tensor] = list(tensors_in([args, kwargs]))
    if formula is None or not tensors or any(map(is_wrapper, tensors)):
        return NO_ARITHMETIC
    kind = _KINDS.get(str(tensors[0].dtype).partition(".")[2], ArithmeticKind.UNKNOWN)
    if kind is ArithmeticKind.UNKNOWN:
        return NO_ARITHMETIC
    if kind is ArithmeticKind.FP32 and _allows_tf32("conv" in name):
        kind = ArithmeticKind.TF32
    if name == "convolution_backward":
        operations = _of_convolution_backward(args)
    else:
        operations = formula(*_shapes(args), **_shapes(kwargs), out_val=_shapes(result))
    return Arithmetic(float(operations) / (2 if _is_causal(func, args, kwargs) else 1), kind)


def _formula(func: Any, name: str) -> Optional[Callable[..., int]]:
    packet = getattr(func, "_overloadpacket", None)
    if name in _LIKE and func.namespace == "aten":
        packet = getattr(torch.ops.aten, _LIKE[name])
    return _FORMULAS.get(packet)


def _of_convolution_backward(args: Sequence[Any]) -> float:
    """Each of the gradients of input and weight takes what the forward pass did. PyTorch's own formula counts that of
    the weight once for each group."""
    gradient, *forward = _shapes(args[:10])
    mask = args[10]
    return _FORMULAS[torch.ops.aten.convolution](*forward[:2], None, *forward[3:], out_val=gradient) * sum(mask[:2])


def _is_causal(func: Any, args: Sequence[Any], kwargs: Dict[str, Any]) -> bool:
    """Whether attention leaves out half of the scores, which formulas count."""
    schema = getattr(func, "_schema", None)
    return schema is not None and any(argument.name == "is_causal" and value is True
                                      for argument, value in given(schema.arguments, args, kwargs))


def _allows_tf32(is_convolution: bool) -> bool:
    settings = torch.backends.cudnn if is_convolution else torch.backends.cuda.matmul
    precision = getattr(getattr(settings, "conv", settings), "fp32_precision", None)  # from PyTorch 2.9 on
    return bool(settings.allow_tf32) if precision is None else precision == "tf32"


def _shapes(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return _Shape(value.shape)
    if isinstance(value, dict):
        return {key: _shapes(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_shapes(item) for item in value]
    return value
