# SPDX-License-Identifier: Apache-2.0
"""A step function's source, cut between its statements: into pieces, which are captured, and what lies between them,
which runs on the host.

Any statement may run on the host, where it does what it says. So a cut is never wrong; it is slow in the wrong place.
What is known to wait for the device, or to be for the program to see, is on the host from the beginning; other
statements come to it by their lines, once they are seen to need it. A compound statement that holds one of them is
opened: its head runs on the host, and its body is cut in the same way.
"""

from __future__ import annotations

import __future__
import ast
import inspect
import types
from typing import Any, Dict, FrozenSet, Iterable, Iterator, List, NamedTuple, Set, Tuple

from .errors import UnsupportedError

CALL = "_pumpgraph_call"  # what the driver asks to run a piece
_UNSET, _RESULT, _DRIVER, _PIECE = "_pumpgraph_unset", "_pumpgraph_result", "_pumpgraph_driver", "_pumpgraph_piece_"

# Methods that read the device, and calls whose effect is for the program to see.
_WAITING = frozenset(("item", "tolist", "cpu", "numpy", "nonzero"))
_SHOWING = frozenset(("print", "append", "appendleft", "extend", "add_scalar", "add_scalars", "log", "debug", "info",
                      "warning", "write", "set_postfix", "set_description"))
_WITH_FRAMES = frozenset(("locals", "vars", "eval", "exec", "dir"))
# Calls that touch no tensor's memory: alone, they are not worth a graph.
_IDLE_CALLS = frozenset(("len", "range", "list", "dict", "tuple", "set", "zip", "enumerate", "isinstance", "getattr",
                         "zero_grad", "perf_counter", "time"))
_COMPOUND = tuple(getattr(ast, name) for name in ("If", "For", "While", "With", "Try", "TryStar", "Match")
                  if hasattr(ast, name))
_BODIES = ("body", "orelse", "finalbody")
_FUTURE = sum({getattr(__future__, name).compiler_flag for name in __future__.all_feature_names})


class Unset:
    """Stands for a variable that has no value."""


Function = Any  # a types.FunctionType; a field of that type would be a method of the tuple for mypy


class Cut(NamedTuple):
    """A piece: `function` takes its `inputs` by name, and returns its variables."""

    function: Function
    inputs: Tuple[str, ...]
    outputs: Tuple[str, ...]
    lines: Tuple[int, int]


class Program(NamedTuple):
    """`driver` is the function with calls of CALL in the places of the pieces; `shown`: variables that it looks at."""

    driver: Function
    pieces: List[Cut]
    shown: FrozenSet[str]


def cut(function: types.FunctionType, lines: Set[int], is_method: bool) -> Program:
    """`lines`: of statements that have to run on the host."""
    definition = _parsed(function)
    code = function.__code__
    own = code.co_varnames[:1] if is_method else ()
    names = frozenset((*code.co_varnames, *code.co_cellvars, _RESULT)).difference(own)
    for name in _named(definition.body, ast.Load):
        if name in _WITH_FRAMES:
            raise UnsupportedError(f"{function.__name__} calls {name}(), which looks at all of its variables, and "
                                   "split=True puts some of them elsewhere")
    if is_method and own and own[0] in _stored(definition.body):
        raise UnsupportedError(f"{function.__name__} gives \"{own[0]}\" another value; use another name for split=True")
    declared = _declarations(definition.body)
    definition.body = _with_results_named(definition.body)
    everything, augmented = list(_names(definition.body)), _augmented(definition.body)
    cutter = _Cutter(lines)
    driver = ast.FunctionDef(_DRIVER, definition.args, [], [], None)
    parameters = [each.arg for each in _arguments(definition.args) if each.arg not in own]
    driver.args.kwonlyargs.append(ast.arg(CALL, None))
    driver.args.kw_defaults.append(None)
    body = cutter.cut(definition.body)

    pieces = []
    for block in cutter.blocks:
        inside = set(map(id, _names(block)))
        needed, given = _needed(block)
        elsewhere = {name.id for name in everything if id(name) not in inside and not isinstance(name.ctx, ast.Store)}
        outputs = _stored(block) & names & (elsewhere | needed | augmented)
        inputs = names & (needed | outputs - given)  # what it may leave as it is goes through it
        pieces.append((block, tuple(sorted(inputs)), tuple(sorted(outputs))))
    shown = _read(body)
    arguments = [_call("arguments", [ast.Constant(tuple(parameters))], parameters)] if parameters else []
    driver.body = [*declared, *arguments, *cutter.filled(body, [outputs for _, _, outputs in pieces])]
    made = [driver, *(_piece_function(index, own, inputs, [*declared, *_unset(inputs), *block])
                      for index, (block, inputs, _) in enumerate(pieces))]
    codes = _compiled(function, made)

    cells = dict(zip(code.co_freevars, function.__closure__ or ()))
    cells[_UNSET] = types.CellType(Unset)
    driver_function = _function(function, codes[_DRIVER], cells)
    driver_function.__defaults__, driver_function.__kwdefaults__ = function.__defaults__, function.__kwdefaults__
    cuts = []
    for index, (block, taken, left) in enumerate(pieces):
        piece = _function(function, codes[f"{_PIECE}{index}"], cells)
        piece.__kwdefaults__ = dict.fromkeys(taken, Unset)
        cuts.append(Cut(piece, taken, left, (block[0].lineno, block[-1].end_lineno or block[-1].lineno)))
    return Program(driver_function, cuts, frozenset(shown))


