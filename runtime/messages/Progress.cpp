// SPDX-License-Identifier: Apache-2.0
#include "runtime/messages/Progress.h"

#include <utility>

namespace pumpgraph::runtime {

void Progress::setReceiver(Receiver receiver) {
  const std::lock_guard lock(mutex_);
  receiver_ = std::move(receiver);
}

ProgressState Progress::now() const {
  const std::lock_guard lock(mutex_);
  return stateNow();
}

void Progress::begin(Phase phase, std::uint64_t total) {
  const std::lock_guard lock(mutex_);
  state_ = {phase, 0, total};
  began_ = Clock::now();
  tell();
}

void Progress::advance(std::uint64_t done) {
  const std::lock_guard lock(mutex_);
  state_.done = done;
  tell();
}

void Progress::foundPlan(double predictedUs) {
  const std::lock_guard lock(mutex_);
  ++state_.done;
  if (state_.bestUs != 0 && predictedUs >= state_.bestUs)
    return;
  state_.bestUs = predictedUs;
  tell();
}

void Progress::end() {
  const std::lock_guard lock(mutex_);
  state_ = {};
  tell();
}

ProgressState Progress::stateNow() const {
  ProgressState state = state_;
  if (state.phase != Phase::None)
    state.seconds = std::chrono::duration<double>(Clock::now() - began_).count();
  return state;
}

void Progress::tell() const {
  if (receiver_)
    receiver_(stateNow());
}

} // namespace pumpgraph::runtime
