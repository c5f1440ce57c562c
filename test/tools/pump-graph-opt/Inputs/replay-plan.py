#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Replays an exported plan on paper, in the order of its numbers, from the JSON alone.

Every frame and every host place remembers whose page and which write it holds. A read has to find the last write of its
page in the page's frame; the number of frames has to respect the budget; the step has to end as it began. This is one
legal order of many: check-residency covers them all. It shows that the file says enough.

    replay-plan.py plan.json [drop=ID]      drop=ID leaves one transfer out, to see that it is missed
"""

import json
import sys


class Replay:
    def __init__(self, plan, dropped):
        self.page_bytes = plan["page_bytes"]
        self.buffers = plan["buffers"]
        self.frames = {}  # frame -> (buffer, page, write)
        self.host = {}  # place in the pinned pool -> (buffer, page, write)
        self.place = {}  # (buffer, page) -> place
        self.last_write = {}  # (buffer, page) -> number of the write
        self.steps = sorted(plan["nodes"] + plan["transfers"], key=lambda step: step["id"])
        self.dropped = dropped
        for transfer in plan["transfers"]:
            for page in self.pages(transfer):
                offset = page * self.page_bytes - transfer["offset"]
                self.place[transfer["buffer"], page] = transfer["host_offset"] + offset

    def pages(self, piece):
        first = piece["offset"] // self.page_bytes
        return range(first, (piece["offset"] + piece["size"] + self.page_bytes - 1) // self.page_bytes)

    def frame(self, buffer, page):
        frame = self.buffers[buffer]["frames"][page]
        if frame < 0:
            sys.exit(f"page {page} of buffer {buffer} is used and has no frame")
        return frame

    def is_resident(self, buffer, page):
        if not self.buffers[buffer]["private"]:
            return True
        at = page * self.page_bytes
        return any(r["offset"] <= at < r["offset"] + r["size"] for r in self.buffers[buffer]["resident"])

    def boundary(self, visit):
        for index, buffer in enumerate(self.buffers):
            if not buffer["live_in"]:
                continue
            for page in self.pages({"offset": 0, "size": buffer["size"]}):
                value = (index, page, self.last_write.get((index, page), 0))
                if self.is_resident(index, page):
                    visit(self.frames, self.frame(index, page), value)
                else:
                    visit(self.host, self.place.get((index, page), (index, page)), value)

    def run(self):
        self.boundary(lambda where, key, value: where.__setitem__(key, value))
        for step in self.steps:
            if step["id"] == self.dropped:
                continue
            if "direction" in step:
                self.transfer(step)
            else:
                self.node(step)
        self.boundary(lambda where, key, value: self.expect(where.get(key) == value, "the end of the step", value))

    def transfer(self, transfer):
        for page in self.pages(transfer):
            frame, place = self.frame(transfer["buffer"], page), self.place[transfer["buffer"], page]
            if transfer["direction"] == "up":
                self.frames[frame] = self.host.get(place)
            else:
                self.host[place] = self.frames.get(frame)

    def node(self, node):
        touched = [(access, page) for access in node["accesses"] for page in self.pages(access)]
        for access, page in touched:
            key = (access["buffer"], page)
            covers = access["offset"] <= page * self.page_bytes and access["offset"] + access["size"] >= min(
                (page + 1) * self.page_bytes, self.buffers[access["buffer"]]["size"]
            )
            overwrites = "write" in access["must"] and covers
            has_value = key in self.last_write or self.buffers[access["buffer"]]["live_in"]
            if has_value and not overwrites:
                held = self.frames.get(self.frame(*key))
                self.expect(held == (*key, self.last_write.get(key, 0)), f"node {node['id']}", (*key, held))
        for access, page in touched:
            if "write" in access["may"]:
                key = (access["buffer"], page)
                self.last_write[key] = node["id"] + 1
                self.frames[self.frame(*key)] = (*key, node["id"] + 1)

    @staticmethod
    def expect(holds, where, what):
        if not holds:
            sys.exit(f"{where} does not find what it needs: {what}")


def main():
    with open(sys.argv[1]) as file:
        plan = json.load(file)
    dropped = int(sys.argv[2].removeprefix("drop=")) if len(sys.argv) > 2 else None
    frames = {frame for buffer in plan["buffers"] for frame in buffer["frames"] if frame >= 0}
    if len(frames) * plan["page_bytes"] > plan["budget_bytes"]:
        sys.exit(f"{len(frames)} frames exceed the budget of {plan['budget_bytes']} bytes")
    Replay(plan, dropped).run()
    print(f"{len(plan['nodes'])} nodes and {len(plan['transfers'])} transfers replayed in {len(frames)} frames")


if __name__ == "__main__":
    main()
