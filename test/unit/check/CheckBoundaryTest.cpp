// SPDX-License-Identifier: Apache-2.0
// What a step that shares a boundary must leave as it is.
#include "passes/check/CheckResidency.h"
#include "passes/plan/PlanResidency.h"
#include "test/unit/check/RandomGraph.h"
#include "test/unit/check/SharedSteps.h"
#include "test/unit/check/StepBuilder.h"
#include "test/unit/check/ViolationMatchers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <functional>

namespace pumpgraph::test {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

/// Others use frames 0 to 2. `own` is nothing to them.
struct CheckBoundary : testing::Test {
  CheckBoundary() {
    resident = builder.buffer("resident", {0}, StepBuilder::liveInOut);
    mirrored = builder.buffer("mirrored", {1}, StepBuilder::liveInOut);
    away = builder.buffer("away", {2, 1}, StepBuilder::liveInOut);
    hosted = builder.buffer("hosted", {noFrame}, StepBuilder::liveInOut);
    own = builder.buffer("own", {3}, StepBuilder::liveInOut);
    builder.resident(resident);
    builder.mirrored(mirrored);
    builder.hosted(hosted);
    builder.resident(own);
    copy = builder.move(NodeKind::CopyToHost, away, {0, 8}, 4);
    newCopy = builder.move(NodeKind::CopyToHost, own, {0, 4}, 12);
    boundary = builder.step();
    boundary.budgetBytes = 3 * StepBuilder::pageBytes;
    boundary.hostBytes = 12;
    boundary.nodes.pop_back();
    boundary.edges.clear();
    boundary.buffers[away].frames[1] = noFrame;
    boundary.buffers[own].frames.clear();
    boundary.buffers[own].resident.clear();
  }

  Description &step() { return builder.step(); }
  Buffer &buffer(BufferIndex index) { return step().buffers[index]; }
  std::vector<Violation> check() { return checkKeepsBoundary(boundary, step()); }

