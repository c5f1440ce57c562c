// SPDX-License-Identifier: Apache-2.0
/// \file
/// What a kernel does with the memory its parameters point to: the result of the device compile, which the host compile
/// turns into the table of access_table.h.
#pragma once

#include "Extent.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace pumpgraph::annotate {

enum Mode : uint8_t { touchesNothing = 0, reads = 1, writes = 2, readsAndWrites = 3 };

/// Eight bytes of a kernel parameter that hold an address.
struct Slot {
  unsigned parameter = 0;
  uint64_t offset = 0;

  friend bool operator==(const Slot &, const Slot &) = default;
  friend auto operator<=>(const Slot &, const Slot &) = default;
};

/// What a kernel does with a slot, wherever in its memory.
struct SlotModes {
  Slot slot;
  uint8_t may = touchesNothing;
  bool escapes = false;
  bool atomic = false;
  bool holdsPointers = false;
  bool unresolved = false;
};

struct SlotAccesses : SlotModes {
  Extent begin, end; ///< nothing outside is touched
  /// Overwritten in full, and no byte of it read before. Both unknown if nothing is for certain.
  Extent mustBegin, mustEnd;

  bool overwrites() const { return mustEnd.isKnown(); }
};

/// When a kernel can run again and leave the same (Purity.h).
enum class Purity : uint8_t {
  unknown,
  apart, ///< in a launch with written slots whose `begin` and `end` are known, and that no other slot leads into
  always,
};

struct KernelAccesses {
  std::string name; ///< mangled
  bool otherMemory = false;
  Purity purity = Purity::unknown;
  std::string impurity;            ///< why its author is not believed that it is pure; else empty. No part of the JSON
  std::vector<SlotAccesses> slots; ///< in ascending order
};

/// A slot of which nothing is known.
SlotAccesses unresolvedSlot(const Slot &slot);

/// What holds whichever of two compilations of a kernel runs.
KernelAccesses join(const KernelAccesses &a, const KernelAccesses &b);

/// One line of JSON a kernel, which fromJson() reads back.
std::string toJson(const KernelAccesses &kernel);
std::optional<KernelAccesses> fromJson(const std::string &line);

} // namespace pumpgraph::annotate
