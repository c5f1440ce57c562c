// SPDX-License-Identifier: Apache-2.0
/// \file
/// What makes two calls of a program the same call of two rounds of its loop, as one number.
#pragma once

#include <cstdint>

namespace pumpgraph::runtime {

/// Equal for calls that do the same with the same memory. A number of 64 bits: a plan must compare the calls themselves
/// before it relies on two of them being equal.
using CallIdentity = std::uint64_t;

/// Collects what belongs to a call's identity, in order.
class IdentityBuilder {
public:
  IdentityBuilder &add(std::uint64_t value) {
    state_ = (state_ ^ value) * 0x9e3779b97f4a7c15;
    state_ ^= state_ >> 29;
    return *this;
  }
  CallIdentity identity() const { return state_ ^ (state_ >> 32); }

private:
  std::uint64_t state_ = 0x2545f4914f6cdd1d;
};

} // namespace pumpgraph::runtime
