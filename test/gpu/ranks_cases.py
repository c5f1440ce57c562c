#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""GPU tests of one rank's step with NCCL inside: collectives, DistributedDataParallel, fully_shard().

    ranks_cases.py CASE                  a case; one a process, for a process has one allocator
    ranks_cases.py --plain FILE PROGRAM  a program as PyTorch captures it by itself; leaves its figures in FILE

Without torchrun's variables there is one rank.
"""

import contextlib
import ctypes
import datetime
import gc
import hashlib
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "runtime" / "python"), str(ROOT / "docs" / "examples" / "pytorch")]

from named_cases import check, raises, run_named  # noqa: E402

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn import functional  # noqa: E402
from torch.nn.parallel import DistributedDataParallel  # noqa: E402

import gpt2  # noqa: E402
import pumpgraph  # noqa: E402
import training  # noqa: E402
from pumpgraph import UnsupportedError  # noqa: E402

MIB = 1 << 20
WARM_UP, STEPS, LAYERS, BATCH = 11, 50, 6, 4
OVER_BOUND = 1.10  # of the plan bound, that the median replay may take
RANK, RANKS = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
DEVICE = int(os.environ.get("LOCAL_RANK", "0"))


def say(text):
    if RANK == 0:
        print(text, flush=True)


def connect():
    """A process group of NCCL. After install()."""
    torch.cuda.set_device(DEVICE)
    store = {} if RANKS > 1 else {"init_method": f"file://{tempfile.mkdtemp()}/store", "rank": 0, "world_size": 1}
    dist.init_process_group("nccl", timeout=datetime.timedelta(seconds=30), **store)


def install(budget, **options):
    pumpgraph.install(budget=budget, budget_of="tensors", device=DEVICE, **options)
    connect()


@contextlib.contextmanager
def side_stream():
    """DDP must not be made on the default stream."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        yield
    torch.cuda.current_stream().wait_stream(stream)


# ---- collectives one by one ------------------------------------------------------------------------------------------

ROWS = 16 << 20  # floats: 64 MiB


def functional_all_reduce(a, b):
    import torch.distributed._functional_collectives as funcol

    b.copy_(funcol.all_reduce(a, "sum", dist.group.WORLD))


def in_a_group(a, b):
    b.copy_(a)
    with dist._coalescing_manager(device=a.device):
        dist.all_reduce(a)
        dist.all_reduce(b)


def asynchronously(a, b):
    b.copy_(a)
    works = [dist.all_reduce(a, async_op=True), dist.all_reduce(b, op=dist.ReduceOp.MAX, async_op=True)]
    for work in works:
        work.wait()


