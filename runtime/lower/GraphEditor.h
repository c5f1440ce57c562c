// SPDX-License-Identifier: Apache-2.0
/// \file
/// Transactional changes to a CUgraph.
#pragma once

#include "runtime/capture/LiftGraph.h"

#include <map>
#include <variant>
#include <vector>

namespace pumpgraph::runtime {

/// Adds nodes to a graph, adds and removes edges, in place. Unless commit() is called, the destructor restores the
/// graph, as undo() does.
class GraphEditor {
public:
  GraphEditor(const Driver &driver, CUgraph graph, CUcontext context)
      : driver_(driver), graph_(graph), context_(context) {}
  ~GraphEditor() { (void)undo(); }
  GraphEditor(const GraphEditor &) = delete;
  GraphEditor &operator=(const GraphEditor &) = delete;

  /// A copy between pinned host memory and a device address, with no dependencies yet. The direction is given
  /// explicitly: the device side may be mapped anew at any time.
  Expected<CUgraphNode> addCopyToHost(void *host, CUdeviceptr device, std::uint64_t bytes);
  Expected<CUgraphNode> addCopyToDevice(CUdeviceptr device, const void *host, std::uint64_t bytes);
  /// The same of `count` rows, from one to the next `hostDistance` and `deviceDistance` bytes, neither less than
  /// `bytes`. What lies between the device's rows has to be mapped as well.
  struct Rows {
    std::uint64_t bytes = 0;
    std::size_t count = 1;
    std::uint64_t hostDistance = 0;
    std::uint64_t deviceDistance = 0;
  };
  Expected<CUgraphNode> addCopyToHost(void *host, CUdeviceptr device, const Rows &rows);
  Expected<CUgraphNode> addCopyToDevice(CUdeviceptr device, const void *host, const Rows &rows);
  Expected<CUgraphNode> addFill(CUdeviceptr device, std::uint64_t bytes, unsigned char value);
  Expected<CUgraphNode> addKernel(const CUDA_KERNEL_NODE_PARAMS &launch);
  Expected<CUgraphNode> addEventRecord(CUevent event);
  /// Writes words of memory, or waits for them, one after another.
  Expected<CUgraphNode> addMemOps(std::vector<CUstreamBatchMemOpParams> operations);
  /// A node that does nothing.
  Expected<CUgraphNode> addEmpty();
  /// A clone of `node` (CloneNode.h), a kernel with these parameters unless they are null.
  Expected<CUgraphNode> addClone(CUgraphNode node, const KernelLaunch *parameters);

  /// Takes out a fill that has no edges. Should it return, then as a node of another handle.
  Status removeFill(CUgraphNode node, const CUDA_MEMSET_NODE_PARAMS &fill);

  /// Gives a kernel parameters `to` in place of `from`. Its launch attributes, which are no parameters, stay.
  Status changeParameters(CUgraphNode kernel, const KernelLaunch &from, const KernelLaunch &to);

  /// An edge that waits for completion.
  Status addEdge(CUgraphNode from, CUgraphNode to);
  Status removeEdge(CUgraphNode from, CUgraphNode to, const CUgraphEdgeData &data);
  /// Replaces an edge by one that waits for completion.
  Status demote(CUgraphNode from, CUgraphNode to, const CUgraphEdgeData &data);

  void commit() { undo_.clear(); }
  /// Takes all changes back, in reverse order. Fails with the first that the driver does not let it: the others are
  /// taken back all the same, but the graph is not what it was and must not be launched.
  Status undo();

private:
  struct AddedNode {
    CUgraphNode node;
  };
  struct RemovedFill {
    CUgraphNode node;
    CUDA_MEMSET_NODE_PARAMS fill;
  };
  struct ChangedParameters {
    CUgraphNode kernel;
    KernelLaunch before;
  };
  struct AddedEdge {
    CUgraphNode from, to;
  };
  struct RemovedEdge {
    CUgraphNode from, to;
    CUgraphEdgeData data;
  };

  Expected<CUgraphNode> addCopy(CUDA_MEMCPY3D &copy, const Rows &rows);

  const Driver &driver_;
  CUgraph graph_;
  CUcontext context_;
  std::vector<std::variant<AddedNode, RemovedFill, ChangedParameters, AddedEdge, RemovedEdge>> undo_;
};

} // namespace pumpgraph::runtime
