// SPDX-License-Identifier: Apache-2.0
// Reading graphs back, telling pointers from integers, what the buffers' facts become.
#include "runtime/capture/DescribeStep.h"
#include "runtime/lower/GraphEditor.h"
#include "test/unit/runtime/MemoryTest.h"
#include "test/unit/runtime/TestTable.h"

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <utility>

using namespace pumpgraph;
using namespace pumpgraph::runtime;
using namespace pumpgraph::runtime::test;

namespace {

class LiftTest : public MemoryTest {
protected:
  void SetUp() override {
    openMemory(32);
    graph_ = fake_.createGraph();
  }
  void TearDown() override { fake_.destroyGraph(graph_); }

  char *allocate(std::uint64_t size, const char *name) {
    return reinterpret_cast<char *>(*heap_->allocate(size, nullptr, name));
  }
  void free(char *pointer) { EXPECT_TRUE(heap_->free(reinterpret_cast<CUdeviceptr>(pointer), nullptr)); }
  void declarePrivate(char *pointer) {
    heap_->member(*heap_->find(reinterpret_cast<CUdeviceptr>(pointer))).declaredPrivate = true;
  }

  LiftedGraph lift() {
    Expected<LiftedGraph> lifted = liftGraph(driver_, graph_, *addresses_, nullptr);
    EXPECT_TRUE(lifted) << (lifted ? "" : lifted.error().message);
    return lifted ? *lifted : LiftedGraph{};
  }
  CapturedStep describe(const Rehearsal *rehearsal = nullptr) {
    const LiftedGraph lifted = lift();
    const AccessFinder finder(*heap_, rehearsal, lifted, declarations_, &tables_);
    CapturedStep step = describeStep(lifted, *heap_, finder, {});
    EXPECT_EQ(validate(step.description), "");
    return step;
  }
  /// The accesses of a step of one node.
  std::vector<Access> accesses() {
    const Description step = describe().description;
    EXPECT_EQ(step.nodes.size(), 1u);
    return step.nodes.empty() ? std::vector<Access>{} : step.nodes[0].accesses;
  }
  static const Buffer *find(const Description &step, const std::string &name) {
    const auto found = std::find_if(step.buffers.begin(), step.buffers.end(),
                                    [&](const Buffer &buffer) { return buffer.name == name; });
    return found == step.buffers.end() ? nullptr : &*found;
  }

