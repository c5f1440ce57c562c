// SPDX-License-Identifier: Apache-2.0
#include "passes/plan/search/SplitCandidates.h"

#include "passes/analysis/HostedAccess.h"
#include "passes/plan/Knobs.h"
#include "passes/plan/search/IdleTimes.h"
#include "passes/plan/search/WideColouring.h"
#include "pumpgraph/graph/Ranges.h"
#include "pumpgraph/graph/Reliance.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

namespace pumpgraph {

namespace {

/// That are worth a look at a time.
constexpr std::size_t mostSplits = 8;

/// The idle times of the largest buffers that have some, each buffer's together.
std::vector<std::vector<Split>> ofLargest(const Description &step, const std::vector<Split> &idle) {
  std::vector<std::vector<Split>> result;
  for (const Split &split : idle) {
    if (result.empty() || result.back().front().buffer != split.buffer)
      result.emplace_back();
    result.back().push_back(split);
  }
  std::stable_sort(result.begin(), result.end(), [&](const auto &one, const auto &other) {
    return step.buffers[one.front().buffer].size > step.buffers[other.front().buffer].size;
  });
  result.resize(std::min(result.size(), knobs::mostCandidates));
  return result;
}

/// A captured node that reaches hosted pages of a buffer.
struct HostedUse {
  NodeIndex node = 0; ///< its position among captured nodes
  double us = 0;      ///< on the link
  bool needsValue = false;
  std::vector<bool> pages; ///< of the buffer, those that it reaches
};

std::vector<HostedUse> usesOfHosted(const Description &planned, BufferIndex buffer, const Machine &machine) {
  std::vector<HostedUse> uses;
  NodeIndex captured = 0;
  for (const Node &node : planned.nodes) {
    if (isAdded(node.kind))
      continue;
    HostedUse use{captured++, 0, false, std::vector<bool>(planned.pageCount(buffer), false)};
    bool reaches = false;
    for (const Access &access : node.accesses) {
      if (access.buffer != buffer || access.range.size == 0 || reliableMay(access) == modeNone)
        continue;
      for (const Range &hosted : planned.buffers[buffer].hosted) {
        if (!hosted.overlaps(access.range))
          continue;
        const std::uint64_t begin = std::max(hosted.offset, access.range.offset);
        const std::uint64_t end = std::min(hosted.end(), access.range.end());
        const std::uint8_t may = reliableMay(access);
        reaches = true;
        use.us += access.slowdown *
                  linkUs({(may & modeRead) != 0 ? end - begin : 0, (may & modeWrite) != 0 ? end - begin : 0}, machine);
        use.needsValue |= reliableMust(access) != modeWrite;
        for (std::uint64_t page = begin / planned.pageBytes; page * planned.pageBytes < end; ++page)
          use.pages[page] = true;
      }
    }
    if (reaches)
      uses.push_back(std::move(use));
  }
  return uses;
}

/// Of a buffer, the pages that are true.
std::vector<Range> rangesOf(const std::vector<bool> &pages, const Description &step, BufferIndex buffer) {
  std::vector<Range> ranges;
  const std::uint64_t size = step.buffers[buffer].size;
  for (std::size_t page = 0; page < pages.size(); ++page)
    if (pages[page])
      append(ranges, {page * step.pageBytes, std::min(step.pageBytes, size - page * step.pageBytes)});
  return ranges;
}

/// The pages that the wide ones of two uses of a buffer reach.
std::vector<bool> reachedByWide(const HostedUse &one, const HostedUse &other,
                                const std::vector<std::uint64_t> &excess) {
  std::vector<bool> pages(one.pages.size(), false);
  for (std::size_t page = 0; page < pages.size(); ++page)
    pages[page] = (excess[one.node] > 0 && one.pages[page]) || (excess[other.node] > 0 && other.pages[page]);
  return pages;
}

/// What goes on at another address so that less has to be hosted: always the buffer that spares most, and then the
/// next.
class Sparing {
public:
  Sparing(const Description &step, const Timeline &timeline, std::uint64_t frames, const Machine &machine)
      : step_(step), frames_(frames), machine_(machine),
        candidates_(ofLargest(step, idleTimes(step, timeline, knobs::leastIdleShare))) {}

  std::vector<Split> run() {
    const std::optional<Hosting> without = host({});
    double leastUs = without ? without->us : 0;
    for (int round = 0; without && round < knobs::mostOnTop; ++round) {
      const double enoughUs = (1 - knobs::little) * leastUs;
      auto best = candidates_.end();
      for (auto candidate = candidates_.begin(); candidate != candidates_.end(); ++candidate) {
        std::vector<Split> more = chosen_;
        more.insert(more.end(), candidate->begin(), candidate->end());
        const std::optional<Hosting> with = host(more);
        const double us = with ? with->us + doubtUs(with->step, without->step, machine_) : 0;
        if (with && us < std::min(enoughUs, leastUs)) {
          leastUs = us;
          best = candidate;
        }
      }
      if (best == candidates_.end())
        break;
      chosen_.insert(chosen_.end(), best->begin(), best->end());
      candidates_.erase(best);
    }
    return std::move(chosen_);
  }

private:
  /// A step with what is hosted, and what that costs at its prices.
  struct Hosting {
    Description step;
    double us = 0;
  };

