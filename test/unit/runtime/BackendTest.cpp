// SPDX-License-Identifier: Apache-2.0
// A session that chooses: virtual memory until a step comes that cannot be seen into, then managed memory at the same
// addresses.
#include "test/unit/runtime/Program.h"

#include "runtime/memory/ManagedArena.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <map>
#include <set>
#include <string>

using namespace pumpgraph;
using namespace pumpgraph::runtime;
using namespace pumpgraph::runtime::test;

namespace {

constexpr std::uint64_t arenaPages = 192;
constexpr std::uint64_t tightPages = 19;
constexpr std::uint64_t amplePages = 128;

SessionOptions automaticOptions(std::uint64_t budgetPages) {
  SessionOptions options;
  options.budgetBytes = budgetPages * pageBytes;
  options.compilerLibrary = PUMPGRAPH_COMPILER_LIBRARY;
  options.backend = BackendChoice::Automatic;
  options.managedGuard.limitBytes = arenaPages * pageBytes;
  return options;
}

class BackendTest : public ::testing::Test {
protected:
  void open(SessionOptions options, const FakeDriver::Options &driver = {}) {
    session_.reset();
    fake_.reset();
    fake_.emplace(driver);
    options.cacheDirectory = folderWithLink(*fake_);
    Expected<std::unique_ptr<Session>> made = Session::create(options, fake_->table());
    ASSERT_TRUE(made) << messageOf(made);
    session_ = std::move(*made);
  }

  void prepare(const Program::Shape &shape = {}) {
    program_.emplace(*fake_, *session_, shape);
    program_->prepare();
  }

  /// The program's step; beside its kernels a node that nobody can see into, if it is not `seen`.
  CUgraph record(bool seen = false) {
    const CUgraph graph = program_->record();
    if (!seen)
      fake_->addPlain(graph, {}, CU_GRAPH_NODE_TYPE_MEM_ALLOC);
    return graph;
  }

  Step *adopt(CUgraph graph, const AdoptOptions &options = {}) {
    const Expected<Step *> step = session_->adopt(graph, options);
    EXPECT_TRUE(step) << messageOf(step);
    return step ? *step : nullptr;
  }

  /// A session with a step of either kind, the one that can be seen into in force.
  std::pair<Step *, Step *> openBoth() {
    open(automaticOptions(tightPages));
    prepare();
    replayed_ = 0;
    Step *unseen = adopt(record(), {.name = "unseen"});
    return {unseen, adopt(record(true), {.name = "seen"})};
  }

  nlohmann::json runtimeReport(Step *step) { return nlohmann::json::parse(step->report()).at("runtime"); }

  void expectNote(Step *step, const std::string &text) {
    const std::vector<std::string> notes = runtimeReport(step).at("notes");
    EXPECT_TRUE(std::any_of(notes.begin(), notes.end(), [&](const std::string &note) {
      return note.find(text) != std::string::npos;
    })) << runtimeReport(step).at("notes");
  }

  /// Replays it and compares with what it should compute.
  void expectRight(Step *step, int times) {
    replay(step, times);
    replayed_ += times;
    EXPECT_EQ(program_->weights(), program_->expectedWeights(replayed_));
  }

