// SPDX-License-Identifier: Apache-2.0
// Steps whose plans run kernels again, whole ways on the fake driver.
#include "runtime/lower/CloneNode.h"
#include "test/unit/runtime/Program.h"
#include "test/unit/runtime/TestTable.h"

#include <functional>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <fstream>
#include <regex>

using namespace pumpgraph;
using namespace pumpgraph::runtime;
using namespace pumpgraph::runtime::test;

namespace {

constexpr std::uint64_t tightPages = 20;
/// Making one activation again is enough, and nothing has to move.
constexpr std::uint64_t roomyPages = 24;
constexpr int layers = 4;
constexpr std::size_t nodesInAll = 2 * layers + 1;

class RematerializeTest : public ::testing::Test {
protected:
  RematerializeTest() { registerTable(); }
  ~RematerializeTest() override { pumpgraph_unregister_access_table(&table_->table); }

  /// In place of the one before.
  void registerTable(std::uint32_t flagsOfForward = 0) {
    if (table_)
      pumpgraph_unregister_access_table(&table_->table);
    table_ = std::make_unique<TestTable>();
    table_->add("forward", {reads(0, number(3)), reads(1, number(4)), overwrites(2, number(3))}, flagsOfForward)
        .add("backward", {reads(0, number(4)), reads(1, number(4)), updates(2, number(5)), overwrites(3, number(4))})
        .add("loss", {reads(0, constant(8)), updates(1, constant(8))})
        .add("sum", {reads(0, number(2)), updates(1, constant(8))});
    pumpgraph_register_access_table(&table_->table);
  }

  static Program::Shape declaring() {
    Program::Shape shape;
    shape.declaresOperations = true;
    return shape;
  }

  void start(std::uint64_t budgetPages = tightPages, const Program::Shape &shape = declaring(),
             RematerializeChoice rematerialize = RematerializeChoice::Automatic) {
    SessionOptions options;
    options.budgetBytes = budgetPages * pageBytes;
    options.compilerLibrary = PUMPGRAPH_COMPILER_LIBRARY;
    options.cacheDirectory = folderWithLink(fake_);
    options.rematerialize = rematerialize;
    Expected<std::unique_ptr<Session>> made = Session::create(options, fake_.table());
    ASSERT_TRUE(made) << messageOf(made);
    session_ = std::move(*made);
    program_.emplace(fake_, *session_, shape);
    program_->prepare();
    graph_ = program_->record();
  }

  Expected<Step *> tryAdopt(const std::string &costsIr = "", BoundaryChoice boundary = BoundaryChoice::Automatic) {
    AdoptOptions options;
    options.keepFirstPlan = true;
    options.costsIr = costsIr;
    options.boundary = boundary;
    return session_->adopt(graph_, options);
  }
  /// Captures the program a second time; what was captured first is the rehearsal.
  void rehearse(const std::function<void()> &between = [] {}) {
    ASSERT_TRUE(session_->rehearse(graph_));
    fake_.destroyGraph(graph_);
    between();
    graph_ = program_->record();
  }
  Step *adopt(const std::string &costsIr = "") {
    const Expected<Step *> step = tryAdopt(costsIr);
    EXPECT_TRUE(step) << messageOf(step);
    return step ? *step : nullptr;
  }

  static nlohmann::json reportOf(Step *step) { return nlohmann::json::parse(step->report()); }
  static std::uint64_t repetitionsOf(Step *step) { return reportOf(step).at("runtime").at("repetitions"); }
  static void expectNote(Step *step, const std::string &note) {
    const nlohmann::json notes = reportOf(step).at("runtime").at("notes");
    EXPECT_NE(std::find(notes.begin(), notes.end(), note), notes.end()) << notes.dump(2);
  }
  static std::uint64_t movedBy(Step *step) {
    const nlohmann::json report = reportOf(step);
    return report.at("up_bytes").get<std::uint64_t>() + report.at("down_bytes").get<std::uint64_t>();
  }

  std::vector<CUgraphNode> nodes() const {
    std::vector<CUgraphNode> nodes(fake_.graphNodes(graph_));
    std::size_t count = nodes.size();
    EXPECT_TRUE(fake_.table()->graphGetNodes(graph_, nodes.data(), &count));
    return nodes;
  }
  void setAttributeOfForward(CUkernelNodeAttrID attribute, int value) {
    const std::vector<CUgraphNode> all = nodes();
    for (std::size_t layer = 0; layer < layers; ++layer)
      fake_.setAttribute(all[layer], attribute, value);
  }

  /// Bit for bit what the step computes, from the values after `done` steps on.
  void expectRight(Step *step, int done, int times) {
    replay(step, times);
    EXPECT_EQ(program_->loss(), program_->expectedLoss(done + times));
    EXPECT_EQ(program_->weights(), program_->expectedWeights(done + times));
  }
  static void expectValid(Step *step) {
    const Expected<Validation> validation = step->validate();
    ASSERT_TRUE(validation) << messageOf(validation);
    EXPECT_EQ(validation->differentBuffers, 0u) << validation->firstDifference;
    EXPECT_GT(validation->comparedBuffers, 0u);
  }

