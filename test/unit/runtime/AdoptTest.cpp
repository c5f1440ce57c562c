// SPDX-License-Identifier: Apache-2.0
// The whole way on the fake driver: allocate, capture, adopt under a budget, replay, read, validate.
#include "test/unit/runtime/Program.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <filesystem>
#include <fstream>

using namespace pumpgraph;
using namespace pumpgraph::runtime;
using namespace pumpgraph::runtime::test;

namespace {

class AdoptTest : public ::testing::Test {
protected:
  void open(std::uint64_t budgetPages, std::uint64_t hostLimitBytes = 0) {
    Expected<std::unique_ptr<Session>> made =
        openSession(fake_, budgetPages, PUMPGRAPH_COMPILER_LIBRARY, hostLimitBytes);
    ASSERT_TRUE(made) << messageOf(made);
    session_ = std::move(*made);
  }

  void start(const Program::Shape &shape = {}) {
    program_.emplace(fake_, *session_, shape);
    program_->prepare();
    graph_ = program_->record();
  }

  Expected<Step *> adopt(bool leaveAsCaptured = false) {
    AdoptOptions options;
    options.leaveAsCaptured = leaveAsCaptured;
    options.keepFirstPlan = true; // what the processor takes for a kernel is no prediction's fault
    return session_->adopt(graph_, options);
  }

  /// A memset node beside all others, on 256 bytes of their own, which become 3. The bytes.
  char *addFillInBranch() {
    const Expected<void *> words = session_->allocate(256, nullptr, "words");
    EXPECT_TRUE(words) << messageOf(words);
    if (!words)
      return nullptr;
    fake_.addFill(graph_, {}, *words, 3, 100);
    return static_cast<char *>(*words);
  }

  /// A step of one memset node, which fills half as much again as the budget holds with nines. What it fills.
  char *startWithAWideFill() {
    open(wideBytes / pageBytes * 2 / 3);
    auto *buffer = static_cast<char *>(*session_->allocate(wideBytes, nullptr, "buffer"));
    EXPECT_TRUE(session_->declarePrivate(buffer));
    graph_ = fake_.createGraph();
    fake_.addFill(graph_, {}, buffer, 9, wideBytes);
    return buffer;
  }

