// SPDX-License-Identifier: Apache-2.0
/// \file
/// Access tables made by hand, in the form that a plugin compiles into a program.
#pragma once

#include "runtime/capture/AccessTables.h"

#include <deque>
#include <string>

namespace pumpgraph::runtime::test {

inline Extent constant(std::int64_t value) {
  return {{PUMPGRAPH_EXTENT_CONSTANT, 0, 0, 0, value}};
}
/// An unsigned number of eight bytes.
inline Extent number(std::uint32_t parameter) {
  return {{PUMPGRAPH_EXTENT_UNSIGNED, 8, 0, parameter, 0}};
}
/// In postfix order.
inline Extent operator+(Extent a, const Extent &b) {
  a.insert(a.end(), b.begin(), b.end());
  a.push_back({PUMPGRAPH_EXTENT_ADD, 0, 0, 0, 0});
  return a;
}

/// Slots of plain pointers, whose bytes from 0 up to `end` are touched.
inline Slot reads(std::uint32_t parameter, const Extent &end = {}) {
  return {parameter, 0, 1, 0, end.empty() ? Extent{} : constant(0), end, {}, {}};
}
inline Slot updates(std::uint32_t parameter, const Extent &end = {}) {
  return {parameter, 0, 3, 0, end.empty() ? Extent{} : constant(0), end, {}, {}};
}
inline Slot overwrites(std::uint32_t parameter, const Extent &end) {
  return {parameter, 0, 2, 0, constant(0), end, constant(0), end};
}

/// One table, which must stay where it is while it is known to anybody.
class TestTable {
public:
  TestTable() = default;
  TestTable(const TestTable &) = delete;
  TestTable &operator=(const TestTable &) = delete;

  /// `slots` in ascending order.
  TestTable &add(std::string name, std::vector<Slot> slots, std::uint32_t flags = 0) {
    Kernel &kernel = kernels_.emplace_back(Kernel{std::move(name), std::move(slots), {}});
    for (const Slot &slot : kernel.slots)
      kernel.views.push_back({slot.parameter,
                              slot.offset,
                              slot.may,
                              static_cast<std::uint8_t>(slot.mustEnd.empty() ? 0 : 2),
                              slot.flags,
                              {},
                              viewOf(slot.begin),
                              viewOf(slot.end),
                              viewOf(slot.mustBegin),
                              viewOf(slot.mustEnd)});
    entries_.push_back({nullptr, kernel.name.c_str(), kernel.views.data(), kernel.views.size(), flags, 0});
    table.kernels = entries_.data();
    table.kernel_count = entries_.size();
    return *this;
  }

  pumpgraph_access_table table{PUMPGRAPH_ACCESS_TABLE_VERSION, 0, nullptr, 0};

private:
  struct Kernel {
    std::string name;
    std::vector<Slot> slots;
    std::vector<pumpgraph_slot> views;
  };

  static pumpgraph_extent viewOf(const Extent &extent) { return {extent.data(), extent.size()}; }

  std::deque<Kernel> kernels_;
  std::vector<pumpgraph_kernel_accesses> entries_;
};

} // namespace pumpgraph::runtime::test
