// SPDX-License-Identifier: Apache-2.0
// The agent with a graph and a driver that are threads of the test. A step of several groups of operations is replayed
// again and again; the driver is slow at random, fails at random, and at times does not come back for a while.
#include "runtime/agent/Agent.h"

#include <gtest/gtest.h>

#include <ctime>
#include <functional>
#include <optional>
#include <random>

using namespace pumpgraph::runtime;

namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

/// What a group is, as in agent.pml: a page is evicted, another prefetched into its place and used, then discarded.
enum Role : std::uint32_t { Evict, Prefetch, Discard, roles };

constexpr std::uint64_t pieceBytes = 4096;

std::vector<Operation> operationsOf(std::uint32_t groups) {
  std::vector<Operation> operations;
  for (std::uint32_t group = 0; group < groups; ++group) {
    const std::uint32_t first = group * roles;
    operations.push_back({Operation::Kind::Evict, first * pieceBytes, pieceBytes, "evict", {}});
    operations.push_back(
        {Operation::Kind::Prefetch, (first + 1) * pieceBytes, pieceBytes, "prefetch", {first + Evict}});
    operations.push_back(
        {Operation::Kind::Discard, (first + 1) * pieceBytes, pieceBytes, "discard", {first + Prefetch}});
  }
  return operations;
}

/// Its own idea of what must never be.
class FakeMover : public Mover {
public:
  explicit FakeMover(std::uint32_t operations) : moving_(operations) {}

  Outcome move(const Operation &operation) override {
    const auto index = static_cast<std::uint32_t>(operation.address / pieceBytes) +
                       (operation.kind == Operation::Kind::Discard ? 1 : 0);
    if (moving_[index].exchange(true)) // by two threads at once
      ++conflicts;
    const std::uint32_t other = index - index % roles + (index % roles == Discard ? Prefetch : Discard);
    if (index % roles != Evict && moving_[other])
      ++conflicts;
    const bool moved = behave(operation);
    moving_[index] = false;
    return moved ? Outcome::Moved : Outcome::Failed;
  }

  std::size_t toHostAtOnce() const override { return 3; }

  bool isMoving(std::uint32_t index) const { return moving_[index]; }

  std::function<bool(const Operation &)> behave = [](const Operation &) { return true; };
  std::atomic<std::uint64_t> conflicts = 0;

private:
  std::vector<std::atomic<bool>> moving_;
};

/// Does to the words what the nodes of a graph do.
class FakeGraph {
public:
  FakeGraph(std::vector<OperationWords> &words, const FakeMover &mover) : words_(words), mover_(mover) {}

  void replay(bool waitForPrefetches = true) {
    for (std::uint32_t first = 0; first < words_.size(); first += roles) {
      signal(first + Evict);
      signal(first + Prefetch);
      if (waitForPrefetches)
        wait(first + Prefetch);
      signal(first + Discard);
      wait(first + Discard);
      if (mover_.isMoving(first + Discard))
        ++written; // while the driver still discards it
    }
  }

  void signal(std::uint32_t index) {
    std::atomic_ref(words_[index].done).store(0);
    std::atomic_ref(words_[index].request).store(1);
  }
  void wait(std::uint32_t index) {
    while (std::atomic_ref(words_[index].done).load() == 0)
      std::this_thread::sleep_for(microseconds(5));
  }
  bool isDone(std::uint32_t index) { return std::atomic_ref(words_[index].done).load() != 0; }

  std::uint64_t written = 0;

private:
  std::vector<OperationWords> &words_;
  const FakeMover &mover_;
};

class AgentTest : public ::testing::Test {
protected:
  void start(std::uint32_t groups, milliseconds patience = milliseconds(200)) {
    words_ = std::vector<OperationWords>(groups * roles);
    mover_.emplace(groups * roles);
    graph_.emplace(words_, *mover_);
    patience_ = patience;
  }
  void run() {
    agent_.emplace(operationsOf(words_.size() / roles), words_.data(), *mover_, Agent::Limits{.patience = patience_});
  }

  /// The driver does not come back from operations of this kind until `isStopped_` is false.
  void stop(Operation::Kind kind) {
    isStopped_ = true;
    mover_->behave = [this, kind](const Operation &operation) {
      while (operation.kind == kind && isStopped_)
        std::this_thread::sleep_for(milliseconds(1));
      return true;
    };
  }

  void expectNothingWentWrong() {
    EXPECT_EQ(mover_->conflicts, 0U) << "a page was prefetched and discarded at once";
    EXPECT_EQ(graph_->written, 0U) << "a page was written while it was discarded";
  }

