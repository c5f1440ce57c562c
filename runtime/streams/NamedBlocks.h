// SPDX-License-Identifier: Apache-2.0
/// \file
/// The memory whose addresses are in other memory, where kernels may find them.
#pragma once

#include "runtime/lower/MemoryTools.h"
#include "runtime/streams/Call.h"

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace pumpgraph::runtime {

class PinnedPool;

/// Such blocks stay in place. All memory is searched before a plan is made, what calls may have written since then
/// before a plan comes into force, and every upload when it comes. Addresses may stand at multiples of four, as in
/// packed structs. Not thread-safe.
class NamedBlocks {
public:
  /// The memory beside the heap.
  struct Beside {
    /// Of the device: addresses and sizes, ascending.
    std::function<std::vector<std::pair<CUdeviceptr, std::uint64_t>>()> ranges;
    /// Whether a word leads into host memory that kernels reach, and the addresses around all of that.
    std::function<bool(std::uint64_t word)> isOfHost;
    std::function<std::pair<std::uint64_t, std::uint64_t>()> hostBounds;
  };

  NamedBlocks(const MemoryTools &tools, Beside beside) : tools_(tools), beside_(std::move(beside)) {}

  bool contains(BlockId block) const { return uploaded_.contains(block) || found_.contains(block); }
  /// Of those that exist.
  std::set<std::uint64_t> addresses() const;
  /// Why no block may move: memory of the device names host memory, where the program may write addresses at any time;
  /// empty: that is not so.
  std::string whyAllStay() const;

  /// The device is idle.
  Status searchAll(CUstream stream);
  /// The same of the memory that calls have written since the last search.
  Status searchWritten(CUstream stream);
  /// A call beside planned rounds is next, which may write addresses to memory.
  void noteWrites(const Call &call);
  /// A range beside the heap has come that was not searched.
  void noteUnsearched(CUdeviceptr address) { written_.insert(address); }
  void noteAllUnsearched() { mayAllBeWritten_ = true; }

  /// Adds blocks that words lead to.
  void keep(std::span<const std::uint64_t> words);
  /// Adds blocks whose addresses are among the bytes that a call uploads. Why nothing can be planned after it; empty:
  /// that is no reason.
  std::string_view noteUpload(const Call &call);

private:
  using Halves = std::span<const std::uint32_t>; ///< of words, which begin at each

  Status search(const std::set<std::uint64_t> *holders, CUstream stream);
  Status searchRange(CUdeviceptr address, std::uint64_t bytes, std::optional<BlockId> holder, const PinnedPool &staging,
                     CUstream stream);
  /// Adds the blocks that words name, alive or not. Whether one leads to host memory.
  bool look(Halves halves, std::optional<BlockId> holder, std::set<BlockId> &named) const;

  MemoryTools tools_;
  Beside beside_;
  std::set<BlockId> uploaded_;           ///< whose addresses were uploaded
  std::set<BlockId> found_;              ///< whose addresses were in memory
  std::set<std::uint64_t> written_;      ///< addresses of blocks, and of ranges beside the heap
  std::optional<CUdeviceptr> namesHost_; ///< memory that does
  bool mayAllBeWritten_ = true;
};

} // namespace pumpgraph::runtime
