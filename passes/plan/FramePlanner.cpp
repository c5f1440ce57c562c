// SPDX-License-Identifier: Apache-2.0
#include "passes/plan/FramePlanner.h"

#include "passes/plan/FrameGroups.h"
#include "passes/plan/TenancyCost.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <iterator>
#include <map>
#include <set>
#include <span>
#include <tuple>

namespace pumpgraph {

namespace {

/// How many groups of each standing are looked at for one that comes: those whose next use is farthest, and a few
/// spread over the ones after them, unless they have so many tenants that playing them takes long.
constexpr std::size_t mostCandidates = 32;
constexpr std::size_t sampleReach = 512;
constexpr std::size_t sampleStride = 21;
constexpr std::size_t mostTenantsOfSample = 24;
/// Of pricing one group, where noting its use is 1.
constexpr std::uint64_t effortOfPrice = 4;

enum class Displacement { Allowed, Forbidden };

class FramePlanner {
public:
  FramePlanner(const PlannerInput &input, const DraftStart &start, const Tuning &tuning, Displacement displacement)
      : input_(input), timeline_(input.timeline), tuning_(tuning), displacement_(displacement),
        states_(timeline_.pieces().size()), boundary_(timeline_.nodeCount()),
        groups_(static_cast<std::uint32_t>(timeline_.exclusivePages()),
                static_cast<std::uint32_t>(input.frameCount - timeline_.exclusivePages())),
        cost_(timeline_, tuning_), leaves_(start.leaves) {
    draft_.capturedCount = boundary_;
    draft_.boundary = start.boundary;
    draft_.fetchedPages = IndexedVector<PieceIndex, std::uint32_t>(states_.size(), 0);
    draft_.strayPages = draft_.fetchedPages;
    std::uint32_t uses = 0;
    for (const Piece &piece : timeline_.pieces())
      uses = std::max(uses, piece.usesEnd);
    draft_.leftAt.assign(uses, neverUsed);
    draft_.cameForBoundary = IndexedVector<PieceIndex, bool>(states_.size(), false);
    draft_.leftUnwritten = IndexedVector<PieceIndex, bool>(states_.size(), false);
    for (BufferIndex b = 0; b < input.captured.buffers.size(); ++b)
      draft_.frames.emplace_back(input.captured.pageCount(b), noFrame);
    giveExclusiveFrames();
    findHostedUsers();
    findKinds();
  }

  tl::expected<Draft, Stuck> run(const std::vector<PieceIndex> &first, const PieceFrames *homes) {
    takeHomes(homes ? *homes : input_.given.homes);
    if (!placeResidents())
      return tl::unexpected(Stuck{std::nullopt, draft_.effort});
    if (const std::optional<PieceIndex> stuck = placeAhead(first))
      return tl::unexpected(Stuck{widestUser(*stuck), draft_.effort});
    for (NodeIndex node = 0; node < boundary_; ++node)
      if (!serve(node))
        return tl::unexpected(Stuck{node, draft_.effort});
    restoreBoundary();
    return std::move(draft_);
  }

private:
  struct PieceState {
    std::size_t nextUse = 0; ///< position among the piece's uses
    bool isPlaced = false;
    bool hasValue = false;
    bool isWritten = false;         ///< by a node of this step
    std::vector<GroupIndex> groups; ///< where its pages live, by page
  };

  bool isResident(PieceIndex piece) const { return draft_.boundary[piece] != BoundaryState::Away; }
  bool isMirrored(PieceIndex piece) const { return draft_.boundary[piece] == BoundaryState::Mirrored; }

  /// The node of the piece's next use; the boundary if that is when a resident piece must be back.
  std::uint32_t nextUseOf(PieceIndex piece) const {
    const std::span<const Use> uses = timeline_.usesOf(piece);
    const std::size_t next = states_[piece].nextUse;
    if (next < uses.size())
      return uses[next].node;
    return isResident(piece) ? boundary_ : neverUsed;
  }
  bool nextUseNeedsValue(PieceIndex piece) const {
    const std::span<const Use> uses = timeline_.usesOf(piece);
    const std::size_t next = states_[piece].nextUse;
    return next < uses.size() ? uses[next].needsValue() : isResident(piece);
  }
  bool isUsedAt(PieceIndex piece, NodeIndex node) const { return nextUseOf(piece) == node; }

  double startUs(std::uint32_t node) const {
    return node == boundary_ ? timeline_.times().totalUs : timeline_.times().startUs[node];
  }

