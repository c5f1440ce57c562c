// SPDX-License-Identifier: Apache-2.0
#include "passes/plan/search/WideColouring.h"

#include "passes/analysis/HostedAccess.h"
#include "passes/analysis/Indices.h"
#include "passes/plan/Knobs.h"
#include "passes/plan/search/InterferenceGraph.h"
#include "pumpgraph/graph/Ranges.h"

#include <algorithm>
#include <optional>
#include <utility>

namespace pumpgraph {

namespace {

/// Of a piece in a limit when what is hosted is chosen anew, and of a class when colouring begins anew: memory is
/// allocated, and queues and lists are gone through.
constexpr std::uint64_t effortOfMember = 32;
/// An odd cycle that is within such a part of too large is coloured first.
constexpr std::uint64_t nearlyTooLarge = 8;

/// By buffer, then page.
using PageFlags = std::vector<std::vector<bool>>;

PageFlags noPages(const Description &step) {
  PageFlags pages;
  for (BufferIndex b = 0; b < step.buffers.size(); ++b)
    pages.emplace_back(step.pageCount(b), false);
  return pages;
}

PageFlags hostedPages(const Description &step) {
  PageFlags isHosted = noPages(step);
  for (BufferIndex b = 0; b < step.buffers.size(); ++b)
    for (const Range &range : step.buffers[b].hosted)
      for (const std::uint64_t page : pagesIn(range, step.pageBytes))
        isHosted[b][page] = true;
  return isHosted;
}

/// Calls `visit(page)` for each page of the piece that is not hosted.
template <typename Visit> void forEachPage(const PageFlags &isHosted, const Piece &piece, Visit visit) {
  for (std::uint32_t page = piece.firstPage; page < piece.firstPage + piece.pageCount; ++page)
    if (!isHosted[piece.buffer][page])
      visit(page);
}

/// Greedy colouring of classes by how few frames are left for them (DSATUR). colourPieces() has another, which is worse
/// but keeps to given frames and needs no matrix.
class GreedyColouring {
public:
  /// `pages`: by class, those that need frames.
  GreedyColouring(const InterferenceGraph &classes, const std::vector<std::uint64_t> &pages, std::uint64_t frames,
                  Effort &effort)
      : graph_(classes), pages_(pages), frames_(frames), effort_(effort), taken_(classes.size(), Bits(frames)),
        isColoured_(classes.size(), false), homes_(classes.size()) {
    for (std::uint64_t count : pages)
      slack_.push_back(static_cast<std::int64_t>(frames) - static_cast<std::int64_t>(count));
    effort_.spend(classes.size() * (Bits(frames).words() + effortOfMember));
  }

  /// Those in `first` choose before the others, and then those of `odd cycles`: with what one of an odd cycle leaves
  /// over the next one begins, around all frames, so that the third shares no more of the first's than it must. Returns
  /// a class that finds too few frames; how many are missing is `-slack(one)` then. Stops once the effort is spent.
  std::optional<std::size_t> run(const std::vector<std::size_t> &first,
                                 const std::vector<std::vector<std::size_t>> &oddCycles) {
    for (std::size_t one : first)
      if (!colour(one))
        return one;
    for (const std::vector<std::size_t> &oddCycle : oddCycles) {
      std::uint32_t from = 0;
      for (std::size_t one : oddCycle) {
        if (!isColoured_[one] && !colour(one, from))
          return one;
        if (!homes_[one].empty())
          from = static_cast<std::uint32_t>((homes_[one].back() + 1) % frames_);
      }
    }
    while (!effort_.isSpent()) {
      const std::optional<std::size_t> one = tightest();
      isComplete_ = !one;
      if (!one || !colour(*one))
        return one;
    }
    return std::nullopt;
  }

  bool isComplete() const { return isComplete_; }

  std::int64_t slack(std::size_t one) const { return slack_[one]; }
  const std::vector<std::uint32_t> &homes(std::size_t one) const { return homes_[one]; }

private:
  /// Of those without frames: the one with the least choice, and among equals the largest.
  std::optional<std::size_t> tightest() {
    std::optional<std::size_t> best;
    for (std::size_t one = 0; one < graph_.size(); ++one)
      if (!isColoured_[one] && pages_[one] > 0 &&
          (!best || slack_[one] < slack_[*best] || (slack_[one] == slack_[*best] && pages_[one] > pages_[*best])))
        best = one;
    effort_.spend(graph_.size());
    return best;
  }

