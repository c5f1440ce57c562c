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
#include <utility>
#include <vector>

namespace pumpgraph::runtime {

class PinnedPool;

/// Such blocks stay in place. All memory is searched before a plan is made, what calls may have written since then
/// before a plan comes into force, and every upload when it comes. Not thread-safe.
class NamedBlocks {
public:
  /// Memory beside the heap: address and size.
  using Ranges = std::vector<std::pair<CUdeviceptr, std::uint64_t>>;
  using Beside = std::function<Ranges()>;

  NamedBlocks(const MemoryTools &tools, Beside beside) : tools_(tools), beside_(std::move(beside)) {}

  bool contains(BlockId block) const { return uploaded_.contains(block) || found_.contains(block); }
  /// Of those that exist.
  std::set<std::uint64_t> addresses() const;

  /// The device is idle.
  Status searchAll(CUstream stream);
  /// The same of the memory that calls have written since the last search.
  Status searchWritten(CUstream stream);
  /// A call beside planned rounds is next, which may write addresses to memory.
  void noteWrites(const Call &call);

  /// Adds blocks that words lead to.
  void keep(std::span<const std::uint64_t> words) { addNamed(words, std::nullopt, uploaded_); }
  /// Adds blocks whose addresses are among the bytes that a call uploads. False if nobody can read them.
  bool noteUpload(const Call &call);

private:
  Status search(const std::set<std::uint64_t> *holders, CUstream stream);
  Status searchRange(CUdeviceptr address, std::uint64_t bytes, std::optional<BlockId> holder, const PinnedPool &staging,
                     CUstream stream);
  /// Adds the blocks that words name, alive or not.
  void addNamed(std::span<const std::uint64_t> words, std::optional<BlockId> holder, std::set<BlockId> &named) const;

  MemoryTools tools_;
  Beside beside_;
  std::set<BlockId> uploaded_;      ///< whose addresses were uploaded
  std::set<BlockId> found_;         ///< whose addresses were in memory
  std::set<std::uint64_t> written_; ///< addresses of blocks, and of ranges beside the heap
  bool mayAllBeWritten_ = true;
};

} // namespace pumpgraph::runtime
