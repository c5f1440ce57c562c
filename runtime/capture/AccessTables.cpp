// SPDX-License-Identifier: Apache-2.0
#include "runtime/capture/AccessTables.h"

#include <algorithm>
#include <map>
#include <utility>

namespace pumpgraph::runtime {
namespace {

/// A slot's parameter and offset.
using Place = std::pair<std::uint32_t, std::uint32_t>;

constexpr std::uint8_t reads = 1, writes = 2;

Extent extentOf(const pumpgraph_extent &extent) {
  return {extent.steps, extent.steps + extent.count};
}

Slot slotOf(const pumpgraph_slot &given) {
  const auto may = static_cast<std::uint8_t>(given.may & (reads | writes));
  Slot slot{given.parameter, given.offset, may, given.flags, extentOf(given.begin), extentOf(given.end), {}, {}};
  if ((given.must & given.may & writes) != 0) {
    slot.mustBegin = extentOf(given.must_begin);
    slot.mustEnd = extentOf(given.must_end);
  }
  return slot;
}

/// Unknown if either is.
Extent join(Extent a, const Extent &b, pumpgraph_extent_op op) {
  if (a.empty() || b.empty())
    return {};
  a.insert(a.end(), b.begin(), b.end());
  a.push_back({static_cast<std::uint8_t>(op), 0, 0, 0, 0});
  return a;
}

/// What either does, and what both must do.
Slot join(const Slot &a, const Slot &b) {
  Slot both = a;
  both.may |= b.may;
  both.flags |= b.flags;
  if (a.may == 0 || b.may == 0) { // a slot that is not used has no range
    const Slot &used = a.may == 0 ? b : a;
    both.begin = used.begin;
    both.end = used.end;
    both.mustBegin = both.mustEnd = {};
    return both;
  }
  both.begin = join(a.begin, b.begin, PUMPGRAPH_EXTENT_MINIMUM);
  both.end = join(a.end, b.end, PUMPGRAPH_EXTENT_MAXIMUM);
  both.mustBegin = join(a.mustBegin, b.mustBegin, PUMPGRAPH_EXTENT_MAXIMUM);
  both.mustEnd = join(a.mustEnd, b.mustEnd, PUMPGRAPH_EXTENT_MINIMUM);
  return both;
}

TabledPurity purityOf(const pumpgraph_kernel_accesses &kernel) {
  return (kernel.flags & PUMPGRAPH_KERNEL_PURE) != 0         ? TabledPurity::Always
         : (kernel.flags & PUMPGRAPH_KERNEL_PURE_APART) != 0 ? TabledPurity::Apart
                                                             : TabledPurity::Unknown;
}

std::map<Place, Slot> slotsOf(const pumpgraph_kernel_accesses &kernel) {
  std::map<Place, Slot> slots;
  for (std::uint64_t i = 0; i < kernel.slot_count; ++i)
    slots.emplace(Place{kernel.slots[i].parameter, kernel.slots[i].offset}, slotOf(kernel.slots[i]));
  return slots;
}

/// Adds what one more table says. A slot that only one side has is one that the other does not use.
void join(std::map<Place, Slot> &slots, std::map<Place, Slot> others) {
  for (auto &[place, slot] : slots) {
    const auto other = others.find(place);
    slot = join(slot, other == others.end() ? Slot{place.first, place.second, 0, 0, {}, {}, {}, {}} : other->second);
  }
  for (auto &[place, other] : others)
    if (!slots.contains(place))
      slots.emplace(place, join(other, Slot{place.first, place.second, 0, 0, {}, {}, {}, {}}));
}

} // namespace

const Slot *KernelAccesses::find(std::uint32_t parameter, std::uint32_t offset) const {
  const auto found =
      std::lower_bound(slots.begin(), slots.end(), Place{parameter, offset},
                       [](const Slot &slot, const Place &place) { return Place{slot.parameter, slot.offset} < place; });
  return found != slots.end() && found->parameter == parameter && found->offset == offset ? &*found : nullptr;
}

bool KernelAccesses::isClosed() const {
  return !otherMemory && std::all_of(slots.begin(), slots.end(), [](const Slot &slot) {
    return slot.isUnderstood() && (slot.flags & PUMPGRAPH_SLOT_HOLDS_POINTERS) == 0;
  });
}

AccessTables &AccessTables::ofProcess() {
  static AccessTables &tables = *new AccessTables; // destructors of other libraries may come late: never destroyed
  return tables;
}

void AccessTables::add(const pumpgraph_access_table *table) {
  const std::lock_guard lock(mutex_);
  if (!table || table->version != PUMPGRAPH_ACCESS_TABLE_VERSION ||
      std::find(tables_.begin(), tables_.end(), table) != tables_.end())
    return;
  for (std::uint64_t i = 0; i < table->kernel_count; ++i)
    byName_.emplace(table->kernels[i].name, &table->kernels[i]);
  tables_.push_back(table);
}

void AccessTables::remove(const pumpgraph_access_table *table) {
  const std::lock_guard lock(mutex_);
  if (std::erase(tables_, table) == 0)
    return;
  std::erase_if(byName_, [&](const auto &entry) {
    return std::less_equal<>()(table->kernels, entry.second) &&
           std::less<>()(entry.second, table->kernels + table->kernel_count);
  });
}

std::optional<KernelAccesses> AccessTables::find(std::string_view kernel) const {
  const std::lock_guard lock(mutex_);
  const auto [first, last] = byName_.equal_range(kernel);
  if (first == last)
    return std::nullopt;
  KernelAccesses accesses;
  accesses.purity = TabledPurity::Always;
  std::map<Place, Slot> slots = slotsOf(*first->second);
  for (auto entry = first; entry != last; ++entry) {
    accesses.purity = std::min(accesses.purity, purityOf(*entry->second));
    accesses.otherMemory |= (entry->second->flags & PUMPGRAPH_KERNEL_OTHER_MEMORY) != 0;
    if (entry != first)
      join(slots, slotsOf(*entry->second));
  }
  for (auto &[place, slot] : slots)
    accesses.slots.push_back(std::move(slot));
  if (!accesses.isClosed())
    accesses.purity = TabledPurity::Unknown;
  return accesses;
}

} // namespace pumpgraph::runtime
