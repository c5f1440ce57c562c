// SPDX-License-Identifier: Apache-2.0
#include "passes/report/MemoryTrace.h"

#include "HandMadeSummary.h"

#include <gtest/gtest.h>

namespace pumpgraph {
namespace {

constexpr std::uint64_t mebi = std::uint64_t{1} << 20;

/// "+write_a 0-2: a; ..." for the frames of an event, positions in MiB.
std::string spell(const MemoryTrace &trace, const MemoryTrace::Event &event) {
  const std::uint64_t begin = (event.address - trace.address) / mebi;
  std::string text = (event.isFree ? "-" : "+") + std::to_string(begin) + "-" +
                     std::to_string(begin + event.bytes / mebi) + " at " + std::to_string(static_cast<int>(event.atUs));
  for (const MemoryTrace::Line &line : event.lines)
    text += "; " + line.subject + ":" + std::to_string(line.number) + ": " + line.text;
  return text;
}

std::vector<std::string> spell(const MemoryTrace &trace) {
  std::vector<std::string> texts;
  for (const MemoryTrace::Event &event : trace.events)
    texts.push_back(spell(trace, event));
  return texts;
}

TEST(MemoryTraceTest, SaysWhatComesAndLeavesWhenAndWhy) {
  const Summary summary = test::handMadeSummary();
  const MemoryTrace trace = traceMemory(summary.lowered, summary.prediction);
  EXPECT_EQ(trace.bytes, 4 * mebi);
  const std::vector<std::string> texts = spell(trace);
  ASSERT_EQ(texts.size(), 8U);
  EXPECT_EQ(texts[0], "+0-2 at 0; a:0: all of its 2097152 bytes; write_a:0: first used by this node at 0 us; "
                      "write_a:0: last used by this node, in host memory from 140 us on");
  std::uint64_t live = 0;
  for (const MemoryTrace::Event &event : trace.events) {
    live = event.isFree ? live - event.bytes : live + event.bytes;
    EXPECT_LE(live, 4 * mebi);
  }
  EXPECT_EQ(live, 0U);
  ASSERT_EQ(trace.blocks.size(), 1U); // nothing outlives the step
  EXPECT_EQ(trace.blocks[0].bytes, 4 * mebi);
  EXPECT_EQ(trace.blocks[0].usedBytes, 0U);
}

} // namespace
} // namespace pumpgraph
