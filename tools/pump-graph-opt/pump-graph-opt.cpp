// SPDX-License-Identifier: Apache-2.0
/// \file
/// Reads a step as IR, runs passes over it, writes it. Only our own dialect and passes are registered, and the generic
/// clean-ups that must leave them alone. The shorthand of docs/guide/pump-graph-opt.md runs the default pipeline
/// instead.

#include "passes/ir/Passes.h"
#include "pumpgraph/graph/Dialect.h"
#include "pumpgraph/graph/Printable.h"
#include "tools/pump-graph-opt/Input.h"
#include "tools/pump-graph-opt/Shorthand.h"

#include "mlir/IR/DialectRegistry.h"
#include "mlir/Support/FileUtilities.h"
#include "mlir/Tools/mlir-opt/MlirOptMain.h"
#include "mlir/Transforms/Passes.h"
#include "llvm/Support/ToolOutputFile.h"
#include "llvm/Support/WithColor.h"

using namespace pumpgraph;

/// MlirOptMain opens its input itself; it is to see the step as openStep() has it.
static llvm::LogicalResult runPasses(llvm::StringRef input, llvm::StringRef output, mlir::DialectRegistry &registry) {
  std::string error;
  std::unique_ptr<llvm::MemoryBuffer> step = openStep(input, error);
  const std::unique_ptr<llvm::ToolOutputFile> file = step ? mlir::openOutputFile(output, &error) : nullptr;
  if (!file) {
    llvm::WithColor::error(llvm::errs(), "pump-graph-opt") << printable(error) << "\n";
    return mlir::failure();
  }
  if (failed(mlir::MlirOptMain(file->os(), std::move(step), registry, mlir::MlirOptMainConfig::createFromCLOptions())))
    return mlir::failure();
  file->keep();
  return mlir::success();
}

int main(int argc, char **argv) {
  ir::registerPumpGraphPasses();
  mlir::registerCanonicalizerPass();
  mlir::registerCSEPass();
  mlir::DialectRegistry registry;
  registry.insert<ir::PumpDialect>();

  const Shorthand shorthand;
  const auto [input, output] =
      mlir::registerAndParseCLIOptions(argc, argv, "plans training steps under a memory budget\n", registry);
  if (shorthand.isRequested())
    return shorthand.run(input, output, registry);
  const mlir::MlirOptMainConfig config = mlir::MlirOptMainConfig::createFromCLOptions();
  if (config.shouldShowDialects() || config.shouldListPasses()) // without looking at the input
    return mlir::asMainReturnCode(mlir::MlirOptMain(argc, argv, input, output, registry));
  return mlir::asMainReturnCode(runPasses(input, output, registry));
}
