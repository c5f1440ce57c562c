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

void HostRanges::note(std::uint64_t address, std::uint64_t bytes) {
  ranges_[address] = bytes;
  begin_ = std::min(begin_, address);
  end_ = std::max(end_, address + bytes);
}

void HostRanges::noteAlias(std::uint64_t address, std::uint64_t known) {
  if (const auto range = find(known); range != ranges_.end() && address != known)
    note(address, range->first + range->second - known);
}

std::map<std::uint64_t, std::uint64_t>::const_iterator HostRanges::find(std::uint64_t word) const {
  if (word < begin_ || word >= end_)
    return ranges_.end();
  const auto next = ranges_.upper_bound(word);
  if (next == ranges_.begin())
    return ranges_.end();
  const auto range = std::prev(next);
  return word - range->first < range->second ? range : ranges_.end();
}

bool HostRanges::mayHoldAddresses(std::uint64_t word, const IsAddress &isAddress) const {
  if (find(word) != ranges_.end())
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
