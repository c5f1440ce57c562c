// SPDX-License-Identifier: Apache-2.0
/// \file
/// Work side by side, on the threads of one pool. No plan depends on how many there are.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

namespace pumpgraph {

/// Something that a thread of the pool may have begun before its result is asked for. Else whoever asks for it does it,
/// so that nobody waits for a thread that is not there. Its result is asked for once. What it refers to has to outlive
/// it, or be there until it was asked for.
template <typename Result> class Job {
public:
  Job() = default;
  explicit Job(std::function<Result()> work) : state_(std::make_shared<State>(std::move(work))) {}
  /// Where something was thrown ahead of get(): nothing may use what goes away with it.
  ~Job() {
    if (state_ && abandon())
      wait();
  }
  Job(Job &&) noexcept = default;
  Job &operator=(Job other) noexcept {
    std::swap(state_, other.state_);
    return *this;
  }

  explicit operator bool() const { return state_ != nullptr; }
  /// Until it is over, whatever came of it.
  void finish() {
    state_->run();
    state_->wait();
  }
  Result get() {
    finish();
    if (state_->thrown)
      std::rethrow_exception(state_->thrown);
    return std::move(*state_->result);
  }
  /// Nobody begins it any more. Returns whether it has been begun; then it may be under way.
  bool abandon() { return !state_->giveUp(); }
  /// Of one that was begun: until it is over.
  void wait() { state_->wait(); }
  std::function<void()> forPool() const {
    return [state = state_] { state->run(); };
  }

private:
  /// Not a promise and its future: LLVM's archives hold their functions too, built without the thread sanitizer, which
  /// then sees races between both ends.
  struct State {
    explicit State(std::function<Result()> work) : work(std::move(work)) {}
    bool claim() {
      const std::lock_guard lock(mutex);
      return !std::exchange(isClaimed, true);
    }
    /// Whether nobody has begun it.
    bool giveUp() {
      const std::lock_guard lock(mutex);
      const bool isMine = !std::exchange(isClaimed, true);
      isDone |= isMine;
      return isMine;
    }
    void run() {
      if (!claim())
        return;
      try {
        result = work();
      } catch (...) {
        thrown = std::current_exception();
      }
      const std::lock_guard lock(mutex);
      isDone = true;
      over.notify_all();
    }
    void wait() {
      std::unique_lock lock(mutex);
      over.wait(lock, [this] { return isDone; });
    }
    const std::function<Result()> work;
    std::optional<Result> result;
    std::exception_ptr thrown;
    std::mutex mutex;
    std::condition_variable over;
    bool isClaimed = false, isDone = false;
  };
  std::shared_ptr<State> state_;
};

class Workers {
public:
  /// `processors`: 0: as many as there are; 1: whoever asks for something does it.
  explicit Workers(unsigned processors);
  ~Workers(); ///< waits for what is under way
  Workers(const Workers &) = delete;
  Workers &operator=(const Workers &) = delete;

  unsigned processors() const { return processors_; }

  template <typename Work> auto begin(Work work) -> Job<decltype(work())> {
    Job<decltype(work())> job(std::move(work));
    if (processors_ > 1)
      enqueue(job.forPool());
    return job;
  }

  /// Calls `work(i)` for each i below `count`. Waits for all, and throws what the first of them has thrown.
  template <typename Work> void forEach(std::size_t count, const Work &work) {
    std::vector<Job<bool>> jobs;
    for (std::size_t i = 0; i < count; ++i)
      jobs.push_back(begin([&work, i] { return work(i), true; }));
    for (Job<bool> &job : jobs)
      job.finish();
    for (Job<bool> &job : jobs)
      job.get();
  }

private:
  void enqueue(std::function<void()> work);

  class Pool;
  unsigned processors_;
  std::unique_ptr<Pool> pool_;
};

/// How many jobs each of several searches side by side may have under way: what one that is done leaves goes to the
/// others. Called from all their threads.
class Shares {
public:
  Shares(unsigned processors, std::size_t searches)
      : processors_(processors), searches_(static_cast<unsigned>(searches)) {}

  /// For each search that is not done, at least 1.
  unsigned ofEach() const;
  /// Once for each search.
  void searchIsDone() { --searches_; }

private:
  const unsigned processors_;
  std::atomic<unsigned> searches_;
};

} // namespace pumpgraph
