// SPDX-License-Identifier: Apache-2.0
#include "runtime/streams/NamedBlocks.h"

#include "runtime/memory/HostMemory.h"

#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

namespace pumpgraph::runtime {
namespace {

constexpr std::size_t halfBytes = sizeof(std::uint32_t), wordBytes = sizeof(std::uint64_t);
constexpr std::size_t halvesAtOnce = 1 << 13; // of an upload
constexpr std::uint64_t stagingBytes = std::uint64_t{4} << 20;

using Ranges = std::vector<std::pair<CUdeviceptr, std::uint64_t>>;

enum class Readable : std::uint8_t { No, Yes, Unknown };

/// Memory that a call copies from may be the device's. The system does not read pinned memory for others, and where it
/// reads none at all nobody knows.
Readable isReadable(const Driver &driver, std::uint64_t address) {
  unsigned type = 0;
  if (driver.pointerGetAttribute.raw(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address) == CUDA_SUCCESS)
    return type == CU_MEMORYTYPE_HOST ? Readable::Yes : Readable::No;
  char byte;
  iovec local{&byte, 1}, remote{reinterpret_cast<void *>(address), 1};
  if (process_vm_readv(getpid(), &local, 1, &remote, 1, 0) == 1)
    return Readable::Yes;
  return errno == EFAULT ? Readable::No : Readable::Unknown;
}

/// Of the words that lead into a range. Few numbers have one of them.
class UpperHalves {
public:
  UpperHalves(std::uint64_t begin, std::uint64_t end)
      : first_(static_cast<std::uint32_t>(begin >> 32)), width_(static_cast<std::uint32_t>((end - 1) >> 32) - first_) {}
  bool holds(std::uint32_t upper) const { return upper - first_ <= width_; }

private:
  std::uint32_t first_, width_;
};

/// At the speed of memory: without a branch for each half.
bool holdsAny(std::span<const std::uint32_t> halves, const UpperHalves &one, const UpperHalves &other) {
  constexpr std::size_t atOnce = 64;
  const auto count = [&](std::size_t begin, std::size_t end) {
    unsigned found = 0;
    for (std::size_t i = begin; i < end; ++i)
      found |= static_cast<unsigned>(one.holds(halves[i])) | static_cast<unsigned>(other.holds(halves[i]));
    return found;
  };
  std::size_t at = 0;
  for (; at + atOnce <= halves.size(); at += atOnce)
    if (count(at, at + atOnce) != 0)
      return true;
  return count(at, halves.size()) != 0;
}

/// What is side by side counts as one: a word may lie in two.
Ranges besideToSearch(const Ranges &ranges, const std::set<std::uint64_t> *holders) {
  Ranges chosen;
  for (auto range = ranges.begin(); range != ranges.end();) {
    const CUdeviceptr address = range->first;
    CUdeviceptr end = address;
    bool isChosen = !holders;
    for (; range != ranges.end() && range->first == end; ++range) {
      end += range->second;
      isChosen = isChosen || holders->contains(range->first);
    }
    if (isChosen)
      chosen.emplace_back(address, end - address);
  }
  return chosen;
}

} // namespace

std::set<std::uint64_t> NamedBlocks::addresses() const {
  std::set<std::uint64_t> addresses;
  for (const std::set<BlockId> *named : {&uploaded_, &found_})
    for (const BlockId id : *named)
      if (tools_.heap.exists(id))
        addresses.insert(tools_.heap.block(id).address);
  return addresses;
}

std::string NamedBlocks::whyAllStay() const {
  return namesHost_
             ? fmt::format("memory at {:#x} leads to host memory, where a kernel may find addresses", *namesHost_)
             : "";
}

Status NamedBlocks::searchAll(CUstream stream) {
  found_.clear();
  namesHost_.reset();
  mayAllBeWritten_ = true; // until it has been searched
  return search(nullptr, stream);
}

Status NamedBlocks::searchWritten(CUstream stream) {
  if (mayAllBeWritten_)
    return searchAll(stream);
  return written_.empty() ? Status{} : search(&written_, stream);
}

/// `holders`: addresses of memory to search; null: all.
Status NamedBlocks::search(const std::set<std::uint64_t> *holders, CUstream stream) {
  const Expected<std::unique_ptr<PinnedPool>> staging = PinnedPool::create(tools_.driver, tools_.host, stagingBytes);
  if (!staging)
    return tl::unexpected<Error>(staging.error());
  // Freed memory too: a table of addresses, and what it names, may live for a part of each round.
  for (const BlockId id : tools_.heap.blocks()) {
    const Block &block = tools_.heap.block(id);
    if ((block.backing == Backing::Device || block.backing == Backing::Host) &&
        (!holders || holders->contains(block.address)))
      PUMPGRAPH_TRY(searchRange(block.address, block.bytes(), id, **staging, stream));
  }
  for (const auto &[address, bytes] : besideToSearch(beside_.ranges(), holders))
    PUMPGRAPH_TRY(searchRange(address, bytes, std::nullopt, **staging, stream));
  written_.clear();
  mayAllBeWritten_ = false;
  return {};
}

Status NamedBlocks::searchRange(CUdeviceptr address, std::uint64_t bytes, std::optional<BlockId> holder,
                                const PinnedPool &staging, CUstream stream) {
  for (std::uint64_t end = 0; end < bytes;) {
    const std::uint64_t begin = end - std::min(end, halfBytes); // a word may lie in two
    end = std::min(begin + stagingBytes, bytes);
    char *const halves = staging.at(0);
    PUMPGRAPH_TRY_WHILE(tools_.driver.memcpyDtoHAsync(halves, address + begin, end - begin, stream),
                        "looking for addresses in memory");
    PUMPGRAPH_TRY_WHILE(tools_.driver.streamSynchronize(stream), "looking for addresses in memory");
    if (look({reinterpret_cast<const std::uint32_t *>(halves), (end - begin) / halfBytes}, holder, found_))
      namesHost_ = address;
  }
  return {};
}

bool NamedBlocks::look(Halves halves, std::optional<BlockId> holder, std::set<BlockId> &named) const {
  const auto [hostBegin, hostEnd] = beside_.hostBounds();
  const UpperHalves own(tools_.addresses.base(), tools_.addresses.base() + tools_.addresses.bytes());
  const UpperHalves host = hostBegin < hostEnd ? UpperHalves(hostBegin, hostEnd) : own;
  if (!holdsAny(halves, own, host))
    return false;
  bool leadsToHost = false;
  for (std::size_t i = 1; i < halves.size(); ++i) {
    const std::uint64_t word = halves[i - 1] | std::uint64_t{halves[i]} << 32;
    if (own.holds(halves[i]))
      if (const std::optional<BlockId> block = tools_.heap.blockAround(word); block && block != holder)
        named.insert(*block);
    leadsToHost = leadsToHost || (host.holds(halves[i]) && beside_.isOfHost(word));
  }
  return leadsToHost;
}

void NamedBlocks::keep(std::span<const std::uint64_t> words) {
  for (const std::uint64_t word : words)
    if (const std::optional<BlockId> block = tools_.heap.blockAround(word))
      uploaded_.insert(*block);
}

void NamedBlocks::noteWrites(const Call &call) {
  if (!call.unplannable.empty())
    mayAllBeWritten_ = true; // its accesses may not be all
  if (mayAllBeWritten_)
    return;
  for (const RoundAccess &access : call.accesses)
    if ((access.may & modeWrite) != 0)
      written_.insert(access.block.address);
}

/// Words begin where they will be aligned.
std::string_view NamedBlocks::noteUpload(const Call &call) {
  const std::uint64_t skipped = roundUp(call.uploadedTo, halfBytes) - call.uploadedTo;
  std::uint64_t at = reinterpret_cast<std::uintptr_t>(call.uploaded) + skipped;
  const std::uint64_t end = reinterpret_cast<std::uintptr_t>(call.uploaded) + call.uploadedBytes;
  if (at + wordBytes > end)
    return "";
  for (const std::uint64_t address : {at, end - 1}) {
    const Readable readable = isReadable(tools_.driver, address);
    if (readable != Readable::Yes)
      return readable == Readable::No ? "" : "uploads memory that cannot be searched for addresses"; // No: the device's
  }
  std::array<std::uint32_t, halvesAtOnce> halves;
  bool leadsToHost = false;
  while (at + wordBytes <= end) {
    const std::size_t count = std::min<std::size_t>(halves.size(), (end - at) / halfBytes);
    std::memcpy(halves.data(), reinterpret_cast<const void *>(at), count * halfBytes);
    if (look(std::span(halves).first(count), std::nullopt, uploaded_))
      leadsToHost = true;
    at += (count - 1) * halfBytes; // a word may begin with the last one
  }
  return leadsToHost ? "uploads an address of host memory, where a kernel may find others" : "";
}

} // namespace pumpgraph::runtime
