// SPDX-License-Identifier: Apache-2.0
#include "passes/simulate/UnifiedMemory.h"

#include <algorithm>

namespace pumpgraph {

UnifiedMemory h200UnifiedMemory() {
  return {};
}

UnifiedMemory g10UnifiedMemory() {
  UnifiedMemory memory;
  memory.name = "g10";
  memory.upBytesPerSecond = memory.downBytesPerSecond = memory.populateBytesPerSecond = 15.754e9;
  memory.writesBackBeside = true;
  memory.batchUs = memory.blockUs = memory.prefetchCallUs = 0;
  memory.densityPercent = 100;
  memory.computesWhileFaulting = false;
  memory.hostBytes = std::uint64_t{128} << 30;
  memory.fetchesBesideDisk = true;
  memory.addresses = Addresses::Own;
  return memory;
}

UnifiedMemory g10FastLinkUnifiedMemory() {
  UnifiedMemory memory = g10UnifiedMemory();
  memory.name = "g10-32";
  memory.upBytesPerSecond = memory.downBytesPerSecond = memory.populateBytesPerSecond = 32e9;
  return memory;
}

UnifiedMemory v100UnifiedMemory() {
  UnifiedMemory memory = h200UnifiedMemory();
  memory.name = "v100";
  memory.upBytesPerSecond = memory.downBytesPerSecond = 12.75e9; // 51/63 of 15.754
  return memory;
}

std::optional<UnifiedMemory> unifiedMemoryOf(std::string_view name) {
  for (UnifiedMemory (*memory)() : {h200UnifiedMemory, v100UnifiedMemory, g10UnifiedMemory, g10FastLinkUnifiedMemory})
    if (memory().name == name)
      return memory();
  return std::nullopt;
}

UnifiedMemory withinLink(UnifiedMemory memory, const Machine &machine) {
  memory.upBytesPerSecond = std::min(memory.upBytesPerSecond, machine.upBytesPerSecond);
  memory.downBytesPerSecond = std::min(memory.downBytesPerSecond, machine.downBytesPerSecond);
  return memory;
}

} // namespace pumpgraph
