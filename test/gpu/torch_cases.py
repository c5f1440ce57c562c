#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""GPU tests of the PyTorch package. One case a process, for a process has one allocator: torch_cases.py CASE [FOLDER].

run_gpu_tests.py runs them all; `plain` runs first and leaves in FOLDER what the others compare with.
"""

import ctypes
import gc
import gzip
import json
import math
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
import types
import warnings
from pathlib import Path

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "runtime" / "python"))

from named_cases import check  # noqa: E402

import torch  # noqa: E402
from torch import nn  # noqa: E402

import pumpgraph  # noqa: E402
from pumpgraph import torch_capture  # noqa: E402

STEPS = 20
WARMUP = 2
ROWS, WIDTH, LAYERS = 4096, 2048, 12
# On managed memory, of which a test may use 4 GiB: both captures of a step need addresses at the same time.
MANAGED_ROWS, MANAGED_LAYERS = ROWS // 2, LAYERS // 2


class Training:
    """A deep perceptron with dropout, so that activations outweigh weights and random numbers matter."""

    def __init__(self, rows=ROWS, depth=LAYERS):
        torch.manual_seed(0)
        torch.use_deterministic_algorithms(True)
        torch.utils.deterministic.fill_uninitialized_memory = False
        layers = [part for _ in range(depth) for part in (nn.Linear(WIDTH, WIDTH), nn.GELU(), nn.Dropout(0.1))]
        self.model = nn.Sequential(*layers, nn.Linear(WIDTH, 1)).cuda()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=2e-5, fused=True, capturable=True)
        generator = torch.Generator().manual_seed(0)
        self.batches = [torch.randn(rows, WIDTH, generator=generator).pin_memory() for _ in range(3)]
        self.input = self.batches[0].cuda()
        self.steps_run = 0

    def step(self):
        return self._train(self.input)

    def half_step(self):
        return self._train(self.input[: len(self.input) // 2])

    def _train(self, rows):
        self.optimizer.zero_grad(set_to_none=True)
        loss = (self.model(rows).squeeze(1) - rows[:, 0]).square().mean()
        loss.backward()
        self.optimizer.step()
        return loss.detach()

    def capture(self, fn=None, **options):
        return pumpgraph.capture(fn or self.step, warmup=WARMUP, private=[self.model, self.optimizer], name="mlp",
                                 **options)

    def next_batch(self):
        return self.batches[self.steps_run % len(self.batches)]

    def run(self, step, steps=STEPS, then=None):
        """The losses of replays, which go on with the batches where the last call ended; those of `then` take every
        third turn."""
        losses = []
        for _ in range(steps):
            self.input.copy_(self.next_batch(), non_blocking=True)
            chosen = then if then and self.steps_run % 3 == 2 else step
            chosen.replay()
            losses.append(chosen.output.item().hex())
            self.steps_run += 1
        return losses


def refused(status, pattern, call):
    """The message of the PumpGraphError that `call` must raise."""
    try:
        call()
    except pumpgraph.PumpGraphError as error:
        check(error.status == status, f"status {error.status!r}, expected {status!r}: {error}")
        check(re.search(pattern, str(error)), f"\"{error}\" does not say {pattern}")
        return str(error)
    raise AssertionError(f"not refused; expected an error that says {pattern}")


def falls(losses):
    """Each batch has a loss of its own, so once over all three at the end is compared with once at the start."""
    return sum(losses[-3:]) < sum(losses[:3])


def plain_figures(folder):
    return json.loads((Path(folder) / "plain.json").read_text())


def install_share(folder, share, **options):
    budget = int(plain_figures(folder)["peak_bytes"] * share)
    pumpgraph.install(budget=budget, budget_of="tensors", **options)
    return budget


# ---- cases -----------------------------------------------------------------------------------------------------------


def plain(folder):
    """The unmodified step, twice from the start: what the others must reproduce."""
    first = train_plain()
    peak = torch.cuda.max_memory_allocated()
    check(train_plain() == first, "the unmodified step does not agree with itself")
    losses = [float.fromhex(loss) for loss in first]
    check(falls(losses), f"the loss does not fall: {losses}")
    in_turns = train_plain(two_steps=True)
    check(in_turns != first, "two steps in turns are as good as one")
    gc.collect()
    torch.cuda.reset_peak_memory_stats()
    losses = train_plain(rows=MANAGED_ROWS, depth=MANAGED_LAYERS)
    small = {"losses": losses, "peak_bytes": torch.cuda.max_memory_allocated()}
    (Path(folder) / "plain.json").write_text(
        json.dumps({"losses": first, "in_turns": in_turns, "peak_bytes": peak, "small": small}))


def train_plain(two_steps=False, rows=ROWS, depth=LAYERS):
    training = Training(rows, depth)
    stream = torch.cuda.Stream()
    step = plain_graph(training.step, stream)
    return training.run(step, then=plain_graph(training.half_step, stream) if two_steps else None)


def plain_graph(fn, stream):
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(WARMUP):
            fn()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        output = fn()
    return types.SimpleNamespace(replay=graph.replay, output=output)


def _same_losses(folder, share):
    budget = install_share(folder, share)
    training = Training()
    step = training.capture()
    losses = training.run(step)
    check(losses == plain_figures(folder)["losses"], f"the losses differ from the unmodified step's: {losses[:3]} ...")
    stats = pumpgraph.memory_stats()
    peak = stats["device_peak_bytes"]
    check(peak <= budget, f"{peak} bytes on the device; the budget is {budget}")
    return step


def losses_at_40_percent(folder):
    report = _same_losses(folder, 0.4).report()
    check(report.left_as_captured is None, f"left as captured: {report.left_as_captured}")
    check(report["added_nodes"] > 0, "nothing was added at 40 %")
    check(report["checked"], "the plan was not checked")
    check(report["up_bytes"] > 0 and report["down_bytes"] > 0, "nothing was moved")


def losses_at_200_percent(folder):
    report = _same_losses(folder, 2.0).report()
    check(report["added_nodes"] == 0, f"{report['added_nodes']} nodes added although everything fits")


def budget_of_the_process(folder):
    """nvidia-smi never shows more than the budget, from the first allocation on."""
    figures = plain_figures(folder)
    budget = int(figures["peak_bytes"] * 0.4) + (900 << 20)
    pumpgraph.install(budget=budget)
    seen, done = [], threading.Event()

    def watch():
        while not done.is_set():
            seen.append(bytes_by_nvidia_smi())
            done.wait(0.05)

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        training = Training()
        step = training.capture()
        losses = training.run(step)
        torch.cuda.synchronize()
        seen.append(bytes_by_nvidia_smi())
    finally:
        done.set()
        watcher.join()
    check(losses == figures["losses"], f"the losses differ from the unmodified step's: {losses[:3]} ...")
    check(step.report()["added_nodes"] > 0, "nothing was moved: the budget is no test")
    stats = pumpgraph.memory_stats()
    mib = {name: stats[name] >> 20 for name in ("frame_budget_bytes", "process_bytes")}
    print(f"budget {budget >> 20} MiB; nvidia-smi {max(seen) >> 20} MiB at most, {seen[-1] >> 20} at the end, "
          f"{len(seen)} looks; buffers may have {mib['frame_budget_bytes']} MiB, the process has "
          f"{mib['process_bytes']}")
    check(0 < max(seen) <= budget, f"nvidia-smi has shown {max(seen)} bytes; the budget is {budget}")
    check(abs(stats["process_bytes"] - seen[-1]) <= 2 << 20, "nvidia-smi shows something else than memory_stats()")


def bytes_by_nvidia_smi():
    text = subprocess.run(["nvidia-smi", "--query-compute-apps=pid,used_memory", "--format=csv,noheader,nounits"],
                          check=True, stdout=subprocess.PIPE, universal_newlines=True).stdout
    rows = [line.split(", ") for line in text.strip().splitlines()]
    return sum(int(used) << 20 for pid, used in rows if int(pid) == os.getpid())


def losses_left_as_captured(folder):
    install_share(folder, 0.4)
    training = Training()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        step = training.capture(leave_as_captured=True)
    check(training.run(step, 3) == plain_figures(folder)["losses"][:3], "the losses differ from the unmodified step's")


def validate(folder):
    install_share(folder, 0.4)
    training = Training()
    step = training.capture()
    result = step.validate()
    check(result.compared_buffers > 0 and result.different_buffers == 0, f"{result}")
    # All contents were restored, so training goes on as if nothing had been.
    check(training.run(step) == plain_figures(folder)["losses"], "validate() changed the state")


def replan(folder):
    install_share(folder, 0.4)
    training = Training()
    expected = plain_figures(folder)["losses"]
    step = training.capture(keep_first_plan=True)
    losses = training.run(step, 2)
    result = step.replan()
    check(result.timed_nodes > 0 and result.measured_us > 0, f"{result}")
    plans = step.report()["runtime"]["plans"]
    check([plan["costs"] for plan in plans[:2]] == ["static estimates", "measured on the rewritten step"], f"{plans}")
    # PyTorch has instantiated the graph anew, and training goes on as if nothing had been.
    losses += training.run(step, len(expected) - 2)
    check(losses == expected, "replan() changed the losses")
    print(plans)


def report_prints(folder):
    install_share(folder, 0.4)
    report = Training().capture().report()
    text = str(report)
    for part in ("mlp", "plan bound", "moved up", "GiB"):
        check(part in text, f"\"{part}\" is missing in:\n{text}")


def mapped_reads_and_writes(folder):
    install_share(folder, 0.4)
    training = Training()
    step = training.capture()
    weight = training.model[0].weight
    with pumpgraph.mapped(training.model, training.optimizer):
        before = weight.detach().cpu()
    training.run(step, 1)
    with pumpgraph.mapped(training.model, training.optimizer):
        after = weight.detach().cpu()
        refused(pumpgraph.Status.INVALID_ARGUMENT, "inside mapped", step.replay)
        weight.data.zero_()
        for parameter in training.model[-1].parameters():
            parameter.data.zero_()
    check(not torch.equal(before, after), "a replay did not change the weight")
    check(torch.isfinite(after).all().item(), "the weight read inside mapped() is not finite")
    batch = training.next_batch()
    loss = float.fromhex(training.run(step, 1)[0])
    expected = batch[:, 0].square().mean().item()  # the model answers zero now
    close = abs(loss - expected) < 1e-3 * abs(expected)
    check(close, f"loss {loss}, expected {expected}: the write inside mapped() is lost")


def checkpoint_round_trip(folder):
    """A checkpoint taken between steps brings training back to where it was."""
    install_share(folder, 0.4)
    training = Training()
    step = training.capture()
    things = (training.model, training.optimizer)
    with pumpgraph.mapped(*things):
        saved = {key: value.cpu() for key, value in training.model.state_dict().items()}
        moments = [{k: v.cpu() for k, v in state.items()} for state in training.optimizer.state.values()]
        generator = torch.cuda.get_rng_state()
    first = training.run(step, 3)
    with pumpgraph.mapped(*things):
        training.model.load_state_dict(saved)
        for state, old in zip(training.optimizer.state.values(), moments):
            for key in state:
                state[key].copy_(old[key])
        torch.cuda.set_rng_state(generator)
    check(training.run(step, 3) == first, "training from the checkpoint took another course")


def save(folder):
    install_share(folder, 0.4)
    training = Training()
    step = training.capture()
    with tempfile.TemporaryDirectory() as scratch:
        plain_file, packed = Path(scratch) / "step.mlir", Path(scratch) / "step.mlir.gz"
        step.save(plain_file)
        step.save(packed)
        text = plain_file.read_text()
        check(gzip.decompress(packed.read_bytes()).decode() == text, "the packed step differs from the plain one")
    kernels = text.count("pump.kernel ")
    check(kernels > 100, f"{kernels} kernels in the saved step")
    for name in ("0.weight", "exp_avg of 0.weight"):
        check(f"\"{name}\"" in text, f"no buffer is named \"{name}\"")


def measure_and_costs(folder):
    """Node times measured without a budget are what a plan under a budget starts from."""
    pumpgraph.install(budget="unlimited")
    training = Training()
    step = training.capture(leave_as_captured=True)
    result = step.measure(3)
    check(result.step_us > 0 and result.timed_nodes > 100, f"{result}")
    check(training.run(step) == plain_figures(folder)["losses"], "measure() changed the state")
    costs = Path(folder) / "costs.mlir.gz"
    step.save(costs)
    check("cost(" in gzip.decompress(costs.read_bytes()).decode(), "the saved step has no node times")


def costs_are_used(folder):
    """After measure_and_costs: the in-memory time that the plan believes in is the measured one."""
    install_share(folder, 0.4)
    with_costs = Training().capture(costs=Path(folder) / "costs.mlir.gz").report()["in_memory_s"]
    check(with_costs > 0, "no in-memory time")
    expected = plain_step_seconds(folder)
    if expected is not None:
        check(0.5 < with_costs / expected < 2, f"in memory {with_costs} s by the costs, {expected} s measured")


class Attention(nn.Module):
    """One block of a transformer, causal."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.mixes, self.joins = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.widens, self.narrows = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, words):
        batch, length, width = words.shape
        query, key, value = self.mixes(words).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        mixed = nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        words = words + self.joins(mixed.transpose(1, 2).reshape(batch, length, width))
        return words + self.narrows(nn.functional.gelu(self.widens(words)))


