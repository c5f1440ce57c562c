// SPDX-License-Identifier: Apache-2.0
/// \file
/// Proposers of what is on the device between two steps, and of who chooses frames first.
#pragma once

#include "passes/plan/search/Search.h"

#include <cstdint>
#include <vector>

namespace pumpgraph {

/// Pages that have to be on the device between steps, wherever they like.
std::uint64_t residentsWithoutHome(const PlannerInput &input);

/// Each member tries what its name says, on the best choices of the search. shares() comes first.
class BoundaryProposers {
public:
  /// `search` is referred to.
  explicit BoundaryProposers(Search &search);

  /// Shares of the frames for pieces that stay between steps, those that are idle there for the shortest time first.
  void shares();
  /// Shares beside the best one.
  void finerShares();
  /// More groups are looked at for each newcomer: better on large budgets, worse on small ones, and slower on all.
  void lookingFurther();
  /// Pieces that came back often found bad frames: they choose before the others.
  void restlessFirst();
  /// Pieces that came back after the last node only to be on the device between the steps come when the next step needs
  /// them. A good host copy serves those that give their frames up before they are written, and nobody else.
  void settledBoundary();
  /// What is saved after the last node makes the step longer, though at its beginning the link down may be idle: a part
  /// of it is on the device between steps instead, and leaves in the next one.
  void leavingLater();

private:
  /// Of the frames, given to pieces that are on the device between steps.
  struct Share {
    int percent = 0;
    BoundaryState state = BoundaryState::Resident;
  };
  class OfShares;

  Choices withShare(Share share) const;
  Choices withRestlessFirst(double fetches) const;
  std::optional<Choices> withLater(double part) const;

  Search &search_;
  const PlannerInput &input_;
  const Timeline &timeline_;
  /// Live pieces in the order in which it pays to keep them on the device at the step boundary.
  std::vector<PieceIndex> ranking_;
  std::uint64_t frames_; ///< for private pages between steps that need not be there
  Share share_;          ///< of the best choices
};

} // namespace pumpgraph
