# SPDX-License-Identifier: Apache-2.0
"""pumpgraph.graphed with stand-ins for PyTorch and the library: which calls run, are captured, replayed or refused."""

import collections
import dataclasses
import functools
import gc
import re
import sys
import types
import unittest
import weakref
from pathlib import Path
from unittest import mock

import test_torch_capture as base
from test_torch_capture import torch

import pumpgraph
from pumpgraph import (_session, PumpGraphError, StaleStepError, Status, UnsupportedError, device_updates, nested,
                       torch_capture)
from pumpgraph.changes import Changes
from pumpgraph.reachable import Reachable
from pumpgraph.refusals import explain_failed_capture


def copied(source, destination, size=16):
    """What the library writes down of a copy before a replay."""
    return f"copy {size} bytes from {source:#x} to {destination:#x}"


def touching(addresses):
    """Captured graphs have one kernel, which touches 16 bytes at each address."""
    buffers = [f'  %b{at:x} = pump.buffer "b {at:x}" live_in size(16) address({at:#x})\n' for at in addresses]
    accesses = ", ".join(f"readwrite %b{at:x}[0, 16] assumed" for at in addresses)
    text = "pump.graph @fn {\n" + "".join(buffers) + f'  %k0 = pump.kernel "k" node(0) [{accesses}] cost(1.0)\n}}\n'
    return mock.patch.object(torch_capture.Step, "save", lambda _step, path: path.write_text(text))


class GraphedTest(base.TorchTest):
    """A model with one weight, its optimizer, and a step that uses both."""

    def setUp(self):
        super().setUp()
        torch.utils._python_dispatch.stack.clear()
        self.install()
        self.weight = torch.nn.Parameter(0xA000, requires_grad=True)
        self.model = torch.nn.Module({"fc.weight": self.weight})
        self.optimizer = torch.optim.Optimizer([self.weight], lr=0.1, capturable=True)

    def step(self, **options):
        model, optimizer = self.model, self.optimizer

        def fn(x, scale=1):
            torch.note(f"fn {x.data_ptr():#x}")
            model(x)
            optimizer.step()
            return torch.Tensor(0xE000)

        model.forward = lambda x: x
        return pumpgraph.graphed(fn, **options)

    def x(self, pointer=0x1000, **options):
        return torch.Tensor(pointer, **options)

    def captured(self, **options):
        """A step that was replayed once; the log is empty."""
        step = self.step(warmup=1, **options)
        step(self.x())
        step(self.x())
        self.calls()
        return step

    def notes(self):
        beginnings = "fn", "copy", "torch: copy", "torch: replay", "torch: fill", "adopt"
        return [line for line in self.calls() if line.startswith(beginnings)]


class Calls(GraphedTest):
    def test_warm_up_then_capture_then_replay_of_that_very_call(self):
        step = self.step(warmup=2)
        for pointer in (0x1000, 0x2000):
            step(self.x(pointer))
            self.assertEqual(self.notes(), [f"torch: copy {pointer:#x} to 0x1100", "fn 0x1100"])
        output = step(self.x(0x3000))
        adopt = "adopt 0x5e55 0x6002 size=1 name=fn costs=NULL leave=0 keep=0 calibrate=0 boundary=0"
        self.assertEqual(self.notes(), ["torch: copy 0x3000 to 0x1100", "fn 0x1100", "fn 0x1100", adopt,
                                        copied(0x3000, 0x1100), "torch: replay 2"])
        self.assertEqual(output.data_ptr(), 0xE000)
        del output
        self.assertEqual(step(self.x(0x4000)).data_ptr(), 0xE000)
        self.assertEqual(self.notes(), [copied(0x4000, 0x1100), "torch: replay 2"])

    def test_arguments_that_are_more_than_bytes_on_the_device_are_copied_by_pytorch(self):
        negated = self.x(0x2000)
        negated.has_negated_view = True
        no_memory = self.x(0)
        for options, argument in ((dict(is_cuda=False), None), (dict(dtype=torch.complex64), None),
                                  (dict(shape=(0,)), None), ({}, negated), ({}, no_memory)):
            step = self.step(warmup=1)
            for _ in range(2):
                step(self.x(0x1000, **options))
            self.calls()
            step(argument or self.x(0x2000, **options))
            source = (argument or self.x(0x2000)).data_ptr()
            self.assertEqual(self.notes()[0], f"torch: copy {source:#x} to 0x1100")
            step.reset()

    def test_what_is_private_is_found_but_for_settings(self):
        self.optimizer.param_groups[0]["lr"] = torch.Tensor(0xC000)
        step = self.step(warmup=1)
        step(self.x())
        step(self.x())
        declared = [line for line in self.calls() if line.startswith("declare")]
        self.assertEqual(declared, ["declare_private 0x5e55 0xa000", "declare_present 0x5e55 0x1100"])

    def test_an_optimizer_that_the_search_does_not_find_is_found_when_it_steps(self):
        self.optimizer.state[self.weight] = {"exp_avg": torch.Tensor(0xD000)}
        torch.hidden = self.optimizer.step
        step = pumpgraph.graphed(lambda x: torch.hidden(), warmup=1)
        step(self.x())
        step(self.x())
        self.assertIn("declare_private 0x5e55 0xd000", self.calls())

    def test_other_shapes_and_values_are_other_graphs(self):
        step = self.captured()
        for call in (lambda: step(self.x(shape=(3,))), lambda: step(self.x(), 2), lambda: step(self.x(), 2.0)):
            call()
            call()
            self.assertIn("torch: replay", self.notes()[-1])
        self.assertEqual(len(step.signatures()), 4)
        self.assertEqual(step.signatures()[1], "x float32[3], training")

    def test_too_many_are_refused_with_all_of_them(self):
        step = self.captured(max_graphs=2)
        step(self.x(shape=(3,)))
        with self.assertRaisesRegex(UnsupportedError, r"(?s)max_graphs=2.*x float32\[2\].*32\[3\].*now.*32\[4\]"):
            step(self.x(shape=(4,)))
        step(self.x())

    def test_evaluation_is_another_graph_and_training_finds_its_own_again(self):
        step = self.captured()
        self.model.training = False
        step(self.x())
        step(self.x())
        self.assertEqual(self.notes()[-1], "torch: replay 4")
        self.model.training = True
        step(self.x())
        self.assertEqual(self.notes()[-1], "torch: replay 2")

    def test_a_call_inside_another_is_part_of_it(self):
        inner = self.step(warmup=1)
        outer = pumpgraph.graphed(lambda x: inner(x), warmup=1)
        outer(self.x())
        outer(self.x())
        self.assertEqual(inner.signatures(), [])
        self.assertEqual(len(outer.signatures()), 1)

    def test_paused(self):
        step = self.captured()
        with pumpgraph.paused():
            self.assertEqual(self.calls(), ["take_back 0x5e55"])
            step(self.x())
        self.assertEqual(self.notes(), ["fn 0x1000"])
        step(self.x())
        self.assertEqual(self.notes()[-1], "torch: replay 2")

    def test_methods_have_graphs_for_every_object(self):
        class Trainer:
            def __init__(self, model):
                self.model = model

            @pumpgraph.graphed(warmup=1)
            def step(self, x):
                return x

        trainers = [Trainer(self.model), Trainer(self.model)]
        for trainer in trainers:
            trainer.step(self.x())
            trainer.step(self.x())
        self.assertIsNot(trainers[0].step, trainers[1].step)
        self.assertIs(trainers[0].step, trainers[0].step)
        self.assertEqual(trainers[0].step.signatures(), ["x float32[2], training"])

    def test_reset_warms_up_again(self):
        step = self.captured()
        step.reset()
        self.assertIn("step_destroy 0x57e9", self.calls())
        step(self.x())
        self.assertEqual(self.notes(), ["torch: copy 0x1000 to 0x1100", "fn 0x1100"])

    def test_a_forgotten_step_gives_up_its_graphs(self):
        step = self.captured()
        del step
        gc.collect()
        self.assertIn("step_destroy 0x57e9", self.calls())

    def test_before_the_capture_there_is_no_report(self):
        with self.assertRaisesRegex(PumpGraphError, "not captured yet"):
            self.step().report()

    def test_raise_instead_of_a_step_left_as_captured(self):
        self.set_report('{"runtime": {"left_as_captured": "node 7 is a conditional node"}}')
        step = self.step(warmup=1, on_unsupported="raise")
        step(self.x())
        with self.assertRaisesRegex(UnsupportedError, "node 7 is a conditional node"):
            step(self.x())
        self.assertIn("step_destroy 0x57e9", self.calls())

    def test_warn_is_the_default(self):
        self.set_report('{"runtime": {"left_as_captured": "node 7 is a conditional node"}}')
        step = self.step(warmup=1)
        step(self.x())
        with self.assertWarnsRegex(RuntimeWarning, "node 7") as caught:
            step(self.x())
        self.assertEqual(caught.filename, __file__)

    def test_wrong_options(self):
        for options in ({"warmup": 0}, {"on_unsupported": "ignore"}):
            with self.subTest(options=options), self.assertRaises(PumpGraphError):
                pumpgraph.graphed(lambda: None, **options)


