# SPDX-License-Identifier: Apache-2.0
"""How much operators compute: formulas that see shapes alone, and the format of their factors."""

import math
import types
import unittest
from unittest import mock

from test_torch_capture import torch  # the stand-in

from pumpgraph import arithmetic
from pumpgraph._session import ArithmeticKind
from pumpgraph.arithmetic import NO_ARITHMETIC, Arithmetic, arithmetic_of
from pumpgraph.names import Names
from pumpgraph.operators import DeclaringOperators

ATEN = types.SimpleNamespace(mm="aten.mm", convolution="aten.convolution")


def of_mm(left, right, *, out_val=None):
    rows, inner = left
    return 2 * rows * inner * right[1]


def of_convolution(image, weight, _bias, _stride, _padding, _dilation, transposed, *_others, out_val=None):
    points = (image if transposed else out_val)[2:]
    return 2 * math.prod(points) * image[0] * math.prod(weight)


def of_attention(query, key, value, *_others, out_val=None, **_options):
    batch, heads, rows, width = query.shape
    return 4 * batch * heads * rows * key.shape[2] * width


def of_lengths(query, lengths, *, out_val=None):
    return lengths.diff().tolist()[0]


FORMULAS = {
    "aten.mm": of_mm, "aten.convolution": of_convolution,
    "aten.convolution_backward": mock.Mock(side_effect=AssertionError),  # PyTorch's counts groups more than once
    "aten.attention": of_attention, "aten.nested": of_lengths, "mine.product": of_mm,
}


def call_of(name, arguments="", namespace="aten", packet=None):
    schema = types.SimpleNamespace(arguments=[types.SimpleNamespace(name=argument, alias_info=None)
                                              for argument in arguments.split()], returns=["Tensor"])
    return types.SimpleNamespace(namespace=namespace, __name__=f"{name}.default", _schema=schema,
                                 _overloadpacket=packet or f"{namespace}.{name}")


def tensor(*shape, dtype="float32"):
    return torch.Tensor(0x1000, shape=shape, dtype=f"torch.{dtype}")


class ArithmeticTest(unittest.TestCase):
    def setUp(self):
        self.matmul = types.SimpleNamespace(allow_tf32=False)
        self.cudnn = types.SimpleNamespace(allow_tf32=True)
        for patch in (mock.patch.object(arithmetic, "_FORMULAS", FORMULAS),
                      mock.patch.object(torch, "ops", types.SimpleNamespace(aten=ATEN), create=True),
                      mock.patch.object(torch, "backends", types.SimpleNamespace(
                          cudnn=self.cudnn, cuda=types.SimpleNamespace(matmul=self.matmul)))):
            patch.start()
            self.addCleanup(patch.stop)

    def of_product(self, dtype="float32", name="mm", **options):
        return arithmetic_of(call_of(name, **options), (tensor(3, 5, dtype=dtype), tensor(5, 7, dtype=dtype)), {},
                             tensor(3, 7, dtype=dtype))


