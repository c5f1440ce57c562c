// SPDX-License-Identifier: Apache-2.0
#include "runtime/state/Compiler.h"

#include <dlfcn.h>

#include <vector>

namespace pumpgraph::runtime {
namespace {

constexpr const char *libraryName = "libpumpgraph-compiler.so";

std::vector<std::string> candidates(const std::string &path) {
  if (!path.empty())
    return {path};
  Dl_info here{};
  if (!dladdr(reinterpret_cast<void *>(&Compiler::open), &here) || !here.dli_fname)
    return {libraryName};
  const std::string ownPath = here.dli_fname;
  const std::size_t slash = ownPath.rfind('/');
  if (slash == std::string::npos)
    return {libraryName};
  return {ownPath.substr(0, slash + 1) + libraryName, libraryName};
}

} // namespace

Expected<Compiler> Compiler::open(const std::string &path) {
  void *library = nullptr;
  std::string problems;
  for (const std::string &candidate : candidates(path)) {
    // Never closed: it is as large as the rest of the process's life is long.
    library = dlopen(candidate.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library)
      break;
    problems += problems.empty() ? dlerror() : fmt::format("; {}", dlerror());
  }
  if (!library)
    return fail(PUMPGRAPH_INVALID_ARGUMENT, "the compiler library cannot be loaded: {}", problems);
  Compiler compiler;
  const char *missing = nullptr;
  const auto find = [&](auto &function, const char *symbol) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, symbol));
    if (!function)
      missing = symbol;
  };
  find(compiler.compile, "pumpgraph_compiler_compile");
  find(compiler.candidate, "pumpgraph_compilation_candidate");
  find(compiler.message, "pumpgraph_compilation_message");
  find(compiler.note, "pumpgraph_compilation_note");
  find(compiler.savedTimes, "pumpgraph_compilation_saved_times");
  find(compiler.release, "pumpgraph_compilation_free");
  find(compiler.check, "pumpgraph_compiler_check");
  find(compiler.checkManaged, "pumpgraph_compiler_check_managed");
  find(compiler.checkBoundary, "pumpgraph_compiler_check_boundary");
  find(compiler.predict, "pumpgraph_compiler_predict");
  find(compiler.retime, "pumpgraph_compiler_retime");
  find(compiler.memoryViz, "pumpgraph_compiler_memory_viz");
  find(compiler.print, "pumpgraph_compiler_print");
  find(compiler.freeString, "pumpgraph_compiler_string_free");
  if (missing)
    return fail(PUMPGRAPH_INVALID_ARGUMENT, "the compiler library has no {}: it is of another version", missing);
  return compiler;
}

} // namespace pumpgraph::runtime
