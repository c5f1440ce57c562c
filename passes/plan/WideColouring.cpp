// SPDX-License-Identifier: Apache-2.0
#include "passes/plan/WideColouring.h"

#include <algorithm>
#include <bit>
#include <map>
#include <optional>
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
/// Of a piece in a clique when what is hosted is chosen anew, and of a kind when colouring begins anew: memory is
/// allocated, and queues and lists are gone through.
constexpr std::uint64_t effortOfMember = 32;

class Bits {
public:
  explicit Bits(std::size_t count = 0) : words_((count + 63) / 64, 0) {}
  void set(std::size_t i) { words_[i / 64] |= std::uint64_t{1} << i % 64; }
  bool operator[](std::size_t i) const { return words_[i / 64] >> i % 64 & 1; }
  /// Returns how many are new.
  std::uint64_t add(const Bits &other) {
    std::uint64_t added = 0;
    for (std::size_t i = 0; i < words_.size(); ++i)
      if (const std::uint64_t more = other.words_[i] & ~words_[i]) {
        words_[i] |= more;
        added += static_cast<std::uint64_t>(std::popcount(more));
      }
    return added;
  }
  Bits &operator&=(const Bits &other) {
    for (std::size_t i = 0; i < words_.size(); ++i)
      words_[i] &= other.words_[i];
    return *this;
  }
  std::size_t words() const { return words_.size(); }

private:
  std::vector<std::uint64_t> words_;
};

/// What has been looked at: words of 64 frames or kinds, and kinds and pieces one by one.
class Effort {
public:
  void spend(std::uint64_t count) { spent_ += count; }
  bool isSpent() const { return spent_ >= mostColouringEffort; }
  std::uint64_t spent() const { return spent_; }

private:
  std::uint64_t spent_ = 0;
};

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

/// Pieces that the same nodes use are one kind: they meet each other and the same others.
class Kinds {
public:
  Kinds(const Timeline &timeline, Effort &effort) : effort_(effort) {
    std::map<std::vector<NodeIndex>, std::size_t> byUsers;
    for (std::size_t i = 0; i < timeline.pieces().size(); ++i) {
      const PieceIndex piece = static_cast<PieceIndex>(i);
      std::vector<NodeIndex> users;
      for (const Use &use : timeline.usesOf(piece))
        users.push_back(use.node);
      effort_.spend(users.size());
      if (users.empty())
        continue;
      const auto [found, isNew] = byUsers.try_emplace(std::move(users), pieces_.size());
      if (isNew)
        pieces_.emplace_back();
      pieces_[found->second].push_back(piece);
    }
    if (size() <= mostKinds)
      findWhoMeets(byUsers, timeline.nodeCount());
  }

  std::size_t size() const { return pieces_.size(); }
  const std::vector<PieceIndex> &pieces(std::size_t kind) const { return pieces_[kind]; }
  const Bits &around(std::size_t kind) const { return meets_[kind]; } ///< itself included

private:
  void findWhoMeets(const std::map<std::vector<NodeIndex>, std::size_t> &byUsers, NodeIndex nodeCount) {
    std::vector<std::vector<std::size_t>> kindsAt(nodeCount);
    for (const auto &[nodes, kind] : byUsers)
      for (NodeIndex node : nodes)
        kindsAt[node].push_back(kind);
    meets_.assign(size(), Bits(size()));
    for (const std::vector<std::size_t> &kinds : kindsAt) {
      Bits together(size());
      for (std::size_t kind : kinds)
        together.set(kind);
      for (std::size_t kind : kinds)
        meets_[kind].add(together);
      effort_.spend((kinds.size() + 1) * together.words());
      if (effort_.isSpent())
        return;
    }
  }

  Effort &effort_;
  std::vector<std::vector<PieceIndex>> pieces_;
  std::vector<Bits> meets_;
};

/// Greedy colouring of kinds by how few frames are left for them (DSATUR). colourPieces() has another, which is worse
/// but keeps to given frames and needs no matrix.
class GreedyColouring {
public:
  /// `pages`: by kind, those that need frames.
  GreedyColouring(const Kinds &kinds, const std::vector<std::uint64_t> &pages, std::uint64_t frames, Effort &effort)
      : kinds_(kinds), pages_(pages), frames_(frames), effort_(effort), taken_(kinds.size(), Bits(frames)),
        isColoured_(kinds.size(), false), homes_(kinds.size()) {
    for (std::uint64_t count : pages)
      slack_.push_back(static_cast<std::int64_t>(frames) - static_cast<std::int64_t>(count));
    effort_.spend(kinds.size() * (Bits(frames).words() + effortOfMember));
  }

