// SPDX-License-Identifier: Apache-2.0
#include "test/unit/check/RandomGraph.h"

#include "test/unit/check/Random.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <set>
#include <utility>

namespace pumpgraph::test {

namespace {

using NodeSet = std::uint64_t;

NodeSet only(std::size_t node) {
  return NodeSet{1} << node;
}
bool contains(NodeSet set, std::size_t node) {
  return (set >> node & 1) != 0;
}

bool conflict(const Access &left, const Access &right) {
  const bool overlap =
      left.buffer == right.buffer && left.range.offset < right.range.end() && right.range.offset < left.range.end();
  return overlap && ((left.may | right.may) & modeWrite) != 0;
}

bool conflict(const Node &left, const Node &right) {
  for (const Access &first : left.accesses)
    for (const Access &second : right.accesses)
      if (conflict(first, second))
        return true;
  return false;
}

/// What is ordered before each node, as edges are added.
struct Order {
  std::array<NodeSet, maxNodes> completed{}; ///< paths of full edges
  std::array<NodeSet, maxNodes> direct{};    ///< edges of either kind
  std::array<NodeSet, maxNodes> any{};       ///< paths of either kind

  void add(const Edge &edge) {
    if (edge.kind == EdgeKind::Full)
      completed[edge.to] |= completed[edge.from] | only(edge.from);
    direct[edge.to] |= only(edge.from);
    any[edge.to] |= any[edge.from] | only(edge.from);
  }
};

struct Shape {
  std::size_t nodes = 0;
  std::size_t buffers = 0;
  std::size_t streams = 1;
  std::uint64_t pageBytes = 4;
  std::uint64_t maxBufferPages = 3;
  unsigned programmaticPercent = 0;
  unsigned partialPercent = 40;
  unsigned privatePercent = 80;
  unsigned livePercent = 35;
  unsigned mustPercent = 50; ///< accesses of kernels that must do something
  std::size_t maxAccesses = 3;
  std::size_t maxCostUs = 20;
  unsigned unknownCostPercent = 0;
  bool streamOrder = false; ///< conflicts may be ordered by any path
};

class Generator {
public:
  Generator(Random &random, const Shape &shape) : random_(random), shape_(shape) {}

  Description run() {
    step_.pageBytes = shape_.pageBytes;
    for (std::size_t i = 0; i < shape_.buffers; ++i)
      step_.buffers.push_back(buffer(i));
    lastOfStream_.assign(shape_.streams, -1);
    for (std::size_t i = 0; i < shape_.nodes; ++i)
      addNode(static_cast<NodeIndex>(i));
    return std::move(step_);
  }

private:
  Buffer buffer(std::size_t index);
  Range range(const Buffer &buffer);
  void fillAccesses(Node &node);
  Access access(std::uint8_t may, std::uint8_t must);
  std::size_t mustOf(std::uint8_t may) { return shape_.mustPercent > 50 ? may : random_.below(4) & may; }
  void addNode(NodeIndex index);
  void addEdge(NodeIndex from, NodeIndex to, EdgeKind kind);
  void orderConflicts(NodeIndex index);

