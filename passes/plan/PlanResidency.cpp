// SPDX-License-Identifier: Apache-2.0
#include "passes/plan/PlanResidency.h"

#include "passes/analysis/HostPlaces.h"
#include "passes/analysis/HostedAccess.h"
#include "passes/analysis/RequiredTraffic.h"
#include "passes/plan/PlanErrors.h"
#include "passes/plan/allocate/GivenBoundary.h"
#include "passes/plan/allocate/PresentBuffers.h"
#include "passes/plan/search/VariantSearch.h"
#include "pumpgraph/graph/Ranges.h"

#include <algorithm>
#include <set>
#include <utility>

namespace pumpgraph {

namespace {

/// The same plan, of the step with what is known of it.
Description withKnowledgeOf(const Description &captured, Description planned) {
  for (BufferIndex b = 0; b < captured.buffers.size(); ++b) {
    planned.buffers[b].liveIn = captured.buffers[b].liveIn;
    planned.buffers[b].liveOut = captured.buffers[b].liveOut;
  }
  auto next = captured.nodes.begin();
  for (Node &node : planned.nodes)
    if (!isResidency(node.kind))
      node = *next++;
  return planned;
}

} // namespace

PlanStats statsOf(const Description &planned) {
  PlanStats stats;
  std::set<std::int32_t> frames;
  for (const Buffer &buffer : planned.buffers)
    frames.insert(buffer.frames.begin(), buffer.frames.end());
  frames.erase(noFrame);
  stats.framesUsed = frames.size();
  for (const Node &node : planned.nodes) {
    stats.discards += node.kind == NodeKind::Discard;
    stats.evictions += movesDown(node.kind);
    stats.prefetches += movesUp(node.kind);
  }
  const Traffic moved = movedTraffic(planned);
  stats.upBytes = moved.upBytes;
  stats.downBytes = moved.downBytes;
  stats.hostBytes = (planned.hostBytes ? planned.hostBytes : HostPlaces(planned).bytes()) + hostedBytes(planned);
  return stats;
}

tl::expected<PlannedStep, PlanError> planResidency(const Description &captured, const PlanOptions &options) {
  if (const std::optional<PlanError> error = checkInput(captured))
    return tl::unexpected(*error);
  Description unplanned = captured;
  for (Buffer &buffer : unplanned.buffers)
    buffer.hosted.clear();
  const std::uint64_t peakPages = Timeline(unplanned).peakPages();
  for (const BufferPart &part : options.hosted)
    append(unplanned.buffers[part.buffer].hosted, part.range);
  if (options.boundary) {
    PlanError error;
    error.message = takeBoundary(unplanned, *options.boundary, error.node);
    if (!error.message.empty())
      return tl::unexpected(std::move(error));
  }
  for (const std::vector<BufferPart> &group : options.apart)
    for (const BufferPart &part : group)
      unplanned.buffers[part.buffer].isRenamable = false; // at another address its pages would be others
  const Timeline timeline(unplanned, defaultPieceBytes, {}, options.apart);
  std::uint64_t allPages = othersFrames(options.boundary); // more frames than pages are of no use
  for (BufferIndex b = 0; b < captured.buffers.size(); ++b)
    allPages += captured.pageCount(b);
  const bool mayNeedMore = options.boundary || !options.apart.empty();
  const std::uint64_t enoughPages = mayNeedMore ? allPages : std::max<std::uint64_t>(1, peakPages);
  const std::uint64_t budgetBytes = options.budgetBytes ? options.budgetBytes : enoughPages * timeline.pageBytes();
  if (const std::optional<PlanError> error = checkBudget(unplanned, timeline, budgetBytes))
    return tl::unexpected(*error);
  if (const std::optional<PlanError> error = checkApart(timeline, budgetBytes))
    return tl::unexpected(*error);
  const std::uint64_t frameCount = std::min(budgetBytes / timeline.pageBytes(), allPages);
  if (options.boundary)
    if (const std::optional<PlanError> error = checkFramesBeside(unplanned, *options.boundary, frameCount))
      return tl::unexpected(*error);

  const bool nothingDies = options.backend == Backend::ManagedUnknown && peakPages > frameCount;
  const Description used = withUseBetweenReplays(nothingDies ? withNothingDead(unplanned) : std::move(unplanned));
  const Timeline timelineOfUsed(used, defaultPieceBytes, {}, options.apart);
  Workers workers(options.isQuick ? 1 : options.processors);
  tl::expected<FoundPlan, PlanError> found =
      planVariants(used, timelineOfUsed, {options, budgetBytes, frameCount, workers});
  if (!found)
    return tl::unexpected(found.error());
  Description planned = withoutUseBetweenReplays(std::move(found->plan));
  for (BufferIndex b = 0; b < captured.buffers.size(); ++b)
    planned.buffers[b].isRenamable = captured.buffers[b].isRenamable;
  PlannedStep step;
  step.description = nothingDies ? withKnowledgeOf(captured, std::move(planned)) : std::move(planned);
  step.trace = std::move(found->trace);
  step.stats = statsOf(step.description);
  step.stats.peakPagesBefore = peakPages;
  if (step.stats.hostBytes > options.machine.hostBytes)
    return tl::unexpected(
        hostShortage(captured, step.description, timeline, step.stats.hostBytes, options.machine.hostBytes));
  return step;
}

} // namespace pumpgraph
