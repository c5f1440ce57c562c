// SPDX-License-Identifier: Apache-2.0
/// \file
/// The machine a plan is made for: link bandwidths, device memory bandwidth, host memory.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>

namespace pumpgraph {

/// Decimal bytes per second throughout. The defaults are one H200 on PCIe 5 x16, measured (docs/results/probes.md).
struct Machine {
  double upBytesPerSecond = 55e9;       ///< host to device, alone
  double downBytesPerSecond = 55e9;     ///< device to host, alone
  double bothBytesPerSecond = 92e9;     ///< both directions at once, summed
  double deviceBytesPerSecond = 3.9e12; ///< read plus written, one bandwidth-bound kernel
  double hostedShare = 0.7;             ///< of these, what a kernel reaches whose operands are in host memory
  double besideHostedShare = 0.15;      ///< and what copies reach meanwhile; both together at most 1
  /// What such a kernel reaches in each direction of that while it moves both ways. 0: as copies do.
  double hostedBothShare = 0;
  double besideHostedPace = 1;          ///< and how much of the overhead of a copy passes then in a microsecond
  double copyOverheadUs = 6.0;          ///< added to every copy node whatever its size, microseconds
  std::optional<double> downOverheadUs; ///< the same of copies to the host, where it is another
  /// Copies to the host that run side by side: they share the bandwidth, and each takes its overhead beside the others.
  /// At least 1.
  std::uint32_t downAtOnce = 1;
  /// Managed memory alone, where an agent does what the graph asks for: from the end of the node after which that is
  /// asked for to its beginning.
  double requestUs = 0;
  /// Managed memory alone: how fast pages are given memory, or lose it, without a value that moves. 0: at once.
  double emptyBytesPerSecond = 0;
  std::uint64_t hostBytes = UINT64_MAX; ///< pinned host memory that may be used for spilled data
  /// Where the link is not always the same: the fastest that was seen, which no bound may fall short of. 0: as above.
  double bestUpBytesPerSecond = 0;
  double bestDownBytesPerSecond = 0;
};

/// What goes on beside kernels with hosted operands on managed memory (docs/results/probes.md, "Managed memory"): alone
/// they reach all of the link; operations wait for them, for the driver changes no mapping meanwhile.
inline void setManagedHosting(Machine &machine) {
  machine.hostedShare = 0.9;
  machine.hostedBothShare = 0.81;
  machine.besideHostedShare = 0.1;
  machine.besideHostedPace = 0.1;
}

/// The slowdown (Access::slowdown) of a node that reaches all of its hosted pages as fast as the link can carry them
/// beside copies. One that takes less reaches only a part of them.
inline double slowdownOfCopies(const Machine &machine) {
  return machine.hostedShare / (1 - machine.besideHostedShare);
}

/// What a copy takes beside its bytes, microseconds.
inline double overheadUs(const Machine &machine, bool isDown) {
  return isDown ? machine.downOverheadUs.value_or(machine.copyOverheadUs) : machine.copyOverheadUs;
}

/// What it takes to give pages memory or to take it away, microseconds.
inline double emptyUs(const Machine &machine, std::uint64_t bytes) {
  return machine.emptyBytesPerSecond > 0 ? static_cast<double>(bytes) * 1e6 / machine.emptyBytesPerSecond : 0;
}

/// The machine at its best: what a bound counts on.
inline Machine atItsBest(Machine machine) {
  machine.upBytesPerSecond = std::max(machine.upBytesPerSecond, machine.bestUpBytesPerSecond);
  machine.downBytesPerSecond = std::max(machine.downBytesPerSecond, machine.bestDownBytesPerSecond);
  if (machine.bestUpBytesPerSecond > 0 || machine.bestDownBytesPerSecond > 0)
    machine.bothBytesPerSecond = machine.upBytesPerSecond + machine.downBytesPerSecond;
  machine.bothBytesPerSecond = std::max(
      machine.bothBytesPerSecond, machine.hostedBothShare * (machine.upBytesPerSecond + machine.downBytesPerSecond));
  return machine;
}

/// What copies reach in each direction, of what they reach alone, while both are busy; and what kernels reach that way.
inline double shareOfBoth(const Machine &machine) {
  return std::min(1.0, machine.bothBytesPerSecond / (machine.upBytesPerSecond + machine.downBytesPerSecond));
}
inline double hostedShareOfBoth(const Machine &machine) {
  return machine.hostedBothShare > 0 ? machine.hostedBothShare : shareOfBoth(machine);
}

/// What one direction of the link loses to the other: while one carries a share u of what it could alone, the other
/// carries at most 1 - u * interference(). When both run, both slow down alike (docs/design/cost-model.md), and in
/// between the time is shared. 0: they do not see each other. 1: they take turns.
inline double interference(const Machine &machine) {
  const double alone = machine.upBytesPerSecond + machine.downBytesPerSecond;
  const double both =
      std::max({machine.bothBytesPerSecond, machine.upBytesPerSecond, machine.downBytesPerSecond, alone / 2});
  return std::max(0.0, alone / both - 1);
}

/// How long the link takes for what takes so long in each direction alone.
inline double togetherUs(double upUs, double downUs, double interference) {
  return std::max(upUs, downUs) + interference * std::min(upUs, downUs);
}

} // namespace pumpgraph
