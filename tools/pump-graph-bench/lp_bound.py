# SPDX-License-Identifier: Apache-2.0
"""A lower limit on the time of a step under a budget, by linear programming (docs/design/cost-model.md); uses SciPy."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Dict, Mapping, Optional

from lp_prices import Link, Prices, proven_us
from lp_programme import MOST_SLOTS, Proposal, even_grid, finer_grid
from lp_step import PREDICTED, Step

# The programme is solved again on a finer grid while the bound rises by more than this share.
WORTH_A_ROUND = 1e-4
MOST_ROUNDS = 5


@dataclass(frozen=True)
class Result:
    seconds: float  # no replay is faster
    in_memory_s: float  # nor faster than this
    prices: Prices  # which prove it
    proposal: Proposal  # what a plan made of fractions of bytes would do


def solve(step: Dict[str, Any], budget_bytes: int, machine: Mapping[str, float], kind: str) -> Result:
    """`step`: the JSON of `--report=plan`, of which only the captured step is looked at. `machine`: bytes a second.
    `kind`: "may", "must" or "predicted". Raises ValueError for bad arguments, RuntimeError if the solver gives up."""
    link = Link(machine, at_its_best=kind != PREDICTED)
    problem = Step(step, budget_bytes, kind)
    in_memory_us = float(problem.windows_us.sum())
    best: Optional[Result] = None
    grid = even_grid(problem.window_count)
    for _ in range(MOST_ROUNDS):
        proposal = Proposal(problem, link, grid)
        try:
            prices = proposal.solve().feasible()
        except RuntimeError:
            if best is None:
                raise
            break
        proven_s = max(in_memory_us, proven_us(problem, link, prices)) * 1e-6
        gained = proven_s / best.seconds - 1 if best and best.seconds > 0 else math.inf
        if gained > 0:
            best = Result(proven_s, in_memory_us * 1e-6, prices, proposal)
        grid, known = finer_grid(proposal, prices), len(grid)
        if gained < WORTH_A_ROUND or not known < len(grid) <= MOST_SLOTS:
            break
    assert best is not None
    return best


def lp_bound(step: Dict[str, Any], budget_bytes: int, machine: Mapping[str, float], kind: str) -> float:
    """In seconds."""
    return solve(step, budget_bytes, machine, kind).seconds
