# SPDX-License-Identifier: Apache-2.0
"""The table of the driver's entry points, against cuda.h and against the functions that the driver exports."""

import os
import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
GENERATOR = ROOT / "runtime" / "preload" / "generate_entry_points.py"
CLASSES = ROOT / "runtime" / "preload" / "entry_points.txt"
INCLUDE = os.environ.get("PUMPGRAPH_CUDA_INCLUDE", "/usr/local/cuda/include")
COMPILER = os.environ.get("PUMPGRAPH_CXX", "c++")

sys.path.insert(0, str(GENERATOR.parent))
import generate_entry_points as generator  # noqa: E402


class Folder(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.path = Path(self.folder.name)

    def generate(self, more="", classes=CLASSES):
        """With a cuda.h that declares more."""
        include = self.path / "include"
        include.mkdir(exist_ok=True)
        for header in ("cuda.h", "cudaTypedefs.h"):
            extra = more if header == "cuda.h" else ""
            (include / header).write_text(f'#include "{INCLUDE}/{header}"\n{extra}\n')
        return subprocess.run([sys.executable, str(GENERATOR), "--include", str(include), "--classes", str(classes),
                               "--out", str(self.path / "out"), COMPILER],
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)

    def table(self):
        text = (self.path / "out" / "EntryPoints.inc").read_text()
        entries = re.findall(r"PUMPGRAPH_ENTRY\((\w+), (\w+), (\w+), (\w+)\)", text)
        versions = re.findall(r"PUMPGRAPH_VERSION\((\w+), (\w+), (\d+), (\w+)\)", text)
        return {symbol: rest for symbol, *rest in entries}, [(s, n, int(v), p) for s, n, v, p in versions]


class Table(Folder):
    def setUp(self):
        super().setUp()
        result = self.generate()
        self.assertEqual(result.returncode, 0, result.stderr)
        self.entries, self.versions = self.table()

    def test_calls_have_the_classes_that_the_shim_relies_on(self):
        expected = {"cuMemAlloc_v2": "Allocates", "cuMemAllocAsync": "Allocates", "cuMemAllocAsync_ptsz": "Allocates",
                    "cuMemFree_v2": "Frees", "cuMemFreeAsync_ptsz": "Frees", "cuMemCreate": "Maps",
                    "cuMemGetInfo_v2": "Informs", "cuMemcpyHtoDAsync_v2": "Copies", "cuMemsetD8_v2_ptds": "Copies",
                    "cuLaunchKernel": "Launches", "cuLaunchKernel_ptsz": "Launches", "cuLaunchKernelEx": "Launches",
                    "cuGraphLaunch": "Launches", "cuStreamBeginCapture_v2": "Captures",
                    "cuGraphInstantiateWithFlags": "Instantiates", "cuGraphExecUpdate_v2": "Instantiates",
                    "cuIpcGetMemHandle": "Shares", "cuMemExportToShareableHandle": "Shares"}
        self.assertEqual({symbol: self.entries[symbol][1] for symbol in expected}, expected)

    def test_symbols_of_per_thread_streams_are_marked(self):
        for symbol, (_, _, per_thread) in self.entries.items():
            self.assertEqual(per_thread, "true" if symbol.endswith(("_ptsz", "_ptds")) else "false", symbol)

    def test_versions_lead_to_the_symbols_that_the_header_means(self):
        # As the #defines of cuda.h do for its own version.
        for per_thread in ("false", "true"):
            define = ["-DCUDA_API_PER_THREAD_DEFAULT_STREAM"] if per_thread == "true" else []
            latest = {}
            for symbol, name, version, own in self.versions:
                if own == per_thread and version >= latest.get(name, (0, ""))[0]:
                    latest[name] = (version, symbol)
            source = "#include <cuda.h>\n" + "".join(f'"{name}" {name}\n' for name in latest)
            text = subprocess.run([COMPILER, "-x", "c++", "-E", "-P", f"-I{INCLUDE}", *define, "-"], input=source,
                                  stdout=subprocess.PIPE, text=True, check=True).stdout
            meant = dict(re.findall(r'^"(\w+)" (\w+)$', text, flags=re.M))
            self.assertEqual({name: symbol for name, (_, symbol) in latest.items()}, meant)

    def test_every_symbol_of_the_driver_is_known_or_does_not_matter(self):
        stub = next((place for place in (Path(INCLUDE).resolve().parent / "lib64" / "stubs" / "libcuda.so",
                                         Path(INCLUDE).resolve().parent / "lib" / "stubs" / "libcuda.so")
                     if place.is_file()), None)
        if not stub:
            self.skipTest("this toolkit has no stub of the driver")
        command = ["nm", "-D", "--defined-only", str(stub)]
        listed = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
        exported = set(re.findall(r" T (cu\w+)", listed))
        self.assertGreater(len(exported), 500)
        symbols = generator.read_symbols(generator.preprocess([COMPILER], INCLUDE, "cuda.h"))
        unknown = {generator.Symbol(name, []).base for name in exported - set(symbols)}
        self.assertEqual([name for name in unknown if generator.NAMES.search(name)], [])
        self.assertEqual(set(self.entries) - exported, set())


class Unclassified(Folder):
    def test_a_new_call_whose_name_says_what_it_does_stops_the_build(self):
        for name in ("cuMemAllocTomorrow", "cuLaunchKernelTomorrow", "cuGraphInstantiateTomorrow", "cuMemcpyTomorrow",
                     "cuStreamBeginCaptureTomorrow", "cuMemFreeTomorrow"):
            result = self.generate(f"CUresult CUDAAPI {name}(int *argument);")
            self.assertEqual(result.returncode, 1, name)
            self.assertIn(f"no class for {name}:", result.stderr)

    def test_a_new_call_whose_parameters_say_what_it_does_stops_the_build(self):
        for parameters in ("CUstream stream", "CUdeviceptr address, int count", "CUgraphExec exec"):
            result = self.generate(f"CUresult CUDAAPI cuTomorrow({parameters});")
            self.assertEqual(result.returncode, 1, parameters)
            self.assertIn("no class for cuTomorrow:", result.stderr)

    def test_a_new_call_that_tells_something_does_not(self):
        self.assertEqual(self.generate("CUresult CUDAAPI cuDeviceGetTomorrow(int *answer);").returncode, 0)


class Classes(Folder):
    def refused(self, text):
        classes = self.path / "classes.txt"
        classes.write_text(text)
        result = self.generate(classes=classes)
        self.assertEqual(result.returncode, 1)
        return result.stderr

    def test_a_call_with_two_classes_is_refused(self):
        said = self.refused(CLASSES.read_text() + "frees: cuMemAlloc\n")
        self.assertIn("cuMemAlloc has the class allocates already", said)

    def test_an_unknown_class_is_refused_with_its_line(self):
        self.assertIn('classes.txt:1: "burns" is no class', self.refused("burns: cuMemAlloc\n"))

    def test_an_alias_of_nothing_is_refused(self):
        said = self.refused(CLASSES.read_text() + "alias: cuMemAlloc 14000 cuNothing\n")
        self.assertIn('"cuNothing" is no symbol', said)


if __name__ == "__main__":
    unittest.main()
