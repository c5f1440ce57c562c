// SPDX-License-Identifier: Apache-2.0
#include "runtime/lower/ManagedGraph.h"

#include "runtime/lower/LowerGraph.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <set>
#include <unordered_map>

namespace pumpgraph::runtime {
namespace {

using OperationIndex = std::uint32_t;
using MemOps = std::vector<CUstreamBatchMemOpParams>;

/// What a batch of the driver can hold.
constexpr std::size_t mostMemOps = 256;

/// The nodes that are operations, in their order.
std::vector<NodeIndex> operationNodes(const Description &lowered) {
  std::vector<NodeIndex> nodes;
  for (NodeIndex node = 0; node < lowered.nodes.size(); ++node)
    if (isOperation(lowered.nodes[node].kind))
      nodes.push_back(node);
  return nodes;
}

CUdeviceptr requestOf(CUdeviceptr words, OperationIndex operation) {
  return words + operation * sizeof(OperationWords) + offsetof(OperationWords, request);
}
CUdeviceptr doneOf(CUdeviceptr words, OperationIndex operation) {
  return words + operation * sizeof(OperationWords) + offsetof(OperationWords, done);
}

/// The answer is taken back before it is asked for anew.
void appendSignal(MemOps &batch, CUdeviceptr words, OperationIndex operation) {
  CUstreamBatchMemOpParams &clear = batch.emplace_back();
  clear.writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
  clear.writeValue.address = doneOf(words, operation);
  CUstreamBatchMemOpParams &ask = batch.emplace_back();
  ask.writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
  ask.writeValue.address = requestOf(words, operation);
  ask.writeValue.value = 1;
}

void appendWait(MemOps &batch, CUdeviceptr words, OperationIndex operation) {
  CUstreamBatchMemOpParams &wait = batch.emplace_back();
  wait.waitValue.operation = CU_STREAM_MEM_OP_WAIT_VALUE_32;
  wait.waitValue.address = doneOf(words, operation);
  wait.waitValue.value = 1;
  wait.waitValue.flags = CU_STREAM_WAIT_VALUE_GEQ;
}

/// Puts signals and waits into a graph.
class OperationsInGraph {
public:
  OperationsInGraph(GraphEditor &editor, const Description &lowered, const CapturedStep &step, CUdeviceptr words)
      : editor_(editor), lowered_(lowered), step_(step), words_(words), nodes_(operationNodes(lowered)) {}

  Status run() {
    readEdges();
    PUMPGRAPH_TRY(addSignals());
    return addWaits();
  }

private:
  /// Operations that are asked for at the same time, and the node that asks last.
  struct Signal {
    std::vector<OperationIndex> operations;
    CUgraphNode last = nullptr;
  };

  CUgraphNode handleOf(NodeIndex node) const {
    return step_.nodes[static_cast<std::size_t>(lowered_.nodes[node].captured)];
  }

  void readEdges() {
    const std::size_t count = lowered_.nodes.size();
    position_.resize(count);
    for (OperationIndex operation = 0; operation < nodes_.size(); ++operation)
      position_[nodes_[operation]] = operation;
    capturedBefore_.resize(count);
    operationsBefore_.resize(count);
    capturedAfter_.resize(count);
    chained_.resize(count);
    waitedFor_.resize(nodes_.size());
    for (const Edge &edge : lowered_.edges) {
      const bool fromOperation = isOperation(lowered_.nodes[edge.from].kind);
      if (fromOperation)
        operationsBefore_[edge.to].push_back(position_[edge.from]);
      else
        capturedBefore_[edge.to].push_back(edge.from);
      if (isOperation(lowered_.nodes[edge.to].kind))
        continue;
      if (fromOperation)
        waitedFor_[position_[edge.from]] = true;
      else
        capturedAfter_[edge.from].push_back(edge.to);
    }
    for (NodeIndex node = 0; node < count; ++node)
      if (!isAdded(lowered_.nodes[node].kind)) {
        if (capturedBefore_[node].empty())
          roots_.push_back(node);
        if (capturedAfter_[node].empty())
          sinks_.push_back(node);
      }
  }

  Status edge(CUgraphNode from, CUgraphNode to) {
    return edges_.insert({from, to}).second ? editor_.addEdge(from, to) : Status{};
  }

