# SPDX-License-Identifier: Apache-2.0
"""graphed(split=True) with stand-ins for PyTorch and the library. Here operators compute: eagerly at once, captured
ones in each replay. Every program runs plainly as well, and both must do the same."""

import contextlib
import sys
import types
import unittest
from unittest import mock

import test_torch_capture as base
from test_torch_capture import torch

import pumpgraph
from pumpgraph import PumpGraphError, StaleStepError, UnsupportedError, cuts, signature
from pumpgraph.bindings import TouchedMemory
from pumpgraph.changes import Changes
from pumpgraph.split import Piece

MAY_HAVE_WRITTEN = Piece.may_have_written
MANY = 12  # calls: of warming up, capturing, and replaying
Text = str  # a global that a function under test names


class Computer:
    """Runs operators, or keeps them for the replays of the graph that is captured."""

    def __init__(self):
        self._graphs, self._current = {}, []

    def do(self, work):
        if torch.cuda.capturing:
            self._current.append(work)
        else:
            work()

    def begin(self, number):
        self._current = self._graphs[number] = []

    def replay(self, number):
        for work in self._graphs[number]:
            work()


class SplitTest(base.TorchTest):
    def setUp(self):
        super().setUp()
        torch.utils._python_dispatch.stack.clear()
        self.install()
        computer = Computer()

        def note(line):
            kind, _, rest = line.partition(" ")[2].partition(" ")
            if line.startswith("torch: ") and kind in ("begin", "replay"):
                {"begin": computer.begin, "replay": computer.replay}[kind](int(rest.split()[0]))
            self.control.fake_note(line.encode())

        torch.note = note

        def op(compute, *tensors, pointer=0xE000):
            result = torch.fresh(pointer)
            object.__setattr__(result, "requires_grad", any(tensor.requires_grad for tensor in tensors))
            # As a graph does, what is kept knows memory and no tensors.
            cell, cells = result.cell, [tensor.cell for tensor in tensors]
            computer.do(lambda: cell.__setitem__(0, compute(*[each[0] for each in cells])))
            return result

        def put(target, compute, *tensors):
            object.__setattr__(target, "_version", target._version + 1)
            cells = [tensor.cell for tensor in (target, *tensors)]
            computer.do(lambda: cells[0].__setitem__(0, compute(*[each[0] for each in cells])))

        torch.op, torch.put = op, put  # where no search looks
        copies = mock.patch.object(signature.StaticInputs, "copies", lambda _inputs, _tensors: None)
        copies.start()  # the stub of the library copies no values: PyTorch does
        self.addCleanup(copies.stop)
        writes = mock.patch.object(Piece, "may_have_written", lambda _piece, _tensor: True)
        writes.start()  # the stub's steps have no nodes that tell
        self.addCleanup(writes.stop)
        self.weight = torch.nn.Parameter(0xA000)
        self.model = torch.nn.Module({"fc.weight": self.weight})

    def tearDown(self):
        del torch.op, torch.put

    def x(self, value, **options):
        x = torch.Tensor(0x1000, **options)
        x.value = value
        return x

    def number(self, value):
        """On the host, so that loads are PyTorch's."""
        return self.x(value, is_cuda=False)

    def graphs(self, step):
        return len(step.signatures())

    def compare(self, make, arguments, **options):
        """What make() gives, plainly and split: results, and what it has left in `seen` and the weight. Returns the
        split step."""
        outcomes = []
        for wrap in (lambda fn: fn, lambda fn: pumpgraph.graphed(fn, split=True, warmup=1, **options)):
            seen = []
            self.weight.value = 0.0
            step = wrap(make(self.model, seen))
            results = []
            for argument in arguments():
                result = step(*argument)
                results.append((result.value if isinstance(result, torch.Tensor) else result, self.weight.value))
            outcomes.append((results, seen))
        self.assertEqual(*outcomes)
        return step


def branches(model, seen):
    def step(x):
        loss = torch.op(lambda w, x: w + x, model._parameters["fc.weight"], x)
        if loss.item() > 3:
            seen.append("large")
            torch.put(model._parameters["fc.weight"], lambda w, loss: w - loss, loss)
        torch.put(model._parameters["fc.weight"], lambda w: w + 1)
        return loss

    return step


def branches_of_shape(model, seen):
    def step(x):
        loss = torch.op(lambda x: x + 1, x)
        seen.append(loss.item())
        return torch.op(lambda loss: loss * 2, loss)

    return step


