# SPDX-License-Identifier: Apache-2.0
"""What the byte code of a function reads by name: variables, globals, attributes and elements along a chain such as
`self.settings["beta"]`, and the use of the value at its end.

Instructions are known by families of names, which are those of CPython 3.9 to 3.14. A value whose use is not
understood counts as read whole.
"""

from __future__ import annotations

import dis
import enum
import functools
import re
import types
from typing import Any, FrozenSet, Iterator, List, NamedTuple, Set, Tuple

# Methods of containers that read nothing of what is in them.
WRITERS = frozenset(("append", "appendleft", "extend", "extendleft", "insert", "add", "discard", "update", "clear",
                     "__setitem__", "__delitem__"))
# Functions that take the name of an attribute as a text.
_BY_TEXT = frozenset(("getattr", "hasattr", "attrgetter", "methodcaller", "vars", "__dict__", "__getattribute__"))
# A walk along the stack goes past these. What is called takes one place there, its NULL or its object none.
_TRANSPARENT = ("CACHE", "NOP", "RESUME", "PRECALL", "KW_NAMES", "EXTENDED_ARG", "MAKE_CELL", "COPY", "SWAP", "DUP_TOP",
                "ROT_", "PUSH_NULL", "NOT_TAKEN", "TO_BOOL", "GEN_START")
_UNKNOWN = ("SETUP_", "BEFORE_", "WITH_", "MATCH_", "GET_LEN", "SEND", "FOR_ITER", "LOAD_SPECIAL", "END_", "CLEANUP_",
            "PUSH_EXC_INFO", "RERAISE", "CHECK_", "GET_AWAITABLE", "YIELD", "PREP_RERAISE")
_CONSTANT_KEYS = (int, str, bool, bytes, float, type(None), tuple)


class Use(enum.Enum):
    WHOLE = "passed on, computed with, iterated over, or not understood"
    CALLED = "called"
    STORED = "something is put into it"
    TESTED = "compared with a constant by identity, or looked at for its class"
    COUNTED = "asked for its length"
    DROPPED = "not used"


# What Python's own functions use of their first argument.
_USE_BY = {"len": Use.COUNTED, "isinstance": Use.TESTED, "type": Use.TESTED, "id": Use.TESTED, "callable": Use.TESTED}


class Kind(enum.Enum):
    ATTRIBUTE = "value.key"
    ELEMENT = "value[key]"
    GET = "value.get(key)"


class Step(NamedTuple):
    """From one value of a chain to the next."""

    kind: Kind
    key: Any

    def __str__(self) -> str:
        return f".{self.key}" if self.kind is Kind.ATTRIBUTE else f"[{self.key!r}]"


class Access(NamedTuple):
    """`name` is a global, or a variable: of its own, of a function around it, or an argument."""

    name: str
    is_global: bool
    path: Tuple[Step, ...]
    use: Use


class CodeReads(NamedTuple):
    """`names`: attributes that are read of anything; `whole`: those of them that are used as a whole; `called`: names
    of methods that are called of anything."""

    accesses: Tuple[Access, ...]
    names: FrozenSet[str]
    whole: FrozenSet[str]
    called: FrozenSet[str]


class _Operation(NamedTuple):
    """`pops` and `pushes`: places of the stack. `key`: a name, a constant, or how many arguments a call has."""

    kind: str
    key: Any
    pops: int
    pushes: int
    is_called: bool = False
    is_target: bool = False


