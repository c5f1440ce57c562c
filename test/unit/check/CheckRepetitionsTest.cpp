// SPDX-License-Identifier: Apache-2.0
// Rule 11 of docs/design/plan-correctness.md by hand: which nodes may run again, and the words of each refusal. The
// interpreter finds the same of values.
#include "passes/check/CheckResidency.h"
#include "test/unit/check/Interpreter.h"
#include "test/unit/check/StepBuilder.h"
#include "test/unit/check/ViolationMatchers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

namespace pumpgraph::test {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::IsEmpty;

bool changesValues(const Description &step) {
  const Reference reference(capturedPart(step));
  return Interpreter(reference, step).runRandom(1, 4).has_value();
}

void expectRight(const Description &step) {
  EXPECT_THAT(checkResidency(step), IsEmpty());
  EXPECT_THAT(checkPreserves(capturedPart(step), step), IsEmpty());
  EXPECT_FALSE(changesValues(step));
}

/// `a` is made from `x`, loses its frame to `b`, is made again and read.
struct Repeating {
  StepBuilder builder{3};
  BufferIndex x = builder.buffer("x", {0}, StepBuilder::liveInOut);
  BufferIndex a = builder.buffer("a", {1});
  BufferIndex b = builder.buffer("b", {1});
  BufferIndex out = builder.buffer("out", {2}, StepBuilder::liveOut);
  NodeIndex make = 0, again = 0, use = 0;

