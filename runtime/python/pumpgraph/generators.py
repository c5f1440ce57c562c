# SPDX-License-Identifier: Apache-2.0
"""Generators of random numbers: those whose state a replay advances, and those that only the host draws from.

CUDA's take part in captures once they are registered with the graph: each replay then draws further numbers, as the
step would. All others are read by the host, so a captured step would keep what was drawn.
"""

from __future__ import annotations

import contextlib
import functools
import random
import secrets
import sys
from typing import Any, Callable, Dict, Iterable, Iterator, List, NamedTuple, Optional, Sequence, Tuple

import torch


class HostGenerator(NamedTuple):
    """One that the host draws from. `name`: what to call it."""

    name: str
    state: Callable[[], Any]
    put_back: Callable[[Any], None]


def _numpy_random() -> Any:
    return getattr(sys.modules.get("numpy"), "random", None)


def of_the_host(found: Iterable[Tuple[str, Any]]) -> List[HostGenerator]:
    """Python's, PyTorch's and NumPy's own, and those among the generators that a search found."""
    generators = [HostGenerator("Python's generator (random)", random.getstate, random.setstate),
                  HostGenerator("PyTorch's generator of the host", torch.get_rng_state, torch.set_rng_state)]
    numpy = _numpy_random()
    if numpy is not None:
        generators.append(HostGenerator("NumPy's generator (numpy.random)", numpy.get_state, numpy.set_state))
    for name, generator in found:
        if isinstance(generator, random.Random):
            access = generator.getstate, generator.setstate
        elif numpy is not None and isinstance(generator, numpy.Generator):
            bits = generator.bit_generator
            access = functools.partial(getattr, bits, "state"), functools.partial(setattr, bits, "state")
        elif hasattr(generator, "device"):
            if generator.device.type == "cuda":
                continue
            access = generator.get_state, generator.set_state
        else:
            access = generator.get_state, generator.set_state
        generators.append(HostGenerator(f"the generator \"{name}\"", *access))
    return generators


def of_the_device(found: Iterable[Tuple[str, Any]], device: torch.device) -> List[Tuple[str, Any]]:
    """The program's own CUDA generators among those that a search found."""
    default = _default(device)
    return [(name, generator) for name, generator in found
            if getattr(getattr(generator, "device", None), "type", "") == "cuda"
            and generator.device.index in (None, device.index) and generator is not default]


def seeds(found: Iterable[Tuple[str, Any]], device: torch.device) -> List[Tuple[str, int]]:
    """Of CUDA's generators; draws do not change them."""
    default = _default(device)
    known = [("CUDA's generator", default)] if default is not None else []
    named = [(f"the generator \"{name}\"", generator) for name, generator in of_the_device(found, device)]
    return [(name, generator.initial_seed()) for name, generator in (*known, *named)]


def states_on_device(found: Iterable[Tuple[str, Any]], device: torch.device) -> Dict[Optional[int], Any]:
    """Seeds and offsets, by identity; of CUDA's own under None."""
    default = _default(device)
    states: Dict[Optional[int], Any] = {} if default is None else {None: comparable(default.get_state())}
    states.update((id(generator), comparable(generator.get_state())) for _, generator in of_the_device(found, device))
    return states


def comparable(state: Any) -> Any:
    """A generator's state without arrays and tensors."""
    if isinstance(state, dict):
        return {key: comparable(value) for key, value in state.items()}
    if isinstance(state, (list, tuple)) and len(state) < 16:
        return tuple(map(comparable, state))
    return state.tolist() if hasattr(state, "tolist") else state


def _default(device: torch.device) -> Any:
    generators = getattr(torch.cuda, "default_generators", ())
    return generators[device.index] if device.index < len(generators) else None


def register(graph: Any, generators: Iterable[Any]) -> None:
    """Before the graph's capture. A PyTorch without this either finds them itself, or refuses them."""
    if hasattr(graph, "register_generator_state"):
        for generator in generators:
            graph.register_generator_state(generator)


@contextlib.contextmanager
def seeds_unknown(generators: Sequence[Any], device: torch.device) -> Iterator[None]:
    """Inside, CUDA's generators have seeds that the program cannot know. PyTorch lets a captured step seed a generator,
    to no effect, if the seed is the one that it has; this makes each such attempt an error."""
    default = _default(device)
    with contextlib.ExitStack() as undo:
        for generator in (*([default] if default is not None else []), *generators):
            if not hasattr(generator, "graphsafe_get_state"):
                continue
            # Another generator with the same state: seeding the program's would make cuDNN's dropout begin anew.
            same = generator.graphsafe_get_state()
            undo.callback(same.set_state, same.get_state())
            same.manual_seed(secrets.randbits(62))
        yield
