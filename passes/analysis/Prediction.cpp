// SPDX-License-Identifier: Apache-2.0
#include "passes/analysis/Prediction.h"

#include "passes/analysis/HostedAccess.h"
#include "passes/analysis/ReplayModel.h"
#include "passes/analysis/StayingPages.h"
#include "passes/analysis/Timeline.h"

#include <algorithm>
#include <cassert>
#include <limits>
#include <optional>
#include <utility>

namespace pumpgraph {

namespace {

bool isTransfer(const Node &node) {
  return movesUp(node.kind) || movesDown(node.kind);
}
bool isCaptured(const Node &node) {
  return !isResidency(node.kind) && !isCopy(node.kind);
}

TaskGraph graphOf(const Description &description) {
  std::vector<TaskGraph::Dependency> dependencies;
  dependencies.reserve(description.edges.size());
  for (const Edge &edge : description.edges)
    dependencies.push_back({edge.from, edge.to});
  return TaskGraph(description.nodes.size(), dependencies);
}

/// The predecessor that ends last, and when the last captured one ends.
struct Arrivals {
  std::optional<NodeIndex> lastAdded;
  double addedUs = 0;
  double capturedUs = 0;
};

std::vector<Arrivals> arrivalsOf(const Description &description, const std::vector<NodeTimes> &times) {
  std::vector<Arrivals> arrivals(description.nodes.size());
  for (const Edge &edge : description.edges) {
    Arrivals &arrival = arrivals[edge.to];
    const double endUs = times[edge.from].endUs;
    if (isCaptured(description.nodes[edge.from])) {
      arrival.capturedUs = std::max(arrival.capturedUs, endUs);
      continue;
    }
    if (!arrival.lastAdded || endUs > arrival.addedUs) {
      arrival.lastAdded = edge.from;
      arrival.addedUs = endUs;
    }
  }
  return arrivals;
}

std::vector<Stall> stallsOf(const Description &description, const std::vector<NodeTimes> &times) {
  constexpr double noticeableUs = 1e-3;
  const std::vector<Arrivals> arrivals = arrivalsOf(description, times);
  std::vector<Stall> stalls;
  for (NodeIndex n = 0; n < description.nodes.size(); ++n) {
    const Arrivals &arrival = arrivals[n];
    if (!isCaptured(description.nodes[n]) || !arrival.lastAdded || arrival.addedUs <= arrival.capturedUs + noticeableUs)
      continue;
    // A discard takes no time: the wait is for what it waits for.
    NodeIndex cause = *arrival.lastAdded;
    while (!isTransfer(description.nodes[cause]) && arrivals[cause].lastAdded &&
           arrivals[cause].addedUs >= arrivals[cause].capturedUs)
      cause = *arrivals[cause].lastAdded;
    stalls.push_back(
        {n, cause, description.nodes[cause].buffer, arrival.capturedUs, arrival.addedUs - arrival.capturedUs});
  }
  std::stable_sort(stalls.begin(), stalls.end(),
                   [](const Stall &a, const Stall &b) { return a.durationUs > b.durationUs; });
  return stalls;
}

/// How full the device is over time. A stay of a page begins with its first event or a prefetch and ends with its last
/// event before the next prefetch; at the step boundary the resident pages stay. A frame is in use while any of its
/// pages stays. A page that goes on in its frame is one page: its first buffer's.
class Occupancy {
public:
  Occupancy(const Description &description, const std::vector<NodeTimes> &times)
      : description_(description), times_(times) {}

  std::vector<MemoryPoint> points() {
    std::uint64_t exclusiveBytes = 0;
    collectVisits();
    for (BufferIndex b = 0; b < description_.buffers.size(); ++b) {
      if (!description_.buffers[b].isPrivate)
        exclusiveBytes += description_.pageCount(b) * description_.pageBytes;
      else
        addBuffer(b);
    }
    uniteStays();
    return sum(exclusiveBytes);
  }

private:
  /// The end of a stay that goes on into the next replay.
  static constexpr double forEver = std::numeric_limits<double>::infinity();

