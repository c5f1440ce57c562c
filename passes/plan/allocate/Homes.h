// SPDX-License-Identifier: Apache-2.0
/// \file
/// Which pieces live in which groups of frames: both sides of the book.
#pragma once

#include "passes/plan/allocate/FrameGroups.h"
#include "passes/plan/allocate/PieceStates.h"
#include "passes/plan/allocate/PlannerInput.h"

#include <cstdint>
#include <vector>

namespace pumpgraph {

class Homes {
public:
  /// All are referred to. `frames`: Draft::frames.
  Homes(const PlannerInput &input, PieceStates &states, std::vector<std::vector<std::int32_t>> &frames);

  Group &operator[](GroupIndex index) { return groups_[index]; }
  const FrameGroups &groups() const { return groups_; }

  /// A group that begins with the frame and has at most `frames` frames.
  GroupIndex groupOf(std::uint32_t frame, std::uint64_t frames);
  /// Leaves `frames` frames in a group; returns the group of the others.
  GroupIndex split(GroupIndex group, std::uint32_t frames);

  /// From now on the group is where the piece's pages from `page` on are whenever they are on the device. It has to be
  /// ranked.
  void give(GroupIndex index, PieceIndex piece, std::uint32_t page, bool hostCurrent);
  /// The piece has, or had, pages in the group: others that must be apart from it have none there.
  void keepApart(PieceIndex piece, Group &group) const;
  /// To be called whenever the occupant, its host copy or the next use of a group may have changed.
  void rank(GroupIndex index);
  /// Joins adjacent groups of a piece that have become alike, so that transfers stay large. Those of a piece without
  /// further uses are not its any more.
  void mergeNeighbours(PieceIndex piece);

  using Parts = std::vector<Part>;
  static Parts::iterator partOf(Group &group, PieceIndex piece);
  static void postpone(Group &group, Parts::iterator part, std::uint32_t nextUse);

private:
  void forget(GroupIndex gone, PieceIndex except);
  static Parts::iterator firstAfter(Parts::iterator begin, Parts::iterator end, std::uint32_t node);

  const Timeline &timeline_;
  PieceStates &states_;
  FrameGroups groups_;
  std::vector<std::vector<std::int32_t>> &frames_;
};

} // namespace pumpgraph
