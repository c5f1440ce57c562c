// SPDX-License-Identifier: Apache-2.0
// Runs of a step on PumpGraph's own account: each begins in the state of the program's next replay, and leaves it so.
#include "runtime/api/Handles.h"
#include "test/unit/runtime/Program.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <array>
#include <functional>
#include <set>

using namespace pumpgraph;
using namespace pumpgraph::runtime;
using namespace pumpgraph::runtime::test;

namespace {

using Word = std::uint64_t;

constexpr std::uint64_t tightPages = 19;

/// cache[*position] = in[0]; ++*position. Past its last row it writes elsewhere, where a device would assert.
FakeKernel &advanceKernel() {
  static FakeKernel kernel{"advance", {8, 8, 8, 8}, {}};
  return kernel;
}
/// ++*counter
FakeKernel &countKernel() {
  static FakeKernel kernel{
      "count", {8}, [](const FakeKernel::Arguments &arguments) { ++*argument<Word *>(arguments, 0); }};
  return kernel;
}

/// A training step that also advances a position in a cache, as decoding does: as many rows as the program replays it.
class OwnRunsTest : public ::testing::Test {
protected:
  static constexpr Word rows = 40;

  void SetUp() override {
    Expected<std::unique_ptr<Session>> made = openSession(fake_, tightPages, PUMPGRAPH_COMPILER_LIBRARY);
    ASSERT_TRUE(made) << messageOf(made);
    session_ = std::move(*made);
    program_.emplace(fake_, *session_, Program::Shape{});
    program_->prepare();
    cache_ = static_cast<Word *>(*session_->allocate(rows * sizeof(Word), nullptr, "cache"));
    position_ = static_cast<Word *>(*session_->allocate(sizeof(Word), nullptr, "position"));
    std::fill(cache_, cache_ + rows, 0);
    *position_ = 0;
    advanceKernel().body = [this](const FakeKernel::Arguments &arguments) {
      Word &position = *argument<Word *>(arguments, 1);
      starts_.insert(position);
      ++runs_;
      ASSERT_LT(position, rows) << "a run began behind the end of the cache";
      argument<Word *>(arguments, 0)[position++] = *argument<Word *>(arguments, 2) + argument<Word>(arguments, 3);
    };
    graph_ = program_->record();
    fake_.addKernel(graph_, {}, advanceKernel(),
                    {bytesOf(cache_), bytesOf(position_), bytesOf(program_->inputPointer()), bytesOf(Word{7})});
  }
  void TearDown() override {
    session_.reset();
    forwardKernel().milliseconds = 0;
  }

  Step *adopt(const AdoptOptions &options) {
    const Expected<Step *> step = session_->adopt(graph_, options);
    EXPECT_TRUE(step) << messageOf(step);
    return step ? *step : nullptr;
  }

  /// Replays once, and then has PumpGraph run the step on its own account, with the position where it is then.
  void expectToBeginWhereTheProgramIs(Step *step, const char *what, const std::function<std::string()> &call) {
    replay(step, 1);
    ++replays_;
    starts_.clear();
    runs_ = 0;
    const std::string failure = call();
    EXPECT_EQ(failure, "") << what;
    EXPECT_GT(runs_, 0u) << what << " has not run the step, so this says nothing";
    EXPECT_EQ(starts_, std::set<Word>{static_cast<Word>(replays_)}) << what;
    expectState(what);
  }

  void expectState(const char *what) {
    EXPECT_EQ(*position_, static_cast<Word>(replays_)) << what;
    for (Word row = 0; row < rows; ++row)
      EXPECT_EQ(cache_[row], row < static_cast<Word>(replays_) ? 8u : 0u) << what << ", row " << row;
    EXPECT_EQ(program_->loss(), program_->expectedLoss(replays_)) << what;
    EXPECT_EQ(program_->weights(), program_->expectedWeights(replays_)) << what;
  }

