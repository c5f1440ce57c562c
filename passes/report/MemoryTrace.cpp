// SPDX-License-Identifier: Apache-2.0
// The snapshot's keys are those of torch.cuda.memory._snapshot(), as its documentation lists them
// (torch/cuda/memory.py).
#include "passes/report/MemoryTrace.h"

#include "passes/analysis/Occupancy.h"
#include "passes/report/NodeName.h"
#include "passes/report/Pickle.h"
#include "passes/report/Units.h"
#include "pumpgraph/graph/Printable.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <queue>
#include <utility>

namespace pumpgraph {

namespace {

/// Any will do: nobody looks behind the addresses of a snapshot. Sums with it stay exact in floating point.
constexpr std::uint64_t segmentAddress = std::uint64_t{1} << 44;
/// Budgets beyond this are none, and not drawn.
constexpr std::uint64_t mostDrawnBytes = std::uint64_t{1} << 46;

class Tracer {
public:
  Tracer(const Description &step, const Prediction &prediction)
      : step_(step), tenancies_(tenancies(step, prediction.nodes)) {}

  MemoryTrace trace() {
    findSize();
    findRepeated();
    trace_.address = segmentAddress;
    for (std::size_t i = 0; i < tenancies_.size(); ++i) {
      freeUntil(tenancies_[i].beginUs);
      add(i, false);
      if (std::isfinite(tenancies_[i].endUs))
        alive_.push({tenancies_[i].endUs, i});
    }
    freeUntil(HUGE_VAL);
    addBlocks();
    return std::move(trace_);
  }

private:
  using Line = MemoryTrace::Line;
  using Page = std::pair<BufferIndex, std::uint64_t>;
  using End = std::pair<double, std::size_t>;

  void findSize() {
    std::uint64_t pages = step_.budgetBytes <= mostDrawnBytes ? step_.budgetBytes / step_.pageBytes : 0;
    for (const Tenancy &tenancy : tenancies_)
      pages = std::max(pages, static_cast<std::uint64_t>(tenancy.firstFrame) + tenancy.pages);
    trace_.bytes = pages * step_.pageBytes;
  }

  std::uint64_t addressOf(const Tenancy &tenancy) const {
    return segmentAddress + static_cast<std::uint64_t>(tenancy.firstFrame) * step_.pageBytes;
  }
  std::uint64_t bytesOf(const Tenancy &tenancy) const { return tenancy.pages * step_.pageBytes; }

  /// Which tenancies end because the value is made again later.
  void findRepeated() {
    std::map<Page, NodeIndex> next; ///< with what the page comes back
    repeated_.resize(tenancies_.size(), noNode);
    for (std::size_t i = tenancies_.size(); i-- > 0;) {
      const Tenancy &tenancy = tenancies_[i];
      const BufferIndex buffer = capturedBuffer(step_.buffers, tenancy.buffer);
      const auto found = next.find({buffer, tenancy.firstPage});
      if (found != next.end() && found->second != noNode && step_.nodes[found->second].kind == NodeKind::Rematerialize)
        repeated_[i] = found->second;
      for (std::uint64_t page = 0; page < tenancy.pages; ++page)
        next[{buffer, tenancy.firstPage + page}] = tenancy.arrival;
    }
  }

  void freeUntil(double us) {
    for (; !alive_.empty() && alive_.top().first <= us; alive_.pop())
      add(alive_.top().second, true);
  }

  void add(std::size_t index, bool isFree) {
    const Tenancy &tenancy = tenancies_[index];
    std::vector<Line> lines{pagesLine(tenancy)};
    if (!isFree)
      lines.push_back(arrivalLine(tenancy));
    lines.push_back(departureLine(index));
    trace_.events.push_back(
        {isFree, addressOf(tenancy), bytesOf(tenancy), isFree ? tenancy.endUs : tenancy.beginUs, std::move(lines)});
  }

  Line pagesLine(const Tenancy &tenancy) const {
    const Buffer &buffer = step_.buffers[tenancy.buffer];
    const std::uint64_t begin = tenancy.firstPage * step_.pageBytes;
    const std::uint64_t end = std::min(begin + bytesOf(tenancy), buffer.size);
    return {printable(buffer.name), 0,
            begin == 0 && end == buffer.size ? fmt::format("all of its {} bytes", end)
                                             : fmt::format("bytes {} to {} of {}", begin, end, buffer.size)};
  }

  Line nodeLine(NodeIndex node, std::string text) const {
    const std::int32_t position = computedNode(step_.nodes[node]);
    return {printable(displayName(step_.nodes[node])), position < 0 ? 0 : static_cast<std::uint64_t>(position),
            std::move(text)};
  }
  static Line boundaryLine(std::string text) { return {"step boundary", 0, std::move(text)}; }

  Line arrivalLine(const Tenancy &tenancy) const {
    if (!step_.buffers[tenancy.buffer].isPrivate)
      return boundaryLine("on the device at all times");
    if (tenancy.arrival == noNode)
      return boundaryLine("on the device since before the step");
    const std::string when = formatMicroseconds(tenancy.beginUs);
    const Node &arrival = step_.nodes[tenancy.arrival];
    if (arrival.kind == NodeKind::Rematerialize)
      return nodeLine(tenancy.arrival, fmt::format("made again by this node at {}", when));
    if (!movesUp(arrival.kind))
      return nodeLine(tenancy.arrival, fmt::format("first used by this node at {}", when));
    return tenancy.firstUse == noNode
               ? boundaryLine(fmt::format("copied back from the host at {}, for the next replay", when))
               : nodeLine(tenancy.firstUse, fmt::format("copied back from the host at {}, for this node", when));
  }

