// SPDX-License-Identifier: Apache-2.0
/// \file
/// Reads a step as IR, runs passes over it, writes it. Only our own dialect and passes are registered, and the generic
/// clean-ups that must leave them alone. The shorthand of docs/pump-graph-opt.md runs the default pipeline instead.

#include "passes/ir/Passes.h"
#include "pumpgraph/graph/Dialect.h"
#include "tools/pump-graph-opt/Input.h"
#include "tools/pump-graph-opt/Shorthand.h"

#include "mlir/IR/DialectRegistry.h"
#include "mlir/Support/FileUtilities.h"
#include "mlir/Tools/mlir-opt/MlirOptMain.h"
#include "mlir/Transforms/Passes.h"
#include "llvm/Support/ToolOutputFile.h"
#include "llvm/Support/WithColor.h"

using namespace pumpgraph;

/// MlirOptMain opens its input itself; a gzipped one has to be unpacked for it.
static llvm::LogicalResult runOnGzip(const llvm::MemoryBuffer &packed, llvm::StringRef output,
                                     mlir::DialectRegistry &registry) {
  std::string error;
  std::unique_ptr<llvm::MemoryBuffer> unpacked = gunzip(packed, error);
  const std::unique_ptr<llvm::ToolOutputFile> file = unpacked ? mlir::openOutputFile(output, &error) : nullptr;
  if (!file) {
    llvm::WithColor::error(llvm::errs(), "pump-graph-opt") << error << "\n";
    return mlir::failure();
  }
  if (failed(
          mlir::MlirOptMain(file->os(), std::move(unpacked), registry, mlir::MlirOptMainConfig::createFromCLOptions())))
    return mlir::failure();
  file->keep();
  return mlir::success();
}

/// The file if it is a gzipped one, else null: a file that cannot be read is MlirOptMain's to complain about.
static std::unique_ptr<llvm::MemoryBuffer> openGzip(llvm::StringRef input) {
  if (input == "-")
    return nullptr;
  std::unique_ptr<llvm::MemoryBuffer> file = mlir::openInputFile(input);
  return file && isGzip(file->getBuffer()) ? std::move(file) : nullptr;
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
  if (const std::unique_ptr<llvm::MemoryBuffer> packed = openGzip(input))
    return mlir::asMainReturnCode(runOnGzip(*packed, output, registry));
  return mlir::asMainReturnCode(mlir::MlirOptMain(argc, argv, input, output, registry));
}
