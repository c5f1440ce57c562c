# SPDX-License-Identifier: Apache-2.0
"""What is believed of operators: their schemas, but for arguments that they write and do not say so."""

import types
import unittest

from test_torch_capture import torch  # the stand-in

from pumpgraph.operators import WRITTEN_UNSAID, DeclaringReads, only_read


def operator(arguments, namespace="aten"):
    """`arguments`: names, those that are written with an exclamation mark."""
    declared = [types.SimpleNamespace(name=name.rstrip("!"),
                                      alias_info=types.SimpleNamespace(is_write=True) if name.endswith("!") else None)
                for name in arguments.split()]
    return types.SimpleNamespace(namespace=namespace, _schema=types.SimpleNamespace(arguments=declared))


class OnlyRead(unittest.TestCase):
    def setUp(self):
        self.a, self.b, self.c = (torch.Tensor(pointer) for pointer in (0x1000, 0x2000, 0x3000))

    def test_what_the_schema_does_not_mark_is_read(self):
        self.assertEqual(only_read(operator("self other"), (self.a, self.b), {}), [0x1000, 0x2000])
        self.assertEqual(only_read(operator("self! other"), (self.a, self.b), {}), [0x2000])
        self.assertEqual(only_read(operator("self other out!"), (self.a,), {"other": self.b, "out": self.c}),
                         [0x1000, 0x2000])

    def test_lists_count_one_by_one(self):
        self.assertEqual(only_read(operator("self! tensors"), ([self.a], [self.b, None, self.c]), {}),
                         [0x2000, 0x3000])

    def test_memory_that_is_written_under_another_name_is_written(self):
        self.assertEqual(only_read(operator("self! other"), (self.a, torch.Tensor(0x1000)), {}), [])

    def test_what_is_written_unsaid_is_not_believed(self):
        for name in WRITTEN_UNSAID:
            self.assertEqual(only_read(operator(f"input {name}"), (self.a, self.b), {}), [0x1000], name)
            self.assertEqual(only_read(operator(f"input {name}"), (self.a,), {name: self.b}), [0x1000], name)

    def test_other_libraries_are_not_believed(self):
        self.assertEqual(only_read(operator("self", namespace="mine"), (self.a,), {}), [])
        self.assertEqual(only_read(types.SimpleNamespace(), (self.a,), {}), [])

    def test_the_host_and_wrapped_tensors_are_left_out(self):
        self.assertEqual(only_read(operator("self other"), (torch.Tensor(0x1000, is_cuda=False), self.b), {}), [0x2000])
        self.b.__tensor_flatten__ = lambda: ([], None)
        self.assertEqual(only_read(operator("self other"), (self.a, self.b), {}), [])


class Declaring(unittest.TestCase):
    def test_nodes_between_operators_are_nobodys(self):
        said = []
        session = types.SimpleNamespace(declare_reads=lambda stream, pointers: said.append((stream, pointers)))
        mode = DeclaringReads(session, 7)

        def add(*_args):
            said.append("runs")
            return 3

        add.namespace, add._schema = "aten", operator("self other!")._schema
        result = mode.__torch_dispatch__(add, (), (torch.Tensor(0x1000), torch.Tensor(0x2000)))
        self.assertEqual(result, 3)
        self.assertEqual(said, [(7, []), "runs", (7, [0x1000])])


if __name__ == "__main__":
    unittest.main()
