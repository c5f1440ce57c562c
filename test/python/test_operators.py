# SPDX-License-Identifier: Apache-2.0
"""What is believed of operators: their schemas, but for arguments that they write and do not say so."""

import re
import types
import unittest
from unittest import mock

from test_torch_capture import torch  # the stand-in

from pumpgraph.names import Names
from pumpgraph.operators import DeclaringOperators, memory_used
from pumpgraph.schemas import WRITTEN_UNSAID
from pumpgraph.purity import updated_aside


class Operator(types.SimpleNamespace):
    """As PyTorch's, each is itself and no other."""

    __hash__ = object.__hash__
    __eq__ = object.__eq__


def operator(arguments, namespace="aten", name="mm.default", returns="Tensor"):
    """`arguments`: names, those that are written with an exclamation mark."""
    declared = [types.SimpleNamespace(name=name.rstrip("!"),
                                      alias_info=types.SimpleNamespace(is_write=True) if name.endswith("!") else None)
                for name in arguments.split()]
    schema = types.SimpleNamespace(arguments=declared, returns=[returns] if returns else [])
    return Operator(namespace=namespace, __name__=name, _schema=schema)


def operator_of(schema):
    """As PyTorch writes its schemas."""
    name, arguments, returns = re.fullmatch(r"(\S+?)\((.*)\) -> (.*)", schema).groups()
    names = []
    for argument in arguments.replace(" *,", "").split(", "):
        kind, called = argument.partition("=")[0].rsplit(" ", 1)
        names.append(called + "!" if "!" in kind else called)
    return operator(" ".join(names), name=name, returns=returns.strip("()")), names


def only_read(func, args, kwargs):
    used = memory_used(func, args, kwargs)
    return used.read if used else []


class OnlyRead(unittest.TestCase):
    def setUp(self):
        self.a, self.b, self.c = (torch.Tensor(pointer) for pointer in (0x1000, 0x2000, 0x3000))

    def test_what_the_schema_does_not_mark_is_read(self):
        self.assertEqual(only_read(operator("self other"), (self.a, self.b), {}), [0x1000, 0x2000])
        self.assertEqual(only_read(operator("self! other"), (self.a, self.b), {}), [0x2000])
        self.assertEqual(only_read(operator("self other out!"), (self.a,), {"other": self.b, "out": self.c}),
                         [0x1000, 0x2000])

    def test_what_is_written_is_said_where_the_schema_is_believed(self):
        self.assertEqual(memory_used(operator("self! other"), (self.a, self.b), {}).written, [0x1000])
        self.assertEqual(memory_used(operator("self other"), (self.a, self.b), {}).written, [])
        self.assertEqual(memory_used(operator("input running_mean"), (self.a, self.b), {}).written, [0x2000])
        self.assertIsNone(memory_used(operator("self", namespace="mine"), (self.a,), {}))
        self.b.__tensor_flatten__ = lambda: ([], None)
        self.assertIsNone(memory_used(operator("self other"), (self.a, self.b), {}))

    def test_lists_count_one_by_one(self):
        self.assertEqual(only_read(operator("self! tensors"), ([self.a], [self.b, None, self.c]), {}),
                         [0x2000, 0x3000])

    def test_memory_that_is_written_under_another_name_is_written(self):
        self.assertEqual(only_read(operator("self! other"), (self.a, torch.Tensor(0x1000)), {}), [])

    def test_what_is_written_unsaid_is_not_believed(self):
        for name in WRITTEN_UNSAID:
            self.assertEqual(only_read(operator(f"input {name}"), (self.a, self.b), {}), [0x1000], name)
            self.assertEqual(only_read(operator(f"input {name}"), (self.a,), {name: self.b}), [0x1000], name)

    def test_operators_that_write_and_do_not_say_what_are_not_believed(self):
        for name in ("renorm_.default", "_foreach_scale_.Scalar"):
            self.assertEqual(only_read(operator("weight input", name=name), (self.a, self.b), {}), [], name)
            self.assertEqual(only_read(operator("weight! input", name=name), (self.a, self.b), {}), [0x2000], name)
        self.assertEqual(only_read(operator("weight input", returns=None), (self.a, self.b), {}), [])
        self.assertEqual(only_read(operator("self", name="__and__.Tensor"), (self.a,), {}), [0x1000])

    def test_an_operator_that_the_program_gives_another_kernel_is_not_believed(self):
        for name, given in (("mm.default", "aten/mm/CUDA"), ("add.Tensor", "aten/add.Tensor/CUDA")):
            with mock.patch.object(torch, "library", types.SimpleNamespace(_impls={given, "aten/mul.Tensor/CUDA"}),
                                   create=True):
                self.assertIsNone(memory_used(operator("self other", name=name), (self.a, self.b), {}), name)
                self.assertIsNotNone(memory_used(operator("self other", name="mul.out"), (self.a, self.b), {}))
            self.assertIsNotNone(memory_used(operator("self other", name=name), (self.a, self.b), {}), name)

    def test_other_libraries_are_not_believed(self):
        self.assertEqual(only_read(operator("self", namespace="mine"), (self.a,), {}), [])
        self.assertEqual(only_read(Operator(), (self.a,), {}), [])

    def test_the_host_and_wrapped_tensors_are_left_out(self):
        self.assertEqual(only_read(operator("self other"), (torch.Tensor(0x1000, is_cuda=False), self.b), {}), [0x2000])
        self.b.__tensor_flatten__ = lambda: ([], None)
        self.assertEqual(only_read(operator("self other"), (self.a, self.b), {}), [])


