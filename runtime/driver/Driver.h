// SPDX-License-Identifier: Apache-2.0
/// \file
/// The CUDA driver as a function table, loaded from libcuda.so.1 when a session is created. Nothing of CUDA is linked,
/// so the library loads on a machine without a driver, and tests substitute a driver of their own.
#pragma once

#include "runtime/driver/Error.h"
#include "runtime/driver/KernelQueues.h"

#include <cuda.h>
#include <cudaTypedefs.h>

#include <atomic>
#include <chrono>
#include <memory>

namespace pumpgraph::runtime {

/// One place turns a CUresult into an Error. `call` is the driver function's name.
Error driverError(const char *call, CUresult result, PFN_cuGetErrorName_v6000 errorName);

/// The error that ended the context, if there is one: an illegal address, a failed assertion. Every later driver call
/// fails with it, and some crash, so none is made.
class DeviceLoss {
public:
  CUresult result() const { return result_.load(std::memory_order_relaxed); }
  /// Whether `result` is such an error; the first one is noted with the call that gave it.
  bool note(const char *call, CUresult result);
  /// "the device was lost: cuCtxSynchronize gave CUDA_ERROR_ASSERT". PUMPGRAPH_DEVICE_LOST.
  Error error(PFN_cuGetErrorName_v6000 errorName) const;

private:
  std::atomic<CUresult> result_ = CUDA_SUCCESS;
  std::atomic<const char *> call_ = "";
};

template <typename Pointer> class DriverCall;

/// One driver function. Calling it gives a Status that names the function and the CUDA error; `raw` gives the CUresult,
/// for the few places where a failure is an answer.
template <typename... Parameters> class DriverCall<CUresult(CUDAAPI *)(Parameters...)> {
public:
  using Pointer = CUresult(CUDAAPI *)(Parameters...);

  Status operator()(Parameters... parameters) const {
    const CUresult result = raw(parameters...);
    if (result == CUDA_SUCCESS)
      return {};
    return tl::unexpected<Error>(loss && result == loss->result() ? loss->error(errorName)
                                                                  : driverError(name, result, errorName));
  }
  CUresult raw(Parameters... parameters) const {
    if (loss && loss->result() != CUDA_SUCCESS)
      return loss->result();
    const CUresult result = function(parameters...);
    if (result != CUDA_SUCCESS && loss)
      loss->note(name, result);
    return result;
  }
  explicit operator bool() const { return function != nullptr; }

  Pointer function = nullptr;
  const char *name = "";
  PFN_cuGetErrorName_v6000 errorName = nullptr;
  DeviceLoss *loss = nullptr;
};

/// Member, driver function, version of its signature. The version is what cuGetProcAddress is asked for, so a newer
/// driver gives the signature this code was written against.
#define PUMPGRAPH_DRIVER_CALLS(X)                                                                                      \
  X(init, cuInit, 2000)                                                                                                \
  X(driverGetVersion, cuDriverGetVersion, 2020)                                                                        \
  X(deviceGet, cuDeviceGet, 2000)                                                                                      \
  X(deviceGetCount, cuDeviceGetCount, 2000)                                                                            \
  X(deviceGetName, cuDeviceGetName, 2000)                                                                              \
  X(deviceGetUuid, cuDeviceGetUuid, 9020)                                                                              \
  X(deviceTotalMem, cuDeviceTotalMem, 3020)                                                                            \
  X(deviceGetAttribute, cuDeviceGetAttribute, 2000)                                                                    \
  X(devicePrimaryCtxRetain, cuDevicePrimaryCtxRetain, 7000)                                                            \
  X(devicePrimaryCtxRelease, cuDevicePrimaryCtxRelease, 11000)                                                         \
  X(ctxCreate, cuCtxCreate, 3020)                                                                                      \
  X(ctxDestroy, cuCtxDestroy, 4000)                                                                                    \
  X(ctxSetLimit, cuCtxSetLimit, 3010)                                                                                  \
  X(ctxGetCurrent, cuCtxGetCurrent, 4000)                                                                              \
  X(ctxSetCurrent, cuCtxSetCurrent, 4000)                                                                              \
  X(ctxPushCurrent, cuCtxPushCurrent, 4000)                                                                            \
  X(ctxPopCurrent, cuCtxPopCurrent, 4000)                                                                              \
  X(ctxSynchronize, cuCtxSynchronize, 2000)                                                                            \
  X(moduleLoadData, cuModuleLoadData, 2000)                                                                            \
  X(moduleGetFunction, cuModuleGetFunction, 2000)                                                                      \
  X(moduleUnload, cuModuleUnload, 2000)                                                                                \
  X(launchKernel, cuLaunchKernel, 4000)                                                                                \
  X(memGetInfo, cuMemGetInfo, 3020)                                                                                    \
  X(memGetAllocationGranularity, cuMemGetAllocationGranularity, 10020)                                                 \
  X(memAddressReserve, cuMemAddressReserve, 10020)                                                                     \
  X(memAddressFree, cuMemAddressFree, 10020)                                                                           \
  X(memCreate, cuMemCreate, 10020)                                                                                     \
  X(memRelease, cuMemRelease, 10020)                                                                                   \
  X(memMap, cuMemMap, 10020)                                                                                           \
  X(memUnmap, cuMemUnmap, 10020)                                                                                       \
  X(memSetAccess, cuMemSetAccess, 10020)                                                                               \
  X(memHostRegister, cuMemHostRegister, 6050)                                                                          \
  X(memHostUnregister, cuMemHostUnregister, 4000)                                                                      \
  X(memcpyHtoDAsync, cuMemcpyHtoDAsync, 3020)                                                                          \
  X(memcpyDtoHAsync, cuMemcpyDtoHAsync, 3020)                                                                          \
  X(memcpyDtoDAsync, cuMemcpyDtoDAsync, 3020)                                                                          \
  X(memsetD8Async, cuMemsetD8Async, 3020)                                                                              \
  X(memAllocManaged, cuMemAllocManaged, 6000)                                                                          \
  X(memFree, cuMemFree, 3020)                                                                                          \
  X(memPrefetchAsync, cuMemPrefetchAsync, 12020)                                                                       \
  X(memAdvise, cuMemAdvise, 12020)                                                                                     \
  X(memHostAlloc, cuMemHostAlloc, 2020)                                                                                \
  X(memFreeHost, cuMemFreeHost, 2000)                                                                                  \
  X(memHostGetDevicePointer, cuMemHostGetDevicePointer, 3020)                                                          \
  X(pointerGetAttribute, cuPointerGetAttribute, 4000)                                                                  \
  X(streamCreate, cuStreamCreate, 2000)                                                                                \
  X(streamDestroy, cuStreamDestroy, 4000)                                                                              \
  X(streamSynchronize, cuStreamSynchronize, 2000)                                                                      \
  X(streamWaitEvent, cuStreamWaitEvent, 3020)                                                                          \
  X(streamBeginCapture, cuStreamBeginCapture, 10010)                                                                   \
  X(streamEndCapture, cuStreamEndCapture, 10000)                                                                       \
  X(streamGetCaptureInfo, cuStreamGetCaptureInfo, 12030)                                                               \
  X(threadExchangeStreamCaptureMode, cuThreadExchangeStreamCaptureMode, 10010)                                         \
  X(eventCreate, cuEventCreate, 2000)                                                                                  \
  X(eventDestroy, cuEventDestroy, 4000)                                                                                \
  X(eventRecord, cuEventRecord, 2000)                                                                                  \
  X(eventElapsedTime, cuEventElapsedTime, 2000)                                                                        \
  X(eventQuery, cuEventQuery, 2000)                                                                                    \
  X(eventSynchronize, cuEventSynchronize, 2000)                                                                        \
  X(graphCreate, cuGraphCreate, 10000)                                                                                 \
  X(graphDestroy, cuGraphDestroy, 10000)                                                                               \
  X(graphRetainUserObject, cuGraphRetainUserObject, 11030)                                                             \
  X(userObjectCreate, cuUserObjectCreate, 11030)                                                                       \
  X(userObjectRelease, cuUserObjectRelease, 11030)                                                                     \
  X(graphClone, cuGraphClone, 10000)                                                                                   \
  X(graphNodeFindInClone, cuGraphNodeFindInClone, 10000)                                                               \
  X(graphGetNodes, cuGraphGetNodes, 10000)                                                                             \
  X(graphGetEdges, cuGraphGetEdges, 12030)                                                                             \
  X(graphNodeGetType, cuGraphNodeGetType, 10000)                                                                       \
  X(graphKernelNodeGetParams, cuGraphKernelNodeGetParams, 12000)                                                       \
  X(graphKernelNodeSetParams, cuGraphKernelNodeSetParams, 12000)                                                       \
  X(graphKernelNodeCopyAttributes, cuGraphKernelNodeCopyAttributes, 11000)                                             \
  X(graphKernelNodeGetAttribute, cuGraphKernelNodeGetAttribute, 11000)                                                 \
  X(graphMemcpyNodeGetParams, cuGraphMemcpyNodeGetParams, 10000)                                                       \
  X(graphMemcpyNodeSetParams, cuGraphMemcpyNodeSetParams, 10000)                                                       \
  X(graphMemsetNodeGetParams, cuGraphMemsetNodeGetParams, 10000)                                                       \
  X(graphBatchMemOpNodeGetParams, cuGraphBatchMemOpNodeGetParams, 11070)                                               \
  X(graphChildGraphNodeGetGraph, cuGraphChildGraphNodeGetGraph, 10000)                                                 \
  X(graphAddMemcpyNode, cuGraphAddMemcpyNode, 10000)                                                                   \
  X(graphAddMemsetNode, cuGraphAddMemsetNode, 10000)                                                                   \
  X(graphAddKernelNode, cuGraphAddKernelNode, 12000)                                                                   \
  X(graphAddEmptyNode, cuGraphAddEmptyNode, 10000)                                                                     \
  X(graphAddBatchMemOpNode, cuGraphAddBatchMemOpNode, 11070)                                                           \
  X(graphAddEventRecordNode, cuGraphAddEventRecordNode, 11010)                                                         \
  X(graphAddDependencies, cuGraphAddDependencies, 12030)                                                               \
  X(graphRemoveDependencies, cuGraphRemoveDependencies, 12030)                                                         \
  X(graphDestroyNode, cuGraphDestroyNode, 10000)                                                                       \
  X(graphInstantiate, cuGraphInstantiateWithFlags, 11040)                                                              \
  X(graphLaunch, cuGraphLaunch, 10000)                                                                                 \
  X(graphExecDestroy, cuGraphExecDestroy, 10000)                                                                       \
  X(funcGetName, cuFuncGetName, 12030)                                                                                 \
  X(kernelGetName, cuKernelGetName, 12030)                                                                             \
  X(funcGetParamInfo, cuFuncGetParamInfo, 12040)                                                                       \
  X(kernelGetParamInfo, cuKernelGetParamInfo, 12040)

/// Functions of newer drivers: null in the table of an older one.
#define PUMPGRAPH_NEWER_DRIVER_CALLS(X) X(memDiscardBatchAsync, cuMemDiscardBatchAsync, 13000)

/// The function table. Immutable after bind(), except for the loss of the device, and usable from any thread.
struct Driver {
#define PUMPGRAPH_DECLARE(member, symbol, version) DriverCall<PFN_##symbol##_v##version> member;
  PUMPGRAPH_DRIVER_CALLS(PUMPGRAPH_DECLARE)
  PUMPGRAPH_NEWER_DRIVER_CALLS(PUMPGRAPH_DECLARE)
#undef PUMPGRAPH_DECLARE
  PFN_cuGetErrorName_v6000 getErrorName = nullptr;
  KernelQueues kernelQueues;
  std::shared_ptr<DeviceLoss> loss = std::make_shared<DeviceLoss>(); ///< copies of the table share it

