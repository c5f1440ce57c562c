# SPDX-License-Identifier: Apache-2.0
"""Where things are, and the stub library with its log."""

import ctypes
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "runtime" / "python"))

from pumpgraph import _capi  # noqa: E402


def fake_library_path() -> Path:
    """The stub that CMake built; without CMake it is compiled here."""
    built = os.environ.get("PUMPGRAPH_FAKE")
    if built:
        return Path(built)
    path = Path(tempfile.mkdtemp()) / "pumpgraph_fake.so"
    include = ROOT / "runtime" / "include"
    source = Path(__file__).resolve().parent / "fake_pumpgraph.c"
    compiler = ["cc", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC"]
    subprocess.run([*compiler, f"-I{include}", str(source), "-o", str(path)], check=True)
    os.environ["PUMPGRAPH_FAKE"] = str(path)
    return path


class FakeLibraryTest(unittest.TestCase):
    """A test with the stub loaded, and its log empty."""

    @classmethod
    def setUpClass(cls):
        cls.path = fake_library_path()
        cls.library = _capi.Library(cls.path)
        cls.control = ctypes.CDLL(str(cls.path))
        cls.control.fake_log.restype = ctypes.c_char_p

    def setUp(self):
        self.control.fake_clear()
        self.set_report('{"name": "step"}')

    def calls(self):
        """The lines of the log, which is empty afterwards."""
        lines = self.control.fake_log().decode().splitlines()
        self.control.fake_clear()
        return lines

    def fail_next(self, function, status, message):
        self.control.fake_fail(function.encode(), int(status), message.encode())

    def set_torch_snapshot(self, json):
        self.control.fake_set_torch_snapshot(json.encode())

    def set_tags(self, json):
        self.control.fake_set_tags(json.encode())

    def set_report(self, json):
        self.control.fake_set_report(json.encode())
