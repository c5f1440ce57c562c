// SPDX-License-Identifier: Apache-2.0
#include "runtime/streams/Period.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <numeric>
#include <random>
#include <vector>

namespace pumpgraph::runtime::test {
namespace {

using Calls = std::vector<std::uint64_t>;

CallIdentity identityOf(std::uint64_t call) {
  return IdentityBuilder().add(call).identity();
}

/// `count` different calls, no others of the test's.
Calls differentCalls(std::size_t count, std::uint64_t first) {
  Calls calls(count);
  std::iota(calls.begin(), calls.end(), first);
  return calls;
}

Calls operator*(const Calls &calls, std::size_t times) {
  Calls all;
  for (std::size_t i = 0; i < times; ++i)
    all.insert(all.end(), calls.begin(), calls.end());
  return all;
}

Calls operator+(Calls one, const Calls &other) {
  one.insert(one.end(), other.begin(), other.end());
  return one;
}

/// A detector that is checked against the whole sequence at each call.
class Checked {
public:
  explicit Checked(const PeriodDetector::Options &options = {}) : detector_(options) {}

  Recognition add(std::uint64_t call) {
    all_.push_back(identityOf(call));
    const Period *const before = detector_.inForce();
    const bool wasExpected = before && before->calls[detector_.phase()] == all_.back();
    const std::size_t known = detector_.known().size();
    const std::uint32_t newest = newestNumber();
    const Recognition recognition = detector_.add(all_.back());
    switch (recognition) {
    case Recognition::Searching:
      EXPECT_FALSE(before || detector_.inForce());
      break;
    case Recognition::Following:
      EXPECT_TRUE(wasExpected);
      EXPECT_EQ(before, detector_.inForce());
      break;
    case Recognition::Deviated:
      EXPECT_TRUE(before && !wasExpected);
      EXPECT_EQ(detector_.inForce(), nullptr);
      break;
    case Recognition::Found:
      expectRounds(detector_.known().size() > known || newestNumber() > newest ? 2 : 1);
      break;
    }
    return recognition;
  }

  /// How many calls of these until a period of this length is in force; their count if none is.
  std::size_t addUntilInForce(const Calls &calls, std::size_t length) {
    std::size_t count = 0;
    for (const std::uint64_t call : calls) {
      add(call);
      ++count;
      if (detector_.inForce() && detector_.inForce()->calls.size() == length)
        break;
    }
    return count;
  }
  /// What each of them meant, as counts.
  struct Seen {
    int searching = 0, found = 0, following = 0, deviated = 0;
  };
  Seen addAll(const Calls &calls) {
    Seen seen;
    for (const std::uint64_t call : calls) {
      const Recognition recognition = add(call);
      ++(recognition == Recognition::Searching   ? seen.searching
         : recognition == Recognition::Found     ? seen.found
         : recognition == Recognition::Following ? seen.following
                                                 : seen.deviated);
    }
    return seen;
  }

  PeriodDetector &detector() { return detector_; }
  std::size_t inForce() const { return detector_.inForce() ? detector_.inForce()->calls.size() : 0; }

private:
  std::uint32_t newestNumber() const {
    std::uint32_t newest = 0;
    for (const Period &period : detector_.known())
      newest = std::max(newest, period.number);
    return newest;
  }
  /// The last calls are so many rounds of the period in force, up to the phase.
  void expectRounds(std::size_t rounds) {
    ASSERT_NE(detector_.inForce(), nullptr);
    const std::vector<CallIdentity> &calls = detector_.inForce()->calls;
    ASSERT_GE(all_.size(), rounds * calls.size());
    for (std::size_t back = 0; back < rounds * calls.size(); ++back)
      ASSERT_EQ(all_[all_.size() - 1 - back],
                calls[(detector_.phase() + rounds * calls.size() - 1 - back) % calls.size()]);
  }

