# SPDX-License-Identifier: Apache-2.0
"""Tensor.record_stream(), for values that a replay is about to overwrite. For frees the library hears of it, both from
Python and from PyTorch's C++ side (pumpgraph_torch_record_stream()); an older PyTorch does not tell it.

A tensor that is used on another stream than it was allocated on must not be given to anybody else before that stream is
done with it. So the memory is held here until the program has let go of it, and the stream has come so far since.
"""

from __future__ import annotations

from typing import Any, Iterable, List

import torch


class _Use:
    def __init__(self, storage: Any, stream: Any):
        self.storage = storage
        self.stream = stream
        self._done: Any = None

    def is_over(self) -> bool:
        if self._done is None:
            if torch._C._storage_Use_Count(self.storage._cdata) > 1:  # the program still has it
                return False
            self._done = torch.cuda.Event()
            self._done.record(self.stream)
        return self._done.query()


class RecordedStreams:
    """What record_stream() was called for and may still be in use."""

    def __init__(self) -> None:
        self.uses: List[_Use] = []
        original = torch.Tensor.record_stream

        def record_stream(tensor: torch.Tensor, stream: Any) -> None:
            original(tensor, stream)
            self.let_go()
            if tensor.is_cuda:
                self.uses.append(_Use(tensor.untyped_storage(), stream))

        torch.Tensor.record_stream = record_stream  # type: ignore[method-assign]

    def __len__(self) -> int:
        return len(self.uses)

    def wait_before_writing(self, storages: Iterable[Any]) -> None:
        """The current stream waits for others that work on this memory, which is about to get other values."""
        written = {storage.data_ptr() for storage in storages}
        for use in self.uses:
            if use.storage.data_ptr() in written:
                torch.cuda.current_stream().wait_stream(use.stream)
        self.uses = [use for use in self.uses if use.storage.data_ptr() not in written]

    def let_go(self) -> None:
        if self.uses and not torch.cuda.is_current_stream_capturing():
            self.uses = [use for use in self.uses if not use.is_over()]
