// SPDX-License-Identifier: Apache-2.0
/// \file
/// Pages that stay in their frame while their buffer continues: one page at two addresses or more (rule 9 of
/// docs/design/plan-correctness.md).
#pragma once

#include "pumpgraph/graph/Description.h"

#include <cstdint>

namespace pumpgraph {

/// The buffer in which the page at this position was before it stayed where it is, at once or by way of others:
/// `buffer` itself for most. Such buffers have the same frame there.
inline BufferIndex firstAddress(const Description &planned, BufferIndex buffer, std::uint64_t page) {
  const auto frameIn = [&](BufferIndex index) {
    const std::vector<std::int32_t> &frames = planned.buffers[index].frames;
    return page < frames.size() ? frames[page] : noFrame;
  };
  const std::int32_t frame = frameIn(buffer);
  if (frame == noFrame)
    return buffer;
  for (BufferIndex before = planned.buffers[buffer].continues; before != noBuffer && frameIn(before) == frame;
       before = planned.buffers[before].continues)
    buffer = before;
  return buffer;
}

} // namespace pumpgraph