  PageRun pagesOf(const Group &group, const Part &part) const {
    const Piece &piece = timeline_.piece(part.piece);
    return {piece.buffer, piece.firstPage + part.firstPage, group.frameCount};
  }

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
    for (std::size_t i = 0; i < states_.size(); ++i) {
      const PieceIndex piece = static_cast<PieceIndex>(i);
      const std::optional<Timeline::Life> life = timeline_.lifeOf(piece);
      if (states_[piece].isPlaced || !isResident(piece) || !life)
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
    if (const std::optional<GroupIndex> unused = groups_.anyUnused(input_.given.ownFrom);
        unused && !isKeptOut(piece, groups_[*unused]))
      return unused;
    std::optional<GroupIndex> found;
    groups_.ranking(Group::Standing::Vacant).visit([&](GroupIndex index) {
      ++draft_.effort;
      const Group &group = groups_[index];
      const bool isFree = group.firstFrame >= input_.given.ownFrom && !isKeptOut(piece, group) &&
                          std::none_of(group.parts.begin(), group.parts.end(), [&](const Part &part) {
                            return isResident(part.piece) || meet(part.piece, piece);
                          });
      if (isFree)
        found = index;
      return !isFree;
    });
    return found;
  }

  /// Whether the group has, or had, pages that the piece must be apart from.
  bool isKeptOut(PieceIndex piece, const Group &group) const {
    const std::vector<std::uint32_t> &apart = timeline_.apartGroupsOf(piece);
    return std::any_of(apart.begin(), apart.end(), [&](std::uint32_t each) {
      return std::binary_search(group.apart.begin(), group.apart.end(), each);
    });
  }
  void noteApart(PieceIndex piece, Group &group) const {
    std::vector<std::uint32_t> both;
    std::ranges::set_union(group.apart, timeline_.apartGroupsOf(piece), std::back_inserter(both));
    group.apart = std::move(both);
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
      groupOf(input_.given.ownFrom, input_.frameCount);
    for (std::size_t i = 0; i < states_.size(); ++i)
      takeHome(static_cast<PieceIndex>(i), homes[static_cast<PieceIndex>(i)]);
    for (std::size_t i = 0; i < states_.size(); ++i)
      for (GroupIndex group : states_[static_cast<PieceIndex>(i)].groups)
        rekey(group);
  }

  void takeHome(PieceIndex piece, const std::vector<std::int32_t> &frames) {
    const Piece &pages = timeline_.piece(piece);
    states_[piece].hasValue = pages.hasValueBefore();
    if (frames.empty())
      return;
    std::copy(frames.begin(), frames.end(), draft_.frames[pages.buffer].begin() + pages.firstPage);
    const bool isUsed = !timeline_.usesOf(piece).empty() || isResident(piece); // else never on the device in this step
    if (!isUsed && timeline_.apartGroupsOf(piece).empty())
      return;
    states_[piece].isPlaced = isUsed;
    for (std::uint32_t page = 0; page < frames.size();) {
      std::uint32_t end = page + 1;
      while (end < frames.size() && frames[end] == frames[end - 1] + 1)
        ++end;
      const GroupIndex group = groupOf(static_cast<std::uint32_t>(frames[page]), end - page);
      if (!isUsed) {
        noteApart(piece, groups_[group]);
        page += groups_[group].frameCount;
        continue;
      }
      giveHome(group, piece, page, !isResident(piece) || isMirrored(piece));
      if (isResident(piece))
        groups_[group].occupant = piece;
      page += groups_[group].frameCount;
    }
  }

  /// A group that begins with the frame and has at most `frames` frames.
  GroupIndex groupOf(std::uint32_t frame, std::uint64_t frames) {
    GroupIndex group = groups_.holding(frame);
    if (const std::uint32_t before = frame - groups_[group].firstFrame; before > 0)
      group = split(group, before);
    if (frames < groups_[group].frameCount)
      split(group, static_cast<std::uint32_t>(frames));
    return group;
  }

  /// Brings back what must be on the device after the last node.
  void restoreBoundary() {
    for (std::size_t i = 0; i < states_.size(); ++i) {
      const PieceIndex piece = static_cast<PieceIndex>(i);
      if (!isResident(piece))
        continue;
      for (GroupIndex group : states_[piece].groups)
        if (groups_[group].occupant != piece) {
          admit(group, piece, states_[piece].hasValue);
          draft_.cameForBoundary[piece] = true;
        }
    }
  }

  // -- one node

  bool serve(NodeIndex node) {
    now_ = node;
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
    followHosted(node);
    return true;
  }

  /// Neighbouring pieces of one buffer that are always used together.
  struct Family {
    std::vector<PieceIndex> pieces;
    std::uint32_t pageCount = 0;
  };

  bool isPartialPage(PieceIndex piece) const {
    return timeline_.piece(piece).bytes < timeline_.piece(piece).pageCount * timeline_.pageBytes();
  }

  bool areAlike(PieceIndex a, PieceIndex b) const {
    const std::span<const Use> first = timeline_.usesOf(a), second = timeline_.usesOf(b);
    return timeline_.piece(a).buffer == timeline_.piece(b).buffer && draft_.boundary[a] == draft_.boundary[b] &&
           isPartialPage(a) == isPartialPage(b) && timeline_.apartGroupsOf(a) == timeline_.apartGroupsOf(b) &&
           std::equal(first.begin(), first.end(), second.begin(), second.end(), [](const Use &x, const Use &y) {
             return x.node == y.node && x.writes == y.writes && x.overwrites == y.overwrites;
           });
  }

