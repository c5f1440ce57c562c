// SPDX-License-Identifier: Apache-2.0
#include "runtime/capture/LiftGraph.h"

#include "runtime/capture/KernelParameters.h"
#include "runtime/memory/FillKernel.h"

#include <algorithm>
#include <functional>
#include <map>
#include <queue>
#include <unordered_map>

namespace pumpgraph::runtime {
namespace {

/// One side of a copy.
struct CopySide {
  CUmemorytype type;
  std::uint64_t address; ///< 0 for arrays, which are never ours
  std::size_t x, y, z, pitch, height;
};

CopySide sourceOf(const CUDA_MEMCPY3D &copy) {
  const std::uint64_t address = copy.srcMemoryType == CU_MEMORYTYPE_HOST
                                    ? reinterpret_cast<std::uintptr_t>(copy.srcHost)
                                : copy.srcMemoryType == CU_MEMORYTYPE_ARRAY ? 0
                                                                            : copy.srcDevice;
  return {copy.srcMemoryType, address, copy.srcXInBytes, copy.srcY, copy.srcZ, copy.srcPitch, copy.srcHeight};
}

CopySide targetOf(const CUDA_MEMCPY3D &copy) {
  const std::uint64_t address = copy.dstMemoryType == CU_MEMORYTYPE_HOST
                                    ? reinterpret_cast<std::uintptr_t>(copy.dstHost)
                                : copy.dstMemoryType == CU_MEMORYTYPE_ARRAY ? 0
                                                                            : copy.dstDevice;
  return {copy.dstMemoryType, address, copy.dstXInBytes, copy.dstY, copy.dstZ, copy.dstPitch, copy.dstHeight};
}

/// From the first to the last byte touched. Only a copy without gaps must touch all of it.
TouchedSpan spanOf(const CopySide &side, const CUDA_MEMCPY3D &copy, Mode mode) {
  const std::size_t rows = std::max<std::size_t>(copy.Height, 1), layers = std::max<std::size_t>(copy.Depth, 1);
  const std::size_t height = side.height != 0 ? side.height : rows;
  const auto position = [&](std::size_t row, std::size_t layer) {
    return ((side.z + layer) * height + side.y + row) * side.pitch + side.x;
  };
  const std::size_t first = position(0, 0), last = position(rows - 1, layers - 1) + copy.WidthInBytes;
  const bool contiguous = last - first == copy.WidthInBytes * rows * layers;
  return {side.address + first, last - first, mode, contiguous ? mode : modeNone};
}

std::string_view nameOf(NodeKind kind) {
  switch (kind) {
  case NodeKind::Memcpy:
    return "memcpy";
  case NodeKind::Memset:
    return "memset";
  case NodeKind::Host:
    return "host function";
  case NodeKind::Empty:
    return "empty";
  case NodeKind::ChildGraph:
    return "child graph";
  case NodeKind::EventRecord:
    return "event record";
  case NodeKind::EventWait:
    return "event wait";
  default:
    return "node";
  }
}

/// Reads one graph, and child graphs inside it.
class GraphReader {
public:
  GraphReader(const Driver &driver, const AddressSpace &addresses, CUcontext context, const FillKernel *fills)
      : driver_(driver), addresses_(addresses), kernels_(driver, addresses, context), fills_(fills) {}

  Expected<LiftedGraph> read(CUgraph graph) {
    LiftedGraph lifted;
    std::size_t count = 0;
    PUMPGRAPH_TRY_WHILE(driver_.graphGetNodes(graph, nullptr, &count), "lifting the graph");
    std::vector<CUgraphNode> handles(count);
    if (count != 0)
      PUMPGRAPH_TRY_WHILE(driver_.graphGetNodes(graph, handles.data(), &count), "lifting the graph");
    PUMPGRAPH_TRY(sortNodes(graph, handles, lifted.edges));
    for (const CUgraphNode handle : handles) {
      LiftedNode &node = lifted.nodes.emplace_back();
      node.handle = handle;
      PUMPGRAPH_TRY_WHILE(readNode(handle, 0, node), "lifting node {} of {}", lifted.nodes.size() - 1, count);
      if (node.name.empty())
        node.name = nameOf(node.kind);
    }
    return lifted;
  }

private:
  /// An edge as the driver tells it, by positions in its own list of nodes.
  struct RawEdge {
    std::uint32_t from, to;
    CUgraphEdgeData data;
  };

  Expected<std::vector<RawEdge>> readEdges(CUgraph graph, const std::vector<CUgraphNode> &handles) const {
    std::size_t count = 0;
    PUMPGRAPH_TRY_WHILE(driver_.graphGetEdges(graph, nullptr, nullptr, nullptr, &count), "reading the edges");
    std::vector<CUgraphNode> from(count), to(count);
    std::vector<CUgraphEdgeData> data(count);
    if (count != 0)
      PUMPGRAPH_TRY_WHILE(driver_.graphGetEdges(graph, from.data(), to.data(), data.data(), &count), "reading {} edges",
                          count);
    std::unordered_map<CUgraphNode, std::uint32_t> position;
    for (std::uint32_t i = 0; i < handles.size(); ++i)
      position.emplace(handles[i], i);
    std::vector<RawEdge> edges;
    for (std::size_t i = 0; i < count; ++i)
      edges.push_back({position.at(from[i]), position.at(to[i]), data[i]});
    return edges;
  }

