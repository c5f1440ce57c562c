# SPDX-License-Identifier: Apache-2.0
"""Runs kernels on the host in random launches and compares what they touch with what the plugin found.

usage: emulate.py ACCESSES.json KERNELS.so [LAUNCHES]
"""
import ctypes
import json
import os
import random
import re
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), *[".."] * 3, "tools", "clang-plugin"))
from print_accesses import Launch, demangle, evaluate  # noqa: E402

HALF = 1 << 15  # bytes on either side of the address that a kernel gets
SCALARS = {
    "int": ctypes.c_int32,
    "unsigned int": ctypes.c_uint32,
    "unsigned long": ctypes.c_uint64,
    "unsigned char": ctypes.c_uint8,
    "short": ctypes.c_int16,
}


class Kernel:
    def __init__(self, entry, name, library):
        self.name = name[: name.index("(")]
        self.parameters = re.split(", ", name[name.index("(") + 1 : -1])
        self.slots = {slot["parameter"]: slot for slot in entry["slots"]}
        self.is_pure = entry.get("pure") == "apart"
        self.function = library["run_" + self.name]
        self.set_backwards = library.set_backwards

    def run(self, grid, block, scalars, contents):
        """The contents of every buffer after a launch on these."""
        buffers = {index: ctypes.create_string_buffer(content, len(content)) for index, content in contents.items()}
        values = []
        for index, kind in enumerate(self.parameters):
            if index in buffers:
                values.append(ctypes.c_void_p(ctypes.addressof(buffers[index]) + HALF))
            else:
                values.append(SCALARS[kind](scalars[index]))
        arguments = (ctypes.c_void_p * len(values))(*(ctypes.addressof(value) for value in values))
        self.function((ctypes.c_uint * 3)(*grid), (ctypes.c_uint * 3)(*block), arguments)
        return {index: buffer.raw for index, buffer in buffers.items()}


def random_content(source):
    return source.randbytes(2 * HALF)


def changed(before, after):
    return {i - HALF for i in range(2 * HALF) if before[i] != after[i]} if before != after else set()


def range_of(slot, begin, end, launch, nothing):
    """Places from the address on; `nothing` where it is not known."""
    values = [evaluate(slot[name], launch) if name in slot else None for name in (begin, end)]
    low = -HALF if values[0] is None else max(-HALF, values[0])
    high = HALF if values[1] is None else min(HALF, values[1])
    if nothing and None in values:
        return range(0)
    return range(low, high)


class Wrong(Exception):
    pass


def check(kernel, source, statistics):
    is_flat = source.random() < 0.6
    grid = [source.randint(1, 4), 1 if is_flat else source.randint(1, 3), 1 if is_flat else source.randint(1, 3)]
    block = [source.randint(1, 9), 1 if is_flat else source.randint(1, 5), 1]
    scalars = {
        # The first may be negative; a width or a pitch that is would lead out of the buffer.
        index: source.choice([0, 1, 2, 3, 4, 7, 8, 12, 16, 25, 33] +
                             ([-1, -3] if index == 0 and kind in ("int", "short") else []))
        for index, kind in enumerate(kernel.parameters)
        if kind in SCALARS
    }
    if len(scalars) > 3:  # strides that fit are rare
        rows, columns = scalars[0], scalars[1]
        row_stride, matrix_stride = source.choice(
            [(columns, rows * columns), (columns * grid[2], columns), (columns, 0), (scalars[2], scalars[3])])
        scalars |= {2: row_stride, 3: matrix_stride}
    launch = Launch([f"grid={','.join(map(str, grid))}", f"block={','.join(map(str, block))}"] +
                    [f"{index}={value}" for index, value in scalars.items()])
    pointers = [index for index, kind in enumerate(kernel.parameters) if kind not in SCALARS]
    contents = {index: random_content(source) for index in pointers}
    results = kernel.run(grid, block, scalars, contents)

    written = [kernel.slots[index] for index in pointers if kernel.slots[index]["may"] in ("write", "readwrite")]
    is_known = all(name in slot and evaluate(slot[name], launch) is not None for slot in written
                   for name in ("begin", "end"))
    if kernel.is_pure and is_known:
        kernel.set_backwards(ctypes.c_bool(True))
        others = kernel.run(grid, block, scalars, contents)
        kernel.set_backwards(ctypes.c_bool(False))
        if results != others:
            raise Wrong(f"{kernel.name} grid {grid} block {block} scalars {scalars}: the order of threads shows")
        statistics["pure"] += 1

    for index in pointers:
        slot = kernel.slots[index]
        may = range_of(slot, "begin", "end", launch, nothing=False)
        must = range_of(slot, "must_begin", "must_end", launch, nothing=True)

        def wrong(text):
            raise Wrong(f"{kernel.name} grid {grid} block {block} scalars {scalars} parameter {index}: {text}: {slot}")

        # The buffer's other bytes are others; if it is not read, all are.
        is_read = slot["may"] in ("read", "readwrite")
        other = bytearray(random_content(source))
        if is_read:
            for place in may:
                other[place + HALF] = contents[index][place + HALF]
        others = kernel.run(grid, block, scalars, {**contents, index: bytes(other)})
        touched = changed(contents[index], results[index]) | changed(bytes(other), others[index])
        if touched and slot["may"] in ("none", "read"):
            wrong(f"writes {min(touched)}")
        if not touched <= set(may):
            wrong(f"writes {min(touched - set(may))} outside {may}")
        for peer in pointers:
            compared = touched if peer == index else range(-HALF, HALF)
            if peer != index and results[peer] == others[peer]:
                continue
            for place in compared:
                if results[peer][place + HALF] != others[peer][place + HALF]:
                    wrong(f"reads what it should not: {peer} differs at {place}")
        for place in must:
            if place + HALF >= 2 * HALF or (place not in touched and
                                            results[index][place + HALF] != others[index][place + HALF]):
                wrong(f"does not overwrite {place} of {must}")
        statistics["overwrites"] += len(must) > 0
        statistics["bounded"] += len(may) < 2 * HALF
        statistics["slots"] += 1


def main():
    accesses, library, launches = sys.argv[1], ctypes.CDLL(sys.argv[2]), int((sys.argv[3:] or [40])[0])
    with open(accesses, encoding="utf-8") as file:
        entries = [json.loads(line) for line in file]
    names = demangle([entry["kernel"] for entry in entries])
    statistics = dict.fromkeys(("overwrites", "bounded", "slots", "pure"), 0)
    failures = 0
    for entry, name in zip(entries, names):
        kernel = Kernel(entry, name, library)
        source = random.Random(kernel.name)
        own = dict.fromkeys(statistics, 0)
        try:
            for _ in range(launches * (4 if len(kernel.parameters) > 4 else 1)):
                check(kernel, source, own)
        except Wrong as error:
            print(f"wrong: {error}")
            failures += 1
        print(f"{kernel.name}: {own['bounded']} of {own['slots']} slots bounded, {own['overwrites']} overwritten; "
              f"{own['pure']} launches pure")
        for key in statistics:
            statistics[key] += own[key]
    print(f"{len(entries)} kernels, {failures} wrong; {statistics['bounded']} of {statistics['slots']} slots bounded, "
          f"{statistics['overwrites']} overwritten; {statistics['pure']} launches pure")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
