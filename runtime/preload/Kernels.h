// SPDX-License-Identifier: Apache-2.0
/// \file
/// Names and parameters of the program's kernels, by the handles that it launches.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

namespace pumpgraph::preload {

/// A kernel's parameters in memory.
struct KernelShape {
  struct Parameter {
    std::size_t offset = 0, bytes = 0;
  };
  std::string name;
  std::vector<Parameter> parameters;
  bool isWhole = false;  ///< the driver has told all parameters
  bool isKnown = false;  ///< asked of the driver since modules were last unloaded
  bool isKernel = false; ///< the handle is a CUkernel, which launches take in place of a CUfunction
};

/// Handles come back for other kernels once modules are unloaded, so that ends what is known of all. Not thread-safe.
class Kernels {
public:
  void mark(std::uintptr_t handle, bool isKernel) { shapes_[handle] = {{}, {}, false, false, isKernel}; }
  void unloaded();
  /// Asks the driver at the first time.
  const KernelShape &shape(std::uintptr_t handle);

private:
  std::unordered_map<std::uintptr_t, KernelShape> shapes_;
};

} // namespace pumpgraph::preload
