// SPDX-License-Identifier: Apache-2.0
/// \file
/// Drawn programs with a loop: preload_loops SEED ROUNDS DEVIATIONS [disturbed]. Every round does the same on several
/// streams, but for things that happen once in `DEVIATIONS` steps: a read, a step left out, a round that ends early, a
/// capture. A program has no races, and prints what it reads: the same under pump-graph-run. A thread of its own may
/// disturb it, with memory of its own.
#include "test/preload/DriverCalls.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <memory>
#include <random>
#include <thread>
#include <utility>
#include <vector>

namespace {

constexpr std::size_t pageBytes = 2 * mebibyte;
constexpr std::size_t sparseBytes = std::size_t{64} << 10;

struct Memory {
  CUdeviceptr address = 0;
  std::size_t bytes = 0;
  int stream = -1; ///< by which it was used last; -1: it is idle
  bool isAsync = false;
  bool isSet = false; ///< what is read has a value
};

struct Step {
  enum Kind { Add, Set, Fill, Copy, Upload, Read, Allocate, Free, Synchronize } kind = Add;
  std::size_t to = 0, from = 0; ///< in Loop::memory_
  int stream = 0;
  std::size_t offset = 0, bytes = 0; ///< of copies
  float value = 0;
  bool byHost = false; ///< the host waits where a stream has to follow another
};

class Loop {
public:
  explicit Loop(unsigned seed) : random_(seed) {
    CUmodule module = nullptr;
    MUST(FIND(cuModuleLoadData, 2000)(&module, ""));
    MUST(FIND(cuModuleGetFunction, 2000)(&add_, module, "addSparsely"));
    MUST(FIND(cuModuleGetFunction, 2000)(&set_, module, "setSparsely"));
    for (std::size_t left = 1 + draw(3); left-- > 0;) {
      CUstream stream = nullptr; // the legacy default stream
      if (!streams_.empty() || draw(3) != 0)
        MUST(FIND(cuStreamCreate, 2000)(&stream, draw(3) == 0 ? CU_STREAM_DEFAULT : CU_STREAM_NON_BLOCKING));
      streams_.push_back(stream);
    }
    MUST(FIND(cuEventCreate, 2000)(&event_, CU_EVENT_DISABLE_TIMING));
    for (std::size_t left = 2 + draw(5); left-- > 0;) {
      memory_.push_back({.bytes = drawBytes(), .isAsync = draw(2) == 0});
      allocate(memory_.back(), 0);
      launchSet(memory_.back(), static_cast<float>(memory_.size()), 0);
    }
    kept_ = memory_.size();
    drawSteps();
  }

  void run(int rounds, std::size_t deviations) {
    for (int round = 0; round < rounds; ++round) {
      for (const Step &step : steps_) {
        if (deviations != 0 && draw(deviations) == 0 && deviate(step))
          continue;
        if (leaves_)
          break;
        take(step, round);
      }
      leaves_ = false;
      for (std::size_t i = kept_; i < memory_.size(); ++i)
        if (memory_[i].address != 0)
          release(memory_[i], 0);
    }
    for (std::size_t i = 0; i < kept_; ++i)
      read(memory_[i], 0, memory_[i].bytes);
  }

private:
  std::size_t draw(std::size_t count) { return random_() % count; }
  std::size_t drawBytes() {
    return draw(6) == 0 ? sparseBytes * (1 + draw(8)) : pageBytes * (1 + draw(3)) - draw(2) * 512;
  }

  /// Memory of a round is allocated before it is used and freed behind that, in the round or at its end.
  void drawSteps() {
    std::vector<std::size_t> alive;
    for (std::size_t i = 0; i < kept_; ++i)
      alive.push_back(i);
    for (std::size_t left = 12 + draw(24); left-- > 0;) {
      Step step{.kind = static_cast<Step::Kind>(draw(9)),
                .stream = static_cast<int>(draw(streams_.size())),
                .value = static_cast<float>(draw(9)) / 8,
                .byHost = draw(4) == 0};
      if (step.kind == Step::Allocate && memory_.size() < kept_ + 6) {
        step.to = memory_.size();
        memory_.push_back({.bytes = drawBytes(), .isAsync = draw(2) == 0});
        alive.push_back(step.to);
        steps_.push_back(step);
        step.kind = Step::Set; // what is read of it later has a value
      } else if (step.kind == Step::Free || step.kind == Step::Allocate) {
        const std::size_t place = kept_ + draw(std::max<std::size_t>(1, alive.size() - kept_));
        step.kind = place < alive.size() ? Step::Free : Step::Add;
        step.to = alive[place < alive.size() ? place : draw(alive.size())];
        if (step.kind == Step::Free)
          alive.erase(alive.begin() + static_cast<std::ptrdiff_t>(place));
      } else {
        step.to = alive[draw(alive.size())];
      }
      step.from = step.kind == Step::Free ? step.to : alive[draw(alive.size())];
      const std::size_t most = std::min(memory_[step.to].bytes, memory_[step.from].bytes) / sparseBytes;
      step.offset = sparseBytes * draw(std::max<std::size_t>(1, most));
      step.bytes = most == 0 ? 512 : sparseBytes * (1 + draw(most)) - step.offset;
      if (step.offset >= most * sparseBytes || step.bytes > most * sparseBytes)
        step.offset = 0, step.bytes = std::min(memory_[step.to].bytes, memory_[step.from].bytes);
      steps_.push_back(step);
    }
  }

