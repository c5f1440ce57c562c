// SPDX-License-Identifier: Apache-2.0
#include "runtime/memory/Block.h"

#include <fmt/format.h>

#include <algorithm>

namespace pumpgraph::runtime {

std::string nameOf(const Allocation &allocation) {
  return allocation.name.empty() ? fmt::format("buffer{}", allocation.serial) : allocation.name;
}

bool Block::hasLiveMember() const {
  return std::any_of(members.begin(), members.end(),
                     [](const Allocation &member) { return member.live || member.kept; });
}

bool Block::isOfOtherGraph() const {
  return std::any_of(members.begin(), members.end(),
                     [](const Allocation &member) { return member.graph != 0 || member.kept; });
}

} // namespace pumpgraph::runtime
