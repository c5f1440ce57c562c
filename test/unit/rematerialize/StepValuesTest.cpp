// SPDX-License-Identifier: Apache-2.0
#include "passes/rematerialize/StepValues.h"

#include "test/unit/rematerialize/PureStep.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace pumpgraph::test {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

TEST(StepValues, beginWithEachWrite) {
  PureStep step;
  const BufferIndex a = step.buffer("a");
  step.pure("make", {step.write(a)});
  step.pure("read", {step.read(a)});
  step.pure("overwrite", {step.write(a)});
  step.pure("read", {step.read(a)});
  const StepValues values(step.step());
  const Value &first = values.values()[valueIn(values, a, 0)], &second = values.values()[valueIn(values, a, 2)];
  EXPECT_THAT(first.readers, ElementsAre(1));
  EXPECT_THAT(second.readers, ElementsAre(3));
  EXPECT_THAT(values.values()[valueIn(values, a, noMaker)].readers, IsEmpty());
  EXPECT_THAT(values.results(0), ElementsAre(valueIn(values, a, 0)));
  EXPECT_THAT(values.operands(3), ElementsAre(valueIn(values, a, 2)));
  EXPECT_EQ(values.bytes(valueIn(values, a, 0)), 4U);
}

TEST(StepValues, areFoundByNodesThatMayLeaveBytesAsTheyWere) {
  PureStep step;
  const BufferIndex a = step.buffer("a");
  step.pure("make", {step.write(a)});
  step.pure("update", {step.update(a)});
  step.pure("perhaps", {step.mayWrite(a)});
  const StepValues values(step.step());
  EXPECT_THAT(values.operands(1), ElementsAre(valueIn(values, a, 0)));
  EXPECT_THAT(values.operands(2), ElementsAre(valueIn(values, a, 1)));
  EXPECT_THAT(values.results(2), ElementsAre(valueIn(values, a, 2)));
}

TEST(StepValues, areOfAtoms) {
  PureStep step;
  const BufferIndex a = step.buffer("a", {0, 0});
  step.pure("make", {step.write(a)});
  step.pure("part", {{a, {2, 4}, modeWrite, modeWrite}});
  step.pure("read", {step.read(a)});
  const StepValues values(step.step());
  ASSERT_EQ(values.atoms().size(), 3U);
  EXPECT_EQ(values.results(0).size(), 3U);
  EXPECT_EQ(values.results(1).size(), 1U);
  ASSERT_EQ(values.operands(2).size(), 3U);
  EXPECT_EQ(values.values()[values.operands(2)[0]].maker, 0U);
  EXPECT_EQ(values.values()[values.operands(2)[1]].maker, 1U);
  EXPECT_EQ(values.values()[values.operands(2)[2]].maker, 0U);
}

TEST(StepValues, countWhatWasObservedAsAnything) {
  PureStep step;
  const BufferIndex a = step.buffer("a");
  step.pure("make", {step.write(a)});
  Access seen = step.write(a);
  seen.evidence = Evidence::Observed;
  step.pure("seen", {seen});
  const StepValues values(step.step());
  EXPECT_THAT(values.operands(1), ElementsAre(valueIn(values, a, 0)));
}

TEST(StepValues, outliveTheStepIfTheyAreTheLastOfLiveBuffers) {
  PureStep step;
  const BufferIndex x = step.buffer("x", StepBuilder::liveInOut), a = step.buffer("a");
  step.pure("make", {step.write(a)});
  step.pure("update", {step.update(x)});
  const StepValues values(step.step());
  EXPECT_FALSE(values.values()[valueIn(values, x, noMaker)].outlives);
  EXPECT_TRUE(values.values()[valueIn(values, x, 1)].outlives);
  EXPECT_FALSE(values.values()[valueIn(values, a, 0)].outlives);
}

TEST(StepValues, sayWhichNodesMayRunAgain) {
  PureStep step;
  const BufferIndex x = step.buffer("x", StepBuilder::liveInOut), a = step.buffer("a"),
                    out = step.buffer("out", StepBuilder::liveOut), outside = step.exclusive("outside", {0});
  const NodeIndex reads = step.pure("reads", {step.read(x), step.read(outside), step.write(a)});
  const NodeIndex impure = step.impure("impure", {step.write(a)});
  const NodeIndex lasting = step.pure("lasting", {step.write(a), step.write(out)});
  const NodeIndex exclusive = step.pure("exclusive", {step.write(a), step.write(outside)});
  const NodeIndex host = step.pure("host", {step.write(a)});
  step.step().nodes[host].kind = NodeKind::Host;
  const StepValues values(step.step());
  EXPECT_TRUE(values.mayRunAgain(reads));
  EXPECT_FALSE(values.mayRunAgain(impure));
  EXPECT_FALSE(values.mayRunAgain(lasting));
  EXPECT_FALSE(values.mayRunAgain(exclusive));
  EXPECT_FALSE(values.mayRunAgain(host));
}

} // namespace
} // namespace pumpgraph::test
