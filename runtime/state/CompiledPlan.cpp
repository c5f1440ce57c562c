// SPDX-License-Identifier: Apache-2.0
#include "runtime/state/CompiledPlan.h"

#include <nlohmann/json.hpp>

#include <algorithm>

namespace pumpgraph::runtime {

std::vector<BlockId> CompiledPlan::blocksOf(const CapturedStep &step) const {
  std::vector<BlockId> blocks = step.blocks;
  for (const std::shared_ptr<const ReservedBlock> &block : continuations)
    blocks.push_back(block->id());
  return blocks;
}

bool CompiledPlan::hasOperations() const {
  return std::any_of(lowered.nodes.begin(), lowered.nodes.end(),
                     [](const Node &node) { return isOperation(node.kind); });
}

double CompiledPlan::predictedUs() const {
  if (!report)
    return 0;
  const auto predicted = report->find("predicted_s");
  return predicted != report->end() && predicted->is_number() ? predicted->get<double>() * usPerSecond : 0;
}

double CompiledPlan::boundUs() const {
  if (!report)
    return 0;
  const auto hosted = report->find("hosted_bytes"); // where some are, other plans may do without
  const bool isForAll = hosted != report->end() && *hosted == 0;
  const auto bound = report->find(isForAll ? "plan_bound_s" : "bound_s");
  return bound != report->end() && bound->is_number() ? bound->get<double>() * usPerSecond : 0;
}

} // namespace pumpgraph::runtime
