// SPDX-License-Identifier: Apache-2.0
// Steps that share a boundary: any of them can be replayed after any other, at once.
#include "test/unit/runtime/TwoSteps.h"

#include <fstream>

using namespace pumpgraph;
using namespace pumpgraph::runtime;
using namespace pumpgraph::runtime::test;

namespace {

/// Calls that change what is mapped, copy, or wait for the device.
std::uint64_t slowCalls(const FakeDriver &fake) {
  std::uint64_t calls = 0;
  for (const char *symbol : {"cuMemMap", "cuMemUnmap", "cuMemcpyHtoDAsync", "cuMemcpyDtoHAsync", "cuMemcpyDtoDAsync",
                             "cuStreamSynchronize", "cuCtxSynchronize"})
    calls += fake.callsOf(symbol);
  return calls;
}

class SharedBoundaryTest : public TwoStepsTest {
protected:
  SharedBoundaryTest() { boundary_ = BoundaryChoice::Shared; }

  void capture(bool trainingFirst) {
    training_ = evaluation_ = nullptr;
    if (trainingFirst)
      training_ = adopt(program_->record());
    evaluation_ = adopt(recordEvaluation());
    if (!trainingFirst)
      training_ = adopt(program_->record());
    ASSERT_TRUE(training_ && evaluation_ && training_->rewritten() && evaluation_->rewritten());
  }

