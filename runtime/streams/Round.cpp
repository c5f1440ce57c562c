// SPDX-License-Identifier: Apache-2.0
#include "runtime/streams/Round.h"

#include <algorithm>
#include <cassert>

namespace pumpgraph::runtime {

BufferIndex Round::bufferOf(const RoundBlock &block) {
  const auto [place, isNew] = buffers_.try_emplace(block.address, description_.buffers.size());
  if (isNew) {
    Buffer &buffer = description_.buffers.emplace_back();
    buffer.name = "block" + std::to_string(place->second);
    buffer.address = block.address;
    buffer.size = block.bytes;
    buffer.isPrivate = block.moves;
    buffer.liveIn = buffer.liveOut = true;
  }
  // Memory at this address was given up in the round for a block of another size.
  Buffer &buffer = description_.buffers[place->second];
  buffer.size = std::max(buffer.size, block.bytes);
  buffer.isPrivate = buffer.isPrivate && block.moves;
  return place->second;
}

Round::Nodes Round::before(const RoundStream &stream) const {
  Nodes all;
  for (const auto &[id, lane] : lanes_) {
    const bool areOrdered = stream.id == 0 ? lane.isBlocking : id == 0 && stream.isBlocking;
    if (id == stream.id || areOrdered)
      all.insert(lane.last.begin(), lane.last.end());
  }
  return all;
}

void Round::begin(NodeKind kind, const std::string &name, const RoundStream &stream, const std::string &reason) {
  const auto index = static_cast<NodeIndex>(description_.nodes.size());
  Node &node = description_.nodes.emplace_back();
  node.kind = kind;
  node.captured = static_cast<std::int32_t>(index);
  node.name = name;
  node.reason = reason;
  for (const NodeIndex earlier : before(stream))
    description_.edges.push_back({earlier, index, EdgeKind::Full});
  lanes_[stream.id] = {stream.isBlocking, {index}};
}

void Round::access(const RoundAccess &access) {
  assert(!description_.nodes.empty() && "an access without a call");
  const BufferIndex buffer = bufferOf(access.block);
  std::vector<Access> &accesses = description_.nodes.back().accesses;
  known_.insert(buffer);
  if (fresh_.erase(buffer) != 0) {
    accesses.push_back({buffer, {0, access.block.bytes}, modeReadWrite, modeWrite, Evidence::Allocated});
    return;
  }
  const auto same =
      std::find_if(accesses.begin(), accesses.end(), [&](const Access &known) { return known.buffer == buffer; });
  if (same == accesses.end()) {
    accesses.push_back({buffer, access.range, access.may, access.must, access.evidence, access.parameter});
    return;
  }
  if (same->evidence == Evidence::Allocated)
    return;
  // Two words into one block: nothing is sure of the bytes between them.
  const std::uint64_t begin = std::min(same->range.offset, access.range.offset);
  same->range = {begin, std::max(same->range.end(), access.range.end()) - begin};
  same->may |= access.may;
  same->must = modeNone;
  same->evidence = Evidence::Assumed;
  same->parameter = unknownParameter;
}

void Round::waits(const RoundStream &stream, EventId event) {
  const auto record = records_.find(event);
  if (record == records_.end())
    return;
  Lane &lane = lanes_.try_emplace(stream.id, Lane{stream.isBlocking, {}}).first->second;
  lane.last.insert(record->second.begin(), record->second.end());
}

void Round::allocated(const RoundBlock &block) {
  const BufferIndex buffer = bufferOf(block);
  if (known_.insert(buffer).second)
    description_.buffers[buffer].liveIn = false;
  description_.buffers[buffer].liveOut = true;
  fresh_.insert(buffer);
}

void Round::freed(const RoundBlock &block) {
  const BufferIndex buffer = bufferOf(block);
  known_.insert(buffer);
  fresh_.erase(buffer);
  description_.buffers[buffer].liveOut = false;
}

Description Round::describe(const std::string &name) const {
  Description description = description_;
  description.name = name;
  // A block without a use is no part of the step.
  std::vector<bool> isUsed(description.buffers.size());
  for (const Node &node : description.nodes)
    for (const Access &access : node.accesses)
      isUsed[access.buffer] = true;
  std::vector<BufferIndex> indexOf(description.buffers.size());
  std::vector<Buffer> used;
  for (std::size_t buffer = 0; buffer < description.buffers.size(); ++buffer) {
    indexOf[buffer] = static_cast<BufferIndex>(used.size());
    if (isUsed[buffer])
      used.push_back(description.buffers[buffer]);
  }
  description.buffers = std::move(used);
  for (Node &node : description.nodes)
    for (Access &access : node.accesses)
      access.buffer = indexOf[access.buffer];
  return description;
}

} // namespace pumpgraph::runtime
