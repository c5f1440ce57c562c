// SPDX-License-Identifier: Apache-2.0
/// \file
/// Values at their addresses between replays, for use from outside steps.
#pragma once

#include "runtime/lower/PlannedBlock.h"

#include <map>
#include <set>
#include <span>
#include <vector>

namespace pumpgraph::runtime {

/// What the caller does with a value at its address. The values are part of the C ABI.
enum class Use : std::uint8_t {
  Read = 0,
  Write = 1,
  UntilReplay = 2 ///< writes, and no other call takes its frames
};

/// Lends blocks of a plan in force: their values are at their addresses while the plan stays in force.
///
/// Every page of a planned block has a frame behind its address at all times. A page that is away is copied into that
/// frame; so a loan costs its bytes over the link and maps nothing. A value that another page keeps in the frame
/// between replays is *displaced*: saved in host memory if it is nowhere else, and brought back by settle(). Frames of
/// exclusive and present blocks are never taken. Where two pages of one call share a frame, one of them is mapped to
/// another frame; where no frame is left, a block is mapped to host memory.
///
/// A call may put earlier loans away to get their frames, and counts these departures. Written values are copied to
/// their places then, values that were only read are dropped.
class Loans {
public:
  /// Borrows the blocks and pools of its residence.
  Loans(const MemoryTools &tools, const std::vector<PlannedBlock> &blocks, const PinnedPools &pools)
      : tools_(tools), blocks_(blocks), pools_(pools) {}
  ~Loans();
  Loans(const Loans &) = delete;
  Loans &operator=(const Loans &) = delete;

  /// Brings the values of these blocks, all at the same time, and waits for the device before and after. Blocks that
  /// are not the plan's are left alone. `isPinned`: until unpin() no call puts them away. Where memory is short a part
  /// of the blocks may be lent; every value is where it should be then.
  Status bring(std::span<const BlockId> blocks, Use use, bool isPinned);
  /// Ends a pin. Whether it was the last one of all blocks.
  bool unpin(BlockId block);
  /// Puts all loans away, pinned or not, and displaced values back: the state in which a replay may begin.
  Status settle();
  /// Gives back host memory that displaced values had.
  void releaseMemory();
  bool empty() const { return loans_.empty() && displaced_.empty(); }
  /// A driver failure has left values between two places.
  bool broken() const { return broken_; }
  /// Takes away whatever is mapped at the block's address.
  Status unmap(const PlannedBlock &planned) const;
  /// The session is ending: loans are forgotten, values and all.
  void abandon();

private:
  struct Loan {
    std::uint32_t pins = 0;
    bool isWritten = false;
    std::vector<FrameId> frames;         ///< by page; noFrame: hosted
    std::shared_ptr<HostBacking> memory; ///< behind all pages, in place of frames
  };
  struct Page {
    BlockId block = 0;
    std::uint64_t page = 0;
    friend auto operator<=>(const Page &, const Page &) = default;
  };
  void index();
  const PlannedBlock *find(BlockId block) const;
  CUdeviceptr addressOf(const PlannedBlock &planned, std::uint64_t page) const;
  /// Where the page's value is in host memory; null if it is not.
  char *hostPlace(const PlannedBlock &planned, std::uint64_t page) const;
  /// The page whose value the frame holds between replays, and holds now; null if there is none.
  const Page *residentIn(FrameId frame) const;

  Status lend(const PlannedBlock &planned, const std::set<BlockId> &together);
  Status claimFrames(const PlannedBlock &planned, const std::set<BlockId> &together, Loan &loan);
  /// The page's own frame where it can be had; else what costs least: nothing, a loan that was only read, a value that
  /// is displaced, a loan that is written back. noFrame: there is none.
  Expected<FrameId> findFrame(const Page &page, FrameId own, const std::set<BlockId> &together);
  bool canTake(FrameId frame, const Page &page, const std::set<BlockId> &together) const;
  /// Puts away a loan that nothing needs to stay. Whether there was one.
  Expected<bool> putOneAway(bool isWritten, const std::set<BlockId> &together);
  /// A frame of a value that can be displaced; noFrame: there is none.
  FrameId nextToDisplace(const Page &page, const std::set<BlockId> &together);
  Status vacate(FrameId frame, const Page &page);
  Status displace(const Page &page);
  Status copyIn(const PlannedBlock &planned, const Loan &loan);
  /// Maps the loan's frames where they are not the plan's, or the other way round.
  Status remap(const PlannedBlock &planned, const Loan &loan, bool toLoan) const;
  Status putAway(BlockId block);
  Status saveWritten(const PlannedBlock &planned, const Loan &loan);

  Status lendInHostMemory(const PlannedBlock &planned);
  Status returnHostMemory(const PlannedBlock &planned, const Loan &loan);
  /// Copies all that has a value between the block's usual places and a window onto memory of its own.
  Status copyAll(const PlannedBlock &planned, CUdeviceptr window, CUdeviceptr frames, bool toWindow) const;

  Status openSaves();
  /// What follows on the session's stream comes after the copies on saves_.
  Status joinSaves();
  Expected<char *> takeSlot();
  /// The page is displaced no more.
  void leave(const PlannedBlock &planned, std::uint64_t page);
  void freeLeftSlots();
  void releaseClaims(BlockId block);
  Status note(Status done) {
    broken_ = broken_ || !done;
    return done;
  }

  const MemoryTools &tools_;
  const std::vector<PlannedBlock> &blocks_;
  const PinnedPools &pools_;

  std::map<BlockId, Loan> loans_;
  std::map<FrameId, BlockId> lentTo_;
  std::map<Page, char *> displaced_; ///< and where the value is; null: it has none

  // Of the plan in force, from the first loan after settle() on.
  std::map<BlockId, const PlannedBlock *> known_;
  std::map<FrameId, Page> residents_;
  std::set<FrameId> free_;   ///< neither lent nor with a value
  FrameId nextResident_ = 0; ///< in `residents_`: of the frames before it this call has displaced what it can

  std::vector<std::unique_ptr<PinnedPool>> pinned_; ///< of slots, a page each
  std::vector<char *> freeSlots_;
  std::vector<char *> leftSlots_; ///< free once the copies of the present call are done
  CUstream saves_ = nullptr;      ///< copies to host memory, beside those to the device on the session's stream
  CUevent saved_ = nullptr;
  bool broken_ = false;
};

} // namespace pumpgraph::runtime
