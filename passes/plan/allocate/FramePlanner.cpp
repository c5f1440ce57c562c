// SPDX-License-Identifier: Apache-2.0
#include "passes/plan/allocate/FramePlanner.h"

#include "passes/analysis/Indices.h"
#include "passes/plan/allocate/GroupOffers.h"
#include "passes/plan/allocate/Homes.h"
#include "passes/plan/allocate/PieceStates.h"
#include "passes/plan/allocate/SplitEnds.h"
#include "passes/plan/allocate/TenureOrder.h"

#include <algorithm>
#include <cassert>
#include <span>
#include <utility>

namespace pumpgraph {

namespace {

class FramePlanner {
public:
  FramePlanner(const PlannerInput &input, const DraftStart &start, Displacement displacement)
      : input_(input), timeline_(input.timeline), displacement_(displacement), boundary_(timeline_.nodeCount()),
        states_(timeline_, start), homes_(input, states_, draft_.frames), order_(input, draft_),
        splitEnds_(input.captured), offers_(input, start, displacement, states_, homes_.groups(), order_) {
    draft_.capturedCount = boundary_;
    draft_.boundary = start.boundary;
    draft_.fared = IndexedVector<PieceIndex, Fare>(states_.size());
    std::uint32_t uses = 0;
    for (const Piece &piece : timeline_.pieces())
      uses = std::max(uses, piece.usesEnd);
    draft_.leftAt.assign(uses, neverUsed);
    for (BufferIndex b = 0; b < input.captured.buffers.size(); ++b)
      draft_.frames.emplace_back(input.captured.pageCount(b), noFrame);
    giveExclusiveFrames();
  }

  tl::expected<Draft, Stuck> run(const DraftStart &start) {
    takeHomes(start.homes.empty() ? input_.given.homes : start.homes);
    if (!placeResidents())
      return tl::unexpected(Stuck{std::nullopt, draft_.effort});
    if (const std::optional<PieceIndex> stuck = placeAhead(start.first))
      return tl::unexpected(Stuck{widestUser(*stuck), draft_.effort});
    for (NodeIndex node = 0; node < boundary_; ++node)
      if (!serve(node))
        return tl::unexpected(Stuck{node, draft_.effort});
    restoreBoundary();
    return std::move(draft_);
  }

private:
  void giveExclusiveFrames() {
    std::int32_t frame = 0;
    for (BufferIndex b = 0; b < input_.captured.buffers.size(); ++b)
      if (!input_.captured.buffers[b].isPrivate)
        for (std::int32_t &page : draft_.frames[b])
          page = frame++;
  }

  // -- the step boundary

  /// Gives frames to the pieces that are on the device at the boundary: each its own, such as no other step uses.
  bool placeResidents() {
    for (const PieceIndex piece : indicesOf(timeline_.pieces())) {
      const std::optional<Timeline::Life> life = timeline_.lifeOf(piece);
      if (states_[piece].isPlaced || !states_.isResident(piece) || !life)
        continue;
      if (!life->fromBoundary && displacement_ == Displacement::Forbidden)
        continue; // its first use finds vacant frames
      states_[piece].isPlaced = true;
      std::uint32_t page = 0;
      while (page < timeline_.piece(piece).pageCount) {
        const std::optional<GroupIndex> group = groupForResident(piece);
        if (!group)
          return false;
        page += settle(*group, piece, page);
      }
    }
    return true;
  }

  /// A group for a piece that is on the device at the boundary: nobody has a home there, or only such as are away then
  /// and never meet the piece.
  std::optional<GroupIndex> groupForResident(PieceIndex piece) {
    if (const std::optional<GroupIndex> unused = homes_.groups().anyUnused(input_.given.ownFrom);
        unused && !states_.isKeptOut(piece, homes_[*unused]))
      return unused;
    std::optional<GroupIndex> found;
    homes_.groups().ranking(Group::Standing::Vacant).visit([&](GroupIndex index) {
      ++draft_.effort;
      const Group &group = homes_[index];
      const bool isFree = group.firstFrame >= input_.given.ownFrom && !states_.isKeptOut(piece, group) &&
                          std::none_of(group.parts.begin(), group.parts.end(), [&](const Part &part) {
                            return states_.isResident(part.piece) || meet(part.piece, piece);
                          });
      if (isFree)
        found = index;
      return !isFree;
    });
    return found;
  }

