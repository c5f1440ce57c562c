// SPDX-License-Identifier: Apache-2.0
/// \file
/// Whether a step can be planned at all, however slowly.
#pragma once

#include "pumpgraph/graph/Description.h"

#include <cstdint>
#include <optional>

namespace pumpgraph::test {

/// Whether the pages can be given frames so that no node needs two pages in one frame. A page keeps its frame for the
/// whole step, so a step can need more frames than its widest node. With such frames there is a plan: run the nodes one
/// after the other, and bring and save everything around each. Nothing if that takes too long to find out.
std::optional<bool> fitsFrames(const Description &captured, std::uint64_t frames);

} // namespace pumpgraph::test
