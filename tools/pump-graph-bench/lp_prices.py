# SPDX-License-Identifier: Apache-2.0
"""The bound that prices prove. Everything that has to be right for a linear bound to hold is here and in lp_step.py."""

from __future__ import annotations

import math
from typing import Any, Dict, Mapping, NamedTuple, Tuple

import numpy

from lp_step import BOUNDARY, WRITTEN, Gap, Life, Step, Visit

# For sums of some thousand rounded numbers.
ROUNDING = 1e-9


class Link:
    """Bytes a microsecond that each direction carries alone, and what one loses to the other: while one carries a share
    u of that, the other carries at most 1 - u * interference."""

    def __init__(self, machine: Mapping[str, float], at_its_best: bool = False):
        """`at_its_best`: as fast as it was seen where it varies; then one direction loses nothing to the other."""
        rates = [machine[f"{name}_bytes_per_second"] * 1e-6 for name in ("up", "down", "both")]
        if not all(rate > 0 for rate in rates):
            raise ValueError(f"a link needs some bandwidth both ways, not {rates[0]}, {rates[1]} and {rates[2]} MB/s")
        self.up, self.down, both = rates
        alone = self.up + self.down
        self.interference = max(0.0, alone / max(*rates, alone / 2) - 1)
        best = [machine.get(f"best_{name}_bytes_per_second", 0.0) * 1e-6 for name in ("up", "down")]
        if at_its_best and any(best):
            self.up, self.down, self.interference = max(self.up, best[0]), max(self.down, best[1]), 0.0
        self.hosted_share = machine.get("hosted_share", 1.0)  # of these, what nodes reach that move hosted bytes
        self.beside_hosted_share = machine.get("beside_hosted_share", 0.0)  # and what copies reach meanwhile


class Prices(NamedTuple):
    """In microseconds: of one of each direction of the link in each window, and of a byte of room at the end of each.
    `hosted`: of the time that a node moves hosted bytes, how much counts for those that it reads."""
    up: Any
    down: Any
    room: Any
    hosted: Any = 0.5

    def feasible(self) -> Prices:
        """None below zero, and no window with more to sell than its time."""
        up, down, room, hosted = (numpy.maximum(0.0, numpy.nan_to_num(price)) for price in self)
        worth = numpy.maximum(1.0, up + down)
        return Prices(up / worth, down / worth, room, numpy.broadcast_to(numpy.minimum(1.0, hosted), up.shape))


class Ways(NamedTuple):
    """What a byte pays for a gap, by what becomes of it. It begins and ends on the device but for `away`."""
    stay: float
    copy: float  # stays, and gets a host copy
    back: float  # leaves at once, with a host copy, and comes back
    trip: float  # leaves once it has a host copy, and comes back
    away: float  # leaves once it has a host copy


