# SPDX-License-Identifier: Apache-2.0
"""As much of PyTorch as pumpgraph.torch_capture touches, without a GPU. What it is asked goes to `note`."""

import contextlib
import math
import sys
import types
import weakref

strided = "strided"
dtype = type("dtype", (), {})


class _Kind(str):
    """A dtype."""

    is_complex = False


float32, float64 = _Kind("torch.float32"), _Kind("torch.float64")
int64, complex64 = _Kind("torch.int64"), _Kind("torch.complex64")
complex64.is_complex = True


def note(line):
    """Replaced by the test."""


class OutOfMemoryError(RuntimeError):
    pass


class UntypedStorage:
    """`freed`: the address that a storage which got other memory has given up, for the next one that is made."""

    freed = None

    def __init__(self, size, device):
        self._pointer, self.size, self.device = UntypedStorage.freed, size, device
        self.tensors = weakref.WeakSet()
        UntypedStorage.freed = None

    @property
    def _cdata(self):
        return self

    def data_ptr(self):
        return self._pointer

    def nbytes(self):
        return self.size

    def resizable(self):
        return True

    def resize_(self, size):
        if size:
            UntypedStorage.freed = self._pointer
            self._pointer += 0x7000000
            note(f"torch: move {UntypedStorage.freed:#x}")


class _Storage(UntypedStorage):
    def __init__(self, pointer, device):
        super().__init__(16, device)
        self._pointer = pointer


class Device:
    def __init__(self, type, index=0):
        self.type, self.index = type, index

    def __eq__(self, other):
        return (self.type, self.index) == (other.type, other.index)

    def __hash__(self):
        return hash((self.type, self.index))

    def __str__(self):
        return f"{self.type}:{self.index}"


device = Device


class Tensor:
    def __init__(self, pointer=0, is_cuda=True, requires_grad=False, layout=strided, shape=(2,), dtype=float32):
        self.is_cuda = is_cuda
        self.is_leaf = True
        self.has_negated_view = False
        self.layout = layout
        self.requires_grad = requires_grad
        self.grad = self.grad_fn = None
        self.shape, self.dtype = shape, dtype
        self.device = Device("cuda" if is_cuda else "cpu")
        self.cell = [0.0]
        self._version = 0
        self._storage = _Storage(pointer, self.device)
        self._storage.tensors.add(self)

    @property
    def value(self):
        return self.cell[0]

    @value.setter
    def value(self, value):
        self.cell[0] = value

    def untyped_storage(self):
        return self._storage

    def data_ptr(self):
        return self._storage.data_ptr()

    def stride(self):
        return tuple(1 for _ in self.shape)

    def numel(self):
        return math.prod(self.shape)

    def element_size(self):
        return 8

    def is_neg(self):
        return self.has_negated_view

    def detach(self):
        return self

    def copy_(self, source, non_blocking=False):
        note(f"torch: copy {source.data_ptr():#x} to {self.data_ptr():#x}")
        self._write(source.value)

    def _write(self, value):
        object.__setattr__(self, "value", value)
        object.__setattr__(self, "_version", self._version + 1)

    def item(self):
        if cuda.capturing:
            raise RuntimeError("CUDA error: operation not permitted when stream is capturing")
        note(f"torch: item {self.data_ptr():#x}")
        return self.value

    def is_inference(self):
        return False

    def register_hook(self, hook):
        object.__setattr__(self, "hook", hook)

    def to(self, device, non_blocking=False):
        return self

    def zero_(self):
        note("torch: zero")

    def fill_(self, value):
        note(f"torch: fill {self.data_ptr():#x} with {value}")
        self._write(value)

    def cpu(self):
        return Tensor(self.data_ptr(), is_cuda=False)

    def __gt__(self, number):
        return Tensor(self.data_ptr() + 0x80)

    def requires_grad_(self, requires_grad=True):
        object.__setattr__(self, "requires_grad", requires_grad)

    def set_(self, source, *_place):
        object.__setattr__(self, "_storage", getattr(source, "_storage", source))
        if isinstance(source, Tensor):
            object.__setattr__(self, "cell", source.cell)
        self._storage.tensors.add(self)
        return self

    def view(self):
        """Another tensor in the same memory."""
        return Tensor().set_(self)

    def clone(self):
        copy = empty_like(self)
        copy.value = self.value
        return copy

    def tolist(self):
        return self.value

    def is_pinned(self):
        return False

    def storage_offset(self):
        return 0

    def size(self):
        return self.shape

    def detach_(self):
        pass

    resize_ = resize_as_ = set_

    def record_stream(self, stream):
        pass

    def new_tensor(self, data, dtype=None, device=None, requires_grad=False):
        return tensor(data, dtype, device or self.device, requires_grad)


