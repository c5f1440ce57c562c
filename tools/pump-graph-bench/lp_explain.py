# SPDX-License-Identifier: Apache-2.0
"""Why the linear bound is where it is: what its prices say is scarce, what its programme would do, and what the plan
does instead."""

from __future__ import annotations

from collections import defaultdict
from typing import Any, Dict, Iterator, List, Mapping, Tuple

import numpy

from lp_bound import Result

MIB = 1 << 20
SLICES = 20
MOST_LINES = 12


def explain(result: Result, plan: Mapping[str, Any]) -> str:
    lines = [*scarce_links(result), *scarce_room(result), *course(result), *boundary(result, plan),
             *hosted(result, plan), *partial_pages(result, plan), *transfers(result, plan)]
    return "\n".join(lines) + "\n"


def scarce_links(result: Result) -> Iterator[str]:
    """Runs of windows in which a microsecond of the link is worth the same, in microseconds of step. Windows that take
    no time are left out."""
    step = result.proposal.step
    for name in ("up", "down"):
        worth = numpy.round(getattr(result.prices, name), 2)
        edges = [0, *(numpy.flatnonzero(numpy.diff(worth)) + 1), len(worth)]
        runs = [f"{worth[begin]:.2f} at nodes {step.node_at(begin)}-{step.node_at(end - 1)}"
                for begin, end in zip(edges, edges[1:])
                if worth[begin] > 0 and step.windows_us[begin:end].sum() > 0]
        more = f"; and {len(runs) - MOST_LINES} more" if len(runs) > MOST_LINES else ""
        yield f"link {name} is worth: {'; '.join(runs[:MOST_LINES]) or 'nothing'}{more}"


def scarce_room(result: Result) -> Iterator[str]:
    step, room = result.proposal.step, result.prices.room
    yield "room has a price, in microseconds a MiB:"
    for window in sorted(numpy.argsort(-room)[:MOST_LINES]):
        if room[window] * MIB >= 0.01:
            moment = "end" if window % 2 else "start"
            alive = result.proposal.alive_bytes[window]
            yield (f"  {room[window] * MIB:.2f} at the {moment} of node {step.node_at(window)}, which uses "
                   f"{step.held_bytes[window] / MIB:.0f} MiB; {alive / MIB:.0f} MiB alive")


def course(result: Result) -> Iterator[str]:
    """The step as the programme would run it, in slices of time."""
    proposal = result.proposal
    spans = proposal.spans_us()
    ends = numpy.cumsum(spans)
    begins = numpy.concatenate(([0], proposal.slot_ends[:-1] + 1))
    slices = numpy.minimum((ends / ends[-1] * SLICES).astype(int), SLICES - 1) if ends[-1] > 0 else spans.astype(int)
    rows = (proposal.device_bytes(), proposal.up_bytes(), proposal.down_bytes(), spans - proposal.in_memory_us())
    device, up, down, waits = rows
    yield "the programme's course, by time: until, nodes, most on the device (MiB), up and down (GB/s), waits (us)"
    for part in range(SLICES):
        here = numpy.flatnonzero(slices == part)
        if len(here):
            us = max(spans[here].sum(), 1e-9)
            yield (f"  {ends[here[-1]] / 1e3:10.2f} ms {proposal.step.node_at(begins[here[0]]):6} -"
                   f"{proposal.step.node_at(proposal.slot_ends[here[-1]]):6} {device[here].max() / MIB:10.0f}"
                   f"{up[here].sum() / us / 1e3:8.1f}{down[here].sum() / us / 1e3:8.1f}{waits[here].sum():10.0f}")


def boundary(result: Result, plan: Mapping[str, Any]) -> Iterator[str]:
    ours = bytes_by_buffer(result, ("away",))
    theirs = {number: buffer["size"] - sum(part["size"] for part in buffer["resident"])
              for number, buffer in enumerate(plan["buffers"]) if buffer["private"] and buffer["live_in"]}
    yield (f"in host memory between replays: programme {sum(ours.values()) / MIB:.0f} MiB, plan "
           f"{sum(theirs.values()) / MIB:.0f} MiB")
    yield from differences(plan, ours, theirs)


