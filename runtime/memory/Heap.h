// SPDX-License-Identifier: Apache-2.0
/// \file
/// The allocator: live allocations, their addresses, and the memory behind them.
#pragma once

#include "runtime/memory/Block.h"
#include "runtime/memory/BlockMemory.h"
#include "runtime/memory/Tags.h"

#include <atomic>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

namespace pumpgraph::runtime {

/// An allocation of a rehearsal.
struct RehearsedAllocation {
  std::uint64_t size = 0; ///< as requested
  bool isKept = false;    ///< not freed
};

/// Outside a capture an allocation gets memory at once: device frames within the budget, host memory beyond it. A freed
/// block is kept for the next allocation of its size on its stream, and given up when memory is short. During a capture
/// an allocation gets fresh addresses without memory; a freed one is remembered until the capture is dropped or
/// adopted.
///
/// In a managed arena addresses are memory. A rehearsed capture there reuses the addresses of an allocation freed on a
/// stream under capture, for later allocations on that stream that the rehearsal did not keep. A block then has several
/// members, one after the other; words lead to the last of them.
///
/// An allocation during the capture of a graph of the program's own belongs to that graph. Freed, it serves the same
/// capture again, as in a stream-ordered allocator, and nothing else until the graph is gone.
///
/// Not thread-safe, except capturing().
class Heap {
public:
  /// `managed`: the addresses are those of a managed arena, so that memory never has to be put behind them.
  Heap(const Driver &driver, AddressSpace &addresses, FramePool &pool, HostMemory &host, const PageMapper &mapper,
       bool managed = false)
      : driver_(driver), addresses_(addresses), pool_(pool), memory_(driver, addresses, pool, host, mapper),
        managed_(managed) {}
  ~Heap();
  Heap(const Heap &) = delete;
  Heap &operator=(const Heap &) = delete;

  /// `after`: empty unless the stream is being captured. `graph`: of the program's own, into which it is.
  Expected<CUdeviceptr> allocate(std::uint64_t size, CUstream stream, std::string_view name, LastNodes after = {},
                                 GraphNumber graph = 0);
  Status free(CUdeviceptr pointer, CUstream stream);

  /// A graph of the program's own is captured from now on. An allocation for it says the same.
  void graphBegins(GraphNumber graph);
  /// Graphs of the program's own are gone: memory that they alone used is free.
  void graphsEnded(const std::vector<GraphNumber> &ended);
  /// While on, a freed allocation is kept for all graphs of the program that were captured since it was allocated.
  /// Gives what it was before.
  bool keepFreed(bool on) { return std::exchange(keepsFreed_, on); }
  /// While on, freed allocations of the capture count as scratch memory.
  void freedIsScratch(bool on) { freedIsScratch_ = on; }
  /// While on, of several reusable places an allocation gets the one with the lowest address. A loop that begins each
  /// round with the same memory free then has the same addresses in each.
  void takeLowest(bool on) { takesLowest_ = on; }
  /// While on, a block that gives up its memory keeps its addresses, for later allocations of its size. A loop that
  /// needs more than there is then has the same addresses in each round, too.
  void keepAddresses(bool on) { keepsAddresses_ = on; }
  /// Of several places for the next large allocation it gets this one, if it is one of them; 0: no matter which.
  void wishFor(CUdeviceptr address) { wished_ = address; }
  /// Limits the frames of such graphs, whose memory never moves; allocations beyond the limit are in host memory.
  void limitGraphs(std::uint64_t frames) { mostGraphFrames_ = frames; }

  /// The block and member that `word` points at, if any that is alive or kept, or was when the running or last capture
  /// began.
  std::optional<Hit> find(std::uint64_t word) const;
  /// Whether the bytes at an address all belong to a value that somebody may read: of an allocation that is alive or
  /// kept, or was when the running or last capture began, as far as it was asked for.
  bool holdsValue(std::uint64_t address, std::uint64_t bytes) const;
  /// The block that `word` points into or beside, whether anything is alive there or not.
  std::optional<BlockId> blockAround(std::uint64_t word) const;
  Expected<Hit> require(const void *pointer) const;

  /// Of the allocation at an address, for messages; "freed memory" if there is none.
  std::string nameAt(CUdeviceptr address) const;

  Block &block(BlockId id) { return *blocks_[id]; }
  const Block &block(BlockId id) const { return *blocks_[id]; }
  Allocation &member(const Hit &hit) { return blocks_[hit.block]->members[hit.member]; }
  const AddressSpace &addresses() const { return addresses_; }
  bool exists(BlockId id) const { return blocks_[id] != nullptr; }
  /// Every block that exists, in the order of their creation.
  std::vector<BlockId> blocks() const;

