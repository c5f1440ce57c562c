// SPDX-License-Identifier: Apache-2.0
#include "passes/plan/search/VariantSearch.h"

#include "passes/analysis/Bound.h"
#include "passes/analysis/HostedAccess.h"
#include "passes/analysis/Indices.h"
#include "passes/analysis/Order.h"
#include "passes/analysis/Prediction.h"
#include "passes/plan/Knobs.h"
#include "passes/plan/PlanErrors.h"
#include "passes/plan/allocate/GivenBoundary.h"
#include "passes/plan/price/GapChoice.h"
#include "passes/plan/search/FindPlan.h"
#include "passes/plan/search/SplitCandidates.h"
#include "passes/plan/search/SplitStep.h"
#include "passes/plan/search/WideColouring.h"
#include "pumpgraph/graph/Ranges.h"

#include <fmt/core.h>

#include <algorithm>
#include <deque>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

namespace pumpgraph {

namespace {

/// How large pieces may be: where nodes are long, a copy takes as long as one of them, but no piece takes more than a
/// small part of the budget. Operations on managed memory are joined beyond pieces anyway.
std::uint64_t pieceBytesFor(const Timeline &uncut, const PlanOptions &options, std::uint64_t budgetBytes) {
  if (options.backend != Backend::Virtual)
    return defaultPieceBytes;
  const double nodeUs = uncut.times().totalUs / std::max<double>(1, uncut.nodeCount());
  const double bytesPerSecond = std::min(options.machine.upBytesPerSecond, options.machine.downBytesPerSecond);
  const double inNode = nodeUs * bytesPerSecond / 1e6;
  const double inBudget = static_cast<double>(budgetBytes) / knobs::leastPiecesInBudget;
  return std::max(defaultPieceBytes, static_cast<std::uint64_t>(std::min(inNode, inBudget)));
}

/// The same by piece: either all pages of one have frames or none.
FixedHomes ofPieces(const WideColouring &colouring, const Timeline &timeline) {
  FixedHomes result;
  for (const PieceIndex index : indicesOf(timeline.pieces())) {
    const Piece &piece = timeline.piece(index);
    std::vector<std::int32_t> &homes = result.homes[result.homes.add({})];
    const auto first = colouring.frames[piece.buffer].begin() + piece.firstPage;
    if (*first == noFrame)
      continue;
    for (auto frame = first; frame != first + piece.pageCount; ++frame)
      homes.push_back(*frame + static_cast<std::int32_t>(timeline.exclusivePages()));
    if (colouring.isTight[piece.buffer][piece.firstPage])
      result.tight.push_back(index);
  }
  return result;
}

/// What a search goes by, with pieces of one size.
class SearchInput {
public:
  SearchInput(const Description &step, const Order &order, const Machine &machine, const PlanOptions &options,
              std::uint64_t pieceBytes, std::uint64_t frameCount)
      : timeline_(step, pieceBytes, machine, options.apart),
        given_(givenBoundary(step, timeline_, options.boundary, frameCount)),
        input_{step, timeline_, order, machine, frameCount, given_} {
    if (options.foundPlan)
      input_.foundPlan = &options.foundPlan;
    if (options.backend != Backend::Virtual)
      input_.keepsHostCopy = keepHostCopies(step, options.backend);
  }
  SearchInput(const SearchInput &) = delete;
  SearchInput &operator=(const SearchInput &) = delete;
  const PlannerInput &get() const { return input_; }

private:
  Timeline timeline_;
  GivenBoundary given_;
  PlannerInput input_;
};

/// A split at the end of each gap in which something is to leave, by the prices of the plan.
std::vector<Split> splitsByPrice(const PlannerInput &input, const Evaluated &plan) {
  const GapChoice choice = chooseGaps(input, plan.draft, plan.schedule);
  const Timeline &timeline = input.timeline;
  std::vector<Split> result;
  for (const Piece &piece : timeline.pieces())
    for (std::uint32_t use = piece.usesBegin; use < piece.usesEnd; ++use)
      if (choice.pages[use] > 0)
        result.push_back({piece.buffer,
                          timeline.use(use).node,
                          {{piece.firstPage * timeline.pageBytes(),
                            std::min(choice.pages[use] * timeline.pageBytes(), piece.bytes)}}});
  return result;
}

/// A plan of a variant.
struct VariantPlan {
  Description plan;
  std::vector<Split> byPrice; ///< what is to leave by the prices of the plan; nothing if it is a quick one
  SearchTrace trace;          ///< of the search that found it
};
using MaybePlan = std::optional<VariantPlan>;

/// How much is searched: a quick plan tells whether there is hope.
enum class Depth : std::uint8_t { Quick, Full };

class VariantSearch {
public:
  /// All are referred to.
  VariantSearch(const Description &step, const Timeline &timeline, const PlanningRoom &room)
      : step_(step), timeline_(timeline), options_(room.options), room_(room),
        frames_(room.frameCount - timeline.exclusivePages()),
        asked_(room.options.isQuick ? Depth::Quick : Depth::Full) {}

