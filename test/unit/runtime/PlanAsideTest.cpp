// SPDX-License-Identifier: Apache-2.0
// Planning again on a thread: replays go on, and what comes between the request and the plan.
#include "test/unit/runtime/Program.h"
#include "test/unit/runtime/WaitingCompiler.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <dlfcn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <thread>

using namespace pumpgraph;
using namespace pumpgraph::runtime;
using namespace pumpgraph::runtime::test;

namespace {

constexpr std::uint64_t tightPages = 19, besideBudget = 1;
/// The replay after so many knows what whole replays took, and nodes.
constexpr int timedReplays = 12;
constexpr std::chrono::minutes patience{2};

template <typename Function> Function *find(const char *symbol) {
  void *library = dlopen(PUMPGRAPH_WAITING_COMPILER, RTLD_NOW | RTLD_LOCAL);
  EXPECT_TRUE(library) << dlerror();
  return reinterpret_cast<Function *>(dlsym(library, symbol));
}

class PlanAsideTest : public ::testing::Test {
protected:
  void SetUp() override {
    forwardKernel().milliseconds = 200; // static estimates know nothing of such slow kernels
    answer(Aside::Plans);
    before_ = requests();
    SessionOptions options;
    options.budgetBytes = tightPages * pageBytes;
    options.compilerLibrary = PUMPGRAPH_WAITING_COMPILER;
    options.cacheDirectory = folderWithLink(fake_);
    options.plansAside = true;
    Expected<std::unique_ptr<Session>> made = Session::create(options, fake_.table());
    ASSERT_TRUE(made) << messageOf(made);
    session_ = std::move(*made);
    program_.emplace(fake_, *session_, Program::Shape{});
    program_->prepare();
  }
  void TearDown() override {
    answer(Aside::Plans); // a session waits for its thread
    program_.reset();
    session_.reset();
    forwardKernel().milliseconds = 0;
  }

  static void answer(Aside answer) { find<decltype(pumpgraph_test_plan_aside)>("pumpgraph_test_plan_aside")(answer); }
  static int requests() { return find<decltype(pumpgraph_test_requests)>("pumpgraph_test_requests")(); }
  /// So many since the test began.
  void waitForRequest(int count) const {
    EXPECT_TRUE(find<decltype(pumpgraph_test_wait_for_request)>("pumpgraph_test_wait_for_request")(before_ + count));
  }

  Step *adopt() {
    const Expected<Step *> step = session_->adopt(program_->record(), {.ownsGraph = true});
    EXPECT_TRUE(step) << messageOf(step);
    return step ? *step : nullptr;
  }

  void run(Step *step, int times) {
    replay(step, times);
    steps_ += times;
  }

  /// With the plan asked for, and none made.
  Step *adoptAndWait() {
    answer(Aside::Waits);
    Step *step = adopt();
    run(step, timedReplays + 1);
    waitForRequest(1);
    return step;
  }

  static nlohmann::json runtimeOf(Step *step) { return nlohmann::json::parse(step->report()).at("runtime"); }
  static std::size_t plansOf(Step *step) { return runtimeOf(step).at("plans").size(); }

  /// Replays until the step has so many plans.
  void runUntilPlanned(Step *step, std::size_t plans) {
    const auto end = std::chrono::steady_clock::now() + patience;
    while (plansOf(step) < plans && std::chrono::steady_clock::now() < end) {
      run(step, 1);
      std::this_thread::yield();
    }
    EXPECT_EQ(plansOf(step), plans) << step->report();
  }

  void expectValues() {
    EXPECT_EQ(program_->weights(), program_->expectedWeights(steps_));
    EXPECT_EQ(program_->loss(), program_->expectedLoss(steps_));
    EXPECT_LE(fake_.deviceFrames(), tightPages + besideBudget);
  }

