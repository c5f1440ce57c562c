// SPDX-License-Identifier: Apache-2.0
/// \file
/// The places of one block's pages under the plan in force, and copies between these places.
#pragma once

#include "runtime/lower/MemoryTools.h"
#include "runtime/memory/ReservedBlock.h"

#include <algorithm>
#include <memory>
#include <vector>

namespace pumpgraph::runtime {

constexpr std::uint64_t noPlace = UINT64_MAX;

/// Consecutive hosted pages, and the host memory behind them.
struct HostedRun {
  std::uint64_t firstPage = 0;
  std::uint64_t pages = 0;
  std::shared_ptr<HostBacking> memory; ///< null until Residence::pin()
};

struct PlannedBlock {
  /// Content that lies in one piece wherever it is.
  struct Piece {
    std::uint64_t offset; ///< in the block
    std::uint64_t bytes;
    std::uint64_t place; ///< noPlace: in the page's frame alone, or hosted
    bool resident;       ///< in the page's frame

    bool isAtAddress() const { return resident || place == noPlace; }
  };

  BlockId block = 0;
  BlockId chain = 0;       ///< the captured one that it continues; itself, if it continues none
  std::uint64_t bytes = 0; ///< of content
  bool isPrivate = false;
  bool isPresent = false;
  std::vector<std::int32_t> plan;   ///< the plan's frame numbers, by page
  std::vector<bool> resident;       ///< by page: on the device at the boundary
  std::vector<bool> mirrored;       ///< by page: resident, and at its place as well
  std::vector<bool> hosted;         ///< by page: in host memory at all times
  std::vector<std::uint64_t> place; ///< by page: in the pinned pool, or noPlace
  std::vector<HostedRun> hostedRuns;
  bool hasValue = false; ///< at the boundary
  bool everyPageResident = false;
  std::vector<FrameId> frames;                   ///< by page, while installed: `plan` on this device
  std::shared_ptr<const ReservedBlock> reserved; ///< null unless it is one

  bool hasMirror() const { return std::find(mirrored.begin(), mirrored.end(), true) != mirrored.end(); }
  /// Whether steps alone touch it, so that between replays other values may have its frames.
  bool mayLendFrames() const { return isPrivate && !isPresent; }
  std::uint64_t bytesOf(std::uint64_t page) const { return std::min(pageBytes, bytes - page * pageBytes); }
  std::vector<FrameId> residentFrames() const;
  /// Cuts the content where it changes between frames, places and both, or where places do not follow each other.
  std::vector<Piece> pieces() const;
};

/// The copies of Residence and Loans, on the session's stream; copyHosted() alone waits for them.
class ValueCopies {
public:
  ValueCopies(const MemoryTools &tools, const PinnedPools &pools) : tools_(tools), pools_(pools) {}

  /// The pages that are not resident, between their addresses, counted from `base`, and the pinned pool.
  Status copyPlaces(const PlannedBlock &planned, CUdeviceptr base, bool toPlaces) const;
  Status copyResident(const PlannedBlock &planned, CUdeviceptr from, CUdeviceptr to) const;
  /// The mirrored pages, from their addresses, counted from `base`, to the pinned pool.
  Status copyMirrored(const PlannedBlock &planned, CUdeviceptr base) const;
  /// The hosted pages, between their memory and their addresses counted from `base`.
  Status copyHosted(const PlannedBlock &planned, CUdeviceptr base, bool toHosted) const;

private:
  const MemoryTools &tools_;
  const PinnedPools &pools_;
};

/// Maps the plan's frames and the hosted pages' memory at the block's address; unmapPlanned() undoes it.
Status mapPlanned(const MemoryTools &tools, const PlannedBlock &planned);
Status unmapPlanned(const MemoryTools &tools, const PlannedBlock &planned);

Status waitForDevice(const MemoryTools &tools, const char *purpose);

} // namespace pumpgraph::runtime
