# SPDX-License-Identifier: Apache-2.0
"""The training steps of the 2019 study of unified memory, rebuilt from what is published of its models: which tensors
an eager PyTorch makes, in which order, of which size. docs/design/cost-model.md says what had to be assumed."""

from __future__ import annotations

import dataclasses
import functools
from typing import Callable, Dict, List, Sequence, Tuple

from paged_steps import Buffer, Kernel, as_ir, whole

GRAIN_BYTES = 512  # of PyTorch's allocator
# Two iterations make one step: what a program keeps of one is still there in the next, which then goes elsewhere.
ITERATIONS = 2

Backward = Callable[[int], None]


@dataclasses.dataclass
class Launch:
    name: str
    reads: Sequence[int]
    writes: Sequence[int]
    holds: List[int] = dataclasses.field(default_factory=list)  # what the program still has then


class Step:
    """Writes training iterations as they run: operators forward, their gradients in the opposite order, the update.
    Activations are given in elements of one sample, weights in elements."""

    def __init__(self, batch: int, element_bytes: int):
        self.batch, self.element_bytes = batch, element_bytes
        self.buffers: List[Buffer] = []
        self.kernels: List[Launch] = []
        self._tape: List[Tuple[int, Backward]] = []
        self._gradients: Dict[int, int] = {}  # of this iteration
        self._constants: List[int] = []
        self._weights: Dict[str, int] = {}
        self._states: Dict[int, Tuple[int, int]] = {}  # of a weight: gradient and momentum
        self._kept: Dict[str, int] = {}

    def run(self, model: Callable[[Step], None]) -> None:
        for _ in range(ITERATIONS):
            self._tape, self._gradients, self._constants = [], {}, []
            model(self)
        self.kernels[-1].holds.extend(self._kept.values())

    def bytes(self, buffer: int) -> int:
        return self.buffers[buffer].bytes

    def _buffer(self, name: str, size: int, lives_on: bool = False) -> int:
        self.buffers.append(Buffer(name, -(-size // GRAIN_BYTES) * GRAIN_BYTES, lives_on))
        return len(self.buffers) - 1

    def activation(self, name: str, elements: int, element_bytes: int = 0) -> int:
        return self._buffer(name, elements * self.batch * (element_bytes or self.element_bytes))

    def like(self, name: str, buffer: int) -> int:
        return self._buffer(name, self.bytes(buffer))

    def weight(self, name: str, elements: int) -> int:
        if name not in self._weights:
            weight, gradient, momentum = (self._buffer(f"{name}{what}", elements * self.element_bytes, True)
                                          for what in ("", ".gradient", ".momentum"))
            self._weights[name] = weight
            self._states[weight] = gradient, momentum
        return self._weights[name]

    def gradient_of(self, weight: int) -> int:
        return self._states[weight][0]

    def kernel(self, name: str, reads: Sequence[int], writes: Sequence[int]) -> None:
        self.kernels.append(Launch(name, reads, writes))

    def keep(self, buffer: int) -> int:
        """The program's variable for this one, just made, held the last iteration's until now."""
        name = self.buffers[buffer].name
        if name in self._kept:
            self.kernels[-1].holds.append(self._kept[name])
        self._kept[name] = buffer
        return buffer

    # ---- operators: run forward, and noted for the way back ----------------------------------------------------------

    def input(self, name: str, elements: int, element_bytes: int = 0) -> int:
        x = self.activation(name, elements, element_bytes)
        self.kernel(f"{name} copied", [], [x])
        self._constants.append(x)
        return x

    def noted(self, output: int, backward: Backward) -> int:
        self._tape.append((output, backward))
        return output

    def matrix(self, name: str, x: int, weight_elements: int, elements: int) -> int:
        """A convolution or a linear layer."""
        weight, y = self.weight(f"{name}.weight", weight_elements), self.activation(name, elements)
        self.kernel(name, [x, weight], [y])

        def backward(gradient: int) -> None:
            self.kernel(f"{name} backward weight", [gradient, x], [self.gradient_of(weight)])
            self.pass_on(name, x, [gradient, weight])

        return self.noted(y, backward)

    def pointwise(self, name: str, x: int) -> int:
        """A normalisation, or an activation that needs its input again."""
        y = self.like(name, x)
        self.kernel(name, [x], [y])
        return self.noted(y, lambda gradient: self.pass_on(name, x, [gradient, x]))

    def norm_relu(self, name: str, x: int) -> int:
        """The activation works in place: the normalisation's input and the activation's output are kept."""
        y = self.like(name, x)
        self.kernel(f"{name} norm", [x], [y])
        self.kernel(f"{name} relu", [y], [y])

        def backward(gradient: int) -> None:
            inner = self.like(f"{name} relu gradient", x)
            self.kernel(f"{name} relu backward", [gradient, y], [inner])
            self.pass_on(f"{name} norm", x, [inner, x])

        return self.noted(y, backward)

    def resize(self, name: str, x: int, elements: int, saved: Sequence[int] = ()) -> int:
        y = self.activation(name, elements)
        self.kernel(name, [x], [y])
        return self.noted(y, lambda gradient: self.pass_on(name, x, [gradient, *saved]))

    def add(self, name: str, larger: int, other: int) -> int:
        y = self.like(name, larger)
        self.kernel(name, [larger, other], [y])

        def backward(gradient: int) -> None:
            for operand in (larger, other):
                self._arrive(operand, gradient)

        return self.noted(y, backward)

    def concatenate(self, name: str, a: int, b: int) -> int:
        y = self._buffer(name, self.bytes(a) + self.bytes(b))
        self.kernel(name, [a, b], [y])

        def backward(gradient: int) -> None:
            for operand in (a, b):
                self.pass_on(name, operand, [gradient])

        return self.noted(y, backward)

    # ---- the way back ------------------------------------------------------------------------------------------------

    def pass_on(self, name: str, x: int, reads: Sequence[int]) -> None:
        """A kernel that makes a gradient of `x`."""
        if x in self._constants:
            return
        gradient = self.like(f"{name} gradient", x)
        self.kernel(f"{name} backward", reads, [gradient])
        self._arrive(x, gradient)

    def _arrive(self, x: int, gradient: int) -> None:
        if x in self._constants:
            return
        if x in self._gradients:
            total = self.like("sum of gradients", x)
            self.kernel("add gradients", [self._gradients[x], gradient], [total])
            gradient = total
        self._gradients[x] = gradient

    def finish(self, loss: int) -> None:
        """From the loss backward, and the update: plain momentum."""
        self._gradients[loss] = self.like("loss gradient", loss)
        self.kernel("loss", [loss], [self._gradients[loss]])
        for output, backward in reversed(self._tape):
            backward(self._gradients[output])
        for weight, (gradient, momentum) in self._states.items():
            self.kernel("update", [weight, gradient, momentum], [weight, momentum])

    # ---- as IR -------------------------------------------------------------------------------------------------------

    def ir(self, seconds: float) -> str:
        """`seconds` of all iterations together are shared out by the bytes that kernels touch."""
        sizes = [buffer.bytes for buffer in self.buffers]
        accesses = [tuple(whole(launch.reads, launch.writes, sizes)) for launch in self.kernels]
        touched = [sum(size for _, _, size in kernel) for kernel in accesses]
        us_per_byte = seconds * 1e6 / sum(touched)
        # Nothing reads what is only held; one byte keeps its place.
        kernels = [Kernel(launch.name, size * us_per_byte, (*accessed, *(("read", held, 1) for held in launch.holds)))
                   for launch, accessed, size in zip(self.kernels, accesses, touched)]
        return as_ir(self.buffers, kernels)


# ---- models ----------------------------------------------------------------------------------------------------------


def resnet_1001(step: Step) -> None:
    """models/resnet.py: 111 bottlenecks in each of three stages, 32 x 32 pixels."""
    pixels, channels = 32 * 32, 64
    x = step.matrix("stem", step.input("pictures", 3 * pixels), 27 * channels, channels * pixels)
    for stage in range(3):
        width = 64 << stage
        for index in range(111):
            name = f"block{stage}.{index}"
            before, pixels = pixels, pixels // 4 if stage > 0 and index == 0 else pixels
            y = step.norm_relu(f"{name}.norm_1", x)
            around = x
            if index == 0:
                around = step.matrix(f"{name}.shortcut", y, 4 * channels * width, 4 * width * pixels)
            y = step.matrix(f"{name}.conv_1", y, channels * width, width * before)
            y = step.norm_relu(f"{name}.norm_2", y)
            y = step.matrix(f"{name}.conv_2", y, 9 * width * width, width * pixels)
            y = step.norm_relu(f"{name}.norm_3", y)
            y = step.matrix(f"{name}.conv_3", y, 4 * width * width, 4 * width * pixels)
            x = step.add(f"{name}.add", y, around)
            channels = 4 * width
    x = step.resize("mean", step.norm_relu("norm", x), channels)
    step.finish(step.matrix("head", x, 10 * channels, 10))


def densenet_264(step: Step) -> None:
    """models/densenet.py: 224 x 224 pixels, growth 32."""
    growth, channels, pixels = 32, 64, 112 * 112
    x = step.matrix("stem", step.input("pictures", 3 * 224 * 224), 147 * channels, channels * pixels)
    x = step.norm_relu("norm", x)
    pixels //= 4
    x = step.resize("pool", x, channels * pixels, saved=[x])
    for block, count in enumerate((6, 12, 64, 48)):
        if block > 0:
            x = step.norm_relu(f"join{block}.norm", x)
            x = step.matrix(f"join{block}.conv", x, channels * channels // 2, channels // 2 * pixels)
            channels, pixels = channels // 2, pixels // 4
            x = step.resize(f"join{block}.pool", x, channels * pixels)
        for index in range(count):
            name = f"layer{block}.{index}"
            y = step.norm_relu(f"{name}.norm_1", x)
            y = step.matrix(f"{name}.conv_1", y, 4 * channels * growth, 4 * growth * pixels)
            y = step.norm_relu(f"{name}.norm_2", y)
            y = step.matrix(f"{name}.conv_2", y, 36 * growth * growth, growth * pixels)
            x = step.concatenate(f"{name}.cat", x, y)
            channels += growth
    x = step.resize("mean", step.norm_relu("last_norm", x), channels)
    step.finish(step.matrix("head", x, 1000 * channels, 1000))


def v_net(step: Step) -> None:
    """models/vnet.py: volumes of 128 x 128 x 64, 16 channels at the top."""
    counts, top = (1, 2, 3, 3, 3), 128 * 128 * 64
    x, kept, bottom = step.input("volumes", top), [], len(counts) - 1
    for level, count in enumerate(counts):
        width, voxels = 16 << level, top >> 3 * level
        x = _convolutions(step, f"down{level}", x, 1 if level == 0 else width, width, count, voxels)
        if level < bottom:
            kept.append(x)
            x = _resample(step, f"shrink{level}", x, 2 * width * width, 2 * width * voxels // 8)
    channels = 16 << bottom
    for level in reversed(range(bottom)):
        width, voxels = 16 << level, top >> 3 * level
        x = _resample(step, f"grow{level}", x, channels * width, width * voxels)
        x = step.concatenate(f"cat{level}", x, kept.pop())
        channels = 2 * width
        x = _convolutions(step, f"up{level}", x, channels, channels, counts[level], voxels)
    step.finish(step.matrix("head", x, 2 * channels, 2 * top))


def _convolutions(step: Step, name: str, x: int, inputs: int, width: int, count: int, voxels: int) -> int:
    around = x
    for index in range(count):
        x = step.matrix(f"{name}.conv{index}", x, 125 * (inputs if index == 0 else width) * width, width * voxels)
        x = step.pointwise(f"{name}.norm{index}", x)
        if index == count - 1:
            x = step.add(f"{name}.add", x, around)
        x = step.pointwise(f"{name}.prelu{index}", x)
    return x


def _resample(step: Step, name: str, x: int, channel_pairs: int, elements: int) -> int:
    x = step.matrix(f"{name}.conv", x, 8 * channel_pairs, elements)
    return step.pointwise(f"{name}.prelu", step.pointwise(f"{name}.norm", x))


def language_model(length: int, step: Step) -> None:
    """A dictionary of 33,278 words, embedding and two layers of LSTM of 256. The program keeps the logits until the
    next iteration has made its own; of 16-bit ones the loss makes 32-bit ones."""
    words, width, layers = 33278, 256, 2
    tokens = step.input("tokens", length, 8)
    table = step.weight("embedding.weight", words * width)
    x = step.activation("embedding", length * width)
    step.kernel("embedding", [tokens, table], [x])
    step.noted(x, lambda gradient: step.kernel("embedding backward", [gradient, tokens], [step.gradient_of(table)]))

    weight = step.weight("lstm.weight", layers * 8 * width * width)
    y, gates = step.activation("lstm", length * width), step.activation("lstm gates", layers * 6 * length * width)
    step.kernel("lstm", [x, weight], [y, gates])

    def lstm_backward(gradient: int) -> None:
        step.pass_on("lstm", x, [gradient, gates, weight])
        step.kernel("lstm backward weight", [x, y, gates], [step.gradient_of(weight)])

    step.noted(y, lstm_backward)
    logits = step.keep(step.matrix("logits", y, words * width, length * words))
    if step.element_bytes < 4:
        narrow, logits = logits, step.activation("logits in 32 bits", length * words, 4)
        step.kernel("to 32 bits", [narrow], [logits])
        step.noted(step.keep(logits), lambda gradient: step.pass_on("to 32 bits", narrow, [gradient]))
    chances = step.like("log_softmax", logits)
    step.kernel("log_softmax", [logits], [chances])
    step.noted(chances, lambda gradient: step.pass_on("log_softmax", logits, [gradient, chances]))
    step.finish(chances)


MODELS: Dict[str, Callable[[Step], None]] = {
    "ResNet-1001": resnet_1001,
    "DenseNet-264": densenet_264,
    "V-Net": v_net,
    "LM-1408": functools.partial(language_model, 1408),
    "LM-2800": functools.partial(language_model, 2800),
}


def rebuild(model: str, element_bytes: int, batch: int, samples_per_second: float) -> str:
    """IR of two iterations that take as long in memory as published."""
    step = Step(batch, element_bytes)
    step.run(MODELS[model])
    return step.ir(ITERATIONS * batch / samples_per_second)
