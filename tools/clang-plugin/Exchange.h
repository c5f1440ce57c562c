// SPDX-License-Identifier: Apache-2.0
/// \file
/// The way from the device compiles to the host compile of one source. The driver runs each in a process of its own,
/// one after the other; they meet in a folder of temporary files, named after the driver's process and the compilation.
#pragma once

#include "Accesses.h"

#include <map>
#include <string>
#include <vector>

namespace pumpgraph::annotate {

/// What the device compiles found; by mangled name.
struct DeviceResult {
  bool isThere = false; ///< some device compile left its result
  std::map<std::string, KernelAccesses> kernels;
};

/// One source in one run of the driver. `cuid` is the driver's number for both compiles of the source.
class Exchange {
public:
  explicit Exchange(const std::string &cuid);

  /// Called by a device compile. False if nothing could be written.
  bool leave(const std::string &architecture, const std::vector<KernelAccesses> &kernels) const;

  /// Called by the host compile, before it can fail. The files are gone afterwards. A kernel that not all architectures
  /// have is left out.
  DeviceResult take() const;

  /// Whether the driver was asked for no host compile, so that nobody would take what is left.
  static bool isHostCompileMissing();

private:
  std::string prefix_; ///< of the files' names; empty where there is no driver to be told from others
};

} // namespace pumpgraph::annotate
