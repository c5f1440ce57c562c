// SPDX-License-Identifier: Apache-2.0
#include "passes/plan/search/WideColouring.h"

#include "passes/analysis/HostedAccess.h"
#include "passes/plan/search/InterferenceGraph.h"

#include <algorithm>
#include <optional>
#include <utility>

namespace pumpgraph {

namespace {

/// A node is crowded if it uses so much of the frames.
constexpr double crowdedShare = 0.7;
/// How often a kind that found no frames is to choose first, before more is hosted for its sake.
constexpr int mostPromotions = 32;
/// Of the frames: as much is hosted at least when it is not clear for whose sake.
constexpr std::uint64_t leastPart = 64;
/// A ring that is within such a part of too large is coloured first.
constexpr std::uint64_t nearly = 8;
/// Of a piece in a crowd when what is hosted is chosen anew, and of a kind when colouring begins anew: memory is
/// allocated, and queues and lists are gone through.
constexpr std::uint64_t effortOfMember = 32;

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
      for (std::uint64_t page = range.offset / step.pageBytes; page * step.pageBytes < range.end(); ++page)
        isHosted[b][page] = true;
  return isHosted;
}

/// Calls `visit(page)` for each page of the piece that is not hosted.
template <typename Visit> void forEachPage(const PageFlags &isHosted, const Piece &piece, Visit visit) {
  for (std::uint32_t page = piece.firstPage; page < piece.firstPage + piece.pageCount; ++page)
    if (!isHosted[piece.buffer][page])
      visit(page);
}

/// Greedy colouring of kinds by how few frames are left for them (DSATUR). colourPieces() has another, which is worse
/// but keeps to given frames and needs no matrix.
class GreedyColouring {
public:
  /// `pages`: by kind, those that need frames.
  GreedyColouring(const KindGraph &kinds, const std::vector<std::uint64_t> &pages, std::uint64_t frames, Effort &effort)
      : kinds_(kinds), pages_(pages), frames_(frames), effort_(effort), taken_(kinds.size(), Bits(frames)),
        isColoured_(kinds.size(), false), homes_(kinds.size()) {
    for (std::uint64_t count : pages)
      slack_.push_back(static_cast<std::int64_t>(frames) - static_cast<std::int64_t>(count));
    effort_.spend(kinds.size() * (Bits(frames).words() + effortOfMember));
  }

  /// Those in `first` choose before the others, and then those of `rings`: with what one of a ring leaves over the next
  /// one begins, around all frames, so that the third shares no more of the first's than it must. Returns a kind that
  /// finds too few frames; how many are missing is `-slack(kind)` then. Stops once the effort is spent.
  std::optional<std::size_t> run(const std::vector<std::size_t> &first,
                                 const std::vector<std::vector<std::size_t>> &rings) {
    for (std::size_t kind : first)
      if (!colour(kind))
        return kind;
    for (const std::vector<std::size_t> &ring : rings) {
      std::uint32_t from = 0;
      for (std::size_t kind : ring) {
        if (!isColoured_[kind] && !colour(kind, from))
          return kind;
        if (!homes_[kind].empty())
          from = static_cast<std::uint32_t>((homes_[kind].back() + 1) % frames_);
      }
    }
    while (!effort_.isSpent()) {
      const std::optional<std::size_t> kind = tightest();
      isComplete_ = !kind;
      if (!kind || !colour(*kind))
        return kind;
    }
    return std::nullopt;
  }

  bool isComplete() const { return isComplete_; }

  std::int64_t slack(std::size_t kind) const { return slack_[kind]; }
  const std::vector<std::uint32_t> &homes(std::size_t kind) const { return homes_[kind]; }

private:
  /// Of those without frames: the one with the least choice, and among equals the largest.
  std::optional<std::size_t> tightest() {
    std::optional<std::size_t> best;
    for (std::size_t kind = 0; kind < kinds_.size(); ++kind)
      if (!isColoured_[kind] && pages_[kind] > 0 &&
          (!best || slack_[kind] < slack_[*best] || (slack_[kind] == slack_[*best] && pages_[kind] > pages_[*best])))
        best = kind;
    effort_.spend(kinds_.size());
    return best;
  }