  std::optional<FakeDriver> fake_;
  std::unique_ptr<Session> session_;
  std::optional<Program> program_;
  int replayed_ = 0;
};

TEST_F(BackendTest, movesForAStepThatCannotBeSeenInto) {
  open(automaticOptions(tightPages));
  prepare();
  EXPECT_EQ(fake_->managedBytes(), 0U);
  const std::vector<void *> pointers = program_->weightPointers();
  Step *step = adopt(record());
  ASSERT_TRUE(step);
  EXPECT_EQ(fake_->managedBytes(), arenaPages * pageBytes);
  EXPECT_EQ(fake_->deviceFrames(), 1U) << "what stands in; all others are given back";
  EXPECT_EQ(program_->weightPointers(), pointers);
  EXPECT_EQ(program_->weights(), program_->expectedWeights(0));
  const nlohmann::json report = runtimeReport(step);
  EXPECT_EQ(report.at("backend"), "managed");
  EXPECT_EQ(
      report.at("backend_why").get<std::string>().find("managed memory, because virtual memory does not take node "),
      0U)
      << report.at("backend_why");
  EXPECT_GT(report.at("agent").at("operations"), 0);
  expectRight(step, 3);

  // What comes later is there too.
  void *later = *session_->allocate(3 * pageBytes, nullptr, "later");
  std::memset(later, 1, 3 * pageBytes);
  Step *second = adopt(record());
  ASSERT_TRUE(second);
  expectRight(second, 2);
  expectRight(step, 1);
}

// What a capture frees is the graph's all the same, and may have had a value before.
TEST_F(BackendTest, whatTheCaptureFreedGoesAlong) {
  for (const bool isSeen : {false, true}) {
    open(automaticOptions(tightPages));
    prepare();
    replayed_ = 0;
    if (isSeen) // the session is on managed memory then, and goes back
      expectRight(adopt(record()), 1);
    auto *early = static_cast<std::uint64_t *>(*session_->allocate(pageBytes, nullptr, "early"));
    *early = 5;
    ASSERT_TRUE(session_->captureBegin());
    const CUgraph graph = fake_->createGraph();
    const CUgraphNode node =
        fake_->addKernel(graph, {}, lossKernel(), {bytesOf(early), bytesOf(program_->lossPointer())});
    if (!isSeen)
      fake_->addPlain(graph, {node}, CU_GRAPH_NODE_TYPE_MEM_ALLOC);
    void *large = *session_->allocate(2 * tightPages * pageBytes, nullptr, "large"); // so that it does not fit
    if (!isSeen)
      fake_->addKernel(graph, {node}, lossKernel(), {bytesOf(large), bytesOf(early)});
    ASSERT_TRUE(session_->free(early, nullptr));
    ASSERT_TRUE(session_->free(large, nullptr));
    ASSERT_TRUE(session_->captureEnd());
    const std::uint64_t before = program_->loss();
    Step *step = adopt(graph);
    ASSERT_TRUE(step);
    EXPECT_EQ(runtimeReport(step).at("backend"), isSeen ? "virtual" : "managed");
    replay(step, 1);
    EXPECT_EQ(program_->loss(), before + 5) << isSeen;
  }
}

TEST_F(BackendTest, staysForAStepThatCanBeSeenInto) {
  open(automaticOptions(tightPages));
  prepare();
  Step *step = adopt(record(true));
  ASSERT_TRUE(step);
  EXPECT_EQ(runtimeReport(step).at("backend"), "virtual");
  EXPECT_EQ(runtimeReport(step).at("backend_why"), "virtual memory, because every node of the step can be seen into");
  expectRight(step, 2);
}

// Where nothing has to move, there is nothing to gain.
TEST_F(BackendTest, staysWhereEverythingFits) {
  open(automaticOptions(amplePages));
  prepare();
  Step *step = adopt(record());
  ASSERT_TRUE(step);
  EXPECT_EQ(runtimeReport(step).at("backend"), "as captured");
  EXPECT_EQ(fake_->callsOf("cuMemAllocManaged"), 0U);
  expectNote(step, "room for all of the step");
  expectRight(step, 2);
}

TEST_F(BackendTest, staysForAStepThatIsToBeLeftAsCaptured) {
  open(automaticOptions(tightPages));
  prepare();
  Step *step = adopt(record(), {.leaveAsCaptured = true});
  ASSERT_TRUE(step);
  EXPECT_EQ(fake_->callsOf("cuMemAllocManaged"), 0U);
  expectRight(step, 2);
}

// The rehearsal shows it already. The capture that counts then uses addresses again, as always on managed memory.
TEST_F(BackendTest, movesBeforeTheCaptureThatCounts) {
  std::vector<std::size_t> buffers;
  for (const bool rehearses : {false, true}) {
    open(automaticOptions(tightPages));
    prepare({.stream = fake_->createStream()});
    replayed_ = 0;
    if (rehearses) {
      const CUgraph rehearsal = record();
      ASSERT_TRUE(session_->rehearse(rehearsal));
      fake_->destroyGraph(rehearsal);
      EXPECT_EQ(fake_->managedBytes(), arenaPages * pageBytes);
    }
    Step *step = adopt(record());
    ASSERT_TRUE(step);
    EXPECT_EQ(runtimeReport(step).at("backend"), "managed");
    EXPECT_NE(runtimeReport(step).at("backend_why").get<std::string>().find("does not take "), std::string::npos);
    buffers.push_back(step->captured().buffers.size());
    expectRight(step, 3);
  }
  EXPECT_LT(buffers[1], buffers[0]);
}

// What is in its body cannot be made anew for other memory, so it has to be captured there.
TEST_F(BackendTest, movesForAConditionalNodeBeforeTheCaptureThatCountsOrNotAtAll) {
  for (const bool rehearses : {false, true}) {
    open(automaticOptions(tightPages));
    prepare({.stream = fake_->createStream()});
    replayed_ = 0;
    const auto capture = [&] {
      const CUgraph graph = program_->record();
      fake_->addPlain(graph, {}, CU_GRAPH_NODE_TYPE_CONDITIONAL);
      return graph;
    };
    if (rehearses) {
      const CUgraph rehearsal = capture();
      ASSERT_TRUE(session_->rehearse(rehearsal));
      fake_->destroyGraph(rehearsal);
    }
    Step *step = adopt(capture());
    ASSERT_TRUE(step);
    EXPECT_EQ(runtimeReport(step).at("backend"), rehearses ? "managed" : "as captured");
    if (!rehearses)
      expectNote(step, "if it were captured there, which a rehearsal decides");
    expectRight(step, 2);
  }
}

TEST_F(BackendTest, aRehearsalThatFitsMovesNothing) {
  open(automaticOptions(amplePages));
  prepare({.stream = fake_->createStream()});
  const CUgraph rehearsal = record();
  EXPECT_FALSE(session_->rehearsalMatches(rehearsal)) << "there is none yet";
  ASSERT_TRUE(session_->rehearse(rehearsal));
  EXPECT_EQ(fake_->callsOf("cuMemAllocManaged"), 0U);
  EXPECT_TRUE(*session_->rehearsalMatches(record()));
  EXPECT_FALSE(*session_->rehearsalMatches(fake_->createGraph())) << "it has no nodes";
}

// Each step has the memory that it needs. Whichever comes first, values go along.
TEST_F(BackendTest, stepsOfBothKindsTakeTurns) {
  for (const bool rehearses : {false, true})
    for (const bool unseenFirst : {false, true}) {
      open(automaticOptions(tightPages));
      prepare({.stream = fake_->createStream()});
      replayed_ = 0;
      auto *kept = static_cast<unsigned char *>(*session_->allocate(3 * pageBytes, nullptr, "kept"));
      std::memset(kept, 7, 3 * pageBytes);
      std::map<bool, Step *> steps; // by whether they can be seen into
      for (const bool isSeen : {!unseenFirst, unseenFirst}) {
        if (rehearses) {
          const CUgraph rehearsal = record(isSeen);
          ASSERT_TRUE(session_->rehearse(rehearsal));
          fake_->destroyGraph(rehearsal);
        }
        steps[isSeen] = adopt(record(isSeen), {.name = isSeen ? "seen" : "unseen"});
        ASSERT_TRUE(steps[isSeen]);
        EXPECT_EQ(runtimeReport(steps[isSeen]).at("backend"), isSeen ? "virtual" : "managed") << rehearses;
        expectRight(steps[isSeen], 2);
      }
      for (const bool isSeen : {true, false, false, true, true, false}) {
        expectRight(steps[isSeen], 1);
        EXPECT_EQ(fake_->managedBytes(), isSeen ? 0U : arenaPages * pageBytes);
        EXPECT_LE(fake_->deviceFrames(), isSeen ? tightPages + 1 : 1);
      }
      EXPECT_TRUE(std::all_of(kept, kept + 3 * pageBytes, [](unsigned char byte) { return byte == 7; }));
      EXPECT_GE(runtimeReport(steps[false]).at("exchanges"), 2);
      EXPECT_GT(runtimeReport(steps[false]).at("exchange_ms"), 0);
      EXPECT_GE(runtimeReport(steps[true]).at("exchanges"), 1);
      const nlohmann::json agent = runtimeReport(steps[false]).at("agent");
      EXPECT_EQ(agent.at("dropped").get<int>() + agent.at("released").get<int>() + agent.at("failed").get<int>(), 0);
    }
}

// What a caller has instantiated stays valid: the graphs are as they were.
TEST_F(BackendTest, turnsLeaveGraphsAlone) {
  open(automaticOptions(tightPages));
  prepare();
  const CUgraph unseenGraph = record();
  Step *unseen = adopt(unseenGraph);
  ASSERT_TRUE(unseen);
  const CUgraph seenGraph = record(true);
  Step *seen = adopt(seenGraph);
  ASSERT_TRUE(seen);
  const std::string before = fake_->print(seenGraph) + fake_->print(unseenGraph);
  for (Step *step : {unseen, seen, unseen})
    expectRight(step, 1);
  EXPECT_EQ(fake_->print(seenGraph) + fake_->print(unseenGraph), before);
}

TEST_F(BackendTest, eitherStepCanGoWhileTheOtherHasTheMemory) {
  for (const bool dropsSeen : {true, false}) {
    const auto [unseen, seen] = openBoth();
    ASSERT_TRUE(unseen && seen);
    Step *stays = dropsSeen ? unseen : seen;
    expectRight(stays, 1);
    session_->destroy(dropsSeen ? seen : unseen);
    expectRight(stays, 2);
    Step *next = adopt(record(dropsSeen)); // of the other kind
    ASSERT_TRUE(next);
    expectRight(next, 1);
    expectRight(stays, 1);
  }
}

TEST_F(BackendTest, validatesStepsOfBothKinds) {
  const auto [unseen, seen] = openBoth();
  ASSERT_TRUE(unseen && seen);
  for (Step *step : {unseen, seen}) {
    const Expected<Validation> validation = step->validate();
    ASSERT_TRUE(validation) << messageOf(validation);
    EXPECT_EQ(validation->differentBuffers, 0U) << validation->firstDifference;
    EXPECT_GT(validation->comparedBuffers, 4U);
  }
  expectRight(unseen, 1);
}

// The caller may have instantiated it, and its copies go by what they were captured on.
TEST_F(BackendTest, staysBesideAStepWithCopiesThatWasLeftAsCaptured) {
  for (const bool copies : {false, true}) {
    open(automaticOptions(tightPages));
    prepare();
    replayed_ = 0;
    const CUgraph first = program_->record();
    if (copies)
      fake_->addCopy(first, {}, program_->lossPointer(), program_->inputPointer(), 8);
    Step *captured = adopt(first, {.name = "first", .leaveAsCaptured = true});
    ASSERT_TRUE(captured);
    if (!copies)
      expectRight(captured, 1);
    Step *step = adopt(record());
    ASSERT_TRUE(step);
    EXPECT_EQ(runtimeReport(step).at("backend"), copies ? "as captured" : "managed");
    if (copies) {
      expectNote(step, "the session has \"first\", which was left as captured, with nodes that go by the memory");
    } else {
      expectRight(step, 2);
      expectRight(captured, 1);
    }
  }
}

// That comes too late for a step that is planned for other memory than there is.
TEST_F(BackendTest, refusesReplaysThatWouldTakeMemoryFromSuchAStep) {
  open(automaticOptions(tightPages));
  prepare();
  Step *seen = adopt(record(true), {.name = "seen"});
  ASSERT_TRUE(seen);
  Step *unseen = adopt(record(), {.name = "unseen"});
  ASSERT_TRUE(unseen);
  expectRight(unseen, 1);
  ASSERT_TRUE(session_->captureBegin());
  const CUgraph graph = fake_->createGraph();
  fake_->addCopy(graph, {}, program_->lossPointer(), program_->inputPointer(), 8);
  ASSERT_TRUE(session_->captureEnd());
  ASSERT_TRUE(adopt(graph, {.name = "copying", .leaveAsCaptured = true}));
  expectRight(unseen, 1);
  const Status refused = seen->replay(nullptr);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().status, PUMPGRAPH_INVALID_ARGUMENT);
  EXPECT_NE(refused.error().message.find("\"seen\" is planned for virtual memory, but the session has \"copying\""),
            std::string::npos)
      << refused.error().message;
  expectRight(unseen, 1);
}

