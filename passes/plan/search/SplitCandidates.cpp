// SPDX-License-Identifier: Apache-2.0
#include "passes/plan/search/SplitCandidates.h"

#include "passes/analysis/HostedAccess.h"
#include "passes/plan/Knobs.h"
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

/// The nodes that touch each buffer, ascending.
std::vector<std::vector<NodeIndex>> usersOf(const Description &step) {
  std::vector<std::vector<NodeIndex>> users(step.buffers.size());
  for (NodeIndex node = 0; node < step.nodes.size(); ++node)
    for (const Access &access : step.nodes[node].accesses)
      if (std::vector<NodeIndex> &list = users[access.buffer]; list.empty() || list.back() != node)
        list.push_back(node);
  return users;
}

/// Whether the node's accesses overwrite all of the buffer: then no value goes on.
bool overwrites(const Description &step, NodeIndex node, BufferIndex buffer) {
  const std::vector<Access> &accesses = step.nodes[node].accesses;
  return std::any_of(accesses.begin(), accesses.end(), [&](const Access &access) {
    return access.buffer == buffer && reliableMust(access) == modeWrite && access.range.offset == 0 &&
           access.range.size == step.buffers[buffer].size;
  });
}

} // namespace

std::vector<bool> canBeSplit(const Description &step) {
  std::vector<bool> can;
  for (const Buffer &buffer : step.buffers) {
    can.push_back(buffer.isPrivate && buffer.isRenamable && !buffer.liveIn && !buffer.liveOut &&
                  buffer.hosted.empty() && buffer.frames.empty() && buffer.continues == noBuffer);
    if (buffer.continues != noBuffer)
      can[buffer.continues] = false;
  }
  return can;
}

std::vector<Split> idleTimes(const Description &step, const Timeline &timeline, double leastShare) {
  const InMemoryTimes &times = timeline.times();
  const std::vector<std::vector<NodeIndex>> users = usersOf(step);
  const std::vector<bool> can = canBeSplit(step);
  std::vector<Split> result;
  for (BufferIndex buffer = 0; buffer < step.buffers.size(); ++buffer) {
    if (!can[buffer])
      continue;
    const std::vector<NodeIndex> &nodes = users[buffer];
    double lastUs = 0;
    for (std::size_t next = 1; next < nodes.size(); ++next) {
      lastUs = std::max(lastUs, times.endUs[nodes[next - 1]]);
      const double share = (times.startUs[nodes[next]] - lastUs) / std::max(times.totalUs, 1e-9);
      if (share >= leastShare && !overwrites(step, nodes[next], buffer))
        result.push_back({buffer, nodes[next], {{0, step.buffers[buffer].size}}});
    }
  }
  return result;
}

std::vector<Split> addSplits(std::vector<Split> chosen, const Machine &machine, const TrySplits &tryWith,
                             const MoreSplits &more) {
  const std::optional<TriedSplits> without = tryWith(chosen).get();
  std::optional<TriedSplits> best = without;
  bool isFaster = without.has_value();
  for (int round = 0; isFaster && round < knobs::mostOnTop; ++round) {
    const double gainUs = knobs::little * best->us, enoughUs = best->us - gainUs;
    std::vector<std::pair<std::vector<Split>, Job<std::optional<TriedSplits>>>> trials;
    for (const std::vector<Split> &candidate : more(best->step, chosen, gainUs)) {
      std::vector<Split> splits = chosen;
      splits.insert(splits.end(), candidate.begin(), candidate.end());
      trials.push_back({splits, tryWith(splits)});
    }
    isFaster = false;
    for (auto &[splits, trial] : trials) {
      std::optional<TriedSplits> tried = trial.get();
      if (tried)
        tried->us += doubtUs(tried->step, without->step, machine);
      if (!tried || tried->us >= std::min(enoughUs, best->us))
        continue;
      isFaster = true;
      best = std::move(tried);
      chosen = splits;
    }
  }
  return chosen;
}

std::vector<Split> splitsToSpareHosting(const Description &step, const Timeline &timeline, std::uint64_t frames,
                                        const Machine &machine) {
  const std::vector<std::vector<Split>> idle = ofLargest(step, idleTimes(step, timeline, knobs::leastIdleShare));
  const auto notChosen = [&](const Description & /*step*/, const std::vector<Split> &chosen, double /*leastUs*/) {
    std::vector<std::vector<Split>> others = idle;
    std::erase_if(others, [&](const std::vector<Split> &other) {
      return std::find(chosen.begin(), chosen.end(), other.front()) != chosen.end();
    });
    return others;
  };
  Effort effort; // of all colourings
  const auto host = [&](const std::vector<Split> &splits) {
    return Job<std::optional<TriedSplits>>([&, splits]() -> std::optional<TriedSplits> {
      TriedSplits tried{SplitStep(step, splits).parts()};
      const std::optional<WideColouring> colouring =
          hostForColouring(tried.step, Timeline(tried.step), frames, machine, effort);
      if (!colouring)
        return std::nullopt;
      tried.us = colouring->hostingUs;
      return tried;
    });
  };
  return addSplits({}, machine, host, notChosen);
}

std::vector<std::vector<Split>> splitsOfHosted(const Description &step, const Description &planned,
                                               const std::vector<Split> &splits,
                                               const std::vector<std::uint64_t> &excess, const Machine &machine,
                                               double leastUs) {
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
  std::vector<std::vector<Split>> longest;
  for (std::size_t i = 0; i < std::min(found.size(), mostSplits); ++i)
    longest.push_back({std::move(found[i].second)});
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
