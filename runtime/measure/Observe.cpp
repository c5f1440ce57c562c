// SPDX-License-Identifier: Apache-2.0
#include "runtime/measure/Observe.h"

#include "runtime/measure/ComparedRuns.h"
#include "runtime/measure/KeptValues.h"
#include "runtime/measure/StepPart.h"
#include "runtime/state/Exchange.h"

#include "pumpgraph/graph/Reliance.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <set>

namespace pumpgraph::runtime {
namespace {

constexpr std::uint64_t wordBytes = 4;

bool contains(const Range &outer, const Range &inner) {
  return outer.offset <= inner.offset && inner.end() <= outer.end();
}

using Piece = ComparedRuns::Piece; ///< of the operand whose position among the node's is its group

/// What runs with a piece poisoned have shown of it.
struct Shown {
  std::array<bool, poisons> isPoisoned{};  ///< every word was
  std::array<bool, poisons> isAsWithout{}; ///< and yet it came out as without poison

  bool isOverwritten() const { return isPoisoned[0] && isPoisoned[1] && isAsWithout[0] && isAsWithout[1]; }
  bool isNotOverwritten() const { return (isPoisoned[0] && !isAsWithout[0]) || (isPoisoned[1] && !isAsWithout[1]); }
};

} // namespace

/// One run over all nodes. Whatever happens, values and plan are put back at the end, if the driver lets us.
class Observing {
public:
  Observing(StepState &step, const std::vector<CUdeviceptr> &values)
      : step_(step), session_(step.session), driver_(*step.session.driver), kept_(step),
        found_(step.planning.observation), values_(values),
        runs_(driver_, *session_.memory.heap, session_.device.stream) {}

  Expected<Observation> run() {
    const Stopwatch watch;
    PUMPGRAPH_TRY(kept_.keep());
    Status done;
    try {
      done = prepare();
      if (done)
        done = visitNodes();
    } catch (...) { // memory ran out
      (void)restore();
      throw;
    }
    const Status restored = restore();
    PUMPGRAPH_TRY(done); // first: what fails afterwards follows from it
    PUMPGRAPH_TRY_WHILE(restored, "restoring the state after observing");
    ++found_.runs;
    found_.milliseconds += watch.milliseconds();
    return std::move(found_);
  }

private:
  const Description &captured() const { return step_.captured.description; }
  const Buffer &bufferOf(const Piece &piece) const { return captured().buffers[piece.buffer]; }

  /// Gives every buffer memory of its own, and room for two copies of what one kernel touches.
  Status prepare() {
    if (step_.memory.residence)
      PUMPGRAPH_TRY_WHILE(step_.memory.residence->remove(Keep::EveryBlock, {}, &step_.captured.blocks),
                          "giving every buffer memory of its own");
    for (const Buffer &buffer : captured().buffers)
      if (!buffer.liveIn && !buffer.liveOut) // what another step left there is nobody's value
        PUMPGRAPH_TRY(driver_.memsetD8Async(buffer.address, 0, buffer.size, session_.device.stream));
    settled_.resize(captured().buffers.size());
    PUMPGRAPH_TRY(findNodes());
    std::uint64_t most = 0;
    for (NodeIndex node = 0; node < captured().nodes.size(); ++node)
      if (isObserved(node)) {
        operands_ = operandsOf(node, step_.captured.words[node]);
        most = std::max(most, ComparedRuns::scratchBytes(piecesOf(node)));
      }
    PUMPGRAPH_TRY(runs_.reserve(most));
    if (most != 0)
      found_.scratchBytes = most;
    return {};
  }

  /// The captured nodes in a graph of theirs alone.
  Status findNodes() {
    graph_ = step_.graph.original ? step_.graph.original : step_.graph.handle;
    nodes_ = step_.graph.original ? step_.graph.originalNodes : step_.captured.nodes;
    return {};
  }

