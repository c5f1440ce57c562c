// SPDX-License-Identifier: Apache-2.0
#include "passes/plan/search/SplitCandidates.h"

#include "passes/analysis/HostedAccess.h"
#include "passes/check/CheckResidency.h"
#include "passes/lower/LowerVirtual.h"
#include "passes/plan/PlanResidency.h"
#include "test/unit/analysis/SmallStep.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace pumpgraph {
namespace {

using test::smallMachine;
using test::smallPage;
using test::SmallStep;

/// Three buffers used two at a time, the first of them long ago: with one address each they need three frames a page.
SmallStep slowPairwiseStep() {
  SmallStep small;
  const BufferIndex a = small.local("a", 4), b = small.local("b", 4), c = small.local("c", 4);
  small.kernel("ab", 1, {small.write(a), small.write(b)});
  small.kernel("b", 30, {small.read(b)});
  small.kernel("bc", 1, {small.read(b), small.write(c)});
  small.kernel("c", 30, {small.read(c)});
  small.kernel("ca", 1, {small.read(c), small.read(a)});
  return small;
}

/// With buffers that could have other addresses.
Description renamable(SmallStep small) {
  for (Buffer &buffer : small.step.buffers)
    buffer.isRenamable = true;
  return std::move(small.step);
}

PlannedStep plan(const Description &step, std::uint64_t frames) {
  PlanOptions options;
  options.budgetBytes = frames * smallPage;
  options.machine = smallMachine();
  const tl::expected<PlannedStep, PlanError> planned = planResidency(step, options);
  EXPECT_TRUE(planned) << planned.error().message;
  EXPECT_TRUE(checkResidency(planned->description).empty());
  EXPECT_TRUE(checkPreserves(step, planned->description).empty());
  EXPECT_TRUE(checkResidency(lowerVirtual(planned->description)).empty());
  return *planned;
}

TEST(IdleTimes, AreThoseOfRenamableLocalsThatNeedTheirValueAfterwards) {
  SmallStep small;
  const BufferIndex a = small.local("a", 1), b = small.local("b", 1), c = small.local("c", 1);
  small.kernel("first", 10, {small.write(a), small.write(b), small.write(c)});
  small.kernel("long", 80, {});
  small.kernel("last", 10, {small.read(a), small.write(b), small.read(c)});
  Description step = renamable(small);
  step.buffers[c].isRenamable = false;
  const std::vector<Split> idle = idleTimes(step, Timeline(step), 0.5);
  ASSERT_EQ(idle.size(), 1U);
  EXPECT_EQ(idle[0].buffer, a);
  EXPECT_EQ(idle[0].until, 2U);
  EXPECT_EQ(idleTimes(step, Timeline(step), 0.79).size(), 1U);
  EXPECT_TRUE(idleTimes(step, Timeline(step), 0.81).empty());
  step.buffers[a].liveOut = true;
  EXPECT_TRUE(idleTimes(step, Timeline(step), 0.5).empty());
}

TEST(IdleTimes, AreSplitOneAfterTheOther) {
  SmallStep small;
  const BufferIndex a = small.local("a", 1);
  for (int i = 0; i < 3; ++i)
    small.kernel("k", 10, {small.update(a)});
  const Description step = renamable(small);
  const std::vector<Split> idle = idleTimes(step, Timeline(step), 0);
  ASSERT_EQ(idle.size(), 2U);
  const Description split = SplitStep(step, idle).parts();
  ASSERT_EQ(split.buffers.size(), 3U);
  EXPECT_EQ(split.buffers[1].continues, 0U);
  EXPECT_EQ(split.buffers[2].continues, 1U);
  for (BufferIndex node = 0; node < 3; ++node)
    EXPECT_EQ(split.nodes[node].accesses[0].buffer, node);
  EXPECT_TRUE(idleTimes(split, Timeline(split), 0).empty()) << "what goes on elsewhere does not do so again";
}

TEST(PlanResidency, LetsABufferGoOnElsewhereWhereOthersWouldBeHosted) {
  const Description fixed = slowPairwiseStep().step;
  EXPECT_GT(hostedBytes(plan(fixed, 8).description), 0U);
  const PlannedStep planned = plan(renamable(slowPairwiseStep()), 8);
  EXPECT_EQ(hostedBytes(planned.description), 0U);
  EXPECT_GT(planned.description.buffers.size(), 3U);
}

TEST(PlanResidency, LeavesBuffersWhereTheyAreIfAllFits) {
  const Description step = renamable(slowPairwiseStep());
  EXPECT_EQ(plan(step, 12).description.buffers.size(), 3U);
}

TEST(PlanResidency, RenamesNothingForASharedBoundaryOrManagedMemory) {
  const Description step = renamable(slowPairwiseStep());
  PlanOptions options;
  options.budgetBytes = 8 * smallPage;
  options.machine = smallMachine();
  options.backend = Backend::Managed;
  EXPECT_EQ(planResidency(step, options).value().description.buffers.size(), 3U);
}

} // namespace
} // namespace pumpgraph
