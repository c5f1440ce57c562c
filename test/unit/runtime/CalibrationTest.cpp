// SPDX-License-Identifier: Apache-2.0
// Tables of addresses that kernels of the step write: calibration finds them, whatever overwrites them later.
#include "test/unit/runtime/Program.h"

#include <gtest/gtest.h>

#include <fstream>

using namespace pumpgraph;
using namespace pumpgraph::runtime;
using namespace pumpgraph::runtime::test;

namespace {

using Word = std::uint64_t;

/// table[0] = address of `target`, which is computed from that of something else.
FakeKernel &storeAddress() {
  static FakeKernel kernel{"store_address", {8, 8, 8}, [](const FakeKernel::Arguments &arguments) {
                             *argument<Word *>(arguments, 0) =
                                 argument<Word>(arguments, 1) + argument<Word>(arguments, 2);
                           }};
  return kernel;
}
/// **table = the value
FakeKernel &storeThrough() {
  static FakeKernel kernel{"store_through", {8, 8}, [](const FakeKernel::Arguments &arguments) {
                             **argument<Word **>(arguments, 0) = argument<Word>(arguments, 1);
                           }};
  return kernel;
}
/// *out = **table
FakeKernel &loadThrough() {
  static FakeKernel kernel{"load_through", {8, 8}, [](const FakeKernel::Arguments &arguments) {
                             *argument<Word *>(arguments, 1) = **argument<Word **>(arguments, 0);
                           }};
  return kernel;
}

/// A step whose kernels write and read `hidden` through a table, with fillers between that need its frames.
class CalibrationTest : public ::testing::Test {
protected:
  static constexpr std::uint64_t budgetPages = 12;
  static constexpr Word secret = 4711;

  void SetUp() override { open(); }

  void open(std::uint64_t hostLimitBytes = 0) {
    session_.reset();
    Expected<std::unique_ptr<Session>> made =
        openSession(fake_, budgetPages, PUMPGRAPH_COMPILER_LIBRARY, hostLimitBytes);
    ASSERT_TRUE(made) << messageOf(made);
    session_ = std::move(*made);
    result_ = allocate(64, "result");
    *static_cast<Word *>(result_) = 1;
  }

  void *allocate(std::uint64_t bytes, const std::string &name) {
    const Expected<void *> made = session_->allocate(bytes, nullptr, name);
    EXPECT_TRUE(made) << messageOf(made);
    return made ? *made : nullptr;
  }

  void kernel(FakeKernel &what, const std::vector<std::vector<char>> &arguments) {
    last_ = last_ ? fake_.addKernel(graph_, {last_}, what, arguments) : fake_.addKernel(graph_, {}, what, arguments);
  }
  void fill(void *target, unsigned char value, std::uint64_t bytes) {
    last_ =
        last_ ? fake_.addFill(graph_, {last_}, target, value, bytes) : fake_.addFill(graph_, {}, target, value, bytes);
  }

  /// `hidden` is touched by name first and last, and through the table between. The table is overwritten in the end.
  void record(bool hostNode = false) {
    graph_ = fake_.createGraph();
    ASSERT_TRUE(session_->captureBegin());
    void *table = table_ ? table_ : allocate(2 * pageBytes, "table"), *hidden = allocate(4 * pageBytes, "hidden");
    fill(hidden, 0, 4 * pageBytes);
    const std::int64_t distance = static_cast<char *>(hidden) - static_cast<char *>(table);
    kernel(storeAddress(), {bytesOf(table), bytesOf(table), bytesOf(distance)});
    reach(hidden);
    for (int i = 0; i < 3; ++i) {
      void *filler = allocate(6 * pageBytes, "filler");
      fill(filler, 9, 6 * pageBytes);
      reach(nullptr);
      kernel(storeThrough(), {bytesOf(table), bytesOf(secret)});
      reach(hidden);
      EXPECT_TRUE(session_->free(filler, nullptr));
    }
    kernel(loadThrough(), {bytesOf(table), bytesOf(result_)});
    reach(declaresTheLast_ ? hidden : nullptr);
    fill(hidden, 7, 4 * pageBytes); // by its name: the planner knows of this use
    fill(table, 0, 2 * pageBytes);
    if (hostNode)
      fake_.addPlain(graph_, {last_}, CU_GRAPH_NODE_TYPE_HOST);
    if (!table_) {
      EXPECT_TRUE(session_->free(table, nullptr));
    }
    EXPECT_TRUE(session_->free(hidden, nullptr));
    ASSERT_TRUE(session_->captureEnd());
  }
  /// The nodes since the last call reach this by addresses in memory.
  void reach(void *what) {
    if (!declares_)
      return;
    const NodeReach reached{
        {}, what ? std::vector<CUdeviceptr>{reinterpret_cast<CUdeviceptr>(what)} : std::vector<CUdeviceptr>{}};
    EXPECT_TRUE(session_->declareReach(graph_, reached));
  }

