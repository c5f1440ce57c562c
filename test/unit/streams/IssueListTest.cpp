// SPDX-License-Identifier: Apache-2.0
// A planned round as a list of operations: what is issued where, what the checker sees of it, and where values are
// wherever a program leaves the round.
#include "runtime/state/Compiler.h"
#include "runtime/streams/CutStates.h"
#include "runtime/streams/PlanInput.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace pumpgraph::runtime::test {
namespace {

constexpr std::uint64_t page = std::uint64_t{2} << 20;
constexpr std::uint64_t compute = 16, side = 32; // streams

Access use(BufferIndex buffer, std::uint8_t may = modeReadWrite) {
  return {.buffer = buffer, .range = {0, page}, .may = may};
}

Access fresh(BufferIndex buffer) {
  return {buffer, {0, page}, modeReadWrite, modeWrite, Evidence::Allocated};
}

/// Rounds of calls on one or two streams, with buffers of one page.
struct Written {
  RoundScript script;

  explicit Written(std::size_t buffers) {
    for (std::size_t i = 0; i < buffers; ++i) {
      Buffer &buffer = script.description.buffers.emplace_back();
      buffer.name = "block" + std::to_string(i);
      buffer.address = addressOf(static_cast<BufferIndex>(i));
      buffer.size = page;
      buffer.isPrivate = buffer.liveIn = buffer.liveOut = true;
    }
  }

  static std::uint64_t addressOf(BufferIndex buffer) { return (buffer + 1) * 4 * page; }

  NodeIndex call(std::uint64_t stream, std::vector<Access> accesses, const std::vector<NodeIndex> &after,
                 NodeKind kind = NodeKind::Kernel) {
    const auto index = static_cast<NodeIndex>(script.description.nodes.size());
    Node &node = script.description.nodes.emplace_back();
    node.kind = kind;
    node.captured = static_cast<std::int32_t>(index);
    node.name = "call" + std::to_string(index);
    node.accesses = std::move(accesses);
    for (const NodeIndex from : after)
      script.description.edges.push_back({from, index, EdgeKind::Full});
    script.events.push_back({.parts = {}, .name = node.name, .streamId = stream, .isNode = true});
    return index;
  }
  void allocate(BufferIndex buffer) { memory(RoundEvent::Kind::Allocate, buffer); }
  void free(BufferIndex buffer) { memory(RoundEvent::Kind::Free, buffer); }
  void memory(RoundEvent::Kind kind, BufferIndex buffer) {
    script.events.push_back({.kind = kind, .parts = {}, .name = {}, .block = addressOf(buffer)});
  }
};

/// Two values that share one frame: each is brought ahead of its call and taken away behind it.
///
///   call 0 uses block 0, call 1 uses block 1, on the same stream
Written twoTakeTurns() {
  Written written(2);
  written.call(compute, {use(0)}, {});
  written.call(compute, {use(1)}, {0});
  return written;
}

Node copy(NodeKind kind, BufferIndex buffer) {
  Node node;
  node.kind = kind;
  node.buffer = buffer;
  node.range = {0, page};
  node.hostOffset = buffer * page;
  return node;
}

Description lowered(const Description &round, std::vector<std::vector<std::int32_t>> frames) {
  Description step;
  step.name = "round";
  step.stage = Stage::LoweredVirtual;
  step.buffers = round.buffers;
  step.budgetBytes = page;
  step.hostBytes = round.buffers.size() * page;
  for (std::size_t i = 0; i < frames.size(); ++i)
    step.buffers[i].frames = std::move(frames[i]);
  return step;
}

Description lowerTurns(const Description &round) {
  Description step = lowered(round, {{0}, {0}});
  step.nodes = {copy(NodeKind::CopyToDevice, 0), round.nodes[0], copy(NodeKind::CopyToHost, 0),
                copy(NodeKind::CopyToDevice, 1), round.nodes[1], copy(NodeKind::CopyToHost, 1)};
  for (NodeIndex node = 1; node < step.nodes.size(); ++node)
    step.edges.push_back({node - 1, node, EdgeKind::Full});
  step.edges.push_back({1, 4, EdgeKind::Full}); // the stream's
  return step;
}

class IssueListTest : public testing::Test {
protected:
  void SetUp() override {
    const Expected<Compiler> opened = Compiler::open(PUMPGRAPH_COMPILER_LIBRARY);
    ASSERT_TRUE(opened) << opened.error().message;
    compiler_ = *opened;
  }

