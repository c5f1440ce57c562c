// SPDX-License-Identifier: Apache-2.0
#include "passes/analysis/HostedAccess.h"

#include "pumpgraph/graph/HostedChains.h"
#include "pumpgraph/graph/Reliance.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <utility>

namespace pumpgraph {

namespace {

/// Clocks have it that a node takes no longer with its operands in host memory where these are tiny, or left alone.
constexpr double leastSlowdown = 0.01;

/// What the accesses of one node do together with one page.
struct Touch {
  bool reads = false;
  bool certainlyReads = false;
  bool writes = false;
  float slowdown = 0;        ///< the largest of the accesses'
  double begin = 1, end = 0; ///< where it lies in what the access touches, from 0 to 1; of several the widest

  void addTo(Traffic &sum, std::uint64_t bytes) const {
    sum.upBytes += reads ? bytes : 0;
    sum.downBytes += writes ? bytes : 0;
  }
};

std::uint64_t slowed(std::uint64_t bytes, float slowdown) {
  // Up, so that no page costs less than bounds say.
  return slowdown == 1 ? bytes : static_cast<std::uint64_t>(std::ceil(static_cast<double>(bytes) * slowdown));
}

std::uint64_t bytesOf(const std::vector<Range> &ranges) {
  std::uint64_t bytes = 0;
  for (const Range &range : ranges)
    bytes += range.size;
  return bytes;
}

/// What a node moves while it goes through its operands, by parts of the way.
class Places {
public:
  /// Spread evenly from `begin` to `end`, which are between 0 and 1.
  void add(double begin, double end, double upBytes, double downBytes) {
    const double first = begin * count, last = end * count;
    for (auto place = static_cast<std::size_t>(first); static_cast<double>(place) < last; ++place) {
      const double part = std::min(last, static_cast<double>(place) + 1) - std::max(first, static_cast<double>(place));
      up_[place] += upBytes * part / (last - first);
      down_[place] += downBytes * part / (last - first);
    }
  }

  /// Neighbouring parts in which it moves the same ways are one.
  std::vector<Traffic> stretches() const {
    std::vector<Traffic> all;
    int before = 0;
    for (std::size_t place = 0; place < count; ++place) {
      const Traffic traffic{static_cast<std::uint64_t>(std::ceil(up_[place])),
                            static_cast<std::uint64_t>(std::ceil(down_[place]))};
      const int ways = (traffic.upBytes > 0 ? 1 : 0) + (traffic.downBytes > 0 ? 2 : 0);
      if (ways != 0 && ways != before)
        all.emplace_back();
      if (ways != 0) {
        all.back().upBytes += traffic.upBytes;
        all.back().downBytes += traffic.downBytes;
      }
      before = ways;
    }
    return all;
  }

private:
  static constexpr std::size_t count = 16;
  std::array<double, count> up_{}, down_{};
};

class Counter {
public:
  explicit Counter(const Description &step) : step_(step) {
    for (BufferIndex buffer = 0; buffer < step.buffers.size(); ++buffer) {
      const std::vector<Range> &hosted = step.buffers[buffer].hosted;
      firstPage_.push_back(touches_.size());
      if (hosted.empty())
        continue;
      touches_.resize(touches_.size() + step.pageCount(buffer));
      const bool hasValue = step.buffers[buffer].liveIn || step.buffers[buffer].continues != noBuffer;
      firstWriter_.resize(touches_.size(), hasValue ? beforeAllNodes : nobody);
    }
    for (NodeIndex node = 0; node < step.nodes.size(); ++node)
      for (const Access &access : step.nodes[node].accesses)
        if ((reliableMay(access) & modeWrite) != 0)
          forEachHosted(access, [&](std::uint64_t page) {
            std::int64_t &first = firstWriter_[firstPage_[access.buffer] + page];
            first = std::min(first, capturedNumber(node));
          });
  }

  /// Calls `visit(buffer, bytes, touch)` for each hosted page that the node touches. Of a page without a value what
  /// writes it first, in the order of the captured step, is not taken to read it unless it certainly does.
  template <typename Visit> void forEachPage(NodeIndex node, Visit visit) {
    touched_.clear();
    for (const Access &access : step_.nodes[node].accesses)
      if (reliableMay(access) != modeNone)
        forEachHosted(access, [&](std::uint64_t page) { touch(access, page); });
    for (const auto &[buffer, page] : touched_) {
      Touch &touch = touches_[firstPage_[buffer] + page];
      const bool isFirst = firstWriter_[firstPage_[buffer] + page] == capturedNumber(node);
      touch.reads = touch.certainlyReads || (touch.reads && !isFirst);
      visit(buffer, bytesOf(buffer, page), touch);
      touch = {};
    }
  }

private:
  static constexpr std::int64_t beforeAllNodes = -1, nobody = std::numeric_limits<std::int64_t>::max();

  std::uint64_t bytesOf(BufferIndex buffer, std::uint64_t page) const {
    return std::min(step_.pageBytes, step_.buffers[buffer].size - page * step_.pageBytes);
  }

  /// What runs again is never the first to write.
  std::int64_t capturedNumber(NodeIndex node) const {
    if (step_.nodes[node].kind == NodeKind::Rematerialize)
      return nobody;
    const std::int32_t captured = step_.nodes[node].captured;
    return captured == notCaptured ? std::int64_t{node} : captured;
  }

  template <typename Visit> void forEachHosted(const Access &access, Visit visit) const {
    for (const Range &hosted : step_.buffers[access.buffer].hosted) {
      const std::uint64_t begin = std::max(access.range.offset, hosted.offset);
      const std::uint64_t end = std::min(access.range.end(), hosted.end());
      for (std::uint64_t page = begin / step_.pageBytes; begin < end && page * step_.pageBytes < end; ++page)
        visit(page);
    }
  }