  static constexpr std::uint64_t wideBytes = 12 * pageBytes;
  FakeDriver fake_;
  std::unique_ptr<Session> session_;
  std::optional<Program> program_;
  CUgraph graph_ = nullptr;
};

// Input 3 + weights 4 x 2 + activations 4 x 3 + gradients 4 x 3 + loss 1 pages are touched in all.
constexpr std::uint64_t pagesInAll = 36;
// Backward touches 11 pages at once, beside the 4 that stay; a page keeps its frame, so a few more are needed.
constexpr std::uint64_t tightPages = 19;
// The input and the loss.
constexpr std::uint64_t exclusivePages = 4;
// The frame that stands in for memory during captures.
constexpr std::uint64_t besideBudget = 1;

// With room for everything the step is as captured: no node more.
TEST_F(AdoptTest, addsNoNodeWhenEverythingFits) {
  open(pagesInAll + 8);
  start();
  const std::uint64_t nodes = fake_.graphNodes(graph_);
  const Expected<Step *> step = adopt();
  ASSERT_TRUE(step) << messageOf(step);
  EXPECT_TRUE((*step)->rewritten());
  EXPECT_EQ(fake_.graphNodes(graph_), nodes);
  replay(*step, 3);
  EXPECT_EQ(program_->loss(), program_->expectedLoss(3));
  EXPECT_EQ(program_->weights(), program_->expectedWeights(3));
}

// The peak that a plan without a budget reports is enough for a plan with that budget to move nothing.
TEST_F(AdoptTest, addsNoNodeAtThePeak) {
  open(pagesInAll + 8);
  start();
  const Expected<Step *> roomy = adopt();
  ASSERT_TRUE(roomy) << messageOf(roomy);
  const nlohmann::json report = nlohmann::json::parse((*roomy)->report());
  const std::uint64_t peak = report.at("peak_bytes_before");
  session_.reset();
  fake_.destroyGraph(graph_);

  open(peak / pageBytes);
  start();
  const std::uint64_t nodes = fake_.graphNodes(graph_);
  const Expected<Step *> step = adopt();
  ASSERT_TRUE(step) << messageOf(step);
  EXPECT_EQ(fake_.graphNodes(graph_), nodes);
  replay(*step, 1);
  EXPECT_EQ(program_->weights(), program_->expectedWeights(1));
}

// Far below what the step touches, the results are the same, bit for bit, whatever legal order the nodes run in.
TEST_F(AdoptTest, computesTheSameUnderATightBudget) {
  for (const std::uint64_t budget : {std::uint64_t{24}, std::uint64_t{21}, tightPages}) {
    open(budget);
    start();
    const std::uint64_t nodes = fake_.graphNodes(graph_);
    const Expected<Step *> step = adopt();
    ASSERT_TRUE(step) << budget << " pages: " << messageOf(step);
    EXPECT_GT(fake_.graphNodes(graph_), nodes) << budget;
    replay(*step, 5);
    EXPECT_EQ(program_->loss(), program_->expectedLoss(5)) << budget;
    EXPECT_EQ(program_->weights(), program_->expectedWeights(5)) << budget;
    EXPECT_LE(fake_.deviceFrames(), budget + besideBudget);
    session_.reset();
    fake_.destroyGraph(graph_);
  }
}

// Beside memset nodes in branches copies are slower, so kernels do what they did, and reports know them as before.
TEST_F(AdoptTest, fillsByKernelsWhereTheGraphHasBranches) {
  open(tightPages + 1);
  start();
  const Expected<void *> words = session_->allocate(256, nullptr, "words");
  ASSERT_TRUE(words) << messageOf(words);
  auto *bytes = static_cast<char *>(*words);
  const CUgraphNode first = fake_.addFill(graph_, {}, bytes, 3, 100);
  fake_.addFill(graph_, {first}, bytes + 40, 5, 10);
  const std::uint64_t replaced = fake_.callsOf("cuGraphAddKernelNode");
  const Expected<Step *> step = adopt();
  ASSERT_TRUE(step) << messageOf(step);
  EXPECT_EQ(fake_.callsOf("cuGraphAddKernelNode"), replaced + 2);
  bytes[40] = bytes[99] = 0;
  replay(*step, 2);
  EXPECT_EQ(bytes[39], 3);
  EXPECT_EQ(bytes[40], 5);
  EXPECT_EQ(bytes[99], 3);
  EXPECT_EQ(program_->weights(), program_->expectedWeights(2));
  ASSERT_TRUE((*step)->replan());
  replay(*step, 1);
  EXPECT_EQ(program_->weights(), program_->expectedWeights(3));
  const Expected<Validation> validation = (*step)->validate();
  ASSERT_TRUE(validation) << messageOf(validation);
  EXPECT_EQ(validation->differentBuffers, 0u) << validation->firstDifference;
  const Expected<Observation> observation = (*step)->observe();
  ASSERT_TRUE(observation) << messageOf(observation);
  EXPECT_EQ(fake_.loadedModules(), 1u);
  program_.reset();
  session_.reset();
  EXPECT_EQ(fake_.loadedModules(), 0u);
}

// Whoever gains nothing keeps the nodes.
TEST_F(AdoptTest, fillsStayWhereNothingIsCopied) {
  open(pagesInAll + 8);
  start();
  char *words = addFillInBranch();
  const std::uint64_t added = fake_.callsOf("cuGraphAddKernelNode");
  const Expected<Step *> step = adopt();
  ASSERT_TRUE(step) << messageOf(step);
  EXPECT_EQ(fake_.callsOf("cuGraphAddKernelNode"), added);
  EXPECT_EQ(fake_.loadedModules(), 0u);
  replay(*step, 1);
  EXPECT_EQ(words[0], 3);
}

// In few queues branches do no harm.
TEST_F(AdoptTest, fillsStayWhereKernelsWaitInFewQueues) {
  for (const int queues : {KernelQueues::few, KernelQueues::few + 1}) {
    fake_.setKernelQueues(queues);
    open(tightPages + 1);
    start();
    char *words = addFillInBranch();
    const Expected<Step *> step = adopt();
    ASSERT_TRUE(step) << messageOf(step);
    const bool slow = queues > KernelQueues::few;
    EXPECT_EQ(fake_.loadedModules(), slow ? 1u : 0u);
    const std::string advice =
        fmt::format("wait in {} queues of the device; set CUDA_DEVICE_MAX_CONNECTIONS=2", queues);
    EXPECT_EQ((*step)->report().find(advice) != std::string::npos, slow) << (*step)->report();
    replay(*step, 2);
    EXPECT_EQ(words[0], 3);
    EXPECT_EQ(program_->weights(), program_->expectedWeights(2));
    program_.reset();
    session_.reset();
    fake_.destroyGraph(graph_);
  }
}

// Whatever fails afterwards, the graph has its fills again, and can be adopted.
TEST_F(AdoptTest, fillsReturnWhenRewritingFails) {
  open(tightPages + 1);
  start();
  char *words = addFillInBranch();
  const std::uint64_t nodes = fake_.graphNodes(graph_);
  fake_.failCall("cuGraphAddMemcpyNode", 1, CUDA_ERROR_INVALID_VALUE);
  EXPECT_FALSE(adopt());
  EXPECT_EQ(fake_.graphNodes(graph_), nodes);
  const Expected<Step *> step = adopt();
  ASSERT_TRUE(step) << messageOf(step);
  replay(*step, 2);
  EXPECT_EQ(words[0], 3);
  EXPECT_EQ(program_->weights(), program_->expectedWeights(2));
}

// The kernel makes copies faster, and nothing else depends on it.
TEST_F(AdoptTest, fillsStayWhereTheirKernelCannotBeLoaded) {
  open(tightPages + 1);
  start();
  char *words = addFillInBranch();
  fake_.failCall("cuModuleLoadData", 1, CUDA_ERROR_JIT_COMPILATION_DISABLED);
  const Expected<Step *> step = adopt();
  ASSERT_TRUE(step) << messageOf(step);
  EXPECT_NE((*step)->report().find("memset nodes in branches stay"), std::string::npos);
  replay(*step, 2);
  EXPECT_EQ(words[0], 3);
  EXPECT_EQ(program_->weights(), program_->expectedWeights(2));
}

// Unless what a memset node fills would be in host memory.
TEST_F(AdoptTest, fillsOfHostedPagesNeedTheirKernel) {
  startWithAWideFill();
  fake_.failCall("cuModuleLoadData", 1, CUDA_ERROR_JIT_COMPILATION_DISABLED);
  const Expected<Step *> refused = adopt();
  ASSERT_FALSE(refused);
  EXPECT_NE(messageOf(refused).find("operands of node 0, a fill, would be in host memory"), std::string::npos)
      << messageOf(refused);
  const Expected<Step *> step = adopt();
  EXPECT_TRUE(step) << messageOf(step);
}

// Copies are slower the more streams there are, and the driver opens one wherever a chain of its own kind does not go
// on: kernels follow kernels, and copies those of their direction, all else goes over relays.
TEST_F(AdoptTest, keepsKernelsAndCopiesInChainsOfTheirOwn) {
  open(tightPages);
  start();
  const Driver &driver = *fake_.table();
  const std::unique_ptr<AddressSpace> addresses = *AddressSpace::reserve(driver);
  std::set<CUgraphNode> captured;
  const LiftedGraph before = *liftGraph(driver, graph_, *addresses, nullptr);
  for (const LiftedNode &node : before.nodes)
    captured.insert(node.handle);
  const Expected<Step *> step = adopt();
  ASSERT_TRUE(step) << messageOf(step);

  enum Lane { Captured, Up, Down, Relay };
  const LiftedGraph lifted = *liftGraph(driver, graph_, *addresses, nullptr);
  std::vector<Lane> laneOf;
  std::map<Lane, std::size_t> nodes, followers;
  for (const LiftedNode &node : lifted.nodes) {
    laneOf.push_back(captured.contains(node.handle)                   ? Captured
                     : node.kind == NodeKind::Empty                   ? Relay
                     : node.copy->srcMemoryType == CU_MEMORYTYPE_HOST ? Up
                                                                      : Down);
    ++nodes[laneOf.back()];
  }
  for (const LiftedEdge &edge : lifted.edges) {
    const Lane from = laneOf[edge.from], to = laneOf[edge.to];
    EXPECT_TRUE(from == to || from == Relay || to == Relay) << from << " -> " << to;
    followers[from] += from == to;
  }
  EXPECT_GT(nodes[Up], 1u);
  EXPECT_GT(nodes[Relay], 1u);
  EXPECT_EQ(followers[Relay], 0u);
  EXPECT_EQ(followers[Captured], nodes[Captured] - 1);
  EXPECT_EQ(followers[Up], nodes[Up] - 1);
  EXPECT_EQ(followers[Down], nodes[Down] - 1);
}

// Arguments in one packed buffer, as cuBLAS passes them, are understood as well.
TEST_F(AdoptTest, readsPackedArguments) {
  open(19);
  Program::Shape shape;
  shape.packedArguments = true;
  start(shape);
  const Expected<Step *> step = adopt();
  ASSERT_TRUE(step) << messageOf(step);
  replay(*step, 2);
  EXPECT_EQ(program_->weights(), program_->expectedWeights(2));
}

// Between replays the weights may be anywhere; under map() they are at their addresses, and what is written there
// counts.
TEST_F(AdoptTest, mapsWhatIsWrittenFromOutside) {
  open(tightPages);
  start();
  const Expected<Step *> step = adopt();
  ASSERT_TRUE(step) << messageOf(step);
  replay(*step, 1);
  void *weight = program_->weightPointers()[1];
  ASSERT_TRUE(session_->map(weight));
  ASSERT_TRUE(session_->map(weight)); // nests
  const std::uint64_t before = *static_cast<std::uint64_t *>(weight);
  *static_cast<std::uint64_t *>(weight) = 77;
  const Status refused = (*step)->replay(nullptr);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().status, PUMPGRAPH_INVALID_ARGUMENT);
  ASSERT_TRUE(session_->unmap(weight));
  EXPECT_FALSE((*step)->replay(nullptr));
  ASSERT_TRUE(session_->unmap(weight));
  EXPECT_NE(before, 77u);
  EXPECT_EQ(program_->weights()[pageBytes * 2 / Program::stride], 77u);
  replay(*step, 1);
}

