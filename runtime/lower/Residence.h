// SPDX-License-Identifier: Apache-2.0
/// \file
/// A plan in force: which frame stands behind which page of the step's buffers, and where each value is between
/// replays.
#pragma once

#include "pumpgraph/graph/Description.h"
#include "pumpgraph/graph/HostedChains.h"
#include "runtime/lower/Loans.h"

#include <map>
#include <optional>
#include <set>
#include <vector>

namespace pumpgraph::runtime {

/// Which blocks get memory of their own when a plan is taken back. What is in the others is lost.
enum class Keep : std::uint8_t {
  EveryBlock,
  Values,     ///< those that another step uses, that are allocated, or that have a value between replays
  Allocations ///< those that another step uses or that are allocated
};

/// Takes the buffers of one rewritten step, or of several that share a boundary, from the state "every block has memory
/// of its own" to "frames are shared as planned", and back.
///
/// No value is lost on the way: at the step boundary the value of a page is in its frame if it is resident, else at its
/// place in the pinned pool. A mirrored page is resident and has its value at its place too: the next replay may give
/// up the frame and fetch the page again, so what changes one of the two from outside changes both. The value of a
/// hosted page is in host memory of the residence's own, which is mapped at the page's address while the plan is in
/// force. Pages at one position of blocks that continue each other share that memory.
///
/// Every change of state waits for the device first. A driver failure halfway through a change leaves the step
/// unusable; what can fail for lack of memory is therefore done before anything changes.
class Residence {
public:
  /// Reads the layout off a lowered description, whose buffers are `blocks`. Those of them that are `reserved` belong
  /// to the plan alone: they have no memory while it is not in force.
  Residence(const MemoryTools &tools, const Description &lowered, const std::vector<BlockId> &blocks,
            const ReservedBlocks &reserved = {})
      : tools_(tools) {
    add(lowered, blocks, reserved);
  }
  Residence(const Residence &) = delete;
  Residence &operator=(const Residence &) = delete;

  // A step that shares the boundary of others gets a residence made from theirs, which can take its place.

  /// A residence of the same places and hosted memory, not in force, for one more step that uses `known` blocks. It
  /// lacks what of `known` has no value between replays: the step brings its own.
  std::unique_ptr<Residence> forStep(const std::vector<BlockId> &known) const;
  /// Of a residence made by forStep(): the boundary that the step must keep (docs/design/plan-correctness.md), by the
  /// buffers of `step`, which are `blocks`. Fails where a buffer is private in one and exclusive in the other.
  Expected<Description> boundaryFor(const Description &step, const std::vector<BlockId> &blocks) const;
  /// Frames of the device that the step must leave alone beside those of the boundary.
  std::uint64_t unknownFrames() const { return unknownFrames_; }
  /// Adds the step's buffers, from its lowered description. pin() gets what they need beyond what there is.
  void add(const Description &lowered, const std::vector<BlockId> &blocks, const ReservedBlocks &reserved = {});
  /// The lowered description with the places that pages have here; a copy between places that do not follow each other
  /// becomes several, and so do rows of one that do not lie at one distance, or not in one piece of pinned memory.
  Description withPlaces(const Description &lowered, const std::vector<BlockId> &blocks) const;
  /// Gets addresses for the rows of the copies of a description that withPlaces() gave. While the plan is in force the
  /// frames of their pages are mapped there too, side by side, for a copy takes rows only at one distance from each
  /// other.
  Status addRows(const Description &placed, const std::vector<BlockId> &blocks);
  /// Pages of a block, the first of them.
  using RowPage = std::pair<BlockId, std::uint64_t>;
  /// The rows of one copy: so many pages each, at the same distance.
  struct Rows {
    std::vector<RowPage> pages; ///< of each row, ascending by place
    std::uint64_t pagesPerRow = 0;

    friend auto operator<=>(const Rows &, const Rows &) = default;
  };
  /// Those of a lowered copy, whose rows are `nodes`, ascending by place.
  static Rows rowsOf(const Description &lowered, const std::vector<NodeIndex> &nodes,
                     const std::vector<BlockId> &blocks);
  /// Where they are mapped. Only what addRows() got.
  CUdeviceptr addressOf(const Rows &rows) const { return rows_.at(rows).addresses->address(); }
  /// The rows that are mapped there; null if none begin there.
  const Rows *rowsAt(CUdeviceptr address) const;
  /// Private blocks with pages that are on the device between replays, and exclusive ones, that are not in `known`.
  std::vector<BlockId> blocksInFramesBeside(const std::vector<BlockId> &known) const;
  /// Forgets blocks; only while the plan is not in force.
  void forget(const std::set<BlockId> &blocks);

