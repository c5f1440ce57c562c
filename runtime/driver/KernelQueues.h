// SPDX-License-Identifier: Apache-2.0
/// \file
/// The number of device queues in which kernels wait.
///
/// The driver spreads streams, and the branches of a graph, over queues that the device serves in turn. While kernels,
/// or fills in branches, wait in more than two queues, copies are up to a tenth slower (docs/results/probes.md). The
/// driver reads the number of queues from CUDA_DEVICE_MAX_CONNECTIONS once, at its initialisation.
#pragma once

namespace pumpgraph::runtime {

struct KernelQueues {
  static constexpr const char *variable = "CUDA_DEVICE_MAX_CONNECTIONS";
  static constexpr int byDefault = 8; ///< of the driver
  static constexpr int few = 2;       ///< as many as copies do not suffer from

  int count = byDefault;

  bool areFew() const { return count <= few; }
};

/// The demand of a session: few queues on virtual memory; any number on managed memory, whose agent needs a queue
/// without waiting kernels.
enum class QueueWish : unsigned char { Few, Any };

/// What the environment says the driver has, or will have. If few are wished for, the variable is not set and the
/// driver is not yet initialised, sets it: then no other thread may be reading the environment.
KernelQueues settleKernelQueues(QueueWish wish, bool driverIsInitialised);

} // namespace pumpgraph::runtime