class Arguments(GraphedTest):
    def refused(self, pattern, *args):
        with self.assertRaisesRegex(UnsupportedError, pattern):
            self.step()(*args)
        self.assertFalse([line for line in self.calls() if line.startswith("fn")])

    def test_a_tensor_with_a_history(self):
        x = self.x()
        x.grad_fn = object()
        self.refused("gradients outside the step", x)

    def test_a_tensor_of_another_device(self):
        x = self.x()
        x.device = torch.device("cuda", 1)
        self.refused("an argument is on cuda:1", x)

    def test_what_cannot_be_compared(self):
        self.refused("bytearray, which cannot be compared", bytearray(b"x"))

    def test_a_parameter_is_itself_and_not_copied(self):
        step = pumpgraph.graphed(lambda x: torch.note(f"fn {x.data_ptr():#x}"), warmup=1)
        step(self.weight)
        self.assertEqual(self.notes(), ["fn 0xa000"])

    def test_gradients_of_arguments_are_refused(self):
        def fn(x):
            x.grad = torch.Tensor(0xF000)

        with self.assertRaisesRegex(UnsupportedError, "gradient into an argument"):
            pumpgraph.graphed(fn)(self.x(requires_grad=True))


class Layer:
    def __init__(self, pointer):
        self.keys = torch.Tensor(pointer)
        self.keys._storage.size = 1 << 20
        self.length = 0


class Cache:
    """As those of language models: it holds layers, which hold tensors."""

    def __init__(self, pointer=0xB000):
        self.layers = [Layer(pointer), Layer(pointer + 0x100)]
        self.sizes = {"window": 4}


class SlottedCache:
    __slots__ = ("layers", "sizes", "unset")
    __init__ = Cache.__init__


class EqualCache(Cache):
    """All are equal to one another."""

    def __eq__(self, _other):
        return True

    def __hash__(self):
        return 0


class Objects(GraphedTest):
    """Arguments that hold tensors."""

    def decode(self, body=lambda cache: None, **options):
        def fn(x, cache):
            torch.note(f"fn {cache.layers[0].keys.data_ptr():#x}")
            return body(cache)

        return pumpgraph.graphed(fn, warmup=options.pop("warmup", 1), **options)

    def captured_for(self, cache, **options):
        step = self.decode(**options)
        step(self.x(), cache)
        with touching([0xB000, 0xB100]):
            step(self.x(), cache)
        self.calls()
        return step

    def stale(self, step, cache, pattern):
        with self.assertRaisesRegex(StaleStepError, f"fn: .*{pattern}.*fn.reset"):
            step(self.x(), cache)
        self.assertEqual(self.notes(), [])

    def test_the_tensors_in_one_may_leave_the_device(self):
        for kind in (Cache, SlottedCache, EqualCache):
            step, cache = self.decode(), kind()
            step(self.x(), cache)
            step(self.x(), cache)
            declared = [line for line in self.calls() if line.startswith("declare_private")]
            self.assertEqual(declared[-2:], ["declare_private 0x5e55 0xb000", "declare_private 0x5e55 0xb100"])

    def test_those_of_an_encoder_and_a_decoder(self):
        class Both:
            def __init__(self):
                self.layers, self.own = [Layer(0xB000)], Cache(0xC000)

        step, both = self.decode(), Both()
        step(self.x(), both)
        step(self.x(), both)
        self.assertIn("declare_private 0x5e55 0xc100", self.calls())
        both.own.layers[1].length += 1
        self.stale(step, both, "\"cache.own.layers.1.length\", which the step may read, was 0 .* is 1")

    def test_another_one_is_another_kind_of_call(self):
        for kind in (Cache, EqualCache):
            first, second = kind(), kind(0xC000)
            step = self.captured_for(first)
            replays = []
            for cache in (first, second, second, first):
                step(self.x(), cache)
                replays += [line for line in self.notes() if line.startswith("torch: replay")]
            self.assertEqual(len(replays), 3)  # one warms up
            self.assertEqual(replays[0], replays[2])
            self.assertNotEqual(replays[0], replays[1])
            self.assertEqual(step.signatures(), [f"x float32[2], cache {kind.__name__}"] * 2)

    def test_one_for_each_call_is_refused_in_the_end(self):
        step = self.decode(max_graphs=2)
        step(self.x(), Cache())
        step(self.x(), Cache())
        with self.assertRaisesRegex(UnsupportedError, "(?s)max_graphs=2.*cache Cache.*not as an object that holds it"):
            step(self.x(), Cache())

    def test_its_tensors_replaced_are_noticed(self):
        cache = Cache()
        step = self.captured_for(cache)
        cache.layers[1].keys = torch.Tensor(0xC000)
        self.stale(step, cache, "\"cache.layers.1.keys\" is another object")

    def test_its_layers_replaced_are_noticed(self):
        cache = Cache()
        step = self.captured_for(cache)
        cache.layers[1] = Layer(0xB100)
        self.stale(step, cache, "\"cache.layers.1\".* another object")

    def test_a_number_that_the_loop_changes_in_it(self):
        """Library code may read it."""
        for change, name, what in (
            (lambda cache: setattr(cache.layers[1], "length", 3), "layers.1.length", "was 0 .* is 3"),
            (lambda cache: cache.sizes.update(window=8), "sizes.window", "was 4 .* is 8"),
            (lambda cache: cache.sizes.update(more=1), "sizes.more", "was not there"),
            (lambda cache: cache.layers.pop(), "layers.1", ".*gone"),
            (lambda cache: setattr(cache, "sizes", {"window": 8}), "sizes", "is another object"),
        ):
            for kind in (Cache, SlottedCache):
                cache = kind()
                step = self.captured_for(cache)
                change(cache)
                self.stale(step, cache, f"\"cache.{name}\"(, which the step may read,)? {what}")

    def test_an_equal_number_is_none(self):
        cache = Cache()
        cache.sizes["window"] = 1000
        step = self.captured_for(cache)
        cache.sizes["window"] = int("1000")
        step(self.x(), cache)
        self.assertEqual(self.notes()[-1], "torch: replay 2")

    def test_a_number_that_the_step_changes_in_it(self):
        def count(cache):
            cache.layers[1].length += 1

        step, cache = self.decode(count, warmup=2), Cache()
        step(self.x(), cache)
        step(self.x(), cache)
        with self.assertRaisesRegex(UnsupportedError, "\"cache.layers.1.length\" is a number that the step changes"):
            step(self.x(), cache)

    def test_a_tensor_that_the_step_replaces_in_it(self):
        def grow(cache):
            cache.layers[0].keys = torch.fresh(0xB000)

        with self.assertRaisesRegex(UnsupportedError, "uses \"cache.layers.0.keys\" and replaces it"):
            self.captured_for(Cache(), body=grow)

    def test_a_tensor_that_the_step_only_leaves_in_it(self):
        def leave(cache):
            cache.last = torch.fresh(0xE100)

        cache = Cache()
        cache.last = torch.Tensor(0xD000)
        step = self.captured_for(cache, body=leave)
        for _ in range(2):
            cache.last = None
            step(self.x(), cache)
            self.assertEqual(cache.last.data_ptr(), 0xE300)

    def test_it_is_handed_through(self):
        class Output(collections.OrderedDict):
            """As what the models of transformers return."""

            def __setitem__(self, key, value):
                super().__setitem__(key, value)
                super().__setattr__(key, value)

        cache = Cache()
        step = self.captured_for(cache, body=lambda cache: Output(logits=torch.fresh(0xE000), past_key_values=cache))
        output = step(self.x(), cache)
        self.assertIsInstance(output, Output)
        self.assertIs(output.past_key_values, cache)
        self.assertIs(output["past_key_values"], cache)
        self.assertEqual(output.logits.data_ptr(), 0xE200)

    def test_one_that_the_step_makes_and_returns(self):
        step, cache = self.decode(lambda cache: [Cache(0xE000)]), Cache()
        step(self.x(), cache)
        with self.assertRaisesRegex(UnsupportedError, "returns a Cache with tensors that the next replay"):
            step(self.x(), cache)

    def test_one_that_is_no_argument_and_is_passed_on(self):
        """What calls it is not followed, so it may read its numbers."""
        @dataclasses.dataclass
        class State:
            keys: object
            length: int = 0

        def elsewhere(*things):
            torch.note(f"fn {len(things)}")

        cache, both, state, last = Cache(), [Cache(0xC000)], State(torch.Tensor(0xD000)), Cache(0x9000)
        holder = types.SimpleNamespace(cache=Cache(0xF000), count=0)
        changes = (
            (lambda x: elsewhere(x, cache), lambda: setattr(cache.layers[0], "length", 1), "cache.layers.0.length"),
            (lambda x: elsewhere(x, both), lambda: setattr(both[0].layers[1], "length", 1), "both.0.layers.1.length"),
            (lambda x: elsewhere(x, state), lambda: setattr(state, "length", 1), "state.length"),
            (lambda x, last=last: elsewhere(x, last), lambda: last.sizes.clear(), "last.sizes.window"),
            (lambda x: elsewhere(x, holder.cache), lambda: holder.cache.sizes.clear(), "holder.cache.sizes.window"))
        for fn, change, name in changes:
            step = pumpgraph.graphed(fn, warmup=1, name="fn")
            for _ in range(3):
                holder.count += 1
                step(self.x())
            self.calls()
            change()
            with self.assertRaisesRegex(StaleStepError, f"\"{name}\", which the step may read, .*fn.reset"):
                step(self.x())
            self.assertEqual(self.notes(), [])

    def test_one_whose_attributes_the_code_reads_itself(self):
        cache = Cache()
        cache.calls = 0

        def fn(_x):
            torch.note(f"fn {cache.layers[0].keys.data_ptr():#x}")

        step = pumpgraph.graphed(fn, warmup=1)
        for cache.calls in range(3):
            step(self.x())
        self.assertEqual(self.notes()[-1], "torch: replay 2")

    def test_settings_without_tensors_that_the_code_reads(self):
        settings = type("Settings", (), {})()
        settings.beta, settings.count = 0.5, 0
        step = pumpgraph.graphed(lambda x, settings: torch.note(f"fn {settings.beta}"), warmup=1, name="fn")
        step(self.x(), settings)
        step(self.x(), settings)
        settings.count = 7
        step(self.x(), settings)
        self.calls()
        settings.beta = 0.25
        self.stale(step, settings, "\"settings.beta\", which the step reads, was 0.5 .* is 0.25")


