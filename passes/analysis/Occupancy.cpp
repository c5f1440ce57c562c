// SPDX-License-Identifier: Apache-2.0
#include "passes/analysis/Occupancy.h"

#include "passes/analysis/StayingPages.h"

#include <algorithm>
#include <limits>
#include <span>
#include <tuple>
#include <utility>

namespace pumpgraph {

namespace {

/// How full the device is over time. A stay of a page begins with its first event or a prefetch and ends with its last
/// event before the next prefetch; at the step boundary the resident pages stay. A frame is in use while any of its
/// pages stays. A page that goes on in its frame is one page: its first buffer's.
class Occupancy {
public:
  Occupancy(const Description &description, const std::vector<NodeTimes> &times)
      : description_(description), times_(times) {}

  std::vector<MemoryPoint> points() {
    std::uint64_t exclusiveBytes = 0;
    addPrivateBuffers();
    for (BufferIndex b = 0; b < description_.buffers.size(); ++b)
      if (!description_.buffers[b].isPrivate)
        exclusiveBytes += description_.pageCount(b) * description_.pageBytes;
    uniteStays();
    return sum(exclusiveBytes);
  }

  std::vector<Tenancy> tenants() {
    keepsEvents_ = true;
    addPrivateBuffers();
    for (BufferIndex b = 0; b < description_.buffers.size(); ++b)
      if (!description_.buffers[b].isPrivate)
        addStay(b, 0, description_.pageCount(b), {.beginUs = 0, .endUs = forEver});
    shareFrames();
    return joinTenants();
  }

private:
  /// The end of a stay that goes on into the next replay.
  static constexpr double forEver = std::numeric_limits<double>::infinity();

  /// A node's copy or use of pages; `writes`: it computes, and may write them.
  struct Event {
    NodeIndex node;
    bool writes;
  };
  /// An event on pages [firstPage, lastPage) of a buffer.
  struct Visit {
    std::uint64_t firstPage, lastPage;
    Event event;
  };
  struct Interval {
    double beginUs, endUs;
    bool isThereBefore = true;                 ///< before the step; else it begins with its first event
    std::size_t firstEvent = 0, lastEvent = 0; ///< [first, last) in `events_`
  };
  /// Pages that are in use for a while. Their frames are neighbours, if there are frames.
  struct Stay {
    BufferIndex buffer;
    std::uint64_t firstPage;
    std::int32_t firstFrame, lastFrame; ///< [first, last)
    Interval interval;
  };
  struct Change {
    double atUs;
    std::int64_t pages;
  };
  /// A part of a stay's frames, for a part of its time, with what happens to them then.
  struct Tenant {
    std::size_t stay;
    Tenancy tenancy;
  };
  /// An event of one of several stays that have the same frames.
  struct Claim {
    std::size_t stay;
    double atUs;
    Event event; ///< `noNode`: the stay begins before the step
  };

  static bool isTransfer(const Node &node) { return movesUp(node.kind) || movesDown(node.kind); }

  void addPrivateBuffers() {
    collectVisits();
    for (BufferIndex b = 0; b < description_.buffers.size(); ++b)
      if (description_.buffers[b].isPrivate)
        addBuffer(b);
  }

  void collectVisits() {
    visits_.resize(description_.buffers.size());
    for (NodeIndex n = 0; n < description_.nodes.size(); ++n) {
      const Node &node = description_.nodes[n];
      if (isTransfer(node))
        addVisit(node.buffer, node.range, {n, false});
      for (const Access &access : node.accesses)
        addVisit(access.buffer, access.range, {n, (access.may & modeWrite) != 0});
    }
  }

  void addVisit(BufferIndex buffer, const Range &range, Event event) {
    if (range.size == 0)
      return;
    const std::uint64_t page = description_.pageBytes;
    const std::uint64_t lastPage = (range.end() + page - 1) / page;
    for (std::uint64_t first = range.offset / page, last; first < lastPage; first = last) {
      const BufferIndex address = firstAddress(description_, buffer, first);
      last = description_.buffers[buffer].continues == noBuffer ? lastPage : first + 1;
      while (last < lastPage && firstAddress(description_, buffer, last) == address)
        ++last;
      visits_[address].push_back({first, last, event});
    }
  }

