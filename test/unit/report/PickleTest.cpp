// SPDX-License-Identifier: Apache-2.0
// What Python makes of whole files, test/tools/pump-graph-opt/memory-viz.mlir says.
#include "passes/report/Pickle.h"

#include <gtest/gtest.h>

#include <functional>

namespace pumpgraph {
namespace {

using namespace std::string_literals;

std::string fileOf(const std::function<void(Pickle &)> &write) {
  Pickle pickle;
  write(pickle);
  std::string file = pickle.take();
  EXPECT_EQ(file.substr(0, 2), "\x80\x04"s);
  EXPECT_EQ(file.back(), '.');
  return file.substr(2, file.size() - 3);
}

// pickletools: BININT1, BININT2, BININT, LONG1.
TEST(PickleTest, IntegersTakeTheFewestBytes) {
  const auto file = [](std::int64_t value) { return fileOf([&](Pickle &pickle) { pickle.integer(value); }); };
  EXPECT_EQ(file(0), "K\0"s);
  EXPECT_EQ(file(255), "K\xff"s);
  EXPECT_EQ(file(256), "M\0\1"s);
  EXPECT_EQ(file(65535), "M\xff\xff"s);
  EXPECT_EQ(file(65536), "J\0\0\1\0"s);
  EXPECT_EQ(file(-2), "J\xfe\xff\xff\xff"s);
  EXPECT_EQ(file(INT64_C(1) << 31), "\x8a\x8\0\0\0\x80\0\0\0\0"s);
  EXPECT_EQ(file(-(INT64_C(1) << 40)), "\x8a\x8\0\0\0\0\0\xff\xff\xff"s);
}

TEST(PickleTest, ATextIsWrittenOnce) {
  EXPECT_EQ(fileOf([](Pickle &pickle) {
              pickle.beginList();
              for (const char *text : {"a", "b", "a"})
                pickle.text(text);
              pickle.endList();
            }),
            "](\x8c\1a\x94\x8c\1b\x94h\0e"s);
}

TEST(PickleTest, LongTextsAndManyOfThemHaveLongNumbers) {
  const std::string file = fileOf([](Pickle &pickle) {
    pickle.text(std::string(256, 'x'));
    for (int i = 0; i < 256; ++i)
      pickle.text(std::to_string(i));
    pickle.text("255");
  });
  EXPECT_EQ(file.substr(0, 6), "X\0\1\0\0x"s);
  EXPECT_EQ(file.substr(file.size() - 5), "j\0\1\0\0"s);
}

TEST(PickleTest, DictsAndPairsNest) {
  EXPECT_EQ(fileOf([](Pickle &pickle) {
              pickle.beginDict();
              pickle.key("a").pair(1, 2);
              pickle.key("b").boolean(false);
              pickle.endDict();
            }),
            "}(\x8c\1a\x94K\1K\2\x86\x8c\1b\x94\x89u"s);
}

TEST(PickleTest, ALongListIsAddedInParts) {
  EXPECT_EQ(fileOf([](Pickle &pickle) {
              pickle.beginList();
              pickle.boolean(true);
              pickle.nextItems();
              pickle.boolean(false);
              pickle.endList();
            }),
            "](\x88"
            "e(\x89"
            "e"s);
}

} // namespace
} // namespace pumpgraph
