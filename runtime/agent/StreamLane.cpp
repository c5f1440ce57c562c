// SPDX-License-Identifier: Apache-2.0
#include "runtime/agent/StreamLane.h"

#include <algorithm>
#include <thread>

namespace pumpgraph::runtime {
namespace {

using std::chrono::microseconds;
using Clock = Driver::Clock;

/// A stream with nothing on it that does not get as far as its end by then shares its queue with one that waits.
constexpr std::chrono::milliseconds patienceWithNothing{2};
/// By then an operation should be over, beyond what its bytes take at the slowest speed that was seen.
constexpr std::chrono::milliseconds patienceWithMoves{20};
constexpr std::uint64_t slowestBytesPerUs = 2000;
/// Most of what is waited for is over by then; looking on costs less than sleeping would.
constexpr microseconds noSleep{40};

} // namespace

Status StreamLane::open() {
  const ContextScope scope(driver_, context_);
  for (Way &way : ways_) {
    PUMPGRAPH_TRY(driver_.streamCreate(&way.stream, CU_STREAM_NON_BLOCKING));
    PUMPGRAPH_TRY(driver_.eventCreate(&way.end, CU_EVENT_DISABLE_TIMING));
  }
  return {};
}

StreamLane::~StreamLane() {
  const ContextScope scope(driver_, context_);
  for (const Way &way : ways_) {
    if (way.end)
      driver_.eventDestroy.raw(way.end);
    if (way.stream)
      driver_.streamDestroy.raw(way.stream);
  }
}

Status StreamLane::makeCurrent() const {
  CUcontext current = nullptr;
  if (driver_.ctxGetCurrent.raw(&current) == CUDA_SUCCESS && current == context_)
    return {};
  PUMPGRAPH_TRY(driver_.ctxSetCurrent(context_));
  // A capture in another thread must not be broken by what is none of its business.
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
  driver_.threadExchangeStreamCaptureMode.raw(&mode);
  return {};
}

StreamLane::End StreamLane::awaitEnd(const Way &way, microseconds patience) const {
  if (driver_.eventRecord.raw(way.end, way.stream) != CUDA_SUCCESS)
    return End::Failed;
  const Clock::time_point start = Clock::now();
  while (true) {
    const CUresult state = driver_.eventQuery.raw(way.end);
    if (state != CUDA_ERROR_NOT_READY)
      return state == CUDA_SUCCESS ? End::Over : End::Failed;
    const Clock::duration passed = Clock::now() - start;
    if (passed > patience)
      return End::Late;
    if (passed > noSleep)
      std::this_thread::sleep_for(std::max<Clock::duration>(microseconds(10), passed / 32));
  }
}

Expected<StreamLane::Done> StreamLane::carryOut(std::uint64_t bytes, const std::function<Status(CUstream)> &issue) {
  PUMPGRAPH_TRY(makeCurrent());
  bool isRepeated = false;
  // Until it is over: nobody may be told of a discard before.
  for (;; current_ = (current_ + 1) % queues, ++changes_) {
    const Way &way = ways_[current_];
    const End before = awaitEnd(way, patienceWithNothing);
    if (before == End::Late)
      continue;
    // On a stream where nothing is left to do the driver works within the call, and what is issued twice is done once.
    const Clock::time_point start = driver_.now();
    Status issued;
    if (before == End::Over)
      issued = issue(way.stream);
    // Also after a failure: what the call may have begun has to be over.
    const End end = awaitEnd(way, patienceWithMoves + microseconds(bytes / slowestBytesPerUs));
    if (end == End::Late) {
      isRepeated = true;
      continue;
    }
    PUMPGRAPH_TRY(issued);
    if (before == End::Failed || end == End::Failed)
      return fail(PUMPGRAPH_DRIVER_ERROR, "an event on a stream of the agent's failed");
    return Done{isRepeated, driver_.now() - start};
  }
}

} // namespace pumpgraph::runtime
