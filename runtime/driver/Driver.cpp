// SPDX-License-Identifier: Apache-2.0
#include "runtime/driver/Driver.h"

#include <dlfcn.h>

namespace pumpgraph::runtime {
namespace {

pumpgraph_status statusOf(CUresult result) {
  switch (result) {
  case CUDA_ERROR_OUT_OF_MEMORY:
    return PUMPGRAPH_OUT_OF_DEVICE_MEMORY;
  case CUDA_ERROR_NO_DEVICE:
  case CUDA_ERROR_STUB_LIBRARY:
  case CUDA_ERROR_SYSTEM_DRIVER_MISMATCH:
  case CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE:
  case CUDA_ERROR_DEVICE_UNAVAILABLE:
    return PUMPGRAPH_NO_DRIVER;
  default:
    return PUMPGRAPH_DRIVER_ERROR;
  }
}

/// "12.4"
std::string versionText(int version) {
  return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

} // namespace

std::string Driver::oldestVersionText() {
  return versionText(oldestVersion);
}

Error driverError(const char *call, CUresult result, PFN_cuGetErrorName_v6000 errorName) {
  const char *name = nullptr;
  if (!errorName || errorName(result, &name) != CUDA_SUCCESS || !name)
    return {statusOf(result), fmt::format("{}: CUDA error {}", call, static_cast<int>(result))};
  return {statusOf(result), fmt::format("{}: {}", call, name)};
}

bool DeviceLoss::note(const char *call, CUresult result) {
  switch (result) {
  case CUDA_ERROR_ECC_UNCORRECTABLE:
  case CUDA_ERROR_NVLINK_UNCORRECTABLE:
  case CUDA_ERROR_CONTEXT_IS_DESTROYED:
  case CUDA_ERROR_ILLEGAL_ADDRESS:
  case CUDA_ERROR_LAUNCH_TIMEOUT:
  case CUDA_ERROR_ASSERT:
  case CUDA_ERROR_HARDWARE_STACK_ERROR:
  case CUDA_ERROR_ILLEGAL_INSTRUCTION:
  case CUDA_ERROR_MISALIGNED_ADDRESS:
  case CUDA_ERROR_INVALID_ADDRESS_SPACE:
  case CUDA_ERROR_INVALID_PC:
  case CUDA_ERROR_LAUNCH_FAILED:
    break;
  default:
    return false;
  }
  CUresult none = CUDA_SUCCESS;
  if (result_.compare_exchange_strong(none, result))
    call_ = call;
  return true;
}

Error DeviceLoss::error(PFN_cuGetErrorName_v6000 errorName) const {
  const Error why = driverError(call_, result(), errorName);
  return {PUMPGRAPH_DEVICE_LOST, fmt::format("the device is lost to this process: {}", why.message)};
}

Status Driver::health() const {
  if (loss->result() == CUDA_SUCCESS)
    return {};
  return tl::unexpected<Error>(loss->error(getErrorName));
}

void Driver::bind() {
#define PUMPGRAPH_BIND(member, symbol, version)                                                                        \
  member.name = #symbol;                                                                                               \
  member.errorName = getErrorName;                                                                                     \
  member.loss = loss.get();
  PUMPGRAPH_DRIVER_CALLS(PUMPGRAPH_BIND)
  PUMPGRAPH_NEWER_DRIVER_CALLS(PUMPGRAPH_BIND)
#undef PUMPGRAPH_BIND
}

Expected<std::shared_ptr<const Driver>> Driver::load(QueueWish queues) {
  // Never closed: the driver keeps threads and exit handlers of its own.
  void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (!library)
    return fail(PUMPGRAPH_NO_DRIVER, "libcuda.so.1 cannot be loaded ({}): install the NVIDIA driver, CUDA {} or newer",
                dlerror(), oldestVersionText());
  return from(reinterpret_cast<PFN_cuGetProcAddress_v12000>(dlsym(library, "cuGetProcAddress_v2")), queues);
}

Expected<std::shared_ptr<const Driver>> Driver::from(PFN_cuGetProcAddress_v12000 getProcAddress, QueueWish queues) {
  const auto function = [&](const char *symbol, int symbolVersion) -> void * {
    void *found = nullptr;
    CUdriverProcAddressQueryResult result{};
    if (!getProcAddress ||
        getProcAddress(symbol, &found, symbolVersion, CU_GET_PROC_ADDRESS_LEGACY_STREAM, &result) != CUDA_SUCCESS)
      return nullptr;
    return found;
  };
  int version = 0;
  if (const auto getVersion = reinterpret_cast<PFN_cuDriverGetVersion_v2020>(function("cuDriverGetVersion", 2020)))
    getVersion(&version);
  if (version < oldestVersion)
    return fail(PUMPGRAPH_NO_DRIVER, "the NVIDIA driver is too old: it supports CUDA {}, needed is {} or newer",
                versionText(version), oldestVersionText());

  auto driver = std::make_shared<Driver>();
  const char *missing = nullptr;
  const auto find = [&](const char *symbol, int symbolVersion) -> void * {
    void *const found = function(symbol, symbolVersion);
    if (!found)
      missing = symbol;
    return found;
  };
  driver->getErrorName = reinterpret_cast<PFN_cuGetErrorName_v6000>(find("cuGetErrorName", 6000));
#define PUMPGRAPH_FIND(member, symbol, version)                                                                        \
  driver->member.function = reinterpret_cast<PFN_##symbol##_v##version>(find(#symbol, version));
  PUMPGRAPH_DRIVER_CALLS(PUMPGRAPH_FIND)
  if (missing)
    return fail(PUMPGRAPH_NO_DRIVER, "libcuda.so.1 (CUDA {}) has no {}: install a newer NVIDIA driver",
                versionText(version), missing);
  PUMPGRAPH_NEWER_DRIVER_CALLS(PUMPGRAPH_FIND)
#undef PUMPGRAPH_FIND
  driver->bind();
  int count = 0;
  const bool isInitialised = driver->deviceGetCount.raw(&count) != CUDA_ERROR_NOT_INITIALIZED;
  driver->kernelQueues = settleKernelQueues(queues, isInitialised);
  PUMPGRAPH_TRY_WHILE(driver->init(0), "starting the CUDA driver");
  return driver;
}

ContextScope::ContextScope(const Driver &driver, CUcontext context) : driver_(driver) {
  CUcontext current = nullptr;
  if (driver_.ctxGetCurrent.raw(&current) == CUDA_SUCCESS && current == context)
    return;
  pushed_ = driver_.ctxPushCurrent.raw(context) == CUDA_SUCCESS;
}

ContextScope::~ContextScope() {
  CUcontext popped = nullptr;
  if (pushed_)
    driver_.ctxPopCurrent.raw(&popped);
}

} // namespace pumpgraph::runtime
