// SPDX-License-Identifier: Apache-2.0
#include "runtime/memory/AddressSpace.h"

#include <iterator>

namespace pumpgraph::runtime {
namespace {

// Below the addresses of programs and libraries, above those of heaps; as two 32-bit integers or floats in a row the
// high half is an odd number or a denormal.
constexpr CUdeviceptr addressHint = 0x2d35'0000'0000;
constexpr std::uint64_t wantedBytes = std::uint64_t{1} << 40;
constexpr std::uint64_t leastBytes = std::uint64_t{1} << 36;

} // namespace

Expected<std::unique_ptr<AddressSpace>> AddressSpace::reserve(const Driver &driver) {
  for (std::uint64_t bytes = wantedBytes;; bytes /= 2) {
    CUdeviceptr base = 0;
    if (driver.memAddressReserve.raw(&base, bytes, pageBytes, addressHint, 0) == CUDA_SUCCESS)
      return std::unique_ptr<AddressSpace>(new AddressSpace(driver, base, bytes, true));
    const Status plain = driver.memAddressReserve(&base, bytes, pageBytes, 0, 0);
    if (plain)
      return std::unique_ptr<AddressSpace>(new AddressSpace(driver, base, bytes, true));
    if (bytes / 2 < leastBytes)
      return inContext(plain.error(), fmt::format("reserving {} of device addresses", bytesText(bytes)));
  }
}

std::unique_ptr<AddressSpace> AddressSpace::within(const Driver &driver, CUdeviceptr base, std::uint64_t bytes) {
  return std::unique_ptr<AddressSpace>(new AddressSpace(driver, base, bytes, false));
}

AddressSpace::~AddressSpace() {
  if (reserved_)
    driver_.memAddressFree.raw(base_, bytes_);
}

Expected<CUdeviceptr> AddressSpace::carve(std::uint64_t pages) {
  const std::uint64_t needed = pages + 2 * guardPages;
  if (freshPages_ + needed <= bytes_ / pageBytes) {
    const CUdeviceptr address = base_ + (freshPages_ + guardPages) * pageBytes;
    freshPages_ += needed;
    return address;
  }
  for (auto hole = returned_.begin(); hole != returned_.end(); ++hole) {
    if (hole->second < needed)
      continue;
    const auto [first, size] = *hole;
    returned_.erase(hole);
    if (size > needed)
      returned_.emplace(first + needed, size - needed);
    return base_ + (first + guardPages) * pageBytes;
  }
  return fail(PUMPGRAPH_OUT_OF_DEVICE_MEMORY, "no {} of free device addresses in a row among {}",
              bytesText(pages * pageBytes), bytesText(bytes_));
}

void AddressSpace::unseen(CUdeviceptr address, std::uint64_t pages) {
  const std::uint64_t first = pageIndex(address) - guardPages;
  if (first + pages + 2 * guardPages == freshPages_)
    freshPages_ = first;
  else
    giveBack(address, pages);
}

void AddressSpace::giveBack(CUdeviceptr address, std::uint64_t pages) {
  std::uint64_t first = pageIndex(address) - guardPages;
  std::uint64_t size = pages + 2 * guardPages;
  const auto next = returned_.lower_bound(first);
  if (next != returned_.end() && next->first == first + size) {
    size += next->second;
    returned_.erase(next);
  }
  const auto after = returned_.lower_bound(first);
  if (after != returned_.begin()) {
    const auto previous = std::prev(after);
    if (previous->first + previous->second == first) {
      first = previous->first;
      size += previous->second;
      returned_.erase(previous);
    }
  }
  returned_.emplace(first, size);
}

} // namespace pumpgraph::runtime