# Schemas of PyTorch, some without their last numbers, and what is read and not written of what they are given: said
# and unsaid, in place, in lists, into `out`, into state.
SCHEMAS = (
    ("native_batch_norm(Tensor input, Tensor? weight, Tensor? bias, Tensor? running_mean, Tensor? running_var, "
     "bool training, float momentum, float eps) -> (Tensor, Tensor, Tensor)", "input weight bias"),
    ("cudnn_batch_norm(Tensor input, Tensor weight, Tensor? bias, Tensor? running_mean, Tensor? running_var, "
     "bool training, float exponential_average_factor, float epsilon) -> (Tensor, Tensor, Tensor, Tensor)",
     "input weight bias"),
    ("_native_batch_norm_legit(Tensor input, Tensor? weight, Tensor? bias, Tensor(a!) running_mean, "
     "Tensor(b!) running_var, bool training, float momentum, float eps) -> (Tensor, Tensor, Tensor)",
     "input weight bias"),
    ("cudnn_batch_norm_backward(Tensor input, Tensor grad_output, Tensor weight, Tensor? running_mean, "
     "Tensor? running_var, Tensor? save_mean, Tensor? save_var, float epsilon, Tensor reserveSpace) "
     "-> (Tensor, Tensor, Tensor)", "input grad_output weight save_mean save_var"),
    ("batch_norm_update_stats(Tensor input, Tensor? running_mean, Tensor? running_var, float momentum) "
     "-> (Tensor, Tensor)", "input"),
    ("_cudnn_rnn(Tensor input, Tensor[] weight, int weight_stride0, Tensor? weight_buf, Tensor hx, Tensor? cx, "
     "int mode, Tensor? dropout_state) -> (Tensor, Tensor, Tensor, Tensor, Tensor)", "input weight hx cx"),
    ("_cudnn_rnn_flatten_weight(Tensor[] weight_arr, int weight_stride0, SymInt input_size, int mode) -> Tensor", ""),
    ("rrelu_with_noise(Tensor self, Tensor noise, Scalar lower, Scalar upper, bool training) -> Tensor", "self"),
    ("native_dropout(Tensor input, float p, bool? train) -> (Tensor, Tensor)", "input"),
    ("_scaled_dot_product_flash_attention_backward(Tensor grad_out, Tensor query, Tensor key, Tensor value, "
     "Tensor out, Tensor logsumexp, Tensor philox_seed, Tensor philox_offset) -> (Tensor, Tensor, Tensor)",
     "grad_out query key value out logsumexp philox_seed philox_offset"),
    ("embedding_renorm_(Tensor(a!) self, Tensor indices, float max_norm, float norm_type) -> Tensor(a!)", "indices"),
    ("_no_grad_embedding_renorm_(Tensor weight, Tensor input, float max_norm, float norm_type) -> Tensor", ""),
    ("_fused_adamw_(Tensor(a!)[] self, Tensor(b!)[] grads, Tensor(c!)[] exp_avgs, Tensor(d!)[] exp_avg_sqs, "
     "Tensor(e!)[] max_exp_avg_sqs, Tensor[] state_steps, *, Tensor lr, Tensor? grad_scale=None, "
     "Tensor? found_inf=None) -> ()", "state_steps lr grad_scale found_inf"),
    ("_foreach_addcdiv_.Scalar(Tensor(a!)[] self, Tensor[] tensor1, Tensor[] tensor2, Scalar value=1) -> ()",
     "tensor1 tensor2"),
    ("_amp_foreach_non_finite_check_and_unscale_(Tensor(a!)[] self, Tensor(b!) found_inf, Tensor inv_scale) -> ()",
     "inv_scale"),
    ("mm.out(Tensor self, Tensor mat2, *, Tensor(a!) out) -> Tensor(a!)", "self mat2"),
    ("index_put_(Tensor(a!) self, Tensor?[] indices, Tensor values, bool accumulate=False) -> Tensor(a!)",
     "indices values"),
    ("_copy_from(Tensor self, Tensor dst, bool non_blocking=False) -> Tensor", "self"),
)


