// SPDX-License-Identifier: Apache-2.0
/// \file
/// A loop that works on the device, of programs under test.
#pragma once

#include "test/preload/DriverCalls.h"

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

namespace {

inline CUfunction kernel(const char *name) {
  CUmodule module = nullptr;
  CUfunction function = nullptr;
  MUST(FIND(cuModuleLoadData, 2000)(&module, ""));
  MUST(FIND(cuModuleGetFunction, 2000)(&function, module, name));
  return function;
}

/// The values of a loop with memory of its own in each round.
class Loop {
public:
  explicit Loop(std::size_t bytes) : bytes_(bytes), count_(static_cast<int>(bytes / sizeof(float))) {
    CUmodule module = nullptr;
    MUST(FIND(cuModuleLoadData, 2000)(&module, ""));
    const auto function = FIND(cuModuleGetFunction, 2000);
    MUST(function(&copy_, module, "copyFloats"));
    MUST(function(&scale_, module, "scaleAndAdd"));
    MUST(function(&set_, module, "setFloats"));
    MUST(FIND(cuStreamCreate, 2000)(&stream_, 0));
    MUST(memAlloc(&sum_, bytes_));
    launch(set_, sum_, count_, 0.0F);
  }

  void round(float factor, const std::function<void()> &inTheMiddle = [] {}) {
    CUdeviceptr first = 0, second = 0;
    MUST(FIND(cuMemAllocAsync, 11020)(&first, bytes_, stream_));
    MUST(memAlloc(&second, bytes_ / 2));
    for (int i = 0; i < 6; ++i)
      launch(set_, first, count_, factor + static_cast<float>(i));
    launch(copy_, second, first, count_ / 2);
    inTheMiddle();
    launch(scale_, first, second, count_ / 2, factor);
    launch(scale_, sum_, first, count_, 0.5F);
    MUST(memFree(second));
    MUST(FIND(cuMemFreeAsync, 11020)(first, stream_));
  }

  /// With a kernel that adds to the loop's memory through a table, which nothing names to the driver. Other memory is
  /// in use then, so that a plan could have moved it away.
  void roundThrough(CUfunction add, CUdeviceptr table) {
    if (other_ == 0)
      MUST(memAlloc(&other_, bytes_ / 2));
    round(0.5F, [&] {
      set(other_, count_ / 2, 0.0F);
      call(add, table, bytes_, 1.0F);
    });
  }

  void set(CUdeviceptr address, int count, float value) { launch(set_, address, count, value); }

  void evaluate() {
    for (int i = 0; i < 9; ++i)
      launch(scale_, sum_, sum_, count_ / 4, 0.0F);
  }

  void print() {
    std::vector<float> values(static_cast<std::size_t>(count_));
    MUST(FIND(cuMemcpyDtoH, 3020)(values.data(), sum_, bytes_));
    double sum = 0;
    for (std::size_t i = 0; i < values.size(); ++i)
      sum += values[i] * static_cast<double>(i % 7 + 1);
    std::printf("sum %.17g\n", sum);
  }

  void callWith(CUfunction function, std::vector<void *> pointers) {
    MUST(launchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream_, pointers.data(), nullptr));
  }
  CUstream stream() const { return stream_; }
  CUdeviceptr sum() const { return sum_; }
  /// By a kernel with an address and two numbers.
  void call(CUfunction function, CUdeviceptr address, std::size_t number, float value) {
    launch(function, address, number, value);
  }

private:
  template <typename... Arguments> void launch(CUfunction function, Arguments... arguments) {
    void *pointers[] = {&arguments...};
    MUST(launchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream_, pointers, nullptr));
  }

  std::size_t bytes_;
  int count_;
  CUfunction copy_ = nullptr, scale_ = nullptr, set_ = nullptr;
  CUstream stream_ = nullptr;
  CUdeviceptr sum_ = 0, other_ = 0;
};

using Scenarios = std::map<std::string, std::function<void(int rounds)>>;

/// Of a program with the arguments SCENARIO ROUNDS. Its exit status.
inline int runScenario(const Scenarios &scenarios, int count, char **arguments) {
  const auto scenario = count == 3 ? scenarios.find(arguments[1]) : scenarios.end();
  if (scenario == scenarios.end())
    return 2;
  openBy("proc");
  scenario->second(std::atoi(arguments[2]));
  return 0;
}

} // namespace