  /// Work on the stream may use the memory from now on.
  void follow(Memory &memory, int stream, bool byHost) {
    const int last = std::exchange(memory.stream, stream);
    if (last == -1 || last == stream)
      return;
    if (byHost) {
      MUST(FIND(cuStreamSynchronize, 2000)(streams_[static_cast<std::size_t>(last)]));
      return;
    }
    MUST(FIND(cuEventRecord, 2000)(event_, streams_[static_cast<std::size_t>(last)]));
    MUST(FIND(cuStreamWaitEvent, 3020)(streams_[static_cast<std::size_t>(stream)], event_, 0));
  }

  void allocate(Memory &memory, int stream) {
    MUST(memory.isAsync
             ? FIND(cuMemAllocAsync, 11020)(&memory.address, memory.bytes, streams_[static_cast<std::size_t>(stream)])
             : memAlloc(&memory.address, memory.bytes));
    memory.stream = memory.isAsync ? stream : -1;
    memory.isSet = false;
  }

  void release(Memory &memory, int stream) {
    if (memory.isAsync)
      follow(memory, stream, false);
    MUST(memory.isAsync ? FIND(cuMemFreeAsync, 11020)(memory.address, streams_[static_cast<std::size_t>(stream)])
                        : memFree(memory.address));
    memory.address = 0;
  }

  void launchSet(Memory &memory, float value, int stream) {
    follow(memory, stream, false);
    memory.isSet = true;
    void *parameters[] = {&memory.address, &memory.bytes, &value};
    MUST(launchKernel(set_, 1, 1, 1, 1, 1, 1, 0, streams_[static_cast<std::size_t>(stream)], parameters, nullptr));
  }

  void read(Memory &memory, std::size_t offset, std::size_t bytes) {
    std::vector<char> values(bytes);
    if (memory.stream >= 0)
      MUST(FIND(cuStreamSynchronize, 2000)(streams_[static_cast<std::size_t>(memory.stream)]));
    memory.stream = -1;
    MUST(FIND(cuMemcpyDtoH, 3020)(values.data(), memory.address + offset, bytes));
    double sum = 0;
    for (std::size_t at = 0; at + sizeof(float) <= bytes; at += sparseBytes) {
      float value;
      std::memcpy(&value, values.data() + at, sizeof value);
      sum = sum * 0.75 + value;
    }
    std::printf("%zu bytes %.9g\n", bytes, sum);
  }

  void take(const Step &step, int round) {
    Memory &to = memory_[step.to], &from = memory_[step.from];
    if (step.kind == Step::Allocate) {
      if (to.address == 0)
        allocate(to, step.stream);
      return;
    }
    if (to.address == 0 || from.address == 0)
      return; // a step was left out
    const auto stream = streams_[static_cast<std::size_t>(step.stream)];
    const bool isOnStream = step.kind != Step::Free && step.kind != Step::Read && step.kind != Step::Synchronize;
    if (isOnStream)
      follow(to, step.stream, step.byHost);
    if (step.kind == Step::Add || step.kind == Step::Copy)
      follow(from, step.stream, step.byHost);
    switch (step.kind) {
    case Step::Add: {
      float factor = step.value * (1 + static_cast<float>(round % 3)) / 4;
      std::size_t bytes = std::min(to.bytes, from.bytes);
      void *parameters[] = {&to.address, &from.address, &bytes, &factor};
      MUST(launchKernel(add_, 1, 1, 1, 1, 1, 1, 0, stream, parameters, nullptr));
      break;
    }
    case Step::Set:
      launchSet(to, step.value + static_cast<float>(round), step.stream);
      break;
    case Step::Fill:
      MUST(FIND(cuMemsetD8Async, 3020)(to.address + step.offset, static_cast<unsigned char>(step.value), step.bytes,
                                       stream));
      break;
    case Step::Copy:
      MUST(FIND(cuMemcpyDtoDAsync, 3020)(to.address + step.offset, from.address, step.bytes, stream));
      break;
    case Step::Upload: {
      const std::vector<float> values(step.bytes / sizeof(float), step.value + static_cast<float>(round));
      MUST(FIND(cuMemcpyHtoDAsync, 3020)(to.address + step.offset, values.data(), values.size() * sizeof(float),
                                         stream));
      break;
    }
    case Step::Read:
      read(to, step.offset, step.bytes);
      break;
    case Step::Free:
      release(to, step.stream);
      break;
    default:
      MUST(FIND(cuStreamSynchronize, 2000)(stream));
    }
  }