  /// What is wrong with a list; empty: nothing.
  std::string check(const IssueList &list, const Description &step, const RoundScript &script) const {
    std::string error;
    const Description issued = liftIssued(list, step, script.description, streamsOf(script), error);
    if (!error.empty())
      return error;
    const DescriptionView lifted(issued), round(script.description);
    char *const text = compiler_.check(lifted.get(), round.get());
    const std::string found = text ? text : "";
    compiler_.freeString(text);
    return found;
  }

  Compiler compiler_;
};

TEST_F(IssueListTest, aListIsWhatTheCheckerAccepts) {
  const Written written = twoTakeTurns();
  const Description step = lowerTurns(written.script.description);
  std::string error;
  const IssueList list = lowerStreams(step, written.script.description, streamsOf(written.script), error);
  ASSERT_EQ(error, "");
  EXPECT_EQ(check(list, step, written.script), "");
  // A copy between two calls is issued with the second one.
  EXPECT_TRUE(std::none_of(list.after[0].begin(), list.after[0].end(), [](const IssuedOperation &operation) {
    return operation.kind == IssuedOperation::Kind::Copy;
  }));
}

TEST_F(IssueListTest, noWaitAndNoRecordCanBeLeftOut) {
  const Written written = twoTakeTurns();
  const Description step = lowerTurns(written.script.description);
  std::string error;
  const IssueList list = lowerStreams(step, written.script.description, streamsOf(written.script), error);
  std::size_t tried = 0;
  const auto without = [&](std::vector<std::vector<IssuedOperation>> IssueList::*part) {
    for (std::size_t place = 0; place < (list.*part).size(); ++place)
      for (std::size_t i = 0; i < (list.*part)[place].size(); ++i, ++tried) {
        IssueList wrong = list;
        std::vector<IssuedOperation> &operations = (wrong.*part)[place];
        operations.erase(operations.begin() + static_cast<std::ptrdiff_t>(i));
        // All follows the first copy, and the end of the round the last copy.
        const IssuedOperation &operation = (list.*part)[place][i];
        const bool isImplied = operation.kind == IssuedOperation::Kind::Wait &&
                               ((operation.event == IssueList::boundary && place + i != 0) || (place == 2 && i > 0));
        EXPECT_TRUE(isImplied || !check(wrong, step, written.script).empty()) << place << " " << i;
      }
  };
  without(&IssueList::before);
  without(&IssueList::after);
  EXPECT_GT(tried, 15U);
}

TEST_F(IssueListTest, callsOfTwoStreamsThatShareAFrameWait) {
  Written written(2);
  written.script.description.buffers[0].liveIn = written.script.description.buffers[0].liveOut = false;
  written.script.description.buffers[1].liveIn = written.script.description.buffers[1].liveOut = false;
  written.call(compute, {fresh(0)}, {});
  written.call(side, {fresh(1)}, {});
  Description step = lowered(written.script.description, {{0}, {0}});
  step.nodes = written.script.description.nodes;
  step.edges = {{0, 1, EdgeKind::Full}}; // of the plan
  std::string error;
  IssueList list = lowerStreams(step, written.script.description, streamsOf(written.script), error);
  EXPECT_EQ(check(list, step, written.script), "");
  std::erase_if(list.before[1],
                [](const IssuedOperation &operation) { return operation.event != IssueList::boundary; });
  EXPECT_NE(check(list, step, written.script), "");
}

TEST_F(IssueListTest, callsInAnotherOrderAreNoRound) {
  const Written written = twoTakeTurns();
  Description step = lowerTurns(written.script.description);
  std::swap(step.nodes[1], step.nodes[4]);
  std::string error;
  lowerStreams(step, written.script.description, streamsOf(written.script), error);
  EXPECT_EQ(error, "the plan has calls in another order, or several times: \"call0\"");
}

TEST_F(IssueListTest, valuesAreSomewhereWhereverARoundIsLeft) {
  const Written written = twoTakeTurns();
  const Description step = lowerTurns(written.script.description);
  std::string error;
  const IssueList list = lowerStreams(step, written.script.description, streamsOf(written.script), error);
  BufferIndex lost = noBuffer;
  EXPECT_EQ(checkCuts(step, written.script, list, lost), "");
  CutStates states(step, list);
  EXPECT_TRUE(states.pages(0)[0].onHost && !states.pages(0)[0].onDevice);
  states.pass(written.script.events[0]);
  EXPECT_TRUE(states.pages(0)[0].onDevice && !states.pages(0)[0].onHost);
  states.issueCopies(1, 0); // the second call was another one
  EXPECT_TRUE(states.pages(0)[0].onDevice && !states.pages(0)[0].onHost);
  EXPECT_TRUE(states.pages(1)[0].onHost);
}

/// The contract of plans lets go of a value that nothing uses again. Its memory is freed later, so a program that
/// leaves the round may read it.
TEST_F(IssueListTest, aValueIsKeptUntilItsMemoryIsFreed) {
  Written written(2);
  for (Buffer &buffer : written.script.description.buffers)
    buffer.liveIn = buffer.liveOut = false;
  written.allocate(0);
  written.call(compute, {fresh(0)}, {});
  written.allocate(1);
  written.call(compute, {fresh(1)}, {0});
  written.free(0);
  written.free(1);
  Description step = lowered(written.script.description, {{0}, {0}});
  step.nodes = written.script.description.nodes;
  step.edges = {{0, 1, EdgeKind::Full}};
  std::string error;
  const IssueList list = lowerStreams(step, written.script.description, streamsOf(written.script), error);
  EXPECT_EQ(check(list, step, written.script), "");
  BufferIndex lost = noBuffer;
  EXPECT_EQ(checkCuts(step, written.script, list, lost), "block0 is lost ahead of call 1");
  EXPECT_EQ(lost, 0U);
  std::swap(written.script.events[2], written.script.events[4]); // freed ahead of the second call
  EXPECT_EQ(checkCuts(step, written.script, list, lost), "");
  // The planner is told so.
  const Description input = planInput(written.script, {});
  EXPECT_EQ(input.nodes[1].accesses.size(), 1U);
  std::swap(written.script.events[2], written.script.events[4]);
  EXPECT_EQ(planInput(written.script, {}).nodes[1].accesses.size(), 2U);
}

TEST_F(IssueListTest, anOverwriteReadsWhatAProgramMayReadThatLeavesTheRound) {
  Written written(1);
  Access overwrite = use(0, modeWrite);
  overwrite.must = modeWrite;
  written.call(compute, {overwrite}, {}, NodeKind::Memset);
  const Description input = planInput(written.script, {});
  EXPECT_EQ(input.nodes[0].accesses[0].must, modeNone);
  EXPECT_EQ(input.nodes[0].kind, NodeKind::Memcpy);
}

TEST_F(IssueListTest, newMemoryThatTheHostAloneOrdersIsDoubted) {
  for (const bool isOrdered : {false, true}) {
    Written written(1);
    written.script.description.buffers[0].liveIn = written.script.description.buffers[0].liveOut = false;
    written.allocate(0);
    const NodeIndex first = written.call(compute, {fresh(0)}, {});
    written.call(side, {use(0)}, isOrdered ? std::vector{first} : std::vector<NodeIndex>{});
    written.free(0);
    EXPECT_EQ(planInput(written.script, {}).nodes[0].accesses[0].must, isOrdered ? modeWrite : modeNone);
  }
}

TEST_F(IssueListTest, memoryThatStaysIsNoPartOfThePlan) {
  Written written = twoTakeTurns();
  written.script.description.buffers[1].isPrivate = false; // the driver's own
  EXPECT_EQ(planInput(written.script, {}).buffers.size(), 1U);
  EXPECT_TRUE(planInput(written.script, {Written::addressOf(0)}).buffers.empty());
}

} // namespace
} // namespace pumpgraph::runtime::test
