// SPDX-License-Identifier: Apache-2.0
// "A shared boundary" of docs/design/plan-correctness.md.
#include "passes/check/CheckResidency.h"
#include "passes/check/Report.h"
#include "pumpgraph/graph/Reliance.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

namespace pumpgraph {

namespace {

using check::nodeLabel;
using check::pageLabel;
using check::pageRange;
using check::Place;
using check::Report;

const char *stateOf(const Buffer &buffer, const Range &page) {
  if (overlaps(buffer.mirrored, page))
    return "on the device and in host memory";
  if (overlaps(buffer.resident, page))
    return "on the device";
  return overlaps(buffer.hosted, page) ? "hosted" : "in host memory";
}

class BoundaryCheck {
public:
  BoundaryCheck(const Description &boundary, const Description &step, Report &report)
      : boundary_(boundary), step_(step), report_(report) {}

  void run() {
    if (!hasSameBuffers())
      return;
    for (BufferIndex buffer = 0; buffer < step_.buffers.size(); ++buffer) {
      if (boundary_.buffers[buffer].frames.empty()) {
        checkOwn(buffer);
        continue;
      }
      checkLife(buffer);
      for (std::uint64_t page = 0; page < step_.pageCount(buffer); ++page)
        checkGiven(buffer, page);
    }
    checkPlaces();
  }

private:
  bool hasSameBuffers() {
    bool same = boundary_.buffers.size() == step_.buffers.size() && boundary_.pageBytes == step_.pageBytes;
    for (BufferIndex buffer = 0; same && buffer < step_.buffers.size(); ++buffer) {
      const Buffer &given = boundary_.buffers[buffer], &kept = step_.buffers[buffer];
      const std::size_t pages = step_.pageCount(buffer);
      same = given.size == kept.size && given.isPrivate == kept.isPrivate && kept.frames.size() == pages &&
             (given.frames.empty() || given.frames.size() == pages);
    }
    if (!same)
      report_.add({.rule = "buffers"}, "the boundary's buffers are not those of the step");
    return same;
  }

  void fail(const char *rule, BufferIndex buffer, std::string message) {
    report_.add({.rule = rule, .buffer = buffer}, std::move(message));
  }

  /// Between replays the others' frames hold what is given, and nothing else.
  void checkOwn(BufferIndex index) {
    const Buffer &buffer = step_.buffers[index];
    for (std::uint64_t page = 0; page < buffer.frames.size(); ++page) {
      const bool stays = !buffer.isPrivate || overlaps(buffer.resident, pageRange(step_, index, page));
      const std::int32_t frame = buffer.frames[page];
      if (stays && frame != noFrame && static_cast<std::uint64_t>(frame) < boundary_.budgetBytes / boundary_.pageBytes)
        fail("others", index,
             fmt::format("{} stays in frame {} between replays, which other steps use", pageLabel(step_, index, page),
                         frame));
    }
  }

  /// A value that the step does not take over would be lost for the others.
  void checkLife(BufferIndex index) {
    const Buffer &buffer = step_.buffers[index];
    const auto overwrites = [&](const Node &node) {
      return std::any_of(node.accesses.begin(), node.accesses.end(), [&](const Access &access) {
        return access.buffer == index && reliableMust(access) == modeWrite && access.range.offset == 0 &&
               access.range.size == buffer.size;
      });
    };
    if (buffer.isPrivate &&
        !(buffer.liveOut && (buffer.liveIn || std::any_of(step_.nodes.begin(), step_.nodes.end(), overwrites))))
      fail("life", index, fmt::format("other steps keep a value in \"{}\", but this one does not", buffer.name));
  }

  void checkGiven(BufferIndex index, std::uint64_t page) {
    const Buffer &given = boundary_.buffers[index], &kept = step_.buffers[index];
    const std::int32_t frame = given.frames[page];
    if (frame != noFrame && kept.frames[page] != frame)
      fail("frame", index,
           fmt::format("{} has frame {}; other steps have given it frame {}", pageLabel(step_, index, page),
                       kept.frames[page], frame));
    const Range range = pageRange(step_, index, page);
    if (kept.isPrivate && std::string_view(stateOf(kept, range)) != stateOf(given, range))
      fail("state", index,
           fmt::format("{} is {} between replays; other steps keep it {}", pageLabel(step_, index, page),
                       stateOf(kept, range), stateOf(given, range)));
  }

  /// The boundary's copies say where pages are in host memory.
  void checkPlaces() {
    std::map<std::pair<BufferIndex, std::uint64_t>, std::uint64_t> places;
    const auto forEachPage = [&](const Node &node, const auto &visit) {
      for (std::uint64_t offset = node.range.offset; offset < node.range.end(); offset += step_.pageBytes)
        visit(std::pair(node.buffer, offset / step_.pageBytes), node.hostOffset + (offset - node.range.offset));
    };
    for (const Node &node : boundary_.nodes)
      if (isCopy(node.kind))
        forEachPage(node, [&](const auto &page, std::uint64_t place) { places.emplace(page, place); });
    for (NodeIndex index = 0; index < step_.nodes.size(); ++index) {
      const Node &node = step_.nodes[index];
      if (isCopy(node.kind))
        forEachPage(node, [&](const auto &page, std::uint64_t place) { checkPlace(index, page, place, places); });
    }
  }

  template <typename Page, typename Places>
  void checkPlace(NodeIndex node, const Page &page, std::uint64_t place, const Places &places) {
    const auto given = places.find(page);
    const Place where{.rule = "place", .node = node, .buffer = page.first};
    if (given == places.end()) {
      if (place < boundary_.hostBytes)
        report_.add(where, fmt::format("{} moves {} at {} of the pinned pool, which is other steps' up to {}",
                                       nodeLabel(step_, node), pageLabel(step_, page.first, page.second), place,
                                       boundary_.hostBytes));
      return;
    }
    if (given->second != place)
      report_.add(where,
                  fmt::format("{} moves {} at {} of the pinned pool; other steps have given it {}",
                              nodeLabel(step_, node), pageLabel(step_, page.first, page.second), place, given->second));
  }

  const Description &boundary_;
  const Description &step_;
  Report &report_;
};

} // namespace

std::vector<Violation> checkKeepsBoundary(const Description &boundary, const Description &rewritten,
                                          std::size_t limit) {
  Report report(limit);
  BoundaryCheck(boundary, rewritten, report).run();
  return report.take();
}

} // namespace pumpgraph
