// SPDX-License-Identifier: Apache-2.0
// The interpreter agrees with correct plans and sees wrong ones: transfers missing, early, half done.
#include "test/unit/check/Interpreter.h"
#include "passes/check/CheckResidency.h"
#include "test/unit/check/RandomGraph.h"
#include "test/unit/check/SimplePlan.h"
#include "test/unit/check/StepBuilder.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace pumpgraph::test {
namespace {

bool goesWrong(const Description &plan) {
  const Reference reference(capturedPart(plan));
  return Interpreter(reference, plan).runAllDelays(1).has_value();
}

/// "a" is written, saved, displaced by "b", brought back and read, and is wanted at the end.
struct TakingTurns {
  StepBuilder builder{1};
  BufferIndex a = builder.buffer("a", {0}, StepBuilder::liveOut);
  BufferIndex b = builder.buffer("b", {0});
  NodeIndex writeA = builder.kernel("write_a", {builder.write(a)});
  NodeIndex evictA = builder.evict(a);
  NodeIndex writeB = builder.kernel("write_b", {builder.write(b)});
  NodeIndex readB = builder.kernel("read_b", {builder.read(b)});
  NodeIndex prefetchA = builder.prefetch(a);
  NodeIndex readA = builder.kernel("read_a", {builder.read(a)});

