// SPDX-License-Identifier: Apache-2.0
/// \file
/// The driver's functions, as programs under test get at them.
#pragma once

#include <cuda.h>
#include <cudaTypedefs.h>

#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <string>

namespace {

constexpr std::size_t mebibyte = std::size_t{1} << 20;

PFN_cuGetProcAddress_v12000 getProcAddress = nullptr;
PFN_cuMemAlloc_v3020 memAlloc = nullptr;
PFN_cuMemFree_v3020 memFree = nullptr;
PFN_cuMemGetInfo_v3020 memGetInfo = nullptr;
PFN_cuLaunchKernel_v4000 launchKernel = nullptr;

void must(CUresult result, const char *call) {
  if (result == CUDA_SUCCESS)
    return;
  std::printf("%s: error %d\n", call, static_cast<int>(result));
  std::exit(3);
}
#define MUST(call) must(call, #call)

template <typename Function> Function find(const char *name, int version) {
  void *found = nullptr;
  CUdriverProcAddressQueryResult result{};
  MUST(getProcAddress(name, &found, version, CU_GET_PROC_ADDRESS_DEFAULT, &result));
  return reinterpret_cast<Function>(found);
}
#define FIND(name, version) find<PFN_##name##_v##version>(#name, version)

void openBy(const std::string &way) {
  void *const library = dlopen("libcuda.so.1", RTLD_NOW);
  if (!library) {
    std::printf("%s\n", dlerror());
    std::exit(3);
  }
  getProcAddress = reinterpret_cast<PFN_cuGetProcAddress_v12000>(dlsym(library, "cuGetProcAddress_v2"));
  if (way == "linked") {
    memAlloc = cuMemAlloc;
    memFree = cuMemFree;
    memGetInfo = cuMemGetInfo;
    launchKernel = cuLaunchKernel;
  } else if (way == "dlsym") {
    memAlloc = reinterpret_cast<PFN_cuMemAlloc_v3020>(dlsym(library, "cuMemAlloc_v2"));
    memFree = reinterpret_cast<PFN_cuMemFree_v3020>(dlsym(library, "cuMemFree_v2"));
    memGetInfo = reinterpret_cast<PFN_cuMemGetInfo_v3020>(dlsym(library, "cuMemGetInfo_v2"));
    launchKernel = reinterpret_cast<PFN_cuLaunchKernel_v4000>(dlsym(library, "cuLaunchKernel"));
  } else {
    memAlloc = FIND(cuMemAlloc, 3020);
    memFree = FIND(cuMemFree, 3020);
    memGetInfo = FIND(cuMemGetInfo, 3020);
    launchKernel = FIND(cuLaunchKernel, 4000);
  }
  CUdeviceptr early = 0;
  if (memAlloc(&early, mebibyte) != CUDA_ERROR_INVALID_CONTEXT)
    std::printf("an allocation without a context\n");
  CUcontext context = nullptr;
  MUST(FIND(cuDevicePrimaryCtxRetain, 7000)(&context, 0));
}

} // namespace
