# SPDX-License-Identifier: Apache-2.0
"""PyTorch's DistributedDataParallel and fully_shard() in captured steps: what they decide on the host, and which of
their options a replay cannot follow.

docs/design/ranks.md has the reasons.
"""

from __future__ import annotations

import contextlib
import os
import sys
import types
import weakref
from typing import Any, Callable, Dict, Iterable, Iterator, List, NamedTuple, Optional, Tuple

import torch

from .collectives import refuse_group
from .errors import StaleStepError, UnsupportedError
from .tensors import has_memory, plain_tensors, pointer_of, tensors_in

# DDP reads clocks of the device in its first ten iterations, and in every hundredth after that.
DDP_WARM_UP = 11
_NEVER = 1 << 30  # iterations between two times that it reads them

_Flags = Tuple[bool, ...]
# Of a group of sharded parameters: all that changes the nodes of a step.
_SETTINGS = ("reduce_grads", "all_reduce_grads", "reshard_after_backward", "gradient_divide_factor",
             "reduce_scatter_reduce_op", "force_sum_reduction_for_comms", "unshard_in_backward")


def _is_ddp(module: Any) -> bool:
    return isinstance(module, torch.nn.parallel.DistributedDataParallel)


def has_ddp(modules: Iterable[Any]) -> bool:
    return any(map(_is_ddp, modules))


def _ddps(modules: Iterable[Any]) -> List[Any]:
    return list({id(module): module for module in modules if _is_ddp(module)}.values())


def _fsdp() -> Any:
    """torch.distributed.fsdp, if the program has imported it."""
    return sys.modules.get("torch.distributed.fsdp")


def _groups_of(module: Any) -> Iterator[Any]:
    """The groups of parameters that fully_shard() has made of a module: none, one, or in later versions several."""
    kind = getattr(_fsdp(), "FSDPModule", ())
    if not isinstance(module, kind):
        return
    state = module._get_fsdp_state()
    groups = getattr(state, "_fsdp_param_groups", None)
    for group in groups if groups is not None else [getattr(state, "_fsdp_param_group", None)]:
        if group is not None:
            yield group


# ---- refusals --------------------------------------------------------------------------------------------------------


def refuse_parallel(module: Any, name: str) -> None:
    """Raises UnsupportedError for a module that trains on several devices in a way that no replay can follow."""
    if isinstance(module, torch.nn.DataParallel):
        raise UnsupportedError(f"{name} is a DataParallel: PumpGraph trains on one device in a process; write "
                               "DistributedDataParallel, and start a process for each device with torchrun")
    if isinstance(module, getattr(_fsdp(), "FullyShardedDataParallel", ())):
        raise UnsupportedError(f"{name} is a FullyShardedDataParallel, which moves its parameters on the host; write "
                               "torch.distributed.fsdp.fully_shard()")
    if _is_ddp(module):
        _refuse_ddp(module, f"{name} is a DistributedDataParallel: it")
    for group in _groups_of(module):
        _refuse_sharding(module, group, f"{name} is sharded by fully_shard(): it")


def _refuse_ddp(module: Any, what: str) -> None:
    if module.find_unused_parameters:
        raise UnsupportedError(f"{what} has find_unused_parameters=True, by which the host finds in each iteration "
                               "which parameters took part, and a replay runs no Python; write False, and give every "
                               "parameter a part in the loss")
    if module.static_graph:
        raise UnsupportedError(f"{what} has static_graph=True, which counts on the host how often parameters are used; "
                               "write False")
    if getattr(module, "mixed_precision", None) is not None:
        raise UnsupportedError(f"{what} has mixed_precision, which casts parameters in threads and streams of its own; "
                               "write torch.autocast() in the step")
    if getattr(module, "_comm_hooks", None):
        raise UnsupportedError(f"{what} has a communication hook, which may work on the host; leave out "
                               "register_comm_hook()")
    if not module.require_backward_grad_sync:
        raise UnsupportedError(f"{what} is called inside no_sync(), and keeps its sums for a later call; put all "
                               "batches of an update into one step, with no_sync() around all but the last there")
    if _joins(module):
        raise UnsupportedError(f"{what} is called inside join(), by which the host tells other ranks of each call; "
                               "give all ranks as many batches")
    if module.process_group.size() > 1 and module.broadcast_buffers and any(True for _ in module.buffers()):
        raise UnsupportedError(f"{what} has buffers, which it broadcasts or not as the call before was, an evaluation "
                               "among them; write broadcast_buffers=False")
    refuse_group(module.process_group, what)