  /// Nothing if no frames are found, or once too much has been tried.
  std::optional<Hosting> host(const std::vector<Split> &idle) {
    Hosting hosting{SplitStep(step_, idle).parts()};
    const Timeline timeline(hosting.step);
    const std::optional<WideColouring> colouring = hostForColouring(hosting.step, timeline, frames_, machine_, effort_);
    if (!colouring)
      return std::nullopt;
    hosting.us = colouring->hostingUs;
    return hosting;
  }

  const Description &step_;
  std::uint64_t frames_;
  const Machine &machine_;
  std::vector<std::vector<Split>> candidates_; ///< by buffer, those not chosen
  std::vector<Split> chosen_;
  Effort effort_; ///< of all colourings
};

} // namespace

std::vector<Split> splitsToSpareHosting(const Description &step, const Timeline &timeline, std::uint64_t frames,
                                        const Machine &machine) {
  return Sparing(step, timeline, frames, machine).run();
}

std::vector<Split> splitsOfHosted(const Description &step, const Description &planned, const std::vector<Split> &splits,
                                  const std::vector<std::uint64_t> &excess, const Machine &machine, double leastUs) {
  std::vector<std::pair<double, Split>> found;
  const std::vector<bool> can = canBeSplit(step);
  for (BufferIndex address = 0; address < planned.buffers.size(); ++address) {
    const BufferIndex buffer = capturedBuffer(planned.buffers, address);
    if (planned.buffers[address].hosted.empty() || !can[buffer])
      continue;
    const std::vector<HostedUse> uses = usesOfHosted(planned, address, machine);
    for (std::size_t next = 1; next < uses.size(); ++next) {
      const HostedUse &use = uses[next], &before = uses[next - 1];
      const auto isThere = [&](const Split &split) { return split.buffer == buffer && split.until == use.node; };
      if (!use.needsValue || before.us + use.us < leastUs || std::any_of(splits.begin(), splits.end(), isThere))
        continue;
      Split split{buffer, use.node, rangesOf(reachedByWide(before, use, excess), step, buffer)};
      if (!split.moved.empty())
        found.push_back({before.us + use.us, std::move(split)});
    }
  }
  std::stable_sort(found.begin(), found.end(),
                   [](const auto &one, const auto &other) { return one.first > other.first; });
  std::vector<Split> longest;
  for (std::size_t i = 0; i < std::min(found.size(), mostSplits); ++i)
    longest.push_back(std::move(found[i].second));
  return longest;
}

std::vector<std::uint64_t> excessPages(const Timeline &timeline, std::uint64_t frames) {
  std::vector<std::uint64_t> excess;
  for (NodeIndex node = 0; node < timeline.nodeCount(); ++node)
    excess.push_back(timeline.workingSetPages(node) - std::min(timeline.workingSetPages(node), frames));
  return excess;
}

std::vector<Split> joinedSplits(const Description &step, const std::vector<Split> &splits,
                                const std::vector<Split> &more) {
  const std::vector<bool> can = canBeSplit(step);
  std::map<std::pair<BufferIndex, NodeIndex>, std::vector<bool>> isMoved; // by page
  const auto move = [&](const Split &split) {
    std::vector<bool> &pages = isMoved[{split.buffer, split.until}];
    pages.resize(step.pageCount(split.buffer), false);
    for (const Range &bytes : split.moved)
      for (const std::uint64_t page : pagesIn(bytes, step.pageBytes))
        pages[page] = true;
  };
  for (const Split &split : splits)
    move(split);
  for (const Split &split : more)
    if (can[split.buffer])
      move(split);
  std::vector<Split> result;
  for (const auto &[place, pages] : isMoved)
    result.push_back({place.first, place.second, rangesOf(pages, step, place.first)});
  return result;
}

double doubtUs(const Description &split, const Description &step, const Machine &machine) {
  const std::map<std::size_t, Traffic> known = hostedReach(step);
  double us = 0;
  for (const auto &[node, traffic] : hostedReach(split)) {
    const auto before = known.find(node);
    const Traffic least = before == known.end() ? Traffic() : before->second;
    us += linkUs({traffic.upBytes - std::min(traffic.upBytes, least.upBytes),
                  traffic.downBytes - std::min(traffic.downBytes, least.downBytes)},
                 machine);
  }
  return knobs::doubt * us;
}

} // namespace pumpgraph
