// SPDX-License-Identifier: Apache-2.0
/// \file
/// What is known of an access without running anything: the direction of copies and fills, the constness of kernel
/// parameters, and what a compiler found out about kernels.
#pragma once

#include "passes/analysis/KernelModes.h"
#include "pumpgraph/graph/Description.h"

#include <string>
#include <string_view>
#include <vector>

namespace pumpgraph {

/// How many accesses became better known, for reports and tests.
struct AnnotateStats {
  std::uint64_t proved = 0;   ///< by memcpy and memset nodes, and by tables
  std::uint64_t declared = 0; ///< by `const` on a kernel parameter
  std::uint64_t assumed = 0;  ///< left as they were
  std::uint64_t dropped = 0;  ///< taken away by tables, because nothing is touched
  /// Where a table says that more may happen than was declared, or where more was observed than a table or a type
  /// says: one for each parameter of a kernel, with the first node of that kernel.
  struct Disagreement {
    NodeIndex node = 0;
    std::string message;
  };
  std::vector<Disagreement> disagreements;
};

/// Improves accesses. What is not proved yet and belongs to a kernel in `tables` gets the mode that the table has for
/// its parameter, or goes, if nothing is touched through it (proved). Then those whose evidence is `Assumed`, or
/// `Observed`, which overrules nothing:
/// * memcpy: the access that may only read must read, the one that may only write must overwrite its range (proved);
/// * memset: must overwrite its range (proved);
/// * kernel: what is reached through a parameter declared `T const *` may only be read (declared).
/// Whoever lifts a graph has to give a strided copy one access per run of bytes, or evidence other than `Assumed`.
AnnotateStats annotateAccesses(Description &description, const KernelTable &tables = {});

/// Whether each parameter of a kernel is a pointer to constant data, from its mangled (Itanium) name. Empty when the
/// name is not mangled, holds no parameter types, or cannot be split into parameters without doubt.
std::vector<bool> constantPointees(std::string_view mangledName);

} // namespace pumpgraph
