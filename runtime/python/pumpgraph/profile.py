# SPDX-License-Identifier: Apache-2.0
"""Which line took the memory: the live allocations at the peak, by the lines that made them.

Made of torch.cuda.memory's history, so it works with PyTorch's own allocator too. The walk over the events is done
twice: to find the peak, and to sum up the allocations that are live then.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import sys
import sysconfig
from pathlib import Path
from typing import Any, Dict, Iterator, List, NamedTuple, Tuple, Union

from ._sizes import format_size
from ._text import printable
from .errors import UnsupportedError, invalid

Frames = Tuple[Tuple[str, int, str], ...]  # file, line and function, the innermost first

NO_FRAMES = "(no line of Python: a backward pass, or a library)"
FROM_BEFORE = "(allocated before the profile)"
_NO_LINES = (NO_FRAMES, FROM_BEFORE)
_BY = ("line", "function", "file", "tag")
_AT = ("peak", "end", "all")
_SHOWN = 15


class Row(NamedTuple):
    """Of a line, function, file or tag. Bytes as requested; allocations are those during the profile."""

    name: str
    peak_bytes: int
    end_bytes: int
    allocated_bytes: int
    allocations: int


class MemoryProfile:
    """The allocations of a device while a profile was recorded. print() shows the lines that hold most at the peak."""

    def __init__(self) -> None:
        self.peak_bytes = 0  # of all live allocations
        self.end_bytes = 0
        self.device_bytes = 0  # at the end, of segments: what the allocator holds for allocations, free parts included
        self._snapshot: Dict[str, Any] = {}
        self._sums: Dict[Frames, List[int]] = {}  # bytes at the peak, at the end, in all; number of allocations
        self._tags: Dict[str, List[int]] = {}  # the same

    @classmethod
    def of(cls, snapshot: Dict[str, Any], device: int = 0) -> MemoryProfile:
        """Of a dict that torch.cuda.memory._snapshot() gives, or was saved for memory_viz."""
        profile = cls()
        profile._fill(snapshot, device)
        return profile

    def rows(self, by: str = "line") -> List[Row]:
        """Those that hold most at the peak first; what has no line of Python is last.

        Args:
            by: "line" (default), "function" or "file" of the program that allocates: of the innermost frame outside
                Python's library and installed packages, else outside PyTorch. "tag": each tag with those inside it, at
                its own peak; none where the profile was made without install() or tag().
        """
        if by not in _BY:
            raise invalid(f"rows(by={by!r}); it is one of {', '.join(_BY)}")
        sums: Dict[str, List[int]] = dict(self._tags) if by == "tag" else {}
        for frames, values in self._sums.items() if by != "tag" else ():
            row = sums.setdefault(_place(frames, by), [0, 0, 0, 0])
            row[:] = [one + other for one, other in zip(row, values)]
        rows = [Row(name, *values) for name, values in sums.items()]
        return sorted(rows, key=lambda row: (row.name in _NO_LINES, -row.peak_bytes, -row.allocated_bytes, row.name))

    def folded(self, at: str = "peak") -> str:
        """Stacks with their bytes, a line each, as flamegraph.pl, speedscope and inferno read them.

        Args:
            at: of the allocations that are live at the "peak" (default) or at the "end", or of "all".
        """
        if at not in _AT:
            raise invalid(f"folded(at={at!r}); it is one of {', '.join(_AT)}")
        lines: Dict[str, int] = {}
        for frames, values in self._sums.items():
            size = values[_AT.index(at)]
            if size:
                shown = [f"{function} ({_short(file)}:{line})" if line else function
                         for file, line, function in reversed(frames)]
                text = ";".join(printable(frame).replace(";", ",") for frame in shown) or NO_FRAMES
                lines[text] = lines.get(text, 0) + size
        return "".join(f"{text} {size}\n" for text, size in sorted(lines.items()))

    def save(self, path: Union[str, os.PathLike]) -> None:
        """By the name's ending: .pickle for pytorch.org/memory_viz, anything else as folded() at the peak."""
        if Path(path).suffix == ".pickle":
            Path(path).write_bytes(pickle.dumps(self._snapshot))
        else:
            Path(path).write_text(self.folded(), encoding="utf-8")

    def __str__(self) -> str:
        lines = [f"at the peak {format_size(self.peak_bytes)}, at the end {format_size(self.end_bytes)} in "
                 f"{format_size(self.device_bytes)} of the allocator",
                 f"{'at the peak':>12}{'at the end':>12}{'in all':>12}{'count':>8}  line"]
        all_rows = self.rows()
        rows = [row for row in all_rows if row.name not in _NO_LINES]
        others = all_rows[len(rows):]
        lines += [f"{format_size(row.peak_bytes):>12}{format_size(row.end_bytes):>12}"
                  f"{format_size(row.allocated_bytes):>12}{row.allocations:>8}  {row.name}"
                  for row in rows[:_SHOWN] + others]
        if len(rows) > _SHOWN:
            lines.append(f"and {len(rows) - _SHOWN} more, which hold "
                         f"{format_size(sum(row.peak_bytes for row in rows[_SHOWN:]))} at the peak")
        return "\n".join(lines)

    # ---- from the history --------------------------------------------------------------------------------------------

    def _fill(self, snapshot: Dict[str, Any], device: int) -> None:
        traces = snapshot["device_traces"]
        events = [event for event in (traces[device] if device < len(traces) else ())
                  if event["action"] in ("alloc", "free_completed")]
        segments = [segment for segment in snapshot["segments"] if segment["device"] == device]
        self._snapshot = snapshot
        self.device_bytes = sum(segment["total_size"] for segment in segments)
        before = _live_before(events, segments)
        peak_at = self._find_peak(sum(before.values()), events)
        live: Dict[int, Tuple[Frames, int]] = {address: (((FROM_BEFORE, 0, FROM_BEFORE),), size)
                                               for address, size in before.items()}
        if peak_at == 0:
            self._add(live, 0)
        for number, event in enumerate(events, 1):
            if event["action"] == "alloc":
                frames = tuple((frame["filename"], frame["line"], frame["name"]) for frame in event.get("frames", ()))
                live[event["addr"]] = frames, event["size"]
                sums = self._sums.setdefault(frames, [0, 0, 0, 0])
                sums[2] += event["size"]
                sums[3] += 1
            else:
                live.pop(event["addr"], None)
            if number == peak_at:
                self._add(live, 0)
        self._add(live, 1)
        self.end_bytes = sum(size for _, size in live.values())

    def _fill_tags(self, before: Dict[str, Dict[str, Any]], now: Dict[str, Dict[str, Any]]) -> None:
        for name, row in now.items():
            earlier = before.get(name, {"allocated_bytes": 0, "allocations": 0})
            values = [row["peak_bytes"], row["live_bytes"], row["allocated_bytes"] - earlier["allocated_bytes"],
                      row["allocations"] - earlier["allocations"]]
            if any(values):
                self._tags[printable(name)] = values

    def _find_peak(self, now: int, events: List[Dict[str, Any]]) -> int:
        """After how many events it is."""
        self.peak_bytes, peak_at = now, 0
        for number, event in enumerate(events, 1):
            now += event["size"] if event["action"] == "alloc" else -event["size"]
            if now > self.peak_bytes:
                self.peak_bytes, peak_at = now, number
        return peak_at

    def _add(self, live: Dict[int, Tuple[Frames, int]], column: int) -> None:
        for frames, size in live.values():
            self._sums.setdefault(frames, [0, 0, 0, 0])[column] += size


