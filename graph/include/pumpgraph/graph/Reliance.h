// SPDX-License-Identifier: Apache-2.0
/// \file
/// The part of an access that a plan can rely on.
#pragma once

#include "pumpgraph/graph/Description.h"

namespace pumpgraph {

/// An access that was only observed can differ in the next run. The planner and the checker therefore count it as one
/// that may do everything and must do nothing.
inline std::uint8_t reliableMay(const Access &access) {
  return access.evidence == Evidence::Observed ? std::uint8_t{modeReadWrite} : access.may;
}
inline std::uint8_t reliableMust(const Access &access) {
  return access.evidence == Evidence::Observed ? std::uint8_t{modeNone} : access.must;
}

} // namespace pumpgraph