def part(tensor):
    return tensor[: ROWS // RANKS]


OPERATIONS = {
    "all_reduce": lambda a, b: (b.copy_(a), dist.all_reduce(b)),
    "all_reduce, average": lambda a, b: (b.copy_(a), dist.all_reduce(b, op=dist.ReduceOp.AVG)),
    "all_gather_into_tensor": lambda a, b: dist.all_gather_into_tensor(b, part(a)),
    "all_gather": lambda a, b: dist.all_gather(list(b.chunk(RANKS)), part(a)),
    "reduce_scatter_tensor": lambda a, b: dist.reduce_scatter_tensor(part(b), a),
    "reduce_scatter_tensor, average": lambda a, b: dist.reduce_scatter_tensor(part(b), a, op=dist.ReduceOp.AVG),
    "all_to_all_single": lambda a, b: dist.all_to_all_single(b, a),
    "broadcast": lambda a, b: (b.copy_(a), dist.broadcast(b, 0)),
    "reduce": lambda a, b: (b.copy_(a), dist.reduce(b, 0)),
    "functional all_reduce": functional_all_reduce,
    "a group": in_a_group,
    "asynchronous": asynchronously,
}


def collectives_as_nodes():
    """Each between other work under half of the memory: the values are those of eager calls."""
    install("300MiB")
    a, b = (torch.empty(ROWS, device="cuda") for _ in range(2))
    others = [torch.empty(ROWS, device="cuda") for _ in range(6)]
    everything = [a, b, *others]

    def begin():
        with pumpgraph.mapped(*everything):
            for index, tensor in enumerate(everything):
                tensor.fill_(index + RANK)
                tensor[: ROWS // 3].add_(0.25)

    for name, operation in OPERATIONS.items():
        if RANKS > 1 and name == "all_gather":
            continue  # through memory of its own: refused

        def step():
            a.mul_(1.5).add_(1)
            for tensor in others[:3]:
                tensor.mul_(1.01)
            operation(a, b)
            for tensor in others[3:]:
                tensor.add_(1)
            return torch.stack([tensor.sum() for tensor in (a, b, others[0], others[5])])

        begin()
        expected = [step().tolist() for _ in range(3)]
        captured = pumpgraph.capture(step, warmup=1, private=everything, name=name)
        begin()
        for values in expected:
            captured.replay()
            check(captured.output.tolist() == values, f"{name}: {captured.output.tolist()} instead of {values}")
        report = captured.report()
        check(not report.left_as_captured, f"{name} is left as captured: {report.left_as_captured}")
        say(f"{name}: {report['nodes']} nodes, {(report['up_bytes'] or 0) // MIB} MiB up")
        captured.close()
        gc.collect()


def memory_of_nccl():
    """A communicator counts towards the budget of the process, and the step is planned within what is left."""
    pumpgraph.install(budget="2GiB", device=DEVICE)
    connect()
    before = pumpgraph.memory_stats()
    a = torch.ones(ROWS, device="cuda")
    others = [torch.ones(ROWS, device="cuda") for _ in range(24)]

    def step():
        dist.all_reduce(a, op=dist.ReduceOp.AVG)
        for tensor in others:
            tensor.add_(1)
        return a.sum()

    captured = pumpgraph.capture(step, warmup=1, private=[a, others])
    for _ in range(3):
        captured.replay()
    after = pumpgraph.memory_stats()
    say(f"process {before['process_bytes'] // MIB} MiB before, {after['process_bytes'] // MIB} after, of "
        f"{after['budget_bytes'] // MIB}; for tensors {before['frame_budget_bytes'] // MIB} -> "
        f"{after['frame_budget_bytes'] // MIB}; {captured.report().left_as_captured or 'planned'}")
    check(0 < after["process_bytes"] <= after["budget_bytes"], "the process is beyond its budget")


# ---- the GPT of the examples -----------------------------------------------------------------------------------------


def ddp(model, **options):
    with side_stream():
        return DistributedDataParallel(model, device_ids=[DEVICE], **options)


def sharded(model, **options):
    from torch.distributed.fsdp import fully_shard

    for block in model.blocks:
        fully_shard(block, **options)
    return fully_shard(model, **options)


def mixed(model):
    from torch.distributed.fsdp import MixedPrecisionPolicy

    return sharded(model, mp_policy=MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32))


PROGRAMS = {
    "ddp": ddp,
    "ddp_views": lambda model: ddp(model, gradient_as_bucket_view=True),
    "ddp_small_buckets": lambda model: ddp(model, bucket_cap_mb=2),
    "fsdp": lambda model: sharded(model),
    "fsdp_keeping": lambda model: sharded(model, reshard_after_forward=False),
    "fsdp_mixed": mixed,
}


def workload(program):
    training.make_deterministic()
    gpt2.LAYERS = LAYERS
    model = PROGRAMS[program](gpt2.Gpt2().cuda().train())
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-4, weight_decay=0.1, fused=True, capturable=True)
    batches = [gpt2._draw_batch(BATCH, 4 * RANK + seed) for seed in range(4)]
    tokens, targets = (tensor.cuda() for tensor in batches[0])
    return training.Workload(
        model, optimizer, lambda: gpt2.train_once(model, optimizer, tokens, targets, program != "fsdp_mixed"),
        inputs=(tokens, targets), batches=batches)


def local(tensor):
    return tensor.to_local() if hasattr(tensor, "to_local") else tensor


def sums(work):
    """Of parameters and state, by name, as text that differs with any bit."""
    found = {name: local(tensor) for name, tensor in work.model.named_parameters()}
    for index, state in enumerate(work.optimizer.state.values()):
        found.update((f"{key} {index}", local(value)) for key, value in state.items()
                     if isinstance(value, torch.Tensor))
    return {name: hashlib.sha1(tensor.detach().cpu().reshape(-1).view(torch.uint8).numpy().tobytes()).hexdigest()
            for name, tensor in found.items()}


