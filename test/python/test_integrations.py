# SPDX-License-Identifier: Apache-2.0
"""pumpgraph.integrations with stand-ins for PyTorch and for as much of the libraries as decides what a batch does.
test/gpu/trainer_cases.py has their true loops."""

import collections
import contextlib
import importlib
import inspect
import re
import subprocess
import sys
import types
import unittest
from unittest import mock

import support
import test_torch_capture as base
from test_torch_capture import torch

import pumpgraph
from pumpgraph import PumpGraphError, StaleStepError, UnsupportedError, prepared
from pumpgraph.integrations import parts
from pumpgraph.reachable import Reachable


class Importing(unittest.TestCase):
    def test_the_package_needs_neither_library(self):
        code = "import sys; import pumpgraph.integrations; " \
               "assert not {'torch', 'transformers', 'lightning'} & set(sys.modules)"
        subprocess.run([sys.executable, "-c", code], check=True,
                       env={"PYTHONPATH": str(support.ROOT / "runtime" / "python"), "PATH": ""})


class Unknowns(unittest.TestCase):
    def setUp(self):
        self.index = parts.Unknown("batch_idx", "use another hook")

    def test_may_be_passed_on_and_shown_in_a_debugger(self):
        self.assertEqual(repr([self.index]), "[<batch_idx, which no captured step knows>]")
        self.assertIs((self.index,)[0], self.index)

    def test_any_look_is_refused_with_the_line(self):
        looks = [lambda i: i % 2, lambda i: 2 * i, lambda i: i == 0, lambda i: not i, lambda i: f"{i}", lambda i: i < 3,
                 lambda i: [1, 2][i], int, float, str, hash, lambda i: i.real, lambda i: {i: 1}, lambda i: i + 1]
        for look in looks:
            with self.assertRaisesRegex(UnsupportedError, r"test_integrations.py:\d+ looks at batch_idx.*another hook"):
                look(self.index)


class Loop:
    """Of a library, in the eyes of `Hiding`."""

    def __init__(self):
        self.batches = 3

    @property
    def epoch(self):
        return 7

    def optimizers(self):
        return "all of them"


class Hiding(unittest.TestCase):
    names = ("epoch", "batches", "optimizers")

    def test_the_program_is_refused(self):
        loop = Loop()
        with parts.patches() as made:
            parts.hide(made, Loop, self.names, "do it elsewhere")
            for name in self.names:
                with self.assertRaisesRegex(UnsupportedError, rf"looks at Loop.{name}.*do it elsewhere"):
                    getattr(loop, name)

    def test_libraries_read_on(self):
        loop, library = Loop(), {"__name__": "lightning.loops"}
        code = compile("def read(loop): return loop.epoch, loop.batches, loop.optimizers()",
                       "/usr/lib/site-packages/lightning/loops.py", "exec")
        exec(code, library)
        with parts.patches() as made:
            parts.hide(made, Loop, self.names, "")
            self.assertEqual(library["read"](loop), (7, 3, "all of them"))

    def test_a_value_for_libraries(self):
        read = parts.for_libraries("the scale", "do it elsewhere", 0.0)
        library = {"__name__": "lightning.amp", "read": read}
        exec(compile("value = read()", "/usr/lib/site-packages/lightning/amp.py", "exec"), library)
        self.assertEqual(library["value"], 0.0)
        with self.assertRaisesRegex(UnsupportedError, "looks at the scale.*do it elsewhere"):
            read()

    def test_afterwards_all_is_as_before(self):
        before = dict(vars(Loop))
        with self.assertRaises(ZeroDivisionError), parts.patches() as made:
            parts.hide(made, Loop, self.names, "")
            raise ZeroDivisionError
        self.assertEqual(dict(vars(Loop)), before)
        self.assertEqual((Loop().epoch, Loop().batches), (7, 3))


