// SPDX-License-Identifier: Apache-2.0
#include "passes/plan/PlanErrors.h"

#include "passes/analysis/HostedAccess.h"
#include "passes/plan/allocate/GivenBoundary.h"
#include "pumpgraph/graph/Ranges.h"

#include <fmt/core.h>

#include <iterator>
#include <utility>

namespace pumpgraph {

namespace {

std::string formatBytes(std::uint64_t bytes) {
  constexpr const char *units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(bytes);
  std::size_t unit = 0;
  while (value >= 1024 && unit + 1 < std::size(units)) {
    value /= 1024;
    ++unit;
  }
  return unit == 0 ? fmt::format("{} B", bytes) : fmt::format("{:.1f} {}", value, units[unit]);
}

/// What the node needs at once, in words.
std::string needOf(const Description &captured, const Timeline &timeline, NodeIndex node) {
  const std::uint64_t page = timeline.pageBytes(), exclusive = timeline.exclusivePages();
  const std::string share =
      exclusive == 0 ? "" : fmt::format(" ({} of it exclusive buffers)", formatBytes(exclusive * page));
  return fmt::format("node {} \"{}\" needs {} on the device at once{}", node, captured.nodes[node].name,
                     formatBytes((exclusive + timeline.workingSetPages(node)) * page), share);
}

} // namespace

std::optional<PlanError> checkInput(const Description &captured) {
  if (std::string fault = wrongStage(captured, {Stage::Captured}); !fault.empty())
    return PlanError{std::nullopt, std::move(fault)};
  for (NodeIndex n = 0; n < captured.nodes.size(); ++n)
    if (std::string fault = stageFault(captured.nodes[n].kind, captured.stage); !fault.empty())
      return PlanError{n, fmt::format("node {} {}", n, fault)};
  for (BufferIndex b = 0; b < captured.buffers.size(); ++b)
    if (std::string fault = stageFault(!captured.buffers[b].frames.empty(), false, captured.stage); !fault.empty())
      return PlanError{std::nullopt, fmt::format("buffer {} \"{}\" {}", b, captured.buffers[b].name, fault)};
  return std::nullopt;
}

std::optional<PlanError> checkBudget(const Description &step, const Timeline &timeline, std::uint64_t budgetBytes) {
  const std::uint64_t page = timeline.pageBytes();
  if (timeline.exclusivePages() > budgetBytes / page)
    return PlanError{std::nullopt,
                     fmt::format("exclusive buffers need {} on the device at all times; the budget is {}",
                                 formatBytes(timeline.exclusivePages() * page), formatBytes(budgetBytes))};
  std::uint64_t pages = timeline.exclusivePages();
  for (BufferIndex b = 0; b < step.buffers.size(); ++b)
    pages += step.buffers[b].isPresent ? step.pageCount(b) : 0;
  if (pages <= budgetBytes / page)
    return std::nullopt;
  return PlanError{std::nullopt,
                   fmt::format("exclusive and present buffers need {} on the device between replays; the budget is {}",
                               formatBytes(pages * page), formatBytes(budgetBytes))};
}

std::optional<PlanError> checkFramesBeside(const Description &step, const Description &boundary,
                                           std::uint64_t frameCount) {
  const std::uint64_t others = othersFrames(&boundary);
  std::uint64_t needed = others;
  for (BufferIndex b = 0; b < step.buffers.size(); ++b)
    if ((!step.buffers[b].isPrivate || step.buffers[b].isPresent) && step.buffers[b].frames.empty())
      needed += step.pageCount(b);
  if (needed <= frameCount)
    return std::nullopt;
  return PlanError{std::nullopt,
                   fmt::format("other steps use {}, exclusive and present buffers of this step alone need {}; the "
                               "budget is {}",
                               formatBytes(others * step.pageBytes), formatBytes((needed - others) * step.pageBytes),
                               formatBytes(frameCount * step.pageBytes))};
}

std::optional<PlanError> checkApart(const Timeline &timeline, std::uint64_t budgetBytes) {
  for (const std::vector<PieceIndex> &apart : timeline.apartPieces()) {
    std::uint64_t pages = timeline.exclusivePages();
    for (const PieceIndex piece : apart)
      pages += timeline.piece(piece).pageCount;
    if (pages > budgetBytes / timeline.pageBytes())
      return PlanError{std::nullopt,
                       fmt::format("what a node of another step uses at once needs {} in frames of its own; the budget "
                                   "is {}",
                                   formatBytes(pages * timeline.pageBytes()), formatBytes(budgetBytes))};
  }
  return std::nullopt;
}

PlanError tooManyOperandsOfCopies(const Description &step, const Timeline &timeline, NodeIndex node,
                                  std::uint64_t budgetBytes) {
  return {node, fmt::format("{}, and too much of it are operands of copies, which cannot be left in host memory; the "
                            "budget is {}",
                            needOf(step, timeline, node), formatBytes(budgetBytes))};
}

PlanError hostShortage(const Description &captured, const Description &planned, const Timeline &timeline,
                       std::uint64_t neededBytes, std::uint64_t allowedBytes) {
  const std::string shortage =
      fmt::format("the plan needs {} of host memory; {} may be used, {} are missing", formatBytes(neededBytes),
                  formatBytes(allowedBytes), formatBytes(neededBytes - allowedBytes));
  if (hostedBytes(planned) == 0)
    return {std::nullopt, shortage};
  NodeIndex widest = 0;
  for (NodeIndex n = 0; n < timeline.nodeCount(); ++n)
    if (timeline.workingSetPages(n) > timeline.workingSetPages(widest))
      widest = n;
  return {widest, fmt::format("{}; the budget is {}, and with {} of operands always in host memory {}",
                              needOf(captured, timeline, widest), formatBytes(planned.budgetBytes),
                              formatBytes(hostedBytes(planned)), shortage)};
}

} // namespace pumpgraph
