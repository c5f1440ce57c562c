# SPDX-License-Identifier: Apache-2.0
"""A step as the linear bound sees it: windows of time, and bytes with a history. See docs/design/cost-model.md."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any, Dict, Iterable, List, NamedTuple, Optional, Set, Tuple

import numpy

# What values a bound believes in: those that nodes may touch (as the checker does), or those they must. PREDICTED is
# MAY, and what nodes move of hosted pages takes as long as the prediction says.
MAY, MUST, PREDICTED = "may", "must", "predicted"
KINDS = (MAY, MUST, PREDICTED)

# Of the step: what is idle for less goes on at another address only beside a node that touches more than there is room
# for, as the planner has it (passes/plan/search/SplitCandidates.h).
LEAST_IDLE_SHARE = 0.05


class Touch(NamedTuple):
    """What one node does to one piece."""
    node: int
    needs: bool  # the old value
    writes: bool  # the value is new afterwards
    replaces: bool  # the old value may be gone afterwards without having been read


class Visit(NamedTuple):
    """What the nodes of one window do to one piece."""
    window: int
    before: int  # the last window in which the piece can move before it
    after: int  # the first one after it
    needs: bool
    writes: bool
    resets: bool  # whether the value is new afterwards is not known
    is_wide: bool = False  # one of them touches more than there is room for

    @property
    def beside(self) -> Optional[int]:
        """The window in which the piece is held and only read, so that it may be saved but not leave."""
        return self.window if self.is_held and not self.writes else None

    @property
    def is_held(self) -> bool:
        """On the device from the window's beginning to its end."""
        return self.after > self.before


class Gap(NamedTuple):
    """The windows from where a value comes from, or was needed last, to where it is needed; both included."""
    first: int
    last: int
    writes: bool = False  # the use at its end leaves a new value
    beside: Optional[int] = None  # the window of that use, where it is in no gap and lets the value be saved
    goes_on: bool = False  # the value may go on at another address: hosted at one, and not at the other


class Life(NamedTuple):
    """A value, from where it comes from to its last need."""
    start: str  # BOUNDARY, WRITTEN or EITHER
    gaps: Tuple[Gap, ...]
    tail: Optional[int] = None  # the first window after the last need, if the value must reach the boundary
    head: Tuple[Gap, ...] = ()  # the needs of what came in over the boundary, where that is another value
    uses: Tuple[Visit, ...] = ()  # all of them, where the value may also be hosted

    @property
    def renames(self) -> bool:
        """Whether it may be hosted for some uses, and on the device for others."""
        return any(gap.goes_on for gap in self.gaps)

    @property
    def crosses(self) -> bool:
        """Whether what is on the device at the end of a replay is what the next one starts with."""
        return self.tail is not None and (self.start == BOUNDARY or bool(self.head))


# Where a value comes from: the boundary; a write, so there is no host copy; somewhere, with or without one.
BOUNDARY, WRITTEN, EITHER = "boundary", "written", "either"


@dataclass
class Group:
    """All bytes with one history."""
    life: Life
    link: float = 0  # bytes to copy
    room: float = 0  # bytes of frames
    parts: List[Tuple[int, int, int]] = field(default_factory=list)  # buffer, its first byte, and its end

    @property
    def ratio(self) -> float:
        return self.room / self.link


