// SPDX-License-Identifier: Apache-2.0
/// \file
/// Kernel and tensor traces of training iterations, as JSON, read as captured steps (docs/reference/traces.md).
#pragma once

#include "passes/analysis/Machine.h"
#include "pumpgraph/graph/Description.h"

#include <tl/expected.hpp>

#include <cstdint>
#include <string>
#include <string_view>

namespace pumpgraph {

/// What is wrong with a trace. `place` tells where: "line 3, column 7" for text that is no JSON, else the element:
/// "kernel 17 \"Conv2d\"". Empty where the trace as a whole is to blame.
struct TraceError {
  std::string place;
  std::string message; ///< lower case, with the field and its value, no trailing period

  std::string text() const { return place.empty() ? message : place + ": " + message; }
};

struct Trace {
  Description step;
  /// The default machine with the link that the trace was recorded for, if it names one. Host memory is not limited.
  Machine machine;
};

/// All tensors of a trace together. A damaged size must not become a huge table of pages.
inline constexpr std::uint64_t mostTracePages = std::uint64_t{1} << 23;

/// Reads a trace: one kernel after the other, every tensor a private buffer. Nothing is guessed: what the trace leaves
/// open is an error. `pageBytes` must not be 0.
tl::expected<Trace, TraceError> importTrace(std::string_view json, std::uint64_t pageBytes = std::uint64_t{2} << 20);

} // namespace pumpgraph
