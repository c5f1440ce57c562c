// SPDX-License-Identifier: Apache-2.0
// A plan as JSON, for programs that check or draw it. docs/reference/report.md documents every key.
#include "passes/report/Json.h"
#include "passes/report/NodeName.h"
#include "passes/report/Summary.h"
#include "pumpgraph/graph/PrintableJson.h"
#include "pumpgraph/graph/Reliance.h"

#include <map>
#include <utility>

namespace pumpgraph {

static const char *modeName(std::uint8_t mode) {
  static constexpr const char *names[] = {"none", "read", "write", "readwrite"};
  return names[mode & modeReadWrite];
}

static const char *edgeName(EdgeKind kind) {
  return kind == EdgeKind::Full ? "full" : "programmatic";
}

static Json rangesToJson(const std::vector<Range> &ranges) {
  Json json = Json::array();
  for (const Range &range : ranges)
    json.push_back({{"offset", range.offset}, {"size", range.size}});
  return json;
}

static Json bufferToJson(const Buffer &buffer, BufferIndex index) {
  Json continues;
  if (buffer.continues != noBuffer)
    continues = buffer.continues;
  return {{"buffer", index},
          {"name", buffer.name},
          {"size", buffer.size},
          {"private", buffer.isPrivate},
          {"present", buffer.isPresent},
          {"renamable", buffer.isRenamable},
          {"live_in", buffer.liveIn},
          {"live_out", buffer.liveOut},
          {"frames", buffer.frames},
          {"resident", rangesToJson(buffer.resident)},
          {"mirrored", rangesToJson(buffer.mirrored)},
          {"hosted", rangesToJson(buffer.hosted)},
          {"continues", std::move(continues)}};
}

static Json positionOrNull(std::int32_t captured) {
  return captured == notCaptured ? Json(nullptr) : Json(captured);
}

/// A captured node or a repetition of one.
static Json workToJson(const Node &node, NodeIndex index) {
  Json accesses = Json::array();
  for (const Access &access : node.accesses) {
    accesses.push_back({{"buffer", access.buffer},
                        {"offset", access.range.offset},
                        {"size", access.range.size},
                        {"may", modeName(reliableMay(access))},
                        {"must", modeName(reliableMust(access))}});
    if (access.slowdown != 1)
      accesses.back()["slowdown"] = access.slowdown;
    if (access.isAside)
      accesses.back()["aside"] = true;
  }
  return {{"id", index},
          {"captured", positionOrNull(node.captured)},
          {"repeats", positionOrNull(node.repeats)},
          {"pure", node.isPure},
          {"kind", kindName(node.kind)},
          {"name", node.name},
          {"cost_us", node.costUs}, // NaN, an unknown cost, becomes null
          {"accesses", std::move(accesses)}};
}

/// The frames of the pages that a transfer covers.
static std::vector<std::int32_t> framesOf(const Description &description, const Node &transfer) {
  const std::vector<std::int32_t> &frames = description.buffers[transfer.buffer].frames;
  if (transfer.range.size == 0)
    return {};
  const std::size_t first = transfer.range.offset / description.pageBytes;
  const std::size_t end = (transfer.range.end() + description.pageBytes - 1) / description.pageBytes;
  if (end > frames.size())
    return {};
  return {frames.begin() + static_cast<std::ptrdiff_t>(first), frames.begin() + static_cast<std::ptrdiff_t>(end)};
}

static Json transferToJson(const Description &lowered, NodeIndex index) {
  const Node &node = lowered.nodes[index];
  return {{"id", index},
          {"direction", directionName(node)},
          {"buffer", node.buffer},
          {"offset", node.range.offset},
          {"size", node.range.size},
          {"host_offset", node.hostOffset},
          {"joined", node.joined},
          {"frames", framesOf(lowered, node)},
          {"after", Json::array()},
          {"before", Json::array()}};
}

using CapturedEdges = std::map<std::pair<NodeIndex, NodeIndex>, EdgeKind>;

/// Edges of the captured step in numbers of the lowered one: captured nodes keep their order.
static CapturedEdges capturedEdges(const Compiled &step) {
  std::vector<NodeIndex> loweredIndex;
  for (NodeIndex i = 0; i < step.lowered.nodes.size(); ++i)
    if (!isAdded(step.lowered.nodes[i].kind) && step.lowered.nodes[i].kind != NodeKind::Rematerialize)
      loweredIndex.push_back(i);
  CapturedEdges edges;
  for (const Edge &edge : step.captured.edges)
    if (edge.from < loweredIndex.size() && edge.to < loweredIndex.size())
      edges[{loweredIndex[edge.from], loweredIndex[edge.to]}] = edge.kind;
  return edges;
}

static Json edgesToJson(const Compiled &step, const CapturedEdges &captured, std::map<NodeIndex, Json> &transfers) {
  Json edges = Json::array();
  for (const Edge &edge : step.lowered.edges) {
    if (const auto transfer = transfers.find(edge.to); transfer != transfers.end())
      transfer->second["after"].push_back(edge.from);
    if (const auto transfer = transfers.find(edge.from); transfer != transfers.end())
      transfer->second["before"].push_back(edge.to);
    const auto original = captured.find({edge.from, edge.to});
    const char *origin = original == captured.end() ? "added" : original->second == edge.kind ? "captured" : "demoted";
    edges.push_back({{"from", edge.from}, {"to", edge.to}, {"kind", edgeName(edge.kind)}, {"origin", origin}});
  }
  return edges;
}

/// Captured edges that the plan leaves out, because a path implies them: the in-memory step has them.
static Json impliedEdgesToJson(const Compiled &step, CapturedEdges captured) {
  for (const Edge &edge : step.lowered.edges)
    captured.erase({edge.from, edge.to});
  Json edges = Json::array();
  for (const auto &[ends, kind] : captured)
    edges.push_back({{"from", ends.first}, {"to", ends.second}, {"kind", edgeName(kind)}});
  return edges;
}

std::string planToJson(const Compiled &step) {
  const Description &lowered = step.lowered;
  Json buffers = Json::array();
  for (BufferIndex i = 0; i < lowered.buffers.size(); ++i)
    buffers.push_back(bufferToJson(lowered.buffers[i], i));

  Json nodes = Json::array();
  std::map<NodeIndex, Json> transfers;
  for (NodeIndex i = 0; i < lowered.nodes.size(); ++i) {
    if (isAdded(lowered.nodes[i].kind))
      transfers.emplace(i, transferToJson(lowered, i));
    else
      nodes.push_back(workToJson(lowered.nodes[i], i));
  }
  const CapturedEdges captured = capturedEdges(step);
  Json edges = edgesToJson(step, captured, transfers);
  Json transferList = Json::array();
  for (auto &[index, transfer] : transfers)
    transferList.push_back(std::move(transfer));

  const Json json{{"format", "pumpgraph-plan"},
                  {"version", 1},
                  {"name", lowered.name},
                  {"checked", step.checked()},
                  {"page_bytes", lowered.pageBytes},
                  {"budget_bytes", lowered.budgetBytes},
                  {"host_bytes", lowered.hostBytes},
                  {"machine", machineToJson(step.machine)},
                  {"buffers", std::move(buffers)},
                  {"nodes", std::move(nodes)},
                  {"transfers", std::move(transferList)},
                  {"edges", std::move(edges)},
                  {"implied_edges", impliedEdgesToJson(step, captured)}};
  return dumpPrintable(json, -1) + "\n";
}

} // namespace pumpgraph
