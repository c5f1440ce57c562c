// SPDX-License-Identifier: Apache-2.0
/// \file
/// The compiler library, opened when a step is first planned.
#pragma once

#include "pumpgraph/compiler.h"
#include "runtime/driver/Error.h"

#include <string>

namespace pumpgraph::runtime {

/// The functions of libpumpgraph-compiler.so.
struct Compiler {
  decltype(&pumpgraph_compiler_compile) compile = nullptr;
  decltype(&pumpgraph_compilation_candidate) candidate = nullptr;
  decltype(&pumpgraph_compilation_message) message = nullptr;
  decltype(&pumpgraph_compilation_note) note = nullptr;
  decltype(&pumpgraph_compilation_saved_times) savedTimes = nullptr;
  decltype(&pumpgraph_compilation_free) release = nullptr;
  decltype(&pumpgraph_compiler_check) check = nullptr;
  decltype(&pumpgraph_compiler_check_managed) checkManaged = nullptr;
  decltype(&pumpgraph_compiler_check_boundary) checkBoundary = nullptr;
  decltype(&pumpgraph_compiler_predict) predict = nullptr;
  decltype(&pumpgraph_compiler_retime) retime = nullptr;
  decltype(&pumpgraph_compiler_memory_viz) memoryViz = nullptr;
  decltype(&pumpgraph_compiler_print) print = nullptr;
  decltype(&pumpgraph_compiler_string_free) freeString = nullptr;

  /// Opens the library at `path`; when it is empty the one beside this library, then the loader's. Its symbols stay its
  /// own, whatever else of LLVM the process has.
  static Expected<Compiler> open(const std::string &path);
};

} // namespace pumpgraph::runtime
