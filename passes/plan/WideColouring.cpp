// SPDX-License-Identifier: Apache-2.0
#include "passes/plan/WideColouring.h"

#include <tl/expected.hpp>

#include <algorithm>
#include <bit>
#include <map>
#include <numeric>
#include <span>
#include <utility>

namespace pumpgraph {

namespace {

/// Kinds of pieces above which the matrix of who meets whom becomes too large.
constexpr std::size_t mostKinds = 4096;
/// Members of the clash tried as the second of a clique.
constexpr std::size_t mostSeeds = 64;
/// How often a kind that found no frames is to choose first, before more is hosted for its sake.
constexpr int mostPromotions = 32;
/// Of the frames: as much is hosted at least when it is not clear for whose sake.
constexpr std::uint64_t leastPart = 64;
/// Words of frames looked at, about a second.
constexpr std::uint64_t mostEffort = 1'000'000'000;
/// How often more is hosted.
constexpr int mostClashes = 100;

class Bits {
public:
  explicit Bits(std::size_t count = 0) : words_((count + 63) / 64, 0) {}
  void set(std::size_t i) { words_[i / 64] |= std::uint64_t{1} << i % 64; }
  bool operator[](std::size_t i) const { return words_[i / 64] >> i % 64 & 1; }
  Bits &operator|=(const Bits &other) {
    for (std::size_t i = 0; i < words_.size(); ++i)
      words_[i] |= other.words_[i];
    return *this;
  }
  std::uint64_t count() const {
    return std::accumulate(words_.begin(), words_.end(), std::uint64_t{0}, [](std::uint64_t sum, std::uint64_t word) {
      return sum + static_cast<std::uint64_t>(std::popcount(word));
    });
  }

private:
  std::vector<std::uint64_t> words_;
};

bool isHosted(const Description &step, BufferIndex buffer, std::uint64_t page) {
  const std::vector<Range> &hosted = step.buffers[buffer].hosted;
  return std::any_of(hosted.begin(), hosted.end(),
                     [&](const Range &range) { return range.overlaps({page * step.pageBytes, 1}); });
}

/// Calls `visit(page)` for each page of the piece that is not hosted.
template <typename Visit> void forEachPage(const Description &step, const Piece &piece, Visit visit) {
  for (std::uint32_t page = piece.firstPage; page < piece.firstPage + piece.pageCount; ++page)
    if (!isHosted(step, piece.buffer, page))
      visit(page);
}

/// Pieces that the same nodes use are one kind: they meet each other and the same others.
class Kinds {
public:
  Kinds(const Description &step, const Timeline &timeline) {
    std::map<std::vector<NodeIndex>, std::size_t> byUsers;
    for (std::size_t i = 0; i < timeline.pieces().size(); ++i) {
      const PieceIndex piece = static_cast<PieceIndex>(i);
      std::vector<NodeIndex> users;
      for (const Use &use : timeline.usesOf(piece))
        users.push_back(use.node);
      if (users.empty())
        continue;
      const auto [found, isNew] = byUsers.try_emplace(std::move(users), pieces_.size());
      if (isNew) {
        pieces_.emplace_back();
        pages_.push_back(0);
      }
      pieces_[found->second].push_back(piece);
      forEachPage(step, timeline.piece(piece), [&](std::uint32_t) { ++pages_[found->second]; });
    }
    if (pieces_.size() <= mostKinds)
      findWhoMeets(byUsers, timeline.nodeCount());
  }

  std::size_t size() const { return pieces_.size(); }
  std::uint64_t pages(std::size_t kind) const { return pages_[kind]; } ///< not hosted
  const std::vector<PieceIndex> &pieces(std::size_t kind) const { return pieces_[kind]; }
  bool meet(std::size_t a, std::size_t b) const { return meets_[a][b]; }