  /// One node, or several in a row where there is too much for one. `first` and `last` are those ends.
  Status addBatches(const MemOps &all, CUgraphNode &first, CUgraphNode &last) {
    first = last = nullptr;
    for (std::size_t begin = 0; begin < all.size(); begin += mostMemOps) {
      const std::size_t end = std::min(begin + mostMemOps, all.size());
      const Expected<CUgraphNode> added = editor_.addMemOps(
          {all.begin() + static_cast<std::ptrdiff_t>(begin), all.begin() + static_cast<std::ptrdiff_t>(end)});
      if (!added)
        return tl::unexpected<Error>(added.error());
      if (last)
        PUMPGRAPH_TRY(edge(last, *added));
      else
        first = *added;
      last = *added;
    }
    return {};
  }

  Status addSignals() {
    std::map<std::vector<NodeIndex>, std::size_t> known; // by what comes before
    signalOf_.resize(nodes_.size());
    for (OperationIndex operation = 0; operation < nodes_.size(); ++operation) {
      const auto [place, isNew] = known.try_emplace(capturedBefore_[nodes_[operation]], signals_.size());
      if (isNew)
        signals_.emplace_back();
      signals_[place->second].operations.push_back(operation);
      signalOf_[operation] = place->second;
    }
    std::vector<CUgraphNode> firsts(signals_.size());
    for (std::size_t i = 0; i < signals_.size(); ++i) {
      MemOps batch;
      for (const OperationIndex operation : signals_[i].operations)
        appendSignal(batch, words_, operation);
      PUMPGRAPH_TRY_WHILE(addBatches(batch, firsts[i], signals_[i].last), "adding a signal");
    }
    for (std::size_t i = 0; i < signals_.size(); ++i) {
      const std::vector<NodeIndex> &before = capturedBefore_[nodes_[signals_[i].operations.front()]];
      for (const NodeIndex node : before)
        PUMPGRAPH_TRY(edge(handleOf(node), firsts[i]));
      for (const OperationIndex operation : signals_[i].operations)
        for (const OperationIndex other : operationsBefore_[nodes_[operation]])
          if (signalOf_[other] != i)
            PUMPGRAPH_TRY(edge(signals_[signalOf_[other]].last, firsts[i]));
      // Part of the chain, if there is one.
      const std::vector<NodeIndex> &after = before.empty() ? roots_ : capturedAfter_[before.front()];
      if (before.size() <= 1 && after.size() == 1) {
        PUMPGRAPH_TRY(edge(signals_[i].last, handleOf(after.front())));
        chained_[after.front()].push_back(signals_[i].last);
      }
    }
    return {};
  }

  /// A node of waits for `operations`, after everything that is to be before it.
  Expected<CUgraphNode> addWait(const std::vector<OperationIndex> &operations, const std::vector<CUgraphNode> &before) {
    MemOps batch;
    for (const OperationIndex operation : operations)
      appendWait(batch, words_, operation);
    CUgraphNode first = nullptr, last = nullptr;
    PUMPGRAPH_TRY(addBatches(batch, first, last));
    for (const CUgraphNode node : before)
      PUMPGRAPH_TRY(edge(node, first));
    for (const OperationIndex operation : operations)
      PUMPGRAPH_TRY(edge(signals_[signalOf_[operation]].last, first));
    return last;
  }

  Status addWaits() {
    for (NodeIndex node = 0; node < lowered_.nodes.size(); ++node) {
      if (isAdded(lowered_.nodes[node].kind) || operationsBefore_[node].empty())
        continue;
      std::vector<CUgraphNode> before = chained_[node];
      for (const NodeIndex other : capturedBefore_[node])
        before.push_back(handleOf(other));
      const Expected<CUgraphNode> wait = addWait(operationsBefore_[node], before);
      if (!wait)
        return inContext(wait.error(), fmt::format("adding a wait before \"{}\"", lowered_.nodes[node].name));
      PUMPGRAPH_TRY(edge(*wait, handleOf(node)));
    }
    // What nobody waits for in the step must be over before the next replay touches it again.
    std::vector<OperationIndex> discards;
    for (OperationIndex operation = 0; operation < nodes_.size(); ++operation)
      if (lowered_.nodes[nodes_[operation]].kind == NodeKind::Discard && !waitedFor_[operation])
        discards.push_back(operation);
    if (discards.empty())
      return {};
    std::vector<CUgraphNode> before;
    for (const NodeIndex node : sinks_)
      before.push_back(handleOf(node));
    const Expected<CUgraphNode> wait = addWait(discards, before);
    if (!wait)
      return inContext(wait.error(), "adding a wait at the end");
    return {};
  }

