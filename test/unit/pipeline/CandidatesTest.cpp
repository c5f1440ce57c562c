// SPDX-License-Identifier: Apache-2.0
#include "passes/pipeline/Candidates.h"

#include "test/unit/analysis/SmallStep.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace pumpgraph {
namespace {

constexpr std::uint64_t mebibyte = std::uint64_t{1} << 20;

class CandidatesTest : public testing::Test {
protected:
  /// "a" is written, then "b", then "a" is read: with room for one of them, "a" leaves and comes back.
  CandidatesTest() {
    small_.step.pageBytes = 2 * mebibyte;
    const BufferIndex a = test::addBuffer(small_.step, "a", 4 * mebibyte, true, false),
                      b = test::addBuffer(small_.step, "b", 4 * mebibyte, true, false);
    small_.kernel("forward", 100, {small_.write(a)});
    small_.kernel("loss", 100, {small_.write(b)});
    small_.kernel("backward", 100, {small_.read(a)});
    options_.plan.budgetBytes = 4 * mebibyte;
    options_.plan.backend = Backend::Managed;
    options_.plan.machine.copyOverheadUs = 1000; // so that operations are dear
    setManagedHosting(options_.plan.machine);
    options_.managed.mayBeHosted = {a, b};
  }

  const Description &step() const { return small_.step; }
  /// All nodes take so long with their operands in host memory.
  HostingRounds roundsOf(double us) const {
    return {std::vector<std::uint8_t>(2, 0), {std::vector<double>(step().nodes.size(), us)}};
  }
  std::vector<Candidate> candidates(double us) const { return compileCandidates(step(), options_, roundsOf(us)); }

  test::SmallStep small_;
  CompileOptions options_;
};

std::vector<std::string> namesOf(const std::vector<Candidate> &candidates) {
  std::vector<std::string> names;
  for (const Candidate &candidate : candidates)
    names.push_back(candidate.name);
  return names;
}

TEST_F(CandidatesTest, ThereIsOneWhereNobodyKnowsTimes) {
  const std::vector<Candidate> found = compileCandidates(step(), options_, std::nullopt);
  ASSERT_EQ(namesOf(found), std::vector<std::string>{"as predicted"});
  EXPECT_EQ(found[0].compiled->hostedBytes(), 0U) << "though it might be";
}

TEST_F(CandidatesTest, ThereIsOneOnVirtualMemory) {
  options_.plan.backend = Backend::Virtual;
  EXPECT_EQ(namesOf(candidates(101)), std::vector<std::string>{"as predicted"});
}

TEST_F(CandidatesTest, TheFirstHostsNothingByChoice) {
  const std::vector<Candidate> found = candidates(101);
  ASSERT_GE(found.size(), 2U);
  EXPECT_EQ(found[0].name, "nothing hosted by choice");
  EXPECT_EQ(found[0].compiled->hostedBytes(), 0U);
  for (std::size_t i = 1; i < found.size(); ++i)
    EXPECT_GT(found[i].compiled->hostedBytes(), 0U) << found[i].name;
}

TEST_F(CandidatesTest, NoPlanIsThereTwice) {
  EXPECT_EQ(namesOf(candidates(90'000)), std::vector<std::string>{"nothing hosted by choice"});
}

TEST_F(CandidatesTest, EachSaysWhyItIsMissing) {
  options_.plan.machine.hostBytes = mebibyte;
  const std::vector<Candidate> found = candidates(101);
  EXPECT_EQ(namesOf(found),
            (std::vector<std::string>{"nothing hosted by choice", "operations at full pace", "operations at 30 %",
                                      "as predicted", "operations slower", "hosted whole"}));
  for (const Candidate &candidate : found) {
    ASSERT_FALSE(candidate.compiled) << candidate.name;
    EXPECT_NE(candidate.compiled.error().message, "");
  }
}

// What stays in host memory was there in all rounds: what it takes is no time of what was there beside it.
TEST_F(CandidatesTest, WhatStaysIsToldFromWhatMayBeHosted) {
  constexpr BufferIndex a = 0, b = 1;
  small_.step.nodes[2].accesses.push_back(small_.read(b)); // both are read, each in 100 us over the link
  Machine &machine = options_.plan.machine;
  machine.upBytesPerSecond = machine.downBytesPerSecond = machine.bothBytesPerSecond = 4 * mebibyte * 1e4 / 0.9;
  options_.plan.hosted = {{a, {0, 4 * mebibyte}}};
  options_.managed.mayBeHosted = {b};
  const Description timed = withSlowdowns(step(), options_, {{0, 1}, {{400, 100, 400}, {400, 200, 450}}});
  EXPECT_NEAR(timed.nodes[2].accesses[a].slowdown, 3, 1e-3);
  EXPECT_NEAR(timed.nodes[2].accesses[b].slowdown, 0.5, 1e-3);
  EXPECT_NEAR(timed.nodes[1].accesses[0].slowdown, 1, 1e-3);
}

// Operations that take a hundredth of what they do are not worth avoiding if nodes take long.
TEST_F(CandidatesTest, ThePlanAloneIsMadeAsIfOperationsWereFaster) {
  const Description timed = withSlowdowns(step(), options_, roundsOf(1100));
  const auto compiled = compile(timed, options_);
  ASSERT_TRUE(compiled);
  EXPECT_GT(compiled->hostedBytes(), 0U);
  options_.managed.slowerBy = 0.01;
  const auto asIf = compile(timed, options_);
  ASSERT_TRUE(asIf);
  EXPECT_EQ(asIf->hostedBytes(), 0U);
  EXPECT_GT(timed.nodes.back().accesses[0].slowdown, 1);
  EXPECT_EQ(asIf->lowered.nodes.back().accesses[0].slowdown, timed.nodes.back().accesses[0].slowdown);
  EXPECT_EQ(asIf->inMemory.totalUs, compiled->inMemory.totalUs);
}

} // namespace
} // namespace pumpgraph
