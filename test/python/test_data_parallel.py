# SPDX-License-Identifier: Apache-2.0
"""DistributedDataParallel and fully_shard() in steps, with stand-ins: kinds of calls, warm-up, refusals, memory."""

import os
import sys
import types
import unittest
from unittest import mock

from test_collectives import group
from test_graphed import GraphedTest
from test_torch_capture import torch  # the stand-in

import pumpgraph
from pumpgraph import data_parallel
from pumpgraph.data_parallel import DDP_WARM_UP, Buckets
from pumpgraph.errors import PumpGraphError, StaleStepError, UnsupportedError
from pumpgraph.gradients import CapturedGradients
from pumpgraph.results import Results
from pumpgraph.torch_capture import Things


class Ddp(torch.nn.Module):
    """Counts in each call, as DDP does."""

    def __init__(self, inside, backend="nccl", ranks=1):
        super().__init__(dict(inside.named_parameters()), children={"module": inside})
        self.find_unused_parameters = self.static_graph = False
        self.require_backward_grad_sync = self.require_forward_param_sync = self.broadcast_buffers = True
        self.process_group = group(ranks, backend)
        self.iterations, self.rates = 0, []

    def forward(self, x):
        self.iterations += 1
        self.require_forward_param_sync = self.require_backward_grad_sync
        return x

    def _set_ddp_runtime_logging_sample_rate(self, rate):
        self.rates.append(rate)


Ddp.forward.__module__ = "torch.nn.parallel.distributed"  # nobody follows PyTorch's code


class DdpTest(GraphedTest):
    def setUp(self):
        super().setUp()
        for patch in (mock.patch.object(torch.nn.parallel, "DistributedDataParallel", Ddp),
                      mock.patch.dict(os.environ, NCCL_GRAPH_REGISTER="0")):
            patch.start()
            self.addCleanup(patch.stop)
        self.ddp = Ddp(self.model)

    def step(self, **options):
        ddp, optimizer = self.ddp, self.optimizer

        def fn(x):
            torch.note("fn")
            ddp(x)
            optimizer.step()
            return torch.Tensor(0xE000)

        return pumpgraph.graphed(fn, **options)

    def replays(self):
        return [line for line in self.calls() if line.startswith("torch: replay")]


