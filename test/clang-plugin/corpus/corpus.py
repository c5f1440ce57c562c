#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares what the plugin finds in the corpus's kernels with their true modes (slots.txt).

A slot is right if its mode is the true one, conservative if it says more (unresolved and missing slots too), wrong if
it says less, or if it says that bytes are overwritten that need not be. Exits with 1 if a slot is wrong or a quota is
exceeded.

With --observed it compares the true modes themselves with what the kernels were seen to do on a GPU, as
`observe_corpus --json FILE` wrote it down.
"""
import argparse
import json
import os
import re
import subprocess
import sys
import tempfile

FOLDER = os.path.dirname(os.path.abspath(__file__))
REPOSITORY = os.path.dirname(os.path.dirname(os.path.dirname(FOLDER)))
sys.path.insert(0, os.path.join(REPOSITORY, "tools", "clang-plugin"))
from print_accesses import demangle  # noqa: E402

MODES = {"none": 0, "read": 1, "write": 2, "readwrite": 3}
CCCL = ("cub.cu", "thrust.cu")
QUOTAS = {"CCCL": 0.25, "rest": 0.05}  # conservative slots


class TrueSlot:
    def __init__(self, words):
        parameter, _, offset = words[0].partition("+")
        self.place = (int(parameter), int(offset or 0))
        self.mode = words[1]
        self.is_overwritten = words[2:] == ["!"]


def read_truth():
    """[(source, [(pattern, [slot])])]"""
    sources = []
    with open(os.path.join(FOLDER, "slots.txt"), encoding="utf-8") as file:
        for line in file:
            words = line.split()
            if not words or words[0] == "#":
                continue
            if line.startswith("  "):
                sources[-1][1][-1][1].append(TrueSlot(words))
            elif words[0].endswith(".cu"):
                sources.append((words[0], []))
            else:
                sources[-1][1].append((line.strip(), []))
    return sources


def expression_of(pattern):
    """`*` stands for any text; a pointer's own star is written `\\*`."""
    parts = re.split(r"(?<!\\)\*", pattern)
    return ".*".join(re.escape(part.replace("\\*", "*")) for part in parts)


def find_accesses(source, options, level):
    """{demangled name: slots by place}"""
    with tempfile.TemporaryDirectory() as folder:
        found = os.path.join(folder, "found.json")
        subprocess.run([options.clang, "-std=c++20", f"-{level}", f"--cuda-path={options.cuda}",
                        f"--cuda-gpu-arch={options.arch}", "-Wno-unknown-cuda-version", "-w",
                        "-isystem", f"{options.cuda}/include/cccl", f"-fplugin={options.plugin}",
                        f"-fplugin-arg-pumpgraph-json={found}", "--cuda-device-only", "-S", "-o", os.devnull,
                        os.path.join(FOLDER, source)], check=True)
        with open(found, encoding="utf-8") as file:
            kernels = [json.loads(line) for line in file]
    names = demangle([kernel["kernel"] for kernel in kernels])
    return {name: {(slot["parameter"], slot["offset"]): slot for slot in kernel["slots"]}
            for name, kernel in zip(names, kernels)}


def judge(true, found):
    """(verdict, whether a true overwriting was found or None)"""
    if found is None:
        return "conservative", False if true.is_overwritten else None
    said, is_said = MODES[found["may"]], "must_end" in found
    missing = MODES[true.mode] & ~said
    if missing or (is_said and not true.is_overwritten):
        return "wrong", None
    verdict = "right" if said == MODES[true.mode] else "conservative"
    return verdict, is_said if true.is_overwritten else None


class Tally:
    def __init__(self):
        self.verdicts = dict.fromkeys(("right", "conservative", "wrong"), 0)
        self.overwritten = self.overwritten_found = 0

    def add(self, verdict, overwrites):
        self.verdicts[verdict] += 1
        self.overwritten += overwrites is not None
        self.overwritten_found += overwrites is True

    def total(self):
        return sum(self.verdicts.values())

    def __str__(self):
        return (f"{self.total():4} slots: " + ", ".join(f"{count} {name}" for name, count in self.verdicts.items()) +
                f"; overwritten for certain: {self.overwritten_found} of {self.overwritten} found")