class Pieces(unittest.TestCase):
    def test_patches_restore_what_was_there_and_what_was_not(self):
        thing = types.SimpleNamespace(own=1)
        with parts.patches() as made:
            made.put(thing, "own", 2)
            made.put(thing, "own", 3)
            made.put(thing, "other", 4)
            self.assertEqual((thing.own, thing.other), (3, 4))
        self.assertEqual(vars(thing), {"own": 1})

    def test_overridden_by_class_and_by_assignment(self):
        class Base:
            def one(self): pass
            def two(self): pass

        class Own(Base):
            def two(self): pass

        own = Own()
        self.assertEqual(parts.overridden(own, Base, ("one", "two")), ["two"])
        own.one = print
        self.assertEqual(parts.overridden(own, Base, ("one", "two")), ["one", "two"])
        self.assertEqual(parts.overridden(Base(), Base, ("one", "two", "not there")), [])

    def test_all_obstacles_are_in_one_error(self):
        with self.assertRaisesRegex(UnsupportedError, r"(?s)Callback cannot follow this training:\n  a\n  b"):
            parts.refuse_all("Callback", iter("ab"))
        parts.refuse_all("Callback", iter(""))

    def test_what_is_between_the_first_and_the_last_is_not_captured_before_the_first(self):
        def runs(accumulates, updates, warmup=2):
            order = parts.Accumulation(warmup)
            return [["just runs" if order.just_runs(index == 0, index == accumulates - 1) else "graphed"
                     for index in range(accumulates)] for _ in range(updates)]

        self.assertEqual(runs(1, 3), [["graphed"]] * 3)
        self.assertEqual(runs(3, 3), [["graphed"] * 3] * 3)
        warming = ["graphed", "graphed", "just runs", "just runs", "graphed"]
        self.assertEqual(runs(5, 4), [warming] * 2 + [["graphed"] * 5] * 2)

    def test_the_programs_own_methods(self):
        self.assertEqual([method.__name__ for method in parts.of_the_program(Loop(), ("optimizers", "epoch", "none"))],
                         ["optimizers"])


class TrainingTest(base.TorchTest):
    """A model, a fused optimizer with a number as rate, and stand-ins for the libraries."""

    def setUp(self):
        super().setUp()
        torch.utils._python_dispatch.stack.clear()
        self.weight = torch.nn.Parameter(0xA000, requires_grad=True)
        self.model = torch.nn.Module({"fc.weight": self.weight})
        self.optimizer = torch.optim.Optimizer([self.weight], lr=0.1, capturable=True)
        self.optimizer._step_supports_amp_scaling = True

    def imported(self, name, **stand_ins):
        modules = mock.patch.dict(sys.modules, stand_ins)
        modules.start()
        self.addCleanup(modules.stop)
        sys.modules.pop(f"pumpgraph.integrations.{name}", None)
        self.addCleanup(sys.modules.pop, f"pumpgraph.integrations.{name}", None)
        return importlib.import_module(f"pumpgraph.integrations.{name}")

    def notes(self):
        return [line for line in self.calls() if line.startswith(("fn", "torch: optimizer", "torch: replay"))]


class Rates(TrainingTest):
    def test_a_scheduler_may_hold_a_wrapper(self):
        class Wrapper(torch.optim.Optimizer):
            def __init__(self, optimizer):
                self.optimizer = optimizer

        wrapper = Wrapper(self.optimizer)
        prepared.note_schedulers([wrapper, self.optimizer])
        self.assertFalse(prepared.has_scheduler(self.optimizer))
        wrapper.step = types.SimpleNamespace(_wrapped_by_lr_sched=True)
        prepared.note_schedulers([wrapper])
        self.assertTrue(prepared.has_scheduler(self.optimizer))

    def test_a_rate_on_the_host_is_refused(self):
        self.install()
        self.optimizer.param_groups[0]["lr"] = torch.Tensor(1, is_cuda=False)
        optimizer = self.optimizer
        step = pumpgraph.graphed(lambda x: optimizer.step())
        with self.assertRaisesRegex(UnsupportedError, "group 0 of Optimizer is a tensor on the host"):
            step(torch.Tensor(0x1000))


class LeftOut(TrainingTest):
    def test_a_loop_of_a_library_is_not_searched(self):
        class Trainer:
            pass

        trainer = Trainer()
        trainer.model, trainer.data = self.model, [torch.Tensor(1, is_cuda=False)]
        with mock.patch.dict("pumpgraph.reachable._LEFT_OUT"):
            pumpgraph.reachable.leave_out(Trainer, ("data",))
            found = Reachable(lambda: trainer)
        self.assertEqual((found.modules, found.tensors), ([self.model], []))
        self.assertEqual(len(Reachable(lambda: trainer).tensors), 1)


# ---- transformers ----------------------------------------------------------------------------------------------------


