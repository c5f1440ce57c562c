# SPDX-License-Identifier: Apache-2.0
"""Values that the code of a graphed step reads and that the program changes between calls, with stand-ins for PyTorch
and the library."""

import array
import collections
import datetime
import enum
import fractions
import functools
import gc
import sys
import types
import unittest
import weakref
from unittest import mock

from test_graphed import GraphedTest, touching
from test_torch_capture import torch

import pumpgraph
from pumpgraph import StaleStepError
from pumpgraph.code_reads import reads_of
from pumpgraph.reads import Code, Reads

try:
    import numpy
except ImportError:
    numpy = None


class Settings:
    rate = 1


the_rate = 0.5


class Read(GraphedTest):
    """What the program changes between calls, and the code of the step reads by name."""

    def stale(self, fn, change, pattern):
        step = pumpgraph.graphed(fn, warmup=1, name="fn")
        for _ in range(3):
            step(self.x())
        change()
        for _ in range(2):
            with self.assertRaisesRegex(StaleStepError, f"^fn: {pattern}.*; pass it as an argument; fn.reset"):
                step(self.x())
        step.reset()
        for _ in range(3):
            step(self.x())

    def fine(self, fn, change):
        step = pumpgraph.graphed(fn, warmup=1, name="fn")
        for _ in range(3):
            step(self.x())
            change()
        step(self.x())
        self.assertEqual(self.notes()[-1][:13], "torch: replay")

    def test_variables_and_globals(self):
        beta = 0.5

        def change():
            nonlocal beta
            beta += 0.25

        def change_global():
            global the_rate
            the_rate += 0.25

        self.stale(lambda x: beta and None, change, r"\"beta\", which the step reads, was 0.5 .* is 0.75")
        self.stale(lambda x: [the_rate for _ in range(2)] and None, change_global, r"\"the_rate\".* was 0.5 .* is 0.75")

    def test_attributes_along_a_chain(self):
        settings = types.SimpleNamespace(loss=types.SimpleNamespace(beta=0.5), step=0)

        def change():
            settings.loss.beta = 0.75

        self.stale(lambda x: settings.loss.beta and None, change, r"\"settings.loss.beta\".* was 0.5 .* is 0.75")
        self.stale(lambda x: Settings.rate and None, lambda: setattr(Settings, "rate", 2),
                   r"\"Settings.rate\".* was 1 .* is 2")

    def test_methods_that_the_step_calls(self):
        class Trainer:
            def __init__(self):
                self.beta, self.calls = 0.5, 0

            def train(self, x):
                self.scaled(x)

            def scaled(self, x):
                return [self.beta for _ in range(2)] and (lambda: self.beta)()

            def count(self):
                self.calls += 1

        trainer = Trainer()
        self.stale(trainer.train, lambda: setattr(trainer, "beta", None), r"\"self.beta\".* was 0.5 .* is None")
        trainer.beta = 0.5
        self.fine(trainer.train, trainer.count)

    def test_modules(self):
        class Scaled(torch.nn.Module):
            def forward(self, x):
                return self.scale

        model = Scaled(children={"inner": Scaled()})
        model.scale = model._children["inner"].scale = 1
        self.stale(lambda x: model(x) and None, lambda: setattr(model._children["inner"], "scale", 2),
                   r"\"self.scale\".* was 1 .* is 2")
        self.fine(lambda x: model(x) and None, lambda: setattr(model, "other", 2))

    def test_whether_a_module_trains_is_another_graph(self):
        class Dropping(torch.nn.Module):
            def forward(self, x):
                return self.training

        model = Dropping()
        step = pumpgraph.graphed(lambda x: model(x) and None, warmup=1)
        for training in (True, True, False, False, True):
            model.training = training
            step(self.x())
        self.assertEqual(self.notes()[-1], "torch: replay 2")

    def test_what_is_equal_or_not_read(self):
        settings = types.SimpleNamespace(step=1000, beta=0.5, name="a")
        optimizer = self.optimizer

        def change():
            settings.step += 1
            settings.beta = float("0.5")
            settings.name = "".join(["a"])

        self.fine(lambda x: (settings.beta, settings.name, optimizer.step()) and None, change)

    def test_what_is_gone(self):
        settings = types.SimpleNamespace(beta=0.5)
        self.fine(lambda x: settings and None, lambda: vars(settings).pop("beta", None))
        settings.beta = 0.5
        step = pumpgraph.graphed(lambda x: settings.beta and None, warmup=1, name="fn")
        for _ in range(2):
            step(self.x())
        del settings.beta
        with self.assertRaisesRegex(StaleStepError, "\"settings.beta\", .* was 0.5 .* is not there"):
            step(self.x())

    def test_an_attribute_that_hides_that_of_the_class(self):
        class Trainer:
            beta = 0.5

            def train(self, x):
                return self.beta and None

        trainer = Trainer()
        self.stale(trainer.train, lambda: setattr(trainer, "beta", 2), r"\"self.beta\", .* was not there .* is 2")

    # ---- elements and containers ----

    def test_elements_along_a_chain(self):
        weights, table = [0.5, 0.25], {"optim": {"lr": 0.1}, "calls": 0}
        last = collections.deque([1, 2], maxlen=2)
        pair = (1, [2, 3])
        self.stale(lambda x: weights[0] and None, lambda: weights.__setitem__(0, 0.375),
                   r"\"weights\[0\]\", which the step reads, was 0.5 .* is 0.375")
        self.stale(lambda x: table["optim"]["lr"] and None, lambda: table["optim"].update(lr=0.2),
                   r"\"table\['optim'\]\['lr'\]\", .* was 0.1 .* is 0.2")
        self.stale(lambda x: table.get("more", 1) and None, lambda: table.update(more=2),
                   r"\"table\['more'\]\", .* was not there .* is 2")
        self.stale(lambda x: last[-1] and None, lambda: last.append(3), r"\"last\[-1\]\", .* was 2 .* is 3")
        self.stale(lambda x: pair[1][0] and None, lambda: pair[1].pop(0), r"\"pair\[1\]\[0\]\", .* was 2 .* is 3")

        def count():
            table["calls"] += 1
            weights[1] += 1

        self.fine(lambda x: (weights[0], table["optim"]["lr"]) and None, count)

    def test_a_list_that_is_rebound(self):
        weights = [0.5, 0.25]

        def rebind(first):
            nonlocal weights
            weights = [first, 0.25]

        for fn in (lambda x: weights[0] and None, lambda x: sum(weights) and None):
            rebind(0.5)
            self.fine(fn, lambda: rebind(float("0.5")))
            self.stale(fn, lambda: rebind(0.75), r"\"weights\[0\]\", .* was 0.5 .* is 0.75")
        self.fine(lambda x: weights[1] and None, lambda: rebind(weights[0] + 1))

    def test_a_list_that_is_changed_after_it_is_rebound(self):
        holder = types.SimpleNamespace(weights=[0.5])
        step = pumpgraph.graphed(lambda x: sum(holder.weights) and None, warmup=1, name="fn")
        for _ in range(3):
            step(self.x())
        holder.weights = [0.5]
        step(self.x())
        holder.weights[0] = 0.75
        with self.assertRaisesRegex(StaleStepError, r"\"holder.weights\[0\]\", .* was 0.5 .* is 0.75"):
            step(self.x())

    def test_containers_as_a_whole(self):
        index = 0

        def helper(numbers):
            return numbers[0]

        def loop(_x):
            for weight in weights:
                index + weight

        def unpack(_x):
            first, *_ = weights
            return [first] and None

        for fn in (loop, unpack, lambda x: weights[index] and None, lambda x: sum(weights) and None,
                   lambda x: helper(weights) and None, lambda x: weights[:1] and None,
                   lambda x: weights.copy() and None, lambda x: [weights] and None,
                   lambda x: (lambda: [weight for weight in weights])() and None):
            weights = [0.5, 0.25]
            self.stale(fn, lambda: weights.__setitem__(1, 0.75), r"\"weights\[1\]\", .* was 0.25 .* is 0.75")
            weights = [0.5, 0.25]
            self.stale(fn, lambda: weights.extend([1]), r"\"weights\", .* had 2 elements .* has 3 elements")
            weights = [0.5, 0.25]
            self.fine(fn, lambda: weights.__setitem__(1, float("0.25")))

    def test_dicts_and_sets_and_nested_ones_as_a_whole(self):
        table, words, nested, last = {"a": 1}, {"a"}, [[1], {"b": (2, [3])}], collections.deque([1])
        for fn, change, pattern in (
                (lambda x: sorted(table) and None, lambda: table.update(c=1), r"\"table\['c'\]\", .* was not there .*"),
                (lambda x: list(table.items()) and None, lambda: table.update(a=True), r"was 1 .* is True"),
                (lambda x: "b" in words and None, lambda: words.add("b"), "\"words\", .* had 1 element .* has 2"),
                (lambda x: print(words) if words is None else sorted(words) and None, lambda: words.pop(), "\"words\""),
                (lambda x: repr(nested) and None, lambda: nested[1]["b"][1].append(4), r"nested\[1\]\['b'\]\[1\]"),
                (lambda x: repr(nested) and None, lambda: nested[0].__setitem__(0, 5), r"nested\[0\]\[0\]"),
                (lambda x: sum(last) and None, lambda: last.append(4), "\"last\", .* had 1 element .* has 2 elements")):
            self.stale(fn, change, f".*{pattern}.*")

    def test_a_container_that_is_counted(self):
        numbers, words = [1, 2], {"a"}

        def rebind(*items):
            nonlocal numbers
            numbers = list(items)

        for fn in (lambda x: len(numbers) and None, lambda x: len(words) and None):
            self.fine(fn, lambda: numbers.__setitem__(0, numbers[0] + 1))
        self.stale(lambda x: len(numbers) and None, lambda: numbers.append(3), r"\"len\(numbers\)\", .* was 2 .* is 3")
        self.stale(lambda x: len(words) and None, lambda: words.add("b"), r"\"len\(words\)\", .* was 1 .* is 2")
        self.fine(lambda x: len(numbers) and None, lambda: rebind(5, 6, 7))
        self.stale(lambda x: len(numbers) and None, lambda: rebind(1), r"\"len\(numbers\)\", .* was 3 .* is 1")

    def test_elements_that_move_from_one_list_to_another(self):
        first, second = [1, 2], [3]
        self.stale(lambda x: (sum(first), sum(second)) and None, lambda: second.insert(0, first.pop()),
                   "\"(first|second)\", .* had")

    def test_an_empty_list_that_later_gets_something(self):
        extra = []

        def fn(_x):
            for each in extra:
                torch.note(f"fn {each}")

        for item in (1, torch.Tensor(0xD000)):
            extra.clear()
            self.stale(fn, lambda item=item: extra.append(item), "\"extra\", .* had 0 elements .* has 1 element")

    def test_a_mere_store_is_no_read(self):
        table, history, losses, index = {"n": 0}, [0, 0, 0], [], 1

        def fn(x):
            if x is None:
                table["n"] = 1
                history[index] = history[index + 1] = 5
                history[:] = []
                del table["n"]
                losses.append(x)
                losses.extend([1])

        def change():
            table["n"] += 1
            history[0] += 1
            losses.append(1)

        self.fine(fn, change)

    def test_an_assignment_that_reads(self):
        table = {"n": 1}

        def fn(x):
            if x is None:
                table["n"] += 1

        self.stale(fn, lambda: table.update(n=2), r"\"table\['n'\]\", .* was 1 .* is 2")
        self.fine(fn, lambda: table.update(other=2))

    def test_methods_of_the_programs_own_containers_are_not_run(self):
        class Loud(dict):
            def get(self, *_args):
                raise AssertionError

            __getitem__ = keys = values = get

        loud, default = Loud(a=1), collections.defaultdict(list)
        reads = Reads([Code(lambda: ([loud], loud["a"], default["a"]))])
        reads.check()
        loud.update(b=2)
        with self.assertRaisesRegex(StaleStepError, r"\"loud\['b'\]\""):
            reads.check()
        self.assertEqual(default, {})

    def test_tensors_in_containers_are_looked_at_elsewhere(self):
        tensors = [torch.Tensor(0xD000), 1]
        step = pumpgraph.graphed(lambda x: [tensors] and None, warmup=1, name="fn")
        with touching([]):
            for _ in range(3):
                step(self.x())
                tensors[0] = torch.Tensor(0xD000)
        self.assertEqual(self.notes()[-1][:13], "torch: replay")
        tensors[0] = None
        with self.assertRaisesRegex(StaleStepError, r"\"tensors\[0\]\", .* is None"):
            step(self.x())

    # ---- kinds of values ----

    def test_other_values_that_cannot_change(self):
        class Mode(enum.Enum):
            SUM, MEAN = 1, 2

        for before, equal, now in ((b"a", bytes([97]), b"b"), (range(2), range(0, 2), range(3)),
                                   (slice(1, 2), slice(1, 2), slice(1, 3)), (Mode.SUM, Mode(1), Mode.MEAN),
                                   (frozenset([1]), frozenset((1,)), frozenset([True])),
                                   (torch.device("cuda", 0), torch.device("cuda", 0), torch.device("cuda", 1)),
                                   (torch.float32, type(torch.float32)("torch.float32"), torch.float64),
                                   (fractions.Fraction(1, 2), fractions.Fraction(2, 4), fractions.Fraction(1, 3)),
                                   (0.0, float("0"), -0.0), (0.5, float("0.5"), float("nan")), (1, 1, True),
                                   (float("nan"), float("nan"), 0.5), (datetime.date.min, datetime.date(1, 1, 1), 1)):
            with self.subTest(before=before):
                holder = types.SimpleNamespace(value=before, values=[before])
                for fn, change in (
                        (lambda x: holder.value and None, lambda new: setattr(holder, "value", new)),
                        (lambda x: [holder.values] and None, lambda new: holder.values.__setitem__(0, new))):
                    change(before)
                    self.fine(fn, lambda: change(equal))
                    self.stale(fn, lambda: change(now), r"\"holder.value(s\[0\])?\", which the step reads, .*")

    def test_members_of_classes(self):
        class Mode(enum.Enum):
            SUM = 1

        Pair = collections.namedtuple("Pair", "first second")
        pair = Pair(1, 2)

        def rebind(second):
            nonlocal pair
            pair = Pair(1, second)

        self.fine(lambda x: Mode.SUM and pair.first and None, lambda: rebind(3))
        rebind(2)
        self.stale(lambda x: pair.second and None, lambda: rebind(3), r"\"pair.second\", .* was 2 .* is 3")

    def test_buffers_and_tensors_in_host_memory(self):
        data, numbers, scale = bytearray(b"a"), array.array("d", [1.0]), torch.Tensor(0x10, is_cuda=False)
        for fn, change, name in ((lambda x: data[0] and None, lambda: data.__setitem__(0, 98), "data"),
                                 (lambda x: sum(numbers) and None, lambda: numbers.append(1.0), "numbers"),
                                 (lambda x: scale and None, lambda: scale.fill_(2.0), "scale")):
            self.stale(fn, change, f"\"{name}\", which the step reads, has something else in it than .*")
        pinned = torch.Tensor(0x20, is_cuda=False)
        pinned.is_pinned = lambda: True
        self.fine(lambda x: pinned and None, lambda: pinned.fill_(2.0))

    @unittest.skipUnless(numpy, "needs NumPy")
    def test_numbers_and_arrays_of_numpy(self):
        holder = types.SimpleNamespace(beta=numpy.float64(0.5), values=[numpy.float32(0.5)], array=numpy.zeros(2))
        fine, stale = numpy.float64(0.5), numpy.float64(0.75)
        self.fine(lambda x: holder.beta and None, lambda: setattr(holder, "beta", fine + 0))
        self.stale(lambda x: holder.beta and None, lambda: setattr(holder, "beta", stale), "\"holder.beta\", .* 0.75")
        self.stale(lambda x: sum(holder.values) and None, lambda: holder.values.__setitem__(0, stale),
                   r"\"holder.values\[0\]\"")
        for fn in (lambda x: holder.array[0] and None, lambda x: holder.array.sum() and None,
                   lambda x: sum(holder.array) and None):
            self.stale(fn, lambda: holder.array.__setitem__(0, holder.array[0] + 1),
                       "\"holder.array\", which the step reads, has something else in it")

        self.fine(lambda x: holder.array.sum() and None, lambda: setattr(holder, "other", 1))
        self.stale(lambda x: holder.array.sum() and None, lambda: setattr(holder, "array", numpy.ones(2)),
                   "\"holder.array\", which the step reads, is another object")

    # ---- objects, functions and classes that are others ----

    def test_an_object_that_is_rebound(self):
        class Settings:
            def __init__(self, beta, count=0):
                self.beta, self.count, self.inner = beta, count, types.SimpleNamespace(rates=[0.1, 0.2])

            def scaled(self):
                return self.beta

        class Slots:
            __slots__ = ("beta", "inner")

            def __init__(self, beta, _count=0):
                self.beta, self.inner = beta, None

        def read(_x):
            settings.beta

        def read_inside(_x):
            settings.inner.rates[0]

        def call(_x):
            settings.scaled()

        def test_for_none(_x):
            return settings is None

        def rebind(*args):
            nonlocal settings
            settings = kind(*args)

        for kind, fn in ((Settings, read), (Slots, read), (Settings, call)):
            settings = kind(0.5)
            with self.subTest(kind=kind, fn=fn):
                self.fine(fn, lambda: rebind(0.5, 1))
                step = pumpgraph.graphed(fn, warmup=1, name="fn")
                for _ in range(3):
                    step(self.x())
                rebind(0.5, 2)
                step(self.x())
                settings.beta = 0.75
                with self.assertRaisesRegex(StaleStepError, r"\"(settings|self).beta\", .* was 0.5 .* is 0.75"):
                    step(self.x())
                settings.beta = 0.5
                self.stale(fn, lambda: rebind(0.75), r"\"settings.beta\", .* was 0.5 .* is 0.75")
        kind = Settings
        rebind(0.5)
        self.fine(read_inside, lambda: rebind(0.75))
        self.stale(read_inside, lambda: setattr(settings, "inner", types.SimpleNamespace(rates=[0.3])),
                   r"\"settings.inner.rates\[0\]\", .* was 0.1 .* is 0.3")
        rebind(0.5)
        self.stale(read, lambda: rebind(None), r"\"settings.beta\", .* is None")
        self.fine(lambda x: test_for_none(x) and None, lambda: rebind(0.75))

    def test_an_object_that_is_rebound_and_of_which_all_may_be_read(self):
        def helper(_settings):
            pass

        def rebind(**values):
            nonlocal settings
            settings = types.SimpleNamespace(**values)

        for fn in (lambda x: helper(settings), lambda x: setattr(settings, "last", 1)):
            settings = types.SimpleNamespace(beta=[0.5], last=1)
            self.fine(fn, lambda: rebind(beta=[0.5], last=1))
            self.stale(fn, lambda: rebind(beta=[0.75], last=1), r"\"settings.beta\[0\]\", .* was 0.5 .* is 0.75")

        def store(_x):
            settings.last = 1

        self.stale(store, lambda: rebind(beta=1, last=1), "\"settings\", .* is another object than .*")

    def test_a_function_that_is_rebound(self):
        def scaled(factor):
            return lambda x: factor

        def other(x, scale=0):
            return scale

        def rebind(new):
            nonlocal loss
            loss = new

        loss = scaled(2)
        for fn in (lambda x: loss(x) and None, lambda x: map(loss, [x]) and None):
            loss = scaled(2)
            self.fine(fn, lambda: rebind(scaled(2)))
            self.stale(fn, lambda: rebind(scaled(3)), "\"(loss|factor)\", .* was 2 .* is 3")
            loss = scaled(2)
            self.stale(fn, lambda: rebind(other), "\"loss\", .* another object")
            loss = id
            self.stale(fn, lambda: rebind(repr), "\"loss\", .* another object")

    def test_a_partial_function_that_is_rebound(self):
        def other(x, scale):
            return scale

        loss = functools.partial(other, scale=0.5)
        reads = Reads([Code(lambda x: loss(x))])
        loss = functools.partial(other, scale=0.5)
        reads.check()
        loss = functools.partial(other, scale=0.75)
        with self.assertRaisesRegex(StaleStepError, r"\"loss\['scale'\]\", which the step reads, was 0.5 .* is 0.75"):
            reads.check()

    def test_a_function_in_the_cells_of_one_that_is_made_anew(self):
        def make(beta):
            def inner():
                return beta[0]

            return lambda x: inner() and None

        beta, other = [0.5], [0.5]
        loss = make(beta)
        step = pumpgraph.graphed(lambda x: loss(x), warmup=1, name="fn")
        for _ in range(3):
            step(self.x())
        loss = make(other)
        step(self.x())
        other[0] = 0.75
        with self.assertRaisesRegex(StaleStepError, r"\"beta\[0\]\", .* was 0.5 .* is 0.75"):
            step(self.x())

    def test_a_method_or_a_class_that_is_another(self):
        class Trainer:
            def train(self, x):
                self.loss(x)
                return Kind and Kind() and None

            def loss(self, x):
                return None

        class Other:
            pass

        Kind = Trainer
        trainer = Trainer()
        self.stale(trainer.train, lambda: setattr(trainer, "loss", lambda x: x), "\"self.loss\", .* is a function")
        del trainer.loss
        self.stale(trainer.train, lambda: setattr(Trainer, "loss", lambda self, x: None), "\"self.loss\", .* another")

        def rebind():
            nonlocal Kind
            Kind = Other

        self.stale(trainer.train, rebind, "\"Kind\", .* is another object")

    # ---- code that has another name for it ----

    def test_an_object_that_is_passed_on(self):
        class Settings:
            rate = 1

            def __init__(self):
                self.beta, self.count, self.inner, self.values = 0.5, 0, types.SimpleNamespace(scale=2), [1, 2]

            @property
            def half(self):
                return self.beta / 2

            def quarter(self):
                return self.beta / 4

        settings = Settings()
        things = [settings]

        def reads(config):
            return config.beta, config.inner.scale, config.values[0], config.rate

        def by_text(config):
            return getattr(config, "beta")

        def count():
            settings.count += 1

        changes = ((lambda: setattr(settings, "beta", settings.beta + 1), "settings.beta"),
                   (lambda: setattr(settings.inner, "scale", settings.inner.scale + 1), "settings.inner.scale"),
                   (lambda: settings.values.append(3), "settings.values"),
                   (lambda: setattr(settings, "rate", settings.rate + 1), "settings.rate"))
        for fn in (lambda x: reads(settings) and None, lambda x: [reads(each) for each in things] and None):
            self.fine(fn, count)
            for change, name in changes:
                with self.subTest(name=name):
                    name = name.replace("settings", r"(settings|things\[0\])")
                    self.stale(fn, change, f"\"{name}\", which the step may read, (was|had) .*")

        def local(_x):
            config = settings
            config.beta

        def half(config):
            return config.half, config.quarter()

        for fn in (local, lambda x: by_text(settings) and None, lambda x: getattr(settings, "beta") and None,
                   lambda x: half(settings) and None):
            self.fine(fn, count)
            self.stale(fn, changes[0][0], r"\"(settings|self).beta\", which the step (may )?reads?, was")

    def test_an_argument_that_is_passed_on(self):
        class Settings:
            beta, other = 0.5, 0

        def helper(config):
            return config.beta

        class Trainer:
            beta, steps = 0.5, 0

            def train(self, x):
                helper(self)

        settings, trainer = Settings(), Trainer()
        step = pumpgraph.graphed(lambda x, settings: helper(settings) and None, warmup=1, name="fn")
        for settings.other in range(3):
            step(self.x(), settings)
        settings.beta = 0.75
        with self.assertRaisesRegex(StaleStepError, r"\"settings.beta\", which the step may read, "):
            step(self.x(), settings)
        self.fine(trainer.train, lambda: setattr(trainer, "steps", trainer.steps + 1))
        self.stale(trainer.train, lambda: setattr(trainer, "beta", 0.75), r"\"self.beta\", which the step may read, ")

    def test_a_module_that_is_passed_on(self):
        model = self.model
        model.scale, model.calls = 1, 0

        def helper(network):
            return network.scale

        self.fine(lambda x: helper(model) and None, lambda: setattr(model, "calls", model.calls + 1))
        self.stale(lambda x: helper(model) and None, lambda: setattr(model, "scale", 2),
                   r"\"model.scale\", which the step may read, was 1 .* is 2")

    def test_layers_of_pytorch(self):
        Dropout = type("Dropout", (torch.nn.Module,), {"__module__": "torch.nn.modules.dropout"})
        model = torch.nn.Module(children={"drop": Dropout()})
        model.forward, model._children["drop"].p = lambda x: None, 0.5
        self.fine(lambda x: model(x) and None, lambda: (setattr(model._children["drop"], "p", float("0.5")),
                                                        setattr(model._children["drop"], "training", False)))
        model._children["drop"].training = True
        self.stale(lambda x: model(x) and None, lambda: setattr(model._children["drop"], "p", 0.25),
                   r"\"Dropout.p\", which the step may read, was 0.5 .* is 0.25")

    def test_a_module_that_changes_as_an_object_is_rebound(self):
        class Scaled(torch.nn.Module):
            def forward(self, x):
                return self.scale

        model, settings = Scaled(), types.SimpleNamespace(beta=0.5)
        model.scale = 1
        step = pumpgraph.graphed(lambda x: model(x) and settings.beta and None, warmup=1)
        for _ in range(3):
            step(self.x())
        settings, model.scale = types.SimpleNamespace(beta=0.5), 2
        for _ in range(2):
            with self.assertRaisesRegex(StaleStepError, "\"self.scale\", .* was 1 .* is 2"):
                step(self.x())

    def test_methods_of_base_classes(self):
        class Base:
            beta = 0.5

            def train(self, x):
                return self.beta and None

        class Derived(Base):
            def train(self, x):
                return super().train(x)

        trainer = Derived()
        self.stale(trainer.train, lambda: setattr(trainer, "beta", 0.75), "\"self.beta\", .* is 0.75")

    def test_decorated_methods_and_properties_and_classes_that_are_made(self):
        def decorated(function):
            @functools.wraps(function)
            def around(*args):
                return function(*args)

            around.__module__ = "torch.utils"  # as no_grad() does
            return around

        class Loss:
            def __init__(self):
                self.beta = the_rate

        class Trainer:
            def __init__(self):
                self.beta = self.gamma = self.delta = 0.5

            @decorated
            def loss(self):
                return self.beta

            @property
            def half(self):
                return self.gamma

            @staticmethod
            def fixed():
                return the_rate

            @functools.cached_property
            def cached(self):
                return self.delta

            def train(self, x):
                return self.loss() and self.half and self.fixed() and self.cached and None

        trainer = Trainer()
        for name in ("beta", "gamma", "cached"):
            self.stale(trainer.train, lambda: setattr(trainer, name, 0.75), f"\"self.{name}\", .* is 0.75")

        def change_global():
            global the_rate
            the_rate += 0.25

        with mock.patch(f"{__name__}.the_rate", 0.5):
            for fn in (trainer.train, lambda x: Loss() and None):
                self.stale(fn, change_global, "\"the_rate\", .* was")

    def test_an_autograd_function(self):
        def apply(kind, *args):
            return kind.forward(None, *args)

        apply.__module__ = "torch.autograd.function"
        Function = type("Function", (), {"apply": classmethod(apply), "__module__": "torch.autograd.function"})

        class Scale(Function):
            @staticmethod
            def forward(_context, x):
                return scale and None

            @staticmethod
            def backward(_context, gradient):
                return factor

        scale = factor = 1

        def change():
            nonlocal scale
            scale += 1

        def change_factor():
            nonlocal factor
            factor += 1

        self.stale(lambda x: Scale.apply(x), change, "\"scale\", .* was 1 .* is 2")
        self.stale(lambda x: Scale.apply(x), change_factor, "\"factor\", .* was 1 .* is 2")

    def test_a_module_of_the_program_that_is_passed_on(self):
        settings = types.ModuleType("settings")
        settings.__file__, settings.beta, settings.calls = "/settings.py", 0.5, 0
        with mock.patch.dict(sys.modules, settings=settings):
            def helper(config):
                return config.beta

            for fn in (lambda x: settings.beta and None, lambda x: helper(settings) and None):
                settings.beta = 0.5
                self.fine(fn, lambda: setattr(settings, "calls", settings.calls + 1))
                self.stale(fn, lambda: setattr(settings, "beta", 0.75), "\"settings.beta\", .* was 0.5 .* is 0.75")

    def test_a_count_with_the_name_of_a_method(self):
        trainer, optimizer = types.SimpleNamespace(step=0, losses=[], scale=1), self.optimizer

        def helper(each):
            if each is None:
                each.losses.append(1)
            return each.scale

        def fn(_x):
            helper(trainer)
            optimizer.step()

        def change():
            trainer.step += 1
            trainer.losses.append(1)

        self.fine(fn, change)

    def test_a_rate_that_a_scheduler_of_pytorch_gives(self):
        def get_last_lr(schedule):
            return schedule._last_lr

        get_last_lr.__module__ = "torch.optim.lr_scheduler"
        Schedule = type("Schedule", (), {"get_last_lr": get_last_lr, "__module__": "torch.optim.lr_scheduler"})
        schedule = Schedule()
        schedule.last_epoch, schedule._last_lr = 0, [0.1]
        self.fine(lambda x: schedule.get_last_lr() and None, lambda: setattr(schedule, "last_epoch", 1))
        self.stale(lambda x: schedule.get_last_lr() and None, lambda: setattr(schedule, "_last_lr", [0.2]),
                   r"\"schedule._last_lr\[0\]\", which the step reads, was 0.1 .* is 0.2")

    def test_properties_are_not_run(self):
        class Loud:
            @property
            def beta(self):
                seen.append("beta")

            def __getattr__(self, name):
                seen.append(name)
                raise AttributeError(name)

            def __getitem__(self, key):
                seen.append(key)

        loud, seen = Loud(), []

        def helper(thing):
            return None if thing is loud else (thing.beta, thing.gamma, thing[0], loud.beta, loud.gamma, loud[0])

        self.fine(lambda x: helper(loud), lambda: None)
        self.assertTrue(set(seen) <= {"__wrapped__"})

    def test_what_other_code_is_for(self):
        """Loops as people write them."""
        import logging

        class Trainer:
            def __init__(self, model, optimizer):
                self.model, self.optimizer, self.losses, self.global_step = model, optimizer, [], 0
                self.log, self.best, self.history = logging.getLogger("trainer"), None, {}

            def train(self, x):
                self.model(x)
                self.optimizer.step()
                self.log.debug("step")
                return self.loss(x)

            def loss(self, x):
                return torch.fresh(0xE000)

            def after(self, loss):
                self.global_step += 1
                self.losses.append(loss)
                self.best = min(self.best or 1, 1 / self.global_step)
                self.history[self.global_step] = self.best
                self.model.train_calls = self.global_step

        self.model.forward = lambda x: x
        trainer = Trainer(self.model, self.optimizer)
        step = pumpgraph.graphed(trainer.train, warmup=1)
        for _ in range(5):
            trainer.after(step(self.x()))
        self.assertEqual(self.notes()[-1], "torch: replay 2")

    def test_results_are_not_kept(self):
        """A tensor that the code names counts as kept by the program, and not by what compares."""
        holder = types.SimpleNamespace(last=None)

        def fn(_x):
            holder.last = torch.fresh(0xB000)
            return [holder.last] and None

        step = pumpgraph.graphed(fn, warmup=1, name="fn")
        for _ in range(3):
            step(self.x())
        kept = weakref.ref(holder.last)
        step.reset()
        holder.last = None
        gc.collect()
        self.assertIsNone(kept())


