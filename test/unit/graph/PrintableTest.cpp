// SPDX-License-Identifier: Apache-2.0
#include "pumpgraph/graph/Printable.h"
#include "pumpgraph/graph/PrintableJson.h"

#include <gtest/gtest.h>

#include <random>
#include <string>

namespace pumpgraph {
namespace {

TEST(Printable, leavesNamesAlone) {
  for (const char *name : {"", "_ZN2at6native29vectorized_elementwise_kernelILi4E", "layer1.weight", "a b \\ \"'<>&",
                           "h\xc3\xa4user", "\xce\xbb", "\xe6\xbc\xa2\xe5\xad\x97", "\xf0\x9f\x90\x8e"})
    EXPECT_EQ(printable(name), name);
}

TEST(Printable, showsWhatATerminalWouldObey) {
  EXPECT_EQ(printable("\x1b[31mred"), "\\x1b[31mred");
  EXPECT_EQ(printable("a\nerror: b\r\t\x07"), "a\\x0aerror: b\\x0d\\x09\\x07");
  EXPECT_EQ(printable(std::string("a\0b", 3)), "a\\x00b");
  EXPECT_EQ(printable("\x7f"), "\\x7f");
  EXPECT_EQ(printable("\xc2\x9b"), "\\u009b") << "C1: as ESC and a bracket";
  EXPECT_EQ(printable("\xe2\x80\xae\xe2\x81\xa6"), "\\u202e\\u2066") << "what reorders a line";
  EXPECT_EQ(printable("\xe2\x80\xa8\xe2\x80\xa9\xe2\x80\x8b\xef\xbb\xbf"), "\\u2028\\u2029\\u200b\\ufeff");
  EXPECT_EQ(printable("\xf3\xa0\x81\x81"), "\\ue0041") << "a tag";
}

TEST(Printable, showsBytesThatAreNoText) {
  EXPECT_EQ(printable("\xff\xfe"), "\\xff\\xfe");
  EXPECT_EQ(printable("\x9b"), "\\x9b");
  EXPECT_EQ(printable("\xc3"), "\\xc3") << "ends early";
  EXPECT_EQ(printable("\xc3("), "\\xc3(");
  EXPECT_EQ(printable("\xc0\x9b\xe0\x80\x9b"), "\\xc0\\x9b\\xe0\\x80\\x9b") << "longer than they need be";
  EXPECT_EQ(printable("\xed\xa0\x80"), "\\xed\\xa0\\x80") << "half a surrogate pair";
  EXPECT_EQ(printable("\xf4\x90\x80\x80\xf5"), "\\xf4\\x90\\x80\\x80\\xf5") << "beyond Unicode";
}

// Whatever the bytes are: one line, and nothing to do for a second time.
TEST(Printable, ofAnyBytesIsPrintable) {
  std::mt19937 random(1);
  for (int round = 0; round < 20'000; ++round) {
    std::string bytes(random() % 12, ' ');
    for (char &byte : bytes)
      byte = static_cast<char>(random() % 4 == 0 ? random() % 128 : random() % 256);
    const std::string shown = printable(bytes);
    EXPECT_EQ(printable(shown), shown);
    for (const char c : shown)
      EXPECT_TRUE(static_cast<unsigned char>(c) >= 0x20 && c != 0x7f);
  }
}

TEST(Printable, spellsAsItIsTold) {
  const auto spell = [](std::string_view bytes) { return bytes == "\n" ? std::string(bytes) : "?"; };
  EXPECT_EQ(printable("a\x1b\nb\xe2\x80\xae", spell), "a?\nb?");
}

TEST(PrintableJson, holdsNoOtherStrings) {
  const nlohmann::ordered_json json{{"name", "a\x1b"}, {"list", {"\xff", {{"deep", "\xe2\x80\xae"}}, 7, nullptr}}};
  const auto back = nlohmann::json::parse(dumpPrintable(json, -1));
  EXPECT_EQ(back, nlohmann::json::parse(R"({"name": "a\\x1b", "list": ["\\xff", {"deep": "\\u202e"}, 7, null]})"));
}

} // namespace
} // namespace pumpgraph