  CUgraph graph_ = nullptr;
  NodeDeclarations declarations_;
  AccessTables tables_;
  FakeKernel plain_{"plain", {8, 4, 8}, {}};
  FakeKernel packed_{"packed", {24}, {}};
};

/// As compilers lay it out with packing: the second pointer is at a multiple of four.
struct __attribute__((packed)) Odd {
  void *first;
  std::uint32_t number;
  void *second;
  std::uint32_t padding;
};

// Plain pointers know their parameter; pointers in structs, wherever they sit, do not.
TEST_F(LiftTest, findsPointersInParametersAndStructs) {
  char *a = allocate(pageBytes, "a"), *b = allocate(pageBytes, "b");
  fake_.addKernel(graph_, {}, plain_, {bytesOf(a), bytesOf(7), bytesOf(b + 64)});
  fake_.addKernel(graph_, {}, packed_, {bytesOf(Odd{a, 3, b, 0})}, true);
  const Description step = describe().description;
  ASSERT_EQ(step.nodes.size(), 2u);
  ASSERT_EQ(step.nodes[0].accesses.size(), 2u);
  EXPECT_EQ(step.nodes[0].accesses[0].parameter, 0);
  EXPECT_EQ(step.nodes[0].accesses[1].parameter, 2);
  EXPECT_EQ(step.nodes[0].accesses[1].range, (Range{0, pageBytes})); // the whole allocation
  EXPECT_EQ(step.nodes[0].name, "plain");
  ASSERT_EQ(step.nodes[1].accesses.size(), 2u);
  for (const Access &access : step.nodes[1].accesses) {
    EXPECT_EQ(access.parameter, unknownParameter);
    EXPECT_EQ(access.evidence, Evidence::Assumed);
    EXPECT_EQ(access.may, modeReadWrite);
  }
}

// A packed buffer may end within the last parameter: NCCL's kernels take 4 KiB and get what they need.
TEST_F(LiftTest, readsPackedArgumentsThatEndEarly) {
  FakeKernel kernel{"long", {4096}, {}};
  char *a = allocate(pageBytes, "a"), *b = allocate(pageBytes, "b");
  fake_.addKernel(graph_, {}, kernel, {bytesOf(Odd{a, 3, b, 0})}, true);
  fake_.addKernel(graph_, {}, plain_, {bytesOf(a)}, true); // two of its parameters are nowhere
  const CapturedStep step = describe();
  EXPECT_EQ(step.description.nodes[0].accesses.size(), 2u);
  ASSERT_EQ(step.refusals.size(), 1u);
  EXPECT_NE(step.refusals[0].find("parameter 1 of kernel \"plain\" is not among"), std::string::npos);
}

// NCCL may hand addresses over in memory, so that its kernels need a declaration of what they reach.
TEST_F(LiftTest, wantsToKnowWhatKernelsOfNcclReach) {
  FakeKernel kernel{"_Z31ncclDevKernel_Broadcast_RING_LL", {8}, {}};
  char *a = allocate(pageBytes, "a"), *b = allocate(pageBytes, "b");
  fake_.addKernel(graph_, {}, kernel, {bytesOf(a)});
  ASSERT_EQ(describe().refusals.size(), 1u);
  EXPECT_NE(describe().refusals[0].find("pumpgraph_declare_reach()"), std::string::npos);
  ASSERT_TRUE(declarations_.addReach(driver_, graph_, {{}, {reinterpret_cast<CUdeviceptr>(b)}}));
  const CapturedStep step = describe();
  EXPECT_TRUE(step.refusals.empty());
  ASSERT_EQ(step.description.nodes[0].accesses.size(), 2u);
  EXPECT_EQ(step.description.nodes[0].accesses[1].evidence, Evidence::Declared);
  EXPECT_EQ(step.description.nodes[0].accesses[1].may, modeReadWrite);
}

// Other ranks access memory that is registered with NCCL, and a child graph may have several kernels.
TEST_F(LiftTest, knowsKernelsOfNcclByAnyOfItsNames) {
  FakeKernel symmetric{"ncclSymkDevKernel_AllReduce", {8}, {}}, older{"ncclKernel_AllReduce_RING_LL", {8}, {}};
  char *a = allocate(pageBytes, "a");
  fake_.addKernel(graph_, {}, symmetric, {bytesOf(a)});
  const CUgraph child = fake_.createGraph();
  const CUgraphNode first = fake_.addKernel(child, {}, plain_, {bytesOf(a), bytesOf(7), bytesOf(nullptr)});
  fake_.addKernel(child, {first}, older, {bytesOf(a)});
  fake_.addChild(graph_, {}, child);
  const CapturedStep unknown = describe();
  ASSERT_EQ(unknown.refusals.size(), 2u);
  EXPECT_NE(unknown.refusals[1].find("pumpgraph_declare_reach()"), std::string::npos);
  ASSERT_TRUE(declarations_.addReach(driver_, graph_, {{}, {reinterpret_cast<CUdeviceptr>(a)}}));
  const CapturedStep declared = describe();
  ASSERT_EQ(declared.refusals.size(), 1u);
  EXPECT_NE(declared.refusals[0].find("registered with NCCL"), std::string::npos);
}

// Of a collective's operator come events and copies, too: their order says nothing of its memory.
TEST_F(LiftTest, kernelsAloneReachMemory) {
  char *a = allocate(pageBytes, "a"), *b = allocate(pageBytes, "b");
  const CUgraphNode event = fake_.addPlain(graph_, {}, CU_GRAPH_NODE_TYPE_EVENT_RECORD);
  const CUgraphNode fill = fake_.addFill(graph_, {event}, a, 0, 512);
  fake_.addKernel(graph_, {fill}, plain_, {bytesOf(a), bytesOf(7), bytesOf(nullptr)});
  ASSERT_TRUE(declarations_.addReach(driver_, graph_, {{}, {reinterpret_cast<CUdeviceptr>(b)}}));
  const Description step = describe().description;
  EXPECT_EQ(step.nodes[0].accesses.size(), 0u);
  EXPECT_EQ(step.nodes[1].accesses.size(), 1u);
  EXPECT_EQ(step.nodes[2].accesses.size(), 2u);
}

// A program may take turns with two buffers that were there before: the capture reaches the one that the rehearsal did
// not.
TEST_F(LiftTest, reachesWhatStandsInPlaceOfTheRehearsedMemory) {
  FakeKernel kernel{"ncclDevKernel_AllReduce", {8}, {}};
  char *a = allocate(pageBytes, "a"), *b = allocate(pageBytes, "b");
  int hidden = 0; // NCCL's, with the address of the operand in it
  fake_.addKernel(graph_, {}, plain_, {bytesOf(a), bytesOf(7), bytesOf(nullptr)});
  ASSERT_TRUE(declarations_.addReach(driver_, graph_, {}));
  fake_.addKernel(graph_, {}, kernel, {bytesOf(&hidden)});
  ASSERT_TRUE(declarations_.addReach(driver_, graph_, {{}, {reinterpret_cast<CUdeviceptr>(a)}}));
  const Rehearsal rehearsal(lift(), *heap_, declarations_);
  declarations_ = {};
  fake_.destroyGraph(graph_);
  graph_ = fake_.createGraph();
  fake_.addKernel(graph_, {}, plain_, {bytesOf(b), bytesOf(7), bytesOf(nullptr)});
  fake_.addKernel(graph_, {}, kernel, {bytesOf(&hidden)});
  const CapturedStep step = describe(&rehearsal);
  EXPECT_TRUE(step.refusals.empty());
  std::set<std::string> reached;
  for (const Access &access : step.description.nodes[1].accesses)
    reached.insert(step.description.buffers[access.buffer].name);
  EXPECT_EQ(reached, (std::set<std::string>{"a", "b"}));
}

// An integer that is no address is no access.
TEST_F(LiftTest, ignoresNumbers) {
  allocate(pageBytes, "a");
  fake_.addKernel(graph_, {}, plain_, {bytesOf(std::uint64_t{1} << 33), bytesOf(7), bytesOf(3.5)});
  EXPECT_TRUE(describe().description.nodes[0].accesses.empty());
}

// Copies and fills say exactly what they touch; a strided one touches it with gaps.
TEST_F(LiftTest, readsCopiesAndFills) {
  char *a = allocate(4 * pageBytes, "a"), *b = allocate(4 * pageBytes, "b");
  char host[64];
  fake_.addCopy(graph_, {}, a + 512, b + 1024, 2048);
  fake_.addCopy(graph_, {}, a, host, sizeof host);
  fake_.addFill(graph_, {}, b, 1, pageBytes);
  const CUgraphNode strided = fake_.addCopy(graph_, {}, a, b, 512);
  fake_.makeStrided(strided, 4, 4096);
  const Description step = describe().description;
  ASSERT_EQ(step.nodes[0].accesses.size(), 2u);
  EXPECT_EQ(step.nodes[0].accesses[0].range, (Range{1024, 2048}));
  EXPECT_EQ(step.nodes[0].accesses[0].may, modeRead);
  EXPECT_EQ(step.nodes[0].accesses[0].must, modeRead);
  EXPECT_EQ(step.nodes[0].accesses[1].range, (Range{512, 2048}));
  EXPECT_EQ(step.nodes[0].accesses[1].must, modeWrite);
  EXPECT_EQ(step.nodes[0].accesses[1].evidence, Evidence::Proved);
  ASSERT_EQ(step.nodes[1].accesses.size(), 1u);
  EXPECT_EQ(step.nodes[2].accesses[0].range, (Range{0, pageBytes}));
  EXPECT_EQ(step.nodes[2].accesses[0].must, modeWrite);
  EXPECT_EQ(step.nodes[3].accesses[1].range, (Range{0, 3 * 4096 + 512}));
  EXPECT_EQ(step.nodes[3].accesses[1].must, modeNone);
}

// A child graph is one node that touches what its nodes touch, and refuses what they refuse.
TEST_F(LiftTest, unitesChildGraphs) {
  char *a = allocate(pageBytes, "a"), *b = allocate(pageBytes, "b");
  CUgraph child = fake_.createGraph();
  const CUgraphNode inner = fake_.addKernel(child, {}, plain_, {bytesOf(a), bytesOf(7), bytesOf(nullptr)});
  fake_.addFill(child, {inner}, b, 0, pageBytes);
  fake_.addChild(graph_, {}, child);
  CapturedStep step = describe();
  ASSERT_EQ(step.description.nodes.size(), 1u);
  EXPECT_EQ(step.description.nodes[0].kind, NodeKind::ChildGraph);
  ASSERT_EQ(step.description.nodes[0].accesses.size(), 2u);
  EXPECT_EQ(step.description.nodes[0].accesses[0].parameter, unknownParameter);
  EXPECT_EQ(step.description.nodes[0].accesses[1].must, modeNone); // the kernel may have read it first
  EXPECT_TRUE(step.refusals.empty());
  fake_.addPlain(child, {}, CU_GRAPH_NODE_TYPE_CONDITIONAL);
  step = describe();
  ASSERT_EQ(step.refusals.size(), 1u);
  EXPECT_NE(step.refusals[0].find("inside a child graph"), std::string::npos);
}

// Edges keep their kind, and nodes come in an order that the edges allow.
TEST_F(LiftTest, readsEdgesWithTheirKinds) {
  char *a = allocate(pageBytes, "a");
  const CUgraphNode last = fake_.addKernel(graph_, {}, plain_, {bytesOf(a), bytesOf(7), bytesOf(a)});
  const CUgraphNode first = fake_.addKernel(graph_, {}, packed_, {bytesOf(Odd{a, 0, nullptr, 0})});
  const CUgraphEdgeData full{};
  ASSERT_TRUE(driver_.graphAddDependencies(graph_, &first, &last, &full, 1));
  fake_.makeEdgesProgrammatic(graph_);
  const CUgraphNode fill = fake_.addFill(graph_, {last}, a, 0, 512);
  const LiftedGraph lifted = lift();
  ASSERT_EQ(lifted.nodes.size(), 3u);
  EXPECT_EQ(lifted.nodes[0].handle, first);
  EXPECT_EQ(lifted.nodes[1].handle, last);
  EXPECT_EQ(lifted.nodes[2].handle, fill);
  ASSERT_EQ(lifted.edges.size(), 2u);
  EXPECT_EQ(lifted.edges[0].kind, EdgeKind::Programmatic);
  EXPECT_EQ(lifted.edges[1].kind, EdgeKind::Full);
}

// Who allocated, when, whether it was freed, and what was declared: together they say who may have the buffer.
TEST_F(LiftTest, drawsFactsFromAllocations) {
  char *input = allocate(pageBytes, "input"), *weight = allocate(pageBytes, "weight"),
       *retired = allocate(pageBytes, "retired"), *untouched = allocate(pageBytes, "untouched");
  declarePrivate(weight);
  heap_->beginCapture();
  char *temporary = allocate(pageBytes, "temporary"), *result = allocate(pageBytes, "result"),
       *state = allocate(pageBytes, "state"), *written = allocate(pageBytes, "written"),
       *lonely = allocate(pageBytes, "lonely");
  free(temporary);
  free(retired);
  declarePrivate(state);
  declarePrivate(written);
  fake_.addFill(graph_, {}, written, 0, pageBytes);
  for (char *buffer : {input, weight, retired, temporary, result, state, written})
    fake_.addKernel(graph_, {}, plain_, {bytesOf(buffer), bytesOf(7), bytesOf(0.0)});
  heap_->endCapture();
  const CapturedStep step = describe();
  const auto facts = [&](const char *name) {
    const Buffer *buffer = find(step.description, name);
    EXPECT_TRUE(buffer) << name;
    return buffer ? std::tuple{buffer->isPrivate, buffer->liveIn, buffer->liveOut} : std::tuple{false, false, false};
  };
  EXPECT_EQ(facts("input"), std::tuple(false, true, true));
  EXPECT_EQ(facts("weight"), std::tuple(true, true, true));
  EXPECT_EQ(facts("retired"), std::tuple(false, true, true)); // its value may be read; never treated as dead
  EXPECT_EQ(facts("temporary"), std::tuple(true, false, false));
  EXPECT_EQ(facts("result"), std::tuple(false, true, true));
  EXPECT_EQ(facts("state"), std::tuple(true, true, true));
  EXPECT_EQ(facts("written"), std::tuple(true, false, true));
  EXPECT_EQ(find(step.description, "untouched"), nullptr);
  EXPECT_EQ(find(step.description, "lonely"), nullptr);
  ASSERT_EQ(step.besides.size(), 1u); // "lonely" needs memory all the same
  EXPECT_EQ(heap_->block(step.besides[0]).members[0].name, "lonely");
  (void)untouched;
  (void)lonely;
}

// What others touch between replays: private, but present; exclusive beside anything exclusive in the same page.
TEST_F(LiftTest, describesPresentBuffers) {
  char *input = allocate(3 * pageBytes, "input"), *weight = allocate(3 * pageBytes, "weight");
  char *small = allocate(600, "small input"), *beside = allocate(600, "beside");
  heap_->member(*heap_->require(input)).declaredPrivate = heap_->member(*heap_->require(input)).declaredPresent = true;
  heap_->member(*heap_->require(weight)).declaredPrivate = true;
  heap_->member(*heap_->require(small)).declaredPrivate = heap_->member(*heap_->require(small)).declaredPresent = true;
  heap_->beginCapture();
  fake_.addKernel(graph_, {}, plain_, {bytesOf(input), bytesOf(7), bytesOf(weight)});
  fake_.addKernel(graph_, {}, plain_, {bytesOf(small), bytesOf(7), bytesOf(beside)});
  heap_->endCapture();
  const CapturedStep step = describe();
  ASSERT_EQ(step.description.buffers.size(), 3u);
  const auto facts = [&](std::size_t buffer) {
    const Buffer &described = step.description.buffers[buffer];
    return std::tuple(described.isPrivate, described.isPresent, described.liveIn, described.liveOut);
  };
  EXPECT_EQ(facts(0), std::tuple(true, true, true, true));
  EXPECT_EQ(facts(1), std::tuple(true, false, true, true));
  EXPECT_EQ(facts(2), std::tuple(false, false, true, true));
}

// Small allocations of one page are one buffer: private only if all of them are.
TEST_F(LiftTest, joinsSmallAllocationsOfAPage) {
  heap_->beginCapture();
  char *a = allocate(600, "a"), *b = allocate(600, "b");
  free(a);
  free(b);
  fake_.addKernel(graph_, {}, plain_, {bytesOf(a), bytesOf(7), bytesOf(b)});
  heap_->endCapture();
  CapturedStep step = describe();
  ASSERT_EQ(step.description.buffers.size(), 1u);
  EXPECT_TRUE(step.description.buffers[0].isPrivate);
  EXPECT_EQ(step.description.buffers[0].size, 2048u);
  ASSERT_EQ(step.description.nodes[0].accesses.size(), 2u);
  EXPECT_EQ(step.description.nodes[0].accesses[1].range, (Range{1024, 1024}));

  fake_.destroyGraph(graph_);
  graph_ = fake_.createGraph();
  heap_->beginCapture();
  a = allocate(600, "a");
  b = allocate(600, "kept");
  free(a);
  fake_.addKernel(graph_, {}, plain_, {bytesOf(a), bytesOf(7), bytesOf(0.0)});
  heap_->endCapture();
  step = describe();
  ASSERT_EQ(step.description.buffers.size(), 1u);
  EXPECT_FALSE(step.description.buffers[0].isPrivate);
}

// A number that looks like an address stays the same when the step is captured again; a pointer moves with its buffer.
TEST_F(LiftTest, tellsPointersFromNumbersByARehearsal) {
  // The addresses of the second capture's buffers, told by a dry run: fresh addresses follow one another.
  char *probe = allocate(pageBytes, "probe");
  const std::uint64_t stride = 3 * pageBytes; // a page and its guards
  const auto capture = [&](std::uint64_t number) {
    heap_->beginCapture();
    char *first = allocate(pageBytes, "first"), *second = allocate(pageBytes, "second");
    fake_.destroyGraph(graph_);
    graph_ = fake_.createGraph();
    fake_.addKernel(graph_, {}, plain_, {bytesOf(first), bytesOf(7), bytesOf(number)});
    fake_.addKernel(graph_, {}, plain_, {bytesOf(second), bytesOf(7), bytesOf(0.0)});
    free(first);
    free(second);
    heap_->endCapture();
  };
  // It will be the address of "second" of the second capture: two blocks further than the first capture's.
  const std::uint64_t number = reinterpret_cast<std::uint64_t>(probe) + 4 * stride;
  capture(number);
  const Rehearsal rehearsal(lift(), *heap_);
  heap_->dropCapture();
  capture(number);

  const CapturedStep withRehearsal = describe(&rehearsal), without = describe();
  EXPECT_EQ(without.description.nodes[0].accesses.size(), 2u) << "the number was meant to look like an address";
  ASSERT_EQ(withRehearsal.description.nodes[0].accesses.size(), 1u);
  EXPECT_EQ(withRehearsal.description.buffers[withRehearsal.description.nodes[0].accesses[0].buffer].name, "first");
  EXPECT_EQ(withRehearsal.description.nodes[1].accesses.size(), 1u);
  ASSERT_EQ(withRehearsal.notes.size(), 1u);
}

// Where PyTorch sees a dispatch mode, as in a rehearsal, it adds rows up in a copy, and in place otherwise.
TEST_F(LiftTest, followsARehearsalThatWorkedOnACopy) {
  char *table = allocate(pageBytes, "table"), *saved = allocate(pageBytes, "saved");
  FakeKernel checks{"checks", {8}, {}};
  const auto declare = [&](char *read) {
    EXPECT_TRUE(declarations_.addReads(driver_, graph_, {reinterpret_cast<CUdeviceptr>(read)}));
    EXPECT_TRUE(declarations_.addOperation(driver_, graph_, OperationKind::Pure));
  };
  struct Shape {
    int copies = 0; ///< to work on, in place of the sums
    bool saves = false, checks = false;
    unsigned blocks = 1; ///< of the kernel that adds
    bool declares = true;
  };
  const auto capture = [&](const Shape &shape) {
    heap_->beginCapture();
    char *sums = allocate(pageBytes, "sums"), *rows = shape.copies == 0 ? sums : allocate(pageBytes, "copy");
    fake_.destroyGraph(graph_);
    graph_ = fake_.createGraph();
    CUgraphNode last = fake_.addFill(graph_, {}, sums, 0, pageBytes);
    if (shape.saves)
      last = fake_.addCopy(graph_, {last}, saved, sums, pageBytes);
    if (shape.declares)
      declare(sums);
    for (int copy = 0; copy < shape.copies; ++copy)
      last = fake_.addCopy(graph_, {last}, rows, sums, pageBytes);
    if (shape.checks)
      last = fake_.addKernel(graph_, {last}, checks, {bytesOf(table)});
    last = fake_.addKernel(graph_, {last}, plain_, {bytesOf(rows), bytesOf(7), bytesOf(table)});
    fake_.setLaunch(last, {shape.blocks, 1, 1}, {1, 1, 1});
    if (shape.declares)
      declare(table);
    fake_.addKernel(graph_, {last}, plain_, {bytesOf(saved), bytesOf(7), bytesOf(rows)});
    if (shape.declares)
      declare(rows);
    free(sums);
    if (rows != sums)
      free(rows);
    heap_->endCapture();
  };
  struct Case {
    const char *text;
    Shape rehearsed;
    bool isFollowed = true;
    std::size_t forgotten = 0;
  };
  for (const Case &one :
       {Case{"as it is", {0, false, false}}, Case{"as it is, of another size", {0, false, false, 2}},
        Case{"a copy", {1, false, false}, true, 1}, Case{"two copies", {2, false, false}, true, 2},
        Case{"one of two copies", {1, true, false}, true, 1}, Case{"a copy and a check", {1, false, true}, true, 2},
        Case{"a copy, of another size", {1, false, false, 2}, false, 0}}) {
    SCOPED_TRACE(one.text);
    capture(one.rehearsed);
    Rehearsal rehearsal(lift(), *heap_, declarations_);
    heap_->dropCapture();
    declarations_ = {};
    capture({0, one.rehearsed.saves, false, 1, false});
    rehearsal.forgetNodesBeside(lift());
    EXPECT_EQ(rehearsal.matches(lift()), one.isFollowed);
    EXPECT_EQ(rehearsal.forgotten(), one.forgotten);
    const Description step = describe(&rehearsal).description;
    const std::size_t adds = step.nodes.size() - 2, reads = step.nodes.size() - 1;
    EXPECT_EQ(step.nodes[adds].accesses[0].may, modeReadWrite) << "the sums, in place";
    EXPECT_EQ(step.nodes[adds].accesses[1].may, one.isFollowed ? modeRead : modeReadWrite) << "the table";
    EXPECT_EQ(step.nodes[reads].accesses[1].may, one.isFollowed ? modeRead : modeReadWrite) << "the sums";
    if (one.isFollowed) {
      EXPECT_EQ(rehearsal.operation(adds).isPure, one.forgotten == 0) << "it is another operation";
      EXPECT_TRUE(rehearsal.operation(reads).isPure);
    }
    heap_->dropCapture();
  }
}

// Rehearsals are compared more closely: a step may use other memory, or less of it.
TEST_F(LiftTest, tellsRehearsalsApart) {
  char *weight = allocate(pageBytes, "weight"), *zero = allocate(pageBytes, "zero");
  const auto capture = [&](char *read, unsigned blocks) {
    heap_->beginCapture();
    char *result = allocate(pageBytes, "result");
    fake_.destroyGraph(graph_);
    graph_ = fake_.createGraph();
    const CUgraphNode node = fake_.addKernel(graph_, {}, plain_, {bytesOf(result), bytesOf(7), bytesOf(read)});
    fake_.setLaunch(node, {blocks, 1, 1}, {1, 1, 1});
    free(result);
    heap_->endCapture();
  };
  capture(weight, 1);
  const Rehearsal rehearsal(lift(), *heap_);
  heap_->dropCapture();
  capture(weight, 1);
  EXPECT_TRUE(rehearsal.isLike(lift()));
  heap_->dropCapture();
  capture(zero, 1);
  EXPECT_TRUE(rehearsal.matches(lift()));
  EXPECT_FALSE(rehearsal.isLike(lift()));
  heap_->dropCapture();
  capture(weight, 2);
  EXPECT_TRUE(rehearsal.matches(lift()));
  EXPECT_FALSE(rehearsal.isLike(lift()));
}

// Of like launches one after the other nobody knows which is gone; a word that has not moved is then an address still.
TEST_F(LiftTest, knowsNothingOfNodesThatMayBeAnother) {
  char *probe = allocate(pageBytes, "probe");
  const std::uint64_t stride = 3 * pageBytes; // a page and its guards
  const auto capture = [&](int times, std::uint64_t number) {
    heap_->beginCapture();
    char *first = allocate(pageBytes, "first"), *second = allocate(pageBytes, "second");
    fake_.destroyGraph(graph_);
    graph_ = fake_.createGraph();
    CUgraphNode last = fake_.addFill(graph_, {}, second, 0, pageBytes);
    for (int time = 0; time < times; ++time)
      last = fake_.addKernel(graph_, {last}, plain_, {bytesOf(first), bytesOf(7), bytesOf(number)});
    fake_.addKernel(graph_, {last}, packed_, {bytesOf(Odd{first, 3, reinterpret_cast<char *>(number), 0})}, true);
    free(first);
    free(second);
    heap_->endCapture();
  };
  const std::uint64_t number = reinterpret_cast<std::uint64_t>(probe) + 4 * stride; // "second", next time
  capture(2, number);
  Rehearsal rehearsal(lift(), *heap_);
  heap_->dropCapture();
  capture(1, number);
  rehearsal.forgetNodesBeside(lift());
  EXPECT_EQ(rehearsal.forgotten(), 1u);
  const CapturedStep step = describe(&rehearsal);
  EXPECT_EQ(step.description.nodes[1].accesses.size(), 2u) << "either may be the one that is left";
  EXPECT_EQ(step.description.nodes[2].accesses.size(), 1u) << "there is one such node";
}

// Where addresses are short a capture gets those of its rehearsal: a pointer may then be the same in both.
TEST_F(LiftTest, keepsPointersToAddressesOfTheRehearsal) {
  heap_->beginCapture();
  char *buffer = allocate(pageBytes, "buffer");
  fake_.addKernel(graph_, {}, plain_, {bytesOf(buffer), bytesOf(7), bytesOf(0.0)});
  free(buffer);
  heap_->endCapture();
  const Rehearsal rehearsal(lift(), *heap_);
  const CapturedStep step = describe(&rehearsal);
  ASSERT_EQ(step.description.buffers.size(), 1u);
  EXPECT_EQ(step.description.nodes[0].accesses.size(), 1u);
}

// Temporaries whose addresses are nothing but words of kernels, known by a rehearsal, may go on at other addresses.
TEST_F(LiftTest, findsWhatCanHaveAnotherAddress) {
  constexpr std::uint64_t small = 600;
  FakeKernel stores{"stores", {8, 8}, {}};
  TestTable table;
  Slot escaping = updates(0);
  escaping.flags = PUMPGRAPH_SLOT_ESCAPES;
  tables_.add(&table.add("stores", {escaping, updates(1)}).table);
  const char *const names[] = {"plain",    "end",    "in struct", "copied", "filled",
                               "in child", "result", "stored",    "number", "other"};
  char *kept = allocate(pageBytes, "kept");
  CUgraph child = nullptr;
  const auto capture = [&](bool isFirst) {
    heap_->beginCapture();
    std::map<std::string, char *> at;
    for (const char *name : names)
      at[name] = allocate(pageBytes, name);
    char *first = allocate(small, "small"), *second = allocate(small, "other small");
    fake_.destroyGraph(graph_);
    graph_ = fake_.createGraph();
    child = fake_.createGraph();
    fake_.addKernel(child, {}, plain_, {bytesOf(at["in child"]), bytesOf(7), bytesOf(0.0)});
    fake_.addChild(graph_, {}, child);
    fake_.addKernel(graph_, {}, plain_, {bytesOf(at["plain"]), bytesOf(7), bytesOf(at["end"] + pageBytes)});
    fake_.addKernel(graph_, {}, packed_, {bytesOf(Odd{at["in struct"], 3, at["in struct"] + 8, 0})}, true);
    fake_.addKernel(graph_, {}, plain_, {bytesOf(at["copied"]), bytesOf(7), bytesOf(at["filled"])});
    fake_.addCopy(graph_, {}, kept, at["copied"], 512);
    fake_.addFill(graph_, {}, at["filled"], 0, 512);
    fake_.addKernel(graph_, {}, plain_, {bytesOf(at["result"]), bytesOf(7), bytesOf(kept)});
    fake_.addKernel(graph_, {}, stores, {bytesOf(at["stored"]), bytesOf(at["other"])});
    // It is at another byte than in the first capture: no address is.
    fake_.addKernel(graph_, {}, plain_, {bytesOf(at["number"] + (isFirst ? 8 : 0)), bytesOf(7), bytesOf(0.0)});
    fake_.addKernel(graph_, {}, plain_, {bytesOf(first), bytesOf(7), bytesOf(second)});
    for (const auto &[name, pointer] : at)
      if (name != "result")
        free(pointer);
    free(first);
    free(second);
    heap_->endCapture();
  };
  capture(true);
  const Rehearsal rehearsal(lift(), *heap_);
  heap_->dropCapture();
  capture(false);

  std::set<std::string> renamable;
  for (const Buffer &buffer : describe(&rehearsal).description.buffers)
    if (buffer.isRenamable)
      renamable.insert(buffer.name);
  EXPECT_EQ(renamable, (std::set<std::string>{"plain", "end", "in struct", "other", "small+1 small"}));
  for (const Buffer &buffer : describe().description.buffers)
    EXPECT_FALSE(buffer.isRenamable) << buffer.name;
}

// Where two addresses have four bytes in common, neither can be another.
TEST_F(LiftTest, keepsAddressesThatOverlap) {
  constexpr std::uint64_t half = std::uint64_t{1} << 32;
  for (const bool overlapping : {false, true}) {
    const auto capture = [&] {
      heap_->beginCapture();
      char *a = allocate(pageBytes, "a"), *wide = allocate(half + pageBytes, "wide");
      const auto address = reinterpret_cast<std::uint64_t>(a);
      // With the second half of the address before it, it is an address in the wide one.
      const std::uint64_t next = reinterpret_cast<std::uint64_t>(wide) / half + 1;
      EXPECT_TRUE(heap_->find(address / half + next * half));
      fake_.destroyGraph(graph_);
      graph_ = fake_.createGraph();
      fake_.addKernel(graph_, {}, packed_, {bytesOf(std::array<std::uint64_t, 3>{address, overlapping ? next : 0, 0})});
      free(a);
      free(wide);
      heap_->endCapture();
    };
    capture();
    const Rehearsal rehearsal(lift(), *heap_);
    heap_->dropCapture();
    capture();
    const Description step = describe(&rehearsal).description;
    EXPECT_EQ(step.buffers.size(), overlapping ? 2u : 1u);
    for (const Buffer &buffer : step.buffers)
      EXPECT_EQ(buffer.isRenamable, !overlapping) << buffer.name;
    heap_->dropCapture();
  }
}

// A rehearsal of another graph proves nothing: every hit stays.
TEST_F(LiftTest, keepsAllHitsWhenTheRehearsalDiffers) {
  heap_->beginCapture();
  char *a = allocate(pageBytes, "a");
  fake_.addFill(graph_, {}, a, 0, 512);
  heap_->endCapture();
  const Rehearsal rehearsal(lift(), *heap_);
  heap_->dropCapture();
  heap_->beginCapture();
  char *b = allocate(pageBytes, "b");
  fake_.addKernel(graph_, {}, plain_, {bytesOf(b), bytesOf(7), bytesOf(0.0)});
  heap_->endCapture();
  const LiftedGraph lifted = lift();
  const AccessFinder finder(*heap_, &rehearsal, lifted);
  EXPECT_FALSE(finder.comparedWithRehearsal());
  EXPECT_EQ(rehearsal.differenceTo(lifted), "2 nodes, 1 there");
  EXPECT_EQ(finder.touches(1, lifted.nodes[1]).size(), 1u);
  graph_ = fake_.createGraph();
  fake_.addKernel(graph_, {}, plain_, {bytesOf(b), bytesOf(7), bytesOf(0.0)});
  const std::string difference = rehearsal.differenceTo(lift());
  EXPECT_EQ(difference.find("node 0, \"" + lifted.nodes[1].name + "\", is \"memset\" there"), 0u) << difference;
}

// What is declared in a rehearsal, which may allocate more than the capture, holds for the same parameters. A sum that
// is formed in place in the capture alone is written.
TEST_F(LiftTest, believesDeclarationsOfARehearsal) {
  NodeDeclarations declarations;
  const auto capture = [&](bool inPlace, bool declared) {
    heap_->beginCapture();
    char *a = allocate(pageBytes, declared ? "a" : ""), *b = allocate(pageBytes, declared ? "b" : "");
    char *sum = inPlace ? a : allocate(pageBytes, "sum");
    fake_.destroyGraph(graph_);
    graph_ = fake_.createGraph();
    const auto add = [&](char *first, char *second, const char *label) {
      fake_.addKernel(graph_, {}, plain_, {bytesOf(first), bytesOf(7), bytesOf(second)});
      if (declared) {
        ASSERT_TRUE(declarations.addReads(driver_, graph_, {reinterpret_cast<CUdeviceptr>(second)}));
        ASSERT_TRUE(declarations.addLabel(driver_, graph_, label));
      }
    };
    add(sum, a, "add");
    add(b, a, "");
    heap_->endCapture();
  };
  capture(false, true);
  const Rehearsal rehearsal(lift(), *heap_, declarations);
  EXPECT_EQ(rehearsal.label(0), "add");
  EXPECT_EQ(rehearsal.label(1), "");
  heap_->dropCapture();
  capture(true, false);

  const LiftedGraph lifted = lift();
  const AccessFinder finder(*heap_, &rehearsal, lifted);
  ASSERT_TRUE(finder.comparedWithRehearsal());
  const std::vector<AccessFinder::Touch> inPlace = finder.touches(0, lifted.nodes[0]);
  ASSERT_EQ(inPlace.size(), 2u);
  EXPECT_EQ(inPlace[0].block, inPlace[1].block);
  EXPECT_EQ(inPlace[0].access.may, modeReadWrite);
  const std::vector<AccessFinder::Touch> other = finder.touches(1, lifted.nodes[1]);
  ASSERT_EQ(other.size(), 2u);
  EXPECT_EQ(other[0].access.may, modeReadWrite);
  EXPECT_EQ(other[1].access.may, modeRead);
  EXPECT_EQ(other[1].access.evidence, Evidence::Declared);
  EXPECT_EQ(rehearsal.nameOf(1, lifted.nodes[1].words[0]), "b");
}

// What a node is declared only to read is read. Nothing is known of its other operands, nor of the nodes before and
// after it.
TEST_F(LiftTest, believesDeclaredReads) {
  char *a = allocate(pageBytes, "a"), *b = allocate(pageBytes, "b");
  NodeDeclarations declarations;
  const auto add = [&](const std::vector<CUdeviceptr> &pointers) {
    fake_.addKernel(graph_, {}, plain_, {bytesOf(a + 64), bytesOf(7), bytesOf(b)});
    ASSERT_TRUE(declarations.addReads(driver_, graph_, pointers));
  };
  add({});
  add({reinterpret_cast<CUdeviceptr>(a + 4096)});
  add({});
  const LiftedGraph lifted = lift();
  const AccessFinder finder(*heap_, nullptr, lifted, declarations);
  for (std::size_t node = 0; node < 3; ++node) {
    const std::vector<AccessFinder::Touch> touches = finder.touches(node, lifted.nodes[node]);
    ASSERT_EQ(touches.size(), 2u);
    EXPECT_EQ(touches[0].access.may, node == 1 ? modeRead : modeReadWrite);
    EXPECT_EQ(touches[0].access.evidence, node == 1 ? Evidence::Declared : Evidence::Assumed);
    EXPECT_EQ(touches[1].access.may, modeReadWrite);
  }
}

// What an operation does not say it writes of the program's memory it only reads; of a library's memory, and of what
// was allocated in the capture, nobody knows.
TEST_F(LiftTest, believesDeclaredWrites) {
  char *a = allocate(pageBytes, "a"), *b = allocate(pageBytes, "b"), *library = allocate(pageBytes, "library");
  char *seed = allocate(8, "seed");
  declarePrivate(a);
  declarePrivate(b);
  heap_->beginCapture();
  char *born = allocate(pageBytes, "born");
  NodeDeclarations declarations;
  using Pointers = std::optional<std::vector<CUdeviceptr>>;
  const auto add = [&](const Pointers &pointers) {
    fake_.addKernel(graph_, {}, plain_, {bytesOf(a), bytesOf(7), bytesOf(b)});
    fake_.addKernel(graph_, {}, plain_, {bytesOf(library), bytesOf(7), bytesOf(seed)});
    fake_.addKernel(graph_, {}, plain_, {bytesOf(born), bytesOf(7), bytesOf(born)});
    ASSERT_TRUE(declarations.addWrites(driver_, graph_, pointers));
  };
  add(std::nullopt);
  add(std::vector<CUdeviceptr>{reinterpret_cast<CUdeviceptr>(a + 4096)});
  add(std::vector<CUdeviceptr>{});
  add(std::nullopt);
  heap_->endCapture();
  const LiftedGraph lifted = lift();
  const Rehearsal rehearsal(lifted, *heap_, declarations);
  const auto found = [&](const Rehearsal *rehearsed, const NodeDeclarations &said) {
    const AccessFinder finder(*heap_, rehearsed, lifted, said);
    std::vector<std::string> readOnly;
    for (std::size_t node = 0; node < lifted.nodes.size(); ++node)
      for (const AccessFinder::Touch &touch : finder.touches(node, lifted.nodes[node]))
        if (touch.access.may == modeRead)
          readOnly.push_back(fmt::format("{} of {}", heap_->block(touch.block).members.front().name, node));
    return readOnly;
  };
  const std::vector<std::string> expected{"b of 3", "seed of 4", "a of 6", "b of 6", "seed of 7"};
  EXPECT_EQ(found(nullptr, declarations), expected);
  EXPECT_EQ(found(&rehearsal, {}), expected);
  EXPECT_TRUE(found(nullptr, {}).empty());
}

// By a kernel's name and parameter, in every launch of it.
TEST_F(LiftTest, believesWhatIsKnownOfKernels) {
  char *a = allocate(pageBytes, "a"), *b = allocate(pageBytes, "b");
  FakeKernel scale{"_Z5scalePfiS_", {8, 4, 8}, {}};
  fake_.addKernel(graph_, {}, scale, {bytesOf(a), bytesOf(7), bytesOf(b)});
  const LiftedGraph lifted = lift();
  const auto modes = [&](const KernelReads *known) {
    const AccessFinder finder(*heap_, nullptr, lifted, {}, nullptr, known);
    std::vector<int> found;
    for (const AccessFinder::Touch &touch : finder.touches(0, lifted.nodes[0]))
      found.push_back(touch.access.may);
    return found;
  };
  KernelReads known;
  EXPECT_EQ(modes(&known), (std::vector<int>{modeReadWrite, modeReadWrite}));
  ASSERT_TRUE(known.add("scale", std::vector<std::uint32_t>{2}));
  EXPECT_EQ(modes(&known), (std::vector<int>{modeReadWrite, modeRead}));
  EXPECT_EQ(modes(nullptr), (std::vector<int>{modeReadWrite, modeReadWrite}));
}

TEST(KernelReads, standForAllInstances) {
  KernelReads known;
  EXPECT_TRUE(known.add("at::native::scale", std::vector<std::uint32_t>{2, 3}));
  EXPECT_TRUE(known.contains("_ZN2at6native5scaleIfLb1EEEvPT_S2_S2_S2_", 3));
  EXPECT_TRUE(known.contains("_ZN2at6native5scaleEPfS0_S0_S0_", 2));
  EXPECT_FALSE(known.contains("_ZN2at6native5scaleIfLb1EEEvPT_S2_S2_S2_", 1));
  EXPECT_FALSE(known.contains("_ZN2at6native6scaledIfEEvPT_S2_S2_", 2));
  EXPECT_FALSE(known.contains("_ZN4mine2at6native5scaleIfEEvPT_", 2));
  EXPECT_FALSE(known.contains("scale", 2));
}

TEST(KernelReads, needNames) {
  KernelReads known;
  for (const char *name : {"", "::scale", "at::", "at::::scale"})
    EXPECT_FALSE(known.add(name, std::vector<std::uint32_t>{0})) << name;
  EXPECT_EQ(KernelReads::symbolPrefixOf("scale"), "_Z5scale");
  EXPECT_EQ(KernelReads::symbolPrefixOf("at::native::scale"), "_ZN2at6native5scale");
}

// What a rehearsed operation did not write, the second capture's may, where its parameter leads elsewhere.
TEST_F(LiftTest, declaredWritesAreOfTheSameAddresses) {
  char *a = allocate(pageBytes, "a"), *b = allocate(pageBytes, "b");
  declarePrivate(a);
  declarePrivate(b);
  heap_->beginCapture();
  heap_->endCapture();
  NodeDeclarations declarations;
  fake_.addKernel(graph_, {}, plain_, {bytesOf(a), bytesOf(7), bytesOf(a)});
  ASSERT_TRUE(declarations.addWrites(driver_, graph_, std::vector<CUdeviceptr>{}));
  const Rehearsal rehearsal(lift(), *heap_, declarations);
  fake_.destroyGraph(graph_);
  graph_ = fake_.createGraph();
  fake_.addKernel(graph_, {}, plain_, {bytesOf(a), bytesOf(7), bytesOf(b)});
  const LiftedGraph second = lift();
  const AccessFinder finder(*heap_, &rehearsal, second);
  const std::vector<AccessFinder::Touch> touches = finder.touches(0, second.nodes[0]);
  ASSERT_EQ(touches.size(), 2u);
  EXPECT_EQ(touches[0].access.may, modeRead);
  EXPECT_EQ(touches[1].access.may, modeReadWrite);
}

// Of an allocation that has any a node touches the declared extents alone, whichever of its words leads there.
TEST_F(LiftTest, believesDeclaredExtents) {
  char *a = allocate(8 * pageBytes, "a"), *b = allocate(2 * pageBytes, "b");
  const auto address = [](char *pointer) { return reinterpret_cast<CUdeviceptr>(pointer); };
  NodeDeclarations declarations;
  fake_.addKernel(graph_, {}, plain_, {bytesOf(a + 64), bytesOf(7), bytesOf(b)});
  ASSERT_TRUE(declarations.addExtents(driver_, graph_,
                                      {{address(a) + 6 * pageBytes, pageBytes},
                                       {address(a), pageBytes},
                                       {address(a) + pageBytes - 8, 16},
                                       {0x1000, 8}}));
  ASSERT_TRUE(declarations.addReads(driver_, graph_, {address(a)}));
  fake_.addKernel(graph_, {}, plain_, {bytesOf(a), bytesOf(7), bytesOf(b)});
  ASSERT_TRUE(declarations.addExtents(driver_, graph_, {}));
  const LiftedGraph lifted = lift();
  const AccessFinder finder(*heap_, nullptr, lifted, declarations);
  const std::vector<AccessFinder::Touch> touches = finder.touches(0, lifted.nodes[0]);
  ASSERT_EQ(touches.size(), 3u);
  EXPECT_EQ(touches[0].access.range, (Range{0, pageBytes + 8}));
  EXPECT_EQ(touches[1].access.range, (Range{6 * pageBytes, pageBytes}));
  EXPECT_EQ(touches[1].access.may, modeRead);
  EXPECT_EQ(touches[1].access.evidence, Evidence::Declared);
  EXPECT_EQ(touches[2].access.range, (Range{0, 2 * pageBytes}));
  EXPECT_EQ(finder.touches(1, lifted.nodes[1])[0].access.range, (Range{0, 8 * pageBytes})) << "nothing was said of it";
}

// What a pure node has aside it reaches by parameters that are pointers, and by these alone.
TEST_F(LiftTest, believesWhatIsDeclaredAside) {
  char *a = allocate(pageBytes, "a"), *b = allocate(pageBytes, "b");
  NodeDeclarations declarations;
  fake_.addKernel(graph_, {}, plain_, {bytesOf(a + 64), bytesOf(7), bytesOf(b)});
  fake_.addKernel(graph_, {}, plain_, {bytesOf(b), bytesOf(7), bytesOf(b + 8)});
  fake_.addKernel(graph_, {}, packed_, {bytesOf(Odd{a, 0, b, 0})});
  ASSERT_TRUE(declarations.addAsides(driver_, graph_, {reinterpret_cast<CUdeviceptr>(b)}));
  fake_.addKernel(graph_, {}, plain_, {bytesOf(a), bytesOf(7), bytesOf(b)});
  ASSERT_TRUE(declarations.addAsides(driver_, graph_, {}));

  LiftedGraph lifted = lift();
  const AccessFinder finder(*heap_, nullptr, lifted, declarations);
  const auto asides = [&] {
    std::vector<std::string> found;
    const CapturedStep step = describeStep(lifted, *heap_, finder, {});
    for (const Node &node : step.description.nodes)
      for (const Access &access : node.accesses)
        if (access.isAside)
          found.push_back(fmt::format("{}: {} by {}", node.captured, step.description.buffers[access.buffer].name,
                                      access.parameter));
    return found;
  };
  EXPECT_TRUE(asides().empty()) << "no node is pure";
  for (LiftedNode &node : lifted.nodes)
    node.operation = {1, true};
  EXPECT_EQ(asides(), (std::vector<std::string>{"0: b by 2", "1: b by 0", "1: b by 2"}));
  const CapturedStep step = describeStep(lifted, *heap_, finder, {});
  const std::vector<AsideWord> words = asideWords(step.description, 0);
  ASSERT_EQ(words.size(), 1u);
  EXPECT_EQ(words[0].parameter, 2u);
  EXPECT_EQ(words[0].address, reinterpret_cast<CUdeviceptr>(b));
  EXPECT_EQ(words[0].bytes, pageBytes);
}

// What a table says of a kernel's slots, with the numbers of the launch: mode, range, overwrites.
TEST_F(LiftTest, takesAccessesFromTables) {
  TestTable table;
  const Extent bytes = {{PUMPGRAPH_EXTENT_UNSIGNED, 4, 0, 1, 0}};
  const Extent threads = {{PUMPGRAPH_EXTENT_GRID_DIM, 0, 0, 0, 0},
                          {PUMPGRAPH_EXTENT_BLOCK_DIM, 0, 0, 0, 0},
                          {PUMPGRAPH_EXTENT_MULTIPLY, 0, 0, 0, 0}};
  table.add("plain", {reads(0, threads), overwrites(2, bytes)});
  tables_.add(&table.table);
  char *a = allocate(2 * pageBytes, "a"), *b = allocate(2 * pageBytes, "b");
  const CUgraphNode node = fake_.addKernel(graph_, {}, plain_, {bytesOf(a + 4096), bytesOf(512), bytesOf(b)});
  fake_.setLaunch(node, {8, 1, 1}, {128, 1, 1});
  fake_.addKernel(graph_, {node}, packed_, {bytesOf(Odd{a, 0, nullptr, 0})}); // in no table
  const CapturedStep step = describe();
  const std::vector<Access> &accesses = step.description.nodes[0].accesses;
  ASSERT_EQ(accesses.size(), 2u);
  EXPECT_EQ(accesses[0].range, (Range{4096, 8 * 128}));
  EXPECT_EQ(accesses[0].may, modeRead);
  EXPECT_EQ(accesses[0].must, modeNone);
  EXPECT_EQ(accesses[0].evidence, Evidence::Proved);
  EXPECT_EQ(accesses[0].parameter, 0);
  EXPECT_EQ(accesses[1].range, (Range{0, 512}));
  EXPECT_EQ(accesses[1].may, modeWrite);
  EXPECT_EQ(accesses[1].must, modeWrite);
  EXPECT_EQ(step.description.nodes[1].accesses[0].evidence, Evidence::Assumed);
  EXPECT_EQ(step.notes, std::vector<std::string>{"access tables know 1 of 2 kernel launches"});
}

// A result that a kernel overwrites before anybody looks is not what the next replay starts from.
TEST_F(LiftTest, takesOverwrittenResultsFromTables) {
  TestTable table;
  table.add("plain", {reads(0), overwrites(2, constant(pageBytes))});
  tables_.add(&table.table);
  char *input = allocate(pageBytes, "input");
  heap_->beginCapture();
  char *state = allocate(pageBytes, "state"), *part = allocate(2 * pageBytes, "part");
  for (char *result : {state, part}) {
    declarePrivate(result);
    fake_.addKernel(graph_, {}, plain_, {bytesOf(input), bytesOf(7), bytesOf(result)});
  }
  heap_->endCapture();
  const CapturedStep step = describe();
  EXPECT_FALSE(find(step.description, "state")->liveIn);
  EXPECT_TRUE(find(step.description, "part")->liveIn); // half of it is never written
}

// A pointer inside a struct is a slot like any other; a word that is none stays what it was assumed to be.
TEST_F(LiftTest, takesSlotsInStructsFromTables) {
  char *a = allocate(pageBytes, "a"), *b = allocate(pageBytes, "b");
  fake_.addKernel(graph_, {}, packed_, {bytesOf(Odd{a, 0, b, 0})});
  Slot second = reads(0);
  second.offset = 12;
  TestTable table;
  table.add("packed", {second});
  tables_.add(&table.table);
  const std::vector<Access> found = accesses();
  ASSERT_EQ(found.size(), 2U);
  EXPECT_EQ(found.front().may, modeReadWrite);
  EXPECT_EQ(found.front().evidence, Evidence::Assumed);
  EXPECT_EQ(found.back().may, modeRead);
  EXPECT_EQ(found.back().evidence, Evidence::Proved);
}

// A slot that nothing is reached through is no access.
TEST_F(LiftTest, dropsUnusedSlots) {
  TestTable table;
  Slot unused = reads(0);
  unused.may = modeNone;
  table.add("plain", {unused, reads(2)});
  tables_.add(&table.table);
  char *a = allocate(pageBytes, "a"), *b = allocate(pageBytes, "b");
  fake_.addKernel(graph_, {}, plain_, {bytesOf(a), bytesOf(7), bytesOf(b)});
  const CapturedStep step = describe();
  EXPECT_EQ(step.description.nodes[0].accesses.size(), 1u);
  EXPECT_EQ(find(step.description, "a"), nullptr);
}

// What one parameter overwrites another may read first, if both lead there, or if something leads there that is no
// parameter.
TEST_F(LiftTest, believesNoOverwriteOfWhatMayBeRead) {
  char *a = allocate(2 * pageBytes, "a");
  const auto mustOf = [&](const Slot &first, std::uint32_t flags, char *read) {
    TestTable table;
    table.add("plain", {first, overwrites(2, constant(512))}, flags);
    tables_.add(&table.table);
    fake_.destroyGraph(graph_);
    graph_ = fake_.createGraph();
    fake_.addKernel(graph_, {}, plain_, {bytesOf(read), bytesOf(7), bytesOf(a)});
    const std::vector<Access> found = accesses();
    tables_.remove(&table.table);
    EXPECT_EQ(found.back().may, modeWrite);
    return found.back().must;
  };
  Slot atomic = updates(0, constant(8)), pointers = reads(0, constant(512)), escaping = reads(0), unused = reads(0);
  atomic.flags = PUMPGRAPH_SLOT_ATOMIC;
  pointers.flags = PUMPGRAPH_SLOT_HOLDS_POINTERS;
  escaping.flags = PUMPGRAPH_SLOT_ESCAPES;
  unused.may = modeNone;
  EXPECT_EQ(mustOf(reads(0, constant(512)), 0, a), modeNone);
  EXPECT_EQ(mustOf(reads(0, constant(512)), 0, a + 256), modeNone);
  EXPECT_EQ(mustOf(reads(0), 0, a + 4096), modeNone); // how far it reads is unknown
  EXPECT_EQ(mustOf(atomic, 0, a), modeNone);
  EXPECT_EQ(mustOf(pointers, 0, a + 4096), modeNone);
  EXPECT_EQ(mustOf(escaping, 0, a + 4096), modeNone);
  EXPECT_EQ(mustOf(reads(0, constant(512)), PUMPGRAPH_KERNEL_OTHER_MEMORY, a + 4096), modeNone);
  EXPECT_EQ(mustOf(reads(0, constant(512)), 0, a + 4096), modeWrite);
  EXPECT_EQ(mustOf(overwrites(0, constant(512)), 0, a), modeWrite);
  EXPECT_EQ(mustOf(unused, 0, a), modeWrite);
}

// A child graph's nodes have launches of their own. What one overwrites another may have read.
TEST_F(LiftTest, takesAccessesInsideChildGraphsFromTables) {
  TestTable table;
  table.add("plain", {reads(0, {{PUMPGRAPH_EXTENT_GRID_DIM, 0, 0, 0, 0}}), overwrites(2, constant(64))});
  tables_.add(&table.table);
  char *a = allocate(pageBytes, "a"), *b = allocate(pageBytes, "b");
  CUgraph child = fake_.createGraph();
  const CUgraphNode first = fake_.addKernel(child, {}, plain_, {bytesOf(a), bytesOf(7), bytesOf(b)});
  const CUgraphNode second = fake_.addKernel(child, {first}, plain_, {bytesOf(b), bytesOf(7), bytesOf(nullptr)});
  fake_.setLaunch(first, {100, 1, 1}, {1, 1, 1});
  fake_.setLaunch(second, {200, 1, 1}, {1, 1, 1});
  fake_.addChild(graph_, {}, child);
  const std::vector<Access> found = accesses();
  ASSERT_EQ(found.size(), 3u);
  EXPECT_EQ(found[0].range.size, 100u);
  EXPECT_EQ(found[1].may, modeWrite);
  EXPECT_EQ(found[1].must, modeNone);
  EXPECT_EQ(found[2].range.size, 200u);
  EXPECT_EQ(found[2].may, modeRead);
}

// A table that speaks of parameters which the kernel does not have is that of another kernel.
TEST_F(LiftTest, ignoresTablesOfOtherKernels) {
  TestTable table;
  table.add("plain", {reads(0), reads(1)}); // parameter 1 has four bytes
  tables_.add(&table.table);
  char *a = allocate(pageBytes, "a");
  fake_.addKernel(graph_, {}, plain_, {bytesOf(a), bytesOf(7), bytesOf(0.0)});
  const CapturedStep step = describe();
  EXPECT_EQ(step.description.nodes[0].accesses[0].evidence, Evidence::Assumed);
  ASSERT_EQ(step.notes.size(), 1u);
  EXPECT_NE(step.notes[0].find("is of another kernel"), std::string::npos) << step.notes[0];
}

// Proved beats declared, and where they disagree the report says so. A slot that the table knows nothing of leaves
// what was declared.
TEST_F(LiftTest, reportsDisagreementWithDeclaredReads) {
  TestTable table;
  Slot unknown = updates(2);
  unknown.flags = PUMPGRAPH_SLOT_UNRESOLVED;
  table.add("plain", {updates(0), unknown});
  tables_.add(&table.table);
  char *a = allocate(pageBytes, "a"), *b = allocate(pageBytes, "b");
  for (int i = 0; i < 2; ++i)
    fake_.addKernel(graph_, {}, plain_, {bytesOf(a), bytesOf(7), bytesOf(b)});
  ASSERT_TRUE(
      declarations_.addReads(driver_, graph_, {reinterpret_cast<CUdeviceptr>(a), reinterpret_cast<CUdeviceptr>(b)}));
  const CapturedStep step = describe();
  const std::vector<Access> &found = step.description.nodes[0].accesses;
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[0].may, modeReadWrite);
  EXPECT_EQ(found[0].evidence, Evidence::Proved);
  EXPECT_EQ(found[1].may, modeRead);
  EXPECT_EQ(found[1].evidence, Evidence::Declared);
  ASSERT_EQ(step.notes.size(), 2u);
  EXPECT_EQ(step.notes[1], "the access table of \"plain\", parameter 0, says that memory may be written which was "
                           "declared only to be read (2 nodes, the first is 0)");
}