@functools.lru_cache(maxsize=4096)
def reads_of(code: types.CodeType) -> CodeReads:
    """Of the code, and of the functions inside it as far as they name variables around them."""
    operations = list(_operations(code))
    accesses: List[Access] = []
    names: Set[str] = set()
    whole: Set[str] = set()
    called: Set[str] = set()
    for index, operation in enumerate(operations):
        if operation.kind in ("global", "variable"):
            path, use = _walk(operations, index)
            accesses.append(Access(operation.key, operation.kind == "global", path, use))
        elif operation.kind in ("attribute", "super"):
            path, use = _walk(operations, index)
            (called if not path and use is Use.CALLED else names).add(operation.key)
            if path and path[0].key not in WRITERS or not path and use is Use.WHOLE:
                whole.add(operation.key)
    if not _BY_TEXT.isdisjoint(code.co_names):
        texts = {text for text in code.co_consts if isinstance(text, str) and text.isidentifier()}
        names, whole, called = names | texts, whole | texts, called | texts
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            inside = reads_of(constant)
            accesses += [access for access in inside.accesses
                         if access.is_global or access.name in constant.co_freevars]
            names |= inside.names
            whole |= inside.whole
            called |= inside.called
    return CodeReads(tuple(dict.fromkeys(accesses)), frozenset(names), frozenset(whole), frozenset(called))


# ---- one instruction -------------------------------------------------------------------------------------------------


def _operations(code: types.CodeType) -> Iterator[_Operation]:
    closed_over = {*code.co_cellvars, *code.co_freevars}
    is_target = False
    before = ""
    for instruction in dis.get_instructions(code):
        is_target = is_target or instruction.is_jump_target
        for operation in _read(instruction, closed_over, before):
            yield operation._replace(is_target=is_target)
            is_target = False
        before = instruction.opname


def _read(instruction: dis.Instruction, closed_over: Any, before: str) -> Iterator[_Operation]:
    name, argument = instruction.opname, instruction.argval
    is_called = " + " in instruction.argrepr  # with NULL or the object, beside the name
    if name.startswith(_TRANSPARENT):
        return
    if isinstance(argument, tuple) and "_FAST" in name:  # newer Pythons load and store two at once
        for part, variable in zip(re.findall("(LOAD|STORE)_FAST", name), argument):
            yield _Operation("variable", variable, 0, 1) if part == "LOAD" else _Operation("other", None, 1, 0)
    elif name in ("LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS"):
        yield _Operation("global", argument, int("DICT" in name), 1, is_called)
    elif name.startswith(("LOAD_DEREF", "LOAD_CLASSDEREF", "LOAD_FROM_DICT_OR_DEREF")):
        yield _Operation("variable", argument, int("DICT" in name), 1)
    elif name.startswith(("LOAD_FAST", "LOAD_CLOSURE")):
        is_value = argument not in closed_over and name not in ("LOAD_CLOSURE", "LOAD_FAST_AND_CLEAR")
        yield _Operation("variable" if is_value else "other", argument, 0, 1)
    elif name in ("LOAD_ATTR", "LOAD_METHOD"):
        yield _Operation("attribute", argument, 1, 1, is_called or name == "LOAD_METHOD")
    elif name.startswith("LOAD_SUPER_"):
        yield _Operation("super", argument, 3, 1)
    elif name in ("LOAD_CONST", "LOAD_SMALL_INT"):
        yield _Operation("constant", argument, 0, 1)
    elif name == "BINARY_SUBSCR" or name == "BINARY_OP" and instruction.argrepr == "[]":
        yield _Operation("element", None, 2, 1)
    elif name in _STORES:
        yield _Operation("store", _STORES[name], *_effect(instruction, is_store=True))
    elif name.startswith("CALL") and "INTRINSIC" not in name:
        arguments = _arguments(instruction, before)
        yield _Operation("call", arguments, arguments + 1, 1)
    elif name == "IS_OP":
        yield _Operation("test", None, 2, 1)
    elif "JUMP" in name and name.endswith("_NONE"):
        yield _Operation("test", None, 1, 0)
    elif "JUMP" in name or name.startswith(_UNKNOWN):
        yield _Operation("unknown", None, 0, 0)
    elif name == "POP_TOP":
        yield _Operation("drop", None, 1, 0)
    else:
        yield _other(instruction)


# How deep in the stack is what something is put into.
_STORES = {"STORE_ATTR": 1, "DELETE_ATTR": 1, "STORE_SUBSCR": 2, "DELETE_SUBSCR": 2, "STORE_SLICE": 3}