// The rehearsal does not know that the step is to be left as it is.
TEST_F(BackendTest, returnsForAStepThatIsToBeLeftAsCaptured) {
  for (const bool isBeside : {false, true}) {
    open(automaticOptions(tightPages));
    prepare({.stream = fake_->createStream()});
    replayed_ = 0;
    Step *seen = isBeside ? adopt(record(true), {.name = "seen"}) : nullptr;
    const CUgraph rehearsal = record();
    ASSERT_TRUE(session_->rehearse(rehearsal));
    fake_->destroyGraph(rehearsal);
    EXPECT_GT(fake_->managedBytes(), 0U);
    const CUgraph graph = program_->record();
    if (!isBeside)
      fake_->addPlain(graph, {}, CU_GRAPH_NODE_TYPE_MEM_ALLOC);
    const Expected<Step *> step = session_->adopt(graph, {.leaveAsCaptured = true});
    EXPECT_EQ(fake_->managedBytes(), 0U) << messageOf(step);
    expectRight(isBeside ? seen : *step, 2);
  }
}

TEST_F(BackendTest, nothingIsExchangedWhileSomebodyLooks) {
  const auto [unseen, seen] = openBoth();
  ASSERT_TRUE(unseen && seen);
  for (Step *step : {unseen, seen}) {
    expectRight(step, 1);
    Step *other = step == unseen ? seen : unseen;
    ASSERT_TRUE(session_->map(program_->weightPointers()[0]));
    const Status refused = other->replay(nullptr);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().status, PUMPGRAPH_INVALID_ARGUMENT);
    EXPECT_NE(refused.error().message.find("while \"weight0\" is mapped"), std::string::npos)
        << refused.error().message;
    ASSERT_TRUE(session_->unmap(program_->weightPointers()[0]));
  }
  expectRight(unseen, 1);
}

