// SPDX-License-Identifier: Apache-2.0
/// \file
/// The independent checker: accepts a planned, lowered or re-lifted description only if it is correct in every legal
/// order of execution. Written from docs/design/plan-correctness.md alone; shares no code with planner or lowering.
#pragma once

#include "pumpgraph/graph/Description.h"

#include <optional>
#include <string>
#include <vector>

namespace pumpgraph {

struct Violation {
  std::optional<NodeIndex> node; ///< where to point
  std::optional<BufferIndex> buffer;
  std::string message; ///< lower case, names and numbers
};

/// Of a step that is planned or lowered for virtual memory. Empty: the plan is correct. At most `limit` violations are
/// reported.
std::vector<Violation> checkResidency(const Description &description, std::size_t limit = 10);

/// Whether `rewritten` still contains the captured step: the same captured nodes with the same accesses, and every
/// captured dependency, perhaps demoted from programmatic to full, none weakened.
std::vector<Violation> checkPreserves(const Description &captured, const Description &rewritten,
                                      std::size_t limit = 10);

/// Whether a planned or rewritten step leaves a boundary that it shares with other steps as it is: given frames, states
/// and places, and the frames that are the others' between replays.
std::vector<Violation> checkKeepsBoundary(const Description &boundary, const Description &rewritten,
                                          std::size_t limit = 10);

/// Whether the operations of a step that was lowered for managed memory (docs/design/managed.md) can change what any
/// node reads or what is left at the end, whatever the agent leaves undone or does late.
std::vector<Violation> checkManaged(const Description &lowered, std::size_t limit = 10);

/// A step lowered for managed memory as one with a frame for every page: discards stay, and of what only moves pages
/// nothing is left but the order in which its words are written and waited for.
Description asUnifiedMemory(const Description &lowered);

} // namespace pumpgraph
