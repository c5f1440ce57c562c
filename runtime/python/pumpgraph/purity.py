# SPDX-License-Identifier: Apache-2.0
"""Which operators of PyTorch may run again: what they write is a function, bit for bit, of what they read.

Believed are ATen's operators with a schema that says what they write, and none of the lists below. The forward pass is
what a plan runs again, so operators of the backward pass are left out as a whole: many of them add up in no fixed
order.
"""

from __future__ import annotations

from typing import Any, Dict, List, Sequence, Set

from ._session import OperationKind
from .schemas import given, is_believed
from .tensors import has_memory, is_wrapper, pointer_of, tensors_in

# In no fixed order, by atomics: what torch.use_deterministic_algorithms() refuses or replaces on CUDA, of forward
# operators. (https://pytorch.org/docs/stable/generated/torch.use_deterministic_algorithms.html)
NOT_REPRODUCIBLE = frozenset((
    "index_add", "index_copy", "index_put", "index_put_impl", "index_reduce", "put", "scatter", "scatter_add",
    "scatter_reduce", "masked_scatter", "histc", "bincount", "kthvalue", "median", "nanmedian", "cumsum", "cumprod",
    "logcumsumexp", "ctc_loss", "cudnn_ctc_loss", "nll_loss2d_forward", "embedding_renorm", "segment_reduce",
    "embedding_bag", "embedding_bag_forward_only", "sparse_coo_tensor",
))

# State that is none of their arguments, or that no version of memory stands for.
STATEFUL = frozenset((
    "cudnn_rnn", "cudnn_rnn_flatten_weight", "cudnn_init_dropout_state", "miopen_rnn", "rrelu_with_noise",
    "multinomial", "copy_from", "copy_from_and_resize", "to_copy_from", "set", "resize_as",
))

# Addresses in memory lead to what they read: lists of tensors, batches of matrices, sparse formats.
THROUGH_POINTERS = ("foreach_", "fused_adam", "fused_sgd", "fused_adagrad", "amp_foreach", "grouped_mm",
                    "scaled_grouped_mm", "nested_", "linalg_", "cholesky", "lu_", "ldl_", "triangular_solve", "svd",
                    "lstsq", "ormqr", "geqrf", "orgqr", "householder", "sparse_", "addmm_sparse", "segment_",
                    "split_with_sizes_copy", "chunk_cat")

# One of their kernels writes addresses of operands into memory, by which another finds them: no parameter shows that
# one what it touches. Of the decompositions that is so of batches.
_WRITING_TABLES = ("grouped_mm", "scaled_grouped_mm")
_WRITING_TABLES_OF_BATCHES = ("linalg_lu", "linalg_cholesky", "linalg_inv", "linalg_solve", "linalg_qr", "linalg_eig",
                              "linalg_svd", "linalg_lstsq", "linalg_ldl", "linalg_householder", "cholesky", "lu_",
                              "ldl_", "triangular_solve", "ormqr", "geqrf", "orgqr", "svd", "lstsq")

# Batch norms, which update running statistics besides. In training these reach nothing else; the others read them.
UPDATING_STATISTICS = frozenset((
    "native_batch_norm", "native_batch_norm_legit", "cudnn_batch_norm", "miopen_batch_norm", "batch_norm_with_update",
))
_STATISTICS = ("running_mean", "running_var")


def kind_of(func: Any, args: Sequence[Any], kwargs: Dict[str, Any]) -> OperationKind:
    """What the nodes are that come of a call of the operator."""
    if not is_believed(func):
        return OperationKind.UNKNOWN
    values = [value for given in (args, tuple(kwargs.values())) for value in given]
    if any(is_wrapper(tensor) for value in values for tensor in tensors_in(value)):
        return OperationKind.UNKNOWN
    return OperationKind.PURE if is_pure(func) else OperationKind.WHOLE


def is_pure(func: Any) -> bool:
    """Whether the operator, which is believed, is a function of what it reads."""
    name = base_name(func)
    return not (name.endswith("_backward") or "_backward_" in name or name in NOT_REPRODUCIBLE or name in STATEFUL
                or name.startswith(THROUGH_POINTERS))


def updated_aside(func: Any, args: Sequence[Any], kwargs: Dict[str, Any]) -> List[int]:
    """Addresses of memory whose values reach nothing that a call of a pure operator writes elsewhere."""
    if base_name(func) not in UPDATING_STATISTICS or kind_of(func, args, kwargs) != OperationKind.PURE:
        return []
    values = {argument.name: value for argument, value in given(func._schema.arguments, args, kwargs)}
    if not values.get("training", base_name(func) == "batch_norm_with_update"):
        return []
    memory: Dict[bool, Set[int]] = {True: set(), False: set()}  # of the statistics, and of all else
    for name, value in values.items():
        memory[name in _STATISTICS].update(pointer_of(tensor) for tensor in tensors_in(value) if has_memory(tensor))
    return sorted(memory[True] - memory[False])


def writes_addresses(func: Any, args: Sequence[Any]) -> bool:
    """Whether a call of the operator may leave addresses in memory that its own kernels follow."""
    name = base_name(func)
    if name.startswith(_WRITING_TABLES):
        return True
    return name.startswith(_WRITING_TABLES_OF_BATCHES) and any(
        tensor.dim() > 2 for value in args for tensor in tensors_in(value))


def base_name(func: Any) -> str:
    """Without the overload, the underscores of private and of in-place operators, and "_out"."""
    name = func.__name__.partition(".")[0].strip("_")
    return name[:-len("_out")] if name.endswith("_out") else name
