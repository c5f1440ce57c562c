# SPDX-License-Identifier: Apache-2.0
"""pumpgraph.cupy with stand-ins for CuPy and for the library. Numbers are real: a replay runs what was recorded."""

import array
import collections
import contextvars
import gc
import itertools
import random
import sys
import threading
import types
import unittest
import unittest.mock

import support

sys.path.insert(0, str(support.ROOT / "test" / "python" / "fake_cupy"))

import cupy  # noqa: E402

import pumpgraph.cupy as pump  # noqa: E402
from pumpgraph import PumpGraphError, Status, UnsupportedError, _capi, _session  # noqa: E402
from pumpgraph.cupy import accesses, graph_nodes, memory, steps, surroundings  # noqa: E402

_addresses = itertools.count(0x10000000, 1 << 28)
SCALE = 2.0


def numbers(*values):
    array = cupy.empty(len(values))
    array.put(list(values))
    return array


class CupyTest(support.FakeLibraryTest):
    """Installed, with a library whose steps run. Every test has addresses of its own."""

    def setUp(self):
        super().setUp()
        memory._installation = None
        self.addCleanup(self._uninstall)
        self.control.fake_allocate_from(support.ctypes.c_uint64(next(_addresses)))
        self.replace(_capi, "load", lambda: self.library)
        self.replace(memory.messages, "forward", lambda library: None)
        self.graphs = []
        adopt, replay, save = _session.Session.adopt, _session.NativeStep.replay, _session.NativeStep.save

        def adopt_graph(session, graph, **options):
            native = adopt(session, graph, **options)
            native.graph = graph
            self.graphs.append(cupy.graphs[graph])
            return native

        def replay_graph(native, stream):
            replay(native, stream)
            cupy.replay(native.graph)

        def save_graph(native, path):
            save(native, path)
            with open(path, "w") as file:
                file.write(ir_of(cupy.graphs[native.graph]))

        self.replace(_session.Session, "adopt", adopt_graph)
        self.replace(_session.NativeStep, "replay", replay_graph)
        self.replace(_session.NativeStep, "save", save_graph)
        self.replace(steps, "host_traffic", lambda graph, is_ours: next(
            (each.host for each in cupy.graphs[graph] if each.host), None))
        pump.install("1GiB")
        self.calls()

    def replace(self, holder, name, value):
        before = getattr(holder, name)
        setattr(holder, name, value)
        self.addCleanup(setattr, holder, name, before)

    def _uninstall(self):
        memory._installation = None
        cupy.cuda.set_allocator(None)
        gc.collect()
        self.control.fake_allocate_from(support.ctypes.c_uint64(0))

    def refused(self, pattern, call, *args):
        with self.assertRaisesRegex(UnsupportedError, pattern) as raised:
            call(*args)
        return str(raised.exception)


def ir_of(launches):
    """With a buffer for each allocation that a launch touches."""
    buffers, accesses = {}, []
    for launch in launches:
        for mode, touched in (("read", launch.reads), ("write", launch.writes)):
            for owner, low, high in touched:
                buffers[owner] = f"%b{owner:x}"
                accesses.append(f"{mode} %b{owner:x}[{low - owner}, {high - low}] declared")
    lines = [f'  {name} = pump.buffer "b" present size(65536) address({owner:#x})' for owner, name in buffers.items()]
    return "pump.graph @step {\n" + "\n".join(lines) + f'\n  %k = pump.kernel "k" node(0) [{", ".join(accesses)}]\n}}\n'


class Memory(CupyTest):
    def test_arrays_come_from_the_session_on_the_current_stream(self):
        stream = cupy.cuda.Stream()
        with stream:
            array = cupy.empty(4)
        pointer = array.data.ptr
        self.assertEqual(self.calls(), [f"allocate 0x5e55 32 {stream.ptr:#x} NULL"])
        del array
        self.assertEqual(self.calls(), [f"free 0x5e55 {pointer:#x} {stream.ptr:#x}"])

    def test_a_view_keeps_the_memory(self):
        view = cupy.empty(4)[1:]
        self.assertEqual(len(self.calls()), 1)
        del view
        self.assertIn("free", self.calls()[0])

    def test_an_empty_array_needs_none(self):
        self.assertEqual(cupy.empty(0).data.ptr, 0)
        self.assertEqual(self.calls(), [])

    def test_a_shortage_is_cupys_and_ours(self):
        for _ in range(2):
            self.control.fake_fail(b"allocate", int(Status.OUT_OF_DEVICE_MEMORY), b"no room")
            cupy.empty(4)  # the second try has room
        self.replace(_session.Session, "allocate", self._short)
        with self.assertRaises(cupy.cuda.memory.OutOfMemoryError) as raised:
            cupy.empty(4)
        self.assertIsInstance(raised.exception, PumpGraphError)
        self.assertIn("CUDA out of memory. no room", str(raised.exception))

    def _short(self, size, stream):
        raise support._capi.error_of(Status.OUT_OF_DEVICE_MEMORY, "no room")

    def test_another_device_is_left_to_cupy(self):
        cupy.cuda.runtime.device[0] = 1
        self.addCleanup(cupy.cuda.runtime.device.__setitem__, 0, 0)
        self.assertGreaterEqual(cupy.empty(4).data.ptr, 0x7f0000000000)

    def test_install(self):
        with self.assertRaisesRegex(PumpGraphError, "was called before"):
            pump.install("1GiB")
        memory._installation = None
        with self.assertRaisesRegex(PumpGraphError, "give a budget"):
            pump.install()
        with self.assertRaisesRegex(PumpGraphError, "neither|not a size"):
            pump.install("much")
        with self.assertRaisesRegex(PumpGraphError, "has not been called"):
            pump.memory_stats()

    def test_pytorchs_session_is_shared(self):
        memory._installation = None
        log = []
        guard = types.SimpleNamespace(moves=False, put_away=lambda: log.append("away"), arm=lambda: log.append("arm"),
                                      rest=lambda: log.append("rest"))
        session = _session.Session(self.library, 1 << 30)
        torch = types.SimpleNamespace(_installation=types.SimpleNamespace(session=session, guard=guard))
        modules = unittest.mock.patch.dict(sys.modules, {"pumpgraph.torch_capture": torch})
        modules.start()
        self.addCleanup(modules.stop)
        with self.assertRaisesRegex(PumpGraphError, "without a budget"):
            pump.install("1GiB")
        pump.install()
        self.assertIs(memory.installed().session, session)
        memory.installed().before_replay()
        memory.installed().rest()
        self.assertEqual((guard.moves, log), (True, ["away", "arm", "rest"]))


