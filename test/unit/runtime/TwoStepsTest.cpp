// SPDX-License-Identifier: Apache-2.0
// Two rewritten steps whose plans take each other's place, or share a boundary.
#include "test/unit/runtime/TwoSteps.h"

using namespace pumpgraph;
using namespace pumpgraph::runtime;
using namespace pumpgraph::runtime::test;

namespace {

/// What holds whether plans are exchanged or share a boundary.
class EitherWayTest : public TwoStepsTest, public ::testing::WithParamInterface<BoundaryChoice> {
protected:
  EitherWayTest() { boundary_ = GetParam(); }
};

// Shared weights, what only one of them keeps, and what is read from outside: all of it goes on as if there were memory
// for everything, whichever plan is in force. With the smallest budget both plans have pages in host memory at all
// times.
TEST_P(EitherWayTest, followsValuesFromPlanToPlan) {
  for (const std::uint64_t budget : {std::uint64_t{60}, std::uint64_t{26}, tightPages + 3, hostingPages}) {
    open(budget);
    captureBoth();
    for (Step *step : {training_, evaluation_})
      EXPECT_EQ(nlohmann::json::parse(step->report()).at("hosted_bytes") > 0, budget == hostingPages);
    expectAllValues("before any replay");
    for (const std::string steps : {"t", "e", "tt", "ee", "teteet", "e"}) {
      run(steps);
      expectAllValues(fmt::format("{} pages, after {}", budget, steps));
      EXPECT_LE(fake_.deviceFrames(), budget + besideBudget);
    }
    session_.reset();
  }
}

// Under a tight budget both plans move data, so values lie in two pinned pools.
TEST_F(TwoStepsTest, isTight) {
  open(tightPages + 3);
  captureBoth();
  EXPECT_TRUE(training_->movesAnything());
  EXPECT_GT(session_->statistics().hostBackedBytes, 0u);
}

// Only a replay of the other step costs an exchange, and reports say how many there were.
TEST_F(TwoStepsTest, exchangesOnlyWhereTheStepChanges) {
  open(tightPages + 3);
  captureBoth();
  EXPECT_EQ(exchangesOf(training_), 0u);
  EXPECT_EQ(exchangesOf(evaluation_), 0u); // captured last: in force
  run("eettteet");
  EXPECT_EQ(exchangesOf(training_), 2u);
  EXPECT_EQ(exchangesOf(evaluation_), 1u);
  EXPECT_GT(nlohmann::json::parse(training_->report()).at("runtime").at("exchange_ms"), 0.0);
  const std::uint64_t instantiated = fake_.callsOf("cuGraphInstantiateWithFlags");
  run("etet");
  EXPECT_EQ(fake_.callsOf("cuGraphInstantiateWithFlags"), instantiated); // memory is mapped anew, graphs stay
}

// A step left as captured may use a private buffer that is wholly on the device between replays. What is mapped may
// have its frames, so the step is not replayed then.
TEST_F(TwoStepsTest, aStepLeftAsCapturedIsNotReplayedBesideMappedBuffers) {
  static FakeKernel reader{"reader", {8, 8}, [](const FakeKernel::Arguments &arguments) {
                             *argument<std::uint64_t *>(arguments, 1) = *argument<std::uint64_t *>(arguments, 0);
                           }};
  int read = 0;
  for (std::uint64_t budget = 20; budget <= 26; ++budget) {
    open(budget);
    training_ = adopt(program_->record());
    ASSERT_TRUE(training_);
    void *seen = *session_->allocate(8, nullptr, "seen");
    const std::vector<void *> weights = program_->weightPointers();
    for (void *weight : weights) {
      const CUgraph graph = fake_.createGraph();
      fake_.addKernel(graph, {}, reader, {bytesOf(weight), bytesOf(seen)});
      const Expected<Step *> left = session_->adopt(graph, {.leaveAsCaptured = true});
      if (!left) // a plan has pages of it elsewhere
        continue;
      ASSERT_TRUE(train());
      for (void *mapped : weights) {
        ASSERT_TRUE(session_->map(mapped));
        const Status refused = (*left)->replay(nullptr);
        ASSERT_FALSE(refused);
        EXPECT_EQ(refused.error().status, PUMPGRAPH_INVALID_ARGUMENT);
        ASSERT_TRUE(session_->unmap(mapped));
      }
      ASSERT_TRUE((*left)->replay(nullptr));
      ++read;
    }
    session_.reset();
    program_.reset();
  }
  EXPECT_GT(read, 0);
}

// Buffers that both steps declare private stay private in both.
TEST_P(EitherWayTest, keepsSharedBuffersPrivate) {
  open(tightPages + 3);
  captureBoth();
  EXPECT_EQ(evaluation_->report().find("another step of the session uses"), std::string::npos) << evaluation_->report();
}

// What is mapped keeps every step from running, whichever plan it belongs to; what is written under it counts.
TEST_P(EitherWayTest, mapsWhicheverPlanIsInForce) {
  open(tightPages + 3);
  captureBoth();
  run("te");
  for (const std::string inForce : {"t", "e"}) {
    run(inForce);
    ASSERT_TRUE(session_->map(history_));
    *at(history_, 7) = expectedHistory_[7] = 77;
    EXPECT_EQ(training_->replay(nullptr).error().status, PUMPGRAPH_INVALID_ARGUMENT);
    EXPECT_EQ(evaluation_->replay(nullptr).error().status, PUMPGRAPH_INVALID_ARGUMENT);
    EXPECT_FALSE(session_->captureBegin());
    ASSERT_TRUE(session_->unmap(history_));
    run("et");
    expectAllValues("after writing under map()");
  }
}

// Where none is in force, everything can be read and written without more ado.
TEST_P(EitherWayTest, takesThePlanBack) {
  open(tightPages + 3);
  captureBoth();
  run("te");
  ASSERT_TRUE(session_->takeBack());
  for (Word i = 0; i < elements; ++i)
    ASSERT_EQ(*at(history_, i), expectedHistory_[i]);
  const std::vector<Word> weights = program_->expectedWeights(trained_);
  for (Word layer = 0; layer < 4; ++layer)
    for (Word i = 0; i < weightElements; ++i)
      ASSERT_EQ(*at(program_->weightPointers()[layer], i), weights[layer * weightElements + i]);
  *at(history_, 7) = expectedHistory_[7] = 77;
  run("et");
  expectAllValues("afterwards");
}

TEST_F(TwoStepsTest, putsAPlanInForceWithoutAReplay) {
  open(tightPages + 3);
  captureBoth();
  ASSERT_TRUE(training_->putInForce());
  EXPECT_EQ(exchangesOf(training_), 1u);
  run("t");
  EXPECT_EQ(exchangesOf(training_), 1u);
  expectAllValues("after putting it in force");
}

// Whichever is destroyed, in force or not, the other goes on.
TEST_P(EitherWayTest, outlivesTheOther) {
  for (const std::string last : {"t", "e"})
    for (const bool training : {true, false}) {
      open(tightPages + 3);
      captureBoth();
      run("te" + last);
      session_->destroy(training ? training_ : evaluation_);
      expectAllValues("after destroying");
      run(training ? "ee" : "tt");
      expectAllValues("after going on");
      EXPECT_LE(fake_.deviceFrames(), tightPages + 3 + besideBudget);
      session_.reset();
    }
}

// A third step is captured while a plan is in force; and one that cannot be planned leaves the two as they were.
TEST_F(TwoStepsTest, capturesWhileAPlanIsInForce) {
  open(tightPages + 3);
  captureBoth();
  run("tet");
  Step *third = adopt(recordEvaluation());
  ASSERT_TRUE(third);
  run("te");
  evaluation_ = third;
  run("et");
  expectAllValues("with three steps");

  static FakeKernel large{"large", {8}, [](const FakeKernel::Arguments &) {}};
  for (const bool fails : {true, false}) {
    CUgraph graph = fake_.createGraph();
    ASSERT_TRUE(session_->captureBegin());
    const Expected<void *> big = session_->allocate((fails ? 40 : 2) * pageBytes, nullptr, "big");
    ASSERT_TRUE(big);
    fake_.addKernel(graph, {}, large, {bytesOf(*big)});
    if (!fails) { // else it is a result, which has to stay on the device
      ASSERT_TRUE(session_->free(*big, nullptr));
    }
    ASSERT_TRUE(session_->captureEnd());
    const std::uint64_t exchanges = exchangesOf(training_);
    const Expected<Step *> step = session_->adopt(graph, {.leaveAsCaptured = !fails});
    EXPECT_EQ(step.has_value(), !fails);
    EXPECT_EQ(exchangesOf(training_), exchanges + 1); // in force again
    run("t");
    EXPECT_EQ(exchangesOf(training_), exchanges + 1);
    expectAllValues(fails ? "after a refused step" : "beside a step left as captured");
  }
}

// Validation, measurement and planning again bring the plan of their step in force first.
TEST_P(EitherWayTest, worksOnStepsThatAreNotInForce) {
  open(tightPages + 3);
  captureBoth();
  run("et");
  const Expected<Validation> validation = evaluation_->validate();
  ASSERT_TRUE(validation) << messageOf(validation);
  EXPECT_EQ(validation->differentBuffers, 0u) << validation->firstDifference;
  EXPECT_GT(validation->comparedBuffers, 0u);
  expectAllValues("after validation");
  const Expected<Replanning> replanned = training_->replan();
  ASSERT_TRUE(replanned) << messageOf(replanned);
  expectAllValues("after planning again");
  run("etet");
  expectAllValues("afterwards");
}

// A buffer that its owner has freed is the step's alone, with a value that the step goes on with.
TEST_P(EitherWayTest, keepsValuesOfFreedBuffers) {
  open(tightPages + 3);
  captureBoth();
  run("te");
  ASSERT_TRUE(session_->free(history_, nullptr));
  run("etete");
  EXPECT_EQ(*at(score_, 0), expectedScore_);
  EXPECT_EQ(program_->weights(), program_->expectedWeights(trained_));
}

// A buffer that one of them does not send away is on the device for both.
TEST_P(EitherWayTest, leavesExclusiveBuffersToThemselves) {
  open(60);
  captureBoth();
  run("tetete");
  EXPECT_EQ(*at(score_, 0), expectedScore_);
  *at(program_->inputPointer(), 5) = 6; // written from outside between any two replays
  run("te");
  expectAllValues("afterwards");
}

// Copies of arguments come once the step's plan is in force; one that the driver refuses is named.
TEST_P(EitherWayTest, copiesBeforeAReplay) {
  open(tightPages + 3);
  captureBoth();
  const std::uint64_t source = 6;
  const pumpgraph_copy copy{at(program_->inputPointer(), 5), &source, sizeof source};
  for (Step *step : {training_, evaluation_, training_}) {
    *at(program_->inputPointer(), 5) = 0;
    ASSERT_TRUE(step->prepareReplay(nullptr, {&copy, 1}));
    EXPECT_EQ(*at(program_->inputPointer(), 5), 6u);
    run(step == training_ ? "t" : "e");
    expectAllValues("after a replay with copies");
  }
  fake_.failCall("cuMemcpyDtoDAsync", 1, CUDA_ERROR_INVALID_VALUE);
  const Status refused = training_->prepareReplay(nullptr, {&copy, 1});
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("copying 8 bytes from"), std::string::npos) << refused.error().message;
  run("te");
  expectAllValues("after a copy that failed");
}

