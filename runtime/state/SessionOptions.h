// SPDX-License-Identifier: Apache-2.0
/// \file
/// The choices of a program: for a session, and for each of its steps.
#pragma once

#include "runtime/driver/ProcessMemory.h"
#include "runtime/memory/ManagedArena.h"

#include <chrono>
#include <cstdint>
#include <string>

namespace pumpgraph::runtime {

/// The kind of memory under a session. The values are part of the C ABI.
enum class BackendChoice : std::uint8_t {
  Virtual = 0,
  Managed = 1,  ///< pages that the driver moves, and an agent that makes it move them in time (docs/design/managed.md)
  Automatic = 2 ///< virtual where the device can, until a step comes that needs managed memory
};

/// The permission of plans to run nodes again. The values are part of the C ABI.
enum class RematerializeChoice : std::uint8_t {
  Automatic = 0, ///< where that is predicted to be faster than moving their results
  Never = 1
};

struct SessionOptions {
  std::uint64_t budgetBytes = 0;
  bool unlimited = false;
  int device = 0;
  std::uint64_t hostLimitBytes = 0; ///< 0: three quarters of the system's free memory
  std::string cacheDirectory;       ///< empty: the link is measured anew
  std::string compilerLibrary;      ///< empty: beside this library
  ProcessMemory processMemory;      ///< if set, the budget covers all device memory of the process
  BackendChoice backend = BackendChoice::Virtual;
  std::uint64_t managedBytes = 0; ///< of the arena; 0: as much as the guard allows
  ManagedGuard managedGuard;
  std::chrono::milliseconds budgetLooks{1000}; ///< between two looks of replays at a budget for the process
  RematerializeChoice rematerialize = RematerializeChoice::Automatic; ///< on virtual memory
  bool plansAside = false; ///< steps that are planned again by themselves: on a thread, while replays go on
};

/// The choice between the boundary of the step in force before and one of the step's own. The values are part of the C
/// ABI.
enum class BoundaryChoice : std::uint8_t {
  Automatic = 0, ///< unless the step is much slower then than planned for itself
  Own = 1,
  Shared = 2 ///< if there is any such plan
};

/// On managed memory: the choice of hosted pages. The values are part of the C ABI.
enum class HostingChoice : std::uint8_t {
  Automatic = 0, ///< Measured for a calibrated step, else NoRoom
  NoRoom = 1,    ///< pages without room on the device
  Measured = 2   ///< pages that are faster there
};

struct AdoptOptions {
  std::string name = "step";
  std::string costsIr = {};
  bool leaveAsCaptured = false;
  bool keepFirstPlan = false; ///< regardless of the first replays' times
  bool calibrate = false;     ///< look for addresses that kernels of the step store
  bool trustPurity = false;   ///< calibration runs no pure node a second time
  BoundaryChoice boundary = BoundaryChoice::Automatic;
  bool plansOthersAgain = false; ///< where no plan keeps a boundary that is to be shared
  std::int32_t prefetching = 0;  ///< on managed memory: a pumpgraph_prefetching
  HostingChoice hosting = HostingChoice::Automatic;
  RematerializeChoice rematerialize = RematerializeChoice::Automatic; ///< where the session allows it
  bool ownsGraph = false;                                             ///< the step destroys the graph
};

} // namespace pumpgraph::runtime