  static std::string boundaryOf(Step *step) { return runtimeReport(step).at("boundary"); }
  void expectNoExchanges() {
    EXPECT_EQ(exchangesOf(training_), 0u);
    EXPECT_EQ(exchangesOf(evaluation_), 0u);
  }
};

// No replay waits, copies or maps anything, whichever was before, and all values are as with memory for everything.
TEST_F(SharedBoundaryTest, takesTurnsAtOnce) {
  for (const bool trainingFirst : {true, false})
    for (const std::uint64_t budget : {60, 34, 28, 24, 22}) {
      SCOPED_TRACE(fmt::format("{} first, {} pages", trainingFirst ? "training" : "evaluation", budget));
      open(budget);
      capture(trainingFirst);
      EXPECT_EQ(boundaryOf(training_), "shared with step") << training_->report();
      EXPECT_EQ(boundaryOf(evaluation_), "shared with step");
      expectAllValues("before any replay");
      run("te"); // instantiates
      const std::uint64_t calls = slowCalls(fake_);
      run("etteeteet");
      EXPECT_EQ(slowCalls(fake_), calls);
      expectNoExchanges();
      for (const std::string steps : {"t", "e", "te", "eett"}) {
        run(steps);
        expectAllValues("after " + steps);
      }
      expectNoExchanges();
      EXPECT_LE(fake_.deviceFrames(), budget + besideBudget);
      session_.reset();
    }
}

// An input of both that may leave the device in either is there after each.
TEST_F(SharedBoundaryTest, presentInputsAreThereAfterEither) {
  for (const std::uint64_t budget : {60, 34, 24, 20}) {
    SCOPED_TRACE(budget);
    open(budget);
    EXPECT_TRUE(session_->declarePresent(program_->inputPointer()));
    capture(true);
    EXPECT_EQ(boundaryOf(evaluation_), "shared with step") << evaluation_->report();
    const auto *input = static_cast<const std::uint64_t *>(program_->inputPointer());
    for (const std::string steps : {"t", "e", "te", "eett"}) {
      run(steps);
      EXPECT_EQ(*input, 1u);
      expectAllValues("after " + steps);
    }
    expectNoExchanges();
    session_.reset();
  }
}

// As PyTorch's captures do it: the plan is taken back first, so that warming up finds every value.
TEST_F(SharedBoundaryTest, isSharedAfterThePlanWasTakenBack) {
  open(24);
  training_ = adopt(program_->record());
  run("t");
  ASSERT_TRUE(session_->takeBack());
  evaluation_ = adopt(recordEvaluation());
  ASSERT_TRUE(training_ && evaluation_);
  EXPECT_EQ(boundaryOf(evaluation_), "shared with step") << evaluation_->report();
  run("etteet");
  expectAllValues("in turns");
  EXPECT_EQ(exchangesOf(evaluation_), 0u);
}

// With a tight budget both move data, and what the second leaves alone of the first is still there.
TEST_F(SharedBoundaryTest, movesDataInBothSteps) {
  open(20);
  capture(true);
  EXPECT_TRUE(training_->movesAnything());
  EXPECT_TRUE(evaluation_->movesAnything());
  for (Step *step : {training_, evaluation_}) {
    const Expected<Validation> validation = step->validate();
    ASSERT_TRUE(validation) << messageOf(validation);
    EXPECT_EQ(validation->differentBuffers, 0u) << validation->firstDifference;
  }
  run("tete");
  expectAllValues("after validation");
  expectNoExchanges();
}

// A step that would be much slower in another's boundary has its own, unless the caller wants turns; and a note says
// so.
TEST_F(SharedBoundaryTest, isLeftWhereItCostsTooMuch) {
  for (const auto &[choice, pages, boundary] :
       {std::tuple(BoundaryChoice::Automatic, 60, "shared with step"), std::tuple(BoundaryChoice::Automatic, 20, "own"),
        std::tuple(BoundaryChoice::Shared, 20, "shared with step"), std::tuple(BoundaryChoice::Own, 60, "own")}) {
    boundary_ = choice;
    open(static_cast<std::uint64_t>(pages));
    capture(true);
    EXPECT_EQ(boundaryOf(evaluation_), boundary) << pages;
    const bool isNoted = evaluation_->report().find("exchange plans, because") != std::string::npos;
    EXPECT_EQ(isNoted, choice == BoundaryChoice::Automatic && pages == 20);
    run("tete");
    expectAllValues("afterwards");
    session_.reset();
  }
}

// Where there is no such plan the step has its own: what is hosted leaves no frames for another step's exclusive
// buffers.
TEST_F(SharedBoundaryTest, isLeftWhereItCannotBeKept) {
  open(hostingPages);
  capture(true);
  EXPECT_EQ(boundaryOf(evaluation_), "own");
  EXPECT_NE(evaluation_->report().find("exclusive and present buffers of this step alone need"), std::string::npos)
      << evaluation_->report();
  run("tete");
  expectAllValues("afterwards");
  EXPECT_GT(exchangesOf(training_), 0u);
}

// Replays on different streams are ordered on the device.
TEST_F(SharedBoundaryTest, ordersReplaysOnTwoStreams) {
  open(22);
  capture(true);
  CUstream one = fake_.createStream(), other = fake_.createStream();
  const auto waits = [&](Step *step, CUstream stream) {
    const std::uint64_t before = fake_.callsOf("cuStreamWaitEvent");
    EXPECT_TRUE(step->replay(stream));
    return fake_.callsOf("cuStreamWaitEvent") - before;
  };
  EXPECT_EQ(waits(training_, one), 0u);
  EXPECT_EQ(waits(evaluation_, other), 1u);
  EXPECT_EQ(waits(evaluation_, one), 0u); // the driver runs one graph's launches one after another
  EXPECT_EQ(waits(training_, other), 1u);
}

// A third step joins, and any of them can go; the others still share.
TEST_F(SharedBoundaryTest, isSharedByAnyNumberOfSteps) {
  for (const int gone : {0, 1, 2}) {
    open(26);
    capture(true);
    run("te");
    Step *third = adopt(recordEvaluation());
    ASSERT_TRUE(third);
    EXPECT_EQ(boundaryOf(third), "shared with step, step");
    std::swap(third, evaluation_);
    run("tete");
    std::swap(third, evaluation_);
    run("et");
    expectAllValues("with three steps");
    session_->destroy(gone == 0 ? training_ : gone == 1 ? evaluation_ : third);
    expectAllValues("with two");
    if (gone == 1)
      evaluation_ = third;
    EXPECT_EQ(boundaryOf(evaluation_), "shared with step");
    run(gone == 0 ? "ee" : "tete");
    if (gone == 0) {
      evaluation_ = third;
      run("ee");
    }
    expectAllValues("with two, going on");
    EXPECT_LE(fake_.deviceFrames(), 26 + besideBudget);
    session_.reset();
  }
}

// A third step with a boundary of its own takes turns with the two by exchanges.
TEST_F(SharedBoundaryTest, isExchangedAsOne) {
  for (const std::uint64_t budget : {40, 24}) {
    open(budget);
    capture(true);
    run("te");
    boundary_ = BoundaryChoice::Own;
    Step *own = adopt(recordEvaluation());
    boundary_ = BoundaryChoice::Shared;
    ASSERT_TRUE(own);
    EXPECT_EQ(boundaryOf(own), "own");
    for (int i = 0; i < 2; ++i) {
      run("tet");
      std::swap(own, evaluation_);
      run("ee");
      expectAllValues("with the third in force");
      std::swap(own, evaluation_);
      run("et");
      expectAllValues("with the two in force");
    }
    EXPECT_EQ(exchangesOf(own), 2u);
    EXPECT_EQ(exchangesOf(training_) + exchangesOf(evaluation_), 3u);
    EXPECT_LE(fake_.deviceFrames(), budget + besideBudget);
    session_.reset();
  }
}

// What planning again changes is not the boundary: the others need not know.
TEST_F(SharedBoundaryTest, staysWhenAStepIsPlannedAgain) {
  for (const bool training : {true, false}) {
    open(24);
    capture(true);
    run("tete");
    for (int i = 0; i < 2; ++i) {
      const Expected<Replanning> replanned = (training ? training_ : evaluation_)->replan();
      ASSERT_TRUE(replanned) << messageOf(replanned);
      EXPECT_EQ(boundaryOf(training_), "shared with step");
      expectAllValues("after planning again");
      run("etet");
    }
    expectAllValues("afterwards");
    expectNoExchanges();
    session_.reset();
  }
}

/// Steps that are planned again by themselves, because nodes take longer than estimated. A plan that turns out slower
/// than the one before goes; that one knows the boundary as it was.
class SharedReplanTest : public SharedBoundaryTest {
protected:
  void SetUp() override { forwardKernel().milliseconds = 200; }
  void TearDown() override { forwardKernel().milliseconds = 0; }

