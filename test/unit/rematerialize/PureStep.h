// SPDX-License-Identifier: Apache-2.0
/// \file
/// Small steps of pure kernels.
#pragma once

#include "passes/rematerialize/Sequence.h"
#include "test/unit/check/StepBuilder.h"

#include <string>
#include <utility>
#include <vector>

namespace pumpgraph::test {

class PureStep : public StepBuilder {
public:
  PureStep() : StepBuilder(0) { step().stage = Stage::Captured; }

  using StepBuilder::buffer;
  BufferIndex buffer(const std::string &name, Live live = dead) { return buffer(name, {0}, live); }

  NodeIndex pure(const std::string &name, std::vector<Access> accesses, double costUs = 10) {
    const NodeIndex node = impure(name, std::move(accesses), costUs);
    step().nodes[node].isPure = true;
    return node;
  }
  NodeIndex impure(const std::string &name, std::vector<Access> accesses, double costUs = 10) {
    const NodeIndex node = kernel(name, std::move(accesses));
    step().nodes[node].costUs = costUs;
    return node;
  }
};

/// The value that a node leaves in a buffer, or the first one there: the buffer is one atom.
inline ValueIndex valueIn(const StepValues &values, BufferIndex buffer, NodeIndex maker) {
  for (std::uint32_t i = 0; i < values.values().size(); ++i)
    if (values.buffer(ValueIndex{i}) == buffer && values.values()[ValueIndex{i}].maker == maker)
      return ValueIndex{i};
  return ValueIndex{UINT32_MAX};
}

/// Such as "0 1 2 0' 3": repetitions are marked.
inline std::string toText(const std::vector<Turn> &turns) {
  std::string text;
  for (const Turn &turn : turns)
    text += (text.empty() ? "" : " ") + std::to_string(turn.node) + (turn.again ? "'" : "");
  return text;
}

} // namespace pumpgraph::test
