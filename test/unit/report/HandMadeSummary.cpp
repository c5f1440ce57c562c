// SPDX-License-Identifier: Apache-2.0
#include "HandMadeSummary.h"

#include "test/unit/analysis/SmallStep.h"

#include <utility>

namespace pumpgraph::test {

static constexpr std::uint64_t mebi = std::uint64_t{1} << 20;

static Node transfer(NodeKind kind, BufferIndex buffer, std::uint64_t size) {
  Node node;
  node.kind = kind;
  node.buffer = buffer;
  node.range = {0, size};
  return node;
}

Summary handMadeSummary() {
  enum : BufferIndex { a, b, c };
  SmallStep small;
  small.step.name = "four";
  small.step.pageBytes = 2 * mebi;
  for (const char *name : {"a", "b", "c"})
    addBuffer(small.step, name, 2 * mebi, true, false);
  small.kernel("write_a", 100, {small.write(a)});
  small.kernel("write_b", 100, {small.write(b)});
  small.kernel("write_c", 100, {small.read(b), small.write(c)});
  small.kernel("read_a", 100, {small.read(a)});
  for (Node &node : small.step.nodes)
    for (Access &access : node.accesses)
      access.evidence = Evidence::Declared;

  Compiled step;
  step.captured = std::move(small.step);
  step.inMemory.totalUs = 400;
  step.inMemory.nodes = {{0, 100}, {100, 200}, {200, 300}, {300, 400}};
  step.inMemory.memory = {{0, 2 * mebi}, {100, 4 * mebi}, {200, 6 * mebi}, {300, 2 * mebi}, {400, 0}};
  step.inMemory.peakBytes = 6 * mebi;

  // Lowered: 0 write_a, 1 copy a down, 2 write_b, 3 write_c, 4 copy a up, 5 read_a.
  enum : NodeIndex { writeA, down, writeB, writeC, up, readA };
  Description &lowered = step.lowered;
  lowered = step.captured;
  lowered.budgetBytes = 4 * mebi;
  lowered.hostBytes = 2 * mebi;
  lowered.buffers[a].frames = {0};
  lowered.buffers[b].frames = {1};
  lowered.buffers[c].frames = {0};
  lowered.nodes.insert(lowered.nodes.begin() + down, transfer(NodeKind::CopyToHost, a, 2 * mebi));
  lowered.nodes.insert(lowered.nodes.begin() + up, transfer(NodeKind::CopyToDevice, a, 2 * mebi));
  lowered.edges = {{writeA, down}, {writeA, writeB}, {down, writeC}, {writeB, writeC},
                   {writeC, up},   {writeC, readA},  {up, readA}};
  step.planned = lowered;

  step.stats.peakPagesBefore = 3;
  step.stats.framesUsed = 2;
  step.stats.evictions = step.stats.prefetches = 1;
  step.stats.upBytes = step.stats.downBytes = step.stats.hostBytes = 2 * mebi;
  step.bound = {400, 410, 400, 10, 0, 0};
  step.planBound = {400, 420, 400, 20, 0, 0};
  Prediction &prediction = step.prediction;
  prediction.totalUs = 440;
  prediction.nodes = {{0, 100}, {100, 140}, {100, 200}, {200, 300}, {300, 340}, {340, 440}};
  prediction.stalls = {{readA, up, a, 300, 40}};
  prediction.memory = {{0, 2 * mebi}, {100, 4 * mebi}, {340, 2 * mebi}};
  prediction.upBytes = prediction.downBytes = 2 * mebi;
  prediction.upBusyUs = prediction.downBusyUs = 40;
  prediction.peakBytes = 4 * mebi;
  step.planMs = 1.5;
  Summary summary(std::move(step));
  summary.required = {2 * mebi, 2 * mebi};
  return summary;
}

Summary hostingSummary() {
  Summary summary = handMadeSummary();
  Buffer &c = summary.lowered.buffers[2];
  c.frames = {noFrame};
  c.hosted = {{0, c.size}};
  summary.stats.hostBytes += c.size;
  summary.hosted = hostedTraffic(summary.lowered);
  return summary;
}

RepeatedSweeps handMadeSweeps() {
  RepeatedSweeps sweeps;
  sweeps.first = 0;
  sweeps.last = 5; // of the lowered step: node 3 of the captured one
  sweeps.sweeps = 3;
  sweeps.nodes = 4;
  sweeps.stateBytes = 6 * mebi;
  sweeps.touchedAgainBytes = 4 * mebi;
  sweeps.saved = {2 * mebi, 1 * mebi};
  return sweeps;
}

} // namespace pumpgraph::test