// An address that escapes may be used by whoever finds it: calibration sees that, and the report says so.
TEST_F(LiftTest, notesEscapingAddresses) {
  TestTable table;
  Slot escaping = reads(0);
  escaping.flags = PUMPGRAPH_SLOT_ESCAPES;
  table.add("plain", {escaping, reads(2)});
  tables_.add(&table.table);
  char *a = allocate(pageBytes, "a"), *b = allocate(pageBytes, "b");
  fake_.addKernel(graph_, {}, plain_, {bytesOf(a), bytesOf(7), bytesOf(b)});
  const CapturedStep step = describe();
  EXPECT_EQ(step.description.nodes[0].accesses[0].may, modeReadWrite);
  EXPECT_EQ(step.description.nodes[0].accesses[0].evidence, Evidence::Assumed);
  ASSERT_EQ(step.notes.size(), 2u);
  EXPECT_NE(step.notes[1].find("parameter 0, says that the address goes where it cannot be followed"),
            std::string::npos)
      << step.notes[1];
}

// Other values among a kernel's parameters are other parameters, though no word of them is an address.
TEST_F(LiftTest, comparesLaunches) {
  char *a = allocate(pageBytes, "a");
  const CUgraphNode node = fake_.addKernel(graph_, {}, plain_, {bytesOf(a), bytesOf(7), bytesOf(0.0)});
  const LiftedNode before = lift().nodes[0];
  EXPECT_TRUE(lift().nodes[0].hasParametersOf(before));
  fake_.setLaunch(node, {2, 1, 1}, {1, 1, 1});
  EXPECT_FALSE(lift().nodes[0].hasParametersOf(before));
  fake_.destroyGraph(graph_);
  graph_ = fake_.createGraph();
  fake_.addKernel(graph_, {}, plain_, {bytesOf(a), bytesOf(8), bytesOf(0.0)});
  EXPECT_FALSE(lift().nodes[0].hasParametersOf(before));
}