  /// Positions in a topological order: the driver's own order where it is one.
  static std::vector<std::uint32_t> sort(std::size_t nodes, const std::vector<RawEdge> &edges) {
    std::vector<std::vector<std::uint32_t>> successors(nodes);
    std::vector<std::uint32_t> waitingFor(nodes, 0);
    for (const RawEdge &edge : edges) {
      successors[edge.from].push_back(edge.to);
      ++waitingFor[edge.to];
    }
    std::priority_queue<std::uint32_t, std::vector<std::uint32_t>, std::greater<>> ready;
    for (std::uint32_t node = 0; node < nodes; ++node)
      if (waitingFor[node] == 0)
        ready.push(node);
    std::vector<std::uint32_t> sorted;
    while (!ready.empty()) {
      sorted.push_back(ready.top());
      ready.pop();
      for (const std::uint32_t successor : successors[sorted.back()])
        if (--waitingFor[successor] == 0)
          ready.push(successor);
    }
    return sorted;
  }

  /// Puts `handles` in a topological order and fills in the edges, one between two nodes.
  Status sortNodes(CUgraph graph, std::vector<CUgraphNode> &handles, std::vector<LiftedEdge> &edges) const {
    const Expected<std::vector<RawEdge>> raw = readEdges(graph, handles);
    if (!raw)
      return tl::unexpected<Error>(raw.error());
    const std::vector<std::uint32_t> sorted = sort(handles.size(), *raw);
    if (sorted.size() != handles.size())
      return fail(PUMPGRAPH_INVALID_ARGUMENT, "the graph has a cycle: {} of {} nodes can never start",
                  handles.size() - sorted.size(), handles.size());
    std::vector<std::uint32_t> rank(handles.size());
    std::vector<CUgraphNode> inOrder;
    for (const std::uint32_t node : sorted) {
      rank[node] = static_cast<std::uint32_t>(inOrder.size());
      inOrder.push_back(handles[node]);
    }
    handles = std::move(inOrder);

    std::map<std::pair<std::uint32_t, std::uint32_t>, LiftedEdge> unique;
    for (const RawEdge &edge : *raw) {
      const bool full = edge.data.type == CU_GRAPH_DEPENDENCY_TYPE_DEFAULT &&
                        edge.data.from_port == CU_GRAPH_KERNEL_NODE_PORT_DEFAULT;
      const LiftedEdge lifted{rank[edge.from], rank[edge.to], full ? EdgeKind::Full : EdgeKind::Programmatic,
                              edge.data};
      const auto [known, isNew] = unique.try_emplace({lifted.from, lifted.to}, lifted);
      if (!isNew && full)
        known->second = lifted;
    }
    for (const auto &[ends, edge] : unique)
      edges.push_back(edge);
    return {};
  }

  /// `inner` is 0 for nodes of the graph itself; else the node is one of a child graph and adds to `node`.
  Status readNode(CUgraphNode handle, std::uint32_t inner, LiftedNode &node) {
    CUgraphNodeType type{};
    PUMPGRAPH_TRY(driver_.graphNodeGetType(handle, &type));
    const auto setKind = [&](NodeKind kind) {
      if (inner == 0)
        node.kind = kind;
    };
    const auto refuse = [&](NodeKind kind, std::string_view reason) {
      setKind(kind);
      if (node.refusal.empty())
        node.refusal = inner == 0 ? std::string(reason) : fmt::format("{} inside a child graph", reason);
    };
    switch (type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
      if (const auto fill = fills_ ? fills_->fillOf(handle) : std::nullopt) {
        setKind(NodeKind::Memset);
        addFill(*fill, inner, node);
        return {};
      }
      setKind(NodeKind::Kernel);
      kernels_.read(handle, inner, node);
      return {};
    case CU_GRAPH_NODE_TYPE_MEMCPY:
      setKind(NodeKind::Memcpy);
      readCopy(handle, inner, node);
      return {};
    case CU_GRAPH_NODE_TYPE_MEMSET:
      setKind(NodeKind::Memset);
      readFill(handle, inner, node);
      return {};
    case CU_GRAPH_NODE_TYPE_GRAPH:
      setKind(NodeKind::ChildGraph);
      return readChild(handle, node);
    case CU_GRAPH_NODE_TYPE_HOST: // a rewritten step's memory is on the device, where the processor cannot touch it
      setKind(NodeKind::Host);
      node.callsHost = true;
      return {};
    case CU_GRAPH_NODE_TYPE_EMPTY:
      setKind(NodeKind::Empty);
      return {};
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
      setKind(NodeKind::EventRecord);
      return {};
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
      setKind(NodeKind::EventWait);
      return {};
    case CU_GRAPH_NODE_TYPE_EXT_SEMAS_SIGNAL:
      refuse(NodeKind::SemaphoreSignal, "an external semaphore is signalled");
      return {};
    case CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT:
      refuse(NodeKind::SemaphoreWait, "an external semaphore is waited for");
      return {};
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
      refuse(NodeKind::MemAlloc, "memory is allocated by a node of the graph");
      return {};
    case CU_GRAPH_NODE_TYPE_MEM_FREE:
      refuse(NodeKind::MemFree, "memory is freed by a node of the graph");
      return {};
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
      refuse(NodeKind::BatchMemOp, "a batch of memory operations may write any buffer");
      return {};
    case CU_GRAPH_NODE_TYPE_CONDITIONAL:
      refuse(NodeKind::Conditional, "a conditional node decides at run time what is executed");
      return {};
    default:
      refuse(NodeKind::Opaque, "a node of a kind this version does not know");
      return {};
    }
  }