def fake_transformers():
    """The loop calls what that of transformers calls, in its order."""
    module = types.ModuleType("transformers")
    module.__version__ = "5.17.0"

    class TrainerCallback:
        def on_pre_optimizer_step(self, *_event): pass
        def on_optimizer_step(self, *_event): pass

    class Trainer:
        def __init__(self, model, optimizer, callbacks, accumulates=2):
            state = types.SimpleNamespace(sync_gradients=True)
            state._set_sync_gradients = lambda value: setattr(state, "sync_gradients", value)
            self.model = model
            self.optimizer = torch.optim.Optimizer.__new__(AcceleratedOptimizer)
            vars(self.optimizer).update(optimizer=optimizer, gradient_state=state)
            self.accelerator = types.SimpleNamespace(gradient_state=state, scaler=None,
                                                     distributed_type=types.SimpleNamespace(value="NO"))
            self.args = types.SimpleNamespace(n_gpu=1, device=torch.device("cuda"), torch_empty_cache_steps=None,
                                              optim="adamw_torch_fused", max_grad_norm=1.0)
            self.callback_handler = types.SimpleNamespace(callbacks=callbacks)
            self.accumulates = accumulates
            self.norms, self.modes = [], []

        def compute_loss(self, model, inputs, num_items_in_batch):
            torch.note(f"fn items {num_items_in_batch.data_ptr():#x}")
            return torch.Tensor(0xE000)

        def training_step(self, model, inputs, num_items_in_batch=None):
            return self.compute_loss(model, inputs, num_items_in_batch)

        def _clip_grad_norm(self, model):
            torch.note("fn clip")
            return torch.Tensor(0xF000)

        def _get_grad_norm(self, model, grad_norm=None):
            return grad_norm

        def event(self, name):
            for callback in self.callback_handler.callbacks:
                getattr(callback, name)(self.args, None, None)

        def _run_epoch(self, batches):
            for index, (inputs, items) in enumerate(batches):
                updates = (index + 1) % self.accumulates == 0 or index + 1 == len(batches)
                self.accelerator.gradient_state._set_sync_gradients(updates)
                self.current_gradient_accumulation_steps = self.accumulates
                self.training_step(self.model, inputs, items)
                if updates:
                    norm = self._clip_grad_norm(self.model)
                    self.norms.append(self._get_grad_norm(self.model, grad_norm=norm))
                    self.event("on_pre_optimizer_step")
                    self.optimizer.step()
                    self.event("on_optimizer_step")
                    self.model.zero_grad()

        def _inner_training_loop(self, batches):
            self.event("on_train_begin")
            self._run_epoch(batches)
            self.event("on_train_end")

    class AcceleratedOptimizer(torch.optim.Optimizer):
        param_groups = property(lambda self: self.optimizer.param_groups)
        state = property(lambda self: self.optimizer.state)

        def step(self):
            if self.gradient_state.sync_gradients:
                self.optimizer.step()

    module.TrainerCallback, module.Trainer = TrainerCallback, Trainer
    return module


