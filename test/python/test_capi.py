# SPDX-License-Identifier: Apache-2.0
"""The ctypes transcript against the header it was made from, and how the library is found."""

import ctypes.util
import os
import re
import tempfile
import unittest
from ctypes import POINTER, c_char, c_char_p, c_double, c_int, c_int32, c_size_t, c_uint32, c_uint64, c_void_p
from pathlib import Path
from unittest import mock

import support
from pumpgraph import PumpGraphError, Status, _capi

HEADER = support.ROOT / "runtime" / "include" / "pumpgraph" / "pumpgraph.h"


def header_text():
    text = re.sub(r"/\*.*?\*/", " ", HEADER.read_text(), flags=re.S)
    text = re.sub(r"^#.*?$", "", text, flags=re.M)
    return re.sub(r"\s+", " ", text)


SCALARS = {
    "size_t": c_size_t,
    "uint64_t": c_uint64,
    "int32_t": c_int32,
    "uint32_t": c_uint32,
    "int": c_int,
    "double": c_double,
    "pumpgraph_status": c_int,
    "pumpgraph_stream": c_void_p,  # pointers behind a typedef
    "pumpgraph_cuda_graph": c_void_p,
    "pumpgraph_message_callback": _capi.MessageCallback,
    "pumpgraph_progress_callback": _capi.ProgressCallback,
    "void": None,
}
HANDLES = ("pumpgraph_session", "pumpgraph_step", "void")


def ctypes_of(declaration):
    """The ctypes type of a C type; raises KeyError for one that the transcript has no word for."""
    stars = declaration.count("*")
    const = "const " in declaration
    base = declaration.replace("*", " ").replace("const ", "").strip()
    if stars == 0:
        return SCALARS[base]
    if base == "char":
        if stars == 1 and const:
            return c_char_p
        return c_void_p if stars == 1 else POINTER(c_void_p)
    if base in HANDLES:
        return c_void_p if stars == 1 else POINTER(c_void_p)
    pointed = SCALARS[base] if base in SCALARS else _capi.STRUCTURES[base]
    for _ in range(stars):
        pointed = POINTER(pointed)
    return pointed


def split_name(declaration):
    """`const char *name` to (`const char *`, `name`)."""
    match = re.fullmatch(r"(.*?[\s*])(\w+)", declaration.strip())
    return match.group(1).strip(), match.group(2)


def functions_of_header():
    functions = {}
    declaration = r"PUMPGRAPH_API ([\w\s*]+?)(pumpgraph_\w+)\(((?:[^()]|\([^()]*\))*)\)\s*;"
    for result, name, arguments in re.findall(declaration, header_text()):
        # `int (*record)(...)` is the one function pointer.
        arguments = re.sub(r"int \(\*(\w+)\)\([^()]*\)", r"RECORD \1", arguments)
        types = []
        if arguments.strip() != "void":
            for argument in arguments.split(","):
                declared = split_name(argument)[0]
                types.append(_capi.Record if declared == "RECORD" else ctypes_of(declared))
        functions[name] = (ctypes_of(result.strip()), types)
    return functions


def structures_of_header():
    structures = {}
    for name, body in re.findall(r"typedef struct (\w+) \{(.*?)\} \w+;", header_text()):
        fields = []
        for field in filter(None, (part.strip() for part in body.split(";"))):
            array = re.fullmatch(r"char (\w+)\[(\d+)\]", field)
            if array:
                fields.append((array.group(1), c_char * int(array.group(2))))
                continue
            declared, field_name = split_name(field)
            fields.append((field_name, ctypes_of(declared)))
        structures[name] = fields
    return structures


class Header(unittest.TestCase):
    def test_every_function(self):
        declared = functions_of_header()
        self.assertGreater(len(declared), 20, "the header was not understood")
        self.assertEqual(sorted(declared), sorted(_capi.FUNCTIONS))
        for name, signature in declared.items():
            with self.subTest(function=name):
                self.assertEqual(_capi.FUNCTIONS[name], signature)

    def test_every_structure(self):
        declared = structures_of_header()
        self.assertEqual(sorted(declared), sorted(_capi.STRUCTURES))
        for name, fields in declared.items():
            with self.subTest(structure=name):
                self.assertEqual(_capi.STRUCTURES[name]._fields_, fields)

    def test_every_status(self):
        body = re.search(r"typedef enum pumpgraph_status \{(.*?)\}", header_text()).group(1)
        declared = {name: int(value) for name, value in re.findall(r"PUMPGRAPH_(\w+) = (\d+)", body)}
        self.assertEqual(declared, {status.name: status.value for status in Status})


class Loading(support.FakeLibraryTest):
    def test_a_named_library_is_the_only_candidate(self):
        with mock.patch.dict(os.environ, PUMPGRAPH_LIBRARY="/nowhere/libpumpgraph.so"):
            with self.assertRaisesRegex(PumpGraphError, "looked at /nowhere/libpumpgraph.so; build it"):
                _capi.load()

    def test_a_named_library_is_loaded(self):
        with mock.patch.dict(os.environ, PUMPGRAPH_LIBRARY=str(self.path)):
            self.assertEqual(_capi.load().path, self.path.resolve())

    def test_a_checkout_is_found(self):
        with mock.patch.dict(os.environ):
            os.environ.pop("PUMPGRAPH_LIBRARY", None)
            self.assertIn(support.ROOT / "build" / "lib" / "libpumpgraph.so", _capi.candidates())

    def test_another_library_is_refused_by_the_function_it_lacks(self):
        libc = Path(ctypes.util.find_library("c") or "libc.so.6")
        with self.assertRaisesRegex(PumpGraphError, "no function pumpgraph_session_create"):
            _capi.Library(libc)

    def test_a_damaged_library_is_refused(self):
        with tempfile.NamedTemporaryFile(suffix=".so") as file:
            file.write(b"no library")
            file.flush()
            with self.assertRaisesRegex(PumpGraphError, "cannot be loaded"):
                _capi.Library(Path(file.name))

    def test_a_failed_call_carries_status_and_message(self):
        self.fail_next("torch_attach", Status.DRIVER_ERROR, "cuMemMap failed")
        with self.assertRaisesRegex(PumpGraphError, "^cuMemMap failed$") as caught:
            self.library.call("pumpgraph_torch_attach", None)
        self.assertEqual(caught.exception.status, Status.DRIVER_ERROR)

    def test_strings_are_copied_and_freed(self):
        self.assertEqual(self.library.doctor(), "no driver\n")
        self.assertEqual(self.calls(), ["string_free"])


class BuiltLibrary(unittest.TestCase):
    """The real library where it was built, on a machine without a driver or with one."""

    def setUp(self):
        built = os.environ.get("PUMPGRAPH_BUILT")
        if not built or not Path(built).is_file():
            self.skipTest("libpumpgraph.so was not built")
        self.library = _capi.Library(Path(built))

    def test_every_function_is_exported_and_the_doctor_answers(self):
        self.assertTrue(self.library.doctor().strip())


if __name__ == "__main__":
    unittest.main()
