// SPDX-License-Identifier: Apache-2.0
// Each rule of docs/design/plan-correctness.md by hand: what it accepts, and what it rejects in which words.
#include "passes/check/CheckResidency.h"
#include "test/unit/check/StepBuilder.h"
#include "test/unit/check/ViolationMatchers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace pumpgraph::test {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;

std::vector<Violation> check(StepBuilder &builder) {
  return checkResidency(builder.step());
}

/// "a" and "b" take turns in frame 0: a is written, saved, displaced by b, brought back and read.
struct TakingTurns {
  StepBuilder builder{1};
  BufferIndex a = builder.buffer("a", {0});
  BufferIndex b = builder.buffer("b", {0});
  NodeIndex writeA = builder.kernel("write_a", {builder.write(a)});
  NodeIndex evictA = builder.evict(a);
  NodeIndex useB = builder.kernel("use_b", {builder.write(b)});
  NodeIndex prefetchA = builder.prefetch(a);
  NodeIndex readA = builder.kernel("read_a", {builder.read(a)});

  Description &step() { return builder.step(); }
  void removeEdge(NodeIndex from, NodeIndex to) {
    std::erase_if(step().edges, [&](const Edge &edge) { return edge.from == from && edge.to == to; });
  }
  /// Leaves the order of all others as it is.
  void removeNode(NodeIndex gone) {
    step().nodes.erase(step().nodes.begin() + gone);
    step().edges.clear();
    for (NodeIndex node = 1; node < step().nodes.size(); ++node)
      builder.edge(node - 1, node);
  }
};

TEST(CheckResidency, acceptsBuffersThatTakeTurns) {
  TakingTurns plan;
  EXPECT_THAT(checkResidency(plan.step()), IsEmpty());
}

TEST(CheckResidency, acceptsAnEmptyStep) {
  Description step;
  step.stage = Stage::Planned;
  EXPECT_THAT(checkResidency(step), IsEmpty());
}

// The nodes of a step lowered for managed memory mean other things than those of a plan; a captured step is no plan.
TEST(CheckResidency, looksAtNoOtherStages) {
  TakingTurns plan;
  plan.step().stage = Stage::LoweredManaged;
  EXPECT_THAT(checkResidency(plan.step()),
              testing::Contains(says("the step is lowered for managed memory; it has to be planned "
                                     "or lowered for virtual memory")));
  plan.step().stage = Stage::Captured;
  EXPECT_THAT(checkResidency(plan.step()), testing::Contains(says("the step is captured; it has to be planned")));
  plan.step().stage = Stage::LoweredVirtual;
  EXPECT_THAT(checkManaged(plan.step()), testing::Contains(says("it has to be lowered for managed memory")));
}

// Rule 1: transfers do not race.

TEST(TransfersDoNotRace, evictBesideTheWriter) {
  TakingTurns plan;
  plan.removeEdge(plan.writeA, plan.evictA);
  plan.builder.edge(plan.writeA, plan.useB);
  EXPECT_THAT(checkResidency(plan.step()),
              ElementsAre(AllOf(atNode(plan.evictA), atBuffer(plan.a),
                                says("node 0 \"write_a\" and node 1, evict of \"a\" bytes [0, 4) race on page 0"))));
}

TEST(TransfersDoNotRace, readerBesideThePrefetch) {
  TakingTurns plan;
  plan.removeEdge(plan.prefetchA, plan.readA);
  plan.builder.edge(plan.useB, plan.readA);
  EXPECT_THAT(checkResidency(plan.step()), ElementsAre(AllOf(atNode(plan.readA), says("race on page 0"))));
}

TEST(TransfersDoNotRace, programmaticEdgeIsNotEnough) {
  TakingTurns plan;
  for (Edge &edge : plan.step().edges)
    if (edge.to == plan.evictA)
      edge.kind = EdgeKind::Programmatic;
  plan.builder.edge(plan.writeA, plan.useB);
  EXPECT_THAT(checkResidency(plan.step()), ElementsAre(AllOf(atNode(plan.evictA), says("no path of full edges"))));
}

TEST(TransfersDoNotRace, pathThroughAProgrammaticEdgeIsNotEnough) {
  StepBuilder builder(1);
  const BufferIndex a = builder.buffer("a", {0}, StepBuilder::liveOut);
  builder.unordered();
  const NodeIndex writer = builder.kernel("writer", {builder.write(a)});
  const NodeIndex between = builder.kernel("between", {});
  const NodeIndex evict = builder.evict(a);
  builder.edge(writer, between, EdgeKind::Programmatic);
  builder.edge(between, evict);
  EXPECT_THAT(check(builder), ElementsAre(AllOf(atNode(evict), says("race"))));
  builder.edge(writer, evict);
  EXPECT_THAT(check(builder), IsEmpty());
}

TEST(TransfersDoNotRace, discardBesideAReader) {
  StepBuilder builder(1);
  const BufferIndex a = builder.buffer("a", {0});
  builder.unordered();
  const NodeIndex writer = builder.kernel("writer", {builder.write(a)});
  const NodeIndex reader = builder.kernel("reader", {builder.read(a)});
  const NodeIndex discard = builder.discard(a);
  builder.edge(writer, reader);
  builder.edge(writer, discard);
  EXPECT_THAT(check(builder), ElementsAre(AllOf(atNode(discard), says("race"))));
}

TEST(TransfersDoNotRace, everyReaderCounts) {
  StepBuilder builder(2);
  const BufferIndex a = builder.buffer("a", {0}, StepBuilder::liveInOut);
  builder.unordered();
  const NodeIndex prefetch = builder.prefetch(a);
  const NodeIndex first = builder.kernel("first", {builder.read(a)});
  const NodeIndex second = builder.kernel("second", {builder.read(a)});
  builder.edge(prefetch, first);
  EXPECT_THAT(check(builder), ElementsAre(AllOf(atNode(second), says("race"))));
  builder.edge(prefetch, second);
  EXPECT_THAT(check(builder), IsEmpty());
}

TEST(TransfersDoNotRace, accessesMayBeUnordered) {
  StepBuilder builder(1);
  const BufferIndex a = builder.buffer("a", {0});
  builder.unordered();
  builder.kernel("first", {builder.read(a)});
  builder.kernel("second", {builder.read(a)});
  EXPECT_THAT(check(builder), IsEmpty());
}

/// "a" is written, then saved beside whatever else `users` do with it.
struct SavedBesideUsers {
  StepBuilder builder{1};
  BufferIndex a = builder.buffer("a", {0}, StepBuilder::liveOut);
  NodeIndex writer = noOrder().kernel("writer", {builder.write(a)});
  NodeIndex evict = after(writer, builder.evict(a));

  NodeIndex after(NodeIndex before, NodeIndex node) {
    builder.edge(before, node);
    return node;
  }

private:
  StepBuilder &noOrder() {
    builder.unordered();
    return builder;
  }
};

TEST(TransfersDoNotRace, evictMayRunBesideReaders) {
  SavedBesideUsers plan;
  plan.after(plan.writer, plan.builder.kernel("left", {plan.builder.read(plan.a)}));
  plan.after(plan.writer, plan.builder.kernel("right", {plan.builder.read(plan.a)}));
  plan.after(plan.writer, plan.builder.kernel("neither", {plan.builder.access(plan.a, modeNone, modeNone)}));
  EXPECT_THAT(check(plan.builder), IsEmpty());
}

TEST(TransfersDoNotRace, evictMayRunBesideTheReadersBeforeAnything) {
  StepBuilder builder(1);
  const BufferIndex a = builder.buffer("a", {0}, StepBuilder::liveInOut);
  builder.mirrored(a);
  builder.unordered();
  builder.kernel("reader", {builder.read(a)});
  builder.evict(a);
  EXPECT_THAT(check(builder), IsEmpty());
}

TEST(TransfersDoNotRace, evictBesideWhateverMayWrite) {
  const auto besideTheEvict = [](auto accessesOf) {
    SavedBesideUsers plan;
    const NodeIndex user = plan.after(plan.writer, plan.builder.kernel("user", accessesOf(plan)));
    return std::pair(user, check(plan.builder));
  };
  const auto race = [](const auto &result) {
    EXPECT_THAT(result.second, ElementsAre(AllOf(atNode(result.first), says("race on page 0"))));
  };
  using Plan = SavedBesideUsers;
  race(besideTheEvict([](Plan &p) { return std::vector{p.builder.update(p.a)}; }));
  race(besideTheEvict([](Plan &p) { return std::vector{p.builder.mayWrite(p.a)}; }));
  race(besideTheEvict([](Plan &p) { return std::vector{p.builder.read(p.a), p.builder.write(p.a)}; }));
  race(besideTheEvict([](Plan &p) {
    Access seen = p.builder.read(p.a);
    seen.evidence = Evidence::Observed; // on the next run it may write
    return std::vector{seen};
  }));
}