def tensor(data, dtype=None, device=None, requires_grad=False):
    note(f"torch: copy {data} to {device}")
    made = Tensor(dtype=dtype or float32, requires_grad=requires_grad)
    made.value = data
    return made


def as_tensor(data, dtype=None, device=None):
    return tensor(data, dtype, device)


def zeros(size, dtype=float32, device=None):
    return Tensor(0x9000, dtype=dtype)


def where(condition, one, other, out):
    note(f"torch: where {condition.data_ptr():#x} {one.data_ptr():#x} or {other.data_ptr():#x} to {out.data_ptr():#x}")


def empty(size, dtype=None, device=None):
    return Tensor()


_made = {}


def fresh(pointer):
    """Other memory in each call, as an operator's result has: 0x100 further each time."""
    _made[pointer] = _made.get(pointer, 0) + 1
    return Tensor(pointer + 0x100 * (_made[pointer] - 1))


def empty_like(tensor, device=None, requires_grad=False):
    """Memory of its own: 0x100 further."""
    return Tensor(tensor.data_ptr() + 0x100, shape=tensor.shape, dtype=tensor.dtype, requires_grad=requires_grad)


no_grad = contextlib.nullcontext


def inference_mode(mode):
    return contextlib.nullcontext()


def is_grad_enabled():
    return True


def is_inference_mode_enabled():
    return False


def is_autocast_enabled():
    return False


def are_deterministic_algorithms_enabled():
    return False


def clear_autocast_cache():
    pass


class _C:
    @staticmethod
    def _dispatch_has_kernel_for_dispatch_key(name, key):
        return name == "composite" and key == "CompositeImplicitAutograd"

    class _DisableTorchDispatch:
        pass

    DisableTorchFunctionSubclass = contextlib.nullcontext

    class _autograd:
        @staticmethod
        def _unsafe_set_version_counter(tensors, versions):
            for tensor, version in zip(tensors, versions):
                object.__setattr__(tensor, "_version", version)

    uses = 1
    node = None  # of autograd, whose backward is running

    @staticmethod
    def _current_autograd_node():
        return _C.node

    @staticmethod
    def _get_cudnn_deterministic():
        return backends.cudnn.deterministic

    @staticmethod
    def _cuda_getCurrentRawStream(device):
        return id(cuda.current)

    @staticmethod
    def _storage_Use_Count(storage):
        """Of the tensors in it, and Python's object."""
        return len(storage.tensors) + 1 if isinstance(storage, UntypedStorage) else _C.uses


class _Engine:
    def run_backward(self, *tensors):
        """Fills in `.grad` as PyTorch does, past Python's assignments."""
        for tensor in tensors:
            object.__setattr__(tensor, "grad", Tensor(0xB900))


class autograd:
    class Variable:
        _execution_engine = _Engine()

    nodes = 0  # that were made

    @staticmethod
    def _get_sequence_nr():
        return autograd.nodes


class backends:
    class cudnn:
        benchmark = deterministic = False


