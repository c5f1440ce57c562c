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

/// A node for a transfer that joins no other.
DraftNode add(Draft &joined, const DraftTransfer &transfer) {
  joined.transfers.push_back(transfer);
  return joined.capturedCount + static_cast<DraftNode>(joined.transfers.size() - 1);
}

/// The draft with its transfers taken in order by one `Lane` for each direction, which begins as `lane`:
/// `take(node, transfer, joined)` returns the node that the transfer belongs to.
///
/// All that a joined transfer waits for is over when its first part starts, and all that waits for it starts later. So
/// time orders joined transfers as it ordered their first parts: no cycle can come of it, and their numbers may follow
/// it.
template <typename Lane> Draft joinOnLanes(const Draft &draft, const Schedule &schedule, const Lane &lane) {
  Draft joined = draft;
  joined.transfers.clear();
  std::vector<DraftNode> index(draft.capturedCount + draft.transfers.size());
  std::iota(index.begin(), index.end(), 0);
  Lane lanes[2] = {lane, lane};
  for (const DraftNode node : schedule.order) {
    if (node < draft.capturedCount)
      continue;
    const DraftTransfer &transfer = draft.transfers[node - draft.capturedCount];
    index[node] = lanes[transfer.kind == NodeKind::Prefetch].take(node, transfer, joined);
  }
  rename(joined, index);
  return joined;
}

/// Transfers of one lane that later ones may still join, by the pages at either end.
class OpenRuns {
public:
  OpenRuns(const Schedule &schedule, const JoinLimits &limits) : schedule_(schedule), limits_(limits) {}

  DraftNode take(DraftNode node, const DraftTransfer &transfer, Draft &joined) {
    const auto pagesOf = [&](const Run &run) -> PageRun & {
      return joined.transfers[run.joined - joined.capturedCount].pages;
    };
    const auto mayJoin = [&](const std::optional<Run> &run) {
      return run && position_ - run->position <= limits_.reach + 1 &&
             schedule_.readyUs[node] <= schedule_.startUs[run->first] &&
             pagesOf(*run).pageCount + transfer.pages.pageCount <= limits_.mostPages;
    };
    std::optional<Run> run = find(byEnd_, {transfer.pages.buffer, transfer.pages.firstPage});
    if (!mayJoin(run))
      run = find(byBegin_, {transfer.pages.buffer, transfer.pages.firstPage + transfer.pages.pageCount});
    if (!mayJoin(run)) {
      run = {node, add(joined, transfer), 0};
    } else {
      PageRun &pages = pagesOf(*run);
      byBegin_.erase({pages.buffer, pages.firstPage});
      byEnd_.erase({pages.buffer, pages.firstPage + pages.pageCount});
      pages.firstPage = std::min(pages.firstPage, transfer.pages.firstPage);
      pages.pageCount += transfer.pages.pageCount;
    }
    run->position = position_++;
    const PageRun &pages = pagesOf(*run);
    byBegin_[{pages.buffer, pages.firstPage}] = *run;
    byEnd_[{pages.buffer, pages.firstPage + pages.pageCount}] = *run;
    return run->joined;
  }

private:
  struct Run {
    DraftNode first = 0;        ///< its first part
    DraftNode joined = 0;       ///< what it has become
    std::uint32_t position = 0; ///< on the lane, of the last part
  };
  using Runs = std::map<std::pair<BufferIndex, std::uint32_t>, Run>; ///< by buffer and page

  static std::optional<Run> find(const Runs &runs, const Runs::key_type &place) {
    const auto found = runs.find(place);
    return found == runs.end() ? std::nullopt : std::optional(found->second);
  }

  const Schedule &schedule_;
  const JoinLimits &limits_;
  Runs byBegin_, byEnd_;
  std::uint32_t position_ = 0;
};

/// The last few transfers of one lane, which later ones may become rows of.
class OpenCopies {
public:
  OpenCopies(const Description &captured, const Schedule &schedule, const RowLimits &limits)
      : captured_(captured), schedule_(schedule), limits_(limits) {}

  DraftNode take(DraftNode node, const DraftTransfer &transfer, Draft &joined) {
    const std::uint64_t bytes = bytesOf(captured_, transfer.pages);
    const auto copy = std::find_if(copies_.rbegin(), copies_.rend(), [&](const Copy &open) {
      return open.rowBytes == bytes && open.rows < mostRows && (open.rows + 1) * bytes <= limits_.mostBytes &&
             schedule_.readyUs[node] <= schedule_.startUs[open.first];
    });
    if (copy != copies_.rend()) {
      joined.transfers[copy->joined - joined.capturedCount].rows.push_back(transfer.pages);
      ++copy->rows;
      return copy->joined;
    }
    const DraftNode added = add(joined, transfer);
    copies_.push_back({node, added, bytes, 1});
    if (copies_.size() > limits_.reach)
      copies_.pop_front();
    return added;
  }

private:
  struct Copy {
    DraftNode first = 0;  ///< its first row in the draft
    DraftNode joined = 0; ///< what it has become
    std::uint64_t rowBytes = 0;
    std::size_t rows = 1;
  };

  const Description &captured_;
  const Schedule &schedule_;
  const RowLimits &limits_;
  std::deque<Copy> copies_;
};

} // namespace

Draft joinTransfers(const Draft &draft, const Schedule &schedule, const JoinLimits &limits) {
  return joinOnLanes(draft, schedule, OpenRuns(schedule, limits));
}

Draft joinRows(const Description &captured, const Draft &draft, const Schedule &schedule, const RowLimits &limits) {
  return joinOnLanes(draft, schedule, OpenCopies(captured, schedule, limits));
}

} // namespace pumpgraph
