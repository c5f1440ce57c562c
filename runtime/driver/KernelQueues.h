// SPDX-License-Identifier: Apache-2.0
/// \file
/// In how many queues of the device kernels wait for what comes before them.
///
/// The driver spreads streams, and the branches of a graph, over queues that the device looks at in turn. While
/// kernels, or fills in branches, wait in more than two of them, copies are up to a tenth slower
/// (docs/results/probes.md). How many there are the driver reads from CUDA_DEVICE_MAX_CONNECTIONS when it is
/// initialised, and never again.
#pragma once

namespace pumpgraph::runtime {

struct KernelQueues {
  static constexpr const char *variable = "CUDA_DEVICE_MAX_CONNECTIONS";
  static constexpr int byDefault = 8; ///< of the driver
  static constexpr int few = 2;       ///< as many as copies do not suffer from

  int count = byDefault;

  bool areFew() const { return count <= few; }
};

/// Who has a say: a session on virtual memory wants few; one on managed memory as many as there are, since its agent
/// needs one in which no kernel waits.
enum class QueueWish : unsigned char { Few, Any };

/// What the environment says the driver has, or will have. If few are wished for, the variable is not set and the
/// driver is not yet initialised, sets it: then no other thread may be reading the environment.
KernelQueues settleKernelQueues(QueueWish wish, bool driverIsInitialised);

} // namespace pumpgraph::runtime
