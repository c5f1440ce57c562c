// SPDX-License-Identifier: Apache-2.0
/// \file
/// A round of calls, as it is planned.
#pragma once

#include "runtime/streams/Call.h"

#include <cstdint>
#include <set>
#include <vector>

namespace pumpgraph::runtime {

/// The round without memory that stays in place: that of the driver's own and the blocks in `staying`, by address.
///
/// A program may leave the round anywhere, so a value stays alive as long as its memory:
/// - only the first access to new memory overwrites, if all others follow it by streams and events; every other one
///   counts as reading what was there,
/// - the last call before memory is freed counts as reading it,
/// - memory that has a value when the round begins has one when it ends.
///
/// Fills count as copies, whose operands are on the device: the driver is not relied on to fill a range that is partly
/// in host memory.
Description planInput(const RoundScript &script, const std::set<std::uint64_t> &staying);

/// The stream of each node.
std::vector<std::uint64_t> streamsOf(const RoundScript &script);

} // namespace pumpgraph::runtime