class Ddps(DdpTest):
    def test_it_warms_up_until_ddp_reads_no_clocks(self):
        step = self.step()
        for _ in range(DDP_WARM_UP):
            step(self.x())
            self.assertEqual(self.replays(), [])
        step(self.x())
        self.assertEqual(self.replays(), ["torch: replay 2"])
        self.assertGreater(self.ddp.rates[-1], 1 << 20)

    def test_more_calls_can_be_asked_for(self):
        step = self.step(warmup=DDP_WARM_UP + 1)
        for _ in range(DDP_WARM_UP + 1):
            step(self.x())
        self.assertEqual(self.replays(), [])

    def test_without_ddp_it_does_not(self):
        step = GraphedTest.step(self, warmup=1)
        step(self.x())
        step(self.x())
        self.assertEqual(len(self.replays()), 1)

    def test_capture_is_told_how_many(self):
        with self.assertRaisesRegex(PumpGraphError, "warmup=3: DistributedDataParallel.*write warmup=11"):
            pumpgraph.capture(lambda: self.ddp(self.x()), private=[self.ddp])
        pumpgraph.capture(lambda: self.ddp(self.x()), private=[self.ddp], warmup=DDP_WARM_UP)

    def test_calls_under_no_sync_are_refused(self):
        step = self.step(warmup=1, on_unsupported="raise")
        for _ in range(DDP_WARM_UP + 1):
            step(self.x())
        self.assertEqual(self.replays(), ["torch: replay 2"])
        self.ddp.require_backward_grad_sync = False  # as in no_sync()
        with self.assertRaisesRegex(UnsupportedError, "inside no_sync.*put all batches of an update into one step"):
            step(self.x())
        self.ddp.require_backward_grad_sync = True
        step(self.x())
        self.assertEqual(self.replays(), ["torch: replay 2"])

    def test_join_is_noticed(self):
        step = self.step(warmup=1)
        for _ in range(DDP_WARM_UP + 1):
            step(self.x())
        self.ddp._join_config = types.SimpleNamespace(enable=True)
        with self.assertRaisesRegex(StaleStepError, "join"):
            step(self.x())
        raising = self.step(warmup=1, on_unsupported="raise")
        with self.assertRaisesRegex(UnsupportedError, "inside join"):
            raising(self.x())

    def test_buffers_of_several_ranks(self):
        """A forward pass broadcasts them or not, as the one before was for training or not."""
        self.model._buffers = {"mean": torch.Tensor(0xB000)}
        self.ddp._buffers = self.model._buffers
        self.step()(self.x())
        self.ddp.process_group = group(2)
        self.refused("has buffers.*broadcast_buffers=False")

    def refused(self, pattern):
        with self.assertRaisesRegex(UnsupportedError, "Ddp is a DistributedDataParallel: it .*" + pattern):
            self.step()(self.x())
        with self.assertRaisesRegex(UnsupportedError, pattern):
            pumpgraph.capture(lambda: self.ddp(self.x()), private=[self.ddp], warmup=DDP_WARM_UP)

    def test_options_that_are_refused(self):
        for name, value in (("find_unused_parameters", True), ("static_graph", True), ("_comm_hooks", [1]),
                            ("mixed_precision", object())):
            setattr(self.ddp, name, value)
            self.refused({"_comm_hooks": "communication hook"}.get(name, name))
            setattr(self.ddp, name, None)

    def test_a_capture_that_fails_may_be_because_of_its_stream(self):
        def fail(_x):
            if torch.cuda.capturing:
                raise RuntimeError("CUDA error: operation not permitted when stream is capturing")

        self.ddp.forward = fail
        with self.assertRaisesRegex(UnsupportedError, "waits for the device.* made on the default stream"):
            pumpgraph.capture(lambda: self.ddp(self.x()), private=[self.ddp], warmup=DDP_WARM_UP)
        self.ddp.forward = lambda _x: torch.cuda.capturing and 1 // 0
        with self.assertRaises(ZeroDivisionError):
            pumpgraph.capture(lambda: self.ddp(self.x()), private=[self.ddp], warmup=DDP_WARM_UP)

    def test_a_step_in_pieces(self):
        ddp = self.ddp

        def fn(x):
            y = ddp(x)
            if y.item() > 1:
                return y
            return ddp(y)

        with self.assertRaisesRegex(UnsupportedError, "Ddp brings gradients together .*leave out split=True"):
            pumpgraph.graphed(fn, split=True)(self.x())

    def test_other_backends(self):
        self.ddp.process_group = group(backend="gloo")
        self.refused("uses the backend \"gloo\"")


class OfBuckets(GraphedTest):
    class Weak:
        def __init__(self, storage):
            self.expired = lambda: storage.data_ptr() == 0x6000

    def note(self, by_the_program):
        buckets = Buckets(self.Weak)
        with mock.patch.object(data_parallel, "_is_called_by_the_program", lambda: by_the_program):
            buckets.note((([torch.Tensor(0x5000), torch.Tensor(0x6000)], [torch.Tensor(0)]),
                          {"more": torch.Tensor(0x7000)}))
        return buckets.pointers()

    def test_memory_that_outlives_the_rehearsal(self):
        self.assertEqual(self.note(by_the_program=False), [0x5000, 0x7000])

    def test_what_the_program_gives_to_a_collective_is_its_own(self):
        self.assertEqual(self.note(by_the_program=True), [])
        self.assertTrue(data_parallel._is_called_by_the_program())

    def test_a_thread_without_python_is_pytorchs(self):
        code = compile("from pumpgraph.data_parallel import _is_called_by_the_program as found; is_found = found()",
                       torch.__file__, "exec")
        inside = {}
        here = mock.Mock(f_code=code, f_back=None)
        with mock.patch.object(data_parallel.sys, "_getframe", lambda _depth: here):
            exec(code, inside)
        self.assertFalse(inside["is_found"])

    def test_they_are_private_as_long_as_there_are_any(self):
        ddp, other = Ddp(self.model), Ddp(torch.nn.Module())
        buckets = Buckets(self.Weak)
        bucket = torch.Tensor(0x5000)
        with mock.patch.object(data_parallel, "_is_called_by_the_program", lambda: False), \
                mock.patch.object(torch.nn.parallel, "DistributedDataParallel", Ddp):
            buckets.note([bucket, torch.Tensor(0xA000)])
            self.assertEqual([named.name for named in Things([ddp]).tensors()], ["fc.weight"])
            buckets.keep([ddp, self.model])
            self.assertEqual([tuple(named) for named in Things([ddp]).tensors()],
                             [("fc.weight", 0xA000), ("bucket 0", 0x5000)])
            self.assertEqual(Things([other]).tensors(), [])
            Buckets(self.Weak).keep([ddp])  # of no_sync(), which has none
            self.assertEqual(len(Things([ddp]).tensors()), 2)
            bucket._storage._pointer = 0x6000  # gone
            self.assertEqual([named.name for named in Things([ddp]).tensors()], ["fc.weight"])