  std::vector<OperationWords> words_;
  std::optional<FakeMover> mover_;
  std::optional<FakeGraph> graph_;
  std::atomic<bool> isStopped_ = false; ///< outlives the agent, whose threads look at it until they end
  std::optional<Agent> agent_;
  milliseconds patience_{};
};

/// Sleeps now and then, and for very different times.
auto someDelay(std::uint64_t seed) {
  return [random = std::make_shared<std::pair<std::mutex, std::mt19937_64>>(std::piecewise_construct, std::tuple(),
                                                                            std::tuple(seed))](const Operation &) {
    std::uint64_t number = 0;
    {
      const std::lock_guard lock(random->first);
      number = random->second();
    }
    if (number % 4 == 0)
      std::this_thread::sleep_for(microseconds(number / 4 % 200));
    return number % 7 != 0;
  };
}

TEST_F(AgentTest, doesWhatEveryReplayAsksForOnce) {
  start(3, milliseconds(5000));
  run();
  constexpr std::uint64_t replays = 50;
  for (std::uint64_t i = 0; i < replays; ++i)
    graph_->replay();
  while (!agent_->isIdle())
    std::this_thread::sleep_for(milliseconds(1));
  const AgentStats stats = agent_->stats();
  EXPECT_EQ(stats.prefetches, 3 * replays);
  EXPECT_EQ(stats.evictions, 3 * replays);
  EXPECT_EQ(stats.discards, 3 * replays);
  EXPECT_EQ(stats.upBytes, 3 * replays * pieceBytes);
  EXPECT_EQ(stats.downBytes, 3 * replays * pieceBytes);
  EXPECT_EQ(stats.failed + stats.dropped + stats.released, 0U);
  ASSERT_EQ(stats.times.size(), agent_->operations().size());
  for (std::size_t i = 0; i < stats.times.size(); ++i) {
    EXPECT_GT(stats.times[i].beginUs, 0);
    EXPECT_GE(stats.times[i].endUs, stats.times[i].beginUs);
    for (const std::uint32_t other : agent_->operations()[i].waitsFor)
      EXPECT_TRUE(stats.times[other].endUs <= stats.times[i].beginUs ||
                  stats.times[other].beginUs >= stats.times[i].endUs);
  }
  expectNothingWentWrong();
}

TEST_F(AgentTest, survivesRandomDelaysAndFailures) {
  for (const bool waits : {true, false}) {
    start(4);
    mover_->behave = someDelay(waits);
    run();
    for (int i = 0; i < 500; ++i)
      graph_->replay(waits);
    EXPECT_GT(agent_->stats().failed, 0U);
    expectNothingWentWrong();
    agent_.reset();
  }
}

// The watchdog and the threads compete for every request.
TEST_F(AgentTest, staysRightUnderAnImpatientWatchdog) {
  start(2, milliseconds(1));
  mover_->behave = [delay = someDelay(3)](const Operation &operation) {
    std::this_thread::sleep_for(milliseconds(2));
    return delay(operation);
  };
  run();
  for (int i = 0; i < 200; ++i)
    graph_->replay(i % 2 == 0);
  EXPECT_GT(agent_->stats().dropped + agent_->stats().released, 0U);
  expectNothingWentWrong();
}

// A driver that does not come back for a while: the waits are released, and later replays are as ever.
TEST_F(AgentTest, letsTheGraphGoOnWhenThePrefetchingThreadStops) {
  start(2, milliseconds(500));
  stop(Operation::Kind::Prefetch);
  run();
  std::thread recovery([&] {
    std::this_thread::sleep_for(milliseconds(3000));
    isStopped_ = false;
  });
  const Clock::time_point begin = Clock::now();
  graph_->replay();
  EXPECT_LT(Clock::now() - begin, milliseconds(2500)) << "nobody released the graph";
  EXPECT_GT(agent_->stats().released, 0U);
  EXPECT_GT(agent_->stats().dropped, 0U);
  recovery.join();
  const AgentStats before = agent_->stats();
  for (int i = 0; i < 20; ++i)
    graph_->replay();
  EXPECT_EQ(agent_->stats().released + agent_->stats().dropped, before.released + before.dropped);
  expectNothingWentWrong();
}

// What a discard still does to a page must not happen to the next value: the wait lasts as long as the driver takes.
TEST_F(AgentTest, neverReleasesADiscardUnderWay) {
  start(1, milliseconds(200));
  mover_->behave = [](const Operation &operation) {
    if (operation.kind == Operation::Kind::Discard)
      std::this_thread::sleep_for(milliseconds(600));
    return true;
  };
  run();
  const Clock::time_point begin = Clock::now();
  graph_->replay();
  EXPECT_GE(Clock::now() - begin, milliseconds(600));
  EXPECT_EQ(agent_->stats().released + agent_->stats().dropped, 0U);
  expectNothingWentWrong();
}

