// SPDX-License-Identifier: Apache-2.0
/// \file
/// What the driver is told of a step's managed memory, once, before the first replay.
#pragma once

#include "pumpgraph/graph/Description.h"

namespace pumpgraph {

/// Each kind may be left out. All were measured to pay (docs/design/managed.md).
struct AdviceOptions {
  /// What leaves and is only read keeps its copy in host memory, which is the one that stays: it leaves for nothing.
  /// Right whatever happens, but slow if somebody writes it: for steps whose accesses are all known.
  bool readMostly = true;
  bool preferHost = true; ///< what the plan hosts stays in host memory, and is mapped there once it is touched
  bool accessedBy = true; ///< what the plan hosts is mapped before that
};

/// Gives a step that is lowered for managed memory one advise node for each range that the driver is told about, before
/// all other nodes and without edges; those that it had are gone.
Description insertAdvice(Description lowered, const AdviceOptions &options);

} // namespace pumpgraph
