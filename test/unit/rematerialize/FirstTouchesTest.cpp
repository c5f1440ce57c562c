// SPDX-License-Identifier: Apache-2.0
#include "passes/rematerialize/FirstTouches.h"

#include "test/unit/rematerialize/PureStep.h"

#include <gtest/gtest.h>

namespace pumpgraph::test {
namespace {

bool isClaimed(const Description &step, NodeIndex node, std::size_t access = 0) {
  const Access &claimed = step.nodes[node].accesses[access];
  return claimed.evidence == Evidence::Allocated && claimed.must == modeWrite && (claimed.may & modeWrite) != 0;
}

class FirstTouches : public testing::Test {
protected:
  /// Whether the first access of the node is.
  bool claims(NodeIndex node) {
    Description step = step_.step();
    claimFirstTouches(step);
    return isClaimed(step, node);
  }
  PureStep step_;
};

TEST_F(FirstTouches, overwrite) {
  const BufferIndex a = step_.buffer("a");
  const NodeIndex first = step_.pure("first", {step_.update(a)});
  const NodeIndex second = step_.pure("second", {step_.update(a)});
  EXPECT_TRUE(claims(first));
  EXPECT_FALSE(claims(second));
}

TEST_F(FirstTouches, overwriteSomeBytes) {
  const BufferIndex a = step_.buffer("a");
  const NodeIndex first = step_.pure("first", {{a, {0, 2}, modeReadWrite, modeNone}});
  const NodeIndex second = step_.pure("second", {{a, {2, 2}, modeReadWrite, modeNone}});
  const NodeIndex both = step_.pure("both", {step_.update(a)});
  EXPECT_TRUE(claims(first));
  EXPECT_TRUE(claims(second));
  EXPECT_FALSE(claims(both));
}

TEST_F(FirstTouches, areOfAllBytesOrNone) {
  const BufferIndex a = step_.buffer("a");
  step_.pure("first", {{a, {0, 2}, modeReadWrite, modeNone}});
  EXPECT_FALSE(claims(step_.pure("both", {step_.update(a)})));
}

TEST_F(FirstTouches, areNotOfWhatIsThereBefore) {
  const BufferIndex x = step_.buffer("x", StepBuilder::liveInOut);
  EXPECT_FALSE(claims(step_.pure("first", {step_.update(x)})));
}

TEST_F(FirstTouches, areNotOfReaders) {
  const BufferIndex a = step_.buffer("a");
  EXPECT_FALSE(claims(step_.pure("first", {step_.access(a, modeRead, modeRead)})));
}

TEST_F(FirstTouches, comeBeforeAllOthers) {
  const BufferIndex a = step_.buffer("a");
  step_.unordered();
  const NodeIndex left = step_.pure("left", {step_.update(a)});
  const NodeIndex right = step_.pure("right", {step_.read(a)});
  EXPECT_FALSE(claims(left));
  step_.edge(left, right, EdgeKind::Programmatic); // which the program itself relies on
  EXPECT_TRUE(claims(left));
}

TEST_F(FirstTouches, leaveWhatIsKnownToOverwrite) {
  const BufferIndex a = step_.buffer("a");
  EXPECT_FALSE(claims(step_.pure("first", {step_.write(a)}))); // the evidence that it has is better
}

TEST_F(FirstTouches, areClaimedOfWhatWasObserved) {
  const BufferIndex a = step_.buffer("a");
  Access seen = step_.read(a);
  seen.evidence = Evidence::Observed;
  EXPECT_TRUE(claims(step_.pure("seen", {seen})));
}

} // namespace
} // namespace pumpgraph::test