class Values(CupyTest):
    """A graphed function gives what the function gives."""

    def same(self, fn, calls, **options):
        """Of arguments made by each of `calls`: results and what becomes of the arguments."""
        graphed = pump.graphed(fn, **options)
        for make in calls:
            plain, own = make(), make()
            expected, result = fn(*plain), graphed(*own)
            self.assertEqual(flat(result), flat(expected))
            self.assertEqual(flat(own), flat(plain))
        return graphed

    def test_other_values_in_each_call(self):
        graphed = self.same(lambda x, y: (x * 2.0 + y).sum(), [lambda n=n: (numbers(1, n), numbers(n, 3))
                                                               for n in range(6)])
        self.assertTrue(graphed.is_captured)
        self.assertEqual(sum("replay" in line for line in self.calls()), 4)

    def test_results_can_be_kept(self):
        graphed = pump.graphed(lambda x: x + 1.0)
        kept = [graphed(numbers(n)) for n in range(5)]
        self.assertEqual([each.numbers() for each in kept], [[1.0], [2.0], [3.0], [4.0], [5.0]])

    def test_results_share_memory_as_the_originals_do(self):
        def fn(x):
            y = x + 1.0
            return {"all": y, "end": y[1:], "again": y}

        graphed = pump.graphed(fn)
        for _ in range(4):
            result = graphed(numbers(1, 2, 3))
        self.assertEqual(result["end"].numbers(), [3.0, 4.0])
        self.assertIs(result["all"], result["again"])
        result["all"][...] = 7.0
        self.assertEqual(result["end"].numbers(), [7.0, 7.0])

    def test_arguments_that_are_written(self):
        def fn(x, y):
            x += y
            return x

        self.same(fn, [lambda n=n: (numbers(n, 1), numbers(1, 2)) for n in range(5)])

    def test_the_same_array_twice(self):
        def fn(x, y):
            x += 1.0
            return y * 2.0

        graphed = pump.graphed(fn)
        for n in range(5):
            x = numbers(n)
            self.assertEqual(graphed(x, x).numbers(), [2.0 * (n + 1)])
        for n in range(3):  # and another kind of call with two
            self.assertEqual(graphed(numbers(n), numbers(5)).numbers(), [10.0])

    def test_parts_of_one_array_that_is_written_are_refused(self):
        def fn(x, y):
            x += 1.0
            return y * 2.0

        graphed = pump.graphed(fn, warmup=1)
        whole = numbers(1, 2, 3)
        graphed(whole[:2], whole[1:])
        self.refused("two of its arguments share", graphed, whole[:2], whole[1:])

    def test_parts_of_one_array_that_is_read(self):
        def parts():
            whole = numbers(1, 2, 3)
            return whole[:2], whole[1:]

        self.same(lambda x, y: x + y, [parts] * 4)

    def test_strides(self):
        self.same(lambda x: x * 2.0, [lambda n=n: (numbers(n, 1, 2, 3)[::2],) for n in range(5)])
        seen = set()
        graphed = pump.graphed(lambda x: (seen.add(x.strides), x + 1.0)[1], warmup=1)
        for n in range(3):
            graphed(numbers(n, 1, 2, 3)[::2])
        self.assertEqual(len(seen), 1)

    def test_nested_arguments(self):
        self.same(lambda pair, more: pair[0] + more["y"] * more["k"],
                  [lambda n=n: ([numbers(n), None], {"y": numbers(3), "k": 2}) for n in range(5)])

    def test_functions_in_functions(self):
        inner = pump.graphed(lambda x: x + 1.0)
        self.same(lambda x: inner(x) * 2.0, [lambda n=n: (numbers(n),) for n in range(4)])

    def test_methods(self):
        class Model:
            def __init__(self, weight):
                self.weight = numbers(weight)

            @pump.graphed
            def step(self, x):
                return x * self.weight

        models = Model(2.0), Model(3.0)
        for n in range(5):
            self.assertEqual([model.step(numbers(n)).numbers() for model in models], [[2.0 * n], [3.0 * n]])
        models[0].weight = numbers(5.0)
        for n in range(4):
            self.assertEqual(models[0].step(numbers(n)).numbers(), [5.0 * n])

    def test_closures_in_place(self):
        state, expected = numbers(0.0), 0.0

        @pump.graphed
        def step(x):
            state[...] = state + x
            return state

        for n in range(6):
            expected += n
            self.assertIs(step(numbers(n)), state)
            self.assertEqual(state.numbers(), [expected])
        state[...] = 100.0  # by the program
        self.assertEqual(step(numbers(1)).numbers(), [101.0])

    def test_a_closed_over_array_that_is_written_and_an_argument(self):
        state = numbers(1.0)

        @pump.graphed
        def step(x):
            state[...] = state + x
            return x * 1.0

        for n in range(4):
            step(numbers(n))
        self.refused("shares with \"state\"", step, state)

    def test_on_another_stream_calls_are_in_order(self):
        graphed = pump.graphed(lambda x: x + 1.0)
        for _ in range(4):
            graphed(numbers(1))
        cupy.cuda.WAITS.clear()
        stream = cupy.cuda.Stream()
        with stream:
            graphed(numbers(2))
            graphed(numbers(2))
        waits = list(cupy.cuda.WAITS)
        self.assertEqual(waits[0], (stream.ptr, 0))
        self.assertEqual(waits[2:], [(stream.ptr, stream.ptr)] * 2)  # handles come back for other streams

    def test_a_refusal_that_the_program_catches_is_one(self):
        """It would go another way than in its warm-up calls."""
        def fn(x):
            try:
                factor = float(x)
            except Exception:
                factor = 1.0
            return x * factor

        graphed = pump.graphed(fn, warmup=1)
        graphed(numbers(5))
        self.refused("calls __float__", graphed, numbers(5))
        self.assertEqual(pump.graphed(lambda x: x + 1.0, warmup=1)(numbers(5)).numbers(), [6.0])

    def test_work_in_place_on_another_stream(self):
        stream, state = cupy.cuda.Stream(), numbers(1)

        def fn(x):
            with stream:
                state.__iadd__(1.0)
            return x + state

        graphed = pump.graphed(fn, warmup=1)
        graphed(numbers(0))
        self.refused("a stream that is not part of the step", graphed, numbers(0))

    def test_containers_among_arguments_that_the_step_changes(self):
        def swaps(pair):
            pair[1][...] = pair[0] * 0.5
            pair[0], pair[1] = pair[1], pair[0]
            return pair[0] + 0.0

        def notes(settings, x):
            settings["done"] = 1
            return x + 1.0

        for fn, make in ((swaps, lambda: ([numbers(1), numbers(2)],)), (notes, lambda: ({"done": 0}, numbers(1)))):
            graphed = pump.graphed(fn, warmup=1)
            graphed(*make())
            self.refused("changes a list, a dict or another container", graphed, *make())

    def test_results_in_objects_and_in_memory_of_others(self):
        def box(x):
            return types.SimpleNamespace(x=x + 1.0)

        def part(x):  # as cupy.from_dlpack(x[1:])
            memory_of_it = cupy.cuda.UnownedMemory(x.data.ptr + 8, 8, x, 0)
            return cupy.ndarray((1,), float, cupy.cuda.MemoryPointer(memory_of_it, 0))

        for fn, pattern in ((box, "returns a SimpleNamespace, the same one in each call"),
                            (part, "returns an array in memory of others")):
            graphed = pump.graphed(fn, warmup=1)
            graphed(numbers(1, 2))
            self.refused(pattern, graphed, numbers(1, 2))

    def test_a_switch_that_two_captures_put_back(self):
        pair = types.SimpleNamespace(one=numbers(1), two=numbers(2))

        def swaps(x):
            pair.one, pair.two = pair.two, pair.one
            return x + pair.one

        graphed = pump.graphed(swaps, warmup=1)
        self.assertEqual([graphed(numbers(0)).numbers() for _ in range(2)], [[2.0], [1.0]])  # of two kinds
        self.refused("pair.one", graphed, numbers(0))
        self.refused("pair.one", lambda x: pump.capture(swaps, x, warmup=1), numbers(0))

    def test_values_in_objects_of_libraries(self):
        class Table(dict):
            factor = 2.0

        class Count(int):
            pass

        class Decorated:
            def __init__(self, fn):
                self.__wrapped__ = fn
                self.factor = 2.0

            def __call__(self, x):
                return self.__wrapped__(x) * self.factor

        table, count, decorated = Table(), Count(3), Decorated(lambda x: x + 0.0)
        count.factor = 2.0
        words = array.array("d", [2.0])
        generator, context = random.Random(1), contextvars.ContextVar("factor")
        context.set(2.0)

        def change(thing):
            thing.factor = 3.0

        cases = [
            (lambda x: x * table.factor, lambda: change(table)),
            (lambda x: x * count.factor, lambda: change(count)),
            (lambda x: decorated(x), lambda: change(decorated)),
            (lambda x: x * words[0], lambda: words.__setitem__(0, 3.0)),
            (lambda x: x * context.get(), lambda: context.set(3.0)),
        ]
        for index, (fn, changes) in enumerate(cases):
            with self.subTest(index):
                graphed = pump.graphed(fn, warmup=1)
                for _ in range(3):
                    self.assertEqual(graphed(numbers(1)).numbers(), [2.0])
                changes()
                self.assertEqual(graphed(numbers(1)).numbers(), [3.0])
        drawing = pump.graphed(lambda x: x * generator.random(), warmup=1, max_graphs=3)
        for _ in range(3):
            drawing(numbers(1))  # eagerly: each is another kind
        self.refused("max_graphs=3 ways.*generator", drawing, numbers(1))

    def test_threads_of_a_function_that_warms_up_allocate(self):
        def fn(x):
            made = []
            thread = threading.Thread(target=lambda: made.append(numbers(1)))
            thread.start()
            thread.join(20)
            return x + float(not thread.is_alive())

        self.assertEqual(pump.graphed(fn)(numbers(1)).numbers(), [2.0])

    def test_a_private_of_a_function_is_not_another_thread_s(self):
        private, errors = pump.Private(numbers(1)), []

        def look():
            try:
                private.array
            except PumpGraphError as error:
                errors.append(str(error))

        def fn(x):
            thread = threading.Thread(target=look)
            thread.start()
            thread.join()
            return x + private.array

        pump.graphed(fn)(numbers(1))
        self.assertEqual(len(errors), 1)
        with pump.mapped(private):
            with pump.mapped(private):
                pass
            self.assertEqual(private.array.numbers(), [1.0])

    def test_arguments_of_other_kinds(self):
        class Measured(cupy.ndarray):
            pass

        measured = Measured.__new__(Measured, (2,))
        self.refused("is a Measured; .* array.view", pump.graphed(lambda x: x + 1.0), measured)
        self.refused("a key of argument 0 is a object", pump.graphed(lambda given: given), {object(): numbers(1)})
        self.same(lambda given: given["x"] + 1.0, [lambda: (collections.UserDict(x=numbers(1)),)] * 4)

    def test_modules_that_the_function_imports(self):
        settings = types.ModuleType("settings_of_the_test")
        settings.__file__, settings.factor = __file__, 2.0
        self.addCleanup(sys.modules.pop, settings.__name__)
        sys.modules[settings.__name__] = settings

        def whole(x):
            import settings_of_the_test as settings
            return x * settings.factor

        def name(x):
            from settings_of_the_test import factor
            return x * factor

        for fn in (whole, name):
            settings.factor = 2.0
            graphed = pump.graphed(fn, warmup=1)
            for _ in range(3):
                self.assertEqual(graphed(numbers(1)).numbers(), [2.0])
            settings.factor = 3.0
            self.assertEqual(graphed(numbers(1)).numbers(), [3.0])

    def test_numbers_deep_in_objects(self):
        inner = types.SimpleNamespace(factor=2.0)
        outer = inner
        for _ in range(12):
            outer = types.SimpleNamespace(inner=outer)

        def fn(x):
            now = outer
            for _ in range(12):
                now = now.inner
            return x * now.factor

        graphed = pump.graphed(fn, warmup=1)
        for _ in range(3):
            graphed(numbers(1))
        inner.factor = 3.0
        self.assertEqual(graphed(numbers(1)).numbers(), [3.0])

    def test_kinds_of_arguments_that_are_refused(self):
        graphed = pump.graphed(lambda x: x)
        torch_tensor = type("Tensor", (), {"__module__": "torch", "__dlpack__": None})()
        self.refused("from_dlpack", graphed, torch_tensor)