  bool isResident(const Buffer &buffer, std::uint64_t page) const {
    const std::uint64_t offset = page * description_.pageBytes;
    return std::any_of(buffer.resident.begin(), buffer.resident.end(),
                       [&](const Range &range) { return range.offset <= offset && offset < range.end(); });
  }

  /// Cuts the buffer where its visits and its ranges at the step boundary begin and end, and adds each run's stays.
  void addBuffer(BufferIndex b) {
    const Buffer &buffer = description_.buffers[b];
    const std::uint64_t page = description_.pageBytes;
    std::vector<std::uint64_t> cuts{0, description_.pageCount(b)};
    for (const Visit &visit : visits_[b])
      cuts.insert(cuts.end(), {visit.firstPage, visit.lastPage});
    for (const std::vector<Range> *ranges : {&buffer.resident, &buffer.mirrored})
      for (const Range &range : *ranges)
        cuts.insert(cuts.end(), {range.offset / page, (range.end() + page - 1) / page});
    std::sort(cuts.begin(), cuts.end());
    cuts.erase(std::unique(cuts.begin(), cuts.end()), cuts.end());
    std::vector<std::vector<Event>> events(cuts.size());
    for (const Visit &visit : visits_[b]) {
      auto cut = static_cast<std::size_t>(std::lower_bound(cuts.begin(), cuts.end(), visit.firstPage) - cuts.begin());
      for (; cuts[cut] < visit.lastPage; ++cut)
        events[cut].push_back(visit.event);
    }
    for (std::size_t i = 0; i + 1 < cuts.size(); ++i)
      addRun(b, cuts[i], cuts[i + 1], events[i]);
  }

  void addRun(BufferIndex b, std::uint64_t firstPage, std::uint64_t lastPage, const std::vector<Event> &events) {
    const Buffer &buffer = description_.buffers[b];
    const bool isPlanned = !buffer.frames.empty(); // before, nothing ever leaves
    const bool fromStart = buffer.liveIn && (!isPlanned || isResident(buffer, firstPage));
    const bool toEnd = isPlanned ? isResident(buffer, firstPage) : buffer.liveIn || buffer.liveOut;
    const std::size_t base = events_.size();
    if (keepsEvents_)
      events_.insert(events_.end(), events.begin(), events.end());
    bool open = fromStart;
    Interval interval{.beginUs = 0, .endUs = 0, .firstEvent = base};
    for (std::size_t e = 0; e < events.size(); ++e) {
      const NodeTimes &times = times_[events[e].node];
      if (open && movesUp(description_.nodes[events[e].node].kind)) {
        interval.lastEvent = base + e;
        addStay(b, firstPage, lastPage, interval);
        open = false;
      }
      if (!open)
        interval = {.beginUs = times.startUs, .endUs = times.endUs, .isThereBefore = false, .firstEvent = base + e};
      interval.beginUs = std::min(interval.beginUs, times.startUs);
      interval.endUs = std::max(interval.endUs, times.endUs);
      open = true;
    }
    if (!open && !toEnd)
      return;
    if (toEnd)
      interval.endUs = forEver;
    interval.lastEvent = base + events.size();
    addStay(b, firstPage, lastPage, interval);
  }

  void addStay(BufferIndex b, std::uint64_t firstPage, std::uint64_t lastPage, const Interval &interval) {
    const std::vector<std::int32_t> &frames = description_.buffers[b].frames;
    if (frames.empty()) {
      addChange(interval, static_cast<std::int64_t>(lastPage - firstPage));
      return;
    }
    for (std::uint64_t page = firstPage; page < lastPage;) {
      const std::uint64_t begin = page;
      const std::int32_t first = frames[page++];
      std::int32_t last = first + 1;
      for (; first != noFrame && page < lastPage && frames[page] == last; ++page)
        ++last;
      if (first != noFrame)
        stays_.push_back({b, begin, first, last, interval});
    }
  }

  void addChange(const Interval &interval, std::int64_t pages) {
    changes_.push_back({interval.beginUs, pages});
    changes_.push_back({interval.endUs, -pages});
  }