  GraphEditor &editor_;
  const Description &lowered_;
  const CapturedStep &step_;
  CUdeviceptr words_;
  std::vector<NodeIndex> nodes_;                                       ///< by operation
  std::vector<OperationIndex> position_;                               ///< by node
  std::vector<std::vector<NodeIndex>> capturedBefore_, capturedAfter_; ///< by node
  std::vector<std::vector<OperationIndex>> operationsBefore_;          ///< by node
  std::vector<bool> waitedFor_;                                        ///< by operation
  std::vector<NodeIndex> roots_, sinks_;
  std::vector<Signal> signals_;
  std::vector<std::size_t> signalOf_;             ///< by operation
  std::vector<std::vector<CUgraphNode>> chained_; ///< by node: signals that come before it in its chain
  std::set<std::pair<CUgraphNode, CUgraphNode>> edges_;
};

/// What an added node of the rewritten graph does.
struct Batch {
  std::vector<OperationIndex> asks;
  std::vector<OperationIndex> waits;
};

Expected<Batch> readBatch(const Driver &driver, CUgraphNode node, CUdeviceptr words, std::size_t operations) {
  CUDA_BATCH_MEM_OP_NODE_PARAMS parameters{};
  PUMPGRAPH_TRY_WHILE(driver.graphBatchMemOpNodeGetParams(node, &parameters), "reading a batch of memory operations");
  const auto unknown = [] {
    return fail(PUMPGRAPH_INTERNAL, "the rewritten graph writes or waits for a word that is no operation's");
  };
  Batch batch;
  std::optional<OperationIndex> cleared;
  for (unsigned i = 0; i < parameters.count; ++i) {
    const CUstreamBatchMemOpParams &one = parameters.paramArray[i];
    const bool waits = one.operation == CU_STREAM_MEM_OP_WAIT_VALUE_32;
    const CUdeviceptr address = waits ? one.waitValue.address : one.writeValue.address;
    const OperationIndex operation = static_cast<OperationIndex>((address - words) / sizeof(OperationWords));
    if (address < words || operation >= operations)
      return unknown();
    if (waits && address == doneOf(words, operation) && one.waitValue.value == 1 &&
        one.waitValue.flags == CU_STREAM_WAIT_VALUE_GEQ) {
      batch.waits.push_back(operation);
      continue;
    }
    if (one.operation != CU_STREAM_MEM_OP_WRITE_VALUE_32 || one.writeValue.flags != 0)
      return unknown();
    if (!cleared && address == doneOf(words, operation) && one.writeValue.value == 0) {
      cleared = operation;
      continue;
    }
    if (cleared != operation || address != requestOf(words, operation) || one.writeValue.value != 1)
      return unknown();
    cleared.reset();
    batch.asks.push_back(operation);
  }
  if (cleared)
    return unknown();
  return batch;
}

/// Contracts signals and waits: an operation stands where it is asked for, and what comes after a wait comes after it.
class ManagedDescriber {
public:
  ManagedDescriber(const Driver &driver, const LiftedGraph &lifted, const LiftedGraph &captured,
                   const CapturedStep &step, const Description &lowered, CUdeviceptr words)
      : driver_(driver), lifted_(lifted), captured_(captured), step_(step), lowered_(lowered), words_(words),
        nodes_(operationNodes(lowered)) {}

  Expected<Description> run() {
    result_ = lowered_;
    result_.nodes.clear();
    result_.edges.clear();
    const Description annotated = withAnnotations(step_.description, lowered_);
    std::unordered_map<CUgraphNode, std::size_t> positions;
    for (std::size_t i = 0; i < step_.nodes.size(); ++i)
      positions.emplace(step_.nodes[i], i);
    std::vector<std::vector<const LiftedEdge *>> into(lifted_.nodes.size());
    for (const LiftedEdge &edge : lifted_.edges)
      into[edge.to].push_back(&edge);
    indexOf_.resize(nodes_.size());
    seen_.resize(lifted_.nodes.size());
    for (std::size_t i = 0; i < lifted_.nodes.size(); ++i) {
      const LiftedNode &node = lifted_.nodes[i];
      const auto position = positions.find(node.handle);
      for (const LiftedEdge *edge : into[i])
        see(seen_[i], *edge);
      if (position != positions.end()) {
        const LiftedNode &before = captured_.nodes[position->second];
        if (!node.hasParametersOf(before))
          return fail(PUMPGRAPH_INTERNAL, "node {} \"{}\" has other parameters after the rewrite than before",
                      position->second, before.name);
        addCaptured(i, annotated.nodes[position->second]);
        continue;
      }
      PUMPGRAPH_TRY(addBatch(i));
    }
    PUMPGRAPH_TRY(checkComplete());
    for (const auto &[ends, kind] : edges_)
      result_.edges.push_back({ends.first, ends.second, kind});
    return std::move(result_);
  }

private:
  /// What is known to be before a node.
  struct Seen {
    std::map<NodeIndex, EdgeKind> captured; ///< nodes of the result
    std::set<OperationIndex> waited;        ///< these are over
    std::set<OperationIndex> asked;         ///< these have been asked for
    NodeIndex self = UINT32_MAX;            ///< captured nodes only
  };

