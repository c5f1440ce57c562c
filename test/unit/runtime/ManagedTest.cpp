// SPDX-License-Identifier: Apache-2.0
// The whole way on managed memory, on the fake driver: capture, adopt under a budget, replay with an agent.
#include "test/unit/runtime/Program.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <map>
#include <set>
#include <string>
#include <vector>

using namespace pumpgraph;
using namespace pumpgraph::runtime;
using namespace pumpgraph::runtime::test;

namespace {

constexpr std::uint64_t arenaPages = 192;
constexpr std::uint64_t tightPages = 19;

SessionOptions managedOptions(std::uint64_t budgetPages) {
  SessionOptions options;
  options.budgetBytes = budgetPages * pageBytes;
  options.compilerLibrary = PUMPGRAPH_COMPILER_LIBRARY;
  options.backend = BackendChoice::Managed;
  options.managedBytes = arenaPages * pageBytes;
  options.managedGuard.limitBytes = arenaPages * pageBytes;
  return options;
}

class ManagedTest : public ::testing::Test {
protected:
  void open(std::uint64_t budgetPages, const FakeDriver::Options &driver = {}) {
    session_.reset();
    fake_.reset();
    fake_.emplace(driver);
    Expected<std::unique_ptr<Session>> made = Session::create(managedOptions(budgetPages), fake_->table());
    ASSERT_TRUE(made) << messageOf(made);
    session_ = std::move(*made);
  }

  void start(const Program::Shape &shape = {}) {
    program_.emplace(*fake_, *session_, shape);
    program_->prepare();
    graph_ = program_->record();
  }

  Step *adopt(bool calibrate, HostingChoice hosting = HostingChoice::NoRoom) {
    AdoptOptions options;
    options.calibrate = calibrate;
    options.hosting = hosting;
    const Expected<Step *> step = session_->adopt(graph_, options);
    EXPECT_TRUE(step) << messageOf(step);
    return step ? *step : nullptr;
  }

  /// The same step once more, beside the first.
  Step *adoptAnother(bool calibrate, HostingChoice hosting = HostingChoice::NoRoom) {
    graph_ = program_->record();
    return adopt(calibrate, hosting);
  }

  nlohmann::json runtimeReport(Step *step) { return nlohmann::json::parse(step->report()).at("runtime"); }

