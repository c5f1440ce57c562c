#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Recomputes the figures of an exported plan, and replays it, from its JSON alone.

Written from docs/reference/report.md, docs/design/cost-model.md and docs/design/plan-correctness.md, and from nothing
else: it shares no code with what made the plan. It prints the figures; given the report of the same run too, it
compares them.

    recompute.py plan.json [report.json]

The replay follows every page's value through two serial orders, that of the node numbers and that of the predicted
starts. Both are among the legal ones; the checker covers the rest."""

from __future__ import annotations

import bisect
import heapq
import itertools
import json
import math
import sys
from collections import defaultdict
from typing import Any, Dict, Iterator, List, Sequence, Tuple

# The figures that have to agree with the report, and what they may differ by: sums are made in another order here.
FIGURES = ("in_memory_s", "predicted_s", "peak_bytes", "budget_bytes", "up_bytes", "down_bytes")
TOLERANCE = 1e-9

NO_FRAME = -1
MOST_ROWS = 16


class WrongPlan(Exception):
    """The plan breaks a rule, or does not come to the figures of its report."""


class Plan:
    """What the file says, by node number."""

    def __init__(self, plan: Dict[str, Any]):
        if plan.get("format") != "pumpgraph-plan" or plan.get("version") != 1:
            raise WrongPlan("this is no plan of version 1")
        self.page_bytes: int = plan["page_bytes"]
        self.budget_bytes: int = plan["budget_bytes"]
        self.host_bytes: int = plan["host_bytes"]
        self.machine: Dict[str, Any] = plan["machine"]
        self.buffers: List[Dict[str, Any]] = [dict(buffer, frames=list(buffer["frames"])) for buffer in plan["buffers"]]
        self._give_hosted_pages_memory()
        self._unite_pages_that_stay()
        self.nodes: List[Dict[str, Any]] = sorted(plan["nodes"] + plan["transfers"], key=lambda node: node["id"])
        if [node["id"] for node in self.nodes] != list(range(len(self.nodes))):
            raise WrongPlan("node numbers are not 0, 1, 2, ...")
        self.first_writes = self._first_writes_of_hosted_pages()
        self.edges: List[Tuple[int, int]] = [(edge["from"], edge["to"]) for edge in plan["edges"]]
        self.full_edges = [(edge["from"], edge["to"]) for edge in plan["edges"] if edge["kind"] == "full"]
        self.captured_edges = [(edge["from"], edge["to"]) for edge in plan["edges"] if edge["origin"] != "added"]
        self.captured_edges += [(edge["from"], edge["to"]) for edge in plan["implied_edges"]]
        for start, end in self.edges:
            if not 0 <= start < end < len(self.nodes):
                raise WrongPlan(f"the edge from {start} to {end} is not in the order of the nodes")

    def _give_hosted_pages_memory(self) -> None:
        """A hosted page has memory of its own: a frame below NO_FRAME, which does not count."""
        frame = NO_FRAME
        for index, buffer in enumerate(self.buffers):
            for page in (page for page, hosted in enumerate(self.marked_pages(index, "hosted")) if hosted):
                if not buffer["private"] or buffer["frames"][page] != NO_FRAME:
                    raise WrongPlan(f"hosted page {page} of buffer {index} has a frame, or is not private")
                frame -= 1
                buffer["frames"][page] = frame

    def _unite_pages_that_stay(self) -> None:
        """By buffer and page, the buffer in which the page began: one that goes on in its frame is one page at two
        addresses."""
        self.began: List[List[int]] = []
        for index, buffer in enumerate(self.buffers):
            self.began.append([index] * len(buffer["frames"]))
            before = buffer["continues"]
            if before is not None:
                for page, (frame, other) in enumerate(zip(buffer["frames"], self.buffers[before]["frames"])):
                    if frame == other > NO_FRAME:
                        self.began[index][page] = self.began[before][page]

    def began_in(self, buffer: int, page: int) -> int:
        return self.began[buffer][page] if page < len(self.began[buffer]) else buffer

    def pieces_of(self, piece: Dict[str, Any]) -> Iterator[Tuple[int, range]]:
        """Its pages by the buffers in which they began."""
        if self.buffers[piece["buffer"]]["continues"] is None:
            if piece["size"] > 0:
                yield piece["buffer"], self.pages_of(piece)
            return
        for buffer, pages in itertools.groupby(self.pages_of(piece), lambda page: self.began_in(piece["buffer"], page)):
            first, *others = pages
            yield buffer, range(first, first + 1 + len(others))

    def _first_writes_of_hosted_pages(self) -> Dict[Tuple[int, int], int]:
        """By buffer and page, of those that have no value before the step, nor at another address: the node that is the
        first to write it in the captured step."""
        first: Dict[Tuple[int, int], int] = {}
        captured = (node for node in self.nodes if node.get("captured") is not None)
        for node in sorted(captured, key=lambda node: node["captured"]):
            for access in node["accesses"]:
                buffer = self.buffers[access["buffer"]]
                if buffer["hosted"] and access["may"] in ("write", "readwrite") and not buffer["live_in"] \
                        and buffer["continues"] is None:
                    for page in self.pages_of(access):
                        first.setdefault((access["buffer"], page), node["id"])
        return first

    def link_bytes(self, node: int) -> List[float]:
        """What a kernel reads and writes of hosted pages itself, each page times the slowdown that was measured. What
        may read, and is the first to write a page without a value, does not read it unless it must."""
        reads, writes, slowdowns = set(), set(), defaultdict(float)
        for access in self.nodes[node]["accesses"]:
            if not self.buffers[access["buffer"]]["hosted"] or access["may"] == "none":
                continue
            size, hosted = self.buffers[access["buffer"]]["size"], self.marked_pages(access["buffer"], "hosted")
            for page in (page for page in self.pages_of(access) if hosted[page]):
                begin, end = page * self.page_bytes, min((page + 1) * self.page_bytes, size)
                covered = access["offset"] <= begin and end <= access["offset"] + access["size"]
                place = access["buffer"], begin, end
                slowdowns[place] = max(slowdowns[place], access.get("slowdown", 1.0))
                is_first = node == self.first_writes.get((access["buffer"], page))
                if access["must"] in ("read", "readwrite") or \
                        not is_first and (access["must"] != "write" or not covered):
                    reads.add(place)
                if access["may"] in ("write", "readwrite"):
                    writes.add(place)
        return [float(sum(math.ceil((place[2] - place[1]) * slowdowns[place]) for place in pages))
                for pages in (reads, writes)]

    def is_transfer(self, node: int) -> bool:
        return "direction" in self.nodes[node]

    def is_repetition(self, node: int) -> bool:
        return self.nodes[node].get("repeats") is not None

    def goes_up(self, node: int) -> bool:
        return self.nodes[node]["direction"] == "up"

    def cost_s(self, node: int) -> float:
        return max(0.0, self.nodes[node].get("cost_us") or 0.0) * 1e-6

    def page_count(self, buffer: int) -> int:
        return -(-self.buffers[buffer]["size"] // self.page_bytes)

    def pages_of(self, piece: Dict[str, Any]) -> range:
        end = piece["offset"] + piece["size"]
        return range(piece["offset"] // self.page_bytes, -(-end // self.page_bytes) if piece["size"] else 0)

    def events_of(self, node: int) -> List[Dict[str, Any]]:
        """The pieces of buffers that a node touches."""
        return [self.nodes[node]] if self.is_transfer(node) else self.nodes[node]["accesses"]

    def use_of(self, node: int, buffer: int, page: int) -> str:
        """What the node does with a page that it touches; `buffer` is where that began."""
        if self.is_transfer(node):
            return self.nodes[node]["direction"]
        writes = any(page in self.pages_of(access) and self.began_in(access["buffer"], page) == buffer
                     and access["may"] in ("write", "readwrite") for access in self.nodes[node]["accesses"])
        return "write" if writes else "read"

    def resident_pages(self, buffer: int) -> List[bool]:
        """Which pages are on the device at the step boundary."""
        if not self.buffers[buffer]["private"]:
            return [True] * self.page_count(buffer)
        hosted = self.marked_pages(buffer, "hosted")
        return [is_resident or is_hosted
                for is_resident, is_hosted in zip(self.marked_pages(buffer, "resident"), hosted)]

    def host_pages(self, buffer: int) -> List[bool]:
        """Which pages are in host memory at the step boundary: those that are not on the device, and mirrored ones."""
        mirrored = self.marked_pages(buffer, "mirrored")
        return [is_mirrored or not is_resident
                for is_mirrored, is_resident in zip(mirrored, self.resident_pages(buffer))]

    def marked_pages(self, buffer: int, ranges: str) -> List[bool]:
        marked = [False] * self.page_count(buffer)
        for piece in self.buffers[buffer][ranges]:
            for page in self.pages_of(piece):
                marked[page] = True
        return marked


# ---- times -----------------------------------------------------------------------------------------------------------


def in_memory_s(plan: Plan) -> float:
    """The longest path of captured nodes through captured edges."""
    start = [0.0] * len(plan.nodes)
    total = 0.0
    after = defaultdict(list)
    for before, node in plan.captured_edges:
        after[before].append(node)
    for node in range(len(plan.nodes)):
        if plan.is_transfer(node) or plan.is_repetition(node):
            continue
        end = start[node] + plan.cost_s(node)
        total = max(total, end)
        for later in after[node]:
            start[later] = max(start[later], end)
    return total


class Copier:
    """One direction of the link: its copies in the order of their numbers, one at a time."""

    def __init__(self, copies: List[int]):
        self.waiting = copies[::-1]
        self.current = -1  # which copy
        self.overhead_s = 0.0  # what is left of it
        self.bytes = 0.0

    def moves(self) -> bool:
        return self.current >= 0 and self.overhead_s <= 0

    def until_s(self, rate: float) -> float:
        if self.current < 0:
            return math.inf
        if not self.moves():
            return self.overhead_s
        if self.bytes <= 0:
            return 0.0
        return self.bytes / rate if rate > 0 else math.inf


class Simulation:
    """When each node starts and ends."""

    def __init__(self, plan: Plan):
        self.plan = plan
        self.start = [0.0] * len(plan.nodes)
        self.end = [0.0] * len(plan.nodes)
        self.blockers = [0] * len(plan.nodes)
        self.later: Dict[int, List[int]] = defaultdict(list)
        for before, after in plan.edges:
            self.blockers[after] += 1
            self.later[before].append(after)
        self.now = 0.0
        self.left = len(plan.nodes)
        self.kernels: List[Tuple[float, int]] = []  # heap of what runs, by its end
        self.flows: List[Tuple[int, List[float]]] = []  # kernels that read and write hosted pages: bytes up, down
        transfers = [node for node in range(len(plan.nodes)) if plan.is_transfer(node)]
        self.up = Copier([node for node in transfers if plan.goes_up(node)])
        self.down = Copier([node for node in transfers if not plan.goes_up(node)])

    def run(self) -> float:
        for node in [node for node in range(len(self.blockers)) if self.blockers[node] == 0]:
            self.may_start(node)
        while self.left > 0:
            self.start_copies()
            self.step()
        return self.now

    def may_start(self, node: int) -> None:
        """Copies are started by their lane, as soon as it comes to them."""
        if self.plan.is_transfer(node):
            return
        self.start[node] = self.now
        heapq.heappush(self.kernels, (self.now + self.plan.cost_s(node), node))

    def start_copies(self) -> None:
        for lane in (self.up, self.down):
            if lane.current < 0 and lane.waiting and self.blockers[lane.waiting[-1]] == 0:
                lane.current = lane.waiting.pop()
                self.start[lane.current] = self.now
                is_joined = self.plan.nodes[lane.current].get("joined")
                lane.overhead_s = 0.0 if is_joined else self.plan.machine["copy_overhead_s"]
                lane.bytes = float(self.plan.nodes[lane.current]["size"])

    def rates(self, movers: Sequence[int], share: float) -> Tuple[float, float]:
        """Of each of so many that move up and down, with so much of the link."""
        machine = self.plan.machine
        up, down = machine["up_bytes_per_second"], machine["down_bytes_per_second"]
        share *= min(1.0, machine["both_bytes_per_second"] / (up + down)) if all(movers) else 1.0
        return up * share / max(1, movers[0]), down * share / max(1, movers[1])

    def step(self) -> None:
        """Goes on to the next moment at which something ends, or at which a copy's overhead is over."""
        machine = self.plan.machine
        rates = self.rates([sum(left[way] > 0 for _, left in self.flows) for way in (0, 1)], machine["hosted_share"])
        # Such kernels leave little to copies.
        lanes = list(zip((self.up, self.down), self.rates([lane.moves() for lane in (self.up, self.down)],
                                                          machine["beside_hosted_share"] if self.flows else 1.0)))
        spans = [lane.until_s(rate) for lane, rate in lanes]
        kernel_s = self.kernels[0][0] - self.now if self.kernels else math.inf
        flow_s = min((left[way] / rates[way] for _, left in self.flows for way in (0, 1) if left[way] > 0),
                     default=math.inf)
        span = min(*spans, kernel_s, flow_s)
        if span == math.inf:
            raise WrongPlan("transfers of one direction wait for each other in a circle")
        self.now = self.kernels[0][0] if kernel_s <= span else self.now + span
        for (lane, rate), until in zip(lanes, spans):
            if lane.current < 0:
                continue
            if lane.moves():
                lane.bytes = 0.0 if until <= span else lane.bytes - span * rate
                if until <= span:
                    finished, lane.current = lane.current, -1
                    self.finish(finished)
            else:
                lane.overhead_s = 0.0 if until <= span else lane.overhead_s - span
        for _, left in self.flows:
            left[:] = [0.0 if left[way] / rates[way] <= span else left[way] - span * rates[way] for way in (0, 1)]
        done = [node for node, left in self.flows if not any(left)]
        self.flows = [flow for flow in self.flows if any(flow[1])]
        for node in done:
            self.finish(node)
        while self.kernels and self.kernels[0][0] <= self.now:
            node = heapq.heappop(self.kernels)[1]
            if any(left := self.plan.link_bytes(node)):
                self.flows.append((node, left))
            else:
                self.finish(node)

    def finish(self, node: int) -> None:
        self.end[node] = self.now
        self.left -= 1
        for later in self.later[node]:
            self.blockers[later] -= 1
            if self.blockers[later] == 0:
                self.may_start(later)