// Too little host memory for what the other step leaves behind: the plan in force goes on.
TEST_F(TwoStepsTest, keepsThePlanWhenThereIsNoHostMemory) {
  open(tightPages + 3);
  captureBoth();
  run("te");
  const MemoryStatistics used = session_->statistics();
  session_.reset();
  std::uint64_t refused = 0;
  for (std::uint64_t less = 0; less < 6; ++less) {
    open(tightPages + 3, used.pinnedBytes + used.hostBackedBytes - less * pageBytes);
    const Expected<Step *> first = session_->adopt(program_->record(), {.keepFirstPlan = true, .boundary = boundary_});
    if (!first)
      break;
    training_ = *first;
    const Expected<Step *> step = session_->adopt(recordEvaluation(), {.keepFirstPlan = true, .boundary = boundary_});
    if (step) {
      evaluation_ = *step;
      for (int i = 0; i < 3; ++i)
        for (const Status &status : {train(), evaluate()})
          if (!status) {
            EXPECT_EQ(status.error().status, PUMPGRAPH_OUT_OF_HOST_MEMORY) << messageOf(status);
            ++refused;
          }
      EXPECT_EQ(*at(score_, 0), expectedScore_) << less;
    } else {
      EXPECT_EQ(step.error().status, PUMPGRAPH_OUT_OF_HOST_MEMORY) << messageOf(step);
      ++refused;
      run("tt");
    }
    EXPECT_EQ(program_->loss(), program_->expectedLoss(trained_)) << less; // says what the weights are
    session_.reset();
  }
  EXPECT_GT(refused, 0u);
}