  StepBuilder builder{4};
  BufferIndex resident = 0, mirrored = 0, away = 0, hosted = 0, own = 0;
  NodeIndex copy = 0, newCopy = 0;
  Description boundary;
};

// A page that had no frame may have one now, among the others' too: it is not there between replays.
TEST_F(CheckBoundary, acceptsWhatIsKept) {
  EXPECT_THAT(check(), IsEmpty());
}

TEST_F(CheckBoundary, pagesKeepTheirFrames) {
  buffer(away).frames[0] = 3;
  EXPECT_THAT(check(),
              ElementsAre(says("page 0 (bytes [0, 4)) of \"away\" has frame 3; other steps have given it frame 2")));
}

TEST_F(CheckBoundary, pagesStayWhereTheyAreBetweenReplays) {
  buffer(resident).resident.clear();
  EXPECT_THAT(check(), ElementsAre(says("of \"resident\" is in host memory between replays; other steps keep it on the "
                                        "device")));
  builder.mirrored(resident);
  EXPECT_THAT(check(), ElementsAre(says("is on the device and in host memory between replays")));
  builder.resident(resident);
  buffer(resident).mirrored.clear();
  buffer(mirrored).mirrored.clear();
  EXPECT_THAT(check(), ElementsAre(says("of \"mirrored\" is on the device between replays; other steps keep it on the "
                                        "device and in host memory")));
  builder.mirrored(mirrored);
  buffer(hosted).hosted.clear();
  EXPECT_THAT(check(),
              ElementsAre(says("of \"hosted\" is in host memory between replays; other steps keep it hosted")));
  builder.hosted(hosted);
  buffer(away).resident = {{4, 4}};
  EXPECT_THAT(check(), ElementsAre(says("page 1 (bytes [4, 8)) of \"away\" is on the device between replays")));
}

TEST_F(CheckBoundary, othersFramesAreTheirsBetweenReplays) {
  buffer(own).frames[0] = 2;
  EXPECT_THAT(check(), ElementsAre(says("of \"own\" stays in frame 2 between replays, which other steps use")));
  buffer(own).resident.clear();
  EXPECT_THAT(check(), IsEmpty());
  buffer(own).isPrivate = boundary.buffers[own].isPrivate = false;
  EXPECT_THAT(check(), ElementsAre(says("of \"own\" stays in frame 2")));
}

TEST_F(CheckBoundary, valuesLiveOn) {
  buffer(resident).liveIn = false;
  EXPECT_THAT(check(), ElementsAre(says("other steps keep a value in \"resident\", but this one does not")));
  builder.kernel("overwrite", {builder.write(resident)});
  EXPECT_THAT(check(), IsEmpty());
  buffer(resident).liveOut = false;
  EXPECT_THAT(check(), ElementsAre(says("but this one does not")));
}

TEST_F(CheckBoundary, placesInHostMemoryStay) {
  step().nodes[copy].hostOffset = 0;
  EXPECT_THAT(check(), ElementsAre(says("moves page 0 (bytes [0, 4)) of \"away\" at 0 of the pinned pool; other steps "
                                        "have given it 4")));
  step().nodes[copy].hostOffset = 4;
  step().nodes[newCopy].hostOffset = 8;
  EXPECT_THAT(check(), ElementsAre(says("of \"own\" at 8 of the pinned pool, which is other steps' up to 12")));
}

TEST_F(CheckBoundary, buffersAreTheSame) {
  boundary.buffers[resident].isPrivate = false;
  EXPECT_THAT(check(), ElementsAre(says("the boundary's buffers are not those of the step")));
}

/// One page's part in the boundary changed: every such change is a mistake.
using Change = std::function<bool(const Description &boundary, Buffer &buffer, const Buffer &given)>;

TEST(CheckBoundaryMutation, everyChangeIsRejected) {
  const std::vector<std::pair<const char *, Change>> changes = {
      {"another frame",
       [](const Description &, Buffer &buffer, const Buffer &given) {
         return !given.frames.empty() && given.frames[0] != noFrame && ++buffer.frames[0] != noFrame;
       }},
      {"no frame",
       [](const Description &, Buffer &buffer, const Buffer &given) {
         return !given.frames.empty() && std::exchange(buffer.frames.back(), noFrame) != noFrame &&
                given.frames.back() != noFrame;
       }},
      {"not resident",
       [](const Description &, Buffer &buffer, const Buffer &given) {
         buffer.mirrored.clear();
         return !given.frames.empty() && buffer.isPrivate && !std::exchange(buffer.resident, {}).empty();
       }},
      {"resident",
       [](const Description &, Buffer &buffer, const Buffer &given) {
         return !given.frames.empty() && buffer.isPrivate &&
                !covers(std::exchange(buffer.resident, {{0, buffer.size}}), {0, buffer.size});
       }},
      {"not mirrored",
       [](const Description &, Buffer &buffer, const Buffer &given) {
         return !given.frames.empty() && !std::exchange(buffer.mirrored, {}).empty();
       }},
      {"mirrored",
       [](const Description &, Buffer &buffer, const Buffer &given) {
         buffer.mirrored = buffer.resident;
         return !given.frames.empty() && buffer.mirrored != given.mirrored;
       }},
      {"not hosted",
       [](const Description &, Buffer &buffer, const Buffer &given) {
         return !given.frames.empty() && !std::exchange(buffer.hosted, {}).empty();
       }},
      {"not live",
       [](const Description &, Buffer &buffer, const Buffer &given) {
         return !given.frames.empty() && buffer.isPrivate && std::exchange(buffer.liveOut, false);
       }},
      {"own page in another's frame",
       [](const Description &boundary, Buffer &buffer, const Buffer &given) {
         if (!given.frames.empty() || (buffer.isPrivate && buffer.resident.empty()))
           return false;
         if (buffer.isPrivate)
           buffer.resident = {{0, std::min(boundary.pageBytes, buffer.size)}};
         return boundary.budgetBytes > 0 && std::exchange(buffer.frames[0], 0) != 0;
       }},
  };
  std::vector<unsigned> made(changes.size(), 0);
  for (std::uint64_t seed = 0; seed < 1500; ++seed) {
    const StepPair pair = randomPair(seed);
    PlanOptions options;
    options.budgetBytes =
        (std::max(leastFrames(pair.first), leastFrames(pair.second)) + seed % 6) * pair.first.pageBytes;
    if (seed % 8 == 0)
      options.budgetBytes = std::max<std::uint64_t>(1, leastFrames(pair.first) / 2) * pair.first.pageBytes;
    const auto first = planResidency(pair.first, options);
    if (!first)
      continue;
    const Description boundary = boundaryAfter(pair, first->description);
    options.boundary = &boundary;
    options.budgetBytes += 2 * pair.first.pageBytes;
    const auto second = planResidency(pair.second, options);
    if (!second)
      continue;
    ASSERT_THAT(checkKeepsBoundary(boundary, second->description), IsEmpty()) << "seed " << seed;
    for (std::size_t i = 0; i < changes.size(); ++i)
      for (BufferIndex b = 0; b < boundary.buffers.size(); ++b) {
        Description mutant = second->description;
        if (!changes[i].second(boundary, mutant.buffers[b], boundary.buffers[b]))
          continue;
        ++made[i];
        ASSERT_FALSE(checkKeepsBoundary(boundary, mutant, 1).empty())
            << "seed " << seed << ", " << changes[i].first << " of buffer " << b << "\nthe boundary\n"
            << toText(boundary) << "the mutant\n"
            << toText(mutant);
      }
  }
  for (std::size_t i = 0; i < changes.size(); ++i)
    EXPECT_GT(made[i], 5U) << changes[i].first;
}

} // namespace
} // namespace pumpgraph::test
