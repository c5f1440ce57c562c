// SPDX-License-Identifier: Apache-2.0
// Kernels run one by one with poisoned operands: what that shows, and what it is never allowed to change.
#include "test/unit/runtime/Program.h"

#include "runtime/capture/AccessTables.h"
#include "test/unit/runtime/TestTable.h"

#include <gtest/gtest.h>

#include <fstream>

using namespace pumpgraph;
using namespace pumpgraph::runtime;
using namespace pumpgraph::runtime::test;

namespace {

constexpr std::uint64_t bytes = 2 * pageBytes;
constexpr std::uint64_t count = 64; ///< floats that kernels look at

float *floats(const FakeKernel::Arguments &arguments, std::size_t index) {
  return argument<float *>(arguments, index);
}

/// out[i] = in[i] + 1, all of `out`
FakeKernel &overwrite() {
  static FakeKernel kernel{"overwrite", {8, 8}, [](const FakeKernel::Arguments &arguments) {
                             for (std::uint64_t i = 0; i < bytes / sizeof(float); ++i)
                               floats(arguments, 1)[i] = floats(arguments, 0)[i % count] + 1;
                           }};
  return kernel;
}
/// sum[i] += in[i]
FakeKernel &accumulate() {
  static FakeKernel kernel{"accumulate", {8, 8}, [](const FakeKernel::Arguments &arguments) {
                             for (std::uint64_t i = 0; i < count; ++i)
                               floats(arguments, 1)[i] += floats(arguments, 0)[i];
                           }};
  return kernel;
}
/// out[i] = in[i]
FakeKernel &copyWords() {
  static FakeKernel kernel{"copy_words", {8, 8}, [](const FakeKernel::Arguments &arguments) {
                             std::memcpy(floats(arguments, 1), floats(arguments, 0), count * sizeof(float));
                           }};
  return kernel;
}
/// Its name says that the first parameter is only read. It is not.
FakeKernel &liar() {
  static FakeKernel kernel{"_Z4liarPKfPf", {8, 8}, [](const FakeKernel::Arguments &arguments) {
                             for (std::uint64_t i = 0; i < count; ++i) {
                               floats(arguments, 1)[i] = floats(arguments, 0)[i];
                               floats(arguments, 0)[i] = 2;
                             }
                           }};
  return kernel;
}
/// out[i] = in[places[i]]: a place outside `in` would end the test
FakeKernel &gather() {
  static FakeKernel kernel{"gather", {8, 8, 8}, [](const FakeKernel::Arguments &arguments) {
                             const auto *places = argument<std::uint32_t *>(arguments, 0);
                             for (std::uint64_t i = 0; i < count; ++i) {
                               ASSERT_LT(places[i], count);
                               floats(arguments, 2)[i] = floats(arguments, 1)[places[i]];
                             }
                           }};
  return kernel;
}
/// Never the same twice.
FakeKernel &noisy() {
  static FakeKernel kernel{"noisy", {8, 8}, [](const FakeKernel::Arguments &arguments) {
                             static float noise = 1;
                             for (std::uint64_t i = 0; i < count; ++i)
                               floats(arguments, 1)[i] = floats(arguments, 0)[i] + (noise += 1);
                           }};
  return kernel;
}
/// Reads its input only while the switch is on.
FakeKernel &fickle() {
  static FakeKernel kernel{"fickle", {8, 8, 8}, [](const FakeKernel::Arguments &arguments) {
                             for (std::uint64_t i = 0; i < count; ++i)
                               floats(arguments, 2)[i] = *floats(arguments, 0) > 1 ? floats(arguments, 1)[i] : 7;
                           }};
  return kernel;
}

/// out[i] = in[i] times the first of the state; state[i] += in[i]
FakeKernel &scaled() {
  static FakeKernel kernel{"scaled", {8, 8, 8}, [](const FakeKernel::Arguments &arguments) {
                             const float scale = *floats(arguments, 1);
                             for (std::uint64_t i = 0; i < count; ++i) {
                               floats(arguments, 2)[i] = floats(arguments, 0)[i] * scale;
                               floats(arguments, 1)[i] += floats(arguments, 0)[i];
                             }
                           }};
  return kernel;
}
/// out[i] = in[i]; state[i] += in[i]
FakeKernel &counting() {
  static FakeKernel kernel{"counting", {8, 8, 8}, [](const FakeKernel::Arguments &arguments) {
                             for (std::uint64_t i = 0; i < count; ++i) {
                               floats(arguments, 2)[i] = floats(arguments, 0)[i];
                               floats(arguments, 1)[i] += floats(arguments, 0)[i];
                             }
                           }};
  return kernel;
}

class ObserveTest : public ::testing::Test {
protected:
  void SetUp() override {
    Expected<std::unique_ptr<Session>> made = openSession(fake_, 40, PUMPGRAPH_COMPILER_LIBRARY);
    ASSERT_TRUE(made) << messageOf(made);
    session_ = std::move(*made);
    in_ = allocate("in");
    out_ = allocate("out");
    fill(in_, 1.5F);
    fill(out_, 3.25F);
  }

