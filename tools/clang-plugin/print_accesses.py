#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prints what -fplugin-arg-pumpgraph-json=FILE wrote, for people: a kernel a paragraph, a pointer a line.

With --launch the byte ranges are numbers instead of expressions: those of one launch, given as words like `grid=4,2`
`block=256` and `0=1000` (the scalar at the start of parameter 0) or `0+16=1000` (at byte 16 of it).
"""
import argparse
import json
import subprocess
import sys

LARGEST = 2**63 - 1
PURITIES = {None: "", "always": " (pure)", "apart": " (pure where slots lie apart)"}
BINARY = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "/": lambda a, b: a // b if b > 0 else None,
    "min": min,
    "max": max,
}


class Launch:
    """Dimensions and scalar parameters, by the words that expressions have for them."""

    def __init__(self, words):
        self.values = {}
        for kind in ("grid", "block"):
            self.values.update({f"{kind}.{axis}": 1 for axis in "xyz"})
        for word in words:
            name, _, value = word.partition("=")
            if name in ("grid", "block"):
                for axis, part in zip("xyz", value.split(",")):
                    self.values[f"{name}.{axis}"] = int(part)
            else:
                parameter, _, offset = name.partition("+")
                self.values[f"{parameter}+{offset or 0}"] = int(value)

    def value_of(self, word):
        """None if the launch does not have it."""
        kind, colon, place = word.partition(":")
        if not colon:
            return self.values.get(word) if word[0].isalpha() else int(word)
        value = self.values.get(place)
        if value is None:
            return None
        bits = int(kind[1:])
        value %= 1 << bits
        return value - (1 << bits) if kind[0] == "i" and value >> (bits - 1) else value


def evaluate(expression, launch):
    """The number an expression in postfix order stands for; None: unknown."""
    stack = []
    for word in expression.split():
        if word in BINARY:
            right, left = stack.pop(), stack.pop()
            stack.append(BINARY[word](left, right))
        else:
            stack.append(launch.value_of(word))
        if stack[-1] is None or not -LARGEST - 1 <= stack[-1] <= LARGEST:
            return None
    return stack.pop()


def infix(expression):
    stack = []
    for word in expression.split():
        if word not in BINARY:
            stack.append(word)
            continue
        right, left = stack.pop(), stack.pop()
        stack.append(f"{word}({left}, {right})" if word in ("min", "max") else f"({left} {word} {right})")
    return stack.pop()


def range_text(slot, begin, end, launch):
    """None: nothing is known."""
    if begin not in slot and end not in slot:
        return None
    texts = []
    for name in (begin, end):
        if name not in slot:
            texts.append(None)
        elif launch:
            texts.append(evaluate(slot[name], launch))
        else:
            texts.append(infix(slot[name]))
    return "[" + ", ".join("?" if text is None else str(text) for text in texts) + ")"


def slot_text(slot, launch):
    words = [slot["may"]]
    accessed = range_text(slot, "begin", "end", launch)
    if accessed:
        words.append(accessed)
    overwritten = range_text(slot, "must_begin", "must_end", launch)
    if overwritten:
        words.append("overwrites " + overwritten)
    flags = ("escapes", "atomic", "holds_pointers", "unresolved")
    words += [flag.replace("_", " ") for flag in flags if slot.get(flag)]
    place = f"parameter {slot['parameter']}" + (f" at byte {slot['offset']}" if slot["offset"] else "")
    return f"  {place}: {' '.join(words)}"


def demangle(names):
    try:
        text = subprocess.run(["c++filt"], input="\n".join(names), capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return names
    return text.split("\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("file", nargs="?", default="-", help="what the plugin wrote (default: standard input)")
    parser.add_argument("--launch", help="the launch that byte ranges are for")
    arguments = parser.parse_args()
    launch = Launch(arguments.launch.split()) if arguments.launch else None
    with sys.stdin if arguments.file == "-" else open(arguments.file, encoding="utf-8") as file:
        kernels = [json.loads(line) for line in file if line.startswith("{")]
    for kernel, name in zip(kernels, demangle([kernel["kernel"] for kernel in kernels])):
        print(name + (" (other memory too)" if kernel.get("other_memory") else "") + PURITIES[kernel.get("pure")])
        for slot in kernel["slots"]:
            print(slot_text(slot, launch))


if __name__ == "__main__":
    main()
