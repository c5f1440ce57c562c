// SPDX-License-Identifier: Apache-2.0
/// \file
/// How many pages of which pieces are hosted so that no limit has more than find frames (docs/design/planner.md,
/// "Variants of a step").
#pragma once

#include "passes/plan/price/HostedPages.h"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <queue>
#include <utility>
#include <vector>

namespace pumpgraph {

/// Covers what every limit has too many of: a page of a piece covers one page of each limit that the piece belongs
/// to, at its price. That is a weighted multicover, for which taking what is cheapest for each page it covers is near
/// the best that can be had in reasonable time.
class HostedCover {
public:
  /// All arguments are referred to.
  HostedCover(const Timeline &timeline, const std::vector<FrameLimit> &limits, const HostingPrices &prices,
              const IndexedVector<PieceIndex, bool> &canBeHosted);

  /// Greedily, by what pages cost if nothing else is hosted.
  void cover();

  /// After cover(): hosts others instead where that costs less together. A node reads and writes hosted pages at the
  /// same time, so what it reads is cheap beside what it writes.
  void balance();

  /// By piece, pages.
  const IndexedVector<PieceIndex, std::uint32_t> &hosted() const { return hosted_; }

  /// A limit that still has too many.
  std::optional<std::size_t> uncovered() const;

private:
  using Entry = std::pair<double, PieceIndex>;
  struct Change {
    PieceIndex piece;
    std::int64_t pages;
  };

  void queue();
  double priceOf(PieceIndex piece) const { return prices_.pages[piece].aloneUs / needy_[piece]; }
  void take(PieceIndex piece);
  void giveBack();

  bool exchange(PieceIndex piece, std::int64_t pages);
  /// How many pages could be given back.
  std::int64_t superfluous(PieceIndex piece) const;
  /// What all nodes together take longer if so many more pages are hosted, and what else these cost.
  double costUs(Change change);
  void apply(Change change);

  const Timeline &timeline_;
  const std::vector<FrameLimit> &limits_;
  const HostingPrices &prices_;
  const IndexedVector<PieceIndex, bool> &canBeHosted_;
  std::vector<std::int64_t> excess_; ///< by limit: pages too many, negative where there is room
  IndexedVector<PieceIndex, std::vector<std::size_t>> limitsOf_;
  IndexedVector<PieceIndex, std::uint32_t> hosted_;
  IndexedVector<PieceIndex, std::uint32_t> needy_; ///< of its limits, those that have too many pages still
  std::priority_queue<Entry, std::vector<Entry>, std::greater<>> queue_; ///< equals: the first piece first
  std::vector<PieceIndex> taken_;                                        ///< by cover(), in its order
  std::vector<PieceIndex> members_;         ///< of limits, that can be hosted: what balance() deals with
  std::vector<double> upBytes_, downBytes_; ///< by node, of hosted pages, times the slowdowns
  std::uint64_t effort_ = 0;                ///< of balance(): pieces and uses looked at
};

} // namespace pumpgraph
