// SPDX-License-Identifier: Apache-2.0
/// \file
/// The host's times of planned rounds.
#pragma once

#include "runtime/driver/Driver.h"

#include <algorithm>
#include <cstdint>
#include <vector>

namespace pumpgraph::runtime {

/// From the beginning of each round to the beginning of the next, the latest ones.
class RoundTimes {
public:
  void begin(Driver::Clock::time_point now) { begun_ = now; }
  /// A round ends and the next one begins.
  void pass(Driver::Clock::time_point now) {
    const double us = std::chrono::duration<double, std::micro>(now - begun_).count();
    if (us_.size() < mostKept)
      us_.push_back(us);
    else
      us_[passed_ % mostKept] = us;
    ++passed_;
    begun_ = now;
  }
  /// 0: there is none.
  double medianUs() const {
    if (us_.empty())
      return 0;
    std::vector<double> sorted = us_;
    const auto middle = sorted.begin() + static_cast<std::ptrdiff_t>(sorted.size() / 2);
    std::nth_element(sorted.begin(), middle, sorted.end());
    return *middle;
  }

private:
  static constexpr std::size_t mostKept = 1024;

  Driver::Clock::time_point begun_;
  std::uint64_t passed_ = 0;
  std::vector<double> us_;
};

} // namespace pumpgraph::runtime
