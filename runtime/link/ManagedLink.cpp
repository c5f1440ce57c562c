// SPDX-License-Identifier: Apache-2.0
#include "runtime/link/ManagedLink.h"

#include "runtime/agent/DriverMover.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <thread>

namespace pumpgraph::runtime {
namespace {

constexpr std::uint64_t wantedPages = 64;
/// Fewer do not tell bytes from overhead.
constexpr std::uint64_t leastPages = 8;
constexpr int runs = 5;

/// One H200 (docs/decisions/12-managed-evictions.md).
ManagedLink unmeasured() {
  return {.typical = {50e9, 37e9, 79e9},
          .best = {52e9, 50e9, 93e9},
          .upOverheadUs = 60,
          .downOverheadUs = 190,
          .emptyBytesPerSecond = 270e9,
          .bytes = 0};
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

/// No call takes less.
constexpr double leastOverheadUs = 1;

constexpr double unit = 0.5e9, emptyUnit = 10e9;

/// What a direction loses to the other while both are busy (interference() of passes/analysis/Machine.h): 0 nothing, 1
/// as much as if they took turns. In tenths, so that measuring again seldom changes a plan.
double interferenceOf(const MoveTimes &beside, double aloneUs) {
  if (beside.upUs.empty())
    return 1;
  return std::round(std::clamp(median(beside.upUs) / aloneUs - 1, 0.0, 1.0) * 10) / 10;
}

/// What each direction loses to the other, of speeds that withInterference() made.
double interferenceOf(const LinkSpeed &speed) {
  return (speed.up + speed.down) / speed.both - 1;
}

LinkSpeed withInterference(double up, double down, double interference) {
  return {up, down, (up + down) / (1 + interference)};
}

/// Measurements of a link that nothing is in the way of differ by less (docs/design/managed.md).
constexpr double noticeablyFaster = 1.15;

/// Pages of the arena that are moved to and fro, by the same hands as an agent's operations; what a move takes,
/// microseconds.
class Measuring {
public:
  Measuring(const Driver &driver, CUdeviceptr address, const LaneContexts &contexts, DriverMover &mover)
      : driver_(driver), address_(address), contexts_(contexts), mover_(mover) {}

  Expected<double> move(std::uint64_t offset, std::uint64_t bytes, bool up) const {
    return carryOut(up ? Operation::Kind::Prefetch : Operation::Kind::Evict, offset, bytes);
  }
  Expected<double> carryOut(Operation::Kind kind, std::uint64_t offset, std::uint64_t bytes) const {
    const Operation operation{kind, address_ + offset, bytes, "", {}, true};
    const Driver::Clock::time_point start = driver_.now();
    PUMPGRAPH_TRY(mover_.tryMove(operation));
    return std::chrono::duration<double, std::micro>(driver_.now() - start).count();
  }

  /// To the host and back, as often as is measured.
  Status repeat(MoveTimes &times) const {
    for (int run = 0; run < runs; ++run)
      for (const bool up : {false, true}) {
        const Expected<double> us = move(0, times.bytes, up);
        if (!us)
          return tl::unexpected<Error>(us.error());
        (up ? times.upUs : times.downUs).push_back(*us);
      }
    return {};
  }

  /// The pages after `bytes` go down while the first ones come up.
  Status repeatBeside(MoveTimes &times) const {
    for (int run = 0; run < runs; ++run) {
      PUMPGRAPH_TRY(move(0, times.bytes, false));
      PUMPGRAPH_TRY(move(times.bytes, times.bytes, true));
      Expected<double> down = 0.0;
      std::thread other([&] { down = move(times.bytes, times.bytes, false); });
      const Expected<double> up = move(0, times.bytes, true);
      other.join();
      PUMPGRAPH_TRY(up);
      PUMPGRAPH_TRY(down);
      times.upUs.push_back(*up);
    }
    return {};
  }

  /// Takes the pages' memory away and gives them some, without a value.
  Status repeatEmpty(MoveTimes &times) const {
    PUMPGRAPH_TRY(move(0, times.bytes, true));
    for (int run = 0; run < runs; ++run) {
      const Expected<double> lost = carryOut(Operation::Kind::Discard, 0, times.bytes);
      if (!lost)
        return tl::unexpected<Error>(lost.error());
      const Expected<double> given = move(0, times.bytes, true);
      if (!given)
        return tl::unexpected<Error>(given.error());
      times.downUs.push_back(*lost);
      times.upUs.push_back(*given);
    }
    return {};
  }

  /// What nobody has touched is nowhere, and moving it would measure nothing.
  Status touch(std::uint64_t bytes) const {
    PUMPGRAPH_TRY(move(0, bytes, true));
    const ContextScope scope(driver_, contexts_.up());
    CUstream stream = nullptr;
    PUMPGRAPH_TRY(driver_.streamCreate(&stream, CU_STREAM_NON_BLOCKING));
    Status touched = driver_.memsetD8Async(address_, 0, bytes, stream);
    if (touched)
      touched = driver_.streamSynchronize(stream);
    driver_.streamDestroy.raw(stream);
    return touched;
  }

private:
  const Driver &driver_;
  CUdeviceptr address_;
  const LaneContexts &contexts_;
  DriverMover &mover_;
};

/// Large and small moves, halves of the large one both ways at once, and what moves no value.
struct AllTimes {
  MoveTimes large, small, beside, empty;
};

Status measureAll(const Measuring &measuring, AllTimes &times) {
  PUMPGRAPH_TRY(measuring.touch(times.large.bytes));
  PUMPGRAPH_TRY(measuring.repeat(times.large));
  PUMPGRAPH_TRY(measuring.repeat(times.small));
  if (times.beside.bytes != 0)
    PUMPGRAPH_TRY(measuring.repeatBeside(times.beside));
  if (times.empty.bytes != 0)
    PUMPGRAPH_TRY(measuring.repeatEmpty(times.empty));
  PUMPGRAPH_TRY(measuring.move(0, times.large.bytes, false));
  return {};
}

} // namespace

ManagedLink linkOf(const MoveTimes &large, const MoveTimes &small, const MoveTimes &beside, const MoveTimes &empty) {
  ManagedLink link;
  link.bytes = large.bytes;
  const auto speedOf = [&](double us, double overhead) {
    return static_cast<double>(large.bytes) / std::max(us - overhead, us / 2) * 1e6;
  };
  const auto measure = [&](const std::vector<double> &largeUs, const std::vector<double> &smallUs, double &typical,
                           double &best) {
    const double overhead = overheadUs(large, small, median(largeUs), median(smallUs));
    // Rounded so that measuring again seldom changes a plan; the best to the safe side.
    typical = std::max(unit, std::round(speedOf(median(largeUs), overhead) / unit) * unit);
    best = std::max(typical, std::ceil(speedOf(least(largeUs), overhead) / unit) * unit);
    return std::max(leastOverheadUs, std::round(overhead));
  };
  link.upOverheadUs = measure(large.upUs, small.upUs, link.typical.up, link.best.up);
  link.downOverheadUs = measure(large.downUs, small.downUs, link.typical.down, link.best.down);
  if (!empty.upUs.empty())
    link.emptyBytesPerSecond = std::ceil(2 * static_cast<double>(empty.bytes) * 1e6 /
                                         (median(empty.upUs) + median(empty.downUs)) / emptyUnit) *
                               emptyUnit;
  const double aloneUs = link.upOverheadUs + static_cast<double>(beside.bytes) / link.typical.up * 1e6;
  const double interference = interferenceOf(beside, aloneUs);
  for (LinkSpeed *speed : {&link.typical, &link.best})
    *speed = withInterference(speed->up, speed->down, interference);
  return link;
}

ManagedLink together(const ManagedLink &first, const ManagedLink &second) {
  const double interference = std::min(interferenceOf(first.typical), interferenceOf(second.typical));
  const auto faster = [&](const LinkSpeed &one, const LinkSpeed &other) {
    return withInterference(std::max(one.up, other.up), std::max(one.down, other.down), interference);
  };
  return {.typical = faster(first.typical, second.typical),
          .best = faster(first.best, second.best),
          .upOverheadUs = std::min(first.upOverheadUs, second.upOverheadUs),
          .downOverheadUs = std::min(first.downOverheadUs, second.downOverheadUs),
          .emptyBytesPerSecond = std::max(first.emptyBytesPerSecond, second.emptyBytesPerSecond),
          .bytes = first.bytes};
}

bool wasDisturbed(const ManagedLink &before, const ManagedLink &after) {
  return after.typical.up > before.typical.up * noticeablyFaster ||
         after.typical.down > before.typical.down * noticeablyFaster;
}

Expected<ManagedLink> measureManagedLink(const Driver &driver, int device, AddressSpace &arena, std::uint64_t mostBytes,
                                         const LaneContexts &contexts) {
  std::uint64_t pages = std::min(wantedPages, mostBytes / pageBytes);
  Expected<CUdeviceptr> address = fail(PUMPGRAPH_OUT_OF_DEVICE_MEMORY, "no pages");
  for (; pages >= leastPages; pages /= 2)
    if (address = arena.carve(pages); address)
      break;
  if (!address)
    return unmeasured();
  AllTimes times;
  times.large.bytes = pages * pageBytes;
  if (driver.memDiscardBatchAsync)
    times.empty.bytes = times.large.bytes;
  if (contexts.ownContexts() != 0) // in one context the directions take turns
    times.beside.bytes = pages / 2 * pageBytes;
  // In a thread of its own: who moves makes contexts current.
  Status measured;
  std::thread([&] {
    Expected<std::unique_ptr<DriverMover>> mover = DriverMover::create(driver, device, contexts);
    if (!mover) {
      measured = tl::unexpected<Error>(mover.error());
      return;
    }
    // A page for each thread, so that both sizes are moved in the same way.
    times.small.bytes = (*mover)->toHostAtOnce() * pageBytes;
    measured = measureAll(Measuring(driver, *address, contexts, **mover), times);
  }).join();
  arena.unseen(*address, pages);
  PUMPGRAPH_TRY_WHILE(measured, "measuring the link");
  return linkOf(times.large, times.small, times.beside, times.empty);
}

} // namespace pumpgraph::runtime
