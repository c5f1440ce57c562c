// SPDX-License-Identifier: Apache-2.0
#include "passes/plan/search/Proposers.h"

#include "passes/analysis/Indices.h"
#include "passes/plan/Knobs.h"
#include "passes/plan/price/GapChoice.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace pumpgraph {

namespace {

/// One choice of gaps.
class GapProposer : public Proposer {
public:
  /// `isFirst`: tried whatever has been spent.
  GapProposer(const Search &search, bool isFirst) : search_(search), isFirst_(isFirst) {}

  std::string_view name() const override { return "gaps by price"; }
  Turn at(std::size_t turn) const override {
    const bool isSpent = search_.isSpent() && !(turn == 0 && isFirst_);
    return turn == knobs::roundsByPrice || isOver_ || isSpent ? Turn::Over : Turn::Try;
  }
  unsigned reach() const override { return 1; }

  std::optional<Proposal> propose(std::size_t turn) override {
    if (turn == 0)
      begin();
    return Proposal{choices_, false, 0};
  }

  /// Pieces that had to leave all the same, because of the frames they got, choose theirs before all others.
  void learn(const Evaluated *plan, bool /*isKept*/) override {
    std::vector<std::pair<double, PieceIndex>> more;
    for (const PieceIndex piece : indicesOf(isFirstPiece_)) {
      if (const std::uint32_t strays = plan ? plan->draft.fared[piece].strayPages : 0;
          strays > 0 && !isFirstPiece_[piece])
        more.push_back({static_cast<double>(strays) / search_.timeline().piece(piece).pageCount, piece});
    }
    isOver_ = more.empty();
    std::stable_sort(more.begin(), more.end(), [](const auto &a, const auto &b) { return a.first > b.first; });
    for (const auto &[perPage, piece] : more) {
      choices_.start.first.push_back(piece);
      isFirstPiece_[piece] = true;
    }
  }

private:
  void begin() {
    const Evaluated &best = search_.best();
    GapChoice choice = chooseGaps(search_.input(), best.draft, best.schedule);
    choices_ = search_.asked();
    if (choices_.start.leaves.empty())
      choices_.start.first.clear();
    choices_.start.boundary = std::move(choice.boundary);
    choices_.start.leaves = std::move(choice.leaves);
    choices_.start.slackWeight = knobs::slackWeights[0];
    isFirstPiece_ = IndexedVector<PieceIndex, bool>(search_.timeline().pieces().size(), false);
    for (PieceIndex piece : choices_.start.first)
      isFirstPiece_[piece] = true;
  }

  const Search &search_;
  bool isFirst_;
  bool isOver_ = false;
  Choices choices_;
  IndexedVector<PieceIndex, bool> isFirstPiece_;
};

} // namespace

void proposeGapsByPrice(Search &search) {
  for (std::size_t round = 0; round < knobs::roundsByPrice; ++round) {
    GapProposer proposer(search, round == 0);
    search.run(proposer);
  }
}

} // namespace pumpgraph
