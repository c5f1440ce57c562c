// SPDX-License-Identifier: Apache-2.0
#include "passes/rematerialize/ChooseRepetitions.h"

#include "test/unit/rematerialize/PureStep.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

namespace pumpgraph::test {
namespace {

constexpr std::uint64_t mebibyte = 1 << 20;

/// A stack of layers and their gradients. Each layer leaves two values: "product", which takes long to make, and
/// "norm", of the same size and cheap, made from that. The backward node reads both.
class Layers : public testing::Test {
protected:
  static constexpr std::uint32_t layers = 12;
  static constexpr std::uint64_t bytes = 8 * mebibyte;

  Layers() {
    std::vector<BufferIndex> products, norms;
    for (std::uint32_t layer = 0; layer < layers; ++layer) {
      products.push_back(tensor("product"));
      norms.push_back(tensor("norm"));
    }
    const BufferIndex gradient = tensor("gradient");
    for (std::uint32_t layer = 0; layer < layers; ++layer) {
      if (layer == 0)
        step_.pure("matmul", {step_.write(products[0])}, 400);
      else
        step_.pure("matmul", {step_.read(norms[layer - 1]), step_.write(products[layer])}, 400);
      step_.pure("normalize", {step_.read(products[layer]), step_.write(norms[layer])}, 10);
    }
    step_.impure("loss", {step_.read(norms.back()), step_.write(gradient)}, 10);
    for (std::uint32_t layer = layers; layer-- > 0;)
      step_.impure("backward", {step_.read(products[layer]), step_.read(norms[layer]), step_.update(gradient)}, 800);
  }

  BufferIndex tensor(const std::string &name) {
    const BufferIndex index = step_.buffer(name);
    step_.step().buffers[index].size = bytes;
    return index;
  }
  std::vector<Turn> choose(std::uint64_t budgetBytes, std::size_t judgements = 800) {
    RepetitionOptions options;
    options.budgetBytes = budgetBytes;
    options.machine.upBytesPerSecond = options.machine.downBytesPerSecond = 1e9;
    options.machine.bothBytesPerSecond = 2e9;
    options.judgements = judgements;
    return chooseRepetitions(step_.step(), options);
  }
  static std::size_t repetitions(const std::vector<Turn> &turns) {
    return static_cast<std::size_t>(std::ranges::count(turns, true, &Turn::again));
  }

  static constexpr std::uint64_t peak = (2 * layers + 1) * bytes;
  PureStep step_;
};

TEST_F(Layers, dropWhatIsCheapPerByteAtHalfThePeak) {
  const std::vector<Turn> turns = choose(peak / 2 + 2 * bytes);
  std::set<std::string> names;
  for (const Turn &turn : turns)
    if (turn.again)
      names.insert(step_.step().nodes[turn.node].name);
  EXPECT_EQ(names, std::set<std::string>{"normalize"}) << toText(turns);
  EXPECT_GE(repetitions(turns), layers / 2);
  EXPECT_LE(repetitions(turns), layers);
}

TEST_F(Layers, dropNothingWhereAllFits) {
  EXPECT_EQ(repetitions(choose(peak)), 0U);
  EXPECT_EQ(choose(peak).size(), step_.step().nodes.size());
}

TEST_F(Layers, dropNothingThatTakesLongerToMakeThanToMove) {
  for (Node &node : step_.step().nodes)
    node.costUs *= 1000;
  EXPECT_EQ(repetitions(choose(peak / 2)), 0U);
}

TEST_F(Layers, dropNothingWhereNothingIsPure) {
  for (Node &node : step_.step().nodes)
    node.isPure = false;
  EXPECT_EQ(repetitions(choose(peak / 2)), 0U);
}

TEST_F(Layers, dropTheSameEachTime) {
  EXPECT_EQ(choose(peak / 3), choose(peak / 3));
}

TEST_F(Layers, doAsTheBestOfTheFirstChoicesSays) {
  for (const std::size_t judgements : {0, 1})
    EXPECT_EQ(repetitions(choose(peak / 2, judgements)), 0U); // the first is the captured step
  EXPECT_EQ(choose(peak / 2, 0).size(), step_.step().nodes.size());
  EXPECT_GT(repetitions(choose(peak / 2, 40)), 0U);
}

TEST_F(Layers, dropSmallValuesUnderSmallBudgets) {
  for (Buffer &buffer : step_.step().buffers)
    buffer.size /= mebibyte;
  for (Node &node : step_.step().nodes) {
    node.costUs /= mebibyte;
    for (Access &access : node.accesses)
      access.range.size = 8;
  }
  EXPECT_GT(repetitions(choose(peak / 2 / mebibyte)), 0U);
}

} // namespace
} // namespace pumpgraph::test