  /// Those in `first` choose before the others. Returns a kind that finds too few frames; how many are missing is
  /// `-slack(kind)` then. Stops once the effort is spent.
  std::optional<std::size_t> run(const std::vector<std::size_t> &first) {
    for (std::size_t kind : first)
      if (!colour(kind))
        return kind;
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

  bool colour(std::size_t kind) {
    if (slack_[kind] < 0)
      return false;
    isColoured_[kind] = true;
    Bits own(frames_);
    for (std::uint32_t frame = 0; homes_[kind].size() < pages_[kind]; ++frame)
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

  const Kinds &kinds_;
  const std::vector<std::uint64_t> &pages_;
  std::uint64_t frames_;
  Effort &effort_;
  std::vector<Bits> taken_; ///< by kind: frames of those that it meets
  std::vector<std::int64_t> slack_;
  std::vector<bool> isColoured_;
  std::vector<std::vector<std::uint32_t>> homes_;
  bool isComplete_ = false;
};

/// Colours what is not hosted, time and again as more is.
class WideColourer {
public:
  WideColourer(const Timeline &timeline, std::uint64_t frames, const Machine &machine, Balance balance)
      : timeline_(timeline), frames_(frames), prices_(hostingPrices(timeline, frames, machine)), balance_(balance),
        cliques_(wideNodes(timeline, frames)), kinds_(timeline, effort_) {}

  tl::expected<WideColouring, NoColouring> run(Description &step) {
    while (kinds_.size() <= mostKinds && !effort_.isSpent()) {
      for (const Clique &clique : cliques_)
        effort_.spend(clique.pieces.size() * effortOfMember);
      effort_.spend(timeline_.pieces().size() + (balance_ == Balance::Nodes ? mostBalancing : 0));
      if (effort_.isSpent() || hostExcess(step, timeline_, cliques_, prices_, balance_))
        break;
      const PageFlags isHosted = hostedPages(step);
      countPages(isHosted);
      GreedyColouring colouring(kinds_, pages_, frames_, effort_);
      const std::optional<std::size_t> stuck = colouring.run(first_);
      if (colouring.isComplete())
        return result(step, isHosted, colouring);
      if (stuck)
        hostFor(*stuck, colouring);
    }
    return tl::unexpected(NoColouring{effort_.spent()});
  }

private:
  void countPages(const PageFlags &isHosted) {
    pages_.assign(kinds_.size(), 0);
    for (std::size_t kind = 0; kind < kinds_.size(); ++kind)
      for (PieceIndex piece : kinds_.pieces(kind)) {
        forEachPage(isHosted, timeline_.piece(piece), [&](std::uint32_t) { ++pages_[kind]; });
        effort_.spend(timeline_.piece(piece).pageCount);
      }
  }

  /// Adds a clique that wants more pages than there are frames. If none is found around the kind that found too few, it
  /// is to choose first, and in the end the heaviest clique is to host what was missing.
  void hostFor(std::size_t stuck, const GreedyColouring &colouring) {
    auto [pages, clique] = cliqueAround(stuck);
    clique.mostPages = frames_;
    if (pages <= frames_ && promotions_++ < mostPromotions) {
      std::erase(first_, stuck);
      first_.insert(first_.begin(), stuck);
      return;
    }
    if (pages <= frames_) {
      const std::uint64_t missing = static_cast<std::uint64_t>(-colouring.slack(stuck));
      clique.mostPages = pages - std::min(pages, std::max(missing, frames_ / leastPart));
    }
    cliques_.push_back(std::move(clique));
  }

  /// The heaviest clique found around `kind`: with each of those that it meets, greedily. Returns its pages too.
  std::pair<std::uint64_t, Clique> cliqueAround(std::size_t kind) {
    std::vector<std::size_t> around;
    for (std::size_t other = 0; other < kinds_.size(); ++other)
      if (other != kind && kinds_.around(kind)[other])
        around.push_back(other);
    std::stable_sort(around.begin(), around.end(), [&](std::size_t a, std::size_t b) { return pages_[a] > pages_[b]; });
    effort_.spend(kinds_.size() + around.size() * static_cast<std::uint64_t>(std::bit_width(around.size())));
    std::pair<std::uint64_t, std::vector<std::size_t>> best{pages_[kind], {kind}};
    for (std::size_t i = 0; i < std::min(around.size(), mostSeeds) && !effort_.isSpent(); ++i) {
      std::vector<std::size_t> members{kind, around[i]};
      std::uint64_t pages = pages_[kind] + pages_[around[i]];
      Bits meetAll = kinds_.around(around[i]);
      for (std::size_t other : around)
        if (other != around[i] && meetAll[other]) {
          members.push_back(other);
          pages += pages_[other];
          meetAll &= kinds_.around(other);
        }
      effort_.spend(around.size() + members.size() * meetAll.words());
      if (pages > best.first)
        best = {pages, std::move(members)};
    }
    Clique clique;
    for (std::size_t member : best.second)
      clique.pieces.insert(clique.pieces.end(), kinds_.pieces(member).begin(), kinds_.pieces(member).end());
    return {best.first, std::move(clique)};
  }

  WideColouring result(const Description &step, const PageFlags &isHosted, const GreedyColouring &colouring) const {
    WideColouring result{{}, noPages(step), effort_.spent()};
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
    for (const Clique &clique : cliques_)
      for (PieceIndex index : clique.pieces) {
        const Piece &piece = timeline_.piece(index);
        forEachPage(isHosted, piece, [&](std::uint32_t page) { result.isTight[piece.buffer][page] = true; });
      }
    return result;
  }

  const Timeline &timeline_;
  std::uint64_t frames_;
  const HostingPrices prices_;
  Balance balance_;
  std::vector<Clique> cliques_;
  Effort effort_;
  Kinds kinds_;
  std::vector<std::uint64_t> pages_; ///< by kind: not hosted
  std::vector<std::size_t> first_;   ///< kinds that found no frames, the latest first
  int promotions_ = 0;
};

} // namespace

tl::expected<WideColouring, NoColouring> hostForColouring(Description &step, const Timeline &timeline,
                                                          std::uint64_t frames, const Machine &machine,
                                                          Balance balance) {
  return WideColourer(timeline, frames, machine, balance).run(step);
}

} // namespace pumpgraph
