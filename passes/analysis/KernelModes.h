// SPDX-License-Identifier: Apache-2.0
/// \file
/// What the Clang plugin found out about kernels, without launches: whether memory may be read and written, by slot.
#pragma once

#include "pumpgraph/graph/Description.h"

#include <tl/expected.hpp>

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace pumpgraph {

/// Eight bytes of a kernel's parameters that hold an address.
struct SlotModes {
  std::uint32_t parameter = 0;
  std::uint32_t offset = 0; ///< bytes from the parameter's start
  std::uint8_t may = modeReadWrite;
  bool isUnderstood = true; ///< otherwise anything may happen
};

struct KernelModes {
  std::vector<SlotModes> slots; ///< all that were found
  bool otherMemory = false;     ///< memory that no slot leads to is touched as well

  /// What may happen through `parameter`; where it is unknown, through any slot, if all global memory is reached
  /// through slots. `modeNone` if nothing may. Empty if the table does not know.
  std::optional<Mode> modeOf(std::int32_t parameter) const;
};

/// By mangled name.
using KernelTable = std::map<std::string, KernelModes>;

/// Reads what the Clang plugin writes, an object of JSON a line. A kernel that is there twice does what either line
/// says.
tl::expected<KernelTable, std::string> parseKernelTable(std::string_view lines);

} // namespace pumpgraph
