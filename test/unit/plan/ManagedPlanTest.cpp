// SPDX-License-Identifier: Apache-2.0
// The planner for managed memory: a page has one copy, so what leaves clean on virtual memory crosses the link there.
#include "passes/analysis/Prediction.h"
#include "passes/check/CheckResidency.h"
#include "passes/lower/LowerManaged.h"
#include "passes/lower/PredictManaged.h"
#include "passes/plan/PlanResidency.h"
#include "test/unit/analysis/SmallStep.h"
#include "test/unit/plan/RegularStep.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <vector>

namespace pumpgraph {
namespace {

using test::SmallStep;

Machine managedMachine() {
  Machine machine;
  machine.upBytesPerSecond = 50e9;
  machine.downBytesPerSecond = 14e9;
  machine.bothBytesPerSecond = 32e9;
  machine.copyOverheadUs = 120;
  return machine;
}

class ManagedPlanTest : public testing::Test {
protected:
  Description plan(const Description &step, std::uint64_t pages, Backend backend, const Machine &machine) {
    PlanOptions options;
    options.budgetBytes = pages * step.pageBytes;
    options.machine = machine;
    options.backend = backend;
    const auto planned = planResidency(step, options);
    EXPECT_TRUE(planned);
    if (!planned)
      return {};
    EXPECT_TRUE(checkResidency(planned->description).empty()) << checkResidency(planned->description)[0].message;
    return planned->description;
  }

  Prediction lowered(const Description &step, const Description &planned, Backend backend, const Machine &machine) {
    const Description lowered =
        lowerManaged(step, planned, {.machine = machine, .mayDiscard = backend == Backend::Managed});
    EXPECT_TRUE(checkManaged(lowered).empty());
    return predictManaged(lowered, machine);
  }

  /// Names of the buffers that the plan brings back.
  std::set<std::string> cameBack(const Description &planned) {
    std::set<std::string> names;
    for (const Node &node : planned.nodes)
      if (node.kind == NodeKind::Prefetch)
        names.insert(planned.buffers[node.buffer].name);
    return names;
  }

