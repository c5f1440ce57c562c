// SPDX-License-Identifier: Apache-2.0
#include "test/unit/plan/RegularStep.h"

#include <gtest/gtest.h>

#include <fmt/core.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace pumpgraph::test {

namespace {

class Writer {
public:
  explicit Writer(const RegularStepShape &shape) : shape_(shape) {}

  Description write() {
    input_ = buffer("input", shape_.activationPages, false);
    for (int l = 0; l < shape_.layers; ++l)
      layers_.push_back(layer(l));
    for (int l = 0; l < shape_.layers; ++l)
      forward(l);
    gradient_ = buffer("loss.gradient", shape_.activationPages, false);
    kernel("loss", {read(layers_.back().output), write(gradient_)});
    for (int l = shape_.layers - 1; l >= 0; --l)
      backward(l);
    for (int l = 0; l < shape_.layers; ++l)
      optimizer(l);
    return std::move(step_);
  }

private:
  struct Layer {
    BufferIndex weight, hidden, output, weightGradient, momentum, variance;
  };

  BufferIndex buffer(const std::string &name, std::uint64_t pages, bool isLive) {
    Buffer buffer;
    buffer.name = name;
    buffer.size = pages * step_.pageBytes;
    buffer.isPrivate = true;
    buffer.liveIn = buffer.liveOut = isLive;
    step_.buffers.push_back(buffer);
    return static_cast<BufferIndex>(step_.buffers.size() - 1);
  }

  Layer layer(int l) {
    const std::string name = fmt::format("layer{}.", l);
    Layer layer{};
    layer.weight = buffer(name + "weight", shape_.weightPages, true);
    layer.hidden = buffer(name + "hidden", shape_.activationPages, false);
    layer.output = buffer(name + "output", shape_.activationPages, false);
    layer.weightGradient = buffer(name + "weight.gradient", shape_.weightPages, false);
    if (shape_.hasOptimizerState) {
      layer.momentum = buffer(name + "momentum", shape_.weightPages, true);
      layer.variance = buffer(name + "variance", shape_.weightPages, true);
    }
    return layer;
  }

  Access access(BufferIndex buffer, std::uint8_t may, std::uint8_t must) const {
    return {buffer, {0, step_.buffers[buffer].size}, may, must, Evidence::Declared};
  }
  Access read(BufferIndex buffer) const { return access(buffer, modeRead, modeRead); }
  Access write(BufferIndex buffer) const { return access(buffer, modeWrite, modeWrite); }
  Access update(BufferIndex buffer) const { return access(buffer, modeReadWrite, modeReadWrite); }

  NodeIndex add(const std::string &name, std::vector<Access> accesses) {
    Node node;
    node.name = name;
    node.captured = static_cast<std::int32_t>(step_.nodes.size());
    node.costUs = shape_.kernelUs;
    node.accesses = std::move(accesses);
    step_.nodes.push_back(std::move(node));
    return static_cast<NodeIndex>(step_.nodes.size() - 1);
  }

  /// The next kernel of the main stream.
  NodeIndex kernel(const std::string &name, std::vector<Access> accesses) {
    const NodeIndex node = add(name, std::move(accesses));
    if (last_) {
      const bool overlaps = shape_.programmaticEvery > 0 && ++joins_ % shape_.programmaticEvery == 0;
      step_.edges.push_back({*last_, node, overlaps ? EdgeKind::Programmatic : EdgeKind::Full});
    }
    last_ = node;
    return node;
  }

  void forward(int l) {
    const Layer &layer = layers_[static_cast<std::size_t>(l)];
    const BufferIndex before = l == 0 ? input_ : layers_[static_cast<std::size_t>(l - 1)].output;
    const BufferIndex workspace = buffer(fmt::format("layer{}.workspace", l), shape_.workspacePages, false);
    kernel(fmt::format("forward{}.multiply", l),
           {read(before), read(layer.weight), write(layer.hidden), write(workspace)});
    kernel(fmt::format("forward{}.activate", l), {read(layer.hidden), write(layer.output)});
  }

  void backward(int l) {
    const Layer &layer = layers_[static_cast<std::size_t>(l)];
    const BufferIndex before = l == 0 ? input_ : layers_[static_cast<std::size_t>(l - 1)].output;
    const BufferIndex hidden = buffer(fmt::format("layer{}.hidden.gradient", l), shape_.activationPages, false);
    const BufferIndex next = buffer(fmt::format("layer{}.input.gradient", l), shape_.activationPages, false);
    const NodeIndex activate =
        kernel(fmt::format("backward{}.activate", l), {read(gradient_), read(layer.hidden), write(hidden)});
    const std::vector<Access> weights{read(hidden), read(before), write(layer.weightGradient)};
    if (shape_.hasSideStream) {
      const NodeIndex side = add(fmt::format("backward{}.weights", l), weights);
      step_.edges.push_back({activate, side, EdgeKind::Full});
      if (lastSide_)
        step_.edges.push_back({*lastSide_, side, EdgeKind::Full});
      lastSide_ = side;
    } else {
      kernel(fmt::format("backward{}.weights", l), weights);
    }
    kernel(fmt::format("backward{}.input", l), {read(hidden), read(layer.weight), write(next)});
    gradient_ = next;
  }

  void optimizer(int l) {
    const Layer &layer = layers_[static_cast<std::size_t>(l)];
    std::vector<Access> accesses{update(layer.weight), read(layer.weightGradient)};
    if (shape_.hasOptimizerState)
      accesses.insert(accesses.end(), {update(layer.momentum), update(layer.variance)});
    const NodeIndex node = kernel(fmt::format("optimizer{}", l), std::move(accesses));
    if (lastSide_)
      step_.edges.push_back({*lastSide_, node, EdgeKind::Full});
    lastSide_.reset();
  }

  const RegularStepShape &shape_;
  Description step_;
  std::vector<Layer> layers_;
  BufferIndex input_ = 0;
  BufferIndex gradient_ = 0;
  std::optional<NodeIndex> last_, lastSide_;
  int joins_ = 0;
};

} // namespace

Description regularStep(const RegularStepShape &shape) {
  return Writer(shape).write();
}

void expectSame(const Description &a, const Description &b) {
  EXPECT_EQ(a.edges, b.edges);
  ASSERT_EQ(a.nodes.size(), b.nodes.size());
  for (NodeIndex node = 0; node < a.nodes.size(); ++node) {
    EXPECT_EQ(a.nodes[node].kind, b.nodes[node].kind) << node;
    EXPECT_EQ(a.nodes[node].buffer, b.nodes[node].buffer) << node;
    EXPECT_EQ(a.nodes[node].range, b.nodes[node].range) << node;
    EXPECT_EQ(a.nodes[node].accesses, b.nodes[node].accesses) << node;
  }
  for (BufferIndex buffer = 0; buffer < a.buffers.size(); ++buffer) {
    EXPECT_EQ(a.buffers[buffer].frames, b.buffers[buffer].frames) << buffer;
    EXPECT_EQ(a.buffers[buffer].resident, b.buffers[buffer].resident) << buffer;
    EXPECT_EQ(a.buffers[buffer].mirrored, b.buffers[buffer].mirrored) << buffer;
  }
}

} // namespace pumpgraph::test