def run_plain(file, program):
    connect()
    work = workload(program)
    step = training.PlainStep(work.step, WARM_UP)
    losses = training.train(step, work, STEPS)
    peak = torch.cuda.max_memory_allocated()
    found = sums(work)
    times = training.time_replays(step, 5)
    Path(file).write_text(json.dumps({"losses": [loss.hex() for loss in losses], "peak": peak, "sums": found,
                                      "ms": statistics.median(times)}))
    os._exit(0)  # graphs should go before the communicator


def plain(program):
    """Its figures, by a process without PumpGraph; before this one takes memory. Each rank has one, and a group of its
    own."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "figures.json"
        environment = dict(os.environ)
        if RANKS > 1:
            environment["MASTER_PORT"] = str(int(environment["MASTER_PORT"]) + 1)
        result = subprocess.run([sys.executable, __file__, "--plain", str(file), program], stdout=subprocess.PIPE,
                                stderr=subprocess.STDOUT, env=environment)
        check(file.is_file(), f"plain PyTorch does not capture it: {result.stdout.decode()[-1500:]}")
        return json.loads(file.read_text())


def first_difference(mine, theirs):
    different = [name for name in theirs if mine.get(name) != theirs[name]]
    return f"{len(different)} of {len(theirs)} parameters and states differ, the first {different[:3]}"


def equals_plain(program, share=0.5):
    """At this share of its memory: losses, weights and state are those of plain PyTorch's captured step, bit for bit,
    and the time is near the plan bound."""
    expected = plain(program)
    install(int(expected["peak"] * share))
    work = workload(program)
    start = time.perf_counter()
    step = pumpgraph.capture(work.step, warmup=WARM_UP, private=[work.model, work.optimizer], name=program)
    captured_s = time.perf_counter() - start
    report = step.report()
    check(not report.left_as_captured, f"left as captured: {report.left_as_captured}")
    losses = [loss.hex() for loss in training.train(step, work, STEPS)]
    with pumpgraph.mapped(work.model, work.optimizer):
        found = sums(work)
    times = training.time_replays(step, 5)
    report = step.report()
    bound_ms = report["plan_bound_s"] * 1e3
    ms = statistics.median(times)
    say(f"{program} at {share:.0%} of {expected['peak'] // MIB} MiB: {report['nodes']} nodes, "
        f"{(report['up_bytes'] or 0) // MIB} MiB up, captured in {captured_s:.0f} s; {ms:.1f} ms, plan bound "
        f"{bound_ms:.1f} ({ms / bound_ms:.2f}), plain {expected['ms']:.1f}")
    unequal = [index for index, (a, b) in enumerate(zip(losses, expected["losses"])) if a != b]
    if unequal or found != expected["sums"]:
        say(f"unequal; the captured step itself: {step.validate()}")
    check(not unequal, f"losses differ from step {unequal[:1]} on, {len(unequal)} of {STEPS}")
    check(found == expected["sums"], first_difference(found, expected["sums"]))
    check(ms <= OVER_BOUND * bound_ms, f"{ms / bound_ms:.2f} times the plan bound")


def ddp_losses():
    equals_plain("ddp")


def ddp_views_losses():
    equals_plain("ddp_views")


def ddp_small_buckets_losses():
    equals_plain("ddp_small_buckets")


def fsdp_losses():
    equals_plain("fsdp")


def ddp_at_two_thirds():
    equals_plain("ddp", 2 / 3)


def ddp_at_a_third():
    equals_plain("ddp", 1 / 3)


def fsdp_at_two_thirds():
    equals_plain("fsdp", 2 / 3)


def fsdp_at_a_third():
    equals_plain("fsdp", 1 / 3)


def fsdp_keeping_losses():
    equals_plain("fsdp_keeping")


def fsdp_mixed_losses():
    equals_plain("fsdp_mixed")


# ---- a small model, several times in a process -----------------------------------------------------------------------

WIDTH = 512


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.mix, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        q, k, v = (t.unflatten(-1, (8, -1)).transpose(1, 2) for t in self.mix(self.first(x)).chunk(3, -1))
        x = x + self.out(functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))
        return x + self.down(functional.gelu(self.up(self.second(x))))


class Small:
    """A model of four blocks in fp32, and its step."""

    def __init__(self, wrap=lambda model: model):
        torch.manual_seed(0)
        self.model = wrap(nn.Sequential(*[Block() for _ in range(4)]).cuda())
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3, fused=True, capturable=True)
        self.x = torch.randn(8, 256, WIDTH, device="cuda")

    def loss(self, x):
        return (self.model(x) - x.roll(1, 1)).square().mean()

    def step(self):
        loss = self.loss(self.x)
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return loss.detach()

    def values(self):
        """Weights, and first moments, in which a gradient shows."""
        with pumpgraph.mapped(self.model, self.optimizer):
            return {name: (local(p).detach().clone(), local(self.optimizer.state[p]["exp_avg"]).clone())
                    for name, p in self.model.named_parameters()}


def eagerly(small):
    def run():
        run.output = small.step()

    return run, lambda: None


def by_pytorch(small):
    stream, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"):
        output = small.step()

    def run():
        graph.replay()
        run.output = output

    return run, lambda: None


def by_pumpgraph(small, **options):
    step = pumpgraph.capture(small.step, warmup=1, private=[small.model, small.optimizer], **options)

    def run():
        step.replay()
        run.output = step.output

    return run, lambda: say(f"        {step.validate()}; {step.report().get('added_nodes')} nodes added")


WAYS = {
    "eager": eagerly,
    "captured by PyTorch": by_pytorch,
    "left as captured": lambda small: by_pumpgraph(small, leave_as_captured=True),
    "planned": by_pumpgraph,
}


def trained(way, wrap, steps=5):
    """Losses, and the values after the first of `steps` and the last. All have had as many eager steps before."""
    gc.collect()  # the way before
    small = Small(wrap)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    of_pumpgraph = way in ("left as captured", "planned")
    warnings.simplefilter("ignore")
    with torch.cuda.stream(stream):
        for _ in range(WARM_UP - of_pumpgraph):  # capture() makes one more
            small.step()
    torch.cuda.current_stream().wait_stream(stream)
    torch.cuda.synchronize()
    from pumpgraph import data_parallel

    needed, data_parallel.DDP_WARM_UP = data_parallel.DDP_WARM_UP, 1
    try:
        run, explain = WAYS[way](small)
    finally:
        data_parallel.DDP_WARM_UP = needed
    losses, after = [], []
    for index in range(steps):
        run()
        losses.append(run.output.item())
        if index in (0, steps - 1):
            after.append(small.values())
    return losses, after, explain


def deviation(mine, theirs):
    """The largest relative one, and how many differ of weights and of moments."""
    parts = []
    for which, what in enumerate(("weights", "moments")):
        different = [name for name in theirs if not torch.equal(mine[name][which], theirs[name][which])]
        worst = max([((mine[name][which] - theirs[name][which]).abs().max() /
                      theirs[name][which].abs().max()).item() for name in different], default=0)
        parts.append(f"{what} {len(different)}/{len(theirs)} by {worst:.0e} {different[-1:]}" if different
                     else f"{what} equal")
    return ", ".join(parts)


def why_losses_differ():
    """Shows where values part from eager ones: with and without DDP, planned or not, with a fixed order of sums or
    without. With a fixed order all must be equal."""
    install("900MiB")
    wraps = {"no DDP": lambda model: model, "DDP": ddp, "views": lambda model: ddp(model, gradient_as_bucket_view=True)}
    failed = []
    for is_fixed, kinds in ((False, ("no DDP", "DDP")), (True, ("DDP", "views"))):
        torch.use_deterministic_algorithms(is_fixed)
        torch.utils.deterministic.fill_uninitialized_memory = False
        for kind in kinds:
            expected, values, _ = trained("eager", wraps[kind])
            for way in WAYS:
                losses, after, explain = trained(way, wraps[kind])
                unequal = sum(a != b for a, b in zip(losses, expected))
                say(f"{'fixed order' if is_fixed else 'any order'}, {kind}, {way}: {unequal} of {len(expected)} losses "
                    f"differ; after one step {deviation(after[0], values[0])}; after all "
                    f"{deviation(after[-1], values[-1])}")
                if unequal:
                    explain()
                if unequal and is_fixed:
                    failed.append(f"{kind}, {way}")
                del losses, after, explain  # with the memory of this way's step
                gc.collect()
    check(not failed, f"losses differ although sums have a fixed order: {failed}")


def no_sync_inside_the_step():
    """Four batches to an update, the gradients of which meet once: the losses of the plain loop. Around calls it is
    refused."""
    install("400MiB")
    training.make_deterministic()
    batches = [torch.randn(8, 256, WIDTH, device="cuda", generator=torch.Generator("cuda").manual_seed(seed))
               for seed in range(4)]

    def losses(decorate, **more):
        small = Small(lambda model: ddp(model, broadcast_buffers=False, **more))

        @decorate
        def step():
            total = 0
            for index, batch in enumerate(batches):
                with contextlib.nullcontext() if index == 3 else small.model.no_sync():
                    loss = small.loss(batch)
                    loss.backward()
                    total = total + loss.detach()
            small.optimizer.step()
            small.optimizer.zero_grad(set_to_none=True)
            return total

        return small, step, [step().item() for _ in range(WARM_UP + 6)]

    for views in (False, True):
        _, _, expected = losses(lambda step: step, gradient_as_bucket_view=views)
        small, step, found = losses(pumpgraph.graphed, gradient_as_bucket_view=views)
        unequal = [index for index, (a, b) in enumerate(zip(found, expected)) if a != b]
        say(f"views {views}: {len(step.signatures())} graphs, {len(unequal)} of {len(expected)} losses differ, from "
            f"{unequal[:1]} on: {found[:3]}, {expected[:3]}")
        check(not unequal, f"losses differ from call {unequal[:1]} on")
        with small.model.no_sync():
            raises(UnsupportedError, "inside no_sync", pumpgraph.graphed(small.step, on_unsupported="raise"))
        step.reset()
        del small, step
        gc.collect()


def ddp_on_the_default_stream():
    """Is refused with the line to write, or works."""
    install("160MiB")
    training.make_deterministic()
    small = Small(lambda model: DistributedDataParallel(model, device_ids=[DEVICE]))
    try:
        step = pumpgraph.capture(small.step, warmup=WARM_UP, private=[small.model, small.optimizer])
        step.replay()
        say(f"works: {step.output.item()}")
    except UnsupportedError as error:
        say(f"refused: {error}")
        check("made on the default stream" in str(error), "the refusal does not name the stream")


def evaluation_of_shards():
    """Eager forward passes between replays, which keep whole parameters: each sees today's weights."""
    install("400MiB")
    training.make_deterministic()
    from torch.distributed.fsdp import fully_shard

    def figures(decorate):
        small = Small(fully_shard)
        step, found = decorate(small.step), []
        for _ in range(6):
            step()
            with torch.no_grad():
                found.append(small.loss(small.x).item())
        return found

    expected, found = figures(lambda step: step), figures(pumpgraph.graphed)
    check(len(set(expected)) == len(expected), f"the weights do not change: {expected}")
    check(found == expected, f"{found} instead of {expected}")
    say(f"6 evaluations between calls are equal, the last {found[-1]:.6f}")