  Step *adoptWatched(CUgraph graph) {
    const Expected<Step *> step = session_->adopt(graph, {.boundary = BoundaryChoice::Shared});
    EXPECT_TRUE(step) << messageOf(step);
    return step ? *step : nullptr;
  }
  static std::size_t plansOf(Step *step) { return runtimeReport(step).at("plans").size(); }
  static bool isWatched(Step *step) { return runtimeReport(step).at("replans_by_itself"); }
  void runUntilPlanned(Step *step, const std::string &steps) {
    const std::size_t plans = plansOf(step);
    for (int i = 0; i < 40 && plansOf(step) == plans; ++i)
      run(steps);
    ASSERT_EQ(plansOf(step), plans + 1) << step->report();
  }
};

// A step joins while another one's second plan is on trial: nobody returns to a plan that does not know it.
TEST_F(SharedReplanTest, joinsWhileAPlanIsOnTrial) {
  for (const std::uint64_t budget : {60, 28, 24, 20}) {
    SCOPED_TRACE(budget);
    forwardKernel().milliseconds = 200;
    open(budget);
    training_ = adoptWatched(program_->record());
    ASSERT_TRUE(training_);
    runUntilPlanned(training_, "t");
    forwardKernel().milliseconds = 400; // the plan on trial is slower
    evaluation_ = adoptWatched(recordEvaluation());
    ASSERT_TRUE(evaluation_);
    EXPECT_EQ(boundaryOf(evaluation_), "shared with step") << evaluation_->report();
    for (int i = 0; i < 20; ++i) {
      run("te");
      expectAllValues(fmt::format("after {} turns", i + 1));
    }
    EXPECT_EQ(boundaryOf(training_), "shared with step");
    EXPECT_LE(fake_.deviceFrames(), budget + besideBudget);
    session_.reset();
  }
}

// Each waits for the other's trial, and both end with a plan for the boundary as it is.
TEST_F(SharedReplanTest, onePlanIsOnTrialAtATime) {
  for (const std::uint64_t budget : {60, 28, 24, 20})
    for (const bool areSlower : {true, false}) {
      SCOPED_TRACE(fmt::format("{} pages{}", budget, areSlower ? ", slower plans" : ""));
      forwardKernel().milliseconds = 200;
      open(budget);
      training_ = adoptWatched(program_->record());
      evaluation_ = adoptWatched(recordEvaluation());
      ASSERT_TRUE(training_ && evaluation_);
      std::size_t plans = 2;
      for (int i = 0; i < 200 && (isWatched(training_) || isWatched(evaluation_)); ++i) {
        run("te");
        if (const std::size_t now = plansOf(training_) + plansOf(evaluation_); areSlower && now != plans) {
          forwardKernel().milliseconds *= 1.2;
          plans = now;
        }
        if (i % 5 == 0)
          expectAllValues(fmt::format("after {} turns", i + 1));
      }
      for (Step *step : {training_, evaluation_}) {
        EXPECT_FALSE(isWatched(step));
        EXPECT_GE(plansOf(step), 2u) << step->report();
        const Expected<Validation> validation = step->validate();
        ASSERT_TRUE(validation) << messageOf(validation);
        EXPECT_EQ(validation->differentBuffers, 0u) << validation->firstDifference;
      }
      expectAllValues("after validation");
      expectNoExchanges();
      session_.reset();
    }
}

// A step goes while another one's plan is on trial: nobody returns to a plan that has its blocks.
TEST_F(SharedReplanTest, goWhileAPlanIsOnTrial) {
  for (const std::uint64_t budget : {60, 24, 20}) {
    SCOPED_TRACE(budget);
    forwardKernel().milliseconds = 200;
    open(budget);
    training_ = adoptWatched(program_->record());
    evaluation_ = adopt(recordEvaluation());
    ASSERT_TRUE(training_ && evaluation_);
    runUntilPlanned(training_, "te");
    forwardKernel().milliseconds = 400; // the plan on trial is slower
    session_->destroy(evaluation_);
    const Expected<void *> others = session_->allocate(2 * activationBytes, nullptr, "others"); // where its blocks were
    ASSERT_TRUE(others);
    run("tttttttt");
    evaluation_ = adoptWatched(recordEvaluation());
    ASSERT_TRUE(evaluation_);
    run("tete");
    expectAllValues("afterwards");
    session_.reset();
  }
}

// A third step joins two whose plans are on trial or about to be, whatever comes first.
TEST_F(SharedReplanTest, joinAtAnyTime) {
  for (int turns = 8; turns <= 32; turns += 6) {
    SCOPED_TRACE(turns);
    forwardKernel().milliseconds = 200;
    open(26);
    training_ = adoptWatched(program_->record());
    evaluation_ = adoptWatched(recordEvaluation());
    ASSERT_TRUE(training_ && evaluation_);
    for (int i = 0; i < turns; ++i)
      run("te");
    forwardKernel().milliseconds = 300;
    Step *third = adoptWatched(recordEvaluation());
    ASSERT_TRUE(third);
    for (int i = 0; i < 16; ++i) {
      run("te");
      std::swap(third, evaluation_);
      run("e");
      expectAllValues(fmt::format("{} turns of three", i + 1));
      std::swap(third, evaluation_);
    }
    EXPECT_LE(fake_.deviceFrames(), 26 + besideBudget);
    session_.reset();
  }
}

// A step that fails to be adopted leaves those that share a boundary as they were.
TEST_F(SharedBoundaryTest, survivesARefusedStep) {
  open(24);
  capture(true);
  run("te");
  static FakeKernel large{"large", {8}, [](const FakeKernel::Arguments &) {}};
  CUgraph graph = fake_.createGraph();
  ASSERT_TRUE(session_->captureBegin());
  const Expected<void *> result = session_->allocate(40 * pageBytes, nullptr, "result");
  ASSERT_TRUE(result);
  fake_.addKernel(graph, {}, large, {bytesOf(*result)});
  ASSERT_TRUE(session_->captureEnd());
  EXPECT_FALSE(session_->adopt(graph, {.boundary = BoundaryChoice::Shared}));
  run("tete");
  expectAllValues("afterwards");
}

// What is saved is the step alone.
TEST_F(SharedBoundaryTest, savesTheStepAlone) {
  open(60);
  capture(true);
  const std::string path = ::testing::TempDir() + "evaluation.mlir";
  ASSERT_TRUE(evaluation_->save(path));
  std::ifstream file(path);
  const std::string text(std::istreambuf_iterator<char>(file), {});
  EXPECT_NE(text.find("\"weight0\""), std::string::npos) << text;
  EXPECT_EQ(text.find("\"weight3\""), std::string::npos) << text; // only training uses it
}

/// A driver call, and which of them fails while the second step is adopted.
class SharedBoundaryFailureTest : public SharedBoundaryTest,
                                  public ::testing::WithParamInterface<std::tuple<const char *, int>> {};

// Either step goes on, or says that it has lost its memory.
TEST_P(SharedBoundaryFailureTest, neverComputesNonsense) {
  const auto [call, nth] = GetParam();
  open(24);
  training_ = adopt(program_->record());
  run("t");
  const CUgraph graph = recordEvaluation();
  fake_.failCall(call, nth, CUDA_ERROR_UNKNOWN);
  const Expected<Step *> step = session_->adopt(graph, {.keepFirstPlan = true, .boundary = boundary_});
  fake_.stopFailing(call);
  evaluation_ = step ? *step : nullptr;
  const Status trained = train();
  if (!trained) {
    EXPECT_EQ(trained.error().status, PUMPGRAPH_INTERNAL) << messageOf(trained);
    EXPECT_FALSE(step);
    session_->destroy(training_);
    return;
  }
  if (evaluation_)
    run("ete");
  expectAllValues("after the failure");
}

INSTANTIATE_TEST_SUITE_P(Adoption, SharedBoundaryFailureTest,
                         ::testing::Combine(::testing::Values("cuMemHostRegister", "cuMemMap", "cuMemUnmap",
                                                              "cuMemSetAccess", "cuMemcpyDtoHAsync",
                                                              "cuGraphAddMemcpyNode", "cuGraphAddDependencies",
                                                              "cuGraphClone"),
                                            ::testing::Values(1, 2, 9, 30)));

/// Micro steps that add to gradients, and a step that applies them.
class AccumulationTest : public ::testing::TestWithParam<std::tuple<std::uint64_t, bool>> {
protected:
  static constexpr std::size_t layers = 4;
  static constexpr std::uint64_t bytes = 2 * pageBytes;
  static constexpr Word elements = bytes / Program::stride;