// Names go to the nodes that came since the last one, whatever was said of reads meanwhile.
TEST_F(LiftTest, namesNodes) {
  char *a = allocate(pageBytes, "a");
  NodeDeclarations declarations;
  std::vector<CUgraphNode> nodes;
  for (const char *label : {"first", "", "third"}) {
    nodes.push_back(fake_.addKernel(graph_, {}, plain_, {bytesOf(a), bytesOf(7), bytesOf(a)}));
    ASSERT_TRUE(declarations.addReads(driver_, graph_, {reinterpret_cast<CUdeviceptr>(a)}));
    nodes.push_back(fake_.addKernel(graph_, {}, plain_, {bytesOf(a), bytesOf(7), bytesOf(a)}));
    ASSERT_TRUE(declarations.addLabel(driver_, graph_, label));
  }
  const NodeLabels expected{{nodes[0], "first"}, {nodes[1], "first"}, {nodes[4], "third"}, {nodes[5], "third"}};
  EXPECT_EQ(declarations.labels(), expected);
}

// Uncommitted changes are taken back, edges' kinds included; committed ones stay.
// Nodes that come between two calls are one operation, unless nothing is said of them.
TEST_F(LiftTest, countsOperations) {
  char *a = allocate(pageBytes, "a");
  std::vector<CUgraphNode> nodes;
  const auto launch = [&] {
    nodes.push_back(fake_.addKernel(graph_, {}, plain_, {bytesOf(a), bytesOf(7), bytesOf(a)}));
  };
  const auto say = [&](OperationKind kind) { EXPECT_TRUE(declarations_.addOperation(driver_, graph_, kind)); };
  launch();
  say(OperationKind::Unknown);
  launch();
  launch();
  say(OperationKind::Pure);
  say(OperationKind::Whole); // of no nodes: no operation
  launch();
  say(OperationKind::Whole);
  const Operations &found = declarations_.operations();
  EXPECT_EQ(found.size(), 3u);
  EXPECT_FALSE(found.contains(nodes[0]));
  for (const CUgraphNode node : {nodes[1], nodes[2]}) {
    EXPECT_EQ(found.at(node).number, 1u);
    EXPECT_TRUE(found.at(node).isPure);
  }
  EXPECT_EQ(found.at(nodes[3]).number, 2u);
  EXPECT_FALSE(found.at(nodes[3]).isPure);
}