  /// Whether some node uses both.
  bool meet(PieceIndex a, PieceIndex b) const {
    const std::span<const Use> first = timeline_.usesOf(a), second = timeline_.usesOf(b);
    auto x = first.begin(), y = second.begin();
    while (x != first.end() && y != second.end() && x->node != y->node)
      ++(x->node < y->node ? x : y);
    return x != first.end() && y != second.end();
  }

  /// Lets some pieces choose their frames, in which they will be from their first use on. Returns one that found none.
  std::optional<PieceIndex> placeAhead(const std::vector<PieceIndex> &first) {
    std::vector<PieceIndex> unplaced;
    for (PieceIndex piece : first)
      if (!states_[piece].isPlaced && !timeline_.usesOf(piece).empty())
        unplaced.push_back(piece);
    for (const Family &family : familiesOf(unplaced))
      if (!place(family, Entry::Later))
        return family.pieces.front();
    return std::nullopt;
  }

  NodeIndex widestUser(PieceIndex piece) const {
    const std::span<const Use> uses = timeline_.usesOf(piece);
    return std::max_element(uses.begin(), uses.end(),
                            [&](const Use &a, const Use &b) {
                              return timeline_.workingSetPages(a.node) < timeline_.workingSetPages(b.node);
                            })
        ->node;
  }

  /// Gives pieces the frames that are fixed beforehand, and separates the frames that only this step uses.
  void takeHomes(const PieceFrames &homes) {
    if (input_.given.isShared && input_.given.ownFrom < input_.frameCount)
      homes_.groupOf(input_.given.ownFrom, input_.frameCount);
    for (const PieceIndex piece : indicesOf(timeline_.pieces()))
      takeHome(piece, homes[piece]);
    for (const PieceIndex piece : indicesOf(timeline_.pieces()))
      for (GroupIndex group : states_[piece].groups)
        homes_.rank(group);
  }

  void takeHome(PieceIndex piece, const std::vector<std::int32_t> &frames) {
    const Piece &pages = timeline_.piece(piece);
    states_[piece].hasValue = pages.hasValueBefore();
    if (frames.empty())
      return;
    std::copy(frames.begin(), frames.end(), draft_.frames[pages.buffer].begin() + pages.firstPage);
    const bool isUsed =
        !timeline_.usesOf(piece).empty() || states_.isResident(piece); // else never on the device in this step
    if (!isUsed && timeline_.apartGroupsOf(piece).empty())
      return;
    states_[piece].isPlaced = isUsed;
    for (std::uint32_t page = 0; page < frames.size();) {
      std::uint32_t end = page + 1;
      while (end < frames.size() && frames[end] == frames[end - 1] + 1)
        ++end;
      const GroupIndex group = homes_.groupOf(static_cast<std::uint32_t>(frames[page]), end - page);
      if (!isUsed) {
        homes_.keepApart(piece, homes_[group]);
        page += homes_[group].frameCount;
        continue;
      }
      homes_.give(group, piece, page, !states_.isResident(piece) || states_.isMirrored(piece));
      if (states_.isResident(piece))
        homes_[group].occupant = piece;
      page += homes_[group].frameCount;
    }
  }

  /// Brings back what must be on the device after the last node.
  void restoreBoundary() {
    for (const PieceIndex piece : indicesOf(timeline_.pieces())) {
      if (!states_.isResident(piece))
        continue;
      for (GroupIndex group : states_[piece].groups)
        if (homes_[group].occupant != piece) {
          admit(group, piece, states_[piece].hasValue);
          draft_.fared[piece].cameForBoundary = true;
        }
    }
  }

  // -- one node

  bool serve(NodeIndex node) {
    order_.goTo(node);
    std::vector<PieceIndex> newcomers;
    for (std::uint32_t position : timeline_.usesAt(node)) {
      const Use &use = timeline_.use(position);
      if (!states_[use.piece].isPlaced)
        newcomers.push_back(use.piece);
      else
        recall(use);
    }
    // Large ones first, while large groups are whole.
    std::vector<Family> families = familiesOf(newcomers);
    std::stable_sort(families.begin(), families.end(),
                     [](const Family &a, const Family &b) { return a.pageCount > b.pageCount; });
    for (const Family &family : families)
      if (!place(family, Entry::Now))
        return false;
    for (std::uint32_t position : timeline_.usesAt(node))
      record(timeline_.use(position));
    splitEnds_.followHosted(node, order_, draft_);
    return true;
  }

