#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""GPU tests of CuPy under PumpGraph: values, refusals, declared reads, one session with PyTorch, and an analytics step
beyond its budget. One case a process, for a process has one session: cupy_cases.py CASE.
"""

import os
import sys
import time
from pathlib import Path

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "runtime" / "python"))

from named_cases import check, raises, run_named  # noqa: E402

import cupy  # noqa: E402
import cupyx  # noqa: E402
import numpy  # noqa: E402

import pumpgraph  # noqa: E402
import pumpgraph.cupy as pump  # noqa: E402
from pumpgraph import nested  # noqa: E402

MIB = 1 << 20
ROWS = 4 * MIB  # 16 MiB of float32
SCALE = 2.0


def drawn(rows=ROWS, seed=0, dtype="float32", low=-1.0, high=1.0):
    generator = numpy.random.default_rng(seed)
    return cupy.asarray(generator.uniform(low, high, rows).astype(dtype))


def keys_of(rows=ROWS, groups=1000, seed=1):
    return cupy.asarray(numpy.random.default_rng(seed).integers(0, groups, rows).astype("int32"))


def on_host(value):
    """The same nesting around arrays of NumPy."""
    return nested.replaced(value, lambda item: item.get() if isinstance(item, cupy.ndarray) else item)


def leaves(value):
    if isinstance(value, (list, tuple)):
        return [leaf for item in value for leaf in leaves(item)]
    if isinstance(value, dict):
        return [leaf for item in value.values() for leaf in leaves(item)]
    return [value] if isinstance(value, (cupy.ndarray, numpy.ndarray)) else []


def same(got, expected, what):
    """Bit for bit, on the host: nothing that is compared is CuPy's."""
    pairs = list(zip(leaves(got), leaves(expected)))
    check(pairs or got is None, f"{what}: no arrays in {got!r}")
    for index, (own, plain) in enumerate(pairs):
        check(own.dtype == plain.dtype and own.shape == plain.shape,
              f"{what}: {own.dtype} {own.shape}, not {plain.dtype} {plain.shape}")
        own, plain = cupy.asnumpy(own), cupy.asnumpy(plain)
        if own.tobytes() != plain.tobytes():
            at = int(numpy.argmax(own.ravel() != plain.ravel()))
            raise AssertionError(f"{what}: result {index} differs at {at}: {own.ravel()[at]} and {plain.ravel()[at]}")


def follow(fn, make, calls=7, close=None, **options):
    """A graphed function gives in each call what the function gives, results and arguments. `make`: arguments by call.
    `close`: compares results that may differ in their last bits."""
    graphed = pump.graphed(fn, **options)
    for call in range(calls):
        plain = make(call)
        expected = on_host(fn(*plain))
        plain = on_host(plain)  # nothing else needs room on the device
        own = make(call)
        (close or same)(graphed(*own), expected, f"call {call}")
        same(own, plain, f"arguments of call {call}")
    check(graphed.is_captured, "nothing was captured")
    report = graphed.report()
    check(not report.left_as_captured, f"left as captured: {report.left_as_captured}")
    graphed.validate()
    return graphed


def moved(graphed):
    """Whether the plan moves something."""
    return bool(graphed.report().get("added_nodes") or graphed.report().get("hosted_bytes"))


def install(budget="128MiB"):
    pump.install(budget, budget_of="tensors")


# ---- values ----------------------------------------------------------------------------------------------------------


def facts():
    """Of this CuPy: what the package relies on, and what it does without."""
    install()
    kernel = cupy.ElementwiseKernel("raw T x, T y", "T z", "z = x[i] + y", "k")
    print("CuPy", cupy.__version__, "CUDA", cupy.cuda.runtime.runtimeGetVersion(), "thrust",
          getattr(getattr(cupy.cuda, "thrust", None), "available", None), "numpy", numpy.__version__)
    print("parameters of a kernel", [(each.name, each.raw, each.is_const) for each in kernel.in_params])
    reduction = cupy.ReductionKernel("T x", "T y", "x", "a + b", "y = a", "0", "r")
    print("parameters of a reduction", [(each.name, each.raw, each.is_const)
                                        for each in getattr(reduction, "in_params", ())])
    array = drawn(16)
    installation = pump.memory.installed()
    check(installation.allocation_of(array) is not None, "the array's memory is not found")
    check(installation.allocation_of(array[4:]) is installation.allocation_of(array), "nor that of a view")
    before = vars(cupy.ndarray).get("__add__")
    cupy.ndarray.__add__ = cupy.ndarray.__add__
    del cupy.ndarray.__add__
    print("methods of arrays can be replaced", before is None, (array + 1.0)[:2])
    replaced = [name for name in (*pump.entry_points._METHODS, *pump.entry_points._IN_PLACE, *pump.refusals.METHODS)
                if not hasattr(cupy.ndarray, name)]
    functions = [name for name in (*pump.entry_points._READS, *pump.refusals.FUNCTIONS) if not hasattr(cupy, name)]
    print("not there:", replaced, functions)


