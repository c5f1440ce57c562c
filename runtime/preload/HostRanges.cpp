// SPDX-License-Identifier: Apache-2.0
#include "runtime/preload/HostRanges.h"

#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <iterator>

namespace pumpgraph::preload {
namespace {

constexpr std::uint64_t leastAddress = std::uint64_t{1} << 20, endOfAddresses = std::uint64_t{1} << 47; // of programs
constexpr std::size_t wordsLookedAt = 64;

} // namespace

void HostRanges::add(std::uint64_t begin, std::uint64_t end, std::uint64_t owner) {
  cut(begin, end);
  pieces_[begin] = {end, owner};
  begin_ = std::min(begin_, begin);
  end_ = std::max(end_, end);
}

HostRanges::Pieces HostRanges::cut(std::uint64_t begin, std::uint64_t end) {
  Pieces removed;
  auto piece = pieces_.upper_bound(begin);
  if (piece != pieces_.begin() && std::prev(piece)->second.end > begin)
    --piece;
  while (piece != pieces_.end() && piece->first < end) {
    const auto [from, old] = *piece;
    piece = pieces_.erase(piece);
    if (from < begin)
      pieces_[from] = {begin, old.owner};
    if (old.end > end)
      pieces_[end] = old;
    removed[std::max(from, begin)] = {std::min(old.end, end), old.owner};
  }
  return removed;
}

bool HostRanges::noteAlias(std::uint64_t address, std::uint64_t known) {
  const auto piece = pieceOf(known);
  if (piece == pieces_.end() || address == known)
    return false;
  const auto [end, owner] = piece->second;
  if (const auto there = pieceOf(address); there != pieces_.end() && there->second.owner == owner)
    return false;
  add(address, address + (end - known), owner);
  return true;
}

HostRanges::Pieces HostRanges::take(std::uint64_t address) {
  Pieces taken;
  std::erase_if(pieces_, [&](const auto &piece) {
    const bool isOfIt = piece.second.owner == address;
    if (isOfIt)
      taken.insert(piece);
    return isOfIt;
  });
  return taken;
}

void HostRanges::putBack(const Pieces &taken) {
  for (const auto &[begin, piece] : taken) {
    const Pieces younger = cut(begin, piece.end);
    add(begin, piece.end, piece.owner);
    for (const auto &[from, young] : younger)
      add(from, young.end, young.owner);
  }
}

HostRanges::Pieces::const_iterator HostRanges::pieceOf(std::uint64_t word) const {
  if (word < begin_ || word >= end_)
    return pieces_.end();
  const auto next = pieces_.upper_bound(word);
  return next != pieces_.begin() && word < std::prev(next)->second.end ? std::prev(next) : pieces_.end();
}

bool HostRanges::mayHoldAddresses(std::uint64_t word, const IsAddress &isAddress) const {
  if (contains(word))
    return true;
  if (!reachesAll_ || word % sizeof word != 0 || word < leastAddress || word >= endOfAddresses)
    return false;
  std::array<std::uint64_t, wordsLookedAt> words;
  const iovec local{words.data(), sizeof words}, remote{reinterpret_cast<void *>(word), sizeof words};
  const ssize_t read = process_vm_readv(getpid(), &local, 1, &remote, 1, 0);
  if (read < 0)
    return errno != EFAULT; // nobody knows
  return std::any_of(words.begin(), words.begin() + read / static_cast<ssize_t>(sizeof word), isAddress);
}

} // namespace pumpgraph::preload
