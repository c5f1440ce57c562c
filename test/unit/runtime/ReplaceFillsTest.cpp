// SPDX-License-Identifier: Apache-2.0
// Kernels in the place of memset nodes: the same bytes, the same order, and the nodes back if somebody gives up.
#include "runtime/lower/ReplaceFills.h"
#include "test/unit/runtime/MemoryTest.h"

#include <algorithm>
#include <set>
#include <string>

using namespace pumpgraph;
using namespace pumpgraph::runtime;
using namespace pumpgraph::runtime::test;

namespace {

class ReplaceFillsTest : public MemoryTest {
protected:
  /// A kernel, three fills behind it, one behind the other in one branch, and a kernel behind all.
  void SetUp() override {
    openMemory(8);
    kernel_ = std::move(*FillKernel::load(driver_));
    graph_ = fake_.createGraph();
    target_ = reinterpret_cast<char *>(*heap_->allocate(pageBytes, nullptr, "target"));
    const CUgraphNode first = fake_.addKernel(graph_, {}, nothing_, {bytesOf(target_)});
    const CUgraphNode bytes = addFill(first, {at(1), 0, 0x17, 1, 5, 1});
    const CUgraphNode halves = addFill(first, {at(64), 32, 0xABCD, 2, 3, 4});
    const CUgraphNode words = addFill(halves, {at(4096), 0, 0x12345678, 4, 1000, 1});
    fake_.addKernel(graph_, {bytes, words}, nothing_, {bytesOf(target_)});
  }
  void TearDown() override { fake_.destroyGraph(graph_); }

  CUdeviceptr at(std::uint64_t offset) const { return reinterpret_cast<CUdeviceptr>(target_) + offset; }
  /// `fill`: target, pitch, value, bytes of an element, elements in a row, rows.
  CUgraphNode addFill(CUgraphNode after, const CUDA_MEMSET_NODE_PARAMS &fill) {
    CUgraphNode node = nullptr;
    EXPECT_TRUE(driver_.graphAddMemsetNode(&node, graph_, &after, 1, &fill, nullptr));
    return node;
  }

  LiftedGraph lift(const FillKernel *fills = nullptr) {
    Expected<LiftedGraph> lifted = liftGraph(driver_, graph_, *addresses_, nullptr, fills);
    EXPECT_TRUE(lifted) << (lifted ? "" : lifted.error().message);
    return lifted ? *lifted : LiftedGraph{};
  }
  Status replace(GraphEditor &editor, LiftedGraph &lifted) {
    return replaceFills(editor, driver_, *kernel_, *addresses_, lifted);
  }

  /// What the graph leaves of a page of zeros.
  std::string run() {
    std::fill_n(target_, pageBytes, '\0');
    CUgraphExec exec = nullptr;
    EXPECT_TRUE(driver_.graphInstantiate(&exec, graph_, 0));
    EXPECT_TRUE(driver_.graphLaunch(exec, nullptr));
    EXPECT_TRUE(driver_.graphExecDestroy(exec));
    return {target_, pageBytes};
  }

  static std::size_t fillsOf(const LiftedGraph &graph) {
    return static_cast<std::size_t>(std::count_if(
        graph.nodes.begin(), graph.nodes.end(), [](const LiftedNode &node) { return node.kind == NodeKind::Memset; }));
  }
  static std::string nameOf(const LiftedNode &node) {
    return node.spans.empty() ? fmt::format("kernel {}", node.launches.size())
                              : fmt::format("fill {:#x} {} {}", node.spans[0].address, node.spans[0].bytes,
                                            static_cast<int>(node.spans[0].must));
  }
  static std::multiset<std::string> edgesOf(const LiftedGraph &graph) {
    std::multiset<std::string> edges;
    for (const LiftedEdge &edge : graph.edges)
      edges.insert(nameOf(graph.nodes[edge.from]) + " -> " + nameOf(graph.nodes[edge.to]));
    return edges;
  }

