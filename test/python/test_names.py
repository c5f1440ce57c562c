# SPDX-License-Identifier: Apache-2.0
"""What nodes and buffers are called, with stand-ins for PyTorch's modules and autograd nodes."""

import types
import unittest

from test_torch_capture import torch  # the stand-in

from pumpgraph.errors import PumpGraphError, Status
from pumpgraph.names import Names


def operator(name):
    return types.SimpleNamespace(__name__=name)


class Node:
    """Of autograd. `before`: the nodes of what it was computed from."""

    def __init__(self, *before):
        self.metadata = {}
        self.next_functions = tuple((node, 0) for node in before)
        self._number = torch.autograd.nodes
        torch.autograd.nodes += 1

    def _sequence_nr(self):
        return self._number


class NamesTest(unittest.TestCase):
    """A model `net` around a layer `net.fc`."""

    def setUp(self):
        torch.autograd.nodes, torch._C.node = 0, None
        self.addCleanup(setattr, torch._C, "node", None)
        self.layer, self.model = torch.nn.Module(), torch.nn.Module()
        self.layer.forward, self.model.forward = lambda x: x, lambda x: self.layer(x)
        self.named, self.gradients = {}, []
        session = types.SimpleNamespace(name=self.named.__setitem__)
        self.names = Names(session, [("net", self.model), ("net.fc", self.layer)], lambda: self.gradients)
        following = self.names.following()
        following.__enter__()
        self.addCleanup(following.__exit__, None, None, None)

    def called(self, name="mm.default"):
        return self.names.operator(operator(name))

    def in_backward(self, node, call=None):
        torch._C.node = node
        try:
            return (call or self.called)()
        finally:
            torch._C.node = None


class Nodes(NamesTest):
    def test_the_innermost_module_gives_the_name(self):
        called = []
        self.layer.forward = lambda x: called.append(self.called("addmm.default"))

        def forward(x):
            self.layer(x)
            called.append(self.called("add.Tensor"))

        self.model.forward = forward
        self.model(None)
        self.assertEqual(called, ["net.fc forward (addmm)", "net forward (add)"])

    def test_outside_of_modules_there_is_the_operator(self):
        self.assertEqual(self.called("_fused_adamw_.tensor_lr"), "_fused_adamw_")
        self.assertEqual(self.names.operator(object()), "")

    def test_backward_has_the_module_of_the_forward(self):
        inside = []

        def layer(x):
            inside.append(Node(x.grad_fn))
            x.grad_fn = inside[0]
            return x

        def model(x):
            x.grad_fn = Node(before)
            x = self.layer(x)
            x.grad_fn = Node(x.grad_fn)
            return {"logits": [x]}

        before = Node()
        self.layer.forward, self.model.forward = layer, model
        last = self.model(torch.Tensor())["logits"][0].grad_fn
        self.assertEqual(self.in_backward(last), "net backward (mm)")
        self.assertEqual(self.in_backward(inside[0]), "net.fc backward (mm)")
        self.assertEqual(self.in_backward(inside[0].next_functions[0][0]), "net backward (mm)")
        self.assertEqual(self.in_backward(before), "backward (mm)")  # no module made it
        self.assertEqual(self.called(), "mm")

    def test_backward_inside_a_forward(self):
        loss = Node()
        self.model.forward = lambda x: self.in_backward(loss)
        self.assertEqual(self.model(None), "backward (mm)")

    def test_what_a_checkpoint_computes_again(self):
        self.layer.forward = lambda x: self.called()
        self.assertEqual(self.in_backward(Node(), lambda: self.layer(None)), "net.fc recomputed (mm)")

    def test_after_an_exception_no_module_runs(self):
        """Recomputing ends in one as soon as it has what it needs."""
        self.layer.forward = lambda x: 1 // 0
        with self.assertRaises(ZeroDivisionError):
            self.model(None)
        self.assertEqual(self.called(), "mm")

    def test_a_view_that_autograd_gave_up_has_no_nodes(self):
        class GivenUp(torch.Tensor):
            def fail(self):
                raise RuntimeError("the view was modified in place")

            grad_fn = property(fail, lambda self, value: None)

        self.model(GivenUp())


class Buffers(NamesTest):
    def test_an_operators_new_memory_is_called_after_it(self):
        old, new = torch.Tensor(0x1000), torch.Tensor(0x2000)
        self.names.results("net forward (mm)", ((old,), {}), [new, old, None])
        self.assertEqual(self.named, {0x2000: "net forward (mm)"})

    def test_what_a_module_gives_away_is_called_after_the_module(self):
        def layer(x):
            made = torch.Tensor(0x2000)
            self.names.results(self.called(), x, made)
            return made

        self.layer.forward = layer
        self.model(torch.Tensor(0x1000))
        self.assertEqual(self.named, {0x1000: "net.fc input", 0x2000: "net.fc output"})

    def test_what_an_operator_made_is_no_modules_input(self):
        made = torch.Tensor(0x2000)
        self.names.results("embedding", (), made)
        self.layer.forward = lambda x: None
        self.layer(made)
        self.assertEqual(self.named, {0x2000: "embedding"})

    def test_gradients_have_their_names_before_the_step_frees_them(self):
        gradient = torch.Tensor(0x3000)
        self.in_backward(Node())
        self.gradients.append(("gradient of fc.weight", gradient))
        self.in_backward(Node())
        self.assertEqual(self.named, {})
        self.called("_fused_sgd_.default")
        self.assertEqual(self.named, {0x3000: "gradient of fc.weight"})

    def test_wrappers_and_what_is_not_on_the_device_have_none(self):
        wrapper = torch.Tensor(0x1000)
        wrapper.__tensor_flatten__ = lambda: ([], None)
        self.names.results("mm", (), [wrapper, torch.Tensor(0x2000, is_cuda=False), torch.Tensor(0)])
        self.assertEqual(self.named, {})

    def test_memory_of_others_is_no_trouble(self):
        def name(_pointer, _name):
            raise PumpGraphError(Status.INVALID_ARGUMENT, "not in this session")

        names = Names(types.SimpleNamespace(name=name), [], list)
        names.results("mm", (), torch.Tensor(0x1000))


if __name__ == "__main__":
    unittest.main()
