# SPDX-License-Identifier: Apache-2.0
"""What the host does in a graphed step, and what the program keeps of a call, with stand-ins for PyTorch and the
library."""

import collections
import contextlib
import datetime
import functools
import gc
import itertools
import random
import types
import unittest
from unittest import mock

from test_graphed import GraphedTest
from test_torch_capture import torch

import pumpgraph
from pumpgraph import StaleStepError, UnsupportedError, hooks, operators, torch_capture
from pumpgraph.generators import seeds_unknown
from pumpgraph.host_state import HostState
from pumpgraph.reachable import Reachable
from pumpgraph.refusals import explain_failed_capture


class Slotted:
    __slots__ = ("count", "__weakref__")

    def __init__(self):
        self.count = 0


class Settings:
    count, rate = 0, 1


counted = 0


class Refused(GraphedTest):
    """What every call of a step changes is refused by name, and is as it was."""

    def refused(self, fn, pattern, state=lambda: None):
        """After one warm-up call, where the two captured ones tell; and after three, where the last of them does."""
        for warmup in (1, 3):
            with self.subTest(warmup=warmup):
                step = pumpgraph.graphed(fn, warmup=warmup, name="fn")
                for _ in range(warmup):
                    step(self.x())
                before = state()
                for _ in range(2):
                    with self.assertRaisesRegex(UnsupportedError, f"^fn: {pattern}.* a replay runs no Python; "):
                        step(self.x())
                    self.assertEqual(state(), before)
                captures = [line for line in self.calls() if line.startswith("torch: begin")]
                self.assertEqual(bool(captures), warmup == 1)

    def allowed(self, fn, warmup=2):
        step = pumpgraph.graphed(fn, warmup=warmup, name="fn")
        for _ in range(warmup + 2):
            step(self.x())
        self.assertEqual(self.notes()[-1][:13], "torch: replay")
        return step

    def test_a_list_that_the_step_fills_and_replaces(self):
        """A list in a dict of the holder; it may be filled only once."""
        scaler = type("GradScaler", (), {"__module__": "torch.amp.grad_scaler"})()
        scaler._stages = {"done": []}

        def fn(_x):
            if scaler._stages["done"]:
                raise RuntimeError("already filled")
            scaler._stages["done"].append("optimizer")
            scaler._stages = {"done": []}

        self.allowed(fn)
        self.assertEqual(scaler._stages, {"done": []})

    def test_a_dict_that_the_step_uses_and_replaces(self):
        """As a gradient scaler keeps what it did for each optimizer, until its update()."""
        def fresh():
            return collections.defaultdict(lambda: {"stepped": False})

        for module in (__name__, "torch.amp.grad_scaler"):
            scaler = type("GradScaler", (), {"__module__": module})()
            scaler._stages = fresh()

            def fn(_x, scaler=scaler):
                if scaler._stages["optimizer"]["stepped"]:
                    raise RuntimeError("step() has already been called since the last update()")
                scaler._stages["optimizer"]["stepped"] = True
                scaler._stages = fresh()

            with self.subTest(module=module):
                self.allowed(fn)
                self.assertEqual(scaler._stages, {})

    def test_a_variable(self):
        count = 0

        def fn(_x):
            nonlocal count
            count += 1

        self.refused(fn, "\"count\" is a number that the step changes", lambda: count)

    def test_a_global(self):
        def fn(_x):
            global counted
            counted += 1

        self.refused(fn, "\"counted\" is a number that the step changes", lambda: counted)

    def test_attributes_of_objects_and_classes(self):
        holder, slotted = types.SimpleNamespace(count=0, inner=types.SimpleNamespace(text="a")), Slotted()
        Settings.count = 0

        def add(thing):
            thing.count += 1

        def append(_x):
            holder.inner.text += "b"

        self.refused(lambda x: add(holder), "\"holder.count\" is a number", lambda: holder.count)
        self.refused(append, "\"holder.inner.text\" is a text", lambda: holder.inner.text)
        self.refused(lambda x: add(slotted), "\"slotted.count\" is a number", lambda: slotted.count)
        self.refused(lambda x: add(Settings), "\"Settings.count\" is a number", lambda: Settings.count)

    def test_attributes_of_modules_also_those_that_begin_with_an_underscore(self):
        model = self.model
        model._calls, model.calls = 0, 0

        def fn(_x):
            model._calls += 1

        def other(_x):
            model.calls += 1

        self.refused(fn, "\"model._calls\" is a number", lambda: model._calls)
        self.refused(other, "\"model.calls\" is a number", lambda: model.calls)

    def test_a_count_in_the_forward_method_of_the_programs_own_module(self):
        class Counting(torch.nn.Module):
            def forward(self, x):
                global counted
                counted += 1

        model = Counting()
        self.refused(lambda x: model(x), "\"counted\" is a number", lambda: counted)

    def test_state_and_settings_of_an_optimizer(self):
        optimizer, weight = self.optimizer, self.weight
        optimizer.state[weight] = {"count": 0, "average": torch.Tensor(0xD000)}

        def count(_x):
            optimizer.state[weight]["count"] += 1

        def decay(_x):
            optimizer.param_groups[0]["lr"] *= 0.5

        self.refused(count, "state \"count\" of Optimizer is a number that the step changes",
                     lambda: optimizer.state[weight]["count"])
        self.refused(decay, "\"lr\" of param group 0 of Optimizer is a number", lambda: optimizer.param_groups[0]["lr"])

    def test_an_attribute_of_an_optimizer_that_is_only_found_when_it_steps(self):
        class Counting(torch.optim.Optimizer):
            steps = 0

            def step(self):
                super().step()
                self.steps += 1

        torch.hidden = Counting([self.weight])
        self.refused(lambda x: torch.hidden.step(), "\"Counting.steps\" is a number", lambda: torch.hidden.steps)

    def test_what_a_scheduler_counts(self):
        class Schedule:
            def __init__(self):
                self.last_epoch = 0

            def step(self):
                self.last_epoch += 1

        Schedule.__module__ = "torch.optim.lr_scheduler"
        schedule = Schedule()
        self.refused(lambda x: schedule.step(), "\"schedule.last_epoch\" is a number", lambda: schedule.last_epoch)

    def test_tensors_on_the_host(self):
        count = torch.Tensor(0x10, is_cuda=False)
        count.value = 1.0

        def fn(_x):
            count.value += 1

        self.refused(fn, "\"count\" is a tensor on the host that the step changes", lambda: count.value)
        self.model._buffers["count"] = count
        model = self.model
        self.refused(lambda x: (model, fn(x)), "\"(Module.)?count\" is a tensor on the host", lambda: count.value)

    def test_containers(self):
        holder = types.SimpleNamespace(seen=[], table={}, words=set(), last=collections.deque(maxlen=2))
        shapes = itertools.count()
        shapes_seen = functools.partial(next, shapes)
        torch.hidden = shapes_seen
        self.refused(lambda x: holder.seen.append(1), "list \"holder.seen\" grows", lambda: len(holder.seen))
        self.refused(lambda x: holder.table.update({torch.hidden(): 1}), "dict \"holder.table\" grows",
                     lambda: len(holder.table))
        self.refused(lambda x: holder.words.add(torch.hidden()), "set \"holder.words\" grows",
                     lambda: len(holder.words))
        self.refused(lambda x: holder.last.append(torch.hidden()),
                     "(list \"holder.last\" grows|\"holder.last.0\" is a number)", lambda: list(holder.last))

    def test_a_queue_of_tensors_that_is_full(self):
        last = collections.deque([torch.Tensor(0xD000), torch.Tensor(0xD100)], maxlen=2)
        self.refused(lambda x: last.append(torch.fresh(0xE000)), "list \"last\" has its tensors moved",
                     lambda: [id(tensor) for tensor in last])

    def test_iterators(self):
        def numbers():
            number = 0
            while True:
                number += 1
                yield number

        for batches in (iter([1] * 99), numbers(), itertools.count(), zip([1] * 99, [2] * 99), enumerate([1] * 99),
                        map(abs, iter([1] * 99)), iter(range(99)), iter({index: 1 for index in range(99)})):
            with self.subTest(batches=batches):
                self.refused(lambda x: next(batches) and None, "\"batches\" is advanced by the step")

    def test_times_and_words_and_bytes(self):
        holder = types.SimpleNamespace(at=datetime.date(2026, 1, 1), data=bytearray(b"ab"))

        def later(_x):
            holder.at += datetime.timedelta(1)

        def shift(_x):
            holder.data[0] += 1

        self.refused(later, "\"holder.at\" is a value", lambda: holder.at)
        self.refused(shift, "\"holder.data\" is an array", lambda: bytes(holder.data))

    def test_what_is_added_and_removed(self):
        holder = types.SimpleNamespace()

        def fn(_x):
            holder.count = 1

        step = pumpgraph.graphed(lambda x: (holder, fn(x))[1], warmup=1, name="fn")
        step(self.x())
        del holder.count
        with self.assertRaisesRegex(UnsupportedError, "\"holder.count\" is a number that the step adds"):
            step(self.x())
        self.assertFalse(hasattr(holder, "count"))

    def test_generators_of_the_host(self):
        own = random.Random(3)
        self.refused(lambda x: random.random() and None, r"Python's generator \(random\) is drawn from",
                     random.getstate)
        self.refused(lambda x: own.random() and None, "the generator \"own\" is drawn from", own.getstate)

    def test_what_it_returns(self):
        torch.hidden = itertools.count().__next__
        step = pumpgraph.graphed(lambda x: {"loss": torch.fresh(0xE000), "count": torch.hidden()}, warmup=1, name="fn")
        step(self.x())
        with self.assertRaisesRegex(UnsupportedError, "fn returns something that is not on the device and differs"):
            step(self.x())

    def test_what_is_set_up_once(self):
        holder, table = types.SimpleNamespace(ready=False, last=None), {}

        def fn(x):
            if not holder.ready:
                holder.ready, holder.first = True, 5
                holder.last = torch.Tensor(0xD000)
            table.setdefault(x.shape, []).extend([] if table.get(x.shape) else [1])

        self.allowed(fn, warmup=1)

    def test_what_does_not_matter(self):
        optimizer, model = self.optimizer, self.model

        def fn(_x):
            optimizer._opt_called = True
            optimizer._step_count = getattr(optimizer, "_step_count", 0) + 1
            model.training = not model.training
            model.training = not model.training

        self.allowed(fn)

    def test_threads_may_do_as_they_like(self):
        import queue

        waiting = queue.Queue()
        self.allowed(lambda x: waiting.put(1))

    def test_what_the_loop_changes_is_not_the_steps(self):
        holder = types.SimpleNamespace(count=0)
        step = pumpgraph.graphed(lambda x: holder and None, warmup=2)
        for _ in range(4):
            step(self.x())
            holder.count += 1
        self.assertEqual(self.notes()[-1], "torch: replay 2")


