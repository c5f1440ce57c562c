// SPDX-License-Identifier: Apache-2.0
#include "passes/analysis/Backend.h"

#include "pumpgraph/graph/Reliance.h"

namespace pumpgraph {

std::vector<bool> onlyRead(const Description &captured) {
  std::vector<bool> result(captured.buffers.size(), true);
  for (const Node &node : captured.nodes)
    for (const Access &access : node.accesses)
      if ((reliableMay(access) & modeWrite) != 0)
        result[access.buffer] = false;
  return result;
}

std::vector<bool> keepHostCopies(const Description &captured, Backend backend) {
  if (backend == Backend::Managed)
    return onlyRead(captured);
  return std::vector<bool>(captured.buffers.size(), backend == Backend::Virtual);
}

Description withNothingDead(Description step) {
  for (Buffer &buffer : step.buffers)
    if (buffer.isPrivate)
      buffer.liveIn = buffer.liveOut = true;
  for (Node &node : step.nodes)
    for (Access &access : node.accesses)
      access.must = modeNone;
  return step;
}

} // namespace pumpgraph
