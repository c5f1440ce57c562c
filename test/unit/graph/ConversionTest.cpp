// SPDX-License-Identifier: Apache-2.0
#include "pumpgraph/graph/Conversion.h"

#include "test/unit/graph/RandomDescription.h"

#include "mlir/Bytecode/BytecodeWriter.h"
#include "mlir/IR/Verifier.h"
#include "mlir/Parser/Parser.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace pumpgraph::ir {
namespace {

using test::dump;
using test::randomDescription;

constexpr std::uint32_t seeds = 500;

/// IR keeps edges by the node they lead to.
Description withSortedEdges(Description description) {
  std::stable_sort(description.edges.begin(), description.edges.end(),
                   [](const Edge &a, const Edge &b) { return a.to < b.to; });
  return description;
}

GraphOp onlyGraph(mlir::ModuleOp module) {
  return *module.getOps<GraphOp>().begin();
}

class Conversion : public testing::Test {
protected:
  Conversion() : context_(mlir::MLIRContext::Threading::DISABLED) { context_.loadDialect<PumpDialect>(); }

  std::string dumpParsed(llvm::StringRef source) {
    mlir::OwningOpRef<mlir::ModuleOp> module = mlir::parseSourceString<mlir::ModuleOp>(source, &context_);
    return module ? dump(toDescription(onlyGraph(*module)).description) : "does not parse: " + source.str();
  }

  mlir::MLIRContext context_;
};

std::string printed(mlir::ModuleOp module) {
  std::string text;
  llvm::raw_string_ostream stream(text);
  module.print(stream);
  return text;
}

std::string asBytecode(mlir::ModuleOp module) {
  std::string bytes;
  llvm::raw_string_ostream stream(bytes);
  EXPECT_TRUE(succeeded(mlir::writeBytecodeToFile(module, stream)));
  return bytes;
}

// Whatever is valid as a description is valid as IR.
TEST_F(Conversion, validDescriptionsVerify) {
  for (std::uint32_t seed = 0; seed < seeds; ++seed)
    ASSERT_TRUE(succeeded(mlir::verify(*toModule(randomDescription(seed), context_)))) << "seed " << seed;
}

TEST_F(Conversion, comesBackEqual) {
  for (std::uint32_t seed = 0; seed < seeds; ++seed) {
    const Description description = withSortedEdges(randomDescription(seed));
    mlir::OwningOpRef<mlir::ModuleOp> module = toModule(description, context_);
    ASSERT_EQ(dump(toDescription(onlyGraph(*module)).description), dump(description)) << "seed " << seed;
  }
}

// Times, names and addresses survive text and bytecode to the last bit.
TEST_F(Conversion, comesBackEqualThroughTextAndBytecode) {
  for (std::uint32_t seed = 0; seed < seeds; ++seed) {
    const Description description = withSortedEdges(randomDescription(seed));
    mlir::OwningOpRef<mlir::ModuleOp> module = toModule(description, context_);
    ASSERT_EQ(dumpParsed(printed(*module)), dump(description)) << "seed " << seed;
    ASSERT_EQ(dumpParsed(asBytecode(*module)), dump(description)) << "seed " << seed;
  }
}

TEST_F(Conversion, knowsWhereEachPartComesFrom) {
  const Description description = randomDescription(11);
  mlir::OwningOpRef<mlir::ModuleOp> module = toModule(description, context_);
  Lifted lifted = toDescription(onlyGraph(*module));
  ASSERT_EQ(lifted.nodes.size(), description.nodes.size());
  ASSERT_EQ(lifted.buffers.size(), description.buffers.size());
  for (NodeIndex i = 0; i < description.nodes.size(); ++i)
    EXPECT_EQ(lifted.nodes[i].getName(), description.nodes[i].name);
}

TEST_F(Conversion, updateMakesAnyStepOutOfAnyOther) {
  for (std::uint32_t seed = 0; seed < seeds; ++seed) {
    const Description after = withSortedEdges(randomDescription(seed + 1));
    mlir::OwningOpRef<mlir::ModuleOp> module = toModule(randomDescription(seed), context_);
    update(onlyGraph(*module), after);
    ASSERT_TRUE(succeeded(mlir::verify(*module))) << "seed " << seed;
    ASSERT_EQ(dump(toDescription(onlyGraph(*module)).description), dump(after)) << "seed " << seed;
  }
}

// A plan adds nodes between captured ones; those stay the ops they were, with their places in the text.
TEST_F(Conversion, updateKeepsCapturedOps) {
  constexpr llvm::StringLiteral source = R"(pump.graph @step page_bytes(4096) {
    %a = pump.buffer "a" private size(4096)
    %k0 = pump.kernel "produce" node(0) [write %a[0, 4096] assumed] {mark}
    %k1 = pump.kernel "consume" node(1) after(%k0) [read %a[0, 4096] assumed]
  })";
  mlir::OwningOpRef<mlir::ModuleOp> module = mlir::parseSourceString<mlir::ModuleOp>(source, &context_);
  GraphOp graph = onlyGraph(*module);
  Lifted before = toDescription(graph);
  Description planned = before.description;
  Node evict;
  evict.kind = NodeKind::Evict;
  evict.range = {0, 4096};
  planned.nodes.insert(planned.nodes.begin() + 1, evict);
  planned.edges = {{0, 1, EdgeKind::Full}, {1, 2, EdgeKind::Full}};
  update(graph, planned);

  Lifted after = toDescription(graph);
  ASSERT_EQ(after.nodes.size(), 3u);
  EXPECT_EQ(after.nodes[0].getOperation(), before.nodes[0].getOperation());
  EXPECT_EQ(after.nodes[2].getOperation(), before.nodes[1].getOperation());
  EXPECT_TRUE(after.nodes[0]->hasAttr("mark"));
  EXPECT_EQ(after.nodes[1].getNodeKind(), NodeKind::Evict);
}

} // namespace
} // namespace pumpgraph::ir
