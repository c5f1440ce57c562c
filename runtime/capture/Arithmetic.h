// SPDX-License-Identifier: Apache-2.0
/// \file
/// From declared operations of arithmetic to the time of nodes.
#pragma once

#include "runtime/capture/LiftGraph.h"
#include "runtime/driver/Driver.h"

#include <array>
#include <cstdint>

namespace pumpgraph::runtime {

/// The values are those of pumpgraph_arithmetic.
enum class ArithmeticKind : std::uint8_t { Unknown = 0, Fp64 = 1, Fp32 = 2, Tf32 = 3, Half = 4, Fp8 = 5, Int8 = 6 };
inline constexpr std::size_t arithmeticKinds = 7;

/// How fast library kernels compute on a device.
class ArithmeticSpeed {
public:
  /// Nothing is known of a device that the table in Arithmetic.cpp does not have.
  ArithmeticSpeed() = default;
  static ArithmeticSpeed of(const Driver &driver, CUdevice device);

  /// A fused multiply-add is two operations. 0 where nothing is known.
  double microseconds(double operations, ArithmeticKind kind) const;

private:
  std::array<double, arithmeticKinds> perMicrosecond_{}; ///< 0: not known
};

/// Gives the arithmetic of each group of `graph` to one node of `step`, which describes it: libraries launch helpers
/// around the kernel that computes, so that is taken to be the one with the most bytes.
void describeArithmetic(const LiftedGraph &graph, Description &step);

} // namespace pumpgraph::runtime
