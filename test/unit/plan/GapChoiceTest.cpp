// SPDX-License-Identifier: Apache-2.0
#include "passes/plan/price/GapChoice.h"

#include "passes/analysis/Backend.h"
#include "passes/plan/allocate/GivenBoundary.h"
#include "test/unit/analysis/SmallStep.h"

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <utility>
#include <vector>

namespace pumpgraph {
namespace {

/// Nodes of 10 us in a row, the choice after a plan in which nothing moves.
class GapChoiceTest : public testing::Test {
protected:
  /// Which pieces are to leave before which node.
  using Leaves = std::vector<std::pair<std::string, NodeIndex>>;

  void choose(std::uint64_t frames, Backend backend = Backend::Virtual) {
    const Machine machine = test::smallMachine();
    const Timeline timeline(small_.step, 16 * test::smallPage, machine);
    const Order order(small_.step);
    const GivenBoundary given = givenBoundary(small_.step, timeline, nullptr, 99);
    const Draft still = *draftWithoutTransfers({small_.step, timeline, order, machine, 99, given});
    PlannerInput input{small_.step, timeline, order, machine, frames, given};
    if (backend != Backend::Virtual)
      input.keepsHostCopy = keepHostCopies(small_.step, backend);
    const GapChoice choice = chooseGaps(input, still, scheduleDraft(input, still));
    leaves_.clear();
    pages_ = choice.pages;
    std::erase(pages_, 0U);
    for (std::uint32_t use = 0; use < choice.leaves.size(); ++use)
      if (choice.leaves[use])
        leaves_.push_back({nameOf(timeline, timeline.use(use).piece), timeline.use(use).node});
    states_.clear();
    for (std::size_t i = 0; i < timeline.pieces().size(); ++i)
      states_[nameOf(timeline, static_cast<PieceIndex>(i))] = choice.boundary[static_cast<PieceIndex>(i)];
  }

  std::string nameOf(const Timeline &timeline, PieceIndex piece) const {
    return small_.step.buffers[timeline.piece(piece).buffer].name;
  }