  /// Neighbours that are used alike, and are to be away at the same times.
  void findKinds() {
    for (std::size_t i = 0; i < states_.size(); ++i) {
      const PieceIndex piece = static_cast<PieceIndex>(i);
      const bool isLikeLast =
          i > 0 && areAlike(kinds_[static_cast<PieceIndex>(i - 1)], piece) &&
          std::ranges::equal(leavesToCome(kinds_[static_cast<PieceIndex>(i - 1)]), leavesToCome(piece));
      kinds_.add(isLikeLast ? kinds_[static_cast<PieceIndex>(i - 1)] : piece);
    }
  }

  std::vector<Family> familiesOf(const std::vector<PieceIndex> &newcomers) const {
    std::vector<Family> families;
    for (PieceIndex piece : newcomers) {
      if (families.empty() || !areAlike(families.back().pieces.back(), piece))
        families.emplace_back();
      families.back().pieces.push_back(piece);
      families.back().pageCount += timeline_.piece(piece).pageCount;
    }
    return families;
  }

  /// Makes all of a piece that has its frames the occupant of them.
  void recall(const Use &use) {
    for (GroupIndex group : states_[use.piece].groups)
      if (groups_[group].occupant != use.piece)
        admit(group, use.piece, use.needsValue() && states_[use.piece].hasValue);
  }

  enum class Entry { Now, Later };

  /// Chooses frames for pieces that have none yet. Who enters now displaces who is there.
  bool place(const Family &family, Entry entry) {
    const PieceIndex first = family.pieces.front();
    const bool fetch = timeline_.usesOf(first).front().needsValue() && states_[first].hasValue;
    std::vector<Offer> &offers = offersFor(family, fetch);
    auto offer = offers.begin();
    for (PieceIndex piece : family.pieces) {
      const std::uint32_t pages = timeline_.piece(piece).pageCount;
      states_[piece].isPlaced = true;
      for (std::uint32_t page = 0; page < pages;) {
        if (offer == offers.end())
          return false;
        const GroupIndex group = offer->group;
        const std::uint32_t taken = std::min(groups_[group].frameCount, pages - page);
        if (taken < groups_[group].frameCount)
          offer->group = split(group, taken);
        else
          ++offer;
        if (entry == Entry::Now && groups_[group].occupant)
          displace(group);
        giveHome(group, piece, page, true);
        if (entry == Entry::Now)
          admit(group, piece, fetch);
        else
          rekey(group);
        page += taken;
      }
    }
    return true;
  }

  /// Puts a piece's pages from `page` on, as many as fit, into an unused group. Returns how many.
  std::uint32_t settle(GroupIndex group, PieceIndex piece, std::uint32_t page) {
    const std::uint32_t taken = std::min(groups_[group].frameCount, timeline_.piece(piece).pageCount - page);
    if (taken < groups_[group].frameCount)
      split(group, taken);
    giveHome(group, piece, page, isMirrored(piece));
    if (timeline_.lifeOf(piece)->fromBoundary) // else the step overwrites its value
      groups_[group].occupant = piece;
    rekey(group);
    return taken;
  }

  /// From now on the group is where the piece's pages from `page` on are whenever they are on the device.
  void giveHome(GroupIndex index, PieceIndex piece, std::uint32_t page, bool hostCurrent) {
    Group &group = groups_[index];
    const Part part{piece, page, hostCurrent, nextUseOf(piece)};
    group.parts.insert(firstAfter(group.parts.begin(), group.parts.end(), part.nextUse), part);
    states_[piece].groups.push_back(index);
    if (!timeline_.apartGroupsOf(piece).empty())
      noteApart(piece, group);
    const PageRun run = pagesOf(group, part);
    for (std::uint32_t i = 0; i < run.pageCount; ++i)
      draft_.frames[run.buffer][run.firstPage + i] = static_cast<std::int32_t>(group.firstFrame + i);
  }

  /// Leaves `frames` frames in a group; returns the group of the others.
  GroupIndex split(GroupIndex group, std::uint32_t frames) {
    const GroupIndex rest = groups_.split(group, frames);
    for (const Part &part : groups_[rest].parts) {
      std::vector<GroupIndex> &list = states_[part.piece].groups;
      list.insert(std::find(list.begin(), list.end(), group) + 1, rest);
    }
    rekey(rest);
    return rest;
  }

  void rekey(GroupIndex index) {
    Group &group = groups_[index];
    Group::Standing standing = Group::Standing::Vacant;
    if (group.occupant) {
      const Part &part = *partOf(group, *group.occupant);
      standing = leavesAnyway(part.piece) ? Group::Standing::Leaving
                 : mustBeSaved(part)      ? Group::Standing::Dirty
                                          : Group::Standing::Clean;
    }
    groups_.rank(index, group.parts.empty() ? neverUsed : group.parts.front().nextUse, standing);
  }