TEST(TransfersDoNotRace, evictIsOrderedAcrossReaders) {
  SavedBesideUsers plan;
  const NodeIndex reader = plan.after(plan.writer, plan.builder.kernel("reader", {plan.builder.read(plan.a)}));
  const NodeIndex again = plan.after(reader, plan.builder.kernel("again", {plan.builder.write(plan.a)}));
  const NodeIndex save = plan.after(again, plan.builder.evict(plan.a));
  EXPECT_THAT(check(plan.builder), ElementsAre(AllOf(atNode(again), says("race on page 0"))));
  plan.builder.edge(plan.evict, again);
  EXPECT_THAT(check(plan.builder), IsEmpty());
  std::erase_if(plan.builder.step().edges, [&](const Edge &edge) { return edge.to == save; });
  EXPECT_THAT(check(plan.builder), ElementsAre(AllOf(atNode(save), says("race on page 0"))));
}

TEST(TransfersDoNotRace, twoCopiesAtOnce) {
  SavedBesideUsers evicts;
  const NodeIndex second = evicts.after(evicts.writer, evicts.builder.evict(evicts.a));
  EXPECT_THAT(check(evicts.builder), ElementsAre(AllOf(atNode(second), says("race on page 0"))));

  SavedBesideUsers back;
  const NodeIndex reader = back.after(back.writer, back.builder.kernel("reader", {back.builder.read(back.a)}));
  const NodeIndex prefetch = back.after(back.evict, back.builder.prefetch(back.a));
  EXPECT_THAT(check(back.builder), ElementsAre(AllOf(atNode(prefetch), says("race on page 0"))));
  back.builder.edge(reader, prefetch);
  EXPECT_THAT(check(back.builder), IsEmpty());
}

// Rule 2: frames are handed over in order.

TEST(FramesAreHandedOverInOrder, twoTenantsAtOnce) {
  StepBuilder builder(1);
  const BufferIndex a = builder.buffer("a", {0});
  const BufferIndex b = builder.buffer("b", {0});
  builder.unordered();
  const NodeIndex useA = builder.kernel("use_a", {builder.write(a)});
  const NodeIndex useB = builder.kernel("use_b", {builder.write(b)});
  EXPECT_THAT(check(builder),
              ElementsAre(AllOf(atNode(useB), atBuffer(b),
                                says("node 0 \"use_a\" uses page 0 (bytes [0, 4)) of \"a\" and node 1 \"use_b\" uses "
                                     "page 0 (bytes [0, 4)) of \"b\", both in frame 0"))));
  builder.edge(useA, useB);
  EXPECT_THAT(check(builder), IsEmpty());
}

TEST(FramesAreHandedOverInOrder, programmaticHandOver) {
  StepBuilder builder(1);
  const BufferIndex a = builder.buffer("a", {0});
  const BufferIndex b = builder.buffer("b", {0});
  builder.unordered();
  const NodeIndex useA = builder.kernel("use_a", {builder.write(a)});
  const NodeIndex useB = builder.kernel("use_b", {builder.write(b)});
  builder.edge(useA, useB, EdgeKind::Programmatic);
  EXPECT_THAT(check(builder), ElementsAre(says("both in frame 0")));
}

TEST(FramesAreHandedOverInOrder, oneNodeNeedsBothTenants) {
  StepBuilder builder(1);
  const BufferIndex a = builder.buffer("a", {0});
  const BufferIndex b = builder.buffer("b", {0});
  builder.kernel("add", {builder.write(a), builder.write(b)});
  EXPECT_THAT(check(builder), ElementsAre(says("at the same time, but both are in frame 0")));
}

TEST(FramesAreHandedOverInOrder, twoPagesOfOneBufferAtOnce) {
  StepBuilder builder(1);
  const BufferIndex a = builder.buffer("a", {0, 0}, StepBuilder::liveInOut);
  builder.prefetch(a);
  EXPECT_THAT(check(builder), ElementsAre(says("at the same time, but both are in frame 0")));
}

TEST(FramesAreHandedOverInOrder, prefetchBeforeTheOldTenantHasLeft) {
  TakingTurns plan;
  plan.removeEdge(plan.useB, plan.prefetchA);
  plan.builder.edge(plan.evictA, plan.prefetchA);
  EXPECT_THAT(checkResidency(plan.step()), ElementsAre(AllOf(atNode(plan.prefetchA), says("both in frame 0"))));
}

TEST(FramesAreHandedOverInOrder, allReadersOfTheOldTenantCount) {
  StepBuilder builder(1);
  const BufferIndex a = builder.buffer("a", {0});
  const BufferIndex b = builder.buffer("b", {0});
  builder.unordered();
  const NodeIndex writer = builder.kernel("writer", {builder.write(a)});
  const NodeIndex left = builder.kernel("left", {builder.read(a)});
  const NodeIndex right = builder.kernel("right", {builder.read(a)});
  const NodeIndex next = builder.kernel("next", {builder.write(b)});
  builder.edge(writer, left);
  builder.edge(writer, right);
  builder.edge(left, next);
  EXPECT_THAT(check(builder), ElementsAre(AllOf(atNode(next), says("\"right\""))));
  builder.edge(right, next);
  EXPECT_THAT(check(builder), IsEmpty());
}

TEST(FramesAreHandedOverInOrder, readerBesideTheEvictCounts) {
  SavedBesideUsers plan;
  const NodeIndex reader = plan.after(plan.writer, plan.builder.kernel("reader", {plan.builder.read(plan.a)}));
  const BufferIndex b = plan.builder.buffer("b", {0});
  const NodeIndex next = plan.after(plan.evict, plan.builder.kernel("next", {plan.builder.write(b)}));
  EXPECT_THAT(check(plan.builder), ElementsAre(AllOf(atNode(next), says("\"reader\""))));
  plan.builder.edge(reader, next);
  EXPECT_THAT(check(plan.builder), IsEmpty());
  std::erase_if(plan.builder.step().edges, [&](const Edge &edge) { return edge.from == plan.evict; });
  EXPECT_THAT(check(plan.builder), ElementsAre(AllOf(atNode(next), says("evict of \"a\""))));
}

// Rule 3: values.

TEST(Values, transferDropped) {
  TakingTurns withoutEvict;
  withoutEvict.removeNode(withoutEvict.evictA);
  EXPECT_THAT(checkResidency(withoutEvict.step()),
              ElementsAre(AllOf(atNode(2), says("brings page 0 (bytes [0, 4)) of \"a\" back, but the host copy is not "
                                                "its value: it is lost since node 1 \"use_b\""))));
  TakingTurns withoutPrefetch;
  withoutPrefetch.removeNode(withoutPrefetch.prefetchA);
  EXPECT_THAT(
      checkResidency(withoutPrefetch.step()),
      ElementsAre(AllOf(atNode(3), says("node 3 \"read_a\" reads page 0 (bytes [0, 4)) of \"a\", whose value is "
                                        "in host memory only since node 2 \"use_b\""))));
}

TEST(Values, transferShortened) {
  StepBuilder builder(2);
  const BufferIndex a = builder.buffer("a", {0, 1});
  const BufferIndex b = builder.buffer("b", {0, 1});
  builder.kernel("write_a", {builder.write(a)});
  const NodeIndex evict = builder.evict(a);
  builder.kernel("use_b", {builder.write(b)});
  const NodeIndex prefetch = builder.prefetch(a);
  const NodeIndex reader = builder.kernel("read_a", {builder.read(a)});
  EXPECT_THAT(check(builder), IsEmpty());

  builder.step().nodes[prefetch].range = {0, 4};
  EXPECT_THAT(check(builder), ElementsAre(AllOf(atNode(reader), says("page 1 (bytes [4, 8)) of \"a\""))));
  builder.step().nodes[prefetch].range = {0, 8};
  builder.step().nodes[evict].range = {4, 4};
  EXPECT_THAT(check(builder), ElementsAre(AllOf(atNode(prefetch), says("page 0 (bytes [0, 4)) of \"a\""))));
}