class utils:
    class _python_dispatch:
        stack = []

        class TorchDispatchMode:
            def __enter__(self):
                utils._python_dispatch.stack.append(self)
                return self

            def __exit__(self, *_error):
                utils._python_dispatch.stack.pop()

        @staticmethod
        @contextlib.contextmanager
        def _disable_current_modes():
            stack = utils._python_dispatch.stack
            above = list(stack)
            stack.clear()
            yield
            stack += above

        @staticmethod
        def _get_current_dispatch_mode():
            return utils._python_dispatch.stack[-1] if utils._python_dispatch.stack else None


class _Handle:
    def __init__(self, hooks, hook):
        self._hooks, self._hook = hooks, hook

    def remove(self):
        self._hooks.remove(self._hook)


def get_rng_state():
    return 42


def set_rng_state(state):
    note(f"torch: set_rng_state {state}")


class nn:
    class Parameter(Tensor):
        pass

    class parallel:
        class DistributedDataParallel:
            pass

    class DataParallel:
        pass

    class modules:
        class module:
            hooks = []

            @staticmethod
            def register(hook):
                nn.modules.module.hooks.append(hook)

            register_module_parameter_registration_hook = register
            register_module_buffer_registration_hook = register
            register_module_module_registration_hook = register

    class Module:
        def __init__(self, parameters=None, buffers=None, children=None):
            object.__setattr__(self, "training", True)
            self._parameters = parameters or {}
            self._buffers = buffers or {}
            self._children = children or {}
            self._hooks, self._pre_hooks = [], []

        def named_parameters(self):
            return iter(self._parameters.items())

        def named_buffers(self):
            return iter(self._buffers.items())

        def parameters(self):
            return iter(self._parameters.values())

        def buffers(self):
            return iter(self._buffers.values())

        def modules(self):
            return (module for _, module in self.named_modules())

        def named_modules(self):
            yield "", self
            yield from self._children.items()

        def register_parameter(self, name, param):
            self._parameters[name] = param

        def __delattr__(self, name):
            for members in (self._parameters, self._buffers, self._children):
                if name in members:
                    del members[name]
                    return
            object.__delattr__(self, name)

        def _apply(self, fn):
            for name, buffer in self._buffers.items():
                self._buffers[name] = fn(buffer)

        def register_forward_hook(self, hook, always_call=False):
            assert always_call, "or the module seems to run for ever after an exception"
            self._hooks.append(hook)
            return _Handle(self._hooks, hook)

        def register_forward_pre_hook(self, hook):
            self._pre_hooks.append(hook)
            return _Handle(self._pre_hooks, hook)

        def __call__(self, *inputs):
            for hook in list(self._pre_hooks):
                hook(self, inputs)
            output = None
            try:
                output = self.forward(*inputs)
            finally:
                for hook in list(self._hooks):
                    hook(self, inputs, output)
            return output


class amp:
    class GradScaler:
        def step(self, optimizer, found_inf):
            return self._maybe_opt_step(optimizer, {"found_inf_per_device": {"cuda:0": found_inf}})

        def _maybe_opt_step(self, optimizer, optimizer_state, *arguments, **named):
            if sum(found_inf.item() for found_inf in optimizer_state["found_inf_per_device"].values()):
                return None
            return optimizer.step(*arguments, **named)


class optim:
    class Optimizer:
        def __init__(self, parameters, **settings):
            self.param_groups = [{"params": list(parameters), **settings}]
            self.state = {}

        def step(self):
            for hook in list(_step_hooks):
                hook(self, (), {})
            note("torch: optimizer step")
            for hook in list(_after_step_hooks):
                hook(self, (), {})


_step_hooks = []
_after_step_hooks = []


def _register_optimizer_step_pre_hook(hook):
    _step_hooks.append(hook)
    return _Handle(_step_hooks, hook)


def _register_optimizer_step_post_hook(hook):
    _after_step_hooks.append(hook)
    return _Handle(_after_step_hooks, hook)


# As in PyTorch: a module that can be imported from, and no attribute of torch.optim.
_optimizer = types.ModuleType("torch.optim.optimizer")
_optimizer.register_optimizer_step_pre_hook = _register_optimizer_step_pre_hook
_optimizer.register_optimizer_step_post_hook = _register_optimizer_step_post_hook
sys.modules[_optimizer.__name__] = _optimizer