class Stale(GraphedTest):
    def stale(self, step, pattern):
        with self.assertRaisesRegex(StaleStepError, f"fn: .*{pattern}.*fn.reset"):
            step(self.x())
        self.assertEqual(self.notes(), [])

    def test_a_setting_that_changed(self):
        step = self.captured()
        self.optimizer.param_groups[0]["lr"] = 0.2
        self.stale(step, "\"lr\" of param group 0 of Optimizer was 0.1 .* is 0.2")

    def test_an_equal_setting_is_none(self):
        step = self.captured()
        self.optimizer.param_groups[0]["lr"] = float("0.1")
        self.optimizer.param_groups[0]["initial_lr"] = 0.5
        step(self.x())
        self.assertEqual(self.notes()[-1], "torch: replay 2")

    def test_a_tensor_that_took_the_place_of_a_setting_gives_its_value(self):
        rate = self.optimizer.param_groups[0]["lr"] = torch.Tensor(0xC000)
        step = self.captured()
        self.optimizer.param_groups[0]["lr"] = torch.Tensor(0xC500)
        step(self.x())
        self.assertIn("torch: copy 0xc500 to 0xc000", self.notes())
        self.assertIs(self.optimizer.param_groups[0]["lr"], rate)

    def test_loaded_state_goes_to_the_captured_tensors(self):
        average = torch.Tensor(0xD000)
        self.optimizer.state[self.weight] = {"exp_avg": average}
        step = self.captured()
        self.optimizer.state = {self.weight: {"exp_avg": torch.Tensor(0xD500)}}
        self.optimizer.param_groups = [dict(group) for group in self.optimizer.param_groups]
        step(self.x())
        self.assertEqual(self.notes()[0], "torch: copy 0xd500 to 0xd000")
        self.assertIs(self.optimizer.state[self.weight]["exp_avg"], average)

    def test_state_that_is_gone(self):
        self.optimizer.state[self.weight] = {"exp_avg": torch.Tensor(0xD000)}
        step = self.captured()
        self.optimizer.state.clear()
        self.stale(step, "had state for 1 parameters and has it for 0")

    def test_another_param_group(self):
        step = self.captured()
        self.optimizer.param_groups.append({"params": []})
        self.stale(step, "had 1 param groups and has 2")

    def test_a_parameter_that_was_converted(self):
        step = self.captured()
        self.weight._storage._pointer = 0xA500
        self.stale(step, "\"fc.weight\" has other memory")

    def test_a_parameter_that_was_replaced(self):
        step = self.captured()
        other = self.model._parameters["fc.weight"] = torch.nn.Parameter(0xA000, requires_grad=True)
        for hook in torch.nn.modules.module.hooks:
            hook(self.model, "fc.weight", other)
        self.stale(step, "replaced, added or removed")

    def test_a_model_that_took_the_place_of_another(self):
        holder = types.SimpleNamespace(model=self.model)
        step = pumpgraph.graphed(lambda x: holder.model and None, warmup=1, name="fn")
        step(self.x())
        step(self.x())
        self.calls()
        holder.model = torch.nn.Module({"fc.weight": self.weight})
        self.stale(step, "\"holder.model\" is another object")
        del holder.model
        self.stale(step, "\"holder.model\" is another object than .*, or gone")


class Noticed(GraphedTest):
    """Between two calls nothing is looked at again unless something has left a mark; what leaves one."""

    def looks(self, step, pattern=None):
        """How often a call looks at everything; it raises StaleStepError with `pattern` if that is given."""
        graph = next(iter(step._graphs.values()))[0]
        with mock.patch.object(graph, "_look", wraps=graph._look) as look:
            if pattern is None:
                step(self.x())
            else:
                with self.assertRaisesRegex(StaleStepError, pattern):
                    step(self.x())
        self.calls()
        return look.call_count

    def quiet(self, **options):
        """A captured step that has seen everything."""
        step = self.captured(**options)
        step(self.x())
        self.assertEqual(self.looks(step), 0)
        return step

    def test_a_second_call_does_not_look_again(self):
        step = self.quiet()
        self.x().requires_grad = True  # as loaders do
        self.x().requires_grad_()
        self.optimizer.param_groups[0]["lr"] = float("0.1")
        self.assertEqual(self.looks(step), 0)

    def test_attributes_and_methods_of_parameters(self):
        for change in (lambda: setattr(self.weight, "data", None), lambda: setattr(self.weight, "grad", None),
                       lambda: delattr(self.weight, "data"), self.weight.requires_grad_, self.weight.detach_,
                       lambda: self.weight.set_(self.weight), lambda: self.weight.resize_(self.weight),
                       lambda: self.weight.resize_as_(self.weight),
                       lambda: self.weight.untyped_storage().resize_(0)):
            step = self.quiet()
            change()
            self.assertEqual(self.looks(step), 1)
            self.assertEqual(self.looks(step), 0)

    def test_other_memory(self):
        for change in (lambda other: setattr(self.weight, "_storage", other._storage), self.weight.set_):
            step = self.quiet()
            change(torch.Tensor(0xA500))
            for _ in range(2):  # it stays an error
                self.assertEqual(self.looks(step, "\"fc.weight\" has other memory"), 1)
            self.weight.set_(torch.Tensor(0xA000))
            self.assertEqual(self.looks(step), 1)

    def test_a_parameter_that_gets_no_gradients_is_another_graph(self):
        step = self.quiet()
        for change in (lambda: self.weight.requires_grad_(False), lambda: setattr(self.weight, "requires_grad", True)):
            change()
            step(self.x())
            step(self.x())
            self.notes()
            step(self.x())
            self.assertEqual(self.notes()[-1], f"torch: replay {2 if self.weight.requires_grad else 4}")
        self.assertEqual(len(step.signatures()), 2)

    def test_modules_that_train(self):
        inner = torch.nn.Module()
        self.model._children = {"inner": inner}
        step = self.quiet()
        inner.width = 3
        self.assertEqual(self.looks(step), 1)
        inner.training = False
        step(self.x())
        self.assertEqual(self.notes(), ["torch: copy 0x1000 to 0x1100", "fn 0x1100"])

    def test_a_module_that_assigns_in_its_own_way(self):
        class Own(torch.nn.Module):
            def __setattr__(self, name, value):
                object.__setattr__(self, name, value)

        own = Own()
        self.model._children = {"own": own}
        step = self.quiet()
        own.training = False
        step(self.x())
        self.assertEqual(self.notes(), ["torch: copy 0x1000 to 0x1100", "fn 0x1100"])

    def test_a_tensor_that_assigns_in_its_own_way(self):
        class Own(torch.nn.Parameter):
            def __setattr__(self, name, value):
                object.__setattr__(self, name, value)

        own = self.model._parameters["own"] = Own(0xA700)
        step = self.captured()
        for _ in range(3):
            self.assertEqual(self.looks(step), 1)
        own._storage = torch.Tensor(0xA800)._storage
        self.looks(step, "\"own\" has other memory")

    def test_a_backward_pass_outside(self):
        step = self.quiet()
        torch.autograd.Variable._execution_engine.run_backward(self.weight)
        step(self.x())
        self.assertEqual(self.notes()[-1], "torch: replay 4")  # with gradients it is another graph

    def test_a_conversion_that_replaces_buffers(self):
        self.model._buffers["mean"] = torch.Tensor(0xD000)
        step = self.quiet()
        self.model._apply(lambda buffer: buffer)
        self.assertEqual(self.looks(step), 1)
        self.model._apply(lambda buffer: torch.Tensor(0xD500))
        self.looks(step, "replaced, added or removed")

    def test_what_moves_without_a_mark_is_found_in_turn(self):
        for index in range(100):
            self.model._parameters[f"w{index}"] = torch.nn.Parameter(0xA000 + index * 0x10)
        step = self.quiet()
        self.model._parameters["w99"]._storage._pointer = 0xF500
        calls = 0
        with self.assertRaisesRegex(StaleStepError, "\"w99\" has other memory"):
            while calls < 100:
                calls += 1
                step(self.x())
        self.assertLessEqual(calls, 51)  # 101 by twos
        for _ in range(3):
            with self.assertRaisesRegex(StaleStepError, "\"w99\" has other memory"):
                step(self.x())

    def test_removals(self):
        for remove in (lambda: delattr(self.model, "extra"), lambda: self.model.register_parameter("extra", None)):
            self.model._parameters["extra"] = torch.nn.Parameter(0xA000)
            step = self.quiet()
            remove()
            with self.assertRaisesRegex(StaleStepError, "replaced, added or removed"):
                step(self.x())
            self.model._parameters.pop("extra", None)

    def test_tensors_of_a_step_that_is_gone_are_watched_no_more(self):
        step = self.quiet()
        self.assertIn(id(self.weight), Changes.watched)
        step.reset()
        del step
        gc.collect()
        self.assertNotIn(id(self.weight), Changes.watched)


