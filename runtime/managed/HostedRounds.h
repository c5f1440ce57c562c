// SPDX-License-Identifier: Apache-2.0
/// \file
/// The sets of buffers that are hosted together while the nodes of a step are timed.
#pragma once

#include "pumpgraph/graph/Description.h"

#include <cstdint>
#include <vector>

namespace pumpgraph::runtime {

/// By BufferIndex, for the `candidates`: a round below `most`, such that a node has as few bytes as can be found of
/// several operands in one round. What these take in host memory could not be told apart: a kernel may read one of them
/// once, and another a dozen times. 0 for all others.
std::vector<std::uint8_t> hostedRounds(const Description &step, const std::vector<bool> &candidates, std::uint8_t most);

} // namespace pumpgraph::runtime