class cuda:
    OutOfMemoryError = OutOfMemoryError
    initialized = False
    allocator_in_use = False
    current = None
    graphs = 0
    instantiate_fails = capturing = False

    @staticmethod
    def device_count():
        return 2

    @staticmethod
    def is_initialized():
        return cuda.initialized

    @staticmethod
    def synchronize():
        note("torch: synchronize")

    @staticmethod
    def is_current_stream_capturing():
        return cuda.capturing

    @staticmethod
    def current_stream():
        return cuda.current

    @staticmethod
    def set_stream(stream):
        cuda.current = stream

    @staticmethod
    @contextlib.contextmanager
    def stream(stream):
        before, cuda.current = cuda.current, stream
        try:
            yield
        finally:
            cuda.current = before

    class Stream:
        cuda_stream = 0x57

        def wait_stream(self, other):
            note("torch: wait_stream")

    class Event:
        """Over at once unless `busy`."""

        busy = False

        def record(self, stream=None):
            pass

        def query(self):
            return not cuda.Event.busy

    class CUDAGraph:
        def __init__(self, keep_graph=False):
            cuda.graphs += 1
            self._number = cuda.graphs
            self._keeps_graph = keep_graph

        def capture_begin(self, pool=None, capture_error_mode="global"):
            note(f"torch: begin {self._number} {capture_error_mode}")

        def capture_end(self):
            note(f"torch: end {self._number}")

        def raw_cuda_graph(self):
            assert self._keeps_graph
            return 0x6000 + self._number

        def instantiate(self):
            if cuda.instantiate_fails:
                raise RuntimeError("CUDA error: out of memory")
            note(f"torch: instantiate {self._number}")

        def replay(self):
            note(f"torch: replay {self._number}")

        def reset(self):
            note(f"torch: reset {self._number}")

    class graph:
        """Like the real one, it does not restore the stream when the end of the capture fails."""

        def __init__(self, graph, stream=None, capture_error_mode="global"):
            self._graph, self._mode = graph, capture_error_mode
            self._stream = stream or cuda.Stream()

        def __enter__(self):
            self._before, cuda.current = cuda.current, self._stream
            cuda.capturing = True
            self._graph.capture_begin(capture_error_mode=self._mode)

        def __exit__(self, kind, error, trace):
            self._graph.capture_end()
            cuda.capturing = False
            if error is not None:
                raise RuntimeError("CUDA error: operation failed due to a previous error during capture")
            cuda.current = self._before

    class memory:
        @staticmethod
        def _snapshot():
            return {}

        @staticmethod
        def _record_memory_history(enabled="all", *arguments, **options):
            raise RuntimeError("a pluggable allocator has no history")

        @staticmethod
        def memory_snapshot(mempool_id=None):
            raise RuntimeError("a pluggable allocator has no segments")

        @staticmethod
        def memory_stats_as_nested_dict(device=None):
            raise RuntimeError("a pluggable allocator has no statistics")

        @staticmethod
        def reset_accumulated_memory_stats(device=None):
            raise RuntimeError("a pluggable allocator has no statistics")

        @staticmethod
        def reset_peak_memory_stats(device=None):
            raise RuntimeError("a pluggable allocator has no statistics")

        class CUDAPluggableAllocator:
            def __init__(self, path, malloc, free):
                note(f"torch: allocator {malloc} {free}")

            def allocator(self):
                return self

            def set_reset_fn(self, function):
                note(f"torch: empty_cache {'nothing' if function == 0 else 'set'}")

            def set_record_stream_fn(self, function):
                note(f"torch: record_stream {'nothing' if function == 0 else 'set'}")

        @staticmethod
        def change_current_allocator(allocator):
            if cuda.allocator_in_use:
                raise RuntimeError("Can't swap an already initialized allocator")
            note("torch: change_current_allocator")


cuda.current = cuda.Stream()
