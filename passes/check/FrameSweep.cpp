// SPDX-License-Identifier: Apache-2.0
// Looks at one frame at a time. The events on the frame, in index order, fall into blocks: a prefetch or discard is a
// block of its own, accesses and copies down of one page with nothing else between them are one block. Index order is a
// legal order, so if the rules hold the blocks are the same in every legal order; and they hold if every event of a
// block completes before every event of the next one, for completion is transitive, and if in a block the copies down
// are ordered against each other and against what may write. Then one walk over the blocks decides the values.
// docs/design/checker.md has the table of states and why this suffices.
#include "passes/check/FrameSweep.h"

#include "passes/check/CompletionOrder.h"
#include "pumpgraph/graph/Reliance.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <span>

namespace pumpgraph::check {

namespace {

using PageIndex = std::uint32_t; ///< over all buffers
constexpr PageIndex noPage = UINT32_MAX;
constexpr NodeIndex noNode = UINT32_MAX;

enum class EventKind : std::uint8_t { Access, Down, Up, Discard };

/// One node's touch of one page.
struct Event {
  NodeIndex node = 0;
  PageIndex page = 0; ///< of a page that stays where it is the first address, whichever the node names
  PageIndex address = 0;
  EventKind kind = EventKind::Access;
  bool needsValue = false; ///< reads, or writes and may leave bytes as they were
  bool mayWrite = false;
  bool overwrites = false; ///< certainly writes every byte of the page and reads none before
};

/// Where the value of a page is.
enum class Value : std::uint8_t {
  None,   ///< never written, not live-in: nobody may ask for it, so it needs no place
  Device, ///< only the device copy is current
  Host,   ///< only the host copy is current
  Both,
  Lost, ///< neither: an error if it is needed again
};

bool isOnDevice(Value value) {
  return value == Value::None || value == Value::Device || value == Value::Both;
}
bool isInHost(Value value) {
  return value == Value::None || value == Value::Host || value == Value::Both;
}

/// The device copy is not current any more.
Value withoutDeviceCopy(Value value) {
  switch (value) {
  case Value::Device:
    return Value::Lost;
  case Value::Both:
    return Value::Host;
  default:
    return value;
  }
}

struct Page {
  BufferIndex buffer = 0;
  std::uint32_t page = 0;
  Value value = Value::None;
  bool resident = false;        ///< on the device at the step boundary
  bool mirrored = false;        ///< and in host memory too
  bool hosted = false;          ///< in host memory at all times, where accesses find its value
  NodeIndex endedBy = noNode;   ///< who took the device copy away last; noNode: nobody since the step began
  PageIndex continues = noPage; ///< the page whose value it takes over with its first event
  PageIndex sameAs = noPage;    ///< the first address of a page that stays where it is; itself, for most
  bool hasBegun = false;        ///< it has taken over
};

using Block = std::span<const Event>;

/// The device copy is the same after it, or current.
bool keepsDeviceCopy(const Event &event) {
  return event.kind == EventKind::Access || event.kind == EventKind::Down;
}

/// A prefetch or discard alone, or all accesses and copies down of one page that follow each other. `events` is not
/// empty.
Block firstBlock(Block events) {
  const Event &first = events.front();
  if (!keepsDeviceCopy(first))
    return events.first(1);
  const auto end = std::find_if(events.begin(), events.end(), [&](const Event &event) {
    return !keepsDeviceCopy(event) || event.page != first.page;
  });
  return events.first(static_cast<std::size_t>(end - events.begin()));
}

/// The same among copies down and writes of one page: a copy down alone, or all writes that follow each other.
Block firstOfOneKind(Block events) {
  if (events.front().kind == EventKind::Down)
    return events.first(1);
  const auto end =
      std::find_if(events.begin(), events.end(), [](const Event &event) { return event.kind == EventKind::Down; });
  return events.first(static_cast<std::size_t>(end - events.begin()));
}

/// The accesses of a page that stays where it is, at one of its addresses.
struct AddressUse {
  std::vector<Event> all;
  std::vector<Event> writes; ///< those of them that may write
};

class Sweep {
public:
  Sweep(const Description &description, Report &report)
      : description_(description), report_(report), completion_(description, CompletionOrder::Follow::Full),
        programOrder_(description, CompletionOrder::Follow::AnyEdge) {
    listPages();
    uniteAddresses();
    listFrames();
    listEvents();
  }

