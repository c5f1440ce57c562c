// SPDX-License-Identifier: Apache-2.0
#include "pumpgraph/graph/Description.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string_view>
#include <unordered_map>
#include <unordered_set>

namespace pumpgraph {
namespace {

// The IR keeps byte counts in signed 64-bit attributes.
constexpr std::uint64_t largestByteCount = std::numeric_limits<std::int64_t>::max();

bool isNodeKind(std::uint8_t value) {
  const auto kind = static_cast<NodeKind>(value);
  return kind <= NodeKind::Opaque || isAdded(kind) || kind == NodeKind::Rematerialize;
}

bool hasRange(NodeKind kind) {
  return isResidency(kind) || isCopy(kind);
}

bool fits(const Range &range, std::uint64_t size) {
  return range.size > 0 && range.offset < size && range.size <= size - range.offset;
}

bool isPageAligned(const Range &range, std::uint64_t pageBytes, std::uint64_t bufferSize) {
  return range.offset % pageBytes == 0 && (range.size % pageBytes == 0 || range.end() == bufferSize);
}

std::string spell(const Range &range) {
  return fmt::format("[{}, {}]", range.offset, range.size);
}

/// Looks at one part of a description after the other and stops at the first fault. Every method returns the fault or
/// an empty string.
class Validator {
public:
  explicit Validator(const Description &description) : description_(description) {}

  std::string run() const {
    if (std::string fault = step(); !fault.empty())
      return fault;
    for (BufferIndex i = 0; i < description_.buffers.size(); ++i)
      if (const std::string fault = buffer(description_.buffers[i]); !fault.empty())
        return fmt::format("buffer {} \"{}\": {}", i, description_.buffers[i].name, fault);
    for (NodeIndex i = 0; i < description_.nodes.size(); ++i)
      if (const std::string fault = node(description_.nodes[i]); !fault.empty())
        return fmt::format("node {} \"{}\": {}", i, description_.nodes[i].name, fault);
    if (std::string fault = continuations(); !fault.empty())
      return fault;
    if (std::string fault = capturedPositions(); !fault.empty())
      return fault;
    if (std::string fault = repetitions(); !fault.empty())
      return fault;
    return edges();
  }

private:
  std::string step() const {
    if (description_.name.empty())
      return "the step has no name";
    if (description_.stage > Stage::LoweredManaged)
      return fmt::format("{} is not a stage of a step", static_cast<int>(description_.stage));
    if (description_.pageBytes == 0)
      return "the page size is 0 bytes";
    for (const std::uint64_t bytes : {description_.pageBytes, description_.budgetBytes, description_.hostBytes})
      if (bytes > largestByteCount)
        return fmt::format("{} bytes are more than can be represented", bytes);
    return {};
  }

  std::string buffer(const Buffer &buffer) const {
    if (buffer.size == 0 || buffer.size > largestByteCount)
      return fmt::format("its size is {} bytes", buffer.size);
    if (buffer.address > largestByteCount - buffer.size)
      return fmt::format("{} bytes at address {:#x} leave the address space", buffer.size, buffer.address);
    const std::uint64_t pages = (buffer.size - 1) / description_.pageBytes + 1;
    if (pages > mostPages)
      return fmt::format("it has {} pages; at most {} can be planned", pages, mostPages);
    if (!buffer.frames.empty() && buffer.frames.size() != pages)
      return fmt::format("it has {} pages but names {} frames", pages, buffer.frames.size());
    for (std::size_t page = 0; page < buffer.frames.size(); ++page)
      if (buffer.frames[page] < noFrame)
        return fmt::format("page {} names frame {}", page, buffer.frames[page]);
    if (std::string fault = stageFault(!buffer.frames.empty(), buffer.continues != noBuffer, description_.stage);
        !fault.empty())
      return "it " + fault;
    if (std::string fault = pageRanges(buffer, "resident", buffer.resident); !fault.empty())
      return fault;
    if (std::string fault = pageRanges(buffer, "mirrored", buffer.mirrored); !fault.empty())
      return fault;
    if (std::string fault = mirrored(buffer); !fault.empty())
      return fault;
    if (std::string fault = present(buffer); !fault.empty())
      return fault;
    if (std::string fault = pageRanges(buffer, "hosted", buffer.hosted); !fault.empty())
      return fault;
    return hosted(buffer);
  }

