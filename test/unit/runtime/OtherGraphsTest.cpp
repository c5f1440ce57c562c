// SPDX-License-Identifier: Apache-2.0
// Graphs that the program captures for itself: what they work in stays theirs until they are gone.
#include "test/unit/runtime/TwoSteps.h"

#include <algorithm>

using namespace pumpgraph;
using namespace pumpgraph::runtime;
using namespace pumpgraph::runtime::test;

namespace {

constexpr std::uint64_t largeBytes = 2 * pageBytes, smallBytes = 4096;
/// Where temporaries of either step have frames that are free while no plan is in force.
constexpr std::uint64_t roomyPages = 36;

/// out[0] = in[0] + 1, in the first and the last word of either.
FakeKernel &nextKernel() {
  static FakeKernel kernel{"next", {8, 8, 8}, [](const FakeKernel::Arguments &arguments) {
                             auto *in = argument<char *>(arguments, 0), *out = argument<char *>(arguments, 1);
                             for (const Word at : {Word{0}, argument<Word>(arguments, 2) - sizeof(Word)})
                               *reinterpret_cast<Word *>(out + at) = *reinterpret_cast<Word *>(in + at) + 1;
                           }};
  return kernel;
}

class OtherGraphsTest : public TwoStepsTest {
protected:
  void SetUp() override {
    ASSERT_NO_FATAL_FAILURE(openPlain(budgetPages));
    input_ = allocate(largeBytes);
    set(input_, largeBytes, 1);
  }
  void openPlain(std::uint64_t pages, std::uint64_t hostPages = 0) {
    session_.reset();
    Expected<std::unique_ptr<Session>> made =
        openSession(fake_, pages, PUMPGRAPH_COMPILER_LIBRARY, hostPages * pageBytes);
    ASSERT_TRUE(made) << messageOf(made);
    session_ = std::move(*made);
    stream_ = fake_.createStream();
  }

  void *allocate(Word bytes, CUstream stream = nullptr) {
    const Expected<void *> made = session_->allocate(bytes, stream, "");
    EXPECT_TRUE(made) << messageOf(made);
    return made ? *made : nullptr;
  }
  void free(void *pointer, CUstream stream = nullptr) {
    const Status freed = session_->free(pointer, stream);
    EXPECT_TRUE(freed) << messageOf(freed);
  }
  static void set(void *pointer, Word bytes, Word value) {
    for (const Word at : {Word{0}, bytes - sizeof(Word)})
      *reinterpret_cast<Word *>(static_cast<char *>(pointer) + at) = value;
  }
  static bool holds(void *pointer, Word bytes, Word value) {
    return *static_cast<Word *>(pointer) == value &&
           *reinterpret_cast<Word *>(static_cast<char *>(pointer) + bytes - sizeof(Word)) == value;
  }

  void begin(CUstream stream) { ASSERT_TRUE(driver_.streamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL)); }
  CUgraph end(CUstream stream) {
    CUgraph graph = nullptr;
    EXPECT_TRUE(driver_.streamEndCapture(stream, &graph));
    return graph;
  }
  CUgraph captureOn(CUstream stream) {
    CUstreamCaptureStatus status{};
    CUgraph graph = nullptr;
    EXPECT_TRUE(driver_.streamGetCaptureInfo(stream, &status, nullptr, &graph, nullptr, nullptr, nullptr));
    return graph;
  }
  CUgraphExec instantiate(CUgraph graph) {
    CUgraphExec exec = nullptr;
    EXPECT_TRUE(driver_.graphInstantiate(&exec, graph, 0));
    return exec;
  }

  /// What a program's graph is: `steps` kernels in a row from `input`, each of which makes a temporary that the next
  /// one frees.
  struct Plain {
    CUgraph graph = nullptr;
    CUgraphExec exec = nullptr;
    void *output = nullptr;
    std::vector<void *> temporaries;
  };
  Plain capturePlain(void *input, Word bytes, int steps) {
    Plain made;
    begin(stream_);
    void *last = input;
    for (int step = 0; step < steps; ++step) {
      void *next = allocate(bytes, stream_);
      fake_.launch(stream_, nextKernel(), {bytesOf(last), bytesOf(next), bytesOf(bytes)});
      if (last != input) {
        made.temporaries.push_back(last);
        free(last, stream_);
      }
      last = next;
    }
    made.output = last;
    made.graph = end(stream_);
    made.exec = instantiate(made.graph);
    return made;
  }
  void destroyGraph(Plain &plain) { ASSERT_TRUE(driver_.graphDestroy(std::exchange(plain.graph, nullptr))); }
  void destroyExec(Plain &plain) { ASSERT_TRUE(driver_.graphExecDestroy(std::exchange(plain.exec, nullptr))); }
  void launch(const Plain &plain) { ASSERT_TRUE(driver_.graphLaunch(plain.exec, nullptr)); }