class DTensor(torch.nn.Parameter):
    """Around this rank's part."""

    def __init__(self, pointer, **options):
        super().__init__(0, **options)
        object.__setattr__(self, "_local_tensor", torch.Tensor(pointer))

    def __tensor_flatten__(self):
        return ["_local_tensor"], None

    def untyped_storage(self):
        raise AssertionError("a wrapper has no memory")


class Parts(GraphedTest):
    """Parameters, state and gradients that are spread over ranks."""

    def setUp(self):
        super().setUp()
        modules = mock.patch.dict(sys.modules, {"torch.distributed.tensor": types.SimpleNamespace(DTensor=DTensor)})
        modules.start()
        self.addCleanup(modules.stop)
        self.weight = DTensor(0xA000, requires_grad=True)
        self.model._parameters = {"fc.weight": self.weight}
        self.optimizer = torch.optim.Optimizer([self.weight], lr=0.1, capturable=True)
        self.optimizer.state[self.weight] = {"exp_avg": DTensor(0xD000)}

    def test_what_is_private_is_this_ranks_part(self):
        self.weight.grad = DTensor(0xB000)
        found = Things([self.model, self.optimizer]).tensors()
        self.assertEqual([tuple(named) for named in found], [
            ("fc.weight", 0xA000), ("exp_avg of fc.weight", 0xD000), ("gradient of fc.weight", 0xB000)])

    def test_a_step_is_captured(self):
        self.captured()

    def test_a_part_that_has_moved_is_noticed(self):
        step = self.captured()
        self.weight._local_tensor.set_(torch.Tensor(0xAF00))
        with self.assertRaisesRegex(StaleStepError, "has other memory"):
            for _ in range(3):
                step(self.x())

    def test_gradients_are_supplied_part_by_part(self):
        start = self.weight.grad = DTensor(0xB000)
        gradients = CapturedGradients([self.weight], [True], [start])
        self.weight.grad = DTensor(0xB800)
        self.calls()
        gradients.supply()
        self.assertEqual(self.calls(), ["torch: copy 0xb800 to 0xb000"])
        self.assertIs(self.weight.grad, start)

    def test_one_that_the_program_keeps_is_not_overwritten(self):
        made = DTensor(0xB000)
        results = Results(None, [made], lambda tensors: [0 for _ in tensors])
        self.assertFalse(results.are_held())
        kept = [made]
        with self.assertRaisesRegex(StaleStepError, "holds a distributed tensor"):
            results.are_held()
        kept.clear()
        self.assertFalse(results.are_held())

    def test_its_part_that_the_program_keeps_is_not_overwritten(self):
        """to_local() may give the very part."""
        made = DTensor(0xB000)
        results = Results(None, [made], lambda tensors: [0 for _ in tensors])
        self.assertFalse(results.are_held())
        kept = [made._local_tensor]
        with self.assertRaisesRegex(StaleStepError, "holds a distributed tensor"):
            results.are_held()
        kept.clear()
        self.assertFalse(results.are_held())


def sharded(**options):
    """A group of parameters as fully_shard() makes it."""
    parameter = types.SimpleNamespace(offload_to_cpu=False, unsharded_accumulated_grad=None)
    settings = dict(fsdp_params=[parameter], reduce_grads=True, reshard_after_backward=True, is_unsharded=False,
                    _all_gather_comm=type("DefaultAllGather", (), {})(), _all_reduce_hook=None,
                    _reduce_scatter_comm=type("DefaultReduceScatter", (), {})(), _all_gather_process_group=group(),
                    all_reduce_grads=True)
    return types.SimpleNamespace(**{**settings, **options})


