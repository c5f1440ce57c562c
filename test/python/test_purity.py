# SPDX-License-Identifier: Apache-2.0
"""Which operators may run again, by their schemas and by lists."""

import unittest

from test_operators import operator, operator_of
from test_torch_capture import torch  # the stand-in

from pumpgraph._session import OperationKind
from pumpgraph.purity import base_name, kind_of

PURE = (
    "mm(Tensor self, Tensor mat2) -> Tensor",
    "addmm(Tensor self, Tensor mat1, Tensor mat2, *, Scalar beta=1, Scalar alpha=1) -> Tensor",
    "convolution(Tensor input, Tensor weight, Tensor? bias) -> Tensor",
    "cudnn_batch_norm(Tensor input, Tensor weight, Tensor? bias, Tensor? running_mean) -> Tensor",
    "native_dropout(Tensor input, float p, bool? train) -> Tensor",
    "relu_(Tensor(a!) self) -> Tensor(a!)",
    "add.out(Tensor self, Tensor other, *, Scalar alpha=1, Tensor(a!) out) -> Tensor(a!)",
    "_scaled_dot_product_flash_attention(Tensor query, Tensor key, Tensor value) -> Tensor",
    "embedding(Tensor weight, Tensor indices) -> Tensor",
    "bernoulli_.float(Tensor(a!) self, float p=0.5) -> Tensor(a!)",
)
WHOLE = (
    "convolution_backward(Tensor grad_output, Tensor input, Tensor weight) -> Tensor",
    "embedding_dense_backward(Tensor grad_output, Tensor indices) -> Tensor",
    "native_layer_norm_backward.out(Tensor grad_out, Tensor input, *, Tensor(a!) out0) -> Tensor(a!)",
    "index_add_(Tensor(a!) self, int dim, Tensor index, Tensor source) -> Tensor(a!)",
    "_index_put_impl_(Tensor(a!) self, Tensor? indices, Tensor values) -> Tensor(a!)",
    "scatter_add.out(Tensor self, Tensor index, Tensor src, *, Tensor(a!) out) -> Tensor(a!)",
    "cumsum(Tensor self, int dim) -> Tensor",
    "_cudnn_rnn(Tensor input, Tensor weight) -> Tensor",
    "_foreach_add_.Scalar(Tensor(a!) self, Scalar scalar) -> Tensor(a!)",
    "_fused_adamw_(Tensor(a!) self, Tensor grads) -> Tensor(a!)",
    "_grouped_mm(Tensor self, Tensor mat2, Tensor? offs) -> Tensor",
    "linalg_inv_ex(Tensor A, *, bool check_errors=False) -> Tensor",
    "multinomial(Tensor self, int num_samples) -> Tensor",
)


class Purity(unittest.TestCase):
    def kind(self, schema):
        func, names = operator_of(schema)
        return kind_of(func, tuple(torch.Tensor(0x1000 * (index + 1)) for index in range(len(names))), {})

    def test_functions_of_what_they_read(self):
        for schema in PURE:
            self.assertEqual(self.kind(schema), OperationKind.PURE, schema)

    def test_what_is_not_reproduced_keeps_state_or_follows_pointers(self):
        for schema in WHOLE:
            self.assertEqual(self.kind(schema), OperationKind.WHOLE, schema)

    def test_who_is_not_believed_is_unknown(self):
        self.assertEqual(kind_of(operator("self", namespace="mine"), (), {}), OperationKind.UNKNOWN)
        self.assertEqual(kind_of(operator("weight input", name="renorm_.default"), (), {}), OperationKind.UNKNOWN)
        self.assertEqual(kind_of(operator("weight", returns=None), (), {}), OperationKind.UNKNOWN)

    def test_base_names(self):
        for name, expected in (("index_put_.default", "index_put"), ("_index_put_impl_.default", "index_put_impl"),
                               ("scatter_add.out", "scatter_add"), ("mm_out.default", "mm")):
            self.assertEqual(base_name(operator("self", name=name)), expected)


if __name__ == "__main__":
    unittest.main()