# ---- from a function to its tree and back ----------------------------------------------------------------------------


def _parsed(function: types.FunctionType) -> ast.FunctionDef:
    code = function.__code__
    if code.co_flags & (inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR):
        raise UnsupportedError(f"{function.__name__} is a generator or a coroutine, which split=True does not cut")
    try:
        lines, first = inspect.getsourcelines(code)
        is_indented = lines[0][:1].isspace()
        tree = ast.parse("".join(["if True:\n", *lines] if is_indented else lines))
    except (OSError, TypeError, SyntaxError) as error:
        raise UnsupportedError(f"split=True cuts a function by its source, and that of {function.__name__} is not "
                               f"there ({error})") from None
    statement: Any = tree.body[0]
    if is_indented:
        statement = statement.body[0]
    if not isinstance(statement, ast.FunctionDef):
        raise UnsupportedError("split=True cuts a function between its statements; write it with def")
    ast.increment_lineno(statement, first - 1 - is_indented)
    for argument in _arguments(statement.args):
        argument.annotation = None
    return statement


def _compiled(function: types.FunctionType, made: List[ast.FunctionDef]) -> Dict[str, types.CodeType]:
    """Nested in a function with the same variables around it, and in a class of the same name: for private names."""
    code = function.__code__
    around = ast.FunctionDef("_pumpgraph_around", _parameters([*code.co_freevars, _UNSET]), list(made), [], None)
    if "__class__" in code.co_freevars:
        around.args.args = [each for each in around.args.args if each.arg != "__class__"]
    outer: ast.stmt = around
    classes = function.__qualname__.split(".")[:-1]
    if classes and classes[-1] != "<locals>":
        outer = ast.ClassDef(classes[-1], [], [], [around], [])
        if hasattr(outer, "type_params"):
            outer.type_params = []
    for node in (around, *made):
        if hasattr(ast.FunctionDef("f", _parameters([]), [], []), "type_params"):
            node.type_params = []  # type: ignore[attr-defined]  # of Python 3.12
    tree = ast.fix_missing_locations(ast.Module([outer], []))
    module = compile(tree, code.co_filename, "exec", code.co_flags & _FUTURE, True)
    wanted = {node.name for node in made}
    return {each.co_name: each for each in codes_in(module) if each.co_name in wanted}


def codes_in(code: types.CodeType) -> Iterator[types.CodeType]:
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield constant
            yield from codes_in(constant)


def _function(like: types.FunctionType, code: types.CodeType, cells: Dict[str, Any]) -> types.FunctionType:
    made = types.FunctionType(code, like.__globals__, like.__name__, None,
                              tuple(cells[name] for name in code.co_freevars))
    made.__module__, made.__qualname__ = like.__module__, like.__qualname__
    return made


def _piece_function(index: int, own: Iterable[str], inputs: Iterable[str], body: List[ast.stmt]) -> ast.FunctionDef:
    arguments = _parameters(own)
    arguments.kwonlyargs = [ast.arg(name, None) for name in inputs]
    arguments.kw_defaults = [ast.Constant(None) for _ in inputs]
    left = ast.Return(ast.Call(ast.Name("locals", ast.Load()), [], []))
    return ast.FunctionDef(f"{_PIECE}{index}", arguments, [*body, left], [], None)


def _parameters(names: Iterable[str]) -> ast.arguments:
    return ast.arguments([], [ast.arg(name, None) for name in names], None, [], [], None, [])


def _arguments(arguments: ast.arguments) -> List[ast.arg]:
    more = [each for each in (arguments.vararg, arguments.kwarg) if each is not None]
    return [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, *more]


