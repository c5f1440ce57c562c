# SPDX-License-Identifier: Apache-2.0
"""Collectives in captured steps: the memory that they reach, the ones that are refused, and how NCCL is set."""

import os
import sys
import types
import unittest
from unittest import mock

from test_operators import Operator, operator
from test_torch_capture import TorchTest, torch  # the stand-in

from pumpgraph import collectives, shared_steps
from pumpgraph.errors import PumpGraphError, Status, UnsupportedError
from pumpgraph.names import Names
from pumpgraph.operators import DeclaringOperators
from pumpgraph.purity import is_pure
from pumpgraph.reach import Reach

BASES = {"allreduce_": "tensors process_group reduce_op sparse_indices asyncOp timeout",
         "_allgather_base_": "output_tensor input_tensor process_group asyncOp timeout",
         "_reduce_scatter_base_": "output_tensor input_tensor process_group reduce_op asyncOp timeout",
         "reduce_scatter_": "output_tensors input_tensors process_group reduce_op asyncOp timeout"}


def collective(name, arguments=None, namespace="c10d", gives=None):
    """An operator that can be called."""
    made = operator(arguments or BASES[name], namespace=namespace, name=f"{name}.default")
    call = mock.Mock(namespace=namespace, __name__=made.__name__, _schema=made._schema, return_value=gives)
    return call


def group(size=1, backend="nccl"):
    return types.SimpleNamespace(size=lambda: size,
                                 _get_backend=lambda _device: types.SimpleNamespace(name=lambda: backend))


class CollectiveTest(unittest.TestCase):
    """A mode of a rehearsal, whose session notes what it hears of reaches."""

    def setUp(self):
        self.said = []
        nothing = dict.fromkeys(("declare_reads", "declare_writes", "declare_aside", "declare_arithmetic", "name_nodes",
                                 "declare_operation", "name"), lambda *_said: None)
        session = types.SimpleNamespace(
            declare_reach=lambda stream, read, written: self.said.append((stream, read, written)), **nothing)
        self.announced, self.noted = [], []
        self.mode = DeclaringOperators(session, 7, Names(session, [], list), None, self.announced.append,
                                       self.noted.append)
        environment = mock.patch.dict(os.environ, NCCL_GRAPH_REGISTER="0")
        environment.start()
        self.addCleanup(environment.stop)
        self.a, self.b, self.c = (torch.Tensor(pointer) for pointer in (0x1000, 0x2000, 0x3000))

    def call(self, func, *args, kinds=(), **kwargs):
        return self.mode.__torch_dispatch__(func, kinds, args, kwargs)


