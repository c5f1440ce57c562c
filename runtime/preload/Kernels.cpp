// SPDX-License-Identifier: Apache-2.0
#include "runtime/preload/Kernels.h"

#include "runtime/preload/EntryPoints.h"

namespace pumpgraph::preload {
namespace {

/// What the driver tells of a CUfunction, or of a CUkernel. Functions that an older driver lacks are null.
template <typename Handle> struct Questions {
  CUresult (*parameter)(Handle, std::size_t, std::size_t *, std::size_t *);
  CUresult (*name)(const char **, Handle);

  Questions(const char *askParameter, const char *askName)
      : parameter(reinterpret_cast<decltype(parameter)>(driverFunction(askParameter, 12040))),
        name(reinterpret_cast<decltype(name)>(driverFunction(askName, 12030))) {}

  void ask(Handle handle, KernelShape &shape) const {
    shape.parameters.clear();
    KernelShape::Parameter next;
    CUresult result = parameter ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
    while (result == CUDA_SUCCESS)
      if (result = parameter(handle, shape.parameters.size(), &next.offset, &next.bytes); result == CUDA_SUCCESS)
        shape.parameters.push_back(next);
    shape.isWhole = result == CUDA_ERROR_INVALID_VALUE; // there is no such parameter
    const char *text = nullptr;
    shape.name = name && name(&text, handle) == CUDA_SUCCESS && text ? text : "a kernel";
  }
};

} // namespace

void Kernels::unloaded() {
  for (auto &[handle, shape] : shapes_)
    shape.isKnown = false;
}

const KernelShape &Kernels::shape(std::uintptr_t handle) {
  KernelShape &shape = shapes_[handle];
  if (shape.isKnown)
    return shape;
  static const Questions<CUfunction> ofFunctions("cuFuncGetParamInfo", "cuFuncGetName");
  static const Questions<CUkernel> ofKernels("cuKernelGetParamInfo", "cuKernelGetName");
  if (shape.isKernel)
    ofKernels.ask(reinterpret_cast<CUkernel>(handle), shape);
  else
    ofFunctions.ask(reinterpret_cast<CUfunction>(handle), shape);
  shape.isKnown = true;
  return shape;
}

} // namespace pumpgraph::preload