  float *allocate(const std::string &name) {
    const Expected<void *> made = session_->allocate(bytes, nullptr, name);
    EXPECT_TRUE(made) << messageOf(made);
    return made ? static_cast<float *>(*made) : nullptr;
  }
  static void fill(float *values, float first) {
    for (std::uint64_t i = 0; i < bytes / sizeof(float); ++i)
      values[i] = first + static_cast<float>(i % count) / 16;
  }

  void kernel(FakeKernel &what, const std::vector<std::vector<char>> &arguments) {
    last_ = last_ ? fake_.addKernel(graph_, {last_}, what, arguments) : fake_.addKernel(graph_, {}, what, arguments);
  }

  void capture(const std::function<void()> &record, bool leaveAsCaptured = false) {
    graph_ = fake_.createGraph();
    last_ = nullptr;
    ASSERT_TRUE(session_->captureBegin());
    record();
    ASSERT_TRUE(session_->captureEnd());
    const Expected<Step *> step = session_->adopt(graph_, {.leaveAsCaptured = leaveAsCaptured, .keepFirstPlan = true});
    ASSERT_TRUE(step) << messageOf(step);
    step_ = *step;
  }

  /// A captured stream, one kernel, which is declared pure.
  void capturePure(FakeKernel &what, const std::vector<std::vector<char>> &arguments, const void *aside = nullptr) {
    const CUstream stream = fake_.createStream();
    ASSERT_TRUE(session_->captureBegin());
    ASSERT_TRUE(fake_.table()->streamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    fake_.launch(stream, what, arguments);
    ASSERT_TRUE(session_->declareOperation(stream, OperationKind::Pure));
    if (aside) {
      ASSERT_TRUE(session_->declareAside(stream, {reinterpret_cast<CUdeviceptr>(aside)}));
    }
    ASSERT_TRUE(fake_.table()->streamEndCapture(stream, &graph_));
    ASSERT_TRUE(session_->captureEnd());
    const Expected<Step *> step = session_->adopt(graph_, {.keepFirstPlan = true});
    ASSERT_TRUE(step) << messageOf(step);
    step_ = *step;
  }

  void observe(const std::vector<const void *> &values = {}) {
    std::vector<CUdeviceptr> addresses;
    for (const void *value : values)
      addresses.push_back(reinterpret_cast<CUdeviceptr>(value));
    Expected<Observation> observed = step_->observe(addresses);
    ASSERT_TRUE(observed) << messageOf(observed);
    found_ = std::move(*observed);
  }

  /// What the last call saw of a node's parameter.
  Sighting seen(NodeIndex node, std::uint32_t parameter) const {
    for (const ObservedOperand &operand : found_.operands)
      for (const OperandWord &word : operand.words)
        if (operand.node == node && word.parameter == parameter)
          return operand.sightings.back();
    ADD_FAILURE() << "nothing was seen of parameter " << parameter << " of node " << node;
    return {};
  }

  std::string saved() const {
    const std::string path = ::testing::TempDir() + "/observe-test.mlir";
    EXPECT_TRUE(step_->save(path));
    std::ifstream file(path);
    return {std::istreambuf_iterator<char>(file), {}};
  }

  FakeDriver fake_;
  std::unique_ptr<Session> session_;
  float *in_ = nullptr;
  float *out_ = nullptr;
  CUgraph graph_ = nullptr;
  CUgraphNode last_ = nullptr;
  Step *step_ = nullptr;
  Observation found_;
};

constexpr Sighting read{Answer::Yes, Answer::No, Answer::Unknown};

TEST_F(ObserveTest, seesReadsWritesAndOverwrites) {
  capture([&] {
    float *temporary = allocate("temporary");
    kernel(overwrite(), {bytesOf(in_), bytesOf(temporary)});
    kernel(accumulate(), {bytesOf(temporary), bytesOf(out_)});
    EXPECT_TRUE(session_->free(temporary, nullptr));
  });
  observe();
  EXPECT_EQ(found_.kernels, 2u);
  EXPECT_EQ(seen(0, 0), read);
  EXPECT_EQ(seen(0, 1), (Sighting{Answer::No, Answer::Yes, Answer::Yes}));
  EXPECT_EQ(seen(1, 0), read);
  EXPECT_EQ(seen(1, 1), (Sighting{Answer::Yes, Answer::Yes, Answer::No}));
  EXPECT_TRUE(found_.disagreements.empty());
}

// With a temporary that only a part is written of, nothing is overwritten in full.
TEST_F(ObserveTest, aPartIsNotTheWhole) {
  capture([&] {
    float *temporary = allocate("temporary");
    kernel(liar(), {bytesOf(in_), bytesOf(temporary)});
    EXPECT_TRUE(session_->free(temporary, nullptr));
  });
  observe();
  EXPECT_EQ(seen(0, 1), (Sighting{Answer::No, Answer::Yes, Answer::No}));
}

TEST_F(ObserveTest, leavesContentsMemoryAndPlanAsTheyWere) {
  capture([&] {
    float *temporary = allocate("temporary");
    kernel(overwrite(), {bytesOf(in_), bytesOf(temporary)});
    kernel(accumulate(), {bytesOf(temporary), bytesOf(out_)});
    EXPECT_TRUE(session_->free(temporary, nullptr));
  });
  const std::vector<float> in(in_, in_ + bytes / sizeof(float)), out(out_, out_ + bytes / sizeof(float));
  const std::string graph = fake_.print(graph_);
  const std::uint64_t frames = fake_.deviceFrames();
  observe();
  EXPECT_EQ(std::vector<float>(in_, in_ + bytes / sizeof(float)), in);
  EXPECT_EQ(std::vector<float>(out_, out_ + bytes / sizeof(float)), out);
  EXPECT_EQ(fake_.print(graph_), graph);
  EXPECT_LE(fake_.deviceFrames(), frames + 40);
  ASSERT_TRUE(step_->replay(nullptr));
  EXPECT_EQ(out_[3], out[3] + in[3] + 1);
}

TEST_F(ObserveTest, aFailureLeavesContents) {
  capture([&] { kernel(accumulate(), {bytesOf(in_), bytesOf(out_)}); });
  const float before = out_[0];
  for (const char *call : {"cuModuleLoadData", "cuGraphLaunch", "cuLaunchKernel", "cuGraphInstantiateWithFlags"}) {
    fake_.failCall(call, 1, CUDA_ERROR_UNKNOWN);
    const Expected<Observation> observed = step_->observe();
    fake_.stopFailing(call);
    EXPECT_FALSE(observed) << call;
    EXPECT_EQ(out_[0], before) << call;
  }
  observe();
  EXPECT_EQ(found_.runs, 1u);
  ASSERT_TRUE(step_->replay(nullptr));
  EXPECT_EQ(out_[0], before + in_[0]);
}

// An index must not be changed; what it leads to may be.
TEST_F(ObserveTest, indicesAreLeftAlone) {
  auto *places = reinterpret_cast<std::uint32_t *>(allocate("places"));
  for (std::uint32_t i = 0; i < count; ++i)
    places[i] = (i * 7 + 1) % count;
  capture([&] { kernel(gather(), {bytesOf(places), bytesOf(in_), bytesOf(out_)}); });
  observe();
  EXPECT_EQ(seen(0, 0), Sighting());
  EXPECT_EQ(seen(0, 1), read);
  EXPECT_EQ(seen(0, 2).mode(), modeWrite);
  EXPECT_EQ(found_.covered(), 0u); // after one run
  observe();
  EXPECT_EQ(found_.covered(), 2u);
}

// What the caller knows to be values is changed, whatever it looks like.
TEST_F(ObserveTest, declaredValuesArePoisoned) {
  auto *values = reinterpret_cast<std::uint32_t *>(allocate("values"));
  std::fill_n(values, bytes / sizeof *values, 5u);
  capture([&] { kernel(copyWords(), {bytesOf(values), bytesOf(out_)}); });
  observe();
  EXPECT_EQ(seen(0, 0).read, Answer::Unknown);
  observe({values});
  EXPECT_EQ(seen(0, 0).read, Answer::Yes);
}

TEST_F(ObserveTest, noiseMakesReadsUnknown) {
  capture([&] { kernel(noisy(), {bytesOf(in_), bytesOf(out_)}); });
  observe();
  EXPECT_EQ(seen(0, 0).read, Answer::Unknown);
  EXPECT_EQ(seen(0, 1).written, Answer::Yes);
  EXPECT_EQ(seen(0, 1).overwritten, Answer::Unknown);
}

// A slot that runs with different inputs differ in is not believed; what was believed before is taken back.
TEST_F(ObserveTest, runsHaveToAgree) {
  float *on = allocate("on");
  fill(on, 1.75F);
  capture([&] { kernel(fickle(), {bytesOf(on), bytesOf(in_), bytesOf(out_)}); });
  observe();
  EXPECT_NE(saved().find("%in[0, 4194304] assumed"), std::string::npos) << saved();
  observe();
  EXPECT_EQ(found_.differing(), 0u);
  EXPECT_NE(saved().find("read %in[0, 4194304] observed"), std::string::npos) << saved();
  fill(on, 0.5F);
  observe();
  EXPECT_EQ(found_.differing(), 2u); // neither the input nor, as far as poison shows, the switch is read any more
  EXPECT_EQ(saved().find("%in[0, 4194304] observed"), std::string::npos) << saved();
  EXPECT_NE(step_->report().find("\"differing\": 2"), std::string::npos) << step_->report();
}

// The type says `const`; the plan believes it, and the report says what was seen.
TEST_F(ObserveTest, aKernelThatLiesIsReported) {
  capture([&] { kernel(liar(), {bytesOf(in_), bytesOf(out_)}); });
  observe();
  ASSERT_EQ(found_.disagreements.size(), 1u);
  const ObservedDisagreement &one = *found_.disagreements.begin();
  EXPECT_EQ(one.evidence, Evidence::Declared);
  EXPECT_NE(one.message.find("node 0 \"_Z4liarPKfPf\", parameter 0 byte 0: \"in\"[0, 4194304] is written, though it is "
                             "only said to be read"),
            std::string::npos)
      << one.message;
}

TEST_F(ObserveTest, whatIsPureIsNotReported) {
  capturePure(copyWords(), {bytesOf(in_), bytesOf(out_)});
  observe();
  EXPECT_TRUE(found_.disagreements.empty()) << found_.disagreements.begin()->message;
}

TEST_F(ObserveTest, aKernelThatDoesOtherwiseEachTimeIsNotPure) {
  capturePure(noisy(), {bytesOf(in_), bytesOf(out_)});
  observe();
  ASSERT_EQ(found_.disagreements.size(), 1u);
  EXPECT_NE(
      found_.disagreements.begin()->message.find("node 0 \"noisy\", parameter 1 byte 0: \"out\"[0, 4194304] comes "
                                                 "out otherwise in a second run, though the node is said to be pure"),
      std::string::npos)
      << found_.disagreements.begin()->message;
}

TEST_F(ObserveTest, whatIsUpdatedBesidesReachesNothingElse) {
  float *state = allocate("state");
  for (FakeKernel *what : {&counting(), &scaled()}) {
    fill(state, 1.25F);
    capturePure(*what, {bytesOf(in_), bytesOf(state), bytesOf(out_)}, state);
    observe();
    EXPECT_EQ(found_.disagreements.size(), what == &scaled() ? 1u : 0u);
    for (const ObservedDisagreement &one : found_.disagreements)
      EXPECT_NE(one.message.find("\"out\"[0, 4194304] depends on what the node is said to update besides"),
                std::string::npos)
          << one.message;
  }
}

TEST_F(ObserveTest, aTableThatLiesIsReported) {
  TestTable table;
  table.add("accumulate", {reads(0), {1, 0, modeWrite, 0, {}, {}, {}, {}}});
  AccessTables::ofProcess().add(&table.table);
  capture([&] { kernel(accumulate(), {bytesOf(in_), bytesOf(out_)}); });
  AccessTables::ofProcess().remove(&table.table);
  observe();
  ASSERT_EQ(found_.disagreements.size(), 1u);
  EXPECT_EQ(found_.disagreements.begin()->evidence, Evidence::Proved);
  EXPECT_NE(found_.disagreements.begin()->message.find("\"out\"[0, 4194304] is read, though it is not said to be"),
            std::string::npos)
      << found_.disagreements.begin()->message;
}

TEST_F(ObserveTest, worksOnAStepLeftAsCaptured) {
  capture([&] { kernel(accumulate(), {bytesOf(in_), bytesOf(out_)}); }, true);
  observe();
  EXPECT_EQ(seen(0, 0), read);
  EXPECT_EQ(seen(0, 1).mode(), modeReadWrite);
}

// Two addresses in one allocation are two operands: each goes to the next.
TEST_F(ObserveTest, addressesCutAnAllocation) {
  capture([&] { kernel(accumulate(), {bytesOf(in_), bytesOf(in_ + 1024)}); });
  observe();
  EXPECT_EQ(seen(0, 0), read);
  EXPECT_EQ(seen(0, 1).mode(), modeReadWrite);
}

} // namespace
