// SPDX-License-Identifier: Apache-2.0
#include "test/unit/runtime/FakeStreams.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <thread>

namespace pumpgraph::runtime::test {

/// The legacy default stream is null; each thread has its own default stream.
CUstream FakeStreams::keyOf(CUstream stream) const {
  if (stream == CU_STREAM_LEGACY)
    return nullptr;
  return stream == CU_STREAM_PER_THREAD ? reinterpret_cast<CUstream>(static_cast<std::uintptr_t>(gettid()) << 8 | 2)
                                        : stream;
}

void FakeStreams::create(CUstream stream, bool isBlocking) {
  const std::lock_guard lock(mutex_);
  streams_[stream] = {isBlocking, {}};
}

void FakeStreams::destroy(CUstream stream) {
  finishUntil([&] { return isDone(streams_[stream].front); });
  const std::lock_guard lock(mutex_);
  streams_.erase(stream);
}

bool FakeStreams::isBlocking(CUstream stream) {
  const std::lock_guard lock(mutex_);
  return streams_[keyOf(stream)].isBlocking;
}

/// All that the next work on the stream follows.
FakeStreams::Front FakeStreams::frontOf(CUstream stream) {
  Front front;
  const Stream &own = streams_[stream];
  for (const auto &[other, state] : streams_) {
    const bool areOrdered = stream == nullptr ? state.isBlocking : other == nullptr && own.isBlocking;
    if (other == stream || areOrdered)
      front.insert(front.end(), state.front.begin(), state.front.end());
  }
  return front;
}

void FakeStreams::waitForRoom(CUstream stream) {
  if (mostWaiting_ == 0)
    return;
  finishUntil([&] {
    return static_cast<std::size_t>(std::count_if(waiting_.begin(), waiting_.end(), [&](const auto &work) {
             return work->stream == stream;
           })) < mostWaiting_;
  });
}

void FakeStreams::enqueue(CUstream stream, std::function<void()> work, std::function<bool()> mayRun) {
  const CUstream key = keyOf(stream);
  waitForRoom(key);
  const std::lock_guard lock(mutex_);
  waiting_.push_back(std::make_shared<Work>(Work{key, std::move(work), std::move(mayRun), frontOf(key)}));
  streams_[key].front = {waiting_.back()};
  while (!waiting_.empty() && random_() % 4 == 0 && runOne()) {
  }
}

void FakeStreams::record(CUevent event, CUstream stream) {
  waitForRoom(keyOf(stream));
  const std::lock_guard lock(mutex_);
  events_[event] = frontOf(keyOf(stream));
}

void FakeStreams::wait(CUstream stream, CUevent event) {
  const std::lock_guard lock(mutex_);
  Front &front = streams_[keyOf(stream)].front;
  for (const std::shared_ptr<Work> &work : events_[event])
    if (!work->isDone)
      front.push_back(work);
}

bool FakeStreams::isDone(const Front &front) {
  return std::all_of(front.begin(), front.end(), [](const auto &work) { return work->isDone; });
}

bool FakeStreams::runOne() {
  std::vector<std::size_t> ready;
  for (std::size_t i = 0; i < waiting_.size(); ++i)
    if (isDone(waiting_[i]->after) && (!waiting_[i]->mayRun || waiting_[i]->mayRun()))
      ready.push_back(i);
  if (ready.empty())
    return false;
  const std::size_t chosen = ready[random_() % ready.size()];
  const std::shared_ptr<Work> work = waiting_[chosen];
  waiting_.erase(waiting_.begin() + static_cast<std::ptrdiff_t>(chosen));
  work->run();
  work->isDone = true;
  work->after.clear();
  return true;
}

/// Others may call the driver while all work waits for the program.
template <typename IsOver> void FakeStreams::finishUntil(IsOver isOver) {
  std::unique_lock lock(mutex_);
  while (!isOver())
    if (!runOne()) {
      lock.unlock();
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      lock.lock();
    }
}

void FakeStreams::finishAll() {
  finishUntil([&] { return waiting_.empty(); });
}

void FakeStreams::finish(CUstream stream) {
  finishUntil([&] { return isDone(frontOf(keyOf(stream))); });
}

void FakeStreams::finish(CUevent event) {
  finishUntil([&] { return isDone(events_[event]); });
}

void FakeStreams::destroy(CUevent event) {
  const std::lock_guard lock(mutex_);
  events_.erase(event);
}

bool FakeStreams::isDone(CUevent event) {
  const std::lock_guard lock(mutex_);
  return isDone(events_[event]);
}

} // namespace pumpgraph::runtime::test
