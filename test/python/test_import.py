# SPDX-License-Identifier: Apache-2.0
"""What `import pumpgraph` needs, and what it stands beside: each in a process of its own."""

import json
import os
import subprocess
import sys
import tempfile
import textwrap
import unittest
from pathlib import Path

import support

STEP = support.ROOT / "test" / "data" / "gpt2.mlir.gz"

ALONE = """
    import sys
    sys.modules["torch"] = sys.modules["triton"] = None  # importing them fails, as where they are not there
    import pumpgraph
    from pumpgraph._report import Report
    assert "libcuda" not in open("/proc/self/maps").read(), "the driver is loaded"
    assert set(dir(pumpgraph)) > {"graphed", "install", "doctor"}
"""

# Loads the compiler library as the runtime does, and has it write a step as MLIR. `other` is Triton, or, where there is
# none, a whole LLVM and MLIR whose symbols everybody sees.
BESIDE = """
    import ctypes, sys
    import pumpgraph
    from pumpgraph import _capi

    class Description(ctypes.Structure):
        _fields_ = [("version", ctypes.c_uint32), ("stage", ctypes.c_uint32), ("name", ctypes.c_char_p),
                    ("page_bytes", ctypes.c_uint64), ("budget_bytes", ctypes.c_uint64), ("host_bytes", ctypes.c_uint64),
                    ("buffers", ctypes.c_void_p), ("buffer_count", ctypes.c_uint64), ("nodes", ctypes.c_void_p),
                    ("node_count", ctypes.c_uint64), ("edges", ctypes.c_void_p), ("edge_count", ctypes.c_uint64)]

    def other():
        try:
            import triton._C.libtriton
        except ImportError:
            for library in sys.argv[3:]:
                ctypes.CDLL(library, mode=ctypes.RTLD_GLOBAL)

    def ours():
        assert _capi.load().doctor()
        compiler = ctypes.CDLL(sys.argv[1])
        compiler.pumpgraph_compiler_print.restype = ctypes.c_char_p
        step = Description(version=VERSION, name=b"step", page_bytes=4096)
        text = compiler.pumpgraph_compiler_print(ctypes.byref(step), b"GPU")
        assert text.startswith(b"pump.graph @step page_bytes(4096)"), text

    for part in sys.argv[2].split():
        {"ours": ours, "other": other}[part]()
"""


def run(script, *arguments, **environment):
    path = os.pathsep.join([str(support.ROOT / "runtime" / "python"), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(script), *map(str, arguments)], text=True,
                          capture_output=True, env=dict(os.environ, PYTHONPATH=path, **environment))
    if done.returncode != 0:
        raise AssertionError(f"exit status {done.returncode}: {done.stderr}")
    return done.stdout


class Alone(unittest.TestCase):
    def test_neither_gpu_nor_pytorch(self):
        run(ALONE)

    def test_what_needs_pytorch_says_so(self):
        with self.assertRaisesRegex(AssertionError, "torch"):
            run(ALONE + "    pumpgraph.graphed\n")

    def test_planning_and_its_report(self):
        tool = os.environ.get("PUMPGRAPH_OPT")
        if not tool:
            self.skipTest("pump-graph-opt was not built")
        with tempfile.TemporaryDirectory() as place:
            report = Path(place) / "report.json"
            planning = [tool, STEP, "--budget=50%", f"--report=json:{report}"]
            subprocess.run(planning, check=True, stdout=subprocess.DEVNULL)
            text = run(ALONE + "    import json; print(Report(json.load(open(sys.argv[1]))))\n", report)
            self.assertIn(json.loads(report.read_text())["verdict"], text)


class BesideTriton(unittest.TestCase):
    """Two LLVMs that see each other's symbols crash."""

    def setUp(self):
        built = os.environ.get("PUMPGRAPH_BUILT")
        if not built:
            self.skipTest("libpumpgraph.so was not built")
        self.library = Path(built)
        folder = Path(os.environ["PUMPGRAPH_LLVM_LIBRARIES"])
        self.others = [path for path in (folder / "libLLVM.so.1", folder / "libMLIR.so") if path.exists()]
        if not self.others and subprocess.run([sys.executable, "-c", "import triton"], capture_output=True).returncode:
            self.skipTest("neither Triton nor another LLVM is here")

    def in_order(self, order):
        header = (support.ROOT / "graph" / "include" / "pumpgraph" / "description_c.h").read_text()
        version = header.partition("#define PUMPGRAPH_DESCRIPTION_VERSION ")[2].split()[0]
        run(BESIDE.replace("VERSION", version), self.library.with_name("libpumpgraph-compiler.so"), order, *self.others,
            PUMPGRAPH_LIBRARY=str(self.library))

    def test_after_it(self):
        self.in_order("other ours")

    def test_before_it(self):
        self.in_order("ours other ours")


if __name__ == "__main__":
    unittest.main()
