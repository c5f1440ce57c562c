// SPDX-License-Identifier: Apache-2.0
// Buffers that go on at another address: which words of which kernels lead there, and when nothing does any more.
#include "test/unit/runtime/ContinuingCompiler.h"
#include "test/unit/runtime/Program.h"

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <map>

using namespace pumpgraph;
using namespace pumpgraph::runtime;
using namespace pumpgraph::runtime::test;

namespace {

// With room for everything, twice over: what moves is what the compiler library of these tests moves.
constexpr std::uint64_t roomyPages = 72;
constexpr std::uint64_t besideBudget = 1;
/// The forward kernel of layer 1 writes it, that of layer 2 reads it, and at last the backward kernel of layer 2.
constexpr const char *continued = "activation1";

class ContinuationTest : public ::testing::Test {
protected:
  void TearDown() override { close(); }

  void close() {
    program_.reset();
    session_.reset();
    if (graph_)
      fake_.destroyGraph(std::exchange(graph_, nullptr));
  }

  static void continueBuffer(const char *name, Continuing how) {
    void *library = dlopen(PUMPGRAPH_CONTINUING_COMPILER, RTLD_NOW | RTLD_LOCAL);
    ASSERT_TRUE(library) << dlerror();
    reinterpret_cast<decltype(&pumpgraph_test_continue)>(dlsym(library, "pumpgraph_test_continue"))(name, how);
  }

  void open(Continuing how, const Program::Shape &shape = {}, bool rehearses = true) {
    continueBuffer(continued, how);
    record(roomyPages, PUMPGRAPH_CONTINUING_COMPILER, shape, rehearses);
  }

  void record(std::uint64_t pages, const char *compiler, const Program::Shape &shape = {}, bool rehearses = true) {
    Expected<std::unique_ptr<Session>> made = openSession(fake_, pages, compiler);
    ASSERT_TRUE(made) << messageOf(made);
    session_ = std::move(*made);
    program_.emplace(fake_, *session_, shape);
    program_->prepare();
    graph_ = program_->record();
    if (!rehearses)
      return;
    ASSERT_TRUE(session_->rehearse(graph_));
    fake_.destroyGraph(graph_);
    graph_ = program_->record();
  }

  Expected<Step *> adopt() { return session_->adopt(graph_, {.keepFirstPlan = true}); }

  /// Of every kernel, by its node.
  std::map<CUgraphNode, KernelLaunch> launches() {
    const std::unique_ptr<AddressSpace> addresses = *AddressSpace::reserve(*fake_.table());
    const LiftedGraph lifted = *liftGraph(*fake_.table(), graph_, *addresses, nullptr);
    std::map<CUgraphNode, KernelLaunch> launches;
    for (const LiftedNode &node : lifted.nodes)
      if (node.kind == NodeKind::Kernel)
        launches.emplace(node.handle, node.launches.front());
    return launches;
  }

  struct Change {
    std::string kernel;
    std::size_t parameter;
    std::uint64_t before, after;
  };
  /// What is not as in `before`; a parameter that changes has eight bytes.
  std::vector<Change> changesSince(const std::map<CUgraphNode, KernelLaunch> &before) {
    std::vector<Change> changes;
    for (const auto &[node, launch] : launches()) {
      const KernelLaunch &old = before.at(node);
      EXPECT_EQ(launch.grid, old.grid);
      EXPECT_EQ(launch.ends, old.ends);
      for (std::size_t index = 0; index < launch.ends.size(); ++index) {
        const std::span<const char> is = launch.parameter(index), was = old.parameter(index);
        if (!std::equal(is.begin(), is.end(), was.begin(), was.end()))
          changes.push_back({launch.kernel, index, argument<std::uint64_t>({was.data()}, 0),
                             argument<std::uint64_t>({is.data()}, 0)});
      }
    }
    return changes;
  }
  bool isMapped(std::uint64_t address) const { return fake_.isMapped(reinterpret_cast<void *>(address)); }

  /// The state after so many steps in all.
  void expectState(int steps) {
    EXPECT_EQ(program_->weights(), program_->expectedWeights(steps));
    EXPECT_EQ(program_->loss(), program_->expectedLoss(steps));
  }

