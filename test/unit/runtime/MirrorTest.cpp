// SPDX-License-Identifier: Apache-2.0
// A session whose plan mirrors pages: who may touch them, and what validation finds.
#include "runtime/session/Step.h"
#include "test/unit/runtime/Program.h"

#include <gtest/gtest.h>

using namespace pumpgraph;
using namespace pumpgraph::runtime;
using namespace pumpgraph::runtime::test;

namespace {

/// *sum += *table
FakeKernel &addKernel() {
  static FakeKernel kernel{"add", {8, 8}, [](const FakeKernel::Arguments &arguments) {
                             *argument<std::uint64_t *>(arguments, 0) += *argument<std::uint64_t *>(arguments, 1);
                           }};
  return kernel;
}

class MirrorTest : public ::testing::Test {
protected:
  /// A step that adds the table to the sum. The plan mirrors the one that has it in its name; nothing is copied.
  void open(const char *sumName, const char *tableName) {
    Expected<std::unique_ptr<Session>> made = openSession(fake_, 8, PUMPGRAPH_MIRRORING_COMPILER);
    ASSERT_TRUE(made) << made.error().message;
    session_ = std::move(*made);
    sum_ = allocate(sumName, 100);
    table_ = allocate(tableName, 1);
    graph_ = fake_.createGraph();
    fake_.addKernel(graph_, {}, addKernel(), {bytesOf(sum_), bytesOf(table_)});
    const Expected<Step *> step = session_->adopt(graph_, {.keepFirstPlan = true});
    ASSERT_TRUE(step) << step.error().message;
    step_ = *step;
    ASSERT_TRUE(step_->rewritten()) << step_->report();
  }
  void TearDown() override {
    session_.reset();
    fake_.destroyGraph(graph_);
  }

  std::uint64_t *allocate(const char *name, std::uint64_t value) {
    auto *pointer = static_cast<std::uint64_t *>(*session_->allocate(pageBytes, nullptr, name));
    EXPECT_TRUE(session_->declarePrivate(pointer));
    *pointer = value;
    return pointer;
  }
  std::uint64_t exchange(std::uint64_t *pointer, std::uint64_t value) {
    EXPECT_TRUE(session_->map(pointer));
    const std::uint64_t old = std::exchange(*pointer, value);
    EXPECT_TRUE(session_->unmap(pointer));
    return old;
  }

  FakeDriver fake_;
  std::unique_ptr<Session> session_;
  std::uint64_t *sum_ = nullptr, *table_ = nullptr;
  CUgraph graph_ = nullptr;
  Step *step_ = nullptr;
};

// What the step leaves the same in both places is valid, also after it was changed under map().
TEST_F(MirrorTest, validatesMirroredValues) {
  open("sum", "mirrored table");
  ASSERT_TRUE(step_->replay(nullptr));
  EXPECT_EQ(exchange(table_, 10), 1u);
  ASSERT_TRUE(step_->replay(nullptr));
  const Expected<Validation> validation = step_->validate();
  ASSERT_TRUE(validation) << validation.error().message;
  EXPECT_EQ(validation->differentBuffers, 0u) << validation->firstDifference;
  EXPECT_EQ(validation->comparedBuffers, 2u);
  ASSERT_TRUE(step_->replay(nullptr));
  EXPECT_EQ(exchange(sum_, 0), 121u);
}

// A plan that promises a host copy and does not write it is found out, and what was there is there again.
TEST_F(MirrorTest, validationFindsStaleHostCopies) {
  open("mirrored sum", "table");
  const Expected<Validation> validation = step_->validate();
  ASSERT_TRUE(validation) << validation.error().message;
  EXPECT_EQ(validation->differentBuffers, 1u);
  EXPECT_EQ(validation->comparedBuffers, 2u);
  EXPECT_EQ(validation->firstDifference, "\"mirrored sum\": byte 0 is not the same on the device and in host memory");
  EXPECT_EQ(exchange(sum_, 0), 100u);
}

// A step left as captured writes where the addresses are, so it may not use what has a host copy too.
TEST_F(MirrorTest, refusesStepsThatWouldWriteInPlace) {
  open("sum", "mirrored table");
  const CUgraph other = fake_.createGraph();
  fake_.addFill(other, {}, table_, 3, 8);
  const Expected<Step *> refused = session_->adopt(other, {.leaveAsCaptured = true});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().status, PUMPGRAPH_INVALID_ARGUMENT);
  EXPECT_NE(refused.error().message.find("mirrored table"), std::string::npos) << refused.error().message;
  fake_.destroyGraph(other);
}

} // namespace
