# SPDX-License-Identifier: Apache-2.0
"""Arguments and results as people nest them: lists, tuples, dicts and dataclasses around tensors."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import MutableMapping
from typing import Any, Callable, Iterator, Tuple


def is_container(value: Any) -> bool:
    return isinstance(value, (list, tuple, MutableMapping)) or _is_record(value)


def _is_record(value: Any) -> bool:
    """An instance of a dataclass, not the class."""
    return dataclasses.is_dataclass(value) and not isinstance(value, type)


def items(value: Any) -> Iterator[Tuple[Any, Any]]:
    """What a container holds, by key, index or field; nothing for anything else."""
    if isinstance(value, MutableMapping):
        yield from value.items()
    elif isinstance(value, (list, tuple)):
        yield from enumerate(value)
    elif _is_record(value):
        yield from ((field.name, getattr(value, field.name)) for field in dataclasses.fields(value))


def replaced(value: Any, change: Callable[[Any], Any]) -> Any:
    """The same nesting around what `change` makes of everything that is no container. Containers are copied."""
    result: Any
    if type(value) is dict:
        return {key: replaced(item, change) for key, item in value.items()}
    if type(value) in (list, tuple):
        return type(value)(replaced(item, change) for item in value)
    if isinstance(value, tuple) and hasattr(value, "_make"):  # a named tuple
        return value._make(replaced(item, change) for item in value)
    if isinstance(value, MutableMapping):
        result = copy.copy(value)
        for key, item in value.items():
            result[key] = replaced(item, change)
        return result
    if isinstance(value, list):
        result = copy.copy(value)
        result[:] = [replaced(item, change) for item in value]
        return result
    if _is_record(value):
        result = copy.copy(value)
        for name, item in items(value):
            object.__setattr__(result, name, replaced(item, change))  # frozen ones too
        return result
    return change(value)
