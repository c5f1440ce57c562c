// SPDX-License-Identifier: Apache-2.0
#include "passes/report/Units.h"

#include <gtest/gtest.h>

namespace pumpgraph {

constexpr std::uint64_t mebi = std::uint64_t{1} << 20;

TEST(Units, BytesHaveThreeDigitsAndABinaryUnit) {
  EXPECT_EQ(formatBytes(0), "0 B");
  EXPECT_EQ(formatBytes(1023), "1023 B");
  EXPECT_EQ(formatBytes(1536), "1.50 KiB");
  EXPECT_EQ(formatBytes(96 * mebi), "96.0 MiB");
  EXPECT_EQ(formatBytes(16 * 1024 * mebi), "16.0 GiB");
  EXPECT_EQ(formatBytes(std::uint64_t{5} << 50), "5120 TiB");
}

// What rounds up to 1024 of a unit is written in the next one.
TEST(Units, BytesNeverShow1024OfAUnit) {
  EXPECT_EQ(formatBytes(1024 * mebi - 1), "1.00 GiB");
  EXPECT_EQ(formatBytes(1023 * mebi), "1023 MiB");
}

TEST(Units, MicrosecondsPickTheirUnit) {
  EXPECT_EQ(formatMicroseconds(0), "0 us");
  EXPECT_EQ(formatMicroseconds(4.2), "4.20 us");
  EXPECT_EQ(formatMicroseconds(999.4), "999 us");
  EXPECT_EQ(formatMicroseconds(999.6), "1.00 ms");
  EXPECT_EQ(formatMicroseconds(108300), "108 ms");
  EXPECT_EQ(formatMicroseconds(1.25e6), "1.25 s");
}

TEST(Units, RatioOfNothingIsADash) {
  EXPECT_EQ(formatRatio(108, 100), "1.08 x");
  EXPECT_EQ(formatRatio(108, 0), "-");
}

TEST(Units, CountsAreGrouped) {
  EXPECT_EQ(formatCount(0), "0");
  EXPECT_EQ(formatCount(999), "999");
  EXPECT_EQ(formatCount(1203), "1,203");
  EXPECT_EQ(formatCount(1234567), "1,234,567");
  EXPECT_EQ(formatCount(1, "node"), "1 node");
  EXPECT_EQ(formatCount(0, "node"), "0 nodes");
}

TEST(Units, LongNamesKeepBothEnds) {
  EXPECT_EQ(shorten("short", 10), "short");
  EXPECT_EQ(shorten("0123456789", 10), "0123456789");
  EXPECT_EQ(shorten("0123456789a", 10), "0123...89a");
  EXPECT_EQ(shorten("anything", 3), "any");
}

} // namespace pumpgraph
