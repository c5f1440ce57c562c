# SPDX-License-Identifier: Apache-2.0
"""PyTorch's kernels that are known by name, where an operator's schema does not reach: results that one kernel of an
operator leaves for the next."""

from __future__ import annotations

from typing import Dict, Tuple

from ._session import Session

# Parameters, counted from 0, whose memory a kernel only reads: here mean and inverse deviation of a batch norm, which
# an earlier kernel leaves (aten/src/ATen/native/cuda/Normalization.cuh).
READS: Dict[str, Tuple[int, ...]] = {
    "at::native::batch_norm_transform_input_kernel": (2, 3),
    "at::native::batch_norm_transform_input_channels_last_kernel": (2, 3),
}


def declare(session: Session) -> None:
    for name, parameters in READS.items():
        session.declare_kernel_reads(name, parameters)