  std::vector<Family> familiesOf(const std::vector<PieceIndex> &newcomers) const {
    std::vector<Family> families;
    for (PieceIndex piece : newcomers) {
      if (families.empty() || !states_.areAlike(families.back().pieces.back(), piece))
        families.emplace_back();
      families.back().pieces.push_back(piece);
      families.back().pageCount += timeline_.piece(piece).pageCount;
    }
    return families;
  }

  /// Makes all of a piece that has its frames the occupant of them.
  void recall(const Use &use) {
    for (GroupIndex group : states_[use.piece].groups)
      if (homes_[group].occupant != use.piece)
        admit(group, use.piece, use.needsValue() && states_[use.piece].hasValue);
  }

  enum class Entry { Now, Later };

  /// Chooses frames for pieces that have none yet. Who enters now displaces who is there.
  bool place(const Family &family, Entry entry) {
    const PieceIndex first = family.pieces.front();
    const bool fetch = timeline_.usesOf(first).front().needsValue() && states_[first].hasValue;
    std::vector<GroupOffers::Offer> &offers = offers_.offersFor(family, fetch, draft_.effort);
    auto offer = offers.begin();
    for (PieceIndex piece : family.pieces) {
      const std::uint32_t pages = timeline_.piece(piece).pageCount;
      states_[piece].isPlaced = true;
      for (std::uint32_t page = 0; page < pages;) {
        if (offer == offers.end())
          return false;
        const GroupIndex group = offer->group;
        const std::uint32_t taken = std::min(homes_[group].frameCount, pages - page);
        if (taken < homes_[group].frameCount)
          offer->group = homes_.split(group, taken);
        else
          ++offer;
        if (entry == Entry::Now && homes_[group].occupant)
          displace(group);
        homes_.give(group, piece, page, true);
        if (entry == Entry::Now)
          admit(group, piece, fetch);
        else
          homes_.rank(group);
        page += taken;
      }
    }
    return true;
  }

  /// Puts a piece's pages from `page` on, as many as fit, into an unused group. Returns how many.
  std::uint32_t settle(GroupIndex group, PieceIndex piece, std::uint32_t page) {
    const std::uint32_t taken = std::min(homes_[group].frameCount, timeline_.piece(piece).pageCount - page);
    if (taken < homes_[group].frameCount)
      homes_.split(group, taken);
    homes_.give(group, piece, page, states_.isMirrored(piece));
    if (timeline_.lifeOf(piece)->fromBoundary) // else the step overwrites its value
      homes_[group].occupant = piece;
    homes_.rank(group);
    return taken;
  }

  // -- tenants come and go

  /// Makes `piece` the occupant of a group in which it has its home, evicting who is there now. The group is ranked
  /// again when the use is recorded; until then nobody can displace a piece that is used now.
  void admit(GroupIndex index, PieceIndex piece, bool fetch) {
    if (homes_[index].occupant)
      displace(index);
    Group &group = homes_[index];
    Part &part = *Homes::partOf(group, piece);
    if (timeline_.piece(piece).continues && states_[piece].nextUse == 0) {
      order_.drop(group);
      splitEnds_.follow(states_.pagesOf(group, part), group);
    }
    if (fetch) {
      order_.prefetch(group, states_.pagesOf(group, part));
      part.hostCurrent = input_.leavesClean(piece);
      draft_.fared[piece].fetchedPages += group.frameCount;
      if (!states_.leavesAnyway(piece) && (states_.isResident(piece) || states_[piece].nextUse > 0))
        draft_.fared[piece].strayPages += group.frameCount;
    }
    group.occupant = piece;
  }