  /// The lowest frames from `from` on, and then those below.
  bool colour(std::size_t one, std::uint32_t from = 0) {
    if (slack_[one] < 0)
      return false;
    isColoured_[one] = true;
    Bits own(frames_);
    for (std::uint32_t frame = from; homes_[one].size() < pages_[one]; frame = frame + 1 < frames_ ? frame + 1 : 0)
      if (!taken_[one][frame]) {
        homes_[one].push_back(frame);
        own.set(frame);
      }
    effort_.spend(frames_ + graph_.size());
    for (std::size_t other = 0; other < graph_.size(); ++other)
      if (!isColoured_[other] && graph_.around(one)[other]) {
        slack_[other] -= static_cast<std::int64_t>(taken_[other].add(own));
        effort_.spend(own.words());
      }
    return true;
  }

  const InterferenceGraph &graph_;
  const std::vector<std::uint64_t> &pages_;
  std::uint64_t frames_;
  Effort &effort_;
  std::vector<Bits> taken_; ///< by class: frames of those that it meets
  std::vector<std::int64_t> slack_;
  std::vector<bool> isColoured_;
  std::vector<std::vector<std::uint32_t>> homes_;
  bool isComplete_ = false;
};

/// Whether odd cycles are looked for beside cliques.
enum class OddCycles { No, Yes };

/// Colours what is not hosted, time and again as more is.
class WideColourer {
public:
  /// All are referred to.
  WideColourer(const Timeline &timeline, std::uint64_t frames, const HostingPrices &prices,
               const InterferenceGraph &classes, Effort &effort, OddCycles oddCycles)
      : timeline_(timeline), frames_(frames), prices_(prices), graph_(classes), effort_(effort),
        looksForOddCycles_(oddCycles == OddCycles::Yes), limits_(wideNodes(timeline, frames)) {}

  std::optional<WideColouring> run(Description &step) {
    while (!effort_.isSpent()) {
      for (const FrameLimit &limit : limits_)
        effort_.spend(limit.pieces.size() * effortOfMember);
      effort_.spend(timeline_.pieces().size() + knobs::mostBalanceSteps);
      if (effort_.isSpent() || hostExcess(step, timeline_, limits_, prices_))
        break;
      const PageFlags isHosted = hostedPages(step);
      countPages(isHosted);
      GreedyColouring colouring(graph_, pages_, frames_, effort_);
      const std::optional<std::size_t> stuck = colouring.run(first_, oddCycles_);
      if (colouring.isComplete())
        return result(step, isHosted, colouring);
      if (stuck)
        hostFor(*stuck, static_cast<std::uint64_t>(-colouring.slack(*stuck)));
    }
    return std::nullopt;
  }

  /// Whether cliques that want more than there is were all that was in the way.
  bool sawOnlyCliques() const { return promotions_ == 0; }

private:
  void countPages(const PageFlags &isHosted) {
    pages_.assign(graph_.size(), 0);
    for (std::size_t one = 0; one < graph_.size(); ++one)
      for (PieceIndex piece : graph_.pieces(one)) {
        forEachPage(isHosted, timeline_.piece(piece), [&](std::uint32_t) { ++pages_[one]; });
        effort_.spend(timeline_.piece(piece).pageCount);
      }
  }

  /// Adds a clique or an odd cycle that wants more pages than there are frames. If none is found around the class that
  /// found too few, those of an odd cycle that nearly does choose first from now on, or else the class
  /// itself. In the end the limit that comes nearest is to host what was missing.
  void hostFor(std::size_t stuck, std::uint64_t missing) {
    ClassLimit limit = graph_.cliqueAround(stuck, pages_, frames_);
    if (limit.isTooLarge())
      return addLimit(limit, limit.mostPages);
    if (std::optional<ClassLimit> oddCycle =
            looksForOddCycles_ ? graph_.oddCycleAround(stuck, pages_, frames_) : std::nullopt) {
      const bool isNew = isNearlyTooLarge(*oddCycle) && addOddCycle(oddCycle->oddCycle);
      if (oddCycle->isTooLarge())
        return addLimit(*oddCycle, oddCycle->mostPages);
      if (isNew)
        return;
      if (oddCycle->mostPages - oddCycle->pages < limit.mostPages - limit.pages)
        limit = std::move(*oddCycle);
    }
    if (promotions_++ < knobs::mostRetries) {
      std::erase(first_, stuck);
      first_.insert(first_.begin(), stuck);
      return;
    }
    addLimit(limit, limit.pages - std::min(limit.pages, missing));
  }