def estimates_count_arithmetic(_folder):
    """Before its first replay, the in-memory time of a step that computes more than it moves lies within a factor of 2
    of the measured one, but for convolutions without tensor cores."""
    pumpgraph.install(budget="unlimited", budget_of="tensors")
    convolutions = [part for _ in range(6) for part in (nn.Conv2d(256, 256, 3, padding=1), nn.ReLU())]
    nets = {
        "fp32 products": (nn.Sequential(*(nn.Linear(2048, 2048) for _ in range(8))), (2048, 2048), torch.float32,
                          False),
        "fp32 convolutions": (nn.Sequential(*convolutions), (16, 256, 64, 64), torch.float32, False),
        "tf32 convolutions": (nn.Sequential(*convolutions), (16, 256, 64, 64), torch.float32, True),
        "bf16 attention": (nn.Sequential(*(Attention(1024, 16) for _ in range(6))), (16, 1024, 1024), torch.bfloat16,
                           False),
    }
    ratios = {}
    for name, (net, shape, dtype, allows_tf32) in nets.items():
        torch.backends.cudnn.allow_tf32 = allows_tf32
        net = net.to("cuda", dtype)
        batch = torch.randn(shape, device="cuda", dtype=dtype)

        def step(net=net, batch=batch):
            net.zero_grad(set_to_none=True)
            net(batch).square().mean().backward()

        captured = pumpgraph.capture(step, warmup=WARMUP, private=[net], name=name, keep_first_plan=True)
        report = captured.report()
        with tempfile.TemporaryDirectory() as scratch:
            captured.save(Path(scratch) / "step.mlir")
            declared = (Path(scratch) / "step.mlir").read_text().count(" arithmetic(")
        times = []
        for _ in range(7):
            start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            start.record()
            captured.replay()
            end.record()
            end.synchronize()
            times.append(start.elapsed_time(end) * 1e-3)
        measured = sorted(times)[len(times) // 2]
        ratios[name] = report["in_memory_s"] / measured
        print(f"{name}: {report['in_memory_s'] * 1e3:.2f} ms estimated, {measured * 1e3:.2f} ms measured, "
              f"{declared} nodes with arithmetic")
        captured.close()
    # Without tensor cores cuDNN's convolutions go through large workspaces, all of which counts as accessed.
    longest = {name: 2 if name != "fp32 convolutions" else 5 for name in ratios}
    check(all(0.5 < ratio < longest[name] for name, ratio in ratios.items()),
          f"estimated, of what was measured: {ratios}")


def replans_by_itself(folder):
    """After measure_and_costs: node times that are far too long make the prediction miss. The next eight replays
    measure what nodes take, and the one after them mends it."""
    slow = slow_costs(folder)
    install_share(folder, 0.4, planning="in_replay")
    training = Training()
    step = training.capture(costs=slow)
    losses = training.run(step, 12)
    plans = step.report()["runtime"]["plans"]
    check([plan["costs"] for plan in plans] == ["saved times"], f"planned again too early: {plans}")
    losses += training.run(step, STEPS - 12)
    plans = step.report()["runtime"]["plans"]
    check(len(plans) >= 2 and plans[1]["costs"] == "measured on the rewritten step", f"not planned again: {plans}")
    check(losses == plain_figures(folder)["losses"], "planning again changed the losses")
    print(plans)


def slow_costs(folder):
    slow = Path(folder) / "slow.mlir"
    text = gzip.decompress((Path(folder) / "costs.mlir.gz").read_bytes()).decode()
    slow.write_text(text.replace("cost(", "cost(99"))
    return slow


def plans_aside(folder):
    """The same with the plan made on a thread: no replay waits for it, a later one has it, and the losses stay."""
    slow = slow_costs(folder)
    install_share(folder, 0.4)
    training = Training()
    step = training.capture(costs=slow)
    losses, longest = training.run(step, 13), 0.0
    check(len(step.report()["runtime"]["plans"]) == 1, "planned within the replay")
    for _ in range(STEPS - 13):
        start = time.perf_counter()
        losses += training.run(step, 1)
        longest = max(longest, time.perf_counter() - start)
        time.sleep(2)
    runtime = step.report()["runtime"]
    check(len(runtime["plans"]) >= 2, f"not planned again: {runtime['plans']}")
    check(losses == plain_figures(folder)["losses"], "planning aside changed the losses")
    print(f"the longest replay took {longest * 1e3:.0f} ms; {runtime['plan_ms']:.0f} ms of planning in all")


class Decoding:
    """A forward pass that writes the next row of a cache, as decoding with a static key-value cache does. The device
    asserts where a run begins behind the last row, and a counter in memory of the program's own counts runs."""

    ROWS = 24

    def __init__(self):
        torch.manual_seed(0)
        self.net = nn.Sequential(*[nn.Linear(WIDTH, WIDTH) for _ in range(12)]).cuda().requires_grad_(False)
        self.cache = torch.zeros(self.ROWS, WIDTH, device="cuda")
        self.position = torch.zeros(1, dtype=torch.long, device="cuda")
        self.inputs = [torch.randn(256, WIDTH, device="cuda") for _ in range(4)]

    def forward(self, x):
        y = self.net(x)
        self.cache.index_copy_(0, self.position, y.mean(0, keepdim=True))
        self.position.add_(1)
        return y.mean()

    def expected(self, rows):
        """What the cache holds after so many calls, one input after the other."""
        cache, self.cache = self.cache, torch.zeros_like(self.cache)
        position, self.position = self.position, torch.zeros_like(self.position)
        for row in range(rows):
            self.forward(self.inputs[row % 4])
        cache, self.cache = self.cache, cache
        self.position = position
        return cache


def own_runs_begin_where_the_program_is(_folder):
    """Whatever runs the step on PumpGraph's account begins with the program's position, and leaves it there."""
    pumpgraph.install(budget="160MiB", budget_of="tensors")
    decoding = Decoding()
    x = decoding.inputs[0].clone()
    step = pumpgraph.capture(lambda: decoding.forward(x), warmup=1, private=[decoding.net, decoding.cache], inputs=[x],
                             keep_first_plan=True, calibrate=True)
    check(step.report().get("added_nodes"), "nothing is moved, so this says little")
    row = int(decoding.position)
    for name in ("replan", "validate", "observe", "replan", "validate"):
        getattr(step, name)()
        check(int(decoding.position) == row, f"{name} leaves the position at {int(decoding.position)}, not {row}")
        x.copy_(decoding.inputs[row % 4])
        step.replay()
        row += 1
        check(int(decoding.position) == row, f"after {name}, a replay leaves the position at {int(decoding.position)}")
    with pumpgraph.mapped(decoding.cache, decoding.net):
        got = decoding.cache.clone()
        # The warm-up's row is of the first input, which x is a copy of.
        check(torch.equal(got, decoding.expected(row)), "the cache is not what the calls make")


def planning_again_runs_nothing(_folder):
    """The predicted time of a small step misses by far; planning it again takes the program's own replays alone."""
    pumpgraph.install(budget="160MiB", budget_of="tensors", planning="in_replay")
    decoding = Decoding()
    step = pumpgraph.graphed(decoding.forward)
    for call in range(Decoding.ROWS):
        step(decoding.inputs[call % 4])
        check(int(decoding.position) == call + 1, f"call {call} leaves the position at {int(decoding.position)}")
    plans = step.report()["runtime"]["plans"]
    check(len(plans) > 1, f"the step was not planned again, so this says nothing: {plans}")
    got = decoding.cache.clone()
    with pumpgraph.paused():
        check(torch.equal(got, decoding.expected(Decoding.ROWS)), "the cache is not what the calls make")
    print([(plan["costs"], plan["predicted_s"], plan["measured_s"]) for plan in plans])


def a_lost_device_is_an_error(_folder):
    """A kernel asserts; from then on every call says so, and none of them crashes."""
    pumpgraph.install(budget="160MiB", budget_of="tensors")
    decoding = Decoding()
    x = decoding.inputs[0].clone()
    step = pumpgraph.capture(lambda: decoding.forward(x), warmup=1, private=[decoding.net, decoding.cache], inputs=[x],
                             keep_first_plan=True)
    step.replay()
    decoding.position.fill_(Decoding.ROWS)  # behind the last row
    step.replay()
    lost = pumpgraph.Status.DEVICE_LOST
    for name in ("replan", "validate", "replan", "observe", "measure", "replay"):
        message = refused(lost, "(?i)assert", getattr(step, name))
        print(f"{name}: {message.splitlines()[0]}")
    session = torch_capture.installed().session
    for name in ("take_back", "empty_cache", "memory_stats"):  # the library asks the device itself
        message = refused(lost, "(?i)assert", getattr(session, name))
        print(f"{name}: {message}")
    sys.stdout.flush()
    os._exit(0)  # what PyTorch destroys at the end needs the device


def others_take_of_the_budget(folder):
    """Memory that another library takes after the step was planned is noticed within a second, and planned for."""
    budget = int(plain_figures(folder)["peak_bytes"] * 0.7) + (1 << 30)
    pumpgraph.install(budget=budget)
    training = Training()
    step = training.capture()
    losses = training.run(step, 4)
    before = pumpgraph.memory_stats()
    check(before["process_bytes"] <= budget, f"{before['process_bytes']} of {budget} bytes before anything is taken")
    driver = ctypes.CDLL("libcuda.so.1")
    taken, size = ctypes.c_uint64(), 512 << 20
    check(driver.cuMemAlloc_v2(ctypes.byref(taken), ctypes.c_size_t(size)) == 0, "no memory to take")
    check(pumpgraph.memory_stats()["process_bytes"] > budget, "the budget is not exceeded, so this says nothing")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        time.sleep(1.1)
        try:
            losses += training.run(step, STEPS - 4)
        except pumpgraph.PumpGraphError as error:
            raise AssertionError(f"{error}; {step.report()['runtime']['warnings']}") from error
    said = [str(warning.message) for warning in caught if "more than its budget" in str(warning.message)]
    check(len(said) == 1, f"said {len(said)} times: {[str(warning.message) for warning in caught]}")
    torch.cuda.empty_cache()
    after = pumpgraph.memory_stats()
    check(after["process_bytes"] <= budget, f"{after['process_bytes']} of {budget} bytes after planning again: {said}")
    check(losses == plain_figures(folder)["losses"], "planning again changed the losses")
    print(said[0])


def calibrates(folder):
    """The step is run once before it is planned, and training does not notice."""
    install_share(folder, 0.4)
    training = Training()
    step = training.capture(calibrate=True)
    runtime = step.report()["runtime"]
    check(any(note.startswith("calibrated in ") for note in runtime["notes"]), f"{runtime['notes']}")
    check(step.report().left_as_captured is None, f"left as captured: {step.report().left_as_captured}")
    check(training.run(step) == plain_figures(folder)["losses"], "calibration changed the losses")
    print(f"calibrated in {runtime['calibrate_ms']:.0f} ms")


def plain_step_seconds(folder):
    match = re.findall(r"cost\(([\d.]+)\)", gzip.decompress((Path(folder) / "costs.mlir.gz").read_bytes()).decode())
    return sum(map(float, match)) * 1e-6 if match else None


def one_step_after_another(folder):
    """When a step is closed its memory is the next one's."""
    install_share(folder, 0.5)
    training = Training()
    first = training.capture()
    training.run(first, 4)
    first.close()
    second = training.capture()
    losses = [float.fromhex(loss) for loss in training.run(second)]
    check(falls(losses), f"the second step does not train: {losses}")


def two_steps_in_turns(folder):
    """Two steps train the same model, the whole batch and half of it: the losses are those of plain graphs."""
    budget = install_share(folder, 0.5)
    training = Training()
    whole = training.capture(keep_first_plan=True, boundary="own")
    half = training.capture(training.half_step, keep_first_plan=True, boundary="own")
    losses = training.run(whole, then=half)
    check(losses == plain_figures(folder)["in_turns"], f"the losses differ from the plain graphs': {losses[:4]} ...")
    check(pumpgraph.memory_stats()["device_peak_bytes"] <= budget, "more frames than the budget has")
    for step in (whole, half):
        runtime = step.report()["runtime"]
        check(runtime["left_as_captured"] is None, f"left as captured: {runtime['left_as_captured']}")
        check(runtime["exchanges"] >= STEPS // 3 - 1, f"{runtime['exchanges']} exchanges")
        print(f"{runtime['exchanges']} exchanges, {runtime['exchange_ms'] / runtime['exchanges']:.1f} ms each")
        check(step.validate().different_buffers == 0, "validation found a difference")
    whole.close()
    check(torch.isfinite(torch.tensor([float.fromhex(loss) for loss in training.run(half, 2)])).all(), "no losses")


def two_steps_share_a_boundary(folder):
    """The same two, planned into one boundary state: no exchange between them. The losses have memory before, for what
    a later capture allocates and keeps needs frames that the first plan leaves free."""
    budget = install_share(folder, 0.5)
    training = Training()
    result = torch.zeros((), device="cuda")
    whole = training.capture(lambda: result.copy_(training.step()), keep_first_plan=True)
    half = training.capture(lambda: result.copy_(training.half_step()), keep_first_plan=True, boundary="shared")
    print(half.report()["runtime"]["notes"])
    losses = training.run(whole, then=half)
    check(losses == plain_figures(folder)["in_turns"], f"the losses differ from the plain graphs': {losses[:4]} ...")
    check(pumpgraph.memory_stats()["device_peak_bytes"] <= budget, "more frames than the budget has")
    for step in (whole, half):
        runtime = step.report()["runtime"]
        check("shared" in str(runtime["boundary"]), f"boundary {runtime['boundary']}; {runtime['notes']}")
        check(runtime["exchanges"] == 0, f"{runtime['exchanges']} exchanges")
        check(step.validate().different_buffers == 0, "validation found a difference")


def reads_are_declared(folder):
    """Operators' schemas say what kernels only read."""
    install_share(folder, 0.4)
    training = Training()
    step = training.capture(keep_first_plan=True)
    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / "step.mlir"
        step.save(path)
        text = path.read_text()
    declared, written = len(re.findall(r"\bdeclared\b", text)), len(re.findall(r"\breadwrite\b", text))
    report = step.report()
    print(f"{declared} accesses are declared reads, {written} may read and write; "
          f"up {report['up_bytes'] >> 20} MiB, down {report['down_bytes'] >> 20} MiB")
    check(declared > LAYERS, "hardly any access is declared")
    check(training.run(step) == plain_figures(folder)["losses"], "the losses differ")
    check(step.validate().different_buffers == 0, "validation found a difference")


def unset_fields(_folder):
    """What earlier launches left on the stack is in the structs of kernels where nobody set it: no operand."""
    pumpgraph.install(budget="unlimited")
    layers = nn.Sequential(*(nn.Conv3d(16, 16, 5, padding=2) for _ in range(4))).to("cuda", torch.bfloat16)
    volumes = torch.randn(2, 16, 64, 64, 64, device="cuda", dtype=torch.bfloat16)

    def step():
        layers.zero_grad(set_to_none=True)
        loss = layers(volumes).float().square().mean()
        loss.backward()
        return loss.detach()

    captured = pumpgraph.capture(step, warmup=WARMUP, private=[layers], name="volumes", leave_as_captured=True)
    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / "step.mlir"
        captured.save(path)
        sums = [line for line in path.read_text().splitlines() if re.search(r'pump.kernel "[^"]*reduce_kernel', line)]
    large = volumes.nbytes // 2
    print(*sums, sep="\n")
    check(len(sums) > len(layers), f"{len(sums)} kernels that sum, for {len(layers)} biases and a loss")
    for line in sums:
        operands = [size for size in re.findall(r"%\S+\[\d+, (\d+)\]", line) if int(size) >= large]
        check(len(operands) <= 1, f"{len(operands)} operands of {large} bytes and more: {line}")


def a_thousand_replays(folder):
    install_share(folder, 0.7)
    training = Training()
    step = training.capture()
    planned = -1
    while planned != (planned := len(step.report()["runtime"]["plans"])):
        training.run(step, 24)  # these may plan the step again, on a thread
        time.sleep(3)

    def held():
        torch.cuda.synchronize()
        free, _ = torch.cuda.mem_get_info()
        resident = int(re.search(r"VmRSS:\s+(\d+)", Path("/proc/self/status").read_text()).group(1))
        stats = pumpgraph.memory_stats()
        return free, resident, stats["device_bytes"], stats["pinned_bytes"], stats["live_allocations"]

    before = held()
    for _ in range(1000):
        step.replay()
    after = held()
    check(after[2:] == before[2:], f"the session grew: {before} to {after}")
    check(before[0] - after[0] <= 0, f"{before[0] - after[0]} bytes of device memory are gone")
    check(after[1] - before[1] < 32 * 1024, f"the process grew by {after[1] - before[1]} KiB")


# ---- refusals --------------------------------------------------------------------------------------------------------


def cuda_already_initialised(_folder):
    torch.zeros(1).cuda()
    refused(pumpgraph.Status.INVALID_ARGUMENT, "CUDA is initialised already", lambda: pumpgraph.install(budget="1GiB"))
    check(torch.ones(3).cuda().sum().item() == 3, "PyTorch does not work any more")


def _branching_losses(folder):
    """Trains with a branch beside the step, at 40 %. What the variable of the driver's queues is, and the notes."""
    install_share(folder, 0.4)
    training, side = Training(), torch.cuda.Stream()
    counts = torch.zeros((), device="cuda")

    def step():
        main_stream = torch.cuda.current_stream()
        side.wait_stream(main_stream)
        with torch.cuda.stream(side):
            counts.add_(1)
        loss = training.step()
        main_stream.wait_stream(side)
        return loss

    captured = training.capture(step)
    losses = training.run(captured)
    check(losses == plain_figures(folder)["losses"], f"the losses differ from the unmodified step's: {losses[:3]} ...")
    report = captured.report()
    check(report["added_nodes"] > 0, f"not rewritten: {report.left_as_captured}")
    getenv = ctypes.CDLL(None).getenv
    getenv.restype = ctypes.c_char_p
    return getenv(b"CUDA_DEVICE_MAX_CONNECTIONS"), " ".join(report["runtime"]["notes"])


def two_queues(folder):
    """A session that is first tells the driver in how many queues kernels wait."""
    queues, notes = _branching_losses(folder)
    check(queues == b"2", f"{queues} queues")
    check("queues of the device" not in notes, notes)


def driver_initialised_already(folder):
    """One that comes too late says so in the report of a step with branches."""
    check(ctypes.CDLL("libcuda.so.1").cuInit(0) == 0, "the driver is not initialised")
    queues, notes = _branching_losses(folder)
    check(queues is None, f"{queues} queues")
    check("set CUDA_DEVICE_MAX_CONNECTIONS=2" in notes, f"the notes do not say it: {notes}")


def second_install(_folder):
    pumpgraph.install(budget="1GiB")
    refused(pumpgraph.Status.INVALID_ARGUMENT, "was called before", lambda: pumpgraph.install(budget="1GiB"))


def budget_below_one_kernel(folder):
    """Operands that do not fit stay in host memory, and the losses are the same."""
    # Inputs and workspaces fit, one kernel beside them does not.
    pumpgraph.install(budget="150MiB", budget_of="tensors")
    training = Training()
    step = training.capture(keep_first_plan=True)
    check(step.report()["hosted_bytes"] > 0, "nothing is hosted")
    losses = training.run(step)
    check(losses == plain_figures(folder)["losses"], f"the losses differ from the unmodified step's: {losses[:3]} ...")


def _managed_step(folder, prefetching, hosting="no_room"):
    """20 losses at 60 % of the peak, on 4 GiB of managed memory, and what a replay takes in milliseconds."""
    small = plain_figures(folder)["small"]
    pumpgraph.install(budget=int(small["peak_bytes"] * 0.6), budget_of="tensors", backend="managed", managed="4GiB",
                      managed_limit="4GiB")
    training = Training(MANAGED_ROWS, MANAGED_LAYERS)
    step = training.capture(calibrate=True, prefetching=prefetching, hosting=hosting)
    runtime = step.report()["runtime"]
    check(runtime["backend"] == "managed", f"backend {runtime['backend']}: {runtime['left_as_captured']}")
    losses = training.run(step)
    check(losses == small["losses"], f"the losses differ from the unmodified step's: {losses[:3]} ...")
    times = []
    for _ in range(10):
        torch.cuda.synchronize()
        start = time.perf_counter()
        step.replay()
        torch.cuda.synchronize()
        times.append((time.perf_counter() - start) * 1e3)
    report = step.report()
    agent = report["runtime"]["agent"]
    check(agent["dropped"] + agent["released"] + agent["failed"] == 0, f"{agent}")
    print(f"{prefetching}, {hosting}: {sorted(times)[5]:.1f} ms ({min(times):.1f}-{max(times):.1f}), plan bound "
          f"{report['plan_bound_s'] * 1e3:.1f}, predicted {report['predicted_s'] * 1e3:.1f}; {agent}")


def managed_losses(folder):
    """The losses of the unmodified step, with everything brought back ahead of its use."""
    _managed_step(folder, "ahead")


def managed_hosted(folder):
    """The same with what is faster there in host memory, which a calibrated step gets."""
    _managed_step(folder, "ahead", "automatic")


def managed_at_launch(folder):
    _managed_step(folder, "at_launch")


def managed_faults(folder):
    _managed_step(folder, "none")


def automatic_losses(folder):
    """A session that chooses moves to managed memory for a step that cannot be seen into: here for memory that a node
    of the graph allocates. Tensors stay where they are."""
    small = plain_figures(folder)["small"]
    pumpgraph.install(budget=int(small["peak_bytes"] * 0.6), budget_of="tensors", backend="automatic",
                      managed_limit="4GiB")
    training = Training(MANAGED_ROWS, MANAGED_LAYERS)
    driver = ctypes.CDLL("libcuda.so.1")

    def step():
        loss = training.step()
        stream, pointer = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream), ctypes.c_uint64()
        check(driver.cuMemAllocAsync(ctypes.byref(pointer), ctypes.c_size_t(1 << 20), stream) == 0,
              "no allocation node")
        check(driver.cuMemFreeAsync(pointer, stream) == 0, "no node that frees")
        return loss

    pointers = [parameter.data_ptr() for parameter in training.model.parameters()]
    captured = training.capture(step)
    runtime = captured.report()["runtime"]
    check(runtime["backend"] == "managed", f"backend {runtime['backend']}: {runtime['left_as_captured']}, "
          f"{runtime['notes']}")
    check("because virtual memory does not take" in runtime["backend_why"], runtime["backend_why"])
    losses = training.run(captured)
    check(losses == small["losses"], f"the losses differ from the unmodified step's: {losses[:3]} ...")
    check(pointers == [parameter.data_ptr() for parameter in training.model.parameters()], "a parameter has moved")
    agent = captured.report()["runtime"]["agent"]
    check(agent["prefetches"] > 0 and agent["dropped"] + agent["released"] + agent["failed"] == 0, f"{agent}")
    print(f"{runtime['backend_why']}; {agent['prefetches']} prefetches, {agent['evictions']} evictions")

    # The same step without that node goes to virtual memory, and the two take turns.
    closed = training.capture()
    check(closed.report()["runtime"]["backend"] == "virtual", f"{closed.report()['runtime']}")
    training.run(closed, 2)
    losses = training.run(captured, 6, then=closed)
    check(all(math.isfinite(float.fromhex(loss)) for loss in losses), f"{losses}")
    turns = captured.report()["runtime"]
    check(turns["exchanges"] >= 2, f"{turns['exchanges']} exchanges")
    closed.validate()
    print(f"{turns['exchanges']} exchanges, {turns['exchange_ms'] / turns['exchanges']:.0f} ms each")


def too_little_host_memory(folder):
    """How much is missing is said before anything has changed."""
    pumpgraph.install(budget=int(plain_figures(folder)["peak_bytes"] * 0.65), budget_of="tensors",
                      host_limit="64MiB")
    training = Training()
    whole, part = training.input, training.input[: ROWS // 16].clone()
    calls = []

    def step():  # warms up small, for an eager step needs host memory too where it exceeds the budget
        calls.append(1)
        training.input = part if len(calls) <= WARMUP else whole
        return training.step()

    try:
        pumpgraph.capture(step, warmup=WARMUP, private=[training.model, training.optimizer])
    except pumpgraph.PumpGraphError as error:
        wanted = (pumpgraph.Status.OUT_OF_HOST_MEMORY, pumpgraph.Status.UNPLANNABLE)
        check(error.status in wanted and re.search(r"host.*\d", str(error)), f"{error.status!r}: {error}")
    else:
        raise AssertionError("not refused")
    calls.clear()
    check(torch.isfinite(step()).item(), "the model cannot be trained eagerly any more")


def a_failing_step_function(_folder):
    pumpgraph.install(budget="8GiB")
    training = Training()
    calls = []

    def broken():
        calls.append(1)
        if len(calls) > WARMUP:
            raise ZeroDivisionError("in the step")
        return training.step()

    try:
        pumpgraph.capture(broken, warmup=WARMUP, private=[training.model, training.optimizer])
    except ZeroDivisionError as error:
        check(str(error) == "in the step", f"another error came out: {error}")
    else:
        raise AssertionError("not raised")
    step = training.capture()
    training.run(step, 1)
    check(torch.isfinite(step.output).item(), "a capture after the failed one does not work")


CASES = [
    plain,
    losses_at_40_percent,
    losses_at_200_percent,
    budget_of_the_process,
    losses_left_as_captured,
    validate,
    replan,
    report_prints,
    mapped_reads_and_writes,
    checkpoint_round_trip,
    save,
    measure_and_costs,
    costs_are_used,
    estimates_count_arithmetic,
    replans_by_itself,
    plans_aside,
    own_runs_begin_where_the_program_is,
    planning_again_runs_nothing,
    a_lost_device_is_an_error,
    others_take_of_the_budget,
    calibrates,
    one_step_after_another,
    two_steps_in_turns,
    two_steps_share_a_boundary,
    reads_are_declared,
    unset_fields,
    a_thousand_replays,
    cuda_already_initialised,
    two_queues,
    driver_initialised_already,
    second_install,
    budget_below_one_kernel,
    managed_losses,
    managed_hosted,
    managed_at_launch,
    managed_faults,
    automatic_losses,
    too_little_host_memory,
    a_failing_step_function,
]


def main():
    case = {case.__name__: case for case in CASES}.get(sys.argv[1] if len(sys.argv) > 1 else "")
    if case is None:
        sys.exit(f"usage: {sys.argv[0]} CASE [FOLDER]; cases: {', '.join(case.__name__ for case in CASES)}")
    try:
        case(sys.argv[2] if len(sys.argv) > 2 else ".")
    except AssertionError as error:
        sys.exit(f"{case.__name__}: {error}")


if __name__ == "__main__":
    main()
