// SPDX-License-Identifier: Apache-2.0
#include "runtime/state/Budget.h"

#include "runtime/state/StepState.h"

#include <algorithm>

namespace pumpgraph::runtime {
namespace {

/// Of a budget for the whole process, for what comes between two looks at it: the executable graph, kernels that are
/// loaded when they are first launched.
constexpr std::uint64_t reserveBytes = std::uint64_t{64} << 20;

/// So many bytes of allocations from one look at what the process has to the next.
constexpr std::uint64_t fitEveryBytes = std::uint64_t{64} << 20;

} // namespace

/// Sets it to the rest beside `besides` bytes of the process outside frames, and `reserve` bytes for graphs.
static Status setFrameBudget(SessionState &session, std::uint64_t besides, std::uint64_t reserve) {
  session.budget.besidesAtFit = besides;
  const std::uint64_t taken = besides + reserve;
  session.memory.frames->setBudget((std::max(session.options.budgetBytes, taken) - taken) / pageBytes);
  return session.memory.frames->created() > session.memory.frames->budgetFrames() ? session.memory.heap->flushCache()
                                                                                  : Status{};
}

Status openProcessBudget(SessionState &session) {
  if (!session.options.processMemory || session.options.unlimited)
    return {};
  // What of managed memory is on the device is the driver's choice, and in the process's figure too.
  const Expected<std::uint64_t> used =
      session.backend.isManaged ? fail(PUMPGRAPH_INVALID_ARGUMENT, "managed memory") : session.options.processMemory();
  if (!used) {
    session.notes.push_back(
        fmt::format("the budget is that of buffers alone, not of the process: {}", used.error().message));
    session.options.processMemory = nullptr;
    return {};
  }
  if (session.options.budgetBytes < *used + reserveBytes + pageBytes)
    return fail(PUMPGRAPH_INVALID_ARGUMENT,
                "a budget of {} for the whole process, which has {} on the device before its first buffer and needs {} "
                "for graphs and kernels",
                bytesText(session.options.budgetBytes), bytesText(*used), bytesText(reserveBytes));
  return setFrameBudget(session, *used, reserveBytes);
}

std::optional<std::uint64_t> bytesBesideFrames(const SessionState &session) {
  if (!session.options.processMemory)
    return std::nullopt;
  const Expected<std::uint64_t> used = session.options.processMemory();
  if (!used)
    return std::nullopt;
  const std::uint64_t frames = session.memory.frames->created() * pageBytes;
  return std::max(*used, frames) - frames;
}

Status fitBudget(SessionState &session) {
  // The plans that there are count on what they were made for; the reserve is there to be used up after them.
  if (std::any_of(session.steps.begin(), session.steps.end(),
                  [](const std::unique_ptr<StepState> &step) { return step->isRewritten(); }))
    return {};
  const std::optional<std::uint64_t> besides = bytesBesideFrames(session);
  if (!besides)
    return {};
  return setFrameBudget(session, *besides, reserveBytes);
}

Status fitBudgetFor(SessionState &session, std::uint64_t bytes, bool mayLook) {
  session.budget.allocatedSinceFit += bytes;
  if (session.budget.allocatedSinceFit < fitEveryBytes || !mayLook)
    return {};
  session.budget.allocatedSinceFit = 0;
  PUMPGRAPH_TRY_WHILE(fitBudget(session), "keeping to the budget of the process");
  return {};
}

void allowFramesBeforeLook(SessionState &session) {
  FramePool &frames = *session.memory.frames;
  frames.setBudget(std::max(frames.budgetFrames(), session.budget.framesBeforeLook));
}

Expected<BudgetState> lookAtBudget(SessionState &session) {
  session.budget.nextLook = std::chrono::steady_clock::now() + session.options.budgetLooks;
  BudgetState state{session.options.budgetBytes, 0, ""};
  const std::optional<std::uint64_t> besides =
      session.memory.heap->capturing() ? std::nullopt : bytesBesideFrames(session);
  if (!besides)
    return state;
  state.processBytes = *besides + session.memory.frames->created() * pageBytes;
  const std::uint64_t before = session.budget.besidesAtFit;
  if (state.processBytes <= session.options.budgetBytes || *besides <= before) // within it, or all is said and done
    return state;
  session.budget.framesBeforeLook = session.memory.frames->budgetFrames();
  // Most of the graphs that the reserve is for are there by now.
  PUMPGRAPH_TRY_WHILE(setFrameBudget(session, *besides, reserveBytes / 2), "keeping to the budget of the process");
  for (const std::unique_ptr<StepState> &step : session.steps)
    step->planning.exceedsBudget = step->isRewritten();
  state.message =
      fmt::format("the process has {} on the device, {} more than its budget of {}: others have {} beside "
                  "PumpGraph's frames, {} more "
                  "than when those were counted last; steps are planned again for the {} that are left",
                  bytesText(state.processBytes), bytesText(state.processBytes - session.options.budgetBytes),
                  bytesText(session.options.budgetBytes), bytesText(*besides), bytesText(*besides - before),
                  bytesText(session.memory.frames->budgetFrames() * pageBytes));
  return state;
}

} // namespace pumpgraph::runtime
