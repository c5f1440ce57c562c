# SPDX-License-Identifier: Apache-2.0
"""Made-up training iterations in the format of docs/reference/traces.md, on which the planner was not tuned.

A trace is drawn from a family of nets by a seed: the same seed gives the same trace anywhere. What is drawn is the
shape of the net, how unequal its kernels are, how much memory it takes, and how much time it gives the link: the
harder ones leave less time to compute than their activations take to move once."""

from __future__ import annotations

import dataclasses
import math
import random
from typing import Any, Callable, Dict, Iterator, List, Sequence

GIB = 1 << 30
GRAIN_BYTES = 4096

# The machine of the study whose traces these stand beside.
LINK_BYTES_PER_SECOND = 15.754e9
HARDWARE = {"gpu_bytes": 40 * GIB, "pcie_GBps": LINK_BYTES_PER_SECOND / 1e9, "pcie_full_duplex": True,
            "host_bytes": 128 * GIB}


@dataclasses.dataclass
class Operation:
    """A layer as it ran forward, with all that its backward pass needs."""
    name: str
    inputs: List[int]
    output: int
    weights: List[int]
    saved: List[int]
    work: float
    scratch: float


class Net:
    """Writes a training iteration as it runs: layers forward, then all of them backward. Sizes and times are in units
    of its own; `trace()` gives them their scale."""

    def __init__(self, rng: random.Random, optimizer_states: int = 1, update_at_end: bool = False):
        self.rng = rng
        self.optimizer_states = optimizer_states
        self.update_at_end = update_at_end
        self.tensors: List[Dict[str, Any]] = []
        self.kernels: List[Dict[str, Any]] = []
        self.tape: List[Operation] = []
        self.gradients: Dict[int, int] = {}
        self.states: Dict[int, List[int]] = {}

    def tensor(self, name: str, size: float, kind: str = "intermediate", **flags: bool) -> int:
        self.tensors.append({"id": len(self.tensors), "name": name, "kind": kind, "size": size, **flags})
        return len(self.tensors) - 1

    def size(self, tensor: int) -> float:
        return self.tensors[tensor]["size"]

    def weight(self, name: str, size: float) -> int:
        weight = self.tensor(name, size, "persistent")
        self.states[weight] = [self.tensor(f"{name}.state{i}", size, "persistent")
                               for i in range(self.optimizer_states - 1)]
        return weight

    def kernel(self, name: str, reads: Sequence[int], writes: Sequence[int], work: float, scratch: float = 0) -> None:
        written = list(writes)
        if scratch > 0:
            written.append(self.tensor(name + ".scratch", scratch, "workspace"))
        self.kernels.append({"id": len(self.kernels), "name": name, "reads": sorted(set(reads)),
                             "writes": sorted(set(written)), "time": work * self.rng.lognormvariate(0, 0.5)})

    def layer(self, name: str, inputs: Sequence[int], size: float, weights: Sequence[int] = (), saves: str = "in",
              work: float = 1.0, scratch: float = 0) -> int:
        """Runs a layer forward. `saves`: which of "in", "out", "mask" its backward pass reads."""
        output = self.tensor(name + ".out", size)
        saved = [*inputs] if "in" in saves else []
        if "out" in saves:
            saved.append(output)
        writes = [output]
        if "mask" in saves:
            mask = self.tensor(name + ".mask", size / 4)
            saved.append(mask)
            writes.append(mask)
        moved = sum(map(self.size, [*inputs, *weights])) + size
        self.kernel(name + ".forward", [*inputs, *weights], writes, work * moved, scratch)
        self.tape.append(Operation(name, list(inputs), output, list(weights), saved, work * moved, scratch))
        return output

    def backward(self, constants: Sequence[int] = ()) -> None:
        """Runs every layer backward and updates the weights."""
        last = self.tape[-1].output
        self.gradients[last] = self.tensor("loss.grad", self.size(last))
        self.kernel("loss", [last], [self.gradients[last]], self.size(last))
        first_use: Dict[int, int] = {}
        for position, operation in enumerate(self.tape):
            for weight in operation.weights:
                first_use.setdefault(weight, position)
        for position in range(len(self.tape) - 1, -1, -1):
            operation = self.tape[position]
            self._backward_of(operation, constants)
            if not self.update_at_end:
                for weight in operation.weights:
                    if first_use[weight] == position:
                        self._update(weight)
        if self.update_at_end:
            for weight in sorted(first_use):
                self._update(weight)

    def _backward_of(self, operation: Operation, constants: Sequence[int]) -> None:
        arriving = self.gradients.get(operation.output)
        if arriving is None:  # nobody used it
            return
        targets = [tensor for tensor in dict.fromkeys(operation.inputs) if tensor not in constants]
        if targets:
            self._gradient(operation.name + ".grad_in", [arriving, *operation.saved, *operation.weights], targets,
                           operation)
        if operation.weights:
            self._gradient(operation.name + ".grad_w", [arriving, *operation.saved], operation.weights, operation)

    def _gradient(self, name: str, reads: List[int], targets: Sequence[int], operation: Operation) -> None:
        writes = []
        for target in targets:
            if target in self.gradients:
                reads = [*reads, self.gradients[target]]  # it is added to
            else:
                self.gradients[target] = self.tensor(self.tensors[target]["name"] + ".grad", self.size(target))
            writes.append(self.gradients[target])
        self.kernel(name, reads, writes, operation.work, operation.scratch)

    def _update(self, weight: int) -> None:
        state = [weight, *self.states[weight]]
        self.kernel(self.tensors[weight]["name"] + ".update", [self.gradients[weight], *state], state,
                    self.size(weight) * 0.2)

    # ---- scale -------------------------------------------------------------------------------------------------------

    def peak(self) -> float:
        """Most that lives at once, in units of the net."""
        first: Dict[int, int] = {}
        last: Dict[int, int] = {}
        for kernel in self.kernels:
            for tensor in (*kernel["reads"], *kernel["writes"]):
                first.setdefault(tensor, kernel["id"])
                last[tensor] = kernel["id"]
        change = [0.0] * (len(self.kernels) + 1)
        always = 0.0
        for tensor in self.tensors:
            if tensor["kind"] == "persistent":
                always += tensor["size"]
            elif tensor["id"] in first:
                change[first[tensor["id"]]] += tensor["size"]
                change[last[tensor["id"]] + 1] -= tensor["size"]
        live = peak = always
        for difference in change:
            live += difference
            peak = max(peak, live)
        return peak

    def trace(self, name: str, peak_bytes: float, intensity: float) -> Dict[str, Any]:
        """`intensity`: seconds of computing for each second that the peak takes over the link, one way."""
        scale = peak_bytes / self.peak()
        seconds = intensity * peak_bytes / LINK_BYTES_PER_SECOND
        total = sum(kernel["time"] for kernel in self.kernels)
        tensors = [{**tensor, "bytes": max(1, math.ceil(tensor["size"] * scale / GRAIN_BYTES)) * GRAIN_BYTES}
                   for tensor in self.tensors]
        kernels = [{**kernel, "time_us": round(kernel["time"] / total * seconds * 1e6, 3)} for kernel in self.kernels]
        for entry in tensors:
            del entry["size"]
        for entry in kernels:
            del entry["time"]
        return {"name": name, "tensors": tensors, "kernels": kernels, "hardware_of_study": HARDWARE}