  Status readChild(CUgraphNode handle, LiftedNode &node) {
    CUgraph child = nullptr;
    PUMPGRAPH_TRY(driver_.graphChildGraphNodeGetGraph(handle, &child));
    std::size_t count = 0;
    PUMPGRAPH_TRY(driver_.graphGetNodes(child, nullptr, &count));
    std::vector<CUgraphNode> handles(count);
    if (count != 0)
      PUMPGRAPH_TRY(driver_.graphGetNodes(child, handles.data(), &count));
    for (const CUgraphNode inner : handles)
      PUMPGRAPH_TRY(readNode(inner, ++innerCount_, node));
    return {};
  }

  static bool isOneRow(const CUDA_MEMCPY3D &copy) { return copy.Height <= 1 && copy.Depth <= 1; }

  void readCopy(CUgraphNode handle, std::uint32_t inner, LiftedNode &node) {
    CUDA_MEMCPY3D copy{};
    const Status got = driver_.graphMemcpyNodeGetParams(handle, &copy);
    if (!got) {
      node.refusal = "a copy's parameters cannot be read: " + got.error().message;
      return;
    }
    const CopySide source = sourceOf(copy), target = targetOf(copy);
    const TouchedSpan read = spanOf(source, copy, modeRead), written = spanOf(target, copy, modeWrite);
    if (addresses_.contains(read.address))
      add(read, inner, node);
    else if (source.type != CU_MEMORYTYPE_ARRAY && addresses_.contains(written.address))
      node.hostSources.push_back({read.address, read.bytes, isOneRow(copy) ? written.address : 0});
    if (addresses_.contains(written.address))
      add(written, inner, node);
    else
      node.outside.push_back({target.type == CU_MEMORYTYPE_ARRAY ? 0 : written.address, written.bytes});
    if (inner == 0)
      node.copy = copy;
  }

  void readFill(CUgraphNode handle, std::uint32_t inner, LiftedNode &node) {
    CUDA_MEMSET_NODE_PARAMS fill{};
    const Status got = driver_.graphMemsetNodeGetParams(handle, &fill);
    if (!got) {
      node.refusal = "a fill's parameters cannot be read: " + got.error().message;
      return;
    }
    addFill(fill, inner, node);
  }

  void addFill(const CUDA_MEMSET_NODE_PARAMS &fill, std::uint32_t inner, LiftedNode &node) const {
    const std::size_t rows = std::max<std::size_t>(fill.height, 1), row = fill.width * fill.elementSize;
    const std::size_t bytes = rows == 1 ? row : (rows - 1) * fill.pitch + row;
    if (!addresses_.contains(fill.dst)) {
      node.outside.push_back({fill.dst, bytes});
      return;
    }
    add({fill.dst, bytes, modeWrite, bytes == rows * row ? modeWrite : modeNone}, inner, node);
  }

  /// Inside a child graph something else may touch the span first.
  static void add(TouchedSpan span, std::uint32_t inner, LiftedNode &node) {
    if (inner != 0)
      span.must = modeNone;
    node.spans.push_back(span);
  }

  const Driver &driver_;
  const AddressSpace &addresses_;
  KernelParameters kernels_;
  const FillKernel *fills_;
  std::uint32_t innerCount_ = 0;
};

} // namespace

std::span<const char> KernelLaunch::parameter(std::size_t index) const {
  if (index >= ends.size())
    return {};
  return std::span(bytes).subspan(beginOf(index), ends[index] - beginOf(index));
}

std::vector<void *> KernelLaunch::pointers() const {
  std::vector<void *> pointers;
  for (std::size_t index = 0; index < ends.size(); ++index)
    pointers.push_back(const_cast<char *>(parameter(index).data()));
  return pointers;
}

Expected<LiftedGraph> liftGraph(const Driver &driver, CUgraph graph, const AddressSpace &addresses, CUcontext context,
                                const FillKernel *fills) {
  return GraphReader(driver, addresses, context, fills).read(graph);
}

} // namespace pumpgraph::runtime
