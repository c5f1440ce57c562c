// SPDX-License-Identifier: Apache-2.0
#include "passes/check/Report.h"

#include <fmt/format.h>

#include <algorithm>

namespace pumpgraph::check {

void Report::add(const Place &place, std::string message) {
  if (full() || !seen_.insert({place.rule, place.node, place.otherNode, place.buffer, place.otherBuffer}).second)
    return;
  violations_.push_back({place.node, place.buffer, std::move(message)});
}

namespace {

const char *transferName(NodeKind kind) {
  switch (kind) {
  case NodeKind::Evict:
    return "evict";
  case NodeKind::Prefetch:
    return "prefetch";
  case NodeKind::Discard:
    return "discard";
  case NodeKind::Advise:
    return "advise";
  case NodeKind::CopyToHost:
    return "copy to host";
  case NodeKind::CopyToDevice:
    return "copy to device";
  default:
    return nullptr;
  }
}

} // namespace

std::string nodeLabel(const Description &description, NodeIndex index) {
  const Node &node = description.nodes[index];
  if (const char *transfer = transferName(node.kind); transfer && node.buffer < description.buffers.size())
    return fmt::format("node {}, {} of \"{}\" {}", index, transfer, description.buffers[node.buffer].name,
                       rangeLabel(node.range));
  return fmt::format("node {} \"{}\"", index, node.name);
}

std::string pageLabel(const Description &description, BufferIndex buffer, std::uint64_t page) {
  return fmt::format("page {} ({}) of \"{}\"", page, rangeLabel(pageRange(description, buffer, page)),
                     description.buffers[buffer].name);
}

std::string rangeLabel(Range range) {
  return fmt::format("bytes [{}, {})", range.offset, range.end());
}

Range pageRange(const Description &description, BufferIndex buffer, std::uint64_t page) {
  const std::uint64_t begin = page * description.pageBytes;
  return {begin, std::min(description.pageBytes, description.buffers[buffer].size - begin)};
}

} // namespace pumpgraph::check
