# SPDX-License-Identifier: Apache-2.0
"""As much of CuPy as pumpgraph.cupy touches, without a GPU. Numbers lie in a dict by their addresses. Kernels run at
once, or are recorded while their stream is captured; replay() runs a recorded graph."""

import builtins
import itertools

from . import cuda
from ._device import LAUNCHES, cells, graphs, launch, replay  # noqa: F401
from .cuda import current, refuse_in_capture

Ellipsis_ = Ellipsis


class dtype:
    SIZES = {"float32": 4, "float64": 8, "int64": 8, "bool": 1}

    def __init__(self, name):
        name = getattr(name, "name", name)
        self.name = {float: "float64", int: "int64", bool: "bool"}.get(name, name)
        self.itemsize = self.SIZES[self.name]

    def __eq__(self, other):
        return self.name == dtype(other).name

    def __hash__(self):
        return hash(self.name)

    def __str__(self):
        return self.name


class Flags:
    def __init__(self, c_contiguous, f_contiguous):
        self.c_contiguous, self.f_contiguous = c_contiguous, f_contiguous


def _dense(shape, itemsize):
    strides, step = [], itemsize
    for length in reversed(shape):
        strides.insert(0, step)
        step *= length
    return tuple(strides)


class Cells:
    """Where the numbers of an array lie. A graph has these, and keeps no array alive."""

    def __init__(self, array):
        self.places = array.addresses()

    def numbers(self):
        return [cells.get(place) for place in self.places]

    def put(self, numbers):
        for place, number in zip(self.places, itertools.cycle(numbers)):
            cells[place] = number


def cells_of(value):
    return Cells(value) if isinstance(value, ndarray) else value


