// SPDX-License-Identifier: Apache-2.0
// The compiler library and the passes of pump-graph-opt are two ways to the same plan. This program holds an MLIR of
// its own and opens the library beside it, as a process that carries another LLVM would.
#include "passes/ir/Passes.h"
#include "pumpgraph/compiler.h"
#include "pumpgraph/graph/Conversion.h"

#include "mlir/Pass/PassManager.h"
#include "mlir/Pass/PassRegistry.h"

#include <gtest/gtest.h>

#include <dlfcn.h>

#include <random>

namespace pumpgraph {
namespace {

constexpr std::uint64_t budgetBytes = 12 << 20;

/// Kernels on two streams over private buffers of a few pages, each touching at most three of them.
Description randomStep(std::uint32_t seed) {
  std::mt19937 random(seed);
  const auto upTo = [&](std::uint32_t most) { return std::uniform_int_distribution<std::uint32_t>(0, most)(random); };
  Description step;
  for (BufferIndex i = 0; i < 8; ++i) {
    Buffer &buffer = step.buffers.emplace_back();
    buffer.name = "buffer" + std::to_string(i);
    buffer.size = (1 + upTo(3)) << 20;
    buffer.isPrivate = i > 0;
    buffer.liveIn = buffer.liveOut = upTo(1) == 1;
  }
  for (NodeIndex i = 0; i < 20; ++i) {
    Node &node = step.nodes.emplace_back();
    node.captured = static_cast<std::int32_t>(i);
    node.name.assign(upTo(1) == 1 ? "_Z3addPKfPf" : "gemm");
    for (std::int32_t parameter = 0; parameter < 2; ++parameter) {
      const BufferIndex buffer = upTo(7);
      node.accesses.push_back(
          {buffer, {0, step.buffers[buffer].size}, modeReadWrite, modeNone, Evidence::Assumed, parameter});
    }
    if (i > 0)
      step.edges.push_back({i - 1, i, EdgeKind::Full});
  }
  return step;
}

std::string printed(ir::GraphOp graph) {
  std::string text;
  llvm::raw_string_ostream stream(text);
  graph.print(stream);
  stream << '\n';
  return text;
}

/// The IR, or what was wrong.
std::string lowerWithPasses(const Description &step) {
  mlir::MLIRContext context(mlir::MLIRContext::Threading::DISABLED);
  mlir::OwningOpRef<mlir::ModuleOp> module = ir::toModule(step, context);
  std::string complaint;
  const mlir::ScopedDiagnosticHandler handler(&context,
                                              [&](mlir::Diagnostic &diagnostic) { complaint = diagnostic.str(); });
  mlir::PassManager passes(&context);
  const std::string pipeline =
      "pump.graph(annotate-accesses,estimate-costs,plan-residency{budget=" + std::to_string(budgetBytes) +
      "},check-residency,lower-virtual,check-residency)";
  if (failed(mlir::parsePassPipeline(pipeline, passes)) || failed(passes.run(*module)))
    return complaint;
  return printed(*module->getOps<ir::GraphOp>().begin());
}

/// The library's functions, looked up by name.
class Library {
public:
  Library() : handle_(dlopen(PUMPGRAPH_COMPILER_LIBRARY, RTLD_NOW | RTLD_LOCAL)) {}
  bool isOpen() const { return handle_; }

  template <typename Function> Function *find(const char *name) const {
    return reinterpret_cast<Function *>(dlsym(handle_, name));
  }

  std::string lower(const Description &step) const {
    pumpgraph_compiler_options options{};
    options.struct_size = sizeof options;
    options.budget_bytes = budgetBytes;
    pumpgraph_compilation *compilation = nullptr;
    find<decltype(pumpgraph_compiler_compile)>("pumpgraph_compiler_compile")(DescriptionView(step).get(), &options,
                                                                             &compilation);
    const pumpgraph_candidate *candidate =
        find<decltype(pumpgraph_compilation_candidate)>("pumpgraph_compilation_candidate")(compilation, 0);
    if (!candidate)
      return find<decltype(pumpgraph_compilation_message)>("pumpgraph_compilation_message")(compilation);
    char *text = find<decltype(pumpgraph_compiler_print)>("pumpgraph_compiler_print")(candidate->lowered, nullptr);
    const std::string copy = text;
    find<decltype(pumpgraph_compiler_string_free)>("pumpgraph_compiler_string_free")(text);
    find<decltype(pumpgraph_compilation_free)>("pumpgraph_compilation_free")(compilation);
    return copy;
  }

private:
  void *handle_;
};

TEST(SamePlan, libraryAndPassesAgree) {
  ir::registerPumpGraphPasses();
  const Library library;
  ASSERT_TRUE(library.isOpen()) << dlerror();
  std::size_t withCopies = 0;
  for (std::uint32_t seed = 0; seed < 50; ++seed) {
    const Description step = randomStep(seed);
    ASSERT_EQ(validate(step), "");
    const std::string text = library.lower(step);
    ASSERT_EQ(text, lowerWithPasses(step)) << "seed " << seed;
    withCopies += text.find("pump.to_device") != std::string::npos;
  }
  // Steps that all fit, or do not at all, would show nothing.
  EXPECT_GT(withCopies, 10u);
}

} // namespace
} // namespace pumpgraph
