// SPDX-License-Identifier: Apache-2.0
/// \file
/// The private frames of a plan under construction, in runs that share one history.
#pragma once

#include "passes/analysis/Index.h"
#include "passes/analysis/Timeline.h"

#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

namespace pumpgraph {

enum class GroupIndex : std::uint32_t {};

inline constexpr std::uint32_t neverUsed = std::numeric_limits<std::uint32_t>::max();

/// The pages of one piece that have their home in a group: as many as the group has frames.
struct Part {
  PieceIndex piece{};
  std::uint32_t firstPage = 0; ///< within the piece
  bool hostCurrent = false;    ///< the host copy holds the value (or there is none)
  std::uint32_t nextUse = 0;   ///< node of the piece's next use
};

/// A run of neighbouring frames that have had the same tenants at the same times. Groups are split when a newcomer
/// needs fewer frames, so that all bookkeeping is by group, never by page.
struct Group {
  std::uint32_t firstFrame = 0;
  std::uint32_t frameCount = 0;
  /// Of Timeline::apartGroupsOf(), those with pages that have their home here, or had; ascending.
  std::vector<std::uint32_t> apart;
  std::vector<Part> parts;            ///< pieces with further uses that have their home here, by next use
  std::optional<PieceIndex> occupant; ///< one of `parts`
  /// Nodes (DraftNode) after whose completion the present tenure, or the next, may begin.
  std::vector<std::uint32_t> barrier;
  /// Accesses since, those that no later one implies. Each comes after every node of `barrier`.
  std::vector<std::uint32_t> accesses;
  /// Of all accesses since, those that may write and that no later such one implies. A copy to the host waits for
  /// these; if there are none, for `barrier`.
  std::vector<std::uint32_t> writes;
  std::vector<std::uint32_t> discards; ///< discards that come before the next event, by position in the draft
  double lastUseUs = 0;                ///< in-memory time at which the last user ended
  std::uint32_t nextUse = neverUsed;   ///< node of the first further use of any of `parts`
  enum class Standing : std::uint8_t {
    Vacant,
    Clean,   ///< occupied by contents that can be dropped
    Leaving, ///< occupied by contents that are to leave anyway
    Dirty    ///< occupied by contents that would have to be copied to the host first
  };
  Standing standing = Standing::Vacant;
};

/// Groups by their next use: the farthest first, of equal ones those with smaller indices first.
class Ranking {
public:
  void insert(std::uint32_t nextUse, GroupIndex group);
  void erase(std::uint32_t nextUse, GroupIndex group);

  /// Calls `visit(group)` in order, until it returns false.
  template <typename Visit> void visit(Visit visit) const {
    for (GroupIndex group : never_)
      if (!visit(group))
        return;
    for (std::size_t word = occupied_.size(); word-- > 0;)
      for (std::uint64_t left = occupied_[word]; left != 0; left &= ~std::bit_floor(left))
        for (GroupIndex group : byNode_[word * 64 + static_cast<std::size_t>(std::bit_width(left)) - 1])
          if (!visit(group))
            return;
  }
  const std::vector<GroupIndex> &neverUsedAgain() const { return never_; }

private:
  std::vector<GroupIndex> never_;               ///< without a next use; ascending, as the following
  std::vector<std::vector<GroupIndex>> byNode_; ///< of the next use
  std::vector<std::uint64_t> occupied_;         ///< a bit for each of these that is not empty
};

class FrameGroups {
public:
  FrameGroups(std::uint32_t firstFrame, std::uint32_t frameCount);

  Group &operator[](GroupIndex index) { return groups_[index]; }
  const Group &operator[](GroupIndex index) const { return groups_[index]; }

  /// A group in which no piece has its home, among those that begin at `firstFrame` or after it.
  std::optional<GroupIndex> anyUnused(std::uint32_t firstFrame = 0) const;

  /// Leaves the first `frames` frames in `index` and moves the others to a new group with the same history.
  GroupIndex split(GroupIndex index, std::uint32_t frames);
  /// The group that the frame belongs to.
  GroupIndex holding(std::uint32_t frame) const;

  /// Whether `second` continues `first` in frames and in the pages of every tenant, with the same state.
  bool canMerge(GroupIndex first, GroupIndex second) const;
  /// Appends `second`'s frames to `first`; `second` is empty afterwards.
  void merge(GroupIndex first, GroupIndex second);
  /// Merges a group with its neighbours while none has a tenant.
  void mergeUnusedAround(GroupIndex index);

  /// To be called whenever the occupant, its host copy or the next use of a group may have changed.
  void rank(GroupIndex index, std::uint32_t nextUse, Group::Standing standing);

  const Ranking &ranking(Group::Standing standing) const { return rankings_[static_cast<std::size_t>(standing)]; }

private:
  Ranking &rankingOf(GroupIndex index) { return rankings_[static_cast<std::size_t>(groups_[index].standing)]; }
  void enter(GroupIndex index) { rankingOf(index).insert(groups_[index].nextUse, index); }
  void leave(GroupIndex index) { rankingOf(index).erase(groups_[index].nextUse, index); }

  IndexedVector<GroupIndex, Group> groups_;
  std::uint32_t firstFrame_;
  std::vector<GroupIndex> groupBeginningAt_; ///< by frame - firstFrame_; valid where a group begins
  std::vector<GroupIndex> groupEndingAt_;    ///< likewise where one ends
  Ranking rankings_[4];                      ///< by standing
};

} // namespace pumpgraph