class Transformers(TrainingTest):
    def setUp(self):
        super().setUp()
        self.library = fake_transformers()
        self.integration = self.imported("transformers", transformers=self.library)
        self.model.zero_grad = lambda: torch.note("fn zero_grad")

    def callback(self, **options):
        return self.integration.PumpGraphCallback("1GiB", graphed={"warmup": 1, **options}, cache_directory="/cache")

    def batches(self, count):
        return [({"x": torch.Tensor(0x1000 + index)}, torch.Tensor(0x2000 + index)) for index in range(count)]

    def test_a_micro_batch_is_one_graphed_call(self):
        callback = self.callback()
        trainer = self.library.Trainer(self.model, self.optimizer, [callback])
        self.calls()
        trainer._inner_training_loop(self.batches(6))
        self.assertEqual(callback.report["name"], "step")
        first, update = ["fn items"], ["fn items", "fn clip", "torch: optimizer step", "fn zero_grad"]
        after = ["fn zero_grad"]  # the loop's own, which finds nothing
        called = [re.sub(r" 0x\w+| \d+$", "", note) for note in self.notes()]
        replay = ["torch: replay"]
        self.assertEqual(called, first + update + after  # warm-up
                         + first * 2 + replay + update * 2 + replay + after  # both captured
                         + replay * 2 + after)
        self.assertEqual(len(set(trainer.norms)), 3)  # each of its own call

    def test_micro_batches_in_the_middle_wait_for_the_first(self):
        callback = self.callback()
        trainer = self.library.Trainer(self.model, self.optimizer, [callback], accumulates=4)
        trainer._inner_training_loop(self.batches(8))
        called = [re.sub(r" 0x\w+| \d+$", "", note) for note in self.notes()]
        micro, rest = ["fn items"], ["fn clip", "torch: optimizer step", "fn zero_grad"]
        captured = micro * 2 + ["torch: replay"]
        self.assertEqual(called, micro * 4 + rest + ["fn zero_grad"] + captured * 2 + ["torch: replay"]
                         + (micro + rest) * 2 + ["torch: replay", "fn zero_grad"])

    def test_afterwards_the_trainer_is_as_before(self):
        callback = self.callback()
        trainer = self.library.Trainer(self.model, self.optimizer, [callback])
        before = set(vars(trainer)) | {"current_gradient_accumulation_steps"}
        trainer._inner_training_loop(self.batches(3))
        self.assertEqual(set(vars(trainer)), before)
        self.assertTrue(trainer.accelerator.gradient_state.sync_gradients)
        self.assertIsNone(callback.step)
        trainer._inner_training_loop(self.batches(3))  # and once more

    def test_a_training_that_failed_leaves_nothing_for_the_next(self):
        callback = self.callback()
        trainer = self.library.Trainer(self.model, self.optimizer, [callback])
        with self.assertRaises(TypeError):
            trainer._inner_training_loop([({"x": torch.Tensor(0x1000)}, torch.Tensor(0x2000)), None])
        trainer._inner_training_loop(self.batches(4))
        self.assertNotIn("training_step", vars(trainer))

    def test_a_number_of_items_is_no_constant(self):
        callback = self.callback()
        trainer = self.library.Trainer(self.model, self.optimizer, [callback], accumulates=1)
        with mock.patch.object(torch, "tensor", lambda value: torch.Tensor(value, is_cuda=False), create=True):
            trainer._inner_training_loop([({"x": torch.Tensor(0x1000)}, items) for items in (5, 6, 7, 8)])
        self.assertEqual(len([note for note in self.notes() if "replay" in note]), 3)

    def test_an_evaluation_in_between_costs_no_graph(self):
        trainer = self.library.Trainer(self.model, self.optimizer, [self.callback(max_graphs=1)], accumulates=1)
        self.model.train = lambda: setattr(self.model, "training", True)

        class Evaluating(list):
            def __iter__(inner):
                for batch in super().__iter__():
                    self.model.training = False
                    yield batch

        trainer._inner_training_loop(Evaluating(self.batches(4)))
        self.assertTrue(self.model.training)

    def test_what_a_subclass_reads_is_followed(self):
        callback, library = self.callback(), self.library

        class Own(library.Trainer):
            weight = 1.0

            def compute_loss(self, model, inputs, num_items_in_batch):
                assert self.weight
                return super().compute_loss(model, inputs, num_items_in_batch)

        trainer = Own(self.model, self.optimizer, [callback], accumulates=1)
        batches = self.batches(4)

        class Changing(list):
            def __iter__(inner):
                for index in range(4):
                    trainer.weight = 2.0 if index == 3 else 1.0
                    yield batches[index]

        with self.assertRaisesRegex(StaleStepError, '"self.weight".*was 1.0.*is 2.0'):
            trainer._inner_training_loop(Changing(batches))

    def test_refusals(self):
        callback, library = self.callback(), self.library

        class Late(library.TrainerCallback):
            def on_optimizer_step(self, *_event): pass

        class Own(library.Trainer):
            def _run_epoch(self, batches): pass

        def refused(pattern, kind=library.Trainer, callbacks=(), **changes):
            trainer = kind(self.model, self.optimizer, [callback, *callbacks])
            for path, value in changes.items():
                owner, name = path.split("__")
                setattr(getattr(trainer, owner), name, value)
            with self.assertRaisesRegex(UnsupportedError, pattern):
                trainer._inner_training_loop(self.batches(1))
            self.assertIsNone(callback.step)

        refused("Late.on_optimizer_step.*on_step_end", callbacks=[Late()])
        refused("Own has a _run_epoch of its own", kind=Own)
        refused("DataParallel on 2 devices", args__n_gpu=2)
        refused("trains on cpu", args__device=torch.device("cpu"))
        refused("distributed .FSDP.", accelerator__distributed_type=types.SimpleNamespace(value="FSDP"))
        refused("torch_empty_cache_steps", args__torch_empty_cache_steps=4)
        refused('optim="lomo"', args__optim="lomo")
        refused("fp16 .* not fused", accelerator__scaler=object(),
                optimizer__optimizer=torch.optim.Optimizer([self.weight]))

    def test_where_cuda_is_in_use_already(self):
        torch.cuda.initialized = True
        with self.assertRaisesRegex(PumpGraphError, "make the PumpGraphCallback before TrainingArguments"):
            self.callback()

    def test_without_a_budget_there_must_be_a_session(self):
        with self.assertRaisesRegex(PumpGraphError, "install"):
            self.integration.PumpGraphCallback()
        with self.assertRaisesRegex(PumpGraphError, "budget_of without a budget"):
            self.integration.PumpGraphCallback(budget_of="tensors")
        self.install()
        self.integration.PumpGraphCallback()

    def test_nobody_calls_it(self):
        with self.assertRaisesRegex(PumpGraphError, "no transformers.Trainer"):
            self.callback().on_train_begin(None, None, None)