  SmallStep small_;
};

// Twice there is no room for all. The weight has to leave the first time; its host copy would be good the second time,
// so that virtual memory sends it again. Where that costs a copy down, a smaller buffer is better.
TEST_F(ManagedPlanTest, whatIsCleanDoesNotLeaveForNothing) {
  const BufferIndex w = small_.live("weight", 2), y = small_.local("y", 2), t = small_.local("t", 4),
                    u = small_.local("u", 2);
  small_.step.buffers[y].size = 3 * test::smallPage / 2;
  small_.kernel("reads weight", 1, {small_.read(w)});
  small_.kernel("fills all", 1, {small_.write(t)});
  small_.kernel("makes y", 1, {small_.read(w), small_.write(y)});
  small_.kernel("needs room", 1, {small_.write(u)});
  small_.kernel("reads weight again", 1, {small_.read(w)});
  small_.kernel("reads y", 1, {small_.read(y)});
  small_.kernel("updates weight", 1, {small_.update(w)});
  Machine machine = test::smallMachine();
  machine.downBytesPerSecond /= 4;
  const Description forVirtual = plan(small_.step, 4, Backend::Virtual, machine);
  const Description forManaged = plan(small_.step, 4, Backend::Managed, machine);
  EXPECT_EQ(cameBack(forVirtual), std::set<std::string>{"weight"});
  EXPECT_EQ(cameBack(forManaged), (std::set<std::string>{"weight", "y"}));
  EXPECT_LT(lowered(small_.step, forManaged, Backend::Managed, machine).totalUs,
            lowered(small_.step, forVirtual, Backend::Managed, machine).totalUs);
}

// But what is only read is read mostly, and does.
TEST_F(ManagedPlanTest, whatIsOnlyReadLeavesForNothing) {
  const BufferIndex v = small_.live("v", 2), w = small_.live("w", 2);
  for (int i = 0; i < 2; ++i) {
    small_.kernel("reads v", 10, {small_.read(v)});
    small_.kernel("reads w", 10, {small_.read(w)});
  }
  const Machine machine = test::smallMachine();
  const Description planned = plan(small_.step, 3, Backend::Managed, machine);
  EXPECT_EQ(statsOf(planned).downBytes, 0U);
  EXPECT_EQ(lowered(small_.step, planned, Backend::Managed, machine).downBytes, 0U);
}

TEST_F(ManagedPlanTest, keepsHostCopiesOfWhatIsOnlyRead) {
  const BufferIndex v = small_.live("v", 1), w = small_.live("w", 1);
  small_.kernel("k", 10, {small_.read(v), small_.mayUse(w)});
  EXPECT_EQ(keepHostCopies(small_.step, Backend::Virtual), (std::vector<bool>{true, true}));
  EXPECT_EQ(keepHostCopies(small_.step, Backend::Managed), (std::vector<bool>{true, false}));
  EXPECT_EQ(keepHostCopies(small_.step, Backend::ManagedUnknown), (std::vector<bool>{false, false}));
}

// Where nobody knows what is dead, all that leaves goes down and comes up again, and the plan counts on it.
TEST_F(ManagedPlanTest, countsOnWhatCannotBeDiscarded) {
  const Description step = test::regularStep({.layers = 12});
  const std::uint64_t pages = planResidency(step, {})->stats.peakPagesBefore * 6 / 10;
  const Machine machine = managedMachine();
  const Description forVirtual = plan(step, pages, Backend::Virtual, machine);
  const Description forUnknown = plan(step, pages, Backend::ManagedUnknown, machine);
  const Prediction prediction = lowered(step, forUnknown, Backend::ManagedUnknown, machine);
  EXPECT_EQ(statsOf(forUnknown).downBytes, prediction.downBytes);
  EXPECT_EQ(statsOf(forUnknown).upBytes, prediction.upBytes);
  EXPECT_LT(prediction.totalUs, 0.9 * lowered(step, forVirtual, Backend::ManagedUnknown, machine).totalUs);
}

/// Sizes of the step's operations of that kind, in pages, largest first.
std::vector<std::uint64_t> sizesOf(const Description &lowered, NodeKind kind) {
  std::vector<std::uint64_t> sizes;
  for (const Node &node : lowered.nodes)
    if (node.kind == kind)
      sizes.push_back(node.range.size / lowered.pageBytes);
  std::sort(sizes.rbegin(), sizes.rend());
  return sizes;
}

// Two buffers of 64 MiB take turns. What is only read is dropped at once and comes at once. What is written leaves in
// pieces, for which prefetches need not wait so long, unless an operation costs more than that saves.
TEST_F(ManagedPlanTest, operationsAreAsLargeAsPays) {
  small_.step.pageBytes = std::uint64_t{2} << 20;
  const BufferIndex v = small_.live("v", 0), w = small_.live("w", 0);
  for (const BufferIndex buffer : {v, w})
    small_.step.buffers[buffer].size = 32 * small_.step.pageBytes;
  small_.kernel("reads v", 10, {small_.read(v)});
  small_.kernel("reads w", 10, {small_.read(w)});
  Machine machine = managedMachine();
  const auto lower = [&] {
    return lowerManaged(small_.step, plan(small_.step, 32, Backend::Managed, machine), {.machine = machine});
  };
  const Description onlyRead = lower();
  EXPECT_EQ(sizesOf(onlyRead, NodeKind::Evict), (std::vector<std::uint64_t>{32, 32}));
  EXPECT_EQ(sizesOf(onlyRead, NodeKind::Prefetch), (std::vector<std::uint64_t>{32, 32}));
  small_.step.nodes[0].accesses = {small_.update(v)};
  small_.step.nodes[1].accesses = {small_.update(w)};
  EXPECT_EQ(sizesOf(lower(), NodeKind::Evict), (std::vector<std::uint64_t>{32, 32}));
  machine.copyOverheadUs = 0;
  EXPECT_GT(sizesOf(lower(), NodeKind::Evict).size(), 2U);
}

// With room for all that is alive nothing moves, whatever is known.
TEST_F(ManagedPlanTest, movesNothingWhereEverythingFits) {
  const Description step = test::regularStep({.layers = 4});
  const std::uint64_t pages = planResidency(step, {})->stats.peakPagesBefore;
  for (const Backend backend : {Backend::Managed, Backend::ManagedUnknown})
    EXPECT_EQ(plan(step, pages, backend, managedMachine()).nodes.size(), step.nodes.size());
}

// What the planner reckons is what the operations take, but for what leaves after the last node, for which the next
// replay need not wait.
TEST_F(ManagedPlanTest, reckonsWhatTheOperationsTake) {
  const Machine machine = managedMachine();
  for (const double kernelUs : {400.0, 2000.0})
    for (const Backend backend : {Backend::Managed, Backend::ManagedUnknown})
      for (const std::uint64_t percent : {60, 40}) {
        const Description step = test::regularStep({.layers = 16, .kernelUs = kernelUs});
        const std::uint64_t pages = planResidency(step, {})->stats.peakPagesBefore * percent / 100;
        const Description planned = plan(step, pages, backend, machine);
        const double plannedUs = predict(planned, machine).totalUs;
        EXPECT_NEAR(lowered(step, planned, backend, machine).totalUs / plannedUs, 1, 0.05)
            << kernelUs << " us, " << percent << " %";
      }
}

} // namespace
} // namespace pumpgraph
