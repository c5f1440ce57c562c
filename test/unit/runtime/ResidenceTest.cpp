// SPDX-License-Identifier: Apache-2.0
// Where values are between replays, of a plan that mirrors pages: frames given up without a copy, loans, the way back.
#include "pumpgraph/graph/CopyRows.h"
#include "runtime/lower/LowerGraph.h"
#include "runtime/lower/PoisonHandOvers.h"
#include "test/unit/runtime/MemoryTest.h"

using namespace pumpgraph;
using namespace pumpgraph::runtime;
using namespace pumpgraph::runtime::test;

namespace {

constexpr std::uint64_t tailBytes = 4096;
constexpr std::uint64_t weightBytes = 3 * pageBytes + tailBytes;
constexpr std::uint64_t copiedBytes = 3 * pageBytes; ///< of host memory, that copies of the step name
constexpr std::uint64_t planFrames = 6;
constexpr std::uint64_t pagesInAll = 8;

/// Fills both pages with what nobody wants.
FakeKernel &scribbleKernel() {
  static FakeKernel kernel{"scribble", {8}, [](const FakeKernel::Arguments &arguments) {
                             std::memset(argument<char *>(arguments, 0), 0xEE, 2 * pageBytes);
                           }};
  return kernel;
}

std::uint64_t &word(void *base, std::uint64_t offset) {
  return *reinterpret_cast<std::uint64_t *>(static_cast<char *>(base) + offset);
}

/// weight[page] += table, on the weight's whole pages; loss += 1
FakeKernel &updateKernel() {
  static FakeKernel kernel{"update", {8, 8, 8}, [](const FakeKernel::Arguments &arguments) {
                             for (std::uint64_t page = 0; page < 3; ++page)
                               word(argument<void *>(arguments, 0), page * pageBytes) +=
                                   word(argument<void *>(arguments, 1), 0);
                             word(argument<void *>(arguments, 2), 0) += 1;
                           }};
  return kernel;
}

/// The first word of each page of the weight, and of the table.
struct Values {
  std::uint64_t weight[4], table;
  friend bool operator==(const Values &, const Values &) = default;
};
std::ostream &operator<<(std::ostream &out, const Values &values) {
  const auto &[weight, table] = values;
  return out << fmt::format("{} {} {} {}, {}", weight[0], weight[1], weight[2], weight[3], table);
}

/// A step on buffers that share frames:
///
///   frame   at the boundary                                during the step
///   0       page 0 of the weight, mirrored                 given up without a copy, scratch, fetched, updated, evicted
///   1       nothing: page 1 of the weight is away          fetched, updated, evicted
///   2       page 2 of the weight                           updated
///   3       page 3 of the weight, partial, mirrored        untouched
///   4       the table, mirrored                            given up without a copy, scratch, fetched
///   5       the loss                                       updated
class ResidenceTest : public MemoryTest {
protected:
  enum Index : BufferIndex { weight, table, scratch, loss };

  /// `frames` there are; six are the plan's. `inRows`: both pages of the weight that move do so in one copy.
  void open(std::uint64_t frames, bool inRows = false) {
    inRows_ = inRows;
    openMemory(frames);
    stream_ = fake_.createStream();
    for (const std::uint64_t bytes : {weightBytes, pageBytes, 2 * pageBytes, pageBytes})
      pointers_.push_back(reinterpret_cast<void *>(*heap_->allocate(bytes, stream_, "buffer")));
    describe();
    residence_ = std::make_unique<Residence>(
        MemoryTools{driver_, *addresses_, *frames_, *host_, *mapper_, *heap_, stream_, departures_}, lowered_,
        step_.blocks);
    ASSERT_TRUE(residence_->pin());
    ASSERT_TRUE(residence_->addRows(lowered_, step_.blocks));
    lower();
  }

  void TearDown() override {
    residence_->abandon();
    editor_.reset();
    fake_.destroyGraph(graph_);
    ASSERT_TRUE(driver_.streamDestroy(stream_));
  }

  Block &block(Index buffer) { return heap_->block(step_.blocks[buffer]); }

  /// Values at the buffers' addresses, while no plan is in force or under a loan.
  void setAtAddress(Index buffer, std::uint64_t page, std::uint64_t value) {
    word(pointers_[buffer], page * pageBytes) = value;
  }
  std::uint64_t atAddress(Index buffer, std::uint64_t page) { return word(pointers_[buffer], page * pageBytes); }
  void setAtAddresses(const Values &values) {
    for (std::uint64_t page = 0; page < 4; ++page)
      setAtAddress(weight, page, values.weight[page]);
    setAtAddress(table, 0, values.table);
  }
  Values atAddresses() {
    Values values{};
    for (std::uint64_t page = 0; page < 4; ++page)
      values.weight[page] = atAddress(weight, page);
    values.table = atAddress(table, 0);
    return values;
  }

