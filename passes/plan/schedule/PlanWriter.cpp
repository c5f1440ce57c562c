// SPDX-License-Identifier: Apache-2.0
#include "passes/plan/schedule/PlanWriter.h"

#include "passes/analysis/Indices.h"
#include "pumpgraph/graph/Ranges.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

namespace pumpgraph {

namespace {

/// Writes one planned description.
class PlanWriter {
public:
  PlanWriter(const PlannerInput &input, const Draft &draft, const Schedule &schedule)
      : captured_(input.captured), numbers_(input.given.numbers), draft_(draft), schedule_(schedule) {}

  Description write(std::uint64_t budgetBytes) {
    planned_.name = captured_.name;
    planned_.stage = Stage::Planned;
    planned_.pageBytes = captured_.pageBytes;
    planned_.budgetBytes = budgetBytes;
    writeBuffers();
    gatherPredecessors();
    placeDiscards();
    writeNodes();
    writeEdges();
    return std::move(planned_);
  }

private:
  static constexpr std::uint32_t unplaced = UINT32_MAX;

  void writeBuffers() {
    planned_.buffers = captured_.buffers;
    for (BufferIndex b = 0; b < planned_.buffers.size(); ++b) {
      planned_.buffers[b].frames = draft_.frames[b];
      for (std::int32_t &frame : planned_.buffers[b].frames)
        if (frame != noFrame)
          frame = numbers_[static_cast<std::size_t>(frame)];
    }
    for (Buffer &buffer : planned_.buffers) {
      buffer.resident.clear();
      buffer.mirrored.clear();
    }
  }

  Lane laneOf(DraftNode node) const {
    if (node < draft_.capturedCount)
      return Lane::None;
    return draft_.transfers[node - draft_.capturedCount].kind == NodeKind::Prefetch ? Lane::Up : Lane::Down;
  }

  DraftNode addedCount() const { return static_cast<DraftNode>(draft_.transfers.size()); }

  /// Full predecessors of every node of the draft: captured edges first, then added ones that nothing else implies.
  void gatherPredecessors() {
    const std::size_t count = draft_.capturedCount + addedCount();
    std::vector<std::vector<DraftNode>> captured(count), added(count);
    for (const Edge &edge : captured_.edges)
      if (edge.kind == EdgeKind::Full)
        captured[edge.to].push_back(edge.from);
    for (const std::vector<DraftEdge> *edges : {&draft_.edges, &draft_.deferrals})
      for (const DraftEdge &edge : *edges)
        added[edge.after].push_back(edge.before);
    chainLanes(added);
    added_ = reduceEdges(captured, added);
  }

  void chainLanes(std::vector<std::vector<DraftNode>> &added) const {
    std::optional<DraftNode> lastUp, lastDown;
    for (DraftNode node : schedule_.order) {
      if (node < draft_.capturedCount)
        continue;
      std::optional<DraftNode> &last = laneOf(node) == Lane::Up ? lastUp : lastDown;
      if (last)
        added[node].push_back(*last);
      last = node;
    }
  }

  /// Keeps, of the added edges, those that no path of the others and of the captured ones implies.
  std::vector<std::vector<DraftNode>> reduceEdges(const std::vector<std::vector<DraftNode>> &captured,
                                                  std::vector<std::vector<DraftNode>> &added) const {
    std::vector<NodeIndex> positions(captured.size());
    for (NodeIndex i = 0; i < schedule_.order.size(); ++i)
      positions[schedule_.order[i]] = i;
    std::vector<std::uint32_t> counts(captured.size(), 0); // by position; of added edges all that may stay
    for (DraftNode node = 0; node < captured.size(); ++node) {
      for (DraftNode before : captured[node])
        ++counts[positions[before]];
      for (DraftNode before : added[node])
        ++counts[positions[before]];
    }
    Order order;
    std::vector<std::vector<DraftNode>> kept(captured.size());
    std::vector<NodeIndex> predecessors;
    for (DraftNode node : schedule_.order) {
      predecessors.clear();
      for (DraftNode before : captured[node])
        predecessors.push_back(positions[before]);
      std::vector<DraftNode> &candidates = added[node];
      std::sort(candidates.begin(), candidates.end(),
                [&](DraftNode a, DraftNode b) { return positions[a] > positions[b]; });
      for (DraftNode candidate : candidates) {
        const NodeIndex position = positions[candidate];
        const bool implied = std::any_of(predecessors.begin(), predecessors.end(), [&](NodeIndex p) {
          return p == position || order.completesBefore(position, p);
        });
        if (implied)
          continue;
        predecessors.push_back(position);
        kept[node].push_back(candidate);
      }
      order.append(predecessors, counts, static_cast<std::uint8_t>(laneOf(node)));
    }
    return kept;
  }