  /// The heaviest clique found around `kind`: with each of those that it meets, greedily. Returns its pages too.
  std::pair<std::uint64_t, Clique> cliqueAround(std::size_t kind) const {
    std::vector<std::size_t> around;
    for (std::size_t other = 0; other < size(); ++other)
      if (other != kind && meet(kind, other))
        around.push_back(other);
    std::stable_sort(around.begin(), around.end(), [&](std::size_t a, std::size_t b) { return pages_[a] > pages_[b]; });
    std::pair<std::uint64_t, std::vector<std::size_t>> best{pages_[kind], {kind}};
    for (std::size_t i = 0; i < std::min(around.size(), mostSeeds); ++i) {
      std::vector<std::size_t> members{kind, around[i]};
      std::uint64_t pages = pages_[kind] + pages_[around[i]];
      for (std::size_t other : around)
        if (other != around[i] &&
            std::all_of(members.begin(), members.end(), [&](std::size_t member) { return meet(member, other); })) {
          members.push_back(other);
          pages += pages_[other];
        }
      if (pages > best.first)
        best = {pages, std::move(members)};
    }
    Clique clique;
    for (std::size_t member : best.second)
      clique.pieces.insert(clique.pieces.end(), pieces_[member].begin(), pieces_[member].end());
    return {best.first, std::move(clique)};
  }

private:
  void findWhoMeets(const std::map<std::vector<NodeIndex>, std::size_t> &byUsers, NodeIndex nodeCount) {
    std::vector<Bits> users(nodeCount, Bits(size()));
    for (const auto &[nodes, kind] : byUsers)
      for (NodeIndex node : nodes)
        users[node].set(kind);
    meets_.assign(size(), Bits(size()));
    for (const auto &[nodes, kind] : byUsers)
      for (NodeIndex node : nodes)
        meets_[kind] |= users[node];
  }

  std::vector<std::vector<PieceIndex>> pieces_;
  std::vector<std::uint64_t> pages_;
  std::vector<Bits> meets_;
};

/// Greedy colouring of kinds by how few frames are left for them (DSATUR).
class Colouring {
public:
  Colouring(const Kinds &kinds, std::uint64_t frames)
      : kinds_(kinds), frames_(frames), around_(kinds.size(), Bits(frames)), slack_(kinds.size()),
        isColoured_(kinds.size(), false), homes_(kinds.size()) {
    for (std::size_t kind = 0; kind < kinds.size(); ++kind)
      slack_[kind] = static_cast<std::int64_t>(frames) - static_cast<std::int64_t>(kinds.pages(kind));
  }

  /// Those in `first` choose before the others. Returns a kind that finds too few frames; how many are missing is
  /// `-slack(kind)` then.
  std::optional<std::size_t> run(const std::vector<std::size_t> &first) {
    for (std::size_t kind : first)
      if (!colour(kind))
        return kind;
    while (const std::optional<std::size_t> kind = tightest())
      if (!colour(*kind))
        return kind;
    return std::nullopt;
  }

  std::int64_t slack(std::size_t kind) const { return slack_[kind]; }
  const std::vector<std::uint32_t> &homes(std::size_t kind) const { return homes_[kind]; }
  std::uint64_t effort() const { return effort_; }

private:
  /// Of those without frames: the one with the least choice, and among equals the largest.
  std::optional<std::size_t> tightest() const {
    std::optional<std::size_t> best;
    for (std::size_t kind = 0; kind < kinds_.size(); ++kind)
      if (!isColoured_[kind] && kinds_.pages(kind) > 0 &&
          (!best || slack_[kind] < slack_[*best] ||
           (slack_[kind] == slack_[*best] && kinds_.pages(kind) > kinds_.pages(*best))))
        best = kind;
    return best;
  }

  bool colour(std::size_t kind) {
    if (slack_[kind] < 0)
      return false;
    isColoured_[kind] = true;
    Bits taken(frames_);
    for (std::uint32_t frame = 0; homes_[kind].size() < kinds_.pages(kind); ++frame)
      if (!around_[kind][frame]) {
        homes_[kind].push_back(frame);
        taken.set(frame);
      }
    for (std::size_t other = 0; other < kinds_.size(); ++other)
      if (!isColoured_[other] && kinds_.meet(kind, other)) {
        around_[other] |= taken;
        effort_ += frames_ / 64 + 1;
        slack_[other] = static_cast<std::int64_t>(frames_ - around_[other].count()) -
                        static_cast<std::int64_t>(kinds_.pages(other));
      }
    return true;
  }