def _refuse_sharding(module: Any, group: Any, what: str) -> None:
    if any(parameter.offload_to_cpu for parameter in group.fsdp_params):
        raise UnsupportedError(f"{what} has a CPUOffloadPolicy, which keeps parameters in host memory; leave it out: "
                               "under PumpGraph they leave the device where that costs least")
    for communication in (getattr(group, "_all_gather_comm", None), getattr(group, "_reduce_scatter_comm", None)):
        if communication is not None and not type(communication).__name__.startswith("Default"):
            raise UnsupportedError(f"{what} communicates by a {type(communication).__name__}, whose buffers are not "
                                   "PumpGraph's; leave out set_custom_all_gather(), set_custom_reduce_scatter() and "
                                   "set_allocate_memory_from_process_group()")
    if getattr(group, "_all_reduce_hook", None) is not None:
        raise UnsupportedError(f"{what} has an all-reduce hook, which may work on the host; leave out "
                               "set_all_reduce_hook()")
    is_last = module._get_fsdp_state()._state_ctx.is_last_backward
    if not (group.reduce_grads and group.all_reduce_grads and group.reshard_after_backward and is_last):
        raise UnsupportedError(f"{what} keeps whole gradients or parameters from call to call, where no search finds "
                               "them; call set_requires_gradient_sync(), set_reshard_after_backward() and the like "
                               "inside the step, which then has all batches of an update")
    refuse_group(group._all_gather_process_group, what)
    if getattr(group, "_is_hsdp", False):
        refuse_group(group._all_reduce_process_group, what)


def refuse_in_pieces(modules: Iterable[Any]) -> None:
    """Of a step that is cut: from a piece with the forward pass to one with the backward pass they keep account on the
    host, and no replay does."""
    for module in modules:
        if _is_ddp(module) or any(True for _ in _groups_of(module)):
            raise UnsupportedError(f"a {type(module).__name__} brings gradients together in a step that is cut into "
                                   "pieces, and keeps account on the host in between; leave out split=True, and let "
                                   "the step return what it looks at")


def refuse_unfinished(modules: Iterable[Any]) -> None:
    """After a call of the step: raises UnsupportedError where sharded modules keep more than shards."""
    for module in modules:
        for group in _groups_of(module):
            keeps = [parameter for parameter in group.fsdp_params
                     if getattr(parameter, "unsharded_accumulated_grad", None) is not None
                     or getattr(getattr(parameter, "_unsharded_param", None), "grad", None) is not None]
            sums = getattr(group, "_partial_reduce_output", None) is not None
            if keeps or sums or group.is_unsharded:
                left = "whole gradients" if keeps or sums else "whole parameters"
                raise UnsupportedError(f"the step leaves {left} of a {type(module).__name__} that fully_shard() has "
                                       "sharded, for its next call, which no replay would see; end the step with a "
                                       "backward pass that reduces gradients, or with module.reshard()")


# ---- what is decided on the host -------------------------------------------------------------------------------------


class HostFlags:
    """Settings of these modules that a context such as no_sync() changes between calls. Read in every call."""

    def __init__(self, modules: Iterable[Any]):
        self._ddps = _ddps(modules)

    def __bool__(self) -> bool:
        return bool(self._ddps)

    def now(self) -> _Flags:
        return tuple(module.require_backward_grad_sync for module in self._ddps)

    def words(self) -> Tuple[str, ...]:
        """For the text of a signature."""
        return ("no_sync",) if self._ddps and not all(self.now()) else ()


class Warming(NamedTuple):
    calls: int
    reason: str


def warm_up_needed(modules: Iterable[Any], asked: int) -> Warming:
    """How many eager calls a step with these modules needs, if more than `asked`."""
    if asked < DDP_WARM_UP and torch.is_grad_enabled() and any(HostFlags(modules).now()):
        return Warming(DDP_WARM_UP, "DistributedDataParallel reads clocks of the device in its first ten iterations")
    return Warming(asked, "")


def prepare_to_capture(modules: Iterable[Any]) -> None:
    """DDP reads no more clocks, which a capture forbids, and shards are gathered inside."""
    modules = list(modules)
    for module in _ddps(modules):
        module._set_ddp_runtime_logging_sample_rate(_NEVER)
    give_up_whole(modules)


def give_up_whole(modules: Iterable[Any]) -> bool:
    """A forward pass outside of the step may leave whole parameters, which the next one takes for those of today.
    Returns whether there were some; the modules have others in their place then."""
    whole = [module for module in modules if any(group.is_unsharded for group in _groups_of(module))]
    for module in whole:
        module.reshard()
    return bool(whole)