  Values read() {
    Values values{};
    std::vector<char> bytes(weightBytes);
    EXPECT_TRUE(residence_->readValue(step_.blocks[weight], bytes.data()));
    for (std::uint64_t page = 0; page < 4; ++page)
      values.weight[page] = word(bytes.data(), page * pageBytes);
    EXPECT_TRUE(residence_->readValue(step_.blocks[table], bytes.data()));
    values.table = word(bytes.data(), 0);
    return values;
  }
  std::uint64_t atPlace(std::uint64_t place) { return word(residence_->pool().at(place), 0); }
  bool mirrorsAgree() {
    std::vector<char> bytes(weightBytes);
    for (const Index buffer : {weight, table}) {
      EXPECT_TRUE(residence_->readValue(step_.blocks[buffer], bytes.data()));
      if (residence_->firstStale(step_.blocks[buffer], bytes.data()))
        return false;
    }
    return true;
  }

  void replay(int times = 1) {
    CUgraphExec exec = nullptr;
    ASSERT_TRUE(driver_.graphInstantiate(&exec, graph_, 0));
    for (int i = 0; i < times; ++i)
      ASSERT_TRUE(driver_.graphLaunch(exec, stream_));
    ASSERT_TRUE(driver_.graphExecDestroy(exec));
  }

  CUstream stream_ = nullptr;
  std::uint64_t departures_ = 0;
  std::vector<void *> pointers_; ///< by Index
  Description lowered_;
  CapturedStep step_;
  CUgraph graph_ = nullptr;
  LiftedGraph captured_;
  std::unique_ptr<GraphEditor> editor_;
  std::unique_ptr<Residence> residence_;
  bool inRows_ = false;

private:
  Buffer &addBuffer(Index index, const char *name, std::uint64_t size, std::vector<std::int32_t> frames) {
    Buffer &buffer = lowered_.buffers.emplace_back();
    buffer.name = name;
    buffer.address = reinterpret_cast<std::uintptr_t>(pointers_[index]);
    buffer.size = size;
    buffer.isPrivate = index != loss;
    buffer.liveIn = buffer.liveOut = index != scratch;
    buffer.frames = std::move(frames);
    step_.blocks.push_back(heap_->find(buffer.address)->block);
    return buffer;
  }
  NodeIndex addCopy(NodeKind kind, Index buffer, std::uint64_t page, std::uint64_t hostOffset) {
    Node &node = lowered_.nodes.emplace_back();
    node.kind = kind;
    node.buffer = buffer;
    node.range = {page * pageBytes, pageBytes};
    node.hostOffset = hostOffset;
    return static_cast<NodeIndex>(lowered_.nodes.size() - 1);
  }
  NodeIndex addKernel(std::int32_t captured, std::vector<Access> accesses) {
    Node &node = lowered_.nodes.emplace_back();
    node.captured = captured;
    node.accesses = std::move(accesses);
    return static_cast<NodeIndex>(lowered_.nodes.size() - 1);
  }

  void describe() {
    lowered_.stage = Stage::LoweredVirtual;
    Buffer &described = addBuffer(weight, "weight", weightBytes, {0, 1, 2, 3});
    described.resident = {{0, pageBytes}, {2 * pageBytes, pageBytes + tailBytes}};
    described.mirrored = {{0, pageBytes}, {3 * pageBytes, tailBytes}};
    Buffer &constant = addBuffer(table, "table", pageBytes, {4});
    constant.resident = constant.mirrored = {{0, pageBytes}};
    addBuffer(scratch, "scratch", 2 * pageBytes, {0, 4});
    addBuffer(loss, "loss", pageBytes, {5});

    const NodeIndex scribble = addKernel(0, {{scratch, {0, 2 * pageBytes}, modeWrite, modeWrite}});
    std::vector<NodeIndex> fetches;
    fetches.push_back(addCopy(NodeKind::CopyToDevice, weight, 0, 0));
    fetches.push_back(addCopy(NodeKind::CopyToDevice, weight, 1, pageBytes));
    fetches.push_back(addCopy(NodeKind::CopyToDevice, table, 0, 2 * pageBytes));
    const NodeIndex update = addKernel(
        1, {{weight, {0, 3 * pageBytes}}, {table, {0, pageBytes}, modeRead, modeRead}, {loss, {0, pageBytes}}});
    for (const NodeIndex fetch : fetches) {
      lowered_.edges.push_back({inRows_ && fetch == fetches[1] ? fetches[0] : scribble, fetch});
      if (!inRows_ || fetch != fetches[0])
        lowered_.edges.push_back({fetch, update});
    }
    lowered_.edges.push_back({scribble, update});
    const NodeIndex first = addCopy(NodeKind::CopyToHost, weight, 0, 0);
    const NodeIndex second = addCopy(NodeKind::CopyToHost, weight, 1, pageBytes);
    lowered_.edges.push_back({update, first});
    lowered_.edges.push_back({inRows_ ? first : update, second});
    lowered_.nodes[fetches[1]].joined = lowered_.nodes[second].joined = inRows_;
    lowered_.hostBytes = copiedBytes;
    ASSERT_EQ(validate(lowered_), "");
  }