def _call(what: str, values: List[ast.expr], outputs: Iterable[str]) -> ast.stmt:
    """The driver has something done with its variables, and gets some of them anew."""
    variables = ast.Call(ast.Name("locals", ast.Load()), [], [])
    call = ast.Call(ast.Attribute(ast.Name(CALL, ast.Load()), what, ast.Load()), [*values, variables], [])
    targets: List[ast.expr] = [ast.Name(name, ast.Store()) for name in outputs]
    return ast.Assign([ast.Tuple(targets, ast.Store())], call) if targets else ast.Expr(call)


def _unset(names: Iterable[str]) -> List[ast.stmt]:
    """Variables that have no value have none."""
    return [ast.If(ast.Compare(ast.Name(name, ast.Load()), [ast.Is()], [ast.Name(_UNSET, ast.Load())]),
                   [ast.Delete([ast.Name(name, ast.Del())])], []) for name in names]


# ---- which statements run where --------------------------------------------------------------------------------------


class _Piece(ast.Pass):
    """In the place of a block, until its outputs are known."""

    index = 0


class _Cutter:
    def __init__(self, lines: Set[int]):
        self.blocks: List[List[ast.stmt]] = []
        self._lines = lines

    def cut(self, statements: List[ast.stmt]) -> List[Any]:
        """The statements with blocks taken out."""
        cut: List[Any] = []
        waiting: List[ast.stmt] = []

        def take_out() -> None:
            if waiting and all(map(_is_idle, waiting)):
                cut.extend(waiting)
            elif waiting:
                cut.append(ast.copy_location(_Piece(), waiting[0]))
                cut[-1].index = len(self.blocks)
                self.blocks.append(list(waiting))
            waiting.clear()

        for statement in statements:
            if not self._is_of_the_host(statement):
                waiting.append(statement)
                continue
            take_out()
            if isinstance(statement, _COMPOUND):
                for holder in (statement, *getattr(statement, "handlers", ()), *getattr(statement, "cases", ())):
                    for key in _BODIES:
                        if getattr(holder, key, None):
                            setattr(holder, key, self.cut(getattr(holder, key)))
            cut.append(statement)
        take_out()
        return cut

    def filled(self, statements: List[Any], outputs: List[Tuple[str, ...]]) -> List[ast.stmt]:
        """The same with calls in the places of the blocks."""
        filled: List[ast.stmt] = []
        for statement in statements:
            if isinstance(statement, _Piece):
                call = _call("piece", [ast.Constant(statement.index)], outputs[statement.index])
                filled += [ast.copy_location(each, statement) for each in (call, *_unset(outputs[statement.index]))]
                continue
            if isinstance(statement, _COMPOUND):
                for holder in (statement, *getattr(statement, "handlers", ()), *getattr(statement, "cases", ())):
                    for key in _BODIES:
                        if getattr(holder, key, None):
                            setattr(holder, key, self.filled(getattr(holder, key), outputs))
            filled.append(statement)
        return filled

    def _is_of_the_host(self, statement: ast.stmt) -> bool:
        """Whether it, or something in it, has to run there."""
        span = range(statement.lineno, (statement.end_lineno or statement.lineno) + 1)
        return any(line in self._lines for line in span) or _leaves(statement) \
            or any(map(_runs_there, ast.walk(statement)))


_ALWAYS_THERE = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Import, ast.ImportFrom, ast.AsyncFor,
                 ast.AsyncWith)


def _runs_there(node: ast.AST) -> bool:
    if isinstance(node, ast.Call):
        return _name_of(node) in _WAITING
    if isinstance(node, ast.Expr):
        return isinstance(node.value, ast.Call) and _name_of(node.value) in _SHOWING
    if isinstance(node, ast.Assign):
        return isinstance(node.value, ast.Lambda)
    if isinstance(node, ast.AugAssign):  # most likely it counts
        return isinstance(node.value, ast.Constant) and not isinstance(node.target, ast.Name)
    return isinstance(node, _ALWAYS_THERE)


def _leaves(node: ast.AST, in_loop: bool = False) -> bool:
    """Whether control may leave the statement for somewhere else in the function."""
    if isinstance(node, ast.Return) or isinstance(node, (ast.Break, ast.Continue)) and not in_loop:
        return True
    if isinstance(node, (ast.For, ast.While)):
        return any(_leaves(each, True) for each in node.body) or any(_leaves(each, in_loop) for each in node.orelse)
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)):
        return False
    return any(_leaves(child, in_loop) for child in ast.iter_child_nodes(node))