class Programs(SplitTest):
    def test_a_branch_goes_both_ways(self):
        values = [(self.x(value),) for value in (1, 5, 1, 1, 5, 5, 1, 2, 3, 4, 0, 0, 0, 0, 9, 9, 1, 1, 1, 1)]
        step = self.compare(branches, lambda: values)
        self.assertEqual(self.graphs(step), 3)

    def test_another_branch_is_captured_when_it_is_met(self):
        values = [(self.x(1),)] * 5 + [(self.x(5),)] * 5
        self.compare(branches, lambda: values)
        self.assertEqual(len([line for line in self.calls() if line.startswith("adopt")]), 3)

    def test_replays_run_nothing_but_graphs_and_reads(self):
        step = self.compare(branches, lambda: [(self.x(1),)] * 5)
        self.calls()
        step(self.x(1))
        lines = [line for line in self.calls() if line.startswith(("torch: replay", "torch: item", "torch: begin"))]
        self.assertEqual([line.split()[1] for line in lines], ["replay", "item", "replay"])

    def test_what_is_logged_is_logged_in_each_call(self):
        def make(model, seen):
            def step(x):
                loss = torch.op(lambda w, x: w * x + x, model._parameters["fc.weight"], x)
                seen.append(f"loss {loss.item():.2f}")
                torch.put(model._parameters["fc.weight"], lambda w, loss: w + loss, loss)
                return loss

            return step

        self.compare(make, lambda: [(self.x(value / 8),) for value in range(MANY)])

    def test_waiting_that_no_name_tells_of_is_found_by_a_capture(self):
        def make(model, seen):
            def is_large(loss):
                return loss.item() > 3

            def step(x):
                loss = torch.op(lambda w, x: w + x, model._parameters["fc.weight"], x)
                large = is_large(loss)
                if large:
                    torch.put(model._parameters["fc.weight"], lambda w: w - 5)
                torch.put(model._parameters["fc.weight"], lambda w: w + 1)
                return loss

            return step

        step = self.compare(make, lambda: [(self.x(value % 5),) for value in range(20)])
        self.assertEqual(len(step.lines), 1)
        self.assertEqual(self.graphs(step), 3)

    def test_a_cut_that_is_found_late_gives_up_the_graphs_before_it(self):
        def make(model, seen):
            def is_large(loss):
                return loss.item() > 3

            def step(x):
                loss = torch.op(lambda x: x + 1, x)
                seen.append(loss.item())
                large = is_large(loss)
                return torch.op(lambda loss: loss * (2 if large else 3), loss)

            return step

        step = self.compare(make, lambda: [(self.x(value % 5),) for value in range(20)])
        self.assertEqual(len(step._pieces), 2)  # and not what was cut since
        self.assertEqual(self.graphs(step), 3)

    def test_nothing_is_captured_over_tensors_that_do_not_last(self):
        values = [(self.x(1, shape=shape),) for shape in ((2,), (3,)) for _ in range(5)]
        self.assertEqual(self.graphs(self.compare(branches_of_shape, lambda: values)), 4)

    def test_what_a_piece_leaves_in_a_variable_is_not_copied(self):
        def make(model, seen):
            def step(x):
                hidden = torch.op(lambda x: x + 1, x)
                seen.append(x.item())
                return torch.op(lambda hidden: hidden * 2, hidden)

            return step

        step = self.compare(make, lambda: [(self.x(value),) for value in range(MANY)])
        self.calls()
        step(self.x(3))
        copies = [line for line in self.calls() if line.startswith("torch: copy")]
        self.assertEqual(len(copies), 3, copies)  # the argument, and what code between sees of it after each piece
        for touches, expected in ((True, 3), (False, 1)):
            with mock.patch.object(Piece, "may_have_written", MAY_HAVE_WRITTEN), \
                    mock.patch.object(TouchedMemory, "touches", lambda _memory, _thing: touches):
                for piece in step._pieces.values():
                    piece._reached.clear()
                step(self.x(3))
            copies = [line for line in self.calls() if line.startswith("torch: copy")]
            self.assertEqual(len(copies), expected, copies)

    def test_values_of_the_host_are_arguments(self):
        def make(model, seen):
            def step(x):
                loss = torch.op(lambda x: x + 1, x)
                scale = torch.from_host(loss.item() * 2)
                return torch.op(lambda loss, scale: loss * scale, loss, scale)

            return step

        torch.from_host = self.number
        self.addCleanup(delattr, torch, "from_host")
        step = self.compare(make, lambda: [(self.x(value),) for value in range(MANY)])
        self.assertEqual(self.graphs(step), 2)

    def test_numbers_of_the_host_are_graphs_of_their_own(self):
        def make(model, seen):
            def step(x):
                times = x.item() % 2
                return torch.op(lambda x: x + times, x)

            return step

        step = self.compare(make, lambda: [(self.x(value),) for value in range(MANY)])
        self.assertEqual(self.graphs(step), 2)

    def test_loops_returns_and_contexts_are_python(self):
        def make(model, seen):
            def step(x, parts):
                total = 0
                with contextlib.suppress(ZeroDivisionError):
                    for part in parts:
                        y = torch.op(lambda x, part: x + part, x, part)
                        if y.item() > 6:
                            break
                        if y.item() == 3:
                            continue
                        total = total + y.item()
                        if y.item() == 5:
                            return y
                return torch.op(lambda x: x + total % 2, x)

            return step

        parts = [self.x(1), self.x(2), self.x(3)]
        self.compare(make, lambda: [(self.x(value % 7), parts) for value in range(28)], max_graphs=20)

    def test_results_are_the_programs_to_keep(self):
        step = pumpgraph.graphed(branches(self.model, []), split=True, warmup=1)
        results = [step(self.x(value / 16)) for value in range(8)]
        self.weight.value = 0.0
        plain = branches(self.model, [])
        self.assertEqual([result.value for result in results], [plain(self.x(value / 16)).value for value in range(8)])

    def test_what_code_between_writes_is_there_for_the_next_piece(self):
        def make(model, seen):
            def step(x):
                y = torch.op(lambda x: x + 1, x)
                if y.item() > 4:
                    y.fill_(y.item() * 10)
                    x.fill_(y.item())
                return torch.op(lambda x, y: x + y, x, y)

            return step

        self.compare(make, lambda: [(self.x(value),) for value in range(MANY)])

    def test_what_shares_memory_with_a_weight_is_the_weights(self):
        def make(model, seen):
            def step(x):
                flat = torch.viewed(model._parameters["fc.weight"])
                y = torch.op(lambda x, flat: x + flat, x, flat)
                model._parameters["fc.weight"].fill_(y.item() / 2)
                seen.append(flat.item())
                flat.fill_(y.item() / 4)
                return torch.op(lambda w, flat: w + flat, model._parameters["fc.weight"], flat)

            return step

        torch.viewed = lambda tensor: tensor.view()
        self.addCleanup(delattr, torch, "viewed")
        self.compare(make, lambda: [(self.x(value),) for value in range(MANY)])

    def test_what_a_piece_writes_code_between_sees(self):
        def make(model, seen):
            def step(x):
                y = torch.op(lambda x: x + 1, x)
                seen.append(y)
                torch.put(y, lambda y: y * 2)
                seen[-1] = y.item(), seen[-1].item()
                torch.put(x, lambda x: x + 7)
                return x.item()

            return step

        self.compare(make, lambda: [(self.x(value),) for value in range(MANY)])

    def test_a_value_that_code_between_has_from_before_its_piece_ran_again(self):
        def make(model, seen):
            def step(x):
                for turn in range(2):
                    torch.put(x, lambda x: x * 2)
                    loss = torch.op(lambda x: x + 1, x)
                    seen.append(loss.item())
                    if turn == 0:
                        first = loss
                seen.append(first.item())
                return torch.op(lambda a, b: a - b, loss, first)

            return step

        self.compare(make, lambda: [(self.x(value),) for value in range(MANY)])

    def test_methods(self):
        test = self

        class Base:
            def signed(self, y):
                return torch.op(lambda y: -y, y)

        class Trainer(Base):
            def __init__(self):
                self.weight = test.weight
                self.__limit = 3

            def signed(self, y):
                raise AssertionError("not that of the base")

            @pumpgraph.graphed(split=True, warmup=1)
            def step(self, x, *, add=1):
                y = torch.op(lambda w, x: w + x + add, self.weight, x)
                if y.item() > self.__limit:
                    return y
                y = super().signed(y)
                return y

        trainer = Trainer()
        values = [trainer.step(self.x(value), add=2).value for value in range(MANY)]
        self.assertEqual(values, [value + 2 if value + 2 > 3 else -value - 2 for value in range(MANY)])
        self.assertIs(trainer.step, trainer.step)

    def test_globals_and_variables_of_others_that_the_step_sets(self):
        def make(model, seen):
            count = 0

            def step(x):
                nonlocal count
                y = torch.op(lambda x: x + 1, x)
                count = count + int(y.item())
                return count

            return step

        self.compare(make, lambda: [(self.x(value),) for value in range(MANY)])