  static constexpr std::uint64_t budgetPages = 40;
  const Driver &driver_ = *fake_.table();
  CUstream stream_ = nullptr;
  void *input_ = nullptr;
};

// Nothing that comes later gets a graph's temporaries: replays damage nobody, and come out right, whatever is
// allocated, freed, given up or captured in between.
TEST_F(OtherGraphsTest, keepsWhatAGraphWorksIn) {
  for (const Word bytes : {largeBytes, smallBytes}) {
    set(input_, bytes, 1);
    Plain plain = capturePlain(input_, bytes, 4);
    destroyGraph(plain);
    for (const bool emptied : {false, true}) {
      if (emptied) {
        ASSERT_TRUE(session_->emptyCache());
      }
      std::vector<void *> others;
      for (int i = 0; i < 8; ++i) {
        others.push_back(allocate(bytes, i % 2 == 0 ? stream_ : nullptr));
        set(others.back(), bytes, 7);
      }
      Plain second = capturePlain(input_, bytes, 3);
      launch(second);
      launch(plain);
      EXPECT_TRUE(holds(second.output, bytes, 4));
      EXPECT_TRUE(holds(plain.output, bytes, 5));
      launch(second);
      EXPECT_TRUE(holds(plain.output, bytes, 5)) << "the other graph's replay changed it";
      for (void *other : others) {
        EXPECT_TRUE(holds(other, bytes, 7));
        free(other);
      }
    }
  }
}

// Within its capture it is an allocator like any other: freed memory serves the next allocation on the same stream.
TEST_F(OtherGraphsTest, usesMemoryAgainWithinTheCapture) {
  for (const Word bytes : {largeBytes, smallBytes}) {
    const CUstream other = fake_.createStream();
    begin(stream_);
    begin(other); // another capture
    void *first = allocate(bytes, stream_);
    free(first, stream_);
    EXPECT_NE(allocate(bytes, other), first);
    EXPECT_NE(allocate(bytes), first);
    EXPECT_EQ(allocate(bytes, stream_), first);
    EXPECT_NE(allocate(bytes, stream_), first);
    end(stream_);
    end(other);
    free(first, stream_);
    begin(stream_); // the next capture on the stream
    EXPECT_NE(allocate(bytes, stream_), first);
    end(stream_);
  }
  // Six temporaries in a row need two places.
  const std::vector<void *> temporaries = capturePlain(input_, largeBytes, 7).temporaries;
  EXPECT_LE(std::set<void *>(temporaries.begin(), temporaries.end()).size(), 2u);
}

// Memory from before the capture is not the graph's: an eager kernel may still be at work there when it is replayed on
// another stream.
TEST_F(OtherGraphsTest, startsWithFreshMemory) {
  for (const Word bytes : {largeBytes, smallBytes}) {
    void *cached = allocate(bytes, stream_);
    free(cached, stream_);
    begin(stream_);
    EXPECT_NE(allocate(bytes, stream_), cached);
    end(stream_);
    EXPECT_EQ(allocate(bytes, stream_), cached);
  }
}

// The last of the graph, its clones and what was instantiated from them gives the memory back.
TEST_F(OtherGraphsTest, givesMemoryBackWhenTheGraphIsGone) {
  Plain plain = capturePlain(input_, largeBytes, 3);
  CUgraph clone = nullptr;
  ASSERT_TRUE(driver_.graphClone(&clone, plain.graph));
  const CUgraphExec ofClone = instantiate(clone);
  void *temporary = plain.temporaries.front();
  destroyGraph(plain);
  free(plain.output, stream_);
  const auto isKept = [&] {
    EXPECT_TRUE(session_->emptyCache());
    return fake_.isMapped(temporary) && fake_.isMapped(plain.output);
  };
  EXPECT_TRUE(isKept());
  destroyExec(plain);
  EXPECT_TRUE(isKept());
  ASSERT_TRUE(driver_.graphDestroy(clone));
  EXPECT_TRUE(isKept());
  ASSERT_TRUE(driver_.graphExecDestroy(ofClone));
  EXPECT_FALSE(isKept());
  EXPECT_FALSE(fake_.isMapped(temporary) || fake_.isMapped(plain.output));
}

