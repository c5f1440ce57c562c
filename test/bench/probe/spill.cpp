// SPDX-License-Identifier: Apache-2.0
/// \file
/// Helper of torch_spill.py: marks places in a running stream capture, and adds a spill, a poisoning and a refill of
/// one buffer to the captured graph. Build: g++ -std=c++20 -O2 -shared -fPIC -I<cuda>/include spill.cpp -o spill.so
/// -lcuda
#include <cuda.h>

#include <cstddef>

namespace {
/// The node that the next captured operation would depend on.
CUgraphNode lastNode(CUstream stream) {
  CUstreamCaptureStatus status;
  cuuint64_t id = 0;
  CUgraph graph = nullptr;
  const CUgraphNode *nodes = nullptr;
  const CUgraphEdgeData *edges = nullptr;
  size_t count = 0;
  if (cuStreamGetCaptureInfo(stream, &status, &id, &graph, &nodes, &edges, &count) != CUDA_SUCCESS || count != 1)
    return nullptr;
  return nodes[0];
}
} // namespace

extern "C" void *spill_mark(void *stream) {
  return lastNode(static_cast<CUstream>(stream));
}

/// After node `after`: copy `bytes` at `device` to `host`, poison the device bytes, copy back; whatever followed
/// `before` waits for it. Returns 0, or the number of the call that failed.
extern "C" int spill_insert(void *graphHandle, void *after, void *before, unsigned long long device, size_t bytes,
                            void *host) {
  CUgraph graph = static_cast<CUgraph>(graphHandle);
  CUgraphNode from = static_cast<CUgraphNode>(after), to = static_cast<CUgraphNode>(before);
  CUcontext context = nullptr;
  cuCtxGetCurrent(&context);
  CUDA_MEMCPY3D down{};
  down.srcMemoryType = CU_MEMORYTYPE_DEVICE;
  down.srcDevice = device;
  down.dstMemoryType = CU_MEMORYTYPE_HOST;
  down.dstHost = host;
  down.WidthInBytes = bytes;
  down.Height = down.Depth = 1;
  CUgraphNode evict, poison, prefetch;
  if (cuGraphAddMemcpyNode(&evict, graph, &from, 1, &down, context))
    return 1;
  CUDA_MEMSET_NODE_PARAMS fill{};
  fill.dst = device;
  fill.elementSize = 4;
  fill.width = bytes / 4;
  fill.height = 1;
  fill.value = 0xffffffffu;
  if (cuGraphAddMemsetNode(&poison, graph, &evict, 1, &fill, context))
    return 2;
  CUDA_MEMCPY3D up{};
  up.srcMemoryType = CU_MEMORYTYPE_HOST;
  up.srcHost = host;
  up.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  up.dstDevice = device;
  up.WidthInBytes = bytes;
  up.Height = up.Depth = 1;
  if (cuGraphAddMemcpyNode(&prefetch, graph, &poison, 1, &up, context))
    return 3;
  // Everything that was captured right after `before` has to wait.
  CUgraphNode next[64];
  CUgraphEdgeData edges[64];
  size_t count = 64;
  if (cuGraphNodeGetDependentNodes(to, next, edges, &count))
    return 4;
  for (size_t i = 0; i < count; ++i)
    if (next[i] != evict && cuGraphAddDependencies(graph, &prefetch, &next[i], nullptr, 1))
      return 5;
  return 0;
}
