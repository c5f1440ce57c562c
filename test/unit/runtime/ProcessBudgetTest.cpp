// SPDX-License-Identifier: Apache-2.0
// A budget that is the whole process's: frames get what everything else leaves of it.
#include "test/unit/runtime/Program.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <thread>

using namespace pumpgraph::runtime;
using namespace pumpgraph::runtime::test;

namespace {

// What Program's step needs at least, the frame that stands in during captures, and what Session keeps for graphs.
constexpr std::uint64_t tightPages = 19, standIn = 1, reservePages = 32;
constexpr std::uint64_t contextPages = 259;

class ProcessBudgetTest : public ::testing::Test {
protected:
  void open(std::uint64_t budgetPages) {
    SessionOptions options;
    options.budgetBytes = budgetPages * pageBytes;
    options.compilerLibrary = PUMPGRAPH_COMPILER_LIBRARY;
    options.cacheDirectory = folderWithLink(fake_);
    options.processMemory = [this]() -> Expected<std::uint64_t> {
      if (!shown_)
        return fail(PUMPGRAPH_DRIVER_ERROR, "nobody knows");
      return (besides_ + fake_.deviceFrames()) * pageBytes;
    };
    made_ = Session::create(options, fake_.table());
  }

  Session &session() { return **made_; }
  std::uint64_t processPages() const { return besides_ + fake_.deviceFrames(); }

  FakeDriver fake_;
  std::uint64_t besides_ = contextPages; ///< pages of the process that are no frames
  bool shown_ = true;
  Expected<std::unique_ptr<Session>> made_;
};

TEST_F(ProcessBudgetTest, framesGetWhatTheProcessLeaves) {
  open(contextPages + reservePages + 10);
  ASSERT_TRUE(made_) << made_.error().message;
  const MemoryStatistics statistics = session().statistics();
  EXPECT_EQ(statistics.frameBudgetBytes, 10 * pageBytes);
  EXPECT_EQ(statistics.budgetBytes, (contextPages + reservePages + 10) * pageBytes);
  EXPECT_EQ(statistics.processBytes, processPages() * pageBytes);
}

TEST_F(ProcessBudgetTest, refusesABudgetThatTheContextTakes) {
  open(contextPages + reservePages);
  ASSERT_FALSE(made_);
  EXPECT_EQ(made_.error().status, PUMPGRAPH_INVALID_ARGUMENT);
  EXPECT_NE(made_.error().message.find("518.0 MiB on the device before its first buffer"), std::string::npos)
      << made_.error().message;
}

// Kernels that are loaded during warm-up leave less; what no longer fits is given back, or becomes host memory.
TEST_F(ProcessBudgetTest, framesMakeRoomForWhatIsLoaded) {
  const std::uint64_t budget = contextPages + reservePages + 100;
  open(budget);
  ASSERT_TRUE(made_) << made_.error().message;
  const Expected<void *> large = session().allocate(60 * pageBytes, nullptr, "large");
  ASSERT_TRUE(large);
  ASSERT_TRUE(session().free(*large, nullptr)); // its frames stay with the session
  const Expected<void *> kept = session().allocate(30 * pageBytes, nullptr, "kept");
  ASSERT_TRUE(kept);
  besides_ += 60;
  const Expected<void *> more = session().allocate(50 * pageBytes, nullptr, "more");
  ASSERT_TRUE(more);
  EXPECT_LE(processPages(), budget);
  EXPECT_LE(session().statistics().frameBudgetBytes, 40 * pageBytes);
  EXPECT_GE(session().statistics().devicePeakBytes, 60 * pageBytes);
  // What is freed is not kept beyond the budget.
  besides_ += 20;
  ASSERT_TRUE(session().free(*kept, nullptr));
  ASSERT_TRUE(session().allocate(70 * pageBytes, nullptr, "last"));
  EXPECT_LE(processPages(), budget);
}

TEST_F(ProcessBudgetTest, plansForWhatIsLeftAndKeepsToIt) {
  const std::uint64_t budget = contextPages + reservePages + tightPages + 20;
  open(budget);
  ASSERT_TRUE(made_) << made_.error().message;
  Program program(fake_, session(), {});
  program.prepare();
  const CUgraph graph = program.record();
  besides_ += 20;
  AdoptOptions options;
  options.keepFirstPlan = true;
  const Expected<Step *> step = session().adopt(graph, options);
  ASSERT_TRUE(step) << step.error().message;
  EXPECT_TRUE((*step)->rewritten());
  EXPECT_LE(processPages(), budget);
  EXPECT_LE(fake_.deviceFrames(), tightPages + standIn);
  besides_ += reservePages; // the executable graph
  for (int i = 0; i < 2; ++i) {
    ASSERT_TRUE((*step)->replay(nullptr));
    EXPECT_EQ(program.weights(), program.expectedWeights(i + 1));
    ASSERT_TRUE(session().takeBack());
  }
  EXPECT_LE(processPages(), budget + standIn);
}

/// A step that has room for more than it needs at least, and others that then take it.
class ProcessBudgetIsTakenTest : public ProcessBudgetTest {
protected:
  static constexpr std::uint64_t taken = 40;
  static constexpr std::uint64_t budget = contextPages + reservePages + reservePages / 2 + tightPages + standIn + taken;

