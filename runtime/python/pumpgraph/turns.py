# SPDX-License-Identifier: Apache-2.0
"""Which graphed functions, or kinds of calls of one, are called in turns.

Two steps that alternate with every call are best planned into one boundary, even where the later one is slower there:
else each call exchanges their plans. The warm-up calls tell: something else ran between each two of them.
"""

from __future__ import annotations

from typing import Any, Dict, List


class Turns:
    """Of one graphed function. `latest` stands for the graph, or the kind of an eager call, that ran last in the
    process."""

    latest: Any = None

    def __init__(self) -> None:
        self._marks: Dict[Any, object] = {}  # by kind of call, of those that no graph is for
        self._others_before: Dict[Any, List[bool]] = {}  # likewise, for each call

    def note(self, kind: Any) -> None:
        """Such a call begins."""
        own = self._marks.setdefault(kind, object())
        self._others_before.setdefault(kind, []).append(Turns.latest not in (None, own))
        Turns.latest = own

    def alternates(self, kind: Any) -> bool:
        """Whether something else ran before each of these calls but the first."""
        later = self._others_before.get(kind, [])[1:]
        return bool(later) and all(later)
