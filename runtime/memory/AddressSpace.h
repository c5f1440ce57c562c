// SPDX-License-Identifier: Apache-2.0
/// \file
/// Device addresses: one large reserved range from which every block gets page-aligned addresses with guard pages on
/// both sides.
#pragma once

#include "runtime/driver/Driver.h"

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

namespace pumpgraph::runtime {

/// The size of a frame and of a page of addresses.
inline constexpr std::uint64_t pageBytes = std::uint64_t{2} << 20;

inline std::uint64_t pagesFor(std::uint64_t bytes) {
  return (bytes + pageBytes - 1) / pageBytes;
}
inline std::uint64_t roundUp(std::uint64_t value, std::uint64_t unit) {
  return (value + unit - 1) / unit * unit;
}

/// The reservation lies where few other numbers point, if the driver grants the hint, so that an integer among a
/// kernel's arguments is rarely mistaken for an address. Fresh addresses are preferred to used ones, so that a stale
/// word rarely points into a live block.
///
/// It can begin with a *front*, a reservation of its own, which is given up to put other memory than frames at
/// addresses in use. For that purpose all addresses come from the front as long as it has room, except those at which
/// plans map frames.
class AddressSpace {
public:
  /// Pages left free on either side of a block: pointers one past the end, or a little before the start, still tell
  /// whose they are.
  static constexpr std::uint64_t guardPages = 1;

  /// `frontBytes`: whole pages. There is no front where the driver does not grant the hint.
  static Expected<std::unique_ptr<AddressSpace>> reserve(const Driver &driver, std::uint64_t frontBytes = 0);
  /// Addresses that somebody else owns, with memory behind them all the time.
  static std::unique_ptr<AddressSpace> within(const Driver &driver, CUdeviceptr base, std::uint64_t bytes);
  ~AddressSpace();
  AddressSpace(const AddressSpace &) = delete;
  AddressSpace &operator=(const AddressSpace &) = delete;

  /// The address of `pages` pages that no block uses, guards beside them.
  Expected<CUdeviceptr> carve(std::uint64_t pages);
  /// The same for addresses of no allocation, at which frames are mapped for a while: never in the front.
  Expected<CUdeviceptr> carveApart(std::uint64_t pages);
  void giveBack(CUdeviceptr address, std::uint64_t pages);
  /// The same for addresses that nobody has been told: they are fresh again, if they were the last to be carved.
  void unseen(CUdeviceptr address, std::uint64_t pages);

  CUdeviceptr base() const { return base_; }
  std::uint64_t bytes() const { return bytes_; }
  bool contains(std::uint64_t word) const { return word - base_ < bytes_; }
  /// Position of the page that holds `word`, counted from the start of the reservation.
  std::uint64_t pageIndex(std::uint64_t word) const { return (word - base_) / pageBytes; }

  /// 0: there is none.
  std::uint64_t frontBytes() const { return parts_.size() == 1 ? 0 : parts_.front().end * pageBytes; }
  /// Whether all addresses of allocations are.
  bool isAllInFront() const { return parts_.size() > 1 && parts_[1].used == 0; }
  /// The front is no longer reserved, for other memory to be put there; from then on addresses come from it alone.
  /// Nothing may be mapped there.
  Status giveUpFront();
  /// The opposite. Where this fails somebody else has its addresses.
  Status takeFront();

private:
  /// Consecutive pages, counted from the start of the reservation. A carved range lies in one part.
  struct Part {
    Part(std::uint64_t begin, std::uint64_t end) : begin(begin), end(end), fresh(begin) {}

    std::uint64_t begin, end;
    std::uint64_t fresh;                             ///< the first page that was never handed out
    std::uint64_t used = 0;                          ///< pages, guards included
    std::map<std::uint64_t, std::uint64_t> returned; ///< first page -> pages, guards included; never adjacent

    std::optional<std::uint64_t> take(std::uint64_t pages);
    void giveBack(std::uint64_t first, std::uint64_t pages);
  };
  AddressSpace(const Driver &driver, CUdeviceptr base, std::uint64_t bytes, std::uint64_t frontBytes, bool reserved);
  static std::unique_ptr<AddressSpace> reserveWithFront(const Driver &driver, std::uint64_t frontBytes);
  Part &partOf(std::uint64_t page);
  Expected<CUdeviceptr> carveFrom(std::span<Part> parts, std::uint64_t pages);

  const Driver &driver_;
  CUdeviceptr base_;
  std::uint64_t bytes_;
  bool reserved_;           ///< by us, for us to free; what is behind the front, if there is one
  bool hasFront_;           ///< reserved by us
  std::vector<Part> parts_; ///< all in one; or the front, what comes next, and what is apart
};

} // namespace pumpgraph::runtime
