// SPDX-License-Identifier: Apache-2.0
#include "passes/plan/search/VariantSearch.h"

#include "passes/analysis/HostedAccess.h"
#include "passes/analysis/Indices.h"
#include "passes/plan/Knobs.h"
#include "passes/plan/PlanErrors.h"
#include "passes/plan/allocate/GivenBoundary.h"
#include "passes/plan/price/GapChoice.h"
#include "passes/plan/search/FindPlan.h"

#include <fmt/core.h>

#include <algorithm>
#include <deque>
#include <utility>

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

/// Whether a step is worth more than one search: not if there is nothing to choose, and not if one takes long anyway.
bool deservesSeveralSearches(const Timeline &timeline, const PlanOptions &options, std::uint64_t frames) {
  return !options.boundary && !options.isQuick && options.backend == Backend::Virtual &&
         timeline.nodeCount() <= knobs::mostNodesOfSeveralSearches &&
         timeline.peakPages() > frames + timeline.exclusivePages();
}

/// No size but the last is as large as the largest buffer.
std::vector<std::uint64_t> pieceSizesFor(const Description &step, std::uint64_t pieceBytes, bool several) {
  std::uint64_t largest = 0;
  for (const Buffer &buffer : step.buffers)
    largest = std::max(largest, buffer.isPrivate ? buffer.size : 0);
  std::vector<std::uint64_t> sizes;
  for (const std::uint64_t multiple : knobs::pieceMultiples)
    if (sizes.empty() || (several && sizes.back() < largest))
      sizes.push_back(multiple * pieceBytes);
  return sizes;
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

/// The plan of a step in which some pages may be hosted: for the planner these are not there. `colouring`: frames that
/// are fixed beforehand; may be null. There is a search for each size of pieces, side by side, and the best plan
/// counts.
std::optional<FoundPlan> planAround(const Description &step, const Order &order, const PlanningRoom &room,
                                    const std::vector<std::uint64_t> &pieceSizes, const WideColouring *colouring) {
  const PlanOptions &options = room.options;
  Machine machine = options.machine;
  if (machine.hostBytes != UINT64_MAX)
    machine.hostBytes -= std::min(machine.hostBytes, hostedBytes(step));
  // Quick searches use a thread each: whoever makes them makes many.
  Shares shares(options.isQuick ? 1 : room.workers.processors(), pieceSizes.size());
  std::deque<SearchInput> inputs;
  std::vector<std::pair<const PlannerInput *, Job<std::optional<Found>>>> searches;
  for (const std::uint64_t pieceBytes : pieceSizes) {
    const PlannerInput &input = inputs.emplace_back(step, order, machine, options, pieceBytes, room.frameCount).get();
    searches.push_back({&input, room.workers.begin([&] {
                          const std::optional<FixedHomes> fixed =
                              colouring ? std::optional(ofPieces(*colouring, input.timeline)) : std::nullopt;
                          return findPlan(input, {room.budgetBytes, fixed ? &*fixed : nullptr, options.isQuick},
                                          room.workers, shares);
                        })});
  }
  const PlannerInput *inputOfBest = nullptr;
  std::optional<Found> best;
  for (auto &[input, search] : searches)
    if (std::optional<Found> found = search.get(); found && (!best || isBetter(found->inRows, best->inRows, machine))) {
      inputOfBest = input;
      best = std::move(found);
    }
  if (!best)
    return std::nullopt;
  FoundPlan found{Evaluator(*inputOfBest, room.budgetBytes).write(best->inRows), {}, std::move(best->trace)};
  if (!options.isQuick)
    found.byPrice = splitsByPrice(*inputOfBest, best->apart);
  return found;
}

} // namespace

tl::expected<FoundPlan, PlanError> planHosting(Description step, const Timeline &timeline, const PlanningRoom &room) {
  const PlanOptions &options = room.options;
  const std::uint64_t steps = options.boundary ? 0 : 8; // in which more is hosted
  const Order order(step);
  const std::uint64_t frames = room.frameCount - timeline.exclusivePages();
  const bool several = deservesSeveralSearches(timeline, options, frames);
  const std::vector<std::uint64_t> pieceSizes =
      pieceSizesFor(step, pieceBytesFor(timeline, options, room.budgetBytes), several);
  const std::uint64_t hostedBefore = hostedBytes(step);
  if (const std::optional<NodeIndex> stuck = hostExcess(step, timeline, frames, options.machine))
    return tl::unexpected(tooManyOperandsOfCopies(step, timeline, *stuck, room.budgetBytes));
  const auto plan = [&](const WideColouring *frames) { return planAround(step, order, room, pieceSizes, frames); };
  const bool isWide = hostedBytes(step) > hostedBefore && !options.boundary;
  if (!isWide)
    if (std::optional<FoundPlan> planned = plan(nullptr))
      return std::move(*planned);
  if (!options.boundary) {
    Effort effort;
    const std::optional<WideColouring> wide = hostForColouring(step, timeline, frames, options.machine, effort);
    if (std::optional<FoundPlan> planned = wide ? plan(&*wide) : std::nullopt)
      return std::move(*planned);
  }
  for (std::uint64_t i = isWide ? 0 : 1; i <= steps; ++i) {
    hostExcess(step, timeline, frames - frames * i * i / (steps * steps), options.machine);
    if (std::optional<FoundPlan> planned = plan(nullptr))
      return std::move(*planned);
  }
  if (options.boundary)
    return tl::unexpected(PlanError{std::nullopt, "no frames found for all pages beside those that other steps keep"});
  return tl::unexpected(PlanError{
      std::nullopt, fmt::format("no frames found for all pages: each keeps one frame for the whole step, operands of "
                                "copies cannot be left in host memory, and the {} frames of the budget do not let "
                                "every node's pages lie in different ones",
                                room.frameCount)});
}

std::optional<FoundPlan> planInPlace(const Description &step, const WideColouring &frames, const PlanningRoom &room) {
  const Timeline timeline(step, defaultPieceBytes, {}, room.options.apart);
  const std::vector<std::uint64_t> pieceSizes =
      pieceSizesFor(step, pieceBytesFor(timeline, room.options, room.budgetBytes), true);
  return planAround(step, Order(step), room, pieceSizes, &frames);
}

} // namespace pumpgraph