# ---- lightning -------------------------------------------------------------------------------------------------------


class Count:
    def __init__(self):
        self.calls = collections.Counter()

    def __getattr__(self, name):
        return lambda: self.calls.update([name])


def fake_lightning():
    """Modules `lightning`, `lightning.pytorch` and those of its plugins and strategies."""
    names = ("lightning", "lightning.pytorch", "lightning.pytorch.plugins", "lightning.pytorch.plugins.precision",
             "lightning.pytorch.strategies")
    modules = {name: types.ModuleType(name) for name in names}
    pl = modules["lightning"].pytorch = modules["lightning.pytorch"]
    for kind in ("Precision", "MixedPrecision", "HalfPrecision", "DoublePrecision"):
        setattr(modules["lightning.pytorch.plugins.precision"], kind, type(kind, (), {"scaler": None}))
    strategy = type("SingleDeviceStrategy", (), {"root_device": torch.device("cuda")})
    modules["lightning.pytorch.strategies"].SingleDeviceStrategy = strategy

    class Callback:
        def on_before_optimizer_step(self, *_event): pass

    class Progress:
        def __init__(self):
            self.optimizer = types.SimpleNamespace(step=Count(), zero_grad=Count())

    class Loop:
        _skip_backward = False

        def __init__(self, trainer, module):
            self.trainer, self.module = trainer, module
            self.optim_progress = Progress()
            vars(self)["_skip_backward"] = False

        def run(self, optimizer, batch_idx, kwargs):
            module, trainer = self.module, self.trainer
            module._current_fx_name = "training_step"
            loss = module.training_step(*kwargs.values())
            module._current_fx_name = None
            if batch_idx % trainer.accumulate_grad_batches == 0:
                module.optimizer_zero_grad(3, batch_idx, optimizer)
            if not trainer.fit_loop._should_accumulate():
                self.optim_progress.optimizer.step.increment_ready()
                optimizer.step()
            return {"loss": loss}

    class Trainer:
        current_epoch = property(lambda self: 3)

        def __init__(self, module, optimizer, callbacks, accumulates=2):
            self.strategy = strategy()
            self.precision_plugin = modules["lightning.pytorch.plugins.precision"].Precision()
            self.optimizers_, self.callbacks, self.module = [optimizer], callbacks, module
            self.accumulate_grad_batches, self.gradient_clip_val, self.gradient_clip_algorithm = accumulates, 1.0, None
            self.index = 0
            loop = Loop(self, module)
            self.fit_loop = types.SimpleNamespace(
                epoch_loop=types.SimpleNamespace(automatic_optimization=loop),
                _should_accumulate=lambda: (self.index + 1) % self.accumulate_grad_batches != 0)
            self.outputs = []

        optimizers = property(lambda self: self.optimizers_)

        def fit(self, batches):
            for callback in self.callbacks:
                callback.on_train_start(self, self.module)
            for self.index, batch in enumerate(batches):
                loop = self.fit_loop.epoch_loop.automatic_optimization
                kwargs = collections.OrderedDict(batch=batch, batch_idx=self.index)
                self.outputs.append(loop.run(self.optimizers_[0], self.index, kwargs))
            for callback in self.callbacks:
                callback.on_train_end(self, self.module)

    class LightningModule(torch.nn.Module):
        automatic_optimization = True

        def __init__(self, parameters):
            super().__init__(parameters)
            self._current_fx_name = None
            self.logs = LOGS

        def log(self, name, value, **options):
            self.logs.append((self._current_fx_name, name, value, options))

        def optimizer_zero_grad(self, epoch, batch_idx, optimizer):
            torch.note("fn zero_grad")

        def optimizer_step(self, *_arguments): pass

    LightningModule.__module__ = LightningModule.log.__module__ = "lightning.pytorch"
    pl.Callback, pl.Trainer, pl.LightningModule = Callback, Trainer, LightningModule
    return modules


LOGS = collections.deque(maxlen=100)  # the stand-in's results, which are no part of a module