  std::string pageRanges(const Buffer &buffer, const char *state, const std::vector<Range> &ranges) const {
    std::uint64_t end = 0;
    for (const Range &range : ranges) {
      if (!fits(range, buffer.size))
        return fmt::format("the {} range {} is not inside its {} bytes", state, spell(range), buffer.size);
      if (!isPageAligned(range, description_.pageBytes, buffer.size))
        return fmt::format("the {} range {} is not made of whole pages of {} bytes", state, spell(range),
                           description_.pageBytes);
      if (range.offset < end)
        return fmt::format("the {} range {} begins before byte {}, where the one before it ends", state, spell(range),
                           end);
      end = range.end();
    }
    return {};
  }

  static std::string mirrored(const Buffer &buffer) {
    for (const Range &range : buffer.mirrored) {
      if (!buffer.isPrivate || !buffer.liveOut)
        return fmt::format("the range {} is mirrored, but the buffer is not {}", spell(range),
                           buffer.isPrivate ? "live-out" : "private");
      if (!covers(buffer.resident, range))
        return fmt::format("the mirrored range {} is not inside the resident ones", spell(range));
    }
    return {};
  }

  static std::string present(const Buffer &buffer) {
    if (!buffer.isPresent)
      return {};
    if (!buffer.isPrivate || !buffer.liveOut)
      return fmt::format("it is present, but not {}", buffer.isPrivate ? "live-out" : "private");
    if (!buffer.mirrored.empty())
      return fmt::format("it is present, but the range {} is mirrored", spell(buffer.mirrored.front()));
    return {};
  }

  static std::string hosted(const Buffer &buffer) {
    for (const Range &range : buffer.hosted) {
      if (!buffer.isPrivate)
        return fmt::format("the range {} is hosted, but the buffer is not private", spell(range));
      if (overlaps(buffer.resident, range))
        return fmt::format("the hosted range {} is resident in part", spell(range));
    }
    return {};
  }

  std::string continuations() const {
    std::unordered_set<BufferIndex> continued;
    for (BufferIndex i = 0; i < description_.buffers.size(); ++i) {
      const BufferIndex before = description_.buffers[i].continues;
      if (before == noBuffer)
        continue;
      const auto fault = [&](const std::string &what) {
        return fmt::format("buffer {} \"{}\" continues buffer {}, {}", i, description_.buffers[i].name, before, what);
      };
      if (before >= i)
        return fault("which does not come before it");
      if (description_.buffers[before].size != description_.buffers[i].size)
        return fault(fmt::format("which has {} bytes and not {}", description_.buffers[before].size,
                                 description_.buffers[i].size));
      if (!continued.insert(before).second)
        return fault("which another one continues as well");
    }
    return {};
  }

  std::string node(const Node &node) const {
    if (!isNodeKind(static_cast<std::uint8_t>(node.kind)))
      return fmt::format("{} is not a kind of node", static_cast<int>(node.kind));
    if (std::string fault = stageFault(node.kind, description_.stage); !fault.empty())
      return "it " + fault;
    if (node.captured < notCaptured)
      return fmt::format("{} is not a position in a captured graph", node.captured);
    if (!std::isnan(node.costUs) && !(node.costUs >= 0 && std::isfinite(node.costUs)))
      return fmt::format("its cost is {} us", node.costUs);
    if (!(node.arithmeticUs >= 0 && std::isfinite(node.arithmeticUs)))
      return fmt::format("its arithmetic takes {} us", node.arithmeticUs);
    if (node.isPure && !isRepeatable(node.kind) && node.kind != NodeKind::Rematerialize)
      return "it is pure, but no kernel, copy or fill";
    if (hasRange(node.kind))
      return transfer(node);
    for (std::size_t i = 0; i < node.accesses.size(); ++i)
      if (const std::string fault = access(node.accesses[i]); !fault.empty())
        return fmt::format("access #{}: {}", i, fault);
    return aside(node);
  }