class Schemas(unittest.TestCase):
    def test_what_each_only_reads(self):
        for schema, expected in SCHEMAS:
            func, names = operator_of(schema)
            tensors = {name.rstrip("!"): torch.Tensor(0x1000 * (index + 1)) for index, name in enumerate(names)}
            read = set(only_read(func, tuple(tensors.values()), {}))
            not_tensors = set(re.findall(r"(?:int|SymInt|bool|bool\?|float|Scalar) (\w+)", schema))
            got = [name for name, tensor in tensors.items() if tensor.data_ptr() in read and name not in not_tensors]
            self.assertEqual(" ".join(got), expected, schema)


class UpdatedAside(unittest.TestCase):
    def aside(self, schema, **given):
        func, names = operator_of(schema)
        values = {name.rstrip("!"): torch.Tensor(0x1000 * (index + 1)) for index, name in enumerate(names)}
        return updated_aside(func, (), {**values, **given})

    def test_running_statistics_of_batch_norms_that_train(self):
        for name in ("native_batch_norm", "cudnn_batch_norm", "_native_batch_norm_legit", "miopen_batch_norm"):
            schema = f"{name}(Tensor input, Tensor? running_mean, Tensor? running_var, bool training) -> (Tensor, " \
                "Tensor)"
            self.assertEqual(self.aside(schema, training=True), [0x2000, 0x3000], name)
            self.assertEqual(self.aside(schema, training=True, running_var=None), [0x2000], name)
            self.assertEqual(self.aside(schema, training=False), [], name)
        updating = "_batch_norm_with_update(Tensor input, Tensor(a!) running_mean, Tensor(b!) running_var) -> (Tensor)"
        self.assertEqual(self.aside(updating), [0x2000, 0x3000])

    def test_statistics_that_share_memory_with_another_argument(self):
        schema = "cudnn_batch_norm(Tensor input, Tensor weight, Tensor running_mean, Tensor running_var, " \
            "bool training) -> (Tensor)"
        self.assertEqual(self.aside(schema, training=True, weight=torch.Tensor(0x3000)), [0x4000])

    def test_what_reads_them_or_is_not_known(self):
        arguments = "(Tensor input, Tensor running_mean, Tensor running_var) -> (Tensor, Tensor)"
        for name in ("_native_batch_norm_legit_no_training", "_batch_norm_no_update", "batch_norm_gather_stats",
                     "native_batch_norm_backward", "native_batch_norm", "mm"):
            self.assertEqual(self.aside(name + arguments), [], name)


