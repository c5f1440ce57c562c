// SPDX-License-Identifier: Apache-2.0
// What access tables buy: the same step with and without them, whole ways on the fake driver.
#include "pumpgraph/pumpgraph.h"
#include "test/unit/runtime/Program.h"
#include "test/unit/runtime/TestTable.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

using namespace pumpgraph;
using namespace pumpgraph::runtime;
using namespace pumpgraph::runtime::test;

namespace {

/// What a plan moves in a step, and what it keeps in host memory.
struct Moved {
  std::uint64_t up = 0, down = 0, hosted = 0;
};

/// out[0] += rows[0 ... bytes): sum over a slice.
FakeKernel &sumKernel() {
  static FakeKernel kernel{
      "sum", {8, 8, 8}, [](const FakeKernel::Arguments &arguments) {
        const char *rows = argument<char *>(arguments, 0);
        for (std::uint64_t at = 0; at < argument<std::uint64_t>(arguments, 2); at += Program::stride)
          *argument<std::uint64_t *>(arguments, 1) += *reinterpret_cast<const std::uint64_t *>(rows + at);
      }};
  return kernel;
}

/// Sets every word of a slice.
FakeKernel &setKernel() {
  static FakeKernel kernel{"set", {8, 8, 8}, [](const FakeKernel::Arguments &arguments) {
                             auto *words = argument<std::uint64_t *>(arguments, 0);
                             std::fill_n(words, argument<std::uint64_t>(arguments, 2) / sizeof(std::uint64_t),
                                         argument<std::uint64_t>(arguments, 1));
                           }};
  return kernel;
}

class TabledStepTest : public ::testing::Test {
protected:
  ~TabledStepTest() override { forgetTable(); }

  void registerTable() {
    pumpgraph_register_access_table(&table_.table);
    isRegistered_ = true;
  }
  void forgetTable() {
    if (std::exchange(isRegistered_, false))
      pumpgraph_unregister_access_table(&table_.table);
  }

  void open(std::uint64_t budgetPages) {
    Expected<std::unique_ptr<Session>> made = openSession(fake_, budgetPages, PUMPGRAPH_COMPILER_LIBRARY);
    ASSERT_TRUE(made) << messageOf(made);
    session_ = std::move(*made);
  }
  void close(CUgraph graph) {
    session_.reset();
    fake_.destroyGraph(graph);
  }

  Step *adopt(CUgraph graph) {
    AdoptOptions options;
    options.keepFirstPlan = true;
    const Expected<Step *> step = session_->adopt(graph, options);
    EXPECT_TRUE(step) << messageOf(step);
    return step ? *step : nullptr;
  }

  static Moved movedBy(Step *step) {
    const nlohmann::json report = nlohmann::json::parse(step->report());
    return {report.at("up_bytes"), report.at("down_bytes"), report.at("hosted_bytes")};
  }
  static nlohmann::json notesOf(Step *step) { return nlohmann::json::parse(step->report()).at("runtime").at("notes"); }

  /// Every replayed step agrees with the captured one, frames filled with garbage between two tenants.
  static void expectValid(Step *step) {
    const Expected<Validation> validation = step->validate();
    ASSERT_TRUE(validation) << messageOf(validation);
    EXPECT_EQ(validation->differentBuffers, 0u) << validation->firstDifference;
    EXPECT_GT(validation->comparedBuffers, 0u);
  }

  FakeDriver fake_;
  std::unique_ptr<Session> session_;
  TestTable table_;

private:
  bool isRegistered_ = false;
};

// A training step whose kernels only read what they are given, and overwrite what they make: it computes the same, and
// what is known of it allows for faster plans.
TEST_F(TabledStepTest, computesTheSame) {
  table_.add("forward", {reads(0, number(3)), reads(1, number(4)), overwrites(2, number(3))})
      .add("backward", {reads(0, number(4)), reads(1, number(4)), updates(2, number(5)), overwrites(3, number(4))})
      .add("loss", {reads(0, constant(8)), updates(1, constant(8))});
  constexpr std::uint64_t budgetPages = 19;
  const auto planBoundOf = [&] {
    open(budgetPages);
    Program program(fake_, *session_, {});
    program.prepare();
    const CUgraph graph = program.record();
    Step *step = adopt(graph);
    EXPECT_TRUE(step);
    double seconds = 0;
    if (step) {
      seconds = nlohmann::json::parse(step->report()).at("plan_bound_s");
      replay(step, 3);
      EXPECT_EQ(program.loss(), program.expectedLoss(3));
      EXPECT_EQ(program.weights(), program.expectedWeights(3));
      expectValid(step);
      replay(step, 1);
      EXPECT_EQ(program.weights(), program.expectedWeights(4));
    }
    close(graph);
    return seconds;
  };
  const double without = planBoundOf();
  registerTable();
  EXPECT_LT(planBoundOf(), 0.9 * without);
}

// Weights that nobody writes, read twice a step: they are brought in, and never written back.
TEST_F(TabledStepTest, writesNothingBackThatIsOnlyRead) {
  table_.add("sum", {reads(0, number(2)), updates(1, constant(8))});
  constexpr std::uint64_t weightBytes = 2 * pageBytes;
  constexpr int weights = 6, passes = 2;
  const auto run = [&] {
    open(8);
    auto *result = static_cast<std::uint64_t *>(*session_->allocate(8, nullptr, "result"));
    *result = 0;
    std::vector<void *> pointers;
    for (std::uint64_t weight = 0; weight < weights; ++weight) {
      pointers.push_back(*session_->allocate(weightBytes, nullptr, fmt::format("weight{}", weight)));
      *static_cast<std::uint64_t *>(pointers.back()) = weight + 1;
      EXPECT_TRUE(session_->declarePrivate(pointers.back()));
    }
    const CUgraph graph = fake_.createGraph();
    EXPECT_TRUE(session_->captureBegin());
    CUgraphNode last = fake_.addFill(graph, {}, result, 0, 8);
    for (int pass = 0; pass < passes; ++pass)
      for (void *weight : pointers)
        last = fake_.addKernel(graph, {last}, sumKernel(), {bytesOf(weight), bytesOf(result), bytesOf(weightBytes)});
    EXPECT_TRUE(session_->captureEnd());
    Step *step = adopt(graph);
    Moved moved;
    if (step) {
      moved = movedBy(step);
      replay(step, 2);
      EXPECT_EQ(*result, passes * (1u + 2 + 3 + 4 + 5 + 6));
      expectValid(step);
    }
    close(graph);
    return moved;
  };
  const Moved without = run();
  EXPECT_EQ(without.down, without.up); // as far as anybody knows, everything was changed
  EXPECT_GT(without.down, 0u);
  registerTable();
  const Moved with = run();
  EXPECT_LE(with.up, without.up);
  EXPECT_EQ(with.down, 0u);
}

/// Steps whose kernels look at slices of one large buffer.
class SlicedStepTest : public TabledStepTest {
protected:
  static constexpr std::uint64_t slices = 6, slicePages = 2, sliceBytes = slicePages * pageBytes;