  Random &random_;
  Shape shape_;
  Description step_;
  Order order_;
  std::vector<int> lastOfStream_;
};

Buffer Generator::buffer(std::size_t index) {
  Buffer buffer;
  buffer.name = fmt::format("b{}", index);
  const std::uint64_t most = shape_.maxBufferPages * shape_.pageBytes;
  buffer.size =
      random_.chance(50) ? random_.between(1, shape_.maxBufferPages) * shape_.pageBytes : random_.between(1, most);
  buffer.isPrivate = random_.chance(shape_.privatePercent);
  buffer.liveIn = random_.chance(shape_.livePercent);
  buffer.liveOut = random_.chance(30) || (buffer.isPrivate && buffer.liveIn);
  return buffer;
}

Range Generator::range(const Buffer &buffer) {
  if (!random_.chance(shape_.partialPercent))
    return {0, buffer.size};
  const std::uint64_t begin = random_.below(buffer.size);
  return {begin, random_.between(1, buffer.size - begin)};
}

Access Generator::access(std::uint8_t may, std::uint8_t must) {
  Access access;
  access.buffer = static_cast<BufferIndex>(random_.below(step_.buffers.size()));
  access.range = range(step_.buffers[access.buffer]);
  access.may = may;
  access.must = must;
  access.evidence = must == modeNone ? Evidence::Assumed : Evidence::Declared;
  return access;
}

void Generator::fillAccesses(Node &node) {
  if (node.kind == NodeKind::Empty)
    return;
  if (node.kind == NodeKind::Memset) {
    node.accesses.push_back(access(modeWrite, modeWrite));
    return;
  }
  if (node.kind == NodeKind::Memcpy) {
    node.accesses.push_back(access(modeRead, modeRead));
    node.accesses.push_back(access(modeWrite, modeWrite));
    return;
  }
  const std::size_t count = random_.chance(5) ? 0 : random_.between(1, shape_.maxAccesses);
  for (std::size_t i = 0; i < count; ++i) {
    const auto may = static_cast<std::uint8_t>(random_.between(modeRead, modeReadWrite));
    const auto must = static_cast<std::uint8_t>(random_.chance(shape_.mustPercent) ? mustOf(may) : 0);
    node.accesses.push_back(access(may, must));
  }
}

void Generator::addNode(NodeIndex index) {
  Node node;
  node.captured = static_cast<std::int32_t>(index);
  node.name = fmt::format("n{}", index);
  const std::size_t kind = random_.below(100);
  node.kind = kind < 70   ? NodeKind::Kernel
              : kind < 80 ? NodeKind::Memcpy
              : kind < 90 ? NodeKind::Memset
              : kind < 95 ? NodeKind::Empty
              : kind < 98 ? NodeKind::ChildGraph
                          : NodeKind::Opaque;
  if (!random_.chance(shape_.unknownCostPercent))
    node.costUs = static_cast<double>(random_.between(0, shape_.maxCostUs));
  fillAccesses(node);
  const bool isKernel = node.kind == NodeKind::Kernel;
  step_.nodes.push_back(std::move(node));

  const std::size_t stream = random_.below(shape_.streams);
  if (const int last = lastOfStream_[stream]; last >= 0) {
    const bool programmatic =
        isKernel && step_.nodes[last].kind == NodeKind::Kernel && random_.chance(shape_.programmaticPercent);
    addEdge(static_cast<NodeIndex>(last), index, programmatic ? EdgeKind::Programmatic : EdgeKind::Full);
  }
  lastOfStream_[stream] = static_cast<int>(index);
  if (index > 0 && random_.chance(15))
    addEdge(static_cast<NodeIndex>(random_.below(index)), index, EdgeKind::Full);
  orderConflicts(index);
}

/// Leaves an edge that is there already as it is.
void Generator::addEdge(NodeIndex from, NodeIndex to, EdgeKind kind) {
  if (contains(order_.direct[to], from))
    return;
  step_.edges.push_back({from, to, kind});
  order_.add(step_.edges.back());
}

void Generator::orderConflicts(NodeIndex index) {
  for (NodeIndex earlier = index; earlier-- > 0;) {
    const NodeSet ordered = shape_.streamOrder ? order_.any[index] : order_.completed[index] | order_.direct[index];
    if (!contains(ordered, earlier) && conflict(step_.nodes[earlier], step_.nodes[index]))
      addEdge(earlier, index, EdgeKind::Full);
  }
}

} // namespace

Description randomStep(std::uint64_t seed) {
  Random random(seed);
  Shape shape;
  const std::size_t size = random.below(100);
  shape.nodes = size < 40 ? random.between(3, 9) : size < 85 ? random.between(8, 20) : random.between(20, 40);
  shape.buffers = std::min<std::size_t>(std::max(random.between(1, 12), random.between(1, 12)), shape.nodes + 2);
  shape.streams = random.chance(30) ? 1 : random.between(2, 4);
  constexpr std::array<std::uint64_t, 6> pageSizes{1, 2, 4, 4, 4, 8};
  shape.pageBytes = pageSizes[random.below(pageSizes.size())];
  shape.maxBufferPages = random.chance(95) ? random.between(1, 3) : 8;
  shape.programmaticPercent = random.chance(50) ? 40 : 0;
  shape.partialPercent = random.chance(50) ? 40 : 0;
  shape.streamOrder = random.chance(30);
  shape.unknownCostPercent = random.chance(10) ? 30 : 0;
  return Generator(random, shape).run();
}

Description tinyStep(std::uint64_t seed) {
  Random random(seed);
  Shape shape;
  shape.nodes = random.between(4, 6);
  shape.buffers = random.between(3, 4);
  shape.streams = random.chance(70) ? 1 : 2;
  shape.maxBufferPages = random.between(1, 2);
  shape.partialPercent = random.chance(30) ? 30 : 0;
  shape.privatePercent = 95;
  shape.livePercent = 60;
  shape.mustPercent = 80;
  shape.maxAccesses = random.between(1, 2);
  shape.maxCostUs = random.chance(60) ? 2 : 8;
  return Generator(random, shape).run();
}

Description withOtherAddresses(Description step, std::uint64_t seed) {
  Random random(mix(seed, 4));
  const std::size_t captured = step.buffers.size();
  for (BufferIndex buffer = 0; buffer < captured; ++buffer) {
    BufferIndex latest = buffer;
    bool isFirst = true;
    for (NodeIndex node = 0; node < step.nodes.size() && step.buffers[buffer].isRenamable; ++node) {
      const auto uses = [&](const Access &access) { return access.buffer == latest; };
      const std::vector<Access> &accesses = step.nodes[node].accesses;
      if (std::none_of(accesses.begin(), accesses.end(), uses) || std::exchange(isFirst, false) || random.chance(50))
        continue;
      Buffer next = step.buffers[latest];
      next.continues = latest;
      step.buffers.push_back(next);
      for (NodeIndex later = node; later < step.nodes.size(); ++later)
        for (Access &access : step.nodes[later].accesses)
          if (uses(access))
            access.buffer = static_cast<BufferIndex>(step.buffers.size() - 1);
      latest = static_cast<BufferIndex>(step.buffers.size() - 1);
    }
  }
  return step;
}

void makeRenamable(Description &captured) {
  for (Buffer &buffer : captured.buffers)
    buffer.isRenamable = buffer.isPrivate && !buffer.liveIn && !buffer.liveOut;
}

std::uint64_t pagesThatStay(const Description &planned) {
  std::uint64_t count = 0;
  for (const Buffer &buffer : planned.buffers)
    for (std::size_t page = 0; buffer.continues != noBuffer && page < buffer.frames.size(); ++page)
      count += buffer.frames[page] != noFrame && buffer.frames[page] == planned.buffers[buffer.continues].frames[page];
  return count;
}

bool isRaceFree(const Description &captured) {
  Order order;
  std::vector<Edge> edges = captured.edges;
  std::sort(edges.begin(), edges.end(), [](const Edge &left, const Edge &right) { return left.to < right.to; });
  for (const Edge &edge : edges)
    order.add(edge);
  for (NodeIndex later = 0; later < captured.nodes.size(); ++later)
    for (NodeIndex earlier = 0; earlier < later; ++earlier)
      if (!contains(order.any[later], earlier) && conflict(captured.nodes[earlier], captured.nodes[later]))
        return false;
  return true;
}

std::uint64_t totalPages(const Description &description) {
  std::uint64_t pages = 0;
  for (BufferIndex buffer = 0; buffer < description.buffers.size(); ++buffer)
    pages += description.pageCount(buffer);
  return pages;
}

std::uint64_t leastFrames(const Description &captured) {
  std::uint64_t exclusive = 0;
  for (BufferIndex buffer = 0; buffer < captured.buffers.size(); ++buffer)
    exclusive += captured.buffers[buffer].isPrivate ? 0 : captured.pageCount(buffer);
  std::uint64_t widest = 0;
  for (const Node &node : captured.nodes) {
    std::set<std::pair<BufferIndex, std::uint64_t>> pages;
    for (const Access &access : node.accesses)
      if (captured.buffers[access.buffer].isPrivate && access.range.size > 0)
        for (std::uint64_t page = access.range.offset / captured.pageBytes;
             page * captured.pageBytes < access.range.end(); ++page)
          pages.insert({access.buffer, page});
    widest = std::max<std::uint64_t>(widest, pages.size());
  }
  return exclusive + widest;
}

namespace {

/// Its predecessors come to precede its successors, so that the rest of the step stays ordered as it was.
Description withoutNode(const Description &step, NodeIndex gone) {
  Description smaller = step;
  smaller.nodes.erase(smaller.nodes.begin() + gone);
  for (std::size_t i = 0; i < smaller.nodes.size(); ++i)
    smaller.nodes[i].captured = static_cast<std::int32_t>(i);
  std::set<std::pair<NodeIndex, NodeIndex>> present;
  const auto renumbered = [&](NodeIndex node) { return node > gone ? node - 1 : node; };
  smaller.edges.clear();
  for (const Edge &edge : step.edges)
    if (edge.from != gone && edge.to != gone) {
      smaller.edges.push_back({renumbered(edge.from), renumbered(edge.to), edge.kind});
      present.insert({edge.from, edge.to});
    }
  for (const Edge &in : step.edges)
    for (const Edge &out : step.edges)
      if (in.to == gone && out.from == gone && present.insert({in.from, out.to}).second)
        smaller.edges.push_back({renumbered(in.from), renumbered(out.to), EdgeKind::Full});
  return smaller;
}

Description withoutBuffer(const Description &step, BufferIndex gone) {
  Description smaller = step;
  smaller.buffers.erase(smaller.buffers.begin() + gone);
  for (Node &node : smaller.nodes) {
    std::erase_if(node.accesses, [&](const Access &access) { return access.buffer == gone; });
    for (Access &access : node.accesses)
      access.buffer -= access.buffer > gone;
  }
  return smaller;
}

/// All ranges cut to the first page.
Description withSmallBuffer(const Description &step, BufferIndex buffer) {
  Description smaller = step;
  const std::uint64_t size = step.pageBytes;
  smaller.buffers[buffer].size = size;
  for (Node &node : smaller.nodes) {
    std::erase_if(node.accesses,
                  [&](const Access &access) { return access.buffer == buffer && access.range.offset >= size; });
    for (Access &access : node.accesses)
      if (access.buffer == buffer)
        access.range.size = std::min(access.range.end(), size) - access.range.offset;
  }
  return smaller;
}

} // namespace

std::vector<Description> simplerSteps(const Description &captured) {
  std::vector<Description> simpler;
  const auto addChanged = [&](auto change) {
    simpler.push_back(captured);
    change(simpler.back());
  };
  for (NodeIndex node = 0; node < captured.nodes.size(); ++node)
    simpler.push_back(withoutNode(captured, node));
  for (BufferIndex buffer = 0; buffer < captured.buffers.size(); ++buffer) {
    simpler.push_back(withoutBuffer(captured, buffer));
    if (captured.buffers[buffer].size > captured.pageBytes)
      simpler.push_back(withSmallBuffer(captured, buffer));
  }
  for (std::size_t edge = 0; edge < captured.edges.size(); ++edge) {
    addChanged([&](Description &step) { step.edges.erase(step.edges.begin() + static_cast<std::ptrdiff_t>(edge)); });
    if (captured.edges[edge].kind == EdgeKind::Programmatic)
      addChanged([&](Description &step) { step.edges[edge].kind = EdgeKind::Full; });
  }
  for (std::size_t node = 0; node < captured.nodes.size(); ++node) {
    for (std::size_t i = 0; i < captured.nodes[node].accesses.size(); ++i) {
      const Access &access = captured.nodes[node].accesses[i];
      addChanged([&](Description &step) {
        std::vector<Access> &accesses = step.nodes[node].accesses;
        accesses.erase(accesses.begin() + static_cast<std::ptrdiff_t>(i));
      });
      if (access.may == modeReadWrite)
        for (const std::uint8_t mode : {modeRead, modeWrite})
          addChanged([&](Description &step) {
            step.nodes[node].accesses[i].may = mode;
            step.nodes[node].accesses[i].must &= mode;
          });
      if (access.slowdown != 1)
        addChanged([&](Description &step) { step.nodes[node].accesses[i].slowdown = 1; });
      if (access.isAside)
        addChanged([&](Description &step) { step.nodes[node].accesses[i].isAside = false; });
      const Range whole{0, captured.buffers[access.buffer].size};
      if (access.range != whole)
        addChanged([&](Description &step) { step.nodes[node].accesses[i].range = whole; });
    }
    if (captured.nodes[node].costUs > 0)
      addChanged([&](Description &step) { step.nodes[node].costUs = 0; });
  }
  for (std::size_t buffer = 0; buffer < captured.buffers.size(); ++buffer)
    if (captured.buffers[buffer].liveIn || captured.buffers[buffer].liveOut)
      addChanged([&](Description &step) { step.buffers[buffer].liveIn = step.buffers[buffer].liveOut = false; });
  return simpler;
}

namespace {

const char *modeText(std::uint8_t mode) {
  constexpr std::array<const char *, 4> texts{"-", "read", "write", "readwrite"};
  return texts[mode & 3];
}

const char *kindText(NodeKind kind) {
  switch (kind) {
  case NodeKind::Kernel:
    return "kernel";
  case NodeKind::Memcpy:
    return "memcpy";
  case NodeKind::Memset:
    return "memset";
  case NodeKind::Empty:
    return "empty";
  case NodeKind::ChildGraph:
    return "child graph";
  case NodeKind::Opaque:
    return "opaque";
  case NodeKind::Evict:
    return "evict";
  case NodeKind::Prefetch:
    return "prefetch";
  case NodeKind::Discard:
    return "discard";
  case NodeKind::Rematerialize:
    return "rematerialize";
  case NodeKind::CopyToHost:
    return "copy to host";
  case NodeKind::CopyToDevice:
    return "copy to device";
  default:
    return "other";
  }
}

} // namespace

std::string toText(const Description &description) {
  std::string text =
      fmt::format("page {} budget {} host {}\n", description.pageBytes, description.budgetBytes, description.hostBytes);
  for (BufferIndex index = 0; index < description.buffers.size(); ++index) {
    const Buffer &buffer = description.buffers[index];
    text += fmt::format("buffer {} \"{}\" size {} {}{}{}", index, buffer.name, buffer.size,
                        buffer.isPrivate ? "private" : "exclusive", buffer.liveIn ? " live-in" : "",
                        buffer.liveOut ? " live-out" : "");
    if (buffer.isRenamable)
      text += " renamable";
    if (buffer.continues != noBuffer)
      text += fmt::format(" continues b{}", buffer.continues);
    if (!buffer.frames.empty())
      text += fmt::format(" frames {}", fmt::join(buffer.frames, ","));
    for (const Range &range : buffer.resident)
      text += fmt::format(" resident [{}, {})", range.offset, range.end());
    for (const Range &range : buffer.mirrored)
      text += fmt::format(" mirrored [{}, {})", range.offset, range.end());
    for (const Range &range : buffer.hosted)
      text += fmt::format(" hosted [{}, {})", range.offset, range.end());
    text += '\n';
  }
  for (NodeIndex index = 0; index < description.nodes.size(); ++index) {
    const Node &node = description.nodes[index];
    text += fmt::format("node {} {}", index, kindText(node.kind));
    if (isResidency(node.kind) || isCopy(node.kind))
      text += fmt::format(" b{} [{}, {}) at {}", node.buffer, node.range.offset, node.range.end(), node.hostOffset);
    else if (node.kind == NodeKind::Rematerialize)
      text += fmt::format(" of captured {}", node.repeats);
    else
      text += fmt::format(" captured {} cost {}", node.captured, node.costUs);
    if (node.isPure)
      text += " pure";
    for (const Access &access : node.accesses)
      text += fmt::format("; {} b{} [{}, {}) must {}{}{}", modeText(access.may), access.buffer, access.range.offset,
                          access.range.end(), modeText(access.must),
                          access.slowdown == 1 ? "" : fmt::format(" slowdown {}", access.slowdown),
                          access.isAside ? " aside" : "");
    std::string after;
    for (const Edge &edge : description.edges)
      if (edge.to == index)
        after += fmt::format(" {}{}", edge.from, edge.kind == EdgeKind::Programmatic ? "p" : "");
    text += after.empty() ? "\n" : fmt::format("; after{}\n", after);
  }
  return text;
}

} // namespace pumpgraph::test
