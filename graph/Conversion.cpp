// SPDX-License-Identifier: Apache-2.0
#include "pumpgraph/graph/Conversion.h"

#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/TypeSwitch.h"

#include <cmath>
#include <deque>
#include <map>
#include <tuple>

using namespace mlir;

namespace pumpgraph::ir {
namespace {

//===----------------------------------------------------------------------===//
// IR -> description
//===----------------------------------------------------------------------===//

/// All of it but what it continues.
Buffer readBuffer(BufferOp op) {
  Buffer buffer;
  buffer.name = op.getName().str();
  buffer.address = op.getAddress().value_or(0);
  buffer.size = op.getSize();
  buffer.isPrivate = op.getIsPrivate();
  buffer.liveIn = op.getLiveIn();
  buffer.liveOut = op.getLiveOut();
  buffer.isRenamable = op.getRenamable();
  buffer.isPresent = op.getPresent();
  if (const auto frames = op.getFrames())
    buffer.frames.assign(frames->begin(), frames->end());
  buffer.resident = rangesOf(op.getResidentOffsets(), op.getResidentSizes());
  buffer.mirrored = rangesOf(op.getMirroredOffsets(), op.getMirroredSizes());
  buffer.hosted = rangesOf(op.getHostedOffsets(), op.getHostedSizes());
  return buffer;
}

class Reader {
public:
  Lifted read(GraphOp graph) {
    Description &description = lifted_.description;
    description.name = graph.getSymName().str();
    description.stage = static_cast<Stage>(graph.getStage());
    description.pageBytes = graph.getPageBytes();
    description.budgetBytes = graph.getBudget().value_or(0);
    description.hostBytes = graph.getHostBytes().value_or(0);
    for (Operation &op : graph.getBody().front()) {
      if (auto buffer = dyn_cast<BufferOp>(op))
        add(buffer);
      else
        add(cast<NodeOpInterface>(op));
    }
    return std::move(lifted_);
  }

private:
  void add(BufferOp op) {
    bufferIndices_[op.getBuffer()] = static_cast<BufferIndex>(lifted_.buffers.size());
    lifted_.buffers.push_back(op);
    lifted_.description.buffers.push_back(readBuffer(op));
    if (const Value before = op.getContinues())
      lifted_.description.buffers.back().continues = bufferIndices_.lookup(before);
  }

  void add(NodeOpInterface op) {
    const auto index = static_cast<NodeIndex>(lifted_.nodes.size());
    nodeIndices_[op.getDone()] = index;
    lifted_.nodes.push_back(op);
    lifted_.description.nodes.push_back(readNode(op));
    const ArrayRef<std::int8_t> kinds = op.getEdgeKinds();
    for (const auto &[i, dep] : llvm::enumerate(op.getDeps()))
      lifted_.description.edges.push_back(
          {nodeIndices_.lookup(dep), index, kinds.empty() ? EdgeKind::Full : static_cast<EdgeKind>(kinds[i])});
  }

  Node readNode(NodeOpInterface op) {
    Node node;
    node.kind = op.getNodeKind();
    node.captured = op.getCaptured() ? static_cast<std::int32_t>(*op.getCaptured()) : notCaptured;
    node.name = op.getName().str();
    if (op.getCostUs())
      node.costUs = op.getCostUs()->convertToDouble();
    if (auto opaque = dyn_cast<OpaqueOp>(op.getOperation()))
      node.reason = opaque.getReason().str();
    if (auto again = dyn_cast<RematerializeOp>(op.getOperation()))
      node.repeats = static_cast<std::int32_t>(again.getRepeats());
    if (auto accessing = dyn_cast<AccessOpInterface>(op.getOperation()))
      readCaptured(accessing, node);
    if (auto added = dyn_cast<RangeOpInterface>(op.getOperation()))
      readRange(added, node);
    return node;
  }