  /// Every discard goes right before the first node that must come after it.
  void placeDiscards() {
    std::vector<std::uint32_t> positions(draft_.capturedCount + addedCount());
    for (std::uint32_t i = 0; i < schedule_.order.size(); ++i)
      positions[schedule_.order[i]] = i;
    discardsBefore_.resize(schedule_.order.size());
    for (std::uint32_t d = 0; d < draft_.discards.size(); ++d) {
      std::uint32_t first = unplaced;
      for (DraftNode before : draft_.discards[d].before)
        first = std::min(first, positions[before]);
      // Nobody comes: then nothing has to be given up.
      if (first != unplaced)
        discardsBefore_[first].push_back(d);
    }
  }

  void writeNodes() {
    index_.assign(draft_.capturedCount + addedCount(), unplaced);
    last_.assign(index_.size(), unplaced);
    discardIndex_.assign(draft_.discards.size(), unplaced);
    for (std::uint32_t i = 0; i < schedule_.order.size(); ++i) {
      for (std::uint32_t d : discardsBefore_[i])
        discardIndex_[d] = addResidencyNode(NodeKind::Discard, draft_.discards[d].pages);
      const DraftNode node = schedule_.order[i];
      if (node < draft_.capturedCount) {
        index_[node] = last_[node] = static_cast<NodeIndex>(planned_.nodes.size());
        planned_.nodes.push_back(captured_.nodes[node]);
        continue;
      }
      const DraftTransfer &transfer = draft_.transfers[node - draft_.capturedCount];
      index_[node] = last_[node] = addResidencyNode(transfer.kind, transfer.pages);
      for (const PageRun &row : transfer.rows) {
        const NodeIndex joined = addResidencyNode(transfer.kind, row);
        planned_.nodes[joined].joined = true;
        planned_.edges.push_back({last_[node], joined, EdgeKind::Full});
        last_[node] = joined;
      }
    }
  }

  NodeIndex addResidencyNode(NodeKind kind, const PageRun &pages) {
    Node node;
    node.kind = kind;
    node.buffer = pages.buffer;
    node.range = {pages.firstPage * captured_.pageBytes, bytesOf(captured_, pages)};
    planned_.nodes.push_back(std::move(node));
    return static_cast<NodeIndex>(planned_.nodes.size() - 1);
  }

  void writeEdges() {
    for (const Edge &edge : captured_.edges)
      planned_.edges.push_back({index_[edge.from], index_[edge.to], edge.kind});
    for (DraftNode node = 0; node < added_.size(); ++node)
      for (DraftNode before : added_[node])
        planned_.edges.push_back({last_[before], index_[node], EdgeKind::Full});
    for (std::uint32_t d = 0; d < draft_.discards.size(); ++d) {
      if (discardIndex_[d] == unplaced)
        continue;
      for (DraftNode after : draft_.discards[d].after)
        planned_.edges.push_back({last_[after], discardIndex_[d], EdgeKind::Full});
      for (DraftNode before : draft_.discards[d].before)
        planned_.edges.push_back({discardIndex_[d], index_[before], EdgeKind::Full});
    }
    sortEdges(planned_.edges);
  }

  const Description &captured_;
  const std::vector<std::int32_t> &numbers_;
  const Draft &draft_;
  const Schedule &schedule_;
  Description planned_;
  std::vector<std::vector<DraftNode>> added_;              ///< by DraftNode
  std::vector<std::vector<std::uint32_t>> discardsBefore_; ///< by position in the schedule
  std::vector<NodeIndex> index_;                           ///< by DraftNode: its first row
  std::vector<NodeIndex> last_;                            ///< by DraftNode: its last row
  std::vector<NodeIndex> discardIndex_;
};

} // namespace

namespace {

/// Marks the pages of the pieces that are on the device at the boundary, neighbours joined.
void writeBoundary(const PlannerInput &input, const Draft &draft, Description &planned) {
  for (const PieceIndex index : indicesOf(draft.boundary)) {
    const BoundaryState state = draft.boundary[index];
    if (state == BoundaryState::Away)
      continue;
    const Piece &piece = input.timeline.piece(index);
    const Range range{piece.firstPage * planned.pageBytes, piece.bytes};
    append(planned.buffers[piece.buffer].resident, range);
    if (state == BoundaryState::Mirrored)
      append(planned.buffers[piece.buffer].mirrored, range);
  }
}

} // namespace

Description writePlan(const PlannerInput &input, const Draft &draft, const Schedule &schedule,
                      std::uint64_t budgetBytes) {
  Description planned = PlanWriter(input, draft, schedule).write(budgetBytes);
  writeBoundary(input, draft, planned);
  return planned;
}

} // namespace pumpgraph
