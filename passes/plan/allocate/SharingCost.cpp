// SPDX-License-Identifier: Apache-2.0
#include "passes/plan/allocate/SharingCost.h"

#include <algorithm>

namespace pumpgraph {

namespace {

bool needsValueNext(const SharingCost::Tenant &tenant) {
  return tenant.uses.empty() ? tenant.mustSurvive : tenant.uses.front().needsValue();
}

bool leavesAnyway(const SharingCost::Tenant &tenant) {
  return !tenant.leaves.empty() && tenant.leaves.front() != 0;
}

} // namespace

double SharingCost::latenessUs(double transferUs, double availableUs) const {
  constexpr double queueDepth = 16; // transfers that are expected to queue before one that becomes possible
  if (transferUs <= 0)
    return 0;
  const double queueUs = queueDepth * transferUs;
  return slackWeight_ * transferUs * queueUs / (queueUs + std::max(0.0, availableUs));
}

double SharingCost::handOverUs(std::size_t from, std::size_t to, double availableUs) {
  double transferUs = 0, chosenUs = 0; // of these, what was chosen before
  if (from != nobody) {
    Tenant &leaving = tenants_[from];
    if (leaving.hasValue && !leaving.hostCurrent && needsValueNext(leaving)) {
      transferUs += leaving.prices.evictUs;
      chosenUs += leavesAnyway(leaving) ? leaving.prices.evictUs : 0;
      leaving.hostCurrent = true;
    }
  }
  Tenant &coming = tenants_[to];
  if (coming.hasValue && needsValueNext(coming)) {
    coming.hostCurrent = coming.leavesClean;
    transferUs += coming.prices.fetchUs;
    chosenUs += leavesAnyway(coming) ? coming.prices.fetchUs : 0;
  }
  return transferUs - chosenUs + latenessUs(transferUs, availableUs);
}

/// Where its next turn comes among those of the others.
void SharingCost::enter(std::size_t tenant) {
  const Turn turn{nodeOf(tenants_[tenant]), tenant};
  if (turn.node == noNode)
    return;
  const auto later =
      std::find_if(turns_.rbegin(), turns_.rend(), [&](const Turn &other) { return turn.isBefore(other); });
  turns_.insert(later.base(), turn);
}

std::optional<double> SharingCost::play(std::span<const Tenant> tenants, std::size_t occupant, double lastUseUs,
                                        std::uint32_t until) {
  const InMemoryTimes &times = timeline_.times();
  tenants_.assign(tenants.begin(), tenants.end());
  turns_.clear();
  for (std::size_t tenant = tenants_.size(); tenant-- > 0;) // they mostly come in order
    enter(tenant);
  double costUs = 0;
  while (!turns_.empty() && turns_.back().node <= until) {
    const auto [node, next] = turns_.back();
    turns_.pop_back();
    for (auto other = turns_.rbegin(); other != turns_.rend() && other->node == node; ++other)
      if (tenants_[next].isNewcomer || tenants_[other->tenant].isNewcomer)
        return std::nullopt;
    const bool atBoundary = node == timeline_.nodeCount();
    if (next != occupant)
      costUs += handOverUs(occupant, next, (atBoundary ? times.totalUs : times.startUs[node]) - lastUseUs);
    occupant = next;
    Tenant &tenant = tenants_[next];
    if (atBoundary) {
      tenant.returnsAtBoundary = false;
      continue;
    }
    lastUseUs = times.endUs[node];
    tenant.hasValue |= tenant.uses.front().writes;
    tenant.hostCurrent &= !tenant.uses.front().writes;
    tenant.uses = tenant.uses.subspan(1);
    tenant.leaves = tenant.leaves.subspan(std::min<std::size_t>(1, tenant.leaves.size()));
    if (tenant.uses.empty() && tenant.isMirrored && !tenant.hostCurrent) {
      costUs += tenant.prices.evictUs;
      tenant.hostCurrent = true;
    }
    enter(next);
  }
  return costUs;
}

} // namespace pumpgraph
