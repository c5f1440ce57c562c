// SPDX-License-Identifier: Apache-2.0
/// \file
/// What is known of an access without running or compiling anything: the direction of copies and fills, and the
/// constness of kernel parameters.
#pragma once

#include "pumpgraph/graph/Description.h"

#include <string_view>
#include <vector>

namespace pumpgraph {

/// How many accesses became better known, for reports and tests.
struct AnnotateStats {
  std::uint64_t proved = 0;   ///< by memcpy and memset nodes
  std::uint64_t declared = 0; ///< by `const` on a kernel parameter
  std::uint64_t assumed = 0;  ///< left as they were
};

/// Improves accesses whose evidence is `Assumed`, and those only:
/// * memcpy: the access that may only read must read, the one that may only write must overwrite its range (proved);
/// * memset: must overwrite its range (proved);
/// * kernel: what is reached through a parameter declared `T const *` may only be read (declared).
/// Whoever lifts a graph has to give a strided copy one access per run of bytes, or evidence other than `Assumed`.
AnnotateStats annotateAccesses(Description &description);

/// Whether each parameter of a kernel is a pointer to constant data, from its mangled (Itanium) name. Empty when the
/// name is not mangled, holds no parameter types, or cannot be split into parameters without doubt.
std::vector<bool> constantPointees(std::string_view mangledName);

} // namespace pumpgraph