  tl::expected<FoundPlan, PlanError> run() {
    tl::expected<VariantPlan, PlanError> planned = planHosting(step_, timeline_, asked_);
    if (!planned)
      return tl::unexpected(planned.error());
    best_ = std::move(*planned);
    if (deservesMore(asked_)) {
      if (hostedBytes(best_.plan) > 0) {
        tryWith("spared hosting", splitsToSpareHosting(step_, timeline_, frames_, options_.machine));
        tryWith("splits beside wide nodes", splitsBesideWide());
      }
      splitByPrice();
    }
    best_.trace.insert(best_.trace.end(), trace_.begin(), trace_.end());
    return FoundPlan{std::move(best_.plan), std::move(best_.trace)};
  }

private:
  /// Whether a step is worth more than one search: not if one takes long anyway.
  bool deservesMore(Depth depth) const {
    return !options_.boundary && depth == Depth::Full && options_.backend == Backend::Virtual &&
           step_.nodes.size() <= knobs::mostNodesOfSeveralSearches;
  }

  // -- what is hosted

  /// Hosts what nodes touch beyond the frames. Since a page keeps its frame, that can be too little: then a colouring
  /// tells what else. If there is none, more is hosted by steps that grow, in the end all that can be.
  tl::expected<VariantPlan, PlanError> planHosting(Description step, const Timeline &timeline, Depth depth) {
    const Order order(step);
    const std::uint64_t frames = room_.frameCount - timeline.exclusivePages();
    const std::vector<std::uint64_t> sizes =
        pieceSizesFor(step, timeline, deservesMore(depth) && timeline.peakPages() > room_.frameCount);
    const std::uint64_t hostedBefore = hostedBytes(step);
    if (const std::optional<NodeIndex> stuck = hostExcess(step, timeline, frames, options_.machine))
      return tl::unexpected(tooManyOperandsOfCopies(step, timeline, *stuck, room_.budgetBytes));
    const bool isWide = hostedBytes(step) > hostedBefore && !options_.boundary;
    MaybePlan found;
    const auto isPlanned = [&](const WideColouring *colouring) {
      found = planAround(step, order, sizes, colouring, depth);
      if (depth == Depth::Full && (!found || hostedBytes(step) > hostedBefore))
        note("hosting", found, !hasPlan());
      return found.has_value();
    };
    if (!isWide && isPlanned(nullptr))
      return std::move(*found);
    if (!options_.boundary) {
      Effort effort;
      const std::optional<WideColouring> wide = hostForColouring(step, timeline, frames, options_.machine, effort);
      if (wide && isPlanned(&*wide))
        return std::move(*found);
    }
    const std::uint64_t steps = options_.boundary ? 0 : 8; // in which more is hosted
    for (std::uint64_t i = isWide ? 0 : 1; i <= steps; ++i) {
      hostExcess(step, timeline, frames - frames * i * i / (steps * steps), options_.machine);
      if (isPlanned(nullptr))
        return std::move(*found);
    }
    if (options_.boundary)
      return tl::unexpected(
          PlanError{std::nullopt, "no frames found for all pages beside those that other steps keep"});
    return tl::unexpected(PlanError{
        std::nullopt, fmt::format("no frames found for all pages: each keeps one frame for the whole step, operands of "
                                  "copies cannot be left in host memory, and the {} frames of the budget do not let "
                                  "every node's pages lie in different ones",
                                  room_.frameCount)});
  }

  /// No size but the last is as large as the largest buffer.
  std::vector<std::uint64_t> pieceSizesFor(const Description &step, const Timeline &timeline, bool several) const {
    std::uint64_t largest = 0;
    for (const Buffer &buffer : step.buffers)
      largest = std::max(largest, buffer.isPrivate ? buffer.size : 0);
    std::vector<std::uint64_t> sizes;
    for (const std::uint64_t multiple : knobs::pieceMultiples)
      if (sizes.empty() || (several && sizes.back() < largest))
        sizes.push_back(multiple * pieceBytesFor(timeline, options_, room_.budgetBytes));
    return sizes;
  }