  const Kinds &kinds_;
  std::uint64_t frames_;
  std::vector<Bits> around_; ///< by kind: frames of those that it meets
  std::vector<std::int64_t> slack_;
  std::vector<bool> isColoured_;
  std::vector<std::vector<std::uint32_t>> homes_;
  std::uint64_t effort_ = 0;
};

/// Colours what is not hosted, time and again as more is.
class WideColourer {
public:
  WideColourer(const Timeline &timeline, std::uint64_t frames) : timeline_(timeline), frames_(frames) {}

  /// Returns a clique that wants too many frames if some are missing, or an empty one if nobody knows.
  tl::expected<PageFrames, Clique> run(const Description &step) {
    const Kinds kinds(step, timeline_);
    if (kinds.size() > mostKinds)
      return tl::unexpected(Clique{});
    while (true) {
      Colouring colouring(kinds, frames_);
      const std::optional<std::size_t> stuck = colouring.run(first_);
      effort_ += colouring.effort();
      if (!stuck)
        return framesOf(step, kinds, colouring);
      if (effort_ > mostEffort)
        return tl::unexpected(Clique{});
      auto [pages, clique] = kinds.cliqueAround(*stuck);
      clique.mostPages = frames_;
      if (pages > frames_)
        return tl::unexpected(std::move(clique));
      if (promotions_++ < mostPromotions) {
        std::erase(first_, *stuck);
        first_.insert(first_.begin(), *stuck);
        continue;
      }
      const std::uint64_t missing = static_cast<std::uint64_t>(-colouring.slack(*stuck));
      clique.mostPages = pages - std::min(pages, std::max(missing, frames_ / leastPart));
      return tl::unexpected(std::move(clique));
    }
  }

private:
  PageFrames framesOf(const Description &step, const Kinds &kinds, const Colouring &colouring) const {
    PageFrames result;
    for (BufferIndex b = 0; b < step.buffers.size(); ++b)
      result.emplace_back(step.pageCount(b), noFrame);
    for (std::size_t kind = 0; kind < kinds.size(); ++kind) {
      auto frame = colouring.homes(kind).begin();
      for (PieceIndex index : kinds.pieces(kind))
        forEachPage(step, timeline_.piece(index), [&](std::uint32_t page) {
          result[timeline_.piece(index).buffer][page] = static_cast<std::int32_t>(*frame++);
        });
    }
    return result;
  }

  const Timeline &timeline_;
  std::uint64_t frames_;
  std::vector<std::size_t> first_; ///< kinds that found no frames, the latest first
  int promotions_ = 0;
  std::uint64_t effort_ = 0;
};

} // namespace

std::optional<WideColouring> hostForColouring(Description &step, const Timeline &timeline, std::uint64_t frames,
                                              const Machine &machine) {
  std::vector<Clique> cliques = wideNodes(timeline, frames);
  const PagePrices prices = hostingPrices(timeline, frames, machine);
  WideColourer colourer(timeline, frames);
  for (int clash = 0; clash < mostClashes; ++clash) {
    if (hostExcess(step, timeline, cliques, prices))
      return std::nullopt;
    tl::expected<PageFrames, Clique> homes = colourer.run(step);
    if (!homes && homes.error().pieces.empty())
      return std::nullopt;
    if (!homes) {
      cliques.push_back(std::move(homes.error()));
      continue;
    }
    WideColouring result{std::move(*homes), {}};
    for (const std::vector<std::int32_t> &pages : result.frames)
      result.isTight.emplace_back(pages.size(), false);
    for (const Clique &clique : cliques)
      for (PieceIndex index : clique.pieces)
        forEachPage(step, timeline.piece(index),
                    [&](std::uint32_t page) { result.isTight[timeline.piece(index).buffer][page] = true; });
    return result;
  }
  return std::nullopt;
}

} // namespace pumpgraph