class FoundInHooks(GraphedTest):
    def grows(self, register, what):
        seen = []
        register(lambda *_args: seen.append(torch.fresh(0xE000)))
        model, optimizer = self.model, self.optimizer

        def fn(x):
            torch.run_hooks(model, optimizer)

        step = pumpgraph.graphed(fn, warmup=2, name="fn")
        for _ in range(2):
            step(self.x())
        with self.assertRaisesRegex(UnsupportedError, f"fn: list \"seen\", reached through {what}, grows in the step"):
            step(self.x())

    def setUp(self):
        super().setUp()
        torch.run_hooks = lambda *_things: [hook() for hook in self.registered]
        self.registered = []

    def put(self, holder, key):
        def register(hook):
            self.registered.append(hook)
            holder.setdefault(key, {})[0] = hook

        return register

    def test_of_modules(self):
        for key, what in (("_forward_hooks", "a forward hook"), ("_forward_pre_hooks", "a forward pre-hook"),
                          ("_backward_hooks", "a backward hook"), ("_backward_pre_hooks", "a backward pre-hook")):
            with self.subTest(key=key):
                self.grows(self.put(vars(self.model), key), f"{what} of model")
                del vars(self.model)[key]
                self.registered.clear()

    def test_of_all_modules(self):
        module = torch.nn.modules.module
        module._global_forward_hooks = {}
        self.addCleanup(delattr, module, "_global_forward_hooks")

        def register(hook):
            self.registered.append(hook)
            module._global_forward_hooks[0] = hook

        self.grows(register, "a forward hook of all modules")

    def test_of_parameters_and_optimizers(self):
        self.grows(self.put(vars(self.weight), "_post_accumulate_grad_hooks"),
                   "a post-accumulate-grad hook of model.fc.weight")
        del vars(self.weight)["_post_accumulate_grad_hooks"]
        self.registered.clear()
        self.grows(self.put(vars(self.optimizer), "_optimizer_step_post_hooks"), "a step post-hook of Optimizer")

    def test_of_autograd_nodes_as_long_as_they_live(self):
        class Hooks(collections.OrderedDict):
            pass

        class Mixin:
            @staticmethod
            def _register_hook(backward_hooks, hook):
                backward_hooks = Hooks() if backward_hooks is None else backward_hooks
                backward_hooks[len(backward_hooks)] = hook
                return backward_hooks, "handle"

        torch.autograd.function = types.SimpleNamespace(_HookMixin=Mixin)
        self.addCleanup(delattr, torch.autograd, "function")
        for _ in range(2):
            hooks.notice_those_of_nodes()
        kept = []

        def register(hook):
            self.registered.append(hook)
            of_node, handle = Mixin._register_hook(None, hook)
            self.assertEqual(handle, "handle")
            kept.append(of_node)

        self.grows(register, "a hook of an autograd node")
        self.assertEqual(len(list(hooks.of_everything())), 1)
        kept.clear()
        self.assertEqual(list(hooks.of_everything()), [])

    def test_inside_a_function_of_pytorch(self):
        def wrapped(hook):
            def inner(*args):
                return hook(*args)

            inner.__module__ = "torch.autograd.graph"
            return inner

        register = self.put(vars(self.model), "_backward_hooks")
        self.grows(lambda hook: register(wrapped(hook)), "a backward hook of model")


