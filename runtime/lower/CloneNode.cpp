// SPDX-License-Identifier: Apache-2.0
#include "runtime/lower/CloneNode.h"

#include "runtime/lower/RenewCopies.h"

#include <array>
#include <cstring>
#include <optional>
#include <vector>

namespace pumpgraph::runtime {
namespace {

/// Numbers of launch attributes end before, in drivers of today and for some time to come.
constexpr int attributesEnd = 32;

using AttributeValue = CUkernelNodeAttrValue_v1;

/// Nothing if the driver has no such attribute of kernels in graphs.
std::optional<AttributeValue> attributeOf(const Driver &driver, CUgraphNode kernel, int attribute) {
  AttributeValue value;
  std::memset(&value, 0, sizeof value);
  if (driver.graphKernelNodeGetAttribute.raw(kernel, static_cast<CUkernelNodeAttrID>(attribute), &value) !=
      CUDA_SUCCESS)
    return std::nullopt;
  return value;
}

bool areEqual(const std::optional<AttributeValue> &one, const std::optional<AttributeValue> &other) {
  // NOLINTNEXTLINE(bugprone-suspicious-memory-comparison): all bytes were zeroed first
  return one.has_value() == other.has_value() && (!one || std::memcmp(&*one, &*other, sizeof *one) == 0);
}

Status addKernel(const Driver &driver, CUgraph graph, CUgraphNode original, const KernelLaunch *parameters,
                 CUgraphNode &clone) {
  CUDA_KERNEL_NODE_PARAMS_v2 launch{};
  PUMPGRAPH_TRY(driver.graphKernelNodeGetParams(original, &launch));
  std::vector<void *> values;
  if (parameters) {
    values = parameters->pointers();
    launch.kernelParams = values.data();
    launch.extra = nullptr;
  }
  PUMPGRAPH_TRY(driver.graphAddKernelNode(&clone, graph, nullptr, 0, &launch));
  return driver.graphKernelNodeCopyAttributes(clone, original);
}

Status addFill(const Driver &driver, CUgraph graph, CUgraphNode original, CUcontext context, CUgraphNode &clone) {
  CUDA_MEMSET_NODE_PARAMS fill{};
  PUMPGRAPH_TRY(driver.graphMemsetNodeGetParams(original, &fill));
  return driver.graphAddMemsetNode(&clone, graph, nullptr, 0, &fill, context);
}

bool isOnDevice(CUmemorytype type) {
  return type == CU_MEMORYTYPE_DEVICE || type == CU_MEMORYTYPE_UNIFIED;
}

Status addCopy(const Driver &driver, CUgraph graph, CUgraphNode original, CUcontext context, CUgraphNode &clone) {
  CUDA_MEMCPY3D copy{};
  PUMPGRAPH_TRY(driver.graphMemcpyNodeGetParams(original, &copy));
  if (!isOnDevice(copy.srcMemoryType) || !isOnDevice(copy.dstMemoryType))
    return fail(PUMPGRAPH_INTERNAL, "it copies from or to host memory or an array");
  return driver.graphAddMemcpyNode(&clone, graph, nullptr, 0, &copy, context);
}

Expected<std::string> differenceOfKernels(const Driver &driver, CUgraphNode clone, CUgraphNode original) {
  CUDA_KERNEL_NODE_PARAMS_v2 one{}, other{};
  PUMPGRAPH_TRY(driver.graphKernelNodeGetParams(clone, &one));
  PUMPGRAPH_TRY(driver.graphKernelNodeGetParams(original, &other));
  if (one.func != other.func || one.kern != other.kern)
    return "it is another kernel";
  if (one.ctx != other.ctx)
    return "it runs in another context";
  const auto shapeOf = [](const CUDA_KERNEL_NODE_PARAMS_v2 &launch) {
    return std::array{launch.gridDimX,  launch.gridDimY,  launch.gridDimZ,      launch.blockDimX,
                      launch.blockDimY, launch.blockDimZ, launch.sharedMemBytes};
  };
  if (shapeOf(one) != shapeOf(other))
    return "it has another grid, other blocks or other shared memory";
  for (int attribute = 1; attribute < attributesEnd; ++attribute)
    if (!areEqual(attributeOf(driver, clone, attribute), attributeOf(driver, original, attribute)))
      return fmt::format("it has another launch attribute {}", attribute);
  return "";
}

Expected<std::string> differenceOfFills(const Driver &driver, CUgraphNode clone, CUgraphNode original) {
  CUDA_MEMSET_NODE_PARAMS one{}, other{};
  PUMPGRAPH_TRY(driver.graphMemsetNodeGetParams(clone, &one));
  PUMPGRAPH_TRY(driver.graphMemsetNodeGetParams(original, &other));
  const bool isSame = one.dst == other.dst && one.value == other.value && one.elementSize == other.elementSize &&
                      one.width == other.width && one.height == other.height &&
                      (one.height <= 1 || one.pitch == other.pitch);
  return isSame ? "" : "it is another fill";
}

Expected<std::string> differenceOfCopies(const Driver &driver, CUgraphNode clone, CUgraphNode original) {
  CUDA_MEMCPY3D one{}, other{};
  PUMPGRAPH_TRY(driver.graphMemcpyNodeGetParams(clone, &one));
  PUMPGRAPH_TRY(driver.graphMemcpyNodeGetParams(original, &other));
  const auto partsOf = [](const CUDA_MEMCPY3D &copy) {
    const bool hasRows = copy.Height > 1 || copy.Depth > 1, hasLayers = copy.Depth > 1;
    const auto ifRows = [&](std::size_t value) { return hasRows ? value : 0; };
    const auto ifLayers = [&](std::size_t value) { return hasLayers ? value : 0; };
    return std::array<std::uint64_t, 15>{placeOf(copy.srcMemoryType, copy.srcDevice, copy.srcHost),
                                         placeOf(copy.dstMemoryType, copy.dstDevice, copy.dstHost),
                                         copy.srcXInBytes,
                                         copy.srcY,
                                         copy.srcZ,
                                         copy.dstXInBytes,
                                         copy.dstY,
                                         copy.dstZ,
                                         copy.WidthInBytes,
                                         copy.Height,
                                         copy.Depth,
                                         ifRows(copy.srcPitch),
                                         ifRows(copy.dstPitch),
                                         ifLayers(copy.srcHeight),
                                         ifLayers(copy.dstHeight)};
  };
  return partsOf(one) == partsOf(other) ? "" : "it is another copy";
}

} // namespace

Expected<CUgraphNode> cloneNode(const Driver &driver, CUgraph graph, CUgraphNode original, CUcontext context,
                                const KernelLaunch *parameters) {
  CUgraphNodeType type{};
  PUMPGRAPH_TRY(driver.graphNodeGetType(original, &type));
  CUgraphNode clone = nullptr;
  const Status added = type == CU_GRAPH_NODE_TYPE_KERNEL   ? addKernel(driver, graph, original, parameters, clone)
                       : type == CU_GRAPH_NODE_TYPE_MEMSET ? addFill(driver, graph, original, context, clone)
                       : type == CU_GRAPH_NODE_TYPE_MEMCPY ? addCopy(driver, graph, original, context, clone)
                                                           : fail(PUMPGRAPH_INTERNAL, "it is no kernel, copy or fill");
  if (added)
    return clone;
  if (clone)
    driver.graphDestroyNode.raw(clone);
  return tl::unexpected<Error>(added.error());
}

Expected<std::string> differenceOfClone(const Driver &driver, CUgraphNode clone, CUgraphNode original) {
  CUgraphNodeType one{}, other{};
  PUMPGRAPH_TRY(driver.graphNodeGetType(clone, &one));
  PUMPGRAPH_TRY(driver.graphNodeGetType(original, &other));
  if (one != other)
    return "it is of another kind";
  switch (one) {
  case CU_GRAPH_NODE_TYPE_KERNEL:
    return differenceOfKernels(driver, clone, original);
  case CU_GRAPH_NODE_TYPE_MEMSET:
    return differenceOfFills(driver, clone, original);
  case CU_GRAPH_NODE_TYPE_MEMCPY:
    return differenceOfCopies(driver, clone, original);
  default:
    return "it is no kernel, copy or fill";
  }
}

bool isCooperative(const Driver &driver, CUgraphNode kernel) {
  const std::optional<AttributeValue> value = attributeOf(driver, kernel, CU_LAUNCH_ATTRIBUTE_COOPERATIVE);
  return value && value->cooperative != 0;
}

} // namespace pumpgraph::runtime