  /// The lowest frames from `from` on, and then those below.
  bool colour(std::size_t kind, std::uint32_t from = 0) {
    if (slack_[kind] < 0)
      return false;
    isColoured_[kind] = true;
    Bits own(frames_);
    for (std::uint32_t frame = from; homes_[kind].size() < pages_[kind]; frame = frame + 1 < frames_ ? frame + 1 : 0)
      if (!taken_[kind][frame]) {
        homes_[kind].push_back(frame);
        own.set(frame);
      }
    effort_.spend(frames_ + kinds_.size());
    for (std::size_t other = 0; other < kinds_.size(); ++other)
      if (!isColoured_[other] && kinds_.around(kind)[other]) {
        slack_[other] -= static_cast<std::int64_t>(taken_[other].add(own));
        effort_.spend(own.words());
      }
    return true;
  }

  const KindGraph &kinds_;
  const std::vector<std::uint64_t> &pages_;
  std::uint64_t frames_;
  Effort &effort_;
  std::vector<Bits> taken_; ///< by kind: frames of those that it meets
  std::vector<std::int64_t> slack_;
  std::vector<bool> isColoured_;
  std::vector<std::vector<std::uint32_t>> homes_;
  bool isComplete_ = false;
};

/// Whether rings are looked for beside cliques.
enum class Rings { No, Yes };

/// Colours what is not hosted, time and again as more is.
class WideColourer {
public:
  /// All are referred to.
  WideColourer(const Timeline &timeline, std::uint64_t frames, const HostingPrices &prices, const KindGraph &kinds,
               Effort &effort, Rings rings)
      : timeline_(timeline), frames_(frames), prices_(prices), kinds_(kinds), effort_(effort),
        looksForRings_(rings == Rings::Yes), crowds_(wideNodes(timeline, frames)) {}