  void readCaptured(AccessOpInterface op, Node &node) {
    node.label = op.getLabel().str();
    node.isPure = op.getIsPure();
    if (op.getArithmeticUs())
      node.arithmeticUs = op.getArithmeticUs()->convertToDouble();
    const ArrayRef<std::int64_t> offsets = op.getOffsets(), sizes = op.getSizes();
    const ArrayRef<std::int8_t> may = op.getMay(), must = op.getMust(), evidence = op.getEvidence();
    const ArrayRef<std::int32_t> parameters = op.getParameters();
    const ArrayRef<float> slowdowns = op.getSlowdowns();
    const ArrayRef<bool> asides = op.getAsides();
    node.accesses.reserve(offsets.size());
    for (const auto &[i, buffer] : llvm::enumerate(op.getBuffers())) {
      Access &access = node.accesses.emplace_back();
      access.buffer = bufferIndices_.lookup(buffer);
      access.range = {static_cast<std::uint64_t>(offsets[i]), static_cast<std::uint64_t>(sizes[i])};
      access.may = static_cast<std::uint8_t>(may[i]);
      access.must = static_cast<std::uint8_t>(must[i]);
      access.evidence = static_cast<Evidence>(evidence[i]);
      access.parameter = parameters[i];
      access.slowdown = slowdowns.empty() ? 1 : slowdowns[i];
      access.isAside = !asides.empty() && asides[i];
    }
  }

  void readRange(RangeOpInterface op, Node &node) {
    node.buffer = bufferIndices_.lookup(op.getBuffer());
    node.range = rangeOf(op);
    if (auto advise = dyn_cast<AdviseOp>(op.getOperation()))
      node.advice = static_cast<Advice>(advise.getAdvice());
    if (auto copy = dyn_cast<CopyToHostOp>(op.getOperation()))
      node.hostOffset = copy.getHostOffset();
    if (auto copy = dyn_cast<CopyToDeviceOp>(op.getOperation()))
      node.hostOffset = copy.getHostOffset();
    llvm::TypeSwitch<Operation *>(op.getOperation())
        .Case<EvictOp, PrefetchOp, CopyToHostOp, CopyToDeviceOp>(
            [&](auto moving) { node.joined = moving.getJoined(); });
  }

  Lifted lifted_;
  llvm::DenseMap<Value, BufferIndex> bufferIndices_;
  llvm::DenseMap<Value, NodeIndex> nodeIndices_;
};

//===----------------------------------------------------------------------===//
// Description -> IR
//===----------------------------------------------------------------------===//

/// A list of op classes, to be searched for the one of a node kind.
template <typename... Ops> struct OpList {};

using CapturedOps =
    OpList<KernelOp, MemcpyOp, MemsetOp, HostOp, EmptyOp, ChildGraphOp, EventRecordOp, EventWaitOp, SemaphoreSignalOp,
           SemaphoreWaitOp, MemAllocOp, MemFreeOp, BatchMemOpOp, ConditionalOp, OpaqueOp, RematerializeOp>;
using AddedOps = OpList<EvictOp, PrefetchOp, DiscardOp, AdviseOp, CopyToHostOp, CopyToDeviceOp>;

/// The parallel arrays of an AccessOpInterface.
struct AccessArrays {
  SmallVector<Value, 16> buffers;
  SmallVector<std::int64_t, 16> offsets, sizes;
  SmallVector<std::int8_t, 16> may, must, evidence;
  SmallVector<std::int32_t, 16> parameters;
  SmallVector<float, 16> slowdowns; ///< empty if all are 1, as they are but for a few nodes
  SmallVector<bool, 16> asides;     ///< empty if none is
};

/// Parallel arrays of a buffer.
struct RangeArrays {
  explicit RangeArrays(const std::vector<Range> &ranges) {
    for (const Range &range : ranges) {
      offsets.push_back(static_cast<std::int64_t>(range.offset));
      sizes.push_back(static_cast<std::int64_t>(range.size));
    }
  }
  SmallVector<std::int64_t> offsets, sizes;
};

/// Whether an op and a node are the same node; two may share an identity, then their order decides.
using Identity = std::tuple<NodeKind, std::int32_t, std::int32_t, std::string, BufferIndex, std::uint64_t,
                            std::uint64_t, Advice, std::uint64_t, bool>;

Identity identityOf(const Node &node) {
  return {node.kind,         node.captured,   node.repeats, node.name,       node.buffer,
          node.range.offset, node.range.size, node.advice,  node.hostOffset, node.joined};
}

class Writer {
public:
  explicit Writer(GraphOp graph)
      : graph_(graph), block_(&graph.getBody().front()), builder_(graph.getContext()), before_(toDescription(graph)) {
    for (NodeIndex i = 0; i < before_.nodes.size(); ++i)
      reusable_[identityOf(before_.description.nodes[i])].push_back(i);
  }

