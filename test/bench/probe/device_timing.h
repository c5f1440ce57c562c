// SPDX-License-Identifier: Apache-2.0
/// \file
/// How long the device takes.
#pragma once

#include "check.h"
#include "timing.h"

#include <vector>

/// Median microseconds from the beginning to the end of what `work` puts on the stream.
template <typename Work> double timeUs(cudaStream_t stream, Work work) {
  cudaEvent_t begin, end;
  check(cudaEventCreate(&begin), "event");
  check(cudaEventCreate(&end), "event");
  std::vector<double> times;
  for (int run = 0; run < 15; ++run) {
    check(cudaEventRecord(begin, stream), "event");
    work();
    check(cudaEventRecord(end, stream), "event");
    check(cudaEventSynchronize(end), "wait");
    float ms = 0;
    check(cudaEventElapsedTime(&ms, begin, end), "time");
    if (run > 2)
      times.push_back(ms * 1e3);
  }
  check(cudaEventDestroy(begin), "event");
  check(cudaEventDestroy(end), "event");
  return median(times);
}
