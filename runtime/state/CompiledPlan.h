// SPDX-License-Identifier: Apache-2.0
/// \file
/// The compiler library's plan of a captured step.
#pragma once

#include "runtime/capture/DescribeStep.h"
#include "runtime/lower/PlannedBlock.h"

#include <nlohmann/json_fwd.hpp>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace pumpgraph::runtime {

inline constexpr double usPerSecond = 1e6;

struct CompiledPlan {
  std::string name; ///< among the compiler library's candidates
  Description lowered;
  std::shared_ptr<const nlohmann::ordered_json> report; ///< null before, and where the library gave none
  std::uint64_t otherFrames = 0;       ///< of the session, held by allocations that the step does not touch
  std::optional<Description> boundary; ///< other steps' values that the plan has to keep, until it was in force once
  std::uint64_t savedTimes = 0;        ///< nodes whose time the caller gave
  ReservedBlocks continuations;        ///< of the lowered buffers that continue others, in their order

  /// Of all lowered buffers; those of `step`, which was planned, come first.
  std::vector<BlockId> blocksOf(const CapturedStep &step) const;
  /// Of one for managed memory: whether an agent has anything to do.
  bool hasOperations() const;
  double predictedUs() const;
  /// The lower bound of all plans of the step.
  double boundUs() const;
};

} // namespace pumpgraph::runtime
