// SPDX-License-Identifier: Apache-2.0
#include "runtime/session/ManagedLink.h"

#include "runtime/agent/DriverMover.h"

#include <algorithm>
#include <chrono>
#include <cmath>

namespace pumpgraph::runtime {
namespace {

/// What seeing a request and answering it takes, beside the driver's call (docs/measurements.md).
constexpr double handshakeUs = 80;
constexpr std::uint64_t wantedPages = 64;
/// Fewer do not tell bytes from overhead.
constexpr std::uint64_t leastPages = 8;
constexpr int runs = 5;

/// One H200 (docs/measurements.md).
ManagedLink unmeasured() {
  return {.typical = {50e9, 14e9, 32e9}, .best = {51e9, 17e9, 34e9}, .operationUs = 120, .bytes = 0};
}

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2), values.end());
  return values[values.size() / 2];
}
double least(const std::vector<double> &values) {
  return *std::min_element(values.begin(), values.end());
}

/// Of the larger move's time, what its bytes do not explain, if bytes take the same time in both.
double overheadUs(const MoveTimes &large, const MoveTimes &small, double largeUs, double smallUs) {
  const double share = static_cast<double>(small.bytes) / static_cast<double>(large.bytes);
  if (smallUs >= largeUs)
    return 0; // something else was in the way: then the bytes have to explain it all
  return std::clamp((smallUs - share * largeUs) / (1 - share), 0.0, smallUs);
}

constexpr double unit = 0.5e9;

} // namespace

ManagedLink linkOf(const MoveTimes &large, const MoveTimes &small) {
  ManagedLink link{.typical = {}, .best = {}, .operationUs = 0, .bytes = large.bytes};
  const auto speedOf = [&](double us, double overhead) {
    return static_cast<double>(large.bytes) / std::max(us - overhead, us / 2) * 1e6;
  };
  double overheads = 0;
  const auto measure = [&](const std::vector<double> &largeUs, const std::vector<double> &smallUs, double &typical,
                           double &best) {
    const double overhead = overheadUs(large, small, median(largeUs), median(smallUs));
    // Rounded so that measuring again seldom changes a plan; the best to the safe side.
    typical = std::max(unit, std::round(speedOf(median(largeUs), overhead) / unit) * unit);
    best = std::max(typical, std::ceil(speedOf(least(largeUs), overhead) / unit) * unit);
    overheads += overhead;
  };
  measure(large.upUs, small.upUs, link.typical.up, link.best.up);
  measure(large.downUs, small.downUs, link.typical.down, link.best.down);
  for (LinkSpeed *speed : {&link.typical, &link.best})
    speed->both = (speed->up + speed->down) / 2;
  link.operationUs = handshakeUs + std::round(overheads / 2);
  return link;
}

Expected<ManagedLink> measureManagedLink(const Driver &driver, int device, AddressSpace &arena, std::uint64_t mostBytes,
                                         CUstream stream) {
  std::uint64_t pages = std::min(wantedPages, mostBytes / pageBytes);
  Expected<CUdeviceptr> address = fail(PUMPGRAPH_OUT_OF_DEVICE_MEMORY, "no pages");
  for (; pages >= leastPages; pages /= 2)
    if (address = arena.carve(pages); address)
      break;
  if (!address)
    return unmeasured();
  const auto move = [&](std::uint64_t bytes, bool up) -> Expected<double> {
    const auto start = std::chrono::steady_clock::now();
    PUMPGRAPH_TRY(driver.memPrefetchAsync(*address, bytes, locationOf(up, device), 0, stream));
    PUMPGRAPH_TRY(driver.streamSynchronize(stream));
    return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count();
  };
  const auto repeat = [&](MoveTimes &times) -> Status {
    for (int run = 0; run < runs; ++run)
      for (const bool up : {false, true}) {
        const Expected<double> us = move(times.bytes, up);
        if (!us)
          return tl::unexpected<Error>(us.error());
        (up ? times.upUs : times.downUs).push_back(*us);
      }
    return {};
  };
  MoveTimes large{.bytes = pages * pageBytes, .upUs = {}, .downUs = {}};
  MoveTimes small{.bytes = pageBytes, .upUs = {}, .downUs = {}};
  const auto measure = [&]() -> Status {
    // What nobody has touched is nowhere, and moving it would measure nothing.
    PUMPGRAPH_TRY(move(large.bytes, true));
    PUMPGRAPH_TRY(driver.memsetD8Async(*address, 0, large.bytes, stream));
    PUMPGRAPH_TRY(driver.streamSynchronize(stream));
    PUMPGRAPH_TRY(repeat(large));
    PUMPGRAPH_TRY(repeat(small));
    PUMPGRAPH_TRY(move(large.bytes, false));
    return {};
  };
  const Status measured = measure();
  arena.unseen(*address, pages);
  PUMPGRAPH_TRY_WHILE(measured, "measuring the link");
  return linkOf(large, small);
}

} // namespace pumpgraph::runtime
