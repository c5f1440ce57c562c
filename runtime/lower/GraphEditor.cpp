// SPDX-License-Identifier: Apache-2.0
#include "runtime/lower/GraphEditor.h"

#include "runtime/lower/CloneNode.h"

namespace pumpgraph::runtime {
namespace {

/// As separate values, also to a kernel that got its parameters as one packed buffer: it finds them where it did.
Status giveParameters(const Driver &driver, CUgraphNode kernel, const KernelLaunch &launch) {
  CUDA_KERNEL_NODE_PARAMS_v2 parameters{};
  PUMPGRAPH_TRY(driver.graphKernelNodeGetParams(kernel, &parameters));
  std::vector<void *> values = launch.pointers();
  parameters.kernelParams = values.data();
  parameters.extra = nullptr;
  return driver.graphKernelNodeSetParams(kernel, &parameters);
}

} // namespace

Expected<CUgraphNode> GraphEditor::addCopy(CUDA_MEMCPY3D &copy, const Rows &rows) {
  copy.WidthInBytes = rows.bytes;
  copy.Height = rows.count;
  copy.Depth = 1;
  CUgraphNode node = nullptr;
  PUMPGRAPH_TRY_WHILE(driver_.graphAddMemcpyNode(&node, graph_, nullptr, 0, &copy, context_), "adding a copy of {}",
                      bytesText(rows.count * rows.bytes));
  undo_.push_back(AddedNode{node});
  return node;
}

Expected<CUgraphNode> GraphEditor::addCopyToHost(void *host, CUdeviceptr device, std::uint64_t bytes) {
  return addCopyToHost(host, device, Rows{.bytes = bytes});
}

Expected<CUgraphNode> GraphEditor::addCopyToDevice(CUdeviceptr device, const void *host, std::uint64_t bytes) {
  return addCopyToDevice(device, host, Rows{.bytes = bytes});
}

Expected<CUgraphNode> GraphEditor::addCopyToHost(void *host, CUdeviceptr device, const Rows &rows) {
  CUDA_MEMCPY3D copy{};
  copy.srcMemoryType = CU_MEMORYTYPE_DEVICE;
  copy.srcDevice = device;
  copy.srcPitch = rows.deviceDistance;
  copy.dstMemoryType = CU_MEMORYTYPE_HOST;
  copy.dstHost = host;
  copy.dstPitch = rows.hostDistance;
  return addCopy(copy, rows);
}

Expected<CUgraphNode> GraphEditor::addCopyToDevice(CUdeviceptr device, const void *host, const Rows &rows) {
  CUDA_MEMCPY3D copy{};
  copy.srcMemoryType = CU_MEMORYTYPE_HOST;
  copy.srcHost = host;
  copy.srcPitch = rows.hostDistance;
  copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  copy.dstDevice = device;
  copy.dstPitch = rows.deviceDistance;
  return addCopy(copy, rows);
}

Expected<CUgraphNode> GraphEditor::addFill(CUdeviceptr device, std::uint64_t bytes, unsigned char value) {
  CUDA_MEMSET_NODE_PARAMS fill{};
  fill.dst = device;
  fill.value = value;
  fill.elementSize = 1;
  fill.width = bytes;
  fill.height = 1;
  CUgraphNode node = nullptr;
  PUMPGRAPH_TRY_WHILE(driver_.graphAddMemsetNode(&node, graph_, nullptr, 0, &fill, context_), "adding a fill of {}",
                      bytesText(bytes));
  undo_.push_back(AddedNode{node});
  return node;
}

Expected<CUgraphNode> GraphEditor::addKernel(const CUDA_KERNEL_NODE_PARAMS &launch) {
  CUgraphNode node = nullptr;
  PUMPGRAPH_TRY_WHILE(driver_.graphAddKernelNode(&node, graph_, nullptr, 0, &launch), "adding a kernel");
  undo_.push_back(AddedNode{node});
  return node;
}

Expected<CUgraphNode> GraphEditor::addClone(CUgraphNode node, const KernelLaunch *parameters) {
  Expected<CUgraphNode> clone = cloneNode(driver_, graph_, node, context_, parameters);
  if (!clone)
    return inContext(clone.error(), "adding a node like another");
  undo_.push_back(AddedNode{*clone});
  return clone;
}

Status GraphEditor::removeFill(CUgraphNode node, const CUDA_MEMSET_NODE_PARAMS &fill) {
  PUMPGRAPH_TRY_WHILE(driver_.graphDestroyNode(node), "removing a fill");
  undo_.push_back(RemovedFill{node, fill});
  return {};
}

Status GraphEditor::changeParameters(CUgraphNode kernel, const KernelLaunch &from, const KernelLaunch &to) {
  PUMPGRAPH_TRY_WHILE(giveParameters(driver_, kernel, to), "giving \"{}\" other parameters", to.kernel);
  undo_.push_back(ChangedParameters{kernel, from});
  return {};
}

Expected<CUgraphNode> GraphEditor::addEventRecord(CUevent event) {
  CUgraphNode node = nullptr;
  PUMPGRAPH_TRY_WHILE(driver_.graphAddEventRecordNode(&node, graph_, nullptr, 0, event), "adding an event");
  undo_.push_back(AddedNode{node});
  return node;
}

Expected<CUgraphNode> GraphEditor::addMemOps(std::vector<CUstreamBatchMemOpParams> operations) {
  CUDA_BATCH_MEM_OP_NODE_PARAMS batch{};
  batch.ctx = context_;
  batch.count = static_cast<unsigned>(operations.size());
  batch.paramArray = operations.data();
  CUgraphNode node = nullptr;
  PUMPGRAPH_TRY_WHILE(driver_.graphAddBatchMemOpNode(&node, graph_, nullptr, 0, &batch), "adding {} memory operations",
                      operations.size());
  undo_.push_back(AddedNode{node});
  return node;
}

Expected<CUgraphNode> GraphEditor::addEmpty() {
  CUgraphNode node = nullptr;
  PUMPGRAPH_TRY_WHILE(driver_.graphAddEmptyNode(&node, graph_, nullptr, 0), "adding an empty node");
  undo_.push_back(AddedNode{node});
  return node;
}

Status GraphEditor::addEdge(CUgraphNode from, CUgraphNode to) {
  const CUgraphEdgeData full{};
  PUMPGRAPH_TRY_WHILE(driver_.graphAddDependencies(graph_, &from, &to, &full, 1), "adding an edge");
  undo_.push_back(AddedEdge{from, to});
  return {};
}

Status GraphEditor::removeEdge(CUgraphNode from, CUgraphNode to, const CUgraphEdgeData &data) {
  PUMPGRAPH_TRY_WHILE(driver_.graphRemoveDependencies(graph_, &from, &to, &data, 1), "removing an edge");
  undo_.push_back(RemovedEdge{from, to, data});
  return {};
}

Status GraphEditor::demote(CUgraphNode from, CUgraphNode to, const CUgraphEdgeData &data) {
  PUMPGRAPH_TRY(removeEdge(from, to, data));
  return addEdge(from, to);
}

Status GraphEditor::undo() {
  Status failed;
  const auto note = [&](Status done) {
    if (!done && failed)
      failed = std::move(done);
  };
  const CUgraphEdgeData full{};
  std::map<CUgraphNode, CUgraphNode> returned; ///< fills that are back, by the handle they had
  const auto now = [&](CUgraphNode node) {
    const auto found = returned.find(node);
    return found == returned.end() ? node : found->second;
  };
  for (; !undo_.empty(); undo_.pop_back()) {
    if (auto *added = std::get_if<AddedNode>(&undo_.back()))
      note(driver_.graphDestroyNode(added->node));
    if (auto *removed = std::get_if<RemovedFill>(&undo_.back()))
      note(driver_.graphAddMemsetNode(&returned[removed->node], graph_, nullptr, 0, &removed->fill, context_));
    if (auto *changed = std::get_if<ChangedParameters>(&undo_.back()))
      note(giveParameters(driver_, changed->kernel, changed->before));
    if (auto *edge = std::get_if<AddedEdge>(&undo_.back())) {
      const CUgraphNode from = now(edge->from), to = now(edge->to);
      note(driver_.graphRemoveDependencies(graph_, &from, &to, &full, 1));
    }
    if (auto *removed = std::get_if<RemovedEdge>(&undo_.back())) {
      const CUgraphNode from = now(removed->from), to = now(removed->to);
      note(driver_.graphAddDependencies(graph_, &from, &to, &removed->data, 1));
    }
  }
  return failed;
}

} // namespace pumpgraph::runtime