  bool isObserved(NodeIndex node) const {
    return captured().nodes[node].kind == NodeKind::Kernel && !step_.captured.words[node].empty();
  }

  Status visitNodes() {
    for (NodeIndex node = 0; node < captured().nodes.size(); ++node) {
      StepPart part(driver_, node, node + 1);
      PUMPGRAPH_TRY(part.make(graph_, nodes_));
      const Status done = isObserved(node) ? observe(node, part) : part.run(session_.device.stream);
      PUMPGRAPH_TRY_WHILE(done, "observing node {} \"{}\"", node, captured().nodes[node].name);
      for (const Access &access : captured().nodes[node].accesses)
        if ((reliableMay(access) & modeWrite) != 0)
          settled_[access.buffer].push_back(access.range);
    }
    found_.kernels = found_.nodesRun = 0;
    for (NodeIndex node = 0; node < captured().nodes.size(); ++node)
      ++(isObserved(node) ? found_.kernels : found_.nodesRun);
    return {};
  }

  /// What plan and report know of a node's accesses; the plan's are those that types have made `declared`.
  const std::vector<Access> &claimsOf(NodeIndex node) {
    if (!claims_)
      claims_ = withAnnotations(captured(), step_.plan.lowered);
    return claims_->nodes[node].accesses;
  }

  // One node.

  /// Of all operands, cut where an access begins or ends.
  std::vector<Piece> piecesOf(NodeIndex node) {
    std::vector<Piece> pieces;
    for (std::size_t i = 0; i < operands_.size(); ++i) {
      const BufferIndex buffer = operands_[i].buffer;
      for (const Range &range : cutAtAccesses(operands_[i].range, buffer, claimsOf(node))) {
        Piece &piece = pieces.emplace_back();
        piece.buffer = buffer;
        piece.range = range;
        piece.probed.address = captured().buffers[buffer].address + range.offset;
        piece.group = i;
      }
    }
    return pieces;
  }

  const std::vector<Piece> &pieces() const { return runs_.pieces(); }

  Status observe(NodeIndex node, const StepPart &part) {
    operands_ = operandsOf(node, step_.captured.words[node]);
    PUMPGRAPH_TRY(runs_.begin(piecesOf(node), [&] { return part.launch(session_.device.stream); }));
    PUMPGRAPH_TRY(runs_.runAgain());
    seen_.assign(operands_.size(), {});
    shown_.assign(pieces().size(), {});
    for (std::size_t operand = 0; operand < operands_.size(); ++operand)
      for (std::uint32_t poison = 0; poison < poisons; ++poison)
        PUMPGRAPH_TRY(runPoisoned(operand, poison));
    judge();
    compareWithClaims(node);
    compareWithPurity(node);
    for (const Piece &piece : pieces())
      if (piece.isWritten) // also where it is not said to be
        settled_[piece.buffer].push_back(piece.range);
    return runs_.finish();
  }

  Status runPoisoned(std::size_t operand, std::uint32_t poison) {
    const Expected<std::vector<ByteCounts>> counts = runs_.runPoisoned(operand, kindFor(operands_[operand]), poison);
    if (!counts)
      return tl::unexpected<Error>(counts.error());
    Seen &seen = seen_[operand];
    for (std::size_t i = 0; i < pieces().size(); ++i) {
      const Piece &piece = pieces()[i];
      const ByteCounts &count = (*counts)[i];
      const bool isOwn = piece.group == operand;
      seen.isRead = seen.isRead || (piece.isStable && (isOwn ? count.dependent : count.other) != 0);
      if (!isOwn && piece.isStable && count.other != 0)
        seen.reached.insert(i);
      if (!isOwn)
        continue;
      seen.poisoned += count.poisoned;
      seen.nonzero += count.nonzero;
      shown_[i].isPoisoned[poison] = count.poisoned * wordBytes == piece.range.size;
      shown_[i].isAsWithout[poison] = count.other == 0;
    }
    return {};
  }