class FakeGenerator:
    """Of random numbers on a device."""

    def __init__(self, kind="cuda", index=0, name="own"):
        self.name = name
        self.device = types.SimpleNamespace(type=kind, index=index)
        self.shared = {"state": 42, "seed": 1}

    def initial_seed(self):
        return self.shared["seed"]

    def manual_seed(self, seed):
        self.shared["seed"] = seed
        return self

    def get_state(self):
        return dict(self.shared)

    def set_state(self, state):
        self.shared.update(state)

    def graphsafe_get_state(self):
        same = type(self)()
        same.shared = self.shared
        return same


class Generators(GraphedTest):
    def setUp(self):
        super().setUp()
        torch.Generator = FakeGenerator
        self.addCleanup(delattr, torch, "Generator")
        torch.cuda.CUDAGraph.register_generator_state = lambda graph, generator: torch.note(
            f"torch: register {generator.name} with {graph._number}")
        self.addCleanup(delattr, torch.cuda.CUDAGraph, "register_generator_state")

    def registered(self):
        return [line for line in self.calls() if line.startswith("torch: register")]

    def test_own_ones_are_registered_with_both_captures(self):
        own, host = FakeGenerator(), FakeGenerator("cpu")
        holder = types.SimpleNamespace(own=FakeGenerator(name="second"), elsewhere=FakeGenerator(index=1))
        step = pumpgraph.graphed(lambda x, more: (own, host, holder) and None, warmup=1)
        argument = FakeGenerator(name="third")
        for _ in range(2):
            step(self.x(), argument)
        self.assertEqual(sorted(self.registered()), sorted(f"torch: register {name} with {graph}" for graph in (1, 2)
                                                           for name in ("own", "second", "third")))

    def test_capture_registers_them_too(self):
        own = FakeGenerator()
        pumpgraph.capture(lambda: own and None, warmup=1)
        self.assertEqual(self.registered(), [f"torch: register own with {graph}" for graph in (1, 2)])

    def test_one_that_the_program_replaces_is_noticed(self):
        holder = types.SimpleNamespace(own=FakeGenerator())
        step = pumpgraph.graphed(lambda x: holder.own and None, warmup=1)
        for _ in range(2):
            step(self.x())
        holder.own = FakeGenerator()
        with self.assertRaisesRegex(StaleStepError, "\"holder.own\" is another object"):
            step(self.x())

    def test_a_generator_of_the_host_that_is_drawn_from(self):
        own = FakeGenerator("cpu")

        def fn(_x):
            own.shared["state"] += 1

        step = pumpgraph.graphed(fn, warmup=1)
        step(self.x())
        with self.assertRaisesRegex(UnsupportedError, "the generator \"own\" is drawn from"):
            step(self.x())
        self.assertEqual(own.shared["state"], 43)

    def test_seeds_in_the_step(self):
        own = FakeGenerator()
        torch.hidden = itertools.count(5).__next__
        step = pumpgraph.graphed(lambda x: own.manual_seed(torch.hidden()) and None, warmup=2)
        for _ in range(2):
            step(self.x())
        with self.assertRaisesRegex(UnsupportedError, "the generator \"own\" is seeded in the step"):
            step(self.x())

    def test_during_the_rehearsal_no_seed_is_the_programs(self):
        default, own = FakeGenerator(), FakeGenerator().manual_seed(2)
        with mock.patch.object(torch.cuda, "default_generators", [default], create=True):
            with contextlib.suppress(ZeroDivisionError), seeds_unknown([own], torch.device("cuda", 0)):
                self.assertGreater(default.initial_seed(), 2)
                self.assertGreater(own.initial_seed(), 2)
                raise ZeroDivisionError
        self.assertEqual((default.initial_seed(), own.initial_seed()), (1, 2))

    def test_a_state_that_the_step_puts_back(self):
        own, other = FakeGenerator(), FakeGenerator()

        def operators_of_a_rehearsal(*arguments):
            mode = operators.DeclaringOperators(*arguments)
            for generator in self.drawn:
                func = types.SimpleNamespace(__name__="normal_.default", namespace="aten", _schema=None)
                mode._declare = lambda *_: None
                with contextlib.suppress(TypeError):  # the stand-in for an operator cannot be called
                    mode.__torch_dispatch__(func, (), (self.weight,), {"generator": generator})
            return mode

        def fn(_x):
            own.shared["state"] += own.step

        for own.step, self.drawn, refused in ((0, [own], True), (1, [own], False), (0, [other], False)):
            step = pumpgraph.graphed(fn, warmup=1, name="fn")
            step(self.x())
            with mock.patch.object(torch_capture, "DeclaringOperators", operators_of_a_rehearsal):
                if refused:
                    with self.assertRaisesRegex(UnsupportedError, "^fn draws random numbers and puts the state"):
                        step(self.x())
                    self.assertIn("step_destroy 0x57e9", self.calls())
                else:
                    step(self.x())

    def test_what_a_capture_says_of_generators(self):
        for said, pattern in (
                ("Attempt to increase offset for a CUDA generator not in capture mode.", "not found from the step"),
                ("CUDAGeneratorImpl::set_current_seed can be called during stream capture only if new seed is the same "
                 "as the original seed.", "makes or seeds a generator of random numbers"),
                ("Cannot call CUDAGeneratorImpl::current_seed during CUDA graph capture.", "reads or sets its state"),
                ("Cannot construct a new CUDAGeneratorImpl during CUDA graph capture.", "makes or seeds"),
                ("Offset increment outside graph capture encountered unexpectedly.", "generator of random numbers"),
                ("Refactor this op to use CUDAGeneratorImpl::philox_cuda_state. Cannot call "
                 "CUDAGeneratorImpl::philox_engine_inputs during CUDA graph capture.",
                 "in a way that a captured step")):
            self.assertRegex(str(explain_failed_capture(RuntimeError(said))), pattern)
        self.assertRegex(str(explain_failed_capture(RuntimeError("operation not permitted when stream is capturing"))),
                         "waits for the device")