  /// Clones of a plan are spoilt, those by which is tried what can be cloned are not.
  void spoilClonesOfPlan(std::function<void(FakeKernel *&, std::map<int, int> &)> spoil) {
    fake_.onClones([spoil = std::move(spoil), clones = 0](FakeKernel *&kernel, std::map<int, int> &attributes) mutable {
      if (++clones > layers)
        spoil(kernel, attributes);
    });
  }
  /// The graph with clones is refused, and what they would have made is moved.
  void expectMoved(const std::string &why) {
    Step *step = adopt();
    ASSERT_TRUE(step);
    EXPECT_EQ(repetitionsOf(step), 0u);
    EXPECT_GT(movedBy(step), 0u);
    const std::regex named("no node runs again: .*" + why);
    const nlohmann::json notes = reportOf(step).at("runtime").at("notes");
    EXPECT_TRUE(std::any_of(notes.begin(), notes.end(), [&](const nlohmann::json &note) {
      return std::regex_match(note.get<std::string>(), named);
    })) << notes.dump(2);
    expectRight(step, 0, 2);
  }

  FakeDriver fake_;
  std::unique_ptr<Session> session_;
  std::optional<Program> program_;
  CUgraph graph_ = nullptr;

private:
  std::unique_ptr<TestTable> table_;
};

// What a plan makes again it does not move, and the step computes the same.
TEST_F(RematerializeTest, runsKernelsAgain) {
  start(tightPages, declaring(), RematerializeChoice::Never);
  Step *moving = adopt();
  ASSERT_TRUE(moving);
  EXPECT_EQ(repetitionsOf(moving), 0u);
  const std::uint64_t moved = movedBy(moving);
  session_.reset();
  fake_.destroyGraph(graph_);

  start();
  Step *step = adopt();
  ASSERT_TRUE(step);
  EXPECT_GT(repetitionsOf(step), 0u);
  EXPECT_LT(movedBy(step), moved);
  expectRight(step, 0, 5);
  expectValid(step);
  expectRight(step, 5, 2);
}

// Pure is what was declared so while it was captured, in the capture itself or in its rehearsal.
TEST_F(RematerializeTest, believesWhatIsDeclared) {
  for (const bool isRehearsed : {false, true})
    for (const bool isDeclared : {false, true}) {
      Program::Shape shape = declaring();
      shape.stream = fake_.createStream();
      shape.declaresOperations = isDeclared;
      start(tightPages, shape);
      if (isRehearsed) {
        rehearse([&] { program_->setDeclaresOperations(false); });
      }
      AdoptOptions options;
      options.keepFirstPlan = true;
      const Expected<Step *> step = session_->adopt(graph_, options);
      ASSERT_TRUE(step) << messageOf(step);
      EXPECT_EQ(repetitionsOf(*step) > 0, isDeclared);
      expectRight(*step, 0, 3);
      session_.reset();
      fake_.destroyGraph(graph_);
    }
}

// With and without a rehearsal, which allows for buffers at several addresses, and whatever plans make of it.
TEST_F(RematerializeTest, computesTheSameUnderEveryBudget) {
  std::uint64_t repetitions = 0;
  for (const bool isRehearsed : {false, true})
    for (const std::uint64_t budgetPages : {19, 22, 26}) {
      Program::Shape shape = declaring();
      shape.layers = 6;
      start(budgetPages, shape);
      if (isRehearsed) {
        rehearse();
      }
      Step *step = adopt();
      ASSERT_TRUE(step);
      repetitions += repetitionsOf(step);
      expectRight(step, 0, 2);
      expectValid(step);
      session_.reset();
      fake_.destroyGraph(graph_);
    }
  EXPECT_GT(repetitions, 6u);
}

// Steps in turn, each with a plan that keeps the other's boundary, or not.
TEST_F(RematerializeTest, takesTurnsWithAnotherStep) {
  for (const BoundaryChoice boundary : {BoundaryChoice::Own, BoundaryChoice::Shared}) {
    start(22);
    const Expected<Step *> first = tryAdopt({}, boundary);
    ASSERT_TRUE(first) << messageOf(first);
    const CUgraph firstGraph = graph_;
    graph_ = program_->record();
    const Expected<Step *> second = tryAdopt({}, boundary);
    ASSERT_TRUE(second) << messageOf(second);
    EXPECT_GT(repetitionsOf(*first), 0u);
    EXPECT_GT(repetitionsOf(*second), 0u);
    for (int done = 0; done < 4; ++done)
      expectRight(done % 2 == 0 ? *first : *second, done, 1);
    session_.reset();
    fake_.destroyGraph(firstGraph);
    fake_.destroyGraph(graph_);
  }
}

// Clones have launch attributes as their originals do, and parameters however these were given.
TEST_F(RematerializeTest, copiesAttributesAndPackedParameters) {
  Program::Shape shape = declaring();
  shape.packedArguments = true;
  start(tightPages, shape);
  setAttributeOfForward(CU_LAUNCH_ATTRIBUTE_PRIORITY, 5);
  Step *step = adopt();
  ASSERT_TRUE(step);
  std::uint64_t withPriority = 0;
  for (const CUgraphNode node : nodes()) {
    CUgraphNodeType type{};
    CUkernelNodeAttrValue_v1 value{};
    ASSERT_TRUE(fake_.table()->graphNodeGetType(node, &type));
    if (type != CU_GRAPH_NODE_TYPE_KERNEL)
      continue;
    ASSERT_TRUE(fake_.table()->graphKernelNodeGetAttribute(node, CU_LAUNCH_ATTRIBUTE_PRIORITY, &value));
    withPriority += value.priority == 5 ? 1 : 0;
  }
  EXPECT_GT(repetitionsOf(step), 0u);
  EXPECT_EQ(withPriority, layers + repetitionsOf(step));
  expectRight(step, 0, 3);
}

// A table says it of kernels that nobody declares, or that are declared as operations and no more.
TEST_F(RematerializeTest, believesTables) {
  for (const std::uint32_t flags :
       {0U, std::uint32_t{PUMPGRAPH_KERNEL_PURE}, std::uint32_t{PUMPGRAPH_KERNEL_PURE_APART}})
    for (const bool declaresOperations : {false, true})
      for (const bool isRehearsed : {false, true}) {
        registerTable(flags);
        Program::Shape shape;
        shape.declaresOperations = declaresOperations;
        shape.hasPureForward = false;
        start(tightPages, shape);
        if (isRehearsed) {
          rehearse();
        }
        Step *step = adopt();
        ASSERT_TRUE(step);
        EXPECT_EQ(repetitionsOf(step) > 0, flags != 0);
        expectRight(step, 0, 3);
        expectValid(step);
        session_.reset();
        fake_.destroyGraph(graph_);
      }
}

// Two builds of a kernel: both have to be pure.
TEST_F(RematerializeTest, believesTablesThatAgree) {
  registerTable(PUMPGRAPH_KERNEL_PURE);
  TestTable other;
  other.add("forward", {reads(0, number(3)), reads(1, number(4)), overwrites(2, number(3))});
  pumpgraph_register_access_table(&other.table);
  start(tightPages, {});
  Step *step = adopt();
  pumpgraph_unregister_access_table(&other.table);
  ASSERT_TRUE(step);
  EXPECT_EQ(repetitionsOf(step), 0u);
  expectRight(step, 0, 3);
}

/// out[0] += memory[0 ... bytes), one word in each stride.
FakeKernel &sumKernel() {
  static FakeKernel kernel{
      "sum", {8, 8, 8}, [](const FakeKernel::Arguments &arguments) {
        const char *memory = argument<char *>(arguments, 0);
        for (std::uint64_t at = 0; at < argument<std::uint64_t>(arguments, 2); at += Program::stride)
          *argument<std::uint64_t *>(arguments, 1) += *reinterpret_cast<const std::uint64_t *>(memory + at);
      }};
  return kernel;
}

/// A copy and a fill, whose targets make room for a large buffer between two uses.
class CopyAndFillTest : public RematerializeTest {
protected:
  /// With `hasBranch` a memset node more that waits for nothing.
  Step *adoptUnder(std::uint64_t budgetPages, bool hasBranch);
  void expectSums(int steps) const {
    constexpr std::uint64_t words = bytes / Program::stride, ones = 0x0101010101010101;
    const std::uint64_t ofCopied = words * (words - 1) / 2 * Program::stride, ofWide = 2 * words * 2 * ones;
    EXPECT_EQ(*sum_, static_cast<std::uint64_t>(steps) * (2 * ofCopied + 2 * words * ones + ofWide));
  }

