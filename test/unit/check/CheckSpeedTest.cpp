// SPDX-License-Identifier: Apache-2.0
// The checker on a step as large as real ones: it runs after every planning and must not be felt.
#include "passes/check/CheckResidency.h"
#include "test/unit/check/StepBuilder.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <ctime>
#include <numeric>

namespace pumpgraph::test {
namespace {

constexpr NodeIndex layers = 1500;
constexpr std::int32_t pagesPerLayer = 20;
constexpr std::int32_t slots = 300; ///< of `pagesPerLayer` frames; layer i uses slot i % slots

/// A forward and a backward pass. Activations leave after their first use and come back for their last; every transfer
/// waits for the last one in its direction, as on a link.
class Training {
public:
  Description run() {
    builder_.unordered();
    for (NodeIndex layer = 0; layer < layers; ++layer) {
      std::vector<std::int32_t> frames(pagesPerLayer);
      std::iota(frames.begin(), frames.end(), static_cast<std::int32_t>(layer) % slots * pagesPerLayer);
      builder_.buffer(fmt::format("activation{}", layer), std::move(frames));
    }
    for (NodeIndex layer = 0; layer < layers; ++layer)
      forward(layer);
    for (NodeIndex layer = layers; layer-- > 0;)
      backward(layer);
    return std::move(builder_.step());
  }

private:
  void forward(NodeIndex layer) {
    std::vector<Access> accesses{builder_.write(layer)};
    if (layer > 0)
      accesses.push_back(builder_.read(layer - 1));
    const NodeIndex kernel = compute("forward", std::move(accesses));
    if (layer >= slots)
      builder_.edge(evictOf_[layer - slots], kernel);
    if (layer > 0)
      evictOf_.push_back(transfer(builder_.evict(layer - 1), lastDown_, kernel));
  }

  void backward(NodeIndex layer) {
    if (layer + slots < layers)
      transfer(builder_.prefetch(layer), lastUp_, backwardOf_[layers - 1 - (layer + slots)]);
    const NodeIndex prefetch = lastUp_;
    backwardOf_.push_back(compute("backward", {builder_.read(layer)}));
    if (prefetch != 0)
      builder_.edge(prefetch, backwardOf_.back());
    else if (layer + 1 < layers)
      builder_.edge(evictOf_[layer], backwardOf_.back());
  }

  NodeIndex compute(const char *name, std::vector<Access> accesses) {
    const NodeIndex kernel = builder_.kernel(name, std::move(accesses));
    if (hasKernel_)
      builder_.edge(lastKernel_, kernel);
    hasKernel_ = true;
    return lastKernel_ = kernel;
  }

  NodeIndex transfer(NodeIndex node, NodeIndex &last, NodeIndex after) {
    builder_.edge(after, node);
    if (last != 0)
      builder_.edge(last, node);
    // Evicts and prefetches of one page do not overtake each other either.
    if (&last == &lastUp_)
      builder_.edge(lastDown_, node);
    return last = node;
  }

  StepBuilder builder_{slots * pagesPerLayer};
  std::vector<NodeIndex> evictOf_;    ///< by layer
  std::vector<NodeIndex> backwardOf_; ///< last layer first
  NodeIndex lastKernel_ = 0;
  NodeIndex lastDown_ = 0;
  NodeIndex lastUp_ = 0;
  bool hasKernel_ = false;
};

TEST(CheckSpeed, aLargeStepTakesAFractionOfASecond) {
  const Description step = Training().run();
  const std::clock_t start = std::clock(); // of the processor: what else is on the machine does not count
  const std::vector<Violation> violations = checkResidency(step);
  const double ms = 1e3 * static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
  ASSERT_TRUE(violations.empty()) << violations.front().message;
  const std::size_t transfers = step.nodes.size() - 2 * layers;
  fmt::print("{} nodes, {} of them transfers, {} pages in {} frames: {:.1f} ms\n", step.nodes.size(), transfers,
             layers * pagesPerLayer, slots * pagesPerLayer, ms);
  EXPECT_LT(ms, 500); // about 10 are usual
}

} // namespace
} // namespace pumpgraph::test
