// SPDX-License-Identifier: Apache-2.0
#include "passes/plan/allocate/GroupOffers.h"

#include "passes/analysis/Indices.h"
#include "passes/plan/Knobs.h"

#include <algorithm>
#include <span>
#include <tuple>

namespace pumpgraph {

namespace {

/// Of pricing one group, where noting its use is 1.
constexpr std::uint64_t effortOfPrice = 4;

/// Looking further: each so manieth of so many groups after the first, unless it has so many tenants that playing them
/// takes long.
constexpr std::size_t sampleReach = 512, sampleStride = 21, mostTenantsOfSample = 24;

/// Cost of an edge that the captured graph does not have.
constexpr double newEdgeUs = 0.01;

} // namespace

GroupOffers::GroupOffers(const PlannerInput &input, const DraftStart &start, Displacement displacement,
                         const PieceStates &states, const FrameGroups &groups, const TenureOrder &order)
    : input_(input), timeline_(input.timeline), start_(start), displacement_(displacement), states_(states),
      groups_(groups), order_(order), cost_(timeline_, start.slackWeight) {}

/// The first use of a present tenant after the newcomer's last use: from there on all is as it would have been.
std::uint32_t GroupOffers::endOfInterest(const Group &group, PieceIndex newcomer) const {
  const std::uint32_t last =
      states_.isResident(newcomer) ? timeline_.nodeCount() : timeline_.usesOf(newcomer).back().node;
  std::uint32_t end = neverUsed;
  for (const Part &part : group.parts) {
    if (part.nextUse >= last)
      return std::min(end, part.nextUse); // as the others are used later
    const std::span<const Use> uses = states_.usesToCome(part.piece);
    const auto after = std::partition_point(uses.begin(), uses.end(), [&](const Use &u) { return u.node < last; });
    if (after != uses.end())
      end = std::min(end, after->node);
    else if (states_.isResident(part.piece))
      end = std::min(end, timeline_.nodeCount());
  }
  return end == neverUsed ? last : end;
}

/// What it costs a page of the newcomer to live in the group, microseconds: transfers that would not be needed
/// otherwise, and hand-overs with little time. Empty if it would meet a tenant, or must be apart from one that is or
/// was there.
std::optional<double> GroupOffers::costOf(const Group &group, PieceIndex newcomer, std::uint32_t pages, bool fetch) {
  if (states_.isKeptOut(newcomer, group))
    return std::nullopt;
  const NodeIndex now = order_.now();
  const std::uint32_t taken = std::min(group.frameCount, pages);
  const auto [evictUs, fetchUs] = pricesOfBytes(taken * timeline_.pageBytes());

  double costUs = 0;
  for (DraftNode node : group.accesses.empty() ? group.barrier : group.accesses)
    if (order_.isCaptured(node) && !input_.order.completesBefore(node, now))
      costUs += newEdgeUs + std::max(0.0, timeline_.times().endUs[node] - states_.startUs(now));
  if (group.accesses.empty() && order_.endsWithEvict(group))
    costUs += cost_.latenessUs(evictUs, states_.startUs(now) - group.lastUseUs);
  if (group.parts.empty())
    return (costUs + (fetch ? cost_.latenessUs(fetchUs, states_.startUs(now) - group.lastUseUs) : 0.0)) / taken;
  const std::optional<double> sharing = sharingUs(group, newcomer, taken, fetch);
  return sharing ? std::optional((costUs + *sharing) / taken) : std::nullopt;
}

/// What the group's tenants cost with the newcomer beyond what they cost without it. Empty if it would meet one.
std::optional<double> GroupOffers::sharingUs(const Group &group, PieceIndex newcomer, std::uint32_t taken, bool fetch) {
  const std::uint32_t until = endOfInterest(group, newcomer);
  tenants_.clear();
  std::size_t occupant = SharingCost::nobody;
  for (const Part &part : group.parts) {
    const bool isOccupant = group.occupant == part.piece;
    if (part.nextUse > until && !isOccupant) {
      if (!group.occupant)
        break; // as the others are used later
      continue;
    }
    if (isOccupant)
      occupant = tenants_.size();
    tenants_.push_back(tenant(part.piece, part.firstPage, taken));
    tenants_.back().hasValue = states_[part.piece].hasValue;
    tenants_.back().hostCurrent = part.hostCurrent;
  }
  tenants_.push_back(tenant(newcomer, 0, taken));
  tenants_.back().hasValue = fetch;
  tenants_.back().hostCurrent = tenants_.back().isNewcomer = true;
  const std::optional<double> withUs = cost_.play(tenants_, occupant, group.lastUseUs, until);
  if (!withUs)
    return std::nullopt;
  tenants_.pop_back();
  return *withUs - cost_.play(tenants_, occupant, group.lastUseUs, until).value_or(0);
}

SharingCost::Tenant GroupOffers::tenant(PieceIndex piece, std::uint32_t firstPage, std::uint32_t pages) const {
  const std::uint64_t pieceBytes = timeline_.piece(piece).bytes - firstPage * timeline_.pageBytes();
  return {.uses = states_.usesToCome(piece),
          .returnsAtBoundary = states_.isResident(piece),
          .mustSurvive = timeline_.piece(piece).mustSurvive(),
          .isMirrored = states_.isMirrored(piece),
          .prices = pricesOfBytes(std::min<std::uint64_t>(pieceBytes, pages * timeline_.pageBytes())),
          .leaves = states_.leavesToCome(piece),
          .leavesClean = input_.leavesClean(piece)};
}

SharingCost::Prices GroupOffers::pricesOfBytes(std::uint64_t bytes) const {
  const double megabytes = static_cast<double>(bytes) * 1e6;
  return {overheadUs(input_.machine, true) + megabytes / input_.machine.downBytesPerSecond,
          overheadUs(input_.machine, false) + megabytes / input_.machine.upBytesPerSecond};
}

std::vector<GroupOffers::Offer> &GroupOffers::offersFor(const Family &family, bool fetch, std::uint64_t &effort) {
  const PieceIndex piece = family.pieces.front();
  const std::uint32_t piecePages = timeline_.piece(piece).pageCount;
  std::vector<Offer> &offers = offers_;
  offers.clear();
  std::uint32_t freeFrames = 0;
  const auto gather = [&](const Ranking &ranking) {
    std::size_t considered = 0, beyond = 0;
    std::uint32_t frames = 0;
    ranking.visit([&](GroupIndex index) {
      const bool isBeyond = considered >= knobs::mostCandidates && frames >= family.pageCount;
      if (isBeyond && (!start_.looksFurther || ++beyond > sampleReach))
        return false;
      if (isBeyond && beyond % sampleStride != 0)
        return true;
      const Group &group = groups_[index];
      if (isBeyond && group.parts.size() > mostTenantsOfSample)
        return true;
      if (group.occupant && states_.isUsedAt(*group.occupant, order_.now()))
        return true;
      effort += effortOfPrice;
      const std::optional<double> us = costOf(group, piece, piecePages, fetch);
      if (!us)
        return true;
      const std::uint32_t count = group.frameCount;
      offers.push_back({*us, count > piecePages ? count - piecePages : piecePages - count, offers.size(), index});
      frames += count;
      freeFrames += *us <= 0 ? count : 0;
      ++considered;
      return true;
    });
  };
  gather(groups_.ranking(Group::Standing::Vacant));
  if (displacement_ == Displacement::Allowed && freeFrames < family.pageCount) {
    gather(groups_.ranking(Group::Standing::Leaving));
    gather(groups_.ranking(Group::Standing::Clean));
    gather(groups_.ranking(Group::Standing::Dirty));
  }
  std::sort(offers.begin(), offers.end(), [](const Offer &a, const Offer &b) {
    return std::tuple(a.costUs, a.mismatch, a.rank) < std::tuple(b.costUs, b.mismatch, b.rank);
  });
  return offers;
}

} // namespace pumpgraph
