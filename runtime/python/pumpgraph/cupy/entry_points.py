# SPDX-License-Identifier: Apache-2.0
"""CuPy's functions and methods as a captured function finds them: they say what they only read, and those that wait
for the device are refused by name.

They are in place during a capture alone, and do something else in its thread alone. A function that is reached in
another way, such as from a container, does what it always does: its operands count as written.
"""

from __future__ import annotations

import contextlib
import functools
import threading
from typing import Any, Callable, Dict, Iterable, Iterator, List, Tuple

import cupy

from . import refusals
from .declaring import Declaring, Rule, positions
from .kernels import Declared, rule_of
from .memory import Installation
from .products import product_in_capture
from .surroundings import Binding

_ALL = 1 << 10

# How many of the first arguments a function of the module cupy only reads, lists of arrays included. Any other one may
# be an output.
_READS: Dict[str, int] = {
    **dict.fromkeys("""sum prod max min amax amin mean std var all any argmax argmin cumsum cumprod nansum nanmean
        nanmax nanmin nanstd nanvar nanprod nanargmax nanargmin nancumsum nancumprod count_nonzero sort argsort
        argpartition partition diff ediff1d copy ascontiguousarray asfortranarray repeat tile flip fliplr flipud roll
        rot90 zeros_like ones_like empty_like ravel reshape squeeze transpose swapaxes moveaxis rollaxis expand_dims
        broadcast_to diag diagflat diagonal trace tril triu around round round_ ptp angle average concatenate stack
        hstack vstack dstack column_stack atleast_1d atleast_2d atleast_3d lexsort bincount gradient cov
        corrcoef""".split(), 1),
    **dict.fromkeys("""take take_along_axis searchsorted digitize dot matmul outer inner vdot kron cross isclose
        allclose array_equal isin in1d full_like polyval choose tensordot convolve correlate""".split(), 2),
    **dict.fromkeys(("where", "clip", "interp"), 3),
    "einsum": _ALL,
}
_WRITES_FIRST: Dict[str, int] = {"copyto": 1, "put": 2, "place": 2, "putmask": 2, "fill_diagonal": 1}
_SCATTERS = ("scatter_add", "scatter_max", "scatter_min")

_BINARY = """add sub mul truediv floordiv mod divmod pow lshift rshift and or xor""".split()
# How many arguments behind the array a method only reads.
_METHODS: Dict[str, int] = {
    **{f"__{name}__": 1 for name in _BINARY},
    **{f"__r{name}__": 1 for name in _BINARY},
    **dict.fromkeys(("__lt__", "__le__", "__gt__", "__ge__", "__eq__", "__ne__", "__matmul__", "__getitem__", "dot",
                     "take", "choose", "searchsorted"), 1),
    **dict.fromkeys(("__neg__", "__pos__", "__abs__", "__invert__", "sum", "mean", "prod", "max", "min", "any", "all",
                     "argmax", "argmin", "cumsum", "cumprod", "std", "var", "astype", "copy", "round", "conj",
                     "conjugate", "argsort", "argpartition", "repeat", "ravel", "flatten", "reshape", "trace",
                     "diagonal", "ptp"), 0),
    "clip": 2,
}
_IN_PLACE: Dict[str, int] = {
    **{f"__i{name}__": 1 for name in _BINARY if name != "divmod"},
    "__setitem__": 2,
    "fill": 1,
}


@contextlib.contextmanager
def in_place(installation: Installation, bindings: Iterable[Binding]) -> Iterator[None]:
    """The entry points are those of a captured function inside. `bindings`: names that the function's code reads."""
    thread = threading.get_ident()
    with contextlib.ExitStack() as undo:
        originals: Dict[Tuple[int, str], Tuple[Any, str, Any]] = {}
        for holder, name, own in _entry_points(thread):
            original = _exchange(undo, holder, name, own)
            if original is not None:
                originals.setdefault((id(holder), name), (holder, name, original))
        replaced = {id(original): getattr(holder, name) for holder, name, original in originals.values()
                    if holder is not cupy.ndarray}
        for binding in bindings:
            own_of_kernel = _for_binding(binding.value, replaced)
            if own_of_kernel is not None:
                binding.put(own_of_kernel)
                undo.callback(binding.put, binding.value)
        Declaring.active = Declaring(installation)
        undo.callback(_stop)
        yield


def _stop() -> None:
    Declaring.active = None


def _for_binding(value: Any, replaced: Dict[int, Any]) -> Any:
    """For `from cupy import add`, and for kernels that the program has made."""
    if id(value) in replaced:
        return replaced[id(value)]
    rule = rule_of(value)
    return Declared(value, rule) if rule is not None else None


# An entry point: its holder, its name, and its replacement made of the original.
_Entry = Tuple[Any, str, Callable[[Any], Any]]


def _entry_points(thread: int) -> List[_Entry]:
    entries: List[_Entry] = []
    for name, value in list(vars(cupy).items()):
        if isinstance(value, cupy.ufunc) and name not in ("matmul",):
            entries.append((cupy, name, functools.partial(Declared, rule=positions(0, value.nin))))
    entries += [(cupy, name, _function(positions(0, count))) for name, count in _READS.items()
                if not isinstance(getattr(cupy, name, None), cupy.ufunc) or name == "matmul"]
    entries += [(cupy, name, _function(positions(1, count))) for name, count in _WRITES_FIRST.items()]
    entries += [(cupy, name, _refused(f"cupy.{name}()", advice, thread))
                for name, advice in refusals.FUNCTIONS.items()]
    entries += [(cupy, name, _from_host(name, thread)) for name in refusals.FROM_HOST]
    entries.append((cupy, "where", _where(thread)))
    entries += _of_products(thread)
    scattering = _module("cupyx")
    if scattering is not None:
        entries += [(scattering, name, _function(positions(1, 2))) for name in _SCATTERS]
    entries += [(cupy.ndarray, name, _function(positions(0, count + 1))) for name, count in _METHODS.items()]
    entries += [(cupy.ndarray, name, _function(positions(1, count))) for name, count in _IN_PLACE.items()]
    entries += [(cupy.ndarray, name, _index(name, thread)) for name in ("__getitem__", "__setitem__")]
    entries += [(cupy.ndarray, name, _refused(f"{name}() of an array", advice, thread))
                for name, advice in refusals.METHODS.items()]
    entries += _of_random_numbers(thread)
    return entries