class Baked(GraphedTest):
    def refused(self, pattern):
        with self.assertRaisesRegex(UnsupportedError, pattern):
            self.step()(self.x())
        self.assertNotIn("torch: optimizer step", self.calls())

    def test_a_rate_under_a_scheduler(self):
        step = functools.partial(torch.optim.Optimizer.step, self.optimizer)
        step._wrapped_by_lr_sched = True
        self.optimizer.step = step
        self.refused(r"learning rate of param group 0 of Optimizer.*0\.1.*lr=torch.tensor\(0\.1, device=\"cuda\"\)")
        self.optimizer.param_groups[0]["lr"] = torch.Tensor(0xC000)
        step = self.step(warmup=1)
        step(self.x())

    def test_step_counts_on_the_host(self):
        self.optimizer.param_groups[0]["capturable"] = False
        self.refused(r"capturable=False.*write Optimizer\(\.\.\., capturable=True\)")

    def test_an_optimizer_that_does_not_step_may_be_any(self):
        self.optimizer.param_groups[0]["capturable"] = False
        optimizer = self.optimizer
        pumpgraph.graphed(lambda x: optimizer and None)(self.x())


class OfPyTorch(torch.optim.Optimizer):
    """One that notes what its param groups hold while it steps."""

    __module__ = "torch.optim.adam"
    fails = False
    makes_state = staticmethod(lambda optimizer: None)

    def __init__(self, *arguments, **settings):
        super().__init__(*arguments, **settings)
        self.after_state_dict = []

    def step(self):
        for hook in list(sys.modules["torch"]._step_hooks):
            hook(self, (), {})
        torch.held.append([dict(group) for group in self.param_groups])
        self.makes_state(self)
        if self.fails:
            raise RuntimeError("no step")
        for hook in list(sys.modules["torch"]._after_step_hooks):
            hook(self, (), {})

    def register_state_dict_post_hook(self, hook):
        self.after_state_dict.append(hook)

    def state_dict(self):
        groups = [{**group, "params": [0]} for group in self.param_groups]
        state = {"state": {0: self.state[parameter] for parameter in self.state}, "param_groups": groups}
        for hook in self.after_state_dict:
            state = hook(self, state)
        return state


class Sgd(OfPyTorch):
    __module__ = "torch.optim.sgd"


Sgd.__name__ = "SGD"


class Adagrad(OfPyTorch):
    __module__ = "torch.optim.adagrad"


class UsualOptimizers(GraphedTest):
    def make(self, kind=OfPyTorch, **settings):
        torch.held = []
        self.optimizer = kind([self.weight], lr=0.1, **settings)
        return self.optimizer

    def schedule(self):
        step = functools.partial(type(self.optimizer).step, self.optimizer)
        step._wrapped_by_lr_sched = True
        self.optimizer.step = step

    def test_counts_and_a_rate_are_on_the_device_while_it_steps(self):
        optimizer = self.make(capturable=False)
        self.captured()
        for groups in torch.held:
            self.assertIs(groups[0]["capturable"], True)
            self.assertIsInstance(groups[0]["lr"], torch.Tensor)
        self.assertEqual({key: value for key, value in optimizer.param_groups[0].items() if key != "params"},
                         {"lr": 0.1, "capturable": False})

    def test_a_rate_that_changes_goes_there_before_the_next_replay(self):
        optimizer = self.make(capturable=False)
        step = self.captured()
        for rate in (0.05, 0.025):
            optimizer.param_groups[0]["lr"] = rate
            step(self.x())
            notes = self.notes()
            self.assertEqual(notes[0], f"torch: fill 0x9000 with {rate}")
            self.assertTrue(notes[-1].startswith("torch: replay"), notes)
            self.assertEqual(optimizer.param_groups[0]["lr"], rate)
        step(self.x())
        self.assertFalse([note for note in self.notes() if "fill" in note], "it has not changed")

    def test_two_functions_that_share_an_optimizer_have_the_same_rate(self):
        optimizer = self.make(capturable=False)
        one, other = self.captured(), self.captured(name="other")
        for rate, step in ((0.05, one), (0.05, other), (0.025, other), (0.025, one), (0.05, one)):
            optimizer.param_groups[0]["lr"] = rate
            step(self.x())
            self.assertEqual(torch.held[-1][0]["lr"].value, rate)

    def test_a_rate_that_changes_before_the_capture(self):
        optimizer = self.make(capturable=False)
        step = self.step(warmup=1)
        step(self.x())
        self.calls()
        optimizer.param_groups[0]["lr"] = 0.05
        step(self.x())
        calls = self.calls()
        begun = next(index for index, call in enumerate(calls) if "capture" in call)
        self.assertIn("torch: fill 0x9000 with 0.05", calls[:begun])

    def test_a_rate_in_a_loaded_state(self):
        optimizer = self.make(capturable=False)
        step = self.captured()
        optimizer.param_groups = [{**optimizer.param_groups[0], "lr": 0.05}]
        step(self.x())
        self.assertIn("torch: fill 0x9000 with 0.05", self.notes())

    def test_another_setting_that_changes_is_an_error(self):
        optimizer = self.make(capturable=False, eps=1e-8)
        step = self.captured()
        optimizer.param_groups[0]["lr"] = 0.05
        optimizer.param_groups[0]["eps"] = 1e-6
        with self.assertRaisesRegex(StaleStepError, "\"eps\" of param group 0 of OfPyTorch was 1e-08 .* is 1e-06"):
            step(self.x())

    def test_one_that_is_capturable_stays_as_it_is(self):
        self.make(capturable=True)
        self.captured()
        self.assertEqual(torch.held[0][0]["lr"], 0.1)

    def test_one_that_is_capturable_under_a_scheduler(self):
        optimizer = self.make(capturable=True)
        self.schedule()
        step = self.captured()
        self.assertIsInstance(torch.held[-1][0]["lr"], torch.Tensor)
        optimizer.param_groups[0]["lr"] = 0.05
        step(self.x())
        self.assertIn("torch: fill 0x9000 with 0.05", self.notes())

    def test_sgd_is_fused_under_a_scheduler(self):
        optimizer = self.make(Sgd, fused=None, foreach=None)
        self.captured()
        self.assertEqual((torch.held[-1][0]["fused"], torch.held[-1][0]["lr"]), (None, 0.1))
        optimizer = self.make(Sgd, fused=None, foreach=None)
        self.schedule()
        self.captured()
        self.assertEqual((torch.held[-1][0]["fused"], torch.held[-1][0]["foreach"]), (True, False))
        self.assertIsInstance(torch.held[-1][0]["lr"], torch.Tensor)
        self.assertEqual((optimizer.param_groups[0]["fused"], optimizer.param_groups[0]["lr"]), (None, 0.1))

    def test_a_step_that_fails_leaves_the_settings(self):
        optimizer = self.make(capturable=False)
        optimizer.fails = True
        with self.assertRaisesRegex(RuntimeError, "no step"):
            self.step()(self.x())
        self.assertEqual(optimizer.param_groups[0]["lr"], 0.1)

    def test_counts_come_to_the_device_and_are_saved_as_ever(self):
        optimizer = self.make(capturable=False)
        count, average = torch.Tensor(0xD000, is_cuda=False), torch.Tensor(0xD100)
        on_device = torch.Tensor(0xD200)
        count.to = lambda device: on_device
        optimizer.state[self.weight] = {"step": count, "exp_avg": average}
        self.captured()
        self.assertIs(optimizer.state[self.weight]["step"], on_device)
        saved = optimizer.state_dict()["state"][0]
        self.assertFalse(saved["step"].is_cuda)
        self.assertIs(saved["exp_avg"], average)
        self.assertIs(optimizer.state[self.weight]["step"], on_device)

    def test_counts_of_a_fused_one_are_saved_on_the_device(self):
        optimizer = self.make(capturable=False, fused=True)
        optimizer.state[self.weight] = {"step": torch.Tensor(0xD000)}
        self.captured()
        self.assertTrue(optimizer.state_dict()["state"][0]["step"].is_cuda)

    def test_a_rate_that_is_computed_from_counts(self):
        optimizer = self.make(Adagrad, fused=None)
        count, on_device = torch.Tensor(0xD000, is_cuda=False), torch.Tensor(0xD200)
        count.to = lambda device: on_device

        def makes_state(optimizer):
            optimizer.state.setdefault(self.weight, {"step": count})

        optimizer.makes_state = makes_state
        step = self.captured()
        for groups in torch.held:
            self.assertEqual(groups[0]["lr"].dtype, torch.float64)
            self.assertIs(groups[0]["capturable"], True)
        self.assertEqual({key: value for key, value in optimizer.param_groups[0].items() if key != "params"},
                         {"lr": 0.1, "fused": None})
        self.assertIs(optimizer.state[self.weight]["step"], on_device, "before the capture")
        self.assertFalse(optimizer.state_dict()["state"][0]["step"].is_cuda)
        optimizer.param_groups[0]["lr"] = 0.05
        step(self.x())
        self.assertIn("torch: fill 0x9000 with 0.05", self.notes())

    def test_updates_on_the_device_are_for_doubles(self):
        module = types.ModuleType("torch.optim.adagrad")
        calls = []
        module.adagrad = original = lambda *tensors, **options: calls.append(options["lr"])
        double = torch.Tensor(0x9000, dtype=torch.float64)
        with mock.patch.dict(sys.modules, {module.__name__: module}):
            with device_updates.computed_on_device():
                for rate in (0.1, torch.Tensor(0x9000), torch.Tensor(0x9000, is_cuda=False, dtype=torch.float64)):
                    module.adagrad([], [], [], [], lr=rate)
                    self.assertIs(calls.pop(), rate)
                for setting in ("differentiable", "has_sparse_grad", "has_complex"):
                    with self.assertRaisesRegex(UnsupportedError, "Adagrad with foreach=False.*leave foreach"):
                        module.adagrad([], [], [], [], lr=double, foreach=None, **{setting: True})
                with self.assertRaisesRegex(UnsupportedError, "Adagrad with foreach=False.*leave foreach"):
                    module.adagrad([], [], [], [], lr=double, foreach=False)
                self.assertEqual(calls, [])
            self.assertIs(module.adagrad, original)

    def test_prepare_makes_it_fused(self):
        optimizer = self.make(capturable=False, fused=None, foreach=None)
        self.assertIs(pumpgraph.prepare(optimizer, fused=True), optimizer)
        self.assertTrue(optimizer._step_supports_amp_scaling)
        self.captured()
        self.assertEqual((torch.held[-1][0]["fused"], torch.held[-1][0]["foreach"]), (True, False))
        self.assertIsNone(optimizer.param_groups[0]["fused"])

    def test_prepare_is_for_pytorchs(self):
        with self.assertRaisesRegex(PumpGraphError, "Optimizer is none of PyTorch's optimizers"):
            pumpgraph.prepare(torch.optim.Optimizer([self.weight], lr=0.1))
        with self.assertRaisesRegex(PumpGraphError, "PyTorch has no fused OfPyTorch"):
            pumpgraph.prepare(self.make(capturable=False), fused=True)