  /// Ends the occupant's tenure, copying what is still needed and not in host memory yet.
  void displace(GroupIndex index) {
    Group &group = homes_[index];
    Part &part = *Homes::partOf(group, *group.occupant);
    const PieceState &state = states_[part.piece];
    if (states_.isResident(part.piece) && state.hasValue && !state.isWritten && states_.nextUseNeedsValue(part.piece))
      draft_.fared[part.piece].leftUnwritten = true;
    const std::uint32_t use = timeline_.piece(part.piece).usesBegin + static_cast<std::uint32_t>(state.nextUse);
    if (use < timeline_.piece(part.piece).usesEnd)
      draft_.leftAt[use] = order_.now();
    if (states_.mustBeSaved(part)) {
      order_.evict(group, states_.pagesOf(group, part));
      part.hostCurrent = true;
    } else {
      order_.drop(group);
      if (states_.nextUseOf(part.piece) != neverUsed)
        order_.discard(group, states_.pagesOf(group, part));
    }
    group.occupant.reset();
  }

  /// The piece will not be used in this step any more, nor is it resident: its frames are free.
  void retire(PieceIndex piece) {
    const bool save = timeline_.piece(piece).mustSurvive() && states_[piece].hasValue;
    for (GroupIndex index : states_[piece].groups) {
      Group &group = homes_[index];
      if (group.occupant == piece) {
        Part &part = *Homes::partOf(group, piece);
        if (save && !part.hostCurrent)
          order_.evict(group, states_.pagesOf(group, part));
        else
          order_.drop(group);
        if (timeline_.piece(piece).isContinued)
          splitEnds_.note(group, states_.pagesOf(group, part));
        group.occupant.reset();
      }
      group.parts.erase(Homes::partOf(group, piece));
    }
  }

  /// Copies a piece to the host that stays where it is.
  void mirror(PieceIndex piece) {
    for (GroupIndex index : states_[piece].groups) {
      Part &part = *Homes::partOf(homes_[index], piece);
      if (!part.hostCurrent && states_[piece].hasValue)
        order_.evict(homes_[index], states_.pagesOf(homes_[index], part));
      part.hostCurrent = true;
    }
  }

  /// Notes the use of a piece whose pages are all on the device now.
  void record(const Use &use) {
    PieceState &state = states_[use.piece];
    ++state.nextUse;
    state.hasValue |= use.writes;
    state.isWritten |= use.writes;
    draft_.effort += state.groups.size();
    const std::uint32_t next = states_.nextUseOf(use.piece);
    for (GroupIndex index : state.groups) {
      Group &group = homes_[index];
      assert(group.occupant == use.piece && "a node's pieces cannot displace one another");
      order_.access(group, input_.delaysLeaving(use));
      const auto part = Homes::partOf(group, use.piece);
      if (use.writes)
        part->hostCurrent = false;
      if (next != neverUsed)
        Homes::postpone(group, part, next);
      group.lastUseUs = std::max(group.lastUseUs, timeline_.times().endUs[order_.now()]);
    }
    if (next == neverUsed)
      retire(use.piece);
    else if (states_.isMirrored(use.piece) && next == boundary_)
      mirror(use.piece);
    for (GroupIndex index : state.groups)
      homes_.rank(index);
    homes_.mergeNeighbours(use.piece);
  }

  const PlannerInput &input_;
  const Timeline &timeline_;
  const Displacement displacement_;
  const NodeIndex boundary_; ///< the node after the last
  Draft draft_;
  PieceStates states_;
  Homes homes_;
  TenureOrder order_;
  SplitEnds splitEnds_;
  GroupOffers offers_;
};

} // namespace

void PlannerInput::settleCopies(BoundaryStates &boundary) const {
  if (!isForManaged())
    return;
  for (const PieceIndex piece : indicesOf(boundary))
    if (boundary[piece] != BoundaryState::Away)
      boundary[piece] = leavesClean(piece) ? BoundaryState::Mirrored : BoundaryState::Resident;
}

tl::expected<Draft, Stuck> draftPlan(const PlannerInput &input, const DraftStart &start) {
  return FramePlanner(input, start, Displacement::Allowed).run(start);
}

std::optional<Draft> draftWithoutTransfers(const PlannerInput &input) {
  DraftStart start;
  for (const Piece &piece : input.timeline.pieces())
    start.boundary.add(piece.liveOut ? BoundaryState::Resident : BoundaryState::Away);
  tl::expected<Draft, Stuck> draft = FramePlanner(input, start, Displacement::Forbidden).run(start);
  assert((draft || !input.timeline.apartPieces().empty()) && "the frames hold the step's peak");
  return draft ? std::optional(std::move(*draft)) : std::nullopt;
}

} // namespace pumpgraph
