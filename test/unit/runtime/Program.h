// SPDX-License-Identifier: Apache-2.0
/// \file
/// A small training step on the fake driver, for tests of the whole way from capture to replay.
#pragma once

#include "runtime/session/Session.h"
#include "runtime/session/Step.h"
#include "test/unit/runtime/FakeDriver.h"

#include <cstring>
#include <memory>
#include <vector>

namespace pumpgraph::runtime::test {

template <typename Value> std::string messageOf(const Expected<Value> &result) {
  return result ? "" : result.error().message;
}

/// Replays the step so many times, one after the other.
void replay(Step *step, int times);

/// A folder for a session that knows the fake driver's link, as if several had measured it.
std::string folderWithLink(const FakeDriver &fake);

/// A session on the fake driver, which knows the link: measuring it copies gigabytes.
Expected<std::unique_ptr<Session>> openSession(const FakeDriver &fake, std::uint64_t budgetPages,
                                               const char *compilerLibrary, std::uint64_t hostLimitBytes = 0);

/// Unsigned 64-bit arithmetic on sparse elements: one in each 4 KiB, so that a page has several and a test is quick.
/// Everything is exact, so results of two runs can be compared bit for bit.
class Program {
public:
  static constexpr std::uint64_t stride = 4096;

  struct Shape {
    int layers = 4;
    std::uint64_t activationBytes = 3 * pageBytes;
    std::uint64_t weightBytes = 2 * pageBytes;
    bool declareWeights = true;
    bool packedArguments = false;
    /// Backward kernels know the page of their activation in another form too: in half a parameter, as a number.
    bool numbersPages = false;
    bool declaresOperations = false; ///< forward kernels are pure, all others are not
    bool hasPureForward = true;      ///< otherwise it declares forward kernels like others
    CUstream stream = nullptr;       ///< captured to record the step; else its graph is built by hand
  };

  Program(FakeDriver &fake, Session &session, const Shape &shape) : fake_(fake), session_(session), shape_(shape) {}

  /// Allocates input, weights and result, as a program does before it captures anything.
  void prepare();
  void setDeclaresOperations(bool on) { shape_.declaresOperations = on; }
  /// Builds the step's graph between captureBegin and captureEnd.
  CUgraph record();
  /// What one step does, computed on ordinary memory: the expected weights after `steps` steps.
  std::vector<std::uint64_t> expectedWeights(int steps) const;
  std::uint64_t expectedLoss(int steps) const;

  /// Element 0 of each weight, read under map().
  std::vector<std::uint64_t> weights();
  std::uint64_t loss() const { return *static_cast<std::uint64_t *>(loss_); }
  const std::vector<void *> &weightPointers() const { return weights_; }
  void *lossPointer() const { return loss_; }
  void *inputPointer() const { return input_; }

private:
  void *allocate(std::uint64_t bytes, const std::string &name, CUstream stream = nullptr);
  void chain(CUgraph graph, FakeKernel &kernel, const std::vector<std::vector<char>> &arguments);

  FakeDriver &fake_;
  Session &session_;
  Shape shape_;
  void *input_ = nullptr;
  void *loss_ = nullptr;
  std::vector<void *> weights_;
  CUgraphNode last_ = nullptr;
};

/// out[i] = in[i] * 3 + w[i % size of w]
FakeKernel &forwardKernel();
/// gradIn[i] = gradOut[i] * 5 + activation[i]; w[i % size] += gradIn[i]
FakeKernel &backwardKernel();
/// loss += in[0]
FakeKernel &lossKernel();

} // namespace pumpgraph::runtime::test