  /// Where runs of frames begin and end.
  std::vector<std::int32_t> frameCuts() const {
    std::vector<std::int32_t> cuts;
    for (const Stay &stay : stays_)
      cuts.insert(cuts.end(), {stay.firstFrame, stay.lastFrame});
    std::sort(cuts.begin(), cuts.end());
    cuts.erase(std::unique(cuts.begin(), cuts.end()), cuts.end());
    return cuts;
  }

  void sortStays() {
    std::stable_sort(stays_.begin(), stays_.end(),
                     [](const Stay &a, const Stay &b) { return a.interval.beginUs < b.interval.beginUs; });
  }

  /// Cuts the frames where runs of them begin and end, and counts each part once however many pages claim it.
  void uniteStays() {
    const std::vector<std::int32_t> cuts = frameCuts();
    sortStays();
    std::vector<std::vector<Interval>> parts(cuts.size());
    for (const Stay &stay : stays_) {
      const Interval &interval = stay.interval;
      auto cut = static_cast<std::size_t>(std::lower_bound(cuts.begin(), cuts.end(), stay.firstFrame) - cuts.begin());
      for (; cuts[cut] < stay.lastFrame; ++cut) {
        std::vector<Interval> &part = parts[cut];
        if (!part.empty() && interval.beginUs <= part.back().endUs)
          part.back().endUs = std::max(part.back().endUs, interval.endUs);
        else
          part.push_back(interval);
      }
    }
    for (std::size_t i = 0; i + 1 < cuts.size(); ++i)
      for (const Interval &interval : parts[i])
        addChange(interval, cuts[i + 1] - cuts[i]);
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

  //===--------------------------------------------------------------------===//
  // Tenants
  //===--------------------------------------------------------------------===//

  std::vector<Event> eventsOf(const Interval &interval) const {
    const auto at = [&](std::size_t event) { return events_.begin() + static_cast<std::ptrdiff_t>(event); };
    return {at(interval.firstEvent), at(interval.lastEvent)};
  }

  /// Gives each part of the frames to one stay at a time: where several are in use at once, to the one with the latest
  /// event, until another has one.
  void shareFrames() {
    const std::vector<std::int32_t> cuts = frameCuts();
    sortStays();
    std::vector<std::vector<std::size_t>> parts(cuts.size());
    for (std::size_t stay = 0; stay < stays_.size(); ++stay) {
      auto cut =
          static_cast<std::size_t>(std::lower_bound(cuts.begin(), cuts.end(), stays_[stay].firstFrame) - cuts.begin());
      for (; cuts[cut] < stays_[stay].lastFrame; ++cut)
        parts[cut].push_back(stay);
    }
    for (std::size_t i = 0; i + 1 < cuts.size(); ++i) {
      const std::span<const std::size_t> part = parts[i];
      for (std::size_t first = 0, last = 0; first < part.size(); first = last) {
        double endUs = stays_[part[first]].interval.endUs;
        for (++last; last < part.size() && stays_[part[last]].interval.beginUs <= endUs; ++last)
          endUs = std::max(endUs, stays_[part[last]].interval.endUs);
        shareInterval(part.subspan(first, last - first), endUs, cuts[i], cuts[i + 1]);
      }
    }
  }

  /// Of stays that follow or overlap each other, until `endUs`.
  void shareInterval(std::span<const std::size_t> stays, double endUs, std::int32_t firstFrame,
                     std::int32_t lastFrame) {
    const auto add = [&](std::size_t index, const Interval &interval, const std::vector<Event> &events) {
      const Stay &stay = stays_[index];
      addTenant({stay.buffer, stay.firstPage + static_cast<std::uint64_t>(firstFrame - stay.firstFrame), firstFrame,
                 lastFrame, stay.interval},
                index, static_cast<std::uint64_t>(lastFrame - firstFrame), firstFrame, interval, events);
    };
    if (stays.size() == 1) {
      const Interval &interval = stays_[stays.front()].interval;
      add(stays.front(), interval, eventsOf(interval));
      return;
    }
    const std::vector<Claim> claims = claimsOf(stays);
    for (std::size_t first = 0, last = 0; first < claims.size(); first = last) {
      std::vector<Event> events;
      for (; last < claims.size() && claims[last].stay == claims[first].stay; ++last)
        if (claims[last].event.node != noNode)
          events.push_back(claims[last].event);
      add(claims[first].stay,
          {.beginUs = claims[first].atUs,
           .endUs = last < claims.size() ? claims[last].atUs : endUs,
           .isThereBefore = claims[first].event.node == noNode},
          events);
    }
  }

  /// In the order of time.
  std::vector<Claim> claimsOf(std::span<const std::size_t> stays) const {
    std::vector<Claim> claims;
    for (const std::size_t stay : stays) {
      const Interval &interval = stays_[stay].interval;
      if (interval.isThereBefore)
        claims.push_back({stay, interval.beginUs, {noNode, false}});
      for (const Event &event : eventsOf(interval))
        claims.push_back({stay, times_[event.node].startUs, event});
    }
    std::stable_sort(claims.begin(), claims.end(), [](const Claim &a, const Claim &b) {
      if (a.atUs != b.atUs)
        return a.atUs < b.atUs;
      const bool isBefore = a.event.node == noNode && b.event.node != noNode;
      return isBefore || (b.event.node != noNode && a.event.node < b.event.node);
    });
    return claims;
  }

  void addTenant(const Stay &part, std::size_t stay, std::uint64_t pages, std::int32_t firstFrame,
                 const Interval &interval, const std::vector<Event> &events) {
    Tenancy tenancy{.buffer = part.buffer,
                    .firstPage = part.firstPage,
                    .pages = pages,
                    .firstFrame = firstFrame,
                    .beginUs = interval.beginUs,
                    .endUs = interval.endUs};
    if (interval.isThereBefore)
      tenancy.hostHasIt = overlaps(description_.buffers[part.buffer].mirrored,
                                   {part.firstPage * description_.pageBytes, pages * description_.pageBytes});
    else if (!events.empty())
      tenancy.arrival = events.front().node;
    for (const Event &event : events) {
      const bool isCopy = isTransfer(description_.nodes[event.node]);
      tenancy.hostHasIt = isCopy || (tenancy.hostHasIt && !event.writes);
      if (isCopy)
        continue;
      tenancy.firstUse = tenancy.firstUse == noNode ? event.node : tenancy.firstUse;
      tenancy.lastUse = event.node;
    }
    tenants_.push_back({stay, tenancy});
  }

  /// Frames of one stay that have changed hands at the same times are one tenancy.
  std::vector<Tenancy> joinTenants() {
    const auto key = [](const Tenant &tenant) {
      return std::make_tuple(tenant.tenancy.beginUs, tenant.stay, tenant.tenancy.firstFrame);
    };
    std::stable_sort(tenants_.begin(), tenants_.end(),
                     [&](const Tenant &a, const Tenant &b) { return key(a) < key(b); });
    std::vector<Tenancy> joined;
    for (std::size_t i = 0; i < tenants_.size(); ++i) {
      const Tenancy &next = tenants_[i].tenancy;
      const bool goesOn = i > 0 && tenants_[i - 1].stay == tenants_[i].stay && joined.back().beginUs == next.beginUs &&
                          joined.back().endUs == next.endUs &&
                          joined.back().firstFrame + static_cast<std::int32_t>(joined.back().pages) == next.firstFrame;
      if (goesOn)
        joined.back().pages += next.pages;
      else
        joined.push_back(next);
    }
    return joined;
  }

  const Description &description_;
  const std::vector<NodeTimes> &times_;
  std::vector<std::vector<Visit>> visits_; ///< by buffer, in node order
  std::vector<Stay> stays_;                ///< where frames are known
  std::vector<Change> changes_;
  bool keepsEvents_ = false;
  std::vector<Event> events_; ///< if kept: by buffer and run, in node order
  std::vector<Tenant> tenants_;
};

} // namespace

std::vector<MemoryPoint> occupancy(const Description &description, const std::vector<NodeTimes> &times) {
  return Occupancy(description, times).points();
}

std::vector<Tenancy> tenancies(const Description &description, const std::vector<NodeTimes> &times) {
  return Occupancy(description, times).tenants();
}

} // namespace pumpgraph
