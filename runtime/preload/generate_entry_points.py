#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the table of the driver's entry points, and the functions that stand in for them, from cuda.h.

entry_points.txt gives each call its class. A call whose name or parameters say that it has to do with memory, launches,
captures or executable graphs, and that the file does not name, is an error.
"""

import argparse
import re
import subprocess
import sys
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

CLASSES = ("allocates", "frees", "maps", "informs", "copies", "launches", "orders", "captures", "instantiates", "finds",
           "contexts", "hides", "reaches", "shares", "other")
# Calls that need a class.
NAMES = re.compile(r"Alloc|Free|Memcpy|Memset|Launch|Capture|Instantiate|ExecUpdate|MemCreate|MemMap|MemUnmap|Discard|"
                   r"Prefetch|SetParams|Ipc(Get|Open)|Export|Import|Shareable|Multicast|ArrayCreate|ArrayDestroy|"
                   r"Array3DCreate|PeerAccess$|CtxCreate|CtxDestroy|CtxReset|GetProcAddress")
TYPES = re.compile(r"\bCUstream\b|\bCUdeviceptr(_v1)?\b|\bCUgraphExec\b")
QUESTIONS = re.compile(r"CanAccessPeer|GraphExec(Destroy|GetFlags)")


class Problem(Exception):
    """Of cuda.h or entry_points.txt; the text says where."""


@dataclass
class Symbol:
    """An exported function of libcuda."""

    name: str
    parameters: list  # of (type, name, suffix of an array)
    versions: list = field(default_factory=list)  # (name, version) that cuGetProcAddress finds it by

    @property
    def base(self):
        return re.sub(r"_v\d$", "", self.plain)

    @property
    def plain(self):
        return re.sub(r"_pt[sd][sz]$", "", self.name)

    @property
    def per_thread(self):
        return self.plain != self.name

    @property
    def order(self):
        version = re.search(r"_v(\d)$", self.plain)
        return int(version[1]) if version else 1


def preprocess(compiler, include, header):
    command = [*compiler, "-x", "c++", "-E", "-P", "-D__CUDA_API_VERSION_INTERNAL", f"-I{include}", "-"]
    result = subprocess.run(command, input=f"#include <{header}>\n", stdout=subprocess.PIPE, text=True, check=True)
    return result.stdout


def split(text):
    parameters = []
    for index, part in enumerate(text.split(",")):
        part = " ".join(part.split())
        if part in ("", "void"):
            continue
        match = re.fullmatch(r"(.*[\s*])(\w+)((?:\[\d*\])*)", part)
        if match and match[1].strip() not in ("const", "unsigned", "struct"):
            parameters.append((match[1].strip(), match[2], match[3]))
        else:
            parameters.append((part, f"argument{index}", ""))
    return parameters


def read_symbols(text):
    found = re.findall(r"\bCUresult\s+(cu[A-Z]\w*)\s*\(([^;]*?)\)\s*;", text)
    return {name: Symbol(name, split(parameters)) for name, parameters in found}


def read_versions(text):
    """By name and suffix, the versions of each signature, ascending."""
    versions = defaultdict(list)
    for name, version, suffix in re.findall(r"\*\s*PFN_(cu[A-Z]\w*?)_v(\d+)(_pt[sd][sz])?\)", text):
        versions[name, bool(suffix)].append(int(version))
    return {key: sorted(set(found)) for key, found in versions.items()}


def join(symbols, versions, aliases):
    """The k-th signature of a name is the k-th symbol of that name; the compiler compares their types."""
    by_name = defaultdict(list)
    for symbol in symbols.values():
        by_name[symbol.base, symbol.per_thread].append(symbol)
    for key, found in by_name.items():
        for symbol, version in zip(sorted(found, key=lambda symbol: symbol.order), versions.get(key, [])):
            symbol.versions.append((key[0], version))
    for name, version, target in aliases:
        if target not in symbols:
            raise Problem(f'entry_points.txt: "{target}" is no symbol of cuda.h')
        symbols[target].versions.append((name, int(version)))


def read_classes(path):
    classes, aliases = {}, []
    for number, line in enumerate(path.read_text().splitlines(), 1):
        line = line.split("#")[0].strip()
        if not line:
            continue
        kind, _, rest = line.partition(":")
        if kind == "alias":
            aliases.append(rest.split())
            continue
        if kind not in CLASSES:
            raise Problem(f'{path}:{number}: "{kind}" is no class; there are {", ".join(CLASSES)}')
        for name in rest.split():
            if name in classes:
                raise Problem(f"{path}:{number}: {name} has the class {classes[name]} already")
            classes[name] = kind
    return classes, aliases


def needs_class(symbol):
    types = ", ".join(kind for kind, _, _ in symbol.parameters)
    return bool(NAMES.search(symbol.base) or TYPES.search(types)) and not QUESTIONS.search(symbol.base)


def unclassified(symbols, classes):
    return sorted({symbol.base for symbol in symbols.values() if symbol.base not in classes and needs_class(symbol)})


def check(symbols, classes, path):
    missing = unclassified(symbols, classes)
    if missing:
        raise Problem(f"{path}: no class for {', '.join(missing)}: what each does says which (the file's comments)")


def is_ancient(symbol, versions):
    """Whether CUDA 3.2 replaced it, with addresses and sizes of 64 bits."""
    return (symbol.base, 2000) in symbol.versions and 3020 in versions.get((symbol.base, symbol.per_thread), [])


def seen(symbols, classes):
    return [symbol for _, symbol in sorted(symbols.items())
            if classes.get(symbol.base, "other") != "other" or symbol.base == "cuGetProcAddress"]


def write_table(file, symbols, classes):
    """PUMPGRAPH_TAG(name), PUMPGRAPH_ENTRY(symbol, name, class, perThread) and PUMPGRAPH_VERSION(symbol, name, version,
    perThread)."""
    file.write("// Written by generate_entry_points.py.\n")
    for name in sorted({symbol.base for symbol in seen(symbols, classes)}):
        file.write(f"PUMPGRAPH_TAG({name})\n")
    for symbol in seen(symbols, classes):
        kind = "other" if symbol.base == "cuGetProcAddress" else classes[symbol.base]
        file.write(f"PUMPGRAPH_ENTRY({symbol.name}, {symbol.base}, {kind.capitalize()}, "
                   f"{str(symbol.per_thread).lower()})\n")
    for symbol in seen(symbols, classes):
        for name, version in symbol.versions:
            file.write(f"PUMPGRAPH_VERSION({symbol.name}, {name}, {version}, {str(symbol.per_thread).lower()})\n")


def write_known(file, symbols, classes):
    """The names that reach the driver unseen, sorted."""
    file.write("// Written by generate_entry_points.py.\n")
    names = {symbol.base for symbol in symbols.values()} - {symbol.base for symbol in seen(symbols, classes)}
    for name in sorted(names):
        file.write(f'"{name}",\n')


def write_wrappers(file, symbols, classes, versions):
    file.write("// Written by generate_entry_points.py.\n")
    for symbol in seen(symbols, classes):
        if symbol.base == "cuGetProcAddress":
            continue
        declared = ", ".join(f"{kind} {name}{array}" for kind, name, array in symbol.parameters)
        passed = "".join(f", {name}" for _, name, _ in symbol.parameters)
        tag = "Ancient" if is_ancient(symbol, versions) else symbol.base
        real = f"Real<decltype(&::{symbol.name})>(Symbol::{symbol.name})"
        file.write(f"CUresult {symbol.name}({declared}) {{\n  const CleanStack clean;\n"
                   f"  return Hook<tag::{tag}>::call({real}{passed});\n}}\n")
    for symbol in symbols.values():
        suffix = re.search(r"_pt[sd][sz]$", symbol.name)
        for name, version in symbol.versions:
            if name == symbol.base:
                type_name = f"PFN_{name}_v{version}{suffix[0] if suffix else ''}"
                file.write(f"static_assert(std::is_same_v<{type_name}, decltype(&::{symbol.name})>);\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--include", required=True, help="the folder of cuda.h")
    parser.add_argument("--classes", type=Path, required=True, help="entry_points.txt")
    parser.add_argument("--out", type=Path, required=True, help="the folder for what is written")
    parser.add_argument("compiler", nargs="+", help="the C++ compiler, to preprocess")
    arguments = parser.parse_args()
    symbols = read_symbols(preprocess(arguments.compiler, arguments.include, "cuda.h"))
    versions = read_versions(preprocess(arguments.compiler, arguments.include, "cudaTypedefs.h"))
    try:
        classes, aliases = read_classes(arguments.classes)
        check(symbols, classes, arguments.classes)
        join(symbols, versions, aliases)
    except Problem as problem:
        sys.exit(f"error: {problem}")
    arguments.out.mkdir(parents=True, exist_ok=True)
    with (arguments.out / "EntryPoints.inc").open("w") as file:
        write_table(file, symbols, classes)
    with (arguments.out / "KnownNames.inc").open("w") as file:
        write_known(file, symbols, classes)
    with (arguments.out / "Wrappers.inc").open("w") as file:
        write_wrappers(file, symbols, classes, versions)
    return 0


if __name__ == "__main__":
    sys.exit(main())
