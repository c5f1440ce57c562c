# SPDX-License-Identifier: Apache-2.0
"""libpumpgraph-compiler.so shows its C functions and nothing else, needs no library that a machine may lack, and loads
with glibc 2.35 (Ubuntu 22.04)."""
import argparse
import pathlib
import re
import subprocess
import unittest

parser = argparse.ArgumentParser()
for name in ("readelf", "library", "header"):
    parser.add_argument("--" + name, required=True)
options = parser.parse_args()

NEWEST_GLIBC = (2, 35)
SYSTEM_LIBRARIES = {"libc.so.6", "libm.so.6", "ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1"}


def readelf(*flags):
    return subprocess.run([options.readelf, "--wide", *flags, options.library], check=True, capture_output=True,
                          text=True).stdout


def exported_names():
    """Defined symbols of the dynamic table. Columns: number, value, size, type, binding, visibility, section, name."""
    rows = (line.split() for line in readelf("--dyn-syms").splitlines())
    return {row[7].split("@")[0] for row in rows if len(row) >= 8 and row[0].rstrip(":").isdigit() and row[6] != "UND"}


class Symbols(unittest.TestCase):
    def test_exports_exactly_the_functions_of_the_header(self):
        code = re.sub(r"/\*.*?\*/", "", pathlib.Path(options.header).read_text(), flags=re.DOTALL)
        declared = set(re.findall(r"\b(pumpgraph_\w+)\(", code))
        self.assertGreater(len(declared), 5)
        self.assertEqual(exported_names(), declared)

    def test_needs_system_libraries_only(self):
        needed = set(re.findall(r"\(NEEDED\).*\[(.*)\]", readelf("--dynamic")))
        self.assertIn("libc.so.6", needed)
        self.assertLessEqual(needed, SYSTEM_LIBRARIES)

    def test_loads_with_old_glibc(self):
        versions = {tuple(map(int, found.split("."))) for found in re.findall(r"GLIBC_([0-9.]+)",
                                                                              readelf("--version-info"))}
        self.assertTrue(versions)
        self.assertLessEqual(max(versions), NEWEST_GLIBC)


unittest.main(argv=["compiler_symbols_test"])