  PeriodDetector detector_;
  std::vector<CallIdentity> all_;
};

TEST(PeriodTest, twoRoundsInARowMakeAPeriod) {
  Checked checked;
  const Calls round = differentCalls(50, 0);
  EXPECT_EQ(checked.addUntilInForce(round * 5, 50), 100U);
  EXPECT_EQ(checked.detector().inForce()->foundAt, 99U);
  EXPECT_EQ(checked.addAll(round * 3).following, 150);
}

TEST(PeriodTest, oneRoundDoesNot) {
  Checked checked;
  const Checked::Seen seen = checked.addAll(differentCalls(500, 0));
  EXPECT_EQ(seen.searching, 500);
}

TEST(PeriodTest, warmUpIsNoPartOfAPeriod) {
  Checked checked;
  const Calls round = differentCalls(50, 100);
  checked.addAll(differentCalls(28, 0));
  checked.addAll(differentCalls(20, 100)); // a part of a round, and another call in its place
  checked.addAll({1});
  EXPECT_EQ(checked.addUntilInForce(round * 5, 50), 100U);
}

TEST(PeriodTest, roundsShorterThanALookUpAreFound) {
  for (std::size_t length = 1; length < 12; ++length) {
    Checked checked;
    const std::size_t count = checked.addUntilInForce(differentCalls(length, 0) * 30, length);
    EXPECT_LE(count, std::max<std::size_t>(2 * length, length + 8)) << length;
  }
}

TEST(PeriodTest, aDeviationEndsThePeriodAndOneRoundBringsItBack) {
  Checked checked;
  const Calls round = differentCalls(50, 0), evaluation = differentCalls(30, 100);
  checked.addAll(round * 4);
  const Checked::Seen evaluated = checked.addAll(evaluation);
  EXPECT_EQ(evaluated.deviated, 1);
  EXPECT_EQ(evaluated.searching, 29);
  EXPECT_EQ(checked.addUntilInForce(round * 3, 50), 50U);
  EXPECT_EQ(checked.detector().known().size(), 1U);
  EXPECT_EQ(checked.detector().inForce()->deviations, 1U);
}

TEST(PeriodTest, aDeviationInTheMiddleOfARound) {
  Checked checked;
  const Calls round = differentCalls(50, 0);
  checked.addAll(round * 3);
  const Calls half(round.begin(), round.begin() + 25);
  EXPECT_EQ(checked.addAll(half).following, 25);
  EXPECT_EQ(checked.addAll({777}).deviated, 1);
  const Calls rest(round.begin() + 26, round.end());
  checked.addAll(rest);
  EXPECT_LE(checked.addUntilInForce(round * 3, 50), 50U); // a whole round of it, wherever that begins
}

TEST(PeriodTest, anEvaluationEveryTenRoundsBecomesPartOfAPeriod) {
  Checked checked;
  const Calls round = differentCalls(50, 0), evaluation = differentCalls(30, 100);
  const Calls epoch = round * 10 + evaluation;
  checked.addAll(epoch * 3);
  EXPECT_EQ(checked.inForce(), 530U);
  EXPECT_EQ(checked.addAll(epoch * 2).deviated, 0);
}

TEST(PeriodTest, aLoopWithinTheIterationGivesWayToTheIteration) {
  Checked checked;
  const Calls iteration = differentCalls(20, 0) * 4 + differentCalls(11, 100);
  checked.addAll(iteration * 3);
  EXPECT_EQ(checked.inForce(), 91U);
  EXPECT_EQ(checked.addAll(iteration * 5).deviated, 0);
}

TEST(PeriodTest, aLastBatchOfAnotherSize) {
  Checked checked;
  const Calls round = differentCalls(40, 0), last = differentCalls(40, 100);
  checked.addAll(round * 6 + last);
  EXPECT_EQ(checked.addUntilInForce(round * 6, 40), 40U);
}

TEST(PeriodTest, anInterruptionEndsAllButWhatIsKnown) {
  Checked checked;
  const Calls round = differentCalls(50, 0);
  checked.addAll(round * 3);
  checked.detector().interrupt();
  EXPECT_EQ(checked.detector().inForce(), nullptr);
  EXPECT_EQ(checked.addUntilInForce(round * 3, 50), 50U);
}

TEST(PeriodTest, noHypothesisReachesOverAnInterruption) {
  Checked checked;
  const Calls round = differentCalls(50, 0);
  checked.addAll(round);
  checked.detector().interrupt();
  EXPECT_EQ(checked.addUntilInForce(round * 3, 50), 100U);
}

TEST(PeriodTest, thePeriodUsedLastIsForgottenFirst) {
  Checked checked({.lookedUp = 8, .longest = 1 << 12, .known = 2});
  for (const std::uint64_t first : {0, 1000, 2000})
    checked.addAll(differentCalls(30, first) * 3);
  EXPECT_EQ(checked.detector().known().size(), 2U);
  EXPECT_EQ(checked.addUntilInForce(differentCalls(30, 1000) * 2, 30), 30U);
  EXPECT_EQ(checked.addUntilInForce(differentCalls(30, 0) * 2, 30), 60U);
}

TEST(PeriodTest, periodsBeyondTheLongestAreNotFound) {
  Checked checked({.lookedUp = 8, .longest = 64, .known = 4});
  EXPECT_EQ(checked.addAll(differentCalls(65, 0) * 6).found, 0);
  EXPECT_EQ(checked.addAll(differentCalls(64, 1000) * 6).found, 1);
}

/// Whether no shorter sequence makes it up.
bool isPrimitive(const Calls &calls) {
  for (std::size_t length = 1; length < calls.size(); ++length) {
    bool repeats = calls.size() % length == 0;
    for (std::size_t i = length; repeats && i < calls.size(); ++i)
      repeats = calls[i] == calls[i - length];
    if (repeats)
      return false;
  }
  return true;
}

/// Random rounds of few different calls, with repetitions within, after a random beginning, with deviations.
TEST(PeriodTest, randomSequences) {
  int inForce = 0, drawn = 0;
  for (std::uint32_t seed = 1; seed <= 400; ++seed) {
    std::mt19937 random(seed);
    const auto draw = [&](std::size_t most) { return 1 + random() % most; };
    const std::size_t alphabet = draw(seed % 2 == 0 ? 6 : 40);
    const auto drawCalls = [&](std::size_t count) {
      Calls calls(count);
      for (std::uint64_t &call : calls)
        call = random() % alphabet;
      return calls;
    };
    Checked checked({.lookedUp = 8, .longest = 1 << 10, .known = static_cast<std::uint32_t>(draw(4))});
    for (int part = 0; part < 4; ++part) {
      checked.addAll(drawCalls(draw(100)));
      const Calls round = drawCalls(draw(70));
      checked.addAll(round * 8);
      if (!isPrimitive(round) || round.size() == 1)
        continue;
      ++drawn;
      inForce += checked.inForce() == round.size() ? 1 : 0;
      const Checked::Seen seen = checked.addAll(round * 2);
      EXPECT_TRUE(checked.inForce() != round.size() || seen.deviated <= 1) << seed;
    }
  }
  // A round whose own calls are periodic for a while may take longer.
  EXPECT_GT(inForce, drawn * 98 / 100) << "of " << drawn;
}

/// Constant time for each call, whatever comes: the time of ten times as many calls is about ten times as long.
TEST(PeriodTest, timeGrowsWithTheCallsAlone) {
  const auto secondsOf = [](std::size_t rounds, std::size_t length) {
    PeriodDetector detector;
    const auto start = std::chrono::steady_clock::now();
    for (std::size_t i = 0; i < rounds * length; ++i)
      detector.add(identityOf(i % length % (length / 3 + 1)));
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  };
  secondsOf(10, 1000);
  // The same number of calls, in short and in long rounds.
  EXPECT_LT(secondsOf(10, 50000), 20 * secondsOf(10000, 50) + 0.05);
}

} // namespace
} // namespace pumpgraph::runtime::test