  static constexpr std::uint64_t bytes = 4 * pageBytes, wideBytes = 8 * pageBytes;
  std::uint64_t *sum_ = nullptr;
};

Step *CopyAndFillTest::adoptUnder(std::uint64_t budgetPages, bool hasBranch) {
  session_ = *openSession(fake_, budgetPages, PUMPGRAPH_COMPILER_LIBRARY);
  auto *source = static_cast<char *>(*session_->allocate(bytes, nullptr, "source"));
  EXPECT_TRUE(session_->declarePrivate(source));
  for (std::uint64_t at = 0; at < bytes; at += Program::stride)
    *reinterpret_cast<std::uint64_t *>(source + at) = at;
  sum_ = static_cast<std::uint64_t *>(*session_->allocate(8, nullptr, "sum"));
  *sum_ = 0;

  graph_ = fake_.createGraph();
  EXPECT_TRUE(session_->captureBegin());
  CUgraphNode last = nullptr;
  const auto addSum = [&](void *memory, std::uint64_t count) {
    last = fake_.addKernel(graph_, {last}, sumKernel(), {bytesOf(memory), bytesOf(sum_), bytesOf(count)});
  };
  void *copied = *session_->allocate(bytes, nullptr, "copied");
  void *filled = *session_->allocate(bytes, nullptr, "filled");
  last = fake_.addCopy(graph_, {}, copied, source, bytes);
  last = fake_.addFill(graph_, {last}, filled, 1, bytes);
  EXPECT_TRUE(session_->declareOperation(graph_, OperationKind::Pure));
  addSum(copied, bytes);
  addSum(filled, bytes);
  void *wide = *session_->allocate(wideBytes, nullptr, "wide");
  last = fake_.addFill(graph_, {last}, wide, 2, wideBytes);
  addSum(wide, wideBytes);
  EXPECT_TRUE(session_->free(wide, nullptr));
  addSum(copied, bytes);
  addSum(filled, bytes);
  EXPECT_TRUE(session_->free(copied, nullptr));
  EXPECT_TRUE(session_->free(filled, nullptr));
  if (hasBranch)
    fake_.addFill(graph_, {}, *session_->allocate(pageBytes, nullptr, "other"), 3, pageBytes);
  EXPECT_TRUE(session_->captureEnd());

  return adopt();
}

TEST_F(CopyAndFillTest, runAgain) {
  Step *step = adoptUnder(14, false);
  ASSERT_TRUE(step);
  EXPECT_EQ(repetitionsOf(step), 2u);
  EXPECT_EQ(movedBy(step), 0u);
  replay(step, 2);
  expectValid(step);
  expectSums(2);
}

// Where copies run beside branches, fills are kernels, and so are the clones of fills.
TEST_F(CopyAndFillTest, runAgainAsKernels) {
  fake_.setKernelQueues(8);
  Step *step = adoptUnder(13, true);
  ASSERT_TRUE(step);
  EXPECT_GT(repetitionsOf(step), 0u);
  EXPECT_GT(movedBy(step), 0u);
  for (const CUgraphNode node : nodes()) {
    CUgraphNodeType type{};
    ASSERT_TRUE(fake_.table()->graphNodeGetType(node, &type));
    EXPECT_NE(type, CU_GRAPH_NODE_TYPE_MEMSET);
  }
  replay(step, 2);
  expectValid(step);
  expectSums(2);
}

/// What a kernel normalizes, and the state that it updates besides. Each of the two begins 8 bytes into an allocation.
struct Normalized {
  char *in = nullptr, *out = nullptr;
  std::uint64_t *mean = nullptr, *variance = nullptr;
  std::uint64_t bytes = 0;

