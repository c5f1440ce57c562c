// SPDX-License-Identifier: Apache-2.0
/// \file
/// Regular training steps of any size for the planner's tests.
#pragma once

#include "pumpgraph/graph/Description.h"

#include <cstdint>

namespace pumpgraph::test {

/// Sizes in pages of 2 MiB, times in microseconds.
struct RegularStepShape {
  int layers = 24;
  std::uint64_t weightPages = 4;
  std::uint64_t activationPages = 16; ///< of each of the two activations a layer keeps
  std::uint64_t workspacePages = 2;   ///< used by one kernel only
  double kernelUs = 400;
  bool hasOptimizerState = true; ///< two more buffers of the weights' size, as Adam has
  bool hasSideStream = false;    ///< weight gradients on a second stream
  int programmaticEvery = 0;     ///< every so many kernels one is joined to the next by a programmatic edge
};

/// Forward: each layer reads its weights and writes two activations. Backward, in reverse: reads both, writes the
/// gradients. Then an optimizer node for each layer updates the weights. Weights and optimizer state are live across
/// the step, everything else lives in it.
Description regularStep(const RegularStepShape &shape);

/// Two plans of a step, in all that planning decides.
void expectSame(const Description &a, const Description &b);

} // namespace pumpgraph::test