class _ndarray_base:
    def __new__(cls, shape, dtype=float, memptr=None, strides=None, order="C"):
        self = object.__new__(cls)
        shape = (shape,) if isinstance(shape, int) else tuple(shape)
        self.shape, self.dtype, self.base = shape, _dtype(dtype), None
        self.size = 1
        for length in shape:
            self.size *= length
        self.strides = tuple(strides) if strides is not None else _dense(shape, self.dtype.itemsize)
        self.data = memptr if memptr is not None else cuda.alloc(self.size * self.dtype.itemsize)
        return self

    @property
    def ndim(self):
        return len(self.shape)

    @property
    def nbytes(self):
        return self.size * self.dtype.itemsize

    @property
    def flags(self):
        is_dense = self.strides == _dense(self.shape, self.dtype.itemsize)
        return Flags(is_dense, is_dense and self.ndim < 2)

    @property
    def __cuda_array_interface__(self):
        return {}

    # ---- numbers ----

    def addresses(self):
        indices = itertools.product(*map(range, self.shape))
        return [self.data.ptr + builtins.sum(i * s for i, s in zip(index, self.strides)) for index in indices]

    def numbers(self):
        return Cells(self).numbers()

    def put(self, numbers):
        Cells(self).put(numbers)

    def get(self, stream=None, order="C", out=None, blocking=True):
        refuse_in_capture()
        return self.numbers()

    def set(self, numbers):
        own = Cells(self)
        launch(lambda: own.put(numbers), writes=[self], host="copies 8 bytes from host memory")

    def item(self):
        return self.get()[0]

    def __int__(self):
        return int(self.get()[0])

    def __float__(self):
        return float(self.get()[0])

    def __bool__(self):
        return bool(self.get()[0])

    def __repr__(self):
        return f"array({self.get()})"

    def __array__(self):
        raise TypeError("Implicit conversion to a NumPy array is not allowed.")

    # ---- views and copies ----

    def view(self, start, count, step=1):
        stride = self.strides[0]
        view = ndarray((count, *self.shape[1:]), self.dtype, self.data + start * stride,
                       (stride * step, *self.strides[1:]))
        view.base = self if self.base is None else self.base
        return view

    def __len__(self):
        return self.shape[0]

    def __getitem__(self, index):
        if isinstance(index, slice):
            begin, end, step = index.indices(self.shape[0])
            return self.view(begin, max(0, -(-(end - begin) // step)), step)
        if isinstance(index, int):
            view = self.view(index % self.shape[0], 1)
            view.shape, view.strides = self.shape[1:], self.strides[1:]
            return view
        if index.dtype == "bool":
            int(index.sum())  # how many
            return _filled([n for n, wanted in zip(self.numbers(), index.numbers()) if wanted], self.dtype)
        result = empty(index.shape, self.dtype)
        own, at, to = Cells(self), Cells(index), Cells(result)
        launch(lambda: to.put([own.numbers()[int(i)] for i in at.numbers()]), [self, index], [result])
        return result

    def __setitem__(self, index, value):
        if isinstance(index, ndarray):
            own, at, source = Cells(self), Cells(index), cells_of(value)
            launch(lambda: own.put([_number(source, i) if wanted else old for i, (wanted, old) in
                                    enumerate(zip(at.numbers(), own.numbers()))]), [self, index, value], [self])
            return
        target = self if index is Ellipsis_ or index == slice(None) else self[index]
        to, source, count = Cells(target), cells_of(value), target.size
        launch(lambda: to.put([_number(source, i) for i in range(count)]), [value], [target])

    def copy(self, order="C"):
        result = empty(self.shape, self.dtype)
        own, to = Cells(self), Cells(result)
        launch(lambda: to.put(own.numbers()), [self], [result])
        return result

    def fill(self, value):
        own = Cells(self)
        launch(lambda: own.put([value]), [], [self])

    def sum(self, axis=None, dtype=None, out=None):
        result = out if out is not None else empty((), self.dtype)
        own, to = Cells(self), Cells(result)
        launch(lambda: to.put([builtins.sum(own.numbers())]), [self], [result])
        return result

    def sort(self):
        own = Cells(self)
        launch(lambda: own.put(sorted(own.numbers())), [self], [self])

    def __eq__(self, other):
        return equal(self, other)

    __hash__ = None


def _binary(name, reflected=False):
    def method(self, other):
        ufunc_ = globals()[name]
        if not isinstance(other, (ndarray, int, float)):
            return NotImplemented
        return ufunc_.run(other, self) if reflected else ufunc_.run(self, other)

    return method


def _in_place(name):
    def method(self, other):
        return globals()[name].run(self, other, self)

    return method


for _name, _ufunc in (("add", "add"), ("sub", "subtract"), ("mul", "multiply"), ("gt", "greater"), ("lt", "less")):
    setattr(_ndarray_base, f"__{_name}__", _binary(_ufunc))
    if _name in ("add", "sub", "mul"):
        setattr(_ndarray_base, f"__r{_name}__", _binary(_ufunc, reflected=True))
        setattr(_ndarray_base, f"__i{_name}__", _in_place(_ufunc))


class ndarray(_ndarray_base):
    pass


_dtype = dtype


def _number(value, index):
    if not isinstance(value, (ndarray, Cells)):
        return value[index] if isinstance(value, (list, tuple)) else value
    numbers = value.numbers()
    return numbers[index % len(numbers)]


def _filled(numbers, kind):
    result = empty(len(numbers), kind)
    result.put(numbers)
    return result


class ufunc:
    def __init__(self, name, nin, function, kind=None):
        self.name = self.__name__ = name
        self.nin, self.nout, self.nargs = nin, 1, nin + 1
        self._function, self._kind = function, kind

    def run(self, *args):
        arrays = [value for value in args[:self.nin] if isinstance(value, ndarray)]
        result = args[self.nin] if len(args) > self.nin else empty(arrays[0].shape, self._kind or arrays[0].dtype)
        sources, to, count = list(map(cells_of, args[:self.nin])), Cells(result), result.size
        launch(lambda: to.put([self._function(*[_number(source, i) for source in sources]) for i in range(count)]),
               args[:self.nin], [result])
        return result

    def __call__(self, *args, out=None):
        return self.run(*args, *([] if out is None else [out]))


add = ufunc("cupy_add", 2, lambda a, b: a + b)
subtract = ufunc("cupy_subtract", 2, lambda a, b: a - b)
multiply = ufunc("cupy_multiply", 2, lambda a, b: a * b)
greater = ufunc("cupy_greater", 2, lambda a, b: a > b, "bool")
less = ufunc("cupy_less", 2, lambda a, b: a < b, "bool")
equal = ufunc("cupy_equal", 2, lambda a, b: a == b, "bool")


class ParameterInfo:
    def __init__(self, text, is_const):
        words = text.split()
        self.name, self.raw = words[-1], "raw" in words
        self.is_const = is_const and "_non_const" not in words


class ElementwiseKernel:
    """`operation`: a function of numbers in place of code."""

    def __init__(self, in_params, out_params, operation, name="kernel"):
        self.in_params = tuple(ParameterInfo(text, True) for text in in_params.split(","))
        self.out_params = tuple(ParameterInfo(text, False) for text in out_params.split(","))
        self.nin, self.operation, self.name = len(self.in_params), operation, name

    def __call__(self, *args):
        return ufunc(self.name, self.nin, self.operation).run(*args)


class ReductionKernel(ElementwiseKernel):
    pass


class RawKernel:
    """`code`: a function of arrays in place of code."""

    def __init__(self, code, name):
        self.code, self.name = code, name

    def __call__(self, grid, block, args):
        arrays = [value for value in args if isinstance(value, ndarray)]
        given = list(map(cells_of, args))
        launch(lambda: self.code(*given), arrays, arrays)


# ---- functions -------------------------------------------------------------------------------------------------------


def empty(shape, dtype=float, order="C"):
    return ndarray(shape, dtype)


def empty_like(array):
    return ndarray(array.shape, array.dtype)


def full(shape, value, dtype=float):
    result = empty(shape, dtype)
    result.fill(value)
    return result


def zeros(shape, dtype=float):
    return full(shape, 0.0, dtype)


def array(value, dtype=float):
    if isinstance(value, (int, float)):
        return full((), value, dtype)
    if isinstance(value, ndarray):
        return value.copy()
    result = empty(len(value), dtype)
    result.set(value)
    return result


def asarray(value, dtype=float):
    return value if isinstance(value, ndarray) else array(value, dtype)


def from_list(value):
    """As code of others that copies from the host, in a way that nobody looks at."""
    result = empty(len(value))
    _ndarray_base.set(result, value)
    return result


def where(*args):
    if len(args) == 1:
        return nonzero(args[0])
    return ufunc("cupy_where", 3, lambda condition, a, b: a if condition else b, args[1].dtype).run(*args)


def nonzero(array):
    refuse_in_capture()
    return (_filled([i for i, n in enumerate(array.numbers()) if n], "int64"),)


def median(array):
    refuse_in_capture()
    return array.numbers()


def sort(array):
    result = array.copy()
    result.sort()
    return result


def sum(array, axis=None, dtype=None, out=None):  # noqa: A001
    return array.sum(axis, dtype, out)


def bincount(array):
    return zeros(int(max(array.get())) + 1)


def copyto(target, source):
    target[...] = source


def dot(a, b):
    if current().is_capturing():
        raise NotImplementedError("calling cuBLAS API during stream capture is currently unsupported")
    return _filled([builtins.sum(x * y for x, y in zip(a.numbers(), b.numbers()))], a.dtype)


class MemoryPool:
    def malloc(self, size):
        return cuda.plain_malloc(size)

    def free_all_blocks(self):
        pass


def get_default_memory_pool():
    return MemoryPool()


class _Random:
    class RandomState:
        def normal(self, size):
            return zeros(size)

        def _update_seed(self):
            pass


random = _Random()
random.normal = lambda size: random.RandomState().normal(size)