class Histories(SplitTest):
    """Autograd's graph of a piece is there for pieces that are captured later."""

    def step_of(self, model, seen):
        def step(x):
            loss = torch.op(lambda w, x: w + x, model._parameters["fc.weight"], x)
            if loss.item() > 3:
                torch.backward(loss)
                torch.put(model._parameters["fc.weight"], lambda w: w - 4)
            else:
                torch.backward(loss)
                torch.put(model._parameters["fc.weight"], lambda w: w + 1)
            return loss

        return step

    def setUp(self):
        super().setUp()
        object.__setattr__(self.weight, "requires_grad", True)
        self.kept = []
        test = self

        class Engine(type(torch.autograd.Variable._execution_engine)):
            pass

        def backward(loss):
            """Refuses values that were overwritten since, as PyTorch does."""
            assert test.weight._version == loss.saved, "modified by an inplace operation"
            test.kept.append(Changes.keeps_graphs)

        def op(compute, *tensors, make=torch.op, **options):
            result = make(compute, *tensors, **options)
            object.__setattr__(result, "saved", test.weight._version)
            return result

        torch.op, torch.backward = op, backward
        self.addCleanup(delattr, torch, "backward")

    def test_every_branch_finds_what_the_piece_before_has_saved(self):
        step = self.compare(
            self.step_of, lambda: [(self.x(value),) for value in (1, 1, 1, 1, 9, 9, 9, 9, 1, 9, 1, 9, 1, 9)])
        self.assertEqual(self.graphs(step), 3)
        self.assertTrue(all(self.kept[-4:]), self.kept)  # the rehearsal and the capture of each branch

    def test_gradients_of_what_another_piece_names_are_followed(self):
        """A backward pass names no module, and its piece alone would not know whose gradients it fills in."""
        def backward(loss):
            object.__setattr__(self.weight, "grad", torch.op(lambda loss: loss / 2, loss, pointer=0xB000))

        torch.backward = backward

        def make(model, seen):
            weight = model._parameters["fc.weight"]

            def step(x):
                loss = torch.op(lambda w, x: w + x, model._parameters["fc.weight"], x)
                seen.append(loss.item())
                torch.backward(loss)
                seen.append(loss.item())
                torch.put(weight, lambda w, gradient: w - gradient, weight.grad)
                weight.grad = None
                return loss

            self.weight.grad = None
            return step

        self.compare(make, lambda: [(self.x(value),) for value in range(MANY)])
        self.assertIsNone(self.weight.grad)

    def test_counts_of_writes_go_on_for_others(self):
        """A graph of the program's own that has saved the weight must neither be told nor spared."""
        step = pumpgraph.graphed(self.step_of(self.model, []), split=True, warmup=1)
        for _ in range(3):
            step(self.x(-9))
        object.__setattr__(self.weight, "_version", 100)
        for expected in (101, 103):  # eagerly; rehearsed and captured
            step(self.x(20))
            self.assertEqual(self.weight._version, expected)

    def test_code_between_gets_no_gradients_through_it(self):
        def step(x):
            loss = torch.op(lambda w, x: w + x, self.weight, x)
            seen.append(loss)
            return loss.item()

        seen = []
        pumpgraph.graphed(step, split=True, warmup=1)(self.x(1))
        self.assertTrue(seen[0].requires_grad)
        with self.assertRaisesRegex(UnsupportedError, "asks for gradients through"):
            seen[0].hook(None)

    def test_a_backward_pass_keeps_the_graph(self):
        engine = torch.autograd.Variable._execution_engine
        Changes.notice()
        engine = torch.autograd.Variable._execution_engine
        given = []
        with mock.patch.object(type(engine).__mro__[1], "run_backward", lambda _self, *args: given.append(args)):
            engine.run_backward("tensors", "gradients", False, True)
            Changes.keeps_graphs = True
            engine.run_backward("tensors", "gradients", False, True)
            Changes.keeps_graphs = False
        self.assertEqual(given, [("tensors", "gradients", False, True), ("tensors", "gradients", True, True)])
        with mock.patch.object(type(engine).__mro__[1], "run_backward", lambda _self, **named: given.append(named)), \
                mock.patch.object(Changes, "keeps_graphs", True):
            engine.run_backward(tensors="tensors", keep_graph=False)
        self.assertEqual(given[-1], {"tensors": "tensors", "keep_graph": True})