  /// Returns whether it is a new one, wherever it begins.
  bool addOddCycle(const std::vector<std::size_t> &oddCycle) {
    for (const std::vector<std::size_t> &known : oddCycles_)
      if (std::is_permutation(known.begin(), known.end(), oddCycle.begin(), oddCycle.end()))
        return false;
    oddCycles_.push_back(oddCycle);
    return true;
  }

  static bool isNearlyTooLarge(const ClassLimit &limit) {
    return limit.pages > limit.mostPages - limit.mostPages / nearlyTooLarge;
  }

  void addLimit(const ClassLimit &limit, std::uint64_t mostPages) {
    FrameLimit added{{}, mostPages};
    for (std::size_t one : limit.classes)
      added.pieces.insert(added.pieces.end(), graph_.pieces(one).begin(), graph_.pieces(one).end());
    limits_.push_back(std::move(added));
  }

  WideColouring result(const Description &step, const PageFlags &isHosted, const GreedyColouring &colouring) const {
    WideColouring result{{}, noPages(step), 0};
    for (BufferIndex b = 0; b < step.buffers.size(); ++b)
      result.frames.emplace_back(step.pageCount(b), noFrame);
    for (std::size_t one = 0; one < graph_.size(); ++one) {
      auto frame = colouring.homes(one).begin();
      for (PieceIndex index : graph_.pieces(one)) {
        const Piece &piece = timeline_.piece(index);
        forEachPage(isHosted, piece, [&](std::uint32_t page) {
          result.frames[piece.buffer][page] = static_cast<std::int32_t>(*frame++);
        });
      }
    }
    for (const FrameLimit &limit : limits_)
      for (PieceIndex index : limit.pieces) {
        const Piece &piece = timeline_.piece(index);
        forEachPage(isHosted, piece, [&](std::uint32_t page) { result.isTight[piece.buffer][page] = true; });
      }
    return result;
  }

  const Timeline &timeline_;
  std::uint64_t frames_;
  const HostingPrices &prices_;
  const InterferenceGraph &graph_;
  Effort &effort_;
  bool looksForOddCycles_;
  std::vector<FrameLimit> limits_;
  std::vector<std::uint64_t> pages_;                ///< by class: not hosted
  std::vector<std::size_t> first_;                  ///< classes that found no frames, the latest first
  std::vector<std::vector<std::size_t>> oddCycles_; ///< too large, or nearly: they choose next
  int promotions_ = 0;
};

/// What is hosted, at its prices.
double hostingUs(const Description &step, const Timeline &timeline, const HostingPrices &prices) {
  const PageFlags isHosted = hostedPages(step);
  double us = 0;
  for (const PieceIndex index : indicesOf(timeline.pieces())) {
    const Piece &piece = timeline.piece(index);
    const auto begin = isHosted[piece.buffer].begin() + piece.firstPage;
    us += prices.pages[index].aloneUs * static_cast<double>(std::count(begin, begin + piece.pageCount, true));
  }
  return us;
}

} // namespace

std::optional<WideColouring> hostForColouring(Description &step, const Timeline &timeline, std::uint64_t frames,
                                              const Machine &machine, Effort &effort) {
  const InterferenceGraph classes(timeline, effort);
  if (classes.isTooLarge())
    return std::nullopt;
  const HostingPrices prices = hostingPrices(timeline, frames, machine);
  WideColourer simple(timeline, frames, prices, classes, effort, OddCycles::No);
  std::optional<WideColouring> best = simple.run(step);
  if (best && !simple.sawOnlyCliques() && hostedBytes(step) > 0) {
    Description other = step;
    std::optional<WideColouring> around =
        WideColourer(timeline, frames, prices, classes, effort, OddCycles::Yes).run(other);
    if (around && hostingUs(other, timeline, prices) < hostingUs(step, timeline, prices)) {
      best = std::move(around);
      step = std::move(other);
    }
  }
  if (best)
    best->hostingUs = hostingUs(step, timeline, prices);
  return best;
}

} // namespace pumpgraph
