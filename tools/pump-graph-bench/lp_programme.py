# SPDX-License-Identifier: Apache-2.0
"""The linear programme that finds prices. It follows bytes in aggregate, so that it stays small; what its prices prove
is for lp_prices.py to say, so nothing here can make a bound wrong, only weak."""

from __future__ import annotations

import math
from collections import defaultdict
from typing import Dict, List, NamedTuple, Optional, Sequence, Tuple

import numpy
from scipy.optimize import linprog
from scipy.sparse import coo_matrix

from lp_prices import Link, Prices
from lp_step import BOUNDARY, EITHER, Gap, Group, Life, Step, Visit

# Slots of time in the first grid, parts that a slot is cut into where prices change, and the most slots of all.
FIRST_SLOTS, PARTS, MOST_SLOTS = 300, 16, 2000
# Room over bytes: within each of these classes all bytes count as if they took the same room.
RATIO_CLASSES = (1.0001, 1.1, 1.3, 1.7, 2.5, 5.0, math.inf)
# What a copy costs beside its time on the link, as a share of that: among equal solutions the one that moves least.
TIE_BREAK = 1e-6

Terms = List[Tuple[int, float]]


class Programme:
    """A linear programme, built row by row; it minimises."""

    def __init__(self) -> None:
        self._costs: List[float] = []
        self._bounds: List[Tuple[float, float]] = []
        self._entries: List[Tuple[int, int, float]] = []
        self._limits: List[float] = []
        self._is_equation: List[bool] = []

    def variable(self, low: float = 0.0, high: float = math.inf, cost: float = 0.0) -> int:
        self._costs.append(cost)
        self._bounds.append((low, high))
        return len(self._costs) - 1

    def variables(self, count: int, cost: float = 0.0) -> List[int]:
        return [self.variable(cost=cost) for _ in range(count)]

    def at_most(self, terms: Terms, limit: float, is_equation: bool = False) -> int:
        self._entries += [(len(self._limits), variable, factor) for variable, factor in terms]
        self._limits.append(limit)
        self._is_equation.append(is_equation)
        return len(self._limits) - 1

    def equal(self, terms: Terms, value: float) -> int:
        return self.at_most(terms, value, is_equation=True)

    def solve(self) -> Solution:
        rows, columns, factors = (numpy.array(part) for part in zip(*self._entries))
        matrix = coo_matrix((factors, (rows, columns)), shape=(len(self._limits), len(self._costs))).tocsr()
        limits, equal = numpy.array(self._limits), numpy.array(self._is_equation)
        for presolves in (True, False):  # the first is faster, and fails now and then
            result = linprog(self._costs, A_ub=matrix[~equal], b_ub=limits[~equal], A_eq=matrix[equal],
                             b_eq=limits[equal], bounds=self._bounds, method="highs-ipm",
                             options={"presolve": presolves})
            if result.status == 0:
                break
        else:
            raise RuntimeError(f"no prices were found: {result.message}")
        duals = numpy.zeros(len(limits))
        duals[~equal], duals[equal] = result.ineqlin.marginals, result.eqlin.marginals
        return Solution(result.fun, result.x, duals)


class Solution(NamedTuple):
    cost: float
    values: numpy.ndarray
    duals: numpy.ndarray


class Move(NamedTuple):
    """Something that bytes of a group may do: be "away" or "mirrored" over the boundary; take a "trip" to the host and
    back; "copy" to the host and stay; "drop" what has a host copy, and come back; "leave" for the boundary, or be
    "gone" if there is a host copy; be "hosted" at all times, or for one use; "park" in host memory to be hosted for the
    next use, or "unhost" before it."""
    group: Group
    what: str
    variable: int


class Crossing(NamedTuple):
    """Bytes of a group that are not on the device at the boundary, and those that are and have a host copy too."""
    away: int
    mirrored: int


class Lane:
    """Bytes of one direction: in which slots they may begin to move, and in which they must have."""

    def __init__(self, slots: int):
        self.begins: List[List[int]] = [[] for _ in range(slots)]
        self.ends: List[List[int]] = [[] for _ in range(slots)]

    def add(self, variable: int, first: int, last: int) -> None:
        self.begins[first].append(variable)
        self.ends[last].append(variable)