  /// The plan of a step in which some pages may be hosted: for the planner these are not there. `colouring`: frames
  /// that are fixed beforehand; may be null. There is a search for each size of pieces, side by side, and the best plan
  /// counts.
  MaybePlan planAround(const Description &step, const Order &order, const std::vector<std::uint64_t> &pieceSizes,
                       const WideColouring *colouring, Depth depth) const {
    const bool isQuick = depth == Depth::Quick;
    Machine machine = options_.machine;
    if (machine.hostBytes != UINT64_MAX)
      machine.hostBytes -= std::min(machine.hostBytes, hostedBytes(step));
    // Quick searches use a thread each: whoever makes them makes many.
    Shares shares(isQuick ? 1 : room_.workers.processors(), pieceSizes.size());
    std::deque<SearchInput> inputs;
    std::vector<std::pair<const PlannerInput *, Job<std::optional<Found>>>> searches;
    for (const std::uint64_t pieceBytes : pieceSizes) {
      const PlannerInput &input =
          inputs.emplace_back(step, order, machine, options_, pieceBytes, room_.frameCount).get();
      searches.push_back({&input, room_.workers.begin([&] {
                            const std::optional<FixedHomes> fixed =
                                colouring ? std::optional(ofPieces(*colouring, input.timeline)) : std::nullopt;
                            return findPlan(input, {room_.budgetBytes, fixed ? &*fixed : nullptr, isQuick},
                                            room_.workers, shares);
                          })});
    }
    const PlannerInput *inputOfBest = nullptr;
    std::optional<Found> best;
    for (auto &[input, search] : searches)
      if (std::optional<Found> found = search.get();
          found && (!best || isBetter(found->inRows, best->inRows, machine))) {
        inputOfBest = input;
        best = std::move(found);
      }
    if (!best)
      return std::nullopt;
    VariantPlan found{Evaluator(*inputOfBest, room_.budgetBytes).write(best->inRows), {}, std::move(best->trace)};
    if (!isQuick)
      found.byPrice = splitsByPrice(*inputOfBest, best->apart);
    return found;
  }

  // -- what goes on at another address

  void tryWith(std::string_view proposer, const std::vector<Split> &splits) {
    if (splits.size() != splits_.size())
      take(proposer, planWith(splits, Depth::Full), splits);
  }

  /// Returns whether it is the best plan now.
  bool take(std::string_view proposer, MaybePlan other, const std::vector<Split> &splits) {
    const bool isBetter = other && isBetterThanBest(other->plan);
    note(proposer, other, isBetter);
    if (isBetter) {
      best_ = std::move(*other);
      splits_ = splits;
    }
    return isBetter;
  }

  bool isBetterThanBest(const Description &plan) const {
    const bool fits = fitsHost(plan);
    return fits == fitsHost(best_.plan)
               ? predictedUs(plan) + doubtUs(plan, best_.plan, options_.machine) < predictedUs(best_.plan)
               : fits;
  }

  void note(std::string_view proposer, const MaybePlan &plan, bool isKept) {
    trace_.push_back(
        {proposer, 0, hasPlan() ? predictedUs(best_.plan) : 0, plan ? predictedUs(plan->plan) : 0, 0, plan && isKept});
  }

  /// What is to leave, by the prices of the best plan, comes back to frames of its own. Hosted is what was, and what
  /// wide nodes use keeps its frames. A quick plan tells whether there is hope.
  void splitByPrice() {
    const double limitUs = bound(step_, room_.budgetBytes, options_.machine, BoundKind::May).totalUs;
    for (std::size_t round = 0; round < knobs::roundsByPrice; ++round) {
      const double us = predictedUs(best_.plan);
      const std::vector<Split> splits = joinedSplits(step_, splits_, best_.byPrice);
      if (us <= knobs::closeToBound * limitUs || splits == splits_)
        return;
      const MaybePlan quick = planInPlaceWith(splits, Depth::Quick);
      if (!quick || predictedUs(quick->plan) > knobs::closeToBound * us ||
          !take("splits by price", planInPlaceWith(splits, Depth::Full), splits) ||
          predictedUs(best_.plan) > (1 - knobs::little) * us)
        return;
    }
  }

