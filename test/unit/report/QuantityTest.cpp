// SPDX-License-Identifier: Apache-2.0
#include "passes/report/Quantity.h"

#include <gtest/gtest.h>

namespace pumpgraph {

TEST(Quantity, SizesHaveBinaryAndDecimalUnits) {
  EXPECT_EQ(parseBytes("4096"), std::uint64_t{4096});
  EXPECT_EQ(parseBytes("7B"), std::uint64_t{7});
  EXPECT_EQ(parseBytes("1KiB"), std::uint64_t{1024});
  EXPECT_EQ(parseBytes("1KB"), std::uint64_t{1000});
  EXPECT_EQ(parseBytes("8GiB"), std::uint64_t{8} << 30);
  EXPECT_EQ(parseBytes("8 gib"), std::uint64_t{8} << 30);
  EXPECT_EQ(parseBytes("1.5MiB"), std::uint64_t{3} << 19);
  EXPECT_EQ(parseBytes("2TiB"), std::uint64_t{2} << 40);
  EXPECT_EQ(parseBytes("0"), std::uint64_t{0});
}

TEST(Quantity, WrongSizesSayWhatIsWrong) {
  EXPECT_EQ(parseBytes("8Gb1").error(),
            "unknown unit \"Gb1\" in \"8Gb1\"; known: B, KiB, MiB, GiB, TiB, KB, MB, GB, TB");
  EXPECT_EQ(parseBytes("8GiBs").error(),
            "unknown unit \"GiBs\" in \"8GiBs\"; known: B, KiB, MiB, GiB, TiB, KB, MB, GB, TB");
  EXPECT_EQ(parseBytes("GiB").error(), "\"GiB\" does not begin with a number");
  EXPECT_EQ(parseBytes("").error(), "\"\" does not begin with a number");
  EXPECT_EQ(parseBytes("-1GiB").error(), "\"-1GiB\" is less than nothing");
  EXPECT_EQ(parseBytes("1e30").error(), "\"1e30\" is more bytes than 64 bits can count");
  EXPECT_EQ(parseBytes("nan").error(), "\"nan\" does not begin with a number");
  for (const char *text : {"50%", "2MiBs", "1.2.3", "2 M", "9223372036854775808"})
    EXPECT_FALSE(parseBytes(text)) << text;
}

TEST(Quantity, ABudgetMayBeAShareOfThePeak) {
  EXPECT_EQ(parseBudget("50%")->of(1000), 500u);
  EXPECT_EQ(parseBudget("12.5 %")->of(1000), 125u);
  EXPECT_EQ(parseBudget("150%")->of(1000), 1500u);
  EXPECT_EQ(parseBudget("300B")->of(1000), 300u);
  EXPECT_EQ(parseBudget("0.001%")->of(1000), 1u); // 0 would mean no limit
}

TEST(Quantity, ABudgetIsMoreThanNothing) {
  EXPECT_EQ(parseBudget("0").error(), "\"0\" is no budget: it has to be more than 0");
  EXPECT_EQ(parseBudget("0%").error(), "\"0%\" is no budget: it has to be more than 0");
  EXPECT_EQ(parseBudget("-5GiB").error(), "\"-5GiB\" is no budget: it has to be more than 0");
  EXPECT_EQ(parseBudget("0.1B").error(), "\"0.1B\" is no budget: it has to be more than 0");
}

TEST(Quantity, BandwidthsAreGigabytesPerSecond) {
  EXPECT_EQ(parseBandwidth("55"), 55e9);
  EXPECT_EQ(parseBandwidth("15.754GB/s"), 15.754e9);
  EXPECT_EQ(parseBandwidth("0").error(), "\"0\" is no bandwidth: a link has to move more than 0 GB/s");
  EXPECT_EQ(parseBandwidth("-1").error(), "\"-1\" is no bandwidth: a link has to move more than 0 GB/s");
  EXPECT_EQ(parseBandwidth("55GiB/s").error(), "unknown unit \"GiB/s\" in \"55GiB/s\"; bandwidths are in GB/s");
}

} // namespace pumpgraph
