// SPDX-License-Identifier: Apache-2.0
#include "runtime/agent/Agent.h"

#include <sys/prctl.h>

#include <algorithm>
#include <utility>

namespace pumpgraph::runtime {
namespace {

constexpr std::chrono::microseconds shortestGlance{20};
constexpr std::chrono::milliseconds longestGlance{2};
/// A request is seen late by this part of the time since the last one, at the most.
constexpr int glancesPerIdleTime = 64;
/// Looks of the watchdog for as long as its patience lasts.
constexpr int looksPerPatience = 4;

} // namespace

Agent::Agent(std::vector<Operation> operations, OperationWords *words, Mover &mover, Limits limits)
    : operations_(std::move(operations)), words_(words), mover_(mover), limits_(limits),
      underWay_(std::make_unique<std::atomic<bool>[]>(operations_.size())),
      wasThere_(std::make_unique<std::atomic<std::uint64_t>[]>(operations_.size())),
      spans_(std::make_unique<Span[]>(operations_.size())) {
  for (Index index = 0; index < operations_.size(); ++index)
    lanes_[laneOf(operations_[index])].push_back(index);
  threads_.emplace_back([this] { runLane(Up); });
  for (std::size_t i = 0; i < mover_.toHostAtOnce(); ++i)
    threads_.emplace_back([this] { runLane(Down); });
  threads_.emplace_back([this] { watch(); });
}

Agent::~Agent() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  parked_.notify_all();
  for (std::thread &thread : threads_)
    thread.join();
  for (Index index = 0; index < operations_.size(); ++index)
    if (take(index)) {
      underWay_[index] = false;
      done(index).store(1);
    }
}

void Agent::waitForRoom() {
  constexpr std::chrono::microseconds glance{100};
  for (Clock::time_point lastBusy = Clock::now(); !hasRoom(); std::this_thread::sleep_for(glance)) {
    if (!isIdle())
      lastBusy = Clock::now();
    else if (Clock::now() - lastBusy > limits_.notLaunchedAfter)
      forgetWaiting();
  }
}

void Agent::wake() {
  {
    const std::lock_guard lock(mutex_);
    ++wakes_;
  }
  parked_.notify_all();
}

bool Agent::hasRoom() {
  const std::lock_guard lock(mutex_);
  return wakes_ < begun_ + limits_.mostWaiting;
}

void Agent::forgetWaiting() {
  const std::lock_guard lock(mutex_);
  begun_ = wakes_;
}

bool Agent::isBusy(Index index) const {
  // In this order: a taker is under way before the request is gone.
  return request(index).load() != 0 || underWay_[index].load();
}

bool Agent::mayStart(Index index) const {
  const std::vector<Index> &others = operations_[index].waitsFor;
  return std::none_of(others.begin(), others.end(), [this](Index other) { return isBusy(other); });
}

bool Agent::isIdle() const {
  for (Index index = 0; index < operations_.size(); ++index)
    if (isBusy(index))
      return false;
  return true;
}

/// The caller is the one who answers then, and has to say when it is not under way any more.
bool Agent::take(Index index) {
  // Who only asks must not seem to be under way.
  if (request(index).load() == 0 || underWay_[index].exchange(true))
    return false;
  std::uint32_t asked = 1;
  if (request(index).compare_exchange_strong(asked, 0)) {
    noteBegin(index);
    return true;
  }
  underWay_[index] = false;
  return false;
}

/// Every replay asks once for the first operation; one that nobody announced makes no room.
void Agent::noteBegin(Index index) {
  if (index != 0)
    return;
  const std::lock_guard lock(mutex_);
  begun_ = std::min(begun_ + 1, wakes_);
}

void Agent::carryOut(Index index) {
  const Clock::duration begin = Clock::now() - created_;
  const Mover::Outcome outcome = mover_.move(operations_[index]);
  done(index).store(1);
  spans_[index].begin = begin;
  spans_[index].end = Clock::now() - created_;
  count(index, outcome);
  ++finished_;
  underWay_[index] = false; // the last: isIdle() promises that all is counted
}

