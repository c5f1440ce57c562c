// SPDX-License-Identifier: Apache-2.0
#include "test/unit/graph/RandomDescription.h"

#include "pumpgraph/graph/Ranges.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>

namespace pumpgraph {
namespace {

using test::dump;
using test::randomDescription;

TEST(Description, CountsThePagesOfTheLargestSize) {
  Description step;
  step.pageBytes = 4096;
  step.buffers.emplace_back().size = UINT64_MAX;
  EXPECT_EQ(step.pageCount(0), std::uint64_t{1} << 52);
  step.buffers[0].size = 1;
  EXPECT_EQ(step.pageCount(0), 1u);
}

TEST(DescriptionView, comesBackEqual) {
  for (std::uint32_t seed = 0; seed < 500; ++seed) {
    const Description description = randomDescription(seed);
    ASSERT_EQ(validate(description), "") << dump(description);
    Description copy;
    std::string error;
    ASSERT_TRUE(fromC(*DescriptionView(description).get(), copy, error)) << error;
    ASSERT_EQ(dump(copy), dump(description)) << "seed " << seed;
  }
}

TEST(FromC, refusesAnotherVersion) {
  const Description description = randomDescription(1);
  pumpgraph_description view = *DescriptionView(description).get();
  view.version = PUMPGRAPH_DESCRIPTION_VERSION + 1;
  Description out;
  std::string error;
  EXPECT_FALSE(fromC(view, out, error));
  EXPECT_EQ(error, "description version 12; this library knows version 11");
}

TEST(FromC, refusesMissingArrays) {
  pumpgraph_description view{};
  view.version = PUMPGRAPH_DESCRIPTION_VERSION;
  view.name = "step";
  view.page_bytes = 4096;
  view.node_count = 3;
  Description out;
  std::string error;
  EXPECT_FALSE(fromC(view, out, error));
  EXPECT_EQ(error, "3 nodes are announced but missing");
}

TEST(FromC, refusesMissingRanges) {
  const Description description = randomDescription(1);
  const DescriptionView view(description);
  for (const bool hosted : {false, true}) {
    pumpgraph_buffer buffer = view.get()->buffers[0];
    (hosted ? buffer.hosted : buffer.mirrored) = nullptr;
    (hosted ? buffer.hosted_count : buffer.mirrored_count) = 2;
    pumpgraph_description changed = *view.get();
    changed.buffers = &buffer;
    changed.buffer_count = 1;
    Description out;
    std::string error;
    EXPECT_FALSE(fromC(changed, out, error));
    EXPECT_EQ(error, hosted ? "buffer 0: its hosted ranges are announced but missing"
                            : "buffer 0: its mirrored ranges are announced but missing");
  }
}

TEST(FromC, leavesItsArgumentAloneOnError) {
  Description broken = randomDescription(1);
  broken.pageBytes = 0;
  Description out = randomDescription(2);
  std::string error;
  EXPECT_FALSE(fromC(*DescriptionView(broken).get(), out, error));
  EXPECT_EQ(dump(out), dump(randomDescription(2)));
}

TEST(Stage, isNamedWhereItIsTheWrongOne) {
  Description step;
  EXPECT_EQ(wrongStage(step, {Stage::Captured}), "");
  EXPECT_EQ(wrongStage(step, {Stage::Planned}), "the step is captured; it has to be planned");
  step.stage = Stage::LoweredManaged;
  EXPECT_EQ(wrongStage(step, {Stage::Captured, Stage::Planned, Stage::LoweredVirtual}),
            "the step is lowered for managed memory; it has to be captured, planned or lowered for virtual memory");
}

// A C enum field may hold anything; 256 must not be cut to 0.
TEST(FromC, refusesWideStages) {
  const Description description = randomDescription(1);
  const DescriptionView view(description);
  pumpgraph_description changed = *view.get();
  changed.stage = 256;
  Description out;
  std::string error;
  EXPECT_FALSE(fromC(changed, out, error));
  EXPECT_EQ(error, "255 is not a stage of a step");
}

TEST(FromC, refusesWideEnumValues) {
  Description description = randomDescription(1);
  description.nodes.assign(2, Node{});
  description.edges = {{0, 1, EdgeKind::Full}};
  const DescriptionView view(description);
  pumpgraph_edge edge = view.get()->edges[0];
  edge.kind = 256;
  pumpgraph_description changed = *view.get();
  changed.edges = &edge;
  Description out;
  std::string error;
  EXPECT_FALSE(fromC(changed, out, error));
  EXPECT_EQ(error, "edge 0: 255 is not a kind of edge");
}

TEST(Covers, everyByteOrNot) {
  const std::vector<Range> ranges{{2, 2}, {4, 4}, {10, 2}};
  EXPECT_TRUE(covers(ranges, {2, 6}));
  EXPECT_TRUE(covers(ranges, {3, 2}));
  EXPECT_TRUE(covers(ranges, {11, 1}));
  EXPECT_FALSE(covers(ranges, {1, 2}));
  EXPECT_FALSE(covers(ranges, {6, 5}));
  EXPECT_FALSE(covers(ranges, {11, 2}));
  EXPECT_FALSE(covers({}, {0, 1}));
}

TEST(Ranges, withOrWithoutAnother) {
  using Ranges = std::vector<Range>;
  const Ranges ranges{{2, 2}, {6, 4}, {12, 2}};
  EXPECT_EQ(with(ranges, {4, 2}), (Ranges{{2, 8}, {12, 2}}));
  EXPECT_EQ(with(ranges, {0, 1}), (Ranges{{0, 1}, {2, 2}, {6, 4}, {12, 2}}));
  EXPECT_EQ(with(ranges, {14, 1}), (Ranges{{2, 2}, {6, 4}, {12, 3}}));
  EXPECT_EQ(with(ranges, {3, 10}), (Ranges{{2, 12}}));
  EXPECT_EQ(with(ranges, {7, 1}), ranges);
  EXPECT_EQ(with({}, {7, 1}), (Ranges{{7, 1}}));
  EXPECT_EQ(without(ranges, {4, 2}), ranges);
  EXPECT_EQ(without(ranges, {7, 1}), (Ranges{{2, 2}, {6, 1}, {8, 2}, {12, 2}}));
  EXPECT_EQ(without(ranges, {3, 10}), (Ranges{{2, 1}, {13, 1}}));
  EXPECT_EQ(without(ranges, {2, 12}), Ranges{});
  EXPECT_EQ(without({}, {7, 1}), Ranges{});
}

/// Two kernels and an eviction over a private buffer of two pages of 4 KiB and an exclusive one.
Description smallStep() {
  Description description;
  description.stage = Stage::Planned;
  description.pageBytes = 4096;
  description.buffers.resize(2);
  description.buffers[0].name.push_back('a');
  description.buffers[0].size = 8192;
  description.buffers[0].isPrivate = true;
  description.buffers[1].name = "input";
  description.buffers[1].size = 100;
  description.nodes.resize(3);
  description.nodes[0].name.push_back('k');
  description.nodes[0].accesses = {Access{0, {0, 8192}}, Access{1, {0, 100}}};
  description.nodes[1].kind = NodeKind::Evict;
  description.nodes[1].range = {0, 4096};
  description.edges = {{0, 1, EdgeKind::Full}, {1, 2, EdgeKind::Full}};
  return description;
}

struct Fault {
  const char *name;
  std::function<void(Description &)> make;
  const char *message;
};

class Validate : public testing::TestWithParam<Fault> {};

TEST_P(Validate, saysWhatIsWrong) {
  Description description = smallStep();
  ASSERT_EQ(validate(description), "");
  GetParam().make(description);
  EXPECT_EQ(validate(description), GetParam().message);
}

const Fault faults[] = {
    {"name", [](Description &d) { d.name.clear(); }, "the step has no name"},
    {"page", [](Description &d) { d.pageBytes = 0; }, "the page size is 0 bytes"},
    {"budget", [](Description &d) { d.budgetBytes = ~0ull; },
     "18446744073709551615 bytes are more than can be represented"},
    {"bufferSize", [](Description &d) { d.buffers[1].size = 0; }, "buffer 1 \"input\": its size is 0 bytes"},
    {"address", [](Description &d) { d.buffers[1].address = 0x7fffffffffffffff; },
     "buffer 1 \"input\": 100 bytes at address 0x7fffffffffffffff leave the address space"},
    {"pages", [](Description &d) { d.buffers[0].size = 4096 * mostPages + 1; },
     "buffer 0 \"a\": it has 67108865 pages; at most 67108864 can be planned"},
    {"stage", [](Description &d) { d.stage = static_cast<Stage>(4); }, "4 is not a stage of a step"},
    {"capturedWithATransfer", [](Description &d) { d.stage = Stage::Captured; },
     "node 1 \"\": it is a plan's evict, prefetch or discard, but the step is captured"},
    {"capturedWithACopy",
     [](Description &d) {
       d.stage = Stage::Captured;
       d.nodes[1].kind = NodeKind::CopyToHost;
     },
     "node 1 \"\": it is a lowered copy, but the step is captured"},
    {"capturedWithFrames",
     [](Description &d) {
       d.stage = Stage::Captured;
       d.buffers[0].frames = {0, 1};
     },
     "buffer 0 \"a\": it names frames, but the step is captured"},
    {"capturedThatContinues",
     [](Description &d) {
       d.stage = Stage::Captured;
       d.buffers[1].continues = 0;
     },
     "buffer 1 \"input\": it continues another one, but the step is captured"},
    {"plannedWithACopy", [](Description &d) { d.nodes[1].kind = NodeKind::CopyToHost; },
     "node 1 \"\": it is a lowered copy, but the step is planned"},
    {"plannedWithAdvice", [](Description &d) { d.nodes[1].kind = NodeKind::Advise; },
     "node 1 \"\": it is advice, but the step is planned"},
    {"copiesWithATransfer", [](Description &d) { d.stage = Stage::LoweredVirtual; },
     "node 1 \"\": it is a plan's evict, prefetch or discard, but the step is lowered for virtual memory"},
    {"operationsWithACopy",
     [](Description &d) {
       d.stage = Stage::LoweredManaged;
       d.nodes[1].kind = NodeKind::CopyToDevice;
     },
     "node 1 \"\": it is a lowered copy, but the step is lowered for managed memory"},
    {"frameCount", [](Description &d) { d.buffers[0].frames = {1}; },
     "buffer 0 \"a\": it has 2 pages but names 1 frames"},
    {"frame", [](Description &d) { d.buffers[0].frames = {1, -2}; }, "buffer 0 \"a\": page 1 names frame -2"},
    {"residentOutside", [](Description &d) { d.buffers[0].resident = {{4096, 8192}}; },
     "buffer 0 \"a\": the resident range [4096, 8192] is not inside its 8192 bytes"},
    {"residentMisaligned", [](Description &d) { d.buffers[0].resident = {{0, 100}}; },
     "buffer 0 \"a\": the resident range [0, 100] is not made of whole pages of 4096 bytes"},
    {"residentOrder", [](Description &d) { d.buffers[0].resident = {{4096, 4096}, {0, 4096}}; },
     "buffer 0 \"a\": the resident range [0, 4096] begins before byte 8192, where the one before it ends"},
    {"mirroredOutside", [](Description &d) { d.buffers[0].mirrored = {{8192, 4096}}; },
     "buffer 0 \"a\": the mirrored range [8192, 4096] is not inside its 8192 bytes"},
    {"mirroredMisaligned", [](Description &d) { d.buffers[0].mirrored = {{0, 100}}; },
     "buffer 0 \"a\": the mirrored range [0, 100] is not made of whole pages of 4096 bytes"},
    {"mirroredOrder", [](Description &d) { d.buffers[0].mirrored = {{4096, 4096}, {0, 4096}}; },
     "buffer 0 \"a\": the mirrored range [0, 4096] begins before byte 8192, where the one before it ends"},
    {"mirroredNotResident",
     [](Description &d) {
       d.buffers[0].liveOut = true;
       d.buffers[0].resident = {{0, 4096}};
       d.buffers[0].mirrored = {{0, 8192}};
     },
     "buffer 0 \"a\": the mirrored range [0, 8192] is not inside the resident ones"},
    {"presentExclusive", [](Description &d) { d.buffers[1].isPresent = true; },
     "buffer 1 \"input\": it is present, but not private"},
    {"presentDead", [](Description &d) { d.buffers[0].isPresent = true; },
     "buffer 0 \"a\": it is present, but not live-out"},
    {"presentMirrored",
     [](Description &d) {
       d.buffers[0].isPresent = d.buffers[0].liveOut = true;
       d.buffers[0].resident = d.buffers[0].mirrored = {{0, 4096}};
     },
     "buffer 0 \"a\": it is present, but the range [0, 4096] is mirrored"},
    {"mirroredDead", [](Description &d) { d.buffers[0].resident = d.buffers[0].mirrored = {{0, 4096}}; },
     "buffer 0 \"a\": the range [0, 4096] is mirrored, but the buffer is not live-out"},
    {"mirroredExclusive", [](Description &d) { d.buffers[1].resident = d.buffers[1].mirrored = {{0, 100}}; },
     "buffer 1 \"input\": the range [0, 100] is mirrored, but the buffer is not private"},
    {"hostedMisaligned", [](Description &d) { d.buffers[0].hosted = {{0, 100}}; },
     "buffer 0 \"a\": the hosted range [0, 100] is not made of whole pages of 4096 bytes"},
    {"hostedResident",
     [](Description &d) {
       d.buffers[0].resident = {{4096, 4096}};
       d.buffers[0].hosted = {{0, 8192}};
     },
     "buffer 0 \"a\": the hosted range [0, 8192] is resident in part"},
    {"hostedExclusive", [](Description &d) { d.buffers[1].hosted = {{0, 100}}; },
     "buffer 1 \"input\": the range [0, 100] is hosted, but the buffer is not private"},
    {"continuesItself", [](Description &d) { d.buffers[0].continues = 0; },
     "buffer 0 \"a\" continues buffer 0, which does not come before it"},
    {"continuesAnotherSize", [](Description &d) { d.buffers[1].continues = 0; },
     "buffer 1 \"input\" continues buffer 0, which has 8192 bytes and not 100"},
    {"kind", [](Description &d) { d.nodes[2].kind = static_cast<NodeKind>(15); },
     "node 2 \"\": 15 is not a kind of node"},
    {"captured", [](Description &d) { d.nodes[0].captured = -2; },
     "node 0 \"k\": -2 is not a position in a captured graph"},
    {"cost", [](Description &d) { d.nodes[0].costUs = -1; }, "node 0 \"k\": its cost is -1 us"},
    {"arithmetic", [](Description &d) { d.nodes[0].arithmeticUs = std::nan(""); },
     "node 0 \"k\": its arithmetic takes nan us"},
    {"accessBuffer", [](Description &d) { d.nodes[0].accesses[1].buffer = 2; },
     "node 0 \"k\": access #1: there is no buffer 2"},
    {"accessRange", [](Description &d) { d.nodes[0].accesses[1].range = {100, 1}; },
     "node 0 \"k\": access #1: [100, 1] is not inside the 100 bytes of its buffer"},
    {"accessOverflow", [](Description &d) { d.nodes[0].accesses[1].range = {8, ~0ull}; },
     "node 0 \"k\": access #1: [8, 18446744073709551615] is not inside the 100 bytes of its buffer"},
    {"accessMode", [](Description &d) { d.nodes[0].accesses[0].may = modeNone; },
     "node 0 \"k\": access #0: 0 is not a mode"},
    {"accessMust",
     [](Description &d) {
       d.nodes[0].accesses[0].may = modeRead;
       d.nodes[0].accesses[0].must = modeWrite;
     },
     "node 0 \"k\": access #0: it must do 2 but may only do 1"},
    {"accessEvidence", [](Description &d) { d.nodes[0].accesses[0].evidence = static_cast<Evidence>(5); },
     "node 0 \"k\": access #0: 5 is not a kind of evidence"},
    {"accessParameter", [](Description &d) { d.nodes[0].accesses[0].parameter = -3; },
     "node 0 \"k\": access #0: -3 is not a position of a parameter"},
    {"accessSlowdown", [](Description &d) { d.nodes[0].accesses[0].slowdown = 0; },
     "node 0 \"k\": access #0: its slowdown is 0, no positive number"},
    {"asideOfNoPureNode",
     [](Description &d) {
       d.nodes[0].accesses[1].parameter = 2;
       d.nodes[0].accesses[1].isAside = true;
     },
     "node 0 \"k\": access #1: it is aside, but the node is not pure"},
    {"asideOfNoParameter",
     [](Description &d) {
       d.nodes[0].isPure = true;
       d.nodes[0].accesses[1].parameter = unknownParameter;
       d.nodes[0].accesses[1].isAside = true;
     },
     "node 0 \"k\": access #1: it is aside, but its parameter is not known"},
    {"asideInPart",
     [](Description &d) {
       d.nodes[0].isPure = true;
       d.nodes[0].accesses = {Access{1, {0, 10}}, Access{0, {8, 8}}, Access{0, {0, 9}}};
       d.nodes[0].accesses[2].parameter = 1;
       d.nodes[0].accesses[2].isAside = true;
     },
     "node 0 \"k\": access #1: it is not aside, but another one of the same bytes is"},
    {"asideOfRepetition",
     [](Description &d) {
       d.nodes[0].captured = 5;
       d.nodes[0].isPure = true;
       d.nodes[2] = d.nodes[0];
       d.nodes[2].kind = NodeKind::Rematerialize;
       d.nodes[2].captured = notCaptured;
       d.nodes[2].repeats = 5;
       d.nodes[2].accesses = {Access{1, {0, 10}}};
       d.nodes[2].accesses[0].parameter = 1;
       d.nodes[2].accesses[0].isAside = true;
     },
     "node 2 \"k\": access #0: it is aside, but a repetition leaves such accesses out"},
    {"transferBuffer", [](Description &d) { d.nodes[1].buffer = 9; }, "node 1 \"\": there is no buffer 9"},
    {"transferRange", [](Description &d) { d.nodes[1].range = {4096, 4097}; },
     "node 1 \"\": [4096, 4097] is not inside the 8192 bytes of its buffer"},
    {"transferMisaligned", [](Description &d) { d.nodes[1].range = {1, 4096}; },
     "node 1 \"\": [1, 4096] is not made of whole pages of 4096 bytes"},
    {"transferExclusive",
     [](Description &d) {
       d.nodes[1].buffer = 1;
       d.nodes[1].range = {0, 100};
     },
     "node 1 \"\": buffer 1 \"input\" is not private and may not leave the device"},
    {"transferAccess", [](Description &d) { d.nodes[1].accesses = {Access{0, {0, 1}}}; },
     "node 1 \"\": a node that moves a range has no accesses of its own"},
    {"advice",
     [](Description &d) {
       d.stage = Stage::LoweredManaged;
       d.nodes[1].kind = NodeKind::Advise;
     },
     "node 1 \"\": 0 is not an advice"},
    {"hostOffset",
     [](Description &d) {
       d.stage = Stage::LoweredVirtual;
       d.nodes[1].kind = NodeKind::CopyToHost;
       d.nodes[1].hostOffset = ~0ull;
     },
     "node 1 \"\": host offset 18446744073709551615 is more than can be represented"},
    {"capturedTwice",
     [](Description &d) {
       d.nodes[0].captured = 5;
       d.nodes[2].captured = 5;
     },
     "node 2 \"\": captured node 5 occurs twice"},
    {"repeatsUnsaid", [](Description &d) { d.nodes[2].repeats = 5; },
     "node 2 \"\": it repeats captured node 5, but is not rematerialized"},
    {"repeatsAndCaptured",
     [](Description &d) {
       d.nodes[0].captured = 5;
       d.nodes[2].kind = NodeKind::Rematerialize;
       d.nodes[2].captured = 6;
       d.nodes[2].repeats = 5;
     },
     "node 2 \"\": it is rematerialized, but captured as well"},
    {"repeatsNothing", [](Description &d) { d.nodes[2].kind = NodeKind::Rematerialize; },
     "node 2 \"\": it repeats captured node -1, which does not come before it"},
    {"repeatsWhatComesLater",
     [](Description &d) {
       d.nodes[0].kind = NodeKind::Rematerialize;
       d.nodes[0].captured = notCaptured;
       d.nodes[0].repeats = 5;
       d.nodes[2].captured = 5;
     },
     "node 0 \"k\": it repeats captured node 5, which does not come before it"},
    {"repeatsHostCall",
     [](Description &d) {
       d.nodes[0].kind = NodeKind::Host;
       d.nodes[0].captured = 5;
       d.nodes[2].kind = NodeKind::Rematerialize;
       d.nodes[2].repeats = 5;
     },
     "node 2 \"\": it repeats captured node 5, which is no kernel, copy or fill"},
    {"rematerializedOnManagedMemory",
     [](Description &d) {
       d.stage = Stage::LoweredManaged;
       d.nodes[0].captured = 5;
       d.nodes[1].kind = NodeKind::Prefetch;
       d.nodes[2].kind = NodeKind::Rematerialize;
       d.nodes[2].repeats = 5;
     },
     "node 2 \"\": it is rematerialized, but the step is lowered for managed memory"},
    {"pureHostCall",
     [](Description &d) {
       d.nodes[0].kind = NodeKind::Host;
       d.nodes[0].isPure = true;
     },
     "node 0 \"k\": it is pure, but no kernel, copy or fill"},
    {"edgeTarget", [](Description &d) { d.edges.push_back({0, 3, EdgeKind::Full}); }, "edge 2: there is no node 3"},
    {"edgeOrder", [](Description &d) { d.edges.push_back({2, 0, EdgeKind::Full}); },
     "edge 2: node 2 comes after node 0, which depends on it"},
    {"edgeItself", [](Description &d) { d.edges.push_back({1, 1, EdgeKind::Full}); },
     "edge 2: node 1 comes after node 1, which depends on it"},
    {"edgeKind", [](Description &d) { d.edges.push_back({0, 2, static_cast<EdgeKind>(2)}); },
     "edge 2: 2 is not a kind of edge"},
    {"edgeTwice", [](Description &d) { d.edges.push_back({0, 1, EdgeKind::Programmatic}); },
     "edge 2: nodes 0 and 1 are joined twice"},
};

INSTANTIATE_TEST_SUITE_P(Faults, Validate, testing::ValuesIn(faults),
                         [](const testing::TestParamInfo<Fault> &info) { return std::string(info.param.name); });

} // namespace
} // namespace pumpgraph