  bool goesWrongWithout(NodeIndex from, NodeIndex to) {
    Description plan = builder.step();
    std::erase_if(plan.edges, [&](const Edge &edge) { return edge.from == from && edge.to == to; });
    return goesWrong(plan);
  }
};

TEST(Interpreter, agreesWithACorrectPlan) {
  TakingTurns plan;
  EXPECT_FALSE(goesWrong(plan.builder.step()));
}

TEST(Interpreter, seesEveryMissingEdge) {
  TakingTurns plan;
  EXPECT_TRUE(plan.goesWrongWithout(plan.writeA, plan.evictA));
  EXPECT_TRUE(plan.goesWrongWithout(plan.evictA, plan.writeB));
  EXPECT_TRUE(plan.goesWrongWithout(plan.readB, plan.prefetchA));
  EXPECT_TRUE(plan.goesWrongWithout(plan.prefetchA, plan.readA));
}

TEST(Interpreter, seesMissingTransfers) {
  for (const bool evict : {true, false}) {
    TakingTurns plan;
    plan.builder.step().nodes[evict ? plan.evictA : plan.prefetchA].kind = NodeKind::Advise;
    EXPECT_TRUE(goesWrong(plan.builder.step()));
  }
}

TEST(Interpreter, savesWhatOthersReadMeanwhile) {
  StepBuilder builder(1);
  const BufferIndex a = builder.buffer("a", {0}, StepBuilder::liveOut);
  const BufferIndex b = builder.buffer("b", {0});
  builder.unordered();
  const NodeIndex writeA = builder.kernel("write_a", {builder.write(a)});
  const NodeIndex readA = builder.kernel("read_a", {builder.read(a)});
  const NodeIndex evictA = builder.evict(a);
  const NodeIndex writeB = builder.kernel("write_b", {builder.write(b)});
  builder.edge(writeA, readA);
  builder.edge(writeA, evictA);
  builder.edge(evictA, writeB);
  builder.edge(readA, writeB);
  EXPECT_FALSE(goesWrong(builder.step()));
  EXPECT_TRUE(checkResidency(builder.step()).empty());
  std::erase_if(builder.step().edges, [&](const Edge &edge) { return edge.from == readA; });
  EXPECT_TRUE(goesWrong(builder.step()));
}

TEST(Interpreter, letsAKernelRunOnBehindAProgrammaticEdge) {
  // The next tenant may not start while the kernel is under way, though it has started.
  TakingTurns plan;
  for (Edge &edge : plan.builder.step().edges)
    if (edge.from == plan.evictA || edge.from == plan.writeB)
      edge.kind = EdgeKind::Programmatic;
  EXPECT_TRUE(goesWrong(plan.builder.step()));
}

TEST(Interpreter, accessesOfTheProgramWaitForEachOther) {
  StepBuilder builder(1);
  const BufferIndex a = builder.buffer("a", {0});
  builder.unordered();
  const NodeIndex writer = builder.kernel("writer", {builder.write(a)});
  const NodeIndex reader = builder.kernel("reader", {builder.read(a)});
  builder.edge(writer, reader, EdgeKind::Programmatic);
  const Reference reference(builder.step());
  EXPECT_FALSE(Interpreter(reference, builder.step()).runAllDelays(1));
}

TEST(Interpreter, seesWhatIsLostBetweenReplays) {
  StepBuilder builder(2);
  const BufferIndex state = builder.buffer("state", {0}, StepBuilder::liveInOut);
  builder.prefetch(state);
  builder.kernel("update", {builder.update(state)});
  EXPECT_TRUE(goesWrong(builder.step())); // nobody saves it
  builder.evict(state);
  EXPECT_FALSE(goesWrong(builder.step()));
}

TEST(Interpreter, mirroredPageStartsInBothCopies) {
  for (const bool mirrored : {true, false}) {
    StepBuilder builder(1);
    const BufferIndex state = builder.buffer("state", {0}, StepBuilder::liveInOut);
    const BufferIndex b = builder.buffer("b", {0});
    mirrored ? builder.mirrored(state) : builder.resident(state);
    builder.kernel("write_b", {builder.write(b)});
    builder.prefetch(state);
    EXPECT_EQ(goesWrong(builder.step()), !mirrored);
  }
}

TEST(Interpreter, mirroredPageEndsInBothCopies) {
  StepBuilder builder(1);
  const BufferIndex state = builder.buffer("state", {0}, StepBuilder::liveInOut);
  const BufferIndex b = builder.buffer("b", {0});
  builder.mirrored(state);
  builder.kernel("update", {builder.update(state)});
  EXPECT_TRUE(goesWrong(builder.step())); // host memory has the old value
  builder.evict(state);
  EXPECT_FALSE(goesWrong(builder.step()));
  builder.kernel("write_b", {builder.write(b)});
  EXPECT_TRUE(goesWrong(builder.step())); // the frame has another value
  builder.prefetch(state);
  EXPECT_FALSE(goesWrong(builder.step()));
}

TEST(Interpreter, writesThatMayLeaveBytesKeepThem) {
  StepBuilder builder(1);
  const BufferIndex state = builder.buffer("state", {0}, StepBuilder::liveInOut);
  builder.kernel("maybe", {builder.mayWrite(state)});
  builder.evict(state);
  EXPECT_TRUE(goesWrong(builder.step())); // the rest of the page was never brought
}

TEST(Interpreter, poolPlacesMayNotBeShared) {
  StepBuilder builder(2);
  const BufferIndex a = builder.buffer("a", {0}, StepBuilder::liveInOut);
  const BufferIndex b = builder.buffer("b", {1}, StepBuilder::liveInOut);
  builder.move(NodeKind::CopyToDevice, a, {0, 4}, 0);
  const NodeIndex upB = builder.move(NodeKind::CopyToDevice, b, {0, 4}, 4);
  builder.kernel("update", {builder.update(a), builder.update(b)});
  builder.move(NodeKind::CopyToHost, a, {0, 4}, 0);
  const NodeIndex downB = builder.move(NodeKind::CopyToHost, b, {0, 4}, 4);
  builder.step().hostBytes = 8;
  EXPECT_FALSE(goesWrong(builder.step()));
  builder.step().nodes[upB].hostOffset = builder.step().nodes[downB].hostOffset = 2;
  EXPECT_TRUE(goesWrong(builder.step()));
}

/// Correct plans of another kind than the planner's, of 2,000 random steps: checker and interpreter accept them all.
struct SimplePlans {
  unsigned planned = 0;
  unsigned staying = 0; ///< of these, with pages that stay where they are
};

void acceptSimplePlans(bool haveOtherAddresses, SimplePlans &plans) {
  for (std::uint64_t seed = 0; seed < 2000; ++seed) {
    Description captured = randomStep(seed);
    if (haveOtherAddresses)
      makeRenamable(captured);
    const Reference reference(captured);
    const auto plan = simplePlan(haveOtherAddresses ? withOtherAddresses(captured, seed) : captured,
                                 leastFrames(captured) + seed % 4, seed);
    if (!plan)
      continue; // its colouring is greedy
    ++plans.planned;
    plans.staying += pagesThatStay(*plan) > 0;
    for (const Description &step : {*plan, simpleLowering(*plan)}) {
      std::vector<Violation> violations = checkResidency(step);
      ASSERT_TRUE(violations.empty()) << "seed " << seed << ": " << violations[0].message << '\n' << toText(step);
      violations = checkPreserves(captured, step);
      ASSERT_TRUE(violations.empty()) << "seed " << seed << ": " << violations[0].message << '\n' << toText(step);
      const std::optional<std::string> wrong = Interpreter(reference, step).runAllDelays(seed);
      ASSERT_FALSE(wrong) << "seed " << seed << ": " << *wrong << '\n' << toText(step);
    }
  }
}

TEST(SimplePlan, isAcceptedAndRight) {
  SimplePlans plans;
  acceptSimplePlans(false, plans);
  EXPECT_GT(plans.planned, 1600U);
}

TEST(SimplePlan, isAcceptedAndRightAtOtherAddresses) {
  SimplePlans plans;
  acceptSimplePlans(true, plans);
  EXPECT_GT(plans.staying, 600U);
}

} // namespace
} // namespace pumpgraph::test