def flat(value):
    if isinstance(value, cupy.ndarray):
        return value.numbers()
    if isinstance(value, (list, tuple)):
        return [flat(item) for item in value]
    return {key: flat(item) for key, item in value.items()} if isinstance(value, dict) else value


class NoStaleValues(CupyTest):
    """What the function reads beside arrays: another value has another graph, or the call is refused."""

    def follow(self, graphed, changes, values):
        """`changes` are made between calls; after each the function gives the next of `values` for 1."""
        for change, value in zip(changes, values):
            change()
            for _ in range(4):
                self.assertEqual(graphed(numbers(1)).numbers(), [value])

    def test_numbers_in_arguments(self):
        graphed = pump.graphed(lambda x, k: x * k)
        for k in (2, 3, 2, 2.5):
            for _ in range(4):
                self.assertEqual(graphed(numbers(1), k).numbers(), [k])
        graphed.reset()
        for k in (1, 1.0, True, 0.0, -0.0, float("nan")):
            for _ in range(3):
                graphed(numbers(1), k)
        self.assertEqual(len(graphed.signatures()), 6)

    def test_more_kinds_than_allowed(self):
        graphed = pump.graphed(lambda x, k: x * k, max_graphs=2)
        graphed(numbers(1), 1)
        graphed(numbers(1), 2)
        self.refused(r"more than max_graphs=2 ways.*\"argument 1\" was 2 and is 3", graphed, numbers(1), 3)

    def test_shapes_and_dtypes(self):
        graphed = pump.graphed(lambda x: x * 2.0)
        for size in (1, 2, 3):
            for _ in range(3):
                self.assertEqual(graphed(numbers(*range(size))).numbers(), [2.0 * n for n in range(size)])
        self.assertEqual(len(graphed.signatures()), 3)

    def test_globals(self):
        module = sys.modules[__name__]
        self.addCleanup(setattr, module, "SCALE", 2.0)
        values = [2.0, 4.0, 2.0]
        changes = [lambda k=k: setattr(module, "SCALE", k) for k in values]
        self.follow(pump.graphed(lambda x: x * SCALE), changes, values)

    def test_variables_attributes_and_elements(self):
        settings = types.SimpleNamespace(k=2.0, table={"k": [1.0, 3.0]}, other=0)

        class Helper:
            k = 1.0

            def times(self, x):
                return x * self.k

        helper = Helper()

        def fn(x):
            return helper.times(x) * settings.k * settings.table["k"][1]

        self.follow(pump.graphed(fn), [lambda: None, lambda: setattr(settings, "k", 3.0),
                                       lambda: settings.table["k"].__setitem__(1, 5.0),
                                       lambda: setattr(Helper, "k", 2.0), lambda: setattr(settings, "other", 1)],
                    [6.0, 9.0, 15.0, 30.0, 30.0])

    def test_base_classes_and_properties(self):
        class Base:
            k = 2.0

            @property
            def twice(self):
                return self.k * Base.more

        Base.more = 1.0

        class Derived(Base):
            pass

        model = Derived()
        self.follow(pump.graphed(lambda x: x * model.twice), [lambda: None, lambda: setattr(Base, "k", 3.0),
                                                              lambda: setattr(Base, "more", 2.0)], [2.0, 3.0, 6.0])

    def test_modules_of_the_program(self):
        settings = types.ModuleType("settings")
        settings.__file__ = __file__
        settings.k, settings.i = 2.0, 0
        self.follow(pump.graphed(lambda x: x * settings.k), [lambda: None, lambda: setattr(settings, "k", 3.0),
                                                             lambda: setattr(settings, "i", 1)], [2.0, 3.0, 3.0])

    def test_which_of_two_objects(self):
        one, two = types.SimpleNamespace(k=1.0), types.SimpleNamespace(k=2.0)
        chosen = {"now": one, "one": one, "two": two}
        self.follow(pump.graphed(lambda x: x * chosen["now"].k + 0.0 * chosen["two"].k + 0.0 * chosen["one"].k),
                    [lambda: None, lambda: chosen.update(now=two)], [1.0, 2.0])

    def test_arrays_that_are_replaced(self):
        box = {"w": numbers(2.0)}
        self.follow(pump.graphed(lambda x: x * box["w"]), [lambda: None, lambda: box.update(w=numbers(3.0))],
                    [2.0, 3.0])

    def test_the_memory_of_a_replaced_array_is_kept(self):
        box = {"w": numbers(2.0)}
        graphed = pump.graphed(lambda x: x * box["w"])
        for _ in range(3):
            graphed(numbers(1))
        pointer = box["w"].data.ptr
        self.calls()
        box.clear()
        gc.collect()
        self.assertNotIn(f"free 0x5e55 {pointer:#x} (nil)", self.calls())

    def test_functions_that_are_replaced(self):
        box = types.SimpleNamespace(act=lambda x: x * 2.0)
        self.follow(pump.graphed(lambda x: box.act(x)), [lambda: None, lambda: setattr(box, "act", lambda x: x * 3.0)],
                    [2.0, 3.0])

    def test_defaults(self):
        def fn(x, k=2.0):
            return x * k

        self.follow(pump.graphed(fn), [lambda: None, lambda: setattr(fn, "__defaults__", (3.0,))], [2.0, 3.0])

    def test_a_count_of_the_steps_own(self):
        count = types.SimpleNamespace(n=0)

        @pump.graphed(max_graphs=4)
        def step(x):
            count.n += 1
            return x * count.n

        for n in range(1, 5):
            self.assertEqual(step(numbers(1)).numbers(), [n])
        self.refused("\"count.n\" was 3 and is 4", step, numbers(1))

    def test_a_list_that_grows(self):
        losses = []

        @pump.graphed(max_graphs=2)
        def step(x):
            losses.append(1.0)
            return x * 2.0

        step(numbers(1))
        step(numbers(1))
        self.refused("losses", step, numbers(1))

    def test_an_array_that_the_step_replaces(self):
        box = types.SimpleNamespace(state=numbers(0.0))

        @pump.graphed(warmup=1)
        def step(x):
            box.state = box.state + x
            return x * 1.0

        with self.assertRaises(UnsupportedError):
            for _ in range(10):
                step(numbers(1))

    def test_an_array_that_is_kept_and_not_returned(self):
        self.addCleanup(delattr, cupy, "stash")

        @pump.graphed
        def step(x):
            cupy.stash = x * 3.0  # in a library, where nobody looks
            return x * 2.0

        step(numbers(1))
        step(numbers(1))
        self.refused(r"test_cupy.py:\d+: \"step\" keeps an array of 8 bytes", step, numbers(1))

    def test_iterators(self):
        places = iter(range(10))
        self.refused("\"places\".*iterator", pump.graphed(lambda x: x * next(places)), numbers(1))

    def test_random_numbers_of_the_host(self):
        import random

        graphed = pump.graphed(lambda x: x * random.random())
        graphed(numbers(1))
        graphed(numbers(1))
        self.refused("draws random numbers of Python", graphed, numbers(1))

    def test_random_numbers_of_cupy(self):
        graphed = pump.graphed(lambda x: x + cupy.random.normal(1))
        graphed(numbers(1))
        graphed(numbers(1))
        self.refused("normal.. of cupy.random.*default_rng", graphed, numbers(1))
        cupy.random.normal(1)  # and works again

    def test_too_much_to_look_at(self):
        table = [object()] * (surroundings.MOST_ELEMENTS + 1)
        self.refused("more than 4096 elements", pump.graphed(lambda x: table), numbers(1))
        values = [1.0] * (surroundings.MOST_ELEMENTS + 1)
        self.follow(pump.graphed(lambda x: x * values[-1]), [lambda: None, lambda: values.__setitem__(-1, 2.0)],
                    [1.0, 2.0])


