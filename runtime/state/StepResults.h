// SPDX-License-Identifier: Apache-2.0
/// \file
/// What calls on a step return.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace pumpgraph::runtime {

/// A present or former plan, for the report.
struct PlanRecord {
  std::string costs; ///< where the node times came from
  std::string why;
  double predictedUs = 0;
  std::optional<double> measuredUs;       ///< a whole replay
  std::optional<double> predictedAgainUs; ///< with the node times that were measured on it
};

struct Replanning {
  PlanRecord before;
  PlanRecord after;
  bool keptFirst = false; ///< all others were slower, and the one from before is in force again
  std::uint64_t timedNodes = 0;
};

/// The state that a caller needs ahead of a launch of its own.
struct LaunchState {
  bool graphHasChanged = false; ///< since the last time: it has to be instantiated anew
  bool isWatched = false;       ///< afterLaunch() is to be called, and beforeLaunch() before the next launch
};

struct Measurement {
  double stepUs = 0;
  std::uint64_t timedNodes = 0;
};

struct Validation {
  std::uint64_t comparedBuffers = 0;
  std::uint64_t comparedBytes = 0;
  std::uint64_t differentBuffers = 0;
  std::uint64_t unstableBuffers = 0;
  std::string firstDifference;
  std::uint64_t impureNodes = 0; ///< that the plan runs again; looked for where something differs or is unstable
  std::string impure;            ///< each of their kernels, or why none was looked at
};

} // namespace pumpgraph::runtime
