// SPDX-License-Identifier: Apache-2.0
// The C++ API: ownership, errors, capture with temporaries that own themselves.
#include "pumpgraph/pumpgraph.hpp"
#include "test/unit/runtime/FakeSession.h"

#include <gtest/gtest.h>

#include <array>
#include <fstream>
#include <iterator>
#include <optional>

using namespace pumpgraph;
using namespace pumpgraph::literals;
using namespace pumpgraph::test;

namespace {

class CppApiTest : public ::testing::Test {
protected:
  void SetUp() override {
    pumpgraph_session *made = makeFakeSession(8 * 2_MiB);
    ASSERT_NE(made, nullptr);
    session_.emplace(Session::own(made));
  }
  void TearDown() override {
    session_.reset();
    destroyFakeDriver();
  }

  /// A private buffer whose first word is 40.
  Expected<Buffer<std::uint64_t>> allocateCounter() {
    Expected<Buffer<std::uint64_t>> counter =
        session_->allocate<std::uint64_t>(1_MiB, {.privacy = Privacy::Private, .name = "counter"});
    if (counter)
      counter->data()[0] = 40;
    return counter;
  }
  /// Records a step that adds one to it.
  static auto increment(Buffer<std::uint64_t> &counter) {
    return [&counter](pumpgraph_stream stream) -> Status {
      launchIncrement(stream, counter.data());
      return {};
    };
  }
  /// The step's IR.
  static std::string textOf(const Expected<Step> &step) {
    const std::string path = ::testing::TempDir() + "cpp_api_step.mlir";
    EXPECT_TRUE(step && step->save(path));
    std::ifstream file(path);
    return std::string(std::istreambuf_iterator<char>(file), {});
  }
  std::uint64_t liveAllocations() { return session_->statistics()->live_allocations; }

  std::optional<Session> session_;
};

// A step's input: written between replays at its address, without a map.
TEST_F(CppApiTest, presentBuffersAreWrittenBetweenReplays) {
  Expected<Buffer<std::uint64_t>> input =
      session_->allocate<std::uint64_t>(1_MiB, {.privacy = Privacy::Present, .name = "input"});
  ASSERT_TRUE(input);
  Expected<Step> step = session_->capture(increment(*input));
  ASSERT_TRUE(step) << step.error().message;
  EXPECT_NE(textOf(step).find("private present live_in live_out"), std::string::npos);
  for (const std::uint64_t value : {7u, 70u}) {
    input->data()[0] = value;
    ASSERT_TRUE(step->replay(nullptr));
    EXPECT_EQ(input->data()[0], value + 1);
  }
}

// A buffer is freed with its owner, and may be handed on.
TEST_F(CppApiTest, buffersOwnTheirMemory) {
  {
    Expected<Buffer<float>> buffer = session_->allocate<float>(1000, {.name = "a"});
    ASSERT_TRUE(buffer);
    EXPECT_EQ(buffer->size(), 1000u);
    EXPECT_EQ(buffer->sizeBytes(), 4000u);
    buffer->data()[999] = 1.5f;
    Buffer<float> moved = std::move(*buffer);
    EXPECT_EQ(moved.data()[999], 1.5f);
    EXPECT_EQ(liveAllocations(), 1u);
  }
  EXPECT_EQ(liveAllocations(), 0u);
}

// Peaks are of what was live at once, since they were reset.
TEST_F(CppApiTest, statisticsHavePeaksAndSums) {
  const auto figures = [&] {
    const pumpgraph_memory_stats stats = *session_->statistics();
    return std::array{stats.live_bytes,      stats.live_peak_bytes, stats.live_allocations, stats.live_peak_allocations,
                      stats.allocated_bytes, stats.allocations};
  };
  using Figures = std::array<std::uint64_t, 6>;
  {
    const Expected<Buffer<float>> one = session_->allocate<float>(1000), other = session_->allocate<float>(500);
    ASSERT_TRUE(one && other);
    EXPECT_EQ(figures(), (Figures{6000, 6000, 2, 2, 6000, 2}));
  }
  const Expected<Buffer<float>> third = session_->allocate<float>(100);
  ASSERT_TRUE(third);
  EXPECT_EQ(figures(), (Figures{400, 6000, 1, 2, 6400, 3}));
  ASSERT_TRUE(session_->resetPeaks());
  EXPECT_EQ(figures(), (Figures{400, 400, 1, 1, 6400, 3}));
  EXPECT_EQ(session_->statistics()->device_peak_bytes, session_->statistics()->device_bytes);
}

// Buffers, steps and the session may be let go in any order.
TEST_F(CppApiTest, buffersOutliveTheSessionObject) {
  Expected<Buffer<float>> buffer = session_->allocate<float>(1000);
  ASSERT_TRUE(buffer);
  session_.reset();
  buffer->data()[0] = 2;
}

// The way of docs/guide/cpp.md: capture with temporaries, replay, map.
TEST_F(CppApiTest, capturesReplaysAndMaps) {
  Expected<Buffer<std::uint64_t>> counter = allocateCounter();
  ASSERT_TRUE(counter);
  Expected<Step> step = session_->capture([&](pumpgraph_stream stream) -> Status {
    for (int i = 0; i < 4; ++i) {
      Expected<Buffer<char>> temporary = session_->allocate<char>(3 * 2_MiB, {.stream = stream});
      if (!temporary)
        return temporary.error();
      launchFill(stream, temporary->data(), 1, temporary->sizeBytes());
    }
    launchIncrement(stream, counter->data());
    return {};
  });
  ASSERT_TRUE(step) << step.error().message;
  ASSERT_TRUE(step->replay(nullptr));
  ASSERT_TRUE(step->replay(nullptr));
  {
    Expected<Mapped> view = session_->map(*counter);
    ASSERT_TRUE(view);
    EXPECT_EQ(counter->data()[0], 42u);
    const Status refused = step->replay(nullptr);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, PUMPGRAPH_INVALID_ARGUMENT);
    EXPECT_TRUE(view->unmap());
  }
  const Expected<const std::uint64_t *> departures = session_->departures();
  ASSERT_TRUE(departures);
  ASSERT_TRUE(session_->bring({counter->data()}, Use::Read));
  EXPECT_EQ(counter->data()[0], 42u);
  const std::uint64_t before = **departures;
  EXPECT_TRUE(step->replay(nullptr)); // puts the value where the plan has it
  EXPECT_GT(**departures, before);
  const Expected<pumpgraph_validation> validation = step->validate();
  ASSERT_TRUE(validation) << validation.error().message;
  EXPECT_EQ(validation->different_buffers, 0u);
  EXPECT_NE(step->report()->find("\"backend\": \"virtual\""), std::string::npos);
  EXPECT_NE(step->report()->find("\"backend_why\": \"virtual memory, as asked for\""), std::string::npos);
}

