// SPDX-License-Identifier: Apache-2.0
/// \file
/// Who meets whom: classes of pieces that need frames of their own, and cliques and odd cycles of them that need more
/// than there are (docs/design/planner.md, "Variants of a step").
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

/// What has been looked at: words of 64 frames or classes, and classes and pieces one by one.
class Effort {
public:
  static constexpr std::uint64_t most = 300'000'000; ///< planning waits about a second for it

  void spend(std::uint64_t count) { spent_ += count; }
  bool isSpent() const { return spent_ >= most; }
  std::uint64_t spent() const { return spent_; }

private:
  std::uint64_t spent_ = 0;
};

/// Classes of which only so many can share a frame.
struct ClassLimit {
  std::vector<std::size_t> classes;
  /// Of an odd cycle: five of `classes`, each of which meets the next and the last the first, but no other of them.
  std::vector<std::size_t> oddCycle;
  std::uint64_t pages = 0;     ///< of all of them
  std::uint64_t mostPages = 0; ///< of them that can have frames
  bool isTooLarge() const { return pages > mostPages; }
};

/// Pieces that the same nodes use, and that must be apart from the same others, are one class: they meet each other and
/// the same others. Two classes *meet* if some node uses both, or they must be apart, for then they cannot share
/// frames.
class InterferenceGraph {
public:
  /// Classes above which the matrix of who meets whom becomes too large: then nobody knows, and `isTooLarge()`.
  static constexpr std::size_t mostClasses = 4096;

  /// The effort is referred to.
  InterferenceGraph(const Timeline &timeline, Effort &effort);

  bool isTooLarge() const { return size() > mostClasses; }
  std::size_t size() const { return pieces_.size(); }
  const std::vector<PieceIndex> &pieces(std::size_t one) const { return pieces_[one]; }
  const Bits &around(std::size_t one) const { return meets_[one]; } ///< itself included
  bool meet(std::size_t a, std::size_t b) const { return meets_[a][b]; }

  /// The heaviest clique found around a class, greedily: no two of it share a frame. `pages`: by class.
  ClassLimit cliqueAround(std::size_t one, const std::vector<std::uint64_t> &pages, std::uint64_t frames) const;

  /// The heaviest odd cycle found around a class, with all that may be added so that of any three two still meet: then
  /// at most two share a frame, and those that meet all others share theirs with nobody. Nothing if there is no odd
  /// cycle.
  std::optional<ClassLimit> oddCycleAround(std::size_t one, const std::vector<std::uint64_t> &pages,
                                           std::uint64_t frames) const;

private:
  void findWhoMeets(const std::map<std::vector<NodeIndex>, std::size_t> &byUsers, NodeIndex nodeCount);
  /// All classes, the heaviest first; those that are hosted in whole are last, and members of limits as ever.
  std::vector<std::size_t> byPages(const std::vector<std::uint64_t> &pages) const;
  void growOddCycle(ClassLimit &limit, const std::vector<std::size_t> &heaviest,
                    const std::vector<std::uint64_t> &pages, std::uint64_t frames) const;

  Effort &effort_;
  std::vector<std::vector<PieceIndex>> pieces_;
  std::vector<Bits> meets_;
};

} // namespace pumpgraph