class Channel:
    """Bytes that take about the same room each."""

    def __init__(self, slots: int, groups: Sequence[Group]):
        self.groups = groups
        self.ratio = sum(group.room for group in groups) / sum(group.link for group in groups)
        self.up, self.down, self.copy = (Lane(slots) for _ in range(3))
        self.drops: List[List[int]] = [[] for _ in range(slots)]
        self.away: List[int] = []
        self.parked: List[List[int]] = [[] for _ in range(slots)]  # what left, and is hosted from here on
        self.hosted = Lane(slots)  # in which slots hosted bytes would begin and cease to be on the device


class Proposal:
    """Bytes wait for their turn in each lane, and are off the device from when they went down until they come up. That
    no byte comes up before it went down holds in the sum only."""

    def __init__(self, step: Step, link: Link, grid: Sequence[int]):
        """`grid`: the first window of each slot, and the number of windows."""
        self.step, self._link = step, link
        self._scale = max((group.room for group in step.groups), default=1.0) / 1e3  # bytes to a unit
        self._programme = Programme()
        self.alive_bytes = alive(step)
        self._end_slots(grid)
        self.moves: List[Move] = []
        self._hosted_ups: List[List[int]] = [[] for _ in range(self._slots)]  # what nodes read and write themselves
        self._hosted_downs: List[List[int]] = [[] for _ in range(self._slots)]
        self.channels = [Channel(self._slots, groups) for groups in classes(self._merge(step.groups))]
        for channel in self.channels:
            for group in channel.groups:
                self._add(group, channel)
        self._couple()

    def _end_slots(self, grid: Sequence[int]) -> None:
        """Each at the moment at which most is alive among those of its part of the grid: there memory has a price."""
        count = self.step.window_count
        ends = [begin + int(numpy.argmax(self.alive_bytes[begin:end])) for begin, end in zip(grid, grid[1:])]
        self.slot_ends = numpy.array(ends if ends[-1] == count - 1 else ends + [count - 1])  # the last window of each
        self._slots = len(self.slot_ends)
        self._slot_of = numpy.searchsorted(self.slot_ends, numpy.arange(count))

    def _merge(self, groups: Sequence[Group]) -> List[Group]:
        """Groups whose lives are the same slot by slot, as one; their lives are in slots from here on."""
        merged: Dict[Tuple[Life, float], Group] = {}
        for group in groups:
            life = self._in_slots(group.life)
            known = merged.setdefault((life, class_of(group)), Group(life))
            known.link += group.link
            known.room += group.room
            known.parts += group.parts
        return list(merged.values())

    def _in_slots(self, life: Life) -> Life:
        def gaps(windows: Sequence[Gap]) -> Tuple[Gap, ...]:
            return tuple(Gap(int(self._slot_of[gap.first]), int(self._slot_of[gap.last]), gap.writes,
                             None if gap.beside is None else int(self._slot_of[gap.beside]), gap.goes_on)
                         for gap in windows)

        tail = None if life.tail is None else int(self._slot_of[life.tail])
        uses = tuple(use._replace(**{moment: int(self._slot_of[getattr(use, moment)])
                                     for moment in ("window", "before", "after")}) for use in life.uses)
        return Life(life.start, gaps(life.gaps), tail, gaps(life.head), uses)

    def _add(self, group: Group, channel: Channel) -> None:
        life = group.life
        if life.renames:
            self._rename(group, channel)
            return
        hosted = self._host(group, channel) if life.uses else []
        crossing = self._cross(group, hosted, channel) if life.crosses else None
        if life.head:
            self._walk(group, life.head, BOUNDARY, hosted, crossing, channel)
        copies = self._walk(group, life.gaps, life.start, hosted, crossing, channel)
        if life.tail is not None:
            self._reach_boundary(group, life.tail, copies, hosted, crossing, channel)

    def _host(self, group: Group, channel: Channel) -> Terms:
        """What takes no part in all else that its group does."""
        life = group.life
        variable = self._host_for(group, life.uses, channel)
        for gap in life.head + life.gaps:
            channel.hosted.add(variable, gap.first, gap.last)
        if life.tail is not None:
            channel.hosted.begins[life.tail].append(variable)
        return [(variable, 1.0)]

    def _host_for(self, group: Group, uses: Sequence[Visit], channel: Channel) -> int:
        """What is hosted for the uses."""
        variable = self._programme.variable(0, group.link / self._scale, TIE_BREAK * self._scale / self._link.up)
        self.moves.append(Move(group, "hosted", variable))
        for use in uses:
            channel.hosted.add(variable, use.before, use.after)
            if use.needs:
                self._hosted_ups[use.window].append(variable)
            if use.writes:
                self._hosted_downs[use.window].append(variable)
        return variable

    def _rename(self, group: Group, channel: Channel) -> None:
        """For each use some bytes are hosted; after a long gap others may be. The first use makes the value."""
        life, programme, size = group.life, self._programme, group.link / self._scale
        uses = [self._host_for(group, [use], channel) for use in life.uses]
        copies: Optional[List[int]] = None if life.start == EITHER else []
        for gap, use, following in zip(life.gaps, uses, uses[1:]):
            stay = programme.variable(0, size)
            channel.hosted.add(stay, gap.first, gap.last)
            comes, goes = [], []
            if gap.goes_on:
                comes.append(self._drop(group, "unhost", gap.first, gap.last, [channel.up], channel))
                goes.append(self._move(group, "park", gap.first, gap.last, [channel.down]))
            if copies != []:
                drops = [self._drop(group, "drop", gap.first, gap.last, [channel.up], channel)]
                if gap.goes_on:
                    goes.append(self._drop(group, "park", gap.first, gap.last, [], channel))
                    drops.append(goes[-1])
                if copies is not None:
                    programme.at_most([(drop, 1.0) for drop in drops] + [(copy, -1.0) for copy in copies], 0.0)
            for variable in goes:
                channel.parked[gap.last].append(variable)
            programme.equal([(use, 1.0)] + [(variable, -1.0) for variable in [stay] + comes], 0.0)
            programme.equal([(following, 1.0)] + [(variable, -1.0) for variable in [stay] + goes], 0.0)
            if copies is not None:
                if gap.last > gap.first:
                    copies = copies + [self._move(group, "trip", gap.first, gap.last, [channel.down, channel.up])]
                if not gap.writes:
                    until = gap.last if gap.beside is None else gap.beside
                    copies = copies + [self._move(group, "copy", gap.first, until, [channel.copy])]
                programme.at_most([(variable, 1.0) for variable in copies + [stay] + comes + goes], size)
                copies = copies + comes
            if gap.writes:
                copies = []

    def _cross(self, group: Group, hosted: Terms, channel: Channel) -> Crossing:
        size = group.link / self._scale
        crossing = Crossing(self._programme.variable(0, size), self._programme.variable(0, size))
        channel.away.append(crossing.away)
        self.moves += [Move(group, "away", crossing.away), Move(group, "mirrored", crossing.mirrored)]
        self._programme.at_most([(crossing.away, 1.0), (crossing.mirrored, 1.0)] + hosted, size)
        return crossing

    def _move(self, group: Group, what: str, first: int, last: int, lanes: Sequence[Lane]) -> int:
        variable = self._programme.variable(0, group.link / self._scale)
        self.moves.append(Move(group, what, variable))
        for lane in lanes:
            lane.add(variable, first, last)
        return variable

    def _drop(self, group: Group, what: str, first: int, last: int, lanes: Sequence[Lane], channel: Channel) -> int:
        variable = self._move(group, what, first, last, lanes)
        channel.drops[first].append(variable)
        return variable

    def _walk(self, group: Group, gaps: Sequence[Gap], start: str, hosted: Terms, crossing: Optional[Crossing],
              channel: Channel) -> Optional[List[int]]:
        """The variables whose bytes have a host copy in the end; None: all bytes have."""
        programme, size = self._programme, group.link / self._scale
        copies: Optional[List[int]] = None if start == EITHER else []
        if start == BOUNDARY and crossing:
            copies = [crossing.mirrored]
        for number, gap in enumerate(gaps):
            comes = start == BOUNDARY and number == 0 and crossing is not None
            if comes:
                channel.up.add(crossing.away, gap.first, gap.last)
            is_long = gap.last > gap.first
            if copies != [] and is_long:
                drop = self._drop(group, "drop", gap.first, gap.last, [channel.up], channel)
                if copies is not None:
                    programme.at_most([(drop, 1.0)] + [(copy, -1.0) for copy in copies], 0.0)
            if copies is not None:
                copies = copies + ([crossing.away] if comes else [])
                if is_long:
                    copies.append(self._move(group, "trip", gap.first, gap.last, [channel.down, channel.up]))
                if not gap.writes:
                    until = gap.last if gap.beside is None else gap.beside
                    copies.append(self._move(group, "copy", gap.first, until, [channel.copy]))
                programme.at_most([(copy, 1.0) for copy in copies] + hosted, size)
            if gap.writes:
                copies = []
        return copies

    def _reach_boundary(self, group: Group, tail: int, copies: Optional[List[int]], hosted: Terms,
                        crossing: Optional[Crossing], channel: Channel) -> None:
        programme, size, last = self._programme, group.link / self._scale, self._slots - 1
        gone: List[int] = []
        if copies != []:
            gone.append(self._drop(group, "gone", tail, last, [], channel))
            back = self._drop(group, "drop", tail, last, [channel.up], channel)
            programme.at_most([(gone[0], 1.0), (back, 1.0)] + [(copy, -1.0) for copy in copies or []],
                              size if copies is None else 0.0)
        if copies is not None:
            leave = self._move(group, "leave", tail, last, [channel.down])
            trip = self._move(group, "trip", tail, last, [channel.down, channel.up])
            gone.append(leave)
            copy = self._move(group, "copy", tail, last, [channel.copy])
            programme.at_most([(variable, 1.0) for variable in [leave, trip, copy] + copies] + hosted, size)
            if crossing:
                programme.at_most([(crossing.mirrored, 1.0)] +
                                  [(variable, 1.0) for variable in gone if variable != leave] +
                                  [(variable, -1.0) for variable in [trip, copy] + copies], 0.0)
        if crossing is None:
            programme.at_most([(variable, 1.0) for variable in gone] + hosted, size)
        else:
            programme.equal([(variable, 1.0) for variable in gone] + [(crossing.away, -1.0)], 0.0)

    def _couple(self) -> None:
        programme, slots, step = self._programme, self._slots, self.step
        down_cost, up_cost = (TIE_BREAK * self._scale / rate for rate in (self._link.down, self._link.up))
        self._ups = [programme.variables(slots, up_cost) for _ in self.channels]
        self._downs = [programme.variables(slots, down_cost) for _ in self.channels]
        self._copies = [programme.variables(slots, down_cost) for _ in self.channels]
        self._offs = [programme.variables(slots) for _ in self.channels]
        self._hosted = [programme.variables(slots) for _ in self.channels]
        for channel, hosted in zip(self.channels, self._hosted):
            self._accumulate(hosted, channel.hosted.begins, channel.hosted.ends)
        for channel, up, down, copy, off in zip(self.channels, self._ups, self._downs, self._copies, self._offs):
            for lane, flow in ((channel.up, up), (channel.down, down), (channel.copy, copy)):
                moved = [[variable] for variable in flow]
                self._accumulate(programme.variables(slots), lane.begins, moved)  # bytes that wait, never below zero
                self._accumulate(programme.variables(slots), moved, lane.ends)  # bytes that are ahead of time
            leaving = [[down[slot]] + channel.drops[slot] for slot in range(slots)]
            leaving[0] = leaving[0] + channel.away
            self._accumulate(off, leaving, [[variable] + parked for variable, parked in zip(up, channel.parked)])
        excess = (self.alive_bytes[self.slot_ends] - step.room_bytes) / self._scale
        self._room_rows = {slot: programme.at_most([(off[slot], -channel.ratio) for offs in (self._offs, self._hosted)
                                                    for off, channel in zip(offs, self.channels)], -excess[slot])
                           for slot in range(slots) if excess[slot] > 0}
        begins = numpy.concatenate(([0], self.slot_ends[:-1] + 1))
        self._slot_us = numpy.add.reduceat(step.windows_us, begins)
        self._spans = [programme.variable(us, math.inf, 1.0) for us in self._slot_us]
        ups = [[flow[slot] for flow in self._ups] for slot in range(slots)]
        downs = [[flow[slot] for flow in self._downs + self._copies] for slot in range(slots)]
        self._all_up = [up + hosted for up, hosted in zip(ups, self._hosted_ups)]
        self._all_down = [down + hosted for down, hosted in zip(downs, self._hosted_downs)]
        if not step.hosted_waits:
            self._link_rows = self._limit(self._all_up, self._all_down, [[(span, 1.0)] for span in self._spans])
            return
        waits = programme.variables(slots, 1 / self._link.hosted_share)
        left = self._link.beside_hosted_share / self._link.hosted_share
        self._link_rows = self._limit(ups, downs,
                                      [[(span, 1.0), (wait, left)] for span, wait in zip(self._spans, waits)])
        self._hosted_rows = self._limit(self._hosted_ups, self._hosted_downs, [[(wait, 1.0)] for wait in waits])

    def _limit(self, ups: Sequence[Sequence[int]], downs: Sequence[Sequence[int]],
               spans: Sequence[Terms]) -> List[List[int]]:
        """By direction, then slot: what moves takes no more of the link than the spans."""
        link = self._link
        return [[self._programme.at_most([(flow, self._scale / rate) for flow in flows[slot]] +
                                         [(flow, link.interference * self._scale / other_rate)
                                          for flow in others[slot]] +
                                         [(span, -part) for span, part in spans[slot]], 0.0)
                 for slot in range(self._slots)]
                for flows, rate, others, other_rate in ((ups, link.up, downs, link.down),
                                                        (downs, link.down, ups, link.up))]

    def _accumulate(self, sums: Sequence[int], plus: Sequence[Sequence[int]], minus: Sequence[Sequence[int]]) -> None:
        for slot in range(self._slots):
            factors: Dict[int, float] = defaultdict(float)
            factors[sums[slot]] += 1.0
            if slot > 0:
                factors[sums[slot - 1]] -= 1.0
            for variable in plus[slot]:
                factors[variable] -= 1.0
            for variable in minus[slot]:
                factors[variable] += 1.0
            self._programme.equal([term for term in factors.items() if term[1]], 0.0)

    def solve(self) -> Prices:
        self._solution = self._programme.solve()
        duals = self._solution.duals
        up, down = (-duals[rows][self._slot_of] for rows in self._link_rows)
        room = numpy.zeros(self.step.window_count)
        for slot, row in self._room_rows.items():
            room[self.slot_ends[slot]] = -duals[row] / self._scale
        if not self.step.hosted_waits:
            return Prices(up, down, room)
        reads, writes = (-duals[rows][self._slot_of] for rows in self._hosted_rows)
        return Prices(up, down, room, reads / numpy.maximum(1e-12, reads + writes))

    # What the programme would do; by slot, where it is not said otherwise.

    @property
    def estimate_us(self) -> float:
        return self._solution.cost

    def amount(self, move: Move) -> float:
        return self._solution.values[move.variable] * self._scale

    def spans_us(self) -> numpy.ndarray:
        return self._solution.values[self._spans]

    def in_memory_us(self) -> numpy.ndarray:
        return self._slot_us

    def up_bytes(self) -> numpy.ndarray:
        return self._sum(self._all_up)

    def down_bytes(self) -> numpy.ndarray:
        return self._sum(self._all_down)

    def device_bytes(self) -> numpy.ndarray:
        off = sum(channel.ratio * self._solution.values[flow] for flows in (self._offs, self._hosted)
                  for channel, flow in zip(self.channels, flows))
        return self.alive_bytes[self.slot_ends] - off * self._scale

    def _sum(self, flows: Sequence[Sequence[int]]) -> numpy.ndarray:
        return numpy.array([self._solution.values[list(here)].sum() for here in flows]) * self._scale


