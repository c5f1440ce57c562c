# SPDX-License-Identifier: Apache-2.0
"""Updates of PyTorch's optimizers that compute rates in Python, from counts of steps and norms: on the device.

A captured step would keep such a number. Here it is a double on the device, computed by the same operations in the same
order, and rounded where PyTorch rounds it. So results are PyTorch's, bit for bit, but where the device rounds a power
of the count otherwise than the host and the rounding to the type of the parameters shows it.
"""

from __future__ import annotations

import contextlib
import functools
import sys
from typing import Any, Callable, Dict, Iterator, List, Tuple

import torch

from .errors import UnsupportedError

KINDS = ("Adafactor", "Adagrad")


@contextlib.contextmanager
def computed_on_device() -> Iterator[None]:
    """Inside, steps of these optimizers whose rate is a double on the device ask the host for nothing."""
    with contextlib.ExitStack() as undo:
        updates: Tuple[Tuple[str, str, Callable[..., Any]], ...] = (
            ("torch.optim._adafactor", "adafactor", _adafactor), ("torch.optim.adagrad", "adagrad", _adagrad))
        for module_name, name, update in updates:
            module = sys.modules.get(module_name)
            original = getattr(module, name, None)
            if original is not None:
                undo.callback(setattr, module, name, original)
                setattr(module, name, functools.partial(update, original))
        yield


def _is_on_device(rate: Any) -> bool:
    return isinstance(rate, torch.Tensor) and rate.is_cuda and rate.dtype == torch.float64


def _adagrad(original: Callable[..., None], parameters: List[torch.Tensor], gradients: List[torch.Tensor],
             sums: List[torch.Tensor], steps: List[torch.Tensor], **options: Any) -> None:
    rate = options["lr"]
    if not _is_on_device(rate):
        original(parameters, gradients, sums, steps, **options)
        return
    if options.get("foreach") is False or any(map(options.get, ("differentiable", "has_sparse_grad", "has_complex"))) \
            or not all(type(parameter) in (torch.Tensor, torch.nn.Parameter) for parameter in parameters):
        raise UnsupportedError("Adagrad with foreach=False, differentiable=True, sparse gradients, complex parameters "
                               "or subclasses of tensors takes its rate from the host in each step, which a captured "
                               "step would keep; leave foreach and differentiable out")
    by_type: Dict[Any, List[Any]] = {}
    for each in zip(parameters, gradients, sums, steps):
        by_type.setdefault(each[0].dtype, []).append(each)
    for same_type in by_type.values():
        parameters, gradients, sums, steps = map(list, zip(*same_type))
        _adagrad_of_one_type(parameters, gradients, sums, steps, options)


def _adagrad_of_one_type(parameters: List[torch.Tensor], gradients: List[torch.Tensor], sums: List[torch.Tensor],
                         steps: List[torch.Tensor], options: Dict[str, Any]) -> None:
    factors = []
    for parameter, step in zip(parameters, steps):
        count, factor = _advanced(step, parameter), -options["lr"]
        factors.append(factor / (1 + (count - 1) * options["lr_decay"]) if options["lr_decay"] else factor)
    if options["maximize"]:
        gradients = torch._foreach_neg(gradients)
    if options["weight_decay"] != 0:
        gradients = torch._foreach_add(gradients, parameters, alpha=options["weight_decay"])
    torch._foreach_addcmul_(sums, gradients, gradients, value=1)
    deviations = torch._foreach_sqrt(sums)
    torch._foreach_add_(deviations, options["eps"])
    torch._foreach_addcdiv_(parameters, list(map(_times, gradients, factors)), deviations)


def _adafactor(original: Callable[..., None], parameters: List[torch.Tensor], gradients: List[torch.Tensor],
               rows: List[Any], columns: List[Any], variances: List[Any], steps: List[torch.Tensor],
               **options: Any) -> None:
    if not _is_on_device(options["lr"]):
        original(parameters, gradients, rows, columns, variances, steps, **options)
        return
    if options.get("foreach"):
        raise UnsupportedError("Adafactor with foreach=True takes its rates from the host in each step, which a "
                               "captured step would keep; leave foreach out")
    for parameter, gradient, row, column, variance, step in zip(parameters, gradients, rows, columns, variances, steps):
        if options["eps1"] is None:  # PyTorch takes that of the first parameter for all
            options["eps1"] = torch.finfo(parameter.dtype).eps
        _adafactor_of_one(parameter, -gradient if options["maximize"] else gradient, row, column, variance, step,
                          options)