class Sharded(GraphedTest):
    def setUp(self):
        super().setUp()
        self.group = sharded()
        self.context = types.SimpleNamespace(is_last_backward=True)

        class FSDPModule:
            def reshard(_self):
                pass

            def _get_fsdp_state(_self):
                return types.SimpleNamespace(_fsdp_param_group=self.group, _state_ctx=self.context)

        kind = type("FSDPBlock", (FSDPModule, torch.nn.Module), {})
        self.block = kind()
        self.model._children = {"block": self.block}
        classes = types.SimpleNamespace(FSDPModule=FSDPModule, FullyShardedDataParallel=type("Old", (), {}))
        for patch in (mock.patch.dict(sys.modules, {"torch.distributed.fsdp": classes}),
                      mock.patch.dict(os.environ, NCCL_GRAPH_REGISTER="0")):
            patch.start()
            self.addCleanup(patch.stop)
        self.old = classes.FullyShardedDataParallel

    def test_it_is_captured(self):
        self.captured()

    def test_whole_parameters_of_an_evaluation_are_given_up_before_a_replay(self):
        """Or the next evaluation would take them for today's."""
        resharded = []

        def reshard():
            resharded.append(len([line for line in self.calls() if line.startswith("torch: replay")]))
            self.group.is_unsharded = False

        self.block.reshard = reshard
        step = self.captured()
        self.group.is_unsharded = True
        step(self.x())
        self.assertEqual(resharded, [0])  # ahead of it
        self.assertIn("torch: replay 2", self.calls())
        step(self.x())
        self.assertEqual(len(resharded), 1)

    def test_whole_parameters_have_other_memory(self):
        storage = self.model._parameters["fc.weight"]._storage
        shard = storage._pointer

        def reshard():
            self.group.is_unsharded, storage._pointer = False, shard

        self.block.reshard = reshard
        step = self.captured()
        self.group.is_unsharded, storage._pointer = True, 0xA500
        step(self.x())
        self.assertEqual(storage._pointer, shard)

    def test_whole_parameters_of_an_evaluation_are_given_up_before_the_search_of_a_capture(self):
        storage = self.model._parameters["fc.weight"]._storage
        shard = storage._pointer

        def reshard():
            self.group.is_unsharded, storage._pointer = False, shard

        self.block.reshard = reshard
        step = self.step(warmup=1)
        for _ in range(4):
            self.group.is_unsharded, storage._pointer = True, 0xA500
            step(self.x())
        self.assertEqual(len([line for line in self.calls() if line.startswith("adopt")]), 1)

    def test_other_settings_than_at_the_capture_are_noticed(self):
        step = self.captured()
        for name, value in (("gradient_divide_factor", 4.0), ("reduce_grads", False)):
            before = getattr(self.group, name, None)
            setattr(self.group, name, value)
            with self.assertRaisesRegex(StaleStepError, "a setting of .*fully_shard"):
                step(self.x())
            setattr(self.group, name, before)
        step(self.x())

    def test_what_is_refused(self):
        custom = type("SymmMemAllGather", (), {})()
        offloaded = types.SimpleNamespace(offload_to_cpu=True)
        for pattern, options in (("CPUOffloadPolicy", {"fsdp_params": [offloaded]}),
                                 ("communicates by a SymmMemAllGather", {"_all_gather_comm": custom}),
                                 ("all-reduce hook", {"_all_reduce_hook": print}),
                                 ("set_requires_gradient_sync", {"reduce_grads": False}),
                                 ("set_reshard_after_backward", {"reshard_after_backward": False}),
                                 ("uses the backend", {"_all_gather_process_group": group(backend="gloo")})):
            self.group = sharded(**options)
            with self.assertRaisesRegex(UnsupportedError, r"block is sharded by fully_shard\(\): it .*" + pattern):
                self.step()(self.x())

    def test_a_backward_pass_that_is_not_the_last(self):
        self.context.is_last_backward = False
        with self.assertRaisesRegex(UnsupportedError, "inside the step, which then has all batches of an update"):
            self.step()(self.x())

    def test_whole_parameters_and_gradients_that_the_step_leaves(self):
        keeping = types.SimpleNamespace(offload_to_cpu=False, unsharded_accumulated_grad=torch.Tensor(0x5000))
        for left, options in (("parameters", {"is_unsharded": True}), ("gradients", {"fsdp_params": [keeping]}),
                              ("gradients", {"_partial_reduce_output": torch.Tensor(0x5000)})):
            self.group = sharded(**options)
            step = self.step(warmup=1)
            step(self.x())
            with self.assertRaisesRegex(UnsupportedError, f"leaves whole {left} of a FSDPBlock"):
                step(self.x())

    def test_the_older_way(self):
        self.model._children["old"] = type("Old", (self.old, torch.nn.Module), {})()
        with self.assertRaisesRegex(UnsupportedError, "old is a FullyShardedDataParallel.*fully_shard"):
            self.step()(self.x())


if __name__ == "__main__":
    unittest.main()
