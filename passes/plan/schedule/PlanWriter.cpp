// SPDX-License-Identifier: Apache-2.0
#include "passes/plan/schedule/PlanWriter.h"

#include "passes/analysis/HostedAccess.h"
#include "pumpgraph/graph/CopyRows.h"
#include "pumpgraph/graph/Ranges.h"

#include <algorithm>
#include <cassert>
#include <deque>
#include <map>
#include <numeric>
#include <optional>
#include <span>
#include <tuple>
#include <utility>

namespace pumpgraph {

namespace {

std::uint64_t bytesOf(const Description &description, const PageRun &pages) {
  const std::uint64_t begin = pages.firstPage * description.pageBytes;
  const std::uint64_t end = begin + pages.pageCount * description.pageBytes;
  return std::min(end, description.buffers[pages.buffer].size) - begin;
}

std::uint64_t bytesOf(const Description &description, const DraftTransfer &transfer) {
  return bytesOf(description, transfer.pages) * (1 + transfer.rows.size());
}

/// By when each node is needed: the first captured node that waits for it, or the end of the step.
std::vector<std::uint32_t> urgencies(const Draft &draft) {
  const std::uint32_t count = draft.capturedCount + static_cast<std::uint32_t>(draft.transfers.size());
  std::vector<std::uint32_t> urgency(count, draft.capturedCount);
  for (DraftNode n = 0; n < draft.capturedCount; ++n)
    urgency[n] = n;
  // What waits for an added node was decided after it, so going backwards meets it with its urgency known.
  std::vector<DraftEdge> edges = draft.edges;
  std::sort(edges.begin(), edges.end(), [](const DraftEdge &a, const DraftEdge &b) { return a.before > b.before; });
  for (const DraftEdge &edge : edges)
    if (edge.before >= draft.capturedCount)
      urgency[edge.before] = std::min(urgency[edge.before], urgency[edge.after]);
  return urgency;
}

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
    // A programmatic edge between two nodes that must be ordered by completion becomes the full one.
    std::vector<Edge> &edges = planned_.edges;
    std::sort(edges.begin(), edges.end(), [](const Edge &a, const Edge &b) {
      return std::tuple(a.from, a.to, a.kind) < std::tuple(b.from, b.to, b.kind);
    });
    edges.erase(std::unique(edges.begin(), edges.end(),
                            [](const Edge &a, const Edge &b) { return a.from == b.from && a.to == b.to; }),
                edges.end());
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

std::vector<TaskGraph::Dependency> dependenciesOf(const PlannerInput &input, const Draft &draft) {
  std::vector<TaskGraph::Dependency> dependencies;
  dependencies.reserve(input.captured.edges.size() + draft.edges.size() + draft.deferrals.size());
  for (const Edge &edge : input.captured.edges)
    dependencies.push_back({edge.from, edge.to});
  for (const std::vector<DraftEdge> *edges : {&draft.edges, &draft.deferrals})
    for (const DraftEdge &edge : *edges)
      dependencies.push_back({edge.before, edge.after});
  return dependencies;
}

Schedule scheduleDraft(const PlannerInput &input, const Draft &draft) {
  std::vector<Task> tasks(draft.capturedCount + draft.transfers.size());
  const std::vector<Traffic> hosted = hostedTraffic(input.captured).loadByNode;
  for (NodeIndex n = 0; n < draft.capturedCount; ++n) {
    tasks[n].costUs = costUsOf(input.captured.nodes[n]);
    if (hosted[n].total() > 0)
      tasks[n].hosted = {hosted[n]};
  }
  for (std::size_t t = 0; t < draft.transfers.size(); ++t) {
    Task &task = tasks[draft.capturedCount + t];
    task.lane = draft.transfers[t].kind == NodeKind::Prefetch ? Lane::Up : Lane::Down;
    task.bytes = bytesOf(input.captured, draft.transfers[t]);
    task.overheadUs = overheadUs(input.machine, task.lane == Lane::Down);
    // What it displaces after a node leaves for nothing, or it would come after that one's eviction.
    task.delayUs = input.machine.requestUs + (task.lane == Lane::Up ? emptyUs(input.machine, task.bytes) : 0);
  }
  const std::vector<TaskGraph::Dependency> dependencies = dependenciesOf(input, draft);
  ReplayTimes times = replayByUrgency(tasks, TaskGraph(tasks.size(), dependencies), input.machine, urgencies(draft),
                                      draft.capturedCount);
  std::vector<double> readyUs(tasks.size(), 0);
  for (const TaskGraph::Dependency &dependency : dependencies)
    readyUs[dependency.after] = std::max(readyUs[dependency.after], times.endUs[dependency.before]);
  return {std::move(times.startOrder), times.totalUs, std::move(times.startUs), std::move(times.endUs),
          std::move(readyUs)};
}

namespace {

/// By DraftNode: itself.
std::vector<DraftNode> sameIndex(const Draft &draft) {
  std::vector<DraftNode> index(draft.capturedCount + draft.transfers.size());
  std::iota(index.begin(), index.end(), 0);
  return index;
}

/// What comes of a draft's nodes, by DraftNode, wherever it names them.
void rename(Draft &draft, const std::vector<DraftNode> &index) {
  for (std::vector<DraftEdge> *edges : {&draft.edges, &draft.deferrals})
    for (DraftEdge &edge : *edges)
      edge = {index[edge.before], index[edge.after]};
  for (DraftDiscard &discard : draft.discards)
    for (std::vector<DraftNode> *nodes : {&discard.after, &discard.before})
      for (DraftNode &node : *nodes)
        node = index[node];
}

/// Transfers of one lane that later ones may still join, by the pages at either end.
class OpenRuns {
public:
  struct Run {
    DraftNode first = 0;        ///< its first part
    DraftNode joined = 0;       ///< what it has become
    std::uint32_t position = 0; ///< on the lane, of the last part
  };