def _adafactor_of_one(parameter: torch.Tensor, gradient: torch.Tensor, row: Any, column: Any, variance: Any,
                      step: torch.Tensor, options: Dict[str, Any]) -> None:
    rate, eps1, eps2, decay = options["lr"], options["eps1"], options["eps2"], options["weight_decay"]
    count = _advanced(step, parameter)
    weight = count ** options["beta2_decay"]
    factor = _larger(eps2, _divided(parameter.norm(2), parameter.numel() ** 0.5))
    factor = factor * _smaller(rate, count.sqrt().reciprocal())
    if decay != 0:
        parameter.copy_(_times(parameter, 1 - rate * decay))
    if gradient.dim() > 1:
        for average, dim in ((row, -1), (column, -2)):
            mean = torch.linalg.vector_norm(gradient, dim=dim, keepdim=True).square_().div_(gradient.size(dim))
            _approach(average, mean, weight)
        estimate = row @ column
        estimate.div_(row.mean(dim=-2, keepdim=True).clamp_(min=eps1))
    else:
        _approach(variance, gradient * gradient, weight)
        estimate = variance.clone()
    update = estimate.clamp_(min=eps1 * eps1).rsqrt_().mul_(gradient)
    limit = _larger(1.0, _divided(update.norm(2), update.numel() ** 0.5 * options["d"]))
    _add(parameter, update, -factor / limit)


# ---- numbers, which are doubles on the device ------------------------------------------------------------------------


def _advanced(step: torch.Tensor, parameter: torch.Tensor) -> torch.Tensor:
    """A count of steps, one further. It is on the host where the state was made just now."""
    step += 1
    return step.to(device=parameter.device, dtype=torch.float64)


def _number(value: float, device: torch.device) -> torch.Tensor:
    return torch.full((), value, dtype=torch.float64, device=device)


def _divided(norm: torch.Tensor, divisor: float) -> torch.Tensor:
    """By a tensor: PyTorch would multiply with the reciprocal of a number."""
    return norm.double() / _number(divisor, norm.device)


def _larger(least: float, number: torch.Tensor) -> torch.Tensor:
    """Python's max(), which takes the first of two that cannot be compared."""
    return torch.where(number > least, number, _number(least, number.device))


def _smaller(most: torch.Tensor, number: torch.Tensor) -> torch.Tensor:
    return torch.where(number < most, number, most)


# ---- tensors, with such numbers --------------------------------------------------------------------------------------


def _wide(tensor: torch.Tensor) -> torch.Tensor:
    """In the type that kernels compute in: itself, unless it is narrow."""
    return tensor if tensor.dtype in (torch.float32, torch.float64) else tensor.float()


def _times(tensor: torch.Tensor, factor: torch.Tensor) -> torch.Tensor:
    wide = _wide(tensor)
    return (wide * factor.to(wide.dtype)).to(tensor.dtype)


def _approach(average: torch.Tensor, value: torch.Tensor, weight: torch.Tensor) -> None:
    wide = _wide(average)
    average.copy_(wide.lerp(_wide(value), weight.to(wide.dtype)))


def _add(tensor: torch.Tensor, other: torch.Tensor, factor: torch.Tensor) -> None:
    """As tensor.add_(other, alpha=factor)."""
    wide = _wide(tensor)
    tensor.copy_(_way_to_add(wide.device)(wide, _wide(other), factor.to(wide.dtype)))


@functools.lru_cache(maxsize=None)
def _way_to_add(device: torch.device) -> Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]:
    """One that rounds as this PyTorch's add_() with a number does, which is once in most. Asked in a warm-up call, for
    it waits for the device."""
    numbers = torch.arange(1.0, 4097.0, device=device).sqrt_()
    others, factor = numbers.log(), torch.full((), 0.3, device=device)
    expected = numbers.add(others, alpha=factor.item())
    for way in (torch.addcmul, _add_rounding_twice):
        if torch.equal(way(numbers, others, factor), expected):
            return way
    return _add_with_doubles


def _add_rounding_twice(tensor: torch.Tensor, other: torch.Tensor, factor: torch.Tensor) -> torch.Tensor:
    return tensor + other * factor


def _add_with_doubles(tensor: torch.Tensor, other: torch.Tensor, factor: torch.Tensor) -> torch.Tensor:
    return (tensor.double() + other.double() * factor.double()).to(tensor.dtype)