// An input that only steps use while they run leaves the device in between. Between replays it can be written as if it
// had never left, without a word to anybody.
TEST_F(AdoptTest, presentInputsLeaveInBetween) {
  struct Outcome {
    std::vector<std::uint64_t> weights;
    std::uint64_t hostedBytes = 0;
  };
  const auto run = [&](std::uint64_t budgetPages, bool isPresent) {
    open(budgetPages);
    start();
    auto *input = static_cast<std::uint64_t *>(program_->inputPointer());
    if (isPresent) {
      EXPECT_TRUE(session_->declarePresent(input));
    }
    Outcome outcome;
    const Expected<Step *> step = adopt();
    EXPECT_TRUE(step) << messageOf(step);
    if (step) {
      outcome.hostedBytes = nlohmann::json::parse((*step)->report()).at("hosted_bytes");
      for (std::uint64_t round = 0; round < 4; ++round) {
        EXPECT_EQ(*input, round == 0 ? 1 : 100 + round - 1); // as it was left
        *input = 100 + round;
        replay(*step, 1);
      }
      const Expected<Validation> validation = (*step)->validate();
      EXPECT_TRUE(validation) << messageOf(validation);
      if (validation) {
        EXPECT_EQ(validation->differentBuffers, 0u) << validation->firstDifference;
      }
      outcome.weights = program_->weights();
    }
    session_.reset();
    fake_.destroyGraph(graph_);
    return outcome;
  };
  const std::uint64_t budget = exclusivePages + 10; // a page less than what backward touches at once, and what stays
  const Outcome roomy = run(pagesInAll + 8, false), exclusive = run(budget, false), present = run(budget, true);
  EXPECT_EQ(exclusive.weights, roomy.weights);
  EXPECT_EQ(present.weights, roomy.weights);
  EXPECT_LT(present.hostedBytes, exclusive.hostedBytes);
}

// A weight that was declared private may be in host memory, where writing at its address would come to nothing.
TEST_F(AdoptTest, whatAPlanMovesIsNotPresentAfterwards) {
  open(tightPages);
  start();
  void *weight = program_->weightPointers()[0];
  EXPECT_TRUE(session_->declarePresent(weight)); // no plan relies on anything yet
  EXPECT_TRUE(session_->declarePrivate(weight)); // and this takes nothing back
  ASSERT_TRUE(adopt());
  EXPECT_TRUE(session_->declarePresent(weight));
  const Status refused = session_->declarePresent(program_->weightPointers()[1]);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().status, PUMPGRAPH_INVALID_ARGUMENT);
  EXPECT_NE(refused.error().message.find("was declared private"), std::string::npos) << refused.error().message;
}

// A rewritten step agrees with the captured one, and validation leaves no trace.
TEST_F(AdoptTest, validates) {
  open(tightPages);
  start();
  const Expected<Step *> step = adopt();
  ASSERT_TRUE(step) << messageOf(step);
  replay(*step, 1);
  const Expected<Validation> validation = (*step)->validate();
  ASSERT_TRUE(validation) << messageOf(validation);
  EXPECT_EQ(validation->differentBuffers, 0u) << validation->firstDifference;
  EXPECT_EQ(validation->unstableBuffers, 0u);
  EXPECT_EQ(validation->comparedBuffers, 6u); // input, four weights, the page of the loss
  EXPECT_EQ(program_->weights(), program_->expectedWeights(1));
  replay(*step, 1);
  EXPECT_EQ(program_->weights(), program_->expectedWeights(2));
  EXPECT_LE(fake_.deviceFrames(), tightPages + besideBudget);
}

