// SPDX-License-Identifier: Apache-2.0
/// \file
/// The measured speed of the link between host and device.
#pragma once

#include "runtime/driver/Driver.h"
#include "runtime/lower/MemoryTools.h"

#include <chrono>
#include <optional>
#include <string>

namespace pumpgraph::runtime {

/// Decimal bytes per second, rounded to half a gigabyte, so that another measurement seldom changes a plan.
struct LinkSpeed {
  double up = 0;   ///< host to device, alone
  double down = 0; ///< device to host, alone
  double both = 0; ///< both directions at once, summed
};

/// The faster one of each figure: disturbances only make a measurement slower.
LinkSpeed fastestOf(const LinkSpeed &one, const LinkSpeed &other);

/// How many sessions measure the link of a machine before what is kept of it counts as it is. Memory that a session
/// happens to get, or what else is on the machine for a second, can cost a tenth of `both`.
inline constexpr int wantedMeasurements = 5;

/// The contents of a cache file.
struct KeptLink {
  std::string machine; ///< where it was measured: the GPU and the processor; empty in a file that does not say
  LinkSpeed speed;     ///< the fastest figures of all measurements
  int measurements = 1;
};

/// The processor's model, as the system calls it.
std::string processorName();

/// For a piece in each direction. Fewer do.
inline constexpr std::uint64_t pagesToMeasureWith = 64;

/// Times copies of 64 MiB between pinned memory and device frames; smaller ones when the budget has no room for two
/// such pieces. Takes some 400 ms.
Expected<LinkSpeed> measureLink(const MemoryTools &tools);

/// The same on device memory that is in use and idle: its values stay. Needs two pages.
Expected<LinkSpeed> measureLinkOn(const MemoryTools &tools, CUdeviceptr address, std::uint64_t bytes);

/// The speed that other processes leave to this one, if they measure at the same time: the typical one, for `time`
/// altogether.
Expected<LinkSpeed> measureLinkBesideOthers(const MemoryTools &tools, std::chrono::duration<double> time);

/// Where a device's figures are kept: one file for each GPU and driver version. A GPU that has moved, or a copied file,
/// is known by KeptLink::machine.
std::string linkCacheFile(const std::string &directory, const CUuuid &device, int driverVersion);
/// Nothing if there is no such file or it is damaged.
std::optional<KeptLink> loadLink(const std::string &file);
/// A cache that cannot be written costs a measurement next time, nothing else.
void storeLink(const std::string &file, const KeptLink &link);

} // namespace pumpgraph::runtime
