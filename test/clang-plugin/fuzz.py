#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draws kernels that pass addresses through chains of steps, and compares what the plugin says of them with the truth.

Each kernel takes one to three addresses, from its parameters or from memory that they lead to, through random steps:
inline PTX in many spellings, halves and quarters, built-in functions, shuffles, shared memory, unions, local arrays,
functions, loops, selections. Every step keeps the value, so the access at the end of the chain is known. A claim that
says less than that is unsound, and the run fails. Claims that say more are counted.

The same seed draws the same kernels. `--understate` makes every claim too small, to see that the run then fails.
"""
import argparse
import collections
import json
import os
import random
import re
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from typing import Callable, Dict, FrozenSet, List, NamedTuple, Optional, Sequence, Set, Tuple

FOLDER = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(FOLDER, "..", "..", "tools", "clang-plugin"))
from print_accesses import Launch, evaluate  # noqa: E402

MODES = {"none": 0, "read": 1, "write": 2, "readwrite": 3}
KERNELS_PER_FILE = 40
LAUNCHES = (1, 5)  # the number that every kernel gets, in the launches that byte ranges are compared for

PRELUDE = """
using Address = unsigned long long;
struct Halves { unsigned low, high; };
struct Span { float *data; int count; };
struct Pair { Address first, second; };
union Words { Address whole; unsigned halves[2]; unsigned short quarters[4]; unsigned char bytes[8]; double number; };
__device__ __noinline__ Address passOn(Address a, int n) { return n == 77 ? a + 1 : a; }
struct Table { int count; float *data[4]; };
__device__ Address global[2];
extern __shared__ Address dynamic[];
__device__ __noinline__ Halves split(Address a) { return {unsigned(a), unsigned(a >> 32)}; }
__device__ __noinline__ Address join(Halves h) { return Address(h.high) << 32 | h.low; }
__device__ __noinline__ unsigned passHalf(unsigned h, int n) { return n == 77 ? h + 1 : h; }
__device__ __noinline__ Span spanOf(Address a, int n) { return {reinterpret_cast<float *>(a), n}; }
__device__ __noinline__ Address startOf(const Span &span) { return reinterpret_cast<Address>(span.data); }
__device__ __noinline__ unsigned byteOf(Address a) { return a & 255; }
__device__ __noinline__ void put(Address *to, int n, Address a) { to[n & 1] = a; to[~n & 1] = a; }
__device__ __noinline__ Address get(const Address *from, int n) { return from[n & 1]; }
__device__ __noinline__ Address deeper(Address a, int depth) { return depth <= 0 ? a : deeper(a, depth - 1); }
__device__ __noinline__ Address fetch(const Address *table, int n) { return table[n]; }
__device__ __noinline__ void fetchInto(Address *to, const Address *table) { to[0] = table[0]; to[1] = table[0]; }
"""


class Origin(NamedTuple):
    """What a value may be: a slot's own address, or one loaded from memory that the slot leads to."""

    slot: Tuple[int, int]  # parameter and offset
    is_loaded: bool


class Need:
    """The least that may be said of a slot."""

    def __init__(self) -> None:
        self.mode = 0
        self.atomic = self.escapes = self.holds_pointers = False
        # (mode, offset or None, bytes, whether it runs for certain by the kernel's number)
        self.accesses: List[Tuple[int, Optional[int], int, Callable[[int], bool]]] = []


class Value(NamedTuple):
    name: str  # of an Address in the kernel's text
    origins: FrozenSet[Origin]
    offset: Optional[int]  # from each origin, in bytes


class Kernel:
    """The text of one kernel, and the truth about it."""

    def __init__(self, name: str, seed: str) -> None:
        self.name = name
        self.random = random.Random(seed)
        self.lines: List[str] = []
        self.parameters = ["int n", "float *out"]
        self.needs: Dict[Tuple[int, int], Need] = {(1, 0): Need()}
        self.steps: List[str] = []
        self.indent = "  "
        self.names = 0

    # -- text

    def fresh(self, prefix: str = "v") -> str:
        self.names += 1
        return f"{prefix}{self.names}"

    def line(self, text: str) -> None:
        self.lines.append(self.indent + text)

    def pick(self, *choices):
        return self.random.choice(choices)

    def let(self, expression: str, kind: str = "Address") -> str:
        name = self.fresh()
        self.line(f"{kind} {name} = {expression};")
        return name

    def asm(self, statements: Sequence[str], outputs: Sequence[Tuple[str, str]] = (),
            inputs: Sequence[Tuple[str, str]] = (), registers: Sequence[Tuple[str, str]] = (),
            memory: bool = False) -> None:
        """`statements` without semicolons; `registers`, as (type, name), are declared, and named `$name` there."""
        declared = [f".reg .{kind} ${name}" for kind, name in registers]
        blank = self.pick(" ", " ", "\\n\\t", "\\n", " /* st.global.f32 [x], y; */ ", " // mov.u64 a, b;\\n")
        body = "".join(f"{statement};{blank}" for statement in [*declared, *statements])
        if declared or self.random.random() < 0.2:
            body = "{" + self.pick("", " ", "\\n\\t") + body + "}"
        if self.random.random() < 0.15:
            body = "LABEL%=:" + blank + body
        names = {}

        def rename(match: "re.Match[str]") -> str:
            if match[1] not in names:
                names[match[1]] = self.pick("", "%%", "_", "%%rd") + self.fresh(match[1])
            return names[match[1]]

        body = re.sub(r"\$([a-z]+)", rename, body)
        if memory or not outputs or self.random.random() < 0.3:
            head = "asm volatile"
        else:
            head = "asm"
        out = ", ".join(f'"{constraint}"({name})' for constraint, name in outputs)
        into = ", ".join(f'"{constraint}"({name})' for constraint, name in inputs)
        clobber = ' : "memory"' if memory else ""
        self.line(f'{head}("{body}" : {out} : {into}{clobber});')

    def declare(self, kind: str, *hints: str) -> List[str]:
        names = [self.fresh(hint) for hint in hints]
        self.line(f"{kind} {', '.join(names)};")
        return names

    # -- truth

    def parameter(self, declaration: str) -> int:
        self.parameters.append(declaration)
        return len(self.parameters) - 1

    def need(self, slot: Tuple[int, int]) -> Need:
        return self.needs.setdefault(slot, Need())

    def access(self, value: Value, mode: int, size: int, atomic: bool = False, offset: int = 0,
               runs: Callable[[int], bool] = lambda n: True) -> None:
        for origin in value.origins:
            need = self.need(origin.slot)
            need.mode |= mode
            need.atomic |= atomic
            need.holds_pointers |= origin.is_loaded
            is_known = value.offset is not None and not origin.is_loaded
            certain = runs if len(value.origins) == 1 else lambda n: False
            need.accesses.append((mode, value.offset + offset if is_known else None, size, certain))

    def write_out(self, expression: str) -> None:
        """Uses a number, so that it counts."""
        place = sum(1 for access in self.need((1, 0)).accesses if access[0] == 2)
        self.line(f"out[{place}] = {expression};")
        self.access(Value("", frozenset([Origin((1, 0), False)]), place * 4), 2, 4)

    def text(self) -> str:
        return f"__global__ void {self.name}({', '.join(self.parameters)}) {{\n" + "\n".join(self.lines) + "\n}\n"


# ---------------------------------------------------------------- steps on whole addresses

WHOLE: List[Callable[[Kernel, str], str]] = []
SPLIT: List[Callable[[Kernel, str], Tuple[str, str]]] = []
HALF: List[Callable[[Kernel, str], str]] = []
BOTH: List[Callable[[Kernel, str, str], Tuple[str, str]]] = []
JOIN: List[Callable[[Kernel, str, str], str]] = []


def whole(step):
    WHOLE.append(step)
    return step


def split(step):
    SPLIT.append(step)
    return step


def half(step):
    HALF.append(step)
    return step


def both(step):
    BOTH.append(step)
    return step


def join(step):
    JOIN.append(step)
    return step


@whole
def moved(k: Kernel, a: str) -> str:
    (r,) = k.declare("Address", "v")
    k.asm([f"mov.{k.pick('b64', 'u64', 's64')} %0, %1"], [("=l", r)], [("l", a)])
    return r


@whole
def tied(k: Kernel, a: str) -> str:
    (r,) = k.declare("Address", "v")
    k.asm(["add.u64 %0, %0, 16", "sub.u64 %0, %1, 16"], [("=l", r)], [("0", a)])
    return r