def _is_idle(statement: ast.stmt) -> bool:
    """Whether it leaves the device alone, as far as can be seen."""
    for node in ast.walk(statement):
        if isinstance(node, (ast.BinOp, ast.UnaryOp, ast.AugAssign, ast.Compare)):
            return False
        if isinstance(node, ast.Subscript) and not isinstance(getattr(node.slice, "value", None), str):
            return False
        if isinstance(node, ast.Call) and (_name_of(node) not in _IDLE_CALLS or any(
                each.arg == "set_to_none" and not (isinstance(each.value, ast.Constant) and each.value.value)
                for each in node.keywords)):
            return False
    return True


def _name_of(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")


def _with_results_named(statements: List[ast.stmt]) -> List[ast.stmt]:
    """What a return computes is computed before, so that it can be part of a piece."""
    named: List[ast.stmt] = []
    for statement in statements:
        for holder in (statement, *getattr(statement, "handlers", ()), *getattr(statement, "cases", ())):
            if isinstance(holder, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                continue
            for key in _BODIES:
                if getattr(holder, key, None):
                    setattr(holder, key, _with_results_named(getattr(holder, key)))
        if isinstance(statement, ast.Return) and statement.value is not None and not _is_idle(statement):
            value = ast.Assign([ast.Name(_RESULT, ast.Store())], statement.value)
            named.append(ast.fix_missing_locations(ast.copy_location(value, statement)))
            statement.value = ast.copy_location(ast.Name(_RESULT, ast.Load()), statement)
        named.append(statement)
    return named


# ---- variables -------------------------------------------------------------------------------------------------------


def _names(statements: Iterable[ast.AST]) -> Iterator[ast.Name]:
    return (node for statement in statements for node in ast.walk(statement) if isinstance(node, ast.Name))


def _named(statements: Iterable[ast.AST], *contexts: Any) -> Set[str]:
    return {name.id for name in _names(statements) if isinstance(name.ctx, contexts)}


def _augmented(statements: Iterable[ast.AST]) -> Set[str]:
    return {node.target.id for statement in statements for node in ast.walk(statement)
            if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name)}


def _read(statements: Iterable[ast.AST]) -> Set[str]:
    """Variables that they look at, or delete."""
    return _named(statements, ast.Load, ast.Del) | _augmented(statements)


def _stored(statements: Iterable[ast.AST]) -> Set[str]:
    stored = _named(statements, ast.Store, ast.Del)
    for statement in statements:
        for node in ast.walk(statement):
            for key in ("name", "rest"):  # of an exception, or a pattern
                if not isinstance(node, ast.alias) and isinstance(getattr(node, key, None), str):
                    stored.add(getattr(node, key))
    return stored


def _needed(block: List[ast.stmt]) -> Tuple[Set[str], Set[str]]:
    """Variables that may be looked at before they get a value inside, and those that are sure to get one."""
    needed: Set[str] = set()
    given: Set[str] = set()

    def follow(statements: Iterable[ast.stmt]) -> None:
        for statement in statements:
            if isinstance(statement, (ast.Assign, ast.AnnAssign)):
                needed.update(_read([statement]) - given)
                targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
                if statement.value is not None:
                    given.update(name.id for target in targets
                                 for name in (target.elts if isinstance(target, ast.Tuple) else [target])
                                 if isinstance(name, ast.Name))
            elif isinstance(statement, ast.With):
                needed.update(_read(statement.items) - given)
                given.update(_named([item.optional_vars for item in statement.items if item.optional_vars], ast.Store))
                follow(statement.body)
            else:
                needed.update(_read([statement]) - given)
                given.difference_update(_named([statement], ast.Del))

    follow(block)
    return needed, given


def _declarations(statements: Iterable[ast.stmt]) -> List[ast.stmt]:
    """Of variables that are not the function's own, for every part of it."""
    found: List[ast.stmt] = []
    for statement in statements:
        for node in _outside_functions(statement):
            if isinstance(node, (ast.Global, ast.Nonlocal)):
                found.append(type(node)(list(node.names)))
    for statement in statements:
        _Undeclared().visit(statement)
    return found


def _outside_functions(node: ast.AST) -> Iterator[ast.AST]:
    yield node
    if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)):
        for child in ast.iter_child_nodes(node):
            yield from _outside_functions(child)


class _Undeclared(ast.NodeTransformer):
    def visit_Global(self, node: Any) -> ast.AST:
        return ast.copy_location(ast.Pass(), node)

    visit_Nonlocal = visit_Global

    def visit_FunctionDef(self, node: Any) -> ast.AST:
        return node

    visit_AsyncFunctionDef = visit_ClassDef = visit_FunctionDef