  Repeating() {
    builder.resident(x);
    builder.resident(out);
    make = builder.kernel("make", {builder.read(x), builder.write(a)});
    builder.kernel("other", {builder.write(b)});
  }
  void finish() {
    again = builder.repeat(make);
    use = builder.kernel("use", {builder.read(a), builder.write(out)});
  }
  Description &step() { return builder.step(); }
};

TEST(CheckRepetitions, acceptsWhatIsMadeAgain) {
  Repeating plan;
  plan.finish();
  expectRight(plan.step());
}

TEST(CheckRepetitions, withoutItTheValueIsLost) {
  Repeating plan;
  plan.use = plan.builder.kernel("use", {plan.builder.read(plan.a), plan.builder.write(plan.out)});
  EXPECT_THAT(checkResidency(plan.step()), ElementsAre(says("whose value is lost")));
  EXPECT_TRUE(changesValues(plan.step()));
}

TEST(CheckRepetitions, anInputHasChangedSince) {
  Repeating plan;
  plan.builder.kernel("advance", {plan.builder.update(plan.x)});
  plan.finish();
  EXPECT_THAT(checkResidency(plan.step()),
              ElementsAre(AllOf(atNode(plan.again), atBuffer(plan.x),
                                says("node 3 \"make\" needs of bytes [0, 4) of \"x\" the value that it has before the "
                                     "step, but finds the value that node 2 \"advance\" leaves"))));
  EXPECT_TRUE(changesValues(plan.step()));
}

/// What makes `a` updates `x` besides.
struct Updating : Repeating {
  Updating() { step().nodes[make].accesses[0] = builder.aside(x); }
};

TEST(CheckRepetitions, whatIsAsideIsLeftOut) {
  Updating plan;
  plan.finish();
  expectRight(plan.step());
}

TEST(CheckRepetitions, whatIsAsideIsTheCapturedNodesAlone) {
  Updating plan;
  plan.finish();
  plan.step().nodes[plan.again].accesses = plan.step().nodes[plan.make].accesses;
  EXPECT_THAT(checkResidency(plan.step()),
              ElementsAre(says("repeats node 0 \"make\", but has another name or other accesses")));
  plan.step().nodes[plan.again].accesses[0].isAside = false;
  EXPECT_THAT(checkResidency(plan.step()),
              ElementsAre(says("repeats node 0 \"make\", but has another name or other accesses")));
}

TEST(CheckRepetitions, whatIsNotAsideIsUpdatedTwice) {
  Updating plan;
  plan.step().nodes[plan.make].accesses[0].isAside = false;
  plan.finish();
  EXPECT_THAT(
      checkResidency(plan.step()),
      testing::UnorderedElementsAre(says("needs of bytes [0, 4) of \"x\" the value that it has before the step"),
                                    says("writes \"x\", which outlives the step")));
  EXPECT_TRUE(changesValues(plan.step()));
}

TEST(CheckRepetitions, bytesAreAsideInPart) {
  Updating plan;
  plan.step().nodes[plan.make].accesses.push_back(plan.builder.read(plan.x));
  plan.finish();
  EXPECT_THAT(checkResidency(plan.step()),
              ElementsAre(says("some of whose accesses are aside and others of the same bytes are not")));
}

TEST(CheckRepetitions, whatWasLeftAsideIsNotMadeAgain) {
  Repeating plan;
  plan.step().nodes[plan.make].accesses[1] = plan.builder.aside(plan.a);
  plan.finish();
  EXPECT_THAT(checkResidency(plan.step()), ElementsAre(says("whose value is lost")));
  EXPECT_TRUE(changesValues(plan.step()));
}

/// `a` is made and then changed in place.
struct Chain : Repeating {
  NodeIndex change = 0;
  Chain() {
    step().nodes.clear();
    step().edges.clear();
    make = builder.kernel("make", {builder.read(x), builder.write(a)});
    change = builder.kernel("change", {builder.update(a)});
    // Positions go on where they were.
    for (NodeIndex node = 0; node < step().nodes.size(); ++node)
      step().nodes[node].captured = static_cast<std::int32_t>(node);
    builder.kernel("other", {builder.write(b)});
    step().nodes.back().captured = 2;
  }
  void use_() {
    use = builder.kernel("use", {builder.read(a), builder.write(out)});
    step().nodes.back().captured = 3;
  }
};

TEST(CheckRepetitions, allLinksOfAChainRunAgain) {
  Chain plan;
  plan.builder.repeat(plan.make);
  plan.builder.repeat(plan.change);
  plan.use_();
  expectRight(plan.step());
}

TEST(CheckRepetitions, theLastLinkOfAChainIsMissing) {
  Chain plan;
  plan.builder.repeat(plan.make);
  plan.use_();
  EXPECT_THAT(
      checkResidency(plan.step()),
      ElementsAre(AllOf(atNode(plan.use), says("needs of bytes [0, 4) of \"a\" the value that node 1 \"change\" "
                                               "leaves, but finds the value that node 0 \"make\" leaves"))));
  EXPECT_TRUE(changesValues(plan.step()));
}

TEST(CheckRepetitions, aLinkRunsTwice) {
  Chain plan;
  plan.builder.repeat(plan.make);
  plan.builder.repeat(plan.change);
  const NodeIndex twice = plan.builder.repeat(plan.change);
  plan.use_();
  EXPECT_THAT(checkResidency(plan.step()), ElementsAre(AllOf(atNode(twice), says("needs of bytes [0, 4) of \"a\""))));
  EXPECT_TRUE(changesValues(plan.step()));
}

// A product takes what the last one left in a workspace for an input, where nobody says otherwise.
TEST(CheckRepetitions, aWorkspaceIsAnInput) {
  constexpr NodeIndex other = 1;
  for (const bool makesFirst : {true, false}) {
    Repeating plan;
    const BufferIndex workspace = plan.builder.buffer("workspace", {3});
    plan.step().budgetBytes += StepBuilder::pageBytes;
    plan.step().nodes[plan.make].accesses.push_back(plan.builder.update(workspace)); // which has had no value before
    plan.step().nodes[other].accesses.push_back(plan.builder.update(workspace));
    if (makesFirst)
      plan.builder.repeat(plan.make);
    const NodeIndex again = plan.builder.repeat(other);
    EXPECT_EQ(changesValues(plan.step()), !makesFirst);
    if (makesFirst)
      EXPECT_THAT(checkResidency(plan.step()), IsEmpty());
    else
      EXPECT_THAT(checkResidency(plan.step()), ElementsAre(AllOf(atNode(again), atBuffer(workspace),
                                                                 says("the value that node 0 \"make\" leaves, but "
                                                                      "finds the value that node 1 \"other\""))));
  }
}

TEST(CheckRepetitions, nothingThatOutlivesTheStepIsWrittenAgain) {
  Repeating plan;
  plan.finish();
  const NodeIndex again = plan.builder.repeat(plan.use);
  EXPECT_THAT(checkResidency(plan.step()),
              ElementsAre(AllOf(atNode(again), atBuffer(plan.out), says("writes \"out\", which outlives the step"))));
}

TEST(CheckRepetitions, onlyWhatIsPureRunsAgain) {
  Repeating plan;
  plan.finish();
  plan.step().nodes[plan.make].isPure = false;
  EXPECT_THAT(checkResidency(plan.step()),
              ElementsAre(AllOf(atNode(plan.again), says("repeats node 0 \"make\", which is not known to be pure"))));
}

TEST(CheckRepetitions, aRepetitionHasTheAccessesOfItsOriginal) {
  for (const bool dropsRead : {true, false}) {
    Repeating plan;
    plan.finish();
    Node &again = plan.step().nodes[plan.again];
    if (dropsRead)
      again.accesses.erase(again.accesses.begin());
    else
      again.name = "made";
    EXPECT_THAT(checkResidency(plan.step()), testing::Contains(says("has another name or other accesses")));
  }
}

// An observed read may as well write: its repetition may not claim to know better, or that write is not seen.
TEST(CheckRepetitions, aRepetitionKnowsNoMoreThanItsOriginal) {
  for (const bool isOriginalObserved : {true, false}) {
    Repeating plan;
    plan.step().buffers[plan.x].liveIn = plan.step().buffers[plan.x].liveOut = false;
    plan.step().buffers[plan.x].resident.clear();
    plan.finish();
    plan.step().nodes[isOriginalObserved ? plan.make : plan.again].accesses[0].evidence = Evidence::Observed;
    EXPECT_THAT(checkResidency(plan.step()),
                testing::Contains(AllOf(atNode(plan.again), says("has another name or other accesses"))));
  }
}

TEST(CheckRepetitions, aRepetitionOfNothing) {
  Repeating plan;
  plan.finish();
  plan.step().nodes[plan.again].repeats = 17;
  EXPECT_THAT(checkResidency(plan.step()),
              testing::Contains(says("repeats captured node 17, which does not come before")));
}

TEST(CheckRepetitions, itIsOrderedAgainstReadersAndWriters) {
  Repeating plan;
  plan.step().buffers[plan.b].frames = {3}; // nothing is handed over
  plan.step().budgetBytes += StepBuilder::pageBytes;
  plan.finish();
  expectRight(plan.step());
  std::erase(plan.step().edges, Edge{plan.again, plan.use});
  plan.builder.edge(1, plan.use);
  EXPECT_THAT(
      checkResidency(plan.step()),
      ElementsAre(AllOf(atNode(plan.use), says("node 2 \"make\" and node 3 \"use\" race on bytes [0, 4) of \"a\""))));
}

TEST(CheckRepetitions, itHasNoProgrammaticEdges) {
  Repeating plan;
  plan.finish();
  plan.builder.edge(plan.make, plan.again, EdgeKind::Programmatic);
  EXPECT_THAT(checkResidency(plan.step()), ElementsAre(AllOf(atNode(plan.again), says("has a programmatic edge"))));
}

} // namespace
} // namespace pumpgraph::test
