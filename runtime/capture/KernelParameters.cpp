// SPDX-License-Identifier: Apache-2.0
#include "runtime/capture/KernelParameters.h"

#include <algorithm>
#include <cstring>

namespace pumpgraph::runtime {
namespace {

/// The most that CUDA takes ("Kernel Function Parameters" of its programming guide, from Volta on).
constexpr std::size_t mostParameterBytes = 32'764;

/// One launch's parameter bytes: separate pointers, or one packed buffer.
struct ParameterBytes {
  void **separate = nullptr;
  const char *packed = nullptr;
  std::size_t packedBytes = 0;

  /// Of a parameter, how many bytes there are: a packed buffer may end within the last one, of which the kernel then
  /// uses no more. NCCL's kernels take 4 KiB and get what they need.
  std::size_t of(std::size_t offset, std::size_t bytes) const {
    return separate ? bytes : packed && offset < packedBytes ? std::min(bytes, packedBytes - offset) : 0;
  }
};

ParameterBytes parameterBytes(const CUDA_KERNEL_NODE_PARAMS_v2 &launch) {
  ParameterBytes bytes;
  bytes.separate = launch.kernelParams;
  if (bytes.separate || !launch.extra)
    return bytes;
  for (void **entry = launch.extra; *entry != CU_LAUNCH_PARAM_END; entry += 2) {
    if (*entry == CU_LAUNCH_PARAM_BUFFER_POINTER)
      bytes.packed = static_cast<const char *>(entry[1]);
    if (*entry == CU_LAUNCH_PARAM_BUFFER_SIZE)
      bytes.packedBytes = *static_cast<const std::size_t *>(entry[1]);
  }
  return bytes;
}

} // namespace

const KernelParameters::Signature &KernelParameters::signatureOf(const CUDA_KERNEL_NODE_PARAMS_v2 &launch) {
  const void *key = launch.func ? static_cast<const void *>(launch.func) : static_cast<const void *>(launch.kern);
  const auto [found, isNew] = signatures_.try_emplace(key);
  Signature &signature = found->second;
  if (!isNew)
    return signature;
  const char *name = nullptr;
  const CUresult named =
      launch.func ? driver_.funcGetName.raw(&name, launch.func) : driver_.kernelGetName.raw(&name, launch.kern);
  signature.name = named == CUDA_SUCCESS && name ? name : "kernel";
  for (std::size_t index = 0;; ++index) {
    Parameter parameter{};
    const CUresult result =
        launch.func ? driver_.funcGetParamInfo.raw(launch.func, index, &parameter.offset, &parameter.bytes)
                    : driver_.kernelGetParamInfo.raw(launch.kern, index, &parameter.offset, &parameter.bytes);
    if (result != CUDA_SUCCESS) // past the last one
      return signature;
    signature.parameters.push_back(parameter);
  }
}

void KernelParameters::scan(const char *bytes, std::size_t size, std::uint32_t parameter, std::uint32_t inner,
                            LiftedNode &node) const {
  const auto look = [&](std::size_t offset) {
    std::uint64_t value = 0;
    std::memcpy(&value, bytes + offset, sizeof value);
    if (addresses_.contains(value))
      node.words.push_back({inner, parameter, static_cast<std::uint32_t>(offset), size == sizeof value, value});
  };
  for (std::size_t offset = 0; offset + 8 <= size; offset += 8)
    look(offset);
  // Packed structs may hold pointers at any multiple of four.
  for (std::size_t offset = 4; offset + 8 <= size; offset += 8)
    look(offset);
}

void KernelParameters::read(CUgraphNode kernel, std::uint32_t inner, LiftedNode &node) {
  CUDA_KERNEL_NODE_PARAMS_v2 launch{};
  const Status got = driver_.graphKernelNodeGetParams(kernel, &launch);
  if (!got) {
    node.refusal = "a kernel's parameters cannot be read: " + got.error().message;
    return;
  }
  const Signature &signature = signatureOf(launch);
  if (node.name.empty())
    node.name = signature.name;
  if (!launch.func && launch.ctx && launch.ctx != context_) {
    node.refusal = fmt::format("kernel \"{}\" runs in another context than the session's", signature.name);
    return;
  }
  const ParameterBytes bytes = parameterBytes(launch);
  KernelLaunch &lifted = node.launches.emplace_back();
  lifted.inner = inner;
  lifted.kernel = signature.name;
  lifted.grid = {launch.gridDimX, launch.gridDimY, launch.gridDimZ};
  lifted.block = {launch.blockDimX, launch.blockDimY, launch.blockDimZ};
  for (std::uint32_t index = 0; index < signature.parameters.size(); ++index) {
    const Parameter &parameter = signature.parameters[index];
    const std::size_t passed = bytes.of(parameter.offset, parameter.bytes);
    if ((passed == 0 && parameter.bytes != 0) || parameter.bytes > mostParameterBytes) {
      node.refusal =
          fmt::format("parameter {} of kernel \"{}\" is not among the node's parameters", index, signature.name);
      return;
    }
    const std::size_t begin = lifted.bytes.size(), end = begin + parameter.bytes;
    lifted.bytes.resize(end, 0);
    if (passed != 0)
      std::memcpy(lifted.bytes.data() + begin, bytes.separate ? bytes.separate[index] : bytes.packed + parameter.offset,
                  passed);
    lifted.ends.push_back(end);
    scan(lifted.bytes.data() + begin, parameter.bytes, index, inner, node); // an address may end in zeros not passed
  }
}

} // namespace pumpgraph::runtime