  static Word &at(void *base, Word element) {
    return *reinterpret_cast<Word *>(static_cast<char *>(base) + element * Program::stride);
  }
  static FakeKernel &accumulateKernel() { // out = in + weight; gradient += out
    static FakeKernel kernel{"accumulate", {8, 8, 8, 8}, [](const FakeKernel::Arguments &arguments) {
                               for (Word i = 0; i < elements; ++i) {
                                 const Word out =
                                     at(argument<void *>(arguments, 0), i) * 3 + at(argument<void *>(arguments, 1), i);
                                 at(argument<void *>(arguments, 2), i) += out;
                                 at(argument<void *>(arguments, 3), i) = out;
                               }
                             }};
    return kernel;
  }
  static FakeKernel &applyKernel() { // momentum = 5 momentum + gradient; weight += momentum; gradient = 0
    static FakeKernel kernel{"apply", {8, 8, 8}, [](const FakeKernel::Arguments &arguments) {
                               for (Word i = 0; i < elements; ++i) {
                                 Word &momentum = at(argument<void *>(arguments, 0), i);
                                 momentum = momentum * 5 + std::exchange(at(argument<void *>(arguments, 1), i), 0);
                                 at(argument<void *>(arguments, 2), i) += momentum;
                               }
                             }};
    return kernel;
  }