class Operations(ArithmeticTest):
    def test_products_by_their_shapes(self):
        self.assertEqual(self.of_product(), Arithmetic(2 * 3 * 5 * 7, ArithmeticKind.FP32))

    def test_an_operator_like_another_one(self):
        self.assertEqual(self.of_product("int8", name="_int_mm"), Arithmetic(2 * 3 * 5 * 7, ArithmeticKind.INT8))
        self.assertEqual(self.of_product("int8", name="_int_mm", namespace="mine"), NO_ARITHMETIC)

    def test_operators_of_the_program_that_have_a_formula(self):
        self.assertEqual(self.of_product(name="product", namespace="mine").operations, 2 * 3 * 5 * 7)

    def convolution(self, groups):
        image, weight, result = tensor(2, 8, 6, 6), tensor(16, 8 // groups, 3, 3), tensor(2, 16, 4, 4)
        settings = ([1, 1], [0, 0], [1, 1], False, [0, 0], groups)
        once = 2 * (2 * 16 * 4 * 4) * (8 // groups * 3 * 3)
        forward = arithmetic_of(call_of("convolution"), (image, weight, None, *settings), {}, result)
        self.assertEqual(forward, Arithmetic(once, ArithmeticKind.TF32))
        for mask, times in (([True, True, False], 2), ([False, True, True], 1)):
            args = (result, image, weight, [16], *settings, mask)
            backward = arithmetic_of(call_of("convolution_backward"), args, {}, (image, weight, None))
            self.assertEqual(backward, Arithmetic(times * once, ArithmeticKind.TF32))

    def test_convolutions_forward_and_backward(self):
        self.convolution(groups=1)

    def test_convolutions_in_groups(self):
        self.convolution(groups=8)

    def test_causal_attention_computes_half_of_the_scores(self):
        names = "query key value dropout_p is_causal"
        operand = tensor(2, 4, 10, 16, dtype="bfloat16")
        attention = call_of("attention", names)
        full = arithmetic_of(attention, (operand, operand, operand, 0.0, False), {}, (operand, None))
        self.assertEqual(full, Arithmetic(4 * 2 * 4 * 10 * 10 * 16, ArithmeticKind.HALF))
        for args, kwargs in (((0.0, True), {}), ((), {"is_causal": True})):
            causal = arithmetic_of(attention, (operand, operand, operand, *args), kwargs, (operand, None))
            self.assertEqual(causal.operations, full.operations / 2)


class Nothing(ArithmeticTest):
    def test_without_a_formula(self):
        self.assertEqual(self.of_product(name="add"), NO_ARITHMETIC)
        self.assertEqual(arithmetic_of(types.SimpleNamespace(__name__="hop", namespace="higher_order"), (), {}, None),
                         NO_ARITHMETIC)

    def test_where_a_formula_does_not_take_the_call(self):
        self.assertEqual(arithmetic_of(call_of("mm"), (tensor(3), tensor(5)), {}, None), NO_ARITHMETIC)
        self.assertEqual(arithmetic_of(call_of("convolution_backward"), (tensor(3),), {}, None), NO_ARITHMETIC)

    def test_where_a_formula_would_read_the_device(self):
        """A capture does not survive that, and formulas get no tensor to read."""
        lengths = tensor(4, dtype="int32")
        lengths.diff = mock.Mock(side_effect=AssertionError("the device is read"))
        self.assertEqual(arithmetic_of(call_of("nested"), (tensor(2, 2), lengths), {}, None), NO_ARITHMETIC)
        lengths.diff.assert_not_called()

    def test_of_wrapped_tensors(self):
        wrapped = tensor(3, 5)
        wrapped.__tensor_flatten__ = lambda: ([], None)
        self.assertEqual(arithmetic_of(call_of("mm"), (wrapped, tensor(5, 7)), {}, None), NO_ARITHMETIC)

    def test_of_formats_without_a_kind(self):
        self.assertEqual(self.of_product("complex64"), NO_ARITHMETIC)


class Kinds(ArithmeticTest):
    def test_by_the_first_operand(self):
        for dtype, kind in (("float64", "FP64"), ("float32", "FP32"), ("float16", "HALF"), ("bfloat16", "HALF"),
                            ("float8_e4m3fn", "FP8"), ("float8_e5m2", "FP8"), ("int8", "INT8")):
            self.assertEqual(self.of_product(dtype).kind.name, kind)

    def test_tf32_where_the_program_allows_it(self):
        self.matmul.allow_tf32 = True
        self.assertEqual(self.of_product().kind, ArithmeticKind.TF32)
        self.assertEqual(self.of_product("float16").kind, ArithmeticKind.HALF)
        self.matmul.fp32_precision = "ieee"  # the settings of newer versions count first
        self.assertEqual(self.of_product().kind, ArithmeticKind.FP32)
        self.matmul.fp32_precision = "tf32"
        self.assertEqual(self.of_product().kind, ArithmeticKind.TF32)
        self.cudnn.conv = types.SimpleNamespace(fp32_precision="ieee")
        image, weight = tensor(2, 8, 6, 6), tensor(16, 8, 3, 3)
        args = (image, weight, None, [1, 1], [0, 0], [1, 1], False, [0, 0], 1)
        self.assertEqual(arithmetic_of(call_of("convolution"), args, {}, tensor(2, 16, 4, 4)).kind, ArithmeticKind.FP32)


class Declared(ArithmeticTest):
    def run_product(self):
        session = mock.Mock()
        mode = DeclaringOperators(session, 7, Names(session, [], list))
        product = mock.Mock(namespace="aten", _schema=call_of("mm", "self other")._schema, _overloadpacket="aten.mm",
                            return_value=tensor(3, 7))
        product.__name__ = "mm.default"
        mode.__torch_dispatch__(product, (), (tensor(3, 5), tensor(5, 7)))
        return session.declare_arithmetic.call_args_list

    def test_of_the_operator_alone(self):
        """What was captured before it is none of its nodes."""
        self.assertEqual(self.run_product(), [mock.call(7, 0, ArithmeticKind.UNKNOWN),
                                              mock.call(7, 2 * 3 * 5 * 7, ArithmeticKind.FP32)])

    def test_not_where_a_mode_of_the_program_may_do_something_else(self):
        with mock.patch.object(torch.utils._python_dispatch, "_get_current_dispatch_mode_stack",
                               lambda: [types.SimpleNamespace()], create=True):
            self.assertEqual(self.run_product(), 2 * [mock.call(7, 0, ArithmeticKind.UNKNOWN)])


if __name__ == "__main__":
    unittest.main()
