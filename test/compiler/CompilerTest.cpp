// SPDX-License-Identifier: Apache-2.0
// The compiler library through its C functions, as a process that loads it sees it.
#include "pumpgraph/compiler.h"

#include "pumpgraph/graph/Description.h"
#include "pumpgraph/graph/Printable.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <memory>
#include <numeric>
#include <set>
#include <thread>
#include <vector>

namespace pumpgraph {
namespace {

constexpr std::uint64_t mebibyte = 1 << 20;

/// forward writes a, loss writes b, backward reads a: with 4 MiB, a must leave and come back.
Description smallStep() {
  Description step;
  for (const char *name : {"a", "b"}) {
    Buffer &buffer = step.buffers.emplace_back();
    buffer.name.assign(name);
    buffer.size = 4 * mebibyte;
    buffer.isPrivate = true;
  }
  const auto kernel = [&](const char *name, BufferIndex buffer, Mode mode) {
    Node &node = step.nodes.emplace_back();
    node.captured = static_cast<std::int32_t>(step.nodes.size()) - 1;
    node.name.assign(name);
    node.costUs = 100;
    Access &access = node.accesses.emplace_back();
    access.buffer = buffer;
    access.range = {0, 4 * mebibyte};
    access.may = mode;
    access.must = mode;
    access.evidence = Evidence::Declared;
  };
  kernel("forward", 0, modeWrite);
  kernel("loss", 1, modeWrite);
  kernel("backward", 0, modeRead);
  step.edges = {{0, 1, EdgeKind::Full}, {1, 2, EdgeKind::Full}};
  return step;
}

struct Freer {
  void operator()(pumpgraph_compilation *compilation) const { pumpgraph_compilation_free(compilation); }
  void operator()(char *string) const { pumpgraph_compiler_string_free(string); }
};
using Compilation = std::unique_ptr<pumpgraph_compilation, Freer>;
using String = std::unique_ptr<char, Freer>;

pumpgraph_compiler_options withBudget(std::uint64_t budgetBytes) {
  pumpgraph_compiler_options options{};
  options.struct_size = sizeof options;
  options.budget_bytes = budgetBytes;
  return options;
}

struct Outcome {
  pumpgraph_compiler_status status;
  Compilation compilation;

