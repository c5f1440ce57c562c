#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Reads libpumpgraph.so's symbols: what it shows, what it needs, which C library can load it."""

import re
import subprocess
import sys

ALLOWED_LIBRARIES = {"libc.so.6", "libm.so.6", "libstdc++.so.6", "libgcc_s.so.1", "ld-linux-x86-64.so.2"}
OLDEST_GLIBC = (2, 35)


def output(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def declared(headers):
    names = set()
    for header in headers:
        with open(header, encoding="utf-8") as file:
            names |= set(re.findall(r"^(?:PUMPGRAPH_API|void) [^;]*?\b(pumpgraph_\w+)\(", file.read(), re.MULTILINE))
    return names


def main(library, *headers):
    problems = []
    symbols = [line.split()[-1].partition("@@") for line in output("nm", "-D", "--defined-only", library).splitlines()
               if " A " not in line]
    exported = {name for name, _, _ in symbols}
    interface = ".".join(re.search(r"\.so\.(\d+)\.(\d+)", library).groups())
    problems += [f"{name} has version {version}, not PUMPGRAPH_{interface}" for name, _, version in symbols
                 if version != f"PUMPGRAPH_{interface}"]
    if f"[libpumpgraph.so.{interface}]" not in output("readelf", "-d", library):
        problems.append(f"its name is not libpumpgraph.so.{interface}")
    promised = declared(headers)
    problems += [f"{name} is exported and in no header" for name in sorted(exported - promised)]
    problems += [f"{name} is in a header and not exported" for name in sorted(promised - exported)]

    needed = set(re.findall(r"\(NEEDED\).*\[(.*)\]", output("readelf", "-d", library)))
    problems += [f"{name} is needed" for name in sorted(needed - ALLOWED_LIBRARIES)]

    for version in set(re.findall(r"GLIBC_(\d+(?:\.\d+)+)", output("readelf", "-V", library))):
        if tuple(map(int, version.split("."))) > OLDEST_GLIBC:
            problems.append(f"a symbol of glibc {version} is needed")

    undefined = output("nm", "-D", "--undefined-only", library)
    foreign = re.findall(r"\b(cu[A-Z]\w+|cuda\w+|_ZN4llvm\w+|_ZN4mlir\w+)", undefined)
    problems += [f"undefined: {name}" for name in foreign]

    if not promised:
        problems.append("the headers declare nothing")
    print("\n".join(problems) or f"{len(exported)} symbols, as promised")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
