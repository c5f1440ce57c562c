// SPDX-License-Identifier: Apache-2.0
/// \file
/// Every number that the planner chose by trying (docs/design/planner.md, "To change it"). A number that follows from
/// another, or that names a fact, is not here.
#pragma once

#include <cstddef>
#include <cstdint>

namespace pumpgraph::knobs {

// Planning time. Steps of any size are planned in bounded time: large ones try less.

/// Draft::effort of a search after which only attempts that promise most are made: so much for all nodes together,
/// within the two that follow.
inline constexpr std::uint64_t effortOfNodes = 300'000'000'000, leastEffort = 20'000'000, mostEffort = 60'000'000;
/// Of looking for frames where nodes are wide, words and classes: planning waits about a second for it.
inline constexpr std::uint64_t mostColouringEffort = 300'000'000;
/// Steps of an exact search before it gives up, and pieces and uses that are looked at for a balance: some
/// milliseconds.
inline constexpr std::uint64_t mostExactSteps = 1'000'000;
/// Pages above which the exact search for frames would need too much memory.
inline constexpr std::uint64_t mostSearchedPages = 512;
/// For steps with more nodes one search, with one size of rows, has to do.
inline constexpr std::size_t mostNodesOfSeveralSearches = 5000;
/// Attempts side by side: of what more of them would try, much comes after a success and counts for nothing.
inline constexpr unsigned mostAhead = 6;
/// How often something is repaired after some node found no frames.
inline constexpr int mostRestarts = 16;

// When a plan is good enough, or no better.

/// A plan that takes no longer than this times the plan bound is left alone.
inline constexpr double closeToBound = 1.01;
/// Worth of one microsecond less on the link, where the step takes as long.
inline constexpr double worthOfMoving = 0.01;
/// Of the step: what an attempt has to promise to gain, to be worth planning.
inline constexpr double leastGain = 0.002;
/// A quick plan that takes so many times as long as the best tells that there is no hope.
inline constexpr double hopeless = 1.02;

// Prices of gaps.

/// Slots of equal length in which a microsecond of the link has one price.
inline constexpr std::size_t slotCount = 128;
/// How often the price of room is raised.
inline constexpr int mostRaises = 256;
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
/// Tuning::slackWeight then: the link is the limit, and what comes late somewhere comes earlier elsewhere.
inline constexpr double slackWeightByPrice = 0.25;

// Prices of hosted pages.

/// Of the time that copies would have taken: they might have run beside other nodes, as hosted accesses never do.
inline constexpr double worthOfMove = 0.5;
/// Of the time of a copy up, for each page: where accesses cost the same, fewer pages are better.
inline constexpr double priceOfPage = 0.5;
/// Of what the accesses cost: hosting is never for nothing.
inline constexpr double leastShareOfAccesses = 0.05;
/// Of the time on the link: how much longer nodes may take for hosted pages that they were not known to reach before.
inline constexpr double doubt = 0.5;
/// Half of the largest hosted piece is exchanged for others first, then a quarter, down to this part or a page.
inline constexpr std::int64_t mostParts = 64;

// Frames.

/// How many groups of each standing are looked at for a newcomer: those whose next use is farthest, and, looking
/// further, each so manieth of so many after them, unless it has so many tenants that playing them takes long.
inline constexpr std::size_t mostCandidates = 32, sampleReach = 512, sampleStride = 21, mostTenantsOfSample = 24;
/// A node is crowded if it uses so much of the frames.
inline constexpr double crowdedShare = 0.7;
/// How often a class of pieces that found no frames is to choose first, before more is hosted for its sake.
inline constexpr int mostPromotions = 32;
/// Of the frames: as much is hosted at least when it is not clear for whose sake.
inline constexpr std::uint64_t leastPartHosted = 64;
/// An odd cycle that is within such a part of too large is coloured first.
inline constexpr std::uint64_t nearlyTooLarge = 8;
/// Classes tried as the second of a clique, or beside or across one in an odd cycle.
inline constexpr std::size_t mostSeeds = 64, mostAcross = 256;

// The neighbourhood search.

inline constexpr std::size_t mostRounds = 480;
/// Rounds in a row that together gain less than `notableGain` of the step, after which there will be no more: few of
/// them, or little spent on them, Draft::effort. For managed memory all rounds are of one kind, so fewer tell as much.
inline constexpr std::size_t fewVainRounds = 96, fewVainRoundsOfManaged = 48, mostVainRounds = 192;
/// Of few pieces the same ones choose again before long: so many of these rounds for each are the most.
inline constexpr std::size_t vainRoundsOfPiece = 8;
inline constexpr std::uint64_t littleEffort = 4'000'000;
inline constexpr double notableGain = 0.001;
/// Parts of the step whose pieces choose again, and Tuning::slackWeight when they do, in turn.
inline constexpr double windowShares[] = {0.4, 0.2, 0.1, 0.05};
inline constexpr double slackWeights[] = {0.25, 1, 4};
/// Of the buffers with such pieces, how many do, in turn, each for windows of all kinds. Where few large buffers live
/// side by side, one or two that choose again among all others find what all together do not.
inline constexpr double bufferShares[] = {1, 0.5, 0.125};

// The finish of a plan.

/// Joining: how far on their lane transfers are looked for. The first alone where planning has taken long.
inline constexpr std::int32_t reachesTried[] = {0, 4, 16, 64, 256};
/// How often transfers are deferred, each time from the best plan so far.
inline constexpr std::uint32_t mostDeferrals = 4;
/// Of the step: a transfer that could not be later by more than this is one that the step waits for.
inline constexpr double littleSlack = 0.0005;
/// Of the step: how much earlier than at the latest what is deferred may begin, so that a link a little slower than
/// predicted does not make it late.
inline constexpr double deferralMargin = 0.002;
/// Copies are saved with larger rows, and more is moved away from where it was wanted. Large steps try the first alone.
inline constexpr std::uint64_t rowBytesTried[] = {std::uint64_t{8} << 20, std::uint64_t{4} << 20,
                                                  std::uint64_t{2} << 20};
/// How many copies of a lane back may still get rows.
inline constexpr std::size_t reachOfRows = 16;

// Variants of a step.

/// How large pieces are in the searches that are made side by side, in place of the usual size.
inline constexpr std::uint64_t pieceMultiples[] = {1, 3, 8};
/// How many of the largest pieces of the usual size the budget holds at least, unless it is small.
inline constexpr double leastPiecesInBudget = 80;
/// Steps in which more is hosted until all pages find frames.
inline constexpr std::uint64_t hostingSteps = 8;
/// Of the step: what is idle for less does not go on at another address, to leave others its frames or to spare them
/// being hosted.
inline constexpr double leastIdleShare = 0.3, leastIdleShareSparing = 0.05;
/// How many buffers at most go on at another address so that less is hosted, how many are tried, and the least part
/// that each spares.
inline constexpr int mostSparing = 4;
inline constexpr std::size_t mostCandidatesForSparing = 32;
inline constexpr double leastSpared = 0.02;
/// How many splits of what is hosted, and of what is not, are worth a look at a time; and how many beside wide nodes a
/// plan has at most.
inline constexpr std::size_t mostSplitsFound = 8;
inline constexpr int mostSplitsBesideWide = 4;

} // namespace pumpgraph::knobs
