// SPDX-License-Identifier: Apache-2.0
// What a managed session learns of its link, and what it makes of it.
#include "runtime/link/ManagedLink.h"

#include "test/unit/runtime/Program.h"

#include <gtest/gtest.h>

using namespace pumpgraph::runtime;
using namespace pumpgraph::runtime::test;

namespace {

constexpr std::uint64_t largeBytes = 64 * pageBytes;
constexpr double overheadUs = 40;

/// What a move takes at so many bytes a microsecond.
double moveUs(std::uint64_t bytes, double bytesPerUs) {
  return overheadUs + static_cast<double>(bytes) / bytesPerUs;
}

ManagedLink linkWith(const std::vector<double> &downSpeeds, const MoveTimes &beside = {}) {
  MoveTimes large{.bytes = largeBytes, .upUs = {}, .downUs = {}}, small{.bytes = pageBytes, .upUs = {}, .downUs = {}};
  for (const double down : downSpeeds)
    for (MoveTimes *times : {&large, &small}) {
      times->upUs.push_back(moveUs(times->bytes, 50'000));
      times->downUs.push_back(moveUs(times->bytes, down));
    }
  return linkOf(large, small, beside, {});
}

// One slow repeat changes nothing, and one fast one only what bounds count on.
TEST(ManagedLinkTest, tellsTheTypicalFromTheBest) {
  const ManagedLink link = linkWith({10'000, 10'000, 17'000, 10'000, 4'000});
  EXPECT_EQ(link.typical.up, 50e9);
  EXPECT_EQ(link.typical.down, 10e9);
  EXPECT_EQ(link.best.up, 50e9);
  EXPECT_EQ(link.best.down, 17e9);
  EXPECT_EQ(link.bytes, largeBytes);
}

// The same speed at either size: the difference is the overhead, to which comes what the words take.
TEST(ManagedLinkTest, tellsBytesFromOverhead) {
  const ManagedLink without = linkOf({largeBytes, {1000}, {1000}}, {pageBytes, {1000. / 64}, {1000. / 64}}, {}, {});
  EXPECT_EQ(without.upOverheadUs, 1);
  EXPECT_EQ(without.downOverheadUs, 1);
  EXPECT_EQ(linkWith({10'000}).upOverheadUs, overheadUs);
  EXPECT_EQ(linkWith({10'000}).downOverheadUs, overheadUs);
}

// 128 MiB lost in 500 us and got again in 450 are 282 GB/s.
TEST(ManagedLinkTest, tellsHowFastMemoryComesAndGoesWithoutAValue) {
  const MoveTimes large{largeBytes, {1000}, {1000}}, small{pageBytes, {20}, {20}};
  EXPECT_EQ(linkOf(large, small, {}, {largeBytes, {450, 450, 9000}, {500, 500, 100}}).emptyBytesPerSecond, 290e9);
  EXPECT_EQ(linkOf(large, small, {}, {}).emptyBytesPerSecond, 0);
}

// Where each direction is used half of the time, half of each speed is left.
TEST(ManagedLinkTest, countsOnNothingFromBothDirectionsAtOnce) {
  const ManagedLink link = linkWith({10'000});
  EXPECT_EQ(link.typical.both, (link.typical.up + link.typical.down) / 2);
}

// What a move up takes beside one down says what it loses: nothing, a fifth, or all that the other one takes.
TEST(ManagedLinkTest, countsOnWhatIsLeftBesideTheOtherDirection) {
  const double aloneUs = moveUs(largeBytes / 2, 50'000);
  const auto bothWith = [&](double factor) {
    return linkWith({10'000}, {largeBytes / 2, {factor * aloneUs, factor * aloneUs, 9 * aloneUs}, {}}).typical.both;
  };
  EXPECT_EQ(bothWith(0.97), 60e9);
  EXPECT_EQ(bothWith(1.04), 60e9);
  EXPECT_EQ(bothWith(1.2), 50e9);
  EXPECT_EQ(bothWith(7), 30e9);
}

// One measured while something was in the way tells nothing that the other one does not tell better.
TEST(ManagedLinkTest, takesTheBetterOfTwo) {
  const ManagedLink fast = linkWith({40'000, 40'000, 41'000}, {largeBytes / 2, {moveUs(largeBytes / 2, 50'000)}, {}});
  const ManagedLink slow = linkWith({18'000, 18'000, 18'500});
  for (const ManagedLink &link : {together(fast, slow), together(slow, fast)}) {
    EXPECT_EQ(link.typical.down, fast.typical.down);
    EXPECT_EQ(link.typical.both, fast.typical.both);
    EXPECT_EQ(link.best.down, fast.best.down);
    EXPECT_EQ(link.best.both, fast.best.both);
    EXPECT_EQ(link.upOverheadUs, std::min(fast.upOverheadUs, slow.upOverheadUs));
    EXPECT_EQ(link.downOverheadUs, std::min(fast.downOverheadUs, slow.downOverheadUs));
    EXPECT_EQ(link.bytes, largeBytes);
  }
  EXPECT_TRUE(wasDisturbed(slow, fast));
  EXPECT_FALSE(wasDisturbed(fast, slow));
  EXPECT_FALSE(wasDisturbed(linkWith({38'000}), linkWith({41'000})));
}

class MeasuringTest : public ::testing::Test {
protected:
  static constexpr std::uint64_t arenaPages = 64;

  Expected<ManagedLink> measure(std::uint64_t mostPages) {
    return measureManagedLink(*fake_.table(), 0, *addresses_, mostPages * pageBytes, *contexts_);
  }

  FakeDriver fake_;
  std::unique_ptr<ManagedArena> arena_ = std::move(*ManagedArena::reserve(*fake_.table(), arenaPages *pageBytes, {}));
  std::unique_ptr<AddressSpace> addresses_ = AddressSpace::within(*fake_.table(), arena_->base(), arena_->bytes());
  CUcontext program_ = fake_.primaryContext();
  std::unique_ptr<LaneContexts> contexts_ = LaneContexts::create(*fake_.table(), 0, program_, 0, 1);
};

// Both directions have one context then, and take turns.
TEST_F(MeasuringTest, doesWithoutASecondContext) {
  for (const bool hasRoom : {true, false}) {
    contexts_.reset();
    if (hasRoom)
      fake_.failCall("cuCtxCreate", 1, CUDA_ERROR_OUT_OF_MEMORY);
    contexts_ = LaneContexts::create(*fake_.table(), 0, program_, hasRoom ? 0 : UINT64_MAX, 1);
    EXPECT_EQ(contexts_->ownContexts(), 0U);
    EXPECT_EQ(contexts_->down(), std::vector{contexts_->up()});
    EXPECT_EQ(fake_.contexts(), 0U);
    const Expected<ManagedLink> link = measure(arenaPages);
    ASSERT_TRUE(link) << messageOf(link);
    EXPECT_EQ(link->typical.both, (link->typical.up + link->typical.down) / 2);
  }
}

TEST_F(MeasuringTest, takesWhatTheArenaHasAndGivesItBack) {
  const Expected<ManagedLink> link = measure(arenaPages);
  ASSERT_TRUE(link) << messageOf(link);
  EXPECT_EQ(link->bytes, 32 * pageBytes);
  EXPECT_GE(link->best.down, link->typical.down);
  EXPECT_EQ(fake_.managedPagesOnDevice(), 0U);
  EXPECT_TRUE(addresses_->carve(arenaPages - 2 * AddressSpace::guardPages));
}

TEST_F(MeasuringTest, staysWithinTheBudget) {
  const Expected<ManagedLink> link = measure(16);
  ASSERT_TRUE(link) << messageOf(link);
  EXPECT_EQ(link->bytes, 16 * pageBytes);
}

// Blocks that are there stay where they are: a full arena is not measured.
TEST_F(MeasuringTest, leavesBlocksAlone) {
  ASSERT_TRUE(addresses_->carve(arenaPages - 2 * AddressSpace::guardPages));
  const Expected<ManagedLink> link = measure(arenaPages);
  ASSERT_TRUE(link) << messageOf(link);
  EXPECT_EQ(link->bytes, 0U);
  EXPECT_GT(link->typical.up, 0);
  EXPECT_EQ(fake_.callsOf("cuMemPrefetchAsync"), 0U);
}

TEST_F(MeasuringTest, saysWhatTheDriverSays) {
  fake_.failCall("cuMemPrefetchAsync", 3, CUDA_ERROR_INVALID_VALUE);
  const Expected<ManagedLink> link = measure(arenaPages);
  ASSERT_FALSE(link);
  EXPECT_NE(link.error().message.find("measuring the link: cuMemPrefetchAsync"), std::string::npos);
  EXPECT_TRUE(addresses_->carve(arenaPages - 2 * AddressSpace::guardPages)) << "the pages are not given back";
}

} // namespace
