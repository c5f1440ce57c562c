// SPDX-License-Identifier: Apache-2.0
#include "runtime/streams/DeviceWait.h"

#include <condition_variable>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

namespace pumpgraph::runtime {

struct DeviceWait::State {
  explicit State(const Driver &given) : driver(given) {}

  const Driver driver; ///< a copy: the thread may outlive the other
  std::mutex mutex;
  std::condition_variable changed;
  std::optional<CUcontext> asked; ///< the context to wait for; under `mutex`, as the rest
  std::optional<Status> answer;
  bool isOver = false;

  Status wait(CUcontext context) const {
    PUMPGRAPH_TRY(driver.ctxSetCurrent(context));
    return driver.ctxSynchronize();
  }
  void run() {
    CUcontext none = nullptr;
    driver.ctxGetCurrent.raw(&none); // the driver prepares the thread
    std::unique_lock lock(mutex);
    while (true) {
      changed.wait(lock, [&] { return isOver || asked; });
      if (isOver)
        return;
      const CUcontext context = *std::exchange(asked, std::nullopt);
      lock.unlock();
      Status done = wait(context);
      lock.lock();
      answer = std::move(done);
      changed.notify_all();
    }
  }
};

DeviceWait::DeviceWait(const Driver &driver) : state_(std::make_shared<State>(driver)) {
  std::thread([state = state_] { state->run(); }).detach();
}

DeviceWait::~DeviceWait() {
  const std::lock_guard lock(state_->mutex);
  state_->isOver = true;
  state_->changed.notify_all();
}

Expected<bool> DeviceWait::isIdleWithin(std::chrono::milliseconds patience) {
  CUcontext context = nullptr;
  PUMPGRAPH_TRY(state_->driver.ctxGetCurrent(&context));
  std::unique_lock lock(state_->mutex);
  state_->asked = context;
  state_->changed.notify_all();
  if (!state_->changed.wait_for(lock, patience, [&] { return state_->answer.has_value(); }))
    return false;
  const Status done = *std::exchange(state_->answer, std::nullopt);
  if (!done)
    return tl::unexpected<Error>(done.error());
  return true;
}

} // namespace pumpgraph::runtime
