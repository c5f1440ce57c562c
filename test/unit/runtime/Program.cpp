// SPDX-License-Identifier: Apache-2.0
#include "test/unit/runtime/Program.h"

#include <gtest/gtest.h>

namespace pumpgraph::runtime::test {

void replay(Step *step, int times) {
  for (int i = 0; i < times; ++i) {
    const Status replayed = step->replay(nullptr);
    ASSERT_TRUE(replayed) << messageOf(replayed);
  }
}

std::string folderWithLink(const FakeDriver &fake) {
  const std::string folder = fmt::format("{}/pumpgraph-fake-link-{}", ::testing::TempDir(), fake.link().both);
  CUuuid uuid{};
  int version = 0;
  char name[64] = "";
  fake.table()->deviceGetUuid.raw(&uuid, 0);
  fake.table()->driverGetVersion.raw(&version);
  fake.table()->deviceGetName.raw(name, sizeof name, 0);
  storeLink(linkCacheFile(folder, uuid, version), {.machine = fmt::format("{} beside {}", name, processorName()),
                                                   .speed = fake.link(),
                                                   .measurements = wantedMeasurements});
  return folder;
}

Expected<std::unique_ptr<Session>> openSession(const FakeDriver &fake, std::uint64_t budgetPages,
                                               const char *compilerLibrary, std::uint64_t hostLimitBytes) {
  SessionOptions options;
  options.budgetBytes = budgetPages * pageBytes;
  options.hostLimitBytes = hostLimitBytes;
  options.compilerLibrary = compilerLibrary;
  options.cacheDirectory = folderWithLink(fake);
  return Session::create(options, fake.table());
}

namespace {

using Word = std::uint64_t;

Word &element(char *base, std::uint64_t index) {
  return *reinterpret_cast<Word *>(base + index * Program::stride);
}

Word forward(Word in, Word weight) {
  return in * 3 + weight;
}
Word backward(Word gradient, Word activation) {
  return gradient * 5 + activation;
}

std::uint64_t count(std::uint64_t bytes) {
  return bytes / Program::stride;
}

} // namespace

FakeKernel &forwardKernel() {
  static FakeKernel kernel{"forward", {8, 8, 8, 8, 8}, [](const FakeKernel::Arguments &arguments) {
                             auto *in = argument<char *>(arguments, 0), *weight = argument<char *>(arguments, 1),
                                  *out = argument<char *>(arguments, 2);
                             const auto bytes = argument<Word>(arguments, 3),
                                        weightBytes = argument<Word>(arguments, 4);
                             for (Word i = 0; i < count(bytes); ++i)
                               element(out, i) = forward(element(in, i), element(weight, i % count(weightBytes)));
                           }};
  return kernel;
}

FakeKernel &backwardKernel() {
  static FakeKernel kernel{"backward", {8, 8, 8, 8, 8, 8}, [](const FakeKernel::Arguments &arguments) {
                             auto *gradOut = argument<char *>(arguments, 0),
                                  *activation = argument<char *>(arguments, 1),
                                  *weight = argument<char *>(arguments, 2), *gradIn = argument<char *>(arguments, 3);
                             const auto bytes = argument<Word>(arguments, 4);
                             const auto weightBytes = argument<std::uint32_t>(arguments, 5); // see Shape::numbersPages
                             for (Word i = 0; i < count(bytes); ++i) {
                               element(gradIn, i) = backward(element(gradOut, i), element(activation, i));
                               element(weight, i % count(weightBytes)) += element(gradIn, i);
                             }
                           }};
  return kernel;
}

FakeKernel &lossKernel() {
  static FakeKernel kernel{"loss", {8, 8}, [](const FakeKernel::Arguments &arguments) {
                             *argument<Word *>(arguments, 1) += element(argument<char *>(arguments, 0), 0);
                           }};
  return kernel;
}

void *Program::allocate(std::uint64_t bytes, const std::string &name, CUstream stream) {
  const Expected<void *> pointer = session_.allocate(bytes, stream, name);
  EXPECT_TRUE(pointer) << (pointer ? "" : pointer.error().message);
  return pointer ? *pointer : nullptr;
}

void Program::prepare() {
  input_ = allocate(shape_.activationBytes, "input");
  for (std::uint64_t i = 0; i < count(shape_.activationBytes); ++i)
    element(static_cast<char *>(input_), i) = i + 1;
  for (int layer = 0; layer < shape_.layers; ++layer) {
    weights_.push_back(allocate(shape_.weightBytes, fmt::format("weight{}", layer)));
    for (std::uint64_t i = 0; i < count(shape_.weightBytes); ++i)
      element(static_cast<char *>(weights_.back()), i) = static_cast<Word>(layer) * 1000 + i;
    if (shape_.declareWeights) {
      const Status declared = session_.declarePrivate(weights_.back());
      EXPECT_TRUE(declared);
    }
  }
  loss_ = allocate(sizeof(Word), "loss");
  *static_cast<Word *>(loss_) = 0;
}

void Program::chain(CUgraph graph, FakeKernel &kernel, const std::vector<std::vector<char>> &arguments) {
  const bool isPure = shape_.hasPureForward && &kernel == &forwardKernel();
  const OperationKind kind = isPure ? OperationKind::Pure : OperationKind::Whole;
  if (shape_.stream) {
    fake_.launch(shape_.stream, kernel, arguments);
    if (shape_.declaresOperations) {
      EXPECT_TRUE(session_.declareOperation(shape_.stream, kind));
    }
    return;
  }
  last_ = last_ ? fake_.addKernel(graph, {last_}, kernel, arguments, shape_.packedArguments)
                : fake_.addKernel(graph, {}, kernel, arguments, shape_.packedArguments);
  if (shape_.declaresOperations) {
    EXPECT_TRUE(session_.declareOperation(graph, kind));
  }
}

CUgraph Program::record() {
  CUgraph graph = shape_.stream ? nullptr : fake_.createGraph();
  last_ = nullptr;
  EXPECT_TRUE(session_.captureBegin());
  if (shape_.stream) {
    EXPECT_TRUE(fake_.table()->streamBeginCapture(shape_.stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  }
  std::vector<void *> activations{input_};
  for (int layer = 0; layer < shape_.layers; ++layer) {
    activations.push_back(allocate(shape_.activationBytes, fmt::format("activation{}", layer), shape_.stream));
    chain(graph, forwardKernel(),
          {bytesOf(activations[static_cast<std::size_t>(layer)]), bytesOf(weights_[static_cast<std::size_t>(layer)]),
           bytesOf(activations.back()), bytesOf(shape_.activationBytes), bytesOf(shape_.weightBytes)});
  }
  chain(graph, lossKernel(), {bytesOf(activations.back()), bytesOf(loss_)});
  void *gradient = activations.back();
  for (int layer = shape_.layers - 1; layer >= 0; --layer) {
    void *next = allocate(shape_.activationBytes, fmt::format("gradient{}", layer), shape_.stream);
    const auto address = reinterpret_cast<Word>(activations[static_cast<std::size_t>(layer)]);
    const Word page = shape_.numbersPages ? address / pageBytes : 0;
    chain(graph, backwardKernel(),
          {bytesOf(gradient), bytesOf(activations[static_cast<std::size_t>(layer)]),
           bytesOf(weights_[static_cast<std::size_t>(layer)]), bytesOf(next), bytesOf(shape_.activationBytes),
           bytesOf(shape_.weightBytes | page << 32)});
    EXPECT_TRUE(session_.free(gradient, shape_.stream));
    gradient = next;
    if (layer > 0) { // activation 0 is the input
      EXPECT_TRUE(session_.free(activations[static_cast<std::size_t>(layer)], shape_.stream));
    }
  }
  EXPECT_TRUE(session_.free(gradient, shape_.stream));
  if (shape_.stream) {
    EXPECT_TRUE(fake_.table()->streamEndCapture(shape_.stream, &graph));
  }
  EXPECT_TRUE(session_.captureEnd());
  return graph;
}

std::vector<std::uint64_t> Program::expectedWeights(int steps) const {
  const std::uint64_t elements = count(shape_.activationBytes), weightElements = count(shape_.weightBytes);
  std::vector<std::vector<Word>> weights;
  for (int layer = 0; layer < shape_.layers; ++layer) {
    std::vector<Word> &weight = weights.emplace_back();
    for (std::uint64_t i = 0; i < weightElements; ++i)
      weight.push_back(static_cast<Word>(layer) * 1000 + i);
  }
  for (int step = 0; step < steps; ++step) {
    std::vector<std::vector<Word>> activations(1);
    for (std::uint64_t i = 0; i < elements; ++i)
      activations[0].push_back(i + 1);
    for (const std::vector<Word> &weight : weights) {
      std::vector<Word> out;
      for (std::uint64_t i = 0; i < elements; ++i)
        out.push_back(forward(activations.back()[i], weight[i % weightElements]));
      activations.push_back(std::move(out));
    }
    std::vector<Word> gradient = activations.back();
    for (std::size_t layer = weights.size(); layer-- > 0;)
      for (std::uint64_t i = 0; i < elements; ++i) {
        gradient[i] = backward(gradient[i], activations[layer][i]);
        weights[layer][i % weightElements] += gradient[i];
      }
  }
  std::vector<Word> first;
  for (const std::vector<Word> &weight : weights)
    first.insert(first.end(), weight.begin(), weight.end());
  return first;
}

std::uint64_t Program::expectedLoss(int steps) const {
  const std::uint64_t weightElements = count(shape_.weightBytes);
  Word loss = 0;
  for (int step = 0; step < steps; ++step) {
    const std::vector<Word> weights = expectedWeights(step);
    Word value = 1;
    for (int layer = 0; layer < shape_.layers; ++layer)
      value = forward(value, weights[static_cast<std::size_t>(layer) * weightElements]);
    loss += value;
  }
  return loss;
}

std::vector<std::uint64_t> Program::weights() {
  std::vector<Word> values;
  for (void *weight : weights_) {
    const Status mapped = session_.map(weight);
    EXPECT_TRUE(mapped) << (mapped ? "" : mapped.error().message);
    if (!mapped)
      return values;
    for (std::uint64_t i = 0; i < count(shape_.weightBytes); ++i)
      values.push_back(element(static_cast<char *>(weight), i));
    EXPECT_TRUE(session_.unmap(weight));
  }
  return values;
}

} // namespace pumpgraph::runtime::test