  std::optional<FakeDriver> fake_;
  std::unique_ptr<Session> session_;
  std::optional<Program> program_;
  CUgraph graph_ = nullptr;
};

TEST_F(ManagedTest, addsNoNodeWhenEverythingFits) {
  open(64);
  start();
  const std::string before = fake_->print(graph_);
  Step *step = adopt(false);
  ASSERT_TRUE(step);
  EXPECT_EQ(fake_->print(graph_), before);
  EXPECT_EQ(runtimeReport(step).at("backend"), "managed");
  replay(step, 3);
  EXPECT_EQ(program_->loss(), program_->expectedLoss(3));
  EXPECT_EQ(program_->weights(), program_->expectedWeights(3));
}

// With and without discards, which leave garbage behind, the results are the same.
TEST_F(ManagedTest, computesTheSameUnderATightBudget) {
  for (const bool calibrate : {false, true})
    for (const std::uint32_t seed : {1U, 2U, 3U}) {
      open(tightPages, {.seed = seed});
      start();
      const std::uint64_t nodes = fake_->graphNodes(graph_);
      Step *step = adopt(calibrate);
      ASSERT_TRUE(step);
      EXPECT_GT(fake_->graphNodes(graph_), nodes);
      replay(step, 5);
      EXPECT_EQ(program_->loss(), program_->expectedLoss(5)) << calibrate << seed;
      EXPECT_EQ(program_->weights(), program_->expectedWeights(5)) << calibrate << seed;
      const nlohmann::json agent = runtimeReport(step).at("agent");
      EXPECT_GT(agent.at("prefetches"), 0);
      EXPECT_GT(agent.at("evictions"), 0);
      EXPECT_EQ(agent.at("discards") > 0, calibrate);
      EXPECT_EQ(agent.at("failed"), 0);
      EXPECT_EQ(agent.at("dropped").get<int>() + agent.at("released").get<int>(), 0);
      EXPECT_LE(fake_->managedPagesOnDevice(), tightPages);
    }
}

// After a rehearsal the temporaries of a stream have addresses in turns: fewer buffers, whose dead values need not
// leave.
TEST_F(ManagedTest, usesAddressesAgain) {
  for (const bool calibrate : {false, true}) {
    std::vector<std::uint64_t> buffers, operations;
    for (const bool rehearses : {false, true}) {
      open(tightPages);
      start({.stream = fake_->createStream()});
      if (rehearses) {
        ASSERT_TRUE(session_->rehearse(graph_));
        fake_->destroyGraph(graph_);
        graph_ = program_->record();
      }
      Step *step = adopt(calibrate);
      ASSERT_TRUE(step);
      replay(step, 5);
      EXPECT_EQ(program_->loss(), program_->expectedLoss(5)) << calibrate << rehearses;
      EXPECT_EQ(program_->weights(), program_->expectedWeights(5)) << calibrate << rehearses;
      const nlohmann::json report = nlohmann::json::parse(step->report());
      buffers.push_back(report.at("buffers"));
      operations.push_back(report.at("runtime").at("agent").at("operations"));
      EXPECT_EQ(report.at("runtime").at("agent").at("dropped"), 0);
      EXPECT_LE(fake_->managedPagesOnDevice(), tightPages);
      for (const Buffer &buffer : step->captured().buffers)
        EXPECT_FALSE(buffer.isRenamable) << buffer.name; // addresses are memory here
    }
    EXPECT_EQ(buffers[0], 14U); // input, loss, 4 weights, 4 activations, 4 gradients
    EXPECT_EQ(buffers[1], 11U); // only the first gradient needs addresses of its own
    EXPECT_LT(operations[1], operations[0]) << calibrate;
  }
}

// Measured when the first step is planned and after that, never again, and what was measured is what plans and bounds
// are made with.
TEST_F(ManagedTest, plansWithTheLinkItMeasured) {
  open(tightPages);
  EXPECT_EQ(fake_->callsOf("cuMemPrefetchAsync"), 0U);
  start();
  Step *first = adopt(true);
  ASSERT_TRUE(first);
  Step *second = adoptAnother(true);
  ASSERT_TRUE(second);
  const nlohmann::json link = runtimeReport(first).at("link");
  EXPECT_EQ(runtimeReport(second).at("link"), link);
  EXPECT_EQ(link.at("measured_bytes"), tightPages * pageBytes);
  const nlohmann::json machine = nlohmann::json::parse(second->report()).at("machine");
  for (const char *key : {"up_bytes_per_second", "down_bytes_per_second", "both_bytes_per_second",
                          "best_up_bytes_per_second", "best_down_bytes_per_second"})
    EXPECT_EQ(machine.at(key), link.at(key)) << key;
  for (const auto &[key, ofLink] : {std::pair("copy_overhead_s", "up_overhead_s"),
                                    {"down_overhead_s", "down_overhead_s"},
                                    {"request_s", "request_s"},
                                    {"empty_bytes_per_second", "empty_bytes_per_second"}})
    EXPECT_DOUBLE_EQ(machine.at(key).get<double>(), link.at(ofLink).get<double>()) << key;
  EXPECT_EQ(machine.at("down_at_once"), runtimeReport(first).at("agent").at("evicted_at_once"));
}

// What is in the way for a while makes no plan for a slow link: the second measurement finds it out.
TEST_F(ManagedTest, findsOutADisturbedMeasurement) {
  open(tightPages);
  start();
  constexpr std::uint64_t movesOfTheLargeSize = 30; // or fewer, and fewer than of a whole measurement
  fake_->slowMoves(std::chrono::milliseconds(20), movesOfTheLargeSize);
  Step *step = adopt(true);
  ASSERT_TRUE(step);
  const nlohmann::json report = nlohmann::json::parse(step->report());
  const nlohmann::json &runtime = report.at("runtime"), &link = runtime.at("link");
  EXPECT_NE(runtime.at("notes").dump().find("something was in the way when the link was first measured"),
            std::string::npos)
      << runtime.at("notes");
  EXPECT_EQ(link.at("up_bytes_per_second"), fake_->link().up);
  EXPECT_EQ(link.at("down_bytes_per_second"), fake_->link().down);
  EXPECT_EQ(report.at("machine").at("down_bytes_per_second"), link.at("down_bytes_per_second"));
  replay(step, 3);
  EXPECT_EQ(program_->weights(), program_->expectedWeights(3));
}

// Nothing that the virtual backend maps or pins for plans is there, and nothing is left when the session ends.
TEST_F(ManagedTest, takesNoFrames) {
  open(tightPages);
  start();
  Step *step = adopt(true);
  ASSERT_TRUE(step);
  replay(step, 1);
  EXPECT_EQ(fake_->callsOf("cuMemCreate"), 0U);
  EXPECT_EQ(fake_->callsOf("cuMemAddressReserve"), 0U);
  session_.reset();
  EXPECT_EQ(fake_->managedBytes(), 0U);
  EXPECT_EQ(fake_->callsOf("cuMemHostAlloc"), fake_->callsOf("cuMemFreeHost"));
}

// Captured nodes and edges stay as they are: all is added, so that any graph can be taken.
TEST_F(ManagedTest, takesNothingFromTheGraph) {
  open(tightPages);
  start();
  fake_->makeEdgesProgrammatic(graph_);
  const std::string before = fake_->print(graph_);
  ASSERT_TRUE(adopt(true));
  const std::string after = fake_->print(graph_);
  std::size_t begin = 0;
  for (std::size_t end = before.find('\n'); end != std::string::npos; begin = end + 1, end = before.find('\n', begin))
    EXPECT_NE(after.find(before.substr(begin, end + 1 - begin)), std::string::npos)
        << before.substr(begin, end - begin);
  EXPECT_EQ(fake_->callsOf("cuGraphRemoveDependencies"), 0U);
}

// A driver older than discards evicts what is dead.
TEST_F(ManagedTest, doesWithoutDiscards) {
  open(tightPages, {.supportsDiscard = false});
  start();
  Step *step = adopt(true);
  ASSERT_TRUE(step);
  replay(step, 2);
  EXPECT_EQ(runtimeReport(step).at("agent").at("discards"), 0);
  EXPECT_EQ(program_->weights(), program_->expectedWeights(2));
}

// A prefetch that fails is a page that comes late.
TEST_F(ManagedTest, computesTheSameWhenMovesFail) {
  open(tightPages);
  start();
  Step *step = adopt(true);
  ASSERT_TRUE(step);
  replay(step, 1);
  fake_->failCall("cuMemPrefetchAsync", 2, CUDA_ERROR_OUT_OF_MEMORY);
  fake_->failCall("cuMemDiscardBatchAsync", 1, CUDA_ERROR_INVALID_VALUE);
  replay(step, 2);
  EXPECT_EQ(program_->weights(), program_->expectedWeights(3));
  EXPECT_EQ(runtimeReport(step).at("agent").at("failed"), 2);
}

TEST_F(ManagedTest, leavesTheGraphAsItWasWhenItCannotBeRewritten) {
  for (const char *call : {"cuGraphAddBatchMemOpNode", "cuGraphAddDependencies", "cuMemHostAlloc", "cuEventCreate",
                           "cuGraphBatchMemOpNodeGetParams"}) {
    open(tightPages);
    start();
    const std::string before = fake_->print(graph_);
    fake_->failCall(call, 1, CUDA_ERROR_INVALID_VALUE);
    const Expected<Step *> step = session_->adopt(graph_, {});
    ASSERT_FALSE(step) << call;
    EXPECT_NE(step.error().message.find(call), std::string::npos) << step.error().message;
    EXPECT_EQ(fake_->print(graph_), before) << call;
  }
}

// Operations that stay in a graph would wait for an agent that is gone.
TEST_F(ManagedTest, saysThatAGraphIsNotAsItWas) {
  open(tightPages);
  start();
  fake_->failCall("cuGraphAddDependencies", 1, CUDA_ERROR_INVALID_VALUE);
  fake_->failCall("cuGraphDestroyNode", 1, CUDA_ERROR_UNKNOWN);
  const Expected<Step *> step = session_->adopt(graph_, {});
  ASSERT_FALSE(step);
  EXPECT_NE(step.error().message.find("is not as it was captured and must not be launched: cuGraphDestroyNode"),
            std::string::npos)
      << step.error().message;
}

// The ways to be compared with leave the same behind.
TEST_F(ManagedTest, prefetchesAtLaunchOrNotAtAll) {
  std::vector<std::uint64_t> prefetches;
  for (const std::int32_t prefetching : {PUMPGRAPH_PREFETCHING_AT_LAUNCH, PUMPGRAPH_PREFETCHING_NONE}) {
    open(tightPages);
    start();
    const Expected<Step *> step = session_->adopt(graph_, {.prefetching = prefetching});
    ASSERT_TRUE(step) << messageOf(step);
    replay(*step, 3);
    EXPECT_EQ(program_->weights(), program_->expectedWeights(3));
    prefetches.push_back(runtimeReport(*step).at("agent").at("prefetches"));
  }
  EXPECT_GT(prefetches[0], 0U);
  EXPECT_EQ(prefetches[1], 0U);
}

std::uint64_t hostedPages(Step *step) {
  return nlohmann::json::parse(step->report()).at("hosted_bytes").get<std::uint64_t>() / pageBytes;
}

/// By name of the weight: pages.
std::map<std::string, std::uint64_t> hostedWeights(Step *step) {
  std::map<std::string, std::uint64_t> pages;
  const nlohmann::json report = nlohmann::json::parse(step->report());
  for (const nlohmann::json &buffer : report.at("hosted"))
    if (const std::string name = buffer.at("buffer_name"); name.starts_with("weight"))
      pages[name] = buffer.at("bytes").get<std::uint64_t>() / pageBytes;
  return pages;
}

// Nodes take no longer here with operands in host memory, so that all of the time of operations is gained.
TEST_F(ManagedTest, hostsWhatIsFasterThere) {
  for (const HostingChoice hosting : {HostingChoice::Automatic, HostingChoice::Measured}) {
    open(tightPages);
    start();
    Step *step = adopt(hosting == HostingChoice::Automatic, hosting);
    ASSERT_TRUE(step);
    EXPECT_EQ(program_->weights(), program_->expectedWeights(0)) << "it was run to measure";
    replay(step, 3);
    EXPECT_EQ(program_->loss(), program_->expectedLoss(3));
    EXPECT_EQ(program_->weights(), program_->expectedWeights(3));
    const nlohmann::json runtime = runtimeReport(step);
    EXPECT_GT(runtime.at("hosted_ms"), 0);
    EXPECT_EQ(runtime.at("plans")[0].at("why"), "nothing hosted by choice");
    EXPECT_GE(runtime.at("plans").size(), 2U);
    for (const nlohmann::json &plan : runtime.at("plans")) {
      EXPECT_GT(plan.at("measured_s"), 0);
      EXPECT_EQ(plan.at("costs"), "times of nodes before the plan");
    }
    EXPECT_EQ(fake_->advisedPages(CU_MEM_ADVISE_SET_ACCESSED_BY), hostedPages(step));
    std::set<std::string> notes;
    for (const nlohmann::json &note : runtime.at("notes"))
      EXPECT_TRUE(notes.insert(note).second) << note << " is there twice";
  }
}

TEST_F(ManagedTest, runsNothingToFindOutUnlessItMay) {
  open(tightPages);
  start();
  const std::uint64_t launches = fake_->callsOf("cuGraphLaunch");
  Step *step = adopt(false, HostingChoice::Automatic);
  ASSERT_TRUE(step);
  EXPECT_EQ(fake_->callsOf("cuGraphLaunch"), launches);
  EXPECT_EQ(runtimeReport(step).at("hosted_ms"), 0);
  EXPECT_EQ(hostedPages(step), 0U);
  open(64); // where everything fits nothing is to be found out
  start();
  step = adopt(false, HostingChoice::Measured);
  ASSERT_TRUE(step);
  EXPECT_EQ(fake_->callsOf("cuGraphLaunch"), 0U);
}

// Whoever has the memory of a step next would have it in host memory for ever.
TEST_F(ManagedTest, takesItsAdviceBackInTheEnd) {
  const auto advised = [&] {
    return fake_->advisedPages(CU_MEM_ADVISE_SET_READ_MOSTLY) +
           fake_->advisedPages(CU_MEM_ADVISE_SET_PREFERRED_LOCATION) +
           fake_->advisedPages(CU_MEM_ADVISE_SET_ACCESSED_BY);
  };
  open(tightPages);
  start();
  Step *first = adopt(true, HostingChoice::Measured);
  ASSERT_TRUE(first);
  Step *second = adoptAnother(true, HostingChoice::Measured);
  ASSERT_TRUE(second);
  for (int i = 0; i < 2; ++i) {
    replay(first, 1);
    replay(second, 1);
  }
  EXPECT_EQ(program_->weights(), program_->expectedWeights(4));
  // What the first keeps in host memory the second does too, and nothing else that both have.
  EXPECT_EQ(hostedWeights(first), hostedWeights(second));
  session_->destroy(first);
  replay(second, 1);
  EXPECT_EQ(program_->weights(), program_->expectedWeights(5));
  EXPECT_EQ(fake_->advisedPages(CU_MEM_ADVISE_SET_ACCESSED_BY), hostedPages(second));
  session_->destroy(second);
  EXPECT_EQ(advised(), 0U);
}

// Parts of buffers have no room. Those the next step keeps in host memory too; what it alone has there is as before
// once it is destroyed.
TEST_F(ManagedTest, keepsInHostMemoryWhatOthersDo) {
  open(5); // too little to measure the link: plans are those of any day
  const Program::Shape shape{.layers = 5, .weightBytes = 3 * pageBytes};
  start(shape);
  Step *first = adopt(true);
  ASSERT_TRUE(first);
  Step *second = adoptAnother(true);
  ASSERT_TRUE(second);
  int parts = 0;
  std::uint64_t shared = 0;
  std::map<std::string, std::uint64_t> ofSecond = hostedWeights(second);
  for (const auto &[name, pages] : hostedWeights(first)) {
    parts += pages * pageBytes < shape.weightBytes;
    EXPECT_GE(ofSecond[name], pages) << name;
    shared += pages;
  }
  EXPECT_GT(parts, 0) << "a smaller or a larger budget would do";
  EXPECT_GT(hostedPages(second), shared) << "temporaries are its own";
  EXPECT_EQ(fake_->advisedPages(CU_MEM_ADVISE_SET_ACCESSED_BY), hostedPages(first) + hostedPages(second) - shared)
      << "the same pages of what both have";
  replay(first, 1);
  replay(second, 1);
  session_->destroy(second);
  EXPECT_EQ(fake_->advisedPages(CU_MEM_ADVISE_SET_ACCESSED_BY), hostedPages(first));
  // Nodes that use nothing of that are timed on the device all the same.
  Step *third = adoptAnother(true, HostingChoice::Measured);
  ASSERT_TRUE(third);
  EXPECT_EQ(runtimeReport(third).at("plans")[0].at("costs"), "times of nodes before the plan");
  session_->destroy(third);
  replay(first, 1);
  EXPECT_EQ(program_->weights(), program_->expectedWeights(3));
  session_->destroy(first);
  EXPECT_EQ(fake_->advisedPages(CU_MEM_ADVISE_SET_ACCESSED_BY), 0U);
}

// Wherever finding out fails, the step has a plan all the same, or values and graph are as before and nothing is
// advised any more, but what could not be taken back.
TEST_F(ManagedTest, doesWithoutFindingOut) {
  struct Failures {
    const char *call;
    int last, step;
    std::uint64_t mostAdvised;
  };
  int noted = 0, failed = 0;
  for (const auto &[call, last, step, mostAdvised] : {Failures{"cuGraphLaunch", 40, 6, 0},
                                                      {"cuGraphInstantiateWithFlags", 9, 2, 0},
                                                      {"cuGraphAddBatchMemOpNode", 9, 4, 0},
                                                      {"cuStreamSynchronize", 60, 9, 0},
                                                      {"cuMemAdvise", 40, 8, 3}})
    for (int at = 1; at <= last; at += step) {
      open(tightPages);
      start();
      const std::string before = fake_->print(graph_);
      fake_->failCall(call, at, CUDA_ERROR_INVALID_VALUE);
      const Expected<Step *> adopted = session_->adopt(graph_, {.hosting = HostingChoice::Measured});
      const bool struck = fake_->stopFailing(call);
      EXPECT_EQ(program_->weights(), program_->expectedWeights(0)) << call << at;
      if (!adopted) {
        ++failed;
        EXPECT_TRUE(struck) << call << at;
        EXPECT_NE(adopted.error().message.find(call), std::string::npos) << adopted.error().message;
        EXPECT_EQ(fake_->print(graph_), before) << call << at;
        EXPECT_LE(fake_->advisedPages(CU_MEM_ADVISE_SET_ACCESSED_BY), mostAdvised) << call << at;
        continue;
      }
      const bool said = runtimeReport(*adopted).at("notes").dump().find(call) != std::string::npos;
      EXPECT_EQ(said, struck) << call << at;
      noted += said;
      EXPECT_LE(fake_->advisedPages(CU_MEM_ADVISE_SET_ACCESSED_BY), hostedPages(*adopted) + mostAdvised) << call << at;
      replay(*adopted, 2);
      EXPECT_EQ(program_->weights(), program_->expectedWeights(2)) << call << at;
    }
  EXPECT_GT(noted, 8);
  EXPECT_GT(failed, 0);
}

TEST_F(ManagedTest, isNotPlannedAgain) {
  open(tightPages);
  start();
  Step *step = adopt(false);
  ASSERT_TRUE(step);
  const Expected<Replanning> again = step->replan();
  ASSERT_FALSE(again);
  EXPECT_NE(again.error().message.find("managed memory"), std::string::npos) << again.error().message;
}

TEST_F(ManagedTest, validates) {
  open(tightPages);
  start();
  Step *step = adopt(true);
  ASSERT_TRUE(step);
  replay(step, 1);
  const Expected<Validation> validation = step->validate();
  ASSERT_TRUE(validation) << messageOf(validation);
  EXPECT_EQ(validation->differentBuffers, 0U);
  EXPECT_GT(validation->comparedBuffers, 4U);
  replay(step, 1);
  EXPECT_EQ(program_->weights(), program_->expectedWeights(2));
}

// Steps of one session take turns: private buffers have no place but their address.
TEST_F(ManagedTest, replaysTwoStepsInTurns) {
  open(tightPages);
  start();
  Step *first = adopt(true);
  ASSERT_TRUE(first);
  const CUgraph firstGraph = graph_;
  Step *second = adoptAnother(true);
  ASSERT_TRUE(second);
  for (int i = 0; i < 3; ++i) {
    replay(first, 1);
    replay(second, 1);
  }
  EXPECT_EQ(program_->weights(), program_->expectedWeights(6));
  session_->destroy(first);
  replay(second, 1);
  EXPECT_EQ(program_->weights(), program_->expectedWeights(7));
  (void)firstGraph;
}

// A graph that the virtual backend leaves as captured, with the reason, is rewritten here.
class UnseenTest : public ManagedTest {
protected:
  /// The program's step, and a node that nobody can see into.
  void recordWith(CUgraphNodeType type) {
    program_.emplace(*fake_, *session_, Program::Shape{});
    program_->prepare();
    graph_ = program_->record();
    fake_->addPlain(graph_, {}, type);
  }
};

// Nobody keeps the values of what nobody knows of.
TEST_F(UnseenTest, isNotRunToFindOut) {
  open(tightPages);
  recordWith(CU_GRAPH_NODE_TYPE_CONDITIONAL);
  const Expected<Step *> step = session_->adopt(graph_, {.calibrate = true, .hosting = HostingChoice::Measured});
  ASSERT_TRUE(step) << messageOf(step);
  EXPECT_EQ(fake_->callsOf("cuGraphLaunch"), 0U);
  EXPECT_NE(runtimeReport(*step).at("notes").dump().find("not every node can be seen into"), std::string::npos);
}

TEST_F(UnseenTest, takesWhatTheVirtualBackendDeclines) {
  for (const CUgraphNodeType type : {CU_GRAPH_NODE_TYPE_CONDITIONAL, CU_GRAPH_NODE_TYPE_MEM_ALLOC}) {
    session_.reset();
    fake_.emplace();
    session_ = std::move(*openSession(*fake_, tightPages, PUMPGRAPH_COMPILER_LIBRARY));
    recordWith(type);
    Step *declined = adopt(false);
    ASSERT_TRUE(declined);
    EXPECT_EQ(runtimeReport(declined).at("backend"), "as captured");
    const std::string reason = runtimeReport(declined).at("left_as_captured");
    const nlohmann::json notes = runtimeReport(declined).at("notes");
    EXPECT_NE(notes.dump().find("managed"), std::string::npos) << "nobody says what would help";

    open(tightPages);
    recordWith(type);
    Step *step = adopt(true); // which cannot be calibrated, and is not
    ASSERT_TRUE(step);
    EXPECT_EQ(runtimeReport(step).at("backend"), "managed");
    const nlohmann::json said = runtimeReport(step).at("notes");
    EXPECT_EQ(std::count(said.begin(), said.end(), "what this node touches is moved by faults: " + reason), 1) << said;
    replay(step, 3);
    EXPECT_EQ(program_->weights(), program_->expectedWeights(3));
    EXPECT_EQ(runtimeReport(step).at("agent").at("discards"), 0);
  }
}

// A node that cannot be seen into may touch anything in the arena. If that has no room beside the plan, the report says
// so before the first replay, with names and numbers.
TEST_F(UnseenTest, warnsOfWhatNobodyPlansFor) {
  for (const bool fits : {false, true}) {
    open(fits ? 128 : tightPages);
    void *cache = *session_->allocate(40 * pageBytes, nullptr, "cache");
    ASSERT_TRUE(cache);
    recordWith(CU_GRAPH_NODE_TYPE_CONDITIONAL);
    Step *step = adopt(false);
    ASSERT_TRUE(step);
    const nlohmann::json warnings = runtimeReport(step).at("warnings");
    ASSERT_EQ(warnings.size(), fits ? 0U : 1U) << warnings.dump();
    if (fits)
      continue;
    const std::string warning = warnings.at(0);
    EXPECT_NE(warning.find("there is room for 38.0 MiB in the budget; "), std::string::npos) << warning;
    EXPECT_NE(warning.find("80.0 MiB more may be touched that it does not foresee: \"cache\" 80.0 MiB"),
              std::string::npos)
        << warning;
  }
}

// Where all is seen, what the step does not touch is no matter.
TEST_F(ManagedTest, warnsOfNothingThatTheStepDoesNotTouch) {
  open(tightPages);
  ASSERT_TRUE(session_->allocate(40 * pageBytes, nullptr, "cache"));
  start();
  Step *step = adopt(false);
  ASSERT_TRUE(step);
  EXPECT_EQ(runtimeReport(step).at("warnings"), nlohmann::json::array());
}

TEST_F(ManagedTest, warnsOfANodeThatTouchesMoreThanThereIs) {
  open(16);
  start();
  FakeKernel wide{"wide", {8, 8}, [](const FakeKernel::Arguments &) {}};
  std::vector<std::vector<char>> arguments;
  for (const char *name : {"left", "right"}) {
    void *operand = *session_->allocate(12 * pageBytes, nullptr, name);
    ASSERT_TRUE(session_->declarePrivate(operand));
    arguments.push_back(bytesOf(operand));
  }
  fake_->addKernel(graph_, {}, wide, arguments);
  Step *step = adopt(false);
  ASSERT_TRUE(step);
  const nlohmann::json warnings = runtimeReport(step).at("warnings");
  ASSERT_EQ(warnings.size(), 1U) << warnings.dump();
  EXPECT_NE(warnings.at(0).get<std::string>().find("\"wide\" touches 48.0 MiB at once, and there is room for 32.0 MiB: "
                                                   "\"left\" 24.0 MiB, \"right\" 24.0 MiB"),
            std::string::npos)
      << warnings.dump();
}

// A plan that moves nothing leaves dead buffers where they are, which the device may have no room for.
TEST_F(ManagedTest, warnsOfDeadBuffersThatTheDeviceHasNoRoomFor) {
  fake_.emplace(FakeDriver::Options{.deviceBytes = 30 * pageBytes});
  SessionOptions options = managedOptions(30);
  options.managedGuard.allowOversubscription = true;
  session_ = std::move(*Session::create(options, fake_->table()));
  start();
  Step *step = adopt(false);
  ASSERT_TRUE(step);
  ASSERT_EQ(runtimeReport(step).at("agent").at("operations"), 0);
  const nlohmann::json warnings = runtimeReport(step).at("warnings");
  ASSERT_EQ(warnings.size(), 1U) << warnings.dump();
  EXPECT_NE(warnings.at(0).get<std::string>().find("the device had 60.0 MiB free"), std::string::npos)
      << warnings.dump();
}

// What a table in memory names is never discarded and never sent away.
TEST_F(UnseenTest, isRightWithPointersHiddenInMemory) {
  open(tightPages);
  program_.emplace(*fake_, *session_, Program::Shape{});
  program_->prepare();
  void **table = static_cast<void **>(*session_->allocate(4096, nullptr, "table"));
  void *hidden = *session_->allocate(3 * pageBytes, nullptr, "hidden");
  ASSERT_TRUE(session_->declarePrivate(hidden));
  *table = hidden;
  *static_cast<std::uint64_t *>(hidden) = 0;
  FakeKernel chase{
      "chase", {8}, [](const FakeKernel::Arguments &arguments) { ++**argument<std::uint64_t **>(arguments, 0); }};
  graph_ = program_->record();
  fake_->addKernel(graph_, {}, chase, {bytesOf(table)});
  Step *step = adopt(false);
  ASSERT_TRUE(step);
  replay(step, 4);
  EXPECT_EQ(*static_cast<std::uint64_t *>(hidden), 4U);
  EXPECT_EQ(program_->weights(), program_->expectedWeights(4));
}

// What a session that is to choose does where the device can be virtual is in BackendTest.
TEST_F(UnseenTest, automaticTellsWhyTheDeviceIsManaged) {
  for (const bool isClosed : {true, false}) {
    session_.reset();
    fake_.reset();
    fake_.emplace(FakeDriver::Options{.supportsVirtualMemory = false});
    SessionOptions options = managedOptions(tightPages);
    options.backend = BackendChoice::Automatic;
    Expected<std::unique_ptr<Session>> made = Session::create(options, fake_->table());
    ASSERT_TRUE(made) << messageOf(made);
    session_ = std::move(*made);
    isClosed ? start() : recordWith(CU_GRAPH_NODE_TYPE_CONDITIONAL);
    Step *step = adopt(false);
    ASSERT_TRUE(step);
    const nlohmann::json report = runtimeReport(step);
    EXPECT_EQ(report.at("backend_why"),
              "managed memory, because the device does not support virtual memory management");
    EXPECT_EQ(report.at("backend"), "managed");
    replay(step, 2);
    EXPECT_EQ(program_->weights(), program_->expectedWeights(2));
  }
}

TEST(ManagedSessionTest, automaticIsVirtualWhereTheDeviceCan) {
  FakeDriver fake;
  SessionOptions options = managedOptions(tightPages);
  options.backend = BackendChoice::Automatic;
  const Expected<std::unique_ptr<Session>> session = Session::create(options, fake.table());
  ASSERT_TRUE(session) << messageOf(session);
  EXPECT_EQ(fake.managedBytes(), 0U);
}

TEST(ManagedSessionTest, automaticIsManagedElsewhere) {
  FakeDriver fake({.supportsVirtualMemory = false});
  SessionOptions options = managedOptions(tightPages);
  options.backend = BackendChoice::Automatic;
  const Expected<std::unique_ptr<Session>> session = Session::create(options, fake.table());
  ASSERT_TRUE(session) << messageOf(session);
  EXPECT_EQ(fake.managedBytes(), arenaPages * pageBytes);
}

TEST(ManagedSessionTest, isRefusedWhereTheDeviceCannot) {
  FakeDriver fake({.supportsManagedMemory = false});
  const Expected<std::unique_ptr<Session>> session = Session::create(managedOptions(tightPages), fake.table());
  ASSERT_FALSE(session);
  EXPECT_EQ(session.error().status, PUMPGRAPH_NO_DRIVER);
}

TEST(ManagedSessionTest, isRefusedBeyondTheGuard) {
  FakeDriver fake;
  SessionOptions options = managedOptions(tightPages);
  options.managedBytes = options.managedGuard.limitBytes + pageBytes;
  const Expected<std::unique_ptr<Session>> session = Session::create(options, fake.table());
  ASSERT_FALSE(session);
  EXPECT_EQ(session.error().status, PUMPGRAPH_OUT_OF_DEVICE_MEMORY);
}

} // namespace
