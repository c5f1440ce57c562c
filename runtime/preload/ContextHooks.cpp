// SPDX-License-Identifier: Apache-2.0
/// \file
/// The beginnings and ends of contexts and streams.
#include "runtime/preload/Hooks.h"

namespace pumpgraph::preload {
namespace {

void contextEnded(CUresult result) {
  if (result != CUDA_SUCCESS || !shim().isActive())
    return;
  const std::lock_guard lock(shim().mutex());
  if (Memory *const memory = shim().memoryIfOpen())
    memory->freeAll();
  if (shim().streams())
    shim().streams()->abandon();
  shim().log().interrupt();
}

} // namespace

CUresult Hook<tag::cuDevicePrimaryCtxRetain>::call(const Real<CUresult (*)(CUcontext *, CUdevice)> &real,
                                                   CUcontext *context, CUdevice device) {
  const CUresult result = real(context, device);
  if (result == CUDA_SUCCESS && shim().follows())
    shim().beginsContext(device, true);
  return result;
}

CUresult Hook<tag::cuDevicePrimaryCtxRelease>::call(const Real<CUresult (*)(CUdevice)> &real, CUdevice device) {
  const Outside outside(real.entry());
  if (outside.refusal() != CUDA_SUCCESS)
    return outside.refusal();
  const CUresult result = real(device);
  static const auto state =
      reinterpret_cast<PFN_cuDevicePrimaryCtxGetState_v7000>(driverFunction("cuDevicePrimaryCtxGetState", 7000));
  unsigned flags = 0;
  int isInUse = 1;
  if (result == CUDA_SUCCESS && state && state(device, &flags, &isInUse) == CUDA_SUCCESS && isInUse == 0)
    contextEnded(result);
  return result;
}

CUresult Hook<tag::cuDevicePrimaryCtxReset>::call(const Real<CUresult (*)(CUdevice)> &real, CUdevice device) {
  const Outside outside(real.entry());
  if (outside.refusal() != CUDA_SUCCESS)
    return outside.refusal();
  const CUresult result = real(device);
  contextEnded(result);
  return result;
}

CUresult Hook<tag::cuCtxDestroy>::call(const Real<CUresult (*)(CUcontext)> &real, CUcontext context) {
  const Outside outside(real.entry());
  if (outside.refusal() != CUDA_SUCCESS)
    return outside.refusal();
  const CUresult result = real(context);
  contextEnded(result);
  return result;
}

CUresult
Hook<tag::cuGreenCtxCreate>::call(const Real<CUresult (*)(CUgreenCtx *, CUdevResourceDesc, CUdevice, unsigned)> &real,
                                  CUgreenCtx *context, CUdevResourceDesc resources, CUdevice device, unsigned flags) {
  const CUresult result = real(context, resources, device, flags);
  if (result == CUDA_SUCCESS && shim().follows())
    shim().beginsContext(device, false);
  return result;
}

CUresult Hook<tag::cuStreamDestroy>::call(const Real<CUresult (*)(CUstream)> &real, CUstream stream) {
  bool isAwaited = false;
  if (shim().isActive()) {
    const std::lock_guard lock(shim().mutex());
    isAwaited = shim().memoryIfOpen() && shim().memoryIfOpen()->forgetStream(stream);
    if (shim().streams()) {
      const runtime::Expected<bool> forgotten = shim().streams()->forgetStream(idOf({stream, false}));
      if (!forgotten)
        return shim().refuse(forgotten.error());
      if (*forgotten)
        shim().log().describeAgain();
      else
        shim().log().dropDescribed();
    }
  }
  // A later stream with this handle gets memory that was freed on this one.
  static const auto synchronize = reinterpret_cast<CUresult (*)(CUstream)>(driverFunction("cuStreamSynchronize", 2000));
  if (isAwaited && synchronize)
    synchronize(stream);
  return real(stream);
}

} // namespace pumpgraph::preload