def hosted(result: Result, plan: Mapping[str, Any]) -> Iterator[str]:
    if not result.proposal.step.may_host:
        return
    ours = hosted_by_buffer(result)
    theirs = {number: float(sum(part["size"] for part in buffer["hosted"]))
              for number, buffer in enumerate(plan["buffers"]) if buffer["hosted"]}
    yield (f"in host memory at all times: programme {sum(ours.values()) / MIB:.0f} MiB, plan "
           f"{sum(theirs.values()) / MIB:.0f} MiB")
    yield from differences(plan, ours, theirs)


def partial_pages(result: Result, plan: Mapping[str, Any]) -> Iterator[str]:
    """Last pages of buffers that are not full: they take a frame each, but less to copy."""
    ours = sum(result.proposal.amount(move) for move in result.proposal.moves
               if move.what in ("trip", "leave", "copy") and move.group.ratio > 1)
    page = plan["page_bytes"]
    theirs = sum((transfer["offset"] + transfer["size"]) % page for transfer in plan["transfers"]
                 if transfer["direction"] == "down")
    yield f"partial last pages that go down: programme {ours / MIB:.0f} MiB, plan {theirs / MIB:.0f} MiB"


def transfers(result: Result, plan: Mapping[str, Any]) -> Iterator[str]:
    for direction, whats in (("down", ("trip", "leave", "copy")), ("up", ("trip", "drop", "away"))):
        ours = bytes_by_buffer(result, whats)
        theirs: Dict[int, float] = defaultdict(float)
        for transfer in plan["transfers"]:
            if transfer["direction"] == direction:
                theirs[transfer["buffer"]] += transfer["size"]
        yield (f"bytes {direction}: programme {sum(ours.values()) / MIB:.0f} MiB, plan "
               f"{sum(theirs.values()) / MIB:.0f} MiB; where they differ most:")
        yield from differences(plan, ours, theirs)


def bytes_by_buffer(result: Result, whats: Tuple[str, ...]) -> Dict[int, float]:
    """Bytes of one history are alike to the programme: each buffer gets its share."""
    amounts: Dict[int, float] = defaultdict(float)
    for move in (move for move in result.proposal.moves if move.what in whats):
        share = result.proposal.amount(move) / move.group.link
        for buffer, begin, end in move.group.parts:
            amounts[buffer] += share * (end - begin)
    return amounts


def hosted_by_buffer(result: Result) -> Dict[int, float]:
    """A page that holds several values one after the other may be hosted for some of them here: the most counts."""
    most: Dict[Tuple[int, int, int], float] = defaultdict(float)
    for move in (move for move in result.proposal.moves if move.what == "hosted"):
        share = result.proposal.amount(move) / move.group.link
        for part in move.group.parts:
            most[part] = max(most[part], share * (part[2] - part[1]))
    amounts: Dict[int, float] = defaultdict(float)
    for (buffer, _, _), amount in most.items():
        amounts[buffer] += amount
    return amounts


def differences(plan: Mapping[str, Any], ours: Mapping[int, float], theirs: Mapping[int, float]) -> List[str]:
    buffers = sorted(set(ours) | set(theirs), key=lambda b: -abs(ours.get(b, 0.0) - theirs.get(b, 0.0)))
    return [f"  {plan['buffers'][b]['name']}, {plan['buffers'][b]['size'] / MIB:.2f} MiB: programme "
            f"{ours.get(b, 0.0) / MIB:.2f}, plan {theirs.get(b, 0.0) / MIB:.2f}"
            for b in buffers[:MOST_LINES] if abs(ours.get(b, 0.0) - theirs.get(b, 0.0)) > MIB / 10]