  /// Nothing is found by what a step has not set yet, nor by what the caller says. Else only what looks like
  /// floating-point numbers is changed: an index, a flag that another block waits for or a length could lead a kernel
  /// astray.
  PoisonKind kindFor(const ObservedOperand &operand) const {
    const Buffer &buffer = captured().buffers[operand.buffer];
    const std::vector<Range> &settled = settled_[operand.buffer];
    const auto isIn = [&](const Range &range) { return range.overlaps(operand.range); };
    if (buffer.isPrivate && !buffer.liveIn && std::none_of(settled.begin(), settled.end(), isIn))
      return PoisonKind::Fresh;
    const Range &allocation = operand.words.front().allocation;
    const auto isOf = [&](CUdeviceptr value) {
      return value - buffer.address >= allocation.offset && value - buffer.address < allocation.end();
    };
    return std::any_of(values_.begin(), values_.end(), isOf) ? PoisonKind::Values : PoisonKind::Floats;
  }

  /// What the runs with one operand poisoned have shown of it.
  struct Seen {
    bool isRead = false;
    std::set<std::size_t> reached; ///< pieces of other operands that came out otherwise
    std::uint64_t poisoned = 0;
    std::uint64_t nonzero = 0;

    bool isPoisonedEnough() const { return poisoned != 0 && 2 * poisoned >= nonzero; }
  };

  bool isOverwritten(std::size_t piece) const { return pieces()[piece].isStable && shown_[piece].isOverwritten(); }
  bool isNotOverwritten(std::size_t piece) const {
    return pieces()[piece].isStable && shown_[piece].isNotOverwritten();
  }

  void judge() {
    const bool isStable = std::all_of(pieces().begin(), pieces().end(), [](const Piece &one) { return one.isStable; });
    const bool hasResult =
        std::any_of(pieces().begin(), pieces().end(), [](const Piece &one) { return one.isWritten; });
    for (std::size_t i = 0; i < operands_.size(); ++i) {
      const Seen &seen = seen_[i];
      Sighting sighting;
      bool isWritten = false, isInPart = false, isInFull = true;
      for (std::size_t piece = 0; piece < pieces().size(); ++piece)
        if (pieces()[piece].group == i && pieces()[piece].isWritten) {
          isWritten = true;
          isInPart = isInPart || isNotOverwritten(piece);
          isInFull = isInFull && isOverwritten(piece);
        }
      if (seen.isRead)
        sighting.read = Answer::Yes;
      else if (isStable && hasResult && seen.isPoisonedEnough())
        sighting.read = Answer::No;
      if (isWritten)
        sighting.written = Answer::Yes;
      else if (seen.isPoisonedEnough())
        sighting.written = Answer::No;
      if (isInPart)
        sighting.overwritten = Answer::No;
      else if (isWritten && sighting.read == Answer::No && isInFull)
        sighting.overwritten = Answer::Yes;
      remember(operands_[i], sighting);
    }
  }

  void remember(const ObservedOperand &operand, const Sighting &sighting) {
    if (found_.runs == 0)
      found_.operands.push_back(operand);
    found_.operands[position_++].sightings.push_back(sighting);
  }

