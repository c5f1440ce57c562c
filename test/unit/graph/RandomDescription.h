// SPDX-License-Identifier: Apache-2.0
/// \file
/// Descriptions that use every field, for round-trip tests. They are valid; they are not correct plans.
#pragma once

#include "pumpgraph/graph/Description.h"

#include <cstdint>
#include <string>

namespace pumpgraph::test {

/// The same seed gives the same description.
Description randomDescription(std::uint32_t seed);

/// The description field by field, so that two can be compared and their difference read. Times are written bit by bit.
std::string dump(const Description &description);

} // namespace pumpgraph::test