# ---- families --------------------------------------------------------------------------------------------------------


def deep(rng: random.Random) -> Net:
    """Hundreds of narrow layers, one after the other."""
    net = Net(rng)
    value = start = net.tensor("input", 1, no_producer=True)
    for i in range(rng.randrange(200, 500)):
        saves = rng.choice(["in", "in", "out", "in mask"])
        weight = [net.weight(f"w{i}", rng.uniform(0.01, 0.1))] if rng.random() < 0.5 else []
        value = net.layer(f"layer{i}", [value], 1, weight, saves, work=rng.choice([0.3, 1, 3]))
    net.backward([start])
    return net


def skip(rng: random.Random) -> Net:
    """A stack with connections that jump far ahead: what they carry is used once more after a long while, forward."""
    net = Net(rng)
    value = start = net.tensor("input", 1, no_producer=True)
    waiting: Dict[int, List[int]] = {}
    for i in range(rng.randrange(60, 150)):
        arriving = waiting.pop(i, [])
        value = net.layer(f"layer{i}", [value, *arriving], rng.choice([0.5, 1, 2]),
                          [net.weight(f"w{i}", rng.uniform(0.02, 0.3))], work=rng.uniform(0.3, 3))
        if rng.random() < 0.4:
            waiting.setdefault(i + rng.randrange(5, 50), []).append(value)
    net.backward([start])
    return net