def _arguments(instruction: dis.Instruction, before: str) -> int:
    """The places of the arguments of a call."""
    count = instruction.arg or 0
    if instruction.opname == "CALL_FUNCTION_EX":
        return 1 + (count & 1 if instruction.arg is not None else before != "PUSH_NULL")
    return count + instruction.opname.endswith("_KW")


def _other(instruction: dis.Instruction) -> _Operation:
    try:
        if instruction.opname.startswith("UNPACK_"):
            return _Operation("other", None, 1, _effect(instruction, is_store=False)[1])
        is_store = instruction.opname.startswith(("STORE_", "DELETE_", "POP_"))
        return _Operation("other", None, *_effect(instruction, is_store))
    except ValueError:
        return _Operation("unknown", None, 0, 0)


def _effect(instruction: dis.Instruction, is_store: bool) -> Tuple[int, int]:
    """Places of the stack that it takes and gives, where it gives one at the most, or takes none."""
    effect = dis.stack_effect(instruction.opcode, instruction.arg, jump=False)
    if is_store:
        return -effect, 0
    return (1 - effect, 1) if effect <= 1 else (0, effect)


# ---- the way of a value ----------------------------------------------------------------------------------------------


def _walk(operations: List[_Operation], start: int) -> Tuple[Tuple[Step, ...], Use]:
    """The chain that goes on from the value that `operations[start]` gives, and the use of the last value."""
    path: List[Step] = []
    last, depth = start, 1  # the last operation of the chain, and how deep in the stack its value is
    if operations[start].is_called:
        return (), Use.CALLED
    for index in range(start + 1, len(operations)):
        operation = operations[index]
        if operation.is_target or operation.kind == "unknown":
            break
        if operation.kind == "attribute" and index == last + 1:
            if operation.is_called:
                return (*path, _method(operations, index)), Use.CALLED
            path.append(Step(Kind.ATTRIBUTE, operation.key))
            last = index
        elif operation.kind == "element" and depth == 2 and index == last + 2 and _is_key(operations[index - 1]):
            path.append(Step(Kind.ELEMENT, operations[index - 1].key))
            last, depth = index, 1
        elif operation.pops >= depth:
            if operation.kind == "call" and operation.key == depth and start and operations[start - 1].kind == "global":
                return _as_first_argument(tuple(path), operations[start - 1], operation, operations[last + 1])
            return tuple(path), _use(operation, depth, operations[index - 1])
        else:
            depth += operation.pushes - operation.pops
    return tuple(path), Use.WHOLE


def _is_key(operation: _Operation) -> bool:
    return operation.kind == "constant" and isinstance(operation.key, _CONSTANT_KEYS)


def _method(operations: List[_Operation], index: int) -> Step:
    """`table.get("key")` reads an element."""
    following = operations[index + 1] if index + 1 < len(operations) else None
    if operations[index].key == "get" and following is not None and _is_key(following) and not following.is_target:
        return Step(Kind.GET, following.key)
    return Step(Kind.ATTRIBUTE, operations[index].key)


def _as_first_argument(path: Tuple[Step, ...], function: _Operation, call: _Operation,
                       second: _Operation) -> Tuple[Tuple[Step, ...], Use]:
    """`getattr(thing, "key")` reads an attribute."""
    if function.key in ("getattr", "hasattr") and call.key > 1 and second.kind == "constant" \
            and isinstance(second.key, str):
        return (*path, Step(Kind.ATTRIBUTE, second.key)), Use.WHOLE
    return path, _USE_BY.get(function.key, Use.WHOLE)


def _use(operation: _Operation, depth: int, before: _Operation) -> Use:
    if operation.kind == "store" and operation.key == depth:
        return Use.STORED
    if operation.kind == "call" and depth > operation.key:
        return Use.CALLED
    if operation.kind == "drop":
        return Use.DROPPED
    if operation.kind == "test" and (operation.pops == 1 or before.kind == "constant"):
        return Use.TESTED
    return Use.WHOLE