TEST(Values, evictBeforeTheLastWrite) {
  StepBuilder builder(1);
  const BufferIndex a = builder.buffer("a", {0});
  const BufferIndex b = builder.buffer("b", {0});
  builder.kernel("write_a", {builder.write(a)});
  builder.evict(a);
  builder.kernel("update_a", {builder.update(a)});
  builder.kernel("use_b", {builder.write(b)});
  const NodeIndex prefetch = builder.prefetch(a);
  EXPECT_THAT(check(builder), ElementsAre(AllOf(atNode(prefetch), says("is lost since node 3 \"use_b\""))));
}

TEST(Values, evictBesideAReaderOfALostValue) {
  StepBuilder builder(1);
  const BufferIndex a = builder.buffer("a", {0}, StepBuilder::liveInOut);
  builder.unordered();
  const NodeIndex evict = builder.evict(a);
  const NodeIndex reader = builder.kernel("reader", {builder.read(a)});
  EXPECT_THAT(check(builder), ElementsAre(AllOf(atNode(reader), says("in host memory only"))));
  builder.step().nodes[reader].accesses.clear();
  EXPECT_THAT(check(builder), ElementsAre(AllOf(atNode(evict), says("saves page 0"))));
}

TEST(Values, prefetchOverANewerValue) {
  StepBuilder builder(1);
  const BufferIndex a = builder.buffer("a", {0}, StepBuilder::liveInOut);
  builder.resident(a);
  const NodeIndex prefetch = builder.prefetch(a);
  EXPECT_THAT(check(builder),
              ElementsAre(AllOf(atNode(prefetch), says("the host copy is not its value: the device copy is"))));
}

TEST(Values, evictOfALostValue) {
  StepBuilder builder(1);
  const BufferIndex a = builder.buffer("a", {0});
  builder.kernel("write_a", {builder.write(a)});
  builder.discard(a);
  const NodeIndex evict = builder.evict(a);
  EXPECT_THAT(check(builder),
              ElementsAre(AllOf(atNode(evict), says("saves page 0"), says("lost since node 1, discard"))));
}

TEST(Values, readAfterDiscard) {
  StepBuilder builder(1);
  const BufferIndex a = builder.buffer("a", {0});
  builder.kernel("write_a", {builder.write(a)});
  builder.discard(a);
  const NodeIndex reader = builder.kernel("read_a", {builder.read(a)});
  EXPECT_THAT(check(builder), ElementsAre(AllOf(atNode(reader), says("lost since node 1"))));
}

TEST(Values, liveInPageStartsInHostMemory) {
  StepBuilder builder(1);
  const BufferIndex a = builder.buffer("a", {0}, StepBuilder::liveInOut);
  const NodeIndex reader = builder.kernel("read_a", {builder.read(a)});
  EXPECT_THAT(check(builder), ElementsAre(AllOf(atNode(reader), says("in host memory only at the start of the step"))));
}

TEST(Values, deadAndUnneededValuesMayBeLost) {
  StepBuilder builder(1);
  const BufferIndex a = builder.buffer("a", {0});
  const BufferIndex b = builder.buffer("b", {0});
  builder.kernel("write_a", {builder.write(a)});
  builder.kernel("write_b", {builder.write(b)});
  builder.kernel("write_a_again", {builder.write(a)});
  EXPECT_THAT(check(builder), IsEmpty());
}

TEST(Values, partialWriteNeedsTheRestOfThePage) {
  for (const bool wholePage : {true, false}) {
    StepBuilder builder(1);
    const BufferIndex a = builder.buffer("a", {0});
    const BufferIndex b = builder.buffer("b", {0});
    builder.kernel("write_a", {builder.write(a)});
    builder.kernel("write_b", {builder.write(b)});
    Access access = builder.write(a);
    access.range.size = wholePage ? 4 : 3;
    const NodeIndex again = builder.kernel("write_a_again", {access});
    if (wholePage)
      EXPECT_THAT(check(builder), IsEmpty());
    else
      EXPECT_THAT(check(builder), ElementsAre(AllOf(atNode(again), says("updates page 0"), says("lost"))));
  }
}

TEST(Values, writeThatMayLeaveBytesNeedsThem) {
  StepBuilder builder(1);
  const BufferIndex a = builder.buffer("a", {0});
  const BufferIndex b = builder.buffer("b", {0});
  builder.kernel("write_a", {builder.write(a)});
  builder.kernel("write_b", {builder.write(b)});
  const NodeIndex again = builder.kernel("maybe_write_a", {builder.mayWrite(a)});
  EXPECT_THAT(check(builder), ElementsAre(AllOf(atNode(again), says("updates page 0"))));
}

TEST(Values, updateInPlaceNeedsTheValue) {
  for (const std::uint8_t must : {modeWrite, modeReadWrite}) {
    StepBuilder builder(1);
    const BufferIndex a = builder.buffer("a", {0}, StepBuilder::liveInOut);
    const NodeIndex update = builder.kernel("update", {builder.access(a, modeReadWrite, must)});
    builder.evict(a);
    if (must == modeWrite)
      EXPECT_THAT(check(builder), IsEmpty());
    else
      EXPECT_THAT(check(builder), ElementsAre(AllOf(atNode(update), says("updates page 0"))));
  }
}

TEST(Values, firstWriteMayBePartial) {
  StepBuilder builder(1);
  const BufferIndex a = builder.buffer("a", {0});
  builder.kernel("maybe_write_a", {builder.mayWrite(a)});
  builder.kernel("read_a", {builder.read(a)});
  EXPECT_THAT(check(builder), IsEmpty());
}

TEST(Values, lastPageIsPartial) {
  StepBuilder builder(2);
  const BufferIndex a = builder.buffer("a", {0, 1}, StepBuilder::liveInOut);
  builder.step().buffers[a].size = 7;
  builder.kernel("write_a", {builder.write(a)});
  builder.evict(a);
  EXPECT_THAT(check(builder), IsEmpty());
}

TEST(Values, readerBesideTheOverwriter) {
  StepBuilder builder(1);
  const BufferIndex a = builder.buffer("a", {0}, StepBuilder::liveInOut);
  builder.unordered();
  const NodeIndex writer = builder.kernel("writer", {builder.write(a)});
  const NodeIndex reader = builder.kernel("reader", {builder.read(a)});
  const NodeIndex evict = builder.evict(a);
  builder.edge(writer, evict);
  builder.edge(reader, evict);
  EXPECT_THAT(check(builder), ElementsAre(AllOf(atNode(reader), says("in host memory only"))));
  builder.edge(writer, reader, EdgeKind::Programmatic); // the program's own order among accesses
  EXPECT_THAT(check(builder), IsEmpty());
}

TEST(Values, nodeThatReadsWhatItOverwrites) {
  StepBuilder builder(1);
  const BufferIndex a = builder.buffer("a", {0}, StepBuilder::liveInOut);
  const NodeIndex both = builder.kernel("both", {builder.write(a), builder.read(a)});
  builder.evict(a);
  EXPECT_THAT(check(builder), ElementsAre(AllOf(atNode(both), says("reads page 0"))));
}

TEST(Values, pagesWithoutAValueMayBeMoved) {
  StepBuilder builder(1);
  const BufferIndex a = builder.buffer("a", {0});
  const BufferIndex b = builder.buffer("b", {0});
  builder.evict(a);
  builder.kernel("write_b", {builder.write(b)});
  builder.prefetch(a);
  builder.kernel("read_a", {builder.read(a)});
  EXPECT_THAT(check(builder), IsEmpty());
}

TEST(Values, cleanPageLeavesWithoutACopy) {
  StepBuilder builder(1);
  const BufferIndex a = builder.buffer("a", {0}, StepBuilder::liveInOut);
  const BufferIndex b = builder.buffer("b", {0});
  builder.prefetch(a);
  builder.kernel("read_a", {builder.read(a)});
  builder.kernel("write_b", {builder.write(b)});
  EXPECT_THAT(check(builder), IsEmpty());
}

// Rule 4: boundary.

TEST(Boundary, liveOutPageLeftOnTheDevice) {
  StepBuilder builder(1);
  const BufferIndex a = builder.buffer("a", {0}, StepBuilder::liveOut);
  builder.kernel("write_a", {builder.write(a)});
  EXPECT_THAT(check(builder), ElementsAre(AllOf(atBuffer(a), says("must be in host memory, but its value is on the "
                                                                  "device only"))));
  builder.resident(a);
  EXPECT_THAT(check(builder), IsEmpty());
}