def dense(rng: random.Random) -> Net:
    """Blocks in which every layer reads all before it: one kernel with many operands, each used again and again."""
    net = Net(rng)
    value = start = net.tensor("input", 1, no_producer=True)
    growth = rng.uniform(0.15, 0.4)
    for block in range(rng.randrange(3, 6)):
        grown = [value]
        for i in range(rng.randrange(6, 16)):
            weight = net.weight(f"w{block}.{i}", rng.uniform(0.01, 0.1))
            grown.append(net.layer(f"block{block}.layer{i}", grown, growth, [weight], work=rng.uniform(0.5, 2)))
        value = net.layer(f"join{block}", grown, 1, [net.weight(f"join{block}.w", 0.05)])
    net.backward([start])
    return net


def unet(rng: random.Random) -> Net:
    """Large activations first, small ones at the bottom, and each level's kept for its mirror image."""
    net = Net(rng)
    value = start = net.tensor("input", 1, no_producer=True)
    levels, shrink = rng.randrange(4, 7), rng.uniform(1.6, 3)
    kept = []
    for level in range(levels):
        size = shrink ** -level
        for i in range(rng.randrange(2, 6)):
            value = net.layer(f"down{level}.{i}", [value], size, [net.weight(f"down{level}.{i}.w", 0.02 * 2 ** level)],
                              rng.choice(["in", "in mask"]), rng.uniform(0.5, 2), scratch=rng.choice([0, 0.2 * size]))
        kept.append((value, size))
    for level, (skipped, size) in reversed(list(enumerate(kept))):
        value = net.layer(f"up{level}.join", [value, skipped], size, [])
        for i in range(rng.randrange(2, 5)):
            value = net.layer(f"up{level}.{i}", [value], size, [net.weight(f"up{level}.{i}.w", 0.02 * 2 ** level)],
                              rng.choice(["in", "in mask"]), rng.uniform(0.5, 2))
    net.backward([start])
    return net


def recurrent(rng: random.Random) -> Net:
    """The same weights at every step of a long sequence; their gradients are added to at every step back."""
    net = Net(rng, optimizer_states=rng.choice([1, 3]))
    cells = [net.weight(f"cell{i}", rng.uniform(2, 10)) for i in range(rng.randrange(1, 4))]
    states = [net.tensor(f"state{i}", 1, no_producer=True) for i in range(len(cells))]
    start = list(states)
    outputs = []
    for step in range(rng.randrange(60, 160)):
        for i, cell in enumerate(cells):
            below = [states[i - 1]] if i > 0 else []
            gates = net.layer(f"step{step}.gates{i}", [states[i], *below], 2, [cell], "in out", rng.uniform(0.5, 2))
            states[i] = net.layer(f"step{step}.state{i}", [gates], 1, [], "in")
        if step % 4 == 3:
            outputs.append(states[-1])
    net.layer("logits", outputs, rng.uniform(5, 30), [net.weight("logits.w", 10)], "in out")
    net.backward(start)
    return net