class Step:
    """Window 2k lies before the k-th cut node starts, window 2k + 1 is that node's own; the last one ends the step."""

    def __init__(self, description: Dict[str, Any], budget_bytes: int, kind: str):
        if kind not in KINDS:
            raise ValueError(f"the kind of a bound is one of {', '.join(KINDS)}, not \"{kind}\"")
        self.kind = MUST if kind == MUST else MAY
        self.page_bytes = description["page_bytes"]
        self.buffers = description["buffers"]
        description = with_use_between_replays(description)
        self.nodes = [with_captured_buffers(node, self.buffers)
                      for node in sorted(description["nodes"], key=lambda node: node["id"])]
        if any(access.get("slowdown", 1.0) < 1.0 for node in self.nodes for access in node["accesses"]):
            raise ValueError("nodes of this step were measured to reach a part of their hosted pages only, which the "
                             "linear bound does not know: take the step as it was recorded")
        self._before = predecessors(self.nodes, description["edges"])
        self.cuts = find_cuts(self._before)
        self._place_nodes()
        exclusive = sum(-(-buffer["size"] // self.page_bytes) for buffer in self.buffers if not buffer["private"])
        self.room_bytes = float(max(0, budget_bytes // self.page_bytes - exclusive) * self.page_bytes)
        self.held_bytes = numpy.zeros(self.window_count)  # at the end of each window, by the node that then runs
        self._wide = self._wide_nodes() if self.kind == MAY else set()
        # Where there are plans that keep all that a node uses on the device, and this is not one of the others, nothing
        # is hosted.
        self.may_host = self.kind == MAY and (bool(self._wide) or any(buffer.get("hosted") for buffer in self.buffers))
        self.hosted_waits = kind == PREDICTED
        self._groups: Dict[Tuple[Life, float], Group] = {}
        self._read_buffers()
        self.groups = list(self._groups.values())

    @property
    def window_count(self) -> int:
        return len(self.windows_us)

    def node_at(self, window: int) -> int:
        """The cut node of a window, or the last one."""
        return self.cuts[min(window // 2, len(self.cuts) - 1)] if self.cuts else 0

    def _place_nodes(self) -> None:
        self.windows_us = numpy.zeros(2 * len(self.cuts) + 1)
        self._window_of = [0] * len(self.nodes)
        self._reached_from = [0] * len(self.nodes)  # bits: nodes of the same window
        self._window_begin = [0] + [cut + 1 for cut in self.cuts]
        ends_us = [0.0] * len(self.nodes)
        passed = 0
        for node, entry in enumerate(self.nodes):
            cost_us = entry["cost_us"] or 0.0
            if passed < len(self.cuts) and node == self.cuts[passed]:
                self._window_of[node] = 2 * passed + 1
                self.windows_us[2 * passed + 1] = cost_us
                passed += 1
                continue
            self._window_of[node] = 2 * passed
            begin = self._window_begin[passed]
            start_us = 0.0
            for other in (other for other in self._before[node] if other >= begin):
                start_us = max(start_us, ends_us[other])
                self._reached_from[node] |= self._reached_from[other] | 1 << (other - begin)
            ends_us[node] = start_us + cost_us
            self.windows_us[2 * passed] = max(self.windows_us[2 * passed], ends_us[node])

    def _comes_before(self, first: int, second: int) -> bool:
        """Of two nodes of one window, in every order."""
        begin = self._window_begin[self._window_of[first] // 2]
        return first < second and bool(self._reached_from[second] >> (first - begin) & 1)

    def _wide_nodes(self) -> Set[int]:
        """Those that touch more than there is room for."""
        page = self.page_bytes
        wide = set()
        for number, node in enumerate(self.nodes):
            pages = {(access["buffer"], at) for access in node["accesses"] if self.buffers[access["buffer"]]["private"]
                     for at in range(access["offset"] // page, -(-(access["offset"] + access["size"]) // page))}
            if len(pages) * page > self.room_bytes:
                wide.add(number)
        return wide

    def _read_buffers(self) -> None:
        accesses: Dict[int, List[Tuple[int, Dict[str, Any]]]] = defaultdict(list)
        for node, entry in enumerate(self.nodes):
            for access in entry["accesses"]:
                if access["size"] > 0 and access["may"] != "none":
                    accesses[access["buffer"]].append((node, access))
        for number, buffer in enumerate(self.buffers):
            if not buffer["private"]:
                continue
            spans = [self._span_of(node, access, buffer["size"]) for node, access in accesses[number]]
            for begin, end in zip(*self._cut(buffer["size"], spans)):
                self._add_piece(number, begin, end, self._touches(begin, end, spans))

    def _span_of(self, node: int, access: Dict[str, Any], size: int) -> Span:
        """`May` deals in whole pages: an access touches all it meets, and overwrites those that it covers."""
        begin, end = access["offset"], access["offset"] + access["size"]
        if self.kind == MUST:
            return Span(node, access, begin, end, begin, end)
        page = self.page_bytes
        inner_begin, inner_end = -(-begin // page) * page, size if end >= size else end // page * page
        return Span(node, access, begin // page * page, min(-(-end // page) * page, size), inner_begin,
                    max(inner_begin, inner_end))

    def _cut(self, size: int, spans: Iterable[Span]) -> Tuple[List[int], List[int]]:
        """Pieces that every access covers or misses. A partial last page is one of them: it takes as much room as
        any other, but less to copy."""
        marks = {0, size}
        if self.kind == MAY:
            marks.add(size // self.page_bytes * self.page_bytes)
        for span in spans:
            marks.update((span.begin, span.end, span.inner_begin, span.inner_end))
        ordered = sorted(mark for mark in marks if mark <= size)
        return ordered[:-1], ordered[1:]

    def _touches(self, begin: int, end: int, spans: Iterable[Span]) -> List[Touch]:
        touches: Dict[int, Touch] = {}
        for span in spans:
            if span.begin <= begin and end <= span.end:
                covers = span.inner_begin <= begin and end <= span.inner_end
                touch = self._touch(span.node, span.access, covers)
                touches[span.node] = merge(touches[span.node], touch) if span.node in touches else touch
        if self.kind == MAY:  # who reads the value has not lost it
            touches = {node: touch._replace(replaces=touch.writes and not touch.needs)
                       for node, touch in touches.items()}
        return [touches[node] for node in sorted(touches)]

    def _touch(self, node: int, access: Dict[str, Any], covers: bool) -> Touch:
        may_write = access["may"] in ("write", "readwrite")
        if self.kind == MAY:
            return Touch(node, not (access["must"] == "write" and covers), may_write, may_write)
        return Touch(node, access["must"] in ("read", "readwrite"), access["must"] in ("write", "readwrite"), may_write)

    def _add_piece(self, number: int, begin: int, end: int, touches: List[Touch]) -> None:
        buffer = self.buffers[number]
        link = float(end - begin)
        room = float(-(-(end - begin) // self.page_bytes) * self.page_bytes) if self.kind == MAY else link
        visits = self._visits(touches)
        if not self.may_host:
            self._hold(visits, room)
        is_live = buffer["live_in"] or buffer["live_out"]
        found = lives(visits, buffer["live_in"], is_live, self.may_host)
        if self.may_host and buffer.get("renamable") and not is_live:
            found = [part for life in found for part in self._renamed(life)]
        for life in found:
            self._hold(life.uses, room)
            group = self._groups.setdefault((life, room / link), Group(life))
            group.link += link
            group.room += room
            group.parts.append((number, begin, end))

    def _renamed(self, life: Life) -> List[Life]:
        """With the gaps after which it may go on at another address: those beside a wide node, and long ones. Their
        windows are no less than the time for which the value is idle. Uses of no value have nothing to do with each
        other then."""
        if not life.gaps:
            return [life._replace(uses=(use,)) for use in life.uses]
        least = LEAST_IDLE_SHARE * float(numpy.sum(self.windows_us))
        return [life._replace(gaps=tuple(
            gap._replace(goes_on=use.is_wide or following.is_wide
                         or float(numpy.sum(self.windows_us[gap.first:gap.last + 1])) >= least)
            for gap, use, following in zip(life.gaps, life.uses, life.uses[1:])))]

    def _hold(self, visits: Iterable[Visit], room: float) -> None:
        for visit in visits:
            if visit.is_held:
                self.held_bytes[visit.window - 1:visit.window + 1] += room

    def _visits(self, touches: List[Touch]) -> List[Visit]:
        by_window: Dict[int, List[Touch]] = defaultdict(list)
        for touch in touches:
            by_window[self._window_of[touch.node]].append(touch)
        visits = []
        for window, here in sorted(by_window.items()):
            # A need counts if its node comes before every other one that may end the value.
            needs = any(touch.needs and all(self._comes_before(touch.node, other.node) for other in here
                                            if other.replaces and other.node != touch.node) for touch in here)
            writes = any(touch.writes for touch in here)
            resets = not writes and any(touch.replaces for touch in here)
            # While a cut node runs, what it uses is on the device, or hosted at all times; `must` does not count on it.
            holds = window % 2 == 1 and self.kind == MAY
            if needs or writes or resets:
                is_wide = any(touch.node in self._wide for touch in here)
                visits.append(Visit(window, window - holds, window + holds, needs, writes, resets, is_wide))
        return visits


class Span(NamedTuple):
    """The bytes that an access touches, and those among them that it covers."""
    node: int
    access: Dict[str, Any]
    begin: int
    end: int
    inner_begin: int
    inner_end: int


def with_use_between_replays(description: Dict[str, Any]) -> Dict[str, Any]:
    """With a node more, in the end, that uses all present buffers, as the planner has it
    (passes/plan/allocate/PresentBuffers.h). That they may not be in host memory at the boundary all the same is not
    said: a bound may leave that out."""
    present = [number for number, buffer in enumerate(description["buffers"]) if buffer.get("present")]
    if not present:
        return description
    last = 1 + max((node["id"] for node in description["nodes"]), default=-1)
    accesses = [{"buffer": number, "offset": 0, "size": description["buffers"][number]["size"], "may": "readwrite",
                 "must": "none"} for number in present]
    use = {"id": last, "name": "(between replays)", "cost_us": 0.0, "accesses": accesses}
    edges = [{"from": node["id"], "to": last} for node in description["nodes"]]
    return {**description, "nodes": [*description["nodes"], use], "edges": [*description["edges"], *edges]}


def with_captured_buffers(node: Dict[str, Any], buffers: List[Dict[str, Any]]) -> Dict[str, Any]:
    """The node with the accesses that it was captured with, in whatever buffer a plan lets them go on."""
    def captured(buffer: int) -> int:
        while buffers[buffer].get("continues") is not None:
            buffer = buffers[buffer]["continues"]
        return buffer

    return {**node, "accesses": [{**access, "buffer": captured(access["buffer"])} for access in node["accesses"]]}


def merge(first: Touch, second: Touch) -> Touch:
    return Touch(first.node, first.needs or second.needs, first.writes or second.writes,
                 first.replaces or second.replaces)


def predecessors(nodes: List[Dict[str, Any]], edges: Iterable[Dict[str, Any]]) -> List[List[int]]:
    """By position. Nodes and edges that a plan added do not count."""
    position = {node["id"]: i for i, node in enumerate(nodes)}
    before: List[List[int]] = [[] for _ in nodes]
    for edge in edges:
        if edge.get("origin") != "added" and edge["from"] in position and edge["to"] in position:
            before[position[edge["to"]]].append(position[edge["from"]])
    return before


def find_cuts(before: List[List[int]]) -> List[int]:
    """Nodes that every path passes: the only sink up to themselves, the only source from themselves on."""
    count = len(before)
    first_after = [count] * count
    last_before = [max(others, default=-1) for others in before]
    for node, others in enumerate(before):
        for other in others:
            first_after[other] = min(first_after[other], node)
    later = [count] * (count + 1)  # the least predecessor over all later nodes
    for node in reversed(range(count)):
        later[node] = min(later[node + 1], last_before[node])
    cuts, earlier = [], -1  # the greatest first successor over all earlier nodes
    for node in range(count):
        if earlier <= node <= later[node + 1]:
            cuts.append(node)
        earlier = max(earlier, first_after[node])
    return cuts


def lives(visits: List[Visit], live_in: bool, live_out: bool, may_host: bool) -> List[Life]:
    """The values that a piece holds one after the other; where it may be hosted, also those that nobody needs."""
    done: List[Life] = []
    start: Optional[str] = BOUNDARY if live_in else None  # None: there is no value yet, and reading it moves nothing
    gaps: List[Gap] = []
    head: Tuple[Gap, ...] = ()
    uses: List[Visit] = []
    head_uses: List[Visit] = []
    idle: List[Visit] = []  # of no value
    after = 0
    for visit in visits:
        needs = visit.needs and start is not None
        if needs:
            gaps.append(Gap(after, visit.before, visit.writes, visit.beside))
            uses.append(visit)
        replaced = visit.resets and start is not None or visit.writes and not needs
        if replaced and start == BOUNDARY:
            head, head_uses = tuple(gaps), uses
        elif replaced and start is not None and (gaps or may_host):
            done.append(Life(start, tuple(gaps), uses=tuple(uses) if may_host else ()))
        if replaced:
            # What writes where there was no value is not taken to read.
            start, gaps, uses = WRITTEN if visit.writes else EITHER, [], [visit._replace(needs=needs)]
        elif not needs:
            idle.append(visit)
        after = visit.after
    if start is not None and visits and (gaps or head or live_out or may_host):
        done.append(Life(start, tuple(gaps), after if live_out else None, head,
                         tuple(head_uses + uses) if may_host else ()))
    if idle and may_host:
        done.append(Life(EITHER, (), uses=tuple(idle)))
    return done