  /// Whether the part's contents, on the device now, would be lost if they were not copied to the host.
  bool mustBeSaved(const Part &part) const {
    return !part.hostCurrent && states_[part.piece].hasValue && nextUseNeedsValue(part.piece);
  }

  /// Whether the piece is to be away before its next use.
  bool leavesAnyway(PieceIndex piece) const {
    const std::uint32_t use = timeline_.piece(piece).usesBegin + static_cast<std::uint32_t>(states_[piece].nextUse);
    return !leaves_.empty() && use < timeline_.piece(piece).usesEnd && leaves_[use] != 0;
  }
  std::span<const std::uint8_t> leavesToCome(PieceIndex piece) const {
    if (leaves_.empty())
      return {};
    const Piece &uses = timeline_.piece(piece);
    return std::span(leaves_).subspan(uses.usesBegin, uses.usesEnd - uses.usesBegin).subspan(states_[piece].nextUse);
  }

  // -- tenants come and go

  /// Makes `piece` the occupant of a group in which it has its home, evicting who is there now. The group is ranked
  /// again when the use is recorded; until then nobody can displace a piece that is used now.
  void admit(GroupIndex index, PieceIndex piece, bool fetch) {
    if (groups_[index].occupant)
      displace(index);
    Group &group = groups_[index];
    Part &part = *partOf(group, piece);
    if (timeline_.piece(piece).continues && states_[piece].nextUse == 0)
      followEnd(group, part);
    if (fetch) {
      prefetch(group, part);
      part.hostCurrent = input_.leavesClean(piece);
      draft_.fetchedPages[piece] += group.frameCount;
      if (!leavesAnyway(piece) && (isResident(piece) || states_[piece].nextUse > 0))
        draft_.strayPages[piece] += group.frameCount;
    }
    group.occupant = piece;
  }

  /// Ends the occupant's tenure, copying what is still needed and not in host memory yet.
  void displace(GroupIndex index) {
    Group &group = groups_[index];
    Part &part = *partOf(group, *group.occupant);
    const PieceState &state = states_[part.piece];
    if (isResident(part.piece) && state.hasValue && !state.isWritten && nextUseNeedsValue(part.piece))
      draft_.leftUnwritten[part.piece] = true;
    const std::uint32_t use = timeline_.piece(part.piece).usesBegin + static_cast<std::uint32_t>(state.nextUse);
    if (use < timeline_.piece(part.piece).usesEnd)
      draft_.leftAt[use] = now_;
    if (mustBeSaved(part)) {
      evict(group, part);
      part.hostCurrent = true;
    } else {
      drop(group);
      if (nextUseOf(part.piece) != neverUsed) {
        draft_.discards.push_back({pagesOf(group, part), group.barrier, {}});
        group.discards.push_back(static_cast<std::uint32_t>(draft_.discards.size() - 1));
      }
    }
    group.occupant.reset();
  }

  /// The piece will not be used in this step any more, nor is it resident: its frames are free.
  void retire(PieceIndex piece) {
    const bool save = timeline_.piece(piece).mustSurvive() && states_[piece].hasValue;
    for (GroupIndex index : states_[piece].groups) {
      Group &group = groups_[index];
      if (group.occupant == piece) {
        Part &part = *partOf(group, piece);
        if (save && !part.hostCurrent)
          evict(group, part);
        else
          drop(group);
        noteEnd(group, part);
        group.occupant.reset();
      }
      group.parts.erase(partOf(group, piece));
    }
  }