// What the program holds when its graph goes is an allocation like any other from then on.
TEST_F(OtherGraphsTest, leavesTheProgramWhatItHolds) {
  for (const Word bytes : {largeBytes, smallBytes}) {
    set(input_, bytes, 1);
    Plain plain = capturePlain(input_, bytes, 1);
    launch(plain);
    destroyGraph(plain);
    destroyExec(plain);
    ASSERT_TRUE(session_->emptyCache());
    EXPECT_TRUE(holds(plain.output, bytes, 2));
    free(plain.output, stream_);
    EXPECT_EQ(allocate(bytes, stream_), plain.output);
  }
}

// A capture that fails takes its graph with it.
TEST_F(OtherGraphsTest, forgetsACaptureThatFails) {
  begin(stream_);
  void *temporary = allocate(largeBytes, stream_);
  free(temporary, stream_);
  ASSERT_TRUE(driver_.graphDestroy(end(stream_)));
  ASSERT_TRUE(session_->emptyCache());
  EXPECT_FALSE(fake_.isMapped(temporary));
}

// Waiting for the device would end the capture. So cached memory is not given up for it, and what finds no frames lies
// in host memory.
TEST_F(OtherGraphsTest, doesNotWaitDuringACapture) {
  free(allocate(30 * pageBytes, stream_), stream_);
  const std::uint64_t waits = fake_.callsOf("cuCtxSynchronize");
  begin(stream_);
  set(allocate(20 * pageBytes, stream_), 20 * pageBytes, 3);
  end(stream_);
  EXPECT_EQ(fake_.callsOf("cuCtxSynchronize"), waits);
  EXPECT_EQ(session_->statistics().hostBackedBytes, 20 * pageBytes);
}

// Short of memory, the session counts what graphs have left that were destroyed a moment ago.
TEST_F(OtherGraphsTest, findsTheMemoryOfGraphsThatAreGone) {
  ASSERT_NO_FATAL_FAILURE(openPlain(16, 8 + 8)); // eight pages of host memory are the session's own
  begin(stream_);
  void *temporary = allocate(14 * pageBytes, stream_);
  free(temporary, stream_);
  const CUgraph graph = end(stream_);
  EXPECT_FALSE(session_->allocate(14 * pageBytes, nullptr, ""));
  ASSERT_TRUE(driver_.graphDestroy(graph));
  EXPECT_TRUE(session_->allocate(14 * pageBytes, nullptr, ""));
}

// What libraries allocated before a capture and the graph may have found is kept where the caller asks for it, and what
// is younger than every graph is not.
TEST_F(OtherGraphsTest, keepsWhatIsFreedForGraphs) {
  void *before = allocate(largeBytes, stream_);
  Plain first = capturePlain(input_, largeBytes, 1), second = capturePlain(input_, largeBytes, 1);
  void *after = allocate(largeBytes, stream_), *unasked = allocate(largeBytes, stream_);
  session_->keepFreedForGraphs(true);
  free(before, stream_);
  free(after, stream_);
  free(first.output, stream_);
  session_->keepFreedForGraphs(false);
  free(unasked, stream_);
  const auto kept = [&] {
    EXPECT_TRUE(session_->emptyCache());
    std::string text;
    for (void *pointer : {before, after, first.output, unasked})
      text += fake_.isMapped(pointer) ? '1' : '0';
    return text;
  };
  EXPECT_EQ(kept(), "1010");
  destroyGraph(first);
  destroyExec(first);
  EXPECT_EQ(kept(), "1010"); // the second may use either
  destroyGraph(second);
  destroyExec(second);
  EXPECT_EQ(kept(), "0000");
}

// A graph that cannot be followed gets no memory.
TEST_F(OtherGraphsTest, refusesWhatCannotBeFollowed) {
  for (const char *symbol : {"cuUserObjectCreate", "cuGraphRetainUserObject", "cuStreamGetCaptureInfo"}) {
    fake_.failCall(symbol, 1, CUDA_ERROR_NOT_SUPPORTED);
    begin(stream_);
    const Expected<void *> refused = session_->allocate(smallBytes, stream_, "");
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().status, PUMPGRAPH_DRIVER_ERROR);
    EXPECT_NE(refused.error().message.find(symbol), std::string::npos) << refused.error().message;
    EXPECT_TRUE(session_->allocate(smallBytes, stream_, ""));
    end(stream_);
  }
  // The legacy stream cannot say while another one is captured, and is not captured.
  fake_.failCall("cuStreamGetCaptureInfo", 1, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
  EXPECT_TRUE(session_->allocate(smallBytes, nullptr, ""));
}

