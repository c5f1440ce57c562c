// SPDX-License-Identifier: Apache-2.0
#include "runtime/streams/CutStates.h"

#include <algorithm>
#include <cassert>
#include <span>

namespace pumpgraph::runtime {

template <typename Visit> void CutStates::eachPage(const Range &range, Visit visit) const {
  for (std::uint64_t page = range.offset / lowered_.pageBytes; page * lowered_.pageBytes < range.end(); ++page)
    visit(page);
}

CutStates::CutStates(const Description &lowered, const IssueList &list) : lowered_(lowered), list_(list) {
  std::int32_t frames = 0;
  for (const Buffer &buffer : lowered.buffers)
    for (const std::int32_t frame : buffer.frames)
      frames = std::max(frames, frame + 1);
  tenants_.resize(static_cast<std::size_t>(frames));
  for (BufferIndex index = 0; index < lowered.buffers.size(); ++index) {
    const Buffer &buffer = lowered.buffers[index];
    blocks_[buffer.address] = index;
    std::vector<PageState> &pages = pages_.emplace_back(lowered.pageCount(index));
    std::vector<bool> &hosted = hosted_.emplace_back(pages.size());
    for (PageState &page : pages)
      page = {.hasValue = buffer.liveIn, .onDevice = false, .onHost = buffer.liveIn};
    for (const Range &range : buffer.hosted)
      eachPage(range, [&](std::uint64_t page) { hosted[page] = true; });
    for (const Range &range : buffer.resident)
      eachPage(range, [&](std::uint64_t page) {
        pages[page].onDevice = buffer.liveIn;
        pages[page].onHost = false;
        tenants_[static_cast<std::size_t>(buffer.frames[page])] = {index, page};
      });
    for (const Range &range : buffer.mirrored)
      eachPage(range, [&](std::uint64_t page) { pages[page].onHost = buffer.liveIn; });
  }
}

void CutStates::occupy(BufferIndex buffer, std::uint64_t page) {
  const std::int32_t frame = lowered_.buffers[buffer].frames[page];
  assert(frame != noFrame && "the checker has seen a page without a frame");
  Tenant &tenant = tenants_[static_cast<std::size_t>(frame)];
  if (tenant.buffer == buffer && tenant.page == page)
    return;
  if (tenant.buffer != noBuffer) {
    PageState &leaving = pages_[tenant.buffer][tenant.page];
    leaving.onDevice = false;
    if (leaving.hasValue && !leaving.onHost && lost_.empty()) {
      lostBuffer_ = tenant.buffer;
      lost_ = lowered_.buffers[tenant.buffer].name + " is lost ahead of call " + std::to_string(node_);
    }
  }
  tenant = {buffer, page};
}

void CutStates::access(const Access &access) {
  eachPage(access.range, [&](std::uint64_t page) {
    PageState &state = pages_[access.buffer][page];
    const bool writes = (access.may & modeWrite) != 0;
    state.hasValue |= writes;
    if (hosted_[access.buffer][page]) {
      state.onHost |= writes;
      return;
    }
    occupy(access.buffer, page);
    if (!writes)
      return;
    state.onDevice = true;
    state.onHost = false;
  });
}

void CutStates::issueCopies(std::size_t node, std::size_t count) {
  if (copiesIssued_ != node)
    return;
  ++copiesIssued_;
  for (const IssuedOperation &operation :
       std::span(list_.before[node]).first(std::min(count, list_.before[node].size()))) {
    if (operation.kind != IssuedOperation::Kind::Copy)
      continue;
    const Node &copy = lowered_.nodes[operation.copy];
    eachPage(copy.range, [&](std::uint64_t page) {
      occupy(copy.buffer, page);
      PageState &state = pages_[copy.buffer][page];
      (copy.kind == NodeKind::CopyToHost ? state.onHost : state.onDevice) = true;
    });
  }
}

void CutStates::pass(const RoundEvent &event) {
  if (event.kind == RoundEvent::Kind::Call) {
    if (!event.isNode)
      return;
    issueCopies(node_);
    for (const Access &access : lowered_.nodes[list_.calls[node_]].accesses)
      this->access(access);
    ++node_;
    return;
  }
  // New memory has no value, and freed memory none that is needed.
  if (const auto block = blocks_.find(event.block); event.block != 0 && block != blocks_.end())
    for (PageState &page : pages_[block->second])
      page = {.hasValue = false, .onDevice = page.onDevice, .onHost = page.onHost};
}

std::string checkCuts(const Description &lowered, const RoundScript &script, const IssueList &list, BufferIndex &lost) {
  CutStates states(lowered, list);
  for (const RoundEvent &event : script.events)
    states.pass(event);
  states.issueCopies(list.before.size() - 1);
  lost = states.lostBuffer();
  return states.lost();
}

} // namespace pumpgraph::runtime
