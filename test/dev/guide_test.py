#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""README and the guides: their commands run and print what is shown, their Python parses and calls what there is, and
their C and C++ compile.

usage: guide_test.py --build DIR [ARGUMENTS OF unittest]"""
import argparse
import ast
import importlib
import inspect
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import guide

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / "build"
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs" / "guide").glob("*.md"))]
LANGUAGES = {"python", "cpp", "c", "cmake", "text", "console"}
MARKERS = {"", "cuda", "gpu", "build"}

# Around the snippets of cpp.md: what their readers have.
AROUND = {
    1: ("""#include "pumpgraph/pumpgraph.hpp"
void launchForward(pumpgraph_stream, float *, float *);
void launchBackward(pumpgraph_stream, float *, float *);
pumpgraph::Status readBack(float *, std::size_t);
""", ""),
    2: ("""#include "pumpgraph/pumpgraph.hpp"
void adopt(pumpgraph::Session *session, pumpgraph_cuda_graph first, pumpgraph_cuda_graph graph) {
""", "}\n"),
    3: ("""#include "pumpgraph/pumpgraph.h"
#include <stdio.h>
int train(int (*record)(pumpgraph_stream, void *), void *user, pumpgraph_stream stream) {
""", "return 0;\n}\n"),
}


def blocks(*languages):
    for document in DOCUMENTS:
        for block in guide.blocks_of(document.read_text(encoding="utf-8")):
            if block.language in languages:
                yield document, block


class Commands(unittest.TestCase):
    def test_every_block_says_its_language_and_who_runs_it(self):
        for document in DOCUMENTS:
            for block in guide.blocks_of(document.read_text(encoding="utf-8")):
                with self.subTest(document=document.name, line=block.line):
                    self.assertIn(block.language, LANGUAGES)
                    self.assertIn(block.marker, MARKERS if block.language == "console" else {""})

    def test_they_run_and_print_what_is_shown(self):
        markers = [""]
        if shutil.which("nvcc") and (BUILD / "lib" / "libPumpGraphAnnotate.so").is_file():
            markers.append("cuda")
        count = 0
        for document in DOCUMENTS:
            with self.subTest(document=document.name), tempfile.TemporaryDirectory() as folder:
                guide.prepare(Path(folder), ROOT, BUILD)
                count += guide.run_document(document, markers, Path(folder))
        self.assertGreater(count, 9)

    def test_each_command_for_the_gpu_has_a_program(self):
        for document, block in blocks("console"):
            for command in guide.commands_of(block) if block.marker == "gpu" else ():
                for word in command.text.split():
                    if word.startswith("docs/"):
                        self.assertTrue((ROOT / word).is_file(), f"{document.name}:{command.line}: {word}")


class Output(unittest.TestCase):
    def test_what_is_shown_is_compared(self):
        actual = ["a  1.00 GiB", "b", "c 1,234", "took 5 ms"]
        self.assertIsNone(guide.difference(["a 1.02 GiB", "...", "c 1,200", "took ..."], actual))
        self.assertIsNone(guide.difference(["...", "b", "..."], actual))
        for shown in (["a 1.10 GiB", "..."], ["b", "..."], ["...", "b", "d", "..."], ["a 1 GiB"],
                      ["...", "c 900", "..."]):
            self.assertIsNotNone(guide.difference(shown, actual), shown)

    def test_a_failure_has_to_be_shown(self):
        with tempfile.TemporaryDirectory() as folder:
            for text, output, fails in (("echo x", ["x"], False), ("echo x", ["y"], True), ("false", [], True),
                                        ("echo error: x; false", ["error: x"], False),
                                        ("echo error: x", ["error: x"], True)):
                with self.subTest(text=text, output=output):
                    command = guide.Command(1, text, output)
                    if fails:
                        self.assertRaises(guide.Failure, guide.run, command, Path(folder))
                    else:
                        guide.run(command, Path(folder))


class Snippets(unittest.TestCase):
    def test_python_calls_what_there_is(self):
        sys.path[:0] = [str(ROOT / "runtime" / "python"), str(ROOT / "test" / "python" / "fake_torch")]
        package = importlib.import_module("pumpgraph")
        calls = 0
        for document, block in blocks("python"):
            for node in ast.walk(ast.parse(block.text)):
                function = getattr(node, "func", None)
                if not isinstance(function, ast.Attribute) or getattr(function.value, "id", None) != "pumpgraph":
                    continue
                calls += 1
                where = f"{document.name}:{block.line + node.lineno}: {function.attr}"
                self.assertTrue(hasattr(package, function.attr), where)
                known = set(inspect.signature(getattr(package, function.attr)).parameters)
                self.assertLessEqual({keyword.arg for keyword in node.keywords}, known, where)
        self.assertGreater(calls, 5)

    def test_c_and_cpp_compile(self):
        document = ROOT / "docs" / "guide" / "cpp.md"
        snippets = [block for block in guide.blocks_of(document.read_text(encoding="utf-8"))
                    if block.language in ("c", "cpp")]
        self.assertEqual(len(snippets), len(AROUND))
        for number, block in enumerate(snippets, 1):
            with self.subTest(line=block.line):
                before, after = AROUND[number]
                compiler = ["gcc", "-std=c11", "-xc"] if block.language == "c" else ["g++", "-std=c++20", "-xc++"]
                command = [*compiler, "-fsyntax-only", "-Wall", "-Wno-unused", f"-I{ROOT}/runtime/include", "-"]
                result = subprocess.run(command, input=before + block.text + "\n" + after, capture_output=True,
                                        text=True, check=False)
                self.assertEqual(result.returncode, 0, result.stderr)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--build", type=Path, default=BUILD)
    options, rest = parser.parse_known_args()
    BUILD = options.build.resolve()
    unittest.main(argv=[sys.argv[0], *rest])
