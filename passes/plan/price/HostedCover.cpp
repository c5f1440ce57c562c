// SPDX-License-Identifier: Apache-2.0
#include "passes/plan/price/HostedCover.h"

#include "passes/analysis/HostedAccess.h"
#include "passes/analysis/Indices.h"
#include "passes/plan/Knobs.h"

#include <algorithm>
#include <span>

namespace pumpgraph {

namespace {

/// What an exchange has to gain, as a part of what it costs.
constexpr double tolerance = 1e-6;

} // namespace

HostedCover::HostedCover(const Timeline &timeline, const std::vector<FrameLimit> &limits, const HostingPrices &prices,
                         const IndexedVector<PieceIndex, bool> &canBeHosted)
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
    if (needy_[piece] > 0 && canBeHosted_[piece])
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

void HostedCover::balance() {
  upBytes_.assign(timeline_.nodeCount(), 0);
  downBytes_.assign(timeline_.nodeCount(), 0);
  std::int64_t largest = 0;
  for (const PieceIndex piece : indicesOf(timeline_.pieces())) {
    if (!limitsOf_[piece].empty() && canBeHosted_[piece])
      members_.push_back(piece);
    const std::int64_t pages = std::exchange(hosted_[piece], 0);
    for (std::size_t limit : limitsOf_[piece])
      excess_[limit] += pages;
    if (pages > 0)
      apply({piece, pages});
    largest = std::max(largest, pages);
  }
  for (std::int64_t pages = largest / 2; pages > 0; pages /= 2)
    for (bool isBetter = true; isBetter;) {
      isBetter = false;
      for (PieceIndex piece : members_)
        isBetter |= effort_ < knobs::mostBalanceSteps && exchange(piece, pages);
    }
}

/// Hosts more of a piece, and gives back what that makes superfluous, the dearest first; unless that costs more.
bool HostedCover::exchange(PieceIndex piece, std::int64_t pages) {
  const Change more{piece, std::min<std::int64_t>(pages, timeline_.piece(piece).pageCount - hosted_[piece])};
  if (more.pages == 0)
    return false;
  std::vector<Change> changes{more};
  const double moreUs = costUs(more);
  double us = moreUs;
  apply(more);
  for (;;) {
    Change dearest{piece, 0};
    double leastUs = 0, least = 0;
    effort_ += members_.size();
    for (PieceIndex other : members_) {
      const Change less{other, other == piece ? 0 : -superfluous(other)};
      if (less.pages == 0)
        continue;
      const double gainUs = costUs(less);
      if (dearest.pages == 0 || gainUs / static_cast<double>(-less.pages) < least) {
        dearest = less;
        leastUs = gainUs;
        least = gainUs / static_cast<double>(-less.pages);
      }
    }
    if (dearest.pages == 0)
      break;
    us += leastUs;
    apply(dearest);
    changes.push_back(dearest);
  }
  if (changes.size() > 1 && us < -tolerance * std::max(moreUs, 0.0))
    return true;
  for (auto change = changes.rbegin(); change != changes.rend(); ++change)
    apply({change->piece, -change->pages});
  return false;
}

double HostedCover::costUs(Change change) {
  const Piece &piece = timeline_.piece(change.piece);
  const double bytes = static_cast<double>(piece.bytes) / piece.pageCount * static_cast<double>(change.pages);
  double us = prices_.pages[change.piece].besideUs * static_cast<double>(change.pages);
  const std::span<const Use> uses = timeline_.usesOf(change.piece);
  for (const Use &use : uses) {
    const double up = upBytes_[use.node], down = downBytes_[use.node];
    const double load = bytes * use.slowdown;
    us += linkUs(up + (use.readsOld ? load : 0), down + (use.writes ? load : 0), prices_.machine) -
          linkUs(up, down, prices_.machine);
  }
  effort_ += uses.size() + limitsOf_[change.piece].size();
  return us;
}

void HostedCover::apply(Change change) {
  const Piece &piece = timeline_.piece(change.piece);
  const double bytes = static_cast<double>(piece.bytes) / piece.pageCount * static_cast<double>(change.pages);
  for (const Use &use : timeline_.usesOf(change.piece)) {
    upBytes_[use.node] += use.readsOld ? bytes * use.slowdown : 0;
    downBytes_[use.node] += use.writes ? bytes * use.slowdown : 0;
  }
  hosted_[change.piece] = static_cast<std::uint32_t>(hosted_[change.piece] + change.pages);
  for (std::size_t limit : limitsOf_[change.piece])
    excess_[limit] -= change.pages;
}

} // namespace pumpgraph