def sharded_gradients_that_stay():
    """A step that leaves gradients in `.grad`, which are distributed tensors: equal while nobody keeps them."""
    install("240MiB")
    training.make_deterministic()
    from torch.distributed.fsdp import fully_shard

    def losses(decorate, keeps=False):
        small = Small(fully_shard)

        @decorate
        def step():
            small.optimizer.zero_grad(set_to_none=True)
            loss = small.loss(small.x)
            loss.backward()
            small.optimizer.step()
            return loss.detach()

        found, kept = [], None
        for _ in range(8):
            found.append(step().item())
            kept = next(small.model.parameters()).grad if keeps else None
        norm = torch.stack([local(p.grad).norm() for p in small.model.parameters()]).norm().item()
        del kept
        return found, norm

    expected = losses(lambda step: step)
    found = losses(pumpgraph.graphed)
    check(found == expected, f"{found} instead of {expected}")
    raises(pumpgraph.StaleStepError, "holds a distributed tensor", lambda: losses(pumpgraph.graphed, keeps=True))
    say(f"8 losses and the norm of the gradients are equal: {found[1]:.6f}")


def checkpoints():
    """state_dict() and DCP of a sharded model whose values are away."""
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.state_dict import get_model_state_dict
    from torch.distributed.fsdp import fully_shard

    install("400MiB")
    training.make_deterministic()
    small, other = Small(fully_shard), Small(fully_shard)
    step = pumpgraph.graphed(small.step)
    for _ in range(6):
        step()
        other.step()
    expected = {name: local(p).detach().clone() for name, p in other.model.named_parameters()}

    def same(found, what):
        wrong = [name for name in expected if not torch.equal(local(found[name]).detach(), expected[name])]
        check(not wrong, f"{what}: {len(wrong)} of {len(expected)} differ, the first {wrong[:2]}")

    same(dict(small.model.state_dict()), "state_dict()")
    step(), other.step()
    expected = {name: local(p).detach().clone() for name, p in other.model.named_parameters()}
    with tempfile.TemporaryDirectory() as folder:
        with pumpgraph.mapped(small.model, small.optimizer):
            dcp.save({"model": get_model_state_dict(small.model)}, checkpoint_id=folder)
        step()
        loaded = {"model": get_model_state_dict(other.model)}
        with torch.no_grad():
            for p in other.model.parameters():
                local(p).zero_()
        dcp.load(loaded, checkpoint_id=folder)
        same(loaded["model"], "DCP")
    say(f"{len(expected)} parameters are equal after state_dict() and after DCP")


