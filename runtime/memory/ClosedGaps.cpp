// SPDX-License-Identifier: Apache-2.0
#include "runtime/memory/ClosedGaps.h"

#include <sys/mman.h>

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <fstream>
#include <string>

namespace pumpgraph::runtime {

ClosedGaps::ClosedGaps(std::uint64_t above, std::uint64_t bytes) {
  std::ifstream maps("/proc/self/maps"); // ascending
  std::vector<Gap> gaps;
  std::uint64_t end = above; // of what is mapped without a gap, so far
  for (std::string line; std::getline(maps, line);) {
    std::uint64_t mappingBegin = 0, mappingEnd = 0;
    if (std::sscanf(line.c_str(), "%" SCNx64 "-%" SCNx64, &mappingBegin, &mappingEnd) != 2)
      continue;
    if (line.find("[stack]") != std::string::npos) // which grows down into the gap below it
      break;
    if (mappingBegin >= end + bytes)
      gaps.push_back({reinterpret_cast<void *>(end), mappingBegin - end});
    end = std::max(end, mappingEnd);
  }
  for (const Gap &gap : gaps) {
    void *closed = mmap(gap.address, gap.bytes, PROT_NONE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
    if (closed == gap.address)
      closed_.push_back({closed, gap.bytes});
    else if (closed != MAP_FAILED) // a kernel that does not know the last flag
      munmap(closed, gap.bytes);
  }
}

ClosedGaps::~ClosedGaps() {
  for (const Gap &gap : closed_)
    munmap(gap.address, gap.bytes);
}

} // namespace pumpgraph::runtime
