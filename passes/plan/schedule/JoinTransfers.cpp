// SPDX-License-Identifier: Apache-2.0
#include "passes/plan/schedule/JoinTransfers.h"

#include "pumpgraph/graph/CopyRows.h"

#include <algorithm>
#include <deque>
#include <map>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

namespace pumpgraph {

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

} // namespace pumpgraph