  static std::uint64_t valueOf(std::uint64_t in) { return in * 3 + 1; }
  void operator()() const {
    for (std::uint64_t at = 0; at < bytes; at += Program::stride)
      *reinterpret_cast<std::uint64_t *>(out + at) = valueOf(*reinterpret_cast<const std::uint64_t *>(in + at));
    for (std::uint64_t *state : {mean, variance}) {
      *state = *state * 5 + bytes;
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(state) % 512, 8u);
    }
  }
};

FakeKernel &normalizeKernel() {
  static FakeKernel kernel{"normalize", {8, 8, 8, 8, 8}, [](const FakeKernel::Arguments &arguments) {
                             Normalized{argument<char *>(arguments, 0), argument<char *>(arguments, 1),
                                        argument<std::uint64_t *>(arguments, 2),
                                        argument<std::uint64_t *>(arguments, 3),
                                        argument<std::uint64_t>(arguments, 4)}();
                           }};
  return kernel;
}

/// Has its state in a struct.
FakeKernel &packedNormalizeKernel() {
  static FakeKernel kernel{"normalize packed", {8, 8, 16, 8}, [](const FakeKernel::Arguments &arguments) {
                             const auto state = argument<std::array<std::uint64_t *, 2>>(arguments, 2);
                             Normalized{argument<char *>(arguments, 0), argument<char *>(arguments, 1), state[0],
                                        state[1], argument<std::uint64_t>(arguments, 3)}();
                           }};
  return kernel;
}

/// memory[0 ... bytes) = 2, one word in each stride
FakeKernel &spreadKernel() {
  static FakeKernel kernel{"spread", {8, 8}, [](const FakeKernel::Arguments &arguments) {
                             for (std::uint64_t at = 0; at < argument<std::uint64_t>(arguments, 1);
                                  at += Program::stride)
                               *reinterpret_cast<std::uint64_t *>(argument<char *>(arguments, 0) + at) = 2;
                           }};
  return kernel;
}

/// A __device__ variable.
std::uint64_t launches = 0;

/// Sets memory[0 ... bytes) like spreadKernel(), and counts its launches in the variable.
FakeKernel &countingKernel() {
  static FakeKernel kernel{"counting", {8, 8}, [](const FakeKernel::Arguments &arguments) {
                             spreadKernel().body(arguments);
                             ++launches;
                           }};
  return kernel;
}

// A plan that ran a kernel again which has something besides its slots would be wrong in silence: all buffers would be
// right. The plugin refuses such a kernel its author's word, and the runtime believes no such table.
TEST_F(RematerializeTest, countsOnceAStep) {
  constexpr std::uint64_t bytes = 4 * pageBytes, wideBytes = 8 * pageBytes;
  const auto launchesIn = [&](std::uint32_t flags, int steps) {
    TestTable table;
    table.add("counting", {overwrites(0, number(1))}, flags);
    pumpgraph_register_access_table(&table.table);
    session_ = *openSession(fake_, 12, PUMPGRAPH_COMPILER_LIBRARY);
    auto *sum = static_cast<std::uint64_t *>(*session_->allocate(8, nullptr, "sum"));
    *sum = 0;
    graph_ = fake_.createGraph();
    EXPECT_TRUE(session_->captureBegin());
    CUgraphNode last = nullptr;
    const auto add = [&](FakeKernel &kernel, const std::vector<std::vector<char>> &arguments) {
      last = last ? fake_.addKernel(graph_, {last}, kernel, arguments) : fake_.addKernel(graph_, {}, kernel, arguments);
    };
    void *out = *session_->allocate(bytes, nullptr, "out"), *wide = *session_->allocate(wideBytes, nullptr, "wide");
    add(countingKernel(), {bytesOf(out), bytesOf(bytes)});
    add(sumKernel(), {bytesOf(out), bytesOf(sum), bytesOf(bytes)});
    add(spreadKernel(), {bytesOf(wide), bytesOf(wideBytes)});
    add(sumKernel(), {bytesOf(wide), bytesOf(sum), bytesOf(wideBytes)});
    add(sumKernel(), {bytesOf(out), bytesOf(sum), bytesOf(bytes)});
    EXPECT_TRUE(session_->free(out, nullptr));
    EXPECT_TRUE(session_->free(wide, nullptr));
    EXPECT_TRUE(session_->captureEnd());
    Step *step = adopt();
    EXPECT_TRUE(step);
    launches = 0;
    if (step)
      replay(step, steps);
    EXPECT_EQ(*sum, static_cast<std::uint64_t>(steps) * 2 * (2 * bytes + wideBytes) / Program::stride);
    session_.reset();
    fake_.destroyGraph(graph_);
    pumpgraph_unregister_access_table(&table.table);
    return launches;
  };
  EXPECT_EQ(launchesIn(PUMPGRAPH_KERNEL_OTHER_MEMORY, 3), 3u); // as the plugin has it
  EXPECT_EQ(launchesIn(PUMPGRAPH_KERNEL_OTHER_MEMORY | PUMPGRAPH_KERNEL_PURE, 3), 3u);
  EXPECT_EQ(launchesIn(PUMPGRAPH_KERNEL_PURE, 3), 6u); // what a table that lies would do
}

