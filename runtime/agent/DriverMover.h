// SPDX-License-Identifier: Apache-2.0
/// \file
/// An agent's hands: the driver's calls for managed memory, on a stream for each direction.
#pragma once

#include "runtime/agent/Agent.h"
#include "runtime/driver/Driver.h"

namespace pumpgraph::runtime {

/// What prefetches and advice name as their target.
CUmemLocation locationOf(bool onDevice, int device);

class DriverMover : public Mover {
public:
  static Expected<std::unique_ptr<DriverMover>> create(const Driver &driver, int device, CUcontext context);
  ~DriverMover() override;
  DriverMover(const DriverMover &) = delete;
  DriverMover &operator=(const DriverMover &) = delete;

  bool move(const Operation &operation) override;

private:
  DriverMover(const Driver &driver, int device, CUcontext context)
      : driver_(driver), device_(device), context_(context) {}

  struct Lane {
    CUstream stream = nullptr;
    CUevent end = nullptr; ///< waiting for it costs no processor time
  };
  Status open(Lane &lane);
  Status issue(const Operation &operation, CUstream stream) const;

  const Driver &driver_;
  int device_;
  CUcontext context_;
  Lane up_, down_;
};

} // namespace pumpgraph::runtime