  void write(const Description &description) {
    writeFacts(description);
    for (BufferIndex i = 0; i < description.buffers.size(); ++i)
      buffers_.push_back(writeBuffer(i, description.buffers[i]).getBuffer());
    const std::vector<std::vector<Edge>> edges = edgesByTarget(description);
    for (NodeIndex i = 0; i < description.nodes.size(); ++i)
      tokens_.push_back(writeNode(description.nodes[i], edges[i]).getDone());
    eraseUnused(description.buffers.size());
  }

private:
  void writeFacts(const Description &description) {
    const auto bytesOrNothing = [&](std::uint64_t bytes) {
      return bytes == 0 ? IntegerAttr() : builder_.getI64IntegerAttr(static_cast<std::int64_t>(bytes));
    };
    graph_.setSymName(description.name);
    graph_.setStage(static_cast<std::uint32_t>(description.stage));
    graph_.setPageBytes(description.pageBytes);
    graph_.setBudgetAttr(bytesOrNothing(description.budgetBytes));
    graph_.setHostBytesAttr(bytesOrNothing(description.hostBytes));
  }

  /// Buffers are known by their position: passes drop none, and add others at the end.
  BufferOp writeBuffer(BufferIndex index, const Buffer &buffer) {
    BufferOp op;
    if (index < before_.buffers.size()) {
      op = before_.buffers[index];
      op->moveBefore(block_, block_->end());
    } else {
      builder_.setInsertionPointToEnd(block_);
      OperationState state(graph_.getLoc(), BufferOp::getOperationName());
      state.addTypes(BufferType::get(builder_.getContext()));
      op = cast<BufferOp>(builder_.create(state));
    }
    op.setName(buffer.name);
    op.setIsPrivate(buffer.isPrivate);
    op.setLiveIn(buffer.liveIn);
    op.setLiveOut(buffer.liveOut);
    op.setRenamable(buffer.isRenamable);
    op.setPresent(buffer.isPresent);
    op.getContinuesMutable().clear();
    if (buffer.continues != noBuffer)
      op.getContinuesMutable().append(buffers_[buffer.continues]);
    op.setSize(buffer.size);
    op.setAddressAttr(buffer.address ? builder_.getI64IntegerAttr(static_cast<std::int64_t>(buffer.address))
                                     : IntegerAttr());
    op.setFramesAttr(buffer.frames.empty() ? DenseI32ArrayAttr() : builder_.getDenseI32ArrayAttr(buffer.frames));
    const RangeArrays resident(buffer.resident), mirrored(buffer.mirrored), hosted(buffer.hosted);
    op.setResidentOffsets(resident.offsets);
    op.setResidentSizes(resident.sizes);
    op.setMirroredOffsets(mirrored.offsets);
    op.setMirroredSizes(mirrored.sizes);
    op.setHostedOffsets(hosted.offsets);
    op.setHostedSizes(hosted.sizes);
    return op;
  }

  static std::vector<std::vector<Edge>> edgesByTarget(const Description &description) {
    std::vector<std::vector<Edge>> edges(description.nodes.size());
    for (const Edge &edge : description.edges)
      edges[edge.to].push_back(edge);
    return edges;
  }

  NodeOpInterface writeNode(const Node &node, const std::vector<Edge> &edges) {
    NodeOpInterface op = takeExisting(node);
    if (op)
      op->moveBefore(block_, block_->end());
    else
      op = create(node);
    writeDependencies(op, edges);
    op.setCostUsAttr(std::isnan(node.costUs) ? FloatAttr() : builder_.getF64FloatAttr(node.costUs));
    return op;
  }

