// SPDX-License-Identifier: Apache-2.0
/// \file
/// A description as IR text, and back.
#pragma once

#include "pumpgraph/graph/Conversion.h"

#include "mlir/Parser/Parser.h"

#include "test/fuzz/Bytes.h"

#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

namespace pumpgraph::fuzz {

inline std::string print(const Description &description) {
  mlir::MLIRContext context(mlir::MLIRContext::Threading::DISABLED);
  const mlir::OwningOpRef<mlir::ModuleOp> module = ir::toModule(description, context);
  std::string text;
  llvm::raw_string_ostream stream(text);
  (*module).print(stream);
  return text;
}

/// The steps in a text. A refused text has none, and appends to `diagnostics`.
inline std::vector<Description> parse(llvm::StringRef text, std::string &diagnostics) {
  mlir::MLIRContext context(mlir::MLIRContext::Threading::DISABLED);
  context.loadDialect<ir::PumpDialect>();
  const mlir::ScopedDiagnosticHandler handler(
      &context, [&](mlir::Diagnostic &diagnostic) { diagnostics += diagnostic.str() + "\n"; });
  const mlir::OwningOpRef<mlir::ModuleOp> module = mlir::parseSourceString<mlir::ModuleOp>(text, &context);
  PUMPGRAPH_FUZZ_CHECK(module || !diagnostics.empty(), "refused without a message");
  std::vector<Description> steps;
  if (module)
    for (ir::GraphOp graph : (*module).getOps<ir::GraphOp>())
      steps.push_back(ir::toDescription(graph).description);
  return steps;
}

/// A valid description survives printing and parsing.
inline void checkRoundTrip(const Description &description) {
  const std::string text = print(description);
  std::string diagnostics;
  const std::vector<Description> steps = parse(text, diagnostics);
  PUMPGRAPH_FUZZ_CHECK(steps.size() == 1, "printed text is refused: " + diagnostics + text);
  PUMPGRAPH_FUZZ_CHECK(print(steps.front()) == text, "printed text is parsed as another step:\n" + text);
}

} // namespace pumpgraph::fuzz