def elementwise():
    install()

    def fn(x, y):
        a = x * 2.0 + y
        b = cupy.sqrt(cupy.abs(a)) - cupy.exp(-a)
        c = cupy.where(b > x, b, 1.0 - y)
        d = (c ** 2 + a) / (1.0 + b * b)
        return cupy.clip(d, -2.0, 2.0), a - d

    graphed = follow(fn, lambda n: (drawn(seed=n), drawn(seed=n + 50)))
    report = graphed.report()
    print("moves:", moved(graphed))
    print(report)
    check(report.get("accesses", {}).get("declared", 0) > 0, f"no reads are declared: {report.get('accesses')}")


def reductions():
    install()

    def fn(x):
        grid = x.reshape(1024, -1)
        centred = grid - grid.mean(axis=1, keepdims=True)
        running = cupy.cumsum((x * 100).astype("int64"))  # of integers, which give the same sums in any order
        return (centred.sum(axis=0), grid.max(axis=1), cupy.argmax(x), x.sum(), centred.std(), running[::512] + 1,
                (grid > 0.0).any(axis=1), cupy.prod(grid[:, :8], axis=1))

    follow(fn, lambda n: (drawn(seed=n),))


def products():
    install("256MiB")

    def close(got, expected, what):
        for own, plain in zip(leaves(got), leaves(expected)):
            own, plain = cupy.asnumpy(own), cupy.asnumpy(plain)
            worst = float(numpy.abs(own - plain).max() / numpy.abs(plain).max())
            check(worst < 1e-5, f"{what}: products differ by {worst}")
            follow.bits = getattr(follow, "bits", True) and own.tobytes() == plain.tobytes()

    def fn(a, b, c):
        d = a @ b
        return cupy.matmul(d, c.T) + 1.0, cupy.dot(a.T, d)

    def of(n, *shape):
        return drawn(int(numpy.prod(shape)), n).reshape(shape)

    graphed = follow(fn, lambda n: (of(n, 1024, 512), of(n + 1, 512, 768), of(n + 2, 256, 768)), close=close)
    print("the bits of cuBLAS in CuPy and in the step are equal:", follow.bits)
    print(graphed.report())
    follow(lambda a, b: cupy.matmul(a, b), lambda n: (of(n, 8, 64, 32), of(n + 1, 8, 32, 16)), close=close)
    follow(lambda a, b: cupy.dot(a, b), lambda n: (drawn(64, n), drawn(64, n + 1)), close=close)


def sorting():
    install()

    def fn(x, keys):
        ordered = cupy.sort(x)
        order = cupy.argsort(keys)
        return ordered[-100:], cupy.take(x, order), x[order[:1000]], cupy.searchsorted(ordered, x[:1000])

    graphed = follow(fn, lambda n: (drawn(seed=n), keys_of(seed=n)))
    print("moves:", moved(graphed))
    print(graphed.report())


def groups():
    install()

    def fn(keys, values):
        wanted = values > 0.0
        kept = cupy.where(wanted, values, 0)
        counts = cupy.zeros(1000, "int32")
        cupyx.scatter_add(counts, keys, wanted.astype("int32"))
        largest = cupy.full(1000, -1, "int32")
        cupyx.scatter_max(largest, keys, (kept * 1000).astype("int32"))
        return counts, largest, kept.sum()

    follow(fn, lambda n: (keys_of(seed=n), drawn(seed=n)))


def in_place():
    install()
    state = drawn(seed=9)

    def fn(x, y):
        x += y
        y[::2] = 0.0
        cupy.multiply(x, 2.0, out=y)
        x.sort()
        cupy.minimum(x, 0.5, out=x)
        return y * 1.0

    follow(fn, lambda n: (drawn(seed=n), drawn(seed=n + 50)))

    @pump.graphed
    def update(x):
        cupy.multiply(state, 0.5, out=state)
        state[...] = state + x
        return state

    expected = state.copy()
    for n in range(6):
        x = drawn(seed=n)
        check(update(x) is state, "another array")
        expected = expected * 0.5 + x
        same(state, expected, f"call {n}")
        state += 1.0  # by the program, between replays
        expected += 1.0