  static std::string aside(const Node &node) {
    for (std::size_t i = 0; i < node.accesses.size(); ++i) {
      const auto fault = [&](const char *what) { return fmt::format("access #{}: it is aside, but {}", i, what); };
      if (!node.accesses[i].isAside)
        continue;
      if (node.kind == NodeKind::Rematerialize)
        return fault("a repetition leaves such accesses out");
      if (!node.isPure)
        return fault("the node is not pure");
      if (node.accesses[i].parameter == unknownParameter)
        return fault("its parameter is not known");
    }
    if (const std::size_t other = accessBesideOneAside(node.accesses); other < node.accesses.size())
      return fmt::format("access #{}: it is not aside, but another one of the same bytes is", other);
    return {};
  }

  std::string access(const Access &access) const {
    if (access.buffer >= description_.buffers.size())
      return fmt::format("there is no buffer {}", access.buffer);
    const std::uint64_t size = description_.buffers[access.buffer].size;
    if (!fits(access.range, size))
      return fmt::format("{} is not inside the {} bytes of its buffer", spell(access.range), size);
    if (access.may == modeNone || access.may > modeReadWrite)
      return fmt::format("{} is not a mode", access.may);
    if ((access.must & ~access.may) != 0)
      return fmt::format("it must do {} but may only do {}", access.must, access.may);
    if (access.evidence > Evidence::Allocated)
      return fmt::format("{} is not a kind of evidence", static_cast<int>(access.evidence));
    if (access.parameter < unknownParameter)
      return fmt::format("{} is not a position of a parameter", access.parameter);
    if (!isSlowdown(access.slowdown))
      return fmt::format("its slowdown is {}, no positive number", access.slowdown);
    return {};
  }

  std::string transfer(const Node &node) const {
    if (!node.accesses.empty())
      return "a node that moves a range has no accesses of its own";
    if (node.buffer >= description_.buffers.size())
      return fmt::format("there is no buffer {}", node.buffer);
    const Buffer &buffer = description_.buffers[node.buffer];
    if (!fits(node.range, buffer.size))
      return fmt::format("{} is not inside the {} bytes of its buffer", spell(node.range), buffer.size);
    if (!isPageAligned(node.range, description_.pageBytes, buffer.size))
      return fmt::format("{} is not made of whole pages of {} bytes", spell(node.range), description_.pageBytes);
    if (node.kind == NodeKind::Advise)
      return advice(node.advice);
    if (!buffer.isPrivate)
      return fmt::format("buffer {} \"{}\" is not private and may not leave the device", node.buffer, buffer.name);
    if (isCopy(node.kind) && node.hostOffset > largestByteCount - node.range.size)
      return fmt::format("host offset {} is more than can be represented", node.hostOffset);
    return {};
  }

  static std::string advice(Advice advice) {
    if (advice == Advice::None || advice > Advice::AccessedBy)
      return fmt::format("{} is not an advice", static_cast<int>(advice));
    return {};
  }

  std::string capturedPositions() const {
    std::unordered_set<std::int32_t> seen;
    for (NodeIndex i = 0; i < description_.nodes.size(); ++i) {
      const std::int32_t captured = description_.nodes[i].captured;
      if (captured != notCaptured && !seen.insert(captured).second)
        return fmt::format("node {} \"{}\": captured node {} occurs twice", i, description_.nodes[i].name, captured);
    }
    return {};
  }