  FakeDriver fake_;
  std::unique_ptr<Session> session_;
  std::optional<Program> program_;
  CUgraph graph_ = nullptr;
  Word *cache_ = nullptr;
  Word *position_ = nullptr;
  std::set<Word> starts_; ///< positions with which runs began
  std::uint64_t runs_ = 0;
  int replays_ = 0;
};

TEST_F(OwnRunsTest, beginWhereTheProgramIs) {
  Step *step = adopt({.keepFirstPlan = true});
  ASSERT_TRUE(step);
  ASSERT_TRUE(step->movesAnything());
  for (int round = 0; round < 2; ++round) {
    expectToBeginWhereTheProgramIs(step, "replan()", [&] { return messageOf(step->replan()); });
    expectToBeginWhereTheProgramIs(step, "validate()", [&] {
      const Expected<Validation> validation = step->validate();
      return validation ? validation->firstDifference : messageOf(validation);
    });
    expectToBeginWhereTheProgramIs(step, "observe()", [&] { return messageOf(step->observe()); });
  }
}

TEST_F(OwnRunsTest, ofAStepThatIsLeftBeginWhereTheProgramIs) {
  Step *step = adopt({.leaveAsCaptured = true});
  ASSERT_TRUE(step);
  expectToBeginWhereTheProgramIs(step, "measure()", [&] { return messageOf(step->measure(4)); });
}

TEST_F(OwnRunsTest, ofAdoptionBeginWhereTheProgramIs) {
  Step *step = adopt({.keepFirstPlan = true, .calibrate = true});
  ASSERT_TRUE(step);
  EXPECT_EQ(starts_, std::set<Word>{0});
  expectState("calibration");
}

// The program's own replays are all there are, however often the step is planned again by itself.
TEST_F(OwnRunsTest, planningAgainByItselfHasNone) {
  forwardKernel().milliseconds = 200; // static estimates know nothing of it
  Step *step = adopt({});
  ASSERT_TRUE(step);
  for (replays_ = 1; replays_ <= 30; ++replays_) {
    replay(step, 1);
    ASSERT_EQ(runs_, static_cast<std::uint64_t>(replays_));
    expectState("a replay");
    if (HasFailure())
      return;
  }
  const nlohmann::json report = nlohmann::json::parse(step->report());
  EXPECT_GE(report.at("runtime").at("plans").size(), 2u) << report;
}

// Neither are there any where PyTorch launches an instantiation of its own.
TEST_F(OwnRunsTest, planningAgainAroundLaunchesOfOthersHasNone) {
  forwardKernel().milliseconds = 200;
  Step *step = adopt({});
  ASSERT_TRUE(step);
  const Driver &driver = *fake_.table();
  CUgraphExec exec = nullptr;
  ASSERT_TRUE(driver.graphInstantiate(&exec, graph_, 0));
  LaunchState state{false, true};
  for (replays_ = 1; replays_ <= 30; ++replays_) {
    if (state.isWatched) {
      const Expected<LaunchState> next = step->beforeLaunch(nullptr);
      ASSERT_TRUE(next) << messageOf(next);
      state = *next;
      if (state.graphHasChanged) {
        ASSERT_TRUE(driver.graphExecDestroy(exec));
        ASSERT_TRUE(driver.graphInstantiate(&exec, graph_, 0));
      }
    }
    ASSERT_TRUE(step->putInForce());
    ASSERT_TRUE(driver.graphLaunch(exec, nullptr));
    if (state.isWatched) {
      ASSERT_TRUE(step->afterLaunch(nullptr));
    }
    ASSERT_EQ(runs_, static_cast<std::uint64_t>(replays_));
    expectState("a launch");
    if (HasFailure())
      return;
  }
  EXPECT_FALSE(state.isWatched);
  EXPECT_GE(nlohmann::json::parse(step->report()).at("runtime").at("plans").size(), 2u) << step->report();
  ASSERT_TRUE(driver.graphExecDestroy(exec));
}

// Whenever something else comes in between, what was put into the graph to measure leaves it first.
TEST_F(OwnRunsTest, endPlanningAgain) {
  forwardKernel().milliseconds = 200;
  Step *step = adopt({});
  ASSERT_TRUE(step);
  const std::uint64_t nodes = fake_.graphNodes(graph_);
  std::uint64_t most = nodes;
  for (replays_ = 1; most == nodes && replays_ < 10; ++replays_) {
    replay(step, 1);
    most = std::max(most, fake_.graphNodes(graph_));
  }
  --replays_;
  ASSERT_GT(most, nodes) << "no clocks were ever in the graph";
  ASSERT_TRUE(step->validate());
  EXPECT_EQ(fake_.graphNodes(graph_), nodes);
  expectState("validation");
  replay(step, 2);
  replays_ += 2;
  expectState("replays after it");
}

// A step can be destroyed while its replays are timed: the caller's graph has no clocks then.
TEST_F(OwnRunsTest, destroyingAStepTakesItsClocksOut) {
  forwardKernel().milliseconds = 200;
  Step *step = adopt({});
  ASSERT_TRUE(step);
  const std::uint64_t nodes = fake_.graphNodes(graph_);
  for (int i = 0; fake_.graphNodes(graph_) == nodes && i < 10; ++i)
    replay(step, 1);
  ASSERT_GT(fake_.graphNodes(graph_), nodes);
  session_->destroy(step);
  EXPECT_EQ(fake_.graphNodes(graph_), nodes);
}

// What kernels and copies of the step write outside the session is put back as well.
TEST_F(OwnRunsTest, leaveMemoryOutsideTheSessionAsItWas) {
  std::array<Word, 2> counter{41, 0};
  Word reported = 5;
  fake_.addOutside(counter.data(), sizeof counter, false);
  const CUgraphNode counted = fake_.addKernel(graph_, {}, countKernel(), {bytesOf(&counter[0])});
  fake_.addCopy(graph_, {counted}, &reported, &counter[0], sizeof reported);
  Step *step = adopt({.keepFirstPlan = true});
  ASSERT_TRUE(step);
  for (const auto &call : {std::function([&] { return messageOf(step->replan()); }),
                           std::function([&] { return messageOf(step->validate()); })}) {
    EXPECT_EQ(call(), "");
    EXPECT_EQ(counter[0], 41u);
    EXPECT_EQ(reported, 5u);
  }
  replay(step, 1);
  EXPECT_EQ(counter[0], 42u);
  EXPECT_EQ(reported, 42u);
}

// What nothing can put back is not done.
TEST_F(OwnRunsTest, areNotWhereTheyCannotBeUndone) {
  Word counter = 0;
  fake_.addOutside(&counter, sizeof counter, true);
  const std::vector<std::pair<const char *, std::function<void()>>> effects = {
      {"it calls a host function", [&] { fake_.addPlain(graph_, {}, CU_GRAPH_NODE_TYPE_HOST); }},
      {"a kernel may write host memory", [&] { fake_.addKernel(graph_, {}, countKernel(), {bytesOf(&counter)}); }}};
  for (const auto &[reason, add] : effects) {
    add();
    Step *step = adopt({.keepFirstPlan = true});
    ASSERT_TRUE(step);
    for (const std::string &message :
         {messageOf(step->replan()), messageOf(step->validate()), messageOf(step->observe())})
      EXPECT_NE(message.find(reason), std::string::npos) << message;
    EXPECT_EQ(runs_, 0u) << reason;
    EXPECT_EQ(counter, 0u);
    session_->destroy(step);
    fake_.destroyGraph(graph_);
    graph_ = program_->record();
  }
}

// ---- a lost device
// ---------------------------------------------------------------------------------------------------

/// The C API on a device on which a kernel asserts.
class LostDeviceTest : public ::testing::Test {
protected:
  void SetUp() override {
    pumpgraph_session_options options{};
    options.struct_size = sizeof options;
    options.budget_bytes = tightPages * pageBytes;
    options.compiler_library = PUMPGRAPH_COMPILER_LIBRARY;
    Expected<std::unique_ptr<pumpgraph_session>> made = makeSession(options, fake_.table());
    ASSERT_TRUE(made) << messageOf(made);
    session_ = made->release();
    program_.emplace(fake_, *session_->session, Program::Shape{});
    program_->prepare();
    graph_ = program_->record();
    ASSERT_EQ(pumpgraph_adopt(session_, graph_, nullptr, &step_, nullptr), PUMPGRAPH_OK);
    ASSERT_EQ(pumpgraph_replay(step_, nullptr, nullptr), PUMPGRAPH_OK);
  }
  void TearDown() override {
    pumpgraph_step_destroy(step_);
    pumpgraph_session_destroy(session_);
  }

