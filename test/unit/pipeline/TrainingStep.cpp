// SPDX-License-Identifier: Apache-2.0
#include "TrainingStep.h"

#include <fmt/format.h>

#include <utility>

namespace pumpgraph::test {

static constexpr std::uint64_t mebi = std::uint64_t{1} << 20;

namespace {

class StepBuilder {
public:
  BufferIndex persistent(const std::string &name, std::uint64_t size) { return add({name, size, true}); }
  BufferIndex temporary(const std::string &name, std::uint64_t size) { return add({name, size, false}); }

  void kernel(const std::string &name, double costUs, std::initializer_list<BufferIndex> reads,
              std::initializer_list<BufferIndex> writes, std::initializer_list<BufferIndex> updates = {}) {
    Node node;
    node.name = name;
    node.captured = static_cast<std::int32_t>(step.nodes.size());
    node.costUs = costUs;
    for (const BufferIndex buffer : reads)
      node.accesses.push_back(access(buffer, modeRead, modeRead));
    for (const BufferIndex buffer : writes)
      node.accesses.push_back(access(buffer, modeWrite, modeWrite));
    for (const BufferIndex buffer : updates)
      node.accesses.push_back(access(buffer, modeReadWrite, modeNone));
    if (!step.nodes.empty())
      step.edges.push_back({static_cast<NodeIndex>(step.nodes.size() - 1), static_cast<NodeIndex>(step.nodes.size())});
    step.nodes.push_back(std::move(node));
  }

  Description step;

private:
  struct Facts {
    std::string name;
    std::uint64_t size;
    bool live;
  };

  BufferIndex add(const Facts &facts) {
    Buffer buffer;
    buffer.name = facts.name;
    buffer.size = facts.size;
    buffer.isPrivate = true;
    buffer.liveIn = buffer.liveOut = facts.live;
    step.buffers.push_back(std::move(buffer));
    return static_cast<BufferIndex>(step.buffers.size() - 1);
  }

  Access access(BufferIndex buffer, std::uint8_t may, std::uint8_t must) const {
    Access access;
    access.buffer = buffer;
    access.range = {0, step.buffers[buffer].size};
    access.may = may;
    access.must = must;
    access.evidence = Evidence::Declared;
    return access;
  }
};

} // namespace

Description trainingStep(int layers) {
  StepBuilder builder;
  builder.step.name = fmt::format("train-{}-layers", layers);
  std::vector<BufferIndex> weights, states, inputs, hidden;
  inputs.push_back(builder.temporary("embedding.output", 96 * mebi));
  for (int i = 0; i < layers; ++i) {
    weights.push_back(builder.persistent(fmt::format("layer{}.weight", i), 24 * mebi));
    states.push_back(builder.persistent(fmt::format("layer{}.adam", i), 48 * mebi));
    hidden.push_back(builder.temporary(fmt::format("layer{}.hidden", i), 192 * mebi));
    inputs.push_back(builder.temporary(fmt::format("layer{}.output", i), 96 * mebi));
  }

  builder.kernel("void embedding_forward<float>(float const*, int const*)", 120, {}, {inputs[0]});
  for (std::size_t i = 0; i < weights.size(); ++i) {
    builder.kernel("sm90_xmma_gemm_f32f32_tf32f32_f32_tn_n_tilesize128x128x32", 1400, {inputs[i], weights[i]},
                   {hidden[i]});
    builder.kernel("void layer_norm_forward<float, 4>", 160, {hidden[i]}, {inputs[i + 1]});
  }
  BufferIndex gradient = builder.temporary("loss.gradient", 96 * mebi);
  builder.kernel("void cross_entropy_backward<float>", 300, {inputs.back()}, {gradient});
  std::vector<BufferIndex> weightGradients(weights.size());
  for (std::size_t i = weights.size(); i-- > 0;) {
    const BufferIndex hiddenGradient = builder.temporary(fmt::format("layer{}.hidden.gradient", i), 192 * mebi);
    const BufferIndex nextGradient = builder.temporary(fmt::format("layer{}.gradient", i), 96 * mebi);
    weightGradients[i] = builder.temporary(fmt::format("layer{}.weight.gradient", i), 24 * mebi);
    builder.kernel("void layer_norm_backward<float, 4>", 260, {hidden[i], gradient}, {hiddenGradient});
    builder.kernel("sm90_xmma_gemm_f32f32_tf32f32_f32_nt_n_tilesize128x128x32", 1400, {inputs[i], hiddenGradient},
                   {weightGradients[i]});
    builder.kernel("sm90_xmma_gemm_f32f32_tf32f32_f32_nn_n_tilesize128x128x32", 1400, {weights[i], hiddenGradient},
                   {nextGradient});
    gradient = nextGradient;
  }
  for (std::size_t i = 0; i < weights.size(); ++i)
    builder.kernel("void fused_adam<float>", 45, {weightGradients[i]}, {}, {states[i], weights[i]});
  return std::move(builder.step);
}

} // namespace pumpgraph::test
