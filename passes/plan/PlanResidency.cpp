// SPDX-License-Identifier: Apache-2.0
#include "passes/plan/PlanResidency.h"

#include "passes/analysis/HostPlaces.h"
#include "passes/plan/FramePlanner.h"
#include "passes/plan/PlanWriter.h"

#include <fmt/core.h>

#include <algorithm>
#include <set>
#include <vector>

namespace pumpgraph {

namespace {

using Residents = IndexedVector<PieceIndex, bool>;

/// Beyond this, planning time counts more than the last percent of step time.
constexpr std::size_t mostPiecesToRefine = 20'000;

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

std::optional<PlanError> checkInput(const Description &captured) {
  for (NodeIndex n = 0; n < captured.nodes.size(); ++n)
    if (isResidency(captured.nodes[n].kind) || isCopy(captured.nodes[n].kind))
      return PlanError{n, fmt::format("node {} belongs to a plan: the step is planned already", n)};
  return std::nullopt;
}

/// What no plan can do within `frameCount` frames.
std::optional<PlanError> checkBudget(const Description &captured, const Timeline &timeline, std::uint64_t budgetBytes) {
  const std::uint64_t page = timeline.pageBytes(), frameCount = budgetBytes / page;
  if (timeline.exclusivePages() > frameCount)
    return PlanError{std::nullopt,
                     fmt::format("exclusive buffers need {} on the device at all times; the budget is {}",
                                 formatBytes(timeline.exclusivePages() * page), formatBytes(budgetBytes))};
  NodeIndex worst = 0;
  std::uint64_t most = 0;
  for (NodeIndex n = 0; n < timeline.nodeCount(); ++n)
    if (const std::uint64_t pages = timeline.workingSetPages(n); pages > most) {
      most = pages;
      worst = n;
    }
  if (timeline.exclusivePages() + most <= frameCount)
    return std::nullopt;
  const std::string share = timeline.exclusivePages() == 0 ? ""
                                                           : fmt::format(" ({} of it exclusive buffers)",
                                                                         formatBytes(timeline.exclusivePages() * page));
  return PlanError{worst,
                   fmt::format("node {} \"{}\" needs {} on the device at once{}; the budget is {}", worst,
                               captured.nodes[worst].name, formatBytes((timeline.exclusivePages() + most) * page),
                               share, formatBytes(budgetBytes))};
}

/// Live pieces in the order in which it pays to keep them on the device at the step boundary: those whose idle time
/// across the boundary is shortest first.
std::vector<PieceIndex> byIdleTime(const Timeline &timeline) {
  const InMemoryTimes &times = timeline.times();
  std::vector<std::pair<double, PieceIndex>> idle;
  for (std::size_t i = 0; i < timeline.pieces().size(); ++i) {
    const PieceIndex piece = static_cast<PieceIndex>(i);
    const std::span<const Use> uses = timeline.usesOf(piece);
    if (timeline.piece(piece).liveOut && !uses.empty())
      idle.push_back({times.totalUs - times.endUs[uses.back().node] + times.startUs[uses.front().node], piece});
  }
  std::sort(idle.begin(), idle.end());
  std::vector<PieceIndex> result;
  for (const auto &[us, piece] : idle)
    result.push_back(piece);
  return result;
}

Residents fillBoundary(const Timeline &timeline, const std::vector<PieceIndex> &ranking, std::uint64_t pages) {
  Residents residents(timeline.pieces().size(), false);
  for (PieceIndex piece : ranking) {
    if (timeline.piece(piece).pageCount > pages)
      break;
    pages -= timeline.piece(piece).pageCount;
    residents[piece] = true;
  }
  return residents;
}

struct Candidate {
  Draft draft;
  Schedule schedule;
  std::uint64_t movedPages = 0;
  std::uint64_t hostBytes = 0; ///< only if host memory is limited
};

/// Tries variants and keeps the best: host memory must suffice, then time counts, then what is moved.
class Search {
public:
  explicit Search(const PlannerInput &input, std::uint64_t budgetBytes) : input_(input), budgetBytes_(budgetBytes) {}

  /// Returns whether the draft is the best so far.
  bool tryDraft(std::optional<Draft> draft) {
    if (!draft)
      return false;
    Candidate candidate{std::move(*draft), {}, 0, 0};
    candidate.schedule = scheduleDraft(input_, candidate.draft);
    for (const DraftTransfer &transfer : candidate.draft.transfers)
      candidate.movedPages += transfer.pages.pageCount;
    if (input_.machine.hostBytes != UINT64_MAX)
      candidate.hostBytes = HostPlaces(writePlan(input_, candidate.draft, candidate.schedule, budgetBytes_)).bytes();
    if (best_ && !isBetter(candidate, *best_))
      return false;
    best_ = std::move(candidate);
    return true;
  }

