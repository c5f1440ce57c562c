#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Installs the build into a folder, moves that, and uses it from outside: by find_package(), by pkg-config, from
Python, and pump-graph-opt. Arguments: cmake, the build folder, or one where it is installed, the project's version."""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

HERE = Path(__file__).resolve().parent / "outside"
CMAKE, BUILD, VERSION = sys.argv[1:4]
GENERATOR = ["-G", "Ninja"] if shutil.which("ninja") else []  # a machine that builds PumpGraph may have no make


def run(*command, **options):
    return subprocess.run(list(map(str, command)), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          **options)


class Installed(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = Path(tempfile.mkdtemp(prefix="pumpgraph-install-"))
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        cls.prefix = cls.installed() if (Path(BUILD) / "CMakeCache.txt").is_file() else Path(BUILD)
        cls.lib = next(cls.prefix.glob("lib*/**/libpumpgraph.so")).parent
        cls.interface = ".".join(VERSION.split(".")[:2])

    @classmethod
    def installed(cls):
        first = cls.folder / "first"
        done = run(CMAKE, "--install", BUILD, "--prefix", first, "--strip")
        assert done.returncode == 0, done.stdout
        return first.rename(cls.folder / "moved")  # nothing may name the place where it was installed

    def succeed(self, *command, **options):
        done = run(*command, **options)
        self.assertEqual(done.returncode, 0, done.stdout)
        return done.stdout

    def configure(self, folder, wanted):
        plugin = any(self.prefix.glob("lib*/**/libPumpGraphAnnotate.so"))
        return run(CMAKE, *GENERATOR, "-S", HERE, "-B", self.folder / folder, f"-DCMAKE_PREFIX_PATH={self.prefix}",
                   f"-DWANTED_VERSION={wanted}", f"-DWANTS_PLUGIN={plugin}")

    def test_the_library_is_versioned(self):
        names = sorted(path.name for path in self.lib.glob("libpumpgraph.so*"))
        self.assertEqual(names, ["libpumpgraph.so", f"libpumpgraph.so.{self.interface}", f"libpumpgraph.so.{VERSION}"])

    def test_a_project_finds_it(self):
        done = self.configure("outside", self.interface)
        self.assertEqual(done.returncode, 0, done.stdout)
        self.succeed(CMAKE, "--build", self.folder / "outside")
        self.assertRegex(self.succeed(self.folder / "outside" / "outside_c"),
                         rf"{re.escape(VERSION)}, headers {re.escape(VERSION)}\nstatus \d+\n")
        self.assertEqual(self.succeed(self.folder / "outside" / "outside_cpp"), f"{VERSION}\n")

    def test_another_interface_is_refused(self):
        major, minor = map(int, self.interface.split("."))
        for wanted in (f"{major}.{minor + 1}", f"{major + 1}.0", "0.0"):
            done = self.configure("refused", wanted)
            self.assertNotEqual(done.returncode, 0)
            self.assertIn("PumpGraph", done.stdout)

    def test_pkg_config(self):
        environment = {**os.environ, "PKG_CONFIG_PATH": str(self.lib / "pkgconfig")}
        self.assertEqual(self.succeed("pkg-config", "--modversion", "pumpgraph", env=environment), f"{VERSION}\n")
        flags = self.succeed("pkg-config", "--cflags", "--libs", "pumpgraph", env=environment).split()
        program = self.folder / "by_pkg_config"
        self.succeed("cc", HERE / "outside.c", "-o", program, *flags, f"-Wl,-rpath,{self.lib}")
        self.assertIn(f"{VERSION}, ", self.succeed(program))

    def test_python_finds_its_library(self):
        packages = self.prefix / "lib" / "python3" / "dist-packages"
        environment = {**os.environ, "PYTHONPATH": str(packages)}
        environment.pop("PUMPGRAPH_LIBRARY", None)
        printed = self.succeed(sys.executable, "-c", "import pumpgraph; print(pumpgraph.__file__, pumpgraph.version())",
                               env=environment, cwd=self.folder)
        self.assertEqual(printed, f"{packages}/pumpgraph/__init__.py {VERSION}\n")

    def test_pump_graph_opt_runs(self):
        self.assertIn("--report", self.succeed(self.prefix / "bin" / "pump-graph-opt", "--help"))

    def test_the_launcher_finds_its_library(self):
        said = self.succeed(self.prefix / "bin" / "pump-graph-run", "--budget=1GiB", "--", "sh", "-c",
                            "echo $LD_PRELOAD")
        self.assertEqual(Path(said.strip()).resolve(), (self.lib / "libpumpgraph_preload.so").resolve())


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
