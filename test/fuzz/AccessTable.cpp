// SPDX-License-Identifier: Apache-2.0
// Damaged access tables and arbitrary launches: the ranges derived from them stay inside the allocation.
#include "runtime/capture/NarrowAccess.h"

#include "test/fuzz/Bytes.h"

#include <cstdio>
#include <cstdlib>
#include <deque>

using namespace pumpgraph;
using namespace pumpgraph::runtime;
using pumpgraph::fuzz::Bytes;

namespace {

/// A table with arrays as long as it says, and anything in them.
class Given {
public:
  explicit Given(Bytes &bytes) : bytes_(bytes) {
    kernels_.resize(bytes_.upTo(3));
    for (pumpgraph_kernel_accesses &kernel : kernels_) {
      std::vector<pumpgraph_slot> &slots = slots_.emplace_back(bytes_.upTo(3));
      for (pumpgraph_slot &slot : slots)
        slot = makeSlot();
      kernel = {nullptr, "kernel", slots.data(), slots.size(), bytes_.take<std::uint8_t>(), 0};
    }
    table = {PUMPGRAPH_ACCESS_TABLE_VERSION, 0, kernels_.data(), kernels_.size()};
  }

  pumpgraph_access_table table{};

private:
  pumpgraph_extent makeExtent() {
    std::vector<pumpgraph_extent_step> &steps = steps_.emplace_back(bytes_.upTo(5));
    for (pumpgraph_extent_step &step : steps)
      step = {static_cast<std::uint8_t>(bytes_.upTo(12)), static_cast<std::uint8_t>(1 << bytes_.upTo(4)), 0,
              static_cast<std::uint32_t>(bytes_.upTo(4)), static_cast<std::int64_t>(bytes_.number())};
    return {steps.data(), steps.size()};
  }
  pumpgraph_slot makeSlot() {
    pumpgraph_slot slot{};
    slot.parameter = static_cast<std::uint32_t>(bytes_.upTo(3));
    slot.offset = static_cast<std::uint32_t>(bytes_.upTo(2)) * 8;
    slot.may = bytes_.take<std::uint8_t>();
    slot.must = bytes_.take<std::uint8_t>();
    slot.flags = bytes_.take<std::uint8_t>();
    for (pumpgraph_extent *extent : {&slot.begin, &slot.end, &slot.must_begin, &slot.must_end})
      *extent = makeExtent();
    return slot;
  }

  Bytes &bytes_;
  std::vector<pumpgraph_kernel_accesses> kernels_;
  std::deque<std::vector<pumpgraph_slot>> slots_;
  std::deque<std::vector<pumpgraph_extent_step>> steps_;
};

KernelLaunch makeLaunch(Bytes &bytes) {
  KernelLaunch launch;
  for (int i = 0; i < 3; ++i) {
    launch.grid[static_cast<std::size_t>(i)] = bytes.take<std::uint32_t>();
    launch.block[static_cast<std::size_t>(i)] = bytes.take<std::uint32_t>();
  }
  for (std::size_t left = bytes.upTo(3); left > 0; --left) {
    const std::vector<char> parameter = bytes.block(bytes.upTo(16));
    launch.bytes.insert(launch.bytes.end(), parameter.begin(), parameter.end());
    launch.ends.push_back(launch.bytes.size());
  }
  return launch;
}

void checkInside(const Access &whole, const Narrowed &narrowed) {
  std::uint64_t end = whole.range.offset;
  for (const Access &access : narrowed.accesses) {
    PUMPGRAPH_FUZZ_CHECK(access.range.size > 0 && access.range.offset >= end, "parts are empty or not in order");
    PUMPGRAPH_FUZZ_CHECK(access.range.end() <= whole.range.end(), "a part leaves the allocation");
    PUMPGRAPH_FUZZ_CHECK((access.may & ~whole.may) == 0, "a part may more than the whole");
    PUMPGRAPH_FUZZ_CHECK((access.must & ~access.may) == 0, "a part must do what it may not");
    end = access.range.end();
  }
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t *data, std::size_t size) {
  Bytes bytes(data, size);
  const Given one(bytes), other(bytes);
  AccessTables tables;
  tables.add(&one.table);
  tables.add(&other.table);
  if (const std::optional<KernelAccesses> kernel = tables.find("kernel")) {
    const KernelLaunch launch = makeLaunch(bytes);
    Access whole;
    whole.may = modeReadWrite;
    whole.range = {bytes.upTo(4) * 512, 1 + bytes.number(512) % (std::uint64_t{1} << 40)};
    const auto base = static_cast<std::int64_t>(bytes.number(512) % (std::uint64_t{1} << 41));
    for (const Slot &slot : kernel->slots)
      checkInside(whole, narrow(whole, base, slot, launch, kernel->isClosed()));
  }
  tables.remove(&one.table);
  tables.remove(&other.table);
  PUMPGRAPH_FUZZ_CHECK(!tables.find("kernel"), "a table that was taken away is still known");
  return 0;
}