TEST(Boundary, residentPageLeftInHostMemory) {
  StepBuilder builder(1);
  const BufferIndex a = builder.buffer("a", {0}, StepBuilder::liveInOut);
  const BufferIndex b = builder.buffer("b", {0});
  builder.resident(a);
  builder.evict(a);
  builder.kernel("write_b", {builder.write(b)});
  EXPECT_THAT(check(builder),
              ElementsAre(AllOf(atBuffer(a), says("must be on the device, but its value is in host memory only since "
                                                  "node 1 \"write_b\""))));
  builder.prefetch(a);
  EXPECT_THAT(check(builder), IsEmpty());
}

TEST(Boundary, liveValueLost) {
  StepBuilder builder(1);
  const BufferIndex a = builder.buffer("a", {0}, StepBuilder::liveInOut);
  const BufferIndex b = builder.buffer("b", {0});
  builder.resident(a);
  builder.kernel("write_b", {builder.write(b)});
  EXPECT_THAT(check(builder), ElementsAre(AllOf(atBuffer(a), says("is lost since node 0"))));
}

TEST(Boundary, mirroredPageLeavesWithoutACopy) {
  for (const bool mirrored : {true, false}) {
    StepBuilder builder(1);
    const BufferIndex a = builder.buffer("a", {0}, StepBuilder::liveInOut);
    const BufferIndex b = builder.buffer("b", {0});
    mirrored ? builder.mirrored(a) : builder.resident(a);
    builder.kernel("read_a", {builder.read(a)});
    builder.kernel("write_b", {builder.write(b)});
    const NodeIndex prefetch = builder.prefetch(a);
    if (mirrored)
      EXPECT_THAT(check(builder), IsEmpty());
    else
      EXPECT_THAT(check(builder), ElementsAre(AllOf(atNode(prefetch), says("it is lost since node 1 \"write_b\""))));
  }
}

TEST(Boundary, mirroredPageWhoseHostCopyIsStale) {
  StepBuilder builder(1);
  const BufferIndex a = builder.buffer("a", {0}, StepBuilder::liveInOut);
  builder.mirrored(a);
  builder.kernel("update_a", {builder.update(a)});
  EXPECT_THAT(check(builder), ElementsAre(AllOf(atBuffer(a), says("must be on the device and in host memory, but its "
                                                                  "value is on the device only"))));
  builder.evict(a);
  EXPECT_THAT(check(builder), IsEmpty());
}

TEST(Boundary, mirroredPageThatIsDirtyLeavesWithACopy) {
  StepBuilder builder(1);
  const BufferIndex a = builder.buffer("a", {0}, StepBuilder::liveInOut);
  const BufferIndex b = builder.buffer("b", {0});
  builder.mirrored(a);
  builder.kernel("update_a", {builder.update(a)});
  builder.kernel("write_b", {builder.write(b)});
  EXPECT_THAT(check(builder), ElementsAre(AllOf(atBuffer(a), says("must be on the device and in host memory, but its "
                                                                  "value is lost since node 1 \"write_b\""))));
}

TEST(Boundary, mirroredPageLeftInHostMemory) {
  StepBuilder builder(1);
  const BufferIndex a = builder.buffer("a", {0}, StepBuilder::liveInOut);
  const BufferIndex b = builder.buffer("b", {0});
  builder.mirrored(a);
  builder.kernel("write_b", {builder.write(b)});
  EXPECT_THAT(check(builder), ElementsAre(AllOf(atBuffer(a), says("must be on the device and in host memory, but its "
                                                                  "value is in host memory only since node 0"))));
  builder.prefetch(a);
  EXPECT_THAT(check(builder), IsEmpty());
}

TEST(Boundary, outputMayBeMirrored) {
  StepBuilder builder(2);
  const BufferIndex a = builder.buffer("a", {0}, StepBuilder::liveOut);
  builder.mirrored(a);
  builder.mirrored(builder.buffer("never_written", {1}, StepBuilder::liveOut));
  builder.kernel("write_a", {builder.write(a)});
  EXPECT_THAT(check(builder), ElementsAre(AllOf(atBuffer(a), says("on the device only"))));
  builder.evict(a);
  EXPECT_THAT(check(builder), IsEmpty());
}

TEST(Boundary, somePagesOfABufferMayBeMirrored) {
  StepBuilder builder(2);
  const BufferIndex a = builder.buffer("a", {0, 1}, StepBuilder::liveInOut);
  builder.resident(a);
  builder.step().buffers[a].mirrored = {{4, 4}};
  builder.kernel("update_a", {builder.update(a)});
  EXPECT_THAT(check(builder), ElementsAre(says("page 1 (bytes [4, 8)) of \"a\" must be on the device and in host")));
  builder.move(NodeKind::Evict, a, {4, 4});
  EXPECT_THAT(check(builder), IsEmpty());
}

// What took the device copy away once says nothing about a page that is on the device again.
TEST(Boundary, pageOnTheDeviceHasNoHistory) {
  StepBuilder builder(1);
  const BufferIndex a = builder.buffer("a", {0}, StepBuilder::liveInOut);
  const BufferIndex b = builder.buffer("b", {0});
  builder.kernel("write_b", {builder.write(b)});
  builder.prefetch(a);
  builder.kernel("update_a", {builder.update(a)});
  EXPECT_THAT(check(builder), ElementsAre(AllOf(says("is on the device only"), testing::Not(says("since")))));
}

TEST(Boundary, untouchedPagesStayWhereTheyAre) {
  StepBuilder builder(2);
  builder.buffer("in_host_memory", {noFrame}, StepBuilder::liveInOut);
  builder.resident(builder.buffer("on_device", {0}, StepBuilder::liveInOut));
  builder.mirrored(builder.buffer("in_both", {1}, StepBuilder::liveInOut));
  EXPECT_THAT(check(builder), IsEmpty());
}

TEST(Boundary, twoResidentsInOneFrame) {
  StepBuilder builder(1);
  const BufferIndex a = builder.buffer("a", {0}, StepBuilder::liveInOut);
  const BufferIndex b = builder.buffer("b", {0}, StepBuilder::liveInOut);
  builder.resident(a);
  builder.resident(b);
  EXPECT_THAT(check(builder), testing::Contains(says("are both resident at the step boundary in frame 0")));
}

TEST(Boundary, residentWithoutFrame) {
  StepBuilder builder(1);
  const BufferIndex a = builder.buffer("a", {noFrame}, StepBuilder::liveInOut);
  builder.resident(a);
  EXPECT_THAT(check(builder), ElementsAre(says("resident at the step boundary but has no frame")));
}

TEST(Boundary, liveInButNotLiveOut) {
  StepBuilder builder(1);
  const BufferIndex a = builder.buffer("a", {0}, StepBuilder::liveInOut);
  builder.step().buffers[a].liveOut = false;
  EXPECT_THAT(check(builder), ElementsAre(AllOf(atBuffer(a), says("live-in but not live-out"))));
}

// Rule 5: exclusive buffers.

TEST(ExclusiveBuffers, needNoTransfer) {
  StepBuilder builder(2);
  const BufferIndex input = builder.exclusive("input", {0});
  const BufferIndex a = builder.buffer("a", {1});
  builder.kernel("copy", {builder.read(input), builder.write(a)});
  EXPECT_THAT(check(builder), IsEmpty());
}

TEST(ExclusiveBuffers, haveFrames) {
  StepBuilder builder(1);
  const BufferIndex input = builder.exclusive("input", {0, noFrame});
  EXPECT_THAT(check(builder), ElementsAre(AllOf(atBuffer(input), says("page 1"), says("has no frame"))));
}

TEST(ExclusiveBuffers, shareNoFrame) {
  StepBuilder builder(1);
  builder.exclusive("input", {0});
  builder.buffer("a", {0});
  EXPECT_THAT(check(builder), ElementsAre(says("share frame 0, but \"input\" is exclusive")));
}

TEST(ExclusiveBuffers, areNotMoved) {
  StepBuilder builder(1);
  const BufferIndex input = builder.exclusive("input", {0});
  const NodeIndex evict = builder.evict(input);
  EXPECT_THAT(check(builder), ElementsAre(AllOf(atNode(evict), says("an exclusive buffer may not be moved"))));
}

// Rule 6: budget.

TEST(Budget, countsFramesOnce) {
  TakingTurns plan;
  EXPECT_THAT(checkResidency(plan.step()), IsEmpty());
  plan.step().budgetBytes = StepBuilder::pageBytes - 1;
  EXPECT_THAT(checkResidency(plan.step()),
              ElementsAre(says("1 frames of 4 bytes are in use, but the budget of 3 bytes holds 0")));
}

TEST(Budget, countsUntouchedFramesToo) {
  StepBuilder builder(1);
  builder.buffer("a", {0, 1});
  EXPECT_THAT(check(builder), ElementsAre(says("2 frames of 4 bytes are in use")));
}