  void run() {
    for (std::uint32_t frame = 0; frame < tenants_.size() && !report_.full(); ++frame)
      checkFrame(frame);
    checkContinuations();
    // Values of pages that continue others begin where those end, mostly in other frames: then all are walked in one
    // order.
    if (std::any_of(pages_.begin(), pages_.end(), [](const Page &page) { return page.continues != noPage; }))
      std::stable_sort(walks_.begin(), walks_.end(), [](const Walk &left, const Walk &right) {
        return left.block.front().node < right.block.front().node;
      });
    for (const Walk &each : walks_)
      if (!report_.full())
        walk(each);
    for (const Page &page : pages_)
      checkEnd(page);
  }

private:
  void listPages();
  void uniteAddresses();
  void listFrames();
  void listEvents();
  template <typename Visit> void forEachEvent(Visit visit) const;

  /// A block, and whose device copy it ends by taking the frame; noPage: nobody's.
  struct Walk {
    Block block;
    PageIndex ends = noPage;
  };

  void checkFrame(std::uint32_t frame);
  void checkContinuations();
  bool isOrdered(Block before, Block after);
  bool isOrderedWithin(Block block);
  bool isOrderedAcrossAddresses(Block events);
  bool isOrderedAcross(const std::vector<AddressUse> &addresses);
  void reportUnordered(const Event &left, const Event &right);
  void handOver(Page &page, NodeIndex taker);
  void walk(const Walk &each);
  void takeOver(Page &page);
  void requireValues(Page &page, Block block);
  void walkTransfer(Page &page, const Event &event);
  bool isOverwrittenBefore(const Event &reader, Block block) const;
  void reportMissing(const Page &page, NodeIndex node, const char *need);
  void checkEnd(const Page &page);

  /// Whether the value of `before` goes on in the page, at once or by way of others.
  bool continues(const Page &page, PageIndex before) const {
    for (PageIndex at = page.continues; at != noPage; at = pages_[at].continues)
      if (at == before)
        return true;
    return false;
  }
  std::string label(NodeIndex node) const { return nodeLabel(description_, node); }
  std::string label(const Page &page) const { return pageLabel(description_, page.buffer, page.page); }
  /// What became of the device copy, for messages.
  std::string history(const Page &page) const;