class Kept(GraphedTest):
    """What the program holds of a call when the next one is replayed."""

    def step_that_returns(self, make, **options):
        step = pumpgraph.graphed(lambda x: make(), warmup=1, **options)
        for _ in range(2):
            step(self.x())
        self.calls()
        return step

    def moved(self):
        return [line for line in self.calls() if line.startswith(("torch: move", "torch_keep", "map", "torch: replay"))]

    def test_a_result_that_nobody_has_any_more(self):
        step = self.step_that_returns(lambda: torch.fresh(0xE000))
        for _ in range(2):
            self.assertEqual(step(self.x()).data_ptr(), 0xE200)
            self.assertEqual(self.moved(), ["torch: replay 2"])

    def test_a_result_in_a_list(self):
        step = self.step_that_returns(lambda: torch.fresh(0xE000))
        losses = [step(self.x())]
        self.moved()
        for count in range(1, 4):
            losses.append(step(self.x()))
            self.assertEqual(self.moved(), ["torch_keep 0xe200", "torch: move 0xe200", "torch_keep (nil)",
                                            "torch: replay 2"])
            self.assertEqual(losses[-1].data_ptr(), 0xE200)
            self.assertEqual([loss.data_ptr() for loss in losses[:-1]], [0x700E200] * count)
        losses.clear()
        step(self.x())
        self.assertEqual(self.moved(), ["torch: replay 2"])

    def test_a_view_of_a_result(self):
        step = self.step_that_returns(lambda: torch.fresh(0xE000))
        view = step(self.x()).view()
        self.moved()
        self.assertEqual(step(self.x()).data_ptr(), 0xE200)
        self.assertEqual(self.moved()[1], "torch: move 0xe200")
        self.assertEqual(view.data_ptr(), 0x700E200)

    def test_what_autograd_has_saved(self):
        with mock.patch("pumpgraph.results._use_count", lambda tensor: getattr(tensor, "uses", 2)):
            step = self.step_that_returns(lambda: torch.fresh(0xE000))
            saved = step(self.x())
            saved.uses = 3
            del saved
            step(self.x())
            self.assertIn("torch: move 0xe200", self.calls())

    def test_a_dict_that_the_program_changes(self):
        step = self.step_that_returns(lambda: {"loss": torch.fresh(0xE000), "count": 3})
        first = step(self.x())
        first["loss"] = 0.5
        second = step(self.x())
        self.assertEqual((second["loss"].data_ptr(), second["count"]), (0xE200, 3))
        self.assertEqual(first["loss"], 0.5)

    def test_an_argument_that_is_handed_through(self):
        step = pumpgraph.graphed(lambda x: (x, torch.fresh(0xE000)), warmup=1)
        for _ in range(2):
            step(self.x())
        x, _ = step(self.x())
        self.assertEqual(x.data_ptr(), 0x1200)  # a copy of the copy

    def test_a_tensor_of_the_program_that_is_handed_through_is_that_one(self):
        state = torch.Tensor(0xD000)
        alias = state.view()
        step = self.step_that_returns(lambda: state)
        for _ in range(2):
            self.assertIs(step(self.x()), state)
        self.assertNotIn("torch: move 0xd000", self.calls())
        self.assertEqual(alias.data_ptr(), 0xD000)

    def test_an_attribute(self):
        holder = types.SimpleNamespace(last=torch.Tensor(0xB000))

        def fn(_x):
            holder.last = torch.fresh(0xB100)

        step = pumpgraph.graphed(fn, warmup=1)
        for _ in range(2):
            step(self.x())
        address, last = holder.last.data_ptr(), holder.last
        for _ in range(2):
            step(self.x())
            self.assertEqual(holder.last.data_ptr(), address)
            self.assertEqual(last.data_ptr(), address + 0x7000000)
        holder.last = None
        self.calls()
        step(self.x())
        self.assertEqual(self.moved(), ["torch: replay 2"])
        self.assertEqual(holder.last.data_ptr(), address)

    def gradients(self, before=None):
        model, weight = self.model, self.weight

        def fn(_x):
            model.training
            weight.grad = torch.fresh(0xF000)

        step = pumpgraph.graphed(fn, warmup=1)
        for _ in range(2):
            weight.grad = before
            step(self.x())
        self.calls()
        return step

    def test_a_gradient(self):
        step = self.gradients()
        kept, address = self.weight.grad, self.weight.grad.data_ptr()
        for _ in range(2):
            self.weight.grad = None
            step(self.x())
            self.assertEqual(kept.data_ptr(), address + 0x7000000)
            self.assertEqual(self.weight.grad.data_ptr(), address)
        self.assertEqual(len([line for line in self.moved() if "move" in line]), 1)

    def test_a_gradient_that_is_replaced_in_the_step(self):
        step = self.gradients(torch.Tensor(0xB000))
        kept = [self.weight.grad.view()]
        address = self.weight.grad.data_ptr()
        for _ in range(2):
            step(self.x())
            kept.append(self.weight.grad)
            self.assertEqual(self.weight.grad.data_ptr(), address)
        self.assertEqual([gradient.data_ptr() for gradient in kept], [address + 0x7000000] * 2 + [address])

    def test_nothing_moves_where_nobody_keeps_gradients(self):
        step = self.gradients(torch.Tensor(0xB000))
        for _ in range(3):
            step(self.x())
        self.assertEqual(self.moved(), ["torch: replay 3"] * 3)  # after two rehearsals
        for _ in range(3):
            self.weight.grad = None
            step(self.x())
        self.assertFalse([line for line in self.calls() if "move" in line])

    def test_one_that_is_moved_about_is_brought_to_its_address_first(self):
        self.set_report('{"added_nodes": 4}')
        step = self.gradients(torch.Tensor(0xB000))
        kept = self.weight.grad
        guard = torch_capture.installed().guard
        with mock.patch.object(guard, "bring", wraps=guard.bring) as bring:
            step(self.x())
        self.assertEqual([storage for storage in bring.call_args[0][0]], [kept.untyped_storage()])

    def test_one_that_another_step_adds_to(self):
        model, weight = self.model, self.weight
        first = self.gradients()
        address = weight.grad.data_ptr()

        def add(_x):
            model.training
            torch.note(f"fn adds to {weight.grad.data_ptr():#x}")

        second = pumpgraph.graphed(add, warmup=1)
        for _ in range(3):
            second(self.x())  # in place: nothing is moved
        self.assertFalse([line for line in self.calls() if "move" in line])
        kept = weight.grad
        weight.grad = None
        first(self.x())
        self.assertEqual((kept.data_ptr(), weight.grad.data_ptr()), (address + 0x7000000, address))
        self.calls()
        second(self.x())
        self.assertFalse([line for line in self.calls() if "copy 0x" in line and hex(address) in line])
        self.assertEqual(weight.grad.data_ptr(), address)

    def test_another_stream_that_reads_a_result_is_waited_for(self):
        step = self.step_that_returns(lambda: torch.fresh(0xE000))
        streams = torch_capture.installed().recorded_streams
        for is_kept in (False, True):
            result, other = step(self.x()), self.x()
            for tensor in (result, other):
                tensor.record_stream(torch.cuda.Stream())
            kept = [result] if is_kept else []
            del result
            self.calls()
            step(self.x())
            lines = [line for line in self.calls() if line.startswith(("torch: wait", "torch: move", "torch: replay"))]
            self.assertEqual(lines, ["torch: wait_stream", *["torch: move 0xe200"] * len(kept), "torch: replay 2"])
            self.assertEqual([use.storage.data_ptr() for use in streams.uses], [other.data_ptr()])
            streams.uses.clear()

    def test_memory_that_cannot_change_hands(self):
        step = self.step_that_returns(lambda: torch.fresh(0xE000))
        kept = step(self.x())
        with mock.patch.object(torch.UntypedStorage, "resizable", lambda storage: False):
            with self.assertRaisesRegex(StaleStepError, "keep a copy"):
                step(self.x())
        self.assertEqual(kept.data_ptr(), 0xE200)

    def test_without_memory_for_a_copy_all_is_as_it_was(self):
        step = self.step_that_returns(lambda: torch.fresh(0xE000))
        kept = step(self.x())
        self.calls()
        with mock.patch("pumpgraph.results._resize", side_effect=RuntimeError("out of memory")):
            with self.assertRaisesRegex(RuntimeError, "out of memory"):
                step(self.x())
        self.assertEqual(self.moved(), ["torch_keep 0xe200", "torch_keep (nil)"])
        self.assertEqual(kept.data_ptr(), 0xE200)
        step(self.x())
        self.assertEqual(kept.data_ptr(), 0x700E200)


