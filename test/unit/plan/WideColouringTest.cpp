// SPDX-License-Identifier: Apache-2.0
#include "passes/plan/search/WideColouring.h"

#include "passes/analysis/HostedAccess.h"
#include "passes/check/CheckResidency.h"
#include "passes/lower/LowerVirtual.h"
#include "passes/plan/PlanResidency.h"
#include "test/unit/plan/PairwiseStep.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <ctime>
#include <optional>
#include <set>
#include <vector>

namespace pumpgraph {
namespace {

using test::pairwiseStep;
using test::smallMachine;
using test::smallPage;
using test::SmallStep;

/// Pages hosted so that all others find frames; -1 if they do not. Looks whether those of every node are different
/// ones.
std::int64_t hostedPages(const SmallStep &small, std::uint64_t frames) {
  Description step = small.step;
  const Timeline timeline(step);
  Effort effort;
  const std::optional<WideColouring> colouring = hostForColouring(step, timeline, frames, smallMachine(), effort);
  if (!colouring)
    return -1;
  for (const Node &node : step.nodes) {
    std::set<std::int32_t> taken;
    for (const Access &access : node.accesses) {
      const std::vector<std::int32_t> &homes = colouring->frames[access.buffer];
      const auto hosted = static_cast<std::int64_t>(hostedBytesOf(step.buffers[access.buffer]) / smallPage);
      EXPECT_EQ(std::count(homes.begin(), homes.end(), noFrame), hosted) << node.name;
      for (const std::int32_t frame : homes) {
        EXPECT_LT(frame, static_cast<std::int64_t>(frames)) << node.name;
        EXPECT_TRUE(frame == noFrame || taken.insert(frame).second) << node.name << " has frame " << frame << " twice";
      }
    }
  }
  return static_cast<std::int64_t>(hostedBytes(step) / smallPage);
}

TEST(HostForColouring, HostsNothingWhereAllFit) {
  SmallStep small;
  const BufferIndex a = small.local("a", 4), b = small.local("b", 4), c = small.local("c", 4);
  small.kernel("ab", 1, {small.write(a), small.write(b)});
  small.kernel("bc", 1, {small.read(b), small.write(c)});
  EXPECT_EQ(hostedPages(small, 8), 0);
}

// No node is too wide, but each buffer meets both others.
TEST(HostForColouring, HostsWhatACliqueHasTooMuchOf) {
  const SmallStep small = pairwiseStep(4);
  EXPECT_EQ(hostedPages(small, 12), 0);
  EXPECT_EQ(hostedPages(small, 10), 2);
  EXPECT_EQ(hostedPages(small, 8), 4);
}

/// Each buffer meets the next, and the last the first; `pagesInAll` of one more meet all of them.
SmallStep ringStep(const std::vector<std::uint64_t> &pages, std::uint64_t pagesInAll = 0) {
  SmallStep small;
  std::vector<BufferIndex> ring;
  for (std::size_t i = 0; i < pages.size(); ++i)
    ring.push_back(small.local("ring", pages[i]));
  std::vector<BufferIndex> inAll;
  if (pagesInAll > 0)
    inAll.push_back(small.local("hub", pagesInAll));
  for (std::size_t i = 0; i < ring.size(); ++i) {
    std::vector<Access> accesses{small.write(ring[i]), small.write(ring[(i + 1) % ring.size()])};
    for (const BufferIndex hub : inAll)
      accesses.push_back(small.write(hub));
    small.kernel("k", 1, accesses);
  }
  return small;
}

// No three of these meet each other, and yet two colours are too few: a frame serves at most two of the five.
TEST(HostForColouring, HostsNoMoreOfARingThanItMust) {
  EXPECT_EQ(hostedPages(ringStep({1, 1, 1, 1, 1}), 3), 0);
  EXPECT_EQ(hostedPages(ringStep({1, 1, 1, 1, 1}), 2), 1);
  EXPECT_EQ(hostedPages(ringStep({4, 4, 4, 4, 4}), 10), 0);
  EXPECT_EQ(hostedPages(ringStep({4, 4, 4, 4, 4}), 9), 2);
  EXPECT_EQ(hostedPages(ringStep({4, 4, 4, 4, 4}), 8), 4);
}

// As where V-Net's last decoder runs forward and backward under a quarter of its peak.
TEST(HostForColouring, HostsNoMoreOfAnUnevenRing) {
  const std::vector<std::uint64_t> pages{512, 1025, 512, 512, 1024};
  EXPECT_EQ(hostedPages(ringStep(pages), 1793), 0);
  EXPECT_EQ(hostedPages(ringStep(pages), 1733), 3585 - 2 * 1733);
}

TEST(HostForColouring, WhatMeetsAllOfARingSharesItsFramesWithNobody) {
  EXPECT_EQ(hostedPages(ringStep({4, 4, 4, 4, 4}, 3), 13), 0);
  EXPECT_EQ(hostedPages(ringStep({4, 4, 4, 4, 4}, 3), 12), 2);
}

// Whatever is hosted on the way, all other pages get frames, and those of a node different ones.
TEST(HostForColouring, FindsFramesForRandomSteps) {
  std::uint32_t state = 1;
  const auto any = [&](std::uint32_t count) {
    state = state * 1664525 + 1013904223;
    return (state >> 8) % count;
  };
  std::int64_t hosted = 0;
  for (int step = 0; step < 300; ++step) {
    SmallStep small;
    std::vector<BufferIndex> buffers;
    for (int i = 0; i < 12; ++i)
      buffers.push_back(small.local("b", 1 + any(4)));
    for (int i = 0; i < 30; ++i) {
      const std::uint32_t first = any(10);
      std::vector<Access> accesses{small.write(buffers[first]), small.read(buffers[first + 1 + any(2)])};
      if (any(3) == 0)
        accesses.push_back(small.read(buffers[(first + 5) % 12]));
      small.kernel("k", 1, accesses);
    }
    for (const std::uint64_t frames : {6, 8, 10}) {
      const std::int64_t pages = hostedPages(small, frames);
      EXPECT_GE(pages, 0) << "step " << step << ", " << frames << " frames";
      hosted += pages;
    }
  }
  std::printf("%lld pages hosted\n", static_cast<long long>(hosted));
}

TEST(HostForColouring, OperandsOfCopiesMayMakeItImpossible) {
  SmallStep small = pairwiseStep(1);
  for (Node &node : small.step.nodes)
    node.kind = NodeKind::Memcpy;
  EXPECT_EQ(hostedPages(small, 2), -1);
}

// Steps that are planned do not have so many buffers which meet without any structure. Cliques say little of what is
// missing, so that colouring goes on until it has taken too long.
TEST(HostForColouring, GivesUpAfterItsEffort) {
  SmallStep small;
  std::vector<BufferIndex> buffers;
  for (int i = 0; i < 1500; ++i)
    buffers.push_back(small.local("b", 2));
  std::uint32_t state = 1;
  const auto any = [&] {
    state = state * 1664525 + 1013904223;
    return buffers[(state >> 8) % buffers.size()];
  };
  for (int i = 0; i < 6000; ++i)
    small.kernel("k", 1, {small.mayUse(any()), small.mayUse(any()), small.mayUse(any())});
  const Timeline timeline(small.step);
  const std::clock_t begin = std::clock();
  Effort effort;
  EXPECT_FALSE(hostForColouring(small.step, timeline, 6, smallMachine(), effort));
  const double seconds = static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
  std::printf("gave up after %.2f s of processor time, effort %llu\n", seconds,
              static_cast<unsigned long long>(effort.spent()));
  EXPECT_GE(effort.spent(), Effort::most);
  EXPECT_LE(effort.spent(), Effort::most / 100 * 102) << "it is looked at too seldom";
}

/// Two nodes of three buffers each, which earlier and later nodes use in pairs, as where a network's first layers run
/// backwards.
void addTwoWideNodes(SmallStep &small) {
  const BufferIndex input = small.local("input", 6), output = small.local("output", 6), pool = small.local("pool", 6);
  const BufferIndex poolGradient = small.local("poolGradient", 6), outputGradient = small.local("outputGradient", 6);
  const BufferIndex inputGradient = small.local("inputGradient", 6), last = small.local("last", 6);
  small.kernel("convolve", 1, {small.read(input), small.write(output)});
  small.kernel("pool", 1, {small.read(output), small.write(pool)});
  small.kernel("poolBack", 1, {small.read(pool), small.write(poolGradient)});
  small.kernel("wide", 1, {small.read(poolGradient), small.read(output), small.write(outputGradient)});
  small.kernel("dataBack", 1, {small.read(outputGradient), small.write(inputGradient)});
  small.kernel("weightBack", 1, {small.read(outputGradient), small.read(input)});
  small.kernel("wideToo", 1, {small.read(inputGradient), small.read(input), small.write(last)});
}

// Two pages too many in each of five cliques, some of them in several.
TEST(HostForColouring, CliquesShareWhatIsHosted) {
  SmallStep small;
  addTwoWideNodes(small);
  const std::int64_t hosted = hostedPages(small, 16);
  EXPECT_GE(hosted, 4);
  EXPECT_LE(hosted, 6);
}

// A weight stays between the last and the first node, in frames in which wide nodes have fixed homes.
TEST(PlanHosting, WhatIsOnTheDeviceAtTheBoundaryLivesBesideWideNodes) {
  SmallStep small;
  const BufferIndex weight = small.live("weight", 2);
  small.kernel("first", 1, {small.read(weight)});
  addTwoWideNodes(small);
  small.kernel("update", 1, {small.update(weight)});
  const tl::expected<PlannedStep, PlanError> plan = planResidency(small.step, {16 * smallPage, smallMachine()});
  ASSERT_TRUE(plan) << plan.error().message;
  EXPECT_TRUE(checkResidency(plan->description).empty());
  EXPECT_GT(hostedBytes(plan->description), 0u);
  std::uint64_t fetched = 0;
  for (const Node &node : plan->description.nodes)
    fetched += node.kind == NodeKind::Prefetch && node.buffer == weight ? node.range.size : 0;
  EXPECT_EQ(fetched, 2 * smallPage);
}

TEST(PlanHosting, HostsNoMoreThanTheColouringDoes) {
  SmallStep small;
  addTwoWideNodes(small);
  for (const std::uint64_t frames : {17u, 16u, 14u, 12u, 8u}) {
    const tl::expected<PlannedStep, PlanError> plan = planResidency(small.step, {frames * smallPage, smallMachine()});
    ASSERT_TRUE(plan) << plan.error().message;
    for (const Violation &violation : checkResidency(lowerVirtual(plan->description)))
      ADD_FAILURE() << violation.message;
    EXPECT_EQ(static_cast<std::int64_t>(hostedBytes(plan->description) / smallPage), hostedPages(small, frames));
  }
}

} // namespace
} // namespace pumpgraph