  /// The first op not yet taken that stands for `node`, or null. Its label and accesses are brought up to date.
  NodeOpInterface takeExisting(const Node &node) {
    const auto found = reusable_.find(identityOf(node));
    if (found == reusable_.end() || found->second.empty())
      return {};
    const NodeIndex index = found->second.front();
    found->second.pop_front();
    NodeOpInterface op = before_.nodes[index];
    before_.nodes[index] = {};
    const Node &old = before_.description.nodes[index];
    if (auto accessing = dyn_cast<AccessOpInterface>(op.getOperation())) {
      accessing.setLabel(node.label);
      accessing.setIsPure(node.isPure);
      accessing.setArithmeticUsAttr(arithmeticOf(node));
      if (old.accesses != node.accesses)
        writeAccesses(accessing, arraysOf(node));
    }
    if (auto opaque = dyn_cast<OpaqueOp>(op.getOperation()))
      opaque.setReason(node.reason);
    return op;
  }

  void writeDependencies(NodeOpInterface op, const std::vector<Edge> &edges) {
    SmallVector<Value> deps;
    SmallVector<std::int8_t> kinds;
    for (const Edge &edge : edges) {
      deps.push_back(tokens_[edge.from]);
      kinds.push_back(static_cast<std::int8_t>(edge.kind));
    }
    if (!llvm::is_contained(kinds, static_cast<std::int8_t>(EdgeKind::Programmatic)))
      kinds.clear();
    op.getDepsMutable().assign(deps);
    op.setEdgeKinds(kinds);
  }

  FloatAttr arithmeticOf(const Node &node) {
    return node.arithmeticUs == 0 ? FloatAttr() : builder_.getF64FloatAttr(node.arithmeticUs);
  }

  AccessArrays arraysOf(const Node &node) const {
    AccessArrays arrays;
    for (const Access &access : node.accesses) {
      arrays.buffers.push_back(buffers_[access.buffer]);
      arrays.offsets.push_back(static_cast<std::int64_t>(access.range.offset));
      arrays.sizes.push_back(static_cast<std::int64_t>(access.range.size));
      arrays.may.push_back(static_cast<std::int8_t>(access.may));
      arrays.must.push_back(static_cast<std::int8_t>(access.must));
      arrays.evidence.push_back(static_cast<std::int8_t>(access.evidence));
      arrays.parameters.push_back(access.parameter);
      arrays.slowdowns.push_back(access.slowdown);
      arrays.asides.push_back(access.isAside);
    }
    if (llvm::all_of(arrays.slowdowns, [](float slowdown) { return slowdown == 1; }))
      arrays.slowdowns.clear();
    if (!llvm::is_contained(arrays.asides, true))
      arrays.asides.clear();
    return arrays;
  }

  static void writeAccesses(AccessOpInterface op, const AccessArrays &arrays) {
    op.getBuffersMutable().assign(arrays.buffers);
    op.setOffsets(arrays.offsets);
    op.setSizes(arrays.sizes);
    op.setMay(arrays.may);
    op.setMust(arrays.must);
    op.setEvidence(arrays.evidence);
    op.setParameters(arrays.parameters);
    op.setSlowdowns(arrays.slowdowns);
    op.setAsides(arrays.asides);
  }

  NodeOpInterface create(const Node &node) {
    builder_.setInsertionPointToEnd(block_);
    if (isResidency(node.kind) || isCopy(node.kind))
      return createOneOf(node, AddedOps());
    return createOneOf(node, CapturedOps());
  }

  template <typename... Ops> NodeOpInterface createOneOf(const Node &node, OpList<Ops...>) {
    NodeOpInterface created;
    static_cast<void>(((Ops::kind == node.kind && (created = createAs<Ops>(node), true)) || ...));
    assert(created && "a valid description has no other kinds");
    return created;
  }

  template <typename OpT> NodeOpInterface createAs(const Node &node) {
    OperationState state(graph_.getLoc(), OpT::getOperationName());
    typename OpT::Properties &properties = state.getOrAddProperties<typename OpT::Properties>();
    properties.name = builder_.getStringAttr(node.name);
    if (node.captured != notCaptured)
      properties.captured = builder_.getI32IntegerAttr(node.captured);
    if constexpr (OpT::template hasTrait<AccessOpInterface::Trait>())
      fillCaptured<OpT>(node, state, properties);
    else
      fillAdded<OpT>(node, state, properties);
    state.addTypes(TokenType::get(builder_.getContext()));
    return cast<NodeOpInterface>(builder_.create(state));
  }