class Scalers(GraphedTest):
    """GradScaler, which leaves an update out where gradients overflow."""

    def setUp(self):
        super().setUp()
        torch.held = []
        self.other = torch.nn.Parameter(0xA800, requires_grad=True)
        self.idle = torch.nn.Parameter(0xAC00, requires_grad=True)
        self.weight.grad, self.other.grad = torch.Tensor(0xB000), torch.Tensor(0xB800)
        self.optimizer = OfPyTorch([self.weight, self.other, self.idle], lr=0.1, capturable=True)
        self.optimizer.state = {self.weight: {"step": torch.Tensor(0xD000)}, self.other: {"step": torch.Tensor(0xD800)}}
        self.scaler, self.found_inf = torch.amp.GradScaler(), torch.Tensor(0xC000)

    def scaled(self, warmup=1):
        model, optimizer, scaler, found_inf = self.model, self.optimizer, self.scaler, self.found_inf

        def fn(x):
            model.training  # so that the search finds the model
            scaler.step(optimizer, found_inf)

        return pumpgraph.graphed(fn, warmup=warmup, name="scaled")

    def overflow(self, does=True):
        object.__setattr__(self.found_inf, "value", float(does))

    def test_all_that_an_update_changes_is_put_back_on_the_device(self):
        step = self.scaled()
        step(self.x())
        self.calls()
        step(self.x())
        wheres = [note for note in self.calls() if note.startswith("torch: where")]
        self.assertEqual(wheres[:4], [
            f"torch: where 0xc080 {there + 0x100:#x} or {there:#x} to {there:#x}"
            for there in (0xA000, 0xA800, 0xD000, 0xD800)])
        self.assertEqual(wheres[4:], wheres[:4], "rehearsal and capture")
        self.assertEqual([len(groups[0]["params"]) for groups in torch.held], [3, 2, 2])
        self.assertEqual(len(self.optimizer.param_groups[0]["params"]), 3)

    def test_it_goes_by_parts(self):
        with mock.patch("pumpgraph.scalers._AT_A_TIME", 1):
            step = self.scaled()
            step(self.x())
            step(self.x())
        self.assertEqual([groups[0]["params"] for groups in torch.held[1:3]], [[self.weight], [self.other]])

    def test_layouts_that_differ_stay_together(self):
        self.other.grad.stride = lambda: (2,)
        with mock.patch("pumpgraph.scalers._AT_A_TIME", 1):
            step = self.scaled()
            step(self.x())
            step(self.x())
        self.assertEqual([groups[0]["params"] for groups in torch.held[1:]], [[self.weight, self.other]] * 2)

    def test_settings_stay_those_of_a_captured_step_over_all_parts(self):
        self.optimizer.param_groups[0]["capturable"] = False
        with mock.patch("pumpgraph.scalers._AT_A_TIME", 1):
            step = self.scaled()
            step(self.x())
            step(self.x())
        self.assertEqual([groups[0]["capturable"] for groups in torch.held], [True] * 5)
        self.assertIs(self.optimizer.param_groups[0]["capturable"], False)

    def test_calls_warm_up_until_there_was_an_update(self):
        step = self.scaled()
        self.overflow()
        for _ in range(3):
            step(self.x())
        self.assertEqual((step.signatures(), torch.held), ([], []))
        self.overflow(False)
        step(self.x())
        self.assertEqual(step.signatures(), [])
        self.overflow()
        step(self.x())
        self.assertEqual(len(step.signatures()), 1)

    def test_state_that_the_captured_step_makes(self):
        step = self.scaled()
        step(self.x())
        self.optimizer.makes_state = lambda optimizer: optimizer.state[self.weight].update(more=torch.Tensor(0xDF00))
        with self.assertRaisesRegex(UnsupportedError, "OfPyTorch makes state in the captured step.*larger warmup"):
            step(self.x())
        self.assertEqual(len(self.optimizer.param_groups[0]["params"]), 3)

    def test_hooks_of_the_program(self):
        step = self.scaled()
        step(self.x())
        self.optimizer._optimizer_step_post_hooks = {0: print}
        with self.assertRaisesRegex(UnsupportedError, "OfPyTorch has hooks around its steps"):
            step(self.x())

    def test_a_step_that_was_replaced(self):
        step = self.scaled()
        step(self.x())
        own = type(self.optimizer).step
        self.optimizer.step = lambda: own(self.optimizer)
        with self.assertRaisesRegex(UnsupportedError, r"OfPyTorch\.step was replaced.*fused=True"):
            step(self.x())
        self.optimizer.step._wrapped_by_lr_sched = True
        self.optimizer.param_groups[0]["lr"] = torch.Tensor(0xC800)
        step(self.x())

    def test_optimizers_of_others_ask_the_host(self):
        self.optimizer = torch.optim.Optimizer([self.weight], lr=0.1, capturable=True)
        step = self.scaled()
        step(self.x())
        self.calls()
        with mock.patch.object(torch.Tensor, "item", side_effect=RuntimeError("during capture")), \
                self.assertRaisesRegex(UnsupportedError, "waits for the device"):
            step(self.x())
        self.assertFalse([note for note in self.calls() if "where" in note])

    def test_outside_of_graphed_functions_scalers_are_pytorchs(self):
        original = torch.amp.GradScaler._maybe_opt_step
        step = self.scaled()
        step(self.x())
        step(self.x())
        self.assertIs(torch.amp.GradScaler._maybe_opt_step, original)


