// SPDX-License-Identifier: Apache-2.0
#include "passes/analysis/RequiredTraffic.h"

#include "passes/analysis/StayingPages.h"
#include "pumpgraph/graph/Ranges.h"
#include "pumpgraph/graph/Reliance.h"

#include <algorithm>
#include <unordered_map>
#include <utility>

namespace pumpgraph {
namespace {

struct Page {
  bool hasValue = false;
  bool hostIsStale = false; ///< the value, if there is one, is not what host memory holds
  bool hasBegun = false;    ///< has taken over the value of the page that it continues
  // What the node being looked at does with the page.
  bool touched = false;
  bool readsOld = false;
  bool mayWrite = false;
};

/// Follows every page through the accesses, in index order: a frame's pages take turns in the same order in every legal
/// execution.
class Residencies {
public:
  explicit Residencies(const Description &step) : step_(step) {
    std::size_t count = 0;
    for (BufferIndex buffer = 0; buffer < step.buffers.size(); ++buffer) {
      firstPage_.push_back(count);
      count += step.buffers[buffer].isPrivate ? step.pageCount(buffer) : 0;
    }
    pages_.resize(count);
  }

  Traffic run() {
    begin();
    for (const Node &node : step_.nodes)
      if (!isAdded(node.kind))
        visit(node);
    end();
    return traffic_;
  }

private:
  /// At whichever address, if it stays where it is.
  Page &page(BufferIndex buffer, std::uint64_t index) {
    return pages_[firstPage_[firstAddress(step_, buffer, index)] + index];
  }

  std::uint64_t bytesOf(BufferIndex buffer, std::uint64_t index) const {
    return std::min(step_.pageBytes, step_.buffers[buffer].size - index * step_.pageBytes);
  }

  void begin() {
    for (BufferIndex buffer = 0; buffer < step_.buffers.size(); ++buffer) {
      const Buffer &described = step_.buffers[buffer];
      if (!described.isPrivate || described.frames.empty())
        continue;
      for (std::uint64_t index = 0; index < described.frames.size(); ++index)
        page(buffer, index).hasValue = described.liveIn;
      forEachPage(described.resident, [&](std::uint64_t index) {
        page(buffer, index).hostIsStale = true;
        tenant_[described.frames[index]] = &page(buffer, index);
      });
      forEachPage(described.mirrored, [&](std::uint64_t index) { page(buffer, index).hostIsStale = false; });
    }
  }

  /// Resident pages come back; all others, and those that are mirrored, go to host memory.
  void end() {
    for (BufferIndex buffer = 0; buffer < step_.buffers.size(); ++buffer) {
      const Buffer &described = step_.buffers[buffer];
      if (!described.isPrivate || described.frames.empty() || !described.liveOut)
        continue;
      std::vector<bool> stays(described.frames.size()), goes(described.frames.size(), true);
      forEachPage(described.resident, [&](std::uint64_t index) {
        stays[index] = true;
        goes[index] = false;
      });
      forEachPage(described.mirrored, [&](std::uint64_t index) { goes[index] = true; });
      for (std::uint64_t index = 0; index < stays.size(); ++index) {
        if (stays[index])
          moveIn(buffer, index, true);
        if (goes[index])
          bringDown(buffer, index);
      }
    }
  }

  template <typename Visit> void forEachPage(const std::vector<Range> &ranges, Visit visit) const {
    for (const Range &range : ranges)
      for (const std::uint64_t index : pagesIn(range, step_.pageBytes))
        visit(index);
  }

  void visit(const Node &node) {
    touched_.clear();
    for (const Access &access : node.accesses)
      if (step_.buffers[access.buffer].isPrivate && !step_.buffers[access.buffer].frames.empty())
        touch(access);
    for (const auto &[buffer, index] : touched_) {
      Page &use = page(buffer, index);
      const bool isHosted = step_.buffers[buffer].frames[index] == noFrame;
      if (isHosted)
        takeOver(buffer, index);
      else
        moveIn(buffer, index, use.readsOld);
      use.hasValue |= use.mayWrite;
      use.hostIsStale |= use.mayWrite && !isHosted;
      use.touched = use.readsOld = use.mayWrite = false;
    }
  }

  /// Notes what an access does with each of its pages.
  void touch(const Access &access) {
    for (const std::uint64_t index : pagesIn(access.range, step_.pageBytes)) {
      Page &use = page(access.buffer, index);
      const std::uint64_t offset = index * step_.pageBytes;
      const bool overwrites = reliableMust(access) == modeWrite && access.range.offset <= offset &&
                              access.range.end() >= offset + bytesOf(access.buffer, index);
      use.readsOld = use.readsOld || (!overwrites && reliableMay(access) != modeNone);
      use.mayWrite = use.mayWrite || (reliableMay(access) & modeWrite) != 0;
      if (!use.touched)
        touched_.emplace_back(access.buffer, index);
      use.touched = true;
    }
  }

  /// The page has its frame from here on. If another had it since, the value comes up from the host, after it went down
  /// there if it had changed.
  void moveIn(BufferIndex buffer, std::uint64_t index, bool needsValue) {
    Page &moving = page(buffer, index);
    takeOver(buffer, index);
    Page *&tenant = tenant_[step_.buffers[buffer].frames[index]];
    if (tenant == &moving)
      return;
    tenant = &moving;
    if (!needsValue || !moving.hasValue)
      return;
    bringDown(buffer, index);
    traffic_.upBytes += bytesOf(buffer, index);
  }

  /// What goes on at another address, in another frame, does so through host memory.
  void takeOver(BufferIndex buffer, std::uint64_t index) {
    Page &next = page(buffer, index);
    const BufferIndex before = step_.buffers[firstAddress(step_, buffer, index)].continues;
    if (before == noBuffer || std::exchange(next.hasBegun, true) || step_.buffers[before].frames.empty())
      return;
    takeOver(before, index); // in case nobody touched it
    bringDown(before, index);
    next.hasValue = page(before, index).hasValue;
    next.hostIsStale = false;
  }

  void bringDown(BufferIndex buffer, std::uint64_t index) {
    Page &leaving = page(buffer, index);
    if (leaving.hasValue && leaving.hostIsStale)
      traffic_.downBytes += bytesOf(buffer, index);
    leaving.hostIsStale = false;
  }

  const Description &step_;
  std::vector<std::size_t> firstPage_; ///< by BufferIndex, in `pages_`
  std::vector<Page> pages_;            ///< of private buffers
  std::vector<std::pair<BufferIndex, std::uint64_t>> touched_;
  std::unordered_map<std::int32_t, Page *> tenant_; ///< by frame: who used it last
  Traffic traffic_;
};

} // namespace

Traffic requiredTraffic(const Description &planned) {
  return Residencies(planned).run();
}

Traffic movedTraffic(const Description &planned) {
  Traffic traffic;
  for (const Node &node : planned.nodes) {
    traffic.upBytes += movesUp(node.kind) ? node.range.size : 0;
    traffic.downBytes += movesDown(node.kind) ? node.range.size : 0;
  }
  return traffic;
}

} // namespace pumpgraph