class OfCode(unittest.TestCase):
    """What the byte code of functions reads."""

    def reads(self, function):
        return [f"{access.name}{''.join(map(str, access.path))} {access.use.name.lower()}"
                for access in reads_of(function.__code__).accesses]

    def test_chains_and_their_ends(self):
        a = b = i = f = None

        for function, expected in (
                (lambda: a.b["c"][-1].d, ["a.b['c'][-1].d whole"]),
                (lambda: a[i], ["a whole", "i whole"]),
                (lambda: a[0][i], ["a[0] whole", "i whole"]),
                (lambda: f(a, b.c), ["f called", "a whole", "b.c whole"]),
                (lambda: a.f(b)(i), ["a.f called", "b whole", "i whole"]),
                (lambda: f(a=a, *b), ["f called", "b whole", "a whole"]),
                (lambda: a.get("b"), ["a['b'] called"]),
                (lambda: a.get(b), ["a.get called", "b whole"]),
                (lambda: a.append(b), ["a.append called", "b whole"]),
                (lambda: getattr(a.b, "c", 1), ["getattr called", "a.b.c whole"]),
                (lambda: a is None, ["a tested"]),
                (lambda: len(a.b), ["len called", "a.b counted"]),
                (lambda: isinstance(a, i), ["isinstance called", "a tested", "i whole"]),
                (lambda: a if f else b, ["f whole", "a whole", "b whole"]),
                (lambda: (a if f else b).c, ["f whole", "a whole", "b whole"]),
                (lambda: [a + 1 for _ in b], ["b whole", "a whole"])):
            self.assertEqual(sorted(self.reads(function)), sorted(expected))

    def test_stores(self):
        a, b, i = {}, {}, 1

        def store():
            a[i + 1] = 2
            a["c"] = 2
            del a["c"]
            b.c = 2

        def assign():
            a["c"] += 1
            b.c.d += 1

        self.assertEqual(self.reads(store), ["a stored", "i whole", "b stored"])
        self.assertEqual(self.reads(assign), ["a['c'] whole", "b.c.d whole"])

    def test_other_pythons(self):
        """As they write what is a chain, a call and an assignment here: 3.9, 3.13, 3.14."""
        def instructions(*written):
            for opname, argval, argrepr in written:
                count = argval if isinstance(argval, int) else None
                yield types.SimpleNamespace(opname=opname, argval=argval, argrepr=argrepr or str(argval), arg=count,
                                            opcode=0, is_jump_target=False)

        def reads(*written):
            reads_of.cache_clear()
            with mock.patch("pumpgraph.code_reads.dis.get_instructions", lambda _code: instructions(*written)), \
                    mock.patch("pumpgraph.code_reads._effect", lambda instruction, is_store: (3, 0)):
                return self.reads(lambda: None)

        self.addCleanup(reads_of.cache_clear)
        a, f, k = ("LOAD_GLOBAL", "a", ""), ("LOAD_GLOBAL", "f", ""), ("LOAD_CONST", "k", "")
        self.assertEqual(reads(f, a, k, ("BINARY_SUBSCR", None, ""), ("CALL_FUNCTION", 1, ""), ("POP_TOP", None, "")),
                         ["f called", "a['k'] whole"])
        self.assertEqual(reads(f, a, k, ("CALL_FUNCTION_KW", 1, "")), ["f called", "a whole"])
        self.assertEqual(reads(a, ("LOAD_METHOD", "m", ""), f, ("CALL_METHOD", 1, "")), ["a.m called", "f whole"])
        self.assertEqual(reads(a, k, ("DUP_TOP_TWO", None, ""), ("BINARY_SUBSCR", None, ""), ("LOAD_CONST", 1, ""),
                               ("INPLACE_ADD", None, "")), ["a['k'] whole"])
        self.assertEqual(reads(("LOAD_GLOBAL", "f", "f + NULL"), a, ("LOAD_ATTR", "b", ""), ("LOAD_CONST", "n", ""),
                               ("CALL_KW", 1, "")), ["f called", "a.b whole"])
        self.assertEqual(reads(a, ("LOAD_ATTR", "m", "m + NULL|self"), ("LOAD_GLOBAL", "f", ""), ("CALL", 1, "")),
                         ["a.m called", "f whole"])
        self.assertEqual(reads(f, ("PUSH_NULL", None, ""), a, ("PUSH_NULL", None, ""), ("CALL_FUNCTION_EX", None, "")),
                         ["f called", "a whole"])
        self.assertEqual(reads(a, ("LOAD_SMALL_INT", 0, ""), ("BINARY_OP", 26, "[]"), ("RETURN_VALUE", None, "")),
                         ["a[0] whole"])
        self.assertEqual(reads(k, a, ("LOAD_SMALL_INT", 0, ""), ("STORE_SUBSCR", None, "")), ["a stored"])
        self.assertEqual(reads(("LOAD_FAST_BORROW_LOAD_FAST_BORROW", ("x", "y"), ""), ("BINARY_OP", 0, "+")),
                         ["x whole", "y whole"])
        self.assertEqual(reads(("STORE_FAST_LOAD_FAST", ("x", "y"), ""), ("LOAD_ATTR", "b", ""), ("POP_TOP", None, "")),
                         ["y.b dropped"])
        self.assertEqual(reads(a, ("SOMETHING_NEW", None, ""), ("POP_TOP", None, "")), ["a whole"])

    def test_names_of_attributes(self):
        def function(thing, a):
            thing.losses.append(a)
            thing.table["a"] = 1
            thing.backward()
            return thing.beta.gamma, getattr(thing, "delta"), [thing.items for _ in a]

        found = reads_of(function.__code__)
        self.assertTrue({"losses", "table", "beta", "gamma", "delta", "items"} <= found.names)
        self.assertTrue({"gamma", "delta", "items"} <= found.whole)
        self.assertIn("backward", found.called)
        self.assertNotIn("backward", found.names)
        self.assertTrue({"losses", "table"}.isdisjoint(found.whole))


if __name__ == "__main__":
    unittest.main()