class GradientsBetweenCalls(GraphedTest):
    """What `.grad` is before and after replays, which run no Python."""

    def run_once(self, fn, before, **options):
        step = pumpgraph.graphed(fn, warmup=1, name="fn", **options)
        for _ in range(2):
            self.weight.grad = before
            step(self.x())
        self.calls()
        return step

    def accumulate(self):
        model, weight = self.model, self.weight

        def fn(_x):
            model.training  # so that the search finds the model
            if weight.grad is None:
                weight.grad = torch.fresh(0xF000)

        return fn

    def test_made_in_the_step(self):
        step = self.run_once(self.accumulate(), None)
        self.assertEqual(self.weight.grad.data_ptr(), 0xF200)
        self.weight.grad = None
        step(self.x())
        self.assertEqual(self.weight.grad.data_ptr(), 0xF200)
        self.assertEqual(self.notes()[-1], "torch: replay 2")

    def test_added_to_is_another_graph(self):
        step = self.run_once(self.accumulate(), None)
        step(self.x())  # as the first call left it
        self.assertEqual(self.notes()[-1], "torch: replay 4")
        self.assertEqual(len(step.signatures()), 2)

    def test_added_to_elsewhere_is_copied(self):
        step = self.run_once(self.accumulate(), torch.Tensor(0xB000))
        for _ in range(2):
            self.weight.grad = torch.Tensor(0xB500)
            step(self.x())
            notes = self.calls()
            self.assertNotIn("take_back 0x5e55", notes)
            self.assertIn("torch: copy 0xb500 to 0xb000", notes)
            self.assertEqual(self.weight.grad.data_ptr(), 0xB000)
            self.assertFalse([line for line in notes if "torch: move" in line])

    def test_added_to_elsewhere_while_the_program_has_what_was_there(self):
        step = self.run_once(self.accumulate(), torch.Tensor(0xB000))
        kept = []
        for count in range(3):
            kept.append(self.weight.grad)
            self.weight.grad = torch.Tensor(0xB500)
            step(self.x())
            self.assertEqual(self.weight.grad.data_ptr(), 0xB000)
            self.assertEqual([gradient.data_ptr() for gradient in kept], [0x700B000] * (count + 1))
        kept.clear()
        self.calls()
        self.weight.grad = torch.Tensor(0xB500)
        step(self.x())
        self.assertFalse([line for line in self.calls() if "torch: move" in line])

    def test_used_up_in_the_step(self):
        model, weight = self.model, self.weight

        def update(_x):
            torch.note(f"fn {id((model, weight.grad)[1]):#x}")
            weight.grad = None

        gradient = torch.Tensor(0xB000)
        with mock.patch.object(self, "calls"):
            step = self.run_once(update, gradient)
        self.assertEqual([line for line in self.notes() if line.startswith("fn")], [f"fn {id(gradient):#x}"] * 3)
        self.assertIsNone(self.weight.grad)
        self.weight.grad = gradient
        step(self.x())
        self.assertIsNone(self.weight.grad)
        self.assertEqual(self.notes()[-1], "torch: replay 2")

    def test_made_anew_whatever_was_there(self):
        model, weight = self.model, self.weight

        def fn(_x):
            model.training
            weight.grad = torch.fresh(0xF000)

        step = self.run_once(fn, torch.Tensor(0xB000))
        left = self.weight.grad.data_ptr()
        for before in (self.weight.grad, torch.Tensor(0xB500)):
            self.weight.grad = before
            step(self.x())
            self.assertEqual(self.notes(), [copied(0x1000, 0x1100), "torch: replay 3"])
            self.assertEqual(self.weight.grad.data_ptr(), left)

    def test_what_is_made_anew_is_gone_when_the_step_is_planned(self):
        """Else the plan would have to do without its memory, for good."""
        model, weight = self.model, self.weight
        before, alive = [], []

        def fn(_x):
            model.training
            weight.grad = torch.fresh(0xF000)
            before[:] = before or [weakref.ref(weight.grad)]

        adopt = _session.Session.adopt
        step = pumpgraph.graphed(fn, warmup=1, name="fn")
        step(self.x())
        with mock.patch.object(_session.Session, "adopt", autospec=True, side_effect=lambda session, *args, **options: (
                alive.append(before[0]()), adopt(session, *args, **options))[1]):
            step(self.x())
        self.assertEqual(alive, [None])

    def test_used_and_made_anew_is_refused(self):
        """The step is rehearsed without its gradients, too: if they do not matter, both are the same."""
        model, weight = self.model, self.weight

        def fn(_x):
            model.training
            weight.grad = torch.Tensor(0xF000)

        self.addCleanup(self.control.fake_match_rehearsal, 1)
        for matches in (1, 0):
            self.control.fake_match_rehearsal(matches)
            for before, expected in ((torch.Tensor(0xB000), ["rehearse", "rehearsal_matches", "rehearse"]),
                                     (None, ["rehearse"])):
                with self.subTest(matches=matches, before=before):
                    step = pumpgraph.graphed(fn, warmup=1, name="fn")
                    self.weight.grad = before
                    step(self.x())
                    self.weight.grad = before
                    self.calls()
                    if before is not None and not matches:
                        with self.assertRaisesRegex(UnsupportedError, "\"fn\" uses gradients of the call before"):
                            step(self.x())
                        self.assertIs(self.weight.grad, before)
                        continue
                    step(self.x())
                    self.assertEqual([line.split()[0] for line in self.calls() if line.startswith("rehears")], expected)

    def test_an_operand_that_is_replaced_is_refused(self):
        """Whatever the two rehearsals look like: one may put another tensor into its place."""
        model, weight, x = self.model, self.weight, torch.Tensor(0x7000)
        old = torch.Tensor(0xB000)

        def fn(_x):
            model.training
            if torch.cuda.graphs:  # a rehearsal or the capture
                mode = torch.utils._python_dispatch._get_current_dispatch_mode()
                if mode is not None:
                    mode.operands.add(old.data_ptr() if weight.grad is not None else x.data_ptr())
            weight.grad = torch.Tensor(0xF000)

        step = pumpgraph.graphed(fn, warmup=1, name="fn")
        weight.grad = old
        step(self.x())
        weight.grad = old
        with self.assertRaisesRegex(UnsupportedError, "gradients of the call before"):
            step(self.x())
        self.assertIs(weight.grad, old)


class Attributes(GraphedTest):
    """Tensors that the step, or the program, puts into attributes and lists."""

    def setUp(self):
        super().setUp()
        self.holder = types.SimpleNamespace(last=torch.Tensor(0xB000), outs=[])

    def kept(self, fn, touched=(), warmup=1):
        """`fn` captured, by a graph whose only kernel touches 16 bytes at each address in `touched`."""
        step = pumpgraph.graphed(fn, warmup=warmup, name="fn")
        for _ in range(warmup):
            step(self.x())
        with touching(touched):
            step(self.x())
        self.calls()
        return step

    def replace_last(self, _x):
        self.holder.last = torch.fresh(0xB100)

    def test_one_that_the_step_reads_and_replaces_is_refused(self):
        holder = self.holder

        def fn(x):
            torch.note(f"fn {holder.last.data_ptr():#x}")  # 0xb100, of the warm-up
            self.replace_last(x)

        with self.assertRaisesRegex(UnsupportedError, r"uses \"holder\.last\".*holder\.last\.copy_"):
            self.kept(fn, touched=[0xB100])
        self.assertEqual(holder.last.data_ptr(), 0xB100)  # training may go on from there
        calls = self.calls()
        self.assertIn("step_destroy 0x57e9", calls)
        # The capture starts as the rehearsal did.
        self.assertEqual([line for line in calls if line.startswith("fn")], ["fn 0xb000", "fn 0xb100", "fn 0xb100"])

    def test_one_that_the_step_only_leaves_is_there_after_every_replay(self):
        holder = self.holder
        step = self.kept(lambda x: (holder, self.replace_last(x))[1])
        self.assertEqual(holder.last.data_ptr(), 0xB300)
        holder.last = torch.Tensor(0xC000)
        step(self.x())
        self.assertEqual(holder.last.data_ptr(), 0xB300)

    def test_variables_too(self):
        last = torch.Tensor(0xB000)

        def fn(x):
            nonlocal last
            last = torch.Tensor(0xB100)

        with self.assertRaisesRegex(UnsupportedError, "uses \"last\""):
            self.kept(fn, touched=[0xB100], warmup=2)

    def test_state_in_a_tuple_and_in_a_buffer_of_a_module(self):
        model, holder = self.model, self.holder
        holder.state = (torch.Tensor(0xD000), torch.Tensor(0xD100))

        def replace_tuple(_x):
            holder.state = (torch.Tensor(0xD200), torch.Tensor(0xD300))

        with self.assertRaisesRegex(UnsupportedError, "uses \"holder.state\""):
            self.kept(replace_tuple, touched=[0xD308])
        model._buffers["mean"] = torch.Tensor(0xD000)

        def replace_buffer(_x):
            model._buffers["mean"] = torch.Tensor(0xD400)

        with self.assertRaisesRegex(UnsupportedError, "uses \"mean\""):
            self.kept(replace_buffer, touched=[0xD400])

    def test_a_list_that_grows_is_refused(self):
        holder = self.holder
        with self.assertRaisesRegex(UnsupportedError, "list \"holder.outs\" grows in the step"):
            self.kept(lambda x: holder.outs.append(torch.fresh(0xB100)))
        self.assertEqual([out.data_ptr() for out in holder.outs], [0xB100])

    def test_one_that_was_none_is_refused(self):
        holder = self.holder
        step = pumpgraph.graphed(lambda x: (holder, self.replace_last(x))[1], warmup=1)
        step(self.x())
        holder.last = None
        with self.assertRaisesRegex(UnsupportedError, "adds \"holder.last\""):
            step(self.x())
        self.assertIsNone(holder.last)

    def test_state_of_an_optimizer(self):
        self.optimizer.state[self.weight] = {"mean": torch.Tensor(0xD000)}
        optimizer, state = self.optimizer, self.optimizer.state[self.weight]

        def fn(_x):
            optimizer.step()
            state["mean"] = torch.Tensor(0xD100)

        with self.assertRaisesRegex(UnsupportedError, "uses \"(Optimizer.state|state).mean\""):
            self.kept(fn, touched=[0xD100])

    def test_a_buffer_that_the_step_registers_anew(self):
        model = self.model
        model._buffers.update(seen=torch.Tensor(0xD000), mean=torch.Tensor(0xD100))

        def register(name, buffer):
            model._buffers[name] = buffer
            for hook in torch.nn.modules.module.hooks:
                hook(model, name, buffer)

        step = self.kept(lambda x: register("seen", torch.fresh(0xB100)), touched=[0xA000])
        left = model._buffers["seen"].data_ptr()
        register("seen", torch.Tensor(0xD200))  # as a call outside does
        step(self.x())
        self.assertEqual(model._buffers["seen"].data_ptr(), left)
        register("mean", torch.Tensor(0xD300))
        with self.assertRaisesRegex(StaleStepError, "replaced, added or removed"):
            step(self.x())

    def test_one_that_the_program_replaces(self):
        holder = self.holder
        step = self.kept(lambda x: holder.last and None, touched=[0xB008])
        holder.last = torch.Tensor(0xC000)
        with self.assertRaisesRegex(StaleStepError, "\"holder.last\" is another object"):
            step(self.x())

    def test_one_that_the_program_replaces_and_the_step_does_not_touch(self):
        holder = self.holder
        step = self.kept(lambda x: holder.last and None, touched=[0xA000])
        holder.last, holder.outs = torch.Tensor(0xC000), [torch.Tensor(0xC000)]
        step(self.x())
        self.assertEqual(self.notes()[-1], "torch: replay 2")

    def test_what_cannot_be_described_may_touch_everything(self):
        holder = self.holder
        self.fail_next("save", Status.INTERNAL, "no")
        with self.assertRaisesRegex(UnsupportedError, "uses \"holder.last\""):
            step = pumpgraph.graphed(lambda x: (holder, self.replace_last(x))[1], warmup=1)
            step(self.x())
            step(self.x())


