// SPDX-License-Identifier: Apache-2.0
// A compiler library for tests: the real one, but that it calls the resident pages of buffers with "mirrored" in their
// name mirrored, whether the step keeps that or not, and that it checks nothing.
#include "pumpgraph/compiler.h"

#include <dlfcn.h>

#include <cstring>
#include <vector>

extern "C" {

const pumpgraph_candidate *pumpgraph_compilation_candidate(const pumpgraph_compilation *compilation,
                                                           uint64_t position) {
  void *library = dlopen(PUMPGRAPH_COMPILER_LIBRARY, RTLD_NOW | RTLD_LOCAL);
  const auto real =
      reinterpret_cast<decltype(&pumpgraph_compilation_candidate)>(dlsym(library, "pumpgraph_compilation_candidate"));
  const pumpgraph_candidate *original = real(compilation, position);
  if (!original)
    return nullptr;
  // Until the next call, which is all that a caller needs here.
  static pumpgraph_candidate candidate;
  static pumpgraph_description lowered;
  static std::vector<pumpgraph_buffer> buffers;
  candidate = *original;
  candidate.lowered = &lowered;
  lowered = *original->lowered;
  buffers.assign(lowered.buffers, lowered.buffers + lowered.buffer_count);
  for (pumpgraph_buffer &buffer : buffers)
    if (std::strstr(buffer.name, "mirrored")) {
      buffer.mirrored = buffer.resident;
      buffer.mirrored_count = buffer.resident_count;
    }
  lowered.buffers = buffers.data();
  return &candidate;
}

char *pumpgraph_compiler_check(const pumpgraph_description *, const pumpgraph_description *) {
  return nullptr;
}

} // extern "C"