// Copies that bring back less than they should are noticed.
TEST_F(AdoptTest, validationCatchesShortenedCopies) {
  open(tightPages);
  start();
  const Expected<Step *> step = adopt();
  ASSERT_TRUE(step) << messageOf(step);
  ASSERT_TRUE(fake_.shortenCopies(graph_, CU_MEMORYTYPE_HOST));
  const Expected<Validation> validation = (*step)->validate();
  ASSERT_TRUE(validation) << messageOf(validation);
  EXPECT_GT(validation->differentBuffers, 0u);
  EXPECT_NE(validation->firstDifference, "");
}

// Below what one kernel touches, some of it stays in host memory, mapped at its addresses.
TEST_F(AdoptTest, computesTheSameBelowTheNeedOfOneKernel) {
  for (const std::uint64_t budget : {std::uint64_t{14}, std::uint64_t{9}, std::uint64_t{5}, exclusivePages}) {
    open(budget);
    start();
    const Expected<Step *> step = adopt();
    ASSERT_TRUE(step) << budget << " pages: " << messageOf(step);
    const nlohmann::json report = nlohmann::json::parse((*step)->report());
    const std::uint64_t hostedBytes = report.at("hosted_bytes");
    EXPECT_GT(hostedBytes, 0u);
    EXPECT_EQ(report.at("runtime").at("host_backed_bytes"), hostedBytes) << budget;
    EXPECT_EQ(session_->statistics().hostBackedBytes, hostedBytes);
    EXPECT_EQ(program_->weights(), program_->expectedWeights(0)) << budget;
    replay(*step, 3);
    EXPECT_EQ(program_->loss(), program_->expectedLoss(3)) << budget;
    EXPECT_EQ(program_->weights(), program_->expectedWeights(3)) << budget;
    const Expected<Validation> validation = (*step)->validate();
    ASSERT_TRUE(validation) << messageOf(validation);
    EXPECT_EQ(validation->differentBuffers, 0u) << validation->firstDifference;
    replay(*step, 2);
    EXPECT_EQ(program_->weights(), program_->expectedWeights(5)) << budget;
    EXPECT_LE(fake_.deviceFrames(), budget + besideBudget);
    session_.reset();
    EXPECT_EQ(fake_.hostBackings(), 0u);
    fake_.destroyGraph(graph_);
  }
}

// What is written under map() counts also where it lies in host memory between replays.
TEST_F(AdoptTest, mapsHostedWeights) {
  open(exclusivePages);
  start();
  const Expected<Step *> step = adopt();
  ASSERT_TRUE(step) << messageOf(step);
  void *weight = program_->weightPointers()[1];
  ASSERT_TRUE(session_->map(weight));
  *static_cast<std::uint64_t *>(weight) = 77;
  ASSERT_TRUE(session_->unmap(weight));
  EXPECT_EQ(program_->weights()[pageBytes * 2 / Program::stride], 77u);
  replay(*step, 1);
  ASSERT_TRUE(session_->takeBack());
  EXPECT_NE(program_->weights()[pageBytes * 2 / Program::stride], 77u); // updated
  replay(*step, 1);
}

// A plan with hosted pages can be made again from measured times, those of nodes that reach over the link apart.
TEST_F(AdoptTest, plansAgainWithHostedPages) {
  open(9);
  start();
  const Expected<Step *> step = adopt();
  ASSERT_TRUE(step) << messageOf(step);
  replay(*step, 1);
  const Expected<Replanning> replanned = (*step)->replan();
  ASSERT_TRUE(replanned) << messageOf(replanned);
  EXPECT_EQ(replanned->timedNodes, 9u);
  EXPECT_FALSE((*step)->measure(1)) << "times over the link are not those on the device";
  replay(*step, 1);
  EXPECT_EQ(program_->weights(), program_->expectedWeights(2));
}

// A fill writes pages in host memory as well as those that have frames: by a kernel, since a node for it is refused.
TEST_F(AdoptTest, fillsReachHostedPages) {
  char *buffer = startWithAWideFill();
  const Expected<Step *> step = adopt();
  ASSERT_TRUE(step) << messageOf(step);
  EXPECT_GT(session_->statistics().hostBackedBytes, 0u);
  replay(*step, 1);
  ASSERT_TRUE(session_->map(buffer));
  EXPECT_EQ(buffer[0], 9);
  EXPECT_EQ(buffer[wideBytes - 1], 9);
  ASSERT_TRUE(session_->unmap(buffer));
}

// Exclusive buffers are on the device at all times: below that there is no plan, and nothing has changed.
TEST_F(AdoptTest, refusesABudgetBelowWhatStays) {
  open(exclusivePages - 1);
  start();
  const std::string before = fake_.print(graph_);
  const Expected<Step *> step = adopt();
  ASSERT_FALSE(step);
  EXPECT_EQ(step.error().status, PUMPGRAPH_UNPLANNABLE) << step.error().message;
  EXPECT_EQ(fake_.print(graph_), before);
}

// Pinned memory that the limit does not allow is refused with what is missing, before anything has changed.
TEST_F(AdoptTest, refusesTooLittleHostMemory) {
  open(tightPages);
  start();
  const Expected<Step *> roomy = adopt();
  ASSERT_TRUE(roomy) << messageOf(roomy);
  const MemoryStatistics used = session_->statistics();
  session_.reset();
  fake_.destroyGraph(graph_);

  // One page too few for the same.
  open(tightPages, used.pinnedBytes + used.hostBackedBytes - pageBytes);
  start();
  const std::string before = fake_.print(graph_);
  const Expected<Step *> step = adopt();
  ASSERT_FALSE(step);
  EXPECT_EQ(step.error().status, PUMPGRAPH_OUT_OF_HOST_MEMORY) << step.error().message;
  EXPECT_NE(step.error().message.find("2.0 MiB missing"), std::string::npos) << step.error().message;
  EXPECT_EQ(fake_.print(graph_), before);
  EXPECT_EQ(program_->weights(), program_->expectedWeights(0));
}

