# SPDX-License-Identifier: Apache-2.0
"""Sizes as people write them ("16GiB", "1.5 GB", 4096) to bytes and back."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Optional, Union

from .errors import invalid

_FACTORS = {"": 1, "B": 1}
for _power, _letter in enumerate("KMGT", start=1):
    _FACTORS[_letter + "B"] = 1000**_power
    _FACTORS[_letter + "IB"] = 1024**_power
_PATTERN = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*")


def parse_size(size: Union[int, str], what: str = "size") -> int:
    """Bytes of `size`: a number of bytes, or text with a unit (B, kB, MB, GB, TB, KiB, MiB, GiB, TiB)."""
    if isinstance(size, bool) or not isinstance(size, (int, str)):
        raise invalid(f"{what} {size!r} is neither a number of bytes nor text such as \"16GiB\"")
    if isinstance(size, int):
        if size < 0:
            raise invalid(f"{what} {size} is negative")
        return size
    match = _PATTERN.fullmatch(size)
    factor = _FACTORS.get(match.group(2).upper()) if match else None
    if match is None or factor is None:
        raise invalid(f"{what} \"{size}\" is not a size; write it like \"16GiB\", \"800MB\" or \"4096\"")
    return int(Decimal(match.group(1)) * factor)


def parse_budget(budget: Union[int, str]) -> Optional[int]:
    """Like parse_size(); None for "unlimited". A budget of nothing is refused: no buffer could be anywhere."""
    if budget == "unlimited":
        return None
    size = parse_size(budget, "budget")
    if size == 0:
        raise invalid("a budget of 0 bytes leaves no place for any buffer; give a size, or \"unlimited\"")
    return size


def format_size(size: float) -> str:
    for unit, factor in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if size >= factor:
            return f"{size / factor:.2f} {unit}"
    return f"{size:.0f} B"
