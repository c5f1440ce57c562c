// SPDX-License-Identifier: Apache-2.0
/// \file
/// The transformer of model.h.
#include "kernels.cuh"
#include "model.h"
#include "products.cuh"

#include <cmath>
#include <string>
#include <utility>
#include <vector>

namespace {

/// A weight with its optimizer state, which one that is frozen does not have; its gradient lives only during a step.
struct Parameter {
  std::string name;
  Tensor value;
  Tensor mean;
  Tensor square;
  Tensor gradient;
};

class Transformer : public Model {
public:
  Transformer(const Shape &shape, Matmul matmul, Memory &memory, cudaStream_t stream)
      : shape_(shape), memory_(memory), products_(makeProducts(matmul, memory, stream)),
        loss_(memory, 1, "loss", stream), steps_(memory, 1, "optimizer steps", stream),
        tokens_(memory, shape.rows(), "tokens", stream), targets_(memory, shape.rows(), "targets", stream) {
    if (shape.width % shape.heads != 0)
      fail("the width " + std::to_string(shape.width) + " is no multiple of the heads, " + std::to_string(shape.heads));
    if (shape.frozen < 0 || shape.frozen > shape.layers)
      fail("of " + std::to_string(shape.layers) + " layers " + std::to_string(shape.frozen) + " cannot be frozen");
    stream_ = stream;
    makeParameters();
    setTo(steps_, 0);
    setTo(loss_, 0);
    check(cudaStreamSynchronize(stream), "initialisation");
  }

  float *loss() const override { return loss_.data(); }
  int *tokens() const override { return reinterpret_cast<int *>(tokens_.data()); }
  int *targets() const override { return reinterpret_cast<int *>(targets_.data()); }

  void record(cudaStream_t stream) override {
    stream_ = stream;
    products_->use(stream);
    std::vector<Layer> layers(shape_.layers);
    Tensor x = embed();
    for (int i = 0; i < shape_.layers; ++i) {
      x = forward(layers[i], std::move(x), i);
      if (i < shape_.frozen)
        layers[i] = {}; // no backward pass
    }
    Tensor dx = lossAndGradient(x);
    for (int i = shape_.layers - 1; i >= shape_.frozen; --i)
      dx = backward(layers[i], std::move(dx), i);
    if (shape_.frozen == 0)
      embedBackward(dx);
    update();
  }

private:
  /// What the forward pass of one layer keeps for the backward pass.
  struct Layer {
    Tensor in, inverseRms1, normed1, qkv, probabilities, mixed;
    Tensor middle, inverseRms2, normed2, up, activated;
  };

  enum PerLayer { gain1, qkvWeight, projection, gain2, upWeight, downWeight, perLayer };

  static std::string nameIn(int layer, const char *name) { return "layer" + std::to_string(layer) + "." + name; }

  Parameter &inLayer(int layer, PerLayer which) { return parameters_[layer * perLayer + which]; }
  Parameter &tokenRows() { return parameters_[shape_.layers * perLayer]; }
  Parameter &placeRows() { return parameters_[shape_.layers * perLayer + 1]; }
  Parameter &lastGain() { return parameters_[shape_.layers * perLayer + 2]; }
  Parameter &head() { return parameters_[shape_.layers * perLayer + 3]; }

  Tensor make(std::size_t count, const std::string &name) {
    return Tensor(memory_, count, name, stream_, TouchedBy::StepsOnly);
  }

  void setTo(Tensor &tensor, float value) {
    kernels::fill<<<kernels::blocksFor(tensor.count()), kernels::blockThreads, 0, stream_>>>(tensor.data(),
                                                                                             tensor.count(), value);
    check(cudaGetLastError(), "fill");
  }

