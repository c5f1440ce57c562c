#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prints a training step of VGG-19 as IR: its first layers use much more at once than a quarter of what the step needs.

Batch 256, bf16 activations, weights and momentum in fp32. Made up from the shapes of its layers: a kernel takes as long
as the arithmetic of a convolution at 480 Tflop/s or its bytes at 3.3 TB/s, which adds up to what one H200 takes.
"""

from ir_step import MIB, Step

BATCH, WIDTH, SIZE = 256, 64, 224
STAGES = (2, 2, 4, 4, 4)
HEAD = (4096, 4096, 1000)
BYTES_PER_US, FLOPS_PER_US, LAUNCH_US = 3.3e6, 480e6, 2.0


def copying_us(*buffers):
    return LAUNCH_US + sum(size for _, size in buffers) / BYTES_PER_US


class Vgg:
    def __init__(self):
        self.step = Step("vgg19", knows_costs=True)
        # The layers, first to last: each takes the gradient of its output and returns that of its input.
        self.backwards = []
        self.updates = []  # weights, their gradients and momenta

    def values(self, name, count, bytes_each=2, persistent=False):
        return self.step.buffer(name, count * bytes_each / MIB, persistent)

    def parameters(self, name, count):
        return [self.values(f"{name}.{what}", count, 4, persistent=True) for what in ("weight", "momentum")]

    def convolution(self, name, source, inputs, width, size):
        step, pixels = self.step, BATCH * size * size
        weight, momentum = self.parameters(name, inputs * width * 9)
        output, active = (self.values(f"{name}.{what}", pixels * width) for what in ("output", "active"))
        us = max(copying_us(source, output), 2 * pixels * width * inputs * 9 / FLOPS_PER_US)
        step.kernel("convolution", us, [source, weight], [output])
        step.kernel("relu", copying_us(output, active), [output], [active])

        def backward(gradient):
            before = self.values(f"{name}.output.gradient", pixels * width)
            step.kernel("relu_backward", copying_us(gradient, active, before), [gradient, active], [before])
            of_weight = self.values(f"{name}.weight.gradient", inputs * width * 9, 4)
            step.kernel("convolution_backward_weight", us, [source, before], [of_weight])
            self.updates.append((of_weight, weight, momentum))
            if not self.backwards:
                return None  # nobody asks for the gradient of the images
            of_source = self.values(f"{name}.input.gradient", pixels * inputs)
            step.kernel("convolution_backward_data", us, [weight, before], [of_source])
            return of_source

        self.backwards.append(backward)
        return active

    def pool(self, name, source, width, size):
        step, count = self.step, BATCH * width * size * size
        output, indices = self.values(f"{name}.pooled", count), self.values(f"{name}.indices", count, 8)
        step.kernel("pool", copying_us(source, output, indices), [source], [output, indices])

        def backward(gradient):
            before = self.values(f"{name}.pooled.gradient", source[1] // 2)
            step.kernel("pool_backward", copying_us(gradient, indices, before), [gradient, indices], [before])
            return before

        self.backwards.append(backward)
        return output

    def linear(self, name, source, inputs, outputs):
        step = self.step
        weight, momentum = self.parameters(name, inputs * outputs)
        half, output = self.values(f"{name}.half", inputs * outputs), self.values(f"{name}.output", BATCH * outputs)
        step.kernel("cast", copying_us(weight, half), [weight], [half])
        step.kernel("linear", copying_us(half, output), [source, half], [output])

        def backward(gradient):
            of_half = self.values(f"{name}.half.gradient", inputs * outputs)
            of_weight = self.values(f"{name}.weight.gradient", inputs * outputs, 4)
            of_source = self.values(f"{name}.input.gradient", BATCH * inputs)
            step.kernel("linear_backward_weight", copying_us(half, of_half), [source, gradient], [of_half])
            step.kernel("cast", copying_us(of_half, of_weight), [of_half], [of_weight])
            step.kernel("linear_backward_data", copying_us(half, of_source), [gradient, half], [of_source])
            self.updates.append((of_weight, weight, momentum))
            return of_source

        self.backwards.append(backward)
        return output

    def write(self):
        size, inputs = SIZE, 3
        x = self.values("images", BATCH * inputs * size * size, persistent=True)
        for stage, count in enumerate(STAGES):
            width = min(8 * WIDTH, WIDTH << stage)
            for layer in range(count):
                x = self.convolution(f"stage{stage}.{layer}", x, inputs, width, size)
                inputs = width
            size //= 2
            x = self.pool(f"stage{stage}", x, width, size)
        inputs *= size * size
        for layer, outputs in enumerate(HEAD):
            x = self.linear(f"head.{layer}", x, inputs, outputs)
            inputs = outputs
        gradient = self.values("loss.gradient", BATCH * inputs)
        self.step.kernel("loss", copying_us(x, gradient), [x], [gradient])
        while self.backwards:
            gradient = self.backwards.pop()(gradient)
        for of_weight, weight, momentum in self.updates:
            us = copying_us(of_weight, weight, weight, momentum, momentum)
            self.step.kernel("sgd", us, [of_weight], [], updates=[weight, momentum])
        return self.step.write()


if __name__ == "__main__":
    print(Vgg().write())
