// SPDX-License-Identifier: Apache-2.0
// Tags of allocations: nesting by thread, sums and peaks, and tags that are not there any more.
#include "pumpgraph/tag.hpp"
#include "test/unit/runtime/FakeSession.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <memory>
#include <optional>
#include <thread>

using namespace pumpgraph;
using namespace pumpgraph::literals;
using namespace pumpgraph::test;

namespace {

class TagsTest : public ::testing::Test {
protected:
  void SetUp() override {
    pumpgraph_session *made = makeQuickFakeSession(16 * 2_MiB);
    ASSERT_NE(made, nullptr);
    session_.emplace(Session::own(made));
  }
  void TearDown() override {
    session_.reset();
    destroyFakeDriver();
  }
  Buffer<char> allocate(std::size_t bytes) { return std::move(*session_->allocate<char>(bytes)); }
  /// {live, peak, allocated} bytes.
  std::array<std::uint64_t, 3> bytesOf(const std::string &tag, bool resetPeaks = false) {
    for (const auto &row : nlohmann::json::parse(*tags(*session_, resetPeaks)))
      if (row["tag"] == tag)
        return {row["live_bytes"], row["peak_bytes"], row["allocated_bytes"]};
    return {};
  }
  using Bytes = std::array<std::uint64_t, 3>;

  std::optional<Session> session_;
};

// A tag counts those inside it, up to its own peak, and what is freed after its end.
TEST_F(TagsTest, nest) {
  std::optional<Buffer<char>> kept;
  {
    const Tag etl(*session_, "etl");
    const Buffer<char> read = allocate(1000);
    {
      const Tag join(*session_, "join");
      kept = allocate(100);
      EXPECT_EQ(bytesOf("etl/join"), (Bytes{100, 100, 100}));
    }
    const Buffer<char> after = allocate(10);
    EXPECT_EQ(bytesOf("etl"), (Bytes{1110, 1110, 1110}));
  }
  const Buffer<char> untagged = allocate(5000);
  EXPECT_EQ(bytesOf("etl", true), (Bytes{100, 1110, 1110}));
  EXPECT_EQ(bytesOf("etl"), (Bytes{100, 100, 1110}));
  kept.reset();
  EXPECT_EQ(bytesOf("etl/join"), (Bytes{0, 100, 100}));
  EXPECT_EQ(bytesOf("join"), Bytes{});
}

TEST_F(TagsTest, nothingIsThereWithoutTags) {
  const Buffer<char> buffer = allocate(1000);
  EXPECT_EQ(*tags(*session_), "[]");
}

// Memory of a captured step carries the tag under which it was recorded, and has its name in the step.
TEST_F(TagsTest, ofACapturedStep) {
  const Expected<Buffer<std::uint64_t>> counter = session_->allocate<std::uint64_t>(1_MiB);
  ASSERT_TRUE(counter);
  const Expected<Step> step = session_->capture([&](pumpgraph_stream stream) -> Status {
    const Tag tag(*session_, "join");
    const Expected<Buffer<char>> temporary = session_->allocate<char>(3_MiB, {.stream = stream});
    if (!temporary)
      return temporary.error();
    launchFill(stream, temporary->data(), 1, temporary->sizeBytes());
    launchIncrement(stream, counter->data());
    return {};
  });
  ASSERT_TRUE(step) << step.error().message;
  EXPECT_EQ(bytesOf("join"), (Bytes{0, 3_MiB, 6_MiB})); // captured twice
}

// Another thread's tag tags nothing of this one's, and cannot be ended here; with its thread it is gone.
TEST_F(TagsTest, areOfTheirThread) {
  std::uint64_t tag = 0;
  std::thread([&] {
    ASSERT_EQ(pumpgraph_tag_begin(session_->handle(), "theirs", &tag, nullptr), PUMPGRAPH_OK);
    std::thread([&] { (void)allocate(7); }).join();
    (void)allocate(70);
  }).join();
  (void)allocate(700);
  std::thread([&] { (void)allocate(7000); }).join();
  EXPECT_EQ(bytesOf("theirs"), (Bytes{0, 70, 70}));
  pumpgraph_error error{};
  EXPECT_EQ(pumpgraph_tag_end(session_->handle(), tag, &error), PUMPGRAPH_INVALID_ARGUMENT);
  EXPECT_STREQ(error.message, "tag 1 is not the innermost one that this thread has open; end it in its thread, after "
                              "those inside it");
}

// A tag is ended once, after those inside it; what was refused ended nothing.
TEST_F(TagsTest, endInOrder) {
  std::uint64_t outer = 0, inner = 0;
  ASSERT_EQ(pumpgraph_tag_begin(session_->handle(), "outer", &outer, nullptr), PUMPGRAPH_OK);
  ASSERT_EQ(pumpgraph_tag_begin(session_->handle(), "inner", &inner, nullptr), PUMPGRAPH_OK);
  EXPECT_EQ(pumpgraph_tag_end(session_->handle(), outer, nullptr), PUMPGRAPH_INVALID_ARGUMENT);
  (void)allocate(1);
  EXPECT_EQ(bytesOf("outer/inner"), (Bytes{0, 1, 1}));
  EXPECT_EQ(pumpgraph_tag_end(session_->handle(), inner, nullptr), PUMPGRAPH_OK);
  EXPECT_EQ(pumpgraph_tag_end(session_->handle(), inner, nullptr), PUMPGRAPH_INVALID_ARGUMENT);
  EXPECT_EQ(pumpgraph_tag_end(session_->handle(), outer, nullptr), PUMPGRAPH_OK);
  (void)allocate(10);
  EXPECT_EQ(bytesOf("outer"), (Bytes{0, 1, 1}));
}

// A later session, even at the address of an earlier one, has no part in that one's tags.
TEST_F(TagsTest, areOfTheirSession) {
  for (int i = 0; i < 8; ++i) {
    std::uint64_t left = 0;
    ASSERT_EQ(pumpgraph_tag_begin(session_->handle(), "left", &left, nullptr), PUMPGRAPH_OK);
    TearDown();
    SetUp();
    (void)allocate(9);
    EXPECT_EQ(*tags(*session_), "[]");
    const Tag tag(*session_, "own");
    (void)allocate(90);
    EXPECT_EQ(bytesOf("own"), (Bytes{0, 90, 90}));
  }
}

TEST_F(TagsTest, refusedNames) {
  for (const std::string &name : {std::string(), std::string("a/b"), std::string(256, 'a')}) {
    const Tag tag(*session_, name);
    ASSERT_FALSE(tag.begun());
    EXPECT_EQ(tag.begun().error().code, PUMPGRAPH_INVALID_ARGUMENT);
  }
  EXPECT_EQ(*tags(*session_), "[]");
  for (int i = 0; i < 4096; ++i)
    ASSERT_TRUE(Tag(*session_, std::to_string(i)).begun());
  const Tag more(*session_, "more"), known(*session_, "7");
  EXPECT_FALSE(more.begun());
  EXPECT_TRUE(known.begun());
}

} // namespace
