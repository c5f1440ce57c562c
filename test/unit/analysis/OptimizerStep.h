// SPDX-License-Identifier: Apache-2.0
/// \file
/// Training steps that differ in how their optimizer is written: one kernel for all it does, or one operation after the
/// other, each over every parameter.
#pragma once

#include "test/unit/analysis/SmallStep.h"

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

namespace pumpgraph::test {

/// Layers with a weight of `weightPages` each, a forward and a backward pass over them, and the operations that the
/// test asks for. As in a capture, nothing is known of what a kernel does with its operands.
class OptimizerStep : public SmallStep {
public:
  static constexpr std::size_t layers = 24;
  static constexpr std::size_t tensorsPerLaunch = 5;
  static constexpr std::uint64_t weightPages = 3;
  static constexpr std::uint64_t listBytes =
      layers * weightPages * smallPage; ///< of all weights, of all gradients, ...
  static constexpr std::size_t launches = (layers + tensorsPerLaunch - 1) / tensorsPerLaunch;
  using Tensors = std::vector<BufferIndex>;

  OptimizerStep() : weights(liveTensors("weight")), gradients(localTensors("gradient")) {}

  Tensors liveTensors(const std::string &name) {
    return tensors([&] { return live(name, weightPages); });
  }
  Tensors localTensors(const std::string &name) {
    return tensors([&] { return local(name, weightPages); });
  }

  /// Every gradient is written, or added to, by the kernel of its layer.
  void forwardAndBackward() {
    Tensors activations{local("input", activationPages)};
    for (const BufferIndex weight : weights) {
      activations.push_back(local("activation", activationPages));
      use("forward", {weight, *(activations.end() - 2), activations.back()});
    }
    BufferIndex gradient = local("loss", activationPages);
    use("loss", {activations.back(), gradient});
    for (std::size_t layer = layers; layer-- > 0;) {
      const BufferIndex before = local("activation gradient", activationPages);
      use("weight gradient", {activations[layer], gradient, gradients[layer]});
      use("input gradient", {weights[layer], gradient, before});
      gradient = before;
    }
  }

  /// One operation over whole lists, in launches of a few tensors each.
  void forEach(const std::string &name, const std::vector<Tensors> &lists) {
    for (std::size_t first = 0; first < layers; first += tensorsPerLaunch) {
      Tensors used;
      for (const Tensors &list : lists)
        for (std::size_t i = first; i < std::min(first + tensorsPerLaunch, layers); ++i)
          used.push_back(list[i]);
      use(name, used);
    }
  }

  void use(const std::string &name, const Tensors &used) {
    std::vector<Access> accesses;
    for (const BufferIndex buffer : used)
      accesses.push_back(mayUse(buffer));
    kernel(name, 1, std::move(accesses));
  }

  /// AdamW as it is without fused kernels: six walks, because the second moments and what is made of them are used by
  /// one operation after the other.
  void foreachAdamW() {
    const Tensors means = liveTensors("mean"), squares = liveTensors("square"), roots = localTensors("root");
    const BufferIndex counts = live("step counts", 1);
    use("count", {counts});
    forEach("decay", {weights});
    forEach("lerp", {means, gradients});
    forEach("mul", {squares});
    forEach("addcmul", {squares, gradients});
    use("power of counts", {counts});
    forEach("sqrt", {squares, roots});
    forEach("div", {roots});
    forEach("add", {roots});
    forEach("addcdiv", {weights, means, roots});
  }

  void fusedAdamW() { forEach("fused", {weights, gradients, liveTensors("mean"), liveTensors("square")}); }

  Tensors weights;
  Tensors gradients;

private:
  static constexpr std::uint64_t activationPages = 2;

  Tensors tensors(const std::function<BufferIndex()> &make) {
    Tensors made(layers);
    std::generate(made.begin(), made.end(), make);
    return made;
  }
};

} // namespace pumpgraph::test