// The budget may have frames that the device has not.
TEST_F(BackendTest, returnsToManagedMemoryWhereTheDeviceHasTooLittle) {
  const auto [unseen, seen] = openBoth();
  ASSERT_TRUE(unseen && seen);
  expectRight(unseen, 1);
  fake_->failCall("cuMemCreate", 6, CUDA_ERROR_OUT_OF_MEMORY); // frames that the budget has, and the device has not
  fake_->failCall("cuMemMap", 9, CUDA_ERROR_OUT_OF_MEMORY);
  const Status replayed = seen->replay(nullptr);
  if (replayed) {
    ++replayed_;
  } else {
    EXPECT_GT(fake_->managedBytes(), 0U) << replayed.error().message;
  }
  expectRight(unseen, 1);
  expectRight(seen, 1);
}

// On an error the plan that was in force goes on.
TEST_F(BackendTest, aFailedExchangeLeavesThePlanInForce) {
  const auto [unseen, seen] = openBoth();
  ASSERT_TRUE(unseen && seen);
  expectRight(seen, 1);
  const int exchanges = runtimeReport(seen).at("exchanges");
  fake_->failCall("cuMemAllocManaged", 1, CUDA_ERROR_OUT_OF_MEMORY);
  const Status refused = unseen->putInForce();
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("cuMemAllocManaged"), std::string::npos) << refused.error().message;
  expectRight(seen, 1);
  EXPECT_EQ(runtimeReport(seen).at("exchanges"), exchanges);
  expectRight(unseen, 1);
  // The memory could be had, the plan could not be put in force.
  fake_->failCall("cuMemcpyHtoDAsync_v2", 1, CUDA_ERROR_UNKNOWN);
  if (const Status failed = seen->putInForce(); !failed) {
    EXPECT_GT(fake_->managedBytes(), 0U) << failed.error().message;
  }
  expectRight(unseen, 1);
}

