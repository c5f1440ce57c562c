// SPDX-License-Identifier: Apache-2.0
// Per page: the first node after the peak that touches it says which way it went.
#include "passes/report/Ways.h"

#include "pumpgraph/graph/Ranges.h"

#include <algorithm>
#include <map>
#include <utility>

namespace pumpgraph {
namespace {

class Finder {
public:
  Finder(const Remakeable &found, const Description &lowered) : found_(found), lowered_(lowered) {}

  Ways find() {
    lookAfterPeak();
    Ways ways;
    for (const auto &[buffer, range] : found_.alive)
      for (const std::uint64_t page : pagesIn(range, pageBytes())) {
        const std::uint64_t begin = std::max(range.offset, page * pageBytes());
        const std::uint64_t bytes = std::min(range.end(), (page + 1) * pageBytes()) - begin;
        const auto way = ways_.find({buffer, page});
        (way == ways_.end() ? ways.kept : ways.*way->second) += bytes;
      }
    return ways;
  }

private:
  std::uint64_t pageBytes() const { return lowered_.pageBytes; }

  void lookAfterPeak() {
    bool isAfter = false;
    for (const Node &node : lowered_.nodes) {
      if (isAfter)
        look(node);
      isAfter = isAfter || node.captured == static_cast<std::int32_t>(found_.peak);
    }
    for (BufferIndex buffer = 0; buffer < lowered_.buffers.size(); ++buffer)
      for (const Range &range : lowered_.buffers[buffer].hosted)
        note(buffer, range, &Ways::hosted);
  }
  void look(const Node &node) {
    if (isAdded(node.kind)) {
      if (movesUp(node.kind))
        note(node.buffer, node.range, &Ways::moved);
      return;
    }
    for (const Access &access : node.accesses)
      note(access.buffer, access.range,
           node.kind == NodeKind::Rematerialize && access.must == modeWrite ? &Ways::again : &Ways::kept);
  }
  /// The first one counts.
  void note(BufferIndex buffer, const Range &range, std::uint64_t Ways::*way) {
    const BufferIndex captured = capturedBuffer(lowered_.buffers, buffer);
    for (const std::uint64_t page : pagesIn(range, pageBytes()))
      ways_.try_emplace({captured, page}, way);
  }

  const Remakeable &found_;
  const Description &lowered_;
  std::map<std::pair<BufferIndex, std::uint64_t>, std::uint64_t Ways::*> ways_;
};

} // namespace

Ways findWays(const Remakeable &found, const Description &lowered) {
  return Finder(found, lowered).find();
}

} // namespace pumpgraph