TEST(Budget, touchedPageWithoutFrame) {
  StepBuilder builder(1);
  const BufferIndex a = builder.buffer("a", {0, noFrame});
  const NodeIndex writer = builder.kernel("write_a", {builder.write(a)});
  EXPECT_THAT(check(builder), ElementsAre(AllOf(atNode(writer), says("touches page 1"), says("has no frame"))));
}

TEST(Budget, unplannedStepHasNoFrames) {
  StepBuilder builder(1);
  const BufferIndex a = builder.buffer("a", {0});
  builder.step().buffers[a].frames.clear();
  builder.kernel("write_a", {builder.write(a)});
  EXPECT_THAT(check(builder), ElementsAre(says("has no frame")));
}

// Rule 7: host places.

/// Two live-in buffers that come and go through the pinned pool.
struct Pool {
  StepBuilder builder{2};
  BufferIndex a = builder.buffer("a", {0}, StepBuilder::liveInOut);
  BufferIndex b = builder.buffer("b", {1}, StepBuilder::liveInOut);
  NodeIndex upA = builder.move(NodeKind::CopyToDevice, a, {0, 4}, 0);
  NodeIndex upB = builder.move(NodeKind::CopyToDevice, b, {0, 4}, 4);
  NodeIndex update = builder.kernel("update", {builder.update(a), builder.update(b)});
  NodeIndex downA = builder.move(NodeKind::CopyToHost, a, {0, 4}, 0);
  NodeIndex downB = builder.move(NodeKind::CopyToHost, b, {0, 4}, 4);
  Pool() { builder.step().hostBytes = 8; }
};

TEST(HostPlaces, onePlaceAPage) {
  Pool pool;
  EXPECT_THAT(check(pool.builder), IsEmpty());
  pool.builder.step().hostBytes = 12;
  pool.builder.step().nodes[pool.downB].hostOffset = 8;
  EXPECT_THAT(check(pool.builder),
              ElementsAre(AllOf(atNode(pool.downB), atBuffer(pool.b), says("at 8"), says("at 4"))));
}

TEST(HostPlaces, placesDoNotOverlap) {
  Pool pool;
  pool.builder.step().nodes[pool.upB].hostOffset = 3;
  pool.builder.step().nodes[pool.downB].hostOffset = 3;
  EXPECT_THAT(check(pool.builder), ElementsAre(says("overlap in the pinned pool at 3")));
}

TEST(HostPlaces, insideThePool) {
  Pool pool;
  pool.builder.step().hostBytes = 7;
  EXPECT_THAT(check(pool.builder), ElementsAre(AllOf(atNode(pool.upB), says("uses 4 bytes from 4 of the pinned pool, "
                                                                            "which has 7 bytes")),
                                               atNode(pool.downB)));
}

TEST(HostPlaces, pagesOfOneCopyLieSideBySide) {
  StepBuilder builder(2);
  const BufferIndex a = builder.buffer("a", {0, 1}, StepBuilder::liveInOut);
  builder.step().hostBytes = 8;
  builder.move(NodeKind::CopyToDevice, a, {0, 8}, 0);
  builder.kernel("update", {builder.update(a)});
  const NodeIndex down = builder.move(NodeKind::CopyToHost, a, {4, 4}, 4);
  builder.move(NodeKind::CopyToHost, a, {0, 4}, 0);
  EXPECT_THAT(check(builder), IsEmpty());
  builder.step().nodes[down].hostOffset = 0;
  EXPECT_THAT(check(builder), testing::Contains(AllOf(atNode(down), says("keeps page 1"))));
}

// Rule 10: rows.

TEST(Rows, copiesOfOneSizeAreOneCopy) {
  Pool pool;
  std::vector<Node> &nodes = pool.builder.step().nodes;
  nodes[pool.upB].joined = nodes[pool.downB].joined = true;
  EXPECT_THAT(check(pool.builder), IsEmpty());
}

TEST(Rows, othersWaitForTheLast) {
  Pool pool;
  pool.builder.step().nodes[pool.upB].joined = true;
  pool.builder.step().edges.push_back({pool.upA, pool.update, EdgeKind::Full});
  EXPECT_THAT(check(pool.builder),
              ElementsAre(AllOf(atNode(pool.upA), says("cannot be one copy"), says("others than node"))));
}

TEST(Rows, theFirstOfADirectionIsNoMore) {
  Pool pool;
  pool.builder.step().nodes[pool.downA].joined = true;
  EXPECT_THAT(check(pool.builder), ElementsAre(AllOf(atNode(pool.downA), says("is the first copy of its direction"))));
}

// Form.

TEST(Form, transfersCoverWholePages) {
  for (const Range range : {Range{0, 3}, Range{1, 3}, Range{0, 0}, Range{4, 8}, Range{8, 4}}) {
    StepBuilder builder(2);
    const BufferIndex a = builder.buffer("a", {0, 1}, StepBuilder::liveInOut);
    const NodeIndex prefetch = builder.move(NodeKind::Prefetch, a, range);
    EXPECT_THAT(check(builder), ElementsAre(AllOf(atNode(prefetch), says("does not cover whole pages"))));
  }
}

TEST(Form, indicesAndRangesAreChecked) {
  const auto broken = [](auto breakIt) {
    TakingTurns plan;
    breakIt(plan.step());
    return checkResidency(plan.step());
  };
  EXPECT_THAT(broken([](Description &step) { step.pageBytes = 0; }), ElementsAre(says("0 bytes")));
  EXPECT_THAT(broken([](Description &step) { step.buffers[0].size = 0; }), testing::Contains(says("no bytes")));
  EXPECT_THAT(broken([](Description &step) { step.buffers[0].size = UINT64_MAX; }), ElementsAre(says("too many")));
  EXPECT_THAT(broken([](Description &step) { step.buffers[0].frames = {0, 0}; }), ElementsAre(says("names 2 frames")));
  EXPECT_THAT(broken([](Description &step) { step.buffers[0].frames = {-2}; }), ElementsAre(says("frame -2")));
  EXPECT_THAT(broken([](Description &step) { step.buffers[0].resident = {{0, 2}}; }), ElementsAre(says("resident")));
  EXPECT_THAT(broken([](Description &step) { step.nodes[0].accesses[0].buffer = 9; }),
              ElementsAre(says("buffer 9 of 2")));
  EXPECT_THAT(broken([](Description &step) { step.nodes[0].accesses[0].range = {UINT64_MAX, 4}; }),
              ElementsAre(says("has 4 bytes")));
  EXPECT_THAT(broken([](Description &step) { step.nodes[0].accesses[0].may = modeRead; }), ElementsAre(says("must")));
  EXPECT_THAT(broken([](Description &step) { step.nodes[1].buffer = 9; }), ElementsAre(says("buffer 9 of 2")));
  EXPECT_THAT(broken([](Description &step) { step.edges.push_back({3, 2}); }), ElementsAre(says("not in the order")));
  EXPECT_THAT(broken([](Description &step) { step.edges.push_back({3, 9}); }), ElementsAre(says("not in the order")));
}

TEST(Hosted, accessesNeedNeitherFrameNorTransfer) {
  for (const bool hosted : {true, false}) {
    StepBuilder builder(1);
    const BufferIndex weight = builder.buffer("weight", {noFrame, noFrame}, StepBuilder::liveInOut);
    const BufferIndex a = builder.buffer("a", {0});
    if (hosted)
      builder.hosted(weight);
    builder.kernel("forward", {builder.read(weight), builder.write(a)});
    builder.kernel("update", {builder.update(weight), builder.read(a)});
    if (hosted)
      EXPECT_THAT(check(builder), IsEmpty());
    else
      EXPECT_THAT(check(builder), testing::Contains(says("touches page 0 (bytes [0, 4)) of \"weight\", which has no")));
  }
}

TEST(Hosted, unorderedAccessesAreTheProgramsBusiness) {
  StepBuilder builder(1);
  builder.unordered();
  const BufferIndex a = builder.buffer("a", {noFrame}), b = builder.buffer("b", {noFrame});
  builder.hosted(a);
  builder.hosted(b);
  builder.kernel("left", {builder.write(a)});
  builder.kernel("right", {builder.write(b)});
  EXPECT_THAT(check(builder), IsEmpty());
}