# ---- memory ----------------------------------------------------------------------------------------------------------


def runs_of_pages(plan: Plan) -> Iterator[Tuple[int, range, List[int]]]:
    """Buffer, pages, and the nodes that touch all of these pages; no node touches some of them only. Pages that stay
    where they are in the buffer where they began."""
    visits: Dict[int, List[Tuple[range, int]]] = defaultdict(list)
    for node in range(len(plan.nodes)):
        for event in plan.events_of(node):
            for buffer, pages in plan.pieces_of(event):
                visits[buffer].append((pages, node))
    for buffer in range(len(plan.buffers)):
        edges = {0, plan.page_count(buffer)}
        for pages, _ in visits[buffer]:
            edges.update((pages.start, pages.stop))
        resident = plan.resident_pages(buffer)
        edges.update(page for page in range(1, len(resident)) if resident[page] != resident[page - 1])
        cuts = sorted(edges)
        position = {cut: i for i, cut in enumerate(cuts)}
        nodes: List[List[int]] = [[] for _ in cuts]
        for pages, node in visits[buffer]:
            for i in range(position[pages.start], position[pages.stop]):
                nodes[i].append(node)
        for i in range(len(cuts) - 1):
            yield buffer, range(cuts[i], cuts[i + 1]), nodes[i]


