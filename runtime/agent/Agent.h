// SPDX-License-Identifier: Apache-2.0
/// \file
/// The agent: host threads that move managed memory when the running graph requests it.
#pragma once

#include "runtime/agent/Operation.h"

#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

namespace pumpgraph::runtime {

/// Carries out an agent's operations. One thread of the agent calls it for prefetches and discards, which must not
/// overlap on a page; other threads call it for evictions.
class Mover {
public:
  virtual ~Mover() = default;
  enum class Outcome : std::uint8_t {
    Moved,
    WasThere, ///< a prefetch that found its bytes on the device: somebody had touched them since they left
    Failed
  };
  /// Returns when it is over.
  virtual Outcome move(const Operation &operation) = 0;
  /// The number of threads that call it for evictions.
  virtual std::size_t toHostAtOnce() const { return 1; }
};

/// Begin and end of an operation's last run, in microseconds since the start of the agent; both 0 if there was none.
struct OperationTimes {
  double beginUs = 0, endUs = 0;
};

struct AgentStats {
  std::uint64_t prefetches = 0;
  std::uint64_t evictions = 0; ///< and drops, which move no bytes
  std::uint64_t discards = 0;
  std::uint64_t upBytes = 0;
  std::uint64_t downBytes = 0;
  std::uint64_t failed = 0;            ///< of all these
  std::uint64_t dropped = 0;           ///< requests that the watchdog answered because nobody took them
  std::uint64_t released = 0;          ///< waits that the watchdog ended while the operation was still under way
  std::vector<std::uint64_t> wasThere; ///< by operation: how many times it found nothing to move
  std::vector<OperationTimes> times;   ///< by operation; of different replays while one runs
};

/// Answers the requests of a graph by a word protocol in host memory (docs/design/managed.md; its model is
/// test/agent/agent.pml). Exactly one thread takes a request: the one that changes the word from 1 to 0. Only a discard
/// does harm by coming late or not at all. The watchdog can therefore answer every request that no thread has taken,
/// and end every wait except the one for a running discard.
class Agent {
public:
  struct Limits {
    /// How long nothing at all may get done, while something is asked for, before the watchdog steps in.
    std::chrono::milliseconds patience{1000};
    /// Replays that are announced and have not begun. One behind the one that runs keeps the device busy.
    std::uint64_t mostWaiting = 2;
    /// How long none of them may begin, with nothing under way, before they are taken for never launched.
    std::chrono::milliseconds notLaunchedAfter{1000};
  };

  /// `words`, one for each operation, and `mover` must outlive the agent, and the words every graph that names them.
  Agent(std::vector<Operation> operations, OperationWords *words, Mover &mover, Limits limits);
  Agent(std::vector<Operation> operations, OperationWords *words, Mover &mover)
      : Agent(std::move(operations), words, mover, Limits()) {}
  /// Answers pending requests, so that a running graph can end.
  ~Agent();
  Agent(const Agent &) = delete;
  Agent &operator=(const Agent &) = delete;

  /// Blocks while too many replays are waiting to run: a driver whose queue is full holds whoever launches one more,
  /// and with him the agent, until the watchdog steps in. May take as long as a replay.
  void waitForRoom();
  /// A replay is about to start: looks for requests at once instead of at the next of its rare glances.
  void wake();

  /// Whether nothing is asked for or under way. All that was done is in stats() then.
  bool isIdle() const;
  AgentStats stats() const;
  const std::vector<Operation> &operations() const { return operations_; }

private:
  using Clock = std::chrono::steady_clock;
  using Index = std::uint32_t;
  enum Lane : std::uint8_t { Up, Down };
  static constexpr std::size_t laneCount = 2;

  static Lane laneOf(const Operation &operation) {
    const bool leaves = operation.kind == Operation::Kind::Evict || operation.kind == Operation::Kind::Drop;
    return leaves ? Down : Up;
  }
  std::atomic_ref<std::uint32_t> request(Index index) const { return std::atomic_ref(words_[index].request); }
  std::atomic_ref<std::uint32_t> done(Index index) const { return std::atomic_ref(words_[index].done); }

  void runLane(Lane lane);
  /// The first operation of the lane, in the step's order, that is asked for and may start, if there is one.
  std::optional<Index> takeNext(Lane lane);
  /// Waits for one; nothing once the agent is to stop. Of a lane's threads one looks at a time, the others sleep.
  std::optional<Index> awaitNext(Lane lane);
  bool hasRoom();
  void forgetWaiting();
  bool isBusy(Index index) const;
  bool mayStart(Index index) const;
  bool take(Index index);
  void noteBegin(Index index);
  void carryOut(Index index);
  void count(Index index, Mover::Outcome outcome);
  /// Sleeps a fraction of the time that the lane has had nothing to do.
  void park(Clock::duration idle);
  void watch();
  void stepIn();

  const std::vector<Operation> operations_;
  OperationWords *const words_;
  Mover &mover_;
  const Limits limits_;
  std::array<std::vector<Index>, laneCount> lanes_;
  std::unique_ptr<std::atomic<bool>[]> underWay_;          ///< by operation
  std::unique_ptr<std::atomic<std::uint64_t>[]> wasThere_; ///< by operation
  struct Span {
    std::atomic<Clock::duration> begin{}, end{};
  };
  const Clock::time_point created_ = Clock::now();
  std::unique_ptr<Span[]> spans_;           ///< by operation: the last time it was carried out, since `created_`
  std::atomic<std::uint64_t> finished_ = 0; ///< operations, ever

  struct Counters {
    std::atomic<std::uint64_t> prefetches = 0, evictions = 0, discards = 0, upBytes = 0, downBytes = 0, failed = 0,
                               dropped = 0, released = 0;
  };
  Counters counters_;

  std::array<std::mutex, laneCount> looking_;
  std::mutex mutex_;
  std::condition_variable parked_;
  std::uint64_t wakes_ = 0; ///< replays announced, ever; under mutex_
  std::uint64_t begun_ = 0; ///< of these, that have asked for the first operation or are given up; under mutex_
  bool stopping_ = false;   ///< under mutex_
  std::vector<std::thread> threads_;
};

} // namespace pumpgraph::runtime
