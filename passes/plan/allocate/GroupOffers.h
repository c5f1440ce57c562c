// SPDX-License-Identifier: Apache-2.0
/// \file
/// Which groups of frames a newcomer could go to, and at what price (docs/design/planner.md, "The pass").
#pragma once

#include "passes/plan/allocate/FrameGroups.h"
#include "passes/plan/allocate/PieceStates.h"
#include "passes/plan/allocate/PlannerInput.h"
#include "passes/plan/allocate/SharingCost.h"
#include "passes/plan/allocate/TenureOrder.h"

#include <cstdint>
#include <optional>
#include <vector>

namespace pumpgraph {

enum class Displacement { Allowed, Forbidden };

/// Neighbouring pieces of one buffer that are always used together.
struct Family {
  std::vector<PieceIndex> pieces;
  std::uint32_t pageCount = 0;
};

class GroupOffers {
public:
  /// A group that could take some or all pages of a newcomer, and what that would cost a page.
  struct Offer {
    double costUs = 0;
    std::uint32_t mismatch = 0; ///< frames too few or too many
    std::size_t rank = 0;       ///< how many are looked at earlier
    GroupIndex group{};
  };

  /// All but displacement are referred to.
  GroupOffers(const PlannerInput &input, const DraftStart &start, Displacement displacement, const PieceStates &states,
              const FrameGroups &groups, const TenureOrder &order);

  /// The groups newcomers may go to, cheapest first: more than are needed to hold all pages. `fetch`: they bring a
  /// value. Adds to `effort`, as in Draft. Valid until the next call.
  std::vector<Offer> &offersFor(const Family &family, bool fetch, std::uint64_t &effort);

private:
  std::optional<double> costOf(const Group &group, PieceIndex newcomer, std::uint32_t pages, bool fetch);
  std::optional<double> sharingUs(const Group &group, PieceIndex newcomer, std::uint32_t taken, bool fetch);
  std::uint32_t endOfInterest(const Group &group, PieceIndex newcomer) const;
  SharingCost::Tenant tenant(PieceIndex piece, std::uint32_t firstPage, std::uint32_t pages) const;
  SharingCost::Prices pricesOfBytes(std::uint64_t bytes) const;

  const PlannerInput &input_;
  const Timeline &timeline_;
  const DraftStart &start_;
  Displacement displacement_;
  const PieceStates &states_;
  const FrameGroups &groups_;
  const TenureOrder &order_;
  SharingCost cost_;
  std::vector<SharingCost::Tenant> tenants_; ///< sharingUs()'s, to spare allocations
  std::vector<Offer> offers_;                ///< offersFor's result
};

} // namespace pumpgraph
