// SPDX-License-Identifier: Apache-2.0
// Unified memory, kernel by kernel: sweep over the operands, batches of faults, density, eviction, time.
#include "passes/simulate/Simulate.h"

#include "passes/simulate/AddressMap.h"
#include "passes/simulate/Density.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>

namespace pumpgraph {

PagingTimes &PagingTimes::operator+=(const PagingTimes &other) {
  faultUs += other.faultUs;
  fetchUs += other.fetchUs;
  populateUs += other.populateUs;
  writeBackUs += other.writeBackUs;
  return *this;
}

double Simulation::stallUs() const {
  double sumUs = 0;
  for (const PagingStall &stall : stalls)
    sumUs += stall.durationUs;
  return sumUs;
}

namespace {

/// A run of bytes of the arena that a kernel touches.
struct Operand {
  std::uint64_t begin = 0, end = 0;
  bool writes = false;
};

/// One block of one operand, in the order in which the kernel comes by.
struct Visit {
  std::uint64_t block = 0;
  LeafMask touched = 0;
  bool writes = false;
  double progress = 0; ///< of its operand, 0 to 1
};

LeafMask leavesOf(std::uint64_t firstLeaf, std::uint64_t endLeaf) {
  const LeafMask upTo = endLeaf >= leavesPerBlock ? ~LeafMask{0} : (LeafMask{1} << endLeaf) - 1;
  return upTo & (~LeafMask{0} << firstLeaf);
}

/// The part of [begin, end) in `block`; the run must reach into it.
LeafMask leavesIn(std::uint64_t block, std::uint64_t begin, std::uint64_t end) {
  const std::uint64_t blockBegin = block * blockBytes;
  const std::uint64_t first = std::max(begin, blockBegin) - blockBegin;
  const std::uint64_t last = std::min(end, blockBegin + blockBytes) - blockBegin;
  return leavesOf(first / leafBytes, (last + leafBytes - 1) / leafBytes);
}

/// The first `count` of the set's leaves.
LeafMask firstLeaves(LeafMask leaves, std::uint32_t count) {
  LeafMask rest = leaves;
  for (; count > 0 && rest != 0; --count)
    rest &= rest - 1;
  return leaves & ~rest;
}

double microseconds(std::uint64_t bytes, double bytesPerSecond) {
  return bytes == 0 ? 0 : static_cast<double>(bytes) / bytesPerSecond * 1e6;
}

PagingTimes timesOf(const PagingWork &work, const UnifiedMemory &memory) {
  PagingTimes times;
  times.faultUs = static_cast<double>(work.batches) * memory.batchUs +
                  static_cast<double>(work.blocksServiced) * memory.blockUs +
                  static_cast<double>(work.prefetchCalls) * memory.prefetchCallUs;
  const std::uint64_t fromHostBytes = work.fetchedBytes - work.diskInBytes;
  const double diskUs = microseconds(work.diskInBytes, memory.diskBytesPerSecond);
  const double restBytesPerSecond = memory.upBytesPerSecond - memory.diskBytesPerSecond;
  if (memory.fetchesBesideDisk && work.diskInBytes > 0 && restBytesPerSecond > 0) {
    times.populateUs = microseconds(work.populatedBytes, restBytesPerSecond);
    times.fetchUs = std::max(diskUs - times.populateUs, microseconds(fromHostBytes, restBytesPerSecond));
  } else {
    times.populateUs = microseconds(work.populatedBytes, memory.populateBytesPerSecond);
    times.fetchUs = diskUs + microseconds(fromHostBytes, memory.upBytesPerSecond);
  }
  times.writeBackUs = microseconds(work.diskOutBytes, memory.diskBytesPerSecond) +
                      microseconds(work.writtenBackBytes - work.diskOutBytes, memory.downBytesPerSecond);
  return times;
}

/// How long the transfers take where both directions move at once; disk and host memory take turns.
double bothWaysUs(const PagingWork &work, const UnifiedMemory &memory) {
  const double disk = memory.diskBytesPerSecond;
  return std::max(microseconds(work.diskInBytes, disk), microseconds(work.diskOutBytes, disk)) +
         std::max(microseconds(work.fetchedBytes - work.diskInBytes, memory.upBytesPerSecond),
                  microseconds(work.writtenBackBytes - work.diskOutBytes, memory.downBytesPerSecond));
}

/// What one kernel made the driver do.
struct KernelWork {
  PagingWork before;     ///< prefetches
  PagingWork firstBatch; ///< of faults
  PagingWork faults;     ///< all batches, the first one too
};

/// One run of the step through one memory.
class Pager {
public:
  Pager(const Description &captured, const SimulationOptions &options, const AddressMap &map,
        std::uint64_t capacityBlocks)
      : captured_(captured), options_(options), map_(map), memory_(map.footprintBytes, capacityBlocks, options.memory) {
    for (BufferIndex b = 0; b < captured.buffers.size(); ++b)
      if (captured.buffers[b].liveIn && map.offsets[b] != noAddress)
        placeOnHost(map.offsets[b], map.offsets[b] + captured.buffers[b].size);
  }

