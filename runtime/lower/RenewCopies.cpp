// SPDX-License-Identifier: Apache-2.0
#include "runtime/lower/RenewCopies.h"

#include <vector>

namespace pumpgraph::runtime {
namespace {

/// Names the place by its address alone, if it is one of ours.
bool makeUnified(CUmemorytype &type, CUdeviceptr &address, const void *host, const AddressSpace &addresses) {
  const CUdeviceptr place = placeOf(type, address, host);
  if (!addresses.contains(place))
    return false;
  type = CU_MEMORYTYPE_UNIFIED;
  address = place;
  return true;
}

Status renewCopy(const Driver &driver, CUgraphNode node, const AddressSpace &addresses) {
  CUDA_MEMCPY3D copy{};
  if (!driver.graphMemcpyNodeGetParams(node, &copy))
    return {}; // lifting says so, and the step is left as captured
  const bool reads = makeUnified(copy.srcMemoryType, copy.srcDevice, copy.srcHost, addresses);
  const bool writes = makeUnified(copy.dstMemoryType, copy.dstDevice, copy.dstHost, addresses);
  if (reads || writes)
    PUMPGRAPH_TRY_WHILE(driver.graphMemcpyNodeSetParams(node, &copy), "renewing a copy");
  return {};
}

} // namespace

CUdeviceptr placeOf(CUmemorytype type, CUdeviceptr address, const void *host) {
  if (type == CU_MEMORYTYPE_ARRAY)
    return 0;
  return type == CU_MEMORYTYPE_HOST ? reinterpret_cast<CUdeviceptr>(host) : address;
}

Status renewCopies(const Driver &driver, CUgraph graph, const AddressSpace &addresses) {
  std::size_t count = 0;
  PUMPGRAPH_TRY(driver.graphGetNodes(graph, nullptr, &count));
  std::vector<CUgraphNode> nodes(count);
  if (count != 0)
    PUMPGRAPH_TRY(driver.graphGetNodes(graph, nodes.data(), &count));
  for (const CUgraphNode node : nodes) {
    CUgraphNodeType type{};
    PUMPGRAPH_TRY(driver.graphNodeGetType(node, &type));
    if (type == CU_GRAPH_NODE_TYPE_MEMCPY)
      PUMPGRAPH_TRY(renewCopy(driver, node, addresses));
    if (type == CU_GRAPH_NODE_TYPE_GRAPH) {
      CUgraph child = nullptr;
      PUMPGRAPH_TRY(driver.graphChildGraphNodeGetGraph(node, &child));
      PUMPGRAPH_TRY(renewCopies(driver, child, addresses));
    }
  }
  return {};
}

} // namespace pumpgraph::runtime
