// SPDX-License-Identifier: Apache-2.0
/// \file
/// All device memory of a process, as nvidia-smi shows it: contexts, kernels, graphs and memory of any library.
#pragma once

#include "runtime/driver/Driver.h"

#include <cstdint>
#include <functional>

namespace pumpgraph::runtime {

/// Bytes of this process on one device, now. Takes about 0.1 ms and calls no CUDA, so it may be asked during a capture.
using ProcessMemory = std::function<Expected<std::uint64_t>()>;

/// Asks NVIDIA's management library, libnvidia-ml.so.1, which comes with the driver. The answer is an error where there
/// is no such library, as long as the process has no context on the device, and where the driver does not show
/// processes.
ProcessMemory openProcessMemory(const CUuuid &device);

} // namespace pumpgraph::runtime