  void addParameter(const std::string &name, std::size_t count, float deviation, bool isFrozen) {
    const auto keep = [&](const std::string &name) {
      return Tensor(memory_, count, name, stream_, TouchedBy::StepsOnly);
    };
    Parameter parameter{name, keep(name), {}, {}, {}};
    const auto seed = static_cast<unsigned>(parameters_.size() + 1);
    if (deviation == 0)
      setTo(parameter.value, 1);
    else
      kernels::fillNormal<<<kernels::blocksFor(count), kernels::blockThreads, 0, stream_>>>(parameter.value.data(),
                                                                                            count, deviation, seed);
    if (!isFrozen) {
      parameter.mean = keep(name + ".mean");
      parameter.square = keep(name + ".square");
      setTo(parameter.mean, 0);
      setTo(parameter.square, 0);
    }
    parameters_.push_back(std::move(parameter));
  }

  void makeParameters() {
    const std::size_t width = shape_.width;
    const float deviation = 0.02F;
    const float deviationIntoSkip = deviation / std::sqrt(2.0F * static_cast<float>(shape_.layers));
    for (int i = 0; i < shape_.layers; ++i) {
      const bool isFrozen = i < shape_.frozen;
      addParameter(nameIn(i, "gain1"), width, 0, isFrozen);
      addParameter(nameIn(i, "qkv"), 3 * width * width, deviation, isFrozen);
      addParameter(nameIn(i, "projection"), width * width, deviationIntoSkip, isFrozen);
      addParameter(nameIn(i, "gain2"), width, 0, isFrozen);
      addParameter(nameIn(i, "up"), 4 * width * width, deviation, isFrozen);
      addParameter(nameIn(i, "down"), 4 * width * width, deviationIntoSkip, isFrozen);
    }
    addParameter("tokenRows", shape_.words * width, deviation, shape_.frozen > 0);
    addParameter("placeRows", shape_.length * width, deviation, shape_.frozen > 0);
    addParameter("lastGain", width, 0, false);
    addParameter("head", shape_.words * width, deviation, false);
  }

  // ---- pieces ----

  /// out[rows, to] = in[rows, from] * weight[to, from]^T (+ out).
  void linear(const Tensor &in, const Parameter &weight, Tensor &out, int from, int to, bool adds = false) {
    products_->multiply(shape_.rows(), to, from, {in.data(), from}, {weight.value.data(), from, true}, out.data(), to,
                        {.adds = adds});
  }

  /// The gradient of the weight, and of the input, which it returns.
  Tensor linearBackward(const Tensor &in, Parameter &weight, const Tensor &dOut, int from, int to,
                        const std::string &name) {
    weight.gradient = make(weight.value.count(), weight.name + ".gradient");
    products_->multiply(to, from, shape_.rows(), {dOut.data(), to, true}, {in.data(), from}, weight.gradient.data(),
                        from, {});
    Tensor dIn = make(std::size_t(shape_.rows()) * from, name);
    products_->multiply(shape_.rows(), from, to, {dOut.data(), to}, {weight.value.data(), from}, dIn.data(), from, {});
    return dIn;
  }

  Tensor norm(const Tensor &in, const Parameter &gain, Tensor &inverseRms, const std::string &name) {
    Tensor out = make(in.count(), name);
    inverseRms = make(shape_.rows(), name + ".inverseRms");
    kernels::norm<<<shape_.rows(), kernels::blockThreads, 0, stream_>>>(in.data(), gain.value.data(), out.data(),
                                                                        inverseRms.data(), shape_.width);
    check(cudaGetLastError(), "norm");
    return out;
  }