class Declaring(unittest.TestCase):
    def setUp(self):
        self.said = []
        session = types.SimpleNamespace(
            declare_reads=lambda stream, pointers: self.said.append((stream, pointers)),
            declare_writes=lambda stream, pointers: self.said.append((stream, "writes", pointers)),
            declare_aside=lambda stream, pointers: self.said.append((stream, "aside", pointers)),
            declare_reach=lambda stream, *memory: self.said.append((stream, "reach", *memory)),
            declare_arithmetic=lambda *_said: None,  # test_arithmetic
            name_nodes=lambda stream, name: self.said.append((stream, name)),
            declare_operation=lambda stream, kind: self.said.append((stream, kind.name)),
            name=lambda pointer, name: self.said.append((pointer, name)))
        self.mode = DeclaringOperators(session, 7, Names(session, [], list))

    def test_nodes_between_operators_are_nobodys(self):
        def add(*_args):
            self.said.append("runs")
            return torch.Tensor(0x3000)

        add.namespace, add._schema = "aten", operator("self other!")._schema
        add.__name__ = "add.out"
        result = self.mode.__torch_dispatch__(add, (), (torch.Tensor(0x1000), torch.Tensor(0x2000)))
        self.assertEqual(result.data_ptr(), 0x3000)
        self.assertEqual(self.said, [(7, "UNKNOWN"), (7, []), (7, "writes", None), (7, "aside", []), (7, ""), "runs",
                                     (7, "PURE"), (7, [0x1000]), (7, "writes", [0x2000]), (7, "aside", []), (7, "add"),
                                     (0x3000, "add")])

    def test_grouped_products_reach_their_operands_and_results(self):
        """One kernel leaves a table of addresses to another one."""
        product = mock.Mock(__name__="_grouped_mm.default", namespace="aten", _schema=operator("self other")._schema)
        product.return_value = torch.Tensor(0x3000)
        self.mode.__torch_dispatch__(product, (), (torch.Tensor(0x1000), torch.Tensor(0x2000)))
        self.assertEqual([said for said in self.said if "reach" in said],
                         [(7, "reach", [], []), (7, "reach", [0x1000, 0x2000], [0x3000])])

    def test_what_another_mode_may_do_in_its_place_is_not_known(self):
        add = mock.Mock(__name__="add.out", namespace="aten", _schema=operator("self other!")._schema)
        add.return_value = torch.Tensor(0x3000)
        stack = [types.SimpleNamespace()]
        modes = mock.patch.object(torch.utils._python_dispatch, "_get_current_dispatch_mode_stack", lambda: stack,
                                  create=True)
        with modes:
            self.mode.__torch_dispatch__(add, (), (torch.Tensor(0x1000), torch.Tensor(0x2000)))
        for said in ((7, "PURE"), (7, [0x1000]), (7, "writes", [0x2000])):
            self.assertNotIn(said, self.said)
        self.assertIn((7, "add"), self.said)
        stack[:] = [self.mode]  # PumpGraph's own do what the operator does
        with modes:
            self.mode.__torch_dispatch__(add, (), (torch.Tensor(0x1000), torch.Tensor(0x2000)))
        self.assertIn((7, "PURE"), self.said)

    def test_operators_that_leave_addresses_to_their_kernels(self):
        matrices = torch.Tensor(0x1000)
        for name, dimensions, writes in (("_grouped_mm.default", 2, True), ("linalg_inv_ex.default", 3, True),
                                         ("linalg_inv_ex.default", 2, False), ("linalg_vector_norm.default", 3, False),
                                         ("mm.default", 2, False)):
            with self.subTest(name=name, dimensions=dimensions):
                self.mode.writing_addresses.clear()
                call = mock.Mock(__name__=name, namespace="aten", _schema=operator("self")._schema, return_value=None)
                with mock.patch.object(torch.Tensor, "dim", lambda _tensor, dimensions=dimensions: dimensions,
                                       create=True):
                    self.mode.__torch_dispatch__(call, (), (matrices,))
                self.assertEqual(self.mode.writing_addresses, {name} if writes else set())

    def test_memory_that_an_operator_gives_to_an_argument_is_not_read(self):
        """_cudnn_rnn_flatten_weight writes one buffer and makes the weights views of it."""
        weight, buffer = torch.Tensor(0x1000), torch.Tensor(0x2000)

        def flatten(tensors):
            tensors[0]._storage = buffer._storage
            return buffer

        flatten.namespace, flatten._schema, flatten.__name__ = "aten", operator("tensors")._schema, "flatten.default"
        self.mode.__torch_dispatch__(flatten, (), ([weight],))
        self.assertIn((7, [0x1000]), self.said)


if __name__ == "__main__":
    unittest.main()