class Market:
    """The cheapest lives of a byte that takes `ratio` bytes of room."""

    def __init__(self, prices: Prices, link: Link, ratio: float, hosted_waits: bool):
        self._up, self._down = by_byte(prices.up, prices.down, link)
        self._hosted_up, self._hosted_down = self._up, self._down
        if hosted_waits:
            # Nodes side by side take all but a share of both directions from their window. A cut node moves its bytes
            # after its cost: its window is longer by that time, and copies have their share of it on top.
            link_worth = prices.up + prices.down
            worth = (1 - link.beside_hosted_share) * link_worth / link.hosted_share
            worth[1::2] = (1 - link.beside_hosted_share * link_worth[1::2]) / link.hosted_share
            self._hosted_up, self._hosted_down = by_byte(worth * prices.hosted, worth * (1 - prices.hosted), link)
        self._room_paid = numpy.concatenate(([0.0], numpy.cumsum(prices.room * ratio)))  # up to each window
        self._last = len(prices.up) - 1
        self._ways: Dict[Tuple[int, int], Ways] = {}

    def ways(self, first: int, last: int) -> Ways:
        ways = self._ways.get((first, last))
        if ways is None:
            span = slice(first, last + 1)
            until = self._room_paid[span] - self._room_paid[first]  # on the device until each window
            stay = float(until[-1])
            leaving = until + self._down[span]
            coming = stay - until + self._up[span]
            ways = Ways(stay, stay + float(self._down[span].min()), float(coming.min()),
                        float((numpy.minimum.accumulate(leaving) + coming).min()), float(leaving.min()))
            self._ways[first, last] = ways
        return ways

    def cost(self, life: Life) -> float:
        states = ("device", "host", "both") if life.crosses else ("host",)
        paid = min(self._cost_from(life, state) for state in states)
        if not life.uses:
            return paid
        return min(paid, self._cost_renamed(life) if life.renames else sum(map(self._cost_hosted, life.uses)))

    def _cost_hosted(self, use: Visit) -> float:
        """A node reads and writes it over the link, and it does not take the room that counts as held by that node."""
        paid = float(self._hosted_up[use.window]) if use.needs else 0.0
        paid += float(self._hosted_down[use.window]) if use.writes else 0.0
        return paid - (float(self._room_paid[use.window + 1] - self._room_paid[use.window - 1]) if use.is_held else 0.0)

    def _cost_renamed(self, life: Life) -> float:
        """For each use it is on the device, without or with a host copy, or hosted; in long gaps it may go from one to
        the other. The first use is where the value comes from, the others come after a gap each."""
        hosted = self._cost_hosted(life.uses[0])
        dirty, clean = (0.0, math.inf) if life.start == WRITTEN else (math.inf, 0.0)
        for gap, use in zip(life.gaps, life.uses[1:]):
            ways = self.ways(gap.first, gap.last)
            parked, back = (min(clean, dirty + ways.away), hosted + ways.back) if gap.goes_on else (math.inf, math.inf)
            hosted = min(hosted, parked) + self._cost_hosted(use)
            clean = min(dirty + min(ways.copy, ways.trip), clean + min(ways.stay, ways.back), back)
            dirty += ways.stay
            if gap.writes:
                dirty, clean = min(dirty, clean), math.inf
            elif gap.beside is not None:
                clean = min(clean, dirty + float(self._down[gap.beside]))
        return min(dirty, clean, hosted)

    def _cost_from(self, life: Life, state: str) -> float:
        """`state`: where the byte is at the boundary, if it crosses it."""
        paid = 0.0
        if life.start == BOUNDARY:
            dirty, clean = self._enter(life.gaps, state)
        else:
            if life.head:
                paid = min(self._enter(life.head, state))
            dirty, clean = self._through(life.gaps, *((0.0, math.inf) if life.start == WRITTEN else (math.inf, 0.0)))
        if life.tail is None:
            return paid + min(dirty, clean)
        ends = (state,) if life.crosses else ("device", "host")
        return paid + min(self._leave(life.tail, dirty, clean, end) for end in ends)

    def _through(self, gaps: Tuple[Gap, ...], dirty: float, clean: float) -> Tuple[float, float]:
        """What it has cost to be on the device after the gaps, without and with a host copy."""
        for gap in gaps:
            ways = self.ways(gap.first, gap.last)
            dirty, clean = dirty + ways.stay, min(dirty + min(ways.copy, ways.trip), clean + min(ways.stay, ways.back))
            if gap.writes:
                dirty, clean = min(dirty, clean), math.inf
            elif gap.beside is not None:
                clean = min(clean, dirty + float(self._down[gap.beside]))
        return dirty, clean

    def _enter(self, gaps: Tuple[Gap, ...], state: str) -> Tuple[float, float]:
        if state == "device":
            return self._through(gaps, 0.0, math.inf)
        if state == "both" or not gaps:
            return self._through(gaps, math.inf, 0.0)
        arrived = self.ways(gaps[0].first, gaps[0].last).back
        return self._through(gaps[1:], *((arrived, math.inf) if gaps[0].writes else (math.inf, arrived)))

    def _leave(self, tail: int, dirty: float, clean: float, state: str) -> float:
        ways = self.ways(tail, self._last)
        if state == "host":
            return min(dirty + ways.away, clean)
        room = float(self._room_paid[self._last + 1] - self._room_paid[self._last])
        kept = clean + min(ways.stay, ways.back)
        if state == "device":
            return room + min(dirty + min(ways.stay, ways.trip), kept)
        return room + min(dirty + min(ways.copy, ways.trip), kept)


def by_byte(up: Any, down: Any, link: Link) -> Tuple[Any, Any]:
    """Prices of a byte each way: it takes time of its own direction, and some of the other's."""
    return (up + link.interference * down) / link.up, (down + link.interference * up) / link.down


def proven_us(step: Step, link: Link, prices: Prices) -> float:
    """A time that no replay can beat, whatever the prices are. Good prices make a good bound."""
    prices = prices.feasible()
    worth = prices.up + prices.down
    terms = [float(numpy.dot(step.windows_us, 1.0 - worth)),
             -float(numpy.dot(prices.room, step.room_bytes - step.held_bytes))]
    markets: Dict[float, Market] = {}
    for group in step.groups:
        if group.ratio not in markets:
            markets[group.ratio] = Market(prices, link, group.ratio, step.hosted_waits)
        terms.append(group.link * markets[group.ratio].cost(group.life))
    return math.fsum(terms) - ROUNDING * math.fsum(map(abs, terms))