  /// `dSkip` may be null; else it is added to the result.
  Tensor normBackward(const Tensor &in, Parameter &gain, const Tensor &inverseRms, const Tensor &dOut,
                      const Tensor *dSkip, const std::string &name) {
    constexpr int sliceCount = 64;
    const unsigned columnBlocks = kernels::blocksFor(shape_.width);
    Tensor slices = make(std::size_t{sliceCount} * shape_.width, name + ".slices");
    gain.gradient = make(shape_.width, gain.name + ".gradient");
    kernels::normGainSlices<<<dim3(columnBlocks, sliceCount), kernels::blockThreads, 0, stream_>>>(
        in.data(), inverseRms.data(), dOut.data(), slices.data(), shape_.rows(), shape_.width);
    kernels::sumSlices<<<columnBlocks, kernels::blockThreads, 0, stream_>>>(slices.data(), gain.gradient.data(),
                                                                            sliceCount, shape_.width);
    Tensor dIn = make(in.count(), name);
    kernels::normBackward<<<shape_.rows(), kernels::blockThreads, 0, stream_>>>(
        in.data(), gain.value.data(), inverseRms.data(), dOut.data(), dSkip ? dSkip->data() : nullptr, dIn.data(),
        shape_.width);
    check(cudaGetLastError(), "normBackward");
    return dIn;
  }

  Tensor embed() {
    Tensor x = make(std::size_t(shape_.rows()) * shape_.width, "embedded");
    kernels::embed<<<shape_.rows(), kernels::blockThreads, 0, stream_>>>(
        tokens(), tokenRows().value.data(), placeRows().value.data(), x.data(), shape_.length, shape_.width);
    check(cudaGetLastError(), "embed");
    return x;
  }

  void embedBackward(const Tensor &dx) {
    tokenRows().gradient = make(tokenRows().value.count(), "tokenRows.gradient");
    kernels::embedTokensBackward<<<shape_.words, kernels::blockThreads, 0, stream_>>>(
        tokens(), dx.data(), tokenRows().gradient.data(), shape_.rows(), shape_.width);
    placeRows().gradient = make(placeRows().value.count(), "placeRows.gradient");
    kernels::embedPlacesBackward<<<shape_.length, kernels::blockThreads, 0, stream_>>>(
        dx.data(), placeRows().gradient.data(), shape_.rows(), shape_.length, shape_.width);
    check(cudaGetLastError(), "embedBackward");
  }

  // ---- attention: query, key and value of a word lie side by side in a row of qkv, heads within each ----

  enum Part { query, key, value };

  Products::Matrix part(const Tensor &qkv, int text, Part which, bool transposed = false) const {
    const std::size_t offset = std::size_t(text) * shape_.length * 3 * shape_.width + std::size_t(which) * shape_.width;
    return {qkv.data() + offset, 3 * shape_.width, transposed, shape_.headWidth()};
  }

  float *partOut(const Tensor &qkv, int text, Part which) const {
    return const_cast<float *>(part(qkv, text, which).data);
  }

  /// The square of scores of every head of one text.
  Products::Matrix square(const Tensor &scores, int text, bool transposed = false) const {
    const long long size = static_cast<long long>(shape_.length) * shape_.length;
    return {scores.data() + size * shape_.heads * text, shape_.length, transposed, size};
  }

  Products::Matrix headsOf(const Tensor &mixed, int text) const {
    return {mixed.data() + std::size_t(text) * shape_.length * shape_.width, shape_.width, false, shape_.headWidth()};
  }

  Products::Options inEveryHead(long long batchStride, float alpha = 1) const {
    return {.alpha = alpha, .count = shape_.heads, .cBatchStride = batchStride};
  }

  float scoreScale() const { return 1 / std::sqrt(static_cast<float>(shape_.headWidth())); }

  void attend(Layer &layer, int index) {
    const int length = shape_.length;
    layer.probabilities =
        make(std::size_t(shape_.batch) * shape_.heads * length * length, nameIn(index, "probabilities"));
    layer.mixed = make(std::size_t(shape_.rows()) * shape_.width, nameIn(index, "mixed"));
    for (int text = 0; text < shape_.batch; ++text) {
      const Products::Matrix scores = square(layer.probabilities, text);
      products_->multiply(length, length, shape_.headWidth(), part(layer.qkv, text, query),
                          part(layer.qkv, text, key, true), const_cast<float *>(scores.data), length,
                          inEveryHead(scores.batchStride, scoreScale()));
    }
    kernels::causalSoftmax<<<shape_.batch * shape_.heads * length, kernels::blockThreads, 0, stream_>>>(
        layer.probabilities.data(), length);
    check(cudaGetLastError(), "causalSoftmax");
    for (int text = 0; text < shape_.batch; ++text) {
      const Products::Matrix out = headsOf(layer.mixed, text);
      products_->multiply(length, shape_.headWidth(), length, square(layer.probabilities, text),
                          part(layer.qkv, text, value), const_cast<float *>(out.data), shape_.width,
                          inEveryHead(out.batchStride));
    }
  }

