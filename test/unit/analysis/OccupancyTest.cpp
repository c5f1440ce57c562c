// SPDX-License-Identifier: Apache-2.0
#include "passes/analysis/Occupancy.h"

#include "test/unit/check/StepBuilder.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>

namespace pumpgraph {
namespace {

class Tenants : public testing::Test {
protected:
  /// Node n runs from n to n + 1. Who has which frames when: "a[0] 0-2" for page 0 of it, until 2.
  std::vector<std::string> find() {
    const Description &step = plan_.step();
    std::vector<NodeTimes> times;
    for (std::size_t n = 0; n < step.nodes.size(); ++n)
      times.push_back({static_cast<double>(n), static_cast<double>(n + 1)});
    found_ = tenancies(step, times);
    expectTheOccupancy(occupancy(step, times));
    std::vector<std::string> texts;
    for (const Tenancy &tenancy : found_) {
      std::string text = step.buffers[tenancy.buffer].name;
      for (std::uint64_t page = 0; page < tenancy.pages; ++page)
        text += "[" + std::to_string(tenancy.firstPage + page) + "]";
      text += " " + std::to_string(static_cast<int>(tenancy.beginUs)) + "-";
      texts.push_back(text + (std::isfinite(tenancy.endUs) ? std::to_string(static_cast<int>(tenancy.endUs)) : ""));
    }
    return texts;
  }

  test::StepBuilder plan_{8};
  std::vector<Tenancy> found_;

private:
  void expectTheOccupancy(const std::vector<MemoryPoint> &points) {
    for (const MemoryPoint &point : points) {
      std::uint64_t bytes = 0;
      for (const Tenancy &tenancy : found_)
        if (tenancy.beginUs <= point.atUs && point.atUs < tenancy.endUs)
          bytes += tenancy.pages * test::StepBuilder::pageBytes;
      EXPECT_EQ(bytes, point.bytes) << "at " << point.atUs;
    }
  }
};

using Texts = std::vector<std::string>;

TEST_F(Tenants, LeaveWithTheirLastCopyAndComeBackWithTheNext) {
  const BufferIndex a = plan_.buffer("a", {0, 1}), b = plan_.buffer("b", {1});
  plan_.kernel("make a", {plan_.write(a)});
  plan_.evict(a);
  plan_.kernel("make b", {plan_.write(b)});
  plan_.kernel("use b", {plan_.read(b)});
  plan_.prefetch(a);
  plan_.kernel("use a", {plan_.read(a)});
  EXPECT_EQ(find(), (Texts{"a[0][1] 0-2", "b[0] 2-4", "a[0][1] 4-6"}));
  EXPECT_EQ(found_[0].arrival, 0U);
  EXPECT_EQ(found_[0].lastUse, 0U);
  EXPECT_TRUE(found_[0].hostHasIt);
  EXPECT_FALSE(found_[1].hostHasIt);
  EXPECT_EQ(found_[2].arrival, 4U);
  EXPECT_EQ(found_[2].firstUse, 5U);
}

// `a` is written twice, and what was there is dead in between: its frame is counted all the time, and `b` has it then.
TEST_F(Tenants, GiveWayToOthersBetweenTwoValues) {
  const BufferIndex a = plan_.buffer("a", {0}), b = plan_.buffer("b", {0});
  plan_.kernel("make a", {plan_.write(a)});
  plan_.kernel("use a", {plan_.read(a)});
  plan_.kernel("make b", {plan_.write(b)});
  plan_.kernel("use b", {plan_.read(b)});
  plan_.kernel("make a anew", {plan_.write(a)});
  EXPECT_EQ(find(), (Texts{"a[0] 0-2", "b[0] 2-4", "a[0] 4-5"}));
  EXPECT_EQ(found_[2].arrival, 4U);
}

TEST_F(Tenants, GiveWayInSomeOfTheirFrames) {
  const BufferIndex a = plan_.buffer("a", {0, 1, 2}), b = plan_.buffer("b", {1});
  plan_.kernel("make a", {plan_.write(a)});
  plan_.kernel("make b", {plan_.write(b)});
  plan_.kernel("make a anew", {plan_.write(a)});
  EXPECT_EQ(find(), (Texts{"a[0] 0-3", "a[1] 0-1", "a[2] 0-3", "b[0] 1-2", "a[1] 2-3"}));
}

TEST_F(Tenants, StayAtTheStepBoundary) {
  const BufferIndex a = plan_.buffer("a", {0}, test::StepBuilder::liveInOut), b = plan_.buffer("b", {1});
  const BufferIndex mirrored = plan_.buffer("mirrored", {2}, test::StepBuilder::liveInOut);
  plan_.exclusive("exclusive", {3});
  plan_.resident(a);
  plan_.mirrored(mirrored);
  plan_.kernel("make b", {plan_.write(b)});
  plan_.kernel("use a", {plan_.read(a)});
  plan_.kernel("use mirrored", {plan_.read(mirrored)});
  plan_.kernel("make b anew", {plan_.write(b)});
  plan_.prefetch(mirrored);
  EXPECT_EQ(find(), (Texts{"a[0] 0-", "b[0] 0-4", "mirrored[0] 0-3", "exclusive[0] 0-", "mirrored[0] 4-"}));
  EXPECT_EQ(found_[0].arrival, noNode);
  EXPECT_FALSE(found_[1].hostHasIt);
  EXPECT_TRUE(found_[2].hostHasIt);
}

TEST_F(Tenants, OfBuffersThatGoOnAreTheFirstOnes) {
  const BufferIndex a = plan_.buffer("a", {0, 1});
  plan_.kernel("make a", {plan_.write(a)});
  plan_.evict(a);
  const BufferIndex after = plan_.continuation(a, {0, 2});
  plan_.step().buffers[after].name = "after";
  plan_.move(NodeKind::Prefetch, after, {plan_.step().pageBytes, plan_.step().pageBytes});
  plan_.kernel("use", {plan_.read(after)});
  EXPECT_EQ(find(), (Texts{"a[0] 0-4", "a[1] 0-2", "after[1] 2-4"}));
}

TEST_F(Tenants, AreNotHosted) {
  const BufferIndex a = plan_.buffer("a", {noFrame});
  plan_.hosted(a);
  plan_.kernel("make", {plan_.write(a)});
  EXPECT_EQ(find(), Texts{});
}

} // namespace
} // namespace pumpgraph
