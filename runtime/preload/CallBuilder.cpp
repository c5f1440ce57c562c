// SPDX-License-Identifier: Apache-2.0
#include "runtime/preload/CallBuilder.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>

namespace pumpgraph::preload {

std::uint64_t idOf(const runtime::CallStream &stream) {
  const std::uint64_t handle = stream.handle == CU_STREAM_LEGACY ? 0 : reinterpret_cast<std::uintptr_t>(stream.handle);
  return stream.isOfThread ? static_cast<std::uint64_t>(gettid()) << 8 | 2 : handle;
}

void CallBuilder::begin(NodeKind kind, std::uint64_t function, const runtime::CallStream &stream, const char *name) {
  call_.kind = kind;
  call_.name = name;
  call_.stream = stream;
  call_.streamId = idOf(stream);
  call_.parts.clear();
  call_.accesses.clear();
  call_.awaited.reset();
  call_.unplannable = kind == NodeKind::Opaque || kind == NodeKind::Host ? "its accesses are not known" : "";
  call_.uploaded = nullptr;
  call_.uploadedBytes = 0;
  call_.clock = {};
  value(function);
  value(call_.streamId);
}

void CallBuilder::word(std::uint64_t word, std::int32_t parameter) {
  if (!memory_ || !memory_->mayHold(word))
    return;
  const std::optional<Extent> extent = memory_->operand(word);
  if (!extent)
    return;
  value(memory_->findAround(word) ? word : extent->address);
  call_.accesses.push_back({.block = extent->block, .range = extent->range(), .parameter = parameter});
}

void CallBuilder::words(const void *data, std::size_t bytes, std::int32_t parameter) {
  // A parameter that is the address, and no more.
  const std::int32_t known = bytes == sizeof(std::uint64_t) ? parameter : unknownParameter;
  // At multiples of eight, and of four, where packed structs have them.
  for (const std::size_t begin : {std::size_t{0}, sizeof(std::uint32_t)})
    for (std::size_t at = begin; at + sizeof(std::uint64_t) <= bytes; at += sizeof(std::uint64_t)) {
      std::uint64_t value;
      std::memcpy(&value, static_cast<const char *>(data) + at, sizeof value);
      word(value, known);
      if (host_ && memory_ && host_->mayHoldAddresses(value, [this](std::uint64_t at) { return memory_->owns(at); }))
        unplannable("it may find addresses in host memory");
    }
}

void CallBuilder::span(std::uint64_t address, std::uint64_t bytes, Mode mode) {
  value(bytes);
  while (bytes != 0) {
    const std::optional<Extent> extent = memory_ ? memory_->find(address) : std::nullopt;
    if (!extent || address == extent->address + extent->bytes)
      return;
    value(address);
    const std::uint64_t here = std::min<std::uint64_t>(bytes, extent->address + extent->bytes - address);
    call_.accesses.push_back({.block = extent->block,
                              .range = Range{address - extent->block.address, here},
                              .may = mode,
                              .must = mode,
                              .evidence = Evidence::Proved});
    address += here;
    bytes -= here;
  }
}

void CallBuilder::uploads(std::uint64_t to, std::uint64_t address, std::uint64_t bytes) {
  if (memory_ && memory_->owns(address))
    return;
  call_.uploaded = reinterpret_cast<const void *>(address);
  call_.uploadedBytes = bytes;
  call_.uploadedTo = to;
}

} // namespace pumpgraph::preload