class Refused(SplitTest):
    def refused(self, step, pattern, *arguments, calls=4, kind=UnsupportedError):
        split = pumpgraph.graphed(step, split=True, warmup=1)
        with self.assertRaisesRegex(kind, pattern):
            for _ in range(calls):
                split(*(arguments or (self.x(1),)))

    def test_a_value_from_before_its_piece_ran_again(self):
        def step(x):
            for turn in range(2):
                loss = torch.op(lambda x: x + 1, x)
                if loss.item() > 100:
                    break
                if turn == 0:
                    first = loss
                else:
                    loss = torch.op(lambda a, b: a - b, loss, first)
            return loss

        self.refused(step, "\"first\" has a value from before its piece of the step ran again", calls=6)

    def test_writing_into_what_code_between_has_made(self):
        def step(x):
            y = torch.from_host(x.item())
            torch.put(y, lambda y: y + 1)
            return torch.op(lambda y: y, y)

        torch.from_host = self.number
        self.addCleanup(delattr, torch, "from_host")
        self.refused(step, r"writes into \"y\" after code between its pieces has made it.*y = y.clone\(\)")

    def test_changing_what_is_in_a_container_of_others(self):
        def step(x):
            results = {}
            x.item()
            results["y"] = torch.op(lambda x: x + 1, x)
            return results["y"].item()

        self.refused(step, "changes what is in \"results\", a dict that other code has")

    def test_changing_the_history_of_what_another_piece_has_made(self):
        """Every capture would change it once more."""
        def step(x):
            total = torch.op(lambda x: x + 1, x)
            x.item()
            object.__setattr__(total, "grad_fn", object())
            return total.item()

        self.refused(step, "changes the history of a tensor that an earlier piece has made")

    def test_an_object_that_a_replay_would_not_make(self):
        def step(x):
            y = torch.op(lambda x: x + 1, x)
            it = iter([y])
            return next(it), x.item()

        self.refused(step, "leaves \"it\", a list_iterator, to code after it")

    def test_a_count_in_a_piece(self):
        counts = types.SimpleNamespace(steps=0)

        def step(x):
            y = torch.op(lambda x: x + 1, x)
            counts.steps = counts.steps + 1
            return y.item()

        self.refused(step, "\"counts.steps\" is a number that the step changes")

    def test_what_looks_at_all_variables(self):
        def step(x):
            return locals()["x"].item()

        self.refused(step, "calls locals")

    def test_a_function_without_source(self):
        namespace = {}
        exec("def step(x):\n    return x", namespace)
        self.refused(namespace["step"], "its source, and that of step is not there")

    def test_a_generator_and_what_is_no_function(self):
        def step(x):
            yield x

        self.refused(step, "is a generator")
        with self.assertRaisesRegex(PumpGraphError, "written with def"):
            pumpgraph.graphed(type("Step", (), {"__call__": lambda self: None})(), split=True)

    def test_a_model_that_was_replaced(self):
        step = pumpgraph.graphed(branches(self.model, []), split=True, warmup=1)
        for _ in range(3):
            step(self.x(1))
        self.model._parameters["fc.weight"] = torch.nn.Parameter(0xB000)
        Changes.registrations = Changes.mark = []
        with self.assertRaisesRegex(StaleStepError, r"step\[\d+\]: .*; step\.reset\(\)"):
            step(self.x(1))