class FakeOperator:
    __name__ = "norm.default"

    def __init__(self, views, writes, namespace, composite):
        self.namespace, self.composite = namespace, composite
        alias = types.SimpleNamespace(is_write=writes) if views or writes else None
        self._schema = types.SimpleNamespace(returns=[types.SimpleNamespace(alias_info=alias)],
                                             arguments=[types.SimpleNamespace(name="self", alias_info=alias)])

    def name(self):
        return "composite" if self.composite else self.__name__

    def __call__(self, *args, **kwargs):
        torch.note("operator")


class Outside(GraphedTest):
    """Operators between calls, with a plan in force that moves values."""

    def setUp(self):
        super().setUp()
        self.set_report('{"added_nodes": 4}')

    def operate(self, *args, views=False, writes=False, namespace="aten", composite=False):
        operator = FakeOperator(views, writes, namespace, composite)
        torch.utils._python_dispatch.stack[-1].__torch_dispatch__(operator, (), args)
        return self.calls()

    def test_a_private_tensor_is_brought_until_values_leave(self):
        step = self.captured()
        self.assertEqual(self.operate(self.weight), ["bring 0x5e55 to read 0xa000", "operator"])
        self.assertEqual(self.operate([self.weight]), ["operator"])
        step(self.x())  # which puts values back
        self.assertNotIn("torch: synchronize", self.calls())
        self.control.fake_depart()
        self.assertEqual(self.operate(self.weight), ["bring 0x5e55 to read 0xa000", "operator"])

    def test_a_tensor_that_may_be_written_is_brought_to_be_written(self):
        step = self.captured()
        self.operate(self.weight)
        self.assertEqual(self.operate(self.weight, writes=True), ["bring 0x5e55 to write 0xa000", "operator"])
        self.assertEqual(self.operate(self.weight), ["operator"])
        self.control.fake_depart()
        self.assertEqual(self.operate(self.weight, namespace="mine"), ["bring 0x5e55 to write 0xa000", "operator"])
        self.control.fake_depart()
        modes = torch.utils._python_dispatch
        with mock.patch.object(modes, "_get_current_dispatch_mode_stack", lambda: [self], create=True):
            # A mode of the program's may do anything in the operator's place.
            self.assertEqual(self.operate(self.weight), ["bring 0x5e55 to write 0xa000", "operator"])
        del step

    def test_others_and_views_are_not(self):
        step = self.captured()
        self.assertEqual(self.operate(self.x(), 3, None), ["operator"])
        self.assertEqual(self.operate(self.weight, views=True), ["operator"])
        del step

    def test_a_private_argument_is_mapped_while_it_is_copied(self):
        step = self.captured()
        step(torch.Tensor(0xA000))  # the weight's
        calls = self.calls()
        of_interest = ["bring 0x5e55 to read 0xa000", "torch: copy 0xa000 to 0x1100", "torch: replay 2"]
        self.assertEqual([line for line in calls if line in of_interest], of_interest)

    def test_what_is_declared_to_make_views_may_copy(self):
        """to() and reshape(), which a mode sees whole in inference mode."""
        step = self.captured()
        self.assertEqual(self.operate(self.weight, views=True, composite=True),
                         ["bring 0x5e55 to read 0xa000", "operator"])
        del step

    def test_collectives_have_their_values_until_the_next_replay(self):
        step = self.captured()
        self.operate(self.weight, writes=True)
        self.assertEqual(self.operate([self.weight], namespace="c10d"), ["bring 0x5e55 to keep 0xa000", "operator"])
        del step

    def test_tensors_in_dicts_and_nested_lists_are_seen(self):
        step = self.captured()
        self.assertEqual(self.operate({"in": [[self.weight]]}), ["bring 0x5e55 to read 0xa000", "operator"])
        del step

    def test_a_replay_lets_go_of_what_was_brought(self):
        step = self.captured()
        self.operate(self.weight)
        self.assertEqual(list(torch_capture.installed().guard.lent), [0xA000])
        step(self.x())
        self.assertFalse(torch_capture.installed().guard.lent)

    def test_a_step_that_moves_nothing_is_watched_beside_one_that_does(self):
        moving = self.captured()
        self.set_report('{"added_nodes": 0, "hosted_bytes": 0}')
        still = pumpgraph.graphed(lambda x: None, warmup=1)
        for _ in range(2):
            still(self.x())
        with pumpgraph.paused():
            pass
        still(self.x())
        self.assertEqual(len(torch.utils._python_dispatch.stack), 1)
        del moving

    def test_all_tensors_of_an_operator_are_brought_at_once(self):
        weights = {f"w{index}": torch.nn.Parameter(0xA000 + index * 0x10) for index in range(17)}
        self.model._parameters = weights
        step = self.captured()
        self.operate(weights["w0"])
        everything = " ".join(hex(weight.data_ptr()) for weight in weights.values())
        self.assertEqual(self.operate(*weights.values()), [f"bring 0x5e55 to read {everything}", "operator"])
        self.assertEqual(self.operate(*weights.values()), ["operator"])
        del step

    def test_where_memory_is_short_the_plan_is_taken_back(self):
        step = self.captured()
        self.fail_next("bring", Status.OUT_OF_HOST_MEMORY, "no room")
        self.assertEqual(self.operate(self.weight), ["bring 0x5e55 to read 0xa000", "take_back 0x5e55", "operator"])
        self.assertEqual(self.operate(self.weight), ["operator"])
        del step

    def test_before_compiled_code_the_plan_is_taken_back(self):
        self.model._orig_mod = None
        step = self.captured()
        self.model(self.x())
        self.assertEqual(self.calls(), ["take_back 0x5e55"])
        self.assertEqual(torch.utils._python_dispatch.stack, [])
        self.model(self.x())
        self.assertEqual(self.calls(), [])
        step.reset()
        del step
        gc.collect()
        self.assertEqual(self.model._pre_hooks, [])

    def test_nothing_is_watched_where_no_value_moves(self):
        self.set_report('{"added_nodes": 0, "hosted_bytes": 0}')
        step = self.captured()
        self.assertEqual(torch.utils._python_dispatch.stack, [])
        del step

    def test_nothing_is_watched_while_a_step_warms_up(self):
        first = self.captured()
        self.assertEqual(len(torch.utils._python_dispatch.stack), 1)
        depths = []
        pumpgraph.graphed(lambda x: depths.append(len(torch.utils._python_dispatch.stack)))(self.x())
        self.assertEqual(depths, [0])
        del first

    def test_a_mode_of_the_program_stays_on_top(self):
        stack = torch.utils._python_dispatch.stack
        with torch.utils._python_dispatch.TorchDispatchMode() as mode:
            step = self.captured()
            self.assertEqual(len(stack), 2)
            self.assertIs(stack[-1], mode)
            with pumpgraph.paused():
                self.assertIs(stack[-1], mode)
        self.assertEqual(len(stack), 1)
        step(self.x())
        self.assertEqual(self.operate(self.weight)[-2:], ["bring 0x5e55 to read 0xa000", "operator"])

    def test_what_belongs_to_a_step_that_is_gone_is_private_no_more(self):
        step = self.captured()
        step.reset()
        self.assertEqual(torch_capture.installed().guard._pointers, set())


class InTurns(GraphedTest):
    """Steps that alternate share a boundary; others as the runtime chooses."""

    def boundaries(self):
        return re.findall(r"boundary=(\d)", " ".join(self.calls()))

    def steps(self, **options):
        return [pumpgraph.graphed(lambda x: None, warmup=2, **options) for _ in range(2)]

    def test_steps_that_alternate(self):
        first, second = self.steps()
        for _ in range(4):
            first(self.x())
            second(self.x())
        self.assertEqual(self.boundaries(), ["2", "2"])

    def test_steps_that_follow_each_other(self):
        for step in self.steps():
            for _ in range(4):
                step(self.x())
        self.assertEqual(self.boundaries(), ["0", "0"])

    def test_a_step_between_replays_of_another(self):
        first, second = self.steps()
        for _ in range(4):
            first(self.x())
        for _ in range(3):
            second(self.x())
            first(self.x())
        self.assertEqual(self.boundaries(), ["0", "2"])

    def test_the_program_may_choose(self):
        first, second = self.steps(boundary="own")
        for _ in range(4):
            first(self.x())
            second(self.x())
        self.assertEqual(self.boundaries(), ["1", "1"])