  const char *message() const { return pumpgraph_compilation_message(compilation.get()); }
  const pumpgraph_candidate *candidate(std::uint64_t position = 0) const {
    return pumpgraph_compilation_candidate(compilation.get(), position);
  }
  const pumpgraph_description *lowered() const { return candidate() ? candidate()->lowered : nullptr; }
  std::uint64_t savedTimes() const { return pumpgraph_compilation_saved_times(compilation.get()); }
  const char *note(std::uint64_t position = 0) const { return pumpgraph_compilation_note(compilation.get(), position); }
};

Outcome compile(const Description &step, const pumpgraph_compiler_options &options) {
  pumpgraph_compilation *compilation = nullptr;
  const pumpgraph_compiler_status status =
      pumpgraph_compiler_compile(DescriptionView(step).get(), &options, &compilation);
  return {status, Compilation(compilation)};
}

Description copyOf(const pumpgraph_description *view) {
  Description description;
  std::string error;
  EXPECT_TRUE(fromC(*view, description, error)) << error;
  return description;
}

TEST(Compile, lowersAndReports) {
  const Outcome outcome = compile(smallStep(), withBudget(4 * mebibyte));
  ASSERT_EQ(outcome.status, PUMPGRAPH_COMPILED) << outcome.message();
  EXPECT_STREQ(outcome.message(), "");
  const Description lowered = copyOf(outcome.lowered());
  EXPECT_EQ(lowered.budgetBytes, 4 * mebibyte);
  EXPECT_EQ(std::count_if(lowered.nodes.begin(), lowered.nodes.end(), [](const Node &n) { return isCopy(n.kind); }), 2);
  EXPECT_STREQ(outcome.candidate()->name, "as predicted");
  EXPECT_EQ(outcome.candidate(1), nullptr);
  EXPECT_EQ(outcome.note(), nullptr);
  const auto report = nlohmann::json::parse(outcome.candidate()->report_json, nullptr, false);
  EXPECT_FALSE(report.is_discarded());
  EXPECT_NE(std::string(outcome.candidate()->report_text).find("4.00 MiB"), std::string::npos);
}

// What the program calls a node comes back with it, and is what the report says waits.
TEST(Compile, keepsLabels) {
  Description step = smallStep();
  step.nodes[2].label = "fc1 backward (mm)";
  const Outcome outcome = compile(step, withBudget(4 * mebibyte));
  ASSERT_EQ(outcome.status, PUMPGRAPH_COMPILED) << outcome.message();
  const Description lowered = copyOf(outcome.lowered());
  for (const Node &node : lowered.nodes)
    EXPECT_EQ(node.label, node.captured == 2 ? "fc1 backward (mm)" : "") << node.name;
  const std::string text = outcome.candidate()->report_text;
  EXPECT_NE(text.find("node 2 \"fc1 backward (mm)\""), std::string::npos) << text;
}

// Names come from binaries and programs: what a message or a report says of them is printable().
TEST(Compile, printsNoNameThatATerminalObeys) {
  const std::string hostile = "\x1b[31m\n\xe2\x80\xae\x9b";
  Description step = smallStep();
  step.name = step.buffers[0].name = step.buffers[1].name = hostile;
  for (Node &node : step.nodes)
    node.name = node.label = hostile;
  const auto expectPrintable = [](std::string_view text) {
    const auto lines = [](std::string_view bytes) { return bytes == "\n" ? "\n" : ""; };
    EXPECT_EQ(printable(text, lines), text);
    EXPECT_NE(text.find("x1b[31m"), std::string_view::npos) << text;
  };
  const Outcome outcome = compile(step, withBudget(4 * mebibyte));
  ASSERT_EQ(outcome.status, PUMPGRAPH_COMPILED) << outcome.message();
  expectPrintable(outcome.candidate()->report_json);
  expectPrintable(outcome.candidate()->report_text);
  EXPECT_EQ(copyOf(outcome.lowered()).nodes.front().name, hostile) << "the step has its names as they are";
  pumpgraph_compiler_options options = withBudget(2 * mebibyte);
  options.host_bytes = mebibyte;
  expectPrintable(compile(step, options).message());
  Description broken = copyOf(outcome.lowered());
  std::erase_if(broken.edges, [](const Edge &edge) { return edge.from == 0; });
  const String fault(pumpgraph_compiler_check(DescriptionView(broken).get(), nullptr));
  ASSERT_NE(fault, nullptr);
  expectPrintable(fault.get());
  step.nodes[1].accesses[0].buffer = 17;
  expectPrintable(compile(step, withBudget(0)).message());
}

TEST(Compile, addsNothingWhenEverythingFits) {
  const Outcome outcome = compile(smallStep(), withBudget(64 * mebibyte));
  ASSERT_EQ(outcome.status, PUMPGRAPH_COMPILED) << outcome.message();
  EXPECT_EQ(outcome.lowered()->node_count, 3u);
  EXPECT_EQ(outcome.lowered()->host_bytes, 0u);
}

TEST(Compile, withoutOptionsTheStepGetsWhatItNeeds) {
  const Description step = smallStep();
  pumpgraph_compilation *raw = nullptr;
  ASSERT_EQ(pumpgraph_compiler_compile(DescriptionView(step).get(), nullptr, &raw), PUMPGRAPH_COMPILED);
  const Compilation compilation(raw);
  EXPECT_EQ(pumpgraph_compilation_candidate(raw, 0)->lowered->budget_bytes, 8 * mebibyte);
}

// A caller built against a shorter struct: what lies behind it is not ours to read.
TEST(Compile, olderOptionsAreShorter) {
  pumpgraph_compiler_options options = withBudget(4 * mebibyte);
  options.struct_size = offsetof(pumpgraph_compiler_options, up_bytes_per_second);
  options.up_bytes_per_second = -1;
  EXPECT_EQ(compile(smallStep(), options).status, PUMPGRAPH_COMPILED);
}

TEST(Compile, unplannableNamesTheNode) {
  pumpgraph_compiler_options options = withBudget(2 * mebibyte);
  options.host_bytes = mebibyte; // else operands could be there
  const Outcome outcome = compile(smallStep(), options);
  EXPECT_EQ(outcome.status, PUMPGRAPH_COMPILER_UNPLANNABLE);
  EXPECT_NE(std::string(outcome.message()).find("\"forward\""), std::string::npos) << outcome.message();
  EXPECT_EQ(outcome.lowered(), nullptr);
}

TEST(Compile, refusesMalformedDescriptions) {
  Description step = smallStep();
  step.nodes[1].accesses[0].buffer = 17;
  const Outcome outcome = compile(step, withBudget(0));
  EXPECT_EQ(outcome.status, PUMPGRAPH_COMPILER_INVALID);
  EXPECT_STREQ(outcome.message(), "node 1 \"loss\": access #0: there is no buffer 17");
}

/// The small step at a stage that it has come to.
Description smallStepAt(Stage stage) {
  if (stage == Stage::Captured)
    return smallStep();
  pumpgraph_compiler_options options = withBudget(4 * mebibyte);
  options.managed = stage == Stage::LoweredManaged ? 1 : 0;
  Description step = copyOf(compile(smallStep(), options).lowered());
  if (stage == Stage::Planned)
    for (Node &node : step.nodes)
      if (isCopy(node.kind)) {
        node.kind = node.kind == NodeKind::CopyToHost ? NodeKind::Evict : NodeKind::Prefetch;
        node.hostOffset = 0;
      }
  EXPECT_TRUE(stage == Stage::Planned || step.stage == stage);
  step.stage = stage;
  return step;
}

// The same nodes mean other things at another stage: figures of a step lowered for managed memory are not those of
// copies. What is refused is told by both names.
TEST(Stages, areRefusedByEveryFunctionThatWorksOnOthers) {
  const auto message = [](Stage has, Stage wants) {
    return fmt::format("the step is {}; it has to be {}", stageName(has), stageName(wants));
  };
  const Description captured = smallStep(), copies = smallStepAt(Stage::LoweredVirtual),
                    operations = smallStepAt(Stage::LoweredManaged);
  Description boundary = captured; // which gives nothing
  boundary.stage = Stage::LoweredVirtual;
  boundary.nodes.clear();
  boundary.edges.clear();
  const DescriptionView capturedView(captured), copiesView(copies), operationsView(operations), boundaryView(boundary);
  const auto said = [](char *text) {
    const String owner(text);
    return std::string(text ? text : "");
  };
  double us = 0;
  for (const Stage stage : {Stage::Captured, Stage::Planned, Stage::LoweredVirtual, Stage::LoweredManaged}) {
    const Description step = smallStepAt(stage);
    const DescriptionView view(step);
    const auto expected = [&](Stage wanted) { return stage == wanted ? "" : message(stage, wanted); };
    EXPECT_EQ(compile(step, withBudget(4 * mebibyte)).message(), expected(Stage::Captured));
    EXPECT_EQ(said(pumpgraph_compiler_check(view.get(), capturedView.get())), expected(Stage::LoweredVirtual));
    EXPECT_EQ(said(pumpgraph_compiler_check_managed(view.get(), capturedView.get())), expected(Stage::LoweredManaged));
    EXPECT_EQ(said(pumpgraph_compiler_predict(view.get(), nullptr, &us)), expected(Stage::LoweredVirtual));
    EXPECT_EQ(said(pumpgraph_compiler_check_boundary(view.get(), boundaryView.get())), expected(Stage::LoweredVirtual));
    const auto within = [&](const char *what, Stage wanted) {
      return stage == wanted ? "" : what + message(stage, wanted);
    };
    const std::string kept = said(pumpgraph_compiler_check_boundary(copiesView.get(), view.get()));
    EXPECT_TRUE(stage == Stage::LoweredVirtual || kept == within("the boundary: ", Stage::LoweredVirtual)) << kept;
    EXPECT_EQ(said(pumpgraph_compiler_check(copiesView.get(), view.get())),
              within("the captured step: ", Stage::Captured));
    EXPECT_EQ(said(pumpgraph_compiler_check_managed(operationsView.get(), view.get())),
              within("the captured step: ", Stage::Captured));
    EXPECT_NE(said(pumpgraph_compiler_print(view.get(), nullptr)), "") << "a step of any stage is printed";
  }
}

// A step whose stage is not what its nodes say: no function looks at it.
TEST(Stages, areWhatTheNodesSay) {
  Description step = smallStepAt(Stage::LoweredVirtual);
  step.stage = Stage::LoweredManaged;
  double us = 0;
  const String fault(pumpgraph_compiler_predict(DescriptionView(step).get(), nullptr, &us));
  ASSERT_NE(fault, nullptr);
  EXPECT_NE(std::string(fault.get()).find("is a lowered copy, but the step is lowered for managed memory"),
            std::string::npos)
      << fault.get();
}

TEST(Compile, refusesMeaninglessBandwidths) {
  pumpgraph_compiler_options options = withBudget(0);
  options.both_bytes_per_second = -1;
  const Outcome outcome = compile(smallStep(), options);
  EXPECT_EQ(outcome.status, PUMPGRAPH_COMPILER_INVALID);
  EXPECT_STREQ(outcome.message(), "both_bytes_per_second is -1");
}

/// Bytes of each buffer that are hosted.
std::vector<std::uint64_t> hostedIn(const Description &lowered) {
  std::vector<std::uint64_t> bytes;
  for (const Buffer &buffer : lowered.buffers) {
    bytes.push_back(0);
    for (const Range &range : buffer.hosted)
      bytes.back() += range.size;
  }
  return bytes;
}

/// By the name of a candidate: what it hosts.
std::map<std::string, std::vector<std::uint64_t>> hostedByCandidate(const Outcome &outcome) {
  std::map<std::string, std::vector<std::uint64_t>> hosted;
  for (std::uint64_t i = 0; const pumpgraph_candidate *candidate = outcome.candidate(i); ++i)
    EXPECT_TRUE(hosted.emplace(candidate->name, hostedIn(copyOf(candidate->lowered))).second) << candidate->name;
  return hosted;
}

/// Of the candidate that hosts the most; of several such the last.
Description hostingMost(const Outcome &outcome) {
  Description most;
  std::uint64_t mostBytes = 0;
  for (std::uint64_t i = 0; const pumpgraph_candidate *candidate = outcome.candidate(i); ++i) {
    Description lowered = copyOf(candidate->lowered);
    const std::vector<std::uint64_t> hosted = hostedIn(lowered);
    const std::uint64_t bytes = std::accumulate(hosted.begin(), hosted.end(), std::uint64_t{0});
    if (bytes < mostBytes)
      continue;
    most = std::move(lowered);
    mostBytes = bytes;
  }
  return most;
}

// Of managed memory: operations are dear, so what nodes reach in host memory as fast as on the device stays there, if
// that was measured and may be, and where it has to.
TEST(Compile, hostsWhatIsFasterInHostMemory) {
  using Bytes = std::vector<std::uint64_t>;
  pumpgraph_compiler_options options = withBudget(4 * mebibyte);
  options.managed = options.every_access_known = 1;
  options.copy_overhead_us = 1000;
  const double fast[] = {101, 101, 101}, slow[] = {90'000, 90'000, 90'000};
  const std::uint8_t may[] = {1, 1}, must[] = {2, 0};
  Description step = smallStep();
  const auto hosted = [&](const std::uint8_t *hosting, const double *hostedUs) {
    options.hosting = hosting;
    options.hosted_us = hostedUs;
    const Outcome outcome = compile(step, options);
    EXPECT_EQ(outcome.status, PUMPGRAPH_COMPILED) << outcome.message();
    return hostedByCandidate(outcome);
  };
  const Bytes nothing = {0, 0};
  EXPECT_EQ(hosted(may, nullptr), (std::map<std::string, Bytes>{{"as predicted", nothing}})) << "nobody knows";
  EXPECT_EQ(hosted(may, slow), (std::map<std::string, Bytes>{{"nothing hosted by choice", nothing}}))
      << "no plan is there twice";
  std::map<std::string, Bytes> some = hosted(may, fast);
  EXPECT_EQ(some.extract("nothing hosted by choice").mapped(), nothing);
  ASSERT_FALSE(some.empty());
  for (const auto &[name, bytes] : some)
    EXPECT_EQ(bytes[0] + bytes[1], 4 * mebibyte) << name;
  for (const std::uint64_t bytes : {4 * mebibyte, 2 * mebibyte}) {
    step.buffers[0].hosted = {{4 * mebibyte - bytes, bytes}};
    for (const double *us : {static_cast<const double *>(nullptr), static_cast<const double *>(slow)})
      for (const auto &[name, stays] : hosted(must, us))
        EXPECT_EQ(stays, (Bytes{bytes, 0})) << name;
  }
}

// A pure node runs again where the link is slow, if the caller allows it.
TEST(Compile, runsPureNodesAgainIfAsked) {
  pumpgraph_compiler_options options = withBudget(4 * mebibyte);
  options.up_bytes_per_second = options.down_bytes_per_second = options.both_bytes_per_second = 1e9;
  Description step = smallStep();
  step.nodes.insert(step.nodes.begin() + 2, step.nodes[1]); // b is read once it is written
  step.nodes[2].accesses[0].may = step.nodes[2].accesses[0].must = modeRead;
  step.edges = {{0, 1}, {1, 2}, {2, 3}};
  for (std::size_t i = 0; i < step.nodes.size(); ++i)
    step.nodes[i].captured = static_cast<std::int32_t>(i);
  step.nodes[0].isPure = true;
  for (const std::int32_t rematerialize : {0, 1}) {
    options.rematerialize = rematerialize;
    const Outcome outcome = compile(step, options);
    ASSERT_EQ(outcome.status, PUMPGRAPH_COMPILED) << outcome.message();
    const std::vector<Node> nodes = copyOf(outcome.lowered()).nodes;
    EXPECT_EQ(std::any_of(nodes.begin(), nodes.end(),
                          [](const Node &node) { return node.kind == NodeKind::Rematerialize && node.repeats == 0; }),
              rematerialize == 1);
  }
}

// Each buffer was in host memory in a round of its own: so what nodes take over one is told from what they take over
// the other.
TEST(Compile, tellsOperandsApartByRounds) {
  pumpgraph_compiler_options options = withBudget(4 * mebibyte);
  options.managed = options.every_access_known = 1;
  options.copy_overhead_us = 1000;
  const std::uint8_t may[] = {1, 1};
  options.hosting = may;
  options.hosted_rounds = 2;
  for (const std::uint8_t fast : {std::uint8_t{0}, std::uint8_t{1}}) {
    const double hostedUs[] = {fast == 0 ? 101.0 : 90'000, fast == 0 ? 101.0 : 90'000, fast == 0 ? 101.0 : 90'000,
                               fast == 0 ? 90'000 : 101.0, fast == 0 ? 90'000 : 101.0, fast == 0 ? 90'000 : 101.0};
    options.hosted_us = hostedUs;
    for (const bool areSwapped : {false, true}) {
      const std::uint8_t round[] = {std::uint8_t{areSwapped}, std::uint8_t{!areSwapped}};
      options.hosted_round = round;
      const Outcome outcome = compile(smallStep(), options);
      ASSERT_EQ(outcome.status, PUMPGRAPH_COMPILED) << outcome.message();
      const std::vector<std::uint64_t> hosted = hostedIn(hostingMost(outcome));
      EXPECT_EQ(hosted[fast ^ static_cast<std::uint8_t>(areSwapped)], 4 * mebibyte);
      EXPECT_EQ(hosted[0] + hosted[1], 4 * mebibyte);
    }
  }
  const std::uint8_t noSuch[] = {0, 2};
  options.hosted_round = noSuch;
  const Outcome outcome = compile(smallStep(), options);
  EXPECT_EQ(outcome.status, PUMPGRAPH_COMPILER_INVALID);
  EXPECT_EQ(std::string(outcome.message()), "buffer 1 \"b\" was in host memory in round 2 of 2, which begin with 0");
}

// What the description has in host memory counts only where it is said to stay there.
TEST(Compile, looksAtNoOtherPagesInHostMemory) {
  pumpgraph_compiler_options options = withBudget(4 * mebibyte);
  const std::uint8_t hosting[] = {0, 0};
  for (const int managed : {0, 1}) {
    options.managed = options.every_access_known = managed;
    options.hosting = managed ? hosting : nullptr;
    Description step = smallStep();
    const Outcome without = compile(step, options);
    step.buffers[0].hosted = {{0, 4 * mebibyte}};
    const Outcome with = compile(step, options);
    ASSERT_EQ(with.status, PUMPGRAPH_COMPILED) << with.message();
    EXPECT_EQ(hostedIn(copyOf(with.lowered())), (std::vector<std::uint64_t>{0, 0}));
    const auto figuresOf = [](const Outcome &outcome) {
      const nlohmann::json report = nlohmann::json::parse(outcome.candidate()->report_json);
      return std::pair(report.at("in_memory_s").get<double>(), report.at("moving_bound_s").get<double>());
    };
    EXPECT_EQ(figuresOf(with), figuresOf(without));
  }
}

// There is room for all but half a buffer.
TEST(Compile, hostsPartsInSomePlansAndWholeBuffersInOthers) {
  pumpgraph_compiler_options options = withBudget(6 * mebibyte);
  options.managed = options.every_access_known = 1;
  options.copy_overhead_us = 1000;
  const double hostedUs[] = {300, 300, 300};
  const std::uint8_t may[] = {1, 1};
  options.hosting = may;
  options.hosted_us = hostedUs;
  const Outcome outcome = compile(smallStep(), options);
  ASSERT_EQ(outcome.status, PUMPGRAPH_COMPILED) << outcome.message();
  std::set<std::uint64_t> parts;
  std::map<std::string, std::vector<std::uint64_t>> hosted = hostedByCandidate(outcome);
  const std::vector<std::uint64_t> whole = hosted.extract("hosted whole").mapped();
  EXPECT_EQ(whole[0] + whole[1], 4 * mebibyte);
  for (const auto &[name, bytes] : hosted)
    parts.insert(bytes[0] + bytes[1]);
  EXPECT_EQ(parts, (std::set<std::uint64_t>{0, 2 * mebibyte}));
}

TEST(Compile, refusesMeaninglessHosting) {
  pumpgraph_compiler_options options = withBudget(4 * mebibyte);
  options.managed = 1;
  Description step = smallStep();
  const auto messageWith = [&](std::uint8_t first) {
    const std::uint8_t hosting[] = {first, 0};
    options.hosting = hosting;
    const Outcome outcome = compile(step, options);
    EXPECT_EQ(outcome.status, PUMPGRAPH_COMPILER_INVALID);
    return std::string(outcome.message());
  };
  const std::string bad = "it is 0 to 2, and 0 if the buffer stays on the device";
  EXPECT_EQ(messageWith(3), "hosting of buffer 0 \"a\" is 3; " + bad);
  EXPECT_EQ(messageWith(2), "hosting of buffer 0 \"a\" is 2, and the description has none of it in host memory");
  step.buffers[0].isPrivate = false;
  EXPECT_EQ(messageWith(1), "hosting of buffer 0 \"a\" is 1; " + bad);
}

TEST(Compile, takesSavedTimes) {
  pumpgraph_compiler_options options = withBudget(0);
  options.costs_ir = "pump.graph @saved { pump.kernel \"loss\" node(1) cost(7.5) }";
  const Outcome outcome = compile(smallStep(), options);
  ASSERT_EQ(outcome.status, PUMPGRAPH_COMPILED) << outcome.message();
  EXPECT_EQ(copyOf(outcome.lowered()).nodes[1].costUs, 7.5);
}

TEST(Compile, saysHowManyNodesHaveSavedTimes) {
  pumpgraph_compiler_options options = withBudget(0);
  options.costs_ir = "pump.graph @saved { pump.kernel \"loss\" node(1) cost(7.5) }";
  const Outcome outcome = compile(smallStep(), options);
  EXPECT_EQ(outcome.savedTimes(), 1u);
  EXPECT_STREQ(outcome.note(), "the saved step has times for 1 of 3 nodes, by position and name");
}

// print() says whose times they are, and compile() asks.
TEST(Compile, takesNoTimesOfAnotherDevice) {
  Description step = smallStep();
  for (Node &node : step.nodes)
    node.costUs = 7.5;
  const String saved(pumpgraph_compiler_print(DescriptionView(step).get(), "an old GPU"));
  ASSERT_NE(saved, nullptr);
  pumpgraph_compiler_options options = withBudget(0);
  options.costs_ir = saved.get();
  options.device = "a new GPU";
  const Outcome other = compile(smallStep(), options);
  ASSERT_EQ(other.status, PUMPGRAPH_COMPILED) << other.message();
  EXPECT_EQ(other.savedTimes(), 0u);
  EXPECT_STREQ(other.note(), "the saved node times are those of an old GPU; on a new GPU they are not used");
  EXPECT_NE(copyOf(other.lowered()).nodes[1].costUs, 7.5);

  for (const char *device : {"an old GPU", static_cast<const char *>(nullptr)}) {
    options.device = device;
    const Outcome same = compile(smallStep(), options);
    EXPECT_EQ(same.savedTimes(), step.nodes.size());
    EXPECT_EQ(same.note(), nullptr);
  }
}

TEST(Compile, saysWhereSavedTimesAreMalformed) {
  pumpgraph_compiler_options options = withBudget(0);
  options.costs_ir = "pump.graph @saved {\n  pump.kernel \"loss\" node(x)\n}";
  const Outcome outcome = compile(smallStep(), options);
  EXPECT_EQ(outcome.status, PUMPGRAPH_COMPILER_INVALID);
  EXPECT_STREQ(outcome.message(), "costs_ir:2:27: custom op 'pump.kernel' expected integer value");
}

TEST(Compile, savedTimesAreText) {
  pumpgraph_compiler_options options = withBudget(0);
  options.costs_ir = "ML\xef\x52\x0d";
  const Outcome outcome = compile(smallStep(), options);
  EXPECT_EQ(outcome.status, PUMPGRAPH_COMPILER_INVALID);
  EXPECT_STREQ(outcome.message(), "costs_ir is not text");
}

TEST(Compile, constantParametersNeedNotBeWrittenBack) {
  // a is live-in and only read, though the capture could not know: evicting it costs no copy.
  Description step = smallStep();
  step.buffers[0].liveIn = step.buffers[0].liveOut = true;
  for (const NodeIndex node : {0u, 2u}) {
    step.nodes[node].name.assign("_Z4readPKf");
    step.nodes[node].accesses[0] = Access{0, {0, 4 * mebibyte}, modeReadWrite, modeNone, Evidence::Assumed, 0};
  }
  const Outcome outcome = compile(step, withBudget(4 * mebibyte));
  ASSERT_EQ(outcome.status, PUMPGRAPH_COMPILED) << outcome.message();
  const Description lowered = copyOf(outcome.lowered());
  EXPECT_TRUE(std::any_of(lowered.nodes.begin(), lowered.nodes.end(), [](const Node &n) {
    return n.kind == NodeKind::Kernel && n.accesses[0].may == modeRead && n.accesses[0].evidence == Evidence::Declared;
  }));
  // The step as the driver gives it back does not say so again; the checker must not need it to.
  const DescriptionView captured(step);
  EXPECT_EQ(String(pumpgraph_compiler_check(outcome.lowered(), captured.get())), nullptr);
}

TEST(Check, acceptsWhatTheCompilerMade) {
  const Description step = smallStep();
  const Outcome outcome = compile(step, withBudget(4 * mebibyte));
  ASSERT_EQ(outcome.status, PUMPGRAPH_COMPILED);
  const String fault(pumpgraph_compiler_check(outcome.lowered(), DescriptionView(step).get()));
  EXPECT_EQ(fault, nullptr) << fault.get();
}

TEST(Check, refusesAPlanThatLostItsPrefetch) {
  const Outcome outcome = compile(smallStep(), withBudget(4 * mebibyte));
  Description broken = copyOf(outcome.lowered());
  const auto prefetch =
      std::find_if(broken.nodes.begin(), broken.nodes.end(), [](const Node &n) { return movesUp(n.kind); });
  ASSERT_NE(prefetch, broken.nodes.end());
  prefetch->kind = NodeKind::Empty;
  const String fault(pumpgraph_compiler_check(DescriptionView(broken).get(), nullptr));
  EXPECT_NE(fault, nullptr);
}

TEST(Check, refusesAStepThatLostANode) {
  const Description step = smallStep();
  const Outcome outcome = compile(step, withBudget(64 * mebibyte));
  Description larger = step;
  larger.nodes.emplace_back().captured = 3;
  const String fault(pumpgraph_compiler_check(outcome.lowered(), DescriptionView(larger).get()));
  EXPECT_NE(fault, nullptr);
}

TEST(Check, refusesMalformedDescriptions) {
  Description step = smallStep();
  step.edges.push_back({2, 1, EdgeKind::Full});
  const String fault(pumpgraph_compiler_check(DescriptionView(step).get(), nullptr));
  ASSERT_NE(fault, nullptr);
  EXPECT_STREQ(fault.get(), "edge 2: node 2 comes after node 1, which depends on it");
}

// As the report says with the node times of the plan; of a node that turns out to take longer, what it keeps waiting
// comes later.
TEST(Predict, countsTheNodeTimesOfTheDescription) {
  const pumpgraph_compiler_options options = withBudget(4 * mebibyte);
  const Outcome outcome = compile(smallStep(), options);
  ASSERT_EQ(outcome.status, PUMPGRAPH_COMPILED) << outcome.message();
  const nlohmann::json report = nlohmann::json::parse(outcome.candidate()->report_json);
  const double reportedUs = report.at("predicted_s").get<double>() * 1e6;
  double us = 0;
  EXPECT_EQ(String(pumpgraph_compiler_predict(outcome.lowered(), &options, &us)), nullptr);
  EXPECT_NEAR(us, reportedUs, 1e-3);
  Description slower = copyOf(outcome.lowered());
  slower.nodes.back().costUs += 1000;
  EXPECT_EQ(String(pumpgraph_compiler_predict(DescriptionView(slower).get(), &options, &us)), nullptr);
  EXPECT_NEAR(us, reportedUs + 1000, 1e-3);
}

TEST(Predict, saysWhatItCannotRead) {
  double us = 7;
  String fault(pumpgraph_compiler_predict(nullptr, nullptr, &us));
  EXPECT_STREQ(fault.get(), "there is no description");
  pumpgraph_compiler_options options = withBudget(0);
  options.up_bytes_per_second = -1;
  const Description lowered = smallStepAt(Stage::LoweredVirtual);
  fault.reset(pumpgraph_compiler_predict(DescriptionView(lowered).get(), &options, &us));
  EXPECT_STREQ(fault.get(), "up_bytes_per_second is -1");
  EXPECT_EQ(us, 7);
}

nlohmann::json retimed(const Description &captured, const Description &lowered,
                       const pumpgraph_compiler_options &options, std::uint64_t peakBytes) {
  char *json = nullptr;
  const String fault(pumpgraph_compiler_retime(DescriptionView(captured).get(), DescriptionView(lowered).get(),
                                               &options, peakBytes, &json));
  EXPECT_EQ(fault, nullptr) << fault.get();
  const String owner(json);
  return json ? nlohmann::json::parse(json) : nlohmann::json();
}

// With the times of the plan's making every figure is that of its report; with others all of them are by these.
TEST(Retime, givesTheFiguresByTheTimesOfTheDescriptions) {
  const pumpgraph_compiler_options options = withBudget(4 * mebibyte);
  Description captured = smallStep();
  const Outcome outcome = compile(captured, options);
  ASSERT_EQ(outcome.status, PUMPGRAPH_COMPILED) << outcome.message();
  const nlohmann::json report = nlohmann::json::parse(outcome.candidate()->report_json);
  Description lowered = copyOf(outcome.lowered());
  const std::uint64_t peakBytes = report.at("peak_bytes_before");
  const nlohmann::json same = retimed(captured, lowered, options, peakBytes);
  EXPECT_GE(same.size(), 10u);
  for (const auto &[key, figure] : same.items())
    EXPECT_EQ(figure, report.at(key)) << key;

  captured.nodes.back().costUs += 1000;
  lowered.nodes.back().costUs += 1000;
  const nlohmann::json slower = retimed(captured, lowered, options, peakBytes);
  for (const char *key : {"in_memory_s", "bound_s", "plan_bound_s", "moving_bound_s", "predicted_s"})
    EXPECT_NEAR(slower.at(key).get<double>(), same.at(key).get<double>() + 1e-3, 1e-6) << key;
  EXPECT_NE(slower.at("verdict"), same.at("verdict"));
}

TEST(Retime, saysWhatItCannotRead) {
  const Description captured = smallStep(), lowered = smallStepAt(Stage::LoweredVirtual);
  const DescriptionView before(captured), after(lowered);
  char *json = nullptr;
  String fault(pumpgraph_compiler_retime(nullptr, after.get(), nullptr, 0, &json));
  EXPECT_STREQ(fault.get(), "the captured step: there is no description");
  fault.reset(pumpgraph_compiler_retime(before.get(), before.get(), nullptr, 0, &json));
  EXPECT_STREQ(fault.get(), "the step is captured; it has to be lowered for virtual memory");
  Description larger = captured;
  larger.buffers.resize(lowered.buffers.size() + 1, larger.buffers.back());
  fault.reset(pumpgraph_compiler_retime(DescriptionView(larger).get(), after.get(), nullptr, 0, &json));
  EXPECT_STREQ(fault.get(), "the lowered step has 2 buffers, the captured one 3");
  EXPECT_EQ(json, nullptr);
}

TEST(MemoryViz, isOfLoweredSteps) {
  const pumpgraph_compiler_options options = withBudget(4 * mebibyte);
  const Outcome outcome = compile(smallStep(), options);
  ASSERT_EQ(outcome.status, PUMPGRAPH_COMPILED) << outcome.message();
  char *pickle = nullptr;
  std::size_t size = 0;
  EXPECT_EQ(String(pumpgraph_compiler_memory_viz(outcome.lowered(), &options, &pickle, &size)), nullptr);
  const String owner(pickle);
  const std::string file(pickle, size);
  EXPECT_EQ(file.substr(0, 2), "\x80\x04");
  EXPECT_EQ(file.back(), '.');
  EXPECT_NE(file.find("forward"), std::string::npos);

  for (const Stage stage : {Stage::LoweredVirtual, Stage::LoweredManaged}) {
    char *other = nullptr;
    const Description step = smallStepAt(stage);
    EXPECT_EQ(String(pumpgraph_compiler_memory_viz(DescriptionView(step).get(), nullptr, &other, &size)), nullptr);
    EXPECT_NE(String(other), nullptr);
  }
  const String fault(pumpgraph_compiler_memory_viz(DescriptionView(smallStep()).get(), nullptr, &pickle, &size));
  EXPECT_STREQ(fault.get(),
               "the step is captured; it has to be lowered for virtual memory or lowered for managed memory");
}

TEST(Print, writesIr) {
  const String text(pumpgraph_compiler_print(DescriptionView(smallStep()).get(), nullptr));
  ASSERT_NE(text, nullptr);
  EXPECT_STREQ(text.get(), R"(pump.graph @step {
  %a = pump.buffer "a" private size(4194304)
  %b = pump.buffer "b" private size(4194304)
  %k0 = pump.kernel "forward" node(0) [write %a[0, 4194304] declared must(write)] cost(100.0)
  %k1 = pump.kernel "loss" node(1) after(%k0) [write %b[0, 4194304] declared must(write)] cost(100.0)
  %k2 = pump.kernel "backward" node(2) after(%k1) [read %a[0, 4194304] declared must(read)] cost(100.0)
}
)");
}

TEST(Print, malformedDescriptionsHaveNoText) {
  Description step = smallStep();
  step.pageBytes = 0;
  EXPECT_EQ(String(pumpgraph_compiler_print(DescriptionView(step).get(), nullptr)), nullptr);
}

// No state between calls: several threads get what one gets.
TEST(Compile, threadsDoNotMeet) {
  const std::string alone =
      String(pumpgraph_compiler_print(compile(smallStep(), withBudget(4 * mebibyte)).lowered(), nullptr)).get();
  std::vector<std::string> texts(8);
  std::vector<std::thread> threads;
  for (std::string &text : texts)
    threads.emplace_back([&text] {
      for (int i = 0; i < 20; ++i)
        text =
            String(pumpgraph_compiler_print(compile(smallStep(), withBudget(4 * mebibyte)).lowered(), nullptr)).get();
    });
  for (std::thread &thread : threads)
    thread.join();
  for (const std::string &text : texts)
    EXPECT_EQ(text, alone);
}

/// Compiles the small step into a boundary; returns the message.
std::string compiledInto(const Description &boundary) {
  const Description step = smallStep();
  const DescriptionView view(step), boundaryView(boundary);
  pumpgraph_compiler_options options = withBudget(8 * mebibyte);
  options.boundary = boundaryView.get();
  pumpgraph_compilation *compilation = nullptr;
  pumpgraph_compiler_compile(view.get(), &options, &compilation);
  const Compilation owner(compilation);
  const pumpgraph_candidate *candidate = pumpgraph_compilation_candidate(compilation, 0);
  if (!candidate)
    return pumpgraph_compilation_message(compilation);
  const String kept(pumpgraph_compiler_check_boundary(candidate->lowered, boundaryView.get()));
  return kept ? kept.get() : "";
}

// A boundary is data from elsewhere: what is wrong with it is said, not looked up.
TEST(Compile, takesABoundary) {
  Description boundary = smallStep();
  EXPECT_EQ(compiledInto(boundary), "the boundary: the step is captured; it has to be lowered for virtual memory");
  boundary.stage = Stage::LoweredVirtual;
  boundary.nodes.clear();
  boundary.edges.clear();
  boundary.budgetBytes = 4 * mebibyte;
  EXPECT_EQ(compiledInto(boundary), "");
  boundary.buffers[0].frames = {0, 2};
  EXPECT_EQ(compiledInto(boundary), "buffer 0 \"a\" has frame 2 in a boundary of 2");
  boundary.buffers[0].size = 2 * mebibyte;
  boundary.buffers[0].frames = {0};
  EXPECT_EQ(compiledInto(boundary), "buffer 0 \"a\" is another one in the boundary");
  boundary.buffers.pop_back();
  EXPECT_EQ(compiledInto(boundary),
            "the boundary has 1 buffers in pages of 2097152 bytes, the step 2 in pages of 2097152");
  boundary.pageBytes = 0;
  EXPECT_EQ(compiledInto(boundary), "the boundary: the page size is 0 bytes");
}

/// Compiles two weights, used one after the other, with these pages apart; returns the message.
std::string compiledApart(const std::vector<pumpgraph_apart_pages> &apart, std::set<std::int32_t> &frames) {
  Description step;
  for (const char *name : {"a", "b"}) {
    Buffer &weight = step.buffers.emplace_back();
    weight.name = name;
    weight.size = 4 * mebibyte;
    weight.isPrivate = weight.liveIn = weight.liveOut = true;
  }
  for (BufferIndex buffer : {0, 1}) {
    Node &node = step.nodes.emplace_back();
    node.name = "layer";
    node.captured = static_cast<std::int32_t>(buffer);
    node.accesses = {{buffer, {0, 4 * mebibyte}, modeRead, modeRead}};
  }
  step.edges = {{0, 1, EdgeKind::Full}};
  const DescriptionView view(step);
  pumpgraph_compiler_options options = withBudget(6 * mebibyte);
  options.apart = apart.data();
  options.apart_count = apart.size();
  pumpgraph_compilation *made = nullptr;
  pumpgraph_compiler_compile(view.get(), &options, &made);
  const Compilation compilation(made);
  Description lowered;
  std::string problem;
  const pumpgraph_candidate *candidate = pumpgraph_compilation_candidate(made, 0);
  if (candidate && fromC(*candidate->lowered, lowered, problem))
    for (const Buffer &buffer : lowered.buffers)
      frames.insert(buffer.frames.begin(), buffer.frames.end());
  return pumpgraph_compilation_message(made);
}

// Neighbours with one number are a group.
TEST(Compile, keepsPagesApart) {
  const std::uint64_t page = 2 * mebibyte, large = std::numeric_limits<std::uint64_t>::max();
  using Pages = std::vector<pumpgraph_apart_pages>;
  const auto said = [](const Pages &apart) {
    std::set<std::int32_t> frames;
    return compiledApart(apart, frames);
  };
  std::set<std::int32_t> frames;
  EXPECT_EQ(compiledApart({{7, 0, 0, page}, {7, 1, 0, page}, {3, 0, page, page}, {3, 1, 0, page}}, frames), "");
  EXPECT_EQ(frames.size(), 3u);
  EXPECT_NE(said({{7, 0, 0, 2 * page}, {7, 1, 0, 2 * page}}).find("at once needs 8.0 MiB"), std::string::npos);
  EXPECT_EQ(said({{7, 0, 0, 2 * page}, {8, 1, 0, 2 * page}}), "");
  EXPECT_EQ(said({{0, 2, 0, page}}), "pages of buffer 2 are to be apart, and there are 2 buffers");
  EXPECT_EQ(said({{0, 1, page, 2 * page}}), "4194304 bytes from 2097152 on of buffer 1 \"b\" are to be apart; it has "
                                            "4194304");
  EXPECT_EQ(said({{0, 1, 8, large}}),
            fmt::format("{} bytes from 8 on of buffer 1 \"b\" are to be apart; it has 4194304", large));
}

} // namespace
} // namespace pumpgraph