  FakeDriver fake_;
  std::unique_ptr<Session> session_;
  std::optional<Program> program_;
  CUgraph graph_ = nullptr;
};

// The one kernel that is to have the other address has it, nothing else has changed, and there is memory.
TEST_F(ContinuationTest, changesTheWordsThatLeadThere) {
  open(Continuing::AtLastUse);
  const std::map<CUgraphNode, KernelLaunch> before = launches();
  const Expected<Step *> step = adopt();
  ASSERT_TRUE(step) << messageOf(step);
  const std::vector<Change> changes = changesSince(before);
  ASSERT_EQ(changes.size(), 1u);
  EXPECT_EQ(changes[0].kernel, "backward");
  EXPECT_EQ(changes[0].parameter, 1u);
  EXPECT_TRUE(isMapped(changes[0].before));
  EXPECT_TRUE(isMapped(changes[0].after));
  replay(*step, 3);
  expectState(3);
  EXPECT_LE(fake_.deviceFrames(), roomyPages + besideBudget);
  for (const Buffer &buffer : (*step)->captured().buffers)
    EXPECT_EQ(buffer.continues, noBuffer) << buffer.name;
}

// Host memory that kernels reach at one of the addresses, or at both, is where copies of the other one begin and end.
TEST_F(ContinuationTest, isHostMemoryAtOneAddress) {
  for (const Continuing how : {Continuing::HostedBefore, Continuing::HostedAfter, Continuing::Hosted}) {
    open(how);
    const std::map<CUgraphNode, KernelLaunch> before = launches();
    const std::uint64_t backings = fake_.hostBackings();
    const Expected<Step *> step = adopt();
    ASSERT_TRUE(step) << messageOf(step);
    EXPECT_EQ(fake_.hostBackings(), backings + 1);
    EXPECT_EQ(changesSince(before).size(), 1u);
    replay(*step, 3);
    expectState(3);
    ASSERT_TRUE(session_->takeBack());
    expectState(3);
    replay(*step, 1); // in force again
    expectState(4);
    close();
  }
}

// A buffer may go on more than once, and kernels may have their parameters in one buffer.
TEST_F(ContinuationTest, goesOnFromAddressToAddress) {
  for (const bool packed : {false, true}) {
    open(Continuing::AtEachUse, {.packedArguments = packed});
    const std::map<CUgraphNode, KernelLaunch> before = launches();
    const Expected<Step *> step = adopt();
    ASSERT_TRUE(step) << messageOf(step);
    const std::vector<Change> changes = changesSince(before);
    ASSERT_EQ(changes.size(), 2u);
    EXPECT_EQ(changes[0].before, changes[1].before);
    EXPECT_NE(changes[0].after, changes[1].after);
    replay(*step, 2);
    expectState(2);
    close();
  }
}

// Whatever stands between two tenants of a frame, the values are those of the captured step; so they are when kernels
// are observed one by one.
TEST_F(ContinuationTest, validatesAndObserves) {
  open(Continuing::AtEachUse, {.activationBytes = pageBytes, .weightBytes = pageBytes});
  const Expected<Step *> step = adopt();
  ASSERT_TRUE(step) << messageOf(step);
  replay(*step, 1);
  const Expected<Validation> validation = (*step)->validate();
  ASSERT_TRUE(validation) << messageOf(validation);
  EXPECT_EQ(validation->differentBuffers, 0u) << validation->firstDifference;
  EXPECT_EQ(validation->comparedBuffers, 6u);
  const Expected<Observation> observation = (*step)->observe();
  ASSERT_TRUE(observation) << messageOf(observation);
  EXPECT_TRUE(observation->disagreements.empty());
  replay(*step, 1);
  expectState(2);
}

// What stays in its frames at another address has no other tenant in between, nor anything that would stand there.
TEST_F(ContinuationTest, validatesWhatStaysInPlace) {
  open(Continuing::InPlace);
  const std::map<CUgraphNode, KernelLaunch> before = launches();
  const Expected<Step *> step = adopt();
  ASSERT_TRUE(step) << messageOf(step);
  EXPECT_EQ(changesSince(before).size(), 1u);
  replay(*step, 2);
  expectState(2);
  const Expected<Validation> validation = (*step)->validate();
  ASSERT_TRUE(validation) << messageOf(validation);
  EXPECT_EQ(validation->differentBuffers, 0u) << validation->firstDifference;
}

// The captured value that a lost copy would have brought is not there.
TEST_F(ContinuationTest, validationCatchesAShortenedCopy) {
  open(Continuing::AtLastUse);
  const Expected<Step *> step = adopt();
  ASSERT_TRUE(step) << messageOf(step);
  ASSERT_TRUE(fake_.shortenCopies(graph_, CU_MEMORYTYPE_HOST));
  const Expected<Validation> validation = (*step)->validate();
  ASSERT_TRUE(validation) << messageOf(validation);
  EXPECT_GT(validation->differentBuffers, 0u);
}

// While no plan is in force nothing is at the other address; with the plan it is there again.
TEST_F(ContinuationTest, hasNoMemoryOutsideThePlan) {
  open(Continuing::AtLastUse);
  const std::map<CUgraphNode, KernelLaunch> before = launches();
  const Expected<Step *> step = adopt();
  ASSERT_TRUE(step) << messageOf(step);
  const std::uint64_t other = changesSince(before).at(0).after;
  ASSERT_TRUE(session_->takeBack());
  EXPECT_FALSE(isMapped(other));
  replay(*step, 1);
  EXPECT_TRUE(isMapped(other));
  expectState(1);
  session_->destroy(*step);
  EXPECT_FALSE(isMapped(other));
  expectState(1);
}

// Another plan begins from what was captured, whether it moves the buffer or not.
TEST_F(ContinuationTest, isForgottenWithItsPlan) {
  open(Continuing::AtLastUse);
  const std::map<CUgraphNode, KernelLaunch> before = launches();
  const Expected<Step *> step = adopt();
  ASSERT_TRUE(step) << messageOf(step);
  const std::uint64_t other = changesSince(before).at(0).after;
  continueBuffer("", Continuing::AtLastUse);
  const Expected<Replanning> without = (*step)->replan();
  ASSERT_TRUE(without) << messageOf(without);
  if (without->keptFirst) {
    EXPECT_EQ(changesSince(before).at(0).after, other);
  } else {
    EXPECT_TRUE(changesSince(before).empty());
    EXPECT_FALSE(isMapped(other));
  }
  continueBuffer(continued, Continuing::AtEachUse);
  const Expected<Replanning> with = (*step)->replan();
  ASSERT_TRUE(with) << messageOf(with);
  for (const Change &change : changesSince(before))
    EXPECT_TRUE(isMapped(change.after));
  replay(*step, 2);
  expectState(2);
  EXPECT_LE(fake_.deviceFrames(), roomyPages + besideBudget);
}

// Whatever fails, the kernels have what they were captured with, and a second try succeeds.
TEST_F(ContinuationTest, failuresLeaveTheGraphAsItWas) {
  for (const auto &[symbol, nth] :
       std::initializer_list<std::pair<const char *, int>>{{"cuGraphKernelNodeSetParams", 1},
                                                           {"cuGraphKernelNodeSetParams", 2},
                                                           {"cuGraphAddMemcpyNode", 2},
                                                           {"cuGraphAddDependencies", 3}}) {
    SCOPED_TRACE(fmt::format("{} {}", symbol, nth));
    open(Continuing::AtEachUse);
    const std::string before = fake_.print(graph_);
    fake_.failCall(symbol, nth, CUDA_ERROR_INVALID_VALUE);
    const Expected<Step *> failed = adopt();
    ASSERT_FALSE(failed);
    EXPECT_EQ(failed.error().status, PUMPGRAPH_DRIVER_ERROR) << failed.error().message;
    EXPECT_EQ(fake_.print(graph_), before);
    const Expected<Step *> step = adopt();
    ASSERT_TRUE(step) << messageOf(step);
    replay(*step, 2);
    expectState(2);
    close();
  }
}

// Nor may another's values be at an address that a kernel kept because the driver did not let it have its own again.
TEST_F(ContinuationTest, saysThatAGraphIsNotAsItWas) {
  open(Continuing::AtLastUse);
  const std::map<CUgraphNode, KernelLaunch> before = launches();
  fake_.failCall("cuGraphAddDependencies", 3, CUDA_ERROR_INVALID_VALUE);
  fake_.failCall("cuGraphKernelNodeSetParams", 2, CUDA_ERROR_UNKNOWN); // the first gives the kernel the other address
  const Expected<Step *> failed = adopt();
  ASSERT_FALSE(failed);
  EXPECT_NE(failed.error().message.find("the graph of \"step\" is not as it was captured and must not be launched"),
            std::string::npos)
      << failed.error().message;
  const std::vector<Change> kept = changesSince(before);
  ASSERT_EQ(kept.size(), 1u);
  for (std::uint64_t pages = 1; pages <= roomyPages / 4; ++pages) {
    const Expected<void *> other = session_->allocate(pages * pageBytes, nullptr, "other");
    ASSERT_TRUE(other) << messageOf(other);
    ASSERT_TRUE(session_->free(*other, nullptr));
  }
  EXPECT_FALSE(isMapped(kept[0].after));
  const Expected<Step *> again = adopt();
  ASSERT_FALSE(again);
  EXPECT_NE(again.error().message.find("still has the address of an earlier plan in its graph"), std::string::npos)
      << again.error().message;
}

// The plan before is in force again, at its addresses.
TEST_F(ContinuationTest, failuresWhilePlanningAgainKeepThePlan) {
  open(Continuing::AtLastUse);
  const Expected<Step *> step = adopt();
  ASSERT_TRUE(step) << messageOf(step);
  const std::map<CUgraphNode, KernelLaunch> before = launches();
  fake_.failCall("cuGraphKernelNodeSetParams", 2, CUDA_ERROR_INVALID_VALUE); // the first gives the kernel its own back
  EXPECT_FALSE((*step)->replan());
  EXPECT_TRUE(changesSince(before).empty());
  replay(*step, 2);
  expectState(2);
}

/// A driver call and which of them fails while a step with other addresses is planned again.
class ContinuationFailureTest : public ContinuationTest,
                                public ::testing::WithParamInterface<std::tuple<const char *, int>> {};

// The step goes on as it did, at whatever addresses, or says that it has lost its memory.
TEST_P(ContinuationFailureTest, neverComputesNonsense) {
  const auto [call, nth] = GetParam();
  open(Continuing::AtEachUse);
  const Expected<Step *> step = adopt();
  ASSERT_TRUE(step) << messageOf(step);
  replay(*step, 1);
  fake_.failCall(call, nth, CUDA_ERROR_UNKNOWN);
  const Expected<Replanning> replanned = (*step)->replan();
  fake_.stopFailing(call);
  const Status replayed = (*step)->replay(nullptr);
  if (replayed) {
    expectState(2);
    return;
  }
  EXPECT_FALSE(replanned);
  EXPECT_EQ(replayed.error().status, PUMPGRAPH_INTERNAL) << replayed.error().message;
  session_->destroy(*step);
}

INSTANTIATE_TEST_SUITE_P(Replanning, ContinuationFailureTest,
                         ::testing::Combine(::testing::Values("cuMemMap", "cuMemUnmap", "cuMemSetAccess",
                                                              "cuGraphKernelNodeGetParams",
                                                              "cuGraphKernelNodeSetParams"),
                                            ::testing::Values(1, 2, 3, 4, 8, 16, 32, 64)));

// No kernel can have one buffer at two addresses.
TEST_F(ContinuationTest, refusesTwoAddressesInOneNode) {
  open(Continuing::AtTwoAddresses);
  const std::string before = fake_.print(graph_);
  const Expected<Step *> refused = adopt();
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().status, PUMPGRAPH_INTERNAL);
  EXPECT_NE(refused.error().message.find("has \"activation1\" at two addresses"), std::string::npos)
      << refused.error().message;
  EXPECT_EQ(fake_.print(graph_), before);
  continueBuffer(continued, Continuing::AtLastUse);
  const Expected<Step *> step = adopt();
  ASSERT_TRUE(step) << messageOf(step);
  replay(*step, 1);
  expectState(1);
}