# ---- refusals --------------------------------------------------------------------------------------------------------


def refusals():
    """Each with its text, before a value is wrong; a step without the fault is captured afterwards."""
    install("400MiB")
    x = torch.ones(1 << 20, device="cuda")

    def refused(pattern, step, warmup=1, **options):
        warnings.simplefilter("ignore")
        raises(UnsupportedError, pattern, lambda: pumpgraph.capture(step, warmup=warmup, **options))
        torch.cuda.synchronize()

    refused("torch.distributed's barrier .*makes the host wait", lambda: dist.barrier() or x.sum())
    objects = [None] * RANKS
    refused("waits for the device|in host memory", lambda: dist.all_gather_object(objects, {"a": 1}) or x.sum())
    gloo = dist.new_group(backend="gloo")
    refused("uses the backend \"gloo\"", lambda: dist.all_reduce(x, group=gloo) or x.sum())
    os.environ["NCCL_GRAPH_REGISTER"] = "1"
    refused("NCCL_GRAPH_REGISTER is 1", lambda: dist.all_reduce(x) or x.sum())
    os.environ["NCCL_GRAPH_REGISTER"] = "0"

    for pattern, options in (("find_unused_parameters=True", {"find_unused_parameters": True}),
                             ("static_graph=True", {"static_graph": True})):
        small = Small(lambda model, options=options: ddp(model, **options))
        refused(pattern, small.step, WARM_UP, private=[small.model, small.optimizer])
    small = Small(ddp)
    raises(pumpgraph.PumpGraphError, "warmup=3: DistributedDataParallel .*write warmup=11",
           lambda: pumpgraph.capture(small.step, private=[small.model, small.optimizer]))
    from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import bf16_compress_hook

    def looks(x):
        first = small.loss(x).item()
        return small.loss(x) + first

    raises(UnsupportedError, "leave out split=True", lambda: pumpgraph.graphed(looks, split=True)(small.x))
    small.model.register_comm_hook(None, bf16_compress_hook)
    refused("communication hook", small.step, WARM_UP, private=[small.model, small.optimizer])

    from torch.distributed.fsdp import CPUOffloadPolicy, fully_shard

    small = Small(lambda model: fully_shard(model, offload_policy=CPUOffloadPolicy()))
    refused("CPUOffloadPolicy", lambda: small.model(small.x).sum(), private=[small.model])
    small = Small(fully_shard)
    small.model.set_requires_gradient_sync(False)
    refused("inside the step, which then has all batches", small.step, private=[small.model, small.optimizer])
    small.model.set_requires_gradient_sync(True)

    def accumulate_and_leave():
        small.model.set_requires_gradient_sync(False)
        loss = small.loss(small.x)
        loss.backward()
        small.model.set_requires_gradient_sync(True)
        return loss.detach()

    refused("leaves whole gradients", accumulate_and_leave, private=[small.model, small.optimizer])
    fine = Small(fully_shard)
    step = pumpgraph.capture(fine.step, warmup=2, private=[fine.model, fine.optimizer])
    step.replay()
    say(f"all are refused; after them a step has the loss {step.output.item():.4f}")


