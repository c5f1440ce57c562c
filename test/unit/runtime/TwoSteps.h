// SPDX-License-Identifier: Apache-2.0
/// \file
/// Two rewritten steps in one session: training, and an evaluation of half the layers. Values are followed from replay
/// to replay.
#pragma once

#include "test/unit/runtime/Program.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace pumpgraph::runtime::test {

using Word = std::uint64_t;

inline constexpr std::uint64_t tightPages = 19;
// Less than the widest kernel of either step touches.
inline constexpr std::uint64_t hostingPages = 9;
inline constexpr std::uint64_t besideBudget = 1;
inline constexpr int evaluatedLayers = 2;
inline constexpr std::uint64_t activationBytes = 3 * pageBytes, weightBytes = 2 * pageBytes;
inline constexpr std::uint64_t elements = activationBytes / Program::stride,
                               weightElements = weightBytes / Program::stride;

/// history[i] += in[i]; score += history[0]
inline FakeKernel &historyKernel() {
  static FakeKernel kernel{"history", {8, 8, 8}, [](const FakeKernel::Arguments &arguments) {
                             auto *in = argument<char *>(arguments, 0), *history = argument<char *>(arguments, 1);
                             for (Word i = 0; i < elements; ++i)
                               *reinterpret_cast<Word *>(history + i * Program::stride) +=
                                   *reinterpret_cast<Word *>(in + i * Program::stride);
                             *argument<Word *>(arguments, 2) += *reinterpret_cast<Word *>(history);
                           }};
  return kernel;
}

class TwoStepsTest : public ::testing::Test {
protected:
  void open(std::uint64_t pages, std::uint64_t hostLimitBytes = 0) {
    Expected<std::unique_ptr<Session>> made = openSession(fake_, pages, PUMPGRAPH_COMPILER_LIBRARY, hostLimitBytes);
    ASSERT_TRUE(made) << messageOf(made);
    session_ = std::move(*made);
    program_.emplace(fake_, *session_, Program::Shape{});
    program_->prepare();
    history_ = *session_->allocate(activationBytes, nullptr, "history");
    for (Word i = 0; i < elements; ++i)
      *at(history_, i) = 0;
    ASSERT_TRUE(session_->declarePrivate(history_));
    score_ = *session_->allocate(activationBytes, nullptr, "score"); // exclusive
    *at(score_, 0) = 0;
    trained_ = 0;
    expectedHistory_.assign(elements, 0);
    expectedScore_ = 0;
  }

  void captureBoth() {
    training_ = adopt(program_->record());
    evaluation_ = adopt(recordEvaluation());
    ASSERT_TRUE(training_ && evaluation_);
    ASSERT_TRUE(training_->rewritten() && evaluation_->rewritten());
  }

  Step *adopt(CUgraph graph) {
    const Expected<Step *> step = session_->adopt(graph, {.keepFirstPlan = true, .boundary = boundary_});
    EXPECT_TRUE(step) << messageOf(step);
    return step ? *step : nullptr;
  }

  CUgraph recordEvaluation() {
    CUgraph graph = fake_.createGraph();
    EXPECT_TRUE(session_->captureBegin());
    CUgraphNode last = nullptr;
    const auto chain = [&](FakeKernel &kernel, const std::vector<std::vector<char>> &arguments) {
      last = last ? fake_.addKernel(graph, {last}, kernel, arguments) : fake_.addKernel(graph, {}, kernel, arguments);
    };
    void *in = program_->inputPointer();
    for (int layer = 0; layer < evaluatedLayers; ++layer) {
      void *out = *session_->allocate(activationBytes, nullptr, fmt::format("evaluated{}", layer));
      chain(forwardKernel(), {bytesOf(in), bytesOf(program_->weightPointers()[static_cast<std::size_t>(layer)]),
                              bytesOf(out), bytesOf(activationBytes), bytesOf(weightBytes)});
      if (layer > 0) {
        EXPECT_TRUE(session_->free(in, nullptr));
      }
      in = out;
    }
    chain(historyKernel(), {bytesOf(in), bytesOf(history_), bytesOf(score_)});
    EXPECT_TRUE(session_->free(in, nullptr));
    EXPECT_TRUE(session_->captureEnd());
    return graph;
  }

  Status train() {
    const Status replayed = training_->replay(nullptr);
    trained_ += replayed ? 1 : 0;
    return replayed;
  }

  Status evaluate() {
    const Status replayed = evaluation_->replay(nullptr);
    if (!replayed)
      return replayed;
    const std::vector<Word> weights = program_->expectedWeights(trained_);
    for (Word i = 0; i < elements; ++i) {
      Word value = i + 1;
      for (Word layer = 0; layer < evaluatedLayers; ++layer)
        value = value * 3 + weights[layer * weightElements + i % weightElements];
      expectedHistory_[i] += value;
    }
    expectedScore_ += expectedHistory_[0];
    return replayed;
  }

  /// 't' trains, 'e' evaluates.
  void run(const std::string &steps) {
    for (const char step : steps) {
      const Status replayed = step == 't' ? train() : evaluate();
      ASSERT_TRUE(replayed) << messageOf(replayed);
    }
  }

  static Word *at(void *base, Word element) {
    return reinterpret_cast<Word *>(static_cast<char *>(base) + element * Program::stride);
  }

  std::vector<Word> history() {
    const Status mapped = session_->map(history_);
    EXPECT_TRUE(mapped) << messageOf(mapped);
    std::vector<Word> values;
    for (Word i = 0; mapped && i < elements; ++i)
      values.push_back(*at(history_, i));
    EXPECT_TRUE(session_->unmap(history_));
    return values;
  }

  /// Private values under map(), exclusive ones as they lie.
  void expectAllValues(const std::string &when) {
    EXPECT_EQ(program_->weights(), program_->expectedWeights(trained_)) << when;
    EXPECT_EQ(program_->loss(), program_->expectedLoss(trained_)) << when;
    EXPECT_EQ(history(), expectedHistory_) << when;
    EXPECT_EQ(*at(score_, 0), expectedScore_) << when;
    EXPECT_EQ(*at(program_->inputPointer(), 5), 6u) << when;
  }

  static std::uint64_t exchangesOf(Step *step) { return runtimeReport(step).at("exchanges"); }

  static nlohmann::json runtimeReport(Step *step) { return nlohmann::json::parse(step->report()).at("runtime"); }

  FakeDriver fake_;
  BoundaryChoice boundary_ = BoundaryChoice::Own;
  std::unique_ptr<Session> session_;
  std::optional<Program> program_;
  void *history_ = nullptr, *score_ = nullptr;
  Step *training_ = nullptr, *evaluation_ = nullptr;
  int trained_ = 0;
  std::vector<Word> expectedHistory_;
  Word expectedScore_ = 0;
};

} // namespace pumpgraph::runtime::test