TEST(Hosted, aPageTooFewIsSeen) {
  StepBuilder builder(1);
  const BufferIndex a = builder.buffer("a", {noFrame, noFrame, noFrame});
  builder.hosted(a);
  builder.kernel("write", {builder.write(a)});
  EXPECT_THAT(check(builder), IsEmpty());
  builder.step().buffers[a].hosted = {{0, 8}};
  EXPECT_THAT(check(builder), ElementsAre(says("touches page 2 (bytes [8, 12)) of \"a\", which has no frame")));
}

TEST(Hosted, hasNoTransfersAndNoFrame) {
  for (const NodeKind kind : {NodeKind::Evict, NodeKind::Prefetch, NodeKind::Discard, NodeKind::CopyToHost}) {
    StepBuilder builder(1);
    const BufferIndex a = builder.buffer("a", {0, noFrame});
    builder.step().hostBytes = 8;
    builder.step().buffers[a].hosted = {{4, 4}};
    const NodeIndex moved = builder.move(kind, a);
    EXPECT_THAT(check(builder), ElementsAre(AllOf(atNode(moved), says("a hosted page has nowhere to be moved"))));
  }
  StepBuilder builder(1);
  builder.hosted(builder.buffer("a", {0}));
  EXPECT_THAT(check(builder), ElementsAre(says("page 0 of \"a\" is hosted, but has frame 0")));
}

TEST(Hosted, rangesAreWholePagesOfPrivateBuffersThatAreNotResident) {
  const auto host = [](std::vector<Range> hosted) {
    StepBuilder builder(3);
    const BufferIndex a = builder.buffer("a", {0, noFrame, noFrame}, StepBuilder::liveInOut);
    builder.step().buffers[a].resident = {{0, 4}};
    builder.step().buffers[a].hosted = std::move(hosted);
    return check(builder);
  };
  EXPECT_THAT(host({{4, 8}}), IsEmpty());
  EXPECT_THAT(host({{4, 2}}), ElementsAre(says("the hosted bytes [4, 6) of \"a\" are not whole pages")));
  EXPECT_THAT(host({{8, 4}, {4, 4}}), ElementsAre(says("the hosted bytes [4, 8) of \"a\" are not")));
  EXPECT_THAT(host({{0, 8}}), ElementsAre(says("bytes [0, 8) of \"a\" are hosted, but some are resident")));
  StepBuilder builder(1);
  builder.hosted(builder.exclusive("output", {0}));
  EXPECT_THAT(check(builder), ElementsAre(says("are hosted, but the buffer is not private")));
}

/// Buffer "a" is in frame 0 at first, and goes on in frame 1.
struct GoingOn {
  StepBuilder builder{2};
  BufferIndex a = builder.buffer("a", {0});
  BufferIndex next = builder.continuation(a, {1});
  NodeIndex writeA = builder.kernel("write_a", {builder.write(a)});
  NodeIndex evictA = builder.evict(a);
  NodeIndex prefetchNext = builder.prefetch(next);
  NodeIndex readNext = builder.kernel("read_a", {builder.read(next)});
  Description &step() { return builder.step(); }
  std::vector<Violation> check() { return checkResidency(step()); }
};

TEST(IdleTimes, areFedThroughHostMemory) {
  GoingOn plan;
  EXPECT_THAT(plan.check(), IsEmpty());
}

TEST(IdleTimes, findNothingThatWasNotSaved) {
  GoingOn plan;
  plan.step().nodes[plan.evictA].kind = NodeKind::Discard;
  EXPECT_THAT(plan.check(), ElementsAre(AllOf(atNode(plan.prefetchNext), says("the host copy is not its value"))));
}

TEST(IdleTimes, findNothingThatWasNotFetched) {
  GoingOn plan;
  plan.step().nodes[plan.prefetchNext].kind = NodeKind::Discard;
  EXPECT_THAT(plan.check(), ElementsAre(AllOf(atNode(plan.readNext), says("whose value is in host memory only"))));
}

TEST(IdleTimes, beginWhenAllElseIsOver) {
  GoingOn plan;
  plan.step().edges = {
      {plan.writeA, plan.evictA}, {plan.writeA, plan.prefetchNext}, {plan.prefetchNext, plan.readNext}};
  EXPECT_THAT(plan.check(), ElementsAre(AllOf(atNode(plan.prefetchNext), says("before its value goes on"))));
}

TEST(IdleTimes, mayBePassedBy) {
  GoingOn plan;
  const BufferIndex last = plan.builder.continuation(plan.next, {0});
  for (Node &node : plan.step().nodes) { // nobody touches the one between
    if (node.kind == NodeKind::Prefetch)
      node.buffer = last;
    for (Access &access : node.accesses)
      access.buffer = access.buffer == plan.next ? last : access.buffer;
  }
  EXPECT_THAT(plan.check(), IsEmpty());
  plan.step().edges = {
      {plan.writeA, plan.evictA}, {plan.writeA, plan.prefetchNext}, {plan.prefetchNext, plan.readNext}};
  plan.step().buffers[last].frames = {1};
  EXPECT_THAT(plan.check(), ElementsAre(says("before its value goes on")));
  plan.step().edges.push_back({plan.evictA, plan.prefetchNext});
  EXPECT_THAT(plan.check(), IsEmpty());
  plan.step().nodes[plan.evictA].kind = NodeKind::Discard;
  EXPECT_THAT(plan.check(), ElementsAre(says("the host copy is not its value")));
}

TEST(IdleTimes, haveNoValueWhereThereIsNone) {
  GoingOn plan;
  plan.step().nodes[plan.writeA].accesses.clear();
  EXPECT_THAT(plan.check(), IsEmpty());
}

TEST(IdleTimes, areLocalAndOfOneSize) {
  const auto broken = [](auto breakIt) {
    GoingOn plan;
    breakIt(plan);
    return plan.check();
  };
  const auto says = [](const char *text) { return testing::Contains(test::says(text)); };
  EXPECT_THAT(broken([](GoingOn &plan) { plan.step().buffers[plan.a].liveOut = true; }),
              says("but is live at the step"));
  EXPECT_THAT(broken([](GoingOn &plan) { plan.step().buffers[plan.next].isPrivate = false; }), says("is not private"));
  EXPECT_THAT(broken([](GoingOn &plan) { plan.builder.resident(plan.next); }),
              says("is resident at the step boundary"));
  EXPECT_THAT(broken([](GoingOn &plan) { plan.step().buffers[plan.next].size = 3; }),
              says("of 3 bytes continues one of 4"));
  EXPECT_THAT(broken([](GoingOn &plan) { plan.step().buffers[plan.a].continues = plan.next; }),
              says("which does not come before it"));
  EXPECT_THAT(broken([](GoingOn &plan) { plan.builder.continuation(plan.a, {0}); }), says("both continue \"a\""));
  EXPECT_THAT(
      broken([](GoingOn &plan) { plan.step().nodes[plan.readNext].accesses.push_back(plan.builder.read(plan.a)); }),
      says("touches \"a\" at two addresses"));
}

TEST(IdleTimes, haveTheSamePlaceInHostMemory) {
  GoingOn plan;
  plan.step().hostBytes = 8;
  plan.step().nodes[plan.evictA].kind = NodeKind::CopyToHost;
  plan.step().nodes[plan.prefetchNext].kind = NodeKind::CopyToDevice;
  EXPECT_THAT(plan.check(), IsEmpty());
  plan.step().nodes[plan.prefetchNext].hostOffset = 4;
  EXPECT_THAT(plan.check(), ElementsAre(says("keeps it at")));
}

// What is hosted at one address is host memory to copies of the other.

TEST(IdleTimes, mayBeHostedAfterwards) {
  GoingOn plan;
  plan.step().buffers[plan.next].frames = {noFrame};
  plan.builder.hosted(plan.next);
  EXPECT_THAT(plan.check(), Contains(says("a hosted page has nowhere to be moved")));
  plan.step().nodes[plan.prefetchNext].kind = NodeKind::Empty;
  EXPECT_THAT(plan.check(), IsEmpty());
  plan.step().edges = {{plan.writeA, plan.evictA}, {plan.writeA, plan.readNext}};
  EXPECT_THAT(plan.check(), ElementsAre(AllOf(atNode(plan.readNext), says("before its value goes on"))));
  plan.step().edges = {{plan.writeA, plan.evictA}, {plan.evictA, plan.readNext}};
  EXPECT_THAT(plan.check(), IsEmpty());
  plan.step().nodes[plan.evictA].kind = NodeKind::Discard;
  EXPECT_THAT(plan.check(), ElementsAre(AllOf(atNode(plan.readNext), says("whose value is lost"))));
}

