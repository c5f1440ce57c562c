// SPDX-License-Identifier: Apache-2.0
// Kernels that are said to be pure, rightly and wrongly: what calibration and validation find of them.
#include "runtime/api/Handles.h"
#include "test/unit/runtime/Program.h"
#include "test/unit/runtime/TestTable.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <algorithm>

using namespace pumpgraph;
using namespace pumpgraph::runtime;
using namespace pumpgraph::runtime::test;

namespace {

using Word = std::uint64_t;

constexpr std::uint64_t bytes = 4 * pageBytes, wideBytes = 8 * pageBytes;
/// All but what the kernel makes, with a page for small allocations and one for what is aside. Then there is one page
/// of the other four.
constexpr std::uint64_t budgetPages = 4 + 8 + 1 + 1 + 1;
constexpr Word firstState = 7;

/// out[i] = in[i] * 3 + noise(*state), one word in each stride
FakeKernel &makeKernel() {
  static FakeKernel kernel{"make", {8, 8, 8, 8}, {}};
  return kernel;
}

/// *out += memory[0 ... bytes), one word in each stride
FakeKernel &sumKernel() {
  static FakeKernel kernel{"sum", {8, 8, 8}, [](const FakeKernel::Arguments &arguments) {
                             for (Word at = 0; at < argument<Word>(arguments, 2); at += Program::stride)
                               *argument<Word *>(arguments, 1) +=
                                   *reinterpret_cast<const Word *>(argument<char *>(arguments, 0) + at);
                           }};
  return kernel;
}

/// memory[0 ... bytes) = 2, one word in each stride
FakeKernel &spreadKernel() {
  static FakeKernel kernel{"spread", {8, 8}, [](const FakeKernel::Arguments &arguments) {
                             for (Word at = 0; at < argument<Word>(arguments, 1); at += Program::stride)
                               *reinterpret_cast<Word *>(argument<char *>(arguments, 0) + at) = 2;
                           }};
  return kernel;
}

/// A step whose first kernel is said to be pure. A plan under the budget runs it again unless it knows better.
class PurityTest : public ::testing::Test {
protected:
  enum class State { Read, Aside };
  /// Whether the kernel runs in another node too, and what it makes there is used.
  enum class Second { None, Read, Unread };

  PurityTest() {
    table_.add("sum", {reads(0, number(2)), updates(1, constant(8))});
    pumpgraph_register_access_table(&table_.table);
  }
  ~PurityTest() override { pumpgraph_unregister_access_table(&table_.table); }

  void SetUp() override {
    const std::string folder = folderWithLink(fake_);
    pumpgraph_session_options options{};
    options.struct_size = sizeof options;
    options.budget_bytes = budgetPages * pageBytes;
    options.compiler_library = PUMPGRAPH_COMPILER_LIBRARY;
    options.cache_directory = folder.c_str();
    Expected<std::unique_ptr<pumpgraph_session>> made = makeSession(options, fake_.table());
    ASSERT_TRUE(made) << messageOf(made);
    handle_ = std::move(*made);
    source_ = static_cast<char *>(allocate(bytes, "source"));
    ASSERT_TRUE(session().declarePrivate(source_));
    for (Word at = 0; at < bytes; at += Program::stride)
      *reinterpret_cast<Word *>(source_ + at) = at;
    sum_ = static_cast<Word *>(allocate(sizeof(Word), "sum"));
    state_ = static_cast<Word *>(allocate(sizeof(Word), "state"));
    *sum_ = 0;
    *state_ = firstState;
  }
  void TearDown() override { handle_.reset(); }

  Session &session() { return *handle_->session; }

  void *allocate(std::uint64_t size, const char *name, CUstream stream = nullptr) {
    const Expected<void *> made = session().allocate(size, stream, name);
    EXPECT_TRUE(made) << messageOf(made);
    return made ? *made : nullptr;
  }