// Without a rehearsal nobody knows which words are addresses, and a result has one address for its reader.
TEST_F(ContinuationTest, refusesWhatHasToStay) {
  open(Continuing::AtLastUse, {}, false);
  const Expected<Step *> unrehearsed = adopt();
  ASSERT_FALSE(unrehearsed);
  EXPECT_NE(unrehearsed.error().message.find("continues \"activation1\" at another address, which cannot be"),
            std::string::npos)
      << unrehearsed.error().message;
  close();

  open(Continuing::AtLastUse);
  continueBuffer("weight1", Continuing::AtLastUse);
  const Expected<Step *> live = adopt();
  ASSERT_FALSE(live);
  EXPECT_EQ(live.error().status, PUMPGRAPH_INTERNAL) << live.error().message;
}

// A kernel to which a buffer's page is also a number would go on with the old one.
TEST_F(ContinuationTest, refusesWhatIsKnownInAnotherForm) {
  open(Continuing::AtLastUse, {.numbersPages = true});
  const Expected<Step *> numbered = adopt();
  ASSERT_FALSE(numbered);
  EXPECT_NE(numbered.error().message.find("continues \"activation1\" at another address, which cannot be"),
            std::string::npos)
      << numbered.error().message;
  continueBuffer("", Continuing::AtLastUse);
  const Expected<Step *> step = adopt();
  ASSERT_TRUE(step) << messageOf(step);
  replay(*step, 2);
  expectState(2);
}

