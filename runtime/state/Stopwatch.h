// SPDX-License-Identifier: Apache-2.0
/// \file
/// Wall time of PumpGraph's own stages, for reports.
#pragma once

#include <chrono>

namespace pumpgraph::runtime {

/// Measures wall time in milliseconds.
class Stopwatch {
public:
  double milliseconds() const {
    return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start_).count();
  }

private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

} // namespace pumpgraph::runtime
