// SPDX-License-Identifier: Apache-2.0
#include "runtime/preload/Nvml.h"

#include "runtime/preload/Interpose.h"
#include "runtime/preload/Shim.h"

#include <algorithm>
#include <atomic>
#include <cstring>

namespace pumpgraph::preload {
namespace {

// As nvml.h declares them.
struct Memory1 {
  unsigned long long total, free, used;
};
struct Memory2 {
  unsigned version;
  unsigned long long total, reserved, free, used;
};
using GetMemory1 = int (*)(void *, Memory1 *);
using GetMemory2 = int (*)(void *, Memory2 *);

std::atomic<GetMemory1> real1;
std::atomic<GetMemory2> real2;

/// The device is not compared: a program on several of them is not followed.
template <typename Memory> int answer(int result, Memory *memory) {
  if (result != 0 || !memory || !shim().isActive())
    return result;
  const std::lock_guard lock(shim().mutex());
  if (const auto *const ours = shim().memoryIfOpen()) {
    memory->total = ours->budgetBytes();
    memory->free = ours->freeBytes();
    memory->used = memory->total - memory->free;
  }
  return result;
}

int getMemory1(void *device, Memory1 *memory) {
  return answer(real1.load()(device, memory), memory);
}

int getMemory2(void *device, Memory2 *memory) {
  return answer(real2.load()(device, memory), memory);
}

template <typename Function> void *standIn(std::atomic<Function> &real, Function ours, void *handle, const char *name) {
  const auto found = reinterpret_cast<Function>(realDlsym(handle, name));
  if (!found)
    return nullptr;
  real = found;
  return reinterpret_cast<void *>(ours);
}

} // namespace

void *nvmlStandIn(void *handle, const char *name) {
  if (std::strncmp(name, "nvmlDeviceGetMemoryInfo", 23) != 0)
    return nullptr;
  if (std::strcmp(name + 23, "_v2") == 0)
    return standIn(real2, getMemory2, handle, name);
  return name[23] == 0 ? standIn(real1, getMemory1, handle, name) : nullptr;
}

} // namespace pumpgraph::preload