TEST_F(BackendTest, whatOnlyTheCacheHasIsNotInTheWay) {
  open(automaticOptions(tightPages));
  prepare();
  void *large = *session_->allocate(arenaPages * pageBytes, nullptr, "large");
  ASSERT_TRUE(session_->free(large, nullptr));
  Step *step = adopt(record());
  ASSERT_TRUE(step);
  EXPECT_EQ(runtimeReport(step).at("backend"), "managed");
  expectRight(step, 1);
}

// Else the step that needs managed memory could not have it back.
TEST_F(BackendTest, aStepThatFitsGoesWhereTheOtherIs) {
  open(automaticOptions(tightPages));
  prepare();
  Step *unseen = adopt(record());
  ASSERT_TRUE(unseen);
  ASSERT_TRUE(session_->captureBegin());
  const CUgraph graph = fake_->createGraph();
  fake_->addKernel(graph, {}, lossKernel(), {bytesOf(program_->inputPointer()), bytesOf(program_->lossPointer())});
  fake_->addPlain(graph, {}, CU_GRAPH_NODE_TYPE_MEM_ALLOC);
  ASSERT_TRUE(session_->captureEnd());
  ASSERT_TRUE(session_->takeBack());
  Step *small = adopt(graph);
  ASSERT_TRUE(small);
  EXPECT_EQ(runtimeReport(small).at("backend"), "managed");
  replay(small, 1);
  expectRight(unseen, 1);
}

