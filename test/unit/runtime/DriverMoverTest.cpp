// SPDX-License-Identifier: Apache-2.0
// Which calls an agent's operations become, and in which contexts.
#include "runtime/agent/DriverMover.h"

#include "runtime/memory/AddressSpace.h"
#include "runtime/memory/ManagedArena.h"
#include "test/unit/runtime/Program.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <set>
#include <thread>

using namespace pumpgraph::runtime;
using namespace pumpgraph::runtime::test;

namespace {

constexpr std::uint64_t arenaPages = 64;
using Kind = Operation::Kind;

class DriverMoverTest : public ::testing::Test {
protected:
  std::unique_ptr<LaneContexts> contextsFor(std::size_t wanted, std::uint64_t leastFreeBytes = 0) {
    return LaneContexts::create(*fake_.table(), 0, program_, leastFreeBytes, wanted);
  }
  void open(std::size_t ownContexts) {
    mover_.reset();
    contexts_ = contextsFor(ownContexts);
    ASSERT_EQ(contexts_->ownContexts(), ownContexts);
    Expected<std::unique_ptr<DriverMover>> mover = DriverMover::create(*fake_.table(), 0, *contexts_);
    ASSERT_TRUE(mover) << messageOf(mover);
    mover_ = std::move(*mover);
  }

  /// From a thread of its own, as the agent does.
  Expected<Mover::Outcome> move(Kind kind, std::uint64_t bytes, bool mayBringNothing = true) {
    Expected<Mover::Outcome> outcome = Mover::Outcome::Failed;
    std::thread([&] { outcome = mover_->tryMove({kind, arena_->base(), bytes, "", {}, mayBringNothing}); }).join();
    return outcome;
  }
  /// What it became.
  std::vector<FakeDriver::Move> movesOf(Kind kind, std::uint64_t bytes, bool mayBringNothing = true) {
    const std::size_t before = fake_.moves().size();
    const Expected<Mover::Outcome> outcome = move(kind, bytes, mayBringNothing);
    EXPECT_TRUE(outcome) << messageOf(outcome);
    const std::vector<FakeDriver::Move> all = fake_.moves();
    return {all.begin() + static_cast<std::ptrdiff_t>(before), all.end()};
  }

