// SPDX-License-Identifier: Apache-2.0
/// \file
/// A number of bytes as an expression of a launch's dimensions and scalar parameters, in the postfix form of
/// access_table.h.
#pragma once

#include "pumpgraph/access_table.h"

#include <cstdint>
#include <optional>
#include <vector>

namespace pumpgraph::annotate {

/// Unknown, or the steps of an expression. An operation on something unknown is unknown, and so is an expression that
/// grows too long. What every launch makes the same is folded.
class Extent {
public:
  Extent() = default;
  static Extent constant(int64_t value);
  static Extent parameter(unsigned parameter, uint64_t offset, unsigned sizeBytes);
  static Extent gridDim(unsigned dimension);
  static Extent blockDim(unsigned dimension);
  static Extent fromSteps(std::vector<pumpgraph_extent_step> steps);

  bool isKnown() const { return !steps_.empty(); }
  std::optional<int64_t> asConstant() const;
  bool isAtLeast(int64_t value) const { return isKnown() && least_ >= value; } ///< whatever the launch
  const std::vector<pumpgraph_extent_step> &steps() const { return steps_; }

  friend Extent operator+(const Extent &a, const Extent &b);
  friend Extent operator-(const Extent &a, const Extent &b);
  friend Extent operator*(const Extent &a, const Extent &b);
  /// Rounded down; unknown at run time unless `b` is positive.
  friend Extent operator/(const Extent &a, const Extent &b);
  friend Extent minimum(const Extent &a, const Extent &b);
  friend Extent maximum(const Extent &a, const Extent &b);
  friend bool operator==(const Extent &a, const Extent &b);

private:
  using Wide = __int128;
  /// Stands for anything beyond; no launch makes a sound expression as large.
  static constexpr Wide endless = Wide{1} << 62;

  static Extent make(pumpgraph_extent_step step, Wide least, Wide largest);
  static Extent apply(pumpgraph_extent_op op, const Extent &a, const Extent &b);

  std::vector<pumpgraph_extent_step> steps_;
  Wide least_ = -endless, largest_ = endless; ///< over all launches
};

Extent minimum(const Extent &a, const Extent &b);
Extent maximum(const Extent &a, const Extent &b);

} // namespace pumpgraph::annotate