@whole
def inAndOut(k: Kernel, a: str) -> str:
    r = k.let(a)
    k.asm([k.pick("add.u64 %0, %0, %1", "xor.b64 %0, %0, %1", "or.b64 %0, %0, %1")], [("+l", r)], [("n", "0")])
    return r


@whole
def converted(k: Kernel, a: str) -> str:
    (r,) = k.declare("Address", "v")
    space = k.pick("to.global.", "global.")
    k.asm([f"cvta.{space}u64 %0, %1"], [("=l", r)], [("l", a)])
    return r


@whole
def ownRegisters(k: Kernel, a: str) -> str:
    (r,) = k.declare("Address", "v")
    k.asm(["mov.u64 $t, %1", "xor.b64 $u, $t, 255", "xor.b64 $t, $u, 255", "mov.u64 %0, $t"], [("=l", r)], [("l", a)],
          [("b64", "t"), ("u64", "u")])
    return r


@whole
def nestedScopes(k: Kernel, a: str) -> str:
    (r,) = k.declare("Address", "v")
    k.line(f'asm("{{ .reg .b64 t; mov.b64 t, %1; {{ .reg .b64 t; mov.b64 t, 0; }} mov.b64 %0, t; }}" '
           f': "=l"({r}) : "l"({a}));')
    return r


@whole
def registerFamily(k: Kernel, a: str) -> str:
    (r,) = k.declare("Address", "v")
    k.line(f'asm("{{ .reg .b64 q<4>; mov.b64 q3, %1; add.u64 q1, q3, 0; mov.b64 %0, q1; }}" : "=l"({r}) : "l"({a}));')
    return r


@whole
def vectorInText(k: Kernel, a: str) -> str:
    (r,) = k.declare("Address", "v")
    if k.random.random() < 0.5:
        k.asm(["mov.b64 {$l, $h}, %1", "mov.b64 %0, {$l, $h}"], [("=l", r)], [("l", a)], [("b32", "l"), ("b32", "h")])
    else:
        k.asm(["mov.b64 {$a, $b, $c, $d}, %1", "mov.b32 $l, {$a, $b}", "mov.b32 $h, {$c, $d}", "mov.b64 %0, {$l, $h}"],
              [("=l", r)], [("l", a)], [("b16", x) for x in "abcd"] + [("b32", "l"), ("b32", "h")])
    return r


@whole
def shiftedInText(k: Kernel, a: str) -> str:
    (r,) = k.declare("Address", "v")
    bits = k.pick(8, 16, 24, 32, 40)
    k.asm([f"shr.u64 $h, %1, {bits}", f"shl.b64 $h, $h, {bits}", f"bfe.u64 $l, %1, 0, {bits}",
           k.pick("or.b64 %0, $h, $l", "add.u64 %0, $h, $l", f"bfi.b64 %0, $l, $h, 0, {bits}")],
          [("=&l", r)], [("l", a)], [("b64", "h"), ("b64", "l")])
    return r


@whole
def multipliedInText(k: Kernel, a: str) -> str:
    (r,) = k.declare("Address", "v")
    k.asm(["cvt.u32.u64 $l, %1", "shr.u64 $t, %1, 32", "cvt.u32.u64 $h, $t", "mul.wide.u32 $t, $h, 65536",
           "shl.b64 $t, $t, 16", "cvt.u64.u32 $u, $l", "mad.lo.u64 %0, $t, 1, $u"],
          [("=l", r)], [("l", a)], [("b32", "l"), ("b32", "h"), ("b64", "t"), ("b64", "u")])
    return r


@whole
def predicatedInText(k: Kernel, a: str) -> str:
    (r,) = k.declare("Address", "v")
    k.asm(["setp.ne.s32 $p, %2, 3", "@$p mov.u64 %0, %1", "@!$p add.u64 %0, %1, 0"], [("=l", r)],
          [("l", a), ("r", "n")], [("pred", "p")])
    return r


@whole
def loopInText(k: Kernel, a: str) -> str:
    r = k.let(a)
    label = k.fresh("LOOP")
    k.asm(["mov.u32 $i, 0", f"{label}_%=: mov.u64 $t, %0", "add.u32 $i, $i, 1", "mov.u64 %0, $t",
           "setp.lt.u32 $p, $i, 3", f"@$p bra {label}_%="], [("+l", r)], (),
          [("u32", "i"), ("pred", "p"), ("u64", "t")])
    return r


@whole
def chosenInText(k: Kernel, a: str) -> str:
    (r,) = k.declare("Address", "v")
    k.asm(["setp.gt.s32 $p, %2, 2", "selp.b64 %0, %1, %1, $p"], [("=l", r)], [("l", a), ("r", "n")], [("pred", "p")])
    return r


@whole
def keptInRegister(k: Kernel, a: str) -> str:
    name = k.fresh("keep")
    (r,) = k.declare("Address", "v")
    k.line(f'asm volatile(".reg .u64 {name}; mov.u64 {name}, %0;" :: "l"({a}));')
    k.line(f'asm volatile("mov.u64 %0, {name};" : "=l"({r}));')
    return r


@whole
def textVariable(k: Kernel, a: str) -> str:
    (r,) = k.declare("Address", "v")
    space = k.pick("local", "shared")
    name = k.fresh("place")
    k.line(f'asm volatile("{{ .{space} .align 8 .b64 {name}; st.{space}.u64 [{name}], %1; '
           f'ld.{space}.u64 %0, [{name}]; }}" : "=l"({r}) : "l"({a}) : "memory");')
    return r


@whole
def sharedVariable(k: Kernel, a: str) -> str:
    name = k.fresh("shared")
    (r,) = k.declare("Address", "v")
    k.line(f"__shared__ Address {name}[4];")
    store, load = k.pick("c", "text"), k.pick("c", "text")
    if store == "text" or load == "text":
        place = k.let(f"unsigned(__cvta_generic_to_shared(&{name}[n & 3]))", "unsigned")
    if store == "c":
        k.line(f"{name}[n & 3] = {a};")
    else:
        k.asm(["st.shared.u64 [%0], %1"], (), [("r", place), ("l", a)], memory=True)
    k.line("__syncthreads();")
    if load == "c":
        k.line(f"{r} = {name}[n & 3];")
    else:
        k.asm(["ld.shared.u64 %0, [%1]"], [("=l", r)], [("r", place)], memory=True)
    return r


@whole
def sharedVector(k: Kernel, a: str) -> str:
    name = k.fresh("shared")
    k.line(f"__shared__ ulonglong2 {name}[2];")
    if k.random.random() < 0.5:
        k.line(f"{name}[n & 1] = make_ulonglong2(n, {a});")
        k.line("__syncthreads();")
        return k.let(f"{name}[n & 1].y")
    k.line(f"{name}[n & 1] = make_ulonglong2({a}, n);")
    k.line("__syncthreads();")
    return k.let(f"reinterpret_cast<Address *>({name})[(n & 1) * 2]")


@whole
def exchangedInShared(k: Kernel, a: str) -> str:
    name = k.fresh("shared")
    k.line(f"__shared__ Address {name};")
    k.line(f"atomicExch(&{name}, {a});")
    k.line("__syncthreads();")
    return k.let(f"atomicAdd(&{name}, 0ULL)")


@whole
def localArray(k: Kernel, a: str) -> str:
    name = k.fresh("local")
    k.line(f"Address {name}[4];")
    k.line(f"for (int i = 0; i < 4; ++i) {name}[i] = {a};")
    return k.let(f"{name}[n & 3]")


@whole
def localVectors(k: Kernel, a: str) -> str:
    name = k.fresh("local")
    k.line(f"ulonglong2 {name}[2];")
    k.line(f"{name}[0] = {name}[1] = make_ulonglong2({k.pick('n', a)}, {a});")
    return k.let(f"reinterpret_cast<Address *>({name})[(n & 1) * 2 + 1]")


@whole
def volatileLocal(k: Kernel, a: str) -> str:
    name = k.fresh("local")
    k.line(f"volatile Address {name} = {a};")
    return k.let(name)


@whole
def memoryOperand(k: Kernel, a: str) -> str:
    (r,) = k.declare("Address", "v")
    name = k.fresh("local")
    k.line(f"Address {name} = {a};")
    k.asm(["ld.u64 %0, %1"], [("=l", r)], [("m", name)], memory=True)
    return r