// The session may end first.
TEST_F(OtherGraphsTest, survivesTheSession) {
  Plain plain = capturePlain(input_, largeBytes, 2);
  session_.reset();
  destroyGraph(plain);
  destroyExec(plain);
}

// Beside steps under a tight budget: a plan counts the graph's memory as gone, never moves it, and does not take the
// program's word for what is private there.
TEST_F(OtherGraphsTest, staysWhereItIsBesidePlans) {
  open(tightPages + 9);
  stream_ = fake_.createStream();
  input_ = allocate(pageBytes);
  set(input_, pageBytes, 1);
  Plain plain = capturePlain(input_, pageBytes, 3);
  ASSERT_TRUE(session_->declarePrivate(plain.output));
  ASSERT_TRUE(session_->emptyCache());
  const auto isOnDevice = [&] { return fake_.isOnDevice(plain.output) && fake_.isOnDevice(plain.temporaries.front()); };
  ASSERT_TRUE(isOnDevice());
  captureBoth();
  ASSERT_TRUE(training_->movesAnything());
  for (const char *steps : {"t", "e", "tt", "ete"}) {
    run(steps);
    launch(plain);
    EXPECT_TRUE(holds(plain.output, pageBytes, 4));
    EXPECT_TRUE(isOnDevice());
    expectAllValues(steps);
  }
}

// What takes the plans' frames while none is in force makes way for the next one; the graph's memory does not.
TEST_F(OtherGraphsTest, makesNoRoomForPlans) {
  open(roomyPages);
  stream_ = fake_.createStream();
  input_ = allocate(pageBytes);
  set(input_, pageBytes, 1);
  Plain plain = capturePlain(input_, pageBytes, 3);
  captureBoth();
  run("t");
  ASSERT_TRUE(session_->takeBack());
  std::vector<void *> eager{allocate(pageBytes)};
  while (fake_.isOnDevice(eager.back()))
    eager.push_back(allocate(pageBytes));
  for (const char *steps : {"t", "e", "te"}) {
    run(steps);
    launch(plain);
    EXPECT_TRUE(holds(plain.output, pageBytes, 4));
    EXPECT_TRUE(fake_.isOnDevice(plain.output) && fake_.isOnDevice(plain.temporaries.front()));
    expectAllValues(steps);
  }
  EXPECT_FALSE(fake_.isOnDevice(eager.front())) << "there was room for all";
}

// A graph that is captured while no plan is in force takes none of the plans' frames: it could not give them back, and
// no step could be replayed any more.
TEST_F(OtherGraphsTest, leavesPlansTheirFrames) {
  open(roomyPages);
  stream_ = fake_.createStream();
  input_ = allocate(pageBytes);
  set(input_, pageBytes, 1);
  captureBoth();
  run("t");
  ASSERT_TRUE(session_->takeBack());
  std::vector<Plain> plain{capturePlain(input_, pageBytes, 4)};
  while (fake_.isOnDevice(plain.back().output))
    plain.push_back(capturePlain(input_, pageBytes, 4));
  EXPECT_TRUE(fake_.isOnDevice(allocate(pageBytes))) << "there was no frame anyway";
  for (const char *steps : {"t", "e", "te"}) {
    run(steps);
    for (const Plain &one : plain) {
      launch(one);
      EXPECT_TRUE(holds(one.output, pageBytes, 5));
    }
    expectAllValues(steps);
  }
}

// A step that works on a graph's memory leaves it on the device, declared private or not.
TEST_F(OtherGraphsTest, isExclusiveInSteps) {
  open(tightPages + 9);
  stream_ = fake_.createStream();
  input_ = allocate(activationBytes);
  Plain plain = capturePlain(input_, activationBytes, 1);
  std::swap(history_, plain.output);
  for (Word i = 0; i < elements; ++i)
    *at(history_, i) = 0;
  ASSERT_TRUE(session_->declarePrivate(history_));
  captureBoth();
  const auto facts = [&](const std::string &name) {
    for (const Buffer &buffer : evaluation_->captured().buffers)
      if (buffer.address == reinterpret_cast<std::uintptr_t>(history_))
        return buffer.isPrivate;
    ADD_FAILURE() << name;
    return true;
  };
  EXPECT_FALSE(facts("history"));
  run("tet");
  expectAllValues("tet");
}

} // namespace
