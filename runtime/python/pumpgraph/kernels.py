# SPDX-License-Identifier: Apache-2.0
"""What is known of PyTorch's kernels by their names, where an operator's schema does not reach: of what one kernel of an
operator leaves for the next, a schema says nothing."""

from __future__ import annotations

from typing import Dict, Tuple

from ._session import Session

# Parameters that a kernel only reads what they lead to, counted from 0. In the forward pass of a batch norm, one kernel
# leaves mean and inverse deviation, and this one uses them (aten/src/ATen/native/cuda/Normalization.cuh).
READS: Dict[str, Tuple[int, ...]] = {
    "at::native::batch_norm_transform_input_kernel": (2, 3),
    "at::native::batch_norm_transform_input_channels_last_kernel": (2, 3),
}


def declare(session: Session) -> None:
    for name, parameters in READS.items():
        session.declare_kernel_reads(name, parameters)
