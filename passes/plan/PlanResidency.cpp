// SPDX-License-Identifier: Apache-2.0
#include "passes/plan/PlanResidency.h"

#include "passes/analysis/Bound.h"
#include "passes/analysis/HostPlaces.h"
#include "passes/analysis/HostedAccess.h"
#include "passes/analysis/Prediction.h"
#include "passes/analysis/RequiredTraffic.h"
#include "passes/plan/FindPlan.h"
#include "passes/plan/FramePlanner.h"
#include "passes/plan/GapChoice.h"
#include "passes/plan/GivenBoundary.h"
#include "passes/plan/HostedPages.h"
#include "passes/plan/PlanSearch.h"
#include "passes/plan/PlanWriter.h"
#include "passes/plan/PresentBuffers.h"
#include "passes/plan/Processors.h"
#include "passes/plan/Renaming.h"
#include "passes/plan/WideColouring.h"
#include "pumpgraph/graph/Ranges.h"

#include <fmt/core.h>

#include <algorithm>
#include <deque>
#include <future>
#include <optional>
#include <set>
#include <thread>
#include <utility>
#include <vector>

namespace pumpgraph {

namespace {

/// How many splits beside wide nodes a plan has at most, and the part of the step that each gains at least.
constexpr int mostSplitsBesideWide = 4;
constexpr double leastGainOfSplit = 0.002;
/// How often what leaves gets frames of its own, each time by the best plan so far, unless that is close to the bound,
/// or a quick plan takes so much longer.
constexpr int roundsOfAbsences = 3;
constexpr double hopeless = 1.02;
/// How large pieces are in the searches that are made side by side, in place of pieceBytesFor().
constexpr std::uint64_t pieceMultiples[] = {1, 3, 8};
constexpr std::size_t mostNodesOfSeveralSearches = 5000;
/// How many of the largest pieces of the usual size the budget holds at least, unless it is small.
constexpr double leastPiecesInBudget = 80;
/// Of rows (RowLimits). Copies are saved with both larger, and more is moved away from where it was wanted. Large steps
/// try the first size only.
constexpr std::size_t reachOfRows = 16;
constexpr std::uint64_t rowBytesTried[] = {std::uint64_t{8} << 20, std::uint64_t{4} << 20, std::uint64_t{2} << 20};

std::string formatBytes(std::uint64_t bytes) {
  constexpr const char *units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(bytes);
  std::size_t unit = 0;
  while (value >= 1024 && unit + 1 < std::size(units)) {
    value /= 1024;
    ++unit;
  }
  return unit == 0 ? fmt::format("{} B", bytes) : fmt::format("{:.1f} {}", value, units[unit]);
}

std::optional<PlanError> checkInput(const Description &captured) {
  if (std::string fault = wrongStage(captured, {Stage::Captured}); !fault.empty())
    return PlanError{std::nullopt, std::move(fault)};
  for (NodeIndex n = 0; n < captured.nodes.size(); ++n)
    if (std::string fault = stageFault(captured.nodes[n].kind, captured.stage); !fault.empty())
      return PlanError{n, fmt::format("node {} {}", n, fault)};
  for (BufferIndex b = 0; b < captured.buffers.size(); ++b)
    if (std::string fault = stageFault(!captured.buffers[b].frames.empty(), false, captured.stage); !fault.empty())
      return PlanError{std::nullopt, fmt::format("buffer {} \"{}\" {}", b, captured.buffers[b].name, fault)};
  return std::nullopt;
}

/// What no plan can do: exclusive buffers are on the device at all times, and present ones between replays.
std::optional<PlanError> checkBudget(const Description &step, const Timeline &timeline, std::uint64_t budgetBytes) {
  const std::uint64_t page = timeline.pageBytes();
  if (timeline.exclusivePages() > budgetBytes / page)
    return PlanError{std::nullopt,
                     fmt::format("exclusive buffers need {} on the device at all times; the budget is {}",
                                 formatBytes(timeline.exclusivePages() * page), formatBytes(budgetBytes))};
  std::uint64_t pages = timeline.exclusivePages();
  for (BufferIndex b = 0; b < step.buffers.size(); ++b)
    pages += step.buffers[b].isPresent ? step.pageCount(b) : 0;
  if (pages <= budgetBytes / page)
    return std::nullopt;
  return PlanError{std::nullopt,
                   fmt::format("exclusive and present buffers need {} on the device between replays; the budget is {}",
                               formatBytes(pages * page), formatBytes(budgetBytes))};
}

/// Exclusive and present pages that nobody has given frames yet need some that no other step uses.
std::optional<PlanError> checkFramesBeside(const Description &step, const Description &boundary,
                                           std::uint64_t frameCount) {
  const std::uint64_t others = othersFrames(&boundary);
  std::uint64_t needed = others;
  for (BufferIndex b = 0; b < step.buffers.size(); ++b)
    if ((!step.buffers[b].isPrivate || step.buffers[b].isPresent) && step.buffers[b].frames.empty())
      needed += step.pageCount(b);
  if (needed <= frameCount)
    return std::nullopt;
  return PlanError{std::nullopt,
                   fmt::format("other steps use {}, exclusive and present buffers of this step alone need {}; the "
                               "budget is {}",
                               formatBytes(others * step.pageBytes), formatBytes((needed - others) * step.pageBytes),
                               formatBytes(frameCount * step.pageBytes))};
}

/// Pages that must be apart need as many frames.
std::optional<PlanError> checkApart(const Timeline &timeline, std::uint64_t budgetBytes) {
  for (const std::vector<PieceIndex> &apart : timeline.apartPieces()) {
    std::uint64_t pages = timeline.exclusivePages();
    for (const PieceIndex piece : apart)
      pages += timeline.piece(piece).pageCount;
    if (pages > budgetBytes / timeline.pageBytes())
      return PlanError{std::nullopt,
                       fmt::format("what a node of another step uses at once needs {} in frames of its own; the budget "
                                   "is {}",
                                   formatBytes(pages * timeline.pageBytes()), formatBytes(budgetBytes))};
  }
  return std::nullopt;
}

/// What the node needs at once, in words.
std::string needOf(const Description &captured, const Timeline &timeline, NodeIndex node) {
  const std::uint64_t page = timeline.pageBytes(), exclusive = timeline.exclusivePages();
  const std::string share =
      exclusive == 0 ? "" : fmt::format(" ({} of it exclusive buffers)", formatBytes(exclusive * page));
  return fmt::format("node {} \"{}\" needs {} on the device at once{}", node, captured.nodes[node].name,
                     formatBytes((exclusive + timeline.workingSetPages(node)) * page), share);
}

/// Why there is more host memory needed than may be used. With hosted pages the node that touches most is to blame.
PlanError hostShortage(const Description &captured, const Description &planned, const Timeline &timeline,
                       std::uint64_t neededBytes, std::uint64_t allowedBytes) {
  const std::string shortage =
      fmt::format("the plan needs {} of host memory; {} may be used, {} are missing", formatBytes(neededBytes),
                  formatBytes(allowedBytes), formatBytes(neededBytes - allowedBytes));
  if (hostedBytes(planned) == 0)
    return {std::nullopt, shortage};
  NodeIndex widest = 0;
  for (NodeIndex n = 0; n < timeline.nodeCount(); ++n)
    if (timeline.workingSetPages(n) > timeline.workingSetPages(widest))
      widest = n;
  return {widest, fmt::format("{}; the budget is {}, and with {} of operands always in host memory {}",
                              needOf(captured, timeline, widest), formatBytes(planned.budgetBytes),
                              formatBytes(hostedBytes(planned)), shortage)};
}

/// The same plan, of the step with what is known of it.
Description withKnowledgeOf(const Description &captured, Description planned) {
  for (BufferIndex b = 0; b < captured.buffers.size(); ++b) {
    planned.buffers[b].liveIn = captured.buffers[b].liveIn;
    planned.buffers[b].liveOut = captured.buffers[b].liveOut;
  }
  auto next = captured.nodes.begin();
  for (Node &node : planned.nodes)
    if (!isResidency(node.kind))
      node = *next++;
  return planned;
}

/// How large pieces may be: where nodes are long, a copy takes as long as one of them, but no piece takes more than a
/// small part of the budget. Operations on managed memory are joined beyond pieces anyway.
std::uint64_t pieceBytesFor(const Timeline &uncut, const PlanOptions &options, std::uint64_t budgetBytes) {
  if (options.backend != Backend::Virtual)
    return defaultPieceBytes;
  const double nodeUs = uncut.times().totalUs / std::max<double>(1, uncut.nodeCount());
  const double bytesPerSecond = std::min(options.machine.upBytesPerSecond, options.machine.downBytesPerSecond);
  const double inNode = nodeUs * bytesPerSecond / 1e6;
  const double inBudget = static_cast<double>(budgetBytes) / leastPiecesInBudget;
  return std::max(defaultPieceBytes, static_cast<std::uint64_t>(std::min(inNode, inBudget)));
}

/// The same by piece: either all pages of one have frames or none.
FixedHomes ofPieces(const WideColouring &colouring, const Timeline &timeline) {
  FixedHomes result;
  for (std::size_t i = 0; i < timeline.pieces().size(); ++i) {
    const Piece &piece = timeline.piece(static_cast<PieceIndex>(i));
    std::vector<std::int32_t> &homes = result.homes[result.homes.add({})];
    const auto first = colouring.frames[piece.buffer].begin() + piece.firstPage;
    if (*first == noFrame)
      continue;
    for (auto frame = first; frame != first + piece.pageCount; ++frame)
      homes.push_back(*frame + static_cast<std::int32_t>(timeline.exclusivePages()));
    if (colouring.isTight[piece.buffer][piece.firstPage])
      result.tight.push_back(static_cast<PieceIndex>(i));
  }
  return result;
}

/// Whether a step is worth more than one search: not if there is nothing to choose, and not if one takes long anyway.
bool deservesSeveralSearches(const Timeline &timeline, const PlanOptions &options, std::uint64_t frames) {
  return !options.boundary && !options.isQuick && options.backend == Backend::Virtual &&
         timeline.nodeCount() <= mostNodesOfSeveralSearches &&
         timeline.peakPages() > frames + timeline.exclusivePages();
}

/// No size but the last is as large as the largest buffer.
std::vector<std::uint64_t> pieceSizesFor(const Description &step, std::uint64_t pieceBytes, bool several) {
  std::uint64_t largest = 0;
  for (const Buffer &buffer : step.buffers)
    largest = std::max(largest, buffer.isPrivate ? buffer.size : 0);
  std::vector<std::uint64_t> sizes;
  for (const std::uint64_t multiple : pieceMultiples)
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

/// For so many searches side by side. Quick ones use one each: whoever makes them makes many.
Processors processorsFor(std::size_t searches, const PlanOptions &options) {
  return Processors(options.isQuick ? 1 : processorsOf(options.processors), static_cast<unsigned>(searches));
}

struct FoundPlan {
  Description plan;
  std::vector<Absence> chosen; ///< by the prices of the plan; none if it is a quick one
};

/// What gaps by price come to where the plan leaves the link as it does.
std::vector<Absence> chosenAbsences(const PlannerInput &input, const Candidate &candidate) {
  const GapChoice choice = chooseGaps(input, candidate.draft, candidate.schedule);
  const Timeline &timeline = input.timeline;
  std::vector<Absence> result;
  for (const Piece &piece : timeline.pieces())
    for (std::uint32_t use = piece.usesBegin; use < piece.usesEnd; ++use)
      if (choice.pages[use] > 0)
        result.push_back(
            {piece.buffer,
             {piece.firstPage * timeline.pageBytes(), std::min(choice.pages[use] * timeline.pageBytes(), piece.bytes)},
             timeline.use(use).node});
  return result;
}

/// What a search has found: each transfer a copy of its own, and small ones as rows of common copies where that is
/// better.
struct Searched {
  Candidate apart;
  Candidate inRows;
};

Searched joinedInRows(const PlannerInput &input, Candidate found, std::uint64_t budgetBytes) {
  if (input.isForManaged())
    return {found, found};
  PlanSearch search(input, budgetBytes);
  search.take(found);
  for (const std::uint64_t mostBytes : rowBytesTried) {
    search.tryDraft(joinRows(input.captured, found.draft, found.schedule, {reachOfRows, mostBytes}));
    if (found.draft.capturedCount > mostNodesOfSeveralSearches)
      break;
  }
  return {std::move(found), *search.best()};
}

/// The plan of a step in which some pages may be hosted: for the planner these are not there. `choices`: the frames
/// that are fixed beforehand, null for none. There is a search for each of them and each size of pieces, side by side,
/// and the best plan counts.
std::optional<FoundPlan> planAround(const Description &step, const Order &order, const PlanOptions &options,
                                    const std::vector<std::uint64_t> &pieceSizes, std::uint64_t budgetBytes,
                                    std::uint64_t frameCount, const std::vector<const WideColouring *> &choices) {
  Machine machine = options.machine;
  if (machine.hostBytes != UINT64_MAX)
    machine.hostBytes -= std::min(machine.hostBytes, hostedBytes(step));
  Processors processors = processorsFor(pieceSizes.size() * choices.size(), options);
  std::deque<SearchInput> inputs;
  std::vector<std::pair<const PlannerInput *, std::future<std::optional<Searched>>>> searches;
  for (const std::uint64_t pieceBytes : pieceSizes) {
    const PlannerInput &input = inputs.emplace_back(step, order, machine, options, pieceBytes, frameCount).get();
    for (const WideColouring *colouring : choices)
      searches.push_back({&input, std::async([&, colouring]() -> std::optional<Searched> {
                            const std::optional<FixedHomes> fixed =
                                colouring ? std::optional(ofPieces(*colouring, input.timeline)) : std::nullopt;
                            std::optional<Candidate> found =
                                findPlan(input, budgetBytes, fixed ? &*fixed : nullptr, options.isQuick, processors);
                            processors.searchIsDone();
                            if (!found)
                              return std::nullopt;
                            return joinedInRows(input, std::move(*found), budgetBytes);
                          })});
  }
  const PlannerInput *inputOfBest = nullptr;
  std::optional<Searched> best;
  for (auto &[input, search] : searches)
    if (std::optional<Searched> found = search.get();
        found && (!best || isBetter(found->inRows, best->inRows, machine))) {
      inputOfBest = input;
      best = std::move(found);
    }
  if (!best)
    return std::nullopt;
  FoundPlan found{writePlan(*inputOfBest, best->inRows.draft, best->inRows.schedule, budgetBytes), {}};
  if (!options.isQuick)
    found.chosen = chosenAbsences(*inputOfBest, best->apart);
  return found;
}

/// Where some nodes use nearly all frames there is little choice: frames for all pages, found without regard for time,
/// of which the pages of these nodes keep theirs.
std::optional<WideColouring> colourCrowd(const Description &step, const Timeline &timeline, const Machine &machine,
                                         std::uint64_t frames) {
  const std::vector<NodeIndex> crowded = crowdedNodes(timeline, frames);
  if (crowded.empty())
    return std::nullopt;
  Description hosting = step;
  tl::expected<WideColouring, NoColouring> colouring =
      hostForColouring(hosting, timeline, frames, machine, Balance::No);
  if (!colouring || hostedBytes(hosting) > hostedBytes(step))
    return std::nullopt;
  for (const NodeIndex node : crowded)
    for (std::uint32_t position : timeline.usesAt(node)) {
      const Piece &piece = timeline.piece(timeline.use(position).piece);
      std::vector<bool> &isTight = colouring->isTight[piece.buffer];
      std::fill_n(isTight.begin() + piece.firstPage, piece.pageCount, true);
    }
  return std::move(*colouring);
}

bool isHostedAlike(const Description &one, const Description &other) {
  return std::equal(one.buffers.begin(), one.buffers.end(), other.buffers.begin(), other.buffers.end(),
                    [](const Buffer &a, const Buffer &b) { return a.hosted == b.hosted; });
}

bool isFaster(const Description &one, const Description &other, const Machine &machine) {
  return predict(one, machine).totalUs < predict(other, machine).totalUs;
}

/// Hosts what nodes touch beyond the frames. Since a page keeps its frame, that can be too little: then a colouring
/// tells what else. If there is none, more is hosted by steps that grow, in the end all that can be.
tl::expected<FoundPlan, PlanError> planHosting(Description step, const Timeline &timeline, const PlanOptions &options,
                                               std::uint64_t budgetBytes, std::uint64_t frameCount) {
  const std::uint64_t steps = options.boundary ? 0 : 8;
  const Order order(step);
  const std::uint64_t frames = frameCount - timeline.exclusivePages();
  const bool several = deservesSeveralSearches(timeline, options, frames);
  const std::vector<std::uint64_t> pieceSizes =
      pieceSizesFor(step, pieceBytesFor(timeline, options, budgetBytes), several);
  const std::uint64_t hostedBefore = hostedBytes(step);
  if (const std::optional<NodeIndex> stuck = hostExcess(step, timeline, frames, options.machine))
    return tl::unexpected(
        PlanError{*stuck, fmt::format("{}, and too much of it are operands of copies, which cannot be left in host "
                                      "memory; the budget is {}",
                                      needOf(step, timeline, *stuck), formatBytes(budgetBytes))});
  const auto plan = [&](const std::vector<const WideColouring *> &choices) {
    return planAround(step, order, options, pieceSizes, budgetBytes, frameCount, choices);
  };
  const bool isWide = hostedBytes(step) > hostedBefore && !options.boundary;
  if (!isWide) {
    std::vector<const WideColouring *> choices{nullptr};
    const std::optional<WideColouring> crowded =
        several ? colourCrowd(step, timeline, options.machine, frames) : std::nullopt;
    if (crowded)
      choices.push_back(&*crowded);
    if (std::optional<FoundPlan> planned = plan(choices))
      return std::move(*planned);
  }
  if (!options.boundary) {
    std::optional<FoundPlan> best;
    for (const Balance balance : {Balance::No, Balance::Nodes}) {
      const tl::expected<WideColouring, NoColouring> wide =
          hostForColouring(step, timeline, frames, options.machine, balance);
      std::optional<FoundPlan> planned =
          wide && !(best && isHostedAlike(step, best->plan)) ? plan({&*wide}) : std::nullopt;
      if (planned && (!best || isFaster(planned->plan, best->plan, options.machine)))
        best = std::move(planned);
      if (options.isQuick)
        break;
    }
    if (best)
      return std::move(*best);
  }
  for (std::uint64_t i = isWide ? 0 : 1; i <= steps; ++i) {
    hostExcess(step, timeline, frames - frames * i * i / (steps * steps), options.machine);
    if (std::optional<FoundPlan> planned = plan({nullptr}))
      return std::move(*planned);
  }
  if (options.boundary)
    return tl::unexpected(PlanError{std::nullopt, "no frames found for all pages beside those that other steps keep"});
  return tl::unexpected(PlanError{
      std::nullopt, fmt::format("no frames found for all pages: each keeps one frame for the whole step, operands of "
                                "copies cannot be left in host memory, and the {} frames of the budget do not let "
                                "every node's pages lie in different ones",
                                frameCount)});
}

/// Plans a step, and again with what may go on at other addresses; the fastest plan counts.
class Renaming {
public:
  /// All are referred to.
  Renaming(const Description &step, const Timeline &timeline, const PlanOptions &options, std::uint64_t budgetBytes,
           std::uint64_t frameCount)
      : step_(step), timeline_(timeline), options_(options), budgetBytes_(budgetBytes), frameCount_(frameCount),
        frames_(frameCount - timeline.exclusivePages()) {}

  tl::expected<Description, PlanError> run() {
    tl::expected<FoundPlan, PlanError> planned = planHosting(step_, timeline_, options_, budgetBytes_, frameCount_);
    if (!planned)
      return tl::unexpected(planned.error());
    best_ = std::move(*planned);
    if (options_.boundary || options_.isQuick || options_.backend != Backend::Virtual)
      return std::move(best_.plan);
    tryWith(worthRenaming(step_, best_.plan, timeline_, options_, frames_));
    if (step_.nodes.size() <= mostNodesOfSeveralSearches) {
      if (hostedBytes(best_.plan) > 0)
        tryWith(withSplitsBesideWide());
      goOnAfterAbsences();
    }
    return std::move(best_.plan);
  }

private:
  /// Returns whether it makes the best plan.
  bool tryWith(const std::vector<Split> &splits) {
    return splits.size() != splits_.size() && take(planWith(splits, options_), splits);
  }

  bool take(std::optional<FoundPlan> other, const std::vector<Split> &splits) {
    if (!other)
      return false;
    const bool fits = fitsHost(other->plan), fitted = fitsHost(best_.plan);
    const double otherUs = predictedUs(other->plan) + doubtUs(other->plan, best_.plan, options_.machine);
    if (fits == fitted ? otherUs >= predictedUs(best_.plan) : !fits)
      return false;
    best_ = std::move(*other);
    splits_ = splits;
    return true;
  }

  /// What is to leave, by the prices of the best plan, comes back to frames of its own. Hosted is what was, and what
  /// wide nodes use keeps its frames. A quick plan tells whether there is hope.
  void goOnAfterAbsences() {
    const double limitUs = bound(step_, budgetBytes_, options_.machine, BoundKind::May).totalUs;
    for (int round = 0; round < roundsOfAbsences; ++round) {
      const double us = predictedUs(best_.plan);
      const std::vector<Split> splits = withAbsences(step_, splits_, best_.chosen);
      if (us <= closeToBound * limitUs || splits == splits_)
        return;
      const std::optional<FoundPlan> quick = planInPlaceWith(splits, quickOptions());
      if (!quick || predictedUs(quick->plan) > hopeless * us || !take(planInPlaceWith(splits, options_), splits) ||
          predictedUs(best_.plan) > (1 - leastGainOfSplit) * us)
        return;
    }
  }

  /// With the splits of the best plan and more.
  std::optional<FoundPlan> planInPlaceWith(const std::vector<Split> &splits, const PlanOptions &options) const {
    const SplitStep split(step_, splits);
    const Description placed = split.inParts(best_.plan);
    Description parts = split.parts();
    for (BufferIndex buffer = 0; buffer < parts.buffers.size(); ++buffer)
      parts.buffers[buffer].hosted = placed.buffers[buffer].hosted;
    const Timeline timeline(parts, defaultPieceBytes, {}, options_.apart);
    const std::vector<std::uint64_t> pieceSizes =
        pieceSizesFor(parts, pieceBytesFor(timeline, options_, budgetBytes_), true);
    const WideColouring frames = framesOfWide(placed);
    std::optional<FoundPlan> found =
        planAround(parts, Order(parts), options, pieceSizes, budgetBytes_, frameCount_, {&frames});
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
        for (std::uint64_t page = access.range.offset / placed.pageBytes; page * placed.pageBytes < access.range.end();
             ++page)
          isTight[page] = isTight[page] || excess[node] > 0;
      }
    return colouring;
  }

  std::optional<FoundPlan> planWith(const std::vector<Split> &splits, const PlanOptions &options) const {
    const SplitStep split(step_, splits);
    const Timeline timeline(split.parts(), defaultPieceBytes, {}, options_.apart);
    tl::expected<FoundPlan, PlanError> planned =
        planHosting(split.parts(), timeline, options, budgetBytes_, frameCount_);
    return planned ? std::optional(joined(split, std::move(*planned))) : std::nullopt;
  }

  PlanOptions quickOptions() const {
    PlanOptions quick = options_;
    quick.isQuick = true;
    return quick;
  }

  static FoundPlan joined(const SplitStep &split, FoundPlan found) {
    return {split.join(found.plan), split.join(found.chosen)};
  }

  bool fitsHost(const Description &plan) const { return statsOf(plan).hostBytes <= options_.machine.hostBytes; }
  double predictedUs(const Description &plan) const { return predict(plan, options_.machine).totalUs; }

  /// What is hosted for one node's sake, or would better be, goes elsewhere where that makes a quick plan faster:
  /// always the one that gains most, and then the next.
  std::vector<Split> withSplitsBesideWide() const {
    const PlanOptions quick = quickOptions();
    const std::vector<std::uint64_t> excess = excessPages(timeline_, frames_);
    std::vector<Split> chosen = splits_;
    if (std::all_of(excess.begin(), excess.end(), [](std::uint64_t pages) { return pages == 0; }))
      return chosen;
    const std::optional<FoundPlan> without = planWith(chosen, quick);
    if (!without)
      return chosen;
    std::optional<FoundPlan> quickest = without;
    double leastUs = predictedUs(without->plan);
    for (int round = 0; round < mostSplitsBesideWide; ++round) {
      std::vector<std::pair<std::vector<Split>, std::future<std::optional<FoundPlan>>>> trials;
      const double gainUs = leastGainOfSplit * leastUs, enoughUs = leastUs - gainUs;
      std::vector<Split> found = splitsOfHosted(step_, quickest->plan, chosen, excess, options_.machine, gainUs);
      for (Split &split : splitsOfOthers(step_, quickest->plan, chosen, timeline_, excess))
        found.push_back(std::move(split));
      for (const Split &split : found) {
        std::vector<Split> more = chosen;
        more.push_back(split);
        trials.push_back({more, std::async([this, more, &quick] { return planWith(more, quick); })});
      }
      bool isFaster = false;
      for (auto &[splits, trial] : trials) {
        std::optional<FoundPlan> tried = trial.get();
        const double us = tried ? predictedUs(tried->plan) + doubtUs(tried->plan, without->plan, options_.machine) : 0;
        if (!tried || us >= std::min(enoughUs, leastUs) || (!fitsHost(tried->plan) && fitsHost(without->plan)))
          continue;
        isFaster = true;
        leastUs = us;
        quickest = std::move(tried);
        chosen = splits;
      }
      if (!isFaster)
        break;
    }
    return chosen;
  }

  const Description &step_;
  const Timeline &timeline_;
  const PlanOptions &options_;
  std::uint64_t budgetBytes_;
  std::uint64_t frameCount_;
  std::uint64_t frames_; ///< for private pages
  FoundPlan best_;
  std::vector<Split> splits_; ///< of the best plan
};

} // namespace

PlanStats statsOf(const Description &planned) {
  PlanStats stats;
  std::set<std::int32_t> frames;
  for (const Buffer &buffer : planned.buffers)
    frames.insert(buffer.frames.begin(), buffer.frames.end());
  frames.erase(noFrame);
  stats.framesUsed = frames.size();
  for (const Node &node : planned.nodes) {
    stats.discards += node.kind == NodeKind::Discard;
    stats.evictions += movesDown(node.kind);
    stats.prefetches += movesUp(node.kind);
  }
  const Traffic moved = movedTraffic(planned);
  stats.upBytes = moved.upBytes;
  stats.downBytes = moved.downBytes;
  stats.hostBytes = (planned.hostBytes ? planned.hostBytes : HostPlaces(planned).bytes()) + hostedBytes(planned);
  return stats;
}

tl::expected<PlannedStep, PlanError> planResidency(const Description &captured, const PlanOptions &options) {
  if (const std::optional<PlanError> error = checkInput(captured))
    return tl::unexpected(*error);
  Description unplanned = captured;
  for (Buffer &buffer : unplanned.buffers)
    buffer.hosted.clear();
  const std::uint64_t peakPages = Timeline(unplanned).peakPages();
  for (const BufferPart &part : options.hosted)
    append(unplanned.buffers[part.buffer].hosted, part.range);
  if (options.boundary) {
    PlanError error;
    error.message = takeBoundary(unplanned, *options.boundary, error.node);
    if (!error.message.empty())
      return tl::unexpected(std::move(error));
  }
  for (const std::vector<BufferPart> &group : options.apart)
    for (const BufferPart &part : group)
      unplanned.buffers[part.buffer].isRenamable = false; // at another address its pages would be others
  const Timeline timeline(unplanned, defaultPieceBytes, {}, options.apart);
  std::uint64_t allPages = othersFrames(options.boundary); // more frames than pages are of no use
  for (BufferIndex b = 0; b < captured.buffers.size(); ++b)
    allPages += captured.pageCount(b);
  const bool mayNeedMore = options.boundary || !options.apart.empty();
  const std::uint64_t enoughPages = mayNeedMore ? allPages : std::max<std::uint64_t>(1, peakPages);
  const std::uint64_t budgetBytes = options.budgetBytes ? options.budgetBytes : enoughPages * timeline.pageBytes();
  if (const std::optional<PlanError> error = checkBudget(unplanned, timeline, budgetBytes))
    return tl::unexpected(*error);
  if (const std::optional<PlanError> error = checkApart(timeline, budgetBytes))
    return tl::unexpected(*error);
  const std::uint64_t frameCount = std::min(budgetBytes / timeline.pageBytes(), allPages);
  if (options.boundary)
    if (const std::optional<PlanError> error = checkFramesBeside(unplanned, *options.boundary, frameCount))
      return tl::unexpected(*error);

  const bool nothingDies = options.backend == Backend::ManagedUnknown && peakPages > frameCount;
  const Description used = withUseBetweenReplays(nothingDies ? withNothingDead(unplanned) : std::move(unplanned));
  const Timeline timelineOfUsed(used, defaultPieceBytes, {}, options.apart);
  tl::expected<Description, PlanError> planned = Renaming(used, timelineOfUsed, options, budgetBytes, frameCount).run();
  if (!planned)
    return tl::unexpected(planned.error());
  *planned = withoutUseBetweenReplays(std::move(*planned));
  for (BufferIndex b = 0; b < captured.buffers.size(); ++b)
    planned->buffers[b].isRenamable = captured.buffers[b].isRenamable;
  PlannedStep step;
  step.description = nothingDies ? withKnowledgeOf(captured, std::move(*planned)) : std::move(*planned);
  step.stats = statsOf(step.description);
  step.stats.peakPagesBefore = peakPages;
  if (step.stats.hostBytes > options.machine.hostBytes)
    return tl::unexpected(
        hostShortage(captured, step.description, timeline, step.stats.hostBytes, options.machine.hostBytes));
  return step;
}

} // namespace pumpgraph