  KernelWork run(const Node &node) {
    KernelWork work;
    collectOperands(node);
    if (options_.policy == PagingPolicy::PrefetchAtLaunch)
      prefetch(work.before);
    collectVisits();
    sweep(work);
    return work;
  }

private:
  void placeOnHost(std::uint64_t begin, std::uint64_t end) {
    for (std::uint64_t block = begin / blockBytes; block * blockBytes < end; ++block)
      memory_.placeOnHost(block, leavesIn(block, begin, end));
  }

  void collectOperands(const Node &node) {
    operands_.clear();
    for (const Access &access : node.accesses) {
      if (!captured_.buffers[access.buffer].isPrivate || access.range.size == 0 || access.may == modeNone)
        continue;
      const std::uint64_t begin = map_.offsets[access.buffer] + access.range.offset;
      operands_.push_back({begin, begin + access.range.size, (access.may & modeWrite) != 0});
    }
  }

  /// All operands advance together: each is at the same share of its way.
  void collectVisits() {
    visits_.clear();
    for (const Operand &operand : operands_) {
      const std::uint64_t first = operand.begin / blockBytes, end = (operand.end + blockBytes - 1) / blockBytes;
      for (std::uint64_t block = first; block < end; ++block)
        visits_.push_back({block, leavesIn(block, operand.begin, operand.end), operand.writes,
                           (static_cast<double>(block - first) + 0.5) / static_cast<double>(end - first)});
    }
    std::stable_sort(visits_.begin(), visits_.end(),
                     [](const Visit &a, const Visit &b) { return a.progress < b.progress; });
  }

  /// One call an operand. An operand larger than the memory pushes its own first part out again.
  void prefetch(PagingWork &work) {
    for (const Operand &operand : operands_) {
      bool anything = false;
      for (std::uint64_t block = operand.begin / blockBytes; block * blockBytes < operand.end; ++block) {
        const LeafMask missing = leavesIn(block, operand.begin, operand.end) & ~memory_.resident(block);
        if (missing == 0)
          continue;
        memory_.bring(block, missing, work);
        anything = true;
      }
      work.prefetchCalls += anything;
    }
  }

  void sweep(KernelWork &work) {
    for (std::size_t i = 0; i < visits_.size();) {
      if (isMissing(visits_[i])) {
        PagingWork batch;
        handleBatch(std::span(visits_).subspan(i), batch);
        if (work.faults.batches == 0)
          work.firstBatch = batch;
        work.faults += batch;
        continue;
      }
      if (visits_[i].writes)
        memory_.markDirty(visits_[i].block, visits_[i].touched);
      ++i;
    }
  }

  bool isMissing(const Visit &visit) const { return (visit.touched & ~memory_.resident(visit.block)) != 0; }

  /// Takes the next faults of the sweep, as many as a batch holds, and services them block by block. No batch has more
  /// blocks than fit, so that its first block is there when it ends: every batch gets the kernel on.
  void handleBatch(std::span<const Visit> ahead, PagingWork &work) {
    faulted_.clear();
    std::uint32_t room = options_.memory.faultsPerBatch;
    const auto touchesPerLeaf = static_cast<std::uint32_t>(leafBytes / options_.memory.touchBytes);
    for (const Visit &visit : ahead) {
      if (room == 0)
        break;
      if (!isMissing(visit))
        continue;
      LeafMask *known = findFaulted(visit.block);
      const LeafMask missing = visit.touched & ~memory_.resident(visit.block) & ~(known ? *known : 0);
      if (missing == 0)
        continue;
      if (!known) {
        if (faulted_.size() == memory_.capacityBlocks())
          break;
        faulted_.push_back({visit.block, 0});
        known = &faulted_.back().leaves;
      }
      // Several pages of a leaf fault, and each takes a place in the batch; the leaf comes with the first.
      const std::uint32_t leafRoom = (room + touchesPerLeaf - 1) / touchesPerLeaf;
      const LeafMask taken = firstLeaves(missing, leafRoom);
      *known |= taken;
      room -= std::min(room, static_cast<std::uint32_t>(std::popcount(taken)) * touchesPerLeaf);
    }
    service(work);
  }

  /// A block that is pushed out by an earlier one of its batch loses what it had; what faulted still comes.
  void service(PagingWork &work) {
    ++work.batches;
    work.blocksServiced += faulted_.size();
    for (const Faulted &faulted : faulted_) {
      const LeafMask resident = memory_.resident(faulted.block);
      memory_.bring(faulted.block, densityMask(resident, faulted.leaves, options_.memory.densityPercent), work);
    }
  }

  /// Leaves of one block that one batch has faults on.
  struct Faulted {
    std::uint64_t block = 0;
    LeafMask leaves = 0;
  };

  /// The batch's own entry of a block; few blocks fit a batch.
  LeafMask *findFaulted(std::uint64_t block) {
    const auto found =
        std::find_if(faulted_.begin(), faulted_.end(), [&](const Faulted &faulted) { return faulted.block == block; });
    return found == faulted_.end() ? nullptr : &found->leaves;
  }