  /// Whether the step is left out.
  bool deviate(const Step &step) {
    Memory &memory = memory_[draw(memory_.size())];
    switch (draw(7)) {
    case 0:
      return step.kind != Step::Allocate && step.kind != Step::Set;
    case 1:
      leaves_ = true;
      return false;
    case 2:
      MUST(FIND(cuCtxSynchronize, 2000)());
      return false;
    case 3:
      capture();
      return false;
    case 4: {
      Memory more{.bytes = drawBytes(), .isAsync = draw(2) == 0};
      allocate(more, 0);
      launchSet(more, 3, 0);
      read(more, 0, more.bytes);
      release(more, 0);
      return false;
    }
    case 5:
      if (memory.address != 0)
        launchSet(memory, 5, static_cast<int>(draw(streams_.size())));
      return false;
    default:
      if (memory.address != 0 && memory.isSet)
        read(memory, 0, memory.bytes);
      return false;
    }
  }

  /// A graph that is launched once. It may stay, and be launched again in place of another one's capture.
  void capture() {
    const auto own = std::find_if(streams_.begin(), streams_.end(), [](CUstream stream) { return stream != nullptr; });
    if (own == streams_.end())
      return;
    CUgraph graph = nullptr;
    CUgraphExec exec = nullptr;
    Memory &memory = memory_[draw(kept_)];
    const auto stream = static_cast<int>(own - streams_.begin());
    if (keptGraph_) {
      follow(*keptMemory_, stream, true);
      MUST(FIND(cuGraphLaunch, 10000)(keptGraph_, *own));
      return;
    }
    follow(memory, stream, true);
    MUST(FIND(cuStreamBeginCapture, 10010)(*own, CU_STREAM_CAPTURE_MODE_RELAXED));
    launchSet(memory, 7, stream);
    MUST(FIND(cuStreamEndCapture, 10000)(*own, &graph));
    MUST(FIND(cuGraphInstantiateWithFlags, 11040)(&exec, graph, 0));
    MUST(FIND(cuGraphLaunch, 10000)(exec, *own));
    if (draw(2) == 0) {
      keptGraph_ = exec;
      keptMemory_ = &memory;
    } else {
      MUST(FIND(cuGraphExecDestroy, 10000)(exec));
    }
    MUST(FIND(cuGraphDestroy, 10000)(graph));
  }

  std::mt19937 random_;
  CUfunction add_ = nullptr, set_ = nullptr;
  std::vector<CUstream> streams_;
  CUevent event_ = nullptr;
  std::vector<Memory> memory_; ///< that of rounds is last
  std::size_t kept_ = 0;
  std::vector<Step> steps_;
  CUgraphExec keptGraph_ = nullptr; ///< that works in `keptMemory_`
  Memory *keptMemory_ = nullptr;
  bool leaves_ = false;
};

/// Works beside a loop until it ends, and says when a value is wrong.
class Disturber {
public:
  explicit Disturber(unsigned seed)
      : thread_([this, seed] {
          CUcontext context = nullptr;
          MUST(FIND(cuDevicePrimaryCtxRetain, 7000)(&context, 0));
          MUST(FIND(cuCtxSetCurrent, 4000)(context));
          std::mt19937 random(seed);
          while (!isOver_) {
            disturb(random);
            std::this_thread::sleep_for(std::chrono::microseconds(random() % 20000));
          }
        }) {}
  ~Disturber() {
    isOver_ = true;
    thread_.join();
  }

private:
  static void disturb(std::mt19937 &random) {
    CUmodule module = nullptr;
    CUfunction set = nullptr;
    CUdeviceptr address = 0;
    std::size_t bytes = pageBytes * (1 + random() % 2);
    MUST(FIND(cuModuleLoadData, 2000)(&module, ""));
    MUST(FIND(cuModuleGetFunction, 2000)(&set, module, "setSparsely"));
    MUST(memAlloc(&address, bytes));
    for (int i = 0; i < 3; ++i) {
      auto value = static_cast<float>(random() % 100), found = -1.0F;
      void *parameters[] = {&address, &bytes, &value};
      MUST(launchKernel(set, 1, 1, 1, 1, 1, 1, 0, CU_STREAM_PER_THREAD, parameters, nullptr));
      MUST(FIND(cuStreamSynchronize, 2000)(CU_STREAM_PER_THREAD));
      MUST(FIND(cuMemcpyDtoH, 3020)(&found, address, sizeof found));
      if (found != value)
        std::printf("%g in place of %g\n", found, value);
    }
    MUST(memFree(address));
  }

  std::atomic<bool> isOver_ = false;
  std::thread thread_;
};

} // namespace

int main(int count, char **arguments) {
  if (count != 4 && count != 5)
    return 2;
  openBy("proc");
  const std::unique_ptr<Disturber> disturber(count == 5 ? new Disturber(1) : nullptr);
  Loop(static_cast<unsigned>(std::atoi(arguments[1])))
      .run(std::atoi(arguments[2]), static_cast<std::size_t>(std::atoi(arguments[3])));
  return 0;
}
