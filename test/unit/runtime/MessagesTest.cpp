// SPDX-License-Identifier: Apache-2.0
// Messages and progress by the C API: which come, at which level, outside of every lock.
#include "pumpgraph/pumpgraph.hpp"
#include "test/unit/runtime/FakeSession.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

using namespace pumpgraph;
using namespace pumpgraph::literals;
using namespace pumpgraph::test;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::Field;
using ::testing::Gt;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

namespace {

struct Received {
  std::int32_t level = 0;
  std::string text;
};

class MessagesTest : public ::testing::Test {
protected:
  void SetUp() override {
    ASSERT_EQ(pumpgraph_set_message_callback(PUMPGRAPH_MESSAGE_DEBUG, receive, this, nullptr), PUMPGRAPH_OK);
    pumpgraph_session *made = makeFakeSession(8 * 2_MiB);
    ASSERT_NE(made, nullptr);
    session_.emplace(Session::own(made));
    ASSERT_TRUE(session_->statistics()); // any call hands on what there is
    fromTheStart_ = std::exchange(received_, {});
  }
  void TearDown() override {
    session_.reset();
    destroyFakeDriver();
    pumpgraph_set_message_callback(PUMPGRAPH_MESSAGE_NONE, nullptr, nullptr, nullptr);
  }

  static void receive(std::int32_t level, const char *message, void *test) {
    auto &self = *static_cast<MessagesTest *>(test);
    self.received_.push_back({level, message});
    if (self.session_) { // not locked: this would wait for ever
      EXPECT_TRUE(self.session_->statistics());
    }
  }

  /// A step whose temporaries take twelve MiB in turns.
  Expected<Step> capture(const AdoptOptions &options = {}) {
    return session_->capture(
        [&](pumpgraph_stream stream) -> Status {
          for (int i = 0; i < 3; ++i) {
            Expected<Buffer<char>> temporary = session_->allocate<char>(6 * 2_MiB, {.stream = stream});
            if (!temporary)
              return temporary.error();
            launchFill(stream, temporary->data(), 1, temporary->sizeBytes());
            launchFill(stream, weights_->data(), 2, weights_->sizeBytes());
          }
          return {};
        },
        options);
  }
  void allocateWeights() {
    Expected<Buffer<char>> made = session_->allocate<char>(6 * 2_MiB, {.privacy = Privacy::Private, .name = "weights"});
    ASSERT_TRUE(made) << made.error().message;
    weights_.emplace(std::move(*made));
  }

  std::optional<Session> session_;
  std::optional<Buffer<char>> weights_;
  std::vector<Received> fromTheStart_, received_;
};

auto message(std::int32_t level, const char *part) {
  return AllOf(Field(&Received::level, level), Field(&Received::text, HasSubstr(part)));
}

TEST_F(MessagesTest, aSessionTellsTheSpeedOfTheLink) {
  EXPECT_THAT(fromTheStart_, ElementsAre(message(PUMPGRAPH_MESSAGE_INFO, "GB/s up")));
}

TEST_F(MessagesTest, aPlannedStepSaysSo) {
  allocateWeights();
  const Expected<Step> step = capture({.name = "train"});
  ASSERT_TRUE(step) << step.error().message;
  EXPECT_THAT(received_, Contains(message(PUMPGRAPH_MESSAGE_INFO, "step \"train\": 6 nodes and")));
  weights_.reset();
}

// A baseline was asked for; a step without a compiler library was not.
TEST_F(MessagesTest, aStepLeftAsCapturedSaysWhy) {
  const auto nothing = [](pumpgraph_stream) -> Status { return {}; };
  ASSERT_TRUE(session_->capture(nothing, {.name = "baseline", .leaveAsCaptured = true}));
  EXPECT_THAT(received_, ElementsAre(message(PUMPGRAPH_MESSAGE_INFO,
                                             "step \"baseline\": replayed exactly as captured: asked for")));
  session_.reset();
  destroyFakeDriver();
  pumpgraph_session *made = makeFakeSession(8 * 2_MiB, "/nowhere/libpumpgraph-compiler.so");
  ASSERT_NE(made, nullptr);
  session_.emplace(Session::own(made));
  ASSERT_TRUE(session_->capture(nothing));
  EXPECT_THAT(received_, Contains(message(PUMPGRAPH_MESSAGE_WARNING,
                                          "replayed exactly as captured: the compiler library cannot be loaded")));
}

TEST_F(MessagesTest, theLevelIsALimit) {
  allocateWeights();
  ASSERT_EQ(pumpgraph_set_message_callback(PUMPGRAPH_MESSAGE_WARNING, receive, this, nullptr), PUMPGRAPH_OK);
  ASSERT_TRUE(capture());
  EXPECT_THAT(received_, IsEmpty());
  weights_.reset();
  pumpgraph_error error{};
  EXPECT_EQ(pumpgraph_set_message_callback(5, receive, this, &error), PUMPGRAPH_INVALID_ARGUMENT);
  EXPECT_STREQ(error.message, "level is 5");
}

TEST_F(MessagesTest, stderrHasThemWithoutACallback) {
  allocateWeights();
  setenv("PUMPGRAPH_LOG", "info", 1);
  pumpgraph_set_message_callback(PUMPGRAPH_MESSAGE_NONE, nullptr, nullptr, nullptr);
  ::testing::internal::CaptureStderr();
  EXPECT_TRUE(capture({.name = "train"}));
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("pumpgraph: info: step \"train\": 6 nodes and"));
  setenv("PUMPGRAPH_LOG", "none", 1);
  pumpgraph_set_message_callback(PUMPGRAPH_MESSAGE_NONE, nullptr, nullptr, nullptr);
  ::testing::internal::CaptureStderr();
  EXPECT_TRUE(capture());
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
  unsetenv("PUMPGRAPH_LOG");
  EXPECT_THAT(received_, IsEmpty());
  weights_.reset();
}

