// SPDX-License-Identifier: Apache-2.0
#include "runtime/capture/FindHiddenPointers.h"

#include "runtime/capture/DescribeStep.h"
#include "runtime/memory/InThreads.h"

#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <thread>

namespace pumpgraph::runtime {
namespace {

constexpr BlockId noHolder = UINT32_MAX;

/// Reads memory of this process that may not be there any more. False if it is not.
bool readSafely(std::uint64_t address, void *target, std::size_t bytes) {
  iovec local{target, bytes}, remote{reinterpret_cast<void *>(address), bytes};
  return process_vm_readv(getpid(), &local, 1, &remote, 1, 0) == static_cast<ssize_t>(bytes);
}

std::span<const std::uint64_t> wordsOf(const PinnedPool &staging, std::uint64_t bytes) {
  return {reinterpret_cast<const std::uint64_t *>(staging.at(0)), bytes / sizeof(std::uint64_t)};
}

} // namespace

PointerScan::Words PointerScan::scanWords(std::span<const std::uint64_t> words, BlockId holder,
                                          std::uint64_t address) const {
  Words found;
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (!heap_.addresses().contains(words[i])) // nearly always
      continue;
    const std::optional<Hit> hit = heap_.find(words[i]);
    const std::uint64_t at = address + i * sizeof(std::uint64_t);
    if (!hit || (address != 0 && !heap_.holdsValue(at, sizeof(std::uint64_t)))) // of nothing, or in no value
      continue;
    if (address != 0 && isFollowed_ && hit->block != holder && isFollowed_(at, *hit)) {
      found.followed.emplace(*heap_.blockAround(at), hit->block);
      continue;
    }
    found.pointedAt.insert(hit->block);
    if (hit->block != holder)
      found.positions.push_back(i);
  }
  return found;
}

PointerScan::Words PointerScan::scanInParallel(std::span<const std::uint64_t> words, BlockId holder,
                                               std::uint64_t address) const {
  constexpr std::size_t leastPerThread = std::size_t{1} << 17;
  const std::size_t threads = std::clamp<std::size_t>(words.size() / leastPerThread, 1,
                                                      std::clamp(std::thread::hardware_concurrency(), 1u, 8u));
  const std::size_t share = (words.size() + threads - 1) / threads;
  std::vector<Words> parts(threads);
  const auto scanShare = [&](std::size_t thread) {
    const std::size_t begin = std::min(thread * share, words.size());
    parts[thread] = scanWords(words.subspan(begin, std::min(share, words.size() - begin)), holder,
                              address == 0 ? 0 : address + begin * sizeof(std::uint64_t));
  };
  inThreads(threads, scanShare);
  Words all;
  for (std::size_t thread = 0; thread < threads; ++thread) {
    for (const std::size_t position : parts[thread].positions)
      all.positions.push_back(thread * share + position);
    all.pointedAt.merge(parts[thread].pointedAt);
    all.followed.merge(parts[thread].followed);
  }
  return all;
}

void addReachedFrom(const std::set<std::pair<BlockId, BlockId>> &followed, std::set<BlockId> &staying) {
  for (bool changes = true; changes;) {
    changes = false;
    for (const auto &[holder, target] : followed)
      if (staying.contains(holder))
        changes |= staying.insert(target).second;
  }
}

PointerScan::PointerScan(const Driver &driver, const Heap &heap, const PinnedPool &staging, CUstream stream,
                         IsFollowed isFollowed)
    : driver_(driver), heap_(heap), staging_(staging), stream_(stream), isFollowed_(std::move(isFollowed)) {}

std::vector<std::size_t> PointerScan::scanStaged(std::uint64_t bytes, BlockId holder, std::uint64_t address) {
  found_.scannedBytes += bytes;
  Words words = scanInParallel(wordsOf(staging_, bytes), holder, address);
  if (words.pointedAt.erase(holder) != 0)
    found_.pointAtSelf.insert(holder);
  found_.pointedAt.merge(words.pointedAt);
  found_.followed.merge(words.followed);
  return words.positions;
}

Status PointerScan::scanBlock(BlockId id) {
  const Block &block = heap_.block(id);
  std::map<std::string, std::uint64_t> here; // addresses in each allocation of the block
  const std::uint64_t bytes = contentBytes(block);
  for (std::uint64_t done = 0; done < bytes; done += staging_.bytes()) {
    const std::uint64_t piece = std::min(staging_.bytes(), bytes - done);
    PUMPGRAPH_TRY_WHILE(driver_.memcpyDtoHAsync(staging_.at(0), block.address + done, piece, stream_),
                        "looking for addresses in \"{}\"", block.members.front().name);
    PUMPGRAPH_TRY_WHILE(driver_.streamSynchronize(stream_), "looking for addresses in \"{}\"",
                        block.members.front().name);
    for (const std::size_t word : scanStaged(piece, id, block.address + done))
      ++here[heap_.nameAt(block.address + done + word * sizeof(std::uint64_t))];
  }
  for (const auto &[name, count] : here)
    holders_[name] = std::max(holders_[name], count);
  return {};
}

void PointerScan::scanSources(const LiftedGraph &graph) {
  std::uint64_t unread = 0;
  for (const LiftedNode &node : graph.nodes)
    for (const HostSource &source : node.hostSources)
      for (std::uint64_t done = 0; done < source.bytes; done += staging_.bytes()) {
        const std::uint64_t piece = std::min(staging_.bytes(), source.bytes - done);
        if (!readSafely(source.address + done, staging_.at(0), piece)) {
          ++unread;
          continue;
        }
        if (const std::size_t count = scanStaged(piece, noHolder, source.target == 0 ? 0 : source.target + done).size();
            count != 0)
          found_.notes.push_back(fmt::format(
              "node \"{}\" uploads {} addresses of buffers, which therefore stay on the device", node.name, count));
      }
  if (unread != 0)
    found_.notes.push_back(fmt::format("{} sources of captured copies could not be read for addresses", unread));
}

HiddenPointers PointerScan::take() {
  for (const auto &[name, count] : holders_)
    found_.notes.push_back(
        fmt::format("\"{}\" holds {} addresses of other buffers, which therefore stay on the device", name, count));
  holders_.clear();
  return std::exchange(found_, {});
}

Expected<HiddenPointers> findHiddenPointers(const Driver &driver, const LiftedGraph &graph, const Heap &heap,
                                            const std::vector<BlockId> &holders, const PinnedPool &staging,
                                            CUstream stream, IsFollowed isFollowed) {
  PointerScan scan(driver, heap, staging, stream, std::move(isFollowed));
  for (const BlockId id : holders)
    if (heap.block(id).backing == Backing::Device || heap.block(id).backing == Backing::Host)
      PUMPGRAPH_TRY(scan.scanBlock(id));
  scan.scanSources(graph);
  return scan.take();
}

} // namespace pumpgraph::runtime
