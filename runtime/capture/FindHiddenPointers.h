// SPDX-License-Identifier: Apache-2.0
/// \file
/// Finds pointers that no kernel parameter shows, by a scan of memory: tables of addresses in device memory, or in host
/// memory that a captured copy reads.
#pragma once

#include "runtime/capture/LiftGraph.h"
#include "runtime/memory/Heap.h"

#include <functional>
#include <map>
#include <set>
#include <span>
#include <utility>
#include <vector>

namespace pumpgraph::runtime {

struct HiddenPointers {
  std::set<BlockId> pointedAt;   ///< named by tables: has to stay in place
  std::set<BlockId> pointAtSelf; ///< holds addresses of its own: can leave the device, but not for another address
  /// Holders, and the blocks whose addresses leave them where they may move while nothing names the holder.
  std::set<std::pair<BlockId, BlockId>> followed;
  std::vector<std::string> notes; ///< one for each table, and for each unreadable block
  std::uint64_t scannedBytes = 0;
};

/// Whether an address, found in memory at `at`, need not keep its target in place. Asked by several threads at once.
using IsFollowed = std::function<bool(std::uint64_t at, const Hit &target)>;

/// Adds the targets of holders that are among `staying`: who follows an address to the holder goes on from there.
void addReachedFrom(const std::set<std::pair<BlockId, BlockId>> &followed, std::set<BlockId> &staying);

/// Scans memory for addresses, block by block. `staging` is the buffer that contents are copied through.
class PointerScan {
public:
  PointerScan(const Driver &driver, const Heap &heap, const PinnedPool &staging, CUstream stream,
              IsFollowed isFollowed = nullptr);

  /// Looks at a block's contents as they are now, which have to be in memory of its own. Blocks until done.
  Status scanBlock(BlockId id);
  /// Looks at the host memory that the graph's copies bring to the device.
  void scanSources(const LiftedGraph &graph);
  /// The findings so far; a holder that was scanned several times has one note.
  HiddenPointers take();

private:
  /// Of some words.
  struct Words {
    std::vector<std::size_t> positions; ///< of those that keep other blocks in place
    std::set<BlockId> pointedAt;
    std::set<std::pair<BlockId, BlockId>> followed;
  };
  /// `address`: where it is on the device, or will be; 0: elsewhere. Returns the positions of words that keep other
  /// blocks in place.
  std::vector<std::size_t> scanStaged(std::uint64_t bytes, BlockId holder, std::uint64_t address);
  Words scanWords(std::span<const std::uint64_t> words, BlockId holder, std::uint64_t address) const;
  /// scanWords() by several threads: one reads slower than the link delivers.
  Words scanInParallel(std::span<const std::uint64_t> words, BlockId holder, std::uint64_t address) const;

  const Driver &driver_;
  const Heap &heap_;
  const PinnedPool &staging_;
  CUstream stream_;
  IsFollowed isFollowed_;
  HiddenPointers found_;
  std::map<std::string, std::uint64_t> holders_; ///< most addresses seen at once, by allocation
};

/// Scans the contents of the blocks in `holders` that have memory, through `staging`, and the host sources of the
/// graph's copies. Blocks until done. What kernels of the step itself write into tables is not seen: Calibration is for
/// that.
Expected<HiddenPointers> findHiddenPointers(const Driver &driver, const LiftedGraph &graph, const Heap &heap,
                                            const std::vector<BlockId> &holders, const PinnedPool &staging,
                                            CUstream stream, IsFollowed isFollowed);

} // namespace pumpgraph::runtime
