// SPDX-License-Identifier: Apache-2.0
#include "passes/pipeline/HostingSearch.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

namespace pumpgraph {
namespace {

bool has(const HostedSet &set, CandidateIndex candidate) {
  return std::binary_search(set.begin(), set.end(), candidate);
}

HostedSet upTo(CandidateIndex count) {
  HostedSet all(count);
  std::iota(all.begin(), all.end(), 0);
  return all;
}

/// The time of a set is a sum over candidates, and what they take together.
class HostingSearchTest : public testing::Test {
protected:
  template <typename TimeOf> HostingSearch searchOf(CandidateIndex count, std::size_t mostTrials, TimeOf timeOf) {
    predict_ = [this, timeOf](const std::vector<HostedSet> &sets) {
      std::vector<double> times;
      for (const HostedSet &set : sets) {
        EXPECT_TRUE(std::is_sorted(set.begin(), set.end()));
        EXPECT_TRUE(tried_.insert(set).second) << "what was predicted is known";
        times.push_back(timeOf(set));
      }
      trials_ += sets.size();
      return times;
    };
    return HostingSearch(count, normalForm_, predict_, mostTrials);
  }

  NormalForm normalForm_ = [](HostedSet set) { return set; };
  PredictAll predict_;
  std::size_t trials_ = 0;
  std::set<HostedSet> tried_;
};

TEST_F(HostingSearchTest, FindsWhatGainsByItself) {
  HostingSearch search = searchOf(9, 1000, [](const HostedSet &set) {
    double us = 100;
    for (const CandidateIndex candidate : set)
      us += candidate % 2 == 0 ? -5 : 5;
    return us;
  });
  search.climbFrom({});
  EXPECT_EQ(search.best(), (HostedSet{0, 2, 4, 6, 8}));
  EXPECT_EQ(search.bestUs(), 75);
}

// Changes that gain one by one may not gain together: here more than three are too many.
TEST_F(HostingSearchTest, TakesNoMoreThanGainTogether) {
  HostingSearch search = searchOf(16, 1000, [](const HostedSet &set) {
    const double size = static_cast<double>(set.size());
    return 100 - size + (size > 3 ? 10 * (size - 3) : 0);
  });
  search.climbFrom({});
  EXPECT_EQ(search.best().size(), 3u);
}

// The room of one is that of the other: neither adding nor taking away gains.
TEST_F(HostingSearchTest, ExchangesPairs) {
  HostingSearch search = searchOf(6, 1000, [](const HostedSet &set) {
    return set.size() != 1 ? 100.0 : has(set, 4) ? 50.0 : 60.0;
  });
  search.climbFrom({1});
  EXPECT_EQ(search.best(), (HostedSet{4}));
}

TEST_F(HostingSearchTest, KeepsTheBestOfSeveralClimbs) {
  HostingSearch search = searchOf(8, 1000, [](const HostedSet &set) {
    return set.size() < 4 ? 100 + static_cast<double>(set.size()) : 90 - static_cast<double>(set.size());
  });
  search.climbFrom({});
  EXPECT_EQ(search.bestUs(), 100);
  search.climbFrom(upTo(8));
  EXPECT_EQ(search.best(), upTo(8));
  search.climbFrom({});
  EXPECT_EQ(search.best(), upTo(8));
}

TEST_F(HostingSearchTest, StopsAfterSoManyTrials) {
  HostingSearch search = searchOf(50, 120, [](const HostedSet &set) { return 100 - static_cast<double>(set.size()); });
  search.climbFrom({});
  EXPECT_LE(trials_, 120u);
  EXPECT_GT(search.best().size(), 0u);
}

// Of each three the first ones stand for all: the time depends on how many there are, and they count once.
TEST_F(HostingSearchTest, TriesOneOfThoseThatAreAsGood) {
  normalForm_ = [](HostedSet set) {
    std::vector<CandidateIndex> taken(3, 0);
    for (CandidateIndex &candidate : set) {
      const CandidateIndex three = candidate / 3;
      candidate = 3 * three + taken[three]++;
    }
    return set;
  };
  HostingSearch search = searchOf(9, 1000, [](const HostedSet &set) {
    double us = 100;
    for (const CandidateIndex three : {0, 1, 2}) {
      const auto count = std::count_if(set.begin(), set.end(), [&](CandidateIndex one) { return one / 3 == three; });
      us += std::abs(static_cast<double>(count) - three); // none of the first three, one, two
    }
    return us;
  });
  search.climbFrom({5, 8});
  EXPECT_EQ(search.best(), (HostedSet{3, 6, 7}));
  EXPECT_EQ(search.bestUs(), 100);
  search.climbFrom({0, 1, 2, 3, 4, 5, 6, 7, 8});
  EXPECT_EQ(search.best(), (HostedSet{3, 6, 7}));
  EXPECT_LE(trials_, 4U * 4U * 4U);
}

TEST_F(HostingSearchTest, SetsWithoutAPlanAreLeftOut) {
  HostingSearch search = searchOf(
      4, 1000, [](const HostedSet &set) { return has(set, 2) ? impossible : 100 - static_cast<double>(set.size()); });
  search.climbFrom({});
  EXPECT_EQ(search.best(), (HostedSet{0, 1, 3}));
}

} // namespace
} // namespace pumpgraph
