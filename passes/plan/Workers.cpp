// SPDX-License-Identifier: Apache-2.0
#include "passes/plan/Workers.h"

#include <llvm/Support/ThreadPool.h>

#include <algorithm>
#include <thread>

namespace pumpgraph {

class Workers::Pool {
public:
  explicit Pool(llvm::ThreadPoolStrategy strategy) : threads(strategy) {}
  llvm::StdThreadPool threads; // its end waits for all that it has begun, and begins the rest
};

Workers::Workers(unsigned processors)
    : processors_(processors ? processors : std::max(std::thread::hardware_concurrency(), 1U)) {
  llvm::ThreadPoolStrategy strategy;
  strategy.ThreadsRequested = processors_;
  strategy.UseHyperThreads = true;
  if (processors_ > 1)
    pool_ = std::make_unique<Pool>(strategy);
}

Workers::~Workers() = default;

void Workers::enqueue(std::function<void()> work) {
  pool_->threads.async(std::move(work));
}

unsigned Shares::ofEach() const {
  constexpr unsigned most = 6; // of what more of them would try, much comes after a success and counts for nothing
  return std::clamp(processors_ / std::max(1U, searches_.load()), 1U, most);
}

} // namespace pumpgraph