INSTANTIATE_TEST_SUITE_P(Boundary, EitherWayTest, ::testing::Values(BoundaryChoice::Own, BoundaryChoice::Shared),
                         [](const auto &choice) { return choice.param == BoundaryChoice::Own ? "own" : "shared"; });

/// A driver call, and which of them fails in the exchange.
class TwoStepsFailureTest : public TwoStepsTest,
                            public ::testing::WithParamInterface<std::tuple<const char *, int, bool, std::uint64_t>> {};

// Where memory is mapped anew a failure may cost steps their memory. They then say so, and never compute nonsense;
// everything else leaves the plan that was.
TEST_P(TwoStepsFailureTest, neverComputesNonsense) {
  const auto [call, nth, toTraining, budgetPages] = GetParam();
  open(budgetPages);
  captureBoth();
  run(toTraining ? "te" : "et");
  fake_.failCall(call, nth, CUDA_ERROR_UNKNOWN);
  const Status failed = toTraining ? train() : evaluate();
  fake_.stopFailing(call);
  const Status trained = train(), evaluated = evaluate();
  if (trained && evaluated) {
    expectAllValues("after the failure");
    run("te");
    expectAllValues("after going on");
    return;
  }
  EXPECT_FALSE(failed);
  EXPECT_STRNE(call, "cuMemCreate"); // comes before anything changes
  for (const Status &status : {trained, evaluated})
    if (!status) {
      EXPECT_EQ(status.error().status, PUMPGRAPH_INTERNAL);
      EXPECT_NE(status.error().message.find("has lost its memory"), std::string::npos) << messageOf(status);
    }
  session_->destroy(training_);
  session_->destroy(evaluation_);
}

INSTANTIATE_TEST_SUITE_P(Exchange, TwoStepsFailureTest,
                         ::testing::Combine(::testing::Values("cuMemMap", "cuMemUnmap", "cuMemSetAccess", "cuMemCreate",
                                                              "cuMemcpyDtoHAsync", "cuMemcpyDtoDAsync",
                                                              "cuCtxSynchronize"),
                                            ::testing::Values(1, 2, 5, 17), ::testing::Bool(),
                                            ::testing::Values(tightPages + 3)));
INSTANTIATE_TEST_SUITE_P(ExchangeOfHostedPages, TwoStepsFailureTest,
                         ::testing::Combine(::testing::Values("cuMemMap", "cuMemUnmap", "cuMemSetAccess",
                                                              "cuMemcpyDtoDAsync", "cuCtxSynchronize"),
                                            ::testing::Values(1, 4, 9), ::testing::Bool(),
                                            ::testing::Values(hostingPages)));

} // namespace