/// A kernel that updates state besides, as a batch norm does. What it makes is in the way of a large buffer between two
/// uses.
class UpdatingTest : public RematerializeTest {
protected:
  struct Shape {
    bool declaresMean = true;
    bool declaresVariance = true;
    bool isPlain = true;
    bool isRehearsed = false; ///< and said of the rehearsal alone
    bool hasResult = false;   ///< a page that stays on the device
  };

  Expected<Step *> tryAdoptUnder(std::uint64_t budgetPages, const Shape &shape);
  Step *adoptUnder(std::uint64_t budgetPages, const Shape &shape) {
    const Expected<Step *> step = tryAdoptUnder(budgetPages, shape);
    EXPECT_TRUE(step) << messageOf(step);
    return step ? *step : nullptr;
  }
  CUgraph record(const Shape &shape, bool declares);
  void expectState(std::uint64_t steps) const {
    std::uint64_t sum = 0, state = 0;
    for (std::uint64_t at = 0; at < bytes; at += Program::stride)
      sum += 2 * Normalized::valueOf(at);
    for (std::uint64_t step = 0; step < steps; ++step)
      state = state * 5 + bytes;
    EXPECT_EQ(*sum_, steps * (sum + wideBytes / Program::stride * 2));
    EXPECT_EQ(mean_[1], state);
    EXPECT_EQ(variance_[1], state);
  }

  static constexpr std::uint64_t bytes = 4 * pageBytes, wideBytes = 8 * pageBytes;
  /// Without what the kernel makes; the small allocations have a page, and what it has aside another.
  static constexpr std::uint64_t leastPages = 4 + 8 + 1 + 1;
  char *source_ = nullptr;
  std::uint64_t *sum_ = nullptr, *mean_ = nullptr, *variance_ = nullptr;
};

