// SPDX-License-Identifier: Apache-2.0
#include "runtime/agent/DriverMover.h"

#include <thread>

namespace pumpgraph::runtime {
namespace {

using std::chrono::microseconds;
using Clock = std::chrono::steady_clock;

/// A stream with nothing on it that does not get as far as its end by then shares its queue with one that waits.
constexpr std::chrono::milliseconds patienceWithNothing{2};
/// By then an operation should be over, beyond what its bytes take at the slowest speed that was seen.
constexpr std::chrono::milliseconds patience{20};
constexpr std::uint64_t slowestBytesPerUs = 2000;
/// What seems to come faster than that has been there. Small pieces take about as long either way.
constexpr std::uint64_t impossibleBytesPerUs = 110'000;
constexpr std::uint64_t leastBytesThatTell = std::uint64_t{8} << 20;
/// Most of what is waited for is over by then; looking on costs less than sleeping would.
constexpr microseconds noSleep{40};

} // namespace

CUmemLocation locationOf(bool onDevice, int device) {
  CUmemLocation location{};
  location.type = onDevice ? CU_MEM_LOCATION_TYPE_DEVICE : CU_MEM_LOCATION_TYPE_HOST;
  location.id = onDevice ? device : 0;
  return location;
}

Expected<std::unique_ptr<DriverMover>> DriverMover::create(const Driver &driver, int device,
                                                           const LaneContexts &contexts) {
  std::unique_ptr<DriverMover> mover(new DriverMover(driver, device, contexts));
  PUMPGRAPH_TRY_WHILE(mover->open(mover->up_), "opening the agent's streams up");
  PUMPGRAPH_TRY_WHILE(mover->open(mover->down_), "opening the agent's streams down");
  return mover;
}

Status DriverMover::open(Lane &lane) {
  const ContextScope scope(driver_, lane.context);
  for (Way &way : lane.ways) {
    PUMPGRAPH_TRY(driver_.streamCreate(&way.stream, CU_STREAM_NON_BLOCKING));
    PUMPGRAPH_TRY(driver_.eventCreate(&way.end, CU_EVENT_DISABLE_TIMING));
  }
  return {};
}

DriverMover::~DriverMover() {
  for (const Lane &lane : {up_, down_}) {
    const ContextScope scope(driver_, lane.context);
    for (const Way &way : lane.ways) {
      if (way.end)
        driver_.eventDestroy.raw(way.end);
      if (way.stream)
        driver_.streamDestroy.raw(way.stream);
    }
  }
}

Status DriverMover::issue(const Operation &operation, CUstream stream) const {
  CUdeviceptr address = operation.address;
  std::size_t bytes = operation.bytes;
  if (operation.kind == Operation::Kind::Discard)
    return driver_.memDiscardBatchAsync(&address, &bytes, 1, 0, stream);
  const bool up = operation.kind == Operation::Kind::Prefetch;
  return driver_.memPrefetchAsync(address, bytes, locationOf(up, device_), 0, stream);
}

Status DriverMover::dropDeviceCopy(const Operation &operation) const {
  const CUmemLocation location = locationOf(true, device_);
  PUMPGRAPH_TRY(driver_.memAdvise(operation.address, operation.bytes, CU_MEM_ADVISE_UNSET_READ_MOSTLY, location));
  return driver_.memAdvise(operation.address, operation.bytes, CU_MEM_ADVISE_SET_READ_MOSTLY, location);
}

DriverMover::End DriverMover::awaitEnd(const Way &way, microseconds patience) const {
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

bool DriverMover::makeCurrent(const Lane &lane) const {
  // A thread carries out one lane, so this makes its context current for good; it costs nothing after that.
  CUcontext current = nullptr;
  if (driver_.ctxGetCurrent.raw(&current) == CUDA_SUCCESS && current == lane.context)
    return true;
  if (driver_.ctxSetCurrent.raw(lane.context) != CUDA_SUCCESS)
    return false;
  // A capture in another thread must not be broken by what is none of its business.
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
  driver_.threadExchangeStreamCaptureMode.raw(&mode);
  return true;
}

Mover::Outcome DriverMover::move(const Operation &operation) {
  const bool leaves = operation.kind == Operation::Kind::Evict || operation.kind == Operation::Kind::Drop;
  Lane &lane = leaves ? down_ : up_;
  if (!makeCurrent(lane))
    return Outcome::Failed;
  bool isRepeated = false;
  // Until it is over: nobody may be told of a discard before.
  for (;; lane.current = (lane.current + 1) % queues, ++streamChanges_) {
    const Way &way = lane.ways[lane.current];
    const End before = awaitEnd(way, patienceWithNothing);
    if (before == End::Late)
      continue;
    // On a stream where nothing is left to do the driver works within the call, and what is issued twice is done once.
    const Clock::time_point start = Clock::now();
    const bool issued = before == End::Over && issue(operation, way.stream).has_value();
    // Also after a failure: what the call may have begun has to be over.
    const End end = awaitEnd(way, patience + microseconds(operation.bytes / slowestBytesPerUs));
    if (end == End::Late) {
      isRepeated = true;
      continue;
    }
    if (!issued || end == End::Failed)
      return Outcome::Failed;
    if (operation.kind == Operation::Kind::Drop)
      return dropDeviceCopy(operation) ? Outcome::Moved : Outcome::Failed;
    const bool tells = operation.kind == Operation::Kind::Prefetch && !operation.mayBringNothing && !isRepeated &&
                       operation.bytes >= leastBytesThatTell;
    return tells && Clock::now() - start < microseconds(operation.bytes / impossibleBytesPerUs) ? Outcome::WasThere
                                                                                                : Outcome::Moved;
  }
}

} // namespace pumpgraph::runtime
