#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes a source file with the access table of a CUDA source that another compiler compiles.

A kernel that has a name of the compiler's own there (internal linkage, a lambda's type) is not in the table. The build
goes on without a table if clang does not compile the source.
"""
import argparse
import json
import os
import re
import subprocess
import sys
import tempfile

OPS = {"+": 5, "-": 6, "*": 7, "/": 8, "min": 9, "max": 10}
PURITIES = [None, "apart", "always"]
MODES = {"none": 0, "read": 1, "write": 2, "readwrite": 3}
FLAGS = {"escapes": 1, "atomic": 2, "holds_pointers": 4, "unresolved": 8}
EXTENTS = ("begin", "end", "must_begin", "must_end")


def step(word):
    """The fields of a pumpgraph_extent_step."""
    if word in OPS:
        return (OPS[word], 0, 0, 0)
    if word.startswith(("grid.", "block.")):
        return (3 if word[0] == "g" else 4, 0, 0, "xyz".index(word[-1]))
    scalar = re.fullmatch(r"([iu])(\d+):(\d+)\+(\d+)", word)
    if scalar:
        return (1 if scalar[1] == "i" else 2, int(scalar[2]) // 8, int(scalar[3]), int(scalar[4]))
    return (0, 0, 0, int(word))


def unresolved(slot):
    return {"parameter": slot["parameter"], "offset": slot["offset"], "may": "readwrite", "unresolved": True}


def join_slots(left, right):
    modes = {bits: name for name, bits in MODES.items()}
    both = {"parameter": left["parameter"], "offset": left["offset"],
            "may": modes[MODES[left["may"]] | MODES[right["may"]]]}
    both.update({flag: True for flag in FLAGS if left.get(flag) or right.get(flag)})
    both.update({name: left[name] for name in ("begin", "end") if name in left and left[name] == right.get(name)})
    must = EXTENTS[2:]
    if all(left.get(name) == right.get(name) for name in must):
        both.update({name: left[name] for name in must if name in left})
    return both


def join(left, right):
    """What holds on either architecture."""
    places = [{(slot["parameter"], slot["offset"]): slot for slot in kernel["slots"]} for kernel in (left, right)]
    slots = []
    for place in sorted(set(places[0]) | set(places[1])):
        found = [side[place] for side in places if place in side]
        slots.append(join_slots(*found) if len(found) == 2 else unresolved(found[0]))
    return {"kernel": left["kernel"], "slots": slots,
            "other_memory": left.get("other_memory", False) or right.get("other_memory", False),
            "pure": min(left.get("pure"), right.get("pure"), key=PURITIES.index)}


def is_named_alike(name):
    """Whether other compilers give the kernel the same name."""
    return not (name.startswith("_ZL") or "_GLOBAL__N_" in name or re.search(r"U[lt]", name) or "__static__" in name or
                "__intern__" in name)


class Writer:
    def __init__(self):
        self.lines = []

    def array(self, kind, name, rows):
        """The name of an array of these rows, or a null pointer."""
        if not rows:
            return "0"
        self.lines.append(f"static const {kind} {name}[] = {{")
        self.lines += [f"  {row}," for row in rows]
        self.lines.append("};")
        return name

    def extent(self, name, expression):
        steps = [step(word) for word in expression.split()]
        rows = [f"{{{op}, {size}, 0, {parameter}, {value}}}" for op, size, parameter, value in steps]
        return f"{{{self.array('pumpgraph_extent_step', name, rows)}, {len(steps)}}}"

    def slot(self, name, slot):
        extents = [self.extent(f"{name}_{extent}", slot.get(extent, "")) for extent in EXTENTS]
        flags = sum(bit for flag, bit in FLAGS.items() if slot.get(flag))
        must = MODES["write"] if "must_end" in slot else 0
        return (f"{{{slot['parameter']}, {slot['offset']}, {MODES[slot['may']]}, {must}, {flags}, {{0}}, "
                f"{', '.join(extents)}}}")

    def kernel(self, name, kernel):
        slots = [self.slot(f"{name}_{index}", slot) for index, slot in enumerate(kernel["slots"])]
        flags = (1 if kernel.get("other_memory") else 0) | {None: 0, "always": 2, "apart": 4}[kernel.get("pure")]
        return (f"{{0, \"{kernel['kernel']}\", {self.array('pumpgraph_slot', name, slots)}, {len(slots)}, "
                f"{flags}, 0}}")

    def table(self, kernels):
        self.lines += ['#include "pumpgraph/access_table.h"', "#pragma weak pumpgraph_register_access_table",
                       "#pragma weak pumpgraph_unregister_access_table"]
        rows = [self.kernel(f"kernel{index}", kernel) for index, kernel in enumerate(kernels)]
        name = self.array("pumpgraph_kernel_accesses", "kernels", rows)
        self.lines.append('__attribute__((section("pumpgraph_access"))) static const pumpgraph_access_table table = '
                          f"{{PUMPGRAPH_ACCESS_TABLE_VERSION, 0, {name}, {len(rows)}}};")
        for attribute, function in (("constructor", "register"), ("destructor", "unregister")):
            self.lines.append(f"__attribute__(({attribute})) static void {attribute}_of_table(void) {{ "
                              f"if (pumpgraph_{function}_access_table) "
                              f"pumpgraph_{function}_access_table(&table); }}")


def analyse(options):
    """The kernels, joined over the architectures; None if the source does not compile."""
    with tempfile.TemporaryDirectory() as folder:
        found = os.path.join(folder, "found.json")
        # One compile an architecture: assembly of several cannot go into one file.
        results = {}
        for arch in options.arch:
            command = [options.clang, "-O2", "-w", "-Wno-unknown-cuda-version", "-fclang-abi-compat=17",
                       f"--cuda-gpu-arch={arch}", f"-fplugin={options.plugin}",
                       f"-fplugin-arg-pumpgraph-json={found}", "--cuda-device-only", "-S", "-o",
                       os.path.join(folder, "device.s"), "-MD", "-MF", options.depfile, "-MT", options.output,
                       *options.flags, options.source]
            if subprocess.run(command, check=False).returncode != 0:
                return None
            if not os.path.exists(found):
                continue
            with open(found, encoding="utf-8") as file:
                for kernel in map(json.loads, file):
                    results.setdefault(kernel["kernel"], []).append(kernel)
            os.remove(found)
    kernels = []
    for versions in results.values():
        kernel = versions[0]
        for other in versions[1:]:
            kernel = join(kernel, other)
        if len(versions) == len(options.arch):
            kernels.append(kernel)
    return kernels


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--clang", required=True)
    parser.add_argument("--plugin", required=True)
    parser.add_argument("--arch", action="append", required=True, help="sm_90; several may be given")
    parser.add_argument("--output", required=True)
    parser.add_argument("--depfile", required=True)
    parser.add_argument("source")
    parser.add_argument("flags", nargs="*", help="clang's, behind --")
    options = parser.parse_args()
    kernels = analyse(options)
    name = os.path.basename(options.source)
    if kernels is None:
        print(f"warning: pump_annotate: clang does not compile {name}: its kernels are unknown", file=sys.stderr)
        with open(options.depfile, "w", encoding="utf-8") as file:
            file.write(f"{options.output}: {options.source}\n")
    known = [kernel for kernel in kernels or [] if is_named_alike(kernel["kernel"])]
    if kernels and len(known) < len(kernels):
        print(f"pump_annotate: {name}: {len(kernels) - len(known)} of {len(kernels)} kernels are unknown: their names "
              "are the compiler's own")
    writer = Writer()
    if known:
        writer.table(known)
    else:
        writer.lines.append("typedef int noKernels;")
    with open(options.output, "w", encoding="utf-8") as file:
        file.write("\n".join(writer.lines) + "\n")


if __name__ == "__main__":
    main()