  struct Layer {
    void *weight, *gradient, *momentum;
    std::vector<Word> expectedWeight, expectedGradient, expectedMomentum;
  };

  void *allocate(const std::string &name) { return *session_->allocate(bytes, nullptr, name); }
  void prepare(std::uint64_t pages) {
    Expected<std::unique_ptr<Session>> made = openSession(fake_, pages, PUMPGRAPH_COMPILER_LIBRARY);
    ASSERT_TRUE(made) << messageOf(made);
    session_ = std::move(*made);
    input_ = allocate("input");
    for (Word i = 0; i < elements; ++i)
      at(input_, i) = i + 1;
    for (std::size_t l = 0; l < layers; ++l) {
      Layer &layer = layers_.emplace_back(Layer{allocate("weight"), allocate("gradient"), allocate("momentum"),
                                                std::vector<Word>(elements), std::vector<Word>(elements, 0),
                                                std::vector<Word>(elements, 0)});
      for (void *buffer : {layer.weight, layer.gradient, layer.momentum})
        ASSERT_TRUE(session_->declarePrivate(buffer));
      for (Word i = 0; i < elements; ++i) {
        at(layer.weight, i) = layer.expectedWeight[i] = l * 100 + i;
        at(layer.gradient, i) = at(layer.momentum, i) = 0;
      }
    }
  }

