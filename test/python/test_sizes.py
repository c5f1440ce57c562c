# SPDX-License-Identifier: Apache-2.0
import unittest

import support  # noqa: F401
from pumpgraph import PumpGraphError, Status
from pumpgraph._sizes import format_size, parse_budget, parse_size


class Sizes(unittest.TestCase):
    def test_units(self):
        for text, size in {
            "16GiB": 16 * 2**30,
            "1.5 GB": 1_500_000_000,
            "0.1GB": 100_000_000,  # exactly: floats would lose a byte here and there
            "800mb": 800_000_000,
            "2 MiB": 2**21,
            "64kib": 2**16,
            "1TiB": 2**40,
            " 4096 ": 4096,
            "7B": 7,
            4096: 4096,
        }.items():
            with self.subTest(text=text):
                self.assertEqual(parse_size(text), size)

    def test_what_is_no_size_is_refused_by_name(self):
        for text in ("", "GiB", "16 Gib it", "-1GiB", "1e9", "16GiBs", "16 G", -1, 1.5, None, True):
            with self.subTest(text=text), self.assertRaises(PumpGraphError) as caught:
                parse_size(text, "host_limit")
            self.assertEqual(caught.exception.status, Status.INVALID_ARGUMENT)
            self.assertIn("host_limit", str(caught.exception))

    def test_budget(self):
        self.assertIsNone(parse_budget("unlimited"))
        self.assertEqual(parse_budget("1GiB"), 2**30)
        with self.assertRaisesRegex(PumpGraphError, "budget of 0 bytes"):
            parse_budget("0GiB")

    def test_format(self):
        self.assertEqual(format_size(3 * 2**30 / 2), "1.50 GiB")
        self.assertEqual(format_size(5 * 2**20), "5.00 MiB")
        self.assertEqual(format_size(17), "17 B")


if __name__ == "__main__":
    unittest.main()
