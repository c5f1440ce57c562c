// SPDX-License-Identifier: Apache-2.0
/// \file
/// A budget for the whole process: what other memory leaves of it for frames.
#pragma once

#include "runtime/state/SessionState.h"

namespace pumpgraph::runtime {

/// The state of a budget for the whole process.
struct BudgetState {
  std::uint64_t budgetBytes = 0;
  std::uint64_t processBytes = 0; ///< 0: not known, or the budget is not the process's
  std::string message;            ///< once when memory of others newly exceeds it; else empty
};

Status openProcessBudget(SessionState &session);
/// The process's device memory outside frames; nothing if it is unknown.
std::optional<std::uint64_t> bytesBesideFrames(const SessionState &session);
/// Sets the frame budget to the part of the process's budget that other memory leaves, ahead of the first plan.
/// Unchanged if the process's memory is unknown.
Status fitBudget(SessionState &session);
/// The same again where allocations have grown by `bytes`, if that is enough to look.
Status fitBudgetFor(SessionState &session, std::uint64_t bytes, bool mayLook);
/// For a plan that could not be made again for less.
void allowFramesBeforeLook(SessionState &session);
/// Compares the process's device memory with the budget. If memory of others has newly exceeded it, gives unused
/// memory back and has every step planned again, ahead of its next replay, for the remaining budget.
Expected<BudgetState> lookAtBudget(SessionState &session);

} // namespace pumpgraph::runtime
