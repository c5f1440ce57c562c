// SPDX-License-Identifier: Apache-2.0
#include "passes/plan/search/BoundaryProposers.h"

#include "passes/analysis/Indices.h"
#include "passes/plan/Knobs.h"
#include "passes/plan/search/Each.h"

#include <algorithm>
#include <map>
#include <utility>

namespace pumpgraph {

namespace {

/// Not those whose state is given, nor, beside other steps, those that come to the device in some node: they choose
/// among all frames, and those of others are not free at the boundary.
std::vector<PieceIndex> byIdleTime(const PlannerInput &input) {
  const Timeline &timeline = input.timeline;
  const InMemoryTimes &times = timeline.times();
  std::vector<std::pair<double, PieceIndex>> idle;
  for (const PieceIndex piece : indicesOf(timeline.pieces())) {
    const std::span<const Use> uses = timeline.usesOf(piece);
    const std::optional<Timeline::Life> life = timeline.lifeOf(piece);
    if (input.given.isGiven[piece] || (input.given.isShared && !(life && life->fromBoundary)))
      continue;
    if (timeline.piece(piece).liveOut && !uses.empty())
      idle.push_back({times.totalUs - times.endUs[uses.back().node] + times.startUs[uses.front().node], piece});
  }
  std::sort(idle.begin(), idle.end());
  std::vector<PieceIndex> result;
  for (const auto &[us, piece] : idle)
    result.push_back(piece);
  return result;
}

/// Frames for pieces that may be on the device between steps, and need not.
std::uint64_t framesToChooseFrom(const PlannerInput &input) {
  const std::uint64_t own = input.frameCount - input.given.ownFrom;
  return own - std::min(own, residentsWithoutHome(input));
}

/// Where the captured nodes of a plan end.
double nodesEndUs(const Evaluated &plan) {
  const auto &endUs = plan.schedule.endUs;
  return plan.draft.capturedCount == 0 ? 0 : *std::max_element(endUs.begin(), endUs.begin() + plan.draft.capturedCount);
}

} // namespace

std::uint64_t residentsWithoutHome(const PlannerInput &input) {
  std::uint64_t pages = 0;
  for (const PieceIndex piece : indicesOf(input.timeline.pieces()))
    if (input.given.states[piece] != BoundaryState::Away && !input.given.hasHome(piece))
      pages += input.timeline.piece(piece).pageCount;
  return pages;
}

BoundaryProposers::BoundaryProposers(Search &search)
    : search_(search), input_(search.input()), timeline_(search.timeline()), ranking_(byIdleTime(input_)),
      frames_(framesToChooseFrom(input_)) {}

/// Some shares, each an attempt.
class BoundaryProposers::OfShares : public Proposer {
public:
  /// `isFirst`: nothing is known of other shares. Then those that promise most are tried whatever has been spent.
  OfShares(BoundaryProposers &all, std::vector<Share> shares, bool isFirst)
      : all_(all), shares_(std::move(shares)), isFirst_(isFirst) {}

  std::string_view name() const override { return isFirst_ ? "shares" : "finer shares"; }
  Turn at(std::size_t turn) const override {
    if (turn >= shares_.size())
      return Turn::Over;
    const Share &share = shares_[turn];
    const bool isPromising =
        isFirst_ && share.state == BoundaryState::Resident && share.percent <= mostPromising(all_.share_.percent);
    return isPromising || !all_.search_.isSpent() ? Turn::Try : Turn::Skip;
  }
  std::optional<Proposal> propose(std::size_t turn) override {
    return Proposal{all_.withShare(shares_[turn]), false, 0};
  }
  void learn(const Evaluated * /*plan*/, bool isKept) override {
    if (isKept)
      all_.share_ = shares_[next_];
    ++next_;
  }

private:
  /// The share after the best: the step time falls with the share, then rises.
  static int mostPromising(int percent) { return percent == 0 ? 20 : percent == 20 ? 55 : 100; }

