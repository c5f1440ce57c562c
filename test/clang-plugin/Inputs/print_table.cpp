// SPDX-License-Identifier: Apache-2.0
/// \file
/// Stands in for PumpGraph: prints the tables that register themselves.
#include "pumpgraph/access_table.h"

#include <cstdio>

namespace {

void printExtent(const char *name, const pumpgraph_extent &extent) {
  std::printf(" %s", name);
  for (uint64_t i = 0; i < extent.count; ++i)
    std::printf("%c%d:%d:%u:%lld", i ? ' ' : '=', extent.steps[i].op, extent.steps[i].size, extent.steps[i].parameter,
                static_cast<long long>(extent.steps[i].value));
}

} // namespace

extern "C" void pumpgraph_register_access_table(const pumpgraph_access_table *table) {
  std::printf("table version %u, %llu kernels\n", table->version, static_cast<unsigned long long>(table->kernel_count));
  for (uint64_t k = 0; k < table->kernel_count; ++k) {
    const pumpgraph_kernel_accesses &kernel = table->kernels[k];
    std::printf("kernel %s stub %s flags %u\n", kernel.name, kernel.stub ? "known" : "unknown", kernel.flags);
    for (uint64_t s = 0; s < kernel.slot_count; ++s) {
      const pumpgraph_slot &slot = kernel.slots[s];
      std::printf("  slot %u+%u may %u must %u flags %u", slot.parameter, slot.offset, slot.may, slot.must, slot.flags);
      printExtent("begin", slot.begin);
      printExtent("end", slot.end);
      printExtent("must_begin", slot.must_begin);
      printExtent("must_end", slot.must_end);
      std::printf("\n");
    }
  }
}

extern "C" void pumpgraph_unregister_access_table(const pumpgraph_access_table *table) {
  std::printf("unregistered %llu kernels\n", static_cast<unsigned long long>(table->kernel_count));
}