  /// Every call of the API but those that destroy, by name.
  std::vector<std::pair<const char *, std::function<pumpgraph_status(pumpgraph_error *)>>> calls() {
    return {{"allocate", [&](auto *error) { return pumpgraph_allocate(session_, 64, nullptr, "", &pointer_, error); }},
            {"free", [&](auto *error) { return pumpgraph_free(session_, program_->lossPointer(), nullptr, error); }},
            {"declare_private",
             [&](auto *error) { return pumpgraph_declare_private(session_, program_->lossPointer(), error); }},
            {"map", [&](auto *error) { return pumpgraph_map(session_, program_->weightPointers()[0], error); }},
            {"bring",
             [&](auto *error) {
               void *const weight = program_->weightPointers()[0];
               return pumpgraph_bring(session_, &weight, 1, PUMPGRAPH_USE_READ, error);
             }},
            {"take_back", [&](auto *error) { return pumpgraph_take_back(session_, error); }},
            {"empty_cache", [&](auto *error) { return pumpgraph_empty_cache(session_, error); }},
            {"capture_begin", [&](auto *error) { return pumpgraph_capture_begin(session_, error); }},
            {"adopt", [&](auto *error) { return pumpgraph_adopt(session_, graph_, nullptr, &other_, error); }},
            {"replay", [&](auto *error) { return pumpgraph_replay(step_, nullptr, error); }},
            {"put_in_force", [&](auto *error) { return pumpgraph_put_in_force(step_, error); }},
            {"before_launch",
             [&](auto *error) {
               pumpgraph_launch launch{sizeof launch, 0, 0};
               return pumpgraph_before_launch(step_, nullptr, &launch, error);
             }},
            {"report", [&](auto *error) { return pumpgraph_report(step_, &text_, error); }},
            {"measure",
             [&](auto *error) {
               pumpgraph_measurement result{sizeof result, 0, 0};
               return pumpgraph_measure(step_, 2, &result, error);
             }},
            {"replan",
             [&](auto *error) {
               pumpgraph_replanning result{};
               result.struct_size = sizeof result;
               return pumpgraph_replan(step_, &result, error);
             }},
            {"validate",
             [&](auto *error) {
               pumpgraph_validation result{};
               result.struct_size = sizeof result;
               return pumpgraph_validate(step_, &result, error);
             }},
            {"observe", [&](auto *error) {
               pumpgraph_observation result{};
               result.struct_size = sizeof result;
               return pumpgraph_observe(step_, nullptr, 0, &result, error);
             }}};
  }

