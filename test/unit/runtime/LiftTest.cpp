// SPDX-License-Identifier: Apache-2.0
// Reading graphs back, telling pointers from integers, what the buffers' facts become.
#include "runtime/capture/DescribeStep.h"
#include "runtime/lower/GraphEditor.h"
#include "test/unit/runtime/MemoryTest.h"

#include <algorithm>

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
    const AccessFinder finder(*heap_, rehearsal, lifted);
    CapturedStep step = describeStep(lifted, *heap_, finder, {});
    EXPECT_EQ(validate(step.description), "");
    return step;
  }
  static const Buffer *find(const Description &step, const std::string &name) {
    const auto found = std::find_if(step.buffers.begin(), step.buffers.end(),
                                    [&](const Buffer &buffer) { return buffer.name == name; });
    return found == step.buffers.end() ? nullptr : &*found;
  }

  CUgraph graph_ = nullptr;
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
  EXPECT_EQ(finder.touches(1, lifted.nodes[1]).size(), 1u);
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
  const AccessFinder finder(*heap_, nullptr, lifted, declarations.reads());
  for (std::size_t node = 0; node < 3; ++node) {
    const std::vector<AccessFinder::Touch> touches = finder.touches(node, lifted.nodes[node]);
    ASSERT_EQ(touches.size(), 2u);
    EXPECT_EQ(touches[0].access.may, node == 1 ? modeRead : modeReadWrite);
    EXPECT_EQ(touches[0].access.evidence, node == 1 ? Evidence::Declared : Evidence::Assumed);
    EXPECT_EQ(touches[1].access.may, modeReadWrite);
  }
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

} // namespace
