// SPDX-License-Identifier: Apache-2.0
#include "passes/plan/search/Proposers.h"

#include "passes/analysis/Bound.h"
#include "passes/analysis/Indices.h"
#include "passes/plan/Knobs.h"
#include "passes/plan/price/GapChoice.h"

#include <algorithm>
#include <random>
#include <span>
#include <utility>
#include <vector>

namespace pumpgraph {

namespace {

/// Of first uses and of last uses, two rounds each.
constexpr std::size_t roundsOfWindows = 4 * std::size(knobs::windowShares);

class Neighbourhood : public Proposer {
public:
  explicit Neighbourhood(const Search &search)
      : search_(search), input_(search.input()), timeline_(search.timeline()),
        fewVain_(input_.isForManaged() ? knobs::vainRounds / 2 : knobs::vainRounds),
        mostVain_(std::clamp(knobs::vainRoundsOfPiece * timeline_.pieces().size(), fewVain_, 2 * knobs::vainRounds)),
        closeUs_(knobs::closeToBound *
                 bound(input_.captured, search.evaluator().budgetBytes(), input_.machine, BoundKind::May).totalUs),
        effortBefore_(search.effort()), usBefore_(search.best().schedule.totalUs) {}

  std::string_view name() const override { return "neighbourhood"; }

  Turn at(std::size_t round) const override {
    const Evaluated &best = search_.best();
    const bool isInVain =
        vain_ >= mostVain_ || (vain_ >= fewVain_ && search_.effort() - effortBefore_ >= knobs::littleEffort);
    const bool isOver = round >= knobs::mostRounds || isInVain || search_.isSpent() || best.draft.transfers.empty() ||
                        best.schedule.totalUs <= closeUs_;
    return isOver ? Turn::Over : Turn::Try;
  }

  /// The pieces of a window are free to choose frames. In turn, they leave when they did, or when it is cheapest by the
  /// prices of the best plan. All others have the frames of that, and those that are given stay.
  std::optional<Proposal> propose(std::size_t round) override {
    const Evaluated &best = search_.best();
    std::vector<PieceIndex> pieces = piecesIn(windowOf(round));
    thinOut(pieces, round);
    Proposal proposal{{best.choices.start, {}}, true, 0};
    DraftStart &start = proposal.choices.start;
    start.boundary = best.draft.boundary;
    start.first.clear();
    start.homes = input_.given.homes;
    // Without pieces nothing is weighed.
    start.slackWeight = pieces.empty() ? 0 : knobs::slackWeights[round % std::size(knobs::slackWeights)];
    if (round % 2 == 1)
      chooseGapsOf(pieces, proposal);
    IndexedVector<PieceIndex, bool> isFree(timeline_.pieces().size(), false);
    for (PieceIndex piece : pieces)
      isFree[piece] = true;
    for (const PieceIndex piece : indicesOf(timeline_.pieces()))
      if (!timeline_.usesOf(piece).empty() && !isFree[piece] && !input_.given.hasHome(piece))
        start.homes[piece] = best.framesOf(timeline_, piece);
    return proposal;
  }

  void learn(const Evaluated * /*plan*/, bool isKept) override {
    ++vain_;
    if (isKept)
      gaps_.reset();
    if (const double us = search_.best().schedule.totalUs; us < (1 - knobs::little) * usBefore_) {
      vain_ = 0;
      effortBefore_ = search_.effort();
      usBefore_ = us;
    }
  }

private:
  /// Pieces whose first use, or last use, is at one of the nodes [begin, end).
  struct Window {
    bool isOfLastUses = false;
    double begin = 0, end = 0;
  };

  /// Two rounds in a row have windows alike, but for what is drawn for each.
  Window windowOf(std::size_t round) {
    const std::size_t turn = round / 2;
    const double length = knobs::windowShares[turn / 2 % std::size(knobs::windowShares)] * timeline_.nodeCount();
    const bool isOfLastUses = turn % 2 == 1;
    const double middle = isOfLastUses ? drawnFor(round) % timeline_.nodeCount() : nodeThatWaits(drawnFor(round));
    return {isOfLastUses, middle - length / 2, middle + std::max(1.0, length / 2)};
  }