// The real compiler moves on what it likes, at budgets at which not every page finds a frame for the whole step.
TEST_F(ContinuationTest, computesTheSameUnderATightBudget) {
  std::uint64_t buffers = 0;
  for (const std::uint64_t pages : {10, 12, 16}) {
    SCOPED_TRACE(pages);
    record(pages, PUMPGRAPH_COMPILER_LIBRARY, {.layers = 6});
    const Expected<Step *> step = adopt();
    ASSERT_TRUE(step) << messageOf(step);
    buffers += nlohmann::json::parse((*step)->report()).at("continuations").get<std::uint64_t>();
    replay(*step, 2);
    expectState(2);
    const Expected<Validation> validation = (*step)->validate();
    ASSERT_TRUE(validation) << messageOf(validation);
    EXPECT_EQ(validation->differentBuffers, 0u) << validation->firstDifference;
    EXPECT_LE(fake_.deviceFrames(), pages + besideBudget);
    close();
  }
  EXPECT_GT(buffers, 0u);
}

// A driver may refuse other parameters for a kernel.
TEST_F(ContinuationTest, everyBufferKeepsItsAddressWhereAKernelTakesNoOther) {
  std::size_t kept = 0;
  for (const std::uint64_t pages : {10, 12, 16}) {
    SCOPED_TRACE(pages);
    record(pages, PUMPGRAPH_COMPILER_LIBRARY, {.layers = 6});
    fake_.failCall("cuGraphKernelNodeSetParams", 1, CUDA_ERROR_INVALID_VALUE);
    const Expected<Step *> step = adopt();
    ASSERT_TRUE(step) << messageOf(step);
    const auto report = nlohmann::json::parse((*step)->report());
    EXPECT_EQ(report.at("continuations"), 0u);
    kept += report.dump().find("every buffer keeps its address: ") != std::string::npos;
    replay(*step, 2);
    expectState(2);
    close();
  }
  EXPECT_GT(kept, 0u);
}