  static void add(std::map<NodeIndex, EdgeKind> &nodes, NodeIndex node, EdgeKind kind) {
    const auto [known, isNew] = nodes.try_emplace(node, kind);
    if (!isNew && kind == EdgeKind::Full)
      known->second = kind;
  }

  void see(Seen &seen, const LiftedEdge &edge) const {
    const Seen &before = seen_[edge.from];
    if (before.self != UINT32_MAX)
      return add(seen.captured, before.self, edge.kind);
    for (const auto &[node, kind] : before.captured)
      add(seen.captured, node, kind);
    seen.waited.insert(before.waited.begin(), before.waited.end());
    seen.asked.insert(before.asked.begin(), before.asked.end());
  }

  void addEdges(const Seen &seen, NodeIndex to) {
    for (const auto &[from, kind] : seen.captured)
      edges_[{from, to}] = kind;
  }

  void addCaptured(std::size_t position, const Node &node) {
    Seen &seen = seen_[position];
    seen.self = static_cast<NodeIndex>(result_.nodes.size());
    result_.nodes.push_back(node);
    addEdges(seen, seen.self);
    for (const OperationIndex operation : seen.waited)
      edges_[{*indexOf_[operation], seen.self}] = EdgeKind::Full;
  }

  Status addBatch(std::size_t position) {
    if (lifted_.nodes[position].kind != NodeKind::BatchMemOp)
      return fail(PUMPGRAPH_INTERNAL, "the rewritten graph has a node \"{}\" that nobody captured or added",
                  lifted_.nodes[position].name);
    const Expected<Batch> batch = readBatch(driver_, lifted_.nodes[position].handle, words_, nodes_.size());
    if (!batch)
      return tl::unexpected<Error>(batch.error());
    Seen &seen = seen_[position];
    for (const OperationIndex operation : batch->asks) {
      if (indexOf_[operation])
        return fail(PUMPGRAPH_INTERNAL, "the rewritten graph asks twice for \"{}\"",
                    lowered_.nodes[nodes_[operation]].name);
      indexOf_[operation] = static_cast<NodeIndex>(result_.nodes.size());
      result_.nodes.push_back(lowered_.nodes[nodes_[operation]]);
      addEdges(seen, *indexOf_[operation]);
      for (const Edge &edge : lowered_.edges)
        if (edge.to == nodes_[operation] && isOperation(lowered_.nodes[edge.from].kind))
          for (const OperationIndex other : seen.asked)
            if (nodes_[other] == edge.from)
              edges_[{*indexOf_[other], *indexOf_[operation]}] = EdgeKind::Full;
      seen.asked.insert(operation);
    }
    for (const OperationIndex operation : batch->waits) {
      if (!seen.asked.contains(operation))
        return fail(PUMPGRAPH_INTERNAL, "the rewritten graph may wait for \"{}\" before it asks for it",
                    lowered_.nodes[nodes_[operation]].name);
      seen.waited.insert(operation);
      waited_.insert(operation);
    }
    return {};
  }

  Status checkComplete() const {
    for (OperationIndex operation = 0; operation < nodes_.size(); ++operation) {
      const Node &node = lowered_.nodes[nodes_[operation]];
      if (!indexOf_[operation])
        return fail(PUMPGRAPH_INTERNAL, "the rewritten graph never asks for \"{}\"", node.name);
      if (node.kind == NodeKind::Discard && !waited_.contains(operation))
        return fail(PUMPGRAPH_INTERNAL, "the rewritten graph does not wait for \"{}\"", node.name);
    }
    return {};
  }

