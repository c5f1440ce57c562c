// SPDX-License-Identifier: Apache-2.0
#include "passes/ir/Report.h"

#include "passes/pipeline/Compile.h"
#include "pumpgraph/graph/Conversion.h"

#include "mlir/Support/FileUtilities.h"
#include "llvm/Support/ToolOutputFile.h"

namespace pumpgraph::ir {
namespace {

llvm::LogicalResult report(GraphOp graph, const Machine &machine, Render render, llvm::raw_ostream &stream) {
  const Lifted step = toDescription(graph);
  tl::expected<Compiled, PlanError> compiled = compileSoFar(step.description, machine);
  if (!compiled) {
    mlir::Operation *culprit = graph;
    if (compiled.error().node)
      culprit = step.nodes[*compiled.error().node];
    return mlir::emitError(culprit->getLoc(), compiled.error().message);
  }
  const std::string text = render(Summary(std::move(*compiled)));
  stream << text;
  if (!llvm::StringRef(text).ends_with("\n"))
    stream << '\n';
  return mlir::success();
}

} // namespace

llvm::LogicalResult printReports(mlir::ModuleOp module, const Machine &machine, Render render) {
  for (GraphOp graph : module.getOps<GraphOp>())
    if (failed(report(graph, machine, render, llvm::outs())))
      return mlir::failure();
  return mlir::success();
}

llvm::LogicalResult writeReport(mlir::ModuleOp module, const Machine &machine, llvm::StringRef file, Render render) {
  auto graphs = llvm::to_vector(module.getOps<GraphOp>());
  if (graphs.size() != 1)
    return mlir::emitError(module.getLoc(), "one step can be exported; the file holds ") << graphs.size();
  std::string error;
  const std::unique_ptr<llvm::ToolOutputFile> output = mlir::openOutputFile(file, &error);
  if (!output)
    return mlir::emitError(graphs.front().getLoc(), error);
  if (failed(report(graphs.front(), machine, render, output->os())))
    return mlir::failure();
  output->keep();
  return mlir::success();
}

} // namespace pumpgraph::ir
