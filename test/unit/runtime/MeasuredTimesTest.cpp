// SPDX-License-Identifier: Apache-2.0
#include "runtime/measure/MeasuredTimes.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace pumpgraph::runtime {
namespace {

constexpr std::uint64_t page = std::uint64_t{2} << 20;

/// Three nodes of one kernel that read a first and a second buffer, and one of another. Of the first node's buffers the
/// plan hosts the second.
class MeasuredTimesTest : public ::testing::Test {
protected:
  MeasuredTimesTest() {
    step_.buffers.resize(6);
    for (Buffer &buffer : step_.buffers) {
      buffer.size = page;
      buffer.isPrivate = true;
    }
    for (BufferIndex i = 0; i < 3; ++i)
      addNode("conv", {2 * i, 2 * i + 1});
    addNode("relu", {1});
    plan_.lowered = step_;
    for (Node &node : plan_.lowered.nodes)
      node.costUs = 100;
    plan_.lowered.buffers[1].hosted = {{0, page}};
    predict({{0, 200}, {3, 200}});
  }

  void addNode(const char *name, const std::vector<BufferIndex> &buffers) {
    Node node;
    node.name = name;
    node.captured = static_cast<std::int32_t>(step_.nodes.size());
    for (const BufferIndex buffer : buffers) {
      Access &access = node.accesses.emplace_back();
      access.buffer = buffer;
      access.range = {0, page};
    }
    step_.nodes.push_back(std::move(node));
  }

  /// Microseconds over hosted pages, by node.
  void predict(const std::vector<std::pair<int, double>> &times) {
    nlohmann::ordered_json report = {{"machine", {{"hosted_share", 0.5625}, {"beside_hosted_share", 0.25}}},
                                     {"hosted_nodes", nlohmann::ordered_json::array()}};
    for (const auto &[node, us] : times)
      report["hosted_nodes"].push_back({{"node", node}, {"time_s", us * 1e-6}});
    plan_.report = std::make_shared<const nlohmann::ordered_json>(std::move(report));
  }

  float slowdown(std::size_t node, std::size_t access) const { return step_.nodes[node].accesses[access].slowdown; }

  /// As if it had been planned with what is known now.
  void planAgain(const std::vector<std::pair<int, double>> &times) {
    for (std::size_t node = 0; node < step_.nodes.size(); ++node)
      plan_.lowered.nodes[node].accesses = step_.nodes[node].accesses;
    predict(times);
  }