def stays_of(plan: Plan, times: Simulation, buffer: int, is_resident: bool,
             nodes: List[int]) -> Iterator[Tuple[float, float]]:
    """From when to when a page is on the device; for ever where it stays across the step boundary."""
    begin, end = (0.0, 0.0) if is_resident and plan.buffers[buffer]["live_in"] else (math.inf, 0.0)
    for node in nodes:
        if begin < math.inf and plan.is_transfer(node) and plan.goes_up(node):
            yield begin, end
            begin, end = math.inf, 0.0
        begin, end = min(begin, times.start[node]), max(end, times.end[node])
    if is_resident:
        yield (begin if begin < math.inf else 0.0), math.inf
    elif begin < math.inf:
        yield begin, end


def peak_bytes(plan: Plan, times: Simulation) -> int:
    """Most frames in use at once. What leaves at a moment makes room for what comes at that moment."""
    always = 0
    stays: Dict[int, List[Tuple[float, float]]] = defaultdict(list)
    resident = [plan.resident_pages(buffer) for buffer in range(len(plan.buffers))]
    for buffer, pages, nodes in runs_of_pages(plan):
        if not plan.buffers[buffer]["private"]:
            always += len(pages)
            continue
        frames = plan.buffers[buffer]["frames"][pages.start:pages.stop]
        for stay in stays_of(plan, times, buffer, resident[buffer][pages.start], nodes):
            for frame in frames:
                if frame > NO_FRAME:
                    stays[frame].append(stay)
    changes: Dict[float, List[int]] = defaultdict(lambda: [0, 0])  # frames that come and that go at a moment
    for frame_stays in stays.values():
        frame_stays.sort()
        begin, end = frame_stays[0]
        for next_begin, next_end in frame_stays[1:]:
            if next_begin > end:
                changes[begin][0] += 1
                changes[end][1] += 1
                begin = next_begin
            end = max(end, next_end)
        changes[begin][0] += 1
        changes[end][1] += 1
    used = most = 0
    for moment in sorted(changes):
        come, go = changes[moment]
        if moment < math.inf:
            used += come - go
            most = max(most, used)
    return (always + most) * plan.page_bytes