  Line departureLine(std::size_t index) const {
    const Tenancy &tenancy = tenancies_[index];
    if (!std::isfinite(tenancy.endUs))
      return boundaryLine("stays on the device between replays");
    const std::string becomes = tenancy.hostHasIt            ? "in host memory"
                                : repeated_[index] != noNode ? "dropped, to be made again"
                                                             : "not needed any more";
    const std::string when = formatMicroseconds(tenancy.endUs);
    return tenancy.lastUse == noNode
               ? boundaryLine(fmt::format("{} from {} on", becomes, when))
               : nodeLine(tenancy.lastUse, fmt::format("last used by this node, {} from {} on", becomes, when));
  }

  /// What is there at the end, and the gaps between.
  void addBlocks() {
    std::map<std::uint64_t, std::size_t> atEnd;
    for (std::size_t i = 0; i < tenancies_.size(); ++i)
      if (!std::isfinite(tenancies_[i].endUs))
        atEnd.emplace(addressOf(tenancies_[i]), i);
    std::uint64_t address = segmentAddress;
    for (const auto &[begin, index] : atEnd) {
      const Tenancy &tenancy = tenancies_[index];
      if (address < begin)
        trace_.blocks.push_back({begin - address, 0, {}});
      const std::uint64_t left = step_.buffers[tenancy.buffer].size - tenancy.firstPage * step_.pageBytes;
      trace_.blocks.push_back({bytesOf(tenancy),
                               std::min(bytesOf(tenancy), left),
                               {pagesLine(tenancy), arrivalLine(tenancy), departureLine(index)}});
      address = begin + bytesOf(tenancy);
    }
    if (address < segmentAddress + trace_.bytes)
      trace_.blocks.push_back({segmentAddress + trace_.bytes - address, 0, {}});
  }

  const Description &step_;
  const std::vector<Tenancy> tenancies_;
  std::vector<NodeIndex> repeated_; ///< by tenancy: the node that makes the value again
  std::priority_queue<End, std::vector<End>, std::greater<>> alive_;
  MemoryTrace trace_;
};

void write(Pickle &pickle, const char *key, std::uint64_t value) {
  pickle.key(key).integer(static_cast<std::int64_t>(value));
}

void writeLines(Pickle &pickle, const std::vector<MemoryTrace::Line> &lines) {
  pickle.key("frames").beginList();
  for (const MemoryTrace::Line &line : lines) {
    pickle.beginDict();
    pickle.key("filename").text(line.subject);
    write(pickle, "line", line.number);
    pickle.key("name").text(line.text);
    pickle.endDict();
  }
  pickle.endList();
}

void writeEvent(Pickle &pickle, const char *action, const MemoryTrace::Event &event) {
  pickle.beginDict();
  pickle.key("action").text(action);
  write(pickle, "addr", event.address);
  write(pickle, "size", event.bytes);
  write(pickle, "stream", 0);
  write(pickle, "time_us", static_cast<std::uint64_t>(std::max(event.atUs, 0.0)));
  writeLines(pickle, event.lines);
  pickle.endDict();
}

void writeEvents(Pickle &pickle, const MemoryTrace &trace) {
  constexpr std::size_t itemsAtOnce = 1000;
  pickle.beginList();
  writeEvent(pickle, "segment_alloc", {false, trace.address, trace.bytes, 0, {}});
  std::size_t events = 1;
  const auto add = [&](const char *action, const MemoryTrace::Event &event) {
    if (events++ % itemsAtOnce == 0)
      pickle.nextItems();
    writeEvent(pickle, action, event);
  };
  for (const MemoryTrace::Event &event : trace.events) {
    add(event.isFree ? "free_requested" : "alloc", event);
    if (event.isFree)
      add("free_completed", event);
  }
  pickle.endList();
}

void writeBlocks(Pickle &pickle, const MemoryTrace &trace) {
  std::uint64_t address = trace.address, taken = 0, used = 0;
  pickle.key("blocks").beginList();
  for (const MemoryTrace::Block &block : trace.blocks) {
    pickle.beginDict();
    write(pickle, "address", address);
    write(pickle, "size", block.bytes);
    write(pickle, "requested_size", block.usedBytes);
    pickle.key("state").text(block.usedBytes > 0 ? "active_allocated" : "inactive");
    writeLines(pickle, block.lines);
    pickle.endDict();
    address += block.bytes;
    taken += block.usedBytes > 0 ? block.bytes : 0;
    used += block.usedBytes;
  }
  pickle.endList();
  write(pickle, "allocated_size", taken);
  write(pickle, "active_size", taken);
  write(pickle, "requested_size", used);
}

} // namespace

MemoryTrace traceMemory(const Description &step, const Prediction &prediction) {
  return Tracer(step, prediction).trace();
}

std::string toPickle(const MemoryTrace &trace) {
  Pickle pickle;
  pickle.beginDict();
  pickle.key("segments").beginList();
  pickle.beginDict();
  write(pickle, "device", 0);
  write(pickle, "address", trace.address);
  write(pickle, "total_size", trace.bytes);
  write(pickle, "stream", 0);
  pickle.key("segment_type").text("large");
  pickle.key("segment_pool_id").pair(0, 0);
  pickle.key("is_expandable").boolean(false);
  writeLines(pickle, {});
  writeBlocks(pickle, trace);
  pickle.endDict();
  pickle.endList();
  pickle.key("device_traces").beginList();
  writeEvents(pickle, trace);
  pickle.endList();
  pickle.endDict();
  return pickle.take();
}

} // namespace pumpgraph
