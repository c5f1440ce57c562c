// SPDX-License-Identifier: Apache-2.0
// What a summary's figures mean: what limits the step, and what would help.
#include "passes/report/Summary.h"
#include "passes/report/Units.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>
#include <vector>

namespace pumpgraph {

static bool nothingMoves(const Summary &summary) {
  return summary.prediction.upBytes == 0 && summary.prediction.downBytes == 0 && summary.hostedBytes() == 0;
}

namespace {

/// Stall time by which links are copying meanwhile.
struct LinkShares {
  double upUs = 0;
  double downUs = 0;
  double bothUs = 0;
};

} // namespace

/// Time in [from, to) during which transfers of one direction run. Transfers of one direction do not overlap.
static double overlapUs(const std::vector<NodeTimes> &transfers, double from, double to) {
  double busy = 0;
  for (const NodeTimes &transfer : transfers)
    busy += std::max(0.0, std::min(to, transfer.endUs) - std::max(from, transfer.startUs));
  return busy;
}

static std::vector<NodeTimes> intersections(const std::vector<NodeTimes> &a, const std::vector<NodeTimes> &b) {
  std::vector<NodeTimes> result;
  for (std::size_t i = 0, j = 0; i < a.size() && j < b.size();) {
    const double start = std::max(a[i].startUs, b[j].startUs);
    const double end = std::min(a[i].endUs, b[j].endUs);
    if (start < end)
      result.push_back({start, end});
    a[i].endUs < b[j].endUs ? ++i : ++j;
  }
  return result;
}

static std::vector<NodeTimes> transferTimes(const Summary &summary, bool (*moves)(NodeKind)) {
  std::vector<NodeTimes> times;
  for (NodeIndex i = 0; i < summary.lowered.nodes.size(); ++i)
    if (moves(summary.lowered.nodes[i].kind))
      times.push_back(summary.prediction.nodes[i]);
  std::sort(times.begin(), times.end(), [](const NodeTimes &a, const NodeTimes &b) { return a.startUs < b.startUs; });
  return times;
}

static LinkShares shareOfStalls(const Summary &summary) {
  const std::vector<NodeTimes> up = transferTimes(summary, movesUp);
  const std::vector<NodeTimes> down = transferTimes(summary, movesDown);
  const std::vector<NodeTimes> both = intersections(up, down);
  LinkShares shares;
  for (const Stall &stall : summary.prediction.stalls) {
    const double end = stall.atUs + stall.durationUs;
    const double bothUs = overlapUs(both, stall.atUs, end);
    shares.bothUs += bothUs;
    shares.upUs += overlapUs(up, stall.atUs, end) - bothUs;
    shares.downUs += overlapUs(down, stall.atUs, end) - bothUs;
  }
  // A node with operands in host memory waits for the link as well.
  for (const Traffic &traffic : summary.hosted.loadByNode) {
    const double upUs = linkUs({traffic.upBytes, 0}, summary.machine);
    const double downUs = linkUs({0, traffic.downBytes}, summary.machine);
    shares.bothUs += std::min(upUs, downUs);
    shares.upUs += std::max(0.0, upUs - downUs);
    shares.downUs += std::max(0.0, downUs - upUs);
  }
  return shares;
}

static std::string largestShare(const LinkShares &shares) {
  if (shares.bothUs >= shares.upUs && shares.bothUs >= shares.downUs)
    return "link both ways";
  return shares.upUs >= shares.downUs ? "link up" : "link down";
}

/// Without repetitions too.
static bool everythingFits(const Summary &summary) {
  return nothingMoves(summary) && summary.repeated().nodes == 0;
}

std::string limitedBy(const Summary &summary) {
  if (everythingFits(summary))
    return "nothing: everything fits";
  if (nothingMoves(summary) || runsAtInMemorySpeed(summary))
    return "compute";
  // Where even the best plan would have to wait, the bound knows for what; else the waits of this plan tell.
  const Bound &best = summary.planBound;
  const double linkUs = std::max({best.upUs, best.downUs, best.bothUs});
  const double hostedUs = best.computeUs - best.inMemoryUs; // nodes read and write that much longer over the link
  if (best.totalUs > summary.inMemory.totalUs * inMemoryTolerance && linkUs > hostedUs)
    return largestShare({best.upUs, best.downUs, best.bothUs});
  return largestShare(shareOfStalls(summary));
}

/// "16.0 of 31.0 GiB", or both units where they differ.
static std::string shareOf(std::uint64_t part, std::uint64_t whole) {
  std::string first = formatBytes(part);
  const std::string second = formatBytes(whole);
  const std::size_t unit = first.find(' ');
  if (first.substr(unit) == second.substr(second.find(' ')))
    first.erase(unit);
  return fmt::format("{} of {}", first, second);
}

std::string verdict(const Summary &summary) {
  const bool fits = everythingFits(summary);
  std::string text = fmt::format("{}; {} in-memory; {}", shareOf(summary.budgetBytes(), summary.peakBytesBefore()),
                                 formatRatio(summary.prediction.totalUs, summary.inMemory.totalUs),
                                 fits ? "everything fits" : "limited by " + limitedBy(summary));
  if (summary.enoughBytes)
    text += fmt::format("; {} removes it", formatBytes(*summary.enoughBytes));
  return text;
}

std::string verdict(const Summary &summary, const RepeatedSweeps &sweeps) {
  const std::uint64_t moved = sweeps.saved.total();
  return fmt::format(
      "{} over {} of state by {} (nodes {}-{}); a fused optimizer would walk once and {} {} less per step",
      formatCount(sweeps.sweeps, "walk"), formatBytes(sweeps.stateBytes), formatCount(sweeps.nodes, "kernel"),
      summary.lowered.nodes[sweeps.first].captured, summary.lowered.nodes[sweeps.last].captured,
      moved > 0 ? "move" : "touch", formatBytes(moved > 0 ? moved : sweeps.touchedAgainBytes));
}

std::string warning(const FewNodes &few) {
  return fmt::format("{} of {} measured nodes {} {:.0f} % of their time: the trace is damaged, and its figures are not "
                     "the step's",
                     formatCount(few.nodes), formatCount(few.measuredNodes), few.nodes == 1 ? "takes" : "take",
                     std::floor(few.share * 100));
}

std::array<std::uint64_t, 5> accessesByEvidence(const Summary &summary) {
  std::array<std::uint64_t, 5> counts{};
  for (const Node &node : summary.captured.nodes)
    for (const Access &access : node.accesses)
      ++counts[static_cast<std::size_t>(access.evidence)];
  return counts;
}

std::size_t countAddedEdges(const Summary &summary) {
  // Captured nodes keep their order; captured edges that others imply may be gone.
  const auto isNew = [&](NodeIndex node) {
    return isAdded(summary.lowered.nodes[node].kind) || summary.lowered.nodes[node].kind == NodeKind::Rematerialize;
  };
  std::vector<NodeIndex> capturedIndex(summary.lowered.nodes.size(), 0);
  NodeIndex captured = 0;
  for (NodeIndex i = 0; i < summary.lowered.nodes.size(); ++i)
    if (!isNew(i))
      capturedIndex[i] = captured++;
  std::set<std::pair<NodeIndex, NodeIndex>> known;
  for (const Edge &edge : summary.captured.edges)
    known.insert({edge.from, edge.to});
  const auto isOurs = [&](const Edge &edge) {
    return isNew(edge.from) || isNew(edge.to) || !known.contains({capturedIndex[edge.from], capturedIndex[edge.to]});
  };
  return static_cast<std::size_t>(std::count_if(summary.lowered.edges.begin(), summary.lowered.edges.end(), isOurs));
}

} // namespace pumpgraph