# Of one frame: start, end, node, what that does (read, write, up or down), and with which page of which buffer.
Event = Tuple[float, float, int, str, Tuple[int, int]]

# What may happen to one page at once: accesses, and a copy to the host beside those that only read.
MAY_OVERLAP = ({"read", "write"}, {"read"}, {"write"}, {"read", "down"})


def check_frames(plan: Plan, times: Simulation) -> None:
    """As many frames as there is memory; what is always on the device shares with nobody; no frame does two things at
    once, but for MAY_OVERLAP."""
    owner: Dict[int, int] = {}
    used = set()
    for index, buffer in enumerate(plan.buffers):
        frames = [frame for frame in buffer["frames"] if frame > NO_FRAME]
        used.update(frames)
        if not buffer["private"]:
            if len(frames) != plan.page_count(index):
                raise WrongPlan(f"exclusive buffer {index} has no frame for every page")
            owner.update((frame, index) for frame in frames)
    if len(used) * plan.page_bytes > plan.budget_bytes:
        raise WrongPlan(f"{len(used)} frames exceed the budget of {plan.budget_bytes} bytes")
    tenants = [frame for buffer in plan.buffers for frame in buffer["frames"] if frame in owner]
    if len(tenants) != len(owner):
        raise WrongPlan("the frame of an exclusive page has another tenant")

    events: Dict[int, List[Event]] = defaultdict(list)
    for buffer, pages, nodes in runs_of_pages(plan):
        frames = plan.buffers[buffer]["frames"]
        visits = [(times.start[node], times.end[node], node, plan.use_of(node, buffer, pages.start)) for node in nodes]
        for page in pages if nodes else ():
            if not 0 <= page < len(frames) or frames[page] == NO_FRAME:
                raise WrongPlan(f"node {nodes[0]} touches page {page} of buffer {buffer}, which has no frame")
            events[frames[page]].extend((*visit, (buffer, page)) for visit in visits)
    for frame, frame_events in events.items():
        check_turns(frame, sorted(frame_events), TOLERANCE * max(times.now, 1e-3))


def completed_before(plan: Plan) -> List[int]:
    """Of each node those that complete before it, as bits."""
    completed = [0] * len(plan.nodes)
    for before, after in sorted(plan.full_edges, key=lambda edge: edge[1]):
        completed[after] |= completed[before] | 1 << before
    return completed