class Refused(CupyTest):
    """Each names the line, and what to write instead; plain calls go on."""

    def in_step(self, fn, pattern, *args):
        args = args or (numbers(1, 2),)
        graphed = pump.graphed(fn)
        for _ in range(2):
            graphed(*args)
        message = self.refused(pattern, graphed, *args)
        self.assertIn("test_cupy.py:", message)
        self.assertEqual(memory.installed().capturing_on, 0)
        self.assertEqual((numbers(1) + 1.0).numbers(), [2.0])

    def test_looks_at_the_device(self):
        self.in_step(lambda x: x * int(x.sum()), "__int__.*return the array")
        self.in_step(lambda x: x * x.sum().item(), "item.*return the array")
        self.in_step(lambda x: x if x.sum() else x * 2.0, r"__bool__.*cupy.where")
        self.in_step(lambda x: (x, x.get())[0], r"get\(\).*return the array")
        self.in_step(lambda x: (x, str(x))[0], r"__str__|__repr__")

    def test_sizes_that_depend_on_values(self):
        self.in_step(lambda x: x[x > 1.0], r"array\[mask\].*cupy.where\(mask")
        self.in_step(lambda x: cupy.nonzero(x)[0], r"cupy.nonzero\(\).*keep the size")
        self.in_step(lambda x: cupy.where(x > 1.0)[0], "where.. with one argument")
        self.in_step(lambda x: cupy.bincount(x), "scatter_add")

    def test_names_of_the_program_for_functions_of_cupy(self):
        nonzero = cupy.nonzero
        self.in_step(lambda x: nonzero(x)[0], r"cupy.nonzero\(\)")

    def test_what_nobody_has_named(self):
        self.in_step(lambda x: x * cupy.median(x)[0], "waits for the device.*cudaErrorStreamCaptureUnsupported")

    def test_lists_and_host_memory(self):
        self.in_step(lambda x: x + cupy.array([1.0, 2.0]), r"cupy.array\(\) of values on the host")
        graphed = pump.graphed(lambda x: x + cupy.from_list([1.0, 2.0]))
        graphed(numbers(1, 2))
        graphed(numbers(1, 2))
        self.refused("copies 8 bytes from host memory", graphed, numbers(1, 2))

    def test_a_number_is_filled_in(self):
        graphed = pump.graphed(lambda x: x + cupy.asarray(3.0))
        for n in range(4):
            self.assertEqual(graphed(numbers(n)).numbers(), [n + 3.0])

    def test_cublas(self):
        self.in_step(lambda x: cupy.dot(x, x), "cuBLAS.*cupy.matmul")

    def test_a_stream_that_is_not_joined(self):
        other = cupy.cuda.Stream()

        def fn(x):
            with other:
                return x * 2.0

        self.in_step(fn, "not part of the step.*wait_event")

    def test_other_errors_stay_what_they_are(self):
        graphed = pump.graphed(lambda x: {}["missing"])
        with self.assertRaises(KeyError):
            graphed(numbers(1))
        calls = itertools.count()

        def fn(x, fails=lambda: next(calls) > 1):
            if fails():
                raise ValueError("a reason of its own")
            return x

        graphed = pump.graphed(fn, max_graphs=20)
        with self.assertRaises((ValueError, UnsupportedError)):
            for _ in range(4):
                graphed(numbers(1))

    def test_a_graph_that_is_refused_is_given_up(self):
        graphed = pump.graphed(lambda x: x + cupy.from_list([1.0]))
        graphed(numbers(1))
        graphed(numbers(1))
        before = len(cupy.cuda.runtime.destroyed)
        self.refused("host memory", graphed, numbers(1))
        self.assertEqual(len(cupy.cuda.runtime.destroyed), before + 1)

    def test_entry_points_are_back_after_it(self):
        before = {name: getattr(cupy, name) for name in ("add", "nonzero", "where", "array")}
        own = set(vars(cupy.ndarray))
        self.in_step(lambda x: x[x > 1.0], "mask")
        self.assertEqual({name: getattr(cupy, name) for name in before}, before)
        self.assertEqual(set(vars(cupy.ndarray)), own)