@whole
def unionBytes(k: Kernel, a: str) -> str:
    name = k.fresh("words")
    k.line(f"Words {name}, {name}copy;")
    k.line(f"{name}.whole = {a};")
    member = k.pick("bytes", "quarters", "halves")
    count = {"bytes": 8, "quarters": 4, "halves": 2}[member]
    if k.random.random() < 0.5:
        k.line(f"for (int i = 0; i < {count}; ++i) {name}copy.{member}[i] = {name}.{member}[i];")
    else:
        k.line(f"for (int i = 0; i < {count}; ++i) {name}copy.{member}[(i + n) % {count}] = "
               f"{name}.{member}[(i + n) % {count}];")
    return k.let(f"{name}copy.whole")


@whole
def maskedPieces(k: Kernel, a: str) -> str:
    bits = k.pick(4, 8, 11, 16)
    mask = (1 << bits) - 1
    pieces = [f"(({a} >> {shift}) & {mask}ULL) << {shift}" for shift in range(0, 64, bits)]
    first = k.let(pieces[0])
    for piece in pieces[1:]:
        if k.random.random() < 0.3:
            moved_name = k.let(f"({piece})")
            k.asm(["mov.u64 %0, %0"], [("+l", moved_name)])
            piece = moved_name
        first = k.let(f"{first} {k.pick('|', '+', '^')} ({piece})")
    return first


@whole
def bytesByFunction(k: Kernel, a: str) -> str:
    r = k.let(f"byteOf({a})")
    for shift in range(8, 64, 8):
        r = k.let(f"{r} | Address(byteOf({a} >> {shift})) << {shift}")
    return r


@whole
def sharedPointer(k: Kernel, a: str) -> str:
    name = k.fresh("shared")
    k.line(f"__shared__ float *{name}[2]; {name}[n & 1] = reinterpret_cast<float *>({a}); __syncthreads();")
    return k.let(f"reinterpret_cast<Address>({name}[n & 1])")


@whole
def dynamicShared(k: Kernel, a: str) -> str:
    k.line(f"dynamic[n & 7] = {a}; __syncthreads();")
    return k.let("dynamic[n & 7]")


@whole
def globalVariable(k: Kernel, a: str) -> str:
    k.line(f"global[n & 1] = {a}; __syncthreads();")
    return k.let("reinterpret_cast<volatile Address *>(global)[n & 1]")


@whole
def otherBlocksShared(k: Kernel, a: str) -> str:
    name = k.fresh("shared")
    (r,) = k.declare("Address", "v")
    k.line(f"__shared__ Address {name};")
    place = k.let(f"unsigned(__cvta_generic_to_shared(&{name}))", "unsigned")
    k.asm(["mapa.shared::cluster.u32 $c, %1, 0", "st.shared::cluster.u64 [$c], %2", "ld.shared::cluster.u64 %0, [$c]"],
          [("=l", r)], [("r", place), ("l", a)], [("u32", "c")], memory=True)
    return r


@whole
def throughPointer(k: Kernel, a: str) -> str:
    name = k.fresh("function")
    k.line(f"Address (*volatile {name})(Address, int) = n == 9 ? deeper : passOn;")
    return k.let(f"{name}({a}, n)")


@whole
def asDouble(k: Kernel, a: str) -> str:
    number = k.let(f"__longlong_as_double({a})", "double")
    if k.random.random() < 0.5:
        name = k.fresh("doubles")
        k.line(f"{k.pick('', '__shared__ ')}double {name}[2];")
        k.line(f"{name}[n & 1] = {number};")
        number = f"{name}[n & 1]"
    return k.let(f"__double_as_longlong({number})")


@whole
def asDoubleInText(k: Kernel, a: str) -> str:
    (d,) = k.declare("double", "d")
    (r,) = k.declare("Address", "v")
    k.asm(["mov.b64 %0, %1"], [("=d", d)], [("l", a)])
    k.asm(["mov.b64 %0, %1"], [("=l", r)], [("d", d)])
    return r


@whole
def shuffledWhole(k: Kernel, a: str) -> str:
    return k.let(k.pick(f"__shfl_sync(~0u, {a}, threadIdx.x & 31)", f"__shfl_xor_sync(~0u, {a}, 0)",
                        f"__shfl_down_sync(~0u, {a}, 0)"))


@whole
def throughFunction(k: Kernel, a: str) -> str:
    return k.let(k.pick(f"passOn({a}, n)", f"deeper({a}, n)", f"join(split({a}))",
                        f"Address(spanOf({a}, n).data)", f"startOf(spanOf({a}, n))", f"startOf({{(float *){a}, n}})"))


@whole
def throughFunctionMemory(k: Kernel, a: str) -> str:
    name = k.fresh("places")
    k.line(f"{k.pick('', '__shared__ ')}Address {name}[2];")
    k.line(f"put({name}, n, {a});")
    return k.let(k.pick(f"get({name}, n)", f"{name}[1]"))


@whole
def throughLambda(k: Kernel, a: str) -> str:
    name = k.fresh("lambda")
    k.line(f"auto {name} = [=](int i) {{ return i == 99 ? {a} + 4 : {a}; }};")
    return k.let(f"{name}(n)")


@whole
def loopCarried(k: Kernel, a: str) -> str:
    r = k.let(a)
    k.line(f'for (int i = 0; i < n; ++i) {{ {r} ^= i; asm("xor.b64 %0, %0, %1;" : "+l"({r}) : "l"(Address(i))); }}')
    return r


@whole
def pointerSteps(k: Kernel, a: str) -> str:
    return k.let(f"reinterpret_cast<Address>(reinterpret_cast<char *>({a}) + n - n)")


@whole
def blurred(k: Kernel, a: str) -> str:
    key = k.let("Address(n) * 0x9e3779b97f4a7c15ULL")
    mixed = k.let(f"{a} ^ {key}")
    if k.random.random() < 0.5:
        k.asm(["mov.b64 %0, %0"], [("+l", mixed)])
    return k.let(f"{mixed} ^ {key}")


@whole
def reversedTwice(k: Kernel, a: str) -> str:
    first = k.let(f"__brevll({a})")
    if k.random.random() < 0.5:
        (r,) = k.declare("Address", "v")
        k.asm(["brev.b64 %0, %1"], [("=l", r)], [("l", first)])
        return r
    return k.let(f"__brevll({first})")


@whole
def structMember(k: Kernel, a: str) -> str:
    name = k.fresh("pair")
    k.line(f"Pair {name} = {{Address(n), {a}}};")
    k.line(f"if (n == 55) {name}.first = {a};")
    return k.let(f"{name}.second")


@whole
def copiedMemory(k: Kernel, a: str) -> str:
    name, other = k.fresh("from"), k.fresh("to")
    k.line(f"{k.pick('', '__shared__ ')}Address {name}[4]; {k.pick('', '__shared__ ')}Address {other}[4];")
    k.line(f"for (int i = 0; i < 4; ++i) {name}[i] = {a};")
    k.line(f"memcpy({other}, {name}, sizeof({other}));")
    return k.let(f"{other}[n & 3]")


@whole
def atomicInText(k: Kernel, a: str) -> str:
    name = k.fresh("shared")
    k.line(f"__shared__ Address {name};")
    (r,) = k.declare("Address", "v")
    place = k.let(f"unsigned(__cvta_generic_to_shared(&{name}))", "unsigned")
    k.asm(["atom.shared.exch.b64 $old, [%1], %2", "ld.shared.b64 %0, [%1]"], [("=l", r)], [("r", place), ("l", a)],
          [("b64", "old")], memory=True)
    return r


# ---------------------------------------------------------------- halves


@split
def splitByCasts(k: Kernel, a: str) -> Tuple[str, str]:
    return k.let(f"unsigned({a})", "unsigned"), k.let(f"unsigned({a} >> 32)", "unsigned")


@split
def splitByMove(k: Kernel, a: str) -> Tuple[str, str]:
    low, high = k.declare("unsigned", "low", "high")
    k.asm(["mov.b64 {%0, %1}, %2"], [("=r", low), ("=r", high)], [("l", a)])
    return low, high