  std::string repetitions() const {
    std::unordered_map<std::int32_t, NodeKind> repeatable; // of those before the node, by position
    for (NodeIndex i = 0; i < description_.nodes.size(); ++i) {
      const Node &node = description_.nodes[i];
      const auto fault = [&](const std::string &what) { return fmt::format("node {} \"{}\": {}", i, node.name, what); };
      if (node.captured != notCaptured)
        repeatable[node.captured] = node.kind;
      if (node.kind != NodeKind::Rematerialize) {
        if (node.repeats != notCaptured)
          return fault(fmt::format("it repeats captured node {}, but is not rematerialized", node.repeats));
        continue;
      }
      const auto original = repeatable.find(node.repeats);
      if (node.captured != notCaptured)
        return fault("it is rematerialized, but captured as well");
      if (original == repeatable.end())
        return fault(fmt::format("it repeats captured node {}, which does not come before it", node.repeats));
      if (!isRepeatable(original->second))
        return fault(fmt::format("it repeats captured node {}, which is no kernel, copy or fill", node.repeats));
    }
    return {};
  }

  std::string edges() const {
    std::unordered_set<std::uint64_t> seen;
    for (std::size_t i = 0; i < description_.edges.size(); ++i) {
      const Edge &edge = description_.edges[i];
      if (edge.to >= description_.nodes.size())
        return fmt::format("edge {}: there is no node {}", i, edge.to);
      if (edge.from >= edge.to)
        return fmt::format("edge {}: node {} comes after node {}, which depends on it", i, edge.from, edge.to);
      if (edge.kind > EdgeKind::Programmatic)
        return fmt::format("edge {}: {} is not a kind of edge", i, static_cast<int>(edge.kind));
      if (!seen.insert(std::uint64_t{edge.from} << 32 | edge.to).second)
        return fmt::format("edge {}: nodes {} and {} are joined twice", i, edge.from, edge.to);
    }
    return {};
  }