class CapturedParallel:
    """The modules of a captured step that train on several devices, and their settings at the capture."""

    def __init__(self, modules: Iterable[Any]):
        modules = list({id(module): module for module in modules}.values())
        self._ddps = _ddps(modules)
        self._sharded = [module for module in modules if any(True for _ in _groups_of(module))]
        self._settings = self._now()

    def __bool__(self) -> bool:
        return bool(self._ddps or self._sharded)

    def give_up_whole(self) -> None:
        """The step leaves no whole parameters behind either."""
        give_up_whole(self._sharded)

    def before_replay(self) -> None:
        """Raises StaleStepError where settings are others."""
        self.give_up_whole()
        if self._now() != self._settings:
            raise StaleStepError("a setting of DistributedDataParallel or fully_shard() is another than at the "
                                 "capture, such as join(), a divide factor or the synchronization of gradients; set it "
                                 "ahead of the first call, and leave it")

    def _now(self) -> List[Any]:
        return [*map(_joins, self._ddps), *(getattr(group, name, None) for module in self._sharded
                                            for group in _groups_of(module) for name in _SETTINGS),
                *(module._get_fsdp_state()._state_ctx.is_last_backward for module in self._sharded)]


def _joins(module: Any) -> bool:
    return bool(getattr(getattr(module, "_join_config", None), "enable", False))


@contextlib.contextmanager
def explained_of_parallel(modules: List[Any]) -> Iterator[None]:
    """Around a rehearsal: where it fails in a way of captures, one more reason that a DDP may have."""
    try:
        yield
    except UnsupportedError as error:
        if not has_ddp(modules) or not _is_of_a_capture(error):
            raise
        raise UnsupportedError(f"{error}. Or a DistributedDataParallel was made on the default stream, whose backward "
                               "pass then goes there, which breaks captures; make it inside "
                               "torch.cuda.stream(torch.cuda.Stream())") from error


def _is_of_a_capture(error: BaseException) -> bool:
    """Whether it explains an error of CUDA's or PyTorch's."""
    return isinstance(error.__cause__, RuntimeError)


# ---- memory of DDP ---------------------------------------------------------------------------------------------------


class Buckets:
    """Memory that DDP gives to collectives in a rehearsal, and that the rehearsal does not make: gradients, bucket by
    bucket. Nothing else leads to it. What the program gives to collectives is its own, and is left out."""

    def __init__(self, weakly: Optional[Callable[[Any], Any]] = None):
        self._weakly = weakly
        self._noted: Dict[int, Any] = {}  # by address

    def note(self, arguments: Any) -> None:
        if _is_called_by_the_program():
            return
        for tensor in tensors_in(arguments):
            for plain in plain_tensors(tensor):
                if has_memory(plain):
                    self._noted.setdefault(pointer_of(plain), self._weak(plain.untyped_storage()))

    def _weak(self, storage: Any) -> Any:
        if self._weakly is None:
            from torch.multiprocessing.reductions import StorageWeakRef

            self._weakly = StorageWeakRef
        return self._weakly(storage)

    def pointers(self) -> List[int]:
        """After the rehearsal, whose own memory is gone."""
        return [pointer for pointer, storage in self._noted.items() if not storage.expired()]

    def keep(self, modules: Iterable[Any]) -> None:
        """They are known as the memory of these DDPs from now on."""
        noted = {pointer: self._noted[pointer] for pointer in self.pointers()}
        for module in _ddps(modules):
            _BUCKETS.setdefault(module, Buckets())._noted.update(noted)


# Of all kinds of calls that were captured.
_BUCKETS: "weakref.WeakKeyDictionary[Any, Buckets]" = weakref.WeakKeyDictionary()


def buckets_of(modules: Iterable[Any]) -> List[int]:
    """Their addresses, as far as they are known."""
    return list(dict.fromkeys(pointer for module in _ddps(modules) if module in _BUCKETS
                              for pointer in _BUCKETS[module].pointers()))


def _is_called_by_the_program() -> bool:
    """Whether Python code of neither PyTorch nor PumpGraph runs. In the threads of autograd from which DDP calls, none
    does."""
    own = tuple(os.path.dirname(os.path.abspath(file)) + os.sep for file in (torch.__file__, __file__))
    frame: Optional[types.FrameType] = sys._getframe(1)
    while frame is not None:
        if not os.path.abspath(frame.f_code.co_filename).startswith(own):
            return True
        frame = frame.f_back
    return False