@split
def splitByConversion(k: Kernel, a: str) -> Tuple[str, str]:
    low, high = k.declare("unsigned", "low", "high")
    k.asm(["cvt.u32.u64 %0, %1"], [("=r", low)], [("l", a)])
    k.asm([k.pick("shr.u64 $t, %1, 32", "bfe.u64 $t, %1, 32, 32"), "cvt.u32.u64 %0, $t"], [("=r", high)], [("l", a)],
          [("u64", "t")])
    return low, high


@split
def splitBySinks(k: Kernel, a: str) -> Tuple[str, str]:
    low, high = k.declare("unsigned", "low", "high")
    k.asm(["mov.b64 {%0, $x}, %1"], [("=r", low)], [("l", a)], [("b32", "x")])
    k.asm(["mov.b64 {_, %0}, %1"], [("=r", high)], [("l", a)])
    return low, high


@split
def splitByUnion(k: Kernel, a: str) -> Tuple[str, str]:
    name = k.fresh("words")
    k.line(f"Words {name}; {name}.whole = {a};")
    return k.let(f"{name}.halves[0]", "unsigned"), k.let(f"{name}.halves[1]", "unsigned")


@split
def splitByDouble(k: Kernel, a: str) -> Tuple[str, str]:
    number = k.let(f"__longlong_as_double({a})", "double")
    return k.let(f"__double2loint({number})", "unsigned"), k.let(f"__double2hiint({number})", "unsigned")


@split
def splitByQuarters(k: Kernel, a: str) -> Tuple[str, str]:
    w = k.declare("unsigned short", "q", "q", "q", "q")
    k.asm(["mov.b64 {%0, %1, %2, %3}, %4"], [("=h", x) for x in w], [("l", a)])
    (low,) = k.declare("unsigned", "low")
    k.asm(["mov.b32 %0, {%1, %2}"], [("=r", low)], [("h", w[0]), ("h", w[1])])
    return low, k.let(f"unsigned({w[3]}) << 16 | {w[2]}", "unsigned")


@split
def splitByCopy(k: Kernel, a: str) -> Tuple[str, str]:
    name = k.fresh("halves")
    k.line(f"unsigned {name}[2]; memcpy({name}, &{a}, 8);")
    return f"{name}[0]", f"{name}[1]"


@split
def splitByFunction(k: Kernel, a: str) -> Tuple[str, str]:
    name = k.let(f"split({a})", "Halves")
    return f"{name}.low", f"{name}.high"


@split
def splitThroughShared(k: Kernel, a: str) -> Tuple[str, str]:
    name = k.fresh("shared")
    k.line(f"__shared__ Address {name};")
    k.line(f"{name} = {a};")
    k.line("__syncthreads();")
    low, high = k.declare("unsigned", "low", "high")
    place = k.let(f"unsigned(__cvta_generic_to_shared(&{name}))", "unsigned")
    k.asm(["ld.shared.v2.u32 {%0, %1}, [%2]"], [("=r", low), ("=r", high)], [("r", place)], memory=True)
    return low, high


@half
def halfShuffled(k: Kernel, h: str) -> str:
    if k.random.random() < 0.5:
        return k.let(f"__shfl_sync(~0u, {h}, {k.pick('threadIdx.x & 31', '0')})", "unsigned")
    (r,) = k.declare("unsigned", "v")
    k.asm([k.pick("shfl.sync.idx.b32 %0, %1, 0, 31, -1", "shfl.sync.bfly.b32 %0|$p, %1, 0, 31, 0xffffffff")],
          [("=r", r)], [("r", h)], [("pred", "p")])
    return r


@half
def halfPermuted(k: Kernel, h: str) -> str:
    first = k.let(f"__byte_perm({h}, n, 0x0123)", "unsigned")
    if k.random.random() < 0.5:
        return k.let(f"__byte_perm({first}, 0, 0x0123)", "unsigned")
    (r,) = k.declare("unsigned", "v")
    k.asm(["prmt.b32 %0, %1, %2, 0x0123"], [("=r", r)], [("r", first), ("r", "n")])
    return r


@half
def halfFunnel(k: Kernel, h: str) -> str:
    amount = k.pick(8, 12, 31)
    first = k.let(f"__funnelshift_l({h}, {h}, {amount})", "unsigned")
    (r,) = k.declare("unsigned", "v")
    k.asm([f"shf.r.wrap.b32 %0, %1, %1, {amount}"], [("=r", r)], [("r", first)])
    return r


@half
def halfLogic(k: Kernel, h: str) -> str:
    (r,) = k.declare("unsigned", "v")
    choice = k.pick("lop3", "not", "add", "slct", "selp", "bfi", "mad")
    if choice == "lop3":
        k.asm(["lop3.b32 %0, %1, %2, %2, 0x96"], [("=r", r)], [("r", h), ("r", "n")])
    elif choice == "not":
        k.asm(["not.b32 $t, %1", "not.b32 %0, $t"], [("=r", r)], [("r", h)], [("b32", "t")])
    elif choice == "add":
        k.asm(["add.s32 %0, %1, %2", "sub.s32 %0, %0, %2"], [("=&r", r)], [("r", h), ("r", "n")])
    elif choice == "slct":
        k.asm(["slct.u32.s32 %0, %1, %1, %2"], [("=r", r)], [("r", h), ("r", "n")])
    elif choice == "selp":
        k.asm(["setp.eq.s32 $p, %2, 2", "selp.u32 %0, %1, %1, $p"], [("=r", r)], [("r", h), ("r", "n")],
              [("pred", "p")])
    elif choice == "bfi":
        k.asm(["bfe.u32 $t, %1, 0, 16", "bfi.b32 %0, $t, %1, 0, 16"], [("=r", r)], [("r", h)], [("b32", "t")])
    else:
        k.asm(["mad.lo.u32 %0, %1, 1, 0"], [("=r", r)], [("r", h)])
    return r


@half
def halfAsFloat(k: Kernel, h: str) -> str:
    if k.random.random() < 0.5:
        f = k.let(f"__uint_as_float({h})", "float")
    else:
        (f,) = k.declare("float", "f")
        k.asm(["mov.b32 %0, %1"], [("=f", f)], [("r", h)])
    choice = k.pick("plain", "shuffle", "shared", "local")
    if choice == "shuffle":
        f = k.let(f"__shfl_sync(~0u, {f}, 0)", "float")
    elif choice != "plain":
        name = k.fresh("floats")
        k.line(f"{'__shared__ ' if choice == 'shared' else ''}float {name}[2];")
        k.line(f"{name}[n & 1] = {f};")
        f = f"{name}[n & 1]"
    return k.let(f"__float_as_uint({f})", "unsigned")


@half
def halfShared(k: Kernel, h: str) -> str:
    name = k.fresh("shared")
    k.line(f"__shared__ unsigned {name}[64];")
    k.line(f"{name}[threadIdx.x & 63] = {h};")
    k.line("__syncthreads();")
    return k.let(f"{name}[threadIdx.x & 63]", "unsigned")


@half
def halfLocal(k: Kernel, h: str) -> str:
    name = k.fresh("local")
    k.line(f"unsigned {name}[2]; {name}[0] = {name}[1] = {h};")
    return k.let(f"{name}[n & 1]", "unsigned")


@half
def halfFunction(k: Kernel, h: str) -> str:
    return k.let(f"passHalf({h}, n)", "unsigned")


@half
def halfMatrix(k: Kernel, h: str) -> str:
    name = k.fresh("matrix")
    k.line(f"__shared__ __align__(16) unsigned {name}[32];")
    row = k.let(f"unsigned(__cvta_generic_to_shared({name} + (threadIdx.x & 7) * 4))", "unsigned")
    if k.random.random() < 0.5:
        k.line(f"{name}[threadIdx.x & 31] = {h};")
    else:
        k.asm(["stmatrix.sync.aligned.m8n8.x1.shared.b16 [%0], {%1}"], (), [("r", row), ("r", h)], memory=True)
    k.line("__syncthreads();")
    (r,) = k.declare("unsigned", "v")
    k.asm(["ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%0}, [%1]"], [("=r", r)], [("r", row)], memory=True)
    return r


@half
def halfQuarters(k: Kernel, h: str) -> str:
    a, b = k.declare("unsigned short", "q", "q")
    k.asm(["mov.b32 {%0, %1}, %2"], [("=h", a), ("=h", b)], [("r", h)])
    if k.random.random() < 0.5:
        return k.let(f"unsigned({b}) << 16 | {a}", "unsigned")
    (r,) = k.declare("unsigned", "v")
    k.asm(["mov.b32 %0, {%1, %2}"], [("=r", r)], [("h", a), ("h", b)])
    return r


