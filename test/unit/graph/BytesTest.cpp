// SPDX-License-Identifier: Apache-2.0
#include "passes/ir/Bytes.h"

#include <gtest/gtest.h>

namespace pumpgraph::ir {
namespace {

TEST(ParseBytes, readsNumbersWithUnits) {
  EXPECT_EQ(parseBytes("0"), 0u);
  EXPECT_EQ(parseBytes("4096"), 4096u);
  EXPECT_EQ(parseBytes("4096B"), 4096u);
  EXPECT_EQ(parseBytes("2MiB"), 2u << 20);
  EXPECT_EQ(parseBytes("1.5GiB"), 3u << 29);
  EXPECT_EQ(parseBytes("3 TiB"), 3ull << 40);
}

TEST(ParseBytes, refusesWhatIsNoByteCount) {
  for (const char *text : {"", "MiB", "-1", "2mb", "2MiBs", "1.2.3", "2 M", "1e3", "9223372036854775808", "nan"})
    EXPECT_EQ(parseBytes(text), std::nullopt) << text;
}

} // namespace
} // namespace pumpgraph::ir
