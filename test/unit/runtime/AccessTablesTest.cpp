// SPDX-License-Identifier: Apache-2.0
// Tables by kernel, extents with a launch's numbers, what both make of an access.
#include "pumpgraph/pumpgraph.h"
#include "runtime/capture/Extents.h"
#include "runtime/capture/NarrowAccess.h"
#include "test/unit/runtime/FakeDriver.h"
#include "test/unit/runtime/TestTable.h"

#include <gtest/gtest.h>

#include <deque>
#include <thread>
#include <utility>

using namespace pumpgraph;
using namespace pumpgraph::runtime;
using namespace pumpgraph::runtime::test;

namespace {

using Number = std::optional<std::int64_t>;

constexpr std::int64_t least = INT64_MIN, most = INT64_MAX;

KernelLaunch launchWith(const std::vector<std::vector<char>> &parameters) {
  KernelLaunch launch;
  launch.grid = {5, 6, 7};
  launch.block = {128, 2, 1};
  for (const std::vector<char> &bytes : parameters) {
    launch.bytes.insert(launch.bytes.end(), bytes.begin(), bytes.end());
    launch.ends.push_back(launch.bytes.size());
  }
  return launch;
}

pumpgraph_extent_step step(std::uint8_t op, std::int64_t value = 0, std::uint8_t size = 0,
                           std::uint32_t parameter = 0) {
  return {op, size, 0, parameter, value};
}

Number binary(pumpgraph_extent_op op, std::int64_t a, std::int64_t b) {
  return evaluate({step(PUMPGRAPH_EXTENT_CONSTANT, a), step(PUMPGRAPH_EXTENT_CONSTANT, b), step(op)}, launchWith({}));
}

TEST(Extents, readsTheLaunch) {
  struct {
    float scale = 1;
    std::int16_t rows = -3;
    std::uint8_t flag = 200;
  } options;
  const KernelLaunch launch =
      launchWith({bytesOf(std::uint64_t{1} << 40), bytesOf(options), bytesOf(std::uint64_t{most} + 1)});
  const auto scalar = [&](pumpgraph_extent_op op, std::uint32_t parameter, std::int64_t offset, std::uint8_t size) {
    return evaluate({step(op, offset, size, parameter)}, launch);
  };
  EXPECT_EQ(scalar(PUMPGRAPH_EXTENT_UNSIGNED, 0, 0, 8), std::int64_t{1} << 40);
  EXPECT_EQ(scalar(PUMPGRAPH_EXTENT_SIGNED, 1, 4, 2), -3);
  EXPECT_EQ(scalar(PUMPGRAPH_EXTENT_UNSIGNED, 1, 4, 2), 65533);
  EXPECT_EQ(scalar(PUMPGRAPH_EXTENT_UNSIGNED, 1, 6, 1), 200);
  EXPECT_EQ(scalar(PUMPGRAPH_EXTENT_SIGNED, 1, 6, 1), -56);
  EXPECT_EQ(scalar(PUMPGRAPH_EXTENT_SIGNED, 2, 0, 8), least);
  EXPECT_EQ(evaluate({step(PUMPGRAPH_EXTENT_GRID_DIM, 2)}, launch), 7);
  EXPECT_EQ(evaluate({step(PUMPGRAPH_EXTENT_BLOCK_DIM, 0)}, launch), 128);
}

// (blocks.x * threads.x - 1) * 4 + 4
TEST(Extents, calculatesInPostfixOrder) {
  const Extent extent = {
      step(PUMPGRAPH_EXTENT_GRID_DIM, 0), step(PUMPGRAPH_EXTENT_BLOCK_DIM, 0), step(PUMPGRAPH_EXTENT_MULTIPLY),
      step(PUMPGRAPH_EXTENT_CONSTANT, 1), step(PUMPGRAPH_EXTENT_SUBTRACT),     step(PUMPGRAPH_EXTENT_CONSTANT, 4),
      step(PUMPGRAPH_EXTENT_MULTIPLY),    step(PUMPGRAPH_EXTENT_CONSTANT, 4),  step(PUMPGRAPH_EXTENT_ADD)};
  EXPECT_EQ(evaluate(extent, launchWith({})), 5 * 128 * 4);
  EXPECT_EQ(binary(PUMPGRAPH_EXTENT_MINIMUM, 3, -4), -4);
  EXPECT_EQ(binary(PUMPGRAPH_EXTENT_MAXIMUM, 3, -4), 3);
  EXPECT_EQ(binary(PUMPGRAPH_EXTENT_DIVIDE, 7, 2), 3);
  EXPECT_EQ(binary(PUMPGRAPH_EXTENT_DIVIDE, -7, 2), -4);
  EXPECT_EQ(binary(PUMPGRAPH_EXTENT_DIVIDE, -8, 2), -4);
}

TEST(Extents, areUnknownWhereTheNumbersEnd) {
  EXPECT_EQ(binary(PUMPGRAPH_EXTENT_ADD, most, 1), Number());
  EXPECT_EQ(binary(PUMPGRAPH_EXTENT_SUBTRACT, least, 1), Number());
  EXPECT_EQ(binary(PUMPGRAPH_EXTENT_MULTIPLY, most, 2), Number());
  EXPECT_EQ(binary(PUMPGRAPH_EXTENT_DIVIDE, 1, 0), Number());
  EXPECT_EQ(binary(PUMPGRAPH_EXTENT_DIVIDE, least, -1), Number());
}

TEST(Extents, areUnknownWhereTheLaunchOrTheExpressionLacksSomething) {
  const KernelLaunch launch = launchWith({bytesOf(std::uint32_t{9}), bytesOf(std::uint64_t{most} + 1)});
  const Extent unknown[] = {
      {},
      {step(PUMPGRAPH_EXTENT_UNSIGNED, 0, 8, 0)},  // past the parameter's end
      {step(PUMPGRAPH_EXTENT_UNSIGNED, 4, 4, 0)},  // the same
      {step(PUMPGRAPH_EXTENT_UNSIGNED, -4, 4, 0)}, // before its start
      {step(PUMPGRAPH_EXTENT_UNSIGNED, 0, 4, 2)},  // no such parameter
      {step(PUMPGRAPH_EXTENT_UNSIGNED, 0, 3, 0)},  // no such size
      {step(PUMPGRAPH_EXTENT_UNSIGNED, 0, 8, 1)},  // too large for a signed number
      {step(PUMPGRAPH_EXTENT_GRID_DIM, 3)},
      {step(PUMPGRAPH_EXTENT_BLOCK_DIM, -1)},
      {step(PUMPGRAPH_EXTENT_CONSTANT, 1), step(PUMPGRAPH_EXTENT_CONSTANT, 1)}, // two results
      {step(PUMPGRAPH_EXTENT_CONSTANT, 1), step(PUMPGRAPH_EXTENT_ADD)},         // one operand
      {step(99)},
      {step(PUMPGRAPH_EXTENT_CONSTANT, 1), step(PUMPGRAPH_EXTENT_CONSTANT, 1), step(99)},
  };
  for (const Extent &extent : unknown)
    EXPECT_EQ(evaluate(extent, launch), Number());
  EXPECT_EQ(evaluate({step(PUMPGRAPH_EXTENT_UNSIGNED, 0, 4, 0)}, launch), 9);
}

TEST(AccessTables, findsKernelsOfRegisteredTables) {
  AccessTables tables;
  TestTable first, second;
  first.add("scale", {reads(0), overwrites(2, constant(64))}).add("other", {}, PUMPGRAPH_KERNEL_OTHER_MEMORY);
  second.add("late", {});
  tables.add(&first.table);
  tables.add(&first.table); // once is enough
  tables.add(nullptr);
  const std::optional<KernelAccesses> scale = tables.find("scale");
  ASSERT_TRUE(scale);
  ASSERT_EQ(scale->slots.size(), 2u);
  EXPECT_TRUE(scale->isClosed());
  ASSERT_TRUE(scale->find(2, 0));
  EXPECT_EQ(scale->find(2, 0)->may, modeWrite);
  EXPECT_EQ(evaluate(scale->find(2, 0)->mustEnd, {}), 64);
  EXPECT_FALSE(scale->find(2, 8));
  EXPECT_FALSE(scale->find(1, 0));
  EXPECT_TRUE(tables.find("other")->otherMemory);
  EXPECT_FALSE(tables.find("other")->isClosed());
  EXPECT_FALSE(tables.find("late"));
  tables.add(&second.table);
  EXPECT_TRUE(tables.find("late"));
  tables.remove(&first.table);
  tables.remove(&first.table);
  EXPECT_FALSE(tables.find("scale"));
  EXPECT_TRUE(tables.find("late"));
}

TEST(AccessTables, ignoresOtherVersions) {
  AccessTables tables;
  TestTable table;
  table.add("scale", {});
  table.table.version = PUMPGRAPH_ACCESS_TABLE_VERSION + 1;
  tables.add(&table.table);
  EXPECT_FALSE(tables.find("scale"));
}

TEST(AccessTables, knowsNoModesButTwo) {
  AccessTables tables;
  TestTable table;
  Slot slot = reads(0);
  slot.may = 0xfd;
  table.add("scale", {slot});
  tables.add(&table.table);
  EXPECT_EQ(tables.find("scale")->slots.at(0).may, modeRead);
}

// Two builds of one kernel: an access is what either says, an overwrite what both do.
TEST(AccessTables, joinsTablesThatNameTheSameKernel) {
  AccessTables tables;
  TestTable first, second;
  Slot unused = reads(3, constant(8));
  unused.may = modeNone;
  Slot pointers = reads(4);
  pointers.flags = PUMPGRAPH_SLOT_HOLDS_POINTERS;
  first.add("k", {reads(0, constant(10)), overwrites(1, constant(100)), overwrites(2, constant(50)), unused, reads(4)});
  second.add("k", {updates(0, constant(20)), overwrites(1, constant(60)), reads(3, constant(30)), pointers});
  for (const TestTable *table : {&first, &second})
    tables.add(&table->table);
  const std::optional<KernelAccesses> kernel = tables.find("k");
  ASSERT_TRUE(kernel);
  ASSERT_EQ(kernel->slots.size(), 5u);
  EXPECT_FALSE(kernel->isClosed());
  EXPECT_EQ(kernel->find(0, 0)->may, modeReadWrite);
  EXPECT_EQ(evaluate(kernel->find(0, 0)->end, {}), 20);
  EXPECT_EQ(evaluate(kernel->find(1, 0)->end, {}), 100);
  EXPECT_EQ(evaluate(kernel->find(1, 0)->mustEnd, {}), 60);
  EXPECT_EQ(evaluate(kernel->find(2, 0)->end, {}), 50); // the other does not know the slot
  EXPECT_TRUE(kernel->find(2, 0)->mustEnd.empty());
  EXPECT_EQ(kernel->find(3, 0)->may, modeRead);
  EXPECT_EQ(evaluate(kernel->find(3, 0)->end, {}), 30);
  EXPECT_TRUE(kernel->find(4, 0)->end.empty());

  tables.remove(&second.table);
  EXPECT_EQ(tables.find("k")->find(0, 0)->may, modeRead);
}

// A kernel is pure only if all tables say so, and if it reaches all memory by its slots.
TEST(AccessTables, joinsPurity) {
  constexpr std::uint32_t always = PUMPGRAPH_KERNEL_PURE, apart = PUMPGRAPH_KERNEL_PURE_APART;
  const auto purityOf = [](std::initializer_list<std::uint32_t> flags, std::uint8_t slotFlags = 0) {
    AccessTables tables;
    std::deque<TestTable> all;
    for (const std::uint32_t each : flags) {
      Slot slot = reads(0);
      slot.flags = std::exchange(slotFlags, 0);
      tables.add(&all.emplace_back().add("k", {slot}, each).table);
    }
    return tables.find("k")->purity;
  };
  EXPECT_EQ(purityOf({always}), TabledPurity::Always);
  EXPECT_EQ(purityOf({apart}), TabledPurity::Apart);
  EXPECT_EQ(purityOf({0}), TabledPurity::Unknown);
  EXPECT_EQ(purityOf({always, always}), TabledPurity::Always);
  EXPECT_EQ(purityOf({always, apart}), TabledPurity::Apart);
  EXPECT_EQ(purityOf({always, 0}), TabledPurity::Unknown);
  EXPECT_EQ(purityOf({0, apart}), TabledPurity::Unknown);
  EXPECT_EQ(purityOf({always | PUMPGRAPH_KERNEL_OTHER_MEMORY}), TabledPurity::Unknown);
  EXPECT_EQ(purityOf({always, always | PUMPGRAPH_KERNEL_OTHER_MEMORY}), TabledPurity::Unknown);
  for (const std::uint8_t flag : {PUMPGRAPH_SLOT_ESCAPES, PUMPGRAPH_SLOT_HOLDS_POINTERS, PUMPGRAPH_SLOT_UNRESOLVED})
    EXPECT_EQ(purityOf({always, always}, flag), TabledPurity::Unknown) << int{flag};
}

TEST(AccessTables, takesTablesFromAnyThread) {
  AccessTables tables;
  std::vector<TestTable> all(8);
  std::vector<std::thread> threads;
  for (TestTable &table : all)
    threads.emplace_back([&] {
      table.add("k", {reads(0)});
      tables.add(&table.table);
      EXPECT_TRUE(tables.find("k"));
      tables.remove(&table.table);
    });
  for (std::thread &thread : threads)
    thread.join();
  EXPECT_FALSE(tables.find("k"));
}

TEST(AccessTables, areRegisteredByC) {
  TestTable table;
  table.add("registered", {});
  pumpgraph_register_access_table(&table.table);
  EXPECT_TRUE(AccessTables::ofProcess().find("registered"));
  pumpgraph_unregister_access_table(&table.table);
  EXPECT_FALSE(AccessTables::ofProcess().find("registered"));
}

/// Of an allocation of bytes 1000 to 2000, through a pointer to its byte 1200.
class NarrowAccess : public testing::Test {
protected:
  Narrowed narrowed(const Slot &slot, bool overwriting = true) const {
    return narrow(whole_, 1200, slot, launchWith({bytesOf(std::uint64_t{300})}), overwriting);
  }
  static Access access(std::uint64_t begin, std::uint64_t end, Mode may, Mode must = modeNone) {
    return {.buffer = 3,
            .range = {begin, end - begin},
            .may = may,
            .must = must,
            .evidence = Evidence::Proved,
            .parameter = 7};
  }
  void expectWhole(const Narrowed &narrowed, bool doubtful) const {
    EXPECT_EQ(narrowed.accesses, std::vector<Access>{whole_});
    EXPECT_EQ(!narrowed.doubt.empty(), doubtful) << narrowed.doubt;
  }