  FakeKernel nothing_{"nothing", {8}, [](const FakeKernel::Arguments &) {}};
  std::unique_ptr<FillKernel> kernel_;
  CUgraph graph_ = nullptr;
  char *target_ = nullptr;
};

TEST_F(ReplaceFillsTest, writesTheSameBytesInTheSameOrder) {
  const LiftedGraph before = lift();
  const std::string expected = run();
  ASSERT_NE(expected, std::string(pageBytes, '\0'));
  LiftedGraph lifted = before;
  GraphEditor editor(driver_, graph_, nullptr);
  ASSERT_TRUE(replace(editor, lifted));
  editor.commit();

  EXPECT_EQ(fillsOf(lift()), 0u);
  EXPECT_EQ(run(), expected);
  const LiftedGraph after = lift(kernel_.get());
  EXPECT_EQ(fillsOf(after), 3u);
  EXPECT_EQ(edgesOf(after), edgesOf(before));
  std::set<CUgraphNode> handles;
  for (const LiftedNode &node : after.nodes)
    handles.insert(node.handle);
  for (std::size_t i = 0; i < lifted.nodes.size(); ++i) {
    EXPECT_TRUE(handles.contains(lifted.nodes[i].handle)) << i;
    const auto same = std::find_if(after.nodes.begin(), after.nodes.end(),
                                   [&](const LiftedNode &node) { return node.handle == lifted.nodes[i].handle; });
    EXPECT_TRUE(same != after.nodes.end() && same->hasParametersOf(before.nodes[i])) << i;
  }
}

TEST_F(ReplaceFillsTest, givesTheNodesBack) {
  const LiftedGraph before = lift();
  const std::string expected = run();
  {
    LiftedGraph lifted = before;
    GraphEditor editor(driver_, graph_, nullptr);
    ASSERT_TRUE(replace(editor, lifted));
  }
  const LiftedGraph after = lift();
  EXPECT_EQ(fillsOf(after), 3u);
  EXPECT_EQ(edgesOf(after), edgesOf(before));
  EXPECT_EQ(run(), expected);
}

// Whichever call fails, the graph is what it was.
TEST_F(ReplaceFillsTest, givesTheNodesBackAfterAFailure) {
  const std::string expected = run();
  const std::multiset<std::string> edges = edgesOf(lift());
  for (const char *call :
       {"cuGraphAddKernelNode", "cuGraphAddDependencies", "cuGraphRemoveDependencies", "cuGraphDestroyNode"})
    for (int nth = 1; nth <= 3; ++nth) {
      fake_.failCall(call, nth, CUDA_ERROR_OUT_OF_MEMORY);
      {
        LiftedGraph lifted = lift();
        GraphEditor editor(driver_, graph_, nullptr);
        EXPECT_FALSE(replace(editor, lifted)) << call << " " << nth;
      }
      EXPECT_EQ(fillsOf(lift()), 3u) << call << " " << nth;
      EXPECT_EQ(edgesOf(lift()), edges) << call << " " << nth;
      EXPECT_EQ(run(), expected) << call << " " << nth;
    }
}

// A fill of memory that is not the session's may be of any device's.
TEST_F(ReplaceFillsTest, leavesWhatIsNotTheSessions) {
  char elsewhere[16];
  const CUDA_MEMSET_NODE_PARAMS fill{reinterpret_cast<CUdeviceptr>(elsewhere), 0, 0, 1, 16, 1};
  CUgraphNode node = nullptr;
  ASSERT_TRUE(driver_.graphAddMemsetNode(&node, graph_, nullptr, 0, &fill, nullptr));
  LiftedGraph lifted = lift();
  GraphEditor editor(driver_, graph_, nullptr);
  ASSERT_TRUE(replace(editor, lifted));
  EXPECT_EQ(fillsOf(lift()), 1u);
}

TEST_F(ReplaceFillsTest, knowsChainsFromBranches) {
  EXPECT_TRUE(hasBranches(lift()));
  const CUgraph chain = fake_.createGraph();
  const auto isBranched = [&] { return hasBranches(*liftGraph(driver_, chain, *addresses_, nullptr)); };
  EXPECT_FALSE(isBranched());
  const CUgraphNode first = fake_.addKernel(chain, {}, nothing_, {bytesOf(target_)});
  const CUgraphNode second = fake_.addKernel(chain, {first}, nothing_, {bytesOf(target_)});
  // As programmatic launches leave them: an edge that others imply is no branch.
  fake_.addKernel(chain, {first, second}, nothing_, {bytesOf(target_)});
  EXPECT_FALSE(isBranched());
  fake_.addKernel(chain, {}, nothing_, {bytesOf(target_)});
  EXPECT_TRUE(isBranched());
  fake_.destroyGraph(chain);
}

} // namespace