  /// An event on pages [firstPage, lastPage) of a buffer.
  struct Visit {
    std::uint64_t firstPage, lastPage;
    NodeIndex node;
  };
  /// Neighbouring frames that are in use for a while.
  struct Stay {
    std::int32_t firstFrame, lastFrame; ///< [first, last)
    double beginUs, endUs;
  };
  struct Change {
    double atUs;
    std::int64_t pages;
  };

  void collectVisits() {
    visits_.resize(description_.buffers.size());
    for (NodeIndex n = 0; n < description_.nodes.size(); ++n) {
      const Node &node = description_.nodes[n];
      if (isTransfer(node))
        addVisit(node.buffer, node.range, n);
      for (const Access &access : node.accesses)

        addVisit(access.buffer, access.range, n);
    }
  }

  void addVisit(BufferIndex buffer, const Range &range, NodeIndex node) {
    if (range.size == 0)
      return;
    const std::uint64_t page = description_.pageBytes;
    const std::uint64_t lastPage = (range.end() + page - 1) / page;
    for (std::uint64_t first = range.offset / page, last; first < lastPage; first = last) {
      const BufferIndex address = firstAddress(description_, buffer, first);
      last = description_.buffers[buffer].continues == noBuffer ? lastPage : first + 1;
      while (last < lastPage && firstAddress(description_, buffer, last) == address)
        ++last;
      visits_[address].push_back({first, last, node});
    }
  }

  bool isResident(const Buffer &buffer, std::uint64_t page) const {
    const std::uint64_t offset = page * description_.pageBytes;
    return std::any_of(buffer.resident.begin(), buffer.resident.end(),
                       [&](const Range &range) { return range.offset <= offset && offset < range.end(); });
  }

  /// Cuts the buffer where its visits and its resident ranges begin and end, and adds each run's stays.
  void addBuffer(BufferIndex b) {
    const Buffer &buffer = description_.buffers[b];
    const std::uint64_t page = description_.pageBytes;
    std::vector<std::uint64_t> cuts{0, description_.pageCount(b)};
    for (const Visit &visit : visits_[b])
      cuts.insert(cuts.end(), {visit.firstPage, visit.lastPage});
    for (const Range &range : buffer.resident)
      cuts.insert(cuts.end(), {range.offset / page, (range.end() + page - 1) / page});
    std::sort(cuts.begin(), cuts.end());
    cuts.erase(std::unique(cuts.begin(), cuts.end()), cuts.end());
    std::vector<std::vector<NodeIndex>> nodes(cuts.size());
    for (const Visit &visit : visits_[b]) {
      auto cut = static_cast<std::size_t>(std::lower_bound(cuts.begin(), cuts.end(), visit.firstPage) - cuts.begin());
      for (; cuts[cut] < visit.lastPage; ++cut)
        nodes[cut].push_back(visit.node);
    }
    for (std::size_t i = 0; i + 1 < cuts.size(); ++i)
      addRun(buffer, cuts[i], cuts[i + 1], nodes[i]);
  }

  void addRun(const Buffer &buffer, std::uint64_t firstPage, std::uint64_t lastPage,
              const std::vector<NodeIndex> &nodes) {
    const bool isPlanned = !buffer.frames.empty(); // before, nothing ever leaves
    const bool fromStart = buffer.liveIn && (!isPlanned || isResident(buffer, firstPage));
    const bool toEnd = isPlanned ? isResident(buffer, firstPage) : buffer.liveIn || buffer.liveOut;
    bool open = fromStart;
    double beginUs = 0, endUs = 0;
    for (NodeIndex n : nodes) {
      if (open && movesUp(description_.nodes[n].kind)) {
        addStay(buffer, firstPage, lastPage, beginUs, endUs);
        open = false;
      }
      beginUs = open ? std::min(beginUs, times_[n].startUs) : times_[n].startUs;
      endUs = open ? std::max(endUs, times_[n].endUs) : times_[n].endUs;
      open = true;
    }
    if (open || toEnd)
      addStay(buffer, firstPage, lastPage, open ? beginUs : 0, toEnd ? forEver : endUs);
  }

