// SPDX-License-Identifier: Apache-2.0
// Programs drawn at random: whatever a caller does between replays, values are those of the plain run, or a call says
// why not. PUMPGRAPH_PROGRAMS and PUMPGRAPH_FIRST_SEED in the environment draw more of them, or others.
#include "test/unit/runtime/DrawnProgram.h"

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <csignal>
#include <cstdlib>

using namespace pumpgraph::runtime::test;

namespace {

std::uint32_t fromEnvironment(const char *name, std::uint32_t otherwise) {
  const char *text = std::getenv(name);
  return text ? static_cast<std::uint32_t>(std::strtoul(text, nullptr, 10)) : otherwise;
}

volatile std::uint32_t seedInWork = 0;

/// A crash is of a seed, too.
void tellSeed(int signal) {
  std::fprintf(stderr, "drawn programs: signal %d in seed %u\n", signal, static_cast<unsigned>(seedInWork));
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

class DrawnProgramsTest : public ::testing::Test {
protected:
  void SetUp() override {
    std::signal(SIGABRT, tellSeed);
    std::signal(SIGSEGV, tellSeed);
  }
  void TearDown() override {
    std::signal(SIGABRT, SIG_DFL);
    std::signal(SIGSEGV, SIG_DFL);
  }

  /// `calm`: at least this share of the programs has to run without any call refused. Plans that are made and tried
  /// again take their time.
  void runAll(const DrawOptions &options, double calm) {
    const std::uint32_t programs = fromEnvironment("PUMPGRAPH_PROGRAMS", options.ownReplays ? 20 : 60);
    const std::uint32_t first = fromEnvironment("PUMPGRAPH_FIRST_SEED", 1);
    std::uint32_t unrefused = 0;
    int replays = 0, moved = 0;
    std::uint64_t pagedBytes = 0;
    for (std::uint32_t seed = first; seed < first + programs; ++seed) {
      seedInWork = seed;
      const Outcome outcome = runDrawnProgram(seed, options, PUMPGRAPH_COMPILER_LIBRARY);
      unrefused += outcome.refusals.empty() ? 1 : 0;
      replays += outcome.replays;
      moved += outcome.moved;
      pagedBytes += outcome.pagedBytes;
      EXPECT_EQ(outcome.wrong, "") << fmt::format("seed {}: {}\nrefused: {}", seed, join(outcome.trace),
                                                  join(outcome.refusals));
    }
    fmt::print("{} programs: {} without a refusal; {} replays, {} of plans that move data\n", programs, unrefused,
               replays, moved);
    if (programs < 20)
      return;
    EXPECT_GE(unrefused, calm * programs);
    EXPECT_GE(moved, replays / 3) << "budgets are too large to test anything";
    EXPECT_GE(replays, 3 * programs);
    EXPECT_GT(pagedBytes, programs) << "eager operators had room for all";
  }

private:
  static std::string join(const std::vector<std::string> &lines) {
    std::string joined;
    for (const std::string &line : lines)
      joined += (joined.empty() ? "" : "; ") + line;
    return joined;
  }
};

TEST_F(DrawnProgramsTest, areEqual) {
  runAll({}, 0.5);
}

TEST_F(DrawnProgramsTest, areEqualAfterReplaysOfPumpGraphsOwn) {
  runAll({.ownReplays = true}, 0.2);
}

TEST_F(DrawnProgramsTest, areEqualOrRefusedWhereTheDriverFails) {
  runAll({.failures = true}, 0);
}

TEST_F(DrawnProgramsTest, areEqualOrRefusedWhereReplaysOfPumpGraphsOwnFail) {
  runAll({.failures = true, .ownReplays = true}, 0);
}

} // namespace