class Lightning(TrainingTest):
    def setUp(self):
        super().setUp()
        self.modules = fake_lightning()
        self.pl = self.modules["lightning.pytorch"]
        # What the stand-ins do counts as the library's.
        library = mock.patch.object(parts, "is_programs_path", lambda path, module: False)
        library.start()
        self.addCleanup(library.stop)
        self.integration = self.imported("lightning", **self.modules)
        torch.optim.LBFGS = type("LBFGS", (), {})
        self.addCleanup(delattr, torch.optim, "LBFGS")
        LOGS.clear()

        class Module(self.pl.LightningModule):
            def training_step(self, batch, batch_idx):
                torch.note("fn")
                self.log("loss", torch.Tensor(0xB000), prog_bar=True)
                return torch.Tensor(0xE000)

        pumpgraph.reachable.leave_out(self.pl.LightningModule, ("logs", "_trainer", "log", "optimizer_zero_grad"))
        self.module = Module({"fc.weight": self.weight})

    def callback(self):
        return self.integration.PumpGraphCallback("1GiB", graphed={"warmup": 1}, cache_directory="/cache")

    def trainer(self, *callbacks, **options):
        return self.pl.Trainer(self.module, self.optimizer, list(callbacks), **options)

    def batches(self, count):
        return [torch.Tensor(0x1000 + index) for index in range(count)]

    def test_a_batch_is_one_graphed_call(self):
        trainer = self.trainer(self.callback())
        self.calls()
        trainer.fit(self.batches(6))
        called = [re.sub(r" \d+$", "", note) for note in self.notes()]
        first, update = ["fn", "fn zero_grad"], ["fn", "torch: optimizer step"]
        self.assertEqual(called, first + update + first * 2 + ["torch: replay"] + update * 2 + ["torch: replay"] * 3)
        self.assertEqual(len({output["loss"] for output in trainer.outputs}), 6)  # each of its own call

    def test_every_call_is_counted_and_logged(self):
        trainer = self.trainer(self.callback())
        trainer.fit(self.batches(8))
        counts = trainer.fit_loop.epoch_loop.automatic_optimization.optim_progress.optimizer
        self.assertEqual(counts.step.calls, {"increment_ready": 4, "increment_completed": 4})
        self.assertEqual(counts.zero_grad.calls, dict.fromkeys(
            ("increment_ready", "increment_started", "increment_completed"), 4))
        self.assertEqual([(where, name, options) for where, name, _, options in LOGS],
                         [("training_step", "loss", {"prog_bar": True})] * 8)
        self.assertIsNone(self.module._current_fx_name)
        self.assertNotIn("log", vars(self.module))

    def test_a_skipped_update_is_seen_after_the_replay(self):
        on_device = [16.0]

        class Scaler:
            def get_scale(self):
                return on_device[0]

        trainer, seen = self.trainer(self.callback(), accumulates=1), []
        trainer.precision_plugin.scaler = scaler = Scaler()
        loop = trainer.fit_loop.epoch_loop.automatic_optimization
        run = loop.run

        def run_and_look(optimizer, *arguments):
            before = scaler.get_scale()
            output = run(optimizer, *arguments)
            optimizer._skip_next_scheduler_step = scaler.get_scale() < before
            return output

        class Batches(list):
            """Every third batch overflows, the first one too."""

            def __iter__(inner):
                for index, batch in enumerate(super().__iter__()):
                    def note(line, note=torch.note):
                        note(line)
                        if line == "fn" or "replay" in line:
                            on_device[0] = 8.0 / 2**(index // 3)

                    with mock.patch.object(torch, "note", note):
                        yield batch
                    seen.append(self.optimizer._skip_next_scheduler_step)

        loop.run = run_and_look
        trainer.fit(Batches(self.batches(8)))
        self.assertEqual(seen, [True, False, False, True, False, False, True, False])

    def test_a_step_that_looks_at_its_index_is_refused(self):
        module = self.module

        class Looks(type(module)):
            def training_step(self, batch, batch_idx):
                return super().training_step(batch, batch_idx) if batch_idx % 2 else None

        self.module = Looks({"fc.weight": self.weight})
        with self.assertRaisesRegex(UnsupportedError, "looks at batch_idx.*on_train_batch_end"):
            self.trainer(self.callback()).fit(self.batches(1))

    def test_a_step_that_looks_at_the_epoch_is_refused(self):
        trainer = self.trainer(self.callback())
        module = self.module
        with mock.patch.object(parts, "is_programs_path", lambda path, name: name == __name__):
            module.training_step = lambda batch, batch_idx: trainer.current_epoch
            with self.assertRaisesRegex(UnsupportedError, "looks at Trainer.current_epoch"):
                trainer.fit(self.batches(1))
        self.assertEqual(trainer.current_epoch, 3)

    def test_metrics_that_count_in_python_are_refused(self):
        module = self.module
        module.training_step = lambda batch, batch_idx: module.log("accuracy", torch.nn.Module())
        with self.assertRaisesRegex(UnsupportedError, "logs a Module, which counts in Python"):
            self.trainer(self.callback()).fit(self.batches(1))

    def test_refusals(self):
        callback, pl = self.callback(), self.pl

        class Late(pl.Callback):
            def on_before_optimizer_step(self, *_event): pass

        def refused(pattern, trainer):
            with self.assertRaisesRegex(UnsupportedError, pattern):
                trainer.fit(self.batches(1))
            self.assertIsNone(callback.step)

        refused("Late.on_before_optimizer_step", self.trainer(callback, Late()))
        for name, value, pattern in (("strategy", types.SimpleNamespace(), "SimpleNamespace uses other processes"),
                                     ("precision_plugin", types.SimpleNamespace(), "SimpleNamespace steps in its own"),
                                     ("_detect_anomaly", True, "detect_anomaly"),
                                     ("optimizers_", [self.optimizer] * 2, "2 optimizers")):
            trainer = self.trainer(callback)
            setattr(trainer, name, value)
            refused(pattern, trainer)
        trainer = self.trainer(callback)
        trainer.precision_plugin.scaler = object()
        trainer.optimizers_ = [torch.optim.Optimizer([self.weight])]
        refused("16-mixed.*not fused", trainer)
        for name, value, pattern in (("optimizer_step", print, "an optimizer_step of its own"),
                                     ("automatic_optimization", False, "manual optimization"),
                                     ("training_step", lambda dataloader_iter: None, "dataloader_iter")):
            with contextlib.ExitStack() as undo:
                undo.callback(vars(self.module).pop, name)
                vars(self.module)[name] = value
                refused(pattern, self.trainer(callback))


class StaticCache:
    """As transformers has it."""

    is_compileable = True

    def __init__(self, pointer):
        self.layers = [types.SimpleNamespace(keys=torch.Tensor(pointer), is_initialized=True)]


class LanguageModel(torch.nn.Module):
    """`ran`: what its own forward() was given."""

    def __init__(self):
        super().__init__({"head.weight": torch.nn.Parameter(0xA000)})
        self.ran = []

    def forward(self, input_ids, past_key_values=None, use_cache=True):
        """Of the model."""
        torch.note(f"forward {input_ids.shape}")
        return [torch.fresh(0xE000), past_key_values]


class Decoding(base.TorchTest):
    def setUp(self):
        super().setUp()
        from pumpgraph.integrations.generation import graph_decoding
        self.graph_decoding = graph_decoding
        self.install()
        self.model, self.cache = LanguageModel(), StaticCache(0xB000)
        without_gradients = mock.patch.object(torch, "is_grad_enabled", lambda: False)
        without_gradients.start()
        self.addCleanup(without_gradients.stop)

    def tokens(self, count=1):
        return torch.Tensor(0x1000, shape=(1, count))

    def forwards(self):
        return [line for line in self.calls() if line.startswith(("forward", "torch: replay"))]

    def decoded(self, cache=None, **options):
        step = self.graph_decoding(self.model, warmup=1, **options)
        for _ in range(2):
            self.model.forward(input_ids=self.tokens(), past_key_values=cache or self.cache)
        self.calls()
        return step

    def test_a_call_for_one_token_is_replayed(self):
        step = self.decoded()
        output = self.model.forward(input_ids=self.tokens(), past_key_values=self.cache)
        self.assertIs(output[1], self.cache)
        self.assertEqual(self.forwards(), ["torch: replay 2"])
        arguments = "model LanguageModel, input_ids float32[1, 1], past_key_values StaticCache"
        self.assertEqual(step.signatures(), [f"{arguments}, no_grad, training"])

    def test_all_else_runs(self):
        self.decoded(max_graphs=1)
        plain = {"growing": types.SimpleNamespace(is_compileable=False), "none": None}
        for count in (2, 3, 4):
            self.model.forward(self.tokens(count), past_key_values=self.cache)
        for cache in plain.values():
            self.model.forward(input_ids=self.tokens(), past_key_values=cache)
        self.cache.is_updated = {0: False}
        self.model.forward(self.tokens(), past_key_values=self.cache)
        del self.cache.is_updated
        with mock.patch.object(torch, "is_grad_enabled", lambda: True):
            self.model.forward(self.tokens(), past_key_values=self.cache)
        self.assertEqual([line[:7] for line in self.forwards()], ["forward"] * 7)

    def test_the_signature_is_the_models(self):
        self.decoded()
        self.assertEqual(list(inspect.signature(self.model.forward).parameters),
                         ["input_ids", "past_key_values", "use_cache"])
        self.assertFalse(self.model._valid_auto_compile_criteria({}, None))

    def test_another_cache_of_the_same_kind_gets_the_tensors(self):
        step, text = self.decoded(max_graphs=1), StaticCache(0xC000)
        for _ in range(2):
            output = self.model.forward(input_ids=self.tokens(), past_key_values=text)
            self.assertIs(output[1], text)
        self.assertEqual(text.layers[0].keys.data_ptr(), 0xB000)
        lines = [line for line in self.calls() if line.startswith(("torch: copy 0xc", "torch: replay"))]
        self.assertEqual(lines, ["torch: copy 0xc000 to 0xb000", "torch: replay 2", "torch: replay 2"])
        self.assertEqual(len(step.signatures()), 1)

    def test_a_cache_that_the_program_keeps_has_its_values(self):
        """Also where it is written on later, and where it has been given a tensor of the program's."""
        self.decoded(max_graphs=1)
        other = StaticCache(0xC000)
        self.cache.layers[0].keys.value, other.layers[0].keys.value = 1.0, 2.0
        self.model.forward(input_ids=self.tokens(), past_key_values=other)
        self.assertEqual(self.cache.layers[0].keys.value, 1.0)
        self.assertEqual(other.layers[0].keys.value, 2.0)
        self.assertNotEqual(self.cache.layers[0].keys.data_ptr(), 0xB000)
        self.model.forward(input_ids=self.tokens(), past_key_values=self.cache)
        self.assertEqual(self.cache.layers[0].keys.data_ptr(), 0xB000)
        self.assertEqual((self.cache.layers[0].keys.value, other.layers[0].keys.value), (1.0, 2.0))
        self.cache.layers[0].keys = torch.Tensor(0xD000)
        self.cache.layers[0].keys.value = 3.0
        self.model.forward(input_ids=self.tokens(), past_key_values=self.cache)
        self.assertEqual(self.cache.layers[0].keys.data_ptr(), 0xB000)
        self.assertEqual(self.cache.layers[0].keys.value, 3.0)

    def test_a_cache_of_another_kind_takes_the_place_of_the_first(self):
        step = self.decoded(max_graphs=1)
        others = [StaticCache(0xC000) for _ in range(4)]
        others[0].layers.append(others[0].layers[0])
        others[1].layers[0].keys.shape = (9, 9)
        others[2].layers[0].seen = 0
        others[3].length = 7
        for other in others:
            for _ in range(3):
                output = self.model.forward(input_ids=self.tokens(), past_key_values=other)
                self.assertIs(output[1], other)
            self.assertFalse([line for line in self.calls() if line.startswith("torch: copy 0xc000")])
            self.assertEqual(len(step.signatures()), 1)

    def test_what_a_call_without_a_graph_changes_in_python_is_seen(self):
        def forward(model, input_ids, past_key_values=None):
            past_key_values.layers[0].seen += 1
            past_key_values.layers[0].keys = torch.Tensor(0xF000)
            return [past_key_values]

        self.cache.layers[0].seen = 0
        with mock.patch.object(LanguageModel, "forward", forward):
            self.graph_decoding(self.model, warmup=5)
            for _ in range(3):
                self.model.forward(input_ids=self.tokens(), past_key_values=self.cache)
        self.assertEqual((self.cache.layers[0].seen, self.cache.layers[0].keys.data_ptr()), (3, 0xF000))

    def test_a_copy_of_the_model_runs_its_own_forward(self):
        self.decoded()
        other = LanguageModel()
        vars(other)["forward"] = types.MethodType(self.model.forward.__func__, other)
        other.forward(input_ids=self.tokens(), past_key_values=self.cache)
        self.assertEqual(self.forwards(), ["forward (1, 1)"])

    def test_a_count_in_the_cache_is_refused(self):
        def forward(model, input_ids, past_key_values=None):
            past_key_values.layers[0].seen += 1

        self.cache.layers[0].seen = 0
        with mock.patch.object(LanguageModel, "forward", forward):
            self.graph_decoding(self.model, warmup=2)
            with self.assertRaisesRegex(UnsupportedError, "past_key_values.layers.0.seen\" is a number that"):
                for _ in range(3):
                    self.model.forward(input_ids=self.tokens(), past_key_values=self.cache)

    def test_twice_is_refused(self):
        self.decoded()
        with self.assertRaisesRegex(PumpGraphError, "LanguageModel has a forward.. of its own"):
            self.graph_decoding(self.model)


if __name__ == "__main__":
    unittest.main()