// Of each operation the first to touch scratch memory overwrites it. Who comes again late in the same operation does
// not, nor does a node of which nothing is known. What is freed at another time is no scratch memory.
TEST_F(LiftTest, nothingStaysInScratchMemory) {
  char *a = allocate(pageBytes, "a");
  heap_->beginCapture();
  char *scratch = allocate(pageBytes, "scratch"), *other = allocate(pageBytes, "other");
  for (int node = 0; node < 6; ++node)
    fake_.addKernel(graph_, {}, plain_, {bytesOf(scratch), bytesOf(7), bytesOf(node == 5 ? other : a)});
  free(other);
  heap_->endCapture();
  heap_->freedIsScratch(true);
  free(scratch);
  heap_->freedIsScratch(false);
  LiftedGraph lifted = lift();
  const std::array<NodeOperation, 6> operations{{{1, true}, {1, true}, {2, false}, {1, true}, {}, {3, true}}};
  for (std::size_t node = 0; node < 6; ++node)
    lifted.nodes[node].operation = operations[node];
  const AccessFinder finder(*heap_, nullptr, lifted, declarations_, &tables_);
  const Description step = describeStep(lifted, *heap_, finder, {}).description;
  std::vector<bool> overwrites, isPure;
  for (const Node &node : step.nodes) {
    isPure.push_back(node.isPure);
    for (const Access &access : node.accesses) {
      const bool isScratch = step.buffers[access.buffer].name == "scratch";
      if (isScratch)
        overwrites.push_back(access.must == modeWrite);
      else
        EXPECT_EQ(access.must, modeNone);
    }
  }
  EXPECT_EQ(overwrites, (std::vector<bool>{true, false, true, false, false, true}));
  EXPECT_EQ(isPure, (std::vector<bool>{true, true, false, true, false, true}));
}

