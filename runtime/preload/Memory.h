// SPDX-License-Identifier: Apache-2.0
/// \file
/// The program's device memory, under the budget.
#pragma once

#include "runtime/lower/MemoryTools.h"
#include "runtime/memory/Heap.h"
#include "runtime/memory/OtherGraphs.h"
#include "runtime/streams/Round.h"

#include <cuda.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace pumpgraph::preload {

/// An allocation that an address leads to.
struct Extent {
  CUdeviceptr address = 0;
  std::uint64_t bytes = 0;
  runtime::RoundBlock block; ///< it lies in
  bool isShared = false;     ///< the block, with other allocations

  Range range() const { return {address - block.address, bytes}; }
};

/// Allocations come from a heap of frames: at addresses that a loop finds again in each round, on the device within the
/// budget, in host memory beyond it. While graphs are captured, what is allocated belongs to one of them, and what is
/// freed stays until they are gone. Memory that the driver gives itself (by cuMemCreate) counts against the same
/// budget.
///
/// Not thread-safe.
class Memory {
public:
  static runtime::Expected<std::unique_ptr<Memory>> open(CUdevice device, std::uint64_t budgetBytes,
                                                         std::uint64_t hostBytes);
  /// Of the current context, if there is one.
  static std::optional<CUdevice> currentDevice();

  /// `stream`: on which a free orders the next allocation of the same memory. forAllStreams for memory that is idle
  /// when it is freed. `wished`: the address, if the heap can choose; 0: any.
  runtime::Expected<CUdeviceptr> allocate(std::uint64_t bytes, CUstream stream, CUdeviceptr wished);

  /// Ahead of a capture, beside which nothing may wait for the device: gives up memory that is kept for allocations.
  void makeRoomForCapture();
  /// `stream` is captured from now on; until the end of the capture that began there.
  void beginsCapture(CUstream stream);
  void endsCapture(CUstream stream);
  /// The error that ended the context, after which the driver gives nothing else.
  CUresult loss() const { return driver_->loss->result(); }
  static CUstream forAllStreams() { return reinterpret_cast<CUstream>(std::uintptr_t{0} - 1); }
  bool owns(CUdeviceptr address) const { return addresses_->contains(address); }
  /// Of an allocation of the heap's. CUDA_ERROR_INVALID_VALUE for no start of one.
  CUresult free(CUdeviceptr address, CUstream stream);
  /// The context that used all of it is gone.
  void freeAll();

  /// The stream, before it is destroyed, if freed memory waits for its work.
  bool forgetStream(CUstream stream) { return streams_.erase(stream) != 0; }

  /// Memory that the driver gives beside the heap. False beyond the budget; then nothing is counted. `mayWait`: for the
  /// device, to give up memory that the heap keeps for later allocations.
  bool countGiven(std::uint64_t bytes, bool mayWait);
  void uncountGiven(std::uint64_t bytes);
  /// The driver's own allocations, by address.
  void noteGiven(CUdeviceptr address, std::uint64_t bytes);
  /// Whether it was one. It no longer counts.
  bool forgetGiven(CUdeviceptr address);