@half
def halfAtomic(k: Kernel, h: str) -> str:
    name = k.fresh("shared")
    k.line(f"__shared__ unsigned {name};")
    k.line(f"{name} = 0; __syncthreads();")
    k.line(f"{k.pick('atomicOr', 'atomicExch', 'atomicMax')}(&{name}, {h}); __syncthreads();")
    return k.let(name, "unsigned")


@half
def halfReduced(k: Kernel, h: str) -> str:
    return k.let(k.pick(f"__reduce_or_sync(~0u, {h})", f"max({h}, 0u)", f"__brev(__brev({h}))",
                        f"(({h} >> 16) << 16 | ({h} & 0xffff))"), "unsigned")


@both
def bothPermuted(k: Kernel, low: str, high: str) -> Tuple[str, str]:
    return (k.let(f"__byte_perm({high}, {low}, 0x7654)", "unsigned"),
            k.let(f"__byte_perm({high}, {low}, 0x3210)", "unsigned"))


@both
def bothVector(k: Kernel, low: str, high: str) -> Tuple[str, str]:
    name = k.fresh("vector")
    k.line(f"uint2 {name} = make_uint2({low}, {high});")
    if k.random.random() < 0.5:
        k.line(f"{k.pick('', '__shared__ ')}uint4 {name}s[2]; {name}s[n & 1] = make_uint4(n, {name}.x, {name}.y, n);")
        return f"{name}s[n & 1].y", f"{name}s[n & 1].z"
    return f"{name}.x", f"{name}.y"


@both
def bothStored(k: Kernel, low: str, high: str) -> Tuple[str, str]:
    name = k.fresh("shared")
    k.line(f"__shared__ unsigned {name}[4];")
    place = k.let(f"unsigned(__cvta_generic_to_shared({name}))", "unsigned")
    k.asm(["st.shared.v2.u32 [%0+8], {%1, %2}"], (), [("r", place), ("r", low), ("r", high)], memory=True)
    k.line("__syncthreads();")
    return k.let(f"{name}[2]", "unsigned"), k.let(f"{name}[3]", "unsigned")


@both
def bothInText(k: Kernel, low: str, high: str) -> Tuple[str, str]:
    a, b = k.declare("unsigned", "v", "v")
    k.asm(["mov.u32 %1, %2", "mov.u32 %0, %3"], [("=&r", a), ("=&r", b)], [("r", low), ("r", high)])
    return b, a


@both
def bothChosen(k: Kernel, low: str, high: str) -> Tuple[str, str]:
    first = k.let(f"n & 1 ? {low} : {high}", "unsigned")
    second = k.let(f"n & 1 ? {high} : {low}", "unsigned")
    return k.let(f"n & 1 ? {first} : {second}", "unsigned"), k.let(f"n & 1 ? {second} : {first}", "unsigned")


@join
def joinByShift(k: Kernel, low: str, high: str) -> str:
    return k.let(f"(Address({high}) << 32) {k.pick('|', '+', '^')} {low}")


@join
def joinByMultiply(k: Kernel, low: str, high: str) -> str:
    return k.let(f"Address({high}) * 4294967296ULL + {low}")


@join
def joinByMove(k: Kernel, low: str, high: str) -> str:
    (r,) = k.declare("Address", "v")
    k.asm(["mov.b64 %0, {%1, %2}"], [("=l", r)], [("r", low), ("r", high)])
    return r


@join
def joinInText(k: Kernel, low: str, high: str) -> str:
    (r,) = k.declare("Address", "v")
    k.asm(["cvt.u64.u32 $h, %2", "shl.b64 $h, $h, 32", "cvt.u64.u32 $l, %1",
           k.pick("or.b64 %0, $h, $l", "add.s64 %0, $l, $h", "bfi.b64 %0, $h, $h, 0, 0; or.b64 %0, %0, $l")],
          [("=&l", r)], [("r", low), ("r", high)], [("b64", "h"), ("b64", "l")])
    return r


@join
def joinByDouble(k: Kernel, low: str, high: str) -> str:
    return k.let(f"__double_as_longlong(__hiloint2double({high}, {low}))")


@join
def joinByUnion(k: Kernel, low: str, high: str) -> str:
    name = k.fresh("words")
    k.line(f"Words {name}; {name}.halves[n & 1] = n & 1 ? {high} : {low};")
    k.line(f"{name}.halves[~n & 1] = n & 1 ? {low} : {high};")
    return k.let(f"{name}.whole")


@join
def joinByFunction(k: Kernel, low: str, high: str) -> str:
    return k.let(f"join({{{low}, {high}}})")


@join
def joinThroughShared(k: Kernel, low: str, high: str) -> str:
    name = k.fresh("shared")
    k.line(f"__shared__ uint2 {name};")
    k.line(f"{name} = make_uint2({low}, {high});")
    k.line("__syncthreads();")
    return k.let(f"*reinterpret_cast<Address *>(&{name})")


def in_halves(k: Kernel, a: str) -> str:
    step = k.random.choice(SPLIT)
    k.steps.append(step.__name__)
    low, high = step(k, a)
    for _ in range(k.pick(0, 0, 1, 1, 2, 3)):
        if k.random.random() < 0.3:
            step = k.random.choice(BOTH)
            low, high = step(k, low, high)
        else:
            step = k.random.choice(HALF)
            if k.random.random() < 0.5:
                low = step(k, low)
            else:
                high = step(k, high)
            if k.random.random() < 0.5:
                low, high = (step(k, low), high) if k.random.random() < 0.5 else (low, step(k, high))
        k.steps.append(step.__name__)
    step = k.random.choice(JOIN)
    k.steps.append(step.__name__)
    return step(k, low, high)


# ---------------------------------------------------------------- sources, selections, accesses


def from_parameter(k: Kernel) -> Value:
    choice = k.pick("pointer", "pointer", "pointer", "integer", "struct", "nested", "array", "name")
    name = k.fresh("p")
    if choice == "pointer":
        index = k.parameter(f"float *{name}")
        return Value(k.let(f"reinterpret_cast<Address>({name})"), frozenset([Origin((index, 0), False)]), 0)
    if choice == "integer":
        index = k.parameter(f"Address {name}")
        return Value(name, frozenset([Origin((index, 0), False)]), 0)
    if choice == "struct":
        index = k.parameter(f"Span {name}")
        k.need((index, 0))
        return Value(k.let(f"reinterpret_cast<Address>({name}.data)"), frozenset([Origin((index, 0), False)]), 0)
    if choice == "array":
        index = k.parameter(f"Table {name}")
        return Value(k.let(f"reinterpret_cast<Address>({name}.data[n & 3])"),
                     frozenset(Origin((index, 8 + 8 * i), False) for i in range(4)), 0)
    if choice == "name":
        index = k.parameter(f"float *{name}")
        (r,) = k.declare("Address", "v")
        k.asm([f"ld.param.u64 %0, [{k.name}_param_{index}]"], [("=l", r)], memory=True)
        return Value(r, frozenset([Origin((index, 0), False)]), 0)
    index = k.parameter(f"Pair {name}")
    return Value(k.let(f"{name}.second"), frozenset([Origin((index, 8), False)]), 0)


def loaded(k: Kernel, table: Value) -> Value:
    """The address in the memory that `table` leads to."""
    if k.random.random() < 0.08:
        k.steps.append("list")
        name = k.let(table.name)
        k.line(f"for (int i = 0; i < n; ++i) {name} = *reinterpret_cast<Address *>({name});")
        k.access(table, 1, 8, runs=lambda n: False)
        return Value(name, table.origins | {Origin(origin.slot, True) for origin in table.origins}, None)
    choice = k.random.choice(LOADS)
    k.steps.append(choice.__name__)
    name = choice(k, table.name)
    k.access(table, 1, 8)
    return Value(name, frozenset(Origin(origin.slot, True) for origin in table.origins), 0)


def load_pointer(k: Kernel, t: str) -> str:
    return k.let(f"reinterpret_cast<Address>(*reinterpret_cast<float **>({t}))")


def load_integer(k: Kernel, t: str) -> str:
    return k.let(k.pick(f"*reinterpret_cast<Address *>({t})", f"__ldg(reinterpret_cast<const Address *>({t}))",
                        f"*reinterpret_cast<volatile Address *>({t})", f"fetch(reinterpret_cast<Address *>({t}), 0)"))


