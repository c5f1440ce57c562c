// SPDX-License-Identifier: Apache-2.0
/// \file
/// Device addresses: one large reserved range from which every block gets its own, page-aligned, with guard pages on
/// both sides.
#pragma once

#include "runtime/driver/Driver.h"

#include <cstdint>
#include <map>
#include <memory>

namespace pumpgraph::runtime {

/// The size of a frame and of a page of addresses.
inline constexpr std::uint64_t pageBytes = std::uint64_t{2} << 20;

inline std::uint64_t pagesFor(std::uint64_t bytes) {
  return (bytes + pageBytes - 1) / pageBytes;
}
inline std::uint64_t roundUp(std::uint64_t value, std::uint64_t unit) {
  return (value + unit - 1) / unit * unit;
}

/// The reservation sits where few other numbers point, if the driver grants the hint, so that an integer among a
/// kernel's arguments is rarely mistaken for an address. Fresh addresses are preferred to used ones, so that a stale
/// word rarely points at a living block.
class AddressSpace {
public:
  /// Pages left free on either side of a block: pointers one past the end, or a little before the start, still tell
  /// whose they are.
  static constexpr std::uint64_t guardPages = 1;

  static Expected<std::unique_ptr<AddressSpace>> reserve(const Driver &driver);
  /// Addresses that somebody else owns, with memory behind them all the time.
  static std::unique_ptr<AddressSpace> within(const Driver &driver, CUdeviceptr base, std::uint64_t bytes);
  ~AddressSpace();
  AddressSpace(const AddressSpace &) = delete;
  AddressSpace &operator=(const AddressSpace &) = delete;

  /// The address of `pages` pages that no block uses, guards beside them.
  Expected<CUdeviceptr> carve(std::uint64_t pages);
  void giveBack(CUdeviceptr address, std::uint64_t pages);
  /// The same for addresses that nobody has been told: they are fresh again, if they were the last to be carved.
  void unseen(CUdeviceptr address, std::uint64_t pages);

  bool contains(std::uint64_t word) const { return word - base_ < bytes_; }
  /// Position of the page that holds `word`, counted from the start of the reservation.
  std::uint64_t pageIndex(std::uint64_t word) const { return (word - base_) / pageBytes; }

private:
  AddressSpace(const Driver &driver, CUdeviceptr base, std::uint64_t bytes, bool reserved)
      : driver_(driver), base_(base), bytes_(bytes), reserved_(reserved) {}

  const Driver &driver_;
  CUdeviceptr base_;
  std::uint64_t bytes_;
  bool reserved_;                                   ///< by us, for us to free
  std::uint64_t freshPages_ = 0;                    ///< pages handed out so far, from the start
  std::map<std::uint64_t, std::uint64_t> returned_; ///< first page -> pages, guards included; never adjacent
};

} // namespace pumpgraph::runtime
