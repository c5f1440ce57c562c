// SPDX-License-Identifier: Apache-2.0
// A compiler library for tests: the real one, but that on threads other than the test's it waits, or fails, as told.
#include "test/unit/runtime/WaitingCompiler.h"

#include "pumpgraph/compiler.h"

#include <dlfcn.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>

using namespace pumpgraph::runtime::test;

namespace {

std::mutex mutex;
std::condition_variable changed;
Aside present = Aside::Plans;
std::thread::id thread; ///< the test's
int requests = 0;
std::atomic<int> underWay = 0;

/// Stands for the static objects of a compiler library.
struct Objects {
  ~Objects() {
    if (underWay != 0)
      _exit(pumpgraph_test_status_of_plans_without_library);
  }
} objects;

Aside answerOfThisThread() {
  std::unique_lock lock(mutex);
  if (std::this_thread::get_id() == thread)
    return Aside::Plans;
  ++requests;
  changed.notify_all();
  changed.wait(lock, [] { return present != Aside::Waits; });
  return present;
}

} // namespace

extern "C" {

void pumpgraph_test_plan_aside(Aside answer) {
  const std::lock_guard lock(mutex);
  present = answer;
  thread = std::this_thread::get_id();
  changed.notify_all();
}

bool pumpgraph_test_wait_for_request(int count) {
  std::unique_lock lock(mutex);
  return changed.wait_for(lock, std::chrono::minutes(2), [&] { return requests >= count; });
}

int pumpgraph_test_requests() {
  const std::lock_guard lock(mutex);
  return requests;
}

pumpgraph_compiler_status pumpgraph_compiler_compile(const pumpgraph_description *captured,
                                                     const pumpgraph_compiler_options *options,
                                                     pumpgraph_compilation **out) {
  struct Call {
    Call() { ++underWay; }
    ~Call() { --underWay; }
  } call;
  if (answerOfThisThread() == Aside::HasNoMemory) {
    *out = nullptr;
    return PUMPGRAPH_COMPILER_NO_MEMORY;
  }
  void *library = dlopen(PUMPGRAPH_COMPILER_LIBRARY, RTLD_NOW | RTLD_LOCAL);
  const auto real =
      reinterpret_cast<decltype(&pumpgraph_compiler_compile)>(dlsym(library, "pumpgraph_compiler_compile"));
  return real(captured, options, out);
}

} // extern "C"
