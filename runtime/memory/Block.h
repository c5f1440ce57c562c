// SPDX-License-Identifier: Apache-2.0
/// \file
/// Address ranges of the heap, the allocations in them, and the kind of memory behind them.
#pragma once

#include "runtime/driver/Driver.h"
#include "runtime/memory/FramePool.h"
#include "runtime/memory/OtherGraphs.h"
#include "runtime/memory/Tags.h"

#include <cstdint>
#include <string>
#include <vector>

namespace pumpgraph::runtime {

using BlockId = std::uint32_t;
/// Captures are counted from 1; 0 means outside any.
using CaptureNumber = std::uint32_t;

/// The memory behind a block's addresses.
enum class Backing : std::uint8_t {
  None,
  /// Useless memory behind every page: allocations during a capture need no memory, but the driver checks that the
  /// addresses of captured copies are device memory.
  StandIn,
  Device,  ///< one frame of its own behind every page
  Piece,   ///< one piece of device memory, which no plan can use: see Paging
  Host,    ///< one piece of host memory, which kernels reach over the link
  Managed, ///< pages of a managed arena, which the driver moves; at all times
  Planned  ///< frames shared with other blocks as a plan says; some pages may have none, or host memory of the plan's
};

/// The last nodes of the work of a stream under capture so far.
using LastNodes = std::vector<CUgraphNode>;

/// A result of allocate(), and its fate.
struct Allocation {
  std::uint64_t offset = 0; ///< from the start of its block
  std::uint64_t size = 0;   ///< as requested
  std::uint64_t room = 0;   ///< as reserved
  std::uint64_t serial = 0; ///< counts all allocations of the session, from 1
  std::string name;
  TagId tag = noTag;
  CUstream stream = nullptr;
  CaptureNumber bornIn = 0;
  CaptureNumber diedIn = 0;     ///< freed in this capture or before its adoption: the graph may still use it
  bool live = true;             ///< not freed
  GraphNumber graph = 0;        ///< of the program's own, while it lives: it was captured when this was allocated
  GraphNumber graphsBefore = 0; ///< the program's last one then; younger ones may work in this
  bool isScratch = false;       ///< of the capture's operations: none finds the contents that another left
  bool kept = false;            ///< freed, and such graphs may still work in it
  LastNodes after;              ///< where the block's earlier members had the same bytes: nodes after which it has them
  bool declaredPrivate = false;
  bool declaredPresent = false; ///< in addition: between replays others touch it

  /// Whether a graph may use it: one of the program's own, or that of `capture`, which runs or waits to be adopted.
  bool isReachable(CaptureNumber capture) const { return live || kept || (capture != 0 && diedIn == capture); }
};

/// Its name, or a substitute for reports.
std::string nameOf(const Allocation &allocation);

/// An address range of whole pages: one large allocation, or several small ones that live and move together.
struct Block {
  BlockId id = 0;
  CUdeviceptr address = 0;
  std::uint64_t pages = 0;
  bool shared = false;
  std::uint32_t retainers = 0; ///< number of steps that use it; it stays while there is one
  Backing backing = Backing::None;
  std::vector<FrameId> frames; ///< Device and Planned: one per page
  CUmemGenericAllocationHandle hostHandle = 0;
  CUmemGenericAllocationHandle pieceHandle = 0;
  std::uint64_t usedBytes = 0; ///< shared: handed out so far
  /// Ascending offsets. If not shared, those that had it one after the other in one capture; else exactly one.
  std::vector<Allocation> members;

  std::uint64_t bytes() const { return pages * pageBytes; }
  /// Kept ones are alive to the graphs that work in them.
  bool hasLiveMember() const;
  /// Whether a graph of the program's own has memory in it.
  bool isOfOtherGraph() const;
  /// Whether it keeps written values.
  bool hasMemory() const { return backing != Backing::None && backing != Backing::StandIn; }
};

/// A word that points into a block or its guards.
struct Hit {
  BlockId block = 0;
  std::size_t member = 0;
  std::int64_t offset = 0; ///< from the member's start; outside [0, size] when the word points at a guard
};

} // namespace pumpgraph::runtime
