// SPDX-License-Identifier: Apache-2.0
/// \file
/// Kernels that read and write host memory themselves, in the replay model.
#pragma once

#include "passes/analysis/RequiredTraffic.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

namespace pumpgraph {

/// What such kernels have still to move, in stretches. Each direction is shared evenly by those that move in it; a
/// kernel moves both ways at once, and goes on to its next stretch when it is done with both.
class LinkFlows {
public:
  using Rates = std::array<double, 2>; ///< bytes a microsecond that each gets: up, down

  /// The stretches are referred to; none is empty, and there is at least one.
  void start(std::uint32_t task, std::span<const Traffic> stretches) {
    flows_.push_back({task, stretches, {}});
    flows_.back().takeNext();
  }
  bool empty() const { return flows_.empty(); }

  /// How many move up (0) or down (1).
  std::size_t count(std::size_t direction) const {
    return static_cast<std::size_t>(
        std::count_if(flows_.begin(), flows_.end(), [&](const Flow &flow) { return flow.leftBytes[direction] > 0; }));
  }

  /// Time until one is done with a direction.
  double untilChangeUs(const Rates &rates) const {
    double us = std::numeric_limits<double>::infinity();
    for (const Flow &flow : flows_)
      for (std::size_t direction : {0, 1})
        if (flow.leftBytes[direction] > 0)
          us = std::min(us, flow.leftBytes[direction] / rates[direction]);
    return us;
  }

  /// Moves for so long, at most untilChangeUs(), and calls `end(task)` for those that are done.
  template <typename End> void advance(double us, const Rates &rates, End end) {
    for (Flow &flow : flows_)
      for (std::size_t direction : {0, 1}) {
        double &left = flow.leftBytes[direction];
        left = left / rates[direction] <= us ? 0 : left - us * rates[direction];
      }
    for (Flow &flow : flows_)
      if (flow.isDone())
        flow.takeNext();
    std::erase_if(flows_, [&](const Flow &flow) {
      if (flow.isDone())
        end(flow.task);
      return flow.isDone();
    });
  }

private:
  struct Flow {
    std::uint32_t task = 0;
    std::span<const Traffic> stretches; ///< still to come
    std::array<double, 2> leftBytes{};  ///< up, down

    /// With the stretch that it is in: with all of them if it stays so.
    bool isDone() const { return leftBytes[0] <= 0 && leftBytes[1] <= 0; }
    void takeNext() {
      if (stretches.empty())
        return;
      leftBytes = {static_cast<double>(stretches.front().upBytes), static_cast<double>(stretches.front().downBytes)};
      stretches = stretches.subspan(1);
    }
  };
  std::vector<Flow> flows_; ///< in the order of their starts
};

} // namespace pumpgraph