  void open(const PageRun &pages, const Run &run) {
    byBegin_[{pages.buffer, pages.firstPage}] = run;
    byEnd_[{pages.buffer, pages.firstPage + pages.pageCount}] = run;
  }
  /// A run that the pages continue at its end or before its begin.
  std::optional<Run> before(const PageRun &pages) const { return find(byEnd_, {pages.buffer, pages.firstPage}); }
  std::optional<Run> after(const PageRun &pages) const {
    return find(byBegin_, {pages.buffer, pages.firstPage + pages.pageCount});
  }
  void close(const PageRun &pages) {
    byBegin_.erase({pages.buffer, pages.firstPage});
    byEnd_.erase({pages.buffer, pages.firstPage + pages.pageCount});
  }

private:
  using Place = std::pair<BufferIndex, std::uint32_t>;
  static std::optional<Run> find(const std::map<Place, Run> &runs, const Place &place) {
    const auto found = runs.find(place);
    return found == runs.end() ? std::nullopt : std::optional(found->second);
  }
  std::map<Place, Run> byBegin_, byEnd_;
};

} // namespace

// All that a joined transfer waits for is over when its first part starts, and all that waits for it starts later. So
// time orders joined transfers as it ordered their first parts: no cycle can come of it, and their numbers may follow
// it.
Draft joinTransfers(const Draft &draft, const Schedule &schedule, const JoinLimits &limits) {
  Draft joined = draft;
  joined.transfers.clear();
  std::vector<DraftNode> index = sameIndex(draft);
  OpenRuns lanes[2];
  std::uint32_t positions[2] = {0, 0};
  for (const DraftNode node : schedule.order) {
    if (node < draft.capturedCount)
      continue;
    const DraftTransfer &transfer = draft.transfers[node - draft.capturedCount];
    OpenRuns &lane = lanes[transfer.kind == NodeKind::Prefetch];
    const std::uint32_t position = positions[transfer.kind == NodeKind::Prefetch]++;
    const auto mayJoin = [&](const std::optional<OpenRuns::Run> &run) {
      return run && position - run->position <= limits.reach + 1 &&
             schedule.readyUs[node] <= schedule.startUs[run->first] &&
             joined.transfers[run->joined - draft.capturedCount].pages.pageCount + transfer.pages.pageCount <=
                 limits.mostPages;
    };
    std::optional<OpenRuns::Run> run = lane.before(transfer.pages);
    if (!mayJoin(run))
      run = lane.after(transfer.pages);
    if (!mayJoin(run)) {
      run = {node, draft.capturedCount + static_cast<DraftNode>(joined.transfers.size()), position};
      joined.transfers.push_back(transfer);
    } else {
      PageRun &pages = joined.transfers[run->joined - draft.capturedCount].pages;
      lane.close(pages);
      pages.firstPage = std::min(pages.firstPage, transfer.pages.firstPage);
      pages.pageCount += transfer.pages.pageCount;
      run->position = position;
    }
    index[node] = run->joined;
    lane.open(joined.transfers[run->joined - draft.capturedCount].pages, *run);
  }
  rename(joined, index);
  return joined;
}

namespace {

/// Transfers of one lane that later ones may become rows of: the last few.
class OpenCopies {
public:
  struct Copy {
    DraftNode first = 0;  ///< its first row in the draft
    DraftNode joined = 0; ///< what it has become
    std::uint64_t rowBytes = 0;
    std::size_t rows = 1;
  };

