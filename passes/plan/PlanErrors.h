// SPDX-License-Identifier: Apache-2.0
/// \file
/// Why there is no plan, in words.
#pragma once

#include "passes/plan/PlanResidency.h"

#include <cstdint>
#include <optional>
#include <string>

namespace pumpgraph {

/// A step that is not as captured.
std::optional<PlanError> checkInput(const Description &captured);

/// What no plan can do: exclusive buffers are on the device at all times, and present ones between replays.
std::optional<PlanError> checkBudget(const Description &step, const Timeline &timeline, std::uint64_t budgetBytes);

/// Exclusive and present pages that nobody has given frames yet need some that no other step uses.
std::optional<PlanError> checkFramesBeside(const Description &step, const Description &boundary,
                                           std::uint64_t frameCount);

/// Pages that must be apart need as many frames.
std::optional<PlanError> checkApart(const Timeline &timeline, std::uint64_t budgetBytes);

/// The node's operands that are copied are too many to be on the device with what else it uses.
PlanError tooManyOperandsOfCopies(const Description &step, const Timeline &timeline, NodeIndex node,
                                  std::uint64_t budgetBytes);

/// There is more host memory needed than may be used. With hosted pages the node that touches most is to blame.
PlanError hostShortage(const Description &captured, const Description &planned, const Timeline &timeline,
                       std::uint64_t neededBytes, std::uint64_t allowedBytes);

} // namespace pumpgraph
