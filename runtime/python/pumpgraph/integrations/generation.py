# SPDX-License-Identifier: Apache-2.0
"""transformers' generate() under PumpGraph: decoding with a static key-value cache is replayed.

    pumpgraph.install(budget="16GiB")
    model = AutoModelForCausalLM.from_pretrained(...).cuda()
    graph_decoding(model)
    model.generate(**inputs, cache_implementation="static")

generate() calls the model once for the prompt and then once for each token. A call for one token is a graphed step. All
else, prompts of any length above all, runs as the model's own forward().
"""

from __future__ import annotations

import copy
import functools
import types
import weakref
from typing import Any, Dict, Iterator, List, Optional, Tuple

import torch

from .. import nested
from ..errors import invalid
from ..step_function import Graphed, graphed
from ..torch_capture import installed

# By any of these names a model gets its tokens; of an encoder-decoder model those of the decoder count.
_TOKENS = ("decoder_input_ids", "decoder_inputs_embeds", "input_ids", "inputs_embeds")


class _StepCache:
    """The cache that captured steps work in. generate() makes a cache for each text, and a step knows a single one. So
    the tensors of this one are lent to the cache of the text that is being written. The cache of an earlier text that
    the program keeps gets tensors of its own, with the values it had."""

    def __init__(self, first: Any):
        self.cache = _copied(first)
        self._has_it(first)

    def lend(self, given: Any) -> bool:
        """Whether `given` has these tensors from here on, with its own values in them. Nothing is changed where it is
        of another kind or size."""
        if self._holder() is given and all(vars(owner).get(name) is own for owner, name, own in self._lent):
            return True
        pairs = _tensors_alike(self.cache, given)
        if pairs is None:
            return False
        before = self._holder()
        with torch.no_grad():
            ours = {id(own) for own, _, _, _ in pairs}
            values = [other.clone() if id(other) in ours else other for _, other, _, _ in pairs]
            if before is not None and before is not given:
                for owner, name, own in self._lent:
                    if vars(owner).get(name) is own:
                        setattr(owner, name, own.clone())
            for (own, _, owner, name), value in zip(pairs, values):
                own.copy_(value)
                setattr(owner, name, own)
        self._has_it(given)
        return True

    def tell(self, given: Any) -> None:
        """What a call without a graph has changed in Python."""
        for ours, theirs in _parts(self.cache, given):
            for name, value in vars(ours).items():
                if name != "layers" and vars(theirs).get(name) is not value:
                    setattr(theirs, name, value)

    def _has_it(self, given: Any) -> None:
        self._holder = weakref.ref(given)
        self._lent = [(theirs, name, value) for ours, theirs in _parts(self.cache, given)
                      for name, value in vars(ours).items() if isinstance(value, torch.Tensor)]


def _parts(own: Any, other: Any) -> Iterator[Tuple[Any, Any]]:
    yield own, other
    yield from zip(own.layers, other.layers)


def _copied(cache: Any) -> Any:
    """Another object with the same tensors."""
    made = copy.copy(cache)
    made.layers = [copy.copy(layer) for layer in cache.layers]
    return made


def _tensors_alike(own: Any, other: Any) -> Optional[List[Tuple[torch.Tensor, torch.Tensor, Any, str]]]:
    """The tensors of two caches side by side, with where the second has its own. None where the caches differ in
    anything but values."""
    if type(own) is not type(other) or len(own.layers) != len(other.layers):
        return None
    found = []
    for ours, theirs in _parts(own, other):
        if type(ours) is not type(theirs) or vars(ours).keys() != vars(theirs).keys():
            return None
        for name, value in vars(ours).items():
            given = vars(theirs)[name]
            if isinstance(value, torch.Tensor) and isinstance(given, torch.Tensor):
                if (value.shape, value.dtype, value.device) != (given.shape, given.dtype, given.device):
                    return None
                found.append((value, given, theirs, name))
            elif name != "layers" and not _are_equal(value, given):
                return None
    return found


def graph_decoding(model: Any, **options: Any) -> Graphed:
    """Lets `model` decode in graphed steps: each call for one token with a static key-value cache is a replay.

    Args:
        model: a model of transformers, on the GPU.
        options: those of pumpgraph.graphed(). The default name is that of the model's forward().

    Returns:
        The Graphed, for its report() and reset().

    Raises:
        PumpGraphError: INVALID_ARGUMENT without install(), or if the model has a forward() of its own.
    """
    installed()
    kind = type(model)
    if "forward" in vars(model):
        raise invalid(f"graph_decoding: this {kind.__name__} has a forward() of its own, which a library or "
                      "graph_decoding() has put there")
    forward = kind.forward

    def decode(model: Any, *args: Any, **inputs: Any) -> Any:
        return forward(model, *args, **inputs)

    options = {"name": f"{kind.__name__}.forward", **options}
    step = graphed(decode, **options)
    owner = weakref.ref(model)
    lent: Optional[_StepCache] = None

    def cache_for(given: Any) -> _StepCache:
        nonlocal lent
        if lent is None or not lent.lend(given):
            if lent is not None:
                step.reset()
            lent = _StepCache(given)
        return lent

    @functools.wraps(forward)
    def decoding(self: Any, *args: Any, **inputs: Any) -> Any:
        if self is not owner() or not _is_decoding(args, inputs):  # not of a copy of the model
            return forward(self, *args, **inputs)
        given = inputs["past_key_values"]
        if not hasattr(given, "layers"):  # such as one of an encoder and a decoder
            return step(self, *args, **inputs)
        own = cache_for(given)
        output = step(self, *args, **{**inputs, "past_key_values": own.cache})
        own.tell(given)
        return nested.replaced(output, lambda value: given if value is own.cache else value)

    decoding.__module__ = __name__  # no search for what a step works on looks into it
    # Past `__setattr__`, which would count as a change. A copy of the model has a method of the copy.
    vars(model)["forward"] = types.MethodType(decoding, model)
    # generate() would compile the model for a static cache, into graphs of its own.
    vars(model)["_valid_auto_compile_criteria"] = _never
    return step


def _are_equal(value: Any, other: Any) -> bool:
    try:
        return type(value) is type(other) and bool(value == other)
    except (RuntimeError, TypeError, ValueError):  # such as of lists of tensors
        return False


def _never(*_args: Any, **_kwargs: Any) -> bool:
    return False


def _is_decoding(args: Tuple[Any, ...], inputs: Dict[str, Any]) -> bool:
    """Whether a call is for one token, and keeps keys and values where they were."""
    cache = inputs.get("past_key_values")
    if torch.is_grad_enabled() or not getattr(cache, "is_compileable", False):
        return False
    if not all(getattr(cache, "is_updated", {}).values()):  # keys and values of an encoder come first
        return False
    given = [inputs[name] for name in _TOKENS if inputs.get(name) is not None] or list(args[:1])
    return bool(given) and given[0] is not None and given[0].shape[1] == 1