// Whatever driver call fails while the graph is rewritten, the graph is as it was and can be used, and a second try
// succeeds.
TEST_F(AdoptTest, failuresWhileRewritingLeaveTheGraphUsable) {
  for (const std::string symbol : {"cuGraphAddMemcpyNode", "cuGraphAddDependencies"})
    for (const int nth : {1, 3}) {
      open(tightPages);
      start();
      const std::string before = fake_.print(graph_);
      fake_.failCall(symbol, nth, CUDA_ERROR_INVALID_VALUE);
      const Expected<Step *> failed = adopt();
      ASSERT_FALSE(failed) << symbol << " " << nth;
      EXPECT_EQ(failed.error().status, PUMPGRAPH_DRIVER_ERROR);
      EXPECT_NE(failed.error().message.find(symbol), std::string::npos) << failed.error().message;
      EXPECT_NE(failed.error().message.find("CUDA_ERROR_INVALID_VALUE"), std::string::npos) << failed.error().message;
      EXPECT_EQ(fake_.print(graph_), before);
      EXPECT_LE(fake_.deviceFrames(), tightPages + besideBudget);

      // As captured, without any step of ours: every buffer has memory.
      CUgraphExec exec = nullptr;
      ASSERT_TRUE(fake_.table()->graphInstantiate(&exec, graph_, 0));
      ASSERT_TRUE(fake_.table()->graphLaunch(exec, nullptr));
      ASSERT_TRUE(fake_.table()->graphExecDestroy(exec));
      EXPECT_EQ(program_->weights(), program_->expectedWeights(1));

      const Expected<Step *> step = adopt();
      ASSERT_TRUE(step) << messageOf(step);
      replay(*step, 1);
      EXPECT_EQ(program_->weights(), program_->expectedWeights(2));
      session_.reset();
      fake_.destroyGraph(graph_);
    }
}

// Left as captured: nothing is added, beyond the budget buffers are host memory, results are the same.
TEST_F(AdoptTest, leavesAStepAsCapturedWhenAsked) {
  open(tightPages);
  start();
  const std::string before = fake_.print(graph_);
  const Expected<Step *> step = adopt(true);
  ASSERT_TRUE(step) << messageOf(step);
  EXPECT_FALSE((*step)->rewritten());
  EXPECT_EQ(fake_.print(graph_), before);
  replay(*step, 2);
  EXPECT_EQ(program_->weights(), program_->expectedWeights(2));
  EXPECT_LE(fake_.deviceFrames(), tightPages + besideBudget);
  EXPECT_GT(fake_.hostBackings(), 0u);
  EXPECT_NE((*step)->report().find("\"left_as_captured\": \"asked for\""), std::string::npos);
}

// Copies between buffers that are both host memory are done by the device, for the processor cannot reach them there.
TEST_F(AdoptTest, copiesBetweenHostBackedBuffers) {
  open(1);
  const Expected<void *> from = session_->allocate(2 * pageBytes, nullptr, "from"),
                         to = session_->allocate(2 * pageBytes, nullptr, "to");
  ASSERT_TRUE(from && to);
  ASSERT_EQ(fake_.hostBackings(), 2u);
  EXPECT_FALSE(fake_.isReachedByProcessor(*from) || fake_.isReachedByProcessor(*to));
  graph_ = fake_.createGraph();
  const CUgraphNode fill = fake_.addFill(graph_, {}, *from, 6, 2 * pageBytes);
  fake_.addCopy(graph_, {fill}, *to, *from, 2 * pageBytes);
  const Expected<Step *> step = adopt(true);
  ASSERT_TRUE(step) << messageOf(step);
  replay(*step, 1);
  EXPECT_EQ(*static_cast<char *>(*to), 6);
}

// A copy that was captured between buffers in host memory goes by their addresses once the plan has them in frames.
TEST_F(AdoptTest, copiesCapturedInHostMemory) {
  for (const bool hostedFirst : {false, true}) {
    open(4);
    std::vector<void *> buffers;
    for (const char *name : {"first", "second", "third", "fourth"}) {
      const Expected<void *> made = session_->allocate(2 * pageBytes, nullptr, name);
      ASSERT_TRUE(made && session_->declarePrivate(*made));
      buffers.push_back(*made);
    }
    ASSERT_EQ(fake_.hostBackings(), 2u);
    if (hostedFirst)
      std::reverse(buffers.begin(), buffers.end());
    graph_ = fake_.createGraph();
    CUgraphNode last = fake_.addFill(graph_, {}, buffers[2], 6, 2 * pageBytes);
    last = fake_.addCopy(graph_, {last}, buffers[3], buffers[2], 2 * pageBytes);
    last = fake_.addCopy(graph_, {last}, buffers[0], buffers[3], 2 * pageBytes);
    fake_.addCopy(graph_, {last}, buffers[1], buffers[0], 2 * pageBytes);
    const Expected<Step *> step = adopt();
    ASSERT_TRUE(step) << messageOf(step);
    ASSERT_TRUE((*step)->rewritten()) << (*step)->report();
    replay(*step, 2);
    const Expected<Validation> valid = (*step)->validate();
    ASSERT_TRUE(valid) << messageOf(valid);
    const Expected<Observation> observed = (*step)->observe({});
    ASSERT_TRUE(observed) << messageOf(observed);
    replay(*step, 1);
    ASSERT_TRUE(session_->takeBack());
    for (void *buffer : buffers)
      EXPECT_EQ(*static_cast<char *>(buffer), 6);
    session_.reset();
    fake_.destroyGraph(graph_);
  }
}

// What cannot be handled safely is left as captured, with the reason.
TEST_F(AdoptTest, leavesUnsafeNodesAsCaptured) {
  for (const CUgraphNodeType type :
       {CU_GRAPH_NODE_TYPE_CONDITIONAL, CU_GRAPH_NODE_TYPE_MEM_ALLOC, CU_GRAPH_NODE_TYPE_BATCH_MEM_OP}) {
    open(tightPages);
    start();
    fake_.addPlain(graph_, {}, type);
    const Expected<Step *> step = adopt();
    ASSERT_TRUE(step) << messageOf(step);
    EXPECT_FALSE((*step)->rewritten());
    EXPECT_EQ((*step)->report().find("\"left_as_captured\": null"), std::string::npos);
    session_.reset();
    fake_.destroyGraph(graph_);
  }
}