TEST(IdleTimes, mayBeHostedBefore) {
  GoingOn plan;
  plan.step().buffers[plan.a].frames = {noFrame};
  plan.builder.hosted(plan.a);
  plan.step().nodes[plan.evictA].kind = NodeKind::Empty;
  EXPECT_THAT(plan.check(), IsEmpty());
  plan.step().edges = {{plan.prefetchNext, plan.readNext}};
  EXPECT_THAT(plan.check(), ElementsAre(AllOf(atNode(plan.prefetchNext), says("before its value goes on"))));
  plan.step().edges = {{plan.writeA, plan.prefetchNext}, {plan.prefetchNext, plan.readNext}};
  plan.step().nodes[plan.prefetchNext].kind = NodeKind::Discard;
  EXPECT_THAT(plan.check(), ElementsAre(AllOf(atNode(plan.readNext), says("whose value is in host memory only"))));
}

TEST(IdleTimes, mayBeHostedBothTimes) {
  GoingOn plan;
  for (const BufferIndex buffer : {plan.a, plan.next}) {
    plan.step().buffers[buffer].frames = {noFrame};
    plan.builder.hosted(buffer);
  }
  plan.step().nodes[plan.evictA].kind = plan.step().nodes[plan.prefetchNext].kind = NodeKind::Empty;
  EXPECT_THAT(plan.check(), IsEmpty());
  plan.step().edges.clear();
  EXPECT_THAT(plan.check(), ElementsAre(says("before its value goes on")));
}

TEST(IdleTimes, needNoPlaceWhereTheyAreHosted) {
  GoingOn plan;
  plan.step().buffers[plan.next].frames = {noFrame};
  plan.builder.hosted(plan.next);
  plan.step().nodes[plan.evictA].kind = NodeKind::CopyToHost;
  plan.step().nodes[plan.prefetchNext].kind = NodeKind::Empty;
  plan.step().hostBytes = 8;
  EXPECT_THAT(plan.check(), IsEmpty());
  plan.step().nodes[plan.evictA].hostOffset = 4;
  EXPECT_THAT(plan.check(), ElementsAre(says("but the pages are hosted at another address")));
}

// A page that goes on in its frame stays where it is.

/// Buffer "a" goes on in the frame in which it is; nothing moves.
struct Staying {
  StepBuilder builder{2};
  BufferIndex a = builder.buffer("a", {0});
  BufferIndex next = builder.continuation(a, {0});
  NodeIndex writeA = builder.kernel("write_a", {builder.write(a)});
  NodeIndex readA = builder.kernel("read_a", {builder.read(a)});
  NodeIndex readNext = builder.kernel("read_next", {builder.read(next)});
  NodeIndex writeNext = builder.kernel("write_next", {builder.update(next)});
  Description &step() { return builder.step(); }
  void weaken(NodeIndex from, NodeIndex to) {
    for (Edge &edge : step().edges)
      if (edge.from == from && edge.to == to)
        edge.kind = EdgeKind::Programmatic;
  }
  std::vector<Violation> check() { return checkResidency(step()); }
};

TEST(StayingPages, keepTheirDeviceCopy) {
  Staying plan;
  EXPECT_THAT(plan.check(), IsEmpty());
  plan.step().buffers[plan.next].frames = {1};
  EXPECT_THAT(plan.check(), ElementsAre(AllOf(atNode(plan.readNext), says("whose value is lost"))));
}

TEST(StayingPages, leaveForOthers) {
  Staying plan;
  const BufferIndex other = plan.builder.buffer("b", {0});
  plan.step().nodes[plan.readA].accesses = {plan.builder.write(other)};
  EXPECT_THAT(plan.check(), ElementsAre(AllOf(atNode(plan.readNext), says("whose value is lost since node 1"))));
}

TEST(StayingPages, moveByEitherName) {
  for (const bool evictsNext : {false, true})
    for (const bool prefetchesNext : {false, true}) {
      StepBuilder builder(1);
      const BufferIndex a = builder.buffer("a", {0}), next = builder.continuation(a, {0});
      const BufferIndex b = builder.buffer("b", {0});
      builder.kernel("write_a", {builder.write(a)});
      const NodeIndex save = builder.evict(evictsNext ? next : a);
      builder.kernel("write_b", {builder.write(b)});
      const NodeIndex fetch = builder.prefetch(prefetchesNext ? next : a);
      builder.kernel("read_a", {builder.read(a)});
      const NodeIndex read = builder.kernel("read_next", {builder.read(next)});
      EXPECT_THAT(check(builder), IsEmpty());
      builder.step().nodes[fetch].kind = NodeKind::Discard;
      EXPECT_THAT(check(builder), ElementsAre(says("whose value is in host memory only")));
      builder.step().nodes[fetch].kind = NodeKind::Prefetch;
      builder.step().nodes[save].kind = NodeKind::Discard;
      EXPECT_THAT(check(builder), ElementsAre(AllOf(atNode(fetch), says("it is lost"))));
      EXPECT_LT(fetch, read);
    }
}

TEST(StayingPages, areReadAtBothAddressesBesideACopyDown) {
  StepBuilder builder(1);
  const BufferIndex a = builder.buffer("a", {0}), next = builder.continuation(a, {0});
  const NodeIndex write = builder.kernel("write_a", {builder.write(a)});
  builder.unordered();
  const NodeIndex readNext = builder.kernel("read_next", {builder.read(next)});
  const NodeIndex readA = builder.kernel("read_a", {builder.read(a)});
  const NodeIndex save = builder.evict(next);
  for (const NodeIndex node : {readNext, readA, save})
    builder.edge(write, node);
  EXPECT_THAT(check(builder), IsEmpty());
  builder.step().nodes[readA].accesses = {builder.update(a)};
  EXPECT_THAT(check(builder), ElementsAre(AllOf(atNode(save), says("race on page 0"))));
  builder.step().nodes[readA].accesses = {builder.read(a)};
  builder.step().nodes[save].kind = NodeKind::Prefetch;
  EXPECT_THAT(check(builder), ElementsAre(AllOf(atNode(save), says("race on page 0"))));
}

TEST(StayingPages, showAWriteAtAnotherAddressWhenItHasCompleted) {
  Staying plan;
  plan.step().nodes[plan.readA].accesses.clear();
  plan.weaken(plan.writeA, plan.readA); // the only path from one address to the other
  EXPECT_THAT(plan.check(), ElementsAre(AllOf(atNode(plan.readNext),
                                              says("node 0 \"write_a\" writes page 0 (bytes [0, 4)) of \"a\", which "
                                                   "node 2 \"read_next\" reads at a later address: no path of full "
                                                   "edges orders them"))));
}

TEST(StayingPages, areWrittenAtTheNextAddressWhenReadersHaveCompleted) {
  Staying plan;
  plan.step().edges = {{plan.writeA, plan.readA},
                       {plan.writeA, plan.readNext},
                       {plan.readNext, plan.writeNext},
                       {plan.readA, plan.writeNext, EdgeKind::Programmatic}};
  EXPECT_THAT(plan.check(), ElementsAre(AllOf(atNode(plan.writeNext), says("node 1 \"read_a\" reads page 0"),
                                              says("which node 3 \"write_next\" writes at a later address"))));
  plan.step().edges.back().kind = EdgeKind::Full;
  plan.weaken(plan.readNext, plan.writeNext); // at one address the program synchronises what it has to
  EXPECT_THAT(plan.check(), IsEmpty());
}

TEST(StayingPages, doNotGoBack) {
  Staying plan;
  plan.builder.kernel("late", {plan.builder.read(plan.a)});
  EXPECT_THAT(plan.check(), ElementsAre(says("which node 3 \"write_next\" writes at a later address")));
}

TEST(StayingPages, mayStayMoreThanOnce) {
  Staying plan;
  const BufferIndex last = plan.builder.continuation(plan.next, {0});
  const NodeIndex readLast = plan.builder.kernel("read_last", {plan.builder.read(last)});
  EXPECT_THAT(plan.check(), IsEmpty());
  plan.step().nodes[plan.writeNext].accesses.clear();
  EXPECT_THAT(plan.check(), IsEmpty());
  plan.weaken(plan.writeA, plan.readA);
  plan.step().edges.push_back({plan.writeA, plan.readNext});
  plan.weaken(plan.readNext, plan.writeNext); // readers at the address between do not pass on the order
  EXPECT_THAT(plan.check(), ElementsAre(AllOf(atNode(readLast), says("node 0 \"write_a\" writes"))));
  plan.step().nodes[plan.readNext].accesses = {plan.builder.read(last)};
  EXPECT_THAT(plan.check(), ElementsAre(AllOf(atNode(readLast), says("node 0 \"write_a\" writes"))));
}

