// SPDX-License-Identifier: Apache-2.0
/// \file
/// The time, and what is made of several.
#pragma once

#include <algorithm>
#include <chrono>
#include <vector>

inline double nowMs() {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

inline double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}