  Description step_;
  KnownAccesses known_;
  CompiledPlan plan_;
};

TEST_F(MeasuredTimesTest, onTheDeviceTimesAreCosts) {
  predict({});
  EXPECT_FALSE(hostsOperands(plan_));
  takeMeasured(step_, known_, plan_, {150, 160, 170, 10});
  for (std::size_t node = 0; node < 4; ++node) {
    EXPECT_EQ(step_.nodes[node].costUs, (std::vector<double>{150, 160, 170, 10})[node]);
    for (std::size_t access = 0; access < step_.nodes[node].accesses.size(); ++access)
      EXPECT_EQ(slowdown(node, access), 1);
  }
}

// The other two nodes of the kernel take 150 instead of 100, so the first does too. What is left, 800, is four times
// what its hosted page should take. Nobody knows of its other access.
TEST_F(MeasuredTimesTest, whatIsLeftIsTheSlowdown) {
  EXPECT_TRUE(hostsOperands(plan_));
  takeMeasured(step_, known_, plan_, {950, 150, 149, 300});
  EXPECT_DOUBLE_EQ(step_.nodes[0].costUs, 150);
  EXPECT_FLOAT_EQ(slowdown(0, 1), 4);
  EXPECT_EQ(slowdown(0, 0), 1);
  EXPECT_EQ(step_.nodes[2].costUs, 149);
  EXPECT_EQ(step_.nodes[3].costUs, 100); // as predicted
  EXPECT_EQ(slowdown(3, 0), 1);
  // The second access of the kernel's other nodes is presumed to be no better.
  EXPECT_FLOAT_EQ(slowdown(1, 1), 4);
  EXPECT_FLOAT_EQ(slowdown(2, 1), 4);
  EXPECT_EQ(slowdown(1, 0), 1);
}

// The buffer is hosted at its second address only, which the first node has.
TEST_F(MeasuredTimesTest, whatGoesOnElsewhereMayBeHostedThere) {
  Buffer elsewhere = plan_.lowered.buffers[1];
  elsewhere.continues = 1;
  plan_.lowered.buffers[1].hosted.clear();
  plan_.lowered.buffers.push_back(std::move(elsewhere));
  plan_.lowered.nodes[0].accesses[1].buffer = 6;
  predict({{0, 200}});
  takeMeasured(step_, known_, plan_, {950, 150, 150, 100});
  EXPECT_FLOAT_EQ(slowdown(0, 1), 4);
  EXPECT_EQ(slowdown(3, 0), 1);
}

// With the slowdown the plan would predict what was measured; a second measurement mends what is left.
TEST_F(MeasuredTimesTest, measuringAgainCorrectsIt) {
  takeMeasured(step_, known_, plan_, {950, 150, 150, 300});
  planAgain({{0, 800}, {3, 200}});
  takeMeasured(step_, known_, plan_, {550, 150, 150, 300});
  EXPECT_FLOAT_EQ(slowdown(0, 1), 2);
  EXPECT_FLOAT_EQ(slowdown(1, 1), 2) << "what was presumed is presumed anew";
  planAgain({{0, 400}, {3, 200}});
  takeMeasured(step_, known_, plan_, {150, 150, 150, 300});
  EXPECT_FLOAT_EQ(slowdown(0, 1), 0.75F) << "it moved no more than it had time for: 150 of 400";
  EXPECT_EQ(slowdown(1, 1), 0.75F) << "of what was not measured, no faster than the link beside copies";
}

// A workspace counts as touched in whole wherever a kernel has its address, and the kernel may use a small part of it.
TEST_F(MeasuredTimesTest, aNodeMayReachLittleOfItsHostedPages) {
  predict({{0, 2000}, {3, 200}});
  takeMeasured(step_, known_, plan_, {250, 150, 150, 300});
  EXPECT_FLOAT_EQ(slowdown(0, 1), 0.125F) << "it may have computed while it moved them";
  EXPECT_EQ(slowdown(2, 1), 0.75F);
}

// What it certainly reads it reaches.
TEST_F(MeasuredTimesTest, aNodeReachesWhatItMust) {
  step_.nodes[0].accesses[1].must = modeRead;
  predict({{0, 2000}, {3, 200}});
  takeMeasured(step_, known_, plan_, {250, 150, 150, 300});
  EXPECT_EQ(slowdown(0, 1), 0.75F);
}

// Nobody knows exactly how much of a node's time is its own, and less than that says nothing.
TEST_F(MeasuredTimesTest, littleTimeOverHostedPagesProvesNothing) {
  predict({{0, 150}, {3, 200}});
  takeMeasured(step_, known_, plan_, {160, 150, 150, 300});
  EXPECT_EQ(slowdown(0, 1), 0.75F);
}

// Its plan reckoned with less than what was never measured is presumed to take.
TEST_F(MeasuredTimesTest, keepsWhatWasMeasuredBeforeTheStepWasSaved) {
  plan_.lowered.nodes[1].accesses[1].slowdown = 0.25F;
  takeMeasured(step_, known_, plan_, {950, 150, 150, 300});
  EXPECT_EQ(slowdown(1, 1), 0.25F);
  EXPECT_FLOAT_EQ(slowdown(2, 1), 4);
}

// After a plan that turned out slower the first one is in force again, which knew nothing of the slowdown.
TEST_F(MeasuredTimesTest, goesByWhatThePlanReckonedWith) {
  takeMeasured(step_, known_, plan_, {950, 150, 150, 300});
  takeMeasured(step_, known_, plan_, {950, 150, 150, 300});
  EXPECT_FLOAT_EQ(slowdown(0, 1), 4);
}

// The compiler merges them into the plan; the step as captured has none.
TEST_F(MeasuredTimesTest, knowsTheSlowdownsOfASavedStep) {
  plan_.lowered.nodes[0].accesses[1].slowdown = 4; // and so it predicts 200
  plan_.lowered.nodes[2].accesses[0].slowdown = 3;
  takeMeasured(step_, known_, plan_, {350, 150, 150, 300});
  EXPECT_FLOAT_EQ(slowdown(0, 1), 4);
  EXPECT_FLOAT_EQ(slowdown(2, 0), 3);
}

// A node cannot take longer on the device than it did with operands in host memory, and some microseconds beyond that
// are the clocks'.
TEST_F(MeasuredTimesTest, believesClocksNoMoreThanTheyAreWorth) {
  predict({{0, 1}, {3, 200}});
  takeMeasured(step_, known_, plan_, {90, 100, 100, 60});
  EXPECT_EQ(step_.nodes[0].costUs, 90);
  EXPECT_EQ(step_.nodes[3].costUs, 60);
  takeMeasured(step_, known_, plan_, {115, 100, 100, 60});
  EXPECT_EQ(slowdown(0, 1), 1);
}

// Copies have no captured node; all others get what their node has, wherever they are and however often.
TEST_F(MeasuredTimesTest, aLoweredStepHasWhatWasMeasured) {
  takeMeasured(step_, known_, plan_, {950, 150, 149, 300});
  Description lowered = plan_.lowered;
  Node copy;
  copy.kind = NodeKind::CopyToDevice;
  copy.costUs = 7;
  lowered.nodes.insert(lowered.nodes.begin(), copy);
  Node again = lowered.nodes[1];
  again.kind = NodeKind::Rematerialize;
  again.repeats = std::exchange(again.captured, notCaptured);
  lowered.nodes.push_back(again);
  const Description measured = withMeasured(lowered, step_);
  ASSERT_EQ(measured.nodes.size(), 6U);
  EXPECT_EQ(measured.nodes[0].costUs, 7);
  EXPECT_EQ(measured.nodes[1].costUs, 150);
  EXPECT_FLOAT_EQ(measured.nodes[1].accesses[1].slowdown, 4);
  EXPECT_EQ(measured.nodes[3].costUs, 149);
  EXPECT_EQ(measured.nodes[5].costUs, 150);
  EXPECT_FLOAT_EQ(measured.nodes[5].accesses[1].slowdown, 4);
}

// Of the times over hosted pages that are predicted of a node's runs, the longest counts, which comes first.
TEST_F(MeasuredTimesTest, aNodeThatRunsAgainIsOneNode) {
  predict({{0, 200}, {0, 100}, {3, 200}});
  takeMeasured(step_, known_, plan_, {950, 150, 150, 300});
  EXPECT_FLOAT_EQ(slowdown(0, 1), 4);
}

} // namespace
// Of 1,000 nodes, where the step takes longer than its nodes say, shorter, and so much longer that gaps do not explain
// it.
TEST(GapBetweenNodes, isWhatTheStepLacks) {
  EXPECT_DOUBLE_EQ(gapBetweenNodesUs(2500, 1000, 1000), 1.5);
  EXPECT_DOUBLE_EQ(gapBetweenNodesUs(900, 1000, 1000), 0);
  EXPECT_DOUBLE_EQ(gapBetweenNodesUs(9000, 1000, 1000), 2);
  EXPECT_DOUBLE_EQ(gapBetweenNodesUs(2500, 1000, 0), 0);
}

} // namespace pumpgraph::runtime