// What a table says of a kernel counts for its launches, whatever is said of the operation that they are part of.
TEST_F(LiftTest, tablesTellWhichKernelsArePure) {
  TestTable table;
  tables_.add(&table.add("plain", {reads(0), updates(2)}, PUMPGRAPH_KERNEL_PURE).table);
  char *a = allocate(pageBytes, "a"), *b = allocate(pageBytes, "b");
  FakeKernel others{"plain", {8, 4}, {}}; // another kernel of that name has not got these parameters
  for (int node = 0; node < 2; ++node)
    fake_.addKernel(graph_, {}, plain_, {bytesOf(a), bytesOf(7), bytesOf(b)});
  fake_.addKernel(graph_, {}, packed_, {bytesOf(Odd{a, 3, b, 0})}, true);
  fake_.addKernel(graph_, {}, others, {bytesOf(a), bytesOf(7)});
  CUgraph child = fake_.createGraph();
  fake_.addKernel(child, {}, plain_, {bytesOf(a), bytesOf(7), bytesOf(b)});
  fake_.addChild(graph_, {}, child);
  LiftedGraph lifted = lift();
  lifted.nodes[1].operation = {1, false};
  const AccessFinder finder(*heap_, nullptr, lifted, declarations_, &tables_);
  std::vector<bool> isPure;
  for (const Node &node : describeStep(lifted, *heap_, finder, {}).description.nodes)
    isPure.push_back(node.isPure);
  EXPECT_EQ(isPure, (std::vector<bool>{true, true, false, false, false}));
}