  /// Starts a capture and drops an earlier one. `rehearsed`: the allocations of its rehearsal, in order, where
  /// addresses can be reused.
  CaptureNumber beginCapture(std::vector<RehearsedAllocation> rehearsed = {});
  /// Whether allocations of the capture that runs may get addresses of others.
  bool usesAddressesAgain() const { return capturing_ && !rehearsed_.empty(); }
  void endCapture();
  bool capturing() const { return capturing_; }
  /// The capture that runs or waits to be adopted; 0: none.
  CaptureNumber capture() const { return capture_; }
  /// Allocations of the current capture in order: its k-th allocation is the k-th of a rehearsal.
  const std::vector<Hit> &captured() const { return captured_; }
  /// Of the blocks that they are in.
  std::uint64_t capturedPages() const;
  /// Forgets the capture: allocations freed in it are free.
  void dropCapture();
  /// Frees allocations that were freed in the capture and lie in none of the `used` blocks. captured() loses blocks
  /// that go with them, or with the cache.
  void recycleUnused(const std::set<BlockId> &used);

  /// Gives memory to a block without any: device frames if there are enough, else host memory. `mayWait`: for the
  /// device, to give up cached blocks.
  Status back(Block &block, bool mayWait = true);
  Status backOnHost(Block &block) { return memory_.put(Backing::Host, block); }
  /// Moves a block to memory of the other kind, contents and all: Device, Piece or Host, from one of these. Nothing may
  /// be running that uses it. When it fails the block is where it was, if the driver lets us.
  Status moveTo(Backing backing, Block &block) { return memory_.move(backing, block); }
  Status moveToHost(Block &block) { return moveTo(Backing::Host, block); }

  /// Gets memory on the device for so many pages, as far as it can.
  using MakeRoom = std::function<Status(std::uint64_t pages)>;
  /// While set, it is called ahead of an allocation in host memory, cached blocks are given up only as far as needed,
  /// and large blocks get pieces.
  void makeRoomBy(const MakeRoom *makeRoom) { makeRoom_ = makeRoom; }
  /// Takes the memory away; frames go back to the pool. Nothing may be running that uses it.
  Status unback(Block &block) { return memory_.takeAway(block); }
  /// Takes stand-ins away from all blocks, so that wide ones are frames again; adds these blocks to `taken`, after a
  /// failure those that have lost theirs.
  Status takeStandInsAway(std::vector<BlockId> &taken);
  /// To blocks that have got no memory since, as far as the driver lets us; narrow ones, that are no frames.
  void giveStandInsBack(const std::vector<BlockId> &blocks);
  /// Wide ones become frames again, and narrow ones lie in their places. Not during a capture.
  Status narrowStandIns();

  /// A block of addresses alone, where a plan may map frames: nothing is allocated there, and no word leads there.
  Expected<BlockId> reserve(std::uint64_t pages);
  /// Gives its addresses back, unless a failure has left something mapped there: then nobody gets them any more.
  void giveUp(BlockId reserved);

  /// Ends a step's hold on a block. The block must have memory of its own again, or none.
  void release(Block &block);
  void retain(Block &block);

  // From frames to managed memory and back, at the same addresses. Nothing may be running, no block may be planned.

  /// Whether an allocation in it is alive, or was when the capture began that waits to be adopted.
  bool isInUse(const Block &block) const;
  /// Whether it was allocated in that capture, as a whole.
  bool isOfCapture(const Block &block) const;
  /// The former memory of a block.
  struct Contents {
    BlockId block = 0;
    Backing backing = Backing::None;
    std::vector<char> bytes; ///< empty if the value does not matter
  };
  /// Takes the memory of all blocks away. `hasValue`: whether the block's contents matter. On failure blocks have their
  /// memory back, as far as the driver allows.
  Expected<std::vector<Contents>> takeMemoryAway(const std::function<bool(const Block &)> &hasValue, CUstream stream);
  /// The opposite. Goes on with other blocks where one fails.
  Status giveMemoryBack(const std::vector<Contents> &taken, CUstream stream);
  /// Puts managed memory behind all addresses, or memory of its own behind each block, with the values that were taken
  /// away. Captured allocations that are not adopted yet get stand-ins.
  Status becomeManaged(const std::vector<Contents> &taken, CUstream stream);
  Status becomeVirtual(const std::vector<Contents> &taken, CUstream stream);
  /// Whether there are frames for every block, with the memory that they have and these beside them.
  bool hasFramesFor(std::uint64_t pagesBeside) const;

  /// Gives up cached blocks until so many frames are available, and waits for the device first unless a capture is on.
  /// Those of a plan in force stay.
  Status flushCache(std::uint64_t wanted = UINT64_MAX);

  HeapStats stats() const { return stats_; }
  /// Sets the peaks to the present values.
  void resetPeaks() { stats_.resetPeaks(); }
  /// Those of the allocations, which get that of the thread.
  Tags &tags() { return tags_; }

private:
  struct Slot {
    BlockId block;
    std::size_t member;
    auto operator<=>(const Slot &) const = default;
  };
  /// The key of reusable memory: the graph (0: outside any), the size and the stream.
  using Place = std::tuple<GraphNumber, std::uint64_t, CUstream>;

