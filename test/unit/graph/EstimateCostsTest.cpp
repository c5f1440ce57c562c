// SPDX-License-Identifier: Apache-2.0
#include "passes/analysis/EstimateCosts.h"

#include <gtest/gtest.h>

#include <cmath>

namespace pumpgraph {
namespace {

constexpr std::uint64_t megabyte = 1'000'000;

/// Round numbers: 1 MB takes 1 us in device memory, 100 us up, 50 us down.
Machine roundMachine() {
  Machine machine;
  machine.deviceBytesPerSecond = 1e12;
  machine.upBytesPerSecond = 1e10;
  machine.downBytesPerSecond = 2e10;
  return machine;
}

double estimateOf(NodeKind kind, std::vector<Access> accesses) {
  Description description;
  description.buffers.resize(1);
  description.buffers[0].size = 100 * megabyte;
  description.nodes.resize(1);
  description.nodes[0].kind = kind;
  description.nodes[0].accesses = std::move(accesses);
  estimateCosts(description, roundMachine());
  return description.nodes[0].costUs;
}

Access touch(Mode mode, std::uint64_t bytes) {
  return Access{.buffer = 0, .range = {0, bytes}, .may = mode};
}

TEST(EstimateCosts, kernelCostsItsBytes) {
  const double idle = estimateOf(NodeKind::Kernel, {});
  EXPECT_GT(idle, 0);
  EXPECT_LT(idle, 10);
  EXPECT_NEAR(estimateOf(NodeKind::Kernel, {touch(modeRead, 7 * megabyte)}) - idle, 7, 1e-9);
  // What is read and written passes twice.
  EXPECT_NEAR(estimateOf(NodeKind::Kernel, {touch(modeReadWrite, 7 * megabyte)}) - idle, 14, 1e-9);
}

// Bytes move while the kernel computes: it takes as long as the slower of the two.
TEST(EstimateCosts, kernelCostsItsArithmeticWhereThatTakesLonger) {
  const double idle = estimateOf(NodeKind::Kernel, {});
  for (const double arithmeticUs : {3.0, 7.0, 30.0}) {
    Description description;
    description.buffers.resize(1);
    description.nodes.resize(1);
    description.nodes[0].accesses = {touch(modeRead, 7 * megabyte)};
    description.nodes[0].arithmeticUs = arithmeticUs;
    estimateCosts(description, roundMachine());
    EXPECT_NEAR(description.nodes[0].costUs - idle, std::max(arithmeticUs, 7.0), 1e-9);
  }
}

TEST(EstimateCosts, copyCostsTheLinkWhenOneSideIsHostMemory) {
  const double idle = estimateOf(NodeKind::Kernel, {});
  EXPECT_NEAR(estimateOf(NodeKind::Memcpy, {touch(modeWrite, megabyte)}) - idle, 100, 1e-9);
  EXPECT_NEAR(estimateOf(NodeKind::Memcpy, {touch(modeRead, megabyte)}) - idle, 50, 1e-9);
  EXPECT_NEAR(estimateOf(NodeKind::Memcpy, {touch(modeRead, megabyte), touch(modeWrite, megabyte)}) - idle, 2, 1e-9);
}

// Hundreds of kernels that each get an address in one allocation do not each pass over all of it.
TEST(EstimateCosts, manyAccessesPassOverARangeSomeTimes) {
  const auto stepUs = [](std::size_t kernels, Evidence evidence) {
    Description description;
    description.buffers.resize(1);
    description.buffers[0].size = 100 * megabyte;
    description.nodes.resize(kernels);
    for (Node &node : description.nodes) {
      node.accesses = {touch(modeRead, megabyte)};
      node.accesses[0].evidence = evidence;
    }
    estimateCosts(description, roundMachine());
    double us = 0;
    for (const Node &node : description.nodes)
      us += node.costUs - estimateOf(NodeKind::Kernel, {});
    return us;
  };
  EXPECT_NEAR(stepUs(32, Evidence::Assumed), 32, 1e-9);
  EXPECT_NEAR(stepUs(800, Evidence::Assumed), 32, 1e-6);
  EXPECT_NEAR(stepUs(800, Evidence::Proved), 800, 1e-6);
}

TEST(EstimateCosts, emptyNodesAreFree) {
  EXPECT_EQ(estimateOf(NodeKind::Empty, {}), 0);
}

TEST(EstimateCosts, knownTimesAndTransfersStay) {
  Description description;
  description.buffers.resize(1);
  description.nodes.resize(2);
  description.nodes[0].costUs = 17;
  description.nodes[1].kind = NodeKind::Evict;
  EXPECT_EQ(estimateCosts(description, roundMachine()), 0u);
  EXPECT_EQ(description.nodes[0].costUs, 17);
  EXPECT_TRUE(std::isnan(description.nodes[1].costUs));
}

Node kernel(std::int32_t captured, std::string name, double costUs = std::nan("")) {
  Node node;
  node.captured = captured;
  node.name = std::move(name);
  node.costUs = costUs;
  return node;
}

TEST(MergeCosts, takesTimesWherePositionAndNameAgree) {
  Description now, saved;
  now.nodes = {kernel(0, "a"), kernel(1, "b"), kernel(2, "c", 5), kernel(notCaptured, "d"), kernel(4, "e")};
  // The order in the saved step does not matter; a node of another name, without a position or a time, does not count.
  saved.nodes = {kernel(2, "c", 30), kernel(0, "a", 10), kernel(1, "other", 20), kernel(notCaptured, "d", 40),
                 kernel(4, "e")};
  EXPECT_EQ(mergeCosts(now, saved), 2u);
  EXPECT_EQ(now.nodes[0].costUs, 10);
  EXPECT_TRUE(std::isnan(now.nodes[1].costUs));
  EXPECT_EQ(now.nodes[2].costUs, 30);
  EXPECT_TRUE(std::isnan(now.nodes[3].costUs));
  EXPECT_TRUE(std::isnan(now.nodes[4].costUs));
}

} // namespace
} // namespace pumpgraph
