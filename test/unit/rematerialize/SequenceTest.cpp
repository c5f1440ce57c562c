// SPDX-License-Identifier: Apache-2.0
#include "passes/rematerialize/Sequence.h"

#include "test/unit/rematerialize/PureStep.h"

#include <gtest/gtest.h>

namespace pumpgraph::test {
namespace {

class Sequence : public testing::Test {
protected:
  /// Of a buffer that a node writes, after which node it is given up.
  struct Drop {
    BufferIndex buffer;
    NodeIndex maker, after;
  };
  struct Keep {
    BufferIndex buffer;
    NodeIndex maker;
  };
  std::string sequence(const std::vector<Drop> &drops, const std::vector<Keep> &keeps = {}) {
    const StepValues values(step_.step());
    Lifetimes lifetimes(values);
    for (const Drop &drop : drops)
      lifetimes.droppedAfter[valueIn(values, drop.buffer, drop.maker)] = drop.after;
    for (const Keep &keep : keeps)
      lifetimes.kept[valueIn(values, keep.buffer, keep.maker)] = true;
    const auto turns = sequenceOf(step_.step(), values, lifetimes);
    return turns ? toText(*turns) : "none";
  }
  PureStep step_;
};

TEST_F(Sequence, isAsCapturedWhereNothingIsGivenUp) {
  const BufferIndex a = step_.buffer("a");
  step_.pure("make", {step_.write(a)});
  step_.impure("read", {step_.read(a)});
  EXPECT_EQ(sequence({}), "0 1");
}

TEST_F(Sequence, makesAgainBeforeTheReader) {
  const BufferIndex a = step_.buffer("a"), b = step_.buffer("b");
  step_.pure("make", {step_.write(a)});
  step_.impure("read", {step_.read(a)});
  step_.impure("other", {step_.write(b)});
  step_.impure("read", {step_.read(a)});
  step_.impure("read", {step_.read(a)});
  EXPECT_EQ(sequence({{a, 0, 1}}), "0 1 2 0' 3 4");
  EXPECT_EQ(sequence({{a, 0, 0}}), "0 0' 1 2 3 4");
  EXPECT_EQ(sequence({{a, 0, 3}}), "0 1 2 3 0' 4");
}

TEST_F(Sequence, makesInputsAgainToo) {
  const BufferIndex a = step_.buffer("a"), b = step_.buffer("b"), c = step_.buffer("c");
  step_.pure("make a", {step_.write(a)});
  step_.pure("make b", {step_.read(a), step_.write(b)});
  step_.impure("other", {step_.write(c)});
  step_.impure("read b", {step_.read(b)});
  EXPECT_EQ(sequence({{b, 1, 1}}), "0 1 2 0' 1' 3");
  EXPECT_EQ(sequence({{b, 1, 1}}, {{a, 0}}), "0 1 2 1' 3"); // it stays for that
}

TEST_F(Sequence, makesChainsAgainInPlace) {
  const BufferIndex a = step_.buffer("a"), b = step_.buffer("b");
  step_.pure("make", {step_.write(a)});
  step_.pure("update", {step_.update(a)});
  step_.impure("other", {step_.write(b)});
  step_.impure("read", {step_.read(a)});
  EXPECT_EQ(sequence({{a, 1, 1}}), "0 1 2 0' 1' 3");
  step_.step().nodes[0].isPure = false;
  EXPECT_EQ(sequence({{a, 1, 1}}), "0 1 2 3"); // the first link is written over
}

TEST_F(Sequence, makesOnceWhatSeveralNeed) {
  const BufferIndex a = step_.buffer("a"), b = step_.buffer("b"), c = step_.buffer("c");
  step_.pure("make a", {step_.write(a)});
  step_.pure("make b", {step_.read(a), step_.write(b)});
  step_.pure("make c", {step_.read(a), step_.write(c)});
  step_.impure("read", {step_.read(b), step_.read(c)});
  EXPECT_EQ(sequence({{b, 1, 1}, {c, 2, 2}}), "0 1 2 0' 1' 2' 3");
}

// What cannot be made again stays: the plan moves it if it has to.
TEST_F(Sequence, needsPureNodesThatLeaveNothingLasting) {
  const BufferIndex a = step_.buffer("a"), out = step_.buffer("out", StepBuilder::liveOut);
  step_.impure("make", {step_.write(a)});
  step_.impure("read", {step_.read(a)});
  EXPECT_EQ(sequence({{a, 0, 0}}), "0 1");
  step_.step().nodes[0].isPure = true;
  EXPECT_EQ(sequence({{a, 0, 0}}), "0 0' 1");
  step_.step().nodes[0].accesses.push_back(step_.write(out));
  EXPECT_EQ(sequence({{a, 0, 0}}), "0 1");
}

TEST_F(Sequence, keepsInputsThatNobodyCanMakeAgain) {
  const BufferIndex a = step_.buffer("a"), b = step_.buffer("b"), c = step_.buffer("c");
  step_.impure("make a", {step_.write(a)});
  step_.pure("make b", {step_.read(a), step_.write(b)});
  step_.impure("other", {step_.write(c)});
  step_.impure("read b", {step_.read(b)});
  EXPECT_EQ(sequence({{b, 1, 1}}), "0 1 2 1' 3");
  step_.step().nodes[2].accesses.push_back(step_.write(a));
  EXPECT_EQ(sequence({{b, 1, 1}}), "0 1 2 3"); // an input is written over
}

// A repetition that others were to need is not left behind.
TEST_F(Sequence, repeatsNothingInVain) {
  const BufferIndex x = step_.buffer("x", StepBuilder::liveInOut), a = step_.buffer("a"), b = step_.buffer("b");
  step_.pure("make a", {step_.write(a)});
  step_.pure("make b", {step_.read(a), step_.read(x), step_.write(b)});
  step_.impure("update", {step_.update(x)});
  step_.impure("read b", {step_.read(b)});
  EXPECT_EQ(sequence({{b, 1, 1}}), "0 1 2 3");
}

TEST_F(Sequence, readsWhatIsThereBefore) {
  const BufferIndex x = step_.buffer("x", StepBuilder::liveInOut), a = step_.buffer("a"), b = step_.buffer("b");
  step_.pure("make", {step_.read(x), step_.write(a)});
  step_.impure("other", {step_.write(b)});
  step_.impure("read", {step_.read(a)});
  EXPECT_EQ(sequence({{a, 0, 0}}), "0 1 0' 2");
  step_.step().nodes[1].accesses.push_back(step_.update(x));
  EXPECT_EQ(sequence({{a, 0, 0}}), "0 1 2");
}

TEST_F(Sequence, writesOverNothingThatIsNeeded) {
  const BufferIndex a = step_.buffer("a"), b = step_.buffer("b");
  step_.pure("make both", {step_.write(a), step_.write(b)});
  step_.impure("read a", {step_.read(a)});
  step_.pure("make b", {step_.write(b)});
  step_.impure("read a", {step_.read(a)});
  step_.impure("read b", {step_.read(b)});
  EXPECT_EQ(sequence({{a, 0, 1}}), "0 1 2 3 4");
  EXPECT_EQ(sequence({{a, 0, 1}, {b, 2, 2}}), "0 1 2 0' 3 2' 4"); // given up as well, it is no hindrance
}

TEST_F(Sequence, findsWhatHasNoValueInAnyState) {
  const BufferIndex a = step_.buffer("a"), w = step_.buffer("workspace"), b = step_.buffer("b");
  step_.unordered();
  step_.pure("make", {step_.update(w), step_.write(a)});
  step_.impure("other", {step_.write(w), step_.write(b)});
  step_.impure("read", {step_.read(a)});
  EXPECT_EQ(sequence({{a, 0, 0}}), "0 1 0' 2");
}

TEST_F(Sequence, endsWhereRepetitionsUndoOneAnother) {
  // Each level needs two values of the level below, which share their memory.
  constexpr int levels = 24;
  std::vector<BufferIndex> buffers;
  for (int level = 0; level <= levels; ++level)
    buffers.push_back(step_.buffer("level"));
  const BufferIndex shared = step_.buffer("shared"), last = step_.buffer("last");
  step_.pure("first", {step_.write(buffers[0])});
  std::vector<Drop> drops;
  for (int level = 0; level < levels; ++level) {
    step_.pure("half", {step_.read(buffers[level]), step_.write(shared)});
    step_.pure("whole", {step_.read(buffers[level]), step_.update(shared), step_.write(buffers[level + 1])});
  }
  step_.impure("other", {step_.write(last)});
  const NodeIndex maker = 2 * levels;
  step_.impure("read", {step_.read(buffers[levels])});
  EXPECT_NE(sequence({{buffers[levels], maker, maker}}), "");
}

} // namespace
} // namespace pumpgraph::test