// What the recorder knows of its kernels reaches the description; it is refused where it would concern nobody.
TEST_F(CppApiTest, takesDeclaredReads) {
  Expected<Buffer<std::uint64_t>> counter = allocateCounter();
  ASSERT_TRUE(counter);
  const auto recorded = [&](bool declares) {
    Expected<Step> step = session_->capture([&](pumpgraph_stream stream) -> Status {
      launchIncrement(stream, counter->data());
      int unknown = 0;
      return declares ? session_->declareReads(stream, {&unknown, counter->data() + 1}) : Status{};
    });
    EXPECT_TRUE(step) << step.error().message;
    return textOf(step);
  };
  EXPECT_NE(recorded(true).find("declared"), std::string::npos);
  EXPECT_EQ(recorded(false).find("declared"), std::string::npos);
  EXPECT_EQ(session_->declareReads(nullptr, {counter->data()}).error().code, PUMPGRAPH_INVALID_ARGUMENT);
}

// An extent has to lie in its allocation.
TEST_F(CppApiTest, takesDeclaredExtents) {
  Expected<Buffer<std::uint64_t>> counter = allocateCounter();
  ASSERT_TRUE(counter);
  const auto said = [&](std::uint64_t bytes, std::size_t offset = 0) {
    std::optional<Error> error;
    Expected<Step> step = session_->capture([&](pumpgraph_stream stream) -> Status {
      launchIncrement(stream, counter->data());
      Status declared = session_->declareExtents(stream, {{counter->data() + offset, bytes}});
      if (!declared)
        error = declared.error();
      return declared;
    });
    EXPECT_EQ(step.has_value(), !error);
    return error ? error->message : textOf(step);
  };
  EXPECT_NE(said(8).find("declared"), std::string::npos);
  EXPECT_NE(said(0).find("an extent of 0 bytes at 0 does not lie in its allocation"), std::string::npos);
  EXPECT_NE(said(UINT64_MAX).find("does not lie"), std::string::npos);
  EXPECT_EQ(session_->declareExtents(nullptr, {}).error().code, PUMPGRAPH_INVALID_ARGUMENT);
}

// So does what they update besides, if they are pure.
TEST_F(CppApiTest, takesWhatIsDeclaredAside) {
  Expected<Buffer<std::uint64_t>> counter = allocateCounter();
  ASSERT_TRUE(counter);
  const auto recorded = [&](pumpgraph_operation kind) {
    Expected<Step> step = session_->capture([&](pumpgraph_stream stream) -> Status {
      launchIncrement(stream, counter->data());
      if (const Status said = session_->declareOperation(stream, kind); !said)
        return said;
      return session_->declareAside(stream, {counter->data()});
    });
    EXPECT_TRUE(step) << step.error().message;
    return textOf(step);
  };
  EXPECT_NE(recorded(PUMPGRAPH_OPERATION_PURE).find(" aside"), std::string::npos);
  EXPECT_EQ(recorded(PUMPGRAPH_OPERATION_WHOLE).find(" aside"), std::string::npos);
  EXPECT_EQ(session_->declareAside(nullptr, {counter->data()}).error().code, PUMPGRAPH_INVALID_ARGUMENT);
}

