// SPDX-License-Identifier: Apache-2.0
#include "runtime/measure/PurityCheck.h"

#include "runtime/measure/StepPart.h"

#include "pumpgraph/graph/Reliance.h"

#include <algorithm>
#include <map>

namespace pumpgraph::runtime {
namespace {

/// Groups of pieces.
constexpr std::size_t results = 0, asides = 1;

bool mayWrite(const Access &access) {
  return (reliableMay(access) & modeWrite) != 0;
}

bool overwrites(const Access &access, const Range &range) {
  return reliableMust(access) == modeWrite && access.range.offset <= range.offset && range.end() <= access.range.end();
}

/// Whether a plan could run the node again. The compiler library may yet tell by types that an operand is only read.
bool mayRunAgain(const Description &captured, const Node &node) {
  if (!node.isPure || node.kind != NodeKind::Kernel)
    return false;
  bool hasResult = false;
  for (const Access &access : node.accesses) {
    if (access.isAside || !mayWrite(access))
      continue;
    const Buffer &buffer = captured.buffers[access.buffer];
    const bool isTemporary = buffer.isPrivate && !buffer.liveIn && !buffer.liveOut;
    if (!isTemporary && (access.evidence != Evidence::Assumed || access.parameter == unknownParameter))
      return false;
    hasResult = hasResult || isTemporary;
  }
  return hasResult;
}

} // namespace

std::string FalsePurity::text() const {
  switch (kind) {
  case Kind::Irreproducible:
    return buffer + " comes out otherwise in a second run";
  case Kind::WritesWhatItReads:
    return buffer + " is written, though it is only said to be read";
  case Kind::DependsOnAside:
    return buffer + " depends on what the node is said to update besides";
  }
  return buffer;
}

std::vector<FalseKernel> byKernel(const std::vector<FalsePurity> &found, const Description &captured) {
  std::vector<FalseKernel> kernels;
  for (const FalsePurity &one : found) {
    const Node &node = captured.nodes[one.node];
    auto kernel =
        std::find_if(kernels.begin(), kernels.end(), [&](const FalseKernel &known) { return known.name == node.name; });
    if (kernel == kernels.end()) {
      const std::string label = node.label.empty() ? "" : fmt::format(" ({})", node.label);
      kernel = kernels.insert(kernel, {node.name, 0,
                                       fmt::format("\"{}\" is said to be pure, but of node {}{} {}", node.name,
                                                   one.node, label, one.text())});
    }
    ++kernel->nodes;
  }
  return kernels;
}

PurityCheck::PurityCheck(const StepState &step, const std::vector<CUgraphNode> &graphNodes,
                         const std::vector<NodeIndex> &nodes, std::uint64_t mostReadBytes)
    : step_(step), driver_(*step.session.driver), stream_(step.session.device.stream), graphNodes_(graphNodes),
      wanted_(nodes.begin(), nodes.end()), mostReadBytes_(mostReadBytes),
      runs_(driver_, *step.session.memory.heap, stream_) {
  if (wanted_.empty())
    return;
  touches_.resize(captured().buffers.size());
  for (NodeIndex node = 0; node < captured().nodes.size(); ++node)
    for (const Access &access : captured().nodes[node].accesses)
      touches_[access.buffer].push_back({node, &access});
}

std::vector<NodeIndex> PurityCheck::repeatable(const StepState &step) {
  const Description &captured = step.captured.description;
  std::vector<NodeIndex> nodes;
  for (NodeIndex node = 0; node < captured.nodes.size(); ++node)
    if (mayRunAgain(captured, captured.nodes[node]))
      nodes.push_back(node);
  return nodes;
}

std::vector<NodeIndex> PurityCheck::repeated(const StepState &step) {
  std::set<NodeIndex> nodes;
  for (const Node &node : step.plan.lowered.nodes)
    if (node.kind == NodeKind::Rematerialize)
      if (const auto original = static_cast<NodeIndex>(node.repeats);
          step.captured.description.nodes[original].kind == NodeKind::Kernel)
        nodes.insert(original);
  return {nodes.begin(), nodes.end()};
}

Expected<std::string> PurityCheck::reserve() {
  if (wanted_.empty())
    return "";
  std::uint64_t most = 0;
  for (const NodeIndex node : wanted_)
    most = std::max(most, ComparedRuns::scratchBytes(piecesOf(node)));
  const Status reserved = runs_.reserve(most);
  if (reserved)
    return "";
  PUMPGRAPH_TRY(release());
  PUMPGRAPH_TRY(driver_.health());
  return reserved.error().message;
}

Status PurityCheck::release() {
  wanted_.clear();
  return runs_.release();
}

/// Whether nobody has written there before, so that the node finds nothing.
bool PurityCheck::isFirst(NodeIndex node, BufferIndex buffer, const Range &range) const {
  const Buffer &described = captured().buffers[buffer];
  return described.isPrivate && !described.liveIn &&
         std::none_of(touches_[buffer].begin(), touches_[buffer].end(), [&](const Touch &touch) {
           return touch.node < node && mayWrite(*touch.access) && touch.access->range.overlaps(range);
         });
}

/// Whether what is there after the node matters to anybody.
bool PurityCheck::isReadAfter(NodeIndex node, BufferIndex buffer, const Range &range) const {
  for (auto touch = touches_[buffer].begin(); touch != touches_[buffer].end(); ++touch) {
    if (touch->node <= node || !touch->access->range.overlaps(range))
      continue;
    return std::none_of(touch, touches_[buffer].end(), [&](const Touch &other) {
      return other.node == touch->node && overwrites(*other.access, range);
    });
  }
  return captured().buffers[buffer].liveOut;
}

std::optional<PurityCheck::Piece> PurityCheck::pieceOf(NodeIndex node, BufferIndex buffer, const Range &range) const {
  bool isTouched = false, isWritten = false, isOverwritten = false, isAside = false;
  for (const Access &access : captured().nodes[node].accesses) {
    if (access.buffer != buffer || !access.range.overlaps(range))
      continue;
    isTouched = true;
    isAside = isAside || access.isAside;
    isWritten = isWritten || mayWrite(access);
    isOverwritten = isOverwritten || overwrites(access, range);
  }
  Piece piece;
  piece.buffer = buffer;
  piece.range = range;
  piece.probed.address = captured().buffers[buffer].address + range.offset;
  if (isAside) {
    piece.group = asides;
    return piece;
  }
  piece.group = results;
  if (isWritten) {
    // What is overwritten finds what the run before has left: in a repetition, anything may be there.
    piece.isKept = piece.isBroughtBack = !isOverwritten && !isFirst(node, buffer, range);
    piece.isCompared = isReadAfter(node, buffer, range);
  } else {
    piece.isKept = isTouched && range.size <= mostReadBytes_;
    piece.isBroughtBack = piece.isCompared = false;
  }
  if (!piece.isKept && !piece.isCompared)
    return std::nullopt;
  return piece;
}

std::vector<PurityCheck::Piece> PurityCheck::piecesOf(NodeIndex node) const {
  const std::vector<Access> &accesses = captured().nodes[node].accesses;
  std::map<BufferIndex, Range> touched; // from the first byte to the last
  for (const Access &access : accesses) {
    Range &range = touched.try_emplace(access.buffer, access.range).first->second;
    const std::uint64_t end = std::max(range.end(), access.range.end());
    range.offset = std::min(range.offset, access.range.offset);
    range.size = end - range.offset;
  }
  std::vector<Piece> pieces;
  for (const auto &[buffer, whole] : touched)
    for (const Range &range : cutAtAccesses(whole, buffer, accesses))
      if (const std::optional<Piece> piece = pieceOf(node, buffer, range))
        pieces.push_back(*piece);
  return pieces;
}

Expected<bool> PurityCheck::check(NodeIndex node) {
  std::vector<Piece> pieces = piecesOf(node);
  if (pieces.empty())
    return false;
  StepPart alone(driver_, node, node + 1);
  const Expected<std::string> obstacle = alone.makeOfClone(graphNodes_[node], step_.session.device.context);
  if (!obstacle)
    return tl::unexpected<Error>(obstacle.error());
  if (!obstacle->empty())
    return false;
  const std::string &name = captured().nodes[node].name;
  PUMPGRAPH_TRY_WHILE(runs_.begin(std::move(pieces), [&] { return alone.launch(stream_); }),
                      "running node {} \"{}\" to see whether it is pure", node, name);
  PUMPGRAPH_TRY_WHILE(runs_.runAgain(), "running node {} \"{}\" a second time", node, name);
  const std::size_t before = found_.size();
  judge(node);
  if (found_.size() == before)
    PUMPGRAPH_TRY_WHILE(tryWithOtherAsides(node), "running node {} \"{}\" with something else aside", node, name);
  ++checked_;
  return true;
}

void PurityCheck::judge(NodeIndex node) {
  const auto isReadAlone = [](const Piece &piece) { return piece.isKept && !piece.isBroughtBack && piece.isWritten; };
  const auto isOtherwise = [](const Piece &piece) {
    return piece.group == results && piece.isCompared && !piece.isStable;
  };
  if (!note(node, FalsePurity::Kind::WritesWhatItReads, isReadAlone))
    note(node, FalsePurity::Kind::Irreproducible, isOtherwise);
}

/// A repetition finds anything there. Numbers become others of their size, and integers their neighbours.
Status PurityCheck::tryWithOtherAsides(NodeIndex node) {
  const std::vector<Piece> &pieces = runs_.pieces();
  if (std::none_of(pieces.begin(), pieces.end(), [](const Piece &piece) { return piece.group == asides; }))
    return {};
  for (const auto &[kind, poison] : {std::pair(PoisonKind::Floats, 1u), {PoisonKind::Values, 0u}}) {
    PUMPGRAPH_TRY(runs_.runPoisoned(asides, kind, poison));
    const auto isOtherwise = [](const Piece &piece) { return piece.group == results && piece.isOtherwise; };
    if (note(node, FalsePurity::Kind::DependsOnAside, isOtherwise))
      break;
  }
  return runs_.finish();
}

bool PurityCheck::note(NodeIndex node, FalsePurity::Kind kind, const std::function<bool(const Piece &)> &shows) {
  const auto found = std::find_if(runs_.pieces().begin(), runs_.pieces().end(), shows);
  if (found == runs_.pieces().end())
    return false;
  found_.push_back(
      {node, kind,
       fmt::format("\"{}\"[{}, {}]", captured().buffers[found->buffer].name, found->range.offset, found->range.size)});
  return true;
}

} // namespace pumpgraph::runtime
