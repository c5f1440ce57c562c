# SPDX-License-Identifier: Apache-2.0
"""Tensors made of numbers inside a captured step: which are filled in. That their bits are those that PyTorch copies is
tested where PyTorch is (test/gpu/host_state_cases.py)."""

import fractions
import functools
import unittest
from unittest import mock

import test_torch_capture  # noqa: F401 - installs the stand-in for PyTorch
from test_torch_capture import torch

from pumpgraph import constants


class Filling(unittest.TestCase):
    def filled(self, call, default="cpu"):
        """The devices on which something is filled in."""
        devices = []
        with mock.patch.object(constants, "_fill", lambda made, device: devices.append(device.type)), \
                mock.patch.object(torch, "get_default_device", lambda: torch.device(default), create=True), \
                constants.filled_in():
            call()
        return devices

    def test_fills_in_numbers(self):
        for data in (1, 0.5, True, 1j, [1], (0.5, 2), [[1.0, 2], (3, 4)], [0.0] * 64, [[0.0] * 8] * 8):
            with self.subTest(data=data):
                self.assertEqual(self.filled(lambda data=data: torch.tensor(data, device="cuda")), ["cuda"])
                self.assertEqual(self.filled(lambda data=data: torch.tensor(data), default="cuda"), ["cuda"])
                self.assertEqual(self.filled(lambda data=data: torch.as_tensor(data, None, "cuda")), ["cuda"])
                self.assertEqual(self.filled(lambda data=data: torch.tensor(data=data, device=0)), ["cuda"])
                self.assertEqual(self.filled(lambda data=data: torch.Tensor().new_tensor(data)), ["cuda"])

    def test_leaves_the_host_alone(self):
        self.assertEqual(self.filled(lambda: torch.tensor(1)), [])
        self.assertEqual(self.filled(lambda: torch.tensor(1, device="cpu"), default="cuda"), [])
        self.assertEqual(self.filled(lambda: torch.Tensor().new_tensor(1, device="cpu")), [])

    def test_leaves_other_data_alone(self):
        for data in ([], [[]], [1, "text"], [torch.Tensor()], [0] * 65, [[0] * 8] * 9, range(3), {1: 2}, "text",
                     torch.Tensor(), None, fractions.Fraction(1, 2)):
            with self.subTest(data=data):
                self.assertEqual(self.filled(lambda data=data: torch.tensor(data, device="cuda")), [])

    def test_fills_in_each_number_in_its_place(self):
        class Values:
            """A tensor in one dimension, whose elements are views of it."""

            dtype, shape, requires_grad = torch.float32, (2, 2), True

            def __init__(self, numbers):
                self.numbers = numbers

            def view(self, size):
                return self

            def tolist(self):
                return self.numbers

            def unbind(self):
                return [mock.Mock(fill_=functools.partial(self.numbers.__setitem__, index)) for index in range(4)]

            def requires_grad_(self, requires_grad):
                return self.numbers, requires_grad

        with mock.patch.object(torch, "empty", lambda shape, dtype, device: Values([0] * 4)):
            self.assertEqual(constants._fill(Values([1, 2, 3, 4]), torch.device("cuda")), ([1, 2, 3, 4], True))

    def test_is_undone(self):
        before = torch.tensor, torch.as_tensor, torch.Tensor.new_tensor
        with self.assertRaises(ValueError), constants.filled_in():
            self.assertNotEqual(before[0], torch.tensor)
            raise ValueError
        self.assertEqual((torch.tensor, torch.as_tensor, torch.Tensor.new_tensor), before)


if __name__ == "__main__":
    unittest.main()
