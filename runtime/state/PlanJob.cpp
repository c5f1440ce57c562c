// SPDX-License-Identifier: Apache-2.0
#include "runtime/state/PlanJob.h"

#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <mutex>

namespace pumpgraph::runtime {
namespace {

/// Of this process, for its end.
struct Threads {
  const pid_t process = getpid();
  std::mutex mutex;
  std::vector<std::shared_future<void>> all;

  static Threads &ofProcess() {
    static Threads &threads = *new Threads; // jobs may outlive static objects
    return threads;
  }
  void add(const std::shared_future<void> &thread) {
    const std::lock_guard lock(mutex);
    if (all.empty())
      std::atexit([] { ofProcess().wait(); });
    std::erase_if(all, [](const std::shared_future<void> &other) {
      return other.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
    });
    all.push_back(thread);
  }
  void wait() {
    if (getpid() != process) // a fork has none of the threads
      return;
    const std::lock_guard lock(mutex);
    for (const std::shared_future<void> &thread : all)
      thread.wait();
  }
};

} // namespace

Compilation compileNow(const Compiler &compiler, const Description &captured,
                       const pumpgraph_compiler_options &options) {
  const auto start = std::chrono::steady_clock::now();
  const DescriptionView view(captured);
  pumpgraph_compilation *made = nullptr;
  Compilation compilation;
  compilation.status = compiler.compile(view.get(), &options, &made);
  compilation.made = {made, compiler.release};
  compilation.milliseconds =
      std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
  return compilation;
}

Compilation PlanRequest::run(const Compiler &compiler) const {
  const DescriptionView boundaryView(boundary);
  pumpgraph_compiler_options own = options;
  own.costs_ir = costsIr.empty() ? nullptr : costsIr.c_str();
  own.device = device.c_str();
  own.boundary = given ? boundaryView.get() : nullptr;
  own.apart = apart.data();
  own.apart_count = apart.size();
  return compileNow(compiler, captured, own);
}

PlanJob::PlanJob(const Compiler &compiler, PlanRequest request)
    : compiler_(compiler), request_(std::move(request)),
      done_(std::async(std::launch::async, [this] { made_ = request_.run(compiler_); }).share()) {
  Threads::ofProcess().add(done_);
}

bool PlanJob::isDone() const {
  return done_.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
}

} // namespace pumpgraph::runtime
