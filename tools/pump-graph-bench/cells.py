# SPDX-License-Identifier: Apache-2.0
"""Figures as the tables print them; "-" where there are none."""

from __future__ import annotations

import statistics
from typing import Iterable, Iterator, List, Optional, Sequence


def table(columns: Sequence[str], rows: Iterable[List[str]]) -> Iterator[str]:
    yield "| " + " | ".join(columns) + " |"
    yield "|" + " --- |" * len(columns)
    for cells in rows:
        yield "| " + " | ".join(cells) + " |"


def ms(seconds: Optional[float]) -> Optional[float]:
    return None if seconds is None else seconds * 1e3


def decimal(value: Optional[float]) -> str:
    return "-" if value is None else f"{value:.1f}"


def quotient(value: Optional[float], of: Optional[float]) -> str:
    return "-" if value is None or not of else f"{value / of:.2f}"


def gib(size: Optional[float]) -> str:
    return "-" if size is None else f"{size / 2**30:.2f} GiB"


def in_gib(size: Optional[float]) -> str:
    """Under a heading that has the unit."""
    return gib(size).split()[0]


def spread(samples: Sequence[float], unit: str = "") -> str:
    if not samples:
        return "-"
    return f"{statistics.median(samples):.1f}{unit} ({min(samples):.1f}-{max(samples):.1f})"
