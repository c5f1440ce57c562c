// SPDX-License-Identifier: Apache-2.0
#include "runtime/preload/Memory.h"

#include "runtime/preload/EntryPoints.h"

#include <algorithm>
#include <utility>

namespace pumpgraph::preload {

using runtime::AddressSpace;
using runtime::bytesText;
using runtime::Driver;
using runtime::Expected;
using runtime::pageBytes;

namespace {

/// Of the given figure, unless three quarters of the available memory are less.
std::uint64_t hostLimit(std::uint64_t bytes) {
  return std::min(bytes, runtime::availableHostBytes() / 4 * 3);
}

} // namespace

std::optional<CUdevice> Memory::currentDevice() {
  static const auto ask = reinterpret_cast<PFN_cuCtxGetDevice_v2000>(driverFunction("cuCtxGetDevice", 2000));
  CUdevice device = 0;
  return ask && ask(&device) == CUDA_SUCCESS ? std::optional(device) : std::nullopt;
}

Expected<std::unique_ptr<Memory>> Memory::open(CUdevice device, std::uint64_t budgetBytes, std::uint64_t hostBytes) {
  Expected<std::shared_ptr<const Driver>> driver =
      Driver::from(reinterpret_cast<PFN_cuGetProcAddress_v12000>(driverFunction("cuGetProcAddress", 12000)));
  if (!driver)
    return tl::unexpected(driver.error());
  Expected<std::unique_ptr<AddressSpace>> addresses = AddressSpace::reserve(**driver);
  if (!addresses)
    return tl::unexpected(addresses.error());
  std::size_t free = 0, total = 0;
  if ((*driver)->memGetInfo.raw(&free, &total) == CUDA_SUCCESS)
    budgetBytes = std::min<std::uint64_t>(budgetBytes, total);
  return std::unique_ptr<Memory>(
      new Memory(std::move(*driver), device, budgetBytes, hostLimit(hostBytes), std::move(*addresses)));
}

Memory::Memory(std::shared_ptr<const Driver> driver, int device, std::uint64_t budgetBytes, std::uint64_t hostBytes,
               std::unique_ptr<AddressSpace> addresses)
    : driver_(std::move(driver)), device_(device), budgetBytes_(budgetBytes), addresses_(std::move(addresses)),
      frames_(*driver_, device, budgetBytes / pageBytes), host_(*driver_, device, hostBytes),
      mapper_(*driver_, device, frames_), heap_(*driver_, *addresses_, frames_, host_, mapper_), graphs_(*driver_) {
  heap_.takeLowest(true);
  heap_.keepAddresses(true);
}

runtime::GraphNumber Memory::graphOf(CUstream stream) {
  if (captures_.empty())
    return 0;
  // What is allocated beside a capture counts as the capture's: nothing may wait for the device.
  const Expected<runtime::GraphNumber> own =
      stream == forAllStreams() ? runtime::GraphNumber{0} : graphs_.capturedOn(stream);
  return own && *own != 0 ? *own : captures_.back().graph;
}

void Memory::makeRoomForCapture() {
  // That waits for the device, so not where plenty is free anyway.
  if (captures_.empty() && frames_.available() < frames_.budgetFrames() / 4)
    static_cast<void>(heap_.flushCache()); // a failure leaves what is kept
}

void Memory::beginsCapture(CUstream stream) {
  if (const Expected<runtime::GraphNumber> graph = graphs_.capturedOn(stream); graph && *graph != 0) {
    captures_.push_back({stream, *graph});
    heap_.graphBegins(*graph);
  }
  heap_.keepFreed(!captures_.empty());
}

void Memory::endsCapture(CUstream stream) {
  std::erase_if(captures_, [&](const Capture &capture) { return capture.stream == stream; });
  heap_.keepFreed(!captures_.empty());
}

void Memory::takeEndedGraphs() {
  if (!captures_.empty())
    return;
  const std::vector<runtime::GraphNumber> ended = graphs_.takeEnded();
  // What was freed during a capture was not waited for.
  if (!ended.empty() && driver_->ctxSynchronize())
    heap_.graphsEnded(ended);
}

Expected<CUdeviceptr> Memory::allocate(std::uint64_t bytes, CUstream stream, CUdeviceptr wished) {
  takeEndedGraphs();
  heap_.wishFor(wished);
  Expected<CUdeviceptr> allocated = heap_.allocate(bytes, stream, {}, {}, graphOf(stream));
  mostHostBytes_ = std::max(mostHostBytes_, host_.backedBytes());
  return allocated;
}

CUresult Memory::free(CUdeviceptr address, CUstream stream) {
  if (stream != forAllStreams())
    streams_.insert(stream);
  return heap_.free(address, stream) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

void Memory::freeAll() {
  for (const runtime::BlockId id : heap_.blocks())
    for (std::size_t member = 0; heap_.exists(id) && member < heap_.block(id).members.size(); ++member) {
      const runtime::Block &block = heap_.block(id);
      if (block.members[member].live)
        heap_.free(block.address + block.members[member].offset, forAllStreams());
    }
}

bool Memory::countGiven(std::uint64_t bytes, bool mayWait) {
  if (bytes > freeBytes())
    return false;
  const std::uint64_t given = givenBytes_ + bytes;
  const auto isOver = [&] { return frames_.created() * pageBytes + given > budgetBytes_; };
  shareBudget(given);
  if (isOver() && mayWait)
    static_cast<void>(heap_.flushCache()); // a failure leaves frames that count
  if (isOver()) {
    shareBudget(givenBytes_);
    return false;
  }
  givenBytes_ = given;
  mostGivenBytes_ = std::max(mostGivenBytes_, givenBytes_);
  ++given_;
  return true;
}

void Memory::uncountGiven(std::uint64_t bytes) {
  givenBytes_ -= std::min(givenBytes_, bytes);
  shareBudget(givenBytes_);
}

void Memory::shareBudget(std::uint64_t given) {
  frames_.setBudget((budgetBytes_ - std::min(budgetBytes_, given)) / pageBytes);
}

void Memory::map(CUdeviceptr address, const Mapping &mapping) {
  mappings_[address] = mapping;
  mappedBegin_ = std::min(mappedBegin_, address);
  mappedEnd_ = std::max<CUdeviceptr>(mappedEnd_, address + mapping.bytes);
}

void Memory::noteGiven(CUdeviceptr address, std::uint64_t bytes) {
  map(address, {.bytes = bytes, .isGiven = true, .isReachable = true, .handle = nullptr});
}

bool Memory::forgetGiven(CUdeviceptr address) {
  const auto mapping = mappings_.find(address);
  if (mapping == mappings_.end() || !mapping->second.isGiven)
    return false;
  uncountGiven(mapping->second.bytes);
  mappings_.erase(mapping);
  return true;
}

void Memory::noteHandle(CUmemGenericAllocationHandle handle, std::uint64_t bytes) {
  handles_[handle] = std::make_shared<Handle>(Handle{.bytes = bytes});
}

void Memory::retainHandle(CUmemGenericAllocationHandle handle) {
  if (const auto known = handles_.find(handle); known != handles_.end())
    ++known->second->references;
}

std::shared_ptr<Memory::Handle> Memory::releaseHandle(CUmemGenericAllocationHandle handle) {
  const auto known = handles_.find(handle);
  if (known == handles_.end())
    return nullptr;
  const std::shared_ptr<Handle> released = known->second;
  drop(*released);
  return released;
}

void Memory::putBack(CUmemGenericAllocationHandle handle, const std::shared_ptr<Handle> &released) {
  if (++released->references == 1) {
    givenBytes_ += released->bytes;
    shareBudget(givenBytes_);
  }
  handles_[handle] = released;
}

void Memory::drop(Handle &handle) {
  if (--handle.references != 0)
    return;
  uncountGiven(handle.bytes);
  std::erase_if(handles_, [&](const auto &each) { return each.second.get() == &handle; });
}

void Memory::noteMapping(CUdeviceptr address, std::uint64_t bytes, CUmemGenericAllocationHandle handle) {
  const auto known = handles_.find(handle);
  if (known != handles_.end())
    ++known->second->references;
  map(address, {.bytes = bytes,
                .isGiven = false,
                .isReachable = false,
                .handle = known != handles_.end() ? known->second : nullptr});
}

std::vector<CUdeviceptr> Memory::noteAccess(CUdeviceptr address, std::uint64_t bytes, bool isReachable) {
  std::vector<CUdeviceptr> changed;
  for (auto mapping = mappings_.lower_bound(address); mapping != mappings_.end() && mapping->first < address + bytes;
       ++mapping) {
    mapping->second.isReachable = isReachable;
    changed.push_back(mapping->first);
  }
  return changed;
}

Memory::Mappings Memory::takeMappings(CUdeviceptr address, std::uint64_t bytes) {
  Mappings taken;
  for (auto mapping = mappings_.lower_bound(address); mapping != mappings_.end() && mapping->first < address + bytes;) {
    const auto next = std::next(mapping);
    if (!mapping->second.isGiven)
      taken.insert(mappings_.extract(mapping));
    mapping = next;
  }
  return taken;
}

void Memory::haveEnded(const Mappings &taken) {
  for (const auto &[address, mapping] : taken)
    if (const std::shared_ptr<Handle> handle = mapping.handle)
      drop(*handle);
}

std::optional<Extent> Memory::find(std::uint64_t word) const {
  const std::optional<Extent> around = findAround(word);
  return around && word >= around->address && word <= around->address + around->bytes ? around : std::nullopt;
}

std::optional<Extent> Memory::findAround(std::uint64_t word) const {
  if (addresses_->contains(word)) {
    const std::optional<runtime::Hit> hit = heap_.find(word);
    if (!hit)
      return std::nullopt;
    const runtime::Block &block = heap_.block(hit->block);
    const runtime::Allocation &allocation = block.members[hit->member];
    return Extent{
        block.address + allocation.offset, allocation.size, {block.address, block.bytes(), true}, block.shared};
  }
  if (word < mappedBegin_ || word >= mappedEnd_)
    return std::nullopt;
  const auto next = mappings_.upper_bound(word);
  if (next == mappings_.begin())
    return std::nullopt;
  const auto &[address, mapping] = *std::prev(next);
  if (word - address >= mapping.bytes)
    return std::nullopt;
  return Extent{address, mapping.bytes, {address, mapping.bytes, false}, false};
}

std::optional<Extent> Memory::operand(std::uint64_t word) const {
  const std::optional<runtime::BlockId> id = heap_.blockAround(word);
  if (!id || !heap_.block(*id).shared)
    return findAround(word);
  const runtime::Block &block = heap_.block(*id);
  return Extent{block.address, block.bytes(), {block.address, block.bytes(), true}, true};
}

std::vector<std::pair<CUdeviceptr, std::uint64_t>> Memory::beside() const {
  std::vector<std::pair<CUdeviceptr, std::uint64_t>> ranges;
  for (const auto &[address, mapping] : mappings_)
    if (mapping.isReachable && (mapping.isGiven || mapping.handle))
      ranges.emplace_back(address, mapping.bytes);
  return ranges;
}

std::uint64_t Memory::freeBytes() const {
  const std::uint64_t used = heap_.stats().liveBytes + givenBytes_;
  return budgetBytes_ - std::min(budgetBytes_, used);
}

std::string Memory::summary() const {
  const runtime::HeapStats stats = heap_.stats();
  std::string text =
      fmt::format("{} allocations, at most {} at once; on the device at most {} of a budget of {}",
                  stats.allocations + given_, bytesText(stats.livePeakBytes + mostGivenBytes_),
                  bytesText(frames_.mostCreated() * pageBytes + mostGivenBytes_), bytesText(budgetBytes_));
  if (mostHostBytes_ != 0)
    text += fmt::format("; in host memory at most {}, which kernels reach over the link", bytesText(mostHostBytes_));
  return text;
}

} // namespace pumpgraph::preload