class Scaler:
    """As torch.amp.GradScaler: accounts in Python, and a read of the device for an optimizer that is not fused."""

    def __init__(self):
        self._found = {}
        self.infinite = torch.Tensor(0x5000)

    def unscale_(self, optimizer):
        self._found[id(optimizer)] = torch.op(lambda infinite: infinite, self.infinite)

    def step(self, optimizer):
        if id(optimizer) not in self._found:
            self.unscale_(optimizer)
        if not self._found[id(optimizer)].item():
            optimizer.step()

    def update(self):
        self._found = {}


class Accounts(SplitTest):
    def setUp(self):
        super().setUp()
        torch.amp = types.ModuleType("torch.amp")
        torch.amp.GradScaler = type("GradScaler", (Scaler,), dict(vars(Scaler)))
        torch.amp.GradScaler.__module__ = "torch.amp.grad_scaler"
        sys.modules["torch.amp"] = torch.amp
        self.addCleanup(delattr, torch, "amp")
        self.addCleanup(sys.modules.pop, "torch.amp")

    def test_a_scaler_keeps_its_accounts_in_each_call_and_its_optimizers_steps_are_captured(self):
        weight = self.weight

        class Optimizer(torch.optim.Optimizer):
            def step(self):
                super().step()
                torch.put(weight, lambda w: w + 1)

        Optimizer.__module__ = "torch.optim.fake"
        scalers = []

        def make(model, seen):
            scaler, optimizer = torch.amp.GradScaler(), Optimizer([weight], lr=0.1, capturable=True)
            scalers.append(scaler)

            def step(x):
                loss = torch.op(lambda w, x: w + x, weight, x)
                scaler.step(optimizer)
                scaler.update()
                torch.put(weight, lambda w: w + 0.25)
                return loss

            def call(x, infinite):
                scaler.infinite.value = infinite
                return split(x)

            split = step if not scalers[1:] else self.split(step)
            return call

        self.split = lambda step: pumpgraph.graphed(step, split=True, warmup=1)
        outcomes = []
        for _ in range(2):
            weight.value = 0.0
            call = make(None, None)
            outcomes.append([(call(self.x(value), value in (3, 7)).value, weight.value) for value in range(MANY)])
        self.assertEqual(*outcomes)
        names = [line.split("name=")[1].split()[0] for line in self.calls() if line.startswith("adopt")]
        self.assertIn("step[Optimizer.step]", names)
        self.assertEqual(len(names), 3)