  test::SmallStep small_;
  Leaves leaves_;
  std::vector<std::uint32_t> pages_; ///< that are enough, of each that is to leave
  std::map<std::string, BoundaryState> states_;
};

TEST_F(GapChoiceTest, NothingLeavesWhereAllFits) {
  const BufferIndex a = small_.local("a", 2), b = small_.local("b", 2);
  small_.kernel("makes a", 10, {small_.write(a)});
  small_.kernel("works", 10, {small_.write(b)});
  small_.kernel("uses a", 10, {small_.read(a)});
  choose(4);
  EXPECT_EQ(leaves_, Leaves());
}

TEST_F(GapChoiceTest, AsMuchLeavesAsIsInTheWayAndTheLongestGapFirst) {
  const BufferIndex a = small_.local("a", 2), b = small_.local("b", 2), c = small_.local("c", 2);
  small_.kernel("makes a", 10, {small_.write(a)});
  small_.kernel("makes b", 10, {small_.write(b)});
  small_.kernel("works", 10, {small_.write(c)});
  small_.kernel("uses b", 10, {small_.read(b)});
  small_.kernel("uses a", 10, {small_.read(a)});
  choose(4);
  EXPECT_EQ(leaves_, (Leaves{{"a", 4}}));
}

TEST_F(GapChoiceTest, OfAPieceThatLeavesFewerPagesMayBeEnough) {
  const BufferIndex a = small_.local("a", 4), b = small_.local("b", 4), c = small_.local("c", 4);
  small_.kernel("makes a", 10, {small_.write(a)});
  small_.kernel("makes b", 10, {small_.write(b)});
  small_.kernel("works", 10, {small_.write(c)});
  small_.kernel("uses b", 10, {small_.read(b)});
  small_.kernel("uses a", 10, {small_.read(a)});
  choose(9);
  EXPECT_EQ(leaves_, (Leaves{{"a", 4}}));
  EXPECT_EQ(pages_, std::vector<std::uint32_t>{3});
  choose(8);
  EXPECT_EQ(pages_, std::vector<std::uint32_t>{4});
}

TEST_F(GapChoiceTest, APartialPageGoesFirst) {
  const BufferIndex a = small_.local("a", 1), b = small_.local("b", 1), c = small_.local("c", 1);
  small_.step.buffers[b].size = test::smallPage / 4;
  small_.kernel("makes a", 10, {small_.write(a)});
  small_.kernel("makes b", 10, {small_.write(b)});
  small_.kernel("works", 10, {small_.write(c)});
  small_.kernel("uses b", 10, {small_.read(b)});
  small_.kernel("uses a", 10, {small_.read(a)});
  choose(2);
  EXPECT_EQ(leaves_, (Leaves{{"b", 3}}));
}

TEST_F(GapChoiceTest, AGapThatHelpsAtTwoPlacesIsBetterThanTwo) {
  const BufferIndex a = small_.local("a", 2), b = small_.local("b", 2), c = small_.local("c", 2),
                    w = small_.local("w", 2);
  small_.kernel("makes a", 10, {small_.write(a)});
  small_.kernel("makes b", 10, {small_.write(b)});
  small_.kernel("works", 10, {small_.write(w)});
  small_.kernel("uses b", 10, {small_.read(b)});
  small_.kernel("makes c", 10, {small_.write(c)});
  small_.kernel("works", 10, {small_.update(w)});
  small_.kernel("uses c", 10, {small_.read(c)});
  small_.kernel("uses a", 10, {small_.read(a)});
  choose(4);
  EXPECT_EQ(leaves_, (Leaves{{"a", 7}}));
}

TEST_F(GapChoiceTest, WhatIsOverwrittenNextIsNotInTheWay) {
  const BufferIndex a = small_.local("a", 2), b = small_.local("b", 2);
  small_.kernel("makes a", 10, {small_.write(a)});
  small_.kernel("works", 10, {small_.write(b)});
  small_.kernel("makes a anew", 10, {small_.write(a)});
  choose(2);
  EXPECT_EQ(leaves_, Leaves());
}

TEST_F(GapChoiceTest, StateIsAwayBetweenStepsWhereItIsInTheWay) {
  const BufferIndex state = small_.live("state", 2), weight = small_.live("weight", 2), b = small_.local("b", 2);
  small_.kernel("works", 10, {small_.read(weight), small_.write(b)});
  small_.kernel("works", 10, {small_.update(b)});
  small_.kernel("updates", 10, {small_.update(weight), small_.update(state)});
  choose(4);
  EXPECT_EQ(leaves_, Leaves());
  EXPECT_EQ(states_["state"], BoundaryState::Away);
  EXPECT_EQ(states_["weight"], BoundaryState::Resident);
}

// The next step overwrites it: it has to be somewhere between the two, and need not come back.
TEST_F(GapChoiceTest, WhatNobodyReadsAgainLeavesOnlyWhereItIsInTheWay) {
  const BufferIndex kept = small_.live("kept", 2), b = small_.local("b", 2);
  small_.kernel("makes kept", 10, {small_.write(kept)});
  small_.kernel("works", 10, {small_.write(b)});
  small_.kernel("works", 10, {small_.update(b)});
  choose(4);
  EXPECT_EQ(states_["kept"], BoundaryState::Resident);
  choose(3);
  EXPECT_EQ(states_["kept"], BoundaryState::Away);
  EXPECT_EQ(leaves_, Leaves());
}

TEST_F(GapChoiceTest, WhatNeedNotComeBackLeavesBeforeWhatDoes) {
  const BufferIndex kept = small_.live("kept", 2), weight = small_.live("weight", 2), b = small_.local("b", 2);
  small_.kernel("trains", 10, {small_.update(weight), small_.write(kept)});
  small_.kernel("works", 10, {small_.write(b)});
  choose(4);
  EXPECT_EQ(states_["kept"], BoundaryState::Away);
  EXPECT_EQ(states_["weight"], BoundaryState::Resident);
}

TEST_F(GapChoiceTest, WhatLeavesBeforeItIsWrittenIsMirrored) {
  const BufferIndex weight = small_.live("weight", 2), b = small_.local("b", 3);
  small_.kernel("reads", 10, {small_.read(weight)});
  small_.kernel("works", 10, {small_.write(b)});
  small_.kernel("updates", 10, {small_.update(weight)});
  choose(4);
  EXPECT_EQ(leaves_, (Leaves{{"weight", 2}}));
  EXPECT_EQ(states_["weight"], BoundaryState::Mirrored);
}

// The second time the weight would leave for nothing where its host copy is still good.
TEST_F(GapChoiceTest, WhatLeftOnceIsCleanOnVirtualMemoryOnly) {
  const BufferIndex weight = small_.live("weight", 2), y = small_.local("y", 2), t = small_.local("t", 4),
                    u = small_.local("u", 2);
  small_.kernel("reads", 10, {small_.read(weight)});
  small_.kernel("fills all", 10, {small_.write(t)});
  small_.kernel("makes y", 10, {small_.read(weight), small_.write(y)});
  small_.kernel("works", 10, {small_.write(u)});
  small_.kernel("reads", 10, {small_.read(weight)});
  small_.kernel("uses y", 10, {small_.read(y)});
  small_.kernel("updates", 10, {small_.update(weight)});
  choose(4);
  EXPECT_EQ(leaves_, (Leaves{{"weight", 2}, {"weight", 4}}));
  choose(4, Backend::Managed);
  EXPECT_EQ(leaves_, (Leaves{{"weight", 2}, {"y", 5}}));
}

TEST_F(GapChoiceTest, MoreThanCanLeaveIsNoTrouble) {
  const BufferIndex a = small_.local("a", 2), b = small_.local("b", 9);
  small_.kernel("makes a", 10, {small_.write(a)});
  small_.kernel("works", 10, {small_.write(b)});
  small_.kernel("uses a", 10, {small_.read(a)});
  choose(4);
  EXPECT_EQ(leaves_, (Leaves{{"a", 2}}));
}

} // namespace
} // namespace pumpgraph