// Without the compiler library a step passes through untouched, and says so.
TEST_F(AdoptTest, leavesAStepAsCapturedWithoutACompiler) {
  SessionOptions options;
  options.budgetBytes = tightPages * pageBytes;
  options.compilerLibrary = "/nonexistent/libpumpgraph-compiler.so";
  Expected<std::unique_ptr<Session>> made = Session::create(options, fake_.table());
  ASSERT_TRUE(made);
  session_ = std::move(*made);
  start();
  const Expected<Step *> step = adopt();
  ASSERT_TRUE(step) << messageOf(step);
  EXPECT_FALSE((*step)->rewritten());
  EXPECT_NE((*step)->report().find("nonexistent"), std::string::npos);
  replay(*step, 1);
  EXPECT_EQ(program_->weights(), program_->expectedWeights(1));
}

// After a rewritten step is destroyed its weights are at their addresses, and another can be had.
TEST_F(AdoptTest, givesBuffersBackWhenAStepIsDestroyed) {
  open(tightPages);
  start();
  const Expected<Step *> first = adopt();
  ASSERT_TRUE(first) << messageOf(first);
  replay(*first, 1);
  session_->destroy(*first);
  fake_.destroyGraph(graph_);
  EXPECT_EQ(*static_cast<std::uint64_t *>(program_->weightPointers()[0]), program_->expectedWeights(1)[0]);

  graph_ = program_->record();
  const Expected<Step *> second = adopt();
  ASSERT_TRUE(second) << messageOf(second);
  replay(*second, 1);
  EXPECT_EQ(program_->weights(), program_->expectedWeights(2));
  EXPECT_LE(fake_.deviceFrames(), tightPages + besideBudget);
}

// A step left as captured may stand beside a rewritten one: what both use stays on the device. It may not use what the
// rewritten one keeps in host memory.
TEST_F(AdoptTest, sharesBuffersWithStepsLeftAsCaptured) {
  open(30);
  start();
  static FakeKernel reader{"reader", {8, 8}, [](const FakeKernel::Arguments &arguments) {
                             *argument<std::uint64_t *>(arguments, 1) = *argument<std::uint64_t *>(arguments, 0);
                           }};
  const Expected<void *> seen = session_->allocate(8, nullptr, "seen");
  ASSERT_TRUE(seen);
  const CUgraph dropped = graph_, first = fake_.createGraph();
  fake_.addKernel(first, {}, reader, {bytesOf(program_->weightPointers()[0]), bytesOf(*seen)});
  const Expected<Step *> reading = session_->adopt(first, {.leaveAsCaptured = true});
  ASSERT_TRUE(reading) << messageOf(reading);
  graph_ = program_->record();
  const Expected<Step *> training = adopt();
  ASSERT_TRUE(training) << messageOf(training);
  EXPECT_NE((*training)->report().find("another step of the session uses"), std::string::npos);
  replay(*training, 1);
  replay(*reading, 1);
  const std::vector<std::uint64_t> expected = program_->expectedWeights(1);
  EXPECT_EQ(*static_cast<std::uint64_t *>(*seen), expected[0]);

  // After the rewritten step is gone the other still has its buffer, freed or not.
  ASSERT_TRUE(session_->free(program_->weightPointers()[0], nullptr));
  session_->destroy(*training);
  replay(*reading, 1);
  EXPECT_EQ(*static_cast<std::uint64_t *>(*seen), expected[0]);
  for (const CUgraph graph : {dropped, first, graph_})
    fake_.destroyGraph(graph);
}

// Times every node, and leaves the weights as they were.
TEST_F(AdoptTest, measuresACapturedStep) {
  open(pagesInAll + 8);
  start();
  const Expected<Step *> step = adopt(true);
  ASSERT_TRUE(step) << messageOf(step);
  const Expected<Measurement> measured = (*step)->measure(3);
  ASSERT_TRUE(measured) << messageOf(measured);
  EXPECT_EQ(measured->timedNodes, 9u);
  EXPECT_GT(measured->stepUs, 0.0);
  EXPECT_EQ(program_->weights(), program_->expectedWeights(0));
  const std::string path = ::testing::TempDir() + "/step.mlir";
  const Status saved = (*step)->save(path);
  ASSERT_TRUE(saved) << messageOf(saved);
  std::ifstream file(path);
  const std::string text((std::istreambuf_iterator<char>(file)), {});
  EXPECT_NE(text.find("cost"), std::string::npos);
  EXPECT_NE(text.find("forward"), std::string::npos);
}

// At its peak a step does not fit as captured, every buffer for itself; its plan moves nothing, so it can be timed.
TEST_F(AdoptTest, measuresARewrittenStepThatMovesNothing) {
  open(pagesInAll + 8);
  start();
  const Expected<Step *> roomy = adopt();
  ASSERT_TRUE(roomy) << messageOf(roomy);
  const std::uint64_t peak = nlohmann::json::parse((*roomy)->report()).at("peak_bytes_before");
  session_.reset();
  fake_.destroyGraph(graph_);
  ASSERT_LT(peak, pagesInAll * pageBytes);

  open(peak / pageBytes);
  start();
  const Expected<Step *> step = adopt();
  ASSERT_TRUE(step) << messageOf(step);
  replay(*step, 1);
  ASSERT_TRUE(session_->map(program_->weightPointers()[0]));
  EXPECT_FALSE((*step)->measure(3));
  ASSERT_TRUE(session_->unmap(program_->weightPointers()[0]));
  const Expected<Measurement> measured = (*step)->measure(3);
  ASSERT_TRUE(measured) << messageOf(measured);
  EXPECT_EQ(measured->timedNodes, 9u);
  EXPECT_EQ(program_->weights(), program_->expectedWeights(1));
  EXPECT_EQ(program_->loss(), program_->expectedLoss(1));
  replay(*step, 1);
  EXPECT_EQ(program_->weights(), program_->expectedWeights(2));
  const std::string path = ::testing::TempDir() + "/rewritten-step.mlir";
  ASSERT_TRUE((*step)->save(path));
  std::ifstream file(path);
  const std::string text((std::istreambuf_iterator<char>(file)), {});
  EXPECT_NE(text.find("cost"), std::string::npos);
}

