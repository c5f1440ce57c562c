// SPDX-License-Identifier: Apache-2.0
// Runs a step's kernels one by one, with operands as they are and with poisoned ones, and notes what changes.
#include "runtime/lower/RenewCopies.h"
#include "runtime/memory/ByteProbe.h"
#include "runtime/session/KeptValues.h"
#include "runtime/session/StepPart.h"

#include "pumpgraph/graph/Reliance.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <set>

namespace pumpgraph::runtime {
namespace {

constexpr std::uint64_t wordBytes = 4;

std::uint64_t down(std::uint64_t bytes) {
  return bytes / wordBytes * wordBytes;
}
std::uint64_t up(std::uint64_t bytes) {
  return down(bytes + wordBytes - 1);
}

bool contains(const Range &outer, const Range &inner) {
  return outer.offset <= inner.offset && inner.end() <= outer.end();
}

/// Part of an operand in which every byte is subject to the same accesses, and what runs have shown of it.
struct Piece {
  std::size_t operand = 0; ///< position among the node's
  BufferIndex buffer = 0;
  Range range;
  ProbedPiece probed;
  bool isDirty = false; ///< holds something else than before the node
  bool isStable = true; ///< two runs without poison leave the same
  bool isWritten = false;
  std::array<bool, poisons> isPoisoned{};  ///< every word was
  std::array<bool, poisons> isAsWithout{}; ///< and yet it came out as without poison
  bool isOverwritten() const {
    return isStable && isWritten && isPoisoned[0] && isPoisoned[1] && isAsWithout[0] && isAsWithout[1];
  }
  bool isNotOverwritten() const {
    return isStable && ((isPoisoned[0] && !isAsWithout[0]) || (isPoisoned[1] && !isAsWithout[1]));
  }
};

} // namespace

/// One run over all nodes. Whatever happens, values and plan are put back at the end, if the driver lets us.
class Observing {
public:
  Observing(Step &step, const std::vector<CUdeviceptr> &values)
      : step_(step), session_(step.session_), driver_(*step.session_.driver_), kept_(step), found_(step.observation_),
        values_(values) {}

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
  const Description &captured() const { return step_.captured_.description; }
  const Buffer &bufferOf(const Piece &piece) const { return captured().buffers[piece.buffer]; }

  /// Gives every buffer memory of its own, and room for two copies of what one kernel touches.
  Status prepare() {
    if (step_.residence_)
      PUMPGRAPH_TRY_WHILE(step_.residence_->remove(Keep::EveryBlock, {}, &step_.captured_.blocks),
                          "giving every buffer memory of its own");
    for (const Buffer &buffer : captured().buffers)
      if (!buffer.liveIn && !buffer.liveOut) // what another step left there is nobody's value
        PUMPGRAPH_TRY(driver_.memsetD8Async(buffer.address, 0, buffer.size, session_.stream_));
    settled_.resize(captured().buffers.size());
    PUMPGRAPH_TRY(findNodes());
    Expected<std::unique_ptr<ByteProbe>> probe = ByteProbe::load(driver_, session_.stream_);
    if (!probe)
      return tl::unexpected<Error>(probe.error());
    probe_ = std::move(*probe);
    std::uint64_t most = 0;
    for (NodeIndex node = 0; node < captured().nodes.size(); ++node)
      if (isObserved(node)) {
        setUp(node);
        most = std::max(most, countsBytes() + 2 * copyBytes_);
      }
    if (most == 0)
      return {};
    const Expected<CUdeviceptr> scratch = session_.heap_->allocate(most, session_.stream_, "copies for observation");
    if (!scratch)
      return inContext(scratch.error(), fmt::format("getting {} for copies of operands", bytesText(most)));
    scratch_ = *scratch;
    found_.scratchBytes = most;
    return {};
  }

  /// The captured nodes in a graph of theirs alone.
  Status findNodes() {
    graph_ = step_.original_ ? step_.original_ : step_.graph_;
    nodes_ = step_.original_ ? step_.originalNodes_ : step_.captured_.nodes;
    if (step_.residence_)
      PUMPGRAPH_TRY(renewCopies(driver_, graph_, *session_.addresses_));
    return {};
  }