// The time of declared arithmetic stands at its node; it is no node time.
TEST_F(CppApiTest, takesDeclaredArithmetic) {
  Expected<Buffer<std::uint64_t>> counter = allocateCounter();
  ASSERT_TRUE(counter);
  Expected<Step> step = session_->capture([&](pumpgraph_stream stream) -> Status {
    launchIncrement(stream, counter->data());
    return session_->declareArithmetic(stream, 1e9, PUMPGRAPH_ARITHMETIC_HALF);
  });
  ASSERT_TRUE(step) << step.error().message;
  const std::string text = textOf(step);
  EXPECT_NE(text.find(" arithmetic("), std::string::npos) << text;
  EXPECT_EQ(text.find(" cost("), std::string::npos) << text;
  EXPECT_EQ(session_->declareArithmetic(nullptr, 1e9, PUMPGRAPH_ARITHMETIC_HALF).error().code,
            PUMPGRAPH_INVALID_ARGUMENT);
}

// What the recorder calls its kernels reaches the description; a name may be missing, a capture must not.
TEST_F(CppApiTest, takesNamesOfNodes) {
  Expected<Buffer<std::uint64_t>> counter = allocateCounter();
  ASSERT_TRUE(counter);
  Expected<Step> step = session_->capture([&](pumpgraph_stream stream) -> Status {
    launchIncrement(stream, counter->data());
    if (const Status named = session_->nameNodes(stream, "layer1 forward"); !named)
      return named;
    launchIncrement(stream, counter->data());
    return session_->nameNodes(stream, "");
  });
  ASSERT_TRUE(step) << step.error().message;
  const std::string text = textOf(step);
  EXPECT_NE(text.find("label(\"layer1 forward\") node(0)"), std::string::npos) << text;
  EXPECT_EQ(text.find("label("), text.rfind("label(")) << text;
  EXPECT_EQ(session_->nameNodes(nullptr, "late").error().code, PUMPGRAPH_INVALID_ARGUMENT);
}

// Two steps over one buffer: the plan of either can be put in force, and taken back.
TEST_F(CppApiTest, exchangesPlans) {
  Expected<Buffer<std::uint64_t>> counter = allocateCounter();
  ASSERT_TRUE(counter);
  const auto record = increment(*counter);
  Expected<Step> first = session_->capture(record), second = session_->capture(record, {.boundary = Boundary::Own});
  ASSERT_TRUE(first && second);
  ASSERT_TRUE(first->putInForce());
  EXPECT_NE(first->report()->find("\"exchanges\": 1"), std::string::npos) << *first->report();
  for (Step *step : {&*first, &*second, &*first})
    ASSERT_TRUE(step->replay(nullptr));
  ASSERT_TRUE(session_->takeBack());
  EXPECT_EQ(counter->data()[0], 43u);
}

// Two steps that share a boundary are in force together.
TEST_F(CppApiTest, sharesABoundary) {
  Expected<Buffer<std::uint64_t>> counter = allocateCounter();
  ASSERT_TRUE(counter);
  const auto record = increment(*counter);
  Expected<Step> first = session_->capture(record), second = session_->capture(record, {.boundary = Boundary::Shared});
  ASSERT_TRUE(first && second);
  ASSERT_TRUE(first->putInForce());
  for (Step *step : {&*first, &*second, &*first})
    ASSERT_TRUE(step->replay(nullptr));
  for (const Step *step : {&*first, &*second}) {
    EXPECT_NE(step->report()->find("\"boundary\": \"shared with step\""), std::string::npos) << *step->report();
    EXPECT_NE(step->report()->find("\"exchanges\": 0"), std::string::npos) << *step->report();
  }
  ASSERT_TRUE(session_->takeBack());
  EXPECT_EQ(counter->data()[0], 43u);
}

// What C++ callers ask for reaches the runtime, and its answer comes back.
TEST_F(CppApiTest, calibratesAndPlansAgain) {
  Expected<Buffer<std::uint64_t>> counter = allocateCounter();
  ASSERT_TRUE(counter);
  const auto record = increment(*counter);
  Expected<Step> step = session_->capture(record, {.keepFirstPlan = true, .calibrate = true});
  ASSERT_TRUE(step) << step.error().message;
  EXPECT_NE(step->report()->find("calibrated in 1 runs"), std::string::npos) << *step->report();
  EXPECT_NE(step->report()->find("\"replans_by_itself\": false"), std::string::npos) << *step->report();
  const Expected<pumpgraph_replanning> replanned = step->replan();
  ASSERT_TRUE(replanned) << replanned.error().message;
  EXPECT_EQ(replanned->timed_nodes, 1u);
  EXPECT_GT(replanned->measured_before_us, 0);
  EXPECT_GT(replanned->measured_us, 0);
  EXPECT_GT(replanned->predicted_before_us, 0);
  Expected<Mapped> view = session_->map(*counter);
  ASSERT_TRUE(view);
  EXPECT_EQ(counter->data()[0], 40u);
}

// What the recording function says went wrong is what the caller hears.
TEST_F(CppApiTest, passesOnTheRecordersError) {
  const Expected<Step> step =
      session_->capture([](pumpgraph_stream) -> Status { return Error{PUMPGRAPH_INVALID_ARGUMENT, "no batch today"}; });
  ASSERT_FALSE(step);
  EXPECT_EQ(step.error().message, "no batch today");
}

} // namespace