  const std::optional<Candidate> &best() const { return best_; }

private:
  bool isBetter(const Candidate &a, const Candidate &b) const {
    const bool aFits = a.hostBytes <= input_.machine.hostBytes, bFits = b.hostBytes <= input_.machine.hostBytes;
    if (aFits != bFits)
      return aFits;
    if (!aFits)
      return a.hostBytes < b.hostBytes;
    // Times this close are the same: the model is no better.
    constexpr double tolerance = 1.001;
    if (a.schedule.totalUs * tolerance < b.schedule.totalUs)
      return true;
    return a.schedule.totalUs <= b.schedule.totalUs * tolerance && a.movedPages < b.movedPages;
  }

  const PlannerInput &input_;
  std::uint64_t budgetBytes_;
  std::optional<Candidate> best_;
};

/// Looks for the share of the frames that is best given to pieces that stay on the device across the step boundary:
/// a few shares over the whole range first, then finer steps around the best of them.
void searchBoundary(const PlannerInput &input, Search &search) {
  const std::vector<PieceIndex> ranking = byIdleTime(input.timeline);
  const std::uint64_t frames = input.frameCount - input.timeline.exclusivePages();
  std::vector<Residents> tried;
  const auto tryShare = [&](int percent) {
    Residents residents =
        fillBoundary(input.timeline, ranking, frames * static_cast<std::uint64_t>(std::clamp(percent, 0, 100)) / 100);
    const bool isNew = std::none_of(tried.begin(), tried.end(), [&](const Residents &other) {
      return std::equal(other.begin(), other.end(), residents.begin());
    });
    const bool isBetter = isNew && search.tryDraft(draftPlan(input, residents, Tuning()));
    if (isNew)
      tried.push_back(std::move(residents));
    return isBetter;
  };
  int best = 0;
  for (int percent : {0, 20, 55, 100})
    if (tryShare(percent))
      best = percent;
  if (input.timeline.pieces().size() > mostPiecesToRefine)
    return;
  for (int step : {10, 5}) {
    const int centre = best;
    for (int percent : {centre - step, centre + step})
      if (tryShare(percent))
        best = percent;
  }
}

std::optional<Candidate> findPlan(const PlannerInput &input, std::uint64_t budgetBytes) {
  const Timeline &timeline = input.timeline;
  Search search(input, budgetBytes);
  if (timeline.peakPages() <= input.frameCount) {
    search.tryDraft(draftWithoutTransfers(input));
    return search.best();
  }
  searchBoundary(input, search);
  if (!search.best())
    if (const std::optional<PieceFrames> homes = colourPieces(input))
      search.tryDraft(draftPlan(input, Residents(timeline.pieces().size(), false), Tuning(), &*homes));
  return search.best();
}

PlanStats statsOf(const Description &planned, const Timeline &timeline) {
  PlanStats stats;
  stats.peakPagesBefore = timeline.peakPages();
  std::set<std::int32_t> frames;
  for (const Buffer &buffer : planned.buffers)
    frames.insert(buffer.frames.begin(), buffer.frames.end());
  frames.erase(noFrame);
  stats.framesUsed = frames.size();
  for (const Node &node : planned.nodes) {
    stats.discards += node.kind == NodeKind::Discard;
    stats.evictions += movesDown(node.kind);
    stats.prefetches += movesUp(node.kind);
    stats.downBytes += movesDown(node.kind) ? node.range.size : 0;
    stats.upBytes += movesUp(node.kind) ? node.range.size : 0;
  }
  stats.hostBytes = HostPlaces(planned).bytes();
  return stats;
}

} // namespace

tl::expected<PlannedStep, PlanError> planResidency(const Description &captured, const PlanOptions &options) {
  if (const std::optional<PlanError> error = checkInput(captured))
    return tl::unexpected(*error);
  const Timeline timeline(captured);
  const std::uint64_t budgetBytes = options.budgetBytes
                                        ? options.budgetBytes
                                        : std::max<std::uint64_t>(1, timeline.peakPages()) * timeline.pageBytes();
  if (const std::optional<PlanError> error = checkBudget(captured, timeline, budgetBytes))
    return tl::unexpected(*error);

  const Order order(captured);
  std::uint64_t allPages = 0; // more frames than pages are of no use
  for (BufferIndex b = 0; b < captured.buffers.size(); ++b)
    allPages += captured.pageCount(b);
  const std::uint64_t frameCount = std::min(budgetBytes / timeline.pageBytes(), allPages);
  const PlannerInput input{captured, timeline, order, options.machine, frameCount};
  const std::optional<Candidate> plan = findPlan(input, budgetBytes);
  if (!plan)
    return tl::unexpected(PlanError{
        std::nullopt, fmt::format("no frames found for all pages: each keeps one frame for the whole step, and the {} "
                                  "frames of the budget do not let every node's pages lie in different ones",
                                  input.frameCount)});

  PlannedStep step;
  step.description = writePlan(input, plan->draft, plan->schedule, budgetBytes);
  step.stats = statsOf(step.description, timeline);
  if (step.stats.hostBytes > options.machine.hostBytes)
    return tl::unexpected(
        PlanError{std::nullopt, fmt::format("the plan needs {} of host memory; {} may be used, {} are missing",
                                            formatBytes(step.stats.hostBytes), formatBytes(options.machine.hostBytes),
                                            formatBytes(step.stats.hostBytes - options.machine.hostBytes))});
  return step;
}

} // namespace pumpgraph