  void SetUp() override {
    open(budget);
    ASSERT_TRUE(made_) << made_.error().message;
    program_.emplace(fake_, session(), Program::Shape{.layers = 12});
    program_->prepare();
    const Expected<Step *> step = session().adopt(program_->record(), {.keepFirstPlan = true});
    ASSERT_TRUE(step) << step.error().message;
    step_ = *step;
    besides_ += reservePages; // the executable graph
    replays(1);
    ASSERT_LE(processPages(), budget);
    ASSERT_GT(fake_.deviceFrames(), tightPages + standIn);
  }

  void replays(int times) {
    for (int i = 0; i < times; ++i) {
      const Status replayed = step_->replay(nullptr);
      ASSERT_TRUE(replayed) << messageOf(replayed);
      ++replays_;
      EXPECT_EQ(program_->weights(), program_->expectedWeights(replays_));
      EXPECT_EQ(program_->loss(), program_->expectedLoss(replays_));
    }
  }

  std::vector<std::string> warnings() const {
    return nlohmann::json::parse(step_->report()).at("runtime").at("warnings");
  }

  std::optional<Program> program_;
  Step *step_ = nullptr;
  int replays_ = 0;
};

TEST_F(ProcessBudgetIsTakenTest, isSaidOnceAndPlannedFor) {
  besides_ += taken;
  ASSERT_GT(processPages(), budget);
  const Expected<BudgetState> first = session().keepToBudget(), second = session().keepToBudget();
  ASSERT_TRUE(first) << messageOf(first);
  EXPECT_NE(first->message.find("more than its budget of"), std::string::npos) << first->message;
  EXPECT_NE(first->message.find("others have"), std::string::npos) << first->message;
  EXPECT_EQ(first->processBytes, processPages() * pageBytes);
  ASSERT_TRUE(second);
  EXPECT_EQ(second->message, "");
  replays(2);
  ASSERT_TRUE(session().takeBack());
  ASSERT_TRUE(session().emptyCache());
  EXPECT_LE(processPages(), budget) << step_->report();
  replays(2);
}

// pumpgraph_replay() looks by itself; it need not be asked.
TEST_F(ProcessBudgetIsTakenTest, isNoticedByReplays) {
  besides_ += taken;
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (warnings().empty() && std::chrono::steady_clock::now() < end) { // a second passes meanwhile
    replays(1);
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  ASSERT_EQ(warnings().size(), 1u);
  EXPECT_NE(warnings()[0].find("more than its budget of"), std::string::npos);
  EXPECT_LE(processPages(), budget);
  replays(3);
  EXPECT_EQ(warnings().size(), 1u);
}

// What has no plan for what is left keeps the one that it has, and says so; values are right.
TEST_F(ProcessBudgetIsTakenTest, thatLeavesTooLittleIsAWarning) {
  besides_ += budget;
  const Expected<BudgetState> state = session().keepToBudget();
  ASSERT_TRUE(state) << messageOf(state);
  EXPECT_NE(state->message, "");
  replays(2);
  ASSERT_EQ(warnings().size(), 1u);
  EXPECT_NE(warnings()[0].find("keeps a plan that exceeds the budget"), std::string::npos) << warnings()[0];
}

// Each time others take more there is something to say again.
TEST_F(ProcessBudgetIsTakenTest, isNoticedEachTime) {
  for (int round = 0; round < 2; ++round) {
    besides_ += taken / 2;
    const Expected<BudgetState> state = session().keepToBudget();
    ASSERT_TRUE(state) << messageOf(state);
    EXPECT_EQ(state->message.empty(), processPages() <= budget) << round;
    replays(1);
  }
  EXPECT_LE(processPages(), budget);
}

TEST_F(ProcessBudgetTest, saysSoWhereNobodyKnows) {
  shown_ = false;
  open(tightPages);
  ASSERT_TRUE(made_) << made_.error().message;
  EXPECT_EQ(session().statistics().processBytes, 0u);
  EXPECT_EQ(session().statistics().frameBudgetBytes, tightPages * pageBytes);
  Program program(fake_, session(), {});
  program.prepare();
  const Expected<Step *> step = session().adopt(program.record(), {});
  ASSERT_TRUE(step) << step.error().message;
  EXPECT_NE((*step)->report().find("the budget is that of buffers alone, not of the process: nobody knows"),
            std::string::npos);
}

} // namespace
