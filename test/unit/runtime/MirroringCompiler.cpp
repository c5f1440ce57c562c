// SPDX-License-Identifier: Apache-2.0
// A compiler library for tests: the real one, but that it calls the resident pages of buffers with "mirrored" in their
// name mirrored, whether the step keeps that or not, and that it checks nothing.
#include "pumpgraph/compiler.h"

#include <dlfcn.h>

#include <cstring>
#include <vector>

extern "C" {

const pumpgraph_description *pumpgraph_compilation_lowered(const pumpgraph_compilation *compilation) {
  void *library = dlopen(PUMPGRAPH_COMPILER_LIBRARY, RTLD_NOW | RTLD_LOCAL);
  const auto real =
      reinterpret_cast<decltype(&pumpgraph_compilation_lowered)>(dlsym(library, "pumpgraph_compilation_lowered"));
  // Until the next call, which is all that a caller needs here.
  static pumpgraph_description lowered;
  static std::vector<pumpgraph_buffer> buffers;
  lowered = *real(compilation);
  buffers.assign(lowered.buffers, lowered.buffers + lowered.buffer_count);
  for (pumpgraph_buffer &buffer : buffers)
    if (std::strstr(buffer.name, "mirrored")) {
      buffer.mirrored = buffer.resident;
      buffer.mirrored_count = buffer.resident_count;
    }
  lowered.buffers = buffers.data();
  return &lowered;
}

char *pumpgraph_compiler_check(const pumpgraph_description *, const pumpgraph_description *) {
  return nullptr;
}

} // extern "C"
