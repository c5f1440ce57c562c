// SPDX-License-Identifier: Apache-2.0
#include "runtime/driver/ProcessMemory.h"

#include <dlfcn.h>
#include <type_traits>
#include <unistd.h>
#include <utility>
#include <vector>

namespace pumpgraph::runtime {
namespace {

// What is used of nvml.h, which not every CUDA toolkit comes with.
using NvmlDevice = void *;

constexpr int nvmlSuccess = 0;
constexpr int nvmlInsufficientSize = 7;
constexpr unsigned long long nvmlNotAvailable = ~0ULL;

struct NvmlProcess {
  unsigned pid;
  unsigned long long usedBytes;
  unsigned gpuInstance;
  unsigned computeInstance;
};

struct Nvml {
  int (*init)() = nullptr;
  int (*deviceByUuid)(const char *, NvmlDevice *) = nullptr;
  int (*computeProcesses)(NvmlDevice, unsigned *, NvmlProcess *) = nullptr;
};

/// "GPU-01234567-89ab-cdef-0123-456789abcdef"
std::string uuidText(const CUuuid &uuid) {
  std::string text = "GPU";
  for (std::size_t i = 0; i < sizeof uuid.bytes; ++i)
    text += fmt::format("{}{:02x}", i == 0 || (i >= 4 && i <= 10 && i % 2 == 0) ? "-" : "",
                        static_cast<unsigned char>(uuid.bytes[i]));
  return text;
}

Expected<std::uint64_t> usedBytes(const Nvml &nvml, NvmlDevice device) {
  std::vector<NvmlProcess> processes(16);
  auto count = static_cast<unsigned>(processes.size());
  int result = nvml.computeProcesses(device, &count, processes.data());
  while (result == nvmlInsufficientSize) {
    processes.resize(count + 16);
    count = static_cast<unsigned>(processes.size());
    result = nvml.computeProcesses(device, &count, processes.data());
  }
  if (result != nvmlSuccess)
    return fail(PUMPGRAPH_DRIVER_ERROR, "nvmlDeviceGetComputeRunningProcesses: NVML error {}", result);
  const auto own = static_cast<unsigned>(getpid());
  for (unsigned i = 0; i < count; ++i)
    if (processes[i].pid == own && processes[i].usedBytes != nvmlNotAvailable)
      return processes[i].usedBytes;
  return fail(PUMPGRAPH_DRIVER_ERROR, "the driver does not show what process {} has on the device", own);
}

Expected<std::pair<Nvml, NvmlDevice>> open(const CUuuid &uuid) {
  void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL); // never closed, as the driver
  if (!library)
    return fail(PUMPGRAPH_NO_DRIVER, "libnvidia-ml.so.1 cannot be loaded ({})", dlerror());
  Nvml nvml;
  const auto find = [&](auto &function, const char *symbol) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, symbol));
    return function != nullptr;
  };
  if (!find(nvml.init, "nvmlInit_v2") || !find(nvml.deviceByUuid, "nvmlDeviceGetHandleByUUID") ||
      !find(nvml.computeProcesses, "nvmlDeviceGetComputeRunningProcesses_v3"))
    return fail(PUMPGRAPH_NO_DRIVER, "libnvidia-ml.so.1 is too old to tell");
  NvmlDevice device = nullptr;
  int result = nvml.init();
  if (result == nvmlSuccess)
    result = nvml.deviceByUuid(uuidText(uuid).c_str(), &device);
  if (result != nvmlSuccess)
    return fail(PUMPGRAPH_NO_DRIVER, "libnvidia-ml.so.1 does not know the device {}: NVML error {}", uuidText(uuid),
                result);
  return std::pair{nvml, device};
}

} // namespace

ProcessMemory openProcessMemory(const CUuuid &uuid) {
  return [library = open(uuid)]() -> Expected<std::uint64_t> {
    if (!library)
      return tl::unexpected<Error>(library.error());
    return usedBytes(library->first, library->second);
  };
}

} // namespace pumpgraph::runtime
