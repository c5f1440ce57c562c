// SPDX-License-Identifier: Apache-2.0
#include "runtime/managed/Thrashing.h"

#include "runtime/driver/Error.h"

#include <algorithm>
#include <map>
#include <set>

namespace pumpgraph::runtime {
namespace {

constexpr std::size_t mostNames = 3;

std::string namesOf(std::vector<Unplanned> parts) {
  std::stable_sort(parts.begin(), parts.end(), [](const auto &a, const auto &b) { return a.bytes > b.bytes; });
  std::string text;
  for (std::size_t i = 0; i < std::min(parts.size(), mostNames); ++i)
    text += fmt::format("{}\"{}\" {}", i == 0 ? "" : ", ", parts[i].name, bytesText(parts[i].bytes));
  if (parts.size() > mostNames)
    text += fmt::format(" and {} more", parts.size() - mostNames);
  return text;
}

std::uint64_t sumOf(const std::vector<Unplanned> &parts) {
  std::uint64_t bytes = 0;
  for (const Unplanned &part : parts)
    bytes += part.bytes;
  return bytes;
}

/// What the node touches, by buffer, in whole pages.
std::vector<Unplanned> workingSet(const Description &step, const Node &node) {
  std::map<BufferIndex, std::set<std::uint64_t>> pages;
  for (const Access &access : node.accesses)
    for (std::uint64_t page = access.range.offset / step.pageBytes; page * step.pageBytes < access.range.end(); ++page)
      pages[access.buffer].insert(page);
  std::vector<Unplanned> parts;
  for (const auto &[buffer, touched] : pages)
    parts.push_back({step.buffers[buffer].name, touched.size() * step.pageBytes});
  return parts;
}

bool movesAnything(const Description &lowered) {
  return std::any_of(lowered.nodes.begin(), lowered.nodes.end(),
                     [](const Node &node) { return isOperation(node.kind); });
}

/// What the plan has on the device at most. Where it moves nothing, what is dead stays there too.
std::uint64_t plannedBytes(const Description &lowered) {
  std::set<std::int32_t> frames;
  std::uint64_t pages = 0;
  for (const Buffer &buffer : lowered.buffers)
    for (const std::int32_t frame : buffer.frames)
      if (frame != noFrame) {
        frames.insert(frame);
        ++pages;
      }
  return (movesAnything(lowered) ? frames.size() : pages) * lowered.pageBytes;
}

/// Of prefetches that nobody waits for: should they be late, their pages come by faults before there is room for them.
std::uint64_t hintedBytes(const Description &lowered) {
  std::set<NodeIndex> awaited;
  for (const Edge &edge : lowered.edges)
    if (!isAdded(lowered.nodes[edge.to].kind))
      awaited.insert(edge.from);
  std::uint64_t bytes = 0;
  for (NodeIndex n = 0; n < lowered.nodes.size(); ++n)
    bytes += lowered.nodes[n].kind == NodeKind::Prefetch && !awaited.contains(n) ? lowered.nodes[n].range.size : 0;
  return bytes;
}

} // namespace

std::vector<std::string> foreseeThrashing(const Description &lowered, std::vector<Unplanned> unplanned,
                                          const ManagedRoom &room) {
  std::vector<std::string> warnings;
  const std::uint64_t limit = std::min(room.budgetBytes, room.deviceBytes);
  std::uint64_t widest = 0;
  const Node *wide = nullptr;
  for (const Node &node : lowered.nodes)
    if (const std::uint64_t bytes = sumOf(workingSet(lowered, node)); bytes > widest) {
      widest = bytes;
      wide = &node;
    }
  if (widest > limit)
    warnings.push_back(fmt::format("node {} \"{}\" touches {} at once, and there is room for {}: {}; what has none is "
                                   "read and written over the link",
                                   wide->captured, wide->name, bytesText(widest), bytesText(limit),
                                   namesOf(workingSet(lowered, *wide))));
  const std::uint64_t planned = plannedBytes(lowered), hinted = hintedBytes(lowered), others = sumOf(unplanned);
  const auto warn = [&](std::uint64_t bytes, const std::string &what, std::uint64_t ofBytes, const char *of) {
    warnings.push_back(
        fmt::format("the plan takes {}, and there is room for {} {}; {} more may be touched that it does "
                    "not foresee: {}. The driver then moves pages by faults, at a fraction of the link's "
                    "speed",
                    bytesText(planned), bytesText(ofBytes), of, bytesText(bytes), what));
  };
  if (others > 0 && planned + others > limit)
    warn(others, namesOf(std::move(unplanned)), limit,
         room.budgetBytes <= room.deviceBytes ? "in the budget" : "on the device");
  else if (planned > room.deviceBytes && movesAnything(lowered))
    warnings.push_back(fmt::format("the plan takes {}, and the device had {} free: the driver moves the rest by faults",
                                   bytesText(planned), bytesText(room.deviceBytes)));
  else if (planned > room.deviceBytes)
    warnings.push_back(
        fmt::format("the step's buffers take {} together, dead ones included, which the plan leaves where "
                    "they are; the device had {} free",
                    bytesText(planned), bytesText(room.deviceBytes)));
  else if (planned + others + hinted > room.deviceBytes && hinted > 0)
    warn(hinted, "prefetches that nobody waits for, should they be late", room.deviceBytes, "on the device");
  return warnings;
}

} // namespace pumpgraph::runtime