def hang_becomes_an_error():
    """A capture that waits in Python raises; one that waits in C ends the process, with the reason."""
    if "--in-c" not in sys.argv:
        result = subprocess.run([sys.executable, __file__, "hang_becomes_an_error", "--in-c"], stdout=subprocess.PIPE,
                                stderr=subprocess.STDOUT, timeout=60)
        text = result.stdout.decode()
        check(result.returncode == 1, f"exit status {result.returncode}: {text[-1500:]}")
        check("the process ends" in text and "pause" in text, f"no reason: {text[-1500:]}")
        say("\n".join(line for line in text.splitlines() if line.startswith("pumpgraph:")))
    os.environ["PUMPGRAPH_CAPTURE_SECONDS"] = "2"
    install("100MiB")
    x = torch.ones(1 << 20, device="cuda")

    def step():
        dist.all_reduce(x)
        if torch.cuda.is_current_stream_capturing():
            if "--in-c" in sys.argv:
                ctypes.CDLL(None).pause()
            for _ in range(1000):
                time.sleep(0.02)
        return x.sum()

    raises(UnsupportedError, "is being captured for over 2 s in the rehearsal, after the call of torch.distributed's "
           "allreduce_", lambda: pumpgraph.capture(step, warmup=1))
    captured = pumpgraph.capture(lambda: x.sum(), warmup=1)
    captured.replay()
    check(captured.output.item() == 1 << 20, "the device does not work any more")


