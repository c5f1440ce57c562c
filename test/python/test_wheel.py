# SPDX-License-Identifier: Apache-2.0
"""The wheel: built, installed into an empty environment of each Python that is here, and used from there."""

import ast
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("PUMPGRAPH_BUILD", ROOT / "build"))
STEP = ROOT / "test" / "data" / "resnet50.mlir.gz"
NEWEST_GLIBC = (2, 35)
OLDEST_PYTHON = (3, 9)
SYSTEM_LIBRARIES = {"libc.so.6", "libm.so.6", "ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1"}

# What is evaluated at import is valid in that Python. PyTorch is a stand-in.
IMPORT_ALL = """
import importlib, pathlib, sys
sys.path.append(sys.argv[1])
import pumpgraph
names = [path.stem for path in pathlib.Path(pumpgraph.__file__).parent.glob("*.py")]
for name in names:
    importlib.import_module("pumpgraph." + name)
importlib.import_module("pumpgraph.integrations.parts")
assert "step_function" in names and sys.modules["torch"].__file__.startswith(sys.argv[1])
"""


def output(*command, **options):
    result = subprocess.run(list(map(str, command)), capture_output=True, text=True, **options)
    if result.returncode != 0:
        raise AssertionError(f"{' '.join(map(str, command))}: exit status {result.returncode}\n{result.stderr}")
    return result.stdout


def pythons():
    """This one, and the others in PATH."""
    found = {sys.version_info[:2]: sys.executable}
    for minor in range(9, 14):
        path = shutil.which(f"python3.{minor}")
        if path and subprocess.run([path, "-c", "import venv, ensurepip"], capture_output=True).returncode == 0:
            found.setdefault((3, minor), path)
    return found


def unions_in_annotations(tree):
    """Lines with `A | B`, which is no type before Python 3.10."""
    for node in ast.walk(tree):
        for annotation in (getattr(node, "annotation", None), getattr(node, "returns", None)):
            if annotation and any(isinstance(part, ast.BitOr) for part in ast.walk(annotation)):
                yield node.lineno


class Wheel(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.folder.cleanup)
        cls.place = Path(cls.folder.name)
        builder = ROOT / "tools" / "wheel" / "build_wheel.py"
        cls.wheel = Path(os.environ.get("PUMPGRAPH_WHEEL") or output(
            sys.executable, builder, "--build-dir", BUILD, "--output", cls.place).strip())
        # Nothing of the checkout may help: no PYTHONPATH, no PUMPGRAPH_LIBRARY.
        cls.environment = {"PATH": os.defpath, "HOME": str(cls.place)}

    def test_says_what_it_runs_on(self):
        self.assertRegex(self.wheel.name, r"^pumpgraph-[0-9.]+-py3-none-manylinux_2_35_\w+\.whl$")
        unpacked = self.place / "unpacked"
        zipfile.ZipFile(self.wheel).extractall(unpacked)
        binaries = [path for path in unpacked.rglob("*") if path.is_file() and path.read_bytes()[:4] == b"\x7fELF"]
        self.assertEqual(sorted(path.name for path in binaries),
                         ["libpumpgraph-compiler.so", "libpumpgraph.so", "libpumpgraph_preload.so", "pump-graph-opt",
                          "pump-graph-run"])
        for binary in binaries:
            needed = set(re.findall(r"\(NEEDED\).*\[(.*)\]", output("readelf", "--wide", "--dynamic", binary)))
            self.assertLessEqual(needed, SYSTEM_LIBRARIES, binary.name)
            versions = re.findall(r"GLIBC_([0-9.]+)", output("readelf", "--wide", "--version-info", binary))
            self.assertLessEqual(max(tuple(map(int, version.split("."))) for version in versions), NEWEST_GLIBC,
                                 binary.name)

    def test_is_written_for_the_oldest_python(self):
        for module in (ROOT / "runtime" / "python" / "pumpgraph").glob("*.py"):
            tree = ast.parse(module.read_text(), module.name, feature_version=OLDEST_PYTHON)
            if not any(isinstance(node, ast.ImportFrom) and node.module == "__future__" for node in tree.body):
                self.assertEqual(list(unions_in_annotations(tree)), [], f"{module.name} evaluates its annotations")

    def test_works_where_it_is_installed(self):
        for version, python in pythons().items():
            with self.subTest(python=version):
                self.use(python, self.place / "environment{}.{}".format(*version))
                print("Python {}.{}: installed and used".format(*version))

    def use(self, python, environment):
        def run(*command):
            return output(*command, cwd=self.place, env=self.environment)

        run(python, "-m", "venv", environment)
        run(environment / "bin" / "pip", "install", "--no-index", "--no-deps", "--disable-pip-version-check",
            self.wheel)
        said = run(environment / "bin" / "python", "-c",
                   "import pumpgraph; print(pumpgraph.__file__); print(pumpgraph.doctor())")
        self.assertTrue(said.startswith(str(environment)), said)
        self.assertRegex(said, "(?i)driver")
        run(environment / "bin" / "python", "-c", IMPORT_ALL, ROOT / "test" / "python" / "fake_torch")
        report = self.place / "report.json"
        run(environment / "bin" / "pump-graph-opt", STEP, "--budget=50%", f"--report=json:{report}")
        self.assertIs(json.loads(report.read_text())["checked"], True)
        preloaded = run(environment / "bin" / "pump-graph-run", "--budget=1GiB", "--", "sh", "-c", "echo $LD_PRELOAD")
        self.assertTrue(Path(preloaded.strip()).is_relative_to(environment.resolve()), preloaded)


if __name__ == "__main__":
    unittest.main()
