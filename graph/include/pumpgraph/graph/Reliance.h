// SPDX-License-Identifier: Apache-2.0
/// \file
/// What of an access a plan may count on.
#pragma once

#include "pumpgraph/graph/Description.h"

namespace pumpgraph {

/// What was only observed on some runs may be otherwise on the next: such an access counts as one that may do
/// everything, and has to do nothing, to all who decide what is moved or who check that.
inline std::uint8_t reliableMay(const Access &access) {
  return access.evidence == Evidence::Observed ? std::uint8_t{modeReadWrite} : access.may;
}
inline std::uint8_t reliableMust(const Access &access) {
  return access.evidence == Evidence::Observed ? std::uint8_t{modeNone} : access.must;
}

} // namespace pumpgraph