  /// `noise`: what the kernel adds to all that it makes.
  void capture(const std::function<Word(Word *state)> &noise, State state, Second second = Second::None) {
    makeKernel().body = [this, noise](const FakeKernel::Arguments &arguments) {
      ++runs_;
      const Word added = noise(argument<Word *>(arguments, 2));
      for (Word at = 0; at < argument<Word>(arguments, 3); at += Program::stride)
        *reinterpret_cast<Word *>(argument<char *>(arguments, 1) + at) =
            *reinterpret_cast<const Word *>(argument<char *>(arguments, 0) + at) * 3 + added;
    };
    const CUstream stream = fake_.createStream();
    ASSERT_TRUE(session().captureBegin());
    ASSERT_TRUE(fake_.table()->streamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    void *out = allocate(bytes, "out", stream);
    const auto launch = [&](void *target, std::uint64_t size) {
      const auto address = [](void *pointer) { return reinterpret_cast<CUdeviceptr>(pointer); };
      fake_.launch(stream, makeKernel(), {bytesOf(source_), bytesOf(target), bytesOf(state_), bytesOf(size)});
      ASSERT_TRUE(session().declareOperation(stream, OperationKind::Pure));
      ASSERT_TRUE(session().nameNodes(stream, "layer"));
      std::vector<CUdeviceptr> reads{address(source_)};
      if (state == State::Read)
        reads.push_back(address(state_));
      ASSERT_TRUE(session().declareReads(stream, reads));
      if (state == State::Aside) {
        ASSERT_TRUE(session().declareAside(stream, {address(state_)}));
      }
    };
    launch(out, bytes);
    const auto add = [&](void *memory, std::uint64_t size) {
      fake_.launch(stream, sumKernel(), {bytesOf(memory), bytesOf(sum_), bytesOf(size)});
    };
    add(out, bytes);
    if (second != Second::None) {
      void *other = allocate(pageBytes, "other", stream);
      launch(other, pageBytes);
      if (second == Second::Read)
        add(other, pageBytes);
      ASSERT_TRUE(session().free(other, stream));
    }
    void *wide = allocate(wideBytes, "wide", stream);
    fake_.launch(stream, spreadKernel(), {bytesOf(wide), bytesOf(wideBytes)});
    add(wide, wideBytes);
    ASSERT_TRUE(session().free(wide, stream));
    add(out, bytes);
    ASSERT_TRUE(session().free(out, stream));
    ASSERT_TRUE(fake_.table()->streamEndCapture(stream, &graph_));
    ASSERT_TRUE(session().captureEnd());
  }

  Step *adopt(bool calibrate, RematerializeChoice rematerialize = RematerializeChoice::Automatic) {
    const Expected<Step *> step =
        session().adopt(graph_, {.keepFirstPlan = true, .calibrate = calibrate, .rematerialize = rematerialize});
    EXPECT_TRUE(step) << messageOf(step);
    return step ? *step : nullptr;
  }

  /// Calibration takes the kernel's purity, and validation of a step that was not calibrated says why, both with `why`.
  void expectFound(const std::function<Word(Word *)> &noise, State state, const std::string &why) {
    capture(noise, state);
    const std::string text = "\"make\" is said to be pure, but of node 0 (layer) " + why;
    Step *step = adopt(true);
    ASSERT_TRUE(step);
    expectUntouched();
    EXPECT_EQ(repetitionsOf(step), 0u);
    EXPECT_TRUE(hasNote(step, text + "; no plan runs it again")) << step->report();
    session().destroy(step);
    fake_.destroyGraph(graph_);

    capture(noise, state);
    step = adopt(false);
    ASSERT_TRUE(step);
    ASSERT_EQ(repetitionsOf(step), 1u);
    const Expected<Validation> validation = step->validate();
    ASSERT_TRUE(validation) << messageOf(validation);
    EXPECT_GT(validation->differentBuffers + validation->unstableBuffers, 0u);
    EXPECT_EQ(validation->impureNodes, 1u);
    EXPECT_EQ(validation->impure, text + ", and the plan runs 1 of its nodes again");
    expectUntouched();
    pumpgraph_step ofStep{handle_.get(), step};
    pumpgraph_validation result{};
    result.struct_size = sizeof result;
    pumpgraph_error error{};
    EXPECT_EQ(pumpgraph_validate(&ofStep, &result, &error), PUMPGRAPH_MISMATCH);
    EXPECT_NE(std::string(error.message).find(text), std::string::npos) << error.message;
    EXPECT_EQ(std::string(result.impure).find(text), 0u) << result.impure;
    EXPECT_EQ(result.impure_nodes, 1u);
    expectUntouched();
  }

  void expectUntouched() {
    EXPECT_EQ(*state_, firstState);
    EXPECT_EQ(*sum_, 0u);
    ASSERT_TRUE(session().emptyCache()); // which gives back what was released
    EXPECT_EQ(fake_.hostBackings(), 0u);
  }

  static nlohmann::json runtimeOf(Step *step) { return nlohmann::json::parse(step->report()).at("runtime"); }
  static std::uint64_t repetitionsOf(Step *step) { return runtimeOf(step).at("repetitions"); }
  static bool hasNote(Step *step, const std::string &text) {
    const nlohmann::json notes = runtimeOf(step).at("notes");
    return std::any_of(notes.begin(), notes.end(), [&](const nlohmann::json &note) {
      return note.get<std::string>().find(text) != std::string::npos;
    });
  }

  TestTable table_;
  FakeDriver fake_;
  std::unique_ptr<pumpgraph_session> handle_;
  char *source_ = nullptr;
  Word *sum_ = nullptr, *state_ = nullptr;
  CUgraph graph_ = nullptr;
  int runs_ = 0;
};

TEST_F(PurityTest, aKernelThatCountsUpInMemoryOfItsOwnIsFound) {
  Word hidden = 0;
  expectFound([&](Word *) { return ++hidden; }, State::Read, "\"out\"[0, 8388608] comes out otherwise in a second run");
}

TEST_F(PurityTest, aKernelThatAddsUpInAnotherOrderEachTimeIsFound) {
  std::array<float, 3> terms{1e8F, 1, -1e8F};
  const auto sum = [&](Word *) {
    std::rotate(terms.begin(), terms.begin() + 1, terms.end());
    volatile float added = 0;
    for (const float term : terms)
      added = added + term;
    return static_cast<Word>(added);
  };
  expectFound(sum, State::Read, "\"out\"[0, 8388608] comes out otherwise in a second run");
}

TEST_F(PurityTest, aKernelThatDrawsFromAStateIsFound) {
  expectFound([](Word *state) { return (*state)++; }, State::Read,
              "\"sum+1 small\"[512, 512] is written, though it is only said to be read");
}

TEST_F(PurityTest, aKernelWhoseResultsDependOnWhatIsAsideIsFound) {
  expectFound([](Word *state) { return (*state)++; }, State::Aside,
              "\"out\"[0, 8388608] depends on what the node is said to update besides");
}

TEST_F(PurityTest, whatIsPureIsRunAgain) {
  for (const State state : {State::Read, State::Aside})
    for (const bool calibrates : {true, false}) {
      capture(
          [&](Word *word) {
            if (state == State::Aside)
              *word += 5;
            return state == State::Aside ? 1 : *word;
          },
          state);
      Step *step = adopt(calibrates);
      ASSERT_TRUE(step);
      expectUntouched();
      EXPECT_EQ(repetitionsOf(step), 1u);
      EXPECT_FALSE(hasNote(step, "said to be pure")) << step->report();
      EXPECT_EQ(hasNote(step, ", 1 pure nodes run a second time"), calibrates);
      const Expected<Validation> validation = step->validate();
      ASSERT_TRUE(validation) << messageOf(validation);
      EXPECT_EQ(validation->differentBuffers + validation->unstableBuffers + validation->impureNodes, 0u)
          << validation->firstDifference;
      EXPECT_EQ(validation->impure, "");
      expectUntouched();
      replay(step, 1);
      EXPECT_EQ(*state_, state == State::Aside ? firstState + 5 : firstState);
      *state_ = firstState;
      *sum_ = 0;
      session().destroy(step);
      fake_.destroyGraph(graph_);
    }
}

// Where no plan may run it again nobody asks.
TEST_F(PurityTest, runsNothingTwiceForPlansThatRepeatNothing) {
  capture([](Word *) { return 1; }, State::Read);
  ASSERT_TRUE(adopt(true, RematerializeChoice::Never));
  EXPECT_EQ(runs_, 1);
}

// What one node shows is true of its kernel.
TEST_F(PurityTest, allNodesOfAKernelLoseTheirPurity) {
  Word hidden = 0;
  capture([&](Word *) { return runs_ < 3 ? 1 : ++hidden; }, State::Read, Second::Read);
  Step *step = adopt(true);
  ASSERT_TRUE(step);
  EXPECT_TRUE(hasNote(step, "of node 2 (layer) \"other\"[0, 2097152] comes out otherwise in a second run; no plan runs "
                            "its 2 nodes again"))
      << step->report();
  EXPECT_EQ(repetitionsOf(step), 0u);
}

// Of a workspace, say, nobody reads what is left there.
TEST_F(PurityTest, whatNobodyReadsIsNotCompared) {
  Word hidden = 0;
  capture([&](Word *) { return runs_ < 3 ? 1 : ++hidden; }, State::Read, Second::Unread);
  Step *step = adopt(true);
  ASSERT_TRUE(step);
  EXPECT_FALSE(hasNote(step, "said to be pure")) << step->report();
  EXPECT_EQ(repetitionsOf(step), 1u);
}

// Without the means the declaration is believed, and the report says so.
TEST_F(PurityTest, saysSoWhereNothingCanBeCompared) {
  capture([](Word *) { return 1; }, State::Read);
  fake_.failCall("cuModuleLoadData", 1, CUDA_ERROR_NO_BINARY_FOR_GPU);
  Step *step = adopt(true);
  ASSERT_TRUE(step);
  EXPECT_EQ(runs_, 1);
  EXPECT_EQ(repetitionsOf(step), 1u);
  EXPECT_TRUE(hasNote(step, "no node that is said to be pure was run a second time to see whether it is: loading the "
                            "kernels that compare memory"))
      << step->report();
}

TEST_F(PurityTest, aFailureLeavesContentsAndMemory) {
  capture([](Word *state) { return (*state)++; }, State::Aside);
  const std::string before = fake_.print(graph_);
  const std::uint64_t allocations = session().statistics().live.liveAllocations;
  for (const auto &[call, nth] : {std::pair("cuGraphCreate", 1),
                                  {"cuLaunchKernel", 1},
                                  {"cuLaunchKernel", 4},
                                  {"cuGraphLaunch", 1},
                                  {"cuGraphLaunch", 3}}) {
    fake_.failCall(call, nth, CUDA_ERROR_UNKNOWN);
    const Expected<Step *> step = session().adopt(graph_, {.calibrate = true});
    EXPECT_TRUE(fake_.stopFailing(call)) << call;
    ASSERT_FALSE(step) << call;
    EXPECT_EQ(fake_.print(graph_), before) << call;
    EXPECT_EQ(session().statistics().live.liveAllocations, allocations) << call;
    expectUntouched();
  }
  Step *step = adopt(true);
  ASSERT_TRUE(step);
  EXPECT_EQ(repetitionsOf(step), 0u);
  replay(step, 1);
  EXPECT_EQ(*state_, firstState + 1);
}

} // namespace