// For PyTorch's memory viewer, by the names that the program gave; test/tools/pump-graph-opt/memory-viz.mlir reads
// whole files. Of what is left as captured there is no residency to show.
TEST_F(AdoptTest, writesWhatThePlanHasOnTheDevice) {
  const std::string path = ::testing::TempDir() + "/step.pickle";
  const auto contents = [&] {
    std::ifstream file(path, std::ios::binary);
    return std::string((std::istreambuf_iterator<char>(file)), {});
  };
  open(tightPages);
  start();
  const Expected<Step *> step = adopt();
  ASSERT_TRUE(step) << messageOf(step);
  const Status written = (*step)->memorySnapshot(path);
  ASSERT_TRUE(written) << messageOf(written);
  for (const char *text : {"device_traces", "free_completed", "weight0", "copied back from the host at"})
    EXPECT_NE(contents().find(text), std::string::npos) << text;
  EXPECT_EQ(contents().back(), '.');
  const Status nowhere = (*step)->memorySnapshot(::testing::TempDir() + "/no/folder");
  EXPECT_NE(messageOf(nowhere).find("cannot be written"), std::string::npos);
  std::filesystem::remove(path);

  open(pagesInAll + 8);
  start();
  const Expected<Step *> captured = adopt(true);
  ASSERT_TRUE(captured) << messageOf(captured);
  const Status refused = (*captured)->memorySnapshot(path);
  EXPECT_NE(messageOf(refused).find("is left as captured, so that all of its memory is on the device at all times"),
            std::string::npos);
  EXPECT_FALSE(std::filesystem::exists(path));
}

// What moves data takes longer than its nodes: it is not the step that was captured.
TEST_F(AdoptTest, doesNotMeasureAStepThatMovesData) {
  open(tightPages);
  start();
  const Expected<Step *> step = adopt();
  ASSERT_TRUE(step) << messageOf(step);
  const Expected<Measurement> measured = (*step)->measure(3);
  ASSERT_FALSE(measured);
  EXPECT_EQ(measured.error().status, PUMPGRAPH_INVALID_ARGUMENT);
  EXPECT_NE(measured.error().message.find("is rewritten"), std::string::npos) << measured.error().message;
}

// Replays take nothing: frames, host pieces and driver objects stay as many as they were.
TEST_F(AdoptTest, doesNotGrow) {
  open(tightPages);
  start();
  const Expected<Step *> step = adopt();
  ASSERT_TRUE(step) << messageOf(step);
  replay(*step, 1);
  const std::uint64_t frames = fake_.deviceFrames(), backings = fake_.hostBackings(),
                      created = fake_.callsOf("cuMemCreate"),
                      instantiated = fake_.callsOf("cuGraphInstantiateWithFlags");
  replay(*step, 50);
  EXPECT_EQ(fake_.deviceFrames(), frames);
  EXPECT_EQ(fake_.hostBackings(), backings);
  EXPECT_EQ(fake_.callsOf("cuMemCreate"), created);
  EXPECT_EQ(fake_.callsOf("cuGraphInstantiateWithFlags"), instantiated);
}

// A buffer that nobody declared private never leaves the device: it is read without map().
TEST_F(AdoptTest, keepsUndeclaredBuffersOnTheDevice) {
  Program::Shape shape;
  shape.declareWeights = false;
  open(24); // 8 pages of weights, 3 of input, 1 of loss stay: 12 for the rest
  start(shape);
  const std::uint64_t nodes = fake_.graphNodes(graph_);
  const Expected<Step *> step = adopt();
  ASSERT_TRUE(step) << messageOf(step);
  EXPECT_GT(fake_.graphNodes(graph_), nodes);
  replay(*step, 2);
  const std::vector<std::uint64_t> expected = program_->expectedWeights(2);
  EXPECT_EQ(*static_cast<std::uint64_t *>(program_->weightPointers()[0]), expected[0]);
  EXPECT_EQ(program_->weights(), expected);
}

// A graph of several branches is rewritten so that any order it allows gives the same results.
TEST_F(AdoptTest, ordersBranchesAgainstEachOther) {
  open(tightPages);
  start();
  // A second branch: sets a temporary and adds it to nothing, beside the whole of the first.
  const Expected<void *> result = session_->allocate(4 * pageBytes, nullptr, "side result");
  ASSERT_TRUE(result);
  ASSERT_TRUE(session_->declarePrivate(*result));
  const CUgraphNode fill = fake_.addFill(graph_, {}, *result, 3, 4 * pageBytes);
  fake_.addCopy(graph_, {fill}, static_cast<char *>(*result) + pageBytes, *result, pageBytes);
  const Expected<Step *> step = adopt();
  ASSERT_TRUE(step) << messageOf(step);
  for (int i = 1; i <= 8; ++i) { // eight orders
    replay(*step, 1);
    ASSERT_EQ(program_->weights(), program_->expectedWeights(i)) << i;
    ASSERT_TRUE(session_->map(*result));
    EXPECT_EQ(*(static_cast<char *>(*result) + 3 * pageBytes), 3);
    ASSERT_TRUE(session_->unmap(*result));
  }
}

// Programmatic edges on a hand-over are demoted; the others stay as they were captured.
TEST_F(AdoptTest, demotesProgrammaticEdgesWhereAFrameChangesHands) {
  open(tightPages);
  start();
  const std::string before = fake_.print(graph_);
  fake_.makeEdgesProgrammatic(graph_);
  const std::string programmatic = fake_.print(graph_);
  ASSERT_NE(programmatic, before);
  const Expected<Step *> step = adopt();
  ASSERT_TRUE(step) << messageOf(step);
  replay(*step, 2);
  EXPECT_EQ(program_->weights(), program_->expectedWeights(2));
  const Expected<Validation> validation = (*step)->validate();
  ASSERT_TRUE(validation) << messageOf(validation);
  EXPECT_EQ(validation->differentBuffers, 0u);
}