  void open(const Copy &copy, const RowLimits &limits) {
    copies_.push_back(copy);
    if (copies_.size() > limits.reach)
      copies_.pop_front();
  }
  /// The last one that can take such a row, which is ready then.
  Copy *find(std::uint64_t rowBytes, double readyUs, const Schedule &schedule, const RowLimits &limits) {
    const auto found = std::find_if(copies_.rbegin(), copies_.rend(), [&](const Copy &copy) {
      return copy.rowBytes == rowBytes && copy.rows < mostRows && (copy.rows + 1) * rowBytes <= limits.mostBytes &&
             readyUs <= schedule.startUs[copy.first];
    });
    return found == copies_.rend() ? nullptr : &*found;
  }

private:
  std::deque<Copy> copies_;
};

} // namespace

// As for joined transfers: all that a row waits for is over when the first one starts.
Draft joinRows(const Description &captured, const Draft &draft, const Schedule &schedule, const RowLimits &limits) {
  Draft joined = draft;
  joined.transfers.clear();
  std::vector<DraftNode> index = sameIndex(draft);
  OpenCopies lanes[2];
  for (const DraftNode node : schedule.order) {
    if (node < draft.capturedCount)
      continue;
    const DraftTransfer &transfer = draft.transfers[node - draft.capturedCount];
    OpenCopies &lane = lanes[transfer.kind == NodeKind::Prefetch];
    const std::uint64_t bytes = bytesOf(captured, transfer.pages);
    if (OpenCopies::Copy *copy = lane.find(bytes, schedule.readyUs[node], schedule, limits)) {
      joined.transfers[copy->joined - draft.capturedCount].rows.push_back(transfer.pages);
      ++copy->rows;
      index[node] = copy->joined;
      continue;
    }
    index[node] = draft.capturedCount + static_cast<DraftNode>(joined.transfers.size());
    joined.transfers.push_back(transfer);
    lane.open({node, index[node], bytes, 1}, limits);
  }
  rename(joined, index);
  return joined;
}

namespace {

/// Marks the pages of the pieces that are on the device at the boundary, neighbours joined.
void writeBoundary(const PlannerInput &input, const Draft &draft, Description &planned) {
  for (std::size_t i = 0; i < draft.boundary.size(); ++i) {
    const BoundaryState state = draft.boundary[static_cast<PieceIndex>(i)];
    if (state == BoundaryState::Away)
      continue;
    const Piece &piece = input.timeline.piece(static_cast<PieceIndex>(i));
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
