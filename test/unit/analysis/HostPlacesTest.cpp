// SPDX-License-Identifier: Apache-2.0
#include "passes/analysis/HostPlaces.h"

#include "test/unit/analysis/SmallStep.h"

#include <gtest/gtest.h>

namespace pumpgraph {
namespace {

using test::smallPage;
using test::SmallStep;

TEST(HostPlaces, OnlyWhatMovesOrStaysAwayNeedsOne) {
  SmallStep small;
  const BufferIndex moved = small.local("moved", 4), kept = small.live("kept", 3);
  small.local("never", 5);
  small.step.buffers[kept].resident = {{0, 3 * smallPage}};
  small.residency(NodeKind::Evict, moved, 1, 2);
  EXPECT_EQ(HostPlaces(small.step).bytes(), 2 * smallPage);
}

TEST(HostPlaces, ALiveBufferThatIsNotResidentNeedsOneEvenIfNothingMovesIt) {
  SmallStep small;
  const BufferIndex live = small.live("live", 3);
  small.step.buffers[live].resident = {{0, smallPage}};
  const HostPlaces places(small.step);
  EXPECT_EQ(places.bytes(), 2 * smallPage);
  EXPECT_EQ(places.placeOf(live, smallPage), 0u);
}

TEST(HostPlaces, AMirroredPageNeedsOneEvenIfNothingMovesIt) {
  SmallStep small;
  const BufferIndex live = small.live("live", 3);
  small.step.buffers[live].resident = {{0, 3 * smallPage}};
  small.step.buffers[live].mirrored = {{smallPage, smallPage}};
  const HostPlaces places(small.step);
  EXPECT_EQ(places.bytes(), smallPage);
  EXPECT_EQ(places.placeOf(live, smallPage), 0u);
}

TEST(HostPlaces, AHostedPageNeedsNone) {
  SmallStep small;
  const BufferIndex live = small.live("live", 4);
  small.step.buffers[live].resident = {{3 * smallPage, smallPage}};
  small.step.buffers[live].hosted = {{0, 2 * smallPage}};
  const HostPlaces places(small.step);
  EXPECT_EQ(places.bytes(), smallPage);
  EXPECT_EQ(places.placeOf(live, 2 * smallPage), 0u);
}

TEST(HostPlaces, APageHasOnePlaceHoweverOftenItMoves) {
  SmallStep small;
  const BufferIndex b = small.local("b", 4);
  small.residency(NodeKind::Evict, b, 0, 3);
  small.residency(NodeKind::Prefetch, b, 2, 2);
  const HostPlaces places(small.step);
  EXPECT_EQ(places.bytes(), 4 * smallPage);
  EXPECT_EQ(places.placeOf(b, 2 * smallPage), places.placeOf(b, 0) + 2 * smallPage);
}

TEST(HostPlaces, BuffersDoNotOverlap) {
  SmallStep small;
  const BufferIndex a = small.local("a", 1), b = small.local("b", 1);
  small.residency(NodeKind::Evict, a, 0, 1);
  small.residency(NodeKind::Evict, b, 0, 1);
  const HostPlaces places(small.step);
  EXPECT_GE(places.placeOf(b, 0), places.placeOf(a, 0) + smallPage);
  EXPECT_LE(places.placeOf(b, 0) + smallPage, places.bytes());
}

} // namespace
} // namespace pumpgraph
