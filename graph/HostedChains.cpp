// SPDX-License-Identifier: Apache-2.0
#include "pumpgraph/graph/HostedChains.h"

#include <algorithm>
#include <map>
#include <set>

namespace pumpgraph {

HostedChains::HostedChains(const std::vector<Buffer> &buffers) {
  std::map<BufferIndex, std::vector<BufferIndex>> chains; // those of several buffers, some of them hosted
  for (BufferIndex buffer = 0; buffer < buffers.size(); ++buffer) {
    chain_.push_back(capturedBuffer(buffers, buffer));
    if (chain_[buffer] != buffer)
      chains.try_emplace(chain_[buffer]);
  }
  if (chains.empty())
    return;
  for (BufferIndex buffer = 0; buffer < buffers.size(); ++buffer)
    if (const auto chain = chains.find(chain_[buffer]); chain != chains.end() && !buffers[buffer].hosted.empty())
      chain->second.push_back(buffer);
  for (const auto &[chain, hosts] : chains) {
    std::set<std::uint64_t> cuts;
    for (const BufferIndex host : hosts)
      for (const Range &range : buffers[host].hosted)
        cuts.insert({range.offset, range.end()});
    for (auto cut = cuts.begin(); cut != cuts.end() && std::next(cut) != cuts.end(); ++cut) {
      const Range range{*cut, *std::next(cut) - *cut};
      const auto host = std::find_if(hosts.begin(), hosts.end(),
                                     [&](BufferIndex buffer) { return overlaps(buffers[buffer].hosted, range); });
      if (host != hosts.end())
        parts_.push_back({chain, range, *host});
    }
  }
}

std::vector<HostedChains::Part>::const_iterator HostedChains::firstOf(BufferIndex chain) const {
  return std::partition_point(parts_.begin(), parts_.end(), [&](const Part &part) { return part.chain < chain; });
}

std::vector<Range> HostedChains::of(BufferIndex buffer) const {
  std::vector<Range> ranges;
  for (auto part = firstOf(chain_[buffer]); part != parts_.end() && part->chain == chain_[buffer]; ++part)
    ranges.push_back(part->range);
  return ranges;
}

BufferIndex HostedChains::at(BufferIndex buffer, std::uint64_t offset) const {
  for (auto part = firstOf(chain_[buffer]); part != parts_.end() && part->chain == chain_[buffer]; ++part)
    if (part->range.offset <= offset && offset < part->range.end())
      return part->host;
  return noBuffer;
}

std::vector<Range> HostedChains::alike(BufferIndex buffer, const Range &range) const {
  std::vector<Range> pieces;
  BufferIndex last = noBuffer; // host of the last piece
  const auto append = [&](std::uint64_t end, BufferIndex host) {
    const std::uint64_t begin = pieces.empty() ? range.offset : pieces.back().end();
    if (end <= begin)
      return;
    if (!pieces.empty() && host == last)
      pieces.back().size += end - begin;
    else
      pieces.push_back({begin, end - begin});
    last = host;
  };
  for (auto part = firstOf(chain_[buffer]); part != parts_.end() && part->chain == chain_[buffer]; ++part) {
    append(std::min(part->range.offset, range.end()), noBuffer);
    append(std::min(part->range.end(), range.end()), part->host);
  }
  append(range.end(), noBuffer);
  return pieces;
}

} // namespace pumpgraph