void Agent::count(Index index, Mover::Outcome outcome) {
  const Operation &operation = operations_[index];
  const bool moved = outcome == Mover::Outcome::Moved;
  counters_.failed += outcome == Mover::Outcome::Failed;
  wasThere_[index] += outcome == Mover::Outcome::WasThere;
  switch (operation.kind) {
  case Operation::Kind::Prefetch:
    ++counters_.prefetches;
    counters_.upBytes += moved ? operation.bytes : 0;
    return;
  case Operation::Kind::Evict:
    ++counters_.evictions;
    counters_.downBytes += moved ? operation.bytes : 0;
    return;
  case Operation::Kind::Drop:
    ++counters_.evictions;
    return;
  case Operation::Kind::Discard:
    ++counters_.discards;
    return;
  }
}

std::optional<Agent::Index> Agent::takeNext(Lane lane) {
  for (const Index index : lanes_[lane])
    // In this order: what it waits for was asked for before it was.
    if (request(index).load() != 0 && mayStart(index) && take(index))
      return index;
  return std::nullopt;
}

void Agent::runLane(Lane lane) {
  prctl(PR_SET_TIMERSLACK, 1000UL); // ns; the default would triple the shortest glance
  while (const std::optional<Index> index = awaitNext(lane))
    carryOut(*index);
}

std::optional<Agent::Index> Agent::awaitNext(Lane lane) {
  const std::lock_guard looking(looking_[lane]);
  Clock::time_point lastWork = Clock::now();
  std::uint64_t seenWakes = 0;
  while (true) {
    {
      const std::lock_guard lock(mutex_);
      if (stopping_)
        return std::nullopt;
      if (std::exchange(seenWakes, wakes_) != wakes_)
        lastWork = Clock::now();
    }
    if (const std::optional<Index> index = takeNext(lane))
      return index;
    park(Clock::now() - lastWork);
  }
}

void Agent::park(Clock::duration idle) {
  const Clock::duration glance = std::clamp<Clock::duration>(idle / glancesPerIdleTime, shortestGlance, longestGlance);
  std::unique_lock lock(mutex_);
  const std::uint64_t wakes = wakes_;
  parked_.wait_for(lock, glance, [&] { return stopping_ || wakes_ != wakes; });
}

/// Nothing here calls CUDA: a driver that hangs must not take the watchdog with it.
void Agent::watch() {
  std::uint64_t finishedBefore = finished_;
  Clock::time_point lastProgress = Clock::now();
  const auto isStopping = [this] { return stopping_; };
  std::unique_lock lock(mutex_);
  while (!parked_.wait_for(lock, limits_.patience / looksPerPatience, isStopping)) {
    lock.unlock();
    const std::uint64_t finished = finished_;
    if (finished != finishedBefore || isIdle())
      lastProgress = Clock::now();
    finishedBefore = finished;
    if (Clock::now() - lastProgress > limits_.patience) {
      stepIn();
      lastProgress = Clock::now();
    }
    lock.lock();
  }
}

void Agent::stepIn() {
  for (Index index = 0; index < operations_.size(); ++index) {
    if (take(index)) {
      done(index).store(1);
      ++counters_.dropped;
      underWay_[index] = false;
      continue;
    }
    // The agent has it. A discard may still destroy what comes after the wait; all else is merely slow.
    if (underWay_[index].load() && operations_[index].kind != Operation::Kind::Discard && done(index).exchange(1) == 0)
      ++counters_.released;
  }
}

AgentStats Agent::stats() const {
  const auto inUs = [](Clock::duration time) { return std::chrono::duration<double, std::micro>(time).count(); };
  std::vector<OperationTimes> times(operations_.size());
  for (Index index = 0; index < operations_.size(); ++index)
    times[index] = {inUs(spans_[index].begin), inUs(spans_[index].end)};
  return {.prefetches = counters_.prefetches,
          .evictions = counters_.evictions,
          .discards = counters_.discards,
          .upBytes = counters_.upBytes,
          .downBytes = counters_.downBytes,
          .failed = counters_.failed,
          .dropped = counters_.dropped,
          .released = counters_.released,
          .wasThere = {wasThere_.get(), wasThere_.get() + operations_.size()},
          .times = std::move(times)};
}

} // namespace pumpgraph::runtime