  const Description &description_;
  Report &report_;
  CompletionOrder completion_;
  CompletionOrder programOrder_;
  std::vector<PageIndex> firstPage_; ///< by buffer
  std::vector<Page> pages_;
  /// By page: dense frame number; noPage if it has none, is exclusive, or is hosted and has no other address.
  std::vector<std::uint32_t> frameOf_;
  struct Tenants {
    PageIndex resident = noPage;
    std::size_t eventsBegin = 0; ///< in events_
    std::size_t eventsEnd = 0;
  };
  std::vector<Tenants> tenants_; ///< by dense frame number
  std::vector<Event> events_;    ///< by frame, then by node
  std::vector<Walk> walks_;      ///< of the frames whose events are in one order, what decides the values
};

void Sweep::listPages() {
  for (BufferIndex index = 0; index < description_.buffers.size(); ++index) {
    const Buffer &buffer = description_.buffers[index];
    firstPage_.push_back(static_cast<PageIndex>(pages_.size()));
    const Value start = buffer.liveIn ? Value::Host : Value::None;
    for (std::uint32_t page = 0; page < description_.pageCount(index); ++page)
      pages_.push_back({index, page, start});
    const auto visitPages = [&](const std::vector<Range> &ranges, auto visit) {
      for (const Range &range : ranges)
        for (std::uint64_t page = range.offset / description_.pageBytes; page * description_.pageBytes < range.end();
             ++page)
          visit(pages_[firstPage_[index] + page]);
    };
    visitPages(buffer.resident, [&](Page &page) {
      page.resident = true;
      page.value = buffer.liveIn ? Value::Device : Value::None;
    });
    visitPages(buffer.mirrored, [&](Page &page) {
      page.mirrored = true;
      page.value = buffer.liveIn ? Value::Both : Value::None;
    });
    visitPages(buffer.hosted, [&](Page &page) { page.hosted = true; });
    if (buffer.continues != noBuffer)
      for (PageIndex page = firstPage_[index]; page < pages_.size(); ++page)
        pages_[page].continues = firstPage_[buffer.continues] + (page - firstPage_[index]);
  }
}

/// A page that goes on in the frame in which it is stays where it is: one page, seen at two addresses.
void Sweep::uniteAddresses() {
  const auto frameOf = [&](const Page &page) {
    const std::vector<std::int32_t> &frames = description_.buffers[page.buffer].frames;
    return frames.empty() ? noFrame : frames[page.page];
  };
  for (PageIndex index = 0; index < pages_.size(); ++index) {
    Page &page = pages_[index];
    page.sameAs = index;
    if (page.continues == noPage)
      continue;
    const Page &before = pages_[page.continues];
    if (frameOf(page) != noFrame && frameOf(page) == frameOf(before))
      page.sameAs = before.sameAs;
    page.continues = page.sameAs == index ? before.sameAs : noPage;
  }
}

void Sweep::listFrames() {
  frameOf_.assign(pages_.size(), noPage);
  std::vector<std::pair<std::int32_t, PageIndex>> named;
  for (PageIndex page = 0; page < pages_.size(); ++page) {
    const Buffer &buffer = description_.buffers[pages_[page].buffer];
    if (buffer.isPrivate && !buffer.frames.empty() && buffer.frames[pages_[page].page] != noFrame)
      named.push_back({buffer.frames[pages_[page].page], page});
  }
  std::sort(named.begin(), named.end());
  std::int32_t last = noFrame;
  for (const auto &[frame, page] : named) {
    if (frame != last)
      tenants_.emplace_back();
    last = frame;
    frameOf_[page] = static_cast<std::uint32_t>(tenants_.size() - 1);
    if (pages_[page].resident)
      tenants_.back().resident = page;
  }
  // A hosted page whose value comes from another address, or goes on there, has a frame to itself, as it were.
  std::vector<bool> isContinued(pages_.size(), false);
  for (const Page &page : pages_)
    if (page.continues != noPage)
      isContinued[page.continues] = true;
  for (PageIndex page = 0; page < pages_.size(); ++page)
    if (pages_[page].hosted && (pages_[page].continues != noPage || isContinued[page])) {
      tenants_.emplace_back();
      frameOf_[page] = static_cast<std::uint32_t>(tenants_.size() - 1);
    }
}

/// Calls `visit(event, frame)` for every event, in the order of the nodes.
template <typename Visit> void Sweep::forEachEvent(Visit visit) const {
  const std::uint64_t pageBytes = description_.pageBytes;
  for (NodeIndex index = 0; index < description_.nodes.size(); ++index) {
    const Node &node = description_.nodes[index];
    const auto visitPages = [&](BufferIndex buffer, Range range, auto eventOf) {
      if (range.size == 0)
        return;
      for (std::uint64_t page = range.offset / pageBytes; page * pageBytes < range.end(); ++page) {
        const PageIndex global = firstPage_[buffer] + static_cast<PageIndex>(page);
        if (frameOf_[global] != noPage)
          visit(eventOf(global), frameOf_[global]);
      }
    };

    for (const Access &access : node.accesses)
      visitPages(access.buffer, access.range, [&](PageIndex page) {
        const Range bytes = pageRange(description_, access.buffer, pages_[page].page);
        const bool coversPage = access.range.offset <= bytes.offset && bytes.end() <= access.range.end();
        const bool overwrites = coversPage && reliableMust(access) == modeWrite;
        return Event{.node = index,
                     .page = pages_[page].sameAs,
                     .address = page,
                     .kind = EventKind::Access,
                     .needsValue = reliableMay(access) != modeNone && !overwrites,
                     .mayWrite = (reliableMay(access) & modeWrite) != 0,
                     .overwrites = overwrites};
      });
    const auto visitMoved = [&](EventKind kind) {
      visitPages(node.buffer, node.range,
                 [&](PageIndex page) { return Event{index, pages_[page].sameAs, page, kind}; });
    };
    if (movesDown(node.kind))
      visitMoved(EventKind::Down);
    if (movesUp(node.kind))
      visitMoved(EventKind::Up);
    if (node.kind == NodeKind::Discard)
      visitMoved(EventKind::Discard);
  }
}

void Sweep::listEvents() {
  forEachEvent([&](const Event &, std::uint32_t frame) { ++tenants_[frame].eventsEnd; });
  std::size_t begin = 0;
  for (Tenants &frame : tenants_) {
    const std::size_t count = frame.eventsEnd;
    frame.eventsBegin = frame.eventsEnd = begin;
    begin += count;
  }
  events_.resize(begin);
  forEachEvent([&](const Event &event, std::uint32_t frame) { events_[tenants_[frame].eventsEnd++] = event; });
}

void Sweep::checkFrame(std::uint32_t frame) {
  const Tenants &tenants = tenants_[frame];
  const Block events{events_.data() + tenants.eventsBegin, events_.data() + tenants.eventsEnd};

  const auto giveUp = [&] {
    // The values depend on who comes first: nothing more can be said about this frame.
    for (const Event &event : events)
      pages_[event.page].value = Value::None;
  };

  // The boundary is an event of the resident page, before all nodes and after all nodes.
  PageIndex occupant = tenants.resident;
  std::vector<Walk> walks;
  Block previous;
  for (Block rest = events; !rest.empty(); rest = rest.subspan(previous.size())) {
    const Block block = firstBlock(rest);
    if (!isOrdered(previous, block) || !isOrderedWithin(block))
      return giveUp();
    const PageIndex page = block.front().page;
    walks.push_back({block, occupant == page ? noPage : occupant});
    occupant = page;
    previous = block;
  }
  if (!isOrderedAcrossAddresses(events))
    return giveUp();
  walks_.insert(walks_.end(), walks.begin(), walks.end());
}

/// Every event of a page has to complete before every one of the page that continues it elsewhere.
void Sweep::checkContinuations() {
  std::map<PageIndex, std::vector<Event>> byPage;
  for (const Page &page : pages_)
    if (page.continues != noPage) {
      byPage.try_emplace(page.continues);
      byPage.try_emplace(static_cast<PageIndex>(&page - pages_.data()));
    }
  if (byPage.empty())
    return;
  for (const Event &event : events_)
    if (const auto found = byPage.find(event.page); found != byPage.end())
      found->second.push_back(event);
  for (const auto &[page, events] : byPage) {
    PageIndex before = pages_[page].continues;
    while (before != noPage && byPage[before].empty())
      before = pages_[before].continues;
    if (before != noPage && !report_.full())
      isOrdered(byPage[before], events);
  }
}

/// Whether every event of `before` completes before every event of `after`; reports the first pair that does not. Only
/// the latest of the one and the earliest of the other have to be compared.
bool Sweep::isOrdered(Block before, Block after) {
  std::vector<const Event *> latest;
  for (std::size_t i = before.size(); i-- > 0;) {
    const bool isImplied = std::any_of(latest.begin(), latest.end(), [&](const Event *later) {
      return completion_.before(before[i].node, later->node);
    });
    if (!isImplied)
      latest.push_back(&before[i]);
  }
  std::vector<const Event *> earliest;
  for (const Event &event : after) {
    const bool isImplied = std::any_of(earliest.begin(), earliest.end(), [&](const Event *earlier) {
      return completion_.before(earlier->node, event.node);
    });
    if (!isImplied)
      earliest.push_back(&event);
  }
  for (const Event *left : latest)
    for (const Event *right : earliest)
      if (!completion_.before(left->node, right->node)) {
        reportUnordered(*left, *right);
        return false;
      }
  return true;
}

/// A copy down may run beside accesses that only read, but not beside a write or another copy.
bool Sweep::isOrderedWithin(Block block) {
  if (std::none_of(block.begin(), block.end(), [](const Event &event) { return event.kind == EventKind::Down; }))
    return true;
  std::vector<Event> ordered;
  std::copy_if(block.begin(), block.end(), std::back_inserter(ordered),
               [](const Event &event) { return event.kind == EventKind::Down || event.mayWrite; });
  Block previous;
  for (Block rest = ordered; !rest.empty(); rest = rest.subspan(previous.size())) {
    const Block next = firstOfOneKind(rest);
    if (!isOrdered(previous, next))
      return false;
    previous = next;
  }
  return true;
}

/// What is written at one address is seen at another when the writer has completed: of the accesses of a page that
/// stays where it is.
bool Sweep::isOrderedAcrossAddresses(Block events) {
  std::map<PageIndex, std::map<PageIndex, AddressUse>> pages; // a later address has a greater index
  for (const Event &event : events)
    if (event.kind == EventKind::Access && event.address != event.page)
      pages.try_emplace(event.page);
  if (pages.empty())
    return true;
  for (const Event &event : events)
    if (const auto page = pages.find(event.page); page != pages.end() && event.kind == EventKind::Access) {
      AddressUse &use = page->second[event.address];
      use.all.push_back(event);
      if (event.mayWrite)
        use.writes.push_back(event);
    }
  return std::all_of(pages.begin(), pages.end(), [&](const auto &page) {
    std::vector<AddressUse> addresses;
    for (const auto &[address, use] : page.second)
      addresses.push_back(use);
    return isOrderedAcross(addresses);
  });
}

/// Whether every access completes before every one at a later address, but for two that only read. What comes before
/// the writes at an address comes before all that is ordered after these.
bool Sweep::isOrderedAcross(const std::vector<AddressUse> &addresses) {
  AddressUse before;
  for (const AddressUse &use : addresses) {
    if (!isOrdered(before.writes, use.all) || !isOrdered(before.all, use.writes))
      return false;
    if (!use.writes.empty())
      before = use;
    else
      before.all.insert(before.all.end(), use.all.begin(), use.all.end());
  }
  return true;
}

void Sweep::reportUnordered(const Event &left, const Event &right) {
  const Page &leftPage = pages_[left.address];
  const Page &rightPage = pages_[right.address];
  const bool areAccesses = left.kind == EventKind::Access && right.kind == EventKind::Access;
  const bool isOnePage = left.page == right.page;
  const bool goesOn = isOnePage ? areAccesses : continues(pages_[right.page], left.page);
  const Place place{.rule = goesOn      ? "continuation"
                            : isOnePage ? "race"
                                        : "hand-over",
                    .node = right.node,
                    .otherNode = left.node,
                    .buffer = rightPage.buffer,
                    .otherBuffer = leftPage.buffer};
  if (isOnePage && areAccesses) // of one address they are as the program wished
    return report_.add(place, fmt::format("{} {} {}, which {} {} at a later address: no path of full edges orders them",
                                          label(left.node), left.mayWrite ? "writes" : "reads", label(leftPage),
                                          label(right.node), right.mayWrite ? "writes" : "reads"));
  if (isOnePage)
    return report_.add(place, fmt::format("{} and {} race on {}: no path of full edges orders them", label(left.node),
                                          label(right.node), label(rightPage)));
  if (goesOn)
    return report_.add(place, fmt::format("{} uses {} before its value goes on where {} uses it: no path of full edges "
                                          "orders them",
                                          label(left.node), label(leftPage), label(right.node)));
  const std::int32_t frame = description_.buffers[rightPage.buffer].frames[rightPage.page];
  if (left.node == right.node)
    return report_.add(place, fmt::format("{} needs {} and {} at the same time, but both are in frame {}",
                                          label(left.node), label(leftPage), label(rightPage), frame));
  report_.add(place, fmt::format("{} uses {} and {} uses {}, both in frame {}: no path of full edges orders them",
                                 label(left.node), label(leftPage), label(right.node), label(rightPage), frame));
}

void Sweep::handOver(Page &page, NodeIndex taker) {
  page.value = withoutDeviceCopy(page.value);
  page.endedBy = taker;
}

void Sweep::walk(const Walk &each) {
  const Block block = each.block;
  if (each.ends != noPage)
    handOver(pages_[each.ends], block.front().node);
  Page &page = pages_[block.front().page];
  takeOver(page);
  requireValues(page, block);
  for (const Event &event : block)
    if (event.kind != EventKind::Access)
      walkTransfer(page, event);
    else if (event.mayWrite)
      page.value = page.hosted ? Value::Host : Value::Device;
}

/// The value that a page begins with is what its predecessor leaves in host memory. All of that one's events come
/// before, so they have been walked.
void Sweep::takeOver(Page &page) {
  if (page.continues == noPage || page.hasBegun)
    return;
  page.hasBegun = true;
  Page &before = pages_[page.continues];
  takeOver(before); // in case nobody touched it
  page.value = withoutDeviceCopy(before.value);
  page.endedBy = before.endedBy;
}

/// Nothing within a block ends the copy that accesses reach: one lacks the value if it is missing before the block.
void Sweep::requireValues(Page &page, Block block) {
  if (page.hosted ? isInHost(page.value) : isOnDevice(page.value))
    return;
  for (const Event &event : block)
    if (event.needsValue && !isOverwrittenBefore(event, block)) {
      reportMissing(page, event.node, event.mayWrite ? "updates" : "reads");
      page.value = Value::Both; // one report is enough
      return;
    }
}

bool Sweep::isOverwrittenBefore(const Event &reader, Block block) const {
  return std::any_of(block.begin(), block.end(), [&](const Event &writer) {
    return writer.overwrites && programOrder_.before(writer.node, reader.node);
  });
}

void Sweep::walkTransfer(Page &page, const Event &event) {
  if (page.value == Value::None)
    return;
  if (event.kind == EventKind::Discard)
    return handOver(page, event.node);
  if (event.kind == EventKind::Down && !isOnDevice(page.value))
    reportMissing(page, event.node, "saves");
  if (event.kind == EventKind::Up && !isInHost(page.value))
    report_.add({.rule = "stale", .node = event.node, .buffer = page.buffer},
                fmt::format("{} brings {} back, but the host copy is not its value{}", label(event.node), label(page),
                            page.value == Value::Device ? ": the device copy is" : ": it is lost" + history(page)));
  page.value = Value::Both;
}

void Sweep::reportMissing(const Page &page, NodeIndex node, const char *need) {
  report_.add({.rule = "value", .node = node, .buffer = page.buffer},
              fmt::format("{} {} {}, whose value is {}{}", label(node), need, label(page),
                          page.value == Value::Host ? "in host memory only" : "lost", history(page)));
}

std::string Sweep::history(const Page &page) const {
  if (page.endedBy != noNode)
    return fmt::format(" since {}", label(page.endedBy));
  return page.resident ? "" : " at the start of the step";
}

void Sweep::checkEnd(const Page &page) {
  const Buffer &buffer = description_.buffers[page.buffer];
  if (!buffer.isPrivate || !buffer.liveOut || page.hosted)
    return;
  const bool neededInHost = !page.resident || page.mirrored;
  if ((!page.resident || isOnDevice(page.value)) && (!neededInHost || isInHost(page.value)))
    return;
  const char *needed = !neededInHost   ? "on the device"
                       : page.mirrored ? "on the device and in host memory"
                                       : "in host memory";
  const std::string where = page.value == Value::Device ? "on the device only"
                            : page.value == Value::Host ? "in host memory only" + history(page)
                                                        : "lost" + history(page);
  report_.add({.rule = "end", .buffer = page.buffer},
              fmt::format("at the end of the step {} must be {}, but its value is {}", label(page), needed, where));
}

} // namespace

void checkFrames(const Description &description, Report &report) {
  Sweep(description, report).run();
}

} // namespace pumpgraph::check