def check_addresses(plan: Plan) -> None:
    """What is written at one address is seen at another when the writer has completed: of a page that stays where it
    is, an access completes before one at a later address if either may write."""
    staying = {buffer for index, began in enumerate(plan.began) for buffer in began if buffer != index}
    staying.update(index for index, began in enumerate(plan.began) if any(buffer != index for buffer in began))
    # Of a page: address, node, does it write.
    uses: Dict[Tuple[int, int], List[Tuple[int, int, bool]]] = defaultdict(list)
    for node in range(len(plan.nodes)):
        for access in [] if plan.is_transfer(node) else plan.nodes[node]["accesses"]:
            for page in plan.pages_of(access) if access["buffer"] in staying else ():
                uses[plan.began_in(access["buffer"], page), page].append(
                    (access["buffer"], node, access["may"] in ("write", "readwrite")))
    uses = {page: visits for page, visits in uses.items() if len({address for address, _, _ in visits}) > 1}
    if not uses:
        return
    completed = completed_before(plan)
    for (buffer, page), visits in uses.items():
        for address in {address for address, _, _ in visits}:
            earlier = [(node, writes) for other, node, writes in visits if other < address]
            everybody = sum(1 << node for node in {node for node, _ in earlier})
            writers = sum(1 << node for node in {node for node, writes in earlier if writes})
            for other, node, writes in visits:
                if other == address and (everybody if writes else writers) & ~completed[node]:
                    raise WrongPlan(f"node {node} uses page {page} of buffer {address}, which goes on there in "
                                    f"its frame, before all others have completed that use it in buffer {buffer} or "
                                    "after that")


def check_turns(frame: int, events: Sequence[Event], tolerance: float) -> None:
    """`events`: in the order of their starts."""
    running: List[Event] = []
    for event in events:
        start, end, node, use, page = event
        running = [other for other in running if start < other[1] - tolerance]
        for _, _, other_node, other_use, other_page in running:
            # What takes no time fits between two others.
            if node != other_node and end > start and not (page == other_page and {use, other_use} in MAY_OVERLAP):
                raise WrongPlan(f"nodes {other_node} and {node} use frame {frame} at the same time")
        running.append(event)


# ---- values ----------------------------------------------------------------------------------------------------------