class Cuts(unittest.TestCase):
    def pieces(self, function, lines=()):
        first = function.__code__.co_firstlineno
        program = cuts.cut(function, {first + line for line in lines}, False)
        return [(each.lines[0] - first, each.lines[1] - first, each.inputs, each.outputs) for each in program.pieces]

    def test_without_a_read_there_is_one_piece(self):
        def step(x):
            y = x * 2
            return y + 1

        self.assertEqual(self.pieces(step), [(1, 2, ("x",), ("_pumpgraph_result",))])

    def test_only_what_is_looked_at_later_is_handed_on(self):
        def step(x):
            y = x * 2
            z = y + 1
            print(y.item())
            return z * 2

        self.assertEqual(self.pieces(step), [(1, 2, ("x",), ("y", "z")), (4, 4, ("z",), ("_pumpgraph_result",))])

    def test_what_may_be_left_as_it_is_goes_through(self):
        def step(x, flag):
            y = x + 1
            print(y.item())
            if flag:
                y = y + x
            return y.item()

        self.assertEqual(self.pieces(step)[1], (3, 4, ("flag", "x", "y"), ("y",)))

    def test_a_line_opens_what_it_is_in(self):
        def step(x):
            if x.flag:
                y = f(x)  # noqa: F821
                y = y + 1
            return y.item()

        self.assertEqual([piece[:2] for piece in self.pieces(step)], [(1, 3)])
        self.assertEqual([piece[:2] for piece in self.pieces(step, (2,))], [(3, 3)])

    def test_what_leaves_the_device_alone_gets_no_graph(self):
        def step(batch, optimizer):
            x, limit = batch["x"], batch["limit"]
            x.item()
            optimizer.zero_grad()
            return limit

        def sliced(x, optimizer):
            y = x[0]
            x.item()
            optimizer.zero_grad(set_to_none=False)
            return y

        self.assertEqual(self.pieces(step), [])
        self.assertEqual([piece[:2] for piece in self.pieces(sliced)], [(1, 1), (3, 3)])

    def test_defaults_variables_around_and_names_of_lines(self):
        around = [1]

        def step(x, *rest, y: Text = 2, **more):
            """With a text."""
            z = x + y + around[0] + sum(rest)
            z.item()
            return z + len(more) + 1

        class Number(int):
            def item(self):
                return self

            def __add__(self, other):
                return Number(int(self) + other)

        class Call:
            def arguments(self, names, variables):
                return tuple(variables[name] for name in names)

            def piece(self, index, variables):
                piece = program.pieces[index]
                left = piece.function(**{name: variables[name] for name in piece.inputs})
                return tuple(left[name] for name in piece.outputs)

        program = cuts.cut(step, set(), False)
        given = {cuts.CALL: Call()}
        self.assertEqual(program.driver(Number(1), 5, 6, k=3, **given), step(Number(1), 5, 6, k=3))
        self.assertEqual(program.pieces[0].function.__code__.co_filename, __file__)
        try:
            program.pieces[0].function(x="text", y=1, rest=())
        except TypeError as error:
            self.assertEqual(error.__traceback__.tb_next.tb_lineno, step.__code__.co_firstlineno + 2)


if __name__ == "__main__":
    unittest.main()
