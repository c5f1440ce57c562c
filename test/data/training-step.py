#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prints a training step as IR: forward, backward and optimizer of LAYERS layers.

One kernel launch per operator, as a capture would have it: weights and optimizer state live across steps, activations
are written forward and read backward. Made up, but with the shape of the real thing; nothing in it is random.

    training-step.py LAYERS [--mib-per-activation=N] [--unknown-costs]
"""

import argparse

from ir_step import Step


def training_step(layers, mib, knows_costs):
    step = Step(f"train_{layers}_layers", knows_costs)
    weights = [step.buffer(f"layer{i}.weight", mib // 4, persistent=True) for i in range(layers)]
    states = [step.buffer(f"layer{i}.adam", mib // 2, persistent=True) for i in range(layers)]
    hidden = [step.buffer(f"layer{i}.hidden", 2 * mib) for i in range(layers)]
    outputs = [step.buffer("embedding.output", mib)]
    outputs += [step.buffer(f"layer{i}.output", mib) for i in range(layers)]
    gemm = 14.0 * mib

    step.kernel("embedding_forward", 1.2 * mib, [], [outputs[0]])
    for i in range(layers):
        step.kernel("gemm_tn_128x128x32", gemm, [outputs[i], weights[i]], [hidden[i]])
        step.kernel("layer_norm_forward", 1.6 * mib, [hidden[i]], [outputs[i + 1]])
    gradient = step.buffer("loss.gradient", mib)
    step.kernel("cross_entropy_backward", 3.0 * mib, [outputs[layers]], [gradient])
    weight_gradients = [None] * layers
    for i in reversed(range(layers)):
        hidden_gradient = step.buffer(f"layer{i}.hidden.gradient", 2 * mib)
        next_gradient = step.buffer(f"layer{i}.gradient", mib)
        weight_gradients[i] = step.buffer(f"layer{i}.weight.gradient", mib // 4)
        step.kernel("layer_norm_backward", 2.6 * mib, [hidden[i], gradient], [hidden_gradient])
        step.kernel("gemm_nt_128x128x32", gemm, [outputs[i], hidden_gradient], [weight_gradients[i]])
        step.kernel("gemm_nn_128x128x32", gemm, [weights[i], hidden_gradient], [next_gradient])
        gradient = next_gradient
    for i in range(layers):
        step.kernel("fused_adam", 0.4 * mib, [weight_gradients[i]], [], updates=[states[i], weights[i]])
    return step


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("layers", type=int)
    parser.add_argument("--mib-per-activation", type=int, default=96, metavar="N")
    parser.add_argument("--unknown-costs", action="store_true", help="leave the node times to estimate-costs")
    arguments = parser.parse_args()
    step = training_step(arguments.layers, arguments.mib_per_activation, not arguments.unknown_costs)
    print(step.write())


if __name__ == "__main__":
    main()
