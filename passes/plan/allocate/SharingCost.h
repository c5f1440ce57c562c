// SPDX-License-Identifier: Apache-2.0
/// \file
/// What it costs that certain pieces share a frame, played from now on.
#pragma once

#include "passes/analysis/Timeline.h"

#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <vector>

namespace pumpgraph {

class SharingCost {
public:
  static constexpr std::size_t nobody = std::numeric_limits<std::size_t>::max();

  /// Of one copy of a tenant's pages, microseconds.
  struct Prices {
    double evictUs = 0;
    double fetchUs = 0;
  };

  /// A piece that has, or may get, its home in the frame.
  struct Tenant {
    std::span<const Use> uses;      ///< those to come
    bool returnsAtBoundary = false; ///< must be back after the last node
    bool mustSurvive = false;       ///< its value is needed after its last use
    bool hasValue = false;
    bool hostCurrent = false;
    bool isNewcomer = false;
    bool isMirrored = false; ///< copied to the host once it has been used for the last time
    Prices prices = {};
    /// By use to come: whether the tenant is to be away before it, so that going and coming then cost nothing beyond
    /// their lateness. Empty: never.
    std::span<const std::uint8_t> leaves = {};
    bool leavesClean = true; ///< its host copy stays good when it comes
  };

  /// `slackWeight`: of a hand-over that may come too late, against a transfer.
  SharingCost(const Timeline &timeline, double slackWeight) : timeline_(timeline), slackWeight_(slackWeight) {}

  /// Cost of a hand-over that takes `transferUs` when there are `availableUs` for it: falls smoothly, so that more
  /// time is always better.
  double latenessUs(double transferUs, double availableUs) const;

  /// Cost of all hand-overs up to node `until`, microseconds; the last user before ended at `lastUseUs`. Empty if some
  /// node uses the newcomer and another tenant: they cannot share a frame.
  std::optional<double> play(std::span<const Tenant> tenants, std::size_t occupant, double lastUseUs,
                             std::uint32_t until);

private:
  std::uint32_t nodeOf(const Tenant &tenant) const {
    if (!tenant.uses.empty())
      return tenant.uses.front().node;
    return tenant.returnsAtBoundary ? timeline_.nodeCount() : noNode;
  }
  /// The next use of a tenant, or its coming back at the step boundary.
  struct Turn {
    std::uint32_t node = 0;
    std::size_t tenant = 0;
    bool isBefore(const Turn &other) const {
      return node < other.node || (node == other.node && tenant > other.tenant);
    }
  };
  void enter(std::size_t tenant);
  double handOverUs(std::size_t from, std::size_t to, double availableUs);

  static constexpr std::uint32_t noNode = std::numeric_limits<std::uint32_t>::max();
  const Timeline &timeline_;
  double slackWeight_;
  std::vector<Tenant> tenants_; ///< as they are at the point reached
  std::vector<Turn> turns_;     ///< to come, the next one last
};

} // namespace pumpgraph
