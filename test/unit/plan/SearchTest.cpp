// SPDX-License-Identifier: Apache-2.0
#include "passes/plan/search/Search.h"

#include "passes/plan/allocate/GivenBoundary.h"
#include "passes/plan/search/Each.h"
#include "test/unit/plan/RegularStep.h"

#include <gtest/gtest.h>

#include <atomic>
#include <numeric>
#include <vector>

namespace pumpgraph {
namespace {

class SearchTest : public testing::Test {
protected:
  SearchTest()
      : step_(test::regularStep({.layers = 6})), timeline_(step_), order_(step_), frames_(timeline_.peakPages() / 2),
        given_(givenBoundary(step_, timeline_, nullptr, frames_)),
        input_{step_, timeline_, order_, machine_, frames_, given_}, evaluator_(input_, frames_ * step_.pageBytes) {}

  /// So many pieces that are live between steps stay there.
  Choices staying(std::size_t count) const {
    Choices choices{{given_.states, {}, {}, {}}, {}};
    for (std::size_t i = 0; i < timeline_.pieces().size() && count > 0; ++i)
      if (const PieceIndex piece = static_cast<PieceIndex>(i); timeline_.piece(piece).liveOut) {
        choices.start.boundary[piece] = BoundaryState::Resident;
        --count;
      }
    return choices;
  }

  /// Tries some numbers of pieces that stay.
  SearchTrace traceOf(std::vector<std::size_t> counts, unsigned threads, std::uint64_t effort = UINT64_MAX) const {
    Repairs repairs(input_, nullptr);
    Workers workers(threads);
    const Shares shares(threads, 1);
    Search search(evaluator_, repairs, workers, shares, effort);
    Each<std::size_t> proposer("staying", search, std::move(counts),
                               [this](std::size_t count) { return staying(count); });
    search.run(proposer);
    return search.trace();
  }

  Machine machine_;
  Description step_;
  Timeline timeline_;
  Order order_;
  std::uint64_t frames_;
  GivenBoundary given_;
  PlannerInput input_;
  Evaluator evaluator_;
};

TEST_F(SearchTest, KeepsTheBestAndWritesDownWhatEachBrought) {
  const SearchTrace trace = traceOf({0, 2, 1, 4}, 1);
  ASSERT_EQ(trace.size(), 4u);
  EXPECT_EQ(trace[0].beforeUs, 0);
  EXPECT_TRUE(trace[0].kept);
  double bestUs = trace[0].afterUs;
  for (std::size_t i = 1; i < trace.size(); ++i) {
    EXPECT_EQ(trace[i].proposer, "staying");
    EXPECT_EQ(trace[i].beforeUs, bestUs);
    EXPECT_GT(trace[i].effort, 0u);
    if (trace[i].kept)
      bestUs = trace[i].afterUs;
  }
}

TEST_F(SearchTest, WhatIsKnownIsNotTriedAgain) {
  EXPECT_EQ(traceOf({1, 1, 2, 1}, 1).size(), 2u);
  EXPECT_EQ(traceOf({1, 1, 2, 1}, 4).size(), 2u);
}

TEST_F(SearchTest, TriesTheSameHoweverManyThreadsThereAre) {
  std::vector<std::size_t> counts(12);
  std::iota(counts.begin(), counts.end(), std::size_t{0});
  const SearchTrace one = traceOf(counts, 1);
  for (const unsigned threads : {2U, 6U}) {
    const SearchTrace several = traceOf(counts, threads);
    ASSERT_EQ(several.size(), one.size());
    for (std::size_t i = 0; i < one.size(); ++i) {
      EXPECT_EQ(several[i].afterUs, one[i].afterUs);
      EXPECT_EQ(several[i].kept, one[i].kept);
    }
  }
}

TEST_F(SearchTest, StopsWhenItIsSpent) {
  EXPECT_EQ(traceOf({0, 1, 2}, 1, 1).size(), 1u);
  EXPECT_EQ(traceOf({0, 1, 2}, 3, 1).size(), 1u);
}

/// Proposes what is best already, for ever, until it has learned of so many turns.
class Learner : public Proposer {
public:
  explicit Learner(const Search &search) : search_(search) {}
  std::string_view name() const override { return "learner"; }
  Turn at(std::size_t turn) const override {
    return learned.size() >= 5 ? Turn::Over : turn % 2 == 1 ? Turn::Skip : Turn::Try;
  }
  std::optional<Proposal> propose(std::size_t) override { return Proposal{search_.asked(), false, 0}; }
  void learn(const Evaluated *plan, bool isKept) override { learned.push_back(plan != nullptr || isKept); }
  std::vector<bool> learned;

private:
  const Search &search_;
};

TEST_F(SearchTest, AProposerLearnsOfEveryTurnInOrder) {
  Repairs repairs(input_, nullptr);
  Workers workers(3);
  const Shares shares(3, 1);
  Search search(evaluator_, repairs, workers, shares, UINT64_MAX);
  search.asked() = staying(0);
  Learner learner(search);
  search.run(learner);
  EXPECT_EQ(learner.learned, (std::vector<bool>{true, false, false, false, false})); // then all is known
  EXPECT_EQ(search.trace().size(), 1u);
}

TEST(Workers, DoEverythingOnceAndWaitForAll) {
  for (const unsigned processors : {1U, 2U, 5U}) {
    Workers workers(processors);
    std::vector<std::atomic<int>> done(100);
    workers.forEach(done.size(), [&](std::size_t i) { ++done[i]; });
    for (const std::atomic<int> &each : done)
      EXPECT_EQ(each, 1);
  }
}

// Whoever waits does what nobody has begun, so that work inside work cannot wait for ever.
TEST(Workers, WorkInsideWorkEnds) {
  Workers workers(2);
  std::atomic<int> done = 0;
  workers.forEach(8, [&](std::size_t) { workers.forEach(8, [&](std::size_t) { ++done; }); });
  EXPECT_EQ(done, 64);
}

TEST(Workers, AbandonedWorkIsNotBegunAnyMore) {
  std::atomic<int> done = 0;
  Job<int> job([&] { return ++done; });
  EXPECT_FALSE(job.abandon());
  EXPECT_TRUE(job.abandon());
  EXPECT_EQ(done, 0);
}

// What the work refers to is gone once forEach() has thrown.
TEST(Workers, AllWorkIsOverWhenOneThrows) {
  for (const unsigned processors : {1U, 3U}) {
    Workers workers(processors);
    std::atomic<int> done = 0;
    const auto work = [&](std::size_t i) {
      if (i == 0)
        throw std::runtime_error("lost");
      ++done;
    };
    EXPECT_THROW(workers.forEach(20, work), std::runtime_error);
    EXPECT_EQ(done, 19);
  }
}

TEST(Workers, WhatIsThrownComesToWhoAsks) {
  Workers workers(2);
  Job<int> job = workers.begin([]() -> int { throw 7; });
  EXPECT_THROW(static_cast<void>(job.get()), int);
}

TEST(Shares, OfASearchThatIsDoneGoToTheOthers) {
  Shares eight(8, 3);
  EXPECT_EQ(eight.ofEach(), 2U);
  eight.searchIsDone();
  EXPECT_EQ(eight.ofEach(), 4U);
  eight.searchIsDone();
  EXPECT_EQ(eight.ofEach(), 6U) << "more would only be tried ahead of a success";
  EXPECT_EQ(Shares(2, 3).ofEach(), 1U);
}

} // namespace
} // namespace pumpgraph