  template <typename OpT>
  void fillCaptured(const Node &node, OperationState &state, typename OpT::Properties &properties) {
    const AccessArrays arrays = arraysOf(node);
    properties.label = builder_.getStringAttr(node.label);
    properties.is_pure = node.isPure ? builder_.getUnitAttr() : UnitAttr();
    properties.arithmetic_us = arithmeticOf(node);
    state.addOperands(arrays.buffers);
    properties.operandSegmentSizes = {0, static_cast<std::int32_t>(arrays.buffers.size())};
    properties.offsets = builder_.getDenseI64ArrayAttr(arrays.offsets);
    properties.sizes = builder_.getDenseI64ArrayAttr(arrays.sizes);
    properties.may = builder_.getDenseI8ArrayAttr(arrays.may);
    properties.must = builder_.getDenseI8ArrayAttr(arrays.must);
    properties.evidence = builder_.getDenseI8ArrayAttr(arrays.evidence);
    properties.parameters = builder_.getDenseI32ArrayAttr(arrays.parameters);
    properties.slowdowns = builder_.getDenseF32ArrayAttr(arrays.slowdowns);
    properties.asides = builder_.getDenseBoolArrayAttr(arrays.asides);
    if constexpr (std::is_same_v<OpT, RematerializeOp>)
      properties.repeats = builder_.getI32IntegerAttr(node.repeats);
    if constexpr (std::is_same_v<OpT, OpaqueOp>)
      properties.reason = builder_.getStringAttr(node.reason);
  }

  template <typename OpT>
  void fillAdded(const Node &node, OperationState &state, typename OpT::Properties &properties) {
    Value buffer = buffers_[node.buffer];
    state.addOperands(buffer);
    const bool isWhole = node.range == Range{0, buffer.getDefiningOp<BufferOp>().getSize()};
    if (!isWhole) {
      properties.offset = builder_.getI64IntegerAttr(static_cast<std::int64_t>(node.range.offset));
      properties.size = builder_.getI64IntegerAttr(static_cast<std::int64_t>(node.range.size));
    }
    if constexpr (std::is_same_v<OpT, AdviseOp>)
      properties.advice = builder_.getI32IntegerAttr(static_cast<std::int32_t>(node.advice));
    if constexpr (std::is_same_v<OpT, CopyToHostOp> || std::is_same_v<OpT, CopyToDeviceOp>)
      properties.host_offset = builder_.getI64IntegerAttr(static_cast<std::int64_t>(node.hostOffset));
    if constexpr (std::is_same_v<OpT, EvictOp> || std::is_same_v<OpT, PrefetchOp> ||
                  std::is_same_v<OpT, CopyToHostOp> || std::is_same_v<OpT, CopyToDeviceOp>)
      properties.joined = node.joined ? builder_.getUnitAttr() : UnitAttr();
  }

  /// Backwards, since what is erased may depend on what is erased.
  void eraseUnused(std::size_t bufferCount) {
    for (NodeOpInterface node : llvm::reverse(before_.nodes))
      if (node)
        node->erase();
    for (std::size_t i = before_.buffers.size(); i > bufferCount; --i) // what continues another goes before it
      before_.buffers[i - 1]->erase();
  }

  GraphOp graph_;
  Block *block_;
  OpBuilder builder_;
  Lifted before_; ///< what the graph said; nodes that were taken over are null
  std::map<Identity, std::deque<NodeIndex>> reusable_;
  std::vector<Value> buffers_, tokens_; ///< by BufferIndex, by NodeIndex
};

} // namespace

Lifted toDescription(GraphOp graph) {
  return Reader().read(graph);
}

void update(GraphOp graph, const Description &description) {
  Writer(graph).write(description);
}

OwningOpRef<ModuleOp> toModule(const Description &description, MLIRContext &context) {
  context.loadDialect<PumpDialect>();
  OpBuilder builder(&context);
  OwningOpRef<ModuleOp> module = ModuleOp::create(builder.getUnknownLoc());
  builder.setInsertionPointToStart(module->getBody());
  OperationState state(builder.getUnknownLoc(), GraphOp::getOperationName());
  state.getOrAddProperties<GraphOp::Properties>().sym_name = builder.getStringAttr(description.name);
  state.addRegion()->emplaceBlock();
  update(cast<GraphOp>(builder.create(state)), description);
  return module;
}

} // namespace pumpgraph::ir
