// SPDX-License-Identifier: Apache-2.0
#include "runtime/memory/HostMemory.h"

#include "runtime/memory/AddressSpace.h"
#include "runtime/memory/InThreads.h"
#include "runtime/messages/NvtxRange.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

namespace pumpgraph::runtime {
namespace {

/// The number in a one-line file; nothing when there is no such file or no number in it ("max").
std::uint64_t readNumber(const char *path, std::uint64_t otherwise) {
  std::ifstream file(path);
  std::uint64_t value = 0;
  return file >> value ? value : otherwise;
}

/// A third of a second.
constexpr std::uint64_t bytesBetweenReports = std::uint64_t{1} << 30;

/// Touching one page at a time is what takes long, so many threads share it.
void touch(char *data, std::uint64_t bytes) {
  constexpr std::uint64_t smallPage = 4096, leastPerThread = std::uint64_t{32} << 20;
  const std::uint64_t threads =
      std::clamp<std::uint64_t>(bytes / leastPerThread, 1, std::clamp(std::thread::hardware_concurrency(), 1u, 16u));
  const std::uint64_t share = roundUp((bytes + threads - 1) / threads, pageBytes);
  inThreads(threads, [=](std::uint64_t thread) {
    const std::uint64_t begin = thread * share;
    for (std::uint64_t offset = begin; offset < std::min(begin + share, bytes); offset += smallPage)
      static_cast<volatile char *>(data)[offset] = 0;
  });
}

} // namespace

std::uint64_t availableHostBytes() {
  std::uint64_t available = UINT64_MAX;
  std::ifstream info("/proc/meminfo");
  for (std::string line; std::getline(info, line);)
    if (line.starts_with("MemAvailable:"))
      available = std::strtoull(line.c_str() + std::strlen("MemAvailable:"), nullptr, 10) << 10;
  const std::uint64_t groupLimit = readNumber("/sys/fs/cgroup/memory.max", UINT64_MAX);
  const std::uint64_t groupUsed = readNumber("/sys/fs/cgroup/memory.current", 0);
  if (groupLimit != UINT64_MAX)
    available = std::min(available, groupLimit > groupUsed ? groupLimit - groupUsed : 0);
  return available;
}

HostMemory::HostMemory(const Driver &driver, int device, std::uint64_t limitBytes, std::uint64_t restBytes,
                       Progress *progress)
    : driver_(driver), limitBytes_(limitBytes), restBytes_(restBytes), progress_(progress) {
  int node = 0;
  if (driver_.deviceGetAttribute.raw(&node, CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID, device) == CUDA_SUCCESS && node >= 0)
    numaNode_ = node;
}

Status HostMemory::checkRoom(std::uint64_t bytes, const char *purpose) const {
  const std::uint64_t used = backedBytes_ + pinnedBytes_;
  if (bytes <= limitBytes_ && used <= limitBytes_ - bytes)
    return {};
  return fail(PUMPGRAPH_OUT_OF_HOST_MEMORY, "{} needs {} of host memory; {} of the {} allowed are in use: {} missing",
              purpose, bytesText(bytes), bytesText(used), bytesText(limitBytes_),
              bytesText(used + bytes - limitBytes_));
}

Expected<CUmemGenericAllocationHandle> HostMemory::createBacking(std::uint64_t bytes) {
  PUMPGRAPH_TRY(checkRoom(bytes, "a buffer beyond the device budget"));
  const auto known =
      std::find_if(released_.begin(), released_.end(), [&](const Released &piece) { return piece.bytes == bytes; });
  if (known != released_.end()) {
    const CUmemGenericAllocationHandle handle = known->handle;
    released_.erase(known);
    releasedBytes_ -= bytes;
    backedBytes_ += bytes;
    return handle;
  }
  makeRoomFor(bytes);
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location.type = CU_MEM_LOCATION_TYPE_HOST_NUMA;
  properties.location.id = numaNode_;
  CUmemGenericAllocationHandle handle = 0;
  const Status created = driver_.memCreate(&handle, bytes, &properties, 0);
  if (!created) {
    Error error = created.error();
    if (error.status == PUMPGRAPH_OUT_OF_DEVICE_MEMORY)
      error.status = PUMPGRAPH_OUT_OF_HOST_MEMORY;
    return inContext(std::move(error), fmt::format("getting {} on host NUMA node {}", bytesText(bytes), numaNode_));
  }
  backedBytes_ += bytes;
  return handle;
}

void HostMemory::releaseBacking(CUmemGenericAllocationHandle handle, std::uint64_t bytes) {
  backedBytes_ -= bytes;
  released_.push_back({bytes, handle});
  releasedBytes_ += bytes;
  if (!keepsReleased_)
    endReleased(restBytes_);
}

void HostMemory::keepReleased(bool on) {
  keepsReleased_ = on;
  if (!on)
    endReleased(restBytes_);
}

void HostMemory::makeRoomFor(std::uint64_t bytes) {
  const std::uint64_t taken = backedBytes_ + pinnedBytes_ + bytes;
  endReleased(limitBytes_ - std::min(limitBytes_, taken));
}

void HostMemory::endReleased(std::uint64_t keptBytes) {
  while (releasedBytes_ > keptBytes) {
    driver_.memRelease.raw(released_.front().handle);
    releasedBytes_ -= released_.front().bytes;
    released_.pop_front();
  }
}

PinnedPool::PinnedPool(const Driver &driver, HostMemory &host, char *mapping, std::uint64_t mappedBytes,
                       std::uint64_t bytes)
    : driver_(driver), host_(host), mapping_(mapping), mappedBytes_(mappedBytes),
      data_(reinterpret_cast<char *>(roundUp(reinterpret_cast<std::uintptr_t>(mapping), pageBytes))), bytes_(bytes) {}

Expected<std::unique_ptr<PinnedPool>> PinnedPool::create(const Driver &driver, HostMemory &host, std::uint64_t bytes) {
  bytes = std::max(roundUp(bytes, pageBytes), pageBytes);
  PUMPGRAPH_TRY(host.checkRoom(bytes, "the pinned pool for spilled data"));
  host.makeRoomFor(bytes);
  // Touching more than there is would bring the system's memory killer, not an error.
  const std::uint64_t available = availableHostBytes();
  if (bytes > available)
    return fail(PUMPGRAPH_OUT_OF_HOST_MEMORY, "the pinned pool needs {}; the system has {} left: {} missing",
                bytesText(bytes), bytesText(available), bytesText(bytes - available));
  const NvtxRange range("pumpgraph pin");
  PhaseScope pinning(host.progress(), Phase::Pinning, bytes);
  const std::uint64_t mappedBytes = bytes + pageBytes;
  void *mapping =
      mmap(nullptr, mappedBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapping == MAP_FAILED)
    return fail(PUMPGRAPH_OUT_OF_HOST_MEMORY, "mmap of {} for the pinned pool: {}", bytesText(mappedBytes),
                std::strerror(errno));
  std::unique_ptr<PinnedPool> pool(new PinnedPool(driver, host, static_cast<char *>(mapping), mappedBytes, bytes));
  madvise(pool->data_, bytes, MADV_HUGEPAGE); // without it everything works, only slower
  for (std::uint64_t offset = 0; offset < bytes; offset += bytesBetweenReports) {
    touch(pool->data_ + offset, std::min(bytes - offset, bytesBetweenReports));
    pinning.advance(std::min(offset + bytesBetweenReports, bytes));
  }
  const Status registered = driver.memHostRegister(pool->data_, bytes, CU_MEMHOSTREGISTER_PORTABLE);
  if (!registered) {
    pool->bytes_ = 0; // nothing to unregister
    return inContext(registered.error(), fmt::format("pinning {} of host memory", bytesText(bytes)));
  }
  host.countPinned(static_cast<std::int64_t>(bytes));
  return pool;
}

PinnedPool::~PinnedPool() {
  if (bytes_ != 0) {
    driver_.memHostUnregister.raw(data_);
    host_.countPinned(-static_cast<std::int64_t>(bytes_));
  }
  munmap(mapping_, mappedBytes_);
}

void PinnedPools::add(std::shared_ptr<PinnedPool> pool) {
  const std::uint64_t begin = end_;
  end_ += pool->bytes();
  parts_.push_back({begin, std::move(pool)});
}

PinnedPools PinnedPools::only(const std::vector<std::uint64_t> &used) const {
  PinnedPools kept = *this;
  std::erase_if(kept.parts_, [&](const Part &part) {
    const auto first = std::lower_bound(used.begin(), used.end(), part.begin);
    return first == used.end() || *first >= part.begin + part.pool->bytes();
  });
  return kept;
}

char *PinnedPools::at(std::uint64_t position) const {
  const auto after = std::upper_bound(parts_.begin(), parts_.end(), position,
                                      [](std::uint64_t value, const Part &part) { return value < part.begin; });
  return after[-1].pool->at(position - after[-1].begin);
}

bool PinnedPools::holds(std::uint64_t position, std::uint64_t bytes) const {
  return std::any_of(parts_.begin(), parts_.end(), [&](const Part &part) {
    return position >= part.begin && position - part.begin <= part.pool->bytes() &&
           bytes <= part.pool->bytes() - (position - part.begin);
  });
}

const PinnedPools::Part *PinnedPools::poolOf(const void *pointer) const {
  const auto found =
      std::find_if(parts_.begin(), parts_.end(), [&](const Part &part) { return part.pool->contains(pointer); });
  return found == parts_.end() ? nullptr : &*found;
}

std::uint64_t PinnedPools::offsetOf(const void *pointer) const {
  const Part *part = poolOf(pointer);
  return part->begin + part->pool->offsetOf(pointer);
}

Expected<std::shared_ptr<HostBacking>> HostBacking::create(HostMemory &host, std::uint64_t bytes) {
  const Expected<CUmemGenericAllocationHandle> handle = host.createBacking(bytes);
  if (!handle)
    return tl::unexpected<Error>(handle.error());
  return std::shared_ptr<HostBacking>(new HostBacking(host, *handle, bytes));
}

} // namespace pumpgraph::runtime