def _exchange(undo: contextlib.ExitStack, holder: Any, name: str, own: Callable[[Any], Any]) -> Any:
    """Puts own(original) in place, and the original back at the end. Gives the original; None where there is none."""
    original = getattr(holder, name, None)
    if original is None:
        return None
    was_its_own = name in vars(holder)
    before = vars(holder).get(name)
    try:
        setattr(holder, name, own(original))
    except TypeError:  # a type that cannot be changed: its operands count as written
        return None
    if was_its_own:
        undo.callback(setattr, holder, name, before)
    else:
        undo.callback(delattr, holder, name)
    return original


def _module(name: str) -> Any:
    try:
        return __import__(name)
    except ImportError:
        return None


# ---- replacements ----------------------------------------------------------------------------------------------------


def _function(rule: Rule) -> Callable[[Any], Any]:
    def own(original: Any) -> Any:
        @_like(original)
        def call(*args: Any, **kwargs: Any) -> Any:
            return Declaring.call(original, rule, args, kwargs)

        return call

    return own


def _like(original: Any) -> Callable[[Any], Any]:
    """A method of a compiled type may lack what functools.wraps() copies."""
    names = [name for name in ("__name__", "__qualname__", "__doc__", "__module__")
             if isinstance(getattr(original, name, None), str)]
    return functools.wraps(original, assigned=names, updated=())


def _is_looked_at(thread: int) -> bool:
    """Whether a call in this thread is the program's, in the captured function, not CuPy's own."""
    return Declaring.active is not None and threading.get_ident() == thread


def _refused(name: str, advice: str, thread: int) -> Callable[[Any], Any]:
    def own(original: Any) -> Any:
        @_like(original)
        def call(*args: Any, **kwargs: Any) -> Any:
            if _is_looked_at(thread):
                refusals.refuse_wait(name, advice)
            return original(*args, **kwargs)

        return call

    return own


def _from_host(name: str, thread: int) -> Callable[[Any], Any]:
    """An array of CuPy may be copied; anything else would come from host memory."""
    rule = positions(0, 1)

    def own(original: Any) -> Any:
        @_like(original)
        def call(*args: Any, **kwargs: Any) -> Any:
            given = args[0] if args else next(iter(kwargs.values()), None)
            if _is_looked_at(thread) and not _is_on_device(given):
                refusals.refuse_wait(f"cupy.{name}() of values on the host",
                                     "make the array outside of the step and pass it, or write cupy.full(shape, "
                                     "number)")
            return Declaring.call(original, rule, args, kwargs)

        return call

    return own


def _is_on_device(value: Any) -> bool:
    """A single number is filled in, without a copy."""
    if isinstance(value, (list, tuple)):
        return bool(value) and all(hasattr(part, "__cuda_array_interface__") for part in value)
    return hasattr(value, "__cuda_array_interface__") or isinstance(value, (bool, int, float, complex)) \
        or type(value).__module__ == "numpy" and getattr(value, "shape", None) == ()


def _where(thread: int) -> Callable[[Any], Any]:
    rule = positions(0, 3)

    def own(original: Any) -> Any:
        @_like(original)
        def call(*args: Any, **kwargs: Any) -> Any:
            if len(args) + len(kwargs) == 1 and _is_looked_at(thread):
                refusals.refuse_wait("cupy.where() with one argument", refusals.FUNCTIONS["nonzero"])
            return Declaring.call(original, rule, args, kwargs)

        return call

    return own


def _index(name: str, thread: int) -> Callable[[Any], Any]:
    is_assigned = name == "__setitem__"

    def own(original: Any) -> Any:
        @_like(original)
        def call(array: Any, index: Any, *value: Any) -> Any:
            if _is_looked_at(thread):
                refusals.refuse_index(index, is_assigned)
            return original(array, index, *value)

        return call

    return own


def _of_products(thread: int) -> List[_Entry]:
    """CuPy does not capture calls of cuBLAS."""

    def product(original: Any) -> Any:
        @_like(original)
        def call(*args: Any, **kwargs: Any) -> Any:
            if _is_looked_at(thread) and len(args) == 2 and not kwargs:
                result = product_in_capture(*args)
                if result is not None:
                    return result
            return original(*args, **kwargs)

        return call

    return [(cupy, "matmul", product), (cupy, "dot", product), (cupy.ndarray, "__matmul__", product),
            (cupy.ndarray, "dot", product)]


def _of_random_numbers(thread: int) -> List[_Entry]:
    """The seed of a RandomState is a number on the host, or in cuRAND: every replay would draw the same."""
    kind = getattr(getattr(cupy, "random", None), "RandomState", None)
    if not isinstance(kind, type):
        return []
    advice = refusals.OF_LIBRARIES["cuRAND"]
    return [(kind, name, _refused(f"{name}() of cupy.random", advice, thread)) for name, value in vars(kind).items()
            if callable(value) and not name.startswith("_")]
