// SPDX-License-Identifier: Apache-2.0
#include "runtime/agent/Evictor.h"

#include "runtime/agent/ManagedLocation.h"

namespace pumpgraph::runtime {

Status evict(const Driver &driver, StreamLane &lane, ManagedRange range) {
  const auto issue = [&](CUstream stream) {
    return driver.memPrefetchAsync(range.address, range.bytes, inHostMemory(), 0, stream);
  };
  PUMPGRAPH_TRY(lane.carryOut(range.bytes, issue));
  return {};
}

Expected<std::unique_ptr<Evictor>> Evictor::create(const Driver &driver, CUcontext context) {
  std::unique_ptr<Evictor> evictor(new Evictor(driver, context));
  PUMPGRAPH_TRY(evictor->lane_.open());
  evictor->thread_ = std::thread([own = evictor.get()] { own->run(); });
  return evictor;
}

Evictor::~Evictor() {
  state_ = State::Stopping;
  state_.notify_one();
  if (thread_.joinable())
    thread_.join();
}

void Evictor::begin(ManagedRange range) {
  range_ = range;
  state_ = State::Begun;
  state_.notify_one();
}

Status Evictor::end() {
  state_.wait(State::Begun);
  return status_;
}

void Evictor::run() {
  for (State state = state_; state != State::Stopping; state = state_) {
    if (state == State::Begun) {
      status_ = evict(driver_, lane_, range_);
      State begun = State::Begun; // unless it is to stop
      state_.compare_exchange_strong(begun, State::Idle);
      state_.notify_one();
    }
    state_.wait(State::Idle);
  }
}

} // namespace pumpgraph::runtime
