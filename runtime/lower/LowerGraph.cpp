// SPDX-License-Identifier: Apache-2.0
#include "runtime/lower/LowerGraph.h"

#include "pumpgraph/graph/HostedChains.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <set>
#include <unordered_map>

namespace pumpgraph::runtime {
namespace {

/// Adds one lowered copy. Pages that are hosted at another address are host memory there, to kernels as to copies.
Expected<CUgraphNode> addCopy(GraphEditor &editor, const Node &copy, const Description &lowered,
                              const PinnedPools &pools, const HostedChains &hosted) {
  const CUdeviceptr device = lowered.buffers[copy.buffer].address + copy.range.offset;
  if (const BufferIndex host = hosted.at(copy.buffer, copy.range.offset); host != noBuffer) {
    void *there = reinterpret_cast<void *>(lowered.buffers[host].address + copy.range.offset);
    return movesDown(copy.kind) ? editor.addCopyToHost(there, device, copy.range.size)
                                : editor.addCopyToDevice(device, there, copy.range.size);
  }
  if (!pools.holds(copy.hostOffset, copy.range.size))
    return fail(PUMPGRAPH_INTERNAL, "copy \"{}\" of {} at {} lies outside the pinned pool of {}", copy.name,
                bytesText(copy.range.size), copy.hostOffset, bytesText(pools.bytes()));
  char *host = pools.at(copy.hostOffset);
  return movesDown(copy.kind) ? editor.addCopyToHost(host, device, copy.range.size)
                              : editor.addCopyToDevice(device, host, copy.range.size);
}

/// The buffers in whose place a lowered node has others that continue them, and these.
Expected<std::map<BufferIndex, BufferIndex>> renamedBy(const Node &node, const std::vector<Buffer> &buffers) {
  std::map<BufferIndex, BufferIndex> all;
  for (const Access &access : node.accesses) {
    const auto [known, isNew] = all.emplace(capturedBuffer(buffers, access.buffer), access.buffer);
    if (!isNew && known->second != access.buffer)
      return fail(PUMPGRAPH_INTERNAL, "node {} \"{}\" has \"{}\" at two addresses", node.captured, node.name,
                  buffers[known->first].name);
  }
  std::erase_if(all, [](const auto &one) { return one.first == one.second; });
  return all;
}

/// The parameters that a captured node is to have, if they are not those it was captured with.
Expected<std::optional<KernelLaunch>> launchOf(const Node &node, const std::vector<Buffer> &buffers,
                                               const CapturedStep &step, const LiftedGraph &captured) {
  const Expected<std::map<BufferIndex, BufferIndex>> renamed = renamedBy(node, buffers);
  if (!renamed)
    return tl::unexpected<Error>(renamed.error());
  if (renamed->empty())
    return std::nullopt;
  const auto position = static_cast<std::size_t>(node.captured);
  std::set<BufferIndex> found;
  std::optional<KernelLaunch> launch;
  for (const OperandWord &word : step.words[position]) { // kernels of the graph itself have some, nothing else does
    const auto to = renamed->find(word.buffer);
    if (to == renamed->end())
      continue;
    if (!launch)
      launch = captured.nodes[position].launches.front();
    const std::size_t at = launch->beginOf(word.parameter) + word.inParameter;
    std::uint64_t value = 0;
    std::memcpy(&value, launch->bytes.data() + at, sizeof value);
    value += buffers[to->second].address - buffers[word.buffer].address;
    std::memcpy(launch->bytes.data() + at, &value, sizeof value);
    found.insert(word.buffer);
  }
  for (const auto &[from, to] : *renamed)
    if (!found.contains(from))
      return fail(PUMPGRAPH_INTERNAL, "node {} \"{}\" is to have \"{}\" at another address, and has none to replace",
                  node.captured, node.name, buffers[from].name);
  return launch;
}

/// The buffer that an address leads into.
std::optional<BufferIndex> bufferAt(const std::vector<Buffer> &buffers, std::uint64_t address) {
  const auto found = std::find_if(buffers.begin(), buffers.end(), [&](const Buffer &buffer) {
    return address >= buffer.address && address - buffer.address < buffer.size;
  });
  return found == buffers.end() ? std::nullopt : std::optional(static_cast<BufferIndex>(found - buffers.begin()));
}

/// The copy that a memcpy node is, if one side is one of the `buffers`, and the other the pinned pool, or the same page
/// where it is hosted.
std::optional<Node> recogniseCopy(const LiftedNode &lifted, const std::vector<Buffer> &buffers,
                                  const PinnedPools &pools, const HostedChains &hosted) {
  if (!lifted.copy || lifted.copy->Height > 1 || lifted.copy->Depth > 1)
    return std::nullopt;
  const CUDA_MEMCPY3D &copy = *lifted.copy;
  const bool down = copy.dstMemoryType == CU_MEMORYTYPE_HOST && copy.srcMemoryType == CU_MEMORYTYPE_DEVICE;
  const bool up = copy.srcMemoryType == CU_MEMORYTYPE_HOST && copy.dstMemoryType == CU_MEMORYTYPE_DEVICE;
  if (down == up)
    return std::nullopt;
  const CUdeviceptr device = down ? copy.srcDevice : copy.dstDevice;
  const void *host = down ? copy.dstHost : copy.srcHost;
  const std::optional<BufferIndex> index = bufferAt(buffers, device);
  if (!index)
    return std::nullopt;
  Node node;
  node.kind = down ? NodeKind::CopyToHost : NodeKind::CopyToDevice;
  node.name = fmt::format("{} {}", down ? "evict" : "prefetch", buffers[*index].name);
  node.buffer = *index;
  node.range = {device - buffers[*index].address, copy.WidthInBytes};
  const BufferIndex there = hosted.at(*index, node.range.offset);
  if (there == noBuffer ? !pools.contains(host)
                        : reinterpret_cast<std::uintptr_t>(host) != buffers[there].address + node.range.offset)
    return std::nullopt;
  node.hostOffset = there == noBuffer ? pools.offsetOf(host) : 0;
  return node;
}

/// Nodes of one lane follow one another; between lanes there are relays.
enum class Lane { Captured, Up, Down };

Lane laneOf(const Node &node) {
  if (!isCopy(node.kind))
    return Lane::Captured;
  return movesUp(node.kind) ? Lane::Up : Lane::Down;
}

/// Makes the edges of the graph those of `lowered`. `handles`: its nodes, in the same order.
Status connect(GraphEditor &editor, const Description &lowered, const std::vector<CUgraphNode> &handles,
               const LiftedGraph &captured) {
  std::map<std::pair<CUgraphNode, CUgraphNode>, const LiftedEdge *> leftOut;
  for (const LiftedEdge &edge : captured.edges)
    leftOut.emplace(std::pair{captured.nodes[edge.from].handle, captured.nodes[edge.to].handle}, &edge);
  std::vector<Edge> crossing;
  for (const Edge &edge : lowered.edges) {
    const CUgraphNode from = handles[edge.from], to = handles[edge.to];
    const Node &first = lowered.nodes[edge.from], &second = lowered.nodes[edge.to];
    if (laneOf(first) != laneOf(second)) {
      crossing.push_back(edge);
      continue;
    }
    const auto known = leftOut.find({from, to});
    if (known == leftOut.end()) {
      PUMPGRAPH_TRY_WHILE(editor.addEdge(from, to), "\"{}\" -> \"{}\"", first.name, second.name);
      continue;
    }
    if (edge.kind == EdgeKind::Full && known->second->kind == EdgeKind::Programmatic)
      PUMPGRAPH_TRY_WHILE(editor.demote(from, to, known->second->data), "\"{}\" -> \"{}\"", first.name, second.name);
    leftOut.erase(known);
  }
  for (const auto &[nodes, edge] : leftOut)
    PUMPGRAPH_TRY(editor.removeEdge(nodes.first, nodes.second, edge->data));

  std::vector<CUgraphNode> relays(handles.size(), nullptr);
  for (const Edge &edge : crossing) {
    CUgraphNode &relay = relays[edge.from];
    const std::string &name = lowered.nodes[edge.from].name;
    if (!relay) {
      const Expected<CUgraphNode> added = editor.addEmpty();
      if (!added)
        return inContext(added.error(), fmt::format("after \"{}\"", name));
      relay = *added;
      PUMPGRAPH_TRY_WHILE(editor.addEdge(handles[edge.from], relay), "\"{}\" -> its relay", name);
    }
    PUMPGRAPH_TRY_WHILE(editor.addEdge(relay, handles[edge.to]), "\"{}\" -> \"{}\"", name, lowered.nodes[edge.to].name);
  }
  return {};
}

} // namespace

Status lowerGraph(GraphEditor &editor, const Description &lowered, const CapturedStep &step,
                  const LiftedGraph &captured, const PinnedPools &pools) {
  std::vector<CUgraphNode> handles;
  const HostedChains hosted(lowered.buffers);
  for (const Node &node : lowered.nodes) {
    if (node.captured != notCaptured) {
      const auto position = static_cast<std::size_t>(node.captured);
      handles.push_back(step.nodes[position]);
      const Expected<std::optional<KernelLaunch>> launch = launchOf(node, lowered.buffers, step, captured);
      if (!launch)
        return tl::unexpected<Error>(launch.error());
      if (*launch)
        PUMPGRAPH_TRY(editor.changeParameters(handles.back(), captured.nodes[position].launches.front(), **launch));
      continue;
    }
    if (!isCopy(node.kind))
      return fail(PUMPGRAPH_INTERNAL, "the lowered step has a node \"{}\" that is neither captured nor a copy",
                  node.name);
    const Expected<CUgraphNode> added = addCopy(editor, node, lowered, pools, hosted);
    if (!added)
      return inContext(added.error(), fmt::format("node \"{}\"", node.name));
    handles.push_back(*added);
  }

  return connect(editor, lowered, handles, captured);
}

Description withAnnotations(const Description &captured, const Description &lowered) {
  Description annotated = captured;
  for (const Node &node : lowered.nodes) {
    if (node.captured == notCaptured)
      continue;
    std::vector<Access> &accesses = annotated.nodes[static_cast<std::size_t>(node.captured)].accesses;
    accesses = node.accesses;
    for (Access &access : accesses)
      access.buffer = capturedBuffer(lowered.buffers, access.buffer);
  }
  return annotated;
}

Expected<RewrittenStep> describeRewritten(const LiftedGraph &lifted, const LiftedGraph &captured,
                                          const CapturedStep &step, const Description &lowered,
                                          const std::vector<BlockId> &blocks, const Residence &residence) {
  RewrittenStep rewritten;
  Description &description = rewritten.description;
  description.name = lowered.name;
  description.pageBytes = lowered.pageBytes;
  description.budgetBytes = lowered.budgetBytes;
  description.hostBytes = lowered.hostBytes;
  description.buffers = lowered.buffers;
  for (BufferIndex index = 0; index < description.buffers.size(); ++index)
    description.buffers[index].frames = residence.framesOf(blocks[index]);
  for (BufferIndex index = 0; index < step.description.buffers.size(); ++index)
    description.buffers[index].address = step.description.buffers[index].address;

  std::vector<const Node *> planned(step.nodes.size(), nullptr); ///< by captured position
  for (const Node &node : lowered.nodes)
    if (node.captured != notCaptured)
      planned[static_cast<std::size_t>(node.captured)] = &node;
  std::unordered_map<CUgraphNode, std::size_t> position;
  for (std::size_t i = 0; i < step.nodes.size(); ++i)
    position.emplace(step.nodes[i], i);
  const HostedChains hosted(description.buffers);
  constexpr NodeIndex relay = UINT32_MAX;
  std::vector<NodeIndex> indexOf;
  for (const LiftedNode &node : lifted.nodes) {
    const auto found = position.find(node.handle);
    if (found == position.end() && node.kind == NodeKind::Empty) {
      indexOf.push_back(relay);
      continue;
    }
    indexOf.push_back(static_cast<NodeIndex>(rewritten.nodes.size()));
    rewritten.nodes.push_back(node.handle);
    if (found == position.end()) {
      std::optional<Node> copy = recogniseCopy(node, description.buffers, residence.pool(), hosted);
      if (!copy)
        return fail(PUMPGRAPH_INTERNAL, "the rewritten graph has a node \"{}\" that nobody captured or added",
                    node.name);
      description.nodes.push_back(std::move(*copy));
      continue;
    }
    const LiftedNode &before = captured.nodes[found->second];
    Node &described = description.nodes.emplace_back(step.description.nodes[found->second]);
    std::optional<KernelLaunch> changed;
    if (const Node *as = planned[found->second]) {
      Expected<std::optional<KernelLaunch>> launch = launchOf(*as, description.buffers, step, captured);
      if (!launch)
        return tl::unexpected<Error>(launch.error());
      changed = std::move(*launch);
      described.accesses = as->accesses;
    }
    // Of a kernel, words are what its launch has, read once more.
    const bool isAsPlanned =
        changed ? node.spans == before.spans && node.launches == std::vector{*changed} : node.hasParametersOf(before);
    if (!isAsPlanned)
      return fail(PUMPGRAPH_INTERNAL, "node {} \"{}\" has other parameters after the rewrite than {}", found->second,
                  before.name, changed ? "planned" : "before");
  }
  std::vector<std::vector<NodeIndex>> relayed(lifted.nodes.size()); ///< by position of a relay: the nodes before it
  for (const LiftedEdge &edge : lifted.edges)
    if (indexOf[edge.to] == relay) {
      if (indexOf[edge.from] == relay || edge.kind != EdgeKind::Full)
        return fail(PUMPGRAPH_INTERNAL, "the rewritten graph has a relay that does not follow one node's completion");
      relayed[edge.to].push_back(indexOf[edge.from]);
    }
  for (const LiftedEdge &edge : lifted.edges) {
    if (indexOf[edge.to] == relay)
      continue;
    if (indexOf[edge.from] != relay) {
      description.edges.push_back({indexOf[edge.from], indexOf[edge.to], edge.kind});
      continue;
    }
    for (const NodeIndex before : relayed[edge.from])
      description.edges.push_back({before, indexOf[edge.to], edge.kind});
  }
  return rewritten;
}

} // namespace pumpgraph::runtime