  template <typename Record> Step *adopt(const std::string &name, Record record) {
    CUgraph graph = fake_.createGraph();
    EXPECT_TRUE(session_->captureBegin());
    record(graph);
    EXPECT_TRUE(session_->captureEnd());
    const Expected<Step *> step =
        session_->adopt(graph, {.name = name, .keepFirstPlan = true, .boundary = BoundaryChoice::Shared});
    EXPECT_TRUE(step) << messageOf(step);
    return step ? *step : nullptr;
  }
  Step *adoptMicro() {
    return adopt("micro", [&](CUgraph graph) {
      CUgraphNode last = nullptr;
      void *in = input_;
      for (const Layer &layer : layers_) {
        void *out = allocate("activation");
        const std::vector<std::vector<char>> arguments{bytesOf(in), bytesOf(layer.weight), bytesOf(layer.gradient),
                                                       bytesOf(out)};
        last = last ? fake_.addKernel(graph, {last}, accumulateKernel(), arguments)
                    : fake_.addKernel(graph, {}, accumulateKernel(), arguments);
        if (in != input_) {
          EXPECT_TRUE(session_->free(in, nullptr));
        }
        in = out;
      }
      EXPECT_TRUE(session_->free(in, nullptr));
    });
  }
  Step *adoptApply() {
    return adopt("apply", [&](CUgraph graph) {
      CUgraphNode last = nullptr;
      for (const Layer &layer : layers_) {
        const std::vector<std::vector<char>> arguments{bytesOf(layer.momentum), bytesOf(layer.gradient),
                                                       bytesOf(layer.weight)};
        last = last ? fake_.addKernel(graph, {last}, applyKernel(), arguments)
                    : fake_.addKernel(graph, {}, applyKernel(), arguments);
      }
    });
  }

  /// 'm' accumulates, 'a' applies.
  void run(const std::string &steps) {
    for (const char step : steps) {
      const Status replayed = (step == 'm' ? micro_ : apply_)->replay(nullptr);
      ASSERT_TRUE(replayed) << messageOf(replayed);
      for (Word i = 0; i < elements; ++i) {
        Word value = i + 1;
        for (Layer &layer : layers_) {
          if (step == 'm') {
            value = value * 3 + layer.expectedWeight[i];
            layer.expectedGradient[i] += value;
          } else {
            layer.expectedMomentum[i] = layer.expectedMomentum[i] * 5 + std::exchange(layer.expectedGradient[i], 0);
            layer.expectedWeight[i] += layer.expectedMomentum[i];
          }
        }
      }
    }
  }
  std::vector<Word> read(void *buffer) {
    EXPECT_TRUE(session_->map(buffer));
    std::vector<Word> values;
    for (Word i = 0; i < elements; ++i)
      values.push_back(at(buffer, i));
    EXPECT_TRUE(session_->unmap(buffer));
    return values;
  }
  void expectAllValues(const std::string &when) {
    for (const Layer &layer : layers_) {
      EXPECT_EQ(read(layer.weight), layer.expectedWeight) << when;
      EXPECT_EQ(read(layer.gradient), layer.expectedGradient) << when;
      EXPECT_EQ(read(layer.momentum), layer.expectedMomentum) << when;
    }
  }

  FakeDriver fake_;
  std::unique_ptr<Session> session_;
  void *input_ = nullptr;
  std::vector<Layer> layers_;
  Step *micro_ = nullptr, *apply_ = nullptr;
};

TEST_P(AccumulationTest, takesTurnsAtOnce) {
  const auto [budget, microFirst] = GetParam();
  prepare(budget);
  if (microFirst)
    micro_ = adoptMicro();
  apply_ = adoptApply();
  if (!microFirst)
    micro_ = adoptMicro();
  ASSERT_TRUE(micro_ && apply_);
  EXPECT_EQ(nlohmann::json::parse(micro_->report()).at("runtime").at("boundary"), "shared with apply")
      << micro_->report() << apply_->report();
  run("ma");
  const std::uint64_t calls = slowCalls(fake_);
  run("mmamama");
  EXPECT_EQ(slowCalls(fake_), calls);
  for (const std::string steps : {"m", "m", "a", "ma", "aam"}) {
    run(steps);
    expectAllValues("after " + steps);
  }
  for (Step *step : {micro_, apply_}) {
    EXPECT_EQ(nlohmann::json::parse(step->report()).at("runtime").at("exchanges"), 0);
    const Expected<Validation> validation = step->validate();
    ASSERT_TRUE(validation) << messageOf(validation);
    EXPECT_EQ(validation->differentBuffers, 0u) << validation->firstDifference;
  }
  expectAllValues("after validation");
}

INSTANTIATE_TEST_SUITE_P(Budgets, AccumulationTest,
                         ::testing::Combine(::testing::Values<std::uint64_t>(40, 26, 20, 16), ::testing::Bool()));
// What the applying step leaves of frames is too little then for the other.
INSTANTIATE_TEST_SUITE_P(TightBudgets, AccumulationTest,
                         ::testing::Combine(::testing::Values<std::uint64_t>(12, 10), ::testing::Values(true)));

} // namespace