  BoundaryProposers &all_;
  std::vector<Share> shares_;
  bool isFirst_;
  std::size_t next_ = 0;
};

void BoundaryProposers::shares() {
  std::vector<Share> shares;
  for (int percent : {0, 20, 55, 100})
    for (BoundaryState state : {BoundaryState::Resident, BoundaryState::Mirrored})
      shares.push_back({percent, state});
  OfShares proposer(*this, std::move(shares), true);
  search_.run(proposer);
}

void BoundaryProposers::finerShares() {
  for (int step : {10, 5}) {
    std::vector<Share> shares;
    for (int percent : {share_.percent - step, share_.percent + step})
      shares.push_back({std::clamp(percent, 0, 100), share_.state});
    OfShares proposer(*this, std::move(shares), false);
    search_.run(proposer);
  }
}

Choices BoundaryProposers::withShare(Share share) const {
  Choices choices = search_.asked();
  choices.start.boundary = input_.given.states;
  std::uint64_t pages = frames_ * static_cast<std::uint64_t>(share.percent) / 100;
  for (PieceIndex piece : ranking_) {
    if (timeline_.piece(piece).pageCount > pages)
      break;
    pages -= timeline_.piece(piece).pageCount;
    choices.start.boundary[piece] = share.state;
  }
  return choices;
}

void BoundaryProposers::lookingFurther() {
  Each<bool> proposer("looking further", search_, {true}, [this](bool looksFurther) {
    Choices choices = search_.asked();
    choices.start.looksFurther = looksFurther;
    return choices;
  });
  search_.run(proposer);
}

void BoundaryProposers::restlessFirst() {
  Each<double> proposer("restless first", search_, {8.0, 3.0, 1.5, 1.0},
                        [this](double fetches) { return withRestlessFirst(fetches); });
  search_.run(proposer);
}

/// Those that came back more often than `fetches` times a page.
Choices BoundaryProposers::withRestlessFirst(double fetches) const {
  const Draft &draft = search_.best().draft;
  std::vector<std::pair<double, PieceIndex>> restless;
  for (const PieceIndex piece : indicesOf(timeline_.pieces())) {
    const double perPage = static_cast<double>(draft.fared[piece].fetchedPages) / timeline_.piece(piece).pageCount;
    if (perPage >= fetches)
      restless.push_back({perPage, piece});
  }
  std::stable_sort(restless.begin(), restless.end(), [](const auto &a, const auto &b) { return a.first > b.first; });
  Choices choices = search_.asked();
  choices.start.first.clear();
  std::uint64_t pages = frames_ / 2;
  for (const auto &[perPage, piece] : restless) {
    if (timeline_.piece(piece).pageCount > pages)
      break;
    pages -= timeline_.piece(piece).pageCount;
    choices.start.first.push_back(piece);
  }
  return choices;
}

void BoundaryProposers::settledBoundary() {
  Each<bool> proposer("settled boundary", search_, {true}, [this](bool) {
    const Draft &draft = search_.best().draft;
    Choices choices = search_.asked();
    for (const PieceIndex piece : indicesOf(timeline_.pieces())) {
      BoundaryState &state = choices.start.boundary[piece];
      if (input_.given.isGiven[piece])
        continue;
      if (draft.fared[piece].cameForBoundary)
        state = BoundaryState::Away;
      else if (state != BoundaryState::Away)
        state = draft.fared[piece].leftUnwritten ? BoundaryState::Mirrored : BoundaryState::Resident;
    }
    return choices;
  });
  proposer.tryWhenSpent();
  search_.run(proposer);
}

void BoundaryProposers::leavingLater() {
  Each<double> proposer("leaving later", search_, {0.75, 0.5, 0.25}, [this](double part) { return withLater(part); });
  search_.run(proposer);
}

/// Of the pieces that are saved last, as many leave in the next step as take `part` of that time.
std::optional<Choices> BoundaryProposers::withLater(double part) const {
  const Evaluated &best = search_.best();
  const Schedule &schedule = best.schedule;
  const std::size_t nodes = best.draft.capturedCount;
  const double endUs = nodesEndUs(best);
  double leftUs = part * (schedule.totalUs - endUs);
  if (leftUs < knobs::little * schedule.totalUs)
    return std::nullopt;
  std::map<BufferIndex, std::vector<std::size_t>> saves; // after the last node
  for (std::size_t i = 0; i < best.draft.transfers.size(); ++i)
    if (best.draft.transfers[i].kind == NodeKind::Evict && schedule.endUs[nodes + i] > endUs)
      saves[best.draft.transfers[i].pages.buffer].push_back(i);
  Choices choices = search_.asked();
  choices.start.leaves.resize(best.draft.leftAt.size(), 0);
  std::vector<std::pair<double, PieceIndex>> last; // by the end of its save, the latest first
  for (PieceIndex piece : ranking_) {
    const Piece &pages = timeline_.piece(piece);
    if (choices.start.boundary[piece] != BoundaryState::Away || !timeline_.usesOf(piece).front().needsValue())
      continue;
    for (const std::size_t save : saves[pages.buffer]) {
      const PageRun &run = best.draft.transfers[save].pages;
      if (run.firstPage < pages.firstPage + pages.pageCount && pages.firstPage < run.firstPage + run.pageCount) {
        last.push_back({-schedule.endUs[nodes + save], piece});
        break;
      }
    }
  }
  std::sort(last.begin(), last.end());
  for (const auto &[savedUs, piece] : last) {
    if (leftUs <= 0)
      break;
    leftUs -= static_cast<double>(timeline_.piece(piece).bytes) / input_.machine.downBytesPerSecond * 1e6;
    choices.start.boundary[piece] = BoundaryState::Resident;
    choices.start.leaves[timeline_.piece(piece).usesBegin] = 1;
  }
  return choices;
}

} // namespace pumpgraph
