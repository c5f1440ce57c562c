// SPDX-License-Identifier: Apache-2.0
// Writes random tiny steps with their true optimum as JSON lines, for tests of bounds that are not written in C++:
// `check_optima FIRST_SEED COUNT`.
#include "test/unit/check/Optimum.h"
#include "test/unit/check/RandomGraph.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

namespace pumpgraph::test {
namespace {

using Json = nlohmann::json;

const char *modeName(std::uint8_t mode) {
  static constexpr const char *names[] = {"none", "read", "write", "readwrite"};
  return names[mode & modeReadWrite];
}

Json accessesOf(const Node &node) {
  Json accesses = Json::array();
  for (const Access &access : node.accesses)
    accesses.push_back({{"buffer", access.buffer},
                        {"offset", access.range.offset},
                        {"size", access.range.size},
                        {"may", modeName(access.may)},
                        {"must", modeName(access.must)}});
  return accesses;
}

/// The keys of an exported plan that a bound reads.
Json stepToJson(const Description &step) {
  Json buffers = Json::array();
  for (const Buffer &buffer : step.buffers)
    buffers.push_back({{"size", buffer.size},
                       {"private", buffer.isPrivate},
                       {"live_in", buffer.liveIn},
                       {"live_out", buffer.liveOut}});
  Json nodes = Json::array();
  for (NodeIndex node = 0; node < step.nodes.size(); ++node)
    nodes.push_back({{"id", node},
                     {"pure", step.nodes[node].isPure},
                     {"cost_us", step.nodes[node].costUs},
                     {"accesses", accessesOf(step.nodes[node])}});
  Json edges = Json::array();
  for (const Edge &edge : step.edges)
    edges.push_back({{"from", edge.from}, {"to", edge.to}, {"origin", "captured"}});
  return {{"page_bytes", step.pageBytes}, {"buffers", buffers}, {"nodes", nodes}, {"edges", edges}};
}

Json optimaToJson(const Description &step, std::uint64_t budget, const Machine &machine) {
  const auto optimum = [&](BoundKind kind) {
    const std::optional<double> us = optimumUs(step, budget, machine, kind);
    return us ? Json(*us) : Json(nullptr);
  };
  return {{"may", optimum(BoundKind::May)}, {"must", optimum(BoundKind::Must)}};
}

/// Whatever can run again may.
Description withPureNodes(Description step) {
  for (Node &node : step.nodes)
    node.isPure = isRepeatable(node.kind);
  return step;
}

void write(std::uint64_t seed) {
  Random random(seed);
  const Description step = tinyStep(seed);
  const std::uint64_t budget = (std::max<std::uint64_t>(leastFrames(step), 1) + random.below(2)) * step.pageBytes;
  const Machine machine = slowMachine(random);
  const Description pure = withPureNodes(step);
  const Json line{
      {"seed", seed},
      {"budget_bytes", budget},
      {"machine",
       {{"up_bytes_per_second", machine.upBytesPerSecond},
        {"down_bytes_per_second", machine.downBytesPerSecond},
        {"both_bytes_per_second", machine.bothBytesPerSecond}}},
      {"step", stepToJson(pure)},
      {"text", toText(step)},
      {"plan_bound_us", bound(step, budget, machine, BoundKind::May).totalUs},
      {"optimum_us", optimaToJson(step, budget, machine)}, // of plans that repeat nothing
      {"repeating_optimum_us", optimaToJson(pure, budget, machine)},
  };
  fmt::print("{}\n", line.dump());
}

} // namespace
} // namespace pumpgraph::test

int main(int argc, char **argv) {
  if (argc != 3) {
    fmt::print(stderr, "usage: check_optima FIRST_SEED COUNT\n");
    return 2;
  }
  const std::uint64_t first = std::strtoull(argv[1], nullptr, 10), count = std::strtoull(argv[2], nullptr, 10);
  for (std::uint64_t seed = first; seed < first + count; ++seed)
    pumpgraph::test::write(seed);
}