  /// What was observed by earlier calls is no claim: where there is such an access, nothing better is known.
  void compareWithClaims(NodeIndex node) {
    const std::vector<Access> &claims = claimsOf(node);
    for (std::size_t i = 0; i < pieces().size(); ++i) {
      const Piece &piece = pieces()[i];
      const Range &whole = operands_[piece.group].range;
      std::uint8_t here = modeNone, somewhere = modeNone;
      Evidence evidence = Evidence::Assumed;
      bool isOpen = false, isClaimed = false;
      for (const Access &claim : claims) {
        if (claim.buffer != piece.buffer || !claim.range.overlaps(whole))
          continue;
        isClaimed = true;
        isOpen = isOpen || claim.evidence == Evidence::Observed;
        evidence = std::min(evidence, claim.evidence);
        somewhere |= claim.may;
        here |= claim.range.overlaps(piece.range) ? claim.may : std::uint8_t{modeNone};
        if (reliableMust(claim) == modeWrite && claim.evidence != Evidence::Allocated &&
            contains(claim.range, piece.range) && isNotOverwritten(i))
          disagree(node, piece, claim.evidence, "is not overwritten in full, though it is said to be");
      }
      if (isOpen)
        continue;
      if (!isClaimed) // only a table takes an access away
        evidence = Evidence::Proved;
      if (piece.isWritten && (here & modeWrite) == 0)
        disagree(node, piece, evidence,
                 here == modeNone ? "is written, though nothing is said to be touched there"
                                  : "is written, though it is only said to be read");
      if (seen_[piece.group].isRead && (somewhere & modeRead) == 0)
        disagree(node, piece, evidence, "is read, though it is not said to be");
    }
  }

  /// A pure node does the same twice, and what it has aside reaches nothing else.
  void compareWithPurity(NodeIndex node) {
    const Node &captured = this->captured().nodes[node];
    if (!captured.isPure)
      return;
    const auto isAside = [&](const Piece &piece) {
      return std::any_of(captured.accesses.begin(), captured.accesses.end(), [&](const Access &access) {
        return access.isAside && access.buffer == piece.buffer && access.range.overlaps(piece.range);
      });
    };
    for (std::size_t i = 0; i < pieces().size(); ++i) {
      if (isAside(pieces()[i]))
        continue;
      if (!pieces()[i].isStable)
        disagree(node, pieces()[i], Evidence::Declared,
                 "comes out otherwise in a second run, though the node is said to be pure");
      const auto reaches = [&](const Piece &other) { return isAside(other) && seen_[other.group].reached.contains(i); };
      if (std::any_of(pieces().begin(), pieces().end(), reaches))
        disagree(node, pieces()[i], Evidence::Declared, "depends on what the node is said to update besides");
    }
  }

  void disagree(NodeIndex node, const Piece &piece, Evidence evidence, std::string_view what) {
    const OperandWord &word = operands_[piece.group].words.front();
    found_.disagreements.insert({node, piece.buffer, evidence,
                                 fmt::format("node {} \"{}\", parameter {} byte {}: \"{}\"[{}, {}] {}", node,
                                             captured().nodes[node].name, word.parameter, word.inParameter,
                                             bufferOf(piece).name, piece.range.offset, piece.range.size, what)});
  }

  Status restore() {
    PUMPGRAPH_TRY(driver_.ctxSynchronize());
    Status freed = runs_.release();
    PUMPGRAPH_TRY(kept_.restore());
    if (step_.memory.residence && !step_.memory.residence->installed())
      PUMPGRAPH_TRY(install(session_, *step_.memory.residence));
    return freed;
  }

  StepState &step_;
  SessionState &session_;
  const Driver &driver_;
  KeptValues kept_; ///< the values at the boundary
  Observation found_;
  std::size_t position_ = 0;               ///< in `found_.operands`
  const std::vector<CUdeviceptr> &values_; ///< in allocations of plain values
  CUgraph graph_ = nullptr;
  std::vector<CUgraphNode> nodes_;
  std::optional<Description> claims_;       ///< the captured step with what the plan knows of it
  std::vector<std::vector<Range>> settled_; ///< by buffer: what a node may have written in this run
  ComparedRuns runs_;
  // Of the node that is looked at.
  std::vector<ObservedOperand> operands_;
  std::vector<Seen> seen_;   ///< by operand
  std::vector<Shown> shown_; ///< by piece
};

Expected<Observation> observe(StepState &step, const std::vector<CUdeviceptr> &values) {
  Expected<Observation> observed = Observing(step, values).run();
  if (!observed)
    return observed;
  step.planning.observation = *observed;
  step.planning.observation.mergeInto(step.captured.description);
  return step.planning.observation;
}

} // namespace pumpgraph::runtime
