// SPDX-License-Identifier: Apache-2.0
/// \file
/// Host memory that kernels reach, where they may find addresses.
#pragma once

#include <cstdint>
#include <functional>
#include <map>

namespace pumpgraph::preload {

/// Memory that the program pins, registers or maps. On some devices kernels reach all memory of the process: there a
/// word counts if addresses of the device's memory begin within a few words of where it leads. Not thread-safe.
class HostRanges {
public:
  /// Whether a word leads into memory of the device.
  using IsAddress = std::function<bool(std::uint64_t word)>;

  void note(std::uint64_t address, std::uint64_t bytes);
  void forget(std::uint64_t address) { ranges_.erase(address); }
  /// Another address of memory that was noted.
  void noteAlias(std::uint64_t address, std::uint64_t known);
  void reachesAll(bool on) { reachesAll_ = on; }

  /// Whether a kernel with this word may find addresses there.
  bool mayHoldAddresses(std::uint64_t word, const IsAddress &isAddress) const;

private:
  std::map<std::uint64_t, std::uint64_t>::const_iterator find(std::uint64_t word) const;

  std::map<std::uint64_t, std::uint64_t> ranges_; ///< sizes by address
  /// Around all of them, ever: most words are numbers.
  std::uint64_t begin_ = UINT64_MAX, end_ = 0;
  bool reachesAll_ = false;
};

} // namespace pumpgraph::preload
