// SPDX-License-Identifier: Apache-2.0
// IR text: it is refused with a message, or it says a step that comes back equal when it is printed and read again.
#include "pumpgraph/graph/Conversion.h"

#include "mlir/Bytecode/BytecodeReader.h"
#include "mlir/Parser/Parser.h"
#include "llvm/Support/MemoryBufferRef.h"

#include "test/fuzz/Bytes.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <tuple>

using namespace pumpgraph;

namespace {

std::vector<Description> graphsOf(llvm::StringRef text, std::string &complaints) {
  mlir::MLIRContext context(mlir::MLIRContext::Threading::DISABLED);
  context.loadDialect<ir::PumpDialect>();
  const mlir::ScopedDiagnosticHandler handler(
      &context, [&](mlir::Diagnostic &diagnostic) { complaints += diagnostic.str() + "\n"; });
  std::vector<Description> graphs;
  const mlir::OwningOpRef<mlir::ModuleOp> module = mlir::parseSourceString<mlir::ModuleOp>(text, &context);
  PUMPGRAPH_FUZZ_CHECK(module || !complaints.empty(), "refused without a word");
  if (module)
    for (ir::GraphOp graph : (*module).getOps<ir::GraphOp>())
      graphs.push_back(ir::toDescription(graph).description);
  return graphs;
}

std::string print(const Description &description) {
  mlir::MLIRContext context(mlir::MLIRContext::Threading::DISABLED);
  const mlir::OwningOpRef<mlir::ModuleOp> module = ir::toModule(description, context);
  std::string text;
  llvm::raw_string_ostream stream(text);
  (*module).print(stream);
  return text;
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t *data, std::size_t size) {
  const std::string text(reinterpret_cast<const char *>(data), size); // MLIR reads the zero at its end
  if (mlir::isBytecode(llvm::MemoryBufferRef(text, "input")))
    return 0; // which is refused before it is read
  std::string complaints;
  for (const Description &description : graphsOf(text, complaints)) {
    const std::string fault = validate(description);
    PUMPGRAPH_FUZZ_CHECK(fault.empty(), "verified, but " + fault);
    const std::string printed = print(description);
    std::string again;
    const std::vector<Description> read = graphsOf(printed, again);
    PUMPGRAPH_FUZZ_CHECK(read.size() == 1, "printed text is refused: " + again + printed);
    PUMPGRAPH_FUZZ_CHECK(print(read.front()) == printed, "printed text says something else:\n" + printed);
  }
  return 0;
}