  /// Copies a piece to the host that stays where it is.
  void mirror(PieceIndex piece) {
    for (GroupIndex index : states_[piece].groups) {
      Part &part = *partOf(groups_[index], piece);
      if (!part.hostCurrent && states_[piece].hasValue)
        evict(groups_[index], part);
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
    const std::uint32_t next = nextUseOf(use.piece);
    for (GroupIndex index : state.groups) {
      Group &group = groups_[index];
      assert(group.occupant == use.piece && "a node's pieces cannot displace one another");
      access(group, input_.delaysLeaving(use));
      const auto part = partOf(group, use.piece);
      if (use.writes)
        part->hostCurrent = false;
      if (next != neverUsed)
        postpone(group, part, next);
      group.lastUseUs = std::max(group.lastUseUs, timeline_.times().endUs[now_]);
    }
    if (next == neverUsed)
      retire(use.piece);
    else if (isMirrored(use.piece) && next == boundary_)
      mirror(use.piece);
    for (GroupIndex index : state.groups)
      rekey(index);
    mergeNeighbours(use.piece);
  }

  /// Joins adjacent groups that have become alike, so that transfers stay large.
  void mergeNeighbours(PieceIndex piece) {
    std::vector<GroupIndex> &list = states_[piece].groups;
    const bool isRetired = nextUseOf(piece) == neverUsed;
    std::size_t kept = 0;
    for (std::size_t i = 1; i < list.size(); ++i) {
      if (groups_.canMerge(list[kept], list[i])) {
        forget(list[i], piece);
        groups_.merge(list[kept], list[i]);
        continue;
      }
      list[++kept] = list[i];
    }
    if (!list.empty())
      list.resize(kept + 1);
    if (!isRetired)
      return;
    for (GroupIndex group : list)
      groups_.mergeUnusedAround(group);
    list.clear();
  }
  /// `gone` is about to become part of another group: its tenants other than `except` must not name it any more.
  void forget(GroupIndex gone, PieceIndex except) {
    for (const Part &part : groups_[gone].parts)
      if (part.piece != except)
        std::erase(states_[part.piece].groups, gone);
  }

  // -- order

  bool isCaptured(DraftNode node) const { return node < boundary_; }
  bool impliedBefore(DraftNode a, NodeIndex b) const { return isCaptured(a) && input_.order.completesBefore(a, b); }

  void access(Group &group, bool delaysLeaving) {
    const auto isImplied = [&](DraftNode a) { return a == now_ || impliedBefore(a, now_); };
    if (std::none_of(group.accesses.begin(), group.accesses.end(), isImplied)) {
      for (DraftNode node : group.barrier)
        if (!impliedBefore(node, now_))
          draft_.edges.push_back({node, now_});
      precede(group, now_);
    }
    std::erase_if(group.accesses, isImplied);
    group.accesses.push_back(now_);
    if (!delaysLeaving)
      return;
    std::erase_if(group.writes, isImplied);
    group.writes.push_back(now_);
  }

  /// Copies the occupant's part to the host, beside those that only read it: the next tenure waits for both.
  void evict(Group &group, const Part &part) {
    const std::vector<DraftNode> &after = group.writes.empty() ? group.barrier : group.writes;
    std::vector<DraftNode> barrier{transferAfter(group, part, NodeKind::Evict, after)};
    for (DraftNode access : group.accesses)
      if (std::find(after.begin(), after.end(), access) == after.end())
        barrier.push_back(access);
    beginTenure(group, std::move(barrier));
  }

  void prefetch(Group &group, const Part &part) {
    drop(group);
    beginTenure(group, {transferAfter(group, part, NodeKind::Prefetch, group.barrier)});
  }

  DraftNode transferAfter(Group &group, const Part &part, NodeKind kind, const std::vector<DraftNode> &after) {
    const DraftNode node = transferNode(kind, pagesOf(group, part), after);
    for (DraftNode before : after)
      draft_.edges.push_back({before, node});
    precede(group, node);
    return node;
  }

  /// Everything in the group from now on comes after `barrier`.
  void beginTenure(Group &group, std::vector<DraftNode> barrier) {
    group.barrier = std::move(barrier);
    group.accesses.clear();
    group.writes.clear();
    group.discards.clear();
  }

  /// From now on everything in the group comes after all that has happened in it.
  void drop(Group &group) {
    if (!group.accesses.empty())
      beginTenure(group, std::move(group.accesses));
  }

  void precede(Group &group, DraftNode node) {
    for (std::uint32_t discard : group.discards)
      draft_.discards[discard].before.push_back(node);
  }

  /// The transfer's node: the last one's, made longer, if both lie side by side in one buffer and wait for the same.
  DraftNode transferNode(NodeKind kind, const PageRun &pages, const std::vector<DraftNode> &after) {
    LastTransfer &last = kind == NodeKind::Evict ? lastEvict_ : lastPrefetch_;
    if (last.isSet && last.decidedAt == now_ && last.after == after) {
      PageRun &run = draft_.transfers[last.position].pages;
      if (run.buffer == pages.buffer && run.firstPage + run.pageCount == pages.firstPage &&
          run.pageCount + pages.pageCount <= mostPagesOfTransfer(timeline_)) {
        run.pageCount += pages.pageCount;
        return boundary_ + last.position;
      }
    }
    draft_.transfers.push_back({kind, pages});
    last.isSet = true;
    last.position = static_cast<std::uint32_t>(draft_.transfers.size() - 1);
    last.decidedAt = now_;
    last.after = after;
    return boundary_ + last.position;
  }

  /// Notes after what pages are done with, where their value goes on at another address.
  void noteEnd(const Group &group, const Part &part) {
    if (!timeline_.piece(part.piece).isContinued)
      return;
    const PageRun pages = pagesOf(group, part);
    std::vector<std::uint32_t> &ends = endOfPages_[pages.buffer];
    ends.resize(input_.captured.pageCount(pages.buffer), noEnd);
    std::fill_n(ends.begin() + pages.firstPage, pages.pageCount, static_cast<std::uint32_t>(ends_.size()));
    ends_.push_back(group.barrier);
  }
  /// The last events of the page at an address before the one that `buffer` is, where it was used last; null if it was
  /// not.
  const std::vector<DraftNode> *endBefore(BufferIndex buffer, std::uint64_t page) const {
    const std::vector<Buffer> &buffers = input_.captured.buffers;
    const std::uint64_t begin = page * input_.captured.pageBytes;
    for (BufferIndex before = buffers[buffer].continues; before != noBuffer; before = buffers[before].continues) {
      if (const auto ends = endOfPages_.find(before); ends != endOfPages_.end() && ends->second[page] != noEnd)
        return &ends_[ends->second[page]];
      if (const auto users = hostedUsers_.find(before);
          users != hostedUsers_.end() && overlaps(buffers[before].hosted, {begin, 1}))
        return &users->second;
    }
    return nullptr;
  }
  /// Of some pages, each once, in their order.
  using Ends = std::vector<const std::vector<DraftNode> *>;
  static void note(const std::vector<DraftNode> *end, Ends &found) {
    if (end && std::find(found.begin(), found.end(), end) == found.end())
      found.push_back(end);
  }
  /// The tenure that begins comes after what the pages are done with at the address before.
  void followEnd(Group &group, const Part &part) {
    drop(group);
    const PageRun pages = pagesOf(group, part);
    Ends found;
    for (std::uint32_t page = pages.firstPage; page < pages.firstPage + pages.pageCount; ++page)
      note(endBefore(pages.buffer, page), found);
    for (const std::vector<DraftNode> *end : found)
      for (DraftNode node : *end)
        if (std::find(group.barrier.begin(), group.barrier.end(), node) == group.barrier.end())
          group.barrier.push_back(node);
  }

  /// Lists who reaches hosted pages that go on at another address.
  void findHostedUsers() {
    const std::vector<Buffer> &buffers = input_.captured.buffers;
    for (const Buffer &buffer : buffers) {
      if (buffer.continues == noBuffer)
        continue;
      hasHostedContinuation_ |= !buffer.hosted.empty();
      if (!buffers[buffer.continues].hosted.empty())
        hostedUsers_.try_emplace(buffer.continues);
    }
    for (NodeIndex node = 0; !hostedUsers_.empty() && node < boundary_; ++node)
      for (const Access &access : input_.captured.nodes[node].accesses)
        if (const auto users = hostedUsers_.find(access.buffer);
            users != hostedUsers_.end() && overlaps(buffers[access.buffer].hosted, access.range) &&
            (users->second.empty() || users->second.back() != node))
          users->second.push_back(node);
    std::erase_if(hostedUsers_, [](const auto &users) { return users.second.empty(); });
  }
  /// The node comes after what the hosted pages that it reaches are done with where they were before.
  void followHosted(NodeIndex node) {
    if (!hasHostedContinuation_)
      return;
    const std::uint64_t pageBytes = input_.captured.pageBytes;
    Ends found;
    for (const Access &access : input_.captured.nodes[node].accesses) {
      const Buffer &buffer = input_.captured.buffers[access.buffer];
      if (buffer.continues == noBuffer)
        continue;
      for (const Range &hosted : buffer.hosted)
        for (std::uint64_t page = std::max(hosted.offset, access.range.offset) / pageBytes;
             page * pageBytes < std::min(hosted.end(), access.range.end()); ++page)
          note(endBefore(access.buffer, page), found);
    }
    for (const std::vector<DraftNode> *end : found)
      for (DraftNode before : *end)
        if (!impliedBefore(before, node))
          draft_.edges.push_back({before, node});
  }

  /// Whether the frames become free only when a copy to the host is over.
  bool endsWithEvict(const Group &group) const {
    return std::any_of(group.barrier.begin(), group.barrier.end(), [&](DraftNode node) {
      return !isCaptured(node) && draft_.transfers[node - boundary_].kind == NodeKind::Evict;
    });
  }

  using Parts = std::vector<Part>;
  static Parts::iterator partOf(Group &group, PieceIndex piece) {
    return std::find_if(group.parts.begin(), group.parts.end(), [&](const Part &p) { return p.piece == piece; });
  }
  /// The first that is used after the node. Mostly it is among the first of all: no search by halves.
  static Parts::iterator firstAfter(Parts::iterator begin, Parts::iterator end, std::uint32_t node) {
    return std::find_if(begin, end, [&](const Part &part) { return part.nextUse > node; });
  }
  static void postpone(Group &group, Parts::iterator part, std::uint32_t nextUse) {
    part->nextUse = nextUse;
    std::rotate(part, part + 1, firstAfter(part + 1, group.parts.end(), nextUse));
  }

  // -- which frames

  /// A group that could take some or all pages of a newcomer, and what that would cost a page.
  struct Offer {
    double costUs = 0;
    std::uint32_t mismatch = 0; ///< frames too few or too many
    std::size_t rank = 0;       ///< how many are looked at earlier
    GroupIndex group{};
  };
  std::vector<Offer> &offersFor(const Family &family, bool fetch);
  std::optional<double> costOf(const Group &group, PieceIndex newcomer, std::uint32_t pages, bool fetch);
  /// A tenant whose next use, or whose leaving, matters for a newcomer's price.
  struct Affected {
    PieceIndex kind{};
    bool hostCurrent = false;
    bool isOccupant = false;
    bool operator==(const Affected &) const = default;
  };
  /// What a newcomer does to the tenants of a group, played.
  struct Played {
    std::vector<Affected> affected;
    std::uint32_t taken = 0; ///< frames of the group
    std::uint32_t until = 0;
    double lastUseUs = 0;
    std::optional<double> withUs; ///< the newcomer; empty if it would meet a tenant
    double withoutUs = 0;         ///< unless it would
  };
  const Played &played(const Group &group, PieceIndex newcomer, std::uint32_t taken, bool fetch);
  std::uint32_t endOfInterest(const Group &group, PieceIndex newcomer) const;
  TenancyCost::Prices pricesOfBytes(std::uint64_t bytes) const {
    const double megabytes = static_cast<double>(bytes) * 1e6;
    return {overheadUs(input_.machine, true) + megabytes / input_.machine.downBytesPerSecond,
            overheadUs(input_.machine, false) + megabytes / input_.machine.upBytesPerSecond};
  }

  struct LastTransfer {
    bool isSet = false;
    std::uint32_t position = 0;
    NodeIndex decidedAt = 0;
    std::vector<DraftNode> after;
  };

  const PlannerInput &input_;
  const Timeline &timeline_;
  const Tuning tuning_;
  Displacement displacement_;
  IndexedVector<PieceIndex, PieceState> states_;
  NodeIndex boundary_;
  FrameGroups groups_;
  NodeIndex now_ = 0;
  LastTransfer lastEvict_, lastPrefetch_;
  TenancyCost cost_;
  const std::vector<std::uint8_t> &leaves_;  ///< DraftStart::leaves
  std::vector<const Part *> affectedParts_;  ///< played()'s, to spare allocations
  std::vector<TenancyCost::Tenant> tenants_; ///< likewise
  std::vector<Offer> offers_;                ///< offersFor's result
  std::array<Played, 4> played_;             ///< the latest, for the newcomer that offersFor() is about
  std::size_t nextPlayed_ = 0;
  IndexedVector<PieceIndex, PieceIndex> kinds_; ///< the first of the pieces that fare alike
  static constexpr std::uint32_t noEnd = UINT32_MAX;
  std::vector<std::vector<DraftNode>> ends_; ///< the last events of pages whose value goes on at another address
  std::map<BufferIndex, std::vector<std::uint32_t>> endOfPages_; ///< which of these, by page; noEnd: there are none
  bool hasHostedContinuation_ = false;                           ///< of a buffer, in part
  std::map<BufferIndex, std::vector<DraftNode>> hostedUsers_;    ///< of hosted pages that go on at another address
  Draft draft_;
};

/// The first use of a present tenant after the newcomer's last use: from there on all is as it would have been.
std::uint32_t FramePlanner::endOfInterest(const Group &group, PieceIndex newcomer) const {
  const std::uint32_t last = isResident(newcomer) ? boundary_ : timeline_.usesOf(newcomer).back().node;
  std::uint32_t end = neverUsed;
  for (const Part &part : group.parts) {
    if (part.nextUse >= last)
      return std::min(end, part.nextUse); // as the others are used later
    const std::span<const Use> uses = timeline_.usesOf(part.piece).subspan(states_[part.piece].nextUse);
    const auto after = std::partition_point(uses.begin(), uses.end(), [&](const Use &u) { return u.node < last; });
    if (after != uses.end())
      end = std::min(end, after->node);
    else if (isResident(part.piece))
      end = std::min(end, boundary_);
  }
  return end == neverUsed ? last : end;
}

/// What it costs a page of the newcomer to live in the group, microseconds: transfers that would not be needed
/// otherwise, and hand-overs with little time. Empty if it would meet a tenant, or must be apart from one that is or
/// was there.
std::optional<double> FramePlanner::costOf(const Group &group, PieceIndex newcomer, std::uint32_t pages, bool fetch) {
  draft_.effort += effortOfPrice;
  if (isKeptOut(newcomer, group))
    return std::nullopt;
  const std::uint32_t taken = std::min(group.frameCount, pages);
  const auto [evictUs, fetchUs] = pricesOfBytes(taken * timeline_.pageBytes());

  double costUs = 0;
  for (DraftNode node : group.accesses.empty() ? group.barrier : group.accesses)
    if (isCaptured(node) && !input_.order.completesBefore(node, now_))
      costUs += tuning_.edgeUs + std::max(0.0, timeline_.times().endUs[node] - startUs(now_));
  if (group.accesses.empty() && endsWithEvict(group))
    costUs += tuning_.latenessUs(evictUs, startUs(now_) - group.lastUseUs);
  if (group.parts.empty())
    return (costUs + (fetch ? tuning_.latenessUs(fetchUs, startUs(now_) - group.lastUseUs) : 0.0)) / taken;
  const Played &result = played(group, newcomer, taken, fetch);
  if (!result.withUs)
    return std::nullopt;
  return (costUs + *result.withUs - result.withoutUs) / taken;
}

const FramePlanner::Played &FramePlanner::played(const Group &group, PieceIndex newcomer, std::uint32_t taken,
                                                 bool fetch) {
  const std::uint32_t until = endOfInterest(group, newcomer);
  affectedParts_.clear();
  for (const Part &part : group.parts)
    if (part.nextUse <= until || group.occupant == part.piece)
      affectedParts_.push_back(&part);
    else if (!group.occupant)
      break;
  const auto affected = [&](const Part *part) {
    return Affected{kinds_[part->piece], part->hostCurrent, group.occupant == part->piece};
  };
  const auto isLike = [&](const Played &other) {
    return other.taken == taken && other.until == until && other.lastUseUs == group.lastUseUs &&
           std::ranges::equal(other.affected, affectedParts_, {}, {}, affected);
  };
  for (const Played &other : played_)
    if (isLike(other))
      return other;

  Played &result = played_[nextPlayed_++ % played_.size()];
  result.taken = taken;
  result.until = until;
  result.lastUseUs = group.lastUseUs;
  result.affected.clear();
  const auto pricesOf = [&](PieceIndex piece, std::uint32_t firstPage) {
    const std::uint64_t pieceBytes = timeline_.piece(piece).bytes - firstPage * timeline_.pageBytes();
    return pricesOfBytes(std::min<std::uint64_t>(pieceBytes, taken * timeline_.pageBytes()));
  };
  tenants_.clear();
  std::size_t occupant = TenancyCost::nobody;
  for (const Part *part : affectedParts_) {
    const PieceIndex piece = part->piece;
    result.affected.push_back(affected(part));
    if (group.occupant == piece)
      occupant = tenants_.size();
    tenants_.push_back({timeline_.usesOf(piece).subspan(states_[piece].nextUse), isResident(piece),
                        timeline_.piece(piece).mustSurvive(), states_[piece].hasValue, part->hostCurrent, false,
                        isMirrored(piece), pricesOf(piece, part->firstPage), leavesToCome(piece),
                        input_.leavesClean(piece)});
  }
  tenants_.push_back({timeline_.usesOf(newcomer), isResident(newcomer), timeline_.piece(newcomer).mustSurvive(), fetch,
                      true, true, isMirrored(newcomer), pricesOf(newcomer, 0), leavesToCome(newcomer),
                      input_.leavesClean(newcomer)});
  result.withUs = cost_.play(tenants_, occupant, group.lastUseUs, until);
  if (!result.withUs)
    return result;
  tenants_.pop_back();
  result.withoutUs = cost_.play(tenants_, occupant, group.lastUseUs, until).value_or(0);
  return result;
}

/// The groups newcomers may go to, cheapest first: more than are needed to hold all pages.
std::vector<FramePlanner::Offer> &FramePlanner::offersFor(const Family &family, bool fetch) {
  const PieceIndex piece = family.pieces.front();
  const std::uint32_t piecePages = timeline_.piece(piece).pageCount;
  std::vector<Offer> &offers = offers_;
  offers.clear();
  for (Played &other : played_)
    other.taken = 0; // nobody's
  std::uint32_t freeFrames = 0;
  const auto gather = [&](const Ranking &ranking) {
    std::size_t considered = 0, beyond = 0;
    std::uint32_t frames = 0;
    ranking.visit([&](GroupIndex index) {
      const bool isBeyond = considered >= mostCandidates && frames >= family.pageCount;
      if (isBeyond && (!tuning_.looksFurther || ++beyond > sampleReach))
        return false;
      if (isBeyond && beyond % sampleStride != 0)
        return true;
      const Group &group = groups_[index];
      if (isBeyond && group.parts.size() > mostTenantsOfSample)
        return true;
      if (group.occupant && isUsedAt(*group.occupant, now_))
        return true;
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

} // namespace

void PlannerInput::settleCopies(BoundaryStates &boundary) const {
  if (!isForManaged())
    return;
  for (std::size_t i = 0; i < boundary.size(); ++i)
    if (const PieceIndex piece = static_cast<PieceIndex>(i); boundary[piece] != BoundaryState::Away)
      boundary[piece] = leavesClean(piece) ? BoundaryState::Mirrored : BoundaryState::Resident;
}

tl::expected<Draft, Stuck> draftPlan(const PlannerInput &input, const DraftStart &start, const Tuning &tuning,
                                     const PieceFrames *homes) {
  return FramePlanner(input, start, tuning, Displacement::Allowed).run(start.first, homes);
}

std::optional<Draft> draftWithoutTransfers(const PlannerInput &input) {
  BoundaryStates boundary(input.timeline.pieces().size(), BoundaryState::Away);
  for (std::size_t i = 0; i < boundary.size(); ++i)
    if (input.timeline.piece(static_cast<PieceIndex>(i)).liveOut)
      boundary[static_cast<PieceIndex>(i)] = BoundaryState::Resident;
  tl::expected<Draft, Stuck> draft =
      FramePlanner(input, {boundary, {}, {}}, {}, Displacement::Forbidden).run({}, nullptr);
  assert((draft || !input.timeline.apartPieces().empty()) && "the frames hold the step's peak");
  return draft ? std::optional(std::move(*draft)) : std::nullopt;
}

} // namespace pumpgraph