  void lower() {
    graph_ = fake_.createGraph();
    step_.nodes.push_back(fake_.addKernel(graph_, {}, scribbleKernel(), {bytesOf(pointers_[scratch])}));
    step_.nodes.push_back(
        fake_.addKernel(graph_, {step_.nodes[0]}, updateKernel(),
                        {bytesOf(pointers_[weight]), bytesOf(pointers_[table]), bytesOf(pointers_[loss])}));
    step_.description = lowered_;
    std::erase_if(step_.description.nodes, [](const Node &node) { return isCopy(node.kind); });
    step_.description.edges = {{0, 1}};
    captured_ = *liftGraph(driver_, graph_, *addresses_, nullptr);
    editor_ = std::make_unique<GraphEditor>(driver_, graph_, nullptr);
    ASSERT_TRUE(lowerGraph(*editor_, lowered_, step_, captured_, step_.blocks, *residence_));
    editor_->commit();
  }
};

constexpr Values start{{10, 20, 30, 40}, 1};
Values after(int steps, Values values = start) {
  for (std::uint64_t page = 0; page < 3; ++page)
    values.weight[page] += static_cast<std::uint64_t>(steps) * values.table;
  return values;
}

// What the driver says of a kernel's parameters has to be what is planned: addresses that lead into a buffer lead into
// the one that continues it where the lowered step has that one, and nowhere else.
TEST_F(ResidenceTest, findsParametersThatAreNotAsPlanned) {
  open(pagesInAll);
  step_.words = {{{scratch, {0, 2 * pageBytes}, 0, 0, 0}}, {}};
  const ReservedBlocks reserved = {*ReservedBlock::create(*heap_, 2)};
  std::vector<BlockId> blocks = step_.blocks;
  blocks.push_back(reserved[0]->id());
  Description renamed = lowered_;
  const auto other = static_cast<BufferIndex>(renamed.buffers.size());
  renamed.buffers.push_back(renamed.buffers[scratch]);
  renamed.buffers[other].continues = scratch;
  renamed.buffers[other].address = reserved[0]->address();
  renamed.nodes[0].accesses[0].buffer = other;
  residence_->add(renamed, blocks, reserved);
  const auto describe = [&](const Description &lowered) {
    const LiftedGraph lifted = *liftGraph(driver_, graph_, *addresses_, nullptr);
    return describeRewritten(driver_, lifted, captured_, step_, lowered, {}, blocks, *residence_);
  };

  const Expected<RewrittenStep> unchanged = describe(renamed);
  ASSERT_FALSE(unchanged);
  EXPECT_NE(unchanged.error().message.find("other parameters after the rewrite than planned"), std::string::npos);

  KernelLaunch launch = captured_.nodes[0].launches.front();
  const std::uint64_t address = reserved[0]->address();
  std::memcpy(launch.bytes.data(), &address, sizeof address);
  {
    GraphEditor editor(driver_, graph_, nullptr);
    ASSERT_TRUE(editor.changeParameters(step_.nodes[0], captured_.nodes[0].launches.front(), launch));
    const Expected<RewrittenStep> changed = describe(renamed);
    ASSERT_TRUE(changed) << changed.error().message;
    EXPECT_EQ(changed->description.nodes[0].accesses, renamed.nodes[0].accesses);
    EXPECT_EQ(withAnnotations(step_.description, renamed).nodes[0].accesses, lowered_.nodes[0].accesses);
    const Expected<RewrittenStep> unplanned = describe(lowered_);
    ASSERT_FALSE(unplanned);
    EXPECT_NE(unplanned.error().message.find("other parameters after the rewrite than before"), std::string::npos);
  }
  EXPECT_TRUE(describe(lowered_)); // taken back

  step_.words[0].clear();
  const Expected<RewrittenStep> nothing = describe(renamed);
  ASSERT_FALSE(nothing);
  EXPECT_NE(nothing.error().message.find("and has none to replace"), std::string::npos) << nothing.error().message;
}

// The node that is repeated has got the address of another buffer; its clone has that of the buffer it is to write, and
// the graph is as it was when both are taken back.
TEST_F(ResidenceTest, givesARepetitionTheAddressesOfItsPlace) {
  open(pagesInAll);
  const CUgraph graph = fake_.createGraph();
  CapturedStep step = step_;
  step.nodes[0] = fake_.addKernel(graph, {}, scribbleKernel(), {bytesOf(pointers_[scratch])}, true);
  step.nodes[1] = fake_.addKernel(graph, {step.nodes[0]}, updateKernel(),
                                  {bytesOf(pointers_[weight]), bytesOf(pointers_[table]), bytesOf(pointers_[loss])});
  step.words = {{{scratch, {0, 2 * pageBytes}, 0, 0, 0}}, {}};
  const LiftedGraph captured = *liftGraph(driver_, graph, *addresses_, nullptr);
  const std::string before = fake_.print(graph);

  const ReservedBlocks reserved = {*ReservedBlock::create(*heap_, 2)};
  std::vector<BlockId> blocks = step.blocks;
  blocks.push_back(reserved[0]->id());
  Description lowered = step.description;
  const auto other = static_cast<BufferIndex>(lowered.buffers.size());
  lowered.buffers.push_back(lowered.buffers[scratch]);
  lowered.buffers[other].continues = scratch;
  lowered.buffers[other].address = reserved[0]->address();
  Node again = lowered.nodes[0];
  again.kind = NodeKind::Rematerialize;
  again.repeats = std::exchange(again.captured, notCaptured);
  lowered.nodes.push_back(again);
  lowered.edges.push_back({1, 2});
  lowered.nodes[0].accesses[0].buffer = other;
  residence_->add(lowered, blocks, reserved);
  {
    GraphEditor editor(driver_, graph, nullptr);
    const Expected<Repetitions> repetitions = lowerGraph(editor, lowered, step, captured, blocks, *residence_);
    ASSERT_TRUE(repetitions) << repetitions.error().message;
    ASSERT_EQ(repetitions->size(), 1u);
    const LiftedGraph lifted = *liftGraph(driver_, graph, *addresses_, nullptr);
    ASSERT_EQ(lifted.nodes.size(), 3u);
    EXPECT_EQ(lifted.nodes[0].words.front().value, reserved[0]->address());
    EXPECT_EQ(lifted.nodes[2].words, captured.nodes[0].words);

    const auto describe = [&](const Description &planned) {
      return describeRewritten(driver_, lifted, captured, step, planned, *repetitions, blocks, *residence_);
    };
    const Expected<RewrittenStep> rewritten = describe(lowered);
    ASSERT_TRUE(rewritten) << rewritten.error().message;
    const Node &described = rewritten->description.nodes[2];
    EXPECT_EQ(described.kind, NodeKind::Rematerialize);
    EXPECT_EQ(described.repeats, 0);
    EXPECT_EQ(described.captured, notCaptured);
    EXPECT_EQ(described.accesses, again.accesses);
    Description misplaced = lowered;
    misplaced.nodes[2].accesses[0].buffer = other;
    const Expected<RewrittenStep> unplanned = describe(misplaced);
    ASSERT_FALSE(unplanned);
    EXPECT_NE(unplanned.error().message.find("it has other parameters"), std::string::npos);
  }
  EXPECT_EQ(fake_.print(graph), before);
  fake_.destroyGraph(graph);
}

// Once the plan is in force a mirrored page has its value in its frame and at its place, whatever memory it had before.
// A page that no copy moves has a place behind those that copies name.
TEST_F(ResidenceTest, putsMirroredValuesInBothPlaces) {
  open(pagesInAll);
  for (const bool fromHostMemory : {false, true}) {
    for (const Index buffer : {weight, table})
      if (fromHostMemory) {
        ASSERT_TRUE(heap_->unback(block(buffer)));
        ASSERT_TRUE(heap_->backOnHost(block(buffer)));
      }
    setAtAddresses(start);
    ASSERT_TRUE(residence_->install());
    EXPECT_EQ(atAddress(weight, 0), 10u);
    EXPECT_EQ(atAddress(weight, 3), 40u);
    EXPECT_EQ(atAddress(table, 0), 1u);
    EXPECT_EQ(atPlace(0), 10u);
    EXPECT_EQ(atPlace(pageBytes), 20u);
    EXPECT_EQ(atPlace(2 * pageBytes), 1u);
    EXPECT_EQ(residence_->hostBytes(), copiedBytes + pageBytes);
    EXPECT_EQ(atPlace(copiedBytes), 40u);
    EXPECT_EQ(read(), start);
    EXPECT_EQ(residence_->frameCount(), planFrames);
    ASSERT_TRUE(residence_->remove(Keep::EveryBlock));
    setAtAddresses({}); // the second round has to bring them anew
    std::memset(residence_->pool().at(0), 0, residence_->pool().bytes());
  }
}

// Another step's copies go where pages are already; what has no place yet gets one behind them, in a pool of its own.
TEST_F(ResidenceTest, givesAnotherStepTheSamePlaces) {
  open(pagesInAll);
  const std::vector<BlockId> blocks{step_.blocks[weight], step_.blocks[loss]};
  const std::unique_ptr<Residence> others = residence_->forStep(blocks);
  Description step;
  step.buffers = {lowered_.buffers[weight], lowered_.buffers[loss]};
  const Expected<Description> boundary = others->boundaryFor(step, blocks);
  ASSERT_TRUE(boundary);
  // The table stays in its frame, and this step does not know it: its frame comes last, and is none of the boundary's.
  EXPECT_EQ(others->blocksInFramesBeside(blocks), std::vector<BlockId>{step_.blocks[table]});
  EXPECT_EQ(others->unknownFrames(), 1u);
  EXPECT_EQ(boundary->budgetBytes, (planFrames - 1) * pageBytes);
  EXPECT_EQ(boundary->buffers[0].resident, lowered_.buffers[weight].resident);
  EXPECT_EQ(boundary->buffers[0].mirrored, lowered_.buffers[weight].mirrored);

  step.buffers = boundary->buffers;
  Node copy;
  copy.kind = NodeKind::CopyToHost;
  copy.name = "all";
  copy.range = {0, step.buffers[0].size};
  step.nodes.push_back(copy);
  others->add(step, blocks);
  ASSERT_TRUE(others->pin());
  // Pages 0 and 1 have places beside each other, page 3 has one elsewhere, and page 2 has none yet.
  const Description placed = others->withPlaces(step, blocks);
  ASSERT_EQ(placed.nodes.size(), 3u);
  EXPECT_EQ(placed.nodes[0].range, (Range{0, 2 * pageBytes}));
  EXPECT_EQ(placed.nodes[0].hostOffset, 0u);
  EXPECT_EQ(placed.nodes[1].range, (Range{2 * pageBytes, pageBytes}));
  EXPECT_EQ(placed.nodes[1].hostOffset, residence_->pool().bytes());
  EXPECT_EQ(placed.nodes[2].range, (Range{3 * pageBytes, step.buffers[0].size - 3 * pageBytes}));
  EXPECT_EQ(placed.nodes[2].hostOffset, copiedBytes);
  EXPECT_EQ(placed.edges, (std::vector<Edge>{{0, 1}, {1, 2}}));
  EXPECT_EQ(others->pool().at(0), residence_->pool().at(0)); // the same memory
}

// A block without memory has no value, but frame and place agree on what is there.
TEST_F(ResidenceTest, mirrorsWhatHasNoValueYet) {
  open(pagesInAll);
  std::memset(pointers_[weight], 7, weightBytes);
  ASSERT_TRUE(heap_->unback(block(weight))); // the plan takes these frames
  ASSERT_TRUE(residence_->install());
  EXPECT_NE(atAddress(weight, 0), 0u);
  EXPECT_TRUE(mirrorsAgree());
}

// Replay after replay fetches what the one before left at the place.
TEST_F(ResidenceTest, replaysGiveUpFramesOfMirroredPages) {
  open(pagesInAll);
  setAtAddresses(start);
  ASSERT_TRUE(residence_->install());
  for (int steps = 1; steps <= 4; ++steps) {
    replay();
    EXPECT_EQ(read(), after(steps));
    EXPECT_TRUE(mirrorsAgree());
  }
}

// Under a loan every value is at its address. What is written there counts in the next replay, which gives up the frame
// and fetches the value from its place. Pages that are away come into their own frames: nothing is mapped.
TEST_F(ResidenceTest, loansRefreshMirrors) {
  open(pagesInAll);
  setAtAddresses(start);
  ASSERT_TRUE(residence_->install());
  replay(2);
  const std::uint64_t mapped = fake_.callsOf("cuMemMap");
  ASSERT_TRUE(residence_->lend(step_.blocks[weight]));
  EXPECT_EQ(fake_.callsOf("cuMemMap"), mapped);
  for (std::uint64_t page = 0; page < 4; ++page)
    EXPECT_EQ(atAddress(weight, page), after(2).weight[page]);
  const Values changed{{100, 200, 300, 400}, 1};
  for (std::uint64_t page = 0; page < 4; ++page)
    setAtAddress(weight, page, changed.weight[page]);
  ASSERT_TRUE(residence_->giveBack(step_.blocks[weight]));
  EXPECT_EQ(read(), changed);
  EXPECT_TRUE(mirrorsAgree());
  replay(2);
  EXPECT_EQ(read(), after(2, changed));
}

// Where no frame is left beside those of other loans of the call and of exclusive buffers, a block is lent in host
// memory.
TEST_F(ResidenceTest, lendsInHostMemoryWhereNoFrameIsLeft) {
  open(pagesInAll);
  setAtAddresses(start);
  ASSERT_TRUE(residence_->install());
  replay();
  ASSERT_TRUE(
      residence_->bring(std::vector{step_.blocks[weight], step_.blocks[table], step_.blocks[scratch]}, Use::Write));
  EXPECT_EQ(fake_.hostBackings(), 1u);
  setAtAddress(scratch, 0, 77);
  EXPECT_EQ(atAddresses(), after(1));
  const std::uint64_t departures = departures_;
  ASSERT_TRUE(residence_->settle());
  EXPECT_GT(departures_, departures);
  EXPECT_EQ(fake_.hostBackings(), 0u);
  EXPECT_EQ(read(), after(1));
  replay();
  EXPECT_EQ(read(), after(2));
}

// A block that is on the device with every page is lent where it is; what is written there is mirrored when the last
// loan ends.
TEST_F(ResidenceTest, loansInPlaceRefreshMirrors) {
  open(pagesInAll);
  setAtAddresses(start);
  ASSERT_TRUE(residence_->install());
  replay(2);
  const std::uint64_t mapped = fake_.callsOf("cuMemMap");
  ASSERT_TRUE(residence_->lend(step_.blocks[table]));
  ASSERT_TRUE(residence_->lend(step_.blocks[table]));
  EXPECT_EQ(atAddress(table, 0), 1u);
  setAtAddress(table, 0, 5);
  ASSERT_TRUE(residence_->giveBack(step_.blocks[table]));
  setAtAddress(table, 0, 1000);
  ASSERT_TRUE(residence_->giveBack(step_.blocks[table]));
  EXPECT_EQ(fake_.callsOf("cuMemMap"), mapped);
  EXPECT_TRUE(mirrorsAgree());
  Values expected = after(2);
  expected.table = 1000;
  replay(2);
  EXPECT_EQ(read(), after(2, expected));
}

// A copy that fails while a loan is given back leaves frame and place apart: the step can no longer be used.
TEST_F(ResidenceTest, isLostWhenAMirrorCannotBeRefreshed) {
  open(pagesInAll);
  setAtAddresses(start);
  ASSERT_TRUE(residence_->install());
  ASSERT_TRUE(residence_->lend(step_.blocks[table]));
  EXPECT_FALSE(residence_->lost());
  fake_.failCall("cuMemcpyDtoHAsync", 1, CUDA_ERROR_INVALID_VALUE);
  EXPECT_FALSE(residence_->giveBack(step_.blocks[table]));
  EXPECT_TRUE(residence_->lost());
}

/// The same for tests that need many, one after the other.
class Installed : public ResidenceTest {
public:
  explicit Installed(std::uint64_t frames) {
    open(frames);
    setAtAddresses(start);
    EXPECT_TRUE(residence_->install());
  }
  ~Installed() override { TearDown(); }
  void TestBody() override {}
  using ResidenceTest::atAddresses, ResidenceTest::fake_, ResidenceTest::frames_, ResidenceTest::read,
      ResidenceTest::residence_;
  BlockId lent() const { return step_.blocks[weight]; }
  /// More than there are frames for: one of them is lent in host memory.
  std::vector<BlockId> everything() const { return {step_.blocks.begin(), step_.blocks.begin() + loss}; }
};

// Where one call of the driver fails, values are where they should be and the next attempt succeeds; or the block is
// between two states, and that is known.
TEST(FailingLoan, LeavesNothingBehindOrSaysSo) {
  int lost = 0, kept = 0;
  for (const char *call : {"cuMemCreate", "cuMemMap", "cuMemSetAccess", "cuMemUnmap", "cuMemcpyDtoDAsync",
                           "cuMemcpyDtoHAsync", "cuMemcpyHtoDAsync", "cuCtxSynchronize"})
    for (int nth = 1; nth <= 4; ++nth) {
      Installed test(pagesInAll);
      test.fake_.failCall(call, nth, CUDA_ERROR_UNKNOWN);
      const Status brought = test.residence_->bring(test.everything(), Use::Write);
      test.fake_.stopFailing(call);
      if (test.residence_->lost()) {
        EXPECT_FALSE(brought);
        ++lost;
        continue;
      }
      if (!brought) {
        ++kept;
        ASSERT_TRUE(test.residence_->bring(test.everything(), Use::Write)) << call << " " << nth;
      }
      EXPECT_EQ(test.atAddresses(), start) << call << " " << nth;
      ASSERT_TRUE(test.residence_->settle());
      const bool isUnmapped = std::string_view(call) != "cuMemUnmap"; // else the driver keeps it
      EXPECT_TRUE(!isUnmapped || test.fake_.hostBackings() == 0) << call << " " << nth;
      EXPECT_EQ(test.read(), start) << call << " " << nth;
    }
  EXPECT_GT(lost, 0);
  EXPECT_GT(kept, 3);
}

// What cannot be returned yet stays lent.
TEST(FailingLoan, MayBeReturnedOnceMore) {
  Installed test(pagesInAll);
  ASSERT_TRUE(test.residence_->lend(test.lent()));
  test.fake_.failCall("cuCtxSynchronize", 1, CUDA_ERROR_UNKNOWN);
  EXPECT_FALSE(test.residence_->giveBack(test.lent()));
  test.fake_.stopFailing("cuCtxSynchronize");
  EXPECT_FALSE(test.residence_->lost());
  EXPECT_TRUE(test.residence_->lendsAnything());
  ASSERT_TRUE(test.residence_->giveBack(test.lent()));
  EXPECT_FALSE(test.residence_->lendsAnything());
  EXPECT_EQ(test.read(), start);
}

// Only what is on the device and nowhere else may be written without a loan.
TEST_F(ResidenceTest, mirroredBlocksAreNotWhollyResident) {
  open(pagesInAll);
  EXPECT_TRUE(residence_->isWhollyResident(step_.blocks[loss]));
  EXPECT_FALSE(residence_->isWhollyResident(step_.blocks[table]));
  EXPECT_FALSE(residence_->isWhollyResident(step_.blocks[weight]));
}

// Values written from outside go to both places.
TEST_F(ResidenceTest, writesValuesToBothPlaces) {
  open(pagesInAll);
  setAtAddresses(start);
  ASSERT_TRUE(residence_->install());
  replay();
  std::vector<char> bytes(weightBytes);
  for (std::uint64_t page = 0; page < 4; ++page)
    word(bytes.data(), page * pageBytes) = 7;
  ASSERT_TRUE(residence_->writeValue(step_.blocks[weight], bytes.data()));
  ASSERT_TRUE(residence_->writeValue(step_.blocks[table], bytes.data()));
  const Values written{{7, 7, 7, 7}, 7};
  EXPECT_EQ(read(), written);
  EXPECT_EQ(atAddress(weight, 3), 7u);
  EXPECT_TRUE(mirrorsAgree());
  replay();
  EXPECT_EQ(read(), after(1, written));
}

// Taken back, on the device or in host memory, every block has its value at its address; what is written there
// meanwhile counts once the plan is in force again.
TEST_F(ResidenceTest, takesMirroredValuesBack) {
  open(pagesInAll);
  setAtAddresses(start);
  for (const bool toHost : {false, true}) {
    ASSERT_TRUE(residence_->install());
    replay();
    const std::set<BlockId> leaving =
        toHost ? std::set<BlockId>{step_.blocks[weight], step_.blocks[table]} : std::set<BlockId>{};
    ASSERT_TRUE(residence_->remove(Keep::EveryBlock, leaving));
    EXPECT_EQ(block(weight).backing, toHost ? Backing::Host : Backing::Device);
    EXPECT_EQ(block(table).backing, toHost ? Backing::Host : Backing::Device);
    EXPECT_EQ(atAddresses(), after(1));
    setAtAddresses(start);
  }
  ASSERT_TRUE(residence_->install());
  EXPECT_TRUE(mirrorsAgree());
  replay(3);
  EXPECT_EQ(read(), after(3));
}

// A loan that is still out when the plan is taken back ends with its value.
TEST_F(ResidenceTest, takesLoansBack) {
  open(pagesInAll);
  setAtAddresses(start);
  ASSERT_TRUE(residence_->install());
  for (const Index buffer : {weight, table})
    ASSERT_TRUE(residence_->lend(step_.blocks[buffer]));
  const Values changed{{5, 6, 7, 8}, 9};
  setAtAddresses(changed);
  ASSERT_TRUE(residence_->remove(Keep::EveryBlock));
  EXPECT_EQ(atAddresses(), changed);
}

// The first byte that is not the same at the place is found, in the page where it is.
TEST_F(ResidenceTest, findsStaleMirrors) {
  open(pagesInAll);
  setAtAddresses(start);
  ASSERT_TRUE(residence_->install());
  std::vector<char> bytes(weightBytes);
  ASSERT_TRUE(residence_->readValue(step_.blocks[weight], bytes.data()));
  EXPECT_EQ(residence_->firstStale(step_.blocks[weight], bytes.data()), std::nullopt);
  bytes[pageBytes] ^= 1;     // at its place alone
  bytes[2 * pageBytes] ^= 1; // in its frame alone
  EXPECT_EQ(residence_->firstStale(step_.blocks[weight], bytes.data()), std::nullopt);
  bytes[weightBytes - 1] ^= 1;
  EXPECT_EQ(residence_->firstStale(step_.blocks[weight], bytes.data()), weightBytes - 1);
  bytes[17] ^= 1;
  EXPECT_EQ(residence_->firstStale(step_.blocks[weight], bytes.data()), 17u);
}

// Two pages of a buffer, which need not have neighbouring frames, move in one copy a direction, and are found again in
// it.
TEST_F(ResidenceTest, movesRowsInOneCopy) {
  open(pagesInAll, true);
  setAtAddresses(start);
  ASSERT_TRUE(residence_->install());
  const Expected<LiftedGraph> lifted = liftGraph(driver_, graph_, *addresses_, nullptr);
  ASSERT_TRUE(lifted);
  std::vector<std::size_t> rows;
  for (const LiftedNode &node : lifted->nodes)
    if (node.copy)
      rows.push_back(node.copy->Height);
  std::sort(rows.begin(), rows.end());
  EXPECT_EQ(rows, (std::vector<std::size_t>{1, 2, 2}));
  const Expected<RewrittenStep> rewritten =
      describeRewritten(driver_, *lifted, captured_, step_, lowered_, {}, step_.blocks, *residence_);
  ASSERT_TRUE(rewritten) << rewritten.error().message;
  const auto copiesOf = [](const Description &step) {
    std::vector<std::tuple<NodeKind, BufferIndex, std::uint64_t, std::uint64_t, std::uint64_t, bool>> copies;
    for (const Node &node : step.nodes)
      if (isCopy(node.kind))
        copies.push_back({node.kind, node.buffer, node.range.offset, node.range.size, node.hostOffset, node.joined});
    std::sort(copies.begin(), copies.end());
    return copies;
  };
  EXPECT_EQ(copiesOf(rewritten->description), copiesOf(lowered_));
  EXPECT_EQ(rewritten->nodes.size(), rewritten->description.nodes.size());
  const JoinedCopies joined(rewritten->description);
  EXPECT_EQ(joined.all().size(), 2u);
  for (const CopyRows &copy : joined.all())
    EXPECT_EQ(joined.faultOf(copy), "");
  replay(3);
  EXPECT_EQ(read(), after(3));

  // In other frames as well, at the same addresses.
  ASSERT_TRUE(residence_->remove(Keep::EveryBlock));
  EXPECT_EQ(atAddresses(), after(3));
  ASSERT_TRUE(residence_->install());
  replay(2);
  EXPECT_EQ(read(), after(5));
}

// Rows of which some have their places in memory that comes later are copies of their own.
TEST_F(ResidenceTest, takesRowsApartThatNoPieceOfMemoryHolds) {
  open(pagesInAll, true);
  ASSERT_TRUE(residence_->install());
  const Description placed = residence_->withPlaces(lowered_, step_.blocks);
  EXPECT_EQ(JoinedCopies(placed).all().size(), 2u);
  Description larger = lowered_;
  for (Node &node : larger.nodes)
    if (isCopy(node.kind) && node.joined)
      node.range = {2 * pageBytes, pageBytes}; // has no place yet
  const std::unique_ptr<Residence> others = residence_->forStep(step_.blocks);
  others->add(larger, step_.blocks);
  EXPECT_TRUE(JoinedCopies(others->withPlaces(larger, step_.blocks)).all().empty());
}

// Frames that a mirrored page gives up are poisoned for the tenant that follows; the page itself comes back whole.
TEST_F(ResidenceTest, poisonsFramesOfMirroredPages) {
  open(pagesInAll);
  setAtAddresses(start);
  ASSERT_TRUE(residence_->install());
  const Expected<LiftedGraph> lifted = liftGraph(driver_, graph_, *addresses_, nullptr);
  ASSERT_TRUE(lifted);
  const Expected<RewrittenStep> rewritten =
      describeRewritten(driver_, *lifted, captured_, step_, lowered_, {}, step_.blocks, *residence_);
  ASSERT_TRUE(rewritten) << rewritten.error().message;
  EXPECT_EQ(rewritten->description.buffers[weight].mirrored, lowered_.buffers[weight].mirrored);
  const Expected<std::uint64_t> fills = poisonHandOvers(*editor_, rewritten->description, rewritten->nodes);
  ASSERT_TRUE(fills);
  EXPECT_EQ(*fills, 2u); // both pages of the scratch
  editor_->commit();
  replay(3);
  EXPECT_EQ(read(), after(3));
}

} // namespace