def load_pieces(k: Kernel, t: str) -> str:
    kind, bits = k.pick(("unsigned", 32), ("unsigned short", 16), ("unsigned char", 8))
    name = k.let(f"reinterpret_cast<{kind} *>({t})", f"const {kind} *")
    r = k.let(f"{name}[0]")
    for i in range(1, 64 // bits):
        r = k.let(f"{r} | Address({name}[{i}]) << {i * bits}")
    return r


def load_vector(k: Kernel, t: str) -> str:
    name = k.fresh("vector")
    if k.random.random() < 0.5:
        k.line(f"uint2 {name} = *reinterpret_cast<uint2 *>({t});")
        return k.let(f"Address({name}.y) << 32 | {name}.x")
    k.line(f"float2 {name} = *reinterpret_cast<float2 *>({t});")
    return k.let(f"Address(__float_as_uint({name}.y)) << 32 | __float_as_uint({name}.x)")


def load_double(k: Kernel, t: str) -> str:
    return k.let(f"__double_as_longlong(*reinterpret_cast<double *>({t}))")


def load_text(k: Kernel, t: str) -> str:
    (r,) = k.declare("Address", "v")
    k.asm([f"ld.{k.pick('global.', '', 'global.nc.', 'volatile.global.', 'relaxed.gpu.global.')}u64 %0, [%1]"],
          [("=l", r)], [("l", t)], memory=True)
    return r


def load_text_halves(k: Kernel, t: str) -> str:
    low, high = k.declare("unsigned", "low", "high")
    if k.random.random() < 0.5:
        k.asm(["ld.global.v2.u32 {%0, %1}, [%2]"], [("=r", low), ("=r", high)], [("l", t)], memory=True)
    else:
        k.asm(["ld.global.u32 %0, [%2]", "ld.global.u32 %1, [%2+4]"], [("=&r", low), ("=&r", high)], [("l", t)],
              memory=True)
    return k.random.choice(JOIN)(k, low, high)


def load_copy(k: Kernel, t: str) -> str:
    name = k.fresh("copy")
    space = k.pick("", "__shared__ ")
    k.line(f"{space}Address {name}[2];")
    k.line(f"memcpy({name}, reinterpret_cast<void *>({t}), 8); {name}[1] = {name}[0];")
    return k.let(f"{name}[n & 1]")


def load_async(k: Kernel, t: str) -> str:
    name = k.fresh("shared")
    k.line(f"__shared__ Address {name}[2];")
    if k.random.random() < 0.5:
        place = k.let(f"unsigned(__cvta_generic_to_shared(&{name}[1]))", "unsigned")
        k.asm(["cp.async.ca.shared.global [%0], [%1], 8", "cp.async.commit_group", "cp.async.wait_group 0"], (),
              [("r", place), ("l", t)], memory=True)
    else:
        k.line(f"__nvvm_cp_async_ca_shared_global_8((__attribute__((address_space(3))) void *)&{name}[1], "
               f"(__attribute__((address_space(1))) void *){t});")
        k.line("__nvvm_cp_async_wait_all();")
    k.line("__syncthreads();")
    return k.let(f"{name}[1]")


def load_by_function(k: Kernel, t: str) -> str:
    name = k.fresh("places")
    k.line(f"{k.pick('', '__shared__ ')}Address {name}[2];")
    k.line(f"fetchInto({name}, reinterpret_cast<Address *>({t}));")
    return k.let(f"{name}[n & 1]")


LOADS = [load_pointer, load_integer, load_pieces, load_vector, load_double, load_text, load_text_halves, load_copy,
         load_async, load_by_function]


def one_of(k: Kernel, a: Value, b: Value) -> Value:
    """Either of two, as the launch has it."""
    offset = a.offset if a.offset == b.offset else None
    choice = k.pick("select", "text", "predicate", "local", "loop", "shared", "halves")
    k.steps.append(f"oneOf:{choice}")
    if choice == "select":
        r = k.let(f"n & 2 ? {a.name} : {b.name}")
    elif choice == "text":
        (r,) = k.declare("Address", "v")
        k.asm(["and.b32 $c, %3, 2", "setp.ne.s32 $p, $c, 0", "selp.b64 %0, %1, %2, $p"], [("=l", r)],
              [("l", a.name), ("l", b.name), ("r", "n")], [("pred", "p"), ("b32", "c")])
    elif choice == "predicate":
        (r,) = k.declare("Address", "v")
        k.asm(["and.b32 $c, %3, 2", "setp.ne.s32 $p, $c, 0", "mov.u64 %0, %2", "@$p mov.u64 %0, %1"], [("=&l", r)],
              [("l", a.name), ("l", b.name), ("r", "n")], [("pred", "p"), ("b32", "c")])
    elif choice == "local":
        name = k.fresh("both")
        k.line(f"Address {name}[2] = {{{a.name}, {b.name}}};")
        r = k.let(f"{name}[n >> 1 & 1]")
    elif choice == "shared":
        name = k.fresh("both")
        k.line(f"__shared__ Address {name}[2]; {name}[0] = {a.name}; {name}[1] = {b.name}; __syncthreads();")
        r = k.let(f"{name}[n >> 1 & 1]")
    elif choice == "halves":
        low = k.let(f"n & 2 ? unsigned({a.name}) : unsigned({b.name})", "unsigned")
        high = k.let(f"n & 2 ? unsigned({a.name} >> 32) : unsigned({b.name} >> 32)", "unsigned")
        r = k.random.choice(JOIN)(k, low, high)
    else:
        r, other = k.let(a.name), k.let(b.name)
        k.line(f"for (int i = 0; i < n; ++i) {{ Address t = {r}; {r} = {other}; {other} = t; }}")
    return Value(r, a.origins | b.origins, offset)


def moved_on(k: Kernel, a: Value) -> Value:
    """Another place in the same buffer."""
    step = k.pick(4, 8, 16, 256)
    choice = k.pick("c", "text", "n")
    k.steps.append(f"movedOn:{choice}")
    if choice == "c":
        name = k.let(f"{a.name} + {step}")
    elif choice == "n":
        return Value(k.let(f"{a.name} + Address(n) * 4"), a.origins, None)
    else:
        name = k.let(a.name)
        k.asm([f"add.u64 %0, %0, {step}"], [("+l", name)])
    return Value(name, a.origins, None if a.offset is None else a.offset + step)


def use(k: Kernel, a: Value) -> None:
    """The access at the end of the chain."""
    choice = k.random.choice(USES)
    k.steps.append(choice.__name__)
    certain = k.pick("always", "always", "number", "data")
    runs: Callable[[int], bool] = lambda n: True
    outer = k.indent
    if certain == "number":
        k.line("if (n > 3) {")
        runs = lambda n: n > 3
    elif certain == "data":
        condition = k.parameter(f"const int *{k.fresh('c')}")
        k.line(f"if (*{k.parameters[condition].split('*')[1]}) {{")
        k.access(Value("", frozenset([Origin((condition, 0), False)]), 0), 1, 4)
        runs = lambda n: False
    if certain != "always":
        k.indent += "  "
    choice(k, a, runs)
    k.indent = outer
    if certain != "always":
        k.line("}")


def read_plainly(k: Kernel, a: Value, runs) -> None:
    offset = k.pick(0, 0, 4)
    value = k.let(k.pick(f"*reinterpret_cast<float *>({a.name} + {offset})",
                         f"reinterpret_cast<volatile float *>({a.name})[{offset // 4}]",
                         f"__ldg(reinterpret_cast<const float *>({a.name}) + {offset // 4})"), "float")
    k.write_out(value)
    k.access(a, 1, 4, offset=offset, runs=runs)


def write_plainly(k: Kernel, a: Value, runs) -> None:
    offset = k.pick(0, 0, 4)
    k.line(k.pick(f"*reinterpret_cast<float *>({a.name} + {offset}) = 1;",
                  f"reinterpret_cast<volatile float *>({a.name})[{offset // 4}] = 2;",
                  f"__stwt(reinterpret_cast<float *>({a.name}) + {offset // 4}, 3.0f);"))
    k.access(a, 2, 4, offset=offset, runs=runs)


def write_wide(k: Kernel, a: Value, runs) -> None:
    k.line(f"*reinterpret_cast<float4 *>({a.name}) = make_float4(n, 1, 2, 3);")
    k.access(a, 2, 16, runs=runs)


def add_atomically(k: Kernel, a: Value, runs) -> None:
    k.line(f"atomicAdd(reinterpret_cast<float *>({a.name}), 1.0f);")
    k.access(a, 3, 4, atomic=True, runs=runs)


def read_by_text(k: Kernel, a: Value, runs) -> None:
    (r,) = k.declare("float", "f")
    if k.random.random() < 0.15:
        k.asm(["ld.f32 %0, %1"], [("=f", r)], [("m", f"*reinterpret_cast<float *>({a.name})")], memory=True)
        k.write_out(r)
        return k.access(a, 1, 4, runs=runs)
    offset = k.pick(0, 0, 4)
    place = f"[%1+{offset}]" if offset else "[%1]"
    k.asm([f"ld.{k.pick('global.', '', 'global.nc.', 'global.cs.', 'global.L1::no_allocate.')}f32 %0, {place}"],
          [("=f", r)], [("l", a.name)], memory=True)
    k.write_out(r)
    k.access(a, 1, 4, offset=offset, runs=runs)


def write_by_text(k: Kernel, a: Value, runs) -> None:
    choice = k.pick("plain", "vector", "predicate", "moved", "constant", "joined", "other", "memory")
    size, offset, certain = 4, 0, runs
    space = k.pick("global.", "")
    if choice == "plain":
        k.asm([f"st.{space}f32 [%0], %1"], (), [("l", a.name), ("f", "1.0f")], memory=True)
    elif choice == "vector":
        size = 8
        k.asm([f"st.{space}v2.f32 [%0], {{%1, %1}}"], (), [("l", a.name), ("f", "1.0f")], memory=True)
    elif choice == "predicate":
        certain = lambda n: runs(n) and n > 3
        k.asm(["setp.gt.s32 $p, %2, 3", f"@$p st.{space}f32 [%0], %1"], (),
              [("l", a.name), ("f", "1.0f"), ("r", "n")], [("pred", "p")], memory=True)
    elif choice == "moved":
        offset = 8
        k.asm(["mov.u64 $t, %0", "add.u64 $t, $t, 8", f"st.{space}f32 [$t], %1"], (), [("l", a.name), ("f", "1.0f")],
              [("u64", "t")], memory=True)
    elif choice == "constant":
        offset = 12
        k.asm([f"st.{space}f32 [%0+%2], %1"], (), [("l", a.name), ("f", "1.0f"), ("n", "12")], memory=True)
    elif choice == "memory":
        k.asm([f"st.{space}f32 %0, %1"], [("=m", f"*reinterpret_cast<float *>({a.name})")], [("f", "1.0f")],
              memory=True)
    elif choice == "other":
        # The register is the argument's only on one way.
        spare = k.parameter(f"float *{k.fresh('s')}")
        other = k.parameters[spare].split("*")[1]
        k.asm(["setp.gt.s32 $p, %3, 3", "mov.u64 $t, %0", "@$p mov.u64 $t, %2", f"st.{space}f32 [$t], %1"], (),
              [("l", a.name), ("f", "1.0f"), ("l", other), ("r", "n")], [("pred", "p"), ("u64", "t")], memory=True)
        certain = lambda n: runs(n) and n <= 3
        k.access(Value("", frozenset([Origin((spare, 0), False)]), 0), 2, 4, runs=lambda n: runs(n) and n > 3)
    else:
        k.asm(["mov.b64 {$l, $h}, %0", "mov.b64 $t, {$l, $h}", f"st.{space}f32 [$t], %1"], (),
              [("l", a.name), ("f", "1.0f")], [("b32", "l"), ("b32", "h"), ("b64", "t")], memory=True)
    k.access(a, 2, size, offset=offset, runs=certain)


def atomic_by_text(k: Kernel, a: Value, runs) -> None:
    if k.random.random() < 0.5:
        k.asm([f"red.{k.pick('global.', '')}add.u32 [%0], 1"], (), [("l", a.name)], memory=True)
    else:
        (r,) = k.declare("unsigned", "v")
        k.asm(["atom.global.cas.b32 %0, [%1], 0, 1"], [("=r", r)], [("l", a.name)], memory=True)
    k.access(a, 3, 4, atomic=True, runs=runs)


def copy_memory(k: Kernel, a: Value, runs) -> None:
    if k.random.random() < 0.5:
        k.line(f"memset(reinterpret_cast<void *>({a.name}), 0, 32);")
        k.access(a, 2, 32, runs=runs)
        return
    k.line(f"memcpy(out + 64, reinterpret_cast<void *>({a.name}), 32);")
    k.access(Value("", frozenset([Origin((1, 0), False)]), 256), 2, 32, runs=runs)
    k.access(a, 1, 32, runs=runs)


def through_text(k: Kernel, a: Value, runs) -> None:
    """Loads an address and uses it, in one text."""
    choice = k.pick("store", "load", "halves", "atomic", "own")
    for origin in a.origins:
        k.need(origin.slot).holds_pointers = True
    if choice == "store":
        k.asm(["ld.global.u64 $t, [%0]", "st.global.f32 [$t], %1"], (), [("l", a.name), ("f", "2.0f")], [("u64", "t")],
              memory=True)
        k.access(a, 3, 8, runs=lambda n: False)
    elif choice == "load":
        (r,) = k.declare("float", "f")
        k.asm(["ld.u64 $t, [%1]", "add.u64 $t, $t, 4", "ld.f32 %0, [$t]"], [("=f", r)], [("l", a.name)], [("b64", "t")],
              memory=True)
        k.write_out(r)
        k.access(a, 1, 8)
    elif choice == "halves":
        k.asm(["ld.global.v2.u32 {$l, $h}, [%0]", "mov.b64 $t, {$l, $h}", "st.global.f32 [$t], %1"], (),
              [("l", a.name), ("f", "2.0f")], [("u64", "t"), ("b32", "l"), ("b32", "h")], memory=True)
        k.access(a, 3, 8, runs=lambda n: False)
    elif choice == "atomic":
        k.asm(["ld.global.u64 $t, [%0]", "red.global.add.u32 [$t], 1"], (), [("l", a.name)], [("u64", "t")],
              memory=True)
        k.access(a, 3, 8, atomic=True, runs=lambda n: False)
    else:
        name = k.fresh("place")
        k.line(f'asm volatile("{{ .reg .b64 t; .shared .align 8 .b64 {name}; ld.u64 t, [%0]; '
               f'st.shared.u64 [{name}], t; '
               f'ld.shared.u64 t, [{name}]; st.f32 [t], %1; }}" :: "l"({a.name}), "f"(2.0f) : "memory");')
        k.access(a, 3, 8, runs=lambda n: False)


def touch_nothing(k: Kernel, a: Value, runs) -> None:
    choice = k.pick("compare", "prefetch", "bits")
    if choice == "compare":
        k.write_out(f"{a.name} == 0")
    elif choice == "bits":
        k.write_out(f"__popcll({a.name}) & 1")
    else:
        k.asm([f"prefetch.global.L{k.pick(1, 2)} [%0]"], (), [("l", a.name)])


def store_address(k: Kernel, a: Value, runs) -> None:
    index = k.parameter(f"Address *{k.fresh('keep')}")
    name = k.parameters[index].split("*")[1]
    for origin in a.origins:
        k.need(origin.slot).escapes |= not origin.is_loaded
    if k.random.random() < 0.5:
        k.line(f"*{name} = {a.name};")
    else:
        k.asm(["st.global.u64 [%0], %1"], (), [("l", name), ("l", a.name)], memory=True)
    k.access(Value("", frozenset([Origin((index, 0), False)]), 0), 2, 8, runs=runs)


USES = [read_plainly, write_plainly, write_plainly, write_wide, add_atomically, read_by_text, write_by_text,
        write_by_text, atomic_by_text, copy_memory, through_text, touch_nothing, store_address]


def chain(k: Kernel, a: Value, length: int) -> Value:
    for _ in range(length):
        if k.random.random() < 0.45:
            a = a._replace(name=in_halves(k, a.name))
        elif k.random.random() < 0.12:
            a = moved_on(k, a)
        else:
            step = k.random.choice(WHOLE)
            k.steps.append(step.__name__)
            a = a._replace(name=step(k, a.name))
    return a


def draw(name: str, seed: str) -> Kernel:
    k = Kernel(name, seed)
    values = []
    for _ in range(k.pick(1, 1, 2, 3)):
        value = from_parameter(k)
        for origin in value.origins:
            k.need(origin.slot)
        value = chain(k, value, k.pick(0, 1, 2, 3))
        for _ in range(k.pick(0, 0, 0, 1, 1, 2)):
            value = chain(k, loaded(k, value), k.pick(0, 1, 2))
        values.append(value)
    if len(values) > 1 and k.random.random() < 0.5:
        values = [one_of(k, values[0], values[1])] + values[2:]
        values[0] = chain(k, values[0], k.pick(0, 1, 2))
    for value in values:
        use(k, value)
    return k


# ---------------------------------------------------------------- comparing


def problems_of(need: Need, claim: Optional[dict]) -> List[str]:
    """What the claim says less than the truth. A slot that is not there may be anything."""
    if claim is None:
        return []
    mode = MODES[claim["may"]]
    if claim.get("unresolved") or claim.get("escapes"):  # anything, if it says so
        return [] if mode == 3 and "must_end" not in claim else ["not all that may be"]
    problems = []
    if need.mode & ~mode:
        problems.append(f"may {claim['may']}")
    for flag in ("atomic", "escapes", "holds_pointers"):
        if getattr(need, flag) and not claim.get(flag):
            problems.append(f"not {flag}")
    for n in LAUNCHES:
        problems += ranges_problems(need, claim, n)
    return problems


def ranges_problems(need: Need, claim: dict, n: int) -> List[str]:
    launch = Launch([f"0={n}"])

    def number(name: str) -> Optional[int]:
        return evaluate(claim[name], launch) if name in claim else None

    begin, end, must_begin, must_end = (number(name) for name in ("begin", "end", "must_begin", "must_end"))
    problems = []
    for _, offset, size, runs in need.accesses:
        if not runs(n):
            continue
        if offset is None:
            if begin is not None and end is not None and end - begin < size:
                problems.append(f"[{begin}, {end}) at {n}")
            continue
        if (begin is not None and offset < begin) or (end is not None and offset + size > end):
            problems.append(f"[{begin}, {end}) at {n}")
    if must_begin is not None and must_end is not None and must_begin < must_end:
        written = {byte for mode, offset, size, runs in need.accesses if mode & 2 and offset is not None and runs(n)
                   for byte in range(offset, offset + size)}
        if need.mode & 1 or not written.issuperset(range(must_begin, must_end)):
            problems.append(f"overwrites [{must_begin}, {must_end}) at {n}")
    return problems


def excess_of(need: Need, claim: Optional[dict]) -> str:
    """How the claim says more than the truth, ranges aside; empty: it does not."""
    if claim is None:
        return "without a slot"
    if claim.get("unresolved"):
        return "unresolved"
    if claim.get("escapes") and not need.escapes:
        return "escaping"
    if claim.get("holds_pointers") and not need.holds_pointers:
        return "holding pointers"
    return "" if need.escapes or MODES[claim["may"]] == need.mode else "in another mode"


def understated(need: Need, claim: dict) -> dict:
    """A claim that is false."""
    less = {name: value for name, value in claim.items() if name not in ("unresolved", "escapes")}
    if need.holds_pointers:
        less.pop("holds_pointers", None)
        less["may"] = "read"
    else:
        less["may"] = {3: "read", 2: "read", 1: "write", 0: "none"}[need.mode]
    return less


def compile_file(kernels: List[Kernel], level: str, options: argparse.Namespace) -> Dict[str, dict]:
    """The claims by kernel and place. A kernel that does not compile has none."""
    with tempfile.TemporaryDirectory() as folder:
        source, found = os.path.join(folder, "kernels.cu"), os.path.join(folder, "found.json")
        with open(source, "w", encoding="utf-8") as file:
            file.write(PRELUDE + "".join(f'extern "C" {kernel.text()}' for kernel in kernels))
        output = ["-c"] if options.assemble else ["-S", "-emit-llvm"]
        command = [options.clang, "-std=c++20", f"-{level}", f"--cuda-path={options.cuda}", "--cuda-gpu-arch=sm_90",
                   "-Wno-unknown-cuda-version", "-w", f"-fplugin={options.plugin}",
                   f"-fplugin-arg-pumpgraph-json={found}", "--cuda-device-only", *output, "-o", os.devnull, source]
        run = subprocess.run(command, capture_output=True, text=True, check=False)
        if run.returncode != 0 and len(kernels) > 1:
            return {name: found for kernel in kernels for name, found in compile_file([kernel], level, options).items()}
        if run.returncode != 0:
            print(f"{kernels[0].name} does not compile at -{level}:\n{run.stderr[:options.show * 400]}")
            return {}
        with open(found, encoding="utf-8") as file:
            entries = [json.loads(line) for line in file]
    return {entry["kernel"]: {(slot["parameter"], slot["offset"]): slot for slot in entry["slots"]}
            for entry in entries}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--plugin", required=True)
    parser.add_argument("--clang", default="clang++-22")
    parser.add_argument("--cuda", default="/usr/local/cuda")
    parser.add_argument("--kernels", type=int, default=400)
    parser.add_argument("--seed", default="1")
    parser.add_argument("--levels", default="O0,O2", help="optimisation levels, with commas")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--understate", action="store_true", help="make each claim too small; the run must fail")
    parser.add_argument("--assemble", action="store_true", help="have ptxas see that the text is PTX")
    parser.add_argument("--print", metavar="KERNEL", help="print one kernel's text")
    parser.add_argument("--show-wide", metavar="EXCESS", help="print the first kernel with a claim that is wider so")
    parser.add_argument("--progress", action="store_true")
    parser.add_argument("--show", type=int, default=3, help="how many unsound kernels to print")
    options = parser.parse_args()

    kernels = [draw(f"k{i}", f"{options.seed}/{i}") for i in range(options.kernels)]
    if options.print:
        print(next(kernel.text() for kernel in kernels if kernel.name == options.print))
        return 0
    levels = options.levels.split(",")
    tasks = [(kernels[i:i + KERNELS_PER_FILE], level) for i in range(0, len(kernels), KERNELS_PER_FILE)
             for level in levels]
    unsound: Dict[str, List[str]] = collections.defaultdict(list)
    broken: Set[str] = set()
    counts: "collections.Counter[str]" = collections.Counter()
    with ThreadPoolExecutor(options.jobs) as pool:
        results = pool.map(lambda task: compile_file(*task, options), tasks)
        for done, ((group, level), found) in enumerate(zip(tasks, results)):
            if options.progress:
                print(f"{done} of {len(tasks)} files, {len(unsound)} unsound", file=sys.stderr)
            for kernel in group:
                if kernel.name not in found:
                    broken.add(kernel.name)
                    continue
                for place, need in kernel.needs.items():
                    claim = found[kernel.name].get(place)
                    if options.understate and claim:
                        claim = understated(need, claim)
                    counts["slots"] += 1
                    if problems := problems_of(need, claim):
                        unsound[kernel.name].append(f"-{level}: parameter {place[0]}+{place[1]}: {', '.join(problems)}")
                    else:
                        counts[excess_of(need, claim)] += 1
                        if options.show_wide and excess_of(need, claim) == options.show_wide:
                            print(f"{kernel.name} -{level} {place}: {claim} {vars(need)}\n{kernel.text()}")
                            return 0
    for name in sorted(unsound, key=lambda name: int(name[1:]))[:options.show]:
        kernel = kernels[int(name[1:])]
        print(f"UNSOUND {name} of seed {options.seed}: {'; '.join(unsound[name])}")
        print(f"{' '.join(kernel.steps)}\n{kernel.text()}")
    steps = {step for kernel in kernels for step in kernel.steps}
    print(f"{len(kernels)} kernels at {', '.join('-' + level for level in levels)}, {len(steps)} kinds of steps: "
          f"{len(unsound)} unsound, {len(broken)} do not compile")
    wide = ", ".join(f"{100 * count / counts['slots']:.1f} % {excess}" for excess, count in sorted(counts.items())
                     if excess not in ("", "slots"))
    print(f"{counts['slots']} claims: {100 * counts[''] / max(1, counts['slots']):.1f} % are the truth; wider: {wide}")
    return 1 if unsound or broken else 0


if __name__ == "__main__":
    sys.exit(main())
