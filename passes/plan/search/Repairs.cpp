// SPDX-License-Identifier: Apache-2.0
#include "passes/plan/search/Repairs.h"

#include "passes/plan/Knobs.h"

#include <algorithm>
#include <utility>

namespace pumpgraph {

Repairs::Repairs(const PlannerInput &input, const FixedHomes *fixed)
    : input_(input), timeline_(input.timeline), fixed_(fixed) {
  clearCrowd();
}

bool Repairs::repair(NodeIndex stuck, bool hasPlan) {
  if (restarts_ == knobs::mostRetries)
    return false;
  ++restarts_;
  if (!hasPlan)
    gatherCrowd(stuck);
  else
    for (std::uint32_t position : timeline_.usesAt(stuck))
      kept_.insert(timeline_.use(position).piece);
  return true;
}

/// Pieces of the nodes with large working sets choose frames first, the largest first, but before these, pieces of
/// nodes that found none, the latest of them first.
void Repairs::gatherCrowd(NodeIndex stuck) {
  crowded_ = crowded_ == UINT64_MAX ? timeline_.workingSetPages(stuck) : crowded_ - crowded_ / 8;
  std::erase(promoted_, stuck);
  promoted_.insert(promoted_.begin(), stuck);
  std::vector<std::pair<std::uint64_t, NodeIndex>> nodes;
  for (NodeIndex node = 0; node < timeline_.nodeCount(); ++node)
    if (const std::uint64_t pages = timeline_.workingSetPages(node); pages >= crowded_)
      nodes.push_back({pages, node});
  std::stable_sort(nodes.begin(), nodes.end(), [](const auto &a, const auto &b) { return a.first > b.first; });
  for (auto node = promoted_.rbegin(); node != promoted_.rend(); ++node)
    nodes.insert(nodes.begin(), {timeline_.workingSetPages(*node), *node});
  clearCrowd();
  for (const auto &[pages, node] : nodes)
    for (std::uint32_t position : timeline_.usesAt(node))
      join(timeline_.use(position).piece);
}

void Repairs::clearCrowd() {
  crowd_.clear();
  isInCrowd_ = IndexedVector<PieceIndex, bool>(timeline_.pieces().size(), false);
  if (fixed_)
    for (PieceIndex piece : fixed_->tight)
      join(piece);
}

void Repairs::join(PieceIndex piece) {
  if (isInCrowd_[piece])
    return;
  isInCrowd_[piece] = true;
  crowd_.push_back(piece);
}

Choices Repairs::applied(Choices choices, const Evaluated *best) const {
  settleBoundary(choices.start, best);
  std::vector<PieceIndex> first = crowd_;
  for (PieceIndex piece : choices.start.first)
    if (!isInCrowd_[piece])
      first.push_back(piece);
  choices.start.first = std::move(first);
  choices.start.homes = homes(best);
  return choices;
}

/// Of those whose frames are fixed two may share some: then the later of them is away at the boundary. Of those that
/// keep theirs, two that are on the device then in the best plan do not.
void Repairs::settleBoundary(DraftStart &start, const Evaluated *best) const {
  std::vector<bool> isTaken(input_.frameCount, false);
  const auto keepIfFree = [&](PieceIndex piece, const std::vector<std::int32_t> &homes) {
    const bool isFree = std::none_of(homes.begin(), homes.end(),
                                     [&](std::int32_t frame) { return isTaken[static_cast<std::size_t>(frame)]; });
    if (!isFree)
      start.boundary[piece] = BoundaryState::Away;
    else
      for (std::int32_t frame : homes)
        isTaken[static_cast<std::size_t>(frame)] = true;
  };
  // Present pieces, which any two of have frames of their own, come first: they cannot be away.
  if (fixed_)
    for (const bool isGiven : {true, false})
      for (PieceIndex piece : crowd_)
        if (input_.given.isGiven[piece] == isGiven && start.boundary[piece] != BoundaryState::Away)
          keepIfFree(piece, fixed_->homes[piece]);
  for (PieceIndex piece : kept_) {
    if (input_.given.isGiven[piece])
      continue;
    if (best->draft.boundary[piece] == BoundaryState::Away)
      start.boundary[piece] = BoundaryState::Away;
    else if (fixed_ && !isInCrowd_[piece] && start.boundary[piece] != BoundaryState::Away)
      keepIfFree(piece, best->framesOf(timeline_, piece));
  }
}

PieceFrames Repairs::homes(const Evaluated *best) const {
  PieceFrames homes = input_.given.homes;
  if (fixed_)
    for (PieceIndex piece : crowd_)
      homes[piece] = fixed_->homes[piece];
  for (PieceIndex piece : kept_)
    // Given pieces beside fixed ones might be in their frames at the boundary.
    if (!input_.given.hasHome(piece) && !(fixed_ && input_.given.isGiven[piece]))
      homes[piece] = best->framesOf(timeline_, piece);
  return homes;
}

} // namespace pumpgraph
