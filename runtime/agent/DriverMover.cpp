// SPDX-License-Identifier: Apache-2.0
#include "runtime/agent/DriverMover.h"

namespace pumpgraph::runtime {

CUmemLocation locationOf(bool onDevice, int device) {
  CUmemLocation location{};
  location.type = onDevice ? CU_MEM_LOCATION_TYPE_DEVICE : CU_MEM_LOCATION_TYPE_HOST;
  location.id = onDevice ? device : 0;
  return location;
}

Expected<std::unique_ptr<DriverMover>> DriverMover::create(const Driver &driver, int device, CUcontext context) {
  std::unique_ptr<DriverMover> mover(new DriverMover(driver, device, context));
  PUMPGRAPH_TRY_WHILE(mover->open(mover->up_), "opening the agent's stream up");
  PUMPGRAPH_TRY_WHILE(mover->open(mover->down_), "opening the agent's stream down");
  return mover;
}

Status DriverMover::open(Lane &lane) {
  PUMPGRAPH_TRY(driver_.streamCreate(&lane.stream, CU_STREAM_NON_BLOCKING));
  return driver_.eventCreate(&lane.end, CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING);
}

DriverMover::~DriverMover() {
  for (const Lane &lane : {up_, down_}) {
    if (lane.end)
      driver_.eventDestroy.raw(lane.end);
    if (lane.stream)
      driver_.streamDestroy.raw(lane.stream);
  }
}

Status DriverMover::issue(const Operation &operation, CUstream stream) const {
  CUdeviceptr address = operation.address;
  std::size_t bytes = operation.bytes;
  if (operation.kind == Operation::Kind::Discard)
    return driver_.memDiscardBatchAsync(&address, &bytes, 1, 0, stream);
  const CUmemLocation target = locationOf(operation.kind == Operation::Kind::Prefetch, device_);
  return driver_.memPrefetchAsync(address, bytes, target, 0, stream);
}

bool DriverMover::move(const Operation &operation) {
  // An agent's thread has no context of its own, so this makes one current for good; it costs nothing after that.
  CUcontext current = nullptr;
  if (driver_.ctxGetCurrent.raw(&current) != CUDA_SUCCESS || current != context_) {
    if (driver_.ctxSetCurrent.raw(context_) != CUDA_SUCCESS)
      return false;
    // A capture in another thread must not be broken by what is none of its business.
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    driver_.threadExchangeStreamCaptureMode.raw(&mode);
  }
  const Lane &lane = operation.kind == Operation::Kind::Prefetch ? up_ : down_;
  const bool issued = issue(operation, lane.stream).has_value();
  // Also after a failure: what the call may have begun has to be over.
  const bool ended = driver_.eventRecord.raw(lane.end, lane.stream) == CUDA_SUCCESS &&
                     driver_.eventSynchronize.raw(lane.end) == CUDA_SUCCESS;
  return issued && ended;
}

} // namespace pumpgraph::runtime
