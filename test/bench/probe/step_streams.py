# SPDX-License-Identifier: Apache-2.0
"""A sentinel model under a budget: how many streams the driver runs its step on, how fast its copies are, what each
costs whatever its size, and whether replays that wait behind one another take longer than one at a time.

    PYTHONPATH=runtime/python python3 test/bench/probe/step_streams.py resnet152 5.76GiB [STEP]

STEP is a saved step with measured node times (`pump-graph-bench --sentinels --rows record`).
"""
import collections
import json
import statistics
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
sys.path[:0] = [str(ROOT / "tools" / "pump-graph-bench"), str(ROOT / "docs" / "examples" / "pytorch")]

import training  # noqa: E402  first: it sets what cuBLAS reads when CUDA starts

import torch  # noqa: E402
from torch.profiler import ProfilerActivity, profile  # noqa: E402

import pumpgraph  # noqa: E402
from sentinel_worker import Trained  # noqa: E402
from sentinels import BY_NAME  # noqa: E402

REPLAYS = 5
WARMUP_BATCH = 2
LONGEST_GAP_US = 20
WORK = {"kernel", "gpu_memcpy", "gpu_memset"}


def kind_of(event):
    return {"HtoD": "up", "DtoH": "down"}.get(event["name"].split()[1] if event["cat"] == "gpu_memcpy" else "", "other")


def queued_ms(step):
    """Replays launched without waiting between them."""
    events = [torch.cuda.Event(enable_timing=True) for _ in range(REPLAYS + 1)]
    torch.cuda.synchronize()
    events[0].record()
    for event in events[1:]:
        step.replay()
        event.record()
    torch.cuda.synchronize()
    return [before.elapsed_time(after) for before, after in zip(events, events[1:])]


def profiled(step):
    """The nodes of one replay, by kind."""
    with profile(activities=[ProfilerActivity.CUDA]) as profiler:
        step.replay()
        torch.cuda.synchronize()
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        profiler.export_chrome_trace(file.name)
        trace = json.load(open(file.name))
    nodes = collections.defaultdict(list)
    for event in trace["traceEvents"]:
        if event.get("cat") in WORK:
            nodes[kind_of(event)].append(event)
    return nodes


def copy_cost(events):
    """What a copy takes whatever its size, us: within it, by a line through (bytes, time), and until the next one
    starts, if that waits for nothing else; and the rate of large ones, GB/s."""
    events = sorted((event["ts"], event["dur"], event["args"]["bytes"]) for event in events)
    inverse = [1 / size for _, _, size in events]
    per_byte = [us / size for _, us, size in events]
    mean_x, mean_y = statistics.mean(inverse), statistics.mean(per_byte)
    within = (sum((x - mean_x) * (y - mean_y) for x, y in zip(inverse, per_byte)) /
              sum((x - mean_x) ** 2 for x in inverse))
    gaps = [after[0] - before[0] - before[1] for before, after in zip(events, events[1:])]
    gap = statistics.median([gap for gap in gaps if gap < LONGEST_GAP_US])
    return within, gap, 1e-3 / (mean_y - within * mean_x)


def main():
    name, budget = sys.argv[1:3]
    training.make_deterministic()
    pumpgraph.install(budget=budget, budget_of="tensors")
    trained = Trained(BY_NAME[name], WARMUP_BATCH)
    step = pumpgraph.capture(trained.step, warmup=1, private=[trained.model, trained.optimizer], name=name,
                             costs=sys.argv[3] if len(sys.argv) > 3 else None, keep_first_plan=True)
    training.first_replay(step)
    report = step.report()
    alone, queued = training.time_replays(step, REPLAYS), queued_ms(step)
    print(f"{name} at {budget}: {statistics.median(alone):.1f} ms, queued {statistics.median(queued):.1f} ms; "
          f"predicted {report['predicted_s'] * 1e3:.1f}, plan bound {report['plan_bound_s'] * 1e3:.1f}")
    for kind, events in sorted(profiled(step).items()):
        busy_us = sum(event["dur"] for event in events)
        moved = sum(event["args"].get("bytes", 0) for event in events)
        rate = f", {moved / busy_us / 1e3:.1f} GB/s" if kind != "other" else ""
        streams = len({event["args"]["stream"] for event in events})
        print(f"  {kind}: {len(events)} nodes on {streams} streams, busy {busy_us / 1e3:.1f} ms{rate}")
        if kind != "other" and len(events) > 2:
            print("    a copy takes {:.1f} us and {:.1f} us until the next, beside its bytes at {:.1f} GB/s".format(
                *copy_cost(events)))


if __name__ == "__main__":
    main()
