// SPDX-License-Identifier: Apache-2.0
#include "passes/plan/Workers.h"

#include "passes/plan/Knobs.h"

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <system_error>
#include <thread>

namespace pumpgraph {

/// Not LLVM's or TBB's: these are built without the thread sanitizer, which reports races of all that they hand from
/// thread to thread.
class Workers::Pool {
public:
  /// With as many as the system gives. Without any whoever asks for something does it.
  explicit Pool(unsigned threads) {
    threads_.reserve(threads);
    try {
      while (threads_.size() < threads)
        threads_.emplace_back([this] { work(); });
    } catch (const std::system_error &) { // at a limit of the user's, or of a container
    }
  }
  ~Pool() {
    {
      const std::lock_guard lock(mutex_);
      waiting_.clear();
      isOver_ = true;
    }
    changed_.notify_all();
    for (std::thread &thread : threads_)
      thread.join();
  }
  Pool(const Pool &) = delete;
  Pool &operator=(const Pool &) = delete;

  void add(std::function<void()> job) {
    {
      const std::lock_guard lock(mutex_);
      waiting_.push_back(std::move(job));
    }
    changed_.notify_one();
  }

private:
  void work() {
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [this] { return isOver_ || !waiting_.empty(); });
      if (isOver_)
        return;
      std::function<void()> job = std::move(waiting_.front());
      waiting_.pop_front();
      lock.unlock();
      job();
      job = nullptr; // what it holds may be large
      lock.lock();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> waiting_;
  bool isOver_ = false;
  std::vector<std::thread> threads_; // last: they use all others
};

Workers::Workers(unsigned processors)
    : processors_(processors ? processors : std::max(std::thread::hardware_concurrency(), 1U)) {
  if (processors_ > 1)
    pool_ = std::make_unique<Pool>(processors_);
}

Workers::~Workers() = default;

void Workers::enqueue(std::function<void()> work) {
  pool_->add(std::move(work));
}

unsigned Shares::ofEach() const {
  return std::clamp(processors_ / std::max(1U, searches_.load()), 1U, knobs::mostAhead);
}

} // namespace pumpgraph
