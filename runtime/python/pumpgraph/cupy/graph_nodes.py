# SPDX-License-Identifier: Apache-2.0
"""Nodes of a captured graph that no replay could repeat: copies from or to host memory, and calls of host functions.

CuPy copies lists and arrays of NumPy through host memory that others get soon after.
"""

from __future__ import annotations

import ctypes
import functools
from ctypes import byref, c_int, c_size_t, c_uint64, c_void_p
from typing import Any, Callable, List, Optional

_MEMCPY, _HOST_FUNCTION, _CHILD = 1, 3, 4  # CUgraphNodeType
_ON_HOST, _ON_DEVICE, _UNIFIED = 1, 2, 4  # CUmemorytype
_POINTER_ATTRIBUTE_MEMORY_TYPE = 2


class _Side(ctypes.Structure):
    _fields_ = [("x", c_size_t), ("y", c_size_t), ("z", c_size_t), ("lod", c_size_t), ("kind", c_int),
                ("host", c_void_p), ("device", c_uint64), ("array", c_void_p), ("reserved", c_void_p),
                ("pitch", c_size_t), ("height", c_size_t)]


class _Copy(ctypes.Structure):
    """CUDA_MEMCPY3D."""

    _fields_ = [("source", _Side), ("target", _Side), ("width", c_size_t), ("rows", c_size_t), ("layers", c_size_t)]


@functools.lru_cache(maxsize=None)
def _driver() -> Any:
    try:
        return ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None


def host_traffic(graph: int, is_of_session: Callable[[int], bool]) -> Optional[str]:
    """The first such node of a graph, for people; None if there is none."""
    driver = _driver()
    if driver is None:  # and so no graph
        return None
    for node in _nodes(driver, graph):
        kind = c_int()
        _check(driver.cuGraphNodeGetType(c_void_p(node), byref(kind)))
        if kind.value == _HOST_FUNCTION:
            return "calls a host function"
        if kind.value == _CHILD:
            child = c_void_p()
            _check(driver.cuGraphChildGraphNodeGetGraph(c_void_p(node), byref(child)))
            found = host_traffic(child.value or 0, is_of_session)
            if found:
                return found
        if kind.value == _MEMCPY:
            copy = _Copy()
            _check(driver.cuGraphMemcpyNodeGetParams(c_void_p(node), byref(copy)))
            size = copy.width * max(copy.rows, 1) * max(copy.layers, 1)
            if _is_on_host(driver, copy.source, is_of_session):
                return f"copies {size} bytes from host memory"
            if _is_on_host(driver, copy.target, is_of_session):
                return f"copies {size} bytes to host memory"
    return None


def _nodes(driver: Any, graph: int) -> List[int]:
    count = c_size_t()
    _check(driver.cuGraphGetNodes(c_void_p(graph), None, byref(count)))
    nodes = (c_void_p * max(count.value, 1))()
    _check(driver.cuGraphGetNodes(c_void_p(graph), nodes, byref(count)))
    return [node for node in nodes[:count.value] if node]


def _is_on_host(driver: Any, side: _Side, is_of_session: Callable[[int], bool]) -> bool:
    if side.kind != _UNIFIED:
        return side.kind == _ON_HOST
    if is_of_session(side.device):
        return False
    kind = c_int()
    status = driver.cuPointerGetAttribute(byref(kind), _POINTER_ATTRIBUTE_MEMORY_TYPE, c_uint64(side.device))
    return status != 0 or kind.value == _ON_HOST


def _check(status: int) -> None:
    if status != 0:
        raise RuntimeError(f"the captured graph cannot be read (CUDA error {status})")