  /// Gets pinned memory, and the memory of hosted pages, for those that have none yet. Pools keep their addresses for
  /// the life of the residence: the copy nodes name them.
  Status pin();
  /// Puts the plan in force. PUMPGRAPH_INTERNAL if two resident pages share a frame. When it fails nothing has changed,
  /// or the step is lost().
  Status install();
  /// Gives blocks memory of their own, with the value they have at the boundary: device frames while the budget lasts,
  /// host memory to those in `toHost` and the rest. When it fails the plan is in force as before, unless the step is
  /// lost(). `step`: the blocks for which Keep::EveryBlock holds, and Keep::Values for the others; null: all of them.
  Status remove(Keep keep, const std::set<BlockId> &toHost = {}, const std::vector<BlockId> *step = nullptr);
  /// Where a block's value is in the middle of a replay.
  struct Midway {
    std::vector<bool> onDevice; ///< by page: in its frame; else at its place, or hosted
    bool hasValue = false;
  };
  /// The same in the middle of a replay, of whose nodes some have completed and no other is issued.
  Status removeMidway(const std::map<BlockId, Midway> &midway);
  bool installed() const { return installed_; }
  /// A driver failure has left its blocks between two states.
  bool lost() const { return lost_ || loans_.broken(); }
  /// Takes all memory away, values and all: the session is ending.
  void abandon();

  /// Brings a block's value to its address, for use from outside the step, until giveBack(). They nest. Blocks that are
  /// not the step's are left alone. After the last giveBack() every value is where a replay expects it.
  Status lend(BlockId block);
  Status giveBack(BlockId block);
  /// Brings values to their addresses, until settle() or until another call takes their frames, which counts as a
  /// departure.
  Status bring(std::span<const BlockId> blocks, Use use);
  /// Puts all values where a replay expects them.
  Status settle() { return loans_.settle(); }
  bool lendsAnything() const { return !loans_.empty(); }

  const PinnedPools &pool() const { return pools_; }
  std::uint64_t hostBytes() const { return hostBytes_; }
  std::set<BlockId> blocks() const;
  bool usesAny(const std::vector<BlockId> &blocks) const {
    return std::any_of(blocks.begin(), blocks.end(), [&](BlockId block) { return find(block) != nullptr; });
  }
  /// Device frames that the plan takes.
  std::uint64_t framesWanted() const;
  /// Device frames in use while installed.
  std::uint64_t frameCount() const;
  /// Frames of the device behind each page of a block, noFrame where there is none. Only while installed.
  const std::vector<FrameId> &framesOf(BlockId block) const { return find(block)->frames; }
  /// The number of each frame of the device in the plan of the step that was added last. Only while installed.
  std::map<FrameId, std::int32_t> numbersOfFrames() const;
  /// Whether every page of the block is on the device at the boundary and nowhere else, so that it can be written at
  /// its address; true for blocks that are not the step's.
  bool isWhollyResident(BlockId block) const;
  /// Copies a block's value at the boundary to `target`, or back from it: resident pages from their frames, mirrored
  /// ones to both, hosted ones at their addresses. Needs the state to be installed.
  Status readValue(BlockId block, char *target);
  Status writeValue(BlockId block, const char *source);
  /// The first byte of a mirrored page that is another at its place than in `value`, which readValue() gave.
  std::optional<std::uint64_t> firstStale(BlockId block, const char *value) const;

private:
  /// Addresses of rows, shared with the residence that takes this one's place: the copies name them.
  class RowAddresses {
  public:
    RowAddresses(AddressSpace &addresses, CUdeviceptr address, std::uint64_t pages)
        : addresses_(addresses), address_(address), pages_(pages) {}
    ~RowAddresses() { addresses_.giveBack(address_, pages_); }
    RowAddresses(const RowAddresses &) = delete;
    RowAddresses &operator=(const RowAddresses &) = delete;
    CUdeviceptr address() const { return address_; }

  private:
    AddressSpace &addresses_;
    CUdeviceptr address_;
    std::uint64_t pages_;
  };
  struct MappedRows {
    std::shared_ptr<const RowAddresses> addresses;
    std::vector<FrameId> frames; ///< empty while they are not mapped
  };
  struct Change;
  ValueCopies copies() const { return {tools_, pools_}; }
  /// The same of the frames of rows, at addresses of theirs.
  Status mapRows();
  Status unmapRows();

  // The steps of install().
  Status keepResidentFrames();
  Status prepare(Change &change);
  Status saveLeavingValues();
  Status remap(const Change &change);
  Status bringHostValues(Change &change);

  Status moveToHost(PlannedBlock &planned, CUmemGenericAllocationHandle &handle);
  Status moveToOwnFrames(const std::vector<PlannedBlock *> &moving);
  static PlannedBlock plannedBlock(const Description &lowered, BufferIndex buffer, BlockId block,
                                   const HostedChains &chains);
  PlannedBlock *find(BlockId block);
  const PlannedBlock *find(BlockId block) const;

  explicit Residence(const MemoryTools &tools) : tools_(tools) {}

  MemoryTools tools_;
  std::vector<PlannedBlock> blocks_;
  std::map<BlockId, std::size_t> positions_; ///< in `blocks_`
  std::map<Rows, MappedRows> rows_;
  std::vector<FrameId> physical_; ///< by the plan's frame numbers; noFrame: not used, or not installed
  std::uint64_t hostBytes_ = 0;   ///< where places end
  PinnedPools pools_;
  std::uint64_t knownFrames_ = 0;   ///< made by forStep(): these frames, the first ones, the step may use,
  std::uint64_t unknownFrames_ = 0; ///< and these, which follow, it may not
  Loans loans_{tools_, blocks_, pools_};
  bool installed_ = false;
  bool lost_ = false;
};

} // namespace pumpgraph::runtime