  Tensor attendBackward(Layer &layer, const Tensor &dMixed, int index) {
    const int length = shape_.length;
    const int headWidth = shape_.headWidth();
    Tensor dScores = make(layer.probabilities.count(), nameIn(index, "dScores"));
    Tensor dQkv = make(layer.qkv.count(), nameIn(index, "dQkv"));
    for (int text = 0; text < shape_.batch; ++text) {
      const Products::Matrix out = square(dScores, text);
      products_->multiply(length, length, headWidth, headsOf(dMixed, text), part(layer.qkv, text, value, true),
                          const_cast<float *>(out.data), length, inEveryHead(out.batchStride));
      products_->multiply(length, headWidth, length, square(layer.probabilities, text, true), headsOf(dMixed, text),
                          partOut(dQkv, text, value), 3 * shape_.width, inEveryHead(headWidth));
    }
    kernels::softmaxBackward<<<shape_.batch * shape_.heads * length, kernels::blockThreads, 0, stream_>>>(
        layer.probabilities.data(), dScores.data(), length);
    check(cudaGetLastError(), "softmaxBackward");
    layer.probabilities = {};
    for (int text = 0; text < shape_.batch; ++text) {
      products_->multiply(length, headWidth, length, square(dScores, text), part(layer.qkv, text, key),
                          partOut(dQkv, text, query), 3 * shape_.width, inEveryHead(headWidth, scoreScale()));
      products_->multiply(length, headWidth, length, square(dScores, text, true), part(layer.qkv, text, query),
                          partOut(dQkv, text, key), 3 * shape_.width, inEveryHead(headWidth, scoreScale()));
    }
    return dQkv;
  }

  // ---- layers ----

  Tensor copyOf(const Tensor &tensor, const std::string &name) {
    Tensor copy = make(tensor.count(), name);
    check(cudaMemcpyAsync(copy.data(), tensor.data(), tensor.sizeBytes(), cudaMemcpyDeviceToDevice, stream_), "copy");
    return copy;
  }

  Tensor forward(Layer &layer, Tensor in, int index) {
    const int width = shape_.width;
    layer.in = std::move(in);
    layer.normed1 = norm(layer.in, inLayer(index, gain1), layer.inverseRms1, nameIn(index, "normed1"));
    layer.qkv = make(std::size_t(shape_.rows()) * 3 * width, nameIn(index, "qkv"));
    linear(layer.normed1, inLayer(index, qkvWeight), layer.qkv, width, 3 * width);
    attend(layer, index);
    layer.middle = copyOf(layer.in, nameIn(index, "middle"));
    linear(layer.mixed, inLayer(index, projection), layer.middle, width, width, true);

    layer.normed2 = norm(layer.middle, inLayer(index, gain2), layer.inverseRms2, nameIn(index, "normed2"));
    layer.up = make(std::size_t(shape_.rows()) * 4 * width, nameIn(index, "up"));
    linear(layer.normed2, inLayer(index, upWeight), layer.up, width, 4 * width);
    layer.activated = make(layer.up.count(), nameIn(index, "activated"));
    kernels::gelu<<<kernels::blocksFor(layer.up.count()), kernels::blockThreads, 0, stream_>>>(
        layer.up.data(), layer.activated.data(), layer.up.count());
    check(cudaGetLastError(), "gelu");
    Tensor out = copyOf(layer.middle, nameIn(index, "out"));
    linear(layer.activated, inLayer(index, downWeight), out, 4 * width, width, true);
    return out;
  }

