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

import functools
import types
import weakref
from typing import Any, Dict, List, Tuple

import torch

from ..errors import invalid
from ..step_function import Graphed, graphed
from ..torch_capture import installed

# By any of these names a model gets its tokens; of an encoder-decoder model those of the decoder count.
_TOKENS = ("decoder_input_ids", "decoder_inputs_embeds", "input_ids", "inputs_embeds")


def graph_decoding(model: Any, **options: Any) -> Graphed:
    """From now on `model` decodes in graphed steps. `options` are those of pumpgraph.graphed(). Returns the step, for
    its report() and reset()."""
    installed()
    kind = type(model)
    if "forward" in vars(model):
        raise invalid(f"graph_decoding: this {kind.__name__} has a forward() of its own, which a library or "
                      "graph_decoding() has put there")
    forward = kind.forward

    def decode(model: Any, *args: Any, **inputs: Any) -> Any:
        return forward(model, *args, **inputs)

    step = graphed(decode, **{"name": f"{kind.__name__}.forward", **options})
    owner = weakref.ref(model)
    kept: Any = None  # the cache that the step works in

    def cache_for(given: Any) -> Any:
        """The one that captured steps know, with what is in `given`: generate() makes one in each call."""
        nonlocal kept
        if given is kept or kept is not None and _take_over(kept, given):
            return kept
        if kept is not None:
            step.reset()
        kept = given
        return given

    @functools.wraps(forward)
    def decoding(self: Any, *args: Any, **inputs: Any) -> Any:
        if self is not owner() or not _is_decoding(args, inputs):  # not of a copy of the model
            return forward(self, *args, **inputs)
        # generate() goes on with the cache that comes back in the output.
        return step(self, *args, **{**inputs, "past_key_values": cache_for(inputs["past_key_values"])})

    decoding.__module__ = __name__  # no search for what a step works on looks into it
    # Past `__setattr__`, which would count as a change. A copy of the model has a method of the copy.
    vars(model)["forward"] = types.MethodType(decoding, model)
    # generate() would compile the model for a static cache, into graphs of its own.
    vars(model)["_valid_auto_compile_criteria"] = _never
    return step


def _take_over(kept: Any, given: Any) -> bool:
    """Puts the values of one cache into another. False, and nothing is changed, where they are not alike."""
    if type(kept) is not type(given):
        return False
    pairs: List[Tuple[torch.Tensor, torch.Tensor]] = []
    owners = [(kept, given), *zip(getattr(kept, "layers", ()), getattr(given, "layers", ()))]
    if len(getattr(kept, "layers", ())) != len(getattr(given, "layers", ())):
        return False
    for own, other in owners:
        if type(own) is not type(other) or vars(own).keys() != vars(other).keys():
            return False
        for name, value in vars(own).items():
            new = vars(other)[name]
            if isinstance(value, torch.Tensor) and isinstance(new, torch.Tensor):
                if (value.shape, value.dtype, value.device) != (new.shape, new.dtype, new.device):
                    return False
                pairs.append((value, new))
            elif name != "layers" and not _are_equal(value, new):
                return False
    with torch.no_grad():
        for value, new in pairs:
            value.copy_(new)
    return True


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