  FakeDriver fake_;
  CUcontext program_ = fake_.primaryContext();
  std::unique_ptr<ManagedArena> arena_ = std::move(*ManagedArena::reserve(*fake_.table(), arenaPages *pageBytes, {}));
  std::unique_ptr<LaneContexts> contexts_;
  std::unique_ptr<DriverMover> mover_;
};

TEST_F(DriverMoverTest, hasTheContextsThatTheDriverGives) {
  EXPECT_EQ(contextsFor(2)->ownContexts(), 2U);
  EXPECT_EQ(fake_.contexts(), 0U) << "not destroyed";
  fake_.failCall("cuCtxCreate", 2, CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(contextsFor(2)->ownContexts(), 1U);
  EXPECT_EQ(contextsFor(2, UINT64_MAX)->ownContexts(), 0U);
  EXPECT_EQ(contextsFor(2, UINT64_MAX)->down(), std::vector{program_});
  EXPECT_EQ(fake_.contexts(), 0U);
}

// Every page once, in as many pieces as there are contexts for evictions, each from its own.
TEST_F(DriverMoverTest, evictsPiecesFromDifferentContexts) {
  for (const std::size_t own : {0, 1, 2, 3})
    for (const std::uint64_t bytes : {pageBytes, 2 * pageBytes, 7 * pageBytes - 100, 12 * pageBytes}) {
      open(own);
      const std::uint64_t pieces = std::clamp<std::uint64_t>(own, 1, pagesFor(bytes));
      fake_.gatherMoves(pieces); // so that no evictor does another's piece
      std::vector<FakeDriver::Move> moves = movesOf(Kind::Evict, bytes);
      ASSERT_EQ(moves.size(), pieces);
      std::sort(moves.begin(), moves.end(), [](const auto &a, const auto &b) { return a.address < b.address; });
      std::set<CUcontext> contexts;
      CUdeviceptr next = arena_->base();
      for (const FakeDriver::Move &move : moves) {
        EXPECT_TRUE(move.toHost);
        EXPECT_EQ(move.address, next);
        EXPECT_EQ((move.address - arena_->base()) % pageBytes, 0U);
        EXPECT_EQ(move.context == program_, own == 0);
        contexts.insert(move.context);
        next = move.address + move.bytes;
      }
      EXPECT_EQ(next, arena_->base() + bytes);
      EXPECT_EQ(contexts.size(), pieces);
    }
}

// Whoever asks, and whoever else is asking: every page once. Several at once are cut into fewer pieces.
TEST_F(DriverMoverTest, evictsForSeveralAtOnce) {
  constexpr std::uint64_t pages = 8;
  constexpr int rounds = 20;
  open(4);
  fake_.slowMoves(std::chrono::milliseconds(1));
  ASSERT_EQ(mover_->toHostAtOnce(), 4U);
  std::vector<std::thread> threads;
  std::atomic<int> failed = 0;
  for (std::uint64_t i = 0; i < 4; ++i)
    threads.emplace_back([&, address = arena_->base() + i * pages * pageBytes] {
      for (int round = 0; round < rounds; ++round)
        failed += !mover_->tryMove({Kind::Evict, address, pages * pageBytes, "", {}, true});
    });
  for (std::thread &thread : threads)
    thread.join();
  EXPECT_EQ(failed, 0);
  EXPECT_LT(fake_.moves().size(), std::size_t{4} * 4 * rounds);
  std::map<CUdeviceptr, std::uint64_t> bytes;
  for (const FakeDriver::Move &move : fake_.moves())
    for (CUdeviceptr page = move.address; page < move.address + move.bytes; page += pageBytes)
      bytes[page] += pageBytes;
  EXPECT_EQ(bytes.size(), 4 * pages);
  for (const auto &[page, moved] : bytes)
    EXPECT_EQ(moved, rounds * pageBytes);
}

TEST_F(DriverMoverTest, prefetchesInOnePieceFromTheProgramsContext) {
  open(2);
  const std::vector<FakeDriver::Move> moves = movesOf(Kind::Prefetch, 12 * pageBytes);
  ASSERT_EQ(moves.size(), 1U);
  EXPECT_EQ(moves[0].context, program_);
  EXPECT_FALSE(moves[0].toHost);
}

// Whichever piece it is that fails.
TEST_F(DriverMoverTest, saysThatAPieceFailed) {
  for (const int nth : {1, 2, 3}) {
    open(3);
    fake_.failCall("cuMemPrefetchAsync", nth, CUDA_ERROR_INVALID_VALUE);
    const Expected<Mover::Outcome> outcome = move(Kind::Evict, 12 * pageBytes);
    ASSERT_FALSE(outcome);
    EXPECT_NE(outcome.error().message.find("cuMemPrefetchAsync"), std::string::npos);
    EXPECT_TRUE(move(Kind::Evict, 12 * pageBytes)) << "it goes on";
  }
}

// The copy in host memory is good, so that advice is all it takes.
TEST_F(DriverMoverTest, dropsWithoutMoving) {
  open(2);
  const std::uint64_t advised = fake_.callsOf("cuMemAdvise");
  EXPECT_TRUE(movesOf(Kind::Drop, 8 * pageBytes).empty());
  EXPECT_EQ(fake_.callsOf("cuMemAdvise"), advised + 2);
}

// Somebody has written it: the next drop of each makes sure of its copy, the one after that need not.
TEST_F(DriverMoverTest, makesSureOfCopiesAfterASurprise) {
  open(2);
  EXPECT_TRUE(movesOf(Kind::Drop, 8 * pageBytes).empty());
  for (const Mover::Outcome expected : {Mover::Outcome::Moved, Mover::Outcome::WasThere}) {
    const Expected<Mover::Outcome> outcome = move(Kind::Prefetch, 8 * pageBytes, /*mayBringNothing=*/false);
    ASSERT_TRUE(outcome) << messageOf(outcome);
    EXPECT_EQ(*outcome, expected);
  }
  EXPECT_EQ(movesOf(Kind::Drop, 8 * pageBytes).size(), 2U);
  EXPECT_TRUE(movesOf(Kind::Drop, 8 * pageBytes).empty());
}

// A prefetch of so little does not tell whether something was there.
TEST_F(DriverMoverTest, alwaysMakesSureOfSmallCopies) {
  open(2);
  EXPECT_FALSE(movesOf(Kind::Drop, pageBytes).empty());
  EXPECT_FALSE(movesOf(Kind::Drop, pageBytes).empty());
}

} // namespace
