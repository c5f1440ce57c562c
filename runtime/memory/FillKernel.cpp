// SPDX-License-Identifier: Apache-2.0
#include "runtime/memory/FillKernel.h"

#include <algorithm>

namespace pumpgraph::runtime {
namespace {

constexpr char kernels[] =
#include "runtime/memory/FillKernel.ptx.inc"
    ;

constexpr std::uint64_t threads = 256, mostBlocks = 1024;

std::uint32_t patternOf(const CUDA_MEMSET_NODE_PARAMS &fill) {
  switch (fill.elementSize) {
  case 1:
    return (fill.value & 0xff) * 0x01010101u;
  case 2:
    return (fill.value & 0xffff) * 0x00010001u;
  default:
    return fill.value;
  }
}

template <typename Value> Value read(const void *argument) {
  return *static_cast<const Value *>(argument);
}

} // namespace

Expected<std::unique_ptr<FillKernel>> FillKernel::load(const Driver &driver) {
  std::unique_ptr<FillKernel> kernel(new FillKernel(driver));
  PUMPGRAPH_TRY_WHILE(driver.moduleLoadData(&kernel->module_, kernels), "loading the kernel that fills memory");
  PUMPGRAPH_TRY(driver.moduleGetFunction(&kernel->function_, kernel->module_, "pumpgraphFill"));
  return kernel;
}

FillKernel::~FillKernel() {
  if (module_)
    driver_.moduleUnload.raw(module_);
}

std::optional<CUDA_MEMSET_NODE_PARAMS> FillKernel::fillOf(CUgraphNode kernel) const {
  CUDA_KERNEL_NODE_PARAMS launch{};
  if (!driver_.graphKernelNodeGetParams(kernel, &launch) || launch.func != function_ || !launch.kernelParams)
    return std::nullopt;
  CUDA_MEMSET_NODE_PARAMS fill{};
  fill.dst = read<CUdeviceptr>(launch.kernelParams[0]);
  fill.pitch = read<std::uint64_t>(launch.kernelParams[1]);
  fill.elementSize = 1;
  fill.width = read<std::uint64_t>(launch.kernelParams[2]);
  fill.height = read<std::uint64_t>(launch.kernelParams[3]);
  return fill;
}

FillLaunch::FillLaunch(const FillKernel &kernel, const CUDA_MEMSET_NODE_PARAMS &fill)
    : target_(fill.dst), pitch_(fill.pitch), rowBytes_(fill.width * fill.elementSize),
      rows_(std::max<std::uint64_t>(fill.height, 1)), value_(patternOf(fill)) {
  const std::uint64_t across = std::clamp<std::uint64_t>(rowBytes_ / 4 / threads, 1, mostBlocks);
  parameters_.func = kernel.function();
  parameters_.gridDimX = static_cast<unsigned>(across);
  parameters_.gridDimY = static_cast<unsigned>(std::clamp<std::uint64_t>(rows_, 1, mostBlocks / across));
  parameters_.gridDimZ = 1;
  parameters_.blockDimX = threads;
  parameters_.blockDimY = parameters_.blockDimZ = 1;
  parameters_.kernelParams = arguments_.data();
}

} // namespace pumpgraph::runtime