  const Description &captured_;
  const SimulationOptions &options_;
  const AddressMap &map_;
  PagedMemory memory_;
  std::vector<Operand> operands_; ///< of the current kernel
  std::vector<Visit> visits_;     ///< of the current kernel
  std::vector<Faulted> faulted_;  ///< of the current batch
};

/// When each kernel runs: after its predecessors, and one at a time where the driver has to work.
class Clock {
public:
  Clock(const Description &captured, const UnifiedMemory &memory)
      : captured_(captured), memory_(memory), readyUs_(captured.nodes.size(), 0), outgoing_(captured.nodes.size()) {
    for (const Edge &edge : captured.edges)
      outgoing_[edge.from].push_back(edge.to);
  }

  void advance(NodeIndex node, const KernelWork &work, Simulation &result) {
    PagingWork all = work.before;
    all += work.faults;
    const PagingTimes times = timesOf(all, memory_);
    const double costUs = captured_.nodes[node].costUs > 0 ? captured_.nodes[node].costUs : 0; // NaN: unknown
    // Only a kernel that moves something waits for the driver, which does one thing after the other.
    const bool moves = times.totalUs() > 0;
    const double startUs = moves ? std::max(readyUs_[node], driverFreeUs_) : readyUs_[node];
    const double endUs = startUs + durationUs(work, all, costUs);
    if (moves)
      driverFreeUs_ = startUs + waitUs(all);

    result.totalUs = std::max(result.totalUs, endUs);
    result.work += all;
    result.times += times;
    if (const double stallUs = endUs - readyUs_[node] - costUs; stallUs > noticeableUs)
      result.stalls.push_back({node, stallUs, times});
    for (NodeIndex next : outgoing_[node])
      readyUs_[next] = std::max(readyUs_[next], endUs);
  }

private:
  static constexpr double noticeableUs = 1e-3;

  /// What a kernel that did nothing itself would have to wait for.
  double waitUs(const PagingWork &work) const {
    const PagingTimes times = timesOf(work, memory_);
    return memory_.writesBackBeside ? times.totalUs() - times.writeBackUs : times.totalUs();
  }

  double durationUs(const KernelWork &work, const PagingWork &all, double costUs) const {
    if (!memory_.computesWhileFaulting) {
      const double us = costUs + waitUs(all);
      return memory_.writesBackBeside ? std::max(us, bothWaysUs(all, memory_)) : us;
    }
    // Prefetches come before the kernel; of the faults, it can hide all but its first batch.
    const double firstUs = waitUs(work.firstBatch);
    const double us = waitUs(work.before) + firstUs + std::max(costUs, waitUs(work.faults) - firstUs);
    return memory_.writesBackBeside ? std::max(us, bothWaysUs(all, memory_)) : us;
  }

  const Description &captured_;
  const UnifiedMemory &memory_;
  std::vector<double> readyUs_;
  std::vector<std::vector<NodeIndex>> outgoing_;
  double driverFreeUs_ = 0;
};

std::uint64_t exclusiveBytesOf(const Description &captured) {
  std::uint64_t pages = 0;
  for (BufferIndex b = 0; b < captured.buffers.size(); ++b)
    if (!captured.buffers[b].isPrivate)
      pages += captured.pageCount(b);
  return pages * captured.pageBytes;
}

} // namespace

tl::expected<Simulation, std::string> simulate(const Description &captured, const SimulationOptions &options) {
  if (const std::string fault = wrongStage(captured, {Stage::Captured}); !fault.empty())
    return tl::unexpected(fmt::format("step \"{}\": {}", captured.name, fault));
  const std::uint64_t exclusiveBytes = exclusiveBytesOf(captured);
  if (options.budgetBytes < exclusiveBytes + blockBytes)
    return tl::unexpected(fmt::format("step \"{}\": buffers that never move take {} bytes; a budget of {} bytes leaves "
                                      "no room for a block of {}",
                                      captured.name, exclusiveBytes, options.budgetBytes, blockBytes));
  const AddressMap map = mapAddresses(captured, options.memory.addresses);
  Pager pager(captured, options, map, (options.budgetBytes - exclusiveBytes) / blockBytes);
  Simulation result;
  std::vector<double> replaysUs;
  for (std::uint32_t replay = 0; replay < std::max(options.memory.replays, 1U); ++replay) {
    result = {};
    Clock clock(captured, options.memory);
    for (NodeIndex node = 0; node < captured.nodes.size(); ++node)
      clock.advance(node, pager.run(captured.nodes[node]), result);
    replaysUs.push_back(result.totalUs);
  }
  result.replaysUs = std::move(replaysUs);
  std::stable_sort(result.stalls.begin(), result.stalls.end(),
                   [](const PagingStall &a, const PagingStall &b) { return a.durationUs > b.durationUs; });
  result.footprintBytes = (map.footprintBytes + blockBytes - 1) / blockBytes * blockBytes;
  result.exclusiveBytes = exclusiveBytes;
  return result;
}

} // namespace pumpgraph