  FakeDriver fake_;
  std::unique_ptr<Session> session_;
  std::optional<Program> program_;
  int before_ = 0, steps_ = 0;
};

TEST_F(PlanAsideTest, replaysGoOnMeanwhile) {
  Step *step = adoptAndWait();
  run(step, 20);
  EXPECT_EQ(plansOf(step), 1u);
  EXPECT_EQ(runtimeOf(step).at("replans_by_itself"), true);
  expectValues();
  answer(Aside::Plans);
  runUntilPlanned(step, 2);
  expectValues();
  EXPECT_EQ(runtimeOf(step).at("plans")[1].at("costs"), "measured on the rewritten step");
  run(step, 20);
  EXPECT_EQ(runtimeOf(step).at("replans_by_itself"), false);
  EXPECT_EQ(requests() - before_, 1);
  expectValues();
}

// The memory that the plan counts on is another's by then.
TEST_F(PlanAsideTest, anOutdatedPlanIsMadeOnceMore) {
  const auto allocate = [&] { return session_->allocate(2 * pageBytes, nullptr, "other"); };
  Expected<void *> other = allocate(); // the first plan leaves room for it
  ASSERT_TRUE(other);
  answer(Aside::Waits);
  Step *step = adopt();
  ASSERT_TRUE(session_->free(*other, nullptr));
  run(step, timedReplays + 1);
  waitForRequest(1);
  other = allocate();
  ASSERT_TRUE(other);
  ASSERT_TRUE(fake_.isOnDevice(*other));
  answer(Aside::Plans);
  runUntilPlanned(step, 2);
  EXPECT_EQ(requests() - before_, 2);
  EXPECT_TRUE(fake_.isOnDevice(*other));
  run(step, 5);
  expectValues();
}

// More memory than the plan counts on does no harm.
TEST_F(PlanAsideTest, aPlanForLessMemoryIsTaken) {
  const Expected<void *> other = session_->allocate(2 * pageBytes, nullptr, "other");
  ASSERT_TRUE(other);
  Step *step = adoptAndWait();
  ASSERT_TRUE(session_->free(*other, nullptr));
  answer(Aside::Plans);
  runUntilPlanned(step, 2);
  EXPECT_EQ(requests() - before_, 1);
  expectValues();
}

// Nobody waits for a plan that is of no use any more, but the session's end; a thread makes one plan at a time.
TEST_F(PlanAsideTest, aStepThatIsGoneLeavesItsThreadToTheNext) {
  session_->destroy(adoptAndWait());
  Step *next = adopt();
  run(next, timedReplays + 5);
  EXPECT_EQ(requests() - before_, 1);
  EXPECT_EQ(plansOf(next), 1u);
  answer(Aside::Plans);
  runUntilPlanned(next, 2);
  EXPECT_EQ(requests() - before_, 2);
  expectValues();
}

TEST_F(PlanAsideTest, aSessionWaitsForItsThread) {
  adoptAndWait();
  std::thread later([] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    answer(Aside::Plans);
  });
  program_.reset();
  session_.reset();
  later.join();
}

// As PyTorch's programs do, whose allocator stays to the end.
TEST_F(PlanAsideTest, aProgramThatEndsWaitsForItsThread) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto end = [this] {
    adoptAndWait();
    std::thread([] {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      answer(Aside::Plans);
    }).detach();
    std::exit(0);
  };
  EXPECT_EXIT(end(), ::testing::ExitedWithCode(0), "");
}

// A fork that ends meanwhile has no such thread to wait for.
TEST_F(PlanAsideTest, aForkThatEndsWaitsForNothing) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto end = [this] {
    adoptAndWait();
    const pid_t child = fork();
    if (child == 0) {
      alarm(20);
      std::exit(0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    answer(Aside::Plans);
    std::exit(WIFEXITED(status) ? WEXITSTATUS(status) : 1);
  };
  EXPECT_EXIT(end(), ::testing::ExitedWithCode(pumpgraph_test_status_of_plans_without_library), "");
}

// What somebody asks for is done at once, and the plan that was being made is given up.
TEST_F(PlanAsideTest, isGivenUpForWhatIsAskedFor) {
  Step *step = adoptAndWait();
  const Expected<Replanning> replanned = step->replan();
  ASSERT_TRUE(replanned) << messageOf(replanned);
  EXPECT_GE(plansOf(step), 2u);
  answer(Aside::Plans);
  run(step, 20);
  EXPECT_EQ(runtimeOf(step).at("replans_by_itself"), false);
  EXPECT_EQ(requests() - before_, 1);
  expectValues();
}

TEST_F(PlanAsideTest, theFirstPlanStaysWhereThereIsNoSecond) {
  answer(Aside::HasNoMemory);
  Step *step = adopt();
  const auto end = std::chrono::steady_clock::now() + patience;
  while (runtimeOf(step).at("replans_by_itself") == true && std::chrono::steady_clock::now() < end)
    run(step, 1);
  EXPECT_EQ(plansOf(step), 1u);
  EXPECT_NE(step->report().find("planning again failed: memory ran out"), std::string::npos) << step->report();
  run(step, 3);
  expectValues();
}

} // namespace