  /// Frees what the forward pass kept as soon as it has been used.
  Tensor backward(Layer &layer, Tensor dOut, int index) {
    const int width = shape_.width;
    Tensor dUp =
        linearBackward(layer.activated, inLayer(index, downWeight), dOut, 4 * width, width, nameIn(index, "dUp"));
    layer.activated = {};
    kernels::geluBackward<<<kernels::blocksFor(dUp.count()), kernels::blockThreads, 0, stream_>>>(
        layer.up.data(), dUp.data(), dUp.count());
    check(cudaGetLastError(), "geluBackward");
    layer.up = {};
    Tensor dNormed2 =
        linearBackward(layer.normed2, inLayer(index, upWeight), dUp, width, 4 * width, nameIn(index, "dNormed2"));
    dUp = {};
    layer.normed2 = {};
    Tensor dMiddle =
        normBackward(layer.middle, inLayer(index, gain2), layer.inverseRms2, dNormed2, &dOut, nameIn(index, "dMiddle"));
    dOut = {};
    dNormed2 = {};
    layer.middle = {};

    Tensor dMixed =
        linearBackward(layer.mixed, inLayer(index, projection), dMiddle, width, width, nameIn(index, "dMixed"));
    layer.mixed = {};
    Tensor dQkv = attendBackward(layer, dMixed, index);
    dMixed = {};
    layer.qkv = {};
    Tensor dNormed1 =
        linearBackward(layer.normed1, inLayer(index, qkvWeight), dQkv, width, 3 * width, nameIn(index, "dNormed1"));
    layer.normed1 = {};
    return normBackward(layer.in, inLayer(index, gain1), layer.inverseRms1, dNormed1, &dMiddle, nameIn(index, "dIn"));
  }

  Tensor lossAndGradient(const Tensor &x) {
    Tensor inverseRms;
    Tensor normed = norm(x, lastGain(), inverseRms, "lastNormed");
    Tensor logits = make(std::size_t(shape_.rows()) * shape_.words, "logits");
    linear(normed, head(), logits, shape_.width, shape_.words);
    Tensor losses = make(shape_.rows(), "losses");
    kernels::crossEntropy<<<shape_.rows(), kernels::blockThreads, 0, stream_>>>(logits.data(), targets(), losses.data(),
                                                                                shape_.words);
    kernels::meanOf<<<1, kernels::blockThreads, 0, stream_>>>(losses.data(), shape_.rows(), loss_.data());
    check(cudaGetLastError(), "crossEntropy");
    Tensor dNormed = linearBackward(normed, head(), logits, shape_.width, shape_.words, "dLastNormed");
    return normBackward(x, lastGain(), inverseRms, dNormed, nullptr, "dLast");
  }

  /// AdamW on every parameter; the gradients end here.
  void update() {
    kernels::countStep<<<1, 1, 0, stream_>>>(steps_.data());
    for (Parameter &parameter : parameters_) {
      if (!parameter.gradient.data()) // frozen
        continue;
      const std::size_t count = parameter.value.count();
      kernels::adamW<<<kernels::blocksFor(count), kernels::blockThreads, 0, stream_>>>(
          parameter.value.data(), parameter.gradient.data(), parameter.mean.data(), parameter.square.data(),
          steps_.data(), count, kernels::AdamOptions{});
      check(cudaGetLastError(), "adamW");
      parameter.gradient = {};
    }
  }

  Shape shape_;
  Memory &memory_;
  cudaStream_t stream_ = nullptr;
  std::unique_ptr<Products> products_;
  Tensor loss_, steps_, tokens_, targets_;
  std::vector<Parameter> parameters_;
};

} // namespace

std::unique_ptr<Model> makeTransformer(const Shape &shape, Matmul matmul, Memory &memory, cudaStream_t stream) {
  return std::make_unique<Transformer>(shape, matmul, memory, stream);
}
