// SPDX-License-Identifier: Apache-2.0
// A compiler library for tests: the real one, but that it lets one buffer go on at other addresses, whether that is of
// use or not. For plans that move nothing.
#include "test/unit/runtime/ContinuingCompiler.h"

#include "pumpgraph/compiler.h"
#include "pumpgraph/graph/Description.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

using namespace pumpgraph;
using namespace pumpgraph::runtime::test;

namespace {

std::string continuedName;
Continuing how = Continuing::AtLastUse;

std::vector<NodeIndex> usesOf(const Description &step, BufferIndex buffer) {
  std::vector<NodeIndex> uses;
  for (NodeIndex node = 0; node < step.nodes.size(); ++node)
    if (std::any_of(step.nodes[node].accesses.begin(), step.nodes[node].accesses.end(),
                    [&](const Access &access) { return access.buffer == buffer; }))
      uses.push_back(node);
  return uses;
}

/// Another buffer like it, in frames of its own unless it stays in place.
BufferIndex continueBuffer(Description &step, BufferIndex before) {
  std::int32_t frame = 0;
  for (const Buffer &buffer : step.buffers)
    for (const std::int32_t used : buffer.frames)
      frame = std::max(frame, used + 1);
  Buffer next = step.buffers[before];
  next.continues = before;
  next.address = 0;
  if (how != Continuing::InPlace)
    for (std::int32_t &page : next.frames)
      page = frame++;
  step.budgetBytes = std::max(step.budgetBytes, static_cast<std::uint64_t>(frame) * step.pageBytes);
  step.buffers.push_back(std::move(next));
  return static_cast<BufferIndex>(step.buffers.size() - 1);
}

/// Pages in host memory, where nodes reach them, have no frames.
void host(Buffer &buffer) {
  std::fill(buffer.frames.begin(), buffer.frames.end(), noFrame);
  buffer.hosted = {{0, buffer.size}};
}

/// Copies the value from one address to the other between two nodes, right before the later one. Where one of them is
/// host memory there is nothing to copy from it, or to it.
void addTransfer(Description &step, NodeIndex earlier, NodeIndex later, BufferIndex from, BufferIndex to,
                 std::uint64_t place) {
  const bool isHosted = !step.buffers[from].hosted.empty() || !step.buffers[to].hosted.empty();
  std::vector<Node> copies;
  for (const auto &[kind, buffer] : {std::pair(NodeKind::CopyToHost, from), std::pair(NodeKind::CopyToDevice, to)}) {
    if (!step.buffers[buffer].hosted.empty())
      continue;
    Node &copy = copies.emplace_back();
    copy.kind = kind;
    copy.buffer = buffer;
    copy.range = {0, step.buffers[from].size};
    copy.hostOffset = isHosted ? 0 : place;
  }
  const auto count = static_cast<NodeIndex>(copies.size());
  for (Edge &edge : step.edges)
    for (NodeIndex *end : {&edge.from, &edge.to})
      *end += *end >= later ? count : 0;
  step.nodes.insert(step.nodes.begin() + later, copies.begin(), copies.end());
  const auto isThere = [&](const Edge &edge) {
    return std::any_of(step.edges.begin(), step.edges.end(),
                       [&](const Edge &other) { return other.from == edge.from && other.to == edge.to; });
  };
  NodeIndex before = earlier;
  for (NodeIndex next = later; next <= later + count; before = next++)
    if (!isThere({before, next}))
      step.edges.push_back({before, next});
}

/// From `use` on, which is the later of two, nodes have `to` in the place of `from`.
void moveOn(Description &step, NodeIndex earlier, NodeIndex use, BufferIndex from, BufferIndex to,
            std::uint64_t place) {
  for (NodeIndex node = use; node < step.nodes.size(); ++node)
    for (Access &access : step.nodes[node].accesses)
      if (access.buffer == from)
        access.buffer = to;
  if (how != Continuing::InPlace)
    addTransfer(step, earlier, use, from, to, place);
}

void continueIn(Description &step) {
  const auto found = std::find_if(step.buffers.begin(), step.buffers.end(),
                                  [](const Buffer &buffer) { return buffer.name == continuedName; });
  if (found == step.buffers.end())
    return;
  BufferIndex buffer = static_cast<BufferIndex>(found - step.buffers.begin());
  const std::uint64_t place = step.hostBytes;
  step.hostBytes += step.pageCount(buffer) * step.pageBytes;
  std::vector<NodeIndex> uses = usesOf(step, buffer);
  const std::size_t moves = how == Continuing::AtEachUse ? uses.size() - 1 : 1;
  for (std::size_t move = 0; move < moves; ++move) {
    const std::size_t use = uses.size() - moves + move;
    const BufferIndex next = continueBuffer(step, buffer);
    if (how == Continuing::HostedAfter || how == Continuing::Hosted)
      host(step.buffers[next]);
    if (how == Continuing::HostedBefore || how == Continuing::Hosted)
      host(step.buffers[buffer]);
    const std::size_t nodes = step.nodes.size();
    moveOn(step, uses[use - 1], uses[use], buffer, next, place);
    for (std::size_t later = use; later < uses.size(); ++later)
      uses[later] += static_cast<NodeIndex>(step.nodes.size() - nodes);
    if (how == Continuing::AtTwoAddresses)
      step.nodes[uses[use]].accesses.push_back({buffer, {0, step.buffers[buffer].size}, modeRead});
    buffer = next;
  }
}

} // namespace

extern "C" {

void pumpgraph_test_continue(const char *buffer, Continuing way) {
  continuedName = buffer;
  how = way;
}

const pumpgraph_candidate *pumpgraph_compilation_candidate(const pumpgraph_compilation *compilation,
                                                           uint64_t position) {
  void *library = dlopen(PUMPGRAPH_COMPILER_LIBRARY, RTLD_NOW | RTLD_LOCAL);
  const auto real =
      reinterpret_cast<decltype(&pumpgraph_compilation_candidate)>(dlsym(library, "pumpgraph_compilation_candidate"));
  // Until the next call, which is all that a caller needs here.
  static pumpgraph_candidate candidate;
  static Description lowered;
  static std::unique_ptr<DescriptionView> view;
  std::string error;
  lowered = {};
  const pumpgraph_candidate *original = real(compilation, position);
  if (!original || !fromC(*original->lowered, lowered, error))
    return nullptr;
  continueIn(lowered);
  view = std::make_unique<DescriptionView>(lowered);
  candidate = *original;
  candidate.lowered = view->get();
  return &candidate;
}

} // extern "C"
