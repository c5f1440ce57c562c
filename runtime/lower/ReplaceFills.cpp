// SPDX-License-Identifier: Apache-2.0
#include "runtime/lower/ReplaceFills.h"

#include <algorithm>
#include <vector>

namespace pumpgraph::runtime {
namespace {

/// The memset node at `position` becomes a kernel with the same `edges`, which are all that it has.
Status replaceFill(GraphEditor &editor, const FillKernel &kernel, const CUDA_MEMSET_NODE_PARAMS &fill,
                   std::uint32_t position, const std::vector<std::size_t> &edges, LiftedGraph &lifted) {
  const CUgraphNode before = lifted.nodes[position].handle;
  const Expected<CUgraphNode> node = editor.addKernel(FillLaunch(kernel, fill).parameters());
  if (!node)
    return tl::unexpected<Error>(node.error());
  for (const std::size_t index : edges) {
    const LiftedEdge &edge = lifted.edges[index];
    const CUgraphNode from = lifted.nodes[edge.from].handle, to = lifted.nodes[edge.to].handle;
    PUMPGRAPH_TRY(editor.removeEdge(from, to, edge.data));
    PUMPGRAPH_TRY(editor.addEdge(edge.from == position ? *node : from, edge.to == position ? *node : to));
  }
  PUMPGRAPH_TRY(editor.removeFill(before, fill));
  lifted.nodes[position].handle = *node;
  return {};
}

} // namespace

bool hasBranches(const LiftedGraph &graph) {
  // Where all nodes are ordered, each waits for the one before it by an edge: there is nothing else to lead a path
  // over.
  std::vector<bool> follows(graph.nodes.size(), false);
  for (const LiftedEdge &edge : graph.edges)
    if (edge.from + 1 == edge.to)
      follows[edge.to] = true;
  return std::count(follows.begin(), follows.end(), false) > 1;
}

Status replaceFills(GraphEditor &editor, const Driver &driver, const FillKernel &kernel, const AddressSpace &addresses,
                    LiftedGraph &lifted) {
  std::vector<std::vector<std::size_t>> edgesOf(lifted.nodes.size());
  for (std::size_t edge = 0; edge < lifted.edges.size(); ++edge)
    for (const std::uint32_t end : {lifted.edges[edge].from, lifted.edges[edge].to})
      edgesOf[end].push_back(edge);
  for (std::uint32_t position = 0; position < lifted.nodes.size(); ++position) {
    if (lifted.nodes[position].kind != NodeKind::Memset)
      continue;
    CUDA_MEMSET_NODE_PARAMS fill{};
    PUMPGRAPH_TRY(driver.graphMemsetNodeGetParams(lifted.nodes[position].handle, &fill));
    if (addresses.contains(fill.dst))
      PUMPGRAPH_TRY_WHILE(replaceFill(editor, kernel, fill, position, edgesOf[position], lifted),
                          "replacing node {}, a fill of {}", position, bytesText(fill.width * fill.elementSize));
  }
  return {};
}

bool hasHostedOperand(const Description &description, const Node &node) {
  return std::any_of(node.accesses.begin(), node.accesses.end(), [&](const Access &access) {
    return overlaps(description.buffers[access.buffer].hosted, access.range);
  });
}

Status checkFills(const Driver &driver, const std::vector<CUgraphNode> &handles, const Description &lowered) {
  for (const Node &node : lowered.nodes) {
    const std::int32_t computed = computedNode(node);
    if (computed == notCaptured || !hasHostedOperand(lowered, node))
      continue;
    CUgraphNodeType type{};
    PUMPGRAPH_TRY(driver.graphNodeGetType(handles[static_cast<std::size_t>(computed)], &type));
    if (type == CU_GRAPH_NODE_TYPE_MEMSET)
      return fail(PUMPGRAPH_UNPLANNABLE, "operands of node {}, a fill, would be in host memory", computed);
  }
  return {};
}

} // namespace pumpgraph::runtime
