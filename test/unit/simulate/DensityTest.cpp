// SPDX-License-Identifier: Apache-2.0
#include "passes/simulate/Density.h"

#include <gtest/gtest.h>

namespace pumpgraph {
namespace {

constexpr LeafMask nothing = 0;
constexpr LeafMask wholeBlock = ~LeafMask{0};

// Half of a pair is 50 percent, which is not more than 51: only the leaf that faulted comes.
TEST(Density, ALoneFaultBringsItsLeaf) {
  EXPECT_EQ(densityMask(nothing, 0b1, 51), 0b1U);
}

// Of four leaves three are 75 percent: the fourth comes too. Of eight they are 37 percent.
TEST(Density, ADenseSubtreeComesWhole) {
  EXPECT_EQ(densityMask(nothing, 0b0111, 51), 0b1111U);
}

// What is resident counts like what faults, and is not brought again.
TEST(Density, ResidentLeavesCount) {
  EXPECT_EQ(densityMask(0b0011, 0b0100, 51), 0b1100U);
}

// A dense subtree without a fault in it stays as it is.
TEST(Density, NothingComesWhereNothingFaults) {
  EXPECT_EQ(densityMask(0b0111, 0b1 << 16, 51), LeafMask{0b1} << 16);
}

// Half a block is not more than 51 percent of it, one leaf more is.
TEST(Density, TheWholeBlockIsASubtree) {
  EXPECT_EQ(densityMask(nothing, 0x0000ffff, 51), 0x0000ffffU);
  EXPECT_EQ(densityMask(0x0000ffff, 0x00010000, 51), 0xffff0000U);
}

// At 5 percent one leaf is enough for 16 leaves (6 percent) and not for 32 (3 percent); two are.
TEST(Density, FivePercentBringsHalfABlockForOneLeaf) {
  EXPECT_EQ(densityMask(nothing, 0b1, 5), 0x0000ffffU);
  EXPECT_EQ(densityMask(nothing, LeafMask{0b1} << 31, 5), 0xffff0000U);
  EXPECT_EQ(densityMask(nothing, 0b11, 5), wholeBlock);
}

// The largest dense subtree counts, whether those below it are dense or not.
TEST(Density, ALargerSubtreeMayBeDenserThanASmallerOne) {
  // The fault's own pair and quadruple are half full and three eighths; all eight are five eighths full.
  EXPECT_EQ(densityMask(0b11110000, 0b00000001, 51), 0b00001111U);
}

// "More than", not "as much as".
TEST(Density, ExactlyTheThresholdIsNotDense) {
  EXPECT_EQ(densityMask(nothing, 0b1, 50), 0b1U);
  EXPECT_EQ(densityMask(nothing, 0b1, 49), 0b11U);
}

TEST(Density, AHundredPercentBringsNothingMore) {
  EXPECT_EQ(densityMask(wholeBlock & ~LeafMask{0b11}, 0b1, 100), 0b1U);
}

} // namespace
} // namespace pumpgraph