  Step *adopt(bool calibrate) {
    const Expected<Step *> step = session_->adopt(graph_, {.keepFirstPlan = true, .calibrate = calibrate});
    EXPECT_TRUE(step) << messageOf(step);
    return step ? *step : nullptr;
  }

  static bool isPrivate(Step *step, const std::string &name) {
    const std::string path = ::testing::TempDir() + "/calibration-test.mlir";
    EXPECT_TRUE(step->save(path));
    std::ifstream file(path);
    for (std::string line; std::getline(file, line);)
      if (line.find("pump.buffer \"" + name + "\"") != std::string::npos)
        return line.find("private") != std::string::npos;
    ADD_FAILURE() << "no buffer " << name;
    return false;
  }

  FakeDriver fake_;
  std::unique_ptr<Session> session_;
  void *result_ = nullptr;
  CUgraph graph_ = nullptr;
  CUgraphNode last_ = nullptr;
  void *table_ = nullptr; ///< of the program, in place of the step's
  bool declares_ = false, declaresTheLast_ = true;
};

TEST_F(CalibrationTest, keepsOnTheDeviceWhatTheStepsOwnTablesName) {
  record();
  Step *step = adopt(true);
  ASSERT_TRUE(step);
  EXPECT_FALSE(isPrivate(step, "hidden"));
  EXPECT_TRUE(isPrivate(step, "table"));
  EXPECT_NE(step->report().find("\\\"table\\\" holds 1 addresses"), std::string::npos) << step->report();
  ASSERT_TRUE(step->replay(nullptr));
  EXPECT_EQ(*static_cast<Word *>(result_), secret);
  EXPECT_LE(fake_.deviceFrames(), budgetPages + 1);
}

// Whoever follows the table says where it leads: then the target is there when it is needed, and elsewhere between.
TEST_F(CalibrationTest, reachedMemoryMayMove) {
  declares_ = true;
  record();
  Step *step = adopt(true);
  ASSERT_TRUE(step);
  EXPECT_TRUE(isPrivate(step, "hidden"));
  for (int replay = 0; replay < 3; ++replay) {
    *static_cast<Word *>(result_) = 1;
    ASSERT_TRUE(step->replay(nullptr));
    EXPECT_EQ(*static_cast<Word *>(result_), secret);
  }
  EXPECT_LE(fake_.deviceFrames(), budgetPages + 1);
}

// Whoever comes to the table by another table goes on to its targets, and says nothing of them.
TEST_F(CalibrationTest, memoryBehindATableThatAnotherTableNamesStays) {
  static FakeKernel loadTwice{"load_twice", {8, 8}, [](const FakeKernel::Arguments &arguments) {
                                *argument<Word *>(arguments, 1) = ***argument<Word ***>(arguments, 0);
                              }};
  declares_ = true;
  graph_ = fake_.createGraph();
  ASSERT_TRUE(session_->captureBegin());
  void *outer = allocate(64, "outer"), *table = allocate(2 * pageBytes, "table"),
       *hidden = allocate(4 * pageBytes, "hidden");
  fill(hidden, 0, 4 * pageBytes);
  reach(nullptr);
  kernel(storeAddress(), {bytesOf(table), bytesOf(hidden), bytesOf(Word{0})});
  kernel(storeThrough(), {bytesOf(table), bytesOf(secret)});
  reach(hidden);
  kernel(storeAddress(), {bytesOf(outer), bytesOf(nullptr), bytesOf(table)});
  void *filler = allocate(6 * pageBytes, "filler");
  fill(filler, 9, 6 * pageBytes);
  kernel(loadTwice, {bytesOf(outer), bytesOf(result_)});
  reach(nullptr);
  for (void *pointer : {outer, table, hidden, filler})
    EXPECT_TRUE(session_->free(pointer, nullptr));
  ASSERT_TRUE(session_->captureEnd());
  Step *step = adopt(true);
  ASSERT_TRUE(step);
  EXPECT_FALSE(isPrivate(step, "table"));
  EXPECT_FALSE(isPrivate(step, "hidden"));
  ASSERT_TRUE(step->replay(nullptr));
  EXPECT_EQ(*static_cast<Word *>(result_), secret);
}

// The declarations of a rehearsal hold for the allocations that stand in their places in the second capture.
TEST_F(CalibrationTest, reachedMemoryOfARehearsal) {
  declares_ = true;
  record();
  ASSERT_TRUE(session_->rehearse(graph_));
  void *between = allocate(3 * pageBytes, "between"); // other addresses in the second capture
  last_ = nullptr;
  declares_ = false;
  record();
  Step *step = adopt(true);
  ASSERT_TRUE(step);
  EXPECT_TRUE(isPrivate(step, "hidden"));
  ASSERT_TRUE(step->replay(nullptr));
  EXPECT_EQ(*static_cast<Word *>(result_), secret);
  EXPECT_TRUE(session_->free(between, nullptr));
}

TEST_F(CalibrationTest, memoryThatOneReaderOfTheTableDoesNotReachStays) {
  declares_ = true;
  declaresTheLast_ = false;
  record();
  Step *step = adopt(true);
  ASSERT_TRUE(step);
  EXPECT_FALSE(isPrivate(step, "hidden"));
  ASSERT_TRUE(step->replay(nullptr));
  EXPECT_EQ(*static_cast<Word *>(result_), secret);
}

// Others may follow a table that outlives the step.
TEST_F(CalibrationTest, memoryThatALastingTableNamesStays) {
  declares_ = true;
  table_ = allocate(2 * pageBytes, "table");
  record();
  Step *step = adopt(true);
  ASSERT_TRUE(step);
  EXPECT_FALSE(isPrivate(step, "hidden"));
}

// The same of a table that a copy brings from the host, without calibration: PyTorch's copies of many tensors.
TEST_F(CalibrationTest, memoryNamedByAnUploadedTableMayMoveIfItIsReached) {
  for (const bool isReached : {false, true}) {
    open();
    graph_ = fake_.createGraph();
    last_ = nullptr;
    ASSERT_TRUE(session_->captureBegin());
    void *table = allocate(64, "table"), *hidden = allocate(4 * pageBytes, "hidden");
    auto host = std::make_unique<Word>(reinterpret_cast<Word>(hidden));
    fill(hidden, 0, 4 * pageBytes);
    last_ = fake_.addCopy(graph_, {last_}, table, host.get(), sizeof *host);
    declares_ = true;
    reach(nullptr);
    kernel(storeThrough(), {bytesOf(table), bytesOf(secret)});
    reach(isReached ? hidden : nullptr);
    void *filler = allocate(6 * pageBytes, "filler");
    fill(filler, 9, 6 * pageBytes);
    reach(nullptr);
    kernel(loadThrough(), {bytesOf(table), bytesOf(result_)});
    reach(isReached ? hidden : nullptr);
    for (void *pointer : {table, hidden, filler})
      EXPECT_TRUE(session_->free(pointer, nullptr));
    ASSERT_TRUE(session_->captureEnd());
    const Expected<Step *> step = session_->adopt(graph_, {.keepFirstPlan = true});
    ASSERT_TRUE(step) << messageOf(step);
    EXPECT_EQ(isPrivate(*step, "hidden"), isReached);
    ASSERT_TRUE((*step)->replay(nullptr));
    EXPECT_EQ(*static_cast<Word *>(result_), secret);
  }
}

// An address in memory that is free, or behind the end of an allocation, is nobody's to follow.
TEST_F(CalibrationTest, remainsOfTablesKeepNothingInPlace) {
  auto *stale = static_cast<Word *>(allocate(64, "stale")), *rest = static_cast<Word *>(allocate(8, "rest"));
  void *hidden = allocate(4 * pageBytes, "kept");
  ASSERT_TRUE(session_->declarePrivate(hidden));
  *stale = rest[1] = reinterpret_cast<Word>(hidden);
  EXPECT_TRUE(session_->free(stale, nullptr));
  graph_ = fake_.createGraph();
  ASSERT_TRUE(session_->captureBegin());
  fill(hidden, 0, 4 * pageBytes);
  kernel(loadThrough(), {bytesOf(rest), bytesOf(result_)}); // touches the block of all three
  ASSERT_TRUE(session_->captureEnd());
  Step *step = adopt(false);
  ASSERT_TRUE(step);
  EXPECT_TRUE(isPrivate(step, "kept"));
  session_->destroy(step);

  *rest = reinterpret_cast<Word>(hidden); // its twin: now it is a value
  ASSERT_TRUE(session_->captureBegin());
  ASSERT_TRUE(session_->captureEnd());
  step = adopt(false);
  ASSERT_TRUE(step);
  EXPECT_FALSE(isPrivate(step, "kept"));
}

// The negative twin: without it the planner gives the frames of `hidden` away between its two known uses.
TEST_F(CalibrationTest, withoutItTheTableIsNotSeen) {
  record();
  Step *step = adopt(false);
  ASSERT_TRUE(step);
  EXPECT_TRUE(isPrivate(step, "hidden"));
}

// A temporary that holds an address of its own may leave, but come back nowhere else.
TEST_F(CalibrationTest, findsWhatHoldsItsOwnAddress) {
  const auto capture = [&] {
    graph_ = fake_.createGraph();
    last_ = nullptr;
    ASSERT_TRUE(session_->captureBegin());
    void *own = allocate(pageBytes, "own"), *other = allocate(pageBytes, "other");
    kernel(storeAddress(), {bytesOf(own), bytesOf(own), bytesOf(std::int64_t{64})});
    kernel(storeAddress(), {bytesOf(other), bytesOf(nullptr), bytesOf(std::int64_t{64})});
    EXPECT_TRUE(session_->free(own, nullptr));
    EXPECT_TRUE(session_->free(other, nullptr));
    ASSERT_TRUE(session_->captureEnd());
  };
  for (const bool calibrates : {false, true}) {
    capture();
    ASSERT_TRUE(session_->rehearse(graph_));
    fake_.destroyGraph(graph_);
    capture();
    const Step *step = adopt(calibrates);
    ASSERT_TRUE(step);
    ASSERT_EQ(step->captured().buffers.size(), 2u);
    EXPECT_TRUE(step->captured().buffers[0].isPrivate);
    EXPECT_EQ(step->captured().buffers[0].isRenamable, !calibrates);
    EXPECT_TRUE(step->captured().buffers[1].isRenamable);
  }
}

// Calibration runs the step, partly in host memory; nobody may notice.
TEST_F(CalibrationTest, leavesContentsAndMemoryAsTheyWere) {
  record();
  const std::uint64_t backingsMade = fake_.callsOf("cuMemCreate");
  ASSERT_TRUE(adopt(true));
  EXPECT_EQ(*static_cast<Word *>(result_), 1u);
  EXPECT_GT(fake_.callsOf("cuMemCreate"), backingsMade);
  ASSERT_TRUE(session_->emptyCache()); // which gives back what was released
  EXPECT_EQ(fake_.hostBackings(), 0u);
  EXPECT_EQ(session_->statistics().hostBackedBytes, 0u);
}

// All buffers at once are 25 pages, the budget is 12.
TEST_F(CalibrationTest, saysSoWhereThereIsNoRoomForEveryBuffer) {
  constexpr std::uint64_t staging = 8 * pageBytes;
  open(staging + 10 * pageBytes);
  record();
  const std::string before = fake_.print(graph_);
  const Expected<Step *> step = session_->adopt(graph_, {.keepFirstPlan = true, .calibrate = true});
  ASSERT_FALSE(step);
  EXPECT_EQ(step.error().status, PUMPGRAPH_OUT_OF_HOST_MEMORY) << step.error().message;
  EXPECT_NE(step.error().message.find("giving every buffer memory to calibrate"), std::string::npos)
      << step.error().message;
  EXPECT_EQ(fake_.print(graph_), before);
  EXPECT_EQ(*static_cast<Word *>(result_), 1u);
  EXPECT_EQ(fake_.hostBackings(), 0u);
  EXPECT_EQ(session_->statistics().hostBackedBytes, 0u);
  EXPECT_TRUE(adopt(false)); // there was room enough for a plan
}

// A host function would be called for nothing, and without a run the table is not found.
TEST_F(CalibrationTest, leavesAStepWithAHostFunction) {
  record(true);
  Step *step = adopt(true);
  ASSERT_TRUE(step);
  EXPECT_FALSE(step->rewritten());
  EXPECT_NE(step->report().find("it cannot be calibrated, for a run could not be undone: it calls a host function"),
            std::string::npos)
      << step->report();
}

TEST_F(CalibrationTest, aFailureLeavesTheGraphAndTheContents) {
  record();
  const std::string before = fake_.print(graph_);
  for (const char *call :
       {"cuGraphDestroyNode", "cuGraphInstantiateWithFlags", "cuGraphLaunch", "cuGraphClone", "cuMemcpyDtoHAsync"}) {
    fake_.failCall(call, 2, CUDA_ERROR_UNKNOWN);
    const Expected<Step *> step = session_->adopt(graph_, {.calibrate = true});
    fake_.stopFailing(call);
    ASSERT_FALSE(step) << call;
    EXPECT_EQ(fake_.print(graph_), before) << call;
    EXPECT_EQ(*static_cast<Word *>(result_), 1u) << call;
    ASSERT_TRUE(session_->emptyCache());
    EXPECT_EQ(fake_.hostBackings(), 0u) << call;
  }
  Step *step = adopt(true);
  ASSERT_TRUE(step);
  ASSERT_TRUE(step->replay(nullptr));
  EXPECT_EQ(*static_cast<Word *>(result_), secret);
}

TEST_F(CalibrationTest, namesTheNodesThatCannotBeRun) {
  record();
  fake_.failCall("cuGraphLaunch", 2, CUDA_ERROR_NOT_SUPPORTED);
  const Expected<Step *> step = session_->adopt(graph_, {.calibrate = true});
  ASSERT_FALSE(step);
  EXPECT_NE(step.error().message.find("running the part of nodes 3 to 4"), std::string::npos) << step.error().message;
}

} // namespace