// Either a later replay is right, or the steps say that they have lost their memory.
TEST_F(BackendTest, exchangesThatFailAreSaid) {
  // Whoever fails once fails in a place from which there is a way back, but for these: of the way to managed memory,
  // what comes after the arena (of mapping, where the plan has hosted pages); of the way to frames, their addresses.
  const std::set<std::pair<bool, std::string>> mayBeLost = {
      {true, "cuMemMap"}, {true, "cuMemUnmap"}, {true, "cuMemPrefetchAsync"}, {false, "cuMemAddressReserve"}};
  for (const bool toManaged : {true, false})
    for (const char *call : {"cuMemcpyDtoHAsync_v2", "cuMemcpyHtoDAsync_v2", "cuMemAllocManaged", "cuMemAddressFree",
                             "cuMemAddressReserve", "cuMemMap", "cuMemUnmap", "cuMemPrefetchAsync", "cuMemCreate"}) {
      const auto [unseen, seen] = openBoth();
      ASSERT_TRUE(unseen && seen);
      Step *before = toManaged ? seen : unseen, *next = toManaged ? unseen : seen;
      expectRight(before, 1);
      const bool isCalledOnce = std::string(call).find("Address") != std::string::npos || call[6] == 'A';
      fake_->failCall(call, isCalledOnce ? 1 : 2, CUDA_ERROR_UNKNOWN);
      if (const Status failed = next->replay(nullptr); !failed) {
        EXPECT_NE(failed.error().message, "");
        if (const Status again = next->replay(nullptr); !again) {
          EXPECT_NE(again.error().message.find("lost its memory"), std::string::npos) << call << again.error().message;
          EXPECT_FALSE(before->replay(nullptr)) << call;
          EXPECT_TRUE(mayBeLost.contains({toManaged, call})) << toManaged << call;
          continue;
        }
      }
      ++replayed_;
      fake_->stopFailing(call); // where it was not called so often
      expectRight(next, 1);
    }
}

TEST_F(BackendTest, staysWhereManagedMemoryMayNotHaveSoMuch) {
  SessionOptions options = automaticOptions(tightPages);
  options.managedBytes = ManagedArena::placeUnit;
  open(options);
  prepare();
  Step *step = adopt(record());
  ASSERT_TRUE(step);
  EXPECT_EQ(runtimeReport(step).at("backend"), "as captured");
  expectNote(step, "do not fit into 32.0 MiB of addresses");
  expectRight(step, 2);
}

