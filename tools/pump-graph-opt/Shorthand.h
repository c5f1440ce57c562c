// SPDX-License-Identifier: Apache-2.0
/// \file
/// The shorthand of pump-graph-opt (docs/guide/pump-graph-opt.md): the default pipeline under a budget, and its
/// reports.
#pragma once

#include "mlir/IR/DialectRegistry.h"

#include "llvm/ADT/StringRef.h"

#include <memory>

namespace pumpgraph {

/// The options `--budget`, `--report` and their kin. Has to exist before the command line is parsed and to stay until
/// after run(): it owns the options.
class Shorthand {
public:
  Shorthand();
  ~Shorthand();

  /// Whether the command line used one of the options. If not, the tool is an ordinary MLIR optimizer driver.
  bool isRequested() const;

  /// Plans the one step in `input` and writes what was asked for. Returns the exit code: 0, or 1 after a message.
  int run(llvm::StringRef input, llvm::StringRef output, mlir::DialectRegistry &registry) const;

private:
  struct Options;
  std::unique_ptr<Options> options_;
};

} // namespace pumpgraph
