// SPDX-License-Identifier: Apache-2.0
#include "passes/plan/Rehoming.h"

#include "passes/analysis/Bound.h"

#include <algorithm>
#include <random>
#include <span>
#include <utility>

namespace pumpgraph {

namespace {

constexpr int mostRounds = 240;
/// Rounds in a row that gain nothing, after which there will be no more: few of them, or little spent on them,
/// Draft::effort.
constexpr int fewVainRounds = 24, mostVainRounds = 96;
constexpr std::uint64_t littleEffort = 4'000'000;
/// A plan this close to the bound is left alone.
constexpr double closeToBound = 1.01;
/// Parts of the step whose pieces choose again, in turn.
constexpr double windowShares[] = {0.4, 0.2, 0.1, 0.05};
/// Groups have more tenants when everybody has a home, so pricing one takes longer.
constexpr std::uint64_t effortWeight = 2;

class Rehoming {
public:
  Rehoming(const PlannerInput &input, PlanSearch &search, const std::vector<std::uint8_t> &leaves, const Tuning &tuning)
      : input_(input), timeline_(input.timeline), search_(search), leaves_(leaves), tuning_(tuning) {}

  void run(std::uint64_t mostEffort) {
    const Bound limit = bound(input_.captured, search_.budgetBytes(), input_.machine, BoundKind::May);
    int vain = 0;
    std::uint64_t effortBefore = 0; // of the rounds in vain
    const auto isInVain = [&] {
      return vain >= mostVainRounds || (vain >= fewVainRounds && effort_ - effortBefore >= littleEffort);
    };
    for (int round = 0; round < mostRounds && !isInVain() && effort_ < mostEffort; ++round) {
      const Candidate &best = *search_.best();
      if (best.draft.transfers.empty() || best.schedule.totalUs <= closeToBound * limit.totalUs)
        return;
      ++vain;
      if (tryHomes(homesBeside(windowOf(round)))) {
        vain = 0;
        effortBefore = effort_;
      }
    }
  }

private:
  /// Pieces whose first use, or last use, is at one of the nodes [begin, end).
  struct Window {
    bool isOfLastUses = false;
    double begin = 0, end = 0;
  };

  Window windowOf(int round) {
    const auto turn = static_cast<std::size_t>(round);
    const double length = windowShares[turn / 2 % std::size(windowShares)] * timeline_.nodeCount();
    const bool isOfLastUses = turn % 2 == 1;
    const double middle = isOfLastUses ? random_() % timeline_.nodeCount() : nodeThatWaits();
    return {isOfLastUses, middle - length / 2, middle + std::max(1.0, length / 2)};
  }

  /// A node of the best plan, at random; the longer it waits, the more likely.
  NodeIndex nodeThatWaits() {
    const Schedule &schedule = search_.best()->schedule;
    std::vector<double> waitedUs; // by node, with all before it
    double sumUs = 0, endUs = 0;
    for (NodeIndex node = 0; node < timeline_.nodeCount(); ++node) {
      sumUs += std::max(0.0, schedule.startUs[node] - endUs);
      endUs = std::max(endUs, schedule.endUs[node]);
      waitedUs.push_back(sumUs);
    }
    constexpr std::uint32_t resolution = 1 << 16;
    const double atUs = sumUs * (random_() % resolution) / resolution;
    const auto found = std::upper_bound(waitedUs.begin(), waitedUs.end(), atUs);
    return static_cast<NodeIndex>(std::min(found, waitedUs.end() - 1) - waitedUs.begin());
  }

  /// The homes of the best plan, but for pieces of the window. Homes that are given stay.
  PieceFrames homesBeside(const Window &window) const {
    PieceFrames homes = input_.given.homes;
    for (std::size_t i = 0; i < timeline_.pieces().size(); ++i) {
      const PieceIndex piece = static_cast<PieceIndex>(i);
      const std::span<const Use> uses = timeline_.usesOf(piece);
      if (uses.empty() || input_.given.isGiven[piece])
        continue;
      const NodeIndex at = window.isOfLastUses ? uses.back().node : uses.front().node;
      if (at < window.begin || at >= window.end)
        homes[piece] = search_.framesOf(piece);
    }
    return homes;
  }

  /// Whether a pass with these, and the other pieces free to choose, is the best so far.
  bool tryHomes(const PieceFrames &homes) {
    const DraftStart start{search_.best()->draft.boundary, {}, leaves_};
    tl::expected<Draft, Stuck> draft = draftPlan(input_, start, tuning_, &homes);
    effort_ += effortWeight * (draft ? draft->effort : draft.error().effort);
    return draft && search_.tryDraft(std::move(*draft));
  }

  const PlannerInput &input_;
  const Timeline &timeline_;
  PlanSearch &search_;
  const std::vector<std::uint8_t> &leaves_;
  const Tuning tuning_;
  std::mt19937 random_; // the standard says what it draws, so plans are the same everywhere
  std::uint64_t effort_ = 0;
};

} // namespace

void chooseHomesAgain(const PlannerInput &input, PlanSearch &search, const std::vector<std::uint8_t> &leaves,
                      const Tuning &tuning, std::uint64_t mostEffort) {
  Rehoming(input, search, leaves, tuning).run(mostEffort);
}

} // namespace pumpgraph
