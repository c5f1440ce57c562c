# SPDX-License-Identifier: Apache-2.0
"""Compares a memory-viz report with the timeline and the figures of the same plan: at every moment the live blocks add
up to the device memory of the timeline; blocks never overlap, nothing is freed that is not there, and the last state
is that of the segment.

  memory_viz.py SNAPSHOT TIMELINE REPORT
"""
import json
import pickle
import pickletools
import sys

# What torch/utils/viz/MemoryViz.js reads, by the names of pickletools.
VIEWER_READS = {
    "APPEND", "APPENDS", "BINFLOAT", "BINGET", "BININT", "BININT1", "BININT2", "BINPUT", "BINUNICODE", "EMPTY_DICT",
    "EMPTY_LIST", "EMPTY_TUPLE", "FRAME", "LONG1", "LONG_BINGET", "MARK", "MEMOIZE", "NEWFALSE", "NEWTRUE", "NONE",
    "PROTO", "SETITEMS", "SHORT_BINUNICODE", "STOP", "TUPLE", "TUPLE1", "TUPLE2", "TUPLE3"}
data = open(sys.argv[1], "rb").read()
snapshot = pickle.loads(data)
timeline = json.load(open(sys.argv[2]))
report = json.load(open(sys.argv[3]))


def check(condition, complaint):
    if not condition:
        sys.exit(complaint)


used = {opcode.name for opcode, _, _ in pickletools.genops(data)}
check(used <= VIEWER_READS, f"the viewer cannot read {used - VIEWER_READS}")
(segment,), (trace,) = snapshot["segments"], snapshot["device_traces"]
first, last = segment["address"], segment["address"] + segment["total_size"]

live, curve, names = {}, {}, set()
check(trace[0]["action"] == "segment_alloc", "the segment comes first")
for event in trace[1:]:
    begin, end = event["addr"], event["addr"] + event["size"]
    check(first <= begin < end <= last, f"outside of the segment: {event}")
    if event["action"] == "alloc":
        check(len(event["frames"]) == 3, f"what, since when, until when: {event}")
        check(not any(begin < other + size and other < end for other, size in live.items()), f"two at once: {event}")
        live[begin] = event["size"]
        names.add(event["frames"][0]["filename"])
    else:
        check(live.get(begin) == event["size"], f"is not there: {event}")
        if event["action"] == "free_completed":
            del live[begin]
    curve[event["time_us"]] = sum(live.values())
    check(curve[event["time_us"]] <= report["budget_bytes"], f"over the budget at {event}")

expected = {int(event["ts"]): event["args"]["bytes"] for event in timeline["traceEvents"] if event["ph"] == "C"}
now = there = 0
for time in sorted({*curve, *expected}):
    now, there = curve.get(time, now), expected.get(time, there)
    check(now == there, f"at {time} us {now} bytes, in the timeline {there}")
check(max(curve.values()) == report["peak_bytes"], "another peak than the report's")

address, blocks = first, {}
for block in segment["blocks"]:
    check(block["address"] == address, f"a gap before {block}")
    address += block["size"]
    if block["state"] == "active_allocated":
        check(0 < block["requested_size"] <= block["size"] and block["frames"], f"{block}")
        blocks[block["address"]] = block["size"]
check(address == last and blocks == live, "the segment is not as the trace leaves it")
for key, size in (("allocated_size", "size"), ("active_size", "size"), ("requested_size", "requested_size")):
    check(segment[key] == sum(b[size] for b in segment["blocks"] if b["state"] != "inactive"), f"another {key}")
print(f"{len(trace)} events of {len(names)} buffers, {len(blocks)} blocks at the end")
for event in trace[1:]:
    print(event["action"], *("{filename}:{line}: {name};".format(**frame) for frame in event["frames"]))
