// SPDX-License-Identifier: Apache-2.0
#include "passes/plan/Renaming.h"

#include "passes/analysis/HostedAccess.h"
#include "passes/plan/WideColouring.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

namespace pumpgraph {

namespace {

/// Of the step: what is idle for less does not go on at another address, to leave others its frames or to spare them
/// being hosted.
constexpr double leastIdleShare = 0.3, leastIdleShareSparing = 0.05;
/// How many buffers at most go on at another address so that less is hosted, and the least part that each spares.
constexpr int mostSparing = 4;
constexpr std::size_t mostCandidatesForSparing = 32;
constexpr double leastSpared = 0.02;
/// Of the time on the link: how much longer nodes may take for hosted pages that they were not known to reach before.
constexpr double doubt = 0.5;

/// The idle times of the largest buffers that have some, each buffer's together.
std::vector<std::vector<IdleTime>> ofLargest(const Description &step, const std::vector<IdleTime> &idle) {
  std::vector<std::vector<IdleTime>> result;
  for (const IdleTime &time : idle) {
    if (result.empty() || result.back().front().buffer != time.buffer)
      result.emplace_back();
    result.back().push_back(time);
  }
  std::stable_sort(result.begin(), result.end(), [&](const auto &one, const auto &other) {
    return step.buffers[one.front().buffer].size > step.buffers[other.front().buffer].size;
  });
  result.resize(std::min(result.size(), mostCandidatesForSparing));
  return result;
}

/// What goes on at another address so that less has to be hosted: always the buffer that spares most, and then the
/// next.
class Sparing {
public:
  Sparing(const Description &step, const Timeline &timeline, std::uint64_t frames, const Machine &machine)
      : step_(step), frames_(frames), machine_(machine),
        candidates_(ofLargest(step, idleTimes(step, timeline, leastIdleShareSparing))) {}

  std::vector<IdleTime> run() {
    const std::optional<Hosting> without = host({});
    double leastUs = without ? without->us : 0;
    for (int round = 0; without && round < mostSparing; ++round) {
      const double enoughUs = (1 - leastSpared) * leastUs;
      auto best = candidates_.end();
      for (auto candidate = candidates_.begin(); candidate != candidates_.end(); ++candidate) {
        std::vector<IdleTime> more = chosen_;
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
  std::optional<Hosting> host(const std::vector<IdleTime> &idle) {
    if (effort_ > mostColouringEffort)
      return std::nullopt;
    Hosting hosting{withContinuations(step_, idle)};
    const Timeline timeline(hosting.step);
    const tl::expected<WideColouring, NoColouring> colouring =
        hostForColouring(hosting.step, timeline, frames_, machine_, Balance::No);
    effort_ += colouring ? colouring->effort : colouring.error().effort;
    if (!colouring)
      return std::nullopt;
    hosting.us = colouring->hostingUs;
    return hosting;
  }

  const Description &step_;
  std::uint64_t frames_;
  const Machine &machine_;
  std::vector<std::vector<IdleTime>> candidates_; ///< by buffer, those not chosen
  std::vector<IdleTime> chosen_;
  std::uint64_t effort_ = 0;
};

} // namespace

std::vector<IdleTime> worthRenaming(const Description &step, const Description &planned, const Timeline &timeline,
                                    const PlanOptions &options, std::uint64_t frames) {
  if (options.boundary || options.isQuick || options.backend != Backend::Virtual)
    return {};
  if (hostedBytes(planned) > 0)
    return Sparing(step, timeline, frames, options.machine).run();
  const auto moves = [](const Node &node) { return movesUp(node.kind) || movesDown(node.kind); };
  if (std::none_of(planned.nodes.begin(), planned.nodes.end(), moves) || crowdedNodes(timeline, frames).empty())
    return {};
  return idleTimes(step, timeline, leastIdleShare);
}

double doubtUs(const Description &renamed, const Description &step, const Machine &machine) {
  const std::map<HostedReach, Traffic> known = hostedReach(step);
  double us = 0;
  for (const auto &[reach, traffic] : hostedReach(renamed)) {
    const auto before = known.find(reach);
    const Traffic least = before == known.end() ? Traffic() : before->second;
    us += linkUs({traffic.upBytes - std::min(traffic.upBytes, least.upBytes),
                  traffic.downBytes - std::min(traffic.downBytes, least.downBytes)},
                 machine);
  }
  return doubt * us;
}

} // namespace pumpgraph