  bool isObserved(NodeIndex node) const {
    return captured().nodes[node].kind == NodeKind::Kernel && !step_.captured_.words[node].empty();
  }

  Status visitNodes() {
    for (NodeIndex node = 0; node < captured().nodes.size(); ++node) {
      StepPart part(driver_, node, node + 1);
      PUMPGRAPH_TRY(part.make(graph_, nodes_));
      const Status done = isObserved(node) ? observe(node, part) : part.run(session_.stream_);
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
      claims_ = withAnnotations(captured(), step_.plan_.lowered);
    return claims_->nodes[node].accesses;
  }

  // One node.

  void setUp(NodeIndex node) {
    operands_ = operandsOf(node, step_.captured_.words[node]);
    pieces_.clear();
    copyBytes_ = 0;
    for (std::size_t i = 0; i < operands_.size(); ++i)
      cut(i, claimsOf(node));
  }

  /// Where an access begins or ends, where what was asked for ends, at whole words.
  void cut(std::size_t index, const std::vector<Access> &claims) {
    const ObservedOperand &operand = operands_[index];
    const std::uint64_t end = up(operand.range.end());
    std::set<std::uint64_t> cuts{operand.range.offset, end};
    const auto add = [&](std::uint64_t at) {
      if (operand.range.offset < at && at < end)
        cuts.insert(at);
    };
    for (const Access &claim : claims)
      if (claim.buffer == operand.buffer)
        for (const std::uint64_t at : {claim.range.offset, claim.range.end()}) {
          add(down(at));
          add(up(at));
        }
    for (auto from = cuts.begin(); std::next(from) != cuts.end(); ++from) {
      const Range range{*from, *std::next(from) - *from};
      const CUdeviceptr address = captured().buffers[operand.buffer].address + range.offset;
      pieces_.push_back({index, operand.buffer, range, {address, range.size, 0, 0}});
      copyBytes_ += range.size;
    }
  }

  std::uint64_t countsBytes() const { return (pieces_.size() * sizeof(ByteCounts) + 511) / 512 * 512; }

  void placeCopies() {
    CUdeviceptr next = scratch_ + countsBytes();
    for (Piece &piece : pieces_) {
      piece.probed.before = next;
      piece.probed.clean = next + copyBytes_;
      next += piece.range.size;
    }
  }

  Status copy(CUdeviceptr to, CUdeviceptr from, std::uint64_t bytes) const {
    return driver_.memcpyDtoDAsync(to, from, bytes, session_.stream_);
  }

  Status observe(NodeIndex node, const StepPart &part) {
    setUp(node);
    placeCopies();
    for (const Piece &piece : pieces_)
      PUMPGRAPH_TRY(copy(piece.probed.before, piece.probed.address, piece.range.size));
    PUMPGRAPH_TRY(part.run(session_.stream_));
    for (Piece &piece : pieces_) {
      PUMPGRAPH_TRY(copy(piece.probed.clean, piece.probed.address, piece.range.size));
      piece.isDirty = true;
    }
    PUMPGRAPH_TRY(runAgain(part));
    for (std::size_t operand = 0; operand < operands_.size(); ++operand)
      for (std::uint32_t poison = 0; poison < poisons; ++poison)
        PUMPGRAPH_TRY(runPoisoned(part, operand, poison));
    judge();
    compareWithClaims(node);
    compareWithPurity(node);
    for (const Piece &piece : pieces_)
      if (piece.isWritten) // also where it is not said to be
        settled_[piece.buffer].push_back(piece.range);
    for (const Piece &piece : pieces_)
      PUMPGRAPH_TRY(copy(piece.probed.address, piece.probed.clean, piece.range.size));
    return driver_.streamSynchronize(session_.stream_);
  }

  Status bringBack() {
    for (Piece &piece : pieces_)
      if (std::exchange(piece.isDirty, false))
        PUMPGRAPH_TRY(copy(piece.probed.address, piece.probed.before, piece.range.size));
    return {};
  }

  /// Runs the node and compares; pieces of `operand` began poisoned.
  Expected<std::vector<ByteCounts>> runAndCount(const StepPart &part, std::size_t operand, PoisonKind kind,
                                                std::uint32_t poison) {
    PUMPGRAPH_TRY(part.launch(session_.stream_));
    PUMPGRAPH_TRY(driver_.memsetD8Async(scratch_, 0, countsBytes(), session_.stream_));
    for (std::size_t i = 0; i < pieces_.size(); ++i)
      PUMPGRAPH_TRY(probe_->count(pieces_[i].probed, pieces_[i].operand == operand ? kind : PoisonKind::None, poison,
                                  scratch_ + i * sizeof(ByteCounts)));
    std::vector<ByteCounts> counts(pieces_.size());
    PUMPGRAPH_TRY(
        driver_.memcpyDtoHAsync(counts.data(), scratch_, counts.size() * sizeof(ByteCounts), session_.stream_));
    PUMPGRAPH_TRY(driver_.streamSynchronize(session_.stream_));
    for (std::size_t i = 0; i < pieces_.size(); ++i) {
      pieces_[i].isWritten = pieces_[i].isWritten || counts[i].changed != 0;
      pieces_[i].isDirty = pieces_[i].isDirty || counts[i].changed != 0;
    }
    return counts;
  }

  Status runAgain(const StepPart &part) {
    PUMPGRAPH_TRY(bringBack());
    const Expected<std::vector<ByteCounts>> counts = runAndCount(part, operands_.size(), PoisonKind::None, 0);
    if (!counts)
      return tl::unexpected<Error>(counts.error());
    for (std::size_t i = 0; i < pieces_.size(); ++i)
      pieces_[i].isStable = (*counts)[i].other == 0;
    seen_.assign(operands_.size(), {});
    return {};
  }

  Status runPoisoned(const StepPart &part, std::size_t operand, std::uint32_t poison) {
    const PoisonKind kind = kindFor(operands_[operand]);
    PUMPGRAPH_TRY(bringBack());
    for (Piece &piece : pieces_)
      if (piece.operand == operand) {
        PUMPGRAPH_TRY(probe_->poison(piece.probed, kind, poison));
        piece.isDirty = true;
      }
    const Expected<std::vector<ByteCounts>> counts = runAndCount(part, operand, kind, poison);
    if (!counts)
      return tl::unexpected<Error>(counts.error());
    Seen &seen = seen_[operand];
    for (std::size_t i = 0; i < pieces_.size(); ++i) {
      Piece &piece = pieces_[i];
      const ByteCounts &count = (*counts)[i];
      const bool isOwn = piece.operand == operand;
      seen.isRead = seen.isRead || (piece.isStable && (isOwn ? count.dependent : count.other) != 0);
      if (!isOwn && piece.isStable && count.other != 0)
        seen.reached.insert(i);
      if (!isOwn)
        continue;
      seen.poisoned += count.poisoned;
      seen.nonzero += count.nonzero;
      piece.isPoisoned[poison] = count.poisoned * wordBytes == piece.range.size;
      piece.isAsWithout[poison] = count.other == 0;
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

  void judge() {
    const bool isStable =
        std::all_of(pieces_.begin(), pieces_.end(), [](const Piece &piece) { return piece.isStable; });
    const bool hasResult =
        std::any_of(pieces_.begin(), pieces_.end(), [](const Piece &piece) { return piece.isWritten; });
    for (std::size_t i = 0; i < operands_.size(); ++i) {
      const Seen &seen = seen_[i];
      Sighting sighting;
      const auto anyPiece = [&](auto is) {
        return std::any_of(pieces_.begin(), pieces_.end(),
                           [&](const Piece &piece) { return piece.operand == i && is(piece); });
      };
      const bool isWritten = anyPiece([](const Piece &piece) { return piece.isWritten; });
      if (seen.isRead)
        sighting.read = Answer::Yes;
      else if (isStable && hasResult && seen.isPoisonedEnough())
        sighting.read = Answer::No;
      if (isWritten)
        sighting.written = Answer::Yes;
      else if (seen.isPoisonedEnough())
        sighting.written = Answer::No;
      if (anyPiece([](const Piece &piece) { return piece.isWritten && piece.isNotOverwritten(); }))
        sighting.overwritten = Answer::No;
      else if (isWritten && sighting.read == Answer::No &&
               !anyPiece([](const Piece &piece) { return piece.isWritten && !piece.isOverwritten(); }))
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
    for (const Piece &piece : pieces_) {
      const Range &whole = operands_[piece.operand].range;
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
            contains(claim.range, piece.range) && piece.isNotOverwritten())
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
      if (seen_[piece.operand].isRead && (somewhere & modeRead) == 0)
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
    for (std::size_t i = 0; i < pieces_.size(); ++i) {
      if (isAside(pieces_[i]))
        continue;
      if (!pieces_[i].isStable)
        disagree(node, pieces_[i], Evidence::Declared,
                 "comes out otherwise in a second run, though the node is said to be pure");
      const auto reaches = [&](const Piece &other) {
        return isAside(other) && seen_[other.operand].reached.contains(i);
      };
      if (std::any_of(pieces_.begin(), pieces_.end(), reaches))
        disagree(node, pieces_[i], Evidence::Declared, "depends on what the node is said to update besides");
    }
  }

  void disagree(NodeIndex node, const Piece &piece, Evidence evidence, std::string_view what) {
    const OperandWord &word = operands_[piece.operand].words.front();
    found_.disagreements.insert({node, piece.buffer, evidence,
                                 fmt::format("node {} \"{}\", parameter {} byte {}: \"{}\"[{}, {}] {}", node,
                                             captured().nodes[node].name, word.parameter, word.inParameter,
                                             bufferOf(piece).name, piece.range.offset, piece.range.size, what)});
  }

  Status restore() {
    PUMPGRAPH_TRY(driver_.ctxSynchronize());
    probe_.reset();
    Status freed;
    if (scratch_ != 0) {
      freed = session_.heap_->free(std::exchange(scratch_, 0), session_.stream_);
      if (freed)
        freed = session_.heap_->flushCache();
    }
    PUMPGRAPH_TRY(kept_.restore());
    if (step_.residence_ && !step_.residence_->installed())
      PUMPGRAPH_TRY(session_.install(*step_.residence_));
    return freed;
  }

  Step &step_;
  Session &session_;
  const Driver &driver_;
  KeptValues kept_; ///< the values at the boundary
  Observation found_;
  std::size_t position_ = 0;               ///< in `found_.operands`
  const std::vector<CUdeviceptr> &values_; ///< in allocations of plain values
  CUgraph graph_ = nullptr;
  std::vector<CUgraphNode> nodes_;
  std::optional<Description> claims_;       ///< the captured step with what the plan knows of it
  std::vector<std::vector<Range>> settled_; ///< by buffer: what a node may have written in this run
  std::unique_ptr<ByteProbe> probe_;
  CUdeviceptr scratch_ = 0; ///< counts, copies from before, copies from after
  // Of the node that is looked at.
  std::vector<ObservedOperand> operands_;
  std::vector<Piece> pieces_;
  std::vector<Seen> seen_; ///< by operand
  std::uint64_t copyBytes_ = 0;
};

Expected<Observation> Step::observe(const std::vector<CUdeviceptr> &values) {
  const std::lock_guard lock(session_.mutex_);
  const ContextScope scope(*session_.driver_, session_.context_);
  const std::string &name = captured_.description.name;
  if (isManaged() && !original_)
    return fail(PUMPGRAPH_INVALID_ARGUMENT, "\"{}\" cannot be observed: the driver does not copy such a graph", name);
  if (session_.heap_->capturing())
    return fail(PUMPGRAPH_INVALID_ARGUMENT, "\"{}\" cannot be observed during a capture", name);
  if (!session_.maps_.empty()) // whatever the step is like: it is about to be poisoned
    return fail(PUMPGRAPH_INVALID_ARGUMENT, "\"{}\" cannot be observed while a buffer is mapped", name);
  PUMPGRAPH_TRY(session_.putInForce(*this));
  PUMPGRAPH_TRY(checkMemory());
  PUMPGRAPH_TRY(stopReplanning());
  Expected<Observation> observed = Observing(*this, values).run();
  if (!observed)
    return observed;
  observation_ = *observed;
  observation_.mergeInto(captured_.description);
  return observation_;
}

} // namespace pumpgraph::runtime