// Of a kernel whose threads have nothing to do with each other, one slot must not lead to what another one writes.
TEST_F(LiftTest, someKernelsArePureWhereSlotsLieApart) {
  const auto isPure = [&](const Slot &first, const Slot &second, const char *from, const char *to) {
    TestTable table;
    tables_.add(&table.add("plain", {first, second}, PUMPGRAPH_KERNEL_PURE_APART).table);
    fake_.addKernel(graph_, {}, plain_, {bytesOf(from), bytesOf(7), bytesOf(to)});
    const bool found = describe().description.nodes.at(0).isPure;
    tables_.remove(&table.table);
    fake_.destroyGraph(std::exchange(graph_, fake_.createGraph()));
    return found;
  };
  char *a = allocate(pageBytes, "a"), *b = allocate(pageBytes, "b");
  const Slot from = reads(0, constant(1024)), to = overwrites(2, constant(1024));
  EXPECT_TRUE(isPure(from, to, a, b));
  EXPECT_FALSE(isPure(from, to, a, a));
  EXPECT_FALSE(isPure(from, to, a, a + 1020));
  EXPECT_TRUE(isPure(from, to, a, a + 1024));
  EXPECT_TRUE(isPure(reads(0), reads(2), a, a));
  EXPECT_FALSE(isPure(overwrites(0, constant(1024)), to, a, a + 512));

  // Nothing is known of where it reads: anywhere in the allocation. Where it writes has to be known.
  Slot openEnd = to, never = to;
  openEnd.end = {};
  never.end = constant(1) + constant(INT64_MAX);
  EXPECT_TRUE(isPure(reads(0), to, a, b));
  EXPECT_FALSE(isPure(reads(0), to, a, a + 4096));
  EXPECT_FALSE(isPure(from, openEnd, a, b));
  EXPECT_FALSE(isPure(from, never, a, b));

  // An operand that is left out, and one that is not the session's.
  char others[4096];
  EXPECT_TRUE(isPure(from, to, nullptr, b));
  EXPECT_FALSE(isPure(from, to, others, b));
}

