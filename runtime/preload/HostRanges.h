// SPDX-License-Identifier: Apache-2.0
/// \file
/// Host memory that kernels reach, where they may find addresses.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <utility>

namespace pumpgraph::preload {

/// Memory that the program pins, registers or maps. On some devices kernels reach all memory of the process: there a
/// word counts if addresses of the device's memory begin within a few words of where it leads. Not thread-safe.
///
/// What is about to be given up is taken out ahead of the call: another thread may get its addresses before the call
/// returns. Memory that nobody gave up, such as that of an unmapped file, stays where no younger memory covers it.
class HostRanges {
public:
  /// Whether a word leads into memory of the device.
  using IsAddress = std::function<bool(std::uint64_t word)>;
  struct Piece {
    std::uint64_t end = 0;
    std::uint64_t owner = 0; ///< where it was noted, or what it is another address of
  };
  /// Apart, by their beginnings.
  using Pieces = std::map<std::uint64_t, Piece>;

  void note(std::uint64_t address, std::uint64_t bytes) { add(address, address + bytes, address); }
  /// Another address of memory that was noted. Whether it is news.
  bool noteAlias(std::uint64_t address, std::uint64_t known);
  /// Memory that was noted here, by all of its addresses.
  Pieces take(std::uint64_t address);
  Pieces takeWithin(std::uint64_t address, std::uint64_t bytes) { return cut(address, address + bytes); }
  /// It was not given up. Younger memory that has come there stays.
  void putBack(const Pieces &taken);
  void reachesAll(bool on) { reachesAll_ = on; }

  bool contains(std::uint64_t word) const { return pieceOf(word) != pieces_.end(); }
  /// Around all of it, ever: most words are numbers.
  std::pair<std::uint64_t, std::uint64_t> bounds() const { return {begin_, end_}; }
  /// Whether a kernel with this word may find addresses there.
  bool mayHoldAddresses(std::uint64_t word, const IsAddress &isAddress) const;

private:
  Pieces::const_iterator pieceOf(std::uint64_t word) const;
  void add(std::uint64_t begin, std::uint64_t end, std::uint64_t owner);
  Pieces cut(std::uint64_t begin, std::uint64_t end);

  Pieces pieces_;
  std::uint64_t begin_ = UINT64_MAX, end_ = 0;
  bool reachesAll_ = false;
};

} // namespace pumpgraph::preload