/// Of all threads that make progress: one call at a time.
struct Steps {
  static void add(const pumpgraph_progress *progress, void *steps) {
    static_cast<Steps *>(steps)->all.push_back(*progress);
  }
  std::vector<pumpgraph_progress> of(std::int32_t phase) const {
    std::vector<pumpgraph_progress> found;
    for (const pumpgraph_progress &progress : all)
      if (progress.phase == phase)
        found.push_back(progress);
    return found;
  }
  std::vector<pumpgraph_progress> all;
};

TEST_F(MessagesTest, progressHasEachPhase) {
  allocateWeights();
  Steps steps;
  ASSERT_EQ(pumpgraph_set_progress_callback(session_->handle(), Steps::add, &steps, nullptr), PUMPGRAPH_OK);
  ASSERT_TRUE(capture());
  const auto captures = steps.of(PUMPGRAPH_PHASE_CAPTURING);
  ASSERT_THAT(captures, SizeIs(Gt(1u)));
  EXPECT_EQ(captures.front().done, 0u);
  EXPECT_EQ(captures.back().done, 1u) << "the rehearsal was captured";
  EXPECT_EQ(captures.back().total, 2u);
  const auto plans = steps.of(PUMPGRAPH_PHASE_PLANNING);
  ASSERT_THAT(plans, SizeIs(Gt(1u)));
  EXPECT_EQ(plans.front().best_us, 0);
  EXPECT_GT(plans.back().best_us, 0);
  for (std::size_t i = 2; i < plans.size(); ++i)
    EXPECT_LT(plans[i].best_us, plans[i - 1].best_us);
  const auto pinned = steps.of(PUMPGRAPH_PHASE_PINNING);
  ASSERT_THAT(pinned, SizeIs(Gt(1u)));
  EXPECT_EQ(pinned.back().done, pinned.back().total);
  EXPECT_EQ(steps.all.back().phase, PUMPGRAPH_PHASE_NONE);

  pumpgraph_progress now{};
  now.struct_size = sizeof now;
  now.phase = 7;
  ASSERT_EQ(pumpgraph_get_progress(session_->handle(), &now, nullptr), PUMPGRAPH_OK);
  EXPECT_EQ(now.phase, PUMPGRAPH_PHASE_NONE);
  EXPECT_EQ(pumpgraph_get_progress(nullptr, &now, nullptr), PUMPGRAPH_INVALID_ARGUMENT);

  const std::size_t before = steps.all.size();
  ASSERT_EQ(pumpgraph_set_progress_callback(session_->handle(), nullptr, nullptr, nullptr), PUMPGRAPH_OK);
  ASSERT_TRUE(capture());
  EXPECT_EQ(steps.all.size(), before);
  weights_.reset();
}

} // namespace
