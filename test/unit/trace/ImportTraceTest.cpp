// SPDX-License-Identifier: Apache-2.0
#include "passes/trace/ImportTrace.h"

#include "passes/analysis/Prediction.h"
#include "passes/check/CheckResidency.h"
#include "passes/lower/LowerVirtual.h"
#include "passes/plan/PlanResidency.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <limits>

namespace pumpgraph {
namespace {

using nlohmann::json;

constexpr std::uint64_t page = std::uint64_t{2} << 20;

json tensor(int id, const std::string &name, const std::string &kind) {
  return {{"id", id}, {"name", name}, {"kind", kind}, {"bytes", page}};
}

json kernel(int id, const std::string &name, const std::vector<int> &reads, const std::vector<int> &writes) {
  return {{"id", id}, {"name", name}, {"time_us", 100.0}, {"reads", reads}, {"writes", writes}};
}

enum : BufferIndex { weight, input, activation, gradient, scratch };

/// One layer: forward, backward, update.
json oneLayer() {
  json input = tensor(1, "input", "intermediate");
  input["no_producer"] = true;
  return {
      {"name", "layer"},
      {"tensors",
       {tensor(0, "weight", "persistent"), input, tensor(2, "activation", "intermediate"),
        tensor(3, "gradient", "intermediate"), tensor(4, "scratch", "workspace")}},
      {"kernels",
       {kernel(0, "forward", {0, 1}, {2}), kernel(1, "backward", {1, 2}, {3, 4}), kernel(2, "update", {0, 3}, {0})}}};
}

Description import(const json &trace) {
  const auto imported = importTrace(trace.dump());
  EXPECT_TRUE(imported) << imported.error().text();
  return imported ? imported->step : Description();
}

std::string errorOf(const std::string &text) {
  const auto imported = importTrace(text);
  return imported ? "no error" : imported.error().text();
}

std::string errorOf(const json &trace) {
  return errorOf(trace.dump());
}

const Access *accessOf(const Description &step, NodeIndex node, BufferIndex buffer) {
  const Access *found = nullptr;
  for (const Access &access : step.nodes[node].accesses)
    if (access.buffer == buffer) {
      EXPECT_EQ(found, nullptr) << "one access a tensor";
      found = &access;
    }
  return found;
}

/// What a kernel does to a tensor; traces leave nothing open, so may and must are the same.
std::string modeOf(const Description &step, NodeIndex node, BufferIndex buffer) {
  const Access *access = accessOf(step, node, buffer);
  if (!access)
    return "nothing";
  EXPECT_EQ(access->may, access->must);
  EXPECT_EQ(access->evidence, Evidence::Declared);
  EXPECT_EQ(access->range, (Range{0, step.buffers[buffer].size}));
  static constexpr const char *names[] = {"nothing", "read", "write", "readwrite"};
  return names[access->must & modeReadWrite];
}

//===----------------------------------------------------------------------===//
// What a trace means
//===----------------------------------------------------------------------===//

TEST(ImportTrace, KernelsFollowOneAnotherWithTheirTimes) {
  json trace = oneLayer();
  trace["kernels"][1]["time_us"] = 0.25;
  const Description step = import(trace);
  EXPECT_EQ(validate(step), "");
  EXPECT_EQ(step.name, "layer");
  EXPECT_EQ(step.pageBytes, page);
  ASSERT_EQ(step.nodes.size(), 3u);
  EXPECT_EQ(step.nodes[1].kind, NodeKind::Kernel);
  EXPECT_EQ(step.nodes[1].name, "backward");
  EXPECT_EQ(step.nodes[1].captured, 1);
  EXPECT_DOUBLE_EQ(step.nodes[1].costUs, 0.25);
  EXPECT_EQ(step.edges, (std::vector<Edge>{{0, 1, EdgeKind::Full}, {1, 2, EdgeKind::Full}}));
}

TEST(ImportTrace, OnlyPersistentTensorsLiveAcrossSteps) {
  const Description step = import(oneLayer());
  ASSERT_EQ(step.buffers.size(), 5u);
  for (BufferIndex buffer = 0; buffer < step.buffers.size(); ++buffer) {
    EXPECT_TRUE(step.buffers[buffer].isPrivate);
    EXPECT_EQ(step.buffers[buffer].size, page);
    EXPECT_EQ(step.buffers[buffer].liveIn, buffer == weight) << step.buffers[buffer].name;
    EXPECT_EQ(step.buffers[buffer].liveOut, buffer == weight) << step.buffers[buffer].name;
  }
}

TEST(ImportTrace, ReadsWritesAndBoth) {
  const Description step = import(oneLayer());
  EXPECT_EQ(modeOf(step, 0, weight), "read");
  EXPECT_EQ(modeOf(step, 0, activation), "write");
  EXPECT_EQ(modeOf(step, 1, activation), "read");
  EXPECT_EQ(modeOf(step, 2, weight), "readwrite");
  EXPECT_EQ(modeOf(step, 0, gradient), "nothing");
}

TEST(ImportTrace, WhatHasNoProducerIsThereFromItsFirstUse) {
  const Description step = import(oneLayer());
  EXPECT_EQ(modeOf(step, 0, input), "write"); // it comes without a load ...
  EXPECT_EQ(modeOf(step, 1, input), "read");  // ... and has to be kept from then on
}

TEST(ImportTrace, AWorkspaceCountsOnce) {
  json trace = oneLayer();
  trace["kernels"][1]["workspace_bytes"] = page;
  const Description step = import(trace);
  EXPECT_EQ(modeOf(step, 1, scratch), "write");
  // backward: input, activation, gradient, scratch; the weight lives on.
  EXPECT_EQ(planResidency(step, {})->stats.peakPagesBefore, 5u);
}

TEST(ImportTrace, AReadOnlyTensorIsNeverSaved) {
  json trace = oneLayer();
  trace["kernels"][2]["writes"] = json::array();
  trace["tensors"][weight]["read_only"] = true;
  const auto plan = planResidency(import(trace), {4 * page, Machine()});
  ASSERT_TRUE(plan) << plan.error().message;
  const Description lowered = lowerVirtual(plan->description);
  EXPECT_TRUE(checkResidency(lowered).empty());
  EXPECT_TRUE(std::none_of(lowered.nodes.begin(), lowered.nodes.end(),
                           [](const Node &node) { return movesDown(node.kind) && node.buffer == weight; }));
}

TEST(ImportTrace, AKernelMayNameATensorTwice) {
  json trace = oneLayer();
  trace["kernels"][1]["reads"] = {2, 1, 2};
  EXPECT_EQ(modeOf(import(trace), 1, activation), "read");
}

TEST(ImportTrace, UnknownFieldsAreIgnored) {
  json trace = oneLayer();
  trace["stats"] = {{"peak", 7}};
  trace["tensors"][0]["raw_bytes"] = -1;
  trace["kernels"][0]["pf_us"] = "none";
  EXPECT_EQ(import(trace).nodes.size(), 3u);
}

TEST(ImportTrace, PagesMayBeSmaller) {
  json trace = oneLayer();
  trace["tensors"][0]["bytes"] = 4097;
  const auto imported = importTrace(trace.dump(), 4096);
  ASSERT_TRUE(imported);
  EXPECT_EQ(imported->step.pageBytes, 4096u);
  EXPECT_EQ(imported->step.pageCount(0), 2u);
}

TEST(ImportTrace, TheLinkOfTheStudy) {
  json trace = oneLayer();
  EXPECT_DOUBLE_EQ(importTrace(trace.dump())->machine.upBytesPerSecond, Machine().upBytesPerSecond);

  trace["hardware_of_study"] = {{"pcie_GBps", 15.754}, {"pcie_full_duplex", true}, {"host_bytes", 1}};
  const Machine duplex = importTrace(trace.dump())->machine;
  EXPECT_DOUBLE_EQ(duplex.upBytesPerSecond, 15.754e9);
  EXPECT_DOUBLE_EQ(duplex.downBytesPerSecond, 15.754e9);
  EXPECT_DOUBLE_EQ(duplex.bothBytesPerSecond, 31.508e9);
  EXPECT_EQ(duplex.hostBytes, UINT64_MAX); // what a plan may use is for the caller to say

  trace["hardware_of_study"]["pcie_full_duplex"] = false;
  EXPECT_DOUBLE_EQ(importTrace(trace.dump())->machine.bothBytesPerSecond, 15.754e9);
}

//===----------------------------------------------------------------------===//
// Text that is no JSON
//===----------------------------------------------------------------------===//

TEST(ImportTraceErrors, SyntaxHasLineAndColumn) {
  EXPECT_EQ(errorOf(std::string("{\"name\": \"x\",\n \"tensors\": [1,,2]}")).substr(0, 35),
            "line 2, column 16: syntax error whi");
  EXPECT_EQ(errorOf(std::string("")).substr(0, 17), "line 1, column 1:");
  EXPECT_EQ(errorOf(std::string("{\n\n\"a\": ")).substr(0, 17), "line 3, column 6:");
  EXPECT_EQ(errorOf(std::string("[1, 2]\n]")).substr(0, 17), "line 2, column 1:");
}

TEST(ImportTraceErrors, EveryTruncatedTraceIsOne) {
  const std::string text = oneLayer().dump();
  for (std::size_t size = 0; size < text.size(); ++size) {
    const std::string place = "line 1, column " + std::to_string(size + 1) + ": ";
    EXPECT_EQ(errorOf(text.substr(0, size)).substr(0, place.size()), place);
  }
}

TEST(ImportTraceErrors, NumbersThatJsonDoesNotHave) {
  std::string text = oneLayer().dump();
  const std::size_t at = text.find("100.0");
  for (const std::string value : {"NaN", "-Infinity", "0x10", "1e999"}) {
    const std::string damaged = std::string(text).replace(at, 5, value);
    EXPECT_EQ(errorOf(damaged).substr(0, 15), "line 1, column ") << value;
  }
}

TEST(ImportTraceErrors, DeepNestingIsNoDanger) {
  static constexpr std::size_t depth = 1'000'000;
  EXPECT_EQ(errorOf(std::string(depth, '[') + std::string(depth, ']')), "brackets are nested more than 64 deep");
  EXPECT_EQ(errorOf(std::string(64, '[') + std::string(64, ']')).substr(0, 4), "[[[[");
}

TEST(ImportTraceErrors, NotATrace) {
  EXPECT_EQ(errorOf(json(7)), "7 is no object");
  EXPECT_EQ(errorOf(json::object()), "\"name\" is missing");
  for (const char *field : {"name", "tensors", "kernels"}) {
    json trace = oneLayer();
    trace.erase(field);
    EXPECT_EQ(errorOf(trace), std::string("\"") + field + "\" is missing");
    trace[field] = 5;
    EXPECT_NE(errorOf(trace).find(std::string("\"") + field + "\": 5 is no "), std::string::npos) << errorOf(trace);
  }
  json trace = oneLayer();
  trace["kernels"] = json::array();
  EXPECT_EQ(errorOf(trace), "\"kernels\" is empty: there is nothing to plan");
}

//===----------------------------------------------------------------------===//
// Fields
//===----------------------------------------------------------------------===//

TEST(ImportTraceErrors, MissingFieldsAreNamedWithTheirPlace) {
  for (const char *field : {"id", "bytes", "kind"}) {
    json trace = oneLayer();
    trace["tensors"][2].erase(field);
    EXPECT_EQ(errorOf(trace), std::string("tensor 2 \"activation\": \"") + field + "\" is missing");
  }
  for (const char *field : {"id", "time_us", "reads", "writes"}) {
    json trace = oneLayer();
    trace["kernels"][1].erase(field);
    EXPECT_EQ(errorOf(trace), std::string("kernel 1 \"backward\": \"") + field + "\" is missing");
  }
  json trace = oneLayer();
  trace["kernels"][1].erase("name");
  EXPECT_EQ(errorOf(trace), "kernel 1: \"name\" is missing");
  trace["kernels"][1] = {1, 2};
  EXPECT_EQ(errorOf(trace), "kernel 1: [1,2] is no object");
}

TEST(ImportTraceErrors, Sizes) {
  for (const json &value : std::vector<json>{0, -4096, 1.5, "4096", nullptr, 1e300}) {
    json trace = oneLayer();
    trace["tensors"][2]["bytes"] = value;
    EXPECT_EQ(errorOf(trace), "tensor 2 \"activation\": \"bytes\": " + value.dump() + " is no whole number from 1 on");
  }
}

TEST(ImportTraceErrors, HugeSizesAreRefusedBeforeAnythingIsAllocated) {
  json trace = oneLayer();
  trace["tensors"][2]["bytes"] = std::numeric_limits<std::uint64_t>::max();
  EXPECT_EQ(errorOf(trace), "tensor 2 \"activation\": \"bytes\": 18446744073709551615 more take all tensors together "
                            "over 8388608 pages of 2097152 bytes, the most of a trace");
  // Each one could be, all of them together cannot.
  for (json &tensor : trace["tensors"])
    tensor["bytes"] = (mostTracePages / 4) * page;
  EXPECT_EQ(errorOf(trace).substr(0, 40), "tensor 4 \"scratch\": \"bytes\": 43980465111");
}

TEST(ImportTraceErrors, Times) {
  for (const json &value : std::vector<json>{-1, -0.001, "100", nullptr, 1e300, json::array()}) {
    json trace = oneLayer();
    trace["kernels"][2]["time_us"] = value;
    EXPECT_EQ(errorOf(trace),
              "kernel 2 \"update\": \"time_us\": " + value.dump() + " is no number from 0 to 31536000000000");
  }
  json trace = oneLayer();
  trace["kernels"][2]["time_us"] = 0;
  EXPECT_DOUBLE_EQ(import(trace).nodes[2].costUs, 0);
}

TEST(ImportTraceErrors, Kinds) {
  json trace = oneLayer();
  trace["tensors"][0]["kind"] = "eternal";
  EXPECT_EQ(errorOf(trace),
            "tensor 0 \"weight\": \"kind\": \"eternal\" is unknown; known: persistent, intermediate, workspace");
}

TEST(ImportTraceErrors, Flags) {
  json trace = oneLayer();
  trace["tensors"][1]["no_producer"] = "yes";
  EXPECT_EQ(errorOf(trace), "tensor 1 \"input\": \"no_producer\": \"yes\" is neither true nor false");
  trace = oneLayer();
  trace["tensors"][2]["read_only"] = true;
  EXPECT_EQ(errorOf(trace), "tensor 2 \"activation\": \"read_only\": only a persistent tensor can be");
  trace = oneLayer();
  trace["tensors"][4]["no_producer"] = true;
  EXPECT_EQ(errorOf(trace), "tensor 4 \"scratch\": \"no_producer\": a workspace has none in any case");
}

TEST(ImportTraceErrors, UnknownTensors) {
  for (const json &id : std::vector<json>{5, -1, 1.0, "weight", 4294967296}) {
    for (const std::string field : {"reads", "writes"}) {
      json trace = oneLayer();
      trace["kernels"][1][field].push_back(id);
      EXPECT_EQ(errorOf(trace),
                "kernel 1 \"backward\": \"" + field + "\": " + id.dump() + " is no tensor; there are 5");
    }
  }
}

TEST(ImportTraceErrors, IdsInOrderAndOnce) {
  json trace = oneLayer();
  std::swap(trace["kernels"][0], trace["kernels"][1]);
  EXPECT_EQ(errorOf(trace), "kernel 0 \"backward\": \"id\": 1 is out of order; here it has to be 0");
  trace = oneLayer();
  trace["kernels"][2]["id"] = 1;
  EXPECT_EQ(errorOf(trace), "kernel 2 \"update\": \"id\": 1 is given twice; the first is number 1 of the list");
  trace = oneLayer();
  trace["tensors"][3]["id"] = 0;
  EXPECT_EQ(errorOf(trace), "tensor 3 \"gradient\": \"id\": 0 is given twice; the first is number 0 of the list");
  trace["tensors"][3]["id"] = 9;
  EXPECT_EQ(errorOf(trace), "tensor 3 \"gradient\": \"id\": 9 is out of order; here it has to be 3");
}

TEST(ImportTraceErrors, Hardware) {
  json trace = oneLayer();
  for (const json &value : std::vector<json>{0, -1, "fast", 1e300}) {
    trace["hardware_of_study"] = {{"pcie_GBps", value}};
    EXPECT_EQ(errorOf(trace),
              "hardware_of_study: \"pcie_GBps\": " + value.dump() + " is no number from 1e-12 to 1000000000");
  }
  trace["hardware_of_study"] = {{"gpu_bytes", 1}};
  EXPECT_EQ(errorOf(trace), "hardware_of_study: \"pcie_GBps\" is missing");
}

TEST(ImportTraceErrors, LongValuesAreCutShort) {
  json trace = oneLayer();
  trace["kernels"][1]["time_us"] = std::string(100'000, 'x');
  EXPECT_LT(errorOf(trace).size(), 200u);
}

//===----------------------------------------------------------------------===//
// Kernels in their order
//===----------------------------------------------------------------------===//

TEST(ImportTraceErrors, NothingIsReadBeforeItIsWritten) {
  json trace = oneLayer();
  trace["kernels"][0]["reads"].push_back(gradient);
  EXPECT_EQ(errorOf(trace), "kernel 0 \"forward\": \"reads\": nothing has written tensor 3 \"gradient\" before");
  // A kernel does not read its own result either.
  trace = oneLayer();
  trace["kernels"][0]["reads"].push_back(activation);
  EXPECT_EQ(errorOf(trace), "kernel 0 \"forward\": \"reads\": nothing has written tensor 2 \"activation\" before");
  trace = oneLayer();
  trace["tensors"][input].erase("no_producer");
  EXPECT_EQ(errorOf(trace), "kernel 0 \"forward\": \"reads\": nothing has written tensor 1 \"input\" before");
}

TEST(ImportTraceErrors, AReadOnlyTensorIsNotWritten) {
  json trace = oneLayer();
  trace["tensors"][weight]["read_only"] = true;
  EXPECT_EQ(errorOf(trace), "kernel 2 \"update\": \"writes\": tensor 0 \"weight\" is read_only");
}

TEST(ImportTraceErrors, AWorkspaceHasOneKernelAndNoValue) {
  json trace = oneLayer();
  trace["kernels"][2]["writes"].push_back(scratch);
  EXPECT_EQ(errorOf(trace), "kernel 2 \"update\": \"writes\": workspace 4 \"scratch\" belongs to kernel 1 alone");
  trace = oneLayer();
  trace["kernels"][2]["reads"].push_back(scratch);
  EXPECT_EQ(errorOf(trace), "kernel 2 \"update\": \"reads\": workspace 4 \"scratch\" has nothing to read");
}

} // namespace
} // namespace pumpgraph
