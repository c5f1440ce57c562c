// SPDX-License-Identifier: Apache-2.0
#include "runtime/streams/PlanInput.h"

#include <algorithm>
#include <functional>
#include <map>
#include <utility>

namespace pumpgraph::runtime {
namespace {

constexpr BufferIndex stays = noBuffer;

/// Where each buffer goes; `stays` if it does not move.
std::vector<BufferIndex> movingBuffers(const Description &round, const std::set<std::uint64_t> &staying) {
  std::vector<BufferIndex> indexOf;
  BufferIndex next = 0;
  for (const Buffer &buffer : round.buffers)
    indexOf.push_back(buffer.isPrivate && !staying.contains(buffer.address) ? next++ : stays);
  return indexOf;
}

/// Keeps values that memory holds until it is freed.
void readBeforeFrees(const RoundScript &script, Description &input) {
  std::map<std::uint64_t, BufferIndex> blocks;
  std::set<BufferIndex> withValue; // in the life of its memory
  for (BufferIndex buffer = 0; buffer < input.buffers.size(); ++buffer) {
    blocks[input.buffers[buffer].address] = buffer;
    if (input.buffers[buffer].liveIn)
      withValue.insert(buffer);
  }
  std::size_t nodes = 0; // so far
  for (const RoundEvent &event : script.events) {
    if (event.kind == RoundEvent::Kind::Call) {
      if (event.isNode)
        for (const Access &access : input.nodes[nodes++].accesses)
          withValue.insert(access.buffer);
      continue;
    }
    const auto block = blocks.find(event.block);
    if (event.block == 0 || block == blocks.end() || withValue.erase(block->second) == 0 || nodes == 0)
      continue;
    const BufferIndex buffer = block->second;
    const Range whole{0, input.buffers[buffer].size};
    std::vector<Access> &accesses = input.nodes[nodes - 1].accesses;
    if (std::none_of(accesses.begin(), accesses.end(),
                     [&](const Access &access) { return access.buffer == buffer && access.range == whole; }))
      accesses.push_back(
          {.buffer = buffer, .range = whole, .may = modeRead, .must = modeNone, .evidence = Evidence::Assumed});
  }
}

/// Where the program orders two uses of new memory by the host alone, the first one is not sure to come first. It then
/// counts as reading, too.
void doubtFirstAccesses(const RoundScript &script, Description &input) {
  const std::vector<std::uint64_t> streams = streamsOf(script);
  if (std::adjacent_find(streams.begin(), streams.end(), std::not_equal_to<>()) == streams.end())
    return;
  std::vector<std::vector<bool>> before(input.nodes.size()); // by node: those that it follows
  for (NodeIndex node = 0; node < before.size(); ++node)
    before[node].resize(node);
  for (const Edge &edge : input.edges) { // ascending by target: a node's own are complete
    std::vector<bool> &own = before[edge.to];
    own[edge.from] = true;
    for (NodeIndex node = 0; node < edge.from; ++node)
      own[node] = own[node] || before[edge.from][node];
  }
  std::map<BufferIndex, std::pair<NodeIndex, std::size_t>> first; // in this life of its memory: node and access
  for (NodeIndex node = 0; node < input.nodes.size(); ++node)
    for (std::size_t position = 0; position < input.nodes[node].accesses.size(); ++position) {
      const Access &access = input.nodes[node].accesses[position];
      if (access.evidence == Evidence::Allocated)
        first[access.buffer] = {node, position};
      else if (const auto fresh = first.find(access.buffer);
               fresh != first.end() && fresh->second.first != node && !before[node][fresh->second.first]) {
        Access &doubted = input.nodes[fresh->second.first].accesses[fresh->second.second];
        doubted.must = modeNone;
        doubted.evidence = Evidence::Assumed;
      }
    }
}

} // namespace

Description planInput(const RoundScript &script, const std::set<std::uint64_t> &staying) {
  const Description &round = script.description;
  const std::vector<BufferIndex> indexOf = movingBuffers(round, staying);
  Description input;
  input.name = round.name;
  input.edges = round.edges;
  for (BufferIndex buffer = 0; buffer < round.buffers.size(); ++buffer) {
    if (indexOf[buffer] == stays)
      continue;
    Buffer &moving = input.buffers.emplace_back(round.buffers[buffer]);
    moving.liveOut |= moving.liveIn;
  }
  for (Node node : round.nodes) {
    std::vector<Access> accesses;
    for (Access access : node.accesses) {
      if (indexOf[access.buffer] == stays)
        continue;
      access.buffer = indexOf[access.buffer];
      if (access.evidence != Evidence::Allocated)
        access.must &= modeRead;
      accesses.push_back(access);
    }
    node.accesses = std::move(accesses);
    if (node.kind == NodeKind::Memset)
      node.kind = NodeKind::Memcpy;
    input.nodes.push_back(std::move(node));
  }
  readBeforeFrees(script, input);
  doubtFirstAccesses(script, input);
  return input;
}

std::vector<std::uint64_t> streamsOf(const RoundScript &script) {
  std::vector<std::uint64_t> streams;
  for (const RoundEvent &event : script.events)
    if (event.isNode)
      streams.push_back(event.streamId);
  return streams;
}

} // namespace pumpgraph::runtime