CUgraph UpdatingTest::record(const Shape &shape, bool declares) {
  const CUstream stream = fake_.createStream();
  EXPECT_TRUE(session_->captureBegin());
  EXPECT_TRUE(fake_.table()->streamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  void *out = *session_->allocate(bytes, stream, "out");
  if (shape.isPlain)
    fake_.launch(stream, normalizeKernel(),
                 {bytesOf(source_), bytesOf(out), bytesOf(mean_ + 1), bytesOf(variance_ + 1), bytesOf(bytes)});
  else
    fake_.launch(stream, packedNormalizeKernel(),
                 {bytesOf(source_), bytesOf(out), bytesOf(std::array{mean_ + 1, variance_ + 1}), bytesOf(bytes)});
  const auto address = [](void *pointer) { return reinterpret_cast<CUdeviceptr>(pointer); };
  if (declares) {
    std::vector<CUdeviceptr> aside;
    if (shape.declaresMean)
      aside.push_back(address(mean_));
    if (shape.declaresVariance)
      aside.push_back(address(variance_));
    EXPECT_TRUE(session_->declareOperation(stream, OperationKind::Pure));
    EXPECT_TRUE(session_->declareReads(stream, {address(source_)}));
    EXPECT_TRUE(session_->declareAside(stream, aside));
  }
  const auto addSum = [&](void *memory, std::uint64_t count) {
    fake_.launch(stream, sumKernel(), {bytesOf(memory), bytesOf(sum_), bytesOf(count)});
  };
  addSum(out, bytes);
  void *wide = *session_->allocate(wideBytes, stream, "wide");
  fake_.launch(stream, spreadKernel(), {bytesOf(wide), bytesOf(wideBytes)});
  addSum(wide, wideBytes);
  EXPECT_TRUE(session_->free(wide, stream));
  addSum(out, bytes);
  EXPECT_TRUE(session_->free(out, stream));
  if (shape.hasResult)
    fake_.launch(stream, spreadKernel(),
                 {bytesOf(*session_->allocate(pageBytes, stream, "result")), bytesOf(pageBytes)});
  CUgraph graph = nullptr;
  EXPECT_TRUE(fake_.table()->streamEndCapture(stream, &graph));
  EXPECT_TRUE(session_->captureEnd());
  return graph;
}

Expected<Step *> UpdatingTest::tryAdoptUnder(std::uint64_t budgetPages, const Shape &shape) {
  session_ = *openSession(fake_, budgetPages, PUMPGRAPH_COMPILER_LIBRARY);
  source_ = static_cast<char *>(*session_->allocate(bytes, nullptr, "source"));
  EXPECT_TRUE(session_->declarePrivate(source_));
  for (std::uint64_t at = 0; at < bytes; at += Program::stride)
    *reinterpret_cast<std::uint64_t *>(source_ + at) = at;
  const auto allocateState = [&](const char *name) {
    auto *state = static_cast<std::uint64_t *>(*session_->allocate(16, nullptr, name));
    state[0] = state[1] = 0;
    return state;
  };
  sum_ = allocateState("sum");
  mean_ = allocateState("mean");
  variance_ = allocateState("variance");
  if (shape.isRehearsed) {
    graph_ = record(shape, true);
    EXPECT_TRUE(session_->rehearse(graph_));
    fake_.destroyGraph(graph_);
  }
  graph_ = record(shape, !shape.isRehearsed);
  AdoptOptions options;
  options.keepFirstPlan = true;
  return session_->adopt(graph_, options);
}

// The repetition has other memory for the state, which is updated once a replay.
TEST_F(UpdatingTest, runsAgainBesideItsState) {
  for (const bool isRehearsed : {false, true}) {
    Step *step = adoptUnder(leastPages + 1, {.isRehearsed = isRehearsed});
    ASSERT_TRUE(step);
    EXPECT_EQ(repetitionsOf(step), 1u);
    EXPECT_EQ(movedBy(step), 0u);
    replay(step, 3);
    expectState(3);
    expectValid(step);
    replay(step, 2);
    expectState(5);
    ASSERT_TRUE(step->replan());
    EXPECT_EQ(repetitionsOf(step), 1u);
    expectState(5);
    replay(step, 1);
    expectState(6);
    session_.reset();
    fake_.destroyGraph(graph_);
  }
}

// State that is not declared, or whose address is in a struct, would be updated twice.
TEST_F(UpdatingTest, movesWhatItMakesWhereItsStateIsNotApart) {
  for (const Shape shape : {Shape{.declaresMean = false}, Shape{.declaresVariance = false}, Shape{.isPlain = false}}) {
    Step *step = adoptUnder(leastPages + 1, shape);
    ASSERT_TRUE(step);
    EXPECT_EQ(repetitionsOf(step), 0u);
    EXPECT_GT(movedBy(step), 0u);
    replay(step, 3);
    expectState(3);
    expectValid(step);
    session_.reset();
    fake_.destroyGraph(graph_);
  }
}

// Its memory is the step's, and counts.
TEST_F(UpdatingTest, givesTheMemoryOfRepetitionsBack) {
  Step *step = adoptUnder(leastPages + 1, {});
  ASSERT_TRUE(step);
  EXPECT_EQ(reportOf(step).at("runtime").at("other_device_bytes"), pageBytes);
  const std::uint64_t before = session_->statistics().live.liveAllocations;
  session_->destroy(step);
  EXPECT_EQ(session_->statistics().live.liveAllocations, before - 1);
}

// Where it would not fit, the step does without.
TEST_F(UpdatingTest, doesWithoutTheMemoryOfRepetitions) {
  Step *step = adoptUnder(2, {.hasResult = true}); // for that and for the small allocations
  ASSERT_TRUE(step);
  EXPECT_EQ(repetitionsOf(step), 0u);
  expectNote(step, "nodes that update something besides are not run again: the budget has no room for the memory that "
                   "they would have");
  replay(step, 2);
  expectState(2);
}

// A clone that has the state itself, or memory elsewhere, is refused.
TEST_F(UpdatingTest, refusesOtherParametersOfAClone) {
  for (const bool hasState : {true, false}) {
    fake_.onArgumentsOfClones([&](std::vector<std::vector<char>> &arguments) {
      const bool isTried = arguments[2] == bytesOf(mean_ + 1); // before there is a plan
      if (!isTried)
        arguments[2] = hasState ? bytesOf(mean_ + 1) : bytesOf(variance_ + 1);
    });
    const Expected<Step *> step = tryAdoptUnder(leastPages + 1, {});
    ASSERT_TRUE(step) << messageOf(step);
    EXPECT_EQ(repetitionsOf(*step), 0u);
    EXPECT_NE((*step)->report().find("no node runs again: "), std::string::npos);
    EXPECT_NE((*step)->report().find("again does not do what it does: it has other parameters"), std::string::npos);
    replay(*step, 2);
    expectState(2);
    fake_.onArgumentsOfClones({});
    session_.reset();
    fake_.destroyGraph(graph_);
  }
}

// A driver that does not clone the kernel leaves nothing aside.
TEST_F(UpdatingTest, movesWhatCannotBeCloned) {
  fake_.failCall("cuGraphKernelNodeCopyAttributes", 1, CUDA_ERROR_INVALID_VALUE);
  Step *step = adoptUnder(leastPages + 1, {});
  ASSERT_TRUE(step);
  EXPECT_EQ(repetitionsOf(step), 0u);
  EXPECT_EQ(step->captured().nodes[0].accesses[2].isAside, false);
  replay(step, 2);
  expectState(2);
}

// Others write memory of theirs when they like: what reads it may find something else the second time.
TEST_F(CopyAndFillTest, whatReadsMemoryOfOthersIsMoved) {
  std::vector<std::uint64_t> theirs(bytes / sizeof(std::uint64_t), 1);
  fake_.addOutside(theirs.data(), bytes, false);
  session_ = *openSession(fake_, 8, PUMPGRAPH_COMPILER_LIBRARY);
  sum_ = static_cast<std::uint64_t *>(*session_->allocate(8, nullptr, "sum"));
  *sum_ = 0;
  graph_ = fake_.createGraph();
  EXPECT_TRUE(session_->captureBegin());
  void *made = *session_->allocate(bytes, nullptr, "made");
  CUgraphNode last =
      fake_.addKernel(graph_, {}, forwardKernel(),
                      {bytesOf(theirs.data()), bytesOf(theirs.data()), bytesOf(made), bytesOf(bytes), bytesOf(bytes)});
  EXPECT_TRUE(session_->declareOperation(graph_, OperationKind::Pure));
  last = fake_.addKernel(graph_, {last}, sumKernel(), {bytesOf(made), bytesOf(sum_), bytesOf(bytes)});
  EXPECT_TRUE(session_->captureEnd());
  Step *step = adopt();
  ASSERT_TRUE(step);
  EXPECT_FALSE(step->captured().nodes[0].isPure);
  expectNote(step, "1 of 1 pure nodes cannot be run again: they touch memory that is not the session's; the first is "
                   "node 0 \"forward\"");
}

// Nothing is said of kernels, or it is forbidden: none runs again.
TEST_F(RematerializeTest, runsNothingAgainOfWhichNothingIsKnown) {
  start(tightPages, {});
  AdoptOptions options;
  options.keepFirstPlan = true;
  const Expected<Step *> step = session_->adopt(graph_, options);
  ASSERT_TRUE(step) << messageOf(step);
  EXPECT_EQ(repetitionsOf(*step), 0u);
  expectRight(*step, 0, 1);
}

TEST_F(RematerializeTest, refusesAClonesLostAttribute) {
  start();
  setAttributeOfForward(CU_LAUNCH_ATTRIBUTE_PRIORITY, 5);
  spoilClonesOfPlan([](FakeKernel *&, std::map<int, int> &attributes) { attributes.clear(); });
  expectMoved("what runs node [0-9] \"forward\" again does not do what it does: it has another launch attribute 8");
}

TEST_F(RematerializeTest, refusesAnotherKernelInAClone) {
  start();
  FakeKernel other = forwardKernel();
  spoilClonesOfPlan([&](FakeKernel *&kernel, std::map<int, int> &) { kernel = &other; });
  expectMoved("what runs node [0-9] \"forward\" again does not do what it does: it is another kernel");
}

TEST_F(RematerializeTest, refusesAChangeThatFails) {
  start();
  fake_.failCall("cuGraphKernelNodeCopyAttributes", layers + 1, CUDA_ERROR_INVALID_VALUE);
  expectMoved("running node [0-9] \"forward\" again.*INVALID_VALUE.*");
}

// Kernels that the driver does not clone are found before the plan is made, which then moves what they make.
TEST_F(RematerializeTest, movesWhatCannotBeCloned) {
  start();
  setAttributeOfForward(CU_LAUNCH_ATTRIBUTE_COOPERATIVE, 1);
  Step *step = adopt();
  ASSERT_TRUE(step);
  EXPECT_EQ(repetitionsOf(step), 0u);
  EXPECT_GT(movedBy(step), 0u);
  expectNote(step, "4 of 4 pure nodes cannot be run again: the driver does not copy a cooperative "
                   "launch (cuGraphAddKernelNode: CUDA_ERROR_INVALID_VALUE); the first is node 0 "
                   "\"forward\"");
  expectRight(step, 0, 2);
}

// So are those that come out of it as something else.
TEST_F(RematerializeTest, movesWhatIsClonedBadly) {
  start();
  fake_.setAttribute(nodes()[1], CU_LAUNCH_ATTRIBUTE_PRIORITY, 5);
  fake_.onClones([](FakeKernel *&, std::map<int, int> &attributes) { attributes.clear(); });
  Step *step = adopt();
  ASSERT_TRUE(step);
  expectNote(step, "1 of 4 pure nodes cannot be run again: of the copy that the driver makes, it has "
                   "another launch attribute 8; the first is node 1 \"forward\"");
  expectRight(step, 0, 2);
}

TEST_F(RematerializeTest, plansAgain) {
  start();
  Step *step = adopt();
  ASSERT_TRUE(step);
  replay(step, 1);
  const Expected<Replanning> replanned = step->replan();
  ASSERT_TRUE(replanned) << messageOf(replanned);
  EXPECT_EQ(replanned->timedNodes, nodesInAll);
  EXPECT_GT(*replanned->before.measuredUs, 0);
  EXPECT_GT(repetitionsOf(step), 0u);
  expectRight(step, 1, 3);
  expectValid(step);
}

// A saved step has the captured nodes alone, with their times, which are good for the next one.
TEST_F(RematerializeTest, savesTheCapturedStep) {
  start();
  Step *step = adopt();
  ASSERT_TRUE(step);
  ASSERT_GT(repetitionsOf(step), 0u);
  ASSERT_TRUE(step->replan());
  const std::string path = ::testing::TempDir() + "/rematerialize-test.mlir";
  ASSERT_TRUE(step->save(path));
  std::ifstream file(path);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  EXPECT_EQ(text.find("rematerialize"), std::string::npos);
  session_.reset();
  fake_.destroyGraph(graph_);

  start();
  Step *next = adopt(text);
  ASSERT_TRUE(next);
  EXPECT_EQ(reportOf(next).at("runtime").at("plans")[0].at("costs"), "saved times");
  expectRight(next, 0, 2);
}

// A node that runs twice costs as much each time.
TEST_F(RematerializeTest, measuresWherePlansMoveNothing) {
  forwardKernel().milliseconds = 3;
  backwardKernel().milliseconds = 50;
  start(roomyPages);
  Step *step = adopt();
  ASSERT_TRUE(step);
  ASSERT_GT(repetitionsOf(step), 0u);
  ASSERT_EQ(movedBy(step), 0u);
  replay(step, 1);
  const Expected<Measurement> measured = step->measure(3);
  ASSERT_TRUE(measured) << messageOf(measured);
  EXPECT_EQ(measured->timedNodes, nodesInAll);
  EXPECT_NEAR(measured->stepUs, 1e3 * static_cast<double>((layers + repetitionsOf(step)) * 3 + layers * 50), 2e3);
  for (std::size_t node = 0; node < layers; ++node)
    EXPECT_NEAR(step->captured().nodes[node].costUs, 3e3, 300) << node;
  expectRight(step, 1, 2);
  forwardKernel().milliseconds = backwardKernel().milliseconds = 0;
}

/// Nodes outside any step.
class CloneNodeTest : public ::testing::Test {
protected:
  CUgraphNode clone(CUgraphNode original, const KernelLaunch *parameters = nullptr) {
    const Expected<CUgraphNode> made = cloneNode(driver_, other_, original, nullptr, parameters);
    EXPECT_TRUE(made) << messageOf(made);
    return made ? *made : nullptr;
  }
  void run() {
    CUgraphExec exec = nullptr;
    ASSERT_TRUE(driver_.graphInstantiate(&exec, other_, 0));
    ASSERT_TRUE(driver_.graphLaunch(exec, nullptr));
    ASSERT_TRUE(driver_.graphExecDestroy(exec));
  }
  std::string difference(CUgraphNode one, CUgraphNode two) {
    const Expected<std::string> found = differenceOfClone(driver_, one, two);
    EXPECT_TRUE(found) << messageOf(found);
    return found ? *found : "";
  }

  FakeDriver fake_;
  const Driver &driver_ = *fake_.table();
  CUgraph graph_ = fake_.createGraph(), other_ = fake_.createGraph();
  FakeKernel set_{"set", {8, 4}, [](const FakeKernel::Arguments &arguments) {
                    *argument<int *>(arguments, 0) = argument<int>(arguments, 1);
                  }};
};

TEST_F(CloneNodeTest, copiesAKernelHoweverItGotItsParameters) {
  for (const bool packed : {false, true}) {
    int value = 0;
    const CUgraphNode original = fake_.addKernel(graph_, {}, set_, {bytesOf(&value), bytesOf(7)}, packed);
    fake_.setLaunch(original, {2, 3, 4}, {32, 2, 1});
    fake_.setAttribute(original, CU_LAUNCH_ATTRIBUTE_PRIORITY, 5);
    EXPECT_EQ(difference(clone(original), original), "");
    run();
    EXPECT_EQ(value, 7);
  }
}

TEST_F(CloneNodeTest, givesAKernelOtherParameters) {
  int value = 0;
  const CUgraphNode original = fake_.addKernel(graph_, {}, set_, {bytesOf(&value), bytesOf(7)}, true);
  KernelLaunch launch;
  for (const std::vector<char> &bytes : {bytesOf(&value), bytesOf(8)}) {
    launch.bytes.insert(launch.bytes.end(), bytes.begin(), bytes.end());
    launch.ends.push_back(launch.bytes.size());
  }
  EXPECT_EQ(difference(clone(original, &launch), original), "");
  run();
  EXPECT_EQ(value, 8);
}

TEST_F(CloneNodeTest, copiesFillsAndCopiesOnTheDevice) {
  char source[4] = {1, 2, 3, 4}, target[4] = {}, filled[4] = {};
  const CUgraphNode copy = fake_.addCopy(graph_, {}, target, source, 4);
  const CUgraphNode fill = fake_.addFill(graph_, {}, filled, 9, 4);
  EXPECT_EQ(difference(clone(copy), copy), "");
  EXPECT_EQ(difference(clone(fill), fill), "");
  run();
  EXPECT_EQ(std::string(target, 4), std::string(source, 4));
  EXPECT_EQ(std::string(filled, 4), std::string(4, 9));
}

TEST_F(CloneNodeTest, refusesNodesOfOtherKinds) {
  const CUgraphNode event = fake_.addPlain(graph_, {}, CU_GRAPH_NODE_TYPE_EVENT_RECORD);
  EXPECT_FALSE(cloneNode(driver_, other_, event, nullptr));
  EXPECT_EQ(fake_.graphNodes(other_), 0u);
}

TEST_F(CloneNodeTest, leavesNothingIfAttributesCannotBeCopied) {
  int value = 0;
  const CUgraphNode original = fake_.addKernel(graph_, {}, set_, {bytesOf(&value), bytesOf(7)});
  fake_.failCall("cuGraphKernelNodeCopyAttributes", 1, CUDA_ERROR_INVALID_VALUE);
  EXPECT_FALSE(cloneNode(driver_, other_, original, nullptr));
  EXPECT_EQ(fake_.graphNodes(other_), 0u);
}

TEST_F(CloneNodeTest, findsDifferences) {
  int value = 0;
  char bytes[8] = {};
  FakeKernel twin = set_;
  const auto kernel = [&](FakeKernel &of) { return fake_.addKernel(graph_, {}, of, {bytesOf(&value), bytesOf(7)}); };
  const CUgraphNode original = kernel(set_);
  EXPECT_EQ(difference(kernel(set_), original), "");
  EXPECT_EQ(difference(kernel(twin), original), "it is another kernel");
  const CUgraphNode wide = kernel(set_), urgent = kernel(set_);
  fake_.setLaunch(wide, {2, 1, 1}, {1, 1, 1});
  EXPECT_EQ(difference(wide, original), "it has another grid, other blocks or other shared memory");
  fake_.setAttribute(urgent, CU_LAUNCH_ATTRIBUTE_PRIORITY, 1);
  EXPECT_EQ(difference(urgent, original), "it has another launch attribute 8");
  const CUgraphNode fill = fake_.addFill(graph_, {}, bytes, 9, 4),
                    copy = fake_.addCopy(graph_, {}, bytes, bytes + 4, 4);
  EXPECT_EQ(difference(fill, original), "it is of another kind");
  EXPECT_EQ(difference(fake_.addFill(graph_, {}, bytes, 8, 4), fill), "it is another fill");
  EXPECT_EQ(difference(fake_.addFill(graph_, {}, bytes, 9, 3), fill), "it is another fill");
  EXPECT_EQ(difference(fake_.addCopy(graph_, {}, bytes, bytes + 4, 3), copy), "it is another copy");
  EXPECT_EQ(difference(fake_.addCopy(graph_, {}, bytes + 1, bytes + 4, 4), copy), "it is another copy");
}

} // namespace
