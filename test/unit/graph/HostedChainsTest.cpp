// SPDX-License-Identifier: Apache-2.0
#include "pumpgraph/graph/HostedChains.h"

#include <gtest/gtest.h>

namespace pumpgraph {
namespace {

using Ranges = std::vector<Range>;

/// Of 40 bytes each. The first one is hosted alone; of the chain 1, 2, 4 the first two are, and share a part; 3 and 5
/// are a chain without hosted pages.
std::vector<Buffer> buffers() {
  std::vector<Buffer> buffers(6);
  for (Buffer &buffer : buffers)
    buffer.size = 40;
  buffers[2].continues = 1;
  buffers[4].continues = 2;
  buffers[5].continues = 3;
  buffers[0].hosted = {{0, 40}};
  buffers[1].hosted = {{4, 8}};
  buffers[2].hosted = {{8, 8}, {20, 4}};
  return buffers;
}

TEST(HostedChains, AreCutWhereSomebodyBeginsOrEnds) {
  const HostedChains chains(buffers());
  for (const BufferIndex buffer : {1U, 2U, 4U})
    EXPECT_EQ(chains.of(buffer), (Ranges{{4, 4}, {8, 4}, {12, 4}, {20, 4}})) << buffer;
  for (const BufferIndex buffer : {0U, 3U, 5U})
    EXPECT_EQ(chains.of(buffer), Ranges()) << buffer;
}

TEST(HostedChains, NameTheFirstWhoHostsAPage) {
  const HostedChains chains(buffers());
  const auto at = [&](std::uint64_t offset) { return chains.at(4, offset); };
  EXPECT_EQ(at(3), noBuffer);
  EXPECT_EQ(at(4), 1U);
  EXPECT_EQ(at(8), 1U);
  EXPECT_EQ(at(12), 2U);
  EXPECT_EQ(at(16), noBuffer);
  EXPECT_EQ(at(23), 2U);
  EXPECT_EQ(chains.at(0, 0), noBuffer) << "it has one address";
}

TEST(HostedChains, CutRangesWhereAnotherHostsThem) {
  const HostedChains chains(buffers());
  EXPECT_EQ(chains.alike(4, {0, 40}), (Ranges{{0, 4}, {4, 8}, {12, 4}, {16, 4}, {20, 4}, {24, 16}}));
  EXPECT_EQ(chains.alike(4, {8, 4}), (Ranges{{8, 4}}));
  EXPECT_EQ(chains.alike(4, {16, 8}), (Ranges{{16, 4}, {20, 4}}));
  EXPECT_EQ(chains.alike(4, {0, 4}), (Ranges{{0, 4}}));
  EXPECT_EQ(chains.alike(3, {4, 20}), (Ranges{{4, 20}}));
}

} // namespace
} // namespace pumpgraph
