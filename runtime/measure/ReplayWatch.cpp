// SPDX-License-Identifier: Apache-2.0
#include "runtime/measure/ReplayWatch.h"

#include <algorithm>

namespace pumpgraph::runtime {

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

ReplayWatch::~ReplayWatch() {
  for (const CUevent clock : clocks_)
    driver_.eventDestroy.raw(clock);
}

Status ReplayWatch::record(CUstream stream) {
  CUevent clock = nullptr;
  PUMPGRAPH_TRY(driver_.eventCreate(&clock, CU_EVENT_DEFAULT));
  clocks_.push_back(clock);
  return driver_.eventRecord(clock, stream);
}

Status ReplayWatch::beforeLaunch(CUstream stream) {
  return replays_ == 0 || isFull() ? Status{} : record(stream);
}

Status ReplayWatch::afterLaunch(CUstream stream) {
  const Status recorded = replays_ == 0 || isFull() ? Status{} : record(stream);
  replays_ += isFull() ? 0 : 1;
  return recorded;
}

Expected<std::optional<double>> ReplayWatch::medianUs() const {
  std::vector<double> times;
  for (std::size_t i = 0; i + 1 < clocks_.size(); i += 2) {
    float ms = 0;
    const CUresult read = driver_.eventElapsedTime.raw(&ms, clocks_[i], clocks_[i + 1]);
    if (read == CUDA_ERROR_NOT_READY)
      return std::nullopt;
    if (read != CUDA_SUCCESS)
      return tl::unexpected<Error>(driverError("cuEventElapsedTime", read, driver_.getErrorName));
    times.push_back(static_cast<double>(ms) * 1e3);
  }
  if (times.empty())
    return std::nullopt;
  return median(std::move(times));
}

} // namespace pumpgraph::runtime
