// SPDX-License-Identifier: Apache-2.0
/// \file
/// Who meets whom: kinds of pieces that need frames of their own, and crowds of them that need more than there are
/// (docs/design/planner.md, "Variants of a step").
#pragma once

#include "passes/analysis/Timeline.h"

#include <bit>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

namespace pumpgraph {

/// A set of small numbers.
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
  explicit Effort(std::uint64_t most) : most_(most) {}
  void spend(std::uint64_t count) { spent_ += count; }
  bool isSpent() const { return spent_ >= most_; }
  std::uint64_t spent() const { return spent_; }

private:
  std::uint64_t most_;
  std::uint64_t spent_ = 0;
};

/// Kinds of which only so many can share a frame.
struct KindCrowd {
  std::vector<std::size_t> kinds;
  /// Of a ring: five of `kinds`, each of which meets the next and the last the first, but no other of them.
  std::vector<std::size_t> ring;
  std::uint64_t pages = 0;     ///< of all of them
  std::uint64_t mostPages = 0; ///< of them that can have frames
  bool isTooLarge() const { return pages > mostPages; }
};

/// Pieces that the same nodes use, and that must be apart from the same others, are one kind: they meet each other and
/// the same others. Two kinds *meet* if some node uses both, or they must be apart, for then they cannot share frames.
class KindGraph {
public:
  /// Kinds above which the matrix of who meets whom becomes too large: then nobody knows, and `isTooLarge()`.
  static constexpr std::size_t mostKinds = 4096;

  /// The effort is referred to.
  KindGraph(const Timeline &timeline, Effort &effort);

  bool isTooLarge() const { return size() > mostKinds; }
  std::size_t size() const { return pieces_.size(); }
  const std::vector<PieceIndex> &pieces(std::size_t kind) const { return pieces_[kind]; }
  const Bits &around(std::size_t kind) const { return meets_[kind]; } ///< itself included
  bool meet(std::size_t a, std::size_t b) const { return meets_[a][b]; }

  /// The heaviest clique found around `kind`, greedily: no two of it share a frame. `pages`: by kind.
  KindCrowd cliqueAround(std::size_t kind, const std::vector<std::uint64_t> &pages, std::uint64_t frames) const;

  /// The heaviest ring found around `kind`, with all that may be added so that of any three two still meet: then at
  /// most two share a frame, and those that meet all others share theirs with nobody. Nothing if there is no ring.
  std::optional<KindCrowd> ringAround(std::size_t kind, const std::vector<std::uint64_t> &pages,
                                      std::uint64_t frames) const;

private:
  void findWhoMeets(const std::map<std::vector<NodeIndex>, std::size_t> &byUsers, NodeIndex nodeCount);
  /// All kinds, the heaviest first; those that are hosted in whole are last, and members of crowds as ever.
  std::vector<std::size_t> byPages(const std::vector<std::uint64_t> &pages) const;
  void growRing(KindCrowd &crowd, const std::vector<std::size_t> &heaviest, const std::vector<std::uint64_t> &pages,
                std::uint64_t frames) const;

  Effort &effort_;
  std::vector<std::vector<PieceIndex>> pieces_;
  std::vector<Bits> meets_;
};

} // namespace pumpgraph