  void addStay(const Buffer &buffer, std::uint64_t firstPage, std::uint64_t lastPage, double beginUs, double endUs) {
    if (buffer.frames.empty()) {
      addChange(beginUs, endUs, static_cast<std::int64_t>(lastPage - firstPage));
      return;
    }
    for (std::uint64_t page = firstPage; page < lastPage;) {
      const std::int32_t first = buffer.frames[page++];
      std::int32_t last = first + 1;
      for (; first != noFrame && page < lastPage && buffer.frames[page] == last; ++page)
        ++last;
      if (first != noFrame)
        stays_.push_back({first, last, beginUs, endUs});
    }
  }

  void addChange(double beginUs, double endUs, std::int64_t pages) {
    changes_.push_back({beginUs, pages});
    changes_.push_back({endUs, -pages});
  }

  /// Cuts the frames where runs of them begin and end, and counts each part once however many pages claim it.
  void uniteStays() {
    std::vector<std::int32_t> cuts;
    for (const Stay &stay : stays_)
      cuts.insert(cuts.end(), {stay.firstFrame, stay.lastFrame});
    std::sort(cuts.begin(), cuts.end());
    cuts.erase(std::unique(cuts.begin(), cuts.end()), cuts.end());
    std::sort(stays_.begin(), stays_.end(), [](const Stay &a, const Stay &b) { return a.beginUs < b.beginUs; });
    std::vector<std::vector<std::pair<double, double>>> parts(cuts.size());
    for (const Stay &stay : stays_) {
      auto cut = static_cast<std::size_t>(std::lower_bound(cuts.begin(), cuts.end(), stay.firstFrame) - cuts.begin());
      for (; cuts[cut] < stay.lastFrame; ++cut) {
        std::vector<std::pair<double, double>> &part = parts[cut];
        if (!part.empty() && stay.beginUs <= part.back().second)
          part.back().second = std::max(part.back().second, stay.endUs);
        else
          part.push_back({stay.beginUs, stay.endUs});
      }
    }
    for (std::size_t i = 0; i + 1 < cuts.size(); ++i)
      for (const auto &[beginUs, endUs] : parts[i])
        addChange(beginUs, endUs, cuts[i + 1] - cuts[i]);
  }

  std::vector<MemoryPoint> sum(std::uint64_t exclusiveBytes) {
    // What leaves at a moment makes room for what comes at the same moment.
    std::sort(changes_.begin(), changes_.end(),
              [](const Change &a, const Change &b) { return a.atUs != b.atUs ? a.atUs < b.atUs : a.pages < b.pages; });
    std::vector<MemoryPoint> points{{0, exclusiveBytes}};
    std::int64_t pages = 0;
    for (std::size_t i = 0; i < changes_.size() && changes_[i].atUs < forEver;) {
      const double atUs = changes_[i].atUs;
      for (; i < changes_.size() && changes_[i].atUs == atUs; ++i)
        pages += changes_[i].pages;
      const std::uint64_t bytes = exclusiveBytes + static_cast<std::uint64_t>(pages) * description_.pageBytes;
      if (points.back().atUs == atUs)
        points.back().bytes = bytes;
      else if (points.back().bytes != bytes)
        points.push_back({atUs, bytes});
    }
    return points;
  }