  /// Without memory, at addresses that were carved for it.
  Block &addBlock(CUdeviceptr address, std::uint64_t pages, bool shared);
  /// With memory, or during a capture with stand-ins.
  Expected<Block *> createBlock(std::uint64_t pages, bool shared, GraphNumber graph);
  void destroyBlock(Block &block);
  Expected<CUdeviceptr> allocateLarge(std::uint64_t size, CUstream stream, std::string_view name, LastNodes after,
                                      GraphNumber graph);
  /// A block whose last member was freed in this capture, for the next allocation of it.
  std::optional<BlockId> takeVacant(std::uint64_t size, CUstream stream, const LastNodes &after);
  Expected<CUdeviceptr> allocateSmall(std::uint64_t size, CUstream stream, std::string_view name, GraphNumber graph);
  /// Where the next small allocation goes.
  std::optional<BlockId> &openFor(GraphNumber graph);
  /// Takes one of several reusable blocks or slots, of which there is one at least.
  template <typename Item> Item takeReusable(std::vector<Item> &reusable) const;
  CUdeviceptr addressOf(BlockId id) const { return blocks_[id]->address; }
  CUdeviceptr addressOf(const Slot &slot) const;
  /// Fills in a member's facts and counts it.
  CUdeviceptr handOut(Block &block, std::size_t member, std::uint64_t size, CUstream stream, std::string_view name,
                      GraphNumber graph);
  /// A freed member's memory becomes reusable, or is given up with its block.
  void recycle(Block &block, std::size_t member);
  /// Keeps a freed member for the graphs that may work in it. Whether there are any.
  bool keepForGraphs(const Block &block, std::size_t member);
  /// Memory for a block that has kept its addresses alone.
  Status backAgain(Block &block, GraphNumber graph);
  /// A cached block for an allocation, if there is one. It may have no memory.
  std::optional<BlockId> takeCached(std::uint64_t pages, CUstream stream, GraphNumber graph);
  /// Gives up addresses without memory.
  void dropKeptAddresses();
  /// Whether a block of a graph's may have frames.
  bool graphsHaveFrames(std::uint64_t pages) const;
  /// Adds a freed member to the reusable memory.
  void offer(const Block &block, std::size_t member, GraphNumber graph);
  void forgetSlots(BlockId block);
  /// No block that is gone is in captured().
  void forgetDestroyed();
  Status takeMemory(Block &block, bool hasValue, CUstream stream, std::vector<Contents> &taken);
  Status write(const Contents &contents, CUstream stream);
  /// Whether a block that was freed in host memory has other memory, without its contents, before it is used again.
  Status renew(Block &block);

  const Driver &driver_;
  AddressSpace &addresses_;
  FramePool &pool_;
  BlockMemory memory_;
  bool managed_;

  std::vector<std::unique_ptr<Block>> blocks_; ///< by BlockId; null once destroyed
  std::vector<std::int32_t> blockOfPage_;      ///< by AddressSpace::pageIndex, guards included; -1: none

  std::map<Place, std::vector<BlockId>> cachedBlocks_; ///< by pages
  /// By pages: blocks that have kept their addresses alone, of no stream.
  std::map<std::uint64_t, std::vector<BlockId>> keptAddresses_;
  std::map<Place, std::vector<Slot>> freeSlots_; ///< by room
  std::optional<BlockId> openShared_;            ///< where the next small allocation goes
  std::optional<BlockId> openSharedCaptured_;    ///< the same during a capture

  // Of the program's own graphs.
  std::map<GraphNumber, std::optional<BlockId>> graphs_; ///< those that live: where the next small allocation goes
  GraphNumber lastGraph_ = 0;
  bool keepsFreed_ = false;
  bool freedIsScratch_ = false;
  bool takesLowest_ = false;
  bool keepsAddresses_ = false;
  CUdeviceptr wished_ = 0;
  std::uint64_t mostGraphFrames_ = UINT64_MAX;
  const MakeRoom *makeRoom_ = nullptr;
  /// Freed members that wait for graphs to end, by the first and the last of these.
  std::map<std::pair<GraphNumber, GraphNumber>, std::set<Slot>> kept_;

  CaptureNumber lastCapture_ = 0;
  CaptureNumber capture_ = 0;
  std::atomic<bool> capturing_{false};
  std::vector<Hit> captured_;
  std::vector<Hit> freedInCapture_;
  std::vector<RehearsedAllocation> rehearsed_;
  std::map<CUstream, std::multimap<std::uint64_t, BlockId>> vacant_; ///< by pages

  std::uint64_t lastSerial_ = 0;
  std::uint64_t lastCapturedSerial_ = 0; ///< younger allocations are from after the capture's end
  HeapStats stats_;
  Tags tags_;
};

} // namespace pumpgraph::runtime