TEST_F(BackendTest, staysWhereTheDeviceHasNoManagedMemoryOrNoHint) {
  for (const bool hint : {false, true}) {
    open(automaticOptions(tightPages), {.grantsHint = hint, .supportsManagedMemory = !hint});
    prepare();
    replayed_ = 0;
    Step *step = adopt(record());
    ASSERT_TRUE(step);
    EXPECT_EQ(runtimeReport(step).at("backend"), "as captured");
    expectNote(step, "the session has no addresses that it could have");
    expectRight(step, 2);
  }
}

// Whether the driver puts it there nobody knows before it has.
TEST_F(BackendTest, isAsBeforeWhereManagedMemoryComesElsewhere) {
  open(automaticOptions(tightPages), {.managedPlace = 0x1d35'0000'0000});
  prepare();
  Step *step = adopt(record());
  ASSERT_TRUE(step);
  EXPECT_EQ(fake_->managedBytes(), 0U);
  EXPECT_EQ(runtimeReport(step).at("backend"), "as captured");
  EXPECT_EQ(runtimeReport(step).at("backend_why"), "virtual memory, because the device supports it");
  expectNote(step, "the driver puts managed memory at 0x1d3500000000, not at 0x2d3500000000");
  EXPECT_EQ(program_->weights(), program_->expectedWeights(0));
  expectRight(step, 2);
}

// Nobody knows then what is at the addresses that the program has.
TEST_F(BackendTest, saysThatBuffersAreLostWithTheirAddresses) {
  open(automaticOptions(tightPages), {.managedPlace = 0x1d35'0000'0000});
  prepare();
  const CUgraph graph = record();
  fake_->failCall("cuMemAddressReserve", 1, CUDA_ERROR_INVALID_VALUE);
  const Expected<Step *> step = session_->adopt(graph, {});
  ASSERT_FALSE(step);
  EXPECT_NE(step.error().message.find("384.0 MiB of device addresses at 0x2d3500000000 are no longer to be had"),
            std::string::npos)
      << step.error().message;
  const Expected<Step *> again = session_->adopt(graph, {});
  ASSERT_FALSE(again);
  EXPECT_NE(again.error().message.find("lost their memory"), std::string::npos) << again.error().message;
}

// A driver that fails on the way leaves values where they were, or says what became of them.
TEST_F(BackendTest, keepsValuesWhenTheDriverFails) {
  for (const char *call :
       {"cuMemcpyDtoHAsync_v2", "cuStreamSynchronize", "cuMemUnmap", "cuMemAddressFree", "cuMemAllocManaged"})
    for (const int nth : {1, 2, 4}) {
      open(automaticOptions(tightPages));
      prepare();
      const CUgraph graph = record();
      fake_->failCall(call, nth, CUDA_ERROR_UNKNOWN);
      const Expected<Step *> step = session_->adopt(graph, {});
      if (step) {
        replayed_ = 0;
        expectRight(*step, 2);
        continue;
      }
      EXPECT_NE(step.error().message.find(call), std::string::npos) << step.error().message;
      EXPECT_EQ(program_->weights(), program_->expectedWeights(0)) << call << nth << step.error().message;
    }
}

TEST_F(BackendTest, theBudgetOfTheProcessIsThatOfBuffersFromThenOn) {
  SessionOptions options = automaticOptions(tightPages + 40);
  options.processMemory = [&]() -> Expected<std::uint64_t> { return (fake_->deviceFrames() + 8) * pageBytes; };
  open(options);
  prepare();
  Step *step = adopt(record());
  ASSERT_TRUE(step);
  EXPECT_EQ(runtimeReport(step).at("backend"), "managed");
  expectNote(step, "the budget is that of buffers alone, not of the process, which left them 38.0 MiB");
  EXPECT_EQ(session_->statistics().processBytes, 0U);
  expectRight(step, 2);
}

} // namespace