  std::optional<WideColouring> run(Description &step) {
    while (!effort_.isSpent()) {
      for (const Crowd &crowd : crowds_)
        effort_.spend(crowd.pieces.size() * effortOfMember);
      effort_.spend(timeline_.pieces().size());
      if (effort_.isSpent() || hostExcess(step, timeline_, crowds_, prices_))
        break;
      const PageFlags isHosted = hostedPages(step);
      countPages(isHosted);
      GreedyColouring colouring(kinds_, pages_, frames_, effort_);
      const std::optional<std::size_t> stuck = colouring.run(first_, rings_);
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
    pages_.assign(kinds_.size(), 0);
    for (std::size_t kind = 0; kind < kinds_.size(); ++kind)
      for (PieceIndex piece : kinds_.pieces(kind)) {
        forEachPage(isHosted, timeline_.piece(piece), [&](std::uint32_t) { ++pages_[kind]; });
        effort_.spend(timeline_.piece(piece).pageCount);
      }
  }

  /// Adds a clique or a ring that wants more pages than there are frames. If none is found around the kind that found
  /// too few, those of a ring that nearly does choose first from now on, or else the kind itself. In the end the crowd
  /// that comes nearest is to host what was missing.
  void hostFor(std::size_t stuck, std::uint64_t missing) {
    KindCrowd crowd = kinds_.cliqueAround(stuck, pages_, frames_);
    if (crowd.isTooLarge())
      return addCrowd(crowd, crowd.mostPages);
    if (std::optional<KindCrowd> ring = looksForRings_ ? kinds_.ringAround(stuck, pages_, frames_) : std::nullopt) {
      const bool isNew = isNearlyTooLarge(*ring) && addRing(ring->ring);
      if (ring->isTooLarge())
        return addCrowd(*ring, ring->mostPages);
      if (isNew)
        return;
      if (ring->mostPages - ring->pages < crowd.mostPages - crowd.pages)
        crowd = std::move(*ring);
    }
    if (promotions_++ < mostPromotions) {
      std::erase(first_, stuck);
      first_.insert(first_.begin(), stuck);
      return;
    }
    addCrowd(crowd, crowd.pages - std::min(crowd.pages, std::max(missing, frames_ / leastPart)));
  }

  /// Returns whether it is a new one, wherever it begins.
  bool addRing(const std::vector<std::size_t> &ring) {
    for (const std::vector<std::size_t> &known : rings_)
      if (std::is_permutation(known.begin(), known.end(), ring.begin(), ring.end()))
        return false;
    rings_.push_back(ring);
    return true;
  }

  static bool isNearlyTooLarge(const KindCrowd &crowd) {
    return crowd.pages > crowd.mostPages - crowd.mostPages / nearly;
  }

  void addCrowd(const KindCrowd &crowd, std::uint64_t mostPages) {
    Crowd added{{}, mostPages};
    for (std::size_t kind : crowd.kinds)
      added.pieces.insert(added.pieces.end(), kinds_.pieces(kind).begin(), kinds_.pieces(kind).end());
    crowds_.push_back(std::move(added));
  }

  WideColouring result(const Description &step, const PageFlags &isHosted, const GreedyColouring &colouring) const {
    WideColouring result{{}, noPages(step), 0, 0};
    for (BufferIndex b = 0; b < step.buffers.size(); ++b)
      result.frames.emplace_back(step.pageCount(b), noFrame);
    for (std::size_t kind = 0; kind < kinds_.size(); ++kind) {
      auto frame = colouring.homes(kind).begin();
      for (PieceIndex index : kinds_.pieces(kind)) {
        const Piece &piece = timeline_.piece(index);
        forEachPage(isHosted, piece, [&](std::uint32_t page) {
          result.frames[piece.buffer][page] = static_cast<std::int32_t>(*frame++);
        });
      }
    }
    for (const Crowd &crowd : crowds_)
      for (PieceIndex index : crowd.pieces) {
        const Piece &piece = timeline_.piece(index);
        forEachPage(isHosted, piece, [&](std::uint32_t page) { result.isTight[piece.buffer][page] = true; });
      }
    return result;
  }

  const Timeline &timeline_;
  std::uint64_t frames_;
  const HostingPrices &prices_;
  const KindGraph &kinds_;
  Effort &effort_;
  bool looksForRings_;
  std::vector<Crowd> crowds_;
  std::vector<std::uint64_t> pages_;            ///< by kind: not hosted
  std::vector<std::size_t> first_;              ///< kinds that found no frames, the latest first
  std::vector<std::vector<std::size_t>> rings_; ///< too large, or nearly: they choose next
  int promotions_ = 0;
};

/// What is hosted, at its prices.
double hostingUs(const Description &step, const Timeline &timeline, const HostingPrices &prices) {
  const PageFlags isHosted = hostedPages(step);
  double us = 0;
  for (std::size_t i = 0; i < timeline.pieces().size(); ++i) {
    const PieceIndex index = static_cast<PieceIndex>(i);
    const Piece &piece = timeline.piece(index);
    const auto begin = isHosted[piece.buffer].begin() + piece.firstPage;
    us += prices[index] * static_cast<double>(std::count(begin, begin + piece.pageCount, true));
  }
  return us;
}

} // namespace

std::vector<NodeIndex> crowdedNodes(const Timeline &timeline, std::uint64_t frames) {
  std::vector<NodeIndex> crowded;
  for (NodeIndex node = 0; node < timeline.nodeCount(); ++node)
    if (static_cast<double>(timeline.workingSetPages(node)) >= crowdedShare * static_cast<double>(frames))
      crowded.push_back(node);
  return crowded;
}

tl::expected<WideColouring, NoColouring> hostForColouring(Description &step, const Timeline &timeline,
                                                          std::uint64_t frames, const Machine &machine) {
  Effort effort(mostColouringEffort);
  const KindGraph kinds(timeline, effort);
  if (kinds.isTooLarge())
    return tl::unexpected(NoColouring{effort.spent()});
  const HostingPrices prices = hostingPrices(timeline, frames, machine);
  WideColourer simple(timeline, frames, prices, kinds, effort, Rings::No);
  std::optional<WideColouring> best = simple.run(step);
  if (best && !simple.sawOnlyCliques() && hostedBytes(step) > 0) {
    Description other = step;
    std::optional<WideColouring> around = WideColourer(timeline, frames, prices, kinds, effort, Rings::Yes).run(other);
    if (around && hostingUs(other, timeline, prices) < hostingUs(step, timeline, prices)) {
      best = std::move(around);
      step = std::move(other);
    }
  }
  if (!best)
    return tl::unexpected(NoColouring{effort.spent()});
  best->hostingUs = hostingUs(step, timeline, prices);
  best->effort = effort.spent();
  return std::move(*best);
}

} // namespace pumpgraph