  /// The step that launches `kernel` on each of the buffer's slices in turn.
  Step *sliced(FakeKernel &kernel, std::uint64_t budgetPages) {
    open(budgetPages);
    rows_ = static_cast<char *>(*session_->allocate(slices * sliceBytes, nullptr, "rows"));
    result_ = static_cast<std::uint64_t *>(*session_->allocate(8, nullptr, "result"));
    *result_ = 0;
    for (std::uint64_t at = 0; at < slices * sliceBytes; at += Program::stride)
      *reinterpret_cast<std::uint64_t *>(rows_ + at) = at;
    EXPECT_TRUE(session_->declarePrivate(rows_));
    graph_ = fake_.createGraph();
    EXPECT_TRUE(session_->captureBegin());
    CUgraphNode last = nullptr;
    for (std::uint64_t slice = 0; slice < slices; ++slice) {
      const std::vector<char> second = &kernel == &sumKernel() ? bytesOf(result_) : bytesOf(slice + 1);
      const std::vector<std::vector<char>> arguments{bytesOf(rows_ + slice * sliceBytes), second, bytesOf(sliceBytes)};
      last = last ? fake_.addKernel(graph_, {last}, kernel, arguments) : fake_.addKernel(graph_, {}, kernel, arguments);
    }
    EXPECT_TRUE(session_->captureEnd());
    return adopt(graph_);
  }

  char *rows_ = nullptr;
  std::uint64_t *result_ = nullptr;
  CUgraph graph_ = nullptr;
};

// A kernel that reads a slice of a large buffer needs the pages of that slice alone. Without a table the buffer as a
// whole exceeds the budget, and what does is read in host memory.
TEST_F(SlicedStepTest, bringsInASliceAtATime) {
  table_.add("sum", {reads(0, number(2)), updates(1, constant(8))});
  constexpr std::uint64_t budgetPages = 7; // one is the result's
  std::uint64_t expected = 0;
  for (std::uint64_t at = 0; at < slices * sliceBytes; at += Program::stride)
    expected += at;
  const auto run = [&] {
    Step *step = sliced(sumKernel(), budgetPages);
    Moved moved;
    if (step) {
      moved = movedBy(step);
      replay(step, 2);
      EXPECT_EQ(*result_, 2 * expected);
      expectValid(step);
    }
    close(graph_);
    return moved;
  };
  const Moved without = run();
  EXPECT_GT(without.hosted, 0u);
  registerTable();
  const Moved with = run();
  EXPECT_EQ(with.hosted, 0u);
  EXPECT_GT(with.up, 0u);
  EXPECT_LE(with.up, slices * sliceBytes);
  EXPECT_EQ(with.down, 0u); // nothing is written back
}

// A slice that is overwritten as a whole is not brought in first.
TEST_F(SlicedStepTest, fetchesNothingThatIsOverwritten) {
  table_.add("set", {overwrites(0, number(2))});
  registerTable();
  Step *step = sliced(setKernel(), 7);
  ASSERT_TRUE(step);
  const Moved moved = movedBy(step);
  EXPECT_EQ(moved.up, 0u);
  EXPECT_GT(moved.down, 0u);
  EXPECT_EQ(moved.hosted, 0u);
  replay(step, 2);
  ASSERT_TRUE(session_->map(rows_));
  for (std::uint64_t slice = 0; slice < slices; ++slice)
    EXPECT_EQ(*reinterpret_cast<std::uint64_t *>(rows_ + (slice + 1) * sliceBytes - 8), slice + 1);
  ASSERT_TRUE(session_->unmap(rows_));
  expectValid(step);
  close(graph_);
}

// A step keeps what was known when it was adopted: a table that goes away later changes nothing, not even where the
// step is planned again.
TEST_F(SlicedStepTest, keepsWhatTheTableSaid) {
  table_.add("sum", {reads(0, number(2)), updates(1, constant(8))});
  registerTable();
  Step *step = sliced(sumKernel(), 7);
  ASSERT_TRUE(step);
  EXPECT_EQ(notesOf(step).at(0), "access tables know 6 of 6 kernel launches");
  forgetTable();
  const Expected<Replanning> again = step->replan();
  ASSERT_TRUE(again) << messageOf(again);
  EXPECT_EQ(movedBy(step).down, 0u);
  replay(step, 1);
  expectValid(step);
  close(graph_);
}

} // namespace