// Other steps may share the boundary: what is at the other address has no value there.
TEST_F(ContinuationTest, sharesABoundary) {
  open(Continuing::AtLastUse);
  const std::map<CUgraphNode, KernelLaunch> before = launches();
  const Expected<Step *> step = adopt();
  ASSERT_TRUE(step) << messageOf(step);
  const std::uint64_t other = changesSince(before).at(0).after;

  const CUgraph evaluation = fake_.createGraph();
  constexpr std::uint64_t bytes = 3 * pageBytes, weightBytes = 2 * pageBytes;
  ASSERT_TRUE(session_->captureBegin());
  void *out = *session_->allocate(bytes, nullptr, "evaluated");
  fake_.addKernel(evaluation, {}, forwardKernel(),
                  {bytesOf(program_->inputPointer()), bytesOf(program_->weightPointers()[0]), bytesOf(out),
                   bytesOf(bytes), bytesOf(weightBytes)});
  ASSERT_TRUE(session_->free(out, nullptr));
  ASSERT_TRUE(session_->captureEnd());
  const Expected<Step *> second =
      session_->adopt(evaluation, {.keepFirstPlan = true, .boundary = BoundaryChoice::Shared});
  ASSERT_TRUE(second) << messageOf(second);
  EXPECT_EQ(nlohmann::json::parse((*second)->report()).at("runtime").at("boundary"), "shared with step");
  EXPECT_TRUE(isMapped(other));
  replay(*step, 1);
  replay(*second, 1);
  replay(*step, 1);
  expectState(2);

  const Expected<Replanning> refused = (*step)->replan(); // into a boundary that is shared
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().status, PUMPGRAPH_INTERNAL);
  replay(*step, 1);
  expectState(3);
  continueBuffer("", Continuing::AtLastUse);
  const Expected<Replanning> replanned = (*step)->replan();
  ASSERT_TRUE(replanned) << messageOf(replanned);
  EXPECT_EQ(isMapped(other), replanned->keptFirst);
  replay(*step, 1);
  replay(*second, 1);
  expectState(4);
  session_->destroy(*step);
  EXPECT_FALSE(isMapped(other));
  replay(*second, 1);
  expectState(4);
  session_->destroy(*second);
  fake_.destroyGraph(evaluation);
}

} // namespace
