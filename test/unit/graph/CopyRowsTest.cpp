// SPDX-License-Identifier: Apache-2.0
#include "pumpgraph/graph/CopyRows.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace pumpgraph {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr std::uint64_t page = 4096, bytes = 1024, apart = 8192;

/// A node, `rows` copies to the host of as many buffers, all but the first joined, and a node that waits for the last.
class CopyRowsTest : public testing::Test {
protected:
  void build(std::size_t rows) {
    step_.pageBytes = page;
    step_.nodes.resize(rows + 2);
    for (NodeIndex row = 1; row <= rows; ++row) {
      Buffer &buffer = step_.buffers.emplace_back();
      buffer.size = bytes;
      buffer.isPrivate = true;
      buffer.frames = {static_cast<std::int32_t>(row)};
      Node &copy = step_.nodes[row];
      copy.kind = NodeKind::CopyToHost;
      copy.buffer = row - 1;
      copy.range = {0, bytes};
      copy.hostOffset = row * apart;
      copy.joined = row > 1;
    }
    for (NodeIndex node = 0; node <= rows; ++node)
      step_.edges.push_back({node, node + 1});
  }

  std::string fault() const {
    const JoinedCopies joined(step_);
    return joined.all().size() == 1 ? joined.faultOf(joined.all()[0]) : "not one copy";
  }
  /// The numbers of rows of the copies that are left.
  std::vector<std::size_t> kept() {
    keepPossibleRows(step_);
    const JoinedCopies joined(step_);
    std::vector<std::size_t> rows;
    for (const CopyRows &copy : joined.all()) {
      EXPECT_EQ(joined.faultOf(copy), "");
      rows.push_back(copy.size());
    }
    return rows;
  }

  Description step_;
};

TEST_F(CopyRowsTest, AreInTheOrderOfTheirPlaces) {
  build(3);
  std::swap(step_.nodes[1].hostOffset, step_.nodes[3].hostOffset);
  const JoinedCopies joined(step_);
  ASSERT_EQ(joined.all().size(), 1u);
  EXPECT_EQ(joined.faultOf(joined.all()[0]), "");
  EXPECT_THAT(joined.inHostOrder(joined.all()[0]), ElementsAre(3, 2, 1));
  EXPECT_EQ(joined.hostDistance(joined.all()[0]), apart);
}

TEST_F(CopyRowsTest, EachDirectionHasItsOwn) {
  build(4);
  step_.nodes[3].kind = step_.nodes[4].kind = NodeKind::CopyToDevice;
  step_.nodes[3].joined = false;
  const JoinedCopies joined(step_);
  EXPECT_THAT(joined.all(), ElementsAre(ElementsAre(1, 2), ElementsAre(3, 4)));
}

TEST_F(CopyRowsTest, TheFirstOfADirectionJoinsNothing) {
  build(2);
  step_.nodes[1].joined = true;
  step_.nodes[2].joined = false;
  EXPECT_THAT(fault(), HasSubstr("none before it"));
  EXPECT_THAT(kept(), IsEmpty());
  EXPECT_FALSE(step_.nodes[1].joined);
}

TEST_F(CopyRowsTest, OfDifferentSizesAreApart) {
  build(3);
  step_.nodes[2].range.size = 512;
  EXPECT_THAT(fault(), HasSubstr("node 2 has 512 bytes, node 1 1024"));
  EXPECT_THAT(kept(), IsEmpty());
}

TEST_F(CopyRowsTest, OfOneFrameAreApart) {
  build(3);
  step_.buffers[2].frames[0] = step_.buffers[1].frames[0];
  EXPECT_THAT(fault(), HasSubstr("no frame of its own"));
  EXPECT_THAT(kept(), ElementsAre(2));
}

TEST_F(CopyRowsTest, ThatOneOfThemWaitsForOthersAreApart) {
  build(3);
  step_.edges.push_back({0, 2});
  EXPECT_THAT(fault(), HasSubstr("node 2 waits for others"));
  EXPECT_THAT(kept(), ElementsAre(2)); // the second and the third
}

TEST_F(CopyRowsTest, ThatOthersWaitForOneOfThemAreApart) {
  build(3);
  step_.edges.push_back({2, 4});
  EXPECT_THAT(fault(), HasSubstr("others than node 3 wait for node 2"));
  EXPECT_THAT(kept(), ElementsAre(2)); // the first and the second, which may be the last
}

TEST_F(CopyRowsTest, WithoutAnEdgeAreApart) {
  build(2);
  std::erase(step_.edges, Edge{1, 2});
  EXPECT_THAT(fault(), HasSubstr("waits for others"));
  step_.edges.push_back({1, 2, EdgeKind::Programmatic});
  EXPECT_THAT(fault(), HasSubstr("waits for others"));
}

TEST_F(CopyRowsTest, AtUnevenDistancesAreApart) {
  build(4);
  step_.nodes[3].hostOffset += 512;
  EXPECT_THAT(fault(), HasSubstr("node 3 is 8704 bytes behind node 2"));
  EXPECT_THAT(kept(), ElementsAre(2, 2));
}

TEST_F(CopyRowsTest, ThatOverlapOrLieTooFarApartAreApart) {
  build(2);
  step_.nodes[2].hostOffset = step_.nodes[1].hostOffset + bytes - 1;
  EXPECT_THAT(fault(), HasSubstr("1023 bytes behind"));
  step_.nodes[2].hostOffset = step_.nodes[1].hostOffset + (std::uint64_t{1} << 31);
  EXPECT_THAT(fault(), HasSubstr("2147483648 bytes behind"));
  step_.nodes[2].hostOffset -= 1;
  EXPECT_EQ(fault(), "");
}

TEST_F(CopyRowsTest, AreSixteenAtMost) {
  build(18);
  EXPECT_THAT(fault(), HasSubstr("18 rows are more than 16"));
  EXPECT_THAT(kept(), ElementsAre(16, 2));
}

TEST_F(CopyRowsTest, ThatAreHostedAtAnotherAddressAreApart) {
  build(3);
  Buffer &continued = step_.buffers.emplace_back(step_.buffers[1]);
  continued.frames = {noFrame};
  continued.hosted = {{0, bytes}};
  continued.continues = 1;
  EXPECT_THAT(fault(), HasSubstr("hosted at another address"));
  EXPECT_THAT(kept(), IsEmpty());
}

} // namespace
} // namespace pumpgraph
