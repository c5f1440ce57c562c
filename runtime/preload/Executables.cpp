// SPDX-License-Identifier: Apache-2.0
#include "runtime/preload/Executables.h"

#include "runtime/preload/LaunchParameters.h"

#include <algorithm>
#include <cstring>
#include <span>
#include <utility>

namespace pumpgraph::preload {
namespace {

class Reader {
public:
  Reader(const runtime::Driver &driver, const Memory &memory, Kernels &kernels)
      : driver_(driver), memory_(memory), kernels_(kernels) {}

  /// Whether all that the node reaches is behind its words.
  bool add(CUgraphNode node) {
    CUgraphNodeType type{};
    if (driver_.graphNodeGetType.raw(node, &type) != CUDA_SUCCESS)
      return false;
    switch (type) {
    case CU_GRAPH_NODE_TYPE_EMPTY:
      return true;
    case CU_GRAPH_NODE_TYPE_KERNEL:
      return addKernel(node);
    case CU_GRAPH_NODE_TYPE_MEMSET:
      return addFill(node);
    case CU_GRAPH_NODE_TYPE_MEMCPY:
      return addCopy(node);
    default:
      return false;
    }
  }

  GraphWords take() {
    std::sort(words_.begin(), words_.end());
    words_.erase(std::unique(words_.begin(), words_.end()), words_.end());
    return std::move(words_);
  }

private:
  /// Packed structs may hold pointers at any multiple of four.
  void addBytes(const void *data, std::size_t bytes) {
    for (std::size_t at = 0; at + sizeof(std::uint64_t) <= bytes; at += sizeof(std::uint32_t)) {
      std::uint64_t word = 0;
      std::memcpy(&word, static_cast<const char *>(data) + at, sizeof word);
      words_.push_back(word);
    }
  }

  /// The device may change its parameters.
  bool isUpdatable(CUgraphNode node) const {
    CUkernelNodeAttrValue value{};
    return driver_.graphKernelNodeGetAttribute.raw(node, CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE, &value) ==
               CUDA_SUCCESS &&
           value.deviceUpdatableKernelNode.deviceUpdatable != 0;
  }

  bool addKernel(CUgraphNode node) {
    CUDA_KERNEL_NODE_PARAMS_v2 launch{};
    if (isUpdatable(node) || driver_.graphKernelNodeGetParams.raw(node, &launch) != CUDA_SUCCESS)
      return false;
    const auto handle =
        launch.func ? reinterpret_cast<std::uintptr_t>(launch.func) : reinterpret_cast<std::uintptr_t>(launch.kern);
    if (!launch.func)
      kernels_.mark(handle, true);
    const KernelShape &shape = kernels_.shape(handle);
    if (!shape.isWhole)
      return false;
    if (launch.kernelParams) {
      for (std::size_t i = 0; i < shape.parameters.size(); ++i)
        addBytes(launch.kernelParams[i], shape.parameters[i].bytes);
      return true;
    }
    const std::span<const char> piece = packedParameters(launch.extra);
    addBytes(piece.data(), piece.size());
    return shape.parameters.empty() || !piece.empty();
  }

  bool addFill(CUgraphNode node) {
    CUDA_MEMSET_NODE_PARAMS fill{};
    if (driver_.graphMemsetNodeGetParams.raw(node, &fill) != CUDA_SUCCESS)
      return false;
    words_.push_back(fill.dst);
    return true;
  }

  /// What comes from the host may be addresses.
  bool addCopy(CUgraphNode node) {
    CUDA_MEMCPY3D copy{};
    if (driver_.graphMemcpyNodeGetParams.raw(node, &copy) != CUDA_SUCCESS)
      return false;
    const bool isFromDevice = copy.srcMemoryType == CU_MEMORYTYPE_DEVICE ||
                              (copy.srcMemoryType == CU_MEMORYTYPE_UNIFIED && memory_.owns(copy.srcDevice));
    if (copy.srcMemoryType != CU_MEMORYTYPE_ARRAY && !isFromDevice)
      return false;
    if (isFromDevice)
      words_.push_back(copy.srcDevice);
    if (copy.dstMemoryType == CU_MEMORYTYPE_DEVICE || copy.dstMemoryType == CU_MEMORYTYPE_UNIFIED)
      words_.push_back(copy.dstDevice);
    return true;
  }

  const runtime::Driver &driver_;
  const Memory &memory_;
  Kernels &kernels_;
  GraphWords words_;
};

} // namespace

std::optional<GraphWords> wordsOf(const runtime::Driver &driver, CUgraph graph, const Memory &memory,
                                  Kernels &kernels) {
  std::size_t count = 0;
  if (driver.graphGetNodes.raw(graph, nullptr, &count) != CUDA_SUCCESS)
    return std::nullopt;
  std::vector<CUgraphNode> nodes(count);
  if (count != 0 && driver.graphGetNodes.raw(graph, nodes.data(), &count) != CUDA_SUCCESS)
    return std::nullopt;
  Reader reader(driver, memory, kernels);
  if (!std::all_of(nodes.begin(), nodes.end(), [&](CUgraphNode node) { return reader.add(node); }))
    return std::nullopt;
  return reader.take();
}

void Executables::begin(CUgraphExec executable, std::optional<GraphWords> words) {
  std::optional<Known> &known = executables_[executable];
  known.reset();
  if (words)
    known = Known{++lastNumber_, std::move(*words)};
}

const Executables::Known *Executables::find(CUgraphExec executable) const {
  const auto found = executables_.find(executable);
  return found != executables_.end() && found->second ? &*found->second : nullptr;
}

bool Executables::areAllKnown() const {
  return std::all_of(executables_.begin(), executables_.end(),
                     [](const auto &executable) { return executable.second.has_value(); });
}

} // namespace pumpgraph::preload
