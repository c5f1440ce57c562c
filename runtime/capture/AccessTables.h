// SPDX-License-Identifier: Apache-2.0
/// \file
/// The process's registry of access tables, which the Clang plugin emits, by kernel name.
#pragma once

#include "pumpgraph/access_table.h"

#include <cstdint>
#include <mutex>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace pumpgraph::runtime {

/// Empty: unknown.
using Extent = std::vector<pumpgraph_extent_step>;

/// A copy of a pumpgraph_slot, independent of its table.
struct Slot {
  std::uint32_t parameter = 0;
  std::uint32_t offset = 0;
  std::uint8_t may = 0;
  std::uint8_t flags = 0;
  Extent begin, end;
  Extent mustBegin, mustEnd; ///< unknown unless something is overwritten for certain

  /// Whether mode and range mean anything. What escapes may be reached by another address than the slot's.
  bool isUnderstood() const { return (flags & (PUMPGRAPH_SLOT_UNRESOLVED | PUMPGRAPH_SLOT_ESCAPES)) == 0; }
};

/// The launches in which a kernel is pure (pumpgraph::Node::isPure).
enum class TabledPurity : std::uint8_t { Unknown, Apart, Always }; ///< Apart: see PUMPGRAPH_KERNEL_PURE_APART

struct KernelAccesses {
  std::vector<Slot> slots; ///< in ascending order of (parameter, offset)
  bool otherMemory = false;
  TabledPurity purity = TabledPurity::Unknown; ///< of a closed kernel

  const Slot *find(std::uint32_t parameter, std::uint32_t offset) const;
  /// Whether all global memory that the kernel touches is reached by an offset from a slot's own address. If not, what
  /// one slot overwrites may be read first by a way that no slot shows.
  bool isClosed() const;
};

/// The registered tables. Thread-safe.
class AccessTables {
public:
  /// Those that pumpgraph_register_access_table() was told of.
  static AccessTables &ofProcess();

  /// Another version's table, or one that is known already, changes nothing.
  void add(const pumpgraph_access_table *table);
  void remove(const pumpgraph_access_table *table);

  /// What the tables that name the kernel say together: an access is what any of them says, an overwrite what all do,
  /// and so is purity. Nothing if none does.
  std::optional<KernelAccesses> find(std::string_view kernel) const;

private:
  mutable std::mutex mutex_;
  std::vector<const pumpgraph_access_table *> tables_;
  std::unordered_multimap<std::string_view, const pumpgraph_kernel_accesses *> byName_;
};

} // namespace pumpgraph::runtime
