// SPDX-License-Identifier: Apache-2.0
#include "passes/simulate/AddressMap.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>

namespace pumpgraph {

namespace {

std::uint64_t wholeLeaves(std::uint64_t bytes) {
  return (bytes + leafBytes - 1) / leafBytes * leafBytes;
}

/// A growing arena whose holes are filled best fit.
class Arena {
public:
  std::uint64_t allocate(std::uint64_t bytes) {
    const auto fit = bySize_.lower_bound({bytes, 0});
    if (fit == bySize_.end())
      return std::exchange(size_, size_ + bytes);
    const auto [holeBytes, offset] = *fit;
    removeHole(offset, holeBytes);
    if (holeBytes > bytes)
      addHole(offset + bytes, holeBytes - bytes);
    return offset;
  }

  void release(std::uint64_t offset, std::uint64_t bytes) {
    auto next = byOffset_.lower_bound(offset);
    if (next != byOffset_.end() && next->first == offset + bytes) {
      bytes += next->second;
      removeHole(next->first, next->second);
      next = byOffset_.lower_bound(offset);
    }
    if (next != byOffset_.begin()) {
      const auto [before, beforeBytes] = *std::prev(next);
      if (before + beforeBytes == offset) {
        removeHole(before, beforeBytes);
        offset = before;
        bytes += beforeBytes;
      }
    }
    addHole(offset, bytes);
  }

  std::uint64_t size() const { return size_; }

private:
  void addHole(std::uint64_t offset, std::uint64_t bytes) {
    byOffset_.emplace(offset, bytes);
    bySize_.emplace(bytes, offset);
  }
  void removeHole(std::uint64_t offset, std::uint64_t bytes) {
    byOffset_.erase(offset);
    bySize_.erase({bytes, offset});
  }

  std::uint64_t size_ = 0;
  std::map<std::uint64_t, std::uint64_t> byOffset_;          ///< holes: offset to bytes
  std::set<std::pair<std::uint64_t, std::uint64_t>> bySize_; ///< the same holes: bytes, offset
};

struct Life {
  NodeIndex first = 0;
  NodeIndex last = 0;
};

std::vector<std::optional<Life>> livesOf(const Description &captured) {
  std::vector<std::optional<Life>> lives(captured.buffers.size());
  for (NodeIndex node = 0; node < captured.nodes.size(); ++node)
    for (const Access &access : captured.nodes[node].accesses) {
      if (!captured.buffers[access.buffer].isPrivate || access.range.size == 0)
        continue;
      std::optional<Life> &life = lives[access.buffer];
      if (!life)
        life = Life{node, node};
      life->last = node;
    }
  return lives;
}

} // namespace

AddressMap mapAddresses(const Description &captured, Addresses addresses) {
  const std::vector<std::optional<Life>> lives = livesOf(captured);
  std::vector<std::vector<BufferIndex>> born(captured.nodes.size()), dying(captured.nodes.size());
  AddressMap map;
  map.offsets.assign(captured.buffers.size(), noAddress);
  Arena arena;
  for (BufferIndex b = 0; b < captured.buffers.size(); ++b) {
    if (!lives[b])
      continue;
    const Buffer &buffer = captured.buffers[b];
    if (addresses == Addresses::Own || buffer.liveIn || buffer.liveOut) {
      map.offsets[b] = arena.allocate(wholeLeaves(buffer.size));
      continue;
    }
    born[lives[b]->first].push_back(b);
    dying[lives[b]->last].push_back(b);
  }
  for (NodeIndex node = 0; node < captured.nodes.size(); ++node) {
    for (BufferIndex b : born[node])
      map.offsets[b] = arena.allocate(wholeLeaves(captured.buffers[b].size));
    for (BufferIndex b : dying[node])
      arena.release(map.offsets[b], wholeLeaves(captured.buffers[b].size));
  }
  map.footprintBytes = arena.size();
  return map;
}

} // namespace pumpgraph