  /// Handles of cuMemCreate, each with the release that the program owes and its mappings. `bytes` were counted.
  void noteHandle(CUmemGenericAllocationHandle handle, std::uint64_t bytes);
  void retainHandle(CUmemGenericAllocationHandle handle);
  struct Handle {
    std::uint64_t bytes = 0;
    std::uint64_t references = 1;
  };
  /// Ahead of the release, after which another thread may get the number. Null for a handle that is not counted.
  std::shared_ptr<Handle> releaseHandle(CUmemGenericAllocationHandle handle);
  /// It was not released.
  void putBack(CUmemGenericAllocationHandle handle, const std::shared_ptr<Handle> &released);
  struct Mapping {
    std::uint64_t bytes = 0;
    bool isGiven = false;           ///< an allocation of the driver's
    bool isReachable = false;       ///< by the device
    std::shared_ptr<Handle> handle; ///< of counted memory; its number may come back once the driver has freed it
  };
  using Mappings = std::map<CUdeviceptr, Mapping>;
  void noteMapping(CUdeviceptr address, std::uint64_t bytes, CUmemGenericAllocationHandle handle);
  /// The device may reach it from now on, or no more. The mappings.
  std::vector<CUdeviceptr> noteAccess(CUdeviceptr address, std::uint64_t bytes, bool isReachable);
  /// Those that are about to end. Another thread may map other memory there before the call returns.
  Mappings takeMappings(CUdeviceptr address, std::uint64_t bytes);
  void haveEnded(const Mappings &taken);
  void putBack(const Mappings &taken) { mappings_.insert(taken.begin(), taken.end()); }
  /// Whether it is a handle of counted memory.
  bool knows(CUmemGenericAllocationHandle handle) const { return handles_.contains(handle); }

  /// False for most numbers, at once.
  bool mayHold(std::uint64_t word) const {
    return addresses_->contains(word) || (word >= mappedBegin_ && word < mappedEnd_);
  }
  /// The live allocation that a word leads into.
  std::optional<Extent> find(std::uint64_t word) const;
  /// The same of a word that may lead beside the allocation, as the base of an index does.
  std::optional<Extent> findAround(std::uint64_t word) const;

  /// The memory that a kernel with this word may use. Where allocations share a block all of that, alive or not: a word
  /// beside one of them leads to another.
  std::optional<Extent> operand(std::uint64_t word) const;
  /// Memory beside the heap that the device reaches, by address and size, ascending.
  std::vector<std::pair<CUdeviceptr, std::uint64_t>> beside() const;

  CUdevice device() const { return device_; }
  /// For plans, which move values.
  runtime::MemoryTools tools() { return {*driver_, *addresses_, frames_, host_, mapper_, heap_, nullptr, departures_}; }
  std::uint64_t budgetBytes() const { return budgetBytes_; }
  std::uint64_t freeBytes() const;
  /// "1,204 allocations, at most 3.2 GiB at once of a budget of 16.0 GiB, ..."
  std::string summary() const;

private:
  Memory(std::shared_ptr<const runtime::Driver> driver, int device, std::uint64_t budgetBytes, std::uint64_t hostBytes,
         std::unique_ptr<runtime::AddressSpace> addresses);
  /// The heap has what `given` bytes leave of the budget, once it has given back what it need not have.
  void shareBudget(std::uint64_t given);
  /// The graph that an allocation belongs to; 0: none.
  runtime::GraphNumber graphOf(CUstream stream);
  void takeEndedGraphs();
  void map(CUdeviceptr address, const Mapping &mapping);

  void drop(Handle &handle);

  std::shared_ptr<const runtime::Driver> driver_;
  CUdevice device_;
  std::uint64_t budgetBytes_;
  std::uint64_t givenBytes_ = 0, mostGivenBytes_ = 0, given_ = 0;
  std::uint64_t mostHostBytes_ = 0;
  std::uint64_t departures_ = 0; ///< for its tools
  std::unique_ptr<runtime::AddressSpace> addresses_;
  runtime::FramePool frames_;
  runtime::HostMemory host_;
  runtime::PageMapper mapper_;
  runtime::Heap heap_;
  runtime::OtherGraphs graphs_;
  struct Capture {
    CUstream stream = nullptr;
    runtime::GraphNumber graph = 0;
  };
  std::vector<Capture> captures_; ///< those that run, in the order of their beginnings
  std::set<CUstream> streams_;    ///< on which memory was freed
  std::map<CUmemGenericAllocationHandle, std::shared_ptr<Handle>> handles_;
  Mappings mappings_;
  /// Around all of them, ever: most words are numbers, and far from it.
  CUdeviceptr mappedBegin_ = UINT64_MAX, mappedEnd_ = 0;
};

} // namespace pumpgraph::preload