// A discard that nobody has begun is dropped: the dead value stays for a while longer.
TEST_F(AgentTest, dropsADiscardThatNobodyHasBegun) {
  start(2, milliseconds(50));
  stop(Operation::Kind::Prefetch);
  run();
  graph_->signal(roles + Prefetch);
  while (!mover_->isMoving(roles + Prefetch))
    std::this_thread::sleep_for(milliseconds(1));
  graph_->signal(Discard);
  graph_->wait(Discard);
  EXPECT_EQ(agent_->stats().dropped, 1U);
  EXPECT_EQ(agent_->stats().discards, 0U);
  isStopped_ = false;
}

// Two queues of one agent: what goes to the device does not wait for what leaves it, unless it has to.
TEST_F(AgentTest, movesInBothDirectionsAtOnce) {
  start(2, milliseconds(5000));
  stop(Operation::Kind::Evict);
  run();
  graph_->signal(Evict);
  graph_->signal(Prefetch);
  graph_->signal(roles + Prefetch); // of the other group, whose eviction nobody has asked for
  graph_->wait(roles + Prefetch);
  EXPECT_FALSE(graph_->isDone(Prefetch)) << "its place is not free yet";
  isStopped_ = false;
  graph_->wait(Prefetch);
}

// Whoever announces more replays than may wait is held back until one begins.
TEST_F(AgentTest, holdsBackWhoRunsTooFarAhead) {
  start(1, milliseconds(5000));
  stop(Operation::Kind::Prefetch);
  agent_.emplace(operationsOf(1), words_.data(), *mover_, Agent::Limits{patience_, 2, milliseconds(20)});
  agent_->wake();
  graph_->signal(Evict); // the first replay has begun
  graph_->wait(Evict);
  graph_->signal(Prefetch);
  agent_->wake();
  agent_->wake();
  std::atomic<bool> announced = false;
  std::thread program([&] {
    agent_->waitForRoom();
    announced = true;
  });
  std::this_thread::sleep_for(milliseconds(60)); // longer than it takes to give up on what is not launched
  EXPECT_FALSE(announced);
  graph_->signal(Evict);
  program.join();
  isStopped_ = false;
  graph_->wait(Prefetch);
}

// Replays that were announced and never launched hold nobody back for long.
TEST_F(AgentTest, forgetsReplaysThatAreNotLaunched) {
  start(1, milliseconds(5000));
  agent_.emplace(operationsOf(1), words_.data(), *mover_, Agent::Limits{patience_, 2, milliseconds(20)});
  const Clock::time_point begin = Clock::now();
  for (int i = 0; i < 8; ++i) {
    agent_->waitForRoom();
    agent_->wake();
  }
  EXPECT_LT(Clock::now() - begin, milliseconds(2000));
  EXPECT_GE(Clock::now() - begin, milliseconds(60)); // each time that two were announced
}

// A program that stops half-way leaves nothing waiting.
TEST_F(AgentTest, answersWhatIsAskedForWhenItEnds) {
  start(1, milliseconds(5000));
  mover_->behave = [](const Operation &) {
    std::this_thread::sleep_for(milliseconds(20));
    return true;
  };
  run();
  for (std::uint32_t index = 0; index < roles; ++index)
    graph_->signal(index);
  agent_.reset();
  for (std::uint32_t index = 0; index < roles; ++index)
    EXPECT_TRUE(graph_->isDone(index)) << index;
}

// Between replays the threads sleep: a tenth of a second of nothing costs next to no processor time.
TEST_F(AgentTest, isParkedBetweenReplays) {
  start(4);
  run();
  graph_->replay();
  std::this_thread::sleep_for(milliseconds(200)); // the glances get rarer
  const std::clock_t before = std::clock();
  std::this_thread::sleep_for(milliseconds(500));
  const double share = static_cast<double>(std::clock() - before) / CLOCKS_PER_SEC / 0.5;
  EXPECT_LT(share, 0.1);
}

// Every glance after a wake is early: a replay that starts after a pause is served as one in a row.
TEST_F(AgentTest, servesMoreThanOneGraphAfterAnother) {
  start(2);
  mover_->behave = someDelay(11);
  run();
  // Two streams whose replays take turns, as the driver and events have them do.
  std::mutex turn;
  const auto stream = [&] {
    for (int i = 0; i < 100; ++i) {
      const std::lock_guard lock(turn);
      agent_->wake();
      graph_->replay(i % 3 != 0);
    }
  };
  std::thread first(stream), second(stream);
  first.join();
  second.join();
  expectNothingWentWrong();
}

} // namespace