class Reaches(CollectiveTest):
    def test_of_a_collective_all_but_inputs_is_written(self):
        self.call(collective("_allgather_base_"), self.a, self.b, group())
        self.assertEqual(self.said, [(7, [], []), (7, [0x2000], [0x1000])])

    def test_lists_of_lists(self):
        self.call(collective("reduce_scatter_"), [self.a], [[self.b, self.c]], group())
        self.assertEqual(self.said[-1], (7, [0x2000, 0x3000], [0x1000]))

    def test_in_place(self):
        self.call(collective("_allgather_base_"), self.a, torch.Tensor(0x1000), group())
        self.assertEqual(self.said[-1], (7, [], [0x1000]))

    def test_results_of_functional_collectives(self):
        func = collective("all_reduce", "input reduce_op group_name", "_c10d_functional", gives=self.c)
        named = types.SimpleNamespace(_resolve_process_group=lambda _name: group())
        with mock.patch.object(torch, "distributed", types.SimpleNamespace(distributed_c10d=named), create=True):
            self.call(func, self.a, "sum", "0")
        self.assertEqual(self.said[-1], (7, [0x1000], [0x3000]))

    def test_tensors_in_wrappers(self):
        wrapper = torch.Tensor(0)
        wrapper.__tensor_flatten__ = lambda: (["inside"], None)
        wrapper.inside = self.b
        self.call(collective("allreduce_"), [wrapper], group())
        self.assertEqual(self.said[-1], (7, [], [0x2000]))

    def test_nodes_after_a_collective_have_its_reach_until_the_next_operator(self):
        """A group is launched at its end."""
        self.call(collective("allreduce_"), [self.a], group())
        self.call(collective("allreduce_"), [self.b], group())
        self.call(operator_that_runs("mm.default"), self.c, self.c)
        self.assertEqual(self.said, [(7, [], []), (7, [], [0x1000]), (7, [], [0x1000]), (7, [], [0x1000, 0x2000]),
                                     (7, [], [0x1000, 0x2000])])
        self.said.clear()
        self.call(operator_that_runs("mm.default"), self.c, self.c)
        self.assertEqual(self.said, [])
        self.call(collective("allreduce_"), [self.c], group())
        self.assertEqual(self.said, [(7, [], []), (7, [], [0x3000])])

    def test_at_the_end_of_the_step_too(self):
        with self.mode:
            self.call(collective("allreduce_"), [self.a], group())
        self.assertEqual(self.said[-2:], [(7, [], [0x1000])] * 2)

    def test_a_reach_that_cannot_be_declared_is_an_error(self):
        def fail(*_said):
            raise PumpGraphError(Status.INVALID_ARGUMENT, "no capture")

        self.mode._reaching._session.declare_reach = fail
        with self.assertRaisesRegex(PumpGraphError, "no capture"):
            self.call(collective("allreduce_"), [self.a], group())
        with self.assertRaises(ZeroDivisionError), self.mode:  # says more
            self.mode._reaching._lasting = self.mode._reaching._lasting.joined(Reach([], [0x1000]))
            raise ZeroDivisionError

    def test_other_operators_have_none(self):
        self.call(operator_that_runs("mm.default"), self.a, self.b)
        self.assertEqual(self.said, [])

    def test_operators_that_take_addresses_from_a_table(self):
        for namespace, name in (("aten", "split_with_sizes_copy.out"), ("fsdp", "split_with_sizes_copy.default")):
            self.said.clear()
            self.call(operator_that_runs(name, "self split_sizes dim out!", namespace), self.a, [1, 1], 0,
                      out=[self.b, self.c])
            self.assertEqual(self.said, [(7, [], []), (7, [0x1000], [0x2000, 0x3000])])
        self.call(operator_that_runs("_chunk_cat.out", "tensors dim num_chunks out!"), [self.a, self.b], 0, 1,
                  out=self.c)
        self.assertEqual(self.said[-1], (7, [0x1000, 0x2000], [0x3000]))
        self.assertFalse(is_pure(operator("self", name="split_with_sizes_copy.out")))
        self.assertFalse(is_pure(operator("tensors", name="_chunk_cat.default")))
        self.assertTrue(is_pure(operator("self", name="split_with_sizes.default")))

    def test_operators_on_distributed_tensors_are_looked_at_inside(self):
        DTensor = type("DTensor", (torch.Tensor,), {})
        func = operator_that_runs("mm.default")
        with mock.patch.dict("sys.modules", {"torch.distributed.tensor": types.SimpleNamespace(DTensor=DTensor)}):
            self.assertIs(self.call(func, self.a, self.b, kinds=(torch.Tensor, DTensor)), NotImplemented)
            func.assert_not_called()
            self.assertIsNot(self.call(func, self.a, self.b, kinds=(torch.Tensor,)), NotImplemented)
        self.assertIsNot(self.call(func, self.a, self.b, kinds=(DTensor,)), NotImplemented)

    def test_others_hear_of_calls(self):
        self.call(collective("allreduce_"), [self.a], group())
        self.call(operator_that_runs("mm.default"), self.b, self.c)
        self.assertEqual(self.announced, ["torch.distributed's allreduce_", "mm.default"])
        self.assertEqual(len(self.noted), 1)


def operator_that_runs(name, arguments="self other", namespace="aten"):
    made = operator(arguments, namespace=namespace, name=name)
    return mock.Mock(namespace=namespace, __name__=name, _schema=made._schema, return_value=None,
                     spec=Operator)