def compare(source, kernels, level, options, tally):
    found = find_accesses(source, options, level)
    for pattern, slots in kernels:
        names = [name for name in found if re.fullmatch(expression_of(pattern), name)]
        if len(names) != 1:
            sys.exit(f"{source}: {len(names)} kernels are called {pattern}")
        accesses = found.pop(names[0])
        for slot in slots:
            own = accesses.pop(slot.place, None)
            verdict, overwrites = judge(slot, own)
            tally.add(verdict, overwrites)
            if options.all or verdict != "right":
                said = own["may"] if own else "no slot"
                print(f"  -{level} {source} {pattern} {slot.place[0]}+{slot.place[1]}: {verdict}: {slot.mode} "
                      f"is said to be {said}" + (", overwritten" if own and "must_end" in own else ""))
        # An index that is not known may name words that hold no address.
        for place in accesses:
            print(f"  -{level} {source} {pattern} {place[0]}+{place[1]}: no slot by its type")
    if rest := [name for name in found if "EmptyKernel" not in name]:
        sys.exit(f"{source}: slots.txt lacks {rest}")


def compare_observed(path):
    """Whether no kernel was seen to do what its true modes exclude. Kernels of the same name in several sources may do
    what any of these says."""
    with open(path, encoding="utf-8") as file:
        seen = [json.loads(line) for line in file]
    names = demangle([slot["kernel"] for slot in seen])
    patterns = [(expression_of(pattern), slots) for _, kernels in read_truth() for pattern, slots in kernels]
    counts = dict.fromkeys(("as written", "less", "open", "more"), 0)
    for slot, name in zip(seen, names):
        place = (slot["parameter"], slot["offset"])
        alike = {tuple(other) for other in slot.get("same_address", [])} | {place}
        known = [one for pattern, slots in patterns if re.fullmatch(pattern, name) for one in slots]
        true = [one for one in known if one.place in alike]
        if place not in {one.place for one in true}:
            continue
        mode = 0
        for one in true:
            mode |= MODES[one.mode]
        is_seen = MODES[slot["seen"]]
        if is_seen & ~mode:
            verdict = "more"
        elif is_seen == mode:
            verdict = "as written"
        else:
            verdict = "open" if mode & ~is_seen & ~MODES[slot["not_seen"]] else "less"
        counts[verdict] += 1
        if verdict != "as written":
            words = [word for word, bit in MODES.items() if bit == mode]
            print(f"  {verdict}: {name[:100]} {place[0]}+{place[1]}: {words[0]} is seen to be {slot['seen']}")
    print(f"{sum(counts.values())} slots of launched kernels: " +
          ", ".join(f"{count} {verdict}" for verdict, count in counts.items()))
    return counts["more"] == 0 and counts["as written"] > 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--plugin", help="libPumpGraphAnnotate.so")
    parser.add_argument("--observed", metavar="FILE", help="what observe_corpus wrote down")
    parser.add_argument("--clang", default="clang++-22")
    parser.add_argument("--cuda", default="/usr/local/cuda", help="CUDA toolkit")
    parser.add_argument("--arch", default="sm_90")
    parser.add_argument("--levels", default="O2", help="optimisation levels, such as O0,O2")
    parser.add_argument("--all", action="store_true", help="list the slots that are right as well")
    parser.add_argument("sources", nargs="*", help="some of the corpus only, such as hard.cu")
    options = parser.parse_args()
    if options.observed:
        return 0 if compare_observed(options.observed) else 1
    if not options.plugin:
        parser.error("--plugin or --observed is needed")
    tallies = {"CCCL": Tally(), "rest": Tally()}
    for level in options.levels.split(","):
        for source, kernels in read_truth():
            if options.sources and source not in options.sources:
                continue
            tally = Tally()
            compare(source, kernels, level, options, tally)
            print(f"-{level} {source:15} {tally}")
            whole = tallies["CCCL" if source in CCCL else "rest"]
            for name, count in tally.verdicts.items():
                whole.verdicts[name] += count
            whole.overwritten += tally.overwritten
            whole.overwritten_found += tally.overwritten_found
    failed = False
    for name, tally in tallies.items():
        if not tally.total():
            continue
        print(f"{name:19} {tally}")
        failed |= tally.verdicts["wrong"] > 0
        failed |= tally.verdicts["conservative"] > QUOTAS[name] * tally.total()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