  const Description &description_;
};

std::string text(const char *string) {
  return string ? string : "";
}

/// A C array as the C++ vector of what `convert` makes of its elements. A missing array of some length is the fault of
/// the caller and is found by missingArray() before this is called.
template <typename To, typename From, typename Convert>
std::vector<To> copyArray(const From *array, std::uint64_t count, Convert convert) {
  std::vector<To> out;
  out.reserve(count);
  std::transform(array, array + count, std::back_inserter(out), convert);
  return out;
}

bool isMissing(const void *array, std::uint64_t count) {
  return !array && count > 0;
}

std::string missingArray(const pumpgraph_description &view) {
  if (isMissing(view.buffers, view.buffer_count))
    return fmt::format("{} buffers are announced but missing", view.buffer_count);
  if (isMissing(view.nodes, view.node_count))
    return fmt::format("{} nodes are announced but missing", view.node_count);
  if (isMissing(view.edges, view.edge_count))
    return fmt::format("{} edges are announced but missing", view.edge_count);
  for (std::uint64_t i = 0; i < view.buffer_count; ++i) {
    if (isMissing(view.buffers[i].frames, view.buffers[i].frame_count))
      return fmt::format("buffer {}: its frames are announced but missing", i);
    if (isMissing(view.buffers[i].resident, view.buffers[i].resident_count))
      return fmt::format("buffer {}: its resident ranges are announced but missing", i);
    if (isMissing(view.buffers[i].mirrored, view.buffers[i].mirrored_count))
      return fmt::format("buffer {}: its mirrored ranges are announced but missing", i);
    if (isMissing(view.buffers[i].hosted, view.buffers[i].hosted_count))
      return fmt::format("buffer {}: its hosted ranges are announced but missing", i);
  }
  for (std::uint64_t i = 0; i < view.node_count; ++i)
    if (isMissing(view.nodes[i].accesses, view.nodes[i].access_count))
      return fmt::format("node {}: its accesses are announced but missing", i);
  return {};
}

/// The C structs have wider or signless fields than the enums; a value that would be cut is mapped to one that
/// validate() refuses.
template <typename Enum> Enum narrow(std::uint32_t value) {
  return static_cast<Enum>(std::min<std::uint32_t>(value, std::numeric_limits<std::uint8_t>::max()));
}

Range rangeFromC(const pumpgraph_range &range) {
  return {range.offset, range.size};
}

Access accessFromC(const pumpgraph_access &access) {
  return {access.buffer,
          {access.offset, access.size},
          access.may,
          access.must,
          narrow<Evidence>(access.evidence),
          access.parameter,
          access.slowdown,
          access.aside != 0};
}

Buffer bufferFromC(const pumpgraph_buffer &buffer) {
  Buffer out;
  out.name = text(buffer.name);
  out.address = buffer.address;
  out.size = buffer.size;
  out.isPrivate = buffer.is_private != 0;
  out.liveIn = buffer.live_in != 0;
  out.liveOut = buffer.live_out != 0;
  out.isRenamable = buffer.renamable != 0;
  out.isPresent = buffer.present != 0;
  out.continues = buffer.continues;
  out.frames = copyArray<std::int32_t>(buffer.frames, buffer.frame_count, [](std::int32_t frame) { return frame; });
  out.resident = copyArray<Range>(buffer.resident, buffer.resident_count, rangeFromC);
  out.mirrored = copyArray<Range>(buffer.mirrored, buffer.mirrored_count, rangeFromC);
  out.hosted = copyArray<Range>(buffer.hosted, buffer.hosted_count, rangeFromC);
  return out;
}

Node nodeFromC(const pumpgraph_node &node) {
  Node out;
  out.kind = static_cast<NodeKind>(node.kind);
  out.captured = node.captured;
  out.repeats = node.repeats;
  out.isPure = node.pure != 0 && (isRepeatable(out.kind) || out.kind == NodeKind::Rematerialize);
  out.name = text(node.name);
  out.costUs = node.cost_us;
  out.accesses = copyArray<Access>(node.accesses, node.access_count, accessFromC);
  if (out.kind == NodeKind::Opaque)
    out.reason = text(node.reason);
  if (!hasRange(out.kind)) {
    out.label = text(node.label);
    out.arithmeticUs = node.arithmetic_us;
  }
  if (hasRange(out.kind)) {
    out.buffer = node.buffer;
    out.range = {node.offset, node.size};
  }
  if (out.kind == NodeKind::Advise)
    out.advice = narrow<Advice>(node.advice);
  if (isCopy(out.kind))
    out.hostOffset = node.host_offset;
  out.joined = node.joined != 0 && (movesUp(out.kind) || movesDown(out.kind));
  return out;
}

Edge edgeFromC(const pumpgraph_edge &edge) {
  return {edge.from, edge.to, narrow<EdgeKind>(edge.kind)};
}

pumpgraph_access accessToC(const Access &access) {
  pumpgraph_access out{};
  out.buffer = access.buffer;
  out.may = access.may;
  out.must = access.must;
  out.evidence = static_cast<std::uint8_t>(access.evidence);
  out.offset = access.range.offset;
  out.size = access.range.size;
  out.parameter = access.parameter;
  out.slowdown = access.slowdown;
  out.aside = access.isAside ? 1 : 0;
  return out;
}

std::vector<pumpgraph_range> rangesToC(const std::vector<Range> &ranges) {
  std::vector<pumpgraph_range> out;
  for (const Range &range : ranges)
    out.push_back({range.offset, range.size});
  return out;
}

pumpgraph_buffer bufferToC(const Buffer &buffer, const std::vector<pumpgraph_range> &resident,
                           const std::vector<pumpgraph_range> &mirrored, const std::vector<pumpgraph_range> &hosted) {
  pumpgraph_buffer out{};
  out.name = buffer.name.c_str();
  out.address = buffer.address;
  out.size = buffer.size;
  out.is_private = buffer.isPrivate;
  out.live_in = buffer.liveIn;
  out.live_out = buffer.liveOut;
  out.renamable = buffer.isRenamable;
  out.present = buffer.isPresent;
  out.continues = buffer.continues;
  out.frames = buffer.frames.data();
  out.frame_count = buffer.frames.size();
  out.resident = resident.data();
  out.resident_count = resident.size();
  out.mirrored = mirrored.data();
  out.mirrored_count = mirrored.size();
  out.hosted = hosted.data();
  out.hosted_count = hosted.size();
  return out;
}

pumpgraph_node nodeToC(const Node &node, const std::vector<pumpgraph_access> &accesses) {
  pumpgraph_node out{};
  out.kind = static_cast<std::uint8_t>(node.kind);
  out.captured = node.captured;
  out.repeats = node.repeats;
  out.pure = node.isPure ? 1 : 0;
  out.name = node.name.c_str();
  out.label = node.label.c_str();
  out.reason = node.reason.c_str();
  out.accesses = accesses.data();
  out.access_count = accesses.size();
  out.cost_us = node.costUs;
  out.arithmetic_us = node.arithmeticUs;
  out.buffer = node.buffer;
  out.advice = static_cast<std::uint32_t>(node.advice);
  out.offset = node.range.offset;
  out.size = node.range.size;
  out.host_offset = node.hostOffset;
  out.joined = node.joined ? 1 : 0;
  return out;
}

} // namespace

const char *stageName(Stage stage) {
  switch (stage) {
  case Stage::Captured:
    return "captured";
  case Stage::Planned:
    return "planned";
  case Stage::LoweredVirtual:
    return "lowered for virtual memory";
  case Stage::LoweredManaged:
    return "lowered for managed memory";
  }
  return "of no known stage";
}

std::string stageFault(NodeKind kind, Stage stage) {
  const bool isAdvice = kind == NodeKind::Advise;
  if (kind == NodeKind::Rematerialize)
    return stage == Stage::LoweredManaged ? fmt::format("is rematerialized, but the step is {}", stageName(stage)) : "";
  const bool fits = !isAdded(kind) || (stage == Stage::Planned && isOperation(kind)) ||
                    (stage == Stage::LoweredVirtual && isCopy(kind)) ||
                    (stage == Stage::LoweredManaged && isResidency(kind));
  if (fits)
    return {};
  return fmt::format("is {}, but the step is {}",
                     isCopy(kind) ? "a lowered copy"
                     : isAdvice   ? "advice"
                                  : "a plan's evict, prefetch or discard",
                     stageName(stage));
}

std::string stageFault(bool hasFrames, bool continues, Stage stage) {
  if (stage != Stage::Captured || (!hasFrames && !continues))
    return {};
  return fmt::format("{}, but the step is {}", hasFrames ? "names frames" : "continues another one", stageName(stage));
}

std::string wrongStage(const Description &step, std::initializer_list<Stage> stages) {
  if (std::find(stages.begin(), stages.end(), step.stage) != stages.end())
    return {};
  std::string wanted;
  for (const Stage &stage : stages)
    wanted += fmt::format("{}{}", wanted.empty() ? "" : &stage + 1 == stages.end() ? " or " : ", ", stageName(stage));
  return fmt::format("the step is {}; it has to be {}", stageName(step.stage), wanted);
}

BufferIndex capturedBuffer(const std::vector<Buffer> &buffers, BufferIndex buffer) {
  while (buffers[buffer].continues < buffer) // noBuffer is no smaller one, and nothing is in a damaged description
    buffer = buffers[buffer].continues;
  return buffer;
}

Description withNodesCut(const Description &step, const std::function<std::vector<Node>(const Node &)> &cut) {
  Description result = step;
  result.nodes.clear();
  result.edges.clear();
  std::vector<NodeIndex> first, last; // of what a node has become
  for (const Node &node : step.nodes) {
    first.push_back(static_cast<NodeIndex>(result.nodes.size()));
    for (Node &part : cut(node))
      result.nodes.push_back(std::move(part));
    last.push_back(static_cast<NodeIndex>(result.nodes.size() - 1));
    for (NodeIndex part = first.back(); part < last.back(); ++part)
      result.edges.push_back({part, part + 1, EdgeKind::Full});
  }
  for (const Edge &edge : step.edges)
    result.edges.push_back({last[edge.from], first[edge.to], edge.kind});
  return result;
}

bool covers(const std::vector<Range> &ranges, const Range &range) {
  std::uint64_t covered = range.offset; // up to here
  for (const Range &part : ranges)
    if (part.offset <= covered && covered < part.end())
      covered = part.end();
  return covered >= range.end();
}

bool overlaps(const std::vector<Range> &ranges, const Range &range) {
  return std::any_of(ranges.begin(), ranges.end(),
                     [&](const Range &other) { return other.offset < range.end() && range.offset < other.end(); });
}

std::size_t accessBesideOneAside(const std::vector<Access> &accesses) {
  const auto isBesideOneAside = [&](const Access &access) {
    return !access.isAside && std::any_of(accesses.begin(), accesses.end(), [&](const Access &other) {
      return other.isAside && other.buffer == access.buffer && other.range.overlaps(access.range);
    });
  };
  return static_cast<std::size_t>(std::find_if(accesses.begin(), accesses.end(), isBesideOneAside) - accesses.begin());
}

std::string validate(const Description &description) {
  return Validator(description).run();
}

DescriptionView::DescriptionView(const Description &description) {
  for (const Buffer &buffer : description.buffers) {
    resident_.push_back(rangesToC(buffer.resident));
    mirrored_.push_back(rangesToC(buffer.mirrored));
    hosted_.push_back(rangesToC(buffer.hosted));
    buffers_.push_back(bufferToC(buffer, resident_.back(), mirrored_.back(), hosted_.back()));
  }
  for (const Node &node : description.nodes) {
    std::vector<pumpgraph_access> &accesses = accesses_.emplace_back();
    std::transform(node.accesses.begin(), node.accesses.end(), std::back_inserter(accesses), accessToC);
    nodes_.push_back(nodeToC(node, accesses));
  }
  for (const Edge &edge : description.edges)
    edges_.push_back({edge.from, edge.to, static_cast<std::uint32_t>(edge.kind)});

  root_.version = PUMPGRAPH_DESCRIPTION_VERSION;
  root_.stage = static_cast<std::uint32_t>(description.stage);
  root_.name = description.name.c_str();
  root_.page_bytes = description.pageBytes;
  root_.budget_bytes = description.budgetBytes;
  root_.host_bytes = description.hostBytes;
  root_.buffers = buffers_.data();
  root_.buffer_count = buffers_.size();
  root_.nodes = nodes_.data();
  root_.node_count = nodes_.size();
  root_.edges = edges_.data();
  root_.edge_count = edges_.size();
}

bool fromC(const pumpgraph_description &view, Description &out, std::string &error) {
  if (view.version != PUMPGRAPH_DESCRIPTION_VERSION) {
    error = fmt::format("description version {}; this library knows version {}", view.version,
                        PUMPGRAPH_DESCRIPTION_VERSION);
    return false;
  }
  error = missingArray(view);
  if (!error.empty())
    return false;
  Description copy;
  copy.name = text(view.name);
  copy.stage = narrow<Stage>(view.stage);
  copy.pageBytes = view.page_bytes;
  copy.budgetBytes = view.budget_bytes;
  copy.hostBytes = view.host_bytes;
  copy.buffers = copyArray<Buffer>(view.buffers, view.buffer_count, bufferFromC);
  copy.nodes = copyArray<Node>(view.nodes, view.node_count, nodeFromC);
  copy.edges = copyArray<Edge>(view.edges, view.edge_count, edgeFromC);
  error = validate(copy);
  if (!error.empty())
    return false;
  out = std::move(copy);
  return true;
}

} // namespace pumpgraph