def closures():
    install()
    box = {"weight": drawn(seed=3)}

    @pump.graphed
    def fn(x):
        return x * box["weight"] * SCALE

    global SCALE
    for n in range(12):
        if n == 4:
            box["weight"] = drawn(seed=4)
        if n == 8:
            SCALE = 3.0
        x = drawn(seed=n)
        same(fn(x), x * box["weight"] * SCALE, f"call {n}")
        if n % 4 == 3:
            box["weight"] += 1.0
    check(len(fn.signatures()) == 3, f"{len(fn.signatures())} graphs")


def numbers_and_shapes():
    install()
    calls = [(rows, factor) for rows in (ROWS, ROWS // 2) for factor in (2, 2.0, 0.5)]

    def fn(x, factor):
        return x * factor + x.sum()

    graphed = pump.graphed(fn)
    for rows, factor in calls * 4:
        x = drawn(rows, seed=rows)
        same(graphed(x, factor), fn(x, factor), f"{rows} {factor}")
    check(len(graphed.signatures()) == len(calls), f"{graphed.signatures()}")
    whole = drawn(ROWS)
    for _ in range(4):
        same(graphed(whole[::2], 2), fn(whole[::2], 2), "strided")


def results_are_kept():
    install("256MiB")
    graphed = pump.graphed(lambda x: (x + 1.0, (x + 1.0)[10:20]))
    given = [drawn(MIB, seed=n) for n in range(6)]
    kept = [graphed(x) for x in given]
    for x, result in zip(given, kept):
        same(result, (x + 1.0, (x + 1.0)[10:20]), "kept")


def kernels():
    install()
    scaled = cupy.ElementwiseKernel("T x, T y", "T z", "z = x * 2 + y", "scaled")
    gathered = cupy.ElementwiseKernel("raw T x, int32 at", "T z", "z = x[at]", "gathered")
    squares = cupy.ReductionKernel("T x", "T y", "x * x", "a + b", "y = a", "0", "squares")
    code = """extern "C" __global__ void shift(const float *in, float *out, int n) {
      int i = blockIdx.x * blockDim.x + threadIdx.x;
      if (i < n) out[i] = in[i] + 1;
    }"""
    raw = cupy.RawKernel(code, "shift")
    known = pump.declared(raw, reads=[0])

    def fn(x, at):
        y, z = cupy.empty_like(x), cupy.empty_like(x)
        launch = (-(-x.size // 256),), (256,)
        raw(*launch, (x, y, numpy.int32(x.size)))
        known(*launch, (y, z, numpy.int32(x.size)))
        return scaled(x, z), gathered(z, at), squares(y)

    follow(fn, lambda n: (drawn(seed=n), keys_of(groups=ROWS, seed=n)))

    def writes(x, y):
        raw((1,), (256,), (x, y, numpy.int32(256)))

    follow(writes, lambda n: (drawn(256, seed=n), drawn(256, seed=n + 9)))
    wrong = pump.graphed(lambda x: (lied((-(-x.size // 256),), (256,), (source, x, numpy.int32(x.size))), x * 1.0)[1])
    source = drawn(seed=5)
    lied = pump.declared(raw, reads=[0, 1])
    for n in range(3):
        wrong(drawn(seed=n))
    try:
        wrong.validate()
        print("validate() does not see that reads= is wrong here")
    except pumpgraph.PumpGraphError as error:
        print("validate() says:", str(error)[:200])


def refusals():
    install("256MiB")
    small = numpy.arange(4.0)

    def sampled(x):
        return x + cupy.random.normal(size=x.shape)

    cases = [
        (lambda x: x * int(x.sum()), "__int__|get"),
        (lambda x: x * x.max().item(), "item"),
        (lambda x: x if x.sum() > 0 else -x, r"__bool__.*cupy.where"),
        (lambda x: (x, x.get())[0], r"get\(\)"),
        (lambda x: (x * 2.0, x.get(blocking=False))[0], r"get\(\)"),
        (lambda x: x[x > 0.0], r"array\[mask\]"),
        (lambda x: cupy.nonzero(x)[0], "nonzero"),
        (lambda x: cupy.unique(x), "unique"),
        (lambda x: cupy.bincount(x.astype("int32") + 2), "scatter_add"),
        (lambda x: x[[0, 1, 2]], "index on the host"),
        (lambda x: x[:4] + cupy.asarray(small), "values on the host"),
        (lambda x: x[:4] + cupy.array([1.0, 2.0, 3.0, 4.0]), "values on the host"),
        (sampled, "cupy.random"),
    ]
    x = drawn(MIB)
    for index, (fn, pattern) in enumerate(cases):
        graphed = pump.graphed(fn)
        graphed(x)
        graphed(x)
        raises(pumpgraph.UnsupportedError, pattern, lambda graphed=graphed: graphed(x))
        same(x + 1.0, cupy.asarray(x.get() + numpy.float32(1.0)), f"after refusal {index}")
    fine = pump.graphed(lambda x: x + 1.0)
    for n in range(5):
        same(fine(x), x + 1.0, "a step after refusals")
    generator = cupy.random.default_rng(7)
    draw = pump.graphed(lambda x: x + generator.random(x.shape, dtype="float32"))
    results = [draw(x).get() for _ in range(5)]
    check(all((a != b).any() for i, a in enumerate(results) for b in results[:i]), "replays draw the same numbers")


def privates():
    """The table has no room on the device beside the rest."""
    install("160MiB")
    tables = [pump.Private(drawn(seed=n)) for n in range(8)]  # 128 MiB

    @pump.graphed
    def fn(x):
        total = x * 1.0
        for table in tables:
            total = total + table.array
            table.array[...] = table.array * 0.5
        return total

    values = [drawn(seed=n).get() for n in range(8)]
    for n in range(6):
        x = drawn(seed=n + 20).get()
        expected = x * numpy.float32(1.0)
        for index, value in enumerate(values):
            expected = expected + value
            values[index] = value * numpy.float32(0.5)
        check(numpy.array_equal(fn(cupy.asarray(x)).get(), expected), f"call {n}")
    with pump.mapped(*tables) as arrays:
        for array, value in zip(arrays, values):
            check(numpy.array_equal(array.get(), value), "a table differs in mapped()")
        arrays[0][...] = 0.0
    values[0][...] = 0.0
    x = drawn(seed=40).get()
    check(numpy.array_equal(fn(cupy.asarray(x)).get(), sum(values, x)), "after a write in mapped()")
    print(fn.report())


def streams():
    install("256MiB")
    graphed = pump.graphed(lambda x: cupy.sort(x * 2.0) + 1.0)
    one, two = cupy.cuda.Stream(non_blocking=True), cupy.cuda.Stream(non_blocking=True)
    for n in range(12):
        with (one, two)[n % 2] as stream:
            x = drawn(MIB, seed=n)
            result = graphed(x)
            stream.synchronize()
            same(result, cupy.sort(x * 2.0) + 1.0, f"call {n}")

    side = cupy.cuda.Stream(non_blocking=True)

    def forks(x):
        side.wait_event(cupy.cuda.get_current_stream().record())
        with side:
            y = x * 3.0
        cupy.cuda.get_current_stream().wait_event(side.record())
        return y + x

    forked = pump.graphed(forks)
    for n in range(6):
        x = drawn(MIB, seed=n)
        same(forked(x), x * 3.0 + x, f"forked {n}")


def capture_in_place():
    install()
    x, w = drawn(seed=1), drawn(seed=2)
    step = pump.capture(lambda a: cupy.sort(a) * w, x)
    for n in range(5):
        x[...] = drawn(seed=n)
        w += 1.0
        step.replay()
        same(step.output, cupy.sort(x) * w, f"replay {n}")
    step.validate()
    step.close()


def out_of_memory():
    pump.install("64MiB", budget_of="tensors", host_limit="64MiB")
    kept = []
    try:
        while len(kept) < 64:
            kept.append(drawn())
    except cupy.cuda.memory.OutOfMemoryError as error:
        print(error)
    check(2 < len(kept) < 16, f"{len(kept)} arrays of 16 MiB")
    kept.clear()
    same(drawn() + 1.0, cupy.asarray(drawn().get() + numpy.float32(1.0)), "afterwards")


def with_torch():
    """One session and one budget; arrays cross by DLPack."""
    import torch

    pumpgraph.install("1GiB")
    raises(pumpgraph.PumpGraphError, "without a budget", lambda: pump.install("1GiB"))
    pump.install()
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(512, 2048), torch.nn.GELU(), torch.nn.Linear(2048, 512)).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)

    def train(x):
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss

    features = pump.graphed(lambda x: (cupy.sort(x, axis=1) - x.mean()) * 0.5)
    step = pumpgraph.graphed(train)
    before = {name: value.clone() for name, value in model.state_dict().items()}

    def losses_of(run, prepare):
        for n in range(8):
            made = prepare(drawn(256 * 512, seed=n).reshape(256, 512))
            back = cupy.from_dlpack(torch.from_dlpack(made))
            check(back.data.ptr == made.data.ptr, "the array was copied")
            yield float(run(torch.from_dlpack(made)))

    losses = list(losses_of(step, features))
    with torch.no_grad():
        for name, value in model.state_dict().items():
            value.copy_(before[name])
    plain = list(losses_of(train, lambda x: (cupy.sort(x, axis=1) - x.mean()) * 0.5))
    check(losses == plain, f"losses {losses} and {plain}")
    check(pump.memory_stats()["live_bytes"] == pumpgraph.memory_stats()["live_bytes"], "two sessions")


# ---- an analytics step beyond its budget -----------------------------------------------------------------------------

SALES = 32 * MIB
REGIONS = 4096


def analytics(keys, prices, amounts):
    """Filter, sort, group-by, top-k."""
    sales = prices * amounts
    wanted = (amounts > 2.0) & (prices < 90.0)
    kept = cupy.where(wanted, sales, 0)
    by_region = cupy.zeros(REGIONS, "uint64")
    cupyx.scatter_add(by_region, keys, (kept * 100).astype("uint64"))
    counts = cupy.zeros(REGIONS, "int32")
    cupyx.scatter_add(counts, keys, wanted.astype("int32"))
    ordered = cupy.sort(kept)
    top = ordered[-100:] * 1.0
    share = (kept - kept.mean()) / (kept.std() + 1.0)
    outliers = cupy.abs(share) > 3.0
    trimmed = cupy.where(outliers, 0, kept)
    running = cupy.cumsum((trimmed * 100).astype("int64"))
    return by_region, counts, top, trimmed.sum(), running[::4096] + 1, outliers.sum()


def seconds(run, repeats=5):
    best = []
    for _ in range(repeats):
        cupy.cuda.runtime.deviceSynchronize()
        start = time.perf_counter()
        run()
        cupy.cuda.runtime.deviceSynchronize()
        best.append(time.perf_counter() - start)
    return sorted(best)[len(best) // 2]


def analytics_beyond_budget():
    """Beside plain CuPy with all in memory, whose results are the same."""
    table = [keys_of(SALES, REGIONS), drawn(SALES, 1, low=1.0, high=100.0), drawn(SALES, 2, low=0.0, high=10.0)]
    expected = [result.get() for result in analytics(*table)]
    plain_s = seconds(lambda: analytics(*table))
    pool = cupy.get_default_memory_pool()
    pool.free_all_blocks()
    start = pool.total_bytes()
    analytics(*table)
    peak = pool.total_bytes()
    columns = [array.get() for array in table]
    table.clear()
    pool.free_all_blocks()
    budget = peak // 2
    print(f"peak {peak / MIB:.0f} MiB, of which {start / MIB:.0f} MiB are input; budget {budget / MIB:.0f} MiB")
    pump.install(budget, budget_of="tensors")
    tables = [cupy.asarray(column) for column in columns]

    def of_the_table():
        return analytics(*tables)

    step = pump.graphed(of_the_table)
    for call in range(40):
        results = step()
        if call in (2, 3, 10, 39):
            for index, (own, plain) in enumerate(zip(results, expected)):
                check(numpy.array_equal(own.get(), plain), f"call {call}: result {index} differs")
    step_s = seconds(step, 9)
    report = step.report()
    print(report)
    figures = {key: round(value * 1e3, 2) for key, value in report.items()
               if key.endswith("_s") and isinstance(value, (int, float))}
    print("milliseconds of the report:", figures)
    print("accesses:", report.get("accesses"))
    print(f"plain CuPy in memory {plain_s * 1e3:.2f} ms; under half of its peak {step_s * 1e3:.2f} ms")
    if os.environ.get("OUT"):
        step.save(Path(os.environ["OUT"]) / "analytics.mlir.gz")
    for index, (own, plain) in enumerate(zip(step(), expected)):
        check(numpy.array_equal(own.get(), plain), f"at the end: result {index} differs")


CASES = [
    facts,
    elementwise,
    reductions,
    products,
    sorting,
    groups,
    in_place,
    closures,
    numbers_and_shapes,
    results_are_kept,
    kernels,
    refusals,
    privates,
    streams,
    capture_in_place,
    out_of_memory,
    with_torch,
    analytics_beyond_budget,
]


def main():
    run_named(CASES)


if __name__ == "__main__":
    main()
