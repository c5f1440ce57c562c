// SPDX-License-Identifier: Apache-2.0
/// \file
/// The device compile's part: what each kernel of a module does with the memory its parameters lead to.
#pragma once

#include "Accesses.h"

#include "llvm/IR/PassManager.h"

#include <vector>

namespace pumpgraph::annotate {

/// Wants a simplified module: values in registers, calls inlined. `functions` holds the analyses of that module.
/// Explains itself in remarks of the pass "pumpgraph".
std::vector<KernelAccesses> analyseKernels(llvm::Module &module, llvm::FunctionAnalysisManager &functions);

/// The same for a module as -O0 leaves it: simplifies a copy, and leaves the module as it is.
std::vector<KernelAccesses> analyseSimplifiedCopy(const llvm::Module &module);

} // namespace pumpgraph::annotate
