// SPDX-License-Identifier: Apache-2.0
#include "passes/plan/price/HostedCover.h"

#include "passes/analysis/Indices.h"

#include <algorithm>

namespace pumpgraph {

HostedCover::HostedCover(const Timeline &timeline, const std::vector<FrameLimit> &limits, const HostingPrices &prices,
                         const std::vector<bool> &canBeHosted)
    : timeline_(timeline), limits_(limits), prices_(prices), canBeHosted_(canBeHosted),
      limitsOf_(timeline.pieces().size()), hosted_(timeline.pieces().size(), 0), needy_(timeline.pieces().size(), 0) {
  for (std::size_t limit = 0; limit < limits.size(); ++limit) {
    std::int64_t excess = -static_cast<std::int64_t>(limits[limit].mostPages);
    for (PieceIndex piece : limits[limit].pieces) {
      excess += timeline.piece(piece).pageCount;
      limitsOf_[piece].push_back(limit);
    }
    excess_.push_back(excess);
  }
}

void HostedCover::cover() {
  queue();
  while (!queue_.empty()) {
    const auto [price, piece] = queue_.top();
    queue_.pop();
    if (needy_[piece] == 0)
      continue;
    if (priceOf(piece) > price) { // fewer limits need it than when it was queued
      queue_.push({priceOf(piece), piece});
      continue;
    }
    take(piece);
  }
  giveBack();
}

std::optional<std::size_t> HostedCover::uncovered() const {
  const auto found = std::find_if(excess_.begin(), excess_.end(), [](std::int64_t pages) { return pages > 0; });
  if (found == excess_.end())
    return std::nullopt;
  return found - excess_.begin();
}

void HostedCover::queue() {
  for (const PieceIndex piece : indicesOf(timeline_.pieces())) {
    for (std::size_t limit : limitsOf_[piece])
      needy_[piece] += excess_[limit] > 0;
    if (needy_[piece] > 0 && canBeHosted_[static_cast<std::size_t>(piece)])
      queue_.push({priceOf(piece), piece});
  }
}

/// Takes pages until the piece is used up or one of its limits has enough.
void HostedCover::take(PieceIndex piece) {
  std::int64_t pages = timeline_.piece(piece).pageCount - hosted_[piece];
  for (std::size_t limit : limitsOf_[piece])
    if (excess_[limit] > 0)
      pages = std::min(pages, excess_[limit]);
  hosted_[piece] += static_cast<std::uint32_t>(pages);
  taken_.push_back(piece);
  for (std::size_t limit : limitsOf_[piece]) {
    const bool wasOver = excess_[limit] > 0;
    excess_[limit] -= pages;
    if (wasOver && excess_[limit] <= 0)
      for (PieceIndex member : limits_[limit].pieces)
        --needy_[member];
  }
  if (needy_[piece] > 0 && hosted_[piece] < timeline_.piece(piece).pageCount)
    queue_.push({priceOf(piece), piece});
}

/// What was taken early may have become superfluous by what was taken later for other limits.
void HostedCover::giveBack() {
  for (auto piece = taken_.rbegin(); piece != taken_.rend(); ++piece) {
    const std::int64_t pages = superfluous(*piece);
    hosted_[*piece] -= static_cast<std::uint32_t>(pages);
    for (std::size_t limit : limitsOf_[*piece])
      excess_[limit] += pages;
  }
}

std::int64_t HostedCover::superfluous(PieceIndex piece) const {
  std::int64_t pages = hosted_[piece];
  for (std::size_t limit : limitsOf_[piece])
    pages = std::min(pages, std::max<std::int64_t>(0, -excess_[limit]));
  return pages;
}

} // namespace pumpgraph