class Failures(GraphedTest):
    def test_the_callers_line_is_named(self):
        def fn(_x):
            if torch.cuda.graphs:
                raise RuntimeError("CUDA error: operation not permitted when stream is capturing\nmore")

        step = pumpgraph.graphed(fn, warmup=1)
        step(self.x())
        with self.assertRaisesRegex(UnsupportedError, r"test_graphed\.py:\d+: \"raise RuntimeError.*capturing\)"):
            step(self.x())
        calls = self.calls()
        self.assertEqual(calls[calls.index("torch: end 1"):],
                         ["torch: end 1", "free_scratch 0x5e55 1", "free_scratch 0x5e55 0", "torch: reset 1",
                          "torch: begin 2 thread_local", "torch: zero",
                          "torch: end 2", "torch: reset 2", "torch: set_rng_state 42", "torch: set_rng_state 42"])

    def test_other_errors_stay_what_they_are(self):
        self.assertIsNone(explain_failed_capture(RuntimeError("out of memory")))
        self.assertIsNone(explain_failed_capture(ZeroDivisionError("while capturing")))
        self.assertIsNone(explain_failed_capture(UnsupportedError("a captured step would keep it")))

    def test_figures_of_the_allocator(self):
        figures = torch.cuda.memory.memory_stats_as_nested_dict()
        self.assertEqual(figures["allocated_bytes"]["all"], {"current": 6, "peak": 9, "allocated": 11, "freed": 5})
        self.assertEqual(figures["allocation"]["all"], {"current": 7, "peak": 10, "allocated": 12, "freed": 5})
        self.assertEqual(figures["reserved_bytes"]["all"], {"current": 2, "peak": 3, "allocated": 2, "freed": 0})
        for device in (0, torch.Tensor().device):
            self.assertEqual(torch.cuda.memory.memory_stats_as_nested_dict(device=device), figures)
        self.assertEqual(torch.cuda.memory.memory_stats_as_nested_dict(device=1), {})
        self.calls()
        torch.cuda.memory.reset_peak_memory_stats()
        self.assertEqual(self.calls(), ["reset_peaks 0x5e55"])
        with self.assertRaisesRegex(UnsupportedError, r"reset_accumulated_memory_stats\(\) asks .*memory_stats\(\)"):
            torch.cuda.memory.reset_accumulated_memory_stats()

    def test_training_on_several_devices(self):
        self.model._children = {"inner": type("Parallel", (torch.nn.DataParallel, torch.nn.Module), {})()}
        with self.assertRaisesRegex(UnsupportedError, "inner is a DataParallel: .* one device .*torchrun"):
            self.step()(self.x())

    def test_every_error_is_one_of_ours(self):
        raised = [kind for kind in vars(pumpgraph.errors).values() if isinstance(kind, type) and
                  issubclass(kind, Exception)]
        self.assertGreaterEqual(len(raised), 3)
        self.assertTrue(all(issubclass(kind, PumpGraphError) for kind in raised), raised)

    def test_benchmark(self):
        torch.backends.cudnn.benchmark = True
        self.addCleanup(setattr, torch.backends.cudnn, "benchmark", False)
        with self.assertRaisesRegex(UnsupportedError, "cudnn.benchmark"):
            self.step(on_unsupported="raise")(self.x())
        with self.assertWarnsRegex(UserWarning, "cudnn.benchmark.* is False inside graphed steps"):
            self.step()(self.x())
        self.assertTrue(torch.backends.cudnn.benchmark)

    def test_graphs_of_the_compiler(self):
        self.model.get_compiler_config = lambda: {"triton.cudagraphs": True}
        with self.assertRaisesRegex(UnsupportedError, "Module is compiled.*reduce-overhead"):
            self.step()(self.x())
        self.model.get_compiler_config = lambda: None
        self.step()(self.x())

    def test_a_tensor_on_another_device(self):
        self.weight.device = torch.device("cuda", 1)
        with self.assertRaisesRegex(UnsupportedError, "fc.weight is on cuda:1"):
            self.step()(self.x())

    def test_a_failed_adoption_may_be_tried_again(self):
        step = self.step(warmup=1)
        step(self.x())
        self.fail_next("adopt", Status.UNPLANNABLE, "too small")
        with self.assertRaisesRegex(PumpGraphError, "too small"):
            step(self.x())
        self.calls()
        step(self.x())
        self.assertEqual(self.notes()[-1], "torch: replay 4")


class RecordedStreams(base.TorchTest):
    def test_memory_is_held_until_the_program_and_the_stream_are_done(self):
        self.install()
        held = torch_capture.installed().recorded_streams
        torch._C.uses, torch.cuda.Event.busy = 2, True
        self.addCleanup(setattr, torch.cuda.Event, "busy", False)
        tensor = torch.Tensor(0x1000)
        tensor._storage = types.SimpleNamespace(_cdata=1)
        tensor.record_stream(torch.cuda.current)
        held.let_go()
        self.assertEqual(len(held), 1)  # the program has it
        torch._C.uses = 1
        held.let_go()
        self.assertEqual(len(held), 1)  # the stream is not there yet
        torch.cuda.Event.busy = False
        held.let_go()
        self.assertEqual(len(held), 0)


the_model = torch.nn.Module()


def helper():
    return the_model


class Search(unittest.TestCase):
    def found(self, fn):
        return [id(module) for module in Reachable(fn).modules]

    def test_where_it_looks(self):
        model = torch.nn.Module()
        inner = types.SimpleNamespace(model=model)

        class Callable:
            def __init__(self):
                self.parts = {"list": [inner]}

            def __call__(self):
                pass

            def method(self):
                pass

        def default(x=model):
            pass

        def keyword(*, x=model):
            pass

        def nested():
            return lambda: model

        outer = types.SimpleNamespace(inner=inner)
        for fn in (lambda: model, lambda: outer.inner, default, keyword, nested, functools.partial(print, model),
                   functools.partial(print, x=[model]), Callable(), Callable().method, lambda: (lambda: outer)):
            with self.subTest(fn=fn):
                self.assertEqual(self.found(fn), [id(model)])

    def test_globals_and_the_functions_among_them(self):
        self.assertEqual(self.found(lambda: the_model), [id(the_model)])
        self.assertEqual(self.found(lambda: helper()), [id(the_model)])
        self.assertEqual(self.found(lambda x: x.the_model), [])  # an attribute of that name, no global

    def test_where_it_does_not_look(self):
        deep = types.SimpleNamespace(a=types.SimpleNamespace(b=types.SimpleNamespace(model=torch.nn.Module())))
        many = [torch.nn.Module() for _ in range(5000)]
        foreign = type("Loader", (), {"__module__": "torch.utils.data"})()
        foreign.model = torch.nn.Module()
        for fn in (lambda: deep, lambda: many, lambda: foreign, lambda: types):
            with self.subTest(fn=fn):
                self.assertEqual(self.found(fn), [])

    def test_each_thing_once_and_cycles_end(self):
        model = torch.nn.Module()
        ring = types.SimpleNamespace(model=model)
        ring.ring = ring
        self.assertEqual(self.found(lambda: (ring, model)), [id(model)])

    def test_optimizers_and_tensors(self):
        optimizer, tensor = torch.optim.Optimizer([]), torch.Tensor(0xA000)
        found = Reachable(lambda: (optimizer, tensor))
        self.assertEqual(found.optimizers, [optimizer])
        self.assertEqual([name for name, _ in found.tensors], ["tensor"])

    def test_places_notice_changes(self):
        holder = {"model": torch.nn.Module()}
        found = Reachable(lambda: holder)
        self.assertTrue(all(place.is_as_found() for place in found.places))
        holder["model"] = torch.nn.Module()
        self.assertEqual([place.name for place in found.places if not place.is_as_found()], ["holder.model"])

    def test_attributes_of_modules_inside_modules(self):
        inner = torch.nn.Module()
        inner.hidden = torch.Tensor(0xA000)
        model = torch.nn.Module(children={"rnn": inner})
        self.assertEqual([place.name for place in Reachable(lambda: model).places], ["model.rnn.hidden", "model"])


class Documentation(unittest.TestCase):
    """The list of situations names tests that exist, and every GPU case of the layer but its figures."""

    def test_situations(self):
        reference = (base.support.ROOT / "docs" / "reference" / "pytorch.md").read_text()
        section = re.split(r"\n## ", reference.split("## Situations and their tests")[1])[0]
        items = [" ".join(item.split()) for item in re.findall(r"^\* (.*(?:\n  .*)*)", section, re.MULTILINE)]
        named = set(re.findall(r"`(?:\w+_cases\.py )?(\w+)`", " ".join(item.rsplit(": ", 1)[-1] for item in items)))
        files = [base.support.ROOT / "test" / "gpu" / f"{name}_cases.py"
                 for name in ("graphed", "torch", "host_state", "memory", "decode")]
        ranks = base.support.ROOT / "test" / "gpu" / "ranks_cases.py"
        listed = re.search(r"^CASES = \[(.*?)^\]", ranks.read_text(), flags=re.S | re.M).group(1)
        self.assertEqual([case for case in re.findall(r"\w+", listed) if f"`{case}`" not in reference], [])
        defined = [set(re.findall(r"^ *def (\w+)\(", path.read_text(), re.MULTILINE))
                   for path in [*files, Path(__file__)]]
        self.assertGreater(len(named), 20)
        self.assertLessEqual(named, set().union(*defined))
        listed = files[0].read_text().split("PROGRAMS = [")[1].split("\n\n\n")[0]
        figures = {"declared_reads_are_true", "pure_operators_reproduce"}
        cases = set(re.findall(r"^    (\w+),", listed, re.MULTILINE))
        cases |= set(re.findall(r"^@(?:equal|refused.*)\ndef (\w+)", files[2].read_text(), re.MULTILINE))
        self.assertEqual(cases - named - figures - {"training_goes_on"}, set())


class Nested(unittest.TestCase):
    def test_containers_keep_their_kinds(self):
        @dataclasses.dataclass(frozen=True)
        class Batch:
            x: int
            more: list

        class Dictionary(dict):
            pass

        Pair = __import__("collections").namedtuple("Pair", "a b")
        value = {"a": [1, (2, Pair(3, 4))], "b": Batch(5, [6]), "c": Dictionary(d=7)}
        changed = nested.replaced(value, lambda item: item * 10)
        self.assertEqual(changed, {"a": [10, (20, Pair(30, 40))], "b": Batch(50, [60]), "c": {"d": 70}})
        self.assertIsInstance(changed["c"], Dictionary)
        self.assertIsInstance(changed["a"][1][1], Pair)
        self.assertEqual(value["b"].x, 5)


if __name__ == "__main__":
    unittest.main()