  const Description &description_;
  const std::vector<NodeTimes> &times_;
  std::vector<std::vector<Visit>> visits_; ///< by buffer, in node order
  std::vector<Stay> stays_;                ///< where frames are known
  std::vector<Change> changes_;
};

Prediction predictionOf(const Description &description, const ReplayTimes &times) {
  std::vector<NodeTimes> nodes(description.nodes.size());
  for (std::size_t n = 0; n < nodes.size(); ++n)
    nodes[n] = {times.startUs[n], times.endUs[n]};
  return predictionOf(description, std::move(nodes), times.totalUs);
}

} // namespace

double underWayUs(const Description &description, const std::vector<NodeTimes> &times, bool (*moves)(NodeKind),
                  double fromUs, double toUs) {
  std::vector<std::pair<double, double>> transfers;
  for (std::size_t n = 0; n < times.size(); ++n)
    if (moves(description.nodes[n].kind))
      transfers.push_back({std::max(times[n].startUs, fromUs), std::min(times[n].endUs, toUs)});
  std::sort(transfers.begin(), transfers.end());
  double us = 0, reachedUs = fromUs;
  for (const auto &[startUs, endUs] : transfers) {
    us += std::max(0.0, endUs - std::max(startUs, reachedUs));
    reachedUs = std::max(reachedUs, endUs);
  }
  return us;
}

Prediction predict(const Description &description, const Machine &machine) {
  assert(description.stage != Stage::LoweredManaged && "an agent has its own times: predictManaged()");
  return predictionOf(description, replayInOrder(tasksOf(description, machine), graphOf(description), machine));
}

std::vector<Task> tasksOf(const Description &description, const Machine &machine) {
  std::vector<Task> tasks = tasksWithoutHosted(description, machine);
  const std::vector<Traffic> hosted = hostedTraffic(description).loadByNode;
  for (std::size_t n = 0; n < tasks.size(); ++n)
    if (hosted[n].total() > 0)
      tasks[n].hosted = {hosted[n]};
  return tasks;
}

std::vector<Task> tasksWithoutHosted(const Description &description, const Machine &machine) {
  std::vector<Task> tasks(description.nodes.size());
  for (std::size_t n = 0; n < tasks.size(); ++n) {
    const Node &node = description.nodes[n];
    tasks[n].lane = movesUp(node.kind) ? Lane::Up : movesDown(node.kind) ? Lane::Down : Lane::None;
    if (isTransfer(node)) {
      tasks[n].bytes = node.range.size;
      tasks[n].overheadUs = node.joined ? 0 : overheadUs(machine, movesDown(node.kind));
    } else if (isCaptured(node)) {
      tasks[n].costUs = costUsOf(node);
    }
  }
  return tasks;
}

Prediction predictAsReady(const Description &description, const Machine &machine) {
  return predictAsReady(description, tasksOf(description, machine), machine);
}

Prediction predictAsReady(const Description &description, const std::vector<Task> &tasks, const Machine &machine) {
  return predictionOf(description, replayAsReady(tasks, graphOf(description), machine));
}

Prediction predictionOf(const Description &description, std::vector<NodeTimes> nodes, double totalUs) {
  Prediction prediction;
  prediction.totalUs = totalUs;
  prediction.nodes = std::move(nodes);
  for (std::size_t n = 0; n < prediction.nodes.size(); ++n) {
    const Node &node = description.nodes[n];
    prediction.upBytes += movesUp(node.kind) ? node.range.size : 0;
    prediction.downBytes += movesDown(node.kind) ? node.range.size : 0;
  }
  constexpr double ever = std::numeric_limits<double>::infinity();
  prediction.upBusyUs = underWayUs(description, prediction.nodes, movesUp, 0, ever);
  prediction.downBusyUs = underWayUs(description, prediction.nodes, movesDown, 0, ever);
  prediction.stalls = stallsOf(description, prediction.nodes);
  prediction.memory = Occupancy(description, prediction.nodes).points();
  for (const MemoryPoint &point : prediction.memory)
    prediction.peakBytes = std::max(prediction.peakBytes, point.bytes);
  return prediction;
}

} // namespace pumpgraph