class Snapshots(unittest.TestCase):
    def changes(self, fn, call):
        with torch_capture_device() as device:
            before = HostState(Reachable(fn), [], device)
            call()
            return [str(change).split(",")[0] for change in before.changes_to(HostState(Reachable(fn), [], device))]

    def test_variables_of_one_name_are_told_apart(self):
        def make():
            count = 0

            def fn():
                nonlocal count
                count += 1

            return fn

        first, second = make(), make()
        self.assertEqual(self.changes(lambda: (first, second), second), ["\"count\" is a number that the step changes"])

    def test_not_a_number_is_what_it_was(self):
        value = float("nan")
        self.assertEqual(self.changes(lambda: value, lambda: None), [])

    def test_equal_is_not_the_same(self):
        holder = types.SimpleNamespace(value=1)
        self.assertEqual(self.changes(lambda: holder, lambda: setattr(holder, "value", True)),
                         ["\"holder.value\" is a number that the step changes"])

    def test_an_equality_of_the_programs_own_does_no_harm(self):
        class Odd:
            def __eq__(self, other):
                raise ValueError("ambiguous")

            __hash__ = None

        holder = types.SimpleNamespace(odd=Odd(), plain=1)
        self.assertEqual(self.changes(lambda: holder, lambda: setattr(holder, "plain", 2)),
                         ["\"holder.plain\" is a number that the step changes"])


def torch_capture_device():
    return contextlib.nullcontext(torch.device("cuda", 0))


if __name__ == "__main__":
    gc.collect()
    unittest.main()