  const Access whole_{.buffer = 3, .range = {1000, 1000}, .evidence = Evidence::Declared, .parameter = 7};
};

using Accesses = std::vector<Access>;

TEST_F(NarrowAccess, takesModeAndRange) {
  EXPECT_EQ(narrowed(reads(0)).accesses, Accesses{access(1000, 2000, modeRead)});
  EXPECT_EQ(narrowed(reads(0, number(0))).accesses, Accesses{access(1200, 1500, modeRead)});
  EXPECT_EQ(narrowed(overwrites(0, number(0))).accesses, Accesses{access(1200, 1500, modeWrite, modeWrite)});
  Slot openEnd = updates(0, constant(1));
  openEnd.end = {};
  EXPECT_EQ(narrowed(openEnd).accesses, Accesses{access(1200, 2000, modeReadWrite)});
}

// What may be touched but is not certainly overwritten is an access of its own.
TEST_F(NarrowAccess, cutsOutWhatIsOverwritten) {
  Slot slot = updates(0, constant(400));
  slot.begin = constant(-50);
  slot.mustBegin = constant(0);
  slot.mustEnd = constant(300);
  EXPECT_EQ(narrowed(slot).accesses,
            (Accesses{access(1150, 1200, modeReadWrite), access(1200, 1500, modeReadWrite, modeWrite),
                      access(1500, 1600, modeReadWrite)}));
  EXPECT_EQ(narrowed(slot, false).accesses, Accesses{access(1150, 1600, modeReadWrite)});
  slot.mustEnd = constant(0);
  EXPECT_EQ(narrowed(slot).accesses, Accesses{access(1150, 1600, modeReadWrite)});
}

TEST_F(NarrowAccess, dropsWhatTouchesNothing) {
  Slot unused = reads(0);
  unused.may = modeNone;
  EXPECT_TRUE(narrowed(unused).accesses.empty());
  EXPECT_TRUE(narrowed(reads(0, constant(0))).accesses.empty());
}

// A range is known from above: it ends with the allocation. An overwrite is known from below.
TEST_F(NarrowAccess, believesNoOverwriteBesideTheAllocation) {
  Slot guarded = updates(0, constant(5000));
  guarded.begin = constant(-5000);
  EXPECT_EQ(narrowed(guarded).accesses, Accesses{access(1000, 2000, modeReadWrite)});
  expectWhole(narrowed(overwrites(0, constant(801))), true);
  Slot beside = reads(0, constant(900));
  beside.begin = constant(800);
  expectWhole(narrowed(beside), true);
  Slot impossible = overwrites(0, constant(100));
  impossible.mustEnd = constant(200);
  expectWhole(narrowed(impossible), true);
}

TEST_F(NarrowAccess, believesNothingOfWhatIsNotUnderstood) {
  for (const std::uint8_t flag : {PUMPGRAPH_SLOT_ESCAPES, PUMPGRAPH_SLOT_UNRESOLVED}) {
    Slot slot = overwrites(0, constant(100));
    slot.flags = flag;
    expectWhole(narrowed(slot), false);
  }
  Slot atomic = updates(0, constant(100));
  atomic.flags = PUMPGRAPH_SLOT_ATOMIC;
  EXPECT_EQ(narrowed(atomic).accesses, Accesses{access(1200, 1300, modeReadWrite)});
}

TEST_F(NarrowAccess, takesAnOverflowForUnknown) {
  Slot slot = updates(0, constant(most));
  EXPECT_EQ(narrowed(slot).accesses, Accesses{access(1200, 2000, modeReadWrite)});
  slot.end = constant(most) + constant(1);
  EXPECT_EQ(narrowed(slot).accesses, Accesses{access(1200, 2000, modeReadWrite)});
}

} // namespace
