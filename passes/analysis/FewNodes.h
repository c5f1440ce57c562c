// SPDX-License-Identifier: Apache-2.0
/// \file
/// Whether a step's node times can be those of a step.
#pragma once

#include "pumpgraph/graph/Description.h"

#include <cstdint>
#include <optional>

namespace pumpgraph {

/// Few nodes that take nearly all of the time that was measured. Recorded steps need a fifth of their nodes and more
/// for that (docs/reference/report.md): where a twentieth does it, the trace is damaged.
struct FewNodes {
  std::uint64_t nodes = 0;         ///< as few as take `leastShareOfFew` of the time
  std::uint64_t measuredNodes = 0; ///< of known time
  double share = 0;                ///< of the time, from 0 to 1

  friend bool operator==(const FewNodes &, const FewNodes &) = default;
};

inline constexpr std::uint64_t leastMeasuredNodes = 20; ///< of fewer, one may well take all
inline constexpr double leastShareOfFew = 0.95;
inline constexpr double mostNodesThatAreFew = 0.05; ///< of the measured ones

/// Looks at known node times, so before estimateCosts() has filled in others.
std::optional<FewNodes> findFewNodes(const Description &captured);

} // namespace pumpgraph