  FakeDriver fake_;
  pumpgraph_session *session_ = nullptr;
  pumpgraph_step *step_ = nullptr;
  pumpgraph_step *other_ = nullptr;
  std::optional<Program> program_;
  CUgraph graph_ = nullptr;
  void *pointer_ = nullptr;
  char *text_ = nullptr;
};

TEST_F(LostDeviceTest, isNamedByEveryCall) {
  fake_.failCall("cuGraphLaunch", 1, CUDA_ERROR_ASSERT);
  pumpgraph_error error{};
  EXPECT_EQ(pumpgraph_replay(step_, nullptr, &error), PUMPGRAPH_DEVICE_LOST) << error.message;
  for (const auto &[name, call] : calls()) {
    error = {};
    EXPECT_EQ(call(&error), PUMPGRAPH_DEVICE_LOST) << name << ": " << error.message;
    EXPECT_NE(std::string(error.message).find("cuGraphLaunch: CUDA_ERROR_ASSERT"), std::string::npos)
        << name << ": " << error.message;
  }
}

/// A driver call, and which of them finds out.
class LossTest : public LostDeviceTest, public ::testing::WithParamInterface<std::tuple<const char *, int>> {};

TEST_P(LossTest, isNamedByTheCallThatFindsOut) {
  const auto [call, nth] = GetParam();
  fake_.failCall(call, nth, CUDA_ERROR_ILLEGAL_ADDRESS);
  pumpgraph_replanning result{};
  result.struct_size = sizeof result;
  pumpgraph_error error{};
  EXPECT_EQ(pumpgraph_replan(step_, &result, &error), PUMPGRAPH_DEVICE_LOST) << error.message;
  EXPECT_NE(std::string(error.message).find("CUDA_ERROR_ILLEGAL_ADDRESS"), std::string::npos) << error.message;
  EXPECT_TRUE(fake_.stopFailing(call)) << "it never came to that";
  EXPECT_EQ(pumpgraph_replay(step_, nullptr, &error), PUMPGRAPH_DEVICE_LOST);
}

INSTANTIATE_TEST_SUITE_P(Calls, LossTest,
                         ::testing::Combine(::testing::Values("cuStreamSynchronize", "cuGraphLaunch",
                                                              "cuCtxSynchronize", "cuMemcpyHtoDAsync",
                                                              "cuGraphInstantiateWithFlags"),
                                            ::testing::Values(1, 2, 3)));

// The driver, which may crash once its context is gone, is not asked any more.
TEST_F(LostDeviceTest, isLeftAlone) {
  fake_.failCall("cuGraphLaunch", 1, CUDA_ERROR_LAUNCH_FAILED);
  EXPECT_EQ(pumpgraph_replay(step_, nullptr, nullptr), PUMPGRAPH_DEVICE_LOST);
  const std::vector<const char *> symbols = {"cuCtxSynchronize", "cuGraphClone", "cuGraphLaunch",
                                             "cuMemMap",         "cuMemUnmap",   "cuStreamSynchronize"};
  std::vector<std::uint64_t> before;
  for (const char *symbol : symbols)
    before.push_back(fake_.callsOf(symbol));
  for (const auto &[name, call] : calls())
    call(nullptr);
  for (std::size_t i = 0; i < symbols.size(); ++i)
    EXPECT_EQ(fake_.callsOf(symbols[i]), before[i]) << symbols[i];
}

} // namespace
