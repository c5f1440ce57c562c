// SPDX-License-Identifier: Apache-2.0
/// \file
/// Every number that the planner chose by trying (docs/design/planner.md, "To change it"). A number that follows from
/// another, that names a fact, or that only bounds the time of one algorithm, is not here.
#pragma once

#include <cstddef>
#include <cstdint>

namespace pumpgraph::knobs {

// Planning time. Steps of any size are planned in bounded time: large ones try less.

/// Draft::effort of a search after which only attempts that promise most are made: so much for all nodes together,
/// within the two that follow.
inline constexpr std::uint64_t effortOfNodes = 300'000'000'000, leastEffort = 20'000'000, mostEffort = 60'000'000;
/// Pieces and uses that are looked at for a balance of what is hosted: some milliseconds.
inline constexpr std::uint64_t mostBalanceSteps = 1'000'000;
/// For steps with more nodes one search, with one size of rows, has to do.
inline constexpr std::size_t mostNodesOfSeveralSearches = 5000;
/// Attempts side by side: of what more of them would try, much comes after a success and counts for nothing.
inline constexpr unsigned mostAhead = 6;
/// How often what found no frames is to choose first: pieces of a node, or a class of them.
inline constexpr int mostRetries = 32;

// When a plan is good enough, or no better.

/// A plan that takes no longer than this times the plan bound is left alone.
inline constexpr double closeToBound = 1.01;
/// Worth of one microsecond less on the link, where the step takes as long.
inline constexpr double worthOfMoving = 0.01;
/// Of the step: what is too little to count. So much has to be gained by what comes on top of a good plan, and a
/// transfer that can be later by no more is one that the step waits for.
inline constexpr double little = 0.002;
/// How much of one kind comes on top of a good plan: splits to host less, splits beside wide nodes, deferrals.
inline constexpr int mostOnTop = 4;

// Prices of gaps.

/// Worth of a link that nobody waits for: of two ways to make room, the one that moves less.
inline constexpr double leastWorth = 0.1;
/// A transfer that could end later by this share of the step is in nobody's way.
inline constexpr double freeSlack = 0.05;
/// Of equally dear pieces those leave that are away across the boundary: they have the most time to go and to come.
inline constexpr double wrapDiscount = 0.9;
/// Then those that had to leave in the last plan, because of the frames that they and others got.
inline constexpr double habitDiscount = 0.97;
/// How often gaps are chosen by the prices of the best plan, and how often what strayed chooses frames again.
inline constexpr std::size_t roundsByPrice = 3;

// Prices of hosted pages.

/// Of the time of copies that hosting saves: they might have run beside other nodes, as hosted accesses never do.
inline constexpr double worthOfMove = 0.5;
/// Of the time on the link: how much longer nodes may take for hosted pages that they were not known to reach before.
inline constexpr double doubt = 0.5;

// Frames.

/// How many are looked at: groups of each standing for a newcomer, those whose next use is farthest; the largest
/// buffers for a split that spares hosting; the last copies of a lane for one that may get another row.
inline constexpr std::size_t mostCandidates = 32;

// The neighbourhood search.

/// In all, so that planning time is bounded where each of them gains a little.
inline constexpr std::size_t mostRounds = 480;
/// Rounds in a row that together gain too little, after which there will be no more: so many, and at most twice as many
/// where little is spent on them, Draft::effort. For managed memory all rounds are of one kind, so half of them tell as
/// much.
inline constexpr std::size_t vainRounds = 96;
inline constexpr std::uint64_t littleEffort = 4'000'000;
/// Of few pieces the same ones choose again before long: so many of these rounds for each are the most.
inline constexpr std::size_t vainRoundsOfPiece = 8;
/// Parts of the step whose pieces choose again, and DraftStart::slackWeight when they do, in turn. The first weight is
/// also that of gaps by price: the link is the limit then, and what comes late somewhere comes earlier elsewhere.
inline constexpr double windowShares[] = {0.4, 0.2, 0.1, 0.05};
inline constexpr double slackWeights[] = {0.25, 1, 4};
/// Of the buffers with such pieces, how many do, in turn, each for windows of all kinds. Where few large buffers live
/// side by side, one or two that choose again among all others find what all together do not.
inline constexpr double bufferShares[] = {1, 0.5, 0.125};

// The finish of a plan.

/// Joining: how far on their lane transfers are looked for. The first alone where planning has taken long.
inline constexpr std::int32_t reachesTried[] = {0, 4, 16, 64, 256};
/// Copies are saved with larger rows, and more is moved away from where it was wanted. Large steps try the first alone.
inline constexpr std::uint64_t rowBytesTried[] = {std::uint64_t{8} << 20, std::uint64_t{4} << 20,
                                                  std::uint64_t{2} << 20};

// Variants of a step.

/// How large pieces are in the searches that are made side by side, in place of the usual size.
inline constexpr std::uint64_t pieceMultiples[] = {1, 3, 8};
/// How many of the largest pieces of the usual size the budget holds at least, unless it is small.
inline constexpr double leastPiecesInBudget = 80;
/// Of the step: what is idle for less does not go on at another address, to spare others being hosted.
inline constexpr double leastIdleShare = 0.3;

} // namespace pumpgraph::knobs