class Refused(CollectiveTest):
    def refused(self, pattern, func, *args):
        with self.assertRaisesRegex(UnsupportedError, pattern):
            self.call(func, *args)
        func.assert_not_called()

    def test_waits_on_the_host(self):
        for name in ("barrier", "monitored_barrier_"):
            self.refused(f"torch.distributed's {name} is called in the step: it makes the host wait",
                         collective(name, "tensor process_group"), self.a, group())

    def test_what_one_other_rank_takes_part_in(self):
        for name in ("send", "recv_"):
            self.refused(f"{name} is called in the step: it meets one other rank alone.*between steps",
                         collective(name, "tensors process_group dst tag"), [self.a], group())

    def test_what_is_not_known(self):
        self.refused("all_scatter_ is called in the step: it is none of the collectives that PumpGraph knows",
                     collective("all_scatter_", "tensors process_group"), [self.a], group())
        self.refused("multimem_all_reduce_ .*none of the collectives",
                     collective("multimem_all_reduce_", "input", "symm_mem"), self.a)

    def test_backends_that_work_on_the_host(self):
        self.refused(r"allreduce_ is called in the step: it uses the backend \"gloo\".*make the group with \"nccl\"",
                     collective("allreduce_"), [self.a], group(backend="gloo"))

    def test_tensors_of_the_host(self):
        self.refused("is given a tensor in host memory.*all_gather_object", collective("allreduce_"),
                     [torch.Tensor(0x1000, is_cuda=False)], group())

    def test_groups_that_are_launched_together_with_other_work(self):
        """NCCL launches them at the end, when the reach of the first is over."""
        several = group(2)
        world = types.SimpleNamespace(pg_coalesce_state=[several])
        distributed = types.SimpleNamespace(is_available=lambda: True, get_backend=lambda _group: "nccl",
                                            distributed_c10d=types.SimpleNamespace(_world=world))
        with mock.patch.dict(sys.modules, {"torch.distributed": distributed}):
            self.refused("launched together.*one by one", collective("broadcast_", "tensors process_group"), [self.a],
                         several)

    def test_several_ranks_need_an_agreement(self):
        with mock.patch.object(torch.Tensor, "is_contiguous", lambda _tensor: True, create=True):
            with mock.patch.object(shared_steps, "_distributed"):
                self.refused("no other rank has agreed to capture it", collective("allreduce_"), [self.a], group(2))
            self.call(collective("allreduce_"), [self.a], group(2))

    def test_memory_that_only_the_operator_knows(self):
        lists = collective("allgather_", "output_tensors input_tensors process_group")
        self.refused(r"goes through memory of its own.*write all_gather_into_tensor\(\)", lists, [[self.a]], [self.b],
                     group(2))
        self.call(lists, [[self.a]], [self.b], group(1))
        with mock.patch.object(torch.Tensor, "is_contiguous", lambda tensor: tensor is not self.b, create=True):
            self.refused("not contiguous.*contiguous()", collective("_allgather_base_"), self.a, self.b, group(2))
            self.call(collective("_allgather_base_"), self.a, self.c, group(2))

    def test_registered_buffers(self):
        with mock.patch.dict(os.environ, NCCL_GRAPH_REGISTER="1"):
            self.refused("NCCL_GRAPH_REGISTER is 1: .*write NCCL_GRAPH_REGISTER=0", collective("allreduce_"), [self.a],
                         group())
        with mock.patch.dict(os.environ, TORCH_NCCL_USE_TENSOR_REGISTER_ALLOCATOR_HOOK="1"):
            self.refused("ALLOCATOR_HOOK is set", collective("allreduce_"), [self.a], group())

    def test_comparisons_of_collectives_on_the_host(self):
        level = types.SimpleNamespace(name="DETAIL")
        distributed = types.SimpleNamespace(is_available=lambda: True, is_initialized=lambda: False,
                                            get_debug_level=lambda: level)
        with mock.patch.dict("sys.modules", {"torch.distributed": distributed}):
            self.refused("TORCH_DISTRIBUTED_DEBUG is DETAIL; set it", collective("allreduce_"), [self.a], group())
            level.name = "INFO"
            self.call(collective("allreduce_"), [self.a], group())


class Nccl(TorchTest):
    def setUp(self):
        super().setUp()
        self.addCleanup(setattr, collectives._Nccl, "is_registering", False)

    def settled(self, value, is_initialized):
        distributed = types.SimpleNamespace(is_available=lambda: True, is_initialized=lambda: is_initialized)
        with mock.patch.dict("sys.modules", {"torch.distributed": distributed}), mock.patch.dict(os.environ):
            os.environ.pop("NCCL_GRAPH_REGISTER", None)
            if value is not None:
                os.environ["NCCL_GRAPH_REGISTER"] = value
            self.install()
            try:
                collectives.refuse_group(group(), "it")
            except UnsupportedError as error:
                return str(error)
            return os.environ["NCCL_GRAPH_REGISTER"]

    def test_install_forbids_registered_buffers(self):
        self.assertEqual(self.settled(None, is_initialized=False), "0")

    def test_a_group_that_was_made_before(self):
        self.assertRegex(self.settled(None, is_initialized=True), "was called before pumpgraph.install")

    def test_a_group_that_was_made_before_with_the_right_setting(self):
        self.assertEqual(self.settled("0", is_initialized=True), "0")

    def test_the_programs_own_setting_stays_and_is_refused(self):
        self.assertRegex(self.settled("1", is_initialized=False), "NCCL_GRAPH_REGISTER is 1")


if __name__ == "__main__":
    unittest.main()