class Accesses(unittest.TestCase):
    def writes(self, text):
        return accesses.Writes(lambda path: path.write_text(text))

    def test_modes(self):
        array = types.SimpleNamespace(data=types.SimpleNamespace(ptr=0x1000), size=2, shape=(2,), strides=(8,),
                                      dtype=types.SimpleNamespace(itemsize=8))
        head = '  %a = pump.buffer "a" present size(64) address(0x1000)\n  %k = pump.kernel "k" node(0) '
        self.assertFalse(self.writes(head + "[read %a[0, 64] assumed]").may_hit(array))
        self.assertTrue(self.writes(head + "[readwrite %a[8, 8] assumed]").may_hit(array))
        self.assertFalse(self.writes(head + "[write %a[16, 8] proved must(write)]").may_hit(array))
        self.assertTrue(self.writes(head + "[write %b[0, 8] proved]").may_hit(array))  # of no address
        self.assertTrue(self.writes(head + "[%a[0, 8]]").may_hit(array))  # not understood
        self.assertTrue(self.writes("  %k = pump.opaque").may_hit(array))

        def fail(path):
            raise PumpGraphError(Status.INTERNAL, "no")

        self.assertTrue(accesses.Writes(fail).may_hit(array))


class Reads(CupyTest):
    """Which memory a call only reads. What is declared and written would be a wrong value."""

    def declared(self, fn, *args):
        """By call of the session: the names of the arrays that are only read."""
        graphed = pump.graphed(fn, warmup=1)
        graphed(*args)
        self.calls()
        graphed(*args)
        names = {own.data.ptr: f"a{index}" for inputs in graphed._inputs.values()
                 for index, own in enumerate(inputs.arrays)}
        for binding in surroundings.Surroundings(fn).arrays.items():
            names[binding[1].data.ptr] = binding[0]
        said = [line.split()[3:] for line in self.calls() if line.startswith("declare_reads")]
        said = said[:len(said) // 2]  # of the first of two captures
        return [[names.get(int(pointer, 16), "other") for pointer in line] for line in said if line]

    def test_operators(self):
        self.assertEqual(self.declared(lambda x, y: x + y, numbers(1), numbers(2)), [["a0", "a1"]])
        self.assertEqual(self.declared(lambda x: 2.0 * x, numbers(1)), [["a0"]])
        self.assertEqual(self.declared(lambda x: x > 1.0, numbers(1)), [["a0"]])

    def test_in_place(self):
        def fn(x, y):
            x += y

        self.assertEqual(self.declared(fn, numbers(1), numbers(2)), [["a1"]])

        def twice(x):
            x += x

        self.assertEqual(self.declared(twice, numbers(1)), [])

        def assign(x, y):
            x[...] = y

        self.assertEqual(self.declared(assign, numbers(1), numbers(2)), [["a1"]])

    def test_outputs(self):
        def by_name(x, y):
            cupy.add(x, 1.0, out=y)

        def by_place(x, y):
            cupy.add(x, 1.0, y)

        def itself(x):
            cupy.add(x, 1.0, out=x)

        def reduced(x, y):
            cupy.sum(x, None, None, y)

        self.assertEqual(self.declared(by_name, numbers(1), numbers(2)), [["a0"]])
        self.assertEqual(self.declared(by_place, numbers(1), numbers(2)), [["a0"]])
        self.assertEqual(self.declared(itself, numbers(1)), [])
        self.assertEqual(self.declared(reduced, numbers(1), numbers(2)), [["a0"]])

    def test_an_output_that_shares_memory_with_an_operand(self):
        whole = numbers(1, 2)
        low, high = whole[:1], whole[1:]

        def part(x):
            cupy.add(low, x, out=high)

        self.assertEqual(self.declared(part, numbers(1)), [["a0"]])

    def test_an_output_in_memory_of_others(self):
        """It may be a view of an operand, by DLPack."""
        x = numbers(1, 2)
        view = cupy.ndarray(1, "float64", cupy.cuda.MemoryPointer(cupy.cuda.UnownedMemory(x.data.ptr + 8, 8, x, 0), 0))

        def fn(y):
            cupy.add(x, y, out=view)

        self.assertEqual(self.declared(fn, numbers(1)), [])

    def test_sorting(self):
        self.assertEqual(self.declared(lambda x: cupy.sort(x), numbers(2, 1)), [["a0"]])

        def in_place(x):
            x.sort()

        self.assertEqual(self.declared(in_place, numbers(2, 1)), [])

    def test_an_object_of_the_programs(self):
        """Its code runs inside the operator, and may write."""
        class Adder:
            def __radd__(self, array):
                array *= 2.0
                return array

        adder = Adder()
        self.assertEqual([line for line in self.declared(lambda x: x + adder, numbers(1)) if "a0" in line], [])

    def test_kernels_of_the_program(self):
        plain = cupy.ElementwiseKernel("T x, T y", "T z", lambda x, y: x + y, "k")
        raw = cupy.ElementwiseKernel("raw T x, T y", "T z", lambda x, y: x + y, "k")
        written = cupy.ElementwiseKernel("_non_const T x, T y", "T z", lambda x, y: x + y, "k")
        self.assertEqual(self.declared(lambda x, y: plain(x, y), numbers(1), numbers(2)), [["a0", "a1"]])
        self.assertEqual(self.declared(lambda x, y: raw(x, y), numbers(1), numbers(2)), [["a1"]])
        self.assertEqual(self.declared(lambda x, y: written(x, y), numbers(1), numbers(2)), [["a1"]])

        def into(x, y):
            plain(x, y, x)

        self.assertEqual(self.declared(into, numbers(1), numbers(2)), [["a1"]])

    def test_raw_kernels(self):
        kernel = cupy.RawKernel(lambda x, y: y.put([n + 1.0 for n in x.numbers()]), "raw")
        known = pump.declared(kernel, reads=[0])

        def plain(x, y):
            kernel((1,), (1,), (x, y))

        def declared(x, y):
            known((1,), (1,), (x, y))

        def itself(x):
            known((1,), (1,), (x, x))

        self.assertEqual(self.declared(plain, numbers(1), numbers(2)), [])
        self.assertEqual(self.declared(declared, numbers(1), numbers(2)), [["a0"]])
        self.assertEqual(self.declared(itself, numbers(1)), [])
        self.assertEqual(known.name, "raw")
        y = numbers(0)
        known((1,), (1,), (numbers(1), y))  # outside of a capture
        self.assertEqual(y.numbers(), [2.0])
        with self.assertRaisesRegex(PumpGraphError, "counted from 0"):
            pump.declared(kernel, reads=[-1])
        with self.assertRaisesRegex(PumpGraphError, "parameters say it"):
            pump.declared(cupy.add, reads=[0])

    def test_an_undeclared_kernel_writes_its_arguments_back(self):
        kernel = cupy.RawKernel(lambda x, y: (y.put([n + 1.0 for n in x.numbers()]), x.put([9.0])), "raw")

        @pump.graphed
        def step(x, y):
            kernel((1,), (1,), (x, y))

        for n in range(5):
            x, y = numbers(n), numbers(0)
            step(x, y)
            self.assertEqual((x.numbers(), y.numbers()), ([9.0], [n + 1.0]))


class Privates(CupyTest):
    def test_only_inside(self):
        table = pump.Private(numbers(1, 2))
        with self.assertRaisesRegex(PumpGraphError, "may be elsewhere"):
            table.array
        graphed = pump.graphed(lambda x: table.array * x)
        for n in range(4):
            self.assertEqual(graphed(numbers(n, n)).numbers(), [n, 2.0 * n])
        self.assertIn(f"declare_private 0x5e55 {table.unguarded.data.ptr:#x}", self.calls())
        with pump.mapped(table) as array:
            array[...] = 5.0
            self.assertEqual(table.array.numbers(), [5.0, 5.0])
        with self.assertRaisesRegex(PumpGraphError, "may be elsewhere"):
            table.array
        self.assertEqual(graphed(numbers(1, 1)).numbers(), [5.0, 5.0])

    def test_what_is_refused(self):
        with self.assertRaisesRegex(PumpGraphError, "not of a list"):
            pump.Private([1.0])
        with self.assertRaisesRegex(PumpGraphError, "takes Privates"):
            with pump.mapped(numbers(1)):
                pass
        table = pump.Private(numbers(1))
        graphed = pump.graphed(lambda x: table.array)
        graphed(numbers(1))
        graphed(numbers(1))
        self.refused("returns memory of a Private", graphed, numbers(1))


class Steps(CupyTest):
    def test_capture_in_place(self):
        x, w = numbers(1, 2), numbers(3, 4)
        step = pump.capture(lambda a: a * w, x, name="products")
        self.assertEqual(step.output.numbers(), [3.0, 8.0])
        log = self.calls()
        self.assertIn(f"declare_present 0x5e55 {x.data.ptr:#x}", log)
        self.assertIn(f"declare_present 0x5e55 {w.data.ptr:#x}", log)
        order = [next(i for i, line in enumerate(log) if line.startswith(what)) for what in
                 ("take_back", "empty_cache", "capture_begin", "capture_end", "rehearse", "declare_present", "adopt",
                  "replay")]
        self.assertEqual(order, sorted(order))
        self.assertIn("name=products", next(line for line in log if line.startswith("adopt")))
        x[...] = 2.0
        step.replay()
        self.assertEqual(step.output.numbers(), [6.0, 8.0])
        self.assertIn("step", str(step.report()))
        step.close()
        step.close()
        with self.assertRaisesRegex(PumpGraphError, "closed"):
            step.replay()

    def test_the_graph_outlives_the_step(self):
        step = pump.capture(lambda x: x * 2.0, numbers(1))
        graph = step._native.graph
        self.calls()
        step.close()
        self.assertTrue(self.calls()[0].startswith("step_destroy"))
        self.assertEqual(cupy.cuda.runtime.destroyed[-1], graph)

    def test_what_the_function_changes(self):
        count = types.SimpleNamespace(n=0)

        def fn(x):
            count.n += 1
            return x * count.n

        self.refused("\"count.n\" was", pump.capture, fn, numbers(1))

    def test_arguments(self):
        with self.assertRaisesRegex(PumpGraphError, "warmup=0"):
            pump.capture(lambda: None, warmup=0)
        with self.assertRaisesRegex(PumpGraphError, "max_graphs=0"):
            pump.graphed(lambda: None, max_graphs=0)
        with self.assertRaisesRegex(PumpGraphError, "not captured yet"):
            pump.graphed(lambda: None).report()

    def test_a_failed_adoption_may_be_tried_again(self):
        graphed = pump.graphed(lambda x: x * 2.0)
        graphed(numbers(1))
        graphed(numbers(1))
        self.fail_next("adopt", Status.UNPLANNABLE, "too small")
        with self.assertRaisesRegex(PumpGraphError, "too small"):
            graphed(numbers(1))
        self.assertEqual(graphed(numbers(3)).numbers(), [6.0])
        self.assertEqual(len(graphed.validate()), 1)

    def test_a_step_that_is_left_as_captured(self):
        self.set_report('{"runtime": {"left_as_captured": "node 1 is opaque"}}')
        graphed = pump.graphed(lambda x: x * 2.0)
        with self.assertWarnsRegex(RuntimeWarning, "exactly as captured.*node 1 is opaque") as warned:
            for _ in range(3):
                graphed(numbers(1))
        self.assertTrue(warned.filename.endswith("test_cupy.py"))

    def test_reset(self):
        graphed = pump.graphed(lambda x: x * 2.0)
        for _ in range(3):
            graphed(numbers(1))
        graphed.reset()
        self.assertTrue(any(line.startswith("step_destroy") for line in self.calls()))
        self.assertFalse(graphed.is_captured)
        self.assertEqual(graphed(numbers(3)).numbers(), [6.0])


class Examples(CupyTest):
    """docs/examples/cupy against stubs of the interfaces of others."""

    def load(self, name, **modules):
        for module, stub in modules.items():
            self.addCleanup(sys.modules.pop, module.replace("__", "."))
            sys.modules[module.replace("__", ".")] = stub
        path = support.ROOT / "docs" / "examples" / "cupy" / f"{name}.py"
        loaded = types.ModuleType(name)
        exec(compile(path.read_text(), str(path), "exec"), loaded.__dict__)
        return loaded

    def test_numba(self):
        class Manager:
            context = "the context"

            def reset(self):
                pass

        class Pointer:
            def __init__(self, context, pointer, size, finalizer):
                self.device_pointer, self.size, self.finalizer = pointer, size, finalizer

        cuda = types.SimpleNamespace(HostOnlyCUDAMemoryManager=Manager, MemoryPointer=Pointer,
                                     MemoryInfo=lambda free, total: (free, total))
        example = self.load("numba_memory", numba=types.SimpleNamespace(cuda=cuda), numba__cuda=cuda)
        manager = example.PumpGraphMemory()
        manager.initialize()
        pointer = manager.memalloc(24)
        self.assertEqual(self.calls(), ["allocate 0x5e55 24 (nil) NULL"])
        self.assertEqual(manager.get_memory_info(), (0, 1))
        self.calls()
        pointer.finalizer()
        self.assertEqual(self.calls(), [f"free 0x5e55 {pointer.device_pointer.value:#x} (nil)"])
        manager.memalloc(8)
        manager.reset()
        self.assertIn("free", self.calls()[-1])
        self.assertEqual(manager.interface_version, 1)

    def test_rmm(self):
        rmm = types.SimpleNamespace(mr=types.SimpleNamespace(CallbackMemoryResource=lambda *functions: functions))
        allocate, deallocate = self.load("rmm_memory", rmm=rmm).resource()
        stream = cupy.cuda.Stream()
        address = allocate(24, types.SimpleNamespace(value=lambda: stream.ptr))
        self.assertEqual(self.calls(), [f"allocate 0x5e55 24 {stream.ptr:#x} NULL"])
        deallocate(address, 24, stream)
        self.assertEqual(self.calls(), [f"free 0x5e55 {address:#x} {stream.ptr:#x}"])


class GraphNodes(unittest.TestCase):
    def test_layout_of_a_copy(self):
        """CUDA_MEMCPY3D of cuda.h, of 64-bit machines."""
        copy = graph_nodes._Copy
        self.assertEqual((copy.target.offset, copy.width.offset, support.ctypes.sizeof(copy)), (88, 176, 200))
        self.assertEqual((graph_nodes._Side.host.offset, graph_nodes._Side.device.offset), (40, 48))

    def test_copies_by_their_sides(self):
        class Driver:
            def __init__(self, kind, status=0):
                self.kind, self.status = kind, status

            def cuPointerGetAttribute(self, kind, _attribute, _pointer):
                kind._obj.value = self.kind
                return self.status

        def side(kind, address=0x10):
            return graph_nodes._Side(kind=kind, device=address)

        is_on_host = graph_nodes._is_on_host
        self.assertTrue(is_on_host(Driver(0), side(1), lambda address: False))
        self.assertFalse(is_on_host(Driver(0), side(2), lambda address: False))
        self.assertTrue(is_on_host(Driver(1), side(4), lambda address: False))
        self.assertFalse(is_on_host(Driver(2), side(4), lambda address: False))
        self.assertTrue(is_on_host(Driver(0, 1), side(4), lambda address: False))
        self.assertFalse(is_on_host(Driver(0, 1), side(4), lambda address: True))


if __name__ == "__main__":
    unittest.main()