  /// PUMPGRAPH_DEVICE_LOST once the device is.
  Status health() const;

  /// The clock for the time that the device's work takes where a plan depends on it. A driver for tests has its own, so
  /// that plans are the same on every machine.
  using Clock = std::chrono::steady_clock;
  Clock::time_point (*now)() = Clock::now;

  /// The oldest driver with every call above: it can tell the parameters of a kernel.
  static constexpr int oldestVersion = 12040; // tools/dev.d/doctor.sh reads this line

  /// As people write it: "12.4".
  static std::string oldestVersionText();

  /// Opens libcuda.so.1, fills the table and initialises the driver, with as many queues for kernels as wished for if
  /// nobody has done it before. PUMPGRAPH_NO_DRIVER says what is missing and what to do.
  static Expected<std::shared_ptr<const Driver>> load(QueueWish queues = QueueWish::Any);

  /// The same with a driver that is open already, from the function that finds all others.
  static Expected<std::shared_ptr<const Driver>> from(PFN_cuGetProcAddress_v12000 getProcAddress,
                                                      QueueWish queues = QueueWish::Any);

  /// Gives every call its name and the means to name errors and to notice a loss. To be called once the pointers are
  /// filled.
  void bind();
};

/// Makes a context current for a scope, regardless of the thread's current one.
class ContextScope {
public:
  ContextScope(const Driver &driver, CUcontext context);
  ~ContextScope();
  ContextScope(const ContextScope &) = delete;
  ContextScope &operator=(const ContextScope &) = delete;

private:
  const Driver &driver_;
  bool pushed_ = false;
};

} // namespace pumpgraph::runtime
