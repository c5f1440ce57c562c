// SPDX-License-Identifier: Apache-2.0
#include "test/unit/check/SimplePlan.h"

#include "test/unit/check/Random.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

namespace pumpgraph::test {

namespace {

using PageKey = std::pair<BufferIndex, std::uint64_t>;

struct PageNeeds {
  bool value = false; ///< some access needs what was there before
  bool write = false;
  BufferIndex address = 0; ///< the buffer that the node names
};

std::map<PageKey, PageNeeds> touchedPages(const Description &captured, const Node &node) {
  std::map<PageKey, PageNeeds> pages;
  for (const Access &access : node.accesses) {
    const Buffer &buffer = captured.buffers[access.buffer];
    if (!buffer.isPrivate)
      continue;
    for (std::uint64_t page = access.range.offset / captured.pageBytes; page * captured.pageBytes < access.range.end();
         ++page) {
      const std::uint64_t end = std::min((page + 1) * captured.pageBytes, buffer.size);
      const bool covers = access.range.offset <= page * captured.pageBytes && end <= access.range.end();
      PageNeeds &needs = pages[{access.buffer, page}];
      needs.address = access.buffer;
      needs.value |= !(covers && access.must == modeWrite);
      needs.write |= (access.may & modeWrite) != 0;
    }
  }
  return pages;
}

class Planner {
public:
  Planner(const Description &captured, std::uint64_t frames, std::uint64_t seed)
      : captured_(captured), plan_(captured), random_(seed), frameCount_(frames),
        next_(captured.buffers.size(), noBuffer) {
    for (BufferIndex buffer = 0; buffer < captured.buffers.size(); ++buffer)
      if (captured.buffers[buffer].continues != noBuffer)
        next_[captured.buffers[buffer].continues] = buffer;
  }

  std::optional<Description> run();

private:
  /// By a captured node, for the order between the addresses of a page that stays.
  struct Use {
    NodeIndex node = 0;
    BufferIndex address = 0;
    bool write = false;
  };
  struct Page {
    std::int32_t frame = noFrame;
    bool resident = false;
    bool mirrored = false;
    bool hasValue = false;
    bool onDevice = false; ///< the device copy is current
    bool inHost = false;
    std::map<NodeIndex, bool> needs; ///< by captured node that uses it: whether it needs the value
    std::optional<PageKey> before;   ///< the page whose value goes on in this one, elsewhere
    std::optional<PageKey> after;
    bool hasBegun = false;              ///< has taken that over
    bool isOver = false;                ///< its value has gone on
    std::vector<NodeIndex> waitsFor;    ///< before its first event: the last ones of the page before
    std::vector<NodeIndex> lastInFrame; ///< of its last tenure: what comes after these comes after all
    std::vector<Use> uses;
  };
  /// The events on a frame that later ones may have to wait for, as new node numbers.
  struct Frame {
    std::optional<PageKey> occupant;
    std::vector<NodeIndex> before; ///< what all events of the present block come after (docs/design/checker.md)
    std::vector<NodeIndex> reads;  ///< of the block, those that no copy down has waited for
    std::vector<NodeIndex> evict;  ///< the last of the block
    std::vector<NodeIndex> writes; ///< since

    const std::vector<NodeIndex> &beforeWrite() const { return evict.empty() ? before : evict; }
    const std::vector<NodeIndex> &beforeEvict() const { return writes.empty() ? beforeWrite() : writes; }
    std::vector<NodeIndex> beforeNextBlock() const {
      if (reads.empty())
        return beforeEvict();
      std::vector<NodeIndex> all = reads;
      if (!writes.empty() || !evict.empty())
        all.insert(all.end(), beforeEvict().begin(), beforeEvict().end());
      return all;
    }
  };

  void chooseHosted();
  std::map<PageKey, PageNeeds> pagesOf(NodeIndex node) const;
  bool chooseFrames();
  std::int32_t chooseFrame(const PageKey &key, const std::vector<std::int32_t> &possible);
  void uniteAddresses();
  void chooseResidents();
  void addNode(NodeIndex node);
  void makeRoom(const std::map<PageKey, PageNeeds> &pages, NodeIndex node);
  void finish();
  NodeIndex append(Node node);
  PageKey pageAt(const PageKey &address) const;
  bool isInChain(BufferIndex buffer) const {
    return captured_.buffers[buffer].continues != noBuffer || next_[buffer] != noBuffer;
  }
  BufferIndex someName(const std::vector<PageKey> &pages);
  PageKey sourceOf(PageKey key) const;
  void takeOver(const PageKey &key);
  std::vector<NodeIndex> beforeNextBlock(const PageKey &key);
  void addTransfers(NodeKind kind, const std::vector<PageKey> &pages);
  void order(const std::vector<NodeIndex> &before, NodeIndex after);
  void evict(Frame &frame, NodeIndex node);
  bool isNeededLater(const PageKey &key, NodeIndex node) const;
  Frame &frameOf(const PageKey &key) { return frames_[static_cast<std::size_t>(pages_[key].frame)]; }

