// SPDX-License-Identifier: Apache-2.0
#include "runtime/memory/AddressSpace.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace pumpgraph::runtime {
namespace {

// Below the addresses of programs and libraries, above those of heaps; as two 32-bit integers or floats in a row the
// high half is an odd number or a denormal.
constexpr CUdeviceptr addressHint = 0x2d35'0000'0000;
constexpr std::uint64_t wantedBytes = std::uint64_t{1} << 40;
constexpr std::uint64_t leastBytes = std::uint64_t{1} << 36;

} // namespace

AddressSpace::AddressSpace(const Driver &driver, CUdeviceptr base, std::uint64_t bytes, std::uint64_t frontBytes,
                           bool reserved)
    : driver_(driver), base_(base), bytes_(bytes), reserved_(reserved), hasFront_(frontBytes != 0) {
  const std::uint64_t frontPages = frontBytes / pageBytes, pages = bytes / pageBytes;
  if (hasFront_)
    parts_ = {Part(0, frontPages), Part(frontPages, pages / 2), Part(pages / 2, pages)};
  else
    parts_ = {Part(0, pages)};
}

std::unique_ptr<AddressSpace> AddressSpace::reserveWithFront(const Driver &driver, std::uint64_t frontBytes) {
  CUdeviceptr front = 0, rest = 0;
  if (driver.memAddressReserve.raw(&front, frontBytes, pageBytes, addressHint, 0) != CUDA_SUCCESS)
    return nullptr;
  const std::uint64_t restBytes = wantedBytes - frontBytes;
  if (driver.memAddressReserve.raw(&rest, restBytes, pageBytes, front + frontBytes, 0) == CUDA_SUCCESS) {
    if (rest == front + frontBytes)
      return std::unique_ptr<AddressSpace>(new AddressSpace(driver, front, wantedBytes, frontBytes, true));
    driver.memAddressFree.raw(rest, restBytes);
  }
  driver.memAddressFree.raw(front, frontBytes);
  return nullptr;
}

Expected<std::unique_ptr<AddressSpace>> AddressSpace::reserve(const Driver &driver, std::uint64_t frontBytes) {
  if (frontBytes != 0 && frontBytes < wantedBytes / 2)
    if (std::unique_ptr<AddressSpace> reserved = reserveWithFront(driver, frontBytes))
      return reserved;
  for (std::uint64_t bytes = wantedBytes;; bytes /= 2) {
    CUdeviceptr base = 0;
    if (driver.memAddressReserve.raw(&base, bytes, pageBytes, addressHint, 0) == CUDA_SUCCESS)
      return std::unique_ptr<AddressSpace>(new AddressSpace(driver, base, bytes, 0, true));
    const Status plain = driver.memAddressReserve(&base, bytes, pageBytes, 0, 0);
    if (plain)
      return std::unique_ptr<AddressSpace>(new AddressSpace(driver, base, bytes, 0, true));
    if (bytes / 2 < leastBytes)
      return inContext(plain.error(), fmt::format("reserving {} of device addresses", bytesText(bytes)));
  }
}

std::unique_ptr<AddressSpace> AddressSpace::within(const Driver &driver, CUdeviceptr base, std::uint64_t bytes) {
  return std::unique_ptr<AddressSpace>(new AddressSpace(driver, base, bytes, 0, false));
}

AddressSpace::~AddressSpace() {
  if (hasFront_)
    driver_.memAddressFree.raw(base_, frontBytes());
  if (reserved_)
    driver_.memAddressFree.raw(base_ + frontBytes(), bytes_ - frontBytes());
}

Status AddressSpace::giveUpFront() {
  PUMPGRAPH_TRY_WHILE(driver_.memAddressFree(base_, frontBytes()), "giving up {} of device addresses",
                      bytesText(frontBytes()));
  hasFront_ = false;
  return {};
}

Status AddressSpace::takeFront() {
  CUdeviceptr taken = 0;
  const CUresult answer = driver_.memAddressReserve.raw(&taken, frontBytes(), pageBytes, base_, 0);
  if (answer == CUDA_SUCCESS && taken != base_)
    driver_.memAddressFree.raw(taken, frontBytes());
  if (answer != CUDA_SUCCESS || taken != base_)
    return fail(PUMPGRAPH_INTERNAL, "{} of device addresses at {:#x} are no longer to be had", bytesText(frontBytes()),
                base_);
  hasFront_ = true;
  return {};
}

std::optional<std::uint64_t> AddressSpace::Part::take(std::uint64_t pages) {
  if (fresh + pages <= end) {
    used += pages;
    return std::exchange(fresh, fresh + pages);
  }
  for (auto hole = returned.begin(); hole != returned.end(); ++hole) {
    if (hole->second < pages)
      continue;
    const auto [first, size] = *hole;
    returned.erase(hole);
    if (size > pages)
      returned.emplace(first + pages, size - pages);
    used += pages;
    return first;
  }
  return std::nullopt;
}

void AddressSpace::Part::giveBack(std::uint64_t first, std::uint64_t pages) {
  used -= pages;
  const auto next = returned.lower_bound(first);
  if (next != returned.end() && next->first == first + pages) {
    pages += next->second;
    returned.erase(next);
  }
  const auto after = returned.lower_bound(first);
  if (after != returned.begin()) {
    const auto previous = std::prev(after);
    if (previous->first + previous->second == first) {
      first = previous->first;
      pages += previous->second;
      returned.erase(previous);
    }
  }
  returned.emplace(first, pages);
}

AddressSpace::Part &AddressSpace::partOf(std::uint64_t page) {
  return *std::find_if(parts_.begin(), parts_.end(), [&](const Part &part) { return page < part.end; });
}

Expected<CUdeviceptr> AddressSpace::carveFrom(std::span<Part> parts, std::uint64_t pages) {
  std::uint64_t all = 0;
  for (Part &part : parts) {
    if (const std::optional<std::uint64_t> first = part.take(pages + 2 * guardPages))
      return base_ + (*first + guardPages) * pageBytes;
    all += part.end - part.begin;
  }
  return fail(PUMPGRAPH_OUT_OF_DEVICE_MEMORY, "no {} of free device addresses in a row among {}",
              bytesText(pages * pageBytes), bytesText(all * pageBytes));
}

Expected<CUdeviceptr> AddressSpace::carve(std::uint64_t pages) {
  const std::span all(parts_);
  return carveFrom(all.size() == 1 || !hasFront_ ? all.first(1) : all.first(2), pages);
}

Expected<CUdeviceptr> AddressSpace::carveApart(std::uint64_t pages) {
  return carveFrom(std::span(parts_).last(1), pages);
}

void AddressSpace::unseen(CUdeviceptr address, std::uint64_t pages) {
  const std::uint64_t first = pageIndex(address) - guardPages;
  const std::uint64_t size = pages + 2 * guardPages;
  Part &part = partOf(first);
  if (first + size == part.fresh) {
    part.fresh = first;
    part.used -= size;
  } else {
    part.giveBack(first, size);
  }
}

void AddressSpace::giveBack(CUdeviceptr address, std::uint64_t pages) {
  const std::uint64_t first = pageIndex(address) - guardPages;
  partOf(first).giveBack(first, pages + 2 * guardPages);
}

} // namespace pumpgraph::runtime