def _live_before(events: List[Dict[str, Any]], segments: List[Dict[str, Any]]) -> Dict[int, int]:
    """Sizes, by address: what is freed or live at the end, and is not allocated before that."""
    before: Dict[int, int] = {}
    known = set()
    for event in events:
        if event["action"] != "alloc" and event["addr"] not in known:
            before[event["addr"]] = event["size"]
        known.add(event["addr"])
    for segment in segments:
        address = segment["address"]
        for block in segment["blocks"]:
            address = block.get("address", address)
            if block["state"] == "active_allocated" and address not in known:
                before[address] = block.get("requested_size", block["size"])
            address += block["size"]
    return before


# ---- lines -----------------------------------------------------------------------------------------------------------


def _folders(*names: str) -> Tuple[str, ...]:
    paths = sysconfig.get_paths()
    return tuple(os.path.join(os.path.realpath(paths[name]), "") for name in names)


_INSTALLED = _folders("purelib", "platlib", "stdlib", "platstdlib")  # packages lie within the library
_OWN = os.path.join(os.path.dirname(os.path.realpath(__file__)), "")


def _is_installed(file: str) -> bool:
    return file.startswith((*_INSTALLED, _OWN)) or file.startswith("<frozen")


def _is_pytorchs(file: str) -> bool:
    return file.startswith(_OWN) or f"{os.sep}torch{os.sep}" in file or file.startswith("<frozen")


def _place(frames: Frames, by: str) -> str:
    """Of the program, where it can be told."""
    if not frames:
        return NO_FRAMES
    for is_left_out in (_is_installed, _is_pytorchs, lambda file: False):
        for file, line, function in frames:
            if not is_left_out(os.path.realpath(file) if os.path.isabs(file) else file):
                if not line:
                    return printable(file)
                short = printable(_short(file))
                return {"line": f"{short}:{line} {printable(function)}",
                        "function": f"{printable(function)} in {short}", "file": short}[by]
    return NO_FRAMES


def _short(file: str) -> str:
    """Relative to the working folder, or to the folder of packages that it is in."""
    for folder in (os.path.join(os.getcwd(), ""), *_INSTALLED):
        if file.startswith(folder):
            return file[len(folder):]
    return file


def _tags(reset_peaks: bool = False) -> Dict[str, Dict[str, Any]]:
    """Of the session, by name."""
    from . import torch_capture

    if not torch_capture.is_installed():
        return {}
    return {row["tag"]: row for row in torch_capture.installed().session.tags(reset_peaks)}


@contextlib.contextmanager
def memory_profile() -> Iterator[MemoryProfile]:
    """Records every allocation inside the block, on the current device:

        with pumpgraph.memory_profile() as profile:
            train_step(x, y)
        print(profile)                    # the lines that hold most at the peak
        profile.save("peak.folded")       # for a flame graph
        profile.save("memory.pickle")     # for pytorch.org/memory_viz

    The MemoryProfile is filled at the end of the block, also after an exception such as a lack of memory. It uses
    torch.cuda.memory's history, and works without install() too; another recording of it is cleared and ended.
    A captured step allocates nothing when it is replayed: profile its warm-up calls, or look at Step.memory_snapshot().

    Raises:
        UnsupportedError: a profile is being recorded already.
    """
    import torch

    if _Recording.is_on:
        raise UnsupportedError("memory_profile() inside another one: there is one history of allocations")
    profile = MemoryProfile()
    memory = torch.cuda.memory
    memory._record_memory_history("all", context="alloc", stacks="python", max_entries=sys.maxsize, clear_history=True)
    _Recording.is_on = True
    try:
        tags = _tags(reset_peaks=True)
        yield profile
    finally:
        try:
            profile._fill(memory._snapshot(), torch.cuda.current_device())
            profile._fill_tags(tags, _tags())
        finally:
            _Recording.is_on = False
            memory._record_memory_history(None)


class _Recording:
    is_on = False