  const Driver &driver_;
  const LiftedGraph &lifted_;
  const LiftedGraph &captured_;
  const CapturedStep &step_;
  const Description &lowered_;
  CUdeviceptr words_;
  std::vector<NodeIndex> nodes_; ///< by operation, of `lowered_`
  Description result_;
  std::vector<std::optional<NodeIndex>> indexOf_; ///< by operation, of the result
  std::vector<Seen> seen_;                        ///< by position
  std::set<OperationIndex> waited_;
  std::map<std::pair<NodeIndex, NodeIndex>, EdgeKind> edges_;
};

bool overlap(const Node &a, const Node &b) {
  return a.buffer == b.buffer && a.range.overlaps(b.range);
}

bool isDiscarded(const Description &lowered, const Node &node) {
  return std::any_of(lowered.nodes.begin(), lowered.nodes.end(),
                     [&](const Node &other) { return other.kind == NodeKind::Discard && overlap(other, node); });
}

std::set<std::int32_t> framesOf(const Description &lowered, const Node &node) {
  const std::vector<std::int32_t> &frames = lowered.buffers[node.buffer].frames;
  std::set<std::int32_t> result;
  for (std::uint64_t page = node.range.offset / lowered.pageBytes; page * lowered.pageBytes < node.range.end(); ++page)
    if (page < frames.size())
      result.insert(frames[page]);
  return result;
}

} // namespace

std::vector<Operation> operationsOf(const Description &lowered) {
  const std::vector<NodeIndex> nodes = operationNodes(lowered);
  std::vector<std::set<OperationIndex>> waitsFor(nodes.size());
  std::unordered_map<NodeIndex, OperationIndex> position;
  std::map<std::int32_t, std::vector<OperationIndex>> leaving; // by frame
  std::set<BufferIndex> readMostly;
  for (const Node &node : lowered.nodes)
    if (node.kind == NodeKind::Advise && node.advice == Advice::ReadMostly)
      readMostly.insert(node.buffer);
  for (OperationIndex operation = 0; operation < nodes.size(); ++operation) {
    const Node &node = lowered.nodes[nodes[operation]];
    position[nodes[operation]] = operation;
    if (node.kind != NodeKind::Prefetch)
      for (const std::int32_t frame : framesOf(lowered, node))
        leaving[frame].push_back(operation);
  }
  for (const Edge &edge : lowered.edges)
    if (isOperation(lowered.nodes[edge.from].kind) && isOperation(lowered.nodes[edge.to].kind))
      waitsFor[position[edge.to]].insert(position[edge.from]);
  for (OperationIndex operation = 0; operation < nodes.size(); ++operation) {
    const Node &node = lowered.nodes[nodes[operation]];
    if (node.kind == NodeKind::Prefetch && waitsFor[operation].empty())
      for (const std::int32_t frame : framesOf(lowered, node))
        for (const OperationIndex other : leaving[frame])
          if (other > operation && !overlap(node, lowered.nodes[nodes[other]]))
            waitsFor[operation].insert(other);
  }
  std::vector<Operation> operations;
  for (OperationIndex index = 0; index < nodes.size(); ++index) {
    const Node &node = lowered.nodes[nodes[index]];
    Operation &operation = operations.emplace_back();
    operation.kind = node.kind == NodeKind::Prefetch    ? Operation::Kind::Prefetch
                     : node.kind == NodeKind::Discard   ? Operation::Kind::Discard
                     : readMostly.contains(node.buffer) ? Operation::Kind::Drop
                                                        : Operation::Kind::Evict;
    operation.address = lowered.buffers[node.buffer].address + node.range.offset;
    operation.bytes = node.range.size;
    operation.name = lowered.buffers[node.buffer].name;
    operation.mayBringNothing = isDiscarded(lowered, node);
    operation.waitsFor.assign(waitsFor[index].begin(), waitsFor[index].end());
  }
  return operations;
}

Status addOperations(GraphEditor &editor, const Description &lowered, const CapturedStep &step, CUdeviceptr words) {
  return OperationsInGraph(editor, lowered, step, words).run();
}

Expected<Description> describeManaged(const Driver &driver, const LiftedGraph &lifted, const LiftedGraph &captured,
                                      const CapturedStep &step, const Description &lowered, CUdeviceptr words) {
  return ManagedDescriber(driver, lifted, captured, step, lowered, words).run();
}

} // namespace pumpgraph::runtime