def transformer(rng: random.Random) -> Net:
    """Blocks of attention and feed-forward, and a loss over a vocabulary whose operands are larger than any block's."""
    net = Net(rng, optimizer_states=rng.choice([1, 3]))
    width = rng.uniform(0.1, 1)
    tokens = net.tensor("tokens", 0.01, no_producer=True)
    table = net.weight("embedding", rng.uniform(1, 6) * width)
    value = net.layer("embed", [tokens], 1, [table], "in", 0.2)
    for i in range(rng.randrange(12, 40)):
        normed = net.layer(f"block{i}.norm", [value], 1, [], "in", 0.3)
        qkv = net.layer(f"block{i}.qkv", [normed], 3, [net.weight(f"block{i}.qkv.w", 3 * width)])
        scores = net.layer(f"block{i}.scores", [qkv], rng.choice([0.2, 2]), [], "in out", 0.6)
        mixed = net.layer(f"block{i}.mix", [scores, qkv], 1, [])
        added = net.layer(f"block{i}.project", [mixed, value], 1, [net.weight(f"block{i}.project.w", width)])
        wide = net.layer(f"block{i}.wide", [added], 4, [net.weight(f"block{i}.wide.w", 4 * width)])
        active = net.layer(f"block{i}.gelu", [wide], 4, [], "in", 0.3)
        value = net.layer(f"block{i}.narrow", [active, added], 1, [net.weight(f"block{i}.narrow.w", 4 * width)])
    logits = net.layer("logits", [value], rng.uniform(5, 20), [table])
    net.layer("softmax", [logits], net.size(logits), [], "out", 0.3)
    net.backward([tokens])
    return net


def optimizer(rng: random.Random) -> Net:
    """Weights and optimizer state take more than activations do; all are updated after the last gradient."""
    net = Net(rng, optimizer_states=3, update_at_end=True)
    value = start = net.tensor("input", 0.5, no_producer=True)
    for i in range(rng.randrange(30, 90)):
        value = net.layer(f"layer{i}", [value], 0.5, [net.weight(f"w{i}", rng.uniform(0.5, 2))],
                          work=rng.uniform(0.5, 2))
    net.backward([start])
    return net


def irregular(rng: random.Random) -> Net:
    """No structure: layers of any size read any few of the latest or of the oldest values."""
    net = Net(rng)
    start = net.tensor("input", 1, no_producer=True)
    values = [start]
    for i in range(rng.randrange(60, 200)):
        recent = values[-8:]
        chosen = {values[-1], rng.choice(recent), rng.choice(values if rng.random() < 0.15 else recent)}
        weight = [net.weight(f"w{i}", rng.lognormvariate(-3, 1.5))] if rng.random() < 0.6 else []
        values.append(net.layer(f"layer{i}", sorted(chosen), rng.lognormvariate(-0.5, 0.9), weight,
                                rng.choice(["in", "in", "out", "mask"]), rng.lognormvariate(0, 0.8),
                                scratch=rng.choice([0, 0, 0.3])))
    net.backward([start])
    return net


FAMILIES: Sequence[Callable[[random.Random], Net]] = (deep, skip, dense, unet, recurrent, transformer, optimizer,
                                                      irregular)


def synthetic_trace(number: int, seed: int = 0) -> Dict[str, Any]:
    rng = random.Random(f"{seed}/{number}")
    family = FAMILIES[number % len(FAMILIES)]
    net = family(rng)
    peak_bytes = GIB * math.exp(rng.uniform(math.log(30), math.log(160)))
    intensity = math.exp(rng.uniform(math.log(0.5), math.log(4)))
    return net.trace(f"{family.__name__}-{seed}-{number}", peak_bytes, intensity)


def synthetic_traces(count: int, seed: int = 0) -> Iterator[Dict[str, Any]]:
    for number in range(count):
        yield synthetic_trace(number, seed)


def at_batch(trace: Dict[str, Any], factor: float, fixed: float) -> Dict[str, Any]:
    """A recorded trace as it might look at `factor` times its batch. `fixed` is the share of each kernel's time that
    does not depend on the batch. Weights keep their size; what a trace marks as grown with the batch grows on."""
    tensors = []
    for tensor in trace["tensors"]:
        grows = tensor["kind"] != "persistent" or tensor.get("batch_scaled", False)
        size = tensor["bytes"] * factor if grows else tensor["bytes"]
        tensors.append({**tensor, "bytes": max(1, math.ceil(size / GRAIN_BYTES)) * GRAIN_BYTES})
    kernels = [{**kernel, "time_us": kernel["time_us"] * (fixed + (1 - fixed) * factor)} for kernel in trace["kernels"]]
    return {**trace, "name": f"{trace['name']}-x{factor:g}", "tensors": tensors, "kernels": kernels}