  /// What is hosted for one node's sake goes elsewhere where that makes a quick plan faster.
  std::vector<Split> splitsBesideWide() {
    const std::vector<std::uint64_t> excess = excessPages(timeline_, frames_);
    if (std::all_of(excess.begin(), excess.end(), [](std::uint64_t pages) { return pages == 0; }))
      return splits_;
    const auto plan = [&](const std::vector<Split> &splits) {
      return room_.workers.begin([this, splits]() -> std::optional<TriedSplits> {
        MaybePlan tried = planWith(splits, Depth::Quick);
        if (!tried || (!fitsHost(tried->plan) && fitsHost(best_.plan)))
          return std::nullopt;
        const double us = predictedUs(tried->plan);
        return TriedSplits{std::move(tried->plan), us};
      });
    };
    return addSplits(splits_, options_.machine, plan,
                     [&](const Description &quickest, const std::vector<Split> &chosen, double leastUs) {
                       return splitsOfHosted(step_, quickest, chosen, excess, options_.machine, leastUs);
                     });
  }

  MaybePlan planWith(const std::vector<Split> &splits, Depth depth) {
    const SplitStep split(step_, splits);
    const Timeline timeline(split.parts(), defaultPieceBytes, {}, options_.apart);
    tl::expected<VariantPlan, PlanError> planned = planHosting(split.parts(), timeline, depth);
    return planned ? std::optional(joined(split, std::move(*planned))) : std::nullopt;
  }

  /// With the splits of the best plan and more.
  MaybePlan planInPlaceWith(const std::vector<Split> &splits, Depth depth) const {
    const SplitStep split(step_, splits);
    const Description placed = split.inParts(best_.plan);
    Description parts = split.parts();
    for (BufferIndex buffer = 0; buffer < parts.buffers.size(); ++buffer)
      parts.buffers[buffer].hosted = placed.buffers[buffer].hosted;
    const WideColouring frames = framesOfWide(placed);
    MaybePlan found =
        planAround(parts, Order(parts),
                   pieceSizesFor(parts, Timeline(parts, defaultPieceBytes, {}, options_.apart), true), &frames, depth);
    return found ? std::optional(joined(split, std::move(*found))) : std::nullopt;
  }

  /// Those of a plan's pages, of which those that wide nodes use are to keep theirs.
  WideColouring framesOfWide(const Description &placed) const {
    WideColouring colouring;
    for (BufferIndex buffer = 0; buffer < placed.buffers.size(); ++buffer) {
      std::vector<std::int32_t> frames = placed.buffers[buffer].frames;
      frames.resize(placed.pageCount(buffer), noFrame);
      for (std::int32_t &frame : frames)
        frame = frame == noFrame ? noFrame : frame - static_cast<std::int32_t>(timeline_.exclusivePages());
      colouring.isTight.emplace_back(frames.size(), false);
      colouring.frames.push_back(std::move(frames));
    }
    const std::vector<std::uint64_t> excess = excessPages(timeline_, frames_);
    for (NodeIndex node = 0; node < placed.nodes.size(); ++node)
      for (const Access &access : placed.nodes[node].accesses) {
        std::vector<bool> &isTight = colouring.isTight[access.buffer];
        for (const std::uint64_t page : pagesIn(access.range, placed.pageBytes))
          isTight[page] = isTight[page] || excess[node] > 0;
      }
    return colouring;
  }

  static VariantPlan joined(const SplitStep &split, VariantPlan found) {
    return {split.join(found.plan), split.join(found.byPrice), std::move(found.trace)};
  }

  bool hasPlan() const { return !best_.plan.nodes.empty(); }
  bool fitsHost(const Description &plan) const { return statsOf(plan).hostBytes <= options_.machine.hostBytes; }
  double predictedUs(const Description &plan) const { return predict(plan, options_.machine).totalUs; }

  const Description &step_;
  const Timeline &timeline_;
  const PlanOptions &options_;
  const PlanningRoom &room_;
  std::uint64_t frames_; ///< for private pages
  Depth asked_;
  VariantPlan best_;
  std::vector<Split> splits_; ///< of the best plan
  SearchTrace trace_;         ///< of variants
};

} // namespace

tl::expected<FoundPlan, PlanError> planVariants(const Description &step, const Timeline &timeline,
                                                const PlanningRoom &room) {
  return VariantSearch(step, timeline, room).run();
}

} // namespace pumpgraph
