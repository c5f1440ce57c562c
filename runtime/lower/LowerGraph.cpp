// SPDX-License-Identifier: Apache-2.0
#include "runtime/lower/LowerGraph.h"

#include <algorithm>
#include <map>
#include <unordered_map>

namespace pumpgraph::runtime {
namespace {

/// Adds one lowered copy.
Expected<CUgraphNode> addCopy(GraphEditor &editor, const Node &copy, const Description &lowered,
                              const PinnedPool &pool) {
  const CUdeviceptr device = lowered.buffers[copy.buffer].address + copy.range.offset;
  if (copy.hostOffset > pool.bytes() || copy.range.size > pool.bytes() - copy.hostOffset)
    return fail(PUMPGRAPH_INTERNAL, "copy \"{}\" of {} at {} lies outside the pinned pool of {}", copy.name,
                bytesText(copy.range.size), copy.hostOffset, bytesText(pool.bytes()));
  char *host = pool.at(copy.hostOffset);
  return movesDown(copy.kind) ? editor.addCopyToHost(host, device, copy.range.size)
                              : editor.addCopyToDevice(device, host, copy.range.size);
}

/// The copy that a memcpy node is, if one side is the pinned pool and the other one of the step's buffers.
std::optional<Node> recogniseCopy(const LiftedNode &lifted, const CapturedStep &step, const PinnedPool &pool) {
  if (!lifted.copy || lifted.copy->Height > 1 || lifted.copy->Depth > 1)
    return std::nullopt;
  const CUDA_MEMCPY3D &copy = *lifted.copy;
  const bool down = copy.dstMemoryType == CU_MEMORYTYPE_HOST && pool.contains(copy.dstHost);
  const bool up = copy.srcMemoryType == CU_MEMORYTYPE_HOST && pool.contains(copy.srcHost);
  if (down == up)
    return std::nullopt;
  const CUdeviceptr device = down ? copy.srcDevice : copy.dstDevice;
  const void *host = down ? copy.dstHost : copy.srcHost;
  for (BufferIndex index = 0; index < step.description.buffers.size(); ++index) {
    const Buffer &buffer = step.description.buffers[index];
    if (device < buffer.address || device - buffer.address >= buffer.size)
      continue;
    Node node;
    node.kind = down ? NodeKind::CopyToHost : NodeKind::CopyToDevice;
    node.name = fmt::format("{} {}", down ? "evict" : "prefetch", buffer.name);
    node.buffer = index;
    node.range = {device - buffer.address, copy.WidthInBytes};
    node.hostOffset = pool.offsetOf(host);
    return node;
  }
  return std::nullopt;
}

} // namespace

Status lowerGraph(GraphEditor &editor, const Description &lowered, const CapturedStep &step,
                  const LiftedGraph &captured, const PinnedPool &pool) {
  std::vector<CUgraphNode> handles;
  for (const Node &node : lowered.nodes) {
    if (node.captured != notCaptured) {
      handles.push_back(step.nodes[static_cast<std::size_t>(node.captured)]);
      continue;
    }
    if (!isCopy(node.kind))
      return fail(PUMPGRAPH_INTERNAL, "the lowered step has a node \"{}\" that is neither captured nor a copy",
                  node.name);
    const Expected<CUgraphNode> added = addCopy(editor, node, lowered, pool);
    if (!added)
      return inContext(added.error(), fmt::format("node \"{}\"", node.name));
    handles.push_back(*added);
  }

  std::map<std::pair<CUgraphNode, CUgraphNode>, const LiftedEdge *> existing;
  for (const LiftedEdge &edge : captured.edges)
    existing.emplace(std::pair{captured.nodes[edge.from].handle, captured.nodes[edge.to].handle}, &edge);
  for (const Edge &edge : lowered.edges) {
    const CUgraphNode from = handles[edge.from], to = handles[edge.to];
    const auto known = existing.find({from, to});
    if (known == existing.end()) {
      PUMPGRAPH_TRY_WHILE(editor.addEdge(from, to), "\"{}\" -> \"{}\"", lowered.nodes[edge.from].name,
                          lowered.nodes[edge.to].name);
      continue;
    }
    if (edge.kind == EdgeKind::Full && known->second->kind == EdgeKind::Programmatic)
      PUMPGRAPH_TRY_WHILE(editor.demote(from, to, known->second->data), "\"{}\" -> \"{}\"",
                          lowered.nodes[edge.from].name, lowered.nodes[edge.to].name);
  }
  return {};
}

Description withAnnotations(const Description &captured, const Description &lowered) {
  Description annotated = captured;
  for (const Node &node : lowered.nodes)
    if (node.captured != notCaptured)
      annotated.nodes[static_cast<std::size_t>(node.captured)].accesses = node.accesses;
  return annotated;
}

Expected<RewrittenStep> describeRewritten(const LiftedGraph &lifted, const LiftedGraph &captured,
                                          const CapturedStep &step, const Description &lowered,
                                          const Residence &residence) {
  RewrittenStep rewritten;
  Description &description = rewritten.description;
  description.name = lowered.name;
  description.pageBytes = lowered.pageBytes;
  description.budgetBytes = lowered.budgetBytes;
  description.hostBytes = lowered.hostBytes;
  description.buffers = lowered.buffers;
  for (BufferIndex index = 0; index < description.buffers.size(); ++index)
    description.buffers[index].frames = residence.framesOf(index);

  const Description annotated = withAnnotations(step.description, lowered);
  std::unordered_map<CUgraphNode, std::size_t> position;
  for (std::size_t i = 0; i < step.nodes.size(); ++i)
    position.emplace(step.nodes[i], i);
  for (const LiftedNode &node : lifted.nodes) {
    rewritten.nodes.push_back(node.handle);
    const auto found = position.find(node.handle);
    if (found == position.end()) {
      std::optional<Node> copy = recogniseCopy(node, step, residence.pool());
      if (!copy)
        return fail(PUMPGRAPH_INTERNAL, "the rewritten graph has a node \"{}\" that nobody captured or added",
                    node.name);
      description.nodes.push_back(std::move(*copy));
      continue;
    }
    const LiftedNode &before = captured.nodes[found->second];
    if (node.words != before.words || node.spans != before.spans)
      return fail(PUMPGRAPH_INTERNAL, "node {} \"{}\" has other parameters after the rewrite than before",
                  found->second, before.name);
    description.nodes.push_back(annotated.nodes[found->second]);
  }
  for (const LiftedEdge &edge : lifted.edges)
    description.edges.push_back({edge.from, edge.to, edge.kind});
  return rewritten;
}

} // namespace pumpgraph::runtime