// A kernel that is pure is no operation for that: what others left in scratch memory it may read.
TEST_F(LiftTest, pureKernelsOfTablesFindScratchMemory) {
  TestTable table;
  tables_.add(&table.add("plain", {reads(0), updates(2)}, PUMPGRAPH_KERNEL_PURE).table);
  char *a = allocate(pageBytes, "a");
  heap_->beginCapture();
  char *scratch = allocate(pageBytes, "scratch");
  const CUgraphNode first = fake_.addKernel(graph_, {}, plain_, {bytesOf(a), bytesOf(7), bytesOf(scratch)});
  fake_.addKernel(graph_, {first}, plain_, {bytesOf(scratch), bytesOf(7), bytesOf(a)});
  heap_->endCapture();
  heap_->freedIsScratch(true);
  free(scratch);
  heap_->freedIsScratch(false);
  const Description step = describe().description;
  for (const Node &node : step.nodes) {
    EXPECT_TRUE(node.isPure);
    for (const Access &access : node.accesses)
      EXPECT_EQ(access.must, modeNone);
  }
}

// What comes from the host may be other data when it comes again.
TEST_F(LiftTest, onlyCopiesOnTheDeviceArePure) {
  char *a = allocate(pageBytes, "a"), *b = allocate(pageBytes, "b");
  char host[64];
  fake_.addCopy(graph_, {}, a, b, 2048);
  fake_.addCopy(graph_, {}, a, host, sizeof host);
  fake_.addFill(graph_, {}, b, 1, pageBytes);
  LiftedGraph lifted = lift();
  for (LiftedNode &node : lifted.nodes)
    node.operation = {1, true};
  const AccessFinder finder(*heap_, nullptr, lifted, declarations_, &tables_);
  std::vector<bool> isPure;
  for (const Node &node : describeStep(lifted, *heap_, finder, {}).description.nodes)
    isPure.push_back(node.isPure);
  EXPECT_EQ(isPure, (std::vector<bool>{true, false, true}));
}

TEST_F(LiftTest, editorRestoresTheGraph) {
  char *a = allocate(pageBytes, "a");
  char host[512];
  const CUgraphNode first = fake_.addKernel(graph_, {}, plain_, {bytesOf(a), bytesOf(7), bytesOf(a)});
  const CUgraphNode second = fake_.addKernel(graph_, {first}, plain_, {bytesOf(a), bytesOf(7), bytesOf(a)});
  fake_.makeEdgesProgrammatic(graph_);
  const std::string before = fake_.print(graph_);
  const CUgraphEdgeData data = lift().edges[0].data;
  const auto edit = [&](GraphEditor &editor) {
    const Expected<CUgraphNode> copy = editor.addCopyToHost(host, reinterpret_cast<CUdeviceptr>(a), sizeof host);
    ASSERT_TRUE(copy);
    ASSERT_TRUE(editor.addEdge(first, *copy));
    ASSERT_TRUE(editor.addEdge(*copy, second));
    ASSERT_TRUE(editor.demote(first, second, data));
  };
  {
    GraphEditor editor(driver_, graph_, nullptr);
    edit(editor);
    EXPECT_NE(fake_.print(graph_), before);
  }
  EXPECT_EQ(fake_.print(graph_), before);
  {
    GraphEditor editor(driver_, graph_, nullptr);
    edit(editor);
    editor.commit();
  }
  EXPECT_EQ(lift().edges.size(), 3u);
}

/// "a", and "b" in its place on the same stream once `node` has been captured.
class InTurnsTest : public LiftTest {
protected:
  void begin() {
    heap_->beginCapture({{3 * pageBytes, false}, {2 * pageBytes, false}});
    a_ = reinterpret_cast<char *>(*heap_->allocate(3 * pageBytes, nullptr, "a"));
  }
  void replaceAfter(CUgraphNode node) {
    ASSERT_TRUE(heap_->free(reinterpret_cast<CUdeviceptr>(a_), nullptr));
    b_ = reinterpret_cast<char *>(*heap_->allocate(2 * pageBytes, nullptr, "b", {node}));
    ASSERT_EQ(b_, a_);
  }
  CapturedStep end() {
    EXPECT_TRUE(heap_->free(reinterpret_cast<CUdeviceptr>(b_), nullptr));
    heap_->endCapture();
    return describe();
  }
  CUgraphNode use(std::initializer_list<CUgraphNode> after, const char *buffer) {
    return fake_.addKernel(graph_, after, plain_, {bytesOf(buffer), bytesOf(7), bytesOf(0.0)});
  }

  char *a_ = nullptr, *b_ = nullptr;
};

// One buffer; who uses it first for the second of them overwrites it, for it finds what is nobody's any more.
TEST_F(InTurnsTest, areOneBufferWhoseOldValueEnds) {
  begin();
  const CUgraphNode last = use({use({}, a_)}, a_);
  replaceAfter(last);
  const CUgraphNode first = use({last}, b_);
  use({first}, b_);
  use({first}, b_);
  const CapturedStep step = end();
  EXPECT_EQ(step.conflict, "");
  ASSERT_EQ(step.description.buffers.size(), 1U);
  const Buffer &buffer = step.description.buffers[0];
  EXPECT_EQ(buffer.name, "a and 1 after it");
  EXPECT_EQ(buffer.size, 3 * pageBytes);
  EXPECT_TRUE(buffer.isPrivate && !buffer.liveIn && !buffer.liveOut);
  for (NodeIndex node = 0; node < 5; ++node) {
    ASSERT_EQ(step.description.nodes[node].accesses.size(), 1U);
    const Access &access = step.description.nodes[node].accesses[0];
    EXPECT_EQ(access.range, (Range{0, 3 * pageBytes}));
    EXPECT_EQ(access.evidence, node == 2 ? Evidence::Allocated : Evidence::Assumed) << node;
    EXPECT_EQ(access.must, node == 2 ? modeWrite : modeNone) << node;
    EXPECT_EQ(access.may, modeReadWrite);
  }
}

// Nobody is the first where two start side by side: then the old value is taken for one that is wanted.
TEST_F(InTurnsTest, keepTheOldValueWhereNobodyIsFirst) {
  begin();
  const CUgraphNode last = use({}, a_);
  replaceAfter(last);
  use({last}, b_);
  use({last}, b_);
  const CapturedStep step = end();
  EXPECT_EQ(step.conflict, "");
  for (const Node &node : step.description.nodes)
    EXPECT_EQ(node.accesses.at(0).evidence, Evidence::Assumed);
}

// Freed on a stream while another one uses it: nobody can make that right any more, so it is said.
TEST_F(InTurnsTest, saysWhoUsesMemoryThatIsSomebodyElses) {
  begin();
  const CUgraphNode last = use({}, a_), beside = use({}, a_);
  replaceAfter(last);
  use({last}, b_);
  const CapturedStep step = end();
  EXPECT_NE(step.conflict.find("\"b\" got the memory of \"a\""), std::string::npos) << step.conflict;
  (void)beside;
}

} // namespace