TEST(StayingPages, areWrittenWhenReadersAtAllAddressesBeforeHaveCompleted) {
  for (const NodeIndex weak : {1, 2, 3}) {
    StepBuilder builder(1);
    const BufferIndex a = builder.buffer("a", {0}), next = builder.continuation(a, {0});
    const BufferIndex last = builder.continuation(next, {0});
    builder.kernel("write_a", {builder.write(a)});
    builder.unordered();
    builder.kernel("read_a", {builder.read(a)});
    builder.kernel("read_next", {builder.read(next)});
    builder.kernel("read_last", {builder.read(last)});
    const NodeIndex write = builder.kernel("write_last", {builder.update(last)});
    for (NodeIndex reader = 1; reader < write; ++reader) {
      builder.edge(0, reader);
      builder.edge(reader, write, reader == weak ? EdgeKind::Programmatic : EdgeKind::Full);
    }
    if (weak == 3) // at its own address
      EXPECT_THAT(check(builder), IsEmpty());
    else
      EXPECT_THAT(check(builder),
                  ElementsAre(AllOf(atNode(write), says("which node 4 \"write_last\" writes at a later"))));
  }
}

/// "a" stays in frame 0 and then goes on in frame 1, through host memory.
struct StayingOnce {
  StepBuilder builder{2};
  BufferIndex a = builder.buffer("a", {0}), next = builder.continuation(a, {0});
  BufferIndex last = builder.continuation(next, {1});
  NodeIndex write = builder.kernel("write_a", {builder.write(a)});
  NodeIndex readNext = builder.kernel("read_next", {builder.read(next)});
  NodeIndex readA = builder.kernel("read_a", {builder.read(a)});
  NodeIndex save = builder.evict(a);
  NodeIndex fetch = builder.prefetch(last);
  NodeIndex readLast = builder.kernel("read_last", {builder.read(last)});
};

TEST(StayingPages, goOnElsewhereAsOnePage) {
  StayingOnce plan;
  EXPECT_THAT(check(plan.builder), IsEmpty());
  plan.builder.step().nodes[plan.save].kind = NodeKind::Discard;
  EXPECT_THAT(check(plan.builder), ElementsAre(AllOf(atNode(plan.fetch), says("the host copy is not its value"))));
  plan.builder.step().nodes[plan.save].kind = NodeKind::Evict;
  // A reader at either address has completed before.
  for (const NodeIndex late : {plan.readA, plan.readNext}) {
    std::vector<Edge> &edges = plan.builder.step().edges;
    edges = {{plan.write, plan.readNext},
             {plan.write, plan.readA},
             {plan.write, plan.save},
             {plan.save, plan.fetch},
             {plan.fetch, plan.readLast}};
    edges.push_back({plan.readA + plan.readNext - late, plan.fetch});
    EXPECT_THAT(check(plan.builder), ElementsAre(AllOf(atNode(plan.fetch), says("before its value goes on"))));
  }
}

TEST(StayingPages, areOthersWhenTheyComeBackFromElsewhere) {
  for (const bool isHosted : {false, true}) {
    StayingOnce plan; // a in frame 0, next elsewhere, last in frame 0
    Description &step = plan.builder.step();
    step.buffers[plan.next].frames = {isHosted ? noFrame : 1};
    if (isHosted)
      plan.builder.hosted(plan.next);
    step.buffers[plan.last].frames = {0};
    step.nodes[plan.readA].accesses.clear();
    step.nodes[plan.readNext].accesses.clear();
    EXPECT_THAT(check(plan.builder), IsEmpty());
    step.nodes[plan.fetch].kind = NodeKind::Empty;
    EXPECT_THAT(check(plan.builder), ElementsAre(AllOf(atNode(plan.readLast), says("in host memory only"))));
    step.nodes[plan.save].kind = NodeKind::Empty; // the frame keeps nothing for another page
    EXPECT_THAT(check(plan.builder), ElementsAre(AllOf(atNode(plan.readLast), says("whose value is lost"))));
  }
}

TEST(Form, copiesHaveOneEndInHostMemory) {
  StepBuilder builder(2);
  const BufferIndex a = builder.buffer("a", {0, 1}), next = builder.continuation(a, {1, noFrame});
  builder.step().buffers[next].hosted = {{4, 4}};
  const NodeIndex write = builder.kernel("write", {builder.write(a)});
  const NodeIndex copy = builder.move(NodeKind::CopyToHost, a, {0, 8});
  builder.step().edges = {{write, copy}};
  builder.step().hostBytes = 8;
  EXPECT_THAT(check(builder), ElementsAre(AllOf(atNode(copy), says("some are hosted at another address"))));
  builder.step().nodes[copy].range = {0, 4};
  EXPECT_THAT(check(builder), IsEmpty());
}

TEST(Form, mirroredPagesAreResidentOnes) {
  const auto mirror = [](std::vector<Range> mirrored, StepBuilder::Live live = StepBuilder::liveInOut) {
    StepBuilder builder(3);
    const BufferIndex a = builder.buffer("a", {0, 1, 2}, live);
    builder.step().buffers[a].resident = {{0, 4}, {4, 4}};
    builder.step().buffers[a].mirrored = std::move(mirrored);
    return check(builder);
  };
  EXPECT_THAT(mirror({{0, 8}}), IsEmpty());
  EXPECT_THAT(mirror({{0, 2}}), ElementsAre(says("the mirrored bytes [0, 2) of \"a\" are not whole pages")));
  EXPECT_THAT(mirror({{4, 4}, {0, 4}}), ElementsAre(says("the mirrored bytes [0, 4) of \"a\" are not")));
  EXPECT_THAT(mirror({{12, 4}}), ElementsAre(says("the mirrored bytes [12, 16) of \"a\" are not")));
  EXPECT_THAT(mirror({{4, 8}}),
              ElementsAre(says("bytes [4, 12) of \"a\" are mirrored at the step boundary, but not all "
                               "are resident then")));
  EXPECT_THAT(mirror({{0, 8}}, StepBuilder::dead), ElementsAre(says("the buffer is not live-out")));
  StepBuilder builder(1);
  builder.mirrored(builder.exclusive("input", {0}));
  EXPECT_THAT(check(builder), ElementsAre(says("the buffer is not private")));
}

TEST(Boundary, presentBuffersAreThereAndNowhereElse) {
  const auto present = [](StepBuilder::Live live, std::vector<Range> resident, std::vector<Range> mirrored = {}) {
    StepBuilder builder(3);
    const BufferIndex a = builder.buffer("a", {0, 1, 2}, live);
    Buffer &buffer = builder.step().buffers[a];
    buffer.isPresent = true;
    buffer.resident = std::move(resident);
    buffer.mirrored = std::move(mirrored);
    return check(builder);
  };
  EXPECT_THAT(present(StepBuilder::liveInOut, {{0, 12}}), IsEmpty());
  EXPECT_THAT(present(StepBuilder::liveInOut, {{0, 8}}),
              ElementsAre(says("\"a\" is present, but not all of it is resident at the step boundary")));
  EXPECT_THAT(present(StepBuilder::liveInOut, {{0, 12}}, {{4, 4}}),
              ElementsAre(says("bytes [4, 8) of \"a\" are mirrored at the step boundary, but the buffer is present")));
  EXPECT_THAT(present(StepBuilder::dead, {{0, 12}}),
              ElementsAre(says("is present at the step boundary, but not live-out")));
  StepBuilder builder(1);
  builder.step().buffers[builder.exclusive("input", {0})].isPresent = true;
  EXPECT_THAT(check(builder), ElementsAre(says("is present at the step boundary, but not private")));
}

// The report.

TEST(Report, namesAMistakeOnceForAllPagesOfABuffer) {
  StepBuilder builder(3);
  const BufferIndex a = builder.buffer("a", {0, 1, 2}, StepBuilder::liveInOut);
  builder.kernel("first", {builder.read(a)});
  EXPECT_THAT(check(builder), SizeIs(1));
}

TEST(Report, stopsAtTheLimit) {
  StepBuilder builder(1);
  const BufferIndex a = builder.buffer("a", {noFrame});
  for (int i = 0; i < 5; ++i)
    builder.kernel("reader", {builder.read(a)});
  EXPECT_THAT(checkResidency(builder.step(), 3), SizeIs(3));
  EXPECT_THAT(checkResidency(builder.step(), 0), SizeIs(1)); // nothing would mean that it is correct
}

} // namespace
} // namespace pumpgraph::test