class Values:
    """Which write of which page every frame and every place in host memory holds, as the nodes run one by one."""

    NOTHING = -1  # the version of a page that was never written

    def __init__(self, plan: Plan):
        self.plan = plan
        self.first_page = [0]
        for buffer in range(len(plan.buffers)):
            self.first_page.append(self.first_page[-1] + plan.page_count(buffer))
        self.original = list(range(self.first_page[-1]))  # of each page, the one whose value it has
        for index, buffer in enumerate(plan.buffers):
            if buffer["continues"] is not None:
                shift = self.first_page[index] - self.first_page[buffer["continues"]]
                for page in range(self.first_page[index], self.first_page[index + 1]):
                    self.original[page] = self.original[page - shift]
        # Of each page, the one that it is at its first address.
        self.staying = [self.first_page[plan.began_in(index, page)] + page for index in range(len(plan.buffers))
                        for page in range(plan.page_count(index))]
        self.frame: List[int] = []
        for index, buffer in enumerate(plan.buffers):
            if len(buffer["frames"]) != plan.page_count(index):
                raise WrongPlan(f"buffer {index} does not name one frame for every page")
            self.frame.extend(buffer["frames"])
        # Of pages that go on at another address, those that are hosted: there nodes find the host copy.
        in_chain = {other for index, buffer in enumerate(plan.buffers) if buffer["continues"] is not None
                    for other in (index, buffer["continues"])}
        self.is_host_copy = [is_hosted and index in in_chain for index in range(len(plan.buffers))
                             for is_hosted in plan.marked_pages(index, "hosted")]
        count = self.first_page[-1]
        self.version = [self.NOTHING] * count
        self.on_host = [self.NOTHING] * count
        self.in_frame: Dict[int, Tuple[int, int]] = {}  # page and version
        self.writes = 0

    def run(self, order: Sequence[int]) -> None:
        self.begin()
        for node in order:
            if self.plan.is_transfer(node):
                self.transfer(node)
            else:
                self.kernel(node)
        self.finish()

    def is_current(self, page: int) -> bool:
        if self.is_host_copy[page]:
            return self.on_host[self.original[page]] == self.version[self.original[page]]
        return self.in_frame.get(self.frame[page]) == (self.staying[page], self.version[self.original[page]])

    def begin(self) -> None:
        for page, is_resident, is_hosted in self.boundary("live_in"):
            self.version[page] = 0
            if is_resident:
                self.in_frame[self.frame[page]] = (page, 0)
            if is_hosted:
                self.on_host[page] = 0

    def finish(self) -> None:
        for buffer, facts in enumerate(self.plan.buffers):
            is_there = all(self.plan.marked_pages(buffer, "resident")) and \
                not any(self.plan.marked_pages(buffer, "mirrored"))
            if facts.get("present") and not is_there:
                raise WrongPlan(f"buffer {buffer} is not on the device, or not there alone, at the end of the step")
        for page, is_resident, is_hosted in self.boundary("live_out"):
            if self.version[page] == self.NOTHING:
                continue
            if is_resident and not self.is_current(page):
                raise WrongPlan(f"{self.name(page)} is not on the device at the end of the step")
            if is_hosted and self.on_host[page] != self.version[page]:
                raise WrongPlan(f"{self.name(page)} is not in host memory at the end of the step")

    def boundary(self, flag: str) -> Iterator[Tuple[int, bool, bool]]:
        """Every page of the buffers with the flag, whether it is on the device, and whether in host memory."""
        for buffer, facts in enumerate(self.plan.buffers):
            if facts[flag]:
                pages = range(self.first_page[buffer], self.first_page[buffer + 1])
                yield from zip(pages, self.plan.resident_pages(buffer), self.plan.host_pages(buffer))

    def name(self, page: int) -> str:
        buffer = bisect.bisect_right(self.first_page, page) - 1
        return f"page {page - self.first_page[buffer]} of buffer {buffer}"

    def transfer(self, node: int) -> None:
        copy = self.plan.nodes[node]
        base = self.first_page[copy["buffer"]]
        is_up = copy["direction"] == "up"
        for page in range(base + self.plan.pages_of(copy).start, base + self.plan.pages_of(copy).stop):
            original = self.original[page]
            if self.version[original] == self.NOTHING:
                continue
            if is_up:
                if self.on_host[original] != self.version[original]:
                    raise WrongPlan(f"node {node} brings stale bytes of buffer {copy['buffer']} to the device")
                self.in_frame[self.frame[page]] = (self.staying[page], self.version[original])
            else:
                if not self.is_current(page):
                    raise WrongPlan(f"node {node} saves stale bytes of buffer {copy['buffer']}")
                self.on_host[original] = self.version[original]

    def kernel(self, node: int) -> None:
        accesses = self.plan.nodes[node]["accesses"]
        for access in accesses:
            if access["may"] != "none":
                self.check_access(node, access)
        for access in accesses:
            if access["may"] in ("write", "readwrite"):
                self.writes += 1
                base = self.first_page[access["buffer"]]
                pages = self.plan.pages_of(access)
                for page in range(base + pages.start, base + pages.stop):
                    self.version[self.original[page]] = self.writes
                    if self.is_host_copy[page]:
                        self.on_host[self.original[page]] = self.writes
                    else:
                        self.in_frame[self.frame[page]] = (self.staying[page], self.writes)

    def check_access(self, node: int, access: Dict[str, Any]) -> None:
        """What is read, or only partly overwritten, has to be there."""
        pages = self.plan.pages_of(access)
        base = self.first_page[access["buffer"]]
        covered = range(0)
        if access["must"] == "write":
            size, page_bytes = self.plan.buffers[access["buffer"]]["size"], self.plan.page_bytes
            end = access["offset"] + access["size"]
            covered = range(-(-access["offset"] // page_bytes), pages.stop if end >= size else end // page_bytes)
        for page in pages:
            has_value = self.version[self.original[base + page]] != self.NOTHING
            if page in covered or not has_value or self.is_current(base + page):
                continue
            raise WrongPlan(f"node {node} \"{self.plan.nodes[node]['name']}\" finds stale bytes in buffer "
                            f"{access['buffer']} \"{self.plan.buffers[access['buffer']]['name']}\"")


class Repetitions:
    """Rule 11: whether each node finds what it finds in the captured step. Of every run of bytes that no access
    divides, and that is a pair of a buffer and a number, the node that wrote it last."""

    BEFORE = "before the step"
    REPEATABLE = ("kernel", "memcpy", "memset")

    def __init__(self, plan: Plan):
        self.plan = plan
        self.works = [node for node in range(len(plan.nodes)) if not plan.is_transfer(node)]
        cuts: Dict[int, set] = defaultdict(set)
        for node in self.works:
            for access in plan.nodes[node]["accesses"]:
                ends = (access["offset"], access["offset"] + access["size"])
                cuts[original_buffer(plan, access["buffer"])].update(ends)
        self.cuts = {buffer: sorted(places) for buffer, places in cuts.items()}
        self.captured = {plan.nodes[node]["captured"]: node for node in self.works if not plan.is_repetition(node)}

    def runs_of(self, access: Dict[str, Any]) -> Iterator[Tuple[int, int]]:
        buffer = original_buffer(self.plan, access["buffer"])
        cuts = self.cuts[buffer]
        end = access["offset"] + access["size"]
        for run in range(bisect.bisect_left(cuts, access["offset"]), bisect.bisect_left(cuts, end)):
            yield buffer, run

    def touched(self, node: int, again: bool = False) -> Iterator[Tuple[Tuple[int, int], bool, bool]]:
        """Each run, whether the node needs it as it was, and whether it may write it. `again`: of a repetition of the
        node, which has no access that is aside."""
        for access in self.plan.nodes[node]["accesses"]:
            if again and access.get("aside"):
                continue
            for run in self.runs_of(access):
                yield run, access["must"] != "write", access["may"] in ("write", "readwrite")

    def original_of(self, node: int) -> int:
        """The node that a repetition runs again, or the node itself."""
        return self.captured[self.plan.nodes[node]["repeats"]] if self.plan.is_repetition(node) else node

    def run(self) -> None:
        repetitions = [node for node in self.works if self.plan.is_repetition(node)]
        if not repetitions:
            return
        for node in repetitions:
            self.check_form(node)
        self.check_order(repetitions)
        self.check_values()

    def check_form(self, node: int) -> None:
        again = self.plan.nodes[node]
        original = self.plan.nodes[self.captured[again["repeats"]]] if again["repeats"] in self.captured else None
        if original is None or original["id"] > node or again["captured"] is not None:
            raise WrongPlan(f"node {node} repeats no captured node before it")
        if not original["pure"] or original["kind"] not in self.REPEATABLE:
            raise WrongPlan(f"node {node} repeats node {original['id']}, which is not pure")
        deeds = [sorted((original_buffer(self.plan, access["buffer"]), access["offset"], access["size"], access["may"],
                         access["must"])
                        for access in which["accesses"] if which is again or not access.get("aside"))
                 for which in (again, original)]
        if deeds[0] != deeds[1] or again["name"] != original["name"]:
            raise WrongPlan(f"node {node} is not what it repeats, node {original['id']}")
        if any(access.get("aside") for access in again["accesses"]):
            raise WrongPlan(f"node {node}, a repetition, has an access that is aside")
        aside = {run for access in original["accesses"] if access.get("aside") for run in self.runs_of(access)}
        if any(run in aside for run, _, _ in self.touched(original["id"], True)):
            raise WrongPlan(f"node {original['id']} has bytes that only some of its accesses have aside")
        for (buffer, _), _, writes in self.touched(node):
            facts = self.plan.buffers[buffer]
            if writes and (not facts["private"] or facts["live_in"] or facts["live_out"]):
                raise WrongPlan(f"node {node}, a repetition, writes buffer {buffer}, which lasts")

    def check_order(self, repetitions: List[int]) -> None:
        """What a repetition shares with others, and one of them writes, is ordered by completion."""
        full, completed = set(self.plan.full_edges), completed_before(self.plan)
        for edge in self.plan.edges:
            if edge not in full and any(self.plan.is_repetition(end) for end in edge):
                raise WrongPlan(f"a repetition has a programmatic edge, from node {edge[0]} to node {edge[1]}")
        uses: Dict[Tuple[int, int], List[Tuple[int, bool]]] = defaultdict(list)
        for node in self.works:
            for run, _, writes in self.touched(node):
                uses[run].append((node, writes))
        for node in repetitions:
            for run, _, writes in self.touched(node):
                for other, other_writes in uses[run]:
                    first, second = sorted((node, other))
                    if first != second and (writes or other_writes) and not completed[second] >> first & 1:
                        raise WrongPlan(f"nodes {first} and {second} share bytes of buffer {run[0]}, and nothing "
                                        "orders them")

    def check_values(self) -> None:
        meant: Dict[Tuple[int, int], Any] = {(buffer, run): self.BEFORE for buffer, cuts in self.cuts.items()
                                             for run in range(len(cuts)) if self.plan.buffers[buffer]["live_in"]}
        found = dict(meant)
        needs: Dict[int, Dict[Tuple[int, int], Any]] = {}
        for node in self.works:
            original = self.original_of(node)
            if original == node:
                finds, needs[node] = ({run: meant[run] for run, needed, _ in self.touched(node, again)
                                       if needed and run in meant} for again in (False, True))
            else:
                finds = needs[original]
            for run, version in finds.items():
                if found.get(run) != version:
                    raise WrongPlan(f"node {node} finds in buffer {run[0]} what node {found.get(run)} left, but needs "
                                    f"that of {version}")
            for run, _, writes in self.touched(node):
                if writes:
                    found[run] = original
                    if original == node:
                        meant[run] = node
        for run, version in meant.items():
            if self.plan.buffers[run[0]]["live_out"] and found[run] != version:
                raise WrongPlan(f"at the end buffer {run[0]} has what node {found[run]} left, but needs that of "
                                f"{version}")


def original_buffer(plan: Plan, buffer: int) -> int:
    """The captured buffer whose value goes on in this one."""
    while plan.buffers[buffer]["continues"] is not None:
        buffer = plan.buffers[buffer]["continues"]
    return buffer


def check_host_places(plan: Plan) -> None:
    """One place a page, at whatever address, all inside the pool, none overlapping. What is hosted at another address
    has none."""
    hosted = {(original_buffer(plan, buffer), page) for buffer in range(len(plan.buffers))
              for page, is_hosted in enumerate(plan.marked_pages(buffer, "hosted")) if is_hosted}
    place: Dict[Tuple[int, int], int] = {}
    size: Dict[Tuple[int, int], int] = {}
    for node in plan.nodes:
        if "direction" not in node:
            continue
        if not plan.buffers[node["buffer"]]["private"]:
            raise WrongPlan(f"node {node['id']} moves buffer {node['buffer']}, which is always on the device")
        end = node["offset"] + node["size"]
        if any(plan.marked_pages(node["buffer"], "hosted")[page] for page in plan.pages_of(node)):
            raise WrongPlan(f"node {node['id']} moves hosted pages of buffer {node['buffer']}")
        if node["offset"] % plan.page_bytes or (end % plan.page_bytes and end != plan.buffers[node["buffer"]]["size"]):
            raise WrongPlan(f"node {node['id']} moves parts of pages")
        elsewhere = {(original_buffer(plan, node["buffer"]), page) in hosted for page in plan.pages_of(node)}
        if True in elsewhere:
            if False in elsewhere or node["host_offset"] != 0:
                raise WrongPlan(f"node {node['id']} moves pages that are hosted at another address, and others or to a "
                                "place")
            continue
        for page in plan.pages_of(node):
            at = node["host_offset"] + page * plan.page_bytes - node["offset"]
            key = (original_buffer(plan, node["buffer"]), page)
            if place.setdefault(key, at) != at:
                raise WrongPlan(f"page {page} of buffer {node['buffer']} has two places in host memory")
            size[key] = min(plan.page_bytes, plan.buffers[node["buffer"]]["size"] - page * plan.page_bytes)
    free = 0
    for at, key in sorted((at, key) for key, at in place.items()):
        if at < free:
            raise WrongPlan(f"page {key[1]} of buffer {key[0]} shares its place in host memory")
        free = at + size[key]
    if free > plan.host_bytes:
        raise WrongPlan(f"{free} bytes of host memory are used; the plan has {plan.host_bytes}")


def rows_of(plan: Plan) -> Iterator[List[int]]:
    """The transfers that are the rows of one copy, in their order."""
    rows: Dict[str, List[int]] = {"up": [], "down": []}
    for node in range(len(plan.nodes)):
        if plan.is_transfer(node):
            lane = plan.nodes[node]["direction"]
            if plan.nodes[node].get("joined"):
                if not rows[lane]:
                    raise WrongPlan(f"node {node} is joined to nothing")
                rows[lane].append(node)
                continue
            if len(rows[lane]) > 1:
                yield rows[lane]
            rows[lane] = [node]
    yield from (group for group in rows.values() if len(group) > 1)


def check_rows(plan: Plan) -> None:
    """Rows are one copy: of one size, at one distance in host memory, in frames of their own, and one unit to all
    others."""
    hosted = {(original_buffer(plan, buffer), page) for buffer in range(len(plan.buffers))
              for page, is_hosted in enumerate(plan.marked_pages(buffer, "hosted")) if is_hosted}
    before, after = defaultdict(list), defaultdict(list)
    for start, end in plan.edges:
        before[end].append(start)
        after[start].append(end)
    full = set(plan.full_edges)
    for rows in rows_of(plan):
        first, pieces = rows[0], [plan.nodes[row] for row in rows]
        if len(rows) > MOST_ROWS:
            raise WrongPlan(f"node {first} is the first of {len(rows)} rows; a copy has {MOST_ROWS}")
        if len({piece["size"] for piece in pieces}) > 1:
            raise WrongPlan(f"the rows that begin with node {first} are not of one size")
        pages = [(piece["buffer"], page) for piece in pieces for page in plan.pages_of(piece)]
        frames = [plan.buffers[buffer]["frames"][page] for buffer, page in pages]
        if len(set(frames)) < len(frames) or min(frames) <= NO_FRAME:
            raise WrongPlan(f"the rows that begin with node {first} have not a frame each")
        if any((original_buffer(plan, buffer), page) in hosted for buffer, page in pages):
            raise WrongPlan(f"the rows that begin with node {first} move what is hosted at another address")
        places = sorted(piece["host_offset"] for piece in pieces)
        distances = {later - earlier for earlier, later in zip(places, places[1:])}
        if len(distances) > 1 or not pieces[0]["size"] <= min(distances) < 2 << 30:
            raise WrongPlan(f"the rows that begin with node {first} are {sorted(distances)} bytes from each other in "
                            "host memory")
        for row, later in zip(rows, rows[1:]):
            if before[later] != [row] or after[row] != [later] or (row, later) not in full:
                raise WrongPlan(f"node {later}, a row, waits for others than node {row}, or others wait for that")


# ---- all together ----------------------------------------------------------------------------------------------------


def recompute(document: Dict[str, Any]) -> Dict[str, Any]:
    """The figures, or WrongPlan."""
    plan = Plan(document)
    times = Simulation(plan)
    predicted_s = times.run()
    check_frames(plan, times)
    check_addresses(plan)
    check_host_places(plan)
    check_rows(plan)
    Repetitions(plan).run()
    Values(plan).run(range(len(plan.nodes)))
    Values(plan).run(sorted(range(len(plan.nodes)), key=lambda node: (times.start[node], times.end[node], node)))
    moved = {True: 0, False: 0}
    for node in range(len(plan.nodes)):
        if plan.is_transfer(node):
            moved[plan.goes_up(node)] += plan.nodes[node]["size"]
    figures = {"in_memory_s": in_memory_s(plan), "predicted_s": predicted_s, "peak_bytes": peak_bytes(plan, times),
               "budget_bytes": plan.budget_bytes, "up_bytes": moved[True], "down_bytes": moved[False]}
    if figures["peak_bytes"] > plan.budget_bytes:
        raise WrongPlan(f"{figures['peak_bytes']} bytes are in use at once; the budget is {plan.budget_bytes}")
    return figures


def compare(figures: Dict[str, Any], report: Dict[str, Any]) -> None:
    for name in FIGURES:
        if not math.isclose(figures[name], report[name], rel_tol=TOLERANCE):
            raise WrongPlan(f"{name} is {figures[name]}; the report says {report[name]}")


def load(path: str) -> Dict[str, Any]:
    with open(path, encoding="utf-8") as file:
        return json.load(file)


def main(arguments: Sequence[str]) -> int:
    if len(arguments) not in (1, 2):
        print(__doc__, file=sys.stderr)
        return 2
    try:
        figures = recompute(load(arguments[0]))
        if len(arguments) == 2:
            compare(figures, load(arguments[1]))
    except WrongPlan as wrong:
        print(f"wrong: {wrong}", file=sys.stderr)
        return 1
    print(json.dumps(figures, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
