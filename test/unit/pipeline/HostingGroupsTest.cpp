// SPDX-License-Identifier: Apache-2.0
#include "passes/pipeline/HostingGroups.h"

#include "test/unit/analysis/SmallStep.h"

#include <gtest/gtest.h>

namespace pumpgraph {
namespace {

using test::smallPage;
using test::SmallStep;

std::vector<BufferIndex> buffersOf(const HostingGroup &group) {
  std::vector<BufferIndex> buffers;
  for (const BufferPart &part : group)
    buffers.push_back(part.buffer);
  return buffers;
}

TEST(HostingGroups, AreOfBuffersThatAreUsedAlike) {
  SmallStep small;
  const BufferIndex w0 = small.live("w0", 2), w1 = small.live("w1", 2), larger = small.live("larger", 3);
  const BufferIndex a = small.local("a", 2), only = small.live("only", 2), other = small.live("other", 2);
  small.kernel("k0", 1, {small.read(w1), small.write(a), small.read(larger)});
  small.kernel("k1", 1, {small.read(w0), small.read(a), small.read(only), small.read(other)});
  small.kernel("k2", 1, {small.update(w0), small.update(w1), small.update(larger)});
  const std::vector<HostingGroup> groups = groupsOfBuffers(small.step, {w0, w1, larger, a, only}, 10);
  ASSERT_EQ(groups.size(), 4U);
  EXPECT_EQ(buffersOf(groups[0]), (std::vector<BufferIndex>{w1, w0})) << "in the order of their first use";
  EXPECT_EQ(groups[0].front().range, (Range{0, 2 * smallPage}));
  EXPECT_EQ(buffersOf(groups[1]), (std::vector<BufferIndex>{larger}));
  EXPECT_EQ(buffersOf(groups[2]), (std::vector<BufferIndex>{a}));
  EXPECT_EQ(buffersOf(groups[3]), (std::vector<BufferIndex>{only})) << "`other` may not be hosted";
  EXPECT_EQ(groupsOfBuffers(small.step, {w0, w1, larger, a, only}, 2).size(), 2U);
}

BufferPart part(BufferIndex buffer, std::uint64_t first, std::uint64_t end) {
  return {buffer, {first * smallPage, (end - first) * smallPage}};
}

TEST(HostingGroups, AreHalvedUntilTheyAreSmall) {
  HostingGroups groups{{{part(0, 0, 3), part(1, 0, 3), part(2, 0, 3)}, {part(3, 0, 1)}, {part(4, 0, 6)}}, {0, 1}};
  groups = inHalves(groups, smallPage, 2 * smallPage, 100);
  EXPECT_EQ(groups.groups,
            (std::vector<HostingGroup>{
                {part(0, 0, 3), part(1, 0, 3)}, {part(2, 0, 3)}, {part(3, 0, 1)}, {part(4, 0, 3)}, {part(4, 3, 6)}}));
  EXPECT_EQ(groups.chosen, (HostedSet{0, 1, 2}));
  groups = inHalves(groups, smallPage, 2 * smallPage, 100);
  EXPECT_EQ(groups.groups.size(), 6U) << "three pages are not divided";
  EXPECT_EQ(groups.chosen, (HostedSet{0, 1, 2, 3}));
  EXPECT_EQ(inHalves(groups, smallPage, smallPage, 7).groups.size(), 7U);
  EXPECT_EQ(inHalves(groups, smallPage, smallPage, 100).groups.size(), 11U);
}

TEST(HostingGroups, PartsAreTakenFromTheFront) {
  const std::vector<HostingGroup> groups = {{part(4, 0, 2)}, {part(4, 2, 4)},
                                            {part(4, 4, 5)}, {part(0, 0, 3), part(1, 0, 3)},
                                            {part(7, 0, 1)}, {part(7, 1, 2)}};
  EXPECT_EQ(fromTheFront(groups, {}), HostedSet{});
  EXPECT_EQ(fromTheFront(groups, {2}), HostedSet{0});
  EXPECT_EQ(fromTheFront(groups, {1, 2, 3, 5}), (HostedSet{0, 1, 3, 4}));
  EXPECT_EQ(fromTheFront(groups, {0, 2, 5}), (HostedSet{0, 1, 4}));
  EXPECT_EQ(fromTheFront(groups, {0, 1, 2, 3, 4, 5}), (HostedSet{0, 1, 2, 3, 4, 5}));
}

} // namespace
} // namespace pumpgraph