  void touch(const Access &access, std::uint64_t page) {
    const std::uint64_t offset = page * step_.pageBytes;
    const bool covers = access.range.offset <= offset && offset + bytesOf(access.buffer, page) <= access.range.end();
    Touch &touch = touches_[firstPage_[access.buffer] + page];
    if (!touch.reads && !touch.writes)
      touched_.emplace_back(access.buffer, page);
    touch.slowdown = std::max(touch.slowdown, access.slowdown);
    const auto placeOf = [&](std::uint64_t at) {
      const std::uint64_t inside = std::clamp(at, access.range.offset, access.range.end()) - access.range.offset;
      return static_cast<double>(inside) / static_cast<double>(access.range.size);
    };
    touch.begin = std::min(touch.begin, placeOf(offset));
    touch.end = std::max(touch.end, placeOf(offset + step_.pageBytes));
    touch.reads |= reliableMust(access) != modeWrite || !covers;
    touch.certainlyReads |= (reliableMust(access) & modeRead) != 0;
    touch.writes |= (reliableMay(access) & modeWrite) != 0;
  }

  const Description &step_;
  std::vector<std::size_t> firstPage_;    ///< by BufferIndex, in `touches_`
  std::vector<Touch> touches_;            ///< of buffers with hosted pages
  std::vector<std::int64_t> firstWriter_; ///< of the same: its captured number
  std::vector<std::pair<BufferIndex, std::uint64_t>> touched_;
};

} // namespace

HostedTraffic hostedTraffic(const Description &description) {
  HostedTraffic traffic{std::vector<Traffic>(description.nodes.size()), std::vector<Traffic>(description.nodes.size()),
                        std::vector<Traffic>(description.buffers.size())};
  if (hostedBytes(description) == 0)
    return traffic;
  Counter counter(description);
  for (NodeIndex node = 0; node < description.nodes.size(); ++node)
    counter.forEachPage(node, [&](BufferIndex buffer, std::uint64_t bytes, const Touch &touch) {
      for (Traffic *sum : {&traffic.byNode[node], &traffic.byBuffer[buffer]})
        touch.addTo(*sum, bytes);
      touch.addTo(traffic.loadByNode[node], slowed(bytes, touch.slowdown));
    });
  return traffic;
}

std::vector<std::vector<Traffic>> hostedStretches(const Description &description) {
  std::vector<std::vector<Traffic>> stretches(description.nodes.size());
  if (hostedBytes(description) == 0)
    return stretches;
  Counter counter(description);
  for (NodeIndex node = 0; node < description.nodes.size(); ++node) {
    Places places;
    counter.forEachPage(node, [&](BufferIndex, std::uint64_t bytes, const Touch &touch) {
      const double load = static_cast<double>(bytes) * touch.slowdown;
      places.add(touch.begin, touch.end, touch.reads ? load : 0, touch.writes ? load : 0);
    });
    stretches[node] = places.stretches();
  }
  return stretches;
}

std::map<std::size_t, Traffic> hostedReach(const Description &description) {
  std::map<std::size_t, Traffic> reach;
  Counter counter(description);
  std::size_t position = 0;
  for (NodeIndex node = 0; node < description.nodes.size(); ++node) {
    if (isAdded(description.nodes[node].kind))
      continue;
    counter.forEachPage(
        node, [&](BufferIndex, std::uint64_t bytes, const Touch &touch) { touch.addTo(reach[position], bytes); });
    ++position;
  }
  return reach;
}

Traffic HostedTraffic::total() const {
  Traffic sum;
  for (const Traffic &traffic : byBuffer) {
    sum.upBytes += traffic.upBytes;
    sum.downBytes += traffic.downBytes;
  }
  return sum;
}

double linkUs(const Traffic &traffic, const Machine &machine) {
  return linkUs(static_cast<double>(traffic.upBytes), static_cast<double>(traffic.downBytes), machine);
}

double linkUs(double upBytes, double downBytes, const Machine &machine) {
  const double upUs = upBytes / machine.upBytesPerSecond * 1e6, downUs = downBytes / machine.downBytesPerSecond * 1e6;
  const double bothUs = std::min(upUs, downUs);
  return (bothUs / hostedShareOfBoth(machine) + std::max(upUs, downUs) - bothUs) / machine.hostedShare;
}

void takeHostedTimes(Description &step, std::span<const double> measuredUs, const Machine &machine) {
  const std::vector<Traffic> traffic = hostedTraffic(step).byNode;
  for (NodeIndex index = 0; index < step.nodes.size(); ++index) {
    Node &node = step.nodes[index];
    const double us = linkUs(traffic[index], machine);
    if (us <= 0 || std::isnan(measuredUs[index]))
      continue;
    const double slowdown = std::max(leastSlowdown, (measuredUs[index] - std::max(0.0, node.costUs)) / us);
    for (Access &access : node.accesses)
      if (!step.buffers[access.buffer].hosted.empty())
        access.slowdown = static_cast<float>(slowdown);
  }
}

std::uint64_t hostedBytesOf(const Buffer &buffer) {
  return bytesOf(buffer.hosted);
}

std::uint64_t hostedBytes(const Description &description) {
  const HostedChains chains(description.buffers);
  std::uint64_t bytes = 0;
  for (BufferIndex buffer = 0; buffer < description.buffers.size(); ++buffer) {
    if (capturedBuffer(description.buffers, buffer) != buffer)
      continue;
    const std::vector<Range> shared = chains.of(buffer);
    bytes += bytesOf(shared.empty() ? description.buffers[buffer].hosted : shared);
  }
  return bytes;
}

} // namespace pumpgraph
