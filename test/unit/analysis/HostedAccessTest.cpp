// SPDX-License-Identifier: Apache-2.0
#include "passes/analysis/HostedAccess.h"

#include "passes/analysis/Prediction.h"
#include "passes/analysis/Timeline.h"
#include "test/unit/analysis/SmallStep.h"

#include <gtest/gtest.h>

#include <limits>
#include <utility>
#include <vector>

namespace pumpgraph {
namespace {

using test::smallMachine;
using test::smallPage;
using test::SmallStep;

TEST(HostedTraffic, CountsHostedPagesAlone) {
  SmallStep small;
  const BufferIndex a = small.local("a", 4), b = small.local("b", 4);
  small.step.buffers[a].hosted = {{smallPage, 2 * smallPage}};
  small.kernel("both", 1, {small.read(a), small.write(b)});
  small.kernel("other", 1, {small.read(b)});
  const HostedTraffic traffic = hostedTraffic(small.step);
  EXPECT_EQ(traffic.byNode[0], (Traffic{2 * smallPage, 0}));
  EXPECT_EQ(traffic.byNode[1], Traffic());
  EXPECT_EQ(traffic.byBuffer[a], (Traffic{2 * smallPage, 0}));
  EXPECT_EQ(traffic.byBuffer[b], Traffic());
}

// As everywhere else, a page that is not certainly overwritten as a whole has an old value that matters.
TEST(HostedTraffic, CountsWholePages) {
  SmallStep small;
  const BufferIndex a = small.local("a", 3);
  small.step.buffers[a].size -= 100;
  small.step.buffers[a].hosted = {{0, small.step.buffers[a].size}};
  small.kernel("overwrite", 1, {small.write(a)});
  small.kernel("overwrite half a page", 1, {{a, {0, smallPage + smallPage / 2}, modeWrite, modeWrite}});
  small.kernel("may write", 1, {small.mayUse(a)});
  small.kernel("nothing", 1, {{a, {0, smallPage}, modeNone, modeNone}});
  const std::vector<Traffic> traffic = hostedTraffic(small.step).byNode;
  const std::uint64_t all = 3 * smallPage - 100;
  EXPECT_EQ(traffic[0], (Traffic{0, all}));
  EXPECT_EQ(traffic[1], (Traffic{smallPage, 2 * smallPage}));
  EXPECT_EQ(traffic[2], (Traffic{all, all}));
  EXPECT_EQ(traffic[3], Traffic());
}

// What writes a page that has no value need not read it, and is only taken to if it says that it does.
TEST(HostedTraffic, AFirstWriteReadsNothing) {
  SmallStep small;
  const BufferIndex a = small.local("a", 2), live = small.live("live", 2), updated = small.local("updated", 2);
  for (const BufferIndex buffer : {a, live, updated})
    small.step.buffers[buffer].hosted = {{0, 2 * smallPage}};
  small.kernel("half", 1, {{a, {0, smallPage}, modeReadWrite, modeNone}});
  small.kernel("all", 1, {small.mayUse(a)});
  small.kernel("again", 1, {small.mayUse(a)});
  small.kernel("live", 1, {small.mayUse(live)});
  small.kernel("certainly", 1, {small.update(updated)});
  const std::vector<Traffic> traffic = hostedTraffic(small.step).byNode;
  EXPECT_EQ(traffic[0], (Traffic{0, smallPage}));
  EXPECT_EQ(traffic[1], (Traffic{smallPage, 2 * smallPage}));
  for (const NodeIndex node : {2, 3, 4})
    EXPECT_EQ(traffic[node], (Traffic{2 * smallPage, 2 * smallPage}));
}

// A plan may put nodes in another order, where nothing orders them. What only reads is taken to read at any time.
TEST(HostedTraffic, TheFirstWriterIsTheCapturedStepsFirst) {
  SmallStep small;
  const BufferIndex a = small.local("a", 2);
  small.step.buffers[a].hosted = {{0, 2 * smallPage}};
  small.alone("reads", 1, {small.read(a)});
  small.alone("writes second", 1, {small.mayUse(a)});
  small.alone("writes first", 1, {small.mayUse(a)});
  std::swap(small.step.nodes[1].captured, small.step.nodes[2].captured);
  const std::vector<Traffic> traffic = hostedTraffic(small.step).byNode;
  EXPECT_EQ(traffic[0], (Traffic{2 * smallPage, 0}));
  EXPECT_EQ(traffic[1], (Traffic{2 * smallPage, 2 * smallPage}));
  EXPECT_EQ(traffic[2], (Traffic{0, 2 * smallPage}));
}

// Its value was written at the other address.
TEST(HostedTraffic, WhatContinuesHasAValue) {
  SmallStep small;
  const BufferIndex a = small.local("a", 2), next = small.local("a", 2);
  small.step.buffers[next].continues = a;
  small.step.buffers[next].hosted = {{0, 2 * smallPage}};
  small.kernel("writes", 1, {small.write(a)});
  small.kernel("goes on", 1, {small.mayUse(next)});
  EXPECT_EQ(hostedTraffic(small.step).byNode[1], (Traffic{2 * smallPage, 2 * smallPage}));
}

TEST(HostedTraffic, CountsAPageOnceANode) {
  SmallStep small;
  const BufferIndex a = small.local("a", 2);
  small.step.buffers[a].hosted = {{0, 2 * smallPage}};
  small.kernel("twice", 1, {small.read(a), {a, {0, smallPage}, modeRead, modeRead}, small.write(a)});
  EXPECT_EQ(hostedTraffic(small.step).byNode[0], (Traffic{2 * smallPage, 2 * smallPage}));
}

// The bytes stay what they are; the time is that of more. Of two accesses to a page the slower one counts.
TEST(HostedTraffic, SlowAccessesWeighMore) {
  SmallStep small;
  const BufferIndex a = small.local("a", 2);
  small.step.buffers[a].hosted = {{0, 2 * smallPage}};
  const NodeIndex node = small.kernel("twice", 1, {small.read(a), {a, {0, smallPage}, modeRead, modeRead}});
  small.step.nodes[node].accesses[1].slowdown = 2.5;
  const HostedTraffic traffic = hostedTraffic(small.step);
  EXPECT_EQ(traffic.byNode[node], (Traffic{2 * smallPage, 0}));
  EXPECT_EQ(traffic.loadByNode[node], (Traffic{smallPage * 5 / 2 + smallPage, 0}));
  EXPECT_DOUBLE_EQ(predict(small.step, smallMachine()).totalUs, 1 + 3.5);
  for (Access &access : small.step.nodes[node].accesses)
    access.slowdown = 0.75;
  EXPECT_EQ(hostedTraffic(small.step).loadByNode[node], (Traffic{2 * smallPage * 3 / 4, 0})) << "or less";
}

/// Pages up and down of each stretch.
std::vector<std::pair<double, double>> stretchesOf(const SmallStep &small, NodeIndex node) {
  std::vector<std::pair<double, double>> pages;
  const std::vector<Traffic> stretches = hostedStretches(small.step)[node];
  for (const Traffic &stretch : stretches)
    pages.emplace_back(static_cast<double>(stretch.upBytes) / smallPage,
                       static_cast<double>(stretch.downBytes) / smallPage);
  return pages;
}

// Node by node, from the front of all operands to their back.
TEST(HostedStretches, WhatIsElsewhereInItsOperandIsMovedAtAnotherTime) {
  using Pages = std::vector<std::pair<double, double>>;
  SmallStep small;
  const BufferIndex in = small.live("in", 16), out = small.local("out", 32);
  const NodeIndex kernel = small.kernel("k", 1, {small.read(in), small.write(out)});
  std::vector<Range> &ofIn = small.step.buffers[in].hosted, &ofOut = small.step.buffers[out].hosted;
  EXPECT_EQ(stretchesOf(small, kernel), Pages());
  ofIn = {{0, 8 * smallPage}};
  EXPECT_EQ(stretchesOf(small, kernel), (Pages{{8, 0}}));
  ofOut = {{0, 16 * smallPage}};
  EXPECT_EQ(stretchesOf(small, kernel), (Pages{{8, 16}})) << "both are the first half";
  ofOut = {{0, 32 * smallPage}};
  EXPECT_EQ(stretchesOf(small, kernel), (Pages{{8, 16}, {0, 16}}));
  ofOut = {{16 * smallPage, 16 * smallPage}};
  EXPECT_EQ(stretchesOf(small, kernel), (Pages{{8, 0}, {0, 16}}));
  ofIn = {{0, 2 * smallPage}, {14 * smallPage, 2 * smallPage}};
  EXPECT_EQ(stretchesOf(small, kernel), (Pages{{2, 0}, {0, 12}, {2, 4}}));
  small.step.nodes[kernel].accesses[0].slowdown = 2;
  EXPECT_EQ(stretchesOf(small, kernel), (Pages{{4, 0}, {0, 12}, {4, 4}}));
  // The second half of the buffer is all of its operand.
  small.step.nodes[kernel].accesses[0] = {in, {8 * smallPage, 8 * smallPage}, modeRead, modeRead};
  ofIn = {{8 * smallPage, 4 * smallPage}};
  EXPECT_EQ(stretchesOf(small, kernel), (Pages{{4, 0}, {0, 16}}));
}

TEST(LinkUs, BothDirectionsShareTheLink) {
  EXPECT_DOUBLE_EQ(linkUs({3 * smallPage, 0}, smallMachine()), 3);
  EXPECT_DOUBLE_EQ(linkUs({0, 3 * smallPage}, smallMachine()), 3);
  EXPECT_DOUBLE_EQ(linkUs({3 * smallPage, 3 * smallPage}, smallMachine()), 4); // 1.5 pages a microsecond
  EXPECT_DOUBLE_EQ(linkUs({6 * smallPage, 3 * smallPage}, smallMachine()), 7);
}

TEST(LinkUs, KernelsMayGetLessOfBoth) {
  Machine machine = smallMachine();
  machine.hostedBothShare = 0.5;
  EXPECT_DOUBLE_EQ(linkUs({6 * smallPage, 3 * smallPage}, machine), 3 / 0.5 + 3);
  EXPECT_DOUBLE_EQ(linkUs({6 * smallPage, 0}, machine), 6);
}

TEST(LinkUs, KernelsAreSlowerThanCopies) {
  Machine machine = smallMachine();
  machine.hostedShare = 0.5;
  EXPECT_DOUBLE_EQ(linkUs({6 * smallPage, 3 * smallPage}, machine), 14);
}

TEST(HostedPages, BelongToNoPiece) {
  SmallStep small;
  const BufferIndex a = small.local("a", 6);
  const NodeIndex k = small.kernel("k", 2, {small.read(a)});
  small.step.buffers[a].hosted = {{2 * smallPage, 3 * smallPage}};
  const Timeline timeline(small.step, defaultPieceBytes, smallMachine());
  ASSERT_EQ(timeline.pieces().size(), 2u);
  EXPECT_EQ(timeline.piece(PieceIndex{0}).pageCount, 2u);
  EXPECT_EQ(timeline.piece(PieceIndex{1}).firstPage, 5u);
  EXPECT_EQ(timeline.workingSetPages(k), 3u);
  EXPECT_EQ(timeline.peakPages(), 3u);
  EXPECT_DOUBLE_EQ(timeline.times().totalUs, 5);
}

// A node with so slow accesses is predicted to take as long as it was measured to, and those to other buffers stay.
TEST(HostedTimes, GiveTheSlowdownThatExplainsThem) {
  SmallStep small;
  const BufferIndex a = small.local("a", 4), b = small.local("b", 4), other = small.local("other", 4);
  small.kernel("slow", 10, {small.read(a), small.write(b), small.read(other)});
  small.kernel("elsewhere", 10, {small.read(other)});
  small.kernel("unknown cost", std::numeric_limits<double>::quiet_NaN(), {small.read(a)});
  small.kernel("no time at all", 10, {small.read(a)});
  for (const BufferIndex buffer : {a, b})
    small.step.buffers[buffer].hosted = {{0, 4 * smallPage}};
  const std::vector<double> measuredUs = {25, 30, 7, 9};
  takeHostedTimes(small.step, measuredUs, smallMachine());
  const std::vector<Traffic> load = hostedTraffic(small.step).loadByNode;
  EXPECT_NEAR(linkUs(load[0], smallMachine()), 15, 0.01);
  EXPECT_NEAR(linkUs(load[2], smallMachine()), 7, 0.01);
  EXPECT_NEAR(linkUs(load[3], smallMachine()), 0.01 * linkUs({4 * smallPage, 0}, smallMachine()), 0.01);
  EXPECT_EQ(small.step.nodes[0].accesses[2].slowdown, 1);
  EXPECT_EQ(small.step.nodes[1].accesses[0].slowdown, 1);
}

} // namespace
} // namespace pumpgraph