def even_grid(window_count: int) -> List[int]:
    return numpy.linspace(0, window_count, min(window_count, FIRST_SLOTS) + 1).astype(int).tolist()


def finer_grid(proposal: Proposal, prices: Prices) -> List[int]:
    """A grid with the slots around every change of prices cut into parts."""
    ends = proposal.slot_ends
    table = numpy.array([price[ends] for price in (prices.up, prices.down)])
    changes = numpy.any(numpy.abs(numpy.diff(table)) > 1e-6 * table.max(initial=0.0), axis=0)
    is_sold = prices.room[ends] > 0
    near = is_sold.copy()
    near[1:] |= changes | is_sold[:-1]
    near[:-1] |= changes | is_sold[1:]
    grid, begin = [0], 0
    for slot, end in enumerate(ends):
        parts = min(PARTS, end + 1 - begin) if near[slot] else 1
        grid += numpy.linspace(begin, end + 1, parts + 1).astype(int)[1:].tolist()
        begin = end + 1
    return grid


def alive(step: Step) -> numpy.ndarray:
    """Bytes on the device at the end of each window if nothing moves."""
    changes = numpy.zeros(step.window_count + 1)
    for group in step.groups:
        for gap in group.life.head + group.life.gaps:
            changes[gap.first] += group.room
            changes[gap.last] -= group.room
        if group.life.tail is not None:
            changes[group.life.tail] += group.room
    return step.held_bytes + numpy.cumsum(changes[:-1])


def class_of(group: Group) -> float:
    return next(limit for limit in RATIO_CLASSES if group.ratio < limit)


def classes(groups: Sequence[Group]) -> List[List[Group]]:
    members: Dict[float, List[Group]] = defaultdict(list)
    for group in groups:
        members[class_of(group)].append(group)
    return [members[limit] for limit in sorted(members)]
