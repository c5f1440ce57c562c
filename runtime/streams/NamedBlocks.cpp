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

constexpr std::size_t wordsAtOnce = 1 << 12; // of an upload
constexpr std::uint64_t stagingBytes = std::uint64_t{4} << 20;

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

/// Without a branch for each word, at the speed of memory.
bool mayHoldAddresses(std::span<const std::uint64_t> words, const AddressSpace &addresses) {
  bool found = false;
  for (const std::uint64_t word : words)
    found |= addresses.contains(word);
  return found;
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

Status NamedBlocks::searchAll(CUstream stream) {
  found_.clear();
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
  for (const auto &[address, bytes] : beside_())
    if (!holders || holders->contains(address))
      PUMPGRAPH_TRY(searchRange(address, bytes, std::nullopt, **staging, stream));
  written_.clear();
  mayAllBeWritten_ = false;
  return {};
}

Status NamedBlocks::searchRange(CUdeviceptr address, std::uint64_t bytes, std::optional<BlockId> holder,
                                const PinnedPool &staging, CUstream stream) {
  for (std::uint64_t done = 0; done < bytes; done += stagingBytes) {
    const std::uint64_t count = std::min(stagingBytes, bytes - done);
    char *const words = staging.at(0);
    PUMPGRAPH_TRY_WHILE(tools_.driver.memcpyDtoHAsync(words, address + done, count, stream),
                        "looking for addresses in memory");
    PUMPGRAPH_TRY_WHILE(tools_.driver.streamSynchronize(stream), "looking for addresses in memory");
    addNamed({reinterpret_cast<const std::uint64_t *>(words), count / sizeof(std::uint64_t)}, holder, found_);
  }
  return {};
}

void NamedBlocks::addNamed(std::span<const std::uint64_t> words, std::optional<BlockId> holder,
                           std::set<BlockId> &named) const {
  if (!mayHoldAddresses(words, tools_.addresses))
    return;
  for (const std::uint64_t word : words)
    if (const std::optional<BlockId> block = tools_.heap.blockAround(word); block && block != holder)
      named.insert(*block);
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
bool NamedBlocks::noteUpload(const Call &call) {
  const std::uint64_t skipped = roundUp(call.uploadedTo, sizeof(std::uint64_t)) - call.uploadedTo;
  std::uint64_t at = reinterpret_cast<std::uintptr_t>(call.uploaded) + skipped;
  const std::uint64_t end = reinterpret_cast<std::uintptr_t>(call.uploaded) + call.uploadedBytes;
  if (at + sizeof(std::uint64_t) > end)
    return true;
  for (const std::uint64_t address : {at, end - 1}) {
    const Readable readable = isReadable(tools_.driver, address);
    if (readable != Readable::Yes)
      return readable == Readable::No; // the device's
  }
  std::array<std::uint64_t, wordsAtOnce> words;
  while (at + sizeof(std::uint64_t) <= end) {
    const std::size_t count = std::min<std::size_t>(words.size(), (end - at) / sizeof(std::uint64_t));
    std::memcpy(words.data(), reinterpret_cast<const void *>(at), count * sizeof(std::uint64_t));
    addNamed(std::span(words).first(count), std::nullopt, uploaded_);
    at += count * sizeof(std::uint64_t);
  }
  return true;
}

} // namespace pumpgraph::runtime