  /// The same for a round however often it is thought of.
  std::uint32_t drawnFor(std::size_t round) {
    while (drawn_.size() <= round)
      drawn_.push_back(static_cast<std::uint32_t>(random_()));
    return drawn_[round];
  }

  /// A node of the best plan, as it was drawn; the longer it waits, the more likely.
  NodeIndex nodeThatWaits(std::uint32_t drawn) const {
    const Schedule &schedule = search_.best().schedule;
    std::vector<double> waitedUs; // by node, with all before it
    double sumUs = 0, endUs = 0;
    for (NodeIndex node = 0; node < timeline_.nodeCount(); ++node) {
      sumUs += std::max(0.0, schedule.startUs[node] - endUs);
      endUs = std::max(endUs, schedule.endUs[node]);
      waitedUs.push_back(sumUs);
    }
    constexpr std::uint32_t resolution = 1 << 16;
    const double atUs = sumUs * (drawn % resolution) / resolution;
    const auto found = std::upper_bound(waitedUs.begin(), waitedUs.end(), atUs);
    return static_cast<NodeIndex>(std::min(found, waitedUs.end() - 1) - waitedUs.begin());
  }

  bool isIn(const Window &window, PieceIndex piece) const {
    const std::span<const Use> uses = timeline_.usesOf(piece);
    if (uses.empty())
      return false;
    const NodeIndex at = window.isOfLastUses ? uses.back().node : uses.front().node;
    return at >= window.begin && at < window.end;
  }

  /// Of those whose homes are not given.
  std::vector<PieceIndex> piecesIn(const Window &window) const {
    std::vector<PieceIndex> pieces;
    for (const PieceIndex piece : indicesOf(timeline_.pieces()))
      if (!input_.given.hasHome(piece) && isIn(window, piece))
        pieces.push_back(piece);
    return pieces;
  }

  /// Leaves those of some buffers, drawn for the round. Not for managed memory: what is reckoned here is only near what
  /// its operations take in the end.
  void thinOut(std::vector<PieceIndex> &pieces, std::size_t round) {
    const double share = knobs::bufferShares[round / roundsOfWindows % std::size(knobs::bufferShares)];
    if (share == 1 || input_.isForManaged())
      return;
    std::minstd_rand random(drawnFor(round));
    BufferIndex buffer = noBuffer; // a buffer's pieces follow one another
    bool stays = false;
    std::erase_if(pieces, [&](PieceIndex piece) {
      if (const BufferIndex next = timeline_.piece(piece).buffer; next != buffer) {
        buffer = next;
        stays = static_cast<double>(random()) < share * static_cast<double>(std::minstd_rand::max());
      }
      return !stays;
    });
  }

  void chooseGapsOf(const std::vector<PieceIndex> &pieces, Proposal &proposal) {
    if (!gaps_) {
      gaps_ = chooseGaps(input_, search_.best().draft, search_.best().schedule);
      proposal.effort += gaps_->effort;
    }
    DraftStart &start = proposal.choices.start;
    start.leaves.resize(gaps_->leaves.size(), 0);
    for (PieceIndex piece : pieces) {
      const Piece &uses = timeline_.piece(piece);
      start.boundary[piece] = gaps_->boundary[piece];
      std::copy(gaps_->leaves.begin() + uses.usesBegin, gaps_->leaves.begin() + uses.usesEnd,
                start.leaves.begin() + uses.usesBegin);
    }
  }

  const Search &search_;
  const PlannerInput &input_;
  const Timeline &timeline_;
  const std::size_t fewVain_, mostVain_;
  const double closeUs_;
  std::size_t vain_ = 0;
  std::uint64_t effortBefore_;       ///< of the rounds in vain
  double usBefore_;                  ///< of the step, before them
  std::optional<GapChoice> gaps_;    ///< by the prices of the best plan, once they were asked for
  std::mt19937 random_;              // the standard says what it draws, so plans are the same everywhere
  std::vector<std::uint32_t> drawn_; ///< by round
};

} // namespace

void proposeNeighbours(Search &search) {
  Neighbourhood proposer(search);
  search.run(proposer);
}

} // namespace pumpgraph