// pumpgraph_capture(): two captures of the same function, the second adopted; what it allocates and frees is the step's
// own.
TEST_F(AdoptTest, capturesTwiceAndAdopts) {
  open(8);
  const Expected<void *> counter = session_->allocate(3 * pageBytes, nullptr, "counter");
  ASSERT_TRUE(counter);
  static FakeKernel increment{"increment", {8, 8}, [](const FakeKernel::Arguments &arguments) {
                                auto *in = argument<std::uint64_t *>(arguments, 0);
                                auto *out = argument<std::uint64_t *>(arguments, 1);
                                *out = *in + 1;
                              }};
  *static_cast<std::uint64_t *>(*counter) = 5;
  int recorded = 0;
  const Expected<Step *> step = session_->capture(
      [&](CUstream stream) {
        ++recorded;
        void *previous = *counter;
        for (int i = 0; i < 6; ++i) {
          void *next = *session_->allocate(2 * pageBytes, stream, "temporary");
          fake_.fill(stream, next, 0, 2 * pageBytes);
          fake_.launch(stream, increment, {bytesOf(previous), bytesOf(next)});
          if (previous != *counter) {
            EXPECT_TRUE(session_->free(previous, stream));
          }
          previous = next;
        }
        fake_.launch(stream, increment, {bytesOf(previous), bytesOf(*counter)});
        EXPECT_TRUE(session_->free(previous, stream));
        return 0;
      },
      {});
  ASSERT_TRUE(step) << messageOf(step);
  EXPECT_EQ(recorded, 2);
  replay(*step, 3);
  EXPECT_EQ(*static_cast<std::uint64_t *>(*counter), 5u + 3 * 7);
}

// A recording function that gives up, or a capture that breaks, is an error; the session works on.
TEST_F(AdoptTest, survivesABrokenCapture) {
  open(8);
  const Expected<Step *> gaveUp = session_->capture([](CUstream) { return 3; }, {});
  ASSERT_FALSE(gaveUp);
  EXPECT_EQ(gaveUp.error().status, PUMPGRAPH_CAPTURE_FAILED);
  fake_.failCall("cuStreamEndCapture", 1, CUDA_ERROR_INVALID_VALUE);
  const Expected<Step *> broken = session_->capture([](CUstream) { return 0; }, {});
  ASSERT_FALSE(broken);
  EXPECT_EQ(broken.error().status, PUMPGRAPH_CAPTURE_FAILED);
  EXPECT_TRUE(session_->capture([](CUstream) { return 0; }, {}));
}

// Addresses in a table on the device: what they name stays where it is, declared private or not.
TEST_F(AdoptTest, keepsWhatTablesPointAt) {
  open(tightPages);
  program_.emplace(fake_, *session_, Program::Shape{});
  program_->prepare();
  const Expected<void *> table = session_->allocate(64, nullptr, "table");
  ASSERT_TRUE(table);
  *static_cast<void **>(*table) = program_->weightPointers()[2];
  graph_ = program_->record();
  static FakeKernel reader{
      "reader", {8}, [](const FakeKernel::Arguments &arguments) { **argument<std::uint64_t **>(arguments, 0) += 0; }};
  fake_.addKernel(graph_, {}, reader, {bytesOf(*table)});
  const Expected<Step *> step = adopt();
  ASSERT_TRUE(step) << messageOf(step);
  EXPECT_NE((*step)->report().find("holds 1 addresses"), std::string::npos) << (*step)->report();
  replay(*step, 2);
  EXPECT_EQ(program_->weights(), program_->expectedWeights(2));
  EXPECT_TRUE(fake_.isMapped(program_->weightPointers()[2]));
}

// What the capture allocated and nobody freed has memory after adoption, touched by a node or not.
TEST_F(AdoptTest, givesResultsMemory) {
  open(tightPages);
  start();
  session_.reset();
  fake_.destroyGraph(graph_);
  open(tightPages);
  program_.emplace(fake_, *session_, Program::Shape{});
  program_->prepare();
  graph_ = program_->record();
  ASSERT_TRUE(session_->captureBegin()); // a second capture; the first is dropped
  const Expected<void *> touched = session_->allocate(pageBytes, nullptr, "touched"),
                         untouched = session_->allocate(pageBytes, nullptr, "untouched");
  ASSERT_TRUE(touched && untouched);
  CUgraph graph = fake_.createGraph();
  fake_.addFill(graph, {}, *touched, 9, pageBytes);
  ASSERT_TRUE(session_->captureEnd());
  const Expected<Step *> step = session_->adopt(graph, {});
  ASSERT_TRUE(step) << messageOf(step);
  *static_cast<char *>(*untouched) = 5; // memory of its own: neither disturbs the other
  replay(*step, 1);
  EXPECT_EQ(*static_cast<char *>(*touched), 9);
  EXPECT_EQ(*static_cast<char *>(*untouched), 5);
  EXPECT_TRUE(session_->free(*touched, nullptr)); // the step goes on using it
  replay(*step, 1);
  EXPECT_TRUE(fake_.isMapped(*touched));
  session_->destroy(*step);
  EXPECT_FALSE(fake_.isMapped(*touched));
  EXPECT_TRUE(fake_.isMapped(*untouched));
  fake_.destroyGraph(graph);
}

// Device memory that other allocations hold is not the step's to plan with, and the error says how much that is.
TEST_F(AdoptTest, countsOtherAllocationsAgainstTheBudget) {
  open(tightPages + 8);
  const Expected<void *> other = session_->allocate(24 * pageBytes, nullptr, "other");
  ASSERT_TRUE(other);
  start();
  const Expected<Step *> step = adopt();
  ASSERT_FALSE(step);
  EXPECT_EQ(step.error().status, PUMPGRAPH_UNPLANNABLE);
  EXPECT_NE(step.error().message.find("48.0 MiB of the budget of 54.0 MiB"), std::string::npos) << step.error().message;
  ASSERT_TRUE(session_->free(*other, nullptr)); // cached: given up when the plan needs it
  const Expected<Step *> second = adopt();
  ASSERT_TRUE(second) << messageOf(second);
  replay(*second, 1);
  EXPECT_EQ(program_->weights(), program_->expectedWeights(1));
}

} // namespace
