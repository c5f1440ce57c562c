// SPDX-License-Identifier: Apache-2.0
#include "runtime/streams/CallClocks.h"

#include <algorithm>

namespace pumpgraph::runtime {
namespace {

constexpr std::size_t mostEvents = std::size_t{1} << 15;

} // namespace

CUevent CallClocks::takeEvent() {
  if (used_ == events_.size()) {
    CUevent event = nullptr;
    if (used_ == mostEvents || driver_.eventCreate.raw(&event, CU_EVENT_DEFAULT) != CUDA_SUCCESS)
      return nullptr;
    events_.push_back(event);
  }
  return events_[used_++];
}

CallClock CallClocks::take() {
  const CallClock clock{takeEvent(), takeEvent()};
  return clock.end ? clock : CallClock{};
}

void CallClocks::begin(CallClock &clock, CUstream stream) const {
  if (clock.end && driver_.eventRecord.raw(clock.begin, stream) != CUDA_SUCCESS)
    clock = {};
}

void CallClocks::end(const CallClock &clock, CUstream stream) const {
  if (clock.end)
    driver_.eventRecord.raw(clock.end, stream); // without it there is no time that makes sense
}

void CallClocks::forget(bool contextLives) {
  if (contextLives)
    for (const CUevent event : events_)
      driver_.eventDestroy.raw(event);
  events_.clear();
  used_ = 0;
}

bool CallClocks::arePast(const std::vector<CallClock> &clocks) const {
  return std::all_of(clocks.begin(), clocks.end(), [&](const CallClock &clock) {
    return !clock.end || driver_.eventQuery.raw(clock.end) != CUDA_ERROR_NOT_READY;
  });
}

void CallClocks::read(Description &round, const std::vector<CallClock> &clocks,
                      const std::function<bool(NodeIndex)> &isOnDevice) const {
  for (NodeIndex node = 0; node < std::min(round.nodes.size(), clocks.size()); ++node) {
    float ms = 0;
    if (clocks[node].end && isOnDevice(node) &&
        driver_.eventElapsedTime.raw(&ms, clocks[node].begin, clocks[node].end) == CUDA_SUCCESS && ms > 0)
      round.nodes[node].costUs = static_cast<double>(ms) * 1e3;
  }
}

} // namespace pumpgraph::runtime