  const Description &captured_;
  Description plan_;
  Random random_;
  std::uint64_t frameCount_;
  std::map<PageKey, Page> pages_; ///< of private buffers; of one that stays where it is, by its first address
  std::vector<BufferIndex> next_; ///< by buffer: the one that continues it
  std::vector<Frame> frames_;
  std::vector<NodeIndex> newNumber_; ///< by captured node
  std::map<std::pair<NodeIndex, NodeIndex>, EdgeKind> edges_;
};

/// In some plans a few touched pages are always in host memory.
void Planner::chooseHosted() {
  if (!random_.chance(25))
    return;
  std::set<PageKey> touched;
  for (const Node &node : captured_.nodes)
    for (const auto &[key, needs] : touchedPages(captured_, node))
      touched.insert(key);
  for (const PageKey &key : touched) {
    Buffer &buffer = plan_.buffers[key.first];
    const std::uint64_t offset = key.second * captured_.pageBytes;
    const std::uint64_t bytes = std::min(captured_.pageBytes, buffer.size - offset);
    if (isInChain(key.first) || !random_.chance(30))
      continue;
    if (!buffer.hosted.empty() && buffer.hosted.back().end() == offset)
      buffer.hosted.back().size += bytes;
    else
      buffer.hosted.push_back({offset, bytes});
  }
}

/// Those that a node touches and that are not hosted.
std::map<PageKey, PageNeeds> Planner::pagesOf(NodeIndex node) const {
  std::map<PageKey, PageNeeds> pages;
  for (const auto &[key, needs] : touchedPages(captured_, captured_.nodes[node]))
    if (!overlaps(plan_.buffers[key.first].hosted, {key.second * captured_.pageBytes, 1}))
      pages[pageAt(key)] = needs;
  return pages;
}

/// The page as it is known in `pages_`.
PageKey Planner::pageAt(const PageKey &address) const {
  PageKey key = address;
  while (!pages_.contains(key))
    key.first = captured_.buffers[key.first].continues;
  return key;
}

/// Often the one where the page comes from or goes on.
std::int32_t Planner::chooseFrame(const PageKey &key, const std::vector<std::int32_t> &possible) {
  for (const BufferIndex neighbour : {captured_.buffers[key.first].continues, next_[key.first]})
    if (neighbour != noBuffer && random_.chance(60) &&
        std::find(possible.begin(), possible.end(), pages_[{neighbour, key.second}].frame) != possible.end())
      return pages_[{neighbour, key.second}].frame;
  return possible[random_.below(possible.size())];
}

/// What goes on in its frame is one page.
void Planner::uniteAddresses() {
  for (BufferIndex buffer = 0; buffer < captured_.buffers.size(); ++buffer)
    for (std::uint64_t page = 0; isInChain(buffer) && page < captured_.pageCount(buffer); ++page) {
      const BufferIndex before = captured_.buffers[buffer].continues;
      if (before == noBuffer)
        continue;
      const PageKey earlier = pageAt({before, page});
      const Page &here = pages_[{buffer, page}];
      Page &there = pages_[earlier];
      if (here.frame != there.frame) {
        pages_[{buffer, page}].before = earlier;
        there.after = {buffer, page};
        continue;
      }
      there.needs.insert(here.needs.begin(), here.needs.end());
      pages_.erase({buffer, page});
    }
}

/// Greedy colouring in random order: two pages of one node need two frames.
bool Planner::chooseFrames() {
  std::int32_t next = 0;
  for (BufferIndex buffer = 0; buffer < captured_.buffers.size(); ++buffer) {
    std::vector<std::int32_t> &frames = plan_.buffers[buffer].frames;
    frames.assign(captured_.pageCount(buffer), noFrame);
    for (std::uint64_t page = 0; page < frames.size(); ++page)
      if (!captured_.buffers[buffer].isPrivate)
        frames[page] = next++;
      else if (!overlaps(plan_.buffers[buffer].hosted, {page * captured_.pageBytes, 1}))
        pages_[{buffer, page}] = {};
  }
  if (static_cast<std::uint64_t>(next) > frameCount_)
    return false;
  std::map<PageKey, std::set<PageKey>> together;
  for (NodeIndex node = 0; node < captured_.nodes.size(); ++node) {
    const std::map<PageKey, PageNeeds> touched = pagesOf(node);
    for (const auto &[left, leftNeeds] : touched) {
      pages_[left].needs[node] = leftNeeds.value;
      for (const auto &[right, rightNeeds] : touched)
        together[left].insert(right);
    }
  }
  std::vector<PageKey> keys;
  for (const auto &[key, page] : pages_)
    if (!page.needs.empty() || isInChain(key.first))
      keys.push_back(key);
  random_.shuffle(keys);
  for (const PageKey &key : keys) {
    std::vector<std::int32_t> possible;
    for (auto frame = next; frame < static_cast<std::int32_t>(frameCount_); ++frame)
      if (std::none_of(together[key].begin(), together[key].end(),
                       [&](const PageKey &other) { return pages_[other].frame == frame; }))
        possible.push_back(frame);
    if (possible.empty())
      return false;
    pages_[key].frame = chooseFrame(key, possible);
    plan_.buffers[key.first].frames[key.second] = pages_[key].frame;
  }
  frames_.resize(frameCount_);
  uniteAddresses();
  return true;
}

void Planner::chooseResidents() {
  std::vector<PageKey> keys;
  for (auto &[key, page] : pages_) {
    page.hasValue = captured_.buffers[key.first].liveIn;
    page.inHost = page.hasValue;
    if (page.frame != noFrame && captured_.buffers[key.first].liveOut)
      keys.push_back(key);
  }
  random_.shuffle(keys);
  for (const PageKey &key : keys) {
    Page &page = pages_[key];
    if (frameOf(key).occupant || random_.chance(40))
      continue;
    page.resident = true;
    page.mirrored = random_.chance(40);
    page.onDevice = page.hasValue;
    page.inHost = page.hasValue && page.mirrored;
    frameOf(key).occupant = key;
  }
  for (const auto &[key, page] : pages_) {
    Buffer &buffer = plan_.buffers[key.first];
    const std::uint64_t offset = key.second * captured_.pageBytes;
    const Range bytes{offset, std::min(captured_.pageBytes, buffer.size - offset)};
    if (page.resident)
      buffer.resident.push_back(bytes);
    if (page.mirrored)
      buffer.mirrored.push_back(bytes);
  }
}

void Planner::order(const std::vector<NodeIndex> &before, NodeIndex after) {
  for (const NodeIndex node : before)
    edges_[{node, after}] = EdgeKind::Full;
}

NodeIndex Planner::append(Node node) {
  plan_.nodes.push_back(std::move(node));
  return static_cast<NodeIndex>(plan_.nodes.size() - 1);
}

/// A buffer that names all of the pages.
BufferIndex Planner::someName(const std::vector<PageKey> &pages) {
  std::vector<BufferIndex> names{pages[0].first};
  const auto isName = [&](BufferIndex name) {
    return std::all_of(pages.begin(), pages.end(),
                       [&](const PageKey &key) { return pageAt({name, key.second}) == key; });
  };
  for (BufferIndex name = next_[names[0]]; name != noBuffer && isName(name); name = next_[name])
    names.push_back(name);
  return names.size() == 1 ? names[0] : names[random_.below(names.size())];
}

/// Where the value is that goes on in the page.
PageKey Planner::sourceOf(PageKey key) const {
  while (pages_.at(key).before && !pages_.at(key).hasBegun)
    key = *pages_.at(key).before;
  return key;
}

/// The page begins with what the one before left in host memory.
void Planner::takeOver(const PageKey &key) {
  Page &page = pages_[key];
  if (!page.before || std::exchange(page.hasBegun, true))
    return;
  takeOver(*page.before);
  Page &before = pages_[*page.before];
  page.hasValue = before.hasValue;
  page.inHost = before.inHost;
  page.waitsFor = frameOf(*page.before).occupant == page.before ? frameOf(*page.before).beforeNextBlock()
                  : before.lastInFrame.empty()                  ? before.waitsFor
                                                                : before.lastInFrame;
  before.hasValue = before.onDevice = false;
  before.isOver = true;
}

/// What the next block on the page's frame comes after, if it is one of the page.
std::vector<NodeIndex> Planner::beforeNextBlock(const PageKey &key) {
  const Frame &frame = frameOf(key);
  std::vector<NodeIndex> nodes = frame.beforeNextBlock();
  if (frame.occupant && frame.occupant != key)
    pages_[*frame.occupant].lastInFrame = nodes;
  const std::vector<NodeIndex> others = std::exchange(pages_[key].waitsFor, {});
  nodes.insert(nodes.end(), others.begin(), others.end());
  return nodes;
}

/// One node for pages that are neighbours.
void Planner::addTransfers(NodeKind kind, const std::vector<PageKey> &pages) {
  for (std::size_t begin = 0, end = 0; begin < pages.size(); begin = end) {
    end = begin + 1;
    const auto continues = [&](const PageKey &key) {
      return key.first == pages[begin].first && key.second == pages[end - 1].second + 1 &&
             std::none_of(pages.begin() + static_cast<std::ptrdiff_t>(begin),
                          pages.begin() + static_cast<std::ptrdiff_t>(end),
                          [&](const PageKey &other) { return pages_[other].frame == pages_[key].frame; });
    };
    while (end < pages.size() && continues(pages[end]))
      ++end;
    Node node;
    node.kind = kind;
    node.buffer = someName(
        {pages.begin() + static_cast<std::ptrdiff_t>(begin), pages.begin() + static_cast<std::ptrdiff_t>(end)});
    node.range.offset = pages[begin].second * captured_.pageBytes;
    node.range.size = std::min((pages[end - 1].second + 1) * captured_.pageBytes, captured_.buffers[node.buffer].size) -
                      node.range.offset;
    const NodeIndex index = append(std::move(node));
    for (std::size_t i = begin; i < end; ++i) {
      Page &page = pages_[pages[i]];
      Frame &frame = frameOf(pages[i]);
      if (kind == NodeKind::Evict) {
        evict(frame, index);
      } else {
        order(beforeNextBlock(pages[i]), index);
        frame = {pages[i], {index}, {}, {}, {}};
      }
      page.onDevice = kind == NodeKind::Discard ? !page.hasValue : page.onDevice || kind == NodeKind::Prefetch;
      page.inHost |= kind == NodeKind::Evict;
    }
  }
}

/// Some copies down wait for those who only read, most do not.
void Planner::evict(Frame &frame, NodeIndex node) {
  order(frame.beforeEvict(), node);
  if (random_.chance(30)) {
    order(frame.reads, node);
    frame.reads.clear();
  }
  frame.evict = {node};
  frame.writes.clear();
}

bool Planner::isNeededLater(const PageKey &key, NodeIndex node) const {
  const Page &page = pages_.at(key);
  if (const auto next = page.needs.lower_bound(node); next != page.needs.end())
    return next->second;
  return captured_.buffers[key.first].liveOut || (page.after && isNeededLater(*page.after, node));
}

/// Evicts or forgets the pages that `node` displaces, and fetches what it needs.
void Planner::makeRoom(const std::map<PageKey, PageNeeds> &pages, NodeIndex node) {
  std::set<PageKey> evicted;
  std::vector<PageKey> discarded;
  std::vector<PageKey> fetched;
  std::vector<PageKey> displaced;
  const auto isOnDeviceOnly = [](const Page &page) { return page.hasValue && page.onDevice && !page.inHost; };
  for (const auto &[key, needs] : pages) {
    if (const PageKey source = sourceOf(key); source != key && needs.value && isOnDeviceOnly(pages_[source]))
      evicted.insert(source);
    const Frame &frame = frameOf(key);
    if (frame.occupant && *frame.occupant != key) {
      const Page &old = pages_[*frame.occupant];
      if (isOnDeviceOnly(old) && isNeededLater(*frame.occupant, node))
        evicted.insert(*frame.occupant);
      else if (random_.chance(20) && !old.isOver)
        discarded.push_back(*frame.occupant);
      displaced.push_back(*frame.occupant);
    }
  }
  addTransfers(NodeKind::Evict, {evicted.begin(), evicted.end()});
  addTransfers(NodeKind::Discard, discarded);
  for (const PageKey &key : displaced)
    pages_[key].onDevice = false;
  for (const auto &[key, needs] : pages) {
    takeOver(key);
    if (pages_[key].hasValue && !pages_[key].onDevice && needs.value)
      fetched.push_back(key);
  }
  addTransfers(NodeKind::Prefetch, fetched);
}

void Planner::addNode(NodeIndex node) {
  const std::map<PageKey, PageNeeds> pages = pagesOf(node);
  makeRoom(pages, node);
  const NodeIndex index = append(captured_.nodes[node]);
  newNumber_.push_back(index);
  std::vector<PageKey> early;
  for (const auto &[key, needs] : pages) {
    Frame &frame = frameOf(key);
    if (frame.occupant != key)
      frame = {key, beforeNextBlock(key), {}, {}, {}};
    order(needs.write ? frame.beforeWrite() : frame.before, index);
    (needs.write ? frame.writes : frame.reads).push_back(index);
    Page &page = pages_[key];
    for (const Use &use : page.uses)
      if (use.address != needs.address && (use.write || needs.write))
        order({use.node}, index);
    page.uses.push_back({index, needs.address, needs.write});
    if (needs.write) {
      page.hasValue = page.onDevice = true;
      page.inHost = false;
    }
    if (page.hasValue && page.onDevice && !page.inHost && isNeededLater(key, node + 1) && random_.chance(15))
      early.push_back(key);
  }
  addTransfers(NodeKind::Evict, early);
}

void Planner::finish() {
  std::vector<PageKey> evicted;
  std::vector<PageKey> fetched;
  for (auto &[key, page] : pages_) {
    if (!captured_.buffers[key.first].liveOut || !page.hasValue)
      continue;
    const bool isDisplaced = page.frame != noFrame && frameOf(key).occupant != key;
    const bool neededInHost = !page.resident || page.mirrored;
    if (neededInHost && page.onDevice && !page.inHost && !isDisplaced)
      evicted.push_back(key);
    if (page.resident && !page.onDevice)
      fetched.push_back(key);
  }
  addTransfers(NodeKind::Evict, evicted);
  // Occupants that the boundary needs elsewhere have left by now, with what they had to leave behind.
  addTransfers(NodeKind::Prefetch, fetched);
}

std::optional<Description> Planner::run() {
  plan_.stage = Stage::Planned;
  plan_.nodes.clear();
  plan_.edges.clear();
  plan_.budgetBytes = frameCount_ * captured_.pageBytes;
  chooseHosted();
  if (!chooseFrames())
    return std::nullopt;
  chooseResidents();
  for (NodeIndex node = 0; node < captured_.nodes.size(); ++node)
    addNode(node);
  finish();
  for (const Edge &edge : captured_.edges) // an edge that has to be full stays full
    edges_.try_emplace({newNumber_[edge.from], newNumber_[edge.to]}, edge.kind);
  for (const Edge &edge : captured_.edges)
    if (edge.kind == EdgeKind::Full)
      edges_[{newNumber_[edge.from], newNumber_[edge.to]}] = EdgeKind::Full;
  for (const auto &[ends, kind] : edges_)
    plan_.edges.push_back({ends.first, ends.second, kind});
  return std::move(plan_);
}

} // namespace

std::optional<Description> simplePlan(const Description &captured, std::uint64_t frames, std::uint64_t seed) {
  return Planner(captured, frames, seed).run();
}

Description simpleLowering(const Description &planned) {
  Description lowered = planned;
  lowered.stage = Stage::LoweredVirtual;
  std::vector<std::uint64_t> hostBase;
  for (BufferIndex buffer = 0; buffer < planned.buffers.size(); ++buffer) {
    hostBase.push_back(lowered.hostBytes);
    lowered.hostBytes += planned.pageCount(buffer) * planned.pageBytes;
  }
  lowered.nodes.clear();
  lowered.edges.clear();
  std::vector<std::vector<NodeIndex>> standIns(planned.nodes.size()); ///< a discard: what it waits for
  std::map<std::pair<NodeIndex, NodeIndex>, EdgeKind> edges;
  for (NodeIndex index = 0; index < planned.nodes.size(); ++index) {
    Node node = planned.nodes[index];
    const bool isDropped = node.kind == NodeKind::Discard;
    const auto newIndex = static_cast<NodeIndex>(lowered.nodes.size());
    for (const Edge &edge : planned.edges)
      if (edge.to == index)
        for (const NodeIndex from : standIns[edge.from]) {
          if (isDropped)
            standIns[index].push_back(from);
          else if (edge.kind == EdgeKind::Full)
            edges[{from, newIndex}] = EdgeKind::Full;
          else
            edges.try_emplace({from, newIndex}, edge.kind);
        }
    if (isDropped)
      continue;
    standIns[index] = {newIndex};
    if (node.kind == NodeKind::Evict || node.kind == NodeKind::Prefetch) {
      node.kind = node.kind == NodeKind::Evict ? NodeKind::CopyToHost : NodeKind::CopyToDevice;
      node.hostOffset = hostBase[capturedBuffer(planned.buffers, node.buffer)] + node.range.offset;
    }
    lowered.nodes.push_back(std::move(node));
  }
  for (const auto &[ends, kind] : edges)
    lowered.edges.push_back({ends.first, ends.second, kind});
  return lowered;
}

} // namespace pumpgraph::test