def rank_is_killed():
    """Between two replays: the other rank's next one cannot end, and ends its process within the time-out."""
    if "--killed" not in sys.argv:
        check(RANKS > 1, "it needs two ranks")
        began = time.monotonic()
        result = subprocess.run([sys.executable, __file__, "rank_is_killed", "--killed"], stdout=subprocess.PIPE,
                                stderr=subprocess.STDOUT, timeout=200)
        text = result.stdout.decode()
        if RANK == RANKS - 1:
            check(result.returncode == -signal.SIGKILL, f"exit status {result.returncode}: {text[-1500:]}")
        else:
            check(result.returncode == 1, f"exit status {result.returncode}: {text[-1500:]}")
            check("another rank may have ended" in text, f"no reason: {text[-1500:]}")
            say(f"after {time.monotonic() - began:.0f} s: {text.splitlines()[-1]}")
        return
    install("900MiB")
    with side_stream():
        small = Small(ddp)
    step = pumpgraph.capture(small.step, warmup=WARM_UP, private=[small.model, small.optimizer])
    for count in range(20):
        step.replay()
        if count == 5:
            step.output.item()
            if RANK == RANKS - 1:
                os.kill(os.getpid(), signal.SIGKILL)
    torch.cuda.synchronize()
    say("the replays have ended")


CASES = [
    collectives_as_nodes,
    memory_of_nccl,
    why_losses_differ,
    ddp_losses,
    ddp_views_losses,
    ddp_small_buckets_losses,
    no_sync_inside_the_step,
    ddp_on_the_default_stream,
    fsdp_losses,
    fsdp_keeping_losses,
    fsdp_mixed_losses,
    evaluation_of_shards,
    sharded_gradients_that_stay,
    checkpoints,
    refusals,
    hang_becomes_an_error,
    rank_is_killed,
    ddp_at_two_thirds,
    ddp_at_a_third,
    fsdp_at_two_thirds,
    fsdp_at_a_third,
]


def main():
    if sys.argv[1:2] == ["--plain"]:
        run_plain(*sys.argv[2:])
    run_named(CASES)
    sys.stdout.flush()
    os._exit(0)  # graphs should go before the communicator


if __name__ == "__main__":
    main()
